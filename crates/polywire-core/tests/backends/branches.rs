//! A codec of a third party whose branches take different numbers of bits of the presence map, with
//! another bit behind them.
#![forbid(unsafe_code)]

use polywire_core::{
    codec::{Decoder, Encoder, Options},
    layout::{Kind, Layout, Message, Scalar},
    program::{
        Arithmetic, Backend, Bank, Block, Direction, Op, OpKind, Operand, PathId, Place, Policy, Program, SlotOp,
        StopBit, Wire,
    },
};
use polywire_derive::Message;
use std::sync::Arc;

use super::foreign::{Foreign, Lower};

#[derive(Clone, Copy, Debug, Default, PartialEq, Message)]
struct Switched {
    case: u64,
    on: bool,
}

/// What chooses the branch.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// The member `case`.
    Value,
    /// The state of a slot.
    State,
}

struct Branches(Choice);

impl Lower for Branches {
    const NAME: &'static str = "branches";
    const LIKE: &'static str = "fast";

    fn program(&self, direction: Direction, layout: &Arc<Layout>) -> Program {
        let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("it is a structure") };
        let [case, on] = [0, 1].map(|i| Place::At { offset: fields[i].offset, node: fields[i].node });
        let number = Wire::StopBit(StopBit::new(Scalar::U64));
        let chosen = match self.0 {
            Choice::Value => OpKind::Load(case),
            Choice::State => OpKind::Slot(SlotOp::SlotState(0)),
        };
        let bits = |zeros| block(vec![OpKind::KnownBits { zeros, one: true }]);
        let branch = OpKind::switch(vec![(vec![0], bits(0)), (vec![1], bits(8))], bits(2));
        let is_large = OpKind::Slot(SlotOp::Compute(Arithmetic::Less, Operand::Constant(2)));
        let (before, bit) = match direction {
            Direction::Encode => {
                let zero = block(vec![OpKind::KnownBits { zeros: 1, one: false }]);
                let bit = OpKind::If { then: bits(0), otherwise: zero };
                (vec![OpKind::Load(case), OpKind::Put(number)], vec![OpKind::Load(on), bit])
            }
            Direction::Decode => {
                (vec![OpKind::Get(number), OpKind::Store(case)], vec![OpKind::TakeBit, OpKind::Store(on)])
            }
        };
        let mut body = vec![chosen, branch];
        body.extend(bit);
        body.extend([OpKind::Load(case), is_large]);
        let store = [OpKind::Load(case), OpKind::Slot(SlotOp::StoreSlot { slot: 0, kind: 2 })];
        body.push(OpKind::If { then: block(vec![OpKind::Slot(SlotOp::EmptySlot(0))]), otherwise: block(store.into()) });
        let map = OpKind::PresenceMap { bits: 10, policy: Policy::Reject, body: block(body) };
        Program {
            direction,
            layout: layout.clone(),
            root: block(before.into_iter().chain([map]).collect()),
            routines: vec![],
            adapter: None,
            paths: vec![String::new()],
            bank: Some(Arc::new(Bank { slots: 1, texts: 0 })),
        }
    }
}

fn block(kinds: Vec<OpKind>) -> Block {
    Block(kinds.into_iter().map(|kind| Op { path: PathId(0), kind }).collect())
}

#[test]
fn a_bit_behind_branches_is_where_the_branch_that_ran_ends() {
    for choice in [Choice::Value, Choice::State] {
        let run = |backend| {
            let (codec, options) = (Foreign(Branches(choice)), Options::default());
            let encoder = Encoder::<Switched>::with_backend(&codec, &options, backend).unwrap();
            let schema = Switched::shape().schema();
            let decoder = Decoder::<Switched>::with_backend(&codec, &options, schema, backend).unwrap();
            let (mut writer, mut reader) = (encoder.state().unwrap(), decoder.state().unwrap());
            let values =
                [2, 0, 1, 5, 0, 1, 3].into_iter().flat_map(|case| [true, false].map(|on| Switched { case, on }));
            let messages = values.map(|value| {
                let (mut bytes, mut back) = (Vec::new(), Switched::default());
                encoder.encode_with(&mut writer, true, &value, &mut bytes).unwrap();
                decoder.decode_with(&mut reader, true, &bytes, &mut back).unwrap();
                assert_eq!(back, value, "{choice:?}, {backend:?}: {bytes:x?}");
                bytes
            });
            messages.collect::<Vec<_>>()
        };
        let messages = run(Backend::Interpreter);
        if let Choice::Value = choice {
            // One bit and the next, nine and the next, three and the next.
            assert_eq!(messages[2..4], [vec![0x80, 0xE0], vec![0x80, 0xC0]]);
            assert_eq!(messages[4..6], [vec![0x81, 0x00, 0xB0], vec![0x81, 0x00, 0xA0]]);
            assert_eq!(messages[6..8], [vec![0x85, 0x98], vec![0x85, 0x90]]);
        }
        assert_eq!(messages, run(Backend::Auto), "{choice:?}");
    }
}

/// Writes a byte for the arm of each label, another one for all other values.
struct Labels(Vec<i64>);

/// The arms of [`Labels`].
const ARMS: usize = 3;

impl Lower for Labels {
    const NAME: &'static str = "labels";
    const LIKE: &'static str = "cdr";

    fn program(&self, direction: Direction, layout: &Arc<Layout>) -> Program {
        let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("it is a structure") };
        let case = Place::At { offset: fields[0].offset, node: fields[0].node };
        let said = |arm: usize| block(vec![OpKind::Need(1), OpKind::Literal([arm as u8].into())]);
        let of_arm = |arm| self.0.iter().copied().skip(arm).step_by(ARMS).rev().collect();
        let arms = (0..ARMS).map(|arm| (of_arm(arm), said(arm))).collect();
        let root = match direction {
            Direction::Encode => vec![OpKind::Load(case), OpKind::switch(arms, said(ARMS))],
            Direction::Decode => vec![],
        };
        let (routines, paths) = (vec![], vec![String::new()]);
        Program { direction, layout: layout.clone(), root: block(root), routines, adapter: None, paths, bank: None }
    }
}

#[test]
fn each_of_many_labels_chooses_its_arm() {
    let labels: Vec<i64> = [i64::MIN, -1].into_iter().chain((0..600).map(|n| 3 * n)).chain([i64::MAX]).collect();
    let expected = |value: u64| {
        let at = labels.iter().position(|label| i128::from(*label) == i128::from(value));
        at.map_or(ARMS, |at| at % ARMS) as u8
    };
    let last = i64::MAX as u64;
    // As a signed number, the last two are labels.
    let values: Vec<u64> = (0..2000).chain([last - 1, last, last + 1, u64::MAX]).collect();
    for backend in [Backend::Interpreter, Backend::Auto] {
        let codec = Foreign(Labels(labels.clone()));
        let encoder = Encoder::<Switched>::with_backend(&codec, &Options::default(), backend).unwrap();
        for case in &values {
            let mut bytes = Vec::new();
            encoder.encode(&Switched { case: *case, on: false }, &mut bytes).unwrap();
            assert_eq!(bytes, [expected(*case)], "{backend:?}: {case}");
        }
    }
}
