//! Subscribers: receive by blocking calls, as an iterator, as a `futures` stream, or by callback.

mod alive;
mod inline;
mod places;
mod route;
mod rules;
mod slot;
pub(crate) mod take;

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Envelope, Id128, Kind},
    layout::{Message, Record},
    qos::{History, InstanceState, Qos, Reliability},
    schema::Schema,
    topic::{Pattern, TopicError},
};

use self::{
    inline::Inline,
    places::Places,
    route::{Assumed, Counts, Delivery, RouteOf},
    take::Take,
};
use crate::{
    clock,
    coding::{Coding, Typed},
    engine::Overflow,
    error::NodeError,
    node::{Node, Place, PortEntry, Route, Source},
    qos,
    queue::{Depth, Queue, QueueLimits, Weighed},
    status::SubscriberStatus,
    wire::{Choice, Wire},
};

/// The default for the number of messages that may wait for a subscriber.
const QUEUE: usize = 4096;

/// The default for the bytes of memory that the waiting messages may take.
const QUEUE_BYTES: usize = 64 << 20;
/// A received message.
///
/// ```
/// use polywire::{Info, Node, Sample};
/// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
/// # struct Pump { id: u32 }
/// let node = Node::new();
/// let pumps = node.subscriber_on::<Pump>("pumps", "cdr@inproc/sample-doc")?;
/// node.publisher_on::<Pump>("pumps", "cdr@inproc/sample-doc")?.publish(&Pump { id: 7 })?;
/// let Sample { value, info } = pumps.recv().unwrap();
/// let Info { sequence, bytes, .. } = info;
/// assert_eq!((value.id, sequence, bytes), (7, 1, 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Members of the types [`SharedStr`](crate::SharedStr) and [`SharedBytes`](crate::SharedBytes) are
/// not copied: they refer to the buffer in which the message arrived, and keep it alive. A message
/// that is small compared to the buffer is copied as a whole.
///
/// ```
/// use polywire::{Node, SharedBytes, SharedStr};
///
/// #[derive(Default, polywire::Message)]
/// struct Picture { title: SharedStr, pixels: SharedBytes }
///
/// let node = Node::new();
/// let pictures = node.subscriber_on::<Picture>("pictures", "cdr@inproc/camera").unwrap();
/// let publisher = node.publisher_on::<Picture>("pictures", "cdr@inproc/camera").unwrap();
/// publisher.publish(&Picture { title: "sky".into(), pixels: vec![7; 64].into() }).unwrap();
///
/// let picture = pictures.recv().unwrap().value;
/// assert!(picture.pixels.is_shared() && &*picture.title == "sky");
/// ```
#[derive(Clone, Debug)]
pub struct Sample<V> {
    /// The value.
    pub value: V,
    /// The message's metadata.
    pub info: Info,
}

/// The metadata of a message.
#[derive(Clone, Debug)]
pub struct Info {
    /// Sequence number of the writer's message, from 1.
    pub sequence: u64,
    /// Time of publication by the writer's clock, in nanoseconds since 1970.
    pub timestamp_ns: i64,
    /// Whether this is data or the end of an instance. At an end only the key members of the value
    /// are meaningful; the value is a default value if the writer sent the key's hash alone.
    pub kind: Kind,
    /// Hash of the key, if the writer sent it.
    pub key_hash: Option<Id128>,
    /// In a stateful format, the sequence number of the key frame that the message refers to, or
    /// its own if it is one; `None` if it refers to the message before it.
    pub anchor: Option<u64>,
    /// Bytes of the payload on the wire, compressed if the topic is.
    pub bytes: usize,
    /// The state of the instance after this message. `None` unless the subscriber distinguishes
    /// instances ([`Subscribe::instances`]).
    pub instance: Option<InstanceState>,
    /// The writer's announcement and the link.
    pub source: Arc<Source>,
}

impl Info {
    /// Makes the metadata of a message from `source`, whose payload has so many `bytes` on the
    /// wire.
    #[inline]
    fn new(envelope: &Envelope<'_>, bytes: usize, source: Arc<Source>) -> Info {
        let Envelope { sequence, timestamp_ns, kind, key_hash, anchor, .. } = *envelope;
        Info { sequence, timestamp_ns, kind, key_hash, anchor, bytes, instance: None, source }
    }

    /// Replaces the metadata by that of another message from the same source.
    #[inline]
    fn set(&mut self, envelope: &Envelope<'_>, bytes: usize) {
        let Envelope { sequence, timestamp_ns, kind, key_hash, anchor, .. } = *envelope;
        (self.sequence, self.timestamp_ns, self.kind) = (sequence, timestamp_ns, kind);
        (self.key_hash, self.anchor, self.bytes) = (key_hash, anchor, bytes);
    }

    /// The topic of the message. If the subscriber has a pattern, messages may have different
    /// topics.
    pub fn topic(&self) -> &str {
        &self.source.announcement.topic
    }
}

/// Options of a subscription. [`Subscribe::open`] makes a queue to receive from,
/// [`Subscribe::on_message`] and [`Subscribe::on_message_inline`] install a callback.
///
/// ```
/// use polywire::{coding::Typed, Node, Subscribe, Subscription};
/// # use std::{sync::mpsc, time::Duration};
/// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
/// # struct Pump { id: u32 }
/// let node = Node::new();
/// let (send, received) = mpsc::channel();
/// let inline = send.clone();
/// let subscribe: Subscribe<Typed<Pump>> = node.subscribe::<Pump>("pumps", Some("cdr@inproc/subscribe-doc"))?;
/// let queued: Subscription = subscribe.on_message(move |pump, _| send.send(("queued", pump.id)).unwrap())?;
/// let subscribe = node.subscribe::<Pump>("pumps", Some("cdr@inproc/subscribe-doc"))?;
/// let _inline = subscribe.on_message_inline(move |pump, _| inline.send(("inline", pump.id)).unwrap());
///
/// node.publisher_on::<Pump>("pumps", "cdr@inproc/subscribe-doc")?.publish(&Pump { id: 7 })?;
/// let mut both: Vec<_> = received.iter().take(2).collect();
/// both.sort();
/// assert_eq!(both, [("inline", 7), ("queued", 7)]);
/// assert_eq!((queued.lost(), queued.undecodable()), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Subscribe<C: Coding> {
    node: Node,
    places: Vec<Place>,
    /// The wires given in code, which may be incomplete or none. A reloaded configuration completes
    /// them again.
    given: Vec<Wire>,
    topic: Pattern,
    coding: C,
    queue: QueueLimits,
    /// Which bounds of the queue were set explicitly. The policies of history and reliability do
    /// not change these; `max_samples` limits them all the same.
    named: Named,
    assumed: Assumed,
    qos: Qos,
    instances: bool,
}

/// Which bounds of the queue were set explicitly, by code or by the configuration.
#[derive(Clone, Copy, Debug)]
struct Named {
    messages: bool,
    overflow: bool,
}

/// Subscribers of a node.
impl Node {
    /// Makes a subscriber at the endpoints that are configured for the topic. It reads every
    /// format.
    ///
    /// `topic` may also be a [`Pattern`]: `plant/*/pump`, `plant/**`. The subscriber then receives
    /// all topics that match, including those that appear later; [`Info::topic`] is the topic of a
    /// message. Quality of service applies to each topic separately, the bounds of the queue to all
    /// topics together. Each writer whose type does not fit is refused separately.
    ///
    /// ```
    /// use polywire::{Config, Node};
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let config = Config::parse("[node]\nwire = 'cdr@inproc/patterns-doc'")?;
    /// let node = Node::builder().config(config).build();
    /// let pumps = node.subscriber::<Pump>("plant/*/pump")?;
    /// node.publisher::<Pump>("plant/3/pump")?.publish(&Pump { id: 7 })?;
    /// let sample = pumps.recv().unwrap();
    /// assert_eq!((sample.info.topic(), sample.value.id), ("plant/3/pump", 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn subscriber<T: Message>(&self, topic: &str) -> Result<Subscriber<T>, NodeError> {
        Ok(self.subscribe::<T>(topic, None)?.open())
    }

    /// Makes a subscriber at the endpoint of this wire. It reads every format, whichever one the
    /// wire names.
    pub fn subscriber_on<T: Message>(&self, topic: &str, wire: &str) -> Result<Subscriber<T>, NodeError> {
        Ok(self.subscribe::<T>(topic, Some(wire))?.open())
    }

    /// Returns the options of a subscription: size and overflow policy of the queue, callbacks.
    pub fn subscribe<T: Message>(&self, topic: &str, wire: Option<&str>) -> Result<Subscribe<Typed<T>>, NodeError> {
        self.subscribe_of(topic, wire, Typed::default())
    }

    /// Returns the options of a subscription with any [`Coding`].
    pub fn subscribe_of<C: Coding>(
        &self,
        topic: &str,
        wire: Option<&str>,
        coding: C,
    ) -> Result<Subscribe<C>, NodeError> {
        let pattern: Pattern = topic.parse()?;
        let given: Vec<Wire> = wire.map(str::parse).transpose()?.into_iter().collect();
        let places = self.places_for(topic, &given)?;
        // The configuration applies to publishers and subscribers; this policy is only for
        // publishers.
        let mut configured = self.qos_of(topic);
        configured.lifespan = None;
        Subscribe::new(self, (places, given), pattern, coding).qos(configured)
    }
}

/// Subscribers of the built-in topics.
impl Node {
    /// Subscribes at a port that is open.
    pub(crate) fn subscribe_at<C: Coding>(&self, entry: &Arc<PortEntry>, topic: Pattern, coding: C) -> Subscribe<C> {
        let place = Place { wire: Wire::default(), entry: entry.clone() };
        Subscribe::new(self, (vec![place], Vec::new()), topic, coding)
    }
}

impl<C: Coding> Subscribe<C> {
    fn new(node: &Node, (places, given): (Vec<Place>, Vec<Wire>), topic: Pattern, coding: C) -> Self {
        let configured = node.config().topic(topic.as_str());
        let queue = QueueLimits {
            messages: configured.queue.unwrap_or(QUEUE),
            bytes: configured.queue_bytes.unwrap_or(QUEUE_BYTES),
            overflow: configured.overflow.unwrap_or_default(),
            depth: None,
        };
        let named = Named { messages: configured.queue.is_some(), overflow: configured.overflow.is_some() };
        // A route that decodes for a bridge has no place.
        let codec = places.first().map(|place| place.wire.codec.clone()).unwrap_or_else(|| Wire::default().codec);
        Subscribe {
            node: node.clone(),
            places,
            given,
            topic,
            coding,
            queue,
            named,
            assumed: Assumed { codec, schema: None },
            qos: Qos::default(),
            instances: false,
        }
    }

    /// Receives at one more endpoint, at the same time. A message that arrives at several endpoints
    /// counts once, and the order of each writer is kept. A message that arrives before its
    /// predecessors waits for them for at most 5 s, if they may still arrive at another endpoint.
    ///
    /// ```
    /// use polywire::Node;
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let node = Node::new();
    /// let subscribe = node.subscribe::<Pump>("pumps", Some("cdr@inproc/subscribe-also-a"))?;
    /// let pumps = subscribe.also("inproc/subscribe-also-b")?.open();
    /// let publish = node.publish::<Pump>("pumps", Some("cdr@inproc/subscribe-also-a"))?;
    /// let publisher = publish.also("json@inproc/subscribe-also-b")?.open()?;
    /// assert_eq!(publisher.publish(&Pump { id: 7 })?.peers, 2, "once at each endpoint");
    /// assert_eq!(pumps.recv().unwrap().value.id, 7);
    /// assert!(pumps.try_recv().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn also(mut self, wire: &str) -> Result<Self, NodeError> {
        self.places = self.node.and_place(self.places, wire)?;
        self.given = self.places.iter().map(|place| place.wire.clone()).collect();
        Ok(self)
    }

    /// Sets the schema of writers that announce none, such as programs that are not Polywire nodes.
    /// The default is the subscriber's own schema. A writer that announces no format either is
    /// assumed to have the format of the topic's wire. Such a writer may have an older version of
    /// the type: CDR values of appendable types may then lack their last members.
    ///
    /// ```
    /// use polywire::{coding::Bytes, schema::Schema, Message, Node};
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let node = Node::new();
    /// let schema: Schema = Pump::shape().schema().clone();
    /// let pumps = node.subscribe::<Pump>("pumps", Some("json@inproc/assume-doc"))?.assume(schema).open();
    /// // A publisher of bytes announces no schema.
    /// let publisher = node.publisher_of("pumps", Some("json@inproc/assume-doc"), Bytes::default())?;
    /// publisher.publish(&br#"{"id":7}"#.to_vec())?;
    /// assert_eq!(pumps.recv().unwrap().value.id, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn assume(mut self, schema: Schema) -> Self {
        self.assumed.schema = Some(schema);
        self
    }

    /// Sets how many messages may wait. The default is the configured value, or 4096.
    pub fn queue(mut self, messages: usize) -> Self {
        (self.queue.messages, self.named.messages) = (messages, true);
        self
    }

    /// Sets how many bytes of memory the waiting messages may take. The default is the configured
    /// value, or 64 MiB.
    ///
    /// Counts what decoding allocates, since a few bytes on the wire may become a large value. A
    /// message larger than the bound is accepted if nothing else waits. With
    /// [`Subscribe::on_message`], the messages already taken for the callback may use as many bytes
    /// again, and so may the used values that are kept for decoding. With
    /// [`Subscribe::on_message_inline`], which has no queue, it bounds the memory of the one value
    /// that is reused, and of the messages that one call of the callback publishes for itself.
    ///
    /// ```
    /// use polywire::{engine::Overflow, Node};
    ///
    /// #[derive(Default, polywire::Message)]
    /// struct Picture { pixels: Vec<u8> }
    ///
    /// let node = Node::new();
    /// let subscribe = node.subscribe::<Picture>("pictures", Some("cdr@inproc/queue-bytes-doc"))?;
    /// let pictures = subscribe.queue_bytes(5000).overflow(Overflow::DropOldest).open();
    /// let publisher = node.publisher_on::<Picture>("pictures", "cdr@inproc/queue-bytes-doc")?;
    /// for _ in 0..10 {
    ///     publisher.publish(&Picture { pixels: vec![7; 1000] })?;
    /// }
    /// assert!(pictures.recv().unwrap().info.sequence > 5 && pictures.lost() > 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue.bytes = bytes;
        self
    }

    /// Sets what happens when the queue is full. The default is the configured value, or
    /// [`Overflow::Block`] with one second.
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        (self.queue.overflow, self.named.overflow) = (overflow, true);
        self
    }

    /// Sets the quality of service that is requested, in place of the configured one. Fails if the
    /// policies are not valid, or if the engine cannot keep one of them.
    ///
    /// Writers that offer less are refused: [`Subscriber::status`] and [`NodeEvent::Mismatch`] say
    /// which policies do not agree, and so do their counterparts at the writer. With keep-last
    /// history or best-effort reliability, a full queue drops the oldest messages, unless
    /// [`Subscribe::overflow`] sets another policy.
    ///
    /// [`NodeEvent::Mismatch`]: crate::NodeEvent::Mismatch
    ///
    /// ```
    /// use polywire::{Node, qos::{Qos, Reliability}};
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let node = Node::new();
    /// let subscribe = node.subscribe::<Pump>("pumps", Some("cdr@inproc/requested-doc"))?;
    /// let pumps = subscribe.qos(Qos::default().reliability(Reliability::Reliable))?.open();
    /// let publish = node.publish::<Pump>("pumps", Some("cdr@inproc/requested-doc"))?;
    /// let publisher = publish.qos(Qos::sensor_data())?.open()?;
    /// assert_eq!(publisher.publish(&Pump { id: 7 })?.refused, 1);
    /// let reason = "incompatible quality of service: reliability (policy 11): offered best-effort, requested reliable";
    /// assert_eq!(publisher.status().refusals[0].reason, reason);
    /// assert_eq!(pumps.status().mismatches[0].reason, reason);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn qos(mut self, qos: Qos) -> Result<Self, NodeError> {
        qos::check_subscriber(&qos, is_any_reliable(&self.places))?;
        self.qos = qos;
        Ok(self)
    }

    /// The quality of service that will be requested: as configured, or as set by
    /// [`Subscribe::qos`].
    ///
    /// ```
    /// use polywire::{Node, qos::Qos};
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let subscribe = Node::new().subscribe::<Pump>("pumps", Some("cdr@inproc/requested-qos-doc"))?;
    /// let qos = subscribe.requested().clone().with("deadline=1s")?;
    /// assert_eq!(subscribe.qos(qos)?.requested().to_string(), "deadline=1s");
    /// # Ok::<(), polywire::NodeError>(())
    /// ```
    pub fn requested(&self) -> &Qos {
        &self.qos
    }

    /// Distinguishes the instances of a type with a key: each sample has the hash of its key and
    /// the state of its instance, and a sample of kind [`Kind::Unregister`] reports that the last
    /// writer of an instance has left. [`Subscriber::take_instance`] takes the samples of one
    /// instance.
    ///
    /// ```
    /// use polywire::{Node, qos::InstanceState};
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { #[polywire(key)] id: u32, pressure_bar: f64 }
    /// let node = Node::new();
    /// let pumps = node.subscribe::<Pump>("pumps", Some("cdr@inproc/instances-doc"))?.instances().open();
    /// let publisher = node.publisher_on::<Pump>("pumps", "cdr@inproc/instances-doc")?;
    /// for (id, pressure_bar) in [(1, 2.5), (2, 7.5), (1, 3.5)] {
    ///     publisher.publish(&Pump { id, pressure_bar })?;
    /// }
    /// let first = pumps.recv().unwrap();
    /// let instance = first.info.key_hash.unwrap();
    /// assert_eq!(pumps.take_instance(instance).unwrap().value, Pump { id: 1, pressure_bar: 3.5 });
    /// assert!(pumps.take_instance(instance).is_none());
    /// drop(publisher);
    /// assert_eq!(pumps.recv().unwrap().info.instance, Some(InstanceState::Alive));
    /// assert_eq!(pumps.take_instance(instance).unwrap().info.instance, Some(InstanceState::NoWriters));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn instances(mut self) -> Self {
        self.instances = true;
        self
    }

    /// The bounds of the queue, as set explicitly or as implied by the policies.
    fn limits(&self) -> QueueLimits {
        let mut limits = self.queue;
        let resources = self.qos.resource_limits;
        limits.depth = match (self.qos.history, resources.max_samples_per_instance) {
            (History::KeepLast(messages), _) => Some(Depth { messages, replaces: true }),
            (History::KeepAll, Some(messages)) => Some(Depth { messages, replaces: false }),
            (History::KeepAll, None) => None,
        };
        if let (History::KeepLast(depth), false) = (self.qos.history, self.named.messages) {
            limits.messages = limits.messages.max(depth as usize);
        }
        limits.messages = resources.max_samples.map_or(limits.messages, |most| limits.messages.min(most as usize));
        let newest = self.qos.reliability == Reliability::BestEffort || self.qos.history != History::KeepAll;
        if newest && !self.named.overflow {
            limits.overflow = Overflow::DropOldest;
        }
        limits
    }

    /// Makes a subscriber with a queue to receive from.
    pub fn open(self) -> Subscriber<C::Value> {
        let queue = Arc::new(Queue::new(self.limits()));
        let closing = queue.clone();
        let guard = Guard::new(self, Delivery::Queued(queue.clone()), Box::new(move || closing.close()));
        Subscriber { queue, guard }
    }

    /// Passes messages to another part of this crate.
    pub(crate) fn hand_to(self, taker: Arc<dyn Take<C::Value>>) -> Subscription {
        let closing = taker.clone();
        let guard = Guard::new(self, Delivery::Handed(taker), Box::new(move || closing.node_closed()));
        Subscription { guard, thread: None }
    }

    /// Installs a callback that runs on its own thread, one message at a time. The value is reused
    /// after the call. Fails if the thread cannot be started.
    ///
    /// The thread takes all waiting messages at once, so twice as many as the queue's bound may be
    /// in memory. [`Overflow::DropOldest`] drops none of the messages already taken.
    ///
    /// The callback may publish, subscribe and drop the subscription.
    pub fn on_message(
        self,
        mut callback: impl FnMut(&C::Value, &Info) + Send + 'static,
    ) -> Result<Subscription, NodeError> {
        let queue = Arc::new(Queue::new(self.limits()));
        let (source, closing) = (queue.clone(), queue.clone());
        let open = Arc::new(AtomicBool::new(true));
        let still_open = open.clone();
        let shares = self.coding.shares();
        let work = move || {
            let mut batch = VecDeque::new();
            while source.pop_all(&mut batch) {
                for Weighed { item, .. } in batch.iter() {
                    if !still_open.load(Ordering::Acquire) {
                        return;
                    }
                    let Sample { value, info } = item;
                    callback(value, info);
                }
                // Values that refer to received buffers are not reused, so that the buffers are
                // released.
                let used = batch.drain(..).filter(|_| !shares);
                source.give_back(used.map(|used: Weighed<Sample<C::Value>>| Weighed::new(used.item.value, used.bytes)));
            }
        };
        let thread = thread::Builder::new().name("pw-callback".into()).spawn(work).map_err(NodeError::Thread)?;
        let close = Box::new(move || {
            open.store(false, Ordering::Release);
            closing.close();
        });
        Ok(Subscription { guard: Guard::new(self, Delivery::Queued(queue), close), thread: Some(thread) })
    }

    /// Installs a callback that runs on the thread that reads the link, right after decoding. This
    /// has the least latency, but nothing more is read from that link while the callback runs, for
    /// any subscriber. Calls do not overlap. There is no queue: [`Subscribe::queue`] and
    /// [`Subscribe::overflow`] have no effect.
    ///
    /// The callback may publish, subscribe and drop the subscription. What it publishes for itself,
    /// it gets when the call has ended. It must not wait for another message of the same link.
    pub fn on_message_inline(self, callback: impl FnMut(&C::Value, &Info) + Send + 'static) -> Subscription {
        let inline = Arc::new(Inline::new(Box::new(callback), self.coding.default_value(), self.queue.bytes));
        let closing = inline.clone();
        let guard = Guard::new(self, Delivery::Inline(inline), Box::new(move || closing.close()));
        Subscription { guard, thread: None }
    }
}

/// Makes a subscriber's route with which a bridge opens the channels of one writer. No port knows
/// the route.
pub(crate) fn decoding_route<C: Coding>(
    node: &Node,
    topic: &str,
    coding: C,
    assumed: Option<Choice>,
    callback: impl FnMut(&C::Value, &Info) + Send + 'static,
) -> Result<Arc<dyn Route>, TopicError> {
    let inline = Arc::new(Inline::new(Box::new(callback), coding.default_value(), QUEUE_BYTES));
    let mut subscribe = Subscribe::new(node, (Vec::new(), Vec::new()), topic.parse()?, coding);
    if let Some(codec) = assumed {
        subscribe.assumed.codec = codec;
    }
    Ok(RouteOf::new(&subscribe, Delivery::Inline(inline), Weak::new()))
}

/// Receives records of a type known at run time.
pub type DynSubscriber = Subscriber<Record>;

/// Receives messages from a queue.
///
/// ```
/// use polywire::{Node, Subscriber};
/// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
/// # struct Pump { id: u32 }
/// let node = Node::new();
/// let pumps: Subscriber<Pump> = node.subscriber_on("pumps", "cdr@inproc/subscriber-doc")?;
/// let publisher = node.publisher_on::<Pump>("pumps", "cdr@inproc/subscriber-doc")?;
/// for id in 1..=3 {
///     publisher.publish(&Pump { id })?;
/// }
/// pumps.close();
/// publisher.publish(&Pump { id: 4 })?; // nobody takes it any more
/// assert_eq!(pumps.iter().map(|sample| sample.value.id).collect::<Vec<_>>(), [1, 2, 3]);
/// assert!(pumps.try_recv().is_none());
/// assert_eq!((pumps.lost(), pumps.undecodable()), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Subscriber<V> {
    queue: Arc<Queue<Sample<V>, V>>,
    guard: Guard,
}

impl<V> Subscriber<V> {
    /// Waits for the next message. `None` after [`Subscriber::close`] or [`Node::close`], when the
    /// queue is empty.
    pub fn recv(&self) -> Option<Sample<V>> {
        self.queue.pop(None)
    }

    /// Waits for the next message, for at most `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Sample<V>> {
        self.queue.pop(Some(clock::deadline(timeout)))
    }

    /// The next message, if one waits.
    pub fn try_recv(&self) -> Option<Sample<V>> {
        self.queue.pop(Some(Instant::now()))
    }

    /// The next message of one instance, if one waits. Needs [`Subscribe::instances`] or a policy
    /// that concerns instances. `None` for patterns: the topics that fit have instances of their
    /// own.
    pub fn take_instance(&self, key_hash: Id128) -> Option<Sample<V>> {
        self.queue.pop_instance(key_hash)
    }

    /// The messages, as [`Subscriber::recv`] returns them.
    pub fn iter(&self) -> impl Iterator<Item = Sample<V>> + '_ {
        std::iter::from_fn(|| self.recv())
    }

    /// Stops receiving. Messages that wait can still be taken.
    pub fn close(&self) {
        self.guard.close();
    }

    /// Which writers the subscriber reads, which it cannot read and why, and how many messages it
    /// missed.
    pub fn status(&self) -> SubscriberStatus {
        self.guard.status()
    }

    /// The number of messages that were lost on the way or dropped by the queue. A loss that a
    /// writer reports counts once, even if the sequence numbers also have a gap there. Over an
    /// engine that does not keep the order, gaps do not count.
    pub fn lost(&self) -> u64 {
        self.guard.lost()
    }

    /// The number of messages that could not be decoded.
    pub fn undecodable(&self) -> u64 {
        self.guard.undecodable()
    }
}

impl<V> futures_core::Stream for Subscriber<V> {
    type Item = Sample<V>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Sample<V>>> {
        self.queue.poll_pop(context)
    }
}

/// Keeps a callback installed. Dropping it removes the callback and waits for a running call,
/// unless the drop happens inside the callback.
pub struct Subscription {
    guard: Guard,
    thread: Option<JoinHandle<()>>,
}

impl Subscription {
    /// Which writers the subscriber reads, which it cannot read and why, and how many messages it
    /// missed.
    pub fn status(&self) -> SubscriberStatus {
        self.guard.status()
    }

    /// The number of messages that were lost on the way or dropped by the queue. A loss that a
    /// writer reports counts once, even if the sequence numbers also have a gap there. Over an
    /// engine that does not keep the order, gaps do not count.
    pub fn lost(&self) -> u64 {
        self.guard.lost()
    }

    /// The number of messages that could not be decoded.
    pub fn undecodable(&self) -> u64 {
        self.guard.undecodable()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.guard.close();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            // A callback that panicked has printed why.
            let _ = thread.join();
        }
    }
}

/// Removes the subscriber from its ports when it is dropped.
struct Guard {
    places: Arc<Places>,
    counts: Arc<Counts>,
    close: Box<dyn Fn() + Send + Sync>,
}

impl Guard {
    fn new<C: Coding>(
        subscribe: Subscribe<C>,
        delivery: Delivery<C::Value>,
        close: Box<dyn Fn() + Send + Sync>,
    ) -> Guard {
        let places = Places::new(subscribe.node.clone(), subscribe.topic.clone(), subscribe.given.clone());
        let route = RouteOf::new(&subscribe, delivery, Arc::downgrade(&places));
        let (counts, closing) = (route.counts.clone(), Arc::downgrade(&route));
        let close = Box::new(move || {
            close();
            if let Some(route) = closing.upgrade() {
                route.forget_left();
            }
        });
        places.open(route, subscribe.places.into_iter().map(|place| place.entry).collect());
        Guard { places, counts, close }
    }

    fn close(&self) {
        self.places.close();
        (self.close)();
    }

    fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }

    fn undecodable(&self) -> u64 {
        self.counts.undecodable.load(Ordering::Relaxed)
    }

    fn status(&self) -> SubscriberStatus {
        let matches = self.places.matches();
        let (mismatches, counted) = (self.counts.mismatches(), self.counts.read());
        SubscriberStatus {
            writers: matches.reads.len(),
            unreadable: matches.refuses.len(),
            mismatches_total: mismatches.total(),
            mismatches: mismatches.list(),
            lost: counted.lost,
            undecodable: counted.undecodable,
            not_alive: self.counts.not_alive.load(Ordering::Relaxed),
            deadlines_missed: self.counts.deadlines_missed.load(Ordering::Relaxed),
            replaced: counted.replaced,
            expired: counted.expired,
            filtered: counted.filtered,
            not_owner: counted.not_owner,
            superseded: counted.superseded,
            rejected: counted.rejected,
        }
    }
}

/// Whether at least one of the places has a reliable engine.
fn is_any_reliable(places: &[Place]) -> bool {
    places.iter().any(|place| place.entry.properties().reliable)
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.close();
    }
}
