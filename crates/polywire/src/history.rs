//! History for late joiners. The publisher keeps samples and sends them again. The subscriber
//! brings these samples and the messages that are published meanwhile into order.
//!
//! A publisher that keeps a history announces a history channel for each of its formats, whose
//! offer names the publisher. Only subscribers that have just joined accept it; their answers are
//! the request. `spec/qos.md` specifies the protocol. Replays run on threads of their own, which
//! end by themselves.

mod cache;
mod replay;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    thread::{self, ThreadId},
    time::Duration,
};

use polywire_core::envelope::Id128;

use self::replay::Replay;
pub(crate) use self::{
    cache::{HistoryCache, HistoryChannel, KeptSample},
    replay::Replayed,
};
use crate::{node::Source, writers::Missing};

/// How long a subscriber holds back new messages while it waits for the history.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The most sequence numbers of replayed samples that a subscriber remembers, to drop duplicates.
const REMEMBERED: usize = 1 << 16;

/// The most gaps in a writer's messages that wait to be filled by its history. Messages of further
/// gaps count as lost at once.
const GAPS: usize = 1024;

/// A writer in one incarnation.
pub(crate) type Writer = (Id128, u64);

/// The identity of a history channel at a subscriber: the number of the link, and the writer's id.
pub(crate) type HistoryId = (u64, Id128);

/// Returns the identity of the history channel with this announcement.
pub(crate) fn history_id(source: &Source) -> HistoryId {
    (source.link.id.0, source.announcement.writer)
}

/// A subscriber's state for the histories of its writers. While a history is missing, the
/// subscriber holds back what the writer publishes, so that all messages are delivered in order.
pub(crate) struct HistoryBarriers<T>(BTreeMap<Writer, HistoryBarrier<T>>);

/// The most writers without an open channel that are remembered.
const GONE: usize = 1024;

/// The most history channels of a writer that are remembered because they cannot be read.
const REFUSED: usize = 256;

/// Messages that no longer wait for a history. The thread that gets the items delivers them and
/// then calls [`HistoryBarriers::handed`]. Messages that another thread receives meanwhile are
/// delivered after them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Released<T> {
    /// The messages to deliver now.
    pub(crate) items: Vec<T>,
    /// Messages that arrived neither as they were published nor with the history.
    pub(crate) lost: u64,
}

struct HistoryBarrier<T> {
    /// The number of open channels of the writer, apart from history channels.
    open: usize,
    /// Since when the subscriber waits for the history; `None` if it does not wait.
    waiting: Option<Duration>,
    /// The replay that each link carries now, by the number of the link. The subscriber takes one
    /// of them, which it receives from its beginning, on all its channels.
    replays: BTreeMap<u64, Replay<T>>,
    /// History channels that cannot be read.
    refused: BTreeSet<HistoryId>,
    /// The thread that delivers messages that waited. Other threads leave their messages to it.
    busy: Option<ThreadId>,
    /// What had arrived of a replay when the wait for the history ended, while another thread
    /// delivered. It comes before the held messages.
    rest: Vec<T>,
    /// Messages that are held back: sequence number, message, and its size in bytes.
    held: VecDeque<(u64, T, usize)>,
    bytes: usize,
    /// The newest delivered message. Numbers of other systems' writers begin at 0 or 1.
    last: Option<u64>,
    /// Delivered samples of the history, which may arrive once more as they were published.
    replayed: BTreeSet<u64>,
    /// Gaps in the messages as they were published, by the last number of each gap. The value is
    /// the first number, and how many messages the history has not delivered either.
    gaps: BTreeMap<u64, (u64, u64)>,
}

impl<T> Default for HistoryBarriers<T> {
    fn default() -> Self {
        HistoryBarriers(BTreeMap::new())
    }
}

impl<T> Default for HistoryBarrier<T> {
    fn default() -> Self {
        HistoryBarrier {
            open: 0,
            waiting: None,
            replays: BTreeMap::new(),
            refused: BTreeSet::new(),
            busy: None,
            rest: Vec::new(),
            held: VecDeque::new(),
            bytes: 0,
            last: None,
            replayed: BTreeSet::new(),
            gaps: BTreeMap::new(),
        }
    }
}

impl<T> Default for Released<T> {
    fn default() -> Self {
        Released { items: Vec::new(), lost: 0 }
    }
}

impl<T> From<Vec<T>> for Released<T> {
    fn from(items: Vec<T>) -> Released<T> {
        Released { items, lost: 0 }
    }
}

impl<T> HistoryBarriers<T> {
    /// Opens a channel of the writer. The history is needed if this is the writer's only channel. A
    /// writer that numbers `anew` may have other messages with numbers that it had before.
    pub(crate) fn open(&mut self, writer: Writer, now: Duration, anew: bool) {
        if self.0.len() > GONE {
            let is_gone = |barrier: &HistoryBarrier<T>| barrier.open == 0 && barrier.waiting.is_none();
            let gone = self.0.iter().find(|(_, barrier)| is_gone(barrier)).map(|(writer, _)| *writer);
            gone.map(|writer| self.0.remove(&writer));
        }
        let barrier = self.0.entry(writer).or_default();
        barrier.open += 1;
        if barrier.open == 1 {
            barrier.waiting = Some(now);
            if anew {
                (barrier.last, barrier.replayed) = Default::default();
            }
        }
    }

    /// Ends a channel of the writer. Returns the held messages if it was the last one. If its link
    /// broke, the history may arrive over another link, so a wait for it continues.
    pub(crate) fn close(&mut self, writer: Writer, broke: bool) -> Released<T> {
        let waits_on = broke && self.0.len() <= GONE;
        let Some(barrier) = self.0.get_mut(&writer) else { return Released::default() };
        barrier.open = barrier.open.saturating_sub(1);
        match barrier.open {
            0 if waits_on && barrier.waiting.is_some() => {
                barrier.replays.values_mut().for_each(|replay| replay.is_cut = true);
            }
            0 => return barrier.end(),
            _ => {}
        }
        Released::default()
    }

    /// Records that messages did not arrive as they were published. Returns how many of them count
    /// as lost now: the history has not delivered them, and will not.
    pub(crate) fn missing(&mut self, writer: Writer, missing: Missing) -> u64 {
        self.0.get_mut(&writer).map_or(missing.count, |barrier| barrier.missing(missing))
    }

    /// Checks whether the history of the writer is missing.
    pub(crate) fn is_waiting(&self, writer: Writer) -> bool {
        self.0.get(&writer).is_some_and(|barrier| barrier.waiting.is_some())
    }

    /// Checks whether any history is missing.
    pub(crate) fn is_any_waiting(&self) -> bool {
        self.0.values().any(|barrier| barrier.waiting.is_some())
    }

    /// Takes a message as it was published. Returns the messages to deliver now. The second value
    /// is true if the wait was given up, because more than `room` messages or bytes are held.
    pub(crate) fn published(
        &mut self,
        writer: Writer,
        number: u64,
        item: T,
        bytes: usize,
        room: (usize, usize),
    ) -> (Released<T>, bool) {
        let Some(barrier) = self.0.get_mut(&writer) else { return (vec![item].into(), false) };
        if barrier.waiting.is_none() && barrier.busy.is_none() {
            let is_new = !barrier.replayed.remove(&number);
            barrier.last = barrier.last.max(Some(number));
            return (barrier.hand(Vec::from_iter(is_new.then_some(item))).into(), false);
        }
        barrier.held.push_back((number, item, bytes));
        barrier.bytes = barrier.bytes.saturating_add(bytes);
        match barrier.waiting.is_some() && barrier.is_full(room) {
            true => (barrier.end(), true),
            false => (Released::default(), false),
        }
    }

    /// Checks whether another thread delivers, and so much is held behind it that the next message
    /// must wait.
    pub(crate) fn is_crowded(&self, writer: Writer, room: (usize, usize)) -> bool {
        self.is_busy(writer) && self.0.get(&writer).is_some_and(|barrier| barrier.is_full(room))
    }

    /// Checks whether another thread delivers messages that were held.
    pub(crate) fn is_busy(&self, writer: Writer) -> bool {
        let busy = self.0.get(&writer).and_then(|barrier| barrier.busy);
        busy.is_some_and(|thread| thread != thread::current().id())
    }

    /// Records that the last given messages were delivered. Returns those that arrived meanwhile.
    pub(crate) fn handed(&mut self, writer: Writer) -> Vec<T> {
        let Some(barrier) = self.0.get_mut(&writer) else { return Vec::new() };
        barrier.busy = None;
        match barrier.waiting {
            None => barrier.release(),
            Some(_) => {
                let rest = std::mem::take(&mut barrier.rest);
                barrier.hand(rest)
            }
        }
    }

    /// Records that a history channel of the writer cannot be read.
    pub(crate) fn refuse(&mut self, writer: Writer, from: HistoryId) {
        if let Some(barrier) = self.0.get_mut(&writer) {
            if barrier.refused.len() == REFUSED {
                barrier.refused.pop_first();
            }
            barrier.refused.insert(from);
        }
    }

    /// Records that a history channel of the writer has ended, or is read no more. A replay that it
    /// carries does not become complete.
    pub(crate) fn leave(&mut self, writer: Writer, (link, channel): HistoryId) {
        if let Some(barrier) = self.0.get_mut(&writer) {
            let carried = barrier.replays.get_mut(&link).filter(|replay| replay.has(channel));
            carried.into_iter().for_each(|replay| replay.is_cut = true);
        }
    }

    /// Takes a message of a history channel, with its sequence number there. The subscriber takes
    /// the latest replay of a link, if it has begun on all its channels that can be read.
    /// Otherwise the replay was sent for another subscriber, and only a part of it arrives.
    ///
    /// Returns the messages to deliver now: those of the history, and first those that were
    /// published before them. At the end of the replay, those that are held, too, unless the
    /// history is needed once more. At most `room` messages or bytes wait for earlier ones.
    pub(crate) fn replayed(
        &mut self,
        writer: Writer,
        (link, channel): HistoryId,
        sequence: u64,
        message: Replayed<'_, T>,
        room: (usize, usize),
    ) -> Released<T> {
        let Some(barrier) = self.0.get_mut(&writer).filter(|barrier| barrier.waiting.is_some()) else {
            return Released::default();
        };
        if barrier.replays.iter().any(|(other, replay)| *other != link && replay.is_taken()) {
            return Released::default();
        }
        if let Replayed::Begin(number, ids) = message
            && barrier.replays.get(&link).is_none_or(|known| known.is_cut || known.number < number)
        {
            barrier.replays.insert(link, Replay::new(number, ids));
        }
        let replay = barrier.replays.get_mut(&link).filter(|replay| !replay.is_cut);
        let Some(replay) = replay else { return Released::default() };
        match message {
            Replayed::Begin(number, _) if number == replay.number => replay.begins_on(channel, sequence),
            Replayed::Sample(sample) if replay.has(channel) => replay.add(sequence, sample),
            Replayed::End if replay.has(channel) => replay.ends_on(channel, sequence),
            _ => return Released::default(),
        }
        barrier.advance(link, room)
    }

    /// Checks whether the subscriber takes a replay of this link that has not ended yet.
    pub(crate) fn is_under_way(&self, writer: Writer, link: u64) -> bool {
        self.0.get(&writer).is_some_and(|barrier| barrier.replays.get(&link).is_some_and(Replay::is_taken))
    }

    /// Records that a message cannot be read because it refers to earlier ones. The history has it.
    /// Returns true if the history was complete before.
    pub(crate) fn missed(&mut self, writer: Writer, now: Duration) -> bool {
        let Some(barrier) = self.0.get_mut(&writer) else { return false };
        barrier.replays.values_mut().for_each(|replay| replay.again = true);
        let was_complete = barrier.waiting.is_none();
        if was_complete {
            barrier.waiting = Some(now);
        }
        was_complete
    }

    /// Gives up the histories that have been missing for [`PATIENCE`] or longer, and returns the
    /// messages that were held for them.
    pub(crate) fn give_up(&mut self, now: Duration) -> Vec<(Writer, Released<T>)> {
        let late =
            |barrier: &HistoryBarrier<T>| barrier.waiting.is_some_and(|since| now.saturating_sub(since) >= PATIENCE);
        let late = self.0.iter_mut().filter(|(_, barrier)| late(barrier));
        late.map(|(writer, barrier)| (*writer, barrier.end())).collect()
    }

    /// Gives up the histories of writers without an open channel, and returns the messages that
    /// were held for them.
    pub(crate) fn give_up_left(&mut self) -> Vec<(Writer, Released<T>)> {
        let left = self.0.iter_mut().filter(|(_, barrier)| barrier.open == 0 && barrier.waiting.is_some());
        left.map(|(writer, barrier)| (*writer, barrier.end())).collect()
    }
}

impl<T> HistoryBarrier<T> {
    /// Returns the messages of a link's replay that no longer wait.
    fn advance(&mut self, link: u64, room: (usize, usize)) -> Released<T> {
        let HistoryBarrier { replays, refused, .. } = self;
        let is_refused = |id| refused.contains(&(link, id));
        let Some(mut replay) = replays.remove(&link) else { return Released::default() };
        replay.take_if_begun(is_refused);
        if replay.is_taken() {
            replays.clear();
        } else if replay.is_full(room) {
            return Released::default();
        }
        let has_ended = replay.has_ended(is_refused);
        let mut items = self.bring(&mut replay, Some(room).filter(|_| !has_ended));
        let mut lost = 0;
        match has_ended {
            true if replay.again => {}
            true => {
                let released = self.end();
                items.extend(released.items);
                lost = released.lost;
            }
            false => drop(self.replays.insert(link, replay)),
        }
        Released { items: self.hand(items), lost }
    }

    /// Returns the samples of the replay that no longer wait. Before each of them come the held
    /// messages that were published before it.
    fn bring(&mut self, replay: &mut Replay<T>, room: Option<(usize, usize)>) -> Vec<T> {
        let mut items = Vec::new();
        while let Some((number, item)) = replay.pop(room) {
            while let Some((before, held, bytes)) = self.held.pop_front_if(|(held, ..)| *held <= number) {
                self.bytes = self.bytes.saturating_sub(bytes);
                if before < number && Some(before) > self.last {
                    self.last = Some(before);
                    items.push(held);
                }
            }
            if Some(number) > self.last {
                self.last = Some(number);
                if self.replayed.len() == REMEMBERED {
                    self.replayed.pop_first();
                }
                self.replayed.insert(number);
                self.fill(number);
                items.push(item);
            }
        }
        items
    }

    fn missing(&mut self, missing: Missing) -> u64 {
        let numbers = missing.numbers();
        let (first, last) = (*numbers.start(), missing.last);
        let lost = missing.count.saturating_sub(self.replayed.range(numbers).count() as u64);
        if self.waiting.is_none() || lost == 0 || self.gaps.len() == GAPS {
            return lost;
        }
        self.gaps.insert(last, (first, lost));
        0
    }

    /// Records that the history has delivered a message.
    fn fill(&mut self, number: u64) {
        if let Some((_, (_, lost))) = self.gaps.range_mut(number..).next().filter(|(_, (first, _))| *first <= number) {
            *lost = lost.saturating_sub(1);
        }
    }

    /// Ends the wait. Returns what has arrived of the replay, and behind it the held messages. If
    /// another thread delivers, all of it is left to that thread.
    fn end(&mut self) -> Released<T> {
        self.waiting = None;
        for mut replay in std::mem::take(&mut self.replays).into_values() {
            let items = self.bring(&mut replay, None);
            self.rest.extend(items);
        }
        let items = if self.busy.is_none() { self.release() } else { Vec::new() };
        let lost = std::mem::take(&mut self.gaps).into_values().map(|(_, lost)| lost).sum();
        Released { items, lost }
    }

    /// Returns what is left of the replay, and all held messages that were not delivered before.
    fn release(&mut self) -> Vec<T> {
        self.bytes = 0;
        let held = std::mem::take(&mut self.held);
        let last = self.last;
        self.last = last.max(held.back().map(|(number, ..)| *number));
        let mut items = std::mem::take(&mut self.rest);
        items.extend(held.into_iter().filter(|(number, ..)| Some(*number) > last).map(|(_, item, _)| item));
        self.hand(items)
    }

    /// Records that this thread delivers these messages.
    fn hand(&mut self, items: Vec<T>) -> Vec<T> {
        if !items.is_empty() {
            self.busy = Some(thread::current().id());
        }
        items
    }

    fn is_full(&self, room: (usize, usize)) -> bool {
        self.held.len() > room.0 || self.bytes > room.1
    }
}

#[cfg(test)]
mod tests {
    use std::ops::{Deref, DerefMut};

    use super::*;

    const W: Writer = (Id128([1; 16]), 1);
    /// The history channel of the present format, and one of an earlier format.
    const H: HistoryId = (1, Id128([2; 16]));
    const EARLIER: HistoryId = (1, Id128([3; 16]));
    const BOTH: [[u8; 16]; 2] = [EARLIER.1.0, H.1.0];
    const ROOM: (usize, usize) = (4, 100);

    /// Barriers, and the number of the last message on the history channels of each link.
    #[derive(Default)]
    struct Histories(HistoryBarriers<u64>, BTreeMap<u64, u64>);

    impl Deref for Histories {
        type Target = HistoryBarriers<u64>;

        fn deref(&self) -> &HistoryBarriers<u64> {
            &self.0
        }
    }

    impl DerefMut for Histories {
        fn deref_mut(&mut self) -> &mut HistoryBarriers<u64> {
            &mut self.0
        }
    }

    fn waiting() -> Histories {
        let mut barriers = Histories::default();
        barriers.open(W, Duration::ZERO, false);
        barriers
    }

    /// Passes the next message of a link's history channels.
    fn next(barriers: &mut Histories, from: HistoryId, message: Replayed<'_, u64>) -> Released<u64> {
        let sequence = barriers.1.entry(from.0).or_default();
        *sequence += 1;
        barriers.0.replayed(W, from, *sequence, message, ROOM)
    }

    fn begin_on(barriers: &mut Histories, from: HistoryId, replay: u64, ids: &[[u8; 16]]) {
        assert_eq!(next(barriers, from, Replayed::Begin(replay, ids)), Released::default());
    }

    /// Begins a replay on this channel alone.
    fn begin(barriers: &mut Histories, replay: u64) {
        begin_on(barriers, H, replay, &[H.1.0]);
    }

    fn published(barriers: &mut Histories, number: u64) -> Vec<u64> {
        let (released, _) = barriers.published(W, number, number, 1, ROOM);
        handed(barriers, released)
    }

    fn replayed(barriers: &mut Histories, from: HistoryId, number: u64) -> Vec<u64> {
        let released = next(barriers, from, Replayed::Sample(Some((number, number, 1))));
        handed(barriers, released)
    }

    fn complete(barriers: &mut Histories, from: HistoryId) -> Vec<u64> {
        let released = next(barriers, from, Replayed::End);
        handed(barriers, released)
    }

    fn handed(barriers: &mut Histories, released: Released<u64>) -> Vec<u64> {
        assert!(released.items.is_empty() || barriers.handed(W).is_empty());
        released.items
    }

    #[test]
    fn history_comes_first_and_nothing_twice() {
        let mut barriers = waiting();
        assert_eq!((published(&mut barriers, 5), published(&mut barriers, 6)), (vec![], vec![]));
        assert_eq!(
            (replayed(&mut barriers, H, 4), complete(&mut barriers, H)),
            (vec![], vec![]),
            "the end of one for somebody else"
        );
        begin(&mut barriers, 1);
        assert_eq!(replayed(&mut barriers, H, 2), [2]);
        assert_eq!(
            replayed(&mut barriers, H, 6),
            [5, 6],
            "5 was replaced in the history, and published after this reader came"
        );
        assert!(barriers.is_waiting(W));
        assert_eq!((published(&mut barriers, 7), complete(&mut barriers, H)), (vec![], vec![7]));
        assert_eq!((published(&mut barriers, 6), published(&mut barriers, 8)), (vec![], vec![8]));
        assert_eq!(replayed(&mut barriers, H, 9), [0_u64; 0], "somebody else's");
    }

    #[test]
    fn a_writer_may_begin_to_count_at_zero() {
        let mut barriers = waiting();
        begin(&mut barriers, 1);
        assert_eq!((replayed(&mut barriers, H, 0), replayed(&mut barriers, H, 1)), (vec![0], vec![1]));
        assert_eq!((complete(&mut barriers, H), published(&mut barriers, 0)), (vec![], vec![]));
        let mut barriers = waiting();
        assert_eq!(published(&mut barriers, 0), [0_u64; 0]);
        assert_eq!(barriers.give_up(PATIENCE), [(W, vec![0].into())]);
    }

    #[test]
    fn a_replay_is_taken_if_it_has_begun_on_all_its_channels() {
        let mut barriers = waiting();
        begin_on(&mut barriers, H, 1, &BOTH);
        assert_eq!((replayed(&mut barriers, H, 3), complete(&mut barriers, H)), (vec![], vec![]), "a part of it");
        begin_on(&mut barriers, EARLIER, 2, &BOTH);
        begin_on(&mut barriers, H, 2, &BOTH);
        assert_eq!((replayed(&mut barriers, EARLIER, 1), replayed(&mut barriers, H, 3)), (vec![1], vec![3]));
        assert_eq!((complete(&mut barriers, EARLIER), barriers.is_under_way(W, H.0)), (vec![], true));
        assert_eq!((complete(&mut barriers, H), barriers.is_waiting(W)), (vec![], false));
    }

    #[test]
    fn each_channel_of_a_replay_may_have_an_order_of_its_own() {
        let mut barriers = waiting();
        let mut arrives = |from, sequence, message| {
            let released = barriers.0.replayed(W, from, sequence, message, ROOM);
            handed(&mut barriers, released)
        };
        let sample = |number| Replayed::Sample(Some((number, number, 1)));
        assert_eq!(arrives(H, 2, Replayed::Begin(1, &BOTH)), [0_u64; 0]);
        assert_eq!(arrives(H, 4, sample(5)), [0_u64; 0]);
        assert_eq!(arrives(H, 6, Replayed::End), [0_u64; 0]);
        assert_eq!(arrives(EARLIER, 1, Replayed::Begin(1, &BOTH)), [0_u64; 0]);
        assert_eq!(arrives(EARLIER, 3, sample(4)), [4, 5]);
        assert_eq!(arrives(EARLIER, 5, Replayed::End), [0_u64; 0]);
        assert!(!barriers.is_waiting(W));
    }

    #[test]
    fn what_has_arrived_of_a_replay_is_delivered_when_the_rest_does_not_come() {
        for is_cut in [false, true] {
            let mut barriers = waiting();
            begin_on(&mut barriers, EARLIER, 1, &BOTH);
            begin_on(&mut barriers, H, 1, &BOTH);
            barriers.1.insert(H.0, 3);
            assert_eq!((published(&mut barriers, 9), replayed(&mut barriers, H, 5)), (vec![], vec![]));
            if is_cut {
                barriers.close(W, true);
                barriers.leave(W, H);
                assert!(complete(&mut barriers, H).is_empty() && !barriers.is_under_way(W, H.0));
            }
            assert_eq!(barriers.give_up(PATIENCE), [(W, vec![5, 9].into())]);
        }
        let mut barriers = waiting();
        begin_on(&mut barriers, H, 1, &BOTH);
        assert!((1..=8).all(|number| replayed(&mut barriers, H, number).is_empty()));
        assert_eq!(barriers.give_up(PATIENCE), [(W, Released::default())], "too much for a part of a replay");
    }

    #[test]
    fn replays_are_told_apart_by_number_and_link() {
        let mut barriers = waiting();
        begin_on(&mut barriers, EARLIER, 1, &BOTH);
        begin_on(&mut barriers, H, 2, &BOTH);
        begin_on(&mut barriers, (9, EARLIER.1), 2, &BOTH);
        assert_eq!(barriers.0.replayed(W, EARLIER, 1, Replayed::Begin(1, &BOTH), ROOM), Released::default());
        assert_eq!(replayed(&mut barriers, H, 3), [0_u64; 0], "another replay and another link");
        let begun = next(&mut barriers, EARLIER, Replayed::Begin(2, &BOTH));
        assert_eq!((handed(&mut barriers, begun), replayed(&mut barriers, EARLIER, 4)), (vec![3], vec![4]));
        begin_on(&mut barriers, (9, H.1), 2, &BOTH);
        assert_eq!(replayed(&mut barriers, (9, H.1), 5), [0_u64; 0], "one replay is taken at a time");
        assert_eq!(complete(&mut barriers, (9, H.1)), [0_u64; 0]);
        assert!(barriers.is_waiting(W));
        [H, EARLIER].iter().for_each(|from| drop(next(&mut barriers, *from, Replayed::End)));
        assert!(!barriers.is_waiting(W));
    }

    #[test]
    fn a_channel_that_cannot_be_read_is_not_waited_for() {
        let mut barriers = waiting();
        barriers.refuse(W, EARLIER);
        begin_on(&mut barriers, H, 1, &BOTH);
        assert_eq!((replayed(&mut barriers, H, 3), complete(&mut barriers, H)), (vec![3], vec![]));
        assert!(!barriers.is_waiting(W));
        (0..=REFUSED as u64).for_each(|link| barriers.refuse(W, (link, H.1)));
        assert_eq!(barriers.0.0[&W].refused.len(), REFUSED);
    }

    #[test]
    fn a_replay_whose_channel_ends_is_not_taken_further() {
        let mut barriers = waiting();
        begin(&mut barriers, 1);
        assert_eq!(replayed(&mut barriers, H, 1), [1]);
        barriers.leave(W, H);
        assert_eq!((replayed(&mut barriers, H, 2), complete(&mut barriers, H)), (vec![], vec![]));
        begin(&mut barriers, 2);
        assert_eq!((replayed(&mut barriers, H, 1), replayed(&mut barriers, H, 2)), (vec![], vec![2]));
    }

    #[test]
    fn a_writer_that_comes_back_is_asked_again() {
        let mut barriers = waiting();
        begin(&mut barriers, 2);
        assert_eq!((replayed(&mut barriers, H, 3), complete(&mut barriers, H)), (vec![3], vec![]));
        barriers.open(W, Duration::ZERO, false);
        assert!(!barriers.is_waiting(W), "a second channel, in another format");
        assert_eq!((barriers.close(W, false).items, barriers.close(W, false).items), (vec![], vec![]));
        barriers.open(W, Duration::ZERO, false);
        assert!(barriers.is_waiting(W) && barriers.is_any_waiting());
        begin(&mut barriers, 3);
        assert_eq!((replayed(&mut barriers, H, 3), replayed(&mut barriers, H, 4)), (vec![], vec![4]));
    }

    #[test]
    fn a_history_that_a_broken_link_cuts_short_comes_over_the_next_one() {
        let mut barriers = waiting();
        begin(&mut barriers, 1);
        assert_eq!((replayed(&mut barriers, H, 1), published(&mut barriers, 5)), (vec![1], vec![]));
        assert_eq!(barriers.close(W, true), Released::default());
        assert!(replayed(&mut barriers, H, 2).is_empty(), "its link has ended");
        barriers.leave(W, H);
        barriers.open(W, PATIENCE, false);
        assert_eq!((published(&mut barriers, 7), barriers.give_up(PATIENCE)), (vec![], vec![]));
        let next = (2, H.1);
        begin_on(&mut barriers, next, 2, &[H.1.0]);
        let mut replayed = |number| replayed(&mut barriers, next, number);
        assert_eq!([1, 2, 6].map(&mut replayed), [vec![], vec![2], vec![5, 6]]);
        assert_eq!(complete(&mut barriers, next), [7]);
        // Nothing waits once the history is complete, or if the writer does not come back.
        assert_eq!((barriers.close(W, true), barriers.is_any_waiting()), (Released::default(), false));
        barriers.open(W, PATIENCE, false);
        assert_eq!((published(&mut barriers, 8), barriers.close(W, true)), (vec![], Released::default()));
        assert_eq!(barriers.give_up(PATIENCE * 2), [(W, vec![8].into())]);
    }

    #[test]
    fn only_histories_of_writers_that_have_left_are_given_up_early() {
        let mut barriers = waiting();
        let other: Writer = (Id128([9; 16]), 1);
        barriers.open(other, Duration::ZERO, false);
        assert_eq!((published(&mut barriers, 1), barriers.give_up_left()), (vec![], vec![]));
        assert_eq!(barriers.close(W, true), Released::default());
        assert_eq!(barriers.give_up_left(), [(W, vec![1].into())]);
        assert!(barriers.is_waiting(other) && !barriers.is_waiting(W));
    }

    #[test]
    fn what_comes_while_others_hand_on_comes_behind_it() {
        let mut barriers = waiting();
        assert!((1..=3).all(|number| published(&mut barriers, number).is_empty()));
        let mut late = barriers.give_up(PATIENCE);
        let released = late.pop().expect("one writer").1;
        assert_eq!(
            (released.items, published(&mut barriers, 4), published(&mut barriers, 5)),
            (vec![1, 2, 3], vec![], vec![])
        );
        assert!(!barriers.is_crowded(W, (1, 100)), "this thread must not wait for itself");
        thread::scope(|scope| assert!(scope.spawn(|| barriers.is_crowded(W, (1, 100))).join().expect("no panic")));
        assert_eq!((barriers.handed(W), published(&mut barriers, 6)), (vec![4, 5], vec![]));
        assert_eq!((barriers.handed(W), barriers.handed(W), published(&mut barriers, 7)), (vec![6], vec![], vec![7]));
    }

    #[test]
    fn what_others_hand_on_at_the_end_of_a_wait_comes_once() {
        let mut barriers = waiting();
        begin_on(&mut barriers, EARLIER, 1, &BOTH);
        begin_on(&mut barriers, H, 1, &BOTH);
        let first = next(&mut barriers, EARLIER, Replayed::Sample(Some((1, 1, 1))));
        barriers.1.insert(H.0, 4);
        assert_eq!((first.items, published(&mut barriers, 9)), (vec![1], vec![]));
        assert_eq!(next(&mut barriers, H, Replayed::Sample(Some((5, 5, 1)))), Released::default());
        assert_eq!(barriers.give_up(PATIENCE), [(W, Released::default())], "this thread still delivers");
        assert_eq!(
            (barriers.handed(W), barriers.handed(W), published(&mut barriers, 10)),
            (vec![5, 9], vec![], vec![10])
        );
    }

    #[test]
    fn a_writer_that_counts_anew_has_other_messages_with_the_same_numbers() {
        for anew in [false, true] {
            let mut barriers = waiting();
            begin(&mut barriers, 1);
            assert_eq!((replayed(&mut barriers, H, 9), complete(&mut barriers, H)), (vec![9], vec![]));
            barriers.close(W, false);
            barriers.open(W, Duration::ZERO, anew);
            begin(&mut barriers, 2);
            assert_eq!((replayed(&mut barriers, H, 1).len(), complete(&mut barriers, H).len()), (usize::from(anew), 0));
        }
    }

    #[test]
    fn what_cannot_be_read_as_it_is_published_comes_with_the_history() {
        let mut barriers = waiting();
        begin(&mut barriers, 4);
        assert_eq!((replayed(&mut barriers, H, 1), barriers.missed(W, Duration::ZERO)), (vec![1], false));
        assert_eq!((published(&mut barriers, 3), complete(&mut barriers, H)), (vec![], vec![]), "2 is missing");
        begin(&mut barriers, 5);
        assert_eq!((replayed(&mut barriers, H, 1), replayed(&mut barriers, H, 2)), (vec![], vec![2]));
        assert_eq!((complete(&mut barriers, H), barriers.is_waiting(W)), (vec![3], false));
        assert!(barriers.missed(W, Duration::ZERO) && barriers.is_waiting(W));
    }

    #[test]
    fn what_the_history_brings_is_not_lost() {
        let mut barriers = waiting();
        let missing = |last, count| Missing { last, count };
        assert_eq!((barriers.missing(W, missing(9, 5)), published(&mut barriers, 10)), (0, vec![]));
        begin(&mut barriers, 6);
        assert_eq!(
            (replayed(&mut barriers, H, 4), replayed(&mut barriers, H, 6), replayed(&mut barriers, H, 9)),
            (vec![4], vec![6], vec![9])
        );
        assert_eq!(barriers.missing(W, missing(12, 2)), 0, "a second gap");
        assert_eq!(
            (replayed(&mut barriers, H, 11), next(&mut barriers, H, Replayed::End)),
            (vec![10, 11], Released { items: vec![], lost: 4 })
        );
        // 5, 7, 8 and 12 arrived neither way. After the history, all that it has not delivered is
        // lost.
        assert_eq!((barriers.missing(W, missing(14, 2)), barriers.missing(W, missing(11, 2))), (2, 1));
        assert_eq!(barriers.missing((Id128([2; 16]), 1), missing(3, 3)), 3, "a writer without history");
    }

    #[test]
    fn gaps_that_no_history_fills_are_lost() {
        let mut barriers = waiting();
        let gap = |number: usize| Missing { last: 2 * number as u64 + 1, count: 1 };
        assert!((0..GAPS).all(|number| barriers.missing(W, gap(number)) == 0));
        assert_eq!(barriers.missing(W, gap(GAPS)), 1, "too many to remember");
        assert_eq!(barriers.give_up(PATIENCE), [(W, Released { items: vec![], lost: GAPS as u64 })]);
        assert_eq!(barriers.close(W, false), Released::default());
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut barriers = waiting();
        (1..=4).for_each(|number| assert_eq!(published(&mut barriers, number), [0_u64; 0]));
        assert_eq!(barriers.published(W, 5, 5, 1, ROOM), (vec![1, 2, 3, 4, 5].into(), true));
        let mut barriers = waiting();
        assert_eq!(published(&mut barriers, 1), [0_u64; 0]);
        assert_eq!(barriers.give_up(PATIENCE / 2), []);
        assert_eq!(barriers.give_up(PATIENCE), [(W, vec![1].into())]);
        let mut barriers = waiting();
        assert_eq!((published(&mut barriers, 1), barriers.close(W, false).items), (vec![], vec![1]));
    }
}
