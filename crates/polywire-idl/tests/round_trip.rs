//! A schema written as IDL and parsed again is the same type.

use std::collections::BTreeMap;

use polywire_core::schema::{Def, DefKind, Member, Schema, Type};
use polywire_idl::{Compiler, emit};
use proptest::prelude::*;

mod common;

/// Every definition but the typedefs, typedefs replaced by what they stand for, by name: the order of a table is no part of a type.
fn described(schema: &Schema) -> BTreeMap<String, String> {
    let defs = schema.defs().iter().filter(|d| !matches!(d.kind, DefKind::Alias { .. }));
    defs.map(|def| (def.name.clone(), describe(schema, def))).collect()
}

fn describe(schema: &Schema, def: &Def) -> String {
    let member = |m: &Member| {
        let plain = Member { ty: Type::Octet, ..m.clone() };
        format!("{} {plain:?}", type_text(schema, &m.ty))
    };
    let head = format!("{:?} {} {:?} {:?} {}", def.extensibility, def.nested, def.auto_id, def.annotations, def.doc);
    let base = |base: &Option<_>| base.map(|id| schema.def(id).name.clone());
    let body = match &def.kind {
        DefKind::Struct { base: b, members } => {
            format!("{:?} {:?}", base(b), members.iter().map(member).collect::<Vec<_>>())
        }
        DefKind::Union { discriminator, key, cases } => {
            let case =
                |c: &polywire_core::schema::Case| format!("{:?} {} {}", c.labels, c.is_default, member(&c.member));
            format!("{} {key} {:?}", type_text(schema, discriminator), cases.iter().map(case).collect::<Vec<_>>())
        }
        DefKind::Bitset { base: b, fields } => format!("{:?} {fields:?}", base(b)),
        other => format!("{other:?}"),
    };
    format!("{head} {body}")
}

fn type_text(schema: &Schema, ty: &Type) -> String {
    match schema.resolve(ty) {
        Type::Def(id) => schema.def(*id).name.clone(),
        Type::Sequence { element, bound } => format!("sequence<{}, {bound}>", type_text(schema, element)),
        Type::Array { element, dims } => format!("{}{dims:?}", type_text(schema, element)),
        Type::Map { key, value, bound } => {
            format!("map<{}, {}, {bound}>", type_text(schema, key), type_text(schema, value))
        }
        other => format!("{other:?}"),
    }
}

fn round_trip(schema: &Schema) -> Result<(), TestCaseError> {
    let text = emit::idl(schema).map_err(|e| TestCaseError::fail(e.to_string()))?;
    let again = match Compiler::new().parse_str("again.idl", &text) {
        Ok(document) => document,
        Err(errors) => return Err(TestCaseError::fail(format!("{errors}\n{text}"))),
    };
    let (before, after) = (described(schema), described(again.definitions()));
    for (name, text_before) in &before {
        prop_assert_eq!(after.get(name), Some(text_before), "{}", text);
    }
    prop_assert_eq!(before.len(), after.len(), "{}", text);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schema_comes_back(seed in any::<u64>()) {
        round_trip(&common::schema(&mut common::Random(seed)))?;
    }
}

#[test]
fn the_workloads_come_back() {
    for name in ["avenue.idl", "market_data.idl", "processor_probe.pdl", "switch_probe.pdl", "codecs_test.pdl"] {
        let path = format!("{}/../../workloads/{name}", env!("CARGO_MANIFEST_DIR"));
        let document = Compiler::new().parse_file(&path).unwrap();
        round_trip(document.definitions()).unwrap();
    }
}

#[test]
fn modules_are_reopened_and_recursion_is_declared() {
    let text = "\
module A {
    struct Node;

    typedef sequence<Node> Nodes;

    @final
    struct Node {
        Nodes children;
    };
};

module B {
    enum Kind {
        LOW,
        @value(5) HIGH,
    };
};

module A {
    /// Has a kind.
    @appendable
    struct Leaf : ::A::Node {
        @default(HIGH) B::Kind kind;
    };
};
";
    let document = Compiler::new().parse_str("a.idl", text).unwrap();
    assert_eq!(emit::idl(document.definitions()).unwrap(), text.replace(": ::A::Node", ": Node"));
}

#[test]
fn what_idl_has_no_words_for_is_refused() {
    use polywire_core::schema::{Literal, SchemaBuilder};
    let refused = |def: Def| {
        let mut builder = SchemaBuilder::new();
        let id = builder.add(def);
        emit::idl(&builder.finish(Type::Def(id)).unwrap()).unwrap_err().to_string()
    };
    assert_eq!(refused(Def::structure("A; struct B", vec![])), "A; struct B: 'A; struct B' is no identifier");
    let infinite = Member::new("x", Type::Float64).with_default(Literal::Float(f64::INFINITY));
    assert_eq!(refused(Def::structure("S", vec![infinite])), "S: there is no constant for inf");
    let loops = Def::alias("L", Type::sequence(Type::Def(polywire_core::schema::DefId(0))));
    assert_eq!(refused(loops), "L: it and other typedefs contain each other");
}
