//! Names of topics.

/// Characters that stand for several topics elsewhere. No topic has them in its name, so that they
/// can get that meaning here.
const WILDCARDS: [char; 3] = ['*', '?', '#'];

/// Why a name is none of a topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// There is no name.
    #[error("a topic needs a name")]
    Empty,
    /// A character that names do not have.
    #[error("topic {topic:?}, at byte {offset}: names of topics have no {character:?}; name one topic in full")]
    Character {
        /// As given.
        topic: String,
        /// Where.
        offset: usize,
        /// Which.
        character: char,
    },
}

/// Checks the name of a topic: it is not empty, and has no wildcards (`*`, `?`, `#`) and no control
/// characters.
///
/// ```
/// use polywire::topic::{TopicError, check};
/// assert_eq!(check("market/quotes"), Ok(()));
/// assert_eq!(check(""), Err(TopicError::Empty));
/// let error = check("market/*").unwrap_err();
/// assert_eq!(error, TopicError::Character { topic: "market/*".into(), offset: 7, character: '*' });
/// ```
///
/// # Errors
/// [`TopicError`] if it is none.
pub fn check(topic: &str) -> Result<(), TopicError> {
    if topic.is_empty() {
        return Err(TopicError::Empty);
    }
    match topic.char_indices().find(|(_, c)| WILDCARDS.contains(c) || c.is_control()) {
        Some((offset, character)) => Err(TopicError::Character { topic: topic.into(), offset, character }),
        None => Ok(()),
    }
}
