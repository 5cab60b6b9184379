//! Messages that a relay may lose: a port keeps those of its assured channels until the relay has
//! confirmed that everybody behind it has them, and sends the others again when another relay has
//! taken its place. `spec/frame.md` has the confirmations.
//!
//! Nothing is kept as long as no peer says that it relays. After the link to such a peer has ended,
//! the messages of a channel wait until it has as many subscribers as before, which find the new
//! relay at different times. All then get the messages in order, and drop those that they have.

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
    assured::{Line, State, Wait},
    link::Link,
    pace::Turn,
    payload::Payload,
    shared::{Shared, dropped},
};
use crate::engine::{EngineError, Event, Overflow, Sent};

/// Publishers wait for another relay so many times as long as for a slow peer.
const PATIENCES: u32 = 5;
/// How long messages are kept while there is no peer at all.
const ALONE: Duration = Duration::from_secs(5);
/// How often whoever waits looks again, beside being woken.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What is kept of a channel may have so many times the bytes of a link's queue, as it also lies in
/// the relay's queues and in the system's buffers.
const QUEUES: usize = 4;
/// Messages that are sent again at a time.
const TOGETHER: usize = 256;

/// Where a message goes.
enum Way {
    /// To peers that do not relay.
    Plain,
    Relay(Arc<Link>),
    /// Nowhere, for now.
    Waits,
}

/// Sending.
impl Shared {
    /// Sends a message of an assured channel.
    #[inline(never)]
    pub(super) fn distribute_assured(
        &self,
        line: &Line,
        envelope: &Envelope<'_>,
        payload: &mut Payload<'_>,
    ) -> Result<Sent, EngineError> {
        let mut state = self.with_room(line, payload.bytes().len());
        let sent = match self.way(&state) {
            Way::Plain => return self.distribute_now(envelope, payload, None),
            Way::Waits => Sent::default(),
            Way::Relay(relay) => {
                let sent = self.distribute_now(envelope, payload, None)?;
                if state.sent(&relay, &sent, [(envelope, payload.bytes())]) {
                    return Ok(sent);
                }
                sent
            }
        };
        state.kept.push(envelope, payload.bytes());
        Ok(state.waiting(sent, 1))
    }

    /// Sends messages of an assured channel.
    #[inline(never)]
    pub(super) fn distribute_all_assured(
        &self,
        line: &Line,
        messages: &[(Envelope<'_>, &[u8])],
        sum: &mut Sent,
    ) -> Result<(), (usize, EngineError)> {
        let mut state = self.with_room(line, messages.iter().map(|(_, payload)| payload.len()).sum());
        let all = messages.iter().map(|(envelope, payload)| (envelope, *payload));
        let mut sent = Sent::default();
        match self.way(&state) {
            Way::Plain => return self.distribute_all_now(messages, sum),
            Way::Waits => {}
            Way::Relay(relay) => {
                let result = self.distribute_all_now(messages, &mut sent);
                let count = result.as_ref().map_or_else(|(count, _)| *count, |()| messages.len());
                if state.sent(&relay, &sent, all.clone().take(count)) || result.is_err() {
                    *sum += sent;
                    return result;
                }
            }
        }
        all.for_each(|(envelope, payload)| state.kept.push(envelope, payload));
        *sum += state.waiting(sent, messages.len());
        Ok(())
    }

    /// The relay among the peers. It is the only peer then.
    fn relay(&self) -> Option<Arc<Link>> {
        self.links().iter().find(|link| link.outbox.peer_relays()).cloned()
    }

    fn way(&self, state: &State) -> Way {
        match self.relay() {
            _ if state.waits.is_some() => Way::Waits,
            Some(relay) => Way::Relay(relay),
            // The link has ended, and `relay_ended` is about to look.
            None if state.relayed => Way::Waits,
            None => Way::Plain,
        }
    }

    /// Waits until so many bytes can be kept, as the overflow policy says, and makes room by
    /// forgetting the oldest messages otherwise.
    fn with_room<'a>(&self, line: &'a Line, bytes: usize) -> MutexGuard<'a, State> {
        let most = self.local.options.queue_bytes.saturating_mul(QUEUES);
        let patience = match self.local.options.overflow {
            Overflow::Block { patience } => patience,
            Overflow::DropNewest | Overflow::DropOldest => Duration::ZERO,
        };
        let mut state = line.lock();
        if state.waits.as_ref().is_some_and(|wait| wait.since.elapsed() >= ALONE) && self.links().is_empty() {
            let given_up = state.give_up();
            drop(state);
            given_up.into_iter().for_each(|event| self.sink.event(event));
            state = line.lock();
        }
        while state.kept.chain() > most {
            state.kept.drop_oldest();
        }
        let (mut before, mut began) = (None, Instant::now());
        while state.kept.open() > 0 && state.kept.open().saturating_add(bytes) > most {
            let relay = self.relay();
            let progress = relay.as_ref().map(|relay| relay.outbox.progress());
            if let Some(progress) = progress.filter(|_| state.waits.is_none()) {
                state.kept.confirmed(progress);
            }
            state.stalled &= state.kept.open() > most / 2;
            // As long as the relay confirms anything, it has not stalled.
            let now = Some((state.kept.open(), state.waits.is_some(), progress.map(|progress| progress.confirmed)));
            if mem::replace(&mut before, now) != now {
                began = Instant::now();
                continue;
            }
            let patience = if state.waits.is_some() { patience.saturating_mul(PATIENCES) } else { patience };
            let left = patience.saturating_sub(began.elapsed());
            let is_silent = relay.is_some_and(|relay| relay.outbox.pulse.is_silent());
            if state.stalled || is_silent || left.is_zero() || self.stop.is_set() {
                state.stalled = true;
                state.drop_oldest();
                continue;
            }
            line.room.wait_for(&mut state, LOOK_EVERY.min(left));
        }
        state
    }
}

/// What happens to the links.
impl Shared {
    /// A relay has confirmed messages, on its link's thread.
    pub(super) fn assured_confirmed(&self, link: &Link) {
        if !self.assured.is_active() {
            return;
        }
        let much = self.local.options.queue_bytes / 2;
        for (channel, line) in self.assured.all() {
            // A publisher that has the lock looks itself.
            let Some(mut state) = line.state.try_lock() else { continue };
            if state.waits.is_none() && state.relayed {
                state.kept.confirmed(link.outbox.progress());
            }
            let wants_key = state.kept.chain() > much;
            drop(state);
            if wants_key {
                // Then what is before it need not be kept for its sake.
                link.sink.answered(channel, &Answer::Renew(link.outbox.accepting(channel)));
            }
        }
        self.assured.news();
    }

    /// A link has ended. Gives how many of its messages will be sent again.
    pub(super) fn relay_ended(&self, link: &Link) -> u64 {
        let mut count = 0;
        for (channel, line) in self.assured.all() {
            let (mut state, audience) = (line.lock(), link.outbox.accepting(channel));
            match &mut state.waits {
                Some(wait) => {
                    wait.audience = wait.audience.max(audience);
                    if mem::take(&mut wait.tried) {
                        count += state.kept.forget_progress();
                    }
                }
                None if link.outbox.peer_relays() => {
                    state.kept.confirmed(link.outbox.progress());
                    count += state.kept.forget_progress();
                    (state.relayed, state.stalled) = (false, false);
                    if audience > 0 || !state.kept.is_empty() {
                        let (since, link) = (Instant::now(), link.info.clone());
                        state.waits = Some(Wait { since, link, audience, lost: 0, tried: false });
                    }
                }
                None => {}
            }
        }
        count
    }

    /// A link is there. What waits for one is sent as soon as it has its subscribers.
    pub(super) fn assured_linked(self: &Arc<Self>) {
        if self.assured.is_active() {
            self.assured.watch.lock().linked = Some(Instant::now());
            self.tend();
        }
    }

    /// Has an assured channel end as soon as its messages are confirmed. False if it may end now.
    pub(super) fn end_assured(self: &Arc<Self>, channel: ChannelId) -> bool {
        let Some(line) = self.assured.line(channel) else { return false };
        let mut state = line.lock();
        let all = state.kept.count();
        if self.stop.is_set() || self.is_settled(&mut state, all) {
            self.assured.remove(channel);
            return false;
        }
        state.ends = Some(Instant::now() + self.local.options.linger);
        drop(state);
        self.tend();
        true
    }

    /// Whether so many messages of the channel are confirmed, or nobody has to confirm them.
    fn is_settled(&self, state: &mut State, count: u64) -> bool {
        if state.waits.is_none() {
            let Some(relay) = self.relay() else { return !state.relayed };
            state.kept.confirmed(relay.outbox.progress());
        }
        state.kept.is_confirmed(count)
    }

    /// Waits until everything sent so far is confirmed, or `deadline`. True if it is, or if this
    /// thread has to read the confirmations.
    pub(super) fn settle_assured(&self, deadline: Instant) -> bool {
        if !self.assured.is_active() || self.threads.is_own() {
            return true;
        }
        let mut open: Vec<(Arc<Line>, Option<u64>)> =
            self.assured.all().into_iter().map(|(_, line)| (line, None)).collect();
        loop {
            // Whoever has the lock may be waiting as well.
            open.retain_mut(|(line, count)| match line.state.try_lock() {
                Some(mut state) => {
                    let count = *count.get_or_insert(state.kept.count());
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
        self.assured.news.wait_for(&mut self.assured.watch.lock(), LOOK_EVERY.min(most));
    }

    /// Has a thread send again and end channels, as long as there are such.
    fn tend(self: &Arc<Self>) {
        {
            let mut watch = self.assured.watch.lock();
            watch.asked = true;
            if mem::replace(&mut watch.runs, true) {
                return;
            }
        }
        let shared = self.clone();
        let run = move || {
            while shared.tend_all() {
                shared.rest(LOOK_EVERY);
            }
        };
        if self.threads.start(self.thread_name("again"), run).is_err() {
            // The next link tries again.
            self.assured.watch.lock().runs = false;
        }
    }

    /// False if the thread has nothing more to do.
    fn tend_all(&self) -> bool {
        let linked = {
            let mut watch = self.assured.watch.lock();
            watch.asked = false;
            watch.linked
        };
        let mut is_due = false;
        for (channel, line) in self.assured.all() {
            is_due |= self.tend_line(channel, &line, linked);
        }
        let mut watch = self.assured.watch.lock();
        watch.runs = (is_due || watch.asked) && !self.stop.is_set();
        watch.runs
    }

    /// Sends what waits if its subscribers are there, and ends the channel if it is to end. True if
    /// it has to be looked at again.
    fn tend_line(&self, channel: ChannelId, line: &Line, linked: Option<Instant>) -> bool {
        let (mut state, mut events) = (line.lock(), Vec::new());
        let links = self.links();
        let accepting: u32 = links.iter().map(|link| link.outbox.accepting(channel)).sum();
        let is_ready = |wait: &Wait| accepting >= wait.audience.max(1) || wait.is_over(linked);
        if state.waits.as_ref().is_some_and(|wait| !links.is_empty() && is_ready(wait)) {
            self.send_again(&mut state, &mut events);
        }
        let all = state.kept.count();
        let is_over = state.ends.is_some_and(|until| self.is_settled(&mut state, all) || Instant::now() >= until);
        let is_due = (state.ends.is_some() && !is_over) || (state.waits.is_some() && !links.is_empty());
        drop(state);
        if is_over {
            self.assured.remove(channel);
            self.retire_channel(channel);
        }
        events.into_iter().for_each(|event| self.sink.event(event));
        is_due
    }

    /// Sends all that is kept to the peers that are there now.
    fn send_again(&self, state: &mut State, events: &mut Vec<Event>) {
        let (links, mut sent) = (self.links(), Sent::default());
        for messages in state.kept.in_parts(TOGETHER) {
            for link in links.iter() {
                // Told when the lock is free.
                let told = RefCell::new(Vec::new());
                let tell = |notice| told.borrow_mut().push(dropped(link, notice));
                // They were small enough when they were sent before.
                let _ = link.outbox.send_all(&messages, Turn::AtOnce(Instant::now()), &mut sent, tell);
                events.append(&mut told.into_inner());
            }
        }
        match links.iter().find(|link| link.outbox.peer_relays()) {
            Some(relay) => {
                let progress = relay.outbox.progress();
                if progress.broken {
                    state.waits.iter_mut().for_each(|wait| wait.tried = true);
                    return;
                }
                state.kept.sent_all(progress);
                state.relayed = true;
            }
            // Whoever is not there now has lost them.
            None => _ = state.kept.clear(),
        }
        let wait = state.waits.take();
        events.extend(wait.and_then(Wait::told));
    }
}
