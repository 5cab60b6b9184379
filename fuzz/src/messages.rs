//! Targets for frames, for messages of every codec, and for programs.

use crate::seed;
use polywire_core::{
    codec::{Decoder, Options},
    envelope::{Announcement, Envelope},
    frame::{self, DatagramDecoder, DatagramEncoder, Frame, Hello, Start, Step, StreamDecoder, StreamEncoder},
    layout::{Record, Shape},
    program::{Backend, Executable, FaultKind, Limits, Payload},
    schema::arbitrary::Random,
};
use polywire_testing::{
    Coder, Wire, backends, mutated, plain_wires, programs::change, random_evolution, random_record, random_schema,
    wires,
};
use std::{
    fmt::Debug,
    sync::{Arc, OnceLock},
};

pub const LIMITS: Limits = Limits {
    message_bytes: 1 << 20,
    memory_bytes: 1 << 20,
    expansion: 64,
    free_bytes: 1 << 16,
    elements: 10_000,
    depth: 32,
};

pub fn seed_bytes(random: &mut Random) -> Vec<u8> {
    random.bits().to_le_bytes().to_vec()
}

pub fn stream_bytes(random: &mut Random) -> Vec<u8> {
    let (mut encoder, mut bytes) = (StreamEncoder::default(), Vec::new());
    encoder.hello(&Hello { node: Default::default(), incarnation: random.bits() }, &mut bytes);
    let announcement = Announcement { topic: "t".into(), codec: "cdr".into(), ..Announcement::default() };
    let channel = encoder.announce(&announcement, Start::default(), &mut bytes);
    for i in 0..random.below(4) {
        let Ok(channel) = channel else { break };
        let envelope = Envelope::data(channel, i as u64, 0);
        let payload = vec![7; random.below(20)];
        if encoder.data(&envelope, payload.len(), &mut bytes).is_ok() {
            bytes.extend(payload);
        }
    }
    mutated(random, &bytes)
}

/// Reads the same bytes at once, in pieces, and with the short way for plain messages. All must
/// give the same frames, and must end with an error or all without.
pub fn read_stream(input: &[u8]) {
    let (piece, all) = (1 + input.len() % 9, frames(input, usize::MAX, false));
    assert_eq!(all, frames(input, piece, false), "reading in pieces changes the result");
    assert_eq!(all, frames(input, piece, true), "the short way changes the result");
}

/// The frames, and whether an error ends them.
fn frames(input: &[u8], piece: usize, short: bool) -> (Vec<String>, bool) {
    let mut decoder = StreamDecoder::new(frame::Limits { frame_bytes: 1 << 16, ..frame::Limits::default() });
    let (mut frames, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        if short {
            let mut messages = Vec::new();
            let used = decoder.messages(&input[start..end], 2, 15, &mut messages);
            assert!(
                messages.len() <= 2 && messages.iter().all(|(_, payload)| payload.len() <= 15),
                "within its bounds"
            );
            frames.extend(
                messages.into_iter().map(|(envelope, payload)| format!("{:?}", Frame::Data(envelope, payload))),
            );
            start += used;
        }
        match decoder.step(&input[start..end]) {
            Ok(Step::Frame { frame, used }) => {
                assert!(used > 0 && used <= end - start, "a frame uses at least one byte and no more than were given");
                frames.push(format!("{frame:?}"));
                start += used;
            }
            Ok(Step::Need(_)) if end < input.len() => end = end.saturating_add(piece).min(input.len()),
            Ok(Step::Need(_)) => return (frames, false),
            Err(_) => return (frames, true),
        }
    }
}

/// A datagram with defects. The checksum is mostly correct, so that the code after its check runs.
pub fn datagram_bytes(random: &mut Random) -> Vec<u8> {
    let mut encoder = DatagramEncoder::new(Default::default(), random.bits(), frame::Limits::default());
    let (channel, mut bytes) = (encoder.open().expect("the first channel can be opened"), Vec::new());
    encoder.begin(&mut bytes);
    let announcement = Announcement { topic: "t".into(), codec: "cdr".into(), ..Announcement::default() };
    encoder.announce(channel, Start::default(), &announcement, &mut bytes);
    for sequence in 0..random.below(4) as u64 {
        let payload = vec![7; random.below(20)];
        encoder
            .data(&Envelope::data(channel, sequence, 0), &payload, &mut bytes)
            .expect("an envelope without extensions fits");
    }
    bytes = mutated(random, &bytes);
    if !random.one_in(8) {
        encoder.finish(&mut bytes);
    }
    bytes
}

pub fn read_datagram(input: &[u8]) {
    let mut decoder = DatagramDecoder::new(frame::Limits::default());
    if let Ok(datagram) = decoder.open(input) {
        for frame in datagram {
            let _ = format!("{frame:?}");
        }
    }
}

/// The number of messages in one input. Compiling the programs takes long, so each input uses them
/// for several messages.
const MESSAGES: usize = 16;

/// The seed of a schema, the number of a wire, and messages, each preceded by its length.
pub fn message_bytes(random: &mut Random) -> Vec<u8> {
    let mut input = (random.bits() % 5000).to_le_bytes().to_vec();
    input.push(random.below(all_wires().len()) as u8);
    let Some((wire, shape)) = type_of(&input) else { return input };
    let Ok(coder) = Coder::new(wire, &shape, Backend::Interpreter) else { return input };
    for _ in 0..MESSAGES {
        let message = coder.encode(&random_record(random, &shape)).unwrap_or_default();
        let message = mutated(random, &message);
        input.extend((message.len() as u32).to_le_bytes());
        input.extend(message);
    }
    input
}

fn all_wires() -> &'static [Wire] {
    static WIRES: OnceLock<Vec<Wire>> = OnceLock::new();
    WIRES.get_or_init(wires)
}

pub fn type_of(input: &[u8]) -> Option<(&'static Wire, Arc<Shape>)> {
    let wires = all_wires();
    let wire = &wires[usize::from(*input.get(8)?) % wires.len()];
    let seed = seed(input);
    Some((wire, Shape::of(&random_schema(seed, 1 + seed as usize % 9)).ok()?))
}

pub fn messages(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = input.get(9..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let message = after.get(..u32::from_le_bytes(*length) as usize).unwrap_or(after);
        rest = &after[message.len()..];
        Some(message)
    })
}

/// Decodes messages on all back ends, which must agree. Encoding and decoding a decoded value again
/// must preserve it.
pub fn decode(input: &[u8]) {
    let Some((wire, shape)) = type_of(input) else { return };
    let coders = backends().into_iter().filter_map(|backend| Coder::new(wire, &shape, backend).ok());
    let coders: Vec<Coder> = coders.collect();
    for message in messages(input) {
        let outcomes = coders.iter().map(|coder| {
            let limited = Coder { decoder: coder.decoder.clone().with_limits(LIMITS), ..coder.clone() };
            let outcome = limited.decode(message, &Record::new(&shape));
            if let Ok((record, _)) = &outcome {
                again(wire, coder, record);
            }
            printed(outcome)
        });
        agree(&outcomes.collect::<Vec<_>>());
    }
}

/// The outcome with its value as text, because NaN is not equal to itself.
fn printed<E>(outcome: Result<(Record, usize), E>) -> Result<(String, usize), E> {
    outcome.map(|(record, taken)| (format!("{record:?}"), taken))
}

pub fn agree<T: PartialEq + Debug>(outcomes: &[T]) {
    assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "the outcomes differ: {outcomes:#?}");
}

/// Encodes and decodes a value, which must be preserved. Encoding may only fail because the format
/// cannot represent the value.
fn again(wire: &Wire, coder: &Coder, record: &Record) {
    match coder.encode(record) {
        Ok(message) => match coder.decode(&message, &Record::new(record.shape())) {
            Ok((back, _)) => assert!(same(&back, record), "{wire:?}: the value {record:?} became {back:?}"),
            Err(error) => panic!("{wire:?}: the encoded value cannot be decoded: {error}"),
        },
        Err(error) => assert_eq!(error.kind, FaultKind::Unrepresentable, "{wire:?}: {error}"),
    }
}

/// Whether two values are equal. If they differ, their texts may still have the same bytes in
/// another order: this accepts NaN, and map entries in another order.
fn same(a: &Record, b: &Record) -> bool {
    let [(x, mut p), (y, mut q)] = [a, b].map(|record| (record, format!("{record:?}").into_bytes()));
    p.sort_unstable();
    q.sort_unstable();
    x == y || p == q
}

/// Decodes messages of a writer with another version of the type. All back ends must agree.
pub fn decode_evolved(input: &[u8]) {
    let Some((wire, shape)) = type_of(input) else { return };
    let reader = random_evolution(seed(input) >> 3, shape.schema());
    let Ok(target) = Shape::of(&reader) else { return };
    let decoder =
        |backend| Decoder::for_shape_with_backend(wire.codec, &wire.options, shape.schema(), &target, backend).ok();
    let decoders: Vec<Decoder<Record>> = backends().into_iter().filter_map(decoder).collect();
    for message in messages(input) {
        let outcomes = decoders.iter().map(|decoder| {
            let mut record = Record::new(&target);
            let outcome = decoder.clone().with_limits(LIMITS).decode(message, &mut record);
            printed(outcome.map(|taken| (record, taken)))
        });
        agree(&outcomes.collect::<Vec<_>>());
    }
}

/// Encodes and decodes a random value with all codecs and options.
pub fn transcode(input: &[u8]) {
    let seed = seed(input);
    let Ok(shape) = Shape::of(&random_schema(seed, 1 + seed as usize % 9)) else { return };
    let record = random_record(&mut Random::new(seed), &shape);
    for wire in all_wires() {
        if let Ok(coder) = Coder::new(wire, &shape, Backend::Interpreter) {
            again(wire, &coder, &record);
        }
    }
}

/// Decodes for a reader with another version of the type. All codecs that can encode the value must
/// decode the same value, or all must refuse.
pub fn evolve(input: &[u8]) {
    let seed = seed(input);
    let writer = random_schema(seed, 1 + seed as usize % 9);
    let reader = random_evolution(seed >> 3, &writer);
    let (Ok(source), Ok(target)) = (Shape::of(&writer), Shape::of(&reader)) else { return };
    let mut random = Random::new(seed);
    let (record, over) = (random_record(&mut random, &source), random_record(&mut random, &target));
    let values = plain_wires().into_iter().filter_map(|wire| {
        let decoder =
            Decoder::for_shape_with_backend(wire.codec, &wire.options, &writer, &target, Backend::Interpreter);
        let (Ok(decoder), Ok(coder)) = (decoder, Coder::new(&wire, &source, Backend::Interpreter)) else { return None };
        let message = coder.encode(&record).ok()?;
        let mut value = over.clone();
        Some(decoder.decode(&message, &mut value).is_ok().then(|| format!("{value:?}")))
    });
    agree(&values.collect::<Vec<_>>());
}

/// Changes a program at random. If the verifier accepts it, both back ends run it and must agree.
pub fn run_program(input: &[u8]) {
    let seed = seed(input);
    let mut random = Random::new(seed);
    let Ok(shape) = Shape::of(&random_schema(seed, 1 + seed as usize % 9)) else { return };
    let wire = random.choose(&plain_wires()).clone();
    let lowered = wire.codec.lower_decode(&Options::default(), shape.schema(), shape.schema(), shape.layout());
    let (Ok(program), Ok(coder)) = (lowered, Coder::new(&wire, &shape, Backend::Interpreter)) else { return };
    let mut program = program.prepared();
    (0..1 + random.below(3)).for_each(|_| change(&mut random, &mut program));
    let Ok(interpreted) = Executable::prepared(program.clone(), Backend::Interpreter) else { return };
    let compiled = Executable::prepared(program, Backend::Auto).unwrap();
    let message = coder.encode(&random_record(&mut random, &shape)).unwrap_or_default();
    let over = random_record(&mut random, &shape);
    for _ in 0..4 {
        let bytes = mutated(&mut random, &message);
        let outcomes = [&interpreted, &compiled].map(|executable| {
            let mut value = over.clone();
            // SAFETY: the program was verified against the layout of the record.
            let outcome = unsafe { executable.decode(Payload::Bytes(&bytes), value.as_mut_ptr(), &LIMITS) };
            printed(outcome.map(|taken| (value, taken)))
        });
        agree(&outcomes);
    }
}
