//! A subscriber's queue, between the threads that read links and the thread that receives.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire_core::envelope::Id128;

use crate::{clock, engine::Overflow};

/// The receiver is woken when this many messages wait, or when the link pauses.
const WAKE_AT: usize = 64;
/// The most used values that are kept to decode into. Together they take no more memory than the
/// queue may.
const SPARE: usize = 64;

pub(crate) struct Queue<T, V> {
    state: Mutex<Waiting<T, V>>,
    arrived: Condvar,
    room: Condvar,
    limits: QueueLimits,
    drops: Arc<Drops>,
}

/// Counters of messages that a queue drops because of quality of service. They are not lost.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    /// Replaced by newer messages of the same instance.
    pub(crate) replaced: AtomicU64,
    /// Refused, because the instance has reached its limit of messages.
    pub(crate) rejected: AtomicU64,
    /// Not taken before the end of their lifespan.
    pub(crate) expired: AtomicU64,
}

/// Bounds of a queue, and what happens when it is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    pub(crate) messages: usize,
    /// Bytes of memory. One larger message is accepted if nothing else waits.
    pub(crate) bytes: usize,
    pub(crate) overflow: Overflow,
    /// The limit on messages of one instance. A further one replaces the oldest, or is refused.
    pub(crate) depth: Option<Depth>,
}

/// The limit on the messages of one instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth {
    pub(crate) messages: u32,
    /// Whether new messages replace old ones. Otherwise new messages are refused.
    pub(crate) replaces: bool,
}

/// An item and the bytes of memory that it takes.
pub(crate) struct Weighed<T> {
    pub(crate) item: T,
    pub(crate) bytes: usize,
    /// `None` if the item has no instance and no lifespan.
    pub(crate) tag: Option<Box<Tag>>,
}

/// The properties of an item that quality of service needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tag {
    pub(crate) instance: Id128,
    /// The end of the lifespan, by this node's clock, in nanoseconds since 1970.
    pub(crate) expires_ns: Option<i64>,
}

impl<T> Weighed<T> {
    pub(crate) fn new(item: T, bytes: usize) -> Self {
        Weighed { item, bytes, tag: None }
    }

    fn instance(&self) -> Id128 {
        self.tag.as_ref().map_or(Id128::ZERO, |tag| tag.instance)
    }

    fn is_expired(&self) -> bool {
        self.tag.as_ref().and_then(|tag| tag.expires_ns).is_some_and(|expires| expires <= clock::wall_ns())
    }
}

struct Waiting<T, V> {
    items: VecDeque<Weighed<T>>,
    /// Sum over `items`.
    bytes: usize,
    /// The number of items of each instance, if there is a limit.
    by_instance: BTreeMap<Id128, u32>,
    spare: Vec<Weighed<V>>,
    /// Sum over `spare`.
    spare_bytes: usize,
    waker: Option<Waker>,
    stalled: bool,
    /// The number of items taken so far. A thread that waits for room uses it to distinguish a slow
    /// receiver from a stuck one.
    taken: u64,
    closed: bool,
}

impl<T, V> Queue<T, V> {
    pub(crate) fn new(limits: QueueLimits) -> Self {
        let state = Waiting {
            items: VecDeque::new(),
            bytes: 0,
            by_instance: BTreeMap::new(),
            spare: Vec::new(),
            spare_bytes: 0,
            waker: None,
            stalled: false,
            taken: 0,
            closed: false,
        };
        let (arrived, room) = (Condvar::new(), Condvar::new());
        let limits = QueueLimits { messages: limits.messages.max(1), ..limits };
        Queue { state: Mutex::new(state), arrived, room, limits, drops: Arc::default() }
    }

    /// Returns the counters of messages that the queue drops because of quality of service.
    pub(crate) fn drops(&self) -> Arc<Drops> {
        self.drops.clone()
    }

    /// The number of messages that wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().items.len()
    }

    pub(crate) fn limits(&self) -> QueueLimits {
        self.limits
    }

    /// Adds an item. Returns the items that were dropped to make room, or the item itself if it has
    /// no room. Items that quality of service drops are only counted. May block if the policy is
    /// [`Overflow::Block`]. Wakes the receiver only when many items wait; call [`Queue::wake`] when
    /// the link pauses.
    pub(crate) fn push(&self, item: Weighed<T>) -> Vec<Weighed<T>> {
        let mut state = self.lock();
        let mut dropped = Vec::new();
        if self.limits.depth.is_some_and(|depth| !depth.replaces && state.is_at_limit(item.instance(), depth)) {
            self.drops.rejected.fetch_add(1, Ordering::Relaxed);
            return dropped;
        }
        if self.is_full(&state, &item) {
            match self.limits.overflow {
                // The oldest go below, once it is known which one the item replaces.
                Overflow::DropOldest => {}
                Overflow::DropNewest => return vec![item],
                Overflow::Block { patience } => {
                    state = self.wait_for_room(state, &item, patience);
                    if self.is_full(&state, &item) {
                        return vec![item];
                    }
                }
            }
        }
        if state.closed {
            return dropped;
        }
        if let Some(at) = self.replaced_by(&state, &item) {
            state.take_at(at, &self.limits);
            self.drops.replaced.fetch_add(1, Ordering::Relaxed);
        }
        while self.is_full(&state, &item) {
            dropped.extend(state.take_first(&self.limits));
        }
        if self.limits.depth.is_some() {
            *state.by_instance.entry(item.instance()).or_default() += 1;
        }
        state.bytes += item.bytes;
        state.items.push_back(item);
        if state.items.len() == WAKE_AT {
            self.wake_locked(&mut state);
        }
        dropped
    }

    /// The position of the item that a new one replaces: the oldest of its instance, if that has
    /// reached its limit.
    fn replaced_by(&self, state: &Waiting<T, V>, new: &Weighed<T>) -> Option<usize> {
        let instance = new.instance();
        self.limits.depth.filter(|depth| depth.replaces && state.is_at_limit(instance, *depth))?;
        state.items.iter().position(|item| item.instance() == instance)
    }

    /// Takes the first item of an instance, if one waits.
    pub(crate) fn pop_instance(&self, instance: Id128) -> Option<T> {
        let mut state = self.lock();
        loop {
            let at = state.items.iter().position(|item| item.instance() == instance)?;
            let taken = state.take_at(at, &self.limits)?;
            if let Some(item) = self.taken(&mut state, taken) {
                return Some(item);
            }
        }
    }

    /// Whether there is no room for a new item, even in place of the one that it replaces.
    #[inline]
    fn is_full(&self, state: &Waiting<T, V>, new: &Weighed<T>) -> bool {
        let (items, bytes) = (state.items.len(), state.bytes.saturating_add(new.bytes));
        if !self.are_too_many(items, bytes) {
            return false;
        }
        let replaced = self.replaced_by(state, new).and_then(|at| state.items.get(at));
        replaced.is_none_or(|old| self.are_too_many(items - 1, bytes - old.bytes))
    }

    /// Whether a new item has no room beside `others`. `bytes` is the sum over all of them.
    #[inline]
    fn are_too_many(&self, others: usize, bytes: usize) -> bool {
        others >= self.limits.messages || (bytes > self.limits.bytes && others > 0)
    }

    /// Whether a stalled receiver has caught up.
    fn is_half_empty(&self, state: &Waiting<T, V>) -> bool {
        state.items.len() <= self.limits.messages / 2 && state.bytes <= self.limits.bytes / 2
    }

    fn wait_for_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, Waiting<T, V>>,
        new: &Weighed<T>,
        patience: Duration,
    ) -> MutexGuard<'a, Waiting<T, V>> {
        self.wake_locked(&mut state);
        loop {
            let taken = state.taken;
            let full = |state: &mut Waiting<T, V>| self.is_full(state, new) && !state.closed && !state.stalled;
            let timed_out = self.room.wait_while_for(&mut state, full, patience).timed_out();
            if !timed_out || state.taken == taken {
                state.stalled |= timed_out;
                return state;
            }
        }
    }

    /// Wakes the receiver if an item waits.
    pub(crate) fn wake(&self) {
        let mut state = self.lock();
        if !state.items.is_empty() {
            self.wake_locked(&mut state);
        }
    }

    fn wake_locked(&self, state: &mut Waiting<T, V>) {
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        self.arrived.notify_all();
    }

    /// Waits for the next item. `None` at `deadline`, or when the queue is closed and empty.
    pub(crate) fn pop(&self, deadline: Option<Instant>) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(item) = self.take(&mut state) {
                return Some(item);
            }
            if state.closed {
                return None;
            }
            match deadline {
                Some(deadline) if deadline <= Instant::now() => return None,
                Some(deadline) => {
                    self.arrived.wait_until(&mut state, deadline);
                }
                None => self.arrived.wait(&mut state),
            }
        }
    }

    /// Polls for the next item; `Ready(None)` when the queue is closed and empty.
    pub(crate) fn poll_pop(&self, context: &Context<'_>) -> Poll<Option<T>> {
        let mut state = self.lock();
        if let Some(item) = self.take(&mut state) {
            return Poll::Ready(Some(item));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Waits for items and takes all of them. Returns false when the queue is closed and empty.
    pub(crate) fn pop_all(&self, into: &mut VecDeque<Weighed<T>>) -> bool {
        let mut state = self.lock();
        while state.items.is_empty() && !state.closed {
            self.arrived.wait(&mut state);
        }
        std::mem::swap(&mut state.items, into);
        state.bytes = 0;
        state.by_instance.clear();
        state.taken += into.len() as u64;
        state.stalled = false;
        self.room.notify_all();
        let closed = state.closed && into.is_empty();
        drop(state);
        let before = into.len();
        into.retain(|item| !item.is_expired());
        self.drops.expired.fetch_add((before - into.len()) as u64, Ordering::Relaxed);
        !closed
    }

    fn take(&self, state: &mut Waiting<T, V>) -> Option<T> {
        loop {
            let first = state.take_first(&self.limits)?;
            if let Some(item) = self.taken(state, first) {
                return Some(item);
            }
        }
    }

    /// Records that an item was taken, and returns it. `None` if its lifespan has ended.
    fn taken(&self, state: &mut Waiting<T, V>, taken: Weighed<T>) -> Option<T> {
        state.taken += 1;
        if self.is_half_empty(state) {
            state.stalled = false;
        }
        self.room.notify_all();
        if taken.is_expired() {
            self.drops.expired.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(taken.item)
    }

    /// Refuses items from now on, and wakes all threads and tasks that wait.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.wake_locked(&mut state);
        self.arrived.notify_all();
        self.room.notify_all();
    }

    /// Takes a used value to decode into.
    pub(crate) fn spare(&self) -> Option<Weighed<V>> {
        let mut state = self.lock();
        let spare = state.spare.pop()?;
        state.spare_bytes -= spare.bytes;
        Some(spare)
    }

    /// Returns used values to the queue. A value keeps the memory that it has grown to, so the
    /// queue keeps only as many as the limits allow.
    pub(crate) fn give_back(&self, values: impl Iterator<Item = Weighed<V>>) {
        let mut state = self.lock();
        for value in values {
            let bytes = state.spare_bytes.saturating_add(value.bytes);
            if state.spare.len() < SPARE && bytes <= self.limits.bytes {
                state.spare_bytes = bytes;
                state.spare.push(value);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T, V>> {
        self.state.lock()
    }
}

impl<T, V> Waiting<T, V> {
    /// Whether an instance has reached its limit.
    fn is_at_limit(&self, instance: Id128, depth: Depth) -> bool {
        self.by_instance.get(&instance).is_some_and(|count| *count >= depth.messages)
    }

    fn take_first(&mut self, limits: &QueueLimits) -> Option<Weighed<T>> {
        self.take_at(0, limits)
    }

    #[inline]
    fn take_at(&mut self, at: usize, limits: &QueueLimits) -> Option<Weighed<T>> {
        let item = if at == 0 { self.items.pop_front() } else { self.items.remove(at) }?;
        self.bytes -= item.bytes;
        if limits.depth.is_some() {
            let instance = item.instance();
            if let Some(count) = self.by_instance.get_mut(&instance) {
                *count -= 1;
                if *count == 0 {
                    self.by_instance.remove(&instance);
                }
            }
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    fn queue(messages: usize, bytes: usize, overflow: Overflow) -> Queue<u32, u32> {
        Queue::new(QueueLimits { messages, bytes, overflow, depth: None })
    }

    fn dropped(queue: &Queue<u32, u32>, item: u32, bytes: usize) -> Vec<u32> {
        queue.push(Weighed::new(item, bytes)).into_iter().map(|dropped| dropped.item).collect()
    }

    fn waiting(queue: &Queue<u32, u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop(Some(Instant::now()))).collect()
    }

    #[test]
    fn bytes_are_bounded_beside_messages() {
        let queue = queue(100, 10, Overflow::DropNewest);
        assert_eq!(dropped(&queue, 1, 6), [0_u32; 0]);
        assert_eq!(dropped(&queue, 2, 5), [2]);
        assert_eq!(dropped(&queue, 3, 4), [0_u32; 0]);
        assert_eq!(dropped(&queue, 4, 1), [4]);
        assert_eq!(waiting(&queue), [1, 3]);
        // An item that is larger than the limit is accepted if nothing else waits.
        assert_eq!(dropped(&queue, 5, 1000), [0_u32; 0]);
        assert_eq!(dropped(&queue, 6, 0), [6]);
        assert_eq!(waiting(&queue), [5]);
        assert_eq!(queue.lock().bytes, 0);
    }

    #[test]
    fn as_many_of_the_oldest_go_as_the_new_one_needs() {
        let queue = queue(4, 10, Overflow::DropOldest);
        for (item, bytes) in [(1, 3), (2, 3), (3, 3)] {
            assert_eq!(dropped(&queue, item, bytes), [0_u32; 0]);
        }
        assert_eq!(dropped(&queue, 4, 5), [1, 2]);
        assert_eq!(dropped(&queue, 5, 100), [3, 4]);
        assert_eq!(waiting(&queue), [5]);
        for item in 1..=5 {
            assert_eq!(dropped(&queue, item, 0), if item == 5 { vec![1] } else { vec![] });
        }
    }

    #[test]
    fn a_writer_waits_for_bytes() {
        let queue = Arc::new(queue(100, 10, Overflow::Block { patience: Duration::from_secs(60) }));
        assert_eq!((dropped(&queue, 1, 5), dropped(&queue, 2, 5)), (vec![], vec![]));
        let writer = thread::spawn({
            let queue = queue.clone();
            move || dropped(&queue, 3, 10)
        });
        let began = Instant::now();
        for item in 1..=3 {
            thread::sleep(Duration::from_millis(20));
            assert_eq!(queue.pop(Some(Instant::now() + Duration::from_secs(60))), Some(item));
        }
        assert_eq!(writer.join().expect("it ends"), [0_u32; 0]);
        assert!(began.elapsed() < Duration::from_secs(60), "it was woken, and did not run out of patience");
    }

    #[test]
    fn a_receiver_that_takes_nothing_holds_up_nobody_for_long() {
        let queue = queue(100, 10, Overflow::Block { patience: Duration::from_millis(50) });
        assert_eq!(dropped(&queue, 1, 10), [0_u32; 0]);
        let began = Instant::now();
        assert_eq!((dropped(&queue, 2, 10), dropped(&queue, 3, 10)), (vec![2], vec![3]));
        assert!((50..1000).contains(&began.elapsed().as_millis()));
    }

    /// An item of an instance.
    fn tagged(item: u32, instance: u8, expires_ns: Option<i64>) -> Weighed<u32> {
        Weighed { tag: Some(Box::new(Tag { instance: Id128([instance; 16]), expires_ns })), ..Weighed::new(item, 1) }
    }

    #[test]
    fn an_instance_keeps_its_last_items() {
        let depth = Some(Depth { messages: 2, replaces: true });
        let limits = QueueLimits { messages: 100, bytes: 100, overflow: Overflow::DropNewest, depth };
        let queue: Queue<u32, u32> = Queue::new(limits);
        for (item, instance) in [(1, 1), (2, 2), (3, 1), (4, 1), (5, 2), (6, 1)] {
            assert!(queue.push(tagged(item, instance, None)).is_empty());
        }
        assert_eq!((queue.pop_instance(Id128([2; 16])), queue.pop_instance(Id128([3; 16]))), (Some(2), None));
        assert_eq!((waiting(&queue), queue.drops.replaced.load(Ordering::Relaxed)), (vec![4, 5, 6], 2));
        let left = {
            let state = queue.lock();
            (state.bytes, state.by_instance.len())
        };
        assert_eq!(left, (0, 0));

        let depth = Some(Depth { messages: 2, replaces: false });
        let queue: Queue<u32, u32> = Queue::new(QueueLimits { depth, ..limits });
        (1..=4).for_each(|item| drop(queue.push(tagged(item, 1, None))));
        assert_eq!((waiting(&queue), queue.drops.rejected.load(Ordering::Relaxed)), (vec![1, 2], 2));
    }

    #[test]
    fn an_item_that_is_refused_replaces_no_other() {
        let depth = Some(Depth { messages: 1, replaces: true });
        for overflow in [Overflow::DropNewest, Overflow::Block { patience: Duration::from_millis(10) }] {
            let queue: Queue<u32, u32> = Queue::new(QueueLimits { messages: 2, bytes: 10, overflow, depth });
            let refused = |item, instance, bytes| {
                let refused = queue.push(Weighed { bytes, ..tagged(item, instance, None) });
                refused.into_iter().map(|refused| refused.item).collect::<Vec<u32>>()
            };
            assert_eq!((refused(1, 1, 5), refused(2, 2, 5)), (vec![], vec![]));
            assert_eq!((refused(3, 1, 6), refused(4, 3, 0)), (vec![3], vec![4]));
            assert_eq!(refused(5, 2, 5), [0_u32; 0], "it has the room of the one that it replaces");
            assert_eq!((waiting(&queue), queue.drops.replaced.load(Ordering::Relaxed)), (vec![1, 5], 1));
        }
    }

    #[test]
    fn what_expires_in_the_queue_is_not_taken() {
        let queue = queue(100, 100, Overflow::DropNewest);
        let (past, future) = (Some(clock::wall_ns() - 1), Some(i64::MAX));
        let push = || {
            for (item, expires) in [(1, past), (2, future), (3, past), (4, None)] {
                assert!(queue.push(tagged(item, 1, expires)).is_empty());
            }
        };
        push();
        assert_eq!(waiting(&queue), [2, 4]);
        push();
        let mut all = VecDeque::new();
        assert!(queue.pop_all(&mut all));
        assert_eq!(all.iter().map(|item| item.item).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(queue.drops.expired.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn used_values_are_kept_as_far_as_they_have_room() {
        let queue = queue(100, 10, Overflow::DropNewest);
        let used = [(1, 11), (2, 6), (3, 5), (4, 4)];
        queue.give_back(used.map(|(item, bytes)| Weighed::new(item, bytes)).into_iter());
        let spare = || queue.spare().map(|spare| spare.item);
        assert_eq!((spare(), spare(), spare()), (Some(4), Some(2), None));
        queue.give_back((0..1000).map(|item| Weighed::new(item, 0)));
        let state = queue.lock();
        assert_eq!((state.spare.len(), state.spare_bytes), (SPARE, 0));
    }
}
