//! Reading and writing of CBOR heads: the [`kinds::Format`] of CBOR.

use super::{half, sort};
use crate::{
    codec::lower::kinds::{self, Extent, Format as _, Head, OPEN, TypeBytes, fixed, skip_items, type_byte_and_word},
    program::{
        FaultKind, Input, Output, Status,
        kernel::{Room, ShortText},
    },
};

pub(super) struct Format;

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

const FALSE: u8 = 0xF4;
const TRUE: u8 = 0xF5;
const NULL: u8 = 0xF6;
const UNDEFINED: u8 = 0xF7;
const HALF: u8 = 0xF9;
const SINGLE: u8 = 0xFA;
const DOUBLE: u8 = 0xFB;
const BREAK: u8 = 0xFF;

const POSITIVE_BIGNUM: u64 = 2;
const NEGATIVE_BIGNUM: u64 = 3;

type Read<T = ()> = Result<T, Status>;

impl kinds::Format for Format {
    const NATIVE_KEYS: bool = true;
    const COUNTED: bool = false;
    const CLOSED: bool = false;
    const TYPED: bool = false;
    const NULL_IS_NAN: bool = false;
    const SHORT_TEXT: Option<ShortText> = Some(ShortText { head: 0x60, head_len: 1, below: 0x18 });
    const TYPE_BYTES: TypeBytes =
        TypeBytes { null: NULL, no: FALSE, yes: TRUE, single: SINGLE, double: DOUBLE, end: BREAK };

    #[inline(always)]
    fn head(input: &mut Input<'_>) -> Read<Head> {
        let [first] = fixed(input)?;
        match first {
            0x00..=0x17 => Ok(Head::Unsigned(first.into())),
            0x60..=0x77 => Ok(Head::Text((first & 0x1F).into())),
            DOUBLE => Ok(Head::Double(f64::from_be_bytes(fixed(input)?))),
            SINGLE => Ok(Head::Single(f32::from_be_bytes(fixed(input)?))),
            _ => any_head(input, first),
        }
    }

    fn skip(input: &mut Input<'_>) -> Read {
        loop {
            let [first] = fixed(input)?;
            let (major, info) = (first >> 5, first & 0x1F);
            if major > TAG {
                return simple(input, info).map(|_| ());
            }
            let argument = argument(input, major, info)?;
            return match (major, argument) {
                (TAG, _) => continue,
                (BYTES | TEXT, OPEN) => {
                    while Format::piece(input, major == TEXT)?.is_some() {}
                    Ok(())
                }
                (BYTES | TEXT, len) => take(input, len).map(|_| ()),
                (ARRAY | MAP, OPEN) => skip_open(input, u64::from(major - ARRAY) + 1),
                (ARRAY, count) => skip_items::<Format>(input, count),
                (MAP, count) => skip_items::<Format>(input, count.saturating_mul(2)),
                _ => Ok(()),
            };
        }
    }

    #[inline]
    fn name<'a>(input: &mut Input<'a>) -> Read<Option<&'a [u8]>> {
        let start = input.position();
        match Format::head(input)? {
            Head::Text(OPEN) => name_in_pieces(input).map(Some),
            Head::Text(len) => take(input, len).map(Some),
            _ => {
                input.seek(start);
                Format::skip(input).map(|()| None)
            }
        }
    }

    #[inline]
    fn ends(input: &mut Input<'_>, _: bool) -> Read<bool> {
        Ok(next_is(input, &[BREAK]))
    }

    #[inline]
    fn null(input: &mut Input<'_>) -> bool {
        next_is(input, &[NULL, UNDEFINED])
    }

    fn piece<'a>(input: &mut Input<'a>, text: bool) -> Read<Option<&'a [u8]>> {
        let [first] = fixed(input)?;
        let major = if text { TEXT } else { BYTES };
        if first == BREAK {
            return Ok(None);
        }
        if first >> 5 != major || first & 0x1F == 31 {
            return Err(malformed(input));
        }
        let len = argument(input, major, first & 0x1F)?;
        take(input, len).map(Some)
    }

    #[inline]
    fn unsigned(room: &mut Room, value: u64) -> usize {
        number(room, UNSIGNED, value)
    }

    #[inline]
    fn signed(room: &mut Room, value: i64) -> usize {
        // Only the sign selects the major type; the rest is computed without a branch.
        let negative = value >> 63;
        number(room, NEGATIVE & negative as u8, (value ^ negative) as u64)
    }

    fn put_text(output: &mut Output<'_>, text: &str) -> Status {
        put_head(output, TEXT, text.len() as u64).then(|| output.put(text.as_bytes()))
    }

    fn name_head(len: usize) -> (u64, usize) {
        head(TEXT, len as u64)
    }

    fn put_bytes(output: &mut Output<'_>, len: u64) -> Status {
        put_head(output, BYTES, len)
    }

    fn put_array(output: &mut Output<'_>, len: u64) -> Status {
        put_head(output, ARRAY, len)
    }

    fn put_map(output: &mut Output<'_>, len: u64) -> Status {
        put_head(output, MAP, len)
    }

    fn put_shortest(output: &mut Output<'_>, value: f64) -> Status {
        let single = half::single(value);
        output.put_inline(|room| match (single.and_then(half::half), single) {
            (Some(half), _) => type_byte_and_word(room, HALF, half.into(), 2),
            (None, Some(single)) => type_byte_and_word(room, SINGLE, single.to_bits().into(), 4),
            (None, None) => type_byte_and_word(room, DOUBLE, value.to_bits(), 8),
        })
    }

    fn sort(output: &mut Output<'_>, start: usize) -> Status {
        sort::sort(output, start)
    }
}

/// Reads the less common heads.
fn any_head(input: &mut Input<'_>, mut first: u8) -> Read<Head> {
    let mut tag = 0;
    loop {
        let (major, info) = (first >> 5, first & 0x1F);
        if major > TAG {
            return simple(input, info);
        }
        let argument = argument(input, major, info)?;
        return Ok(match major {
            UNSIGNED => Head::Unsigned(argument),
            NEGATIVE => Head::Negative(argument),
            BYTES if tag == POSITIVE_BIGNUM || tag == NEGATIVE_BIGNUM => {
                let number =
                    if argument == OPEN { bignum_in_pieces(input)? } else { bignum(0, take(input, argument)?) };
                match (number, tag == POSITIVE_BIGNUM) {
                    (Some(number), true) => Head::Unsigned(number),
                    (Some(number), false) => Head::Negative(number),
                    (None, _) => Head::Other,
                }
            }
            BYTES => Head::Bytes(argument),
            TEXT => Head::Text(argument),
            ARRAY => Head::Array(Extent::of(argument)),
            MAP => Head::Map(Extent::of(argument)),
            _ => {
                tag = argument;
                [first] = fixed(input)?;
                continue;
            }
        });
    }
}

/// Reads the argument after a first byte: a number, a length, or [`OPEN`].
#[inline(always)]
fn argument(input: &mut Input<'_>, major: u8, info: u8) -> Read<u64> {
    Ok(match info {
        0..=23 => info.into(),
        24 => u8::from_be_bytes(fixed(input)?).into(),
        25 => u16::from_be_bytes(fixed(input)?).into(),
        26 => u32::from_be_bytes(fixed(input)?).into(),
        // `OPEN` means an unknown length; no message is long enough for the length that this
        // changes.
        27 if (BYTES..TAG).contains(&major) => u64::from_be_bytes(fixed(input)?).min(OPEN - 1),
        27 => u64::from_be_bytes(fixed(input)?),
        31 if (BYTES..TAG).contains(&major) => OPEN,
        _ => return Err(malformed(input)),
    })
}

fn simple(input: &mut Input<'_>, info: u8) -> Read<Head> {
    Ok(match info {
        0..=19 => Head::Other,
        20 => Head::Bool(false),
        21 => Head::Bool(true),
        22 | 23 => Head::Null,
        24 => match fixed(input)? {
            [0..=31] => return Err(malformed(input)),
            _ => Head::Other,
        },
        25 => Head::Single(half::widen(u16::from_be_bytes(fixed(input)?))),
        26 => Head::Single(f32::from_be_bytes(fixed(input)?)),
        27 => Head::Double(f64::from_be_bytes(fixed(input)?)),
        _ => return Err(malformed(input)),
    })
}

/// The value of a bignum whose leading octets were read. `None` if it exceeds 64 bits.
fn bignum(front: u64, octets: &[u8]) -> Option<u64> {
    octets.iter().try_fold(front, |number, octet| Some(number.checked_mul(256)? | u64::from(*octet)))
}

#[cold]
fn bignum_in_pieces(input: &mut Input<'_>) -> Read<Option<u64>> {
    let mut number = Some(0);
    while let Some(piece) = Format::piece(input, false)? {
        number = number.and_then(|number| bignum(number, piece));
    }
    Ok(number)
}

/// A name in pieces, of which only one may be non-empty. Joining pieces would take memory, and no
/// writer splits names.
fn name_in_pieces<'a>(input: &mut Input<'a>) -> Read<&'a [u8]> {
    let mut name: &[u8] = &[];
    while let Some(piece) = Format::piece(input, true)? {
        match (name, piece) {
            (_, []) => {}
            ([], piece) => name = piece,
            _ => return Err(input.fail(FaultKind::Syntax, 1, 2)),
        }
    }
    Ok(name)
}

fn skip_open(input: &mut Input<'_>, items: u64) -> Read {
    input.enter().ok()?;
    while !next_is(input, &[BREAK]) {
        for _ in 0..items {
            Format::skip(input)?;
        }
    }
    input.leave();
    Ok(())
}

/// Tests whether one of these bytes follows, and skips it.
#[inline(always)]
fn next_is(input: &mut Input<'_>, bytes: &[u8]) -> bool {
    let is = input.rest().first().is_some_and(|first| bytes.contains(first));
    input.seek(input.position() + usize::from(is));
    is
}

fn take<'a>(input: &mut Input<'a>, len: u64) -> Read<&'a [u8]> {
    input.take(usize::try_from(len).unwrap_or(usize::MAX))
}

#[cold]
fn malformed(input: &mut Input<'_>) -> Status {
    input.seek(input.position().saturating_sub(1));
    let got = input.rest().first().copied().unwrap_or(0);
    input.fail(FaultKind::Syntax, 0, got.into())
}

/// A head of at most five bytes as a word, with its length.
#[inline]
fn head(major: u8, argument: u64) -> (u64, usize) {
    let major = u64::from(major << 5);
    match argument {
        0..24 => (major | argument, 1),
        24..0x100 => (major | 24 | argument << 8, 2),
        0x100..0x1_0000 => (major | 25 | u64::from((argument as u16).swap_bytes()) << 8, 3),
        _ => (major | 26 | u64::from((argument as u32).swap_bytes()) << 8, 5),
    }
}

/// Writes a head.
#[inline(always)]
fn number(room: &mut Room, major: u8, value: u64) -> usize {
    let first = major << 5;
    match value {
        0..24 => type_byte_and_word(room, first | value as u8, 0, 1) - 1,
        24..0x100 => type_byte_and_word(room, first | 24, value, 1),
        0x100..0x1_0000 => type_byte_and_word(room, first | 25, value, 2),
        0x1_0000..0x1_0000_0000 => type_byte_and_word(room, first | 26, value, 4),
        _ => type_byte_and_word(room, first | 27, value, 8),
    }
}

#[inline]
fn put_head(output: &mut Output<'_>, major: u8, argument: u64) -> Status {
    output.put_inline(|room| number(room, major, argument))
}
