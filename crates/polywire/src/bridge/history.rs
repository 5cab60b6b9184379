//! The histories that bridges pass on.
//!
//! A writer that keeps samples has a history channel, which is accepted by those who ask for them
//! (`spec/qos.md`). At the other end, the bridge announces one of its own. When somebody accepts it
//! there, the bridge accepts that of the writer, passes on what comes, and leaves it again.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicU64, Ordering},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::Start,
    qos::Offer,
};

use super::Way;
use crate::{
    engine::Held,
    node::{PortEntry, Replay, Slot, random_id},
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
    asked: Mutex<Asked>,
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
    /// Announces the history of a channel at the other end, where `offer` is that of the channel.
    pub(super) fn open(
        way: &Arc<Way>,
        announced: &Arc<Announcement>,
        via: &[Id128],
        offer: &Offer,
    ) -> Result<Arc<Past>, String> {
        let (to, id) = (way.to.entry.clone(), random_id());
        let offer = Offer { history_of: Some(announced.writer), ..offer.clone() };
        let history = Announcement { writer: id, offer: offer.to_bytes(), ..Announcement::clone(announced) };
        let channel = to.announce(&history, Start::default()).map_err(|error| error.to_string())?;
        let past = Arc::new(Past {
            way: Arc::downgrade(way),
            to: to.clone(),
            announced: announced.clone(),
            via: via.to_vec(),
            channel,
            id,
            sequence: AtomicU64::new(0),
            asked: Mutex::new(Asked::Nothing),
        });
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
    pub(super) fn slot(self: Arc<Self>) -> Arc<dyn Slot> {
        Arc::new(Passing(self))
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
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
struct Passing(Arc<Past>);

impl Slot for Passing {
    fn deliver(&self, envelope: &Envelope<'_>, payload: &[u8], _: usize, _: Option<Held<'_>>) {
        let past = &*self.0;
        let Some(part) = Part::of(envelope) else { return };
        let (sequence, own) = (past.sequence.fetch_add(1, Ordering::Relaxed) + 1, [past.id.0]);
        let part = if matches!(part, Part::Begin(..)) { Part::Begin(sequence, &own) } else { part };
        let (extensions, anchor) = (part.extension(), envelope.anchor.map(|_| sequence));
        let extensions = extensions.as_extensions();
        let envelope = Envelope { channel: past.channel, sequence, anchor, extensions, ..*envelope };
        // If the port has closed, nobody is there.
        let _ = past.to.send(&envelope, payload);
        past.to.settle();
        if part == Part::End {
            let mut asked = past.asked();
            *asked = Asked::Came(*asked == Asked::Wanted(true));
            drop(asked);
            past.reconsider();
        }
    }

    fn takes_packed(&self) -> bool {
        true
    }

    fn is_auxiliary(&self) -> bool {
        true
    }
}
