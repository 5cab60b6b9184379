//! A message of a file, with its position in the file. Sources yield messages; the target writes
//! them.

use std::fmt;

use polywire::{
    Record,
    extend::{
        envelope::{Announcement, Envelope},
        framing::Framing,
    },
};

use super::format::Format;

/// The format of a file of bare payloads.
pub struct Foreign {
    pub format: Format,
    pub framing: Framing,
    /// Selects the datagrams of a capture to this port.
    pub port: Option<u16>,
}

/// A message, borrowed until the next one is read.
pub struct Message<'a> {
    /// Number of the message's stream, from 0.
    pub stream: usize,
    /// Topic and writer of the stream.
    pub announced: &'a Announcement,
    /// Sequence number, time and kind.
    pub envelope: Envelope<'a>,
    /// `None` if the message ends an instance and has no value.
    pub value: Option<&'a Record>,
    /// The position in the file, for errors.
    pub place: Place<'a>,
}

/// The position of a message in its file.
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

/// The next item of a source.
pub enum Next<'a> {
    Message(Message<'a>),
    /// A message that cannot be read, and why.
    Bad(String),
}
