//! Publishers: encode values and send them at one endpoint or several.

mod channels;
mod sending;
mod time;
mod writing;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use polywire_core::{
    codec::BuildError,
    envelope::{Extensions, Id128, Kind},
    layout::Message,
    program::CodecError,
    qos::{Offer, Qos},
};

pub(crate) use self::{
    channels::Role,
    sending::{Core, Given},
    writing::Writing,
};
use crate::{
    builtin, clock,
    coding::{Bytes, Coding, Dynamic, Typed},
    engine::{EngineError, LinkId, Sent},
    error::NodeError,
    node::{Node, Place, Watcher, random_id},
    qos,
    status::PublisherStatus,
    wire::{self, Wire},
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
    core: Arc<Core<C>>,
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

/// Why not all values of a call were published.
///
/// ```
/// use polywire::{Node, PublishAllError, PublishError};
/// # #[derive(Clone, Default, polywire::Message)]
/// # struct Text { #[polywire(idl = "string<3>")] text: String }
/// let publisher = Node::new().publisher_on::<Text>("texts", "cdr@inproc/publish-all-error-doc")?;
/// let texts = ["one", "four", "two"].map(|text| Text { text: text.into() });
/// let PublishAllError { published, cause } = publisher.publish_all(&texts).unwrap_err();
/// assert_eq!(published, 1);
/// assert!(matches!(cause, PublishError::Encode(_)));
/// # Ok::<(), polywire::NodeError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{published} values were published; the next one was not: {cause}")]
pub struct PublishAllError {
    /// The number of values that were published: the first ones of the call, and no others.
    pub published: usize,
    /// Why the next value was not published.
    pub cause: PublishError,
}

/// Publishers of a node.
impl Node {
    /// Makes a publisher of a Rust type, on the wire that is configured for the topic. Fails with
    /// [`NodeError::NoWire`] if none is configured. Compiles the encoder on the calling thread, as
    /// do all methods that make publishers.
    pub fn publisher<T: Message>(&self, topic: &str) -> Result<Publisher<T>, NodeError> {
        self.publisher_of(topic, None, Typed::default())
    }

    /// Makes a publisher of a Rust type on this wire: `"cdr@tcp/127.0.0.1:7460"`, or a part such as
    /// `"json"` or `"tcp/127.0.0.1:7502"`, which overrides the configuration and is completed by it
    /// ([`Config::wires_for`](crate::Config::wires_for)).
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

    /// Returns the options of a publisher of a Rust type, such as its quality of service.
    pub fn publish<T: Message>(&self, topic: &str, wire: Option<&str>) -> Result<Publish<Typed<T>>, NodeError> {
        self.publish_of(topic, wire, Typed::default())
    }

    /// Returns the options of a publisher of any [`Coding`].
    pub fn publish_of<C: Coding>(&self, topic: &str, wire: Option<&str>, coding: C) -> Result<Publish<C>, NodeError> {
        builtin::check_publisher(topic)?;
        let given: Vec<Wire> = wire.map(str::parse).transpose()?.into_iter().collect();
        let places = self.places_for(topic, &given)?;
        let (node, topic) = (self.clone(), String::from(topic));
        // The configuration applies to publishers and subscribers; this policy is only for
        // subscribers.
        let configured = self.qos_of(&topic).time_based_filter(Duration::ZERO);
        Publish { node, places, given, topic, coding, qos: Qos::default(), role: Role::Publisher, writer: random_id() }
            .qos(configured)
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
    places: Vec<Place>,
    /// The wires given in code, which may be incomplete or none. A reloaded configuration completes
    /// them again.
    given: Vec<Wire>,
    topic: String,
    coding: C,
    qos: Qos,
    /// Whose messages the publisher sends, and whether they may refer to earlier ones.
    role: Role,
    writer: Id128,
}

impl<C: Coding> Publish<C> {
    /// Publishes at one more endpoint, at the same time. Each message has the same writer and
    /// sequence number everywhere, so a subscriber at several endpoints gets it once. Endpoints
    /// with the same format and compressor get the same bytes, which are made once, unless messages
    /// of the format refer to earlier ones.
    ///
    /// Parts that `wire` leaves open come from the first wire. Fails with
    /// [`NodeError::SameEndpoint`] if the publisher already has the endpoint, with another format.
    ///
    /// ```
    /// use polywire::Node;
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let node = Node::new();
    /// let here = node.subscriber_on::<Pump>("pumps", "inproc/publish-also-a")?;
    /// let there = node.subscriber_on::<Pump>("pumps", "inproc/publish-also-b")?;
    /// let publish = node.publish::<Pump>("pumps", Some("cdr@inproc/publish-also-a"))?;
    /// publish.also("json@inproc/publish-also-b")?.open()?.publish(&Pump { id: 7 })?;
    /// let codecs = [here, there].map(|pumps| pumps.recv().unwrap().info.source.announcement.codec.clone());
    /// assert_eq!(codecs, ["cdr", "json"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn also(mut self, wire: &str) -> Result<Self, NodeError> {
        self.places = self.node.and_place(self.places, wire)?;
        self.given = self.places.iter().map(|place| place.wire.clone()).collect();
        Ok(self)
    }

    /// Sets the quality of service that is offered, in place of the configured one. Fails if the
    /// policies are not valid, or if the engine or the node cannot keep one of them.
    ///
    /// Subscribers that request more refuse the publisher: [`PublisherOf::status`] says why.
    pub fn qos(mut self, qos: Qos) -> Result<Self, NodeError> {
        let is_reliable = self.places.iter().any(|place| place.entry.properties().reliable);
        qos::check_publisher(&qos, is_reliable)?;
        self.qos = qos;
        Ok(self)
    }

    /// The quality of service that will be offered: as configured, or as set by [`Publish::qos`].
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

    /// The id that the publisher will have.
    pub(crate) fn writer(&self) -> Id128 {
        self.writer
    }

    /// Makes each message readable without any other message, whatever the format.
    pub(crate) fn alone(self) -> Self {
        Publish { role: Role::Calls, ..self }
    }

    /// Makes the publisher.
    pub fn open(self) -> Result<PublisherOf<C>, NodeError> {
        PublisherOf::open(self)
    }
}

impl<C: Coding> PublisherOf<C> {
    fn open(publish: Publish<C>) -> Result<Self, NodeError> {
        let Publish { node, places, given, topic, coding, qos, role, writer } = publish;
        let ids = (writer, node.hello().incarnation);
        let offer = Offer { qos, ..Offer::default() };
        let core = Core::open(node.inner(), topic, ids, coding, offer, role, (places, given))?;
        let user: Weak<Core<C>> = Arc::downgrade(&core);
        node.inner().add_user(user);
        Ok(PublisherOf { node, core })
    }

    /// Sends a value to every subscriber of the topic. [`Sent`] says how many peers it goes to and
    /// how many have refused the publisher's type; [`PublisherOf::status`] says why.
    ///
    /// Encodes and writes on this thread. Blocks only while a queue with the policy
    /// [`Overflow::Block`](crate::Overflow::Block) is full: the queue of a peer, whose policy is
    /// that of the engine, or the queue of a subscriber on this node or on the same `inproc`
    /// address, which has its own policy. In an inline callback, that blocks the link on which the
    /// callback's message arrived.
    ///
    /// In a burst, and within [`Node::together`], up to 8 messages that are written together may
    /// have the same time of publication.
    #[inline]
    pub fn publish(&self, value: &C::Value) -> Result<Sent, PublishError> {
        self.core.send(value, Kind::Data)
    }

    /// Publishes values one after the other, as [`PublisherOf::publish`] does with each of them.
    /// Costs much less for each value if they are small: locks are taken and the clock is read once
    /// for up to 256 values or 64 KiB. These have the same time of publication and are written
    /// together.
    ///
    /// The numbers of [`Sent`] are sums over all values. Stops at the first value that cannot be
    /// published; the values before it are published. Messages that other threads publish meanwhile
    /// may be sent between those of this call. Blocks as `publish` does.
    ///
    /// ```
    /// use polywire::Node;
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let node = Node::new();
    /// let pumps = node.subscriber_on::<Pump>("pumps", "cdr@inproc/publish-all-doc")?;
    /// let publisher = node.publisher_on::<Pump>("pumps", "cdr@inproc/publish-all-doc")?;
    /// let sent = publisher.publish_all(&[1, 2, 3].map(|id| Pump { id }))?;
    /// assert_eq!((sent.peers, sent.dropped), (3, 0));
    /// let came = [(); 3].map(|()| pumps.recv().unwrap().info.sequence);
    /// assert_eq!(came, [1, 2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn publish_all(&self, values: &[C::Value]) -> Result<Sent, PublishAllError> {
        self.core.send_all(values)
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
        self.core.send(value, Kind::Dispose)
    }

    /// Announces that this publisher will not write the instance with the key of `value` again.
    /// Other publishers may. Subscribers get [`Kind::Unregister`].
    pub fn unregister(&self, value: &C::Value) -> Result<Sent, PublishError> {
        self.core.send(value, Kind::Unregister)
    }

    /// Asserts that the publisher is alive, without publishing. With [`Liveliness::ManualByTopic`],
    /// the application calls this or publishes at least once in each lease. Does nothing without a
    /// lease. Fails if the port is closed. Blocks as [`PublisherOf::publish`] does.
    ///
    /// [`Liveliness::ManualByTopic`]: crate::qos::Liveliness::ManualByTopic
    ///
    /// ```
    /// use polywire::{Node, NodeEvent};
    /// # use std::time::Duration;
    /// # #[derive(Default, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let node = Node::new();
    /// let publish = node.publish::<Pump>("pumps", Some("cdr@inproc/assert-doc"))?;
    /// let publisher = publish.qos("liveliness=manual-by-topic,lease=100ms".parse()?)?.open()?;
    /// let events = node.events();
    /// let pumps = node.subscriber_on::<Pump>("pumps", "cdr@inproc/assert-doc")?;
    /// let mut changes = std::iter::from_fn(|| loop {
    ///     match events.recv_timeout(Duration::from_secs(60))? {
    ///         NodeEvent::LivelinessChanged { alive, .. } => return Some(alive),
    ///         _ => continue,
    ///     }
    /// });
    /// assert_eq!(changes.next(), Some(false), "its lease lapses");
    /// publisher.assert_liveliness()?;
    /// assert_eq!(changes.next(), Some(true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn assert_liveliness(&self) -> Result<(), PublishError> {
        self.core.assert_liveliness()
    }

    /// Sends a message with extensions, and with the value if there is one. `before` is called with
    /// the sequence number before any peer can receive the message; it must not call the publisher.
    pub(crate) fn send_call(
        &self,
        value: Option<&C::Value>,
        kind: Kind,
        extensions: Extensions<'_>,
        before: impl FnOnce(u64),
    ) -> Result<Sent, PublishError> {
        self.core.send_call(value, kind, extensions, before)
    }

    /// Whether the peer on a link has accepted the messages.
    pub(crate) fn is_taken(&self, link: LinkId) -> bool {
        self.core.is_taken(link)
    }

    /// The wires on which the publisher publishes, without those that it is leaving.
    #[cfg(feature = "tracing")]
    pub(crate) fn wires(&self) -> Vec<Wire> {
        self.core.wires()
    }

    /// Returns why no subscriber of the peer on a link can read the messages. `None` if the peer
    /// has not refused them.
    pub(crate) fn refusal(&self, link: LinkId) -> Option<String> {
        self.core.refusal(link)
    }

    /// Returns the reason of a peer that refuses the messages now. `None` if no peer refuses them.
    pub(crate) fn refused(&self) -> Option<String> {
        self.core.refused()
    }

    /// Notifies `watcher` of later answers to the present channels.
    pub(crate) fn watch_answers(&self, watcher: &Weak<dyn Watcher>) {
        self.core.watch_answers(watcher);
    }

    /// The node.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Sets whether data messages carry the hash of their key, as [`dispose`](Self::dispose) and
    /// [`unregister`](Self::unregister) always send it. Receivers can then distinguish instances
    /// without decoding. Costs 16 bytes per message and the time to hash. Initially false; no
    /// effect if the type has no key.
    pub fn hash_keys(&self, with_data: bool) {
        self.core.hash_keys(with_data);
    }

    /// Makes a value to fill and publish. Records to publish must be made by this method, or be
    /// clones of such records.
    pub fn default_value(&self) -> C::Value {
        self.core.coding.default_value()
    }

    /// Changes format, compression or endpoint: `"json"`, `"json+zstd:3"`,
    /// `"fast@udp/239.1.2.3:7400"`. Subscribers continue to receive, in order and without a gap, as
    /// long as the engines are reliable. Parts that `wire` leaves open do not change
    /// ([`wire::complete`]). [`PublisherOf::set_wires`] is for several endpoints.
    ///
    /// ```
    /// use polywire::{Node, NodeEvent};
    /// # use std::time::Duration;
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let node = Node::new();
    /// let pumps = node.subscriber_on::<Pump>("pumps", "inproc/set-wire-doc-old")?;
    /// let publisher = node.publisher_on::<Pump>("pumps", "cdr@inproc/set-wire-doc-old")?;
    /// publisher.publish(&Pump { id: 1 })?;
    /// let events = node.events();
    /// publisher.set_wire("json@inproc/set-wire-doc-new")?;
    /// publisher.publish(&Pump { id: 2 })?;
    /// // The subscriber follows, and then the publisher leaves the old endpoint.
    /// while !matches!(events.recv_timeout(Duration::from_secs(60)), Some(NodeEvent::Moved { left_behind: 0, .. })) {}
    /// publisher.publish(&Pump { id: 3 })?;
    /// let samples = [pumps.recv().unwrap(), pumps.recv().unwrap(), pumps.recv().unwrap()];
    /// assert_eq!(samples.clone().map(|sample| sample.value.id), [1, 2, 3]);
    /// assert_eq!(samples[2].info.source.announcement.codec, "json");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_wire(&self, wire: &str) -> Result<(), NodeError> {
        self.set_wires(&[wire])
    }

    /// Moves the publisher to other endpoints, or changes its format at the present ones.
    ///
    /// The publisher publishes at the new endpoints at once. At endpoints that are not in the list,
    /// it announces where it has moved to, and continues to publish until every peer that reads it
    /// there reads it at one of the new endpoints, for at most 10 s. Then it leaves them, which
    /// [`NodeEvent::Moved`] reports. A message that a subscriber receives at both endpoints counts
    /// once. Subscribers follow as far as their node may
    /// ([`Config::follow`](crate::Config::follow)). Subscribers that join later at the old endpoint
    /// follow as well, as long as this publisher exists.
    ///
    /// Compiles encoders on the calling thread, which may take tens of milliseconds for a type of
    /// hundreds of members. If this fails, nothing has changed.
    ///
    /// ```
    /// use polywire::{Message, Node};
    ///
    /// #[derive(Clone, Debug, Default, PartialEq, Message)]
    /// struct Pump { id: u32 }
    ///
    /// let node = Node::new();
    /// let (here, there) = ("inproc/set-wires-doc", "inproc/set-wires-doc-2");
    /// let pumps = node.subscriber_on::<Pump>("pumps", here)?;
    /// let publisher = node.publisher_on::<Pump>("pumps", &format!("cdr@{here}"))?;
    /// publisher.publish(&Pump { id: 7 })?;
    /// // In two formats at two endpoints. The subscriber follows, as it is in the same process.
    /// publisher.set_wires(&[&format!("json@{there}"), &format!("cdr@{here}")])?;
    /// publisher.publish(&Pump { id: 8 })?;
    /// assert_eq!([7, 8], [(); 2].map(|()| pumps.recv().unwrap().value.id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`NodeEvent::Moved`]: crate::NodeEvent::Moved
    pub fn set_wires(&self, wires: &[&str]) -> Result<(), NodeError> {
        let given = wires.iter().map(|wire| wire.parse()).collect::<Result<Vec<Wire>, _>>()?;
        let wires = wire::complete(&given, &self.core.wires());
        self.core.move_to(self.node.places_of(&wires)?, wires)
    }

    /// How many peers accept the messages, and which refuse them and why. A peer at several
    /// endpoints counts once; each of its refusals is listed.
    pub fn status(&self) -> PublisherStatus {
        self.core.status()
    }

    /// Waits until at least `least` subscribers accept the messages, for at most `timeout`, and
    /// returns how many accept them. If these are too few, [`PublisherOf::status`] has the
    /// refusals.
    pub fn wait_for_subscribers(&self, least: usize, timeout: Duration) -> usize {
        self.core.wait_for_subscribers(least, timeout)
    }

    /// Waits until all published messages have left this node for the peers present, for at most
    /// `timeout`. Returns true if they have left.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.core.flush(clock::deadline(timeout))
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.core.topic
    }

    /// The id of this publisher, the same for all of its wires.
    pub fn writer(&self) -> Id128 {
        self.core.writer
    }
}

impl<C: Coding> Drop for PublisherOf<C> {
    fn drop(&mut self) {
        self.core.close();
    }
}
