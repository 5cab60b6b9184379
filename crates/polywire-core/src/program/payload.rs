//! The input of a decoding ([`Payload`]): a message that stands alone, or one of a stream.
//! `codec/coder.rs` and transports build it; `exec.rs` reads it. Types only.

use super::State;
use crate::layout::SharedBytes;

/// What a message is decoded from.
///
/// ```
/// use polywire_core::{codec::{self, Decoder, Options}, layout::{Message, SharedBytes}, program::Payload};
/// # use polywire_core as polywire;
///
/// #[derive(Default, polywire_derive::Message)]
/// struct Note { text: String }
///
/// let cdr = codec::find("cdr").unwrap();
/// let decoder = Decoder::<Note>::new(cdr, &Options::default(), Note::shape().schema()).unwrap();
/// let message = SharedBytes::from([&[101, 0, 0, 0][..], &[b'a'; 100], &[0]].concat());
/// let (mut note, mut grown) = (Note::default(), Vec::new());
/// for source in [Payload::Bytes(&message), Payload::Shared(&message)] {
///     assert_eq!(source.bytes().len(), 105);
///     grown.push(decoder.decode_measured(source, &mut note).unwrap());
/// }
/// assert!(grown[0] >= 100 && note.text.len() == 100);
/// ```
#[derive(Debug)]
pub enum Payload<'a> {
    /// Its bytes.
    Bytes(&'a [u8]),
    /// Its bytes, of which the value may hold parts.
    Shared(&'a SharedBytes),
    /// The next message of a sequence whose messages refer to earlier ones.
    Chained {
        /// The state of the sequence, made by the same decoder.
        state: &'a mut State,
        /// Whether later messages refer to this one.
        keep: bool,
        /// The message.
        bytes: &'a [u8],
    },
}

impl<'a> Payload<'a> {
    /// The message.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Payload::Bytes(bytes) | Payload::Chained { bytes, .. } => bytes,
            Payload::Shared(message) => message,
        }
    }

    /// Bytes of memory that the value may keep because it holds parts of the message.
    pub(crate) fn kept(&self) -> usize {
        if let Payload::Shared(message) = self { message.len() } else { 0 }
    }
}

/// What decoding a message took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoded {
    /// Bytes of the message.
    pub bytes: usize,
    /// Bytes of memory by which the value grew, or more, and of the parts of a message that it may
    /// hold.
    pub grown: usize,
}

impl Decoded {
    /// Adds `more` bytes to the growth.
    pub(crate) fn and_grown(self, more: usize) -> Decoded {
        Decoded { grown: self.grown.saturating_add(more), ..self }
    }
}
