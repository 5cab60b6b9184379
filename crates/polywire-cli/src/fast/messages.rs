//! A recording, cut into messages.

use std::{
    io::Read,
    ops::ControlFlow::{self, Break, Continue},
    path::Path,
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use indicatif::ProgressBar;
use polywire::{
    codec::fast::framing::{Framing, FramingError, Piece, Splitter, Step},
    program::io::{CodecError, FaultKind},
};

use super::{
    Feed, Reset,
    codec::{Codec, may_be_cut},
    open,
};
use crate::outcome::Misuse;

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// Bytes of a message where nothing frames it.
const MESSAGE_BYTES: usize = 16 << 20;

const CUT: &str = "the file ends in the middle of a frame";
const NO_BYTES: &str = "a template without any field makes messages of no bytes";

/// A feed, and what to take of its recordings.
#[derive(Args)]
pub struct Recorded {
    #[command(flatten)]
    pub feed: Feed,
    /// Of a capture, takes datagrams to this UDP port alone
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

impl Recorded {
    /// The framing, if the options go together.
    pub fn framing(&self) -> anyhow::Result<Framing> {
        let framing = self.feed.framing()?;
        if self.port.is_some() && framing != Framing::Pcap {
            return Err(Misuse("--port chooses among the datagrams of a capture: add --framing pcap".into()).into());
        }
        if self.feed.preamble > 0 && framing == Framing::None {
            return Err(Misuse("--preamble goes with a framing".into()).into());
        }
        Ok(framing)
    }

    fn splitter(&self, framing: Framing) -> Splitter {
        let splitter = Splitter::new(framing);
        match self.port {
            Some(port) => splitter.port(port),
            None => splitter,
        }
    }
}

/// Who takes what a recording has, one after the other.
pub trait Taker {
    /// A message, which the codec has just decoded; no more are cut if it says so.
    fn message(&mut self, codec: &mut Codec, message: &Message<'_>) -> anyhow::Result<ControlFlow<()>>;

    /// A frame without messages.
    fn empty(&mut self, _frame: &Frame) -> anyhow::Result<()> {
        Ok(())
    }

    /// What is left of a frame and cannot be read. To go on with the next frame is to keep the error.
    fn unreadable(&mut self, _rest: &Message<'_>, error: anyhow::Error) -> anyhow::Result<()> {
        Err(error)
    }

    /// What is no frame.
    fn other(&mut self, _bytes: &[u8]) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A message's bytes, and where they lie.
pub struct Message<'a> {
    pub bytes: &'a [u8],
    /// Its frame, if there are frames.
    pub frame: Option<&'a Frame>,
    /// In its frame.
    pub is_first: bool,
    pub is_last: bool,
}

/// What stands between the bounds that a framing tells.
pub struct Frame {
    /// Counts frames from 1.
    pub number: u64,
    pub head: Vec<u8>,
    pub payload: Vec<u8>,
    pub tail: Vec<u8>,
    /// Bytes in front of its messages.
    preamble: usize,
    /// Where the payload begins in the file.
    offset: u64,
}

impl Frame {
    pub fn preamble(&self) -> &[u8] {
        self.payload.get(..self.preamble).unwrap_or_default()
    }

    fn messages(&self) -> &[u8] {
        self.payload.get(self.preamble..).unwrap_or_default()
    }
}

/// A file that is being cut.
pub struct Cutter<'a> {
    recorded: &'a Recorded,
    framing: Framing,
    codec: Codec,
    file: Input,
    frames: u64,
    messages: u64,
}

impl Cutter<'_> {
    /// Opens the file; standard input without one.
    pub fn open<'a>(recorded: &'a Recorded, input: Option<&Path>, bar: &ProgressBar) -> anyhow::Result<Cutter<'a>> {
        let (framing, codec) = (recorded.framing()?, Codec::new(&recorded.feed)?);
        let (name, from) = open(input)?;
        let from = Box::new(bar.wrap_read(from));
        let file = Input { name, from, buffer: Vec::new(), at: 0, read: 0, ended: false };
        Ok(Cutter { recorded, framing, codec, file, frames: 0, messages: 0 })
    }

    /// Gives everything to a taker.
    pub fn run(&mut self, taker: &mut impl Taker) -> anyhow::Result<()> {
        match self.framing {
            Framing::None => self.messages(taker),
            _ => self.frames(taker),
        }
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.file.read
    }

    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// A file of messages without frames.
    fn messages(&mut self, taker: &mut impl Taker) -> anyhow::Result<()> {
        let mut need = 1;
        loop {
            let enough = self.file.fill(need)?;
            if self.file.rest().is_empty() {
                return Ok(());
            }
            let offset = self.file.offset();
            match self.codec.decode(self.file.rest()) {
                Ok(0) => return Err(self.failed(offset, NO_BYTES)),
                Ok(used) => {
                    self.messages += 1;
                    let bytes = self.file.rest().get(..used).unwrap_or_default();
                    let message = Message { bytes, frame: None, is_first: false, is_last: false };
                    if taker.message(&mut self.codec, &message)?.is_break() {
                        return Ok(());
                    }
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

    fn frames(&mut self, taker: &mut impl Taker) -> anyhow::Result<()> {
        let (mut splitter, mut need) = (self.recorded.splitter(self.framing), 1);
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
                Step::Need(_) => return Err(self.failed(self.file.offset(), CUT)),
            };
            need = 1;
            match piece {
                Piece::Other(bytes) => taker.other(bytes)?,
                Piece::Frame { head, payload, tail } => {
                    let frame = self.frame(head, payload, tail)?;
                    if self.messages_of(&frame, taker)?.is_break() {
                        return Ok(());
                    }
                }
            }
            self.file.at += used;
        }
    }

    fn frame(&self, head: &[u8], payload: &[u8], tail: &[u8]) -> anyhow::Result<Frame> {
        let (offset, preamble) = (self.file.offset() + head.len() as u64, self.recorded.feed.preamble);
        if payload.len() < preamble {
            let what = format!("a frame of {} bytes, where a preamble of {preamble} is expected", payload.len());
            return Err(self.failed(offset, &what));
        }
        let [head, payload, tail] = [head, payload, tail].map(<[u8]>::to_vec);
        Ok(Frame { number: self.frames + 1, head, payload, tail, preamble, offset })
    }

    fn messages_of(&mut self, frame: &Frame, taker: &mut impl Taker) -> anyhow::Result<ControlFlow<()>> {
        self.frames += 1;
        if self.recorded.feed.reset == Reset::Packet {
            self.codec.reset();
        }
        let (mut rest, mut is_first) = (frame.messages(), true);
        if rest.is_empty() {
            taker.empty(frame)?;
        }
        while !rest.is_empty() {
            let offset = frame.offset + (frame.payload.len() - rest.len()) as u64;
            let message = |bytes, is_last| Message { bytes, frame: Some(frame), is_first, is_last };
            let used = match self.codec.decode(rest) {
                Ok(0) => return Err(self.failed(offset, NO_BYTES)),
                Ok(used) => used,
                Err(error) => {
                    taker.unreadable(&message(rest, true), self.unreadable(offset, &error))?;
                    return Ok(Continue(()));
                }
            };
            self.messages += 1;
            let (bytes, behind) = rest.split_at(used);
            if taker.message(&mut self.codec, &message(bytes, behind.is_empty()))?.is_break() {
                return Ok(Break(()));
            }
            (rest, is_first) = (behind, false);
        }
        Ok(Continue(()))
    }

    fn unreadable(&self, offset: u64, error: &CodecError) -> anyhow::Error {
        let number = self.messages + 1;
        let (at, what) = match error.kind {
            FaultKind::Truncated => (0, "it ends in the middle of a field".to_owned()),
            _ => (error.offset as u64, error.to_string()),
        };
        let hint = match (self.recorded.feed.reset, number) {
            (_, 1) => "is this the feed's template, its --framing, its --preamble?",
            (Reset::Never | Reset::Template, _) => {
                "is a message missing, or does the feed forget more often: --reset packet, --reset message?"
            }
            _ => "does the feed forget less often: --reset template, --reset packet?",
        };
        let name = &self.file.name;
        anyhow!("{name}: byte {}: message {number}, which begins at byte {offset}: {what}; {hint}", offset + at)
    }

    fn damaged(&self, error: &FramingError) -> anyhow::Error {
        anyhow!("{}: {error}; is the framing {}?", self.file.name, self.framing)
    }

    fn failed(&self, offset: u64, what: &str) -> anyhow::Error {
        anyhow!("{}: byte {offset}: {what}", self.file.name)
    }
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
