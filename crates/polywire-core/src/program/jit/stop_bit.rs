//! Stop-bit integers: emits `Get StopBit` and `Put StopBit`. `jit/decode.rs` and `jit/encode.rs`
//! call it. The general function calls `state/stop_bit.rs`, as the interpreter does. A direct
//! function reads and writes integers of one byte in line (`jit/stream/entity.rs`) and bails out in
//! unusual cases. The code touches the message and the locals.

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};

use super::{emit::Emit, join::LocalFact};
use crate::{
    layout::Scalar,
    program::{Input, Op, Output, Status, StopBit, state::stop_bit},
};

impl<'e> Emit<'e, '_> {
    /// Accumulator from a stop-bit integer.
    pub(super) fn get_stop_bit(&mut self, op: &Op, form: &'e StopBit) {
        let value = if self.direct {
            self.read_stop_bit(form)
        } else {
            let (address, word) = (self.address(form), self.word());
            self.call_status(op, get as *const u8, &[self.context(), address, word]);
            self.load_word(0)
        };
        self.set(value, form.scalar);
    }

    fn read_stop_bit(&mut self, form: &StopBit) -> Value {
        let (unwind, range) = (self.unwind, narrow(form.scalar));
        let is_signed = form.scalar.is_signed() || form.base.is_some();
        if form.there.is_none() && form.base.is_none() {
            return self.read_entity(unwind, is_signed, range);
        }
        let on_wire = range.filter(|_| form.base.is_none()).map(|(min, max)| (min, max + 1));
        let wire = self.read_entity(unwind, is_signed, on_wire);
        let mut value = wire;
        let there = form.there.map(|local| {
            let there = self.code.ins().icmp_imm_s(IntCC::NotEqual, wire, 0);
            let flag = self.code.ins().uextend(types::I64, there);
            self.set_local(local, flag, LocalFact { from: Some(Scalar::U8), constant: None });
            there
        });
        if there.is_some() {
            value = self.denull(is_signed, wire);
        }
        if let Some(base) = form.base {
            let base = self.local(base, form.scalar);
            let sum = self.code.ins().iadd(base, value);
            self.bail_out_if_wrapped(form.scalar, base, value, sum);
            value = sum;
            // An absent difference counts as zero, so the result is the base.
            if range.is_some() {
                let cut = self.cut(value, form.scalar);
                let outside = self.code.ins().icmp(IntCC::NotEqual, cut, value);
                self.or_bail_out(outside);
            }
        }
        match there {
            Some(there) => {
                let zero = self.constant(0);
                self.code.ins().select(there, value, zero)
            }
            None => value,
        }
    }

    /// Writes the accumulator as a stop-bit integer that is present.
    pub(super) fn put_stop_bit(&mut self, op: &Op, form: &'e StopBit, value: Value) {
        if !self.direct {
            let address = self.address(form);
            return self.call_status(op, put as *const u8, &[self.context(), address, value]);
        }
        let is_signed = form.scalar.is_signed() || form.base.is_some();
        let mut wire = value;
        if let Some(base) = form.base {
            let base = self.local(base, form.scalar);
            wire = self.code.ins().isub(value, base);
            self.bail_out_if_wrapped(form.scalar, base, wire, value);
        }
        if form.there.is_some() {
            let is_narrow = form.scalar.size() < 8;
            return self.write_nullable(is_signed, is_narrow, wire);
        }
        self.write_entity(is_signed, wire);
    }

    /// Bails out if a sum (of a base and a difference) or a difference does not fit 64 bits.
    fn bail_out_if_wrapped(&mut self, scalar: Scalar, base: Value, delta: Value, sum: Value) {
        if scalar.size() < 8 {
            return;
        }
        if scalar.is_signed() {
            let wrong = self.overflows(base, delta, sum);
            return self.or_bail_out(wrong);
        }
        // It fits if both numbers have the same highest bit.
        let (unsure, done) = (self.cold(), self.new_block());
        let differ = self.code.ins().bxor(base, sum);
        let differ = self.code.ins().icmp_imm_s(IntCC::SignedLessThan, differ, 0);
        self.or_else(differ, unsure);
        self.jump_and_begin(done, unsure);
        let below = self.code.ins().icmp(IntCC::UnsignedLessThan, sum, base);
        let negative = self.code.ins().icmp_imm_s(IntCC::SignedLessThan, delta, 0);
        let wrong = self.code.ins().bxor(below, negative);
        self.or_bail_out(wrong);
        self.jump_and_begin(done, done);
    }
}

/// The range of an integer of fewer than 64 bits.
fn narrow(scalar: Scalar) -> Option<(i64, i64)> {
    let (min, max) = scalar.range().filter(|_| scalar.size() < 8)?;
    Some((min as i64, max as i64))
}

// General functions call the functions below. None unwinds.

unsafe extern "C" fn get(input: *mut Input<'_>, form: *const StopBit, word: *mut u64) -> Status {
    // SAFETY: machine code passes its input, which nobody else refers to during the call, a form
    // that lives as long as the code, and a word of its stack frame.
    unsafe { Status::give(stop_bit::get(&mut *input, &*form), &mut *word) }
}

unsafe extern "C" fn put(output: *mut Output<'_>, form: *const StopBit, value: u64) -> Status {
    // SAFETY: machine code passes its output, which nobody else refers to during the call, and a
    // form that lives as long as the code.
    unsafe { stop_bit::put(&mut *output, &*form, value) }
}
