//! A subscriber as links see it: it opens the channels that it can read, and counts the messages
//! that it misses.

use std::{
    any::TypeId,
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    directory::SubscriberData,
    envelope::{Announcement, Id128, Kind},
    qos::{Durability, InstanceState, Offer, Qos, Verdict, expires_ns, partitions_match},
    ros::TypeHash,
    schema::Schema,
    topic::Pattern,
};

use super::{
    Info, Sample, Subscribe,
    alive::{Alive, LivelinessReader},
    inline::Inline,
    places::Places,
    rules::{Held, Pending, Rules, SampleTerms},
    slot::{Arrival, ChannelQos, SlotOf},
    take::Take,
};
use crate::{
    builtin::is_builtin,
    clock,
    coding::Coding,
    delta::Arriving,
    engine::Properties,
    events::NodeEvent,
    history::{self, HistoryId, Released, Replayed, Writer},
    node::{DecoderKey, Inner, Order, ReaderKey, Route, Slot, Source, Wake, members, random_id},
    qos,
    queue::{Drops, Queue, Tag, Weighed},
    stats::{Histogram, TopicStats},
    status::{Mismatch, Recent},
    unwind::restoring,
    wire::Choice,
    writers::{Missing, Writers},
};

/// The reason why a subscriber that reads every type cannot read a writer.
fn unknown(offer: &Offer) -> String {
    let of_ros = offer.ros_type.map(|hash| format!(" (nobody describes the ROS 2 type with the hash {hash})"));
    let of_ros = of_ros.unwrap_or_default();
    format!("the writer's schema is unknown{of_ros}: give its type, on the command line by --idl, in code by 'assume'")
}

/// Returns a number that is unique among the subscribers of the process.
fn number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// Combines an instance with its topic's scope, for a queue that has instances of several topics.
fn scoped(mut instance: Id128, scope: Id128) -> Id128 {
    instance.0.iter_mut().zip(scope.0).for_each(|(byte, of_scope)| *byte ^= of_scope);
    instance
}

/// The most parts of a pattern that are kept after their channels have ended.
const LEFT: usize = 1024;

/// The codec option that accepts older, shorter versions of an appendable type. Used for writers
/// whose schema is assumed.
const OLDER: &str = "older";

/// The codec and the schema that are assumed for writers that announce none.
#[derive(Clone, Debug)]
pub(super) struct Assumed {
    pub(super) codec: Choice,
    /// `None` for the subscriber's own schema.
    pub(super) schema: Option<Schema>,
}

/// The destination of decoded values.
pub(super) enum Delivery<V> {
    Queued(Arc<Queue<Sample<V>, V>>),
    Inline(Arc<Inline<V>>),
    /// Another part of this crate, which takes the values.
    Handed(Arc<dyn Take<V>>),
}

impl<V> Clone for Delivery<V> {
    fn clone(&self) -> Self {
        match self {
            Delivery::Queued(queue) => Delivery::Queued(queue.clone()),
            Delivery::Inline(inline) => Delivery::Inline(inline.clone()),
            Delivery::Handed(taker) => Delivery::Handed(taker.clone()),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) lost: AtomicU64,
    pub(super) undecodable: AtomicU64,
    pub(super) deadlines_missed: AtomicU64,
    /// The numbers of samples that were not taken, indexed by verdict.
    verdicts: [AtomicU64; 6],
    /// The counts of messages that the queue drops.
    pub(super) drops: Arc<Drops>,
    /// The number of writers whose leases have lapsed.
    pub(super) not_alive: AtomicUsize,
    mismatches: Mutex<Recent<Mismatch>>,
    /// The latency of messages. Made when the first message arrives.
    latency: OnceLock<Box<Histogram>>,
}

impl Counts {
    /// Returns the counts so far.
    pub(super) fn read(&self) -> TopicStats {
        let drops = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TopicStats {
            lost: self.lost.load(Ordering::Relaxed),
            undecodable: self.undecodable.load(Ordering::Relaxed),
            replaced: drops(&self.drops.replaced),
            expired: self.of(Verdict::Expired) + drops(&self.drops.expired),
            filtered: self.of(Verdict::Filtered),
            not_owner: self.of(Verdict::NotOwner),
            superseded: self.of(Verdict::Superseded),
            rejected: self.of(Verdict::Rejected) + drops(&self.drops.rejected),
            latency: self.latency.get().map(|histogram| histogram.read()).unwrap_or_default(),
            ..TopicStats::default()
        }
    }

    /// Adds the latency of a message that was published at this time.
    #[cold]
    pub(super) fn measure(&self, published_ns: i64) {
        self.latency.get_or_init(Box::default).add(published_ns, clock::wall_ns());
    }

    /// The number of samples with this verdict.
    fn of(&self, verdict: Verdict) -> u64 {
        self.verdicts.get(verdict as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn count(&self, verdict: Verdict) {
        self.verdicts.get(verdict as usize).map(|count| count.fetch_add(1, Ordering::Relaxed));
    }

    pub(super) fn mismatches(&self) -> MutexGuard<'_, Recent<Mismatch>> {
        self.mismatches.lock()
    }
}

pub(super) struct RouteOf<C: Coding> {
    this: Weak<RouteOf<C>>,
    /// Unique among the subscribers of the process.
    number: u64,
    /// Unique among all subscribers.
    id: Id128,
    /// The topic, or a pattern.
    topic: Pattern,
    /// The parts of a pattern, by topic.
    parts: Mutex<BTreeMap<String, Weak<RouteOf<C>>>>,
    /// Parts of a pattern whose writers may return, in the order in which their last channels
    /// ended. Parts that have channels again may be among them.
    left: Mutex<VecDeque<Arc<RouteOf<C>>>>,
    /// The route of the whole subscriber, if this is its part for one topic.
    whole: Option<Weak<RouteOf<C>>>,
    /// Distinguishes the instances of this topic from those of other topics in the same queue. Zero
    /// unless this is a part for one topic.
    scope: Id128,
    places: Weak<Places>,
    pub(super) coding: C,
    pub(super) delivery: Delivery<C::Value>,
    pub(super) counts: Arc<Counts>,
    node: Weak<Inner>,
    assumed: Assumed,
    /// Values may refer to the received buffer.
    pub(super) shares: bool,
    /// The writers' sequence numbers, and messages that wait for earlier ones.
    pub(super) writers: Arc<Writers<Arrival<C::Value>>>,
    /// The requested quality of service.
    qos: Qos,
    pub(super) rules: Rules<C::Value>,
    alive: Mutex<Alive>,
    /// [`Info::instance`] and samples about instances without writers are wanted.
    instances: bool,
}

impl<C: Coding> RouteOf<C> {
    pub(super) fn new(subscribe: &Subscribe<C>, delivery: Delivery<C::Value>, places: Weak<Places>) -> Arc<Self> {
        let drops = match &delivery {
            Delivery::Queued(queue) => queue.drops(),
            Delivery::Inline(_) | Delivery::Handed(_) => Arc::default(),
        };
        Arc::new_cyclic(|this| RouteOf {
            this: this.clone(),
            number: number(),
            id: random_id(),
            topic: subscribe.topic.clone(),
            parts: Mutex::default(),
            left: Mutex::default(),
            whole: None,
            scope: Id128::ZERO,
            places,
            coding: subscribe.coding.clone(),
            delivery,
            counts: Arc::new(Counts { drops, ..Counts::default() }),
            node: Arc::downgrade(subscribe.node.inner()),
            assumed: subscribe.assumed.clone(),
            shares: subscribe.coding.shares(),
            writers: Arc::default(),
            qos: subscribe.qos.clone(),
            rules: Rules::new(&subscribe.qos, subscribe.instances),
            alive: Mutex::default(),
            instances: subscribe.instances,
        })
    }

    /// Returns the part of a pattern for one topic, and makes it if necessary. A part has its own
    /// writers, deadlines and instances; it shares the queue and the counts of the whole
    /// subscriber.
    fn part(&self, topic: &str) -> Option<Arc<Self>> {
        let mut parts = self.parts.lock();
        if let Some(part) = parts.get(topic).and_then(Weak::upgrade) {
            return Some(part);
        }
        // Removes the parts that have ended.
        if parts.len().is_power_of_two() {
            parts.retain(|_, part| part.strong_count() > 0);
        }
        let pattern = topic.parse().ok()?;
        let part = Arc::new_cyclic(|this| RouteOf {
            this: this.clone(),
            number: number(),
            id: self.id,
            topic: pattern,
            parts: Mutex::default(),
            left: Mutex::default(),
            whole: Some(self.this.clone()),
            scope: random_id(),
            places: self.places.clone(),
            coding: self.coding.clone(),
            delivery: self.delivery.clone(),
            counts: self.counts.clone(),
            node: self.node.clone(),
            assumed: self.assumed.clone(),
            shares: self.shares,
            // Left writers are remembered by the whole: this part may be dropped before a writer
            // returns.
            writers: Arc::new(self.writers.beside()),
            qos: self.qos.clone(),
            rules: Rules::new(&self.qos, self.instances),
            alive: Mutex::default(),
            instances: self.instances,
        });
        parts.insert(topic.into(), Arc::downgrade(&part));
        Some(part)
    }

    /// Keeps this part of a pattern, whose channel has ended, if it has a state that the writer
    /// needs when it returns. Ends the part that was left first if there are too many.
    fn leave(&self) {
        let has_state = self.rules.by_instance || self.qos.durability == Durability::TransientLocal;
        let whole = self.whole.as_ref().filter(|_| has_state).and_then(Weak::upgrade);
        let (Some(whole), Some(this)) = (whole, self.this.upgrade()) else { return };
        let first = {
            let mut left = whole.left.lock();
            left.retain(|part| part.number != self.number);
            left.push_back(this);
            if left.len() > LEFT { left.pop_front() } else { None }
        };
        if let Some(first) = first {
            let ended = first.rules.barriers().give_up_left();
            first.pass_late(ended);
        }
    }

    /// Drops the parts without channels, because the subscriber has closed.
    pub(super) fn forget_left(&self) {
        let left = std::mem::take(&mut *self.left.lock());
        // They are dropped without the lock, since they hold values of the application.
        drop(left);
    }

    /// Passes a decoded message on, or holds it back while its writer's history is missing.
    pub(super) fn take(&self, arrival: Arrival<C::Value>) {
        let (decoded, channel_qos) = arrival.into_parts();
        let item = match decoded {
            Ok(Some(item)) => item,
            Ok(None) => return,
            Err(reason) => return self.tell_undecodable(&reason),
        };
        let Some(channel_qos) = channel_qos else { return self.give(item.0, Id128::ZERO) };
        let Some(writer) = channel_qos.barrier_writer() else { return self.hand_on([item]) };
        let (number, bytes) = (item.0.info.sequence, item.0.bytes);
        let room = self.room();
        let mut barriers = self.rules.barriers_unless(|barriers| barriers.is_crowded(writer, room));
        let (released, gave_up) = barriers.published(writer, number, item, bytes, room);
        drop(barriers);
        if gave_up {
            self.tell_history_missed(writer.0);
        }
        self.pass(writer, released);
    }

    /// Passes a message of a history on, in order.
    pub(super) fn replayed(
        &self,
        writer: Writer,
        from: HistoryId,
        sequence: u64,
        message: Replayed<'_, Held<C::Value>>,
    ) {
        let mut barriers = self.rules.barriers_unless(|barriers| barriers.is_busy(writer));
        let released = barriers.replayed(writer, from, sequence, message, self.room());
        drop(barriers);
        self.pass(writer, released);
    }

    /// Passes on the messages that waited for histories that did not come.
    fn pass_late(&self, late: Vec<(Writer, Released<Held<C::Value>>)>) {
        for (writer, released) in late {
            self.tell_history_missed(writer.0);
            self.pass(writer, released);
        }
    }

    /// Counts missing messages as lost, except those that the writer's history may still bring.
    #[inline]
    pub(super) fn tell_missing(&self, channel_qos: Option<&ChannelQos>, missing: Missing) {
        if missing.count > 0 {
            let writer = channel_qos.and_then(ChannelQos::barrier_writer);
            self.tell_lost(writer.map_or(missing.count, |writer| self.rules.barriers().missing(writer, missing)));
        }
    }

    /// Passes on the messages that waited for a history and those that arrive behind them
    /// meanwhile, and counts as lost the messages that the history did not bring.
    pub(super) fn pass(&self, writer: Writer, released: Released<Held<C::Value>>) {
        self.tell_lost(released.lost);
        let mut items = released.items;
        while !items.is_empty() {
            restoring(|| self.release(writer), || self.hand_on(mem::take(&mut items)));
            items = self.rules.barriers().handed(writer);
            self.rules.handed.notify_all();
        }
    }

    /// Lets other threads go on after a panic of the callback. Messages that were held meanwhile
    /// count as lost.
    #[cold]
    fn release(&self, writer: Writer) {
        let left = {
            let mut barriers = self.rules.barriers();
            let left = barriers.handed(writer);
            // Nothing is held now, so this ends the turn.
            barriers.handed(writer);
            left
        };
        self.rules.handed.notify_all();
        self.tell_lost(left.len() as u64);
    }

    #[cold]
    pub(super) fn tell_lost(&self, count: u64) {
        if count == 0 {
            return;
        }
        let add = |lost: u64| Some(lost.saturating_add(count));
        let (Ok(before) | Err(before)) = self.counts.lost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        let total = before.saturating_add(count);
        // Report at each new power of two.
        if before.checked_ilog2() != total.checked_ilog2()
            && let Some(node) = self.node.upgrade()
        {
            node.tell(&NodeEvent::Lost { topic: self.topic.to_string(), total });
        }
    }

    #[cold]
    pub(super) fn tell_undecodable(&self, reason: &dyn ToString) {
        let total = self.counts.undecodable.fetch_add(1, Ordering::Relaxed) + 1;
        if total.is_power_of_two()
            && let Some(node) = self.node.upgrade()
        {
            node.tell(&NodeEvent::Undecodable { topic: self.topic.to_string(), total, reason: reason.to_string() });
        }
    }
}

/// Quality of service.
impl<C: Coding> RouteOf<C> {
    /// Whether the subscriber wants the history of a writer with this offer.
    pub(super) fn wants_history(&self, offer: &Offer) -> bool {
        self.qos.durability == Durability::TransientLocal && offer.qos.durability == Durability::TransientLocal
    }

    /// Messages and bytes that may be held back while a history is missing: as many as may wait.
    pub(super) fn room(&self) -> (usize, usize) {
        match &self.delivery {
            Delivery::Queued(queue) => (queue.limits().messages, queue.limits().bytes),
            Delivery::Inline(inline) => (super::QUEUE, inline.limit()),
            Delivery::Handed(_) => (super::QUEUE, super::QUEUE_BYTES),
        }
    }

    /// Passes the messages that the policies admit to the application, and counts the others.
    pub(super) fn hand_on(&self, pending: impl IntoIterator<Item = (Pending<C::Value>, Id128)>) {
        for (mut pending, instance) in pending {
            let (verdict, state) = self.rules.admit(&pending, instance);
            if verdict != Verdict::Take {
                self.counts.count(verdict);
                continue;
            }
            if self.rules.by_instance && !instance.is_zero() {
                pending.info.key_hash = Some(instance);
            }
            pending.info.instance = self.instances.then_some(state);
            self.give(pending, instance);
        }
        self.arm();
    }

    fn give(&self, pending: Pending<C::Value>, instance: Id128) {
        let Pending { value, info, bytes, terms } = pending;
        match &self.delivery {
            Delivery::Inline(inline) => {
                if !inline.give(info, value, bytes) {
                    self.tell_lost(1);
                }
            }
            Delivery::Handed(_) => {}
            Delivery::Queued(queue) => {
                let is_end = matches!(info.kind, Kind::Dispose | Kind::Unregister);
                let expires_ns = expires_ns(info.timestamp_ns, terms.lifespan().filter(|_| !is_end));
                let tag = match (expires_ns, instance.is_zero() && !self.rules.by_instance) {
                    (None, true) => None,
                    _ => Some(Box::new(Tag { instance: scoped(instance, self.scope), expires_ns })),
                };
                let dropped = queue.push(Weighed { item: Sample { value, info }, bytes, tag });
                if !dropped.is_empty() {
                    self.tell_lost(dropped.len() as u64);
                }
            }
        }
    }

    /// Handles the end of a writer's channel. `broke` is true if its link has ended.
    pub(super) fn writer_closed(&self, source: &Arc<Source>, terms: SampleTerms, writer: Writer, broke: bool) {
        let released = self.rules.barriers().close(writer, broke);
        self.pass(writer, released);
        self.tell_orphans(source, self.rules.closed(terms.writer));
        self.leave();
    }

    /// Reports the instances that no longer have a writer, if the application distinguishes
    /// instances.
    fn tell_orphans(&self, source: &Arc<Source>, orphans: Vec<Id128>) {
        for instance in orphans.into_iter().filter(|_| self.instances) {
            let info = Info {
                sequence: 0,
                timestamp_ns: clock::wall_ns(),
                kind: Kind::Unregister,
                key_hash: Some(instance),
                anchor: None,
                bytes: 0,
                instance: Some(InstanceState::NoWriters),
                source: source.clone(),
            };
            let terms = SampleTerms::of(source.announcement.writer, &Offer::default());
            self.give(Pending { value: self.coding.default_value(), info, bytes: 0, terms }, instance);
        }
    }

    /// Locks the writers with leases. This lock is taken before others.
    fn alive(&self) -> MutexGuard<'_, Alive> {
        self.alive.lock()
    }

    /// Records that a channel of a writer with a lease opens, which is a sign of life. If
    /// `is_told`, the engine reports whether the writer is alive, and the lease is not measured
    /// here.
    pub(super) fn lease_opened(&self, source: &Arc<Source>, lease: Duration, is_told: bool) {
        let lease = if is_told { Duration::MAX } else { lease };
        if self.alive().opened(source, lease, clock::now()) {
            self.counts.not_alive.fetch_sub(1, Ordering::Relaxed);
            self.tell_liveliness(source.announcement.writer, true);
        }
        self.arm();
    }

    /// Records that a channel of a writer with a lease has ended.
    pub(super) fn lease_closed(&self, writer: Id128) {
        if self.alive().closed(writer) {
            self.counts.not_alive.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Records a sign of life of a writer.
    pub(super) fn heard(&self, writer: Id128) {
        if self.alive().heard(writer, clock::now()) {
            self.counts.not_alive.fetch_sub(1, Ordering::Relaxed);
            self.tell_liveliness(writer, true);
            self.arm();
        }
    }

    #[cold]
    fn tell_liveliness(&self, writer: Id128, alive: bool) {
        if let Some(node) = self.node.upgrade() {
            let (topic, not_alive) = (self.topic.to_string(), self.counts.not_alive.load(Ordering::Relaxed));
            node.tell(&NodeEvent::LivelinessChanged { topic, writer, alive, not_alive });
        }
    }

    /// Handles the engine's report whether a writer is alive.
    pub(super) fn liveliness_changed(&self, source: &Arc<Source>, is_alive: bool) {
        let writer = source.announcement.writer;
        if is_alive {
            return self.heard(writer);
        }
        let has_lapsed = self.alive().leases.lapse(writer);
        if has_lapsed {
            self.not_alive(vec![source.clone()]);
        }
        if let Delivery::Queued(queue) = &self.delivery {
            queue.wake();
        }
    }

    /// Handles the leases that have lapsed.
    fn lapse(&self) {
        let lapsed = self.alive().lapsed(clock::now());
        self.not_alive(lapsed);
    }

    /// Records that leases have lapsed: the writers count as gone until their next sign of life.
    fn not_alive(&self, lapsed: Vec<Arc<Source>>) {
        self.counts.not_alive.fetch_add(lapsed.len(), Ordering::Relaxed);
        for source in lapsed {
            let writer = source.announcement.writer;
            self.tell_liveliness(writer, false);
            self.tell_orphans(&source, self.rules.not_alive(writer));
        }
    }

    /// Sets the timer to wake this subscriber when a deadline, a lease or a wait ends.
    pub(super) fn arm(&self) {
        let lease = self.alive().leases.next();
        if let Some(at) = self.rules.wake_at(self.writers.is_any_holding(), lease)
            && let Some(node) = self.node.upgrade()
        {
            let this: Weak<RouteOf<C>> = self.this.clone();
            node.timer.at(at, this);
        }
    }

    #[cold]
    fn tell_missed(&self, instance: Id128) {
        let total = self.counts.deadlines_missed.fetch_add(1, Ordering::Relaxed) + 1;
        if total.is_power_of_two()
            && let Some(node) = self.node.upgrade()
        {
            let topic = self.topic.to_string();
            node.tell(&NodeEvent::DeadlineMissed { topic, instance, offered: false, total });
        }
    }

    #[cold]
    pub(super) fn tell_history_missed(&self, writer: Id128) {
        if let Some(node) = self.node.upgrade() {
            node.tell(&NodeEvent::HistoryMissed { topic: self.topic.to_string(), writer });
        }
    }
}

impl<C: Coding> Wake for RouteOf<C> {
    fn wake(&self) {
        let look = || {
            self.rules.missed().into_iter().for_each(|instance| self.tell_missed(instance));
            self.lapse();
            self.writers.give_up(clock::now(), |missing, arrival| {
                self.tell_missing(arrival.qos(), missing);
                self.take(arrival);
            });
            let late = self.rules.barriers().give_up(clock::now());
            self.pass_late(late);
            if let Delivery::Queued(queue) = &self.delivery {
                queue.wake();
            }
        };
        // After a panic of the callback, the timer wakes this subscriber again for the rest.
        restoring(|| self.arm(), look);
        self.arm();
    }
}

impl<C: Coding> Route for RouteOf<C> {
    fn of_topic(&self, topic: &str) -> Option<Arc<dyn Route>> {
        let this: Arc<dyn Route> = match self.topic.is_name() {
            true => self.this.upgrade().filter(|_| self.topic.as_str() == topic)?,
            false if self.topic.fits(topic) => self.part(topic)?,
            false => return None,
        };
        Some(this)
    }

    fn wants(&self, topic: &str) -> bool {
        // A pattern for all topics does not include the built-in topics.
        self.topic.fits(topic) && is_builtin(topic) == is_builtin(self.topic.as_str())
    }

    fn topic(&self) -> &str {
        self.topic.as_str()
    }

    fn is_of(&self, whole: &Arc<dyn Route>) -> bool {
        let is = |own: &Weak<RouteOf<C>>| std::ptr::addr_eq(own.as_ptr(), Arc::as_ptr(whole));
        is(&self.this) || self.whole.as_ref().is_some_and(is)
    }

    fn concerns(&self, announced: &Announcement, offer: &Offer) -> bool {
        let waits = |writer| self.rules.barriers().is_waiting((writer, announced.incarnation));
        partitions_match(&offer.qos, &self.qos) && offer.history_of.is_none_or(waits)
    }

    fn schema(&self) -> Option<&Schema> {
        self.coding.schema()
    }

    fn needs_schema(&self) -> bool {
        self.coding.any_decoder().is_none()
    }

    fn lacks(&self, told: TypeHash) -> bool {
        let own = self.assumed.schema.as_ref().or(self.coding.schema());
        self.needs_schema() && own.and_then(|own| TypeHash::of(own).ok()) != Some(told)
    }

    fn follow(&self, source: &Source, endpoints: &[String]) {
        if let Some(places) = self.places.upgrade() {
            places.follow(&self.topic, source, endpoints);
        }
    }

    fn open(
        &self,
        node: &Arc<Inner>,
        source: &Source,
        medium: Properties,
        offer: &Offer,
        schema: Option<&Schema>,
    ) -> Result<Arc<dyn Slot>, String> {
        let route = self.this.upgrade().ok_or("the subscriber is going")?;
        if let Some(writer) = offer.liveliness_of {
            return Ok(Arc::new(LivelinessReader { route, writer }));
        }
        qos::matched(&offer.qos, &self.qos, medium.reliable)?;
        let source = Arc::new(source.clone());
        let announced = &source.announcement;
        if let Some(decoder) = self.coding.any_decoder() {
            return Ok(SlotOf::open(route, Arc::new(decoder), None, source, medium, offer));
        }
        let foreign = announced.codec.is_empty();
        let named = if foreign { &self.assumed.codec.name } else { &announced.codec };
        let with = if foreign { &self.assumed.codec.options } else { &announced.options };
        let configuration = announced.configuration.filter(|_| !foreign);
        let assumed = || self.assumed.schema.as_ref().or(self.coding.schema());
        let writer = schema.or_else(assumed).ok_or_else(|| unknown(offer))?;
        if let (Some(told), None, Ok(own)) = (offer.ros_type, schema, TypeHash::of(writer))
            && told != own
        {
            return Err(format!(
                "the types differ: in ROS 2, the writer's is {told}, and {} here {own}",
                writer.name()
            ));
        }
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
        Ok(SlotOf::open(route, decoder, stream, source, medium, offer))
    }

    fn refused(&self, source: &Source, reason: &str) {
        let Announcement { writer, type_name, incarnation, offer, .. } = &*source.announcement;
        let mismatch = Mismatch { writer: *writer, type_name: type_name.clone(), reason: reason.into() };
        self.counts.mismatches().push(mismatch);
        if let Some(writer) = Offer::parse(offer).ok().and_then(|offer| offer.history_of) {
            self.rules.barriers().refuse((writer, *incarnation), history::history_id(source));
        }
        if let Delivery::Handed(taker) = &self.delivery {
            taker.refused(reason);
        }
    }

    fn missed(&self, count: u64) {
        self.tell_lost(count);
    }

    fn describe(&self) -> Option<SubscriberData> {
        let schema = self.coding.schema();
        Some(SubscriberData {
            id: self.id,
            topic: self.topic.to_string(),
            type_name: schema.map_or_else(String::new, |schema| schema.name().into()),
            type_hash: schema.map_or(Id128::ZERO, |schema| Id128(schema.type_hash().to_bytes())),
            qos: self.qos.clone(),
            ..SubscriberData::default()
        })
    }

    fn stats(&self) -> Option<TopicStats> {
        let queued = match &self.delivery {
            Delivery::Queued(queue) => queue.len() as u64,
            Delivery::Inline(_) | Delivery::Handed(_) => 0,
        };
        Some(TopicStats { topic: self.topic.to_string(), subscribers: 1, queued, ..self.counts.read() })
    }

    fn node_closed(&self) {
        match &self.delivery {
            Delivery::Queued(queue) => queue.close(),
            Delivery::Inline(_) => {}
            Delivery::Handed(taker) => taker.node_closed(),
        }
    }
}
