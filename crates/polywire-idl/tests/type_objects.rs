//! TypeObjects beside those that `idlc` of Cyclone DDS makes of the same IDL
//! (`conformance/type-objects`).

use std::{fs, path::PathBuf};

use polywire_core::schema::{Schema, SchemaLimits, TypeObjectError, TypeObjects, arbitrary::Random};
use polywire_idl::Compiler;
use polywire_testing::{mutated, random_schema};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/type-objects"))
}

fn octets(value: &serde_json::Value) -> Vec<u8> {
    let digits = value.as_str().expect("digits");
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("two digits")).collect()
}

fn vectors() -> Vec<(Schema, TypeObjects)> {
    let idl = fs::read_to_string(folder().join("types.idl")).expect("types.idl");
    let document = Compiler::new().parse_str("types.idl", &idl).expect("valid IDL");
    let lines = fs::read_to_string(folder().join("vectors.jsonl")).expect("vectors.jsonl");
    let of_line = |line: &str| {
        let vector: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let schema = document.schema(vector["type"].as_str().expect("a name")).expect("a type of types.idl");
        let (information, mapping) = (octets(&vector["information"]), octets(&vector["mapping"]));
        (schema, TypeObjects { information, mapping })
    };
    lines.lines().map(of_line).collect()
}

#[test]
fn type_objects_are_those_of_cyclone_dds() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 7);
    for (schema, golden) in vectors {
        let name = schema.name();
        let ours = TypeObjects::of(&schema).expect("type objects");
        assert_eq!(ours.information, golden.information, "{name}");
        assert_eq!(ours.mapping, golden.mapping, "{name}");
    }
}

#[test]
fn a_type_comes_back_from_its_type_objects() {
    for (schema, golden) in vectors() {
        let read = golden.schema(&SchemaLimits::default()).expect("a schema");
        assert_eq!(read.name(), schema.name());
        // Its ids are counted, and stated in the IDL only because idlc counts otherwise.
        if schema.name() != "plant::Named" {
            assert_eq!(read.type_hash(), schema.type_hash(), "{read:#?}");
        }
        assert_eq!(TypeObjects::of(&read), Ok(golden), "{}", schema.name());
    }
}

/// Random types have maps, bitsets, wide strings, unions and bases, which idlc does not know.
#[test]
fn random_types_come_back() {
    let mut recursive = 0;
    for seed in 0..2000 {
        let schema = random_schema(seed, 1 + seed as usize % 12);
        let objects = match TypeObjects::of(&schema) {
            Ok(objects) => objects,
            Err(TypeObjectError::Recursive { .. } | TypeObjectError::Label { .. } | TypeObjectError::Root) => {
                recursive += 1;
                continue;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        };
        let read = objects.schema(&SchemaLimits::default()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(read.name(), schema.name(), "seed {seed}");
        assert_eq!(TypeObjects::of(&read), Ok(objects), "seed {seed}");
    }
    assert!(recursive < 1000, "{recursive} of 2000");
}

#[test]
fn a_recursive_type_has_no_type_objects() {
    let idl = "struct Node; typedef sequence<Node> Nodes; struct Node { long id; Nodes children; };";
    let document = Compiler::new().parse_str("node.idl", idl).expect("valid IDL");
    let error = TypeObjects::of(&document.schema("Node").expect("a type")).expect_err("no type objects");
    assert!(matches!(&error, TypeObjectError::Recursive { .. }), "{error}");
}

#[test]
fn hostile_type_objects_are_refused_or_read() {
    let limits = SchemaLimits { members: 300, ..SchemaLimits::default() };
    let vectors = vectors();
    let (mut read, mut refused) = (0, 0);
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let (_, objects) = random.choose(&vectors);
        let mut objects = objects.clone();
        let part = if random.one_in(4) { &mut objects.information } else { &mut objects.mapping };
        *part = mutated(&mut random, part);
        match objects.schema(&limits) {
            // Whatever is read is a schema like any other.
            Ok(schema) => {
                read += 1;
                assert!(Schema::from_bytes(&schema.to_bytes(), &limits).is_ok(), "seed {seed}");
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
}

#[test]
fn limits_are_kept() {
    let (_, named) = vectors().pop().expect("a vector");
    for limits in [
        SchemaLimits { defs: 3, ..SchemaLimits::default() },
        SchemaLimits { members: 5, ..SchemaLimits::default() },
        SchemaLimits { bytes: 100, ..SchemaLimits::default() },
    ] {
        let error = named.schema(&limits).expect_err("a limit");
        assert!(matches!(&error, TypeObjectError::Limit { .. }), "{error}");
    }
}
