//! One link as the node sees it: its channels, and the subscribers that each goes to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Start},
    schema::Schema,
};

use super::{Inner, PortEntry};
use crate::{
    delta::Asking,
    engine::{Held, LinkInfo, LinkSink},
    events::NodeEvent,
    packing::{self, Unpacking},
};

/// A subscriber, as channels see it.
pub(crate) trait Route: Send + Sync {
    fn topic(&self) -> &str;
    /// Whether it has to know the writer's schema.
    fn needs_schema(&self) -> bool;
    /// Gets ready for a channel, or says why it cannot be read. `schema` is the writer's; none where the writer has none to give.
    fn open(&self, node: &Arc<Inner>, source: &Source, schema: Option<&Schema>) -> Result<Arc<dyn Slot>, String>;
}

/// A subscriber's end of one channel.
pub(crate) trait Slot: Send + Sync {
    /// `wire_bytes` is what the payload took before it was unpacked; `held` says where the payload may be held, if it may.
    fn deliver(&self, envelope: &Envelope<'_>, payload: &[u8], wire_bytes: usize, held: Option<Held<'_>>);
    /// A message came that nobody can read.
    fn undecodable(&self, sequence: u64, reason: &dyn ToString);
    /// Whether messages may refer to others.
    fn is_stream(&self) -> bool;
    /// It cannot read what comes without a key frame.
    fn wants_key(&self) -> bool;
    /// The sender dropped `count` messages up to this one; or, with 0, begins behind it.
    fn lost(&self, sequence: u64, count: u64);
    /// Everything that came so far was delivered.
    fn drained(&self);
}

/// Where messages come from.
#[derive(Clone, Debug)]
pub struct Source {
    /// What the writer announced.
    pub announcement: Arc<Announcement>,
    /// The link it came over.
    pub link: Arc<LinkInfo>,
}

pub(crate) struct Incoming {
    entry: Weak<PortEntry>,
    link: Arc<LinkInfo>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    channels: BTreeMap<ChannelId, Channel>,
    /// Channels that messages came on since the last pause.
    touched: Vec<ChannelId>,
    /// Channels to decide on, and whether a thread is at it.
    todo: BTreeSet<ChannelId>,
    deciding: bool,
}

type Refused = Vec<(Weak<dyn Route>, String)>;
type Slots = Arc<Vec<(Arc<dyn Route>, Arc<dyn Slot>)>>;

struct Channel {
    source: Source,
    slots: Slots,
    /// Made when the first subscriber comes; none where payloads are not packed.
    unpacking: Option<Unpacking>,
    touched: bool,
    /// Messages may refer to others.
    stream: bool,
    asking: Asking,
    told: Option<Answer>,
    /// Waits for a document until then.
    fetching: Option<(Id128, Instant)>,
    /// Why no document will come.
    unfetched: Option<String>,
    /// Subscribers that cannot read it.
    refused: Refused,
}

impl Incoming {
    pub(super) fn new(entry: &Arc<PortEntry>, link: &LinkInfo) -> Self {
        Incoming { entry: Arc::downgrade(entry), link: Arc::new(link.clone()), state: Mutex::default() }
    }

    /// For a link that comes while the node goes.
    pub(super) fn orphan(link: &LinkInfo) -> Self {
        Incoming { entry: Weak::new(), link: Arc::new(link.clone()), state: Mutex::default() }
    }

    /// Where the channels open now come from.
    pub(super) fn sources(&self) -> Vec<Source> {
        self.lock().channels.values().map(|channel| channel.source.clone()).collect()
    }

    /// Subscribers of the topic came or went.
    pub(super) fn reconsider(&self, topic: &str) {
        self.decide_on(|channel| channel.source.announcement.topic == topic);
    }

    pub(super) fn reconsider_all(&self) {
        self.decide_on(|_| true);
    }

    /// The time that a channel's document had is up.
    pub(super) fn expire(&self, channel: ChannelId) {
        if let Some(known) = self.lock().channels.get_mut(&channel)
            && let Some((document, _)) = known.fetching.take_if(|(_, deadline)| *deadline <= Instant::now())
        {
            known.unfetched = Some(format!("the document {document} did not come in time"));
        }
        self.decide_on(|known| known.unfetched.is_some());
    }

    fn decide_on(&self, which: impl Fn(&Channel) -> bool) {
        let mut state = self.lock();
        let chosen: Vec<_> = state.channels.iter().filter(|(_, channel)| which(channel)).map(|(id, _)| *id).collect();
        state.todo.extend(chosen);
        self.work(state);
    }

    /// Decides on what is to be decided, unless a thread is at it already; that may be this one, further up.
    fn work<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if std::mem::replace(&mut state.deciding, true) {
            return;
        }
        while let Some(channel) = state.todo.pop_first() {
            drop(state);
            self.decide(channel);
            state = self.lock();
        }
        state.deciding = false;
    }

    fn decide(&self, channel: ChannelId) {
        let Some(entry) = self.entry.upgrade() else { return };
        let Some(node) = entry.node() else { return };
        let Some((source, before, refused)) = self.lock().channels.get(&channel).map(Channel::snapshot) else { return };
        let routes = entry.routes(&source.announcement.topic);
        if !self.has_documents(&node, &entry, channel, &source, &routes) {
            return;
        }
        let schema = node.documents.schema(source.announcement.schema);
        let unpacking = self.unpacking(&node, channel, &source);
        let (mut slots, mut refusals) = (Vec::new(), Vec::new());
        for route in &routes {
            if let Some(kept) = before.iter().find(|(other, _)| Arc::ptr_eq(other, route)) {
                slots.push(kept.clone());
                continue;
            }
            let same = |other: &&(Weak<dyn Route>, String)| other.0.upgrade().is_some_and(|o| Arc::ptr_eq(&o, route));
            match refused.iter().find(same) {
                Some((_, reason)) => refusals.push((route.clone(), reason.clone())),
                None => match unpacking
                    .clone()
                    .and_then(|()| self.open_slot(&node, channel, route, &source, schema.as_ref()))
                {
                    Ok(slot) => slots.push((route.clone(), slot)),
                    Err(reason) => {
                        tell_mismatch(&node, &source, &reason);
                        refusals.push((route.clone(), reason));
                    }
                },
            }
        }
        self.settle(&entry, channel, slots, refusals);
    }

    /// Asks for what is missing. True if nothing is, or nothing will come.
    fn has_documents(
        &self,
        node: &Arc<Inner>,
        entry: &PortEntry,
        channel: ChannelId,
        source: &Source,
        routes: &[Arc<dyn Route>],
    ) -> bool {
        let Some(document) = missing(node, &source.announcement, routes) else { return true };
        let ask = {
            let mut state = self.lock();
            let asked = state.channels.values().any(|other| other.fetching.is_some_and(|(id, _)| id == document));
            let Some(known) = state.channels.get_mut(&channel) else { return false };
            if known.unfetched.is_some() {
                return true;
            }
            let deadline = Instant::now() + node.fetch_timeout;
            known.fetching.get_or_insert((document, deadline));
            !asked
        };
        node.timer.at(node.fetch_timeout + Duration::from_millis(1), &self.entry, self.link.id, channel);
        if ask {
            entry.port().want(self.link.id, document);
        }
        false
    }

    /// Gets ready to unpack the channel's payloads, or says why they cannot be unpacked.
    fn unpacking(&self, node: &Inner, channel: ChannelId, source: &Source) -> Result<(), String> {
        let (ready, unfetched) = match self.lock().channels.get(&channel) {
            Some(known) => (known.unpacking.is_some(), known.unfetched.clone()),
            None => return Ok(()),
        };
        if ready || source.announcement.compressor.is_empty() {
            return Ok(());
        }
        let made = Unpacking::of(node, &source.announcement.compressor).map_err(|e| unfetched.unwrap_or(e))?;
        if let Some(known) = self.lock().channels.get_mut(&channel) {
            known.unpacking = made;
        }
        Ok(())
    }

    fn open_slot(
        &self,
        node: &Arc<Inner>,
        channel: ChannelId,
        route: &Arc<dyn Route>,
        source: &Source,
        schema: Option<&Schema>,
    ) -> Result<Arc<dyn Slot>, String> {
        let unfetched = self.lock().channels.get(&channel).and_then(|known| known.unfetched.clone());
        match unfetched {
            Some(reason) if route.needs_schema() && (schema.is_none() || !self.is_configured(node, source)) => {
                Err(reason)
            }
            _ => route.open(node, source, schema),
        }
    }

    /// The document that configures the codec is there, if there is one.
    fn is_configured(&self, node: &Inner, source: &Source) -> bool {
        source.announcement.configuration.is_none_or(|id| node.documents.bytes(id).is_some())
    }

    fn settle(
        &self,
        entry: &PortEntry,
        channel: ChannelId,
        slots: Vec<(Arc<dyn Route>, Arc<dyn Slot>)>,
        refusals: Vec<(Arc<dyn Route>, String)>,
    ) {
        let reason = refusals.first().map(|(_, reason)| cut(reason));
        let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        let answer = match slots.is_empty() {
            false => match reason {
                Some(reason) => Answer::Partial(count, reason),
                None => Answer::Accept(count),
            },
            true => reason.map_or(Answer::Decline, Answer::Refuse),
        };
        let renew = slots.iter().any(|(_, slot)| slot.wants_key());
        let news = {
            let mut state = self.lock();
            let Some(known) = state.channels.get_mut(&channel) else { return };
            known.stream = slots.iter().any(|(_, slot)| slot.is_stream());
            known.slots = Arc::new(slots);
            known.refused = refusals.iter().map(|(route, reason)| (Arc::downgrade(route), reason.clone())).collect();
            let news = known.told.as_ref() != Some(&answer);
            if renew {
                known.asking = Asking::default();
                known.asking.take(Instant::now());
            }
            known.told = Some(answer.clone());
            news
        };
        // A request for a key frame says by itself that all can read the channel.
        let plain = news && (!renew || !matches!(answer, Answer::Accept(_)));
        let told = !plain || entry.answer(self.link.id, channel, answer);
        let told = told && (!renew || entry.answer(self.link.id, channel, Answer::Renew(count)));
        if !told && let Some(known) = self.lock().channels.get_mut(&channel) {
            known.told = None;
        }
    }

    /// Asks for a key frame, unless that was done just now; or notes that none is wanted any more.
    #[cold]
    fn ask_for_key(&self, channel: ChannelId, wanted: bool) {
        let count = {
            let mut state = self.lock();
            let Some(known) = state.channels.get_mut(&channel) else { return };
            if !wanted {
                known.asking = Asking::default();
                return;
            }
            if !known.asking.take(Instant::now()) {
                return;
            }
            u32::try_from(known.slots.len()).unwrap_or(u32::MAX)
        };
        if let Some(entry) = self.entry.upgrade() {
            entry.answer(self.link.id, channel, Answer::Renew(count));
        }
    }

    #[inline]
    fn pass(&self, envelope: &Envelope<'_>, payload: &[u8], held: Option<Held<'_>>) {
        let (slots, unpacking, stream, asking) = {
            let mut state = self.lock();
            let State { channels, touched, .. } = &mut *state;
            let Some(channel) = channels.get_mut(&envelope.channel) else { return };
            if !std::mem::replace(&mut channel.touched, true) {
                touched.push(envelope.channel);
            }
            (channel.slots.clone(), channel.unpacking.clone(), channel.stream, channel.asking.is_open())
        };
        let deliver = |unpacked: &[u8], held| {
            slots.iter().for_each(|(_, slot)| slot.deliver(envelope, unpacked, payload.len(), held));
        };
        match unpacking {
            None => deliver(payload, held),
            Some(unpacking) => unpacking.unpack(payload, |unpacked| match unpacked {
                Ok(unpacked) => deliver(unpacked, None),
                Err(error) => slots.iter().for_each(|(_, slot)| slot.undecodable(envelope.sequence, &error)),
            }),
        }
        if stream {
            let wanted = slots.iter().any(|(_, slot)| slot.wants_key());
            if wanted || asking {
                self.ask_for_key(envelope.channel, wanted);
            }
        }
    }

    fn slots(&self, channel: ChannelId) -> Option<Slots> {
        self.lock().channels.get(&channel).map(|channel| channel.slots.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Channel {
    fn snapshot(&self) -> (Source, Slots, Refused) {
        (self.source.clone(), self.slots.clone(), self.refused.clone())
    }
}

impl LinkSink for Incoming {
    fn announced(&self, channel: ChannelId, _: Start, announcement: &Announcement) {
        let mut state = self.lock();
        let known = Channel {
            source: Source { announcement: Arc::new(announcement.clone()), link: self.link.clone() },
            slots: Slots::default(),
            unpacking: None,
            touched: false,
            stream: false,
            asking: Asking::default(),
            told: None,
            fetching: None,
            unfetched: None,
            refused: Vec::new(),
        };
        state.channels.insert(channel, known);
        state.todo.insert(channel);
        self.work(state);
    }

    #[inline]
    fn message(&self, envelope: &Envelope<'_>, payload: &[u8]) {
        self.pass(envelope, payload, None);
    }

    #[inline]
    fn message_held(&self, envelope: &Envelope<'_>, payload: &[u8], held: Held<'_>) {
        self.pass(envelope, payload, Some(held));
    }

    fn position(&self, channel: ChannelId, start: Start, lost: u64) {
        let slots = self.slots(channel).unwrap_or_default();
        slots.iter().for_each(|(_, slot)| slot.lost(start.sequence, lost));
    }

    fn retired(&self, channel: ChannelId) {
        let gone = self.lock().channels.remove(&channel);
        gone.iter().flat_map(|channel| channel.slots.iter()).for_each(|(_, slot)| slot.drained());
    }

    fn wanted(&self, document: Id128) {
        let Some(entry) = self.entry.upgrade() else { return };
        let bytes = entry.node().and_then(|node| node.documents.bytes(document));
        entry.port().supply(self.link.id, document, bytes.as_deref());
    }

    fn supplied(&self, document: Id128, bytes: Option<&[u8]>) {
        let Some(node) = self.entry.upgrade().and_then(|entry| entry.node()) else { return };
        let asked = |channel: &Channel| channel.fetching.is_some_and(|(id, _)| id == document);
        let as_schema = |channel: &Channel| channel.source.announcement.schema == document;
        let schema = {
            let state = self.lock();
            let mut asking = state.channels.values().filter(|channel| asked(channel)).map(as_schema);
            let Some(first) = asking.next() else { return };
            first || asking.any(|schema| schema)
        };
        let missing = || Err(format!("the writer does not have its own document {document}"));
        let received = bytes.map_or_else(missing, |bytes| node.documents.receive(document, bytes, schema));
        for channel in self.lock().channels.values_mut().filter(|channel| asked(channel)) {
            channel.fetching = None;
            channel.unfetched = received.clone().err();
        }
        self.decide_on(|channel| documents(&channel.source.announcement).contains(&Some(document)));
    }

    fn answered(&self, channel: ChannelId, answer: &Answer) {
        if let Some(entry) = self.entry.upgrade() {
            entry.answered(self.link.id, &self.link.address, channel, answer);
        }
    }

    fn drained(&self) {
        let touched: Vec<Slots> = {
            let mut state = self.lock();
            if state.touched.is_empty() {
                return;
            }
            let State { channels, touched, .. } = &mut *state;
            let slots = |id: ChannelId| {
                let channel = channels.get_mut(&id)?;
                channel.touched = false;
                Some(channel.slots.clone())
            };
            touched.drain(..).filter_map(slots).collect()
        };
        touched.iter().flat_map(|slots| slots.iter()).for_each(|(_, slot)| slot.drained());
    }

    fn down(&self) {
        let channels = std::mem::take(&mut self.lock().channels);
        channels.values().flat_map(|channel| channel.slots.iter()).for_each(|(_, slot)| slot.drained());
        if let Some(entry) = self.entry.upgrade() {
            entry.link_down(self.link.id);
        }
    }
}

/// What a channel's announcement names: the writer's schema, the compressor's dictionary, and what configures the codec.
fn documents(announced: &Announcement) -> [Option<Id128>; 3] {
    let schema = Some(announced.schema).filter(|schema| !schema.is_zero());
    [schema, packing::dictionary(&announced.compressor), announced.configuration]
}

/// The first document that these subscribers need and the node does not have.
fn missing(node: &Inner, announced: &Announcement, routes: &[Arc<dyn Route>]) -> Option<Id128> {
    let [schema, dictionary, configuration] = documents(announced);
    let needs_schema = routes.iter().any(|route| route.needs_schema());
    let schema = schema.filter(|schema| needs_schema && node.documents.schema(*schema).is_none());
    let dictionary = dictionary.filter(|id| !routes.is_empty() && node.documents.bytes(*id).is_none());
    let configuration = configuration.filter(|id| needs_schema && node.documents.bytes(*id).is_none());
    schema.or(dictionary).or(configuration)
}

fn tell_mismatch(node: &Arc<Inner>, source: &Source, reason: &str) {
    let announced = &source.announcement;
    node.tell(&NodeEvent::Mismatch {
        topic: announced.topic.clone(),
        writer: announced.writer,
        type_name: announced.type_name.clone(),
        reason: reason.into(),
    });
}

/// What fits into an answer by the default limits.
fn cut(reason: &str) -> String {
    let end = (0..=reason.len().min(1000)).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
    reason.get(..end).unwrap_or_default().into()
}
