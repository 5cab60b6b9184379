//! `polywire fast`

mod codec;
mod decode;
mod encode;
mod learn;
mod line;
mod messages;
mod study;

use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use polywire::{
    codec::{
        Options,
        fast::template::{TemplateLimits, TemplateSet},
    },
    extend::framing::{Framing, FramingError},
};

use crate::{
    outcome::Misuse,
    terminal::Terminal,
    transcode::{progress, same_file},
    verb::Verb,
};

pub const VERB: Verb = Verb::group(
    "fast",
    "FAST: recorded feeds to JSON lines and back, what they cost, learned templates",
    &[decode::VERB, encode::VERB, learn::VERB, study::VERB],
);

/// What both directions have to be told.
#[derive(Args)]
struct Feed {
    /// XML file with the feed's templates, as its operator publishes them
    #[arg(long, value_name = "FILE")]
    template: PathBuf,
    /// Where messages begin and end: behind a length of 1 to 8 bytes (le, be: least, most
    /// significant byte first), a varint (delimited) or a FAST block size, in the UDP datagrams
    /// of a capture (pcap, pcapng), or one behind the other (none)
    #[arg(long, value_name = "FRAMING", value_parser = PossibleValuesParser::new(framings()))]
    framing: String,
    /// When all dictionaries are reset, in addition to templates that reset them
    #[arg(long, value_name = "WHEN", default_value = "template")]
    reset: Reset,
    /// Deviations from the specification, R1 to R9: `reject` ends there, `ignore` reads what can be
    /// read
    #[arg(long, value_name = "WHAT", default_value = "reject", value_parser = ["reject", "ignore"])]
    deviations: String,
    /// The template of messages before any that names one; a document's only template may be
    /// without an id then
    #[arg(long, value_name = "ID")]
    template_id: Option<u32>,
    /// Bytes in front of the messages of each frame (without a framing, of each message) that are
    /// not FAST: a sequence number, a channel
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    preamble: usize,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Prints no progress and no summary
    #[arg(short, long)]
    quiet: bool,
}

/// Those that binary messages can have.
fn framings() -> impl Iterator<Item = &'static str> {
    Framing::ALL.into_iter().filter(|framing| *framing != Framing::Lines).map(Framing::name)
}

/// When dictionaries are forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Reset {
    /// Before each message
    Message,
    /// Before each frame: packet, datagram, block
    Packet,
    /// Where the message's template has reset="Y", and nowhere else
    Template,
    /// Nowhere, whatever templates say
    Never,
}

impl Feed {
    fn framing(&self) -> Result<Framing, FramingError> {
        self.framing.parse()
    }

    fn templates(&self) -> anyhow::Result<TemplateSet> {
        let name = self.template.display();
        let limit = TemplateLimits::default().bytes as u64;
        let mut xml = String::new();
        let file = File::open(&self.template).with_context(|| format!("cannot read {name}"))?;
        file.take(limit + 1).read_to_string(&mut xml).with_context(|| format!("cannot read {name}"))?;
        let mut set = TemplateSet::parse(&xml).with_context(|| format!("{name}"))?;
        if let (Some(id), [only]) = (self.template_id, &mut set.templates[..]) {
            only.id.get_or_insert(id);
        }
        if self.reset == Reset::Never {
            set.templates.iter_mut().for_each(|template| template.reset = false);
        }
        Ok(set)
    }

    /// What the codec has to be told.
    fn options(&self) -> Options {
        let options = Options::default().with("deviations", &self.deviations);
        match self.template_id {
            Some(id) => options.with("id", &id.to_string()),
            None => options,
        }
    }

    /// What is written to, with the terminal where that is text.
    fn out(&self, input: Option<&Path>, text: Option<&Terminal>) -> anyhow::Result<Output> {
        let out: Box<dyn Write> = match &self.output {
            None => text.map_or_else(|| Box::new(io::stdout()) as Box<dyn Write>, Terminal::out),
            Some(path) if input.is_some_and(|input| same_file(input, path)) => {
                return Err(Misuse(format!("{} would be written while it is read", path.display())).into());
            }
            Some(path) => Box::new(File::create(path).with_context(|| format!("cannot write {}", path.display()))?),
        };
        Ok(Output { out: BufWriter::with_capacity(1 << 20, out), bytes: 0 })
    }

    fn bar(&self, input: Option<&Path>) -> anyhow::Result<indicatif::ProgressBar> {
        progress(input, self.quiet)
    }

    /// The summary, where it is not in the way of what was written.
    fn show(&self, terminal: &Terminal, summary: &impl serde::Serialize, text: &str) -> anyhow::Result<()> {
        match (self.quiet, &self.output) {
            (true, _) => Ok(()),
            (_, Some(_)) if terminal.json => terminal.value(summary),
            (_, Some(_)) => Ok(terminal.line(text)?),
            (_, None) => Ok(writeln!(io::stderr(), "{text}")?),
        }
    }
}

/// Opens a file or standard input, with a name for people.
fn open(input: Option<&Path>) -> anyhow::Result<(String, Box<dyn Read>)> {
    let Some(path) = input else { return Ok(("stdin".into(), Box::new(io::stdin()))) };
    let name = path.display().to_string();
    let file = fs::File::open(path).with_context(|| format!("cannot read {name}"))?;
    Ok((name, Box::new(file)))
}

/// Counts what is written.
struct Output {
    out: BufWriter<Box<dyn Write>>,
    bytes: u64,
}

impl Output {
    fn put(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes).context("cannot write")
    }

    fn finish(&mut self) -> anyhow::Result<u64> {
        self.out.flush().context("cannot write")?;
        Ok(self.bytes)
    }
}
