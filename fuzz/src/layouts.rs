//! Targets for encoded schemas, and for records of their types.

use crate::seed;
use polywire_core::{
    layout::{Record, Shape, Value},
    program::Backend,
    schema::{Schema, SchemaLimits, TypeObjects, arbitrary::Random},
};
use polywire_testing::{Coder, mutated, plain_wires, random_record, random_schema};

pub fn schema_bytes(random: &mut Random) -> Vec<u8> {
    let size = 1 + random.below(10);
    let schema = random_schema(random.bits(), size);
    let bytes = if random.one_in(2) { schema.to_bytes_with_docs() } else { schema.to_bytes() };
    if random.one_in(10) { bytes } else { mutated(random, &bytes) }
}

/// Reads a schema. It must be refused, or be canonical. Every codec must encode and decode its
/// default value, or refuse the type or the value.
pub fn read_schema(input: &[u8]) {
    let Ok(schema) = Schema::from_bytes(input, &SchemaLimits::default()) else { return };
    let encodings = [schema.to_bytes(), schema.to_bytes_with_docs()];
    assert!(encodings.iter().any(|bytes| bytes == input), "the encoding is not canonical");
    let Ok(shape) = Shape::of(&schema) else { return };
    let Ok(record) = Record::try_new(&shape) else { return };
    for wire in plain_wires() {
        let Ok(coder) = Coder::new(&wire, &shape, Backend::Interpreter) else { continue };
        let Ok(message) = coder.encode(&record) else { continue };
        let (again, _) = coder.decode(&message, &record).expect("a codec decodes its own message");
        assert_eq!(format!("{again:?}"), format!("{record:?}"), "{wire:?}");
    }
}

/// The length of a `TypeInformation`, itself, and a `TypeMapping`.
pub fn type_object_bytes(random: &mut Random) -> Vec<u8> {
    let objects = loop {
        let size = 1 + random.below(10);
        if let Ok(objects) = TypeObjects::of(&random_schema(random.bits(), size)) {
            break objects;
        }
    };
    let mut bytes = (objects.information.len() as u32).to_le_bytes().to_vec();
    bytes.extend(objects.information);
    bytes.extend(objects.mapping);
    if random.one_in(10) { bytes } else { mutated(random, &bytes) }
}

/// Reads TypeObjects. They must be refused, or give a schema whose own TypeObjects can be read and
/// written again with the same bytes.
pub fn read_type_objects(input: &[u8]) {
    let Some((len, rest)) = input.split_first_chunk() else { return };
    let Some((information, mapping)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize) else { return };
    let objects = TypeObjects { information: information.into(), mapping: mapping.into() };
    let Ok(schema) = objects.schema(&SchemaLimits::default()) else { return };
    let Ok(again) = TypeObjects::of(&schema) else { return };
    let read = again.schema(&SchemaLimits::default()).expect("what was written is read");
    assert_eq!(TypeObjects::of(&read), Ok(again));
}

/// The seed of a type, then lines with paths and values.
pub fn record_bytes(random: &mut Random) -> Vec<u8> {
    const PATHS: &[&str] =
        &["", "a", "a.b", "m0", "m0[0]", "m1[1].m0", "m2[\"x\"]", "m0[18446744073709551616]", "$", "[", "."];
    let seed = random.bits() % 5000;
    let shape = Shape::of(&schema_of(seed)).expect("a random schema has a shape");
    let names: Vec<String> = Record::new(&shape).fields().iter().map(|(member, _)| member.name.to_string()).collect();
    let mut input = seed.to_le_bytes().to_vec();
    for _ in 0..random.below(6) {
        let mut path = random.choose(PATHS).to_string();
        if !names.is_empty() && !random.one_in(4) {
            path =
                format!("{}{}", random.choose(&names), random.choose(&["", "[0]", "[1].x", "[\"k\"]", "[0][0]", ".0"]));
        }
        let path = if random.one_in(4) { mutated(random, path.as_bytes()) } else { path.into_bytes() };
        input.extend(path);
        input.extend([b'\n', random.bits() as u8, b'\n']);
    }
    input
}

fn schema_of(seed: u64) -> Schema {
    random_schema(seed, 1 + seed as usize % 9)
}

/// Stores values at paths. Afterwards it must still be possible to compare, copy, print and clear
/// the record.
pub fn use_record(input: &[u8]) {
    let seed = seed(input);
    let Ok(shape) = Shape::of(&schema_of(seed)) else { return };
    let mut random = Random::new(seed);
    let (fresh, mut record) = (Record::new(&shape), random_record(&mut random, &shape));
    let text = String::from_utf8_lossy(input.get(8..).unwrap_or_default()).into_owned();
    let mut lines = text.split('\n');
    while let (Some(path), Some(value)) = (lines.next(), lines.next()) {
        let _ = record.get(path).map(|value| format!("{value:?}"));
        match value.bytes().next().unwrap_or_default() {
            number @ 0..=99 => drop(record.resize(path, usize::from(number))),
            number => drop(record.set(path, value_of(&mut random, number, 0))),
        }
    }
    let mut copy = record.clone();
    assert_eq!(format!("{copy:?}"), format!("{record:?}"));
    assert_eq!(copy.try_clone_from(&fresh), Ok(true));
    record.clear().expect("a fresh value needs no more memory");
    assert_eq!((&record, &copy), (&fresh, &fresh));
}

fn value_of(random: &mut Random, number: u8, depth: usize) -> Value {
    match number % if depth > 2 { 5 } else { 9 } {
        0 => Value::Absent,
        1 => Value::Bool(number > 127),
        2 => Value::Int(i128::from(random.bits()) << random.below(64)),
        3 => Value::Float(f64::from_bits(random.bits())),
        4 => Value::Text(random.choose(&["", "x", "ü", "A", "\0", "\u{10FFFF}"]).repeat(random.below(9))),
        5 => Value::Bytes(vec![number; random.below(40)]),
        6 => Value::List((0..random.below(5)).map(|_| inner(random, depth)).collect()),
        7 => Value::fields((0..random.below(3)).map(|i| (format!("m{i}"), inner(random, depth)))),
        _ => Value::entries((0..random.below(4)).map(|_| (inner(random, depth), inner(random, depth)))),
    }
}

fn inner(random: &mut Random, depth: usize) -> Value {
    let number = random.bits() as u8;
    value_of(random, number, depth + 1)
}
