//! The command `polywire list`: lists the topics that are published at an endpoint.

use std::{
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use polywire::node::Source;
use serde::Serialize;

use crate::{
    outcome::{self, Missed, Outcome},
    seconds::Seconds,
    terminal::{Terminal, columns},
    topic::{WireArgs, place},
    verb::{Action, Verb},
};

/// Announcements arrive together. If none arrives for this long, the list is complete.
const QUIET: Duration = Duration::from_millis(500);

pub const VERB: Verb = Verb::new::<List>("list", "Lists the topics that are published at an endpoint")
    .example("polywire list --timeout 60");

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    wire: WireArgs,
    /// How long to wait for the first publisher
    #[arg(short, long, value_name = "SECONDS", default_value = "2")]
    timeout: Seconds,
}

#[derive(Debug, PartialEq, Serialize)]
struct Row {
    topic: String,
    #[serde(rename = "type")]
    type_name: String,
    type_hash: String,
    codec: String,
    writer: String,
    peer: String,
}

impl Action for List {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let (node, wires) = self.wire.open("")?;
        let place = place(&wires);
        for endpoint in wires.endpoints() {
            node.open(&endpoint)?;
        }
        let (until, mut rows, mut changed) = (Instant::now() + self.timeout.0, Vec::new(), Instant::now());
        while (rows.is_empty() && Instant::now() < until) || (!rows.is_empty() && changed.elapsed() < QUIET) {
            thread::sleep(Duration::from_millis(20));
            let now: Vec<Row> = node.discovered().iter().map(Row::of).collect();
            if now != rows {
                (rows, changed) = (now, Instant::now());
            }
        }
        if terminal.json {
            terminal.value(&rows)?;
        } else if !rows.is_empty() {
            let head = ["TOPIC", "TYPE", "CODEC", "WRITER", "PEER"].map(String::from).to_vec();
            let table: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
            terminal.text(&columns(&table))?;
        }
        if rows.is_empty() {
            let why = if node.links() == 0 { "nobody is there" } else { "nobody publishes there" };
            return Err(Missed(format!("no topics at {place} within {} s: {why}", self.timeout)).into());
        }
        Ok(Outcome::Fine)
    }
}

impl Row {
    fn of(source: &Source) -> Row {
        let announced = &source.announcement;
        let colon = if announced.options.is_empty() { "" } else { ":" };
        let plus = if announced.compressor.is_empty() { "" } else { "+" };
        Row {
            topic: announced.topic.clone(),
            type_name: announced.type_name.clone(),
            type_hash: announced.type_hash.to_string(),
            codec: format!("{}{colon}{}{plus}{}", announced.codec, announced.options, announced.compressor),
            writer: announced.writer.to_string(),
            peer: source.link.address.clone(),
        }
    }

    fn cells(&self) -> Vec<String> {
        // Eight digits are enough to tell writers apart.
        let writer = self.writer.chars().take(8).collect();
        vec![self.topic.clone(), self.type_name.clone(), self.codec.clone(), writer, self.peer.clone()]
    }
}
