//! Mandatory integer fields inline: the presence bit, entities of one byte, and what operators do with them. Everything that is rare (an
//! entity of more than eight bytes, an undefined previous value, the end of a word of the presence map, whatever is wrong) is left to the
//! functions that both back ends share, from the field's beginning.

use cranelift_codegen::ir::{Block as CodeBlock, InstBuilder, Value, condcodes::IntCC, types};
use cranelift_frontend::Variable;

use super::emit::{Emit, Stream};
use crate::{
    layout::Scalar,
    program::{
        Field, FieldKind, Op,
        state::{
            Operator,
            integer::{read_signed, read_unsigned, write_signed, write_unsigned},
        },
    },
};

/// Bytes that any integer of 64 bits fits.
const LONGEST: i64 = 10;

/// Bits of a word of the presence map, when it is written.
const MAP_BITS: i64 = 56;

/// An integer's type and operator, as far as it can be inlined.
#[derive(Clone, Copy)]
struct Int {
    signed: bool,
    /// Range, if it is narrower than 64 bits.
    range: Option<(i64, i64)>,
    slot: i32,
    tag: i64,
    operator: Operator,
    initial: Option<i64>,
}

impl Int {
    fn of(field: &Field) -> Option<Int> {
        let FieldKind::Int { signed, min, max } = field.kind else { return None };
        if field.optional || field.operator == Operator::Tail || field.slot > 1 << 20 {
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
        let (slot, tag) = (field.slot as i32, i64::from(field.tag));
        Some(Int { signed, range: narrow, slot, tag, operator: field.operator, initial })
    }
}

/// A field being made: where it goes when it is done, and when it must be left to others.
struct Parts {
    stream: Stream,
    /// The presence map and the position when it began.
    map: Value,
    position: Value,
    value: Variable,
    done: CodeBlock,
    slow: CodeBlock,
}

impl Emit<'_, '_> {
    fn parts(&mut self) -> Option<Parts> {
        let stream = self.stream?;
        let (map, position) = (self.code.use_var(stream.map), self.position());
        let value = self.code.declare_var(types::I64);
        let (done, slow) = (self.code.create_block(), self.cold());
        Some(Parts { stream, map, position, value, done, slow })
    }

    /// Goes on from the beginning, where others take over.
    fn start_over(&mut self, parts: &Parts) {
        self.code.switch_to_block(parts.slow);
        self.code.def_var(parts.stream.map, parts.map);
        self.code.def_var(self.position, parts.position);
    }

    fn finish(&mut self, parts: &Parts) {
        self.code.ins().jump(parts.done, &[]);
        self.code.switch_to_block(parts.done);
    }

    /// Goes to `block` if `condition` is not zero.
    fn leave_if(&mut self, condition: Value, block: CodeBlock) {
        let go_on = self.code.create_block();
        self.code.ins().brif(condition, block, &[], go_on, &[]);
        self.code.switch_to_block(go_on);
    }

    fn slot_value(&mut self, parts: &Parts, int: &Int) -> Value {
        self.load(types::I64, parts.stream.values, 8 * int.slot)
    }

    fn set_slot(&mut self, parts: &Parts, int: &Int, value: Value) {
        self.store(value, parts.stream.values, 8 * int.slot);
    }

    fn set_tag(&mut self, parts: &Parts, int: &Int) {
        let tag = self.constant(int.tag);
        self.store_scalar(Scalar::U8, tag, parts.stream.tags, int.slot);
    }

    /// Leaves if the slot has no value of the type.
    fn assigned(&mut self, parts: &Parts, int: &Int) {
        let tag = self.load_scalar(Scalar::U8, parts.stream.tags, int.slot);
        let other = self.code.ins().icmp_imm_s(IntCC::NotEqual, tag, int.tag);
        self.leave_if(other, parts.slow);
    }

    /// Leaves if a value is none of the type.
    fn within(&mut self, parts: &Parts, int: &Int, value: Value) {
        if let Some((min, max)) = int.range {
            let outside = self.outside(value, min, max);
            self.leave_if(outside, parts.slow);
        }
    }

    /// One more than the previous value; leaves at the largest.
    fn incremented(&mut self, parts: &Parts, int: &Int) -> Value {
        let previous = self.slot_value(parts, int);
        let largest = match int.range {
            Some((_, max)) => max,
            None if int.signed => i64::MAX,
            None => -1,
        };
        let last = self.code.ins().icmp_imm_s(IntCC::Equal, previous, largest);
        self.leave_if(last, parts.slow);
        self.code.ins().iadd_imm_s(previous, 1)
    }

    /// Leaves if a sum (of a base and a difference) or difference is not what it is without a limit of 64 bits.
    fn wrapped(&mut self, parts: &Parts, int: &Int, base: Value, delta: Value, sum: Value) {
        if int.range.is_some() {
            return;
        }
        let wrong = if int.signed {
            let (a, b) = (self.code.ins().bxor(base, sum), self.code.ins().bxor(delta, sum));
            let both = self.code.ins().band(a, b);
            self.code.ins().icmp_imm_s(IntCC::SignedLessThan, both, 0)
        } else {
            let below = self.code.ins().icmp(IntCC::UnsignedLessThan, sum, base);
            let negative = self.code.ins().icmp_imm_s(IntCC::SignedLessThan, delta, 0);
            self.code.ins().bxor(below, negative)
        };
        self.leave_if(wrong, parts.slow);
    }

    /// Accumulator from a mandatory integer; false if it is none that can be inlined.
    pub(super) fn decode_int(&mut self, op: &Op, field: &Field) -> bool {
        let Some((int, parts)) = Int::of(field).and_then(|int| Some((int, self.parts()?))) else { return false };
        match (int.operator, int.initial) {
            (Operator::Constant, initial) => {
                let value = self.constant(initial.unwrap_or(0));
                self.code.def_var(parts.value, value);
            }
            (Operator::None, _) => {
                let value = self.read_entity(&parts, int.signed);
                self.within(&parts, &int, value);
                self.code.def_var(parts.value, value);
            }
            (Operator::Delta, _) => {
                self.assigned(&parts, &int);
                let base = self.slot_value(&parts, &int);
                let delta = self.read_entity(&parts, true);
                let sum = self.code.ins().iadd(base, delta);
                self.wrapped(&parts, &int, base, delta, sum);
                self.within(&parts, &int, sum);
                self.set_slot(&parts, &int, sum);
                self.code.def_var(parts.value, sum);
            }
            _ => self.decode_with_bit(&parts, &int),
        }
        self.code.ins().jump(parts.done, &[]);
        self.start_over(&parts);
        self.decode_field_slowly(op, field);
        let value = self.accumulator().value;
        self.code.def_var(parts.value, value);
        self.finish(&parts);
        let value = self.code.use_var(parts.value);
        self.set(value, field.scalar());
        true
    }

    fn decode_with_bit(&mut self, parts: &Parts, int: &Int) {
        let one = self.constant(1);
        let rest = self.code.ins().ishl(parts.map, one);
        let over = self.code.ins().icmp_imm_s(IntCC::Equal, rest, 0);
        self.leave_if(over, parts.slow);
        self.code.def_var(parts.stream.map, rest);
        let bit = self.code.ins().icmp_imm_s(IntCC::SignedLessThan, parts.map, 0);
        let (there, left_out) = (self.code.create_block(), self.code.create_block());
        self.code.ins().brif(bit, there, &[], left_out, &[]);
        self.code.switch_to_block(there);
        let value = self.read_entity(parts, int.signed);
        self.within(parts, int, value);
        if int.operator != Operator::Default {
            self.set_slot(parts, int, value);
            self.set_tag(parts, int);
        }
        self.code.def_var(parts.value, value);
        self.code.ins().jump(parts.done, &[]);
        self.code.switch_to_block(left_out);
        let value = match int.operator {
            Operator::Default => self.constant(int.initial.unwrap_or(0)),
            Operator::Increment => {
                self.assigned(parts, int);
                let value = self.incremented(parts, int);
                self.set_slot(parts, int, value);
                value
            }
            _ => {
                self.assigned(parts, int);
                self.slot_value(parts, int)
            }
        };
        self.code.def_var(parts.value, value);
    }

    /// An entity of up to eight bytes, moving past it.
    fn read_entity(&mut self, parts: &Parts, signed: bool) -> Value {
        let (end, position) = (self.code.use_var(self.end), self.position());
        let none = self.code.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, position, end);
        self.leave_if(none, parts.slow);
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
        let stop = self.code.ins().band_imm_s(byte, 0x80);
        let long = self.code.ins().icmp_imm_s(IntCC::Equal, stop, 0);
        let (longer, done) = (self.code.create_block(), self.code.create_block());
        self.code.ins().brif(long, longer, &[], done, &[]);
        self.code.switch_to_block(longer);
        let left = self.code.ins().isub(end, position);
        let word = self.word();
        let function = if signed { read_signed as *const u8 } else { read_unsigned as *const u8 };
        let count = self.call(function, &[here, left, word], Some(types::I64)).expect("it returns a word");
        let odd = self.code.ins().icmp_imm_s(IntCC::Equal, count, 0);
        self.leave_if(odd, parts.slow);
        let read = self.load_word(0);
        self.code.def_var(value, read);
        let next = self.code.ins().iadd(position, count);
        self.code.def_var(self.position, next);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
        self.code.use_var(value)
    }

    /// A mandatory integer from the accumulator; false if it is none that can be inlined.
    pub(super) fn encode_int(&mut self, op: &Op, field: &Field, value: Value) -> bool {
        let Some((int, parts)) = Int::of(field).and_then(|int| Some((int, self.parts()?))) else { return false };
        if int.operator == Operator::Constant {
            let other = self.code.ins().icmp_imm_s(IntCC::NotEqual, value, int.initial.unwrap_or(0));
            self.leave_if(other, parts.slow);
        } else {
            // Room for the entity is made sure of before anything changes.
            let (capacity, position) = (self.code.use_var(self.end), self.position());
            let wanted = self.code.ins().iadd_imm_s(position, LONGEST);
            let full = self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, capacity);
            self.leave_if(full, parts.slow);
            self.within(&parts, &int, value);
        }
        match int.operator {
            Operator::Constant => {}
            Operator::None => self.write_entity(int.signed, value),
            Operator::Delta => {
                self.assigned(&parts, &int);
                let base = self.slot_value(&parts, &int);
                let delta = self.code.ins().isub(value, base);
                self.wrapped(&parts, &int, base, delta, value);
                self.set_slot(&parts, &int, value);
                self.write_entity(true, delta);
            }
            _ => self.encode_with_bit(&parts, &int, value),
        }
        self.code.ins().jump(parts.done, &[]);
        self.start_over(&parts);
        self.encode_field_slowly(op, field, value);
        self.finish(&parts);
        true
    }

    fn encode_with_bit(&mut self, parts: &Parts, int: &Int, value: Value) {
        let expected = match int.operator {
            Operator::Default => self.constant(int.initial.unwrap_or(0)),
            Operator::Increment => {
                self.assigned(parts, int);
                self.incremented(parts, int)
            }
            _ => {
                self.assigned(parts, int);
                self.slot_value(parts, int)
            }
        };
        let differs = self.code.ins().icmp(IntCC::NotEqual, value, expected);
        let bit = self.code.ins().uextend(types::I64, differs);
        let one = self.constant(1);
        let up = self.code.ins().ishl(parts.map, one);
        let map = self.code.ins().bor(up, bit);
        // A full word has to be written, which is not done here.
        let bits = self.constant(MAP_BITS);
        let full = self.code.ins().ushr(map, bits);
        self.leave_if(full, parts.slow);
        self.code.def_var(parts.stream.map, map);
        if int.operator != Operator::Default {
            self.set_slot(parts, int, value);
        }
        let there = self.code.create_block();
        self.code.ins().brif(differs, there, &[], parts.done, &[]);
        self.code.switch_to_block(there);
        self.write_entity(int.signed, value);
    }

    /// An entity; there is room for it.
    fn write_entity(&mut self, signed: bool, value: Value) {
        let (here, position) = (self.here(), self.position());
        let short = if signed {
            let biased = self.code.ins().iadd_imm_s(value, 64);
            self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, biased, 128)
        } else {
            self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, value, 128)
        };
        let (one, more, done) = (self.code.create_block(), self.code.create_block(), self.code.create_block());
        self.code.ins().brif(short, one, &[], more, &[]);
        self.code.switch_to_block(one);
        let byte = self.code.ins().bor_imm_s(value, 0x80);
        self.store_scalar(Scalar::U8, byte, here, 0);
        let next = self.code.ins().iadd_imm_s(position, 1);
        self.code.def_var(self.position, next);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(more);
        let function = if signed { write_signed as *const u8 } else { write_unsigned as *const u8 };
        let count = self.call(function, &[here, value], Some(types::I64)).expect("it returns a word");
        let next = self.code.ins().iadd(position, count);
        self.code.def_var(self.position, next);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
    }
}
