//! The names of the built-in topics.

use polywire_core::topic::{self, TopicError};

/// The built-in topics begin with this. Applications may subscribe to them and not publish them.
const PREFIX: &str = "polywire/";

/// Nodes describe themselves here.
pub(crate) const NODE: &str = "polywire/node";

/// Nodes tell here what they count.
pub(crate) const STATS: &str = "polywire/stats";

/// Has no messages. A node announces it to ask its peers for the other built-in topics, which they
/// do not announce before somebody asks.
pub(crate) const INTEREST: &str = "polywire/interest";

/// Whether a topic is built in, or could become so.
pub(crate) fn is_builtin(topic: &str) -> bool {
    topic.starts_with(PREFIX)
}

/// Checks the name of a topic that an application publishes.
pub(crate) fn check_publisher(topic: &str) -> Result<(), TopicError> {
    match is_builtin(topic) {
        true => Err(TopicError::Reserved { topic: topic.into() }),
        false => topic::check(topic),
    }
}
