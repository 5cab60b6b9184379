//! Why bytes are no frame.

use crate::envelope::ChannelId;

/// What is wrong with a frame. Each is final for a stream: what follows cannot be trusted; a
/// datagram is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The stream or datagram does not begin as ours do.
    #[error("not a Polywire peer: the first bytes are {got:02x?}")]
    NotPolywire {
        /// The first bytes, zeros where fewer came.
        got: [u8; 6],
    },
    /// The peer speaks another version.
    #[error("the peer speaks frame version {got}, this node speaks {supported}")]
    UnsupportedVersion {
        /// The peer's.
        got: u8,
        /// Ours.
        supported: u8,
    },
    /// A frame of no bytes.
    #[error("a frame of length 0")]
    Empty,
    /// A declared length beyond the limit.
    #[error("{what} of {got} bytes, at most {limit} are taken")]
    TooLong {
        /// `frame`, `announcement`, ...
        what: &'static str,
        /// The declared length.
        got: u64,
        /// The limit.
        limit: usize,
    },
    /// The frame ends inside a field.
    #[error("the frame ends at byte {offset}, inside its {field}")]
    Truncated {
        /// The field.
        field: &'static str,
        /// Where, from the frame's head.
        offset: usize,
    },
    /// Bytes that no field claims.
    #[error("{left} bytes too many after byte {offset} of the frame")]
    Trailing {
        /// Where the last field ends.
        offset: usize,
        /// How many follow.
        left: usize,
    },
    /// A number of more than 64 bits, more than its field holds, or not in its shortest form.
    #[error("malformed number at byte {offset} of the frame, in its {field}")]
    Number {
        /// The field.
        field: &'static str,
        /// Where, from the frame's head.
        offset: usize,
    },
    /// Text that is not UTF-8.
    #[error("the {field} at byte {offset} of the frame is not UTF-8")]
    Text {
        /// The field.
        field: &'static str,
        /// Where, from the frame's head.
        offset: usize,
    },
    /// A head byte that names no frame of this version.
    #[error("unknown kind of frame 0x{head:02x}")]
    UnknownFrame {
        /// The head byte.
        head: u8,
    },
    /// A message kind that this version does not have.
    #[error("unknown message kind {number}")]
    UnknownKind {
        /// The number.
        number: u8,
    },
    /// An answer that this version does not have.
    #[error("unknown answer {number} to an announcement")]
    UnknownAnswer {
        /// The number.
        number: u8,
    },
    /// A channel that was not announced, or has retired.
    #[error("channel {0} was not announced or has retired")]
    UnknownChannel(ChannelId),
    /// An announced id that is not the next one: ids are never used twice.
    #[error("channel {got} announced where {expected} is next")]
    ChannelOrder {
        /// The id.
        got: ChannelId,
        /// The next one.
        expected: ChannelId,
    },
    /// More channels at a time than the limit.
    #[error("more than {limit} channels at a time")]
    TooManyChannels {
        /// The limit.
        limit: usize,
    },
    /// Sequence numbers that do not ascend, or pass 2^64.
    #[error("sequence number {got} after {last} on channel {channel}")]
    Sequence {
        /// The channel.
        channel: ChannelId,
        /// The one before.
        last: u64,
        /// This one.
        got: u64,
    },
    /// Extensions that are not well-formed.
    #[error("malformed extension at byte {offset} of the frame")]
    Extension {
        /// Where, from the frame's head.
        offset: usize,
    },
    /// An extension of an answer that this version must understand and does not.
    #[error("extension {id} of the answer must be understood and is not")]
    UnknownExtension {
        /// Its id, an odd one.
        id: u32,
    },
    /// A hello in mid-stream.
    #[error("a second hello")]
    SecondHello,
    /// A datagram whose checksum does not fit its bytes.
    #[error("checksum {got:08x}, the bytes have {expected:08x}")]
    Checksum {
        /// Of the bytes.
        expected: u32,
        /// As sent.
        got: u32,
    },
    /// A datagram of an incarnation that a newer one has replaced.
    #[error("datagram of incarnation {got:016x}, the sender's is {expected:016x}")]
    Incarnation {
        /// The sender's present one.
        expected: u64,
        /// The datagram's.
        got: u64,
    },
    /// A frame that has no place in a datagram.
    #[error("a {0} frame in a datagram")]
    NotInDatagram(&'static str),
}
