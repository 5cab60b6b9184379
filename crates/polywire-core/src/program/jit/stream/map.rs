//! Presence maps in direct functions: emits code that reads and writes them and their bits.
//!
//! A reader loads the whole map into registers, and a writer collects it there. Each bit has a
//! constant position, so that a test of a bit is one instruction. `jit/fields.rs` and the choices
//! of `jit/join.rs` and others call this file. The code touches the message only.

use alloc::vec::Vec;

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};

use cranelift_frontend::Variable;

use super::{
    super::emit::Emit,
    elided::{ElidedBits, bits, has_elided},
};
use crate::{
    layout::Scalar,
    program::{Block, Order},
};

/// The stop bit of each of eight bytes.
const STOPS: i64 = 0x8080_8080_8080_8080_u64 as i64;

/// The bits of a map in a word of eight bytes.
pub(super) const WORD: u32 = 56;

/// A bit of a map that is being written, in its word.
#[derive(Clone, Copy)]
pub(in super::super) struct Bit(u64);

/// The presence map of the segment that is being emitted.
pub(in super::super) struct Segment {
    /// The most bits that it has, and the number of those taken or put so far.
    pub(super) bits: u32,
    pub(super) done: u32,
    /// Writing: the bits that are not stored in the room yet, in their final byte positions.
    word: Variable,
    /// Writing: where the room begins.
    pub(super) start: Value,
    /// Reading: all words, the map's first byte lowest.
    words: Vec<Value>,
    /// If bits may be elided: the bookkeeping for them.
    pub(super) elided: Option<ElidedBits>,
}

impl<'e> Emit<'e, '_> {
    /// Emits writing a segment whose presence map has the given number of bits.
    pub(in super::super) fn put_segment(&mut self, bits: u32, body: &'e Block, frame: Value) {
        let (start, none, word) = (self.position(), self.constant(0), self.code.declare_var(types::I64));
        self.code.def_var(word, none);
        let elided = has_elided(body).then(|| self.begin_elided(bits));
        let outer = self.segment.replace(Segment { bits, done: 0, word, start, words: Vec::new(), elided });
        self.advance(bytes(bits).into());
        self.inner(body, frame);
        if let Some(segment) = core::mem::replace(&mut self.segment, outer) {
            self.end_map(&segment);
        }
    }

    /// Takes the position of the next bit, which is zero unless [`Emit::set_bit`] is called before
    /// the next `next_bit`.
    pub(in super::super) fn next_bit(&mut self) -> Bit {
        let Some(Segment { bits, done, word, start, .. }) = &mut self.segment else { return Bit(0) };
        let (bits, before, word, start) = (*bits, *done, *word, *start);
        *done += 1;
        if before > 0 && before.is_multiple_of(WORD) {
            let (full, here) = (self.code.use_var(word), self.map_at(start, before / WORD * 8 - 8));
            self.store_groups(full, 8, here);
            let none = self.constant(0);
            self.code.def_var(word, none);
        }
        // The last byte of the word is lowest.
        let last = bytes((bits - before / WORD * WORD).min(WORD)) - 1;
        let bit = before % WORD;
        Bit(1 << (8 * (last - bit / 7) + 6 - bit % 7))
    }

    /// The number of bits taken or put so far. Alternative branches begin with the same number and
    /// end with the same number.
    pub(in super::super) fn bits_done(&self) -> u32 {
        self.segment.as_ref().map_or(0, |segment| segment.done)
    }

    /// The number of bits done before alternative blocks, and behind the longest of them.
    pub(in super::super) fn arm_bits<'b>(&self, blocks: impl Iterator<Item = &'b Block>) -> (u32, u32) {
        let start = self.bits_done();
        match &self.segment {
            Some(_) => (start, start + blocks.map(bits).max().unwrap_or(0)),
            None => (start, start),
        }
    }

    /// Elides the remaining bits of a block, up to the end of the longer alternative.
    pub(in super::super) fn elide_rest(&mut self, end: u32, stops: bool) {
        for index in self.bits_done()..if stops || self.segment.is_none() { 0 } else { end } {
            self.set_bits_done(index);
            self.elide_bit();
        }
        self.set_bits_done(end);
    }

    /// Writes zeros up to the end of the longest alternative block; when decoding, bails out unless
    /// there are zeros.
    pub(in super::super) fn fill_bits(&mut self, end: u32) {
        while self.segment.is_some() && self.bits_done() < end {
            if self.encodes() {
                self.next_bit();
            } else {
                let surplus = self.take_bit();
                self.or_bail_out(surplus);
            }
        }
    }

    /// Sets the number of bits done, at the beginning of an alternative branch.
    pub(in super::super) fn set_bits_done(&mut self, done: u32) {
        self.segment.iter_mut().for_each(|segment| segment.done = done);
    }

    /// Sets a bit of the map to one.
    pub(in super::super) fn set_bit(&mut self, Bit(mask): Bit) {
        let Some(Segment { word, .. }) = self.segment else { return };
        let before = self.code.use_var(word);
        let after = self.code.ins().bor_imm_s(before, mask as i64);
        self.code.def_var(word, after);
    }

    /// Ends a map that is written: cuts zeros at its end, and moves the following bytes up.
    fn end_map(&mut self, segment: &Segment) {
        let (total, full) = (bytes(segment.bits), segment.bits.saturating_sub(1) / WORD);
        let (last, word) = (total - 8 * full, self.code.use_var(segment.word));
        let here = self.map_at(segment.start, 8 * full);
        let (moved, done) = (self.new_block(), self.new_block());
        let behind = self.code.append_block_param(moved, types::I64);
        self.end_with_elided(segment, (word, last), moved);
        if full > 0 {
            let empty = self.code.ins().icmp_imm_s(IntCC::Equal, word, 0);
            self.unless(empty, |emit| {
                emit.store_groups(word, last, here);
                let (first, len) = (emit.map_at(segment.start, 0), emit.constant(total.into()));
                let cut = emit.call_word(end_long as *const u8, &[first, len]);
                emit.jump(moved, &[cut]);
            });
        }
        // The first byte stays even if the map has no set bit.
        let some = self.code.ins().bor_imm_s(word, (1u64 << (8 * last - 1)) as i64);
        let zeros = self.code.ins().ctz(some);
        let cut = self.code.ins().band_imm_s(zeros, !7);
        let stop = self.constant(0x80);
        let stop = self.code.ins().ishl(stop, cut);
        let word = self.code.ins().bor(word, stop);
        self.store_groups(word, last, here);
        let none = self.code.ins().icmp_imm_s(IntCC::Equal, cut, 0);
        self.or_else(none, done);
        let cut = self.code.ins().ushr_imm_u(cut, 3);
        self.jump(moved, &[cut]);
        self.code.switch_to_block(moved);
        self.move_up(here, last, behind);
        self.jump_and_begin(done, done);
    }

    /// Moves the bytes behind the map, which has `len` bytes at `at`, to the front by `cut` bytes.
    /// The moves may read and write some bytes past the end, where there is room.
    fn move_up(&mut self, at: Value, len: u32, cut: Value) {
        let from = self.code.ins().iadd_imm_s(at, i64::from(len));
        let to = self.code.ins().isub(from, cut);
        let end = self.here();
        let (head, done) = (self.new_block(), self.new_block());
        let [source, target] = [(); 2].map(|()| self.code.append_block_param(head, types::I64));
        self.jump(head, &[from, to]);
        self.code.switch_to_block(head);
        let bytes = self.load(types::I8X16, source, 0);
        self.store(bytes, target, 0);
        let source = self.code.ins().iadd_imm_s(source, 16);
        let target = self.code.ins().iadd_imm_s(target, 16);
        let more = self.code.ins().icmp(IntCC::UnsignedLessThan, source, end);
        let again = [source, target].map(Into::into);
        self.code.ins().brif(more, head, &again, done, &[]);
        self.code.switch_to_block(done);
        let position = self.position();
        let position = self.code.ins().isub(position, cut);
        self.code.def_var(self.position, position);
    }

    pub(super) fn map_at(&mut self, start: Value, offset: u32) -> Value {
        let base = self.code.use_var(self.base);
        let at = self.code.ins().iadd(base, start);
        self.code.ins().iadd_imm_s(at, i64::from(offset))
    }

    /// Stores the low bytes of a word, the highest of them first.
    pub(super) fn store_groups(&mut self, word: Value, len: u32, at: Value) {
        let up = self.code.ins().ishl_imm_u(word, i64::from(64 - 8 * len));
        let word = self.code.ins().bswap(up);
        let mut offset = 0;
        for scalar in [Scalar::U64, Scalar::U32, Scalar::U16, Scalar::U8] {
            let size = scalar.size() as u32;
            if len - offset >= size {
                let part = self.code.ins().ushr_imm_u(word, i64::from(8 * offset));
                let part = self.reorder(part, scalar, Order::Little);
                self.store_scalar(scalar, part, at, offset as i32);
                offset += size;
            }
        }
    }

    /// Writes bits with known values.
    pub(in super::super) fn put_known(&mut self, zeros: u32, one: bool) {
        for _ in 0..zeros {
            self.next_bit();
        }
        if one {
            let bit = self.next_bit();
            self.set_bit(bit);
        }
    }

    /// Checks bits with known values; bails out if they differ.
    pub(in super::super) fn expect_known(&mut self, zeros: u32, one: bool) {
        for _ in 0..zeros {
            let bit = self.take_bit();
            self.or_bail_out(bit);
        }
        if one {
            let bit = self.take_bit();
            let zero = self.code.ins().icmp_imm_s(IntCC::Equal, bit, 0);
            self.or_bail_out(zero);
        }
    }

    /// Emits reading a segment whose presence map has at most the given number of bits.
    pub(in super::super) fn get_segment(&mut self, bits: u32, body: &'e Block, frame: Value) {
        let (words, start) = (self.map_words(bits), self.position());
        let word = self.code.declare_var(types::I64);
        let elided = has_elided(body).then(|| self.gather_bits(&words));
        let outer = self.segment.replace(Segment { bits, done: 0, word, start, words, elided });
        self.inner(body, frame);
        self.segment = outer;
    }

    /// The next bit of the map, as a condition.
    pub(in super::super) fn take_bit(&mut self) -> Value {
        let Some(Segment { done, words, elided, .. }) = &mut self.segment else { return self.constant(0) };
        let (index, at) = (*done, (*done / WORD) as usize);
        *done += 1;
        if let Some(ElidedBits::Reading(words)) = elided {
            let word = words[at];
            return self.gathered_bit(word, index);
        }
        let (word, bit) = (words[at], index % WORD);
        let place = 8 * (bit / 7) + 6 - bit % 7;
        // All bits of the upper half share the shift.
        let half = if place < 32 { word } else { self.code.ins().ushr_imm_u(word, 32) };
        self.code.ins().band_imm_s(half, 1 << (place % 32))
    }

    /// The next bit of the map, as zero or one.
    pub(in super::super) fn take_flag(&mut self) -> Value {
        let bit = self.take_bit();
        let bit = self.code.ins().icmp_imm_s(IntCC::NotEqual, bit, 0);
        self.code.ins().uextend(types::I64, bit)
    }

    /// Loads the map's words and moves behind the map. Bails out if the map is too long, or has
    /// ones that no operation takes.
    fn map_words(&mut self, bits: u32) -> Vec<Value> {
        let count = bytes(bits).div_ceil(8);
        let words: Vec<_> = (0..count).map(|_| self.code.declare_var(types::I64)).collect();
        let done = self.new_block();
        for (i, word) in words.iter().enumerate() {
            let loaded = self.map_word((bytes(bits) - 8 * i as u32).min(8));
            let stops = self.code.ins().band_imm_s(loaded, STOPS);
            if i + 1 < words.len() {
                let go_on = self.new_block();
                let last = self.new_block();
                self.code.ins().brif(stops, last, &[], go_on, &[]);
                self.code.switch_to_block(last);
                self.last_word(*word, (loaded, stops), (i, bits));
                let none = self.constant(0);
                words[i + 1..].iter().for_each(|later| self.code.def_var(*later, none));
                self.jump_and_begin(done, go_on);
                self.code.def_var(*word, loaded);
                self.advance(8);
            } else {
                let open = self.code.ins().icmp_imm_s(IntCC::Equal, stops, 0);
                self.or_bail_out(open);
                self.last_word(*word, (loaded, stops), (i, bits));
                self.code.ins().jump(done, &[]);
            }
        }
        self.code.switch_to_block(done);
        words.into_iter().map(|word| self.code.use_var(word)).collect()
    }

    /// The last word of the map, without the bytes behind the map.
    fn last_word(&mut self, word: Variable, (loaded, stops): (Value, Value), (index, bits): (usize, u32)) {
        let below = self.code.ins().iadd_imm_s(stops, -1);
        let own = self.code.ins().bxor(stops, below);
        let own = self.code.ins().band(loaded, own);
        let most = bytes(bits) - 8 * index as u32;
        if most == 1 && index == 0 {
            // The map is always one byte.
            self.advance(1);
        } else {
            let before = self.code.ins().ctz(stops);
            let before = self.code.ins().ushr_imm_u(before, 3);
            // A last byte without a set bit is overlong, unless it is the first.
            let shift = self.code.ins().ishl_imm_u(before, 3);
            let last = self.code.ins().ushr(own, shift);
            let blank = self.code.ins().icmp_imm_s(IntCC::Equal, last, 0x80);
            if index == 0 {
                let more = self.code.ins().icmp_imm_s(IntCC::NotEqual, before, 0);
                let blank = self.code.ins().band(blank, more);
                self.or_bail_out(blank);
            } else {
                self.or_bail_out(blank);
            }
            self.advance_by(before, 1);
        }
        let surplus = surplus(bits, index as u32);
        if surplus != 0 {
            let extra = self.code.ins().band_imm_s(own, surplus as i64);
            self.or_bail_out(extra);
        }
        self.code.def_var(word, own);
    }

    /// Loads up to eight bytes from the position on, the first lowest, with zeros for bytes behind
    /// the end.
    fn map_word(&mut self, most: u32) -> Value {
        let (position, end) = (self.position(), self.code.use_var(self.end));
        if most == 1 {
            let none = self.code.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, position, end);
            self.or_bail_out(none);
            let here = self.here();
            return self.load_scalar(Scalar::U8, here, 0);
        }
        let word = self.code.declare_var(types::I64);
        let (few, many, done) = (self.cold(), self.new_block(), self.new_block());
        let left = self.code.ins().isub(end, position);
        let short = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, left, 8);
        self.code.ins().brif(short, few, &[], many, &[]);
        self.code.switch_to_block(few);
        let here = self.here();
        let bytes = self.call_word(first_bytes as *const u8, &[here, left]);
        self.code.def_var(word, bytes);
        self.jump_and_begin(done, many);
        let here = self.here();
        let bytes = self.load_scalar(Scalar::U64, here, 0);
        let bytes = self.reorder(bytes, Scalar::U64, Order::Little);
        self.code.def_var(word, bytes);
        self.jump_and_begin(done, done);
        self.code.use_var(word)
    }
}

/// The number of bytes of a map.
pub(super) fn bytes(bits: u32) -> u32 {
    bits.div_ceil(7).max(1)
}

/// The mask of the bits of a map's word that are behind the last bit of the map, without stop bits.
fn surplus(bits: u32, word: u32) -> u64 {
    (0..WORD).filter(|bit| word * WORD + bit >= bits).fold(0, |mask, bit| mask | 1 << (8 * (bit / 7) + 6 - bit % 7))
}

/// Sets the stop bit of a map of `len` bytes, whose last bytes are zero, and returns the number of
/// surplus bytes at its end.
pub(super) unsafe extern "C" fn end_long(at: *mut u8, len: u64) -> u64 {
    // SAFETY: machine code passes the room of `len` bytes into which it has written the map.
    let map = unsafe { core::slice::from_raw_parts_mut(at, len as usize) };
    let last = map.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    map[last] |= 0x80;
    (map.len() - 1 - last) as u64
}

/// Loads the rest of a message of fewer than eight bytes, the first lowest.
unsafe extern "C" fn first_bytes(at: *const u8, left: u64) -> u64 {
    // SAFETY: machine code passes the `left` readable bytes at `at`.
    let bytes = unsafe { core::slice::from_raw_parts(at, left.min(7) as usize) };
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}
