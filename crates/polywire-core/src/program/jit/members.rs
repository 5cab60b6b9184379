//! Members in any order: emits the operation `Members`. A member that comes in the usual order is
//! recognised by its expected prefix, without a call of the dialect. `jit/ops.rs` calls it. The
//! code touches the input, its tag, and the dialect's cursor.

use core::mem::offset_of;

use alloc::{sync::Arc, vec::Vec};

use cranelift_codegen::ir::{Block as CodeBlock, InstBuilder, StackSlot, Value, condcodes::IntCC, types};
use cranelift_frontend::Switch;

use super::emit::Emit;
use crate::{
    layout::Scalar,
    program::{Arm, Ending, ExpectedPrefix, FaultKind, Input, MemberDialect, MemberTable, Op, PrefixTag},
};

/// The longest [`ExpectedPrefix`] that is compared in line.
const LONGEST_PREFIX: usize = 64;

/// Behind a member, up to so many of the following ones are recognised by their prefixes, if those
/// between are optional. A member in another order costs these comparisons in vain.
const MOST_OMITTED: usize = 8;

/// The most members that direct code reads.
const MAX_IN_ORDER: usize = 32;

/// The code of an operation `Members`.
struct Members<'e> {
    dialect: &'static MemberDialect,
    arms: &'e [Arm],
    cursor: StackSlot,
    /// Where each arm begins.
    blocks: Vec<CodeBlock>,
    /// Where the search for each arm begins if the one before it did not come, and at last that for
    /// the end. The arm that comes next is sought in line.
    searches: Vec<CodeBlock>,
    /// Where a search ends that found nothing.
    other: CodeBlock,
    end: CodeBlock,
}

impl<'e> Members<'e> {
    /// The expected prefix of an arm, if it has one, and where the arm begins.
    fn prefix(&self, arm: usize) -> Option<(&'e ExpectedPrefix, CodeBlock)> {
        self.arms.get(arm)?.prefix.as_ref().zip(self.blocks.get(arm).copied())
    }

    /// Whether the search for an arm that does not come goes on with the next one.
    fn goes_on(&self, arm: usize) -> bool {
        self.prefix(arm).is_some_and(|(prefix, _)| prefix.optional) && !arm.is_multiple_of(MOST_OMITTED)
    }
}

impl<'e> Emit<'e, '_> {
    pub(super) fn decode_members(
        &mut self,
        op: &'e Op,
        dialect: &'static MemberDialect,
        arms: &'e [Arm],
        table: &'e Arc<MemberTable>,
        frame: Value,
    ) {
        self.accumulator = None;
        if self.direct {
            return self.decode_in_order(dialect, arms, frame);
        }
        let cursor = self.slot(3);
        let seen = self.slot(arms.len().div_ceil(64).max(1) as u32);
        let expected = self.code.declare_var(types::I64);
        let zero = self.constant(0);
        self.code.def_var(expected, zero);
        if !dialect.prefixes_suffice {
            let at = self.slot_address(cursor);
            self.call_status(op, dialect.begin as *const u8, &[self.context(), at]);
        }
        let (head, unknown, end) = (self.new_block(), self.cold(), self.new_block());
        let blocks: Vec<CodeBlock> = arms.iter().map(|_| self.new_block()).collect();
        let searches = (0..=arms.len()).map(|_| self.new_block()).collect();
        let members = Members { dialect, arms, cursor, blocks, searches, other: self.new_block(), end };
        if let Some((prefix, first)) = members.prefix(0) {
            self.decode_prefix(prefix, cursor, first);
        }
        self.jump_and_begin(head, head);
        let guess = self.code.use_var(expected);
        self.store_word(guess);
        let (at, table, word) = (self.slot_address(cursor), self.address(&**table), self.word());
        self.call_status(op, dialect.next as *const u8, &[self.context(), at, table, word]);
        let arm = self.load_word(0);
        let mut switch = Switch::new();
        for (i, block) in members.blocks.iter().enumerate() {
            switch.set_entry(i as u128, *block);
        }
        switch.set_entry(u128::from(MemberTable::END), end);
        switch.emit(&mut self.code, arm, unknown);

        for (i, (arm, block)) in arms.iter().zip(&members.blocks).enumerate() {
            self.code.switch_to_block(*block);
            let (word, bit) = (8 * (i / 64) as i32, 1i64 << (i % 64));
            let known = self.code.ins().stack_load(types::I64, types::I64, seen, word);
            if dialect.refuse_duplicates {
                let twice = self.code.ins().band_imm_s(known, bit);
                self.unless(twice, |emit| emit.fault(op, FaultKind::DuplicateMember, zero, zero));
            }
            let known = self.code.ins().bor_imm_s(known, bit);
            self.code.ins().stack_store(types::I64, known, seen, word);
            let next = self.constant(i as i64 + 1);
            self.code.def_var(expected, next);
            self.inner(&arm.body, frame);
            self.search(&members, i + 1);
        }
        self.search_further(op, &members, head);

        self.code.switch_to_block(unknown);
        let at = self.slot_address(cursor);
        self.call_status(op, dialect.skip as *const u8, &[self.context(), at]);
        self.jump_and_begin(head, end);
        for (i, arm) in arms.iter().enumerate().filter(|(_, arm)| !arm.absent.0.is_empty()) {
            let known = self.code.ins().stack_load(types::I64, types::I64, seen, 8 * (i / 64) as i32);
            let there = self.code.ins().band_imm_s(known, 1i64 << (i % 64));
            let absent = self.code.ins().icmp_imm_s(IntCC::Equal, there, 0);
            self.rarely(absent, |emit| emit.inner(&arm.absent, frame));
        }
        self.release(cursor);
        self.release(seen);
    }

    /// Behind a member: looks for an arm and, if it does not come, for those behind it.
    fn search(&mut self, members: &Members<'e>, arm: usize) {
        match (members.prefix(arm), members.dialect.ending) {
            (Some((prefix, found)), _) => self.decode_prefix(prefix, members.cursor, found),
            (None, Some(ending)) => self.decode_ending(ending, members.cursor, members.end),
            (None, None) => {}
        }
        let next = members.searches.get(arm + 1).filter(|_| members.goes_on(arm));
        self.code.ins().jump(*next.unwrap_or(&members.other), &[]);
    }

    /// Emits the searches for arms that do not come next, and the call behind a search in vain.
    fn search_further(&mut self, op: &'e Op, members: &Members<'e>, head: CodeBlock) {
        for (arm, block) in members.searches.iter().enumerate().skip(1) {
            if members.goes_on(arm - 1) {
                self.code.switch_to_block(*block);
                self.search(members, arm);
            }
        }
        self.code.switch_to_block(members.other);
        if !members.dialect.prefixes_suffice {
            let at = self.slot_address(members.cursor);
            self.call_status(op, members.dialect.after as *const u8, &[self.context(), at]);
        }
        self.code.ins().jump(head, &[]);
    }

    /// In direct code: emits members that come in the usual order or are left out. Bails out in all
    /// other cases.
    fn decode_in_order(&mut self, dialect: &'static MemberDialect, arms: &'e [Arm], frame: Value) {
        let ends_so = dialect.prefixes_suffice && dialect.ending == Some(Ending::Exhausted);
        // With a bank the position is an address, which kernels with a form cannot use.
        if !ends_so || arms.len() > MAX_IN_ORDER || self.stream.is_some() {
            return self.give_up();
        }
        for arm in arms {
            let Some((prefix, tag)) = arm.prefix.as_ref().and_then(simple) else { return self.give_up() };
            let (absent, next) = (self.new_block(), self.new_block());
            let (position, end) = (self.position(), self.code.use_var(self.end));
            let behind = self.code.ins().iadd_imm_s(position, prefix.bytes.len() as i64);
            let too_far = self.code.ins().icmp(IntCC::UnsignedGreaterThan, behind, end);
            self.or_else(too_far, absent);
            let here = self.here();
            let differs = self.differs(here, 0, &prefix.bytes);
            self.or_else(differs, absent);
            self.code.def_var(self.position, behind);
            self.tag = Some(tag);
            self.inner(&arm.body, frame);
            self.tag = None;
            self.jump_and_begin(next, absent);
            self.inner(&arm.absent, frame);
            self.jump_and_begin(next, next);
        }
        let (position, end) = (self.position(), self.code.use_var(self.end));
        let more = self.code.ins().icmp(IntCC::NotEqual, position, end);
        self.or_bail_out(more);
    }

    /// If the expected prefix of the next member comes, skips it and jumps to `next`; else
    /// continues without any effect.
    fn decode_prefix(&mut self, prefix: &ExpectedPrefix, cursor: StackSlot, next: CodeBlock) {
        if prefix.bytes.len() > LONGEST_PREFIX {
            return;
        }
        let other = self.new_block();
        let skipped = i64::from(prefix.tag == PrefixTag::Byte);
        let (position, end) = (self.position(), self.code.use_var(self.end));
        let behind = self.code.ins().iadd_imm_s(position, prefix.bytes.len() as i64 + skipped);
        let too_far = self.code.ins().icmp(IntCC::UnsignedGreaterThan, behind, end);
        self.or_else(too_far, other);
        let here = self.here();
        let differs = self.differs(here, skipped as i32, &prefix.bytes);
        self.or_else(differs, other);

        let tag = match prefix.tag {
            PrefixTag::Keep => None,
            PrefixTag::Is(tag) => Some(self.constant(tag.into())),
            PrefixTag::Byte => {
                let byte = self.load_scalar(Scalar::U8, here, 0);
                let zero = self.code.ins().icmp_imm_s(IntCC::Equal, byte, 0);
                self.or_else(zero, other);
                Some(byte)
            }
        };
        let mut words = Vec::new();
        if let Some(note) = prefix.note {
            let (word, bit) = (8 * i32::from(note / 64), 1i64 << (note % 64));
            let noted = self.code.ins().stack_load(types::I64, types::I64, cursor, word);
            let again = self.code.ins().band_imm_s(noted, bit);
            self.or_else(again, other);
            let noted = self.code.ins().bor_imm_s(noted, bit);
            words.push((noted, word));
        }
        if prefix.counted {
            let count = self.code.ins().stack_load(types::I64, types::I64, cursor, 0);
            let none = self.code.ins().icmp_imm_s(IntCC::Equal, count, 0);
            self.or_else(none, other);
            let less = self.code.ins().iadd_imm_s(count, -1);
            let open = self.code.ins().icmp_imm_s(IntCC::Equal, count, -1);
            words.push((self.code.ins().select(open, count, less), 0));
        }
        // The prefix applies; its effects begin here.
        for (value, word) in words {
            self.code.ins().stack_store(types::I64, value, cursor, word);
        }
        if let Some(tag) = tag {
            self.store_scalar(Scalar::U32, tag, self.context(), offset_of!(Input<'_>, tag) as i32);
        }
        self.code.def_var(self.position, behind);
        self.jump_and_begin(next, other);
    }

    /// Jumps to `end` if the usual ending comes; else continues without any effect.
    fn decode_ending(&mut self, ending: Ending, cursor: StackSlot, end: CodeBlock) {
        let (position, region) = (self.position(), self.code.use_var(self.end));
        let other = self.new_block();
        match ending {
            Ending::Exhausted => {
                let more = self.code.ins().icmp(IntCC::NotEqual, position, region);
                self.or_else(more, other);
            }
            Ending::Counted => {
                let left = self.code.ins().stack_load(types::I64, types::I64, cursor, 0);
                self.or_else(left, other);
            }
            Ending::Byte(byte) => {
                let none = self.code.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, position, region);
                self.or_else(none, other);
                let here = self.here();
                let found = self.load_scalar(Scalar::U8, here, 0);
                let differs = self.code.ins().icmp_imm_s(IntCC::NotEqual, found, i64::from(byte));
                self.or_else(differs, other);
                self.advance(1);
            }
        }
        self.jump_and_begin(end, other);
    }

    /// Not zero if the bytes at an address, which must be readable, differ from `bytes`.
    fn differs(&mut self, at: Value, offset: i32, bytes: &[u8]) -> Value {
        let mut differs = None;
        let mut from = 0;
        while from < bytes.len() {
            let scalar = match bytes.len() {
                8.. => Scalar::U64,
                4..=7 => Scalar::U32,
                2..=3 => Scalar::U16,
                _ => Scalar::U8,
            };
            // The last piece may overlap the one before it.
            from = from.min(bytes.len() - scalar.size());
            let mut word = [0; 8];
            word[..scalar.size()].copy_from_slice(&bytes[from..from + scalar.size()]);
            if cfg!(target_endian = "big") {
                word.rotate_right(8 - scalar.size());
            }
            let found = self.load_scalar(scalar, at, offset + from as i32);
            let expected = self.constant(i64::from_ne_bytes(word));
            let piece = self.code.ins().bxor(found, expected);
            differs = Some(match differs {
                Some(others) => self.code.ins().bor(others, piece),
                None => piece,
            });
            from += scalar.size();
        }
        differs.unwrap_or_else(|| self.constant(0))
    }
}

/// A prefix that direct code compares in line, and the tag that it determines; none for others.
fn simple(prefix: &ExpectedPrefix) -> Option<(&ExpectedPrefix, u32)> {
    match prefix.tag {
        PrefixTag::Is(tag) if prefix.bytes.len() <= LONGEST_PREFIX && !prefix.counted => Some((prefix, tag)),
        _ => None,
    }
}
