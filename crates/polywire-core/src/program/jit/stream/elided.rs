//! Presence maps with elided bits, in direct functions.
//!
//! A bit is elided if its field is absent together with another field: for example the bit of a
//! decimal's mantissa if the decimal is absent. Direct code gives every bit a constant position
//! nevertheless. Where a bit is elided, a reader moves the following bits back by one, and a writer
//! records the position and removes the bit when the map is complete.
//!
//! `map` and `jit/join.rs` call this file. The code touches the registers and stack slots of the
//! map, and the bytes of a map that is written.

use alloc::vec::Vec;

use cranelift_codegen::ir::{InstBuilder, StackSlot, Value, condcodes::IntCC, types};
use cranelift_frontend::Variable;

use super::{
    super::{emit::Emit, join::stops},
    map::{Segment, WORD, bytes, end_long},
};
use crate::program::{
    Block, Op, OpKind,
    passes::inner_blocks,
    state::integer::{gather, spread},
};

/// The most bits that a block takes from the enclosing presence map.
pub(super) fn bits(block: &Block) -> u32 {
    let longest = |blocks: &mut dyn Iterator<Item = &Block>| blocks.map(bits).max().unwrap_or(0);
    let own = |op: &Op| match &op.kind {
        OpKind::TakeBit => 1,
        OpKind::KnownBits { zeros, one } => zeros.saturating_add(u32::from(*one)),
        OpKind::Present { body, .. } | OpKind::Unbox { body, .. } | OpKind::Select { body, .. } => bits(body),
        OpKind::If { then, otherwise } | OpKind::IfPresent { then, otherwise, .. } => {
            longest(&mut [then, otherwise].into_iter())
        }
        OpKind::Union { arms, none: rest, .. } | OpKind::Switch { arms, otherwise: rest, .. } => {
            longest(&mut arms.iter().chain([rest]))
        }
        _ => 0,
    };
    block.0.iter().map(own).fold(0, u32::saturating_add)
}

/// True if a block may elide bits of the enclosing map.
pub(super) fn has_elided(block: &Block) -> bool {
    let differ = |a: &Block, b: &Block| bits(a) != bits(b) && !stops(a) && !stops(b);
    block.0.iter().any(|op| match &op.kind {
        OpKind::If { then, otherwise } | OpKind::IfPresent { then, otherwise, .. } if differ(then, otherwise) => true,
        OpKind::PresenceMap { .. } => false,
        kind => {
            let mut found = false;
            inner_blocks(kind, &mut |inner| found |= has_elided(inner));
            found
        }
    })
}

/// The bookkeeping for a map that may have elided bits.
pub(super) enum ElidedBits {
    /// The positions of elided bits, as ones, in words of [`WORD`] bits; the first bit of a word is
    /// the highest.
    Writing(StackSlot),
    /// The map's bits without stop bits, in words of [`WORD`] bits.
    Reading(Vec<Variable>),
}

/// The mask in its word of the bit at an index of the map.
fn mask(index: u32) -> u64 {
    1 << (WORD - 1 - index % WORD)
}

impl Emit<'_, '_> {
    /// Writing: no bit is elided yet.
    pub(super) fn begin_elided(&mut self, bits: u32) -> ElidedBits {
        ElidedBits::Writing(self.slot(bits.div_ceil(WORD)))
    }

    /// Reading: joins the groups of seven bits of each word, whose first byte is lowest.
    pub(super) fn gather_bits(&mut self, words: &[Value]) -> ElidedBits {
        let gathered = words.iter().map(|word| {
            let groups = self.code.ins().bswap(*word);
            let groups = self.code.ins().band_imm_s(groups, 0x7F7F_7F7F_7F7F_7F7F);
            let pairs = self.join_groups(groups, 0x007F_007F_007F_007F, 1);
            let fours = self.join_groups(pairs, 0x0000_3FFF_0000_3FFF, 2);
            let bits = self.join_groups(fours, 0x0FFF_FFFF, 4);
            let variable = self.code.declare_var(types::I64);
            self.code.def_var(variable, bits);
            variable
        });
        ElidedBits::Reading(gathered.collect())
    }

    /// Joins pairs of groups: moves the bits above each low part down to it.
    fn join_groups(&mut self, groups: Value, low: i64, by: i64) -> Value {
        let own = self.code.ins().band_imm_s(groups, low);
        let above = self.code.ins().bxor(groups, own);
        let above = self.code.ins().ushr_imm_u(above, by);
        self.code.ins().bor(own, above)
    }

    /// Reading: the bit at an index, as a truth value.
    pub(super) fn gathered_bit(&mut self, word: Variable, index: u32) -> Value {
        let word = self.code.use_var(word);
        let down = self.code.ins().ushr_imm_u(word, i64::from(mask(index).trailing_zeros()));
        self.code.ins().band_imm_s(down, 1)
    }

    /// Elides the next bit of the map.
    pub(in super::super) fn elide_bit(&mut self) {
        let Some(Segment { bits, done, elided: Some(elided), .. }) = &self.segment else { return };
        let (bits, index) = (*bits, *done);
        match elided {
            ElidedBits::Writing(slot) => {
                let (slot, at) = (*slot, (index / WORD * 8) as i32);
                let elided = self.code.ins().stack_load(types::I64, types::I64, slot, at);
                let elided = self.code.ins().bor_imm_s(elided, mask(index) as i64);
                self.code.ins().stack_store(types::I64, elided, slot, at);
                self.next_bit();
            }
            ElidedBits::Reading(words) => {
                let words = words.clone();
                self.insert_zero(&words, bits, index);
            }
        }
    }

    /// Reading: moves all bits from an index on back by one. Bails out if a one falls off the end,
    /// because no operation would use it.
    fn insert_zero(&mut self, words: &[Variable], bits: u32, index: u32) {
        let first = (index / WORD) as usize;
        if let Some(last) = words.last() {
            let last = self.code.use_var(*last);
            let surplus = self.code.ins().band_imm_s(last, mask(bits - 1) as i64);
            self.or_bail_out(surplus);
        }
        let mut carry = None;
        for (i, variable) in words.iter().enumerate().skip(first) {
            let word = self.code.use_var(*variable);
            let behind = if i == first { 2 * mask(index) - 1 } else { (1 << WORD) - 1 };
            let moved = self.code.ins().band_imm_s(word, behind as i64);
            let kept = self.code.ins().bxor(word, moved);
            let lowest = self.code.ins().band_imm_s(word, 1);
            let moved = self.code.ins().ushr_imm_u(moved, 1);
            let mut word = self.code.ins().bor(kept, moved);
            if let Some(carry) = carry.replace(lowest) {
                let top = self.code.ins().ishl_imm_u(carry, i64::from(WORD) - 1);
                word = self.code.ins().bor(word, top);
            }
            self.code.def_var(*variable, word);
        }
    }

    /// Writing: ends a map with elided bits, whose last bytes are still in a register, and jumps to
    /// `moved` with the number of bytes that are cut from its end.
    pub(super) fn end_with_elided(
        &mut self,
        segment: &Segment,
        (word, last): (Value, u32),
        moved: cranelift_codegen::ir::Block,
    ) {
        let Some(ElidedBits::Writing(slot)) = segment.elided else { return };
        let (total, count) = (bytes(segment.bits), segment.bits.div_ceil(WORD));
        let loaded = (0..count).map(|i| self.code.ins().stack_load(types::I64, types::I64, slot, 8 * i as i32));
        let loaded: Vec<Value> = loaded.collect();
        let any = loaded.into_iter().reduce(|any, more| self.code.ins().bor(any, more));
        let Some(any) = any else { return };
        let (start, here) = (self.map_at(segment.start, 0), self.map_at(segment.start, total - last));
        let some = self.code.ins().icmp_imm_s(IntCC::NotEqual, any, 0);
        self.unless(some, |emit| {
            emit.store_groups(word, last, here);
            let (len, elided) = (emit.constant(total.into()), emit.slot_address(slot));
            let cut = emit.call_word(remove_elided as *const u8, &[start, len, elided]);
            emit.jump(moved, &[cut]);
        });
        self.release(slot);
    }
}

/// Removes elided bits from a map of `len` bytes, sets its stop bit, and returns the number of
/// surplus bytes at its end.
unsafe extern "C" fn remove_elided(at: *mut u8, len: u64, elided: *const u64) -> u64 {
    // SAFETY: machine code passes the room of `len` bytes into which it has written the map, and a
    // word in its stack frame for each eight bytes of it.
    unsafe {
        let (map, elided) = (
            core::slice::from_raw_parts_mut(at, len as usize),
            core::slice::from_raw_parts(elided, len.div_ceil(8) as usize),
        );
        remove_bits(map, elided);
        end_long(at, len)
    }
}

/// Removes elided bits; zeros follow the last bit.
fn remove_bits(map: &mut [u8], elided: &[u64]) {
    let ([elided], 0..=8) = (elided, map.len()) else { return remove_bits_of_long_map(map, elided) };
    let mut groups = [0; 8];
    groups[..map.len()].copy_from_slice(map);
    let (mut bits, mut elided) = (gather(u64::from_be_bytes(groups)), *elided);
    // From the last elided bit to the first, so that positions of the others do not change.
    while elided != 0 {
        let elided_bit = elided & elided.wrapping_neg();
        let behind = elided_bit - 1;
        bits = bits & !(elided_bit | behind) | (bits & behind) << 1;
        elided ^= elided_bit;
    }
    map.copy_from_slice(&spread(bits).to_be_bytes()[..map.len()]);
}

/// The same for a long map, bit by bit.
fn remove_bits_of_long_map(map: &mut [u8], elided: &[u64]) {
    let mut to = 0;
    for index in 0..7 * map.len() {
        let is_elided = elided.get(index / WORD as usize).is_some_and(|elided| elided & mask(index as u32) != 0);
        if !is_elided {
            let bit = map[index / 7] >> (6 - index % 7) & 1;
            map[to / 7] = map[to / 7] & !(0x40 >> (to % 7)) | bit << (6 - to % 7);
            to += 1;
        }
    }
    for index in to..7 * map.len() {
        map[index / 7] &= !(0x40 >> (index % 7));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_long_maps_are_removed_as_those_of_short_ones_are() {
        let mut random = crate::schema::arbitrary::Random::new(3);
        for _ in 0..1000 {
            let len = 1 + random.below(8);
            let map: Vec<u8> = (0..len).map(|_| random.bits() as u8 & 0x7F).collect();
            let elided = [random.bits() & random.bits() & ((1 << WORD) - 1) & !((1 << (WORD - 7 * len as u32)) - 1)];
            let [mut short, mut long] = [map.clone(), map.clone()];
            remove_bits(&mut short, &elided);
            remove_bits_of_long_map(&mut long, &elided);
            assert_eq!(short, long, "{map:x?} without {elided:x?}");
        }
    }

    #[test]
    fn bits_move_across_words() {
        let mut map = [0; 10];
        map[8] = 0x40;
        remove_bits(&mut map, &[mask(3), 0]);
        assert_eq!(map, [0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
    }
}
