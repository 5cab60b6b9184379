//! Fallback of a direct function to the interpreter, for maps, slices of numbers, and strings that
//! are set to a default.
//!
//! [`Eligibility::fall_back`] decides which of these may fall back. They must not use bits of the
//! enclosing presence map, which are in registers, or slots that other operations use, which have
//! no tags. Their policies must refuse deviations: a report needs an offset in the whole message,
//! which the interpreter does not know here.
//!
//! `jit/decode.rs` and `jit/encode.rs` call the functions that emit the call. The interpreter then
//! touches the value, the state and the rest of the message.

use alloc::vec::Vec;

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};

use super::{
    super::{emit::Emit, join::LocalFact, shims, slots::local_offset},
    Eligibility,
};
use crate::{
    layout::Scalar,
    program::{
        Block, Bytes, BytesForm, Check, Decimal, Op, OpKind, Policy, SlotOp, StopBit, Wire, passes, state::LOCALS,
    },
};

/// True for the operations that direct functions leave to the interpreter. For all others that only
/// the interpreter has code for, a program gets no direct function.
pub(super) fn is_fallback(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Map { .. } | OpKind::SetText(..) | OpKind::Slice { .. })
}

impl Eligibility<'_> {
    /// Some(0), the number of presence bits, if an operation may fall back to the interpreter; else
    /// none.
    pub(super) fn fall_back(&mut self, op: &Op) -> Option<u32> {
        self.fall_back_op(op, false)?;
        Some(0)
    }

    fn fall_back_op(&mut self, op: &Op, in_segment: bool) -> Option<()> {
        let in_segment = match &op.kind {
            // Their effects are not limited to the operation.
            OpKind::Action(..) | OpKind::Test(_) | OpKind::Call { .. } | OpKind::Slot(SlotOp::Forget { .. }) => {
                return None;
            }
            OpKind::TakeBit | OpKind::KnownBits { .. } => in_segment.then_some(true)?,
            OpKind::Slot(op) => {
                op.slot().into_iter().for_each(|slot| self.fall_back_slot(slot));
                in_segment
            }
            OpKind::Bytes(
                Bytes::LoadSlot { slot, .. }
                | Bytes::StoreSlot { slot, .. }
                | Bytes::SlotHas { slot, .. }
                | Bytes::Part { slot, .. },
            ) => {
                self.fall_back_slot(slot.slot);
                self.fallback_bytes.insert(slot.bytes);
                in_segment
            }
            OpKind::Bytes(Bytes::Get(BytesForm { policy, .. }) | Bytes::Utf8(policy))
            | OpKind::Put(Wire::StopBit(StopBit { policy, .. }))
            | OpKind::Get(Wire::StopBit(StopBit { policy, .. }))
            | OpKind::Check(Check::Within { policy, .. })
            | OpKind::Decimal(Decimal::Join { policy, .. }) => (*policy == Policy::Reject).then_some(in_segment)?,
            OpKind::PresenceMap { policy, .. } => (*policy == Policy::Reject).then_some(true)?,
            OpKind::Bytes(Bytes::Octets { .. } | Bytes::Const(_) | Bytes::Put(_) | Bytes::Equal(_) | Bytes::Length)
            | OpKind::Get(_)
            | OpKind::Put(_)
            | OpKind::Check(_)
            | OpKind::Decimal(_)
            | OpKind::Need(_)
            | OpKind::Align(_)
            | OpKind::Run { .. }
            | OpKind::Literal(_)
            | OpKind::Load(_)
            | OpKind::Store(_)
            | OpKind::Const(..)
            | OpKind::Length(_)
            | OpKind::Index
            | OpKind::Convert(_)
            | OpKind::Text { .. }
            | OpKind::SetText(..)
            | OpKind::Bulk { .. }
            | OpKind::Slice { .. }
            | OpKind::Sequence { .. }
            | OpKind::Map { .. }
            | OpKind::IfPresent { .. }
            | OpKind::Present { .. }
            | OpKind::Clear(_)
            | OpKind::Unbox { .. }
            | OpKind::Union { .. }
            | OpKind::Select { .. }
            | OpKind::Switch { .. }
            | OpKind::If { .. }
            | OpKind::Region { .. }
            | OpKind::Members { .. }
            | OpKind::Fail(_) => in_segment,
        };
        let mut blocks: Vec<&Block> = Vec::new();
        passes::inner_blocks(&op.kind, &mut |block| blocks.push(block));
        blocks.into_iter().flat_map(|block| &block.0).try_for_each(|op| self.fall_back_op(op, in_segment))
    }

    fn fall_back_slot(&mut self, slot: u32) {
        if !self.fallback.contains(&slot) {
            self.fallback.push(slot);
        }
    }
}

impl Emit<'_, '_> {
    fn admit_fallback(&self, op: &Op) {
        if !is_fallback(&op.kind) {
            self.give_up();
        }
    }

    /// Emits a fallback of a decode operation. The arguments are the program, the operation, its
    /// frame, the accumulator and the accumulator's scalar.
    pub(in super::super) fn interpret_decode(
        &mut self,
        own: &Op,
        [program, op, frame, accumulator, scalar]: [Value; 5],
    ) {
        self.admit_fallback(own);
        let (state, here, base) = (self.state(), self.here(), self.code.use_var(self.base));
        let end = self.code.use_var(self.end);
        let end = self.code.ins().iadd(base, end);
        let arguments = [state, program, op, frame, accumulator, scalar, here, end];
        self.show_locals();
        let behind = self.call_or_bail_out(shims::decode_fallback as *const u8, &arguments);
        self.take_locals();
        self.move_to(behind);
    }

    /// Stores the locals in the state, for the interpreter.
    fn show_locals(&mut self) {
        for index in 0..LOCALS as u8 {
            let value = self.local(index, Scalar::I64);
            self.store(value, self.state(), local_offset(index));
        }
    }

    /// Loads the locals from the state.
    fn take_locals(&mut self) {
        for index in 0..LOCALS as u8 {
            let value = self.load(types::I64, self.state(), local_offset(index));
            self.set_local(index, value, LocalFact::default());
        }
    }

    /// Emits a fallback of an encode operation. The arguments are the program, the operation, its
    /// frame and the index.
    pub(in super::super) fn interpret_encode(&mut self, own: &Op, [program, op, frame, index]: [Value; 4]) {
        self.admit_fallback(own);
        let (position, capacity) = (self.position(), self.code.use_var(self.end));
        let wanted = self.code.ins().iadd_imm_s(position, self.wanted);
        let full = self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, capacity);
        self.or_bail_out(full);
        let (state, here, room) = (self.state(), self.here(), self.code.ins().isub(capacity, wanted));
        let arguments = [state, program, op, frame, index, here, room];
        self.show_locals();
        let behind = self.call_or_bail_out(shims::encode_fallback as *const u8, &arguments);
        self.take_locals();
        self.move_to(behind);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::Eligibility;
    use crate::{
        codec::{Decoder, Encoder, Options, fast::FAST},
        layout::Shape,
        program::Backend,
        schema::{Def, Member, SchemaBuilder, Type},
    };

    #[test]
    fn maps_and_structures_that_may_be_absent_need_no_context() {
        let mut types = SchemaBuilder::new();
        let point = types.add(Def::structure("Point", vec![Member::new("x", Type::Int32)]));
        let members = vec![
            Member::new("names", Type::map(Type::string(), Type::Int32)),
            Member::new("point", Type::Def(point)).as_optional(),
            Member::new("number", Type::Int32),
        ];
        let root = types.add(Def::structure("Root", members));
        let schema = types.finish(Type::Def(root)).unwrap();
        let (shape, options) = (Shape::of(&schema).unwrap(), Options::default());
        let encoder = Encoder::for_shape_with_backend(&FAST, &options, &shape, Backend::Interpreter).unwrap();
        let decoder = Decoder::for_shape_with_backend(&FAST, &options, &schema, &shape, Backend::Interpreter).unwrap();
        for executable in [encoder.executable(), decoder.executable()] {
            let eligibility = Eligibility::of(executable.program()).expect("it needs none");
            assert_eq!(eligibility.fallback.len(), 2, "the slots of the map's keys and values");
        }
    }
}
