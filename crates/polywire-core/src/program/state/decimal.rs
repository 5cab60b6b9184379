//! Numbers as decimals, with a mantissa and an exponent of ten. The interpreter and
//! `jit/decimal.rs` call this file. Direct functions compute the usual exponents in line and must
//! give the same results. It touches the locals, and sets faults.

use super::{
    super::{FaultKind, Input, Output, Status},
    Policy, float,
};
use crate::{layout::Scalar, program::NO_DECIMAL};

/// Returns the mantissa of a number, and stores its exponent in the local. The local's old value is
/// the exponent to try first.
pub(crate) fn split(output: &mut Output<'_>, exponent: u8, scalar: Scalar, number: u64) -> u64 {
    let state = output.state();
    let hint = state.local(exponent) as i64;
    let (found, mantissa) = split_word(scalar, number, hint).unwrap_or((NO_DECIMAL, 0));
    state.set_local(exponent, found as u64);
    mantissa as u64
}

/// Exponent and mantissa of a number; none if it is no decimal.
pub(crate) fn split_word(scalar: Scalar, number: u64, hint: i64) -> Option<(i64, i64)> {
    match scalar {
        Scalar::I64 => Some(normal(number as i64)),
        _ => float::decompose(number, scalar == Scalar::F32, Some(hint)),
    }
}

/// The number with this mantissa and the exponent in the local.
pub(crate) fn join(
    input: &mut Input<'_>,
    (exponent, to, policy): (u8, Scalar, Policy),
    mantissa: u64,
) -> Result<u64, Status> {
    let (exponent, mantissa) = (input.state().local(exponent) as i64, mantissa as i64);
    if !is_exponent(exponent) {
        // The code below computes with exponents of 32 bits.
        if i32::try_from(exponent).is_err() {
            return Err(input.fail(FaultKind::DecimalRange, 0, exponent as u64));
        }
        input.deviate(FaultKind::DecimalRange, policy, exponent as u64)?;
    }
    if to != Scalar::I64 {
        return Ok(float::compose(exponent, mantissa, to == Scalar::F32));
    }
    match whole(exponent, mantissa) {
        Some(value) => Ok(value as u64),
        None => {
            // A decimal with a fraction, or out of range, is a deviation that the policy may
            // accept.
            input.deviate(FaultKind::NotInteger, policy, mantissa as u64)?;
            Ok(cut(exponent, mantissa) as u64)
        }
    }
}

/// Returns the mantissa for another exponent, and stores that exponent in the local.
pub(crate) fn shift(output: &mut Output<'_>, (exponent, to): (u8, i64), mantissa: u64) -> Result<u64, Status> {
    let (from, mantissa) = (output.state().local(exponent) as i64, mantissa as i64);
    let factor = u32::try_from(from.abs_diff(to)).ok().and_then(|n| 10i64.checked_pow(n));
    let moved = match (factor, from >= to) {
        _ if mantissa == 0 => Some(0),
        (Some(factor), true) => mantissa.checked_mul(factor),
        (Some(factor), false) if mantissa % factor == 0 => Some(mantissa / factor),
        _ => None,
    };
    let Some(moved) = moved else {
        return Err(output.fail(FaultKind::NotEncodable, to as u64, from as u64));
    };
    output.state().set_local(exponent, to as u64);
    Ok(moved as u64)
}

/// Exponents reach from -63 to 63.
pub(crate) fn is_exponent(exponent: i64) -> bool {
    (-63..=63).contains(&exponent)
}

/// The integer that a decimal is; none if it has a fraction, or does not fit 64 bits.
pub(crate) fn whole(exponent: i64, mantissa: i64) -> Option<i64> {
    match exponent {
        0.. => 10i64.checked_pow(u32::try_from(exponent).ok()?).and_then(|factor| mantissa.checked_mul(factor)),
        _ if mantissa == 0 => Some(0),
        _ => {
            let divisor = 10i64.checked_pow(u32::try_from(exponent.unsigned_abs()).ok()?)?;
            (mantissa % divisor == 0).then(|| mantissa / divisor)
        }
    }
}

fn cut(exponent: i64, mantissa: i64) -> i64 {
    match exponent {
        0.. => mantissa,
        _ => {
            let divisor = u32::try_from(exponent.unsigned_abs()).ok().and_then(|n| 10i64.checked_pow(n));
            divisor.map_or(0, |divisor| mantissa / divisor)
        }
    }
}

/// An integer without zeros at the end of the mantissa.
fn normal(mut mantissa: i64) -> (i64, i64) {
    let mut exponent = 0;
    while mantissa != 0 && mantissa % 10 == 0 {
        (exponent, mantissa) = (exponent + 1, mantissa / 10);
    }
    (exponent, mantissa)
}
