//! Kernels that write values, tags, messages and map entries.

use crate::{
    layout::Scalar,
    program::{
        ActionKernel, Cursor, FaultKind, Output, RegionDialect, SliceKernel, Status,
        kernel::{InlineForm, InlineKernel, NumberForm, RegionForm, Room},
    },
};

use super::{
    get,
    kinds::LENGTH,
    varint::{self, SHORT, spread},
};

/// Write a tag and a value. The argument is the result of [`tag_word`]; without a tag it is 0.
pub(super) static UNSIGNED: InlineKernel =
    inline_kernel("varint", Scalar::U64, put_unsigned, NumberForm::Varint, false);
pub(super) static SIGNED: InlineKernel = inline_kernel("zigzag", Scalar::I64, put_signed, NumberForm::Zigzag, false);
pub(super) static ENUM: InlineKernel = inline_kernel("enum", Scalar::I64, put_unsigned, NumberForm::Varint, false);

/// Write a tag and a value, but nothing if the value is zero.
pub(super) static FIELD_UNSIGNED: InlineKernel =
    inline_kernel("varint field", Scalar::U64, put_field_unsigned, NumberForm::Varint, true);
pub(super) static FIELD_SIGNED: InlineKernel =
    inline_kernel("zigzag field", Scalar::I64, put_field_signed, NumberForm::Zigzag, true);
pub(super) static FIELD_ENUM: InlineKernel =
    inline_kernel("enum field", Scalar::I64, put_field_unsigned, NumberForm::Varint, true);
pub(super) static FIELD_SINGLE: InlineKernel =
    inline_kernel("single field", Scalar::F32, put_field_single, NumberForm::Fixed, true);
pub(super) static FIELD_DOUBLE: InlineKernel =
    inline_kernel("double field", Scalar::F64, put_field_double, NumberForm::Fixed, true);

const fn inline_kernel(
    name: &'static str,
    scalar: Scalar,
    put: extern "C" fn(&mut Room, u64, u64) -> usize,
    number: NumberForm,
    unless_zero: bool,
) -> InlineKernel {
    InlineKernel { exact: true, ..InlineKernel::new(name, scalar, put, Some(InlineForm { number, unless_zero })) }
}

/// Packs the bytes of a tag into a word, with their number in the highest byte.
pub(super) fn tag_word(tag: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(tag).for_each(|(to, from)| *to = *from);
    word[7] = tag.len() as u8;
    u64::from_le_bytes(word)
}

/// Writes a tag and a value of `bytes` bytes, at most fifteen together.
#[inline(always)]
fn put_field(room: &mut Room, tag: u64, value: u128, bytes: usize) -> usize {
    let len = (tag >> 56) as usize;
    let word = u128::from(tag & 0xFF_FFFF_FFFF_FFFF) | value.wrapping_shl(8 * len as u32);
    room.set(word.to_le_bytes());
    len + bytes
}

extern "C" fn put_unsigned(room: &mut Room, tag: u64, value: u64) -> usize {
    match value {
        ..SHORT => {
            let (word, bytes) = spread(value);
            put_field(room, tag, word.into(), bytes)
        }
        _ => put_long_field(room, tag, value),
    }
}

extern "C" fn put_signed(room: &mut Room, tag: u64, value: u64) -> usize {
    put_unsigned(room, tag, zigzag(value as i64))
}

extern "C" fn put_field_unsigned(room: &mut Room, tag: u64, value: u64) -> usize {
    if value == 0 { 0 } else { put_unsigned(room, tag, value) }
}

#[cold]
fn put_long_field(room: &mut Room, tag: u64, value: u64) -> usize {
    let (bytes, len) = varint::bytes(value);
    let mut word = [0; 16];
    word[..bytes.len()].copy_from_slice(&bytes);
    put_field(room, tag, u128::from_le_bytes(word), len)
}

extern "C" fn put_field_signed(room: &mut Room, tag: u64, value: u64) -> usize {
    put_field_unsigned(room, tag, zigzag(value as i64))
}

extern "C" fn put_field_single(room: &mut Room, tag: u64, bits: u64) -> usize {
    if bits == 0 { 0 } else { put_field(room, tag, bits.into(), 4) }
}

extern "C" fn put_field_double(room: &mut Room, tag: u64, bits: u64) -> usize {
    if bits == 0 { 0 } else { put_field(room, tag, bits.into(), 8) }
}

/// Maps signed numbers to unsigned ones such that a small magnitude gives a small number.
#[inline(always)]
pub(super) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

#[inline(always)]
pub(super) fn put_varint(output: &mut Output<'_>, value: u64) -> Status {
    if value < SHORT {
        let (word, len) = spread(value);
        return output.put_word(word, len);
    }
    let (bytes, len) = varint::bytes(value);
    output.put(bytes.get(..len).unwrap_or(&bytes))
}

/// Writes text or octets with their length in front.
pub(super) fn put_text(output: &mut Output<'_>, text: &str) -> Status {
    put_octets(output, text.as_bytes())
}

fn put_octets(output: &mut Output<'_>, octets: &[u8]) -> Status {
    put_varint(output, octets.len() as u64).then(|| output.put(octets))
}

pub(super) static OCTETS: SliceKernel =
    SliceKernel { name: "octets", scalar: Scalar::U8, get: get::octets, put: put_octets };

/// An embedded message with its length in front. When decoding, the tag was read before.
pub(super) static MESSAGE: RegionDialect = RegionDialect {
    form: Some(RegionForm::Length { tag: LENGTH }),
    ..RegionDialect::new("message", [get::begin_message, get::end_message], [put_begin, put_end])
};

/// The whole message. When decoding, the unread rest is skipped.
pub(super) static ROOT: RegionDialect = RegionDialect {
    form: Some(RegionForm::Rest),
    ..RegionDialect::get_only("root message", get::begin_root, get::end_message)
};

extern "C" fn put_begin(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    cursor.0[0] = output.position() as u64;
    output.put_word(0, 1)
}

extern "C" fn put_end(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    close(output, cursor.0[0] as usize, 1)
}

/// Writes the length of what follows `start` and `room` reserved bytes into those bytes, and moves
/// the contents if the length needs another number of bytes.
pub(super) fn close(output: &mut Output<'_>, start: usize, room: usize) -> Status {
    let len = output.position().saturating_sub(start + room);
    if room == 1 && len < 0x80 {
        if let Some(byte) = output.written().get_mut(start) {
            *byte = len as u8;
        }
        return Status::Ok;
    }
    if len > i32::MAX as usize {
        return output.fail(FaultKind::Unrepresentable, i32::MAX as u64, len as u64);
    }
    let (head, head_len) = varint::bytes(len as u64);
    let end = start + head_len + len;
    if head_len > room && output.put_word(0, head_len - room) == Status::Failed {
        return Status::Failed;
    }
    if let Some(written) = output.written().get_mut(start..) {
        written.copy_within(room..room + len, head_len);
        written.iter_mut().zip(&head[..head_len]).for_each(|(to, from)| *to = *from);
    }
    output.truncate(end);
    Status::Ok
}

/// A map entry. The argument is its tag from [`tag_word`]. While the entry is written, eight bytes
/// at the place of its length hold the outer value of [`Output::mark`].
pub(super) static BEGIN_ENTRY: ActionKernel = ActionKernel::put_only("entry", begin_entry);
pub(super) static END_ENTRY: ActionKernel = ActionKernel::put_only("entry's end", end_entry);

extern "C" fn begin_entry(output: &mut Output<'_>, tag: u64) -> Status {
    if output.put_word(tag & 0xFF_FFFF_FFFF_FFFF, (tag >> 56) as usize) == Status::Failed {
        return Status::Failed;
    }
    let outer = output.mark as u64;
    output.mark = output.position();
    output.put_word(outer, 8)
}

extern "C" fn end_entry(output: &mut Output<'_>, _: u64) -> Status {
    let start = output.mark;
    let outer = output.written().get(start..).and_then(|entry| entry.first_chunk()).copied();
    output.mark = outer.map_or(0, u64::from_le_bytes) as usize;
    close(output, start, 8)
}
