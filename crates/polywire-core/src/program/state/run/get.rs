//! Reading runs.

use alloc::string::String;

use super::{
    super::{Field, Input, Status, float, get},
    Chunk, Lane, LaneKind, REVERSED, Run, Step, WIDTH,
    put::{keep, known, same},
    wide::{Plain, Wide},
};
use crate::{
    layout::Scalar,
    program::{
        FaultKind,
        interp::{convert, fields::set_pending, from_word},
        io::SHORT_TEXT,
    },
};

/// Reads the fields of a run: values into the lanes, strings into the frame.
pub(crate) type GetRun = unsafe extern "C" fn(*mut Input<'_>, *const Run, *mut u64, *mut u8) -> Status;

/// As [`GetRun`] for every machine.
pub(crate) unsafe extern "C" fn plain(
    input: *mut Input<'_>,
    run: *const Run,
    lanes: *mut u64,
    frame: *mut u8,
) -> Status {
    // SAFETY: machine code gives what it was made with: see `all`.
    unsafe { all::<Plain>(&mut *input, &*run, lanes, frame) }
}

/// As [`GetRun`] where there is AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(crate) unsafe extern "C" fn avx2(
    input: *mut Input<'_>,
    run: *const Run,
    lanes: *mut u64,
    frame: *mut u8,
) -> Status {
    // SAFETY: as above.
    unsafe { all::<super::wide::Avx2>(&mut *input, &*run, lanes, frame) }
}

/// As [`GetRun`] where there is AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
pub(crate) unsafe extern "C" fn avx512(
    input: *mut Input<'_>,
    run: *const Run,
    lanes: *mut u64,
    frame: *mut u8,
) -> Status {
    // SAFETY: as above.
    unsafe { all::<super::wide::Avx512>(&mut *input, &*run, lanes, frame) }
}

/// # Safety
/// `lanes` are the run's; the run was made for the members of the frame, whose values live and are nobody else's.
#[inline(always)]
unsafe fn all<W: Wide>(input: &mut Input<'_>, run: &Run, lanes: *mut u64, frame: *mut u8) -> Status {
    for (number, chunk) in run.chunks.iter().enumerate() {
        let of_chunk = &run.lanes[WIDTH * number..][..WIDTH];
        let before = (input.pos, input.state().map);
        // SAFETY: as the caller promises.
        unsafe {
            let lanes = lanes.add(WIDTH * number);
            if !quickly::<W>(input, chunk, of_chunk, lanes, frame) {
                (input.pos, input.state().map) = before;
                input.fault = None;
                if slowly(input, of_chunk, lanes, frame) == Status::Failed {
                    return Status::Failed;
                }
            }
        }
    }
    Status::Ok
}

/// Eight fields at once. False if they have to be looked at one by one; no previous integer has changed then, and a string only to what it
/// will be changed to.
///
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn quickly<W: Wide>(
    input: &mut Input<'_>,
    chunk: &Chunk,
    fields: &[Lane],
    lanes: *mut u64,
    frame: *mut u8,
) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let Some(known) = known::<W>(input.state(), chunk) else { return false };
        let present = chunk.always | W::deposit(bits(input, chunk.bits.count_ones()).into(), chunk.bits.into()) as u8;
        if present & chunk.escapes != 0 {
            return false;
        }
        if chunk.texts != 0 && !affordable(input, chunk, fields, present, frame) {
            return false;
        }
        let Some(entities) = entities::<W>(input, chunk, fields, present, frame) else { return false };
        let (mut entity, mut wrong) = (entities, 0);
        if chunk.nullable != 0 {
            let there = chunk.nullable & present;
            wrong |= !W::differ(entity, W::splat(0)) & there;
            let down = there & !W::negative(entity);
            entity = W::select(down, W::sub(entity, W::splat(1)), entity);
        }
        let sum = W::add(entity, W::select(chunk.delta, known, W::splat(0)));
        let absent = W::select(chunk.fixed, table::<W>(&chunk.initial), W::add(known, table::<W>(&chunk.step)));
        let value = W::select(present, sum, absent);
        if chunk.checked != 0 {
            wrong |= W::greater(W::sub(value, table::<W>(&chunk.least)), table::<W>(&chunk.span)) & chunk.checked;
        }
        if chunk.wide != 0 {
            wrong |= W::negative(W::xor(value, known)) & chunk.wide;
        }
        if chunk.increment != 0 {
            wrong |= !W::differ(known, table::<W>(&chunk.largest)) & chunk.increment & !present;
        }
        if wrong != 0 {
            return false;
        }
        keep::<W>(input.state(), chunk, value);
        W::store(lanes, 0xFF, value);
        left_out_texts(input, chunk, fields, chunk.texts & !chunk.inline & !present, frame);
        mark(lanes, chunk.inline & present);
        numbers(chunk, fields, lanes);
    }
    true
}

#[inline(always)]
unsafe fn table<W: Wide>(table: &[u64; WIDTH]) -> W::Words {
    // SAFETY: there are eight.
    unsafe { W::load(table.as_ptr()) }
}

/// Says of strings that they are set.
///
/// # Safety
/// There are eight lanes.
#[inline(always)]
unsafe fn mark(lanes: *mut u64, mut mask: u8) {
    while mask != 0 {
        // SAFETY: as the caller promises.
        unsafe { *lanes.add(mask.trailing_zeros() as usize) = 1 };
        mask &= mask - 1;
    }
}

/// Takes bits of the presence map, the first lowest.
#[inline(always)]
fn bits(input: &mut Input<'_>, count: u32) -> u8 {
    if count == 0 {
        return 0;
    }
    let word = input.state().map.word;
    // The mark stands behind the last.
    if word != 0 && 63 - word.trailing_zeros() >= count {
        input.state().map.word = word << count;
        return REVERSED[(word >> 56) as usize] & ((1u32 << count) - 1) as u8;
    }
    (0..count).fold(0, |bits, at| bits | u8::from(input.take_bit()) << at)
}

/// The entities of the integers that are there; strings that are there are read on the way. None if one is of more than eight bytes,
/// longer than it needs to be, or not there as a whole.
///
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn entities<W: Wide>(
    input: &mut Input<'_>,
    chunk: &Chunk,
    fields: &[Lane],
    present: u8,
    frame: *mut u8,
) -> Option<W::Words> {
    // SAFETY: as the caller promises.
    unsafe {
        let mut texts = present & chunk.texts;
        if texts == 0 {
            return some_entities::<W>(input, present, chunk.signed);
        }
        let (mut rest, mut all) = (present, W::splat(0));
        while texts != 0 {
            let at = texts.trailing_zeros();
            let before = rest & ((1u32 << at) - 1) as u8;
            all = W::select(before, some_entities::<W>(input, before, chunk.signed)?, all);
            (rest, texts) = (rest & !((2u32 << at) - 1) as u8, texts & (texts - 1));
            if text(input, &fields[at as usize], frame) == Status::Failed {
                return None;
            }
        }
        Some(W::select(rest, some_entities::<W>(input, rest, chunk.signed)?, all))
    }
}

/// The entities of these lanes, which come one after the other.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
unsafe fn some_entities<W: Wide>(input: &mut Input<'_>, mask: u8, signed: u8) -> Option<W::Words> {
    let Some(unused) = 64u32.checked_sub(8 * mask.count_ones()).filter(|unused| *unused < 64) else {
        // SAFETY: as the caller promises.
        return Some(unsafe { W::splat(0) });
    };
    let rest = input.rest();
    let word = if rest.len() >= 8 {
        // SAFETY: there are eight.
        u64::from_le(unsafe { rest.as_ptr().cast::<u64>().read_unaligned() })
    } else {
        rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    let stops = 0x8080_8080_8080_8080 >> unused;
    // SAFETY: as the caller promises.
    unsafe {
        if word & stops == stops {
            // What is not there has no stop bit.
            input.pos += mask.count_ones() as usize;
            return Some(W::spread(word, mask, signed));
        }
        long_entities::<W>(input, mask, signed)
    }
}

/// The same if some have more than a byte.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
unsafe fn long_entities<W: Wide>(input: &mut Input<'_>, mut mask: u8, signed: u8) -> Option<W::Words> {
    let mut values = [0; WIDTH];
    let mut rest = input.rest();
    while mask != 0 {
        let at = mask.trailing_zeros() as usize & 7;
        mask &= mask - 1;
        let (value, len) = entity::<W>(rest, signed >> at & 1 != 0)?;
        values[at] = value;
        rest = rest.get(len..)?;
    }
    input.pos = input.end - rest.len();
    // SAFETY: there are eight.
    Some(unsafe { W::load(values.as_ptr()) })
}

/// An entity of up to eight bytes, and how many it has.
#[inline(always)]
fn entity<W: Wide>(rest: &[u8], signed: bool) -> Option<(u64, usize)> {
    let word = match rest.get(..8) {
        Some(bytes) => u64::from_be_bytes(bytes.try_into().ok()?),
        None => rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)) << (8 * (8 - rest.len()) as u32 % 64),
    };
    let stops = word & 0x8080_8080_8080_8080;
    if stops == 0 || rest.is_empty() {
        return None;
    }
    let len = stops.leading_zeros() / 8 + 1;
    // SAFETY: whoever calls has chosen the instructions.
    let groups = unsafe { W::extract(word >> (64 - 8 * len), 0x7F7F_7F7F_7F7F_7F7F) };
    let (first, second) = ((word >> 56) as u8, (word >> 48) as u8);
    if !signed {
        return (len == 1 || first != 0).then_some((groups, len as usize));
    }
    let redundant = len > 1 && (first == 0 || first == 0x7F) && (first ^ second) & 0x40 == 0;
    let unused = 64 - 7 * len;
    (!redundant).then_some((((groups << unused) as i64 >> unused) as u64, len as usize))
}

/// # Safety
/// The lane is a string's, and the frame is the one it was made for.
#[inline(always)]
unsafe fn string<'v>(lane: &Lane, frame: *mut u8) -> &'v mut String {
    // SAFETY: the verifier has seen that there is a string; those that are parts of messages are none of a run's.
    unsafe { &mut *frame.add(lane.offset as usize).cast::<String>() }
}

/// True if all strings fit what memory is left, so that none of them is refused.
///
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn affordable(input: &mut Input<'_>, chunk: &Chunk, fields: &[Lane], present: u8, frame: *mut u8) -> bool {
    let others = (chunk.texts & (present | !(chunk.fixed_text | chunk.inline))).count_ones() as usize;
    let most = chunk.fixed_cost + others * (input.remaining() + 2 * input.state().text_bytes + SHORT_TEXT);
    if most <= input.memory_left {
        return true;
    }
    // SAFETY: as the caller promises.
    unsafe { affordable_exactly(input, chunk, fields, present, frame) }
}

/// # Safety
/// As [`all`].
#[cold]
#[inline(never)]
unsafe fn affordable_exactly(
    input: &mut Input<'_>,
    chunk: &Chunk,
    fields: &[Lane],
    present: u8,
    frame: *mut u8,
) -> bool {
    let mut cost = 0usize;
    let mut rest = chunk.texts;
    while rest != 0 {
        let at = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let lane = &fields[at];
        let Some(field) = &lane.field else { continue };
        // SAFETY: as the caller promises.
        let capacity = unsafe { string(lane, frame) }.capacity();
        let (len, spelled) = if present >> at & 1 != 0 {
            (input.remaining(), 0)
        } else if (chunk.fixed_text | chunk.inline) >> at & 1 != 0 {
            (field.initial_bytes().map_or(0, <[u8]>::len), 0)
        } else {
            let len = input.state().text(field.text).len();
            (len, len)
        };
        cost += spelled + if capacity < len.max(SHORT_TEXT) { len.max(SHORT_TEXT) } else { 0 };
    }
    cost <= input.memory_left
}

/// Sets strings that are not in the message; memory suffices.
///
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn left_out_texts(input: &mut Input<'_>, chunk: &Chunk, fields: &[Lane], mut mask: u8, frame: *mut u8) {
    while mask != 0 {
        let at = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        let lane = &fields[at];
        let Some(field) = &lane.field else { continue };
        // SAFETY: as the caller promises.
        let string = unsafe { string(lane, frame) };
        if chunk.fixed_text >> at & 1 != 0 {
            let text = field.initial_bytes().unwrap_or_default();
            if !(same(string.as_bytes(), text) && string.capacity() >= SHORT_TEXT) {
                set(input, string, text);
            }
        } else {
            let len = input.state().text(field.text).len();
            input.memory_left -= len;
            if !(same(string.as_bytes(), input.state().text(field.text)) && string.capacity() >= SHORT_TEXT) {
                let state = input.state();
                state.pending.clear();
                let mut pending = core::mem::take(&mut state.pending);
                pending.extend_from_slice(state.text(field.text));
                set(input, string, &pending);
                input.state().pending = pending;
            }
        }
    }
}

/// Sets a string to its field's initial value, for machine code.
///
/// # Safety
/// Machine code gives its context, a field that lives as long as itself, and a string of the value that it decodes to.
pub(crate) unsafe extern "C" fn set_initial(input: *mut Input<'_>, field: *const Field, string: *mut String) {
    // SAFETY: as the caller promises.
    unsafe { set(&mut *input, &mut *string, (*field).initial_bytes().unwrap_or_default()) }
}

#[cold]
#[inline(never)]
fn set(input: &mut Input<'_>, string: &mut String, text: &[u8]) {
    // It was a valid string when it came into the state, or into the template.
    let _ = match core::str::from_utf8(text) {
        Ok(text) => input.set_text(string, text),
        Err(_) => input.set_text(string, &String::from_utf8_lossy(text)),
    };
}

/// Reads a string whose bit was set.
///
/// # Safety
/// As [`string`].
#[cold]
#[inline(never)]
unsafe fn text(input: &mut Input<'_>, lane: &Lane, frame: *mut u8) -> Status {
    let Some(field) = &lane.field else { return Status::Ok };
    if get::get_text(input, field) == Status::Failed {
        return Status::Failed;
    }
    // SAFETY: as the caller promises.
    set_pending(input, unsafe { string(lane, frame) })
}

/// Puts numbers together from exponents and mantissas.
///
/// # Safety
/// There are eight lanes.
#[inline(always)]
unsafe fn numbers(chunk: &Chunk, fields: &[Lane], lanes: *mut u64) {
    let mut rest = chunk.floats;
    while rest != 0 {
        let at = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        // SAFETY: as the caller promises; a number's parts are in one chunk.
        unsafe {
            let (exponent, mantissa) = (*lanes.add(at) as i64, *lanes.add((at + 1) % WIDTH) as i64);
            *lanes.add(at) = float::compose(exponent, mantissa, fields[at].memory == Scalar::F32);
        }
    }
}

/// Fields one by one.
///
/// # Safety
/// As [`all`].
#[cold]
#[inline(never)]
unsafe fn slowly(input: &mut Input<'_>, fields: &[Lane], lanes: *mut u64, frame: *mut u8) -> Status {
    for (at, lane) in fields.iter().enumerate() {
        // SAFETY: as the caller promises.
        match unsafe { one(input, lane, frame) } {
            // SAFETY: as the caller promises.
            Ok(word) => unsafe { *lanes.add(at) = word },
            Err(_) => {
                input.blame(lane.path);
                return Status::Failed;
            }
        }
    }
    Status::Ok
}

/// # Safety
/// As [`all`].
unsafe fn one(input: &mut Input<'_>, lane: &Lane, frame: *mut u8) -> Result<u64, Status> {
    let Some(field) = &lane.field else { return Ok(0) };
    match lane.kind {
        LaneKind::Idle | LaneKind::Part => Ok(0),
        LaneKind::Float => get::get_int(input, field),
        LaneKind::Text => {
            let got = match crate::program::interp::fields::get_pending(input, field) {
                // SAFETY: as the caller promises.
                Status::Ok => set_pending(input, unsafe { string(lane, frame) }),
                failed => failed,
            };
            if got == Status::Ok { Ok(1) } else { Err(got) }
        }
        LaneKind::Int => {
            let word = get::get_int(input, field)?;
            let (mut value, mut scalar) = (from_word(word, field.scalar()), field.scalar());
            for step in &lane.steps {
                match *step {
                    Step::Convert(to) => {
                        let converted = convert(value, scalar, to);
                        let got = value as u64;
                        value = converted.map_err(|kind| input.fail(kind, 8 * to.size() as u64, got))?;
                        scalar = to;
                    }
                    Step::Bool if value != 0 && value != 1 => {
                        return Err(input.fail(FaultKind::BadBool, 0, value as u64));
                    }
                    Step::Bool => {}
                }
            }
            Ok(value as u64)
        }
    }
}
