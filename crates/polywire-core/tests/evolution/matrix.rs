//! Every change of a type in `spec/evolution.md`, under every codec, on every back end, in both
//! directions: the value that the reader gets, as literal numbers.

use polywire_core::{
    codec::{BuildError, Decoder, Encoder, LowerError},
    layout::{Record, Shape, Value},
    program::Backend,
    schema::{
        BitField, Case, Def, DefId, DefKind, EnumLiteral, Extensibility, Flag, Literal, Member, Schema, SchemaBuilder,
        TryConstruct, Type,
        arbitrary::Random,
        evolve::{Verdict, assess},
    },
};
use polywire_testing::{backends, convert::convert, plain_wires, random_record, wires};

/// The first definition is the root.
fn schema(defs: Vec<Def>) -> Schema {
    let mut builder = SchemaBuilder::new();
    let ids: Vec<DefId> = defs.into_iter().map(|def| builder.add(def)).collect();
    builder.finish(Type::Def(ids[0])).unwrap()
}

fn of(members: Vec<Member>) -> Schema {
    schema(vec![Def::structure("S", members)])
}

/// A structure with members around one of the type; the other definitions are numbered from 1.
fn holding(member: Member, mut defs: Vec<Def>) -> Schema {
    defs.insert(0, Def::structure("S", vec![m("first", Type::Uint8), member, m("last", Type::Uint8)]));
    schema(defs)
}

fn m(name: &str, ty: Type) -> Member {
    Member::new(name, ty)
}

fn a(ty: Type) -> Schema {
    holding(m("a", ty), vec![])
}

fn with(mut member: Member, policy: TryConstruct) -> Member {
    member.try_construct = policy;
    member
}

fn enumeration(literals: &[(&str, i32)], marked: Option<&str>) -> Def {
    let mut def = Def::structure("E", vec![]);
    let literal = |(name, value): &(&str, i32)| {
        let mut literal = EnumLiteral::new(*name, *value);
        literal.is_default = marked == Some(*name);
        literal
    };
    def.kind = DefKind::Enum { bit_bound: 32, literals: literals.iter().map(literal).collect() };
    def
}

fn union(discriminator: Type, cases: &[(&[i64], bool, Member)]) -> Def {
    let mut def = Def::structure("U", vec![]);
    let case = |(labels, is_default, member): &(&[i64], bool, Member)| Case {
        labels: labels.to_vec(),
        is_default: *is_default,
        member: member.clone(),
    };
    def.kind = DefKind::Union { discriminator, key: false, cases: cases.iter().map(case).collect() };
    def
}

const DEF: Type = Type::Def(DefId(1));

/// The members set in the writer's record, and those then found in the reader's; `None` if the
/// message is refused.
type Pair = (Vec<(&'static str, Value)>, Option<Vec<(&'static str, Value)>>);

fn pair<const N: usize, const K: usize>(from: [(&'static str, Value); N], to: [(&'static str, Value); K]) -> Pair {
    (from.into(), Some(to.into()))
}

fn refused<const N: usize>(from: [(&'static str, Value); N]) -> Pair {
    (from.into(), None)
}

fn int(n: i128) -> Value {
    Value::Int(n)
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

fn record(shape: &std::sync::Arc<Shape>, values: &[(&str, Value)]) -> Record {
    let mut record = Record::new(shape);
    for (path, value) in values {
        record.set(path, value.clone()).unwrap_or_else(|error| panic!("{error}"));
    }
    record
}

/// The same definitions with another extensibility.
fn extended(schema: &Schema, extensibility: Extensibility) -> Schema {
    let mut builder = SchemaBuilder::new();
    for def in schema.defs() {
        let mut def = def.clone();
        def.extensibility = extensibility;
        builder.add(def);
    }
    builder.finish(schema.root().clone()).unwrap()
}

/// One direction, for each way to write the types.
#[track_caller]
fn check(writer: &Schema, reader: &Schema, pairs: &[Pair]) {
    let kinds = [Extensibility::Final, Extensibility::Appendable, Extensibility::Mutable];
    for (i, extensibility) in kinds.into_iter().enumerate() {
        let writer = extended(writer, extensibility);
        // How a reader would write the type plays no part.
        let reader = extended(reader, kinds[(i + 1) % 3]);
        let all = if extensibility == Extensibility::Appendable { wires() } else { plain_wires() };
        let (source, target) = (Shape::of(&writer).unwrap(), Shape::of(&reader).unwrap());
        let always = assess(&writer, &reader) == Verdict::Always;
        assert!(!always || pairs.iter().all(|(_, to)| to.is_some()), "the verdict is always");
        for wire in all {
            let encoder =
                Encoder::for_shape_with_backend(wire.codec, &wire.options, &source, Backend::Interpreter).unwrap();
            for backend in backends() {
                let decoder = Decoder::for_shape_with_backend(wire.codec, &wire.options, &writer, &target, backend);
                let decoder = decoder.unwrap_or_else(|error| panic!("{wire:?}: {error}"));
                for (from, to) in pairs {
                    let from = record(&source, from);
                    let to = to.as_ref().map(|to| record(&target, to));
                    assert_eq!(convert(&writer, &from, &target).ok(), to, "the reference, of {from:?}");
                    let mut message = Vec::new();
                    encoder.encode(&from, &mut message).unwrap();
                    let mut got = random_record(&mut Random::new(5), &target);
                    match (decoder.decode(&message, &mut got), to) {
                        (Ok(_), Some(to)) => assert_eq!(got, to, "{wire:?}, {backend:?}, {extensibility:?}, {from:?}"),
                        (Err(_), None) => {}
                        (outcome, to) => panic!("{wire:?}, {backend:?}, {from:?}: {outcome:?} {got:?}, not {to:?}"),
                    }
                }
            }
        }
    }
}

/// No decoder is made.
#[track_caller]
fn check_refused(writer: &Schema, reader: &Schema) {
    assert!(!assess(writer, reader).is_compatible());
    let target = Shape::of(reader).unwrap();
    for wire in wires() {
        let decoder = Decoder::for_shape_with_backend(wire.codec, &wire.options, writer, &target, Backend::Interpreter);
        assert!(matches!(decoder, Err(BuildError::Lower(LowerError::Refused(_)))), "{wire:?}");
    }
}

#[test]
fn members_move_come_and_go() {
    let old = of(vec![m("a", Type::Uint8), m("b", Type::string()), m("c", Type::Float64)]);
    let moved = of(vec![m("c", Type::Float64), m("a", Type::Uint8), m("b", Type::string())]);
    let values = || [("a", int(7)), ("b", text("seven")), ("c", Value::Float(7.5))];
    check(&old, &moved, &[pair(values(), values())]);
    check(&moved, &old, &[pair(values(), values())]);
    let grown = of(vec![
        m("n", Type::Int64).with_default(Literal::Int(-3)),
        m("a", Type::Uint8),
        m("l", Type::sequence(Type::string())),
        m("b", Type::string()),
        m("t", Type::string()).with_default(Literal::String("longer than any short text".into())),
        m("c", Type::Float64),
    ]);
    check(&old, &grown, &[pair(values(), values())]);
    let list = || ("l", Value::List(vec![text("x"), text(""), text("yz")]));
    let [x, y, z] = values();
    check(&grown, &old, &[pair([x, y, z, list(), ("n", int(9)), ("t", text("t"))], values())]);
    let pruned = of(vec![m("a", Type::Uint8), m("c", Type::Float64)]);
    check(&old, &pruned, &[pair(values(), [("a", int(7)), ("c", Value::Float(7.5))])]);
}

#[test]
fn members_move_into_a_base_and_out_of_it() {
    let flat = of(vec![m("a", Type::Uint8), m("b", Type::string())]);
    let based = schema(vec![
        Def::structure("S", vec![m("b", Type::string())]).with_base(DefId(1)),
        Def::structure("Base", vec![m("a", Type::Uint8)]),
    ]);
    let values = || [("a", int(200)), ("b", text("base"))];
    check(&flat, &based, &[pair(values(), values())]);
    check(&based, &flat, &[pair(values(), values())]);
}

#[test]
fn members_are_renamed_by_their_ids() {
    let old = of(vec![m("a", Type::Uint8).with_id(1), m("b", Type::string()).with_id(2)]);
    let new = of(vec![m("beta", Type::string()).with_id(2), m("alpha", Type::Uint8).with_id(1)]);
    check(&old, &new, &[pair([("a", int(1)), ("b", text("x"))], [("alpha", int(1)), ("beta", text("x"))])]);
    check(&new, &old, &[pair([("alpha", int(1)), ("beta", text("x"))], [("a", int(1)), ("b", text("x"))])]);
    check_refused(&old, &of(vec![m("a", Type::Uint8).with_id(9), m("b", Type::string()).with_id(2)]));
}

#[test]
fn numbers_widen_and_do_not_narrow() {
    let rows = [
        (Type::Int8, Type::Int64, int(-128)),
        (Type::Uint8, Type::Int16, int(255)),
        (Type::Int16, Type::Int32, int(-32768)),
        (Type::Uint16, Type::Uint64, int(65535)),
        (Type::Uint32, Type::Int64, int(4_294_967_295)),
        (Type::Int16, Type::Float32, int(-32768)),
        (Type::Uint32, Type::Float64, int(4_294_967_295)),
        (Type::Octet, Type::Uint8, int(200)),
    ];
    for (narrow, wide, value) in rows {
        for make in [|ty| a(ty), |ty| a(Type::sequence(ty)), |ty| a(Type::array(ty, [3, 2]))] {
            let (old, new) = (make(narrow.clone()), make(wide.clone()));
            let value = match &old.members(DefId(0))[1].ty {
                Type::Sequence { .. } => Value::List(vec![value.clone(); 5]),
                Type::Array { .. } => Value::List(vec![Value::List(vec![value.clone(); 2]); 3]),
                _ => value.clone(),
            };
            check(&old, &new, &[pair([("a", value.clone())], [("a", value)])]);
            if narrow != Type::Octet {
                check_refused(&new, &old);
            }
        }
    }
    let floats = [0.1f32, -0.0, f32::INFINITY, f32::MIN_POSITIVE];
    for float in floats {
        let value = || ("a", Value::Float(float.into()));
        check(&a(Type::Float32), &a(Type::Float64), &[pair([value()], [value()])]);
    }
    check_refused(&a(Type::Int32), &a(Type::Uint32));
    check_refused(&a(Type::Int64), &a(Type::Float64));
    check_refused(&a(Type::Bool), &a(Type::Uint8));
}

#[test]
fn optional_and_mandatory() {
    let mandatory = holding(m("a", Type::Int32), vec![]);
    let optional = holding(m("a", Type::Int32).as_optional(), vec![]);
    check(&mandatory, &optional, &[pair([("a", int(-1))], [("a", int(-1))])]);
    check(&optional, &mandatory, &[pair([("a", int(4))], [("a", int(4))]), refused([("a", Value::Absent)])]);
    let lenient = holding(with(m("a", Type::Int32), TryConstruct::UseDefault), vec![]);
    check(&optional, &lenient, &[pair([("a", Value::Absent)], [("a", int(0))])]);
    let trims = holding(with(m("a", Type::Int32), TryConstruct::Trim), vec![]);
    check(&optional, &trims, &[refused([("a", Value::Absent)])]);
    let defaulted = holding(m("a", Type::Int32).with_default(Literal::Int(42)), vec![]);
    check(&optional, &defaulted, &[pair([("a", Value::Absent)], [("a", int(42))])]);
}

#[test]
fn members_that_must_be_understood() {
    let plain = of(vec![m("a", Type::Bool)]);
    let mut marked = m("b", Type::string()).as_optional();
    marked.must_understand = true;
    let new = of(vec![m("a", Type::Bool), marked.clone()]);
    check(
        &new,
        &plain,
        &[
            pair([("a", Value::Bool(true))], [("a", Value::Bool(true))]),
            refused([("a", Value::Bool(true)), ("b", text("no"))]),
        ],
    );
    marked.optional = false;
    check_refused(&of(vec![m("a", Type::Bool), marked.clone()]), &plain);
    // A value that is skipped as a whole is not examined.
    let inner = Def::structure("I", vec![marked]);
    let skipped = schema(vec![Def::structure("S", vec![m("a", Type::Bool), m("i", DEF), m("z", Type::Uint8)]), inner]);
    let reader = of(vec![m("a", Type::Bool), m("z", Type::Uint8)]);
    check(&skipped, &reader, &[pair([("i.b", text("deep")), ("z", int(9))], [("z", int(9))])]);
}

#[test]
fn bounds_rise_and_fall() {
    use TryConstruct::{Discard, Trim, UseDefault};
    let wide = a(Type::String { bound: 10 });
    let narrow = |policy| holding(with(m("a", Type::String { bound: 4 }), policy), vec![]);
    check(&narrow(Discard), &wide, &[pair([("a", text("four"))], [("a", text("four"))])]);
    check(
        &wide,
        &narrow(Discard),
        &[pair([("a", text("four"))], [("a", text("four"))]), refused([("a", text("fiver"))])],
    );
    check(&wide, &narrow(Trim), &[pair([("a", text("fiver"))], [("a", text("five"))])]);
    check(&wide, &narrow(Trim), &[pair([("a", text("fünfe"))], [("a", text("fün"))])]);
    check(&wide, &narrow(UseDefault), &[pair([("a", text("fiver"))], [("a", text(""))])]);
    let fallback = with(m("a", Type::String { bound: 4 }).with_default(Literal::String("none".into())), UseDefault);
    check(&wide, &holding(fallback, vec![]), &[pair([("a", text("fiver"))], [("a", text("none"))])]);
    // An optional member that does not fit is not thereby absent.
    let optional = with(m("a", Type::String { bound: 4 }).as_optional(), UseDefault);
    check(&wide, &holding(optional, vec![]), &[pair([("a", text("fiver"))], [("a", text(""))])]);

    let list = |n: i128| Value::List((0..n).map(Value::Int).collect());
    for element in [Type::Int32, Type::Float64, Type::Uint8] {
        let long = a(Type::sequence(element.clone()));
        let ty = Type::Sequence { element: element.into(), bound: 3 };
        let short = |policy| holding(with(m("a", ty.clone()), policy), vec![]);
        check(&long, &short(Discard), &[pair([("a", list(3))], [("a", list(3))]), refused([("a", list(4))])]);
        check(&long, &short(Trim), &[pair([("a", list(5))], [("a", list(3))])]);
        check(&long, &short(UseDefault), &[pair([("a", list(5))], [("a", list(0))])]);
        check(&short(Trim), &long, &[pair([("a", list(3))], [("a", list(3))])]);
    }
    // A policy of a collection applies to its elements.
    let names = |bound, policy| {
        let ty = Type::sequence(Type::String { bound });
        holding(with(m("a", ty), policy), vec![])
    };
    let words = |words: &[&str]| Value::List(words.iter().map(|w| text(w)).collect());
    let from = || [("a", words(&["one", "three", ""]))];
    check(&names(0, Discard), &names(4, Trim), &[pair(from(), [("a", words(&["one", "thre", ""]))])]);
    check(&names(0, Discard), &names(4, UseDefault), &[pair(from(), [("a", words(&["one", "", ""]))])]);
    check(&names(0, Discard), &names(4, Discard), &[refused(from())]);
}

#[test]
fn maps_are_cut_and_their_keys_are_not() {
    use TryConstruct::{Discard, Trim, UseDefault};
    let map = |key: u32, bound, policy| {
        let ty = Type::Map { key: Type::String { bound: key }.into(), value: Type::Int32.into(), bound };
        holding(with(m("a", ty), policy), vec![])
    };
    let entries = |names: &[&str]| {
        let entry = |(i, name): (usize, &&str)| (text(name), int(i as i128));
        Value::Entries(names.iter().enumerate().map(entry).collect())
    };
    let long = || [("a", entries(&["a", "b", "c"]))];
    check(&map(0, 0, Discard), &map(0, 2, Discard), &[refused(long())]);
    check(&map(0, 0, Discard), &map(0, 2, Trim), &[pair(long(), [("a", entries(&["a", "b"]))])]);
    check(&map(0, 0, Discard), &map(0, 2, UseDefault), &[pair(long(), [("a", entries(&[]))])]);
    for policy in [Discard, Trim, UseDefault] {
        check(&map(0, 0, Discard), &map(3, 0, policy), &[refused([("a", entries(&["long", "lone"]))])]);
    }
}

#[test]
fn literals_that_only_one_side_has() {
    use TryConstruct::{Discard, Trim, UseDefault};
    let old = |member| holding(member, vec![enumeration(&[("A", 0), ("B", 1)], None)]);
    let new = holding(m("a", DEF), vec![enumeration(&[("A", 0), ("BB", 1), ("C", 70)], None)]);
    let (known, unknown) = (|| ("a", int(1)), || ("a", int(70)));
    check(&old(m("a", DEF)), &new, &[pair([known()], [known()])]);
    check(&new, &old(m("a", DEF)), &[pair([known()], [known()]), refused([unknown()])]);
    check(&new, &old(with(m("a", DEF), Trim)), &[refused([unknown()])]);
    check(&new, &old(with(m("a", DEF), UseDefault)), &[pair([unknown()], [("a", int(0))])]);
    let named = m("a", DEF).with_default(Literal::Enum("B".into()));
    check(&new, &old(with(named.clone(), UseDefault)), &[pair([unknown()], [("a", int(1))])]);
    check(&new, &old(with(named, Discard)), &[refused([unknown()])]);
    let marked = |member| holding(member, vec![enumeration(&[("A", 0), ("B", 1)], Some("B"))]);
    check(&new, &marked(m("a", DEF)), &[pair([unknown()], [known()])]);
    check_refused(&new, &holding(m("a", DEF), vec![enumeration(&[("A", 0), ("C", 1)], None)]));
    // As an element, and as a key.
    let many = |ty: Type, marked| holding(m("a", ty), vec![enumeration(&[("A", 0), ("B", 1)], marked)]);
    let all = |ty: Type| holding(m("a", ty), vec![enumeration(&[("A", 0), ("B", 1), ("C", 70)], None)]);
    let list = |numbers: [i128; 3]| [("a", Value::List(numbers.map(int).into()))];
    check(&all(Type::sequence(DEF)), &many(Type::sequence(DEF), Some("B")), &[pair(list([0, 70, 1]), list([0, 1, 1]))]);
    let map = || Type::map(DEF, Type::Uint8);
    let entries = |key: i128| [("a", Value::Entries(vec![(int(key), int(5))]))];
    check(&all(map()), &many(map(), Some("B")), &[pair(entries(1), entries(1)), refused(entries(70))]);
}

#[test]
fn cases_that_only_one_side_has() {
    let number = || m("n", Type::Int32);
    let word = || m("w", Type::string());
    let one = |member| holding(member, vec![union(Type::Int32, &[(&[1], false, number())])]);
    let two = holding(m("a", DEF), vec![union(Type::Int32, &[(&[1], false, number()), (&[2], false, word())])]);
    let known = || [("a.n", int(5))];
    check(&one(m("a", DEF)), &two, &[pair(known(), known())]);
    check(&two, &one(m("a", DEF)), &[pair(known(), known()), refused([("a.w", text("new"))])]);
    let lenient = with(m("a", DEF), TryConstruct::UseDefault);
    check(&two, &one(lenient), &[pair([("a.w", text("new"))], [("a", int(1))])]);
    // A default case does not swallow a new one; a label it was given, or lost, changes nothing.
    let defaulted = holding(m("a", DEF), vec![union(Type::Int32, &[(&[1], false, number()), (&[], true, word())])]);
    check(&two, &defaulted, &[pair([("a", int(2)), ("a.w", text("w"))], [("a", int(2)), ("a.w", text("w"))])]);
    let other = m("other", Type::string());
    let swallows = holding(m("a", DEF), vec![union(Type::Int32, &[(&[1], false, number()), (&[], true, other)])]);
    check(&two, &swallows, &[refused([("a.w", text("w"))])]);
    // The type of a label's case evolves as types do.
    let wide = holding(m("a", DEF), vec![union(Type::Int32, &[(&[1], false, m("x", Type::Int64))])]);
    check(&one(m("a", DEF)), &wide, &[pair(known(), [("a.x", int(5))])]);
    check_refused(&wide, &one(m("a", DEF)));
}

#[test]
fn discriminators_are_not_replaced() {
    let unions = |literals: &[(&str, i32)], marked, cases: &[(&[i64], bool, Member)], policy| {
        let mut defs = vec![union(Type::Def(DefId(2)), cases), enumeration(literals, marked)];
        defs[1].name = "Kind".into();
        holding(with(m("a", DEF), policy), defs)
    };
    let case = |label: &'static [i64]| (label, false, m("n", Type::Int32));
    let writer = unions(&[("A", 0), ("B", 1), ("C", 2)], None, &[case(&[0, 2])], TryConstruct::Discard);
    for policy in [TryConstruct::Discard, TryConstruct::UseDefault] {
        let reader = unions(&[("A", 0), ("B", 1)], Some("B"), &[case(&[0])], policy);
        let unknown = [("a", int(2)), ("a.n", int(5))];
        let outcome = match policy {
            // Of the discriminators the marked one is the default; it selects no case, so the first
            // is taken.
            TryConstruct::UseDefault => pair(unknown, [("a", int(0)), ("a.n", int(0))]),
            _ => refused(unknown),
        };
        check(&writer, &reader, &[outcome, pair([("a", int(0)), ("a.n", int(5))], [("a", int(0)), ("a.n", int(5))])]);
    }
}

/// On a wire with room for all numbers, a discriminator may be any number. One that is not a value
/// of its type selects nothing, not even "no case": when written again, the value would be another
/// one, or none.
#[test]
fn discriminators_are_values_of_their_type() {
    let of = |discriminator: Type, labels: &[i64]| {
        let cases: Vec<_> = labels.iter().map(|label| (*label, m(&format!("n{label}"), Type::Int32))).collect();
        let cases: Vec<_> = cases.iter().map(|(label, m)| (std::slice::from_ref(label), false, m.clone())).collect();
        let kind = Def { name: "Kind".into(), ..enumeration(&[("A", 0), ("B", 1)], None) };
        holding(m("a", DEF), vec![union(discriminator, &cases), kind])
    };
    let types = [(Type::Bool, 44), (Type::Int8, 300), (Type::Uint8, -1), (Type::Uint64, -1), (Type::Def(DefId(2)), 44)];
    for (ty, number) in types {
        let (stranger, writer) = (of(Type::Int64, &[0]), of(ty.clone(), &[0, 1]));
        let (source, target) = (Shape::of(&stranger).unwrap(), Shape::of(&writer).unwrap());
        // Formats that have a size for each type have no room for the number, or take the bytes
        // apart at other places.
        for wire in wires().into_iter().filter(|wire| !wire.codec.name().contains("cdr")) {
            let encoder =
                Encoder::for_shape_with_backend(wire.codec, &wire.options, &source, Backend::Interpreter).unwrap();
            let mut message = Vec::new();
            encoder.encode(&record(&source, &[("a", int(number))]), &mut message).unwrap();
            for backend in backends() {
                let decoder =
                    Decoder::for_shape_with_backend(wire.codec, &wire.options, &writer, &target, backend).unwrap();
                let mut got = Record::new(&target);
                let outcome = decoder.decode(&message, &mut got);
                assert!(outcome.is_err(), "{wire:?}, {backend:?}: {number} is no {ty:?}: {got:?}");
            }
        }
    }
}

#[test]
fn flags_and_bit_fields_come_and_go() {
    let mask = |flags: &[(&str, u8)]| {
        let mut def = Def::structure("M", vec![]);
        let flag =
            |(name, position): &(&str, u8)| Flag { name: (*name).into(), position: *position, annotations: vec![] };
        def.kind = DefKind::Bitmask { bit_bound: 20, flags: flags.iter().map(flag).collect() };
        holding(m("a", DEF), vec![def])
    };
    let (few, many) = (mask(&[("R", 0), ("X", 5)]), mask(&[("R", 0), ("W", 3), ("X", 5), ("A", 19)]));
    check(&few, &many, &[pair([("a", int(0b10_0001))], [("a", int(0b10_0001))])]);
    check(&many, &few, &[pair([("a", int(1 << 19 | 0b10_1001))], [("a", int(0b10_0001))])]);
    let set = |fields: Vec<BitField>| {
        let mut def = Def::structure("B", vec![]);
        def.kind = DefKind::Bitset { base: None, fields };
        holding(m("a", DEF), vec![def])
    };
    let few = set(vec![BitField::new("a", 3)]);
    let many = set(vec![BitField::new("a", 3), BitField::new("b", 10)]);
    check(&few, &many, &[pair([("a", int(5))], [("a", int(5))])]);
    check(&many, &few, &[pair([("a", int(0x1FFD))], [("a", int(5))])]);
}

#[test]
fn nested_types_evolve_like_outer_ones() {
    let inner = |members| Def::structure("I", members);
    let (old, new) = (
        || inner(vec![m("x", Type::Int16), m("gone", Type::string()), m("y", Type::Bool)]),
        || inner(vec![m("y", Type::Bool), m("x", Type::Int64), m("new", Type::Uint8).with_default(Literal::Int(8))]),
    );
    let types = [DEF, Type::sequence(DEF), Type::array(DEF, [1]), Type::map(Type::Uint8, DEF)];
    for (ty, path) in types.into_iter().zip(["a", "a[0]", "a[0]", "a[7]"]) {
        let (old, new) = (holding(m("a", ty.clone()), vec![old()]), holding(m("a", ty.clone()), vec![new()]));
        let (source, target) = (Shape::of(&old).unwrap(), Shape::of(&new).unwrap());
        let (mut from, mut to) = (Record::new(&source), Record::new(&target));
        if matches!(ty, Type::Sequence { .. }) {
            from.resize("a", 1).unwrap();
            to.resize("a", 1).unwrap();
        }
        from.set(&format!("{path}.x"), int(-5)).unwrap();
        from.set(&format!("{path}.gone"), text("gone")).unwrap();
        from.set(&format!("{path}.y"), true).unwrap();
        to.set(&format!("{path}.x"), int(-5)).unwrap();
        to.set(&format!("{path}.y"), true).unwrap();
        to.set("last", int(0)).unwrap();
        for wire in wires() {
            let encoder = Encoder::for_shape(wire.codec, &wire.options, &source).unwrap();
            let mut message = Vec::new();
            encoder.encode(&from, &mut message).unwrap();
            for backend in backends() {
                let decoder =
                    Decoder::for_shape_with_backend(wire.codec, &wire.options, &old, &target, backend).unwrap();
                let mut got = random_record(&mut Random::new(5), &target);
                decoder.decode(&message, &mut got).unwrap();
                assert_eq!(got, to, "{wire:?}, {backend:?}, {ty:?}");
            }
        }
    }
}

#[test]
fn names_of_types_do_not_matter_and_kinds_do() {
    let aliased = |name: &str| {
        let mut def = Def::structure(name, vec![]);
        def.kind = DefKind::Alias { target: Type::Int32 };
        holding(m("a", DEF), vec![def])
    };
    let value = || [("a", int(-9))];
    check(&a(Type::Int32), &aliased("Number"), &[pair(value(), value())]);
    check(&aliased("Number"), &aliased("Figure"), &[pair(value(), value())]);
    check_refused(&a(Type::array(Type::Int32, [2])), &a(Type::array(Type::Int32, [3])));
    check_refused(&a(Type::array(Type::Int32, [2])), &a(Type::sequence(Type::Int32)));
    check_refused(&a(Type::string()), &a(Type::WString { bound: 0 }));
    let mut keyed = m("a", Type::Int32);
    keyed.key = true;
    check_refused(&a(Type::Int32), &holding(keyed, vec![]));
}
