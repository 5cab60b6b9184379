//! A port of the node, with everything of the node that uses it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Start},
};

use super::{Documents, Inner, Route, Source, incoming::Incoming};
use crate::{
    delta::Requests,
    engine::{
        Engine, EngineError, Event, LinkId, LinkInfo, LinkSink, Loan, Local, Overflow, Port, Sent, Sink, loopback,
    },
    events::NodeEvent,
    status::{PublisherStatus, Recent, Refusal, Refusing},
    wire::Endpoint,
};

/// A port, the subscribers on it, and its links.
pub(crate) struct PortEntry {
    node: Weak<Inner>,
    /// The node's, which peers may ask for as long as the port is there.
    documents: Arc<Documents>,
    endpoint: String,
    /// Nothing is published any more.
    closed: AtomicBool,
    /// Nothing is lost on the way, or dropped to make room, as long as peers take it.
    keeps_all: bool,
    /// Messages of a writer come in its order.
    is_ordered: bool,
    port: OnceLock<Arc<dyn Port>>,
    /// The link from publishers here to subscribers here.
    own: LinkId,
    routes: Mutex<Vec<Arc<dyn Route>>>,
    links: Mutex<BTreeMap<LinkId, Arc<Incoming>>>,
    answers: Mutex<AllAnswers>,
    answered: Condvar,
}

/// What is known of the receivers of our channels.
#[derive(Default)]
struct AllAnswers {
    by_channel: BTreeMap<ChannelId, Answers>,
    /// The newest channel.
    last: ChannelId,
    /// Announcements under way. Answers may come before [`PortEntry::announce`] knows the id.
    announcing: usize,
    /// Some entry may be of a channel that has retired, or is just being announced.
    has_unknown: bool,
}

impl AllAnswers {
    /// What is known of a channel; `None` if it has retired.
    fn of(&mut self, channel: ChannelId) -> Option<&mut Answers> {
        if !self.by_channel.contains_key(&channel) {
            if self.announcing == 0 && channel <= self.last {
                return None;
            }
            self.has_unknown = true;
        }
        Some(self.by_channel.entry(channel).or_default())
    }

    /// An announcement has ended. After the last one, entries without a topic are of retired
    /// channels.
    fn announced(&mut self) {
        self.announcing -= 1;
        if self.announcing == 0 && std::mem::take(&mut self.has_unknown) {
            self.by_channel.retain(|_, known| !known.topic.is_empty());
        }
    }
}

#[derive(Default)]
struct Answers {
    topic: String,
    by_link: BTreeMap<LinkId, Answer>,
    /// For key frames.
    requests: Requests,
    refusing: Refusing,
    refusals: Recent<Refusal>,
    /// Refusals that came before the topic was noted.
    early: Vec<(String, String)>,
}

impl PortEntry {
    pub(crate) fn open(
        node: &Arc<Inner>,
        engine: &'static dyn Engine,
        address: &str,
        local: &Local,
    ) -> Result<Arc<PortEntry>, EngineError> {
        let own = LinkInfo { id: LinkId::next(), peer: local.hello, address: "this node".into() };
        let entry = Arc::new(PortEntry {
            node: Arc::downgrade(node),
            documents: node.documents.clone(),
            closed: AtomicBool::new(false),
            endpoint: format!("{}/{address}", engine.name()),
            keeps_all: keeps_all(engine, local),
            is_ordered: engine.properties().ordered,
            port: OnceLock::new(),
            own: own.id,
            routes: Mutex::default(),
            links: Mutex::default(),
            answers: Mutex::default(),
            answered: Condvar::new(),
        });
        let sink = Arc::new(PortSink(Arc::downgrade(&entry)));
        let port = loopback::open(engine, address, local, sink, &own)?;
        let _ = entry.port.set(port);
        let links: Vec<_> = lock(&entry.links).values().cloned().collect();
        links.iter().for_each(|link| link.reconsider_all());
        Ok(entry)
    }

    /// Peers may call while the engine still opens the port; they wait for it.
    pub(crate) fn port(&self) -> &Arc<dyn Port> {
        self.port.wait()
    }

    /// The port, unless the engine still opens it.
    pub(super) fn open_port(&self) -> Option<&Arc<dyn Port>> {
        self.port.get()
    }

    pub(crate) fn node(&self) -> Option<Arc<Inner>> {
        self.node.upgrade()
    }

    pub(crate) fn documents(&self) -> &Documents {
        &self.documents
    }

    /// Whether this is the port of an endpoint, under the name that it was opened by or the one
    /// that it has.
    pub(crate) fn is_at(&self, endpoint: &Endpoint) -> bool {
        let name = endpoint.to_string();
        name == self.endpoint || name == self.port().endpoint()
    }

    /// Ends publishing and then the port; what subscribers here have not taken yet can still be
    /// received.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.port().close();
        for route in lock(&self.routes).clone() {
            route.node_closed();
        }
    }

    fn incoming(self: &Arc<Self>, info: &LinkInfo) -> Arc<Incoming> {
        let incoming = Arc::new(Incoming::new(self, info));
        lock(&self.links).insert(info.id, incoming.clone());
        incoming
    }

    // What publishers use.

    pub(crate) fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        lock(&self.answers).announcing += 1;
        let announced = self.port().announce(announcement, start);
        let (channel, early) = {
            let mut answers = lock(&self.answers);
            let channel = announced.inspect_err(|_| answers.announced())?;
            answers.last = answers.last.max(channel);
            let known = answers.by_channel.entry(channel).or_default();
            known.topic = announcement.topic.clone();
            let early = std::mem::take(&mut known.early);
            answers.announced();
            (channel, early)
        };
        for (peer, reason) in early {
            self.tell_refused(announcement.topic.clone(), peer, reason);
        }
        Ok(channel)
    }

    /// What asks for key frames on a channel of ours.
    pub(crate) fn key_requests(&self, channel: ChannelId) -> Requests {
        lock(&self.answers).by_channel.get(&channel).map(|known| known.requests.clone()).unwrap_or_default()
    }

    /// How many peers refuse a channel of ours.
    pub(crate) fn refusing(&self, channel: ChannelId) -> Refusing {
        lock(&self.answers).by_channel.get(&channel).map(|known| known.refusing.clone()).unwrap_or_default()
    }

    pub(crate) fn status(&self, channel: ChannelId) -> PublisherStatus {
        let answers = lock(&self.answers);
        let Some(known) = answers.by_channel.get(&channel) else { return PublisherStatus::default() };
        PublisherStatus {
            accepting: known.by_link.values().filter(|answer| answer.accepts()).count(),
            refusing: known.refusing.peers(),
            refused_total: known.refusals.total(),
            refusals: known.refusals.list(),
        }
    }

    /// True where a chain of messages has no gaps, as a rule.
    pub(crate) fn keeps_all(&self) -> bool {
        self.keeps_all
    }

    pub(crate) fn retire(&self, channel: ChannelId) {
        self.port().retire(channel);
        lock(&self.answers).by_channel.remove(&channel);
    }

    #[inline]
    pub(crate) fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(EngineError::Closed);
        }
        self.port().commit(envelope, loan)
    }

    /// Delivers what engines deliver on the publishing thread. The caller holds no lock.
    #[inline]
    pub(crate) fn settle(&self) {
        self.port().settle();
    }

    pub(crate) fn flush(&self, deadline: Instant) -> bool {
        self.port().flush(deadline)
    }

    /// Subscribers that the channel reaches by the answers of their nodes, after there are at least
    /// `least`, or `timeout`.
    pub(crate) fn wait_matched(&self, channel: ChannelId, least: usize, timeout: Duration) -> usize {
        let matched = |answers: &AllAnswers| {
            let by_link = answers.by_channel.get(&channel).map(|answers| answers.by_link.values());
            by_link.map_or(0, |all| all.map(|answer| answer.subscribers() as usize).sum())
        };
        let waited = self.answered.wait_timeout_while(lock(&self.answers), timeout, |all| matched(all) < least);
        matched(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    // What subscribers use.

    pub(crate) fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    pub(crate) fn add_route(&self, route: Arc<dyn Route>) {
        lock(&self.routes).push(route.clone());
        self.reconsider(route.topic());
    }

    pub(crate) fn remove_route(&self, route: &Arc<dyn Route>) {
        lock(&self.routes).retain(|other| !Arc::ptr_eq(other, route));
        self.reconsider(route.topic());
    }

    pub(crate) fn routes(&self, topic: &str) -> Vec<Arc<dyn Route>> {
        lock(&self.routes).iter().filter(|route| route.topic() == topic).cloned().collect()
    }

    /// What the peers have announced.
    pub(crate) fn sources(&self) -> Vec<Source> {
        let links = lock(&self.links);
        links.iter().filter(|(id, _)| **id != self.own).flat_map(|(_, link)| link.sources()).collect()
    }

    /// Writers whose messages a subscriber here reads and cannot read.
    pub(crate) fn matches(&self, route: &Arc<dyn Route>) -> (usize, usize) {
        let links: Vec<_> = lock(&self.links).values().cloned().collect();
        links.iter().map(|link| link.matches(route)).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }

    fn reconsider(&self, topic: &str) {
        let links: Vec<_> = lock(&self.links).values().cloned().collect();
        links.iter().for_each(|link| link.reconsider(topic));
    }

    // What links use.

    /// False while the port is still being opened: it is asked again then.
    pub(super) fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer) -> bool {
        match self.port.get() {
            Some(port) => port.answer(link, channel, answer),
            None => return false,
        }
        true
    }

    pub(super) fn answered(&self, link: LinkId, peer: &str, channel: ChannelId, answer: &Answer) {
        let refused = {
            let mut answers = lock(&self.answers);
            let Some(known) = answers.of(channel) else { return };
            let before = known.by_link.get(&link);
            if matches!(answer, Answer::Renew(_)) || (answer.accepts() && !before.is_some_and(Answer::accepts)) {
                known.requests.ask();
            }
            known.by_link.insert(link, answer.lasting(before));
            known.count_refusing();
            if let Some(reason) = answer.reason() {
                known.refusals.push(Refusal { peer: peer.into(), reason: reason.into() });
            }
            match answer.reason() {
                Some(reason) if known.topic.is_empty() => {
                    known.early.push((peer.into(), reason.into()));
                    None
                }
                reason => reason.map(|reason| (known.topic.clone(), reason.to_owned())),
            }
        };
        self.answered.notify_all();
        if let Some((topic, reason)) = refused {
            self.tell_refused(topic, peer.into(), reason);
        }
    }

    fn tell_refused(&self, topic: String, peer: String, reason: String) {
        if let Some(node) = self.node() {
            node.tell(&NodeEvent::Refused { topic, peer, reason });
        }
    }

    pub(super) fn expire(&self, link: LinkId, channel: ChannelId) {
        let incoming = lock(&self.links).get(&link).cloned();
        if let Some(incoming) = incoming {
            incoming.expire(channel);
        }
    }

    /// A document came over one of the links; others may wait for it, too.
    pub(super) fn document_came(&self, document: Id128) {
        let links: Vec<_> = lock(&self.links).values().cloned().collect();
        links.iter().for_each(|link| link.document_came(document));
    }

    pub(super) fn link_down(&self, link: LinkId) {
        lock(&self.links).remove(&link);
        for answers in lock(&self.answers).by_channel.values_mut() {
            answers.by_link.remove(&link);
            answers.count_refusing();
        }
        self.answered.notify_all();
    }
}

impl Answers {
    fn count_refusing(&self) {
        self.refusing.set(self.by_link.values().filter(|answer| answer.reason().is_some()).count());
    }
}

fn keeps_all(engine: &dyn Engine, local: &Local) -> bool {
    let properties = engine.properties();
    properties.reliable && properties.ordered && matches!(local.options.overflow, Overflow::Block { .. })
}

/// The engine's way to the node; does not keep it alive.
struct PortSink(Weak<PortEntry>);

impl Sink for PortSink {
    fn link(&self, link: &LinkInfo) -> Arc<dyn LinkSink> {
        match self.0.upgrade() {
            Some(entry) => entry.incoming(link),
            None => Arc::new(Incoming::orphan(link)),
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
