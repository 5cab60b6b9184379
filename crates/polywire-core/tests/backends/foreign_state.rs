//! A codec of a third party with state, in safe code only: each number of a message is sent as its
//! difference from the number in the message before.
#![forbid(unsafe_code)]

use polywire_core::{
    codec::{BuildError, Decoder, Encoder, Options},
    layout::{Kind, Layout, Message, Scalar},
    program::{
        Backend, Bank, Block, Direction, ExecError, FaultKind, Op, OpKind, PathId, Place, Program, SlotOp, State,
        StopBit, Wire,
    },
};
use polywire_derive::Message;
use std::sync::Arc;

use super::foreign::{Foreign, Lower};

/// The local of the number in the message before.
const PREVIOUS: u8 = 0;

const BACKENDS: [Backend; 2] = [Backend::Interpreter, Backend::Auto];

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Counters {
    sent: u64,
    received: u64,
    level: i64,
}

/// Sends differences, with a bank of so many slots; `None` is a bank that is left out.
struct Differences(Option<u32>);

impl Lower for Differences {
    const NAME: &'static str = "differences";
    const LIKE: &'static str = "fast";

    fn program(&self, direction: Direction, layout: &Arc<Layout>) -> Program {
        let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("it is a structure") };
        let mut ops = Vec::new();
        for (slot, field) in (0..).zip(fields.iter()) {
            let place = Place::At { offset: field.offset, node: field.node };
            let signed = matches!(layout.node(field.node).kind, Kind::Scalar(Scalar::I64));
            let scalar = if signed { Scalar::I64 } else { Scalar::U64 };
            let wire = Wire::StopBit(StopBit { base: Some(PREVIOUS), ..StopBit::new(scalar) });
            let previous = [
                OpKind::Slot(SlotOp::LoadSlot { slot, scalar, initial: 0 }),
                OpKind::Slot(SlotOp::StoreLocal(PREVIOUS)),
            ];
            let store = OpKind::Slot(SlotOp::StoreSlot { slot, kind: 2 });
            let value = match direction {
                Direction::Encode => [OpKind::Load(place), store, OpKind::Put(wire)],
                Direction::Decode => [OpKind::Get(wire), store, OpKind::Store(place)],
            };
            ops.extend(previous.into_iter().chain(value).map(|kind| Op { path: PathId(slot), kind }));
        }
        Program {
            direction,
            layout: layout.clone(),
            root: Block(ops),
            routines: vec![],
            adapter: None,
            paths: ["sent", "received", "level"].map(String::from).into(),
            bank: self.0.map(|slots| Arc::new(Bank { slots, texts: 0 })),
        }
    }
}

fn encoder(backend: Backend) -> (Encoder<Counters>, State) {
    let encoder = Encoder::with_backend(&Foreign(Differences(Some(3))), &Options::default(), backend).unwrap();
    let state = encoder.state().expect("the program has a bank");
    (encoder, state)
}

fn decoder(backend: Backend) -> (Decoder<Counters>, State) {
    let schema = Counters::shape().schema();
    let decoder = Decoder::with_backend(&Foreign(Differences(Some(3))), &Options::default(), schema, backend).unwrap();
    let state = decoder.state().expect("the program has a bank");
    (decoder, state)
}

/// Messages in order, with the bytes that each is to have.
fn messages() -> [(Counters, &'static [u8]); 4] {
    [
        (Counters { sent: 5, received: 1000, level: -1 }, &[0x85, 0x07, 0xE8, 0xFF]),
        (Counters { sent: 6, received: 999, level: -1 }, &[0x81, 0xFF, 0x80]),
        (Counters { sent: 6, received: 999, level: 62 }, &[0x80, 0x80, 0xBF]),
        (Counters { sent: 0, received: 0, level: 0 }, &[0xFA, 0x78, 0x99, 0xC2]),
    ]
}

#[test]
fn messages_are_differences() {
    for backend in BACKENDS {
        let ((encoder, mut writer), (decoder, mut reader)) = (encoder(backend), decoder(backend));
        for (message, bytes) in messages() {
            let (mut out, mut back) = (Vec::new(), Counters::default());
            encoder.encode_with(&mut writer, true, &message, &mut out).unwrap();
            assert_eq!(out, bytes, "{backend:?}, {message:?}");
            decoder.decode_with(&mut reader, true, &out, &mut back).unwrap();
            assert_eq!(back, message, "{backend:?}");
        }
    }
}

#[test]
fn a_message_that_is_not_kept_leaves_no_trace() {
    for backend in BACKENDS {
        let ((encoder, mut writer), (decoder, mut reader)) = (encoder(backend), decoder(backend));
        let [(first, bytes), ..] = messages();
        for keep in [false, false, true] {
            let (mut out, mut back) = (Vec::new(), Counters::default());
            encoder.encode_with(&mut writer, keep, &first, &mut out).unwrap();
            decoder.decode_with(&mut reader, keep, &out, &mut back).unwrap();
            assert_eq!((out.as_slice(), &back), (bytes, &first), "{backend:?}");
        }
    }
}

#[test]
fn a_message_that_fails_changes_nothing_and_breaks_the_chain() {
    for backend in BACKENDS {
        let (decoder, mut reader) = decoder(backend);
        let mut back = Counters::default();
        let [(_, first), (second, bytes), ..] = messages();
        decoder.decode_with(&mut reader, true, first, &mut back).unwrap();
        // The first number is there, and the second is not.
        let error = decoder.decode_with(&mut reader, true, &[0x83], &mut back).unwrap_err();
        assert_eq!((error.kind, error.path.as_str()), (FaultKind::Truncated, "received"), "{backend:?}");
        let error = decoder.decode_with(&mut reader, true, bytes, &mut back).unwrap_err();
        assert_eq!(error.kind, FaultKind::BrokenChain, "{backend:?}");
        reader.mend();
        decoder.decode_with(&mut reader, true, bytes, &mut back).unwrap();
        assert_eq!(back, second, "{backend:?}");
    }
}

#[test]
fn a_difference_beyond_the_type_is_refused() {
    for backend in BACKENDS {
        let (decoder, mut reader) = decoder(backend);
        let error = decoder.decode_with(&mut reader, true, &[0xFF, 0x80, 0x80], &mut Counters::default());
        assert_eq!(error.unwrap_err().kind, FaultKind::DeltaRange, "{backend:?}");
    }
}

#[test]
fn slots_are_in_the_bank() {
    for slots in [None, Some(0), Some(2)] {
        let built =
            Encoder::<Counters>::with_backend(&Foreign(Differences(slots)), &Options::default(), Backend::Interpreter);
        assert!(matches!(built.err(), Some(BuildError::Exec(ExecError::Refused(_)))), "{slots:?}");
    }
}
