//! The texts of errors: they show ranges, names and the content of the message, and no internal
//! numbers.

use polywire_core::{
    codec::{self, Decoder, Options},
    layout::{Message, MessageField},
    program::Backend,
};
use polywire_derive::Message;

#[derive(Message, Debug, Clone, PartialEq)]
#[polywire(name = "Plant::Pump")]
struct Pump {
    #[polywire(idl = "octet")]
    o: u8,
    level: i16,
    on: bool,
    real: f32,
    name: String,
    mode: Mode,
    drive: Drive,
    many: Vec<u8>,
    grid: [i32; 3],
    letter: polywire_core::layout::Char8,
}

#[derive(Message, Debug, Clone, Copy, PartialEq)]
#[repr(u32)]
enum Mode {
    Idle,
    Manual,
    Automatic,
}

#[derive(Message, Debug, Clone, PartialEq)]
#[polywire(switch = "long")]
enum Drive {
    #[polywire(case(1), name = "fixed")]
    Fixed(u16),
    #[polywire(case(2), name = "geared")]
    Geared(f64),
}

fn said(format: &str, message: &[u8]) -> String {
    let codec = codec::find(format).unwrap();
    let backends =
        if cfg!(feature = "jit") { &[Backend::Interpreter, Backend::Jit][..] } else { &[Backend::Interpreter] };
    let texts = backends.iter().map(|backend| {
        let writer = Pump::shape().schema();
        let decoder = Decoder::<Pump>::with_backend(codec, &Options::default(), writer, *backend).unwrap();
        decoder.decode(message, &mut Pump::default_value()).expect_err("it is wrong").to_string()
    });
    let texts: Vec<String> = texts.collect();
    assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "{texts:?}");
    texts[0].clone()
}

#[test]
fn values_that_do_not_fit_say_what_does() {
    for (format, message, text) in [
        (
            "json",
            r#"{"o":256}"#,
            "o: the number does not fit the type (byte 5, expected a number from 0 to 255, got 256)",
        ),
        (
            "json",
            r#"{"o":"hot"}"#,
            r#"o: the value is not of the type (byte 5, expected a number from 0 to 255, got "hot")"#,
        ),
        (
            "json",
            r#"{"level":-40000}"#,
            "level: the number does not fit the type (byte 9, expected a number from -32768 to 32767, got -40000)",
        ),
        ("json", r#"{"on":1}"#, "on: the value is not of the type (byte 6, expected true or false, got 1)"),
        ("json", r#"{"real":[1]}"#, "real: the value is not of the type (byte 8, expected a number, got [)"),
        ("json", r#"{"name":7}"#, "name: the value is not of the type (byte 8, expected a string, got 7)"),
        ("json", r#"{"many":{}}"#, "many: the value is not of the type (byte 8, expected a sequence, got {)"),
        (
            "json",
            r#"{"letter":"ab"}"#,
            r#"letter: the value is not of the type (byte 10, expected a character, got "ab")"#,
        ),
        ("json", "[1]", "the value is not of the type (byte 0, expected a structure, got [)"),
        ("yaml", "o: 256", "o: the number does not fit the type (byte 3, expected a number from 0 to 255, got 256)"),
        (
            "xml",
            "<Plant.Pump><on>yes</on></Plant.Pump>",
            "on: the value is not of the type (byte 15, expected true or false, got yes)",
        ),
    ] {
        assert_eq!(said(format, message.as_bytes()), text, "{format}, {message}");
    }
    assert_eq!(
        said("json", br#"{"grid":[1,2]}"#),
        "grid: the array has another number of elements (byte 13, expected 3 elements, got 2)"
    );
    assert_eq!(said("json", br#"{"o":"#), "o: the message ends too early (byte 5, expected 1 byte more, got 0)");
}

#[test]
fn unknown_names_list_those_there_are() {
    for (format, message, text) in [
        (
            "json",
            r#"{"mode":"AUTOMATC"}"#,
            r#"mode: the enum has no such literal (byte 8, expected Idle, Manual, Automatic, got "AUTOMATC"); did you mean 'Automatic'?"#,
        ),
        (
            "json",
            r#"{"mode":9}"#,
            "mode: the enum has no such literal (byte 9, expected Idle, Manual, Automatic, got 9)",
        ),
        (
            "json",
            r#"{"drive":{"gered":1.5}}"#,
            r#"drive: the discriminator selects no case (byte 10, expected fixed, geared, got "gered"); did you mean 'geared'?"#,
        ),
        (
            "xml",
            "<Plant.Pump><mode>off</mode></Plant.Pump>",
            "mode: the enum has no such literal (byte 17, expected Idle, Manual, Automatic, got off)",
        ),
        (
            "xml",
            "<Plant.Pumps/>",
            "the value is not of the type (byte 1, expected Plant.Pump, got Plant.Pumps); did you mean 'Plant.Pump'?",
        ),
        ("xml-dom", "<Pump/>", "the value is not of the type (byte 1, expected Plant.Pump, got Pump)"),
    ] {
        let said = said(format, message.as_bytes());
        // Where a number is blamed is the format's affair.
        let place = |text: &str| text.replace("byte 8", "byte 9");
        assert_eq!(place(&said), place(text), "{format}, {message}");
    }
}

#[test]
fn unread_input_is_named() {
    for (format, message, what) in [
        ("xml", "<?xml version='1.0' encoding='UTF-16'?><Plant.Pump/>", "got UTF-16)"),
        ("xml", "<?xml version='1.1'?><Plant.Pump/>", "got 1.1)"),
        ("xml", "<!DOCTYPE a><Plant.Pump/>", "got <!DOCTYPE)"),
        ("yaml", "name: !mine x", "got !mine)"),
    ] {
        let said = said(format, message.as_bytes());
        assert!(said.contains("a part of the format that is not read") && said.ends_with(what), "{said}");
    }
}

/// Of binary messages bytes are no words; a mark of the format is shown as a byte.
#[test]
fn binary_formats_say_what_is_expected() {
    for (format, message, text) in [
        (
            "msgpack",
            &b"\x81\xA1o\xCD\x01\x00"[..],
            "o: the number does not fit the type (byte 6, expected a number from 0 to 255, got 256)",
        ),
        (
            "msgpack",
            b"\x81\xA1o\xA3hot",
            "o: the value is not of the type (byte 3, expected a number from 0 to 255, got 0xA3)",
        ),
        (
            "cbor",
            b"\xA1\x64mode\x09",
            "mode: the enum has no such literal (byte 7, expected Idle, Manual, Automatic, got 9)",
        ),
        (
            "ubjson",
            b"{i\x01oSi\x03hot}",
            "o: the value is not of the type (byte 4, expected a number from 0 to 255, got 'S')",
        ),
        ("cdr", b"\x07\0\0", "the message ends too early"),
    ] {
        let said = said(format, message);
        assert!(said.starts_with(text) || said.contains(text), "{format}: {said}");
        assert!(!said.contains("expected 0"), "{said}");
    }
}
