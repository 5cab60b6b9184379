//! MessagePack compared with other implementations: golden vectors, the public test suite,
//! `rmp-serde` and `rmpv`.

use super::wire_support::*;
use polywire_core::{
    codec::msgpack::validate,
    program::{FaultKind, Limits},
};
use polywire_derive::Message;
use serde_json::Value;
use std::collections::BTreeMap;

#[test]
fn golden_vectors() {
    assert!(golden("msgpack") >= 4);
}

#[test]
fn rmp_serde_reads_and_writes_the_same() {
    for n in 0..70 {
        let value = mixed(n);
        let ours = round_trip("msgpack:null=write", &value);
        assert_eq!(hex(&ours), hex(&rmp_serde::to_vec_named(&value).unwrap()), "{n}");
        assert_eq!(
            rmp_serde::from_slice::<Mixed>(&encode("msgpack", &skip_empty(&value))).unwrap(),
            skip_empty(&value)
        );
        let rows = round_trip("msgpack:struct=array", &value);
        assert_eq!(hex(&rows), hex(&rmp_serde::to_vec(&value).unwrap()), "{n}");
        assert_eq!(rmp_serde::from_slice::<Mixed>(&rows).unwrap(), value);
    }
}

/// What an absent member is to a reader that asks for all of them, it cannot say.
fn skip_empty(value: &Mixed) -> Mixed {
    Mixed { maybe: Some(1), note: Some("n".into()), ..value.clone() }
}

#[test]
fn rmpv_finds_a_map_in_order() {
    let value = rmpv::decode::read_value(&mut &encode("msgpack", &mixed(4))[..]).unwrap();
    let rmpv::Value::Map(entries) = value else { panic!("no map") };
    let names: Vec<&str> = entries.iter().filter_map(|(key, _)| key.as_str()).collect();
    assert_eq!(names[..3], ["flag", "a", "b"]);
    // Of twenty-two members one is absent.
    assert_eq!((names.len(), names.contains(&"note")), (21, false));
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
    Texts Vec<String>;
    Numbers Vec<i32>;
    Map BTreeMap<String, String>;
}

/// As the one member of a map.
fn wrapped(bytes: &[u8]) -> Vec<u8> {
    [b"\x81\xA5value", bytes].concat()
}

fn check<T: polywire_core::layout::Message + PartialEq + std::fmt::Debug>(
    forms: &[Vec<u8>],
    value: T,
    canonical: bool,
) {
    for form in forms {
        assert_eq!(decode::<T>("msgpack", &wrapped(form)).as_ref(), Ok(&value), "{}", hex(form));
    }
    if canonical {
        // As short as the first: a number that fits both kinds of integer has two such forms.
        let ours = encode("msgpack", &value);
        let known = forms.iter().any(|form| form.len() == forms[0].len() && wrapped(form) == ours);
        assert!(known, "{} is none of the forms of {value:?}", hex(&ours));
    }
}

#[test]
fn the_public_suite() {
    let Some(text) = corpus("msgpack/msgpack-test-suite.json") else { return };
    let suite: BTreeMap<String, Vec<Value>> = serde_json::from_str(&text).unwrap();
    let (mut seen, mut read) = (0, 0);
    for case in suite.values().flatten() {
        let forms: Vec<Vec<u8>> =
            case["msgpack"].as_array().unwrap().iter().map(|form| unhex(form.as_str().unwrap())).collect();
        for form in &forms {
            seen += 1;
            assert_eq!(validate(form, &Limits::default()), Ok(()));
            // As a member that nobody knows, in front of one that is known.
            let message = [b"\x82\xA1x", &form[..], b"\xA5value\x07"].concat();
            assert_eq!(decode::<Unsigned>("msgpack", &message), Ok(Unsigned { value: 7 }), "{}", hex(form));
            for len in 0..form.len() {
                assert!(validate(&form[..len], &Limits::default()).is_err());
            }
        }
        read += forms.len();
        let number = case.get("bignum").map(|text| text.as_str().unwrap().parse::<i128>().unwrap());
        let number = number.or_else(|| case.get("number").and_then(|n| n.as_i64()).map(i128::from));
        if let Some(number) = number {
            if let Ok(value) = u64::try_from(number) {
                check(&forms, Unsigned { value }, true);
            }
            if let Ok(value) = i64::try_from(number) {
                check(&forms, Signed { value }, true);
            }
        } else if let Some(value) = case.get("number").and_then(Value::as_f64) {
            check(&forms, Double { value }, false);
        } else if let Some(value) = case.get("bool").and_then(Value::as_bool) {
            check(&forms, Boolean { value }, true);
        } else if let Some(text) = case.get("string").and_then(Value::as_str) {
            check(&forms, Text { value: text.into() }, true);
        } else if let Some(text) = case.get("binary").and_then(Value::as_str) {
            check(&forms, Octets { value: unhex(text) }, true);
        } else if let Ok(value) = serde_json::from_value(case["array"].clone()) {
            check(&forms, Numbers { value }, true);
        } else if let Ok(value) = serde_json::from_value(case["array"].clone()) {
            check(&forms, Texts { value }, true);
        } else if let Ok(value) = serde_json::from_value(case["map"].clone()) {
            check(&forms, Map { value }, true);
        } else {
            read -= forms.len();
        }
    }
    assert!(seen > 150 && read > 100, "{seen} {read}");
}

#[test]
fn names_and_numbers_in_any_form() {
    let forms: [&[u8]; 4] = [
        b"\xDE\x00\x01\xD9\x05value\x07",
        b"\xDF\x00\x00\x00\x01\xDA\x00\x05value\xCB\x40\x1C\x00\x00\x00\x00\x00\x00",
        b"\x83\x05\x01\xC4\x01a\x02\xDB\x00\x00\x00\x05value\xD3\x00\x00\x00\x00\x00\x00\x00\x07",
        b"\x82\xA1t\xC7\x0C\xFF\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\xA5value\x07",
    ];
    for form in forms {
        assert_eq!(decode::<Unsigned>("msgpack", form), Ok(Unsigned { value: 7 }), "{}", hex(form));
    }
    let kind = |bytes: &[u8]| decode::<Unsigned>("msgpack", bytes).unwrap_err().kind;
    assert_eq!(kind(&wrapped(b"\xA17")), FaultKind::WrongKind);
    assert_eq!(kind(&wrapped(b"\xFF")), FaultKind::OutOfRange);
    assert_eq!(kind(&wrapped(b"\xC1")), FaultKind::Syntax);
    assert_eq!(kind(b"\x82\xA5value\x01\xA5value\x02"), FaultKind::DuplicateMember);
    assert_eq!(kind(b"\x91\x07"), FaultKind::WrongKind);
}
