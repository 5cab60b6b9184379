//! Slots and locals: emits their operations, for both directions. `jit/ops.rs` calls it. The code
//! touches the state only.
//!
//! In the general function, slots and locals are in memory, where the interpreter accesses them
//! too. In a direct function, locals are registers, and slots have no tags: reserved words mean
//! that there is no value (`jit/stream/slots.rs`).

use core::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};

use super::{
    emit::{Accumulator, Emit},
    join::LocalFact,
    scalars::holds,
};
use crate::{
    layout::Scalar,
    program::{
        Arithmetic, Operand, SlotOp, State,
        interp::HOST,
        state::{EMPTY, cut, specialised::EMPTY_WORD},
    },
};

impl Emit<'_, '_> {
    /// Emits an operation on a slot or local.
    pub(super) fn slot_op(&mut self, op: SlotOp) {
        match op {
            SlotOp::LoadSlot { slot, scalar, initial } => self.load_slot(slot, scalar, initial),
            SlotOp::StoreSlot { slot, kind } => self.store_slot(slot, kind),
            SlotOp::EmptySlot(slot) => self.empty_slot(slot),
            SlotOp::SlotState(slot) => {
                let state = self.slot_state(slot);
                self.set(state, Scalar::U64);
            }
            SlotOp::SlotHas { slot, kind, initial } => {
                let has = self.slot_has((slot, kind), initial);
                let has = self.code.ins().uextend(types::I64, has);
                self.set(has, Scalar::Bool);
            }
            SlotOp::LoadLocal(index, scalar) => {
                let value = self.local(index, scalar);
                self.set(value, scalar);
                if let (true, Some(from)) = (self.direct, self.facts[usize::from(index)].from)
                    && let Some(accumulator) = self.accumulator.as_mut().filter(|_| holds(scalar, from))
                {
                    accumulator.from = from;
                }
            }
            SlotOp::StoreLocal(index) => {
                let Accumulator { value, from, .. } = self.accumulator();
                if self.direct {
                    let constant = self.constant_of(value);
                    self.set_local(index, value, LocalFact { from: Some(from), constant });
                } else {
                    self.store(value, self.state(), local_offset(index));
                }
            }
            SlotOp::Compute(arithmetic, operand) => self.compute(arithmetic, operand),
            SlotOp::Forget { except } => {
                self.assigned.clear();
                self.held = None;
                self.forget(except);
            }
        }
    }

    /// In direct code: sets a local.
    pub(super) fn set_local(&mut self, index: u8, value: Value, fact: LocalFact) {
        self.code.def_var(self.locals[usize::from(index)], value);
        self.facts[usize::from(index)] = fact;
    }

    fn compute(&mut self, arithmetic: Arithmetic, operand: Operand) {
        let Accumulator { value: first, scalar, .. } = self.accumulator();
        let second = match operand {
            Operand::Local(index) => self.local(index, scalar),
            Operand::Constant(bits) => self.constant(cut(bits, scalar) as i64),
        };
        let less = if scalar.is_signed() { IntCC::SignedLessThan } else { IntCC::UnsignedLessThan };
        let compare = |emit: &mut Self, condition| {
            let holds = emit.code.ins().icmp(condition, first, second);
            emit.code.ins().uextend(types::I64, holds)
        };
        let (value, scalar) = match arithmetic {
            Arithmetic::Add => (self.code.ins().iadd(first, second), scalar),
            Arithmetic::Subtract => (self.code.ins().isub(first, second), scalar),
            Arithmetic::Equal => (compare(self, IntCC::Equal), Scalar::Bool),
            Arithmetic::Less => (compare(self, less), Scalar::Bool),
        };
        let value = if scalar == Scalar::Bool { value } else { self.cut(value, scalar) };
        self.set(value, scalar);
    }

    /// The low bits of a word as a scalar, extended again.
    pub(super) fn cut(&mut self, value: Value, scalar: Scalar) -> Value {
        let narrow = match scalar.size() {
            1 => types::I8,
            2 => types::I16,
            4 => types::I32,
            _ => return value,
        };
        let value = self.code.ins().ireduce(narrow, value);
        match scalar.is_signed() {
            true => self.code.ins().sextend(types::I64, value),
            false => self.code.ins().uextend(types::I64, value),
        }
    }

    /// A local, cut to a scalar.
    pub(super) fn local(&mut self, index: u8, scalar: Scalar) -> Value {
        if !self.direct {
            return self.load_cut(self.state(), local_offset(index), scalar);
        }
        let value = self.code.use_var(self.locals[usize::from(index)]);
        match self.facts[usize::from(index)].from {
            Some(from) if holds(scalar, from) => value,
            _ => self.cut(value, scalar),
        }
    }

    /// A word in memory, cut to a scalar.
    fn load_cut(&mut self, base: Value, offset: i32, scalar: Scalar) -> Value {
        if HOST == crate::program::Order::Little {
            return self.load_scalar(scalar, base, offset);
        }
        let value = self.load(types::I64, base, offset);
        self.cut(value, scalar)
    }

    fn load_slot(&mut self, slot: u32, scalar: Scalar, initial: u64) {
        let (values, offset) = (self.stream().values, 8 * slot as i32);
        let known = self.direct && (self.assigned.contains(&slot) || self.slot_words(slot).reserved().is_empty());
        if known {
            let value = self.load_cut(values, offset, scalar);
            return self.set(value, scalar);
        }
        let word = self.load(types::I64, values, offset);
        let mut value = self.cut(word, scalar);
        let word_of_none = initial;
        let initial = self.constant(cut(initial, scalar) as i64);
        if self.direct {
            // A reserved word that equals the initial value needs no comparison: the word is the
            // result.
            for reserved in self.slot_words(slot).reserved().into_iter().filter(|reserved| *reserved != word_of_none) {
                let none = self.code.ins().icmp_imm_s(IntCC::Equal, word, reserved as i64);
                value = self.code.ins().select(none, initial, value);
            }
        } else {
            let tag = self.tag(slot);
            let assigned = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, tag, i64::from(EMPTY));
            value = self.code.ins().select(assigned, value, initial);
        }
        self.set(value, scalar);
    }

    fn store_slot(&mut self, slot: u32, kind: u8) {
        let (value, values) = (self.accumulator().value, self.stream().values);
        if self.direct {
            self.bail_out_if_reserved(slot);
        } else {
            self.set_tag(slot, kind);
        }
        self.store(value, values, 8 * slot as i32);
    }

    fn empty_slot(&mut self, slot: u32) {
        if !self.direct {
            return self.set_tag(slot, EMPTY);
        }
        self.assigned.retain(|assigned| *assigned != slot);
        let (empty, values) = (self.constant(EMPTY_WORD as i64), self.stream().values);
        self.store(empty, values, 8 * slot as i32);
    }

    fn slot_state(&mut self, slot: u32) -> Value {
        if !self.direct {
            return self.tag(slot);
        }
        let words = self.slot_words(slot);
        let (word, mut state) = (self.word_of(slot), self.constant(words.kind.into()));
        let tests = [(words.undefined, 0), (words.is_emptied.then_some(EMPTY_WORD), 1)];
        for (reserved, label) in tests.into_iter().filter_map(|(reserved, label)| Some((reserved?, label))) {
            let (is_so, label) =
                (self.code.ins().icmp_imm_s(IntCC::Equal, word, reserved as i64), self.constant(label));
            state = self.code.ins().select(is_so, label, state);
        }
        state
    }

    /// Tests whether a slot's value equals the accumulator.
    fn slot_has(&mut self, (slot, kind): (u32, u8), initial: Option<u64>) -> Value {
        let value = self.accumulator().value;
        if self.direct {
            self.bail_out_if_reserved(slot);
        }
        let word = self.word_of(slot);
        let mut has = self.code.ins().icmp(IntCC::Equal, word, value);
        let undefined = if self.direct {
            self.slot_words(slot)
                .undefined
                .map(|reserved| self.code.ins().icmp_imm_s(IntCC::Equal, word, reserved as i64))
        } else {
            let tag = self.tag(slot);
            let is_kind = self.code.ins().icmp_imm_s(IntCC::Equal, tag, i64::from(kind));
            has = self.code.ins().band(has, is_kind);
            Some(self.code.ins().icmp_imm_s(IntCC::Equal, tag, 0))
        };
        if let (Some(undefined), Some(initial)) = (undefined, initial) {
            let is_initial = self.code.ins().icmp_imm_s(IntCC::Equal, value, initial as i64);
            let both = self.code.ins().band(undefined, is_initial);
            has = self.code.ins().bor(has, both);
        }
        has
    }

    /// In direct code: bails out if the accumulator is a reserved word of its slot.
    fn bail_out_if_reserved(&mut self, slot: u32) {
        let Accumulator { value, from, .. } = self.accumulator();
        if from.size() < 8 {
            return;
        }
        for reserved in self.slot_words(slot).reserved() {
            let is_reserved = self.code.ins().icmp_imm_s(IntCC::Equal, value, reserved as i64);
            self.or_bail_out(is_reserved);
        }
    }

    pub(super) fn word_of(&mut self, slot: u32) -> Value {
        self.load(types::I64, self.stream().values, 8 * slot as i32)
    }

    fn tag(&mut self, slot: u32) -> Value {
        let tags = self.tags();
        self.load_scalar(Scalar::U8, tags, slot as i32)
    }

    fn set_tag(&mut self, slot: u32, tag: u8) {
        let (tags, tag) = (self.tags(), self.constant(tag.into()));
        self.store_scalar(Scalar::U8, tag, tags, slot as i32);
    }

    fn tags(&mut self) -> Value {
        self.load(types::I64, self.state(), offset_of!(State, tags_at) as i32)
    }
}

pub(super) fn local_offset(index: u8) -> i32 {
    offset_of!(State, locals) as i32 + 8 * i32::from(index)
}
