//! The command `polywire echo`: subscribes to a topic and prints its messages.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use polywire::extend::layout::{Record, ValueRef};
use polywire::{
    Info, Kind, Node, Sample,
    coding::{Coding, Discovered, Dynamic},
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    outcome::{self, Missed, Misuse, Outcome},
    seconds::Seconds,
    terminal::Terminal,
    text::{JsonText, field, readable, utc},
    topic::{WireArgs, place, policies},
    types::TypeArgs,
    verb::{Action, Verb},
    watch::Watch,
};

/// How often events are polled while no message arrives.
const TICK: Duration = Duration::from_millis(50);

pub const VERB: Verb = Verb::new::<Echo>("echo", "Prints the messages of a topic")
    .details(
        "Without --idl, messages are shown in the type of their writer, whose schema is fetched over the link. With \
         --idl, they are read as that version of the type. A writer with an incompatible type is reported and \
         skipped; if no other messages come, the exit code is 2. With --strict, such a writer ends the command. The \
         end of an instance is shown with its key: {\"kind\":\"dispose\",\"value\":{..}}.",
    )
    .example("polywire echo weather --idl older.idl --format pretty --count 1 --timeout 60");

#[derive(Args)]
pub struct Echo {
    /// Topic to subscribe to, or a pattern: `plant/*/pump`, `plant/**`
    topic: String,
    #[command(flatten)]
    ty: TypeArgs,
    #[command(flatten)]
    wire: WireArgs,
    /// Quality of service that is requested: [PROFILE,]NAME=VALUE,... changes that of --config
    #[arg(long, value_name = "POLICIES")]
    qos: Option<String>,
    /// Output format: one JSON text per line, or indented text for people
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
    /// Ends after this many messages
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Ends with exit code 1 if no message arrives for this long
    #[arg(short, long, value_name = "SECONDS")]
    timeout: Option<Seconds>,
    /// Prints only this part of each message, for example entries[0].price
    #[arg(long, value_name = "PATH")]
    field: Option<String>,
    /// Prints the time, format and writer with each message
    #[arg(long)]
    info: bool,
    /// Ends with exit code 2 at the first writer with an incompatible type
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Pretty,
}

impl Action for Echo {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        match self.ty.schema(terminal)? {
            Some(schema) => self.run_with(Dynamic::of(&schema)?, terminal),
            None => self.run_with(Discovered::new()?, terminal),
        }
    }
}

impl Echo {
    fn run_with<C: Coding<Value = Record>>(self, coding: C, terminal: &Terminal) -> outcome::Result {
        let (node, wires) = self.wire.open(&self.topic)?;
        let mut watch = Watch::new(&node);
        let mut subscribe = wires.subscribe(&node, &self.topic, coding)?;
        if let Some(text) = &self.qos {
            let qos = policies(subscribe.requested(), text)?;
            subscribe = subscribe.qos(qos)?;
        }
        let subscriber = subscribe.open();
        let mut printer = Printer { echo: &self, terminal, json: JsonText::default() };
        let (mut came, mut last) = (Came::default(), Instant::now());
        while self.count.is_none_or(|count| came.messages < count) {
            if let Some(sample) = subscriber.recv_timeout(TICK) {
                came.messages += 1;
                if let Err(error) = printer.print(&sample) {
                    came.unprinted += 1;
                    terminal.error(&of_one_message(error, &sample)?);
                }
                last = Instant::now();
            }
            watch.poll(terminal);
            if watch.mismatches > 0 && self.strict {
                // Gives the refusal time to reach the writer.
                thread::sleep(TICK);
                node.close();
                return Ok(Outcome::Failed);
            }
            if self.timeout.is_some_and(|timeout| last.elapsed() >= timeout.0) {
                break;
            }
        }
        watch.poll(terminal);
        watch.lost = subscriber.lost();
        if watch.lost > 0 {
            terminal.warning(&format!("topic '{}': {} of its messages were lost", self.topic, watch.lost));
        }
        self.end(&came, &watch, &node, &place(&wires))
    }

    /// Chooses the exit code. A failure of one writer does not outweigh messages from others,
    /// because anybody can announce the topic.
    fn end(&self, came: &Came, watch: &Watch, node: &Node, place: &str) -> outcome::Result {
        if came.messages == came.unprinted && watch.mismatches + watch.undecodable + came.unprinted > 0 {
            return Ok(Outcome::Failed);
        }
        let timeout = self.timeout.map(|timeout| timeout.to_string()).unwrap_or_default();
        match (came.messages, self.count) {
            (0, None | Some(1..)) => Err(nothing_came(&self.topic, place, &timeout, node).into()),
            (some, Some(count)) if some < count => {
                Err(Missed(format!("{some} of {count} messages, and then none for {timeout} s")).into())
            }
            _ if watch.lost + watch.undecodable + came.unprinted > 0 => Ok(Outcome::Missed),
            _ => Ok(Outcome::Fine),
        }
    }
}

/// Counts of received messages.
#[derive(Default)]
struct Came {
    messages: u64,
    /// Messages among them that could not be shown.
    unprinted: u64,
}

/// Returns the text of an error that affects only one message. An error that affects all messages
/// ends the command, such as a path that leads nowhere or a closed standard output.
fn of_one_message(error: anyhow::Error, sample: &Sample<Record>) -> anyhow::Result<String> {
    if error.is::<Misuse>() || error.chain().any(|cause| cause.is::<io::Error>()) {
        return Err(error);
    }
    let (sequence, writer) = (sample.info.sequence, sample.info.source.announcement.writer);
    Ok(format!("message {sequence} of writer {writer} cannot be shown: {error:#}"))
}

/// Returns the error if no message arrived, with the most likely reason.
pub fn nothing_came(topic: &str, place: &str, timeout: &str, node: &Node) -> Missed {
    let others: Vec<String> = node.discovered().iter().map(|source| source.announcement.topic.clone()).collect();
    let why = match (node.links(), others.iter().any(|other| other == topic)) {
        (0, _) => "nobody else is there; start a publisher with the same wire".to_owned(),
        (_, true) => "its publisher is connected but has sent nothing".to_owned(),
        (_, false) if others.is_empty() => "nobody publishes there".to_owned(),
        (_, false) => format!("there are the topics {}", others.join(", ")),
    };
    Missed(format!("no message on '{topic}' at {place} for {timeout} s: {why}"))
}

/// A message with its metadata, for `--info`.
#[derive(Serialize)]
struct WithInfo<'a> {
    topic: &'a str,
    sequence: u64,
    timestamp_ns: i64,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hash: Option<String>,
    codec: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    compressor: &'a str,
    bytes: usize,
    writer: String,
    #[serde(rename = "type")]
    type_name: &'a str,
    value: &'a RawValue,
}

/// A message that ends an instance.
#[derive(Serialize)]
struct End<'a> {
    kind: &'a str,
    value: &'a RawValue,
}

struct Printer<'a> {
    echo: &'a Echo,
    terminal: &'a Terminal,
    json: JsonText,
}

impl Printer<'_> {
    fn print(&mut self, sample: &Sample<Record>) -> anyhow::Result<()> {
        match self.echo.format {
            Format::Pretty if !self.terminal.json => self.pretty(sample),
            _ => self.json(sample),
        }
    }

    fn json(&mut self, sample: &Sample<Record>) -> anyhow::Result<()> {
        let value = self.json.of(&sample.value, self.echo.field.as_deref())?;
        let kind = sample.info.kind.name();
        if !self.echo.info {
            return match kind {
                "data" => Ok(self.terminal.line(&value)?),
                kind => self.terminal.value(&End { kind, value: serde_json::from_str(&value)? }),
            };
        }
        let Info { sequence, timestamp_ns, bytes, .. } = sample.info;
        let announced = &sample.info.source.announcement;
        let value: &RawValue = serde_json::from_str(&value)?;
        self.terminal.value(&WithInfo {
            topic: sample.info.topic(),
            sequence,
            timestamp_ns,
            kind,
            key_hash: sample.info.key_hash.map(|hash| hash.to_string()),
            codec: &announced.codec,
            compressor: &announced.compressor,
            bytes,
            writer: announced.writer.to_string(),
            type_name: &announced.type_name,
            value,
        })
    }

    fn pretty(&mut self, sample: &Sample<Record>) -> anyhow::Result<()> {
        let value = match &self.echo.field {
            Some(path) => field(&sample.value, path)?.unwrap_or(ValueRef::Absent),
            None => sample.value.view(),
        };
        let mut text = readable(value);
        if self.echo.info {
            let (info, announced) = (&sample.info, &sample.info.source.announcement);
            let (time, bytes) = (utc(info.timestamp_ns), info.bytes);
            let head = format!(
                "# {} of writer {} at {time}: {}, {bytes} bytes of {}\n",
                info.sequence, announced.writer, announced.type_name, announced.codec
            );
            text.insert_str(0, &head);
        }
        if sample.info.kind != Kind::Data {
            text.insert_str(0, &format!("# {}\n", sample.info.kind.name()));
        }
        if self.echo.field.is_none() {
            text.push_str("---\n");
        }
        Ok(self.terminal.text(&text)?)
    }
}
