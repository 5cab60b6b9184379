//! Reading and writing of MessagePack heads: the [`kinds::Format`] of MessagePack.

use crate::{
    codec::lower::kinds::{self, Extent, Head, TypeBytes, fixed, skip_items, type_byte_and_word},
    program::{
        FaultKind, Input, Limits, Output, Status,
        io::CodecError,
        kernel::{Room, ShortText},
    },
};

pub(super) struct Format;

const NIL: u8 = 0xC0;
const FALSE: u8 = 0xC2;
const TRUE: u8 = 0xC3;
const SINGLE: u8 = 0xCA;
const DOUBLE: u8 = 0xCB;

type Read<T = ()> = Result<T, Status>;

impl kinds::Format for Format {
    const NATIVE_KEYS: bool = true;
    const COUNTED: bool = true;
    const CLOSED: bool = false;
    const TYPED: bool = false;
    const NULL_IS_NAN: bool = false;
    const SHORT_TEXT: Option<ShortText> = Some(ShortText { head: 0xA0, head_len: 1, below: 0x20 });
    const TYPE_BYTES: TypeBytes =
        TypeBytes { null: NIL, no: FALSE, yes: TRUE, single: SINGLE, double: DOUBLE, end: NIL };

    #[inline(always)]
    fn head(input: &mut Input<'_>) -> Read<Head> {
        let [first] = fixed(input)?;
        Ok(match first {
            0x00..=0x7F => Head::Unsigned(first.into()),
            0xE0..=0xFF => Head::Negative((!first).into()),
            0xA0..=0xBF => Head::Text((first & 0x1F).into()),
            0x80..=0x8F => Head::Map(Extent::of((first & 0x0F).into())),
            0x90..=0x9F => Head::Array(Extent::of((first & 0x0F).into())),
            DOUBLE => Head::Double(f64::from_be_bytes(fixed(input)?)),
            SINGLE => Head::Single(f32::from_be_bytes(fixed(input)?)),
            FALSE => Head::Bool(false),
            TRUE => Head::Bool(true),
            NIL => Head::Null,
            0xCC..=0xCF => Head::Unsigned(unsigned(input, first & 3)?),
            0xD0..=0xD3 => signed(input, first & 3)?,
            0xD9..=0xDB => Head::Text(unsigned(input, first - 0xD9)?),
            0xC4..=0xC6 => Head::Bytes(unsigned(input, first - 0xC4)?),
            0xDC..=0xDD => Head::Array(Extent::of(unsigned(input, first - 0xDB)?)),
            0xDE..=0xDF => Head::Map(Extent::of(unsigned(input, first - 0xDD)?)),
            0xC7..=0xC9 | 0xD4..=0xD8 => Head::Other,
            0xC1 => return Err(unused(input)),
        })
    }

    fn skip(input: &mut Input<'_>) -> Read {
        // Extensions come first, because they have no [`Head`].
        let extension = match input.rest().first() {
            Some(first @ 0xC7..=0xC9) => Some(first - 0xC7),
            Some(first @ 0xD4..=0xD8) => {
                let octets = 1 << (first - 0xD4);
                return input.take(2 + octets).map(|_| ());
            }
            _ => None,
        };
        if let Some(width) = extension {
            let [_] = fixed(input)?;
            let len = unsigned(input, width)? as usize;
            return input.take(len.saturating_add(1)).map(|_| ());
        }
        match Format::head(input)? {
            Head::Text(len) | Head::Bytes(len) => input.take(len as usize).map(|_| ()),
            Head::Array(extent) => skip_items::<Format>(input, extent.count),
            Head::Map(extent) => skip_items::<Format>(input, 2 * extent.count),
            _ => Ok(()),
        }
    }

    #[inline]
    fn name<'a>(input: &mut Input<'a>) -> Read<Option<&'a [u8]>> {
        let start = input.position();
        if let Head::Text(len) = Format::head(input)? {
            return input.take(len as usize).map(Some);
        }
        input.seek(start);
        Format::skip(input).map(|()| None)
    }

    fn ends(_: &mut Input<'_>, _: bool) -> Read<bool> {
        Ok(false)
    }

    #[inline]
    fn null(input: &mut Input<'_>) -> bool {
        let is = input.rest().first() == Some(&NIL);
        input.seek(input.position() + usize::from(is));
        is
    }

    fn piece<'a>(_: &mut Input<'a>, _: bool) -> Read<Option<&'a [u8]>> {
        Ok(None)
    }

    #[inline]
    fn unsigned(room: &mut Room, value: u64) -> usize {
        match value {
            0..0x80 => type_byte_and_word(room, value as u8, 0, 1) - 1,
            0x80..0x100 => type_byte_and_word(room, 0xCC, value, 1),
            0x100..0x1_0000 => type_byte_and_word(room, 0xCD, value, 2),
            0x1_0000..0x1_0000_0000 => type_byte_and_word(room, 0xCE, value, 4),
            _ => type_byte_and_word(room, 0xCF, value, 8),
        }
    }

    #[inline]
    fn signed(room: &mut Room, value: i64) -> usize {
        match value {
            0.. => Format::unsigned(room, value as u64),
            -0x20.. => type_byte_and_word(room, value as u8, 0, 1) - 1,
            -0x80.. => type_byte_and_word(room, 0xD0, value as u64, 1),
            -0x8000.. => type_byte_and_word(room, 0xD1, value as u64, 2),
            -0x8000_0000.. => type_byte_and_word(room, 0xD2, value as u64, 4),
            _ => type_byte_and_word(room, 0xD3, value as u64, 8),
        }
    }

    fn put_text(output: &mut Output<'_>, text: &str) -> Status {
        if u32::try_from(text.len()).is_err() {
            return output.fail(FaultKind::Unrepresentable, u32::MAX.into(), text.len() as u64);
        }
        let (head, len) = Format::name_head(text.len());
        output.put_word(head, len).then(|| output.put(text.as_bytes()))
    }

    fn name_head(len: usize) -> (u64, usize) {
        match len as u64 {
            len @ 0..0x20 => (0xA0 | len, 1),
            len => wide_head([0xD9, 0xDA, 0xDB], len),
        }
    }

    fn put_bytes(output: &mut Output<'_>, len: u64) -> Status {
        put_head(output, wide_head([0xC4, 0xC5, 0xC6], len), len)
    }

    fn put_array(output: &mut Output<'_>, len: u64) -> Status {
        match len {
            0..0x10 => output.put_word(0x90 | len, 1),
            _ => put_head(output, wide_head([0xDC, 0xDC, 0xDD], len), len),
        }
    }

    fn put_map(output: &mut Output<'_>, len: u64) -> Status {
        match len {
            0..0x10 => output.put_word(0x80 | len, 1),
            _ => put_head(output, wide_head([0xDE, 0xDE, 0xDF], len), len),
        }
    }

    fn put_shortest(output: &mut Output<'_>, value: f64) -> Status {
        output.put_inline(|room| type_byte_and_word(room, DOUBLE, value.to_bits(), 8))
    }
}

/// Reads a number of 1, 2, 4 or 8 bytes; `width` is 0 to 3.
#[inline(always)]
fn unsigned(input: &mut Input<'_>, width: u8) -> Read<u64> {
    Ok(match width {
        0 => u8::from_be_bytes(fixed(input)?).into(),
        1 => u16::from_be_bytes(fixed(input)?).into(),
        2 => u32::from_be_bytes(fixed(input)?).into(),
        _ => u64::from_be_bytes(fixed(input)?),
    })
}

#[inline(always)]
fn signed(input: &mut Input<'_>, width: u8) -> Read<Head> {
    let number = match width {
        0 => i8::from_be_bytes(fixed(input)?).into(),
        1 => i16::from_be_bytes(fixed(input)?).into(),
        2 => i32::from_be_bytes(fixed(input)?).into(),
        _ => i64::from_be_bytes(fixed(input)?),
    };
    Ok(if number < 0 { Head::Negative(!number as u64) } else { Head::Unsigned(number as u64) })
}

#[cold]
fn unused(input: &mut Input<'_>) -> Status {
    input.seek(input.position() - 1);
    input.fail(FaultKind::Syntax, 0, 0xC1)
}

/// A type byte followed by a length of one, two or four bytes. If the first two type bytes are
/// equal, there is none for a length of one byte.
fn wide_head(marks: [u8; 3], len: u64) -> (u64, usize) {
    let [short, middle, long] = marks.map(u64::from);
    match len {
        0..0x100 if short != middle => (short | len << 8, 2),
        0..0x1_0000 => (middle | u64::from((len as u16).swap_bytes()) << 8, 3),
        _ => (long | u64::from((len as u32).swap_bytes()) << 8, 5),
    }
}

fn put_head(output: &mut Output<'_>, (head, bytes): (u64, usize), len: u64) -> Status {
    match u32::try_from(len) {
        Ok(_) => output.put_word(head, bytes),
        Err(_) => output.fail(FaultKind::Unrepresentable, u32::MAX.into(), len),
    }
}

/// Checks that `bytes` are exactly one well-formed value. Does not check that text is UTF-8;
/// neither does decoding in values that it skips.
///
/// ```
/// use polywire_core::{codec::msgpack, program::Limits};
///
/// assert!(msgpack::validate(b"\x82\xA1a\x01\xA1b\xD4\x05\xFF", &Limits::default()).is_ok());
/// assert!(msgpack::validate(b"\x82\xA1a\x01\xA1b", &Limits::default()).is_err());
/// ```
pub fn validate(bytes: &[u8], limits: &Limits) -> Result<(), CodecError> {
    kinds::validate::<Format>(bytes, limits)
}
