//! A short run of every codec for Miri, which detects undefined behaviour: a type with members of
//! all kinds, random types, and malformed messages. `cargo +nightly miri test -p polywire-core
//! --no-default-features --features std --test conformance_memory`, with `--target
//! i686-unknown-linux-gnu` for 32 bits and `--target s390x-unknown-linux-gnu` for most significant
//! bytes first.

use polywire_core::{
    codec::{Decoder, Encoder},
    layout::{Message, Shape},
    program::Backend,
    schema::arbitrary::Random,
};
use polywire_testing::{
    Coder,
    derived::{Everything, random_message, same},
    mutated, plain_wires, random_record,
};
use polywire_testing::{random_evolution, random_schema};

const BACKEND: Backend = Backend::Interpreter;

#[test]
fn derived_values() {
    let mut random = Random::new(2);
    let value: Everything = random_message(&mut random);
    let over: Everything = random_message(&mut random);
    for wire in plain_wires() {
        let encoder = Encoder::<Everything>::with_backend(wire.codec, &wire.options, BACKEND).unwrap();
        let schema = Everything::shape().schema();
        let decoder = Decoder::<Everything>::with_backend(wire.codec, &wire.options, schema, BACKEND).unwrap();
        let mut message = Vec::new();
        encoder.encode(&value, &mut message).unwrap();
        let mut back = over.clone();
        decoder.decode(&message, &mut back).unwrap();
        assert!(same(&back, &value), "{wire:?}");
        for _ in 0..3 {
            let _ = decoder.decode(&mutated(&mut random, &message), &mut back);
        }
    }
}

#[test]
fn records_and_their_evolution() {
    for seed in [3, 9, 14] {
        let old = random_schema(seed, 6);
        let new = random_evolution(seed, &old);
        let (Ok(shape), Ok(target)) = (Shape::of(&old), Shape::of(&new)) else { continue };
        for wire in plain_wires() {
            let Ok(coder) = Coder::new(&wire, &shape, BACKEND) else { continue };
            let mut random = Random::new(seed);
            let (record, over) = (random_record(&mut random, &shape), random_record(&mut random, &shape));
            let message = coder.encode(&record).unwrap();
            assert_eq!(coder.decode(&message, &over).unwrap().0, record, "seed {seed}, {wire:?}");
            for _ in 0..3 {
                let _ = coder.decode(&mutated(&mut random, &message), &over);
            }
            let Ok(decoder) = Decoder::for_shape_with_backend(wire.codec, &wire.options, &old, &target, BACKEND) else {
                continue;
            };
            let mut read = random_record(&mut random, &target);
            let _ = decoder.decode(&message, &mut read);
        }
    }
}
