//! What nodes say about themselves and their probes. The topic and types are those of
//! `spec/telemetry.md`.
//!
//! ```
//! use polywire::{Node, Subscriber};
//! use polywire_telemetry::{
//!     Agent, Identity, Moment, NodeDescription, Plan, ProbeDescription, Runner,
//!     description::{NODES, nodes_qos},
//!     host_name, system::{self, Host},
//! };
//! use std::time::Duration;
//!
//! let (wire, soon) = (Some("cdr@inproc/description-doc"), Duration::from_secs(60));
//! let identity = Identity::new("house")?;
//! let mut agent = Agent::new(Node::new(), identity, Host::this(), wire.unwrap(), Moment::default())?;
//! agent.add(Plan::of(system::find("clock")?))?;
//! let runner = Runner::start(agent)?;
//!
//! // Another process finds the node and its probes.
//! let node = Node::new();
//! let nodes: Subscriber<NodeDescription> = node.subscribe(NODES, wire)?.qos(nodes_qos())?.open();
//! let found: NodeDescription = nodes.recv_timeout(soon).unwrap().value;
//! let clock: &ProbeDescription = &found.probes[0];
//! assert_eq!((found.host, clock.topic.as_str(), clock.every_s), (host_name(), "probes/house/clock", 10.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use polywire::{
    Message,
    qos::{Durability, History, Qos, Reliability},
};

/// The topic on which nodes describe themselves.
pub const NODES: &str = "telemetry/nodes";

/// The policies of [`NODES`]: whoever asks gets the latest description of each node.
pub fn nodes_qos() -> Qos {
    let qos = Qos::default().reliability(Reliability::Reliable);
    qos.durability(Durability::TransientLocal).history(History::KeepLast(1))
}

/// Whether a name fits a pattern in which `*` stands for any text.
///
/// ```
/// use polywire_telemetry::fits;
///
/// assert!(fits("pump-*", "pump-7") && fits("pump-7", "pump-7") && !fits("pump-*", "hall"));
/// ```
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The topic of a probe's samples.
///
/// ```
/// assert_eq!(polywire_telemetry::topic_of("pump-house", "processor"), "probes/pump-house/processor");
/// ```
pub fn topic_of(node: &str, instance: &str) -> String {
    format!("probes/{node}/{instance}")
}

/// A node and its probes.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::NodeDescription")]
pub struct NodeDescription {
    /// The identity of the node, which it keeps over restarts; see [`crate::Uuid`].
    #[polywire(key)]
    pub uuid: String,
    /// Its name for people.
    pub name: String,
    /// The name of the host that it runs on.
    pub host: String,
    /// The number of its process.
    pub process: u32,
    /// When it started: nanoseconds since 1970.
    #[polywire(unit = "ns")]
    pub started_ns: i64,
    /// Its probes, by instance.
    pub probes: Vec<ProbeDescription>,
    /// The commands that its application has declared, and programs at its socket.
    pub commands: Vec<CommandDescription>,
    /// Its own settings.
    pub settings: Vec<Setting>,
}

/// A command that an application, or a program at the node's socket, has declared.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::CommandDescription", nested)]
pub struct CommandDescription {
    /// Its name on the node.
    pub name: String,
    /// What it does, in one line.
    pub summary: String,
    /// The service that takes its requests.
    pub service: String,
    /// The type of its requests, as [`polywire::Schema::to_bytes_with_docs`] has it.
    pub request: Vec<u8>,
    /// The type of its replies, likewise.
    pub reply: Vec<u8>,
}

/// A probe of a node.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::ProbeDescription", nested)]
pub struct ProbeDescription {
    /// The name of this probe on its node.
    pub instance: String,
    /// The name of its type, such as `processor`.
    pub probe: String,
    /// The identity of its type.
    pub uuid: String,
    /// The version of its type.
    pub version: String,
    /// The PDL file of its type.
    pub pdl: String,
    /// The topic of its samples.
    pub topic: String,
    /// The wire of the topic; empty if the configuration of the node decides.
    pub wire: String,
    /// The time between two samples.
    #[polywire(unit = "s")]
    pub every_s: f64,
    /// Whether it samples when somebody listens.
    pub enabled: bool,
    /// Which samples are sent: see [`crate::Thinning`].
    pub thin: String,
    /// Which samples are kept for a collector: see [`crate::uplink::Keep`].
    pub keep: String,
    /// When they are sent to it: see [`crate::uplink::Batch`].
    pub batch: String,
    /// Their priority there, from 0 to 9.
    pub priority: u8,
    /// Why it has no samples; empty if it has.
    pub problem: String,
    /// Its parameters.
    pub parameters: Vec<Setting>,
}

/// A name and a value.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::Setting", nested)]
pub struct Setting {
    /// What is set.
    pub name: String,
    /// Its value.
    pub value: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit() {
        for (pattern, name) in
            [("*", ""), ("*", "a"), ("a*", "a"), ("a*c", "abc"), ("*b*", "abc"), ("a", "a"), ("a**b", "ab")]
        {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "ab"), ("a*", "ba"), ("a*a", "a"), ("", "a"), ("*b*b", "ab")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
