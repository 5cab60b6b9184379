//! Where messages come from: JSON lines or frames.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use anyhow::Context as _;
use indicatif::ProgressBar;
use polywire::{
    Record, Schema, Shape,
    codec::{DynDecoder, Options as CodecOptions, json::JSON},
    envelope::{Announcement, ChannelId, Envelope, Id128},
};

use super::frames::Frames;
use crate::{outcome::Misuse, publish::Lines, unknown::unknown_member};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// What a file of frames begins with: the length and head of a hello, and the magic.
const HELLO: [u8; 6] = [0x1e, 0x01, 0x50, 0x4c, 0x59, 0x57];

/// How messages are read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only this topic; for lines, the topic they get.
    pub topic: Option<String>,
    /// Takes members that the type does not have.
    pub lenient: bool,
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
}

/// What comes next.
pub enum Next<'a> {
    Message(Message<'a>),
    /// A message that cannot be read, and why.
    Bad(String),
}

/// A file of messages.
pub enum Source {
    Lines(Box<JsonLines>),
    Frames(Box<Frames>),
}

impl Source {
    /// Opens a file or standard input, and finds out what it is.
    pub fn open(
        path: Option<&Path>,
        schema: Option<Schema>,
        options: &Options,
        progress: &ProgressBar,
    ) -> anyhow::Result<Source> {
        let name = path.map_or("stdin".into(), |path| path.display().to_string());
        let from: Box<dyn Read> = match path {
            Some(path) => Box::new(File::open(path).with_context(|| format!("cannot read {name}"))?),
            None => Box::new(io::stdin()),
        };
        let mut from = BufReader::with_capacity(CHUNK, progress.wrap_read(from));
        let begins = from.fill_buf().with_context(|| format!("cannot read {name}"))?;
        if begins.starts_with(&HELLO) {
            return Ok(Source::Frames(Box::new(Frames::new(name, Box::new(from), schema, options.topic.clone()))));
        }
        let missing = || Misuse("JSON lines do not tell their type: add --idl FILE, and --type NAME".into());
        let lines = JsonLines::new(Lines::new(name, Box::new(from)), schema.ok_or_else(missing)?, options)?;
        Ok(Source::Lines(Box::new(lines)))
    }

    /// The next message; an error where nothing can follow.
    pub fn next(&mut self) -> anyhow::Result<Option<Next<'_>>> {
        match self {
            Source::Lines(lines) => lines.next(),
            Source::Frames(frames) => frames.next(),
        }
    }
}

/// JSON texts, one a line.
pub struct JsonLines {
    lines: Lines,
    schema: Schema,
    decoder: DynDecoder,
    record: Record,
    announced: Announcement,
    sequence: u64,
    lenient: bool,
}

impl JsonLines {
    fn new(lines: Lines, schema: Schema, options: &Options) -> anyhow::Result<JsonLines> {
        let shape = Shape::of(&schema)?;
        let decoder = DynDecoder::new(&JSON, &CodecOptions::default(), &schema, &shape)?;
        let announced = Announcement {
            topic: options.topic.clone().unwrap_or_else(|| schema.name().replace("::", "/")),
            writer: Id128::ZERO,
            ..Announcement::default()
        };
        let record = Record::new(&shape);
        Ok(JsonLines { lines, schema, decoder, record, announced, sequence: 0, lenient: options.lenient })
    }

    fn next(&mut self) -> anyhow::Result<Option<Next<'_>>> {
        let Some(line) = self.lines.next()? else { return Ok(None) };
        let slip = if self.lenient { None } else { unknown_member(&self.schema, &line.text) };
        let read = slip.map_or(Ok(()), Err);
        let read = read.and_then(|()| {
            self.decoder.decode(line.text.as_bytes(), &mut self.record).map_err(|error| error.to_string())
        });
        if let Err(why) = read {
            return Ok(Some(Next::Bad(format!("{}:{}: {why}", self.lines.name, line.number))));
        }
        self.sequence += 1;
        Ok(Some(Next::Message(Message {
            stream: 0,
            announced: &self.announced,
            envelope: Envelope::data(ChannelId(1), self.sequence, 0),
            value: Some(&self.record),
        })))
    }
}
