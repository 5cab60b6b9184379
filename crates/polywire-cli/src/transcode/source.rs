//! Where messages come from: payloads of one format, of which JSON lines are the usual ones, or
//! frames.

use std::{
    fmt,
    fs::File,
    io::{self, BufRead as _, BufReader, Read},
    path::Path,
};

use anyhow::Context as _;
use indicatif::ProgressBar;
use polywire::{
    Record, Schema,
    envelope::{Announcement, Envelope},
    framing::Framing,
};

use super::{format::Format, frames::Frames, payloads::Payloads};
use crate::{cut::Input, outcome::Misuse};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// What a file of frames begins with: the length and head of a hello, and the magic.
const HELLO: [u8; 6] = [0x1e, 0x01, 0x50, 0x4c, 0x59, 0x57];

/// How messages are read.
#[derive(Default)]
pub struct Options {
    /// The format of foreign payloads, and how they are cut; without it, what the file begins with
    /// decides between frames and JSON lines.
    pub from: Option<Foreign>,
    /// Only this topic; for payloads, the topic they get.
    pub topic: Option<String>,
    /// Takes members of JSON that the type does not have.
    pub lenient: bool,
}

/// What a file of foreign payloads does not say itself.
pub struct Foreign {
    pub format: Format,
    pub framing: Framing,
    /// Of a capture, takes datagrams to this port alone.
    pub port: Option<u16>,
}

/// A message, lent until the next one.
pub struct Message<'a> {
    /// Tells which stream it is of; counts from 0.
    pub stream: usize,
    /// Topic and writer of the stream.
    pub announced: &'a Announcement,
    /// Sequence number, time and kind.
    pub envelope: Envelope<'a>,
    /// None where the message ends an instance without naming it by a value.
    pub value: Option<&'a Record>,
    /// For errors.
    pub place: Place<'a>,
}

/// Where a message stands in its file.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    Line { file: &'a str, line: u64 },
    Message { file: &'a str, number: u64, offset: u64 },
    Frame { file: &'a str, sequence: u64, stream: usize },
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line { file, line } => write!(f, "{file}:{line}"),
            Place::Message { file, number, offset } => {
                write!(f, "{file}: message {number}, which begins at byte {offset}")
            }
            Place::Frame { file, sequence, stream } => {
                write!(f, "{file}: message {sequence} of stream {}", stream + 1)
            }
        }
    }
}

/// What comes next.
pub enum Next<'a> {
    Message(Message<'a>),
    /// A message that cannot be read, and why.
    Bad(String),
}

/// A file of messages.
pub enum Source {
    Payloads(Box<Payloads>),
    Frames(Box<Frames>),
}

impl Source {
    /// Opens a file or standard input, and finds out what it is.
    pub fn open(
        path: Option<&Path>,
        schema: Option<Schema>,
        options: Options,
        progress: &ProgressBar,
    ) -> anyhow::Result<Source> {
        let name = path.map_or("stdin".into(), |path| path.display().to_string());
        let from: Box<dyn Read> = match path {
            Some(path) => Box::new(File::open(path).with_context(|| format!("cannot read {name}"))?),
            None => Box::new(io::stdin()),
        };
        let mut from = BufReader::with_capacity(CHUNK, progress.wrap_read(from));
        let foreign = match options.from {
            Some(foreign) => foreign,
            None if from.fill_buf().with_context(|| format!("cannot read {name}"))?.starts_with(&HELLO) => {
                let frames = Frames::new(name, Box::new(from), schema, options.topic);
                return Ok(Source::Frames(Box::new(frames)));
            }
            None => Foreign { format: Format::json(), framing: Framing::Lines, port: None },
        };
        let codec = foreign.format.codec().name();
        let missing = || Misuse(format!("{codec} does not tell the type: add --idl FILE, and --type NAME"));
        let input = Input::new(name, Box::new(from));
        let payloads = Payloads::new(input, foreign, schema.ok_or_else(missing)?, options.topic, options.lenient)?;
        Ok(Source::Payloads(Box::new(payloads)))
    }

    /// The next message; an error where nothing can follow.
    pub fn next(&mut self) -> anyhow::Result<Option<Next<'_>>> {
        match self {
            Source::Payloads(payloads) => payloads.next(),
            Source::Frames(frames) => frames.next(),
        }
    }
}
