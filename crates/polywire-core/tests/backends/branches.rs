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
        let branch = OpKind::Switch { arms: vec![(vec![0], bits(0)), (vec![1], bits(8))], otherwise: bits(2) };
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
