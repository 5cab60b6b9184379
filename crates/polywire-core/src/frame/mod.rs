//! Frames: the encoding of announcements, messages and control messages for engines over byte
//! streams and datagrams. `spec/frame.md` defines the bytes.
//!
//! On a byte stream, a [`StreamEncoder`] and a [`StreamDecoder`] hold the state of one direction
//! each. Datagrams are independent of each other ([`DatagramEncoder`], [`DatagramDecoder`]).
//! Nothing here uses a socket or a clock: the functions convert bytes to frames and frames to
//! bytes.

mod body;
mod crc;
mod cursor;
mod datagram;
mod error;
mod stream;
pub(crate) mod varint;

use alloc::{boxed::Box, string::String};

pub use crc::crc32c;
pub use datagram::{Datagram, DatagramDecoder, DatagramEncoder, parse_datagram_frame, put_datagram_frame};
pub use error::FrameError;
pub use stream::{ChannelEncoder, Step, StreamDecoder, StreamEncoder, payload_offset};

use crate::envelope::{Announcement, ChannelId, Envelope, Id128};

/// The version of the frame format that this crate implements.
pub const VERSION: u8 = 1;

/// The first bytes of a hello, after its length and head.
pub const MAGIC: [u8; 4] = *b"PLYW";

/// Largest number of bytes that a frame adds to its payload on a byte stream, if messages of a
/// channel follow each other within 17 seconds and have no key hash, anchor or extensions.
pub const STEADY_OVERHEAD: usize = 12;

/// Limits on what a peer may request. They are checked before anything is stored or allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest frame in bytes, without its length prefix.
    pub frame_bytes: usize,
    /// Largest number of channels of a link at the same time.
    pub channels: usize,
    /// Largest announcement in bytes.
    pub announcement_bytes: usize,
    /// Largest schema or configuration document in bytes.
    pub document_bytes: usize,
    /// Largest size of an envelope's extensions, and of the text of a refusal, in bytes.
    pub extension_bytes: usize,
    /// Largest number of documents that a link may request at the same time.
    pub pending_documents: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            frame_bytes: 64 << 20,
            channels: 1 << 15,
            announcement_bytes: 8 << 10,
            document_bytes: 1 << 20,
            extension_bytes: 1 << 10,
            pending_documents: 256,
        }
    }
}

impl Limits {
    /// Checks that a message fits into a frame on any channel and at any position, so that it can
    /// be sent later.
    ///
    /// ```
    /// use polywire_core::{envelope::{ChannelId, Envelope}, frame::{FrameError, Limits}};
    /// let (limits, envelope) = (Limits { frame_bytes: 100, ..Limits::default() }, Envelope::data(ChannelId(1), 1, 0));
    /// assert_eq!(limits.check_message(&envelope, 30), Ok(()));
    /// assert!(matches!(limits.check_message(&envelope, 100), Err(FrameError::TooLong { what: "frame", .. })));
    /// ```
    #[inline]
    pub fn check_message(&self, envelope: &Envelope<'_>, payload_len: usize) -> Result<(), FrameError> {
        let extensions = envelope.extensions.bytes().len();
        let frame = payload_len.saturating_add(extensions + body::DATA_HEAD);
        let too_long = |what, got: usize, limit| Err(FrameError::TooLong { what, got: got as u64, limit });
        if extensions > self.extension_bytes {
            too_long("extensions", extensions, self.extension_bytes)
        } else if frame > self.frame_bytes {
            too_long("frame", frame, self.frame_bytes)
        } else {
            Ok(())
        }
    }
}

/// A frame. It borrows from the bytes that it was read from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// A message with its payload.
    Data(Envelope<'a>, &'a [u8]),
    /// The first frame of a stream. Not allowed anywhere else.
    Hello(Hello),
    /// The quality of service of the channel that the next frame announces. Decoders put it into
    /// that announcement, and encoders write it by themselves.
    Offer {
        /// The channel.
        channel: ChannelId,
        /// The bytes of [`Announcement::offer`].
        offer: &'a [u8],
    },
    /// Opens a channel: from here on, `channel` stands for `announcement`.
    Announce {
        /// One more than the previously announced channel.
        channel: ChannelId,
        /// The writer's position.
        start: Start,
        /// What the channel carries.
        announcement: Box<Announcement>,
    },
    /// The receiver's answer to an announcement.
    Answer {
        /// The announced channel.
        channel: ChannelId,
        /// Whether the receiver wants the channel's messages.
        answer: Answer,
    },
    /// Ends a channel. Its id is not reused.
    Retire {
        /// The sender's channel.
        channel: ChannelId,
    },
    /// The channel continues after `start`. `lost` messages up to there were dropped on this link.
    Position {
        /// The sender's channel.
        channel: ChannelId,
        /// Sequence number and time that the next message refers to.
        start: Start,
        /// Number of messages that the sender dropped. 0 if the receiver had not requested them.
        lost: u64,
    },
    /// Requests a schema or configuration document.
    Want {
        /// The document's hash.
        document: Id128,
    },
    /// Answers a [`Frame::Want`].
    Document {
        /// The document's hash. The receiver checks it against the bytes.
        document: Id128,
        /// The document. `None` if the sender does not have it.
        bytes: Option<&'a [u8]>,
    },
    /// Shows that the sender is alive.
    Heartbeat,
    /// Confirms how many messages the sender of this frame has received on the link.
    Taken {
        /// Number of data frames since the link began.
        messages: u64,
    },
    /// Promises that some frame follows at least every `milliseconds`, until the link ends.
    Lease {
        /// The longest pause, in milliseconds.
        milliseconds: u64,
    },
    /// The sender relays, and confirms messages when the links that it relays them to have.
    Relay,
    /// A frame of a later version that may be skipped.
    Unknown {
        /// The head byte: even, and at least 0x40.
        head: u8,
    },
    /// The sender closes the link and sends nothing more.
    Bye,
}

/// The identity of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hello {
    /// The node.
    pub node: Id128,
    /// A number that differs after each restart of the node.
    pub incarnation: u64,
}

/// A writer's position: sequence number and source time of its last message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Start {
    /// Sequence number of the last message. 0 before the first.
    pub sequence: u64,
    /// Source time of the last message, in nanoseconds since 1970.
    pub timestamp_ns: i64,
}

/// A receiver's answer to the announcement of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Answer {
    /// Send messages: this many subscribers can decode them.
    Accept(u32),
    /// Send messages: this many subscribers can decode them. Others cannot, for this reason.
    Partial(u32, String),
    /// Do not send: there is no subscriber to the topic now.
    Decline,
    /// Do not send: there is a subscriber, but it cannot use the messages, for this reason.
    Refuse(String),
    /// Send messages, beginning with a key frame: one of this many subscribers has joined or lost a
    /// message. Earlier statements about subscribers that cannot decode the channel still hold.
    Renew(u32),
}

impl Answer {
    /// True if messages are to be sent.
    pub fn accepts(&self) -> bool {
        matches!(self, Answer::Accept(_) | Answer::Partial(..) | Answer::Renew(_))
    }

    /// Number of subscribers that the messages reach.
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

    /// The answer that remains in effect after this one, if `before` was in effect. A request for a
    /// key frame is momentary and does not remain.
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

    /// The reason why some subscribers cannot use the channel.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Answer::Partial(_, reason) | Answer::Refuse(reason) => Some(reason),
            _ => None,
        }
    }
}
