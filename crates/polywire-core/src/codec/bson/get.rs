//! Kernels that read a value from any kind of element that can hold it. [`Input::tag`] is the kind
//! of the element. The dialect `decode` puts them into programs. They touch the input only.

use alloc::string::String;

use super::{decimal, kind};
use crate::{
    codec::lower::{
        keys::one_character,
        kinds::{exact, fixed, whole, whole_unsigned},
        one_way,
        symbols::label_of,
    },
    layout::{Float128, Scalar},
    program::{ActionKernel, FaultKind, Input, ScalarKernel, Status, SymbolKernel, SymbolTable, TextKernel},
};

type Read<T = ()> = Result<T, Status>;

pub(super) static BOOLEAN: ScalarKernel = ScalarKernel::get_only("bson boolean", Scalar::Bool, boolean);
/// A signed integer of at most 64 bits. The program checks the range of the type.
pub(super) static INTEGER: ScalarKernel = ScalarKernel::get_only("bson integer", Scalar::I64, integer);
/// An integer, or a time in milliseconds.
pub(super) static INTEGER_OR_TIME: ScalarKernel =
    ScalarKernel::get_only("bson integer or time", Scalar::I64, integer_or_time);
pub(super) static UNSIGNED: ScalarKernel = ScalarKernel::get_only("bson unsigned", Scalar::U64, unsigned);
pub(super) static FLOAT: ScalarKernel = ScalarKernel::get_only("bson float", Scalar::F32, float);
pub(super) static DOUBLE: ScalarKernel = ScalarKernel::get_only("bson double", Scalar::F64, double);
pub(super) static QUAD: ScalarKernel = ScalarKernel::wide("bson quad", quad, one_way::put_no_wide);
pub(super) static CHARACTER: ScalarKernel = ScalarKernel::get_only("bson character", Scalar::U16, character);
/// An enum literal's name or number.
pub(super) static LITERAL: SymbolKernel = SymbolKernel::get_only("bson literal", literal);
/// The number of octets in a binary. The octets follow.
pub(super) static OCTETS: ScalarKernel = ScalarKernel::get_only("bson octets", Scalar::U32, octets);
/// Expects a binary with the number of octets in the argument.
pub(super) static EXPECT_OCTETS: ActionKernel = ActionKernel::get_only("bson octets", expect_octets);
/// A decimal as text.
pub(super) static DECIMAL: TextKernel = TextKernel::get_only("bson decimal", decimal_text);

extern "C" fn boolean(input: &mut Input<'_>, value: &mut u64) -> Status {
    if input.tag != u32::from(kind::BOOLEAN) {
        return wrong_kind(input, kind::BOOLEAN);
    }
    match input.rest().first() {
        Some(byte @ (0 | 1)) => {
            *value = u64::from(*byte);
            input.seek(input.position() + 1);
            Status::Ok
        }
        Some(byte) => input.fail(FaultKind::BadBool, 0, u64::from(*byte)),
        None => input.fail(FaultKind::Truncated, 1, 0),
    }
}

extern "C" fn integer(input: &mut Input<'_>, value: &mut u64) -> Status {
    Status::give(signed(input).map(|number| number as u64), value)
}

#[inline(always)]
fn signed(input: &mut Input<'_>) -> Read<i64> {
    const INT32: u32 = kind::INT32 as u32;
    const INT64: u32 = kind::INT64 as u32;
    match input.tag {
        INT32 => fixed(input).map(|bytes| i64::from(i32::from_le_bytes(bytes))),
        INT64 => fixed(input).map(i64::from_le_bytes),
        _ => integral(input),
    }
}

/// A double without a fraction.
fn integral(input: &mut Input<'_>) -> Read<i64> {
    if input.tag != u32::from(kind::DOUBLE) {
        return Err(wrong_kind(input, kind::INT64));
    }
    let start = input.position();
    let number = f64::from_le_bytes(fixed(input)?);
    whole(number).map_err(|_| out_of_range(input, start, 64, number.to_bits()))
}

extern "C" fn integer_or_time(input: &mut Input<'_>, value: &mut u64) -> Status {
    const DATETIME: u32 = kind::DATETIME as u32;
    const TIMESTAMP: u32 = kind::TIMESTAMP as u32;
    match input.tag {
        DATETIME => Status::give(fixed(input).map(u64::from_le_bytes), value),
        // The high half has seconds; the low half counts events within the same second.
        TIMESTAMP => Status::give(fixed(input).map(|bytes| (u64::from_le_bytes(bytes) >> 32) * 1000), value),
        _ => integer(input, value),
    }
}

/// Reads what selects a union's case: a number, a boolean, a literal's name, or a character if
/// `is_char` is true.
pub(super) fn discriminator(input: &mut Input<'_>, table: &SymbolTable, is_char: bool) -> Read<i64> {
    const BOOLEAN: u32 = kind::BOOLEAN as u32;
    const STRING: u32 = kind::STRING as u32;
    match input.tag {
        BOOLEAN => {
            let mut value = 0;
            boolean(input, &mut value).ok().map(|()| value as i64)
        }
        STRING if is_char => of_string(input, |text| one_character(text).map(i64::from)),
        STRING => of_string(input, |name| label_of(table, name)),
        _ => signed(input),
    }
}

/// Reads a string and converts it.
fn of_string<T>(input: &mut Input<'_>, of: impl FnOnce(&[u8]) -> Result<T, FaultKind>) -> Read<T> {
    let start = input.position();
    let text = string(input)?;
    of(text).map_err(|kind| {
        input.seek(start);
        let expected = if kind == FaultKind::WrongKind { kind::INT64.into() } else { 0 };
        input.fail(kind, expected, if expected == 0 { 0 } else { kind::STRING.into() })
    })
}

extern "C" fn unsigned(input: &mut Input<'_>, value: &mut u64) -> Status {
    const BINARY: u32 = kind::BINARY as u32;
    const DOUBLE: u32 = kind::DOUBLE as u32;
    let start = input.position();
    let read = match input.tag {
        BINARY => number_in_binary(input).map(u64::from_le_bytes),
        DOUBLE => fixed(input)
            .map(f64::from_le_bytes)
            .and_then(|number| whole_unsigned(number).map_err(|_| out_of_range(input, start, 64, number.to_bits()))),
        _ => signed(input)
            .and_then(|number| u64::try_from(number).map_err(|_| out_of_range(input, start, 64, number as u64))),
    };
    Status::give(read, value)
}

#[cold]
fn out_of_range(input: &mut Input<'_>, at: usize, bits: u64, got: u64) -> Status {
    input.seek(at);
    input.fail(FaultKind::OutOfRange, bits, got)
}

extern "C" fn double(input: &mut Input<'_>, value: &mut u64) -> Status {
    Status::give(floating(input).map(f64::to_bits), value)
}

#[inline(always)]
fn floating(input: &mut Input<'_>) -> Read<f64> {
    match input.tag == u32::from(kind::DOUBLE) {
        true => fixed(input).map(f64::from_le_bytes),
        false => double_from_another(input),
    }
}

extern "C" fn float(input: &mut Input<'_>, value: &mut u64) -> Status {
    let start = input.position();
    let rounds = [kind::DOUBLE, kind::DECIMAL128].map(u32::from).contains(&input.tag);
    let narrow = floating(input).and_then(|wide| {
        let narrow = wide as f32;
        let fits = if rounds { narrow.is_finite() || !wide.is_finite() } else { f64::from(narrow) == wide };
        if fits { Ok(narrow) } else { Err(out_of_range(input, start, 32, wide.to_bits())) }
    });
    Status::give(narrow.map(|number| number.to_bits().into()), value)
}

/// An integer that `f64` holds exactly, or the double nearest to a decimal, which must not become
/// infinite.
fn double_from_another(input: &mut Input<'_>) -> Read<f64> {
    let start = input.position();
    if input.tag == u32::from(kind::DECIMAL128) {
        let text = decimal::Text::of(fixed(input)?);
        let number: f64 = text.as_str().parse().unwrap_or(f64::NAN);
        return match number.is_infinite() && !text.as_str().ends_with("Infinity") {
            true => Err(out_of_range(input, start, 64, number.to_bits())),
            false => Ok(number),
        };
    }
    if ![kind::INT32, kind::INT64].map(u32::from).contains(&input.tag) {
        return Err(wrong_kind(input, kind::DOUBLE));
    }
    let number = signed(input)?;
    exact(number.into()).map_err(|_| out_of_range(input, start, 64, number as u64))
}

fn quad(input: &mut Input<'_>) -> Read<u128> {
    match input.tag == u32::from(kind::BINARY) {
        true => number_in_binary(input).map(u128::from_le_bytes),
        false => floating(input).map(|number| Float128::from(number).to_bits()),
    }
}

/// The octets of a number for which BSON has no kind.
fn number_in_binary<const N: usize>(input: &mut Input<'_>) -> Read<[u8; N]> {
    let start = input.position();
    let len = i32::from_le_bytes(fixed(input)?);
    let [subtype] = fixed(input)?;
    if usize::try_from(len) != Ok(N) || subtype != kind::NUMBER {
        input.seek(start);
        return Err(input.fail(FaultKind::WrongKind, N as u64, len as u64));
    }
    fixed(input)
}

extern "C" fn character(input: &mut Input<'_>, value: &mut u64) -> Status {
    let start = input.position();
    let code = match input.tag == u32::from(kind::STRING) {
        true => of_string(input, one_character),
        false => {
            signed(input).and_then(|code| u16::try_from(code).map_err(|_| out_of_range(input, start, 64, code as u64)))
        }
    };
    Status::give(code.map(u64::from), value)
}

extern "C" fn literal(input: &mut Input<'_>, table: &SymbolTable, value: &mut u64) -> Status {
    let named = |name: &[u8]| table.value(name).or(table.otherwise).ok_or(FaultKind::UnknownLiteral);
    let number = match input.tag == u32::from(kind::STRING) {
        true => of_string(input, named),
        false => signed(input),
    };
    Status::give(number.map(|number| number as u64), value)
}

extern "C" fn octets(input: &mut Input<'_>, value: &mut u64) -> Status {
    Status::give(binary(input).map(|len| len as u64), value)
}

extern "C" fn expect_octets(input: &mut Input<'_>, expected: u64) -> Status {
    match binary(input) {
        Ok(len) if len as u64 == expected => Status::Ok,
        Ok(len) => input.fail(FaultKind::Count, expected, len as u64),
        Err(failed) => failed,
    }
}

/// Moves to the octets of a binary and returns their number, after checking that they are present.
/// The subtype is ignored, because other writers use any of them.
pub(super) fn binary(input: &mut Input<'_>) -> Read<usize> {
    if input.tag != u32::from(kind::BINARY) {
        return Err(wrong_kind(input, kind::BINARY));
    }
    let len = length(input, 0, 1)?;
    let [subtype] = fixed(input)?;
    if subtype != kind::OLD_BINARY {
        return Ok(len);
    }
    let inner = length(input, 0, 0)?;
    match len.checked_sub(4) == Some(inner) {
        true => Ok(inner),
        false => Err(input.fail(FaultKind::BadLength, len.saturating_sub(4) as u64, inner as u64)),
    }
}

/// Reads a length of at least `min`. As many bytes must follow after `gap` more bytes.
fn length(input: &mut Input<'_>, min: usize, gap: usize) -> Read<usize> {
    let start = input.position();
    let declared = i32::from_le_bytes(fixed(input)?);
    let left = input.remaining().saturating_sub(gap);
    match usize::try_from(declared) {
        Ok(len) if min <= len && len <= left => Ok(len),
        _ => {
            input.seek(start);
            Err(input.fail(FaultKind::BadLength, left as u64, declared as u64))
        }
    }
}

/// The bytes of a string without its NUL. Does not check that they are UTF-8.
pub(super) fn string<'a>(input: &mut Input<'a>) -> Read<&'a [u8]> {
    let len = length(input, 1, 0)?;
    match input.take(len)?.split_last() {
        Some((0, text)) => Ok(text),
        _ => {
            input.seek(input.position() - 1);
            Err(input.fail(FaultKind::BadTerminator, 0, 1))
        }
    }
}

/// Reads a name and skips its NUL.
pub(super) fn name<'a>(input: &mut Input<'a>) -> Read<&'a [u8]> {
    let rest = input.rest();
    match rest.iter().position(|byte| *byte == 0) {
        Some(nul) => {
            input.seek(input.position() + nul + 1);
            Ok(&rest[..nul])
        }
        None => Err(input.fail(FaultKind::Truncated, rest.len() as u64 + 1, rest.len() as u64)),
    }
}

fn decimal_text(input: &mut Input<'_>, string: Option<&mut String>) -> Status {
    match fixed(input) {
        Ok(bytes) => string.map_or(Status::Ok, |string| input.set_text(string, decimal::Text::of(bytes).as_str())),
        Err(failed) => failed,
    }
}

pub(super) extern "C" fn is_null(input: &mut Input<'_>, is: &mut u64) -> Status {
    *is = u64::from(input.tag == u32::from(kind::NULL));
    Status::Ok
}

/// Skips a value of any kind, including deprecated ones. Does not check the contents of documents.
pub(super) fn skip_value(input: &mut Input<'_>) -> Read {
    let size = match u8::try_from(input.tag).unwrap_or(0) {
        kind::UNDEFINED | kind::NULL | kind::MIN_KEY | kind::MAX_KEY => 0,
        kind::BOOLEAN => 1,
        kind::INT32 => 4,
        kind::DOUBLE | kind::DATETIME | kind::TIMESTAMP | kind::INT64 => 8,
        kind::OBJECT_ID => 12,
        kind::DECIMAL128 => 16,
        kind::STRING | kind::CODE | kind::SYMBOL => return string(input).map(|_| ()),
        kind::DB_POINTER => string(input).map(|_| 12)?,
        kind::BINARY => length(input, 0, 1)? + 1,
        kind::REGEX => return name(input).and_then(|_| name(input)).map(|_| ()),
        kind::DOCUMENT | kind::ARRAY => return pass_document(input, kind::MIN_DOCUMENT),
        // The length itself, an empty string and an empty document.
        kind::CODE_WITH_SCOPE => return pass_document(input, 4 + 5 + kind::MIN_DOCUMENT),
        _ => return Err(input.fail(FaultKind::Syntax, 0, input.tag.into())),
    };
    input.take(size).map(|_| ())
}

/// Skips a value that begins with its own length and ends with a zero byte.
fn pass_document(input: &mut Input<'_>, min: usize) -> Read {
    let start = input.position();
    let [a, b, c, d] = fixed(input)?;
    let declared = i32::from_le_bytes([a, b, c, d]);
    input.seek(start);
    match usize::try_from(declared) {
        Ok(len) if min <= len && len <= input.remaining() => match input.take(len)?.last() {
            Some(0) => Ok(()),
            _ => Err(input.fail(FaultKind::BadTerminator, 0, 1)),
        },
        _ => Err(input.fail(FaultKind::BadLength, input.remaining() as u64, declared as u64)),
    }
}

#[cold]
pub(super) fn wrong_kind(input: &mut Input<'_>, expected: u8) -> Status {
    input.fail(FaultKind::WrongKind, expected.into(), input.tag.into())
}
