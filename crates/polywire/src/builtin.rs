//! The names of the built-in topics.

use polywire_core::topic::{self, TopicError};

/// The prefix of the built-in topics. Applications may subscribe to them, but not publish them.
const PREFIX: &str = "polywire/";

/// The topic on which nodes describe themselves.
pub(crate) const NODE: &str = "polywire/node";

/// The topic on which nodes publish their counts.
pub(crate) const STATS: &str = "polywire/stats";

/// A topic without messages. A node announces it to ask its peers for the other built-in topics,
/// which peers announce only on request.
pub(crate) const INTEREST: &str = "polywire/interest";

/// Checks whether a topic is built in, or its name is reserved for future built-in topics.
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
