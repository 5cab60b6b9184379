//! Paths into values, such as `entries[2].price`, `limits["low"]` or `grid[1][2]`: parsing, and
//! following them through records and views.

use alloc::{borrow::ToOwned, format, string::String, vec::Vec};

use super::{
    Kind, OutOfMemory, ValueRef,
    view::{ListRef, TypedPlace, entries, member, members, selected_case},
};

/// Why a path has no target, or why its target cannot store a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The text is not a valid path.
    #[error("'{path}' is not a path: expected {expected} at byte {at}")]
    Syntax {
        /// The whole path.
        path: String,
        /// Offset of the error in bytes.
        at: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// A structure or union has no such member.
    #[error("{}there is no '{name}' among {there}", before(path))]
    NoMember {
        /// The path up to the error; empty for the value itself.
        path: String,
        /// The name in the path.
        name: String,
        /// The names that exist, separated by commas; at most 12.
        there: String,
    },
    /// The union has another case selected.
    #[error("{}the union has another case selected than '{name}'", before(path))]
    OtherCase {
        /// The path up to the error; empty for the value itself.
        path: String,
        /// The case in the path.
        name: String,
    },
    /// The index is not less than the number of elements.
    #[error("{}index {index} is out of range, there are {len} elements", before(path))]
    OutOfRange {
        /// The path up to the error; empty for the value itself.
        path: String,
        /// The index in the path.
        index: u64,
        /// Number of elements.
        len: usize,
    },
    /// The map does not have this key.
    #[error("{}the map has no key {key}", before(path))]
    NoEntry {
        /// The path up to the error; empty for the value itself.
        path: String,
        /// The key in the path.
        key: String,
    },
    /// The path continues after an absent value.
    #[error("{} is absent", named(path))]
    Absent {
        /// The path up to the absent value.
        path: String,
    },
    /// The next step does not suit the type: a name in a list, or an index in a structure.
    #[error("{} has no {what}", named(path))]
    WrongKind {
        /// The path up to the error; empty for the value itself.
        path: String,
        /// `members`, `elements` or `entries`.
        what: &'static str,
    },
    /// The type of the target cannot hold the value.
    #[error("{}{why}", before(path))]
    DoesNotFit {
        /// The path of the target.
        path: String,
        /// The reason.
        why: String,
    },
    /// An allocation failed.
    #[error("{}{OutOfMemory}", before(path))]
    OutOfMemory {
        /// The path of the target.
        path: String,
    },
}

/// A path as the beginning of a message; empty for the value itself.
fn before(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("'{path}': ") }
}

/// A path as the subject of a sentence.
fn named(path: &str) -> String {
    if path.is_empty() { "the value".to_owned() } else { format!("'{path}'") }
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Segment {
    Name(String),
    Index(i128),
    Key(String),
}

/// The target of a path.
pub(super) enum Target<'a> {
    TypedPlace(TypedPlace<'a>),
    Row(ListRef<'a>),
}

impl<'a> Target<'a> {
    pub(super) fn view(self) -> ValueRef<'a> {
        match self {
            Target::TypedPlace(spot) => spot.view(),
            Target::Row(row) => ValueRef::List(row),
        }
    }
}

impl<'a> ValueRef<'a> {
    /// The value at a path. The empty path is the value itself. A path may end at an absent value
    /// but not continue after it.
    pub fn get(&self, path: &str) -> Result<ValueRef<'a>, PathError> {
        let steps = parse(path)?;
        if steps.is_empty() {
            return Ok(*self);
        }
        let start = match self {
            ValueRef::List(list) => Target::Row(*list),
            other => match other.spot() {
                Some(spot) => Target::TypedPlace(spot),
                None => return Err(PathError::WrongKind { path: String::new(), what: "members" }),
            },
        };
        walk(start, &steps, &mut |_, _| Ok(())).map(Target::view)
    }

    /// The place of a structure, union or map.
    fn spot(&self) -> Option<TypedPlace<'a>> {
        match self {
            ValueRef::Struct(v) => Some(v.spot()),
            ValueRef::Union(v) => Some(v.spot()),
            ValueRef::Map(v) => Some(v.spot()),
            _ => None,
        }
    }
}

/// Follows `steps` from `start`. `prepare` is called before each step and may change the place, for
/// example make it present or select a case.
pub(super) fn walk<'a>(
    start: Target<'a>,
    steps: &[Segment],
    prepare: &mut dyn FnMut(TypedPlace<'a>, &Segment) -> Result<(), PathError>,
) -> Result<Target<'a>, PathError> {
    let mut at = start;
    for (i, step) in steps.iter().enumerate() {
        let here = || text(&steps[..i]);
        at = match at {
            Target::Row(row) => from_list(row, step, &here)?,
            Target::TypedPlace(spot) => {
                prepare(spot, step)?;
                let spot = spot.inner().ok_or_else(|| PathError::Absent { path: here() })?;
                from_spot(spot, step, &here)?
            }
        };
    }
    Ok(at)
}

fn from_spot<'a>(spot: TypedPlace<'a>, step: &Segment, here: &dyn Fn() -> String) -> Result<Target<'a>, PathError> {
    let wrong = |what| Err(PathError::WrongKind { path: here(), what });
    match (spot.kind(), step) {
        (Kind::Struct { .. }, Segment::Name(name)) => match member(spot, name) {
            Some(part) => Ok(Target::TypedPlace(part)),
            None => Err(no_member(here(), name, members(spot).iter().map(|(m, _)| m.name.as_str()))),
        },
        (Kind::Union(_), Segment::Name(name)) => match selected_case(spot) {
            Some((case, part)) if case.member.name == *name => Ok(Target::TypedPlace(part)),
            _ => {
                let names: Vec<&str> = cases(spot).collect();
                match names.contains(&name.as_str()) {
                    true => Err(PathError::OtherCase { path: here(), name: name.clone() }),
                    false => Err(no_member(here(), name, names.into_iter())),
                }
            }
        },
        (Kind::Map(_), Segment::Index(_) | Segment::Key(_)) => {
            let is_key = |key: &TypedPlace<'_>| match (key.view(), step) {
                (ValueRef::Str(text), Segment::Key(key)) => text == key,
                (ValueRef::Enum(literal), Segment::Key(key)) => literal.name() == key,
                (value, Segment::Index(i)) => {
                    value.as_i64().map(i128::from).or(value.as_u64().map(i128::from)) == Some(*i)
                }
                _ => false,
            };
            match entries(spot).into_iter().find(|(key, _)| is_key(key)) {
                Some((_, value)) => Ok(Target::TypedPlace(value)),
                None => Err(PathError::NoEntry { path: here(), key: text(core::slice::from_ref(step)) }),
            }
        }
        (Kind::Sequence(_) | Kind::Array { .. }, Segment::Index(_)) => match spot.view() {
            ValueRef::List(list) => from_list(list, step, here),
            _ => wrong("elements"),
        },
        (_, Segment::Name(_)) => wrong("members"),
        (_, Segment::Index(_)) => wrong("elements"),
        (_, Segment::Key(_)) => wrong("entries"),
    }
}

fn from_list<'a>(list: ListRef<'a>, step: &Segment, here: &dyn Fn() -> String) -> Result<Target<'a>, PathError> {
    match step {
        Segment::Index(index) => match usize::try_from(*index).ok().filter(|i| *i < list.len()) {
            Some(index) => Ok(list.row(index).map_or_else(Target::TypedPlace, Target::Row)),
            None => {
                let index = u64::try_from(*index).unwrap_or(u64::MAX);
                Err(PathError::OutOfRange { path: here(), index, len: list.len() })
            }
        },
        Segment::Name(_) => Err(PathError::WrongKind { path: here(), what: "members" }),
        Segment::Key(_) => Err(PathError::WrongKind { path: here(), what: "entries" }),
    }
}

/// Names of a union's cases.
pub(super) fn cases<'a>(spot: TypedPlace<'a>) -> impl Iterator<Item = &'a str> {
    let cases = match spot.def().map(|(_, def)| &def.kind) {
        Some(crate::schema::DefKind::Union { cases, .. }) => cases.as_slice(),
        _ => &[],
    };
    cases.iter().map(|c| c.member.name.as_str())
}

pub(super) fn no_member<'n>(path: String, name: &str, there: impl Iterator<Item = &'n str>) -> PathError {
    const SHOWN: usize = 12;
    let mut there: Vec<&str> = there.take(SHOWN + 1).collect();
    if there.len() > SHOWN {
        there[SHOWN] = "..";
    }
    PathError::NoMember { path, name: name.to_owned(), there: there.join(", ") }
}

/// Path steps as text.
pub(super) fn text(steps: &[Segment]) -> String {
    let mut out = String::new();
    for step in steps {
        match step {
            Segment::Name(name) if out.is_empty() => out.push_str(name),
            Segment::Name(name) => out.push_str(&format!(".{name}")),
            Segment::Index(i) => out.push_str(&format!("[{i}]")),
            Segment::Key(key) => out.push_str(&format!("[{key:?}]")),
        }
    }
    out
}

pub(super) fn parse(path: &str) -> Result<Vec<Segment>, PathError> {
    let mut steps = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let fail =
            |rest: &str, expected| PathError::Syntax { path: path.into(), at: path.len() - rest.len(), expected };
        if first == '[' {
            let (step, after) = bracket(&rest[1..]).map_err(|(rest, expected)| fail(rest, expected))?;
            steps.push(step);
            rest = after;
            continue;
        }
        let name = match (first, steps.is_empty()) {
            ('.', false) => &rest[1..],
            (_, true) => rest,
            _ => return Err(fail(rest, "'.' or '['")),
        };
        let end = name.find(['.', '[', ']', '"']).unwrap_or(name.len());
        if end == 0 {
            return Err(fail(name, "a name"));
        }
        steps.push(Segment::Name(name[..end].into()));
        rest = &name[end..];
    }
    Ok(steps)
}

/// Parses the text after a `[`. Returns the step and the text after the `]`.
fn bracket(text: &str) -> Result<(Segment, &str), (&str, &'static str)> {
    let (step, rest) = match text.strip_prefix('"') {
        Some(quoted) => {
            let mut key = String::new();
            let mut chars = quoted.char_indices();
            let end = loop {
                match chars.next() {
                    Some((i, '"')) => break i,
                    Some((_, '\\')) => key.extend(chars.next().map(|(_, c)| c)),
                    Some((_, c)) => key.push(c),
                    None => return Err((&text[text.len()..], "'\"'")),
                }
            };
            (Segment::Key(key), &quoted[end + 1..])
        }
        None => {
            let end = text.find(']').unwrap_or(text.len());
            match text[..end].parse::<i64>() {
                Ok(index) => (Segment::Index(index.into()), &text[end..]),
                Err(_) => match text[..end].parse::<u64>() {
                    Ok(index) => (Segment::Index(index.into()), &text[end..]),
                    Err(_) => return Err((text, "a number or a quoted key")),
                },
            }
        }
    };
    match rest.strip_prefix(']') {
        Some(rest) => Ok((step, rest)),
        None => Err((rest, "']'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_back_as_they_were() {
        for path in ["", "a", "a.b[2].c", "[0][1]", "m[\"k\\\"]\"].x", "m[-7]"] {
            assert_eq!(text(&parse(path).unwrap()), path);
        }
    }

    #[test]
    fn mistakes_say_where() {
        let at = |path: &str| match parse(path).unwrap_err() {
            PathError::Syntax { at, expected, .. } => (at, expected),
            other => panic!("{other}"),
        };
        assert_eq!(at("a..b"), (2, "a name"));
        assert_eq!(at("a[x]"), (2, "a number or a quoted key"));
        assert_eq!(at("a[1"), (3, "']'"));
        assert_eq!(at("a[1]b"), (4, "'.' or '['"));
        assert_eq!(at("a[\"b]"), (5, "'\"'"));
        assert_eq!(at("a]"), (1, "'.' or '['"));
    }
}
