//! Decimals whose operator is about exponent and mantissa together. Where there is none, the
//! exponent's slot says so.

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};
use cranelift_frontend::Variable;

use super::super::emit::Emit;
use crate::{
    layout::Scalar,
    program::{
        Field,
        state::{
            Operator,
            specialised::{EMPTY_WORD, NO_NUMBER},
        },
    },
};

/// Exponents and differences of exponents have fewer bits.
const FAR: i64 = 1 << 40;

/// Words that have the same effect as no value, for exponent and mantissa.
pub(super) fn fresh(field: &Field) -> [u64; 2] {
    match (field.operator, field.initial_decimal()) {
        (Operator::Delta, None) => [0, 0],
        (_, Some((exponent, mantissa))) => [exponent as u64, mantissa as u64],
        (_, None) if field.optional => [EMPTY_WORD, 0],
        (_, None) => [NO_NUMBER, 0],
    }
}

impl Emit<'_, '_> {
    /// The words as a decimal.
    pub(in super::super) fn encode_whole(&mut self, field: &Field) {
        let parts = self.words.map(|word| self.code.use_var(word));
        self.check_exponent(parts[0]);
        match field.operator {
            Operator::Constant => {
                let initial = self.initial_parts(field).unwrap_or(parts);
                let (differs, unwind) = (self.parts_differ(parts, initial), self.unwind);
                self.or_else(differs, unwind);
                if field.optional {
                    let bit = self.next_bit();
                    self.set_bit(bit);
                }
            }
            Operator::Default => {
                let expected = self.initial_parts(field);
                self.put_unless_expected(field, parts, expected);
            }
            Operator::Copy => {
                let previous = self.previous_parts(field);
                self.keep_parts(field, parts);
                self.put_unless_expected(field, parts, Some(previous));
            }
            Operator::Delta => self.put_parts_delta(field, parts),
            _ => self.put_parts(field, parts),
        }
    }

    fn put_unless_expected(&mut self, field: &Field, parts: [Value; 2], expected: Option<[Value; 2]>) {
        let (bit, done) = (self.next_bit(), self.code.create_block());
        if let Some(expected) = expected {
            let differs = self.parts_differ(parts, expected);
            let same = self.code.ins().icmp_imm_s(IntCC::Equal, differs, 0);
            self.or_else(same, done);
        }
        self.set_bit(bit);
        self.put_parts(field, parts);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
    }

    fn put_parts_delta(&mut self, field: &Field, parts: [Value; 2]) {
        let (bases, unwind) = (self.previous_parts(field), self.unwind);
        let [exponent, mantissa] = [0, 1].map(|i| self.code.ins().isub(parts[i], bases[i]));
        let wrong = self.overflows(bases[1], mantissa, parts[1]);
        self.or_else(wrong, unwind);
        self.keep_parts(field, parts);
        self.put_parts(field, [exponent, mantissa]);
    }

    /// Two numbers as the stream has them, the first of which makes way for absence.
    fn put_parts(&mut self, field: &Field, [exponent, mantissa]: [Value; 2]) {
        match field.optional {
            true => self.write_nullable(true, false, exponent),
            false => self.write_entity(true, exponent),
        }
        self.write_entity(true, mantissa);
    }

    /// The words from a decimal; accumulator from whether it is there.
    pub(in super::super) fn decode_whole(&mut self, field: &Field) {
        let there = self.code.declare_var(types::I64);
        match field.operator {
            Operator::Constant => {
                let bit = if field.optional { self.take_flag() } else { self.constant(1) };
                self.code.def_var(there, bit);
                self.set_initial(field);
            }
            Operator::Default | Operator::Copy => {
                let bit = self.take_bit();
                self.branch(bit, |emit| emit.sent_parts(field, there), |emit| emit.left_out_parts(field, there));
            }
            Operator::Delta => self.take_parts(field, there, |emit| emit.add_parts(field)),
            _ => self.take_parts(field, there, |_| {}),
        }
        let there = self.code.use_var(there);
        self.set(there, Scalar::Bool);
    }

    /// A decimal that is in the stream.
    fn sent_parts(&mut self, field: &Field, there: Variable) {
        let is_kept = field.operator == Operator::Copy;
        if is_kept && field.optional {
            let empty = self.constant(EMPTY_WORD as i64);
            self.set_part(field.slot, empty);
        }
        self.take_parts(field, there, |emit| {
            if is_kept {
                let parts = emit.words.map(|word| emit.code.use_var(word));
                emit.keep_parts(field, parts);
            }
        });
    }

    /// A decimal that the stream has nothing for.
    fn left_out_parts(&mut self, field: &Field, there: Variable) {
        if field.operator == Operator::Default {
            self.set_initial(field);
            let known = self.constant(field.initial.is_some().into());
            return self.code.def_var(there, known);
        }
        let parts = self.previous_parts(field);
        let none = if field.optional { EMPTY_WORD } else { NO_NUMBER };
        let some = self.code.ins().icmp_imm_s(IntCC::NotEqual, parts[0], none as i64);
        let some = self.code.ins().uextend(types::I64, some);
        if !field.optional {
            let (missing, unwind) = (self.code.ins().bxor_imm_s(some, 1), self.unwind);
            self.or_else(missing, unwind);
        }
        self.set_parts(parts);
        self.code.def_var(there, some);
    }

    /// The words from two numbers in the stream, unless it says that there are none; `then` does
    /// the rest.
    fn take_parts(&mut self, field: &Field, there: Variable, then: impl FnOnce(&mut Self)) {
        let (done, unwind) = (self.code.create_block(), self.unwind);
        let mut exponent = self.read_entity(unwind, true, None);
        let some = if field.optional { exponent } else { self.constant(1) };
        let some = self.code.ins().icmp_imm_s(IntCC::NotEqual, some, 0);
        let some = self.code.ins().uextend(types::I64, some);
        self.code.def_var(there, some);
        if field.optional {
            let go_on = self.code.create_block();
            self.code.ins().brif(some, go_on, &[], done, &[]);
            self.code.switch_to_block(go_on);
            exponent = self.denull(true, exponent);
        }
        let far = self.outside(exponent, -FAR, FAR);
        self.or_else(far, unwind);
        let mantissa = self.read_entity(unwind, true, None);
        self.set_parts([exponent, mantissa]);
        if field.operator != Operator::Delta {
            self.check_exponent(exponent);
        }
        then(self);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
    }

    /// Adds the words to the previous parts.
    fn add_parts(&mut self, field: &Field) {
        let (bases, unwind) = (self.previous_parts(field), self.unwind);
        let deltas = self.words.map(|word| self.code.use_var(word));
        let parts = [0, 1].map(|i| self.code.ins().iadd(bases[i], deltas[i]));
        let wrong = self.overflows(bases[1], deltas[1], parts[1]);
        self.or_else(wrong, unwind);
        self.check_exponent(parts[0]);
        self.keep_parts(field, parts);
        self.set_parts(parts);
    }

    fn set_initial(&mut self, field: &Field) {
        if let Some(parts) = self.initial_parts(field) {
            self.set_parts(parts);
        }
    }

    fn initial_parts(&mut self, field: &Field) -> Option<[Value; 2]> {
        let (exponent, mantissa) = field.initial_decimal()?;
        Some([exponent, mantissa].map(|part| self.constant(part)))
    }

    pub(super) fn set_parts(&mut self, parts: [Value; 2]) {
        for (word, part) in self.words.into_iter().zip(parts) {
            self.code.def_var(word, part);
        }
    }

    fn previous_parts(&mut self, field: &Field) -> [Value; 2] {
        let values = self.stream().values;
        [field.slot, field.text].map(|slot| self.load(types::I64, values, 8 * slot as i32))
    }

    fn keep_parts(&mut self, field: &Field, [exponent, mantissa]: [Value; 2]) {
        self.set_part(field.slot, exponent);
        self.set_part(field.text, mantissa);
    }

    fn set_part(&mut self, slot: u32, value: Value) {
        let values = self.stream().values;
        self.store(value, values, 8 * slot as i32);
    }

    /// Zero if both parts are the same.
    fn parts_differ(&mut self, a: [Value; 2], b: [Value; 2]) -> Value {
        let [exponent, mantissa] = [0, 1].map(|i| self.code.ins().bxor(a[i], b[i]));
        self.code.ins().bor(exponent, mantissa)
    }
}
