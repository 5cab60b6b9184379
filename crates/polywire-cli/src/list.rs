//! The command `polywire list`: lists publishers and subscribers, and why some do not match.

use std::{thread, time::Duration};

use clap::Args;
use polywire::{
    directory::{Matching, NodeData, PublisherData, SubscriberData},
    extend::envelope::Id128,
    node::Source,
};
use serde::Serialize;

use crate::{
    outcome::{self, Missed, Outcome},
    terminal::{Terminal, columns},
    verb::{Action, Verb},
    view::{View, ViewArgs, shown_rate},
};

/// The maximum number of examined pairs of publisher and subscriber. Hostile nodes could announce
/// any number.
const PAIRS: usize = 100_000;

/// The maximum number of mismatching publishers that are shown for a subscriber of a program that
/// is not a node.
const MISMATCHES: usize = 100;

/// How often `--watch` checks for changes.
const EVERY: Duration = Duration::from_secs(1);

pub const VERB: Verb = Verb::new::<List>("list", "Lists publishers and subscribers, and why some do not match")
    .details(
        "Shows for each publisher the topic, type, format, rate and node, for each subscriber what it reads, and \
         below them the pairs that cannot talk, with the reason. `polywire node` shows the nodes.",
    )
    .example("polywire list --timeout 60");

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    view: ViewArgs,
    /// Keeps running, and prints the list again when it has changed
    #[arg(long)]
    watch: bool,
}

/// A publisher or a subscriber.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    topic: String,
    kind: &'static str,
    #[serde(rename = "type")]
    type_name: String,
    type_hash: String,
    /// The format of a publisher.
    #[serde(skip_serializing_if = "Option::is_none")]
    codec: Option<String>,
    endpoint: String,
    qos: String,
    /// The id of the publisher or subscriber; empty if only its announcement is known.
    id: String,
    /// Name of the node, or address of a peer that does not describe itself.
    node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_id: Option<String>,
    host: String,
    rate_hz: Option<f64>,
    /// Publishers that a subscriber reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    reads: Option<usize>,
    /// Publishers of the topic that a subscriber does not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mismatches: Vec<Mismatch>,
}

/// Why a subscriber does not read a publisher.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Mismatch {
    writer: String,
    node: String,
    reason: String,
}

impl Action for List {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let mut view = self.view.open()?;
        match view.complete(true) {
            Err(error) if !self.watch || !error.is::<Missed>() => return Err(error),
            _ => {}
        }
        let mut rows = rows(&view);
        if rows.is_empty() && !self.watch {
            let why = "there are nodes, but none publishes or subscribes (`polywire node list` shows them)";
            return Err(Missed(format!("no topics: {why}")).into());
        }
        let mut lines = print(&rows, terminal)?;
        if !self.watch {
            return Ok(Outcome::Fine);
        }
        loop {
            thread::sleep(EVERY);
            view.poll();
            let now = self::rows(&view);
            if now != rows {
                rows = now;
                if terminal.live && !terminal.json {
                    terminal.erase(lines)?;
                }
                lines = print(&rows, terminal)?;
            }
        }
    }
}

/// Returns the publishers and subscribers at the endpoints, by topic.
fn rows(view: &View) -> Vec<Row> {
    let mut rows = Vec::new();
    for node in view.nodes() {
        rows.extend(node.publishers.iter().map(|publisher| Row::publisher(view, &node, publisher)));
        rows.extend(node.subscribers.iter().map(|subscriber| Row::subscriber(view, &node, subscriber)));
    }
    let undescribed = view.undescribed();
    rows.extend(undescribed.iter().map(Row::undescribed));
    let snapshot = view.snapshot();
    let node_of = |writer: Id128| {
        let is_it = |source: &&Source| source.announcement.writer == writer;
        let address = || undescribed.iter().find(is_it).map(|source| source.link.address.clone());
        snapshot.publisher(writer).map(|(node, _)| node.name.clone()).or_else(address)
    };
    for program in view.foreign_readers() {
        rows.extend(program.subscribers.iter().map(|reader| Row::foreign_reader(view, &program, reader, &node_of)));
    }
    for pair in snapshot.pairs().take(PAIRS) {
        let reason = match &pair.matching {
            Matching::Incompatible(reason) => reason.clone(),
            Matching::Partition => "they have no partition in common".into(),
            _ => continue,
        };
        let reader = pair.subscriber.id.to_string();
        let (writer, node) = (pair.publisher.id.to_string(), pair.from.name.clone());
        if let Some(row) = rows.iter_mut().find(|row| row.kind == SUBSCRIBER && row.id == reader) {
            row.mismatches.push(Mismatch { writer, node, reason });
        }
    }
    rows.sort_by(|a, b| (&a.topic, a.kind, &a.node, &a.id).cmp(&(&b.topic, b.kind, &b.node, &b.id)));
    rows
}

const PUBLISHER: &str = "publisher";
const SUBSCRIBER: &str = "subscriber";

/// Prints the rows, and returns the number of lines.
fn print(rows: &[Row], terminal: &Terminal) -> anyhow::Result<usize> {
    if terminal.json {
        terminal.value(&rows)?;
        return Ok(0);
    }
    let head = ["TOPIC", "KIND", "TYPE", "CODEC", "RATE", "NODE", "ENDPOINT", "QOS"].map(String::from).to_vec();
    let table: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
    let mut text = columns(&table);
    for row in rows {
        for mismatch in &row.mismatches {
            let Mismatch { node, reason, .. } = mismatch;
            // Text from peers stays within its line.
            let line = format!("! {}: {} does not read {node}: {reason}", row.topic, row.node).replace('\n', "\\u000a");
            text += &format!("{line}\n");
        }
    }
    terminal.text(&text)?;
    Ok(text.lines().count())
}

impl Row {
    fn publisher(view: &View, node: &NodeData, publisher: &PublisherData) -> Row {
        let sent = view.stats(node).and_then(|history| history.sent(&publisher.topic, false));
        let (mut codecs, endpoints): (Vec<&str>, Vec<&str>) = publisher.wires().unzip();
        codecs.dedup();
        Row {
            topic: publisher.topic.clone(),
            kind: PUBLISHER,
            type_name: publisher.type_name.clone(),
            type_hash: publisher.type_hash.to_string(),
            codec: Some(codecs.join(" ")),
            endpoint: endpoints.join(" "),
            qos: publisher.qos.to_string(),
            id: publisher.id.to_string(),
            node: node.name.clone(),
            node_id: Some(node.id.to_string()),
            host: node.host.clone(),
            rate_hz: sent.map(|rate| rate.messages),
            reads: None,
            mismatches: Vec::new(),
        }
    }

    fn subscriber(view: &View, node: &NodeData, subscriber: &SubscriberData) -> Row {
        let received = view.stats(node).and_then(|history| history.received(&subscriber.topic, false));
        Row {
            topic: subscriber.topic.clone(),
            kind: SUBSCRIBER,
            type_name: subscriber.type_name.clone(),
            type_hash: subscriber.type_hash.to_string(),
            codec: None,
            endpoint: subscriber.endpoint.clone(),
            qos: subscriber.qos.to_string(),
            id: subscriber.id.to_string(),
            node: node.name.clone(),
            node_id: Some(node.id.to_string()),
            host: node.host.clone(),
            rate_hz: received.map(|rate| rate.messages),
            reads: Some(subscriber.reads.len()),
            mismatches: Vec::new(),
        }
    }

    /// Returns a subscriber of a program that is not a node.
    fn foreign_reader(
        view: &View,
        program: &NodeData,
        reader: &SubscriberData,
        node_of: &dyn Fn(Id128) -> Option<String>,
    ) -> Row {
        let told = reader.refuses.iter().take(MISMATCHES).map(|refusal| Mismatch {
            writer: refusal.writer.to_string(),
            node: node_of(refusal.writer).unwrap_or_else(|| refusal.writer.to_string()),
            reason: refusal.reason.clone(),
        });
        Row { node_id: None, mismatches: told.collect(), ..Row::subscriber(view, program, reader) }
    }

    fn undescribed(source: &Source) -> Row {
        let announced = &source.announcement;
        let colon = if announced.options.is_empty() { "" } else { ":" };
        let plus = if announced.compressor.is_empty() { "" } else { "+" };
        Row {
            topic: announced.topic.clone(),
            kind: PUBLISHER,
            type_name: announced.type_name.clone(),
            type_hash: announced.type_hash.to_string(),
            codec: Some(format!("{}{colon}{}{plus}{}", announced.codec, announced.options, announced.compressor)),
            endpoint: String::new(),
            qos: source.qos().map(|qos| qos.to_string()).unwrap_or_default(),
            id: announced.writer.to_string(),
            node: source.link.address.clone(),
            node_id: None,
            host: String::new(),
            rate_hz: None,
            reads: None,
            mismatches: Vec::new(),
        }
    }

    fn cells(&self) -> Vec<String> {
        let codec = self.codec.clone().unwrap_or_else(|| "-".into());
        let type_name = if self.type_name.is_empty() { "-".into() } else { self.type_name.clone() };
        vec![
            self.topic.clone(),
            self.kind.into(),
            type_name,
            codec,
            shown_rate(self.rate_hz),
            self.node.clone(),
            self.endpoint.clone(),
            self.qos.clone(),
        ]
    }
}
