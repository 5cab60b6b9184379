//! Between the thread that reads a link and the one that wants its messages.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use crate::engine::Overflow;

/// So many messages wait at most for the reader to pause before the receiver is woken.
const WAKE_AT: usize = 64;
/// Used values kept for decoding into.
const SPARE: usize = 64;

pub(crate) struct Queue<T, V> {
    state: Mutex<State<T, V>>,
    came: Condvar,
    room: Condvar,
    limit: usize,
    overflow: Overflow,
}

struct State<T, V> {
    items: VecDeque<T>,
    spare: Vec<V>,
    sleepers: usize,
    waker: Option<Waker>,
    stalled: bool,
    /// Items taken so far: tells a slow receiver from one that takes nothing.
    taken: u64,
    closed: bool,
}

impl<T, V> Queue<T, V> {
    pub(crate) fn new(limit: usize, overflow: Overflow) -> Self {
        let state = State {
            items: VecDeque::new(),
            spare: Vec::new(),
            sleepers: 0,
            waker: None,
            stalled: false,
            taken: 0,
            closed: false,
        };
        let (came, room) = (Condvar::new(), Condvar::new());
        Queue { state: Mutex::new(state), came, room, limit: limit.max(1), overflow }
    }

    /// Adds an item; gives the one that was dropped for want of room. The receiver is woken when many wait, else by [`Queue::wake`].
    pub(crate) fn push(&self, item: T) -> Option<T> {
        let mut state = self.lock();
        let mut dropped = None;
        if state.items.len() >= self.limit {
            match self.overflow {
                Overflow::DropOldest => dropped = state.items.pop_front(),
                Overflow::DropNewest => return Some(item),
                Overflow::Block { patience } => {
                    state = self.wait_for_room(state, patience);
                    if state.items.len() >= self.limit {
                        return Some(item);
                    }
                }
            }
        }
        if state.closed {
            return None;
        }
        state.items.push_back(item);
        if state.items.len() == WAKE_AT {
            self.wake_locked(&mut state);
        }
        dropped
    }

    fn wait_for_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T, V>>,
        patience: Duration,
    ) -> MutexGuard<'a, State<T, V>> {
        self.wake_locked(&mut state);
        loop {
            let taken = state.taken;
            let full = |state: &mut State<T, V>| state.items.len() >= self.limit && !state.closed && !state.stalled;
            let waited = self.room.wait_timeout_while(state, patience, full);
            let timed_out;
            (state, timed_out) = waited.map(|(state, waited)| (state, waited.timed_out())).unwrap_or_else(|e| {
                let (state, waited) = e.into_inner();
                (state, waited.timed_out())
            });
            if !timed_out || state.taken == taken {
                state.stalled |= timed_out;
                return state;
            }
        }
    }

    /// Wakes the receiver if there is something for it.
    pub(crate) fn wake(&self) {
        let mut state = self.lock();
        if !state.items.is_empty() {
            self.wake_locked(&mut state);
        }
    }

    fn wake_locked(&self, state: &mut State<T, V>) {
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        if state.sleepers > 0 {
            self.came.notify_all();
        }
    }

    /// The next item; none if none comes before `deadline`, or the queue is closed and empty.
    pub(crate) fn pop(&self, deadline: Option<Instant>) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(item) = self.take(&mut state) {
                return Some(item);
            }
            if state.closed {
                return None;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            state.sleepers += 1;
            state = match left {
                Some(left) => self.came.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.came.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.sleepers -= 1;
        }
    }

    /// The next item as futures want it; `Ready(None)` once closed and empty.
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

    /// Everything that waits, or none once closed and empty; blocks until there is something.
    pub(crate) fn pop_all(&self, into: &mut VecDeque<T>) -> bool {
        let mut state = self.lock();
        while state.items.is_empty() && !state.closed {
            state.sleepers += 1;
            state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleepers -= 1;
        }
        std::mem::swap(&mut state.items, into);
        state.taken += into.len() as u64;
        state.stalled = false;
        self.room.notify_all();
        !into.is_empty()
    }

    fn take(&self, state: &mut State<T, V>) -> Option<T> {
        let item = state.items.pop_front()?;
        state.taken += 1;
        if state.items.len() <= self.limit / 2 {
            state.stalled = false;
        }
        if state.items.len() + 1 == self.limit || state.items.len() == self.limit / 2 {
            self.room.notify_all();
        }
        Some(item)
    }

    /// Nothing is added from now on.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.wake_locked(&mut state);
        self.came.notify_all();
        self.room.notify_all();
    }

    /// A used value to decode into.
    pub(crate) fn spare(&self) -> Option<V> {
        self.lock().spare.pop()
    }

    /// Gives used values back.
    pub(crate) fn give_back(&self, values: impl Iterator<Item = V>) {
        let mut state = self.lock();
        let room = SPARE.saturating_sub(state.spare.len());
        state.spare.extend(values.take(room));
    }

    fn lock(&self) -> MutexGuard<'_, State<T, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
