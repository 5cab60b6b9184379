//! A port of the node, with the publishers, subscribers and links that use it. The port calls its
//! links as [`Incoming`]; the links call the port as their [`Host`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Start},
    qos::Qos,
    session::Output,
};

use super::{
    answered::Answered,
    documents::Documents,
    incoming::{Host, Incoming, Matched, Topics},
    inner::{Inner, SessionSettings},
    random_id,
    route::{Matches, Replay, Route, Source, Watcher},
    routes::{Routes, is_pattern},
};
use crate::{
    access::{Gate, Rights},
    builtin::{INTEREST, is_builtin},
    delta::Requests,
    engine::{
        Batch, Engine, EngineError, Event, LinkId, LinkInfo, LinkSink, Loan, Local, Overflow, Port, Principal,
        Properties, Sent, Sink, loopback,
    },
    events::NodeEvent,
    spans::span,
    status::{PublisherStatus, Recent, Refusal, Refusing},
    wire::Endpoint,
};

/// A port, the subscribers on it, and its links.
pub(crate) struct PortEntry {
    node: Weak<Inner>,
    /// The node's documents. Peers may ask for them as long as the port exists.
    documents: Arc<Documents>,
    session: SessionSettings,
    engine: &'static dyn Engine,
    endpoint: String,
    /// Whether the port is closed for publishing.
    closed: AtomicBool,
    /// The engine is reliable and ordered, and full queues block instead of dropping: as long as
    /// peers take messages, none is lost.
    keeps_all: bool,
    port: OnceLock<Arc<dyn Port>>,
    /// The link from this node's publishers to this node's subscribers.
    own: LinkId,
    pub(super) routes: Mutex<Routes>,
    pub(super) links: Mutex<BTreeMap<LinkId, Arc<Incoming>>>,
    pub(super) answers: Mutex<AllAnswers>,
    answered: Arc<Answered>,
    /// Whether this node or a peer has asked for the built-in topics.
    asked: AtomicBool,
    /// Whether this node has asked its peers for the built-in topics.
    asks: AtomicBool,
}

/// The answers of all peers to the channels of this node.
#[derive(Default)]
pub(super) struct AllAnswers {
    pub(super) by_channel: BTreeMap<ChannelId, Answers>,
    /// The newest announced channel.
    last: ChannelId,
    /// The number of announcements in progress. Answers may arrive before [`PortEntry::announce`]
    /// knows the channel's id.
    announcing: usize,
    /// Entries without a topic: their channels have retired or are just being announced.
    unknown: BTreeSet<ChannelId>,
}

impl AllAnswers {
    /// The answers to a channel. `None` if the channel has retired.
    fn of(&mut self, channel: ChannelId) -> Option<&mut Answers> {
        if !self.by_channel.contains_key(&channel) {
            if self.announcing == 0 && channel <= self.last {
                return None;
            }
            self.unknown.insert(channel);
        }
        Some(self.by_channel.entry(channel).or_default())
    }

    /// Records the end of an announcement. After the last one, entries without a topic belong to
    /// retired channels and are removed. Returns true if there were any.
    fn announced(&mut self) -> bool {
        self.announcing -= 1;
        if self.announcing > 0 || self.unknown.is_empty() {
            return false;
        }
        while let Some(channel) = self.unknown.pop_first() {
            self.by_channel.remove(&channel);
        }
        true
    }
}

#[derive(Default)]
pub(super) struct Answers {
    topic: String,
    /// The announcement for sessions with later peers. `None` before [`PortEntry::announce`] knows
    /// the id.
    pub(super) offered: Option<(Start, Arc<Announcement>)>,
    /// Each peer's node and answer.
    pub(super) by_link: BTreeMap<LinkId, (Id128, Answer)>,
    /// The requests for key frames.
    requests: Requests,
    /// The history that the channel carries. On such a channel, a request for a key frame is a
    /// request for the history.
    history: Option<Weak<dyn Replay>>,
    watcher: Option<Weak<dyn Watcher>>,
    pub(super) refusing: Refusing,
    refusals: Recent<Refusal>,
    /// Refusals that arrived before the topic was known: peer and reason.
    early: Vec<(String, String)>,
}

impl PortEntry {
    pub(crate) fn open(
        node: &Arc<Inner>,
        engine: &'static dyn Engine,
        address: &str,
        local: &Local,
    ) -> Result<Arc<PortEntry>, EngineError> {
        if node.gate.has_rules() {
            check_access(engine, &format!("{}/{address}", engine.name()))?;
        }
        let here = "this node".into();
        let own = LinkInfo { id: LinkId::next(), peer: local.hello, address: here, principal: Principal::Process };
        let entry = Arc::new(PortEntry {
            node: Arc::downgrade(node),
            documents: node.documents.clone(),
            session: node.session.clone(),
            closed: AtomicBool::new(false),
            engine,
            endpoint: format!("{}/{address}", engine.name()),
            keeps_all: keeps_all(engine, local),
            port: OnceLock::new(),
            own: own.id,
            routes: Mutex::default(),
            links: Mutex::default(),
            answers: Mutex::default(),
            answered: node.answered.clone(),
            asked: AtomicBool::new(false),
            asks: AtomicBool::new(false),
        });
        let sink = Arc::new(PortSink(Arc::downgrade(&entry)));
        let port = loopback::open(engine, address, local, sink, &own)?;
        let _ = entry.port.set(port);
        let links: Vec<_> = entry.links.lock().values().cloned().collect();
        links.iter().for_each(|link| link.port_opened());
        Ok(entry)
    }

    /// Returns the port. Waits while the engine still opens it: peers may call before that.
    #[inline]
    pub(crate) fn port(&self) -> &Arc<dyn Port> {
        self.port.get().unwrap_or_else(|| self.port.wait())
    }

    /// Whether this is the port of an endpoint, by the address that was opened or the one that is
    /// bound.
    pub(crate) fn is_at(&self, endpoint: &Endpoint) -> bool {
        let name = format!("{}/{}", endpoint.engine, self.engine.complete(&endpoint.address));
        name == self.endpoint || name == self.port().endpoint()
    }

    /// Ends publishing and then the port. Messages in the queues of subscribers can still be
    /// received.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.port().close();
        for route in self.routes.lock().all() {
            route.node_closed();
        }
    }

    /// Fails if access rules cannot apply to this port, because its engine does not distinguish
    /// peers.
    pub(super) fn check_access(&self) -> Result<(), EngineError> {
        check_access(self.engine, &self.endpoint)
    }

    /// Applies changed access rules: ends the links of peers that have other rights now.
    pub(super) fn apply_access(&self, gate: &Gate) {
        // The links are copied, because the check may block. Those that open meanwhile have the new
        // rules.
        let links = self.links.lock().clone();
        let changed = links.iter().filter(|(_, link)| link.has_other_rights(gate)).map(|(id, _)| *id);
        let changed: Vec<LinkId> = changed.collect();
        if !changed.is_empty() {
            self.port().disconnect(&changed);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn incoming(self: &Arc<Self>, info: &LinkInfo) -> Arc<Incoming> {
        let _span =
            span!(DEBUG, "connect", wire = %self.endpoint, peer = %info.peer.node, address = %info.address).entered();
        let this: Arc<dyn Host> = self.clone();
        let node = self.node();
        let (rights, answers, mut links) = loop {
            // The rights are made without a lock, because that may block.
            let rights = node.as_ref().map(|node| node.gate.rights(&info.principal)).unwrap_or_default();
            let (answers, links) = (self.answers.lock(), self.links.lock());
            // The check is under the lock: rules that are replaced from now on are applied to the
            // link.
            if node.as_ref().is_none_or(|node| node.gate.is_current(&rights)) {
                break (rights, answers, links);
            }
        };
        let incoming = Incoming::new(Arc::downgrade(&this), info, &self.session, rights);
        for (channel, known) in &answers.by_channel {
            if let Some((start, announcement)) = &known.offered {
                incoming.announce(*channel, *start, announcement);
            }
        }
        // Inserted under the same lock, since `announce` announces to the links in the list.
        links.insert(info.id, incoming.clone());
        drop((links, answers));
        self.changed();
        incoming
    }

    // Called by publishers.

    pub(crate) fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        self.answers.lock().announcing += 1;
        let announced = self.port().announce(announcement, start);
        let (channel, early) = {
            let mut answers = self.answers.lock();
            let channel = match announced {
                Ok(channel) => channel,
                Err(error) => {
                    self.end_announcing(&mut answers);
                    return Err(error);
                }
            };
            answers.last = answers.last.max(channel);
            answers.unknown.remove(&channel);
            let known = answers.by_channel.entry(channel).or_default();
            known.topic = announcement.topic.clone();
            let announcement = Arc::new(announcement.clone());
            known.offered = Some((start, announcement.clone()));
            let early = std::mem::take(&mut known.early);
            self.links.lock().values().for_each(|link| link.announce(channel, start, &announcement));
            self.end_announcing(&mut answers);
            (channel, early)
        };
        for (peer, reason) in early {
            self.tell_refused(announcement.topic.clone(), peer, reason);
        }
        self.changed();
        Ok(channel)
    }

    /// Records the end of an announcement. Drops answers to channels that are not announced, unless
    /// another announcement in progress may still get their ids.
    fn end_announcing(&self, answers: &mut AllAnswers) {
        if answers.announced() {
            self.links.lock().values().for_each(|link| link.forget_unannounced());
        }
    }

    /// The requests for key frames on a channel of this node.
    pub(crate) fn key_requests(&self, channel: ChannelId) -> Requests {
        self.answers.lock().by_channel.get(&channel).map(|known| known.requests.clone()).unwrap_or_default()
    }

    /// Sets the history that the channel carries. Serves requests that arrived before.
    pub(crate) fn serve_history(&self, channel: ChannelId, history: Weak<dyn Replay>) {
        let is_requested = self.answers.lock().by_channel.get_mut(&channel).is_some_and(|known| {
            known.history = Some(history.clone());
            known.requests.take()
        });
        if let Some(history) = history.upgrade().filter(|_| is_requested) {
            history.request();
        }
    }

    /// Notifies `watcher` of later answers to a channel of this node.
    pub(crate) fn watch_answers(&self, channel: ChannelId, watcher: Weak<dyn Watcher>) {
        if let Some(known) = self.answers.lock().by_channel.get_mut(&channel) {
            known.watcher = Some(watcher);
        }
    }

    /// Returns why no subscriber of the peer on a link can read a channel of this node. `None` if
    /// the peer has not refused the channel.
    pub(crate) fn refusal(&self, channel: ChannelId, link: LinkId) -> Option<String> {
        let answers = self.answers.lock();
        let (_, answer) = answers.by_channel.get(&channel)?.by_link.get(&link)?;
        answer.reason().filter(|_| !answer.accepts()).map(String::from)
    }

    /// Whether the peer on a link has accepted a channel of this node.
    pub(crate) fn is_taken(&self, channel: ChannelId, link: LinkId) -> bool {
        let answers = self.answers.lock();
        let answer = answers.by_channel.get(&channel).and_then(|known| known.by_link.get(&link));
        answer.is_some_and(|(_, answer)| answer.accepts())
    }

    /// The number of peers that refuse a channel of this node.
    pub(crate) fn refusing(&self, channel: ChannelId) -> Refusing {
        self.answers.lock().by_channel.get(&channel).map(|known| known.refusing.clone()).unwrap_or_default()
    }

    /// The nodes with a subscriber that cannot read a channel.
    pub(crate) fn refused_by(&self, channel: ChannelId) -> Vec<Id128> {
        let answers = self.answers.lock();
        let all = answers.by_channel.get(&channel).into_iter().flat_map(|known| known.by_link.values());
        let refuses = all.filter(|(_, answer)| answer.reason().is_some());
        refuses.map(|(node, _)| *node).collect()
    }

    pub(crate) fn status(&self, channel: ChannelId) -> PublisherStatus {
        let answers = self.answers.lock();
        let Some(known) = answers.by_channel.get(&channel) else { return PublisherStatus::default() };
        PublisherStatus {
            accepting: known.by_link.values().filter(|(_, answer)| answer.accepts()).count(),
            refusing: known.refusing.peers(),
            refused_total: known.refusals.total(),
            refusals: known.refusals.list(),
            ..PublisherStatus::default()
        }
    }

    /// True if chained messages normally arrive without gaps.
    pub(crate) fn keeps_all(&self) -> bool {
        self.keeps_all
    }

    pub(crate) fn retire(&self, channel: ChannelId) {
        self.port().retire(channel);
        let mut answers = self.answers.lock();
        answers.by_channel.remove(&channel);
        self.links.lock().values().for_each(|link| link.retire(channel));
        drop(answers);
        self.changed();
    }

    #[inline]
    pub(crate) fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(EngineError::Closed);
        }
        self.port().commit(envelope, loan)
    }

    /// Sends a payload that is not in a loan.
    pub(crate) fn send(&self, envelope: &Envelope<'_>, payload: &[u8]) -> Result<Sent, EngineError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(EngineError::Closed);
        }
        self.port().send(envelope, payload)
    }

    /// Sends messages one after the other: see [`Port::send_all`].
    #[inline]
    pub(crate) fn send_all(&self, batch: &Batch<'_>, sent: &mut Sent) -> Result<(), (usize, EngineError)> {
        if self.closed.load(Ordering::Relaxed) {
            return Err((0, EngineError::Closed));
        }
        self.port().send_all(batch, sent)
    }

    /// Lets an engine without threads deliver on this thread. The caller must hold no lock.
    #[inline]
    pub(crate) fn settle(&self) {
        self.port().settle();
    }

    /// Whether [`PortEntry::settle`] has something to do.
    #[inline]
    pub(crate) fn settles(&self) -> bool {
        self.port().settles()
    }

    pub(crate) fn flush(&self, deadline: Instant) -> bool {
        self.port().flush(deadline)
    }

    /// The nodes that accept a channel, with the number of their subscribers.
    pub(crate) fn accepting(&self, channel: ChannelId) -> BTreeMap<Id128, usize> {
        let answers = self.answers.lock();
        let all = answers.by_channel.get(&channel).into_iter().flat_map(|known| known.by_link.values());
        let accepts = all.filter(|(_, answer)| answer.accepts());
        accepts.map(|(node, answer)| (*node, answer.subscribers() as usize)).collect()
    }

    /// The announcement of a channel of this node. `None` if the channel has retired.
    pub(crate) fn announced(&self, channel: ChannelId) -> Option<Arc<Announcement>> {
        let answers = self.answers.lock();
        answers.by_channel.get(&channel)?.offered.as_ref().map(|(_, announcement)| announcement.clone())
    }

    // Called by subscribers.

    /// What the engine guarantees.
    pub(crate) fn properties(&self) -> Properties {
        self.engine.properties()
    }

    pub(crate) fn add_route(&self, route: Arc<dyn Route>) {
        self.routes.lock().add(route.clone());
        self.reconsider(&*route);
        match is_builtin(route.topic()) {
            true => self.ask(),
            false => {
                self.port().subscribe(route.topic());
                self.changed();
            }
        }
    }

    /// Asks the peers, present and future, for the built-in topics.
    fn ask(&self) {
        if !self.asks.swap(true, Ordering::AcqRel) {
            let incarnation = self.node().map_or(0, |node| node.hello.incarnation);
            let announcement =
                Announcement { topic: INTEREST.into(), writer: random_id(), incarnation, ..Announcement::default() };
            // The error is ignored: a closed port has no peers.
            let _ = self.announce(&announcement, Start::default());
        }
    }

    /// Whether this node or a peer has asked for the built-in topics.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    pub(crate) fn remove_route(&self, route: &Arc<dyn Route>) {
        self.routes.lock().remove(route);
        self.reconsider(&**route);
        if !is_builtin(route.topic()) {
            self.port().unsubscribe(route.topic());
        }
        self.changed();
    }

    /// The announcements of the peers.
    pub(crate) fn sources(&self) -> Vec<Source> {
        let links = self.links.lock();
        links.iter().filter(|(id, _)| **id != self.own).flat_map(|(_, link)| link.sources()).collect()
    }

    /// Adds the writers that a subscriber here reads, and those that it cannot read.
    pub(crate) fn add_matches(&self, route: &Arc<dyn Route>, matches: &mut Matches) {
        let links: Vec<_> = self.links.lock().values().cloned().collect();
        links.iter().for_each(|link| link.add_matches(route, matches));
    }

    /// Decides again which subscribers read the channels of a topic.
    pub(crate) fn reconsider_topic(&self, topic: &str) {
        let links: Vec<_> = self.links.lock().values().cloned().collect();
        links.iter().for_each(|link| link.reconsider(Topics::One(topic)));
    }

    fn reconsider(&self, route: &dyn Route) {
        let links: Vec<_> = self.links.lock().values().cloned().collect();
        let wants = |topic: &str| route.wants(topic);
        let topics = if is_pattern(route.topic()) { Topics::All(&wants) } else { Topics::One(route.topic()) };
        links.iter().for_each(|link| link.reconsider(topics));
    }

    /// Reports a change of what the built-in topics describe.
    fn changed(&self) {
        if let Some(node) = self.node() {
            node.signal.changed();
        }
    }

    // Called by links.

    fn tell_refused(&self, topic: String, peer: String, reason: String) {
        if let Some(node) = self.node() {
            node.tell(&NodeEvent::Refused { topic, peer, reason });
        }
    }
}

impl Host for PortEntry {
    fn node(&self) -> Option<Arc<Inner>> {
        self.node.upgrade()
    }

    fn documents(&self) -> &Documents {
        &self.documents
    }

    fn routes(&self, topic: &str) -> Vec<Arc<dyn Route>> {
        // Called without the lock, since the route of a pattern may make a part for the topic.
        let routes = self.routes.lock().near(topic);
        routes.iter().filter_map(|route| route.of_topic(topic)).collect()
    }

    fn properties(&self) -> Properties {
        self.engine.properties()
    }

    fn is_open(&self) -> bool {
        self.port.get().is_some()
    }

    fn is_closing(&self) -> bool {
        self.is_closed()
    }

    fn relays(&self) -> bool {
        self.port.get().is_some_and(|port| port.relays())
    }

    fn send(&self, link: &LinkInfo, output: Output) {
        match output {
            // The port itself announces channels to all peers, and retires them.
            Output::Announce { .. } | Output::Retire { .. } => {}
            Output::Answer { channel, answer } => self.port().answer(link.id, channel, answer),
            Output::Want { document } => self.port().want(link.id, document),
            Output::Supply { document } => {
                let bytes = self.documents.bytes(document);
                self.port().supply(link.id, document, bytes.as_deref());
            }
        }
    }

    fn learn(&self, link: &LinkInfo, channel: ChannelId) -> bool {
        self.port.get().is_some_and(|port| port.learn(link.id, channel))
    }

    fn matched(&self, link: &LinkInfo, matched: Matched) -> bool {
        let Matched { channel, answer, key_requested, incompatible } = matched;
        let (refused, history, watcher, is_about_us) = {
            let mut answers = self.answers.lock();
            if !self.links.lock().contains_key(&link.id) {
                return true;
            }
            let Some(known) = answers.of(channel) else { return false };
            if key_requested {
                known.requests.ask();
            }
            let history = known.history.clone().filter(|_| key_requested);
            match answer {
                Some(answer) => known.by_link.insert(link.id, (link.peer.node, answer)),
                None => known.by_link.remove(&link.id),
            };
            known.count_refusing();
            if let Some(reason) = &incompatible {
                known.refusals.push(Refusal { peer: link.address.clone(), reason: reason.clone() });
            }
            let watcher = known.watcher.clone();
            let refused = match incompatible {
                Some(reason) if known.topic.is_empty() => {
                    known.early.push((link.address.clone(), reason));
                    None
                }
                reason => reason.map(|reason| (known.topic.clone(), reason)),
            };
            (refused, history, watcher, is_builtin(&known.topic))
        };
        self.answered.tell();
        if let Some(node) = self.node() {
            if is_about_us { node.signal.ask() } else { node.signal.changed() }
        }
        if let Some(history) = history.and_then(|history| history.upgrade()) {
            history.request();
        }
        if let Some(watcher) = watcher.and_then(|watcher| watcher.upgrade()) {
            watcher.answered();
        }
        if let Some((topic, reason)) = refused {
            self.tell_refused(topic, link.address.clone(), reason);
        }
        true
    }

    fn document_arrived(&self, document: Id128) {
        let links: Vec<_> = self.links.lock().values().cloned().collect();
        links.iter().for_each(|link| link.document_arrived(document));
    }

    fn asked(&self) {
        self.asked.store(true, Ordering::Release);
        if let Some(node) = self.node() {
            node.signal.ask();
        }
    }

    fn matches_changed(&self) {
        self.changed();
    }

    fn link_down(&self, link: &LinkInfo) {
        self.links.lock().remove(&link.id);
        for answers in self.answers.lock().by_channel.values_mut() {
            answers.by_link.remove(&link.id);
            answers.count_refusing();
        }
        self.answered.tell();
        self.changed();
    }
}

impl Answers {
    fn count_refusing(&self) {
        self.refusing.set(self.by_link.values().filter(|(_, answer)| answer.reason().is_some()).count());
    }
}

fn check_access(engine: &dyn Engine, endpoint: &str) -> Result<(), EngineError> {
    match engine.tells_peers_apart() {
        true => Ok(()),
        false => Err(EngineError::Access { endpoint: endpoint.into() }),
    }
}

fn keeps_all(engine: &dyn Engine, local: &Local) -> bool {
    let properties = engine.properties();
    properties.reliable && properties.ordered && matches!(local.options.overflow, Overflow::Block { .. })
}

/// The engine's interface to the node. It does not keep the node alive.
struct PortSink(Weak<PortEntry>);

impl Sink for PortSink {
    fn document(&self, id: Id128) -> Option<Arc<[u8]>> {
        self.0.upgrade()?.documents.bytes(id)
    }

    fn subscribed(&self, topic: &str) -> Option<Arc<[u8]>> {
        let routes = self.0.upgrade()?.routes(topic);
        routes.iter().find_map(|route| route.schema().map(|schema| schema.to_bytes().into()))
    }

    fn requested(&self, topic: &str) -> Vec<Qos> {
        let routes = self.0.upgrade().map(|entry| entry.routes(topic)).unwrap_or_default();
        routes.iter().filter_map(|route| route.describe()).map(|subscriber| subscriber.qos).collect()
    }

    fn link(&self, link: &LinkInfo) -> Arc<dyn LinkSink> {
        match self.0.upgrade() {
            Some(entry) => entry.incoming(link),
            // The port is closing, so no subscriber uses the link any more.
            None => Incoming::new(self.0.clone(), link, &SessionSettings::default(), Rights::default()),
        }
    }

    fn event(&self, event: Event) {
        if let Some(entry) = self.0.upgrade()
            && let Some(node) = entry.node()
        {
            node.tell(&NodeEvent::Engine { endpoint: entry.endpoint.clone(), event });
        }
    }
}
