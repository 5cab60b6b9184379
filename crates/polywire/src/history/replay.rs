//! The subscriber's side of one replay: it brings the messages of all history channels into order.
//!
//! The messages of a replay have consecutive sequence numbers across its channels. On most media
//! they arrive in this order. On others, such as DDS, each channel has an order of its own.

use std::collections::{BTreeMap, BTreeSet};

use polywire_core::envelope::Id128;

/// A message of a history channel.
pub(crate) enum Replayed<'a, T> {
    /// The replay of this number begins. The ids are those of its channels.
    Begin(u64, &'a [[u8; 16]]),
    /// The sample that was published under this number, and its size in bytes. `None` if it cannot
    /// be read.
    Sample(Option<(u64, T, usize)>),
    /// The replay has ended on this channel.
    End,
}

/// A sample of a replay, with its number, and its size in bytes. `None` for other messages, which
/// only have a place in the order.
type Place<T> = Option<(u64, T, usize)>;

/// The replay that a link carries now.
pub(super) struct Replay<T> {
    pub(super) number: u64,
    /// Whether the history is needed once more: a message that was published after the beginning
    /// cannot be read.
    pub(super) again: bool,
    listed: Vec<Id128>,
    begun: BTreeSet<Id128>,
    ended: BTreeSet<Id128>,
    /// The sequence number of the next message. `None` until the replay has begun on all its
    /// channels.
    next: Option<u64>,
    /// Messages that wait for earlier ones, or for the beginning on all channels, by sequence
    /// number.
    waiting: BTreeMap<u64, Place<T>>,
    bytes: usize,
}

impl<T> Replay<T> {
    pub(super) fn new(number: u64, ids: &[[u8; 16]]) -> Replay<T> {
        Replay {
            number,
            again: false,
            listed: ids.iter().map(|id| Id128(*id)).collect(),
            begun: BTreeSet::new(),
            ended: BTreeSet::new(),
            next: None,
            waiting: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Checks whether the replay has begun on this channel.
    pub(super) fn has(&self, channel: Id128) -> bool {
        self.begun.contains(&channel)
    }

    /// Checks whether the replay has begun on all its channels, so that the subscriber takes it.
    pub(super) fn is_taken(&self) -> bool {
        self.next.is_some()
    }

    pub(super) fn begins_on(&mut self, channel: Id128, sequence: u64) {
        self.begun.insert(channel);
        self.add(sequence, None);
    }

    pub(super) fn ends_on(&mut self, channel: Id128, sequence: u64) {
        self.ended.insert(channel);
        self.add(sequence, None);
    }

    pub(super) fn add(&mut self, sequence: u64, place: Place<T>) {
        self.bytes = self.bytes.saturating_add(bytes(&place));
        if let Some(before) = self.waiting.insert(sequence, place) {
            self.bytes = self.bytes.saturating_sub(bytes(&before));
        }
    }

    /// Takes the replay if it has begun on all listed channels that can be read.
    pub(super) fn take_if_begun(&mut self, is_refused: impl Fn(Id128) -> bool) {
        if self.next.is_none() && self.listed.iter().all(|id| self.begun.contains(id) || is_refused(*id)) {
            self.next = self.waiting.first_key_value().map(|(sequence, _)| *sequence);
        }
    }

    /// Checks whether the replay has ended on all listed channels that can be read.
    pub(super) fn has_ended(&self, is_refused: impl Fn(Id128) -> bool) -> bool {
        self.is_taken() && self.listed.iter().all(|id| self.ended.contains(id) || is_refused(*id))
    }

    /// Checks whether more than `room` messages or bytes wait.
    pub(super) fn is_full(&self, room: (usize, usize)) -> bool {
        self.waiting.len() > room.0 || self.bytes > room.1
    }

    /// Removes and returns the next sample, if no earlier message is missing. If more than `room`
    /// messages or bytes wait, does not wait for missing messages.
    pub(super) fn pop(&mut self, room: (usize, usize)) -> Option<(u64, T)> {
        let mut next = self.next?;
        loop {
            let (sequence, _) = self.waiting.first_key_value()?;
            if *sequence > next && !self.is_full(room) {
                return None;
            }
            let (sequence, place) = self.waiting.pop_first()?;
            next = next.max(sequence.saturating_add(1));
            self.next = Some(next);
            self.bytes = self.bytes.saturating_sub(bytes(&place));
            if let Some((number, item, _)) = place {
                return Some((number, item));
            }
        }
    }
}

fn bytes<T>(place: &Place<T>) -> usize {
    place.as_ref().map_or(0, |(_, _, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: (usize, usize) = (4, 100);
    const A: Id128 = Id128([1; 16]);
    const B: Id128 = Id128([2; 16]);

    fn popped(replay: &mut Replay<&'static str>, room: (usize, usize)) -> Vec<&'static str> {
        std::iter::from_fn(|| replay.pop(room)).map(|(_, item)| item).collect()
    }

    #[test]
    fn messages_wait_for_earlier_ones_of_other_channels() {
        let mut replay = Replay::new(7, &[A.0, B.0]);
        let none = |_| false;
        replay.begins_on(B, 8);
        replay.add(10, Some((2, "two", 1)));
        replay.ends_on(B, 12);
        replay.take_if_begun(none);
        assert!(!replay.is_taken() && popped(&mut replay, ROOM).is_empty());
        replay.begins_on(A, 7);
        replay.take_if_begun(none);
        assert!(replay.is_taken() && popped(&mut replay, ROOM).is_empty(), "9 is missing");
        replay.add(9, Some((1, "one", 1)));
        assert_eq!((popped(&mut replay, ROOM), replay.has_ended(none)), (vec!["one", "two"], false));
        replay.ends_on(A, 11);
        assert!(replay.has_ended(none) && replay.bytes == 0);
    }

    #[test]
    fn a_channel_that_is_refused_leaves_gaps_until_the_others_end() {
        let mut replay = Replay::new(7, &[A.0, B.0]);
        let refused = |id| id == A;
        replay.begins_on(B, 8);
        replay.take_if_begun(refused);
        replay.add(10, Some((2, "two", 1)));
        assert_eq!((popped(&mut replay, ROOM), replay.has_ended(refused)), (vec![], false));
        replay.ends_on(B, 12);
        assert_eq!((replay.has_ended(refused), popped(&mut replay, (0, 0))), (true, vec!["two"]));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut replay = Replay::new(1, &[A.0]);
        replay.begins_on(A, 1);
        replay.take_if_begun(|_| false);
        assert!(popped(&mut replay, ROOM).is_empty());
        replay.add(9, Some((4, "four", 60)));
        replay.add(8, Some((3, "three", 30)));
        replay.add(8, Some((3, "three again", 40)));
        assert!(popped(&mut replay, ROOM).is_empty() && !replay.is_full(ROOM));
        replay.add(6, Some((2, "two", 1)));
        assert_eq!(popped(&mut replay, ROOM), ["two"]);
        replay.add(2, Some((1, "late", 1)));
        assert_eq!(popped(&mut replay, ROOM), ["late"]);
        replay.add(u64::MAX, Some((5, "last", 60)));
        assert_eq!(popped(&mut replay, ROOM), ["three again", "four"]);
        assert_eq!(popped(&mut replay, (0, 0)), ["last"]);
        replay.add(u64::MAX, Some((5, "last", 60)));
        assert_eq!((popped(&mut replay, ROOM), replay.bytes), (vec!["last"], 0));
    }
}
