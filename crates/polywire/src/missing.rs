//! Counts the messages that a subscriber misses, by the sequence numbers of their writers. A writer
//! is followed across its channels and links, so messages lost while a link breaks are counted.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use polywire_core::envelope::{Announcement, Id128};

/// Writers that a subscriber remembers after their last channel has ended.
const REMEMBERED: usize = 1024;

/// A writer in one incarnation.
type Writer = (Id128, u64);

/// The writers that a subscriber knows.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<Ledger>);

#[derive(Debug, Default)]
struct Ledger {
    /// The progress on each open channel, by writer.
    live: BTreeMap<Writer, Vec<Arc<Progress>>>,
    /// Writers without an open channel, with their last message, in the order in which their last
    /// channels ended.
    left: VecDeque<(Writer, u64)>,
}

/// The first and last sequence numbers that came on one channel. 0 before the first message.
#[derive(Debug, Default)]
struct Progress {
    first: AtomicU64,
    last: AtomicU64,
}

/// Follows one channel of a writer until [`Follow::end`].
#[derive(Debug)]
pub(crate) struct Follow {
    writers: Arc<Writers>,
    writer: Writer,
    progress: Arc<Progress>,
}

impl Follow {
    /// A writer with the zero id is followed on this channel alone, as other writers may have that
    /// id too.
    pub(crate) fn new(writers: &Arc<Writers>, announced: &Announcement) -> Follow {
        let writer = (announced.writer, announced.incarnation);
        let writers = if writer.0.is_zero() { Arc::default() } else { writers.clone() };
        let progress = Arc::<Progress>::default();
        writers.lock().live.entry(writer).or_default().push(progress.clone());
        Follow { writers, writer, progress }
    }

    /// A message came. Returns the number of messages missing before it. Calls do not overlap.
    #[inline]
    pub(crate) fn came(&self, sequence: u64) -> u64 {
        let last = self.progress.last.load(Ordering::Relaxed);
        if last.wrapping_add(1) == sequence && last != 0 {
            self.progress.last.store(sequence, Ordering::Relaxed);
            return 0;
        }
        self.jumped(last, sequence, sequence.saturating_sub(1), 0)
    }

    /// The sender dropped `lost` messages up to and including this one. A `lost` of 0 says that it
    /// begins after this one. Returns the number of missing messages that were not counted before.
    pub(crate) fn told(&self, sequence: u64, lost: u64) -> u64 {
        let last = self.progress.last.load(Ordering::Relaxed);
        if last == 0 && lost == 0 {
            return 0;
        }
        self.jumped(last, sequence, sequence, lost)
    }

    /// The channel moves from `last` to `now`, and no message from there up to `missing` came.
    /// `told` is the sender's count, which is used if no earlier message of the writer is known.
    #[cold]
    fn jumped(&self, last: u64, now: u64, missing: u64, told: u64) -> u64 {
        // Both numbers change under the lock: a channel that ends meanwhile sees both or neither.
        let mut state = self.writers.lock();
        let before = match last {
            0 => state.take_left(self.writer),
            last => Some(last),
        };
        if last == 0 {
            self.progress.first.store(missing.saturating_add(1), Ordering::Relaxed);
        }
        if now > last {
            self.progress.last.store(now, Ordering::Relaxed);
        }
        before.map_or(told.min(missing), |before| missing.saturating_sub(before))
    }

    /// The channel ends. Returns the number of messages missing between it and the writer's next
    /// channel, if that one has begun.
    pub(crate) fn end(&self) -> u64 {
        let mut state = self.writers.lock();
        let Some(live) = state.live.get_mut(&self.writer) else { return 0 };
        live.retain(|other| !Arc::ptr_eq(other, &self.progress));
        let last = self.progress.last.load(Ordering::Relaxed);
        let first = |other: &Arc<Progress>| other.first.load(Ordering::Relaxed);
        let next = live.iter().map(first).filter(|first| *first != 0).min();
        if live.is_empty() {
            state.live.remove(&self.writer);
        }
        match (last, next) {
            (0, _) => 0,
            (last, Some(first)) => first.saturating_sub(last).saturating_sub(1),
            (last, None) => {
                state.remember(self.writer, last);
                0
            }
        }
    }
}

impl Ledger {
    fn take_left(&mut self, writer: Writer) -> Option<u64> {
        let at = self.left.iter().position(|(left, _)| *left == writer)?;
        self.left.remove(at).map(|(_, last)| last)
    }

    fn remember(&mut self, writer: Writer, last: u64) {
        let before = self.take_left(writer).unwrap_or(0);
        if self.left.len() == REMEMBERED {
            self.left.pop_front();
        }
        self.left.push_back((writer, last.max(before)));
    }
}

impl Writers {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(writers: &Arc<Writers>, writer: u8) -> Follow {
        let announced = Announcement { writer: Id128([writer; 16]), incarnation: 1, ..Announcement::default() };
        Follow::new(writers, &announced)
    }

    #[test]
    fn what_came_before_the_first_message_is_not_missing() {
        let channel = follow(&Arc::default(), 1);
        assert_eq!((channel.told(99, 0), channel.came(100), channel.came(101)), (0, 0, 0));
        assert_eq!((channel.came(105), channel.came(103), channel.came(106)), (3, 0, 0));
    }

    #[test]
    fn what_is_told_is_counted_once() {
        let channel = follow(&Arc::default(), 1);
        assert_eq!((channel.came(1), channel.told(5, 4), channel.came(6)), (0, 4, 0));
        assert_eq!((channel.told(8, 1), channel.came(10)), (2, 1));
        let fresh = follow(&Arc::default(), 1);
        assert_eq!((fresh.told(5, 3), fresh.came(6)), (3, 0), "held messages that made room before the first came");
        let forged = follow(&Arc::default(), 1);
        assert_eq!((forged.told(5, u64::MAX), forged.told(6, u64::MAX)), (5, 1));
    }

    #[test]
    fn a_writer_is_followed_from_link_to_link() {
        let writers = Arc::default();
        let first = follow(&writers, 1);
        assert_eq!((first.came(7), first.end()), (0, 0));
        let second = follow(&writers, 1);
        assert_eq!((second.told(10, 0), second.came(11), second.came(12)), (0, 3, 0));
        assert_eq!(second.end(), 0);
        let other = follow(&writers, 2);
        assert_eq!((other.came(50), other.end()), (0, 0));
        let third = follow(&writers, 1);
        assert_eq!((third.told(15, 1), third.came(16)), (3, 0), "two on the way and one that made room");
    }

    #[test]
    fn the_next_link_may_come_before_the_last_one_has_ended() {
        let writers = Arc::default();
        let (old, new) = (follow(&writers, 1), follow(&writers, 1));
        assert_eq!((old.came(1), new.came(6), new.came(7)), (0, 0, 0));
        assert_eq!((old.came(2), old.came(3)), (0, 0), "what was still on its way");
        assert_eq!((old.end(), new.came(8)), (2, 0));
        let unused = follow(&writers, 1);
        assert_eq!((unused.end(), new.end()), (0, 0));
        assert_eq!(follow(&writers, 1).came(10), 1);
    }

    #[test]
    fn few_writers_are_remembered_and_none_without_a_name() {
        let writers = Arc::<Writers>::default();
        for _ in 0..2 {
            let nameless = Follow::new(&writers, &Announcement::default());
            assert_eq!((nameless.told(5, u64::MAX), nameless.told(5, u64::MAX), nameless.came(6)), (5, 0, 0));
            assert_eq!((nameless.came(9), nameless.end()), (2, 0));
        }
        for incarnation in 0..2 * REMEMBERED as u64 {
            let announced = Announcement { writer: Id128([1; 16]), incarnation, ..Announcement::default() };
            let channel = Follow::new(&writers, &announced);
            assert_eq!((channel.came(1), channel.end()), (0, 0));
        }
        let state = writers.lock();
        assert_eq!((state.left.len(), state.live.len()), (REMEMBERED, 0));
    }
}
