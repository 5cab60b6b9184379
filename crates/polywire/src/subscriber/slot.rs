//! A subscriber's end of one channel: decodes its messages and passes them on.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use polywire_core::{
    envelope::{Announcement, Envelope, Id128, Kind},
    layout::SharedBytes,
    program::Payload,
    qos::Offer,
    rpc,
};

use super::{
    Info, Sample,
    inline::CallbackGuard,
    route::{Delivery, RouteOf},
    rules::{Pending, SampleTerms},
    take::{Take, Wanted},
};
use crate::{
    clock,
    coding::Coding,
    delta::Arriving,
    engine::{Properties, SharedPayload},
    history::{self, HistoryId, Replayed, Writer},
    node::{Slot, Source},
    queue::Weighed,
    replayed::{Part, REPLAYED},
    spans::{Span, span},
    unwind::restoring,
    writers::{Disposition, Follow, Missing},
};

/// The number of messages at the beginning of a channel whose latency is measured.
const MEASURED_FIRST: u32 = 64;

/// After these messages, one message in this number is measured.
const MEASURED_EACH: u32 = 8;

/// A subscriber's end of one channel.
pub(super) struct SlotOf<C: Coding> {
    route: Arc<RouteOf<C>>,
    decoder: Arc<C::Decoder>,
    /// Bytes of a sample before anything is decoded into its value.
    default_bytes: usize,
    /// The state of a stateful format.
    stream: Option<Arriving>,
    source: Arc<Source>,
    /// Follows the writer's sequence numbers. `None` on a channel that carries a history, and if
    /// messages are handed to another part of this crate.
    follow: Option<Follow<Arrival<C::Value>>>,
    /// `None` if no policy concerns the channel's messages.
    qos: Option<ChannelQos>,
    /// Whether the writer has a lease.
    leased: bool,
    /// Whether each message is a sign of life for the writer's lease.
    asserted: bool,
    /// Whether the subscriber has begun or ceased to want a history.
    history_changed: AtomicBool,
    /// Whether the link has ended, so that the writer may return over another one.
    broke: AtomicBool,
    /// The number of messages so far.
    seen: AtomicU32,
}

/// A decoded message that waits for earlier ones on other channels, or why it cannot be read.
pub(super) struct Arrival<V> {
    decoded: Result<Decoded<V>, String>,
    qos: Option<ChannelQos>,
}

/// A decoded message and its instance. `None` if it cannot be decoded and the history brings it.
type Decoded<V> = Option<(Pending<V>, Id128)>;

/// The properties of a channel that concern quality of service.
#[derive(Clone, Copy)]
pub(super) struct ChannelQos {
    terms: SampleTerms,
    writer: Writer,
    /// Identifies the channel, if it carries the writer's history.
    history: Option<HistoryId>,
    /// Whether the writer's messages wait for its history.
    has_barrier: bool,
}

impl<C: Coding> SlotOf<C> {
    pub(super) fn open(
        route: Arc<RouteOf<C>>,
        decoder: Arc<C::Decoder>,
        stream: Option<Arriving>,
        mut source: Arc<Source>,
        medium: Properties,
        offer: &Offer,
    ) -> Arc<dyn Slot> {
        let default_bytes = size_of::<Sample<C::Value>>().saturating_add(C::value_bytes(&decoder));
        let is_history = offer.history_of.is_some();
        let qos = ChannelQos::of(&route, &source, offer);
        if let Some(writer) = offer.history_of {
            // The samples are attributed to the writer whose history the channel carries.
            let announcement = Announcement { writer, ..Announcement::clone(&source.announcement) };
            source = Arc::new(Source { announcement: Arc::new(announcement), link: source.link.clone() });
        }
        let is_handed = matches!(route.delivery, Delivery::Handed(_));
        let follow =
            (!is_history && !is_handed).then(|| Follow::new(&route.writers, &source.announcement, medium.ordered));
        let follow = follow.map(|follow| follow.with_gaps(offer.has_gaps));
        if let Some(qos) = qos.as_ref().filter(|_| !is_history) {
            route.rules.opened(qos.terms.writer);
            if qos.has_barrier {
                route.rules.barriers().open(qos.writer, clock::now(), offer.has_gaps);
                route.arm();
            }
        }
        let leased = offer.qos.lease.filter(|_| !is_history);
        if let Some(lease) = leased {
            route.lease_opened(&source, lease, offer.lease_told);
        }
        if let Delivery::Handed(taker) = &route.delivery {
            taker.opened(&source);
        }
        Arc::new(SlotOf {
            route,
            decoder,
            default_bytes,
            stream,
            source,
            follow,
            qos,
            leased: leased.is_some(),
            asserted: leased.is_some() && !offer.lease_told,
            history_changed: AtomicBool::new(false),
            broke: AtomicBool::new(false),
            seen: AtomicU32::new(0),
        })
    }

    /// Passes a message to the part of this crate that takes the topic's messages.
    #[cold]
    fn hand(
        &self,
        taker: &dyn Take<C::Value>,
        envelope: &Envelope<'_>,
        payload: &[u8],
        info: Info,
        shared: Option<SharedPayload<'_>>,
    ) {
        let value = match taker.wants(envelope) {
            Wanted::Nothing => return,
            Wanted::Envelope => None,
            Wanted::Value => {
                let mut value = self.route.coding.default_value();
                Some(self.decode(envelope, payload, shared, &mut value).map(|_| value))
            }
        };
        if let Some(Err(reason)) = &value {
            self.route.tell_undecodable(reason);
        }
        taker.take(envelope, info, value);
    }

    /// Handles a message of a channel that carries a history.
    #[cold]
    fn replay(
        &self,
        (writer, from): (Writer, HistoryId),
        envelope: &Envelope<'_>,
        payload: &[u8],
        mut info: Info,
    ) -> Result<(), String> {
        let part = Part::of(envelope).ok_or("a message of a history does not say what it is")?;
        let mut reason = None;
        let message = match part {
            Part::Begin(replay, ids) => Replayed::Begin(replay, ids),
            Part::End => Replayed::End,
            Part::Sample(published) => {
                info.sequence = published;
                let decoded = self.decoded(envelope, payload, info, None).map_err(|error| reason = Some(error));
                let place = |item: (Pending<C::Value>, Id128)| {
                    let bytes = item.0.bytes;
                    (published, item, bytes)
                };
                Replayed::Sample(decoded.ok().flatten().map(place))
            }
        };
        self.route.replayed(writer, from, envelope.sequence, message);
        if part == Part::End {
            if !self.route.rules.barriers().is_under_way(writer, from.0) {
                self.history_changed.store(true, Ordering::Relaxed);
            }
            // Wakes the subscriber now: this slot may be dropped before the link calls `drained`.
            self.drained();
        }
        reason.map_or(Ok(()), Err)
    }

    /// Decodes a message into an owned value, and determines its instance.
    #[cold]
    fn decoded(
        &self,
        envelope: &Envelope<'_>,
        payload: &[u8],
        info: Info,
        shared: Option<SharedPayload<'_>>,
    ) -> Result<Decoded<C::Value>, String> {
        let (mut value, has) = match &self.route.delivery {
            Delivery::Queued(queue) => queue.spare().map(|spare| (spare.item, spare.bytes)),
            Delivery::Inline(_) | Delivery::Handed(_) => None,
        }
        .unwrap_or_else(|| (self.route.coding.default_value(), self.default_bytes));
        let behind_barrier = self.qos.filter(|qos| qos.has_barrier && qos.history.is_none());
        let grown = match (self.decode(envelope, payload, shared, &mut value), behind_barrier) {
            // The history has the message, in a form that refers to no other message.
            (Err(_), Some(qos)) if self.needs_key_frame() => {
                if self.route.rules.barriers().missed(qos.writer, clock::now()) {
                    self.history_changed.store(true, Ordering::Relaxed);
                    self.route.arm();
                }
                return Ok(None);
            }
            (decoded, _) => decoded?,
        };
        let instance = match self.qos {
            Some(_) => self.route.rules.instance(&self.route.coding, envelope, payload.is_empty(), &value),
            None => Id128::ZERO,
        };
        let terms = self
            .qos
            .map_or_else(|| SampleTerms::of(self.source.announcement.writer, &Offer::default()), |qos| qos.terms);
        Ok(Some((Pending { value, info, bytes: has.saturating_add(grown), terms }, instance)))
    }

    /// Measures the latency of the first messages, and of some of those after them: reading the
    /// clock costs more than all other counting. Of `together` messages that have arrived together,
    /// only the first is measured.
    #[inline]
    fn measure(&self, first: &Envelope<'_>, together: u32) {
        let number = self.seen.load(Ordering::Relaxed);
        // Only the link's thread writes. With two threads, some messages would be measured too
        // often.
        self.seen.store(number.wrapping_add(together), Ordering::Relaxed);
        let is_due = number < MEASURED_FIRST || number.wrapping_neg() % MEASURED_EACH < together;
        if is_due && !self.is_auxiliary() {
            self.route.counts.measure(first.timestamp_ns);
        }
    }

    /// Delivers a message at once. Decodes it into a used value if no policy concerns it.
    #[inline]
    fn deliver_now(
        &self,
        envelope: &Envelope<'_>,
        payload: &[u8],
        info: Info,
        shared: Option<SharedPayload<'_>>,
    ) -> Result<(), String> {
        match (&self.qos, &self.route.delivery) {
            (_, Delivery::Handed(taker)) => {
                self.hand(&**taker, envelope, payload, info, shared);
                Ok(())
            }
            (None, Delivery::Inline(inline)) if !inline.is_running_here() => {
                self.call(&mut inline.lock(), envelope, payload, &info, shared)
            }
            // Without a policy, the callback has published the message, and gets it after this
            // call.
            (Some(_), _) | (None, Delivery::Inline(_)) => {
                let decoded = self.decoded(envelope, payload, info, shared)?;
                self.route.take(Arrival { decoded: Ok(decoded), qos: self.qos });
                Ok(())
            }
            (None, Delivery::Queued(queue)) => {
                // A used value keeps its allocated memory.
                let (mut value, has) = match queue.spare() {
                    Some(Weighed { item, bytes, .. }) => (item, bytes),
                    None => (self.route.coding.default_value(), self.default_bytes),
                };
                self.decode(envelope, payload, shared, &mut value).map(|grown| {
                    let bytes = has.saturating_add(grown);
                    let dropped = queue.push(Weighed::new(Sample { value, info }, bytes));
                    if !dropped.is_empty() {
                        self.route.tell_lost(dropped.len() as u64);
                    }
                })
            }
        }
    }

    /// Decodes a message into the used value of a callback, and calls the callback.
    #[inline(always)]
    fn call(
        &self,
        callback: &mut CallbackGuard<'_, C::Value>,
        envelope: &Envelope<'_>,
        payload: &[u8],
        info: &Info,
        shared: Option<SharedPayload<'_>>,
    ) -> Result<(), String> {
        let Some(value) = callback.value() else { return Ok(()) };
        let decoded = self.decode(envelope, payload, shared, value);
        callback.call(info, decoded, || self.route.coding.default_value(), !self.route.shares)
    }

    /// Delivers messages that arrived together to a callback, if only their order has to be
    /// checked. Otherwise does nothing and returns false.
    #[inline]
    fn call_together(&self, messages: &[(Envelope<'_>, &[u8])]) -> bool {
        let (Delivery::Inline(inline), None, None) = (&self.route.delivery, &self.qos, &self.stream) else {
            return false;
        };
        let (Some(follow), [(first, _), .., (last, _)]) = (&self.follow, messages) else { return false };
        if inline.is_running_here() {
            return false;
        }
        let mut numbered = (first.sequence..).zip(messages);
        if !numbered.all(|(number, (next, _))| next.sequence == number && next.extensions.is_empty()) {
            return false;
        }
        let Some(missing) = follow.on_messages(first.sequence, last.sequence) else { return false };
        if self.asserted {
            self.route.heard(self.source.announcement.writer);
        }
        self.tell_missing(missing);
        self.measure(first, messages.len() as u32);
        let call_each = || {
            let (mut callback, mut info) = (inline.lock(), self.info(first, 0));
            for (envelope, payload) in messages {
                let _span = self.span(envelope).entered();
                info.set(envelope, payload.len());
                if let Err(reason) = self.call(&mut callback, envelope, payload, &info, None) {
                    self.route.tell_undecodable(&reason);
                }
            }
        };
        restoring(|| self.panicked(last.sequence), call_each);
        if follow.done(last.sequence) {
            self.release();
        }
        true
    }

    /// Holds a message until the messages before it have arrived on another channel.
    #[cold]
    fn hold(&self, follow: &Follow<Arrival<C::Value>>, sequence: u64, decoded: Result<Decoded<C::Value>, String>) {
        let bytes = match &decoded {
            Ok(Some((pending, _))) => pending.bytes,
            _ => 0,
        };
        follow.hold(sequence, Arrival { decoded, qos: self.qos }, bytes, self.route.room());
        self.release();
        self.route.arm();
    }

    /// Delivers the held messages that no longer have to wait.
    #[cold]
    fn release(&self) {
        let Some(follow) = &self.follow else { return };
        let deliver = |missing: Missing, arrival: Arrival<C::Value>| {
            self.tell_missing(missing);
            self.route.take(arrival);
        };
        // After a panic of the callback, the timer releases the rest.
        if restoring(|| self.route.arm(), || follow.release(deliver)) {
            self.drained();
        }
    }

    /// Lets other threads and the timer deliver the writer's later messages after a panic of the
    /// callback.
    #[cold]
    fn panicked(&self, sequence: u64) {
        if let Some(follow) = &self.follow {
            follow.panicked(sequence);
            self.route.arm();
        }
    }

    #[inline]
    fn tell_missing(&self, missing: Missing) {
        self.route.tell_missing(self.qos.as_ref(), missing);
    }

    fn info(&self, envelope: &Envelope<'_>, wire_bytes: usize) -> Info {
        Info::new(envelope, wire_bytes, self.source.clone())
    }

    /// A span in which a message is delivered.
    #[inline]
    #[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "only spans have fields"))]
    fn span(&self, envelope: &Envelope<'_>) -> Span {
        span!(
            TRACE,
            "deliver",
            topic = %self.source.announcement.topic,
            wire = %self.source.announcement.codec,
            writer = %self.source.announcement.writer,
            sequence = envelope.sequence,
        )
    }

    /// The extensions of messages that are understood here.
    #[inline]
    fn known_extensions(&self) -> &'static [u32] {
        match &self.route.delivery {
            Delivery::Handed(_) => rpc::EXTENSIONS,
            _ if self.is_auxiliary() => &[REPLAYED],
            _ => &[],
        }
    }

    /// Decodes a message and returns the bytes by which the value grew.
    #[inline(always)]
    fn decode(
        &self,
        envelope: &Envelope<'_>,
        payload: &[u8],
        shared: Option<SharedPayload<'_>>,
        value: &mut C::Value,
    ) -> Result<usize, String> {
        match envelope.kind {
            Kind::Dispose | Kind::Unregister if payload.is_empty() => {
                *value = self.route.coding.default_value();
                Ok(0)
            }
            _ if self.stream.is_some() => self.decode_delta(envelope, payload, value),
            _ if self.route.shares => {
                let (message, kept) = share(payload, shared);
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
    fn deliver(&self, envelope: &Envelope<'_>, payload: &[u8], wire_bytes: usize, shared: Option<SharedPayload<'_>>) {
        let _span = self.span(envelope).entered();
        self.measure(envelope, 1);
        if self.asserted {
            self.route.heard(self.source.announcement.writer);
        }
        let sequence = envelope.sequence;
        let disposition =
            self.follow.as_ref().map_or(Disposition::Deliver(Missing::default()), |follow| follow.on_message(sequence));
        let not_understood = envelope.extensions.not_understood(self.known_extensions());
        let refused = not_understood.map(|id| format!("extension {id} is required but not supported"));
        let info = self.info(envelope, wire_bytes);
        let result = match (disposition, refused, &self.follow) {
            (Disposition::Hold, refused, Some(follow)) => {
                let decoded = refused.map_or_else(|| self.decoded(envelope, payload, info, shared), Err);
                return self.hold(follow, sequence, decoded);
            }
            (Disposition::Deliver(missing), refused, _) => {
                self.tell_missing(missing);
                let replayed = self.qos.and_then(|qos| Some((qos.writer, qos.history?)));
                let deliver = || match (refused, replayed) {
                    (Some(reason), _) => Err(reason),
                    (None, Some(replayed)) => self.replay(replayed, envelope, payload, info),
                    (None, None) => self.deliver_now(envelope, payload, info, shared),
                };
                restoring(|| self.panicked(sequence), deliver)
            }
            // A duplicate is decoded all the same: later messages of a stateful format may refer to
            // it.
            (_, None, _) if self.stream.is_some() => {
                return drop(self.decoded(envelope, payload, info, shared));
            }
            _ => return,
        };
        if let Err(reason) = result {
            self.route.tell_undecodable(&reason);
        }
        if self.follow.as_ref().is_some_and(|follow| follow.done(sequence)) {
            self.release();
        }
    }

    #[inline]
    fn deliver_together(&self, messages: &[(Envelope<'_>, &[u8])]) {
        if !self.call_together(messages) {
            messages.iter().for_each(|(envelope, payload)| self.deliver(envelope, payload, payload.len(), None));
        }
    }

    fn is_inline(&self) -> bool {
        !matches!(self.route.delivery, Delivery::Queued(_)) && !self.is_auxiliary()
    }

    fn is_stream(&self) -> bool {
        self.stream.is_some() && !self.is_auxiliary()
    }

    fn is_auxiliary(&self) -> bool {
        self.qos.is_some_and(|qos| qos.history.is_some())
    }

    fn wants_history(&self) -> bool {
        let waits = |qos: ChannelQos| qos.has_barrier && self.route.rules.barriers().is_waiting(qos.writer);
        self.qos.is_some_and(|qos| qos.history.is_none() && waits(qos))
    }

    fn has_barrier(&self) -> bool {
        self.qos.is_some_and(|qos| qos.has_barrier || qos.history.is_some())
    }

    fn history_changed(&self) -> bool {
        self.history_changed.load(Ordering::Relaxed) && self.history_changed.swap(false, Ordering::Relaxed)
    }

    fn needs_key_frame(&self) -> bool {
        if let Some(qos) = self.qos.filter(|qos| qos.history.is_some()) {
            return self.route.rules.barriers().is_waiting(qos.writer);
        }
        self.stream.as_ref().is_some_and(Arriving::needs_key_frame)
    }

    fn undecodable(&self, sequence: u64, reason: &dyn ToString) {
        let Some(follow) = &self.follow else { return self.route.tell_undecodable(reason) };
        match follow.on_message(sequence) {
            Disposition::Deliver(missing) => {
                self.tell_missing(missing);
                self.route.tell_undecodable(reason);
                if follow.done(sequence) {
                    self.release();
                }
            }
            Disposition::Hold => self.hold(follow, sequence, Err(reason.to_string())),
            Disposition::Drop => {}
        }
    }

    fn lost(&self, sequence: u64, count: u64) {
        if let Some(follow) = &self.follow {
            self.tell_missing(follow.on_loss_report(sequence, count));
            self.release();
        }
    }

    fn accepted(&self) {
        if let Delivery::Handed(taker) = &self.route.delivery {
            taker.accepted(&self.source);
        }
    }

    fn liveliness_changed(&self, is_alive: bool) {
        if self.leased {
            self.route.liveliness_changed(&self.source, is_alive);
        }
    }

    fn broke(&self) {
        self.broke.store(true, Ordering::Relaxed);
    }

    fn drained(&self) {
        if let Delivery::Queued(queue) = &self.route.delivery {
            queue.wake();
        }
    }
}

impl<C: Coding> Drop for SlotOf<C> {
    fn drop(&mut self) {
        self.tell_missing(self.follow.as_ref().map_or_else(Missing::default, Follow::end));
        self.release();
        if self.leased {
            self.route.lease_closed(self.source.announcement.writer);
        }
        if let Delivery::Handed(taker) = &self.route.delivery {
            taker.closed(&self.source);
        }
        let Some(qos) = self.qos else { return };
        match qos.history {
            Some(from) => self.route.rules.barriers().leave(qos.writer, from),
            None => {
                let broke = self.broke.load(Ordering::Relaxed);
                self.route.writer_closed(&self.source, qos.terms, qos.writer, broke);
                self.drained();
            }
        }
    }
}

impl<V> Arrival<V> {
    pub(super) fn qos(&self) -> Option<&ChannelQos> {
        self.qos.as_ref()
    }

    pub(super) fn into_parts(self) -> (Result<Decoded<V>, String>, Option<ChannelQos>) {
        (self.decoded, self.qos)
    }
}

impl ChannelQos {
    /// Returns the writer if its messages wait for its history.
    pub(super) fn barrier_writer(&self) -> Option<Writer> {
        self.has_barrier.then_some(self.writer)
    }

    fn of<C: Coding>(route: &RouteOf<C>, source: &Source, offer: &Offer) -> Option<ChannelQos> {
        let announced = &source.announcement;
        let has_barrier = route.wants_history(offer);
        let history = offer.history_of.map(|_| history::history_id(source));
        let writer = offer.history_of.unwrap_or(announced.writer);
        let terms = SampleTerms::of(writer, offer);
        let qos = ChannelQos { terms, writer: (writer, announced.incarnation), history, has_barrier };
        (has_barrier || history.is_some() || route.rules.by_instance || terms.lifespan().is_some()).then_some(qos)
    }
}

/// A value keeps the receive buffer if the payload is at least this fraction of it (1 / 8).
/// Otherwise the payload is copied once, as a whole.
const SHARED_PART: usize = 8;

/// Returns the payload in a form that values can refer to, and the number of other bytes in its
/// buffer.
fn share(payload: &[u8], shared: Option<SharedPayload<'_>>) -> (SharedBytes, usize) {
    match shared.filter(|shared| shared.buffer_bytes() <= SHARED_PART * payload.len()) {
        Some(shared) => (shared.keep(), shared.buffer_bytes().saturating_sub(payload.len())),
        None => (SharedBytes::from(payload).into_shared(), 0),
    }
}
