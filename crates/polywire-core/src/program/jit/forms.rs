//! Kernels with a form. For a number, or a region with its length in front, emits the simple case
//! in line, and a call of the kernel for all other cases. `jit/decode.rs` and `jit/encode.rs` call
//! it. The code touches the message and the accumulator.

use core::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, StackSlot, Value, condcodes::IntCC, types};

use super::{
    SLACK,
    emit::{Accumulator, Emit},
    shims,
};
use crate::{
    layout::Scalar,
    program::{
        Block, FaultKind, InlineKernel, Input, Op, Order, RegionDialect, ScalarKernel,
        kernel::{InlineForm, NumberForm},
    },
};

/// The highest bit of each of eight bytes.
const HIGHEST: i64 = 0x8080_8080_8080_8080_u64 as i64;

/// The most bits of a number whose varint has at most eight bytes.
const SHORT_BITS: u32 = 56;

/// A region of the input that is being read.
pub(super) struct InRegion {
    /// The end of the enclosing region.
    outer: Value,
}

/// A region of the output that is being written.
pub(super) struct OutRegion {
    /// The position of its length.
    start: Value,
    base: Value,
}

impl<'e> Emit<'e, '_> {
    /// Writes the accumulator in the form of an inline kernel. There must be room.
    pub(super) fn put_number(&mut self, kernel: &'static InlineKernel, argument: u64, form: InlineForm) {
        let accumulator = self.accumulator();
        let done = self.new_block();
        if form.unless_zero {
            let zero = self.code.ins().icmp_imm_s(IntCC::Equal, accumulator.value, 0);
            self.or_else(zero, done);
        }
        let (head, head_len) = (argument & 0x00FF_FFFF_FFFF_FFFF, (argument >> 56) as i64);
        if head_len > 0 {
            let scalar = if head_len == 1 { Scalar::U8 } else { Scalar::U64 };
            let (here, head) = (self.here(), self.constant(head as i64));
            let head = self.reorder(head, scalar, Order::Little);
            self.store_scalar(scalar, head, here, 0);
        }
        match form.number {
            NumberForm::Fixed => {
                let here = self.here();
                let value = self.reorder(accumulator.value, kernel.scalar, Order::Little);
                self.store_scalar(kernel.scalar, value, here, head_len as i32);
                self.advance(head_len + kernel.scalar.size() as i64);
            }
            number => self.put_varint(kernel, accumulator, number, (argument, head_len)),
        }
        self.jump_and_begin(done, done);
    }

    /// Writes a varint behind a head that is written, but not yet behind the position.
    fn put_varint(
        &mut self,
        kernel: &'static InlineKernel,
        accumulator: Accumulator,
        number: NumberForm,
        (argument, head_len): (u64, i64),
    ) {
        let (value, bits) = self.varint_of(accumulator, number);
        let done = self.new_block();
        if bits > SHORT_BITS {
            let long = self.code.ins().ushr_imm_u(value, i64::from(SHORT_BITS));
            let (cold, short) = (self.cold(), self.new_block());
            self.code.ins().brif(long, cold, &[], short, &[]);
            self.code.switch_to_block(cold);
            self.put_inline(kernel, argument, accumulator.value);
            self.jump_and_begin(done, short);
        }
        let (word, last) = self.spread(value, bits);
        let here = self.here();
        let (word, scalar) = match bits {
            0..=7 => (word, Scalar::U8),
            8..=14 => (self.reorder(word, Scalar::U16, Order::Little), Scalar::U16),
            15..=28 => (self.reorder(word, Scalar::U32, Order::Little), Scalar::U32),
            _ => (self.reorder(word, Scalar::U64, Order::Little), Scalar::U64),
        };
        self.store_scalar(scalar, word, here, head_len as i32);
        self.advance_by(last, head_len + 1);
        self.jump_and_begin(done, done);
    }

    /// The number that a varint encodes, and the most bits that it can have.
    fn varint_of(&mut self, accumulator: Accumulator, number: NumberForm) -> (Value, u32) {
        let (value, from) = (accumulator.value, accumulator.from);
        let own = if from == Scalar::Bool { 1 } else { 8 * from.size() as u32 };
        if number != NumberForm::Zigzag {
            return (value, if from.is_signed() { 64 } else { own });
        }
        let (twice, sign) = (self.code.ins().ishl_imm_u(value, 1), self.code.ins().sshr_imm_u(value, 63));
        let bits = if from.is_signed() { own } else { (own + 1).min(64) };
        (self.code.ins().bxor(twice, sign), bits)
    }

    /// The varint of a number of at most `bits` bits, which is at most 56, as a word: groups of
    /// seven bits in bytes, all but the last with their highest bit set. Also returns the number of
    /// bytes before the last.
    fn spread(&mut self, value: Value, bits: u32) -> (Value, Value) {
        if bits <= 7 {
            return (value, self.constant(0));
        }
        let mut groups = value;
        for (shift, low, high, least) in [
            (4, 0x0FFF_FFFF, 0x00FF_FFFF_F000_0000, 28),
            (2, 0x0000_3FFF_0000_3FFF, 0x0FFF_C000_0FFF_C000, 14),
            (1, 0x007F_007F_007F_007F, 0x3F80_3F80_3F80_3F80, 7),
        ] {
            if bits > least {
                let low = self.code.ins().band_imm_s(groups, low);
                let high = self.code.ins().band_imm_s(groups, high);
                let high = self.code.ins().ishl_imm_u(high, shift);
                groups = self.code.ins().bor(low, high);
            }
        }
        // Eight times the number of the highest byte that is not zero.
        let some = self.code.ins().bor_imm_s(groups, 1);
        let zeros = self.code.ins().clz(some);
        let highest = self.code.ins().bxor_imm_s(zeros, 63);
        let highest = self.code.ins().band_imm_s(highest, 56);
        let one = self.constant(1);
        let below = self.code.ins().ishl(one, highest);
        let below = self.code.ins().iadd_imm_s(below, -1);
        let more = self.code.ins().band_imm_s(below, HIGHEST);
        (self.code.ins().bor(groups, more), self.code.ins().ushr_imm_u(highest, 3))
    }

    /// Reads the accumulator in the form of a kernel.
    pub(super) fn get_number(&mut self, op: &'e Op, kernel: &'static ScalarKernel) {
        let Some(form) = kernel.form else { return };
        let result = self.code.declare_var(types::I64);
        let (slow, done) = (self.cold(), self.new_block());
        match self.direct {
            true if self.tag.is_none_or(|tag| tag & 7 != form.tag) => self.give_up(),
            true => {}
            false => self.expect_tag(form.tag, slow),
        }
        let value = match form.number {
            NumberForm::Fixed => {
                let short = self.lacks(kernel.scalar.size() as i64);
                self.or_else(short, slow);
                let here = self.here();
                let value = self.load_scalar(kernel.scalar, here, 0);
                self.advance(kernel.scalar.size() as i64);
                self.reorder(value, kernel.scalar, Order::Little)
            }
            NumberForm::Varint => self.get_varint(slow),
            NumberForm::Zigzag => {
                let number = self.get_varint(slow);
                let (half, sign) = (self.code.ins().ushr_imm_u(number, 1), self.code.ins().band_imm_s(number, 1));
                let sign = self.code.ins().ineg(sign);
                self.code.ins().bxor(half, sign)
            }
        };
        self.code.def_var(result, value);
        self.jump_and_begin(done, slow);
        if self.direct {
            self.jump_out();
        } else {
            let word = self.word();
            self.call_status(op, kernel.get as *const u8, &[self.context(), word]);
            let value = self.load_word(0);
            self.code.def_var(result, value);
            self.code.ins().jump(done, &[]);
        }
        self.code.switch_to_block(done);
        let mut value = self.code.use_var(result);
        if kernel.scalar == Scalar::Bool {
            let truth = self.code.ins().icmp_imm_s(IntCC::NotEqual, value, 0);
            value = self.code.ins().uextend(types::I64, truth);
        }
        self.set(value, kernel.scalar);
    }

    /// Jumps to `other` unless the lowest bits of the tag are `expected`.
    fn expect_tag(&mut self, expected: u32, other: cranelift_codegen::ir::Block) {
        let tag = self.load_scalar(Scalar::U32, self.context(), offset_of!(Input<'_>, tag) as i32);
        let kind = self.code.ins().band_imm_s(tag, 7);
        let differs = self.code.ins().icmp_imm_s(IntCC::NotEqual, kind, i64::from(expected));
        self.or_else(differs, other);
    }

    /// Reads a varint of up to eight bytes and moves behind it; or jumps to `other` without any
    /// effect.
    fn get_varint(&mut self, other: cranelift_codegen::ir::Block) -> Value {
        let (position, end) = (self.position(), self.code.use_var(self.end));
        let result = self.code.declare_var(types::I64);
        let (long, done) = (self.new_block(), self.new_block());
        let none = self.code.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, position, end);
        self.or_else(none, other);
        let here = self.here();
        let first = self.load_scalar(Scalar::U8, here, 0);
        let more = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, first, 0x7F);
        self.or_else(more, long);
        self.code.def_var(result, first);
        self.advance(1);
        self.jump_and_begin(done, long);
        let few = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, end, 8);
        self.or_else(few, other);
        let word = self.word_here(here, position, end);
        // The highest bit of each byte without a continuation bit; the lowest such byte ends the
        // varint.
        let ends = self.code.ins().bnot(word);
        let ends = self.code.ins().band_imm_s(ends, HIGHEST);
        let behind = self.code.ins().ctz(ends);
        let bytes = self.code.ins().ushr_imm_u(behind, 3);
        let behind = self.code.ins().iadd(position, bytes);
        let behind = self.code.ins().iadd_imm_s(behind, 1);
        let outside = self.code.ins().icmp(IntCC::UnsignedGreaterThan, behind, end);
        let open = self.code.ins().icmp_imm_s(IntCC::Equal, ends, 0);
        let unfit = self.code.ins().bor(outside, open);
        self.or_else(unfit, other);
        let value = self.gather(word, ends);
        self.code.def_var(result, value);
        self.code.def_var(self.position, behind);
        self.jump_and_begin(done, done);
        self.code.use_var(result)
    }

    /// The eight bytes at the position, with zeros for bytes behind the end. The load does not go
    /// past the end; there must be eight bytes in front of the end.
    fn word_here(&mut self, here: Value, position: Value, end: Value) -> Value {
        let wanted = self.code.ins().iadd_imm_s(position, 8);
        let over = self.code.ins().isub(wanted, end);
        let zero = self.constant(0);
        let over = self.code.ins().smax(over, zero);
        let at = self.code.ins().isub(here, over);
        let word = self.load_scalar(Scalar::U64, at, 0);
        let word = self.reorder(word, Scalar::U64, Order::Little);
        let bits = self.code.ins().ishl_imm_u(over, 3);
        self.code.ins().ushr(word, bits)
    }

    /// Joins the groups of seven bits up to the first ending byte, whose highest bit is the lowest
    /// bit of `ends`.
    fn gather(&mut self, word: Value, ends: Value) -> Value {
        let less = self.code.ins().iadd_imm_s(ends, -1);
        let own = self.code.ins().bxor(ends, less);
        let mut groups = self.code.ins().band(word, own);
        groups = self.code.ins().band_imm_s(groups, 0x7F7F_7F7F_7F7F_7F7F);
        for (shift, low, high) in [
            (1, 0x007F_007F_007F_007F, 0x7F00_7F00_7F00_7F00),
            (2, 0x0000_3FFF_0000_3FFF, 0x3FFF_0000_3FFF_0000),
            (4, 0x0FFF_FFFF, 0x0FFF_FFFF_0000_0000),
        ] {
            let low = self.code.ins().band_imm_s(groups, low);
            let high = self.code.ins().band_imm_s(groups, high);
            let high = self.code.ins().ushr_imm_u(high, shift);
            groups = self.code.ins().bor(low, high);
        }
        groups
    }

    /// Begins a region with its length in front. There must be room for a byte.
    pub(super) fn begin_out_region(&mut self) -> OutRegion {
        let (here, zero) = (self.here(), self.constant(0));
        self.store_scalar(Scalar::U8, zero, here, 0);
        let region = OutRegion { start: self.position(), base: self.code.use_var(self.base) };
        self.advance(1);
        region
    }

    /// Ends the region. A length of one byte is stored in the byte that was left for it, unless the
    /// output was reallocated. Else the kernel inserts the length.
    pub(super) fn end_out_region(&mut self, op: &'e Op, dialect: &'static RegionDialect, region: OutRegion) {
        let (position, base) = (self.position(), self.code.use_var(self.base));
        let len = self.code.ins().isub(position, region.start);
        let len = self.code.ins().iadd_imm_s(len, -1);
        let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, 0x7F);
        let moved = self.code.ins().icmp(IntCC::NotEqual, base, region.base);
        let unfit = self.code.ins().bor(long, moved);
        let (slow, short, done) = (self.cold(), self.new_block(), self.new_block());
        self.code.ins().brif(unfit, slow, &[], short, &[]);
        self.code.switch_to_block(short);
        let start = self.code.ins().iadd(base, region.start);
        self.store_scalar(Scalar::U8, len, start, 0);
        self.jump_and_begin(done, slow);
        let slot = self.slot(3);
        self.code.ins().stack_store(types::I64, region.start, slot, 0);
        let (cursor, argument) = (self.slot_address(slot), self.constant(0));
        self.call_status(op, dialect.put_end as *const u8, &[self.context(), argument, cursor]);
        self.release(slot);
        self.jump_and_begin(done, done);
    }

    /// Emits a region behind a word with its length. The word is written last, when the length is
    /// known.
    pub(super) fn put_word_region(&mut self, op: &'e Op, order: Order, body: &'e Block, frame: Value) {
        self.room(op, 2 * 8 + SLACK as i64);
        let (here, zero) = (self.here(), self.constant(0));
        self.store(zero, here, 0);
        self.align(4);
        self.advance(4);
        let (start, outer) = (self.position(), self.load(types::I64, self.context(), self.fields.origin));
        self.store(start, self.context(), self.fields.origin);
        self.inner(body, frame);
        let position = self.position();
        let len = self.code.ins().isub(position, start);
        let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, i64::from(u32::MAX));
        self.unless(long, |emit| {
            emit.spill();
            let (kind, most) = (emit.constant(FaultKind::Limit as i64), emit.constant(u32::MAX.into()));
            emit.call(shims::fail_output as *const u8, &[emit.context(), kind, most, len], Some(types::I32));
            emit.name(op);
        });
        let base = self.code.use_var(self.base);
        let at = self.code.ins().iadd(base, start);
        let word = self.reorder(len, Scalar::U32, order);
        self.store_scalar(Scalar::U32, word, at, -4);
        self.store(outer, self.context(), self.fields.origin);
    }

    /// Reads such a region in line; calls the kernel in unusual cases.
    pub(super) fn get_word_region(
        &mut self,
        op: &'e Op,
        (dialect, order): (&'static RegionDialect, Order),
        body: &'e Block,
        frame: Value,
    ) {
        let (slow, done) = (self.cold(), self.new_block());
        let (outer, end) = (self.load(types::I64, self.context(), self.fields.origin), self.code.use_var(self.end));
        self.align(4);
        let lacks = self.lacks(4);
        self.or_else(lacks, slow);
        let here = self.here();
        let len = self.load_scalar(Scalar::U32, here, 0);
        let len = self.reorder(len, Scalar::U32, order);
        let position = self.position();
        let inside = self.code.ins().iadd_imm_s(position, 4);
        let inner = self.code.ins().iadd(inside, len);
        let outside = self.code.ins().icmp(IntCC::UnsignedGreaterThan, inner, end);
        self.or_else(outside, slow);
        self.set_end(inner);
        self.code.def_var(self.position, inside);
        self.store(inside, self.context(), self.fields.origin);
        self.jump_and_begin(done, slow);
        let slot = self.slot(3);
        let (cursor, argument) = (self.slot_address(slot), self.constant(0));
        self.call_status(op, dialect.get_begin as *const u8, &[self.context(), argument, cursor]);
        self.release(slot);
        self.jump_and_begin(done, done);
        self.inner(body, frame);
        // The saved end replaces the kernel's cursor.
        self.end_in_region(InRegion { outer: end });
        self.store(outer, self.context(), self.fields.origin);
    }

    /// Begins a region with its length in front: in line if the length has one byte, else by a call
    /// of the kernel.
    pub(super) fn begin_in_region(
        &mut self,
        op: &'e Op,
        dialect: &'static RegionDialect,
        (argument, tag): (u64, u32),
        slot: StackSlot,
    ) -> InRegion {
        let (slow, done) = (self.cold(), self.new_block());
        self.expect_tag(tag, slow);
        let (position, end) = (self.position(), self.code.use_var(self.end));
        let none = self.code.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, position, end);
        self.or_else(none, slow);
        let here = self.here();
        let len = self.load_scalar(Scalar::U8, here, 0);
        let inside = self.code.ins().iadd_imm_s(position, 1);
        let inner = self.code.ins().iadd(inside, len);
        let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, 0x7F);
        let outside = self.code.ins().icmp(IntCC::UnsignedGreaterThan, inner, end);
        let unfit = self.code.ins().bor(long, outside);
        self.or_else(unfit, slow);
        self.set_end(inner);
        self.code.def_var(self.position, inside);
        self.jump_and_begin(done, slow);
        let (cursor, argument) = (self.slot_address(slot), self.constant(argument as i64));
        self.call_status(op, dialect.get_begin as *const u8, &[self.context(), argument, cursor]);
        self.jump_and_begin(done, done);
        // The saved end replaces the kernel's cursor.
        InRegion { outer: end }
    }

    /// Ends a region: skips its unread bytes.
    pub(super) fn end_in_region(&mut self, region: InRegion) {
        let end = self.code.use_var(self.end);
        self.code.def_var(self.position, end);
        self.set_end(region.outer);
    }

    fn set_end(&mut self, end: Value) {
        self.code.def_var(self.end, end);
        self.store(end, self.context(), self.fields.end);
    }
}
