//! Hostile BSON: truncated, with flipped bits, wrong lengths, unlimited nesting. And round trips of
//! random types.

use super::bson_support::{decode_within, encode};
use polywire_core::{
    codec::{Decoder, Encoder, Options, bson::BSON, bson::validate},
    layout::{Message, MessageField, Record, Shape, Value},
    program::{Backend, FaultKind, Limits},
    schema::{Case, DefId, DefKind, Member, Schema, Type, arbitrary::Random},
};
use polywire_derive::Message;
use polywire_testing::{Decoders, Wire, backends, random_schema};
use std::collections::BTreeMap;

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Part {
    name: String,
    ratio: f64,
    large: u64,
}

#[derive(Message, Debug, PartialEq, Clone)]
#[polywire(switch = "long")]
enum Either {
    #[polywire(case(1))]
    Number(i16),
    #[polywire(case(2, 3))]
    Part(Part),
}

#[derive(Message, Debug, PartialEq, Clone)]
struct Whole {
    flag: bool,
    parts: Vec<Part>,
    either: Either,
    remark: Option<String>,
    #[polywire(idl = "sequence<octet>")]
    blob: Vec<u8>,
    ids: [i32; 3],
    map: BTreeMap<String, u64>,
}

fn whole() -> Whole {
    let part = Part { name: "Gr\u{fc}\u{df}e".into(), ratio: 0.5, large: u64::MAX };
    Whole {
        flag: true,
        parts: vec![part.clone(), Part::default()],
        either: Either::Part(part),
        remark: Some("r".into()),
        blob: vec![1, 2, 3],
        ids: [1, 2, 3],
        map: [("k".into(), 1), ("l".into(), 1 << 63)].into(),
    }
}

/// A message may take this much memory: far less than a length that lies would ask for.
const LIMITS: Limits = Limits {
    message_bytes: 1 << 16,
    memory_bytes: 1 << 14,
    expansion: 1024,
    free_bytes: 1 << 14,
    elements: 1000,
    depth: 8,
};

/// One decoder for each back end.
struct Reader(Decoders<Whole>);

impl Reader {
    fn new() -> Reader {
        Reader(Wire::parse("bson").decoders(Whole::shape().schema(), LIMITS))
    }

    /// What all back ends make of it.
    fn read(&self, bytes: &[u8]) -> Result<Whole, FaultKind> {
        self.0.decode(bytes, Whole::default_value).map(|(value, _)| value).map_err(|error| error.kind)
    }
}

#[test]
fn every_truncation_is_refused() {
    let reader = Reader::new();
    let bytes = encode(&whole());
    assert_eq!(reader.read(&bytes), Ok(whole()));
    assert_eq!(validate(&bytes, &LIMITS), Ok(()));
    for len in 0..bytes.len() {
        assert!(reader.read(&bytes[..len]).is_err(), "{len}");
        assert!(validate(&bytes[..len], &LIMITS).is_err(), "{len}");
        // The same with a length that agrees: the document then breaks inside.
        let mut patched = bytes[..len].to_vec();
        if let Some(head) = patched.first_chunk_mut::<4>() {
            *head = (len as i32).to_le_bytes();
            let _ = reader.read(&patched);
            let _ = validate(&patched, &LIMITS);
        }
    }
}

#[test]
fn flipped_bits_do_no_harm() {
    let reader = Reader::new();
    let bytes = encode(&whole());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            // Both back ends are compared inside.
            let _ = reader.read(&flipped);
            let _ = validate(&flipped, &LIMITS);
        }
    }
}

#[test]
fn lengths_that_lie_are_refused() {
    let reader = Reader::new();
    let bytes = encode(&whole());
    let lies = [0, 1, 4, i32::MAX - 4, i32::MAX, -1, i32::MIN, bytes.len() as i32 + 1];
    for lie in lies {
        for at in 0..bytes.len() - 4 {
            let mut wrong = bytes.clone();
            wrong[at..at + 4].copy_from_slice(&lie.to_le_bytes());
            let result = reader.read(&wrong);
            assert!(at != 0 || result == Err(FaultKind::BadLength), "{lie}: {result:?}");
            let _ = validate(&wrong, &LIMITS);
        }
    }
}

#[test]
fn noise_does_no_harm() {
    let reader = Reader::new();
    let mut random = Random::new(7);
    let good = encode(&whole());
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..=random.below(6) {
            let at = 4 + random.below(bytes.len() - 4);
            bytes[at] = random.bits() as u8;
        }
        let _ = reader.read(&bytes);
        let _ = validate(&bytes, &LIMITS);
    }
}

#[test]
fn nesting_is_limited() {
    let mut bytes = vec![5, 0, 0, 0, 0];
    for _ in 0..10_000 {
        let mut outer = ((bytes.len() + 8) as i32).to_le_bytes().to_vec();
        outer.extend_from_slice(b"\x03a\0");
        outer.append(&mut bytes);
        outer.push(0);
        bytes = outer;
    }
    let limits = Limits { message_bytes: 1 << 20, ..LIMITS };
    assert_eq!(validate(&bytes, &limits).unwrap_err().kind, FaultKind::TooDeep);
    // An unknown member is skipped as one piece, however deep it is.
    let whole = decode_within::<Part>(Part::shape().schema(), &bytes, limits);
    assert_eq!(whole, Ok(Part::default()));
}

#[test]
fn elements_are_limited() {
    let reader = Reader::new();
    let many = Whole { parts: vec![Part::default(); 1001], ..whole() };
    assert_eq!(reader.read(&encode(&many)), Err(FaultKind::Limit));
    let large = Whole { remark: Some("x".repeat(20_000)), ..whole() };
    assert_eq!(reader.read(&encode(&large)), Err(FaultKind::Limit));
}

/// Random values for a schema.
struct Filler<'s> {
    schema: &'s Schema,
    random: Random,
}

impl Filler<'_> {
    fn value(&mut self, ty: &Type, levels: usize) -> Value {
        let bits = self.random.bits();
        match self.schema.resolve(ty) {
            Type::Bool => (bits & 1 == 1).into(),
            Type::Int8 => (bits as i8).into(),
            Type::Int16 => (bits as i16).into(),
            Type::Int32 => (bits as i32).into(),
            Type::Int64 => (bits as i64).into(),
            Type::Octet | Type::Uint8 | Type::Char8 => (bits as u8).into(),
            Type::Uint16 | Type::Char16 => (bits as u16).into(),
            Type::Uint32 => (bits as u32).into(),
            Type::Uint64 => bits.into(),
            Type::Float32 => (f64::from(bits as i16) / 8.0).into(),
            Type::Float64 | Type::Float128 => (bits as i32 as f64 / 1024.0).into(),
            Type::String { bound } | Type::WString { bound } => self.text(*bound).into(),
            Type::Sequence { element, bound } => {
                let len = self.len(*bound, levels);
                Value::List((0..len).map(|_| self.value(element, levels - 1)).collect())
            }
            Type::Array { element, dims } => self.array(element, dims, levels.saturating_sub(1)),
            Type::Map { key, value, bound } => {
                let mut entries: Vec<(Value, Value)> = Vec::new();
                for _ in 0..self.len(*bound, levels) {
                    let key = self.key(key);
                    if !entries.iter().any(|(known, _)| *known == key) {
                        entries.push((key, self.value(value, levels - 1)));
                    }
                }
                Value::Entries(entries)
            }
            Type::Def(id) => self.def(*id, levels),
        }
    }

    fn array(&mut self, element: &Type, dims: &[u32], levels: usize) -> Value {
        match dims.split_first() {
            Some((len, inner)) => Value::List((0..*len).map(|_| self.array(element, inner, levels)).collect()),
            None => self.value(element, levels),
        }
    }

    /// A value that is not a character cannot be a key.
    fn key(&mut self, ty: &Type) -> Value {
        match self.schema.resolve(ty) {
            Type::Char8 | Type::Char16 => Value::Int(1 + self.random.below(255) as i128),
            _ => self.value(ty, 0),
        }
    }

    fn len(&mut self, bound: u32, levels: usize) -> usize {
        let most = if bound == 0 { 12 } else { bound.min(12) as usize };
        if levels == 0 { 0 } else { self.random.below(most + 1) }
    }

    fn text(&mut self, bound: u32) -> String {
        let len = if bound == 0 { 20 } else { bound as usize };
        (0..self.random.below(len.min(20) + 1)).map(|_| char::from(b'a' + self.random.below(26) as u8)).collect()
    }

    fn def(&mut self, id: DefId, levels: usize) -> Value {
        let schema = self.schema;
        match &schema.def(id).kind {
            DefKind::Enum { literals, .. } => Value::Int(self.random.choose(literals).value.into()),
            DefKind::Bitmask { flags, .. } => {
                let bits = flags.iter().filter(|_| self.random.one_in(2)).map(|flag| 1i128 << flag.position).sum();
                Value::Int(bits)
            }
            DefKind::Bitset { .. } => Value::Int(0),
            DefKind::Union { discriminator, cases, .. } => {
                // Booleans and enums may have no value left for a default case.
                let few = matches!(schema.resolve(discriminator), Type::Bool | Type::Def(_));
                let possible: Vec<&Case> = cases.iter().filter(|case| !few || !case.labels.is_empty()).collect();
                let ends = |case: &&Case| schema.resolve(&case.member.ty).is_primitive();
                let ending: Vec<&Case> = possible.iter().copied().filter(ends).collect();
                let choices = if levels == 0 && !ending.is_empty() { &ending } else { &possible };
                let member = &self.random.choose(choices).member;
                Value::fields([(member.name.clone(), self.member(member, levels))])
            }
            _ => {
                // Deep inside, what could go on for ever stays as it is.
                let ends = |member: &&Member| levels > 0 || schema.resolve(&member.ty).is_primitive();
                let members: Vec<&Member> = schema.members(id).into_iter().filter(ends).collect();
                Value::fields(members.into_iter().map(|m| (m.name.clone(), self.member(m, levels))).collect::<Vec<_>>())
            }
        }
    }

    fn member(&mut self, member: &Member, levels: usize) -> Value {
        let absent = member.optional && (levels == 0 || self.random.one_in(2));
        if absent { Value::Absent } else { self.value(&member.ty, levels.saturating_sub(1)) }
    }
}

/// False if there are no records of the type.
fn round_trip(seed: u64, backend: Backend, with: &str) -> bool {
    let schema = random_schema(seed, 8);
    // Some are too large for a record.
    let Ok(shape) = Shape::of(&schema) else { return false };
    let mut record = Record::new(&shape);
    let value = Filler { schema: &schema, random: Random::new(seed) }.value(schema.root(), 4);
    record.set("", value).unwrap();
    let options: Options = with.parse().unwrap();
    let encoder = Encoder::for_shape_with_backend(&BSON, &options, &shape, backend).unwrap();
    let mut bytes = Vec::new();
    encoder.encode(&record, &mut bytes).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    validate(&bytes, &Limits::default()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let document = bson::Document::from_reader(&*bytes).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert_eq!(document.to_vec().unwrap(), bytes, "seed {seed}: the bson crate writes what it read");
    let decoder = Decoder::for_shape_with_backend(&BSON, &Options::default(), &schema, &shape, backend).unwrap();
    let mut read = Record::new(&shape);
    decoder.decode(&bytes, &mut read).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert_eq!(read, record, "seed {seed}");
    cut(seed, &decoder, &bytes, &mut read);
    true
}

/// Whatever is cut off or changed, the decoder ends with a valid record.
fn cut(seed: u64, decoder: &Decoder<Record>, bytes: &[u8], record: &mut Record) {
    let mut random = Random::new(seed ^ 0xC0DE);
    for _ in 0..20 {
        assert!(decoder.decode(&bytes[..random.below(bytes.len())], record).is_err(), "seed {seed}");
        let mut flipped = bytes.to_vec();
        flipped[random.below(bytes.len())] ^= 1 << random.below(8);
        let _ = decoder.decode(&flipped, record);
    }
}

#[test]
fn records_of_random_types_come_back() {
    let mut compared = 0;
    for seed in 0..150 {
        for backend in backends() {
            let with = if seed % 2 == 0 { "" } else { "enum=name,null=write" };
            compared += u32::from(round_trip(seed, backend, with));
        }
    }
    assert!(compared > 100, "{compared}");
}
