//! Best effort, for one followed member: packets in order, late ones dropped, parts joined.

use alloc::{collections::BTreeMap, vec::Vec};

use super::packet::Content;

/// Long records that may be incomplete at a time. The oldest makes room for another.
const PARTIALS: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Loose {
    /// The last packet of what was passed on last. Earlier packets come too late.
    last: u64,
    /// Incomplete records, by the number of their first packet.
    partial: BTreeMap<u64, Partial>,
    bytes: usize,
}

#[derive(Debug)]
struct Partial {
    count: u64,
    parts: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

impl Loose {
    /// Bytes of incomplete records.
    pub(super) fn partial_bytes(&self) -> usize {
        self.bytes
    }

    /// A packet came. Gives the records that are complete now. Parts beyond `room` bytes are
    /// dropped.
    pub(super) fn insert(&mut self, number: u64, content: Content<'_>, room: usize) -> Option<Vec<u8>> {
        if number <= self.last {
            return None;
        }
        match content {
            Content::Records(bytes) => {
                self.pass(number);
                Some(bytes.into_owned()).filter(|bytes| !bytes.is_empty())
            }
            Content::Part { index, count, bytes } => {
                let first = number.checked_sub(index).filter(|first| *first > self.last)?;
                let last = first.checked_add(count - 1)?;
                let partial =
                    self.partial.entry(first).or_insert_with(|| Partial { count, parts: BTreeMap::new(), bytes: 0 });
                if partial.count != count || partial.parts.contains_key(&index) {
                    return None;
                }
                if partial.bytes.saturating_add(bytes.len()) > room {
                    self.forget(first);
                    return None;
                }
                partial.bytes += bytes.len();
                self.bytes += bytes.len();
                partial.parts.insert(index, bytes.into_owned());
                if partial.parts.len() as u64 == count {
                    let whole = self.partial.remove(&first)?;
                    self.bytes -= whole.bytes;
                    self.pass(last);
                    return Some(whole.parts.into_values().flatten().collect());
                }
                while self.partial.len() > PARTIALS || self.bytes > room {
                    let oldest = *self.partial.first_key_value()?.0;
                    self.forget(oldest);
                }
                None
            }
        }
    }

    fn pass(&mut self, last: u64) {
        self.last = last;
        while let Some((first, _)) = self.partial.first_key_value().filter(|(first, _)| **first <= last) {
            self.forget(*first);
        }
    }

    fn forget(&mut self, first: u64) {
        if let Some(partial) = self.partial.remove(&first) {
            self.bytes -= partial.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(index: u64, count: u64) -> Content<'static> {
        Content::Part { index, count, bytes: vec![index as u8; 10].into() }
    }

    #[test]
    fn late_packets_and_repeated_ones_are_dropped() {
        let mut loose = Loose::default();
        let mut came = |number: u64| loose.insert(number, Content::Records(vec![number as u8].into()), 100);
        let passed: Vec<u8> = [2, 2, 1, 5, 4, 6].into_iter().filter_map(&mut came).flatten().collect();
        assert_eq!(passed, [2, 5, 6]);
    }

    #[test]
    fn parts_are_joined_in_any_order() {
        let mut loose = Loose::default();
        assert_eq!([loose.insert(12, part(2, 3), 100), loose.insert(10, part(0, 3), 100)], [None, None]);
        assert_eq!(loose.insert(12, part(2, 3), 100), None);
        let whole = loose.insert(11, part(1, 3), 100).expect("whole");
        assert_eq!((whole.len(), whole[10], loose.partial_bytes()), (30, 1, 0));
        assert_eq!(loose.insert(11, part(1, 3), 100), None);
    }

    #[test]
    fn incomplete_records_are_few_and_short() {
        let mut loose = Loose::default();
        for record in 1..1000u64 {
            assert_eq!(loose.insert(record * 10, part(0, 5), 100), None);
        }
        assert!(loose.partial.len() <= PARTIALS && loose.partial_bytes() <= 100);
        for index in 0..20 {
            loose.insert(20_000 + index, part(index, u64::MAX), 100);
        }
        assert!(loose.partial_bytes() <= 100);
        assert_eq!(loose.insert(u64::MAX, part(0, 2), 100), None);
        // A newer whole packet ends them all.
        assert!(loose.insert(30_000, Content::Records(vec![1].into()), 100).is_some());
        assert_eq!((loose.partial.len(), loose.partial_bytes()), (0, 0));
    }
}
