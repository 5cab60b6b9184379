//! `polywire fast study`

mod formats;
mod links;

use std::{
    collections::BTreeMap,
    env, fs, iter,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use polywire::{
    Record,
    codec::fast::framing::{Framing, Piece, Splitter, Step},
};
use polywire_instrument::netsim::{BadModel, Model};
use serde::Serialize;

use self::{
    formats::{FormatFigures, measure},
    links::{LinkFigures, Links},
};
use super::{Feed, Reset, codec::Codec};
use crate::{
    outcome::{self, Outcome},
    terminal::{Terminal, columns},
    types::count,
};

/// Messages that are studied at most.
const MAX_MESSAGES: usize = 100_000;

/// Says what a recording's messages take in every format and over a bad link
///
/// Reads the recording, writes it again and compares; measures its messages in all formats, as bytes and times; and sends them as one topic over emulated links, in virtual time, as a
/// chain, with anchors and as plain CDR. Messages without any field, which only reset dictionaries, are not sent. The exit code is 1 if a message does not come
/// back as the same bytes, or as another value.
#[derive(Args)]
pub struct Study {
    /// Recordings to read, of the same feed
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    feed: Feed,
    /// Of a capture, takes datagrams to this UDP port alone
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// A link to send the messages over, as `polywire link` takes it; may be given several times
    #[arg(long = "link", value_name = "LINK", default_values = ["lossy-30", "delay=20ms,jitter=uniform:20ms,reorder=10%,duplicate=20%,loss=10%"])]
    links: Vec<NamedLink>,
    /// Messages a second over the links
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Messages from one key frame to the next at most, as the wire's `key` says
    #[arg(long, value_name = "N", default_value_t = 100)]
    key: u64,
}

/// A link by the name that the user gave it.
#[derive(Clone, Debug)]
struct NamedLink {
    name: String,
    model: Model,
}

impl FromStr for NamedLink {
    type Err = BadModel;

    fn from_str(name: &str) -> Result<NamedLink, BadModel> {
        Ok(NamedLink { model: name.parse()?, name: name.into() })
    }
}

/// What was found.
#[derive(Debug, Serialize)]
struct Findings {
    recording: String,
    messages: usize,
    bytes: usize,
    /// Messages that are other bytes when they are written again: the recording's are not the shortest.
    longer_than_needed: usize,
    /// How many there are of each template.
    templates: BTreeMap<String, usize>,
    formats: Vec<FormatFigures>,
    /// Codecs that cannot carry the messages, and why.
    left_out: Vec<String>,
    links: Vec<LinkFigures>,
}

/// A recording's messages.
#[derive(Default)]
struct Recording {
    /// The values, and whether each has any field.
    messages: Vec<(Record, bool)>,
    bytes: usize,
    longer_than_needed: usize,
    templates: BTreeMap<String, usize>,
}

impl Study {
    pub fn run(self, terminal: &Terminal) -> outcome::Result {
        let mut page = format!("# Recordings of a feed\n\nMade by\n\n```\n{}\n```\n", command());
        let mut is_fine = true;
        for input in &self.inputs {
            let findings = self.study(input)?;
            is_fine &= findings.longer_than_needed == 0 && findings.links.iter().all(|link| link.wrong == 0);
            page += &findings.markdown();
            match terminal.json {
                true => terminal.value(&findings)?,
                false => terminal.text(&findings.text())?,
            }
        }
        if let Some(path) = &self.feed.output {
            fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(if is_fine { Outcome::Fine } else { Outcome::Missed })
    }

    fn study(&self, input: &Path) -> anyhow::Result<Findings> {
        let bar = self.bar()?;
        let mut codec = Codec::new(&self.feed)?;
        let recording = self.recording(input, &mut codec, &bar)?;
        if recording.messages.is_empty() {
            bail!("{}: there are no messages to study", input.display());
        }
        let (formats, left_out) = measure(&codec, &recording, self.feed.reset, &bar)?;
        let sent: Vec<&Record> =
            recording.messages.iter().filter(|(_, says_something)| *says_something).map(|(record, _)| record).collect();
        let mut links = Vec::new();
        let over = Links::new(&codec, self.key, self.rate)?;
        for link in self.links.iter().filter(|_| !sent.is_empty()) {
            bar.set_message(link.name.clone());
            links.extend(over.over(link, &sent)?);
        }
        bar.finish_and_clear();
        Ok(Findings {
            recording: input.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            messages: recording.messages.len(),
            bytes: recording.bytes,
            longer_than_needed: recording.longer_than_needed,
            templates: recording.templates,
            formats,
            left_out,
            links,
        })
    }

    fn bar(&self) -> anyhow::Result<ProgressBar> {
        let bar = if self.feed.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}")?);
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Ok(bar)
    }

    /// All messages of the file, each read and written again.
    fn recording(&self, input: &Path, codec: &mut Codec, bar: &ProgressBar) -> anyhow::Result<Recording> {
        bar.set_message("reads the recording");
        let name = input.display();
        let file = fs::read(input).with_context(|| format!("cannot read {name}"))?;
        let mut recording = Recording::default();
        let framing = self.feed.framing()?;
        if framing == Framing::None {
            self.messages(input, (&file, 0), codec, &mut recording)?;
            return Ok(recording);
        }
        let (mut splitter, mut at) = (Splitter::new(framing), 0);
        if let Some(port) = self.port {
            splitter = splitter.port(port);
        }
        while let Some(rest) = file.get(at..).filter(|rest| !rest.is_empty()) {
            let step = splitter.step(rest).with_context(|| format!("{name}"))?;
            let Step::Piece { piece, used } = step else { bail!("{name}: the file ends in the middle of a frame") };
            if let Piece::Frame { head, payload, .. } = piece {
                let messages = payload.get(self.feed.preamble..);
                let messages = messages.with_context(|| format!("{name}: byte {at}: a frame without its preamble"))?;
                if self.feed.reset == Reset::Packet {
                    codec.reset();
                }
                let at = at + head.len() + self.feed.preamble;
                self.messages(input, (messages, at), codec, &mut recording)?;
            }
            at += used;
        }
        Ok(recording)
    }

    /// The messages of some bytes, which begin there in the file.
    fn messages(
        &self,
        input: &Path,
        (mut rest, mut at): (&[u8], usize),
        codec: &mut Codec,
        recording: &mut Recording,
    ) -> anyhow::Result<()> {
        while !rest.is_empty() && recording.messages.len() < MAX_MESSAGES {
            let used = codec.decode(rest).map_err(|error| {
                let what = "; `polywire fast decode` has what goes before it";
                anyhow!("{}: byte {}: {error}{what}", input.display(), at + error.offset)
            })?;
            let (bytes, behind) = rest.split_at(used);
            if used == 0 {
                bail!("{}: byte {at}: a template without any field makes messages of no bytes", input.display());
            }
            recording.longer_than_needed += usize::from(!codec.encode().is_ok_and(|shortest| shortest == bytes));
            let (template, message) = codec.json()?;
            recording.messages.push((codec.record().clone(), message != "{}"));
            *recording.templates.entry(template).or_default() += 1;
            recording.bytes += used;
            (rest, at) = (behind, at + used);
        }
        Ok(())
    }
}

/// What was asked for, as the user wrote it.
fn command() -> String {
    let words = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    iter::once("polywire".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

impl Findings {
    fn text(&self) -> String {
        let [formats, links] = self.tables();
        [self.summary() + "\n", columns(&formats), String::new(), columns(&links)].join("\n")
    }

    fn markdown(&self) -> String {
        let tables = self.tables().map(|table| {
            let line = |cells: &Vec<String>| format!("| {} |\n", cells.join(" | "));
            let rule = format!("|{}\n", " --- |".repeat(table.first().map_or(0, Vec::len)));
            table.iter().map(line).enumerate().map(|(i, line)| if i == 0 { line + &rule } else { line }).collect()
        });
        let left_out: String = self.left_out.iter().map(|why| format!("\nLeft out: {why}.\n")).collect();
        let [formats, links]: [String; 2] = tables;
        format!("\n## {}\n\n{}\n\n{formats}{left_out}\n{links}", self.recording, self.summary())
    }

    fn summary(&self) -> String {
        let templates: Vec<String> = self.templates.iter().map(|(name, many)| format!("{many} of {name}")).collect();
        let back = match self.longer_than_needed {
            0 => "written again they are the same bytes".to_string(),
            many => format!("written again {many} are other bytes, for they are not the shortest"),
        };
        format!("{}, {} bytes ({}); {back}.", count(self.messages, "message"), self.bytes, templates.join(", "))
    }

    /// The lines of the tables, headings first.
    fn tables(&self) -> [Vec<Vec<String>>; 2] {
        let line = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_string()).collect::<Vec<_>>();
        let mut formats = vec![line(&["format", "bytes a message", "of the recording", "encode", "decode"])];
        let recorded = self.bytes as f64 / self.messages as f64;
        formats.extend(self.formats.iter().map(|format| {
            vec![
                format.format.into(),
                format!("{:.1}", format.bytes),
                format!("{:.2}x", format.bytes / recorded),
                format!("{:.0} ns", format.encode_ns),
                format!("{:.0} ns", format.decode_ns),
            ]
        }));
        let mut links = vec![line(&["link", "wire", "bytes a message", "delivered", "wrong values"])];
        links.extend(self.links.iter().map(|link| {
            vec![
                link.link.clone(),
                link.wire.into(),
                format!("{:.1}", link.bytes),
                format!("{:.1} %", 100.0 * link.delivered as f64 / link.sent as f64),
                link.wrong.to_string(),
            ]
        }));
        [formats, links]
    }
}
