//! Strings.

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};

use crate::{
    layout::{Kind, Scalar},
    program::{
        Op, Place, TextForm,
        jit::{
            emit::{Emit, flags},
            shims,
        },
    },
};

impl<'e> Emit<'e, '_> {
    pub(super) fn decode_text(&mut self, op: &'e Op, place: Place, form: &'e TextForm, bound: u32, frame: Value) {
        let target = self.place(place, frame).map(|(base, offset, node)| {
            let words = match &self.layout().node(node).kind {
                Kind::String { words, .. } => *words,
                _ => None,
            };
            (base, offset, words)
        });
        let slow = |emit: &mut Self| emit.decode_by_interpreter(op, frame);
        match (form, target) {
            (TextForm::CountedNul { order }, Some((base, offset, Some(words)))) => {
                let done = self.code.create_block();
                let slow_block = self.cold();
                // The longest short string and its count, with one byte to spare for the terminator.
                let lacks = self.lacks(21);
                self.or_else(lacks, slow_block);
                let here = self.here();
                let count = self.load_scalar(Scalar::U32, here, 0);
                let count = self.reorder(count, Scalar::U32, *order);
                let len = self.code.ins().iadd_imm_s(count, -1);
                let longest = if bound == 0 { 16 } else { i64::from(bound.min(16)) };
                let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, longest);
                let capacity = self.load(types::I64, base, offset + words.capacity as i32);
                let small = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, capacity, 16);
                let unfit = self.code.ins().bor(long, small);
                self.or_else(unfit, slow_block);
                let bytes = self.load(types::I8X16, here, 4);
                let high = self.code.ins().vhigh_bits(types::I32, bytes);
                let one = self.code.ins().iconst(types::I32, 1);
                let mask = self.code.ins().ishl(one, len);
                let mask = self.code.ins().iadd_imm_s(mask, -1);
                let high = self.code.ins().band(high, mask);
                let last = self.code.ins().iadd(here, len);
                let nul = self.code.ins().uload8(types::I32, flags(), last, 4);
                let odd = self.code.ins().bor(high, nul);
                self.or_else(odd, slow_block);
                let data = self.load(types::I64, base, offset + words.pointer as i32);
                self.store(bytes, data, 0);
                self.store(len, base, offset + words.len as i32);
                let position = self.position();
                let position = self.code.ins().iadd(position, count);
                let position = self.code.ins().iadd_imm_s(position, 4);
                self.code.def_var(self.position, position);
                self.code.ins().jump(done, &[]);
                self.code.switch_to_block(slow_block);
                slow(self);
                self.code.ins().jump(done, &[]);
                self.code.switch_to_block(done);
            }
            // What follows takes the place for a string of its own.
            _ if self.is_shared(place) => slow(self),
            (TextForm::Kernel(kernel), _) if bound == 0 => {
                let string = match place {
                    Place::Sink => self.constant(0),
                    place => self.place_address(place, frame),
                };
                let kernel = self.address(*kernel);
                self.call_status(op, shims::get_text as *const u8, &[self.context, kernel, string]);
            }
            (TextForm::Field(field), _) if bound == 0 => self.decode_field_text(op, place, Some(field), frame),
            (TextForm::Pending, _) if bound == 0 => self.decode_field_text(op, place, None, frame),
            _ => slow(self),
        }
    }
}
