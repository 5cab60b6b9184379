//! Checks the size of a type's values: refuses a schema whose values would be infinite, too deep or
//! too large.

use alloc::{collections::BTreeSet, vec, vec::Vec};

use super::{
    Case, Def, DefId, DefKind, Member, SchemaError, SchemaLimits, Type,
    builder::{base_of, mentioned, types_of, unalias},
};

/// Checks every definition and the root.
pub(super) fn check(defs: &[Def], root: &Type, limits: &SchemaLimits) -> Result<(), SchemaError> {
    let depth = depth(defs, root);
    if depth > limits.depth {
        let (got, max) = (depth as u64, limits.depth as u64);
        return Err(SchemaError::Range { def: "the schema".into(), what: "depth", got, min: 0, max });
    }
    let (known, open) = (vec![None; defs.len()], vec![false; defs.len()]);
    let zeros = defs.iter().map(zero_of).collect();
    let mut sizes = Sizes { defs, zeros, known: [known.clone(), known], open: [open.clone(), open], limits };
    for walk in [Walk::Inline, Walk::Behind] {
        sizes.of_type(walk, root, 0)?;
        (0..defs.len()).try_for_each(|i| sizes.of_def(walk, i, 0).map(drop))?;
    }
    Ok(())
}

/// The largest nesting depth of definitions and collections, from the root or any definition.
///
/// A path ends at a definition that contains itself, except from a structure to its base: walks
/// over types handle such a definition on its own. So the paths form no cycle. Each definition is
/// visited once, because a peer's schema may have very many paths, and without recursion, because
/// they may be long.
fn depth(defs: &[Def], root: &Type) -> usize {
    // The root counts as a definition without a level of its own.
    let at_root = defs.len();
    let recursive = recursive(defs);
    let mut parts: Vec<Vec<(Option<usize>, usize)>> =
        defs.iter().map(|def| parts_with_levels(def, &recursive)).collect();
    parts.push(Vec::new());
    levels_of(root, 0, &recursive, &mut parts[at_root]);
    // Depths of the visited definitions.
    let mut depths: Vec<Option<usize>> = vec![None; parts.len()];
    for start in core::iter::once(at_root).chain(0..at_root) {
        // The current path: each definition with the index of its next part, and the depth of the
        // parts before.
        let mut path = if depths[start].is_none() { vec![(start, 0, 0)] } else { Vec::new() };
        while let Some((at, next, mut deepest)) = path.pop() {
            let mut below = None;
            for (part, (inner, levels)) in parts[at].iter().enumerate().skip(next) {
                let inside = match inner.map(|inner| (inner, depths[inner])) {
                    Some((_, Some(depth))) => depth,
                    Some((inner, None)) => {
                        below = Some((inner, part));
                        break;
                    }
                    None => 0,
                };
                deepest = deepest.max(levels + inside);
            }
            match below {
                // The part counts when its definition is known.
                Some((inner, part)) => path.extend([(at, part, deepest), (inner, 0, 0)]),
                None => depths[at] = Some(deepest),
            }
        }
    }
    depths.into_iter().flatten().max().unwrap_or(0)
}

/// The definitions that contain themselves, directly or through other definitions.
///
/// These are the strongly connected components with several definitions, or with one that refers to
/// itself. Tarjan's algorithm finds them in a single pass, because a peer's schema may have
/// thousands of definitions.
pub(crate) fn recursive(defs: &[Def]) -> BTreeSet<DefId> {
    let edges: Vec<Vec<DefId>> = defs.iter().map(mentioned).collect();
    let (mut index, mut low, mut on_stack) =
        (vec![u32::MAX; edges.len()], vec![0; edges.len()], vec![false; edges.len()]);
    let (mut found, mut stack, mut next) = (BTreeSet::new(), Vec::new(), 0);
    for start in 0..edges.len() {
        let mut open = if index[start] == u32::MAX { vec![(start, 0)] } else { Vec::new() };
        while let Some((at, edge)) = open.pop() {
            if edge == 0 {
                (index[at], low[at], on_stack[at]) = (next, next, true);
                next += 1;
                stack.push(at);
            } else {
                // Back from a neighbour, or at one that was visited before.
                let to = edges[at][edge - 1].0 as usize;
                low[at] = if on_stack[to] { low[at].min(low[to]) } else { low[at] };
            }
            match edges[at].get(edge).map(|to| to.0 as usize) {
                Some(to) => {
                    open.push((at, edge + 1));
                    if index[to] == u32::MAX {
                        open.push((to, 0));
                    }
                }
                None if low[at] == index[at] => {
                    let from = stack.iter().rposition(|d| *d == at).unwrap_or(0);
                    let component = stack.split_off(from);
                    component.iter().for_each(|d| on_stack[*d] = false);
                    if component.len() > 1 || edges[at].contains(&DefId(at as u32)) {
                        found.extend(component.into_iter().map(|d| DefId(d as u32)));
                    }
                }
                None => {}
            }
        }
    }
    found
}

/// How often the values of all types use each definition, if every use counts and the parts of a
/// definition in `recursive` count once.
pub(crate) fn uses(defs: &[Def], recursive: &BTreeSet<DefId>) -> Vec<usize> {
    let edges = |def| mentioned(def).into_iter().filter(|to| !recursive.contains(to)).map(|to| to.0 as usize);
    let edges: Vec<Vec<usize>> = defs.iter().map(|def| edges(def).collect()).collect();
    // The uses of each definition that are not counted yet.
    let mut open = vec![0; defs.len()];
    edges.iter().flatten().for_each(|to| open[*to] += 1);
    let mut known: Vec<usize> = (0..defs.len()).filter(|at| open[*at] == 0).collect();
    let mut uses: Vec<usize> = open.iter().map(|open| usize::from(*open == 0)).collect();
    while let Some(at) = known.pop() {
        for to in &edges[at] {
            uses[*to] = uses[*to].saturating_add(uses[at]);
            open[*to] -= 1;
            if open[*to] == 0 {
                known.push(*to);
            }
        }
    }
    uses
}

/// The types in a definition and its base: the definition where the path goes on, if any, and the
/// number of levels down to it.
fn parts_with_levels(def: &Def, recursive: &BTreeSet<DefId>) -> Vec<(Option<usize>, usize)> {
    let mut parts: Vec<(Option<usize>, usize)> =
        base_of(def).map(|base| (Some(base.0 as usize), 1)).into_iter().collect();
    types_of(def).into_iter().for_each(|ty| levels_of(ty, 1, recursive, &mut parts));
    parts
}

fn levels_of(ty: &Type, levels: usize, recursive: &BTreeSet<DefId>, parts: &mut Vec<(Option<usize>, usize)>) {
    match ty {
        Type::Def(id) => parts.push((Some(id.0 as usize).filter(|_| !recursive.contains(id)), levels)),
        Type::Sequence { element, .. } | Type::Array { element, .. } => {
            levels_of(element, levels + 1, recursive, parts);
        }
        Type::Map { key, value, .. } => {
            levels_of(key, levels + 1, recursive, parts);
            levels_of(value, levels + 1, recursive, parts);
        }
        _ => parts.push((None, levels)),
    }
}

/// Which part of a value a walk adds up.
#[derive(Clone, Copy, PartialEq)]
enum Walk {
    /// The bytes of the value itself, without anything behind a pointer.
    Inline,
    /// What a default value has behind pointers: mandatory `@external` members, and in a union the
    /// default case.
    Behind,
}

/// Size and depth of each definition.
struct Sizes<'a> {
    defs: &'a [Def],
    /// The default of each enum.
    zeros: Vec<i64>,
    known: [Vec<Option<(u64, usize)>>; 2],
    open: [Vec<bool>; 2],
    limits: &'a SchemaLimits,
}

impl Sizes<'_> {
    /// Returns the size in bytes and the depth below. `above` is the depth already reached.
    fn of_type(&mut self, walk: Walk, ty: &Type, above: usize) -> Result<(u64, usize), SchemaError> {
        let (bytes, depth) = match ty {
            Type::Def(id) => self.of_def(walk, id.0 as usize, above)?,
            Type::Array { element, dims } => {
                let (bytes, depth) = self.of_type(walk, element, above + 1)?;
                (dims.iter().fold(bytes, |n, d| n.saturating_mul(u64::from(*d))), depth + 1)
            }
            // A collection ends recursion: its elements are not part of the fixed size, and by
            // default it has none.
            _ if walk == Walk::Behind => (0, 0),
            Type::Sequence { .. } | Type::Map { .. } | Type::String { .. } | Type::WString { .. } => (24, 0),
            _ => (16, 0),
        };
        self.check("bytes of the fixed part", bytes, self.limits.fixed_bytes)?;
        self.check("depth", (above + depth) as u64, self.limits.depth as u64)?;
        Ok((bytes, depth))
    }

    fn of_def(&mut self, walk: Walk, i: usize, above: usize) -> Result<(u64, usize), SchemaError> {
        if let Some(known) = self.known[walk as usize][i] {
            return Ok(known);
        }
        let def = &self.defs[i];
        if core::mem::replace(&mut self.open[walk as usize][i], true) {
            return Err(SchemaError::Infinite { def: def.name.clone() });
        }
        self.check("depth", above as u64, self.limits.depth as u64)?;
        let mut total = (0u64, 0usize);
        let mut add = |(bytes, depth): (u64, usize)| {
            total = (total.0.saturating_add(bytes), total.1.max(depth + 1));
        };
        if let Some(base) = base_of(def) {
            add(self.of_def(walk, base.0 as usize, above + 1)?);
        }
        for (ty, external) in parts_of_value(self.defs, &self.zeros, def, walk) {
            match (walk, external) {
                (Walk::Inline, true) => add((16, 0)),
                (Walk::Inline, false) => add(self.of_type(walk, ty, above + 1)?),
                (Walk::Behind, _) => {
                    add(self.of_type(walk, ty, above + 1)?);
                    if external {
                        add(self.of_type(Walk::Inline, ty, above + 1)?);
                    }
                }
            }
        }
        self.check("bytes of the fixed part", total.0, self.limits.fixed_bytes)?;
        // The parts may have been known before, from a place with less around them.
        self.check("depth", (above + total.1) as u64, self.limits.depth as u64)?;
        self.open[walk as usize][i] = false;
        self.known[walk as usize][i] = Some(total);
        Ok(total)
    }

    fn check(&self, what: &'static str, got: u64, max: u64) -> Result<(), SchemaError> {
        match got <= max {
            true => Ok(()),
            false => Err(SchemaError::Range { def: "the schema".into(), what, got, min: 0, max }),
        }
    }
}

/// The types that a walk visits in a definition, and whether each lies behind a pointer.
fn parts_of_value<'a>(defs: &[Def], zeros: &[i64], def: &'a Def, walk: Walk) -> Vec<(&'a Type, bool)> {
    match &def.kind {
        DefKind::Struct { members, .. } => {
            // By default an optional member is absent.
            let counts = |m: &&Member| walk == Walk::Inline || !m.optional;
            members.iter().filter(counts).map(|m| (&m.ty, m.external)).collect()
        }
        DefKind::Union { discriminator, cases, .. } => {
            let default = default_case(defs, zeros, discriminator, cases);
            let inside = cases.iter().enumerate().filter(|(i, _)| walk == Walk::Inline || *i == default);
            inside.map(|(_, case)| (&case.member.ty, case.member.external)).chain([(discriminator, false)]).collect()
        }
        _ => types_of(def).into_iter().map(|ty| (ty, false)).collect(),
    }
}

/// Index of the case that the discriminator's default selects, or of the first case.
fn default_case(defs: &[Def], zeros: &[i64], discriminator: &Type, cases: &[Case]) -> usize {
    let value = match unalias(defs, discriminator) {
        Some(Type::Def(id)) => zeros.get(id.0 as usize).copied().unwrap_or(0),
        _ => 0,
    };
    let labelled = cases.iter().position(|case| case.labels.contains(&value));
    labelled.or(cases.iter().position(|case| case.is_default)).unwrap_or(0)
}

/// The default of an enum: its `@default_literal`, or its first literal. 0 for other definitions.
fn zero_of(def: &Def) -> i64 {
    match &def.kind {
        DefKind::Enum { literals, .. } => {
            literals.iter().find(|l| l.is_default).or(literals.first()).map_or(0, |l| l.value.into())
        }
        _ => 0,
    }
}
