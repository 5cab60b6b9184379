//! Tests every change of a type that `spec/evolution.md` names, with its verdict in both
//! directions.

use alloc::{
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

use super::*;
use crate::schema::{
    BitField, Case, Def, DefId, DefKind, EnumLiteral, Extensibility, Flag, Literal, Member, Schema, SchemaBuilder,
    TryConstruct, Type, random_schema,
};

/// A schema with the first definition as its root.
fn schema(defs: Vec<Def>) -> Schema {
    let mut builder = SchemaBuilder::new();
    let ids: Vec<DefId> = defs.into_iter().map(|def| builder.add(def)).collect();
    builder.finish(Type::Def(ids[0])).unwrap()
}

fn of(members: Vec<Member>) -> Schema {
    schema(vec![Def::structure("S", members)])
}

/// A structure with a member `a` of this type, after a member that both versions have.
fn holding(ty: Type, mut defs: Vec<Def>) -> Schema {
    defs.insert(0, Def::structure("S", vec![m("common", Type::Bool), m("a", ty)]));
    schema(defs)
}

fn a(ty: Type) -> Schema {
    holding(ty, vec![])
}

fn m(name: &str, ty: Type) -> Member {
    Member::new(name, ty)
}

fn with(mut member: Member, change: impl Fn(&mut Member)) -> Member {
    change(&mut member);
    member
}

/// A verdict in one line.
fn told(verdict: &Verdict) -> String {
    let lines: Vec<String> = match verdict {
        Verdict::Always => return "always".to_string(),
        Verdict::PerValue(all) => all.iter().map(|c| format!("{}: {}: {:?}", c.path, c.text, c.policy)).collect(),
        Verdict::Refused(all) => all.iter().map(|r| format!("{}: {} | {}", r.path, r.writer, r.reader)).collect(),
    };
    lines.join("; ")
}

#[track_caller]
fn check(old: &Schema, new: &Schema, forth: &str, back: &str) {
    assert_eq!(told(&assess(old, new)), forth, "an old writer, a new reader");
    assert_eq!(told(&assess(new, old)), back, "a new writer, an old reader");
}

const ALWAYS: &str = "always";

#[test]
fn members_reordered_added_and_removed() {
    let old = of(vec![m("a", Type::Int32), m("b", Type::string()), m("c", Type::Bool)]);
    check(&old, &of(vec![m("c", Type::Bool), m("a", Type::Int32), m("b", Type::string())]), ALWAYS, ALWAYS);
    check(&old, &of(vec![m("a", Type::Int32), m("n", Type::Int8), m("b", Type::string())]), ALWAYS, ALWAYS);
    check(&old, &of(vec![]), ALWAYS, ALWAYS);
    check(&old, &of(vec![m("x", Type::Int32)]), ": struct S | struct S", ": struct S | struct S");
}

#[test]
fn members_found_by_id_and_by_name() {
    let old = of(vec![m("a", Type::Int32).with_id(1), m("b", Type::Int32).with_id(2)]);
    let renamed = of(vec![m("x", Type::Int32).with_id(1), m("b", Type::Int32).with_id(2)]);
    check(&old, &renamed, ALWAYS, ALWAYS);
    let id_dropped = of(vec![m("b", Type::Int32), m("a", Type::Int32)]);
    check(&old, &id_dropped, ALWAYS, ALWAYS);
    // Counted ids depend on the order of declaration: they pair nothing and contradict nothing.
    check(&of(vec![m("a", Type::Bool), m("b", Type::Bool)]), &of(vec![m("b", Type::Bool)]), ALWAYS, ALWAYS);
    check(
        &old,
        &of(vec![m("a", Type::Int32).with_id(9), m("b", Type::Int32)]),
        ": @id(1) 'a' | @id(9) 'a'",
        ": @id(9) 'a' | @id(1) 'a'",
    );
    check(
        &old,
        &of(vec![m("b", Type::Int32).with_id(1), m("a", Type::Int32).with_id(2)]),
        ": @id(1) 'a' | @id(1) 'b' and @id(2) 'a'",
        ": @id(1) 'b' | @id(1) 'a' and @id(2) 'b'",
    );
    check(
        &old,
        &of(vec![m("x", Type::Int32).with_id(1), m("a", Type::Int32)]),
        ": @id(1) 'a' | @id(1) 'x' and 'a'",
        ": @id(1) 'x' and 'a' | @id(1) 'a'",
    );
}

#[test]
fn pairs_come_in_the_order_of_the_writer() {
    let writer = of(vec![m("a", Type::Bool), m("b", Type::Bool), m("c", Type::Bool)]);
    let reader = of(vec![m("y", Type::Bool), m("c", Type::Bool), m("x", Type::Bool), m("a", Type::Bool)]);
    let pairs = pair_members(&writer, DefId(0), &reader, DefId(0)).unwrap();
    let places: Vec<_> = pairs.iter().map(|p| (p.writer.map(|p| p.0), p.reader.map(|p| p.0))).collect();
    let want = [(Some(0), Some(3)), (Some(1), None), (Some(2), Some(1)), (None, Some(0)), (None, Some(2))];
    assert_eq!(places, want);
}

#[test]
fn optional_and_mandatory() {
    let mandatory = of(vec![m("a", Type::Int32), m("b", Type::Bool)]);
    let optional = of(vec![m("a", Type::Int32).as_optional(), m("b", Type::Bool)]);
    check(&mandatory, &optional, ALWAYS, "a: values without this member: Discard");
    let defaulted = of(vec![m("a", Type::Int32).with_default(Literal::Int(4)), m("b", Type::Bool)]);
    check(&defaulted, &optional, ALWAYS, ALWAYS);
    let lenient = with(m("a", Type::Int32), |m| m.try_construct = TryConstruct::UseDefault);
    let lenient = of(vec![lenient]);
    check(&lenient, &optional, ALWAYS, "a: values without this member: UseDefault");
    let absent = |schema: &Schema| format!("{:?}", absent_value(schema, schema.members(DefId(0))[0]));
    assert_eq!(
        [&mandatory, &optional, &defaulted, &lenient].map(absent),
        ["None", "Some(Absent)", "Some(Int(4))", "Some(Int(0))"]
    );
}

#[test]
fn scalars_widen_and_never_narrow() {
    for (old, new) in [
        (Type::Int8, Type::Int64),
        (Type::Uint16, Type::Uint32),
        (Type::Uint32, Type::Int64),
        (Type::Int32, Type::Float64),
        (Type::Uint16, Type::Float32),
        (Type::Float32, Type::Float64),
    ] {
        let (w, r) = (a(old), a(new));
        assert_eq!(assess(&w, &r), Verdict::Always);
        assert!(matches!(assess(&r, &w), Verdict::Refused(reasons) if reasons[0].path == "a"));
    }
    check(&a(Type::Octet), &a(Type::Uint8), ALWAYS, ALWAYS);
    for (old, new, forth, back) in [
        (Type::Bool, Type::Uint8, "a: boolean | uint8", "a: uint8 | boolean"),
        (Type::Int32, Type::Float32, "a: int32 | float", "a: float | int32"),
        (Type::Int32, Type::Uint32, "a: int32 | uint32", "a: uint32 | int32"),
        (Type::Char8, Type::Char16, "a: char | wchar", "a: wchar | char"),
        (Type::Float64, Type::Float128, "a: double | long double", "a: long double | double"),
        (Type::string(), Type::WString { bound: 0 }, "a: string | wstring", "a: wstring | string"),
        (Type::string(), Type::Int32, "a: string | int32", "a: int32 | string"),
        (Type::sequence(Type::Int32), Type::Int32, "a: sequence<int32> | int32", "a: int32 | sequence<int32>"),
    ] {
        check(&a(old), &a(new), forth, back);
    }
}

#[test]
fn bounds_decide_per_value() {
    let text = |bound| Type::String { bound };
    check(&a(text(0)), &a(text(8)), "a: strings longer than 8: Discard", ALWAYS);
    check(&a(text(4)), &a(text(8)), ALWAYS, "a: strings longer than 4: Discard");
    let wide = |bound| Type::WString { bound };
    check(&a(wide(4)), &a(wide(8)), ALWAYS, "a: strings longer than 4: Discard");
    let list = |bound| Type::Sequence { element: Type::Int32.into(), bound };
    check(&a(list(0)), &a(list(2)), "a: sequences longer than 2: Discard", ALWAYS);
    let map = |bound| Type::Map { key: Type::Int32.into(), value: Type::Int32.into(), bound };
    check(&a(map(0)), &a(map(2)), "a: maps longer than 2: Discard", ALWAYS);
}

#[test]
fn try_construct_says_what_happens() {
    let tried = |try_construct, ty: Type| of(vec![with(m("a", ty), |m| m.try_construct = try_construct)]);
    let long = of(vec![m("a", Type::string())]);
    let short = Type::String { bound: 3 };
    let verdict = |try_construct| told(&assess(&long, &tried(try_construct, short.clone())));
    assert_eq!(verdict(TryConstruct::Discard), "a: strings longer than 3: Discard");
    assert_eq!(verdict(TryConstruct::UseDefault), "a: strings longer than 3: UseDefault");
    assert_eq!(verdict(TryConstruct::Trim), "a: strings longer than 3: Trim");
    // It applies inside the member's own collections, but map keys are never replaced or cut.
    let map = |bound| Type::map(Type::String { bound }, Type::sequence(Type::String { bound }));
    assert_eq!(
        told(&assess(&tried(TryConstruct::Discard, map(0)), &tried(TryConstruct::Trim, map(3)))),
        "a{key}: strings longer than 3: Discard; a[][]: strings longer than 3: Trim"
    );
    // It does not apply inside a structure.
    let nested = |bound, try_construct| {
        let outer = with(m("s", Type::Def(DefId(1))), |m| m.try_construct = try_construct);
        schema(vec![Def::structure("S", vec![outer]), Def::structure("T", vec![m("a", Type::String { bound })])])
    };
    assert_eq!(
        told(&assess(&nested(0, TryConstruct::Discard), &nested(3, TryConstruct::Trim))),
        "s.a: strings longer than 3: Discard"
    );
}

#[test]
fn arrays_keep_their_dimensions() {
    let array = |dims: &[u32]| a(Type::array(Type::Float32, dims));
    check(&array(&[2, 3]), &a(Type::array(Type::Float64, [2, 3])), ALWAYS, "a[]: double | float");
    check(&array(&[2]), &array(&[3]), "a: [2] | [3]", "a: [3] | [2]");
    check(&array(&[2, 3]), &array(&[6]), "a: [2][3] | [6]", "a: [6] | [2][3]");
    check(&array(&[2, 3]), &a(Type::array(Type::array(Type::Float32, [3]), [2])), ALWAYS, ALWAYS);
    check(
        &array(&[2]),
        &a(Type::sequence(Type::Float32)),
        "a: float[2] | sequence<float>",
        "a: sequence<float> | float[2]",
    );
}

#[test]
fn maps_by_key_and_value() {
    let map = |key, value| a(Type::map(key, value));
    check(
        &map(Type::Int16, Type::Float32),
        &map(Type::Int32, Type::Float64),
        ALWAYS,
        "a{key}: int32 | int16; a[]: double | float",
    );
}

#[test]
fn typedefs_are_transparent() {
    let named = holding(
        Type::Def(DefId(1)),
        vec![Def::alias("A", Type::sequence(Type::Def(DefId(2)))), Def::alias("B", Type::Int32)],
    );
    check(&named, &a(Type::sequence(Type::Int32)), ALWAYS, ALWAYS);
    check(&named, &a(Type::sequence(Type::Int64)), ALWAYS, "a[]: int64 | int32");
}

fn color(literals: &[(&str, i32)], default: Option<usize>) -> Def {
    let mut literals: Vec<EnumLiteral> = literals.iter().map(|(name, value)| EnumLiteral::new(*name, *value)).collect();
    default.into_iter().for_each(|i| literals[i].is_default = true);
    let mut def = Def::enumeration("Color", ["X"]);
    def.kind = DefKind::Enum { bit_bound: 32, literals };
    def
}

#[test]
fn literals_added_renamed_and_moved() {
    let colored = |def| holding(Type::Def(DefId(1)), vec![def]);
    let old = colored(color(&[("RED", 0), ("GREEN", 1)], None));
    let more = colored(color(&[("RED", 0), ("GREEN", 1), ("BLUE", 2)], None));
    check(&old, &more, ALWAYS, "a: the literal 'BLUE' (2): Discard");
    let marked = colored(color(&[("RED", 0), ("GREEN", 1)], Some(0)));
    check(&marked, &more, ALWAYS, "a: the literal 'BLUE' (2): DefaultLiteral");
    check(&old, &colored(color(&[("ROUGE", 0), ("GREEN", 1)], None)), ALWAYS, ALWAYS);
    check(
        &old,
        &colored(color(&[("RED", 0), ("BLUE", 1), ("GREEN", 2)], None)),
        "a: literal 'GREEN' with value 1 | literal 'GREEN' with value 2",
        "a: literal 'GREEN' with value 2 | literal 'GREEN' with value 1",
    );
    check(&old, &a(Type::Int32), "a: Color | int32", "a: int32 | Color");
    let mut narrow = color(&[("RED", 0), ("GREEN", 1)], None);
    narrow.kind = match narrow.kind {
        DefKind::Enum { literals, .. } => DefKind::Enum { bit_bound: 8, literals },
        other => other,
    };
    check(&old, &colored(narrow), ALWAYS, ALWAYS);
}

#[test]
fn a_members_try_construct_goes_before_the_default_literal() {
    let of_color = |literals: &[(&str, i32)], default, try_construct| {
        let member = with(m("a", Type::Def(DefId(1))), |m| m.try_construct = try_construct);
        schema(vec![Def::structure("S", vec![member]), color(literals, default)])
    };
    let new = of_color(&[("RED", 0), ("BLUE", 2)], None, TryConstruct::Discard);
    let verdict = |default, try_construct| told(&assess(&new, &of_color(&[("RED", 0)], default, try_construct)));
    assert_eq!(verdict(Some(0), TryConstruct::UseDefault), "a: the literal 'BLUE' (2): UseDefault");
    assert_eq!(verdict(Some(0), TryConstruct::Trim), "a: the literal 'BLUE' (2): DefaultLiteral");
    assert_eq!(verdict(None, TryConstruct::Trim), "a: the literal 'BLUE' (2): Discard");

    let reader = schema(vec![Def::structure("S", vec![]), color(&[("RED", 4), ("GREEN", 5)], Some(1))]);
    let own = with(m("a", Type::Def(DefId(1))), |m| m.default = Some(Literal::Enum("RED".into())));
    let value = |try_construct, own| unknown_literal(&reader, DefId(1), try_construct, own);
    assert_eq!(value(TryConstruct::UseDefault, Some(&own)), Some(4));
    let optional = own.clone().as_optional();
    assert_eq!(value(TryConstruct::UseDefault, Some(&optional)), Some(4));
    assert_eq!(value(TryConstruct::UseDefault, None), Some(5));
    assert_eq!(value(TryConstruct::Discard, Some(&own)), Some(5));
    let unmarked = schema(vec![Def::structure("S", vec![]), color(&[("RED", 4), ("GREEN", 5)], None)]);
    assert_eq!(unknown_literal(&unmarked, DefId(1), TryConstruct::Trim, None), None);
    assert_eq!(unknown_literal(&unmarked, DefId(1), TryConstruct::UseDefault, None), Some(4));
}

#[test]
fn flags_and_bit_fields() {
    let flags = |flags: &[(&str, u8)], bit_bound| {
        let flag =
            |(name, position): &(&str, u8)| Flag { name: name.to_string(), position: *position, annotations: vec![] };
        let mut def = Def::bitmask("M", bit_bound, ["X"]);
        def.kind = DefKind::Bitmask { bit_bound, flags: flags.iter().map(flag).collect() };
        holding(Type::Def(DefId(1)), vec![def])
    };
    let old = flags(&[("a", 0), ("b", 5)], 8);
    check(&old, &flags(&[("a", 0), ("b", 5), ("c", 9)], 16), ALWAYS, ALWAYS);
    check(&old, &flags(&[("z", 0), ("b", 5)], 8), ALWAYS, ALWAYS);
    check(
        &old,
        &flags(&[("a", 1), ("b", 5)], 8),
        "a: flag 'a' with position 0 | flag 'a' with position 1",
        "a: flag 'a' with position 1 | flag 'a' with position 0",
    );
    assert_eq!(
        kept_bits(&old, DefId(1), &flags(&[("a", 0), ("b", 5)], 33), DefId(1)),
        Ok(0xFF),
        "bits without a name are kept"
    );
    assert_eq!(kept_bits(&flags(&[("z", 0)], 64), DefId(1), &flags(&[("a", 0)], 64), DefId(1)), Ok(u64::MAX));
    let new = flags(&[("b", 5), ("c", 9)], 16);
    assert_eq!(kept_bits(&old, DefId(1), &new, DefId(1)), Ok(1 << 5));

    let fields = |fields| holding(Type::Def(DefId(1)), vec![Def::bitset("B", fields)]);
    let old = fields(vec![BitField::new("lo", 3), BitField::new("hi", 5)]);
    let new = fields(vec![BitField::new("low", 3), BitField::new("hi", 5), BitField::new("more", 9)]);
    check(&old, &new, ALWAYS, ALWAYS);
    assert_eq!(kept_bits(&new, DefId(1), &old, DefId(1)), Ok(0xFF));
    let renamed = fields(vec![BitField::new("low", 3), BitField::new("hi", 5)]);
    assert_eq!(kept_bits(&old, DefId(1), &renamed, DefId(1)), Ok(0xFF));
    let padding = BitField { name: None, ..BitField::new("", 3) };
    let less = fields(vec![padding, BitField::new("hi", 5)]);
    check(&old, &less, ALWAYS, ALWAYS);
    assert_eq!(kept_bits(&old, DefId(1), &less, DefId(1)), Ok(0xF8));
    let moved = fields(vec![BitField::new("lo", 3), BitField::new("hi", 6)]);
    check(&old, &moved, "a: 'hi' in bits 3 to 7 | 'hi' in bits 3 to 8", "a: 'hi' in bits 3 to 8 | 'hi' in bits 3 to 7");
    let overlapping = fields(vec![BitField::new("lo", 3), BitField::new("x", 4)]);
    check(
        &old,
        &overlapping,
        "a: 'hi' in bits 3 to 7 | 'x' in bits 3 to 6",
        "a: 'x' in bits 3 to 6 | 'hi' in bits 3 to 7",
    );
}

#[test]
fn cases_go_by_label() {
    let union = |cases| holding(Type::Def(DefId(1)), vec![Def::union("U", Type::Int32, cases)]);
    let one = || Case::new([1], "one", Type::Int32);
    let two = || Case::new([2], "two", Type::string());
    let rest = || Case::default("rest", Type::Bool);
    let old = union(vec![one()]);
    check(&old, &union(vec![two(), one()]), ALWAYS, "a: the case 'two' of discriminator 2: Discard");
    check(&old, &union(vec![one(), rest()]), ALWAYS, "a: the default case 'rest': Discard");
    check(&old, &union(vec![Case::new([1], "uno", Type::Int64)]), ALWAYS, "a.one: int64 | int32");
    // A case that moves from `default:` to a label of its own is another case, unless it keeps its
    // name.
    check(
        &union(vec![one(), rest()]),
        &union(vec![one(), two(), rest()]),
        "a: the case 'rest' of discriminator 2: Discard",
        "a: the case 'two' of discriminator 2: Discard",
    );
    let labelled = union(vec![one(), Case { labels: vec![7], ..rest() }]);
    check(&union(vec![one(), rest()]), &labelled, ALWAYS, ALWAYS);
    check(
        &union(vec![one(), two()]),
        &union(vec![Case::new([1, 2], "both", Type::Int32)]),
        "a.both: string | int32",
        "a.two: int32 | string",
    );
    let wide = holding(Type::Def(DefId(1)), vec![Def::union("U", Type::Int64, vec![one()])]);
    check(&old, &wide, ALWAYS, "a(discriminator): int64 | int32");
}

#[test]
fn rows_of_a_union_cover_every_discriminator() {
    let union = |cases| schema(vec![Def::union("U", Type::Int32, cases)]);
    let writer = union(vec![Case::new([1, 2], "a", Type::Int32), Case::new([3], "b", Type::Int32)]);
    let reader = union(vec![
        Case::new([2], "a", Type::Int32),
        Case::new([4], "c", Type::Int32),
        Case::default("b", Type::Int32),
    ]);
    let rows = pair_cases(&writer, DefId(0), &reader, DefId(0));
    let steps: Vec<_> = rows.iter().map(|row| (row.label, row.step())).collect();
    let want = [
        (Some(1), CaseStep::Unknown),
        (Some(2), CaseStep::Same),
        (Some(3), CaseStep::Same),
        (Some(4), CaseStep::Default),
        (None, CaseStep::Default),
    ];
    assert_eq!(steps, want);
}

#[test]
fn unknown_literals_of_a_discriminator_are_unknown_cases() {
    let union = |literals: &[(&str, i32)]| {
        let cases = literals.iter().map(|(name, value)| Case::new([i64::from(*value)], *name, Type::Int32)).collect();
        holding(Type::Def(DefId(1)), vec![Def::union("U", Type::Def(DefId(2)), cases), color(literals, Some(0))])
    };
    check(
        &union(&[("RED", 0)]),
        &union(&[("RED", 0), ("BLUE", 2)]),
        ALWAYS,
        "a: the case 'BLUE' of discriminator 2: Discard; a(discriminator): the literal 'BLUE' (2): Discard",
    );
}

#[test]
fn keys_stay() {
    let keyed = |ty| of(vec![m("k", ty).as_key(), m("a", Type::Bool)]);
    let plain = of(vec![m("k", Type::Int32), m("a", Type::Bool)]);
    check(&plain, &keyed(Type::Int32), "k: no @key | a @key", "k: a @key | no @key");
    let none = of(vec![m("a", Type::Bool)]);
    check(&none, &keyed(Type::Int32), "k: none | a member of the key", "k: a member of the key | none");
    check(&keyed(Type::Int32), &keyed(Type::Int64), "k: a key of type int32 | one of type int64", "k: int64 | int32");
    let nested = |members| {
        schema(vec![Def::structure("S", vec![m("k", Type::Def(DefId(1))).as_key()]), Def::structure("K", members)])
    };
    // If a structure has no key members, all its members are key.
    check(
        &nested(vec![m("x", Type::Int32)]),
        &nested(vec![m("x", Type::Int32), m("y", Type::Bool)]),
        "k.y: none | a member of the key",
        "k.y: a member of the key | none",
    );
    check(
        &nested(vec![m("x", Type::Int32).as_key()]),
        &nested(vec![m("x", Type::Int32).as_key(), m("y", Type::Bool)]),
        ALWAYS,
        ALWAYS,
    );
}

#[test]
fn what_must_be_understood_is_not_skipped() {
    let must = |optional| with(m("x", Type::Int32), |m| (m.must_understand, m.optional) = (true, optional));
    let none = of(vec![m("a", Type::Bool)]);
    check(
        &none,
        &of(vec![m("a", Type::Bool), must(false)]),
        "x: none | a @must_understand member",
        "x: a @must_understand member | none",
    );
    check(
        &none,
        &of(vec![m("a", Type::Bool), must(true)]),
        ALWAYS,
        "x: values with this @must_understand member: Discard",
    );
}

#[test]
fn nested_changes_at_any_depth_and_base_classes() {
    let tree = |leaf: Type| {
        schema(vec![
            Def::structure(
                "Book",
                vec![m("entries", Type::sequence(Type::Def(DefId(1)))), m("self", Type::sequence(Type::Def(DefId(0))))],
            ),
            Def::structure("Entry", vec![m("px", Type::array(Type::map(Type::Int8, leaf), [4]))]),
        ])
    };
    check(&tree(Type::Float32), &tree(Type::Float64), ALWAYS, "entries[].px[][]: double | float");

    let flat = of(vec![m("id", Type::Int32), m("a", Type::Bool)]);
    let derived = schema(vec![
        Def::structure("S", vec![m("a", Type::Bool)]).with_base(DefId(1)),
        Def::structure("Base", vec![m("id", Type::Int32)]),
    ]);
    check(&flat, &derived, ALWAYS, ALWAYS);
    let other_base = schema(vec![
        Def::structure("S", vec![m("a", Type::Bool)]).with_base(DefId(1)),
        Def::structure("Base", vec![m("id", Type::Int64), m("stamp", Type::Int64)]),
    ]);
    check(&derived, &other_base, ALWAYS, "id: int64 | int32");
}

#[test]
fn kinds_and_roots() {
    let as_enum = holding(Type::Def(DefId(1)), vec![color(&[("RED", 0)], None)]);
    let as_struct = holding(Type::Def(DefId(1)), vec![Def::structure("T", vec![])]);
    check(&as_enum, &as_struct, "a: enum Color | struct T", "a: struct T | enum Color");
    let root = |ty| SchemaBuilder::new().finish(ty).unwrap();
    check(&root(Type::Int16), &root(Type::Int32), ALWAYS, ": int32 | int16");
    check(&root(Type::Int16), &of(vec![]), ": int16 | S", ": S | int16");
}

#[test]
fn an_optional_recursion_through_itself_ends() {
    let list = |ty| {
        let next = with(m("next", Type::Def(DefId(0))), |m| (m.optional, m.external) = (true, true));
        schema(vec![Def::structure("Node", vec![m("v", ty), next])])
    };
    check(&list(Type::Int16), &list(Type::Int32), ALWAYS, "v: int32 | int16");
}

#[test]
fn defaults() {
    let defs = |members| {
        vec![
            Def::structure("S", members),
            color(&[("RED", 3), ("GREEN", 1)], None),
            Def { name: "Marked".into(), ..color(&[("A", 3), ("B", 7)], Some(1)) },
            Def::union(
                "U",
                Type::Def(DefId(1)),
                vec![Case::new([1], "a", Type::Int8), Case::new([3], "b", Type::Int8)],
            ),
            Def::union("V", Type::Int32, vec![Case::new([5], "a", Type::Int8), Case::new([6], "b", Type::Int8)]),
            Def::union("W", Type::Int32, vec![Case::new([5], "a", Type::Int8), Case::default("b", Type::Int8)]),
            Def::bitmask("M", 8, ["F", "G"]),
        ]
    };
    let default = |member: Member| {
        let schema = schema(defs(vec![member]));
        format!("{:?}", default_of(&schema, schema.members(DefId(0))[0]))
    };
    let of_type = |ty| default(m("a", ty));
    assert_eq!(of_type(Type::Bool), "Bool(false)");
    assert_eq!(of_type(Type::Octet), "Int(0)");
    assert_eq!(of_type(Type::Float128), "Float(0.0)");
    assert_eq!(of_type(Type::Char16), "Char(0)");
    assert_eq!(of_type(Type::WString { bound: 3 }), "Text(\"\")");
    assert_eq!(of_type(Type::sequence(Type::Bool)), "Empty");
    assert_eq!(of_type(Type::array(Type::Bool, [3])), "Elements");
    assert_eq!(of_type(Type::Def(DefId(1))), "Int(3)");
    assert_eq!(of_type(Type::Def(DefId(2))), "Int(7)");
    assert_eq!(of_type(Type::Def(DefId(3))), "Case { discriminator: 3, case: 1 }");
    assert_eq!(of_type(Type::Def(DefId(4))), "Case { discriminator: 5, case: 0 }");
    assert_eq!(of_type(Type::Def(DefId(5))), "Case { discriminator: 0, case: 1 }");
    assert_eq!(of_type(Type::Def(DefId(6))), "Int(0)");
    let said = |ty, literal| default(m("a", ty).with_default(literal));
    assert_eq!(said(Type::Def(DefId(1)), Literal::Enum("Mod::GREEN".into())), "Int(1)");
    assert_eq!(said(Type::Def(DefId(6)), Literal::Enum("G".into())), "Int(2)");
    assert_eq!(said(Type::string(), Literal::String("x".into())), "Text(\"x\")");
    assert_eq!(default(m("a", Type::Int8).with_default(Literal::Int(1)).as_optional()), "Absent");
}

#[test]
fn defaults_that_are_no_value_of_the_type_make_no_schema() {
    for (ty, literal) in [
        (Type::Uint8, Literal::Int(256)),
        (Type::Int8, Literal::Float(1.0)),
        (Type::Float32, Literal::Float(1e300)),
        (Type::String { bound: 1 }, Literal::String("ab".into())),
        (Type::sequence(Type::Bool), Literal::Int(0)),
        (Type::Def(DefId(0)), Literal::Int(0)),
        (Type::Def(DefId(1)), Literal::Enum("BLUE".into())),
    ] {
        let mut builder = SchemaBuilder::new();
        builder.add(Def::structure("T", vec![]));
        builder.add(color(&[("RED", 0)], None));
        let id = builder.add(Def::structure("S", vec![m("a", ty.clone()).with_default(literal)]));
        assert!(builder.finish(Type::Def(id)).is_err(), "{ty:?}");
    }
}

#[test]
fn a_verdict_reads_well() {
    let book = |px, size| {
        let entry = Def::structure("Entry", vec![m("mdEntryPx", px), m("mdEntryType", Type::String { bound: size })]);
        schema(vec![Def::structure("MarketData", vec![m("mdEntries", Type::sequence(Type::Def(DefId(1))))]), entry])
    };
    let refused = assess(&book(Type::Float64, 0), &book(Type::Float32, 0));
    assert_eq!(
        refused.to_string(),
        "refused\n  mdEntries[].mdEntryPx: the writer has double, the reader float\n    \
         to fix it: make the reader's type double"
    );
    let per_value = assess(&book(Type::Float64, 0), &book(Type::Float64, 4));
    assert_eq!(
        per_value.to_string(),
        "per value\n  mdEntries[].mdEntryType: strings longer than 4: the message is refused"
    );
    assert_eq!(assess(&book(Type::Float64, 4), &book(Type::Float64, 4)).to_string(), "always");
}

#[test]
fn strict_rules_refuse_what_needs_the_writers_schema() {
    let rules = Rules { strict_xtypes: true };
    let kept = |old: &Schema, new: &Schema| assess_with(old, new, rules).is_compatible();
    let kind = |extensibility, members| schema(vec![Def::structure("S", members).with_extensibility(extensibility)]);
    let (x, y, z) = (m("x", Type::Int32), m("y", Type::Int32), m("z", Type::Int32));
    let xy = || vec![x.clone(), y.clone()];
    let xyz = || vec![x.clone(), y.clone(), z.clone()];
    let xzy = || vec![x.clone(), z.clone(), y.clone()];
    use Extensibility::{Appendable, Final, Mutable};
    assert!(kept(&kind(Appendable, xy()), &kind(Appendable, xyz())));
    assert!(kept(&kind(Appendable, xyz()), &kind(Appendable, xy())));
    assert!(!kept(&kind(Appendable, xy()), &kind(Appendable, xzy())));
    assert!(!kept(&kind(Final, xy()), &kind(Final, xyz())));
    assert!(!kept(&kind(Appendable, xy()), &kind(Final, xy())));
    let with_ids = |members: Vec<Member>| {
        members.into_iter().map(|m| with(m, |m| m.explicit_id = Some(m.name.as_bytes()[0].into()))).collect()
    };
    assert!(kept(&kind(Mutable, with_ids(xzy())), &kind(Mutable, with_ids(xyz()))));
    assert!(!kept(&kind(Mutable, xzy()), &kind(Mutable, xyz())), "counted ids differ");
    assert!(!kept(&a(Type::Int16), &a(Type::Int32)), "widened");
    assert!(kept(&a(Type::String { bound: 3 }), &a(Type::string())));
}

#[test]
fn every_schema_understands_itself_and_no_pair_does_harm() {
    let rules = Rules { strict_xtypes: true };
    for seed in 0..300 {
        let (one, other) = (random_schema(seed, 12), random_schema(seed + 1, 12));
        assert_eq!(assess(&one, &one), Verdict::Always, "seed {seed}");
        assert_eq!(pairing_with_itself(&one), Verdict::Always, "seed {seed}");
        let _ = (assess(&one, &other).to_string(), assess_with(&one, &other, rules).to_string());
    }
}

/// The verdict on a schema and a copy whose definitions have other names, so that their hashes
/// differ and the walk runs completely.
fn pairing_with_itself(schema: &Schema) -> Verdict {
    let mut builder = SchemaBuilder::new();
    for def in schema.defs() {
        builder.add(Def { name: format!("{}_", def.name), ..def.clone() });
    }
    let renamed = builder.finish(schema.root().clone()).unwrap();
    assert_ne!(renamed.type_hash(), schema.type_hash());
    let verdict = assess(schema, &renamed);
    assert_eq!(verdict, assess_with(schema, &renamed, Rules { strict_xtypes: true }));
    verdict
}

#[test]
fn a_product_of_large_schemas_is_bounded() {
    // 1000 structures with 30 sequences of others each: a million pairs of definitions, if all were
    // compared.
    let tangle = |next: fn(u32, u32) -> u32| {
        let reference = |i: u32, k: u32| Type::sequence(Type::Def(DefId(next(i, k) % 1000)));
        let def = |i: u32| {
            let members = (0..30).map(|k| m(&format!("m{k}"), reference(i, k))).collect();
            Def::structure(format!("S{i}"), members)
        };
        schema((0..1000).map(def).collect())
    };
    let verdict = assess(&tangle(|i, k| 7 * i + k), &tangle(|i, k| 11 * i + k * k));
    assert!(matches!(&verdict, Verdict::Refused(reasons) if reasons[0].fix == "split the type"), "{verdict}");
}
