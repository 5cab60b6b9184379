//! Reads the messages of a file or of standard input: bare payloads of one format, usually JSON
//! lines, or frames. Used by `transcode`, `dict train` and `fast learn`.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read},
    path::Path,
};

use anyhow::Context as _;
use indicatif::ProgressBar;
use polywire::{Schema, extend::framing::Framing};

use super::{
    format::Format,
    frames::Frames,
    message::{Foreign, Next},
    payloads::Payloads,
};
use crate::{cut::Input, outcome::Misuse};

/// How many bytes are read at once.
const CHUNK: usize = 1 << 20;

/// The first bytes of a file of frames: length and head of the hello frame, and the magic number.
const HELLO: [u8; 6] = [0x1e, 0x01, 0x50, 0x4c, 0x59, 0x57];

/// How messages are read.
#[derive(Default)]
pub struct Options {
    /// Format and framing of bare payloads. If `None`, the first bytes of the file decide between
    /// frames and JSON lines.
    pub from: Option<Foreign>,
    /// Reads only this topic. For bare payloads, the topic that they get.
    pub topic: Option<String>,
    /// Ignores JSON members that the type does not have.
    pub lenient: bool,
}

/// A file of messages.
pub enum Source {
    Payloads(Box<Payloads>),
    Frames(Box<Frames>),
}

impl Source {
    /// Opens a file or standard input. Without `options.from`, detects whether it has frames.
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
        let missing = || Misuse(format!("{codec} does not contain the type: add --idl FILE, and --type NAME"));
        let input = Input::new(name, Box::new(from));
        let payloads = Payloads::new(input, foreign, schema.ok_or_else(missing)?, options.topic, options.lenient)?;
        Ok(Source::Payloads(Box::new(payloads)))
    }

    /// Returns the next message. An error means that the rest cannot be read.
    pub fn next(&mut self) -> anyhow::Result<Option<Next<'_>>> {
        match self {
            Source::Payloads(payloads) => payloads.next(),
            Source::Frames(frames) => frames.next(),
        }
    }
}
