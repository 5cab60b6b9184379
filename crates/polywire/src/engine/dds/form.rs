//! The two forms of a message on a DDS topic, and the sequence number in its encapsulation header.
//!
//! A channel in CDR or XCDR2 is an ordinary DDS topic: type name, key, and payload are what other
//! programs expect. The lowest 14 bits of the sequence number are in the header's options, whose
//! upper bits DDS reserves and receivers ignore. Receivers derive the other bits from the order of
//! the samples. All other channels carry datagrams of `spec/frame.md`, in samples of [`OCTETS`].

use polywire_core::qos::Offer;
use polywire_core::schema::{Extensibility, Schema};
use polywire_core::{
    envelope::{Announcement, Envelope, Extensions, Kind},
    frame::{DatagramDecoder, DatagramEncoder, Frame},
    rpc,
};
use polywire_dds::{self as dds, Bytes, Representation, Sample};

use super::super::{Aligned, EngineError};

/// The type of topics that carry datagrams: `struct Octets { sequence<octet> frames; };`, final.
pub(super) const OCTETS: &str = "polywire::Octets";

/// The encapsulation header of [`OCTETS`]: plain CDR, little endian.
const PLAIN: [u8; 4] = [0, 1, 0, 0];

/// How many bits of a sequence number fit into a header.
const BITS: u32 = 14;

/// The form of a channel's messages on its DDS topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Payloads of a DDS type.
    Native {
        /// The first two bytes of the encapsulation header.
        identifier: [u8; 2],
        is_keyed: bool,
        /// The channel's payloads have the encapsulation header already.
        has_header: bool,
    },
    /// Datagrams.
    Octets,
}

impl Form {
    /// Returns the form of a channel with this schema. `services` says whether services have a
    /// native form, which depends on the naming.
    pub(super) fn of(announcement: &Announcement, schema: Option<&Schema>, services: bool) -> Form {
        Form::native(announcement, schema, services).unwrap_or(Form::Octets)
    }

    fn native(announcement: &Announcement, schema: Option<&Schema>, services: bool) -> Option<Form> {
        let is_plain = announcement.compressor.is_empty() && announcement.configuration.is_none();
        // Requests, and messages of a history, have fields that a DDS sample has no place for.
        let is_data = (services || rpc::service_of(&announcement.topic).is_none())
            && Offer::parse(&announcement.offer).is_ok_and(|offer| !offer.is_auxiliary() && offer.moved_to.is_empty());
        if !is_plain || !is_data {
            return None;
        }
        let schema = schema?;
        let root = schema.find(schema.name())?;
        let (final_one, appendable, mutable) = match announcement.codec.as_str() {
            "cdr" => (0, 0, 2),
            "xcdr2" => (6, 8, 10),
            _ => return None,
        };
        let kind = match schema.def(root).extensibility {
            Extensibility::Final => final_one,
            Extensibility::Appendable => appendable,
            Extensibility::Mutable => mutable,
        };
        let is_keyed = schema.members(root).iter().any(|member| member.key);
        let (kind, has_header) = (kind + u8::from(!announcement.has_option("be")), announcement.has_option("header"));
        Some(Form::Native { identifier: [0, kind], is_keyed, has_header })
    }

    pub(super) fn is_keyed(self) -> bool {
        matches!(self, Form::Native { is_keyed: true, .. })
    }

    pub(super) fn has_header(self) -> bool {
        matches!(self, Form::Native { has_header: true, .. })
    }

    pub(super) fn representation(self) -> Representation {
        match self {
            Form::Native { identifier: [_, kind], .. } if kind >= 6 => Representation::Xcdr2,
            _ => Representation::Xcdr1,
        }
    }

    /// Makes the sample of a message.
    pub(super) fn sample(
        self,
        envelope: &Envelope<'_>,
        payload: &[u8],
        encoder: &DatagramEncoder,
    ) -> Result<Sample, EngineError> {
        let bytes = match self {
            Form::Native { has_header: true, .. } => {
                let (head, body) = payload.split_at_checked(4).unwrap_or((&PLAIN, payload));
                let padding = usize::from(head[3] & 3);
                let body = body.get(..body.len().saturating_sub(padding)).unwrap_or_default();
                numbered([head[0], head[1]], envelope.sequence, body)
            }
            Form::Native { identifier, .. } => numbered(identifier, envelope.sequence, payload),
            Form::Octets => {
                let mut datagram = Vec::with_capacity(payload.len() + 64);
                encoder.begin(&mut datagram);
                encoder.data(envelope, payload, &mut datagram)?;
                encoder.finish(&mut datagram);
                octets(&datagram)
            }
        };
        let kind = match envelope.kind {
            Kind::Dispose => dds::Kind::Dispose,
            Kind::Unregister => dds::Kind::Unregister,
            _ => dds::Kind::Data,
        };
        // Datagrams have no instances.
        let kind = if self == Form::Octets { dds::Kind::Data } else { kind };
        let key_hash = envelope.key_hash.filter(|_| self.is_keyed()).map(|hash| hash.0);
        Ok(Sample {
            kind,
            is_key: false,
            bytes: bytes.map_err(system)?,
            key_hash,
            timestamp_ns: envelope.timestamp_ns.max(0),
            sequence: None,
        })
    }
}

/// Puts a header with the lowest bits of a sequence number in front of a payload.
fn numbered([high, low]: [u8; 2], sequence: u64, payload: &[u8]) -> Result<Bytes, dds::Error> {
    let [first, second] = ((sequence << (16 - BITS)) as u16).to_be_bytes();
    Bytes::new([high, low, first, second], payload)
}

/// Encodes a datagram as a value of [`OCTETS`].
pub(super) fn octets(datagram: &[u8]) -> Result<Bytes, dds::Error> {
    let mut value = Vec::with_capacity(4 + datagram.len());
    value.extend_from_slice(&(datagram.len() as u32).to_le_bytes());
    value.extend_from_slice(datagram);
    Bytes::new(PLAIN, &value)
}

/// Returns the datagram in a value of [`OCTETS`]. `None` if it is malformed.
pub(super) fn datagram(bytes: &Bytes) -> Option<&[u8]> {
    let (len, datagram) = bytes.payload().split_first_chunk()?;
    let is_plain = bytes.header().starts_with(&PLAIN[..2]);
    datagram.get(..u32::from_le_bytes(*len) as usize).filter(|_| is_plain)
}

/// Returns the sequence number nearest to `near` whose lowest [`BITS`] bits are those in the
/// sample's header. It differs from `near` by at most half of the range of these bits.
fn nearest(near: u64, bytes: &Bytes) -> u64 {
    let next = after(near, bytes);
    if next - near > 1 << (BITS - 1) { next.saturating_sub(1 << BITS) } else { next }
}

/// Returns the first sequence number after `last` whose lowest bits are those in the sample's
/// header.
fn after(last: u64, bytes: &Bytes) -> u64 {
    let [_, _, first, second] = bytes.header();
    let bits = u64::from(u16::from_be_bytes([first, second]) >> (16 - BITS));
    let next = last.saturating_add(1);
    next.saturating_add(bits.wrapping_sub(next) & ((1 << BITS) - 1))
}

/// A position in the sequence of a channel's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Messages up to this number have arrived, or are not wanted.
    pub(super) last: u64,
    /// The time of the last message that is not wanted. `None` once a later message has arrived.
    /// Samples that the writer keeps for late joiners may be older than this time.
    pub(super) begins_after_ns: Option<i64>,
}

/// How much a time in DDS may differ from the publisher's, because of rounding.
const ROUNDING_NS: i64 = 1000;

impl Place {
    /// Returns the sequence number of a sample, whose header has the lowest bits. `None` if the
    /// sample is not wanted.
    fn sequence(&self, sample: &Sample) -> Option<u64> {
        let begins_after = self.begins_after_ns.map(|time| time.saturating_add(ROUNDING_NS));
        let sequence = match begins_after {
            Some(time) if sample.timestamp_ns <= time - 2 * ROUNDING_NS => return None,
            Some(time) if sample.timestamp_ns <= time => nearest(self.last, &sample.bytes),
            _ => after(self.last, &sample.bytes),
        };
        (sequence > self.last).then_some(sequence)
    }
}

/// Decodes a sample of a node's writer, and calls `deliver` with each message in it. Only octets
/// need the decoder of the participant.
pub(super) fn open<'d>(
    form: Form,
    place: &mut Place,
    sample: &Sample,
    envelope: Envelope<'_>,
    decoder: impl FnOnce() -> &'d mut DatagramDecoder,
    deliver: &mut dyn FnMut(&Envelope<'_>, &[u8]),
) {
    let mut aligned = Aligned::default();
    match form {
        Form::Native { has_header, .. } => {
            let Some(sequence) = place.sequence(sample) else { return };
            *place = Place { last: sequence, begins_after_ns: None };
            let envelope = Envelope { sequence, ..of_sample(sample, envelope) };
            match has_header {
                false => deliver(&envelope, sample.bytes.payload()),
                true => deliver(&envelope, aligned.place(&without_number(&sample.bytes))),
            }
        }
        Form::Octets => {
            let Some(Ok(frames)) = datagram(&sample.bytes).map(|datagram| decoder().open(datagram)) else { return };
            for frame in frames {
                // A node's writer sends no other frames in the topic of a channel.
                let Ok(Frame::Data(envelope, payload)) = frame else { return };
                if envelope.sequence <= place.last {
                    continue;
                }
                *place = Place { last: envelope.sequence, begins_after_ns: None };
                deliver(&envelope, aligned.place(payload));
            }
        }
    }
}

/// Copies the fields of a sample into an envelope that has the channel and the sequence number.
pub(super) fn of_sample<'a>(sample: &Sample, envelope: Envelope<'a>) -> Envelope<'a> {
    let kind = match sample.kind {
        dds::Kind::Data => Kind::Data,
        dds::Kind::Dispose => Kind::Dispose,
        dds::Kind::Unregister => Kind::Unregister,
    };
    Envelope {
        kind,
        timestamp_ns: sample.timestamp_ns,
        key_hash: sample.key_hash.map(polywire_core::envelope::Id128),
        extensions: Extensions::default(),
        ..envelope
    }
}

/// Returns a sample as its codec made it, without the sequence number in its header.
pub(super) fn without_number(bytes: &Bytes) -> Vec<u8> {
    let mut sample = bytes.sample().to_vec();
    if let [_, _, first, second, ..] = &mut sample[..] {
        (*first, *second) = (0, *second & 3);
    }
    sample
}

/// Converts an error of DDS to an error of the engine.
pub(super) fn system(error: dds::Error) -> EngineError {
    EngineError::System { endpoint: "dds".into(), action: "send", cause: std::io::Error::other(error) }
}

#[cfg(test)]
mod tests {
    use polywire_core::{envelope::ChannelId, frame::Limits};

    use super::*;

    const NATIVE: Form = Form::Native { identifier: [0, 1], is_keyed: false, has_header: false };

    fn encoder() -> DatagramEncoder {
        DatagramEncoder::new(polywire_core::envelope::Id128([1; 16]), 1, Limits::default())
    }

    fn opened(form: Form, last: u64, sample: &Sample) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        let mut decoder = DatagramDecoder::new(Limits::default());
        let envelope = Envelope::data(ChannelId(1), 0, 0);
        let mut place = Place { last, begins_after_ns: Some(0) };
        open(form, &mut place, sample, envelope, || &mut decoder, &mut |envelope, payload| {
            all.push((envelope.sequence, payload.to_vec()));
        });
        all
    }

    #[test]
    fn messages_come_back_in_either_form() {
        let with_header = Form::Native { identifier: [0, 1], is_keyed: false, has_header: true };
        for (form, payload) in
            [(NATIVE, &b"abcde"[..]), (with_header, b"\0\x01\0\x03abcde\0\0\0"), (Form::Octets, b"x")]
        {
            let envelope = Envelope::data(ChannelId(1), 70_001, 5);
            let sample = form.sample(&envelope, payload, &encoder()).expect("a sample");
            assert_eq!(opened(form, 70_000, &sample), [(70_001, payload.to_vec())], "{form:?}");
        }
    }

    #[test]
    fn sequence_numbers_continue_beyond_the_bits_of_the_header() {
        let at = |sequence| numbered([0, 1], sequence, b"abc").expect("bytes");
        for (last, sequence) in [(0, 1), (16_383, 16_384), (16_384, 16_390), (40_000, 40_000 + 16_384), (9, 10)] {
            assert_eq!(after(last, &at(sequence)), sequence);
        }
        for (near, sequence) in [(9, 7), (9, 10), (20_000, 19_000), (20_000, 20_000), (3, 1)] {
            assert_eq!(nearest(near, &at(sequence)), sequence);
        }
        assert_eq!(at(5).payload(), b"abc", "the number does not disturb the padding");
    }

    #[test]
    fn what_came_before_is_not_wanted() {
        let sample = |sequence, timestamp_ns| Sample {
            kind: dds::Kind::Data,
            is_key: false,
            bytes: numbered([0, 1], sequence, b"abc").expect("bytes"),
            key_hash: None,
            timestamp_ns,
            sequence: None,
        };
        let place = Place { last: 100, begins_after_ns: Some(1_000_000) };
        assert_eq!(place.sequence(&sample(99, 900_000)), None);
        assert_eq!(place.sequence(&sample(100, 1_000_001)), None);
        assert_eq!(place.sequence(&sample(101, 1_000_000)), Some(101));
        assert_eq!(place.sequence(&sample(15_000, 2_000_000)), Some(15_000));
    }

    #[test]
    fn malformed_octets_are_nothing() {
        for value in [&b""[..], b"\x01", b"\xff\xff\xff\xffabc", b"\x02\0\0\0ab"] {
            let sample = Sample {
                kind: dds::Kind::Data,
                is_key: false,
                bytes: Bytes::new(PLAIN, value).expect("bytes"),
                key_hash: None,
                timestamp_ns: 0,
                sequence: None,
            };
            assert_eq!(opened(Form::Octets, 0, &sample), []);
        }
    }

    /// Makes pseudo-random bytes from a seed.
    fn noise(seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let len = next() % 200;
        (0..len).map(|_| next() as u8).collect()
    }

    #[test]
    fn hostile_samples_do_no_harm() {
        let message = Envelope::data(ChannelId(1), 9, 5);
        let valid = Form::Octets.sample(&message, b"payload", &encoder()).expect("a sample");
        for seed in 0..5000 {
            let mut bytes = valid.bytes.sample().to_vec();
            let noise = noise(seed);
            let at = seed as usize % bytes.len();
            bytes.splice(at..(at + noise.len() / 8).min(bytes.len()), noise.iter().copied());
            for sample in [bytes, noise] {
                let Ok(bytes) = Bytes::of_sample(&sample) else { continue };
                let sample = Sample { bytes, ..valid.clone() };
                for form in
                    [NATIVE, Form::Native { identifier: [0, 7], is_keyed: true, has_header: true }, Form::Octets]
                {
                    // Each result is a message after the last one, if there is a result at all.
                    assert!(opened(form, 100, &sample).iter().all(|(sequence, _)| *sequence > 100), "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn hostile_user_data_says_nothing() {
        use super::super::{
            name::Naming,
            peer::{introduced, introduction, label, labelled},
        };
        let hello = polywire_core::frame::Hello { node: polywire_core::envelope::Id128([7; 16]), incarnation: 3 };
        let texts = [Naming::Plain, Naming::Ros]
            .map(|naming| [introduction(&hello, naming), label(ChannelId(3), &Announcement::default(), naming, None)]);
        let texts = texts.as_flattened();
        for seed in 0..5000 {
            let noise = noise(seed);
            assert_eq!((introduced(&noise), labelled(&noise)), (None, None), "seed {seed}");
            for text in texts {
                let mut text = text.clone();
                let at = seed as usize % text.len();
                text.splice(at..=at, noise.iter().copied());
                // The text may still be valid, such as after a change of one digit.
                let _ = (introduced(&text), labelled(&text));
            }
        }
    }
}
