//! Reading and writing of UBJSON markers: the [`kinds::Format`] of UBJSON.

use crate::{
    codec::lower::{
        keys::with_decimal,
        kinds::{self, Extent, Format as _, Head, OPEN, TypeBytes, Whole, fixed, type_byte_and_word},
    },
    layout::Scalar,
    program::{
        FaultKind, Input, Output, Status,
        kernel::{Room, ShortText},
        kernels::float,
    },
};

pub(super) struct Format;

type Read<T = ()> = Result<T, Status>;

impl kinds::Format for Format {
    const NATIVE_KEYS: bool = false;
    const COUNTED: bool = false;
    const CLOSED: bool = true;
    const TYPED: bool = true;
    const NULL_IS_NAN: bool = true;
    const SHORT_TEXT: Option<ShortText> =
        Some(ShortText { head: u32::from_le_bytes([b'S', b'i', 0, 0]), head_len: 3, below: 0x80 });
    const TYPE_BYTES: TypeBytes = TypeBytes { null: b'Z', no: b'F', yes: b'T', single: b'd', double: b'D', end: b'}' };

    #[inline]
    fn head(input: &mut Input<'_>) -> Read<Head> {
        Ok(match marker(input)? {
            b'i' => signed(i8::from_be_bytes(fixed(input)?).into()),
            b'U' => Head::Unsigned(u8::from_be_bytes(fixed(input)?).into()),
            b'I' => signed(i16::from_be_bytes(fixed(input)?).into()),
            b'l' => signed(i32::from_be_bytes(fixed(input)?).into()),
            b'L' => signed(i64::from_be_bytes(fixed(input)?)),
            b'd' => Head::Single(f32::from_be_bytes(fixed(input)?)),
            b'D' => Head::Double(f64::from_be_bytes(fixed(input)?)),
            b'S' => Head::Text(length(input)?),
            b'C' => Head::Text(1),
            b'T' => Head::Bool(true),
            b'F' => Head::Bool(false),
            b'Z' => Head::Null,
            b'[' => Head::Array(extent(input)?),
            b'{' => Head::Map(extent(input)?),
            b'H' => high_precision(input)?,
            other => return Err(unknown(input, other)),
        })
    }

    fn skip(input: &mut Input<'_>) -> Read {
        let marker = marker(input)?;
        if let Some(size) = size(marker) {
            return input.take(size).map(|_| ());
        }
        match marker {
            b'S' | b'H' => {
                let len = length(input)?;
                take(input, len).map(|_| ())
            }
            b'[' | b'{' => {
                let extent = extent(input)?;
                enter(input)?;
                skip_container(input, extent, marker == b'{')?;
                input.leave();
                Ok(())
            }
            other => Err(unknown(input, other)),
        }
    }

    #[inline]
    fn name<'a>(input: &mut Input<'a>) -> Read<Option<&'a [u8]>> {
        pass_no_ops(input);
        let len = length(input)?;
        take(input, len).map(Some)
    }

    fn ends(input: &mut Input<'_>, map: bool) -> Read<bool> {
        pass_no_ops(input);
        let is = input.rest().first() == Some(if map { &b'}' } else { &b']' });
        input.seek(input.position() + usize::from(is));
        Ok(is)
    }

    fn null(input: &mut Input<'_>) -> bool {
        if input.tag != 0 {
            let is = input.tag == u32::from(b'Z');
            input.tag = if is { 0 } else { input.tag };
            return is;
        }
        pass_no_ops(input);
        let is = input.rest().first() == Some(&b'Z');
        input.seek(input.position() + usize::from(is));
        is
    }

    fn piece<'a>(_: &mut Input<'a>, _: bool) -> Read<Option<&'a [u8]>> {
        Ok(None)
    }

    fn plain(input: &mut Input<'_>, kind: u32, scalar: Scalar, room: &mut [u8]) -> Read<bool> {
        if typed(scalar).is_none_or(|(marker, written)| u32::from(marker) != kind || written != scalar) {
            return Ok(false);
        }
        let bytes = input.take(room.len())?;
        swap(bytes, room, scalar.size());
        Ok(true)
    }

    #[inline]
    fn unsigned(room: &mut Room, value: u64) -> usize {
        match i64::try_from(value) {
            Ok(value) => Format::signed(room, value),
            Err(_) => decimal(room, value),
        }
    }

    #[inline]
    fn signed(room: &mut Room, value: i64) -> usize {
        match value {
            -0x80..0x80 => type_byte_and_word(room, b'i', value as u64, 1),
            0x80..0x100 => type_byte_and_word(room, b'U', value as u64, 1),
            -0x8000..0x8000 => type_byte_and_word(room, b'I', value as u64, 2),
            -0x8000_0000..0x8000_0000 => type_byte_and_word(room, b'l', value as u64, 4),
            _ => type_byte_and_word(room, b'L', value as u64, 8),
        }
    }

    fn put_text(output: &mut Output<'_>, text: &str) -> Status {
        if i32::try_from(text.len()).is_err() {
            return output.fail(FaultKind::Unrepresentable, i32::MAX as u64, text.len() as u64);
        }
        let (head, len) = Format::name_head(text.len());
        output.put_word(u64::from(b'S') | head << 8, len + 1).then(|| output.put(text.as_bytes()))
    }

    fn name_head(len: usize) -> (u64, usize) {
        match len as u64 {
            len @ 0..0x80 => (u64::from(b'i') | len << 8, 2),
            len @ 0x80..0x100 => (u64::from(b'U') | len << 8, 2),
            len @ 0x100..0x8000 => (u64::from(b'I') | u64::from((len as u16).swap_bytes()) << 8, 3),
            len => (u64::from(b'l') | u64::from((len as u32).swap_bytes()) << 8, 5),
        }
    }

    fn put_bytes(output: &mut Output<'_>, len: u64) -> Status {
        put_typed(output, b'U', len)
    }

    fn put_array(output: &mut Output<'_>, len: u64) -> Status {
        put_counted(output, b"[#", len)
    }

    fn put_map(output: &mut Output<'_>, len: u64) -> Status {
        match len {
            OPEN => output.put(b"{"),
            len => put_counted(output, b"{#", len),
        }
    }

    fn put_plain(output: &mut Output<'_>, scalar: Scalar, elements: &[u8]) -> Option<Status> {
        let (marker, written) = typed(scalar)?;
        let size = scalar.size();
        let status = put_typed(output, marker, (elements.len() / size) as u64);
        Some(match status {
            Status::Ok if written == scalar => output.put_with(elements.len(), |room| {
                swap(elements, room, size);
                elements.len()
            }),
            Status::Ok => put_widened(output, scalar, elements),
            failed => failed,
        })
    }

    fn put_shortest(output: &mut Output<'_>, value: f64) -> Status {
        output.put_inline(|room| type_byte_and_word(room, b'D', value.to_bits(), 8))
    }
}

/// A high-precision number, for integers that no other kind can hold: a text of at most twenty
/// digits.
#[cold]
fn decimal(room: &mut Room, value: u64) -> usize {
    with_decimal(false, value, |text| {
        let mut bytes = [0; 32];
        bytes[..3].copy_from_slice(&[b'H', b'i', text.len() as u8]);
        bytes.iter_mut().skip(3).zip(text.bytes()).for_each(|(to, from)| *to = from);
        room.set_all(bytes);
        3 + text.len()
    })
}

/// The marker of a typed array with elements of a scalar, and the scalar to write them as. `None`
/// if no marker covers all values.
fn typed(scalar: Scalar) -> Option<(u8, Scalar)> {
    Some(match scalar {
        Scalar::I8 => (b'i', scalar),
        Scalar::U8 => (b'U', scalar),
        Scalar::I16 => (b'I', scalar),
        Scalar::I32 => (b'l', scalar),
        Scalar::I64 => (b'L', scalar),
        Scalar::F32 => (b'd', scalar),
        Scalar::F64 => (b'D', scalar),
        Scalar::U16 => (b'l', Scalar::I32),
        Scalar::U32 => (b'L', Scalar::I64),
        Scalar::U64 | Scalar::F128 | Scalar::Bool => return None,
    })
}

/// Converts between the host's byte order and big endian.
fn swap(from: &[u8], to: &mut [u8], size: usize) {
    fn each<const N: usize>(from: &[u8], to: &mut [u8], swap: impl Fn([u8; N]) -> [u8; N]) {
        let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
        from.iter().zip(to).for_each(|(from, to)| *to = swap(*from));
    }
    match size {
        2 => each(from, to, |bytes| u16::from_be_bytes(bytes).to_ne_bytes()),
        4 => each(from, to, |bytes| u32::from_be_bytes(bytes).to_ne_bytes()),
        8 => each(from, to, |bytes| u64::from_be_bytes(bytes).to_ne_bytes()),
        _ => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
    }
}

/// Writes unsigned elements as signed ones of twice the size.
fn put_widened(output: &mut Output<'_>, scalar: Scalar, elements: &[u8]) -> Status {
    output.put_with(2 * elements.len(), |room| {
        match scalar {
            Scalar::U16 => {
                for (from, to) in elements.as_chunks::<2>().0.iter().zip(room.as_chunks_mut::<4>().0) {
                    *to = u32::from(u16::from_ne_bytes(*from)).to_be_bytes();
                }
            }
            _ => {
                for (from, to) in elements.as_chunks::<4>().0.iter().zip(room.as_chunks_mut::<8>().0) {
                    *to = u64::from(u32::from_ne_bytes(*from)).to_be_bytes();
                }
            }
        }
        2 * elements.len()
    })
}

/// The marker of the next value: the common one of its container, or its own.
#[inline]
fn marker(input: &mut Input<'_>) -> Read<u8> {
    if input.tag != 0 {
        return Ok(core::mem::take(&mut input.tag) as u8);
    }
    loop {
        match fixed(input)? {
            [b'N'] => {}
            [marker] => return Ok(marker),
        }
    }
}

/// Skips no-op markers.
#[inline]
fn pass_no_ops(input: &mut Input<'_>) {
    while input.rest().first() == Some(&b'N') {
        input.seek(input.position() + 1);
    }
}

/// Size of a value with this marker in bytes, if it is fixed.
fn size(marker: u8) -> Option<usize> {
    Some(match marker {
        b'Z' | b'T' | b'F' => 0,
        b'i' | b'U' | b'C' => 1,
        b'I' => 2,
        b'l' | b'd' => 4,
        b'L' | b'D' => 8,
        _ => return None,
    })
}

#[inline]
fn signed(number: i64) -> Head {
    if number < 0 { Head::Negative(!number as u64) } else { Head::Unsigned(number as u64) }
}

/// Reads an integer that is a length.
fn length(input: &mut Input<'_>) -> Read<u64> {
    let start = input.position();
    let [marker] = fixed(input)?;
    let length = match marker {
        b'i' => i8::from_be_bytes(fixed(input)?).into(),
        b'U' => u8::from_be_bytes(fixed(input)?).into(),
        b'I' => i16::from_be_bytes(fixed(input)?).into(),
        b'l' => i32::from_be_bytes(fixed(input)?).into(),
        b'L' => i64::from_be_bytes(fixed(input)?),
        other => {
            input.seek(start);
            return Err(input.fail(FaultKind::Syntax, b'i'.into(), other.into()));
        }
    };
    u64::try_from(length).map_err(|_| {
        input.seek(start);
        input.fail(FaultKind::BadLength, 0, length as u64)
    })
}

/// Reads the number and type of a container's elements.
fn extent(input: &mut Input<'_>) -> Read<Extent> {
    let mut kind = 0;
    if input.rest().first() == Some(&b'$') {
        let [_, marker] = fixed(input)?;
        if size(marker).is_none() && !b"SH[{".contains(&marker) {
            return Err(unknown(input, marker));
        }
        kind = marker.into();
    }
    match input.rest().first() {
        Some(b'#') => {
            let [_] = fixed(input)?;
            Ok(Extent { count: length(input)?, kind })
        }
        _ if kind == 0 => Ok(Extent::of(OPEN)),
        other => {
            let other = other.copied().unwrap_or(0);
            Err(input.fail(FaultKind::Syntax, b'#'.into(), other.into()))
        }
    }
}

fn skip_container(input: &mut Input<'_>, extent: Extent, map: bool) -> Read {
    if let (false, Some(size)) = (map, size(extent.kind as u8)) {
        return take(input, extent.count.saturating_mul(size as u64)).map(|_| ());
    }
    let mut left = extent.count;
    loop {
        let more = if left == OPEN { !Format::ends(input, map)? } else { left > 0 };
        if !more {
            return Ok(());
        }
        if map {
            Format::name(input)?;
        }
        input.tag = extent.kind;
        Format::skip(input)?;
        left = if left == OPEN { OPEN } else { left - 1 };
    }
}

fn enter(input: &mut Input<'_>) -> Read {
    input.enter().ok()
}

/// Reads a high-precision number. Leading zeros, and a point without digits after it, are accepted.
fn high_precision(input: &mut Input<'_>) -> Read<Head> {
    let start = input.position();
    let len = length(input)?;
    let written = take(input, len)?;
    let mut room = [0; 512];
    let begins = written.strip_prefix(b"-").unwrap_or(written).first().is_some_and(u8::is_ascii_digit);
    let Some((number, text)) = float::whole_text(written, &mut room).filter(|_| begins) else {
        input.seek(start);
        return Err(input.fail(FaultKind::Syntax, 0, b'H'.into()));
    };
    let double = number.to_f64(text);
    if !double.is_finite() {
        input.seek(start);
        return Err(input.fail(FaultKind::OutOfRange, 64, b'H'.into()));
    }
    let whole = match number.to_integer(text) {
        Some(integer) => match u64::try_from(integer) {
            Ok(integer) => Whole::Unsigned(integer),
            Err(_) => Whole::Negative(!integer as u64),
        },
        None => Whole::Other,
    };
    Ok(Head::Decimal(double, whole))
}

fn take<'a>(input: &mut Input<'a>, len: u64) -> Read<&'a [u8]> {
    input.take(usize::try_from(len).unwrap_or(usize::MAX))
}

#[cold]
fn unknown(input: &mut Input<'_>, marker: u8) -> Status {
    input.seek(input.position().saturating_sub(1));
    input.fail(FaultKind::Syntax, 0, marker.into())
}

fn put_typed(output: &mut Output<'_>, marker: u8, len: u64) -> Status {
    let head = [b'[', b'$', marker, b'#'];
    put_counted(output, &head, len)
}

fn put_counted(output: &mut Output<'_>, head: &[u8], len: u64) -> Status {
    output.put(head).then(|| Format::put_signed(output, i64::try_from(len).unwrap_or(i64::MAX)))
}
