//! Reading fields: the reference for what operators mean.
//!
//! A value is left in the state: integers and numbers in its first word, decimals in the first two,
//! strings and bytes pending.

use super::{
    super::{FaultKind, Input, Status},
    EMPTY, Field, FieldKind, Operator, Policy, UNDEFINED, float, integer,
};

/// Whether a value is there.
type Got = Result<bool, Status>;

/// Reads a field; false if it is absent.
pub(crate) fn get(input: &mut Input<'_>, field: &Field) -> Got {
    match &field.kind {
        FieldKind::Int { .. } => match int(input, field)? {
            Some(value) => {
                input.state().words[0] = value;
                Ok(true)
            }
            None => Ok(false),
        },
        FieldKind::Ascii | FieldKind::Unicode | FieldKind::Bytes => text(input, field),
        FieldKind::Decimal => decimal(input, field),
        FieldKind::Split(parts) => {
            let [exponent, mantissa] = &**parts;
            let Some(exponent) = int(input, exponent)? else { return Ok(false) };
            let mantissa = int(input, mantissa)?.unwrap_or(0);
            ranged(input, field, exponent as i64)?;
            input.state().words = [exponent, mantissa];
            Ok(true)
        }
        FieldKind::Float { single, decimal, bits } => {
            let found = get(input, decimal)?;
            let [exponent, mantissa] = input.state().words;
            let escape = bits.as_ref().map(|bits| int(input, bits)).transpose()?.flatten();
            let value = match (found, escape) {
                (true, None) => Some(float::compose(exponent as i64, mantissa as i64, *single)),
                (false, escape) => escape,
                (true, Some(bits)) => return Err(input.fail(FaultKind::Unrepresentable, 0, bits)),
            };
            match value {
                Some(value) if *single && value > u64::from(u32::MAX) => {
                    Err(input.fail(FaultKind::IntegerRange, 0, value))
                }
                Some(value) => {
                    input.state().words[0] = value;
                    Ok(true)
                }
                None if field.optional => Ok(false),
                None => Err(input.fail(FaultKind::MissingMember, 0, 0)),
            }
        }
        FieldKind::Bits { bits, .. } => get(input, bits),
        FieldKind::Whole(decimal) => {
            if !get(input, decimal)? {
                return Ok(false);
            }
            let [exponent, mantissa] = input.state().words;
            match whole(exponent as i64, mantissa as i64) {
                Some(value) => input.state().words[0] = value as u64,
                None => {
                    // What is cut off, or does not fit, is no more than that where it is let pass.
                    input.deviate(FaultKind::NotInteger, field.policy, mantissa)?;
                    input.state().words[0] = cut(exponent as i64, mantissa as i64) as u64;
                }
            }
            Ok(true)
        }
    }
}

/// Reads a mandatory field whose value fits the accumulator.
pub(crate) fn get_int(input: &mut Input<'_>, field: &Field) -> Result<u64, Status> {
    match get(input, field)? {
        true => Ok(input.state().words[0]),
        false => Err(input.fail(FaultKind::MissingMember, 0, 0)),
    }
}

/// The integer that a decimal is; none if it has a fraction, or does not fit 64 bits.
pub(crate) fn whole(exponent: i64, mantissa: i64) -> Option<i64> {
    match exponent {
        0.. => 10i64.checked_pow(u32::try_from(exponent).ok()?).and_then(|factor| mantissa.checked_mul(factor)),
        _ if mantissa == 0 => Some(0),
        _ => {
            let divisor = 10i64.checked_pow(u32::try_from(-exponent).ok()?)?;
            (mantissa % divisor == 0).then(|| mantissa / divisor)
        }
    }
}

fn cut(exponent: i64, mantissa: i64) -> i64 {
    match exponent {
        0.. => mantissa,
        _ => u32::try_from(-exponent).ok().and_then(|n| 10i64.checked_pow(n)).map_or(0, |divisor| mantissa / divisor),
    }
}

/// What an operator without a value in the stream finds in the dictionary.
enum Previous {
    Assigned,
    /// There is none, and the initial value takes its place.
    Initial,
    /// The value is absent.
    Absent,
}

/// The previous value of a field that the stream has nothing for.
fn previous(input: &mut Input<'_>, field: &Field, has_initial: bool) -> Result<Previous, Status> {
    match input.state().tag(field.slot) {
        tag if tag == field.tag => Ok(Previous::Assigned),
        UNDEFINED if has_initial => Ok(Previous::Initial),
        UNDEFINED if field.optional => {
            input.state().set_tag(field.slot, EMPTY);
            Ok(Previous::Absent)
        }
        UNDEFINED => Err(input.fail(FaultKind::NoPrevious, 0, 0)),
        EMPTY if field.optional => Ok(Previous::Absent),
        EMPTY => Err(input.fail(FaultKind::EmptyPrevious, 0, 0)),
        other => Err(input.fail(FaultKind::PreviousType, field.tag.into(), other.into())),
    }
}

/// The base of a delta: true if it is in the dictionary, false if the initial or default value
/// takes its place.
fn base(input: &mut Input<'_>, field: &Field) -> Result<bool, Status> {
    match input.state().tag(field.slot) {
        tag if tag == field.tag => Ok(true),
        UNDEFINED => Ok(false),
        EMPTY => Err(input.fail(FaultKind::EmptyPrevious, 0, 0)),
        other => Err(input.fail(FaultKind::PreviousType, field.tag.into(), other.into())),
    }
}

/// Notes that the stream said null.
fn absent(input: &mut Input<'_>, field: &Field) {
    input.state().set_tag(field.slot, EMPTY);
}

fn int(input: &mut Input<'_>, field: &Field) -> Result<Option<u64>, Status> {
    match field.operator {
        Operator::None => plain(input, field),
        Operator::Constant if !field.optional || input.take_bit() => Ok(field.initial_int()),
        Operator::Constant => Ok(None),
        Operator::Default if input.take_bit() => plain(input, field),
        Operator::Default => Ok(field.initial_int()),
        // Strings alone have tails.
        Operator::Copy | Operator::Increment | Operator::Tail if input.take_bit() => {
            let value = plain(input, field)?;
            match value {
                Some(value) => assign(input, field, value),
                None => absent(input, field),
            }
            Ok(value)
        }
        Operator::Copy | Operator::Increment | Operator::Tail => {
            let value = match previous(input, field, field.initial_int().is_some())? {
                Previous::Absent => return Ok(None),
                Previous::Initial => field.initial_int().unwrap_or(0),
                Previous::Assigned => {
                    let value = input.state().value(field.slot);
                    if field.operator == Operator::Increment { next(field, value) } else { value }
                }
            };
            assign(input, field, value);
            Ok(Some(value))
        }
        Operator::Delta => {
            let Some(delta) = difference(input, field.optional, field.policy)? else { return Ok(None) };
            let base = match base(input, field)? {
                true => extended(field, input.state().value(field.slot)),
                false => extended(field, field.initial_int().unwrap_or(0)),
            };
            let value = base + delta;
            if !within(field, value) {
                input.deviate(FaultKind::DeltaRange, field.policy, value as u64)?;
            }
            let value = wrapped(field, value);
            assign(input, field, value);
            Ok(Some(value))
        }
    }
}

fn assign(input: &mut Input<'_>, field: &Field, value: u64) {
    let state = input.state();
    state.set_value(field.slot, value);
    state.set_tag(field.slot, field.tag);
}

/// An integer without its operator.
fn plain(input: &mut Input<'_>, field: &Field) -> Result<Option<u64>, Status> {
    let FieldKind::Int { signed, .. } = field.kind else { return Ok(None) };
    let value = match (signed, field.optional) {
        (true, false) => integer::signed(input, field.policy)?,
        (true, true) => match integer::signed(input, field.policy)? {
            0 => return Ok(None),
            value => value - i128::from(value > 0),
        },
        (false, false) => integer::unsigned(input, field.policy)? as i128,
        (false, true) => match integer::unsigned(input, field.policy)? {
            0 => return Ok(None),
            value => value as i128 - 1,
        },
    };
    match within(field, value) {
        true => Ok(Some(value as u64)),
        false => Err(input.fail(FaultKind::IntegerRange, 0, value as u64)),
    }
}

/// The difference that a delta has in the stream; none for null.
fn difference(input: &mut Input<'_>, nullable: bool, policy: Policy) -> Result<Option<i128>, Status> {
    match (integer::signed(input, policy)?, nullable) {
        (0, true) => Ok(None),
        (value, true) => Ok(Some(value - i128::from(value > 0))),
        (value, false) => Ok(Some(value)),
    }
}

pub(super) fn within(field: &Field, value: i128) -> bool {
    match &field.kind {
        FieldKind::Int { min, max, .. } => (*min..=*max).contains(&value),
        _ => false,
    }
}

/// A slot's 64 bits as the integer that they are.
pub(super) fn extended(field: &Field, value: u64) -> i128 {
    match &field.kind {
        FieldKind::Int { signed: true, .. } => i128::from(value as i64),
        _ => i128::from(value),
    }
}

/// One more, and the smallest behind the largest.
pub(super) fn next(field: &Field, value: u64) -> u64 {
    wrapped(field, extended(field, value) + 1)
}

fn wrapped(field: &Field, value: i128) -> u64 {
    match &field.kind {
        // To divide 128 bits takes longer than all else that is done for a field.
        FieldKind::Int { min, max, .. } if !(*min..=*max).contains(&value) => {
            ((value - min).rem_euclid(max - min + 1) + min) as u64
        }
        _ => value as u64,
    }
}

fn decimal(input: &mut Input<'_>, field: &Field) -> Got {
    let initial = field.initial_decimal();
    let value = match field.operator {
        Operator::None | Operator::Increment | Operator::Tail => scaled(input, field)?,
        Operator::Constant if !field.optional || input.take_bit() => initial,
        Operator::Constant => None,
        Operator::Default if input.take_bit() => scaled(input, field)?,
        Operator::Default => initial,
        Operator::Copy if input.take_bit() => {
            let value = scaled(input, field)?;
            match value {
                Some(value) => assign_decimal(input, field, value),
                None => absent(input, field),
            }
            value
        }
        Operator::Copy => match previous(input, field, initial.is_some())? {
            Previous::Absent => None,
            Previous::Assigned => Some(previous_decimal(input, field)),
            Previous::Initial => {
                let value = initial.unwrap_or((0, 0));
                assign_decimal(input, field, value);
                Some(value)
            }
        },
        Operator::Delta => match difference(input, field.optional, field.policy)? {
            None => None,
            Some(exponent) => {
                let mantissa = integer::signed(input, field.policy)?;
                let base = match base(input, field)? {
                    true => previous_decimal(input, field),
                    false => initial.unwrap_or((0, 0)),
                };
                let exponent = i64::try_from(i128::from(base.0) + exponent);
                let mantissa = i64::try_from(i128::from(base.1) + mantissa);
                let (Ok(exponent), Ok(mantissa)) = (exponent, mantissa) else {
                    return Err(input.fail(FaultKind::DecimalRange, 0, 0));
                };
                ranged(input, field, exponent)?;
                assign_decimal(input, field, (exponent, mantissa));
                Some((exponent, mantissa))
            }
        },
    };
    if let Some((exponent, mantissa)) = value {
        input.state().words = [exponent as u64, mantissa as u64];
    }
    Ok(value.is_some())
}

fn previous_decimal(input: &mut Input<'_>, field: &Field) -> (i64, i64) {
    let state = input.state();
    (state.value(field.slot) as i64, state.value(field.text) as i64)
}

fn assign_decimal(input: &mut Input<'_>, field: &Field, (exponent, mantissa): (i64, i64)) {
    assign(input, field, exponent as u64);
    input.state().set_value(field.text, mantissa as u64);
}

/// Exponent and mantissa without an operator.
fn scaled(input: &mut Input<'_>, field: &Field) -> Result<Option<(i64, i64)>, Status> {
    let Some(exponent) = difference(input, field.optional, field.policy)? else { return Ok(None) };
    let mantissa = integer::signed(input, field.policy)?;
    let Ok(exponent) = i64::try_from(exponent) else { return Err(input.fail(FaultKind::DecimalRange, 0, 0)) };
    let Ok(mantissa) = i64::try_from(mantissa) else {
        return Err(input.fail(FaultKind::DecimalRange, 0, mantissa as u64));
    };
    ranged(input, field, exponent)?;
    Ok(Some((exponent, mantissa)))
}

/// Exponents reach from -63 to 63.
fn ranged(input: &mut Input<'_>, field: &Field, exponent: i64) -> Result<(), Status> {
    match (-63..=63).contains(&exponent) {
        true => Ok(()),
        // What follows computes with 32 bits.
        false if i32::try_from(exponent).is_err() => Err(input.fail(FaultKind::DecimalRange, 63, exponent as u64)),
        false => input.deviate(FaultKind::DecimalRange, field.policy, exponent as u64),
    }
}

fn text(input: &mut Input<'_>, field: &Field) -> Got {
    match field.operator {
        Operator::None | Operator::Increment => bytes(input, field, field.optional),
        Operator::Constant if !field.optional || input.take_bit() => initial_text(input, field),
        Operator::Constant => Ok(false),
        Operator::Default if input.take_bit() => bytes(input, field, field.optional),
        Operator::Default => initial_text(input, field),
        Operator::Copy | Operator::Tail if input.take_bit() => {
            if !bytes(input, field, field.optional)? {
                absent(input, field);
                return Ok(false);
            }
            if field.operator == Operator::Tail {
                prepend_base(input, field)?;
            }
            assign_text(input, field)?;
            Ok(true)
        }
        Operator::Copy | Operator::Tail => {
            match previous(input, field, field.initial_bytes().is_some())? {
                Previous::Absent => return Ok(false),
                Previous::Assigned => {
                    let state = input.state();
                    let mut pending = core::mem::take(&mut state.pending);
                    pending.clear();
                    pending.extend_from_slice(state.text(field.text));
                    state.pending = pending;
                    charge_pending(input)?;
                }
                Previous::Initial => {
                    initial_text(input, field)?;
                    assign_text(input, field)?;
                }
            }
            Ok(true)
        }
        Operator::Delta => {
            let Some(subtracted) = difference(input, field.optional, field.policy)? else { return Ok(false) };
            let Ok(subtracted) = i32::try_from(subtracted) else {
                return Err(input.fail(FaultKind::Subtraction, 0, subtracted as u64));
            };
            bytes(input, field, false)?;
            subtract(input, field, subtracted)?;
            assign_text(input, field)?;
            Ok(true)
        }
    }
}

fn initial_text(input: &mut Input<'_>, field: &Field) -> Got {
    let pending = &mut input.state().pending;
    pending.clear();
    pending.extend_from_slice(field.initial_bytes().unwrap_or_default());
    Ok(field.initial_bytes().is_some())
}

fn assign_text(input: &mut Input<'_>, field: &Field) -> Result<(), Status> {
    if let Err(limit) = input.state().keep_pending(field.text) {
        return Err(input.fail(FaultKind::Limit, limit as u64, limit as u64 + 1));
    }
    input.state().set_tag(field.slot, field.tag);
    Ok(())
}

/// Values that the stream did not have to spell out cost, too.
fn charge_pending(input: &mut Input<'_>) -> Result<(), Status> {
    let len = input.state().pending.len();
    match input.charge(len) {
        Status::Ok => Ok(()),
        status => Err(status),
    }
}

/// Makes the pending tail a value: it takes the place of as many bytes at the end of the base.
fn prepend_base(input: &mut Input<'_>, field: &Field) -> Result<(), Status> {
    let tag = input.state().tag(field.slot);
    if tag > EMPTY && tag != field.tag {
        return Err(input.fail(FaultKind::PreviousType, field.tag.into(), tag.into()));
    }
    let state = input.state();
    let mut pending = core::mem::take(&mut state.pending);
    let base = if tag == field.tag { state.text(field.text) } else { field.initial_bytes().unwrap_or_default() };
    if pending.len() < base.len() {
        let kept = base.len() - pending.len();
        pending.splice(..0, base[..kept].iter().copied());
    }
    state.pending = pending;
    charge_pending(input)?;
    check_combined(input, field)
}

/// Makes the pending difference a value: `subtracted` bytes go from the end of the base, or from
/// its front if it is negative.
fn subtract(input: &mut Input<'_>, field: &Field, subtracted: i32) -> Result<(), Status> {
    let known = base(input, field)?;
    let state = input.state();
    let mut pending = core::mem::take(&mut state.pending);
    let base = if known { state.text(field.text) } else { field.initial_bytes().unwrap_or_default() };
    // Negative numbers are one off, so that there is one for nothing.
    let count = if subtracted < 0 { !subtracted } else { subtracted } as usize;
    let len = base.len();
    let fits = count <= len;
    match subtracted {
        _ if !fits => {}
        0.. => drop(pending.splice(..0, base[..len - count].iter().copied())),
        _ => pending.extend_from_slice(&base[count..]),
    }
    state.pending = pending;
    if !fits {
        return Err(input.fail(FaultKind::Subtraction, len as u64, count as u64));
    }
    charge_pending(input)?;
    check_combined(input, field)
}

fn check_combined(input: &mut Input<'_>, field: &Field) -> Result<(), Status> {
    let broken = field.kind == FieldKind::Unicode && core::str::from_utf8(&input.state().pending).is_err();
    match broken {
        true => input.deviate(FaultKind::CombinedText, field.policy, 0),
        false => Ok(()),
    }
}

/// A string, or bytes, without an operator.
fn bytes(input: &mut Input<'_>, field: &Field, nullable: bool) -> Got {
    if field.kind == FieldKind::Ascii {
        return ascii(input, field, nullable);
    }
    let len = match (integer::unsigned(input, field.policy)?, nullable) {
        (0, true) => return Ok(false),
        (len, true) => len - 1,
        (len, false) => len,
    };
    let Ok(len) = u32::try_from(len) else { return Err(input.fail(FaultKind::IntegerRange, 32, len as u64)) };
    let bytes = input.take(len as usize)?;
    let whole = matches!(field.operator, Operator::Tail | Operator::Delta);
    if field.kind == FieldKind::Unicode && !whole && core::str::from_utf8(bytes).is_err() {
        input.deviate(FaultKind::CombinedText, field.policy, 0)?;
    }
    let pending = &mut input.state().pending;
    pending.clear();
    pending.extend_from_slice(bytes);
    Ok(true)
}

fn ascii(input: &mut Input<'_>, field: &Field, nullable: bool) -> Got {
    let rest = input.rest();
    let Some(last) = rest.iter().position(|byte| byte & 0x80 != 0) else {
        return Err(input.fail(FaultKind::Truncated, rest.len() as u64 + 1, rest.len() as u64));
    };
    let mut bytes = &rest[..=last];
    input.seek(input.position() + bytes.len());
    let zeros = bytes.iter().take_while(|byte| **byte & 0x7F == 0).count();
    if zeros > 0 {
        // Zeros in front are a preamble: alone they are null, the empty string, or NULs.
        if nullable && bytes.len() == 1 {
            return Ok(false);
        }
        if zeros < bytes.len() {
            input.deviate(FaultKind::OverlongText, field.policy, zeros as u64)?;
            bytes = &bytes[zeros..];
        } else {
            bytes = &bytes[1 + usize::from(nullable)..];
        }
    }
    let pending = &mut input.state().pending;
    pending.clear();
    pending.extend_from_slice(bytes);
    if let Some(last) = pending.last_mut() {
        *last &= 0x7F;
    }
    Ok(true)
}
