//! The assured channels of a port, whose messages a relay must not lose, and the state of each.
//! [`resend`](super::resend) retains and resends their messages.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use polywire_core::envelope::{ChannelId, Envelope};

use super::{link::Link, retained::Retained};
use crate::engine::{Event, LinkInfo, Sent};

/// The least time for which a port waits for the subscribers of a new relay. It is ample for a
/// machine that is not overloaded.
const GATHERING: Duration = Duration::from_secs(2);
/// The longest additional wait. While there is no relay, the subscribers' pauses between attempts
/// to connect grow.
const LONGER: Duration = Duration::from_secs(2);

/// The assured channels of a port.
#[derive(Default)]
pub(super) struct Assured {
    channels: RwLock<BTreeMap<ChannelId, Arc<AssuredChannel>>>,
    /// Whether `channels` has any. Read before each message, which would otherwise lock `channels`.
    has_channels: AtomicBool,
    /// A peer relays, or has done so.
    is_active: AtomicBool,
    pub(super) resend_state: Mutex<ResendState>,
    /// Notified when a peer has answered or confirmed.
    pub(super) news: Condvar,
}

#[derive(Default)]
pub(super) struct ResendState {
    /// The thread that resends messages and ends channels is running.
    pub(super) runs: bool,
    /// That thread has to check all channels once more.
    pub(super) asked: bool,
    /// When the last link was established.
    pub(super) linked: Option<Instant>,
}

/// One assured channel.
#[derive(Default)]
pub(super) struct AssuredChannel {
    pub(super) state: Mutex<State>,
    /// Notified when messages may have been confirmed.
    pub(super) room: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) retained: Retained,
    /// The retained messages were sent to a relay.
    pub(super) relayed: bool,
    /// Set while the relay is gone: messages wait for another one.
    pub(super) waits: Option<Wait>,
    /// A publisher has waited for room in vain. Publishers do not wait until half of the room is
    /// free.
    pub(super) stalled: bool,
    /// Set when the channel has retired. It ends when all its messages are confirmed, or at this
    /// time.
    pub(super) ends: Option<Instant>,
}

pub(super) struct Wait {
    pub(super) since: Instant,
    /// The link to the relay that has gone.
    pub(super) link: LinkInfo,
    /// The number of subscribers behind that relay.
    pub(super) audience: u32,
    /// The relay has said goodbye, so it has passed on the messages that it has not confirmed.
    pub(super) has_read: bool,
    /// The number of messages that were discarded.
    pub(super) lost: u64,
    /// Messages were resent to another relay, whose link broke meanwhile.
    pub(super) tried: bool,
}

impl Assured {
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Notes that a peer relays.
    pub(super) fn relayed(&self) {
        self.is_active.store(true, Ordering::Release);
    }

    pub(super) fn add(&self, channel: ChannelId) {
        let mut channels = self.channels.write();
        channels.insert(channel, Arc::default());
        self.has_channels.store(true, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, channel: ChannelId) {
        let mut channels = self.channels.write();
        channels.remove(&channel);
        self.has_channels.store(!channels.is_empty(), Ordering::Relaxed);
    }

    /// The assured channel with this id. A channel is found from the end of [`Assured::add`] on by
    /// the thread that has called it, and by those that it has told.
    #[inline]
    pub(super) fn channel(&self, id: ChannelId) -> Option<Arc<AssuredChannel>> {
        if !self.has_channels.load(Ordering::Relaxed) {
            return None;
        }
        self.channels.read().get(&id).cloned()
    }

    pub(super) fn all(&self) -> Vec<(ChannelId, Arc<AssuredChannel>)> {
        let channels = self.channels.read();
        channels.iter().map(|(id, channel)| (*id, channel.clone())).collect()
    }

    /// Wakes the threads that wait for an answer or a confirmation of a peer.
    pub(super) fn news(&self) {
        if self.is_active() {
            self.news.notify_all();
            let channels = self.channels.read();
            channels.values().for_each(|channel| {
                channel.room.notify_all();
            });
        }
    }
}

impl AssuredChannel {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Retains messages that were sent to a relay. Returns false if the link broke before they were
    /// sent: then they have to wait for another relay.
    pub(super) fn sent<'a>(
        &mut self,
        relay: &Link,
        sent: &Sent,
        messages: impl IntoIterator<Item = (Envelope<'a>, &'a [u8])>,
    ) -> bool {
        let progress = relay.outbox.progress();
        if sent.peers > 0 {
            self.relayed = true;
            messages.into_iter().for_each(|(envelope, payload)| self.retained.push(&envelope, payload));
            if !progress.broken && sent.held == 0 {
                self.retained.sent_all(progress);
            }
        }
        self.retained.confirmed(progress);
        self.relayed |= progress.broken;
        sent.peers > 0 || !progress.broken
    }

    /// Returns `sent` with `count` waiting messages added as held, unless nobody had subscribed.
    pub(super) fn waiting(&self, sent: Sent, count: usize) -> Sent {
        let is_awaited = self.waits.as_ref().is_none_or(|wait| wait.audience > 0);
        let count = if is_awaited { count } else { 0 };
        Sent { peers: sent.peers + count, held: sent.held + count, ..sent }
    }

    pub(super) fn drop_oldest(&mut self) {
        if self.retained.drop_oldest()
            && let Some(wait) = &mut self.waits
        {
            wait.lost += 1;
        }
    }

    /// Discards the retained messages, because they will not be sent again. Returns the event that
    /// reports the loss, if one is due.
    pub(super) fn give_up(&mut self) -> Option<Event> {
        let left = self.retained.clear();
        self.waits.take()?.told(left)
    }
}

impl Wait {
    /// Returns whether subscribers have had the time to find the present relay, whose link began at
    /// `linked`.
    pub(super) fn is_over(&self, linked: Option<Instant>) -> bool {
        let longer = |linked: Instant| linked.saturating_duration_since(self.since).min(LONGER);
        linked.is_none_or(|linked| linked.elapsed() >= GATHERING + longer(linked))
    }

    /// Returns the event that reports the discarded messages and those that were given up, unless
    /// nobody had subscribed.
    pub(super) fn told(self, given_up: u64) -> Option<Event> {
        let count = self.lost + if self.has_read { 0 } else { given_up };
        (count > 0 && self.audience > 0).then_some(Event::Unconfirmed { link: self.link, count })
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::frame::Hello;

    use super::*;
    use crate::engine::{LinkId, Principal};

    fn waiting(audience: u32) -> (State, LinkInfo) {
        let (id, peer, principal) = (LinkId::next(), Hello::default(), Principal::Anonymous);
        let link = LinkInfo { id, peer, address: String::new(), principal };
        let (since, has_read) = (Instant::now(), audience == 1);
        let wait = Wait { since, link: link.clone(), audience, has_read, lost: 0, tried: false };
        let mut state = State { waits: Some(wait), ..State::default() };
        (1..=3).for_each(|sequence| state.retained.push(&Envelope::data(ChannelId(1), sequence, 0), b"payload"));
        (state, link)
    }

    #[test]
    fn what_is_given_up_is_reported_if_somebody_had_subscribed() {
        let (mut state, link) = waiting(2);
        state.drop_oldest();
        assert_eq!(state.give_up(), Some(Event::Unconfirmed { link, count: 3 }));
        assert_eq!((state.give_up(), state.retained.is_empty()), (None, true));
        let (mut state, _) = waiting(0);
        state.drop_oldest();
        assert_eq!(state.give_up(), None);
        let (mut state, link) = waiting(1);
        state.drop_oldest();
        assert_eq!(state.give_up(), Some(Event::Unconfirmed { link, count: 1 }), "the relay has read the others");
    }
}
