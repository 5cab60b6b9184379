//! The command `polywire fast study`: measures recordings of a FAST feed in every format and over
//! lossy links.

mod findings;
mod formats;
mod links;

use std::{
    collections::BTreeMap,
    env, fs, iter,
    ops::ControlFlow::{self, Break, Continue},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use polywire::Record;
use polywire_link::netsim::{BadModel, Model};

use self::{
    findings::Findings,
    formats::measure,
    links::{LinkFigures, Links},
};
use super::{
    codec::Codec,
    messages::{Cutter, Message, Recorded, Taker},
};
use crate::{
    outcome::{self, Outcome},
    seconds::Seconds,
    terminal::Terminal,
    verb::{Action, Verb},
};

/// Maximum number of messages that are studied.
const MAX_MESSAGES: usize = 100_000;

pub const VERB: Verb = Verb::new::<Study>(
    "study",
    "Measures a recording's messages in every format and over lossy links",
)
.details(
    "Decodes the recording, encodes it again and compares the bytes. Measures its messages in all formats, in bytes \
         and time. Publishes them from one node to another over emulated links, in real time, in turn on four topics \
         of the same link: chained FAST, anchored FAST, CDR and JSON. Messages without fields, which only reset \
         dictionaries, are not published. With --output, writes the tables as a Markdown page, with a picture of each \
         recording beside it. The exit code is 1 if a message is not encoded to the same bytes, or arrives as another \
         value.",
)
.example("polywire fast study quotes.fast --template feed.xml --framing len2be --link lossy-30 --rate 10");

#[derive(Args)]
pub struct Study {
    /// Recordings to read, of the same feed
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    recorded: Recorded,
    /// A link to publish the messages over: a model as for `polywire link`; may be given several
    /// times
    #[arg(long = "link", value_name = "LINK", default_values = ["lossy-30", "delay=20ms,jitter=uniform:20ms,reorder=10%,duplicate=20%,loss=10%"])]
    links: Vec<NamedLink>,
    /// Messages per second on each topic of a link
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Time for each link, which limits the number of messages
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    seconds: Seconds,
    /// Maximum number of messages from one key frame to the next, as in the option key_interval of
    /// a wire
    #[arg(long, value_name = "N", default_value_t = 100)]
    key_interval: u64,
}

/// A link by the name that the user gave it.
#[derive(Clone, Debug)]
struct NamedLink {
    name: String,
}

impl FromStr for NamedLink {
    type Err = BadModel;

    fn from_str(name: &str) -> Result<NamedLink, BadModel> {
        name.parse::<Model>().map(|_| NamedLink { name: name.into() })
    }
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

impl Action for Study {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let mut page = Page::new(self.recorded.feed.output.as_deref());
        let mut are_fine = true;
        for input in &self.inputs {
            let findings = self.study(input)?;
            are_fine &= findings.are_fine();
            page.add(&findings)?;
            match terminal.json {
                true => terminal.value(&findings)?,
                false => terminal.text(&findings.text())?,
            }
        }
        page.finish()?;
        Ok(if are_fine { Outcome::Fine } else { Outcome::Missed })
    }
}

impl Study {
    fn study(&self, input: &Path) -> anyhow::Result<Findings> {
        let bar = self.bar()?;
        bar.set_message("reads the recording");
        let (mut recording, mut cutter) =
            (Recording::default(), Cutter::open(&self.recorded, Some(input), &ProgressBar::hidden())?);
        cutter.run(&mut recording)?;
        if recording.messages.is_empty() {
            bail!("{}: there are no messages to study", input.display());
        }
        let (formats, left_out) = measure(cutter.codec(), &recording, self.recorded.feed.reset, &bar)?;
        let links = self.over_links(&recording, &bar)?;
        bar.finish_and_clear();
        Ok(Findings {
            recording: input.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            messages: recording.messages.len(),
            bytes: recording.bytes,
            longer_than_needed: recording.longer_than_needed,
            templates: recording.templates,
            formats,
            left_out,
            rate_hz: self.rate,
            links,
        })
    }

    /// Publishes the messages that have fields, as many as the time allows.
    fn over_links(&self, recording: &Recording, bar: &ProgressBar) -> anyhow::Result<Vec<LinkFigures>> {
        let most = (f64::from(self.rate) * self.seconds.0.as_secs_f64()).ceil().max(1.0) as usize;
        let messages = recording.messages.iter().filter(|(_, says_something)| *says_something);
        let messages: Vec<Record> = messages.take(most).map(|(record, _)| record.clone()).collect();
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let links = Links::new(&self.recorded.feed, messages, self.key_interval, self.rate)?;
        bar.set_length((links.messages() * self.links.len()) as u64);
        bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} messages, {eta} left, over {msg}")?);
        let mut figures = Vec::new();
        for link in &self.links {
            bar.set_message(link.name.clone());
            figures.extend(links.over(link, bar)?);
        }
        Ok(figures)
    }

    fn bar(&self) -> anyhow::Result<ProgressBar> {
        let bar = if self.recorded.feed.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}")?);
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Ok(bar)
    }
}

impl Taker for Recording {
    /// Reads each message and writes it again.
    fn message(&mut self, codec: &mut Codec, message: &Message<'_>) -> anyhow::Result<ControlFlow<()>> {
        self.longer_than_needed += usize::from(!codec.encode().is_ok_and(|shortest| shortest == message.bytes));
        let (template, text) = codec.json()?;
        self.messages.push((codec.record().clone(), text != "{}"));
        *self.templates.entry(template).or_default() += 1;
        self.bytes += message.bytes.len();
        Ok(if self.messages.len() < MAX_MESSAGES { Continue(()) } else { Break(()) })
    }
}

/// The findings as a Markdown page, with a picture of each recording beside it. Without a path,
/// nothing is written.
struct Page<'a> {
    path: Option<&'a Path>,
    text: String,
    pictures: usize,
}

impl Page<'_> {
    fn new(path: Option<&Path>) -> Page<'_> {
        Page { path, text: format!("# Recordings of a feed\n\nMade by\n\n```\n{}\n```\n", command()), pictures: 0 }
    }

    fn add(&mut self, findings: &Findings) -> anyhow::Result<()> {
        let Some(path) = self.path else { return Ok(()) };
        self.pictures += 1;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{stem}-{}.svg", self.pictures);
        if let Some(picture) = findings.picture() {
            write(&path.with_file_name(&name), &(picture + "\n"))?;
        }
        self.text += &findings.markdown(&name);
        Ok(())
    }

    fn finish(&self) -> anyhow::Result<()> {
        self.path.map_or(Ok(()), |path| write(path, &self.text))
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the command line as the user wrote it.
fn command() -> String {
    let words = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    iter::once("polywire".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}
