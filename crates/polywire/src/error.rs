//! The errors of opening: what [`Node`](crate::Node) and its publishers and subscribers return
//! before any message flows.

use polywire_core::{codec::BuildError, compress::SettingsError};

use crate::{engine::EngineError, topic::TopicError, wire::WireError};

/// Why something on a node cannot be had.
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
    /// The topic's name is none.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// No wire was given, neither in code nor in the configuration.
    #[error("topic '{0}' has no wire: give one in code, or in the configuration")]
    NoWire(String),
    /// A publisher was to go on elsewhere.
    #[error("a publisher keeps its endpoint, '{present}': make another one for '{given}'")]
    OtherEndpoint {
        /// Where it is.
        present: String,
        /// Where it was to go.
        given: String,
    },
    /// The wire is none, or names what there is not.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The port cannot be opened or used.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The codec cannot carry the type.
    #[error("codec '{codec}': {cause}")]
    Codec {
        /// Its name.
        codec: String,
        /// Why.
        cause: BuildError,
    },
    /// The compressor cannot be had as the wire has it.
    #[error(transparent)]
    Compressor(#[from] SettingsError),
    /// A dictionary cannot be read.
    #[error("dictionary '{path}': {cause}")]
    Dictionary {
        /// The file.
        path: String,
        /// What the system said, or what is wrong with it.
        cause: std::io::Error,
    },
    /// Templates cannot be read.
    #[error("template document '{path}': {cause}")]
    Template {
        /// The file.
        path: String,
        /// What the system said, or what is wrong with it.
        cause: std::io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
