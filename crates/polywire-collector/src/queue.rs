//! The queue of a handler, and the handler's progress with each source.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire::Overflow;

use crate::Entry;

/// How often a delayed source checks whether it is to end.
const TICK: Duration = Duration::from_millis(50);

/// An entry on its way to a handler.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// The source, and the entry's position in it.
    pub source: usize,
    pub position: u64,
    pub entry: Arc<Entry>,
}

/// The limits of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    pub entries: usize,
    pub bytes: usize,
    pub overflow: Overflow,
}

/// The counters of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueCounts {
    pub received: u64,
    pub dropped: u64,
    pub waiting: usize,
    pub waiting_bytes: usize,
}

/// A bounded queue from any number of sources to one handler.
pub(crate) struct Queue {
    limits: QueueLimits,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Item>,
    /// Entries that were taken and are not stored, or were abandoned, in order.
    taken: Vec<Item>,
    bytes: usize,
    received: u64,
    dropped: u64,
    sources: BTreeMap<usize, Progress>,
    is_closed: bool,
}

/// The progress of a handler with a source.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// The latest position that the source offered.
    offered: u64,
    /// The latest position that is stored. All earlier entries of the source are stored or dropped,
    /// because its entries are taken in order.
    stored: u64,
    /// The number of entries that wait, or were taken and are not stored.
    unfinished: usize,
}

impl State {
    fn drop_one(&mut self, item: &Item) {
        self.dropped += 1;
        self.finish(item);
    }

    fn finish(&mut self, item: &Item) {
        let progress = self.sources.entry(item.source).or_default();
        progress.unfinished = progress.unfinished.saturating_sub(1);
    }

    fn pop(&mut self) -> Option<Item> {
        let item = self.waiting.pop_front()?;
        self.bytes -= item.entry.bytes;
        Some(item)
    }
}

impl Queue {
    pub fn new(limits: QueueLimits) -> Queue {
        Queue { limits, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Appends an entry, or applies the overflow policy if the queue is full. Blocks only if that
    /// is the policy, until there is room or `ends` returns true.
    pub fn push(&self, item: Item, ends: impl Fn() -> bool) {
        let mut state = self.lock();
        state.received += 1;
        let progress = state.sources.entry(item.source).or_default();
        progress.offered = item.position;
        progress.unfinished += 1;
        while !state.is_closed && self.is_full(&state, &item) {
            match self.limits.overflow {
                Overflow::DropNewest => return state.drop_one(&item),
                Overflow::Block { .. } if ends() => break,
                Overflow::Block { .. } => {
                    self.changed.wait_for(&mut state, TICK);
                }
                _ => {
                    if let Some(oldest) = state.pop() {
                        state.drop_one(&oldest);
                    }
                }
            }
        }
        if state.is_closed {
            // The entry stays unfinished: it is not stored, and its source may still have it.
            state.dropped += 1;
            return;
        }
        state.bytes += item.entry.bytes;
        state.waiting.push_back(item);
        drop(state);
        self.changed.notify_all();
    }

    /// Returns whether there is no room for an entry. An entry beyond the byte limit is accepted if
    /// the queue is empty.
    fn is_full(&self, state: &State, item: &Item) -> bool {
        !state.waiting.is_empty()
            && (state.waiting.len() >= self.limits.entries || state.bytes + item.entry.bytes > self.limits.bytes)
    }

    /// Records that the handler does not want an entry.
    pub fn skip(&self, source: usize, position: u64) {
        self.lock().sources.entry(source).or_default().offered = position;
    }

    /// Takes at most `most` entries with at most `most_bytes`, but at least one. Blocks until there
    /// is one, `patience` has passed, or the queue is closed. The second value is false
    /// if there will be no more entries.
    pub fn take(&self, most: usize, most_bytes: usize, patience: Duration) -> (Vec<Item>, bool) {
        let until = Instant::now().checked_add(patience);
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.is_closed {
            let left = until.map_or(Duration::from_secs(3600), |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            self.changed.wait_for(&mut state, left);
        }
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(next) = state.waiting.front().filter(|_| taken.len() < most) {
            bytes += next.entry.bytes;
            if bytes > most_bytes && !taken.is_empty() {
                break;
            }
            taken.extend(state.pop());
        }
        state.taken.extend(taken.iter().cloned());
        let more_may_come = !state.is_closed || !state.waiting.is_empty();
        drop(state);
        self.changed.notify_all();
        (taken, more_may_come)
    }

    /// Records that all entries which were taken, in this order, are stored or finally refused.
    pub fn stored<'a>(&self, items: impl IntoIterator<Item = &'a Item>) {
        let mut state = self.lock();
        state.taken.clear();
        for item in items {
            state.finish(item);
            let progress = state.sources.entry(item.source).or_default();
            progress.stored = progress.stored.max(item.position);
        }
    }

    /// Drops the waiting entries, and counts them.
    pub fn abandon(&self) {
        let mut state = self.lock();
        while let Some(item) = state.pop() {
            // The entry stays unfinished: it is not stored, and its source may still have it.
            state.dropped += 1;
            state.taken.push(item);
        }
    }

    /// Removes all entries that are not stored, in order, and returns them. The source's progress
    /// stays as it is.
    pub fn take_unfinished(&self) -> Vec<Item> {
        let mut state = self.lock();
        let mut items = std::mem::take(&mut state.taken);
        while let Some(item) = state.pop() {
            items.push(item);
        }
        items
    }

    /// Appends an entry of a former queue, regardless of the limits.
    pub fn restore(&self, item: Item) {
        let mut state = self.lock();
        state.received += 1;
        let progress = state.sources.entry(item.source).or_default();
        progress.offered = item.position;
        progress.unfinished += 1;
        state.bytes += item.entry.bytes;
        state.waiting.push_back(item);
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the position up to which all entries of a source are stored, dropped or not wanted.
    /// `None` if the source has offered no entry yet.
    pub fn handled(&self, source: usize) -> Option<u64> {
        let state = self.lock();
        let progress = state.sources.get(&source)?;
        Some(if progress.unfinished == 0 { progress.offered } else { progress.stored })
    }

    /// Closes the queue to new entries. Waiting entries can still be taken.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until the time has passed or the queue is closed.
    pub fn pause(&self, time: Duration) {
        self.changed.wait_while_for(&mut self.lock(), |state| !state.is_closed, time);
    }

    pub fn counts(&self) -> QueueCounts {
        let state = self.lock();
        QueueCounts {
            received: state.received,
            dropped: state.dropped,
            waiting: state.waiting.len(),
            waiting_bytes: state.bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use polywire::{Message as _, Record, Shape};

    use super::*;
    use crate::Origin;

    #[derive(Default, polywire::Message)]
    struct Text {
        text: String,
    }

    fn item(source: usize, position: u64) -> Item {
        let record = Record::new(&Shape::of(Text::shape().schema()).expect("a shape"));
        let entry = Arc::new(Entry::new(Arc::new(Origin::default()), position, 0, record));
        Item { source, position, entry }
    }

    fn queue(entries: usize, overflow: Overflow) -> Queue {
        Queue::new(QueueLimits { entries, bytes: usize::MAX, overflow })
    }

    fn positions(items: &[Item]) -> Vec<u64> {
        items.iter().map(|item| item.position).collect()
    }

    #[test]
    fn policies_drop_what_they_say() {
        for (overflow, left) in [(Overflow::DropOldest, [3, 4]), (Overflow::DropNewest, [1, 2])] {
            let queue = queue(2, overflow);
            (1..=4).for_each(|position| queue.push(item(0, position), || false));
            let counts = queue.counts();
            assert_eq!((counts.received, counts.dropped, counts.waiting), (4, 2, 2));
            let (taken, _) = queue.take(10, usize::MAX, Duration::ZERO);
            assert_eq!(positions(&taken), left);
        }
    }

    #[test]
    fn a_source_is_held_up_until_there_is_room() {
        let queue = queue(1, Overflow::Block { patience: Duration::MAX });
        queue.push(item(0, 1), || false);
        thread::scope(|scope| {
            scope.spawn(|| queue.push(item(0, 2), || false));
            assert_eq!(positions(&queue.take(1, usize::MAX, Duration::MAX).0), [1]);
            assert_eq!(positions(&queue.take(1, usize::MAX, Duration::MAX).0), [2]);
        });
        assert_eq!(queue.counts().dropped, 0);
        queue.push(item(0, 3), || false);
        // A source that is to end is not delayed, and its entry is kept.
        queue.push(item(0, 4), || true);
        assert_eq!(positions(&queue.take(9, usize::MAX, Duration::ZERO).0), [3, 4]);
    }

    #[test]
    fn only_what_is_stored_counts_as_handled() {
        let queue = queue(2, Overflow::DropNewest);
        assert_eq!(queue.handled(0), None);
        queue.push(item(0, 1), || false);
        queue.push(item(1, 10), || false);
        // The entry is dropped, but an earlier one is not stored yet.
        queue.push(item(0, 2), || false);
        assert_eq!((queue.handled(0), queue.handled(1)), (Some(0), Some(0)));
        let (taken, _) = queue.take(10, usize::MAX, Duration::ZERO);
        assert_eq!(queue.handled(0), Some(0), "taken is not stored");
        queue.stored(&taken);
        assert_eq!((queue.handled(0), queue.handled(1)), (Some(2), Some(10)));
        queue.skip(1, 11);
        assert_eq!(queue.handled(1), Some(11));
        queue.push(item(1, 12), || false);
        queue.close();
        queue.abandon();
        assert_eq!((queue.handled(1), queue.counts().dropped), (Some(10), 2), "abandoned is not stored");
    }

    #[test]
    fn what_is_not_stored_can_be_taken_over() {
        let former = queue(9, Overflow::DropNewest);
        (1..=5).for_each(|position| former.push(item(0, position), || false));
        let (taken, _) = former.take(2, usize::MAX, Duration::ZERO);
        former.stored(&taken);
        former.take(1, usize::MAX, Duration::ZERO);
        former.close();
        former.abandon();
        let next = queue(1, Overflow::DropNewest);
        former.take_unfinished().into_iter().for_each(|item| next.restore(item));
        assert_eq!((next.handled(0), next.counts().waiting), (Some(0), 3), "nothing of it is stored");
        let (taken, _) = next.take(9, usize::MAX, Duration::ZERO);
        assert_eq!(positions(&taken), [3, 4, 5]);
        next.stored(&taken);
        assert_eq!((next.handled(0), former.take_unfinished().len()), (Some(5), 0));
    }

    #[test]
    fn bytes_are_bounded_but_one_entry_always_fits() {
        let bytes = item(0, 1).entry.bytes;
        let queue = Queue::new(QueueLimits { entries: 9, bytes: bytes / 2, overflow: Overflow::DropOldest });
        queue.push(item(0, 1), || false);
        queue.push(item(0, 2), || false);
        assert_eq!((queue.counts().waiting, queue.counts().dropped), (1, 1));
        assert_eq!(positions(&queue.take(9, usize::MAX, Duration::ZERO).0), [2]);
        queue.close();
        assert!(!queue.take(9, usize::MAX, Duration::MAX).1);
    }
}
