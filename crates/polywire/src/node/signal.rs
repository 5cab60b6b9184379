//! Wakes the thread that publishes the built-in topics of a node. Before anybody asks for these
//! topics, there is no thread, and a change costs one load.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Starts the thread. `None` if the system has none.
type Start = Box<dyn Fn() -> Option<JoinHandle<()>> + Send + Sync>;

#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    came: Condvar,
    is_running: AtomicBool,
}

#[derive(Default)]
struct State {
    start: Option<Start>,
    thread: Option<JoinHandle<()>>,
    news: News,
}

/// What has come since the thread last looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Publishers, subscribers, links or matches have changed.
    pub(super) changed: bool,
    /// Somebody asked for the built-in topics, or subscribed to them.
    pub(super) asked: bool,
    /// The node ends.
    pub(super) stop: bool,
}

impl Signal {
    /// How the thread is started when somebody asks.
    pub(super) fn on_ask(&self, start: Start) {
        self.lock().start = Some(start);
    }

    /// Somebody asks for the built-in topics, or subscribes to them.
    pub(super) fn ask(&self) {
        {
            let mut state = self.lock();
            state.news.asked = true;
            if state.thread.is_none() && !state.news.stop {
                // Without the thread nobody sees the node; the next one to ask tries again.
                state.thread = state.start.as_ref().and_then(|start| start());
                self.is_running.store(state.thread.is_some(), Ordering::Release);
            }
        }
        self.came.notify_one();
    }

    /// Publishers, subscribers, links or matches have changed.
    pub(crate) fn changed(&self) {
        if self.is_running.load(Ordering::Acquire) {
            self.lock().news.changed = true;
            self.came.notify_one();
        }
    }

    /// Waits for news until `until`, for ever without it. If there is news, waits `more` for what
    /// follows.
    pub(super) fn wait(&self, until: Option<Instant>, more: Duration) -> News {
        let mut state = self.lock();
        let left = until.map_or(Duration::from_secs(3600), |until| until.saturating_duration_since(Instant::now()));
        self.came.wait_while_for(&mut state, |state| state.news == News::default(), left);
        if state.news != News::default() {
            self.came.wait_while_for(&mut state, |state| !state.news.stop, more);
        }
        let stop = state.news.stop;
        std::mem::replace(&mut state.news, News { stop, ..News::default() })
    }

    /// Tells the thread to end.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        (state.news.stop, state.start) = (true, None);
        drop(state);
        self.came.notify_all();
    }

    /// Waits until the thread has ended, unless it is the one that calls.
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
