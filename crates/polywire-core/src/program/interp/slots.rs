//! Operations on slots and locals, which are the same in both directions.

use super::from_word;
use crate::{
    layout::Scalar,
    program::{
        Arithmetic, OpKind,
        state::{State, compute},
    },
};

/// Does such an operation, and gives what the accumulator is then.
pub(super) fn run(kind: &OpKind, state: &mut State, accumulator: i128, scalar: Scalar) -> (i128, Scalar) {
    let word = accumulator as u64;
    let filled = |word, scalar| (from_word(word, scalar), scalar);
    match kind {
        OpKind::LoadSlot(slot, scalar) => return filled(state.load_slot(*slot), *scalar),
        OpKind::SlotState(slot) => return filled(state.slot_state(*slot), Scalar::U64),
        OpKind::LoadLocal(index, scalar) => return filled(state.local(*index), *scalar),
        OpKind::Compute(arithmetic, index) => {
            let made = compute(*arithmetic, scalar.is_signed(), word, state.local(*index));
            let compares = matches!(arithmetic, Arithmetic::Equal | Arithmetic::Less);
            return filled(made, if compares { Scalar::Bool } else { scalar });
        }
        OpKind::StoreSlot(slot) => state.store_slot(*slot, word),
        OpKind::EmptySlot(slot) => state.empty_slot(*slot),
        OpKind::StoreLocal(index) => state.set_local(*index, word),
        OpKind::Forget { except } => state.forget_but(*except),
        _ => unreachable!("only called for these"),
    }
    (accumulator, scalar)
}
