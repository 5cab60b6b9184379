//! Presence maps: reads and writes the bits of the current map. The interpreter and general machine
//! code (`jit/fields.rs`) call this file. Direct functions have code of their own
//! (`jit/stream/map.rs`). It touches the state, the input and the output.
//!
//! A segment is the part of a message that has a presence map in front.
//!
//! A reader loads a map in words of 56 bits. The first bit is the highest, and a one, the
//! delimiter, follows the last bit: when only the delimiter is left, the next word is loaded. A
//! writer collects words of 56 bits behind a leading one. It stores them in room that was reserved
//! in front of the segment.

use super::{
    super::{Cursor, FaultKind, Input, Output, Status},
    Policy, State, integer,
};

/// The map of the current segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Map {
    /// Where the next bytes come from or go to.
    next: u64,
    /// Reading: where the map ends. Writing: where its room ends.
    end: u64,
    /// Bits and the delimiter.
    word: u64,
}

/// Bits of a word.
const WORD: u32 = 56;
/// A word without remaining bits: only the delimiter.
const DELIMITER: u64 = 1 << 63;

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
    pub(crate) fn take_bit(&mut self) -> bool {
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

/// A word with its delimiter, from up to eight bytes of a map.
fn word_of(bytes: &[u8]) -> u64 {
    word_of_eight(first_eight(bytes))
}

/// A word with its delimiter, from eight bytes, the first one most significant.
#[inline]
fn word_of_eight(bytes: u64) -> u64 {
    (integer::gather(bytes) << 1 | 1) << (63 - WORD)
}

/// The first eight bytes, the first one most significant; zeros for missing ones.
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

/// Reads a presence map. The cursor keeps the enclosing map.
pub(crate) extern "C" fn begin_reading(input: &mut Input<'_>, policy: u64, cursor: &mut Cursor) -> Status {
    *cursor = input.state().map.to_cursor();
    let rest = input.rest();
    let bytes = first_eight(rest);
    // Bytes behind the end of the input are zero here, so none of them has a stop bit.
    let count = (bytes & 0x8080_8080_8080_8080).leading_zeros() / 8 + 1;
    // The map is short and not overlong.
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
        && let Err(status) = input.deviate(FaultKind::OverlongMap, Policy::of_word(policy), last as u64 + 1)
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

/// Reports set bits that no operation took, and restores the enclosing map.
pub(crate) extern "C" fn end_reading(input: &mut Input<'_>, policy: u64, cursor: &mut Cursor) -> Status {
    let map = input.state().map;
    let more = input.message().get(map.next as usize..map.end as usize).unwrap_or(&[]);
    // Only the delimiter is left of the word if no further bit is set.
    let surplus = map.word & map.word.wrapping_sub(1) != 0 || more.iter().any(|byte| byte & 0x7F != 0);
    if surplus && let Err(status) = input.deviate(FaultKind::UnusedBits, Policy::of_word(policy), 0) {
        return status;
    }
    input.state().map = Map::of_cursor(cursor);
    Status::Ok
}

/// Checks bits with known values.
pub(crate) fn expect_bits(input: &mut Input<'_>, zeros: u32, one: bool) -> Status {
    for _ in 0..zeros {
        if input.take_bit() {
            return input.fail(FaultKind::BadLength, 0, 1);
        }
    }
    match !one || input.take_bit() {
        true => Status::Ok,
        false => input.fail(FaultKind::MissingMember, 1, 0),
    }
}

impl Output<'_> {
    /// Appends a bit to the presence map.
    #[inline]
    pub(crate) fn put_bit(&mut self, bit: bool) {
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

/// Bytes of room for a map of the given number of bits.
fn room(bits: u64) -> usize {
    bits.div_ceil(7).max(1) as usize
}

/// Reserves room for a presence map of at most `bits` bits. The cursor keeps the enclosing map.
pub(crate) extern "C" fn begin_writing(output: &mut Output<'_>, bits: u64, cursor: &mut Cursor) -> Status {
    *cursor = output.state().map.to_cursor();
    let bytes = room(bits);
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

/// Writes the map into its room, moves the following bytes up to it, and restores the enclosing
/// map.
pub(crate) extern "C" fn end_writing(output: &mut Output<'_>, bits: u64, cursor: &mut Cursor) -> Status {
    let map = output.state().map;
    let count = 63 - map.word.leading_zeros().min(63);
    let bytes = room(bits);
    if bytes <= 8 && map.next as usize + bytes == map.end as usize {
        output.state().map = Map::of_cursor(cursor);
        return put_short(output, map.next as usize, bytes, map.word << (WORD - count));
    }
    if count > 0 {
        // Zeros behind the last bit fill the word. Those that exceed the room are no bits of the
        // map.
        output.state().map.word = (map.word << (WORD - count)) & ((2 << WORD) - 1);
        output.flush_map();
    }
    let end = map.end as usize;
    let written = output.written();
    // A kernel inside may have truncated the output below the room.
    let start = end.checked_sub(bytes);
    let Some((start, room)) = start.and_then(|start| Some((start, written.get_mut(start..end)?))) else {
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

/// Stores a map of up to eight bytes, whose first bit is the highest of 56, in its room, and moves
/// the bytes behind the room up to it.
#[inline]
fn put_short(output: &mut Output<'_>, start: usize, room: usize, bits: u64) -> Status {
    // The first byte is the most significant. Zero bytes at the end are elided, except the first
    // byte.
    let groups = integer::spread(bits & ((1 << WORD) - 1)) & u64::MAX << (64 - 8 * room);
    let len = 8 - (groups.trailing_zeros() as usize / 8).min(7);
    let groups = groups | 0x80 << (64 - 8 * len);
    let (from, to) = (start + room, start + len);
    // A kernel inside may have truncated the output below the room.
    let Some(moved) = output.pos.checked_sub(from) else {
        return output.fail(FaultKind::BadLength, from as u64, 0);
    };
    let written = output.written();
    if len == room {
        written[start..from].copy_from_slice(&groups.to_be_bytes()[..room]);
        return Status::Ok;
    }
    written.copy_within(from.., to);
    written[start..to].copy_from_slice(&groups.to_be_bytes()[..len]);
    output.truncate(to + moved);
    Status::Ok
}

/// Writes bits with known values.
pub(crate) fn put_bits(output: &mut Output<'_>, zeros: u32, one: bool) {
    (0..zeros).for_each(|_| output.put_bit(false));
    if one {
        output.put_bit(true);
    }
}

impl State {
    /// Makes all slots but one undefined.
    pub(crate) fn forget_but(&mut self, except: u32) {
        let tag = self.tag(except);
        self.forget();
        self.set_tag(except, tag);
    }
}
