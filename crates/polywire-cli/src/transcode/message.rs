//! Messages of a file, and where they stand in it.

use std::fmt;

use polywire::{
    Record,
    extend::{
        envelope::{Announcement, Envelope},
        framing::Framing,
    },
};

use super::format::Format;

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
