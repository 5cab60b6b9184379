//! What another part of this crate gets of a topic, in place of a queue or a callback: services
//! take requests and replies in this way.

use std::sync::Arc;

use polywire_core::envelope::Envelope;

use super::Info;
use crate::node::Source;

/// Takes the messages of a topic by value, and hears of the writers. Called on the threads that
/// read links, or on a publisher's. No policy concerns its messages.
pub(crate) trait Take<V>: Send + Sync {
    /// What is wanted of a message. Asked before it is decoded.
    fn wants(&self, envelope: &Envelope<'_>) -> Wanted;
    /// A message came. `value` is `None` if only the envelope was wanted, and the reason if the
    /// value cannot be decoded.
    fn take(&self, envelope: &Envelope<'_>, info: Info, value: Option<Result<V, String>>);
    /// A channel of a writer opens. Its messages follow.
    fn opened(&self, source: &Arc<Source>);
    /// The peer's writer knows that the messages of an open channel are taken. Before, they may be
    /// lost.
    fn accepted(&self, source: &Arc<Source>);
    /// The channel has ended.
    fn closed(&self, source: &Arc<Source>);
    /// A writer cannot be read.
    fn refused(&self, reason: &str);
    /// The node has closed.
    fn node_closed(&self);
}

/// What is wanted of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Nothing,
    Envelope,
    Value,
}
