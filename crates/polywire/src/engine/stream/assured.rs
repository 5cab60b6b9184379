//! The channels of a port whose messages a relay must not lose, and where each of them stands.
//! [`again`](super::again) has what a port does about it.

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

use super::{kept::Kept, link::Link};
use crate::engine::{Event, LinkInfo, Sent};

/// How long the subscribers of a new relay are waited for at least, which is much for a machine
/// that is not overloaded, and how much longer at most: their pauses between two calls grow while
/// there is no relay.
const GATHERING: Duration = Duration::from_secs(2);
const LONGER: Duration = Duration::from_secs(2);

/// The assured channels of a port.
#[derive(Default)]
pub(super) struct Assured {
    lines: RwLock<BTreeMap<ChannelId, Arc<Line>>>,
    /// A peer relays, or has done so.
    is_active: AtomicBool,
    pub(super) watch: Mutex<Watch>,
    /// A peer has answered or confirmed.
    pub(super) news: Condvar,
}

#[derive(Default)]
pub(super) struct Watch {
    /// The thread that sends again and ends channels is there.
    pub(super) runs: bool,
    /// It has to look once more.
    pub(super) asked: bool,
    /// Since when the last link is there.
    pub(super) linked: Option<Instant>,
}

/// One channel.
#[derive(Default)]
pub(super) struct Line {
    pub(super) state: Mutex<State>,
    /// Messages may have been confirmed.
    pub(super) room: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) kept: Kept,
    /// What is kept went to a relay.
    pub(super) relayed: bool,
    /// The relay has gone: messages wait for another one.
    pub(super) waits: Option<Wait>,
    /// There was no room for as long as publishers wait. The next ones do not wait, until half the
    /// room is free.
    pub(super) stalled: bool,
    /// The channel has retired, and ends when all is confirmed, or then.
    pub(super) ends: Option<Instant>,
}

pub(super) struct Wait {
    pub(super) since: Instant,
    /// The link to the relay that has gone.
    pub(super) link: LinkInfo,
    /// The subscribers that it had.
    pub(super) audience: u32,
    /// Messages that were given up.
    pub(super) lost: u64,
    /// Some were sent to another relay, whose link broke meanwhile.
    pub(super) tried: bool,
}

impl Assured {
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// A peer says that it relays.
    pub(super) fn relayed(&self) {
        self.is_active.store(true, Ordering::Release);
    }

    pub(super) fn add(&self, channel: ChannelId) {
        self.lines.write().insert(channel, Arc::default());
    }

    pub(super) fn remove(&self, channel: ChannelId) {
        self.lines.write().remove(&channel);
    }

    pub(super) fn line(&self, channel: ChannelId) -> Option<Arc<Line>> {
        self.lines.read().get(&channel).cloned()
    }

    pub(super) fn all(&self) -> Vec<(ChannelId, Arc<Line>)> {
        let lines = self.lines.read();
        lines.iter().map(|(channel, line)| (*channel, line.clone())).collect()
    }

    /// A peer has answered or confirmed.
    pub(super) fn news(&self) {
        if self.is_active() {
            self.news.notify_all();
            let lines = self.lines.read();
            lines.values().for_each(|line| {
                line.room.notify_all();
            });
        }
    }
}

impl Line {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Keeps messages that were sent to a relay. False if the link broke before: then they have to
    /// wait.
    pub(super) fn sent<'a>(
        &mut self,
        relay: &Link,
        sent: &Sent,
        messages: impl IntoIterator<Item = (&'a Envelope<'a>, &'a [u8])>,
    ) -> bool {
        let progress = relay.outbox.progress();
        if sent.peers > 0 {
            self.relayed = true;
            messages.into_iter().for_each(|(envelope, payload)| self.kept.push(envelope, payload));
            if !progress.broken && sent.held == 0 {
                self.kept.sent_all(progress);
            }
        }
        self.kept.confirmed(progress);
        self.relayed |= progress.broken;
        sent.peers > 0 || !progress.broken
    }

    /// What is said of messages that wait, beside those that were sent.
    pub(super) fn waiting(&self, sent: Sent, count: usize) -> Sent {
        let is_awaited = self.waits.as_ref().is_none_or(|wait| wait.audience > 0);
        let count = if is_awaited { count } else { 0 };
        Sent { peers: sent.peers + count, held: sent.held + count, ..sent }
    }

    pub(super) fn drop_oldest(&mut self) {
        if self.kept.drop_oldest()
            && let Some(wait) = &mut self.waits
        {
            wait.lost += 1;
        }
    }

    /// No relay has come.
    pub(super) fn give_up(&mut self) -> Option<Event> {
        let left = self.kept.clear();
        let wait = self.waits.take()?;
        Wait { lost: wait.lost + left, ..wait }.told()
    }
}

impl Wait {
    /// Whether subscribers had the time to find the relay to which there is a link since then.
    pub(super) fn is_over(&self, linked: Option<Instant>) -> bool {
        let longer = |linked: Instant| linked.saturating_duration_since(self.since).min(LONGER);
        linked.is_none_or(|linked| linked.elapsed() >= GATHERING + longer(linked))
    }

    pub(super) fn told(self) -> Option<Event> {
        (self.lost > 0).then_some(Event::Unconfirmed { link: self.link, count: self.lost })
    }
}
