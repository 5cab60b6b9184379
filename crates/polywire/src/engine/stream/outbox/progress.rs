//! The progress of a link's messages, the counts for its statistics, and whether the peer relays.

use std::sync::atomic::Ordering;

use polywire_core::envelope::ChannelId;

use super::{Outbox, Outgoing};

/// How many messages of a link were sent and confirmed.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Progress {
    /// Messages written or queued.
    pub(in super::super) handed: u64,
    /// Messages that the peer has confirmed.
    pub(in super::super) confirmed: u64,
    /// Further messages are held until the peer answers.
    pub(in super::super) holds: bool,
    /// The link has ended, or is about to.
    pub(in super::super) broken: bool,
}

/// Counts for [`LinkStats`](crate::engine::LinkStats).
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Tally {
    pub(in super::super) sent: u64,
    pub(in super::super) dropped: u64,
    pub(in super::super) queued_bytes: usize,
}

impl Progress {
    /// Returns whether the peer has confirmed the first `messages` messages. Messages that were
    /// dropped to make room no longer count in `handed`.
    #[inline]
    pub(in super::super) fn has_confirmed(&self, messages: u64) -> bool {
        messages.min(self.handed) <= self.confirmed
    }
}

impl Outbox {
    pub(in super::super) fn progress(&self) -> Progress {
        let state = self.lock();
        let Outgoing { handed, confirmed, delivery, broken, .. } = &*state;
        Progress { handed: *handed, confirmed: *confirmed, holds: delivery.is_holding(), broken: *broken }
    }

    pub(in super::super) fn tally(&self) -> Tally {
        let state = self.lock();
        let (sent, dropped) = state.delivery.counts();
        Tally { sent, dropped, queued_bytes: state.waiting_bytes() }
    }

    /// Notes that the peer has received this many messages. Impossible numbers are clamped.
    pub(in super::super) fn confirmed(&self, messages: u64) {
        let mut state = self.lock();
        state.confirmed = messages.clamp(state.confirmed, state.handed.max(state.confirmed));
    }

    /// Returns the number of messages that the peer wants and has not confirmed.
    pub(in super::super) fn unconfirmed(&self) -> u64 {
        let state = self.lock();
        state.handed.saturating_sub(state.confirmed) + state.delivery.held_and_wanted()
    }

    /// Returns the number of subscribers for which the peer has accepted one of the port's
    /// channels.
    pub(in super::super) fn accepting(&self, channel: ChannelId) -> u32 {
        self.lock().delivery.accepting(channel)
    }

    /// Notes that the peer relays.
    pub(in super::super) fn relayed(&self) {
        self.peer_relays.store(true, Ordering::Release);
    }

    pub(in super::super) fn peer_relays(&self) -> bool {
        self.peer_relays.load(Ordering::Acquire)
    }
}
