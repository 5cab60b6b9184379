//! Which part of the writer's type stands for which part of the reader's.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec::Vec,
};

use crate::schema::{BitField, Case, DefId, DefKind, EnumLiteral, Flag, Member, Schema};

/// A member with its place among all members of its structure, bases first.
pub type Placed<'a, T> = (usize, &'a T);

/// A member of the writer's structure, of the reader's, or one that both have.
///
/// At least one side is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair<'a> {
    /// Its place and declaration at the writer; none if only the reader has it.
    pub writer: Option<Placed<'a, Member>>,
    /// Its place and declaration at the reader; none if only the writer has it.
    pub reader: Option<Placed<'a, Member>>,
}

/// What one discriminator value, or all that have no row of their own, selects on either side.
///
/// A side is none where that discriminator selects no member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CasePair<'a> {
    /// The discriminator; none in the last row, which is for every value that has no row.
    pub label: Option<i64>,
    /// The writer's case, by label or else its default.
    pub writer: Option<Placed<'a, Case>>,
    /// The reader's case, by label or else its default.
    pub reader: Option<Placed<'a, Case>>,
}

/// What a reader's union becomes for a discriminator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaseStep {
    /// The reader's case takes the writer's value.
    Same,
    /// The reader has no case for the writer's value; it is skipped and `@try_construct` says what
    /// happens.
    Unknown,
    /// The writer's value has no member here; the reader's takes its default.
    Default,
    /// Neither has a member: the discriminator is all.
    Empty,
}

impl CasePair<'_> {
    /// What the reader does in this row.
    ///
    /// Cases are the same if a label or `default:` selects both. Where a label selects one and
    /// `default:` the other, they are the same only by name: the case was given a label of its
    /// own, or lost it.
    pub fn step(&self) -> CaseStep {
        match (self.writer, self.reader) {
            (Some((_, writer)), Some((_, reader))) => {
                let named = |case: &Case| self.label.is_some_and(|label| case.labels.contains(&label));
                match named(writer) == named(reader) || writer.member.name == reader.member.name {
                    true => CaseStep::Same,
                    false => CaseStep::Unknown,
                }
            }
            (Some(_), None) => CaseStep::Unknown,
            (None, Some(_)) => CaseStep::Default,
            (None, None) => CaseStep::Empty,
        }
    }
}

/// A literal of the writer's enum, of the reader's, or one that both have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiteralPair<'a> {
    /// The literal at the writer.
    pub writer: Option<Placed<'a, EnumLiteral>>,
    /// The literal at the reader.
    pub reader: Option<Placed<'a, EnumLiteral>>,
}

/// A flag of the writer's bitmask, of the reader's, or one that both have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlagPair<'a> {
    /// The flag at the writer.
    pub writer: Option<Placed<'a, Flag>>,
    /// The flag at the reader.
    pub reader: Option<Placed<'a, Flag>>,
}

/// A named field of the writer's bitset, of the reader's, or one that both have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FieldPair<'a> {
    /// The field at the writer.
    pub writer: Option<Placed<'a, BitField>>,
    /// The field at the reader.
    pub reader: Option<Placed<'a, BitField>>,
}

/// Two declarations that contradict each other about what is what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the writer has {writer}, the reader {reader}; {fix}")]
#[non_exhaustive]
pub struct Conflict {
    /// What the writer has.
    pub writer: String,
    /// What the reader has.
    pub reader: String,
    /// The smallest change that makes them agree.
    pub fix: String,
}

impl Conflict {
    pub(super) fn new(writer: impl Into<String>, reader: impl Into<String>, fix: impl Into<String>) -> Conflict {
        Conflict { writer: writer.into(), reader: reader.into(), fix: fix.into() }
    }
}

/// Pairs the members of two structures, bases first: all of the writer's in its order, then those
/// only the reader has in its order.
///
/// Members are the same by id if both ids are explicit, else by name. It is a conflict if
/// - one name has two different explicit ids: nobody can say whether it is the old member or a new
///   one;
/// - a member is one of the reader's by id and another of the reader's by name;
/// - two of the writer's members are one of the reader's, the first by id, the second by name.
///
/// Ids that were counted or hashed never pair members, so they never contradict either.
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
pub fn pair_members<'a>(writer: &'a Schema, w: DefId, reader: &'a Schema, r: DefId) -> Result<Vec<Pair<'a>>, Conflict> {
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

/// Which of the two candidates `member` is, if they do not contradict each other.
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

/// Pairs the cases of two unions by discriminator: a row for each label of the writer, then for
/// each that only the reader has, then one for all other discriminators.
///
/// Names and ids of the members play no part, so there is no conflict.
pub fn pair_cases<'a>(writer: &'a Schema, w: DefId, reader: &'a Schema, r: DefId) -> Vec<CasePair<'a>> {
    let (writers, readers) = (Cases::of(writer, w), Cases::of(reader, r));
    let mut seen = BTreeSet::new();
    let labels = writers.labels().chain(readers.labels()).filter(|label| seen.insert(*label));
    let rows = labels.map(|label| CasePair {
        label: Some(label),
        writer: writers.selected_by(label),
        reader: readers.selected_by(label),
    });
    let mut rows: Vec<CasePair<'a>> = rows.collect();
    rows.push(CasePair { label: None, writer: writers.default, reader: readers.default });
    rows
}

/// The cases of a union, to be looked up by label.
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

    fn selected_by(&self, label: i64) -> Option<Placed<'a, Case>> {
        self.by_label.get(&label).map(|i| (*i, &self.all[*i])).or(self.default)
    }
}

/// The bits of a writer's bitmask or bitset that are something at the reader; it clears all others,
/// as it skips a member that it does not have.
///
/// If all flags or fields pair, bits without a name pass as well, as far as both sides have room
/// for them.
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

/// That many ones from the least significant bit on; at most 64.
fn ones(n: u8) -> u64 {
    u64::MAX.checked_shr(64u32.saturating_sub(n.into())).unwrap_or(0)
}

/// Pairs the literals of two enums by value: the writer's in its order, then those only the reader
/// has.
///
/// Another name at the same value is a renamed literal. It is a conflict if a name has one value
/// here and another there.
pub fn pair_literals<'a>(
    writer: &'a Schema,
    w: DefId,
    reader: &'a Schema,
    r: DefId,
) -> Result<Vec<LiteralPair<'a>>, Conflict> {
    let what = What { noun: "literal", number: "value", annotation: "@value" };
    let rows = pair_numbered(literals(writer, w), literals(reader, r), |l| (&l.name, i64::from(l.value)), what)?;
    Ok(rows.into_iter().map(|(writer, reader)| LiteralPair { writer, reader }).collect())
}

/// Pairs the flags of two bitmasks by position: the writer's in its order, then those only the
/// reader has.
///
/// Another name at the same position is a renamed flag. It is a conflict if a name has one position
/// here and another there.
pub fn pair_flags<'a>(
    writer: &'a Schema,
    w: DefId,
    reader: &'a Schema,
    r: DefId,
) -> Result<Vec<FlagPair<'a>>, Conflict> {
    let what = What { noun: "flag", number: "position", annotation: "@position" };
    let rows = pair_numbered(flags(writer, w), flags(reader, r), |f| (&f.name, i64::from(f.position)), what)?;
    Ok(rows.into_iter().map(|(writer, reader)| FlagPair { writer, reader }).collect())
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

type Row<'a, T> = (Option<Placed<'a, T>>, Option<Placed<'a, T>>);

/// Pairs what has a name and a number by number, and refuses a name that has two numbers.
fn pair_numbered<'a, T>(
    writers: &'a [T],
    readers: &'a [T],
    key: impl Fn(&T) -> (&String, i64),
    what: What,
) -> Result<Vec<Row<'a, T>>, Conflict> {
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
        rows.push((Some((place, part)), left.remove(&number)));
    }
    let only = readers.iter().enumerate().filter(|(_, part)| left.contains_key(&key(part).1));
    rows.extend(only.map(|placed| (None, Some(placed))));
    Ok(rows)
}

/// Pairs the named fields of two bitsets, bases first, by position and width: the writer's in its
/// order, then those only the reader has.
///
/// Another name over the same bits is a renamed field. It is a conflict if a name stands over other
/// bits, or if fields that are not the same share a bit.
pub fn pair_fields<'a>(
    writer: &'a Schema,
    w: DefId,
    reader: &'a Schema,
    r: DefId,
) -> Result<Vec<FieldPair<'a>>, Conflict> {
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
                format!("leave {} where the writer has it, and put new fields behind", describe_bits(field)),
            ));
        }
        rows.push(FieldPair { writer: Some((*place, *field)), reader: found });
    }
    let only = readers.iter().filter(|(_, r)| !writers.iter().any(|(_, w)| same_bits(w, r)));
    rows.extend(only.map(|placed| FieldPair { writer: None, reader: Some(*placed) }));
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
