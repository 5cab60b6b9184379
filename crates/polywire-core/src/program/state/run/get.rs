//! Reading runs.

use alloc::string::String;

use super::{
    super::{Input, Operator, Status, float, get},
    Lane, LaneKind, REVERSED, Run, Step, WIDTH,
    chunk::{Chunk, Text},
    put::{keep, known, known_text, load, overflown, same},
    wide::{Plain, Wide},
};
use crate::program::{
    FaultKind,
    interp::{convert, fields::set_pending, from_word},
    io::SHORT_TEXT,
};

/// Reads the fields of a run into the frame by way of the lanes; where the machine does not gather,
/// numbers into the lanes alone.
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
/// The run was made for the members of the frame, whose values live and are nobody else's. There
/// are as many lanes as the run has.
#[inline(always)]
unsafe fn all<W: Wide>(input: &mut Input<'_>, run: &Run, lanes: *mut u64, frame: *mut u8) -> Status {
    // SAFETY: as the caller promises.
    unsafe {
        let usual = affordable(input, run) && constants::<W>(input, run, frame);
        let mut words = lanes;
        for chunk in &run.chunks {
            let before = (input.pos, input.state().map);
            let quick = if usual { quickly::<W>(input, chunk, words, frame) } else { None };
            let status = match quick {
                Some(status) => status,
                None => {
                    (input.pos, input.state().map) = before;
                    input.fault = None;
                    slowly(input, chunk, words, frame)
                }
            };
            if status == Status::Failed {
                return Status::Failed;
            }
            words = words.add(WIDTH);
        }
        // All at once, and behind the last look at a string: what was just written beside it would
        // be waited for.
        words = lanes;
        for chunk in &run.chunks {
            W::scatter(chunk, frame, words);
            words = words.add(WIDTH);
        }
    }
    Status::Ok
}

/// Sets constant strings, which memory suffices for; false if it may not be had.
///
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn constants<W: Wide>(input: &mut Input<'_>, run: &Run, frame: *mut u8) -> bool {
    for text in &run.constants {
        // SAFETY: as the caller promises.
        if !unsafe { left_out::<W>(input, text, frame) } {
            return false;
        }
    }
    true
}

/// Eight fields at once. None if they have to be looked at one by one; no previous integer has
/// changed then, and a string only to what it will be changed to.
///
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn quickly<W: Wide>(input: &mut Input<'_>, chunk: &Chunk, lanes: *mut u64, frame: *mut u8) -> Option<Status> {
    // SAFETY: as the caller promises.
    unsafe {
        let before = known::<W>(input.state(), chunk)?;
        let known = before.words;
        let present = chunk.always | W::deposit(bits(input, chunk.bits.count_ones()).into(), chunk.bits.into()) as u8;
        if present & chunk.escapes != 0 || before.unknown & !present != 0 {
            return None;
        }
        let mut entity = match present & chunk.strings {
            0 => some_entities::<W>(input, present, chunk.signed)?,
            _ => W::get_among_texts(input, chunk, present, frame)?,
        };
        let mut wrong = 0;
        if chunk.nullable != 0 {
            let there = chunk.nullable & present;
            wrong |= !W::differ(entity, W::splat(0)) & there;
            let down = there & !W::negative(entity);
            entity = W::select(down, W::sub(entity, W::splat(1)), entity);
        }
        let sum = W::add(entity, W::select(chunk.delta, known, W::splat(0)));
        let absent = W::select(chunk.fixed, load::<W>(&chunk.initial), W::add_one(known, chunk.increment));
        let value = W::select(present, sum, absent);
        if chunk.checked != 0 {
            wrong |= W::greater(W::sub(value, load::<W>(&chunk.least)), load::<W>(&chunk.span)) & chunk.checked;
        }
        if chunk.wide != 0 {
            wrong |= overflown::<W>(value, known, entity, chunk.natural) & chunk.wide;
        }
        if chunk.increment != 0 {
            wrong |= !W::differ(known, load::<W>(&chunk.largest)) & chunk.increment & !present;
        }
        if wrong != 0 {
            return None;
        }
        keep::<W>(input.state(), chunk, value, before);
        let members = if chunk.floats == 0 { value } else { numbers::<W>(chunk, value) };
        W::store(lanes, members);
        for text in &chunk.texts {
            if present >> text.lane & 1 == 0 && !left_out::<W>(input, text, frame) {
                return Some(Status::Failed);
            }
        }
        Some(Status::Ok)
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
    rest_of_bits(input, count)
}

/// The same where a word ends.
#[inline(never)]
fn rest_of_bits(input: &mut Input<'_>, count: u32) -> u8 {
    let word = input.state().map.word;
    let left = 63 - word.trailing_zeros().min(63);
    let first = REVERSED[(word >> 56) as usize] & ((1u32 << left) - 1) as u8;
    let word = input.refill_map();
    input.state().map.word = word << (count - left);
    first | (u32::from(REVERSED[(word >> 56) as usize]) << left & ((1u32 << count) - 1)) as u8
}

/// The entities of integers, among strings that are there, which are read on the way. None as for
/// [`some_entities`].
///
/// # Safety
/// As [`all`].
#[inline(always)]
pub(super) unsafe fn among_texts<W: Wide>(
    input: &mut Input<'_>,
    chunk: &Chunk,
    present: u8,
    frame: *mut u8,
) -> Option<W::Words> {
    // SAFETY: as the caller promises.
    unsafe {
        let (mut texts, mut rest, mut all) = (present & chunk.strings, present, W::splat(0));
        while texts != 0 {
            let at = texts.trailing_zeros();
            let before = rest & ((1u32 << at) - 1) as u8;
            all = W::select(before, some_entities::<W>(input, before, chunk.signed)?, all);
            (rest, texts) = (rest & !((2u32 << at) - 1) as u8, texts & (texts - 1));
            if text(input, chunk, at as u8, frame) == Status::Failed {
                return None;
            }
        }
        Some(W::select(rest, some_entities::<W>(input, rest, chunk.signed)?, all))
    }
}

/// The entities of these lanes, which come one after the other. None if one is longer than it needs
/// to be, or not there as a whole.
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
        return longest(rest, signed);
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

/// An entity of nine or ten bytes.
#[cold]
fn longest(rest: &[u8], signed: bool) -> Option<(u64, usize)> {
    let len = 1 + rest.iter().take(10).position(|byte| byte & 0x80 != 0)?;
    let bytes = &rest[..len];
    let [first, second] = *bytes.first_chunk()?;
    let negative = signed && first & 0x40 != 0;
    let filler = if negative { 0x7F } else { 0 };
    if len < 9 || first == filler && (!signed || (second & 0x40 != 0) == negative) {
        return None;
    }
    let start = if negative { -1i128 } else { 0 };
    let value = bytes.iter().fold(start, |value, byte| value << 7 | i128::from(byte & 0x7F));
    let word = if signed { i64::try_from(value).ok()? as u64 } else { u64::try_from(value).ok()? };
    Some((word, len))
}

/// # Safety
/// A string that nobody else refers to is at the offset from the frame.
#[inline(always)]
unsafe fn string<'v>(offset: u32, frame: *mut u8) -> &'v mut String {
    // SAFETY: the verifier has seen that there is a string; those that are parts of messages are
    // none of a run's.
    unsafe { &mut *frame.add(offset as usize).cast::<String>() }
}

/// True if all strings fit what memory is left, so that none of them is refused, whatever comes
/// before it.
#[inline(always)]
fn affordable(input: &mut Input<'_>, run: &Run) -> bool {
    let longest = input.remaining() + 2 * input.state().text_bytes + SHORT_TEXT;
    run.fixed_cost + run.strings * longest <= input.memory_left
}

/// Sets a string that is not in the message; false if memory may not be had.
///
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn left_out<W: Wide>(input: &mut Input<'_>, text: &Text, frame: *mut u8) -> bool {
    // SAFETY: as the caller promises.
    let string = unsafe { string(text.offset, frame) };
    let other = match &text.short {
        // SAFETY: the bytes are there.
        Some(short) => unsafe { W::other(string.as_bytes(), short) },
        None => {
            let known = known_text(input.state(), text);
            let (len, other) = (known.len(), !same(known, string.as_bytes()));
            if text.field.operator == Operator::Copy {
                input.memory_left -= len;
            }
            other
        }
    };
    !(other | (string.capacity() < SHORT_TEXT)) || set(input, string, text) == Status::Ok
}

#[cold]
#[inline(never)]
fn set(input: &mut Input<'_>, string: &mut String, text: &Text) -> Status {
    let mut bytes = core::mem::take(&mut input.state().pending);
    bytes.clear();
    bytes.extend_from_slice(known_text(input.state(), text));
    // It was a valid string when it came into the state, or into the template.
    let status = match core::str::from_utf8(&bytes) {
        Ok(text) => input.set_text(string, text),
        Err(_) => input.set_text(string, &String::from_utf8_lossy(&bytes)),
    };
    input.state().pending = bytes;
    if status == Status::Failed {
        input.blame(text.path);
    }
    status
}

/// Reads the string of a lane, whose bit was set.
///
/// # Safety
/// As [`all`].
#[cold]
#[inline(never)]
unsafe fn text(input: &mut Input<'_>, chunk: &Chunk, lane: u8, frame: *mut u8) -> Status {
    let Some(text) = chunk.texts.iter().find(|text| text.lane == lane) else { return Status::Ok };
    if get::get_text(input, &text.field) == Status::Failed {
        return Status::Failed;
    }
    // SAFETY: as the caller promises.
    set_pending(input, unsafe { string(text.offset, frame) })
}

/// Puts numbers together from exponents and mantissas.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
unsafe fn numbers<W: Wide>(chunk: &Chunk, words: W::Words) -> W::Words {
    // SAFETY: as the caller promises; there are eight.
    unsafe {
        let (doubles, known) = W::doubles(W::down(words), words, chunk.floats & !chunk.singles);
        if known == chunk.floats {
            return W::select(chunk.floats, doubles, words);
        }
        let words = other_numbers(chunk, W::each(words));
        W::load(words.as_ptr())
    }
}

/// The same of any.
#[cold]
fn other_numbers(chunk: &Chunk, mut words: [u64; WIDTH]) -> [u64; WIDTH] {
    let mut rest = chunk.floats;
    while rest != 0 {
        let at = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let (exponent, mantissa) = (words[at] as i64, words[(at + 1) % WIDTH] as i64);
        words[at] = float::compose(exponent, mantissa, chunk.singles >> at & 1 != 0);
    }
    words
}

/// Fields one by one.
///
/// # Safety
/// As [`all`].
#[cold]
#[inline(never)]
unsafe fn slowly(input: &mut Input<'_>, chunk: &Chunk, lanes: *mut u64, frame: *mut u8) -> Status {
    let mut words = [0; WIDTH];
    for member in &chunk.members {
        // SAFETY: as the caller promises.
        match unsafe { one(input, member, frame) } {
            Ok(word) if member.is_number() => words[usize::from(member.at)] = word,
            Ok(_) => {}
            Err(_) => {
                input.blame(member.path);
                return Status::Failed;
            }
        }
    }
    // SAFETY: as the caller promises.
    unsafe { lanes.cast::<[u64; WIDTH]>().write(words) };
    Status::Ok
}

/// # Safety
/// As [`all`].
unsafe fn one(input: &mut Input<'_>, member: &Lane, frame: *mut u8) -> Result<u64, Status> {
    let field = &member.field;
    match member.kind {
        LaneKind::Float => get::get_int(input, field),
        LaneKind::Text => {
            let got = match crate::program::interp::fields::get_pending(input, field) {
                // SAFETY: as the caller promises.
                Status::Ok => set_pending(input, unsafe { string(member.offset, frame) }),
                failed => failed,
            };
            if got == Status::Ok { Ok(0) } else { Err(got) }
        }
        LaneKind::Int => {
            let word = get::get_int(input, field)?;
            let (mut value, mut scalar) = (from_word(word, field.scalar()), field.scalar());
            for step in &member.steps {
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
