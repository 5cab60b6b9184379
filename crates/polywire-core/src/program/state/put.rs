//! Writing strings and bytes with operators: the mirror of reading them.

use super::{
    super::{FaultKind, Output, Status},
    EMPTY, Field, FieldKind, Operator, UNDEFINED, integer,
};

type Put = Result<(), Status>;

/// Writes a field, or its absence.
pub(crate) fn put(output: &mut Output<'_>, field: &Field, value: Option<&[u8]>) -> Status {
    if value.is_none() && !field.optional {
        return output.fail(FaultKind::MissingMember, 0, 0);
    }
    match text(output, field, value) {
        Ok(()) => Status::Ok,
        Err(status) => status,
    }
}

/// What the reader finds without a value in the stream.
enum Known {
    /// A value in the dictionary.
    Assigned,
    /// The initial value.
    Initial,
    /// Nothing, and that is what absence is.
    Absent,
    /// Nothing that could be taken.
    Nothing,
}

fn known(output: &mut Output<'_>, field: &Field, has_initial: bool) -> Known {
    match output.state().tag(field.slot) {
        tag if tag == field.tag => Known::Assigned,
        UNDEFINED if has_initial => Known::Initial,
        UNDEFINED | EMPTY if field.optional => Known::Absent,
        _ => Known::Nothing,
    }
}

/// Writes absence for an operator with a dictionary and a bit.
fn put_absent(output: &mut Output<'_>, field: &Field, known: Known) -> Put {
    let there = !matches!(known, Known::Absent);
    output.put_bit(there);
    output.state().set_tag(field.slot, EMPTY);
    if there { null(output) } else { Ok(()) }
}

fn null(output: &mut Output<'_>) -> Put {
    ok(output.put_word(0x80, 1))
}

fn ok(status: Status) -> Put {
    match status {
        Status::Ok => Ok(()),
        failed => Err(failed),
    }
}

/// The base of a delta, as when reading.
fn base(output: &mut Output<'_>, field: &Field) -> Result<bool, Status> {
    match output.state().tag(field.slot) {
        tag if tag == field.tag => Ok(true),
        UNDEFINED => Ok(false),
        EMPTY => Err(output.fail(FaultKind::EmptyPrevious, 0, 0)),
        other => Err(output.fail(FaultKind::PreviousType, field.tag.into(), other.into())),
    }
}

/// A value that cannot be but the constant.
fn constant(output: &mut Output<'_>, field: &Field, present: bool, same: bool) -> Put {
    if present && !same {
        return Err(output.fail(FaultKind::NotEncodable, 0, 0));
    }
    if field.optional {
        output.put_bit(present);
    }
    Ok(())
}

fn difference(output: &mut Output<'_>, nullable: bool, value: i128) -> Put {
    ok(integer::put_signed(output, value + i128::from(nullable && value >= 0)))
}

fn text(output: &mut Output<'_>, field: &Field, value: Option<&[u8]>) -> Put {
    if field.kind == FieldKind::Ascii
        && let Some(byte) = value.into_iter().flatten().find(|byte| !byte.is_ascii())
    {
        return Err(output.fail(FaultKind::NotAscii, 0x7F, (*byte).into()));
    }
    let initial = field.initial_bytes();
    match (field.operator, value) {
        (Operator::None | Operator::Increment, value) => bytes(output, field, value, field.optional),
        (Operator::Constant, value) => constant(output, field, value.is_some(), value.is_none() || value == initial),
        (Operator::Default, value) => {
            output.put_bit(value != initial);
            if value == initial { Ok(()) } else { bytes(output, field, value, field.optional) }
        }
        (Operator::Copy | Operator::Tail, value) => {
            let known = known(output, field, initial.is_some());
            let Some(value) = value else { return put_absent(output, field, known) };
            let same = match known {
                Known::Assigned => output.state().text(field.text) == value,
                Known::Initial => initial == Some(value),
                Known::Absent | Known::Nothing => false,
            };
            output.put_bit(!same);
            match (same, field.operator) {
                (true, _) => {}
                (false, Operator::Tail) => tail(output, field, value)?,
                (false, _) => bytes(output, field, Some(value), field.optional)?,
            }
            assign_text(output, field, value)
        }
        (Operator::Delta, None) => null(output),
        (Operator::Delta, Some(value)) => {
            let known = base(output, field)?;
            let state = output.state();
            let base = if known { state.text(field.text) } else { initial.unwrap_or_default() };
            let (subtracted, rest) = replaced(base, value);
            if i32::try_from(subtracted).is_err() {
                return Err(output.fail(FaultKind::Subtraction, 0, subtracted as u64));
            }
            difference(output, field.optional, subtracted.into())?;
            bytes(output, field, Some(rest), false)?;
            assign_text(output, field, value)
        }
    }
}

fn assign_text(output: &mut Output<'_>, field: &Field, value: &[u8]) -> Put {
    if let Err(limit) = output.state().set_text(field.text, value) {
        return Err(output.fail(FaultKind::Limit, limit as u64, limit as u64 + 1));
    }
    output.state().set_tag(field.slot, field.tag);
    Ok(())
}

/// The end of a value that differs from the base.
fn tail(output: &mut Output<'_>, field: &Field, value: &[u8]) -> Put {
    let assigned = output.state().tag(field.slot) == field.tag;
    let state = output.state();
    let base = if assigned { state.text(field.text) } else { field.initial_bytes().unwrap_or_default() };
    match differing_end(base, value) {
        Some(end) => bytes(output, field, Some(end), field.optional),
        None => Err(output.fail(FaultKind::NotEncodable, 0, value.len() as u64)),
    }
}

/// The end of a value that differs from the base; none if the value is shorter, which a tail cannot
/// say.
pub(crate) fn differing_end<'v>(base: &[u8], value: &'v [u8]) -> Option<&'v [u8]> {
    match base.len() == value.len() {
        true => Some(&value[common(base.iter(), value.iter())..]),
        false => (base.len() < value.len()).then_some(value),
    }
}

/// How many bytes go from the base's end, or from its front if it is negative and one off, and what
/// takes their place.
pub(crate) fn replaced<'v>(base: &[u8], value: &'v [u8]) -> (i64, &'v [u8]) {
    let front = common(base.iter(), value.iter());
    let back = common(base.iter().rev(), value.iter().rev());
    match front >= back {
        true => ((base.len() - front) as i64, &value[front..]),
        false => (-((base.len() - back) as i64) - 1, &value[..value.len() - back]),
    }
}

fn common<'b>(a: impl Iterator<Item = &'b u8>, b: impl Iterator<Item = &'b u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

fn bytes(output: &mut Output<'_>, field: &Field, value: Option<&[u8]>, nullable: bool) -> Put {
    let Some(value) = value else { return null(output) };
    if field.kind == FieldKind::Ascii {
        return ascii(output, value, nullable);
    }
    let Ok(len) = u32::try_from(value.len()) else {
        return Err(output.fail(FaultKind::IntegerRange, 32, value.len() as u64));
    };
    ok(integer::put_unsigned(output, u128::from(len) + u128::from(nullable)))?;
    ok(output.put(value))
}

fn ascii(output: &mut Output<'_>, value: &[u8], nullable: bool) -> Put {
    if value.first().is_none_or(|byte| *byte == 0) {
        // A NUL in front is a preamble, which only NULs may follow.
        if value.iter().any(|byte| *byte != 0) {
            return Err(output.fail(FaultKind::NotEncodable, 0, 0));
        }
        for _ in 0..value.len() + usize::from(nullable) {
            ok(output.put(&[0]))?;
        }
        return null(output);
    }
    ok(output.put(value))?;
    if let Some(last) = output.written().last_mut() {
        *last |= 0x80;
    }
    Ok(())
}
