//! Kernels that read a value from any kind of element that can hold it. [`Input::tag`] is the kind
//! of the element. The dialect `decode` puts them into programs. They touch the input only.

use alloc::string::String;

use super::{decimal, kind};
use crate::{
    codec::lower::{one_way, symbols::label_of},
    layout::{Float128, Scalar},
    program::{
        ActionKernel, FaultKind, Input, ScalarKernel, Status, SymbolKernel, SymbolTable, TextKernel, kernel::WideKernel,
    },
};

type Get = extern "C" fn(&mut Input<'_>, &mut u64) -> Status;

const fn reader(name: &'static str, scalar: Scalar, get: Get) -> ScalarKernel {
    ScalarKernel { name, scalar, get, put: one_way::put_no_scalar, wide: None, form: None }
}

pub(super) static BOOLEAN: ScalarKernel = reader("bson boolean", Scalar::Bool, boolean);
/// A signed integer of at most 64 bits. The program checks the range of the type.
pub(super) static INTEGER: ScalarKernel = reader("bson integer", Scalar::I64, integer);
/// An integer, or a time in milliseconds.
pub(super) static INTEGER_OR_TIME: ScalarKernel = reader("bson integer or time", Scalar::I64, integer_or_time);
pub(super) static UNSIGNED: ScalarKernel = reader("bson unsigned", Scalar::U64, unsigned);
pub(super) static FLOAT: ScalarKernel = reader("bson float", Scalar::F32, float);
pub(super) static DOUBLE: ScalarKernel = reader("bson double", Scalar::F64, double);
pub(super) static QUAD: ScalarKernel = ScalarKernel {
    wide: Some(WideKernel { get: quad, put: one_way::put_no_wide }),
    form: None,
    ..reader("bson quad", Scalar::F128, integer)
};
pub(super) static CHARACTER: ScalarKernel = reader("bson character", Scalar::U16, character);
/// An enum literal's name or number.
pub(super) static LITERAL: SymbolKernel =
    SymbolKernel { name: "bson literal", scalar: Scalar::I64, get: literal, put: one_way::put_no_symbol };
/// The number of octets in a binary. The octets follow.
pub(super) static OCTETS: ScalarKernel = reader("bson octets", Scalar::U32, octets);
/// Expects a binary with the number of octets in the argument.
pub(super) static EXPECT_OCTETS: ActionKernel =
    ActionKernel { name: "bson octets", get: expect_octets, put: one_way::put_no_action };
/// A decimal as text.
pub(super) static DECIMAL: TextKernel =
    TextKernel { name: "bson decimal", get: decimal_text, put: one_way::put_no_text, short: None };
/// Keys of maps.
pub(super) static KEY_TEXT: TextKernel =
    TextKernel { name: "bson key", get: key_text, put: one_way::put_no_text, short: None };
pub(super) static KEY_SIGNED: ScalarKernel = reader("bson signed key", Scalar::I64, signed_key);
pub(super) static KEY_UNSIGNED: ScalarKernel = reader("bson unsigned key", Scalar::U64, unsigned_key);
pub(super) static KEY_BOOLEAN: ScalarKernel = reader("bson boolean key", Scalar::Bool, boolean_key);
pub(super) static KEY_CHARACTER: ScalarKernel = reader("bson character key", Scalar::U16, character_key);
pub(super) static KEY_LITERAL: SymbolKernel =
    SymbolKernel { name: "bson literal key", scalar: Scalar::I64, get: literal_key, put: one_way::put_no_symbol };

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
    const INT32: u32 = kind::INT32 as u32;
    const INT64: u32 = kind::INT64 as u32;
    let read = match input.tag {
        INT32 => fixed(input).map(|bytes| i64::from(i32::from_le_bytes(bytes))),
        INT64 => fixed(input).map(i64::from_le_bytes),
        _ => integral(input),
    };
    give(read.map(|number| number as u64), value)
}

/// A double without a fraction.
fn integral(input: &mut Input<'_>) -> Result<i64, Status> {
    if input.tag != u32::from(kind::DOUBLE) {
        return Err(wrong_kind(input, kind::INT64));
    }
    let start = input.position();
    let number = f64::from_le_bytes(fixed(input)?);
    let whole = number as i64;
    // `i64::MAX` becomes 2^63 when converted to `f64`, so the bound is tested separately.
    match whole as f64 == number && number < 9_223_372_036_854_775_808.0 {
        true => Ok(whole),
        false => {
            input.seek(start);
            Err(input.fail(FaultKind::OutOfRange, 64, number.to_bits()))
        }
    }
}

extern "C" fn integer_or_time(input: &mut Input<'_>, value: &mut u64) -> Status {
    const DATETIME: u32 = kind::DATETIME as u32;
    const TIMESTAMP: u32 = kind::TIMESTAMP as u32;
    match input.tag {
        DATETIME => give(fixed(input).map(u64::from_le_bytes), value),
        // The high half has seconds; the low half counts events within the same second.
        TIMESTAMP => give(fixed(input).map(|bytes| (u64::from_le_bytes(bytes) >> 32) * 1000), value),
        _ => integer(input, value),
    }
}

/// Reads what selects a union's case: a number, a boolean, a literal's name, or a character if
/// `is_char` is true.
pub(super) fn discriminator(input: &mut Input<'_>, table: &SymbolTable, is_char: bool, value: &mut u64) -> Status {
    const BOOLEAN: u32 = kind::BOOLEAN as u32;
    const STRING: u32 = kind::STRING as u32;
    let start = input.position();
    match input.tag {
        BOOLEAN => boolean(input, value),
        STRING => match string(input) {
            Ok(text) if is_char => one_character(input, start, text, value),
            Ok(name) => match label_of(table, name) {
                Ok(number) => give(Ok(number as u64), value),
                Err(kind) => {
                    input.seek(start);
                    input.fail(kind, 0, STRING.into())
                }
            },
            Err(failed) => failed,
        },
        _ => integer(input, value),
    }
}

extern "C" fn unsigned(input: &mut Input<'_>, value: &mut u64) -> Status {
    const BINARY: u32 = kind::BINARY as u32;
    const DOUBLE: u32 = kind::DOUBLE as u32;
    let start = input.position();
    let read = match input.tag {
        BINARY => number_in_binary(input).map(u64::from_le_bytes),
        DOUBLE => fixed(input).and_then(|bytes| {
            let number = f64::from_le_bytes(bytes);
            let whole = number as u64;
            match whole as f64 == number && number < 18_446_744_073_709_551_616.0 {
                true => Ok(whole),
                false => Err(out_of_range(input, start, number.to_bits())),
            }
        }),
        _ => {
            let status = integer(input, value);
            return match status {
                Status::Ok if (*value as i64) < 0 => out_of_range(input, start, *value),
                status => status,
            };
        }
    };
    give(read, value)
}

#[cold]
fn out_of_range(input: &mut Input<'_>, at: usize, got: u64) -> Status {
    input.seek(at);
    input.fail(FaultKind::OutOfRange, 64, got)
}

extern "C" fn double(input: &mut Input<'_>, value: &mut u64) -> Status {
    match input.tag == u32::from(kind::DOUBLE) {
        true => give(fixed(input).map(u64::from_le_bytes), value),
        false => give(double_from_another(input).map(f64::to_bits), value),
    }
}

extern "C" fn float(input: &mut Input<'_>, value: &mut u64) -> Status {
    let start = input.position();
    let rounds = [kind::DOUBLE, kind::DECIMAL128].map(u32::from).contains(&input.tag);
    let wide = match input.tag == u32::from(kind::DOUBLE) {
        true => fixed(input).map(f64::from_le_bytes),
        false => double_from_another(input),
    };
    let wide = match wide {
        Ok(wide) => wide,
        Err(failed) => return failed,
    };
    let narrow = wide as f32;
    let fits = if rounds { narrow.is_finite() || !wide.is_finite() } else { f64::from(narrow) == wide };
    if !fits {
        input.seek(start);
        return input.fail(FaultKind::OutOfRange, 32, wide.to_bits());
    }
    *value = u64::from(narrow.to_bits());
    Status::Ok
}

/// An integer that `f64` holds exactly, or the double nearest to a decimal, which must not become
/// infinite.
fn double_from_another(input: &mut Input<'_>) -> Result<f64, Status> {
    let start = input.position();
    if input.tag == u32::from(kind::DECIMAL128) {
        let text = decimal::Text::of(fixed(input)?);
        let number: f64 = text.as_str().parse().unwrap_or(f64::NAN);
        return match number.is_infinite() && !text.as_str().ends_with("Infinity") {
            true => Err(out_of_range(input, start, number.to_bits())),
            false => Ok(number),
        };
    }
    if ![kind::INT32, kind::INT64].map(u32::from).contains(&input.tag) {
        return Err(wrong_kind(input, kind::DOUBLE));
    }
    let mut word = 0;
    match integer(input, &mut word) {
        Status::Ok => {}
        failed => return Err(failed),
    }
    let (whole, number) = (word as i64, word as i64 as f64);
    match i128::from(whole) == number as i128 {
        true => Ok(number),
        false => Err(out_of_range(input, start, word)),
    }
}

fn quad(input: &mut Input<'_>) -> Result<u128, Status> {
    if input.tag == u32::from(kind::BINARY) {
        return number_in_binary(input).map(u128::from_le_bytes);
    }
    let mut word = 0;
    match double(input, &mut word) {
        Status::Ok => Ok(Float128::from(f64::from_bits(word)).to_bits()),
        failed => Err(failed),
    }
}

/// The octets of a number for which BSON has no kind.
fn number_in_binary<const N: usize>(input: &mut Input<'_>) -> Result<[u8; N], Status> {
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
    if input.tag != u32::from(kind::STRING) {
        let status = integer(input, value);
        return match status {
            Status::Ok if *value > 0xFFFF => out_of_range(input, start, *value),
            status => status,
        };
    }
    match string(input) {
        Ok(text) => one_character(input, start, text, value),
        Err(failed) => failed,
    }
}

fn one_character(input: &mut Input<'_>, start: usize, text: &[u8], value: &mut u64) -> Status {
    let mut chars = match core::str::from_utf8(text) {
        Ok(text) => text.chars(),
        Err(_) => {
            input.seek(start);
            return input.fail(FaultKind::BadText, 0, 0);
        }
    };
    match (chars.next(), chars.next()) {
        (Some(char), None) if char <= '\u{FFFF}' => {
            *value = u64::from(u32::from(char));
            Status::Ok
        }
        _ => {
            input.seek(start);
            input.fail(FaultKind::OutOfRange, 16, text.len() as u64)
        }
    }
}

extern "C" fn literal(input: &mut Input<'_>, table: &SymbolTable, value: &mut u64) -> Status {
    if input.tag != u32::from(kind::STRING) {
        return integer(input, value);
    }
    let start = input.position();
    match string(input) {
        Ok(name) => named(input, start, name, table, value),
        Err(failed) => failed,
    }
}

fn named(input: &mut Input<'_>, start: usize, name: &[u8], table: &SymbolTable, value: &mut u64) -> Status {
    match table.value(name).or(table.otherwise) {
        Some(number) => {
            *value = number as u64;
            Status::Ok
        }
        None => {
            input.seek(start);
            input.fail(FaultKind::UnknownLiteral, 0, 0)
        }
    }
}

extern "C" fn octets(input: &mut Input<'_>, value: &mut u64) -> Status {
    give(binary(input).map(|len| len as u64), value)
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
fn binary(input: &mut Input<'_>) -> Result<usize, Status> {
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
fn length(input: &mut Input<'_>, min: usize, gap: usize) -> Result<usize, Status> {
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
fn string<'a>(input: &mut Input<'a>) -> Result<&'a [u8], Status> {
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
fn name<'a>(input: &mut Input<'a>) -> Result<&'a [u8], Status> {
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

fn key_text(input: &mut Input<'_>, text: Option<&mut String>) -> Status {
    let start = input.position();
    let key = match name(input) {
        Ok(key) => key,
        Err(failed) => return failed,
    };
    match core::str::from_utf8(key) {
        Ok(key) => text.map_or(Status::Ok, |text| input.set_text(text, key)),
        Err(error) => {
            input.seek(start + error.valid_up_to());
            input.fail(FaultKind::BadText, 0, 0)
        }
    }
}

extern "C" fn signed_key(input: &mut Input<'_>, value: &mut u64) -> Status {
    number_key::<i64>(input, value, |number| number as u64)
}

extern "C" fn unsigned_key(input: &mut Input<'_>, value: &mut u64) -> Status {
    number_key::<u64>(input, value, |number| number)
}

/// Accepts only the shortest form of a number, so that different keys are different numbers.
fn number_key<T: core::str::FromStr>(input: &mut Input<'_>, value: &mut u64, word: impl FnOnce(T) -> u64) -> Status {
    let start = input.position();
    let key = match name(input) {
        Ok(key) => key,
        Err(failed) => return failed,
    };
    let shortest = match key {
        [b'0'] => true,
        [b'-', digits @ ..] | digits => matches!(digits.first(), Some(b'1'..=b'9')),
    };
    let number = core::str::from_utf8(key).ok().filter(|_| shortest).and_then(|key| key.parse().ok());
    match number {
        Some(number) => {
            *value = word(number);
            Status::Ok
        }
        None => {
            input.seek(start);
            input.fail(FaultKind::WrongKind, 0, 0)
        }
    }
}

extern "C" fn boolean_key(input: &mut Input<'_>, value: &mut u64) -> Status {
    let start = input.position();
    *value = match name(input) {
        Ok(b"true") => 1,
        Ok(b"false") => 0,
        Ok(_) => {
            input.seek(start);
            return input.fail(FaultKind::BadBool, 0, 0);
        }
        Err(failed) => return failed,
    };
    Status::Ok
}

extern "C" fn character_key(input: &mut Input<'_>, value: &mut u64) -> Status {
    let start = input.position();
    match name(input) {
        Ok(key) => one_character(input, start, key, value),
        Err(failed) => failed,
    }
}

extern "C" fn literal_key(input: &mut Input<'_>, table: &SymbolTable, value: &mut u64) -> Status {
    let start = input.position();
    if let Some(b'-' | b'0'..=b'9') = input.rest().first() {
        return signed_key(input, value);
    }
    match name(input) {
        Ok(key) => named(input, start, key, table, value),
        Err(failed) => failed,
    }
}

pub(super) extern "C" fn is_null(input: &mut Input<'_>, is: &mut u64) -> Status {
    *is = u64::from(input.tag == u32::from(kind::NULL));
    Status::Ok
}

/// Skips a value of any kind, including deprecated ones. Does not check the contents of documents.
pub(super) fn skip_value(input: &mut Input<'_>) -> Status {
    match pass_value(input) {
        Ok(()) => Status::Ok,
        Err(failed) => failed,
    }
}

fn pass_value(input: &mut Input<'_>) -> Result<(), Status> {
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
fn pass_document(input: &mut Input<'_>, min: usize) -> Result<(), Status> {
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

#[inline(always)]
fn fixed<const N: usize>(input: &mut Input<'_>) -> Result<[u8; N], Status> {
    match input.rest().first_chunk::<N>() {
        Some(bytes) => {
            input.seek(input.position() + N);
            Ok(*bytes)
        }
        None => Err(input.fail(FaultKind::Truncated, N as u64, input.remaining() as u64)),
    }
}

#[inline(always)]
fn give(read: Result<u64, Status>, value: &mut u64) -> Status {
    match read {
        Ok(word) => {
            *value = word;
            Status::Ok
        }
        Err(failed) => failed,
    }
}

#[cold]
fn wrong_kind(input: &mut Input<'_>, expected: u8) -> Status {
    input.fail(FaultKind::WrongKind, expected.into(), input.tag.into())
}

// Functions for writing, which decoding programs do not use.
