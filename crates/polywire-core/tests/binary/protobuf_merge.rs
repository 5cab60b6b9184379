//! Repeated occurrences of Protobuf fields, compared with `prost`: the last singular value wins,
//! elements are appended, messages are merged.

use std::collections::BTreeMap;

use super::wire_support::*;
use polywire_core::{
    codec::{self, Decoder, Options},
    layout::{Message, MessageField},
    program::FaultKind,
    schema::arbitrary::Random,
};
use polywire_derive::Message;
use prost::Message as _;

#[derive(Message, Debug, PartialEq, Clone)]
struct Outer {
    id: u32,
    inner: Inner,
    maybe: Option<Inner>,
    list: Vec<Inner>,
    map: BTreeMap<u32, Inner>,
    choice: Choice,
    tree: Tree,
    some: Option<Vec<u32>>,
}

#[derive(Message, Debug, PartialEq, Clone, Default)]
struct Inner {
    x: u32,
    text: String,
    numbers: Vec<i32>,
    deep: Deep,
}

#[derive(Message, Debug, PartialEq, Clone, Default)]
struct Deep {
    a: Option<u64>,
    b: f64,
    names: Vec<String>,
}

#[derive(Message, Debug, PartialEq, Clone)]
#[polywire(switch = "long")]
enum Choice {
    #[polywire(case(1))]
    Number(u32),
    #[polywire(case(2))]
    Deep(Deep),
    #[polywire(case(3))]
    Inner(Inner),
}

#[derive(Message, Debug, PartialEq, Clone, Default)]
struct Arrays {
    id: u32,
    numbers: [i32; 4],
    places: [Deep; 3],
    names: [String; 2],
    rows: Option<[[f32; 2]; 2]>,
    list: Vec<[u8; 2]>,
}

#[derive(Message, Debug, PartialEq, Clone, Default)]
struct Tree {
    value: u32,
    left: Option<Box<Tree>>,
    right: Option<Box<Tree>>,
}

/// The same as prost's generator has them.
#[derive(Clone, PartialEq, prost::Message)]
struct ProstOuter {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(message, optional, tag = "2")]
    inner: Option<ProstInner>,
    #[prost(message, optional, tag = "3")]
    maybe: Option<ProstInner>,
    #[prost(message, repeated, tag = "4")]
    list: Vec<ProstInner>,
    #[prost(btree_map = "uint32, message", tag = "5")]
    map: BTreeMap<u32, ProstInner>,
    #[prost(message, optional, tag = "6")]
    choice: Option<ProstChoice>,
    #[prost(message, optional, tag = "7")]
    tree: Option<ProstTree>,
    #[prost(message, optional, tag = "8")]
    some: Option<Repeated>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProstInner {
    #[prost(uint32, tag = "1")]
    x: u32,
    #[prost(string, tag = "2")]
    text: String,
    #[prost(sint32, repeated, tag = "3")]
    numbers: Vec<i32>,
    #[prost(message, optional, tag = "4")]
    deep: Option<ProstDeep>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProstDeep {
    #[prost(uint64, optional, tag = "1")]
    a: Option<u64>,
    #[prost(double, tag = "2")]
    b: f64,
    #[prost(string, repeated, tag = "3")]
    names: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProstChoice {
    #[prost(oneof = "Case", tags = "2, 3, 4")]
    case: Option<Case>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Case {
    #[prost(uint32, tag = "2")]
    Number(u32),
    #[prost(message, tag = "3")]
    Deep(ProstDeep),
    #[prost(message, tag = "4")]
    Inner(ProstInner),
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProstTree {
    #[prost(uint32, tag = "1")]
    value: u32,
    #[prost(message, optional, boxed, tag = "2")]
    left: Option<Box<ProstTree>>,
    #[prost(message, optional, boxed, tag = "3")]
    right: Option<Box<ProstTree>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Repeated {
    #[prost(uint32, repeated, tag = "1")]
    values: Vec<u32>,
}

fn outer(from: ProstOuter) -> Outer {
    Outer {
        id: from.id,
        inner: from.inner.map(inner).unwrap_or_default(),
        maybe: from.maybe.map(inner),
        list: from.list.into_iter().map(inner).collect(),
        map: from.map.into_iter().map(|(key, value)| (key, inner(value))).collect(),
        choice: match from.choice.and_then(|choice| choice.case) {
            None => Choice::Number(0),
            Some(Case::Number(number)) => Choice::Number(number),
            Some(Case::Deep(value)) => Choice::Deep(deep(value)),
            Some(Case::Inner(value)) => Choice::Inner(inner(value)),
        },
        tree: from.tree.map(tree).unwrap_or_default(),
        some: from.some.map(|repeated| repeated.values),
    }
}

fn inner(from: ProstInner) -> Inner {
    Inner { x: from.x, text: from.text, numbers: from.numbers, deep: from.deep.map(deep).unwrap_or_default() }
}

fn deep(from: ProstDeep) -> Deep {
    Deep { a: from.a, b: from.b, names: from.names }
}

fn tree(from: ProstTree) -> Tree {
    let part = |part: Option<Box<ProstTree>>| part.map(|part| Box::new(tree(*part)));
    Tree { value: from.value, left: part(from.left), right: part(from.right) }
}

/// Fields in any order, any number of times; none of those that must be there if it is inside a map
/// or a union.
struct Writer {
    random: Random,
    bytes: Vec<u8>,
}

impl Writer {
    fn number(&mut self, field: u32, value: u64) {
        prost::encoding::uint64::encode(field, &value, &mut self.bytes);
    }

    fn inside(&mut self, field: u32, fill: impl FnOnce(&mut Writer)) {
        let before = std::mem::take(&mut self.bytes);
        fill(self);
        let inside = std::mem::replace(&mut self.bytes, before);
        prost::encoding::bytes::encode(field, &inside, &mut self.bytes);
    }

    fn text(&mut self, field: u32) {
        let text = ["", "a", "some text"][self.random.below(3)].to_string();
        prost::encoding::string::encode(field, &text, &mut self.bytes);
    }

    fn outer(&mut self) {
        for _ in 0..self.random.below(12) {
            match self.random.below(10) {
                0 => self.number(1, 7),
                1 | 2 => self.inside(2, Writer::inner),
                3 => self.inside(3, Writer::inner),
                4 => self.inside(4, Writer::inner),
                5 => self.entry(),
                6 | 7 => self.inside(6, Writer::choice),
                8 => self.inside(7, |writer| writer.tree(5)),
                _ => self.inside(8, |writer| writer.number(1, 3)),
            }
        }
    }

    fn inner(&mut self) {
        for _ in 0..self.random.below(6) {
            match self.random.below(5) {
                0 => {
                    let value = self.random.below(1000) as u64;
                    self.number(1, value);
                }
                1 => self.text(2),
                2 => self.number(3, 9),
                3 => self.inside(4, Writer::deep),
                _ => self.number(15, 1),
            }
        }
    }

    fn deep(&mut self) {
        for _ in 0..self.random.below(4) {
            match self.random.below(3) {
                0 => {
                    let value = self.random.below(3) as u64;
                    self.number(1, value);
                }
                1 => prost::encoding::double::encode(2, &1.5, &mut self.bytes),
                _ => self.text(3),
            }
        }
    }

    fn entry(&mut self) {
        self.inside(5, |writer| {
            let key = writer.random.below(3) as u64;
            writer.number(1, key);
            for _ in 0..1 + writer.random.below(2) {
                writer.inside(2, Writer::inner);
            }
        });
    }

    fn choice(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            match self.random.below(5) {
                0 => self.number(2, 5),
                1 | 2 => self.inside(3, Writer::deep),
                _ => self.inside(4, Writer::inner),
            }
        }
    }

    fn tree(&mut self, depth: usize) {
        for _ in 0..self.random.below(if depth > 0 { 5 } else { 1 }) {
            match self.random.below(3) {
                0 => self.number(1, 1 + depth as u64),
                1 => self.inside(2, |writer| writer.tree(depth - 1)),
                _ => self.inside(3, |writer| writer.tree(depth - 1)),
            }
        }
    }
}

#[test]
fn prost_merges_the_same() {
    let mut writer = Writer { random: Random::new(11), bytes: Vec::new() };
    let (codec, schema) = (codec::find("protobuf").unwrap(), Outer::shape().schema());
    let decoder = |backend| Decoder::<Outer>::with_backend(codec, &Options::default(), schema, backend).unwrap();
    // Used again, so that what a value held before would be seen.
    let (decoders, mut merged): (Vec<_>, _) = (backends().into_iter().map(decoder).collect(), Outer::default_value());
    for round in 0..30_000 {
        writer.bytes.clear();
        writer.outer();
        let expected = outer(ProstOuter::decode(&writer.bytes[..]).unwrap());
        for decoder in &decoders {
            let taken = decoder.decode(&writer.bytes, &mut merged);
            assert_eq!((taken, &merged), (Ok(writer.bytes.len()), &expected), "{round}: {}", hex(&writer.bytes));
        }
    }
}

#[derive(Message, serde::Deserialize, Debug, PartialEq, Clone)]
#[polywire(name = "Golden::Merged", final)]
struct Merged {
    id: i32,
    text: String,
    place: Point,
    maybe: Option<Point>,
    counts: Vec<i32>,
    row: [i32; 3],
    corners: [Point; 2],
    list: Vec<Point>,
    points: BTreeMap<i32, Point>,
    choice: Chosen,
    triple: Option<[i32; 3]>,
}

#[derive(Message, serde::Deserialize, Debug, PartialEq, Clone, Default)]
#[polywire(name = "Golden::Point", final)]
struct Point {
    x: f64,
    y: f64,
}

#[derive(Message, serde::Deserialize, Debug, PartialEq, Clone)]
#[polywire(name = "Golden::Choice", switch = "long", final)]
#[serde(rename_all = "lowercase")]
enum Chosen {
    #[polywire(case(1), name = "number")]
    Number(i32),
    #[polywire(case(2), name = "point")]
    Point(Point),
}

#[test]
fn protoc_merges_the_same() {
    let vectors = lines("protobuf/merged.jsonl");
    assert!(vectors.len() >= 15);
    for vector in vectors {
        let value: Merged = serde_json::from_value(vector["value"].clone()).unwrap();
        let bytes = |name: &str| unhex(vector[name].as_str().unwrap());
        assert_eq!(decode::<Merged>("protobuf", &bytes("hex")).as_ref(), Ok(&value), "{}", vector["name"]);
        assert_eq!(hex(&encode("protobuf", &value)), hex(&bytes("whole")), "{}", vector["name"]);
    }
}

/// Elements of the same field are one array, wherever they are in the message; a message that is
/// merged with another of its type has too many of them.
#[test]
fn elements_of_arrays_stand_anywhere() {
    let whole = Arrays {
        id: 9,
        numbers: [-1, 1, -2, 2],
        places: [Deep { a: Some(1), ..Deep::default() }, Deep { b: 1.5, ..Deep::default() }, Deep::default()],
        names: ["a".into(), "".into()],
        rows: Some([[1.0, 2.0], [3.0, 4.0]]),
        list: vec![[1, 2]],
    };
    let plain = "0809 120401020304 1a020801 1a0911000000000000f83f 1a00 220161 2200 2a120a100000803f000000400000404000008040 32040a020102";
    assert_eq!(hex(&encode("protobuf", &whole)), plain.replace(' ', ""));
    assert_eq!(decode::<Arrays>("protobuf", &unhex(plain)).as_ref(), Ok(&whole));
    let pieces = "1a020801 1001 12020203 220161 0809 1004 1a0911000000000000f83f 2200 1a00 \
                  2a06 0a040000803f 32040a020102 2a0a 0d00000040 0d00000040 2a0a 0a080000404000008040";
    let error = decode::<Arrays>("protobuf", &unhex(pieces)).unwrap_err();
    assert_eq!((error.kind, error.path.as_str()), (FaultKind::Count, "rows"));
    let pieces = pieces.replace("2a0a 0d00000040 0d00000040", "2a05 0d00000040");
    assert_eq!(decode::<Arrays>("protobuf", &unhex(&pieces)).as_ref(), Ok(&whole));
    let error = decode::<Arrays>("protobuf", &unhex(&format!("{plain} {plain}"))).unwrap_err();
    assert_eq!((error.kind, error.path.as_str(), error.expected, error.got), (FaultKind::Count, "numbers", 4, 8));
    let error = decode::<Arrays>("protobuf", &unhex(&plain.replace("1a00 ", ""))).unwrap_err();
    assert_eq!((error.kind, error.path.as_str(), error.expected, error.got), (FaultKind::Count, "places", 3, 2));
}

#[test]
fn messages_in_many_pieces_are_one() {
    let pieces: String = (0..500).map(|_| "1204 1a020101").collect();
    let value = decode::<Outer>("protobuf", &unhex(&pieces)).unwrap();
    assert_eq!(value.inner.numbers, [-1; 1000]);
}

#[test]
fn errors_in_what_is_merged_are_where_they_came_from() {
    // The second piece of `inner.deep` ends within a number.
    let error = decode::<Outer>("protobuf", &unhex("0801 1204 22020802 1203 220108 0801")).unwrap_err();
    assert_eq!((error.kind, error.path.as_str()), (FaultKind::Truncated, ""));
    // A text that is none.
    let error = decode::<Outer>("protobuf", &unhex("0801 1202 0801 1203 1201ff")).unwrap_err();
    assert_eq!((error.kind, error.path.as_str(), error.offset), (FaultKind::BadText, "inner.text", 8));
    // The tree is as deep in pieces as in one.
    let nested = (0..200).fold(String::new(), |inside, _| {
        let len = inside.len() / 2;
        let mut head = vec![0x12];
        prost::encoding::encode_varint(len as u64, &mut head);
        hex(&head) + &inside
    });
    let mut field = vec![0x3A];
    prost::encoding::encode_varint(nested.len() as u64 / 2, &mut field);
    let error = decode::<Outer>("protobuf", &unhex(&format!("3a020801 {}{nested}", hex(&field)))).unwrap_err();
    assert_eq!(error.kind, FaultKind::TooDeep);
}
