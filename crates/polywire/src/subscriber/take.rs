//! The interface through which another part of this crate takes the messages of a topic, in place
//! of a queue or a callback. Services take requests and replies in this way.

use std::sync::Arc;

use polywire_core::envelope::Envelope;

use super::Info;
use crate::node::Source;

/// Takes the messages of a topic by value, and is notified of the topic's writers. Called on the
/// threads that read links, or on a publisher's thread. No policy concerns its messages.
pub(crate) trait Take<V>: Send + Sync {
    /// Returns which parts of a message are wanted. Called before the message is decoded.
    fn wants(&self, envelope: &Envelope<'_>) -> Wanted;
    /// Takes a message. `value` is `None` if only the envelope was wanted, and an error with the
    /// reason if the value cannot be decoded.
    fn take(&self, envelope: &Envelope<'_>, info: Info, value: Option<Result<V, String>>);
    /// Reports that a channel of a writer opens. Its messages follow.
    fn opened(&self, source: &Arc<Source>);
    /// Reports that the peer's writer knows that the messages of an open channel are taken.
    /// Messages that were published earlier may be lost.
    fn accepted(&self, source: &Arc<Source>);
    /// Reports that a channel has ended.
    fn closed(&self, source: &Arc<Source>);
    /// Reports that a writer cannot be read.
    fn refused(&self, reason: &str);
    /// Reports that the node has closed.
    fn node_closed(&self);
}

/// The part of a message that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Nothing,
    Envelope,
    Value,
}
