//! Pairs the parts of the writer's type with the corresponding parts of the reader's type.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec::Vec,
};

use crate::schema::{BitField, Case, DefId, DefKind, EnumLiteral, Flag, Member, Schema};

/// An item with its index among all items of its definition, inherited ones first.
pub type Placed<'a, T> = (usize, &'a T);

/// A part of the writer's type, of the reader's, or one that both have: a member of a structure, a
/// literal of an enum, a flag of a bitmask or a named field of a bitset. At least one side is
/// `Some`.
#[derive(Debug, PartialEq)]
pub struct Pair<'a, T> {
    /// Index and declaration at the writer. `None` if only the reader has the part.
    pub writer: Option<Placed<'a, T>>,
    /// Index and declaration at the reader. `None` if only the writer has the part.
    pub reader: Option<Placed<'a, T>>,
}

impl<T> Clone for Pair<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Pair<'_, T> {}

/// The cases that one discriminator value selects on both sides, or that all values without a row
/// of their own select. A side is `None` if the discriminator selects no member there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CasePair<'a> {
    /// The discriminator. `None` in the last row, which applies to all values without a row.
    pub label: Option<i64>,
    /// The writer's case for it, by label or default.
    pub writer: Option<Placed<'a, Case>>,
    /// The reader's case for it, by label or default.
    pub reader: Option<Placed<'a, Case>>,
}

/// What a reader's union becomes for a discriminator value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaseStep {
    /// The reader's case gets the writer's value.
    Same,
    /// The reader has no case for the writer's value. The value is skipped, and `@try_construct`
    /// decides what happens.
    Unknown,
    /// The writer has no member for the discriminator, but the reader has one, which gets its
    /// default.
    Default,
    /// Neither side has a member; only the discriminator is read.
    Empty,
}

impl CasePair<'_> {
    /// What the reader does in this row.
    ///
    /// Two cases correspond if a label selects both or `default:` selects both. If a label selects
    /// one and `default:` the other, they correspond only if they have the same name: then the case
    /// got or lost a label of its own.
    pub fn step(&self) -> CaseStep {
        match (self.writer, self.reader) {
            (Some((_, writer)), Some((_, reader))) => {
                let named = |case: &Case| self.label.is_some_and(|label| case.labels.contains(&label));
                both(writer, reader, named(writer) == named(reader))
            }
            (Some(_), None) => CaseStep::Unknown,
            (None, Some(_)) => CaseStep::Default,
            (None, None) => CaseStep::Empty,
        }
    }
}

/// The step for two cases, of which the label selects both or none, or only one.
fn both(writer: &Case, reader: &Case, selected_alike: bool) -> CaseStep {
    match selected_alike || writer.member.name == reader.member.name {
        true => CaseStep::Same,
        false => CaseStep::Unknown,
    }
}

/// Declarations of the writer and the reader that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the writer has {writer}, the reader {reader}; {fix}")]
#[non_exhaustive]
pub struct Conflict {
    /// The writer's declaration.
    pub writer: String,
    /// The reader's declaration.
    pub reader: String,
    /// The smallest change after which they agree.
    pub fix: String,
}

impl Conflict {
    pub(super) fn new(writer: impl Into<String>, reader: impl Into<String>, fix: impl Into<String>) -> Conflict {
        Conflict { writer: writer.into(), reader: reader.into(), fix: fix.into() }
    }
}

/// Pairs the members of two structures: first all of the writer's, in its order with inherited ones
/// first, then those that only the reader has, in the reader's order.
///
/// Members correspond by id if both ids are explicit, otherwise by name. These are conflicts:
///
/// - One name has two different explicit ids. It may be the old member or a new one.
/// - A member corresponds to one of the reader's by id and to another of the reader's by name.
/// - Two of the writer's members correspond to the same one of the reader's, the first by id, the
///   second by name.
///
/// Counted and hashed ids never pair members, so they cannot conflict either.
///
/// ```
/// use polywire_core::schema::{Def, DefId, Member, SchemaBuilder, Type, evolve::pair_members};
///
/// let schema = |members| {
///     let mut types = SchemaBuilder::new();
///     let id = types.add(Def::structure("S", members));
///     types.finish(Type::Def(id)).unwrap()
/// };
/// let writer = schema(vec![Member::new("a", Type::Bool), Member::new("b", Type::Bool)]);
/// let reader = schema(vec![Member::new("c", Type::Bool), Member::new("a", Type::Bool)]);
/// let pairs = pair_members(&writer, DefId(0), &reader, DefId(0)).unwrap();
/// let places: Vec<_> = pairs.iter().map(|p| (p.writer.map(|(i, _)| i), p.reader.map(|(i, _)| i))).collect();
/// assert_eq!(places, [(Some(0), Some(1)), (Some(1), None), (None, Some(0))]);
/// ```
pub fn pair_members<'a>(
    writer: &'a Schema,
    w: DefId,
    reader: &'a Schema,
    r: DefId,
) -> Result<Vec<Pair<'a, Member>>, Conflict> {
    let readers = reader.members(r);
    let by_id: BTreeMap<u32, usize> =
        readers.iter().enumerate().filter_map(|(i, m)| Some((m.explicit_id?, i))).collect();
    let by_name: BTreeMap<&str, usize> = readers.iter().enumerate().map(|(i, m)| (m.name.as_str(), i)).collect();
    let mut taken: BTreeMap<usize, &Member> = BTreeMap::new();
    let mut pairs = Vec::new();
    for (place, member) in writer.members(w).into_iter().enumerate() {
        let same_id = member.explicit_id.and_then(|id| by_id.get(&id)).copied();
        let same_name = by_name.get(member.name.as_str()).copied();
        let found = agree(member, &readers, same_id, same_name)?;
        if let Some(first) = found.and_then(|i| taken.insert(i, member)) {
            let both = format!("{} and {}", describe(first), describe(member));
            return Err(Conflict::new(
                both,
                describe(readers[found.unwrap_or_default()]),
                "give the second its own @id on both sides",
            ));
        }
        pairs.push(Pair { writer: Some((place, member)), reader: found.map(|i| (i, readers[i])) });
    }
    let only = readers.iter().enumerate().filter(|(i, _)| !taken.contains_key(i));
    pairs.extend(only.map(|(i, m)| Pair { writer: None, reader: Some((i, *m)) }));
    Ok(pairs)
}

/// The candidate that corresponds to `member`, if the two candidates do not contradict each other.
fn agree(
    member: &Member,
    readers: &[&Member],
    same_id: Option<usize>,
    same_name: Option<usize>,
) -> Result<Option<usize>, Conflict> {
    match (same_id, same_name) {
        (Some(by_id), Some(by_name)) if by_id != by_name => Err(Conflict::new(
            describe(member),
            format!("{} and {}", describe(readers[by_id]), describe(readers[by_name])),
            format!("rename '{}' on one side or drop its @id", member.name),
        )),
        (None, Some(by_name)) => match (member.explicit_id, readers[by_name].explicit_id) {
            (Some(id), Some(_)) => Err(Conflict::new(
                describe(member),
                describe(readers[by_name]),
                format!("give the reader's '{}' @id({id}), or another name if it is another member", member.name),
            )),
            _ => Ok(Some(by_name)),
        },
        (by_id, _) => Ok(by_id),
    }
}

fn describe(member: &Member) -> String {
    match member.explicit_id {
        Some(id) => format!("@id({id}) '{}'", member.name),
        None => format!("'{}'", member.name),
    }
}

/// Pairs the cases of two unions by discriminator value: a row for each of the writer's labels,
/// then one for each label that only the reader has, then one for all other values.
///
/// Names and ids of members have no influence, so there are no conflicts.
pub fn pair_cases<'a>(writer: &'a Schema, w: DefId, reader: &'a Schema, r: DefId) -> Vec<CasePair<'a>> {
    case_steps(writer, w, reader, r).into_iter().map(|(pair, _)| pair).collect()
}

/// The rows of [`pair_cases`] with their [`CasePair::step`], which is slow for a case of very many
/// labels.
pub(crate) fn case_steps<'a>(
    writer: &'a Schema,
    w: DefId,
    reader: &'a Schema,
    r: DefId,
) -> Vec<(CasePair<'a>, CaseStep)> {
    let (writers, readers) = (Cases::of(writer, w), Cases::of(reader, r));
    let mut seen = BTreeSet::new();
    let labels = writers.labels().chain(readers.labels()).filter(|label| seen.insert(*label));
    let rows = labels.map(|label| {
        let (writer, reader) = (writers.selected_by(label), readers.selected_by(label));
        let pair = CasePair { label: Some(label), writer, reader };
        let step = match (writer, reader) {
            (Some((_, writer)), Some((_, reader))) => both(writer, reader, writers.has(label) == readers.has(label)),
            _ => pair.step(),
        };
        (pair, step)
    });
    let mut rows: Vec<(CasePair<'a>, CaseStep)> = rows.collect();
    let others = CasePair { label: None, writer: writers.default, reader: readers.default };
    rows.push((others, others.step()));
    rows
}

/// The cases of a union, indexed by label.
struct Cases<'a> {
    all: &'a [Case],
    by_label: BTreeMap<i64, usize>,
    default: Option<Placed<'a, Case>>,
}

impl<'a> Cases<'a> {
    fn of(schema: &'a Schema, id: DefId) -> Cases<'a> {
        let all: &[Case] = match &schema.def(id).kind {
            DefKind::Union { cases, .. } => cases,
            _ => &[],
        };
        let by_label = all.iter().enumerate().flat_map(|(i, c)| c.labels.iter().map(move |l| (*l, i))).collect();
        Cases { all, by_label, default: all.iter().enumerate().find(|(_, c)| c.is_default) }
    }

    fn labels(&self) -> impl Iterator<Item = i64> + use<'a> {
        self.all.iter().flat_map(|c| c.labels.iter().copied())
    }

    fn has(&self, label: i64) -> bool {
        self.by_label.contains_key(&label)
    }

    fn selected_by(&self, label: i64) -> Option<Placed<'a, Case>> {
        self.by_label.get(&label).map(|i| (*i, &self.all[*i])).or(self.default)
    }
}

/// The bits of a writer's bitmask or bitset that have a meaning at the reader, which clears all
/// others.
///
/// If all flags or fields have a counterpart, bits without a name are kept too, up to the smaller
/// bit bound.
pub fn kept_bits(writer: &Schema, w: DefId, reader: &Schema, r: DefId) -> Result<u64, Conflict> {
    let flags = pair_flags(writer, w, reader, r)?;
    let fields = pair_fields(writer, w, reader, r)?;
    let flags = flags.iter().map(|p| p.writer.and(p.reader).map(|(_, f)| 1 << f.position));
    let fields = fields.iter().map(|p| p.writer.and(p.reader).map(|(_, f)| ones(f.width) << f.position));
    let bits: Vec<Option<u64>> = flags.chain(fields).collect();
    if bits.contains(&None) {
        return Ok(bits.into_iter().flatten().fold(0, |all, bits| all | bits));
    }
    let room = |schema: &Schema, id| schema.holder_size(id).map_or(0, |bytes| 8 * bytes);
    Ok(ones(room(writer, w).min(room(reader, r))))
}

/// A mask of the `n` least significant bits; at most 64.
fn ones(n: u8) -> u64 {
    u64::MAX.checked_shr(64u32.saturating_sub(n.into())).unwrap_or(0)
}

/// Pairs the literals of two enums by value: first the writer's in its order, then those that only
/// the reader has.
///
/// Another name with the same value is a renamed literal. The same name with another value is a
/// conflict.
pub fn pair_literals<'a>(
    writer: &'a Schema,
    w: DefId,
    reader: &'a Schema,
    r: DefId,
) -> Result<Vec<Pair<'a, EnumLiteral>>, Conflict> {
    let what = What { noun: "literal", number: "value", annotation: "@value" };
    pair_numbered(literals(writer, w), literals(reader, r), |l| (&l.name, i64::from(l.value)), what)
}

/// Pairs the flags of two bitmasks by position: first the writer's in its order, then those that
/// only the reader has.
///
/// Another name at the same position is a renamed flag. The same name at another position is a
/// conflict.
pub fn pair_flags<'a>(
    writer: &'a Schema,
    w: DefId,
    reader: &'a Schema,
    r: DefId,
) -> Result<Vec<Pair<'a, Flag>>, Conflict> {
    let what = What { noun: "flag", number: "position", annotation: "@position" };
    pair_numbered(flags(writer, w), flags(reader, r), |f| (&f.name, i64::from(f.position)), what)
}

fn literals(schema: &Schema, id: DefId) -> &[EnumLiteral] {
    match &schema.def(id).kind {
        DefKind::Enum { literals, .. } => literals,
        _ => &[],
    }
}

fn flags(schema: &Schema, id: DefId) -> &[Flag] {
    match &schema.def(id).kind {
        DefKind::Bitmask { flags, .. } => flags,
        _ => &[],
    }
}

#[derive(Clone, Copy)]
struct What {
    noun: &'static str,
    number: &'static str,
    annotation: &'static str,
}

/// Pairs named and numbered items by number, and refuses a name with two numbers.
fn pair_numbered<'a, T>(
    writers: &'a [T],
    readers: &'a [T],
    key: impl Fn(&T) -> (&String, i64),
    what: What,
) -> Result<Vec<Pair<'a, T>>, Conflict> {
    let mut left: BTreeMap<i64, Placed<'a, T>> = readers.iter().enumerate().map(|p| (key(p.1).1, p)).collect();
    let names: BTreeMap<&String, i64> = readers.iter().map(&key).collect();
    let mut rows = Vec::new();
    for (place, part) in writers.iter().enumerate() {
        let (name, number) = key(part);
        if let Some(other) = names.get(name).filter(|other| **other != number) {
            let What { noun, number: numbered, annotation } = what;
            return Err(Conflict::new(
                format!("{noun} '{name}' with {numbered} {number}"),
                format!("{noun} '{name}' with {numbered} {other}"),
                format!("give the reader's '{name}' {annotation}({number}), and what is new a number of its own"),
            ));
        }
        rows.push(Pair { writer: Some((place, part)), reader: left.remove(&number) });
    }
    let only = readers.iter().enumerate().filter(|(_, part)| left.contains_key(&key(part).1));
    rows.extend(only.map(|placed| Pair { writer: None, reader: Some(placed) }));
    Ok(rows)
}

/// Pairs the named fields of two bitsets by position and width: first the writer's in its order
/// with inherited ones first, then those that only the reader has.
///
/// Another name for the same bits is a renamed field. The same name for other bits is a conflict,
/// and so are different fields that share a bit.
pub fn pair_fields<'a>(
    writer: &'a Schema,
    w: DefId,
    reader: &'a Schema,
    r: DefId,
) -> Result<Vec<Pair<'a, BitField>>, Conflict> {
    let named = |schema: &'a Schema, id| {
        let fields = schema.bit_fields(id).into_iter().enumerate();
        fields.filter(|(_, f)| f.name.is_some()).collect::<Vec<Placed<'a, BitField>>>()
    };
    let (writers, readers) = (named(writer, w), named(reader, r));
    let mut rows = Vec::new();
    for (place, field) in &writers {
        let found = readers.iter().find(|(_, other)| same_bits(field, other)).copied();
        let contrary =
            |other: &BitField| !same_bits(field, other) && (field.name == other.name || overlap(field, other));
        if let Some((_, other)) = readers.iter().find(|(_, other)| contrary(other)) {
            return Err(Conflict::new(
                describe_bits(field),
                describe_bits(other),
                format!("leave {} where the writer has it, and add new fields after it", describe_bits(field)),
            ));
        }
        rows.push(Pair { writer: Some((*place, *field)), reader: found });
    }
    let only = readers.iter().filter(|(_, r)| !writers.iter().any(|(_, w)| same_bits(w, r)));
    rows.extend(only.map(|placed| Pair { writer: None, reader: Some(*placed) }));
    Ok(rows)
}

fn same_bits(a: &BitField, b: &BitField) -> bool {
    (a.position, a.width) == (b.position, b.width)
}

fn overlap(a: &BitField, b: &BitField) -> bool {
    let end = |f: &BitField| u16::from(f.position) + u16::from(f.width);
    u16::from(a.position) < end(b) && u16::from(b.position) < end(a)
}

fn describe_bits(field: &BitField) -> String {
    let end = u16::from(field.position) + u16::from(field.width);
    let name = field.name.as_deref().unwrap_or("padding");
    format!("'{name}' in bits {} to {}", field.position, end.saturating_sub(1))
}
