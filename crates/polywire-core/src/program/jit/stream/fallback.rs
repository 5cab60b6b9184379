//! What is left to the interpreter: operations that are rare and long, as maps are, and numbers
//! whose operators are not made here. Their fields take no bits of what is around them, and are
//! refused unless they are as they should be: what is reported has its place in the whole message.

use alloc::vec::Vec;

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC};

use super::{
    super::{emit::Emit, shims},
    Eligibility, Second, decimal,
};
use crate::program::{
    Block, Field, FieldKind, Op, OpKind, Policy, TextForm, Wire, passes,
    state::{SEGMENT, policy},
};

impl Eligibility<'_> {
    /// The bits of an operation that the interpreter can do, which are none.
    pub(super) fn fall_back(&mut self, op: &Op) -> Option<u32> {
        self.fall_back_op(op, false)?;
        Some(0)
    }

    fn fall_back_op(&mut self, op: &Op, in_segment: bool) -> Option<()> {
        if let Some(field) = field(&op.kind) {
            (in_segment || field.bits() == 0).then_some(())?;
            self.fall_back_slots(field)?;
        }
        let in_segment = match &op.kind {
            // What they do is not only their own.
            OpKind::Action(..) | OpKind::Test(_) | OpKind::Call { .. } => return None,
            OpKind::Region { dialect, argument, .. } if core::ptr::eq(*dialect, &SEGMENT) => {
                (policy(*argument) == Policy::Reject).then_some(true)?
            }
            _ => in_segment,
        };
        let mut blocks: Vec<&Block> = Vec::new();
        passes::inner_blocks(&op.kind, &mut |block| blocks.push(block));
        blocks.into_iter().flat_map(|block| &block.0).try_for_each(|op| self.fall_back_op(op, in_segment))
    }

    /// The bits of a number that the interpreter can do, which are none.
    pub(super) fn fall_back_field(&mut self, field: &Field) -> Option<u32> {
        (field.bits() == 0).then_some(())?;
        self.fall_back_slots(field)?;
        Some(0)
    }

    /// Notes the slots of a field that is left to the interpreter.
    fn fall_back_slots(&mut self, field: &Field) -> Option<()> {
        let mut policy = field.policy;
        field.each(&mut |part| {
            if part.policy != Policy::Reject {
                policy = part.policy;
            }
            if part.has_slot() {
                self.fallback.push(part.slot);
                self.fallback_seconds.extend(Second::of(part));
            }
        });
        (policy == Policy::Reject).then_some(())
    }
}

/// True for a number whose operators are not made here: a floating-point number with one operator
/// for exponent and mantissa, or one that has no power of ten to expect; an integer that is a
/// decimal on the wire.
pub(super) fn is_left_to_interpreter(field: &Field) -> bool {
    match &field.kind {
        FieldKind::Float { .. } => decimal::parts(field).is_none(),
        FieldKind::Whole(_) => true,
        _ => false,
    }
}

/// The field that an operation reads or writes.
fn field(kind: &OpKind) -> Option<&Field> {
    match kind {
        OpKind::Put(Wire::Field(field)) | OpKind::Get(Wire::Field(field)) => Some(field),
        OpKind::TestField(field) | OpKind::PutField { field, .. } => Some(field),
        OpKind::Text { form: TextForm::Field(field), .. } | OpKind::Octets { field: Some(field), .. } => Some(field),
        _ => None,
    }
}

impl Emit<'_, '_> {
    /// Has the interpreter do an operation, of which are given program, address, frame, accumulator
    /// and the accumulator's scalar.
    pub(in super::super) fn lend_decode(&mut self, [program, op, frame, accumulator, scalar]: [Value; 5]) {
        let (state, here, base) = (self.state(), self.here(), self.code.use_var(self.base));
        let end = self.code.use_var(self.end);
        let end = self.code.ins().iadd(base, end);
        let arguments = [state, program, op, frame, accumulator, scalar, here, end];
        let behind = self.call_or_leave(shims::decode_fallback as *const u8, &arguments);
        self.move_to(behind);
    }

    /// The same of program, address, frame and index.
    pub(in super::super) fn lend_encode(&mut self, [program, op, frame, index]: [Value; 4]) {
        let room = self.room_beside();
        let (state, here) = (self.state(), self.here());
        let arguments = [state, program, op, frame, index, here, room];
        let behind = self.call_or_leave(shims::encode_fallback as *const u8, &arguments);
        self.move_to(behind);
    }

    /// Accumulator from a number that must be there, which the interpreter reads.
    pub(super) fn lend_get(&mut self, field: &Field) {
        let (state, address, here, word) = (self.state(), self.address(field), self.here(), self.word());
        let (base, end) = (self.code.use_var(self.base), self.code.use_var(self.end));
        let end = self.code.ins().iadd(base, end);
        let arguments = [state, address, here, end, word];
        let behind = self.call_or_leave(shims::get_field_fallback as *const u8, &arguments);
        let value = self.load_word(0);
        self.set(value, field.scalar());
        self.move_to(behind);
    }

    /// A number that the interpreter writes.
    pub(super) fn lend_put(&mut self, field: &Field, value: Value) {
        let room = self.room_beside();
        let (state, address, here) = (self.state(), self.address(field), self.here());
        let arguments = [state, address, value, here, room];
        let behind = self.call_or_leave(shims::put_field_fallback as *const u8, &arguments);
        self.move_to(behind);
    }

    /// The room that is left beside that for all that is of known size; leaves if there is none.
    fn room_beside(&mut self) -> Value {
        let (unwind, position, capacity) = (self.unwind, self.position(), self.code.use_var(self.end));
        let wanted = self.code.ins().iadd_imm_s(position, self.room_wanted);
        let full = self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, capacity);
        self.or_else(full, unwind);
        self.code.ins().isub(capacity, wanted)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::Eligibility;
    use crate::{
        codec::{
            Decoder, Encoder, Options,
            fast::{FAST, Fast, template::TemplateSet},
        },
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

    #[test]
    fn numbers_with_other_operators_need_no_context() {
        let mut types = SchemaBuilder::new();
        let members = vec![Member::new("a", Type::Float64), Member::new("b", Type::Int64)];
        let root = types.add(Def::structure("T", members));
        let schema = types.finish(Type::Def(root)).unwrap();
        let shape = Shape::of(&schema).unwrap();
        let slots = |inside: &str, options: &str| {
            let xml = alloc::format!("<templates><template name='T' id='1'>{inside}</template></templates>");
            let codec = Fast::new(TemplateSet::parse(&xml).unwrap());
            let options: Options = options.parse().unwrap();
            let encoder = Encoder::for_shape_with_backend(&codec, &options, &shape, Backend::Interpreter).unwrap();
            Eligibility::of(encoder.executable().program()).map(|eligibility| eligibility.fallback.len())
        };
        let both = "<decimal name='a'><delta/></decimal><decimal name='b'/>";
        assert_eq!(slots(both, ""), Some(1), "the slot of the first");
        assert_eq!(slots(both, "deviations=report"), None, "what is reported has its place in the message");
        let with_bit = "<decimal name='a'><copy/></decimal><decimal name='b'/>";
        assert_eq!(slots(with_bit, ""), None, "its bit is one of the message's");
    }
}
