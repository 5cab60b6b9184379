//! The numbers in a value, for handlers that show or send numbers.

use polywire::extend::layout::ValueRef;

use crate::{Entry, HandlerError, entry::plain};

/// The maximum size of an instance's key and of an index in bytes. They are repeated with each
/// number.
const MAX_TEXT_BYTES: usize = 1024;

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
/// numbers. Refuses a value with more than `most` numbers as soon as these are found, and one with
/// an index that is too long.
pub(crate) fn numbers(
    value: ValueRef<'_>,
    most: usize,
    found: &mut dyn FnMut(&str, &str, Number),
) -> Result<(), HandlerError> {
    Visit { path: String::new(), count: 0, most, found }.add("", value)
}

/// Returns the key members of an entry as text. Refuses a text that is too long.
pub(crate) fn instance(entry: &Entry) -> Result<String, HandlerError> {
    bounded(entry.instance())
}

fn bounded(text: String) -> Result<String, HandlerError> {
    match text.len() > MAX_TEXT_BYTES {
        true => Err(HandlerError::Refused(format!("it has a key with more than {MAX_TEXT_BYTES} bytes"))),
        false => Ok(text),
    }
}

struct Visit<'a> {
    /// The path of the current member.
    path: String,
    /// The number of numbers that were found.
    count: usize,
    most: usize,
    found: &'a mut dyn FnMut(&str, &str, Number),
}

impl Visit<'_> {
    fn add(&mut self, index: &str, value: ValueRef<'_>) -> Result<(), HandlerError> {
        let below = |place: &str| bounded(if index.is_empty() { place.to_owned() } else { format!("{index}.{place}") });
        match value {
            ValueRef::Struct(structure) => {
                structure.fields().into_iter().try_for_each(|(member, value)| self.member(index, &member.name, value))
            }
            ValueRef::Union(union) => {
                union.case().map_or(Ok(()), |(case, value)| self.member(index, &case.member.name, value))
            }
            ValueRef::List(list) if list.as_bytes().is_some() => Ok(()),
            ValueRef::List(list) => {
                list.iter().enumerate().try_for_each(|(at, value)| self.add(&below(&at.to_string())?, value))
            }
            ValueRef::Map(map) => {
                map.entries().into_iter().try_for_each(|(key, value)| self.add(&below(&plain(key))?, value))
            }
            scalar => Number::of(scalar).map_or(Ok(()), |number| self.number(index, number)),
        }
    }

    fn member(&mut self, index: &str, name: &str, value: ValueRef<'_>) -> Result<(), HandlerError> {
        let len = self.path.len();
        self.path.push_str(if len == 0 { "" } else { "." });
        self.path.push_str(name);
        self.add(index, value)?;
        self.path.truncate(len);
        Ok(())
    }

    fn number(&mut self, index: &str, number: Number) -> Result<(), HandlerError> {
        if self.count >= self.most {
            let most = self.most;
            return Err(HandlerError::Refused(format!("there is room for {most} numbers, and it has more")));
        }
        self.count += 1;
        (self.found)(&self.path, index, number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use polywire::{Message as _, Record, Shape};

    use super::*;

    #[derive(Default, polywire::Message)]
    struct Levels {
        #[polywire(key)]
        place: String,
        levels: Vec<f64>,
        limits: BTreeMap<String, i64>,
    }

    fn levels(set: impl FnOnce(&mut Record)) -> Entry {
        let mut record = Record::new(&Shape::of(Levels::shape().schema()).expect("a shape"));
        set(&mut record);
        Entry::new(Default::default(), 1, 0, record)
    }

    #[test]
    fn a_value_is_left_at_the_number_that_is_too_much() {
        let entry = levels(|record| record.resize("levels", 1000).expect("set"));
        for (most, is_taken) in [(3, false), (999, false), (1000, true)] {
            let mut count = 0;
            let all = numbers(entry.value.view(), most, &mut |_, _, _| count += 1);
            assert_eq!((all.is_ok(), count), (is_taken, most));
        }
    }

    #[test]
    fn long_keys_are_refused() {
        let long = "x".repeat(MAX_TEXT_BYTES);
        let entry = levels(|record| record.set("place", long.as_str()).expect("set"));
        assert!(matches!(instance(&entry), Err(HandlerError::Refused(_))));
        assert_eq!(instance(&levels(|record| record.set("place", "a").expect("set"))).expect("short"), "place=a");
        for (key, is_taken) in [(long.clone(), true), (format!("{long}x"), false)] {
            let entry = levels(|record| record.set(&format!("limits[\"{key}\"]"), 1).expect("set"));
            let all = numbers(entry.value.view(), 10, &mut |_, _, _| {});
            assert_eq!(all.is_ok(), is_taken);
        }
    }
}
