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
    /// One entry for each object. Ordered by time, and for equal times by the order of the calls.
    waits: BTreeMap<Key, Weak<dyn Wake>>,
    /// The key of each object's entry, by the object's [`address`].
    keys: BTreeMap<usize, Key>,
    count: u64,
    stop: bool,
}

/// A time, and the number of the call that set it.
type Key = (Duration, u64);

/// The address of an object. No other object has it as long as `who` exists.
fn address(who: &Weak<dyn Wake>) -> usize {
    who.as_ptr().cast::<()>().addr()
}

impl Deadlines {
    /// Sets the time at which `who` is woken, unless an earlier one is set. Returns true if this is
    /// now the first time of all.
    fn set(&mut self, time: Duration, who: Weak<dyn Wake>) -> bool {
        self.count += 1;
        let (address, key) = (address(&who), (time, self.count));
        match self.keys.get(&address) {
            Some(set) if *set < key => return false,
            Some(set) => drop(self.waits.remove(set)),
            None => {}
        }
        self.keys.insert(address, key);
        self.waits.insert(key, who);
        self.waits.first_key_value().is_some_and(|(first, _)| *first == key)
    }

    /// Removes and returns the first object whose time has come.
    fn due(&mut self, now: Duration) -> Option<Weak<dyn Wake>> {
        let who = self.waits.first_entry().filter(|first| first.key().0 <= now)?.remove();
        self.keys.remove(&address(&who));
        Some(who)
    }
}

impl Timer {
    /// Wakes `who` when [`clock::now`] reaches `time`, unless `who` was dropped before. Of several
    /// times, only the earliest counts: once woken, `who` sets the next one itself.
    pub(crate) fn at(&self, time: Duration, who: Weak<dyn Wake>) {
        let is_first = self.shared.lock().set(time, who);
        if is_first {
            self.shared.changed.notify_one();
        }
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
            if let Some(who) = state.due(now) {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Sender};

    use super::*;

    struct Told(&'static str, Sender<&'static str>);

    impl Wake for Told {
        fn wake(&self) {
            let _ = self.1.send(self.0);
        }
    }

    #[test]
    fn an_object_has_one_entry_for_its_earliest_time() {
        const SOON: Duration = Duration::from_secs(60);
        let (timer, (send, woken)) = (Timer::default(), mpsc::channel());
        let [one, other] = ["one", "other"].map(|name| Arc::new(Told(name, send.clone())));
        let set = |told: &Arc<Told>, seconds| {
            let told: Weak<Told> = Arc::downgrade(told);
            timer.at(clock::now() + Duration::from_secs(seconds), told);
        };
        [3600, 7200, 1800].into_iter().for_each(|seconds| set(&one, seconds));
        assert_eq!(timer.entries(), 1);
        set(&other, 3600);
        assert_eq!(timer.entries(), 2);
        [0, 7200].into_iter().for_each(|seconds| set(&one, seconds));
        assert_eq!((woken.recv_timeout(SOON), woken.try_recv().is_err()), (Ok("one"), true));
        set(&other, 0);
        assert_eq!((woken.recv_timeout(SOON), woken.try_recv().is_err()), (Ok("other"), true));
    }
}
