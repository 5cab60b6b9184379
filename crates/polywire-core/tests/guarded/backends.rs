//! Encoding and decoding with guarded memory: every message, buffer, value and string lies directly
//! before an inaccessible page, and freed memory is inaccessible, too.

use polywire_core::{
    codec::{
        Decoder, Encoder, Options,
        fast::{Fast, template::TemplateSet},
    },
    layout::{Message, Record, Shape},
    program::Backend,
    schema::arbitrary::Random,
};
use polywire_derive::Message;
use polywire_testing::random_schema;
use polywire_testing::{
    Wire, backends,
    derived::{Everything, random_message},
    guard::{PAGE, alone, exact, guarded, is_guarded},
    mutated, plain_wires, random_record, seeds,
    waiting::process_of,
    wires,
};
use std::{os::unix::process::ExitStatusExt as _, process::Stdio};

#[test]
fn guards_are_in_place() {
    let bytes = exact(b"12345");
    assert!(is_guarded(bytes.as_ptr().cast_mut()));
    assert_eq!((bytes.as_ptr() as usize + 5) % PAGE, 0);
    for access in ["inside", "after", "before", "freed"] {
        let mut process = process_of("backends::access");
        let status = process.env("POLYWIRE_TEST_ACCESS", access).stdout(Stdio::null()).status().expect("started");
        let is_killed = access != "inside";
        assert_eq!((status.signal().is_some(), status.success()), (is_killed, !is_killed), "{access}");
    }
}

/// Not a test by itself: reads a byte in a guarded block or beside it.
#[test]
#[ignore = "run by another test"]
fn access() {
    // The second block, so that there is one before it.
    let (_one, bytes) = (exact(&[0]), exact(&[1; PAGE]));
    let first = bytes.as_ptr();
    let at = match std::env::var("POLYWIRE_TEST_ACCESS").expect("which byte").as_str() {
        "inside" => first,
        "after" => first.wrapping_add(PAGE),
        "before" => first.wrapping_sub(1),
        _ => {
            drop(bytes);
            first
        }
    };
    // SAFETY: the byte is in the block, or its page is inaccessible and the process ends.
    assert_eq!(unsafe { at.read_volatile() }, 1);
}

#[derive(Message, Debug, Clone, PartialEq)]
struct Texts {
    first: String,
    flag: bool,
    second: String,
    number: u16,
    third: String,
}

/// Strings of every length, in buffers as long as they are, into outputs that have just enough
/// room, or less.
#[test]
fn strings_of_every_length_at_the_end_of_a_page() {
    let _alone = alone();
    for wire in plain_wires() {
        let coders: Vec<_> = backends().into_iter().map(|b| coder::<Texts>(&wire, b)).collect();
        for len in 0..41 {
            let text = |len| guarded(|| "x".repeat(len).into_boxed_str().into_string());
            let value = guarded(|| {
                Box::new(Texts {
                    first: text(len),
                    flag: true,
                    second: text(40 - len),
                    number: 7,
                    third: text(len / 2),
                })
            });
            for (encoder, decoder) in &coders {
                let mut message = Vec::new();
                encoder.encode(&value, &mut message).unwrap();
                for room in (0..message.len() + 40).step_by(3).chain([message.len()]) {
                    let same = guarded(|| {
                        let mut out = Vec::with_capacity(room);
                        encoder.encode(&value, &mut out).unwrap();
                        out == message
                    });
                    assert!(same, "{wire:?}, length {len}, room {room}");
                }
                // Over strings that have just the capacity, more, or none.
                for capacity in [0, len, 16, 17, 40] {
                    let input = exact(&message);
                    let same = guarded(|| {
                        let string = || String::with_capacity(capacity);
                        let mut back = Box::new(Texts {
                            first: string(),
                            flag: false,
                            second: string(),
                            number: 0,
                            third: string(),
                        });
                        decoder.decode(&input, &mut back).unwrap();
                        *back == *value
                    });
                    assert!(same, "{wire:?}, length {len}, capacity {capacity}");
                }
                for cut in 0..message.len() {
                    let input = exact(&message[..cut]);
                    let mut back = guarded(|| value.clone());
                    let outcome = guarded(|| decoder.decode(&input, &mut back));
                    assert!(outcome.is_err() || may_end_early(&wire), "{wire:?}, cut to {cut}");
                    guarded(|| drop((back, input)));
                }
            }
        }
    }
}

#[derive(Message, Debug, Default, Clone, PartialEq)]
struct Deltas {
    plain: String,
    wide: String,
}

/// Messages of a stream that end anywhere, with strings that are differences from those before.
#[test]
fn streams_cut_off_at_the_end_of_a_page() {
    let xml = "<templates><template name='Deltas' id='1'>\
        <string name='plain'><delta/></string><string name='wide' charset='unicode'><delta/></string>\
        </template></templates>";
    let codec = Fast::new(TemplateSet::parse(xml).unwrap());
    for backend in backends() {
        let encoder = Encoder::<Deltas>::with_backend(&codec, &Options::default(), backend).unwrap();
        // A new one for each message: one that bailed out does not try the next one directly.
        let decoder =
            || Decoder::<Deltas>::with_backend(&codec, &Options::default(), encoder.schema(), backend).unwrap();
        let (mut writer, mut reader) = (encoder.state().unwrap(), decoder().state().unwrap());
        let mut back = Deltas::default();
        for text in ["one", "ones", ""] {
            let (value, mut message) = (Deltas { plain: text.into(), wide: text.into() }, Vec::new());
            encoder.encode_with(&mut writer, true, &value, &mut message).unwrap();
            for len in 0..message.len() {
                let result = decoder().decode_with(&mut reader, false, &exact(&message[..len]), &mut back);
                assert!(result.is_err(), "{backend:?}, {len} of {message:x?}");
            }
            decoder().decode_with(&mut reader, true, &exact(&message), &mut back).unwrap();
            assert_eq!(back, value, "{backend:?}");
        }
    }
}

/// A Protobuf message may end after any field: missing fields are zero. A block of YAML may end
/// after any line or digit.
fn may_end_early(wire: &Wire) -> bool {
    matches!(wire.codec.name(), "protobuf" | "yaml")
}

fn coder<T: Message>(wire: &Wire, backend: Backend) -> (Encoder<T>, Decoder<T>) {
    let encoder = Encoder::with_backend(wire.codec, &wire.options, backend).unwrap();
    let decoder = Decoder::with_backend(wire.codec, &wire.options, T::shape().schema(), backend).unwrap();
    (encoder, decoder)
}

#[test]
fn derived_values_between_guards() {
    let _alone = alone();
    for wire in wires() {
        for backend in backends() {
            let (encoder, decoder) = coder::<Everything>(&wire, backend);
            let mut random = Random::new(3);
            for _ in 0..2 {
                let value: Everything = random_message(&mut random);
                let mut message = Vec::new();
                encoder.encode(&value, &mut message).unwrap();
                guarded(|| {
                    // In memory of its own, and so is all that it points to.
                    let copy = Box::new(value.clone());
                    let mut out = Vec::with_capacity(message.len());
                    encoder.encode(&copy, &mut out).unwrap();
                    assert_eq!(out, message);
                });
                for round in 0..30 {
                    let bad = if round > 0 { mutated(&mut random, &message) } else { message.clone() };
                    let input = exact(&bad);
                    guarded(|| {
                        let mut over = Box::new(value.clone());
                        let outcome = decoder.decode(&input, &mut over);
                        assert!(round > 0 || outcome.is_ok());
                        let mut again = Vec::new();
                        let _ = encoder.encode(&over, &mut again);
                        drop((over, input));
                    });
                }
            }
        }
    }
}

#[test]
fn records_between_guards() {
    let _alone = alone();
    for seed in seeds(10) {
        let Ok(shape) = Shape::of(&random_schema(seed, 8)) else { continue };
        for wire in plain_wires() {
            for backend in backends() {
                let Ok(encoder) = Encoder::for_shape_with_backend(wire.codec, &wire.options, &shape, backend) else {
                    continue;
                };
                let decoder =
                    Decoder::for_shape_with_backend(wire.codec, &wire.options, shape.schema(), &shape, backend);
                let decoder = decoder.unwrap();
                let mut random = Random::new(seed);
                let mut message = Vec::new();
                let record = guarded(|| random_record(&mut random, &shape));
                if encoder.encode(&record, &mut message).is_err() {
                    continue;
                }
                let out = guarded(|| {
                    let mut out = Vec::with_capacity(message.len());
                    encoder.encode(&record, &mut out).unwrap();
                    out
                });
                assert_eq!(out, message);
                for round in 0..20 {
                    let bad = if round > 0 { mutated(&mut random, &message) } else { message.clone() };
                    let input = exact(&bad);
                    guarded(|| {
                        let mut over = Record::new(&shape);
                        let outcome = decoder.decode(&input, &mut over);
                        assert!(round > 0 || outcome.is_ok());
                        let _ = decoder.decode(&input, &mut over);
                        drop((over, input));
                    });
                }
                guarded(|| drop((record, out)));
            }
        }
    }
}
