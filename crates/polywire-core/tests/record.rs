//! Records: default values, paths, assignment, equality, copies, and the access functions.

use polywire_core::layout::{
    FlagWords, Inserted, Kind, Layout, Message, Node, NodeId, PathError, Record, RecordError, Shape, ShapeError, Value,
    ValueRef,
};
use polywire_core::schema::{
    BitField, Case, Def, DefId, DefKind, EnumLiteral, Literal, Member, Schema, SchemaBuilder, SchemaLimits, Type,
};
use polywire_derive::Message;
use std::sync::Arc;

/// A type with one member of every kind.
fn everything() -> Arc<Shape> {
    let mut types = SchemaBuilder::new();
    let rules = types.add(Def::enumeration("Rules", ["VISUAL", "INSTRUMENT", "BOTH"]));
    let mut state = Def::enumeration("State", ["IDLE"]);
    if let DefKind::Enum { literals, .. } = &mut state.kind {
        literals.push(EnumLiteral { is_default: true, ..EnumLiteral::new("BUSY", -5) });
    }
    let state = types.add(state);
    let mask = types.add(Def::bitmask("Equipment", 12, ["A", "C", "S"]));
    let signed = BitField { ty: Type::Int8, ..BitField::new("b", 4) };
    let set = types.add(Def::bitset("Bits", vec![BitField::new("a", 3), signed, BitField::new("c", 40)]));
    let position = types.add(Def::structure(
        "Position",
        vec![Member::new("lat", Type::Float64).with_default(Literal::Float(1.5)), Member::new("level", Type::Int16)],
    ));
    let wind = types.add(Def::union(
        "Wind",
        Type::Def(rules),
        vec![Case::new([2], "gust", Type::string()), Case::default("mean", Type::Def(position))],
    ));
    let mut seven = Case::new([7], "seven", Type::string());
    seven.member.default = Some(Literal::String("up".into()));
    let partial = types.add(Def::union("Partial", Type::Int32, vec![seven]));
    let base = types.add(Def::structure("Base", vec![Member::new("id", Type::Uint64).as_key()]));
    let tree = types.add(Def::structure("Tree", vec![]));
    let row = types.add(Def::alias("Row", Type::array(Type::Int32, [3])));
    let external = |name: &str, ty| Member { external: true, ..Member::new(name, ty) };
    types.replace(
        tree,
        Def::structure(
            "Tree",
            vec![
                Member::new("label", Type::string()),
                Member::new("children", Type::sequence(Type::Def(tree))),
                Member::new("named", Type::map(Type::string(), Type::Def(tree))),
                external("next", Type::Def(tree)).as_optional(),
            ],
        ),
    );
    let root = Def::structure(
        "Everything",
        vec![
            Member::new("flag", Type::Bool),
            Member::new("octet", Type::Octet),
            Member::new("i8", Type::Int8).with_default(Literal::Int(-3)),
            Member::new("u8", Type::Uint8),
            Member::new("i16", Type::Int16),
            Member::new("u16", Type::Uint16),
            Member::new("i32", Type::Int32),
            Member::new("u32", Type::Uint32),
            Member::new("i64", Type::Int64),
            Member::new("u64", Type::Uint64),
            Member::new("f32", Type::Float32),
            Member::new("f64", Type::Float64),
            Member::new("f128", Type::Float128),
            Member::new("char", Type::Char8).with_default(Literal::Char(0x78)),
            Member::new("wchar", Type::Char16),
            Member::new("text", Type::String { bound: 12 }).with_default(Literal::String("default".into())),
            Member::new("wide", Type::WString { bound: 2 }),
            Member::new("rules", Type::Def(rules)).with_default(Literal::Enum("INSTRUMENT".into())),
            Member::new("state", Type::Def(state)),
            Member::new("mask", Type::Def(mask)),
            Member::new("bits", Type::Def(set)),
            Member::new("position", Type::Def(position)),
            Member::new("wind", Type::Def(wind)),
            Member::new("partial", Type::Def(partial)),
            Member::new("grid", Type::array(Type::Def(row), [2, 2])),
            Member::new("image", Type::sequence(Type::Octet)),
            Member::new("names", Type::Sequence { element: Type::string().into(), bound: 4 }),
            Member::new("positions", Type::sequence(Type::Def(position))),
            Member::new("limits", Type::map(Type::string(), Type::Def(position))),
            Member::new("by_number", Type::Map { key: Type::Int16.into(), value: Type::string().into(), bound: 2 }),
            Member::new("maybe", Type::string()).as_optional(),
            Member::new("there", Type::Def(position)).as_optional(),
            external("far", Type::Def(position)),
            Member::new("tree", Type::Def(tree)),
        ],
    )
    .with_base(base);
    let root = types.add(root);
    Shape::of(&types.finish(Type::Def(root)).unwrap()).unwrap()
}

#[test]
fn new_records_hold_default_values() {
    let record = Record::new(&everything());
    assert_eq!(record.i64("i8"), Ok(-3));
    assert_eq!(record.str("text"), Ok("default"));
    assert_eq!((record.str("rules"), record.str("state")), (Ok("INSTRUMENT"), Ok("BUSY")));
    assert_eq!(record.get("char").unwrap().as_u64(), Some(0x78));
    assert_eq!((record.f64("position.lat"), record.f64("far.lat")), (Ok(1.5), Ok(1.5)));
    assert_eq!(record.f64("wind.mean.lat"), Ok(1.5));
    assert!(record.get("maybe").unwrap().is_absent());
    let ValueRef::Union(partial) = record.get("partial").unwrap() else { panic!() };
    assert_eq!((partial.discriminator(), partial.case().is_none()), (0, true));
    assert_eq!(record.fields().len(), 35);
    assert_eq!(record.fields()[0].0.name, "id");
}

#[test]
fn every_kind_can_be_set_and_read() {
    let mut record = Record::new(&everything());
    let cases: Vec<(&str, Value, &str)> = vec![
        ("id", u64::MAX.into(), "18446744073709551615"),
        ("flag", true.into(), "true"),
        ("octet", 255u8.into(), "255"),
        ("i8", i8::MIN.into(), "-128"),
        ("i16", i16::MIN.into(), "-32768"),
        ("u16", u16::MAX.into(), "65535"),
        ("i32", i32::MIN.into(), "-2147483648"),
        ("u32", u32::MAX.into(), "4294967295"),
        ("i64", i64::MIN.into(), "-9223372036854775808"),
        ("u64", 7.into(), "7"),
        ("f32", 1.25.into(), "1.25"),
        ("f64", 3.into(), "3.0"),
        ("f128", (-0.5).into(), "-0.5"),
        ("char", "ä".into(), "'ä'"),
        ("wchar", "€".into(), "'€'"),
        ("text", "hello".into(), "\"hello\""),
        ("wide", "äö".into(), "\"äö\""),
        ("rules", "BOTH".into(), "BOTH"),
        ("state", (-5).into(), "BUSY"),
        ("mask", vec!["A", "S"].into(), "A|S"),
        ("mask", 0x802.into(), "C|0x800"),
        ("bits", Value::fields([("a", 5), ("b", -1)]), r#"{"a": 5, "b": -1, "c": 0}"#),
        ("position", Value::fields([("level", 9)]), "Position { lat: 1.5, level: 9 }"),
        ("wind.gust", "strong".into(), "\"strong\""),
        ("partial", 9.into(), "Partial(9)"),
        ("partial", 7.into(), "Partial { seven: \"up\" }"),
        ("partial.seven", "x".into(), "\"x\""),
        ("grid[1]", Value::from([[1, 2, 3], [4, 5, 6]]), "[[1, 2, 3], [4, 5, 6]]"),
        ("grid[0][1][2]", 8.into(), "8"),
        ("image", (&[1u8, 2, 3][..]).into(), "[1, 2, 3]"),
        ("names", vec!["a", "b"].into(), r#"["a", "b"]"#),
        ("names[1]", "c".into(), "\"c\""),
        ("positions", Value::List(vec![Value::fields([("lat", 2)])]), "[Position { lat: 2.0, level: 0 }]"),
        ("limits[\"low\"].level", 3.into(), "3"),
        ("by_number", Value::entries([(3, "x"), (-1, "y"), (3, "z")][..2].to_vec()), r#"{3: "x", -1: "y"}"#),
        ("by_number[-1]", "why".into(), "\"why\""),
        ("maybe", Some("here").into(), "\"here\""),
        ("there.level", 4.into(), "4"),
        ("far.level", 5.into(), "5"),
        ("tree.named[\"a\"].named[\"b\"].label", "deep".into(), "\"deep\""),
        ("tree.next.next.label", "deep".into(), "\"deep\""),
    ];
    for (path, value, want) in cases {
        record.set(path, value).unwrap();
        assert_eq!(format!("{:?}", record.get(path).unwrap()), want, "{path}");
    }
    assert_eq!(format!("{:?}", record.get("grid").unwrap()), "[[[0, 0, 0], [0, 0, 8]], [[1, 2, 3], [4, 5, 6]]]");
    assert_eq!(record.f64("limits[\"low\"].lat"), Ok(1.5), "what a path creates is fresh");
    record.set("maybe", Value::Absent).unwrap();
    assert!(record.get("maybe").unwrap().is_absent());
    let copy = record.clone();
    assert_eq!(copy, record);
    assert_eq!(format!("{copy:?}"), format!("{record:?}"));
    record.clear().unwrap();
    assert_eq!(record, Record::new(record.shape()));
    assert_ne!(copy, record);
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut record = Record::new(&everything());
    let untouched = record.clone();
    let cases: Vec<(&str, Value, &str)> = vec![
        ("nope", 1.into(), "there is no 'nope' among id, flag, octet, i8, u8, i16, u16, i32, u32, i64, u64, f32, .."),
        ("position.x", 1.into(), "'position': there is no 'x' among lat, level"),
        ("flag", 1.into(), "'flag': Bool cannot be Int(1)"),
        ("i8", 128.into(), "'i8': 128 is out of range"),
        ("octet", (-1).into(), "'octet': -1 is out of range"),
        ("i32", 1.5.into(), "'i32': Int32 cannot be 1.5"),
        ("char", "€".into(), "'char': 8364 is out of range"),
        ("char", "ab".into(), "'char': \"ab\" is not a single character"),
        ("text", "thirteen byte".into(), "'text': a length of 13 is more than its bound 12"),
        ("wide", "abc".into(), "'wide': a length of 3 is more than its bound 2"),
        ("rules", "NEVER".into(), "'rules': there is no 'NEVER' among VISUAL, INSTRUMENT, BOTH"),
        ("rules", 3.into(), "'rules': Int(3) is not a literal"),
        ("mask", vec!["X"].into(), "'mask': there is no 'X' among A, C, S"),
        ("mask", 0x1_0000.into(), "'mask': 65536 is out of range"),
        ("bits", Value::fields([("a", 8)]), "'bits': 8 does not fit the 3 bits of 'a'"),
        ("grid[2]", 1.into(), "'grid': index 2 is out of range, there are 2 elements"),
        ("grid[0][0]", vec![1].into(), "'grid[0][0]': 1 values for 3 elements"),
        ("names", vec!["a"; 5].into(), "'names': 5 elements are more than its bound 4"),
        ("names[0]", "a".into(), "'names': index 0 is out of range, there are 0 elements"),
        ("names.x", 1.into(), "'names' has no members"),
        ("flag.x", 1.into(), "'flag' has no members"),
        ("wind.side", 1.into(), "'wind.side': there is no 'side' among gust, mean"),
        ("wind", 5.into(), "'wind': Int(5) is not a literal"),
        ("position", Value::Absent, "'position': it is not optional, so it cannot be absent"),
    ];
    for (path, value, want) in cases {
        let error = record.set(path, value).unwrap_err().to_string();
        // The way to a union's case is named by its last step alone.
        assert_eq!(error, want.replace("'wind.side'", "'side'"), "{path}");
    }
    assert_eq!(record, untouched);
    assert_eq!(record.get("maybe.x").unwrap_err(), PathError::Absent { path: "maybe".into() });
    assert_eq!(record.resize("grid", 1).unwrap_err().to_string(), "'grid': it is not a sequence");
    assert!(matches!(record.get("limits[\"x\"]"), Err(PathError::NoEntry { .. })));
    assert!(matches!(record.get("wind.gust"), Err(PathError::OtherCase { .. })));
    record.set("by_number", Value::entries([(1, "a"), (2, "b")])).unwrap();
    assert!(record.set("by_number[3]", "c").is_err());
    assert!(record.set("by_number[2]", "c").is_ok());
}

#[test]
fn floats_are_equal_by_their_bits() {
    let shape = everything();
    let (mut a, mut b) = (Record::new(&shape), Record::new(&shape));
    a.set("f64", f64::NAN).unwrap();
    b.set("f64", f64::NAN).unwrap();
    assert_eq!(a, b);
    a.set("f64", 0.0).unwrap();
    b.set("f64", -0.0).unwrap();
    assert_ne!(a, b);
}

#[test]
fn maps_are_equal_whatever_the_order() {
    let shape = everything();
    let (mut a, mut b) = (Record::new(&shape), Record::new(&shape));
    a.set("by_number", Value::entries([(1, "a"), (2, "b")])).unwrap();
    b.set("by_number", Value::entries([(2, "b"), (1, "a")])).unwrap();
    assert_eq!(a, b);
    b.set("by_number[2]", "c").unwrap();
    assert_ne!(a, b);
}

/// The place of a member of the root.
fn member<'a>(record: &'a Record, name: &str) -> (usize, &'a Node) {
    let layout: &Layout = record.shape().layout();
    let index = record.fields().iter().position(|(m, _)| m.name == name).unwrap();
    let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!() };
    (fields[index].offset as usize, layout.node(fields[index].node))
}

fn size(record: &Record, id: NodeId) -> usize {
    record.shape().layout().node(id).size as usize
}

#[test]
fn sequences_keep_what_they_do_not_use() {
    let mut record = Record::new(&everything());
    let at = record.as_mut_ptr();
    let (offset, node) = member(&record, "names");
    let Kind::Sequence(names) = &node.kind else { panic!() };
    let words = names.words.unwrap();
    // SAFETY: the layout is that of the record.
    unsafe {
        let sequence = at.add(offset);
        let first = names.access.resize(sequence, 3).unwrap().cast::<String>();
        (*first.add(2)).push_str("a text that needs memory");
        let kept = (*first.add(2)).as_ptr();
        assert_eq!(names.access.resize(sequence, 1).unwrap(), first.cast());
        assert_eq!(names.access.slice(sequence), (first.cast_const().cast(), 1));
        assert_eq!(sequence.add(words.len as usize).cast::<usize>().read(), 1);
        assert_eq!(sequence.add(words.pointer as usize).cast::<*mut u8>().read(), first.cast());
        assert!(sequence.add(words.capacity as usize).cast::<usize>().read() >= 3);
        let again = names.access.resize(sequence, 3).unwrap().cast::<String>();
        assert_eq!((*again.add(2)).as_ptr(), kept, "elements come back as they were, to be written over");
        assert!(names.access.resize(sequence, usize::MAX / 2).is_err());
        assert_eq!(names.access.slice(sequence).1, 3, "what fails changes nothing");
    }
    record.resize("names", 1).unwrap();
    record.resize("names", 3).unwrap();
    assert_eq!(record.str("names[2]"), Ok(""), "to those who set single members they are fresh");
}

#[test]
fn plain_elements_are_taken_over_at_once() {
    let mut record = Record::new(&everything());
    let at = record.as_mut_ptr();
    let (offset, node) = member(&record, "positions");
    let Kind::Sequence(positions) = &node.kind else { panic!() };
    let bytes = vec![0u8; 3 * size(&record, positions.element) + 1];
    // SAFETY: the layout is that of the record; any bytes are a position.
    unsafe { positions.access.assign(at.add(offset), bytes.as_ptr().add(1), 3).unwrap() };
    assert_eq!(format!("{:?}", record.get("positions[2]").unwrap()), "Position { lat: 0.0, level: 0 }");
    record.resize("positions", 4).unwrap();
    assert_eq!(record.f64("positions[3].lat"), Ok(1.5));
}

#[test]
fn optionals_say_what_they_are_by_a_flag() {
    let mut record = Record::new(&everything());
    let at = record.as_mut_ptr();
    let (offset, node) = member(&record, "there");
    let Kind::Optional(there) = &node.kind else { panic!() };
    let FlagWords { flag, payload } = there.flag.unwrap();
    // SAFETY: the layout is that of the record.
    unsafe {
        let optional = at.add(offset);
        let state = || optional.add(flag as usize).read();
        assert_eq!((state(), there.access.get(optional).is_null()), (0, true));
        let value = there.access.set_some(optional).unwrap();
        assert_eq!((state(), value), (1, optional.add(payload as usize)));
        assert_eq!(value.cast::<f64>().read(), 1.5);
        there.access.set_none(optional);
        assert_eq!((state(), there.access.get(optional).is_null()), (2, true));
        assert_eq!(there.access.set_some(optional).unwrap(), value);
    }
}

#[test]
fn maps_take_keys_once() {
    let mut record = Record::new(&everything());
    let at = record.as_mut_ptr();
    let (offset, node) = member(&record, "by_number");
    let Kind::Map(map) = &node.kind else { panic!() };
    // SAFETY: the layout is that of the record, as are the types of key and value.
    unsafe {
        let at = at.add(offset);
        let put = |number: i16, text: &str, take: bool| {
            map.access
                .insert(at, &mut |key, value| {
                    assert_eq!((key.cast::<i16>().read(), (*value.cast::<String>()).as_str()), (0, ""));
                    key.cast::<i16>().write(number);
                    (*value.cast::<String>()).push_str(text);
                    take
                })
                .unwrap()
        };
        for i in 0..100i16 {
            assert_eq!(put(i * 37 % 101, "first", true), Inserted::Yes);
        }
        assert_eq!(put(37, "second", true), Inserted::Replaced);
        assert_eq!(put(7000, "third", false), Inserted::Refused);
        assert_eq!(map.access.len(at), 100);
        let mut seen = Vec::new();
        map.access.visit(at, &mut |key, value| {
            seen.push((key.cast::<i16>().read(), (*value.cast::<String>()).clone()));
            seen.len() < 3
        });
        assert_eq!(seen, [(0, "first".into()), (37, "second".into()), (74, "first".to_string())]);
        map.access.clear(at);
        assert_eq!(put(5, "again", true), Inserted::Yes);
    }
    assert_eq!(format!("{:?}", record.get("by_number").unwrap()), r#"{5: "again"}"#);
}

#[test]
fn unions_change_their_case_in_place() {
    let mut record = Record::new(&everything());
    let at = record.as_mut_ptr();
    let (offset, node) = member(&record, "wind");
    let Kind::Union(wind) = &node.kind else { panic!() };
    // SAFETY: the layout is that of the record, as is the type of the case.
    unsafe {
        let at = at.add(offset);
        let gust = wind.access.select(at, 2, Some(0)).unwrap().cast::<String>();
        (*gust).push_str("strong");
        assert_eq!(wind.access.select(at, 2, Some(0)).unwrap(), gust.cast(), "the same case keeps its value");
        assert_eq!((*gust).as_str(), "strong");
        assert!(wind.access.select(at, 9, Some(9)).is_err());
        assert_eq!(wind.access.get(at).case, None, "what fails leaves a valid union");
        wind.access.select(at, 0, Some(1)).unwrap();
        assert_eq!((wind.access.get(at).discriminator, wind.access.get(at).case), (0, Some(1)));
    }
    assert_eq!(record.f64("wind.mean.lat"), Ok(1.5));
}

/// A case without members leaves the value of another case where it was, and unharmed, whatever is
/// done with the union meanwhile.
#[test]
fn cases_without_members_keep_what_others_have_allocated() {
    let mut types = SchemaBuilder::new();
    let nothing = types.add(Def::structure("Nothing", vec![]));
    let lines = types.add(Def::structure("Lines", vec![Member::new("lines", Type::sequence(Type::string()))]));
    let case =
        |label, name, ty| Case { labels: vec![label], is_default: false, member: Member::new(name, Type::Def(ty)) };
    let cases = vec![case(0, "nothing", nothing), case(1, "lines", lines)];
    let either = types.add(Def::union("Either", Type::Int32, cases));
    let members = vec![Member::new("list", Type::sequence(Type::Def(either)))];
    let root = types.add(Def::structure("Root", members));
    let shape = Shape::of(&types.finish(Type::Def(root)).unwrap()).unwrap();
    let text = "a line that is too long to lie anywhere but on its own";
    let mut record = Record::new(&shape);
    for round in 0..4 {
        record.resize("list", 2).unwrap();
        let fresh = record.clone();
        assert!(record.get("list[0].lines.lines").is_err(), "a fresh union has the first case");
        record.set("list[0].lines.lines", vec![text, "another"]).unwrap();
        record.set("list[1].lines.lines", vec![text]).unwrap();
        let full = record.clone();
        // Elements are made fresh in their place: the unions have the case without members, and
        // then the other one again.
        record.resize("list", 0).unwrap();
        record.resize("list", 2).unwrap();
        assert_eq!((&record, &record.clone()), (&fresh, &fresh), "round {round}");
        record.set("list[1].lines.lines", vec![text]).unwrap();
        record.set("list[0].lines.lines", vec![text, "another"]).unwrap();
        assert_eq!(record, full, "round {round}");
        if round % 2 == 0 {
            record = full;
        }
        record.resize("list", 0).unwrap();
    }
}

#[derive(Message)]
struct Point {
    x: f64,
    tags: Vec<String>,
}

#[test]
fn records_and_rust_values_look_the_same() {
    let shape = Shape::of(Point::shape().schema()).unwrap();
    let mut record = Record::new(&shape);
    record.set("x", 2.5).unwrap();
    record.set("tags", vec!["a", "b"]).unwrap();
    let point = Point { x: 2.5, tags: vec!["a".into(), "b".into()] };
    assert_eq!(ValueRef::of(&point), record.view());
    let foreign = Arc::new(Shape::of_type::<Point>().unwrap());
    assert_eq!(Record::try_new(&foreign).unwrap_err(), RecordError::NotOfRecords);
}

#[test]
fn records_go_from_thread_to_thread() {
    let mut record = Record::new(&everything());
    let record = std::thread::spawn(move || {
        record.set("text", "elsewhere").unwrap();
        record
    });
    assert_eq!(record.join().unwrap().str("text"), Ok("elsewhere"));
}

fn finish(types: SchemaBuilder, root: DefId) -> Schema {
    types.finish(Type::Def(root)).unwrap()
}

#[cfg_attr(miri, ignore = "takes too long")]
#[test]
fn long_chains_behind_pointers_do_not_go_deep() {
    let mut types = SchemaBuilder::with_limits(SchemaLimits { depth: usize::MAX, ..SchemaLimits::default() });
    let first = types.add(Def::structure("S0", vec![]));
    let mut below = first;
    for i in 1..4000 {
        let member = Member::new("m", Type::sequence(Type::array(Type::Def(below), [2])));
        below = types.add(Def::structure(format!("S{i}"), vec![member]));
    }
    let schema = finish(types, below);
    let on_a_small_stack = std::thread::Builder::new().stack_size(128 << 10).spawn(move || {
        let mut record = Record::new(&Shape::of(&schema).unwrap());
        record.resize("m", 1).unwrap();
        record.set("m[0][1].m", Value::List(vec![])).unwrap();
        record
    });
    assert_eq!(format!("{:?}", on_a_small_stack.unwrap().join().unwrap().get("m[0][1]").unwrap()), "S3998 { m: [] }");
}

#[cfg_attr(miri, ignore = "takes too long")]
#[test]
fn untrusted_schemas_cannot_allocate_much() {
    let mut types = SchemaBuilder::with_limits(SchemaLimits { fixed_bytes: u64::MAX, ..SchemaLimits::default() });
    let large = types.add(Def::structure("L", vec![Member::new("a", Type::array(Type::Uint64, [1 << 13, 1 << 13]))]));
    assert!(matches!(Shape::of(&finish(types, large)), Err(ShapeError::TooLarge { .. })));

    let mut types = SchemaBuilder::with_limits(SchemaLimits { members: usize::MAX, ..SchemaLimits::default() });
    let wide = (0..4000).map(|i| Member::new(format!("m{i}"), Type::Bool)).collect();
    let base = types.add(Def::structure("Base", wide));
    let heirs: Vec<Member> = (0..40)
        .map(|i| {
            let heir = types.add(Def::structure(format!("Heir{i}"), vec![]).with_base(base));
            Member::new(format!("s{i}"), Type::sequence(Type::Def(heir)))
        })
        .collect();
    let root = types.add(Def::structure("Root", heirs));
    assert!(matches!(Shape::of(&finish(types, root)), Err(ShapeError::TooManyFields { .. })));
}
