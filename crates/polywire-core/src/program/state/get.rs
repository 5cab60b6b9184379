//! Reading strings and bytes with operators: the reference for what the operators mean. A value is
//! left pending in the state.

use super::{
    super::{FaultKind, Input, Status},
    EMPTY, Field, FieldKind, Operator, Policy, UNDEFINED, integer,
};

/// Whether a value is there.
type Got = Result<bool, Status>;

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

/// The difference that a delta has in the stream; none for null.
fn difference(input: &mut Input<'_>, nullable: bool, policy: Policy) -> Result<Option<i128>, Status> {
    match (integer::signed(input, policy)?, nullable) {
        (0, true) => Ok(None),
        (value, true) => Ok(Some(value - i128::from(value > 0))),
        (value, false) => Ok(Some(value)),
    }
}

/// Reads a field; false if it is absent.
pub(crate) fn get(input: &mut Input<'_>, field: &Field) -> Got {
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
