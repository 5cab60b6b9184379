//! The node's timer thread: wakes links when the next time-out of their session is due.

use std::{
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock;

/// An object that the timer wakes at a given time.
pub(crate) trait Wake: Send + Sync {
    /// Handles the time-out. Called on the timer's thread.
    fn wake(&self);
}

/// The timer of a node, with one thread. The thread starts at the first call of [`Timer::at`], and
/// is joined when the node is dropped.
#[derive(Default)]
pub(crate) struct Timer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<Deadlines>,
    changed: Condvar,
}

#[derive(Default)]
struct Deadlines {
    /// Ordered by time, and for equal times by the order of the calls.
    waits: BTreeMap<(Duration, u64), Weak<dyn Wake>>,
    count: u64,
    stop: bool,
}

impl Timer {
    /// Wakes `who` when [`clock::now`] reaches `time`, unless `who` was dropped before.
    pub(crate) fn at(&self, time: Duration, who: Weak<dyn Wake>) {
        {
            let mut state = self.shared.lock();
            state.count += 1;
            let key = (time, state.count);
            state.waits.insert(key, who);
        }
        self.shared.changed.notify_one();
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = self.shared.clone();
            // If the thread cannot start, no time-out occurs; the writer's answer still ends the
            // wait.
            *thread = thread::Builder::new().name("pw-timer".into()).spawn(move || shared.run()).ok();
        }
    }

    /// The number of times that are set.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.shared.lock().waits.len()
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_one();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.lock();
        while !state.stop {
            let now = clock::now();
            if let Some(wait) = state.waits.first_entry().filter(|first| first.key().0 <= now) {
                let who = wait.remove();
                drop(state);
                if let Some(who) = who.upgrade() {
                    // Callbacks of the application may panic, which has printed why.
                    let _ = panic::catch_unwind(AssertUnwindSafe(|| who.wake()));
                }
                state = self.lock();
                continue;
            }
            let next = state.waits.keys().next().map(|(at, _)| *at);
            let time = next.map_or(Duration::from_secs(3600), |at| at - now);
            self.changed.wait_for(&mut state, time);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Deadlines> {
        self.state.lock()
    }
}
