//! Liveliness of publishers with a lease. Beside its messages, such a publisher sends *assertions*
//! on a separate channel, whose offer names the publisher. `spec/qos.md`, section 5, specifies the
//! protocol. A publisher without a lease sends none: it is alive as long as its links.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire_core::{
    envelope::{ChannelId, Envelope},
    qos::Liveliness,
};

use crate::{
    clock,
    engine::EngineError,
    events::NodeEvent,
    node::{Inner, PortEntry},
};

/// The number of assertions that a publisher sends in one lease. Some may be late, or lost.
const PER_LEASE: u32 = 4;

/// Asserts the liveliness of one publisher. Its thread ends soon after
/// [`LivelinessAsserter::close`].
pub(crate) struct LivelinessAsserter {
    node: Weak<Inner>,
    topic: String,
    kind: Liveliness,
    lease: Duration,
    lost: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The channels of assertions, one at each endpoint.
    channels: Vec<(Weak<PortEntry>, ChannelId)>,
    /// The time of the last sign of life.
    asserted: Duration,
    /// Whether the lease has not lapsed.
    alive: bool,
    sequence: u64,
    closed: bool,
}

impl LivelinessAsserter {
    /// Makes the asserter of a publisher that offers this kind of liveliness with this lease.
    pub(crate) fn new(node: &Arc<Inner>, topic: &str, kind: Liveliness, lease: Duration) -> Arc<LivelinessAsserter> {
        let state = State { channels: Vec::new(), asserted: clock::now(), alive: true, sequence: 0, closed: false };
        Arc::new(LivelinessAsserter {
            node: Arc::downgrade(node),
            topic: topic.into(),
            kind,
            lease,
            lost: AtomicU64::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// Starts the thread that watches the lease and, for automatic liveliness, sends assertions.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let asserting = self.clone();
        thread::Builder::new().name("pw-alive".into()).spawn(move || asserting.run()).map(drop)
    }

    /// Sets the channels on which assertions are sent from now on.
    pub(crate) fn set_channels(&self, channels: Vec<(Weak<PortEntry>, ChannelId)>) {
        self.lock().channels = channels;
    }

    /// Counts a published message as a sign of life, unless the liveliness is automatic.
    pub(crate) fn published(&self) {
        if self.kind != Liveliness::Automatic {
            self.show();
        }
    }

    /// Sends an assertion, which is a sign of life.
    pub(crate) fn assert(&self) -> Result<(), EngineError> {
        self.show();
        self.send()
    }

    /// How often the lease lapsed.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Ends the thread, because the publisher closes.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Records a sign of life.
    fn show(&self) {
        let mut state = self.lock();
        state.asserted = clock::now();
        if !state.alive {
            state.alive = true;
            self.changed.notify_all();
        }
    }

    /// Sends an assertion at each endpoint, even after one has failed. Returns the first error.
    fn send(&self) -> Result<(), EngineError> {
        let (sequence, channels) = {
            let mut state = self.lock();
            state.sequence += 1;
            (state.sequence, state.channels.clone())
        };
        let mut result = Ok(());
        for (entry, channel) in channels {
            let Some(entry) = entry.upgrade() else { continue };
            let sent = entry.send(&Envelope::data(channel, sequence, clock::wall_ns()), &[]);
            entry.settle();
            result = result.and(sent.map(drop));
        }
        result
    }

    /// Watches the lease and, for automatic liveliness, sends assertions, until the publisher
    /// closes.
    fn run(&self) {
        let mut state = self.lock();
        while !state.closed {
            let (now, lapses) = (clock::now(), state.asserted.saturating_add(self.lease));
            if state.alive && lapses <= now {
                state.alive = false;
                drop(state);
                self.tell_lost();
                state = self.lock();
                continue;
            }
            let interval = self.lease / PER_LEASE;
            let wait = match self.kind {
                Liveliness::Automatic if !state.alive || state.asserted.saturating_add(interval) <= now => {
                    (state.asserted, state.alive) = (now, true);
                    drop(state);
                    // An error is ignored: a port that has closed needs no assertion.
                    let _ = self.send();
                    state = self.lock();
                    continue;
                }
                Liveliness::Automatic => state.asserted.saturating_add(interval) - now,
                // The next sign of life wakes the thread.
                _ if !state.alive => Duration::from_secs(3600),
                _ => lapses - now,
            };
            self.changed.wait_for(&mut state, wait);
        }
    }

    fn tell_lost(&self) {
        let total = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        if total.is_power_of_two()
            && let Some(node) = self.node.upgrade()
        {
            node.tell(&NodeEvent::LivelinessLost { topic: self.topic.clone(), total });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
