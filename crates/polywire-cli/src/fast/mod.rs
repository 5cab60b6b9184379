//! The command `polywire fast`: decodes, encodes and measures recordings of FAST feeds, and learns
//! templates. This file has the options and the output that its commands share.

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
    "Converts and measures recordings of FAST feeds, and learns FAST templates",
    &[decode::VERB, encode::VERB, learn::VERB, study::VERB],
);

/// Options for reading and writing recordings of a feed.
#[derive(Args)]
struct Feed {
    /// XML file with the feed's templates, as its operator publishes them
    #[arg(long, value_name = "FILE")]
    template: PathBuf,
    /// How the file is divided into frames. Each frame follows its length in 1 to 8 bytes (le, be:
    /// least or most significant byte first), as a varint (delimited) or as a FAST block size
    /// (block); or it is a UDP datagram of a capture (pcap, also for pcapng files). With none,
    /// messages directly follow each other
    #[arg(long, value_name = "FRAMING", value_parser = PossibleValuesParser::new(framings()))]
    framing: String,
    /// When all dictionaries are reset
    #[arg(long, value_name = "WHEN", default_value = "template")]
    reset: Reset,
    /// What to do about deviations from the specification, R1 to R9: `reject` ends with an error,
    /// `ignore` continues
    #[arg(long, value_name = "WHAT", default_value = "reject", value_parser = ["reject", "ignore"])]
    deviations: String,
    /// The template of messages at the start that name none. If the document has only one template,
    /// it may then lack an id
    #[arg(long, value_name = "ID")]
    template_id: Option<u32>,
    /// Number of bytes before the messages of each frame (without framing: before each message)
    /// that are not FAST, such as a sequence number
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    preamble: usize,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Prints no progress and no summary
    #[arg(short, long)]
    quiet: bool,
}

/// Returns the framings that binary messages can have.
fn framings() -> impl Iterator<Item = &'static str> {
    Framing::ALL.into_iter().filter(|framing| *framing != Framing::Lines).map(Framing::name)
}

/// When dictionaries are reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Reset {
    /// Before each message
    Message,
    /// Before each frame: packet, datagram, block
    Packet,
    /// Where the message's template has reset="Y", and nowhere else
    Template,
    /// Nowhere, even if the template has reset="Y"
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

    /// Returns the options of the codec.
    fn options(&self) -> Options {
        let options = Options::default().with("deviations", &self.deviations);
        match self.template_id {
            Some(id) => options.with("id", &id.to_string()),
            None => options,
        }
    }

    /// Opens the output. `text` is the terminal if text is written, which is then escaped there.
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

    /// Prints the summary: on standard output if that has no messages, otherwise on standard error.
    fn show(&self, terminal: &Terminal, summary: &impl serde::Serialize, text: &str) -> anyhow::Result<()> {
        match (self.quiet, &self.output) {
            (true, _) => Ok(()),
            (_, Some(_)) if terminal.json => terminal.value(summary),
            (_, Some(_)) => Ok(terminal.line(text)?),
            (_, None) => Ok(writeln!(io::stderr(), "{text}")?),
        }
    }
}

/// Opens a file or standard input, and gives it a name for messages.
fn open(input: Option<&Path>) -> anyhow::Result<(String, Box<dyn Read>)> {
    let Some(path) = input else { return Ok(("stdin".into(), Box::new(io::stdin()))) };
    let name = path.display().to_string();
    let file = fs::File::open(path).with_context(|| format!("cannot read {name}"))?;
    Ok((name, Box::new(file)))
}

/// An output that counts its bytes.
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
