//! The traits by which the links of a port and a subscriber call each other, and [`Source`], which
//! says where a message comes from.

use std::sync::Arc;

use polywire_core::{
    envelope::{Announcement, Envelope},
    schema::Schema,
};

use super::inner::Inner;
use crate::{
    engine::{Held, LinkInfo},
    status::Mismatch,
};

/// A subscriber, as links see it.
pub(crate) trait Route: Send + Sync {
    fn topic(&self) -> &str;
    /// Whether the subscriber needs the writer's schema to read its messages.
    fn needs_schema(&self) -> bool;
    /// Opens a channel, or says why it cannot be read. `schema` is `None` if the writer announced
    /// no schema.
    fn open(&self, node: &Arc<Inner>, source: &Source, schema: Option<&Schema>) -> Result<Arc<dyn Slot>, String>;
    /// The subscriber cannot read a channel.
    fn refused(&self, mismatch: Mismatch);
    /// The node has closed: nothing more is delivered.
    fn node_closed(&self);
}

/// A subscriber's end of one channel.
pub(crate) trait Slot: Send + Sync {
    /// Delivers a message. `wire_bytes` is the payload's size before it was unpacked. `held` is
    /// `Some` if the payload may be held instead of copied.
    fn deliver(&self, envelope: &Envelope<'_>, payload: &[u8], wire_bytes: usize, held: Option<Held<'_>>);
    /// A message came that cannot be unpacked.
    fn undecodable(&self, sequence: u64, reason: &dyn ToString);
    /// Whether messages may refer to earlier ones.
    fn is_stream(&self) -> bool;
    /// Whether the next messages cannot be read without a key frame.
    fn needs_key_frame(&self) -> bool;
    /// The sender dropped `count` messages up to and including this one. With a count of 0, its
    /// messages begin after this one.
    fn lost(&self, sequence: u64, count: u64);
    /// Everything that has come so far was delivered.
    fn drained(&self);
}

/// Where messages come from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The writer's announcement.
    pub announcement: Arc<Announcement>,
    /// The link it came over.
    pub link: Arc<LinkInfo>,
}
