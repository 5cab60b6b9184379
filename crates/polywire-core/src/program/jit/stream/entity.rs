//! Stop-bit integers, in direct functions: emits code that reads and writes them.
//!
//! An integer of one byte is handled in line, a longer one by a function of `state/integer.rs`.
//! `jit/stop_bit.rs` and `bytes` call this file. The code touches the message only.

use cranelift_codegen::ir::{Block as CodeBlock, InstBuilder, Value, condcodes::IntCC, types};

use super::super::emit::Emit;
use crate::{layout::Scalar, program::state::integer::Functions};

impl Emit<'_, '_> {
    /// Emits a test: 1 if the sum of two signed integers overflows 64 bits.
    pub(in super::super) fn overflows(&mut self, base: Value, delta: Value, sum: Value) -> Value {
        let (a, b) = (self.code.ins().bxor(base, sum), self.code.ins().bxor(delta, sum));
        let both = self.code.ins().band(a, b);
        self.code.ins().icmp_imm_s(IntCC::SignedLessThan, both, 0)
    }

    /// Reads an integer of up to ten bytes and moves behind it. Bails out if it is invalid or out
    /// of range.
    pub(in super::super) fn read_entity(&mut self, slow: CodeBlock, signed: bool, range: Option<(i64, i64)>) -> Value {
        let (end, position) = (self.code.use_var(self.end), self.position());
        let none = self.code.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, position, end);
        self.or_else(none, slow);
        let here = self.here();
        let value = self.code.declare_var(types::I64);
        let byte = self.load_scalar(Scalar::U8, here, 0);
        let next = self.code.ins().iadd_imm_s(position, 1);
        self.code.def_var(self.position, next);
        let long = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThanOrEqual, byte, 0x7F);
        let [one, done] = [(); 2].map(|()| self.new_block());
        let longer = self.cold();
        self.code.ins().brif(long, longer, &[], one, &[]);
        self.code.switch_to_block(one);
        // The stop bit is known to be set. The sign is bit 6.
        let first = match signed {
            true => {
                let turned = self.code.ins().bxor_imm_s(byte, 0xC0);
                self.code.ins().iadd_imm_s(turned, -0x40)
            }
            false => self.code.ins().iadd_imm_s(byte, -0x80),
        };
        self.code.def_var(value, first);
        self.jump_and_begin(done, longer);
        let base = self.code.use_var(self.base);
        let (last, word) = (self.code.ins().iadd(base, end), self.word());
        let functions = Functions::of_machine();
        let function = if signed { functions.read_signed } else { functions.read_unsigned };
        let behind = self.call_word(function, &[here, last, word]);
        let odd = self.code.ins().icmp_imm_s(IntCC::Equal, behind, 0);
        self.or_else(odd, slow);
        let read = self.load_word(0);
        self.code.def_var(value, read);
        self.move_to(behind);
        // An integer of one byte is in range of every type.
        if let Some((min, max)) = range {
            let outside = self.outside(read, min, max);
            self.or_else(outside, slow);
        }
        self.jump_and_begin(done, done);
        self.code.use_var(value)
    }

    /// Writes an integer. There must be room.
    pub(in super::super) fn write_entity(&mut self, signed: bool, value: Value) {
        let (here, position) = (self.here(), self.position());
        // A comparison with 127 and an operation on one byte are shorter instructions.
        // A direct function of many fields is bound by the size of its code.
        let biased = if signed { self.code.ins().iadd_imm_s(value, 64) } else { value };
        let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, biased, 127);
        let (one, more, done) = (self.new_block(), self.cold(), self.new_block());
        self.code.ins().brif(long, more, &[], one, &[]);
        self.code.switch_to_block(one);
        let byte = self.code.ins().ireduce(types::I8, value);
        let byte = self.code.ins().bor_imm_s(byte, -0x80);
        self.store(byte, here, 0);
        let next = self.code.ins().iadd_imm_s(position, 1);
        self.code.def_var(self.position, next);
        self.jump_and_begin(done, more);
        let functions = Functions::of_machine();
        let function = if signed { functions.write_signed } else { functions.write_unsigned };
        let behind = self.call_word(function, &[here, value]);
        self.move_to(behind);
        self.jump_and_begin(done, done);
    }

    /// Moves the position to an address. Functions return an address rather than a length, so that
    /// the old position need not be kept across the call.
    pub(super) fn move_to(&mut self, address: Value) {
        let base = self.code.use_var(self.base);
        let position = self.code.ins().isub(address, base);
        self.code.def_var(self.position, position);
    }

    pub(in super::super) fn denull(&mut self, signed: bool, wire: Value) -> Value {
        if !signed {
            return self.code.ins().iadd_imm_s(wire, -1);
        }
        let above = self.code.ins().icmp_imm_s(IntCC::SignedGreaterThan, wire, 0);
        let above = self.code.ins().uextend(types::I64, above);
        self.code.ins().isub(wire, above)
    }

    /// Writes a nullable value or difference: numbers from zero on are one more. Bails out if that
    /// overflows.
    pub(in super::super) fn write_nullable(&mut self, signed: bool, is_narrow: bool, value: Value) {
        let (largest, moved) = match signed {
            true => (i64::MAX, self.code.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, value, 0)),
            false => (-1, self.code.ins().iconst(types::I8, 1)),
        };
        if !is_narrow {
            let last = self.code.ins().icmp_imm_s(IntCC::Equal, value, largest);
            self.or_bail_out(last);
        }
        let moved = self.code.ins().uextend(types::I64, moved);
        let wire = self.code.ins().iadd(value, moved);
        self.write_entity(signed, wire);
    }
}
