//! The numbers in a value, for handlers that show or send numbers.

use polywire::extend::layout::ValueRef;

use crate::entry::plain;

/// A number. An unsigned one that is too large for `Int` is a rounded `Float`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(number) => number as f64,
            Number::Float(number) => number,
        }
    }

    /// Returns the number of a scalar: booleans are 0 or 1; enums, bitmasks and bitsets are their
    /// numeric values. Texts and characters have none.
    fn of(value: ValueRef<'_>) -> Option<Number> {
        let unsigned = |bits: u64| i64::try_from(bits).map_or(Number::Float(bits as f64), Number::Int);
        match value {
            ValueRef::Bool(truth) => Some(Number::Int(truth.into())),
            ValueRef::Int(number) => Some(Number::Int(number)),
            ValueRef::Uint(number) => Some(unsigned(number)),
            ValueRef::Enum(literal) => Some(Number::Int(literal.value().into())),
            ValueRef::Bitmask(mask) => Some(unsigned(mask.bits())),
            ValueRef::Bitset(set) => Some(unsigned(set.bits())),
            other => other.as_f64().map(Number::Float),
        }
    }
}

/// Calls `found` with each number of a value, the path of its member, and its index in lists and
/// maps: `0`, or `0.2` in lists of lists; empty outside of lists and maps. Octets are data, not
/// numbers.
pub(crate) fn numbers(value: ValueRef<'_>, found: &mut dyn FnMut(&str, &str, Number)) {
    add(&mut String::new(), "", value, found);
}

fn add(path: &mut String, index: &str, value: ValueRef<'_>, found: &mut dyn FnMut(&str, &str, Number)) {
    let below = |place: &str| if index.is_empty() { place.to_owned() } else { format!("{index}.{place}") };
    match value {
        ValueRef::Struct(structure) => {
            for (member, value) in structure.fields() {
                add_member(path, index, &member.name, value, found);
            }
        }
        ValueRef::Union(union) => {
            if let Some((case, value)) = union.case() {
                add_member(path, index, &case.member.name, value, found);
            }
        }
        ValueRef::List(list) if list.as_bytes().is_some() => {}
        ValueRef::List(list) => {
            list.iter().enumerate().for_each(|(at, value)| add(path, &below(&at.to_string()), value, found));
        }
        ValueRef::Map(map) => {
            map.entries().into_iter().for_each(|(key, value)| add(path, &below(&plain(key)), value, found));
        }
        scalar => {
            if let Some(number) = Number::of(scalar) {
                found(path, index, number);
            }
        }
    }
}

fn add_member(
    path: &mut String,
    index: &str,
    name: &str,
    value: ValueRef<'_>,
    found: &mut dyn FnMut(&str, &str, Number),
) {
    let len = path.len();
    path.push_str(if len == 0 { "" } else { "." });
    path.push_str(name);
    add(path, index, value, found);
    path.truncate(len);
}
