//! CBOR compared with other implementations: golden vectors, appendix A of RFC 8949, `ciborium` and
//! `minicbor`.

use super::wire_support::*;
use polywire_core::{
    codec::cbor::validate,
    layout::{Float128, Message},
    program::Limits,
};
use polywire_derive::Message;
use serde_json::Value;
use std::collections::BTreeMap;

#[test]
fn golden_vectors() {
    assert!(golden("cbor") >= 4);
}

#[test]
fn ciborium_and_minicbor_read_and_write_the_same() {
    for n in 0..70 {
        let value = mixed(n);
        let ours = round_trip("cbor:null=write", &value);
        assert_eq!(ciborium::from_reader::<Mixed, _>(&ours[..]).unwrap(), value);
        assert_eq!(minicbor_serde::from_slice::<Mixed>(&ours).unwrap(), value);
        // They write floats as short as may be.
        let theirs = minicbor_serde::to_vec(&value).unwrap();
        assert_eq!(decode::<Mixed>("cbor", &theirs).as_ref(), Ok(&value));
        let mut theirs = Vec::new();
        ciborium::into_writer(&value, &mut theirs).unwrap();
        assert_eq!(decode::<Mixed>("cbor", &theirs).as_ref(), Ok(&value));
        round_trip("cbor:struct=array", &value);
    }
}

macro_rules! one {
    ($($name:ident $ty:ty $(, $idl:literal)?;)*) => {$(
        #[derive(Message, Debug, PartialEq, Clone)]
        struct $name {
            $(#[polywire(idl = $idl)])?
            value: $ty,
        }
    )*};
}

one! {
    Unsigned u64;
    Signed i64;
    Double f64;
    Boolean bool;
    Text String;
    Octets Vec<u8>, "sequence<octet>";
    Numbers Vec<i64>;
    Doubles Vec<f64>;
    Singles Vec<f32>;
    Texts BTreeMap<String, String>;
    Map BTreeMap<i64, i64>;
    Optional Option<bool>;
    Quad Float128;
}

/// Byte strings may come in pieces (RFC 8949, section 3.2.3), even if they are a number.
#[test]
fn numbers_in_pieces() {
    let quad = Float128::from(-1.5);
    let octets = quad.to_bits().to_be_bytes();
    let whole = [b"\x50", &octets[..]].concat();
    check(&whole, Quad { value: quad }, true);
    let pieces = [b"\x5F\x43", &octets[..3], b"\x40\x4D", &octets[3..], b"\xFF"].concat();
    check(&pieces, Quad { value: quad }, false);
    check(b"\xC2\x5F\x41\x01\x42\x00\x02\xFF", Unsigned { value: 0x1_0002 }, false);
    check(b"\xC3\x5F\x40\x42\x00\xFF\xFF", Signed { value: -0x100 }, false);
    for bad in [
        [b"\x5F\x50", &octets[..], b"\x41\x00\xFF"].concat(),
        [b"\x5F\x4F", &octets[..15], b"\xFF"].concat(),
        b"\x5F\x61a\xFF".to_vec(),
        [b"\x5F\x50", &octets[..]].concat(),
    ] {
        assert!(decode::<Quad>("cbor", &wrapped(&bad)).is_err(), "{}", hex(&bad));
    }
    let large = b"\xC2\x5F\x45\x01\x02\x03\x04\x05\x44\x06\x07\x08\x09\xFF";
    assert!(decode::<Unsigned>("cbor", &wrapped(large)).is_err(), "nine octets");
}

/// The elements of an array may be written in different sizes, wherever they stand.
#[test]
fn arrays_of_numbers_in_all_sizes() {
    let double = |value: f64| [b"\xFB", &value.to_be_bytes()[..]].concat();
    let single = |value: f32| [b"\xFA", &value.to_be_bytes()[..]].concat();
    let (half, integer) = (b"\xF9\x38\x00".to_vec(), b"\x07".to_vec());
    let elements = [double(1.1), double(-0.0), half, single(2.5), double(3.1), integer, single(-8.25), single(9.5)];
    let array = |elements: &[Vec<u8>]| [&[0x80 | elements.len() as u8], &elements.concat()[..]].concat();
    check(&array(&elements), Doubles { value: vec![1.1, -0.0, 0.5, 2.5, 3.1, 7.0, -8.25, 9.5] }, false);
    let (narrow, values) = ([&elements[2..4], &elements[5..]].concat(), [0.5, 2.5, 7.0, -8.25, 9.5]);
    check(&array(&narrow), Singles { value: values.into() }, false);
    let bytes = array(&elements);
    for len in 1..bytes.len() {
        assert!(decode::<Doubles>("cbor", &wrapped(&bytes[..len])).is_err(), "{len} bytes");
    }
    for other in [b"\x61a".to_vec(), b"\xF5".to_vec(), b"\x80".to_vec()] {
        let bad = array(&[double(1.1), double(2.1), other, double(3.1)]);
        let error = decode::<Doubles>("cbor", &wrapped(&bad)).expect_err("not a number").to_string();
        assert!(error.contains("value"), "{error}");
    }
}

/// As the one member of a map.
fn wrapped(bytes: &[u8]) -> Vec<u8> {
    [b"\xA1\x65value", bytes].concat()
}

fn check<T: Message + PartialEq + std::fmt::Debug>(bytes: &[u8], value: T, preferred: bool) {
    let read = decode::<T>("cbor", &wrapped(bytes));
    assert_eq!(format!("{read:?}"), format!("{:?}", Ok::<_, ()>(&value)), "{}", hex(bytes));
    if preferred {
        assert_eq!(hex(&encode("cbor:deterministic", &value)), hex(&wrapped(bytes)));
    }
}

#[test]
fn appendix_a() {
    let vectors = lines("cbor/appendix-a.jsonl");
    assert_eq!(vectors.len(), 81);
    for vector in &vectors {
        let bytes = unhex(vector["hex"].as_str().unwrap());
        let (value, preferred) = (&vector["value"], vector["preferred"] == Value::Bool(true));
        assert_eq!(validate(&bytes, &Limits::default()), Ok(()), "{vector}");
        (0..bytes.len()).for_each(|len| assert!(validate(&bytes[..len], &Limits::default()).is_err(), "{vector}"));
        let message = [b"\xBF\x61x", &bytes[..], b"\x65value\x07\xFF"].concat();
        assert_eq!(decode::<Unsigned>("cbor", &message), Ok(Unsigned { value: 7 }), "{vector}");
        let json = |value: &Value| value.clone();
        match vector["type"].as_str().unwrap() {
            "uint64" => check(&bytes, Unsigned { value: value.as_u64().unwrap() }, preferred),
            "int64" => check(&bytes, Signed { value: value.as_i64().unwrap() }, preferred),
            "boolean" => check(&bytes, Boolean { value: value.as_bool().unwrap() }, preferred),
            "string" => check(&bytes, Text { value: value.as_str().unwrap().into() }, preferred),
            "bytes" => check(&bytes, Octets { value: serde_json::from_value(json(value)).unwrap() }, preferred),
            "null" => check(&bytes, Optional { value: None }, false),
            "sequence<int64>" => {
                check(&bytes, Numbers { value: serde_json::from_value(json(value)).unwrap() }, preferred);
            }
            "map<string,string>" => {
                check(&bytes, Texts { value: serde_json::from_value(json(value)).unwrap() }, preferred);
            }
            "map<int64,int64>" => check(&bytes, Map { value: [(1, 2), (3, 4)].into() }, preferred),
            "double" => {
                let value = value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap());
                check(&bytes, Double { value }, preferred);
            }
            "bignum" | "simple" | "other" => assert!(decode::<Unsigned>("cbor", &wrapped(&bytes)).is_err()),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn small_bignums_are_integers() {
    check(b"\xC2\x43\x01\x00\x00", Unsigned { value: 65_536 }, false);
    check(b"\xC2\x4A\x00\x00\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", Unsigned { value: u64::MAX }, false);
    check(b"\xC3\x41\x09", Signed { value: -10 }, false);
    check(b"\xD9\xD9\xF7\xC2\x40", Unsigned { value: 0 }, false);
}

#[derive(Message, Debug, PartialEq, Clone)]
struct Ordered {
    bb: u8,
    a: Option<u8>,
    c: f64,
    map: BTreeMap<String, u8>,
    ints: BTreeMap<i32, bool>,
}

#[test]
fn deterministic_maps_are_sorted() {
    let value = Ordered {
        bb: 1,
        a: Some(2),
        c: 0.5,
        map: ["bb", "a", "", "aaa", "b"].map(|key| (key.to_owned(), 1)).into(),
        ints: [-300, -1, 0, 23, 24, 500].map(|key| (key, true)).into(),
    };
    let want = "a5 6161 02 6163 f93800 626262 01 636d6170 a5 60 01 6161 01 6162 01 626262 01 63616161 01 \
                64696e7473 a6 00 f5 17 f5 1818 f5 1901f4 f5 20 f5 39012b f5";
    assert_eq!(hex(&round_trip("cbor:deterministic", &value)), want.replace(' ', ""));
    let absent = Ordered { a: None, ..value };
    assert_eq!(hex(&round_trip("cbor:deterministic", &absent)), want.replace("a5 6161 02", "a4").replace(' ', ""));
    // cbor2 and others that sort write what we do.
    let many = Texts { value: (0..300).map(|n: u32| (format!("{}", n * 7919 % 1000), String::new())).collect() };
    let bytes = round_trip("cbor:deterministic", &many);
    let ciborium::Value::Map(entries) = ciborium::from_reader(&bytes[7..]).unwrap() else { panic!("no map") };
    let keys: Vec<&str> = entries.iter().filter_map(|(key, _)| key.as_text()).collect();
    assert!(keys.is_sorted_by_key(|key| (key.len(), *key)), "{keys:?}");
    assert_eq!(keys.len(), many.value.len());
}
