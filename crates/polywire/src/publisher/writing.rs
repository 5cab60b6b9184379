//! How a publisher makes the payloads of a format.

use polywire_core::program::CodecError;

use crate::{coding::Coding, delta::Outgoing, packing::Packing};

/// Makes the payloads of one format.
pub(crate) struct Writing<E> {
    pub(super) encoder: E,
    pub(super) packing: Option<Packing>,
    pub(super) deltas: Deltas,
}

/// Whether messages refer to earlier ones.
pub(super) enum Deltas {
    /// The format is not stateful.
    None,
    /// The format is stateful, but each message here is a key frame.
    Keys,
    /// Messages refer to earlier ones.
    Stream(Box<Outgoing>),
    /// They could, but each message here is a key frame: not every reader reads all.
    Alone(Box<Outgoing>),
}

impl<E> Writing<E> {
    /// Appends the payload, compressed if need be, and returns the anchor.
    #[inline(always)]
    pub(super) fn encode<C: Coding<Encoder = E>>(
        &mut self,
        sequence: u64,
        value: &C::Value,
        out: &mut Vec<u8>,
    ) -> Result<Option<u64>, CodecError> {
        let Writing { encoder, packing, deltas } = self;
        let anchor = match deltas {
            Deltas::None => None,
            Deltas::Keys => Some(sequence),
            Deltas::Stream(stream) => return write_next::<C>(encoder, packing, stream, (sequence, value), out),
            Deltas::Alone(stream) => {
                stream.failed();
                return write_next::<C>(encoder, packing, stream, (sequence, value), out);
            }
        };
        pack(packing, out, |out| C::encode(encoder, value, out)).map(|()| anchor)
    }

    /// Appends a payload that refers to no other message. True if it is a key frame of a stateful
    /// format.
    pub(crate) fn encode_alone<C: Coding<Encoder = E>>(
        &mut self,
        value: &C::Value,
        out: &mut Vec<u8>,
    ) -> Result<bool, CodecError> {
        self.failed();
        self.encode::<C>(1, value, out).map(|anchor| anchor.is_some())
    }

    /// Forgets the last message, which could not be sent.
    #[cold]
    pub(super) fn failed(&mut self) {
        if let Deltas::Stream(stream) | Deltas::Alone(stream) = &mut self.deltas {
            stream.failed();
        }
    }

    /// Whether messages refer to earlier ones, so that each endpoint needs payloads of its own: a
    /// key frame that is requested at one of them concerns it alone.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.deltas, Deltas::Stream(_))
    }
}

/// Appends a message that may refer to earlier ones.
#[inline(never)]
fn write_next<C: Coding>(
    encoder: &mut C::Encoder,
    packing: &mut Option<Packing>,
    stream: &mut Outgoing,
    (sequence, value): (u64, &C::Value),
    out: &mut Vec<u8>,
) -> Result<Option<u64>, CodecError> {
    stream.write(sequence, |state, keep| pack(packing, out, |out| C::encode_with(encoder, state, keep, value, out)))
}

#[inline]
fn pack(
    packing: &mut Option<Packing>,
    out: &mut Vec<u8>,
    encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
) -> Result<(), CodecError> {
    match packing {
        None => encode(out),
        Some(packing) => packing.pack(out, encode),
    }
}
