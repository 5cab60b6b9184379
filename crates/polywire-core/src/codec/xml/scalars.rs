//! Kernels for booleans, numbers, characters, strings and lists of numbers in XML.

use core::ops::Range;

use alloc::string::String;

use super::tokens;
use crate::{
    layout::{Float128, Scalar},
    program::{
        Elements, FaultKind, Input, Output, ScalarKernel, SliceKernel, Status, TextKernel,
        kernels::{
            base64, float, number,
            scalar::{Number, of_number},
        },
    },
    schema::Type,
};

/// The kernel for a scalar of a primitive type, or for the bits of a definition.
pub(super) fn kernel(ty: &Type, scalar: Scalar) -> &'static ScalarKernel {
    match (ty, scalar) {
        (Type::Char8, _) => &CHAR8,
        (Type::Char16, _) => &CHAR16,
        (_, Scalar::Bool) => &BOOL,
        (_, Scalar::F128) => &F128,
        (_, scalar) => of_number!(scalar, N => Of::<N>::VALUE).unwrap_or(Of::<u64>::VALUE),
    }
}

/// The kernel for one element of a list.
pub(super) fn token(scalar: Scalar) -> Option<&'static ScalarKernel> {
    of_number!(scalar, N => Of::<N>::TOKEN)
}

/// The kernel for a complete list. For octets it is base64.
pub(super) fn slice(ty: &Type, scalar: Scalar) -> Option<&'static SliceKernel> {
    match (ty, scalar) {
        (Type::Octet, Scalar::U8) => Some(&OCTETS),
        (Type::Octet, _) => None,
        _ => of_number!(scalar, N => Of::<N>::SLICE),
    }
}

/// The kernels of a number type.
struct Of<N>(core::marker::PhantomData<N>);

impl<N: Number> Of<N> {
    const VALUE: &'static ScalarKernel = &ScalarKernel::new("xml number", N::SCALAR, get::<N>, put::<N>);
    const TOKEN: &'static ScalarKernel = &ScalarKernel::new("xml list number", N::SCALAR, get_token::<N>, put::<N>);
    const SLICE: &'static SliceKernel =
        &SliceKernel { name: "xml list", scalar: N::SCALAR, get: get_all::<N>, put: put_all::<N> };
}

extern "C" fn get<N: Number>(input: &mut Input<'_>, word: &mut u64) -> Status {
    Status::give(read::<N>(input).map(|value| value.word()), word)
}

#[inline]
fn read<N: Number>(input: &mut Input<'_>) -> Result<N, Status> {
    let (rest, at) = (input.rest(), input.position());
    if rest.first() == Some(&b'>')
        && let Some((value, len)) = rest.get(1..).and_then(N::quick)
        && rest.get(len + 1..len + 3) == Some(b"</")
    {
        let name = tokens::own_name(input);
        input.seek(at + 1 + len);
        return tokens::close(input, name).ok().map(|()| value);
    }
    if let Some(quote) = tokens::quote(input)
        && let Some((value, len)) = N::quick(rest)
        && rest.get(len) == Some(&quote)
    {
        input.seek(at + len + 1);
        return Ok(value);
    }
    let mut buffer = [0; 512];
    let text = tokens::text(input)?.token(&mut buffer);
    parse::<N>(text.unwrap_or_default()).map_err(|(kind, bits)| {
        input.seek(at);
        input.fail(kind, bits, 0)
    })
}

/// Parses a number in a form of XML Schema: with an optional plus sign, leading zeros, or no digits
/// on one side of the point.
fn parse<N: Number>(text: &[u8]) -> Result<N, (FaultKind, u64)> {
    if N::FLOAT
        && let Some(value) = named_float(text)
    {
        return Ok(N::of_f64(value));
    }
    let mut buffer = [0; 512];
    let (number, text) = float::whole_text(text, &mut buffer).ok_or((FaultKind::WrongKind, 0))?;
    N::of_decimal(&number, text).ok_or((FaultKind::OutOfRange, 8 * N::SIZE as u64))
}

/// Parses an integer.
pub(super) fn integer(text: &[u8]) -> Option<i128> {
    let mut buffer = [0; 512];
    let (number, text) = float::whole_text(text, &mut buffer)?;
    number.to_integer(text)
}

fn named_float(text: &[u8]) -> Option<f64> {
    match text {
        b"NaN" => Some(f64::NAN),
        b"INF" | b"+INF" => Some(f64::INFINITY),
        b"-INF" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

extern "C" fn put<N: Number>(output: &mut Output<'_>, word: u64) -> Status {
    write(N::of_word(word), output)
}

#[inline]
fn write<N: Number>(value: N, output: &mut Output<'_>) -> Status {
    match value.as_f64() {
        finite if finite.is_finite() => value.put(output),
        nan if nan.is_nan() => output.put(b"NaN"),
        infinite => output.put(if infinite > 0.0 { b"INF" } else { b"-INF" }),
    }
}

/// Skips a list and returns its range in the message. It must not contain markup.
pub(super) fn list(input: &mut Input<'_>) -> Result<Range<usize>, Status> {
    let text = tokens::text(input)?;
    let range = text.start()..text.start() + text.as_str().len();
    if text.has_markup() {
        input.seek(range.start);
        return Err(input.fail(FaultKind::Syntax, 0, 0));
    }
    Ok(range)
}

extern "C" fn get_token<N: Number>(input: &mut Input<'_>, word: &mut u64) -> Status {
    let rest = input.rest();
    let len = rest.iter().position(|b| tokens::is_space(*b) || matches!(b, b'<' | b'"' | b'\'')).unwrap_or(rest.len());
    match parse::<N>(&rest[..len]) {
        Ok(value) => {
            *word = value.word();
            input.seek(input.position() + len);
            Status::Ok
        }
        Err((kind, bits)) => input.fail(kind, bits, 0),
    }
}

fn get_all<N: Number>(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Status {
    Status::of(read_all::<N>(input, elements))
}

fn read_all<N: Number>(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Result<(), Status> {
    let range = list(input)?;
    let list = input.message().get(range.clone()).unwrap_or_default();
    let blanks = |at: usize| list.get(at..).unwrap_or_default().iter().take_while(|b| tokens::is_space(**b)).count();
    let mut at = blanks(0);
    while at < list.len() {
        let (mut count, spare) = (0, elements.spare(input, 1)?);
        for element in spare.chunks_exact_mut(N::SIZE) {
            let rest = list.get(at..).unwrap_or_default();
            let quick = N::quick(rest).filter(|(_, len)| rest.get(*len).is_none_or(|b| tokens::is_space(*b)));
            let (value, len) = match quick {
                Some(quick) => quick,
                None => {
                    let len = rest.iter().position(|b| tokens::is_space(*b)).unwrap_or(rest.len());
                    let value = parse::<N>(&rest[..len]).map_err(|(kind, bits)| {
                        input.seek(range.start + at);
                        input.fail(kind, bits, 0)
                    })?;
                    (value, len)
                }
            };
            value.to_bytes(element);
            count += 1;
            // This library separates elements by one blank.
            at += len + usize::from(at + len < list.len());
            if list.get(at).is_none_or(|b| *b <= b' ') {
                at += blanks(at);
                if at >= list.len() {
                    break;
                }
            }
        }
        elements.take(count);
    }
    Ok(())
}

fn put_all<N: Number>(output: &mut Output<'_>, elements: &[u8]) -> Status {
    for (i, element) in elements.chunks_exact(N::SIZE).enumerate() {
        // Reserves room for many elements at once, so that the vector does not grow element by
        // element.
        let grow = i % 256 == 0 && output.reserve(256 * 12) == Status::Failed;
        let apart = i == 0 || output.put(b" ") == Status::Ok;
        if grow || !apart || write(N::of_bytes(element), output) == Status::Failed {
            return Status::Failed;
        }
    }
    Status::Ok
}

static OCTETS: SliceKernel = SliceKernel { name: "xml octets", scalar: Scalar::U8, get: get_octets, put: put_octets };

fn put_octets(output: &mut Output<'_>, octets: &[u8]) -> Status {
    let letters = base64::encoded_len(octets.len());
    output.put_with(letters, |room| {
        base64::encode(octets, room);
        letters
    })
}

fn get_octets(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Status {
    Status::of(octets(input, elements))
}

fn octets(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Result<(), Status> {
    let range = list(input)?;
    let letters = input.message().get(range.clone()).unwrap_or_default();
    if !letters.iter().any(|b| tokens::is_space(*b)) {
        return decode_letters(input, elements, letters, range.start);
    }
    // Other writers may split base64 into lines, so it is decoded in groups of four letters.
    let (mut group, mut len) = ([0; 4], 0);
    for (at, letter) in letters.iter().enumerate().filter(|(_, b)| !tokens::is_space(**b)) {
        group[len] = *letter;
        len += 1;
        if len == 4 {
            decode_letters(input, elements, &group, range.start + at - 3)?;
            len = 0;
        }
    }
    decode_letters(input, elements, &group[..len], range.end - len)
}

fn decode_letters(input: &mut Input<'_>, elements: &mut Elements<'_>, letters: &[u8], at: usize) -> Result<(), Status> {
    let wrong = |input: &mut Input<'_>, ahead: usize| {
        input.seek((at + ahead).min(input.position()));
        input.fail(FaultKind::Syntax, 0, letters.get(ahead).copied().unwrap_or(0).into())
    };
    let len = base64::decoded_len(letters).ok_or_else(|| wrong(input, letters.len()))?;
    if len > 0 {
        let room = elements.spare(input, len)?.get_mut(..len).unwrap_or_default();
        base64::decode(letters, room).map_err(|ahead| wrong(input, ahead))?;
        elements.take(len);
    }
    Ok(())
}

static BOOL: ScalarKernel = ScalarKernel::new("xml bool", Scalar::Bool, get_bool, put_bool);

extern "C" fn get_bool(input: &mut Input<'_>, word: &mut u64) -> Status {
    let start = input.position();
    let mut buffer = [0; 64];
    let text = match tokens::text(input) {
        Ok(raw) => raw.token(&mut buffer),
        Err(status) => return status,
    };
    *word = match text {
        Some(b"true" | b"1") => 1,
        Some(b"false" | b"0") => 0,
        _ => {
            input.seek(start);
            return tokens::wrong_kind(input);
        }
    };
    Status::Ok
}

extern "C" fn put_bool(output: &mut Output<'_>, word: u64) -> Status {
    output.put(if word == 0 { b"false" } else { b"true" })
}

static CHAR8: ScalarKernel = ScalarKernel::new("xml char", Scalar::U8, get_char::<0xFF>, put_char);
static CHAR16: ScalarKernel = ScalarKernel::new("xml wchar", Scalar::U16, get_char::<0xFFFF>, put_char);

/// A text of one character, or half of a surrogate pair as `_xHHHH_`.
extern "C" fn get_char<const LARGEST: u32>(input: &mut Input<'_>, word: &mut u64) -> Status {
    let start = input.position();
    let mut buffer = [0; 64];
    let code = match tokens::text(input) {
        Ok(raw) => raw.plain(&mut buffer).and_then(|text| {
            let mut chars = core::str::from_utf8(text).ok()?.chars();
            match (chars.next(), chars.next()) {
                (Some(c), None) => Some(u32::from(c)),
                _ => tokens::escape_code(text).filter(|_| text.len() == 7),
            }
        }),
        Err(status) => return status,
    };
    match code {
        Some(code) if code <= LARGEST => {
            *word = code.into();
            Status::Ok
        }
        other => {
            input.seek(start);
            match other {
                Some(_) => input.fail(FaultKind::OutOfRange, (32 - LARGEST.leading_zeros()).into(), 0),
                None => tokens::wrong_kind(input),
            }
        }
    }
}

extern "C" fn put_char(output: &mut Output<'_>, word: u64) -> Status {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    match char::from_u32(word as u32) {
        Some(c) => tokens::put_attribute(output, c.encode_utf8(&mut [0; 4])),
        None => {
            let digit = |shift: u32| HEX[(word >> shift) as usize & 15];
            output.put(&[b'_', b'x', digit(12), digit(8), digit(4), digit(0), b'_'])
        }
    }
}

static F128: ScalarKernel = ScalarKernel::wide("xml long double", get_f128, put_f128);

fn put_f128(output: &mut Output<'_>, bits: u128) -> Status {
    number::put_hex128(output, bits)
}

/// Reads a `long double`: 32 hexadecimal digits after `0x`, the name of NaN or an infinity, or a
/// number that `f64` holds exactly.
fn get_f128(input: &mut Input<'_>) -> Result<u128, Status> {
    let start = input.position();
    let mut buffer = [0; 512];
    let text = tokens::text(input)?.token(&mut buffer).unwrap_or_default();
    let mut room = [0; 512];
    let bits = match text.strip_prefix(b"0x") {
        Some(digits) if digits.len() == 32 => number::read_hex128(text),
        _ => {
            let number = || float::whole_text(text, &mut room).and_then(|(number, text)| number.to_exact_f64(text));
            named_float(text).or_else(number).map(|value| Float128::from(value).to_bits())
        }
    };
    bits.ok_or_else(|| {
        input.seek(start);
        tokens::wrong_kind(input)
    })
}

/// Strings as the content of elements.
pub(super) static TEXT: TextKernel = TextKernel { name: "xml text", get: get_text, put: tokens::put_text, short: None };

/// Strings as attributes.
pub(super) static ATTRIBUTE_TEXT: TextKernel =
    TextKernel { name: "xml attribute", get: get_text, put: tokens::put_attribute, short: None };

fn get_text(input: &mut Input<'_>, target: Option<&mut String>) -> Status {
    match (tokens::text(input), target) {
        (Ok(text), Some(target)) => text.copy_to(input, target),
        (Ok(_), None) => Status::Ok,
        (Err(status), _) => status,
    }
}
