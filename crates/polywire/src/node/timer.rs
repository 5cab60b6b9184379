//! Time-outs of documents that were asked for.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use polywire_core::envelope::ChannelId;

use super::PortEntry;
use crate::engine::LinkId;

/// One thread a node, started when something is first waited for, joined when the node goes.
#[derive(Default)]
pub(crate) struct Timer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waits: Vec<Wait>,
    stop: bool,
}

struct Wait {
    at: Instant,
    entry: Weak<PortEntry>,
    link: LinkId,
    channel: ChannelId,
}

impl Timer {
    /// Lets the channel's wait expire after this time.
    pub(super) fn at(&self, after: Duration, entry: &Weak<PortEntry>, link: LinkId, channel: ChannelId) {
        let wait = Wait { at: Instant::now() + after, entry: entry.clone(), link, channel };
        self.shared.lock().waits.push(wait);
        self.shared.changed.notify_one();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = self.shared.clone();
            // Without the thread there is no time-out; the writer's answer still ends the wait.
            *thread = thread::Builder::new().name("pw-timer".into()).spawn(move || shared.run()).ok();
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.lock();
        while !state.stop {
            let now = Instant::now();
            if let Some(at) = state.waits.iter().position(|wait| wait.at <= now) {
                let wait = state.waits.swap_remove(at);
                drop(state);
                if let Some(entry) = wait.entry.upgrade() {
                    entry.expire(wait.link, wait.channel);
                }
                state = self.lock();
                continue;
            }
            let next = state.waits.iter().map(|wait| wait.at).min();
            let time = next.map_or(Duration::from_secs(3600), |at| at - now);
            state = self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
