//! A codec of a third party with state of its own, in safe code only. It sends what changed since
//! the last message, with slots for numbers and bytes, locals, bits of a presence map and
//! arithmetic.
//!
//! | member | on the wire |
//! |---|---|
//! | `time`, which never goes back, and `level` | a bit; if it is one, the difference in eight bytes |
//! | `alarm`, which may be absent | a bit; if it is one, an octet that says whether it is there, and its value |
//! | `place` | a bit; if it is one, how many bytes it has in common with the place before, and the rest behind its length |
//! | `raw` | a bit; if it is one, the octets behind their number |
#![forbid(unsafe_code)]

use polywire_core::{
    codec::{BuildError, Decoder, Encoder, Options},
    layout::{Kind, Layout, Message, NodeId, Scalar},
    program::{
        Arithmetic, Backend, Bank, Block, ByteSlot, Bytes, BytesForm, Check, Coding, Direction, ExecError, FaultKind,
        Op, OpKind, Operand, Order, Overflow, PartKernel, PathId, Place, Policy, Program, SlotOp, State, StopBit,
        TextForm, Wire,
    },
    schema::arbitrary::Random,
};
use polywire_derive::Message;
use polywire_testing::{mutated, seeds};
use std::sync::Arc;

use super::foreign::{Foreign, Lower};

const BACKENDS: [Backend; 2] = [Backend::Interpreter, Backend::Auto];

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Reading {
    time: u64,
    level: i64,
    alarm: Option<i64>,
    place: String,
    raw: Vec<u8>,
}

/// Sends changes, with a bank of so many slots, and as many of them for bytes.
struct Changes(u32, u32);

/// Locals.
const VALUE: u8 = 0;
const PREVIOUS: u8 = 1;
const DIFFERENCE: u8 = 2;
/// The slot of `alarm`, and its states.
const ALARM: u32 = 2;
const EMPTY: i64 = 1;
const ASSIGNED: i64 = 2;
/// The slots of what is bytes.
const PLACE: ByteSlot = ByteSlot { slot: 3, bytes: 0 };
const RAW: ByteSlot = ByteSlot { slot: 4, bytes: 1 };

/// What a text has in common with the one before is not sent.
static REST: PartKernel = PartKernel {
    name: "changes.rest",
    split: |known, value| {
        let same = known.iter().zip(value).take_while(|(a, b)| a == b).count();
        Some((same as i64, same..value.len()))
    },
    join: |_, _, same| Some((usize::try_from(same).ok()?, 0)),
};

impl Lower for Changes {
    const NAME: &'static str = "changes";
    const LIKE: &'static str = "fast";

    fn program(&self, direction: Direction, layout: &Arc<Layout>) -> Program {
        let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("it is a structure") };
        let places: Vec<Place> = fields.iter().map(|f| Place::At { offset: f.offset, node: f.node }).collect();
        let [time, level, alarm, text, raw] = places[..] else { panic!("it has five members") };
        let inner = match &layout.node(alarm.node().unwrap()).kind {
            Kind::Optional(optional) => optional.inner,
            _ => panic!("it is optional"),
        };
        let member = |path, kinds: Vec<OpKind>| kinds.into_iter().map(move |kind| Op { path: PathId(path), kind });
        let ops = match direction {
            Direction::Encode => member(0, put_time(time))
                .chain(member(1, put_number(1, level, Scalar::I64)))
                .chain(member(2, put_alarm(alarm, inner)))
                .chain(member(3, put_place(text)))
                .chain(member(4, put_raw(raw))),
            Direction::Decode => member(0, get_number(0, time, Scalar::U64, forward()))
                .chain(member(1, get_number(1, level, Scalar::I64, vec![])))
                .chain(member(2, get_alarm(alarm, inner)))
                .chain(member(3, get_place(text)))
                .chain(member(4, get_raw(raw))),
        };
        let body = Block(ops.collect());
        Program {
            direction,
            layout: layout.clone(),
            root: block(2, vec![OpKind::PresenceMap { bits: 5, policy: Policy::Reject, body }]),
            routines: vec![],
            adapter: None,
            paths: ["time", "level", "alarm", "place", "raw"].map(String::from).into(),
            bank: Some(Arc::new(Bank { slots: self.0, texts: self.1 })),
        }
    }
}

fn block(path: u32, kinds: Vec<OpKind>) -> Block {
    Block(kinds.into_iter().map(|kind| Op { path: PathId(path), kind }).collect())
}

fn fixed(scalar: Scalar) -> Wire {
    Wire::Fixed { scalar, order: Order::Little }
}

fn bit(path: u32, bit: bool, more: Vec<OpKind>) -> Block {
    let bit = OpKind::KnownBits { zeros: u32::from(!bit), one: bit };
    block(path, [bit].into_iter().chain(more).collect())
}

/// Refuses a value that is less than the one before.
fn forward() -> Vec<OpKind> {
    let then = block(0, vec![OpKind::Fail(FaultKind::OutOfRange)]);
    vec![
        OpKind::Slot(SlotOp::LoadLocal(VALUE, Scalar::U64)),
        OpKind::Slot(SlotOp::Compute(Arithmetic::Less, Operand::Local(PREVIOUS))),
        OpKind::If { then, otherwise: Block::default() },
    ]
}

fn put_time(place: Place) -> Vec<OpKind> {
    let mut ops = put_number(0, place, Scalar::U64);
    // Behind where both locals are known.
    ops.splice(4..4, forward());
    ops
}

fn put_number(slot: u32, place: Place, scalar: Scalar) -> Vec<OpKind> {
    let changed = vec![OpKind::Slot(SlotOp::LoadLocal(DIFFERENCE, scalar)), OpKind::Put(fixed(scalar))];
    vec![
        OpKind::Slot(SlotOp::LoadSlot { slot, scalar, initial: 0 }),
        OpKind::Slot(SlotOp::StoreLocal(PREVIOUS)),
        OpKind::Load(place),
        OpKind::Slot(SlotOp::StoreLocal(VALUE)),
        OpKind::Slot(SlotOp::LoadLocal(VALUE, scalar)),
        OpKind::Slot(SlotOp::Compute(Arithmetic::Subtract, Operand::Local(PREVIOUS))),
        OpKind::Slot(SlotOp::StoreLocal(DIFFERENCE)),
        OpKind::Slot(SlotOp::LoadLocal(VALUE, scalar)),
        OpKind::Slot(SlotOp::Compute(Arithmetic::Equal, Operand::Local(PREVIOUS))),
        OpKind::If { then: bit(slot, false, vec![]), otherwise: bit(slot, true, changed) },
        OpKind::Slot(SlotOp::LoadLocal(VALUE, scalar)),
        OpKind::Slot(SlotOp::StoreSlot { slot, kind: 2 }),
    ]
}

fn get_number(slot: u32, place: Place, scalar: Scalar, check: Vec<OpKind>) -> Vec<OpKind> {
    let then = vec![
        OpKind::Get(fixed(scalar)),
        OpKind::Slot(SlotOp::Compute(Arithmetic::Add, Operand::Local(PREVIOUS))),
        OpKind::Slot(SlotOp::StoreLocal(VALUE)),
    ];
    let mut ops = vec![
        OpKind::Slot(SlotOp::LoadSlot { slot, scalar, initial: 0 }),
        OpKind::Slot(SlotOp::StoreLocal(PREVIOUS)),
        OpKind::Slot(SlotOp::StoreLocal(VALUE)),
        OpKind::TakeBit,
        OpKind::If { then: block(slot, then), otherwise: Block::default() },
    ];
    ops.extend(check);
    ops.extend([
        OpKind::Slot(SlotOp::LoadLocal(VALUE, scalar)),
        OpKind::Slot(SlotOp::StoreSlot { slot, kind: 2 }),
        OpKind::Store(place),
    ]);
    ops
}

fn octet(value: u8) -> [OpKind; 2] {
    [OpKind::Const(Scalar::U8, value.into()), OpKind::Put(fixed(Scalar::U8))]
}

fn put_alarm(place: Place, inner: NodeId) -> Vec<OpKind> {
    let value = Place::At { offset: 0, node: inner };
    let number = [OpKind::Slot(SlotOp::LoadLocal(VALUE, Scalar::I64)), OpKind::Put(fixed(Scalar::I64))];
    let new = || bit(ALARM, true, octet(1).into_iter().chain(number.clone()).collect());
    let same = vec![
        OpKind::Slot(SlotOp::LoadLocal(VALUE, Scalar::I64)),
        OpKind::Slot(SlotOp::Compute(Arithmetic::Equal, Operand::Local(PREVIOUS))),
        OpKind::If { then: bit(ALARM, false, vec![]), otherwise: new() },
    ];
    let then = vec![
        OpKind::Slot(SlotOp::LoadSlot { slot: ALARM, scalar: Scalar::I64, initial: 0 }),
        OpKind::Slot(SlotOp::StoreLocal(PREVIOUS)),
        OpKind::Load(value),
        OpKind::Slot(SlotOp::StoreLocal(VALUE)),
        OpKind::Slot(SlotOp::SlotState(ALARM)),
        OpKind::switch(vec![(vec![ASSIGNED], block(ALARM, same))], new()),
        OpKind::Slot(SlotOp::LoadLocal(VALUE, Scalar::I64)),
        OpKind::Slot(SlotOp::StoreSlot { slot: ALARM, kind: 2 }),
    ];
    let absent = vec![
        OpKind::Slot(SlotOp::SlotState(ALARM)),
        OpKind::switch(vec![(vec![EMPTY], bit(ALARM, false, vec![]))], bit(ALARM, true, octet(0).into())),
        OpKind::Slot(SlotOp::EmptySlot(ALARM)),
    ];
    vec![OpKind::IfPresent { place, then: block(ALARM, then), otherwise: block(ALARM, absent) }]
}

fn get_alarm(place: Place, inner: NodeId) -> Vec<OpKind> {
    let value = Place::At { offset: 0, node: inner };
    let present = |from: OpKind| {
        let body =
            block(ALARM, vec![from, OpKind::Slot(SlotOp::StoreSlot { slot: ALARM, kind: 2 }), OpKind::Store(value)]);
        block(ALARM, vec![OpKind::Present { place, body }])
    };
    let changed = vec![
        OpKind::Get(fixed(Scalar::U8)),
        OpKind::Check(Check::Bool),
        OpKind::If {
            then: present(OpKind::Get(fixed(Scalar::I64))),
            otherwise: block(ALARM, vec![OpKind::Clear(place), OpKind::Slot(SlotOp::EmptySlot(ALARM))]),
        },
    ];
    let same = vec![
        OpKind::Slot(SlotOp::SlotState(ALARM)),
        OpKind::switch(
            vec![(
                vec![ASSIGNED],
                present(OpKind::Slot(SlotOp::LoadSlot { slot: ALARM, scalar: Scalar::I64, initial: 0 })),
            )],
            block(ALARM, vec![OpKind::Clear(place)]),
        ),
    ];
    vec![OpKind::TakeBit, OpKind::If { then: block(ALARM, changed), otherwise: block(ALARM, same) }]
}

fn held(place: Place) -> OpKind {
    let (form, overflow) = (TextForm::Held, Overflow::Refuse);
    OpKind::Text { place, form, bound: 0, utf16_bound: false, overflow, after: 0 }
}

fn same() -> Wire {
    Wire::StopBit(StopBit::new(Scalar::U32))
}

fn rest() -> OpKind {
    OpKind::Bytes(Bytes::Part { kernel: &REST, slot: PLACE, initial: [].into(), number: VALUE })
}

fn counted() -> BytesForm {
    BytesForm::new(Coding::Counted)
}

fn has(slot: ByteSlot) -> OpKind {
    OpKind::Bytes(Bytes::SlotHas { slot, kind: 2, initial: Some([].into()) })
}

fn keep(slot: ByteSlot) -> OpKind {
    OpKind::Bytes(Bytes::StoreSlot { slot, kind: 2 })
}

fn recall(slot: ByteSlot) -> OpKind {
    OpKind::Bytes(Bytes::LoadSlot { slot, initial: [].into() })
}

fn put_place(place: Place) -> Vec<OpKind> {
    let changed = vec![
        rest(),
        OpKind::Slot(SlotOp::LoadLocal(VALUE, Scalar::U32)),
        OpKind::Put(same()),
        OpKind::Bytes(Bytes::Put(counted())),
        held(place),
        keep(PLACE),
    ];
    vec![held(place), has(PLACE), OpKind::If { then: bit(3, false, vec![]), otherwise: bit(3, true, changed) }]
}

fn get_place(place: Place) -> Vec<OpKind> {
    let changed = vec![
        OpKind::Get(same()),
        OpKind::Slot(SlotOp::StoreLocal(VALUE)),
        OpKind::Bytes(Bytes::Get(counted())),
        rest(),
        OpKind::Bytes(Bytes::Utf8(Policy::Reject)),
        keep(PLACE),
        held(place),
    ];
    vec![OpKind::TakeBit, OpKind::If { then: block(3, changed), otherwise: block(3, vec![recall(PLACE), held(place)]) }]
}

fn octets(place: Place) -> OpKind {
    OpKind::Bytes(Bytes::Octets { place, bound: 0, overflow: Overflow::Refuse })
}

fn put_raw(place: Place) -> Vec<OpKind> {
    let changed = vec![OpKind::Bytes(Bytes::Put(counted())), keep(RAW)];
    vec![octets(place), has(RAW), OpKind::If { then: bit(4, false, vec![]), otherwise: bit(4, true, changed) }]
}

fn get_raw(place: Place) -> Vec<OpKind> {
    let changed = vec![OpKind::Bytes(Bytes::Get(counted())), keep(RAW), octets(place)];
    vec![OpKind::TakeBit, OpKind::If { then: block(4, changed), otherwise: block(4, vec![recall(RAW), octets(place)]) }]
}

fn encoder(backend: Backend) -> (Encoder<Reading>, State) {
    let encoder = Encoder::with_backend(&Foreign(Changes(5, 2)), &Options::default(), backend).unwrap();
    let state = encoder.state().expect("the program has a bank");
    (encoder, state)
}

fn decoder(backend: Backend) -> (Decoder<Reading>, State) {
    let schema = Reading::shape().schema();
    let decoder = Decoder::with_backend(&Foreign(Changes(5, 2)), &Options::default(), schema, backend).unwrap();
    let state = decoder.state().expect("the program has a bank");
    (decoder, state)
}

#[test]
fn messages_have_what_changed() {
    let reading = |time, level, alarm| Reading { time, level, alarm, ..Reading::default() };
    let at = |place: &str, raw: &[u8]| Reading { place: place.into(), raw: raw.into(), ..reading(1001, -2, None) };
    let messages: [(Reading, &[u8]); 9] = [
        (
            reading(1000, -3, None),
            &[0xF0, 0xE8, 3, 0, 0, 0, 0, 0, 0, 0xFD, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0],
        ),
        (reading(1000, -3, None), &[0x80]),
        (reading(1001, -3, Some(5)), &[0xD0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0, 0]),
        (reading(1001, -2, Some(5)), &[0xA0, 1, 0, 0, 0, 0, 0, 0, 0]),
        (reading(1001, -2, None), &[0x90, 0]),
        (at("hall 12", &[]), b"\x88\x80\x87hall 12"),
        (at("hall 14, behind the boiler", &[0xFF, 0]), b"\x8C\x86\x944, behind the boiler\x82\xFF\0"),
        (at("hall 14, behind the boiler", &[0xFF, 0]), b"\x80"),
        (at("hall", &[]), b"\x8C\x84\x80\x80"),
    ];
    for backend in BACKENDS {
        let ((encoder, mut writer), (decoder, mut reader)) = (encoder(backend), decoder(backend));
        for (message, bytes) in &messages {
            let (mut out, mut back) = (Vec::new(), Reading::default());
            encoder.encode_with(&mut writer, true, message, &mut out).unwrap();
            assert_eq!(out, *bytes, "{backend:?}, {message:?}");
            decoder.decode_with(&mut reader, true, &out, &mut back).unwrap();
            assert_eq!(back, *message, "{backend:?}");
        }
    }
}

#[test]
fn a_message_that_fails_leaves_no_trace() {
    for backend in BACKENDS {
        let ((encoder, mut writer), (decoder, mut reader)) = (encoder(backend), decoder(backend));
        let put = |writer: &mut State, message: &Reading| {
            let mut out = Vec::new();
            encoder.encode_with(writer, true, message, &mut out).map(|()| out)
        };
        let first = Reading { time: 9, level: 1, alarm: Some(-1), place: "here".into(), raw: vec![0x80] };
        let bytes = put(&mut writer, &first).unwrap();
        let error = put(&mut writer, &Reading { time: 8, ..first.clone() }).unwrap_err();
        assert_eq!((error.kind, error.path.as_str()), (FaultKind::OutOfRange, "time"), "{backend:?}");
        assert_eq!(put(&mut writer, &first).unwrap(), [0x80], "{backend:?}");
        let mut back = Reading::default();
        decoder.decode_with(&mut reader, true, &bytes, &mut back).unwrap();
        // The level is there, and the alarm is cut off.
        let error = decoder.decode_with(&mut reader, false, &[0xB0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 5], &mut back);
        let error = error.unwrap_err();
        assert_eq!((error.kind, error.path.as_str()), (FaultKind::Truncated, "alarm"), "{backend:?}");
        decoder.decode_with(&mut reader, true, &[0x80], &mut back).unwrap();
        assert_eq!(back, first, "{backend:?}");
    }
}

/// A stream of random values, some of whose messages are damaged: the same on both back ends.
#[test]
fn streams_are_the_same_on_both_back_ends() {
    let (mut read, mut refused) = (0, 0);
    for seed in seeds(40) {
        let mut random = Random::new(seed);
        let (mut writers, mut readers) = (BACKENDS.map(encoder), BACKENDS.map(decoder));
        let mut value = Reading::default();
        for _ in 0..20 {
            match random.below(6) {
                4 => value.place = random.choose(&["", "hall", "hall \u{e9}", "hall of many bytes", "h"]).to_string(),
                5 => value.raw = (0..random.below(20)).map(|_| random.bits() as u8).collect(),
                0 => value.time = value.time.saturating_add(random.bits() >> random.below(64)),
                1 => value.level = random.bits() as i64 >> random.below(64),
                2 => value.alarm = (!random.one_in(3)).then(|| random.bits() as i64 >> random.below(64)),
                _ => value.time = value.time.saturating_sub(u64::from(random.one_in(3))),
            }
            let messages = writers.each_mut().map(|(encoder, state)| {
                let mut out = Vec::new();
                encoder.encode_with(state, true, &value, &mut out).map(|()| out)
            });
            assert_eq!(messages[0], messages[1], "seed {seed}: {value:?}");
            let Ok(message) = &messages[0] else { continue };
            let bad = mutated(&mut random, message);
            for (bytes, keep) in [(&bad, false), (message, true)] {
                let values = readers.each_mut().map(|(decoder, state)| {
                    let mut back = Reading::default();
                    decoder.decode_with(state, keep, bytes, &mut back).map(|taken| (taken, back))
                });
                assert_eq!(values[0], values[1], "seed {seed}: {bytes:?}");
                match &values[0] {
                    Ok((_, back)) if keep => assert_eq!(*back, value, "seed {seed}"),
                    Ok(_) => read += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(read > 50 && refused > 50, "{read} read, {refused} refused");
}

#[test]
fn parts_of_more_than_there_was_are_refused() {
    for backend in BACKENDS {
        let (decoder, mut reader) = decoder(backend);
        let mut back = Reading::default();
        decoder.decode_with(&mut reader, true, b"\x88\x80\x83ab\xC3", &mut back).unwrap_err();
        reader.mend();
        decoder.decode_with(&mut reader, true, b"\x88\x80\x83abc", &mut back).unwrap();
        let refused = |reader: &mut State, bytes: &[u8]| {
            let error = decoder.decode_with(reader, false, bytes, &mut Reading::default()).unwrap_err();
            (error.kind, error.path)
        };
        let at_place = |kind| (kind, String::from("place"));
        assert_eq!(refused(&mut reader, b"\x88\x84\x80"), at_place(FaultKind::Subtraction), "{backend:?}");
        assert_eq!(refused(&mut reader, b"\x88\x0F\x7F\x7F\x7F\xFF\x80"), at_place(FaultKind::Subtraction));
        assert_eq!(refused(&mut reader, b"\x88\x83\x0F\x7F\x7F\x7F\xFFx"), at_place(FaultKind::Truncated));
        assert_eq!(refused(&mut reader, b"\x88\x82\x81\xFF"), at_place(FaultKind::CombinedText));
        decoder.decode_with(&mut reader, true, b"\x80", &mut back).unwrap();
        assert_eq!(back.place, "abc", "{backend:?}");
        // Slots have a limit, and a message that breaks it leaves what there was. Up to seven bytes
        // do not count.
        reader.limit_texts(8);
        assert_eq!(refused(&mut reader, b"\x88\x83\x86defghi"), at_place(FaultKind::Limit), "{backend:?}");
        decoder.decode_with(&mut reader, true, b"\x88\x83\x85defgh", &mut back).unwrap();
        assert_eq!(back.place, "abcdefgh", "{backend:?}");
        reader.limit_texts(0);
        assert_eq!(refused(&mut reader, b"\x88\x80\x88hgfedcba"), at_place(FaultKind::Limit), "{backend:?}");
        decoder.decode_with(&mut reader, true, b"\x88\x83\x84defg", &mut back).unwrap();
        assert_eq!(back.place, "abcdefg", "{backend:?}");
    }
}

#[test]
fn slots_are_in_the_bank() {
    for (slots, bytes) in [(0, 2), (2, 2), (4, 2), (5, 0), (5, 1)] {
        let built = Encoder::<Reading>::with_backend(
            &Foreign(Changes(slots, bytes)),
            &Options::default(),
            Backend::Interpreter,
        );
        assert!(matches!(built.err(), Some(BuildError::Exec(ExecError::Refused(_)))), "{slots}, {bytes}");
    }
}
