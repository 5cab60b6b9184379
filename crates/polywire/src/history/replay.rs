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
    /// Whether one of the channels has been left, so that the rest does not arrive.
    pub(super) is_cut: bool,
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
            is_cut: false,
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

    /// Checks whether the subscriber takes the replay: it has begun on all its channels.
    pub(super) fn is_taken(&self) -> bool {
        self.next.is_some() && !self.is_cut
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

    /// Checks whether more than `room` messages or bytes wait, apart from the first and the last
    /// message of each channel.
    pub(super) fn is_full(&self, room: (usize, usize)) -> bool {
        let marks = self.begun.len() + self.ended.len();
        self.waiting.len() > room.0.saturating_add(marks) || self.bytes > room.1
    }

    /// Checks whether messages still wait for a missing one. Each channel has an order of its own,
    /// so the missing message can only arrive on another channel.
    fn waits(&self, room: Option<(usize, usize)>) -> bool {
        self.begun.len() > 1 && room.is_some_and(|room| !self.is_full(room))
    }

    /// Removes and returns the next sample. It waits for missing messages before it, unless more
    /// than `room` messages or bytes wait. Without `room`, it waits for nothing.
    pub(super) fn pop(&mut self, room: Option<(usize, usize)>) -> Option<(u64, T)> {
        let mut next = self.next?;
        loop {
            let (sequence, _) = self.waiting.first_key_value()?;
            if *sequence > next && self.waits(room) {
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

    const ROOM: Option<(usize, usize)> = Some((4, 100));
    const A: Id128 = Id128([1; 16]);
    const B: Id128 = Id128([2; 16]);

    fn popped(replay: &mut Replay<&'static str>, room: Option<(usize, usize)>) -> Vec<&'static str> {
        std::iter::from_fn(|| replay.pop(room)).map(|(_, item)| item).collect()
    }

    /// A replay that has begun on both channels, with the numbers 7 and 8.
    fn begun() -> Replay<&'static str> {
        let mut replay = Replay::new(7, &[A.0, B.0]);
        replay.begins_on(B, 8);
        replay.take_if_begun(|_| false);
        assert!(!replay.is_taken() && popped(&mut replay, None).is_empty());
        replay.begins_on(A, 7);
        replay.take_if_begun(|_| false);
        assert!(replay.is_taken() && popped(&mut replay, ROOM).is_empty());
        replay
    }

    #[test]
    fn messages_wait_for_earlier_ones_of_other_channels() {
        let (mut replay, none) = (begun(), |_| false);
        replay.add(10, Some((2, "two", 1)));
        replay.ends_on(B, 12);
        assert!(popped(&mut replay, ROOM).is_empty(), "9 is missing");
        replay.add(9, Some((1, "one", 1)));
        assert_eq!((popped(&mut replay, ROOM), replay.has_ended(none)), (vec!["one", "two"], false));
        replay.ends_on(A, 11);
        assert!(replay.has_ended(none) && replay.bytes == 0);
    }

    #[test]
    fn messages_of_the_only_channel_that_can_be_read_wait_for_none() {
        let mut replay = Replay::new(7, &[A.0, B.0]);
        let refused = |id| id == A;
        replay.begins_on(B, 8);
        replay.take_if_begun(refused);
        replay.add(10, Some((2, "two", 1)));
        assert_eq!((popped(&mut replay, ROOM), replay.has_ended(refused)), (vec!["two"], false));
        replay.ends_on(B, 12);
        assert!(replay.has_ended(refused));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut replay = begun();
        replay.add(19, Some((4, "four", 60)));
        replay.add(18, Some((3, "three", 30)));
        replay.add(18, Some((3, "three again", 40)));
        assert!(popped(&mut replay, ROOM).is_empty() && !replay.is_full((4, 100)));
        replay.add(16, Some((2, "two", 1)));
        assert_eq!(popped(&mut replay, ROOM), ["two"]);
        replay.add(12, Some((1, "late", 1)));
        assert_eq!(popped(&mut replay, ROOM), ["late"]);
        replay.add(u64::MAX, Some((5, "last", 60)));
        assert_eq!(popped(&mut replay, ROOM), ["three again", "four"]);
        assert_eq!(popped(&mut replay, None), ["last"]);
        replay.add(u64::MAX, Some((5, "last", 60)));
        assert_eq!((popped(&mut replay, ROOM), replay.bytes), (vec!["last"], 0));
    }

    #[test]
    fn the_first_and_the_last_messages_of_channels_need_no_room() {
        let mut replay = begun();
        replay.ends_on(A, 10);
        replay.ends_on(B, 11);
        replay.begins_on(B, 8);
        assert!(!replay.is_full((0, 0)));
        (12..17).for_each(|sequence| replay.begins_on(B, sequence));
        assert!(replay.is_full((0, 0)), "each of them once");
    }
}
