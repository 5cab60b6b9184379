//! Presence maps.
//!
//! A map is taken in words of 56 bits, the first bit on top, with a one behind the last: when
//! nothing but that one is left, the next word is due. Writing gathers words of 56 bits behind a
//! leading one, and puts them into room that was left in front.

use super::{
    super::{ActionKernel, Cursor, FaultKind, Input, Output, RegionDialect, Status, TestKernel},
    Policy, integer,
};

/// The map of the segment that a message is at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Map {
    /// Where the next bytes come from or go to.
    next: u64,
    /// Reading: where the map ends. Writing: where the room for it does.
    end: u64,
    /// Bits and the delimiter.
    word: u64,
}

/// Bits of a word.
const WORD: u32 = 56;
/// The delimiter of a word of which everything was taken.
const DELIMITER: u64 = 1 << 63;

/// A segment: a presence map, and what it is for. The argument is made by [`segment`].
pub(crate) static SEGMENT: RegionDialect =
    RegionDialect { name: "fast.segment", restarts_origin: false, get_begin, get_end, put_begin, put_end, form: None };

/// The argument of a [`SEGMENT`]: bits that are written at most, and what happens to deviations.
pub(crate) fn segment(bits: u32, policy: Policy) -> u64 {
    u64::from(bits) | (policy as u64) << 32
}

/// What happens to deviations in a [`SEGMENT`] with this argument.
pub(crate) fn policy(argument: u64) -> Policy {
    match argument >> 32 {
        1 => Policy::Report,
        2 => Policy::Ignore,
        _ => Policy::Reject,
    }
}

/// Takes a bit of the presence map.
pub(crate) static TAKE_BIT: TestKernel = TestKernel { name: "fast.bit", test: take_bit };

/// Bits of the presence map that are known: as many zeros as the argument's low half says, and a
/// one behind them if its bit 32 is set.
pub(crate) static BITS: ActionKernel = ActionKernel { name: "fast.bits", get: get_bits, put: put_bits };

/// Forgets all previous values but that of the slot that the argument names.
pub(crate) static RESET: ActionKernel = ActionKernel { name: "fast.reset", get: reset_input, put: reset_output };

impl Map {
    fn to_cursor(self) -> Cursor {
        Cursor([self.word, self.next, self.end])
    }

    fn of_cursor(cursor: &Cursor) -> Map {
        let Cursor([word, next, end]) = *cursor;
        Map { word, next, end }
    }
}

impl Input<'_> {
    /// The next bit of the presence map. Behind its end there are zeros.
    #[inline]
    pub(super) fn take_bit(&mut self) -> bool {
        let word = self.state().map.word;
        let word = if word == DELIMITER || word == 0 { self.refill_map() } else { word };
        self.state().map.word = word << 1;
        word & DELIMITER != 0
    }

    /// The next word of the map.
    #[cold]
    fn refill_map(&mut self) -> u64 {
        let message = self.message();
        let map = &mut self.state().map;
        let rest = message.get(map.next as usize..map.end as usize).unwrap_or(&[]);
        let taken = rest.len().min(8);
        map.next += taken as u64;
        word_of(&rest[..taken])
    }
}

/// Up to eight bytes of a map as a word with its delimiter.
fn word_of(bytes: &[u8]) -> u64 {
    word_of_eight(first_eight(bytes))
}

/// The same of eight bytes, the first on top.
#[inline]
fn word_of_eight(bytes: u64) -> u64 {
    (integer::gather(bytes) << 1 | 1) << (63 - WORD)
}

/// The first eight bytes, the first on top; zeros for those that are not there.
#[inline]
fn first_eight(bytes: &[u8]) -> u64 {
    match bytes {
        [a, b, c, d, e, f, g, h, ..] => u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
        [a, b, c, d, ..] => {
            // The last four overlap the first.
            let last = bytes.last_chunk().map_or(0, |last| u64::from(u32::from_be_bytes(*last)));
            u64::from(u32::from_be_bytes([*a, *b, *c, *d])) << 32 | last << (8 * (8 - bytes.len()))
        }
        few => few.iter().enumerate().fold(0, |word, (i, byte)| word | u64::from(*byte) << (56 - 8 * i)),
    }
}

extern "C" fn get_begin(input: &mut Input<'_>, argument: u64, cursor: &mut Cursor) -> Status {
    *cursor = input.state().map.to_cursor();
    let rest = input.rest();
    let bytes = first_eight(rest);
    // Of what is not there no byte is the last.
    let count = (bytes & 0x8080_8080_8080_8080).leading_zeros() / 8 + 1;
    // Short, and its last byte says something.
    if count <= 8 && (count == 1 || rest[count as usize - 1] != 0x80) {
        let end = input.position() + count as usize;
        input.seek(end);
        let word = word_of_eight(bytes & u64::MAX << (64 - 8 * count));
        input.state().map = Map { word, next: end as u64, end: end as u64 };
        return Status::Ok;
    }
    let Some(last) = rest.iter().position(|byte| byte & 0x80 != 0) else {
        return input.fail(FaultKind::Truncated, rest.len() as u64 + 1, rest.len() as u64);
    };
    if last > 0
        && rest[last] == 0x80
        && let Err(status) = input.deviate(FaultKind::OverlongMap, policy(argument), last as u64 + 1)
    {
        return status;
    }
    let start = input.position();
    input.seek(start + last + 1);
    let first = word_of(&rest[..(last + 1).min(8)]);
    let next = start + (last + 1).min(8);
    input.state().map = Map { word: first, next: next as u64, end: (start + last + 1) as u64 };
    Status::Ok
}

extern "C" fn get_end(input: &mut Input<'_>, argument: u64, cursor: &mut Cursor) -> Status {
    let map = input.state().map;
    let more = input.message().get(map.next as usize..map.end as usize).unwrap_or(&[]);
    // What is left of the word is its delimiter, if no bit is.
    let surplus = map.word & map.word.wrapping_sub(1) != 0 || more.iter().any(|byte| byte & 0x7F != 0);
    if surplus && let Err(status) = input.deviate(FaultKind::UnusedBits, policy(argument), 0) {
        return status;
    }
    input.state().map = Map::of_cursor(cursor);
    Status::Ok
}

extern "C" fn take_bit(input: &mut Input<'_>, word: &mut u64) -> Status {
    *word = u64::from(input.take_bit());
    Status::Ok
}

extern "C" fn get_bits(input: &mut Input<'_>, argument: u64) -> Status {
    for _ in 0..argument as u32 {
        if input.take_bit() {
            return input.fail(FaultKind::BadLength, 0, 1);
        }
    }
    match argument >> 32 == 0 || input.take_bit() {
        true => Status::Ok,
        false => input.fail(FaultKind::MissingMember, 1, 0),
    }
}

impl Output<'_> {
    /// Appends a bit to the presence map.
    #[inline]
    pub(super) fn put_bit(&mut self, bit: bool) {
        let word = self.state().map.word << 1 | u64::from(bit);
        self.state().map.word = word;
        if word >> WORD != 0 {
            self.flush_map();
        }
    }

    /// Moves a full word of the map into its room.
    #[cold]
    fn flush_map(&mut self) {
        let Map { word, next, end } = self.state().map;
        let mut bytes = [0; 8];
        bytes.iter_mut().rev().enumerate().for_each(|(i, byte)| *byte = (word >> (7 * i)) as u8 & 0x7F);
        let room = next as usize..(next as usize + 8).min(end as usize);
        if let Some(room) = self.written().get_mut(room) {
            room.copy_from_slice(&bytes[..room.len()]);
        }
        self.state().map = Map { word: 1, next: (next + 8).min(end), end };
    }
}

extern "C" fn put_begin(output: &mut Output<'_>, argument: u64, cursor: &mut Cursor) -> Status {
    *cursor = output.state().map.to_cursor();
    let bytes = (argument as u32).div_ceil(7).max(1) as usize;
    let start = output.position() as u64;
    let begun = match bytes {
        0..=8 => output.put_inline(|room| {
            room.set([0; 16]);
            bytes
        }),
        _ => output.put_with(bytes, |_| bytes),
    };
    if begun == Status::Failed {
        return Status::Failed;
    }
    output.state().map = Map { word: 1, next: start, end: start + bytes as u64 };
    Status::Ok
}

extern "C" fn put_end(output: &mut Output<'_>, argument: u64, cursor: &mut Cursor) -> Status {
    let map = output.state().map;
    let count = 63 - map.word.leading_zeros().min(63);
    let bytes = (argument as u32).div_ceil(7).max(1) as usize;
    if bytes <= 8 && map.next as usize + bytes == map.end as usize {
        output.state().map = Map::of_cursor(cursor);
        return put_short(output, map.next as usize, bytes, map.word << (WORD - count));
    }
    if count > 0 {
        // Zeros behind the last bit fill the word; those that do not fit the room were never bits.
        output.state().map.word = (map.word << (WORD - count)) & ((2 << WORD) - 1);
        output.flush_map();
    }
    let end = map.end as usize;
    let start = end - (argument as u32).div_ceil(7).max(1) as usize;
    let written = output.written();
    let Some(room) = written.get_mut(start..end) else {
        return output.fail(FaultKind::BadLength, end as u64, 0);
    };
    let last = room.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    room[last] |= 0x80;
    let (from, to) = (end, start + last + 1);
    if from > to {
        let len = written.len();
        written.copy_within(from.., to);
        output.truncate(len - (from - to));
    }
    output.state().map = Map::of_cursor(cursor);
    Status::Ok
}

/// Puts a map of up to eight bytes, whose bits are on top of 56, into its room, and what follows
/// the room behind it.
#[inline]
fn put_short(output: &mut Output<'_>, start: usize, room: usize, bits: u64) -> Status {
    // The first byte on top; zeros at the end are cut, but for the first byte.
    let groups = integer::spread(bits & ((1 << WORD) - 1)) & u64::MAX << (64 - 8 * room);
    let len = 8 - (groups.trailing_zeros() as usize / 8).min(7);
    let groups = groups | 0x80 << (64 - 8 * len);
    let (from, to) = (start + room, start + len);
    let (moved, written) = (output.pos - from, output.written());
    if len == room {
        written[start..from].copy_from_slice(&groups.to_be_bytes()[..room]);
        return Status::Ok;
    }
    written.copy_within(from.., to);
    written[start..to].copy_from_slice(&groups.to_be_bytes()[..len]);
    output.truncate(to + moved);
    Status::Ok
}

extern "C" fn put_bits(output: &mut Output<'_>, argument: u64) -> Status {
    for _ in 0..argument as u32 {
        output.put_bit(false);
    }
    if argument >> 32 != 0 {
        output.put_bit(true);
    }
    Status::Ok
}

fn reset(state: &mut super::State, kept: u32) {
    let tag = state.tag(kept);
    state.forget();
    state.set_tag(kept, tag);
}

extern "C" fn reset_input(input: &mut Input<'_>, kept: u64) -> Status {
    reset(input.state(), kept as u32);
    Status::Ok
}

extern "C" fn reset_output(output: &mut Output<'_>, kept: u64) -> Status {
    reset(output.state(), kept as u32);
    Status::Ok
}
