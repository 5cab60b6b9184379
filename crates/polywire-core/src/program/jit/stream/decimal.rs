//! Decimals, as words or as floating-point numbers with an exponent that mostly stays.

use cranelift_codegen::ir::{
    Block as CodeBlock, InstBuilder, MemFlagsData, Value,
    condcodes::{FloatCC, IntCC},
    types,
};
use cranelift_frontend::Variable;

use super::{super::emit::Emit, integer::Int, map::Bit, optional::optional};
use crate::{
    layout::Scalar,
    program::{
        Field, FieldKind,
        state::{
            Operator, decompose,
            float::{EXACT, POWERS},
            specialised::EMPTY_WORD,
        },
    },
};

/// Exponent and mantissa of a number that is made here: the exponent has an operator with an
/// expectation or none, and an escape is left out.
pub(super) fn parts(field: &Field) -> Option<[&Field; 2]> {
    let FieldKind::Float { decimal, bits, .. } = &field.kind else { return None };
    let FieldKind::Split(parts) = &decimal.kind else { return None };
    let [exponent, mantissa] = &**parts;
    let expected = match exponent.operator {
        Operator::Constant | Operator::Default => places(exponent).is_some(),
        Operator::Copy | Operator::None => true,
        _ => false,
    };
    let escaped = |bits: &Field| bits.operator == Operator::Default && bits.initial.is_none();
    let plain = expected && Int::of_any(exponent).is_some() && Int::of(mantissa).is_some();
    (plain && bits.iter().all(|bits| escaped(bits))).then_some([exponent, mantissa])
}

/// True if there is an exponent that goes without saying, which a writer tries first.
pub(super) fn is_expected(exponent: &Field) -> bool {
    match exponent.operator {
        Operator::None => false,
        Operator::Constant | Operator::Default => places(exponent).is_some(),
        _ => true,
    }
}

/// Decimal places of an exponent that is known.
fn places(exponent: &Field) -> Option<usize> {
    usize::try_from(exponent.initial_exponent()?.checked_neg()?).ok().filter(|places| *places < POWERS.len())
}

/// Largest exponent, and with the other sign the smallest.
const MOST: i64 = 63;

impl Emit<'_, '_> {
    /// The words as a decimal.
    pub(super) fn encode_decimal(&mut self, parts: &[Field; 2]) {
        let values = self.words.map(|word| self.code.use_var(word));
        self.check_exponent(values[0]);
        for (part, value) in parts.iter().zip(values) {
            self.set(value, Scalar::I64);
            self.encode_number(part, value);
        }
    }

    /// The words from a decimal; accumulator from whether it is there.
    pub(super) fn decode_decimal(&mut self, [exponent, mantissa]: &[Field; 2]) {
        let done = self.code.create_block();
        let there = match optional(exponent) {
            Some(int) => {
                let [there, value] = self.decode_optional(&int);
                self.code.def_var(self.words[0], value);
                let (some, none) = (self.code.create_block(), self.code.create_block());
                self.code.ins().brif(there, some, &[], none, &[]);
                self.code.switch_to_block(none);
                self.leave_bits_out(mantissa);
                self.code.ins().jump(done, &[]);
                self.code.switch_to_block(some);
                there
            }
            None => {
                self.decode_int(exponent);
                let value = self.accumulator().value;
                self.code.def_var(self.words[0], value);
                self.constant(1)
            }
        };
        self.decode_int(mantissa);
        let value = self.accumulator().value;
        self.code.def_var(self.words[1], value);
        let exponent = self.code.use_var(self.words[0]);
        self.check_exponent(exponent);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
        self.set(there, Scalar::Bool);
    }

    /// Leaves out the bits of a mantissa that is not there.
    pub(super) fn leave_bits_out(&mut self, mantissa: &Field) {
        if mantissa.bits() > 0 {
            self.leave_bit_out();
        }
    }

    /// Leaves if it is no exponent.
    pub(super) fn check_exponent(&mut self, exponent: Value) {
        let (outside, unwind) = (self.outside(exponent, -MOST, MOST), self.unwind);
        self.or_else(outside, unwind);
    }

    /// The accumulator, the bits of a number, as a field.
    pub(super) fn encode_float(&mut self, field: &Field, bits: Value) {
        let FieldKind::Float { single, bits: escape, .. } = &field.kind else { return };
        let Some([exponent, mantissa]) = parts(field) else { return };
        let (expected, power, known) = self.expected_power(exponent);
        let (whole, mut exact) = self.scaled((bits, *single), power);
        if let Some(known) = known {
            exact = self.code.ins().band(exact, known);
        }

        let (value, accumulator) = (self.code.declare_var(types::I64), self.accumulator);
        self.code.def_var(value, whole);
        let bit = (exponent.bits() > 0).then(|| self.next_bit());
        let (start, raw, done) = (self.bits_done(), self.cold(), self.code.create_block());
        let inexact = self.code.ins().bxor_imm_s(exact, 1);
        match (exponent.operator, bit) {
            (Operator::Constant, present) => {
                self.or_else(inexact, raw);
                present.into_iter().for_each(|bit| self.set_bit(bit));
            }
            (Operator::None, _) => self.other_exponent((exponent, expected), (bits, *single), (value, None), raw),
            (_, changed) => self.rarely(inexact, |emit| {
                emit.other_exponent((exponent, expected), (bits, *single), (value, changed), raw);
            }),
        }
        let whole = self.code.use_var(value);
        self.set(whole, mantissa.scalar());
        self.encode_int(mantissa, whole);
        if escape.is_some() {
            self.next_bit();
        }
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(raw);
        if escape.is_some() && mantissa.bits() == 0 {
            self.set_bits_done(start);
            self.encode_raw((exponent, bit), bits);
            self.code.ins().jump(done, &[]);
        } else {
            let unwind = self.unwind;
            self.code.ins().jump(unwind, &[]);
        }
        self.code.switch_to_block(done);
        self.accumulator = accumulator;
    }

    /// The mantissa of a number for a power of ten as divisor, and whether they are exactly the
    /// number.
    pub(super) fn scaled(&mut self, (bits, single): (Value, bool), power: Value) -> (Value, Value) {
        let number = self.number(bits, single);
        let scaled = self.code.ins().fmul(number, power);
        let size = self.code.ins().fabs(scaled);
        let most = self.code.ins().f64const(EXACT);
        let fits = self.code.ins().fcmp(FloatCC::LessThanOrEqual, size, most);
        let half = self.code.ins().f64const(0.5);
        let half = self.code.ins().fcopysign(half, scaled);
        let nearest = self.code.ins().fadd(scaled, half);
        let whole = self.code.ins().fcvt_to_sint_sat(types::I64, nearest);
        let back = self.compose(whole, power, single);
        let same = self.code.ins().icmp(IntCC::Equal, back, bits);
        (whole, self.code.ins().band(fits, same))
    }

    /// A number that is no decimal: the exponent is absent, and the bits take the mantissa's place.
    fn encode_raw(&mut self, (exponent, bit): (&Field, Option<Bit>), bits: Value) {
        match (exponent.operator, bit) {
            (Operator::Copy | Operator::Default, Some(bit)) => self.encode_none(exponent, bit),
            (Operator::None, _) => self.encode_absent(exponent),
            _ => {}
        }
        let escaped = self.next_bit();
        self.set_bit(escaped);
        self.write_nullable(false, false, bits);
    }

    /// Another exponent than is expected: it is written, and kept. A number that is no decimal goes
    /// to `raw`.
    fn other_exponent(
        &mut self,
        (field, expected): (&Field, Value),
        number: (Value, bool),
        (whole, bit): (Variable, Option<Bit>),
        raw: CodeBlock,
    ) {
        let Some(int) = Int::of_any(field) else { return };
        let [exponent, mantissa] = self.other_decimal(field, expected, number, raw);
        bit.into_iter().for_each(|bit| self.set_bit(bit));
        self.code.def_var(whole, mantissa);
        if field.operator == Operator::Copy {
            self.set_slot(&int, exponent);
        }
        // It is never above zero, but what may be absent makes way for that.
        let zero = self.code.ins().icmp_imm_s(IntCC::Equal, exponent, 0);
        let zero = self.code.ins().uextend(types::I64, zero);
        let wire = if field.optional { self.code.ins().iadd(exponent, zero) } else { exponent };
        self.write_entity(true, wire);
    }

    /// Exponent and mantissa of a number that has not the expected exponent; goes to `raw` if it is
    /// no decimal.
    pub(super) fn other_decimal(
        &mut self,
        exponent: &Field,
        expected: Value,
        (bits, single): (Value, bool),
        raw: CodeBlock,
    ) -> [Value; 2] {
        let (single, word) = (self.constant(single.into()), self.word());
        let initial = self.constant(exponent.initial_exponent().unwrap_or(i64::MAX));
        let arguments = [bits, single, expected, initial, word];
        let found = self.call(any_decimal as *const u8, &arguments, Some(types::I64)).expect("it returns a word");
        let none = self.code.ins().icmp_imm_s(IntCC::Equal, found, 0);
        self.or_else(none, raw);
        [self.load_word(0), self.load_word(8)]
    }

    /// The exponent that goes without saying, the power of ten that it stands for, and unless it
    /// always does, whether it stands for one.
    pub(super) fn expected_power(&mut self, exponent: &Field) -> (Value, Value, Option<Value>) {
        if let (Operator::Constant | Operator::Default, Some(places)) = (exponent.operator, places(exponent)) {
            return (self.constant(-(places as i64)), self.code.ins().f64const(POWERS[places]), None);
        }
        if exponent.operator == Operator::None {
            // It is found anew each time.
            return (self.constant(i64::MAX), self.code.ins().f64const(POWERS[0]), None);
        }
        let values = self.stream().values;
        let expected = self.load(types::I64, values, 8 * exponent.slot as i32);
        let places = self.code.ins().ineg(expected);
        let known = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, places, POWERS.len() as i64);
        let none = self.constant(0);
        let places = self.code.ins().select(known, places, none);
        (expected, self.power(places), Some(known))
    }

    /// A power of ten from a table; leaves if it is not there.
    fn power_of(&mut self, exponent: Value) -> Value {
        let unwind = self.unwind;
        let places = self.known_places(exponent, unwind);
        self.power(places)
    }

    /// The decimal places of an exponent; goes to `odd` if the table has no power for it.
    pub(super) fn known_places(&mut self, exponent: Value, odd: CodeBlock) -> Value {
        let places = self.code.ins().ineg(exponent);
        let outside = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, places, POWERS.len() as i64);
        self.or_else(outside, odd);
        places
    }

    pub(super) fn power(&mut self, places: Value) -> Value {
        let (table, distance) = (self.address(&POWERS), self.code.ins().ishl_imm_u(places, 3));
        let at = self.code.ins().iadd(table, distance);
        self.load(types::F64, at, 0)
    }

    /// The power of ten that an exponent which was left out stands for. Goes to `raw` if it was
    /// absent before, and leaves if there is none.
    fn left_out(&mut self, exponent: &Field, raw: CodeBlock) -> Value {
        let (expected, power, known) = self.expected_power(exponent);
        if let Some(known) = known {
            let unknown = self.code.ins().bxor_imm_s(known, 1);
            self.unless(unknown, |emit| {
                let absent = emit.code.ins().icmp_imm_s(IntCC::Equal, expected, EMPTY_WORD as i64);
                let unwind = emit.unwind;
                emit.code.ins().brif(absent, raw, &[], unwind, &[]);
            });
        }
        power
    }

    /// A double from the accumulator's bits.
    fn number(&mut self, bits: Value, single: bool) -> Value {
        if !single {
            return self.code.ins().bitcast(types::F64, MemFlagsData::new(), bits);
        }
        let bits = self.code.ins().ireduce(types::I32, bits);
        let number = self.code.ins().bitcast(types::F32, MemFlagsData::new(), bits);
        self.code.ins().fpromote(types::F64, number)
    }

    /// The bits of a mantissa divided by a power of ten.
    pub(super) fn compose(&mut self, mantissa: Value, power: Value, single: bool) -> Value {
        let number = self.code.ins().fcvt_from_sint(types::F64, mantissa);
        let number = self.code.ins().fdiv(number, power);
        if !single {
            return self.code.ins().bitcast(types::I64, MemFlagsData::new(), number);
        }
        let number = self.code.ins().fdemote(types::F32, number);
        let bits = self.code.ins().bitcast(types::I32, MemFlagsData::new(), number);
        self.code.ins().uextend(types::I64, bits)
    }

    /// Accumulator from a number.
    pub(super) fn decode_float(&mut self, field: &Field) {
        let FieldKind::Float { single, bits: escape, .. } = &field.kind else { return };
        let Some([exponent, mantissa]) = parts(field) else { return };
        let (value, raw, done) = (self.code.declare_var(types::I64), self.cold(), self.code.create_block());
        let power = self.read_power(exponent, raw);
        let (start, unwind) = (self.bits_done(), self.unwind);
        self.decode_int(mantissa);
        let whole = self.accumulator().value;
        if escape.is_some() {
            let escaped = self.take_bit();
            self.or_else(escaped, unwind);
        }
        let large = self.outside(whole, -(1 << 53), 1 << 53);
        self.or_else(large, unwind);
        let bits = self.compose(whole, power, *single);
        self.code.def_var(value, bits);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(raw);
        if escape.is_some() && mantissa.bits() == 0 {
            self.set_bits_done(start);
            let bits = self.decode_raw(*single);
            self.code.def_var(value, bits);
            self.code.ins().jump(done, &[]);
        } else {
            self.code.ins().jump(unwind, &[]);
        }
        self.code.switch_to_block(done);
        let bits = self.code.use_var(value);
        self.set(bits, field.scalar());
    }

    /// The bits of a number that is no decimal.
    fn decode_raw(&mut self, single: bool) -> Value {
        let (unwind, escaped) = (self.unwind, self.take_bit());
        let none = self.code.ins().icmp_imm_s(IntCC::Equal, escaped, 0);
        self.or_else(none, unwind);
        let wire = self.read_entity(unwind, false, None);
        let none = self.code.ins().icmp_imm_s(IntCC::Equal, wire, 0);
        self.or_else(none, unwind);
        let bits = self.code.ins().iadd_imm_s(wire, -1);
        if single {
            let large = self.outside(bits, 0, u32::MAX.into());
            self.or_else(large, unwind);
        }
        bits
    }

    /// The power of ten that the exponent which comes next stands for; goes to `raw` if there is
    /// none.
    fn read_power(&mut self, exponent: &Field, raw: CodeBlock) -> Value {
        if exponent.operator == Operator::Constant {
            if exponent.optional {
                let there = self.take_bit();
                let absent = self.code.ins().icmp_imm_s(IntCC::Equal, there, 0);
                self.or_else(absent, raw);
            }
            return self.left_out(exponent, raw);
        }
        if exponent.operator == Operator::None {
            return self.read_exponent(exponent, raw);
        }
        let power = self.code.declare_var(types::F64);
        let changed = self.take_bit();
        self.branch(
            changed,
            |emit| {
                let read = emit.read_exponent(exponent, raw);
                emit.code.def_var(power, read);
            },
            |emit| {
                let expected = emit.left_out(exponent, raw);
                emit.code.def_var(power, expected);
            },
        );
        self.code.use_var(power)
    }

    fn read_exponent(&mut self, field: &Field, raw: CodeBlock) -> Value {
        let unwind = self.unwind;
        let Some(int) = Int::of_any(field) else { return self.left_out(field, raw) };
        let mut value = self.read_entity(unwind, true, None);
        if field.optional {
            // Zero is absence, and one stands for zero. What is above has no power in the table.
            let absent = self.code.ins().icmp_imm_s(IntCC::Equal, value, 0);
            self.unless(absent, |emit| {
                if field.operator == Operator::Copy {
                    let empty = emit.constant(EMPTY_WORD as i64);
                    emit.set_slot(&int, empty);
                }
                emit.code.ins().jump(raw, &[]);
            });
            let above = self.code.ins().icmp_imm_s(IntCC::SignedGreaterThan, value, 0);
            let above = self.code.ins().uextend(types::I64, above);
            value = self.code.ins().isub(value, above);
        }
        if field.operator == Operator::Copy {
            self.set_slot(&int, value);
        }
        self.power_of(value)
    }
}

/// The decimal that a number is written as, which has not the expected exponent: exponent and
/// mantissa; 0 if there is none. What is none of the expected exponents says that there is no
/// previous one.
unsafe extern "C" fn any_decimal(bits: u64, single: u64, expected: i64, initial: i64, words: *mut [i64; 2]) -> u64 {
    let hint = if (-MOST..=MOST).contains(&expected) { expected } else { initial };
    match decompose(bits, single != 0, Some(hint)) {
        Some(decimal) => {
            // SAFETY: machine code gives two words.
            unsafe { *words = decimal.into() };
            1
        }
        None => 0,
    }
}
