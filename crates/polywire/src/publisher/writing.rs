//! Encodes a publisher's messages as payloads of one format.

use polywire_core::program::CodecError;

use crate::{coding::Coding, delta::Outgoing, packing::Packing};

/// Encodes the payloads of one format.
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
    /// Messages could refer to earlier ones, but each message here is a key frame, since not every
    /// reader reads all of them.
    Alone(Box<Outgoing>),
}

impl<E> Writing<E> {
    /// Appends the payload, compressed if the wire says so, and returns the anchor.
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

    /// Records that the last message could not be sent, so that later messages do not refer to it.
    #[cold]
    pub(super) fn failed(&mut self) {
        if let Deltas::Stream(stream) | Deltas::Alone(stream) = &mut self.deltas {
            stream.failed();
        }
    }

    /// Whether messages refer to earlier ones. Each endpoint then needs its own payloads, since a
    /// key frame that is requested at one endpoint is written only there.
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
