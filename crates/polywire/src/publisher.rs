//! Publishers: encode values and commit them to a port.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use polywire_core::{
    codec::{
        BuildError, Codec as _,
        cdr::{CDR, Cdr, XCDR2},
        stateful::Mode,
    },
    envelope::{Announcement, ChannelId, Envelope, Id128, Kind},
    frame::Start,
    layout::Message,
    program::CodecError,
    qos::{Offer, Qos},
};

use crate::{
    coding::{Bytes, Coding, Dynamic, KeyHash, Typed},
    compile,
    delta::Outgoing,
    engine::{EngineError, Loan, Sent},
    error::NodeError,
    history::{Kept, KeptSample},
    node::{Inner, Node, PortEntry, Replay, random_id},
    offered::Offered,
    packing::Packing,
    qos,
    stats::SenderCounts,
    status::{PublisherStatus, Refusing},
    topic,
    wire::Wire,
};

/// Publishes values of a Rust type.
pub type Publisher<T> = PublisherOf<Typed<T>>;

/// Publishes records of a type known at run time; [`PublisherOf::default_value`] makes them.
pub type DynPublisher = PublisherOf<Dynamic>;

/// Publishes payloads that the application has encoded.
pub type BytesPublisher = PublisherOf<Bytes>;

/// Publishes values of one [`Coding`]. Threads may share it; each publication takes a lock, and the
/// messages of one thread stay in its order.
///
/// ```
/// use polywire::{coding::Typed, Node, PublishError, Publisher, PublisherOf};
/// # use std::time::Duration;
///
/// #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
/// struct Pump { id: u32 }
///
/// let node = Node::new();
/// let pumps = node.subscriber_on::<Pump>("pumps", "cdr@inproc/publisher-doc")?;
/// let publisher: PublisherOf<Typed<Pump>> = node.publisher_on::<Pump>("pumps", "cdr@inproc/publisher-doc")?;
/// assert_eq!(publisher.topic(), "pumps");
/// publisher.hash_keys(true); // without effect: the type has no key
/// assert_eq!(publisher.wait_for_subscribers(1, Duration::from_secs(10)), 1);
/// let mut pump = publisher.default_value();
/// pump.id = 7;
/// assert_eq!(publisher.publish(&pump)?.peers, 1);
/// assert!(publisher.flush(Duration::from_secs(10)));
/// let sample = pumps.recv().unwrap();
/// assert_eq!((sample.value, sample.info.source.announcement.writer), (pump.clone(), publisher.writer()));
///
/// // A type without a key has no instances.
/// assert!(matches!(publisher.unregister(&pump), Err(PublishError::NoKey(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PublisherOf<C: Coding> {
    node: Node,
    entry: Arc<PortEntry>,
    topic: String,
    writer: Id128,
    incarnation: u64,
    coding: C,
    qos: Qos,
    state: Mutex<Sending<C::Encoder, C::Value>>,
}

struct Sending<E, V> {
    channel: ChannelId,
    /// The wire, completed by configuration and defaults.
    wire: Wire,
    refusing: Refusing,
    counts: Arc<SenderCounts>,
    writing: Writing<E>,
    last: Start,
    /// Bytes of the last payload, as a guess for the next one.
    size: usize,
    /// The version of CDR that keys are hashed in.
    cdr: &'static Cdr,
    /// Data messages are not hashed: neither `hash_data` nor `offered` needs it.
    plain: bool,
    /// Data messages have key hashes, too.
    hash_data: bool,
    /// What the quality of service asks for beside sending.
    offered: Option<Box<Offered>>,
    /// Encodes what the history keeps, if messages refer to earlier ones.
    key_frames: Option<Writing<E>>,
    hasher: Hasher<V>,
}

/// The key hasher, compiled at first use.
enum Hasher<V> {
    Unknown,
    /// The type has no key.
    None,
    Known(KeyHash<V>),
}

/// Makes the payloads of one channel.
struct Writing<E> {
    encoder: E,
    packing: Option<Packing>,
    deltas: Deltas,
}

/// Whether a channel's messages refer to earlier ones.
enum Deltas {
    /// The format is not stateful.
    None,
    /// The format is stateful, but each message here is a key frame.
    Keys,
    /// Messages refer to earlier ones.
    Stream(Box<Outgoing>),
}

impl<E> Writing<E> {
    /// Appends the payload, compressed if need be, and returns the anchor.
    #[inline]
    fn encode<C: Coding<Encoder = E>>(
        &mut self,
        sequence: u64,
        value: &C::Value,
        out: &mut Vec<u8>,
    ) -> Result<Option<u64>, CodecError> {
        let Writing { encoder, packing, deltas } = self;
        match deltas {
            Deltas::None => pack(packing, out, |out| C::encode(encoder, value, out)).map(|()| None),
            Deltas::Keys => pack(packing, out, |out| C::encode(encoder, value, out)).map(|()| Some(sequence)),
            Deltas::Stream(stream) => stream.write(sequence, |state, keep| {
                pack(packing, out, |out| C::encode_with(encoder, state, keep, value, out))
            }),
        }
    }

    /// Appends a payload that refers to no other message. True if it is a key frame.
    fn encode_alone<C: Coding<Encoder = E>>(
        &mut self,
        value: &C::Value,
        out: &mut Vec<u8>,
    ) -> Result<bool, CodecError> {
        self.failed();
        self.encode::<C>(1, value, out).map(|anchor| anchor.is_some())
    }

    /// Forgets the last message, which could not be sent.
    #[cold]
    fn failed(&mut self) {
        if let Deltas::Stream(stream) = &mut self.deltas {
            stream.failed();
        }
    }
}

#[inline]
fn pack(
    packing: &mut Option<Packing>,
    out: &mut Vec<u8>,
    encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
) -> Result<(), CodecError> {
    match packing {
        None => encode(out),
        Some(packing) => packing.pack(out, encode),
    }
}

/// Why a value was not published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The topic's format cannot represent the value, or the value exceeds a bound or limit: the
    /// error names the field. Nothing was sent.
    #[error("cannot encode: {0}")]
    Encode(CodecError),
    /// The node or the port is closed, or the message is too large for a frame.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An instance was disposed of or unregistered, and the topic's type has no key. Mark a member
    /// with `@key`.
    #[error("the type of topic '{0}' has no key, so it has no instances: mark a member with `@key`")]
    NoKey(String),
    /// A limit of the publisher's quality of service leaves no room for the message.
    ///
    /// ```
    /// use polywire::{Node, PublishError};
    /// # #[derive(Default, polywire::Message)]
    /// # struct Pump { #[polywire(key)] id: u32 }
    /// let publish = Node::new().publish::<Pump>("pumps", Some("cdr@inproc/limit-doc"))?;
    /// let publisher = publish.qos("max-instances=1".parse()?)?.open()?;
    /// publisher.publish(&Pump { id: 1 })?;
    /// assert!(matches!(publisher.publish(&Pump { id: 2 }), Err(PublishError::Limit("max-instances"))));
    /// publisher.dispose(&Pump { id: 1 })?;
    /// publisher.publish(&Pump { id: 2 })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[error("the publisher's quality of service has no room for the message: {0}")]
    Limit(&'static str),
    /// The key hash of the type cannot be computed: CDR cannot carry the key.
    #[error("no key hash: {0}")]
    Key(BuildError),
}

/// Publishers of a node.
impl Node {
    /// Makes a publisher of a Rust type, on the wire that is configured for the topic. Fails with
    /// [`NodeError::NoWire`] if none is. Compiles the encoder on the calling thread, as all these
    /// methods do.
    pub fn publisher<T: Message>(&self, topic: &str) -> Result<Publisher<T>, NodeError> {
        self.publisher_of(topic, None, Typed::default())
    }

    /// Makes a publisher of a Rust type on this wire: `"cdr@tcp/127.0.0.1:7460"`, or a part such as
    /// `"json"` or `"tcp/127.0.0.1:7502"`, which overrides the configuration and is completed by it
    /// ([`Config::wire_for`](crate::Config::wire_for)).
    pub fn publisher_on<T: Message>(&self, topic: &str, wire: &str) -> Result<Publisher<T>, NodeError> {
        self.publisher_of(topic, Some(wire), Typed::default())
    }

    /// Makes a publisher of any [`Coding`].
    pub fn publisher_of<C: Coding>(
        &self,
        topic: &str,
        wire: Option<&str>,
        coding: C,
    ) -> Result<PublisherOf<C>, NodeError> {
        self.publish_of(topic, wire, coding)?.open()
    }

    /// Publishes with options: quality of service.
    pub fn publish<T: Message>(&self, topic: &str, wire: Option<&str>) -> Result<Publish<Typed<T>>, NodeError> {
        self.publish_of(topic, wire, Typed::default())
    }

    /// Publishes values of any [`Coding`] with options.
    pub fn publish_of<C: Coding>(&self, topic: &str, wire: Option<&str>, coding: C) -> Result<Publish<C>, NodeError> {
        topic::check_publisher(topic)?;
        let (wire, entry) = self.route(topic, wire)?;
        let (node, topic) = (self.clone(), String::from(topic));
        // Configuration is for both sides; this policy is one of subscribers.
        let configured = self.qos_of(&topic).time_based_filter(Duration::ZERO);
        Publish { node, entry, topic, wire, coding, qos: Qos::default() }.qos(configured)
    }
}

/// Options of a publisher, as [`Subscribe`](crate::Subscribe) has those of a subscriber.
///
/// ```
/// use polywire::{Node, Publish, coding::{Bytes, Typed}, qos::Qos};
/// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
/// # struct Pump { #[polywire(key)] id: u32 }
/// let node = Node::new();
/// let publish: Publish<Typed<Pump>> = node.publish("pumps", Some("fast@inproc/publish-doc"))?;
/// let publisher = publish.qos(Qos::default().keep_last(1).transient_local())?.open()?;
/// [1, 2, 1].iter().try_for_each(|id| publisher.publish(&Pump { id: *id }).map(drop))?;
///
/// // A late joiner gets the last value of each instance.
/// let subscribe = node.subscribe::<Pump>("pumps", Some("cdr@inproc/publish-doc"))?;
/// let late = subscribe.qos(Qos::default().transient_local())?.open();
/// let values = [late.recv().unwrap(), late.recv().unwrap()].map(|sample| (sample.info.sequence, sample.value.id));
/// assert_eq!(values, [(2, 2), (3, 1)]);
///
/// assert_eq!(node.publish_of("bytes", Some("json@inproc/publish-doc"), Bytes::default())?.open()?.topic(), "bytes");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Publish<C: Coding> {
    node: Node,
    entry: Arc<PortEntry>,
    topic: String,
    wire: Wire,
    coding: C,
    qos: Qos,
}

impl<C: Coding> Publish<C> {
    /// Sets the quality of service that is offered, in place of the configured one. Fails if the
    /// policies are not valid, or if the engine or the node cannot keep one of them.
    ///
    /// Subscribers that request more refuse the publisher: [`PublisherOf::status`] says why.
    pub fn qos(mut self, qos: Qos) -> Result<Self, NodeError> {
        qos::check_publisher(&qos, self.entry.is_reliable())?;
        self.qos = qos;
        Ok(self)
    }

    /// The quality of service as it is now: as configured, or as [`Publish::qos`] has set it.
    ///
    /// ```
    /// use polywire::{Config, Node};
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let config = Config::parse("[topics.pumps.qos]\nlifespan = '1s'").unwrap();
    /// let publish = Node::builder().config(config).build().publish::<Pump>("pumps", Some("cdr@inproc/offered-doc"))?;
    /// assert_eq!(publish.offered().to_string(), "lifespan=1s");
    /// # Ok::<(), polywire::NodeError>(())
    /// ```
    pub fn offered(&self) -> &Qos {
        &self.qos
    }

    /// Makes the publisher.
    pub fn open(self) -> Result<PublisherOf<C>, NodeError> {
        PublisherOf::open(self)
    }
}

impl<C: Coding> PublisherOf<C> {
    fn open(publish: Publish<C>) -> Result<Self, NodeError> {
        let Publish { node, entry, topic, wire, coding, qos } = publish;
        let (writer, incarnation) = (random_id(), node.hello().incarnation);
        let start = Start { sequence: 0, timestamp_ns: now_ns() };
        let inner = node.inner();
        let announce =
            Announce { node: inner, entry: &entry, topic: &topic, writer, incarnation, coding: &coding, qos: &qos };
        let (channel, writing) = announce.channel(&wire, start)?;
        let offered = Offered::new(inner, &entry, &topic, &qos);
        let key_frames = announce.history(&wire, offered.as_deref())?;
        let counts = Arc::<SenderCounts>::default();
        entry.count_for(channel, &counts);
        let state = Mutex::new(Sending {
            channel,
            wire: wire.clone(),
            refusing: entry.refusing(channel),
            counts,
            writing,
            last: start,
            size: 0,
            cdr: cdr_of(&wire),
            plain: offered.is_none(),
            hash_data: false,
            offered,
            key_frames,
            hasher: Hasher::Unknown,
        });
        Ok(PublisherOf { node, entry, topic, writer, incarnation, coding, qos, state })
    }

    /// Sends a value to every subscriber of the topic. [`Sent`] says how many peers it goes to and
    /// how many have refused the publisher's type; [`PublisherOf::status`] says why.
    ///
    /// Encodes and writes on this thread. Blocks only while a queue with the policy
    /// [`Overflow::Block`](crate::Overflow::Block) is full: the queue of a peer, whose policy is
    /// that of the engine, or the queue of a subscriber on this node or on the same `inproc`
    /// address, which has its own policy. In an inline callback, that holds up the link on which
    /// the callback's message came.
    #[inline]
    pub fn publish(&self, value: &C::Value) -> Result<Sent, PublishError> {
        self.send(value, Kind::Data)
    }

    /// Announces that the instance with the key of `value` no longer exists. The other members of
    /// `value` do not matter.
    ///
    /// Subscribers get the value with the key's hash and [`Kind::Dispose`] as
    /// [`Info::kind`](crate::Info::kind).
    ///
    /// ```
    /// use polywire::{Kind, Node};
    /// # use std::time::Duration;
    ///
    /// #[derive(Default, polywire::Message)]
    /// struct Track { #[polywire(key)] number: u16, speed: f64 }
    ///
    /// let node = Node::new();
    /// let tracks = node.subscriber_on::<Track>("tracks", "cdr@inproc/dispose-doc").unwrap();
    /// let publisher = node.publisher_on::<Track>("tracks", "cdr@inproc/dispose-doc").unwrap();
    /// publisher.publish(&Track { number: 7, speed: 250.0 }).unwrap();
    /// publisher.dispose(&Track { number: 7, ..Track::default() }).unwrap();
    ///
    /// assert_eq!(tracks.recv().unwrap().info.kind, Kind::Data);
    /// let end = tracks.recv().unwrap();
    /// assert_eq!((end.info.kind, end.value.number), (Kind::Dispose, 7));
    /// ```
    pub fn dispose(&self, value: &C::Value) -> Result<Sent, PublishError> {
        self.send(value, Kind::Dispose)
    }

    /// Announces that this publisher will not write the instance with the key of `value` again.
    /// Other publishers may. Subscribers get [`Kind::Unregister`].
    pub fn unregister(&self, value: &C::Value) -> Result<Sent, PublishError> {
        self.send(value, Kind::Unregister)
    }

    /// Sets whether data messages carry the hash of their key, as [`dispose`](Self::dispose) and
    /// [`unregister`](Self::unregister) always send it. Receivers can then tell instances apart
    /// without decoding. Costs 16 bytes per message and the time to hash. Initially false; no
    /// effect if the type has no key.
    pub fn hash_keys(&self, with_data: bool) {
        let mut state = self.lock();
        (state.hash_data, state.plain) = (with_data, !with_data && state.offered.is_none());
    }

    #[inline]
    fn send(&self, value: &C::Value, kind: Kind) -> Result<Sent, PublishError> {
        let sent = {
            let mut state = self.lock();
            let (key_hash, instance) = match kind == Kind::Data && state.plain {
                true => (None, Id128::ZERO),
                false => self.keys(&mut state, value, kind)?,
            };
            let mut loan = self.entry.port().reserve(state.size);
            let sequence = state.last.sequence + 1;
            let encoded = state.writing.encode::<C>(sequence, value, loan.buffer());
            let anchor = encoded.map_err(PublishError::Encode)?;
            state.size = loan.payload().len();
            let last = Start { sequence, timestamp_ns: now_ns() };
            let plain = Envelope::data(state.channel, last.sequence, last.timestamp_ns);
            let envelope = Envelope { kind, key_hash, anchor, ..plain };
            let sent = match &state.offered {
                None => self.entry.commit(&envelope, loan).map_err(PublishError::Engine),
                Some(_) => self.commit_offered(&mut state, &envelope, instance, value, loan),
            };
            let sent = sent.inspect_err(|_| state.writing.failed())?;
            state.last = last;
            state.counts.count(state.size, sent.dropped);
            Sent { refused: state.refusing.peers(), ..sent }
        };
        self.entry.settle();
        Ok(sent)
    }

    /// The key hash that goes with a message, and its instance. Fails if the publisher's quality of
    /// service has no room for the instance.
    #[cold]
    fn keys(
        &self,
        state: &mut Sending<C::Encoder, C::Value>,
        value: &C::Value,
        kind: Kind,
    ) -> Result<(Option<Id128>, Id128), PublishError> {
        let key_hash = self.key_hash(state, value, kind)?;
        let instance = key_hash.unwrap_or_default();
        if let Some(offered) = &state.offered {
            offered.admit(kind, instance).map_err(PublishError::Limit)?;
        }
        Ok((key_hash.filter(|_| kind != Kind::Data || state.hash_data), instance))
    }

    /// Sends a message, and does what the quality of service asks for beside.
    #[cold]
    fn commit_offered(
        &self,
        state: &mut Sending<C::Encoder, C::Value>,
        envelope: &Envelope<'_>,
        instance: Id128,
        value: &C::Value,
        loan: Loan,
    ) -> Result<Sent, PublishError> {
        let kept = self.kept(state, envelope, instance, value, &loan)?;
        let publishing = kept.as_ref().map(|(history, _)| history.publishing());
        let sent = self.entry.commit(envelope, loan)?;
        if let Some(offered) = &mut state.offered {
            offered.published(envelope.kind, instance);
        }
        if let Some((history, sample)) = &kept {
            history.keep(envelope.sequence, sample.clone());
        }
        drop(publishing);
        Ok(sent)
    }

    /// The message as the history keeps it; `None` if it keeps none of this kind.
    #[cold]
    fn kept(
        &self,
        state: &mut Sending<C::Encoder, C::Value>,
        envelope: &Envelope<'_>,
        instance: Id128,
        value: &C::Value,
        loan: &Loan,
    ) -> Result<Option<(Arc<Kept>, KeptSample)>, PublishError> {
        let Sending { offered, key_frames, .. } = state;
        let history = offered.as_ref().and_then(|offered| offered.history.as_ref());
        let Some(history) = history.filter(|_| envelope.kind == Kind::Data) else { return Ok(None) };
        let (mut alone, mut is_key_frame) = (Vec::new(), false);
        let payload = match key_frames {
            None => loan.payload(),
            Some(writing) => {
                is_key_frame = writing.encode_alone::<C>(value, &mut alone).map_err(PublishError::Encode)?;
                &alone
            }
        };
        let sample = KeptSample {
            timestamp_ns: envelope.timestamp_ns,
            key_hash: envelope.key_hash,
            instance,
            is_key_frame,
            payload: payload.into(),
            channel: history.channel(),
        };
        Ok(Some((history.clone(), sample)))
    }

    #[cold]
    fn key_hash(
        &self,
        state: &mut Sending<C::Encoder, C::Value>,
        value: &C::Value,
        kind: Kind,
    ) -> Result<Option<Id128>, PublishError> {
        if let Hasher::Unknown = state.hasher {
            let hasher = self.coding.key_hasher(state.cdr).map_err(PublishError::Key)?;
            state.hasher = hasher.map_or(Hasher::None, Hasher::Known);
        }
        match &mut state.hasher {
            Hasher::Known(hash) => hash(value).map(Some).map_err(PublishError::Encode),
            _ if kind == Kind::Data => Ok(None),
            _ => Err(PublishError::NoKey(self.topic.clone())),
        }
    }

    /// Makes a value to fill and publish. Records to publish must come from here or be clones of
    /// such.
    pub fn default_value(&self) -> C::Value {
        self.coding.default_value()
    }

    /// Changes format and compression: `"json"`, `"cdr:be"`, `"json+zstd:3"`. Subscribers continue
    /// to receive, in order and without a gap.
    ///
    /// Compiles the encoder on the calling thread, which may take tens of milliseconds for a type
    /// of hundreds of members. Calls of [`publish`](PublisherOf::publish) wait meanwhile.
    ///
    /// Parts that `wire` leaves open do not change ([`Wire::or`]). It may name the publisher's own
    /// endpoint, as it was given or as [`Node::open`] returns it. Fails with
    /// [`NodeError::OtherEndpoint`] for another endpoint.
    pub fn set_wire(&self, wire: &str) -> Result<(), NodeError> {
        let parsed: Wire = wire.parse()?;
        if let Some(endpoint) = parsed.endpoint.as_ref().filter(|endpoint| !self.entry.is_at(endpoint)) {
            let (present, given) = (self.entry.port().endpoint(), endpoint.to_string());
            return Err(NodeError::OtherEndpoint { present, given });
        }
        let mut state = self.lock();
        let wire = parsed.or(&state.wire);
        let (channel, writing) = self.announce().channel(&wire, state.last)?;
        let key_frames = self.announce().history(&wire, state.offered.as_deref());
        let key_frames = key_frames.inspect_err(|_| self.entry.retire(channel))?;
        self.entry.count_for(channel, &state.counts);
        let old = std::mem::replace(&mut state.channel, channel);
        state.key_frames = key_frames;
        (state.writing, state.refusing) = (writing, self.entry.refusing(channel));
        (state.cdr, state.hasher) = (cdr_of(&wire), Hasher::Unknown);
        state.wire = wire;
        drop(state);
        self.entry.retire(old);
        Ok(())
    }

    /// How many peers accept the messages, and which refuse them and why.
    pub fn status(&self) -> PublisherStatus {
        let (channel, missed) = {
            let state = self.lock();
            let deadline = state.offered.as_ref().and_then(|offered| offered.deadline.as_ref());
            (state.channel, deadline.map_or(0, |deadline| deadline.missed()))
        };
        PublisherStatus { deadlines_missed: missed, ..self.entry.status(channel) }
    }

    /// Waits until at least `least` subscribers accept the messages, or `timeout`, and returns how
    /// many do. If they are too few, [`PublisherOf::status`] has the refusals.
    pub fn wait_for_subscribers(&self, least: usize, timeout: Duration) -> usize {
        let channel = self.lock().channel;
        self.entry.wait_matched(channel, least, timeout)
    }

    /// Waits until everything published has left for the peers present, or `timeout`. True if it
    /// has left.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.entry.flush(Instant::now() + timeout)
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The id of this publisher, the same for all of its wires.
    pub fn writer(&self) -> Id128 {
        self.writer
    }

    fn lock(&self) -> MutexGuard<'_, Sending<C::Encoder, C::Value>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self) -> Announce<'_, C> {
        Announce {
            node: self.node.inner(),
            entry: &self.entry,
            topic: &self.topic,
            writer: self.writer,
            incarnation: self.incarnation,
            coding: &self.coding,
            qos: &self.qos,
        }
    }
}

impl<C: Coding> Drop for PublisherOf<C> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.entry.retire(state.channel);
        self.entry.ended(&state.counts.read(&self.topic));
        if let Some(history) = state.offered.as_ref().and_then(|offered| offered.history.as_ref()) {
            history.close();
        }
    }
}

/// The parts that all channels of a publisher have in common.
struct Announce<'a, C> {
    node: &'a Arc<Inner>,
    entry: &'a PortEntry,
    topic: &'a str,
    writer: Id128,
    incarnation: u64,
    coding: &'a C,
    qos: &'a Qos,
}

impl<C: Coding> Announce<'_, C> {
    fn channel(&self, wire: &Wire, start: Start) -> Result<(ChannelId, Writing<C::Encoder>), NodeError> {
        self.channel_of(wire, start, self.writer, None)
    }

    /// Opens the history's channel for this format. If messages of the format refer to earlier
    /// ones, gives what encodes those that do not.
    fn history(&self, wire: &Wire, offered: Option<&Offered>) -> Result<Option<Writing<C::Encoder>>, NodeError> {
        let Some(history) = offered.and_then(|offered| offered.history.as_ref()) else { return Ok(None) };
        // A writer of its own: its messages wait for the answer to this channel alone.
        let (channel, writing) = self.channel_of(wire, Start::default(), random_id(), Some(self.writer))?;
        history.opened(channel);
        let replay: Weak<dyn Replay> = Arc::downgrade(&(history.clone() as Arc<dyn Replay>));
        self.entry.serve_history(channel, replay);
        Ok(Some(writing).filter(|writing| !matches!(writing.deltas, Deltas::None)))
    }

    fn channel_of(
        &self,
        wire: &Wire,
        start: Start,
        writer: Id128,
        history_of: Option<Id128>,
    ) -> Result<(ChannelId, Writing<C::Encoder>), NodeError> {
        let packing = self.packing(wire)?;
        let chosen = self.node.codec(&wire.codec.name, &wire.codec.options)?;
        let codec = &*chosen.codec;
        let failed = |cause| NodeError::Codec { codec: codec.name().into(), cause };
        let encoder = compile::timed(|| self.coding.encoder(codec, &chosen.options)).map_err(failed)?;
        let schema = self.coding.schema();
        let announcement = Announcement {
            topic: self.topic.into(),
            writer,
            incarnation: self.incarnation,
            type_name: schema.map_or_else(String::new, |schema| schema.name().into()),
            type_hash: schema.map_or(Id128::ZERO, |schema| Id128(schema.type_hash().to_bytes())),
            schema: schema.map_or(Id128::ZERO, |schema| self.node.documents.publish(schema)),
            codec: codec.name().into(),
            options: chosen.options.to_string(),
            compressor: packing.as_ref().map_or_else(String::new, |packing| packing.announced.clone()),
            configuration: codec.configuration().map(|document| self.node.documents.publish_bytes(document)),
            offer: Offer { qos: self.qos.clone(), history_of }.to_bytes(),
        };
        let channel = self.entry.announce(&announcement, start)?;
        let deltas = match C::writer_state(&encoder) {
            None if codec.properties().stateful => Deltas::Keys,
            None => Deltas::None,
            Some(state) => {
                let keeps_all = if self.entry.keeps_all() { Mode::Chained } else { Mode::Anchored };
                let requests = self.entry.key_requests(channel);
                let mode = chosen.mode.unwrap_or(keeps_all);
                Deltas::Stream(Box::new(Outgoing::new(state, mode, chosen.key_interval, requests)))
            }
        };
        Ok((channel, Writing { encoder, packing, deltas }))
    }

    /// The compressor of payloads; `None` if the wire asks for no compression. Peers can fetch the
    /// dictionary from the node.
    fn packing(&self, wire: &Wire) -> Result<Option<Packing>, NodeError> {
        let Some(choice) = &wire.compressor else { return Ok(None) };
        let Some((packing, dictionary)) = Packing::of(self.node.compressor(&choice.name)?, choice)? else {
            return Ok(None);
        };
        if let Some(dictionary) = dictionary {
            self.node.documents.publish_bytes(dictionary);
        }
        Ok(Some(packing))
    }
}

/// The version of CDR that keys are hashed in: XCDR2 on topics in XCDR2, and `cdr` on all others.
fn cdr_of(wire: &Wire) -> &'static Cdr {
    if wire.codec.name == XCDR2.name() { &XCDR2 } else { &CDR }
}

fn now_ns() -> i64 {
    // A clock before 1970 or after 2262 is wrong either way.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i64)
}
