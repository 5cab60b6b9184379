//! Numbers that are decimals on the wire, with any operators: floating-point numbers, those that
//! are no decimal by their bits, and integers. The decimal is made as one that is a value of its
//! own, and is in the words meanwhile. Floating-point numbers with an exponent that mostly stays,
//! and that must be there, have a shorter way in `decimal`.

use cranelift_codegen::ir::{Block as CodeBlock, InstBuilder, Value, condcodes::IntCC, types};

use super::{super::emit::Emit, Eligibility, decimal::is_expected, elided::elided_bit, optional::optional};
use crate::{
    layout::Scalar,
    program::{
        Field, FieldKind,
        state::{Operator, float, normal_decimal, whole_number},
    },
};

impl Eligibility<'_> {
    /// The bits of a number that is made by way of its decimal.
    pub(super) fn number_by_decimal(&mut self, field: &Field) -> Option<u32> {
        match &field.kind {
            FieldKind::Float { single, decimal, bits } => {
                has_hint(decimal.exponent()).then_some(())?;
                self.decimal(decimal)?;
                if let Some(bits) = bits {
                    fits(bits, *single).then_some(())?;
                    self.number(bits)?;
                }
            }
            FieldKind::Whole(decimal) => drop(self.decimal(decimal)?),
            _ => return None,
        }
        Some(field.bits())
    }
}

/// True if the writer's first guess is in the slot of the exponent, as the interpreter has it: not
/// where a word one less than the initial value stands for no value.
fn has_hint(exponent: &Field) -> bool {
    exponent.operator != Operator::Increment || exponent.initial.is_none()
}

/// True if all values of an integer are bits of a number.
fn fits(bits: &Field, single: bool) -> bool {
    matches!(bits.kind, FieldKind::Int { min, max, .. } if !single || min >= 0 && max <= u32::MAX.into())
}

impl Emit<'_, '_> {
    /// The accumulator, an integer or the bits of a floating-point number, as such a number.
    pub(super) fn encode_by_decimal(&mut self, field: &Field, value: Value) {
        let accumulator = self.accumulator;
        match &field.kind {
            FieldKind::Float { single, decimal, bits } => {
                self.encode_decimal_or_bits((decimal, bits.as_deref()), (value, *single));
            }
            FieldKind::Whole(decimal) => {
                let word = self.word();
                self.call(normal as *const u8, &[value, word], None);
                let parts = [self.load_word(0), self.load_word(8)];
                self.set_parts(parts);
                self.encode_words(decimal, true);
            }
            _ => {}
        }
        self.accumulator = accumulator;
    }

    fn encode_decimal_or_bits(&mut self, (decimal, escape): (&Field, Option<&Field>), (value, single): (Value, bool)) {
        let (start, raw, done) = (self.bits_done(), self.cold(), self.code.create_block());
        self.find_decimal(decimal.exponent(), (value, single), raw);
        self.encode_words(decimal, true);
        escape.into_iter().for_each(|escape| self.encode_absent(escape));
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(raw);
        if let Some(int) = escape.and_then(optional).filter(|_| self.can_do_without(decimal)) {
            self.set_bits_done(start);
            self.encode_words(decimal, false);
            self.set(value, Scalar::U64);
            self.encode_present(&int, value);
            self.code.ins().jump(done, &[]);
        } else {
            let unwind = self.unwind;
            self.code.ins().jump(unwind, &[]);
        }
        self.code.switch_to_block(done);
    }

    /// The words from the decimal that a floating-point number is written as; goes to `raw` if it
    /// is none, or none with the only exponent that there is.
    fn find_decimal(&mut self, exponent: &Field, number: (Value, bool), raw: CodeBlock) {
        if is_expected(exponent) {
            let (expected, power, known) = self.expected_power(exponent);
            let (whole, mut exact) = self.scaled(number, power);
            if let Some(known) = known {
                exact = self.code.ins().band(exact, known);
            }
            self.set_parts([expected, whole]);
            let inexact = self.code.ins().bxor_imm_s(exact, 1);
            self.rarely(inexact, |emit| {
                let parts = emit.other_decimal(exponent, expected, number, raw);
                emit.set_parts(parts);
            });
        } else {
            let nothing = self.constant(i64::MAX);
            let parts = self.other_decimal(exponent, nothing, number, raw);
            self.set_parts(parts);
        }
        if let (Operator::Constant, Some(initial)) = (exponent.operator, exponent.initial_exponent()) {
            let found = self.code.use_var(self.words[0]);
            let other = self.code.ins().icmp_imm_s(IntCC::NotEqual, found, initial);
            self.or_else(other, raw);
        }
    }

    /// True if the map has a place for the bits that the absence of a decimal leaves out.
    fn can_do_without(&self, decimal: &Field) -> bool {
        !elided_bit(decimal) || self.segment.as_ref().is_some_and(|segment| segment.elided.is_some())
    }

    /// Accumulator from whether such a number is there; its value is the first word then.
    pub(super) fn test_by_decimal(&mut self, field: &Field) {
        let there = match &field.kind {
            FieldKind::Float { single, decimal, bits } => {
                let there = self.number_of_words(decimal, |emit| emit.compose_words(*single));
                match bits.as_deref().and_then(optional) {
                    Some(int) => {
                        let escaped = self.decode_optional(&int);
                        self.number_or_bits(there, escaped)
                    }
                    None => there,
                }
            }
            FieldKind::Whole(decimal) => self.number_of_words(decimal, Self::whole_of_words),
            _ => return,
        };
        self.set(there, Scalar::Bool);
    }

    /// Accumulator from such a number, which must be there.
    pub(super) fn demand_by_decimal(&mut self, field: &Field) {
        self.test_by_decimal(field);
        let (there, unwind) = (self.accumulator().value, self.unwind);
        let absent = self.code.ins().icmp_imm_s(IntCC::Equal, there, 0);
        self.or_else(absent, unwind);
        let value = self.code.use_var(self.words[0]);
        self.set(value, field.scalar());
    }

    /// The first word from a decimal by `number`, which makes it of both; whether it is there.
    fn number_of_words(&mut self, decimal: &Field, number: impl FnOnce(&mut Self) -> Value) -> Value {
        self.decode_words(decimal);
        let (there, first) = (self.accumulator().value, self.words[0]);
        let make = |emit: &mut Self| {
            let value = number(emit);
            emit.code.def_var(first, value);
        };
        if decimal.optional && self.can_do_without(decimal) {
            self.branch(there, make, |_| {});
        } else {
            let (absent, unwind) = (self.code.ins().icmp_imm_s(IntCC::Equal, there, 0), self.unwind);
            self.or_else(absent, unwind);
            make(self);
        }
        there
    }

    /// The first word, or bits if there are some instead; whether there is either. Leaves if both
    /// are there.
    fn number_or_bits(&mut self, there: Value, [escaped, bits]: [Value; 2]) -> Value {
        let (both, unwind) = (self.code.ins().band(there, escaped), self.unwind);
        self.or_else(both, unwind);
        let number = self.code.use_var(self.words[0]);
        let value = self.code.ins().select(escaped, bits, number);
        self.code.def_var(self.words[0], value);
        self.code.ins().bor(there, escaped)
    }

    /// The bits of the number that the words are.
    fn compose_words(&mut self, single: bool) -> Value {
        let [exponent, mantissa] = self.words.map(|word| self.code.use_var(word));
        let (value, odd, done) = (self.code.declare_var(types::I64), self.cold(), self.code.create_block());
        let places = self.known_places(exponent, odd);
        let large = self.outside(mantissa, -(1 << 53), 1 << 53);
        self.or_else(large, odd);
        let power = self.power(places);
        let bits = self.compose(mantissa, power, single);
        self.code.def_var(value, bits);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(odd);
        let single = self.constant(single.into());
        let bits = self.call(compose as *const u8, &[exponent, mantissa, single], Some(types::I64));
        self.code.def_var(value, bits.expect("it returns a word"));
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
        self.code.use_var(value)
    }

    /// The integer that the words are; leaves if they are none.
    fn whole_of_words(&mut self) -> Value {
        let [exponent, mantissa] = self.words.map(|word| self.code.use_var(word));
        let value = self.code.declare_var(types::I64);
        self.code.def_var(value, mantissa);
        self.rarely(exponent, |emit| {
            let word = emit.word();
            emit.call_or_leave(whole as *const u8, &[exponent, mantissa, word]);
            let whole = emit.load_word(0);
            emit.code.def_var(value, whole);
        });
        self.code.use_var(value)
    }
}

/// The bits of the number that a decimal stands for.
unsafe extern "C" fn compose(exponent: i64, mantissa: i64, single: u64) -> u64 {
    float::compose(exponent, mantissa, single != 0)
}

/// Exponent and mantissa of an integer.
unsafe extern "C" fn normal(value: i64, words: *mut [i64; 2]) {
    // SAFETY: machine code gives two words.
    unsafe { *words = normal_decimal(0, value).into() }
}

/// The integer that a decimal is: 0 if it is none.
unsafe extern "C" fn whole(exponent: i64, mantissa: i64, word: *mut i64) -> u64 {
    let Some(value) = whole_number(exponent, mantissa) else { return 0 };
    // SAFETY: machine code gives a word.
    unsafe { *word = value }
    1
}
