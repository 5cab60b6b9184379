//! One link as the node sees it: the driver of the link's [`Session`], and the subscribers that
//! each channel of the peer goes to.
//!
//! The engine calls it as a [`LinkSink`]; the port calls it when subscribers, documents or channels
//! of this node change; the timer wakes it. Each call passes the event to the session and then
//! [drives](Incoming::drive) it. Messages do not touch the session: they take one lock, that of the
//! channels' subscribers.

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
    channels::{Channel, Channels, Reading, Receiving, Refused, Slots, is_among, is_history},
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
    engine::{Action, Held, LinkInfo, LinkSink, Properties},
    events::NodeEvent,
    spans::span,
    stats::{ReceiverCounts, TopicStats},
};

/// Longest wait for a thread that decides for others. It may be in a callback of the application.
const LONGEST_DECISION: Duration = Duration::from_secs(1);

/// The calls that a link makes to its port.
pub(super) trait Host: Send + Sync {
    /// The node. `None` while it closes; its documents outlive it.
    fn node(&self) -> Option<Arc<Inner>>;
    fn documents(&self) -> &Documents;
    /// The subscribers of a topic on this port.
    fn routes(&self, topic: &str) -> Vec<Arc<dyn Route>>;
    /// What the engine guarantees.
    fn properties(&self) -> Properties;
    /// False while the engine still opens the port. Outputs wait until it is open.
    fn is_open(&self) -> bool;
    /// The port closes.
    fn is_closing(&self) -> bool;
    /// Whether the open port passes on between its peers what they announce.
    fn relays(&self) -> bool;
    /// Sends an output of the link's session.
    fn send(&self, link: &LinkInfo, output: Output);
    /// Has the engine look for the type of a channel of ROS 2. False if it does not.
    fn learn(&self, link: &LinkInfo, channel: ChannelId) -> bool;
    /// The peer's answer to a channel of this node. False if the channel has retired.
    fn matched(&self, link: &LinkInfo, matched: Matched) -> bool;
    /// A document has come: all links may have channels that wait for it.
    fn document_arrived(&self, document: Id128);
    fn link_down(&self, link: &LinkInfo);
    /// The peer asks for the built-in topics.
    fn asked(&self);
    /// Subscribers here read other channels than before.
    fn matches_changed(&self);
}

/// The topics that a subscriber wants.
#[derive(Clone, Copy)]
pub(super) enum Topics<'a> {
    One(&'a str),
    /// All that it `wants`, which takes a look at each channel.
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
    /// Locked before `channels` where both are.
    driven: Mutex<Driven>,
    /// Wakes threads that left their events to another one.
    settled: Condvar,
    channels: Mutex<Channels>,
}

/// The session, and what its driver is doing.
struct Driven {
    session: Session,
    /// The thread that sends outputs. Others leave theirs to it, so that outputs keep their order.
    sending: Option<ThreadId>,
    /// The thread that handles events. Others leave theirs to it: decisions take long, and may lead
    /// back here.
    deciding: Option<ThreadId>,
    /// Channels that subscribers here read since the peer was last told so.
    accepted: Vec<ChannelId>,
    /// Channels of a link without a node that nobody has decided on yet, and the messages that came
    /// although.
    undecided: BTreeMap<ChannelId, u64>,
    /// When the timer wakes this link next.
    wakes: Option<Duration>,
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
                wakes: None,
            }),
            settled: Condvar::new(),
            channels: Mutex::default(),
        })
    }

    // Called by the port.

    /// Whether the peer may do something else by the present rules than when the link began.
    pub(super) fn has_other_rights(&self, gate: &Gate) -> bool {
        gate.has_changed(&self.rights)
    }

    /// The port announced a channel of this node to all its peers.
    pub(super) fn announce(&self, channel: ChannelId, start: Start, announcement: &Arc<Announcement>) {
        self.lock().session.announce(channel, start, announcement, clock::now());
    }

    /// The port retired a channel of this node.
    pub(super) fn retire(&self, channel: ChannelId) {
        self.lock().session.retire(channel, clock::now());
    }

    /// No announcement is under way: a channel that is answered and not announced has retired.
    pub(super) fn forget_unannounced(&self) {
        self.lock().session.forget_unannounced();
    }

    /// The sources of the open channels.
    pub(super) fn sources(&self) -> Vec<Source> {
        let driven = self.lock();
        driven.session.channels().map(|(_, announcement)| self.source(announcement)).collect()
    }

    /// Subscribers of these topics came or went. The port has the answers to the peer when this
    /// returns, so that they leave before anything that the application publishes next.
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

    /// The port is open now: outputs may leave.
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

    /// What came on the open channels.
    pub(super) fn topic_stats(&self) -> Vec<TopicStats> {
        let channels = self.channels();
        channels.open.values().map(|channel| channel.received.read(&channel.source.announcement.topic)).collect()
    }

    /// What came over the link.
    pub(super) fn received(&self) -> ReceiverCounts {
        let channels = self.channels();
        let mut sum = channels.received;
        channels.open.values().for_each(|channel| sum.add(channel.received));
        sum
    }

    /// A document came, over this link or another.
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
                let decided = self.handle(event);
                self.send();
                decided.into_iter().for_each(|channel| self.decided(channel));
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
            host.send(&self.link, output);
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

    fn set_timer(&self, mut driven: MutexGuard<'_, Driven>) {
        let Some(next) = driven.session.next_timeout() else { return };
        if driven.wakes.is_some_and(|wakes| wakes <= next) {
            return;
        }
        driven.wakes = Some(next);
        // The port or the node may end with the last handle, which calls back here.
        drop(driven);
        if let Some(node) = self.host.upgrade().and_then(|host| host.node()) {
            node.timer.at(next, self.this.clone());
        }
    }

    /// Gives the channel that was decided on, if the event is about that.
    fn handle(&self, event: Event) -> Option<ChannelId> {
        match event {
            Event::Decide { channel, anew } => return self.decide(channel, anew).then_some(channel),
            Event::Closed { channel } => self.close(channel),
            Event::Matched { channel, answer, key_requested, incompatible } => {
                let matched = Matched { channel, answer, key_requested, incompatible };
                if self.host.upgrade().is_some_and(|host| !host.matched(&self.link, matched)) {
                    self.retire(channel);
                }
            }
        }
        None
    }

    fn close(&self, channel: ChannelId) {
        let gone = self.channels().open.remove(&channel);
        gone.iter().for_each(|channel| self.keep_counts(channel));
        gone.iter().flat_map(|channel| channel.slots.iter()).for_each(|(_, slot)| slot.drained());
    }

    /// The counts of a channel that has closed stay in the sums of the link and of the node.
    fn keep_counts(&self, channel: &Channel) {
        self.channels().received.add(channel.received);
        let node = self.host.upgrade().and_then(|host| host.node());
        if let Some(node) = node.filter(|_| channel.received.messages > 0) {
            node.totals.end(&channel.received.read(&channel.source.announcement.topic));
        }
    }

    /// Asks for the documents of a channel that other peers may ask this node for, so that they are
    /// here when the writer leaves.
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

    /// False if a document is missing: when it has come, the session asks once more.
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
            // Those that do not need its type do not wait for it.
            routes.retain(|route| !lacks(route));
            if routes.is_empty() {
                return true;
            }
        }
        let unfetched = match missing(&node, &source.announcement, &routes) {
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
        // Whoever waits for a history asks again when it is known that a part cannot be read.
        let wants_history = slots.iter().any(|(_, slot)| slot.wants_history())
            || (!fresh.is_empty() && is_history(&source.announcement));
        self.settle(channel, slots, &refusals);
        // Whoever hears of it finds it counted.
        fresh.iter().for_each(|(route, reason)| tell_mismatch(&node, &source, &**route, reason));
        if wants_history {
            self.lock().session.reconsider_topic(&source.announcement.topic, is_history);
        }
        true
    }

    /// It is decided who reads a channel, or the engine holds its messages until that can be.
    fn decided(&self, channel: ChannelId) {
        let Some(missed) = self.lock().undecided.remove(&channel) else { return };
        self.settled.notify_all();
        if missed > 0 {
            let readers = self.channels().open.get(&channel).map(|known| known.slots.clone()).unwrap_or_default();
            readers.iter().for_each(|(route, _)| route.missed(missed));
        }
    }

    /// Waits until it is decided who reads new channels, if another thread decides: the messages of
    /// a writer that is no node's do not wait for the answer.
    fn await_decisions(&self) {
        let here = thread::current().id();
        let is_left =
            |driven: &mut Driven| !driven.undecided.is_empty() && driven.deciding.is_some_and(|thread| thread != here);
        self.settled.wait_while_for(&mut self.lock(), is_left, LONGEST_DECISION);
    }

    /// The channel as it is now. `None` if it has closed.
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

    /// Gets ready to unpack the channel's payloads, or says why they cannot be unpacked.
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
            known.gated = slots.iter().any(|(_, slot)| slot.is_gated());
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
            self.tell_life(channel);
        }
        if let Some(host) = self.host.upgrade() {
            host.matches_changed();
        }
        // Slots end without a lock: they report losses.
        drop(before);
    }

    /// Tells the subscribers of a channel whether its writer is alive, until that is what holds.
    #[cold]
    fn tell_life(&self, channel: ChannelId) {
        let mut told = None;
        loop {
            let known = self.channels().open.get(&channel).map(|known| (known.is_alive, known.slots.clone()));
            let Some((is_alive, slots)) = known.filter(|(is_alive, _)| told != Some(*is_alive)) else { return };
            slots.iter().for_each(|(_, slot)| slot.lives(is_alive));
            told = Some(is_alive);
        }
    }

    // Messages.

    #[inline]
    fn pass(&self, envelope: &Envelope<'_>, payload: &[u8], held: Option<Held<'_>>) {
        if !self.rights.take(payload.len(), || self.is_served()) {
            return;
        }
        match self.receive(envelope.channel, payload.len(), |_| true) {
            Some(receiving) => self.deliver(&receiving, envelope, payload, held),
            None => self.unread(envelope.channel),
        }
    }

    /// A message came that nobody reads. If it is not decided yet who reads its channel, those who
    /// will have missed it.
    #[cold]
    fn unread(&self, channel: ChannelId) {
        if self.is_foreign()
            && let Some(missed) = self.lock().undecided.get_mut(&channel)
        {
            *missed += 1;
        }
    }

    /// Counts a message, and says where it goes. `None`, and nothing is counted, if its channel is
    /// not open or not fit.
    #[inline]
    fn receive(&self, id: ChannelId, bytes: usize, is_fit: impl Fn(&Channel) -> bool) -> Option<Receiving> {
        let mut channels = self.channels();
        let Channels { open, touched, .. } = &mut *channels;
        let channel = open.get_mut(&id).filter(|channel| is_fit(channel))?;
        channel.received.count(bytes);
        if !mem::replace(&mut channel.touched, true) {
            touched.push(id);
        }
        let Channel { stream, key_requested, gated, .. } = *channel;
        let (slots, unpacking) = (channel.slots.clone(), channel.unpacking.clone());
        Some(Receiving { slots, unpacking, stream, key_requested, gated })
    }

    #[inline]
    fn deliver(&self, receiving: &Receiving, envelope: &Envelope<'_>, payload: &[u8], held: Option<Held<'_>>) {
        let Receiving { slots, unpacking, stream, key_requested, gated } = receiving;
        if slots.is_empty() {
            return self.unread(envelope.channel);
        }
        let deliver = |unpacked: &[u8], held| {
            slots.iter().for_each(|(_, slot)| slot.deliver(envelope, unpacked, payload.len(), held));
        };
        match unpacking {
            None => deliver(payload, held),
            Some(unpacking) => {
                let (as_is, others): (Vec<_>, Vec<_>) = slots.iter().partition(|(_, slot)| slot.takes_packed());
                as_is.iter().for_each(|(_, slot)| slot.deliver(envelope, payload, payload.len(), held));
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
        if *gated && slots.iter().filter(|(_, slot)| slot.history_changed()).count() > 0 {
            self.reconsider_history(envelope.channel);
        }
    }

    /// Messages of one channel that came together. Most channels go to one subscriber, and nothing
    /// has to be looked at between two messages.
    #[inline]
    fn pass_together(&self, messages: &[(Envelope<'_>, &[u8])]) {
        match self.only_slot(messages) {
            Some(slots) => slots.iter().for_each(|(_, slot)| slot.deliver_together(messages)),
            None => messages.iter().for_each(|(envelope, payload)| self.pass(envelope, payload, None)),
        }
    }

    /// Counts the messages, and gives the only subscriber that they go to. `None`, and nothing is
    /// counted, if [`Incoming::pass`] has to look at each of them.
    fn only_slot(&self, messages: &[(Envelope<'_>, &[u8])]) -> Option<Slots> {
        let (first, _) = messages.first().filter(|_| !self.rights.are_metered())?;
        let mut channels = self.channels();
        let Channels { open, touched, .. } = &mut *channels;
        let channel = open.get_mut(&first.channel)?;
        if channel.slots.len() != 1 || channel.unpacking.is_some() || channel.stream || channel.gated {
            return None;
        }
        messages.iter().for_each(|(_, payload)| channel.received.count(payload.len()));
        if !mem::replace(&mut channel.touched, true) {
            touched.push(first.channel);
        }
        Some(channel.slots.clone())
    }

    /// Subscribers of the channel's topic want a history, or want it no more.
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

    /// Requests a key frame, unless that was done just now; or notes that none is missing any more.
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

    /// Whether the link stands for writers that are no nodes and send before they are answered.
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
        let now = clock::now();
        {
            let mut driven = self.lock();
            driven.wakes.take_if(|wakes| *wakes <= now);
            driven.session.handle_timeout(now);
        }
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
    fn message_held(&self, envelope: &Envelope<'_>, payload: &[u8], held: Held<'_>) {
        self.pass(envelope, payload, Some(held));
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

    fn lives(&self, channel: ChannelId, is_alive: bool) {
        let known = self.channels().open.get_mut(&channel).map(|known| mem::replace(&mut known.is_alive, is_alive));
        if known.is_some_and(|before| before != is_alive) {
            self.tell_life(channel);
        }
    }

    fn retired(&self, channel: ChannelId) {
        {
            let mut driven = self.lock();
            driven.session.handle_retire(channel);
            driven.undecided.remove(&channel);
        }
        // At once, even while another thread handles events.
        self.close(channel);
        self.drive();
    }

    /// Works while the node closes, as long as the port is open: subscribers may need the document
    /// for the last messages.
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
            if let Some(node) = host.node() {
                node.decoders.trim();
            }
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

/// The answer to the peer about a channel that is not taken.
fn refusal(exceeded: session::Exceeded) -> String {
    match exceeded {
        session::Exceeded::Bytes { used, bytes, limit } => Exceeded::Announcements { used, bytes, limit }.to_string(),
        other => other.to_string(),
    }
}
