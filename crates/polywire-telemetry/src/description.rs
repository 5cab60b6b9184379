//! The descriptions that nodes publish of themselves and their probes. The topic and types are
//! those of `spec/telemetry.md`.
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

/// Returns the QoS of [`NODES`]: a late joiner receives the latest description of each node.
pub fn nodes_qos() -> Qos {
    let qos = Qos::default().reliability(Reliability::Reliable);
    qos.durability(Durability::TransientLocal).history(History::KeepLast(1))
}

/// Checks whether a name matches a pattern in which `*` stands for any text.
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

/// Returns the topic of a probe's samples.
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
    /// The identity of the node, which is kept over restarts; see [`crate::Uuid`].
    #[polywire(key)]
    pub uuid: String,
    /// The human-readable name of the node.
    pub name: String,
    /// The name of the host that it runs on.
    pub host: String,
    /// The process ID of the node.
    pub process: u32,
    /// When the node started: nanoseconds since 1970.
    #[polywire(unit = "ns")]
    pub started_ns: i64,
    /// The probes of the node, by instance.
    pub probes: Vec<ProbeDescription>,
    /// The commands that the node's application and the programs at its socket have declared.
    pub commands: Vec<CommandDescription>,
    /// The settings of the node itself.
    pub settings: Vec<Setting>,
}

/// A command that an application, or a program at the node's socket, has declared.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::CommandDescription", nested)]
pub struct CommandDescription {
    /// The name of the command on its node.
    pub name: String,
    /// What the command does, in one line.
    pub summary: String,
    /// The service that receives the requests.
    pub service: String,
    /// The type of the requests, as encoded by [`polywire::Schema::to_bytes_with_docs`].
    pub request: Vec<u8>,
    /// The type of the replies, in the same encoding.
    pub reply: Vec<u8>,
}

/// A probe of a node.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::ProbeDescription", nested)]
pub struct ProbeDescription {
    /// The name of the probe on its node.
    pub instance: String,
    /// The name of the probe's type, such as `processor`.
    pub probe: String,
    /// The identity of the probe's type.
    pub uuid: String,
    /// The version of the probe's type.
    pub version: String,
    /// The PDL file of the probe's type.
    pub pdl: String,
    /// The topic of the probe's samples.
    pub topic: String,
    /// The wire of the topic; empty if the configuration of the node decides.
    pub wire: String,
    /// The time between two samples.
    #[polywire(unit = "s")]
    pub every_s: f64,
    /// Whether the probe samples while it has subscribers.
    pub enabled: bool,
    /// Which samples are sent: see [`crate::Thinning`].
    pub thin: String,
    /// Which samples are kept for a collector: see [`crate::uplink::Keep`].
    pub keep: String,
    /// When samples are sent to the collector: see [`crate::uplink::Batch`].
    pub batch: String,
    /// The priority of the samples in the uplink, from 0 to 9.
    pub priority: u8,
    /// Why the probe has no samples; empty if it has samples.
    pub problem: String,
    /// The parameters of the probe.
    pub parameters: Vec<Setting>,
}

/// A name and a value.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::Setting", nested)]
pub struct Setting {
    /// The name of the setting.
    pub name: String,
    /// The value of the setting.
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
