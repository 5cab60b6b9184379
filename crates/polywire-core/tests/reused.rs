//! Values that are decoded into repeatedly: the content of earlier messages is never visible, both
//! back ends leave the same, and memory is released.

use polywire_core::{
    codec::{self, Decoder, Encoder, Options},
    layout::{Message, Record, Shape, Value},
    program::{Backend, FaultKind, Limits},
    schema::{Def, DefId, Extensibility, Member, Schema, SchemaBuilder, Type},
};
use polywire_derive::Message;
use polywire_testing::allocator::{Counts, PATTERN, TestAllocator};
use polywire_testing::{backends, plain_wires, struct_of};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::filling();

fn coder(codec: &str, shape: &Arc<Shape>, backend: Backend) -> (Encoder<Record>, Decoder<Record>) {
    let (codec, none) = (codec::find(codec).unwrap(), Options::default());
    let encoder = Encoder::for_shape_with_backend(codec, &none, shape, backend).unwrap();
    (encoder, Decoder::for_shape_with_backend(codec, &none, shape.schema(), shape, backend).unwrap())
}

fn encoded(encoder: &Encoder<Record>, record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    encoder.encode(record, &mut bytes).unwrap();
    bytes
}

/// The last definition is the root; all are final.
fn final_types(defs: Vec<Def>) -> Schema {
    let mut types = SchemaBuilder::new();
    let ids: Vec<DefId> = defs.into_iter().map(|def| types.add(def.with_extensibility(Extensibility::Final))).collect();
    types.finish(Type::Def(ids[ids.len() - 1])).unwrap()
}

/// `o` and `p` are optional, `n` is between them.
fn optionals(ty: &Type, value: &Value) -> (Arc<Shape>, Record) {
    let optional = |name: &str| Member::new(name, ty.clone()).as_optional();
    let shape = Shape::of(&struct_of(vec![optional("o"), Member::new("n", Type::Uint32), optional("p")])).unwrap();
    let mut record = Record::new(&shape);
    record.set("o", value.clone()).unwrap();
    record.set("n", 5).unwrap();
    record.set("p", value.clone()).unwrap();
    (shape, record)
}

/// The message with each of its bytes replaced by each other one.
fn wrong(message: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..256 * message.len()).map(|i| {
        let mut wrong = message.to_vec();
        wrong[i / 256] = i as u8;
        wrong
    })
}

#[test]
fn an_error_leaves_no_number_that_was_never_written() {
    let pattern = i32::from_ne_bytes([PATTERN; 4]);
    let (shape, record) = optionals(&Type::Int32, &Value::from(3));
    let mut refused = 0;
    let binary = plain_wires().into_iter().filter(|wire| !wire.codec.properties().text);
    for (wire, backend) in binary.flat_map(|wire| backends().into_iter().map(move |b| (wire.clone(), b))) {
        let (encoder, decoder) = coder(wire.codec.name(), &shape, backend);
        for message in wrong(&encoded(&encoder, &record)) {
            let mut read = Record::new(&shape);
            let Err(error) = decoder.decode(&message, &mut read) else { continue };
            refused += 1;
            for member in ["o", "p"].map(|member| read.get(member).unwrap()) {
                let number = member.as_i64();
                assert_ne!(number, Some(pattern.into()), "{wire:?}, {backend:?}, {message:02x?}: {error}");
            }
        }
    }
    assert!(refused > 10_000, "wrong messages are refused: {refused}");
}

/// Values that are a byte, too, of which a pattern could be one: then both back ends leave the
/// same.
#[test]
fn an_error_leaves_the_same_on_both_back_ends() {
    for (ty, value) in
        [(Type::Bool, Value::from(true)), (Type::Octet, Value::from(3)), (Type::Float32, Value::from(3.5))]
    {
        let (shape, record) = optionals(&ty, &value);
        let coders: Vec<_> = backends().into_iter().map(|backend| coder("fast", &shape, backend)).collect();
        let message = encoded(&coders[0].0, &record);
        let cut = (0..message.len()).map(|len| message[..len].to_vec());
        for message in wrong(&message).chain(cut) {
            let reads = coders.iter().map(|(_, decoder)| {
                let mut read = Record::new(&shape);
                (decoder.decode(&message, &mut read).is_ok(), read)
            });
            let reads: Vec<_> = reads.collect();
            assert!(reads.windows(2).all(|two| two[0] == two[1]), "{ty:?}, {message:02x?}: {reads:?}");
        }
    }
}

#[test]
fn written_elements_are_not_mistaken_for_default_ones() {
    let shape = Shape::of(&struct_of(vec![Member::new("v", Type::sequence(Type::Int32))])).unwrap();
    for backend in backends() {
        let (encoder, decoder) = coder("cdr", &shape, backend);
        let list = |n: i32| {
            let mut record = Record::new(&shape);
            record.set("v", Value::List((1..=n).map(Value::from).collect())).unwrap();
            record
        };
        let mut read = Record::new(&shape);
        for n in [4, 5, 8] {
            decoder.decode(&encoded(&encoder, &list(n)), &mut read).unwrap();
            assert_eq!(read, list(n));
        }
        read.resize("v", 9).unwrap();
        let mut expected = list(8);
        expected.resize("v", 9).unwrap();
        assert_eq!(read, expected, "{backend:?}");
        // Elements that were out of use have default values when they are used again.
        read.resize("v", 2).unwrap();
        read.resize("v", 9).unwrap();
        let mut expected = list(2);
        expected.resize("v", 9).unwrap();
        assert_eq!(read, expected, "{backend:?}");
    }
}

#[test]
fn elements_of_no_bytes_count_against_the_limit_each_time() {
    let empty = Type::Def(DefId(0));
    let lists = Member::new("v", Type::sequence(Type::sequence(empty)));
    let schema = final_types(vec![Def::structure("Empty", vec![]), Def::structure("Lists", vec![lists])]);
    let shape = Shape::of(&schema).unwrap();
    const MANY: u32 = 50_000;
    for backend in backends() {
        let (_, decoder) = coder("cdr", &shape, backend);
        let decoder = decoder.with_limits(Limits { memory_bytes: 1 << 17, ..Limits::default() });
        let mut read = Record::new(&shape);
        let outcomes: Vec<_> = (1..6u32)
            .map(|lists| {
                let message: Vec<u8> =
                    [lists].into_iter().chain((0..lists).map(|_| MANY)).flat_map(u32::to_le_bytes).collect();
                decoder.decode(&message, &mut read).map_err(|error| error.kind)
            })
            .collect();
        assert_eq!(
            outcomes,
            [Ok(8), Err(FaultKind::Limit), Err(FaultKind::Limit), Err(FaultKind::Limit), Err(FaultKind::Limit)]
                .map(|outcome: Result<usize, FaultKind>| outcome),
            "{backend:?}"
        );
        // As many elements as are there already, which asks for no memory.
        let outcome = decoder.decode(&[1, MANY].map(u32::to_le_bytes).concat(), &mut read);
        assert_eq!(outcome, Ok(8), "{backend:?}");
    }
}

/// A member that the reader does not have: its elements are skipped, each of them an array of
/// elements without bytes.
#[test]
fn elements_of_no_bytes_take_no_time() {
    let many = Type::Array { element: Box::new(Type::Def(DefId(0))), dims: [1 << 20].into() };
    let inside = Def::structure("Inside", vec![Member::new("a", many)]);
    let unknown = Member::new("v", Type::sequence(Type::Def(DefId(1))));
    let empty = Def::structure("Empty", vec![]);
    let writer = final_types(vec![empty, inside, Def::structure("S", vec![Member::new("n", Type::Uint32), unknown])]);
    let reader = final_types(vec![Def::structure("S", vec![Member::new("n", Type::Uint32)])]);
    let shape = Shape::of(&reader).unwrap();
    for name in ["cdr", "fast"] {
        for backend in backends() {
            let codec = codec::find(name).unwrap();
            let decoder =
                Decoder::for_shape_with_backend(codec, &Options::default(), &writer, &shape, backend).unwrap();
            let start = Instant::now();
            let message = match name {
                // Presence map, template, 7, 2^20.
                "fast" => vec![0xE0, 0x81, 0x87, 0x40, 0x00, 0x80],
                _ => [7, 1u32 << 20].map(u32::to_le_bytes).concat(),
            };
            let mut record = Record::new(&shape);
            let outcome = decoder.decode(&message, &mut record);
            assert!(start.elapsed() < Duration::from_secs(10), "{name}, {backend:?}: {outcome:?}");
            assert_eq!((outcome, record.u64("n")), (Ok(message.len()), Ok(7)), "{name}, {backend:?}");
        }
    }
}

#[test]
fn a_small_message_cannot_allocate_much() {
    let plain = |members| {
        final_types(vec![
            Def::structure("E", members),
            Def::structure("S", vec![Member::new("v", Type::sequence(Type::Def(DefId(0))))]),
        ])
    };
    let writer = plain(vec![]);
    let reader = plain((0..20).map(|i| Member::new(format!("s{i}"), Type::string())).collect());
    let shape = Shape::of(&reader).unwrap();
    for backend in backends() {
        let decoder =
            Decoder::for_shape_with_backend(codec::find("cdr").unwrap(), &Options::default(), &writer, &shape, backend)
                .unwrap();
        let before = Counts::of_this_thread().held_bytes;
        let error = decoder.decode(&400_000u32.to_le_bytes(), &mut Record::new(&shape)).unwrap_err();
        assert_eq!((error.kind, error.expected), (FaultKind::Limit, 1 << 20), "{backend:?}: {error}");
        assert!(error.to_string().contains("1048576"), "{error}");
        assert!(Counts::of_this_thread().held_bytes - before < 2 << 20);
        // A larger message may request more, and a decoder can be set to trust its writers.
        let trusting = decoder.with_limits(Limits { free_bytes: usize::MAX, ..Limits::default() });
        let mut record = Record::new(&shape);
        assert_eq!(trusting.decode(&100_000u32.to_le_bytes(), &mut record), Ok(4));
    }
}

/// What a value keeps of messages that came before.
const KEPT: Limits = Limits { memory_bytes: 1 << 18, ..LARGE };
const LARGE: Limits = Limits {
    message_bytes: 1 << 26,
    memory_bytes: 1 << 26,
    expansion: 1 << 20,
    free_bytes: 1 << 26,
    elements: 1 << 20,
    depth: 64,
};

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Notes {
    #[polywire(skip)]
    mine: String,
    lists: Vec<Text>,
    entries: BTreeMap<u32, String>,
    counts: HashMap<u32, u64>,
    title: Option<String>,
    either: Either,
    grid: [Vec<u16>; 2],
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Text {
    text: String,
    raw: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[polywire(switch = "int32")]
enum Either {
    #[polywire(case(0))]
    Text(String),
    #[polywire(case(1))]
    List(Vec<u32>),
}

impl Default for Either {
    fn default() -> Either {
        Either::Text(String::new())
    }
}

/// Each has something large in another place.
fn notes(i: usize) -> Notes {
    const LONG: usize = 40_000;
    let long = || "x".repeat(LONG);
    let mut notes = Notes { lists: vec![Text::default(); 20], ..Notes::default() };
    match i % 8 {
        0 => notes.title = Some(long()),
        1 => notes.either = Either::Text(long()),
        2 => notes.either = Either::List(vec![7; LONG / 4]),
        3 => notes.grid[i / 8 % 2] = vec![9; LONG / 4],
        4 => drop(notes.entries.insert(i as u32, long())),
        5 => notes.counts.extend((0..LONG as u32 / 64).map(|key| (key, 1))),
        6 => notes.lists[i / 8 % 20].text = long(),
        _ => notes.lists[i / 8 % 20].raw = vec![1; LONG / 4],
    }
    notes
}

#[test]
fn values_give_back_what_many_messages_left() {
    let schema = Notes::shape().schema();
    let shape = Shape::of(schema).unwrap();
    for (wire, backend) in plain_wires().iter().flat_map(|wire| backends().into_iter().map(move |b| (wire, b))) {
        let Ok(encoder) = Encoder::<Notes>::with_backend(wire.codec, &wire.options, backend) else { continue };
        let derived =
            Decoder::<Notes>::with_backend(wire.codec, &wire.options, schema, backend).unwrap().with_limits(KEPT);
        let dynamic = Decoder::for_shape_with_backend(wire.codec, &wire.options, schema, &shape, backend)
            .unwrap()
            .with_limits(KEPT);
        let (mut value, mut record, mut bytes) =
            (Notes { mine: "kept".into(), ..Notes::default() }, Record::new(&shape), Vec::with_capacity(1 << 20));
        let start = Counts::of_this_thread().held_bytes;
        for i in 0..160 {
            bytes.clear();
            let sent = notes(i);
            encoder.encode(&sent, &mut bytes).unwrap();
            derived.decode(&bytes, &mut value).unwrap();
            dynamic.decode(&bytes, &mut record).unwrap();
            assert_eq!(value, Notes { mine: "kept".into(), ..sent }, "{wire:?}, {backend:?}, message {i}");
            let kept = Counts::of_this_thread().held_bytes - start;
            // Two values, each of what all messages may ask for and one more; and what the codec's
            // adapter keeps.
            assert!(
                kept < 2 * 2 * KEPT.memory_bytes as isize + (1 << 19),
                "{wire:?}, {backend:?}, message {i}: {kept}"
            );
        }
        assert_eq!(record.str("either.Text").is_ok(), matches!(value.either, Either::Text(_)));
    }
}

#[test]
fn a_message_sequence_releases_memory_and_continues() {
    let texts = Member::new("v", Type::sequence(Type::string()));
    let shape = Shape::of(&struct_of(vec![Member::new("n", Type::Uint32), texts])).unwrap();
    for backend in backends() {
        let (encoder, decoder) = coder("fast", &shape, backend);
        let decoder = decoder.with_limits(KEPT);
        let (mut writer, mut reader) = (encoder.state().unwrap(), decoder.state().unwrap());
        let (mut read, mut bytes) = (Record::new(&shape), Vec::with_capacity(1 << 20));
        let start = Counts::of_this_thread().held_bytes;
        for i in 0..120 {
            let mut record = Record::new(&shape);
            record.set("n", i as u32).unwrap();
            record.resize("v", 40).unwrap();
            record.set(&format!("v[{}]", i % 40), "x".repeat(100_000 + i)).unwrap();
            bytes.clear();
            encoder.encode_with(&mut writer, true, &record, &mut bytes).unwrap();
            decoder.decode_with(&mut reader, true, &bytes, &mut read).unwrap();
            assert_eq!(read, record, "{backend:?}, message {i}");
        }
        let kept = Counts::of_this_thread().held_bytes - start;
        // The states keep what the last messages had, too.
        assert!(kept < 2 * KEPT.memory_bytes as isize + (1 << 20), "{backend:?}: {kept}");
    }
}

#[test]
fn steady_messages_keep_their_memory() {
    let shape = Shape::of(&struct_of(vec![Member::new("v", Type::sequence(Type::string()))])).unwrap();
    for backend in backends() {
        let (encoder, decoder) = coder("cdr", &shape, backend);
        let decoder = decoder.with_limits(KEPT);
        let mut record = Record::new(&shape);
        record.set("v", Value::List((0..600).map(|i| Value::Text("y".repeat(i))).collect())).unwrap();
        let (message, mut read) = (encoded(&encoder, &record), Record::new(&shape));
        decoder.decode(&message, &mut read).unwrap();
        let held = Counts::of_this_thread().held_bytes;
        for _ in 0..20 {
            decoder.decode(&message, &mut read).unwrap();
            assert_eq!(Counts::of_this_thread().held_bytes, held, "{backend:?}");
        }
    }
}
