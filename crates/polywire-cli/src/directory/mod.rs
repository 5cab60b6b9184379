//! `polywire directory`: lists collectors, nodes, probes, commands and types. It combines the
//! results of discovery with the descriptions that nodes publish.

mod serve;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use clap::{Args, ValueEnum};
use polywire::{Subscriber, directory::NodeData};
use polywire_collector::CollectorProbe;
use polywire_telemetry::{
    Application as _, NodeDescription, Uuid,
    description::{NODES, nodes_qos},
    packet::PACKETS,
};
use serde::Serialize;
use serde_json::json;

use crate::{
    outcome::{self, Missed, Outcome},
    probe::node_json,
    terminal::{Terminal, columns},
    verb::{Action, Verb},
    view::{View, ViewArgs},
};

/// The maximum number of entries of a list. Hostile nodes could announce any number of types.
const MAX_ENTRIES: usize = 100_000;

pub const VERB: Verb = Verb::group(
    "directory",
    "Names the collectors, nodes, probes, commands and types that are there",
    &[LIST, SHOW, serve::VERB],
);

const LIST: Verb = Verb::new::<List>("list", "Lists the collectors, nodes, probes, commands and types")
    .details(
        "Needs no other process: it asks discovery, so what ends, or is silent past its lease, is gone from the list. \
         From another domain, give the address of a `directory serve` there with --wire; it has no types.",
    )
    .example("polywire directory list --timeout 60");

const SHOW: Verb = Verb::new::<Show>("show", "Shows a node of telemetry: its probes, commands, settings and endpoints")
    .example("polywire directory show pump-house --timeout 60");

#[derive(Args)]
pub struct List {
    /// What to list [default: all]
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Option<Kind>,
    #[command(flatten)]
    view: ViewArgs,
}

#[derive(Args)]
pub struct Show {
    /// Name of the node, or its UUID
    node: String,
    #[command(flatten)]
    view: ViewArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Collector,
    Node,
    Probe,
    Command,
    Type,
}

/// An entry of the directory.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Entry {
    kind: Kind,
    name: String,
    /// The UUID of a collector or node, the hash of a type, the UUID of a probe's type.
    id: String,
    what: String,
    host: String,
    /// Endpoints, topics or services.
    places: Vec<String>,
}

/// The results of discovery, and the descriptions of telemetry nodes.
struct Directory {
    view: View,
    described: Vec<NodeDescription>,
}

impl Directory {
    fn open(args: &ViewArgs) -> anyhow::Result<Directory> {
        let mut view = args.open()?;
        let nodes: Vec<Subscriber<NodeDescription>> = view.subscribe(NODES, &nodes_qos())?;
        view.complete(false)?;
        let samples = nodes.iter().flat_map(|nodes| std::iter::from_fn(|| nodes.try_recv()));
        // A later description of a node replaces an earlier one.
        let latest: BTreeMap<String, NodeDescription> =
            samples.map(|sample| (sample.value.uuid.clone(), sample.value)).collect();
        Ok(Directory { view, described: latest.into_values().collect() })
    }

    /// Returns the discovery data of a node.
    fn discovered(&self, uuid: &str) -> Option<Arc<NodeData>> {
        self.view.nodes().into_iter().find(|node| Uuid(node.id.0).to_string() == uuid)
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries: BTreeSet<Entry> = self.described.iter().flat_map(|node| self.of_node(node)).collect();
        let nodes = self.view.nodes();
        // A collector of another implementation may not publish a description.
        let others = nodes.iter().filter(|node| serves_packets(node) && self.description(node).is_none());
        entries.extend(others.map(|node| Entry {
            kind: Kind::Collector,
            name: node.name.clone(),
            id: Uuid(node.id.0).to_string(),
            what: STORES.to_owned(),
            host: node.host.clone(),
            places: endpoints(node),
        }));
        entries.extend(types(&nodes));
        entries.into_iter().take(MAX_ENTRIES).collect()
    }

    fn description(&self, node: &NodeData) -> Option<&NodeDescription> {
        let uuid = Uuid(node.id.0).to_string();
        self.described.iter().find(|described| described.uuid == uuid)
    }

    /// Returns the entries of a node, its probes and its commands.
    fn of_node(&self, node: &NodeDescription) -> Vec<Entry> {
        let discovered = self.discovered(&node.uuid);
        let stores = discovered.as_ref().is_some_and(|node| serves_packets(node));
        let collects = stores || node.probes.iter().any(|probe| probe.uuid == CollectorProbe::TYPE.uuid.to_string());
        let entry = |kind, name: &str, id: &str, what: &str, places| Entry {
            kind,
            name: name.to_owned(),
            id: id.to_owned(),
            what: what.to_owned(),
            host: node.host.clone(),
            places,
        };
        let (kind, what) = match (stores, collects) {
            (true, _) => (Kind::Collector, STORES.to_owned()),
            (false, true) => (Kind::Collector, "hands on messages".to_owned()),
            (false, false) => (Kind::Node, format!("probes: {}, commands: {}", node.probes.len(), node.commands.len())),
        };
        let places = discovered.map_or(Vec::new(), |node| endpoints(&node));
        let mut entries = vec![entry(kind, &node.name, &node.uuid, &what, places)];
        entries.extend(node.probes.iter().map(|probe| {
            let name = format!("{}/{}", node.name, probe.instance);
            entry(Kind::Probe, &name, &probe.uuid, &probe.probe, vec![probe.topic.clone()])
        }));
        entries.extend(node.commands.iter().map(|command| {
            let name = format!("{}/{}", node.name, command.name);
            entry(Kind::Command, &name, "", &command.summary, vec![command.service.clone()])
        }));
        entries
    }
}

const STORES: &str = "stores what nodes keep";

/// Returns whether a node serves node packets.
fn serves_packets(node: &NodeData) -> bool {
    let requests = format!("rq/{PACKETS}Request");
    node.subscribers.iter().any(|subscriber| subscriber.topic == requests)
}

fn endpoints(node: &NodeData) -> Vec<String> {
    node.endpoints.iter().map(|port| port.endpoint.clone()).collect()
}

/// Returns the published types, with their topics.
fn types(nodes: &[Arc<NodeData>]) -> Vec<Entry> {
    let mut types: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for publisher in nodes.iter().flat_map(|node| &node.publishers) {
        let key = (publisher.type_name.clone(), publisher.type_hash.to_string());
        types.entry(key).or_default().insert(publisher.topic.clone());
    }
    let entry = |((name, id), topics): ((String, String), BTreeSet<String>)| Entry {
        kind: Kind::Type,
        name,
        what: id.clone(),
        id,
        host: String::new(),
        places: topics.into_iter().collect(),
    };
    types.into_iter().map(entry).collect()
}

impl Action for List {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let directory = Directory::open(&self.view)?;
        let mut entries = directory.entries();
        entries.retain(|entry| self.kind.is_none_or(|kind| entry.kind == kind));
        if terminal.json {
            terminal.value(&entries)?;
        } else {
            let head = ["KIND", "NAME", "WHAT", "HOST", "WHERE"].map(String::from).to_vec();
            let rows: Vec<Vec<String>> = std::iter::once(head).chain(entries.iter().map(Entry::cells)).collect();
            terminal.text(&columns(&rows))?;
        }
        match entries.is_empty() {
            true => Err(Missed("there is nothing of this kind".into()).into()),
            false => Ok(Outcome::Fine),
        }
    }
}

impl Entry {
    fn cells(&self) -> Vec<String> {
        let kind = match self.kind {
            Kind::Collector => "collector",
            Kind::Node => "node",
            Kind::Probe => "probe",
            Kind::Command => "command",
            Kind::Type => "type",
        };
        vec![kind.to_owned(), self.name.clone(), self.what.clone(), self.host.clone(), self.places.join(" ")]
    }
}

impl Action for Show {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let directory = Directory::open(&self.view)?;
        let is_meant = |node: &&NodeDescription| node.name == self.node || node.uuid == self.node;
        let Some(node) = directory.described.iter().find(is_meant) else {
            let names = directory.described.iter().map(|node| node.name.as_str());
            let hint = polywire::suggest::hint(&self.node, names);
            return Err(Missed(format!("there is no node '{}'{hint}", self.node)).into());
        };
        let discovered = directory.discovered(&node.uuid);
        if terminal.json {
            let mut value = node_json(node);
            value["endpoints"] = json!(discovered.as_ref().map_or(Vec::new(), |node| endpoints(node)));
            value["user"] = json!(discovered.as_ref().map(|node| node.user.clone()));
            value["version"] = json!(discovered.as_ref().map(|node| node.version.clone()));
            terminal.value(&value)?;
            return Ok(Outcome::Fine);
        }
        terminal.text(&columns(&facts(node, discovered.as_deref())))?;
        let entries = directory.of_node(node);
        let rows: Vec<Vec<String>> = entries.iter().skip(1).map(Entry::cells).collect();
        terminal.text(&format!("\n{}", columns(&rows)))?;
        Ok(Outcome::Fine)
    }
}

fn facts(node: &NodeDescription, discovered: Option<&NodeData>) -> Vec<Vec<String>> {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("node", node.name.clone()),
        row("uuid", node.uuid.clone()),
        row("host", node.host.clone()),
        row("process", node.process.to_string()),
    ];
    if let Some(found) = discovered {
        rows.push(row("user", found.user.clone()));
        rows.push(row("version", found.version.clone()));
        rows.push(row("endpoints", endpoints(found).join(" ")));
    }
    rows.extend(node.settings.iter().map(|setting| row(&setting.name, setting.value.clone())));
    rows
}
