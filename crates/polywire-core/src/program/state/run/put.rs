//! Writing runs.

use super::{
    super::{FaultKind, Output, State, Status, float, put},
    Chunk, Lane, LaneKind, REVERSED, Run, Step, WIDTH,
    wide::{Plain, Wide},
};
use crate::{
    layout::Scalar,
    program::interp::{convert, from_word},
};

/// Writes the fields of a run: values from the lanes, strings from the frame.
pub(crate) type PutRun = unsafe extern "C" fn(*mut Output<'_>, *const Run, *const u64, *const u8) -> Status;

/// As [`PutRun`] for every machine.
pub(crate) unsafe extern "C" fn plain(
    output: *mut Output<'_>,
    run: *const Run,
    lanes: *const u64,
    frame: *const u8,
) -> Status {
    // SAFETY: machine code gives what it was made with: see `run`.
    unsafe { all::<Plain>(&mut *output, &*run, lanes, frame) }
}

/// As [`PutRun`] where there is AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(crate) unsafe extern "C" fn avx2(
    output: *mut Output<'_>,
    run: *const Run,
    lanes: *const u64,
    frame: *const u8,
) -> Status {
    // SAFETY: as above.
    unsafe { all::<super::wide::Avx2>(&mut *output, &*run, lanes, frame) }
}

/// As [`PutRun`] where there is AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
pub(crate) unsafe extern "C" fn avx512(
    output: *mut Output<'_>,
    run: *const Run,
    lanes: *const u64,
    frame: *const u8,
) -> Status {
    // SAFETY: as above.
    unsafe { all::<super::wide::Avx512>(&mut *output, &*run, lanes, frame) }
}

/// # Safety
/// `lanes` are the run's, with the values of its members; the run was made for the members of the frame, whose values live.
#[inline(always)]
unsafe fn all<W: Wide>(output: &mut Output<'_>, run: &Run, lanes: *const u64, frame: *const u8) -> Status {
    if output.reserve(run.room()) == Status::Failed {
        return Status::Failed;
    }
    for (number, chunk) in run.chunks.iter().enumerate() {
        let of_chunk = &run.lanes[WIDTH * number..][..WIDTH];
        // SAFETY: as the caller promises; there is room for all lanes, and 64 bytes behind them.
        unsafe {
            let lanes = lanes.add(WIDTH * number);
            let status = match quickly::<W>(output, chunk, of_chunk, lanes, (frame, run.room())) {
                Some(status) => status,
                None => slowly(output, of_chunk, lanes, (frame, run.room())),
            };
            if status == Status::Failed {
                return status;
            }
        }
    }
    Status::Ok
}

/// Eight fields at once. None, and nothing has happened, if they have to be looked at one by one.
///
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn quickly<W: Wide>(
    output: &mut Output<'_>,
    chunk: &Chunk,
    fields: &[Lane],
    lanes: *const u64,
    (frame, room): (*const u8, usize),
) -> Option<Status> {
    let mut own = [0; WIDTH];
    // SAFETY: as the caller promises; a bank has as many values and tags behind its last slot as a chunk has lanes.
    unsafe {
        let state = output.state();
        let known = known::<W>(state, chunk)?;
        let differ = text_mask(state, chunk, fields, frame);
        let mut values = lanes;
        if chunk.floats != 0 {
            core::ptr::copy_nonoverlapping(lanes, own.as_mut_ptr(), WIDTH);
            if !decimals(state, chunk, fields, &mut own) {
                return None;
            }
            values = own.as_ptr();
        }
        let new = W::load(values);
        let expected = W::select(chunk.fixed, load::<W>(&chunk.initial), W::add(known, load::<W>(&chunk.step)));
        let differs = (W::differ(new, expected) & !(chunk.texts & !chunk.inline)) | differ;
        let mut entity = W::sub(new, W::select(chunk.delta, known, W::splat(0)));
        let mut wrong = differs & chunk.constant;
        if chunk.checked != 0 {
            wrong |= W::greater(W::sub(new, load::<W>(&chunk.least)), load::<W>(&chunk.span)) & chunk.checked;
        }
        if chunk.wide != 0 {
            wrong |= W::negative(W::xor(new, known)) & chunk.wide;
        }
        if chunk.increment != 0 {
            wrong |= !W::differ(known, load::<W>(&chunk.largest)) & chunk.increment;
        }
        if chunk.nullable != 0 {
            let up = chunk.nullable & !W::negative(entity);
            entity = W::select(up, W::add(entity, W::splat(1)), entity);
        }
        let present = chunk.always | (differs & chunk.bits);
        let biased = W::select(chunk.signed, W::add(entity, W::splat(64)), entity);
        let long = W::greater(biased, W::splat(127)) & present & !chunk.texts;
        if long != 0 {
            let biased = W::select(chunk.signed, W::add(entity, W::splat(1 << 55)), entity);
            wrong |= W::greater(biased, W::splat((1 << 56) - 1)) & long;
        }
        if wrong != 0 {
            return None;
        }
        keep::<W>(output.state(), chunk, new);
        bits(output, W::extract(present.into(), chunk.bits.into()) as u8, chunk.bits.count_ones());
        let mut rest = present;
        let mut texts = present & chunk.texts;
        while texts != 0 {
            let at = texts.trailing_zeros();
            emit::<W>(output, entity, rest & ((1u32 << at) - 1) as u8, (long, chunk.signed));
            (rest, texts) = (rest & !((2u32 << at) - 1) as u8, texts & (texts - 1));
            if text(output, &fields[at as usize], (frame, room)) == Status::Failed {
                return Some(Status::Failed);
            }
        }
        emit::<W>(output, entity, rest, (long, chunk.signed));
    }
    Some(Status::Ok)
}

/// Writes the entities of a mask's lanes.
///
/// # Safety
/// The machine has the instructions, and there is room for 64 bytes.
#[inline(always)]
unsafe fn emit<W: Wide>(output: &mut Output<'_>, entities: W::Words, mask: u8, (long, signed): (u8, u8)) {
    // SAFETY: as the caller promises.
    output.pos += unsafe { W::emit(output.here(), entities, mask, long & mask, signed) };
}

#[inline(always)]
unsafe fn load<W: Wide>(table: &[u64; WIDTH]) -> W::Words {
    // SAFETY: there are eight.
    unsafe { W::load(table.as_ptr()) }
}

/// The previous values; none unless each field that needs one has one.
///
/// # Safety
/// The machine has the instructions; the chunk's slots are in the bank.
#[inline(always)]
pub(super) unsafe fn known<W: Wide>(state: &State, chunk: &Chunk) -> Option<W::Words> {
    // SAFETY: a bank has as many values and tags behind its last slot as a chunk has lanes.
    unsafe {
        if chunk.in_order {
            let first = chunk.slots[0] as usize;
            let tags = state.tags.as_ptr().add(first).cast::<u64>().read_unaligned();
            let wrong = (tags ^ u64::from_ne_bytes(chunk.tags)) & u64::from_ne_bytes(chunk.tagged);
            return (wrong == 0).then(|| W::load(state.values.as_ptr().add(first)));
        }
    }
    let mut values = [0; WIDTH];
    for (at, value) in values.iter_mut().enumerate().filter(|(at, _)| chunk.tagged[*at] != 0) {
        if state.tag(chunk.slots[at]) != chunk.tags[at] {
            return None;
        }
        *value = state.value(chunk.slots[at]);
    }
    // SAFETY: there are eight.
    Some(unsafe { W::load(values.as_ptr()) })
}

/// Keeps the values of fields that have a slot; their tags are what they were.
///
/// # Safety
/// As [`known`].
#[inline(always)]
pub(super) unsafe fn keep<W: Wide>(state: &mut State, chunk: &Chunk, new: W::Words) {
    // SAFETY: as above.
    unsafe {
        if chunk.in_order {
            return W::store(state.values.as_mut_ptr().add(chunk.slots[0] as usize), chunk.kept, new);
        }
        let mut values = [0; WIDTH];
        W::store(values.as_mut_ptr(), 0xFF, new);
        for at in (0..WIDTH).filter(|at| chunk.kept >> at & 1 != 0) {
            state.set_value(chunk.slots[at], values[at]);
        }
    }
}

/// Appends the bits of a presence map, the first lowest.
#[inline(always)]
fn bits(output: &mut Output<'_>, bits: u8, count: u32) {
    if count == 0 {
        return;
    }
    let word = output.state().map.word;
    let in_order = u64::from(REVERSED[usize::from(bits)]) >> (8 - count);
    if word >> (56 - count) == 0 {
        output.state().map.word = word << count | in_order;
        return;
    }
    for at in 0..count {
        output.put_bit(bits >> at & 1 != 0);
    }
}

/// Which strings differ from what would be left out.
///
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn text_mask(state: &State, chunk: &Chunk, fields: &[Lane], frame: *const u8) -> u8 {
    let (mut rest, mut differ) = (chunk.texts & !chunk.inline, 0);
    while rest != 0 {
        let at = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let lane = &fields[at];
        let Some(field) = &lane.field else { continue };
        let known = if chunk.fixed_text >> at & 1 != 0 {
            field.initial_bytes().unwrap_or_default()
        } else {
            state.text(field.text)
        };
        // SAFETY: as the caller promises.
        differ |= u8::from(!same(known, unsafe { string(lane, frame) }.as_bytes())) << at;
    }
    differ
}

/// # Safety
/// The lane is a string's, and the frame is the one it was made for.
#[inline(always)]
unsafe fn string<'v>(lane: &Lane, frame: *const u8) -> &'v str {
    // SAFETY: the verifier has seen that there is a string; those that are parts of messages are none of a run's.
    unsafe { (*frame.add(lane.offset as usize).cast::<alloc::string::String>()).as_str() }
}

/// Compares strings, which are short mostly.
#[inline(always)]
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let len = a.len();
    let (a, b) = (a.as_ptr(), b.as_ptr());
    // SAFETY: each load starts at 0 or ends at `len`, and is no wider than `len`.
    unsafe {
        let word = |p: *const u8, at: usize| p.add(at).cast::<u64>().read_unaligned();
        let half = |p: *const u8, at: usize| p.add(at).cast::<u32>().read_unaligned();
        match len {
            0 => true,
            1..4 => *a == *b && *a.add(len / 2) == *b.add(len / 2) && *a.add(len - 1) == *b.add(len - 1),
            4..8 => (half(a, 0) ^ half(b, 0)) | (half(a, len - 4) ^ half(b, len - 4)) == 0,
            8..=16 => (word(a, 0) ^ word(b, 0)) | (word(a, len - 8) ^ word(b, len - 8)) == 0,
            _ => core::slice::from_raw_parts(a, len) == core::slice::from_raw_parts(b, len),
        }
    }
}

/// Turns numbers into exponents and mantissas; false if one is no decimal that its field can say.
#[inline(always)]
fn decimals(state: &State, chunk: &Chunk, fields: &[Lane], lanes: &mut [u64; WIDTH]) -> bool {
    let mut rest = chunk.floats;
    while rest != 0 {
        let at = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let slot = chunk.slots[at];
        let fixed = chunk.fixed >> at & 1 != 0;
        let hint = if fixed { chunk.initial[at] } else { state.value(slot) } as i64;
        let single = fields[at].memory == Scalar::F32;
        let Some((exponent, mantissa)) = float::decompose(lanes[at], single, Some(hint)) else { return false };
        if chunk.constant >> at & 1 != 0 && exponent != hint {
            return false;
        }
        (lanes[at], lanes[(at + 1) % WIDTH]) = (exponent as u64, mantissa as u64);
        // The bits are left out.
        if chunk.escapes >> ((at + 2) % WIDTH) & 1 != 0 && at + 2 < WIDTH {
            lanes[at + 2] = 0;
        }
    }
    true
}

/// Writes a string whose bit is written.
///
/// # Safety
/// As [`string`].
#[cold]
#[inline(never)]
unsafe fn text(output: &mut Output<'_>, lane: &Lane, (frame, room): (*const u8, usize)) -> Status {
    let Some(field) = &lane.field else { return Status::Ok };
    // SAFETY: as the caller promises.
    let value = unsafe { string(lane, frame) };
    let status = put::put_text(output, field, value.as_bytes());
    if status == Status::Failed {
        output.blame(lane.path);
        return status;
    }
    output.reserve(room)
}

/// Fields one by one.
///
/// # Safety
/// As [`all`].
#[cold]
#[inline(never)]
unsafe fn slowly(
    output: &mut Output<'_>,
    fields: &[Lane],
    lanes: *const u64,
    (frame, room): (*const u8, usize),
) -> Status {
    for (at, lane) in fields.iter().enumerate() {
        // SAFETY: as the caller promises.
        if unsafe { one(output, lane, lanes.add(at).read_unaligned(), frame) } == Status::Failed {
            output.blame(lane.path);
            return Status::Failed;
        }
    }
    output.reserve(room)
}

/// # Safety
/// As [`all`].
unsafe fn one(output: &mut Output<'_>, lane: &Lane, word: u64, frame: *const u8) -> Status {
    let Some(field) = &lane.field else { return Status::Ok };
    match lane.kind {
        LaneKind::Idle | LaneKind::Part => Status::Ok,
        LaneKind::Float => put::put_int(output, field, word),
        // SAFETY: as the caller promises.
        LaneKind::Text => put::put(output, field, put::Out::Bytes(unsafe { string(lane, frame) }.as_bytes())),
        LaneKind::Int => {
            let (mut value, mut scalar) = (from_word(word, lane.memory), lane.memory);
            for step in &lane.steps {
                let Step::Convert(to) = *step else { continue };
                value = match convert(value, scalar, to) {
                    Ok(value) => value,
                    Err(kind) => return fault(output, kind, 8 * to.size() as u64, value as u64),
                };
                scalar = to;
            }
            put::put_int(output, field, value as u64)
        }
    }
}

fn fault(output: &mut Output<'_>, kind: FaultKind, expected: u64, got: u64) -> Status {
    output.fail(kind, expected, got)
}
