//! Codecs of third parties whose programs are random operations on slots and locals. Numbers of the
//! value or the message go through a few of them, and what comes out is sent or stored.
#![forbid(unsafe_code)]

use polywire_core::{
    codec::{Decoder, Encoder, Options},
    layout::{Kind, Layout, Message, Scalar},
    program::{Backend, Bank, Block, Direction, Op, OpKind, PathId, Place, Program, StopBit, Wire},
    schema::arbitrary::Random,
};
use polywire_derive::Message;
use polywire_testing::{programs::random_state_op, seeds};
use std::sync::Arc;

use super::foreign::{Foreign, Lower};

const BACKENDS: [Backend; 2] = [Backend::Interpreter, Backend::Auto];

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Numbers {
    a: u64,
    b: i64,
    c: u32,
    d: i8,
}

/// The types of the members.
const SCALARS: [Scalar; 4] = [Scalar::U64, Scalar::I64, Scalar::U32, Scalar::I8];

/// The operations of both directions.
#[derive(Default)]
struct Given {
    encode: Vec<OpKind>,
    decode: Vec<OpKind>,
}

impl Lower for Given {
    const NAME: &'static str = "given";
    const LIKE: &'static str = "fast";

    fn program(&self, direction: Direction, layout: &Arc<Layout>) -> Program {
        let ops = if direction == Direction::Encode { &self.encode } else { &self.decode };
        Program {
            direction,
            layout: layout.clone(),
            root: Block(ops.iter().map(|kind| Op { path: PathId(0), kind: kind.clone() }).collect()),
            routines: vec![],
            adapter: None,
            paths: vec![String::new()],
            bank: Some(Arc::new(Bank { slots: 3, texts: 3 })),
        }
    }
}

impl Given {
    fn new(random: &mut Random, layout: &Arc<Layout>) -> Given {
        let mut given = Given::default();
        for direction in [Direction::Encode, Direction::Decode] {
            (0..6).for_each(|_| given.add_number(random, direction, layout));
        }
        given
    }

    /// Adds the way of one number: from the value or the message, through operations with state,
    /// and into the other.
    fn add_number(&mut self, random: &mut Random, direction: Direction, layout: &Arc<Layout>) {
        let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("it is a structure") };
        let place = |i: usize| Place::At { offset: fields[i].offset, node: fields[i].node };
        let wire = |i: usize| Wire::StopBit(StopBit::new(SCALARS[i]));
        let from = random.below(SCALARS.len());
        let first = match direction {
            Direction::Encode => OpKind::Load(place(from)),
            Direction::Decode => OpKind::Get(wire(from)),
        };
        self.add(direction, layout, first);
        for _ in 0..1 + random.below(3) {
            let op = random_state_op(random);
            // Programs with these mostly have no direct function here.
            let is_rare = matches!(op, OpKind::Bytes(_) | OpKind::TakeBit | OpKind::KnownBits { .. });
            if !is_rare || random.one_in(8) {
                self.add(direction, layout, op);
            }
        }
        let to = |i| match direction {
            Direction::Encode => OpKind::Put(wire(i)),
            Direction::Decode => OpKind::Store(place(i)),
        };
        // Only one of them has the type of the accumulator.
        let _ = (0..SCALARS.len()).any(|i| self.add(direction, layout, to(i)));
    }

    /// The operations of a direction.
    fn of(&mut self, direction: Direction) -> &mut Vec<OpKind> {
        match direction {
            Direction::Encode => &mut self.encode,
            Direction::Decode => &mut self.decode,
        }
    }

    /// Adds an operation, if the verifier accepts it there.
    fn add(&mut self, direction: Direction, layout: &Arc<Layout>, op: OpKind) -> bool {
        self.of(direction).push(op);
        let is_accepted = self.program(direction, layout).verify().is_ok();
        if !is_accepted {
            self.of(direction).pop();
        }
        is_accepted
    }
}

fn number(random: &mut Random) -> u64 {
    random.bits() >> random.below(64)
}

/// As many stop-bit integers as the program may read.
fn message(random: &mut Random, ops: &[OpKind]) -> Vec<u8> {
    let count = ops.iter().filter(|op| matches!(op, OpKind::Get(_))).count();
    let integers = (0..count).flat_map(|_| {
        let more = (0..random.below(3)).map(|_| random.bits() as u8 & 0x7F).collect::<Vec<u8>>();
        more.into_iter().chain([random.bits() as u8 | 0x80])
    });
    integers.collect()
}

#[test]
fn random_operations_with_state_do_the_same_on_both_back_ends() {
    let (shape, options) = (Numbers::shape(), Options::default());
    let (mut encoded, mut decoded) = (0, 0);
    for seed in seeds(150) {
        let mut random = Random::new(seed);
        let codec = Foreign(Given::new(&mut random, shape.layout()));
        let encoders = BACKENDS.map(|backend| Encoder::<Numbers>::with_backend(&codec, &options, backend).unwrap());
        let decoders = BACKENDS
            .map(|backend| Decoder::<Numbers>::with_backend(&codec, &options, shape.schema(), backend).unwrap());
        let mut writers = encoders.each_ref().map(|encoder| encoder.state().unwrap());
        let mut readers = decoders.each_ref().map(|decoder| decoder.state().unwrap());
        for _ in 0..6 {
            let bits = [(); 4].map(|()| number(&mut random));
            let value = Numbers { a: bits[0], b: bits[1] as i64, c: bits[2] as u32, d: bits[3] as i8 };
            let outcomes = [0, 1].map(|i| {
                let mut out = Vec::new();
                let outcome = encoders[i].encode_with(&mut writers[i], true, &value, &mut out);
                writers[i].mend();
                outcome.map(|()| out)
            });
            assert_eq!(outcomes[0], outcomes[1], "seed {seed}: {:?} of {value:?}", codec.0.encode);
            encoded += usize::from(outcomes[0].is_ok());
            let bytes = message(&mut random, &codec.0.decode);
            let outcomes = [0, 1].map(|i| {
                let mut back = Numbers::default();
                let outcome = decoders[i].decode_with(&mut readers[i], true, &bytes, &mut back);
                readers[i].mend();
                outcome.map(|_| back)
            });
            assert_eq!(outcomes[0], outcomes[1], "seed {seed}: {:?} of {bytes:x?}", codec.0.decode);
            decoded += usize::from(outcomes[0].is_ok());
        }
    }
    assert!(encoded > 200 && decoded > 200, "{encoded} {decoded}");
}
