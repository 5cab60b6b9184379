//! The rules for topic names.

/// The built-in topics begin with this. Applications may subscribe to them and not publish them.
pub(crate) const BUILTIN: &str = "polywire/";

/// Nodes describe themselves here.
pub(crate) const NODE: &str = "polywire/node";

/// Nodes tell here what they count.
pub(crate) const STATS: &str = "polywire/stats";

/// Has no messages. A node announces it to ask its peers for the other built-in topics, which they
/// do not announce before somebody asks.
pub(crate) const INTEREST: &str = "polywire/interest";

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
    /// The name is that of a built-in topic, or could become one.
    ///
    /// ```
    /// use polywire::{Node, NodeError, TopicError};
    /// # #[derive(Default, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let error = Node::new().publisher_on::<Pump>("polywire/pumps", "cdr@inproc/reserved-doc").err().unwrap();
    /// assert!(matches!(error, NodeError::Topic(TopicError::Reserved { .. })));
    /// ```
    #[error("topic {topic:?}: names that begin with 'polywire/' are for built-in topics; choose another one")]
    Reserved {
        /// The name as given.
        topic: String,
    },
}

/// Whether a topic is built in, or could become so.
pub(crate) fn is_builtin(topic: &str) -> bool {
    topic.starts_with(BUILTIN)
}

/// Checks the name of a topic that an application publishes.
pub(crate) fn check_publisher(topic: &str) -> Result<(), TopicError> {
    match is_builtin(topic) {
        true => Err(TopicError::Reserved { topic: topic.into() }),
        false => check(topic),
    }
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
