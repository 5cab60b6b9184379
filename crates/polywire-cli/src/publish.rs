//! The command `polywire pub`: reads JSON lines and publishes them on a topic.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Args;
use polywire::{
    PublishError, PublisherOf,
    coding::{Coding, Dynamic, KeyHash},
    engine::Sent,
};
use polywire::{
    codec::{BuildError, Codec, Decoder, Encoder, Options, cdr::Cdr, json::JSON},
    extend::{
        layout::Record,
        program::{CodecError, Payload},
    },
    schema::Schema,
};
use serde::Serialize;

use crate::{
    outcome::{self, Missed, Outcome},
    reach::Reach,
    seconds::{self, Seconds},
    terminal::Terminal,
    topic::{WireArgs, place, policies},
    types::{TypeArgs, count},
    unknown::unknown_member,
    verb::{Action, Verb},
    watch::Watch,
};

/// Maximum length of a line, in bytes.
const LINE_BYTES: u64 = 64 << 20;

/// How long published messages may take to be delivered at the end.
const DRAIN: Duration = Duration::from_secs(30);

pub const VERB: Verb = Verb::new::<Pub>("pub", "Publishes JSON lines as messages of a type")
    .details(
        "Lines come from standard input, from --file, or from VALUE. A member that a line does not have takes its \
         default value. A line that does not fit the type is reported and skipped. The command ends when all \
         messages have left for the subscribers.",
    )
    .example(r#"polywire pub weather '{"station":"EDDM","temperature_c":21.5}' --idl weather.idl"#);

#[derive(Args)]
pub struct Pub {
    /// Topic to publish on
    topic: String,
    /// One message as JSON, published --count times
    value: Option<String>,
    #[command(flatten)]
    ty: TypeArgs,
    #[command(flatten)]
    wire: WireArgs,
    /// Quality of service that is offered: [PROFILE,]NAME=VALUE,... changes that of --config
    #[arg(long, value_name = "POLICIES")]
    qos: Option<String>,
    /// File with one message per line
    #[arg(short, long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Messages per second [default: as fast as they are read]
    #[arg(short, long, value_name = "HZ", value_parser = seconds::rate)]
    rate: Option<f64>,
    /// Ends after this many messages
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Subscribers to wait for before the first message
    #[arg(long, value_name = "N", default_value_t = 1)]
    wait: usize,
    /// How long to wait for the subscribers of --wait
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    wait_timeout: Seconds,
    /// Publishes no values, but says that the instances with the keys of these lines no longer
    /// exist
    #[arg(long, conflicts_with = "unregister")]
    dispose: bool,
    /// Publishes no values, but says that this publisher will not write the instances with the keys
    /// of these lines again
    #[arg(long)]
    unregister: bool,
    /// Ignores members that the type does not have
    #[arg(long)]
    lenient: bool,
    /// Ends with exit code 2 at the first line that does not fit the type
    #[arg(long)]
    strict: bool,
    /// Prints no summary
    #[arg(short, long)]
    quiet: bool,
}

/// The counters of the summary.
#[derive(Debug, Serialize)]
struct Summary {
    topic: String,
    messages: u64,
    bytes: u64,
    /// Messages that a subscriber did not get because of the overflow policy.
    dropped: u64,
    /// Messages that a subscriber may have missed because a link broke: not confirmed on that link,
    /// or published before the subscriber was back.
    lost: u64,
    bad_lines: u64,
    /// Subscribers that the last message went to.
    subscribers: usize,
    #[serde(skip)]
    reach: Reach,
}

impl Action for Pub {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let schema = self.ty.needed(terminal)?;
        let mut lines = self.lines()?;
        let (node, wires) = self.wire.open(&self.topic)?;
        let mut watch = Watch::new(&node);
        let metered = Metered::of(&schema)?;
        let bytes = metered.bytes.clone();
        let reader = Decoder::for_shape(&JSON, &Options::default(), &schema, metered.inner.shape())?;
        let mut publish = wires.publish(&node, &self.topic, metered)?;
        if let Some(text) = &self.qos {
            let qos = policies(publish.offered(), text)?;
            publish = publish.qos(qos)?;
        }
        let publisher = publish.open()?;

        self.wait(&publisher, &mut watch, terminal, &place(&wires))?;
        let mut summary = Summary {
            topic: self.topic.clone(),
            messages: 0,
            bytes: 0,
            dropped: 0,
            lost: 0,
            bad_lines: 0,
            subscribers: 0,
            reach: Reach::default(),
        };
        let mut pace = Pace::new(self.rate);
        let mut record = publisher.default_value();
        while self.count.is_none_or(|count| summary.messages < count) {
            let Some(line) = lines.next()? else { break };
            match self.fits(&schema, &reader, &line, &mut record) {
                Ok(()) => {
                    pace.wait();
                    let sent = self.send(&publisher, &record)?;
                    summary.dropped += sent.dropped as u64;
                    summary.messages += 1;
                    summary.reach.add(&sent, watch.broken);
                }
                Err(error) => {
                    summary.bad_lines += 1;
                    terminal.error(&format!("{}:{}: {error}", lines.name, line.number));
                    if self.strict {
                        break;
                    }
                }
            }
            watch.poll(terminal);
        }
        summary.bytes = bytes.load(Ordering::Relaxed);
        let mut drained = publisher.flush(DRAIN);
        watch.poll(terminal);
        if !drained && watch.broken > 0 {
            // Messages on the broken link are counted as lost. This waits for the other links.
            drained = publisher.flush(DRAIN);
        }
        summary.reach.end(publisher.wait_for_subscribers(0, Duration::ZERO), summary.messages, watch.broken);
        summary.subscribers = summary.reach.last();
        // Closing the node announces the end to its peers. A peer that reads the link to its end
        // receives all messages. For any other peer, the node reports the unconfirmed messages.
        drop(publisher);
        node.close();
        watch.poll(terminal);
        summary.lost = summary.reach.unheard() + watch.unconfirmed;
        self.show(&summary, terminal)?;
        if !drained {
            bail!(
                "a subscriber has not taken all messages within {} s: -v prints what happens on its link",
                DRAIN.as_secs()
            );
        }
        // Refusals do not affect the exit code: anybody can send one, and all subscribers that
        // --wait asked for have accepted.
        Ok(match summary.bad_lines > 0 {
            true if self.strict => Outcome::Failed,
            bad if bad || summary.dropped + summary.lost > 0 => Outcome::Missed,
            _ => Outcome::Fine,
        })
    }
}

impl Pub {
    fn send(&self, publisher: &PublisherOf<Metered>, record: &Record) -> Result<Sent, PublishError> {
        match (self.dispose, self.unregister) {
            (true, _) => publisher.dispose(record),
            (_, true) => publisher.unregister(record),
            _ => publisher.publish(record),
        }
    }

    fn lines(&self) -> anyhow::Result<Lines> {
        let (name, from): (String, Box<dyn BufRead>) = match (&self.value, &self.file) {
            (Some(value), _) => {
                let repeat = Repeat { line: format!("{value}\n").into_bytes(), left: self.count.unwrap_or(1), at: 0 };
                ("VALUE".into(), Box::new(BufReader::new(repeat)))
            }
            (None, Some(path)) => {
                let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
                (path.display().to_string(), Box::new(BufReader::new(file)))
            }
            (None, None) => ("stdin".into(), Box::new(io::stdin().lock())),
        };
        Ok(Lines::new(name, from))
    }

    /// Reads a line into the record.
    fn fits(&self, schema: &Schema, reader: &Decoder<Record>, line: &Line, record: &mut Record) -> Result<(), String> {
        let text = line.text.as_deref().map_err(String::clone)?;
        let slip = if self.lenient { None } else { unknown_member(schema, text) };
        slip.map_or(Ok(()), Err)?;
        reader.decode(text.as_bytes(), record).map(|_| ()).map_err(|error| error.to_string())
    }

    fn wait(
        &self,
        publisher: &PublisherOf<Metered>,
        watch: &mut Watch,
        terminal: &Terminal,
        place: &str,
    ) -> anyhow::Result<()> {
        let until = Instant::now() + self.wait_timeout.0;
        loop {
            let there = publisher.wait_for_subscribers(self.wait, Duration::from_millis(50));
            watch.poll(terminal);
            if there >= self.wait {
                return Ok(());
            }
            if Instant::now() >= until {
                let (topic, wanted) = (&self.topic, self.wait);
                let seconds = self.wait_timeout;
                if there == 0 && watch.refusals > 0 {
                    bail!("no subscriber to '{topic}' at {place} accepts the type");
                }
                let text = format!(
                    "{there} of {wanted} subscribers to '{topic}' at {place} after {seconds} s; \
                     start `polywire echo {topic}`, wait longer with --wait-timeout, or do not wait with --wait 0"
                );
                return Err(Missed(text).into());
            }
        }
    }

    fn show(&self, summary: &Summary, terminal: &Terminal) -> anyhow::Result<()> {
        if terminal.json {
            return terminal.value(summary);
        }
        if !self.quiet {
            let mut text = format!(
                "published {}, {} bytes, to {}",
                count(summary.messages as usize, "message"),
                summary.bytes,
                count(summary.subscribers, "subscriber")
            );
            if let Some((least, most)) = summary.reach.range() {
                text.push_str(&format!(" at the end, {least} to {most} before"));
            }
            if summary.dropped > 0 {
                text.push_str(&format!("; {} dropped", summary.dropped));
            }
            if summary.lost > 0 {
                text.push_str(&format!("; up to {} lost, because a link broke", summary.lost));
            }
            if summary.bad_lines > 0 {
                text.push_str(&format!("; {} skipped", count(summary.bad_lines as usize, "bad line")));
            }
            terminal.line(&text)?;
        }
        Ok(())
    }
}

/// Reads lines and counts them.
pub struct Lines {
    pub name: String,
    from: Box<dyn BufRead>,
    number: u64,
    buffer: Vec<u8>,
}

pub struct Line {
    pub number: u64,
    /// The text, or why there is none.
    pub text: Result<String, String>,
}

impl Lines {
    pub fn new(name: String, from: Box<dyn BufRead>) -> Lines {
        Lines { name, from, number: 0, buffer: Vec::new() }
    }

    /// Returns the next line that is not blank.
    pub fn next(&mut self) -> anyhow::Result<Option<Line>> {
        loop {
            self.buffer.clear();
            let read = self.from.by_ref().take(LINE_BYTES).read_until(b'\n', &mut self.buffer);
            if read.with_context(|| format!("cannot read {}", self.name))? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.buffer.len() as u64 == LINE_BYTES && !self.buffer.ends_with(b"\n") {
                bail!("{}:{}: the line is longer than {LINE_BYTES} bytes", self.name, self.number);
            }
            let text = match std::str::from_utf8(&self.buffer) {
                Ok(text) if text.trim().is_empty() => continue,
                Ok(text) => Ok(text.trim().to_owned()),
                Err(error) => Err(format!("the line is not UTF-8 after {} bytes", error.valid_up_to())),
            };
            return Ok(Some(Line { number: self.number, text }));
        }
    }
}

/// Repeats one line.
struct Repeat {
    line: Vec<u8>,
    left: u64,
    at: usize,
}

impl io::Read for Repeat {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let rest = self.line.get(self.at..).unwrap_or_default();
        let size = rest.len().min(buffer.len());
        buffer[..size].copy_from_slice(&rest[..size]);
        self.at += size;
        if self.at == self.line.len() {
            (self.at, self.left) = (0, self.left - 1);
        }
        Ok(size)
    }
}

/// Keeps a rate. The due times are fixed from the start, so that delays do not accumulate.
pub struct Pace {
    period: Option<Duration>,
    next: Instant,
}

impl Pace {
    pub fn new(rate: Option<f64>) -> Pace {
        Pace { period: rate.map(|rate| Duration::from_secs_f64(1.0 / rate)), next: Instant::now() }
    }

    /// Waits until the next message is due.
    pub fn wait(&mut self) {
        let Some(period) = self.period else { return };
        let now = Instant::now();
        thread::sleep(self.next.saturating_duration_since(now));
        // A delay of more than a second is not compensated by a burst.
        let late = now.saturating_duration_since(self.next) > Duration::from_secs(1);
        self.next = if late { now + period } else { self.next + period };
    }
}

/// A coding of records that counts the encoded bytes.
#[derive(Clone)]
pub struct Metered {
    inner: Dynamic,
    pub bytes: Arc<AtomicU64>,
}

impl Metered {
    pub fn of(schema: &Schema) -> anyhow::Result<Metered> {
        Ok(Metered { inner: Dynamic::of(schema)?, bytes: Arc::default() })
    }
}

impl Coding for Metered {
    type Value = Record;
    type Encoder = (Encoder<Record>, Arc<AtomicU64>);
    type Decoder = Decoder<Record>;

    fn schema(&self) -> Option<&Schema> {
        self.inner.schema()
    }

    fn default_value(&self) -> Record {
        self.inner.default_value()
    }

    fn encoder(&self, codec: &dyn Codec, options: &Options) -> Result<Self::Encoder, BuildError> {
        Ok((self.inner.encoder(codec, options)?, self.bytes.clone()))
    }

    fn decoder(&self, codec: &dyn Codec, options: &Options, writer: &Schema) -> Result<Decoder<Record>, BuildError> {
        self.inner.decoder(codec, options, writer)
    }

    fn key_hasher(&self, codec: &Cdr) -> Result<Option<KeyHash<Record>>, BuildError> {
        self.inner.key_hasher(codec)
    }

    fn encode((encoder, bytes): &Self::Encoder, value: &Record, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let before = out.len();
        Dynamic::encode(encoder, value, out)?;
        bytes.fetch_add((out.len() - before) as u64, Ordering::Relaxed);
        Ok(())
    }

    fn decode_measured(
        decoder: &Decoder<Record>,
        payload: Payload<'_>,
        value: &mut Record,
    ) -> Result<usize, CodecError> {
        Dynamic::decode_measured(decoder, payload, value)
    }
}
