//! Integers that may be absent: on the wire their value makes way for a zero, and so do their slots
//! for a word that says that nothing is there.

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};
use cranelift_frontend::Variable;

use super::{super::emit::Emit, integer::Int, map::Bit};
use crate::{
    layout::Scalar,
    program::{
        Field,
        state::{Operator, specialised::EMPTY_WORD},
    },
};

/// An integer that can be made here.
pub(super) fn optional(field: &Field) -> Option<Int> {
    Int::of_any(field).filter(|_| field.optional)
}

/// A value that is being read, and whether there is one.
#[derive(Clone, Copy)]
struct Found {
    there: Variable,
    value: Variable,
}

impl Emit<'_, '_> {
    /// Whether an integer is there, and which.
    pub(super) fn decode_optional(&mut self, int: &Int) -> [Value; 2] {
        let [there, value] = [(); 2].map(|()| self.code.declare_var(types::I64));
        let (found, unwind) = (Found { there, value }, self.unwind);
        match int.operator {
            Operator::None => {
                let wire = self.read_entity(unwind, int.signed, None);
                self.find_nullable(int, wire, found);
            }
            Operator::Delta => {
                let wire = self.read_entity(unwind, true, None);
                self.find_sum(int, wire, found);
            }
            Operator::Constant => {
                let (bit, value) = (self.take_bit(), self.constant(int.initial.unwrap_or(0)));
                let there = self.code.ins().icmp_imm_s(IntCC::NotEqual, bit, 0);
                self.found(there, value, found);
            }
            _ => {
                let bit = self.take_bit();
                self.branch(bit, |emit| emit.find_sent(int, found), |emit| emit.find_left_out(int, found));
            }
        }
        [there, value].map(|variable| self.code.use_var(variable))
    }

    fn found(&mut self, there: Value, value: Value, found: Found) {
        let there = self.code.ins().uextend(types::I64, there);
        self.code.def_var(found.there, there);
        self.code.def_var(found.value, value);
    }

    /// A value from what stands for it, zero being absence; leaves if it is none of the type.
    fn find_nullable(&mut self, int: &Int, wire: Value, found: Found) {
        let there = self.code.ins().icmp_imm_s(IntCC::NotEqual, wire, 0);
        let value = self.denull(int.signed, wire);
        if let Some((min, max)) = int.range {
            let (outside, unwind) = (self.outside(value, min, max), self.unwind);
            let wrong = self.code.ins().band(outside, there);
            self.or_else(wrong, unwind);
        }
        self.found(there, value, found);
    }

    pub(in super::super) fn denull(&mut self, signed: bool, wire: Value) -> Value {
        if !signed {
            return self.code.ins().iadd_imm_s(wire, -1);
        }
        let above = self.code.ins().icmp_imm_s(IntCC::SignedGreaterThan, wire, 0);
        let above = self.code.ins().uextend(types::I64, above);
        self.code.ins().isub(wire, above)
    }

    fn find_sum(&mut self, int: &Int, wire: Value, found: Found) {
        let (some, done, unwind) = (self.code.create_block(), self.code.create_block(), self.unwind);
        let there = self.code.ins().icmp_imm_s(IntCC::NotEqual, wire, 0);
        self.found(there, wire, found);
        self.code.ins().brif(there, some, &[], done, &[]);
        self.code.switch_to_block(some);
        let (base, delta) = (self.slot_value(int), self.denull(true, wire));
        let sum = self.code.ins().iadd(base, delta);
        self.wrapped(unwind, int, base, delta, sum);
        self.within(unwind, int, sum);
        self.set_slot(int, sum);
        self.code.def_var(found.value, sum);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
    }

    /// A value that is in the stream.
    fn find_sent(&mut self, int: &Int, found: Found) {
        let wire = self.read_entity(self.unwind, int.signed, None);
        self.find_nullable(int, wire, found);
        if int.operator != Operator::Default {
            let (there, value) = (self.code.use_var(found.there), self.code.use_var(found.value));
            self.not_reserved(self.unwind, int, value, EMPTY_WORD);
            let empty = self.constant(EMPTY_WORD as i64);
            let word = self.code.ins().select(there, value, empty);
            self.set_slot(int, word);
        }
    }

    /// A value that the stream has nothing for.
    fn find_left_out(&mut self, int: &Int, found: Found) {
        if int.operator == Operator::Default {
            let there = self.code.ins().iconst(types::I8, i64::from(int.initial.is_some()));
            let value = self.constant(int.initial.unwrap_or(0));
            return self.found(there, value, found);
        }
        let previous = self.slot_value(int);
        let there = self.code.ins().icmp_imm_s(IntCC::NotEqual, previous, EMPTY_WORD as i64);
        self.found(there, previous, found);
        if int.operator == Operator::Increment {
            let (some, done, unwind) = (self.code.create_block(), self.code.create_block(), self.unwind);
            self.code.ins().brif(there, some, &[], done, &[]);
            self.code.switch_to_block(some);
            let next = self.incremented(unwind, int);
            self.not_reserved(unwind, int, next, EMPTY_WORD);
            self.set_slot(int, next);
            self.code.def_var(found.value, next);
            self.code.ins().jump(done, &[]);
            self.code.switch_to_block(done);
        }
    }

    /// Accumulator from whether a field is there; its value waits in the words.
    pub(super) fn test_optional(&mut self, int: &Int) {
        let [there, value] = self.decode_optional(int);
        self.code.def_var(self.words[0], value);
        self.set(there, Scalar::Bool);
    }

    /// The same of a field that is always there.
    pub(super) fn test_present(&mut self, field: &Field) {
        self.decode_int(field);
        let (value, there) = (self.accumulator().value, self.constant(1));
        self.code.def_var(self.words[0], value);
        self.set(there, Scalar::Bool);
    }

    /// Accumulator from an integer that might be absent and must not be.
    pub(super) fn demand(&mut self, field: &Field, int: &Int) {
        let [there, value] = self.decode_optional(int);
        let (absent, unwind) = (self.code.ins().icmp_imm_s(IntCC::Equal, there, 0), self.unwind);
        self.or_else(absent, unwind);
        self.set(value, field.scalar());
    }

    /// The accumulator as a field that might be absent.
    pub(super) fn encode_present(&mut self, int: &Int, value: Value) {
        let unwind = self.unwind;
        if int.operator != Operator::Constant && !int.holds(self.accumulator().from) {
            self.within(unwind, int, value);
        }
        match int.operator {
            Operator::None => self.write_nullable(int.signed, int.is_narrow(), value),
            Operator::Delta => {
                let base = self.slot_value(int);
                let delta = self.code.ins().isub(value, base);
                self.wrapped(unwind, int, base, delta, value);
                self.set_slot(int, value);
                self.write_nullable(true, int.is_narrow(), delta);
            }
            Operator::Constant => {
                let bit = self.next_bit();
                let other = self.code.ins().icmp_imm_s(IntCC::NotEqual, value, int.initial.unwrap_or(0));
                self.or_else(other, unwind);
                self.set_bit(bit);
            }
            _ => {
                let bit = self.next_bit();
                if int.operator != Operator::Default {
                    self.not_reserved(unwind, int, value, EMPTY_WORD);
                }
                let expected = match (int.operator, int.initial) {
                    (Operator::Default, Some(initial)) => Some(self.constant(initial)),
                    (Operator::Default, None) => None,
                    // Nothing is one more than what says that nothing is there.
                    (Operator::Increment, _) => Some(self.incremented(unwind, int)),
                    _ => Some(self.slot_value(int)),
                };
                if int.operator != Operator::Default {
                    self.set_slot(int, value);
                }
                let done = self.code.create_block();
                if let Some(expected) = expected {
                    let same = self.code.ins().icmp(IntCC::Equal, value, expected);
                    self.or_else(same, done);
                }
                self.set_bit(bit);
                self.write_nullable(int.signed, int.is_narrow(), value);
                self.code.ins().jump(done, &[]);
                self.code.switch_to_block(done);
            }
        }
    }

    /// The absence of an integer, a decimal or a text.
    pub(super) fn encode_absent(&mut self, field: &Field) {
        let zero = self.constant(0);
        match field.operator {
            Operator::None | Operator::Delta => self.write_entity(false, zero),
            Operator::Constant => drop(self.next_bit()),
            _ => {
                let bit = self.next_bit();
                self.encode_none(field, bit);
            }
        }
    }

    /// The absence of a field with a bit that says more than that it is there.
    pub(super) fn encode_none(&mut self, field: &Field, bit: Bit) {
        let zero = self.constant(0);
        match field.operator {
            Operator::Default if field.initial.is_none() => {}
            Operator::Default => {
                self.set_bit(bit);
                self.write_entity(false, zero);
            }
            _ => {
                let done = self.code.create_block();
                let (values, at) = (self.stream().values, 8 * field.slot as i32);
                let previous = self.load(types::I64, values, at);
                let same = self.code.ins().icmp_imm_s(IntCC::Equal, previous, EMPTY_WORD as i64);
                self.or_else(same, done);
                self.set_bit(bit);
                let empty = self.constant(EMPTY_WORD as i64);
                self.store(empty, values, at);
                self.write_entity(false, zero);
                self.code.ins().jump(done, &[]);
                self.code.switch_to_block(done);
            }
        }
    }

    /// A value or difference that makes way for zero; leaves if there is no room for that.
    pub(in super::super) fn write_nullable(&mut self, signed: bool, is_narrow: bool, value: Value) {
        let unwind = self.unwind;
        let (largest, moved) = match signed {
            true => (i64::MAX, self.code.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, value, 0)),
            false => (-1, self.code.ins().iconst(types::I8, 1)),
        };
        if !is_narrow {
            let last = self.code.ins().icmp_imm_s(IntCC::Equal, value, largest);
            self.or_else(last, unwind);
        }
        let moved = self.code.ins().uextend(types::I64, moved);
        let wire = self.code.ins().iadd(value, moved);
        self.write_entity(signed, wire);
    }
}
