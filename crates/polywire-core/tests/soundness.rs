//! Small values through all unsafe code, for Miri: `.ci/miri` runs these tests on three targets.

use polywire_core::{
    codec::{CODECS, Codec, Decoder, Encoder, Options},
    layout::{Message, Record, Shape, Value, ValueRef},
    program::{Backend, Limits},
};
use polywire_derive::Message;
use std::collections::{BTreeMap, HashMap};

const BACKEND: Backend = Backend::Interpreter;

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
struct Pump {
    #[polywire(key)]
    id: u32,
    rpm: i16,
    running: bool,
    mode: Mode,
    name: String,
    readings: Vec<f64>,
    raw: Vec<u8>,
    grid: [[i16; 2]; 2],
    limits: BTreeMap<String, i64>,
    counts: HashMap<u16, u8>,
    drive: Drive,
    level: Option<String>,
    next: Option<Box<f32>>,
    parts: Vec<Part>,
    alarms: Alarms,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Message)]
#[repr(u32)]
enum Mode {
    #[default]
    Off,
    On = 4,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[polywire(switch = "int32")]
enum Drive {
    #[polywire(case(0))]
    Fixed(u16),
    #[polywire(case(1, 2))]
    Geared(Vec<String>),
}

impl Default for Drive {
    fn default() -> Self {
        Drive::Fixed(0)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Part {
    number: u64,
    label: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Message)]
#[polywire(bitmask(bit_bound = 16, LEAK = 0, HEAT = 9))]
struct Alarms(pub u16);

/// Moved, widened, removed, added.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
struct Newer {
    parts: Vec<NewerPart>,
    level: Option<String>,
    readings: Vec<f64>,
    #[polywire(default = "north")]
    site: String,
    #[polywire(key)]
    id: u32,
    rpm: i64,
    mode: Mode,
    drive: Drive,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Part")]
struct NewerPart {
    label: String,
    weight: f32,
}

fn pump() -> Pump {
    Pump {
        id: 7,
        rpm: -1450,
        running: true,
        mode: Mode::On,
        name: "a name of more than sixteen bytes".into(),
        readings: vec![1.5, -0.25, 1e300],
        raw: vec![1, 2, 3],
        grid: [[1, -2], [3, i16::MIN]],
        limits: [("low".into(), -5), ("high".into(), i64::from(i32::MAX))].into(),
        counts: [(1, 2), (3, 4)].into(),
        drive: Drive::Geared(vec!["first".into(), String::new()]),
        level: Some("full".into()),
        next: Some(Box::new(2.5)),
        parts: vec![Part { number: 1 << 40, label: "rotor".into() }, Part::default()],
        alarms: Alarms(0x201),
    }
}

/// Codecs that carry the type, with what they write.
fn carried() -> impl Iterator<Item = (&'static dyn Codec, Vec<u8>)> {
    CODECS.iter().filter_map(|codec| {
        let encoder = Encoder::<Pump>::with_backend(*codec, &Options::default(), BACKEND).ok()?;
        let mut bytes = Vec::new();
        encoder.encode(&pump(), &mut bytes).ok()?;
        Some((*codec, bytes))
    })
}

#[test]
fn derived_values_come_back() {
    assert!(carried().count() >= 4, "the first four codecs carry everything");
    for (codec, bytes) in carried() {
        let decoder =
            Decoder::<Pump>::with_backend(codec, &Options::default(), Pump::shape().schema(), BACKEND).unwrap();
        // Over a fresh value, and over one that holds other things.
        for mut read in [Pump::default(), Pump { drive: Drive::Fixed(9), level: None, ..pump() }] {
            assert_eq!(decoder.decode(&bytes, &mut read), Ok(bytes.len()), "{}", codec.name());
            assert_eq!(read, pump(), "{}", codec.name());
        }
    }
}

#[test]
fn records_come_back_and_equal_derived_values() {
    let shape = Shape::of(Pump::shape().schema()).unwrap();
    for (codec, bytes) in carried() {
        let decoder =
            Decoder::for_shape_with_backend(codec, &Options::default(), shape.schema(), &shape, BACKEND).unwrap();
        let mut record = Record::new(&shape);
        decoder.decode(&bytes, &mut record).unwrap();
        assert_eq!(record.view(), ValueRef::of(&pump()), "{}", codec.name());
        let (mut again, encoder) =
            (Vec::new(), Encoder::for_shape_with_backend(codec, &Options::default(), &shape, BACKEND).unwrap());
        encoder.encode(&record, &mut again).unwrap();
        let mut back = record.clone();
        back.clear().unwrap();
        decoder.decode(&again, &mut back).unwrap();
        assert_eq!(back, record, "{}", codec.name());
    }
}

#[test]
fn readers_of_another_version_understand() {
    let expected = Newer {
        parts: vec![NewerPart { label: "rotor".into(), weight: 0.0 }, NewerPart::default()],
        level: Some("full".into()),
        readings: pump().readings,
        site: "north".into(),
        id: 7,
        rpm: -1450,
        mode: Mode::On,
        drive: pump().drive,
    };
    let records = Shape::of(Newer::shape().schema()).unwrap();
    for (codec, bytes) in carried() {
        let writer = Pump::shape().schema();
        let decoder = Decoder::<Newer>::with_backend(codec, &Options::default(), writer, BACKEND).unwrap();
        let mut read = Newer::default();
        decoder.decode(&bytes, &mut read).unwrap_or_else(|error| panic!("{}: {error}", codec.name()));
        assert_eq!(read, expected, "{}", codec.name());
        let decoder = Decoder::for_shape_with_backend(codec, &Options::default(), writer, &records, BACKEND).unwrap();
        let mut record = Record::new(&records);
        decoder.decode(&bytes, &mut record).unwrap();
        assert_eq!(record.view(), ValueRef::of(&expected), "{}", codec.name());
    }
}

/// Whatever is wrong with a message, the value can be dropped, printed and decoded into again.
#[test]
fn values_stay_values_when_messages_break() {
    let limits = Limits { memory_bytes: 1 << 12, elements: 64, ..Limits::default() };
    for (codec, bytes) in carried() {
        let decoder = Decoder::<Pump>::with_backend(codec, &Options::default(), Pump::shape().schema(), BACKEND);
        let decoder = decoder.unwrap().with_limits(limits);
        let (mut read, step) = (pump(), bytes.len() / if cfg!(miri) { 4 } else { 64 } + 1);
        for at in (0..bytes.len()).step_by(step) {
            let mut broken = bytes.clone();
            broken[at] ^= 0xFF;
            let _ = decoder.decode(&broken, &mut read);
            let _ = decoder.decode(&bytes[..at], &mut read);
            assert!(!format!("{read:?}").is_empty());
        }
    }
}

#[test]
fn records_take_whatever_is_stored() {
    let shape = Shape::of(Pump::shape().schema()).unwrap();
    let mut record = Record::new(&shape);
    record.set("drive.Geared", Value::List(vec!["x".into(), "y".into()])).unwrap();
    record.set("limits", Value::entries([("b", 2), ("a", 1)])).unwrap();
    record.set("level", "high").unwrap();
    record.set("next", 1.5).unwrap();
    record.resize("parts", 2).unwrap();
    record.set("parts[1].label", "second").unwrap();
    let copy = record.clone();
    record.set("drive.Fixed", 3).unwrap();
    record.set("level", Value::Absent).unwrap();
    record.resize("parts", 0).unwrap();
    assert_ne!(copy, record);
    assert!(record.try_clone_from(&copy).unwrap());
    assert_eq!(record, copy);
}

#[test]
fn values_give_back_what_they_keep() {
    let shape = Shape::of(Pump::shape().schema()).unwrap();
    let limits = Limits { memory_bytes: 1 << 12, ..Limits::default() };
    for (codec, bytes) in carried() {
        let none = Options::default();
        let derived = Decoder::<Pump>::with_backend(codec, &none, shape.schema(), BACKEND).unwrap().with_limits(limits);
        let dynamic =
            Decoder::for_shape_with_backend(codec, &none, shape.schema(), &shape, BACKEND).unwrap().with_limits(limits);
        let (mut value, mut record) = (pump(), Record::new(&shape));
        for _ in 0..12 {
            // The memory that fresh values request counts, too, so that the others release theirs
            // now and then.
            derived.decode(&bytes, &mut Pump::default()).unwrap();
            derived.decode(&bytes, &mut value).unwrap();
            dynamic.decode(&bytes, &mut Record::new(&shape)).unwrap();
            dynamic.decode(&bytes, &mut record).unwrap();
            assert_eq!(value, pump(), "{}", codec.name());
        }
        let mut expected = Record::new(&shape);
        dynamic.decode(&bytes, &mut expected).unwrap();
        assert_eq!(record, expected, "{}", codec.name());
    }
}
