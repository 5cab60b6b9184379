//! TypeObjects beside those that `idlc` of Cyclone DDS makes of the same IDL
//! (`conformance/type-objects`).

use std::{fs, path::PathBuf};

use polywire_core::schema::{Schema, SchemaLimits, TypeObjects};
use polywire_idl::Compiler;

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
        assert_eq!((read.name(), read.type_hash()), (schema.name(), schema.type_hash()), "{read:#?}");
        assert_eq!(TypeObjects::of(&read), Ok(golden), "{}", schema.name());
    }
}
