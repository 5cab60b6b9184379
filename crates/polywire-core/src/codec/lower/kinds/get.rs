//! Functions that read a value from any kind of item that can hold it. The kernels of `put`,
//! `delimiters` and `slices` call them. They touch the input only.

use alloc::string::String;

use super::{Format, Head, OPEN};
use crate::{
    codec::lower::symbols::label_of,
    layout::Float128,
    program::{FaultKind, Input, Status, SymbolTable},
};

type Read<T = ()> = Result<T, Status>;

pub(super) extern "C" fn boolean<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    let start = input.position();
    match F::head(input) {
        Ok(Head::Bool(bool)) => give(value, bool.into()),
        Ok(_) => wrong_kind(input, start),
        Err(failed) => failed,
    }
}

pub(super) extern "C" fn signed<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    let start = input.position();
    match F::head(input) {
        Ok(head) => match signed_of(head) {
            Ok(number) => give(value, number as u64),
            Err(kind) => fail_at(input, start, kind),
        },
        Err(failed) => failed,
    }
}

pub(super) extern "C" fn unsigned<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    let start = input.position();
    match F::head(input) {
        Ok(head) => match unsigned_of(head) {
            Ok(number) => give(value, number),
            Err(kind) => fail_at(input, start, kind),
        },
        Err(failed) => failed,
    }
}

/// An integer, or a floating-point number without a fraction.
#[inline(always)]
pub(super) fn signed_of(head: Head) -> Result<i64, FaultKind> {
    match head {
        Head::Unsigned(n) => i64::try_from(n).map_err(|_| FaultKind::OutOfRange),
        Head::Negative(n) => i64::try_from(n).map(|n| !n).map_err(|_| FaultKind::OutOfRange),
        Head::Single(number) => whole(f64::from(number)),
        Head::Double(number) => whole(number),
        _ => Err(FaultKind::WrongKind),
    }
}

/// An unsigned integer, or a floating-point number without a fraction.
#[inline(always)]
pub(super) fn unsigned_of(head: Head) -> Result<u64, FaultKind> {
    match head {
        Head::Unsigned(n) => Ok(n),
        Head::Negative(_) => Err(FaultKind::OutOfRange),
        Head::Single(number) => whole_unsigned(f64::from(number)),
        Head::Double(number) => whole_unsigned(number),
        _ => Err(FaultKind::WrongKind),
    }
}

#[cold]
fn whole(number: f64) -> Result<i64, FaultKind> {
    let whole = number as i64;
    // `i64::MAX` becomes 2^63 when converted to `f64`, so the bound is tested separately.
    match whole as f64 == number && number < 9_223_372_036_854_775_808.0 {
        true => Ok(whole),
        false => Err(FaultKind::OutOfRange),
    }
}

#[cold]
fn whole_unsigned(number: f64) -> Result<u64, FaultKind> {
    let whole = number as u64;
    match whole as f64 == number && number < 18_446_744_073_709_551_616.0 {
        true => Ok(whole),
        false => Err(FaultKind::OutOfRange),
    }
}

pub(super) extern "C" fn double<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    let start = input.position();
    match F::head(input) {
        Ok(head) => match double_of(or_nan::<F>(head)) {
            Ok(number) => give(value, number.to_bits()),
            Err(kind) => fail_at(input, start, kind),
        },
        Err(failed) => failed,
    }
}

pub(super) extern "C" fn single<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    let start = input.position();
    match F::head(input) {
        Ok(head) => match single_of(or_nan::<F>(head)) {
            Ok(number) => give(value, number.to_bits().into()),
            Err(kind) => fail_at(input, start, kind),
        },
        Err(failed) => failed,
    }
}

/// Turns null into NaN in formats whose writers use it for NaN.
#[inline(always)]
pub(super) fn or_nan<F: Format>(head: Head) -> Head {
    match head {
        Head::Null if F::NULL_IS_NAN => Head::Double(f64::NAN),
        head => head,
    }
}

/// A floating-point number, or an integer that `f64` holds exactly.
#[inline(always)]
pub(super) fn double_of(head: Head) -> Result<f64, FaultKind> {
    match head {
        Head::Double(number) => Ok(number),
        Head::Single(number) => Ok(widen(number)),
        Head::Unsigned(n) => exact(n.into()),
        Head::Negative(n) => exact(-1 - i128::from(n)),
        _ => Err(FaultKind::WrongKind),
    }
}

/// Converts to `f64` and keeps the payload of a NaN.
#[inline(always)]
pub(super) fn widen(single: f32) -> f64 {
    let bits = u64::from(single.to_bits());
    match single.is_nan() {
        true => f64::from_bits(bits << 32 & 1 << 63 | 0x7FF << 52 | (bits & 0x7F_FFFF) << 29),
        false => single.into(),
    }
}

/// A floating-point number, rounded to `f32` but not to infinity, or an integer that `f32` holds
/// exactly.
#[inline(always)]
pub(super) fn single_of(head: Head) -> Result<f32, FaultKind> {
    match head {
        Head::Single(number) => Ok(number),
        Head::Double(number) => {
            let narrow = number as f32;
            if narrow.is_finite() || !number.is_finite() { Ok(narrow) } else { Err(FaultKind::OutOfRange) }
        }
        other => {
            let number = double_of(other)?;
            if f64::from(number as f32) == number { Ok(number as f32) } else { Err(FaultKind::OutOfRange) }
        }
    }
}

fn exact(whole: i128) -> Result<f64, FaultKind> {
    let number = whole as f64;
    if number as i128 == whole { Ok(number) } else { Err(FaultKind::OutOfRange) }
}

/// A `long double`: sixteen octets, most significant first, or a number that converts exactly.
pub(super) fn quad<F: Format>(input: &mut Input<'_>) -> Read<u128> {
    let start = input.position();
    match F::head(input)? {
        Head::Bytes(16) => fixed(input).map(u128::from_be_bytes),
        Head::Bytes(OPEN) => quad_in_pieces::<F>(input, start),
        Head::Array(extent) if F::TYPED && extent.count == 16 => {
            let mut bytes = [0; 16];
            match F::plain(input, extent.kind, crate::layout::Scalar::U8, &mut bytes)? {
                true => Ok(u128::from_be_bytes(bytes)),
                false => Err(wrong_kind(input, start)),
            }
        }
        head => match double_of(or_nan::<F>(head)) {
            Ok(number) => Ok(Float128::from(number).to_bits()),
            Err(kind) => Err(fail_at(input, start, kind)),
        },
    }
}

/// Sixteen octets that come in pieces.
#[cold]
fn quad_in_pieces<F: Format>(input: &mut Input<'_>, start: usize) -> Read<u128> {
    let (mut bytes, mut len) = ([0; 16], 0);
    while let Some(piece) = F::piece(input, false)? {
        let Some(room) = bytes.get_mut(len..len + piece.len()) else { return Err(wrong_kind(input, start)) };
        room.copy_from_slice(piece);
        len += piece.len();
    }
    match len {
        16 => Ok(u128::from_be_bytes(bytes)),
        _ => Err(wrong_kind(input, start)),
    }
}

/// A text of one character, or the character's code.
pub(super) extern "C" fn character<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    let start = input.position();
    let read = match F::head(input) {
        Ok(Head::Text(len)) if len != OPEN => match take(input, len) {
            Ok(text) => one_character(text),
            Err(failed) => return failed,
        },
        Ok(head) => unsigned_of(head).and_then(|n| u16::try_from(n).map_err(|_| FaultKind::OutOfRange)),
        Err(failed) => return failed,
    };
    match read {
        Ok(code) => give(value, code.into()),
        Err(kind) => fail_at(input, start, kind),
    }
}

fn one_character(text: &[u8]) -> Result<u16, FaultKind> {
    let mut chars = core::str::from_utf8(text).map_err(|_| FaultKind::BadText)?.chars();
    match (chars.next(), chars.next()) {
        (Some(char), None) => u16::try_from(u32::from(char)).map_err(|_| FaultKind::OutOfRange),
        _ => Err(FaultKind::OutOfRange),
    }
}

pub(super) extern "C" fn literal<F: Format>(input: &mut Input<'_>, table: &SymbolTable, value: &mut u64) -> Status {
    let start = input.position();
    match F::head(input) {
        Ok(Head::Text(len)) if len != OPEN => match take(input, len) {
            Ok(name) => named(input, start, name, table, value),
            Err(failed) => failed,
        },
        Ok(head) => match signed_of(head) {
            Ok(number) => give(value, number as u64),
            Err(kind) => fail_at(input, start, kind),
        },
        Err(failed) => failed,
    }
}

fn named(input: &mut Input<'_>, start: usize, name: &[u8], table: &SymbolTable, value: &mut u64) -> Status {
    match table.value(name).or(table.otherwise) {
        Some(number) => give(value, number as u64),
        None => fail_at(input, start, FaultKind::UnknownLiteral),
    }
}

pub(super) fn text<F: Format>(input: &mut Input<'_>, string: Option<&mut String>) -> Status {
    let start = input.position();
    match F::head(input) {
        Ok(Head::Text(OPEN)) => match string {
            Some(string) => done(pieces::<F>(input, string)),
            None => done(pass_pieces::<F>(input, true).map(|_| ())),
        },
        Ok(Head::Text(len)) => match take(input, len) {
            Ok(bytes) => set_text(input, bytes, string),
            Err(failed) => failed,
        },
        Ok(_) => wrong_kind(input, start),
        Err(failed) => failed,
    }
}

/// Stores the bytes just taken as text, after checking that they are UTF-8.
#[inline]
fn set_text(input: &mut Input<'_>, bytes: &[u8], string: Option<&mut String>) -> Status {
    match core::str::from_utf8(bytes) {
        Ok(text) => string.map_or(Status::Ok, |string| input.set_text(string, text)),
        Err(error) => {
            let at = input.position() - (bytes.len() - error.valid_up_to());
            fail_at(input, at, FaultKind::BadText)
        }
    }
}

/// Text in pieces, each of which must be UTF-8.
fn pieces<F: Format>(input: &mut Input<'_>, string: &mut String) -> Read {
    let start = input.position();
    let len = pass_pieces::<F>(input, true)?;
    input.seek(start);
    ok(input.make_room(string, len))?;
    while let Some(piece) = F::piece(input, true)? {
        match core::str::from_utf8(piece) {
            Ok(text) => string.push_str(text),
            Err(_) => return Err(input.fail(FaultKind::BadText, 0, 0)),
        }
    }
    Ok(())
}

/// Skips all pieces and returns the number of their bytes.
pub(super) fn pass_pieces<F: Format>(input: &mut Input<'_>, text: bool) -> Read<usize> {
    let mut len = 0;
    while let Some(piece) = F::piece(input, text)? {
        len += piece.len();
    }
    Ok(len)
}

pub(super) extern "C" fn array<F: Format>(input: &mut Input<'_>, count: &mut u64) -> Status {
    let start = input.position();
    match F::head(input) {
        Ok(Head::Array(extent)) => give(count, extent.count),
        Ok(_) => wrong_kind(input, start),
        Err(failed) => failed,
    }
}

pub(super) extern "C" fn map<F: Format>(input: &mut Input<'_>, count: &mut u64) -> Status {
    let start = input.position();
    match F::head(input) {
        Ok(Head::Map(extent)) => give(count, extent.count),
        Ok(_) => wrong_kind(input, start),
        Err(failed) => failed,
    }
}

/// Reads what selects a union's case: a number, a boolean, the name of a literal, or a character if
/// `character` is true.
pub(super) fn discriminator<F: Format>(input: &mut Input<'_>, table: &SymbolTable, character: bool) -> Read<i64> {
    let start = input.position();
    match F::head(input)? {
        Head::Bool(bool) => Ok(bool.into()),
        Head::Text(len) if len != OPEN => {
            let text = take(input, len)?;
            let label = if character { one_character(text).map(i64::from) } else { label_of(table, text) };
            label.map_err(|kind| fail_at(input, start, kind))
        }
        head => signed_of(head).map_err(|kind| fail_at(input, start, kind)),
    }
}

pub(super) fn key_text<F: Format>(input: &mut Input<'_>, string: Option<&mut String>) -> Status {
    match key::<F>(input) {
        Ok(name) => set_text(input, name, string),
        Err(failed) => failed,
    }
}

pub(super) extern "C" fn key_signed<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    with_key::<F>(input, value, |key| decimal::<i64>(key).map(|number| number as u64))
}

pub(super) extern "C" fn key_unsigned<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    with_key::<F>(input, value, decimal::<u64>)
}

pub(super) extern "C" fn key_boolean<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    with_key::<F>(input, value, |key| match key {
        b"true" => Ok(1),
        b"false" => Ok(0),
        _ => Err(FaultKind::BadBool),
    })
}

pub(super) extern "C" fn key_character<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    with_key::<F>(input, value, |key| one_character(key).map(u64::from))
}

pub(super) extern "C" fn key_literal<F: Format>(input: &mut Input<'_>, table: &SymbolTable, value: &mut u64) -> Status {
    with_key::<F>(input, value, |key| match key.first() {
        Some(b'-' | b'0'..=b'9') => decimal::<i64>(key).map(|number| number as u64),
        _ => table.value(key).or(table.otherwise).map(|n| n as u64).ok_or(FaultKind::UnknownLiteral),
    })
}

fn with_key<F: Format>(
    input: &mut Input<'_>,
    value: &mut u64,
    read: impl FnOnce(&[u8]) -> Result<u64, FaultKind>,
) -> Status {
    let start = input.position();
    match key::<F>(input) {
        Ok(key) => match read(key) {
            Ok(word) => give(value, word),
            Err(kind) => fail_at(input, start, kind),
        },
        Err(failed) => failed,
    }
}

/// The name of a map entry that follows.
fn key<'a, F: Format>(input: &mut Input<'a>) -> Read<&'a [u8]> {
    let (start, kind) = (input.position(), core::mem::take(&mut input.tag));
    let key = match F::name(input)? {
        Some(name) => Ok(name),
        None => Err(wrong_kind(input, start)),
    };
    input.tag = kind;
    key
}

/// Accepts only the shortest form of a number, so that different keys are different numbers.
fn decimal<T: core::str::FromStr>(key: &[u8]) -> Result<T, FaultKind> {
    let shortest = match key {
        [b'0'] => true,
        [b'-', digits @ ..] | digits => matches!(digits.first(), Some(b'1'..=b'9')),
    };
    let text = core::str::from_utf8(key).ok().filter(|_| shortest);
    text.and_then(|text| text.parse().ok()).ok_or(FaultKind::WrongKind)
}

/// Skips `count` values, which count as one level deeper than the current one.
pub fn skip_items<F: Format>(input: &mut Input<'_>, count: u64) -> Read {
    ok(input.enter())?;
    for _ in 0..count {
        F::skip(input)?;
    }
    input.leave();
    Ok(())
}

/// Reads the next `N` bytes.
#[inline(always)]
pub fn fixed<const N: usize>(input: &mut Input<'_>) -> Read<[u8; N]> {
    match input.rest().first_chunk::<N>() {
        Some(bytes) => {
            input.seek(input.position() + N);
            Ok(*bytes)
        }
        None => Err(input.fail(FaultKind::Truncated, N as u64, input.remaining() as u64)),
    }
}

/// Takes as many bytes as a head announced.
#[inline]
pub(super) fn take<'a>(input: &mut Input<'a>, len: u64) -> Read<&'a [u8]> {
    input.take(usize::try_from(len).unwrap_or(usize::MAX))
}

#[inline(always)]
pub(super) fn give(value: &mut u64, word: u64) -> Status {
    *value = word;
    Status::Ok
}

pub(super) fn ok(status: Status) -> Read {
    match status {
        Status::Ok => Ok(()),
        failed => Err(failed),
    }
}

pub(super) fn done(read: Read) -> Status {
    read.map_or_else(|failed| failed, |()| Status::Ok)
}

/// Reports an error about the value that began at `start`.
#[cold]
pub(super) fn fail_at(input: &mut Input<'_>, start: usize, kind: FaultKind) -> Status {
    input.seek(start);
    let got = input.rest().first().copied().unwrap_or(0);
    input.fail(kind, 0, got.into())
}

#[cold]
pub(super) fn wrong_kind(input: &mut Input<'_>, start: usize) -> Status {
    fail_at(input, start, FaultKind::WrongKind)
}
