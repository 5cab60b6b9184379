//! Writing fields: the mirror of reading them.

use super::{
    super::{FaultKind, Output, Status},
    EMPTY, Field, FieldKind, Operator, UNDEFINED, float,
    get::{extended, next, within},
    integer,
};

type Put = Result<(), Status>;

/// A value to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Out<'v> {
    /// None.
    Absent,
    /// An integer, or the bits of a floating-point number.
    Word(u64),
    /// Exponent and mantissa.
    Decimal(i64, i64),
    /// A string, or bytes.
    Bytes(&'v [u8]),
}

/// Writes a field.
pub(crate) fn put(output: &mut Output<'_>, field: &Field, value: Out<'_>) -> Status {
    match put_value(output, field, value) {
        Ok(()) => Status::Ok,
        Err(status) => status,
    }
}

/// Writes an integer, or a number that fits a word.
pub(crate) fn put_int(output: &mut Output<'_>, field: &Field, value: u64) -> Status {
    put(output, field, Out::Word(value))
}

fn put_value(output: &mut Output<'_>, field: &Field, value: Out<'_>) -> Put {
    match (&field.kind, value) {
        (_, Out::Absent) if !field.optional => Err(output.fail(FaultKind::MissingMember, 0, 0)),
        (FieldKind::Int { .. }, Out::Word(value)) => int(output, field, Some(value)),
        (FieldKind::Int { .. }, Out::Absent) => int(output, field, None),
        (FieldKind::Ascii | FieldKind::Unicode | FieldKind::Bytes, Out::Bytes(bytes)) => {
            text(output, field, Some(bytes))
        }
        (FieldKind::Ascii | FieldKind::Unicode | FieldKind::Bytes, Out::Absent) => text(output, field, None),
        (FieldKind::Decimal, Out::Decimal(exponent, mantissa)) => {
            ranged(output, exponent)?;
            decimal(output, field, Some((exponent, mantissa)))
        }
        (FieldKind::Decimal, Out::Absent) => decimal(output, field, None),
        (FieldKind::Split(parts), Out::Decimal(exponent, mantissa)) => {
            ranged(output, exponent)?;
            let (exponent, mantissa) = adjusted(output, &parts[0], exponent, mantissa)?;
            int(output, &parts[0], Some(exponent as u64))?;
            int(output, &parts[1], Some(mantissa as u64))
        }
        (FieldKind::Split(parts), Out::Absent) => int(output, &parts[0], None),
        (FieldKind::Float { single, decimal, bits }, Out::Word(value)) => {
            number(output, (*single, decimal, bits.as_deref()), value)
        }
        (FieldKind::Float { decimal, bits, .. }, Out::Absent) => {
            put_value(output, decimal, Out::Absent)?;
            bits.as_ref().map_or(Ok(()), |bits| int(output, bits, None))
        }
        (FieldKind::Bits { bits, .. }, value) => put_value(output, bits, value),
        (FieldKind::Whole(inner), Out::Word(value)) => {
            let (exponent, mantissa) = normal(0, value as i64);
            put_value(output, inner, Out::Decimal(exponent, mantissa))
        }
        (FieldKind::Whole(inner), Out::Absent) => put_value(output, inner, Out::Absent),
        _ => Err(output.fail(FaultKind::WrongKind, 0, 0)),
    }
}

/// Without zeros at the end of the mantissa.
pub(crate) fn normal(mut exponent: i64, mut mantissa: i64) -> (i64, i64) {
    while mantissa != 0 && mantissa % 10 == 0 && exponent < 63 {
        (exponent, mantissa) = (exponent + 1, mantissa / 10);
    }
    (exponent, mantissa)
}

fn number(output: &mut Output<'_>, (single, decimal, bits): (bool, &Field, Option<&Field>), value: u64) -> Put {
    let hint = match decimal.exponent() {
        field if field.has_slot() && output.state().tag(field.slot) == field.tag => {
            Some(output.state().value(field.slot) as i64)
        }
        field => field.initial_exponent(),
    };
    let scaled = float::decompose(value, single, hint);
    match (scaled, bits) {
        (Some((exponent, mantissa)), _) if !fixed(decimal, exponent) => {
            put_value(output, decimal, Out::Decimal(exponent, mantissa))?;
            bits.map_or(Ok(()), |bits| int(output, bits, None))
        }
        (_, Some(bits)) => {
            put_value(output, decimal, Out::Absent)?;
            int(output, bits, Some(value))
        }
        (_, None) => Err(output.fail(FaultKind::NotEncodable, 0, value)),
    }
}

/// True if the exponent is another than this, always.
fn fixed(decimal: &Field, exponent: i64) -> bool {
    let field = decimal.exponent();
    field.operator == Operator::Constant && field.initial_exponent() != Some(exponent)
}

/// A decimal with the exponent that its operator demands, if it can be said so.
fn adjusted(output: &mut Output<'_>, field: &Field, exponent: i64, mantissa: i64) -> Result<(i64, i64), Status> {
    let wanted = match (field.operator, field.initial_int()) {
        (Operator::Constant, Some(wanted)) => wanted as i64,
        _ => return Ok((exponent, mantissa)),
    };
    let shift = u32::try_from(exponent.abs_diff(wanted)).ok().and_then(|n| 10i64.checked_pow(n));
    let moved = match (shift, exponent >= wanted) {
        _ if mantissa == 0 => Some(0),
        (Some(factor), true) => mantissa.checked_mul(factor),
        (Some(factor), false) if mantissa % factor == 0 => Some(mantissa / factor),
        _ => None,
    };
    match moved {
        Some(mantissa) => Ok((wanted, mantissa)),
        None => Err(output.fail(FaultKind::NotEncodable, wanted as u64, exponent as u64)),
    }
}

fn ranged(output: &mut Output<'_>, exponent: i64) -> Put {
    match (-63..=63).contains(&exponent) {
        true => Ok(()),
        false => Err(output.fail(FaultKind::DecimalRange, 63, exponent as u64)),
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

fn int(output: &mut Output<'_>, field: &Field, value: Option<u64>) -> Put {
    if let Some(value) = value.filter(|value| !within(field, extended(field, *value))) {
        return Err(output.fail(FaultKind::IntegerRange, 0, value));
    }
    match (field.operator, value) {
        (Operator::None, None) => null(output),
        (Operator::None, Some(value)) => plain(output, field, value),
        (Operator::Constant, value) => {
            constant(output, field, value.is_some(), value.is_none() || value == field.initial_int())
        }
        (Operator::Default, value) => {
            let differs = value != field.initial_int();
            output.put_bit(differs);
            match value {
                _ if !differs => Ok(()),
                Some(value) => plain(output, field, value),
                None => null(output),
            }
        }
        (Operator::Copy | Operator::Increment | Operator::Tail, value) => {
            let known = known(output, field, field.initial_int().is_some());
            let Some(value) = value else { return put_absent(output, field, known) };
            let expected = match known {
                Known::Assigned if field.operator == Operator::Increment => {
                    Some(next(field, output.state().value(field.slot)))
                }
                Known::Assigned => Some(output.state().value(field.slot)),
                Known::Initial => field.initial_int(),
                Known::Absent | Known::Nothing => None,
            };
            output.put_bit(expected != Some(value));
            assign(output, field, value);
            if expected == Some(value) { Ok(()) } else { plain(output, field, value) }
        }
        (Operator::Delta, None) => null(output),
        (Operator::Delta, Some(value)) => {
            let base = match base(output, field)? {
                true => output.state().value(field.slot),
                false => field.initial_int().unwrap_or(0),
            };
            assign(output, field, value);
            difference(output, field.optional, extended(field, value) - extended(field, base))
        }
    }
}

fn assign(output: &mut Output<'_>, field: &Field, value: u64) {
    let state = output.state();
    state.set_value(field.slot, value);
    state.set_tag(field.slot, field.tag);
}

/// An integer without its operator.
fn plain(output: &mut Output<'_>, field: &Field, value: u64) -> Put {
    ok(match (&field.kind, field.optional) {
        (FieldKind::Int { signed: true, .. }, false) => integer::put_signed(output, i128::from(value as i64)),
        (FieldKind::Int { signed: true, .. }, true) => {
            let value = i128::from(value as i64);
            integer::put_signed(output, value + i128::from(value >= 0))
        }
        (_, optional) => integer::put_unsigned(output, u128::from(value) + u128::from(optional)),
    })
}

fn difference(output: &mut Output<'_>, nullable: bool, value: i128) -> Put {
    ok(integer::put_signed(output, value + i128::from(nullable && value >= 0)))
}

fn decimal(output: &mut Output<'_>, field: &Field, value: Option<(i64, i64)>) -> Put {
    let initial = field.initial_decimal();
    match (field.operator, value) {
        (Operator::None | Operator::Increment | Operator::Tail, value) => scaled(output, field, value),
        (Operator::Constant, value) => constant(output, field, value.is_some(), value.is_none() || value == initial),
        (Operator::Default, value) => {
            output.put_bit(value != initial);
            if value == initial { Ok(()) } else { scaled(output, field, value) }
        }
        (Operator::Copy, value) => {
            let known = known(output, field, initial.is_some());
            let Some(value) = value else { return put_absent(output, field, known) };
            let expected = match known {
                Known::Assigned => Some(previous_decimal(output, field)),
                Known::Initial => initial,
                Known::Absent | Known::Nothing => None,
            };
            output.put_bit(expected != Some(value));
            assign_decimal(output, field, value);
            if expected == Some(value) { Ok(()) } else { scaled(output, field, Some(value)) }
        }
        (Operator::Delta, None) => null(output),
        (Operator::Delta, Some(value)) => {
            let base = match base(output, field)? {
                true => previous_decimal(output, field),
                false => initial.unwrap_or((0, 0)),
            };
            assign_decimal(output, field, value);
            difference(output, field.optional, i128::from(value.0) - i128::from(base.0))?;
            difference(output, false, i128::from(value.1) - i128::from(base.1))
        }
    }
}

fn previous_decimal(output: &mut Output<'_>, field: &Field) -> (i64, i64) {
    let state = output.state();
    (state.value(field.slot) as i64, state.value(field.text) as i64)
}

fn assign_decimal(output: &mut Output<'_>, field: &Field, (exponent, mantissa): (i64, i64)) {
    assign(output, field, exponent as u64);
    output.state().set_value(field.text, mantissa as u64);
}

fn scaled(output: &mut Output<'_>, field: &Field, value: Option<(i64, i64)>) -> Put {
    let Some((exponent, mantissa)) = value else { return null(output) };
    difference(output, field.optional, exponent.into())?;
    ok(integer::put_signed(output, mantissa.into()))
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
