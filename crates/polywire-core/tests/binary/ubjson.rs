//! UBJSON compared with other implementations: golden vectors, containers of every form, py-ubjson.

use super::wire_support::*;
use polywire_core::{
    codec::ubjson::validate,
    layout::{Float128, Message},
    program::{FaultKind, Limits},
};
use polywire_derive::Message;
use polywire_testing::tools;
use std::{collections::BTreeMap, process::Command};

#[test]
fn golden_vectors() {
    assert!(golden("ubjson") >= 12);
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
    Octets Vec<u8>, "sequence<octet>";
    Shorts Vec<u16>;
    Larges Vec<u64>;
    Flags Vec<bool>;
    Texts Vec<String>;
    Map BTreeMap<i32, i16>;
    Parts Vec<Place>;
    Quad Float128;
}

/// As the one member of an object.
fn wrapped(bytes: &[u8]) -> Vec<u8> {
    [b"{i\x05value", bytes, b"}"].concat()
}

fn check<T: Message + PartialEq + std::fmt::Debug>(value: T, written: &[u8], read_too: &[&[u8]]) {
    assert_eq!(hex(&encode("ubjson", &value)), hex(&wrapped(written)), "{value:?}");
    for bytes in [written].iter().chain(read_too) {
        let message = wrapped(bytes);
        assert_eq!(validate(&message, &Limits::default()), Ok(()), "{bytes:?}");
        assert_eq!(decode::<T>("ubjson", &message).as_ref(), Ok(&value), "{bytes:?}");
        for len in 0..message.len() {
            assert!(validate(&message[..len], &Limits::default()).is_err(), "{len} of {message:?}");
            assert!(decode::<T>("ubjson", &message[..len]).is_err(), "{len} of {message:?}");
        }
        // As a member that nobody knows.
        let message = [b"{i\x01x", *bytes, b"Ni\x05valuei\x07}"].concat();
        assert_eq!(decode::<Unsigned>("ubjson", &message), Ok(Unsigned { value: 7 }), "{bytes:?}");
    }
}

#[test]
fn numbers_in_every_form() {
    check(Unsigned { value: 200 }, b"U\xC8", &[b"I\0\xC8", b"NNl\0\0\0\xC8", b"Hi\x03200", b"D\x40\x69\0\0\0\0\0\0"]);
    check(Unsigned { value: 127 }, b"i\x7F", &[b"L\0\0\0\0\0\0\0\x7F", b"d\x42\xFE\0\0"]);
    check(Signed { value: -129 }, b"I\xFF\x7F", &[b"Hi\x04-129"]);
    check(Signed { value: i64::MIN }, b"L\x80\0\0\0\0\0\0\0", &[b"Hi\x14-9223372036854775808"]);
    check(Unsigned { value: u64::MAX }, b"Hi\x1418446744073709551615", &[]);
    check(Double { value: 1.5 }, b"D\x3F\xF8\0\0\0\0\0\0", &[b"d\x3F\xC0\0\0", b"Hi\x031.5", b"Hi\x0515e-1"]);
}

/// `value` as a high-precision number.
fn digits(value: &str) -> Vec<u8> {
    wrapped(&[&b"Hi"[..], &[value.len() as u8], value.as_bytes()].concat())
}

#[test]
fn integers_in_digits_are_exact_and_floats_the_nearest() {
    let signed = |text: &str| decode::<Signed>("ubjson", &digits(text)).map(|read| read.value).map_err(|e| e.kind);
    let unsigned = |text: &str| decode::<Unsigned>("ubjson", &digits(text)).map(|read| read.value).map_err(|e| e.kind);
    let double = |text: &str| decode::<Double>("ubjson", &digits(text)).map(|read| read.value).map_err(|e| e.kind);
    assert_eq!(signed("1234567890123456789.0"), Ok(1_234_567_890_123_456_789));
    assert_eq!(signed("-9223372036854775808.00"), Ok(i64::MIN));
    assert_eq!(unsigned("1844674407370955161500e-2"), Ok(u64::MAX));
    assert_eq!(signed("007"), Ok(7));
    for text in ["-9223372036854775809", "9223372036854775808", "1.00000000000000000001", "0.5", "1e400"] {
        assert_eq!(signed(text), Err(FaultKind::OutOfRange), "{text}");
    }
    for text in ["18446744073709551616", "-1", "-1.0", "1e400", "-1e400"] {
        assert_eq!(unsigned(text), Err(FaultKind::OutOfRange), "{text}");
    }
    assert_eq!(double("9007199254740993"), Ok(9_007_199_254_740_992.0));
    assert_eq!(double("1234567890123456789.0"), Ok(1_234_567_890_123_456_768.0));
    assert_eq!(double("-0").map(f64::to_bits), Ok((-0.0f64).to_bits()));
    for text in ["1e400", "-1e400", "1e99999999999"] {
        assert_eq!(double(text), Err(FaultKind::OutOfRange), "{text}");
    }
    for text in ["", "-", "+1", ".5", "1e", "0x1", "1 "] {
        assert_eq!(double(text), Err(FaultKind::Syntax), "{text}");
    }
    let quad = |text: &str| decode::<Quad>("ubjson", &digits(text)).map(|read| read.value).map_err(|e| e.kind);
    assert_eq!(quad("2.0"), Ok(Float128::from(2.0)));
    assert_eq!(quad("9007199254740993"), Err(FaultKind::OutOfRange));
}

#[test]
fn containers_in_every_form() {
    check(
        Octets { value: vec![1, 2] },
        b"[$U#i\x02\x01\x02",
        &[b"[i\x01Ni\x02]", b"[#i\x02i\x01U\x02", b"[$i#U\x02\x01\x02"],
    );
    check(Shorts { value: vec![1, 65535] }, b"[$l#i\x02\0\0\0\x01\0\0\xFF\xFF", &[b"[#i\x02i\x01l\0\0\xFF\xFF"]);
    check(Larges { value: vec![1, u64::MAX] }, b"[#i\x02i\x01Hi\x1418446744073709551615", &[]);
    check(Flags { value: vec![true, true] }, b"[#i\x02TT", &[b"[$T#i\x02", b"[TT]"]);
    check(
        Texts { value: vec!["a".into(), "bc".into()] },
        b"[#i\x02Si\x01aSi\x02bc",
        &[b"[$S#i\x02i\x01ai\x02bc", b"[CaSi\x02bc]"],
    );
    check(
        Map { value: [(-1, 5), (12, 300)].into() },
        b"{#i\x02i\x02-1i\x05i\x0212I\x01\x2C",
        &[b"{i\x02-1i\x05i\x0212I\x01\x2C}", b"{$I#i\x02i\x02-1\0\x05i\x0212\x01\x2C"],
    );
    let place = Place { latitude_deg: 0.0, longitude_deg: 0.0 };
    let names = [
        &b"{i\x0Clatitude_degD\0\0\0\0\0\0\0\0i\x0Dlongitude_degD\0\0\0\0\0\0\0\0}"[..],
        b"$D#i\x02i\x0Clatitude_deg\0\0\0\0\0\0\0\0i\x0Dlongitude_deg\0\0\0\0\0\0\0\0",
    ];
    check(
        Parts { value: vec![place] },
        &[b"[#i\x01", names[0]].concat(),
        &[&[b"[$", &b"{#i\x01"[..], names[1]].concat()],
    );
    let mut quad = b"[$U#i\x10\x40\0".to_vec();
    quad.extend([0; 14]);
    check(Quad { value: Float128::from(2.0) }, &quad, &[b"i\x02"]);
}

#[test]
fn malformed_messages_are_refused() {
    let kind = |bytes: &[u8]| decode::<Octets>("ubjson", &wrapped(bytes)).unwrap_err().kind;
    assert_eq!(kind(b"[$U#i\xFF"), FaultKind::BadLength);
    assert_eq!(kind(b"[$U#L\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF"), FaultKind::BadLength);
    assert_eq!(kind(b"[$U\x02\x01\x02"), FaultKind::Syntax);
    assert_eq!(kind(b"[$x#i\x02\x01\x02"), FaultKind::Syntax);
    assert_eq!(kind(b"[I\x01\x00]"), FaultKind::OutOfRange);
    assert_eq!(kind(b"{}"), FaultKind::WrongKind);
    let kind = |bytes: &[u8]| decode::<Unsigned>("ubjson", &wrapped(bytes)).unwrap_err().kind;
    assert_eq!(kind(b"Hi\x03inf"), FaultKind::Syntax);
    assert_eq!(kind(b"Hi\x03-12"), FaultKind::OutOfRange);
    assert_eq!(kind(b"Hi\x1418446744073709551616"), FaultKind::OutOfRange);
    assert_eq!(kind(b"Z"), FaultKind::WrongKind);
    // Nothing in endless number is passed over at once.
    let nothing = [b"{i\x01x[$Z#L\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF", &b"i\x05valuei\x07}"[..]].concat();
    assert_eq!(decode::<Unsigned>("ubjson", &nothing), Ok(Unsigned { value: 7 }));
}

/// Reads messages in hex, a line each, and prints them as py-ubjson writes them.
const ECHO: &str = "
import sys, ubjson
for line in sys.stdin:
    print(ubjson.dumpb(ubjson.loadb(bytes.fromhex(line), no_bytes=True)).hex())
";

#[test]
fn py_ubjson_reads_and_writes_the_same() {
    if !tools::python_has("ubjson") {
        return;
    }
    let values: Vec<Mixed> = (0..60).map(mixed).collect();
    let text: String = values.iter().map(|value| hex(&encode("ubjson", value)) + "\n").collect();
    let echoed = tools::output_of(Command::new(tools::python()).args(["-c", ECHO]), text.as_bytes()).unwrap();
    let echoed: Vec<Vec<u8>> = String::from_utf8(echoed).unwrap().lines().map(unhex).collect();
    assert_eq!(echoed.len(), values.len());
    for (bytes, value) in echoed.iter().zip(&values) {
        assert_eq!(decode::<Mixed>("ubjson", bytes).as_ref(), Ok(value));
    }
}

/// `py-ubjson` 0.16.1 writes every NaN and infinity as `Z`: `dumpb({"value": float("nan")})` is
/// `{U\x05valueZ}`.
#[test]
fn null_is_nan_where_a_float_must_be() {
    #[derive(Message, Debug, PartialEq, Clone)]
    struct Floats {
        value: f64,
        single: f32,
        quad: Float128,
        all: Vec<f64>,
        optional: Option<f64>,
        count: Option<u8>,
    }
    let text = b"{U\x05valueZU\x06singleZU\x04quadZU\x03all[D\x3F\xF0\0\0\0\0\0\0Z]U\x08optionalZU\x05countZ}";
    let floats: Floats = decode("ubjson", text).unwrap();
    assert!(floats.value.is_nan() && floats.single.is_nan() && floats.all[1].is_nan());
    assert_eq!(floats.quad.to_bits(), Float128::from(f64::NAN).to_bits());
    assert_eq!((floats.all[0], floats.optional, floats.count), (1.0, None, None));
    #[derive(Message, Debug, PartialEq, Clone)]
    struct Number {
        value: i32,
    }
    let error = decode::<Number>("ubjson", b"{U\x05valueZ}").unwrap_err();
    assert_eq!(error.kind, FaultKind::WrongKind);
}
