//! The command `polywire transcode`: converts a file of messages to another format. [`source`]
//! reads the messages, `target` writes them.

pub mod format;
mod frames;
pub mod message;
mod payloads;
pub mod source;
mod target;

use std::{
    fs::File,
    io::{self, BufWriter, IsTerminal as _, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, builder::PossibleValuesParser};
use indicatif::{ProgressBar, ProgressStyle};
use polywire::{Wire, extend::framing::Framing};
use serde::Serialize;

use crate::{
    outcome::{self, Misuse, Outcome},
    terminal::Terminal,
    topic::wire_without_endpoint,
    types::{TypeArgs, count},
    verb::{Action, Verb},
};
use format::Format;
use message::{Foreign, Next};
use source::Source;
use target::{Counting, Target};

/// How often the progress bar is redrawn.
const TICKS: Duration = Duration::from_millis(100);

pub const VERB: Verb = Verb::new::<Transcode>("transcode", "Writes a file of messages in another format")
    .details(
        "The input is a file of JSON lines, or a file of frames that this command wrote: frames contain their type, \
         codec and compressor. With --from, the input is a file of bare payloads from any program. The output is \
         frames with --to, bare payloads with --to and --to-framing, JSON lines otherwise. With --idl, frames are \
         read as that version of the type. A message that cannot be read, or that the other format cannot represent, \
         is reported and skipped. Memory use does not grow with the size of the files.",
    )
    .example("polywire transcode reports.json --idl weather.idl --to cdr+zstd:9 --output reports.frames");

#[derive(Args)]
pub struct Transcode {
    /// File to read [default: standard input]
    input: Option<PathBuf>,
    #[command(flatten)]
    ty: TypeArgs,
    /// Reads bare payloads of this format, CODEC[:OPTIONS], whose type is in --idl
    #[arg(long, value_name = "FORMAT", value_parser = wire_without_endpoint, requires = "idl")]
    from: Option<Wire>,
    /// How the input is divided into payloads. Each payload follows its length in 1 to 8 bytes (le,
    /// be: least or most significant byte first), as a varint (delimited, as in Protobuf) or as a
    /// FAST block size (block); or it is a line (lines), or a UDP datagram of a capture (pcap, also
    /// for pcapng files). With none, payloads directly follow each other; if the format does not
    /// show where a message ends, the file is one message
    #[arg(long, value_name = "FRAMING", requires = "from", default_value_if("from", clap::builder::ArgPredicate::IsPresent, "none"), value_parser = framings())]
    framing: Option<String>,
    /// Reads only the datagrams of a capture to this UDP port
    #[arg(long, value_name = "PORT", requires = "framing")]
    port: Option<u16>,
    /// Writes frames in this format, CODEC[:OPTIONS][+COMPRESSOR[:OPTIONS]] [default: JSON lines]
    #[arg(long, value_name = "FORMAT", value_parser = wire_without_endpoint)]
    to: Option<Wire>,
    /// Writes bare payloads with this framing instead of frames
    #[arg(long, value_name = "FRAMING", requires = "to", value_parser = framings())]
    to_framing: Option<String>,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Reads only messages of this topic. If the input is not frames, the topic of the frames that
    /// are written
    #[arg(long)]
    topic: Option<String>,
    /// Ignores members that the type does not have
    #[arg(long)]
    lenient: bool,
    /// Ends with exit code 2 at the first message that cannot be read
    #[arg(long)]
    strict: bool,
    /// Prints no progress and no summary
    #[arg(short, long)]
    quiet: bool,
}

/// The figures of the summary.
#[derive(Debug, Default, Serialize)]
struct Summary {
    messages: u64,
    bytes_in: u64,
    bytes_out: u64,
    bad_messages: u64,
}

impl Action for Transcode {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let (format, framing) = self.target()?;
        let to_terminal = self.output.is_none() && io::stdout().is_terminal();
        if to_terminal && (framing.is_none() || !format.codec().properties().text) {
            let what = if framing.is_none() { "frames are" } else { "this format is" };
            return Err(Misuse(format!("{what} not text: write to a file with --output")).into());
        }
        let schema = self.ty.schema(terminal)?;
        let bar = self.bar()?;
        let mut source = Source::open(self.input.as_deref(), schema, self.options()?, &bar)?;
        let out = Counting { out: BufWriter::with_capacity(1 << 20, self.out(terminal)?), bytes: 0 };
        let mut target = Target::new(format, framing, out)?;
        let mut summary = Summary::default();
        let done = self.copy(&mut source, &mut target, &mut summary, &bar, terminal);
        // Messages written before an error are kept.
        summary.bytes_out = target.finish()?.bytes;
        summary.bytes_in = bar.position();
        bar.finish_and_clear();
        self.show(&summary, terminal)?;
        done?;
        Ok(match (summary.bad_messages, self.strict) {
            (0, _) => Outcome::Fine,
            (_, true) => Outcome::Failed,
            (_, false) => Outcome::Missed,
        })
    }
}

impl Transcode {
    fn copy(
        &self,
        source: &mut Source,
        target: &mut Target,
        summary: &mut Summary,
        bar: &ProgressBar,
        terminal: &Terminal,
    ) -> anyhow::Result<()> {
        while let Some(next) = source.next()? {
            let bad = match next {
                Next::Message(message) => target.put(&message)?.err().map(|why| format!("{}: {why}", message.place)),
                Next::Bad(why) => Some(why),
            };
            match bad {
                None => {
                    summary.messages += 1;
                    bar.set_message(summary.messages.to_string());
                }
                Some(why) => {
                    summary.bad_messages += 1;
                    bar.suspend(|| terminal.error(&why));
                    if self.strict {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn options(&self) -> anyhow::Result<source::Options> {
        let framing = named(self.framing.as_ref())?;
        if self.port.is_some() && framing != Some(Framing::Pcap) {
            return Err(Misuse("--port chooses among the datagrams of a capture: add --framing pcap".into()).into());
        }
        let from = match (&self.from, framing) {
            (Some(wire), Some(framing)) => {
                Some(Foreign { format: Format::of_foreign(wire)?, framing, port: self.port })
            }
            _ => None,
        };
        Ok(source::Options { from, topic: self.topic.clone(), lenient: self.lenient })
    }

    /// Returns the format to write, and the framing of bare payloads; `None` for frames.
    fn target(&self) -> anyhow::Result<(Format, Option<Framing>)> {
        match (&self.to, named(self.to_framing.as_ref())?) {
            (None, _) => Ok((Format::json(), Some(Framing::Lines))),
            (Some(wire), None) => Ok((Format::of(wire)?, None)),
            (Some(_), Some(Framing::Pcap)) => {
                Err(Misuse("a capture cannot be written: choose another --to-framing".into()).into())
            }
            (Some(wire), framing) => Ok((Format::of_foreign(wire)?, framing)),
        }
    }

    fn out(&self, terminal: &Terminal) -> anyhow::Result<Box<dyn Write>> {
        let Some(path) = &self.output else { return Ok(terminal.out()) };
        if self.input.as_deref().is_some_and(|input| same_file(input, path)) {
            return Err(Misuse(format!("{} would be written while it is read", path.display())).into());
        }
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Box::new(file))
    }

    /// Returns a progress bar on standard error, hidden unless that is a terminal.
    fn bar(&self) -> anyhow::Result<ProgressBar> {
        progress(self.input.as_deref(), self.quiet)
    }

    fn show(&self, summary: &Summary, terminal: &Terminal) -> anyhow::Result<()> {
        if self.quiet {
            return Ok(());
        }
        let format = match (&self.to, &self.to_framing) {
            (None, _) => "JSON lines".to_owned(),
            (Some(wire), None) => wire.to_string(),
            (Some(wire), Some(framing)) => format!("{wire} with framing {framing}"),
        };
        let mut text = format!(
            "{}, {} bytes, as {format} in {} bytes",
            count(summary.messages as usize, "message"),
            summary.bytes_in,
            summary.bytes_out
        );
        if summary.bad_messages > 0 {
            text.push_str(&format!("; {} skipped", count(summary.bad_messages as usize, "bad message")));
        }
        match self.output {
            Some(_) if terminal.json => terminal.value(summary),
            Some(_) => Ok(terminal.line(&text)?),
            // The messages are on standard output.
            None => Ok(writeln!(io::stderr(), "{text}")?),
        }
    }
}

fn framings() -> PossibleValuesParser {
    PossibleValuesParser::new(Framing::ALL.map(Framing::name))
}

/// Returns the framing that an argument names.
fn named(name: Option<&String>) -> anyhow::Result<Option<Framing>> {
    Ok(name.map(|name| name.parse()).transpose()?)
}

/// Returns a progress bar over the bytes of a file, or a byte count for standard input.
pub fn progress(input: Option<&Path>, quiet: bool) -> anyhow::Result<ProgressBar> {
    let length = input.and_then(|path| path.metadata().ok()).filter(|metadata| metadata.is_file());
    let bar = match length {
        _ if quiet => ProgressBar::hidden(),
        Some(metadata) => ProgressBar::new(metadata.len()),
        None => ProgressBar::no_length(),
    };
    let template = match bar.length() {
        Some(_) => "{bar:40} {bytes}/{total_bytes}, {bytes_per_sec}, {msg} messages, {eta} left",
        None => "{spinner} {bytes}, {bytes_per_sec}, {msg} messages",
    };
    bar.set_style(ProgressStyle::with_template(template)?);
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICKS);
    }
    Ok(bar)
}

pub fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
