//! [`SchemaBuilder`]: collects definitions, assigns ids and positions, and refuses contradictions.
//! Everything that makes schemas uses it: derives, the IDL front end and the decoder of schemas.

use alloc::{collections::BTreeSet, format, string::String, vec, vec::Vec};
use md5::{Digest, Md5};

use super::{
    AutoId, Case, Def, DefId, DefKind, Literal, Member, Schema, Type, enum_range,
    literal::{self, Constants},
    sizes,
};

/// Largest member id: 28 bits (XTypes 1.3, 7.3.1.2.1.1).
pub const MAX_MEMBER_ID: u32 = 0x0FFF_FFFF;

/// Limits on the size of a schema, which bound the work of compiling it. Schemas from peers are
/// checked against them first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaLimits {
    /// Largest number of definitions.
    pub defs: usize,
    /// Largest number of members, cases, literals, flags and fields of all definitions together.
    /// Inherited ones count in every structure that inherits them.
    pub members: usize,
    /// Largest nesting depth of definitions and collections. A path ends at a definition that
    /// contains itself, so a family of recursive types may be as large as the other limits allow.
    /// Parts that lie in a value itself, and bases, count also inside such a family.
    pub depth: usize,
    /// Largest size in bytes of a value's fixed part. Nested arrays multiply.
    pub fixed_bytes: u64,
    /// Largest size in bytes of an encoded schema.
    pub bytes: usize,
}

impl Default for SchemaLimits {
    fn default() -> Self {
        SchemaLimits { defs: 4096, members: 65_536, depth: 64, fixed_bytes: 1 << 24, bytes: 1 << 20 }
    }
}

/// Why definitions do not form a valid schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// Two definitions, members, literals, flags or labels have the same name or number.
    #[error("{def}: {what} '{name}' occurs twice")]
    Duplicate {
        /// The definition that contains the two, or the schema.
        def: String,
        /// `definition`, `member`, `member id`, `literal`, `label`, ...
        what: &'static str,
        /// The repeated name or number.
        name: String,
    },
    /// A reference to a definition that does not exist or is of the wrong kind.
    #[error("{def}: {what}")]
    Reference {
        /// The definition that contains the reference.
        def: String,
        /// The reason.
        what: String,
    },
    /// A number outside its range.
    #[error("{def}: {what} is {got}, allowed are {min} to {max}")]
    Range {
        /// The definition that contains the number.
        def: String,
        /// The meaning of the number.
        what: &'static str,
        /// The number.
        got: u64,
        /// Smallest allowed value.
        min: u64,
        /// Largest allowed value.
        max: u64,
    },
    /// A value would be infinite: the type contains itself, either in place or through pointers
    /// that a default value has. A sequence, a map, an optional `@external` member, or a union's
    /// case that is not the default one breaks the cycle.
    #[error(
        "{def} contains itself, so that a value would be infinite; put a sequence between, or make the \
         member @external and @optional, or @external in a case of a union that is not its default"
    )]
    Infinite {
        /// The recursive definition.
        def: String,
    },
}

/// Collects definitions and checks them together.
///
/// ```
/// use polywire_core::schema::{Def, Member, SchemaBuilder, SchemaError, SchemaLimits, Type};
///
/// // A recursive type is reserved first and filled in later.
/// let mut types = SchemaBuilder::with_limits(SchemaLimits { depth: 8, ..SchemaLimits::default() });
/// let node = types.add(Def::structure("Node", vec![]));
/// let children = Type::sequence(Type::Def(node));
/// types.replace(node, Def::structure("Node", vec![Member::new("children", children)]));
/// assert!(types.finish(Type::Def(node)).is_ok());
///
/// let mut types = SchemaBuilder::new();
/// let members = vec![Member::new("a", Type::Bool), Member::new("a", Type::Int8)];
/// let root = types.add(Def::structure("S", members));
/// let error = types.finish(Type::Def(root)).unwrap_err();
/// assert!(matches!(error, SchemaError::Duplicate { .. }), "{error}");
/// ```
#[derive(Debug, Default)]
pub struct SchemaBuilder {
    defs: Vec<Def>,
    limits: SchemaLimits,
}

impl SchemaBuilder {
    /// An empty builder with the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty builder with custom limits.
    pub fn with_limits(limits: SchemaLimits) -> Self {
        SchemaBuilder { defs: Vec::new(), limits }
    }

    /// Adds a definition. It may refer to definitions that are added later.
    pub fn add(&mut self, def: Def) -> DefId {
        self.defs.push(def);
        DefId(self.defs.len() as u32 - 1)
    }

    /// Replaces the definition that an earlier [`SchemaBuilder::add`] reserved, for types that
    /// refer to each other.
    pub fn replace(&mut self, id: DefId, def: Def) {
        self.defs[id.0 as usize] = def;
    }

    /// Assigns ids and positions, checks all definitions, and makes the schema.
    pub fn finish(mut self, root: Type) -> Result<Schema, SchemaError> {
        check_references(&self.defs, &root)?;
        check_limits(&self.defs, &root, &self.limits)?;
        let mut next = vec![0; self.defs.len()];
        for i in bases_first(&self.defs) {
            let start = base_of(&self.defs[i]).map_or(0, |base| next[base.0 as usize]);
            number(&mut self.defs[i], start)?;
            next[i] = next_number(&self.defs[i]).unwrap_or(start);
        }
        check_unique(&self.defs)?;
        let constants = Constants::of(&self.defs);
        self.defs.iter().try_for_each(|def| check_values(&self.defs, &constants, def))?;
        for (def, defaults) in fit_defaults(&constants, &self.defs)?.into_iter().enumerate() {
            own_members_mut(&mut self.defs[def]).zip(defaults).for_each(|(m, default)| m.default = default);
        }
        Ok(Schema::from_checked(self.defs, root))
    }
}

/// The member id that `@autoid(HASH)` and `@hashid` derive from a name: part of its MD5 (XTypes
/// 1.3, 7.3.1.2.1.1).
pub fn hash_id(name: &str) -> u32 {
    let digest = Md5::digest(name.as_bytes());
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]) & MAX_MEMBER_ID
}

pub(super) fn base_of(def: &Def) -> Option<DefId> {
    match &def.kind {
        DefKind::Struct { base, .. } | DefKind::Bitset { base, .. } => *base,
        _ => None,
    }
}

/// All types that a definition refers to.
pub(super) fn types_of(def: &Def) -> Vec<&Type> {
    match &def.kind {
        DefKind::Struct { members, .. } => members.iter().map(|m| &m.ty).collect(),
        DefKind::Union { discriminator, cases, .. } => {
            core::iter::once(discriminator).chain(cases.iter().map(|c| &c.member.ty)).collect()
        }
        DefKind::Bitset { fields, .. } => fields.iter().map(|f| &f.ty).collect(),
        DefKind::Alias { target } => vec![target],
        DefKind::Enum { .. } | DefKind::Bitmask { .. } => Vec::new(),
    }
}

/// The definitions that a definition refers to, in the order of mention. A bitset has the fields of
/// its base itself.
pub(super) fn mentioned(def: &Def) -> Vec<DefId> {
    fn inside(ty: &Type, ids: &mut Vec<DefId>) {
        match ty {
            Type::Def(id) => ids.push(*id),
            Type::Sequence { element, .. } | Type::Array { element, .. } => inside(element, ids),
            Type::Map { key, value, .. } => {
                inside(key, ids);
                inside(value, ids);
            }
            _ => {}
        }
    }
    let mut ids = match &def.kind {
        DefKind::Struct { base, .. } => base.iter().copied().collect(),
        _ => Vec::new(),
    };
    types_of(def).into_iter().for_each(|ty| inside(ty, &mut ids));
    ids
}

/// The number of members, cases, labels, literals, flags or fields of a definition.
pub(crate) fn part_count(def: &Def) -> usize {
    match &def.kind {
        DefKind::Struct { members, .. } => members.len(),
        DefKind::Union { cases, .. } => cases.iter().map(|c| 1 + c.labels.len()).sum(),
        DefKind::Enum { literals, .. } => literals.len(),
        DefKind::Bitmask { flags, .. } => flags.len(),
        DefKind::Bitset { fields, .. } => fields.len(),
        DefKind::Alias { .. } => 1,
    }
}

fn check_references(defs: &[Def], root: &Type) -> Result<(), SchemaError> {
    for def in defs {
        follow(defs, def, base_of)?;
        follow(defs, def, |d| match &d.kind {
            DefKind::Alias { target: Type::Def(id) } => Some(*id),
            _ => None,
        })?;
    }
    let mut levels = vec![None; defs.len()];
    check_type(defs, "the root", root, 0, &mut levels)?;
    for def in defs {
        if let Some(base) = base_of(def) {
            let same_kind = defs
                .get(base.0 as usize)
                .is_some_and(|b| core::mem::discriminant(&b.kind) == core::mem::discriminant(&def.kind));
            if !same_kind {
                return Err(SchemaError::Reference {
                    def: def.name.clone(),
                    what: "its base is of another kind".into(),
                });
            }
        }
        for ty in types_of(def) {
            check_type(defs, &def.name, ty, 0, &mut levels)?;
        }
    }
    Ok(())
}

/// Follows `next` from `def` and refuses an endless chain.
fn follow(defs: &[Def], def: &Def, next: impl Fn(&Def) -> Option<DefId>) -> Result<(), SchemaError> {
    let mut at = def;
    for _ in 0..=defs.len() {
        match next(at) {
            // A missing definition is reported where it is mentioned.
            Some(id) => match defs.get(id.0 as usize) {
                Some(def) => at = def,
                None => return Ok(()),
            },
            None => return Ok(()),
        }
    }
    Err(SchemaError::Infinite { def: def.name.clone() })
}

/// Checks a type, and returns the number of levels below it. `levels` has those of the typedefs
/// that were checked before, because very many members may have a type with many typedefs.
fn check_type(
    defs: &[Def],
    def: &str,
    ty: &Type,
    depth: usize,
    levels: &mut [Option<usize>],
) -> Result<usize, SchemaError> {
    let wrong = |what: String| Err(SchemaError::Reference { def: def.into(), what });
    let known = match ty {
        Type::Def(id) => levels.get(id.0 as usize).copied().flatten(),
        _ => None,
    };
    if depth + known.unwrap_or(0) > MAX_TYPE_DEPTH {
        return wrong(format!("typedefs and collections are nested deeper than {MAX_TYPE_DEPTH}, or endlessly"));
    }
    let mut inside =
        |ty: &Type| -> Result<usize, SchemaError> { Ok(1 + check_type(defs, def, ty, depth + 1, levels)?) };
    match ty {
        Type::Def(id) => match (defs.get(id.0 as usize), known) {
            (None, _) => wrong(format!("definition {} does not exist", id.0)),
            (_, Some(known)) => Ok(known),
            // A typedef of a sequence of itself would be endless once typedefs are resolved.
            (Some(Def { kind: DefKind::Alias { target }, .. }), None) => {
                let below = inside(target)?;
                levels[id.0 as usize] = Some(below);
                Ok(below)
            }
            (Some(_), None) => Ok(0),
        },
        Type::Sequence { element, .. } => inside(element),
        Type::Array { dims, .. } if dims.is_empty() || dims.contains(&0) => {
            wrong("an array has a dimension of 0".into())
        }
        Type::Array { dims, .. } if dims.len() > MAX_TYPE_DEPTH => {
            wrong(format!("an array has more than {MAX_TYPE_DEPTH} dimensions"))
        }
        Type::Array { element, .. } => inside(element),
        Type::Map { key, value, .. } => {
            if !is_map_key(defs, key) {
                return wrong("a map's key must be a boolean, integer, character, string or enum".into());
            }
            Ok(inside(key)?.max(inside(value)?))
        }
        _ => Ok(0),
    }
}

/// Largest nesting depth of types in place, as in `sequence<sequence<..>>`, with typedefs resolved.
/// Protects the stack against schemas from peers.
pub(super) const MAX_TYPE_DEPTH: usize = 32;

/// Resolves aliases in a table that may not be checked yet. `None` if that fails.
pub(super) fn unalias<'a>(defs: &'a [Def], mut ty: &'a Type) -> Option<&'a Type> {
    for _ in 0..=MAX_TYPE_DEPTH + 1 {
        match ty {
            Type::Def(id) => match &defs.get(id.0 as usize)?.kind {
                DefKind::Alias { target } => ty = target,
                _ => return Some(ty),
            },
            _ => return Some(ty),
        }
    }
    None
}

fn is_map_key(defs: &[Def], ty: &Type) -> bool {
    match unalias(defs, ty) {
        Some(Type::Def(id)) => defs.get(id.0 as usize).is_some_and(|d| matches!(d.kind, DefKind::Enum { .. })),
        Some(Type::String { .. } | Type::WString { .. }) => true,
        Some(ty) => ty.is_primitive() && !matches!(ty, Type::Float32 | Type::Float64 | Type::Float128),
        None => false,
    }
}

fn check_limits(defs: &[Def], root: &Type, limits: &SchemaLimits) -> Result<(), SchemaError> {
    let range = |what, got: u64, max: u64| match got <= max {
        true => Ok(()),
        false => Err(SchemaError::Range { def: "the schema".into(), what, got, min: 0, max }),
    };
    range("number of definitions", defs.len() as u64, limits.defs as u64)?;
    let inherited = |def: &Def| {
        let bases = core::iter::successors(base_of(def), |id| base_of(&defs[id.0 as usize]));
        bases.map(|id| part_count(&defs[id.0 as usize]) as u64).sum::<u64>()
    };
    let members = defs.iter().fold(0u64, |n, def| n.saturating_add(part_count(def) as u64 + inherited(def)));
    range("number of members", members, limits.members as u64)?;
    sizes::check(defs, root, limits)
}

/// Indices of all definitions, each base before the definitions that derive from it.
fn bases_first(defs: &[Def]) -> Vec<usize> {
    let mut order = Vec::with_capacity(defs.len());
    let mut placed = vec![false; defs.len()];
    for start in 0..defs.len() {
        let mut chain = vec![];
        let mut at = Some(DefId(start as u32));
        while let Some(id) = at.filter(|id| !placed[id.0 as usize]) {
            placed[id.0 as usize] = true;
            chain.push(id.0 as usize);
            at = base_of(&defs[id.0 as usize]);
        }
        order.extend(chain.into_iter().rev());
    }
    order
}

/// The member id or bit position after the last part of a numbered definition. `None` if it has no
/// parts of its own.
fn next_number(def: &Def) -> Option<u32> {
    match &def.kind {
        DefKind::Struct { members, .. } => members.last().map(|m| m.id + 1),
        DefKind::Bitset { fields, .. } => fields.last().map(|f| u32::from(f.position) + u32::from(f.width)),
        _ => None,
    }
}

/// Assigns member ids and bit positions, counting from `start`.
fn number(def: &mut Def, start: u32) -> Result<(), SchemaError> {
    let mut ids = MemberIds { def: &def.name, auto_id: def.auto_id, next: start };
    match &mut def.kind {
        DefKind::Struct { members, .. } => members.iter_mut().try_for_each(|m| ids.give(m)),
        DefKind::Union { cases, .. } => {
            // The discriminator has member id 0 (XTypes 1.3, 7.3.1.2.1.1).
            ids.next = 1;
            cases.iter_mut().try_for_each(|c| ids.give(&mut c.member))
        }
        DefKind::Bitset { fields, .. } => {
            let mut next = start;
            fields.iter_mut().try_for_each(|field| {
                in_range(&def.name, "the width of a bit field", u64::from(field.width), 1, 64)?;
                field.position = next as u8;
                next += u32::from(field.width);
                in_range(&def.name, "the width of a bitset", u64::from(next), 1, 64)
            })
        }
        _ => Ok(()),
    }
}

struct MemberIds<'a> {
    def: &'a str,
    auto_id: AutoId,
    next: u32,
}

impl MemberIds<'_> {
    fn give(&mut self, member: &mut Member) -> Result<(), SchemaError> {
        member.id = match (member.explicit_id, self.auto_id) {
            (Some(id), _) => id,
            (None, AutoId::Hash) => hash_id(&member.name),
            (None, AutoId::Sequential) => self.next,
        };
        self.next = member.id.saturating_add(1);
        in_range(self.def, "a member id", u64::from(member.id), 0, u64::from(MAX_MEMBER_ID))
    }
}

fn in_range(def: &str, what: &'static str, got: u64, min: u64, max: u64) -> Result<(), SchemaError> {
    match (min..=max).contains(&got) {
        true => Ok(()),
        false => Err(SchemaError::Range { def: def.into(), what, got, min, max }),
    }
}

/// For each definition, the defaults of its members as constants of the members' types. Refuses
/// defaults that do not fit.
fn fit_defaults(constants: &Constants<'_>, defs: &[Def]) -> Result<Vec<Vec<Option<Literal>>>, SchemaError> {
    let of_def = |def: &Def| own_members(def).map(|m| fit_default(constants, def, m)).collect();
    defs.iter().map(of_def).collect()
}

fn fit_default(constants: &Constants<'_>, def: &Def, member: &Member) -> Result<Option<Literal>, SchemaError> {
    let Some(default) = &member.default else { return Ok(None) };
    match constants.fit(&member.ty, default) {
        Some(fitted) => Ok(Some(fitted)),
        None => refer(def, format!("the default of '{}' is not a value of its type", member.name)),
    }
}

/// The members of a structure without inherited ones, or the members of a union's cases.
fn own_members(def: &Def) -> impl Iterator<Item = &Member> {
    let (members, cases): (&[Member], &[Case]) = match &def.kind {
        DefKind::Struct { members, .. } => (members, &[]),
        DefKind::Union { cases, .. } => (&[], cases),
        _ => (&[], &[]),
    };
    members.iter().chain(cases.iter().map(|c| &c.member))
}

fn own_members_mut(def: &mut Def) -> impl Iterator<Item = &mut Member> {
    let (members, cases): (&mut [Member], &mut [Case]) = match &mut def.kind {
        DefKind::Struct { members, .. } => (members, &mut []),
        DefKind::Union { cases, .. } => (&mut [], cases),
        _ => (&mut [], &mut []),
    };
    members.iter_mut().chain(cases.iter_mut().map(|c| &mut c.member))
}

/// Checks that names and numbers are unique where they must be.
fn check_unique(defs: &[Def]) -> Result<(), SchemaError> {
    unique("the schema", "definition", defs.iter().map(|d| d.name.clone()))?;
    for (i, def) in defs.iter().enumerate() {
        match &def.kind {
            DefKind::Struct { .. } => {
                let members = inherited_members(defs, i);
                unique(&def.name, "member", members.iter().map(|m| m.name.clone()))?;
                unique(&def.name, "member id", members.iter().map(|m| format!("{}", m.id)))?;
            }
            DefKind::Union { cases, .. } => {
                unique(&def.name, "member", cases.iter().map(|c| c.member.name.clone()))?;
                unique(&def.name, "member id", cases.iter().map(|c| format!("{}", c.member.id)))?;
                unique(&def.name, "label", cases.iter().flat_map(|c| &c.labels).map(|l| format!("{l}")))?;
                unique(&def.name, "label", cases.iter().filter(|c| c.is_default).map(|_| "default".into()))?;
            }
            DefKind::Enum { literals, .. } => {
                unique(&def.name, "literal", literals.iter().map(|l| l.name.clone()))?;
                unique(&def.name, "value", literals.iter().map(|l| format!("{}", l.value)))?;
                let defaults = literals.iter().filter(|l| l.is_default);
                unique(&def.name, "literal", defaults.map(|_| "@default_literal".into()))?;
            }
            DefKind::Bitmask { flags, .. } => {
                unique(&def.name, "flag", flags.iter().map(|f| f.name.clone()))?;
                unique(&def.name, "position", flags.iter().map(|f| format!("{}", f.position)))?;
            }
            DefKind::Bitset { fields, .. } => unique(&def.name, "field", fields.iter().filter_map(|f| f.name.clone()))?,
            DefKind::Alias { .. } => {}
        }
    }
    Ok(())
}

fn inherited_members(defs: &[Def], i: usize) -> Vec<&Member> {
    let mut chain = vec![i];
    while let Some(base) = base_of(&defs[chain[chain.len() - 1]]) {
        chain.push(base.0 as usize);
    }
    let own = |i: &usize| match &defs[*i].kind {
        DefKind::Struct { members, .. } => members.as_slice(),
        _ => &[],
    };
    chain.iter().rev().flat_map(own).collect()
}

fn unique(def: &str, what: &'static str, names: impl Iterator<Item = String>) -> Result<(), SchemaError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if seen.contains(&name) {
            return Err(SchemaError::Duplicate { def: def.into(), what, name });
        }
        seen.insert(name);
    }
    Ok(())
}

fn check_values(defs: &[Def], constants: &Constants<'_>, def: &Def) -> Result<(), SchemaError> {
    check_names(def)?;
    match &def.kind {
        DefKind::Enum { bit_bound, literals } => {
            in_range(&def.name, "@bit_bound", u64::from(*bit_bound), 1, 32)?;
            in_range(&def.name, "the number of literals", literals.len() as u64, 1, u64::MAX)?;
            let (least, most) = enum_range(*bit_bound);
            match literals.iter().find(|l| !(least..=most).contains(&l.value.into())) {
                Some(l) => {
                    refer(def, format!("the value {} of '{}' does not fit @bit_bound({bit_bound})", l.value, l.name))
                }
                None => Ok(()),
            }
        }
        DefKind::Bitmask { bit_bound, flags } => {
            in_range(&def.name, "@bit_bound", u64::from(*bit_bound), 1, 64)?;
            let last = u64::from(*bit_bound) - 1;
            flags.iter().try_for_each(|f| in_range(&def.name, "@position", u64::from(f.position), 0, last))
        }
        DefKind::Union { discriminator, cases, .. } => {
            in_range(&def.name, "the number of cases", cases.len() as u64, 1, u64::MAX)?;
            if !is_discriminator(defs, discriminator) {
                return refer(def, "a discriminator must be a boolean, octet, integer, character or enum");
            }
            cases.iter().try_for_each(|case| check_labels(defs, constants, def, discriminator, case))?;
            match cases.iter().find(|case| case.is_default && case.labels.is_empty()) {
                Some(case) if !any_is_free(defs, discriminator, cases) => refer(
                    def,
                    format!(
                        "every value of the discriminator is a label, so none selects the default case '{}'",
                        case.member.name
                    ),
                ),
                _ => Ok(()),
            }
        }
        DefKind::Bitset { fields, .. } => fields.iter().try_for_each(|f| match bits_of(defs, &f.ty) {
            Some(bits) => in_range(&def.name, "the width of a bit field", u64::from(f.width), 1, bits),
            None => refer(def, "a bit field must be a boolean, octet or integer"),
        }),
        DefKind::Struct { members, .. } => match members.iter().find(|m| m.key && m.optional) {
            Some(m) => refer(def, format!("'{}' is @key and @optional; a key is always present", m.name)),
            None => Ok(()),
        },
        DefKind::Alias { .. } => Ok(()),
    }
}

fn refer<T>(def: &Def, what: impl Into<String>) -> Result<T, SchemaError> {
    Err(SchemaError::Reference { def: def.name.clone(), what: what.into() })
}

/// Names are printed, and are keys in text formats. They must not be empty or contain control
/// characters.
fn check_names(def: &Def) -> Result<(), SchemaError> {
    let is_name = |name: &str| !name.is_empty() && !name.chars().any(char::is_control);
    let all_are = match &def.kind {
        DefKind::Enum { literals, .. } => literals.iter().all(|l| is_name(&l.name)),
        DefKind::Bitmask { flags, .. } => flags.iter().all(|f| is_name(&f.name)),
        DefKind::Bitset { fields, .. } => fields.iter().filter_map(|f| f.name.as_deref()).all(is_name),
        _ => own_members(def).all(|m| is_name(&m.name)),
    };
    match all_are && is_name(&def.name) {
        true => Ok(()),
        false => refer(def, "a name is empty or contains control characters"),
    }
}

/// Checks that each label is a value of the discriminator and that each case can be selected.
fn check_labels(
    defs: &[Def],
    constants: &Constants<'_>,
    def: &Def,
    discriminator: &Type,
    case: &Case,
) -> Result<(), SchemaError> {
    if case.labels.is_empty() && !case.is_default {
        return refer(def, format!("no label selects '{}'", case.member.name));
    }
    if case.member.optional || case.member.key {
        return refer(def, format!("'{}' is a union's member, which is neither @optional nor @key", case.member.name));
    }
    let is_value = |label: &i64| match unalias(defs, discriminator) {
        Some(Type::Bool) => matches!(label, 0 | 1),
        Some(Type::Char8) => (0..=0xFF).contains(label),
        Some(Type::Char16) => (0..=0xFFFF).contains(label),
        Some(ty @ Type::Def(_)) => constants.fit(ty, &Literal::Int((*label).into())).is_some(),
        Some(ty) => literal::integer_range(ty).is_some_and(|range| range.contains(&(*label).into())),
        None => false,
    };
    match case.labels.iter().find(|label| !is_value(label)) {
        Some(label) => refer(def, format!("the label {label} is not a value of the discriminator")),
        None => Ok(()),
    }
}

/// Returns whether some discriminator value is not a label. The labels were checked before: they
/// are values of the discriminator and differ.
fn any_is_free(defs: &[Def], discriminator: &Type, cases: &[Case]) -> bool {
    let values = match unalias(defs, discriminator) {
        Some(Type::Bool) => 2,
        Some(Type::Octet | Type::Int8 | Type::Uint8 | Type::Char8) => 1 << 8,
        Some(Type::Int16 | Type::Uint16 | Type::Char16) => 1 << 16,
        Some(Type::Def(id)) => match defs.get(id.0 as usize).map(|def| &def.kind) {
            Some(DefKind::Enum { literals, .. }) => literals.len(),
            _ => usize::MAX,
        },
        _ => usize::MAX,
    };
    cases.iter().map(|case| case.labels.len()).sum::<usize>() < values
}

/// Bits of a type that a bit field may have.
fn bits_of(defs: &[Def], ty: &Type) -> Option<u64> {
    Some(match unalias(defs, ty)? {
        Type::Bool => 1,
        Type::Octet | Type::Int8 | Type::Uint8 => 8,
        Type::Int16 | Type::Uint16 => 16,
        Type::Int32 | Type::Uint32 => 32,
        Type::Int64 | Type::Uint64 => 64,
        _ => return None,
    })
}

fn is_discriminator(defs: &[Def], ty: &Type) -> bool {
    is_map_key(defs, ty) && !matches!(unalias(defs, ty), Some(Type::String { .. } | Type::WString { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{BitField, EnumLiteral};

    fn finish(defs: Vec<Def>) -> Result<Schema, SchemaError> {
        let mut builder = SchemaBuilder::new();
        defs.into_iter().for_each(|d| {
            builder.add(d);
        });
        builder.finish(Type::Def(DefId(0)))
    }

    #[test]
    fn ids_count_on_from_the_base_even_if_it_comes_later() {
        let derived = Def::structure("D", vec![Member::new("c", Type::Bool)]).with_base(DefId(1));
        let base = Def::structure("B", vec![Member::new("a", Type::Bool).with_id(7), Member::new("b", Type::Bool)]);
        let schema = finish(vec![derived, base]).unwrap();
        let ids: Vec<u32> = schema.members(DefId(0)).iter().map(|m| m.id).collect();
        assert_eq!(ids, [7, 8, 9]);
    }

    #[test]
    fn ids_count_on_through_a_base_without_members() {
        let base = Def::structure("B", vec![Member::new("a", Type::Bool)]);
        let empty = Def::structure("E", vec![]).with_base(DefId(0));
        let derived = Def::structure("D", vec![Member::new("b", Type::Bool)]).with_base(DefId(1));
        let schema = finish(vec![base, empty, derived]).unwrap();
        assert_eq!(schema.members(DefId(2)).iter().map(|m| m.id).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn hashed_ids_are_those_of_the_specification() {
        // XTypes 7.3.1.2.1.1 gives "color" -> 0x0FA5DD70.
        assert_eq!(hash_id("color"), 0x0FA5_DD70);
    }

    #[test]
    fn recursion_needs_a_sequence() {
        let direct = Def::structure("A", vec![Member::new("a", Type::Def(DefId(0)))]);
        assert_eq!(finish(vec![direct]).unwrap_err(), SchemaError::Infinite { def: "A".into() });
        let through = Def::structure("A", vec![Member::new("a", Type::sequence(Type::Def(DefId(0))))]);
        assert!(finish(vec![through]).is_ok());
    }

    #[test]
    fn recursion_may_go_through_cases_that_no_fresh_value_has() {
        let reference = |external: bool| {
            let element = Member { external, ..Member::new("element", Type::Def(DefId(0))) };
            Def::structure("Many", vec![Member::new("bound", Type::Octet), element])
        };
        let case = |label: i64, ty: Type| Case::new([label], format!("c{label}"), ty);
        let union = |labels: [i64; 2]| {
            let cases = vec![case(labels[0], Type::Def(DefId(1))), case(labels[1], Type::Octet)];
            Def::union("Identifier", Type::Octet, cases)
        };
        assert!(finish(vec![union([1, 0]), reference(true)]).is_ok());
        // Without the pointer the union would contain itself; as the default case it would be
        // infinite.
        assert!(finish(vec![union([1, 0]), reference(false)]).is_err());
        assert!(finish(vec![union([0, 1]), reference(true)]).is_err());
    }

    #[test]
    fn what_is_behind_pointers_counts() {
        let chain = |levels: u32| {
            let next = |i| Member { external: true, ..Member::new("next", Type::array(Type::Def(DefId(i + 1)), [32])) };
            let mut defs: Vec<Def> = (0..levels).map(|i| Def::structure(format!("S{i}"), vec![next(i)])).collect();
            defs.push(Def::structure("Last", vec![Member::new("a", Type::Float64)]));
            finish(defs)
        };
        assert!(chain(2).is_ok());
        assert!(matches!(chain(20), Err(SchemaError::Range { .. })));
    }

    #[test]
    fn recursion_through_a_pointer_needs_a_way_out() {
        let external = |m: Member| Member { external: true, ..m };
        let of = |member: Member| finish(vec![Def::structure("A", vec![member])]);
        let next = || external(Member::new("next", Type::Def(DefId(0))));
        let error = of(next()).unwrap_err();
        assert_eq!(error, SchemaError::Infinite { def: "A".into() });
        assert!(error.to_string().contains("@external and @optional"), "{error}");
        assert!(of(Member { optional: true, ..next() }).is_ok());

        let case = |label: i64, member: Member| Case { member, ..Case::new([label], "", Type::Bool) };
        let union = |cases: Vec<Case>| finish(vec![Def::union("U", Type::Int32, cases)]);
        let leaf = || Member::new("leaf", Type::Int32);
        assert!(union(vec![case(0, leaf()), case(1, next())]).is_ok());
        assert!(union(vec![case(1, next()), case(0, leaf())]).is_ok());
        // A default value would be infinite: the recursive case is selected by 0, or it is the
        // first one and nothing is selected.
        assert!(union(vec![case(0, next()), case(1, leaf())]).is_err());
        assert!(union(vec![case(2, next()), case(1, leaf())]).is_err());
        assert!(union(vec![case(0, leaf()), case(1, Member { external: false, ..next() })]).is_err());
    }

    #[test]
    fn a_default_case_can_be_selected() {
        let default = || Case { labels: vec![], is_default: true, ..Case::new([1], "d", Type::Bool) };
        let labelled = |label: i64| Case::new([label], format!("c{label}"), Type::Bool);
        let union =
            |ty: Type, cases: Vec<Case>| finish(vec![Def::union("U", ty, cases), Def::enumeration("E", ["A", "B"])]);
        for ty in [Type::Bool, Type::Def(DefId(1))] {
            let error = union(ty.clone(), vec![labelled(0), labelled(1), default()]).unwrap_err();
            assert!(error.to_string().contains("none selects the default case 'd'"), "{error}");
            assert!(union(ty.clone(), vec![labelled(0), default()]).is_ok());
            let both = Case { is_default: true, ..labelled(1) };
            assert!(union(ty, vec![labelled(0), both]).is_ok());
        }
        assert!(union(Type::Octet, (0..255).map(labelled).chain([default()]).collect()).is_ok());
        assert!(union(Type::Octet, (0..256).map(labelled).chain([default()]).collect()).is_err());
    }

    #[test]
    fn a_chain_of_aliases_or_bases_must_end() {
        assert!(finish(vec![Def::alias("A", Type::Def(DefId(0)))]).is_err());
        let a = Def::structure("A", vec![]).with_base(DefId(1));
        let b = Def::structure("B", vec![]).with_base(DefId(0));
        assert!(finish(vec![a, b]).is_err());
    }

    #[test]
    fn arrays_of_arrays_cannot_ask_for_the_moon() {
        let ty = Type::array(Type::array(Type::Uint64, [60_000]), [60_000, 60_000]);
        let error = finish(vec![Def::structure("A", vec![Member::new("a", ty)])]).unwrap_err();
        assert!(matches!(error, SchemaError::Range { what: "bytes of the fixed part", .. }), "{error}");
    }

    #[test]
    fn names_labels_and_values_are_checked() {
        let refused =
            |def: Def| matches!(finish(vec![def]), Err(SchemaError::Reference { .. } | SchemaError::Range { .. }));
        let member = |name: &str| Member::new(name, Type::Bool);
        assert!(refused(Def::structure("S", vec![member("")])));
        assert!(refused(Def::structure("S", vec![member("a\0b")])));
        assert!(refused(Def::structure("\x1b[2J", vec![])));
        assert!(refused(Def::structure("S", vec![member("a").as_key().as_optional()])));
        let case = |labels: &[i64]| Case::new(labels, "a", Type::Bool);
        assert!(refused(Def::union("U", Type::Bool, vec![case(&[2])])));
        assert!(refused(Def::union("U", Type::Uint8, vec![case(&[-1])])));
        assert!(refused(Def::union("U", Type::Int32, vec![case(&[])])));
        assert!(refused(Def::union("U", Type::Int32, vec![Case { member: member("a").as_optional(), ..case(&[1]) }])));
        let literals = vec![EnumLiteral::new("A", 128)];
        let narrow = DefKind::Enum { bit_bound: 8, literals };
        assert!(refused(Def { kind: narrow, ..Def::enumeration("E", ["A"]) }));
        let of_bits = |bit_bound, value| {
            let kind = DefKind::Enum { bit_bound, literals: vec![EnumLiteral::new("A", value)] };
            refused(Def { kind, ..Def::enumeration("E", ["A"]) })
        };
        assert!(!of_bits(4, 15) && of_bits(4, 16) && !of_bits(4, -8) && of_bits(4, -9));
        assert!(
            !of_bits(16, 0x7FFF) && of_bits(16, 0x8000) && !of_bits(32, i32::MIN) && !of_bits(1, 1) && of_bits(1, 2)
        );
        assert!(refused(Def::bitset("B", vec![BitField { ty: Type::Octet, ..BitField::new("a", 9) }])));
        assert!(refused(Def::bitset("B", vec![BitField { ty: Type::Float32, ..BitField::new("a", 9) }])));
    }

    #[test]
    fn types_end_once_typedefs_are_resolved() {
        let of_itself = Def::alias("A", Type::sequence(Type::Def(DefId(0))));
        assert!(matches!(finish(vec![of_itself]), Err(SchemaError::Reference { .. })));
        let chain = |n: u32| (0..n).map(|i| Def::alias(format!("A{i}"), Type::sequence(Type::Def(DefId(i + 1)))));
        let end = |n| chain(n).chain([Def::alias("End", Type::Bool)]).collect();
        assert!(finish(end(8)).is_ok());
        assert!(finish(end(4000)).is_err());
    }

    #[test]
    fn members_count_wherever_they_are_inherited() {
        let wide = Def::structure("B", (0..1000).map(|i| Member::new(format!("m{i}"), Type::Bool)).collect());
        let derived = (0..1000).map(|i| Def::structure(format!("D{i}"), vec![]).with_base(DefId(0)));
        let error = finish([wide].into_iter().chain(derived).collect()).unwrap_err();
        assert!(matches!(error, SchemaError::Range { what: "number of members", got: 1_001_000, .. }), "{error}");
    }

    #[test]
    fn contradictions_are_refused() {
        let twice = Def::structure("A", vec![Member::new("a", Type::Bool), Member::new("a", Type::Bool)]);
        assert!(matches!(finish(vec![twice]), Err(SchemaError::Duplicate { what: "member", .. })));
        let same_id = vec![Member::new("a", Type::Bool).with_id(1), Member::new("b", Type::Bool).with_id(1)];
        assert!(matches!(finish(vec![Def::structure("A", same_id)]), Err(SchemaError::Duplicate { .. })));
        let labels = vec![Case::new([1], "a", Type::Bool), Case::new([1], "b", Type::Bool)];
        assert!(matches!(finish(vec![Def::union("U", Type::Int32, labels)]), Err(SchemaError::Duplicate { .. })));
        let wide = vec![BitField::new("a", 60), BitField::new("b", 5)];
        assert!(matches!(finish(vec![Def::bitset("B", wide)]), Err(SchemaError::Range { .. })));
        let dangling = Def::structure("A", vec![Member::new("a", Type::Def(DefId(9)))]);
        assert!(matches!(finish(vec![dangling]), Err(SchemaError::Reference { .. })));
    }
}
