//! Subscribers: receive by blocking calls, as an iterator, as a `futures` stream, or by callback.

use std::{
    any::TypeId,
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    thread::{self, JoinHandle, ThreadId},
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Envelope, Id128, Kind},
    layout::{Message, Record, SharedBytes},
    program::Payload,
    schema::Schema,
};

use crate::{
    coding::{Coding, Typed},
    delta::Arriving,
    engine::{Held, Overflow},
    error::NodeError,
    events::NodeEvent,
    missing::{Follow, Writers},
    node::{DecoderKey, Inner, Node, Order, PortEntry, ReaderKey, Route, Slot, Source, members},
    queue::{Queue, QueueLimits, Weighed},
    status::{Mismatch, Recent, SubscriberStatus},
    wire::{Choice, Wire},
};

/// Messages that may wait for a subscriber, by default.
const QUEUE: usize = 4096;

/// Bytes of memory that they may take, by default.
const QUEUE_BYTES: usize = 64 << 20;

/// The codec option that accepts older, shorter versions of an appendable type. Used for writers
/// whose schema is assumed.
const OLDER: &str = "older";

/// A message received.
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
/// Members of the types [`SharedStr`](crate::SharedStr) and [`SharedBytes`] are not copied: they
/// refer to the buffer in which the message came, and keep it. A message that is small compared to
/// the buffer is copied as a whole.
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
    /// The writer's announcement and the link.
    pub source: Arc<Source>,
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
    entry: Arc<PortEntry>,
    topic: String,
    coding: C,
    queue: QueueLimits,
    assumed: Assumed,
}

/// The codec and the schema that are assumed for writers that announce none.
#[derive(Clone, Debug)]
struct Assumed {
    codec: Choice,
    /// `None` for the subscriber's own schema.
    schema: Option<Schema>,
}

/// Subscribers of a node.
impl Node {
    /// Makes a subscriber at the endpoint that is configured for the topic. It reads every format.
    pub fn subscriber<T: Message>(&self, topic: &str) -> Result<Subscriber<T>, NodeError> {
        Ok(self.subscribe::<T>(topic, None)?.open())
    }

    /// Makes a subscriber at the endpoint of this wire. It reads every format, whatever the wire
    /// names.
    pub fn subscriber_on<T: Message>(&self, topic: &str, wire: &str) -> Result<Subscriber<T>, NodeError> {
        Ok(self.subscribe::<T>(topic, Some(wire))?.open())
    }

    /// Subscribes with options: size and overflow policy of the queue, callbacks.
    pub fn subscribe<T: Message>(&self, topic: &str, wire: Option<&str>) -> Result<Subscribe<Typed<T>>, NodeError> {
        self.subscribe_of(topic, wire, Typed::default())
    }

    /// Subscribes with any [`Coding`].
    pub fn subscribe_of<C: Coding>(
        &self,
        topic: &str,
        wire: Option<&str>,
        coding: C,
    ) -> Result<Subscribe<C>, NodeError> {
        let (wire, entry) = self.route(topic, wire)?;
        Ok(Subscribe::new(self, entry, topic, wire, coding))
    }
}

impl<C: Coding> Subscribe<C> {
    fn new(node: &Node, entry: Arc<PortEntry>, topic: &str, wire: Wire, coding: C) -> Self {
        let configured = node.inner().config.topics.get(topic);
        let queue = QueueLimits {
            messages: configured.and_then(|topic| topic.queue).unwrap_or(QUEUE),
            bytes: configured.and_then(|topic| topic.queue_bytes).unwrap_or(QUEUE_BYTES),
            overflow: configured.and_then(|topic| topic.overflow).unwrap_or_default(),
        };
        Subscribe {
            node: node.clone(),
            entry,
            topic: topic.into(),
            coding,
            queue,
            assumed: Assumed { codec: wire.codec, schema: None },
        }
    }

    /// Sets the schema of writers that announce none, such as programs that are not Polywire nodes.
    /// By default it is the subscriber's own. A writer that announces no format either is assumed
    /// to have that of the topic's wire. Such a writer may have an older version of the type: CDR
    /// values of appendable types may then lack their last members.
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
        self.queue.messages = messages;
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
    /// that is reused.
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
        self.queue.overflow = overflow;
        self
    }

    /// Makes a subscriber with a queue to receive from.
    pub fn open(self) -> Subscriber<C::Value> {
        let queue = Arc::new(Queue::new(self.queue));
        let route = RouteOf::new(&self, Delivery::Queued(queue.clone()));
        let closing = queue.clone();
        Subscriber { queue, guard: Guard::new(self.node, self.entry, route, Box::new(move || closing.close())) }
    }

    /// Calls back on a thread of its own, one message at a time. The value is reused after the
    /// call. Fails if the thread cannot be started.
    ///
    /// The thread takes all waiting messages at once, so twice as many as the queue's bound may be
    /// in memory. [`Overflow::DropOldest`] drops none of those taken.
    ///
    /// The callback may publish, subscribe and drop the subscription.
    pub fn on_message(
        self,
        mut callback: impl FnMut(&C::Value, &Info) + Send + 'static,
    ) -> Result<Subscription, NodeError> {
        let queue = Arc::new(Queue::new(self.queue));
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
                // Values that refer to received messages are not reused, so that they release them.
                let used = batch.drain(..).filter(|_| !shares);
                source.give_back(
                    used.map(|used: Weighed<Sample<C::Value>>| Weighed { item: used.item.value, bytes: used.bytes }),
                );
            }
        };
        let thread = thread::Builder::new().name("pw-callback".into()).spawn(work).map_err(NodeError::Thread)?;
        let close = Box::new(move || {
            open.store(false, Ordering::Release);
            closing.close();
        });
        let route = RouteOf::new(&self, Delivery::Queued(queue));
        Ok(Subscription { guard: Guard::new(self.node, self.entry, route, close), thread: Some(thread) })
    }

    /// Calls back on the thread that reads the link, right after decoding. This has the least
    /// latency, but nothing more is read from that link while the callback runs, for any
    /// subscriber. Calls do not overlap. There is no queue: [`Subscribe::queue`] and
    /// [`Subscribe::overflow`] have no effect.
    ///
    /// The callback may publish, subscribe and drop the subscription. It must not wait for another
    /// message of the same link.
    pub fn on_message_inline(self, callback: impl FnMut(&C::Value, &Info) + Send + 'static) -> Subscription {
        let inline = Arc::new(Inline::new(Box::new(callback), self.coding.default_value(), self.queue.bytes));
        let route = RouteOf::new(&self, Delivery::Inline(inline.clone()));
        let close = Box::new(move || inline.close());
        Subscription { guard: Guard::new(self.node, self.entry, route, close), thread: None }
    }
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
        self.queue.pop(Some(Instant::now() + timeout))
    }

    /// The next message, if one waits.
    pub fn try_recv(&self) -> Option<Sample<V>> {
        self.queue.pop(Some(Instant::now()))
    }

    /// The messages, as [`Subscriber::recv`] returns them.
    pub fn iter(&self) -> impl Iterator<Item = Sample<V>> + '_ {
        std::iter::from_fn(|| self.recv())
    }

    /// Stops receiving. Messages that wait can still be taken.
    pub fn close(&self) {
        self.guard.close();
    }

    /// Which writers it reads, which it cannot read and why, and how many messages it missed.
    pub fn status(&self) -> SubscriberStatus {
        self.guard.status()
    }

    /// Messages lost on the way or dropped by the queue. A loss that a writer reports counts once,
    /// also if its sequence numbers have a gap there. Over an engine without order, gaps do not
    /// count.
    pub fn lost(&self) -> u64 {
        self.guard.counts.lost.load(Ordering::Relaxed)
    }

    /// Messages that could not be decoded.
    pub fn undecodable(&self) -> u64 {
        self.guard.counts.undecodable.load(Ordering::Relaxed)
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
    /// Which writers it reads, which it cannot read and why, and how many messages it missed.
    pub fn status(&self) -> SubscriberStatus {
        self.guard.status()
    }

    /// Messages lost on the way or dropped by the queue. A loss that a writer reports counts once,
    /// also if its sequence numbers have a gap there. Over an engine without order, gaps do not
    /// count.
    pub fn lost(&self) -> u64 {
        self.guard.counts.lost.load(Ordering::Relaxed)
    }

    /// Messages that could not be decoded.
    pub fn undecodable(&self) -> u64 {
        self.guard.counts.undecodable.load(Ordering::Relaxed)
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

/// Removes the subscriber from its port when it is dropped.
struct Guard {
    /// Keeps the node alive, and with it the port.
    _node: Node,
    entry: Arc<PortEntry>,
    route: Arc<dyn Route>,
    counts: Arc<Counts>,
    close: Box<dyn Fn() + Send + Sync>,
}

impl Guard {
    fn new<C: Coding>(
        node: Node,
        entry: Arc<PortEntry>,
        route: Arc<RouteOf<C>>,
        close: Box<dyn Fn() + Send + Sync>,
    ) -> Guard {
        let counts = route.counts.clone();
        let route: Arc<dyn Route> = route;
        entry.add_route(route.clone());
        Guard { _node: node, entry, route, counts, close }
    }

    fn close(&self) {
        self.entry.remove_route(&self.route);
        (self.close)();
    }

    fn status(&self) -> SubscriberStatus {
        let (writers, unreadable) = self.entry.matches(&self.route);
        let mismatches = self.counts.mismatches();
        SubscriberStatus {
            writers,
            unreadable,
            mismatches_total: mismatches.total(),
            mismatches: mismatches.list(),
            lost: self.counts.lost.load(Ordering::Relaxed),
            undecodable: self.counts.undecodable.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.close();
    }
}

/// Where decoded values go.
enum Delivery<V> {
    Queued(Arc<Queue<Sample<V>, V>>),
    Inline(Arc<Inline<V>>),
}

type Callback<V> = Box<dyn FnMut(&V, &Info) + Send>;

/// A callback that runs on the threads that read links.
struct Inline<V> {
    parts: Mutex<Option<(Callback<V>, Weighed<V>)>>,
    /// Bytes of memory that the value may keep from one message to the next.
    limit: usize,
    running_on: Mutex<Option<ThreadId>>,
    closed: AtomicBool,
}

impl<V> Inline<V> {
    fn new(callback: Callback<V>, value: V, limit: usize) -> Self {
        Inline {
            parts: Mutex::new(Some((callback, Weighed { item: value, bytes: 0 }))),
            limit,
            running_on: Mutex::new(None),
            closed: AtomicBool::new(false),
        }
    }

    /// Decodes into the used value and calls back. `decode` returns the bytes by which the value
    /// grew. The next message gets a fresh value if this one has grown too large, or if not
    /// `again`.
    #[inline]
    fn call<E>(
        &self,
        info: &Info,
        decode: impl FnOnce(&mut V) -> Result<usize, E>,
        fresh: impl FnOnce() -> V,
        again: bool,
    ) -> Result<(), E> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let open = |_: &&mut (Callback<V>, Weighed<V>)| !self.closed.load(Ordering::Acquire);
        let Some((callback, value)) = parts.as_mut().filter(open) else { return Ok(()) };
        let decoded = decode(&mut value.item).map(|grown| value.bytes = value.bytes.saturating_add(grown));
        if decoded.is_ok() {
            self.set_running(Some(thread::current().id()));
            callback(&value.item, info);
            self.set_running(None);
        }
        // How far decoding got before an error is unknown, and so is what the value has grown to.
        if !again || decoded.is_err() || value.bytes > self.limit {
            *value = Weighed { item: fresh(), bytes: 0 };
        }
        decoded
    }

    fn set_running(&self, thread: Option<ThreadId>) {
        *self.running_on.lock().unwrap_or_else(PoisonError::into_inner) = thread;
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let here = *self.running_on.lock().unwrap_or_else(PoisonError::into_inner) == Some(thread::current().id());
        if !here {
            // Taking the lock waits for a call that runs on another thread.
            drop(self.parts.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    lost: AtomicU64,
    undecodable: AtomicU64,
    mismatches: Mutex<Recent<Mismatch>>,
}

impl Counts {
    fn mismatches(&self) -> MutexGuard<'_, Recent<Mismatch>> {
        self.mismatches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct RouteOf<C: Coding> {
    this: Weak<RouteOf<C>>,
    /// Unique among the subscribers of the process.
    number: u64,
    topic: String,
    coding: C,
    delivery: Delivery<C::Value>,
    counts: Arc<Counts>,
    node: Weak<Inner>,
    assumed: Assumed,
    /// Values may refer to the received buffer.
    shares: bool,
    /// The writers' sequence numbers; `None` if the engine does not keep order, so that gaps prove
    /// nothing.
    writers: Option<Arc<Writers>>,
}

impl<C: Coding> RouteOf<C> {
    fn new(subscribe: &Subscribe<C>, delivery: Delivery<C::Value>) -> Arc<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Arc::new_cyclic(|this| RouteOf {
            this: this.clone(),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            topic: subscribe.topic.clone(),
            coding: subscribe.coding.clone(),
            delivery,
            counts: Arc::default(),
            node: Arc::downgrade(subscribe.node.inner()),
            assumed: subscribe.assumed.clone(),
            shares: subscribe.coding.shares(),
            writers: subscribe.entry.is_ordered().then(Arc::default),
        })
    }

    #[cold]
    fn tell_lost(&self, count: u64) {
        let add = |lost: u64| Some(lost.saturating_add(count));
        let (Ok(before) | Err(before)) = self.counts.lost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        let total = before.saturating_add(count);
        // Report at each new power of two.
        if before.checked_ilog2() != total.checked_ilog2()
            && let Some(node) = self.node.upgrade()
        {
            node.tell(&NodeEvent::Lost { topic: self.topic.clone(), total });
        }
    }

    #[cold]
    fn tell_undecodable(&self, reason: &dyn ToString) {
        let total = self.counts.undecodable.fetch_add(1, Ordering::Relaxed) + 1;
        if total.is_power_of_two()
            && let Some(node) = self.node.upgrade()
        {
            node.tell(&NodeEvent::Undecodable { topic: self.topic.clone(), total, reason: reason.to_string() });
        }
    }
}

impl<C: Coding> Route for RouteOf<C> {
    fn topic(&self) -> &str {
        &self.topic
    }

    fn needs_schema(&self) -> bool {
        self.coding.any_decoder().is_none()
    }

    fn open(&self, node: &Arc<Inner>, source: &Source, schema: Option<&Schema>) -> Result<Arc<dyn Slot>, String> {
        let route = self.this.upgrade().ok_or("the subscriber is going")?;
        let source = Arc::new(source.clone());
        let announced = &source.announcement;
        if let Some(decoder) = self.coding.any_decoder() {
            return Ok(SlotOf::open(route, Arc::new(decoder), None, source));
        }
        let foreign = announced.codec.is_empty();
        let named = if foreign { &self.assumed.codec.name } else { &announced.codec };
        let with = if foreign { &self.assumed.codec.options } else { &announced.options };
        let configuration = announced.configuration.filter(|_| !foreign);
        let assumed = || self.assumed.schema.as_ref().or(self.coding.schema());
        let writer = schema.or_else(assumed).ok_or("the writer's schema is unknown")?;
        let key = DecoderKey {
            coding: TypeId::of::<C>(),
            reader: match self.coding.reader().filter(|_| schema.is_some()) {
                Some(reader) => ReaderKey::Shared(reader),
                None => ReaderKey::Own(self.number),
            },
            schema: schema.map_or(Id128::ZERO, |_| announced.schema),
            codec: named.clone(),
            options: with.clone(),
            configuration,
        };
        let order = Order { key, coding: self.coding.clone(), members: members(writer), link: source.link.id };
        let decoder = node.decoders.get(order, || {
            let chosen = match configuration {
                None if foreign => node.codec(named, with),
                document => node.announced_codec(named, with, document),
            };
            let chosen = chosen.map_err(|e| e.to_string())?;
            let (codec, mut options) = (&*chosen.codec, chosen.options);
            if schema.is_none() && codec.options().iter().any(|option| option.name == OLDER) {
                options = options.with(OLDER, "");
            }
            self.coding.decoder(codec, &options, writer).map_err(|e| e.to_string())
        })?;
        // A writer that announces nothing sends no anchors, so each message counts as a key frame.
        let stream = C::reader_state(&decoder).filter(|_| !foreign).map(Arriving::new);
        Ok(SlotOf::open(route, decoder, stream, source))
    }

    fn refused(&self, mismatch: Mismatch) {
        self.counts.mismatches().push(mismatch);
    }

    fn node_closed(&self) {
        if let Delivery::Queued(queue) = &self.delivery {
            queue.close();
        }
    }
}

/// One channel, as one subscriber receives it.
struct SlotOf<C: Coding> {
    route: Arc<RouteOf<C>>,
    decoder: Arc<C::Decoder>,
    /// Bytes of a sample before anything is decoded into its value.
    default_bytes: usize,
    /// The state of a stateful format.
    stream: Option<Arriving>,
    source: Arc<Source>,
    follow: Option<Follow>,
}

impl<C: Coding> SlotOf<C> {
    fn open(
        route: Arc<RouteOf<C>>,
        decoder: Arc<C::Decoder>,
        stream: Option<Arriving>,
        source: Arc<Source>,
    ) -> Arc<dyn Slot> {
        let default_bytes = size_of::<Sample<C::Value>>().saturating_add(C::value_bytes(&decoder));
        let follow = route.writers.as_ref().map(|writers| Follow::new(writers, &source.announcement));
        Arc::new(SlotOf { route, decoder, default_bytes, stream, source, follow })
    }

    /// Notes a message's sequence number, and counts a gap before it.
    #[inline]
    fn came(&self, sequence: u64) {
        if let Some(follow) = &self.follow {
            let missing = follow.came(sequence);
            if missing > 0 {
                self.route.tell_lost(missing);
            }
        }
    }

    /// Decodes a message and returns the bytes by which the value grew.
    #[inline]
    fn decode(
        &self,
        envelope: &Envelope<'_>,
        payload: &[u8],
        held: Option<Held<'_>>,
        value: &mut C::Value,
    ) -> Result<usize, String> {
        match envelope.kind {
            Kind::Dispose | Kind::Unregister if payload.is_empty() => {
                *value = self.route.coding.default_value();
                Ok(0)
            }
            _ if self.stream.is_some() => self.decode_delta(envelope, payload, value),
            _ if self.route.shares => {
                let (message, kept) = shared(payload, held);
                let grown = C::decode_measured(&self.decoder, Payload::Shared(&message), value);
                grown.map(|grown| grown.saturating_add(kept)).map_err(|e| e.to_string())
            }
            _ => C::decode_measured(&self.decoder, Payload::Bytes(payload), value).map_err(|e| e.to_string()),
        }
    }

    fn decode_delta(&self, envelope: &Envelope<'_>, bytes: &[u8], value: &mut C::Value) -> Result<usize, String> {
        let Some(stream) = &self.stream else { return Ok(0) };
        let mut grown = 0;
        let decode = |state: &mut _, keep| {
            C::decode_measured(&self.decoder, Payload::Chained { state, keep, bytes }, value).map(|bytes| grown = bytes)
        };
        stream.read(envelope, decode).map_err(|e| e.to_string())?;
        Ok(grown)
    }
}

impl<C: Coding> Slot for SlotOf<C> {
    #[inline]
    fn deliver(&self, envelope: &Envelope<'_>, payload: &[u8], wire_bytes: usize, held: Option<Held<'_>>) {
        self.came(envelope.sequence);
        if let Some(id) = envelope.extensions.not_understood(&[]) {
            return self.route.tell_undecodable(&format!("extension {id} is required but not supported"));
        }
        let info = Info {
            sequence: envelope.sequence,
            timestamp_ns: envelope.timestamp_ns,
            kind: envelope.kind,
            key_hash: envelope.key_hash,
            anchor: envelope.anchor,
            bytes: wire_bytes,
            source: self.source.clone(),
        };
        let result = match &self.route.delivery {
            Delivery::Inline(inline) => inline.call(
                &info,
                |value| self.decode(envelope, payload, held, value),
                || self.route.coding.default_value(),
                !self.route.shares,
            ),
            Delivery::Queued(queue) => {
                // A used value keeps the memory that it has.
                let (mut value, has) = match queue.spare() {
                    Some(Weighed { item, bytes }) => (item, bytes),
                    None => (self.route.coding.default_value(), self.default_bytes),
                };
                self.decode(envelope, payload, held, &mut value).map(|grown| {
                    let bytes = has.saturating_add(grown);
                    let dropped = queue.push(Weighed { item: Sample { value, info }, bytes });
                    if !dropped.is_empty() {
                        self.route.tell_lost(dropped.len() as u64);
                    }
                })
            }
        };
        if let Err(reason) = result {
            self.route.tell_undecodable(&reason);
        }
    }

    fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    fn needs_key_frame(&self) -> bool {
        self.stream.as_ref().is_some_and(Arriving::needs_key_frame)
    }

    fn undecodable(&self, sequence: u64, reason: &dyn ToString) {
        self.came(sequence);
        self.route.tell_undecodable(reason);
    }

    fn lost(&self, sequence: u64, count: u64) {
        let count = self.follow.as_ref().map_or(count.min(sequence), |follow| follow.told(sequence, count));
        if count > 0 {
            self.route.tell_lost(count);
        }
    }

    fn drained(&self) {
        if let Delivery::Queued(queue) = &self.route.delivery {
            queue.wake();
        }
    }
}

impl<C: Coding> Drop for SlotOf<C> {
    fn drop(&mut self) {
        let missing = self.follow.as_ref().map_or(0, Follow::end);
        if missing > 0 {
            self.route.tell_lost(missing);
        }
    }
}

/// A value keeps the receive buffer if the payload is at least this part of it, 1 / 8. Otherwise
/// the payload is copied once, as a whole.
const HELD_PART: usize = 8;

/// The payload in a form that values can refer to, and the bytes of its buffer beside it.
fn shared(payload: &[u8], held: Option<Held<'_>>) -> (SharedBytes, usize) {
    match held.filter(|held| held.buffer_bytes() <= HELD_PART * payload.len()) {
        Some(held) => (held.keep(), held.buffer_bytes().saturating_sub(payload.len())),
        None => (SharedBytes::from(payload).into_shared(), 0),
    }
}
