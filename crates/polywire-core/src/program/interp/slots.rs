//! Operations on slots and locals, which are the same in both directions. `interp/decode.rs` and
//! `interp/encode.rs` call it. It touches the state only.

use super::from_word;
use crate::{
    layout::Scalar,
    program::{
        Arithmetic, Operand, SlotOp,
        state::{State, compute, cut},
    },
};

/// Runs an operation on a slot or local, and returns the new accumulator and its type.
pub(super) fn run(op: SlotOp, state: &mut State, accumulator: i128, scalar: Scalar) -> (i128, Scalar) {
    let word = accumulator as u64;
    let filled = |word, scalar| (from_word(cut(word, scalar), scalar), scalar);
    match op {
        SlotOp::LoadSlot { slot, scalar, initial } => return filled(state.load_slot(slot, initial), scalar),
        SlotOp::SlotState(slot) => return filled(state.tag(slot).into(), Scalar::U64),
        SlotOp::SlotHas { slot, kind, initial } => {
            return filled(state.slot_has((slot, kind), initial, word).into(), Scalar::Bool);
        }
        SlotOp::LoadLocal(index, scalar) => return filled(state.local(index), scalar),
        SlotOp::Compute(arithmetic, operand) => {
            let second = match operand {
                Operand::Local(index) => state.local(index),
                Operand::Constant(bits) => bits,
            };
            let made = compute(arithmetic, scalar, word, second);
            let compares = matches!(arithmetic, Arithmetic::Equal | Arithmetic::Less);
            return filled(made, if compares { Scalar::Bool } else { scalar });
        }
        SlotOp::StoreSlot { slot, kind } => state.store_slot(slot, kind, word),
        SlotOp::EmptySlot(slot) => state.empty_slot(slot),
        SlotOp::StoreLocal(index) => state.set_local(index, word),
        SlotOp::Forget { except } => state.forget_but(except),
    }
    (accumulator, scalar)
}
