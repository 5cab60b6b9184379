//! A sink for unit tests, which records what a port passes to its node.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Start},
};

use super::{Event, LinkInfo, LinkSink, Sink};

/// A node that records events, and what comes over all of its links.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Record>>);

#[derive(Default)]
pub(super) struct Record {
    pub(super) events: Vec<Event>,
    /// The sequence numbers of the messages.
    pub(super) sequences: Vec<u64>,
    /// The number of links that have ended.
    pub(super) downs: usize,
}

impl Recorder {
    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock()
    }
}

impl Sink for Recorder {
    fn link(&self, _: &LinkInfo) -> Arc<dyn LinkSink> {
        Arc::new(self.clone())
    }

    fn event(&self, event: Event) {
        self.record().events.push(event);
    }
}

impl LinkSink for Recorder {
    fn announced(&self, _: ChannelId, _: Start, _: &Announcement) {}

    fn message(&self, envelope: &Envelope<'_>, _: &[u8]) {
        self.record().sequences.push(envelope.sequence);
    }

    fn position(&self, _: ChannelId, _: Start, _: u64) {}

    fn retired(&self, _: ChannelId) {}

    fn wanted(&self, _: Id128) {}

    fn supplied(&self, _: Id128, _: Option<&[u8]>) {}

    fn answered(&self, _: ChannelId, _: &Answer) {}

    fn drained(&self) {}

    fn down(&self) {
        self.record().downs += 1;
    }
}
