//! Orders definitions so that each comes before its uses, with forward declarations for those that
//! use each other. The emitter of IDL calls it.

use polywire_core::schema::{Def, DefId, DefKind, Schema, Type};

use super::EmitError;

/// The next piece to write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Piece {
    Declare(DefId),
    Define(DefId),
}

/// Orders all definitions. Definitions that are already in order keep it.
pub(super) fn steps(schema: &Schema) -> Result<Vec<Piece>, EmitError> {
    let mut steps = Vec::new();
    for group in groups(schema) {
        let recursive = group.len() > 1 || uses(schema, group[0]).iter().any(|u| u.id == group[0]);
        if !recursive {
            steps.push(Piece::Define(group[0]));
            continue;
        }
        let declared = group.iter().filter(|id| can_be_declared(schema.def(**id)));
        steps.extend(declared.map(|id| Piece::Declare(*id)));
        define_group(schema, &group, &mut steps)?;
    }
    Ok(steps)
}

fn can_be_declared(def: &Def) -> bool {
    matches!(def.kind, DefKind::Struct { .. } | DefKind::Union { .. })
}

/// A definition that another one uses.
struct Use {
    id: DefId,
    /// The use needs the complete definition; a forward declaration is not enough.
    complete: bool,
}

fn uses(schema: &Schema, id: DefId) -> Vec<Use> {
    let mut found = Vec::new();
    match &schema.def(id).kind {
        DefKind::Struct { base, members } => {
            found.extend(base.map(|id| Use { id, complete: true }));
            members.iter().for_each(|m| uses_of(schema, &m.ty, !m.external, &mut found));
        }
        DefKind::Union { discriminator, cases, .. } => {
            uses_of(schema, discriminator, true, &mut found);
            cases.iter().for_each(|c| uses_of(schema, &c.member.ty, !c.member.external, &mut found));
        }
        DefKind::Bitset { base, fields } => {
            found.extend(base.map(|id| Use { id, complete: true }));
            fields.iter().for_each(|f| uses_of(schema, &f.ty, true, &mut found));
        }
        DefKind::Alias { target } => uses_of(schema, target, false, &mut found),
        DefKind::Enum { .. } | DefKind::Bitmask { .. } => {}
    }
    found
}

fn uses_of(schema: &Schema, ty: &Type, by_value: bool, found: &mut Vec<Use>) {
    match ty {
        Type::Def(id) => {
            found.push(Use { id: *id, complete: by_value || !can_be_declared(schema.def(*id)) });
            // A use of a typedef is a use of its target.
            if let (DefKind::Alias { target }, true) = (&schema.def(*id).kind, by_value) {
                uses_of(schema, target, true, found);
            }
        }
        Type::Array { element, .. } => uses_of(schema, element, by_value, found),
        Type::Sequence { element, .. } => uses_of(schema, element, false, found),
        Type::Map { key, value, .. } => {
            uses_of(schema, key, false, found);
            uses_of(schema, value, false, found);
        }
        _ => {}
    }
}

/// Groups of definitions that use each other, each after the groups that it uses: Tarjan's
/// algorithm for strongly connected components.
fn groups(schema: &Schema) -> Vec<Vec<DefId>> {
    let count = schema.defs().len();
    let (numbers, on_stack) = (vec![0; count], vec![false; count]);
    let mut search = Search { schema, next: 1, numbers, on_stack, stack: vec![], groups: vec![] };
    for i in 0..count {
        if search.numbers[i] == 0 {
            search.visit(DefId(i as u32));
        }
    }
    search.groups
}

struct Search<'a> {
    schema: &'a Schema,
    next: u32,
    /// The order of visits, from 1. 0 means not visited.
    numbers: Vec<u32>,
    on_stack: Vec<bool>,
    stack: Vec<DefId>,
    groups: Vec<Vec<DefId>>,
}

/// A definition whose uses are being visited.
struct Visit {
    id: DefId,
    uses: std::vec::IntoIter<Use>,
    /// The smallest visit number that is reachable from it.
    lowest: u32,
}

impl Search<'_> {
    /// Visits everything that is reachable from `id`. It uses an explicit stack instead of
    /// recursion, because a chain may contain all definitions.
    fn visit(&mut self, id: DefId) {
        let mut path = vec![self.open(id)];
        while let Some(visit) = path.last_mut() {
            if let Some(used) = visit.uses.next() {
                let there = used.id.0 as usize;
                if self.numbers[there] == 0 {
                    path.push(self.open(used.id));
                } else if self.on_stack[there] {
                    visit.lowest = visit.lowest.min(self.numbers[there]);
                }
                continue;
            }
            let (id, lowest) = (visit.id, visit.lowest);
            path.pop();
            if let Some(outer) = path.last_mut() {
                outer.lowest = outer.lowest.min(lowest);
            }
            if lowest == self.numbers[id.0 as usize] {
                self.close(id);
            }
        }
    }

    fn open(&mut self, id: DefId) -> Visit {
        let number = self.next;
        self.next += 1;
        self.numbers[id.0 as usize] = number;
        self.on_stack[id.0 as usize] = true;
        self.stack.push(id);
        Visit { id, uses: uses(self.schema, id).into_iter(), lowest: number }
    }

    /// Pops a group: the definitions on the stack from `id` on use each other.
    fn close(&mut self, id: DefId) {
        let start = self.stack.iter().rposition(|open| *open == id).unwrap_or(0);
        let mut group = self.stack.split_off(start);
        group.iter().for_each(|id| self.on_stack[id.0 as usize] = false);
        group.sort();
        self.groups.push(group);
    }
}

/// Orders a group so that definitions whose complete form is needed come first.
fn define_group(schema: &Schema, group: &[DefId], steps: &mut Vec<Piece>) -> Result<(), EmitError> {
    let mut open: Vec<DefId> = Vec::new();
    let mut done: Vec<DefId> = Vec::new();
    for id in group {
        define(schema, *id, group, &mut open, &mut done)?;
    }
    steps.extend(done.into_iter().map(Piece::Define));
    Ok(())
}

fn define(
    schema: &Schema,
    id: DefId,
    group: &[DefId],
    open: &mut Vec<DefId>,
    done: &mut Vec<DefId>,
) -> Result<(), EmitError> {
    if done.contains(&id) {
        return Ok(());
    }
    if open.contains(&id) {
        return Err(EmitError::Order { def: schema.def(id).name.clone() });
    }
    open.push(id);
    for used in uses(schema, id).into_iter().filter(|u| u.complete && group.contains(&u.id)) {
        define(schema, used.id, group, open, done)?;
    }
    open.pop();
    done.push(id);
    Ok(())
}
