//! Compares the back ends for derived types, and derived types with records.

use polywire_core::{
    codec::{Decoder, Encoder},
    layout::{Message, MessageField, Shape},
    program::{Backend, CodecError},
    schema::arbitrary::Random,
};
use polywire_testing::{
    Wire, backends,
    derived::{Everything, random_message, same},
    mutated, seeds, wires,
};

/// Encoder and decoder of each back end.
fn coders<T: Message>(wire: &Wire) -> Vec<(Encoder<T>, Decoder<T>)> {
    let schema = T::shape().schema();
    let coder = |backend| {
        let encoder = Encoder::with_backend(wire.codec, &wire.options, backend).unwrap();
        (encoder, Decoder::with_backend(wire.codec, &wire.options, schema, backend).unwrap())
    };
    backends().into_iter().map(coder).collect()
}

fn encode<T: Message>(encoder: &Encoder<T>, value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    encoder.encode(value, &mut bytes).unwrap();
    bytes
}

#[test]
fn derived_values_round_trip() {
    for wire in wires() {
        let coders = coders::<Everything>(&wire);
        let mut random = Random::new(7);
        for _ in seeds(4) {
            let value: Everything = random_message(&mut random);
            let over: Everything = random_message(&mut random);
            let messages: Vec<Vec<u8>> = coders.iter().map(|(encoder, _)| encode(encoder, &value)).collect();
            for (message, (_, decoder)) in messages.iter().zip(&coders) {
                assert_eq!(*message, messages[0], "{wire:?}: the back ends differ");
                let mut back = over.clone();
                assert_eq!(decoder.decode(message, &mut back).unwrap(), message.len(), "{wire:?}");
                assert!(same(&back, &value), "{wire:?}: {back:?}, not {value:?}");
            }
            hostile(&wire, &coders, &mut random, &messages[0], &over);
        }
    }
}

/// The same error, or values that are the same, written again.
fn hostile(
    wire: &Wire,
    coders: &[(Encoder<Everything>, Decoder<Everything>)],
    random: &mut Random,
    message: &[u8],
    over: &Everything,
) {
    for _ in 0..60 {
        let bad = mutated(random, message);
        let outcome = |(encoder, decoder): &(Encoder<Everything>, Decoder<Everything>)| {
            let mut value = over.clone();
            let outcome = decoder.decode(&bad, &mut value);
            // Whatever happened, it is a value, if perhaps one that this format has no bytes for.
            let _ = encoder.encode(&value, &mut Vec::new());
            Ok::<_, CodecError>((outcome?, value))
        };
        let outcomes: Vec<_> = coders.iter().map(outcome).collect();
        for other in &outcomes {
            let agree = match (other, &outcomes[0]) {
                (Ok((taken, value)), Ok((first_taken, first))) => taken == first_taken && same(value, first),
                (other, first) => other.as_ref().err() == first.as_ref().err(),
            };
            assert!(agree, "{wire:?}: the back ends differ: {bad:?}: {outcomes:?}");
        }
    }
}

#[test]
fn records_are_written_as_derived_values_are() {
    let shape = Shape::of(Everything::shape().schema()).unwrap();
    for wire in wires() {
        let mut random = Random::new(11);
        for backend in backends() {
            let derived = Encoder::<Everything>::with_backend(wire.codec, &wire.options, backend).unwrap();
            let records = Encoder::for_shape_with_backend(wire.codec, &wire.options, &shape, backend).unwrap();
            let reader = polywire_core::codec::Decoder::for_shape_with_backend(
                wire.codec,
                &wire.options,
                shape.schema(),
                &shape,
                Backend::Interpreter,
            )
            .unwrap();
            for _ in 0..6 {
                let mut value: Everything = random_message(&mut random);
                // Its order is Rust's own.
                value.hashed.clear();
                value.tree.clear();
                let message = encode(&derived, &value);
                let mut record = polywire_core::layout::Record::new(&shape);
                reader.decode(&message, &mut record).unwrap();
                let mut again = Vec::new();
                records.encode(&record, &mut again).unwrap();
                assert_eq!(again, message, "{wire:?}, {backend:?}");
            }
        }
    }
}

#[test]
fn default_values_can_be_encoded() {
    for wire in wires() {
        for (encoder, decoder) in coders::<Everything>(&wire) {
            let message = encode(&encoder, &Everything::default_value());
            let mut back: Everything = random_message(&mut Random::new(1));
            decoder.decode(&message, &mut back).unwrap();
            assert!(same(&back, &Everything::default_value()));
        }
    }
}
