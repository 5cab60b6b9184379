//! The command `polywire fast decode`: writes the recording of a FAST feed as JSON lines.

use std::{
    ops::ControlFlow::{self, Continue},
    path::PathBuf,
};

use clap::Args;
use indicatif::ProgressBar;
use polywire::extend::framing::Framing;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Output, Reset,
    codec::Codec,
    line::{Line, hex},
    messages::{Cutter, Message, Recorded, Taker},
};
use crate::{
    cut::Frame,
    outcome::{self, Misuse, Outcome},
    terminal::Terminal,
    types::count,
    verb::{Action, Verb},
};

pub const VERB: Verb = Verb::new::<Decode>("decode", "Writes a recording as JSON lines")
    .details(
        "Each line is a message and names its template. The line also has what the message alone does not contain \
         (packet headers, encodings that are not the shortest), so that `polywire fast encode` writes the same file \
         again; --messages omits that.",
    )
    .example("polywire fast decode quotes.fast --template feed.xml --framing len2be");

#[derive(Args)]
pub struct Decode {
    /// File to read [default: standard input]
    input: Option<PathBuf>,
    #[command(flatten)]
    recorded: Recorded,
    /// Prints the messages only, without what `fast encode` needs to write the same bytes
    #[arg(long)]
    messages: bool,
    /// Continues with the next frame if a frame cannot be read; needs --reset packet or message
    #[arg(long)]
    skip_bad: bool,
}

/// The figures of the summary.
#[derive(Debug, Default, Serialize)]
struct Summary {
    messages: u64,
    frames: u64,
    bad_frames: u64,
    bytes_in: u64,
    bytes_out: u64,
    /// Messages that are not as short as they could be.
    longer_than_needed: u64,
}

impl Action for Decode {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let (framing, feed) = (self.recorded.framing()?, &self.recorded.feed);
        let forgets = matches!(feed.reset, Reset::Packet | Reset::Message);
        if self.skip_bad && (framing == Framing::None || !forgets) {
            let text = "after a message that cannot be read, the dictionaries are unknown: \
                        --skip-bad needs a framing, and --reset packet or message";
            return Err(Misuse(text.into()).into());
        }
        let bar = feed.bar(self.input.as_deref())?;
        let mut cutter = Cutter::open(&self.recorded, self.input.as_deref(), &bar)?;
        let out = feed.out(self.input.as_deref(), Some(terminal))?;
        let mut lines = Lines { verb: &self, framing, out, bar, terminal, summary: Summary::default() };
        let done = cutter.run(&mut lines);
        let Lines { mut out, bar, mut summary, .. } = lines;
        // Messages decoded before an error are kept.
        summary.bytes_out = out.finish()?;
        summary.bytes_in = cutter.bytes();
        bar.finish_and_clear();
        done?;
        let mut text =
            format!("{}, {} bytes, as JSON lines", count(summary.messages as usize, "message"), summary.bytes_in);
        if summary.bad_frames > 0 {
            text.push_str(&format!("; {} could not be read", count(summary.bad_frames as usize, "frame")));
        }
        feed.show(terminal, &summary, &text)?;
        Ok(if summary.bad_frames > 0 { Outcome::Missed } else { Outcome::Fine })
    }
}

/// Writes each part of the recording as a JSON line.
struct Lines<'a> {
    verb: &'a Decode,
    framing: Framing,
    out: Output,
    bar: ProgressBar,
    terminal: &'a Terminal,
    summary: Summary,
}

impl Taker for Lines<'_> {
    fn message(&mut self, codec: &mut Codec, message: &Message<'_>) -> anyhow::Result<ControlFlow<()>> {
        let same = codec.encode().is_ok_and(|shortest| shortest == message.bytes);
        self.summary.messages += 1;
        self.summary.longer_than_needed += u64::from(!same);
        self.bar.set_message(self.summary.messages.to_string());
        let (template, text) = codec.json()?;
        let text = RawValue::from_string(text)?;
        let line = Line {
            template: Some(template.into()),
            message: Some(&text),
            bytes: (!same && !self.verb.messages).then(|| hex(message.bytes)),
            ..self.line(message)
        };
        self.put(&line)?;
        Ok(Continue(()))
    }

    fn empty(&mut self, frame: &Frame, preamble: &[u8]) -> anyhow::Result<()> {
        let nothing = Message { bytes: &[], preamble, frame: Some(frame), is_first: true, is_last: true };
        let line = self.line(&nothing);
        if self.verb.messages { Ok(()) } else { self.put(&line) }
    }

    fn unreadable(&mut self, rest: &Message<'_>, error: anyhow::Error) -> anyhow::Result<()> {
        if !self.verb.skip_bad {
            return Err(error);
        }
        self.bar.suspend(|| self.terminal.error(&format!("{error:#}")));
        self.summary.bad_frames += 1;
        let line = Line { undecoded: Some(hex(rest.bytes)), ..self.line(rest) };
        if self.verb.messages { Ok(()) } else { self.put(&line) }
    }

    fn other(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let line = Line { other: Some(hex(bytes)), ..Line::default() };
        if self.verb.messages { Ok(()) } else { self.put(&line) }
    }
}

impl Lines<'_> {
    /// Returns the part of a line that describes the message's frame. The head is on the frame's
    /// first line, the tail on its last.
    fn line(&mut self, message: &Message<'_>) -> Line<'static> {
        let mut line = Line { frame: message.frame.map(|frame| frame.number), ..Line::default() };
        self.summary.frames = line.frame.unwrap_or(0);
        if self.verb.messages {
            return line;
        }
        if message.is_first {
            line.head = message.frame.filter(|frame| !self.is_usual(frame)).map(|frame| hex(&frame.head));
            line.preamble = (!message.preamble.is_empty()).then(|| hex(message.preamble));
        }
        let tail = message.frame.map(|frame| &frame.tail).filter(|tail| message.is_last && !tail.is_empty());
        line.tail = tail.map(|tail| hex(tail));
        line
    }

    /// Returns true if the framing makes the same head for this payload, so that the line can omit
    /// it.
    fn is_usual(&self, frame: &Frame) -> bool {
        let mut usual = Vec::new();
        let is_usual = self.framing.put(&frame.payload, &mut usual).is_ok() && usual.starts_with(&frame.head);
        is_usual && usual.len() == frame.head.len() + frame.payload.len()
    }

    fn put(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.out.put(&text)
    }
}
