//! A schema that is written as IDL and compiled again is the same type.

use std::collections::BTreeMap;

use polywire_core::schema::arbitrary::Random;
use polywire_core::schema::{Def, DefId, DefKind, Member, Schema, SchemaBuilder, SchemaLimits, Type};
use polywire_idl::{Compiler, emit};
use polywire_testing::random_schema;
use proptest::prelude::*;

/// Every definition but the typedefs, by name, with typedefs resolved: the order of a table is no
/// part of a type.
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
    same_hashes(schema, again.definitions(), &text)
}

/// Every definition is the same type when it is the root.
fn same_hashes(before: &Schema, after: &Schema, text: &str) -> Result<(), TestCaseError> {
    for (def, i) in before.defs().iter().zip(0..) {
        let Some(id) = after.find(&def.name) else { return Err(TestCaseError::fail(format!("no {}", def.name))) };
        let (hash, again) = (before.with_root(DefId(i)).type_hash(), after.with_root(id).type_hash());
        prop_assert_eq!(hash, again, "{} in\n{}", def.name, text);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schema_comes_back(seed in any::<u64>()) {
        round_trip(&super::schemas::schema(&mut Random::new(seed)))?;
    }

    #[test]
    fn any_schema_of_the_core_comes_back(seed in any::<u64>(), size in 1..12usize) {
        let schema = random_schema(seed, size);
        let text = emit::idl(&schema).map_err(|e| TestCaseError::fail(e.to_string()))?;
        match Compiler::new().parse_str("again.idl", &text) {
            Ok(document) => same_hashes(&schema, document.definitions(), &text)?,
            Err(errors) => return Err(TestCaseError::fail(format!("{errors}\n{text}"))),
        }
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
        @value(5) HIGH
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
fn names_that_idl_cannot_express_are_refused() {
    let refused = |def: Def| {
        let mut builder = SchemaBuilder::new();
        let id = builder.add(def);
        emit::idl(&builder.finish(Type::Def(id)).unwrap()).unwrap_err().to_string()
    };
    assert_eq!(refused(Def::structure("A; struct B", vec![])), "A; struct B: 'A; struct B' is not an identifier");
    assert_eq!(refused(Def::structure("S", vec![Member::new("a b", Type::Bool)])), "S: 'a b' is not an identifier");
}

#[test]
fn floats_that_are_no_numbers_come_back() {
    let values = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0];
    let member = |(value, name): (f64, &str)| {
        Member::new(name, Type::Float32).with_default(polywire_core::schema::Literal::Float(value))
    };
    let mut builder = SchemaBuilder::new();
    let members = values.into_iter().zip(["a", "b", "c", "d"]).map(member).collect();
    let id = builder.add(Def::structure("Floats", members));
    let schema = builder.finish(Type::Def(id)).unwrap();
    let text = emit::idl(&schema).unwrap();
    let again = Compiler::new().parse_str("again.idl", &text).unwrap_or_else(|e| panic!("{e}"));
    same_hashes(&schema, again.definitions(), &text).unwrap();
    // An attribute of Rust takes literals alone.
    assert_eq!(emit::rust(&schema).unwrap_err().to_string(), "Floats: there is no literal for the default inf");
}

#[test]
fn a_long_chain_of_types_fits_the_stack() {
    let limits = SchemaLimits { depth: usize::MAX, ..SchemaLimits::default() };
    let mut builder = SchemaBuilder::with_limits(limits);
    for i in 0..4000u32 {
        let next = if i < 3999 { Type::sequence(Type::Def(DefId(i + 1))) } else { Type::Bool };
        builder.add(Def::structure(format!("S{i}"), vec![Member::new("next", next)]));
    }
    let schema = builder.finish(Type::Def(DefId(0))).unwrap();
    let text = std::thread::Builder::new().stack_size(1 << 20).spawn(move || emit::idl(&schema).unwrap());
    let text = text.unwrap().join().unwrap();
    assert!(text.starts_with("@appendable\nstruct S3999 {"));
    let refused = Compiler::new().parse_str("again.idl", &text).expect_err("it is deeper than schemas may be");
    assert!(refused.to_string().contains("depth is 7999"), "{refused}");
}
