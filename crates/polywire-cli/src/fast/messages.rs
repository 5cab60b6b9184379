//! Divides the recording of a FAST feed into messages and decodes them. `fast decode` and `fast
//! study` implement [`Taker`] to receive them.

use std::{
    io::BufReader,
    ops::ControlFlow::{self, Break, Continue},
    path::Path,
};

use anyhow::anyhow;
use clap::Args;
use indicatif::ProgressBar;
use polywire::extend::{
    framing::Framing,
    program::{CodecError, FaultKind},
};

use super::{Feed, Reset, codec::Codec, open};
use crate::{
    cut::{Frame, Input, Part, Parts, may_be_cut},
    outcome::Misuse,
};

/// How many bytes are read at once.
const CHUNK: usize = 256 << 10;

const NO_BYTES: &str = "a template without fields makes messages of zero bytes";

/// Options for reading recordings of a feed.
#[derive(Args)]
pub struct Recorded {
    #[command(flatten)]
    pub feed: Feed,
    /// Reads only datagrams to this UDP port of a capture
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

impl Recorded {
    /// Returns the framing. Fails if `--port` is given for a framing without ports.
    pub fn framing(&self) -> anyhow::Result<Framing> {
        let framing = self.feed.framing()?;
        if self.port.is_some() && framing != Framing::Pcap {
            return Err(Misuse("--port chooses among the datagrams of a capture: add --framing pcap".into()).into());
        }
        Ok(framing)
    }
}

/// Receives the parts of a recording, in order.
pub trait Taker {
    /// Takes a message, which the codec has just decoded. `Break` ends the reading.
    fn message(&mut self, codec: &mut Codec, message: &Message<'_>) -> anyhow::Result<ControlFlow<()>>;

    /// Takes a frame without messages.
    fn empty(&mut self, _frame: &Frame, _preamble: &[u8]) -> anyhow::Result<()> {
        Ok(())
    }

    /// Takes the rest of a frame, which cannot be read because of `error`. `Ok` continues with the
    /// next frame.
    fn unreadable(&mut self, _rest: &Message<'_>, error: anyhow::Error) -> anyhow::Result<()> {
        Err(error)
    }

    /// Takes bytes that belong to no frame.
    fn other(&mut self, _bytes: &[u8]) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A message's bytes, and their place in the recording.
pub struct Message<'a> {
    pub bytes: &'a [u8],
    /// Bytes before the message, or before the first message of its frame, that are not FAST.
    pub preamble: &'a [u8],
    /// The frame of the message, if there are frames.
    pub frame: Option<&'a Frame>,
    /// Whether it is the first message of its frame; true if there are no frames.
    pub is_first: bool,
    /// Whether it is the last message of its frame; true if there are no frames.
    pub is_last: bool,
}

/// A recording that is being read.
pub struct Cutter<'a> {
    recorded: &'a Recorded,
    framing: Framing,
    codec: Codec,
    parts: Parts,
    messages: u64,
}

impl Cutter<'_> {
    /// Opens the file, or standard input if there is none.
    pub fn open<'a>(recorded: &'a Recorded, input: Option<&Path>, bar: &ProgressBar) -> anyhow::Result<Cutter<'a>> {
        let (framing, codec) = (recorded.framing()?, Codec::new(&recorded.feed)?);
        let (name, from) = open(input)?;
        let input = Input::new(name, Box::new(BufReader::with_capacity(CHUNK, bar.wrap_read(from))));
        Ok(Cutter { recorded, framing, codec, parts: Parts::new(input, framing, recorded.port), messages: 0 })
    }

    /// Reads the recording to its end and passes its parts to `taker`.
    pub fn run(&mut self, taker: &mut impl Taker) -> anyhow::Result<()> {
        match self.framing {
            Framing::None => self.messages(taker),
            _ => self.frames(taker),
        }
    }

    /// Returns the number of bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.parts.input.bytes()
    }

    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// Reads messages without frames, each with its own preamble.
    fn messages(&mut self, taker: &mut impl Taker) -> anyhow::Result<()> {
        let preamble = self.recorded.feed.preamble;
        loop {
            let (codec, file) = (&mut self.codec, &mut self.parts.input);
            let enough = file.fill(preamble + 1)?;
            if file.rest().is_empty() {
                return Ok(());
            }
            let offset = file.offset();
            if !enough {
                let what = format!("the file ends within {preamble} bytes of preamble, without a message");
                return Err(file.failed(offset, &what));
            }
            let behind = |rest: &[u8]| codec.decode(rest.get(preamble..).unwrap_or_default());
            let offset = offset + preamble as u64;
            match file.message(behind, may_be_cut)? {
                Ok(0) => return Err(file.failed(offset, NO_BYTES)),
                Ok(used) => {
                    self.messages += 1;
                    let whole = preamble + used;
                    let (preamble, bytes) = file.rest().split_at(whole).0.split_at(preamble);
                    let message = Message { bytes, preamble, frame: None, is_first: true, is_last: true };
                    if taker.message(&mut self.codec, &message)?.is_break() {
                        return Ok(());
                    }
                    self.parts.input.skip(whole);
                }
                Err(error) => return Err(self.unreadable(offset, &error)),
            }
        }
    }

    fn frames(&mut self, taker: &mut impl Taker) -> anyhow::Result<()> {
        while let Some(part) = self.parts.next()? {
            match part {
                Part::Other(bytes) => taker.other(&bytes)?,
                Part::Frame(frame) => {
                    if self.messages_of(&frame, taker)?.is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn messages_of(&mut self, frame: &Frame, taker: &mut impl Taker) -> anyhow::Result<ControlFlow<()>> {
        let Some((preamble, mut rest)) = frame.payload.split_at_checked(self.recorded.feed.preamble) else {
            let (got, wanted) = (frame.payload.len(), self.recorded.feed.preamble);
            let what = format!("a frame of {got} bytes is shorter than the preamble of {wanted}");
            return Err(self.failed(frame.offset, &what));
        };
        if self.recorded.feed.reset == Reset::Packet {
            self.codec.reset();
        }
        let mut is_first = true;
        if rest.is_empty() {
            taker.empty(frame, preamble)?;
        }
        while !rest.is_empty() {
            let offset = frame.offset + (frame.payload.len() - rest.len()) as u64;
            let message = |bytes, is_last| Message { bytes, preamble, frame: Some(frame), is_first, is_last };
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
            (_, 1) => "are --template, --framing and --preamble those of the feed?",
            (Reset::Never, _) => {
                "is a message missing, or does the feed reset its dictionaries (--reset template, --reset packet, --reset message)?"
            }
            (Reset::Template, _) => {
                "is a message missing, or does the feed reset its dictionaries more often (--reset packet, --reset message)?"
            }
            (Reset::Packet, _) => "does the feed reset its dictionaries less often (--reset template, --reset never)?",
            (Reset::Message, _) => {
                "does the feed reset its dictionaries less often (--reset packet, --reset template, --reset never)?"
            }
        };
        let name = &self.parts.input.name;
        anyhow!("{name}: byte {}: message {number}, which begins at byte {offset}: {what}; {hint}", offset + at)
    }

    fn failed(&self, offset: u64, what: &str) -> anyhow::Error {
        self.parts.input.failed(offset, what)
    }
}
