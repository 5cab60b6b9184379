//! `polywire fast decode`

use std::{io::Read, path::PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use indicatif::ProgressBar;
use polywire::{
    codec::fast::framing::{Framing, Piece, Splitter, Step},
    program::io::{CodecError, FaultKind},
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Feed, Output, Reset,
    codec::{Codec, may_be_cut},
    line::{Line, hex},
    open,
};
use crate::{
    outcome::{self, Misuse, Outcome},
    terminal::Terminal,
    types::count,
};

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// Bytes of a message where nothing frames it.
const MESSAGE_BYTES: usize = 16 << 20;

/// Writes a recording as JSON lines
///
/// One line a message, which names its template. What the message alone does not say (packets' headers, bytes that are not the shortest) is there as well,
/// so that `polywire fast encode` makes the same file of it; --messages leaves it out.
#[derive(Args)]
pub struct Decode {
    /// File to read; standard input without
    input: Option<PathBuf>,
    #[command(flatten)]
    feed: Feed,
    /// Of a capture, takes datagrams to this UDP port alone
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Only the messages, without what makes them the same bytes again
    #[arg(long)]
    messages: bool,
    /// Goes on with the next frame where one cannot be read; with --reset packet or message
    #[arg(long)]
    skip_bad: bool,
}

/// What was done.
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

impl Decode {
    pub fn run(self, terminal: &Terminal) -> outcome::Result {
        let framing = self.feed.framing()?;
        if self.port.is_some() && framing != Framing::Pcap {
            return Err(Misuse("--port chooses among the datagrams of a capture: add --framing pcap".into()).into());
        }
        let forgets = matches!(self.feed.reset, Reset::Packet | Reset::Message);
        if self.skip_bad && (framing == Framing::None || !forgets) {
            let text = "behind a message that cannot be read the dictionaries are unknown: \
                        --skip-bad goes with a framing and --reset packet or message";
            return Err(Misuse(text.into()).into());
        }
        if self.feed.preamble > 0 && framing == Framing::None {
            return Err(Misuse("--preamble goes with a framing".into()).into());
        }
        let codec = Codec::new(&self.feed)?;
        let bar = self.feed.bar(self.input.as_deref())?;
        let (name, from) = open(self.input.as_deref())?;
        let file =
            Input { name, from: Box::new(bar.wrap_read(from)), buffer: Vec::new(), at: 0, read: 0, ended: false };
        let out = self.feed.out(self.input.as_deref())?;
        let mut work = Work { verb: &self, framing, codec, file, out, bar, terminal, summary: Summary::default() };
        let done = match framing {
            Framing::None => work.messages(),
            _ => work.frames(),
        };
        // What was read before an error is of use.
        work.summary.bytes_out = work.out.finish()?;
        work.summary.bytes_in = work.file.read;
        work.bar.finish_and_clear();
        done?;
        let summary = work.summary;
        let mut text =
            format!("{}, {} bytes, as JSON lines", count(summary.messages as usize, "message"), summary.bytes_in);
        if summary.bad_frames > 0 {
            text.push_str(&format!("; {} could not be read", count(summary.bad_frames as usize, "frame")));
        }
        self.feed.show(terminal, &summary, &text)?;
        Ok(if summary.bad_frames > 0 { Outcome::Missed } else { Outcome::Fine })
    }

    fn splitter(&self, framing: Framing) -> Splitter {
        let splitter = Splitter::new(framing);
        match self.port {
            Some(port) => splitter.port(port),
            None => splitter,
        }
    }
}

/// A decoding under way.
struct Work<'a> {
    verb: &'a Decode,
    framing: Framing,
    codec: Codec,
    file: Input,
    out: Output,
    bar: ProgressBar,
    terminal: &'a Terminal,
    summary: Summary,
}

impl Work<'_> {
    /// A file of messages without frames.
    fn messages(&mut self) -> anyhow::Result<()> {
        let mut need = 1;
        loop {
            let enough = self.file.fill(need)?;
            if self.file.rest().is_empty() {
                return Ok(());
            }
            let offset = self.file.offset();
            match self.codec.decode(self.file.rest()) {
                Ok(0) => return Err(self.failed(offset, "a template without any field makes messages of no bytes")),
                Ok(used) => {
                    let bytes = self.file.rest().get(..used).unwrap_or_default().to_vec();
                    self.put(&bytes, Line::default())?;
                    self.file.at += used;
                    need = 1;
                }
                Err(error) if may_be_cut(&error) && enough && self.file.rest().len() < MESSAGE_BYTES => {
                    need = self.file.rest().len() * 2;
                }
                Err(error) => return Err(self.unreadable(offset, &error)),
            }
        }
    }

    fn frames(&mut self) -> anyhow::Result<()> {
        let (mut splitter, mut need) = (self.verb.splitter(self.framing), 1);
        loop {
            let enough = self.file.fill(need)?;
            let step = splitter.step(self.file.rest()).map_err(|error| self.damaged(&error))?;
            let (piece, used) = match step {
                Step::Piece { piece, used } => (piece, used),
                Step::Need(more) if enough => {
                    need = more.max(self.file.rest().len() + 1);
                    continue;
                }
                Step::Need(_) if self.file.rest().is_empty() => return Ok(()),
                Step::Need(_) => {
                    let what = "the file ends in the middle of a frame";
                    return Err(self.failed(self.file.offset(), what));
                }
            };
            need = 1;
            match piece {
                Piece::Other(bytes) if !self.verb.messages => {
                    let line = Line { other: Some(hex(bytes)), ..Line::default() };
                    put(&mut self.out, &line)?;
                }
                Piece::Other(_) => {}
                Piece::Frame { head, payload, tail } => {
                    let frame = Frame {
                        offset: self.file.offset() + head.len() as u64,
                        head: head.to_vec(),
                        payload: payload.to_vec(),
                        tail: tail.to_vec(),
                    };
                    self.frame(&frame)?;
                }
            }
            self.file.at += used;
        }
    }

    fn frame(&mut self, frame: &Frame) -> anyhow::Result<()> {
        self.summary.frames += 1;
        if self.verb.feed.reset == Reset::Packet {
            self.codec.reset();
        }
        let Some((preamble, messages)) = frame.payload.split_at_checked(self.verb.feed.preamble) else {
            let (has, want) = (frame.payload.len(), self.verb.feed.preamble);
            return Err(
                self.failed(frame.offset, &format!("a frame of {has} bytes, where a preamble of {want} is expected"))
            );
        };
        let mut rest = messages;
        let mut line = self.first_line(frame, preamble);
        loop {
            let offset = frame.offset + (frame.payload.len() - rest.len()) as u64;
            if rest.is_empty() {
                // Nothing but what frames it.
                return if messages.is_empty() { self.last(line, frame) } else { Ok(()) };
            }
            let used = match self.codec.decode(rest) {
                Ok(0) => return Err(self.failed(offset, "a template without any field makes messages of no bytes")),
                Ok(used) => used,
                Err(error) if self.verb.skip_bad => {
                    let error = self.unreadable(offset, &error);
                    self.bar.suspend(|| self.terminal.error(&format!("{error:#}")));
                    self.summary.bad_frames += 1;
                    return self.last(Line { undecoded: Some(hex(rest)), ..line }, frame);
                }
                Err(error) => return Err(self.unreadable(offset, &error)),
            };
            let (message, after) = rest.split_at(used);
            if after.is_empty() && !frame.tail.is_empty() && !self.verb.messages {
                line.tail = Some(hex(&frame.tail));
            }
            self.put(message, line)?;
            line = Line { frame: Some(self.summary.frames), ..Line::default() };
            rest = after;
        }
    }

    /// What the first line of a frame says of it.
    fn first_line(&self, frame: &Frame, preamble: &[u8]) -> Line<'static> {
        let number = Some(self.summary.frames);
        if self.verb.messages {
            return Line { frame: number, ..Line::default() };
        }
        // A length as anybody would write it needs no mention.
        let mut usual = Vec::new();
        let is_usual = self.framing.put(&frame.payload, &mut usual).is_ok() && usual.starts_with(&frame.head);
        let is_usual = is_usual && usual.len() == frame.head.len() + frame.payload.len();
        Line {
            frame: number,
            head: (!is_usual).then(|| hex(&frame.head)),
            preamble: (!preamble.is_empty()).then(|| hex(preamble)),
            ..Line::default()
        }
    }

    /// The only line of a frame without messages, or its last one.
    fn last(&mut self, mut line: Line<'_>, frame: &Frame) -> anyhow::Result<()> {
        if self.verb.messages {
            return Ok(());
        }
        line.tail = (!frame.tail.is_empty()).then(|| hex(&frame.tail));
        put(&mut self.out, &line)
    }

    /// Writes the message that was decoded.
    fn put(&mut self, bytes: &[u8], line: Line<'_>) -> anyhow::Result<()> {
        let same = self.codec.encode().is_ok_and(|shortest| shortest == bytes);
        self.summary.messages += 1;
        self.summary.longer_than_needed += u64::from(!same);
        self.bar.set_message(self.summary.messages.to_string());
        let (template, message) = self.codec.json()?;
        let message = RawValue::from_string(message)?;
        let line = Line {
            template: Some(template.into()),
            message: Some(&message),
            bytes: (!same && !self.verb.messages).then(|| hex(bytes)),
            ..line
        };
        put(&mut self.out, &line)
    }

    fn unreadable(&self, offset: u64, error: &CodecError) -> anyhow::Error {
        let number = self.summary.messages + 1;
        let (at, what) = match error.kind {
            FaultKind::Truncated => (0, "it ends in the middle of a field".to_owned()),
            _ => (error.offset as u64, error.to_string()),
        };
        let hint = match (self.verb.feed.reset, number) {
            (_, 1) => "is this the feed's template, its --framing, its --preamble?",
            (Reset::Never | Reset::Template, _) => {
                "is a message missing, or does the feed forget more often: --reset packet, --reset message?"
            }
            _ => "does the feed forget less often: --reset template, --reset packet?",
        };
        anyhow!(
            "{}: byte {}: message {number}, which begins at byte {offset}: {what}; {hint}",
            self.file.name,
            offset + at
        )
    }

    fn damaged(&self, error: &polywire::codec::fast::framing::FramingError) -> anyhow::Error {
        anyhow!("{}: {error}; is the framing {}?", self.file.name, self.framing)
    }

    fn failed(&self, offset: u64, what: &str) -> anyhow::Error {
        anyhow!("{}: byte {offset}: {what}", self.file.name)
    }
}

struct Frame {
    /// Where the payload begins in the file.
    offset: u64,
    head: Vec<u8>,
    payload: Vec<u8>,
    tail: Vec<u8>,
}

fn put(out: &mut Output, line: &Line<'_>) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    out.put(&text)
}

/// A file, a part of it at a time.
struct Input {
    name: String,
    from: Box<dyn Read>,
    buffer: Vec<u8>,
    /// What of the buffer is done with.
    at: usize,
    /// Bytes read so far.
    read: u64,
    ended: bool,
}

impl Input {
    /// Reads until so many bytes are there; false if the file has no more.
    fn fill(&mut self, need: usize) -> anyhow::Result<bool> {
        if self.rest().len() >= need {
            return Ok(true);
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        while self.buffer.len() < need && !self.ended {
            let mut part = self.from.by_ref().take(CHUNK as u64);
            let count = part.read_to_end(&mut self.buffer).with_context(|| format!("cannot read {}", self.name))?;
            self.read += count as u64;
            self.ended = count == 0;
        }
        Ok(self.buffer.len() >= need)
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.at..).unwrap_or_default()
    }

    /// Of the file, where the rest begins.
    fn offset(&self) -> u64 {
        self.read - self.rest().len() as u64
    }
}
