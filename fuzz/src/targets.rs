//! The targets, one line each in [`TARGETS`].

use std::sync::Arc;

use polywire_core::{
    codec::{CODECS, DynDecoder, DynEncoder, Options, bson, json},
    frame::{self, Step, StreamDecoder},
    layout::{Record, Shape},
    program::{Backend, FaultKind, Limits},
    schema::{
        Schema, SchemaLimits,
        arbitrary::{Random, random_schema},
    },
};
use polywire_idl::{Compiler, Dialect};

/// A property of whatever bytes.
pub struct Target {
    /// As in findings and in `regressions/`.
    pub name: &'static str,
    /// A valid input for a round.
    pub valid: fn(u64) -> Vec<u8>,
    /// Panics if the property does not hold.
    pub check: fn(u64, &[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "idl", valid: |round| text(round, IDL), check: |_, input| parse("x.idl", input, Dialect::Idl) },
    Target { name: "pdl", valid: |round| text(round, PDL), check: |_, input| parse("x.pdl", input, Dialect::Pdl) },
    Target { name: "schema", valid: |round| random_schema(round, 12).to_bytes(), check: |_, input| schema(input) },
    Target { name: "frames", valid: frames, check: |round, input| stream(round, input) },
    Target { name: "decode", valid: message, check: decode },
    Target { name: "transcode", valid: message, check: transcode },
    Target {
        name: "json",
        valid: |round| of_codec(round, "json"),
        check: |_, input| walk(json::validate_within, input),
    },
    Target { name: "bson", valid: |round| of_codec(round, "bson"), check: |_, input| walk(bson::validate, input) },
];

const IDL: &[&str] = &[include_str!("../../workloads/market_data.idl"), include_str!("../../workloads/avenue.idl")];
const PDL: &[&str] =
    &[include_str!("../../workloads/switch_probe.pdl"), include_str!("../../workloads/processor_probe.pdl")];

fn text(round: u64, files: &[&str]) -> Vec<u8> {
    files[round as usize % files.len()].as_bytes().to_vec()
}

fn parse(name: &str, input: &[u8], dialect: Dialect) {
    let text = String::from_utf8_lossy(input);
    if let Err(errors) = Compiler::new().parse_as(name, &text, dialect) {
        assert!(!errors.render(false).is_empty());
    }
}

fn schema(input: &[u8]) {
    if let Ok(schema) = Schema::from_bytes(input, &SchemaLimits::default()) {
        let encodings = [schema.to_bytes(), schema.to_bytes_with_docs()];
        assert!(
            encodings.iter().any(|bytes| bytes == input),
            "the encoding is canonical, without comments or with them"
        );
    }
}

fn frames(round: u64) -> Vec<u8> {
    let mut random = Random::new(round);
    (0..random.below(200)).map(|_| random.bits() as u8).collect()
}

/// The same bytes at once and in pieces: as many frames, and the same end.
fn stream(round: u64, input: &[u8]) {
    let mut random = Random::new(round);
    let whole = count_frames(input, usize::MAX);
    assert_eq!(whole, count_frames(input, 1 + random.below(9)), "pieces make no difference");
}

fn count_frames(input: &[u8], piece: usize) -> (usize, bool) {
    let mut decoder = StreamDecoder::new(frame::Limits::default());
    let (mut frames, mut start, mut end) = (0, 0, 0);
    loop {
        match decoder.step(&input[start..end]) {
            Ok(Step::Frame { used, .. }) => {
                assert!(used > 0 && used <= end - start, "a frame takes what is there");
                frames += 1;
                start += used;
            }
            Ok(Step::Need(_)) if end < input.len() => end = end.saturating_add(piece).min(input.len()),
            Ok(Step::Need(_)) => return (frames, true),
            Err(_) => return (frames, false),
        }
    }
}

/// A random type, small enough that many fit into a second.
fn shape(round: u64) -> Arc<Shape> {
    Shape::of(&random_schema(round, 6)).expect("a random schema has a shape")
}

fn of_codec(round: u64, name: &str) -> Vec<u8> {
    let (shape, codec) = (shape(round), CODECS.iter().find(|c| c.name() == name).expect("it is in the table"));
    let mut bytes = Vec::new();
    if let Ok(encoder) = DynEncoder::with_backend(*codec, &Options::default(), &shape, Backend::Interpreter) {
        let _ = encoder.encode(&Record::new(&shape), &mut bytes);
    }
    bytes
}

fn message(round: u64) -> Vec<u8> {
    of_codec(round, CODECS[round as usize % CODECS.len()].name())
}

fn limits() -> Limits {
    Limits { memory_bytes: 1 << 20, elements: 1 << 16, ..Limits::default() }
}

fn decode(round: u64, input: &[u8]) {
    let (shape, codec) = (shape(round), CODECS[round as usize % CODECS.len()]);
    let [one, other] = [Backend::Interpreter, Backend::Jit].map(|backend| {
        let decoder = DynDecoder::with_backend(codec, &Options::default(), shape.schema(), &shape, backend).ok()?;
        let mut record = Record::new(&shape);
        let result = decoder.with_limits(limits()).decode(input, &mut record);
        Some((result.clone(), result.is_ok().then_some(record)))
    });
    assert_eq!(one, other, "{} of {:#?}", codec.name(), shape.schema());
}

fn transcode(round: u64, input: &[u8]) {
    let (shape, codec) = (shape(round), CODECS[round as usize % CODECS.len()]);
    let options = Options::default();
    let decoder = |codec| DynDecoder::with_backend(codec, &options, shape.schema(), &shape, Backend::Interpreter).ok();
    let Some(from) = decoder(codec) else { return };
    let mut record = Record::new(&shape);
    if from.with_limits(limits()).decode(input, &mut record).is_err() {
        return;
    }
    for codec in CODECS {
        let Ok(encoder) = DynEncoder::with_backend(*codec, &options, &shape, Backend::Interpreter) else { continue };
        let (mut bytes, mut back) = (Vec::new(), Record::new(&shape));
        match encoder.encode(&record, &mut bytes) {
            Ok(()) => {
                let decoded = decoder(*codec).expect("what encodes decodes").decode(&bytes, &mut back);
                assert!(decoded.is_ok(), "{}: {decoded:?}", codec.name());
                // By what prints: bits without a name, which some formats keep and others do not, are no part of the value.
                assert_eq!(format!("{back:?}"), format!("{record:?}"), "{}", codec.name());
            }
            Err(error) => assert_eq!(error.kind, FaultKind::Unrepresentable, "{}: {error}", codec.name()),
        }
    }
}

fn walk<E>(validate: impl Fn(&[u8], &Limits) -> Result<(), E>, input: &[u8]) {
    let _ = validate(input, &limits());
}
