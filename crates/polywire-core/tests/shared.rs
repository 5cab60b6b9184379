//! Shared strings and octets, which refer to the message. They are not copied where wire and memory
//! agree, and the values are the same in all cases.

use polywire_core::{
    codec::{Decoder, Encoder},
    layout::{Message, SharedBytes, SharedStr},
    program::{Backend, FaultKind, Limits},
};
use polywire_derive::Message;
use polywire_testing::allocator::{Counts, TestAllocator};
use polywire_testing::{backends, plain_wires};
use std::collections::BTreeMap;

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::counting();

#[derive(Message, Clone, Debug, Default, PartialEq)]
#[polywire(name = "Picture")]
struct Owned {
    #[polywire(key)]
    id: u32,
    title: String,
    #[polywire(idl = "sequence<octet>")]
    pixels: Vec<u8>,
    #[polywire(idl = "string<6>", try_construct = "trim")]
    short: String,
    note: Option<String>,
    tags: Vec<String>,
    by_name: BTreeMap<String, u16>,
    #[polywire(default = "none")]
    unit: String,
}

#[derive(Message, Clone, Debug, Default, PartialEq)]
#[polywire(name = "Picture")]
struct Shared {
    #[polywire(key)]
    id: u32,
    title: SharedStr,
    pixels: SharedBytes,
    #[polywire(idl = "string<6>", try_construct = "trim")]
    short: SharedStr,
    note: Option<SharedStr>,
    tags: Vec<SharedStr>,
    by_name: BTreeMap<SharedStr, u16>,
    #[polywire(default = "none")]
    unit: SharedStr,
}

fn owned(n: usize) -> Owned {
    Owned {
        id: n as u32,
        title: "Größe \"1\"".repeat(n % 7),
        pixels: (0..50 * n).map(|i| i as u8).collect(),
        short: "short".into(),
        note: (n % 2 == 1).then(|| "note".repeat(n)),
        tags: (0..n % 5).map(|i| "tag".repeat(i)).collect(),
        by_name: (0..n % 4).map(|i| (format!("key {i}"), i as u16)).collect(),
        unit: "m".into(),
    }
}

fn shared(from: &Owned) -> Shared {
    let Owned { id, title, pixels, short, note, tags, by_name, unit } = from.clone();
    Shared {
        id,
        title: title.into(),
        pixels: pixels.into(),
        short: short.into(),
        note: note.map(SharedStr::from),
        tags: tags.into_iter().map(SharedStr::from).collect(),
        by_name: by_name.into_iter().map(|(key, value)| (key.into(), value)).collect(),
        unit: unit.into(),
    }
}

fn pair<T: Message>(wire: &polywire_testing::Wire, backend: Backend) -> (Encoder<T>, Decoder<T>) {
    let encoder = Encoder::with_backend(wire.codec, &wire.options, backend).unwrap();
    let decoder = Decoder::with_backend(wire.codec, &wire.options, T::shape().schema(), backend).unwrap();
    (encoder, decoder)
}

#[test]
fn the_type_is_that_of_strings_and_octets() {
    let (a, b) = (Owned::shape().schema(), Shared::shape().schema());
    assert_eq!(a.type_hash(), b.type_hash());
    assert!(Shared::shape().layout().shares() && !Owned::shape().layout().shares());
}

#[test]
fn values_are_the_same_in_every_codec() {
    for wire in plain_wires() {
        for backend in backends() {
            let (as_owned, _) = pair::<Owned>(&wire, backend);
            let (encoder, decoder) = pair::<Shared>(&wire, backend);
            let (mut back, mut copied) = (Shared::default(), Shared::default());
            for n in [0, 1, 2, 9, 5, 3, 8, 0] {
                let value = shared(&owned(n));
                let (mut bytes, mut expected) = (Vec::new(), Vec::new());
                encoder.encode(&value, &mut bytes).unwrap();
                as_owned.encode(&owned(n), &mut expected).unwrap();
                assert_eq!(bytes, expected, "{wire:?} {backend:?}");

                decoder.decode(&bytes, &mut copied).unwrap();
                assert_eq!(copied, value, "{wire:?} {backend:?}");
                let message = SharedBytes::from(bytes).into_shared();
                decoder.decode_shared(&message, &mut back).unwrap();
                assert_eq!(back, value, "{wire:?} {backend:?}");
                // A value decoded from a message is encoded like any other.
                let mut again = Vec::new();
                encoder.encode(&back, &mut again).unwrap();
                assert_eq!(again, expected, "{wire:?} {backend:?}");
                drop(message);
                assert_eq!(back, value, "{wire:?} {backend:?}");
            }
        }
    }
}

#[test]
fn nothing_is_copied_where_wire_and_memory_agree() {
    for wire in plain_wires().iter().filter(|wire| ["cdr", "xcdr2", "bson"].contains(&wire.codec.name())) {
        for backend in backends() {
            let (encoder, decoder) = pair::<Shared>(wire, backend);
            let value = Shared { by_name: BTreeMap::new(), ..shared(&owned(if cfg!(miri) { 103 } else { 4003 })) };
            let mut bytes = Vec::new();
            encoder.encode(&value, &mut bytes).unwrap();
            let message = SharedBytes::from(bytes).into_shared();
            let mut back = Shared::default();
            // The second time the list of tags has its room.
            for round in 0..2 {
                let before = Counts::of_this_thread().requested_bytes;
                decoder.decode_shared(&message, &mut back).unwrap();
                let asked = Counts::of_this_thread().requested_bytes - before;
                assert!(round == 0 || asked == 0, "{wire:?} {backend:?}: {asked} bytes");
            }
            let inside = |part: &[u8]| {
                let (all, part) = (message.as_ptr_range(), part.as_ptr_range());
                all.start <= part.start && part.end <= all.end
            };
            let texts = back.tags.iter().chain([&back.title, &back.unit]).chain(&back.note);
            assert!(texts.clone().all(|text| inside(text.as_bytes())), "{wire:?} {backend:?}");
            assert!(texts.count() > 4 && inside(&back.pixels), "{wire:?} {backend:?}");
        }
    }
}

#[test]
fn bounds_defaults_and_limits_hold() {
    #[derive(Message, Default)]
    #[polywire(name = "Picture")]
    struct Older {
        #[polywire(key)]
        id: u32,
        short: String,
        pixels: SharedBytes,
    }
    let value = Older { id: 1, short: "longer than six".into(), pixels: vec![1; 5000].into() };
    for wire in plain_wires() {
        for backend in backends() {
            let (encoder, _) = pair::<Older>(&wire, backend);
            let mut bytes = Vec::new();
            encoder.encode(&value, &mut bytes).unwrap();
            let decoder = Decoder::<Shared>::with_backend(wire.codec, &wire.options, encoder.schema(), backend);
            let decoder = decoder.unwrap();
            let message = SharedBytes::from(bytes).into_shared();
            let mut back = shared(&owned(9));
            decoder.decode_shared(&message, &mut back).unwrap();
            assert_eq!((&*back.short, &*back.unit, &*back.title), ("longer", "none", ""), "{wire:?} {backend:?}");
            assert_eq!(back.pixels, value.pixels);

            let tight = decoder.with_limits(Limits { elements: 100, ..Limits::default() });
            let error = tight.decode_shared(&message, &mut Shared::default()).unwrap_err();
            assert_eq!(error.kind, FaultKind::Limit, "{wire:?} {backend:?}");
            match tight.decode_shared(&message.part(0..5), &mut back) {
                Err(error) => assert!(error.offset <= 5, "{wire:?} {backend:?}: {error}"),
                // The first lines of a block of YAML are a whole one, of less.
                Ok(_) => assert_eq!(wire.codec.name(), "yaml"),
            }
        }
    }
}

#[test]
fn invalid_utf_8_is_refused() {
    let wire = plain_wires().remove(0);
    #[derive(Message, Default)]
    struct Text {
        text: SharedStr,
    }
    for backend in backends() {
        let (_, decoder) = pair::<Text>(&wire, backend);
        let refused = [
            (&[3, 0, 0, 0, 0xC3, 0x28, 0][..], FaultKind::BadText),
            (&[2, 0, 0, 0, b'a', 1], FaultKind::BadTerminator),
            (&[9, 0, 0, 0, b'a', 0], FaultKind::BadLength),
        ];
        for (bytes, kind) in refused {
            let mut back = Text { text: "before".into() };
            let message = SharedBytes::from(bytes).into_shared();
            assert_eq!(decoder.decode_shared(&message, &mut back).unwrap_err().kind, kind, "{backend:?}");
            assert!(["before", ""].contains(&&*back.text));
        }
    }
}
