//! What programs decode from: messages, alone or in a stream.

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
    /// Its bytes as those of a message of a stream, which goes on from it if it is to be kept.
    Stream {
        /// Of the stream, made by the same decoder.
        state: &'a mut State,
        /// Whether the stream goes on from it.
        keep: bool,
        /// The message.
        bytes: &'a [u8],
    },
}

impl Payload<'_> {
    /// The message.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Bytes(bytes) | Payload::Stream { bytes, .. } => bytes,
            Payload::Shared(message) => message,
        }
    }
}
