//! The rules for topic names.

/// Characters that other systems use as wildcards for topics. Names must not have them, so that
/// they can become wildcards here.
const WILDCARDS: [char; 3] = ['*', '?', '#'];

/// Why a name is not valid for a topic.
///
/// A name is not empty, and has no wildcards (`*`, `?`, `#`) and no control characters.
///
/// ```
/// use polywire::{Config, ConfigError, TopicError};
/// let configured = |topic: &str| Config::parse(&format!("[topics.'{topic}']"));
/// assert!(configured("market/quotes").is_ok());
/// let Err(ConfigError::Topic(error)) = configured("market/*") else { panic!("a wildcard") };
/// assert_eq!(error, TopicError::Character { topic: "market/*".into(), offset: 7, character: '*' });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// The name is empty.
    #[error("a topic needs a name")]
    Empty,
    /// The name has a wildcard or a control character.
    #[error("topic {topic:?}, at byte {offset}: names of topics have no {character:?}; name one topic in full")]
    Character {
        /// The name as given.
        topic: String,
        /// Byte offset of the character.
        offset: usize,
        /// The character.
        character: char,
    },
}

/// Checks the name of a topic.
pub(crate) fn check(topic: &str) -> Result<(), TopicError> {
    if topic.is_empty() {
        return Err(TopicError::Empty);
    }
    match topic.char_indices().find(|(_, c)| WILDCARDS.contains(c) || c.is_control()) {
        Some((offset, character)) => Err(TopicError::Character { topic: topic.into(), offset, character }),
        None => Ok(()),
    }
}
