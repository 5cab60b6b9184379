//! Kernels for booleans, numbers and characters in JSON notation: one for each scalar and form. The
//! dialects of this folder put them into programs. They touch the input or the output only.

use super::tokens;
use crate::{
    codec::lower::keys::with_decimal,
    layout::{Float128, Scalar},
    program::{
        Elements, FaultKind, Input, Output, ScalarKernel, SliceKernel, Status,
        kernels::{
            base64, float, number,
            scalar::{Number, of_number},
        },
    },
    schema::Type,
};

/// The form of a scalar in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A JSON value.
    Value,
    /// A JSON value, with integers of 64 bits as strings.
    Quoted,
    /// A JSON value, with NaN and infinities as bare words, which JSON does not allow.
    Bare,
    /// A map key, which is always a string.
    Key,
}

/// The kernel for a scalar of a primitive type, or for the bits of a definition.
pub(super) fn kernel(ty: &Type, scalar: Scalar, form: Form) -> &'static ScalarKernel {
    match (ty, scalar, form) {
        (Type::Char8, _, Form::Key) => &KEY_CHAR8,
        (Type::Char8, ..) => &CHAR8,
        (Type::Char16, _, Form::Key) => &KEY_CHAR16,
        (Type::Char16, ..) => &CHAR16,
        (_, Scalar::Bool, Form::Key) => &KEY_BOOL,
        (_, Scalar::Bool, _) => &BOOL,
        (_, Scalar::F128, _) => &F128,
        _ => of_number!(scalar, N => Of::<N>::kernel(form)).unwrap_or(Of::<u64>::VALUE),
    }
}

/// The kernel for all elements of a sequence or array at once, if there is one.
pub(super) fn slice(ty: &Type, scalar: Scalar, form: Form, bytes_as_array: bool) -> Option<&'static SliceKernel> {
    match (ty, scalar) {
        (Type::Octet, Scalar::U8) if !bytes_as_array => Some(&OCTETS),
        (Type::Char8 | Type::Char16, _) => None,
        _ => of_number!(scalar, N => Of::<N>::slice(form)),
    }
}

/// The kernels of a number type.
struct Of<N>(core::marker::PhantomData<N>);

impl<N: Number> Of<N> {
    const VALUE: &'static ScalarKernel = &ScalarKernel::new("json number", N::SCALAR, get::<N>, put::<N, false>);
    const BARE: &'static ScalarKernel = &ScalarKernel::new("json bare number", N::SCALAR, get::<N>, put::<N, true>);
    const QUOTED: &'static ScalarKernel = &ScalarKernel::new("json text", N::SCALAR, get::<N>, put_quoted::<N>);
    const KEY: &'static ScalarKernel = &ScalarKernel::new("json key", N::SCALAR, get_quoted::<N>, put_quoted::<N>);
    const ALL: &'static SliceKernel =
        &SliceKernel { name: "json numbers", scalar: N::SCALAR, get: get_all::<N>, put: put_all::<N, false> };
    const ALL_BARE: &'static SliceKernel = &SliceKernel { put: put_all::<N, true>, ..*Self::ALL };
    const ALL_QUOTED: &'static SliceKernel = &SliceKernel { put: put_all_quoted::<N>, ..*Self::ALL };

    /// Whether [`Form::Quoted`] is about this type.
    const LONG: bool = matches!(N::SCALAR, Scalar::I64 | Scalar::U64);

    fn kernel(form: Form) -> &'static ScalarKernel {
        match form {
            Form::Bare if N::FLOAT => Self::BARE,
            Form::Quoted if Self::LONG => Self::QUOTED,
            Form::Key if !N::FLOAT => Self::KEY,
            _ => Self::VALUE,
        }
    }

    fn slice(form: Form) -> &'static SliceKernel {
        match form {
            Form::Bare if N::FLOAT => Self::ALL_BARE,
            Form::Quoted if Self::LONG => Self::ALL_QUOTED,
            _ => Self::ALL,
        }
    }
}

extern "C" fn get<N: Number>(input: &mut Input<'_>, word: &mut u64) -> Status {
    Status::give(read::<N>(input).map(|value| value.word()), word)
}

extern "C" fn put<N: Number, const BARE: bool>(output: &mut Output<'_>, word: u64) -> Status {
    write::<N, BARE>(N::of_word(word), output)
}

#[inline]
fn write<N: Number, const BARE: bool>(value: N, output: &mut Output<'_>) -> Status {
    match (value.as_f64(), BARE) {
        (finite, _) if finite.is_finite() => value.put(output),
        (named, false) => output.put(float_name(named)),
        (named, true) => {
            let name = float_name(named);
            output.put(name.get(1..name.len() - 1).unwrap_or(name))
        }
    }
}

#[inline]
fn read<N: Number>(input: &mut Input<'_>) -> Result<N, Status> {
    if tokens::peek(input) == Some(b'"') {
        return named::<N>(input);
    }
    let (number, text) = tokens::number(input)?;
    N::of_decimal(&number, text).ok_or_else(|| {
        let fits_some = N::FLOAT || (number.plain && number.exact) || number.to_integer(text).is_some();
        let bits = if fits_some { 8 * N::SIZE as u32 } else { 64 };
        out_of_range(input, input.position() - number.len, bits)
    })
}

/// A quoted number, or the name of NaN or an infinity.
#[cold]
fn named<N: Number>(input: &mut Input<'_>) -> Result<N, Status> {
    let start = input.position();
    if N::FLOAT {
        return match named_float(input) {
            Some(value) => Ok(N::of_f64(value)),
            None => quoted_number(input, |number, text| N::of_decimal(number, text).ok_or(8 * N::SIZE as u32)),
        };
    }
    let number = quoted_integer(input)?;
    integer_of::<N>(number).ok_or_else(|| out_of_range(input, start, 8 * N::SIZE as u32))
}

fn integer_of<N: Number>(value: i128) -> Option<N> {
    let (min, max) = N::SCALAR.range()?;
    (min..=max).contains(&value).then(|| N::of_word(value as u64))
}

/// An integer: a number, or a string with one. Writers quote 64-bit integers for peers that have
/// only doubles.
#[inline]
pub(super) fn integer(input: &mut Input<'_>) -> Result<i128, Status> {
    if tokens::peek(input) == Some(b'"') {
        return quoted_integer(input);
    }
    let (number, text) = tokens::number(input)?;
    if number.plain && number.exact {
        let value = i128::from(number.digits);
        return Ok(if number.negative { -value } else { value });
    }
    match number.to_integer(text) {
        Some(value) => Ok(value),
        None => Err(out_of_range(input, input.position() - number.len, 64)),
    }
}

#[cold]
fn out_of_range(input: &mut Input<'_>, at: usize, bits: u32) -> Status {
    input.seek(at);
    input.fail(FaultKind::OutOfRange, bits.into(), 0)
}

/// A quoted integer.
#[cold]
fn quoted_integer(input: &mut Input<'_>) -> Result<i128, Status> {
    let start = input.position();
    let text = tokens::string(input)?;
    let mut buffer = [0; 64];
    text.plain(&mut buffer).and_then(integer_of_text).ok_or_else(|| {
        input.seek(start);
        tokens::wrong_kind(input)
    })
}

/// Parses an integer in one of the forms of [`number_of_text`].
pub(super) fn integer_of_text(text: &[u8]) -> Option<i128> {
    let mut room = [0; 512];
    let (number, text) = number_of_text(text, &mut room)?;
    number.to_integer(text)
}

/// Splits a text that is a number as a whole. As in YAML, it may have a plus sign, leading zeros,
/// no digits on one side of the point, or octal digits after `0o`.
pub(super) fn number_of_text<'a>(text: &'a [u8], room: &'a mut [u8; 512]) -> Option<(float::Decimal, &'a [u8])> {
    let Some(value) = octal(text) else { return float::whole_text(text, room) };
    let len = with_decimal(false, value, |digits| {
        room.iter_mut().zip(digits.bytes()).for_each(|(to, from)| *to = from);
        digits.len()
    });
    let text = room.get(..len)?;
    Some((float::decimal(text).ok()?, text))
}

/// The value of octal digits after `0o`.
fn octal(text: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(text.strip_prefix(b"0o")?).ok().filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, 8).ok()
}

/// A quoted number in one of the forms of [`number_of_text`]. If `value` fails, its error is the
/// number of bits of the type.
#[cold]
fn quoted_number<R>(
    input: &mut Input<'_>,
    value: impl FnOnce(&float::Decimal, &[u8]) -> Result<R, u32>,
) -> Result<R, Status> {
    let start = input.position();
    let text = tokens::string(input)?;
    let (mut buffer, mut room) = ([0; 64], [0; 512]);
    let number = text.plain(&mut buffer).and_then(|text| number_of_text(text, &mut room));
    match number.map(|(number, text)| value(&number, text)) {
        Some(Ok(value)) => Ok(value),
        Some(Err(bits)) => Err(out_of_range(input, start, bits)),
        None => {
            input.seek(start);
            Err(tokens::wrong_kind(input))
        }
    }
}

extern "C" fn get_quoted<N: Number>(input: &mut Input<'_>, word: &mut u64) -> Status {
    match tokens::peek(input) {
        Some(b'"') => get::<N>(input, word),
        _ => tokens::unexpected(input, b'"'),
    }
}

extern "C" fn put_quoted<N: Number>(output: &mut Output<'_>, word: u64) -> Status {
    quoted(output, |output| write::<N, false>(N::of_word(word), output))
}

fn quoted(output: &mut Output<'_>, write: impl FnOnce(&mut Output<'_>) -> Status) -> Status {
    output.put(b"\"").then(|| write(output)).then(|| output.put(b"\""))
}

const NAN: &[u8] = b"\"NaN\"";
const INFINITY: &[u8] = b"\"Infinity\"";
const NEGATIVE_INFINITY: &[u8] = b"\"-Infinity\"";

fn float_name(value: f64) -> &'static [u8] {
    match value {
        v if v.is_nan() => NAN,
        v if v > 0.0 => INFINITY,
        _ => NEGATIVE_INFINITY,
    }
}

/// Accepts the name of NaN or an infinity.
#[cold]
fn named_float(input: &mut Input<'_>) -> Option<f64> {
    let names = [(NAN, f64::NAN), (INFINITY, f64::INFINITY), (NEGATIVE_INFINITY, f64::NEG_INFINITY)];
    let (name, value) = names.iter().find(|(name, _)| input.rest().starts_with(name))?;
    input.take(name.len()).ok().map(|_| *value)
}

fn get_all<N: Number>(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Status {
    Status::of(read_all::<N>(input, elements))
}

fn read_all<N: Number>(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Result<(), Status> {
    if N::SCALAR == Scalar::U8 && tokens::peek(input) == Some(b'"') {
        return octets(input, elements);
    }
    if !tokens::accept(input, b'[') {
        return Err(tokens::wrong_kind(input));
    }
    if tokens::accept(input, b']') {
        return Ok(());
    }
    loop {
        let start = input.position();
        let spare = elements.spare(input, 1)?;
        let (text, mut at, mut count) = (input.rest(), 0, 0);
        for element in spare.chunks_exact_mut(N::SIZE) {
            at += usize::from(text.get(at) == Some(&b' '));
            let rest = text.get(at..).unwrap_or_default();
            // The position is written to memory only in unusual cases; this saves a third of the
            // time.
            let (value, mark) = match N::quick(rest).map(|(value, len)| (value, len, rest.get(len))) {
                Some((value, len, Some(mark @ (b',' | b']')))) => {
                    at += len + 1;
                    (value, *mark)
                }
                _ => {
                    input.seek(start + at);
                    let read = element_and_mark::<N>(input)?;
                    at = input.position() - start;
                    read
                }
            };
            value.to_bytes(element);
            count += 1;
            if mark == b']' {
                input.seek(start + at);
                elements.take(count);
                return Ok(());
            }
        }
        input.seek(start + at);
        elements.take(count);
    }
}

#[cold]
fn element_and_mark<N: Number>(input: &mut Input<'_>) -> Result<(N, u8), Status> {
    let value = read::<N>(input)?;
    match tokens::peek(input) {
        Some(mark @ (b',' | b']')) => {
            input.seek(input.position() + 1);
            Ok((value, mark))
        }
        _ => Err(tokens::unexpected(input, b']')),
    }
}

fn put_all<N: Number, const BARE: bool>(output: &mut Output<'_>, elements: &[u8]) -> Status {
    write_all(output, elements, N::SIZE, |output, bytes| write::<N, BARE>(N::of_bytes(bytes), output))
}

fn put_all_quoted<N: Number>(output: &mut Output<'_>, elements: &[u8]) -> Status {
    write_all(output, elements, N::SIZE, |output, bytes| {
        quoted(output, |output| write::<N, false>(N::of_bytes(bytes), output))
    })
}

fn write_all(
    output: &mut Output<'_>,
    elements: &[u8],
    size: usize,
    write: impl Fn(&mut Output<'_>, &[u8]) -> Status,
) -> Status {
    if output.put(b"[") == Status::Failed {
        return Status::Failed;
    }
    for (i, element) in elements.chunks_exact(size).enumerate() {
        // Reserves room for many elements at once, so that the vector does not grow element by
        // element.
        let grow = i % 256 == 0 && output.reserve(256 * 12) == Status::Failed;
        if grow || write(output, element) == Status::Failed || output.put(b",") == Status::Failed {
            return Status::Failed;
        }
    }
    super::delimiters::close(output, b']')
}

static OCTETS: SliceKernel =
    SliceKernel { name: "json octets", scalar: Scalar::U8, get: get_all::<u8>, put: put_octets };

fn put_octets(output: &mut Output<'_>, octets: &[u8]) -> Status {
    quoted(output, |output| {
        let letters = base64::encoded_len(octets.len());
        output.put_with(letters, |room| {
            base64::encode(octets, room);
            letters
        })
    })
}

fn octets(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Result<(), Status> {
    let start = input.position();
    let text = tokens::string(input)?;
    let letters = text.as_str().as_bytes();
    let wrong = |input: &mut Input<'_>, at: usize| {
        let got = letters.get(at).copied().unwrap_or(b'"');
        input.seek(start);
        tokens::fail_at(input, at + 1, FaultKind::Syntax, 0, got.into())
    };
    // '/' may be written "\/"; no writer escapes the other characters.
    if text.is_escaped() {
        let at = letters.iter().position(|b| *b == b'\\').unwrap_or(0);
        return Err(wrong(input, at));
    }
    let len = base64::decoded_len(letters).ok_or_else(|| wrong(input, letters.len()))?;
    let room = &mut elements.spare(input, len)?[..len];
    base64::decode(letters, room).map_err(|at| wrong(input, at))?;
    elements.take(len);
    Ok(())
}

static BOOL: ScalarKernel = ScalarKernel::new("json bool", Scalar::Bool, get_bool, put_bool);

extern "C" fn get_bool(input: &mut Input<'_>, word: &mut u64) -> Status {
    *word = u64::from(tokens::accept_word(input, b"true"));
    if *word == 1 || tokens::accept_word(input, b"false") {
        return Status::Ok;
    }
    tokens::wrong_kind(input)
}

extern "C" fn put_bool(output: &mut Output<'_>, word: u64) -> Status {
    output.put(if word == 0 { b"false" } else { b"true" })
}

static KEY_BOOL: ScalarKernel = ScalarKernel::new("json key bool", Scalar::Bool, get_key_bool, put_key_bool);

extern "C" fn get_key_bool(input: &mut Input<'_>, word: &mut u64) -> Status {
    *word = u64::from(tokens::accept_word(input, b"\"true\""));
    if *word == 1 || tokens::accept_word(input, b"\"false\"") {
        return Status::Ok;
    }
    tokens::unexpected(input, b'"')
}

extern "C" fn put_key_bool(output: &mut Output<'_>, word: u64) -> Status {
    quoted(output, |output| put_bool(output, word))
}

static CHAR8: ScalarKernel = ScalarKernel::new("json char", Scalar::U8, get_char::<0xFF>, put_char);
static CHAR16: ScalarKernel = ScalarKernel::new("json wchar", Scalar::U16, get_char::<0xFFFF>, put_char);
static KEY_CHAR8: ScalarKernel = ScalarKernel::new("json key char", Scalar::U8, get_key_char::<0xFF>, put_char);
static KEY_CHAR16: ScalarKernel =
    ScalarKernel::new("json key wchar", Scalar::U16, get_key_char::<0xFFFF>, put_key_char);

/// A string of one character, or the character's code as a number, quoted or not.
extern "C" fn get_char<const LARGEST: u32>(input: &mut Input<'_>, word: &mut u64) -> Status {
    let start = input.position();
    let code = match tokens::peek(input) {
        Some(b'"') => tokens::string(input).map(|text| {
            let mut chars = text.chars();
            match (chars.next(), chars.next()) {
                (Some(c), None) => Some(i128::from(u32::from(c))),
                _ => text.as_str().parse().ok(),
            }
        }),
        _ => integer(input).map(Some),
    };
    match code {
        Ok(Some(code)) if (0..=i128::from(LARGEST)).contains(&code) => {
            *word = code as u64;
            Status::Ok
        }
        Ok(Some(_)) => out_of_range(input, start, 32 - LARGEST.leading_zeros()),
        Ok(None) => {
            input.seek(start);
            tokens::wrong_kind(input)
        }
        Err(status) => status,
    }
}

/// A string of one character, or the character's code in quotes.
extern "C" fn get_key_char<const LARGEST: u32>(input: &mut Input<'_>, word: &mut u64) -> Status {
    match tokens::peek(input) {
        Some(b'"') => get_char::<LARGEST>(input, word),
        _ => tokens::unexpected(input, b'"'),
    }
}

/// Half of a surrogate pair is not a character, so it is written as a number.
extern "C" fn put_char(output: &mut Output<'_>, word: u64) -> Status {
    match char::from_u32(word as u32) {
        Some(c) => tokens::put_string(output, c.encode_utf8(&mut [0; 4])),
        None => number::put_u64(output, word),
    }
}

extern "C" fn put_key_char(output: &mut Output<'_>, word: u64) -> Status {
    match char::from_u32(word as u32) {
        Some(_) => put_char(output, word),
        None => quoted(output, |output| put_char(output, word)),
    }
}

static F128: ScalarKernel = ScalarKernel::wide("json long double", get_f128, put_f128);

fn put_f128(output: &mut Output<'_>, bits: u128) -> Status {
    quoted(output, |output| number::put_hex128(output, bits))
}

/// Reads a `long double`: 32 hexadecimal digits after `0x`, the name of NaN or an infinity, or a
/// number that `f64` holds exactly.
fn get_f128(input: &mut Input<'_>) -> Result<u128, Status> {
    let exact = |value: f64| Float128::from(value).to_bits();
    if tokens::peek(input) == Some(b'"') {
        let quoted = input.rest().strip_prefix(b"\"").and_then(|rest| rest.get(..35));
        let bits = quoted.and_then(|quoted| quoted.strip_suffix(b"\"")).and_then(number::read_hex128);
        return match bits {
            Some(bits) => input.take(36).map(|_| bits),
            None => match named_float(input) {
                Some(value) => Ok(exact(value)),
                None => quoted_number(input, |number, text| number.to_exact_f64(text).map(exact).ok_or(128)),
            },
        };
    }
    let (number, text) = tokens::number(input)?;
    match number.to_exact_f64(text) {
        Some(value) => Ok(exact(value)),
        None => Err(out_of_range(input, input.position() - number.len, 128)),
    }
}
