//! Slots and locals, as operations of any codec use them: words without a type. A slot outlives the
//! message, a local does not.

use super::{ASSIGNED, EMPTY, State, UNDEFINED};
use crate::program::Arithmetic;

/// Locals that a program has.
pub(crate) const LOCALS: usize = 4;

impl State {
    /// The value of a slot; zero of one that has none.
    pub(crate) fn load_slot(&self, slot: u32) -> u64 {
        if self.tag(slot) > EMPTY { self.value(slot) } else { 0 }
    }

    /// Assigns a slot.
    pub(crate) fn store_slot(&mut self, slot: u32, value: u64) {
        self.set_value(slot, value);
        self.set_tag(slot, ASSIGNED);
    }

    /// Empties a slot.
    pub(crate) fn empty_slot(&mut self, slot: u32) {
        self.set_tag(slot, EMPTY);
    }

    /// 0 of a slot that is undefined, 1 of one that is empty, 2 of one that has a value.
    pub(crate) fn slot_state(&self, slot: u32) -> u64 {
        match self.tag(slot) {
            UNDEFINED => 0,
            EMPTY => 1,
            _ => 2,
        }
    }

    pub(crate) fn local(&self, index: u8) -> u64 {
        self.locals.get(usize::from(index)).copied().unwrap_or(0)
    }

    pub(crate) fn set_local(&mut self, index: u8, value: u64) {
        if let Some(local) = self.locals.get_mut(usize::from(index)) {
            *local = value;
        }
    }
}

/// What [`Arithmetic`] says of two words, which are signed or not.
pub(crate) fn compute(arithmetic: Arithmetic, signed: bool, first: u64, second: u64) -> u64 {
    match arithmetic {
        Arithmetic::Add => first.wrapping_add(second),
        Arithmetic::Subtract => first.wrapping_sub(second),
        Arithmetic::Equal => u64::from(first == second),
        Arithmetic::Less if signed => u64::from((first as i64) < second as i64),
        Arithmetic::Less => u64::from(first < second),
    }
}
