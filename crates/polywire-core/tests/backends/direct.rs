//! Small messages, which machine code encodes and decodes without a context. For every input the
//! outcome must be that of the interpreter.

use polywire_core::{
    codec::{self, Decoder, Encoder, Options},
    layout::Message,
    program::{Backend, CodecError, Limits},
    schema::arbitrary::Random,
};
use polywire_derive::Message;

const CODECS: &[&str] = &["protobuf", "cdr", "xcdr2", "msgpack", "cbor", "ubjson", "bson", "json"];

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Probe {
    idle: u64,
    system: u64,
    user: u64,
}

#[derive(Message, Debug, Default, PartialEq, Clone, Copy)]
enum Mode {
    #[default]
    Off,
    Below = -3,
    On = 7,
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Scalars {
    flag: bool,
    a: u8,
    b: i8,
    c: u16,
    d: i16,
    e: u32,
    f: i32,
    g: u64,
    h: i64,
    x: f32,
    y: f64,
    mode: Mode,
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Texts {
    first: String,
    number: u32,
    #[polywire(idl = "string<20>")]
    bounded: String,
    last: String,
}

/// A number with any number of bits.
fn number(random: &mut Random) -> u64 {
    random.bits() >> random.below(64)
}

fn probe(random: &mut Random) -> Probe {
    Probe { idle: number(random), system: number(random), user: if random.one_in(3) { 0 } else { number(random) } }
}

fn scalars(random: &mut Random) -> Scalars {
    Scalars {
        flag: random.one_in(2),
        a: number(random) as u8,
        b: number(random) as i8,
        c: number(random) as u16,
        d: number(random) as i16,
        e: number(random) as u32,
        f: number(random) as i32,
        g: number(random),
        h: number(random) as i64,
        x: f32::from_bits(number(random) as u32 & 0x7F7F_FFFF),
        y: f64::from_bits(number(random) & 0x7FEF_FFFF_FFFF_FFFF),
        mode: [Mode::Off, Mode::Below, Mode::On][random.below(3)],
    }
}

fn text(random: &mut Random, longest: usize) -> String {
    (0..random.below(longest + 1)).map(|_| ['a', 'z', '~'][random.below(3)]).collect()
}

fn texts(random: &mut Random) -> Texts {
    let longest = [3, 16, 17, 40, 300][random.below(5)];
    Texts {
        first: text(random, longest),
        number: number(random) as u32,
        bounded: text(random, 22),
        last: text(random, longest),
    }
}

struct Both<T: Message> {
    encoders: [Encoder<T>; 2],
    decoders: [Decoder<T>; 2],
}

impl<T: Message + Default + PartialEq + std::fmt::Debug + Clone> Both<T> {
    fn new(name: &str, limits: Limits) -> Both<T> {
        let (codec, options) = (codec::find(name).unwrap(), Options::default());
        let backends = [Backend::Auto, Backend::Interpreter];
        Both {
            encoders: backends.map(|b| Encoder::with_backend(codec, &options, b).unwrap().with_limits(limits)),
            decoders: backends
                .map(|b| Decoder::with_backend(codec, &options, T::shape().schema(), b).unwrap().with_limits(limits)),
        }
    }

    /// Encodes a value. The bytes are the same for vectors of any capacity.
    fn encode(&self, value: &T, random: &mut Random) -> Result<Vec<u8>, CodecError> {
        let mut expected = b"before".to_vec();
        let outcome = self.encoders[1].encode(value, &mut expected);
        for room in [0, random.below(200), 1000] {
            let mut out = Vec::with_capacity(6 + room);
            out.extend_from_slice(b"before");
            assert_eq!(self.encoders[0].encode(value, &mut out), outcome, "{value:?}");
            assert_eq!(out, expected, "{value:?}");
        }
        outcome.map(|()| expected.split_off(6))
    }

    /// Decodes a message. The value is the same whatever was in it before.
    fn decode(&self, bytes: &[u8], old: &T) -> Result<(usize, T), CodecError> {
        let [ours, expected] = [0, 1].map(|i| {
            let mut value = old.clone();
            self.decoders[i].decode(bytes, &mut value).map(|taken| (taken, value))
        });
        assert_eq!(ours, expected, "{bytes:02x?}");
        expected
    }
}

/// Values as they are, and their bytes with changes of all kinds.
fn ordeal<T: Message + Default + PartialEq + std::fmt::Debug + Clone>(value: fn(&mut Random) -> T, rounds: u32) {
    for name in CODECS {
        let (both, mut random) = (Both::<T>::new(name, Limits::default()), Random::new(7));
        let mut old = T::default();
        for _ in 0..rounds {
            let value = value(&mut random);
            let Ok(bytes) = both.encode(&value, &mut random) else { continue };
            assert_eq!(both.decode(&bytes, &old), Ok((bytes.len(), value.clone())), "{name}");
            let mut changed = bytes.clone();
            match random.below(5) {
                0 => changed.truncate(random.below(bytes.len() + 1)),
                1 => changed.extend_from_slice(&bytes),
                2 => changed.rotate_left(random.below(bytes.len() + 1) % bytes.len().max(1)),
                3 => changed.insert(random.below(bytes.len() + 1), random.bits() as u8),
                _ => {
                    if let Some(byte) = changed.get_mut(random.below(bytes.len() + 1)) {
                        *byte = random.bits() as u8;
                    }
                }
            }
            let _ = both.decode(&changed, &old);
            old = value;
        }
    }
}

#[test]
fn three_numbers() {
    ordeal(probe, 2000);
}

#[test]
fn scalars_of_all_kinds() {
    ordeal(scalars, 2000);
}

#[test]
fn texts_short_and_long() {
    ordeal(texts, 2000);
}

#[test]
fn limits_hold() {
    for name in CODECS {
        let mut random = Random::new(3);
        for message_bytes in [0, 1, 10, 23, 24, 25, 60, 200] {
            let both = Both::<Probe>::new(name, Limits { message_bytes, ..Limits::default() });
            let wide = Both::<Probe>::new(name, Limits::default());
            for _ in 0..30 {
                let value = probe(&mut random);
                let bytes = wide.encode(&value, &mut random).unwrap();
                assert_eq!(both.encode(&value, &mut random).is_ok(), bytes.len() <= message_bytes, "{name}");
                assert_eq!(both.decode(&bytes, &Probe::default()).is_ok(), bytes.len() <= message_bytes, "{name}");
            }
        }
    }
}

#[test]
fn unusual_protobuf_messages_are_read() {
    let both = Both::<Probe>::new("protobuf", Limits::default());
    let read = |bytes: &[u8]| both.decode(bytes, &Probe { idle: 9, system: 9, user: 9 }).map(|(_, probe)| probe);
    let probe = |idle, system, user| Ok(Probe { idle, system, user });
    // Nothing, another order, a field nobody knows, one that comes twice, a number that is longer
    // than it need be.
    assert_eq!(read(b""), probe(0, 0, 0));
    assert_eq!(read(b"\x18\x03\x08\x01"), probe(1, 0, 3));
    assert_eq!(read(b"\x08\x01\x7a\x02ab\x18\x03"), probe(1, 0, 3));
    assert_eq!(read(b"\x08\x01\x08\x02"), probe(2, 0, 0));
    assert_eq!(read(b"\x10\x81\x80\x80\x80\x00"), probe(0, 1, 0));
    // Of ten bytes, which are as many as a number has.
    assert_eq!(read(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), probe(u64::MAX, 0, 0));
    for (bytes, path, offset) in [
        (&b"\x08"[..], "idle", 1),
        (b"\x08\x01\x10\x80", "system", 3),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "idle", 1),
        (b"\x08\x01\x1d\x01\x02\x03\x04", "user", 3),
    ] {
        let error = read(bytes).unwrap_err();
        assert_eq!((error.path.as_str(), error.offset), (path, offset), "{bytes:02x?}");
    }
}
