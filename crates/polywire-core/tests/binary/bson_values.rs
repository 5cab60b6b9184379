//! How values are encoded as BSON, and what they are decoded from. The crate `bson` is the oracle.

use super::bson_support::{decode, decode_from, encode, encode_with, round_trip};
use bson::{Binary, Bson, DateTime, Document, Timestamp, doc, spec::BinarySubtype};
use polywire_core::{
    codec::{CODECS, Codec, Encoder, Options, bson::BSON},
    layout::{Char8, Char16, Float128, Message},
    program::FaultKind,
};
use polywire_derive::Message;
use std::collections::BTreeMap;

/// What the `bson` crate makes of a value's document.
fn document<T: Message>(value: &T) -> Document {
    parse(&encode(value))
}

fn parse(bytes: &[u8]) -> Document {
    Document::from_reader(bytes).unwrap()
}

fn bytes(document: &Document) -> Vec<u8> {
    document.to_vec().unwrap()
}

fn number(octets: &[u8]) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::UserDefined(0x80), bytes: octets.to_vec() })
}

fn octets(octets: &[u8]) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: octets.to_vec() })
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Scalars {
    flag: bool,
    a: i8,
    b: i16,
    c: i32,
    d: i64,
    #[polywire(idl = "octet")]
    e: u8,
    f: u16,
    g: u32,
    h: u64,
    x: f32,
    y: f64,
    z: Float128,
    letter: Char8,
    unit: Char16,
}

fn scalars() -> Scalars {
    Scalars {
        flag: true,
        a: -128,
        b: i16::MIN,
        c: i32::MIN,
        d: i64::MIN,
        e: 255,
        f: u16::MAX,
        g: u32::MAX,
        h: i64::MAX as u64,
        x: 0.5,
        y: -1e300,
        z: Float128::from(2.5),
        letter: Char8(b'x'),
        unit: Char16(0x20AC),
    }
}

#[test]
fn scalars_have_kinds() {
    let want = doc! {
        "flag": true, "a": -128, "b": -32768, "c": i32::MIN, "d": i64::MIN, "e": 255, "f": 65535,
        "g": i64::from(u32::MAX), "h": i64::MAX, "x": 0.5, "y": -1e300,
        "z": number(&Float128::from(2.5).to_bits().to_le_bytes()), "letter": "x", "unit": "€",
    };
    assert_eq!(document(&scalars()), want);
    round_trip(&scalars());
    assert_eq!(decode::<Scalars>(&bytes(&want)), Ok(scalars()));
}

#[test]
fn what_a_kind_cannot_hold_is_written_as_another() {
    let large = Scalars { h: u64::MAX, letter: Char8(0xE9), unit: Char16(0xD800), ..scalars() };
    let written = document(&large);
    assert_eq!(written.get("h"), Some(&number(&[0xFF; 8])));
    assert_eq!(written.get_str("letter").unwrap(), "é");
    assert_eq!(written.get_i32("unit").unwrap(), 0xD800);
    round_trip(&large);
    round_trip(&Scalars { h: 1 << 63, letter: Char8(0), unit: Char16(0xDFFF), ..scalars() });
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Numbers {
    small: i8,
    int: i32,
    long: i64,
    large: u64,
    float: f32,
    double: f64,
}

#[test]
fn numbers_are_read_from_every_kind_that_holds_them() {
    let want = Numbers { small: 1, int: 2, long: 3, large: 4, float: 5.0, double: 6.0 };
    let as_ints = doc! { "small": 1, "int": 2, "long": 3, "large": 4, "float": 5, "double": 6 };
    let as_longs = doc! { "small": 1i64, "int": 2i64, "long": 3i64, "large": 4i64, "float": 5i64, "double": 6i64 };
    let as_doubles = doc! { "small": 1.0, "int": 2.0, "long": 3.0, "large": 4.0, "float": 5.0, "double": 6.0 };
    for document in [as_ints, as_longs, as_doubles] {
        assert_eq!(decode(&bytes(&document)), Ok(want.clone()));
    }
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    let cases: [(&str, Bson, FaultKind); 17] = [
        ("small", 128.into(), FaultKind::OutOfRange),
        ("small", 1.5.into(), FaultKind::OutOfRange),
        ("int", (1i64 << 31).into(), FaultKind::OutOfRange),
        ("int", f64::NAN.into(), FaultKind::OutOfRange),
        ("int", "1".into(), FaultKind::WrongKind),
        ("int", true.into(), FaultKind::WrongKind),
        ("int", Bson::Null, FaultKind::WrongKind),
        ("int", Bson::DateTime(DateTime::from_millis(1)), FaultKind::WrongKind),
        ("long", 9_223_372_036_854_775_808.0.into(), FaultKind::OutOfRange),
        ("long", f64::INFINITY.into(), FaultKind::OutOfRange),
        ("large", (-1).into(), FaultKind::OutOfRange),
        ("large", (-0.5).into(), FaultKind::OutOfRange),
        ("large", 1.9e19.into(), FaultKind::OutOfRange),
        ("large", number(&[1; 7]), FaultKind::WrongKind),
        ("large", octets(&[1; 8]), FaultKind::WrongKind),
        ("float", 1e39.into(), FaultKind::OutOfRange),
        ("double", ((1i64 << 53) + 1).into(), FaultKind::OutOfRange),
    ];
    for (name, value, want) in cases {
        let mut document = doc! { "small": 1, "int": 2, "long": 3, "large": 4, "float": 5, "double": 6 };
        document.insert(name, value.clone());
        let error = decode::<Numbers>(&bytes(&document)).unwrap_err();
        assert_eq!((error.kind, error.path.as_str()), (want, name), "{value:?}");
    }
}

#[test]
fn exact_limits_are_read() {
    let document = doc! {
        "small": -128.0, "int": f64::from(i32::MIN), "long": -9_223_372_036_854_775_808.0,
        "large": 9_223_372_036_854_775_808.0, "float": 16_777_216, "double": 1i64 << 53,
    };
    let want = Numbers {
        small: -128,
        int: i32::MIN,
        long: i64::MIN,
        large: 1 << 63,
        float: 16_777_216.0,
        double: 9_007_199_254_740_992.0,
    };
    assert_eq!(decode(&bytes(&document)), Ok(want));
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Times {
    at: i64,
    since: i64,
}

#[test]
fn times_are_milliseconds() {
    let document = doc! {
        "at": DateTime::from_millis(-5),
        "since": Bson::Timestamp(Timestamp { time: 7, increment: 3 }),
    };
    assert_eq!(decode(&bytes(&document)), Ok(Times { at: -5, since: 7000 }));
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Collections {
    text: String,
    #[polywire(idl = "wstring<3>")]
    wide: String,
    counts: Vec<i32>,
    #[polywire(idl = "sequence<octet>")]
    blob: Vec<u8>,
    small: Vec<u8>,
    #[polywire(idl = "octet[4]")]
    id: [u8; 4],
    matrix: [[f32; 2]; 3],
    large: [u64; 2],
    names: [String; 2],
    many: Vec<Place>,
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Place {
    latitude_deg: f64,
    name: String,
}

fn collections() -> Collections {
    Collections {
        text: "Gr\u{fc}\u{df}e\0".into(),
        wide: "\u{1F600}a".into(),
        counts: (0..1234).collect(),
        blob: vec![0, 255],
        small: vec![1, 2],
        id: [9, 8, 7, 6],
        matrix: [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        large: [1, u64::MAX],
        names: ["a".into(), "".into()],
        many: vec![Place { latitude_deg: 48.5, name: "M".into() }, Place::default()],
    }
}

#[test]
fn collections_are_arrays_and_octets_binary() {
    let want = doc! {
        "text": "Gr\u{fc}\u{df}e\0", "wide": "\u{1F600}a", "counts": (0..1234).collect::<Vec<i32>>(),
        "blob": octets(&[0, 255]), "small": [1, 2], "id": octets(&[9, 8, 7, 6]),
        "matrix": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "large": [Bson::Int64(1), number(&[0xFF; 8])], "names": ["a", ""],
        "many": [{ "latitude_deg": 48.5, "name": "M" }, { "latitude_deg": 0.0, "name": "" }],
    };
    assert_eq!(document(&collections()), want);
    assert_eq!(encode(&collections()), bytes(&want), "byte for byte what the bson crate writes");
    round_trip(&collections());
}

#[test]
fn octets_are_read_from_arrays_and_numbers_from_binary() {
    let mut document = document(&collections());
    document.insert("blob", [0, 255].to_vec());
    document.insert("id", [9.0, 8.0, 7.0, 6.0].to_vec());
    document.insert("small", octets(&[1, 2]));
    assert_eq!(decode(&bytes(&document)), Ok(collections()));
    let old = Bson::Binary(Binary { subtype: BinarySubtype::BinaryOld, bytes: vec![0, 255] });
    document.insert("blob", old);
    assert_eq!(decode(&bytes(&document)), Ok(collections()));
}

#[test]
fn arrays_have_their_number_of_elements_and_bounds_hold() {
    let cases: [(&str, Bson, FaultKind); 6] = [
        ("id", octets(&[1; 5]), FaultKind::Count),
        ("names", vec!["a"].into(), FaultKind::Count),
        ("names", vec!["a"; 3].into(), FaultKind::Count),
        ("wide", "1234".into(), FaultKind::Bound),
        ("counts", doc! {}.into(), FaultKind::WrongKind),
        ("many", Bson::Array(vec![doc! { "name": 1 }.into()]), FaultKind::WrongKind),
    ];
    for (name, value, want) in cases {
        let mut document = document(&collections());
        document.insert(name, value.clone());
        assert_eq!(decode::<Collections>(&bytes(&document)).unwrap_err().kind, want, "{name} {value:?}");
    }
    let long = Collections { wide: "1234".into(), ..collections() };
    assert_eq!(encode_with(&long, "").unwrap_err().kind, FaultKind::Bound);
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Maybe {
    count: Option<i32>,
    #[expect(clippy::box_collection, reason = "an external string is held so")]
    text: Option<Box<String>>,
    boxed: Box<f64>,
}

#[test]
fn absent_members_are_left_out_or_null() {
    let none = Maybe::default();
    let some = Maybe { count: Some(1), text: Some(Box::new("x".into())), boxed: Box::new(2.0) };
    assert_eq!(document(&none), doc! { "boxed": 0.0 });
    assert_eq!(parse(&encode_with(&none, "null=write").unwrap()), doc! { "count": null, "text": null, "boxed": 0.0 });
    assert_eq!(document(&some), doc! { "count": 1, "text": "x", "boxed": 2.0 });
    round_trip(&none);
    round_trip(&some);
    assert_eq!(decode(&encode_with(&none, "null=write").unwrap()), Ok(none));
}

#[test]
fn null_is_absent_if_only_the_reader_has_an_optional_member() {
    #[derive(Message, Debug, Default, PartialEq, Clone)]
    struct Always {
        count: i32,
        boxed: f64,
    }
    let read = |document: Document| decode_from::<Maybe>(Always::shape().schema(), &bytes(&document));
    assert_eq!(read(doc! { "count": null, "boxed": 2.0 }), Ok(Maybe { boxed: Box::new(2.0), ..Maybe::default() }));
    let error = read(doc! { "count": 1, "boxed": null }).unwrap_err();
    assert_eq!((error.kind, error.path.as_str()), (FaultKind::WrongKind, "boxed"));
}

#[derive(Message, Debug, Default, PartialEq, Clone, Copy, Eq, PartialOrd, Ord)]
enum State {
    #[default]
    Idle,
    Busy = 5,
    Failed = -2,
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct States {
    state: State,
    all: Vec<State>,
    by_state: BTreeMap<State, i32>,
}

fn states() -> States {
    let by_state = [(State::Failed, 1), (State::Busy, 2)].into();
    States { state: State::Failed, all: vec![State::Busy, State::Idle], by_state }
}

#[test]
fn enums_are_numbers_or_names_and_both_are_read() {
    let numbers = encode(&states());
    assert_eq!(parse(&numbers), doc! { "state": -2, "all": [5, 0], "by_state": { "-2": 1, "5": 2 } });
    let names = encode_with(&states(), "enum=name").unwrap();
    let want = doc! { "state": "Failed", "all": ["Busy", "Idle"], "by_state": { "Failed": 1, "Busy": 2 } };
    let read = parse(&names);
    assert_eq!((&read.get("state"), &read.get("all")), (&want.get("state"), &want.get("all")));
    assert_eq!(decode(&numbers), Ok(states()));
    assert_eq!(decode(&names), Ok(states()));
    for unknown in [Bson::from(3), "Lost".into(), 1e10.into()] {
        let document = doc! { "state": unknown, "all": [], "by_state": {} };
        let error = decode::<States>(&bytes(&document)).unwrap_err();
        assert!(matches!(error.kind, FaultKind::UnknownLiteral | FaultKind::OutOfRange), "{error}");
    }
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Maps {
    text: BTreeMap<String, u64>,
    signed: BTreeMap<i16, String>,
    unsigned: BTreeMap<u64, bool>,
    flags: BTreeMap<bool, Place>,
    letters: BTreeMap<Char16, Char16>,
}

#[test]
fn maps_are_documents() {
    let maps = Maps {
        text: [("".into(), u64::MAX), ("\u{12}\u{1}".into(), 1 << 63), ("k".into(), 1)].into(),
        signed: [(-5, "a".into()), (0, "b".into())].into(),
        unsigned: [(u64::MAX, true)].into(),
        flags: [(true, Place::default()), (false, Place::default())].into(),
        letters: [(Char16(0x41), Char16(0xDC00)), (Char16(0xE9), Char16(0x42))].into(),
    };
    let place = doc! { "latitude_deg": 0.0, "name": "" };
    let want = doc! {
        "text": { "": number(&[0xFF; 8]), "\u{12}\u{1}": number(&(1u64 << 63).to_le_bytes()), "k": 1i64 },
        "signed": { "-5": "a", "0": "b" },
        "unsigned": { "18446744073709551615": true },
        "flags": { "false": place.clone(), "true": place },
        "letters": { "A": 0xDC00, "é": "B" },
    };
    assert_eq!(document(&maps), want);
    round_trip(&maps);
}

#[test]
fn invalid_keys_are_refused() {
    let nul = Maps { text: [("a\0b".into(), 1)].into(), ..Maps::default() };
    let error = encode_with(&nul, "").unwrap_err();
    assert_eq!((error.kind, error.path.as_str()), (FaultKind::Unrepresentable, "text[0]"));
    let surrogate = Maps { letters: [(Char16(0xD800), Char16(0))].into(), ..Maps::default() };
    assert_eq!(encode_with(&surrogate, "").unwrap_err().kind, FaultKind::Unrepresentable);
    for key in ["", "x", "+1", "01", "-0", "1.0", "99999", " 1"] {
        let mut document = document(&Maps::default());
        document.insert("signed", doc! { key: "a" });
        let error = decode::<Maps>(&bytes(&document)).unwrap_err();
        assert!(matches!(error.kind, FaultKind::WrongKind | FaultKind::OutOfRange), "{key}: {error}");
    }
}

#[derive(Message, Debug, PartialEq, Clone)]
#[polywire(switch = "long")]
enum Choice {
    #[polywire(case(1))]
    Count(u64),
    #[polywire(case(2, 3))]
    Text(String),
    #[polywire(default)]
    Place(Place),
}

#[derive(Message, Debug, PartialEq, Clone)]
struct Choices {
    first: Choice,
    others: Vec<Choice>,
}

#[test]
fn unions_are_documents_of_the_chosen_member() {
    let choices = Choices {
        first: Choice::Count(u64::MAX),
        others: vec![Choice::Text("x".into()), Choice::Place(Place::default()), Choice::Count(1)],
    };
    let written = document(&choices);
    assert_eq!(written.get("first"), Some(&doc! { "Count": number(&[0xFF; 8]) }.into()));
    let others = written.get_array("others").unwrap();
    assert_eq!(others[0], doc! { "Text": "x" }.into());
    assert_eq!(others[2], doc! { "Count": 1i64 }.into());
    // No label says the default case, so its discriminator does.
    let default = others[1].as_document().unwrap();
    assert_eq!(default.keys().collect::<Vec<_>>(), ["$discriminator", "Place"]);
    round_trip(&choices);
}

#[test]
fn unions_are_read_from_any_order_and_refused_where_they_are_unclear() {
    let read = |union: Document| decode::<Choices>(&bytes(&doc! { "first": union, "others": [] })).map(|c| c.first);
    let text = || Choice::Text("x".into());
    assert_eq!(read(doc! { "Text": "x" }), Ok(text()));
    assert_eq!(read(doc! { "Text": "x", "$discriminator": 3i64 }), Ok(text()));
    assert_eq!(read(doc! { "more": [1], "Text": "x", "Count": 2, "$discriminator": 2.0 }), Ok(text()));
    assert_eq!(read(doc! { "Place": { "name": "" }, "$discriminator": 77 }), Ok(Choice::Place(Place::default())));
    let kind = |union: Document| read(union).unwrap_err().kind;
    assert_eq!(kind(doc! {}), FaultKind::UnknownCase);
    assert_eq!(kind(doc! { "Text": "x", "Count": 2 }), FaultKind::DuplicateMember);
    assert_eq!(kind(doc! { "$discriminator": 1, "Text": "x" }), FaultKind::MissingMember);
    assert_eq!(kind(doc! { "$discriminator": "1", "Count": 1 }), FaultKind::WrongKind);
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Tree {
    label: String,
    children: Vec<Tree>,
}

#[test]
fn recursive_types_nest() {
    let leaf = Tree { label: "leaf".into(), children: vec![] };
    let tree =
        Tree { label: "root".into(), children: vec![leaf.clone(), Tree { label: "".into(), children: vec![leaf] }] };
    let written = document(&tree);
    assert_eq!(written.get_array("children").unwrap().len(), 2);
    round_trip(&tree);
    let deep = (0..100).fold(Tree::default(), |inside, _| Tree { label: "x".into(), children: vec![inside] });
    assert_eq!(encode_with(&deep, "").unwrap_err().kind, FaultKind::TooDeep);
    let deep =
        (0..100).fold(doc! { "label": "", "children": [] }, |inside, _| doc! { "label": "", "children": [inside] });
    assert_eq!(decode::<Tree>(&bytes(&deep)).unwrap_err().kind, FaultKind::TooDeep);
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Grown {
    #[polywire(default = 7)]
    added: i16,
    d: i64,
    c: i64,
    x: f64,
    flag: bool,
    h: Option<u64>,
}

#[test]
fn members_move_go_come_and_widen() {
    let bytes = encode(&scalars());
    let want = Grown { added: 7, d: i64::MIN, c: i32::MIN.into(), x: 0.5, flag: true, h: Some(i64::MAX as u64) };
    assert_eq!(decode_from(Scalars::shape().schema(), &bytes), Ok(want));
}

#[test]
fn unknown_elements_of_every_kind_are_skipped() {
    let mut document = Document::new();
    let others = [
        Bson::Double(1.0),
        Bson::String("a\0b".into()),
        doc! { "a": { "b": [1] } }.into(),
        Bson::Array(vec![Bson::Null]),
        octets(&[1, 2, 3]),
        Bson::Undefined,
        Bson::ObjectId([7; 12].into()),
        true.into(),
        Bson::DateTime(DateTime::from_millis(1)),
        Bson::Null,
        Bson::RegularExpression(bson::Regex {
            pattern: bson::raw::cstr!("a").into(),
            options: bson::raw::cstr!("").into(),
        }),
        Bson::JavaScriptCode("f()".into()),
        Bson::Symbol("s".into()),
        Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code: "g".into(), scope: doc! { "x": 1 } }),
        1.into(),
        Bson::Timestamp(Timestamp { time: 1, increment: 2 }),
        2i64.into(),
        Bson::Decimal128(bson::Decimal128::from_bytes([1; 16])),
        Bson::MinKey,
        Bson::MaxKey,
    ];
    for (i, other) in others.into_iter().enumerate() {
        document.insert(format!("unknown{i}"), other);
    }
    document.insert("since", 2i64);
    document.insert("at", 1i64);
    document.insert("last", Bson::Null);
    assert_eq!(decode(&bytes(&document)), Ok(Times { at: 1, since: 2 }));
}

#[test]
fn members_come_once_and_mandatory_ones_have_defaults() {
    assert_eq!(decode(&bytes(&doc! { "at": 1 })), Ok(Times { at: 1, since: 0 }));
    let mut twice = b"\0\0\0\0\x10at\0\x01\0\0\0\x10at\0\x02\0\0\0\0".to_vec();
    twice[0] = twice.len() as u8;
    let error = decode::<Times>(&twice).unwrap_err();
    assert_eq!(error.kind, FaultKind::DuplicateMember);
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Keyed {
    #[polywire(key)]
    id: u32,
}

#[test]
fn keys_must_be_there() {
    let error = decode::<Keyed>(&bytes(&doc! {})).unwrap_err();
    assert_eq!((error.kind, error.path.as_str()), (FaultKind::MissingMember, "id"));
}

#[derive(Message, Debug, Default, PartialEq, Clone, Copy)]
#[polywire(bitmask(bit_bound = 8, A = 0, B = 7))]
struct Small(u8);

#[derive(Message, Debug, Default, PartialEq, Clone, Copy)]
#[polywire(bitmask(bit_bound = 64, A = 0, Z = 63))]
struct Large(u64);

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Masks {
    small: Small,
    large: Large,
}

#[test]
fn bitmasks_are_integers() {
    let masks = Masks { small: Small(129), large: Large(1 << 63 | 1) };
    let large = number(&(1u64 << 63 | 1).to_le_bytes());
    assert_eq!(document(&masks), doc! { "small": 129, "large": large });
    round_trip(&masks);
}

#[test]
fn roots_that_are_not_documents_are_wrapped() {
    assert_eq!(document(&State::Busy), doc! { "value": 5 });
    assert_eq!(document(&Large(u64::MAX)), doc! { "value": number(&[0xFF; 8]) });
    round_trip(&State::Failed);
    round_trip(&Large(u64::MAX));
    assert_eq!(document(&Choice::Count(3)), doc! { "Count": 3i64 });
    round_trip(&Choice::Text("x".into()));
    assert_eq!(decode::<State>(&bytes(&doc! {})).unwrap_err().kind, FaultKind::MissingMember);
}

#[test]
fn the_codec_is_in_the_table_and_checks_its_options() {
    assert!(CODECS.iter().any(|codec| codec.name() == BSON.name()));
    let wrong: Options = "enum=letters".parse().unwrap();
    assert!(Encoder::<Times>::new(&BSON, &wrong).is_err());
}
