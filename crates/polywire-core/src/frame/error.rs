//! [`FrameError`]: why bytes are not a valid frame.

use crate::envelope::ChannelId;

/// An error in a frame. It ends a stream, because the rest of the stream cannot be trusted. A
/// datagram with an error is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The stream or datagram does not begin like one of Polywire.
    #[error("not a Polywire peer: it begins with '{}', so another program speaks there", .got.escape_ascii())]
    NotPolywire {
        /// The first bytes, filled with zeros if there are fewer.
        got: [u8; 6],
    },
    /// The peer uses another version.
    #[error("the peer speaks frame version {got}, this node speaks {supported}")]
    UnsupportedVersion {
        /// The peer's version.
        got: u8,
        /// The version of this crate.
        supported: u8,
    },
    /// A frame without bytes.
    #[error("a frame of length 0")]
    Empty,
    /// A declared length exceeds its limit.
    #[error("{what} of {got} bytes, at most {limit} are allowed")]
    TooLong {
        /// `frame`, `announcement`, ...
        what: &'static str,
        /// The declared length in bytes.
        got: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// The frame ends inside a field.
    #[error("the frame ends at byte {offset}, inside its {field}")]
    Truncated {
        /// Name of the field.
        field: &'static str,
        /// Offset from the frame's head, in bytes.
        offset: usize,
    },
    /// There are bytes after the last field.
    #[error("{left} bytes too many after byte {offset} of the frame")]
    Trailing {
        /// Offset of the end of the last field, in bytes.
        offset: usize,
        /// Number of bytes after it.
        left: usize,
    },
    /// A number exceeds 64 bits or the range of its field, or is not in its shortest form.
    #[error("malformed number at byte {offset} of the frame, in its {field}")]
    Number {
        /// Name of the field.
        field: &'static str,
        /// Offset from the frame's head, in bytes.
        offset: usize,
    },
    /// A text is not UTF-8.
    #[error("the {field} at byte {offset} of the frame is not UTF-8")]
    Text {
        /// Name of the field.
        field: &'static str,
        /// Offset from the frame's head, in bytes.
        offset: usize,
    },
    /// The head byte is not a frame of this version.
    #[error("unknown kind of frame 0x{head:02x}")]
    UnknownFrame {
        /// The head byte.
        head: u8,
    },
    /// This version does not have the message kind.
    #[error("unknown message kind {number}")]
    UnknownKind {
        /// The number of the kind.
        number: u8,
    },
    /// This version does not have the answer.
    #[error("unknown answer {number} to an announcement")]
    UnknownAnswer {
        /// The number of the answer.
        number: u8,
    },
    /// The channel was not announced, or was retired.
    #[error("channel {0} was not announced or was retired")]
    UnknownChannel(ChannelId),
    /// An offer is not followed by the announcement of its channel.
    #[error("the offer for channel {0} is not followed by its announcement")]
    StrayOffer(ChannelId),
    /// An announced channel id is not the next one. Ids are never reused.
    #[error("channel {got} is announced, but {expected} is next")]
    ChannelOrder {
        /// The announced id.
        got: ChannelId,
        /// The next id.
        expected: ChannelId,
    },
    /// There are more channels at the same time than the limit.
    #[error("more than {limit} channels at a time")]
    TooManyChannels {
        /// The limit.
        limit: usize,
    },
    /// Sequence numbers do not increase, or exceed 64 bits.
    #[error("sequence number {got} after {last} on channel {channel}")]
    Sequence {
        /// The channel.
        channel: ChannelId,
        /// The previous sequence number.
        last: u64,
        /// The sequence number of this message.
        got: u64,
    },
    /// Extensions are malformed.
    #[error("malformed extension at byte {offset} of the frame")]
    Extension {
        /// Offset from the frame's head, in bytes.
        offset: usize,
    },
    /// An answer has an extension that must be understood and is unknown.
    #[error("extension {id} of the answer must be understood and is unknown")]
    UnknownExtension {
        /// Id of the extension, an odd number.
        id: u32,
    },
    /// A hello that is not the first frame.
    #[error("a second hello")]
    SecondHello,
    /// The checksum of a datagram is wrong.
    #[error("the checksum is {got:08x}, but that of the bytes is {expected:08x}")]
    Checksum {
        /// The checksum of the bytes.
        expected: u32,
        /// The checksum in the datagram.
        got: u32,
    },
    /// A datagram comes from an incarnation that a newer one replaced.
    #[error("the datagram is of incarnation {got:016x}, but the sender's is {expected:016x}")]
    Incarnation {
        /// The newest incarnation of the sender.
        expected: u64,
        /// The incarnation in the datagram.
        got: u64,
    },
    /// A frame that is not allowed in a datagram.
    #[error("a {0} frame in a datagram")]
    NotInDatagram(&'static str),
}
