//! The histories that bridges forward.
//!
//! A writer that keeps samples has a history channel, which subscribers accept to request the
//! samples (`spec/qos.md`). The bridge announces a history channel of its own at the other end.
//! When a subscriber accepts it, the bridge accepts the writer's history channel, forwards the
//! history, and leaves the channel again. If the bridge converts the writer's channel, it converts
//! each sample of the history too.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    codec::Encoder,
    envelope::{Announcement, ChannelId, Envelope, Extensions, Id128},
    frame::Start,
    layout::Record,
    qos::Offer,
    schema::Schema,
};

use super::Direction;
use crate::{
    Info,
    coding::Dynamic,
    engine::{Properties, SharedPayload},
    node::{Inner, PortEntry, Replay, Slot, Source, random_id},
    publisher::Writing,
    replayed::Part,
};

/// The history of a writer whose channel a bridge forwards.
pub(super) struct ForwardedHistory {
    direction: Weak<Direction>,
    to: Arc<PortEntry>,
    /// The writer's announcement, and the bridges that its channel has passed.
    announced: Arc<Announcement>,
    via: Vec<Id128>,
    /// The history channel at the other end, and the id of its writer.
    channel: ChannelId,
    id: Id128,
    sequence: AtomicU64,
    /// `None` if payloads are forwarded as received.
    conversion: Option<Conversion>,
    asked: Mutex<Asked>,
}

/// Encodes samples in the format of the other end.
#[derive(Clone)]
pub(super) struct Conversion {
    coding: Dynamic,
    writing: Arc<Mutex<Writing<Encoder<Record>>>>,
}

impl Conversion {
    pub(super) fn new(coding: Dynamic, alone: Writing<Encoder<Record>>) -> Conversion {
        Conversion { coding, writing: Arc::new(Mutex::new(alone)) }
    }

    fn encode(&self, value: &Record) -> Option<Made> {
        let mut payload = Vec::new();
        let is_key_frame = self.writing.lock().encode_alone::<Dynamic>(value, &mut payload).ok()?;
        Some(Made { payload, is_key_frame })
    }
}

/// A payload that was converted.
struct Made {
    payload: Vec<u8>,
    is_key_frame: bool,
}

/// The state of a request from the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// The history is being read. The value is true if it was requested once more.
    Wanted(bool),
    /// The history has arrived, and the bridge is about to leave the writer's channel. The value is
    /// true if the history was requested once more.
    Came(bool),
}

impl ForwardedHistory {
    /// Announces the history of a forwarded channel at the other end. `there` and `offer` are the
    /// announcement and the offer of the forwarded channel there. `hops` is the number of bridges
    /// that the writer's channel has passed.
    pub(super) fn open(
        direction: &Arc<Direction>,
        announced: &Arc<Announcement>,
        hops: usize,
        offer: &Offer,
        there: Announcement,
        conversion: Option<Conversion>,
    ) -> Result<Arc<ForwardedHistory>, String> {
        let (to, id, via) = (direction.to.entry.clone(), random_id(), offer.via[..hops].to_vec());
        let offer = Offer { history_of: Some(announced.writer), ..offer.clone() };
        let announcement = Announcement { writer: id, offer: offer.to_bytes(), ..there };
        let channel = to.announce(&announcement, Start::default()).map_err(|error| error.to_string())?;
        let history = Arc::new(ForwardedHistory {
            direction: Arc::downgrade(direction),
            to: to.clone(),
            announced: announced.clone(),
            via,
            channel,
            id,
            sequence: AtomicU64::new(0),
            conversion,
            asked: Mutex::new(Asked::Nothing),
        });
        // The history is listed before it can be requested.
        direction.lock().histories.push(Arc::downgrade(&history));
        let replay: Weak<dyn Replay> = Arc::downgrade(&(history.clone() as Arc<dyn Replay>));
        to.serve_history(channel, replay);
        Ok(history)
    }

    pub(super) fn topic(&self) -> &str {
        &self.announced.topic
    }

    /// Checks whether this history channel of the writer is to be read now. Its format and the
    /// bridges that it has passed must be those of the forwarded channel.
    pub(super) fn wants(&self, announced: &Announcement, offer: &Offer) -> bool {
        offer.history_of == Some(self.announced.writer)
            && offer.via == self.via
            && announced.incarnation == self.announced.incarnation
            && format(announced) == format(&self.announced)
            && matches!(*self.asked(), Asked::Wanted(_))
    }

    /// Checks whether the history has arrived, so that the writer's channel is to be left.
    pub(super) fn has_come(&self) -> bool {
        matches!(*self.asked(), Asked::Came(_))
    }

    /// Records that the writer's channel was left after the history had arrived. Returns true if
    /// the history is to be read again.
    pub(super) fn begins_again(&self) -> bool {
        let mut asked = self.asked();
        let Asked::Came(again) = *asked else { return false };
        *asked = if again { Asked::Wanted(false) } else { Asked::Nothing };
        again
    }

    /// Makes the slot that receives the writer's history channel.
    pub(super) fn slot(
        self: Arc<Self>,
        direction: &Direction,
        node: &Arc<Inner>,
        source: &Source,
        medium: Properties,
        schema: Option<&Schema>,
    ) -> Result<Arc<dyn Slot>, String> {
        let Some(conversion) = self.conversion.clone() else {
            return Ok(Arc::new(Passing { history: self, decoding: None }));
        };
        let made = Arc::new(Mutex::new(None));
        let (into, coding) = (made.clone(), conversion.coding.clone());
        let convert = move |value: &Record, _: &Info| *into.lock() = conversion.encode(value);
        // The history may have other channels, so gaps on this one are no losses.
        let medium = Properties { ordered: false, ..medium };
        let slot = direction.decode(node, source, medium, schema, coding, convert)?;
        Ok(Arc::new(Passing { history: self, decoding: Some(Decoding { slot, made }) }))
    }

    /// Forwards a message of the writer's history channel to the other end.
    fn send(&self, envelope: &Envelope<'_>, part: Part<'_>, payload: &[u8], is_key_frame: bool) {
        let (sequence, own) = (self.sequence.fetch_add(1, Ordering::Relaxed) + 1, [self.id.0]);
        let part = if matches!(part, Part::Begin(..)) { Part::Begin(sequence, &own) } else { part };
        let (extensions, anchor) = (part.extension(), is_key_frame.then_some(sequence));
        let extensions = extensions.as_extensions();
        let envelope = Envelope { channel: self.channel, sequence, anchor, extensions, ..*envelope };
        // An error means that the port has closed, so there is no receiver.
        let _ = self.to.send(&envelope, payload);
        self.to.settle();
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock()
    }

    fn reconsider(&self) {
        if let Some(direction) = self.direction.upgrade() {
            direction.ask(self.topic());
        }
    }
}

impl Replay for ForwardedHistory {
    fn request(&self) {
        let is_new = {
            let mut asked = self.asked();
            let before = *asked;
            *asked = match before {
                Asked::Nothing => Asked::Wanted(false),
                Asked::Wanted(_) => Asked::Wanted(true),
                Asked::Came(_) => Asked::Came(true),
            };
            before == Asked::Nothing
        };
        if is_new {
            self.reconsider();
        }
    }
}

impl Drop for ForwardedHistory {
    fn drop(&mut self) {
        self.to.retire(self.channel);
    }
}

/// Returns what determines the format of a channel's payloads.
fn format(of: &Announcement) -> (&str, &str, &str, Option<Id128>) {
    (&of.codec, &of.options, &of.compressor, of.configuration)
}

/// A history channel of the writer, which is forwarded.
struct Passing {
    history: Arc<ForwardedHistory>,
    /// `None` if payloads are forwarded as received.
    decoding: Option<Decoding>,
}

/// Decodes the samples that are to be converted.
struct Decoding {
    slot: Arc<dyn Slot>,
    /// The result of converting the sample that the slot has received.
    made: Arc<Mutex<Option<Made>>>,
}

impl Decoding {
    /// Converts a sample. `None` if it cannot be decoded, which the slot reports, or not encoded.
    fn convert(&self, envelope: &Envelope<'_>, payload: &[u8], wire_bytes: usize) -> Option<Made> {
        let envelope = Envelope { extensions: Extensions::default(), ..*envelope };
        self.slot.deliver(&envelope, payload, wire_bytes, None);
        self.made.lock().take()
    }
}

impl Slot for Passing {
    fn deliver(&self, envelope: &Envelope<'_>, payload: &[u8], wire_bytes: usize, _: Option<SharedPayload<'_>>) {
        let history = &*self.history;
        let Some(part) = Part::of(envelope) else { return };
        match self.decoding.as_ref().filter(|_| matches!(part, Part::Sample(_))) {
            None => history.send(envelope, part, payload, envelope.anchor.is_some()),
            Some(decoding) => match decoding.convert(envelope, payload, wire_bytes) {
                Some(made) => history.send(envelope, part, &made.payload, made.is_key_frame),
                None => history.direction.upgrade().iter().for_each(|direction| direction.sent(payload.len(), None)),
            },
        }
        if part == Part::End {
            let mut asked = history.asked();
            *asked = Asked::Came(*asked == Asked::Wanted(true));
            drop(asked);
            history.reconsider();
        }
    }

    fn takes_packed(&self) -> bool {
        self.decoding.is_none()
    }

    fn is_auxiliary(&self) -> bool {
        true
    }
}
