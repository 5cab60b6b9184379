//! The attachment of a sample that a Polywire node publishes: its writer and its envelope.
//!
//! The first five bytes say that the attachment is Polywire's, and in which version. The writer's
//! id follows, and then a Data frame as in a datagram (`spec/frame.md`, section 7), without a
//! payload.

use polywire_core::{
    envelope::{Envelope, Id128},
    frame::{Frame, FrameError, Limits, parse_datagram_frame, put_datagram_frame},
};

/// "PLYW" and the version.
const MAGIC: &[u8; 5] = b"PLYW\x01";

/// What an attachment says.
#[derive(Debug, PartialEq)]
pub(super) enum Attached<'a> {
    /// The attachment is not Polywire's.
    Foreign,
    /// The writer, and the message's envelope.
    Ours(Id128, Envelope<'a>),
}

/// The attachment of a message.
pub(super) fn put(writer: Id128, envelope: &Envelope<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&writer.0);
    put_datagram_frame(&Frame::Data(*envelope, &[]), &mut bytes);
    bytes
}

/// Reads an attachment. Fails if it claims to be Polywire's and is malformed.
pub(super) fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Attached<'a>, FrameError> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else { return Ok(Attached::Foreign) };
    let (writer, frame) = rest.split_first_chunk().ok_or(FrameError::Empty)?;
    match parse_datagram_frame(frame, limits)? {
        Frame::Data(envelope, []) => Ok(Attached::Ours(Id128(*writer), envelope)),
        Frame::Data(_, more) => Err(FrameError::TooLong { what: "attachment", got: more.len() as u64, limit: 0 }),
        _ => Err(FrameError::UnknownFrame { head: frame.first().copied().unwrap_or_default() }),
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::envelope::{ChannelId, ExtensionsBuf, Kind};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_envelope_comes_back() {
        let mut extensions = ExtensionsBuf::default();
        extensions.push(3, b"abc");
        let envelope = Envelope {
            kind: Kind::Request,
            key_hash: Some(Id128([9; 16])),
            anchor: Some(5),
            extensions: extensions.as_extensions(),
            ..Envelope::data(ChannelId(70_000), u64::MAX, i64::MIN)
        };
        let bytes = put(Id128([7; 16]), &envelope);
        assert_eq!(parse(&bytes, &Limits::default()), Ok(Attached::Ours(Id128([7; 16]), envelope)));
        let plain = put(Id128([7; 16]), &Envelope::data(ChannelId(1), 1, 0));
        assert_eq!(plain.len(), 32, "what a usual message costs");
        for len in 0..bytes.len() {
            let parsed = parse(&bytes[..len], &Limits::default());
            assert!(parsed.is_err() || parsed == Ok(Attached::Foreign), "{len}: {parsed:?}");
        }
    }

    #[test]
    fn what_others_attach_is_theirs() {
        for foreign in [&b""[..], b"PLY", b"PLYW\x02 a later version", &[0; 33]] {
            assert_eq!(parse(foreign, &Limits::default()), Ok(Attached::Foreign), "{foreign:?}");
        }
        let mut more = put(Id128([7; 16]), &Envelope::data(ChannelId(1), 1, 0));
        more.push(0);
        assert!(parse(&more, &Limits::default()).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut claimed = MAGIC.to_vec();
            claimed.extend(&bytes);
            if let Ok(Attached::Ours(writer, envelope)) = parse(&claimed, &Limits::default()) {
                let again = put(writer, &envelope);
                prop_assert_eq!(parse(&again, &Limits::default()), Ok(Attached::Ours(writer, envelope)));
            }
            let _ = parse(&bytes, &Limits::default());
        }
    }
}
