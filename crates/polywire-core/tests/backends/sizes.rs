//! The computed size of a value equals the number of bytes that encoding appends, for every codec,
//! option and back end.

use polywire_core::{
    codec::DynEncoder,
    layout::{Record, Shape, Value},
    program::{FaultKind, Limits},
    schema::{
        Member, Type,
        arbitrary::{Random, random_schema},
    },
};
use polywire_testing::{backends, plain_wires, random_record, seeds, struct_of, wires};

/// The size that encoding has, in front of which something may stand already, or the error that it
/// ends with.
fn agree(encoder: &DynEncoder, record: &Record, what: &dyn std::fmt::Debug) -> usize {
    let mut bytes = vec![7; 3];
    let written = encoder.encode(record, &mut bytes).map(|()| bytes.len() - 3);
    let counted = encoder.size(record);
    assert_eq!(counted, written, "{what:?}");
    counted.unwrap_or(0)
}

#[test]
fn a_size_is_what_encoding_appends() {
    let mut sizes = vec![0; wires().len()];
    for seed in seeds(10) {
        let Ok(shape) = Shape::of(&random_schema(seed, 3 + seed as usize % 9)) else { continue };
        for (wire, total) in wires().iter().zip(&mut sizes) {
            for backend in backends() {
                let Ok(encoder) = DynEncoder::with_backend(wire.codec, &wire.options, &shape, backend) else {
                    continue;
                };
                let mut random = Random::new(seed);
                for _ in 0..4 {
                    let record = random_record(&mut random, &shape);
                    *total += agree(&encoder, &record, &(seed, wire, backend));
                }
            }
        }
    }
    assert!(sizes.iter().all(|total| *total > 1000), "{sizes:?}");
}

/// Longer than what a counting output keeps: texts, bulk, and many small things.
#[test]
fn large_values_are_counted_as_well() {
    let shape = Shape::of(&struct_of(vec![
        Member::new("text", Type::string()),
        Member::new("floats", Type::sequence(Type::Float64)),
        Member::new("octets", Type::sequence(Type::Octet)),
        Member::new("words", Type::sequence(Type::sequence(Type::Uint16))),
        Member::new("maybe", Type::string()).as_optional(),
        Member::new("last", Type::Uint8),
    ]))
    .unwrap();
    let value = |len: usize| {
        let mut record = Record::new(&shape);
        record.set("text", "\"é".repeat(len / 3)).unwrap();
        record.set("floats", Value::List((0..len / 8).map(|i| Value::Float(i as f64 / 3.0)).collect())).unwrap();
        record.set("octets", Value::Bytes((0..len).map(|i| i as u8).collect())).unwrap();
        let row = |i: usize| Value::List((0..i % 40).map(|i| Value::Int(i as i128)).collect());
        record.set("words", Value::List((0..len / 50).map(row).collect())).unwrap();
        record.set("maybe", "x".repeat(len)).unwrap();
        record
    };
    let lengths = [0, 1, 490, 495, 496, 497, 511, 512, 513, 530, 5_000, 70_000];
    let values = lengths.map(|len| (len, value(len)));
    for wire in wires() {
        for backend in backends() {
            let encoder = DynEncoder::with_backend(wire.codec, &wire.options, &shape, backend).unwrap();
            for (len, record) in &values {
                let size = agree(&encoder, record, &(len, &wire, backend));
                assert!(size > *len, "{wire:?}");
            }
        }
    }
}

#[test]
fn limits_hold_for_what_is_counted() {
    let shape = Shape::of(&struct_of(vec![Member::new("octets", Type::sequence(Type::Octet))])).unwrap();
    let mut record = Record::new(&shape);
    for len in [2_000, 200_000] {
        record.set("octets", Value::Bytes(vec![1; len])).unwrap();
        for wire in plain_wires() {
            for backend in backends() {
                let encoder = DynEncoder::with_backend(wire.codec, &wire.options, &shape, backend).unwrap();
                let encoder = encoder.with_limits(Limits { message_bytes: 1_000, ..Limits::default() });
                assert_eq!(encoder.size(&record).unwrap_err().kind, FaultKind::Limit, "{wire:?}");
                agree(&encoder, &record, &wire);
            }
        }
    }
}
