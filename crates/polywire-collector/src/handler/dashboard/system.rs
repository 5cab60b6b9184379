//! The state of the system for the page: nodes, publishers and subscribers with their statistics,
//! and probes with their settings.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use polywire::{
    Node, Subscriber,
    directory::{Directory, NodeData, STATS_TOPIC, Snapshot},
    stats::{NodeStats, TopicStats},
};
use polywire_telemetry::{
    NodeDescription,
    description::{NODES, nodes_qos},
};
use serde_json::{Value, json};

use crate::{HandlerContext, HandlerStatus};

/// The maximum number of nodes that are shown, and whose statistics are kept.
const MAX_NODES: usize = 1000;

/// The maximum number of publishers, subscribers and topics of a node that are shown.
const MAX_ENDS: usize = 1000;

/// The nodes that receive commands: the name and the endpoint of each, by its UUID.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<BTreeMap<String, (String, String)>>>);

impl Known {
    pub fn find(&self, uuid: &str) -> Option<(String, String)> {
        self.0.lock().get(uuid).cloned()
    }

    /// Adds or updates a node. Returns false if there are too many.
    fn learn(&self, node: &NodeDescription, place: &str) -> bool {
        let mut known = self.0.lock();
        if known.len() >= MAX_NODES && !known.contains_key(&node.uuid) {
            return false;
        }
        known.insert(node.uuid.clone(), (node.name.clone(), place.to_owned()));
        true
    }
}

/// Observes the nodes at the endpoints of a node.
pub(super) struct Watch {
    context: HandlerContext,
    node: Node,
    directory: Directory,
    places: BTreeMap<String, Place>,
    stats: BTreeMap<[u8; 16], Counted>,
    described: BTreeMap<String, NodeDescription>,
    known: Known,
}

/// The subscriptions at an endpoint.
struct Place {
    stats: Subscriber<NodeStats>,
    nodes: Subscriber<NodeDescription>,
}

/// The previous and the latest statistics of a node.
struct Counted {
    before: NodeStats,
    last: NodeStats,
}

impl Watch {
    pub fn new(context: HandlerContext) -> Watch {
        let node = context.node().clone();
        let directory = node.directory();
        Watch {
            context,
            node,
            directory,
            places: BTreeMap::new(),
            stats: BTreeMap::new(),
            described: BTreeMap::new(),
            known: Known::default(),
        }
    }

    /// Returns the nodes that receive commands; the result is updated as nodes are discovered.
    pub fn known(&self) -> Known {
        self.known.clone()
    }

    /// Processes the messages that have arrived since the last call.
    pub fn poll(&mut self) {
        while self.directory.try_recv().is_some() {}
        self.open_places();
        let Watch { places, stats, described, known, .. } = self;
        for (name, place) in places {
            while let Some(sample) = place.stats.try_recv() {
                count(stats, sample.value);
            }
            while let Some(sample) = place.nodes.try_recv() {
                if known.learn(&sample.value, name) {
                    described.insert(sample.value.uuid.clone(), sample.value);
                }
            }
        }
    }

    /// Subscribes at endpoints that the node has opened since the last call.
    fn open_places(&mut self) {
        let own = self.node.hello().node;
        let snapshot = self.directory.snapshot();
        let Some(data) = snapshot.nodes().find(|node| node.id == own) else { return };
        for endpoint in data.endpoints.iter().map(|endpoint| &endpoint.endpoint) {
            if !self.places.contains_key(endpoint)
                && let Ok(place) = self.open_place(endpoint)
            {
                self.places.insert(endpoint.clone(), place);
            }
        }
    }

    fn open_place(&self, endpoint: &str) -> Result<Place, polywire::NodeError> {
        let stats = self.node.subscribe(STATS_TOPIC, Some(endpoint))?.open();
        let nodes = self.node.subscribe(NODES, Some(endpoint))?.qos(nodes_qos())?.open();
        Ok(Place { stats, nodes })
    }

    /// Returns the state of the system as JSON for the page.
    pub fn picture(&self) -> String {
        let snapshot = self.directory.snapshot();
        let is_there = |node: &NodeDescription| {
            snapshot.nodes().any(|data| data.host == node.host && data.process == node.process)
        };
        let probes = self.described.values().filter(|node| is_there(node)).map(probes_of).collect::<Vec<_>>();
        let handlers: Vec<Value> = self.context.handlers().iter().map(handler).collect();
        json!({
            "op": "system", "nodes": self.nodes(&snapshot), "agents": probes, "handlers": handlers,
            "archives": self.archives(),
        })
        .to_string()
    }

    /// Returns the names of the handlers whose archives the page can request.
    #[cfg(feature = "sqlite")]
    fn archives(&self) -> Vec<String> {
        self.context.archives().into_iter().map(|(name, _)| name).collect()
    }

    #[cfg(not(feature = "sqlite"))]
    fn archives(&self) -> Vec<String> {
        Vec::new()
    }

    fn nodes(&self, snapshot: &Snapshot) -> Vec<Value> {
        let own = self.node.hello().node;
        let value = |node: &Arc<NodeData>| {
            let mut value = node_of(node);
            value["own"] = json!(node.id == own);
            value["stats"] = self.stats.get(&node.id.0).map(stats_of).unwrap_or_default();
            value
        };
        snapshot.nodes().take(MAX_NODES).map(value).collect()
    }
}

fn count(all: &mut BTreeMap<[u8; 16], Counted>, stats: NodeStats) {
    let has_room = all.len() < MAX_NODES;
    match all.get_mut(&stats.node) {
        Some(counted) if stats.time_ns > counted.last.time_ns => {
            counted.before = std::mem::replace(&mut counted.last, stats);
        }
        None if has_room => {
            all.insert(stats.node, Counted { before: stats.clone(), last: stats });
        }
        _ => {}
    }
}

/// Returns the state of a handler as JSON.
fn handler(status: &HandlerStatus) -> Value {
    json!({
        "name": status.name, "kind": status.kind, "received": status.received, "stored": status.stored,
        "dropped": status.dropped, "refused": status.refused, "failures": status.failures,
        "waiting": status.waiting, "problem": status.problem,
    })
}

fn node_of(node: &NodeData) -> Value {
    let publishers = node.publishers.iter().take(MAX_ENDS).map(|publisher| {
        let wires: Vec<_> = publisher.wires().map(|(codec, endpoint)| json!([codec, endpoint])).collect();
        json!({
            "id": publisher.id.to_string(), "topic": publisher.topic, "type": publisher.type_name, "wires": wires,
        })
    });
    let subscribers = node.subscribers.iter().take(MAX_ENDS).map(|subscriber| {
        let reads: Vec<_> = subscriber.reads.iter().take(MAX_ENDS).map(ToString::to_string).collect();
        json!({ "topic": subscriber.topic, "reads": reads })
    });
    json!({
        "id": node.id.to_string(), "name": node.name, "host": node.host, "process": node.process,
        "publishers": publishers.collect::<Vec<_>>(), "subscribers": subscribers.collect::<Vec<_>>(),
    })
}

/// Returns counters since the start of the node; the page computes rates.
fn stats_of(counted: &Counted) -> Value {
    let Counted { before, last } = counted;
    let topic = |now: &TopicStats| {
        let earlier = before.topic(&now.topic).map(|earlier| &earlier.latency);
        let latency = now.latency.since(earlier.unwrap_or(&Default::default())).quantile(0.5);
        json!({
            "topic": now.topic, "sent": now.sent, "sent_bytes": now.sent_bytes, "received": now.received,
            "received_bytes": now.received_bytes, "lost": now.lost, "latency_ns": latency,
        })
    };
    json!({
        "time_ns": last.time_ns, "cpu_ns": last.cpu_ns, "memory_bytes": last.memory_bytes,
        "topics": last.topics.iter().take(MAX_ENDS).map(topic).collect::<Vec<_>>(),
    })
}

fn probes_of(node: &NodeDescription) -> Value {
    let probes = node.probes.iter().take(MAX_ENDS).map(|probe| {
        json!({
            "instance": probe.instance, "probe": probe.probe, "topic": probe.topic, "wire": probe.wire,
            "every_s": probe.every_s, "enabled": probe.enabled, "thin": probe.thin, "problem": probe.problem,
        })
    });
    json!({ "uuid": node.uuid, "name": node.name, "host": node.host, "probes": probes.collect::<Vec<_>>() })
}
