//! Frames: how engines over byte pipes and datagrams write announcements, envelopes and what the
//! two ends say to each other.
//!
//! `spec/frame.md` gives the bytes. On a byte pipe [`StreamEncoder`] and [`StreamDecoder`] each
//! hold one direction; a datagram stands for itself ([`DatagramEncoder`], [`DatagramDecoder`]).
//! Nothing here reads a socket or a clock: bytes go in, frames come out, and the other way round.

mod body;
mod crc;
mod cursor;
mod datagram;
mod error;
mod stream;
pub(crate) mod varint;

use alloc::{boxed::Box, string::String};

pub use crc::crc32c;
pub use datagram::{Datagram, DatagramDecoder, DatagramEncoder};
pub use error::FrameError;
pub use stream::{Step, StreamDecoder, StreamEncoder, payload_offset};

use crate::envelope::{Announcement, ChannelId, Envelope, Id128};

/// The version of the frame format that this crate speaks.
pub const VERSION: u8 = 1;

/// The first bytes of a hello, after its length and head.
pub const MAGIC: [u8; 4] = *b"PLYW";

/// Most bytes that a frame adds to its payload on a byte stream while messages of a channel follow
/// each other within 17 seconds, without key hash, anchor or extensions.
pub const STEADY_OVERHEAD: usize = 12;

/// What a peer may ask of us. Checked before anything is stored or allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a frame, its length left out.
    pub frame_bytes: usize,
    /// Channels that a link holds at a time.
    pub channels: usize,
    /// Bytes of an announcement.
    pub announcement_bytes: usize,
    /// Bytes of a schema or configuration document.
    pub document_bytes: usize,
    /// Bytes of an envelope's extensions, and of the text of a refusal.
    pub extension_bytes: usize,
    /// Documents that a link may wait for at a time.
    pub pending_documents: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            frame_bytes: 64 << 20,
            channels: 4096,
            announcement_bytes: 8 << 10,
            document_bytes: 1 << 20,
            extension_bytes: 1 << 10,
            pending_documents: 256,
        }
    }
}

/// One frame, borrowed from the bytes it was read from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// A message and its payload.
    Data(Envelope<'a>, &'a [u8]),
    /// The first frame of a stream, and nowhere else.
    Hello(Hello),
    /// From here on `channel` stands for `announcement`.
    Announce {
        /// One more than the channel announced before it.
        channel: ChannelId,
        /// Where the writer stands.
        start: Start,
        /// What the channel carries.
        announcement: Box<Announcement>,
    },
    /// The receiver's word on a channel that the other end announced.
    Answer {
        /// The other end's channel.
        channel: ChannelId,
        /// Whether it wants the channel's messages.
        answer: Answer,
    },
    /// The channel ends; its id is not used again.
    Retire {
        /// The sender's channel.
        channel: ChannelId,
    },
    /// The channel goes on after `start`; `lost` messages before that were dropped on this link.
    Position {
        /// The sender's channel.
        channel: ChannelId,
        /// Sequence number and time that the next message is relative to.
        start: Start,
        /// Messages that the sender dropped; 0 where the receiver had not asked for them.
        lost: u64,
    },
    /// Asks for a schema or configuration document.
    Want {
        /// Its hash.
        document: Id128,
    },
    /// Answers a [`Frame::Want`].
    Document {
        /// Its hash, to be checked against the bytes.
        document: Id128,
        /// The document, or none where the sender does not have it.
        bytes: Option<&'a [u8]>,
    },
    /// Says that the sender is alive.
    Heartbeat,
    /// Says how many messages the sender of this frame has taken from the link so far.
    Taken {
        /// Data frames since the link began.
        messages: u64,
    },
    /// A frame of a later version that may be passed over.
    Unknown {
        /// Its head: even, and at least `40`.
        head: u8,
    },
    /// The sender closes in good order and sends nothing after it.
    Bye,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// The node.
    pub node: Id128,
    /// Different after each restart of the node.
    pub incarnation: u64,
}

/// Where a writer stands: the sequence number and source time of the last message before the next
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Start {
    /// Sequence number of the last message, 0 before the first.
    pub sequence: u64,
    /// Its source time.
    pub timestamp_ns: i64,
}

/// What a receiver says about a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Answer {
    /// Send: so many subscribers are here and can decode it.
    Accept(u32),
    /// Send: so many subscribers here can decode it; others cannot, for this reason.
    Partial(u32, String),
    /// Do not send: nobody here subscribes to the topic now.
    Decline,
    /// Do not send: a subscriber is here and cannot use it, for this reason.
    Refuse(String),
    /// Send, and make the next message a key frame: one of so many subscribers here has joined, or
    /// has lost one. What was said before about subscribers who cannot decode the channel still
    /// holds.
    Renew(u32),
}

impl Answer {
    /// Whether messages are to be sent.
    pub fn accepts(&self) -> bool {
        matches!(self, Answer::Accept(_) | Answer::Partial(..) | Answer::Renew(_))
    }

    /// Subscribers that the messages reach.
    ///
    /// ```
    /// use polywire_core::frame::Answer;
    /// assert_eq!((Answer::Accept(2).subscribers(), Answer::Decline.subscribers()), (2, 0));
    /// ```
    pub fn subscribers(&self) -> u32 {
        match self {
            Answer::Accept(count) | Answer::Partial(count, _) | Answer::Renew(count) => *count,
            Answer::Decline | Answer::Refuse(_) => 0,
        }
    }

    /// What holds of the channel after this answer, if `before` held: a request for a key frame is
    /// of the moment.
    ///
    /// ```
    /// use polywire_core::frame::Answer;
    /// let partial = |count| Answer::Partial(count, "no member 'id'".into());
    /// assert_eq!(Answer::Renew(2).lasting(Some(&partial(1))), partial(2));
    /// assert_eq!(Answer::Renew(1).lasting(Some(&Answer::Decline)), Answer::Accept(1));
    /// assert_eq!(Answer::Decline.lasting(Some(&partial(1))), Answer::Decline);
    /// ```
    pub fn lasting(&self, before: Option<&Answer>) -> Answer {
        match (self, before) {
            (Answer::Renew(count), Some(Answer::Partial(_, reason))) => Answer::Partial(*count, reason.clone()),
            (Answer::Renew(count), _) => Answer::Accept(*count),
            (answer, _) => answer.clone(),
        }
    }

    /// Why somebody cannot use the channel.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Answer::Partial(_, reason) | Answer::Refuse(reason) => Some(reason),
            _ => None,
        }
    }
}
