//! The histories that bridges pass on.
//!
//! A writer that keeps samples has a history channel, which is accepted by those who ask for them
//! (`spec/qos.md`). At the other end, the bridge announces one of its own. When somebody accepts it
//! there, the bridge accepts that of the writer, passes on what comes, and leaves it again. Where
//! the bridge converts the channel, it converts each sample of the history as it comes.

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

use super::Way;
use crate::{
    Info,
    coding::Dynamic,
    engine::{Held, Properties},
    node::{Inner, PortEntry, Replay, Slot, Source, random_id},
    publisher::Writing,
    replayed::Part,
};

/// The history of a writer whose channel a bridge passes on.
pub(super) struct Past {
    way: Weak<Way>,
    to: Arc<PortEntry>,
    /// What the writer announced, and the bridges that its channel has passed.
    announced: Arc<Announcement>,
    via: Vec<Id128>,
    /// The history channel at the other end, and the id of its writer.
    channel: ChannelId,
    id: Id128,
    sequence: AtomicU64,
    /// `None` if payloads are passed on as they came.
    conversion: Option<Conversion>,
    asked: Mutex<Asked>,
}

/// Makes samples in the format of the other end.
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

/// What the other end has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// The history is under way; it is asked for once more if the value is true.
    Wanted(bool),
    /// It has come. The writer's channel is about to be left.
    Came(bool),
}

impl Past {
    /// Announces the history of a channel at the other end, where `there` and `offer` are those of
    /// the channel. It has passed so many bridges before.
    pub(super) fn open(
        way: &Arc<Way>,
        announced: &Arc<Announcement>,
        hops: usize,
        offer: &Offer,
        there: Announcement,
        conversion: Option<Conversion>,
    ) -> Result<Arc<Past>, String> {
        let (to, id, via) = (way.to.entry.clone(), random_id(), offer.via[..hops].to_vec());
        let offer = Offer { history_of: Some(announced.writer), ..offer.clone() };
        let history = Announcement { writer: id, offer: offer.to_bytes(), ..there };
        let channel = to.announce(&history, Start::default()).map_err(|error| error.to_string())?;
        let past = Arc::new(Past {
            way: Arc::downgrade(way),
            to: to.clone(),
            announced: announced.clone(),
            via,
            channel,
            id,
            sequence: AtomicU64::new(0),
            conversion,
            asked: Mutex::new(Asked::Nothing),
        });
        // Before it may be asked for.
        way.lock().pasts.push(Arc::downgrade(&past));
        let replay: Weak<dyn Replay> = Arc::downgrade(&(past.clone() as Arc<dyn Replay>));
        to.serve_history(channel, replay);
        Ok(past)
    }

    pub(super) fn topic(&self) -> &str {
        &self.announced.topic
    }

    /// Whether a history channel of the writer is to be read now. It has the format of the channel
    /// that is passed on, and has come the same way.
    pub(super) fn wants(&self, announced: &Announcement, offer: &Offer) -> bool {
        offer.history_of == Some(self.announced.writer)
            && offer.via == self.via
            && announced.incarnation == self.announced.incarnation
            && format(announced) == format(&self.announced)
            && matches!(*self.asked(), Asked::Wanted(_))
    }

    /// Whether the history has come, and the writer's channel is to be left.
    pub(super) fn has_come(&self) -> bool {
        matches!(*self.asked(), Asked::Came(_))
    }

    /// The writer's channel was left after the history had come. True if it is to be read again.
    pub(super) fn begins_again(&self) -> bool {
        let mut asked = self.asked();
        let Asked::Came(again) = *asked else { return false };
        *asked = if again { Asked::Wanted(false) } else { Asked::Nothing };
        again
    }

    /// What comes on the writer's channel.
    pub(super) fn slot(
        self: Arc<Self>,
        way: &Way,
        node: &Arc<Inner>,
        source: &Source,
        medium: Properties,
        schema: Option<&Schema>,
    ) -> Result<Arc<dyn Slot>, String> {
        let Some(conversion) = self.conversion.clone() else {
            return Ok(Arc::new(Passing { past: self, decoding: None }));
        };
        let made = Arc::new(Mutex::new(None));
        let (into, coding) = (made.clone(), conversion.coding.clone());
        let convert = move |value: &Record, _: &Info| *into.lock() = conversion.encode(value);
        // The history may have other channels, so gaps on this one are no losses.
        let medium = Properties { ordered: false, ..medium };
        let slot = way.decode(node, source, medium, schema, coding, convert)?;
        Ok(Arc::new(Passing { past: self, decoding: Some(Decoding { slot, made }) }))
    }

    /// Sends a message of the writer's channel at the other end.
    fn send(&self, envelope: &Envelope<'_>, part: Part<'_>, payload: &[u8], is_key_frame: bool) {
        let (sequence, own) = (self.sequence.fetch_add(1, Ordering::Relaxed) + 1, [self.id.0]);
        let part = if matches!(part, Part::Begin(..)) { Part::Begin(sequence, &own) } else { part };
        let (extensions, anchor) = (part.extension(), is_key_frame.then_some(sequence));
        let extensions = extensions.as_extensions();
        let envelope = Envelope { channel: self.channel, sequence, anchor, extensions, ..*envelope };
        // If the port has closed, nobody is there.
        let _ = self.to.send(&envelope, payload);
        self.to.settle();
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock()
    }

    fn reconsider(&self) {
        if let Some(way) = self.way.upgrade() {
            way.ask(self.topic());
        }
    }
}

impl Replay for Past {
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

impl Drop for Past {
    fn drop(&mut self) {
        self.to.retire(self.channel);
    }
}

/// What the payloads of a channel are.
fn format(of: &Announcement) -> (&str, &str, &str, Option<Id128>) {
    (&of.codec, &of.options, &of.compressor, of.configuration)
}

/// A history channel that is passed on.
struct Passing {
    past: Arc<Past>,
    /// `None` if payloads are passed on as they came.
    decoding: Option<Decoding>,
}

/// Reads what is to be converted.
struct Decoding {
    slot: Arc<dyn Slot>,
    /// What has become of the sample that the slot gets.
    made: Arc<Mutex<Option<Made>>>,
}

impl Decoding {
    /// `None` if the sample cannot be read, which the slot tells, or written.
    fn convert(&self, envelope: &Envelope<'_>, payload: &[u8], wire_bytes: usize) -> Option<Made> {
        let envelope = Envelope { extensions: Extensions::default(), ..*envelope };
        self.slot.deliver(&envelope, payload, wire_bytes, None);
        self.made.lock().take()
    }
}

impl Slot for Passing {
    fn deliver(&self, envelope: &Envelope<'_>, payload: &[u8], wire_bytes: usize, _: Option<Held<'_>>) {
        let past = &*self.past;
        let Some(part) = Part::of(envelope) else { return };
        match self.decoding.as_ref().filter(|_| matches!(part, Part::Sample(_))) {
            None => past.send(envelope, part, payload, envelope.anchor.is_some()),
            Some(decoding) => match decoding.convert(envelope, payload, wire_bytes) {
                Some(made) => past.send(envelope, part, &made.payload, made.is_key_frame),
                None => past.way.upgrade().iter().for_each(|way| way.sent(payload.len(), None)),
            },
        }
        if part == Part::End {
            let mut asked = past.asked();
            *asked = Asked::Came(*asked == Asked::Wanted(true));
            drop(asked);
            past.reconsider();
        }
    }

    fn takes_packed(&self) -> bool {
        self.decoding.is_none()
    }

    fn is_auxiliary(&self) -> bool {
        true
    }
}
