//! Where messages come from: payloads of one format, of which JSON lines are the usual ones, or
//! frames.

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
