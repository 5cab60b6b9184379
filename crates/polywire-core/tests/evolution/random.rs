//! Random versions of random types. Under every codec and on every back end, a decoder returns the
//! value that `spec/evolution.md` defines, and it can be built if and only if the verdict allows
//! it.

use polywire_core::{
    codec::{BuildError, Decoder, Encoder, LowerError},
    layout::{Record, Shape},
    program::Backend,
    schema::{
        DefKind, Schema, SchemaBuilder, TryConstruct, Type,
        arbitrary::Random,
        evolve::{Verdict, assess},
    },
};
use polywire_testing::{
    Wire, backends, convert::convert, random_evolution, random_record, random_schema, seeds, wires,
};
use std::sync::Arc;

#[derive(Debug, Default)]
struct Told {
    always: usize,
    per_value: usize,
    refused: usize,
    read: usize,
    values_refused: usize,
}

#[test]
fn decoders_do_what_the_verdict_says() {
    let mut told = Told::default();
    for seed in seeds(60) {
        let old = random_schema(seed, 3 + seed as usize % 9);
        let new = narrower(seed, &random_evolution(seed, &old));
        if has_boolean_keys(&old) {
            continue;
        }
        for (writer, reader) in [(&old, &new), (&new, &old)] {
            try_pair(seed, writer, reader, &mut told);
        }
    }
    let Told { always, per_value, refused, read, values_refused } = told;
    assert!(always > 20 && per_value > 20 && refused > 20, "{told:?}");
    assert!(read > 1000 && values_refused > 50, "{told:?}");
}

/// The same type with lower bounds, literals and cases taken away, and other policies.
fn narrower(seed: u64, schema: &Schema) -> Schema {
    let mut random = Random::new(seed ^ 0x5EED);
    let mut builder = SchemaBuilder::new();
    for def in schema.defs() {
        let mut def = def.clone();
        match &mut def.kind {
            DefKind::Struct { members, .. } => {
                for member in members.iter_mut().filter(|m| !m.key) {
                    if random.one_in(3) {
                        member.try_construct =
                            *random.choose(&[TryConstruct::Discard, TryConstruct::UseDefault, TryConstruct::Trim]);
                    }
                    if random.one_in(6) {
                        member.optional = !member.optional;
                    }
                }
            }
            DefKind::Enum { literals, .. } if literals.len() > 1 && random.one_in(3) => {
                literals.remove(random.below(literals.len()));
            }
            DefKind::Union { cases, .. } if cases.len() > 1 && random.one_in(2) => {
                cases.remove(random.below(cases.len()));
            }
            _ => {}
        }
        builder.add(def);
    }
    // A default or a label may have lost its literal.
    builder.finish(schema.root().clone()).unwrap_or_else(|_| schema.clone())
}

fn try_pair(seed: u64, writer: &Schema, reader: &Schema, told: &mut Told) {
    let (Ok(source), Ok(target)) = (Shape::of(writer), Shape::of(reader)) else { return };
    let verdict = assess(writer, reader);
    match verdict {
        Verdict::Always => told.always += 1,
        Verdict::PerValue(_) => told.per_value += 1,
        Verdict::Refused(_) => told.refused += 1,
    }
    for wire in wires() {
        for backend in backends() {
            // Machine code takes a while to make, and its equality with the interpreter is tested
            // elsewhere.
            if backend == Backend::Jit && !seed.is_multiple_of(5) {
                continue;
            }
            let what = format!("seed {seed}, {wire:?}, {backend:?}, {verdict}");
            let Some((encoder, decoder)) = coders(&wire, &source, writer, &target, backend, &verdict, &what) else {
                continue;
            };
            let mut random = Random::new(seed);
            for _ in 0..6 {
                let (record, mut over) = (random_record(&mut random, &source), random_record(&mut random, &target));
                let mut message = Vec::new();
                if encoder.encode(&record, &mut message).is_err() {
                    continue;
                }
                let wanted = convert(writer, &record, &target);
                let got = decoder.decode(&message, &mut over);
                match (&wanted, &got) {
                    (Ok(wanted), Ok(_)) => {
                        assert_eq!(over, *wanted, "{what}\nof {record:?}");
                        told.read += 1;
                    }
                    (Err(_), Err(_)) => told.values_refused += 1,
                    _ => panic!("{what}: wanted {wanted:?}, got {got:?}\nof {record:?}"),
                }
                assert!(verdict != Verdict::Always || got.is_ok(), "{what}: {got:?}");
            }
        }
    }
}

/// None if there is no decoder, which the verdict must have said.
fn coders(
    wire: &Wire,
    source: &Arc<Shape>,
    writer: &Schema,
    target: &Arc<Shape>,
    backend: Backend,
    verdict: &Verdict,
    what: &str,
) -> Option<(Encoder<Record>, Decoder<Record>)> {
    let encoder = Encoder::for_shape_with_backend(wire.codec, &wire.options, source, Backend::Interpreter);
    let decoder = Decoder::for_shape_with_backend(wire.codec, &wire.options, writer, target, backend);
    match (encoder, decoder) {
        (_, Err(BuildError::Lower(LowerError::Refused(_)))) => {
            assert!(!verdict.is_compatible(), "{what}: no decoder");
            None
        }
        (_, Ok(_)) if !verdict.is_compatible() => panic!("{what}: a decoder"),
        (Ok(encoder), Ok(decoder)) => Some((encoder, decoder)),
        (Err(BuildError::Lower(LowerError::Unsupported { .. })), _)
        | (_, Err(BuildError::Lower(LowerError::Unsupported { .. }))) => None,
        (Err(error), _) | (_, Err(error)) => panic!("{what}: {error}"),
    }
}

/// Paths cannot make an entry of a map whose keys are booleans.
fn has_boolean_keys(schema: &Schema) -> bool {
    fn within(schema: &Schema, ty: &Type) -> bool {
        match schema.resolve(ty) {
            Type::Map { key, value, .. } => *schema.resolve(key) == Type::Bool || within(schema, value),
            Type::Sequence { element, .. } | Type::Array { element, .. } => within(schema, element),
            _ => false,
        }
    }
    schema.defs().iter().any(|def| match &def.kind {
        DefKind::Struct { members, .. } => members.iter().any(|m| within(schema, &m.ty)),
        DefKind::Union { cases, .. } => cases.iter().any(|c| within(schema, &c.member.ty)),
        _ => false,
    })
}

/// A record read with an equal type is unchanged.
#[test]
fn the_reference_keeps_values_of_equal_types() {
    for seed in seeds(40) {
        let Ok(shape) = Shape::of(&random_schema(seed, 10)) else { continue };
        if has_boolean_keys(shape.schema()) {
            continue;
        }
        let record: Record = random_record(&mut Random::new(seed), &shape);
        assert_eq!(convert(shape.schema(), &record, &shape).unwrap(), record, "seed {seed}");
    }
}
