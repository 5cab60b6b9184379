//! The messages that a table has: ranges of sequence numbers of each writer, so that a message that
//! a source delivers again is stored once.

use std::collections::HashMap;

use serde_json::{Value, json};

/// The maximum number of writers that are remembered.
const MAX_WRITERS: usize = 65_536;

/// The maximum number of ranges of a writer. Repeated messages are among the newest ones, so the
/// oldest range is forgotten first.
const MAX_RANGES: usize = 16;

/// The numbers of the messages of each writer in one incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredSequences(HashMap<(String, u64), Vec<(u64, u64)>>);

impl StoredSequences {
    /// Adds a message. Returns false if it was there already.
    pub fn insert(&mut self, writer: &(String, u64), sequence: u64) -> bool {
        if let Some(ranges) = self.0.get_mut(writer) {
            return add(ranges, sequence);
        }
        if self.0.len() >= MAX_WRITERS {
            self.0.clear();
        }
        self.0.insert(writer.clone(), vec![(sequence, sequence)]);
        true
    }

    pub fn to_json(&self) -> Value {
        self.0.iter().map(|((writer, incarnation), ranges)| json!([writer, incarnation, ranges])).collect()
    }

    /// Parses the result of [`StoredSequences::to_json`]. Leaves out invalid elements.
    pub fn of_json(value: &Value) -> StoredSequences {
        let writer = |of: &Value| Some(((of[0].as_str()?.to_owned(), of[1].as_u64()?), ranges_of(&of[2])?));
        StoredSequences(value.as_array().into_iter().flatten().take(MAX_WRITERS).filter_map(writer).collect())
    }
}

fn ranges_of(value: &Value) -> Option<Vec<(u64, u64)>> {
    let range = |of: &Value| Some((of[0].as_u64()?, of[1].as_u64()?)).filter(|(first, last)| first <= last);
    value.as_array()?.iter().take(MAX_RANGES).map(range).collect()
}

/// Adds a number to sorted ranges. Returns false if a range has it already.
fn add(ranges: &mut Vec<(u64, u64)>, number: u64) -> bool {
    // Ranges from this index on begin after the number.
    let at = ranges.partition_point(|(first, _)| *first <= number);
    let before = at.checked_sub(1).and_then(|before| ranges.get(before)).copied();
    if before.is_some_and(|(_, last)| number <= last) {
        return false;
    }
    let joins_before = before.is_some_and(|(_, last)| last.checked_add(1) == Some(number));
    let joins_after = ranges.get(at).is_some_and(|(first, _)| number.checked_add(1) == Some(*first));
    match (joins_before, joins_after) {
        (true, true) => {
            let (_, last) = ranges.remove(at);
            ranges[at - 1].1 = last;
        }
        (true, false) => ranges[at - 1].1 = number,
        (false, true) => ranges[at].0 = number,
        (false, false) => {
            ranges.insert(at, (number, number));
            if ranges.len() > MAX_RANGES {
                ranges.remove(0);
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_new_once() {
        let (mut sequences, writer) = (StoredSequences::default(), ("w".to_owned(), 1));
        for number in [5, 3, 4, 1, u64::MAX, 0, 2] {
            assert!(sequences.insert(&writer, number), "{number}");
            assert!(!sequences.insert(&writer, number), "{number} again");
        }
        assert_eq!(sequences.0[&writer], [(0, 5), (u64::MAX, u64::MAX)]);
        assert!(sequences.insert(&("w".to_owned(), 2), 3), "another incarnation");
        assert_eq!(StoredSequences::of_json(&sequences.to_json()), sequences);
        assert_eq!(
            StoredSequences::of_json(&json!([["w", -1, []], 7, ["w", 1, [[2, 1]]]])),
            StoredSequences::default()
        );
    }

    #[test]
    fn the_oldest_ranges_are_forgotten() {
        let (mut sequences, writer) = (StoredSequences::default(), ("w".to_owned(), 1));
        (0..40).for_each(|number| assert!(sequences.insert(&writer, number * 2)));
        assert_eq!(sequences.0[&writer].len(), MAX_RANGES);
        assert!(!sequences.insert(&writer, 78) && sequences.insert(&writer, 79));
    }
}
