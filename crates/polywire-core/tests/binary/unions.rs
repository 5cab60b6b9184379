//! Unions in formats with named members: all these formats accept the forms that JSON accepts.

use polywire_core::{
    codec::{self, Decoder, Encoder, Options},
    layout::{Record, Shape},
    program::{Backend, FaultKind},
    schema::{Case, Def, Member, SchemaBuilder, Type},
};
use serde_json::{Value, json};
use std::sync::Arc;

const FORMATS: [&str; 5] = ["json", "bson", "msgpack", "cbor", "ubjson"];

/// A structure with a union switched by such a discriminator: cases `a` (two labels), `b`, and a
/// default case.
fn shape(discriminator: Type, labels: [i64; 3]) -> Arc<Shape> {
    let mut types = SchemaBuilder::new();
    let colour = types.add(Def::enumeration("Colour", ["RED", "GREEN", "BLUE", "GREY"]));
    let discriminator = if discriminator == Type::string() { Type::Def(colour) } else { discriminator };
    let [first, second, third] = labels;
    let union = Def::union(
        "U",
        discriminator,
        vec![
            Case::new([first, second], "a", Type::Uint8),
            Case::new([third], "b", Type::string()),
            Case::default("c", Type::Bool),
        ],
    );
    let union = types.add(union);
    let root = types.add(Def::structure("Root", vec![Member::new("u", Type::Def(union))]));
    Shape::of(&types.finish(Type::Def(root)).unwrap()).unwrap()
}

fn by_enum() -> Arc<Shape> {
    shape(Type::string(), [0, 1, 2])
}

fn by_char() -> Arc<Shape> {
    shape(Type::Char8, [97, 98, 99])
}

fn by_number() -> Arc<Shape> {
    shape(Type::Int32, [0, 1, 3])
}

fn read(shape: &Arc<Shape>, format: &str, value: &Value) -> Result<Record, FaultKind> {
    let bytes = written(format, value);
    let codec = codec::find(format).unwrap();
    let backends =
        if cfg!(feature = "jit") { &[Backend::Interpreter, Backend::Jit][..] } else { &[Backend::Interpreter] };
    let results = backends.iter().map(|backend| {
        let options = Options::default();
        let decoder = Decoder::for_shape_with_backend(codec, &options, shape.schema(), shape, *backend).unwrap();
        let mut record = Record::new(shape);
        decoder.decode(&bytes, &mut record).map(|_| record).map_err(|error| error.kind)
    });
    let results: Vec<_> = results.collect();
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{format}, {value}");
    results[0].clone()
}

/// The value as a document of the format, members in order.
fn written(format: &str, value: &Value) -> Vec<u8> {
    match format {
        "json" => value.to_string().into_bytes(),
        "bson" => bson(value),
        _ => {
            let mut out = Vec::new();
            item(format, value, &mut out);
            out
        }
    }
}

fn item(format: &str, value: &Value, out: &mut Vec<u8>) {
    let len = |len: usize| u8::try_from(len).unwrap();
    match (format, value) {
        ("msgpack", Value::Object(map)) => out.push(0x80 | len(map.len())),
        ("cbor", Value::Object(map)) => out.push(0xA0 | len(map.len())),
        ("ubjson", Value::Object(_)) => out.push(b'{'),
        ("msgpack", Value::String(text)) => out.push(0xA0 | len(text.len())),
        ("cbor", Value::String(text)) => out.push(0x60 | len(text.len())),
        ("ubjson", Value::String(text)) => out.extend([b'S', b'i', len(text.len())]),
        ("msgpack", Value::Bool(yes)) => out.push(0xC2 | u8::from(*yes)),
        ("cbor", Value::Bool(yes)) => out.push(0xF4 | u8::from(*yes)),
        ("ubjson", Value::Bool(yes)) => out.push(if *yes { b'T' } else { b'F' }),
        ("msgpack" | "cbor", Value::Number(number)) => {
            out.extend([if format == "cbor" { 0x18 } else { 0xCC }, len(number.as_u64().unwrap() as usize)]);
        }
        ("ubjson", Value::Number(number)) => out.extend([b'U', len(number.as_u64().unwrap() as usize)]),
        other => panic!("{other:?}"),
    }
    match value {
        Value::String(text) => out.extend(text.bytes()),
        Value::Object(map) => {
            for (name, value) in map {
                let mut key = Vec::new();
                item(format, &json!(name), &mut key);
                out.extend(&key[usize::from(format == "ubjson")..]);
                item(format, value, out);
            }
            out.extend((format == "ubjson").then_some(b'}'));
        }
        _ => {}
    }
}

fn bson(value: &Value) -> Vec<u8> {
    let mut out = vec![0; 4];
    for (name, value) in value.as_object().unwrap() {
        let (kind, bytes) = match value {
            Value::Object(_) => (3, bson(value)),
            Value::String(text) => (2, [&(text.len() as u32 + 1).to_le_bytes()[..], text.as_bytes(), &[0]].concat()),
            Value::Bool(yes) => (8, vec![u8::from(*yes)]),
            number => (16, (number.as_i64().unwrap() as i32).to_le_bytes().to_vec()),
        };
        out.push(kind);
        out.extend(name.bytes().chain([0]).chain(bytes));
    }
    out.push(0);
    let len = (out.len() as u32).to_le_bytes();
    out[..4].copy_from_slice(&len);
    out
}

fn same(shape: &Arc<Shape>, value: Value, meant: Value) {
    let meant = Record::from_json(shape, &meant.to_string()).unwrap();
    for format in FORMATS {
        let record =
            read(shape, format, &json!({ "u": value })).unwrap_or_else(|error| panic!("{format}, {value}: {error:?}"));
        assert_eq!(record, meant, "{format}, {value}");
    }
}

#[test]
fn a_default_case_needs_no_discriminator() {
    same(&by_enum(), json!({"c": true}), json!({"u": {"$discriminator": "GREY", "c": true}}));
    same(&by_number(), json!({"c": true}), json!({"u": {"$discriminator": 2, "c": true}}));
    same(&by_char(), json!({"c": true}), json!({"u": {"$discriminator": "\u{0}", "c": true}}));
}

#[test]
fn a_discriminator_may_be_a_name_or_a_character() {
    same(&by_enum(), json!({"$discriminator": "GREEN", "a": 7}), json!({"u": {"$discriminator": 1, "a": 7}}));
    same(&by_enum(), json!({"$discriminator": "BLUE", "b": "x"}), json!({"u": {"b": "x"}}));
    same(&by_enum(), json!({"$discriminator": "GREY", "c": true}), json!({"u": {"c": true}}));
    same(&by_char(), json!({"$discriminator": "b", "a": 7}), json!({"u": {"$discriminator": 98, "a": 7}}));
    same(&by_char(), json!({"$discriminator": "z", "c": true}), json!({"u": {"$discriminator": 122, "c": true}}));
    same(&by_number(), json!({"$discriminator": 1, "a": 7}), json!({"u": {"$discriminator": 1, "a": 7}}));
}

/// In JSON the discriminator comes first, because the value depends on it. In other formats it may
/// come anywhere.
#[test]
fn a_late_discriminator_counts_where_it_may_be_late() {
    let shape = by_enum();
    // The map of `serde_json` is sorted: the name that comes last is put right in the bytes.
    let value = json!({"u": {"b": "x", "zdiscriminator": "BLUE"}});
    for format in FORMATS {
        let mut bytes = written(format, &value);
        let at = bytes.windows(14).position(|name| name == b"zdiscriminator").unwrap();
        bytes[at] = b'$';
        let decoder =
            Decoder::for_shape(codec::find(format).unwrap(), &Options::default(), shape.schema(), &shape).unwrap();
        let mut record = Record::new(&shape);
        let outcome = decoder.decode(&bytes, &mut record).map(|_| record).map_err(|error| error.kind);
        let meant = Record::from_json(&shape, r#"{"u":{"b":"x"}}"#).unwrap();
        assert_eq!(outcome, if format == "json" { Err(FaultKind::UnknownCase) } else { Ok(meant) }, "{format}");
    }
}

#[test]
fn unknown_discriminators_are_named() {
    for format in FORMATS {
        let outcome = |shape: &Arc<Shape>, value: Value| read(shape, format, &json!({ "u": value })).unwrap_err();
        assert_eq!(outcome(&by_enum(), json!({})), FaultKind::UnknownCase, "{format}");
        assert_eq!(outcome(&by_enum(), json!({"d": 1})), FaultKind::UnknownCase, "{format}");
        let unknown = outcome(&by_enum(), json!({"$discriminator": "PINK", "c": true}));
        assert_eq!(unknown, FaultKind::UnknownLiteral, "{format}");
        let wrong = outcome(&by_number(), json!({"$discriminator": "x", "c": true}));
        assert_eq!(wrong, FaultKind::WrongKind, "{format}");
        let missing = outcome(&by_enum(), json!({"$discriminator": "RED"}));
        assert_eq!(missing, FaultKind::MissingMember, "{format}");
    }
}

/// With `struct=array` a union is a pair, whose first may be a name, too.
#[test]
fn pairs_take_names_too() {
    let shape = by_enum();
    for (format, bytes) in [("msgpack", &b"\x91\x92\xA5GREEN\x07"[..]), ("cbor", b"\x81\x82\x65GREEN\x07")] {
        let codec = codec::find(format).unwrap();
        let options: Options = "struct=array".parse().unwrap();
        let decoder = Decoder::for_shape(codec, &options, shape.schema(), &shape).unwrap();
        let mut record = Record::new(&shape);
        decoder.decode(bytes, &mut record).unwrap();
        assert_eq!(record, Record::from_json(&shape, r#"{"u":{"$discriminator":"GREEN","a":7}}"#).unwrap(), "{format}");
        let mut again = Vec::new();
        Encoder::for_shape(codec, &options, &shape).unwrap().encode(&record, &mut again).unwrap();
        assert_eq!(again.len(), bytes.len() - 5, "{format}: as a number");
    }
}
