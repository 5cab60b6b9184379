//! Resends messages that a relay may have lost. A port retains the messages of its assured channels
//! until the relay has confirmed that all nodes behind it have received them. When another relay
//! has taken its place, the port resends the retained messages. `spec/frame.md` defines
//! confirmations.
//!
//! A port retains nothing until a peer reports that it relays. After the link to such a peer has
//! ended, a channel's messages wait until the channel has as many subscribers as before:
//! subscribers find the new relay at different times. Then all of them get the messages in order,
//! and discard the messages that they have received before.

use std::{
    cell::RefCell,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::MutexGuard;
use polywire_core::{
    envelope::{ChannelId, Envelope},
    frame::Answer,
};

use super::{
    assured::{AssuredChannel, State, Wait},
    link::Link,
    pace::Turn,
    payload::Payload,
    shared::{Shared, dropped},
};
use crate::engine::{Batch, EngineError, Event, Overflow, Sent};

/// Publishers wait for another relay this many times as long as for a slow peer.
const PATIENCES: u32 = 5;
/// How long messages are retained while there is no peer at all.
const ALONE: Duration = Duration::from_secs(5);
/// Interval at which waiting threads check again, in addition to being woken.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The retained messages of a channel may take this many times the bytes of a link's queue, because
/// they are also in the relay's queues and in the system's buffers.
const QUEUES: usize = 4;
/// The number of messages that are resent at a time.
const TOGETHER: usize = 256;

/// What happens to a message of an assured channel.
enum Way {
    /// It is sent to peers that do not relay.
    Plain,
    Relay(Arc<Link>),
    /// It is retained until there is a relay.
    Waits,
}

/// Sending.
impl Shared {
    /// Sends a message of an assured channel.
    #[inline(never)]
    pub(super) fn distribute_assured(
        &self,
        channel: &AssuredChannel,
        envelope: &Envelope<'_>,
        payload: &mut Payload<'_>,
    ) -> Result<Sent, EngineError> {
        let mut state = self.with_room(channel, payload.bytes().len());
        let sent = match self.way(&state) {
            Way::Plain => return self.distribute_now(envelope, payload),
            Way::Waits => Sent::default(),
            Way::Relay(relay) => {
                let sent = self.distribute_now(envelope, payload)?;
                if state.sent(&relay, &sent, [(*envelope, payload.bytes())]) {
                    return Ok(sent);
                }
                sent
            }
        };
        state.retained.push(envelope, payload.bytes());
        Ok(state.waiting(sent, 1))
    }

    /// Sends messages of an assured channel.
    #[inline(never)]
    pub(super) fn distribute_all_assured(
        &self,
        channel: &AssuredChannel,
        batch: &Batch<'_>,
        sum: &mut Sent,
    ) -> Result<(), (usize, EngineError)> {
        let mut state = self.with_room(channel, batch.bytes(batch.len()));
        let mut sent = Sent::default();
        match self.way(&state) {
            Way::Plain => return self.distribute_all_now(batch, None, sum),
            Way::Waits => {}
            Way::Relay(relay) => {
                let result = self.distribute_all_now(batch, None, &mut sent);
                let count = result.as_ref().map_or_else(|(count, _)| *count, |()| batch.len());
                if state.sent(&relay, &sent, batch.shortened(count).iter()) || result.is_err() {
                    *sum += sent;
                    return result;
                }
            }
        }
        batch.iter().for_each(|(envelope, payload)| state.retained.push(&envelope, payload));
        *sum += state.waiting(sent, batch.len());
        Ok(())
    }

    /// Returns the peer that relays, if there is one. It is the only peer then.
    fn relay(&self) -> Option<Arc<Link>> {
        self.links().iter().find(|link| link.outbox.peer_relays()).cloned()
    }

    fn way(&self, state: &State) -> Way {
        match self.relay() {
            _ if state.waits.is_some() => Way::Waits,
            Some(relay) => Way::Relay(relay),
            // The link to the relay has ended, and `relay_ended` will set `waits`.
            None if state.relayed => Way::Waits,
            None => Way::Plain,
        }
    }

    /// Waits until `bytes` more bytes can be retained, for as long as the overflow policy allows.
    /// If there is no room then, discards the oldest messages. Returns the lock on the channel's
    /// state.
    fn with_room<'a>(&self, channel: &'a AssuredChannel, bytes: usize) -> MutexGuard<'a, State> {
        let most = self.local.options.queue_bytes.saturating_mul(QUEUES);
        let patience = match self.local.options.overflow {
            Overflow::Block { patience } => patience,
            Overflow::DropNewest | Overflow::DropOldest => Duration::ZERO,
        };
        let mut state = channel.lock();
        if state.waits.as_ref().is_some_and(|wait| wait.since.elapsed() >= ALONE) && self.links().is_empty() {
            let given_up = state.give_up();
            drop(state);
            given_up.into_iter().for_each(|event| self.sink.event(event));
            state = channel.lock();
        }
        while state.retained.confirmed_bytes() > most {
            state.retained.drop_oldest();
        }
        let (mut before, mut began) = (None, Instant::now());
        while state.retained.unconfirmed_bytes() > 0 && state.retained.unconfirmed_bytes().saturating_add(bytes) > most
        {
            let relay = self.relay();
            let progress = relay.as_ref().map(|relay| relay.outbox.progress());
            if let Some(progress) = progress.filter(|_| state.waits.is_none()) {
                state.retained.confirmed(progress);
            }
            state.stalled &= state.retained.unconfirmed_bytes() > most / 2;
            // As long as the relay confirms anything, it has not stalled.
            let now = Some((
                state.retained.unconfirmed_bytes(),
                state.waits.is_some(),
                progress.map(|progress| progress.confirmed),
            ));
            if mem::replace(&mut before, now) != now {
                began = Instant::now();
                continue;
            }
            let patience = if state.waits.is_some() { patience.saturating_mul(PATIENCES) } else { patience };
            let left = patience.saturating_sub(began.elapsed());
            let is_silent = relay.is_some_and(|relay| relay.outbox.peer_liveliness.is_silent());
            if state.stalled || is_silent || left.is_zero() || self.stop.is_set() {
                state.stalled = true;
                state.drop_oldest();
                continue;
            }
            channel.room.wait_for(&mut state, LOOK_EVERY.min(left));
        }
        state
    }
}

/// Changes of the links, and the end of channels.
impl Shared {
    /// Called on the link's reading thread when a relay has confirmed messages. Forgets them.
    pub(super) fn assured_confirmed(&self, link: &Link) {
        if !self.assured.is_active() {
            return;
        }
        let much = self.local.options.queue_bytes / 2;
        for (id, channel) in self.assured.all() {
            // A publisher that has the lock checks for confirmations itself.
            let Some(mut state) = channel.state.try_lock() else { continue };
            if state.waits.is_none() && state.relayed {
                state.retained.confirmed(link.outbox.progress());
            }
            let wants_key = state.retained.confirmed_bytes() > much;
            drop(state);
            if wants_key {
                // After a new key frame, the messages before it need not be retained for later
                // ones.
                link.sink.answered(id, &Answer::Renew(link.outbox.accepting(id)));
            }
        }
        self.assured.news();
    }

    /// Called when a link has ended. `has_read` says whether the peer has read all messages.
    /// Returns how many of them will be sent again.
    pub(super) fn relay_ended(&self, link: &Link, has_read: bool) -> u64 {
        let mut count = 0;
        for (id, channel) in self.assured.all() {
            let (mut state, audience) = (channel.lock(), link.outbox.accepting(id));
            match &mut state.waits {
                Some(wait) => {
                    wait.audience = wait.audience.max(audience);
                    if mem::take(&mut wait.tried) {
                        count += state.retained.forget_progress();
                    }
                }
                None if link.outbox.peer_relays() => {
                    state.retained.confirmed(link.outbox.progress());
                    count += state.retained.forget_progress();
                    (state.relayed, state.stalled) = (false, false);
                    if audience > 0 || !state.retained.is_empty() {
                        let (since, link) = (Instant::now(), link.info.clone());
                        state.waits = Some(Wait { since, link, audience, has_read, lost: 0, tried: false });
                    }
                }
                None => {}
            }
        }
        count
    }

    /// Called when a link was established. Waiting messages are sent as soon as their channel has
    /// its subscribers.
    pub(super) fn assured_linked(self: &Arc<Self>) {
        if self.assured.is_active() {
            self.assured.resend_state.lock().linked = Some(Instant::now());
            self.start_resending();
        }
    }

    /// Lets an assured channel end as soon as its messages are confirmed. Returns false if the
    /// channel may end now, or is not assured.
    pub(super) fn end_assured(self: &Arc<Self>, id: ChannelId) -> bool {
        let Some(channel) = self.assured.channel(id) else { return false };
        let mut state = channel.lock();
        let all = state.retained.count();
        if self.stop.is_set() || self.is_settled(&mut state, all) {
            let given_up = state.give_up();
            drop(state);
            self.assured.remove(id);
            given_up.into_iter().for_each(|event| self.sink.event(event));
            return false;
        }
        state.ends = Some(Instant::now() + self.local.options.linger);
        drop(state);
        self.start_resending();
        true
    }

    /// Gives up the messages that still wait for another relay when the port closes.
    pub(super) fn give_up_assured(&self) {
        for (_, channel) in self.assured.all() {
            let given_up = channel.lock().give_up();
            given_up.into_iter().for_each(|event| self.sink.event(event));
        }
    }

    /// Returns whether the first `count` messages of the channel are confirmed, or no relay has to
    /// confirm them.
    fn is_settled(&self, state: &mut State, count: u64) -> bool {
        if state.waits.is_none() {
            let Some(relay) = self.relay() else { return !state.relayed };
            state.retained.confirmed(relay.outbox.progress());
        }
        state.retained.is_confirmed(count)
    }

    /// Waits until all messages sent so far are confirmed, at most until `deadline`. Returns true
    /// if they are, or if the calling thread is one of the port's, which may have to read the
    /// confirmations.
    pub(super) fn settle_assured(&self, deadline: Instant) -> bool {
        if !self.assured.is_active() || self.threads.is_own() {
            return true;
        }
        let mut open: Vec<(Arc<AssuredChannel>, Option<u64>)> =
            self.assured.all().into_iter().map(|(_, channel)| (channel, None)).collect();
        loop {
            // The thread that has the lock may be waiting for confirmations, too.
            open.retain_mut(|(channel, count)| match channel.state.try_lock() {
                Some(mut state) => {
                    let count = *count.get_or_insert(state.retained.count());
                    !self.is_settled(&mut state, count)
                }
                None => true,
            });
            if open.is_empty() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stop.is_set() {
                return false;
            }
            self.rest(left);
        }
    }

    fn rest(&self, most: Duration) {
        self.assured.news.wait_for(&mut self.assured.resend_state.lock(), LOOK_EVERY.min(most));
    }

    /// Starts the thread that resends messages and ends channels, unless it runs. It ends when it
    /// has nothing left to do.
    fn start_resending(self: &Arc<Self>) {
        {
            let mut resend_state = self.assured.resend_state.lock();
            resend_state.asked = true;
            if mem::replace(&mut resend_state.runs, true) {
                return;
            }
        }
        let shared = self.clone();
        let run = move || {
            while shared.check_channels() {
                shared.rest(LOOK_EVERY);
            }
        };
        if self.threads.start(self.thread_name("again"), run).is_err() {
            // The next link tries again.
            self.assured.resend_state.lock().runs = false;
        }
    }

    /// Checks all assured channels. Returns false if the thread has nothing left to do.
    fn check_channels(&self) -> bool {
        let linked = {
            let mut resend_state = self.assured.resend_state.lock();
            resend_state.asked = false;
            resend_state.linked
        };
        let mut is_due = false;
        for (id, channel) in self.assured.all() {
            is_due |= self.check_channel(id, &channel, linked);
        }
        let mut resend_state = self.assured.resend_state.lock();
        resend_state.runs = (is_due || resend_state.asked) && !self.stop.is_set();
        resend_state.runs
    }

    /// Sends the waiting messages if the channel's subscribers are there, and ends the channel if
    /// that is due. Returns true if the channel has to be checked again.
    fn check_channel(&self, id: ChannelId, channel: &AssuredChannel, linked: Option<Instant>) -> bool {
        let (mut state, mut events) = (channel.lock(), Vec::new());
        let links = self.links();
        let links: Vec<_> = links.iter().filter(|link| !link.outbox.progress().broken).collect();
        let accepting: u32 = links.iter().map(|link| link.outbox.accepting(id)).sum();
        let is_ready = |wait: &Wait| accepting >= wait.audience.max(1) || wait.is_over(linked);
        if state.waits.as_ref().is_some_and(|wait| !links.is_empty() && is_ready(wait)) {
            self.resend(&mut state, &mut events);
        }
        let all = state.retained.count();
        let is_over = state.ends.is_some_and(|until| self.is_settled(&mut state, all) || Instant::now() >= until);
        if is_over {
            events.extend(state.give_up());
        }
        let is_due = (state.ends.is_some() && !is_over) || (state.waits.is_some() && !links.is_empty());
        drop(state);
        if is_over {
            self.assured.remove(id);
            self.retire_channel(id);
        }
        events.into_iter().for_each(|event| self.sink.event(event));
        is_due
    }

    /// Sends all retained messages to the peers that are linked now. Gives them up if none of these
    /// peers wants them.
    fn resend(&self, state: &mut State, events: &mut Vec<Event>) {
        let (links, mut sent) = (self.links(), Sent::default());
        for messages in state.retained.in_parts(TOGETHER) {
            for link in links.iter() {
                // The events are reported when the lock is free.
                let told = RefCell::new(Vec::new());
                let tell = |notice| told.borrow_mut().push(dropped(link, notice));
                // The sizes were checked before the messages were retained.
                let _ =
                    link.outbox.send_all(&messages[..], messages.len(), Turn::AtOnce(Instant::now()), &mut sent, tell);
                events.append(&mut told.into_inner());
            }
        }
        let is_wanted = sent.peers > 0 || sent.dropped > 0;
        let given_up = match links.iter().find(|link| link.outbox.peer_relays()) {
            Some(relay) => {
                let progress = relay.outbox.progress();
                if progress.broken {
                    state.waits.iter_mut().for_each(|wait| wait.tried = true);
                    return;
                }
                state.retained.sent_all(progress);
                state.relayed = true;
                if is_wanted { 0 } else { state.retained.give_up() }
            }
            // Subscribers that are not there now have lost the messages.
            None => {
                let left = state.retained.clear();
                if is_wanted { 0 } else { left }
            }
        };
        let wait = state.waits.take();
        events.extend(wait.and_then(|wait| wait.told(given_up)));
    }
}
