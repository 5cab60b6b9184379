//! CDR of random types: values round-trip, truncated messages are refused, and no input causes
//! harm.

use polywire_testing::{backends, random_evolution, random_schema};
use std::sync::Arc;

use polywire_core::{
    codec::{self, BuildError, Decoder, Encoder, LowerError, Options},
    layout::{Record, Shape},
    program::Backend,
    schema::{Schema, arbitrary::Random},
};

mod values;

/// Both versions, both orders of bytes, with and without a header, on each back end.
fn dialects() -> Vec<(&'static str, Options, Backend)> {
    let mut dialects = vec![];
    for backend in backends() {
        for codec in ["cdr", "xcdr2"] {
            for options in ["le", "be", "le,header", "be,header"] {
                dialects.push((codec, options.parse().unwrap(), backend));
            }
        }
    }
    dialects
}

struct Wire {
    codec: &'static dyn codec::Codec,
    options: Options,
    backend: Backend,
    encoder: Encoder<Record>,
    decoder: Decoder<Record>,
}

impl Wire {
    fn new((codec, options, backend): (&str, Options, Backend), shape: &Arc<Shape>) -> Wire {
        let codec = codec::find(codec).unwrap();
        let encoder = Encoder::for_shape_with_backend(codec, &options, shape, backend).unwrap();
        let decoder = Decoder::for_shape_with_backend(codec, &options, shape.schema(), shape, backend).unwrap();
        Wire { codec, options, backend, encoder, decoder }
    }

    fn encode(&self, record: &Record) -> Vec<u8> {
        let mut bytes = vec![];
        self.encoder.encode(record, &mut bytes).unwrap_or_else(|error| panic!("{self}: {error}: {record:?}"));
        bytes
    }

    /// Bytes of padding that the header counts.
    fn padding(&self, bytes: &[u8]) -> usize {
        if self.options.has("header") { usize::from(bytes[3] & 3) } else { 0 }
    }

    /// A decoder for readers that have another version of the type; none if the two do not agree.
    fn evolved(&self, reader: &Arc<Shape>) -> Option<Decoder<Record>> {
        let writer = self.encoder.shape().schema();
        match Decoder::for_shape_with_backend(self.codec, &self.options, writer, reader, self.backend) {
            Ok(decoder) => Some(decoder),
            Err(BuildError::Lower(LowerError::Refused(_))) => None,
            Err(error) => panic!("{self}: {error}"),
        }
    }
}

impl std::fmt::Display for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} on {:?}", self.codec.name(), self.options, self.backend)
    }
}

fn shape_of(schema: &Schema) -> Arc<Shape> {
    Shape::of(schema).unwrap()
}

const SEEDS: u64 = 20;

#[test]
fn values_round_trip() {
    for seed in 0..SEEDS {
        let shape = shape_of(&random_schema(seed, 6));
        let mut random = Random::new(seed);
        for dialect in dialects() {
            let wire = Wire::new(dialect, &shape);
            let mut used = Record::new(&shape);
            for _ in 0..3 {
                let record = values::random_record(&mut random, &shape);
                let bytes = wire.encode(&record);
                let mut fresh = Record::new(&shape);
                for read in [&mut fresh, &mut used] {
                    let taken =
                        wire.decoder.decode(&bytes, read).unwrap_or_else(|error| panic!("{seed}, {wire}: {error}"));
                    assert_eq!(taken, bytes.len(), "{seed}, {wire}");
                    assert_eq!(*read, record, "{seed}, {wire}");
                    assert_eq!(wire.encode(read), bytes, "{seed}, {wire}");
                }
            }
        }
    }
}

#[test]
fn truncated_messages_are_refused() {
    for seed in 0..SEEDS {
        let shape = shape_of(&random_schema(seed, 5));
        let record = values::random_record(&mut Random::new(seed), &shape);
        for dialect in dialects() {
            let wire = Wire::new(dialect, &shape);
            let bytes = wire.encode(&record);
            let mut read = Record::new(&shape);
            // Every place in short messages, some places in long ones.
            let step = 1 + bytes.len() / 300;
            for len in (0..bytes.len() - wire.padding(&bytes)).step_by(step) {
                let result = wire.decoder.decode(&bytes[..len], &mut read);
                assert!(result.is_err(), "{seed}, {wire}: {len} of {} bytes read as {read:?}", bytes.len());
            }
        }
    }
}

#[test]
fn flipped_bits_do_no_harm() {
    for seed in 0..SEEDS {
        let shape = shape_of(&random_schema(seed, 5));
        let mut random = Random::new(seed);
        let record = values::random_record(&mut random, &shape);
        for dialect in dialects() {
            let wire = Wire::new(dialect, &shape);
            let bytes = wire.encode(&record);
            let mut read = Record::new(&shape);
            for _ in 0..50.min(8 * bytes.len()) {
                let mut flipped = bytes.clone();
                let bit = random.below(8 * bytes.len());
                flipped[bit / 8] ^= 1 << (bit % 8);
                if wire.decoder.decode(&flipped, &mut read).is_ok() {
                    // The decoded value is valid: it can be printed and encoded.
                    let _ = format!("{read:?}");
                    wire.encode(&read);
                }
            }
        }
    }
}

#[test]
fn noise_does_no_harm() {
    for seed in 0..SEEDS {
        let shape = shape_of(&random_schema(seed, 5));
        let mut random = Random::new(seed);
        for dialect in dialects() {
            let wire = Wire::new(dialect, &shape);
            let mut read = Record::new(&shape);
            for len in 0..40 {
                let noise: Vec<u8> = (0..len).map(|_| if random.one_in(2) { 0 } else { random.bits() as u8 }).collect();
                let _ = wire.decoder.decode(&noise, &mut read);
            }
        }
    }
}

#[test]
fn readers_of_another_version_understand_or_refuse() {
    let (mut agreed, mut read_well) = (0, 0);
    for seed in 0..SEEDS {
        let schema = random_schema(seed, 5);
        let (shape, other) = (shape_of(&schema), shape_of(&random_evolution(seed, &schema)));
        let mut random = Random::new(seed);
        for dialect in dialects() {
            let wire = Wire::new(dialect, &shape);
            let Some(decoder) = wire.evolved(&other) else { continue };
            agreed += 1;
            let bytes = wire.encode(&values::random_record(&mut random, &shape));
            let mut read = Record::new(&other);
            if let Ok(taken) = decoder.decode(&bytes, &mut read) {
                assert_eq!(taken, bytes.len(), "{seed}, {wire}");
                read_well += 1;
            }
            for len in (0..bytes.len() - wire.padding(&bytes)).step_by(1 + bytes.len() / 100) {
                assert!(decoder.decode(&bytes[..len], &mut read).is_err(), "{seed}, {wire}: cut to {len}");
            }
        }
    }
    assert!(agreed > 20 && 2 * read_well > agreed, "{agreed} pairs agree, {read_well} messages were read");
}
