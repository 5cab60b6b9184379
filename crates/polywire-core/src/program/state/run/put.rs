//! Writing runs.

use super::{
    super::{Output, State, Status, UNDEFINED, bits::Map, float, put},
    Lane, LaneKind, REVERSED, Run, Step, WIDTH,
    chunk::{Chunk, Text},
    wide::{Plain, Wide, one_by_one},
};
use crate::program::interp::{convert, from_word};

/// Writes the fields of a run: members of the frame; where the machine does not gather, numbers
/// from the lanes.
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
/// The run was made for the members of the frame, whose values live. Where the machine does not
/// [gather](super::gathers) the lanes are the run's, with its numbers.
#[inline(always)]
unsafe fn all<W: Wide>(output: &mut Output<'_>, run: &Run, lanes: *const u64, frame: *const u8) -> Status {
    let room = run.room();
    if output.reserve(room) == Status::Failed {
        return Status::Failed;
    }
    let mut lanes = lanes;
    let mut usual = true;
    for text in &run.constants {
        // SAFETY: as the caller promises.
        usual &= unsafe { !differs::<W>(output.state(), text, frame) };
    }
    for chunk in &run.chunks {
        // SAFETY: as the caller promises; there is room for all lanes, and 64 bytes behind them.
        unsafe {
            let quick = if usual { quickly::<W>(output, chunk, lanes, (frame, room)) } else { None };
            let status = match quick {
                Some(status) => status,
                None => slowly(output, chunk, (frame, room)),
            };
            if status == Status::Failed {
                return status;
            }
        }
        lanes = lanes.wrapping_add(WIDTH);
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
    lanes: *const u64,
    (frame, room): (*const u8, usize),
) -> Option<Status> {
    // SAFETY: as the caller promises; a bank has as many values and tags behind its last slot as a
    // chunk has lanes.
    unsafe {
        let state = output.state();
        let before = known::<W>(state, chunk)?;
        let known = before.words;
        let differ = if chunk.texts.is_empty() { 0 } else { text_mask::<W>(state, chunk, frame) };
        let mut new = W::gather(chunk, frame, lanes);
        let expected = W::select(chunk.fixed, load::<W>(&chunk.initial), W::add_one(known, chunk.increment));
        if chunk.floats != 0 {
            new = decimals::<W>(chunk, new, expected)?;
        }
        let differs = (W::differ(new, expected) & !chunk.strings) | differ | before.unknown;
        let mut entity = W::sub(new, W::select(chunk.delta, known, W::splat(0)));
        let mut wrong = differs & chunk.constant;
        if chunk.checked != 0 {
            wrong |= W::greater(W::sub(new, load::<W>(&chunk.least)), load::<W>(&chunk.span)) & chunk.checked;
        }
        if chunk.wide != 0 {
            wrong |= overflown::<W>(new, known, entity, chunk.natural) & chunk.wide;
        }
        if chunk.increment != 0 {
            wrong |= !W::differ(known, load::<W>(&chunk.largest)) & chunk.increment;
        }
        if wrong != 0 {
            return None;
        }
        if chunk.nullable != 0 {
            let up = chunk.nullable & !W::negative(entity);
            entity = W::select(up, W::add(entity, W::splat(1)), entity);
        }
        let present = chunk.always | (differs & chunk.bits);
        keep::<W>(output.state(), chunk, new, before);
        bits(output, W::extract(present.into(), chunk.bits.into()) as u8, chunk.bits.count_ones());
        if present & chunk.strings != 0 {
            return Some(W::put_among_texts(output, chunk, (entity, present), (frame, room)));
        }
        emit::<W>(output, entity, present, chunk.signed);
    }
    Some(Status::Ok)
}

/// Writes entities, and strings where they are among them.
///
/// # Safety
/// As [`all`].
#[inline(always)]
pub(super) unsafe fn among_texts<W: Wide>(
    output: &mut Output<'_>,
    chunk: &Chunk,
    (entities, present): (W::Words, u8),
    (frame, room): (*const u8, usize),
) -> Status {
    let (mut rest, mut texts) = (present, present & chunk.strings);
    while texts != 0 {
        let at = texts.trailing_zeros();
        // SAFETY: as the caller promises.
        unsafe {
            emit::<W>(output, entities, rest & ((1u32 << at) - 1) as u8, chunk.signed);
            (rest, texts) = (rest & !((2u32 << at) - 1) as u8, texts & (texts - 1));
            if text(output, chunk, at as u8, (frame, room)) == Status::Failed {
                return Status::Failed;
            }
        }
    }
    // SAFETY: as the caller promises.
    unsafe { emit::<W>(output, entities, rest, chunk.signed) };
    Status::Ok
}

/// Where a difference is none of 64 bits with a sign, or a sum none of 64 bits.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
pub(super) unsafe fn overflown<W: Wide>(sum: W::Words, base: W::Words, difference: W::Words, natural: u8) -> u8 {
    // SAFETY: as the caller promises.
    unsafe { W::negative(W::xor(sum, base)) & (W::negative(W::xor(sum, difference)) ^ natural) }
}

/// Writes the entities of a mask's lanes.
///
/// # Safety
/// The machine has the instructions, and there is room for 80 bytes.
#[inline(always)]
unsafe fn emit<W: Wide>(output: &mut Output<'_>, entities: W::Words, mask: u8, signed: u8) {
    // SAFETY: as the caller promises.
    unsafe {
        let biased = W::select(signed, W::add(entities, W::splat(64)), entities);
        let long = W::greater(biased, W::splat(127)) & mask;
        if long != 0 {
            let biased = W::select(signed, W::add(entities, W::splat(1 << 55)), entities);
            if W::greater(biased, W::splat((1 << 56) - 1)) & long != 0 {
                output.pos += one_by_one(output.here(), &W::each(entities), mask, signed);
                return;
            }
        }
        output.pos += W::emit(output.here(), entities, mask, long, signed);
    }
}

#[inline(always)]
pub(super) unsafe fn load<W: Wide>(table: &[u64; WIDTH]) -> W::Words {
    // SAFETY: there are eight.
    unsafe { W::load(table.as_ptr()) }
}

/// What a chunk's fields refer to.
#[derive(Clone, Copy)]
pub(super) struct Known<W: Wide> {
    pub words: W::Words,
    /// Fields whose value must be in the message, for there is none to refer to.
    pub unknown: u8,
    /// No slot has a value yet, and all will have one.
    fresh: bool,
}

/// The previous values, or those before there are any; none unless it is the one or the other for
/// all fields.
///
/// # Safety
/// The machine has the instructions; the chunk's slots are in the bank.
#[inline(always)]
pub(super) unsafe fn known<W: Wide>(state: &State, chunk: &Chunk) -> Option<Known<W>> {
    // SAFETY: a bank has as many values and tags behind its last slot as a chunk has lanes.
    unsafe {
        if chunk.scattered.is_some() {
            let words = W::load(scattered(state, chunk)?.as_ptr());
            return Some(Known { words, unknown: 0, fresh: false });
        }
        let first = chunk.first as usize;
        let tags = state.tags.as_ptr().add(first).cast::<u64>().read_unaligned();
        let tagged = u64::from_ne_bytes(chunk.tagged);
        if (tags ^ u64::from_ne_bytes(chunk.tags)) & tagged == 0 {
            return Some(Known { words: W::load(state.values.as_ptr().add(first)), unknown: 0, fresh: false });
        }
        if tags & tagged != u64::from_ne_bytes([UNDEFINED; 8]) || chunk.strings & chunk.slotted != 0 {
            return None;
        }
        Some(Known { words: load::<W>(&chunk.initial), unknown: chunk.unknown, fresh: true })
    }
}

/// The same where the slots do not follow each other.
#[cold]
fn scattered(state: &State, chunk: &Chunk) -> Option<[u64; WIDTH]> {
    let mut values = [0; WIDTH];
    let slots = chunk.scattered.as_deref()?;
    for at in (0..WIDTH).filter(|at| chunk.slotted >> at & 1 != 0) {
        if state.tag(slots[at]) != chunk.tags[at] {
            return None;
        }
        values[at] = state.value(slots[at]);
    }
    Some(values)
}

/// Keeps the values of fields that have a slot; their tags are what they were, unless they had
/// none.
///
/// # Safety
/// As [`known`].
#[inline(always)]
pub(super) unsafe fn keep<W: Wide>(state: &mut State, chunk: &Chunk, new: W::Words, known: Known<W>) {
    // SAFETY: as above.
    unsafe {
        let Some(slots) = &chunk.scattered else {
            if known.fresh {
                let tags = state.tags.as_mut_ptr().add(chunk.first as usize).cast::<u64>();
                let others = tags.read_unaligned() & !u64::from_ne_bytes(chunk.tagged);
                tags.write_unaligned(others | u64::from_ne_bytes(chunk.tags));
            }
            // All of them: a later look at a word that was left out here would wait for those that
            // were not.
            let there = W::load(state.values.as_ptr().add(chunk.first as usize));
            let new = W::select(chunk.kept, new, there);
            return W::store(state.values.as_mut_ptr().add(chunk.first as usize), new);
        };
        let values = W::each(new);
        (0..WIDTH).filter(|at| chunk.kept >> at & 1 != 0).for_each(|at| state.set_value(slots[at], values[at]));
    }
}

/// Appends the bits of a presence map, the first lowest.
#[inline(always)]
fn bits(output: &mut Output<'_>, bits: u8, count: u32) {
    if count == 0 {
        return;
    }
    let map = &mut output.state().map;
    let in_order = u64::from(REVERSED[usize::from(bits)]) >> (8 - count);
    if map.word >> (56 - count) == 0 {
        map.word = map.word << count | in_order;
    } else {
        full(output, in_order, count);
    }
}

/// The same where they fill a word.
#[inline(never)]
fn full(output: &mut Output<'_>, bits: u64, count: u32) {
    let Map { word, next, end } = output.state().map;
    // Up to 55 bits behind the mark, and up to eight.
    let all = word << count | bits;
    let over = 63 - all.leading_zeros() - 56;
    output.state().map = Map { word: all >> over, next, end };
    output.flush_map();
    output.state().map.word = 1 << over | all & ((1 << over) - 1);
}

/// Which strings differ from what would be left out.
///
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn text_mask<W: Wide>(state: &State, chunk: &Chunk, frame: *const u8) -> u8 {
    let mut differ = 0;
    for text in &chunk.texts {
        // SAFETY: as the caller promises.
        differ |= u8::from(unsafe { differs::<W>(state, text, frame) }) << text.lane;
    }
    differ
}

/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn differs<W: Wide>(state: &State, text: &Text, frame: *const u8) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let there = string(text.offset, frame).as_bytes();
        match &text.short {
            Some(short) => W::other(there, short),
            None => !same(known_text(state, text), there),
        }
    }
}

/// What a string is left out for.
pub(super) fn known_text<'t>(state: &'t State, text: &'t Text) -> &'t [u8] {
    match text.field.operator {
        super::super::Operator::Copy => state.text(text.field.text),
        _ => text.field.initial_bytes().unwrap_or_default(),
    }
}

/// # Safety
/// A string is at the offset from the frame.
#[inline(always)]
unsafe fn string<'v>(offset: u32, frame: *const u8) -> &'v str {
    // SAFETY: the verifier has seen that there is a string; those that are parts of messages are
    // none of a run's.
    unsafe { (*frame.add(offset as usize).cast::<alloc::string::String>()).as_str() }
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

/// Turns numbers into exponents and mantissas; none if one is no decimal that its field can say.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
unsafe fn decimals<W: Wide>(chunk: &Chunk, new: W::Words, expected: W::Words) -> Option<W::Words> {
    // SAFETY: as the caller promises; there are eight.
    unsafe {
        let (mantissas, exact) = W::mantissas(new, expected, chunk.floats & !chunk.singles);
        if exact == chunk.floats {
            // The bits are left out.
            let words = W::select(chunk.floats | chunk.escapes, W::splat(0), new);
            let words = W::select(chunk.floats, expected, words);
            return Some(W::select(chunk.floats << 1, W::up(mantissas), words));
        }
        let words = other_decimals(chunk, W::each(new), &W::each(expected))?;
        Some(W::load(words.as_ptr()))
    }
}

/// The same of numbers whose exponents are others than expected.
#[cold]
fn other_decimals(chunk: &Chunk, mut words: [u64; WIDTH], expected: &[u64; WIDTH]) -> Option<[u64; WIDTH]> {
    let mut rest = chunk.floats;
    while rest != 0 {
        let at = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let hint = expected[at] as i64;
        let (exponent, mantissa) = float::decompose(words[at], chunk.singles >> at & 1 != 0, Some(hint))?;
        if chunk.constant >> at & 1 != 0 && exponent != hint {
            return None;
        }
        (words[at], words[(at + 1) % WIDTH]) = (exponent as u64, mantissa as u64);
        if at + 2 < WIDTH && chunk.escapes >> (at + 2) & 1 != 0 {
            words[at + 2] = 0;
        }
    }
    Some(words)
}

/// Writes the string of a lane, whose bit is written.
///
/// # Safety
/// As [`all`].
#[cold]
#[inline(never)]
unsafe fn text(output: &mut Output<'_>, chunk: &Chunk, lane: u8, (frame, room): (*const u8, usize)) -> Status {
    let Some(text) = chunk.texts.iter().find(|text| text.lane == lane) else { return Status::Ok };
    // SAFETY: as the caller promises.
    let value = unsafe { string(text.offset, frame) };
    let status = put::put_text(output, &text.field, value.as_bytes());
    if status == Status::Failed {
        output.blame(text.path);
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
unsafe fn slowly(output: &mut Output<'_>, chunk: &Chunk, (frame, room): (*const u8, usize)) -> Status {
    for member in &chunk.members {
        // SAFETY: as the caller promises.
        if unsafe { one(output, member, frame) } == Status::Failed {
            output.blame(member.path);
            return Status::Failed;
        }
    }
    output.reserve(room)
}

/// # Safety
/// As [`all`].
unsafe fn one(output: &mut Output<'_>, member: &Lane, frame: *const u8) -> Status {
    // SAFETY: as the caller promises.
    let word = unsafe { member.word(frame) };
    match member.kind {
        LaneKind::Float => put::put_int(output, &member.field, word),
        LaneKind::Text => {
            // SAFETY: as the caller promises.
            let text = unsafe { string(member.offset, frame) };
            put::put(output, &member.field, put::Out::Bytes(text.as_bytes()))
        }
        LaneKind::Int => {
            let (mut value, mut scalar) = (from_word(word, member.memory), member.memory);
            for step in &member.steps {
                let Step::Convert(to) = *step else { continue };
                value = match convert(value, scalar, to) {
                    Ok(value) => value,
                    Err(kind) => return output.fail(kind, 8 * to.size() as u64, value as u64),
                };
                scalar = to;
            }
            put::put_int(output, &member.field, value as u64)
        }
    }
}

impl Lane {
    /// The bits of a number in memory, extended by its sign; 0 for a string.
    ///
    /// # Safety
    /// The frame is the one that the run was made for.
    unsafe fn word(&self, frame: *const u8) -> u64 {
        if !self.is_number() {
            return 0;
        }
        // SAFETY: as the caller promises; there are as many bytes.
        unsafe {
            let at = frame.add(self.offset as usize);
            match (self.memory.size(), self.memory.is_signed()) {
                (1, false) => at.read().into(),
                (1, true) => at.cast::<i8>().read() as u64,
                (2, false) => at.cast::<u16>().read_unaligned().into(),
                (2, true) => at.cast::<i16>().read_unaligned() as u64,
                (4, false) => at.cast::<u32>().read_unaligned().into(),
                (4, true) => at.cast::<i32>().read_unaligned() as u64,
                _ => at.cast::<u64>().read_unaligned(),
            }
        }
    }
}
