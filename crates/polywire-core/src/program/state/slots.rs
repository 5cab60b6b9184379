//! Slots and locals: loading, storing, comparing, arithmetic. `interp/slots.rs` calls this file.
//! `jit/slots.rs` emits the same operations.
//!
//! Both keep words of 64 bits, which are cut to the type that is asked for. A slot outlives the
//! message, a local does not.

use super::{EMPTY, State, UNDEFINED};
use crate::{
    layout::Scalar,
    program::{Arithmetic, interp::from_word},
};

/// Locals that a program has.
pub(crate) const LOCALS: usize = 8;

impl State {
    /// The value of a slot, or `initial` if it has none.
    pub(crate) fn load_slot(&self, slot: u32, initial: u64) -> u64 {
        if self.tag(slot) > EMPTY { self.value(slot) } else { initial }
    }

    /// Assigns a slot a value of a kind.
    pub(crate) fn store_slot(&mut self, slot: u32, kind: u8, value: u64) {
        self.set_value(slot, value);
        self.set_tag(slot, kind);
    }

    /// Empties a slot.
    pub(crate) fn empty_slot(&mut self, slot: u32) {
        self.set_tag(slot, EMPTY);
    }

    /// True if a slot has this value with this kind, or is undefined and `initial` equals the
    /// value.
    pub(crate) fn slot_has(&self, (slot, kind): (u32, u8), initial: Option<u64>, value: u64) -> bool {
        match self.tag(slot) {
            UNDEFINED => initial == Some(value),
            tag => tag == kind && self.value(slot) == value,
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

/// The low bits of a word as a scalar, extended again.
pub(crate) fn cut(word: u64, scalar: Scalar) -> u64 {
    match (scalar.size(), scalar.is_signed()) {
        (1, true) => word as i8 as u64,
        (2, true) => word as i16 as u64,
        (4, true) => word as i32 as u64,
        (1, false) => u64::from(word as u8),
        (2, false) => u64::from(word as u16),
        (4, false) => u64::from(word as u32),
        _ => word,
    }
}

/// Computes [`Arithmetic`] on two numbers of a type; the second is cut to the type.
pub(crate) fn compute(arithmetic: Arithmetic, scalar: Scalar, first: u64, second: u64) -> u64 {
    let second = cut(second, scalar);
    match arithmetic {
        Arithmetic::Add => cut(first.wrapping_add(second), scalar),
        Arithmetic::Subtract => cut(first.wrapping_sub(second), scalar),
        Arithmetic::Equal => u64::from(first == second),
        Arithmetic::Less => u64::from(from_word(first, scalar) < from_word(second, scalar)),
    }
}
