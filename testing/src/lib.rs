//! Helpers that the tests of several crates and the fuzzer share. The crate is not published.
//!
//! It has back ends and wires to loop over ([`backends`], [`wires`]), random types and records
//! ([`random_schema`], [`random_evolution`], [`random_record`]), damaged messages ([`mutated`]),
//! allocators that count or guard ([`allocator`], `guard`), external programs ([`tools`]), domains
//! of DDS ([`domains`]), endpoints at which two nodes meet ([`endpoints`]), waiting and processes
//! ([`waiting`]), the examples of pages ([`markdown`]), hosts on a network (`network`), hexadecimal
//! text, and temporary files ([`Folder`], [`free_path`]). [`convert`](mod@convert) implements the
//! rules of `spec/evolution.md` directly, as a reference for decoders.

pub mod allocator;
pub mod convert;
mod corpora;
pub mod derived;
pub mod domains;
pub mod endpoints;
mod folder;
#[cfg(unix)]
pub mod guard;
pub mod markdown;
#[cfg(target_os = "linux")]
pub mod network;
pub mod program;
pub mod programs;
mod records;
pub mod ros;
mod schemas;
pub mod tools;
pub mod waiting;

pub use corpora::corpus;
pub use folder::{Folder, free_path};
pub use records::random_record;
pub use schemas::{random_evolution, random_schema};

use polywire_core::{
    codec::{self, BuildError, CODECS, Codec, Decoder, Encoder, Options},
    layout::{Message, Record, Shape},
    program::{Backend, CodecError, ExecError, Limits},
    schema::{Def, Member, Schema, SchemaBuilder, Type, arbitrary::Random},
};
use std::{collections::BTreeMap, fmt::Debug, fs, ops::Range, path::Path, sync::Arc};

/// A codec with options.
#[derive(Clone)]
pub struct Wire {
    /// A codec from the table of `polywire-core`.
    pub codec: &'static dyn Codec,
    /// Options of the codec.
    pub options: Options,
}

impl Wire {
    /// Parses the name of a codec, with options behind a colon: `cbor:deterministic`.
    pub fn parse(text: &str) -> Wire {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let codec = codec::find(name).unwrap_or_else(|| panic!("no codec '{name}'"));
        Wire { codec, options: options.parse().unwrap_or_else(|error| panic!("{text}: {error}")) }
    }

    /// Encodes a value on every back end, after bytes that are in the buffer already. Panics unless
    /// all back ends return the same bytes or the same error.
    pub fn encode<T: Message>(&self, value: &T) -> Result<Vec<u8>, CodecError> {
        let encoded = backends().into_iter().map(|backend| {
            let encoder = Encoder::<T>::with_backend(self.codec, &self.options, backend).unwrap();
            let mut bytes = b"before".to_vec();
            encoder.encode(value, &mut bytes).map(|()| bytes.split_off(6))
        });
        agreed(encoded)
    }

    /// Decodes a message of `writer` on every back end into the value that `initial` returns.
    /// Returns the value and the number of bytes read. Panics unless all back ends agree on both,
    /// or on the error.
    pub fn decode<T: Message + Debug>(
        &self,
        writer: &Schema,
        bytes: &[u8],
        limits: Limits,
        initial: impl Fn() -> T,
    ) -> Result<(T, usize), CodecError> {
        self.decoders(writer, limits).decode(bytes, initial)
    }

    /// Compiles the decoders of messages of `writer` for every back end. Compiling takes longer
    /// than decoding a short message, so tests of many messages do it once.
    pub fn decoders<T: Message + Debug>(&self, writer: &Schema, limits: Limits) -> Decoders<T> {
        let decoder = |backend| Decoder::with_backend(self.codec, &self.options, writer, backend).unwrap();
        let all = backends().into_iter().map(|backend| decoder(backend).with_limits(limits)).collect();
        Decoders { wire: self.clone(), all }
    }

    /// [`Wire::decode`], which also panics if bytes of the message are left.
    pub fn decode_all<T: Message + Debug>(
        &self,
        writer: &Schema,
        bytes: &[u8],
        limits: Limits,
        initial: impl Fn() -> T,
    ) -> Result<T, CodecError> {
        self.decoders(writer, limits).decode_all(bytes, initial)
    }
}

/// The decoders of [`Wire::decoders`].
pub struct Decoders<T: Message> {
    wire: Wire,
    all: Vec<Decoder<T>>,
}

impl<T: Message + Debug> Decoders<T> {
    /// Does the same as [`Wire::decode`].
    pub fn decode(&self, bytes: &[u8], initial: impl Fn() -> T) -> Result<(T, usize), CodecError> {
        let decoded = self.all.iter().map(|decoder| {
            let mut value = initial();
            decoder.decode(bytes, &mut value).map(|taken| (value, taken))
        });
        agreed(decoded)
    }

    /// Does the same as [`Wire::decode_all`].
    pub fn decode_all(&self, bytes: &[u8], initial: impl Fn() -> T) -> Result<T, CodecError> {
        let (value, taken) = self.decode(bytes, initial)?;
        assert_eq!(taken, bytes.len(), "{:?}: bytes of the message are left", self.wire);
        Ok(value)
    }
}

impl Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.codec.name(), self.options)
    }
}

/// The result of all back ends. Panics unless it is the same for all. Results are compared as text,
/// because NaN is not equal to itself.
pub fn agreed<R: Debug>(results: impl IntoIterator<Item = R>) -> R {
    let mut results = results.into_iter();
    let first = results.next().expect("a result");
    for other in results {
        assert_eq!(format!("{other:?}"), format!("{first:?}"), "the back ends differ");
    }
    first
}

/// All codecs: each without options, with each of its options alone, and with as many of them as
/// can be combined.
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
        // Two values of one option cannot be combined.
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

/// All codecs without options.
pub fn plain_wires() -> Vec<Wire> {
    CODECS.iter().map(|codec| Wire { codec: *codec, options: Options::default() }).collect()
}

/// All back ends of this build and machine. The interpreter comes first, because it is the
/// reference.
pub fn backends() -> Vec<Backend> {
    let shape = Shape::of(&struct_of(vec![Member::new("a", Type::Bool)])).unwrap();
    match Coder::new(&plain_wires()[0], &shape, Backend::Jit) {
        Ok(_) => vec![Backend::Interpreter, Backend::Jit],
        Err(BuildError::Exec(ExecError::NoJit(_))) => vec![Backend::Interpreter],
        Err(error) => panic!("{error}"),
    }
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
    /// Encodes records.
    pub encoder: Encoder<Record>,
    /// Decodes messages of a writer with the same version of the type.
    pub decoder: Decoder<Record>,
}

impl Coder {
    /// Encoder and decoder of one wire, on one back end.
    pub fn new(wire: &Wire, shape: &Arc<Shape>, backend: Backend) -> Result<Coder, BuildError> {
        let encoder = Encoder::for_shape_with_backend(wire.codec, &wire.options, shape, backend)?;
        let decoder = Decoder::for_shape_with_backend(wire.codec, &wire.options, shape.schema(), shape, backend)?;
        Ok(Coder { encoder, decoder })
    }

    /// The bytes of a record.
    pub fn encode(&self, record: &Record) -> Result<Vec<u8>, CodecError> {
        let mut bytes = Vec::new();
        self.encoder.encode(record, &mut bytes).map(|()| bytes)
    }

    /// Decodes into a copy of `over`. Returns the record and the number of bytes read.
    pub fn decode(&self, bytes: &[u8], over: &Record) -> Result<(Record, usize), CodecError> {
        let mut record = over.clone();
        let outcome = self.decoder.decode(bytes, &mut record);
        // The record is a valid value even after an error.
        let copy = record.clone();
        assert_eq!(copy, record);
        outcome.map(|taken| (record, taken))
    }
}

/// The seeds of a test. Their number is `usual` times the environment variable
/// `POLYWIRE_TEST_SEEDS` (1 by default), and the first is `POLYWIRE_TEST_FIRST` (0 by default).
/// `POLYWIRE_TEST_SEEDS=20` takes minutes.
pub fn seeds(usual: u64) -> Range<u64> {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
    };
    let first: u64 = number("POLYWIRE_TEST_FIRST").unwrap_or(0);
    first..first + usual * number("POLYWIRE_TEST_SEEDS").unwrap_or(1)
}

/// The bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits of either case. Blanks and hyphens may separate them.
pub fn unhex(text: &str) -> Vec<u8> {
    let separates = |c: &char| c.is_whitespace() || *c == '-';
    let digit =
        |c: char| c.to_digit(16).unwrap_or_else(|| panic!("'{c}' in '{text}' is not a hexadecimal digit")) as u8;
    let digits: Vec<u8> = text.chars().filter(|c| !separates(c)).map(digit).collect();
    assert!(digits.len().is_multiple_of(2), "'{text}' has an odd number of digits");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The examples of a file in `spec/`: the bytes of each block ```` ```hex NAME ````, by name.
pub fn spec_examples(file: &str) -> BTreeMap<String, Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../spec").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let block = |block: &str| {
        let (name, digits) = block.split("```").next()?.split_once('\n')?;
        Some((name.trim().to_owned(), unhex(digits)))
    };
    text.split("```hex ").skip(1).map(|rest| block(rest).expect("a block has a name and an end")).collect()
}

/// Either the default limits or random ones, often so tight that messages exceed them.
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

/// The message with up to three defects: it is truncated, has flipped bits or extreme values, or
/// bytes are inserted, removed or repeated.
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
