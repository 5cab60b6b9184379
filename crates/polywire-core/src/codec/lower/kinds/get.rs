//! Functions that read a value from any kind of item that can hold it. The kernels of `put`,
//! `delimiters` and `slices` call them. They touch the input only.

use alloc::string::String;

use super::{Extent, Format, Head, OPEN, Whole};
use crate::{
    codec::lower::{
        keys::{Keys, fail_at, one_character},
        symbols::label_of,
    },
    layout::Float128,
    program::{FaultKind, Input, Output, Status, SymbolTable},
};

type Read<T = ()> = Result<T, Status>;

pub(super) extern "C" fn boolean<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    let of = |head| if let Head::Bool(bool) = head { Ok(bool.into()) } else { Err(FaultKind::WrongKind) };
    Status::give(scalar::<F, u64>(input, of), value)
}

pub(super) extern "C" fn signed<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    Status::give(scalar::<F, i64>(input, signed_of).map(|number| number as u64), value)
}

pub(super) extern "C" fn unsigned<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    Status::give(scalar::<F, u64>(input, unsigned_of), value)
}

/// Reads a head and converts it. A fault is about the head.
#[inline(always)]
fn scalar<F: Format, T>(input: &mut Input<'_>, of: impl FnOnce(Head) -> Result<T, FaultKind>) -> Read<T> {
    let start = input.position();
    of(F::head(input)?).map_err(|kind| fail_at(input, start, kind))
}

/// An integer, or a floating-point number without a fraction.
#[inline(always)]
pub(super) fn signed_of(head: Head) -> Result<i64, FaultKind> {
    match head {
        Head::Unsigned(n) | Head::Decimal(_, Whole::Unsigned(n)) => i64::try_from(n).map_err(|_| FaultKind::OutOfRange),
        Head::Negative(n) | Head::Decimal(_, Whole::Negative(n)) => {
            i64::try_from(n).map(|n| !n).map_err(|_| FaultKind::OutOfRange)
        }
        Head::Decimal(_, Whole::Other) => Err(FaultKind::OutOfRange),
        Head::Single(number) => whole(f64::from(number)),
        Head::Double(number) => whole(number),
        _ => Err(FaultKind::WrongKind),
    }
}

/// An unsigned integer, or a floating-point number without a fraction.
#[inline(always)]
pub(super) fn unsigned_of(head: Head) -> Result<u64, FaultKind> {
    match head {
        Head::Unsigned(n) | Head::Decimal(_, Whole::Unsigned(n)) => Ok(n),
        Head::Negative(_) | Head::Decimal(..) => Err(FaultKind::OutOfRange),
        Head::Single(number) => whole_unsigned(f64::from(number)),
        Head::Double(number) => whole_unsigned(number),
        _ => Err(FaultKind::WrongKind),
    }
}

/// A floating-point number without a fraction.
#[cold]
pub fn whole(number: f64) -> Result<i64, FaultKind> {
    let whole = number as i64;
    // `i64::MAX` becomes 2^63 when converted to `f64`, so the bound is tested separately.
    match whole as f64 == number && number < 9_223_372_036_854_775_808.0 {
        true => Ok(whole),
        false => Err(FaultKind::OutOfRange),
    }
}

/// A floating-point number without a fraction and sign.
#[cold]
pub fn whole_unsigned(number: f64) -> Result<u64, FaultKind> {
    let whole = number as u64;
    match whole as f64 == number && number < 18_446_744_073_709_551_616.0 {
        true => Ok(whole),
        false => Err(FaultKind::OutOfRange),
    }
}

pub(super) extern "C" fn double<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    Status::give(scalar::<F, f64>(input, |head| double_of(or_nan::<F>(head))).map(f64::to_bits), value)
}

pub(super) extern "C" fn single<F: Format>(input: &mut Input<'_>, value: &mut u64) -> Status {
    let read = scalar::<F, f32>(input, |head| single_of(or_nan::<F>(head)));
    Status::give(read.map(|number| number.to_bits().into()), value)
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
        Head::Double(number) | Head::Decimal(number, _) => Ok(number),
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
        Head::Double(number) | Head::Decimal(number, _) => {
            let narrow = number as f32;
            if narrow.is_finite() || !number.is_finite() { Ok(narrow) } else { Err(FaultKind::OutOfRange) }
        }
        other => {
            let number = double_of(other)?;
            if f64::from(number as f32) == number { Ok(number as f32) } else { Err(FaultKind::OutOfRange) }
        }
    }
}

/// An integer that `f64` holds exactly.
pub fn exact(whole: i128) -> Result<f64, FaultKind> {
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
        head => match quad_of(or_nan::<F>(head)) {
            Ok(number) => Ok(Float128::from(number).to_bits()),
            Err(kind) => Err(fail_at(input, start, kind)),
        },
    }
}

/// A number for a `long double`: of decimal digits, an integer is not rounded.
fn quad_of(head: Head) -> Result<f64, FaultKind> {
    match head {
        Head::Decimal(_, Whole::Unsigned(n)) => double_of(Head::Unsigned(n)),
        Head::Decimal(_, Whole::Negative(n)) => double_of(Head::Negative(n)),
        head => double_of(head),
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
    let code = |head| unsigned_of(head).and_then(|n| u16::try_from(n).map_err(|_| FaultKind::OutOfRange));
    Status::give(text_or::<F, u16>(input, one_character, code).map(u64::from), value)
}

/// Reads a text and converts it with `of_text`, or a head of another kind with `of_head`.
#[inline(always)]
fn text_or<F: Format, T>(
    input: &mut Input<'_>,
    of_text: impl FnOnce(&[u8]) -> Result<T, FaultKind>,
    of_head: impl FnOnce(Head) -> Result<T, FaultKind>,
) -> Read<T> {
    let start = input.position();
    let value = match F::head(input)? {
        Head::Text(len) if len != OPEN => of_text(take(input, len)?),
        head => of_head(head),
    };
    value.map_err(|kind| fail_at(input, start, kind))
}

pub(super) extern "C" fn literal<F: Format>(input: &mut Input<'_>, table: &SymbolTable, value: &mut u64) -> Status {
    let named = |name: &[u8]| table.value(name).or(table.otherwise).ok_or(FaultKind::UnknownLiteral);
    Status::give(text_or::<F, i64>(input, named, signed_of).map(|number| number as u64), value)
}

pub(super) fn text<F: Format>(input: &mut Input<'_>, string: Option<&mut String>) -> Status {
    let start = input.position();
    match F::head(input) {
        Ok(Head::Text(OPEN)) => Status::of(match string {
            Some(string) => pieces::<F>(input, string),
            None => pass_pieces::<F>(input, true).map(|_| ()),
        }),
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
    input.make_room(string, len).ok()?;
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
    Status::give(array_of::<F>(input).map(|extent| extent.count), count)
}

pub(super) extern "C" fn map<F: Format>(input: &mut Input<'_>, count: &mut u64) -> Status {
    Status::give(map_of::<F>(input).map(|extent| extent.count), count)
}

/// Reads the head of an array.
#[inline(always)]
pub(super) fn array_of<F: Format>(input: &mut Input<'_>) -> Read<Extent> {
    scalar::<F, Extent>(
        input,
        |head| if let Head::Array(extent) = head { Ok(extent) } else { Err(FaultKind::WrongKind) },
    )
}

/// Reads the head of a map.
#[inline(always)]
pub(super) fn map_of<F: Format>(input: &mut Input<'_>) -> Read<Extent> {
    scalar::<F, Extent>(input, |head| if let Head::Map(extent) = head { Ok(extent) } else { Err(FaultKind::WrongKind) })
}

/// Reads what selects a union's case: a number, a boolean, the name of a literal, or a character if
/// `character` is true.
pub(super) fn discriminator<F: Format>(input: &mut Input<'_>, table: &SymbolTable, character: bool) -> Read<i64> {
    let of_text = |text: &[u8]| if character { one_character(text).map(i64::from) } else { label_of(table, text) };
    text_or::<F, i64>(
        input,
        of_text,
        |head| if let Head::Bool(bool) = head { Ok(bool.into()) } else { signed_of(head) },
    )
}

impl<F: Format> Keys for F {
    const BEHIND: usize = 0;

    fn key<'a>(input: &mut Input<'a>) -> Read<&'a [u8]> {
        let (start, kind) = (input.position(), core::mem::take(&mut input.tag));
        let key = F::name(input)?.ok_or_else(|| wrong_kind(input, start));
        input.tag = kind;
        key
    }

    fn put_key(output: &mut Output<'_>, name: &str) -> Status {
        F::put_name(output, name)
    }
}

/// Skips `count` values, which count as one level deeper than the current one.
pub fn skip_items<F: Format>(input: &mut Input<'_>, count: u64) -> Read {
    input.enter().ok()?;
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

#[cold]
pub(super) fn wrong_kind(input: &mut Input<'_>, start: usize) -> Status {
    fail_at(input, start, FaultKind::WrongKind)
}
