//! Wakes the thread that publishes the built-in topics of a node. The thread starts when a peer or
//! this node first asks for these topics; before that, a change costs one atomic load.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Starts the thread. Returns `None` if the system cannot start one.
type Start = Box<dyn Fn() -> Option<JoinHandle<()>> + Send + Sync>;

#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    arrived: Condvar,
    is_running: AtomicBool,
}

#[derive(Default)]
struct State {
    start: Option<Start>,
    thread: Option<JoinHandle<()>>,
    news: News,
}

/// What has happened since the thread last called [`Signal::wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Publishers, subscribers, links or matches have changed.
    pub(super) changed: bool,
    /// A peer or this node has asked for the built-in topics, or subscribed to them.
    pub(super) asked: bool,
    /// The thread must end, because the node is dropped.
    pub(super) stop: bool,
}

impl Signal {
    /// Sets the function that starts the thread at the first call of [`Signal::ask`].
    pub(super) fn on_ask(&self, start: Start) {
        self.lock().start = Some(start);
    }

    /// Reports that a peer or this node has asked for the built-in topics, or subscribed to them.
    /// Starts the thread if it does not run yet.
    pub(super) fn ask(&self) {
        {
            let mut state = self.lock();
            state.news.asked = true;
            if state.thread.is_none() && !state.news.stop {
                // If the thread cannot start, the topics are not published. The next call tries
                // again.
                state.thread = state.start.as_ref().and_then(|start| start());
                self.is_running.store(state.thread.is_some(), Ordering::Release);
            }
        }
        self.arrived.notify_one();
    }

    /// Reports that publishers, subscribers, links or matches have changed.
    pub(crate) fn changed(&self) {
        if self.is_running.load(Ordering::Acquire) {
            self.lock().news.changed = true;
            self.arrived.notify_one();
        }
    }

    /// Waits for news until `until`, or for an hour if that is `None`. If there is news, waits for
    /// `more` and also returns the news of that time. Returns empty news if there is none.
    pub(super) fn wait(&self, until: Option<Instant>, more: Duration) -> News {
        let mut state = self.lock();
        let left = until.map_or(Duration::from_secs(3600), |until| until.saturating_duration_since(Instant::now()));
        self.arrived.wait_while_for(&mut state, |state| state.news == News::default(), left);
        if state.news != News::default() {
            self.arrived.wait_while_for(&mut state, |state| !state.news.stop, more);
        }
        let stop = state.news.stop;
        std::mem::replace(&mut state.news, News { stop, ..News::default() })
    }

    /// Makes the thread end.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        (state.news.stop, state.start) = (true, None);
        drop(state);
        self.arrived.notify_all();
    }

    /// Waits until the thread has ended, unless the thread itself is the caller.
    pub(super) fn join(&self) {
        let thread = self.lock().thread.take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
