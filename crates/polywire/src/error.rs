//! The errors of opening: what [`Node`](crate::Node) and its publishers and subscribers return
//! before any message flows.

use polywire_core::{codec::BuildError, compress::SettingsError};

use crate::{engine::EngineError, topic::TopicError, wire::WireError};

/// Why a node cannot open an endpoint, a publisher or a subscriber, or change a wire.
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
    /// The topic's name is invalid.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// No wire was given, neither in code nor in the configuration.
    #[error("topic '{0}' has no wire: give one in code, or in the configuration")]
    NoWire(String),
    /// A publisher cannot move to another endpoint.
    #[error("a publisher keeps its endpoint, '{present}': make another one for '{given}'")]
    OtherEndpoint {
        /// The publisher's endpoint.
        present: String,
        /// The endpoint given.
        given: String,
    },
    /// The wire is malformed, or names an unknown codec, compressor or engine.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The port cannot be opened or used.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The codec cannot carry the type, does not know an option, or lacks a document that
    /// configures it. Choose another codec or other options in the topic's wire.
    ///
    /// ```
    /// use polywire::Node;
    /// # #[derive(Default, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let error = Node::new().publisher_on::<Pump>("pumps", "cdr:sideways@inproc/codec-doc").err().unwrap();
    /// assert!(error.to_string().starts_with("codec 'cdr': there is no option 'sideways'"), "{error}");
    /// ```
    #[error("{}", about_codec(codec, cause))]
    Codec {
        /// Name of the codec.
        codec: String,
        /// The reason.
        cause: BuildError,
    },
    /// The compressor does not have the options that the wire gives.
    #[error(transparent)]
    Compressor(#[from] SettingsError),
    /// The file of a dictionary cannot be read.
    #[error("dictionary '{path}': {cause}")]
    Dictionary {
        /// The file.
        path: String,
        /// The system's error, or what is wrong with the content.
        cause: std::io::Error,
    },
    /// The file of a template document cannot be read.
    #[error("template document '{path}': {cause}")]
    Template {
        /// The file.
        path: String,
        /// The system's error, or what is wrong with the content.
        cause: std::io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// Describes what is wrong with a codec, and names the codec once: some causes name it themselves.
fn about_codec(codec: &str, cause: &BuildError) -> String {
    let (name, cause) = (format!("codec '{codec}'"), cause.to_string());
    if cause.starts_with(&name) { cause } else { format!("{name}: {cause}") }
}
