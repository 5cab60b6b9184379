//! The errors of opening: what [`Node`](crate::Node) and its publishers and subscribers return
//! before any message flows.

use polywire_core::{codec::BuildError, compress::SettingsError, qos::QosError, topic::TopicError};

use crate::{engine::EngineError, wire::WireError};

/// Why a publisher or a subscriber cannot be opened, or a publisher cannot change its wire.
///
/// ```
/// use polywire::{Node, NodeError};
/// # #[derive(Default, polywire::Message)]
/// # struct Pump { id: u32 }
/// let node = Node::new();
/// assert!(matches!(node.publisher::<Pump>("pumps"), Err(NodeError::NoWire(_))));
/// assert!(matches!(node.publisher::<Pump>("pumps/*"), Err(NodeError::Topic(_))));
/// let error = node.publisher_on::<Pump>("pumps", "jsn@inproc/node-doc").err().unwrap();
/// assert_eq!(error.to_string(), "unknown codec 'jsn', did you mean 'json'?");
/// let publish = node.publish::<Pump>("pumps", Some("json@inproc/node-doc"))?;
/// assert!(matches!(publish.also("cdr@inproc/node-doc"), Err(NodeError::SameEndpoint { .. })));
/// # Ok::<(), NodeError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The topic's name breaks the rules of topic names (spec/wire-names.md). Choose another name.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The topic has no wire. Name one in code, or in the configuration under the topic or as the
    /// node's default.
    #[error("topic '{0}' has no wire: give one, such as cdr@local, in code or in the configuration")]
    NoWire(String),
    /// Two wires of one publisher have the same endpoint and different formats. Leave one out:
    /// every subscriber reads every format.
    #[error("'{first}' and '{second}' have the same endpoint: leave one of them out")]
    SameEndpoint {
        /// A wire.
        first: String,
        /// The other one.
        second: String,
    },
    /// The address for metrics is not a loopback address, or the node cannot listen at it.
    #[error("cannot serve metrics at {address}: {cause}")]
    Metrics {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        cause: std::io::Error,
    },
    /// The wire string does not parse, or names an unknown codec, compressor, engine or option. The
    /// message suggests the nearest known name.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The engine cannot open or use the port: see [`EngineError`].
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
        /// The codec's name.
        codec: String,
        /// Why it refuses the type, an option or a document.
        cause: BuildError,
    },
    /// The compressor does not accept the level, the dictionary or an option of the wire.
    #[error(transparent)]
    Compressor(#[from] SettingsError),
    /// The file of a dictionary that the wire names cannot be read.
    #[error("dictionary '{path}': {cause}")]
    Dictionary {
        /// The file.
        path: String,
        /// What the system reports, or what is wrong with the file's content.
        cause: std::io::Error,
    },
    /// The file of a template document that the wire names cannot be read.
    #[error("template document '{path}': {cause}")]
    Template {
        /// The file.
        path: String,
        /// What the system reports, or what is wrong with the file's content.
        cause: std::io::Error,
    },
    /// The policies of a publisher or subscriber are not valid.
    #[error("quality of service: {0}")]
    Qos(QosError),
    /// The engine or the node cannot do what a policy asks for. Nothing is opened, because a weaker
    /// policy may not be enough for the application.
    ///
    /// ```
    /// use polywire::{Node, NodeError, qos::Qos};
    /// # #[derive(Default, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let kept = Node::new().publish::<Pump>("pumps", Some("cdr@inproc/unsupported-doc"))?.qos(Qos::default().transient_local());
    /// let error = kept.err().expect("nothing says how much to keep");
    /// assert!(matches!(&error, NodeError::Unsupported { policy, .. } if policy == "durability=transient-local"));
    /// # Ok::<(), NodeError>(())
    /// ```
    #[error("quality of service: {policy} cannot be had: {reason}")]
    Unsupported {
        /// The policy with its value.
        policy: String,
        /// Why, and which policy is possible instead.
        reason: String,
    },
    /// A reloaded configuration changes settings that are fixed while the node runs. None of the
    /// reloaded settings was applied.
    ///
    /// ```
    /// use polywire::{Config, Node, NodeError};
    /// let error = Node::new().reload(Config::parse("[engine]\nburst = 2")?).unwrap_err();
    /// assert!(matches!(&error, NodeError::Restart(keys) if keys == &["engine"]));
    /// assert_eq!(error.to_string(), "engine cannot change while the node runs: restart it");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[error("{} cannot change while the node runs: restart it", .0.join(", "))]
    Restart(Vec<String>),
    /// The system refuses another thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

// Not `#[from]`, which would make the cause a source too: the message already includes it.
impl From<QosError> for NodeError {
    fn from(cause: QosError) -> NodeError {
        NodeError::Qos(cause)
    }
}

/// A codec's error with the codec's name in front, unless the cause begins with it.
fn about_codec(codec: &str, cause: &BuildError) -> String {
    let (name, cause) = (format!("codec '{codec}'"), cause.to_string());
    if cause.starts_with(&name) { cause } else { format!("{name}: {cause}") }
}
