//! What the tests of all codecs and back ends share, with `fuzz/` too.
#![allow(dead_code, reason = "each test file uses what it needs")]

pub mod convert;
pub mod derived;
#[cfg(unix)]
pub mod guard;
#[path = "../json_support/mod.rs"]
mod json_support;
pub mod programs;

pub use json_support::random_record;

use polywire_core::{
    codec::{CODECS, Codec, Decoder, Encoder, Options},
    layout::{Record, Shape},
    program::{Backend, CodecError, Limits},
    schema::{Def, Member, Schema, SchemaBuilder, Type, arbitrary::Random},
};
use std::sync::Arc;

/// A codec with options.
#[derive(Clone)]
pub struct Wire {
    pub codec: &'static dyn Codec,
    pub options: Options,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.codec.name(), self.options)
    }
}

/// All codecs, each as it is, with each of its options alone, and with as many of them as go
/// together.
pub fn wires() -> Vec<Wire> {
    let mut wires = Vec::new();
    for codec in CODECS.iter().copied() {
        let spec = |text: &str| Wire { codec, options: text.parse().unwrap() };
        let mut texts = vec![String::new()];
        for option in codec.options() {
            match option.values {
                [] => texts.push(option.name.into()),
                values => texts.extend(values.iter().skip(1).map(|value| format!("{}={value}", option.name))),
            }
        }
        let probe = struct_of(vec![Member::new("a", Type::Bool)]);
        // Two values of one option do not go together.
        let works = |text: &str| {
            text.parse::<Options>().is_ok()
                && Coder::new(&spec(text), &Shape::of(&probe).unwrap(), Backend::Interpreter).is_ok()
        };
        let mut all = String::new();
        for text in texts.iter().skip(1).rev() {
            let more = format!("{all}{}{text}", if all.is_empty() { "" } else { "," });
            all = if works(&more) { more } else { all };
        }
        if !texts.contains(&all) {
            texts.push(all);
        }
        wires.extend(texts.iter().map(|text| spec(text)));
    }
    wires
}

/// A codec as it is, without options.
pub fn plain_wires() -> Vec<Wire> {
    CODECS.iter().map(|codec| Wire { codec: *codec, options: Options::default() }).collect()
}

/// All back ends of this build and machine, the reference first.
pub fn backends() -> Vec<Backend> {
    let shape = Shape::of(&struct_of(vec![Member::new("a", Type::Bool)])).unwrap();
    let wire = plain_wires().remove(0);
    let jit = Coder::new(&wire, &shape, Backend::Jit).is_ok();
    [Backend::Interpreter].into_iter().chain(jit.then_some(Backend::Jit)).collect()
}

/// A schema whose root is a structure of these members.
pub fn struct_of(members: Vec<Member>) -> Schema {
    let mut types = SchemaBuilder::new();
    let root = types.add(Def::structure("Root", members));
    types.finish(Type::Def(root)).unwrap()
}

/// Encoder and decoder for records of one shape.
#[derive(Clone)]
pub struct Coder {
    pub encoder: Encoder<Record>,
    pub decoder: Decoder<Record>,
}

impl Coder {
    pub fn new(wire: &Wire, shape: &Arc<Shape>, backend: Backend) -> Result<Coder, polywire_core::codec::BuildError> {
        let encoder = Encoder::for_shape_with_backend(wire.codec, &wire.options, shape, backend)?;
        let decoder = Decoder::for_shape_with_backend(wire.codec, &wire.options, shape.schema(), shape, backend)?;
        Ok(Coder { encoder, decoder })
    }

    pub fn encode(&self, record: &Record) -> Result<Vec<u8>, CodecError> {
        let mut bytes = Vec::new();
        self.encoder.encode(record, &mut bytes).map(|()| bytes)
    }

    /// Decodes over a value that was there before.
    pub fn decode(&self, bytes: &[u8], over: &Record) -> Result<(Record, usize), CodecError> {
        let mut record = over.clone();
        let outcome = self.decoder.decode(bytes, &mut record);
        // Whatever happened, it is a value.
        let copy = record.clone();
        assert_eq!(copy, record);
        outcome.map(|taken| (record, taken))
    }
}

/// How many times as many seeds as in the usual run: `POLYWIRE_TEST_SEEDS=20` takes minutes.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let times = std::env::var("POLYWIRE_TEST_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let first = std::env::var("POLYWIRE_TEST_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    first..first + usual * times
}

/// Tight limits now and then, so that they are met.
pub fn random_limits(random: &mut Random) -> Limits {
    if random.one_in(2) {
        return Limits::default();
    }
    Limits {
        message_bytes: *random.choose(&[0, 16, 100, 1 << 20]),
        memory_bytes: *random.choose(&[0, 32, 300, 1 << 20]),
        expansion: *random.choose(&[0, 1, 16, 1024]),
        free_bytes: *random.choose(&[0, 100, 1 << 20]),
        elements: *random.choose(&[0, 1, 3, 1 << 20]),
        depth: *random.choose(&[0, 1, 3, 64]),
    }
}

/// The message with something wrong in it: cut, flipped, overwritten with extremes, shifted.
pub fn mutated(random: &mut Random, message: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len() + 1);
        match random.below(8) {
            0 => bytes.truncate(at),
            1 | 2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 if at < bytes.len() => {
                bytes[at] = *random.choose(&[0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF, b'"', b'}', b','])
            }
            4 => {
                let number: u32 = *random.choose(&[0, 1, 17, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, u32::MAX]);
                let number = if random.one_in(2) { number.to_le_bytes() } else { number.to_be_bytes() };
                let at = at & !3;
                number.iter().zip(bytes.iter_mut().skip(at)).for_each(|(from, to)| *to = *from);
            }
            5 => bytes.insert(at, random.bits() as u8),
            6 if at < bytes.len() => drop(bytes.remove(at)),
            _ => {
                let from = random.below(bytes.len() + 1);
                let piece = bytes[from..(from + random.below(16)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}
