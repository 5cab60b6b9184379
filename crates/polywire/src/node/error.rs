//! Why something on a node cannot be opened.

use polywire_core::{codec::BuildError, compress::SettingsError};

use crate::{engine::EngineError, topic::TopicError, wire::WireError};

/// Why a publisher, subscriber or port cannot be opened.
///
/// ```
/// use polywire::{Node, NodeError};
/// # #[derive(Default, polywire::Message)]
/// # struct Pump { id: u32 }
/// let node = Node::new();
/// assert!(matches!(node.publisher::<Pump>("pumps"), Err(NodeError::NoWire(_))));
/// assert!(matches!(node.subscriber::<Pump>("pumps/*"), Err(NodeError::Topic(_))));
/// let error = node.publisher_on::<Pump>("pumps", "jsn@inproc/node-doc").err().unwrap();
/// assert_eq!(error.to_string(), "unknown codec 'jsn', did you mean 'json'?");
/// let publisher = node.publisher_on::<Pump>("pumps", "json@inproc/node-doc")?;
/// assert!(matches!(publisher.set_wire("cdr@inproc/elsewhere"), Err(NodeError::OtherEndpoint { .. })));
/// # Ok::<(), NodeError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The topic's name is malformed.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// No wire was given, neither in code nor in the configuration.
    #[error("topic '{0}' has no wire: give one in code, or in the configuration")]
    NoWire(String),
    /// A publisher was to change its endpoint.
    #[error("a publisher keeps its endpoint, '{present}': make another one for '{given}'")]
    OtherEndpoint {
        /// The publisher's endpoint.
        present: String,
        /// The endpoint asked for.
        given: String,
    },
    /// The wire is malformed, or names an engine, codec or compressor that does not exist.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The port cannot be opened or used.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The codec cannot carry the type.
    #[error("codec '{codec}': {cause}")]
    Codec {
        /// The codec's name.
        codec: String,
        /// What the codec says.
        cause: BuildError,
    },
    /// The compressor's options in the wire are wrong.
    #[error(transparent)]
    Compressor(#[from] SettingsError),
    /// A dictionary cannot be read.
    #[error("dictionary '{path}': {cause}")]
    Dictionary {
        /// The file.
        path: String,
        /// What the system said, or what is wrong with the file.
        cause: std::io::Error,
    },
    /// A template document cannot be read.
    #[error("template document '{path}': {cause}")]
    Template {
        /// The file.
        path: String,
        /// What the system said, or what is wrong with the file.
        cause: std::io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
