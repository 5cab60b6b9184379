//! The node's side of one link: the driver of the link's [`Session`], and the subscribers that read
//! each channel of the peer.
//!
//! The engine calls [`Incoming`] as a [`LinkSink`]. The port calls it when subscribers, documents
//! or channels of this node change, and the timer when a time-out of the session is due. Each call
//! passes the event to the session and then [drives](Incoming::drive) it. The delivery of a message
//! normally takes only the lock of the channels.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire_core::{
    directory::{RefusalData, SubscriberData},
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Start},
    qos::Offer,
    session::{self, Carrier, Decision, Event, Fetch, Output, Session},
};

use super::{
    channels::{Channel, Channels, Reading, Receiving, Refused, Slots, is_among, is_history, undecided},
    documents::Documents,
    inner::{Inner, SessionSettings},
    limits::Exceeded,
    opening::{Opening, lacks_schema, missing},
    route::{Matches, Route, Source, WriterKey},
    timer::Wake,
};
use crate::{
    access::{Gate, Rights},
    builtin::INTEREST,
    clock,
    engine::{Action, LinkInfo, LinkSink, Properties, SharedPayload},
    events::NodeEvent,
    spans::span,
    stats::{ReceiverCounts, TopicStats},
    unwind::restoring,
};

/// The longest wait for the thread that handles events. It may be in a callback of the application.
const LONGEST_DECISION: Duration = Duration::from_secs(1);

/// The calls that a link makes to its port.
pub(super) trait Host: Send + Sync {
    /// The node. `None` while the node closes; its documents outlive it.
    fn node(&self) -> Option<Arc<Inner>>;
    fn documents(&self) -> &Documents;
    /// The subscribers of a topic on this port.
    fn routes(&self, topic: &str) -> Vec<Arc<dyn Route>>;
    /// What the engine guarantees.
    fn properties(&self) -> Properties;
    /// False while the engine still opens the port. Outputs wait until it is open.
    fn is_open(&self) -> bool;
    /// Whether the port is closing.
    fn is_closing(&self) -> bool;
    /// Whether the port is open and relays announcements between its peers.
    fn relays(&self) -> bool;
    /// Sends an output of the link's session.
    fn send(&self, link: &LinkInfo, output: Output);
    /// Asks the engine to look up the type of a ROS 2 channel. Returns false if the engine does
    /// not.
    fn learn(&self, link: &LinkInfo, channel: ChannelId) -> bool;
    /// Handles the peer's answer to a channel of this node. Returns false if the channel has
    /// retired.
    fn matched(&self, link: &LinkInfo, matched: Matched) -> bool;
    /// Informs all links that a document has arrived, since they may have channels that wait for
    /// it.
    fn document_arrived(&self, document: Id128);
    fn link_down(&self, link: &LinkInfo);
    /// Reports that the peer asks for the built-in topics.
    fn asked(&self);
    /// Reports that the channels that this node's subscribers read have changed.
    fn matches_changed(&self);
}

/// The topics that a subscriber wants.
#[derive(Clone, Copy)]
pub(super) enum Topics<'a> {
    One(&'a str),
    /// All topics for which the function returns true. Every channel is checked.
    All(&'a dyn Fn(&str) -> bool),
}

/// The fields of [`Event::Matched`].
pub(super) struct Matched {
    pub(super) channel: ChannelId,
    pub(super) answer: Option<Answer>,
    pub(super) key_requested: bool,
    pub(super) incompatible: Option<String>,
}

pub(super) struct Incoming {
    this: Weak<Incoming>,
    host: Weak<dyn Host>,
    link: Arc<LinkInfo>,
    /// What the peer may do.
    rights: Rights,
    denied: AtomicU64,
    /// Locked before `channels`, where both are locked.
    driven: Mutex<Driven>,
    /// Wakes threads that wait for another thread to handle events or send outputs.
    settled: Condvar,
    channels: Mutex<Channels>,
}

/// The session, and the state of its driver.
struct Driven {
    session: Session,
    /// The thread that sends outputs. Other threads leave their outputs to it, which keeps the
    /// order.
    sending: Option<ThreadId>,
    /// The thread that handles events. Other threads leave their events to it: a decision may take
    /// long, and may call this link again.
    deciding: Option<ThreadId>,
    /// Channels with readers whose slots are notified once the answers have been sent.
    accepted: Vec<ChannelId>,
    /// If the peer is not a node: the channels whose readers are not decided yet, with the number
    /// of messages that have already arrived on each.
    undecided: BTreeMap<ChannelId, u64>,
}

impl Incoming {
    pub(super) fn new(host: Weak<dyn Host>, link: &LinkInfo, settings: &SessionSettings, rights: Rights) -> Arc<Self> {
        // Every port delivers everything but messages reliably: the contract of `Port` requires it.
        let mut session = Session::new(settings.limits, Carrier::Reliable, settings.budget.clone());
        session.handle_peer(link.peer, clock::now());
        Arc::new_cyclic(|this| Incoming {
            this: this.clone(),
            host,
            link: Arc::new(link.clone()),
            rights,
            denied: AtomicU64::new(0),
            driven: Mutex::new(Driven {
                session,
                sending: None,
                deciding: None,
                accepted: Vec::new(),
                undecided: BTreeMap::new(),
            }),
            settled: Condvar::new(),
            channels: Mutex::default(),
        })
    }

    // Called by the port.

    /// Whether the present access rules give the peer other rights than when the link opened.
    pub(super) fn has_other_rights(&self, gate: &Gate) -> bool {
        gate.has_changed(&self.rights)
    }

    /// Records that the port has announced a channel of this node to all its peers.
    pub(super) fn announce(&self, channel: ChannelId, start: Start, announcement: &Arc<Announcement>) {
        self.lock().session.announce(channel, start, announcement, clock::now());
    }

    /// Records that the port has retired a channel of this node.
    pub(super) fn retire(&self, channel: ChannelId) {
        self.lock().session.retire(channel, clock::now());
    }

    /// Drops the answers to channels that are not announced: no announcement is in progress, so
    /// these channels have retired.
    pub(super) fn forget_unannounced(&self) {
        self.lock().session.forget_unannounced();
    }

    /// The sources of the open channels.
    pub(super) fn sources(&self) -> Vec<Source> {
        let driven = self.lock();
        driven.session.channels().map(|(_, announcement)| self.source(announcement)).collect()
    }

    /// Decides again who reads the channels of these topics, after subscribers joined or left. When
    /// this returns, the port has the answers to the peer, so that they are sent before anything
    /// that the application publishes next. Waits at most [`LONGEST_DECISION`] for other threads.
    pub(super) fn reconsider(&self, topics: Topics<'_>) {
        match topics {
            Topics::One(topic) => self.lock().session.reconsider_topic(topic, |_| true),
            Topics::All(wants) => self.lock().session.reconsider(|announcement| wants(&announcement.topic)),
        }
        self.drive();
        let here = thread::current().id();
        let elsewhere = |thread: Option<ThreadId>| thread.is_some_and(|thread| thread != here);
        let is_busy = |driven: &mut Driven| elsewhere(driven.deciding) || elsewhere(driven.sending);
        self.settled.wait_while_for(&mut self.lock(), is_busy, LONGEST_DECISION);
    }

    /// Sends the outputs that have waited for the port to open.
    pub(super) fn port_opened(&self) {
        self.drive();
        self.sources().iter().for_each(|source| self.fetch_for_others(&source.announcement));
    }

    /// Adds the writers that the subscriber reads, and those that it cannot read.
    pub(super) fn add_matches(&self, route: &Arc<dyn Route>, matches: &mut Matches) {
        let channels = self.channels();
        for (id, channel) in channels.open.iter().filter(|(_, channel)| !channel.auxiliary) {
            let writer = channel.source.announcement.writer;
            let (link, channel_id) = if writer.is_zero() { (self.link.id.0, *id) } else { Default::default() };
            let key: WriterKey = (writer, link, channel_id);
            if channel.slots.iter().any(|(other, _)| other.is_of(route)) {
                matches.reads.insert(key);
            }
            if channel.refused.iter().any(|(other, _)| other.is_of(route)) {
                matches.refuses.insert(key);
            }
        }
    }

    /// Adds the channels that a subscriber reads, and those that it cannot read.
    pub(super) fn describe_matches(&self, route: &Arc<dyn Route>, data: &mut SubscriberData) {
        let channels = self.channels();
        for channel in channels.open.values().filter(|channel| !channel.auxiliary) {
            let writer = channel.source.announcement.writer;
            if channel.slots.iter().any(|(other, _)| other.is_of(route)) {
                data.reads.push(writer);
            } else if let Some((_, reason)) = channel.refused.iter().find(|(other, _)| other.is_of(route)) {
                data.refuses.push(RefusalData { writer, reason: reason.clone() });
            }
        }
    }

    /// The counts of messages received on each open channel.
    pub(super) fn topic_stats(&self) -> Vec<TopicStats> {
        let channels = self.channels();
        channels.open.values().map(|channel| channel.received.read(&channel.source.announcement.topic)).collect()
    }

    /// The count of all messages received over the link.
    pub(super) fn received(&self) -> ReceiverCounts {
        let channels = self.channels();
        let mut sum = channels.received;
        channels.open.values().for_each(|channel| sum.add(channel.received));
        sum
    }

    /// Informs the session that a document has arrived, over this link or another one.
    pub(super) fn document_arrived(&self, document: Id128) {
        self.lock().session.document_arrived(document);
        self.drive();
    }

    // Driving the session.

    /// Sends the session's outputs, handles its events, and sets the timer.
    fn drive(&self) {
        self.send();
        let mut driven = self.lock();
        if driven.deciding.is_none() {
            driven.deciding = Some(thread::current().id());
            while let Some(event) = driven.session.poll_event() {
                drop(driven);
                restoring(|| self.release(|driven| &mut driven.deciding), || self.handle(event));
                driven = self.lock();
            }
            driven.deciding = None;
            self.settled.notify_all();
        }
        self.set_timer(driven);
    }

    fn send(&self) {
        let Some(host) = self.host.upgrade().filter(|host| host.is_open()) else { return };
        let mut driven = self.lock();
        if driven.sending.is_some() {
            return;
        }
        driven.sending = Some(thread::current().id());
        while let Some(output) = driven.session.poll_output() {
            drop(driven);
            restoring(|| self.release(|driven| &mut driven.sending), || host.send(&self.link, output));
            driven = self.lock();
        }
        driven.sending = None;
        let accepted = mem::take(&mut driven.accepted);
        self.settled.notify_all();
        drop(driven);
        let matches = host.properties().matches;
        let is_matched = |known: &&Channel| known.is_matched || !matches;
        for channel in accepted {
            let slots = self.channels().open.get(&channel).filter(is_matched).map(|known| known.slots.clone());
            slots.unwrap_or_default().iter().for_each(|(_, slot)| slot.accepted());
        }
    }

    /// Lets other threads go on after a panic of this one.
    fn release(&self, busy: fn(&mut Driven) -> &mut Option<ThreadId>) {
        *busy(&mut self.lock()) = None;
        self.settled.notify_all();
    }

    fn set_timer(&self, driven: MutexGuard<'_, Driven>) {
        let Some(next) = driven.session.next_timeout() else { return };
        // Unlocks first: dropping the last handle of the port or the node below ends it, and that
        // calls this link.
        drop(driven);
        if let Some(node) = self.host.upgrade().and_then(|host| host.node()) {
            node.timer.at(next, self.this.clone());
        }
    }

    /// Handles an event, and sends the session's outputs.
    fn handle(&self, event: Event) {
        let mut decided = None;
        match event {
            Event::Decide { channel, anew } => decided = self.decide(channel, anew).then_some(channel),
            Event::Closed { channel } => self.close(channel),
            Event::Matched { channel, answer, key_requested, incompatible } => {
                let matched = Matched { channel, answer, key_requested, incompatible };
                if self.host.upgrade().is_some_and(|host| !host.matched(&self.link, matched)) {
                    self.retire(channel);
                }
            }
        }
        self.send();
        decided.into_iter().for_each(|channel| self.decided(channel));
    }

    fn close(&self, channel: ChannelId) {
        let gone = self.channels().open.remove(&channel);
        gone.iter().for_each(|channel| self.keep_counts(channel));
        gone.iter().flat_map(|channel| channel.slots.iter()).for_each(|(_, slot)| slot.drained());
        // A replay on this channel does not become complete: who waits for it requests another one.
        let history = gone.map(|channel| channel.source.announcement).filter(|announced| is_history(announced));
        history.iter().for_each(|announced| self.lock().session.reconsider_topic(&announced.topic, is_history));
    }

    /// Adds the counts of a closed channel to the sums of the link and of the node.
    fn keep_counts(&self, channel: &Channel) {
        self.channels().received.add(channel.received);
        let node = self.host.upgrade().and_then(|host| host.node());
        if let Some(node) = node.filter(|_| channel.received.messages > 0) {
            node.totals.end(&channel.received.read(&channel.source.announcement.topic));
        }
    }

    /// If the port relays, requests the documents of a channel, so that this node can supply them
    /// to other peers after the writer has left.
    fn fetch_for_others(&self, announcement: &Announcement) {
        let Some(host) = self.host.upgrade().filter(|host| host.relays()) else { return };
        for document in session::documents(announcement).into_iter().flatten() {
            if !host.documents().has(document) {
                self.lock().session.prefetch(document, clock::now());
            }
        }
        self.drive();
    }

    // Deciding on a channel.

    /// Decides who reads a channel. Returns false if a document is missing; once it has arrived,
    /// the session asks again.
    fn decide(&self, channel: ChannelId, anew: bool) -> bool {
        let Some(host) = self.host.upgrade() else { return true };
        let Some(node) = host.node() else { return true };
        let Some((source, before, refused)) = self.open_channel(channel, anew) else { return true };
        let _span = span!(
            DEBUG,
            "negotiate",
            topic = %source.announcement.topic,
            wire = %source.announcement.codec,
            writer = %source.announcement.writer,
            address = %self.link.address,
        )
        .entered();
        let mut routes = host.routes(&source.announcement.topic);
        let offer = Offer::parse(&source.announcement.offer);
        if let Ok(offer) = &offer {
            routes.retain(|route| route.concerns(&source.announcement, offer));
            if !offer.moved_to.is_empty() {
                routes.drain(..).for_each(|route| route.follow(&source, &offer.moved_to));
            }
        }
        let lacks = |route: &Arc<dyn Route>| lacks_schema(&**route, &source, &offer);
        if routes.iter().any(lacks) && host.learn(&self.link, channel) {
            // Subscribers that do not need the channel's type do not wait for it.
            routes.retain(|route| !lacks(route));
            if routes.is_empty() {
                return true;
            }
        }
        let unfetched = match missing(&node, &source.announcement, &undecided(&routes, &before, &refused)) {
            None => None,
            Some(document) => match self.lock().session.fetch(channel, document, clock::now()) {
                Fetch::Pending => return false,
                Fetch::Failed(reason) => Some(reason),
            },
        };
        let needs_schema = routes.iter().any(|route| route.needs_schema());
        let schema = needs_schema.then(|| node.documents.schema(source.announcement.schema)).flatten();
        let (schema, unfetched) = (schema.as_ref(), unfetched.as_ref());
        let medium = host.properties();
        let opening = Opening { node: &node, source: &source, medium, offer: &offer, schema, unfetched };
        let unpacking = match routes.is_empty() {
            true => Ok(()),
            false => self.unpacking(channel, &opening),
        };
        let (mut slots, mut refusals, mut fresh) = (Vec::new(), Vec::new(), Vec::new());
        for route in routes {
            if let Some((_, slot)) = before.iter().find(|(other, _)| Arc::ptr_eq(other, &route)) {
                slots.push((route, slot.clone()));
                continue;
            }
            match is_among(&refused, &route) {
                Some(reason) => refusals.push((route, reason.clone())),
                None => match unpacking.clone().and_then(|()| opening.slot(&*route)) {
                    Ok(slot) => slots.push((route, slot)),
                    Err(reason) => {
                        fresh.push((route.clone(), reason.clone()));
                        refusals.push((route, reason));
                    }
                },
            }
        }
        // History channels are decided again if a subscriber waits for a history, or if a part of a
        // history has just turned out to be unreadable.
        let wants_history = slots.iter().any(|(_, slot)| slot.wants_history())
            || (!fresh.is_empty() && is_history(&source.announcement));
        self.settle(channel, slots, &refusals);
        // Reported after `settle`, so that listeners see the refusals in the status already.
        fresh.iter().for_each(|(route, reason)| tell_mismatch(&node, &source, &**route, reason));
        if wants_history {
            self.lock().session.reconsider_topic(&source.announcement.topic, is_history);
        }
        true
    }

    /// Handles the end of a decision: the channel's readers are known, or the engine holds its
    /// messages until they are. Reports the messages that the readers missed before.
    fn decided(&self, channel: ChannelId) {
        let Some(missed) = self.lock().undecided.remove(&channel) else { return };
        self.settled.notify_all();
        if missed > 0 {
            let readers = self.channels().open.get(&channel).map(|known| known.slots.clone()).unwrap_or_default();
            readers.iter().for_each(|(route, _)| route.missed(missed));
        }
    }

    /// If another thread decides who reads new channels, waits for it, for at most
    /// [`LONGEST_DECISION`]: a writer that is not a node sends its messages without waiting for the
    /// answer.
    fn await_decisions(&self) {
        let here = thread::current().id();
        let is_left =
            |driven: &mut Driven| !driven.undecided.is_empty() && driven.deciding.is_some_and(|thread| thread != here);
        self.settled.wait_while_for(&mut self.lock(), is_left, LONGEST_DECISION);
    }

    /// Returns the state of a channel, and adds it if it is new. `None` if the channel has closed.
    fn open_channel(&self, channel: ChannelId, anew: bool) -> Option<(Source, Slots, Refused)> {
        let driven = self.lock();
        let announcement = driven.session.announcement(channel)?;
        let mut channels = self.channels();
        let known = channels.open.entry(channel).or_insert_with(|| Channel::new(self.source(announcement)));
        if anew {
            known.refused.clear();
        }
        Some((known.source.clone(), known.slots.clone(), known.refused.clone()))
    }

    /// Prepares the decompression of the channel's payloads. Fails with the reason if that is
    /// impossible.
    fn unpacking(&self, channel: ChannelId, opening: &Opening<'_>) -> Result<(), String> {
        let compressor = &opening.source.announcement.compressor;
        let ready = self.channels().open.get(&channel).is_none_or(|known| known.unpacking.is_some());
        if ready || compressor.is_empty() {
            return Ok(());
        }
        let made = opening.node.unpacking(compressor).map_err(|e| opening.unfetched.cloned().unwrap_or(e))?;
        if let Some(known) = self.channels().open.get_mut(&channel) {
            known.unpacking = made;
        }
        Ok(())
    }

    fn settle(&self, channel: ChannelId, slots: Vec<Reading>, refusals: &[(Arc<dyn Route>, String)]) {
        let needs_key_frame = slots.iter().any(|(_, slot)| slot.needs_key_frame());
        let is_alive;
        let before = {
            let (mut driven, mut channels) = (self.lock(), self.channels());
            let Some(known) = channels.open.get_mut(&channel) else { return };
            let decision = Decision {
                readers: u32::try_from(slots.len()).unwrap_or(u32::MAX),
                incompatible: refusals.first().map(|(_, reason)| reason.as_str()),
                needs_key_frame: needs_key_frame && known.is_request_due(&slots),
            };
            if !driven.session.settle(channel, decision, clock::now()) {
                return;
            }
            if !needs_key_frame {
                driven.session.key_arrived(channel);
            }
            known.stream = slots.iter().any(|(_, slot)| slot.is_stream());
            known.auxiliary = slots.iter().any(|(_, slot)| slot.is_auxiliary());
            known.has_barrier = slots.iter().any(|(_, slot)| slot.has_barrier());
            known.inline = slots.iter().all(|(_, slot)| slot.is_inline());
            known.key_requested = needs_key_frame;
            known.refused = refusals.to_vec();
            known.is_matched &= !slots.is_empty();
            if !slots.is_empty() {
                driven.accepted.push(channel);
            }
            is_alive = known.is_alive;
            mem::replace(&mut known.slots, Arc::new(slots))
        };
        if !is_alive {
            self.report_liveliness(channel);
        }
        if let Some(host) = self.host.upgrade() {
            host.matches_changed();
        }
        // Former slots are dropped without a lock, since they report losses.
        drop(before);
    }

    /// Reports to the subscribers of a channel whether its writer is alive. Repeats the report if
    /// that changes meanwhile.
    #[cold]
    fn report_liveliness(&self, channel: ChannelId) {
        let mut reported = None;
        loop {
            let known = self.channels().open.get(&channel).map(|known| (known.is_alive, known.slots.clone()));
            let Some((is_alive, slots)) = known.filter(|(is_alive, _)| reported != Some(*is_alive)) else { return };
            slots.iter().for_each(|(_, slot)| slot.liveliness_changed(is_alive));
            reported = Some(is_alive);
        }
    }

    // Messages.

    #[inline]
    fn pass(&self, envelope: &Envelope<'_>, payload: &[u8], shared: Option<SharedPayload<'_>>) {
        if !self.rights.take(payload.len(), || self.is_served()) {
            return;
        }
        match self.receive(envelope.channel, payload.len(), |_| true) {
            Some(receiving) => self.deliver(&receiving, envelope, payload, shared),
            None => self.unread(envelope.channel),
        }
    }

    /// Counts a message without readers as missed, if its channel's readers are not decided yet.
    #[cold]
    fn unread(&self, channel: ChannelId) {
        if self.is_foreign()
            && let Some(missed) = self.lock().undecided.get_mut(&channel)
        {
            *missed += 1;
        }
    }

    /// Counts a message, and returns what its delivery needs. Returns `None` and counts nothing if
    /// its channel is not open or `is_fit` returns false.
    #[inline]
    fn receive(&self, id: ChannelId, bytes: usize, is_fit: impl Fn(&Channel) -> bool) -> Option<Receiving> {
        let mut channels = self.channels();
        let Channels { open, touched, .. } = &mut *channels;
        let channel = open.get_mut(&id).filter(|channel| is_fit(channel))?;
        channel.received.count(bytes);
        if !mem::replace(&mut channel.touched, true) {
            touched.push(id);
        }
        let Channel { stream, key_requested, has_barrier, .. } = *channel;
        let (slots, unpacking) = (channel.slots.clone(), channel.unpacking.clone());
        Some(Receiving { slots, unpacking, stream, key_requested, has_barrier })
    }

    #[inline]
    fn deliver(&self, to: &Receiving, envelope: &Envelope<'_>, payload: &[u8], shared: Option<SharedPayload<'_>>) {
        let Receiving { slots, unpacking, stream, key_requested, has_barrier } = to;
        if slots.is_empty() {
            return self.unread(envelope.channel);
        }
        let deliver = |unpacked: &[u8], shared| {
            slots.iter().for_each(|(_, slot)| slot.deliver(envelope, unpacked, payload.len(), shared));
        };
        match unpacking {
            None => deliver(payload, shared),
            Some(unpacking) => {
                let (as_is, others): (Vec<_>, Vec<_>) = slots.iter().partition(|(_, slot)| slot.takes_packed());
                as_is.iter().for_each(|(_, slot)| slot.deliver(envelope, payload, payload.len(), shared));
                unpacking.unpack(payload, |unpacked| {
                    others.iter().for_each(|(_, slot)| match &unpacked {
                        Ok(unpacked) => slot.deliver(envelope, unpacked, payload.len(), None),
                        Err(error) => slot.undecodable(envelope.sequence, error),
                    });
                });
            }
        }
        if *stream {
            let wanted = slots.iter().any(|(_, slot)| slot.needs_key_frame());
            if wanted || *key_requested {
                self.request_key(envelope.channel, wanted);
            }
        }
        if *has_barrier && slots.iter().filter(|(_, slot)| slot.history_changed()).count() > 0 {
            self.reconsider_history(envelope.channel);
        }
    }

    /// Delivers messages of one channel that arrived together. Most channels have one subscriber,
    /// and need no checks between two messages.
    #[inline]
    fn pass_together(&self, messages: &[(Envelope<'_>, &[u8])]) {
        match self.only_slot(messages) {
            Some(slots) => slots.iter().for_each(|(_, slot)| slot.deliver_together(messages)),
            None => messages.iter().for_each(|(envelope, payload)| self.pass(envelope, payload, None)),
        }
    }

    /// Counts the messages, and returns the only subscriber's slot. Returns `None` and counts
    /// nothing if [`Incoming::pass`] has to check each message.
    fn only_slot(&self, messages: &[(Envelope<'_>, &[u8])]) -> Option<Slots> {
        let (first, _) = messages.first().filter(|_| !self.rights.are_metered())?;
        let mut channels = self.channels();
        let Channels { open, touched, .. } = &mut *channels;
        let channel = open.get_mut(&first.channel)?;
        if channel.slots.len() != 1 || channel.unpacking.is_some() || channel.stream || channel.has_barrier {
            return None;
        }
        messages.iter().for_each(|(_, payload)| channel.received.count(payload.len()));
        if !mem::replace(&mut channel.touched, true) {
            touched.push(first.channel);
        }
        Some(channel.slots.clone())
    }

    /// Decides again on the topic's history channels: a subscriber has begun or ceased to want one.
    #[cold]
    fn reconsider_history(&self, channel: ChannelId) {
        {
            let mut driven = self.lock();
            let Some(announced) = driven.session.announcement(channel).cloned() else { return };
            driven.session.reconsider_topic(&announced.topic, is_history);
        }
        self.drive();
    }

    /// Whether the port still serves its links.
    fn is_served(&self) -> bool {
        self.host.upgrade().is_some_and(|host| !host.is_closing())
    }

    /// If a key frame is `wanted`, requests it, unless that was done just now. Otherwise records
    /// that none is missing any more.
    #[cold]
    fn request_key(&self, channel: ChannelId, wanted: bool) {
        let due = {
            let mut driven = self.lock();
            if let Some(known) = self.channels().open.get_mut(&channel) {
                known.key_requested = wanted;
            }
            match wanted {
                true => driven.session.request_key(channel, clock::now()),
                false => {
                    driven.session.key_arrived(channel);
                    false
                }
            }
        };
        if due {
            self.send();
        }
    }

    /// Whether the link stands for writers that are not nodes. They send before they are answered.
    fn is_foreign(&self) -> bool {
        self.link.peer.node.is_zero()
    }

    fn source(&self, announcement: &Arc<Announcement>) -> Source {
        Source { announcement: announcement.clone(), link: self.link.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Driven> {
        self.driven.lock()
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock()
    }
}

impl Wake for Incoming {
    fn wake(&self) {
        self.lock().session.handle_timeout(clock::now());
        self.drive();
    }
}

impl LinkSink for Incoming {
    fn announced(&self, channel: ChannelId, start: Start, announcement: &Announcement) {
        if self.host.upgrade().and_then(|host| host.node()).is_none() {
            return;
        }
        if let Err(reason) = self.rights.permit(Action::Publish, &announcement.topic) {
            self.lock().session.refuse(channel, &reason);
            self.denied(Action::Publish, &announcement.topic);
            return self.drive();
        }
        let refused = {
            let mut driven = self.lock();
            let admitted = driven.session.handle_announce(channel, start, announcement, clock::now());
            match admitted {
                Err(exceeded) => driven.session.refuse(channel, &refusal(exceeded)),
                Ok(()) if self.is_foreign() => drop(driven.undecided.insert(channel, 0)),
                Ok(()) => {}
            }
            admitted.is_err()
        };
        self.drive();
        if !refused {
            self.await_decisions();
            self.fetch_for_others(announcement);
        }
        if announcement.topic == INTEREST
            && let Some(host) = self.host.upgrade()
        {
            host.asked();
        }
    }

    fn permits(&self, action: Action, topic: &str) -> Result<(), String> {
        self.rights.permit(action, topic)
    }

    fn denied(&self, action: Action, topic: &str) {
        let total = self.denied.fetch_add(1, Ordering::Relaxed) + 1;
        let Some(node) = self.host.upgrade().and_then(|host| host.node()) else { return };
        node.gate.count_denied();
        if total.is_power_of_two() {
            let (who, peer) = (self.link.principal.clone(), self.link.address.clone());
            node.tell(&NodeEvent::Denied { who, peer, action, topic: topic.into(), total });
        }
    }

    fn admits(&self, bytes: usize) -> bool {
        self.rights.admit(bytes, || self.is_served())
    }

    #[inline]
    fn message(&self, envelope: &Envelope<'_>, payload: &[u8]) {
        self.pass(envelope, payload, None);
    }

    #[inline]
    fn message_held(&self, envelope: &Envelope<'_>, payload: &[u8], shared: SharedPayload<'_>) {
        self.pass(envelope, payload, Some(shared));
    }

    #[inline]
    fn messages(&self, messages: &[(Envelope<'_>, &[u8])]) {
        let rows = messages.chunk_by(|(one, _), (next, _)| one.channel == next.channel);
        rows.for_each(|row| self.pass_together(row));
    }

    fn message_inline(&self, envelope: &Envelope<'_>, payload: &[u8]) -> bool {
        if self.rights.are_metered() {
            return false;
        }
        let receiving = self.receive(envelope.channel, payload.len(), |channel| channel.inline);
        receiving.iter().for_each(|receiving| self.deliver(receiving, envelope, payload, None));
        receiving.is_some()
    }

    fn position(&self, channel: ChannelId, start: Start, lost: u64) {
        let slots = self.channels().open.get(&channel).map(|channel| channel.slots.clone());
        slots.unwrap_or_default().iter().for_each(|(_, slot)| slot.lost(start.sequence, lost));
    }

    fn matched(&self, channel: ChannelId) {
        let slots = self.channels().open.get_mut(&channel).map(|known| {
            known.is_matched = true;
            known.slots.clone()
        });
        slots.unwrap_or_default().iter().for_each(|(_, slot)| slot.accepted());
    }

    fn liveliness_changed(&self, channel: ChannelId, is_alive: bool) {
        let known = self.channels().open.get_mut(&channel).map(|known| mem::replace(&mut known.is_alive, is_alive));
        if known.is_some_and(|before| before != is_alive) {
            self.report_liveliness(channel);
        }
    }

    fn retired(&self, channel: ChannelId) {
        {
            let mut driven = self.lock();
            driven.session.handle_retire(channel);
            driven.undecided.remove(&channel);
        }
        // Closes the channel at once, even while another thread handles events.
        self.close(channel);
        self.drive();
    }

    /// Also works while the node closes, as long as the port is open: subscribers may need the
    /// document for the last messages.
    fn wanted(&self, document: Id128) {
        self.lock().session.handle_want(document);
        self.send();
    }

    fn supplied(&self, document: Id128, bytes: Option<&[u8]>) {
        let Some(host) = self.host.upgrade() else { return };
        let verified = self.lock().session.handle_document(document, bytes, clock::now());
        if let Some(verified) = verified {
            host.documents().receive(verified);
            host.document_arrived(document);
        }
        self.drive();
        self.await_decisions();
    }

    fn undecodable(&self, channel: ChannelId, sequence: u64, reason: &str) {
        let slots = self.channels().open.get(&channel).map(|known| known.slots.clone());
        slots.iter().flat_map(|slots| slots.iter()).for_each(|(_, slot)| slot.undecodable(sequence, &reason));
    }

    fn answered(&self, channel: ChannelId, answer: &Answer) {
        self.lock().session.handle_answer(channel, answer);
        self.drive();
    }

    fn drained(&self) {
        let touched: Vec<Slots> = {
            let mut channels = self.channels();
            if channels.touched.is_empty() {
                return;
            }
            let Channels { open, touched, .. } = &mut *channels;
            let slots = |id: ChannelId| {
                let channel = open.get_mut(&id)?;
                channel.touched = false;
                Some(channel.slots.clone())
            };
            touched.drain(..).filter_map(slots).collect()
        };
        touched.iter().flat_map(|slots| slots.iter()).for_each(|(_, slot)| slot.drained());
    }

    fn down(&self) {
        {
            let mut driven = self.lock();
            driven.session.handle_down();
            driven.undecided.clear();
        }
        let channels = mem::take(&mut self.channels().open);
        channels.values().for_each(|channel| self.keep_counts(channel));
        let slots = || channels.values().flat_map(|channel| channel.slots.iter());
        if self.host.upgrade().is_some_and(|host| !host.is_closing()) {
            slots().for_each(|(_, slot)| slot.broke());
        }
        slots().for_each(|(_, slot)| slot.drained());
        drop(channels);
        self.drive();
        if let Some(host) = self.host.upgrade() {
            host.link_down(&self.link);
            host.node().iter().for_each(|node| node.decoders.trim());
        }
    }
}

fn tell_mismatch(node: &Inner, source: &Source, route: &dyn Route, reason: &str) {
    let Announcement { topic, writer, type_name, .. } = &*source.announcement;
    route.refused(source, reason);
    node.tell(&NodeEvent::Mismatch {
        topic: topic.clone(),
        writer: *writer,
        type_name: type_name.clone(),
        reason: reason.into(),
    });
}

/// Returns the reason that the peer gets for a channel that exceeds a limit.
fn refusal(exceeded: session::Exceeded) -> String {
    match exceeded {
        session::Exceeded::Bytes { used, bytes, limit } => Exceeded::Announcements { used, bytes, limit }.to_string(),
        other => other.to_string(),
    }
}
