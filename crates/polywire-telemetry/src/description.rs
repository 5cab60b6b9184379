//! What nodes say about themselves and their probes, and how they are asked to change. The topics
//! and types are those of `spec/telemetry.md`.
//!
//! ```
//! use polywire::{Node, Subscriber};
//! use polywire_telemetry::{
//!     Agent, Answer, Identity, Moment, NodeDescription, Plan, ProbeDescription, Request, Runner, Setting, Uuid,
//!     description::{ANSWERS, NODES, REQUESTS, events_qos, nodes_qos},
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
//!
//! // It asks the node to change a probe.
//! let answers: Subscriber<Answer> = node.subscribe(ANSWERS, wire)?.qos(events_qos())?.open();
//! let requests = node.publish::<Request>(REQUESTS, wire)?.qos(events_qos())?.open()?;
//! requests.wait_for_subscribers(1, soon);
//! while answers.status().writers == 0 {
//!     std::thread::yield_now();
//! }
//! let settings = vec![Setting { name: "every".into(), value: "0.5".into() }];
//! let id = Uuid::random().to_string();
//! requests.publish(&Request { id: id.clone(), node: found.uuid, instance: clock.instance.clone(), settings })?;
//! let answer = answers.recv_timeout(soon).unwrap().value;
//! assert_eq!((answer.id, answer.problem.as_str()), (id, ""));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use polywire::{
    Message,
    qos::{Durability, History, Qos, Reliability},
};

/// The topic on which nodes describe themselves.
pub const NODES: &str = "telemetry/nodes";

/// The topic of requests to nodes.
pub const REQUESTS: &str = "telemetry/requests";

/// The topic of their answers.
pub const ANSWERS: &str = "telemetry/answers";

/// The policies of [`NODES`]: whoever asks gets the latest description of each node.
pub fn nodes_qos() -> Qos {
    events_qos().durability(Durability::TransientLocal).history(History::KeepLast(1))
}

/// The policies of [`REQUESTS`] and [`ANSWERS`].
pub fn events_qos() -> Qos {
    Qos::default().reliability(Reliability::Reliable)
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

/// A request to change a probe.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::Request")]
pub struct Request {
    /// The identity of the request, which the answer repeats.
    pub id: String,
    /// The UUID of the node.
    pub node: String,
    /// The instance.
    pub instance: String,
    /// What to set: `every` (seconds), `enabled` (`true` or `false`), `thin`, `wire`, or a
    /// parameter. All of them are applied, or none.
    pub settings: Vec<Setting>,
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::Answer")]
pub struct Answer {
    /// The identity of the request.
    pub id: String,
    /// The UUID of the node that answers.
    pub node: String,
    /// Why nothing was changed; empty if all was.
    pub problem: String,
}
