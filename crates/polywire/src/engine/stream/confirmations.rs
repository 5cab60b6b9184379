//! Counts the messages received on a link, and confirms them to the peer.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{link::Link, shared::Shared};

/// Received messages are confirmed at most this often, and at the latest after a pause this long.
const CONFIRM_EVERY: Duration = Duration::from_millis(10);
/// The longest such pause while the links to which messages were relayed do not confirm them.
const CONFIRM_RARELY: Duration = Duration::from_millis(160);
/// If heartbeats confirm received messages, this many are confirmed without waiting for a
/// heartbeat.
const CONFIRM_AT: u64 = 256;
/// While messages arrive without such a pause, the clock is read once in this many reads of the
/// stream: reading it costs about as much as handing a message to the sink.
const LOOK_EVERY: u32 = 8;

/// The most positions remembered among messages that other links have not confirmed yet. With
/// several positions, some messages can be confirmed while later ones wait.
const MARKS: usize = 32;

/// Messages received on the link, and how many of them are confirmed to the peer.
pub(super) struct Confirmations {
    pub(super) messages: u64,
    confirmed: u64,
    at: Instant,
    /// The read time-out is set, because messages wait to be confirmed.
    waits: bool,
    /// The read time-out while `waits` is set.
    pause: Duration,
    /// Reads of the stream since the clock was read.
    reads: u32,
    relay_progress: RelayProgress,
}

/// How many of the received messages were confirmed by the links to which they were relayed.
#[derive(Default)]
struct RelayProgress {
    arrived: u64,
    /// In the order of the messages; at most [`MARKS`].
    marks: VecDeque<Mark>,
}

/// A position among the received messages: the first `messages` have arrived everywhere once these
/// links have confirmed what they were sent.
struct Mark {
    messages: u64,
    sent: Vec<Sent>,
}

/// How many messages were sent on a link before a [`Mark`].
struct Sent {
    link: Arc<Link>,
    /// `None` as long as the link holds messages.
    messages: Option<u64>,
}

impl Confirmations {
    pub(super) fn new() -> Self {
        Confirmations {
            messages: 0,
            confirmed: 0,
            at: Instant::now(),
            waits: false,
            pause: CONFIRM_EVERY,
            reads: 0,
            relay_progress: RelayProgress::default(),
        }
    }

    /// Confirms the messages received, now or within [`CONFIRM_EVERY`], so that few messages are in
    /// doubt when a link breaks.
    #[inline]
    pub(super) fn confirm(&mut self, shared: &Shared, link: &Link) {
        if self.messages == self.confirmed {
            return;
        }
        if link.outbox.confirms_by_heartbeats() {
            return self.confirm_later(shared, link);
        }
        self.reads += 1;
        if self.waits && self.reads < LOOK_EVERY {
            return;
        }
        self.look(shared, link);
    }

    fn confirm_later(&mut self, shared: &Shared, link: &Link) {
        let arrived = self.relay_progress.arrived(self.messages, shared, link);
        let is_much = arrived - self.confirmed >= CONFIRM_AT;
        match is_much && link.outbox.confirm(arrived) {
            true => self.confirmed = arrived,
            false => link.outbox.confirm_later(arrived),
        }
        if arrived < self.messages && !self.waits {
            // The other peers may confirm while nothing arrives on this link.
            self.wait(link, Some(CONFIRM_RARELY));
        }
    }

    fn look(&mut self, shared: &Shared, link: &Link) {
        self.reads = 0;
        let now = Instant::now();
        if now.saturating_duration_since(self.at) >= CONFIRM_EVERY {
            let arrived = self.relay_progress.arrived(self.messages, shared, link);
            if arrived > self.confirmed && link.outbox.confirm(arrived) {
                (self.confirmed, self.at, self.pause) = (arrived, now, CONFIRM_EVERY);
                return;
            }
        }
        if !self.waits {
            self.wait(link, Some(self.pause));
        }
    }

    /// Called when nothing arrived within the read time-out.
    #[cold]
    pub(super) fn idle(&mut self, shared: &Shared, link: &Link) {
        let before = self.confirmed;
        if self.messages != self.confirmed {
            match link.outbox.confirms_by_heartbeats() {
                true => self.confirm_later(shared, link),
                false => self.look(shared, link),
            }
        }
        let is_left_to_heartbeats =
            link.outbox.confirms_by_heartbeats() && self.relay_progress.arrived == self.messages;
        if self.messages == self.confirmed || is_left_to_heartbeats {
            self.wait(link, None);
        } else if self.confirmed == before && self.pause < CONFIRM_RARELY {
            self.pause *= 2;
            self.wait(link, Some(self.pause));
        }
    }

    fn wait(&mut self, link: &Link, time: Option<Duration>) {
        // If the time-out cannot be set, the last messages before a pause stay unconfirmed.
        self.waits = link.stream.set_read_timeout(time).is_ok() && time.is_some();
    }
}

impl RelayProgress {
    /// Returns how many of the `messages` received on `from` are confirmed by the links to which
    /// they were relayed. Without relaying, all of them count as confirmed.
    fn arrived(&mut self, messages: u64, shared: &Shared, from: &Link) -> u64 {
        if !shared.relays() {
            self.arrived = messages;
            return messages;
        }
        while self.marks.front_mut().is_some_and(Mark::has_arrived) {
            self.arrived = self.marks.pop_front().map_or(self.arrived, |mark| mark.messages);
        }
        if self.marks.back().map_or(self.arrived, |mark| mark.messages) < messages {
            let others = shared.links();
            let others = others.iter().filter(|link| link.info.id != from.info.id);
            let sent = others.map(|link| Sent { link: link.clone(), messages: None });
            let mut mark = Mark { messages, sent: sent.collect() };
            match mark.has_arrived() && self.marks.is_empty() {
                true => self.arrived = messages,
                false => self.mark(mark),
            }
        }
        self.arrived
    }

    fn mark(&mut self, mark: Mark) {
        if self.marks.len() == MARKS {
            // Removes every second mark: each mark also covers the messages before it. The first
            // mark stays, because it is confirmed next.
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.marks.push_back(mark);
    }
}

impl Mark {
    fn has_arrived(&mut self) -> bool {
        self.sent.retain_mut(|sent| !sent.has_arrived());
        self.sent.is_empty()
    }
}

impl Sent {
    fn has_arrived(&mut self) -> bool {
        let progress = self.link.outbox.progress();
        if self.messages.is_none() && !progress.holds {
            self.messages = Some(progress.handed);
        }
        progress.broken || self.messages.is_some_and(|messages| progress.has_confirmed(messages))
    }
}
