//! Parameter lists and member headers that the golden vectors do not cover: mutable unions, values
//! too long for a short header, parameter headers of other vendors.

use polywire_core::{
    codec::{self, Decoder, Encoder},
    layout::Message,
    program::{Backend, CodecError, FaultKind},
};
use polywire_derive::Message;
use polywire_testing::backends;

#[derive(Message, Debug, PartialEq, Clone)]
#[polywire(mutable, switch = "int16")]
enum Reading {
    #[polywire(case(1), id = 5)]
    Level(f64),
    #[polywire(case(2, 3), id = 0x4000)]
    Note(String),
}

impl Default for Reading {
    fn default() -> Self {
        Reading::Level(0.0)
    }
}

#[derive(Message, Debug, PartialEq, Clone, Default)]
#[polywire(mutable)]
struct Sample {
    #[polywire(id = 1)]
    first: u8,
    #[polywire(id = 2)]
    reading: Reading,
    #[polywire(id = 3)]
    text: String,
}

#[derive(Message, Debug, PartialEq, Clone, Default)]
#[polywire(final)]
struct Maybe {
    flag: bool,
    #[polywire(id = 9)]
    value: Option<f64>,
    last: u8,
}

fn encode<T: Message>(value: &T, codec: &str, options: &str, backend: Backend) -> Vec<u8> {
    let encoder = Encoder::<T>::with_backend(codec::find(codec).unwrap(), &options.parse().unwrap(), backend).unwrap();
    let mut bytes = vec![];
    encoder.encode(value, &mut bytes).unwrap();
    bytes
}

fn decode<T: Message + Default>(
    bytes: &[u8],
    codec: &str,
    options: &str,
    backend: Backend,
) -> Result<(T, usize), CodecError> {
    let (codec, options) = (codec::find(codec).unwrap(), options.parse().unwrap());
    let decoder = Decoder::<T>::with_backend(codec, &options, T::shape().schema(), backend).unwrap();
    let mut value = T::default();
    decoder.decode(bytes, &mut value).map(|used| (value, used))
}

fn both_ways<T: Message + Default + PartialEq + std::fmt::Debug>(value: &T, codec: &str, options: &str, want: &[u8]) {
    for backend in backends() {
        assert_eq!(encode(value, codec, options, backend), want, "{codec}:{options} on {backend:?}");
        let (read, used) = decode::<T>(want, codec, options, backend).unwrap();
        assert_eq!((&read, used), (value, want.len()), "{codec}:{options} on {backend:?}");
        for len in 0..want.len() {
            assert!(decode::<T>(&want[..len], codec, options, backend).is_err(), "{codec}:{options} cut to {len}");
        }
    }
}

#[test]
fn mutable_unions_have_their_discriminator_as_member_0() {
    let level = Reading::Level(1.5);
    #[rustfmt::skip]
    both_ways(&level, "cdr", "be", &[
        0, 0, 0, 2, 0, 1, 0, 0,
        0, 5, 0, 8, 0x3F, 0xF8, 0, 0, 0, 0, 0, 0,
        0x3F, 2, 0, 0,
    ]);
    #[rustfmt::skip]
    both_ways(&level, "xcdr2", "be", &[
        0, 0, 0, 20,
        0x10, 0, 0, 0, 0, 1, 0, 0,
        0x30, 0, 0, 5, 0x3F, 0xF8, 0, 0, 0, 0, 0, 0,
    ]);
    let note = Reading::Note("hi".into());
    #[rustfmt::skip]
    both_ways(&note, "cdr", "le", &[
        0, 0, 2, 0, 2, 0, 0, 0,
        1, 0x3F, 8, 0, 0, 0x40, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, b'h', b'i', 0, 0,
        2, 0x3F, 0, 0,
    ]);
    #[rustfmt::skip]
    both_ways(&note, "xcdr2", "le", &[
        19, 0, 0, 0,
        0, 0, 0, 0x10, 2, 0, 0, 0,
        0, 0x40, 0, 0x50, 3, 0, 0, 0, b'h', b'i', 0,
    ]);
}

#[test]
fn values_too_long_for_a_short_header_get_a_long_one() {
    let long = "x".repeat(70_000);
    for value in [
        Sample { first: 1, reading: Reading::Note(long.clone()), text: "after".into() },
        Sample { first: 1, reading: Reading::Level(2.5), text: long },
    ] {
        for (codec, options) in [("cdr", "le"), ("cdr", "be,header"), ("xcdr2", "le")] {
            for backend in backends() {
                let bytes = encode(&value, codec, options, backend);
                let (read, used) = decode::<Sample>(&bytes, codec, options, backend).unwrap();
                assert!(read == value && used == bytes.len(), "{codec}:{options} on {backend:?}");
            }
        }
    }
}

#[test]
fn a_value_moved_for_a_long_header_is_aligned_as_before() {
    let value = Sample { first: 7, reading: Reading::Level(0.0), text: "y".repeat(65_532) };
    for backend in backends() {
        let bytes = encode(&value, "cdr", "le", backend);
        // Four bytes of length and the NUL: one more than a short header can say.
        let header = bytes.windows(12).position(|w| w == [1, 0x3F, 8, 0, 3, 0, 0, 0, 1, 0, 1, 0]).unwrap();
        assert_eq!(bytes[header + 12..][..5], [0xFD, 0xFF, 0, 0, b'y']);
        assert_eq!(bytes[bytes.len() - 4..], [2, 0x3F, 0, 0]);
    }
}

#[test]
fn optionals_of_plain_types_are_parameters_in_xcdr1() {
    let there = Maybe { flag: true, value: Some(1.0), last: 2 };
    #[rustfmt::skip]
    both_ways(&there, "cdr", "be", &[1, 0, 0, 0, 0, 9, 0, 8, 0x3F, 0xF0, 0, 0, 0, 0, 0, 0, 2]);
    both_ways(&Maybe { value: None, ..there.clone() }, "cdr", "be", &[1, 0, 0, 0, 0, 9, 0, 0, 2]);
    both_ways(&there, "xcdr2", "be", &[1, 1, 0, 0, 0x3F, 0xF0, 0, 0, 0, 0, 0, 0, 2]);
    both_ways(&Maybe { value: None, ..there }, "xcdr2", "be", &[1, 0, 2]);
}

#[test]
fn parameter_headers_of_other_vendors_are_read() {
    let want = Maybe { flag: true, value: Some(1.0), last: 2 };
    let long = [1, 0, 0, 0, 0x7F, 1, 0, 8, 0, 0, 0, 9, 0, 0, 0, 8, 0x3F, 0xF0, 0, 0, 0, 0, 0, 0, 2];
    let padded = [1, 0, 0, 0, 0, 9, 0, 12, 0x3F, 0xF0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let ignored = [1, 0, 0, 0, 0x3F, 3, 0, 4, 1, 2, 3, 4, 0, 9, 0, 8, 0x3F, 0xF0, 0, 0, 0, 0, 0, 0, 2];
    for backend in backends() {
        for bytes in [&long[..], &padded[..], &ignored[..]] {
            assert_eq!(decode::<Maybe>(bytes, "cdr", "be", backend).unwrap(), (want.clone(), bytes.len()));
        }
    }
}

#[test]
fn members_out_of_place_are_refused_by_name() {
    let kind = |bytes: &[u8], codec: &str, backend| decode::<Sample>(bytes, codec, "be", backend).unwrap_err().kind;
    for backend in backends() {
        // Twice the same member; a member that claims more than there is; an unknown one that must
        // be understood.
        let twice = [0, 1, 0, 1, 5, 0, 0, 0, 0, 1, 0, 1, 6, 0, 0, 0, 0x3F, 2, 0, 0];
        assert_eq!(kind(&twice, "cdr", backend), FaultKind::DuplicateMember);
        assert_eq!(kind(&[0, 1, 0xFF, 0xFF, 5, 0, 0, 0, 0x3F, 2, 0, 0], "cdr", backend), FaultKind::BadLength);
        assert_eq!(kind(&[0x40, 7, 0, 0, 0x3F, 2, 0, 0], "cdr", backend), FaultKind::UnknownMember);
        let twice = [0, 0, 0, 13, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0, 1, 6];
        assert_eq!(kind(&twice, "xcdr2", backend), FaultKind::DuplicateMember);
        let wrapping = [0, 0, 0, 8, 0x70, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF];
        assert_eq!(kind(&wrapping, "xcdr2", backend), FaultKind::BadLength);
        assert_eq!(kind(&[0, 0, 0, 5, 0x80, 0, 0, 7, 0], "xcdr2", backend), FaultKind::UnknownMember);
    }
}
