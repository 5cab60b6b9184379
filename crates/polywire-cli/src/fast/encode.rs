//! The command `polywire fast encode`: writes the recording of a FAST feed from JSON lines.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use indicatif::ProgressBar;
use polywire::extend::framing::{Framing, Piece, Splitter, Step};
use serde::Serialize;

use super::{
    Feed, Output, Reset,
    codec::Codec,
    line::{Line, bytes},
    open,
};
use crate::{
    outcome::{self, Outcome},
    terminal::Terminal,
    types::count,
    verb::{Action, Verb},
};

/// Maximum length of a line, in bytes.
const LINE_BYTES: u64 = 256 << 20;

pub const VERB: Verb = Verb::new::<Encode>("encode", "Writes JSON lines as the recording that they were decoded from")
    .details(
        "Give it the same options as `polywire fast decode`. Unchanged lines become the same bytes again. Changed \
         messages, and messages written by hand as {\"template\":\"NAME\",\"message\":{...}}, get the shortest \
         encoding that the templates allow.",
    )
    .example("polywire fast encode");

#[derive(Args)]
pub struct Encode {
    /// File of JSON lines [default: standard input]
    input: Option<PathBuf>,
    #[command(flatten)]
    feed: Feed,
}

/// The figures of the summary.
#[derive(Debug, Default, Serialize)]
struct Summary {
    messages: u64,
    frames: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl Action for Encode {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let framing = self.feed.framing()?;
        let codec = Codec::new(&self.feed)?;
        let bar = self.feed.bar(self.input.as_deref())?;
        let (name, from) = open(self.input.as_deref())?;
        let lines = Box::new(BufReader::with_capacity(1 << 20, bar.wrap_read(from)));
        let out = self.feed.out(self.input.as_deref(), None)?;
        let capture = Splitter::new(Framing::Pcap);
        let mut work =
            Work { feed: &self.feed, framing, codec, out, bar, capture, frame: None, summary: Summary::default() };
        work.lines(&name, lines)?;
        work.summary.bytes_out = work.out.finish()?;
        work.bar.finish_and_clear();
        let summary = work.summary;
        let text = format!("{}, {} bytes", count(summary.messages as usize, "message"), summary.bytes_out);
        self.feed.show(terminal, &summary, &text)?;
        Ok(Outcome::Fine)
    }
}

/// The state of an encoding.
struct Work<'a> {
    feed: &'a Feed,
    framing: Framing,
    codec: Codec,
    out: Output,
    bar: ProgressBar,
    /// Reads the capture as it is written, to check that packets are complete.
    capture: Splitter,
    frame: Option<Frame>,
    summary: Summary,
}

/// A frame whose lines are being read.
#[derive(Default)]
struct Frame {
    number: Option<u64>,
    head: Option<Vec<u8>>,
    payload: Vec<u8>,
    tail: Vec<u8>,
}

impl Work<'_> {
    fn lines(&mut self, name: &str, mut lines: Box<dyn BufRead>) -> anyhow::Result<()> {
        let (mut text, mut number) = (Vec::new(), 0_u64);
        loop {
            text.clear();
            number += 1;
            let read = std::io::Read::take(&mut lines, LINE_BYTES).read_until(b'\n', &mut text);
            let read = read.with_context(|| format!("cannot read {name}"))?;
            if read == 0 {
                return self.end_frame().with_context(|| format!("{name}: the last frame"));
            }
            self.summary.bytes_in += read as u64;
            if !text.trim_ascii().is_empty() {
                self.line(&text).with_context(|| format!("{name}:{number}"))?;
            }
        }
    }

    fn line(&mut self, text: &[u8]) -> anyhow::Result<()> {
        let line: Line<'_> = serde_json::from_slice(text).context("not a line that `polywire fast decode` wrote")?;
        let same = matches!((&self.frame, line.frame), (Some(frame), Some(_)) if frame.number == line.frame);
        if !same {
            self.end_frame().context("the frame before")?;
        }
        if line.other.is_some() {
            return self.other(&bytes("other", line.other.as_ref())?);
        }
        if !same {
            self.begin_frame(&line)?;
        }
        let message = self.message(&line)?;
        let frame = self.frame.get_or_insert_default();
        frame.payload.extend_from_slice(&message);
        frame.payload.extend_from_slice(&bytes("undecoded", line.undecoded.as_ref())?);
        frame.tail = bytes("tail", line.tail.as_ref())?;
        if self.framing == Framing::None {
            self.end_frame()?;
        }
        Ok(())
    }

    fn begin_frame(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        // Without framing the whole file is one frame, as in decoding.
        if self.feed.reset == Reset::Packet && self.framing != Framing::None {
            self.codec.reset();
        }
        let preamble = bytes("preamble", line.preamble.as_ref())?;
        if preamble.len() != self.feed.preamble {
            bail!("the preamble has {} bytes, but --preamble says {}", preamble.len(), self.feed.preamble);
        }
        let head = line.head.is_some().then(|| bytes("head", line.head.as_ref())).transpose()?;
        self.frame = Some(Frame { number: line.frame, head, payload: preamble, tail: Vec::new() });
        Ok(())
    }

    /// Returns the bytes of the line's message. The line's own bytes are used if they decode to the
    /// message.
    fn message(&mut self, line: &Line<'_>) -> anyhow::Result<Vec<u8>> {
        let (Some(template), Some(message)) = (&line.template, line.message) else {
            return match (&line.template, line.message) {
                (None, None) => Ok(Vec::new()),
                _ => bail!("a message needs both \"template\" and \"message\""),
            };
        };
        self.codec.take_json(template, message.get())?;
        self.summary.messages += 1;
        self.bar.set_message(self.summary.messages.to_string());
        let wanted = self.codec.record().clone();
        let shortest = self.codec.encode().map(<[u8]>::to_vec);
        let came = line.bytes.is_some().then(|| bytes("bytes", line.bytes.as_ref())).transpose()?;
        if let Some(came) = came.filter(|came| self.codec.means(came, &wanted)) {
            return Ok(came);
        }
        let shortest = shortest?;
        if !self.codec.means(&shortest, &wanted) {
            bail!("the encoded bytes would be read as another message");
        }
        Ok(shortest)
    }

    fn end_frame(&mut self) -> anyhow::Result<()> {
        let Some(frame) = self.frame.take() else { return Ok(()) };
        self.summary.frames += 1;
        let mut framed = frame.head.clone().unwrap_or_default();
        match (&frame.head, self.framing) {
            (None, Framing::Pcap) => bail!(
                "a message of a capture needs the \"head\" of its packet: decode the capture with --framing pcap, and without --messages"
            ),
            (None, framing) => framing.put(&frame.payload, &mut framed)?,
            (Some(_), _) => framed.extend_from_slice(&frame.payload),
        }
        framed.extend_from_slice(&frame.tail);
        if frame.head.is_some() {
            self.check(&framed, frame.payload.len())?;
        }
        self.out.put(&framed)
    }

    /// Writes bytes that belong to no frame. In a capture, they are records that describe later
    /// ones, or other packets.
    fn other(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        if self.framing == Framing::Pcap {
            let whole = matches!(self.capture.step(bytes)?, Step::Piece { used, .. } if used == bytes.len());
            if !whole {
                bail!("\"other\" is not a complete record of a capture");
            }
        }
        self.out.put(bytes)
    }

    /// Checks that a head from the line fits the frame's payload and tail.
    fn check(&mut self, framed: &[u8], payload: usize) -> anyhow::Result<()> {
        let step = match self.framing {
            Framing::Pcap => self.capture.step(framed)?,
            framing => Splitter::new(framing).step(framed)?,
        };
        match step {
            Step::Piece { piece: Piece::Frame { payload: found, .. }, used }
                if used == framed.len() && found.len() == payload =>
            {
                Ok(())
            }
            _ => Err(anyhow!(
                "its messages have {payload} bytes now, which is not what the frame's \"head\" says: a message that was changed must keep its length, or the \"head\" must be changed, too"
            )),
        }
    }
}
