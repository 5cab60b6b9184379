//! Messages of writers without a schema: either byte order after a header, and older, shorter
//! versions of a type.

use polywire_core::{
    codec::{self, Codec, Decoder, Encoder},
    layout::Message,
    program::{Backend, CodecError, FaultKind},
};
use polywire_derive::Message;
use polywire_testing::backends;

fn find(codec: &str) -> &'static dyn Codec {
    codec::find(codec).unwrap()
}

fn encode<T: Message>(codec: &str, options: &str, value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoder = Encoder::<T>::new(find(codec), &options.parse().unwrap()).unwrap();
    encoder.encode(value, &mut bytes).unwrap();
    bytes
}

fn decoder<T: Message>(codec: &str, options: &str, backend: Backend) -> Decoder<T> {
    Decoder::with_backend(find(codec), &options.parse().unwrap(), T::shape().schema(), backend).unwrap()
}

fn decode<T: Message + Default>(decoder: &Decoder<T>, bytes: &[u8]) -> Result<T, CodecError> {
    let mut value = T::default();
    decoder.decode(bytes, &mut value)?;
    Ok(value)
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
#[polywire(final)]
struct Plain {
    number: u16,
    name: String,
    values: Vec<f64>,
    extra: Option<i32>,
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
#[polywire(appendable)]
struct Growing {
    number: u16,
    inner: Vec<Plain>,
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
#[polywire(mutable)]
struct Loose {
    number: u16,
    name: String,
}

fn plain() -> Plain {
    Plain { number: 0x0102, name: "né".into(), values: vec![0.5, -1.0], extra: Some(-7) }
}

#[test]
fn one_decoder_reads_both_orders() {
    for backend in backends() {
        for codec in ["cdr", "xcdr2"] {
            both_orders(codec, backend, &plain());
            both_orders(codec, backend, &Growing { number: 0xFF00, inner: vec![plain(), Plain::default()] });
            both_orders(codec, backend, &Loose { number: 3, name: "loose".into() });
        }
    }
}

fn both_orders<T: Message + Default + PartialEq + std::fmt::Debug>(codec: &str, backend: Backend, value: &T) {
    // Its own order does not matter if there is a header.
    for own in ["header", "be,header"] {
        let decoder = decoder::<T>(codec, own, backend);
        let (little, big) = (encode(codec, "le,header", value), encode(codec, "be,header", value));
        assert_ne!(little, big);
        assert_eq!(little[1], big[1] + 1, "{codec}");
        for bytes in [&little, &big, &little] {
            assert_eq!(&decode(&decoder, bytes).unwrap(), value, "{codec} {backend:?}");
        }
    }
}

#[test]
fn other_headers_are_refused_by_name() {
    for backend in backends() {
        let decoder = decoder::<Plain>("cdr", "header", backend);
        let mut bytes = encode("cdr", "header", &plain());
        for (kind, name) in [(3, "PL_CDR_LE"), (7, "CDR2_LE"), (4, "XML"), (0x4321, "the unknown kind 0x4321")] {
            bytes[..2].copy_from_slice(&u16::to_be_bytes(kind));
            let error = decode(&decoder, &bytes).unwrap_err();
            assert_eq!((error.kind, error.offset, error.got), (FaultKind::Encapsulation, 0, kind.into()));
            let said = format!("expected CDR_BE or CDR_LE, got {name})");
            assert!(error.to_string().ends_with(&said), "{error}");
        }
        bytes[..2].copy_from_slice(&[0, 1]);
        for cut in 0..4 {
            assert_eq!(decode(&decoder, &bytes[..cut]).unwrap_err().kind, FaultKind::Truncated, "{cut}");
        }
    }
}

/// Three versions of a type: each has more at its end.
mod versions {
    use super::*;

    #[derive(Message, Default, Debug, PartialEq, Clone)]
    #[polywire(name = "Sensor", appendable)]
    pub struct First {
        #[polywire(key)]
        pub id: u32,
        pub at: First2,
    }

    #[derive(Message, Default, Debug, PartialEq, Clone)]
    #[polywire(name = "Place", appendable)]
    pub struct First2 {
        pub x: u8,
    }

    #[derive(Message, Default, Debug, PartialEq, Clone)]
    #[polywire(name = "Sensor", appendable)]
    pub struct Last {
        #[polywire(key)]
        pub id: u32,
        pub at: Last2,
        #[polywire(default = 9)]
        pub level: u16,
        pub note: Option<String>,
        pub places: Vec<Last2>,
    }

    #[derive(Message, Default, Debug, PartialEq, Clone)]
    #[polywire(name = "Place", appendable)]
    pub struct Last2 {
        pub x: u8,
        #[polywire(default = -1)]
        pub y: i64,
    }

    #[derive(Message, Default, Debug, PartialEq, Clone)]
    #[polywire(name = "Sensor", appendable)]
    pub struct Many {
        pub places: Vec<First2>,
    }

    #[derive(Message, Default, Debug, PartialEq, Clone)]
    #[polywire(name = "Sensor", appendable)]
    pub struct ManyLast {
        pub places: Vec<Last2>,
    }
}

use versions::{First, First2, Last, Last2, Many, ManyLast};

#[test]
fn what_a_shorter_version_lacks_has_its_default() {
    let old = First { id: 5, at: First2 { x: 3 } };
    let new = Last { id: 5, at: Last2 { x: 3, y: -1 }, level: 9, note: None, places: vec![] };
    for backend in backends() {
        for header in ["", ",header"] {
            for order in ["le", "be"] {
                let wire = format!("{order}{header}");
                let lenient = decoder::<Last>("xcdr2", &format!("{wire},older"), backend);
                assert_eq!(decode(&lenient, &encode("xcdr2", &wire, &old)).unwrap(), new, "{wire} {backend:?}");
                let strict = decoder::<Last>("xcdr2", &wire, backend);
                assert!(decode(&strict, &encode("xcdr2", &wire, &old)).is_err(), "{wire}");
            }
        }
    }
}

#[test]
fn a_complete_value_is_read_as_usual() {
    let value = Last {
        id: 1,
        at: Last2 { x: 2, y: 3 },
        level: 4,
        note: Some("note".into()),
        places: vec![Last2 { x: 5, y: 6 }, Last2::default()],
    };
    for backend in backends() {
        for (codec, wire) in [("cdr", "le"), ("cdr", "be,header"), ("xcdr2", "be"), ("xcdr2", "le,header")] {
            let lenient = decoder::<Last>(codec, &format!("{wire},older"), backend);
            assert_eq!(decode(&lenient, &encode(codec, wire, &value)).unwrap(), value, "{codec} {wire}");
        }
    }
}

#[test]
fn elements_may_be_shorter_where_each_has_a_length() {
    let old = Many { places: vec![First2 { x: 1 }, First2 { x: 2 }] };
    let new = ManyLast { places: vec![Last2 { x: 1, y: -1 }, Last2 { x: 2, y: -1 }] };
    for backend in backends() {
        let bytes = encode("xcdr2", "le", &old);
        assert_eq!(decode(&decoder::<ManyLast>("xcdr2", "older", backend), &bytes).unwrap(), new);
    }
}

/// In XCDR1, only at the end of the message can the first version of a type be distinguished from a
/// whole value.
#[test]
fn in_xcdr1_only_the_message_shows_where_a_value_ends() {
    let whole = Last { id: 5, at: Last2 { x: 3, y: 4 }, level: 7, note: None, places: vec![Last2 { x: 1, y: 2 }] };
    let bytes = encode("cdr", "le", &whole);
    // id, x, y, level, the header of the absent note, the number of places, x, y.
    assert_eq!(bytes.len(), 4 + 1 + 3 + 8 + 2 + 2 + 4 + 4 + 1 + 3 + 8);
    for backend in backends() {
        let lenient = decoder::<Last>("cdr", "older", backend);
        let read = |len: usize| decode(&lenient, &bytes[..len]);
        let until_level = Last { places: vec![], ..whole.clone() };
        assert_eq!(read(18).unwrap(), until_level);
        // Padding that nobody counted.
        assert_eq!(read(20).unwrap(), until_level);
        assert_eq!(read(16).unwrap(), Last { level: 9, ..until_level });
        // In the middle of a member, before the key, after a count without its elements, and in a
        // place that is not the last.
        for cut in [0, 3, 12, 17, 28, 30] {
            let error = read(cut).unwrap_err();
            assert!(matches!(error.kind, FaultKind::Truncated | FaultKind::BadLength), "{cut}: {error}");
        }
        assert_eq!(read(5).unwrap_err().kind, FaultKind::Truncated);
    }
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
#[polywire(appendable)]
struct Tail {
    id: u32,
    last: Last2,
}

#[test]
fn the_last_structure_of_a_message_may_be_shorter() {
    let bytes = encode("cdr", "be", &First { id: 5, at: First2 { x: 3 } });
    for backend in backends() {
        let lenient = decoder::<Tail>("cdr", "be,older", backend);
        assert_eq!(decode(&lenient, &bytes).unwrap(), Tail { id: 5, last: Last2 { x: 3, y: -1 } });
        // A structure whose first member is missing is missing as a whole.
        let alone = decode(&lenient, &bytes[..4]).unwrap();
        assert_eq!(alone, Tail { id: 5, last: Last2 { x: 0, y: -1 } });
    }
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
#[polywire(appendable)]
struct KeyLast {
    x: u8,
    #[polywire(key)]
    id: u32,
}

#[test]
fn a_key_cannot_be_missing() {
    for backend in backends() {
        let bytes = encode("xcdr2", "le", &First2 { x: 3 });
        let error = decode(&decoder::<KeyLast>("xcdr2", "older", backend), &bytes).unwrap_err();
        assert_eq!((error.kind, &*error.path), (FaultKind::MissingMember, "id"));
    }
}
