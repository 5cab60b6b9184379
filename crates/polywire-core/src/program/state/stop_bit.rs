//! The form [`StopBit`] of integers: they may be nullable, and they may be a difference from a
//! local. The interpreter and general machine code (`jit/stop_bit.rs`) call this file. Direct
//! functions must give the same results. It touches the locals, the input and the output.

use super::{
    super::{FaultKind, Input, Output, Status, StopBit},
    integer,
    slots::cut,
};
use crate::program::interp::from_word;

/// Reads an integer, and stores in the form's local whether it is present. An absent one is zero.
pub(crate) fn get(input: &mut Input<'_>, form: &StopBit) -> Result<u64, Status> {
    let is_signed = form.scalar.is_signed() || form.base.is_some();
    let mut value = match is_signed {
        true => integer::signed(input, form.policy)?,
        false => integer::unsigned(input, form.policy)? as i128,
    };
    if let Some(there) = form.there {
        let is_there = value != 0;
        input.state().set_local(there, is_there.into());
        if !is_there {
            return Ok(0);
        }
        value -= i128::from(value > 0);
    }
    if let Some(base) = form.base {
        value += from_word(cut(input.state().local(base), form.scalar), form.scalar);
    }
    let is_within = form.scalar.range().is_some_and(|(min, max)| (min..=max).contains(&value));
    match is_within {
        true => Ok(value as u64),
        false if form.base.is_some() && form.range == FaultKind::IntegerRange => {
            input.deviate(FaultKind::DeltaRange, form.policy, value as u64)?;
            Ok(cut(value as u64, form.scalar))
        }
        false => Err(input.fail(form.range, 0, value as u64)),
    }
}

/// Writes an integer that is present.
pub(crate) fn put(output: &mut Output<'_>, form: &StopBit, value: u64) -> Status {
    let mut value = from_word(value, form.scalar);
    if let Some(base) = form.base {
        value -= from_word(cut(output.state().local(base), form.scalar), form.scalar);
    }
    let value = value + i128::from(form.there.is_some() && value >= 0);
    match form.scalar.is_signed() || form.base.is_some() {
        true => integer::put_signed(output, value),
        false => integer::put_unsigned(output, value as u128),
    }
}
