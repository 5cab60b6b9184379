//! `polywire transcode`

mod frames;
pub mod source;
mod target;

use std::{
    fs::File,
    io::{self, BufWriter, IsTerminal as _, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use polywire::Wire;
use serde::Serialize;

use crate::{
    outcome::{self, Misuse, Outcome},
    terminal::Terminal,
    topic::wire_without_endpoint,
    types::{TypeArgs, count},
};
use source::{Next, Source};
use target::Target;

/// How often the bar moves.
const TICKS: Duration = Duration::from_millis(100);

/// Writes a file of messages in another format
///
/// The input is a file of JSON lines, or one of frames that this command wrote before: those know their type, codec and compressor themselves. So is
/// the output: frames with --to, else JSON lines. With --idl, frames are read as that version of the type. However long the files are, they take little
/// memory.
#[derive(Args)]
pub struct Transcode {
    /// File to read; standard input without
    input: Option<PathBuf>,
    #[command(flatten)]
    ty: TypeArgs,
    /// Writes frames in this format, CODEC[:OPTIONS][+COMPRESSOR[:OPTIONS]]; JSON lines without
    #[arg(long, value_name = "FORMAT", value_parser = wire_without_endpoint)]
    to: Option<Wire>,
    /// File to write; standard output without
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only messages of this topic; for JSON lines, the topic that frames are of
    #[arg(long)]
    topic: Option<String>,
    /// Takes lines with members that the type does not have, and leaves those out
    #[arg(long)]
    lenient: bool,
    /// Ends at the first message that cannot be read
    #[arg(long)]
    strict: bool,
    /// Shows no progress and no summary
    #[arg(short, long)]
    quiet: bool,
}

/// What was done.
#[derive(Debug, Default, Serialize)]
struct Summary {
    messages: u64,
    bytes_in: u64,
    bytes_out: u64,
    bad_messages: u64,
}

impl Transcode {
    pub fn run(self, terminal: &Terminal) -> outcome::Result {
        let to_terminal = self.output.is_none() && io::stdout().is_terminal();
        if self.to.is_some() && to_terminal {
            return Err(Misuse("frames are no text: write them to a file with --output".into()).into());
        }
        let schema = self.ty.schema(terminal)?;
        let bar = self.bar()?;
        let mut source = Source::open(self.input.as_deref(), schema, &self.options(), &bar)?;
        let out = Counting { out: BufWriter::with_capacity(1 << 20, self.out()?), bytes: 0 };
        let mut target = Target::new(self.to.as_ref(), out)?;
        let mut summary = Summary::default();
        while let Some(next) = source.next()? {
            match next {
                Next::Message(message) => {
                    target.put(&message)?;
                    summary.messages += 1;
                    bar.set_message(summary.messages.to_string());
                }
                Next::Bad(why) => {
                    summary.bad_messages += 1;
                    bar.suspend(|| terminal.error(&why));
                    if self.strict {
                        break;
                    }
                }
            }
        }
        summary.bytes_out = target.finish()?.bytes;
        summary.bytes_in = bar.position();
        bar.finish_and_clear();
        self.show(&summary, terminal)?;
        Ok(match (summary.bad_messages, self.strict) {
            (0, _) => Outcome::Fine,
            (_, true) => Outcome::Failed,
            (_, false) => Outcome::Missed,
        })
    }

    fn options(&self) -> source::Options {
        source::Options { topic: self.topic.clone(), lenient: self.lenient }
    }

    fn out(&self) -> anyhow::Result<Box<dyn Write>> {
        let Some(path) = &self.output else { return Ok(Box::new(io::stdout())) };
        if self.input.as_deref().is_some_and(|input| same_file(input, path)) {
            return Err(Misuse(format!("{} would be written while it is read", path.display())).into());
        }
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Box::new(file))
    }

    /// On standard error, and on terminals alone.
    fn bar(&self) -> anyhow::Result<ProgressBar> {
        progress(self.input.as_deref(), self.quiet)
    }

    fn show(&self, summary: &Summary, terminal: &Terminal) -> anyhow::Result<()> {
        if self.quiet {
            return Ok(());
        }
        let format = self.to.as_ref().map_or("JSON lines".to_owned(), Wire::to_string);
        let mut text = format!(
            "{}, {} bytes, as {format} in {} bytes",
            count(summary.messages as usize, "message"),
            summary.bytes_in,
            summary.bytes_out
        );
        if summary.bad_messages > 0 {
            text.push_str(&format!("; {} left out", count(summary.bad_messages as usize, "bad message")));
        }
        match self.output {
            Some(_) if terminal.json => terminal.value(summary),
            Some(_) => Ok(terminal.line(&text)?),
            // Standard output has the messages.
            None => Ok(writeln!(io::stderr(), "{text}")?),
        }
    }
}

/// A bar over the bytes of a file, or a count of those of standard input.
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

/// Counts what is written.
pub struct Counting {
    out: BufWriter<Box<dyn Write>>,
    bytes: u64,
}

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
