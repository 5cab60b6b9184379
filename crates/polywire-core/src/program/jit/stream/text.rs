//! Emits strings and comparisons of the bytes in hand, in direct functions.
//!
//! `jit/decode.rs` and `jit/encode.rs` call it for `Text` operations, `bytes` for comparisons. The
//! code touches the message, the state and strings of the value. A string of up to sixteen bytes is
//! stored in line if it has the capacity; all others go through functions of `calls`.

use core::mem::offset_of;

use cranelift_codegen::ir::{Block as CodeBlock, InstBuilder, Value, condcodes::IntCC, types};

use super::{
    super::emit::Emit,
    bytes::{Found, Held},
    calls,
};
use crate::{
    layout::{Kind, Scalar, Words},
    program::{
        ByteSlot, Op, OpKind, Order, Overflow, Place, State,
        io::SHORT_TEXT,
        state::{Text, bytes::MAX_INLINE, specialised::LONG},
    },
};

/// The most constant bytes that are compared in line.
const SHORT: usize = 32;

/// The most bytes of a slot that are compared or copied in line: two words, which may overlap.
const INLINE: usize = SHORT_TEXT;

/// The highest bit of each of the seven bytes of an inline string: zero for ASCII.
const ASCII: i64 = 0x0080_8080_8080_8080;

/// A string in memory.
#[derive(Clone, Copy)]
struct Target {
    base: Value,
    offset: i32,
    words: Words,
}

impl<'e> Emit<'e, '_> {
    /// Takes the bytes of a string into hand.
    pub(in super::super) fn take_string(&mut self, op: &Op, place: Place, bound: u32, frame: Value) {
        self.admit_bound(op);
        let (data, len) = self.slice(place, frame);
        self.bail_out_beyond(len, bound);
        self.held = Some(Held::Found(Found { is_text: true, ..Found::any(data, len) }));
    }

    /// Jumps to `yes` if a slot has these bytes, or if it is undefined and `initial` equals them;
    /// else to `no`.
    pub(super) fn slot_has_bytes(
        &mut self,
        found: Found,
        slot: ByteSlot,
        initial: Option<&'e [u8]>,
        [yes, no]: [CodeBlock; 2],
    ) {
        let (data, len, previous) = (found.data, found.len, self.word_of(slot.slot));
        if let (Some(reserved), Some(initial)) = (self.slot_words(slot.slot).undefined, initial) {
            let (fresh, go_on) = (self.cold(), self.new_block());
            let is_fresh = self.code.ins().icmp_imm_s(IntCC::Equal, previous, reserved as i64);
            self.code.ins().brif(is_fresh, fresh, &[], go_on, &[]);
            self.code.switch_to_block(fresh);
            self.unless_same((data, len), initial, no);
            self.jump_and_begin(yes, go_on);
        }
        let (unsure, longer) = (self.cold(), self.new_block());
        let word = self.inline_word(found, longer, unsure);
        let same = self.code.ins().icmp(IntCC::Equal, word, previous);
        self.code.ins().brif(same, yes, &[], no, &[]);
        self.code.switch_to_block(longer);
        let short = self.code.ins().icmp_imm_s(IntCC::NotEqual, previous, LONG as i64);
        self.or_else(short, no);
        let (at, kept) = self.kept(slot);
        let differs = self.code.ins().icmp(IntCC::NotEqual, len, kept);
        self.or_else(differs, no);
        let many = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, INLINE as i64);
        self.or_else(many, unsure);
        let [(first, last), (kept_first, kept_last)] = [data, at].map(|text| self.ends(text, len));
        let first = self.code.ins().bxor(first, kept_first);
        let last = self.code.ins().bxor(last, kept_last);
        let differs = self.code.ins().bor(first, last);
        self.code.ins().brif(differs, no, &[], yes, &[]);
        self.code.switch_to_block(unsure);
        let (state, slots) = (self.state(), self.slots(slot));
        let has = self.call_word(calls::is_kept as *const u8, &[state, slots, data, len]);
        self.code.ins().brif(has, yes, &[], no, &[]);
    }

    /// The address and the number of the bytes of a slot that has a long string.
    pub(super) fn kept(&mut self, slot: ByteSlot) -> (Value, Value) {
        let state = self.state();
        let texts = self.load(types::I64, state, offset_of!(State, texts_at) as i32);
        let text = slot.bytes as i32 * size_of::<Text>() as i32;
        let len = self.load(types::I64, texts, text + offset_of!(Text, len) as i32);
        (self.load(types::I64, texts, text + offset_of!(Text, at) as i32), len)
    }

    /// The first and the last eight bytes of a text of at least eight.
    fn ends(&mut self, text: Value, len: Value) -> (Value, Value) {
        let behind = self.code.ins().iadd(text, len);
        (self.load(types::I64, text, 0), self.load(types::I64, behind, -8))
    }

    /// Jumps to `other` unless a text equals `known`.
    pub(super) fn unless_same(&mut self, (data, len): (Value, Value), known: &'e [u8], other: CodeBlock) {
        let longer = self.code.ins().icmp_imm_s(IntCC::NotEqual, len, known.len() as i64);
        self.or_else(longer, other);
        if known.len() > SHORT {
            let (known, len) = (self.address(known), self.constant(known.len() as i64));
            let differs = self.call_word(calls::differ as *const u8, &[data, known, len]);
            return self.or_else(differs, other);
        }
        let mut differs: Option<Value> = None;
        let count = pieces(known).count();
        for (scalar, at, word) in pieces(known) {
            let there = self.load_scalar(scalar, data, at);
            let there = self.reorder(there, scalar, Order::Little);
            let different = match count {
                1 => self.code.ins().icmp_imm_s(IntCC::NotEqual, there, word as i64),
                _ => self.code.ins().bxor_imm_s(there, word as i64),
            };
            differs = Some(match differs {
                Some(before) => self.code.ins().bor(before, different),
                None => different,
            });
        }
        if let Some(differs) = differs {
            self.or_else(differs, other);
        }
    }

    /// Stores the bytes in hand in a string. Bails out if they are not UTF-8.
    pub(in super::super) fn set_string(&mut self, op: &Op, place: Place, bound: u32, frame: Value) {
        self.admit_bound(op);
        let held = self.held.expect("the verifier has seen bytes in hand");
        if place == Place::Sink {
            if let Held::Slot(slot) = held {
                self.charge_copy(slot);
            }
            return;
        }
        let target = self.target(place, frame);
        match (target, held) {
            (Some(target), Held::Slot(slot)) => self.repeat_text(target, slot, bound),
            (Some(target), held) => {
                let found = self.found_with_stop(held);
                self.set_found(target, found, bound);
            }
            (None, held) => {
                if !self.is_shared(place) {
                    self.give_up();
                }
                let (found, string) = (self.found_with_stop(held), self.place_address(place, frame));
                self.set_by_call(calls::set_shared as *const u8, string, found, bound);
            }
        }
    }

    /// Gives up if the string has a bound that the code below does not keep.
    fn admit_bound(&self, op: &Op) {
        if let OpKind::Text { bound: 1.., utf16_bound, overflow, .. } = &op.kind
            && (*utf16_bound || *overflow != Overflow::Refuse)
        {
            self.give_up();
        }
    }

    /// Stores bytes in a string: in line if they are few, else by a call.
    fn set_found(&mut self, target: Target, found: Found, bound: u32) {
        let (slow, done) = (self.cold(), self.new_block());
        let first = self.first_of(found, slow);
        if (1..INLINE as u32).contains(&bound) {
            let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, found.len, i64::from(bound));
            self.or_else(long, slow);
        }
        let capacity = self.load(types::I64, target.base, target.offset + target.words.capacity as i32);
        let small = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, capacity, INLINE as i64);
        self.or_else(small, slow);
        if !found.is_text {
            let high = self.beyond_ascii(first, found.len);
            self.or_else(high, slow);
        }
        let data = self.load(types::I64, target.base, target.offset + target.words.pointer as i32);
        self.store(first, data, 0);
        self.store(found.len, target.base, target.offset + target.words.len as i32);
        self.jump_and_begin(done, slow);
        let string = self.string(target);
        self.set_by_call(calls::set_text as *const u8, string, found, bound);
        self.jump_and_begin(done, done);
    }

    fn set_by_call(&mut self, function: *const u8, string: Value, found: Found, bound: u32) {
        let facts = [(found.has_stop, calls::HAS_STOP), (found.is_text, calls::IS_TEXT)];
        let facts = facts.into_iter().filter_map(|(holds, fact)| holds.then_some(fact)).sum::<u64>();
        let (state, facts) = (self.state(), self.constant((facts | u64::from(bound)) as i64));
        self.call_expecting_zero(function, &[state, string, found.data, found.len, facts]);
    }

    /// Stores the text of a slot in a string. Bails out if the slot has none.
    fn repeat_text(&mut self, target: Target, slot: ByteSlot, bound: u32) {
        let (long, other, done) = (self.new_block(), self.cold(), self.new_block());
        let is_text = self.slot_words(slot.slot).is_text;
        let most = if bound == 0 { MAX_INLINE } else { MAX_INLINE.min(bound as usize) };
        let previous = self.word_of(slot.slot);
        let len = self.code.ins().ushr_imm_u(previous, 56);
        let is_long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, most as i64);
        self.or_else(is_long, long);
        let capacity = self.load(types::I64, target.base, target.offset + target.words.capacity as i32);
        let small = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, capacity, INLINE as i64);
        self.or_else(small, other);
        if !is_text {
            let high = self.code.ins().band_imm_s(previous, ASCII);
            self.or_else(high, other);
        }
        let data = self.load(types::I64, target.base, target.offset + target.words.pointer as i32);
        let bytes = self.reorder(previous, Scalar::U64, Order::Little);
        self.store(bytes, data, 0);
        self.store(len, target.base, target.offset + target.words.len as i32);
        self.jump_and_begin(done, long);
        let is_short = self.code.ins().icmp_imm_s(IntCC::NotEqual, previous, LONG as i64);
        self.or_else(is_short, other);
        let (data, len) = self.kept(slot);
        self.charge(len);
        self.set_found(target, Found { is_text, is_roomy: true, ..Found::any(data, len) }, bound);
        self.jump_and_begin(done, other);
        // Any other word that is no inline string means that there is no text.
        let (data, len) = self.inline_bytes(slot);
        let none = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, MAX_INLINE as i64);
        self.or_bail_out(none);
        let string = self.string(target);
        self.set_by_call(calls::set_text as *const u8, string, Found { is_text, ..Found::any(data, len) }, bound);
        self.jump_and_begin(done, done);
    }

    fn target(&self, place: Place, frame: Value) -> Option<Target> {
        let (base, offset, node) = self.place(place, frame)?;
        match &self.layout().node(node).kind {
            Kind::String { words: Some(words), .. } => Some(Target { base, offset, words: *words }),
            _ => None,
        }
    }

    fn string(&mut self, target: Target) -> Value {
        self.code.ins().iadd_imm_s(target.base, i64::from(target.offset))
    }
}

/// A text as words of at most eight bytes, with their offsets. The last may overlap the one before.
fn pieces(text: &[u8]) -> impl Iterator<Item = (Scalar, i32, u64)> {
    let largest = [(8, Scalar::U64), (4, Scalar::U32), (2, Scalar::U16), (1, Scalar::U8)];
    let (size, scalar) = largest.into_iter().find(|(size, _)| *size <= text.len()).unwrap_or((1, Scalar::U8));
    let starts = (0..text.len() / size * size).step_by(size);
    let last = (!text.len().is_multiple_of(size)).then(|| text.len() - size);
    starts.chain(last).map(move |at| {
        let word = text[at..at + size].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        (scalar, at as i32, word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_text() {
        let text: alloc::vec::Vec<u8> = (1..=SHORT as u8).collect();
        for len in 0..=text.len() {
            let mut covered = alloc::vec![0; len];
            for (scalar, at, word) in pieces(&text[..len]) {
                let bytes = &word.to_le_bytes()[..scalar.size()];
                covered[at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            assert_eq!(covered, text[..len]);
        }
    }
}
