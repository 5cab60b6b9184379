//! A subscriber as links see it: it opens the channels that it can read, and counts what it misses.

use std::{
    any::TypeId,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use polywire_core::{
    directory::SubscriberData,
    envelope::{Announcement, Id128, Kind},
    qos::{Durability, InstanceState, Offer, Qos, Verdict, expires_ns, partitions_match},
    schema::Schema,
};

use super::{
    Info, Sample, Subscribe,
    inline::Inline,
    rules::{Pending, Rules, Terms},
    slot::SlotOf,
};
use crate::{
    coding::Coding,
    delta::Arriving,
    events::NodeEvent,
    history::{self, Writer},
    missing::Writers,
    node::{DecoderKey, Inner, Order, ReaderKey, Route, Slot, Source, Wake, members, random_id},
    qos,
    queue::{Drops, Queue, Tag, Weighed},
    stats::{Histogram, TopicStats},
    status::{Mismatch, Recent},
    wire::Choice,
};

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

/// Where decoded values go.
pub(super) enum Delivery<V> {
    Queued(Arc<Queue<Sample<V>, V>>),
    Inline(Arc<Inline<V>>),
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) lost: AtomicU64,
    pub(super) undecodable: AtomicU64,
    pub(super) deadlines_missed: AtomicU64,
    /// Samples that were not taken, at the index of the verdict.
    verdicts: [AtomicU64; 6],
    /// What the queue drops.
    pub(super) drops: Arc<Drops>,
    mismatches: Mutex<Recent<Mismatch>>,
    /// Made when the first message comes.
    latency: OnceLock<Box<Histogram>>,
}

impl Counts {
    /// What was counted so far.
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

    /// Adds the time that a message took to come here.
    #[cold]
    pub(super) fn measure(&self, published_ns: i64) {
        self.latency.get_or_init(Box::default).add(published_ns, history::now_ns());
    }

    /// The number of samples with this verdict.
    fn of(&self, verdict: Verdict) -> u64 {
        self.verdicts.get(verdict as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn count(&self, verdict: Verdict) {
        self.verdicts.get(verdict as usize).map(|count| count.fetch_add(1, Ordering::Relaxed));
    }

    pub(super) fn mismatches(&self) -> MutexGuard<'_, Recent<Mismatch>> {
        self.mismatches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct RouteOf<C: Coding> {
    this: Weak<RouteOf<C>>,
    /// Unique among the subscribers of the process.
    number: u64,
    /// Unique among all subscribers.
    id: Id128,
    topic: String,
    pub(super) coding: C,
    pub(super) delivery: Delivery<C::Value>,
    pub(super) counts: Arc<Counts>,
    node: Weak<Inner>,
    assumed: Assumed,
    /// Values may refer to the received buffer.
    pub(super) shares: bool,
    /// The writers' sequence numbers; `None` if the engine does not keep order, so that gaps prove
    /// nothing.
    pub(super) writers: Option<Arc<Writers>>,
    /// What is requested.
    qos: Qos,
    /// The engine is reliable.
    reliable_engine: bool,
    pub(super) rules: Rules<C::Value>,
    /// [`Info::instance`] and samples about instances without writers are wanted.
    instances: bool,
}

impl<C: Coding> RouteOf<C> {
    pub(super) fn new(subscribe: &Subscribe<C>, delivery: Delivery<C::Value>) -> Arc<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let drops = match &delivery {
            Delivery::Queued(queue) => queue.drops(),
            Delivery::Inline(_) => Arc::default(),
        };
        Arc::new_cyclic(|this| RouteOf {
            this: this.clone(),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            id: random_id(),
            topic: subscribe.topic.clone(),
            coding: subscribe.coding.clone(),
            delivery,
            counts: Arc::new(Counts { drops, ..Counts::default() }),
            node: Arc::downgrade(subscribe.node.inner()),
            assumed: subscribe.assumed.clone(),
            shares: subscribe.coding.shares(),
            writers: subscribe.entry.is_ordered().then(Arc::default),
            qos: subscribe.qos.clone(),
            reliable_engine: subscribe.entry.is_reliable(),
            rules: Rules::new(&subscribe.qos, subscribe.instances),
            instances: subscribe.instances,
        })
    }

    #[cold]
    pub(super) fn tell_lost(&self, count: u64) {
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
    pub(super) fn tell_undecodable(&self, reason: &dyn ToString) {
        let total = self.counts.undecodable.fetch_add(1, Ordering::Relaxed) + 1;
        if total.is_power_of_two()
            && let Some(node) = self.node.upgrade()
        {
            node.tell(&NodeEvent::Undecodable { topic: self.topic.clone(), total, reason: reason.to_string() });
        }
    }
}

/// Quality of service.
impl<C: Coding> RouteOf<C> {
    /// Whether histories are wanted.
    pub(super) fn wants_history(&self, offer: &Offer) -> bool {
        self.qos.durability == Durability::TransientLocal && offer.qos.durability == Durability::TransientLocal
    }

    /// Messages and bytes that may be held back while a history is missing: as many as may wait.
    pub(super) fn room(&self) -> (usize, usize) {
        match &self.delivery {
            Delivery::Queued(queue) => (queue.limits().messages, queue.limits().bytes),
            Delivery::Inline(inline) => (super::QUEUE, inline.limit()),
        }
    }

    /// Hands messages to the application, as far as the rules let them pass.
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
            Delivery::Inline(inline) => inline.give(&info, value, bytes),
            Delivery::Queued(queue) => {
                let expires_ns = expires_ns(info.timestamp_ns, terms.lifespan());
                let tag = Some(Box::new(Tag { instance, expires_ns }));
                let dropped = queue.push(Weighed { item: Sample { value, info }, bytes, tag });
                if !dropped.is_empty() {
                    self.tell_lost(dropped.len() as u64);
                }
            }
        }
    }

    /// A channel of a writer has ended.
    pub(super) fn writer_closed(&self, source: &Arc<Source>, terms: Terms, writer: Writer) {
        let held = self.rules.gates().close(writer);
        self.hand_on(held);
        let orphans = self.rules.closed(terms.writer);
        if !self.instances {
            return;
        }
        for instance in orphans {
            let info = Info {
                sequence: 0,
                timestamp_ns: history::now_ns(),
                kind: Kind::Unregister,
                key_hash: Some(instance),
                anchor: None,
                bytes: 0,
                instance: Some(InstanceState::NoWriters),
                source: source.clone(),
            };
            let terms = Terms::of(terms.writer, &Offer::default());
            self.give(Pending { value: self.coding.default_value(), info, bytes: 0, terms }, instance);
        }
    }

    /// Has the timer wake this subscriber when a deadline or a wait for a history ends.
    pub(super) fn arm(&self) {
        if let Some(at) = self.rules.wake_at()
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
            let topic = self.topic.clone();
            node.tell(&NodeEvent::DeadlineMissed { topic, instance, offered: false, total });
        }
    }

    #[cold]
    pub(super) fn tell_history_missed(&self, writer: Id128) {
        if let Some(node) = self.node.upgrade() {
            node.tell(&NodeEvent::HistoryMissed { topic: self.topic.clone(), writer });
        }
    }
}

impl<C: Coding> Wake for RouteOf<C> {
    fn wake(&self) {
        self.rules.missed().into_iter().for_each(|instance| self.tell_missed(instance));
        let late = self.rules.gates().give_up(crate::clock::now());
        for (writer, held) in late {
            self.tell_history_missed(writer.0);
            self.hand_on(held);
        }
        if let Delivery::Queued(queue) = &self.delivery {
            queue.wake();
        }
        self.arm();
    }
}

impl<C: Coding> Route for RouteOf<C> {
    fn topic(&self) -> &str {
        &self.topic
    }

    fn concerns(&self, announced: &Announcement, offer: &Offer) -> bool {
        let waits = |writer| self.rules.gates().is_waiting((writer, announced.incarnation));
        partitions_match(&offer.qos, &self.qos) && offer.history_of.is_none_or(waits)
    }

    fn needs_schema(&self) -> bool {
        self.coding.any_decoder().is_none()
    }

    fn open(
        &self,
        node: &Arc<Inner>,
        source: &Source,
        offer: &Offer,
        schema: Option<&Schema>,
    ) -> Result<Arc<dyn Slot>, String> {
        let route = self.this.upgrade().ok_or("the subscriber is going")?;
        qos::matched(&offer.qos, &self.qos, self.reliable_engine)?;
        let source = Arc::new(source.clone());
        let announced = &source.announcement;
        if let Some(decoder) = self.coding.any_decoder() {
            return Ok(SlotOf::open(route, Arc::new(decoder), None, source, offer));
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
        Ok(SlotOf::open(route, decoder, stream, source, offer))
    }

    fn refused(&self, mismatch: Mismatch) {
        self.counts.mismatches().push(mismatch);
    }

    fn describe(&self) -> SubscriberData {
        let schema = self.coding.schema();
        SubscriberData {
            id: self.id,
            topic: self.topic.clone(),
            type_name: schema.map_or_else(String::new, |schema| schema.name().into()),
            type_hash: schema.map_or(Id128::ZERO, |schema| Id128(schema.type_hash().to_bytes())),
            qos: self.qos.clone(),
            ..SubscriberData::default()
        }
    }

    fn stats(&self) -> TopicStats {
        let queued = match &self.delivery {
            Delivery::Queued(queue) => queue.len() as u64,
            Delivery::Inline(_) => 0,
        };
        TopicStats { topic: self.topic.clone(), subscribers: 1, queued, ..self.counts.read() }
    }

    fn node_closed(&self) {
        if let Delivery::Queued(queue) = &self.delivery {
            queue.close();
        }
    }
}
