//! Slots and locals of the state. Where there is a context, both are in memory, where the
//! interpreter finds them, too; without one, locals are registers, and there are no slots.

use core::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};

use super::emit::Emit;
use crate::{
    layout::Scalar,
    program::{
        Arithmetic, OpKind, State,
        state::{ASSIGNED, EMPTY},
    },
};

impl Emit<'_, '_> {
    /// Emits an operation on a slot or local.
    pub(super) fn slot_op(&mut self, kind: &OpKind) {
        match kind {
            OpKind::LoadSlot(slot, scalar) => {
                let (value, tag, zero) = (self.value_of(*slot), self.tag(*slot), self.constant(0));
                let assigned = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, tag, i64::from(EMPTY));
                let value = self.code.ins().select(assigned, value, zero);
                self.set(value, *scalar);
            }
            OpKind::StoreSlot(slot) => {
                let (value, values) = (self.accumulator().value, self.stream().values);
                self.store(value, values, 8 * *slot as i32);
                self.set_tag(*slot, ASSIGNED);
            }
            OpKind::EmptySlot(slot) => self.set_tag(*slot, EMPTY),
            OpKind::SlotState(slot) => {
                // Of all tags of values it makes one.
                let (tag, assigned) = (self.tag(*slot), self.constant(ASSIGNED.into()));
                let state = self.code.ins().umin(tag, assigned);
                self.set(state, Scalar::U64);
            }
            OpKind::LoadLocal(index, scalar) => {
                let value = self.local(*index);
                self.set(value, *scalar);
            }
            OpKind::StoreLocal(index) => {
                let value = self.accumulator().value;
                if self.direct {
                    self.code.def_var(self.locals[usize::from(*index)], value);
                } else {
                    self.store(value, self.state(), local_offset(*index));
                }
            }
            OpKind::Compute(arithmetic, index) => self.compute(*arithmetic, *index),
            OpKind::Forget { except } => self.forget(*except),
            _ => unreachable!("only called for these"),
        }
    }

    fn compute(&mut self, arithmetic: Arithmetic, index: u8) {
        let (first, scalar, second) = (self.accumulator().value, self.accumulator().scalar, self.local(index));
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
        self.set(value, scalar);
    }

    fn local(&mut self, index: u8) -> Value {
        match self.direct {
            true => self.code.use_var(self.locals[usize::from(index)]),
            false => self.load(types::I64, self.state(), local_offset(index)),
        }
    }

    fn value_of(&mut self, slot: u32) -> Value {
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

fn local_offset(index: u8) -> i32 {
    offset_of!(State, locals) as i32 + 8 * i32::from(index)
}
