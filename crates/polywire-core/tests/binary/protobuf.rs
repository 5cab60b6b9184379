//! Protobuf compared with other implementations: golden vectors of protoc, `prost`, and the rules
//! of the encoding guide. `protoc` itself is the oracle in `polywire-idl/tests/emitters/proto.rs`.

use super::wire_support::*;
use polywire_core::{
    codec::protobuf::field_numbers,
    layout::{Float128, Message},
    program::{FaultKind, Limits},
    schema::{Case, Def, DefId, Member, SchemaBuilder, Type},
};
use polywire_derive::Message;
use prost::Message as _;
use std::collections::BTreeMap;

#[test]
fn golden_vectors() {
    assert!(golden("protobuf") >= 4);
}

/// [`Mixed`] as prost's generator has it.
#[derive(Clone, PartialEq, prost::Message)]
struct Generated {
    #[prost(bool, tag = "1")]
    flag: bool,
    #[prost(sint32, tag = "2")]
    a: i32,
    #[prost(sint32, tag = "3")]
    b: i32,
    #[prost(sint32, tag = "4")]
    c: i32,
    #[prost(sint64, tag = "5")]
    d: i64,
    #[prost(uint32, tag = "6")]
    e: u32,
    #[prost(uint32, tag = "7")]
    f: u32,
    #[prost(uint32, tag = "8")]
    g: u32,
    #[prost(uint64, tag = "9")]
    h: u64,
    #[prost(float, tag = "10")]
    x: f32,
    #[prost(double, tag = "11")]
    y: f64,
    #[prost(string, tag = "12")]
    text: String,
    #[prost(message, optional, tag = "13")]
    part: Option<GeneratedPlace>,
    #[prost(message, repeated, tag = "14")]
    parts: Vec<GeneratedPlace>,
    #[prost(sint64, repeated, tag = "15")]
    numbers: Vec<i64>,
    #[prost(float, repeated, tag = "16")]
    ratios: Vec<f32>,
    #[prost(string, repeated, tag = "17")]
    names: Vec<String>,
    #[prost(bool, repeated, tag = "18")]
    flags: Vec<bool>,
    #[prost(btree_map = "string, uint32", tag = "19")]
    map: BTreeMap<String, u32>,
    #[prost(sint32, optional, tag = "20")]
    maybe: Option<i32>,
    #[prost(string, optional, tag = "21")]
    note: Option<String>,
    #[prost(double, repeated, tag = "22")]
    triple: Vec<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct GeneratedPlace {
    #[prost(double, tag = "1")]
    latitude_deg: f64,
    #[prost(double, tag = "2")]
    longitude_deg: f64,
}

fn generated(value: &Mixed) -> Generated {
    let place = |p: &Place| GeneratedPlace { latitude_deg: p.latitude_deg, longitude_deg: p.longitude_deg };
    Generated {
        flag: value.flag,
        a: value.a.into(),
        b: value.b.into(),
        c: value.c,
        d: value.d,
        e: value.e.into(),
        f: value.f.into(),
        g: value.g,
        h: value.h,
        x: value.x,
        y: value.y,
        text: value.text.clone(),
        part: Some(place(&value.part)),
        parts: value.parts.iter().map(place).collect(),
        numbers: value.numbers.clone(),
        ratios: value.ratios.clone(),
        names: value.names.clone(),
        flags: value.flags.clone(),
        map: value.map.clone(),
        maybe: value.maybe,
        note: value.note.clone(),
        triple: value.triple.to_vec(),
    }
}

#[test]
fn prost_reads_and_writes_the_same() {
    for n in 0..70 {
        let value = mixed(n);
        let ours = round_trip("protobuf", &value);
        assert_eq!(Generated::decode(&ours[..]).unwrap(), generated(&value), "{n}");
        let theirs = generated(&value).encode_to_vec();
        assert_eq!(decode::<Mixed>("protobuf", &theirs).as_ref(), Ok(&value), "{n}");
        // prost leaves out zeros in a map's entry, which is allowed.
        if !value.map.contains_key("") {
            assert_eq!(hex(&ours), hex(&theirs), "{n}");
        }
    }
}

#[derive(Message, Debug, PartialEq, Clone)]
struct Kinds {
    text: String,
    numbers: Vec<i32>,
    names: Vec<String>,
    places: Vec<Place>,
    map: BTreeMap<u8, i32>,
    flags: Vec<bool>,
    rows: Vec<Vec<u32>>,
    maybe: Option<Vec<f32>>,
    pair: [i16; 2],
    quad: Float128,
    #[polywire(idl = "sequence<octet>")]
    octets: Vec<u8>,
}

fn kinds() -> Kinds {
    Kinds {
        text: "t".into(),
        numbers: vec![1, -2, 3],
        names: vec!["a".into(), "".into()],
        places: vec![Place { latitude_deg: 1.0, longitude_deg: 0.0 }],
        map: [(1, -1), (2, 0)].into(),
        flags: vec![true, false],
        rows: vec![vec![1, 300], vec![]],
        maybe: Some(vec![]),
        pair: [-1, 2],
        quad: Float128::from(2.0),
        octets: vec![9, 8],
    }
}

const KINDS: &str = "0a0174 12 03 020306 1a0161 1a00 2209 09000000000000f03f 2a04 08011001 2a04 08021000 3202 0100 \
                     3a05 0a03 01ac02 3a00 4200 4a02 0104 5210 00000000000000000000000000000040 5a02 0908";

#[test]
fn every_form_has_its_bytes() {
    assert_eq!(hex(&round_trip("protobuf", &kinds())), KINDS.replace(' ', ""));
    let nothing = Kinds {
        text: String::new(),
        numbers: vec![],
        names: vec![],
        places: vec![],
        map: BTreeMap::new(),
        flags: vec![],
        rows: vec![],
        maybe: None,
        pair: [0, 0],
        quad: Float128::from(0.0),
        octets: vec![],
    };
    let bytes = round_trip("protobuf", &nothing);
    assert_eq!(hex(&bytes), "4a0200005210".to_owned() + &"00".repeat(16));
}

fn read(text: &str) -> Result<Kinds, FaultKind> {
    decode::<Kinds>("protobuf", &unhex(text)).map_err(|error| error.kind)
}

/// Mandatory arrays and quads, which have no zero to be left out as.
const REST: &str = "4a020104 5210 00000000000000000000000000000040";

#[test]
fn fields_in_pieces_are_one() {
    // Packed, not packed, with other fields between them.
    let text = format!("1001 1203 030208 0a0174 1004 1a0161 1202 0605 {REST} 1007 1a0162 3001 32020001");
    let value = read(&text).unwrap();
    assert_eq!(value.numbers, [-1, -2, 1, 4, 2, 3, -3, -4]);
    assert_eq!((value.names, value.flags), (vec!["a".into(), "b".into()], vec![true, false, true]));
    let text = format!("2a04 08011002 {REST} 2a0410020803 2a02 0801 22001a0161 2200");
    let value = read(&text).unwrap();
    // An entry's value may come before its key, or be left out; the last entry of a key counts.
    assert_eq!(value.map, [(1, 0), (3, 1)].into());
    assert_eq!(value.places.len(), 2);
    // Inside a sequence of sequences and an optional one, too.
    let text = format!("3a07 0801 1005 0a0102 {REST} 4208 0d00000000 1501 3a00");
    assert_eq!(read(&text), Err(FaultKind::Truncated));
    let text = format!("3a07 0801 1005 0a020203 {REST} 420b 0d0000803f 0a04 00000040 3a00").replace("3a07", "3a08");
    let value = read(&text).unwrap();
    assert_eq!((value.rows, value.maybe), (vec![vec![1, 2, 3], vec![]], Some(vec![1.0, 2.0])));
}

#[test]
fn the_last_of_a_single_field_stands_and_messages_are_merged() {
    assert_eq!(read(&format!("0a0161 {REST} 0a026263")).unwrap().text, "bc");
    let twice = "3209 09000000000000f03f 3209 11000000000000f03f";
    assert_eq!(
        decode::<Holding>("protobuf", &unhex(&twice.replace("32", "0a"))).unwrap().place,
        Place { latitude_deg: 1.0, longitude_deg: 1.0 }
    );
    // Elements of repeated arrays are appended, and are then too many.
    assert_eq!(read(&format!("{REST} {REST}")), Err(FaultKind::Count));
}

#[derive(Message, Debug, PartialEq, Clone)]
struct Holding {
    place: Place,
}

#[test]
fn unknown_fields_of_every_wire_type_are_passed_over() {
    let unknown = "f80601 f906 0000000000000000 fa06 03 616263 fb06 0801 fb06 fc06 fc06 fd06 00000000";
    assert_eq!(read(&format!("{unknown} {KINDS} {unknown}")), Ok(kinds()));
    let wrong = [
        ("fb06 0801", FaultKind::Truncated),
        ("fb06 f406", FaultKind::Syntax),
        ("fc06", FaultKind::Syntax),
        ("fe06", FaultKind::Syntax),
        ("0001", FaultKind::Syntax),
        ("fa06 05 61", FaultKind::BadLength),
        ("f806 ffffffffffffffffff02", FaultKind::OutOfRange),
        ("0801", FaultKind::WireType),
        ("0a01ff", FaultKind::BadText),
        ("4a0101", FaultKind::Count),
        ("1202 0280", FaultKind::Truncated),
        ("12058080808010", FaultKind::OutOfRange),
    ];
    for (text, kind) in wrong {
        assert_eq!(read(text), Err(kind), "{text}");
    }
}

#[test]
fn groups_are_bounded() {
    let limits = Limits { depth: 20, ..Limits::default() };
    let nested = |depth: usize| ["7b".repeat(depth), "7c".repeat(depth)].concat();
    let read = |text: &str| decode_within::<SystemTime>("protobuf", SystemTime::shape().schema(), &unhex(text), limits);
    assert_eq!(read(&nested(20)), Ok(SystemTime::default()));
    assert_eq!(read(&nested(21)).unwrap_err().kind, FaultKind::TooDeep);
    assert_eq!(read(&nested(100_000)).unwrap_err().kind, FaultKind::TooDeep);
}

#[derive(Message, Debug, PartialEq, Clone)]
#[polywire(switch = "long")]
enum Either {
    #[polywire(case(1))]
    Number(i16),
    #[polywire(case(2, 3))]
    Names(Vec<String>),
}

#[derive(Message, Debug, PartialEq, Clone)]
struct Holder {
    either: Either,
}

#[test]
fn unions_are_oneofs() {
    let holder = |either| Holder { either };
    let bytes = round_trip("protobuf", &holder(Either::Number(0)));
    assert_eq!(hex(&bytes), "0a021000");
    let names = holder(Either::Names(vec!["a".into()]));
    assert_eq!(hex(&round_trip("protobuf", &names)), "0a05 1a03 0a0161".replace(' ', ""));
    // The last one counts, and the discriminator may have another label.
    let read = |text: &str| decode::<Holder>("protobuf", &unhex(text)).map_err(|error| error.kind);
    assert_eq!(read("0a07 1002 1a03 0a0161"), Ok(names.clone()));
    assert_eq!(read("0a07 1a03 0a0161 1002"), Ok(holder(Either::Number(1))));
    assert_eq!(read("0a07 1a03 0a0161 0806"), Ok(names));
    assert_eq!(read("0a00"), Err(FaultKind::UnknownCase));
    assert_eq!(read("0a02 0802"), Err(FaultKind::MissingMember));
}

#[test]
fn numbers_are_ids_or_the_order() {
    let numbers = |ids: &[Option<u32>]| {
        let mut types = SchemaBuilder::new();
        let member = |(i, id): (usize, &Option<u32>)| {
            let member = Member::new(format!("m{i}"), Type::Int32);
            match id {
                Some(id) => member.with_id(*id),
                None => member,
            }
        };
        let root = types.add(Def::structure("S", ids.iter().enumerate().map(member).collect()));
        let schema = types.finish(Type::Def(root)).unwrap();
        field_numbers(&schema, DefId(0))
    };
    assert_eq!(numbers(&[None, None, None]), [1, 2, 3]);
    assert_eq!(numbers(&[Some(7), None, Some(1), None]), [7, 2, 1, 3]);
    assert_eq!(numbers(&[Some(0), None]), [1, 2]);
    assert_eq!(numbers(&[Some(19_000), Some(18_999), Some(20_000)]), [1, 18_999, 20_000]);
    let mut types = SchemaBuilder::new();
    let case = |name: &str, label| Case::new(vec![label], name, Type::Int32);
    let root = types.add(Def::union("U", Type::Int32, vec![case("a", 1), case("b", 2)]));
    let schema = types.finish(Type::Def(root)).unwrap();
    assert_eq!(field_numbers(&schema, DefId(0)), [2, 3]);
}
