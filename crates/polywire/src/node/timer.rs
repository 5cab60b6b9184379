//! Time-outs of documents that were asked for.

use std::{
    collections::BTreeMap,
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
    /// By when they end, and in the order in which they came: peers can make many.
    waits: BTreeMap<(Instant, u64), Wait>,
    count: u64,
    stop: bool,
}

struct Wait {
    entry: Weak<PortEntry>,
    link: LinkId,
    channel: ChannelId,
}

impl Timer {
    /// Lets the channel's wait expire after this time.
    pub(super) fn at(&self, after: Duration, entry: &Weak<PortEntry>, link: LinkId, channel: ChannelId) {
        {
            let mut state = self.shared.lock();
            state.count += 1;
            let key = (Instant::now() + after, state.count);
            state.waits.insert(key, Wait { entry: entry.clone(), link, channel });
        }
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
            if let Some(wait) = state.waits.first_entry().filter(|first| first.key().0 <= now) {
                let wait = wait.remove();
                drop(state);
                if let Some(entry) = wait.entry.upgrade() {
                    entry.expire(wait.link, wait.channel);
                }
                state = self.lock();
                continue;
            }
            let next = state.waits.keys().next().map(|(at, _)| *at);
            let time = next.map_or(Duration::from_secs(3600), |at| at - now);
            state = self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
