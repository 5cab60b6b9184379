//! One channel as one subscriber receives it: decodes its messages and hands them on.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use polywire_core::{
    envelope::{Announcement, Envelope, Kind},
    layout::SharedBytes,
    program::Payload,
    qos::Offer,
};

use super::{
    Info, Sample,
    route::{Delivery, RouteOf},
    rules::{Pending, Terms},
};
use crate::{
    clock,
    coding::Coding,
    delta::Arriving,
    engine::Held,
    history::{Part, REPLAYED, Writer},
    missing::Follow,
    node::{Slot, Source},
    queue::Weighed,
};

/// Messages of a channel whose latency is measured, from the first one on.
const MEASURED_FIRST: u32 = 64;

/// Of the messages after these, each one of so many is measured.
const MEASURED_EACH: u32 = 8;

/// One channel, as one subscriber receives it.
pub(super) struct SlotOf<C: Coding> {
    route: Arc<RouteOf<C>>,
    decoder: Arc<C::Decoder>,
    /// Bytes of a sample before anything is decoded into its value.
    default_bytes: usize,
    /// The state of a stateful format.
    stream: Option<Arriving>,
    source: Arc<Source>,
    follow: Option<Follow>,
    /// `None` if no policy concerns the channel's messages.
    ruled: Option<Ruled>,
    /// A history is wanted, or wanted no more.
    history_changed: AtomicBool,
    /// Messages so far.
    seen: AtomicU32,
}

/// What quality of service needs of a channel.
#[derive(Clone, Copy)]
struct Ruled {
    terms: Terms,
    writer: Writer,
    /// The channel brings the writer's history.
    is_history: bool,
    /// The writer's history is wanted before its messages.
    gated: bool,
}

impl<C: Coding> SlotOf<C> {
    pub(super) fn open(
        route: Arc<RouteOf<C>>,
        decoder: Arc<C::Decoder>,
        stream: Option<Arriving>,
        mut source: Arc<Source>,
        offer: &Offer,
    ) -> Arc<dyn Slot> {
        let default_bytes = size_of::<Sample<C::Value>>().saturating_add(C::value_bytes(&decoder));
        let is_history = offer.history_of.is_some();
        if let Some(writer) = offer.history_of {
            // The samples are those of the writer.
            let announcement = Announcement { writer, ..Announcement::clone(&source.announcement) };
            source = Arc::new(Source { announcement: Arc::new(announcement), link: source.link.clone() });
        }
        let follow = route.writers.as_ref().filter(|_| !is_history);
        let follow = follow.map(|writers| Follow::new(writers, &source.announcement));
        let ruled = Ruled::of(&route, &source, offer);
        if let Some(ruled) = ruled.as_ref().filter(|ruled| !ruled.is_history) {
            route.rules.opened(ruled.terms.writer);
            if ruled.gated {
                route.rules.gates().open(ruled.writer, clock::now());
                route.arm();
            }
        }
        Arc::new(SlotOf {
            route,
            decoder,
            default_bytes,
            stream,
            source,
            follow,
            ruled,
            history_changed: AtomicBool::new(false),
            seen: AtomicU32::new(0),
        })
    }

    /// Delivers a message by the rules of quality of service.
    #[cold]
    fn deliver_ruled(
        &self,
        ruled: &Ruled,
        envelope: &Envelope<'_>,
        payload: &[u8],
        mut info: Info,
        held: Option<Held<'_>>,
    ) -> Result<(), String> {
        let part = match ruled.is_history {
            true => Some(Part::of(envelope).ok_or("a message of a history does not say what it is")?),
            false => None,
        };
        match part {
            Some(Part::Begin) => {
                self.route.rules.gates().begin(ruled.writer);
                return Ok(());
            }
            Some(Part::End) => {
                let held = self.route.rules.gates().complete(ruled.writer);
                self.route.hand_on(held);
                self.history_changed.store(true, Ordering::Relaxed);
                // This slot may be gone before it is drained.
                self.drained();
                return Ok(());
            }
            Some(Part::Sample(published)) => info.sequence = published,
            None => {}
        }
        let (mut value, has) = match &self.route.delivery {
            Delivery::Queued(queue) => queue.spare().map(|spare| (spare.item, spare.bytes)),
            Delivery::Inline(_) => None,
        }
        .unwrap_or_else(|| (self.route.coding.default_value(), self.default_bytes));
        let grown = match self.decode(envelope, payload, held, &mut value) {
            // The history has it, in a form that refers to nothing.
            Err(_) if ruled.gated && part.is_none() && self.needs_key_frame() => {
                if self.route.rules.gates().missed(ruled.writer, clock::now()) {
                    self.history_changed.store(true, Ordering::Relaxed);
                    self.route.arm();
                }
                return Ok(());
            }
            decoded => decoded?,
        };
        let bytes = has.saturating_add(grown);
        let instance = self.route.rules.instance(&self.route.coding, envelope, payload.is_empty(), &value);
        let number = info.sequence;
        let item = (Pending { value, info, bytes, terms: ruled.terms }, instance);
        let ready = match part {
            Some(_) => self.route.rules.gates().replayed(ruled.writer, number, item),
            None if ruled.gated => {
                let room = self.route.room();
                let (ready, gave_up) = self.route.rules.gates().published(ruled.writer, number, item, bytes, room);
                if gave_up {
                    self.route.tell_history_missed(ruled.terms.writer);
                }
                ready
            }
            None => vec![item],
        };
        self.route.hand_on(ready);
        Ok(())
    }

    /// Measures the latency of the first messages, and then of some: reading the clock costs more
    /// than all other counting.
    #[inline]
    fn measure(&self, envelope: &Envelope<'_>) {
        let number = self.seen.load(Ordering::Relaxed);
        // Only the link's thread writes. Were there two, some messages would be measured too often.
        self.seen.store(number.wrapping_add(1), Ordering::Relaxed);
        if (number < MEASURED_FIRST || number.is_multiple_of(MEASURED_EACH)) && !self.is_history() {
            self.route.counts.measure(envelope.timestamp_ns);
        }
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

    /// The extensions of messages that are understood here.
    #[inline]
    fn known_extensions(&self) -> &'static [u32] {
        if self.ruled.is_some_and(|ruled| ruled.is_history) { &[REPLAYED] } else { &[] }
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
        self.measure(envelope);
        if let Some(id) = envelope.extensions.not_understood(self.known_extensions()) {
            return self.route.tell_undecodable(&format!("extension {id} is required but not supported"));
        }
        let info = Info {
            sequence: envelope.sequence,
            timestamp_ns: envelope.timestamp_ns,
            kind: envelope.kind,
            key_hash: envelope.key_hash,
            anchor: envelope.anchor,
            bytes: wire_bytes,
            instance: None,
            source: self.source.clone(),
        };
        let result = match (&self.ruled, &self.route.delivery) {
            (Some(ruled), _) => self.deliver_ruled(ruled, envelope, payload, info, held),
            (None, Delivery::Inline(inline)) => inline.call(
                &info,
                |value| self.decode(envelope, payload, held, value),
                || self.route.coding.default_value(),
                !self.route.shares,
            ),
            (None, Delivery::Queued(queue)) => {
                // A used value keeps the memory that it has.
                let (mut value, has) = match queue.spare() {
                    Some(Weighed { item, bytes, .. }) => (item, bytes),
                    None => (self.route.coding.default_value(), self.default_bytes),
                };
                self.decode(envelope, payload, held, &mut value).map(|grown| {
                    let bytes = has.saturating_add(grown);
                    let dropped = queue.push(Weighed::new(Sample { value, info }, bytes));
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
        self.stream.is_some() && !self.is_history()
    }

    fn is_history(&self) -> bool {
        self.ruled.is_some_and(|ruled| ruled.is_history)
    }

    fn wants_history(&self) -> bool {
        let waits = |ruled: Ruled| ruled.gated && self.route.rules.gates().is_waiting(ruled.writer);
        self.ruled.is_some_and(|ruled| !ruled.is_history && waits(ruled))
    }

    fn is_gated(&self) -> bool {
        self.ruled.is_some_and(|ruled| ruled.gated || ruled.is_history)
    }

    fn history_changed(&self) -> bool {
        self.history_changed.load(Ordering::Relaxed) && self.history_changed.swap(false, Ordering::Relaxed)
    }

    fn needs_key_frame(&self) -> bool {
        if let Some(ruled) = self.ruled.filter(|ruled| ruled.is_history) {
            return self.route.rules.gates().is_waiting(ruled.writer);
        }
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
        if let Some(ruled) = self.ruled.filter(|ruled| !ruled.is_history) {
            self.route.writer_closed(&self.source, ruled.terms, ruled.writer);
            self.drained();
        }
    }
}

impl Ruled {
    fn of<C: Coding>(route: &RouteOf<C>, source: &Source, offer: &Offer) -> Option<Ruled> {
        let announced = &source.announcement;
        let (gated, is_history) = (route.wants_history(offer), offer.history_of.is_some());
        let terms = Terms::of(announced.writer, offer);
        let ruled = Ruled { terms, writer: (announced.writer, announced.incarnation), is_history, gated };
        (gated || is_history || route.rules.by_instance || terms.lifespan().is_some()).then_some(ruled)
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
