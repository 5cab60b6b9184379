//! Compares the back ends under all codecs, for random types and values: the same bytes, values and
//! errors.

use polywire_core::{
    codec::{BuildError, Decoder, Encoder},
    layout::{Record, Shape},
    program::{Backend, CodecError},
    schema::{Schema, arbitrary::Random},
};
use polywire_testing::{
    Coder, Wire, backends, mutated, random_evolution, random_limits, random_record, random_schema, seeds, wires,
};
use std::sync::Arc;

/// The shapes of random types that a record can be of.
fn shape(seed: u64) -> Option<Arc<Shape>> {
    Shape::of(&random_schema(seed, 3 + seed as usize % 9)).ok()
}

/// The same on every back end; none if the codec cannot carry the type.
fn on_all<T>(mut make: impl FnMut(Backend) -> Result<T, BuildError>) -> Option<Vec<T>> {
    let made: Vec<Result<T, BuildError>> = backends().into_iter().map(&mut make).collect();
    if let Some(Err(error)) = made.iter().find(|m| m.is_err()) {
        assert!(matches!(error, BuildError::Lower(_)), "{error}");
        return None;
    }
    made.into_iter().map(Result::ok).collect()
}

fn assert_same<T: PartialEq + std::fmt::Debug>(results: &[T], what: impl Fn() -> String) {
    for other in results.iter().skip(1) {
        assert_eq!(results[0], *other, "the back ends differ: {}", what());
    }
}

#[test]
fn bytes_and_values_are_the_same() {
    let (mut carried, mut refused) = (0, 0);
    for seed in seeds(20) {
        let Some(shape) = shape(seed) else { continue };
        for wire in wires() {
            let Some(coders) = on_all(|backend| Coder::new(&wire, &shape, backend)) else { continue };
            let mut random = Random::new(seed);
            for _ in 0..4 {
                let record = random_record(&mut random, &shape);
                let over = random_record(&mut random, &shape);
                let messages: Vec<_> = coders.iter().map(|c| c.encode(&record)).collect();
                assert_same(&messages, || format!("seed {seed}, {wire:?}, {record:?}"));
                let Ok(message) = &messages[0] else { continue };
                let values: Vec<_> = coders.iter().map(|c| c.decode(message, &over)).collect();
                assert_same(&values, || format!("seed {seed}, {wire:?}, {record:?} over {over:?}: {message:?}"));
                carried += usize::from(values[0].is_ok());
                refused += hostile(&wire, &coders, &mut random, message, &over, seed);
            }
        }
    }
    assert!(carried > 1000 && refused > 10_000, "{carried} carried, {refused} refused");
}

/// Bad messages and tight limits: the same error, or the same value. Returns how many were refused.
fn hostile(wire: &Wire, coders: &[Coder], random: &mut Random, message: &[u8], over: &Record, seed: u64) -> usize {
    let mut refused = 0;
    for round in 0..24 {
        let limits = random_limits(random);
        let bad = match round {
            0 => message.to_vec(),
            1..6 => message[..random.below(message.len() + 1)].to_vec(),
            _ => mutated(random, message),
        };
        let outcome = |coder: &Coder| {
            let coder = Coder { encoder: coder.encoder.clone(), decoder: coder.decoder.clone().with_limits(limits) };
            coder.decode(&bad, over)
        };
        let outcomes: Vec<_> = coders.iter().map(outcome).collect();
        assert_same(&outcomes, || format!("seed {seed}, {wire:?}, {limits:?}, over {over:?}: {bad:?}"));
        refused += usize::from(outcomes[0].is_err());
    }
    refused
}

#[test]
fn evolved_readers_are_the_same() {
    let (mut read, mut refused) = (0, 0);
    for seed in seeds(20) {
        let old = random_schema(seed, 3 + seed as usize % 9);
        let new = random_evolution(seed, &old);
        for (writer, reader) in [(&old, &new), (&new, &old)] {
            let (Ok(source), Ok(target)) = (Shape::of(writer), Shape::of(reader)) else { continue };
            for wire in wires() {
                let Some(pairs) = on_all(|backend| pair(&wire, &source, writer, &target, backend)) else { continue };
                let mut random = Random::new(seed);
                for _ in 0..4 {
                    let (record, over) = (random_record(&mut random, &source), random_record(&mut random, &target));
                    let mut message = Vec::new();
                    if pairs[0].0.encode(&record, &mut message).is_err() {
                        continue;
                    }
                    for round in 0..12 {
                        let bad = if round > 0 { mutated(&mut random, &message) } else { message.clone() };
                        let outcome = |(_, decoder): &(Encoder<Record>, Decoder<Record>)| decode(decoder, &bad, &over);
                        let outcomes: Vec<_> = pairs.iter().map(outcome).collect();
                        assert_same(&outcomes, || format!("seed {seed}, {wire:?}, over {over:?}: {bad:?}"));
                        match &outcomes[0] {
                            Ok(_) => read += 1,
                            Err(_) => refused += 1,
                        }
                    }
                }
            }
        }
    }
    assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
}

fn pair(
    wire: &Wire,
    source: &Arc<Shape>,
    writer: &Schema,
    target: &Arc<Shape>,
    backend: Backend,
) -> Result<(Encoder<Record>, Decoder<Record>), BuildError> {
    let encoder = Encoder::for_shape_with_backend(wire.codec, &wire.options, source, Backend::Interpreter)?;
    Ok((encoder, Decoder::for_shape_with_backend(wire.codec, &wire.options, writer, target, backend)?))
}

fn decode(decoder: &Decoder<Record>, bytes: &[u8], over: &Record) -> Result<(Record, usize), CodecError> {
    let mut record = over.clone();
    let taken = decoder.decode(bytes, &mut record)?;
    Ok((record, taken))
}
