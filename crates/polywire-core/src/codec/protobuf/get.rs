//! Kernels that read values. The tag was read before; it is in [`Input::tag`].

use alloc::string::String;

use super::kinds::{END_GROUP, FIXED32, FIXED64, LENGTH, START_GROUP, VARINT};
use super::varint::{gather, gather_long};
use crate::{
    codec::lower::{kinds::fixed, one_way},
    layout::Scalar,
    program::{
        ActionKernel, Cursor, Elements, FaultKind, Input, ScalarKernel, Status, TextKernel,
        kernel::{NumberForm, ScalarForm, ShortText},
    },
};

type Read<T = ()> = Result<T, Status>;

pub(super) static BOOL: ScalarKernel = scalar("bool", Scalar::Bool, boolean, NumberForm::Varint, VARINT);
pub(super) static UNSIGNED: ScalarKernel = scalar("varint", Scalar::U64, unsigned, NumberForm::Varint, VARINT);
pub(super) static SIGNED: ScalarKernel = scalar("zigzag", Scalar::I64, signed, NumberForm::Zigzag, VARINT);
pub(super) static ENUM: ScalarKernel = scalar("enum", Scalar::I64, enumeration, NumberForm::Varint, VARINT);
pub(super) static SINGLE: ScalarKernel = scalar("single", Scalar::F32, single, NumberForm::Fixed, FIXED32);
pub(super) static DOUBLE: ScalarKernel = scalar("double", Scalar::F64, double, NumberForm::Fixed, FIXED64);
pub(super) static QUAD: ScalarKernel = ScalarKernel::wide("quad", quad, one_way::put_no_wide);
pub(super) static TEXT: TextKernel = TextKernel {
    name: "text",
    get: text,
    put: super::put::put_text,
    short: Some(ShortText { head: 0, head_len: 1, below: 0x80 }),
};

const fn scalar(
    name: &'static str,
    scalar: Scalar,
    get: extern "C" fn(&mut Input<'_>, &mut u64) -> Status,
    number: NumberForm,
    tag: u32,
) -> ScalarKernel {
    ScalarKernel { form: Some(ScalarForm { number, tag }), ..ScalarKernel::get_only(name, scalar, get) }
}

/// Skips a value.
pub(super) static SKIP: ActionKernel = ActionKernel::get_only("skip", skip_action);

/// Reads a varint.
#[inline(always)]
pub(super) fn varint(input: &mut Input<'_>) -> Read<u64> {
    let rest = input.rest();
    if let [byte @ 0..0x80, ..] = rest {
        input.seek(input.position() + 1);
        return Ok(u64::from(*byte));
    }
    match next_bytes(input).and_then(gather) {
        Some((value, len)) => {
            input.seek(input.position() + len);
            Ok(value)
        }
        None => long_varint(input),
    }
}

/// The next eight bytes. Near the end, the missing bytes are set such that they do not end a
/// varint.
#[inline(always)]
fn next_bytes(input: &Input<'_>) -> Option<[u8; 8]> {
    let rest = input.rest();
    if let Some(bytes) = rest.first_chunk() {
        return Some(*bytes);
    }
    // The last eight bytes of the input, shifted to drop those that were read.
    let bytes = input.message().get(..input.end())?.last_chunk()?;
    let read = 64 - 8 * rest.len() as u32;
    let word = u64::from_le_bytes(*bytes).checked_shr(read)?;
    Some((word | !(u64::MAX >> read)).to_le_bytes())
}

/// Reads a varint of nine or ten bytes, or near the end of the input.
#[cold]
fn long_varint(input: &mut Input<'_>) -> Read<u64> {
    let mut value = 0u64;
    let rest = input.rest();
    if let Some((value, len)) = rest.first_chunk().and_then(gather_long) {
        input.seek(input.position() + len);
        return Ok(value);
    }
    for (i, byte) in rest.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * i as u32);
        if *byte < 0x80 {
            if i == 9 && *byte > 1 {
                return Err(input.fail(FaultKind::OutOfRange, 64, 70));
            }
            input.seek(input.position() + i + 1);
            return Ok(value);
        }
    }
    Err(match rest.len() < 10 {
        true => input.fail(FaultKind::Truncated, rest.len() as u64 + 1, rest.len() as u64),
        false => input.fail(FaultKind::OutOfRange, 64, 70),
    })
}

/// Refuses a value whose tag has another wire type.
#[inline(always)]
pub(super) fn expect(input: &mut Input<'_>, wire_type: u32) -> Read {
    match input.tag & 7 == wire_type {
        true => Ok(()),
        false => Err(input.fail(FaultKind::WireType, wire_type.into(), u64::from(input.tag & 7))),
    }
}

/// Reads a length and checks that as many bytes follow.
#[inline(always)]
pub(super) fn length(input: &mut Input<'_>) -> Read<usize> {
    let start = input.position();
    let len = varint(input)?;
    match usize::try_from(len) {
        Ok(len) if len <= input.remaining() => Ok(len),
        _ => {
            let left = input.remaining() as u64;
            input.seek(start);
            Err(input.fail(FaultKind::BadLength, left, len))
        }
    }
}

/// Reads a length and that many bytes.
#[inline(always)]
pub(super) fn bytes<'a>(input: &mut Input<'a>) -> Read<&'a [u8]> {
    expect(input, LENGTH)?;
    let len = length(input)?;
    input.take(len)
}

pub(super) extern "C" fn boolean(input: &mut Input<'_>, value: &mut u64) -> Status {
    Status::give(expect(input, VARINT).and_then(|()| varint(input)).map(|word| u64::from(word != 0)), value)
}

pub(super) extern "C" fn unsigned(input: &mut Input<'_>, value: &mut u64) -> Status {
    Status::give(expect(input, VARINT).and_then(|()| varint(input)), value)
}

pub(super) extern "C" fn enumeration(input: &mut Input<'_>, value: &mut u64) -> Status {
    unsigned(input, value)
}

pub(super) extern "C" fn signed(input: &mut Input<'_>, value: &mut u64) -> Status {
    Status::give(expect(input, VARINT).and_then(|()| varint(input)).map(|word| unzigzag(word) as u64), value)
}

#[inline(always)]
pub(super) fn unzigzag(word: u64) -> i64 {
    (word >> 1) as i64 ^ -((word & 1) as i64)
}

extern "C" fn single(input: &mut Input<'_>, value: &mut u64) -> Status {
    Status::give(
        expect(input, FIXED32).and_then(|()| fixed(input)).map(|bytes| u32::from_le_bytes(bytes).into()),
        value,
    )
}

extern "C" fn double(input: &mut Input<'_>, value: &mut u64) -> Status {
    Status::give(expect(input, FIXED64).and_then(|()| fixed(input)).map(u64::from_le_bytes), value)
}

fn quad(input: &mut Input<'_>) -> Read<u128> {
    let octets = bytes(input)?;
    match octets.first_chunk::<16>() {
        Some(bits) if octets.len() == 16 => Ok(u128::from_le_bytes(*bits)),
        _ => Err(input.fail(FaultKind::Count, 16, octets.len() as u64)),
    }
}

fn text(input: &mut Input<'_>, string: Option<&mut String>) -> Status {
    let bytes = match bytes(input) {
        Ok(bytes) => bytes,
        Err(failed) => return failed,
    };
    match core::str::from_utf8(bytes) {
        Ok(text) => string.map_or(Status::Ok, |string| input.set_text(string, text)),
        Err(error) => {
            input.seek(input.position() - (bytes.len() - error.valid_up_to()));
            input.fail(FaultKind::BadText, 0, 0)
        }
    }
}

pub(super) fn octets(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Status {
    Status::of(bytes(input).and_then(|octets| {
        if let Some(room) = elements.spare(input, octets.len())?.get_mut(..octets.len()) {
            room.copy_from_slice(octets);
        }
        elements.take(octets.len());
        Ok(())
    }))
}

pub(super) extern "C" fn begin_message(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    Status::give(open(input).map(|outer| outer as u64), &mut cursor.0[0])
}

/// Narrows the input to a message or packed field. Returns the outer end.
#[inline(always)]
pub(super) fn open(input: &mut Input<'_>) -> Read<usize> {
    expect(input, LENGTH)?;
    let len = length(input)?;
    // `length` compared the length with the remaining bytes.
    input.limit_end(input.position() + len).ok_or(Status::Failed)
}

pub(super) extern "C" fn begin_root(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    cursor.0[0] = input.end() as u64;
    Status::Ok
}

/// Skips the rest of a message.
pub(super) extern "C" fn end_message(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    input.seek(input.end());
    input.restore_end(cursor.0[0] as usize);
    Status::Ok
}

/// Reads a tag. The field number must not be 0.
#[inline(always)]
pub(super) fn tag(input: &mut Input<'_>) -> Read<u32> {
    let start = input.position();
    let tag = varint(input)?;
    match u32::try_from(tag) {
        Ok(tag) if tag >= 8 => Ok(tag),
        _ => {
            input.seek(start);
            Err(input.fail(FaultKind::Syntax, 8, tag))
        }
    }
}

/// Skips a value with this tag.
pub(super) fn skip(input: &mut Input<'_>, tag: u32) -> Read {
    match tag & 7 {
        VARINT => varint(input).map(|_| ()),
        FIXED64 => input.take(8).map(|_| ()),
        FIXED32 => input.take(4).map(|_| ()),
        LENGTH => {
            let len = length(input)?;
            input.take(len).map(|_| ())
        }
        START_GROUP => skip_group(input, tag >> 3),
        other => Err(input.fail(FaultKind::Syntax, 0, other.into())),
    }
}

/// Skips a group. Groups are deprecated; a tag marks their end.
fn skip_group(input: &mut Input<'_>, number: u32) -> Read {
    input.enter().ok()?;
    loop {
        let inside = tag(input)?;
        match inside & 7 == END_GROUP {
            true if inside >> 3 == number => break,
            true => return Err(input.fail(FaultKind::Syntax, number.into(), u64::from(inside >> 3))),
            false => skip(input, inside)?,
        }
    }
    input.leave();
    Ok(())
}

extern "C" fn skip_action(input: &mut Input<'_>, _: u64) -> Status {
    let tag = input.tag;
    Status::of(skip(input, tag))
}
