//! What travels with a payload: the [`Announcement`] of a channel once, an [`Envelope`] with every
//! message.
//!
//! Engines move these; those with a message format of their own map the fields, the others write
//! them as frames ([`crate::frame`]).
//!
//! ```
//! use polywire_core::envelope::{Announcement, ChannelId, Envelope, ExtensionError, Extensions, ExtensionsBuf, Id128, Kind};
//!
//! let announcement = Announcement { topic: "pumps".into(), codec: "cdr".into(), ..Announcement::default() };
//! assert!(announcement.schema.is_zero() && announcement.writer == Id128::ZERO);
//!
//! let mut extensions = ExtensionsBuf::default();
//! extensions.push(7, b"must be understood");
//! let envelope = Envelope { kind: Kind::Dispose, extensions: extensions.as_extensions(), ..Envelope::data(ChannelId(1), 1, 0) };
//! assert_eq!(Kind::from_number(envelope.kind.number()), Some(Kind::Dispose));
//! assert_eq!(envelope.extensions.not_understood(&[]), Some(7));
//! assert_eq!(envelope.extensions.not_understood(&[7]), None);
//! assert_eq!(Extensions::parse(envelope.extensions.bytes()), Ok(envelope.extensions));
//! assert!(Extensions::parse(&[])?.is_empty());
//! assert_eq!(Extensions::parse(&[0, 0, 7, 9]), Err(ExtensionError { offset: 2 }));
//! # Ok::<(), ExtensionError>(())
//! ```

use alloc::{string::String, vec::Vec};
use core::fmt;

/// Stands for an [`Announcement`] on one link, in one direction. Given in ascending order from 1,
/// never twice within an incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// A 128-bit name: of a node, a writer, a type or a document.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id128(pub [u8; 16]);

/// Everything about the messages of a channel that does not change from one to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// Topic it publishes on.
    pub topic: String,
    /// Who writes. Stays the same when the writer changes its codec, and so its channel.
    pub writer: Id128,
    /// Larger after each restart of the same writer; sequence numbers start anew with it.
    pub incarnation: u64,
    /// Scoped name of the type, for people.
    pub type_name: String,
    /// Equal for equal types, whatever they were declared in.
    pub type_hash: Id128,
    /// Names the writer's schema document, which receivers fetch; zero where the writer has none to
    /// give.
    pub schema: Id128,
    /// Codec by name.
    pub codec: String,
    /// The codec's options, as written in the wire.
    pub options: String,
    /// Compressor with its level and the hash of its dictionary, as `spec/compress.md` says; empty
    /// for none.
    pub compressor: String,
    /// Names the document that configures the codec: a template.
    pub configuration: Option<Id128>,
}

/// What every message carries beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The channel, as announced.
    pub channel: ChannelId,
    /// Counts the writer's messages from 1, across its channels.
    pub sequence: u64,
    /// When the writer published it: nanoseconds since 1970 by the writer's clock.
    pub timestamp_ns: i64,
    /// What the message says about its instance.
    pub kind: Kind,
    /// Tells instances of a keyed type apart without decoding.
    pub key_hash: Option<Id128>,
    /// Sequence number of the key frame that an anchored delta refers to.
    pub anchor: Option<u64>,
    /// Whatever else; see [`Extensions`].
    pub extensions: Extensions<'a>,
}

impl Envelope<'static> {
    /// A plain message.
    pub fn data(channel: ChannelId, sequence: u64, timestamp_ns: i64) -> Self {
        Envelope {
            channel,
            sequence,
            timestamp_ns,
            kind: Kind::Data,
            key_hash: None,
            anchor: None,
            extensions: Extensions::default(),
        }
    }
}

/// What a message says about its instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A new value.
    #[default]
    Data,
    /// The instance is no more; the payload is its key.
    Dispose,
    /// This writer will not write the instance again; the payload is its key.
    Unregister,
    /// A request; its sequence number is what the reply names.
    Request,
    /// A reply; an extension names the request.
    Reply,
}

impl Kind {
    /// Every kind, at the position of its number on the wire.
    pub const ALL: [Kind; 5] = [Kind::Data, Kind::Dispose, Kind::Unregister, Kind::Request, Kind::Reply];

    /// The number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }
}

/// Extensions as they stand in an envelope: each an id, a length and bytes, back to back.
///
/// An odd id must be understood: who does not know it refuses the message. An even one is passed
/// over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions<'a>(&'a [u8]);

impl<'a> Extensions<'a> {
    /// Takes bytes that hold well-formed extensions, or says where they stop being so.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ExtensionError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let offset = bytes.len() - rest.len();
            (_, _, rest) = split_extension(rest).ok_or(ExtensionError { offset })?;
        }
        Ok(Extensions(bytes))
    }

    /// The bytes on the wire.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Id and bytes of each, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (id, bytes, after) = split_extension(rest)?;
            rest = after;
            Some((id, bytes))
        })
    }

    /// The first id that must be understood and is not in `known`.
    pub fn not_understood(&self, known: &[u32]) -> Option<u32> {
        self.iter().map(|(id, _)| id).find(|id| id % 2 == 1 && !known.contains(id))
    }
}

/// Bytes that are no extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed extension at byte {offset} of the extensions")]
pub struct ExtensionError {
    /// Where the malformed one starts.
    pub offset: usize,
}

/// Extensions in the making.
///
/// ```
/// use polywire_core::envelope::ExtensionsBuf;
/// let mut extensions = ExtensionsBuf::default();
/// extensions.push(6, b"abc");
/// let all: Vec<_> = extensions.as_extensions().iter().collect();
/// assert_eq!(all, [(6, &b"abc"[..])]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtensionsBuf(Vec<u8>);

impl ExtensionsBuf {
    /// Adds one at the end.
    pub fn push(&mut self, id: u32, bytes: &[u8]) {
        crate::frame::varint::put(&mut self.0, u64::from(id));
        crate::frame::varint::put(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// As an envelope holds them.
    pub fn as_extensions(&self) -> Extensions<'_> {
        Extensions(&self.0)
    }
}

fn split_extension(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (id, rest) = crate::frame::varint::split(bytes)?;
    let (len, rest) = crate::frame::varint::split(rest)?;
    let len = usize::try_from(len).ok()?;
    let (value, rest) = rest.split_at_checked(len)?;
    Some((u32::try_from(id).ok()?, value, rest))
}

impl Id128 {
    /// Sixteen zero bytes: names nothing.
    pub const ZERO: Id128 = Id128([0; 16]);

    /// Names a document by the hash of its bytes.
    ///
    /// ```
    /// use polywire_core::{envelope::Id128, schema::DocumentHash};
    /// assert_eq!(Id128::of_document(b"abc").0, DocumentHash::of(b"abc").to_bytes());
    /// ```
    pub fn of_document(bytes: &[u8]) -> Id128 {
        Id128(crate::schema::DocumentHash::of(bytes).to_bytes())
    }

    /// True for [`Id128::ZERO`].
    pub fn is_zero(&self) -> bool {
        *self == Id128::ZERO
    }
}

impl fmt::Display for Id128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Id128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
