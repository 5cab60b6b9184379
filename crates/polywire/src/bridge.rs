//! Bridges forward topics between two endpoints, which may differ in engine, formats and reach.
//!
//! A bridge announces each writer of one endpoint at the other endpoint, with the same writer id
//! and sequence numbers. So a subscriber that receives a writer over several bridges, or also
//! directly, gets each message once. The offer lists the bridges that a channel has passed. A
//! bridge does not forward a channel that it has forwarded before, nor a writer that it receives at
//! the other endpoint over as many bridges or fewer.

mod history;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    directory::SubscriberData,
    envelope::{Announcement, ChannelId, Envelope, Extensions, Id128, Kind},
    frame::Start,
    layout::Record,
    qos::{Durability, Liveliness, MAX_BRIDGES, Offer},
    ros::TypeHash,
    schema::Schema,
    topic::{Pattern, TopicError},
};

use self::history::{Conversion, ForwardedHistory};
use crate::{
    Info,
    builtin::is_builtin,
    clock,
    coding::Dynamic,
    delta::Requests,
    engine::{Properties, Sent, SharedPayload},
    error::NodeError,
    node::{Inner, Node, Place, PortEntry, Route, Slot, Source, Wake},
    publisher::{Core, Given, Role},
    stats::TopicStats,
    subscriber::decoding_route,
    unwind::restoring,
    wire::{Choice, Wire},
    writers::{Disposition, Follow, LOOK_EVERY, Missing, Writers},
};

/// The most messages, and bytes of payloads, of one writer that wait for earlier messages on other
/// channels.
const ROOM: (usize, usize) = (4096, 64 << 20);

/// Options of a bridge.
pub struct BridgeBuilder {
    node: Node,
    ends: [Place; 2],
    /// For each end, whether its wire names a format, to which payloads are converted.
    converts: [bool; 2],
    topics: Vec<Pattern>,
    assumed: Option<Schema>,
    both: bool,
}

/// Forwards topics between two endpoints until it is dropped.
///
/// ```
/// use polywire::{Bridge, BridgeStatus, Node, bridge::{BridgeBuilder, WayStatus}};
/// # use std::time::Duration;
/// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
/// # struct Pump { id: u32 }
/// let (here, there) = (Node::new(), Node::new());
/// let builder: BridgeBuilder = Node::new().bridge("inproc/bridge-doc-a", "json@inproc/bridge-doc-b")?;
/// let bridge: Bridge = builder.topics(["plant/**"])?.one_way().open();
/// let pumps = there.subscriber_on::<Pump>("plant/pump", "inproc/bridge-doc-b")?;
/// let publisher = here.publisher_on::<Pump>("plant/pump", "cdr@inproc/bridge-doc-a")?;
/// publisher.publish(&Pump { id: 7 })?;
/// let sample = pumps.recv_timeout(Duration::from_secs(60)).expect("it comes");
/// let announced = &sample.info.source.announcement;
/// assert_eq!((sample.value.id, announced.codec.as_str(), announced.writer), (7, "json", publisher.writer()));
/// let status: BridgeStatus = bridge.status();
/// let there: WayStatus = status.there;
/// assert_eq!((there.channels, there.messages, there.unread, status.back.messages), (1, 1, 0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Bridge {
    node: Node,
    directions: Vec<Arc<Direction>>,
}

/// What a bridge has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BridgeStatus {
    /// From the first endpoint to the second.
    pub there: WayStatus,
    /// From the second endpoint to the first.
    pub back: WayStatus,
}

/// What a bridge has done in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WayStatus {
    /// Channels that the bridge forwards now.
    pub channels: usize,
    /// Channels that the bridge could not forward, since it was opened.
    pub refused: u64,
    /// Messages forwarded to at least one receiver.
    pub messages: u64,
    /// Bytes of their payloads as received.
    pub bytes: u64,
    /// Messages that arrived while no subscriber was known at the other end.
    pub unread: u64,
    /// Messages that did not reach the bridge, or that it could not forward.
    pub lost: u64,
}

impl Node {
    /// Makes a bridge between the endpoints of two wires. If a wire names a format, the bridge
    /// converts all payloads for its endpoint to this format. If a wire is an endpoint alone, the
    /// bridge forwards payloads as they are.
    pub fn bridge(&self, from: &str, to: &str) -> Result<BridgeBuilder, NodeError> {
        let wires: [Wire; 2] = [from.parse()?, to.parse()?];
        let converts = [!wires[0].is_auto(), !wires[1].is_auto()];
        let mut places = self.places_of(&wires[..1])?;
        places.extend(self.places_of(&wires[1..])?);
        let Ok(ends) = <[Place; 2]>::try_from(places) else { return Err(NodeError::NoWire(from.into())) };
        if Arc::ptr_eq(&ends[0].entry, &ends[1].entry) {
            return Err(NodeError::SameEndpoint { first: from.into(), second: to.into() });
        }
        let all = "**".parse()?;
        Ok(BridgeBuilder { node: self.clone(), ends, converts, topics: vec![all], assumed: None, both: true })
    }
}

impl BridgeBuilder {
    /// Forwards only the topics that fit one of these patterns. By default, all are forwarded.
    pub fn topics<'a>(mut self, patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, TopicError> {
        self.topics = patterns.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Sets the schema of writers that announce none, such as programs that are not Polywire's. If
    /// such a writer announces no format either, the bridge assumes the format of the wire of its
    /// endpoint. Without this schema, the messages cannot be converted: the bridge forwards them as
    /// they are to an endpoint alone, and refuses the writer for a wire with a format.
    ///
    /// ```
    /// use polywire::{Message, Node, coding::Bytes};
    /// # use std::time::Duration;
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let (here, there, node) = (Node::new(), Node::new(), Node::new());
    /// let bridge = node.bridge("json@inproc/bridge-assume-a", "cbor@inproc/bridge-assume-b")?;
    /// let _bridge = bridge.assume(Pump::shape().schema().clone()).open();
    /// let pumps = there.subscriber_on::<Pump>("pumps", "inproc/bridge-assume-b")?;
    /// // A publisher of bytes has no schema.
    /// let publisher = here.publisher_of("pumps", Some("json@inproc/bridge-assume-a"), Bytes::default())?;
    /// publisher.publish(&br#"{"id":7}"#.to_vec())?;
    /// let sample = pumps.recv_timeout(Duration::from_secs(60)).expect("it comes");
    /// assert_eq!((sample.value.id, sample.info.source.announcement.codec.as_str()), (7, "cbor"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn assume(mut self, schema: Schema) -> Self {
        self.assumed = Some(schema);
        self
    }

    /// Forwards only from the first endpoint to the second.
    pub fn one_way(mut self) -> Self {
        self.both = false;
        self
    }

    /// Makes the bridge.
    pub fn open(self) -> Bridge {
        let [a, b] = self.ends;
        let direction = |from: &Place, to: &Place, converts| {
            Arc::new_cyclic(|this| Direction {
                this: this.clone(),
                node: self.node.clone(),
                from: from.entry.clone(),
                to: to.clone(),
                converts,
                assumed: self.assumed.clone().map(|schema| (schema, from.wire.codec.clone())),
                topics: self.topics.clone(),
                reverse: OnceLock::new(),
                state: Mutex::default(),
                writers: Arc::default(),
                counts: Counts::default(),
            })
        };
        let mut directions = vec![direction(&a, &b, self.converts[1])];
        if self.both {
            let (there, back) = (directions[0].clone(), direction(&b, &a, self.converts[0]));
            let _ = (there.reverse.set(Arc::downgrade(&back)), back.reverse.set(Arc::downgrade(&there)));
            directions.push(back);
        }
        directions.iter().for_each(|direction| direction.from.add_route(direction.clone()));
        Bridge { node: self.node, directions }
    }
}

impl Bridge {
    /// Returns what the bridge has done so far.
    pub fn status(&self) -> BridgeStatus {
        let of = |at: usize| self.directions.get(at).map(|direction| direction.status()).unwrap_or_default();
        BridgeStatus { there: of(0), back: of(1) }
    }

    /// The node whose ports the bridge uses.
    pub fn node(&self) -> &Node {
        &self.node
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        for direction in &self.directions {
            let route: Arc<dyn Route> = direction.clone();
            direction.from.remove_route(&route);
        }
    }
}

/// A writer in any incarnation: the incarnation of a DDS program differs between the nodes that
/// discover it. The applications of some engines are writers without an id. Only their topic tells
/// them apart; for all other writers, the text is empty.
type Writer = (Id128, String);

fn writer_of(announced: &Announcement) -> Writer {
    let topic = if announced.writer.is_zero() { announced.topic.clone() } else { String::new() };
    (announced.writer, topic)
}

/// One direction of a bridge.
struct Direction {
    this: Weak<Direction>,
    node: Node,
    from: Arc<PortEntry>,
    to: Place,
    converts: bool,
    /// The schema of writers that announce no schema, and the format of writers that announce none.
    assumed: Option<(Schema, Choice)>,
    topics: Vec<Pattern>,
    /// The other direction.
    reverse: OnceLock<Weak<Direction>>,
    state: Mutex<State>,
    writers: Arc<Writers<Waiting>>,
    counts: Counts,
}

#[derive(Default)]
struct State {
    /// The open channels of each writer, each as the number of bridges that it has passed.
    heard: BTreeMap<Writer, Vec<usize>>,
    /// Topics whose channels the other direction must decide on again.
    changed: BTreeSet<String>,
    /// The histories that this direction announces at the other end.
    histories: Vec<Weak<ForwardedHistory>>,
    /// Topics with histories that are requested, or have arrived.
    asked: BTreeSet<String>,
}

#[derive(Default)]
struct Counts {
    refused: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
    unread: AtomicU64,
    lost: AtomicU64,
}

impl Direction {
    fn status(&self) -> WayStatus {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WayStatus {
            channels: self.lock().heard.values().map(Vec::len).sum(),
            refused: count(&self.counts.refused),
            messages: count(&self.counts.messages),
            bytes: count(&self.counts.bytes),
            unread: count(&self.counts.unread),
            lost: count(&self.counts.lost),
        }
    }

    /// Returns the fewest bridges over which this direction receives a writer.
    fn nearest(&self, writer: &Writer) -> Option<usize> {
        self.lock().heard.get(writer).and_then(|all| all.iter().min().copied())
    }

    /// Records that this direction receives a writer, until the returned guard is dropped.
    fn hear(self: &Arc<Self>, source: &Source, hops: usize) -> Heard {
        let announced = &source.announcement;
        let heard =
            Heard { direction: self.clone(), writer: writer_of(announced), hops, topic: announced.topic.clone() };
        self.lock().heard.entry(heard.writer.clone()).or_default().push(hops);
        self.changed(&heard.topic);
        heard
    }

    /// Makes the other direction decide again on the channels of a topic. This happens on the
    /// timer's thread, because this direction may be deciding at this moment.
    fn changed(&self, topic: &str) {
        if self.reverse.get().is_none() {
            return;
        }
        self.lock().changed.insert(topic.into());
        let this: Weak<Direction> = self.this.clone();
        self.node.inner().timer.at(clock::now(), this);
    }

    /// Decides again, on the timer's thread, which histories of a topic are read.
    fn ask(&self, topic: &str) {
        self.lock().asked.insert(topic.into());
        let this: Weak<Direction> = self.this.clone();
        self.node.inner().timer.at(clock::now(), this);
    }

    /// Returns the histories that this direction announces at the other end.
    fn histories(&self) -> Vec<Arc<ForwardedHistory>> {
        let mut state = self.lock();
        state.histories.retain(|history| history.strong_count() > 0);
        state.histories.iter().filter_map(Weak::upgrade).collect()
    }

    /// Counts a message by the result of sending it at the other end: `None` if it could not be
    /// sent.
    fn sent(&self, bytes: usize, sent: Option<Sent>) {
        let Counts { messages, unread, lost, .. } = &self.counts;
        let counter = match sent {
            Some(Sent { peers, others, .. }) if peers + others > 0 => {
                self.counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                messages
            }
            Some(Sent { dropped: 0, .. }) => unread,
            _ => lost,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Checks whether payloads are forwarded as received.
    fn keeps_format(&self, announced: &Announcement) -> bool {
        !self.converts
            || (self.to.wire.codec.name == announced.codec
                && self.to.wire.compressor.is_none()
                && announced.compressor.is_empty()
                && self.to.wire.codec.options.is_empty())
    }

    /// Opens a channel at the other end with the writer's announcement, to forward payloads as
    /// received.
    fn pass(
        self: &Arc<Self>,
        node: &Inner,
        source: &Source,
        medium: Properties,
        offer: &Offer,
        heard: Heard,
    ) -> Result<Arc<dyn Slot>, String> {
        let announced = &source.announcement;
        let codec = node.announced_codec(&announced.codec, &announced.options, announced.configuration);
        let is_stateful = codec.is_ok_and(|chosen| chosen.codec.properties().stateful);
        let announcement = Announcement { offer: offer.to_bytes(), ..Announcement::clone(announced) };
        let channel = self.to.entry.announce(&announcement, Start::default()).map_err(|error| error.to_string())?;
        let mut passing = Passing {
            channel,
            is_stateful,
            requests: self.to.entry.key_requests(channel),
            wanted: AtomicBool::new(false),
            follow: Follow::new(&self.writers, announced, medium.ordered).with_gaps(offer.has_gaps),
            heard,
            history: None,
        };
        if offer.qos.durability == Durability::TransientLocal {
            passing.history =
                Some(ForwardedHistory::open(self, announced, passing.heard.hops, offer, announcement, None)?);
        }
        Ok(Arc::new(passing))
    }

    /// Opens a channel at the other end in the format of that end's wire.
    fn convert(
        self: &Arc<Self>,
        node: &Arc<Inner>,
        source: &Source,
        medium: Properties,
        offer: Offer,
        schema: Option<&Schema>,
        heard: Heard,
    ) -> Result<Arc<dyn Slot>, String> {
        let announced = &source.announcement;
        let assumed = self.assumed.as_ref().map(|(schema, _)| schema);
        let of_values =
            schema.or(assumed).ok_or("the writer announces no schema, so its messages cannot be converted")?;
        let coding = Dynamic::of(of_values).map_err(|error| error.to_string())?;
        let ids = (announced.writer, announced.incarnation);
        let places = (vec![self.to.clone()], Vec::new());
        let core = Core::open(node, announced.topic.clone(), ids, coding.clone(), offer.clone(), Role::Bridge, places);
        let mut writer = Converted { core: core.map_err(|error| error.to_string())?, heard, history: None };
        if offer.qos.durability == Durability::TransientLocal {
            let (announcement, alone) =
                writer.core.announce().key_frames(&self.to.wire).map_err(|error| error.to_string())?;
            let conversion = Conversion::new(coding.clone(), alone);
            writer.history = Some(ForwardedHistory::open(
                self,
                announced,
                writer.heard.hops,
                &offer,
                announcement,
                Some(conversion),
            )?);
        }
        let direction = self.clone();
        let convert = move |value: &Record, info: &Info| {
            let at = Start { sequence: info.sequence, timestamp_ns: info.timestamp_ns };
            let given = Given { at, key_hash: info.key_hash };
            direction.sent(info.bytes, writer.core.send_as(value, info.kind, Some(given)).ok());
        };
        self.decode(node, source, medium, schema, coding, convert)
    }

    /// Opens the writer's channel, and hands its decoded values to a callback.
    fn decode(
        &self,
        node: &Arc<Inner>,
        source: &Source,
        medium: Properties,
        schema: Option<&Schema>,
        coding: Dynamic,
        callback: impl FnMut(&Record, &Info) + Send + 'static,
    ) -> Result<Arc<dyn Slot>, String> {
        let announced = &source.announcement;
        let codec = self.assumed.as_ref().map(|(_, codec)| codec.clone());
        let route = decoding_route(&self.node, &announced.topic, coding, codec, callback);
        // The offer says which type a writer without a schema has in ROS 2.
        let Offer { ros_type, has_gaps, .. } = Offer::parse(&announced.offer).unwrap_or_default();
        let offer = Offer { ros_type, has_gaps, ..Offer::default() };
        route.map_err(|error| error.to_string())?.open(node, source, medium, &offer, schema)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Route for Direction {
    fn of_topic(&self, topic: &str) -> Option<Arc<dyn Route>> {
        let this: Arc<dyn Route> = self.this.upgrade().filter(|_| self.wants(topic))?;
        Some(this)
    }

    fn wants(&self, topic: &str) -> bool {
        // Built-in topics are not forwarded: each node describes only itself.
        !is_builtin(topic) && self.topics.iter().any(|pattern| pattern.fits(topic))
    }

    fn topic(&self) -> &str {
        self.topics.first().map_or("", Pattern::as_str)
    }

    /// Returns `None`: a bridge is not a subscriber of the application.
    fn describe(&self) -> Option<SubscriberData> {
        None
    }

    fn stats(&self) -> Option<TopicStats> {
        None
    }

    fn is_of(&self, whole: &Arc<dyn Route>) -> bool {
        std::ptr::addr_eq(self, Arc::as_ptr(whole))
    }

    fn needs_schema(&self) -> bool {
        true
    }

    fn lacks(&self, told: TypeHash) -> bool {
        let assumed = self.assumed.as_ref().and_then(|(schema, _)| TypeHash::of(schema).ok());
        assumed != Some(told)
    }

    fn concerns(&self, announced: &Announcement, offer: &Offer) -> bool {
        if offer.history_of.is_some() {
            return self.histories().iter().any(|history| history.wants(announced, offer));
        }
        let own = self.node.hello().node;
        let writer = writer_of(announced);
        // A writer without an id that no bridge has forwarded is not one of the other end.
        let is_of_this_end = announced.writer.is_zero() && offer.via.is_empty();
        let is_nearer = |reverse: Arc<Direction>| reverse.nearest(&writer).is_some_and(|hops| hops <= offer.via.len());
        let comes_from_there = || !is_of_this_end && self.reverse.get().and_then(Weak::upgrade).is_some_and(is_nearer);
        let is_beside = offer.is_auxiliary() || !offer.moved_to.is_empty();
        !is_beside && offer.via.len() < MAX_BRIDGES && !offer.via.contains(&own) && !comes_from_there()
    }

    /// Does nothing: a bridge stays at its endpoints.
    fn follow(&self, _: &Source, _: &[String]) {}

    fn open(
        &self,
        node: &Arc<Inner>,
        source: &Source,
        medium: Properties,
        offer: &Offer,
        schema: Option<&Schema>,
    ) -> Result<Arc<dyn Slot>, String> {
        let this = self.this.upgrade().ok_or("the bridge is going")?;
        let announced = &source.announcement;
        if offer.history_of.is_some() {
            let history = this.histories().into_iter().find(|history| history.wants(announced, offer));
            let history = history.ok_or("nobody asks for the history any more")?;
            return history.slot(&this, node, source, medium, schema);
        }
        let heard = this.hear(source, offer.via.len());
        let via = offer.via.iter().copied().chain([self.node.hello().node]).collect();
        // The bridge does not forward the writer's assertions of liveliness.
        let mut qos = offer.qos.clone();
        (qos.liveliness, qos.lease) = (Liveliness::Automatic, None);
        // Nor does it forward the history of a writer without an id, which the history could not
        // name.
        if announced.writer.is_zero() {
            qos.durability = Durability::Volatile;
        }
        let offer = Offer { qos, via, has_gaps: offer.has_gaps, ..Offer::default() };
        match this.keeps_format(announced) {
            true => this.pass(node, source, medium, &offer, heard),
            false => this.convert(node, source, medium, offer, schema, heard),
        }
    }

    fn refused(&self, _: &Source, _: &str) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn missed(&self, count: u64) {
        self.counts.lost.fetch_add(count, Ordering::Relaxed);
    }

    fn node_closed(&self) {}
}

impl Wake for Direction {
    fn wake(&self) {
        // After a panic of a callback, the timer wakes this direction again for the rest.
        restoring(|| self.look_again(), || self.look());
    }
}

impl Direction {
    /// Passes on the messages that need not wait any longer, and decides again on what has changed.
    fn look(&self) {
        self.writers.give_up(clock::now(), |missing, waiting| waiting.pass_on(self, missing));
        if self.writers.is_any_holding() {
            self.look_again();
        }
        let changed = std::mem::take(&mut self.lock().changed);
        if let Some(reverse) = self.reverse.get().and_then(Weak::upgrade) {
            changed.iter().for_each(|topic| reverse.from.reconsider_topic(topic));
        }
        let asked = std::mem::take(&mut self.lock().asked);
        for topic in asked {
            let arrived = |history: &Arc<ForwardedHistory>| history.topic() == topic && history.has_come();
            let arrived: Vec<_> = self.histories().into_iter().filter(arrived).collect();
            // Leaves the history channels whose history has arrived, and opens those that are
            // requested. A history that arrives meanwhile is left by another call.
            self.from.reconsider_topic(&topic);
            if arrived.iter().filter(|history| history.begins_again()).count() > 0 {
                self.from.reconsider_topic(&topic);
            }
        }
    }

    /// Sets the timer to look at the messages that wait, unless it wakes this direction earlier.
    fn look_again(&self) {
        let this: Weak<Direction> = self.this.clone();
        self.node.inner().timer.at(clock::now().saturating_add(LOOK_EVERY), this);
    }
}

/// Stands for a channel that a bridge forwards: an entry of `State::heard`.
struct Heard {
    direction: Arc<Direction>,
    writer: Writer,
    hops: usize,
    topic: String,
}

impl Drop for Heard {
    fn drop(&mut self) {
        let mut state = self.direction.lock();
        if let Some(all) = state.heard.get_mut(&self.writer) {
            if let Some(at) = all.iter().position(|hops| *hops == self.hops) {
                all.remove(at);
            }
            if all.is_empty() {
                state.heard.remove(&self.writer);
            }
        }
        drop(state);
        self.direction.changed(&self.topic);
    }
}

/// The writer of converted messages at the other end.
struct Converted {
    core: Arc<Core<Dynamic>>,
    heard: Heard,
    /// The writer's history, if it keeps one.
    history: Option<Arc<ForwardedHistory>>,
}

impl Drop for Converted {
    fn drop(&mut self) {
        self.core.close();
    }
}

/// A channel whose payloads are forwarded as received.
struct Passing {
    channel: ChannelId,
    is_stateful: bool,
    /// Requests for key frames that arrive from the other end.
    requests: Requests,
    /// Whether a key frame was requested and has not arrived yet.
    wanted: AtomicBool,
    follow: Follow<Waiting>,
    heard: Heard,
    /// The writer's history, if it keeps one.
    history: Option<Arc<ForwardedHistory>>,
}

/// A message that waits for earlier messages on other channels.
struct Waiting {
    channel: ChannelId,
    kind: Kind,
    start: Start,
    key_hash: Option<Id128>,
    anchor: Option<u64>,
    extensions: Vec<u8>,
    payload: Vec<u8>,
}

impl Waiting {
    fn of(channel: ChannelId, envelope: &Envelope<'_>, payload: &[u8]) -> Waiting {
        Waiting {
            channel,
            kind: envelope.kind,
            start: Start { sequence: envelope.sequence, timestamp_ns: envelope.timestamp_ns },
            key_hash: envelope.key_hash,
            anchor: envelope.anchor,
            extensions: envelope.extensions.bytes().to_vec(),
            payload: payload.to_vec(),
        }
    }

    fn pass_on(&self, direction: &Direction, missing: Missing) {
        direction.counts.lost.fetch_add(missing.count, Ordering::Relaxed);
        let plain = Envelope::data(self.channel, self.start.sequence, self.start.timestamp_ns);
        // The extensions were parsed when the message arrived, so parsing cannot fail.
        let extensions = Extensions::parse(&self.extensions).unwrap_or_default();
        let envelope = Envelope { kind: self.kind, key_hash: self.key_hash, anchor: self.anchor, extensions, ..plain };
        direction.sent(self.payload.len(), direction.to.entry.send(&envelope, &self.payload).ok());
        direction.to.entry.settle();
    }
}

impl Passing {
    fn send(&self, envelope: &Envelope<'_>, payload: &[u8]) {
        let direction = &self.heard.direction;
        let envelope = Envelope { channel: self.channel, ..*envelope };
        direction.sent(payload.len(), direction.to.entry.send(&envelope, payload).ok());
        direction.to.entry.settle();
    }

    fn release(&self) {
        self.follow.release(|missing, waiting| waiting.pass_on(&self.heard.direction, missing));
    }

    fn tell_lost(&self, missing: Missing) {
        self.heard.direction.counts.lost.fetch_add(missing.count, Ordering::Relaxed);
    }
}

impl Slot for Passing {
    fn deliver(&self, envelope: &Envelope<'_>, payload: &[u8], _: usize, _: Option<SharedPayload<'_>>) {
        if envelope.anchor == Some(envelope.sequence) {
            self.wanted.store(false, Ordering::Relaxed);
        }
        match self.follow.on_message(envelope.sequence) {
            Disposition::Deliver(missing) => {
                self.tell_lost(missing);
                restoring(|| self.follow.panicked(envelope.sequence), || self.send(envelope, payload));
                if self.follow.done(envelope.sequence) {
                    self.release();
                }
            }
            Disposition::Hold => {
                let waiting = Waiting::of(self.channel, envelope, payload);
                self.follow.hold(envelope.sequence, waiting, payload.len(), ROOM);
                // Set first: a callback may panic.
                self.heard.direction.look_again();
                self.release();
            }
            // Later messages of the channel may refer to it. Subscribers drop duplicates.
            Disposition::Drop if self.is_stateful => self.send(envelope, payload),
            Disposition::Drop => {}
        }
    }

    fn takes_packed(&self) -> bool {
        true
    }

    fn is_stream(&self) -> bool {
        self.is_stateful
    }

    fn needs_key_frame(&self) -> bool {
        if self.is_stateful && self.requests.take() {
            self.wanted.store(true, Ordering::Relaxed);
        }
        self.wanted.load(Ordering::Relaxed)
    }

    fn lost(&self, sequence: u64, count: u64) {
        self.tell_lost(self.follow.on_loss_report(sequence, count));
        self.release();
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.tell_lost(self.follow.end());
        self.release();
        self.heard.direction.to.entry.retire(self.channel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_wait_set_the_timer_once() {
        let node = Node::new();
        let builder = node.bridge("inproc/bridge-waits-a", "inproc/bridge-waits-b").expect("two endpoints");
        let bridge = builder.one_way().open();
        (0..4096).for_each(|_| bridge.directions[0].look_again());
        assert!(node.inner().timer.entries() <= 1);
    }
}
