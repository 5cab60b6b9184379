//! One link as the node sees it: its channels, and the subscribers that each goes to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Start},
    schema::Schema,
};

use super::{Inner, PortEntry, limits::Exceeded};
use crate::{
    delta::Asking,
    engine::{Held, LinkInfo, LinkSink},
    events::NodeEvent,
    packing::{self, Unpacking},
    status::Mismatch,
};

/// How often a peer is asked again for a document that it says it does not have. A relay says so
/// when the writer that it asked has left, and may know another one by now.
const ASK_AGAIN: u32 = 5;
/// Requests that a link keeps in mind, open channels or not: more than channels can name at a time.
const ASKED: usize = 16_384;
/// The pause before it is asked again for the first time; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// A subscriber, as channels see it.
pub(crate) trait Route: Send + Sync {
    fn topic(&self) -> &str;
    /// Whether it has to know the writer's schema.
    fn needs_schema(&self) -> bool;
    /// Gets ready for a channel, or says why it cannot be read. `schema` is the writer's; none
    /// where the writer has none to give.
    fn open(&self, node: &Arc<Inner>, source: &Source, schema: Option<&Schema>) -> Result<Arc<dyn Slot>, String>;
    /// It cannot read a channel.
    fn refused(&self, mismatch: Mismatch);
    /// The node has closed: nothing comes any more.
    fn node_closed(&self);
}

/// A subscriber's end of one channel.
pub(crate) trait Slot: Send + Sync {
    /// `wire_bytes` is what the payload took before it was unpacked; `held` says where the payload
    /// may be held, if it may.
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
    /// Documents that the peer was asked for.
    asked: BTreeMap<Id128, Asked>,
}

/// Requests for a document on this link.
#[derive(Default)]
struct Asked {
    /// Not answered yet. Answers name the document and not the request, so one may be late: the
    /// writer that it is about has left, and another one of the same type has come and was
    /// asked for.
    open: u32,
    /// Answers that the peer does not have it.
    denied: u32,
}

type Refused = Vec<(Weak<dyn Route>, String)>;
type Slots = Arc<Vec<(Arc<dyn Route>, Arc<dyn Slot>)>>;

struct Channel {
    source: Source,
    /// What the announcement takes of the node's limit.
    _announced: Announced,
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

/// Bytes of an announcement that is held.
struct Announced {
    bytes: usize,
    total: Arc<AtomicUsize>,
}

impl Announced {
    fn admit(node: &Inner, announcement: &Announcement) -> Result<Announced, Exceeded> {
        let a = announcement;
        let texts = [&a.topic, &a.type_name, &a.codec, &a.options, &a.compressor];
        let bytes = size_of::<Channel>() + texts.iter().map(|text| text.len()).sum::<usize>();
        let (total, limit) = (node.announced_bytes.clone(), node.limits.announced_bytes);
        let used = total.fetch_add(bytes, Ordering::Relaxed);
        let announced = Announced { bytes, total };
        match used.saturating_add(bytes) > limit {
            // What was added goes with it.
            true => Err(Exceeded::Announcements { used, bytes, limit }),
            false => Ok(announced),
        }
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
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

    /// The port is open now.
    pub(super) fn reconsider_all(&self) {
        self.decide_on(|_| true);
        self.sources().iter().for_each(|source| self.fetch_for_others(&source.announcement));
    }

    /// Channels that the subscriber reads and cannot read.
    pub(super) fn matches(&self, route: &Arc<dyn Route>) -> (usize, usize) {
        let reads = |channel: &&Channel| channel.slots.iter().any(|(other, _)| Arc::ptr_eq(other, route));
        let refuses = |channel: &&Channel| is_among(&channel.refused, route).is_some();
        let state = self.lock();
        (state.channels.values().filter(reads).count(), state.channels.values().filter(refuses).count())
    }

    /// A document that the channel waits for is late, or may be asked for once more.
    pub(super) fn expire(&self, channel: ChannelId) {
        let mut state = self.lock();
        let State { channels, asked, .. } = &mut *state;
        let Some(known) = channels.get_mut(&channel) else { return };
        let Some((document, deadline)) = known.fetching else { return };
        if deadline > Instant::now() {
            let ask = state.ask(document);
            drop(state);
            if let Some(entry) = self.entry.upgrade().filter(|_| ask) {
                entry.port().want(self.link.id, document);
            }
            return;
        }
        known.fetching = None;
        known.unfetched = Some(match asked.get(&document) {
            Some(asked) if asked.denied > 0 => lacking(document),
            _ => format!("the document {document} of the writer did not come in time"),
        });
        if !channels.values().any(|other| other.fetching.is_some_and(|(id, _)| id == document)) {
            asked.remove(&document);
        }
        state.todo.insert(channel);
        self.work(state);
    }

    /// A document came, over whatever link.
    pub(super) fn document_came(&self, document: Id128) {
        {
            let mut state = self.lock();
            state.asked.remove(&document);
            let named = |channel: &&mut Channel| documents(&channel.source.announcement).contains(&Some(document));
            for channel in state.channels.values_mut().filter(named) {
                channel.fetching.take_if(|(id, _)| *id == document);
                if channel.unfetched.take().is_some() {
                    channel.refused.clear();
                }
            }
        }
        self.decide_on(|channel| documents(&channel.source.announcement).contains(&Some(document)));
    }

    /// Asks for the documents of a channel that other peers may ask this node for, so that they are
    /// here when the writer leaves.
    fn fetch_for_others(&self, announcement: &Announcement) {
        let Some(entry) = self.entry.upgrade() else { return };
        let Some(port) = entry.open_port().filter(|port| port.relays()) else { return };
        let known = entry.documents();
        for document in documents(announcement).into_iter().flatten().filter(|id| !known.has(*id)) {
            let ask = self.lock().ask(document);
            if ask {
                port.want(self.link.id, document);
            }
        }
    }

    fn decide_on(&self, which: impl Fn(&Channel) -> bool) {
        let mut state = self.lock();
        let chosen: Vec<_> = state.channels.iter().filter(|(_, channel)| which(channel)).map(|(id, _)| *id).collect();
        state.todo.extend(chosen);
        self.work(state);
    }

    /// Decides on what is to be decided, unless a thread is at it already; that may be this one,
    /// further up.
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
        let needs_schema = routes.iter().any(|route| route.needs_schema());
        let schema = needs_schema.then(|| node.documents.schema(source.announcement.schema)).flatten();
        let unpacking = self.unpacking(&node, channel, &source);
        let (mut slots, mut refusals) = (Vec::new(), Vec::new());
        for route in &routes {
            if let Some(kept) = before.iter().find(|(other, _)| Arc::ptr_eq(other, route)) {
                slots.push(kept.clone());
                continue;
            }
            match is_among(&refused, route) {
                Some(reason) => refusals.push((route.clone(), reason.clone())),
                None => match unpacking
                    .clone()
                    .and_then(|()| self.open_slot(&node, channel, route, &source, schema.as_ref()))
                {
                    Ok(slot) => slots.push((route.clone(), slot)),
                    Err(reason) => {
                        tell_mismatch(&node, &source, &**route, &reason);
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
        let (waits, ask) = {
            let mut state = self.lock();
            let Some(known) = state.channels.get_mut(&channel) else { return false };
            if known.unfetched.is_some() {
                return true;
            }
            let waits = known.fetching.is_none_or(|(id, _)| id != document);
            if waits {
                known.fetching = Some((document, Instant::now() + node.fetch_timeout));
            }
            (waits, waits && state.ask(document))
        };
        if waits {
            node.timer.at(node.fetch_timeout + Duration::from_millis(1), &self.entry, self.link.id, channel);
        }
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
        let made = node.unpacking(&source.announcement.compressor).map_err(|e| unfetched.unwrap_or(e))?;
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
        schema: Option<&Result<Schema, String>>,
    ) -> Result<Arc<dyn Slot>, String> {
        let unfetched = self.lock().channels.get(&channel).and_then(|known| known.unfetched.clone());
        match unfetched {
            Some(reason) if route.needs_schema() && (schema.is_none() || !self.is_configured(node, source)) => {
                Err(reason)
            }
            _ if !route.needs_schema() => route.open(node, source, None),
            _ => route.open(node, source, schema.map(Result::as_ref).transpose()?),
        }
    }

    /// The document that configures the codec is there, if there is one.
    fn is_configured(&self, node: &Inner, source: &Source) -> bool {
        source.announcement.configuration.is_none_or(|id| node.documents.has(id))
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

    /// The peer does not have a document that it announced. Other peers and later ones may: the
    /// writer may have left, and the relay between may have another by now.
    fn denied(&self, entry: &PortEntry, document: Id128, reason: &str, ask_again: u32) {
        let (again, denied) = {
            let mut state = self.lock();
            let State { channels, asked, todo, .. } = &mut *state;
            let Some(known) = asked.get_mut(&document) else { return };
            known.open = known.open.saturating_sub(1);
            if known.open > 0 {
                return;
            }
            known.denied += 1;
            let denied = known.denied;
            let waits = |channel: &Channel| channel.fetching.is_some_and(|(id, _)| id == document);
            if denied > ask_again {
                for (id, channel) in channels.iter_mut().filter(|(_, channel)| waits(channel)) {
                    channel.fetching = None;
                    channel.unfetched = Some(reason.to_owned());
                    todo.insert(*id);
                }
            }
            let again = channels.iter().find(|(_, channel)| waits(channel)).map(|(id, _)| *id);
            if again.is_none() {
                asked.remove(&document);
            }
            (again, denied)
        };
        match (again, entry.node()) {
            (Some(channel), Some(node)) => {
                node.timer.at(FIRST_PAUSE * (1 << (denied - 1)), &self.entry, self.link.id, channel);
            }
            _ => self.work(self.lock()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// True if the document has to be asked for, which the caller does then: no answer is due.
    fn ask(&mut self, document: Id128) -> bool {
        if self.asked.len() >= ASKED {
            let named = self.channels.values().flat_map(|channel| documents(&channel.source.announcement));
            let named: BTreeSet<Id128> = named.flatten().collect();
            self.asked.retain(|document, _| named.contains(document));
        }
        let asked = self.asked.entry(document).or_default();
        let ask = asked.open == 0;
        asked.open += u32::from(ask);
        ask
    }
}

impl Channel {
    fn snapshot(&self) -> (Source, Slots, Refused) {
        (self.source.clone(), self.slots.clone(), self.refused.clone())
    }
}

impl LinkSink for Incoming {
    fn announced(&self, channel: ChannelId, _: Start, announcement: &Announcement) {
        let Some(entry) = self.entry.upgrade() else { return };
        let Some(node) = entry.node() else { return };
        let announced = match Announced::admit(&node, announcement) {
            Ok(announced) => announced,
            Err(exceeded) => {
                entry.answer(self.link.id, channel, Answer::Refuse(exceeded.to_string()));
                return;
            }
        };
        let mut state = self.lock();
        let known = Channel {
            source: Source { announcement: Arc::new(announcement.clone()), link: self.link.clone() },
            _announced: announced,
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
        self.fetch_for_others(announcement);
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
        let slots = self.lock().channels.get(&channel).map(|channel| channel.slots.clone());
        slots.unwrap_or_default().iter().for_each(|(_, slot)| slot.lost(start.sequence, lost));
    }

    fn retired(&self, channel: ChannelId) {
        let gone = self.lock().channels.remove(&channel);
        gone.iter().flat_map(|channel| channel.slots.iter()).for_each(|(_, slot)| slot.drained());
    }

    /// Also while the node goes, as long as the port is there: what was published last may wait for
    /// this.
    fn wanted(&self, document: Id128) {
        if let Some(entry) = self.entry.upgrade() {
            let bytes = entry.documents().bytes(document);
            entry.port().supply(self.link.id, document, bytes.as_deref());
        }
    }

    fn supplied(&self, document: Id128, bytes: Option<&[u8]>) {
        let Some(entry) = self.entry.upgrade() else { return };
        if !self.lock().asked.contains_key(&document) {
            return;
        }
        match bytes.map(|bytes| entry.documents().receive(document, bytes)) {
            Some(Ok(())) => entry.document_came(document),
            // A peer that sends something else will not do better.
            Some(Err(reason)) => self.denied(&entry, document, &reason, 0),
            None => self.denied(&entry, document, &lacking(document), ASK_AGAIN),
        }
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
        drop(channels);
        if let Some(entry) = self.entry.upgrade() {
            entry.link_down(self.link.id);
            if let Some(node) = entry.node() {
                node.decoders.trim();
            }
        }
    }
}

fn lacking(document: Id128) -> String {
    format!("whoever was asked does not have the writer's document {document}: the writer may have left")
}

/// What a channel's announcement names: the writer's schema, the compressor's dictionary, and what
/// configures the codec.
fn documents(announced: &Announcement) -> [Option<Id128>; 3] {
    let schema = Some(announced.schema).filter(|schema| !schema.is_zero());
    [schema, packing::dictionary(&announced.compressor), announced.configuration]
}

/// The first document that these subscribers need and the node does not have.
fn missing(node: &Inner, announced: &Announcement, routes: &[Arc<dyn Route>]) -> Option<Id128> {
    let [schema, dictionary, configuration] = documents(announced);
    let needs_schema = routes.iter().any(|route| route.needs_schema());
    let schema = schema.filter(|id| needs_schema && !node.documents.has(*id));
    let dictionary = dictionary.filter(|id| !routes.is_empty() && !node.documents.has(*id));
    let configuration = configuration.filter(|id| needs_schema && !node.documents.has(*id));
    schema.or(dictionary).or(configuration)
}

/// Why the subscriber cannot read the channel, if it cannot.
fn is_among<'a>(refused: &'a Refused, route: &Arc<dyn Route>) -> Option<&'a String> {
    let same = |other: &&(Weak<dyn Route>, String)| other.0.upgrade().is_some_and(|o| Arc::ptr_eq(&o, route));
    refused.iter().find(same).map(|(_, reason)| reason)
}

fn tell_mismatch(node: &Arc<Inner>, source: &Source, route: &dyn Route, reason: &str) {
    let Announcement { topic, writer, type_name, .. } = &*source.announcement;
    route.refused(Mismatch { writer: *writer, type_name: type_name.clone(), reason: reason.into() });
    node.tell(&NodeEvent::Mismatch {
        topic: topic.clone(),
        writer: *writer,
        type_name: type_name.clone(),
        reason: reason.into(),
    });
}

/// What fits into an answer by the default limits.
fn cut(reason: &str) -> String {
    let end = (0..=reason.len().min(1000)).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
    reason.get(..end).unwrap_or_default().into()
}
