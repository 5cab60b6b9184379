//! What is sent in addition to a payload: the [`Announcement`] of a channel once, and an
//! [`Envelope`] with every message.
//!
//! Engines carry both. An engine with a message format of its own maps the fields to it; the others
//! write frames ([`crate::frame`]).
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

/// The number of a channel: stands for an [`Announcement`] on one link, in one direction. Numbers
/// are assigned in ascending order from 1 and never reused within an incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// A 128-bit identifier of a node, a writer, a type or a document.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id128(pub [u8; 16]);

/// The properties that all messages of a channel share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// The topic.
    pub topic: String,
    /// Id of the writer. It stays the same if the writer changes its codec and therefore its
    /// channel.
    pub writer: Id128,
    /// Larger after each restart of the writer. Sequence numbers begin again with each incarnation.
    pub incarnation: u64,
    /// Scoped name of the type, for people.
    pub type_name: String,
    /// Hash of the type. Equal for equal types, wherever they were declared.
    pub type_hash: Id128,
    /// Hash of the writer's schema document, which receivers fetch. Zero if the writer provides
    /// none.
    pub schema: Id128,
    /// Name of the codec.
    pub codec: String,
    /// Options of the codec, as written in the wire string.
    pub options: String,
    /// Compressor with its level and the hash of its dictionary, as `spec/compress.md` defines.
    /// Empty for no compression.
    pub compressor: String,
    /// Hash of the document that configures the codec, such as a template.
    pub configuration: Option<Id128>,
    /// The quality of service that the writer offers: bytes of [`Offer`](crate::qos::Offer). Empty
    /// if all of it is default. A relay passes on what it does not understand.
    pub offer: Vec<u8>,
}

impl Announcement {
    /// The name of a codec that no codec has. [`Announcement::options`] is the reason then.
    const DENIED: &str = "denied";

    /// What a peer is told instead of this announcement if it may not subscribe to the topic: the
    /// topic, the writer, and why. It gets no messages of such a channel.
    ///
    /// ```
    /// use polywire_core::envelope::Announcement;
    /// let announcement = Announcement { topic: "pumps".into(), codec: "cdr".into(), ..Announcement::default() };
    /// assert_eq!(announcement.denied("no rule allows it").denial(), Some("no rule allows it"));
    /// assert_eq!(announcement.denial(), None);
    /// ```
    pub fn denied(&self, reason: &str) -> Announcement {
        let (writer, incarnation) = (self.writer, self.incarnation);
        let (topic, codec, options) = (self.topic.clone(), Announcement::DENIED.into(), reason.into());
        Announcement { topic, writer, incarnation, codec, options, ..Announcement::default() }
    }

    /// Whether the codec has this option: options are separated by commas.
    ///
    /// ```
    /// use polywire_core::envelope::Announcement;
    /// let announcement = Announcement { options: "header,be".into(), ..Announcement::default() };
    /// assert!(announcement.has_option("be") && !announcement.has_option("head"));
    /// ```
    pub fn has_option(&self, option: &str) -> bool {
        self.options.split(',').any(|set| set == option)
    }

    /// Why the receiver may not subscribe to the topic, if that is so.
    pub fn denial(&self) -> Option<&str> {
        (self.codec == Announcement::DENIED).then_some(self.options.as_str())
    }
}

/// The fields that accompany every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The channel, as announced.
    pub channel: ChannelId,
    /// Sequence number: counts the writer's messages from 1, across its channels.
    pub sequence: u64,
    /// When the writer published the message, by the writer's clock, in nanoseconds since 1970.
    pub timestamp_ns: i64,
    /// What the message means for its instance.
    pub kind: Kind,
    /// Hash of the instance's key, which identifies it without decoding.
    pub key_hash: Option<Id128>,
    /// Sequence number of the key frame that the message refers to. In a key frame, its own number.
    /// `None` otherwise.
    pub anchor: Option<u64>,
    /// Further fields; see [`Extensions`].
    pub extensions: Extensions<'a>,
}

impl Envelope<'static> {
    /// The envelope of a plain message.
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

/// What a message means for its instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A new value.
    #[default]
    Data,
    /// The instance no longer exists. The payload is its key.
    Dispose,
    /// The writer will not write the instance again. The payload is its key.
    Unregister,
    /// A request. The reply refers to its sequence number.
    Request,
    /// A reply. An extension names the request.
    Reply,
}

impl Kind {
    /// All kinds, at the index of their number on the wire.
    pub const ALL: [Kind; 5] = [Kind::Data, Kind::Dispose, Kind::Unregister, Kind::Request, Kind::Reply];

    /// The number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name for people and files.
    ///
    /// ```
    /// use polywire_core::envelope::Kind;
    /// let names = Kind::ALL.map(Kind::name);
    /// assert_eq!(names, ["data", "dispose", "unregister", "request", "reply"]);
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Kind::Data => "data",
            Kind::Dispose => "dispose",
            Kind::Unregister => "unregister",
            Kind::Request => "request",
            Kind::Reply => "reply",
        }
    }

    /// The kind with this number. `None` for an unknown number.
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }
}

/// The extensions of an envelope: an id, a length and bytes each, in sequence.
///
/// An extension with an odd id must be understood: a receiver that does not know it refuses the
/// message. Unknown extensions with an even id are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions<'a>(&'a [u8]);

impl<'a> Extensions<'a> {
    /// Checks that the bytes are well-formed extensions. Fails with the offset of the first
    /// malformed one.
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

    /// True if there are no extensions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Id and bytes of each extension, in order.
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

/// Bytes that are not well-formed extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed extension at byte {offset} of the extensions")]
pub struct ExtensionError {
    /// Offset of the malformed extension, in bytes.
    pub offset: usize,
}

/// Extensions under construction.
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
    /// Appends an extension.
    pub fn push(&mut self, id: u32, bytes: &[u8]) {
        crate::frame::varint::put(&mut self.0, u64::from(id));
        crate::frame::varint::put(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// The extensions in the form for an envelope.
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
    /// Sixteen zero bytes, which identify nothing.
    pub const ZERO: Id128 = Id128([0; 16]);

    /// The identifier of a document: the hash of its bytes.
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
