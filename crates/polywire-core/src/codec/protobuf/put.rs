//! Kernels that write.

use crate::{
    layout::Scalar,
    program::{
        ActionKernel, Cursor, FaultKind, Input, Output, RegionDialect, ScalarKernel, SliceKernel, Status, SymbolKernel,
        SymbolTable,
    },
};

use super::get;

/// Values without their tag. Those that read expect the tag in [`Input::tag`].
pub(super) static BOOL: ScalarKernel =
    ScalarKernel { name: "bool", scalar: Scalar::Bool, get: get::boolean, put: put_unsigned, wide: None };
pub(super) static UNSIGNED: ScalarKernel =
    ScalarKernel { name: "varint", scalar: Scalar::U64, get: get::unsigned, put: put_unsigned, wide: None };
pub(super) static SIGNED: ScalarKernel =
    ScalarKernel { name: "zigzag", scalar: Scalar::I64, get: get::signed, put: put_signed, wide: None };
pub(super) static ENUM: ScalarKernel =
    ScalarKernel { name: "enum", scalar: Scalar::I64, get: get::enumeration, put: put_unsigned, wide: None };

/// Tag and value, unless it is zero. The table has one number: the tag's bytes, and how many they are in the highest byte.
pub(super) static FIELD_UNSIGNED: SymbolKernel = field("varint field", Scalar::U64, put_field_unsigned);
pub(super) static FIELD_SIGNED: SymbolKernel = field("zigzag field", Scalar::I64, put_field_signed);
pub(super) static FIELD_SINGLE: SymbolKernel = field("single field", Scalar::F32, put_field_single);
pub(super) static FIELD_DOUBLE: SymbolKernel = field("double field", Scalar::F64, put_field_double);

const fn field(
    name: &'static str,
    scalar: Scalar,
    put: extern "C" fn(&mut Output<'_>, &SymbolTable, u64) -> Status,
) -> SymbolKernel {
    SymbolKernel { name, scalar, get: no_symbol, put }
}

/// What fields of a tag are made with: see [`FIELD_UNSIGNED`].
pub(super) fn tag_table(tag: &[u8]) -> SymbolTable {
    let mut word = [0; 8];
    word.iter_mut().zip(tag).for_each(|(to, from)| *to = *from);
    word[7] = tag.len() as u8;
    SymbolTable::new([(i64::from_le_bytes(word), "tag".into())], None)
}

/// The tag's bytes and their number.
#[inline(always)]
fn tag_of(table: &SymbolTable) -> (u64, u32) {
    let word = table.iter().next().map_or(0, |(word, _)| word as u64);
    (word & 0xFF_FFFF_FFFF_FFFF, (word >> 56) as u32)
}

extern "C" fn put_field_unsigned(output: &mut Output<'_>, table: &SymbolTable, value: u64) -> Status {
    let (tag, len) = tag_of(table);
    match value {
        0 => Status::Ok,
        // Tag and value in one go: they are at most eight bytes together where the value has three.
        1..0x20_0000 => {
            let (varint, bytes) = short_varint(value);
            output.put_word(tag | varint << (8 * len), len as usize + bytes)
        }
        _ => match output.put_word(tag, len as usize) {
            Status::Ok => put_varint(output, value),
            failed => failed,
        },
    }
}

extern "C" fn put_field_signed(output: &mut Output<'_>, table: &SymbolTable, value: u64) -> Status {
    put_field_unsigned(output, table, zigzag(value as i64))
}

extern "C" fn put_field_single(output: &mut Output<'_>, table: &SymbolTable, bits: u64) -> Status {
    let (tag, len) = tag_of(table);
    match bits {
        0 => Status::Ok,
        _ => match output.put_word(tag, len as usize) {
            Status::Ok => output.put_word(bits, 4),
            failed => failed,
        },
    }
}

extern "C" fn put_field_double(output: &mut Output<'_>, table: &SymbolTable, bits: u64) -> Status {
    let (tag, len) = tag_of(table);
    match bits {
        0 => Status::Ok,
        _ => match output.put_word(tag, len as usize) {
            Status::Ok => output.put_word(bits, 8),
            failed => failed,
        },
    }
}

/// A varint of at most three bytes, and their number.
#[inline(always)]
fn short_varint(value: u64) -> (u64, usize) {
    match value {
        0..0x80 => (value, 1),
        0x80..0x4000 => (value & 0x7F | 0x80 | value >> 7 << 8, 2),
        _ => (value & 0x7F | 0x80 | (value >> 7 & 0x7F | 0x80) << 8 | value >> 14 << 16, 3),
    }
}

/// The small ones of either sign are small.
#[inline(always)]
pub(super) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

#[inline(always)]
pub(super) fn put_varint(output: &mut Output<'_>, value: u64) -> Status {
    if value < 0x20_0000 {
        let (word, bytes) = short_varint(value);
        return output.put_word(word, bytes);
    }
    let (bytes, len) = varint(value);
    output.put(bytes.get(..len).unwrap_or(&bytes))
}

/// The bytes of a varint, and their number.
pub(super) fn varint(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = value as u8 & 0x7F;
        value >>= 7;
        if value == 0 {
            return (bytes, i + 1);
        }
        *byte |= 0x80;
    }
    (bytes, 10)
}

extern "C" fn put_unsigned(output: &mut Output<'_>, value: u64) -> Status {
    put_varint(output, value)
}

extern "C" fn put_signed(output: &mut Output<'_>, value: u64) -> Status {
    put_varint(output, zigzag(value as i64))
}

/// Text or a sequence of octets behind its length.
pub(super) fn put_text(output: &mut Output<'_>, text: &str) -> Status {
    put_octets(output, text.as_bytes())
}

fn put_octets(output: &mut Output<'_>, octets: &[u8]) -> Status {
    match put_varint(output, octets.len() as u64) {
        Status::Ok => output.put(octets),
        failed => failed,
    }
}

pub(super) static OCTETS: SliceKernel =
    SliceKernel { name: "octets", scalar: Scalar::U8, get: get::octets, put: put_octets };

/// A message inside another, behind its length. When decoding, its tag was read.
pub(super) static MESSAGE: RegionDialect = RegionDialect {
    name: "message",
    restarts_origin: false,
    get_begin: get::begin_message,
    get_end: get::end_message,
    put_begin,
    put_end,
};

/// The whole message: when decoding, what nobody read of it is passed over.
pub(super) static ROOT: RegionDialect = RegionDialect {
    name: "root message",
    restarts_origin: false,
    get_begin: get::begin_root,
    get_end: get::end_message,
    put_begin: put_nothing,
    put_end: put_nothing,
};

extern "C" fn put_nothing(_: &mut Output<'_>, _: u64, _: &mut Cursor) -> Status {
    Status::Ok
}

extern "C" fn put_begin(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    cursor.0[0] = output.position() as u64;
    output.put_word(0, 1)
}

extern "C" fn put_end(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    close(output, cursor.0[0] as usize, 1)
}

/// Puts the length of what was written behind `start` and `room` bytes there, and moves it up or down if its length takes another number
/// of bytes.
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
    let (head, head_len) = varint(len as u64);
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

/// An entry of a map: the argument is its tag, as [`tag_table`] has it. Until its end is reached, eight bytes stand where its length is
/// going to be: those of what [`Output::mark`] was.
pub(super) static BEGIN_ENTRY: ActionKernel = ActionKernel { name: "entry", get: get_no_action, put: begin_entry };
pub(super) static END_ENTRY: ActionKernel = ActionKernel { name: "entry's end", get: get_no_action, put: end_entry };

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

extern "C" fn get_no_action(_: &mut Input<'_>, _: u64) -> Status {
    Status::Ok
}

extern "C" fn no_symbol(input: &mut Input<'_>, _: &SymbolTable, _: &mut u64) -> Status {
    input.fail(FaultKind::Unrepresentable, 0, 0)
}
