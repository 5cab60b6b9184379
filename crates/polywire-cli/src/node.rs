//! The commands `polywire node list` and `polywire node info`: the discovered nodes.

use clap::Args;
use polywire::directory::{Matching, NodeData};
use serde::Serialize;

use crate::{
    outcome::{self, Missed, Outcome},
    terminal::{Terminal, columns},
    verb::{Action, Verb},
    view::{View, ViewArgs, shown, shown_rate, shown_time},
};

pub const VERB: Verb = Verb::group("node", "Shows the nodes that are there", &[LIST, INFO]);

const LIST: Verb = Verb::new::<List>("list", "Lists the nodes").example("polywire node list --timeout 60");

const INFO: Verb = Verb::new::<InfoOf>("info", "Shows a node: what it publishes, subscribes to and counts")
    .example("polywire node info hall --timeout 60");

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    view: ViewArgs,
}

#[derive(Args)]
pub struct InfoOf {
    /// Name of the node, or the beginning of its id
    name: String,
    #[command(flatten)]
    view: ViewArgs,
}

/// A node.
#[derive(Serialize)]
struct Row {
    name: String,
    id: String,
    host: String,
    process: u32,
    user: String,
    version: String,
    endpoints: Vec<String>,
    links: u32,
    publishers: usize,
    subscribers: usize,
    /// The number of publishers and subscribers that the node's description omits.
    omitted: u32,
    cpu: Option<f64>,
    memory_bytes: Option<u64>,
}

impl Action for List {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let mut view = self.view.open()?;
        view.complete(false)?;
        let rows: Vec<Row> = view.nodes().iter().map(|node| Row::of(&view, node)).collect();
        if terminal.json {
            terminal.value(&rows)?;
        } else {
            let head = ["NAME", "HOST", "PID", "USER", "VERSION", "PUBLISHERS", "SUBSCRIBERS", "ENDPOINTS"];
            let head = head.map(String::from).to_vec();
            let table: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
            terminal.text(&columns(&table))?;
        }
        match rows.is_empty() {
            true => Err(Missed("no node there describes itself".into()).into()),
            false => Ok(Outcome::Fine),
        }
    }
}

impl Row {
    fn of(view: &View, node: &NodeData) -> Row {
        let history = view.stats(node);
        Row {
            name: node.name.clone(),
            id: node.id.to_string(),
            host: node.host.clone(),
            process: node.process,
            user: node.user.clone(),
            version: node.version.clone(),
            endpoints: node.endpoints.iter().map(|port| port.endpoint.clone()).collect(),
            links: node.endpoints.iter().fold(0, |sum, port| sum.saturating_add(port.links)),
            publishers: node.publishers.len(),
            subscribers: node.subscribers.len(),
            omitted: node.omitted,
            cpu: history.and_then(|history| history.cpu()),
            memory_bytes: history.map(|history| history.last.memory_bytes),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.host.clone(),
            self.process.to_string(),
            self.user.clone(),
            self.version.clone(),
            self.publishers.to_string(),
            self.subscribers.to_string(),
            self.endpoints.join(" "),
        ]
    }
}

/// A node with its publishers and subscribers.
#[derive(Serialize)]
struct Details {
    #[serde(flatten)]
    row: Row,
    publishes: Vec<Publishes>,
    subscribes: Vec<Subscribes>,
}

#[derive(Serialize)]
struct Publishes {
    topic: String,
    #[serde(rename = "type")]
    type_name: String,
    wire: String,
    qos: String,
    rate_hz: Option<f64>,
    accepting: u32,
    refusing: u32,
}

#[derive(Serialize)]
struct Subscribes {
    topic: String,
    #[serde(rename = "type")]
    type_name: String,
    endpoint: String,
    qos: String,
    rate_hz: Option<f64>,
    latency_p99_ns: Option<u64>,
    /// The names of the nodes whose publishers the subscriber reads.
    reads: Vec<String>,
    /// The names of the nodes whose publishers the subscriber does not read, each with the reason.
    refuses: Vec<(String, String)>,
}

impl Action for InfoOf {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let mut view = self.view.open()?;
        view.complete(true)?;
        let snapshot = view.snapshot();
        let Some(node) = snapshot.node(&self.name).filter(|node| view.nodes().iter().any(|other| other.id == node.id))
        else {
            let names: Vec<String> = view.nodes().iter().map(|node| node.name.clone()).collect();
            return Err(Missed(format!("there is no node '{}'; there are {}", self.name, names.join(", "))).into());
        };
        let details = Details::of(&view, node);
        match terminal.json {
            true => terminal.value(&details)?,
            false => terminal.text(&details.text())?,
        }
        Ok(Outcome::Fine)
    }
}

impl Details {
    fn of(view: &View, node: &NodeData) -> Details {
        let history = view.stats(node);
        let publishes = node.publishers.iter().map(|publisher| Publishes {
            topic: publisher.topic.clone(),
            type_name: publisher.type_name.clone(),
            wire: publisher.wire.clone(),
            qos: publisher.qos.to_string(),
            rate_hz: history.and_then(|history| Some(history.sent(&publisher.topic, false)?.messages)),
            accepting: publisher.accepting,
            refusing: publisher.refusing,
        });
        let snapshot = view.snapshot();
        let subscribes = node.subscribers.iter().map(|subscriber| {
            let (mut reads, mut refuses) = (Vec::new(), Vec::new());
            for (from, publisher) in publishers_of(&snapshot, &subscriber.topic) {
                match Matching::of(publisher, subscriber) {
                    Matching::Matched => reads.push(from.name.clone()),
                    Matching::Incompatible(reason) => refuses.push((from.name.clone(), reason)),
                    Matching::Partition => refuses.push((from.name.clone(), "they have no partition in common".into())),
                    _ => refuses.push((from.name.clone(), "they are not connected".into())),
                }
            }
            let counted = history.and_then(|history| history.last.topic(&subscriber.topic));
            Subscribes {
                topic: subscriber.topic.clone(),
                type_name: subscriber.type_name.clone(),
                endpoint: subscriber.endpoint.clone(),
                qos: subscriber.qos.to_string(),
                rate_hz: history.and_then(|history| Some(history.received(&subscriber.topic, false)?.messages)),
                latency_p99_ns: counted.and_then(|counted| counted.latency.quantile(0.99)),
                reads,
                refuses,
            }
        });
        Details { row: Row::of(view, node), publishes: publishes.collect(), subscribes: subscribes.collect() }
    }

    fn text(&self) -> String {
        let row = &self.row;
        let cpu = row.cpu.map_or("-".into(), |cpu| format!("{:.1} %", cpu * 100.0));
        let memory = row.memory_bytes.map_or("-".into(), |bytes| format!("{}B", shown(bytes as f64)));
        let mut text = format!(
            "node        {}\nid          {}\nhost        {}\nprocess     {} of user {}\nversion     {}\n\
             endpoints   {}\nlinks       {}\nprocessor   {cpu}\nmemory      {memory}\n",
            row.name,
            row.id,
            row.host,
            row.process,
            row.user,
            row.version,
            row.endpoints.join(" "),
            row.links,
        );
        text += "publishes\n";
        for one in &self.publishes {
            let peers = format!("{} peers accept, {} refuse", one.accepting, one.refusing);
            let rate = shown_rate(one.rate_hz);
            text += &format!("  {}  {}  {}  {rate}  {peers}  {}", one.topic, one.type_name, one.wire, one.qos);
            text = format!("{}\n", text.trim_end());
        }
        text += "subscribes\n";
        for one in &self.subscribes {
            let (rate, p99) = (shown_rate(one.rate_hz), shown_time(one.latency_p99_ns));
            text += &format!("  {}  {}  {}  {rate}  p99 {p99}  {}", one.topic, one.type_name, one.endpoint, one.qos);
            text = format!("{}\n", text.trim_end());
            one.reads.iter().for_each(|name| text += &format!("    reads {name}\n"));
            one.refuses.iter().for_each(|(name, reason)| text += &format!("    does not read {name}: {reason}\n"));
        }
        text
    }
}

/// Returns all publishers of a topic with their nodes.
fn publishers_of<'a>(
    snapshot: &'a polywire::directory::Snapshot,
    topic: &'a str,
) -> impl Iterator<Item = (&'a NodeData, &'a polywire::directory::PublisherData)> {
    let all = snapshot.nodes().flat_map(|node| node.publishers.iter().map(move |publisher| (&**node, publisher)));
    all.filter(move |(_, publisher)| publisher.topic == topic)
}
