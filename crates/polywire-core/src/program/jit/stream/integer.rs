//! Mandatory integer fields: the presence bit, entities, and what operators do with them. Whatever
//! is wrong, or unusual (an overlong entity, an undefined previous value), leaves.

use cranelift_codegen::ir::{Block as CodeBlock, InstBuilder, Value, condcodes::IntCC, types};

use super::super::emit::Emit;
use crate::{
    layout::Scalar,
    program::{
        Field, FieldKind,
        state::{Operator, integer::Functions, specialised::NO_NUMBER},
    },
};

/// An integer's type and operator, as far as it can be inlined.
#[derive(Clone, Copy)]
pub(in super::super) struct Int {
    pub signed: bool,
    /// Range, if it is narrower than 64 bits.
    pub range: Option<(i64, i64)>,
    slot: i32,
    pub operator: Operator,
    pub initial: Option<i64>,
}

impl Int {
    /// A mandatory integer; none if it cannot be inlined.
    pub(super) fn of(field: &Field) -> Option<Int> {
        Int::of_any(field).filter(|_| !field.optional)
    }

    /// The same of one that may be absent.
    pub(super) fn of_any(field: &Field) -> Option<Int> {
        let FieldKind::Int { signed, min, max } = field.kind else { return None };
        if field.operator == Operator::Tail || field.slot > 1 << 20 {
            return None;
        }
        let full = if signed { (i64::MIN.into(), i64::MAX.into()) } else { (0, i128::from(u64::MAX)) };
        let narrow = match (i64::try_from(min), i64::try_from(max)) {
            (Ok(min), Ok(max)) if i128::from(max) - i128::from(min) < 1 << 40 => Some((min, max)),
            _ if (min, max) == full => None,
            _ => return None,
        };
        let initial = match field.initial {
            Some(crate::program::state::Initial::Int(value)) => Some(value as i64),
            _ => None,
        };
        // What fits a byte fits it.
        let byte = if signed { (-64, 63) } else { (0, 127) };
        if narrow.is_some_and(|(min, max)| min > byte.0 || max < byte.1) {
            return None;
        }
        Some(Int { signed, range: narrow, slot: field.slot as i32, operator: field.operator, initial })
    }

    /// True if its range leaves words that are none of its numbers.
    pub(super) fn is_narrow(&self) -> bool {
        self.range.is_some()
    }

    /// True if its slot may have no value, which a word stands for.
    fn may_have_none(&self) -> bool {
        self.initial.is_none() && self.operator != Operator::Default
    }

    /// True for the number that no other is one less than, as words go.
    pub(super) fn is_least(&self, word: u64) -> bool {
        self.range.is_none() && word == if self.signed { i64::MIN as u64 } else { 0 }
    }

    /// The type of its range, if it is that of one that is narrower than 64 bits.
    fn narrow(&self) -> Option<Scalar> {
        let (min, max) = self.range?;
        let types = [Scalar::U8, Scalar::I8, Scalar::U16, Scalar::I16, Scalar::U32, Scalar::I32];
        types.into_iter().find(|scalar| scalar.range() == Some((min.into(), max.into())))
    }

    /// True if any number of a type is within its range.
    pub(super) fn holds(&self, from: Scalar) -> bool {
        let (Some((low, high)), Some((min, max))) = (from.range(), self.range) else { return self.range.is_none() };
        i128::from(min) <= low && high <= i128::from(max)
    }
}

impl Emit<'_, '_> {
    pub(super) fn slot_value(&mut self, int: &Int) -> Value {
        let values = self.stream().values;
        self.load(types::I64, values, 8 * int.slot)
    }

    pub(super) fn set_slot(&mut self, int: &Int, value: Value) {
        let values = self.stream().values;
        self.store(value, values, 8 * int.slot);
    }

    /// Leaves if a value is none of the type.
    pub(super) fn within(&mut self, slow: CodeBlock, int: &Int, value: Value) {
        if let Some((min, max)) = int.range {
            let outside = self.outside(value, min, max);
            self.or_else(outside, slow);
        }
    }

    /// Leaves if a long number is the word that stands for none in its slot, or the one behind it.
    pub(super) fn not_reserved(&mut self, slow: CodeBlock, int: &Int, value: Value, reserved: u64) {
        if !int.is_narrow() {
            let distance = self.code.ins().iadd_imm_s(value, (reserved as i64).wrapping_neg());
            let near = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThanOrEqual, distance, 1);
            self.or_else(near, slow);
        }
    }

    /// One more than the previous value; leaves at the largest.
    pub(super) fn incremented(&mut self, slow: CodeBlock, int: &Int) -> Value {
        let previous = self.slot_value(int);
        let largest = match int.range {
            Some((_, max)) => max,
            None if int.signed => i64::MAX,
            None => -1,
        };
        let last = self.code.ins().icmp_imm_s(IntCC::Equal, previous, largest);
        self.or_else(last, slow);
        self.code.ins().iadd_imm_s(previous, 1)
    }

    /// Leaves if a sum (of a base and a difference) or difference is not what it is without a limit
    /// of 64 bits.
    pub(super) fn wrapped(&mut self, slow: CodeBlock, int: &Int, base: Value, delta: Value, sum: Value) {
        if int.range.is_some() {
            return;
        }
        let wrong = if int.signed {
            self.overflows(base, delta, sum)
        } else {
            let below = self.code.ins().icmp(IntCC::UnsignedLessThan, sum, base);
            let negative = self.code.ins().icmp_imm_s(IntCC::SignedLessThan, delta, 0);
            self.code.ins().bxor(below, negative)
        };
        self.or_else(wrong, slow);
    }

    /// 1 if the sum of two signed integers is out of 64 bits.
    pub(in super::super) fn overflows(&mut self, base: Value, delta: Value, sum: Value) -> Value {
        let (a, b) = (self.code.ins().bxor(base, sum), self.code.ins().bxor(delta, sum));
        let both = self.code.ins().band(a, b);
        self.code.ins().icmp_imm_s(IntCC::SignedLessThan, both, 0)
    }

    /// Accumulator from a mandatory integer.
    pub(in super::super) fn decode_int(&mut self, field: &Field) {
        let (unwind, Some(int)) = (self.unwind, Int::of(field)) else { return };
        let value = match int.operator {
            Operator::Constant => self.constant(int.initial.unwrap_or(0)),
            Operator::None => self.read_entity(unwind, int.signed, int.range),
            Operator::Delta => {
                let base = self.slot_value(&int);
                let delta = self.read_entity(unwind, true, None);
                let sum = self.code.ins().iadd(base, delta);
                self.wrapped(unwind, &int, base, delta, sum);
                self.within(unwind, &int, sum);
                self.set_slot(&int, sum);
                sum
            }
            _ => self.decode_with_bit(&int),
        };
        self.set(value, field.scalar());
        if let (Some(accumulator), Some(narrow)) = (&mut self.accumulator, int.narrow()) {
            accumulator.from = narrow;
        }
    }

    fn decode_with_bit(&mut self, int: &Int) -> Value {
        let (bit, value) = (self.take_bit(), self.code.declare_var(types::I64));
        let (there, left_out, done) = (self.code.create_block(), self.code.create_block(), self.code.create_block());
        self.code.ins().brif(bit, there, &[], left_out, &[]);
        self.code.switch_to_block(there);
        let sent = self.sent(int);
        self.code.def_var(value, sent);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(left_out);
        let known = self.left_out_int(int);
        self.code.def_var(value, known);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
        self.code.use_var(value)
    }

    /// A value that is in the stream.
    fn sent(&mut self, int: &Int) -> Value {
        let unwind = self.unwind;
        let value = self.read_entity(unwind, int.signed, int.range);
        if int.may_have_none() {
            self.not_reserved(unwind, int, value, NO_NUMBER);
        }
        if int.operator != Operator::Default {
            self.set_slot(int, value);
        }
        value
    }

    /// A value that the stream has nothing for.
    fn left_out_int(&mut self, int: &Int) -> Value {
        let unwind = self.unwind;
        let value = match int.operator {
            Operator::Default => self.constant(int.initial.unwrap_or(0)),
            Operator::Increment => {
                let value = self.incremented(unwind, int);
                self.set_slot(int, value);
                value
            }
            _ => self.slot_value(int),
        };
        // Where there may be no value, that is none of its numbers.
        if int.may_have_none() {
            self.within(unwind, int, value);
            self.not_reserved(unwind, int, value, NO_NUMBER);
        }
        value
    }

    /// An entity of up to ten bytes, moving past it; leaves if it is none of a type.
    pub(in super::super) fn read_entity(&mut self, slow: CodeBlock, signed: bool, range: Option<(i64, i64)>) -> Value {
        let (end, position) = (self.code.use_var(self.end), self.position());
        let none = self.code.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, position, end);
        self.or_else(none, slow);
        let here = self.here();
        let value = self.code.declare_var(types::I64);
        let byte = self.load_scalar(if signed { Scalar::I8 } else { Scalar::U8 }, here, 0);
        let first = match signed {
            // The six bits below the sign, which is bit 6.
            true => {
                let shift = self.constant(57);
                let up = self.code.ins().ishl(byte, shift);
                self.code.ins().sshr(up, shift)
            }
            false => self.code.ins().band_imm_s(byte, 0x7F),
        };
        self.code.def_var(value, first);
        let next = self.code.ins().iadd_imm_s(position, 1);
        self.code.def_var(self.position, next);
        let long = match signed {
            true => self.code.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, byte, 0),
            false => self.code.ins().icmp_imm_s(IntCC::UnsignedLessThanOrEqual, byte, 0x7F),
        };
        let (longer, done) = (self.cold(), self.code.create_block());
        self.code.ins().brif(long, longer, &[], done, &[]);
        self.code.switch_to_block(longer);
        let was_rare = core::mem::replace(&mut self.rare, true);
        let base = self.code.use_var(self.base);
        let (last, word) = (self.code.ins().iadd(base, end), self.word());
        let functions = Functions::of_machine();
        let function = if signed { functions.read_signed } else { functions.read_unsigned };
        let behind = self.call(function, &[here, last, word], Some(types::I64)).expect("it returns an address");
        let odd = self.code.ins().icmp_imm_s(IntCC::Equal, behind, 0);
        self.or_else(odd, slow);
        let read = self.load_word(0);
        self.code.def_var(value, read);
        self.move_to(behind);
        // What fits a byte fits any integer.
        if let Some((min, max)) = range {
            let outside = self.outside(read, min, max);
            self.or_else(outside, slow);
        }
        self.rare = was_rare;
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
        self.code.use_var(value)
    }

    /// A mandatory integer from the accumulator.
    pub(in super::super) fn encode_int(&mut self, field: &Field, value: Value) {
        let (unwind, Some(int)) = (self.unwind, Int::of(field)) else { return };
        if int.operator == Operator::Constant {
            let other = self.code.ins().icmp_imm_s(IntCC::NotEqual, value, int.initial.unwrap_or(0));
            return self.or_else(other, unwind);
        }
        if !int.holds(self.accumulator().from) {
            self.within(unwind, &int, value);
        }
        match int.operator {
            Operator::None => self.write_entity(int.signed, value),
            Operator::Delta => {
                let base = self.slot_value(&int);
                let delta = self.code.ins().isub(value, base);
                self.wrapped(unwind, &int, base, delta, value);
                self.set_slot(&int, value);
                self.write_entity(true, delta);
            }
            _ => self.encode_with_bit(&int, value),
        }
    }

    fn encode_with_bit(&mut self, int: &Int, value: Value) {
        let unwind = self.unwind;
        if int.may_have_none() {
            self.not_reserved(unwind, int, value, NO_NUMBER);
        }
        let expected = match int.operator {
            Operator::Default => self.constant(int.initial.unwrap_or(0)),
            Operator::Increment => self.incremented(unwind, int),
            _ => self.slot_value(int),
        };
        let differs = self.code.ins().icmp(IntCC::NotEqual, value, expected);
        let bit = self.next_bit();
        if int.operator != Operator::Default {
            self.set_slot(int, value);
        }
        let (there, done) = (self.code.create_block(), self.code.create_block());
        self.code.ins().brif(differs, there, &[], done, &[]);
        self.code.switch_to_block(there);
        self.set_bit(bit);
        self.write_entity(int.signed, value);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
    }

    /// An entity; there is room for it.
    pub(in super::super) fn write_entity(&mut self, signed: bool, value: Value) {
        let (here, position) = (self.here(), self.position());
        let short = if signed {
            let biased = self.code.ins().iadd_imm_s(value, 64);
            self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, biased, 128)
        } else {
            self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, value, 128)
        };
        let (one, more, done) = (self.code.create_block(), self.cold(), self.code.create_block());
        self.code.ins().brif(short, one, &[], more, &[]);
        self.code.switch_to_block(one);
        let byte = self.code.ins().bor_imm_s(value, 0x80);
        self.store_scalar(Scalar::U8, byte, here, 0);
        let next = self.code.ins().iadd_imm_s(position, 1);
        self.code.def_var(self.position, next);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(more);
        let functions = Functions::of_machine();
        let function = if signed { functions.write_signed } else { functions.write_unsigned };
        let behind = self.call(function, &[here, value], Some(types::I64)).expect("it returns an address");
        self.move_to(behind);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
    }

    /// Moves the position to an address. What is called gives that rather than a distance, so that
    /// no position has to outlive the call.
    pub(super) fn move_to(&mut self, address: Value) {
        let base = self.code.use_var(self.base);
        let position = self.code.ins().isub(address, base);
        self.code.def_var(self.position, position);
    }
}
