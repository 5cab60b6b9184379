//! How a publisher with a lease shows that it is alive, beside publishing: it sends *assertions* on
//! a channel of their own, whose offer names the publisher. `spec/qos.md`, section 5, has the
//! protocol. A publisher without a lease has none of this: it lives as long as its links.

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

/// Assertions of a publisher in one lease. Some of them may be late, or lost.
const PER_LEASE: u32 = 4;

/// Shows that one publisher is alive. Its thread ends soon after [`Pulse::close`].
pub(crate) struct Pulse {
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
    /// The last sign of life.
    asserted: Duration,
    /// Whether the lease has not lapsed.
    alive: bool,
    sequence: u64,
    closed: bool,
}

impl Pulse {
    /// For a publisher that offers this kind with this lease.
    pub(crate) fn new(node: &Arc<Inner>, topic: &str, kind: Liveliness, lease: Duration) -> Arc<Pulse> {
        let state = State { channels: Vec::new(), asserted: clock::now(), alive: true, sequence: 0, closed: false };
        Arc::new(Pulse {
            node: Arc::downgrade(node),
            topic: topic.into(),
            kind,
            lease,
            lost: AtomicU64::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// Begins to watch the lease and, if the node does it, to send assertions.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let beating = self.clone();
        thread::Builder::new().name("pw-alive".into()).spawn(move || beating.run()).map(drop)
    }

    /// Assertions travel on these channels from now on.
    pub(crate) fn set_channels(&self, channels: Vec<(Weak<PortEntry>, ChannelId)>) {
        self.lock().channels = channels;
    }

    /// A message was published, which shows as much as an assertion.
    pub(crate) fn published(&self) {
        if self.kind != Liveliness::Automatic {
            self.show();
        }
    }

    /// Says that the publisher is alive.
    pub(crate) fn assert(&self) -> Result<(), EngineError> {
        self.show();
        self.send()
    }

    /// How often the lease lapsed.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The publisher ends.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Notes a sign of life.
    fn show(&self) {
        let mut state = self.lock();
        state.asserted = clock::now();
        if !state.alive {
            state.alive = true;
            self.changed.notify_all();
        }
    }

    /// Sends an assertion at each endpoint, also after one has failed.
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

    /// Sends assertions, if the node does it, and watches the lease.
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
            let beat = self.lease / PER_LEASE;
            let wait = match self.kind {
                Liveliness::Automatic if !state.alive || state.asserted.saturating_add(beat) <= now => {
                    (state.asserted, state.alive) = (now, true);
                    drop(state);
                    // A port that has closed needs none.
                    let _ = self.send();
                    state = self.lock();
                    continue;
                }
                Liveliness::Automatic => state.asserted.saturating_add(beat) - now,
                // Woken by the next sign of life.
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
