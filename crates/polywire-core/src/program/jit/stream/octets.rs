//! Octets, as fields that are bytes behind their number: what is done with previous ones is what is
//! done with texts.

use core::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};
use cranelift_frontend::Variable;

use super::{
    super::{emit::Emit, shims},
    calls,
    combined::is_combined,
};
use crate::{
    layout::Kind,
    program::{
        Field, Op, Place, State,
        state::{Operator, Text, specialised::NO_TEXT},
    },
};

/// Bytes that were found somewhere.
#[derive(Clone, Copy)]
struct Found {
    data: Variable,
    len: Variable,
}

impl<'e> Emit<'e, '_> {
    /// A sequence or array of octets as a field. There is room for all but its bytes.
    pub(in super::super) fn put_octets(&mut self, place: Place, field: &'e Field, bound: u32, frame: Value) {
        let Some((.., node)) = self.place(place, frame) else { return };
        let bytes = match &self.layout().node(node).kind {
            Kind::Array { len, .. } => (self.place_address(place, frame), self.constant(i64::from(*len))),
            _ => self.slice(place, frame),
        };
        self.put_bytes(bytes, field, bound);
    }

    /// Octets from a field that is always there, or from what is pending.
    pub(in super::super) fn get_octets(
        &mut self,
        op: &'e Op,
        place: Place,
        field: Option<&'e Field>,
        bound: u32,
        frame: Value,
    ) {
        let [data, len] = [(); 2].map(|()| self.code.declare_var(types::I64));
        let found = Found { data, len };
        if let Some(field) = field.filter(|field| is_combined(field)) {
            self.test_text(field);
        }
        match field.filter(|field| !is_combined(field)) {
            Some(field) => self.find_octets(field, found),
            None => {
                let (state, word) = (self.state(), self.word());
                self.call(calls::pending_at as *const u8, &[state, word], None);
                let (data, len) = (self.load_word(0), self.load_word(8));
                self.found_at(found, data, len);
            }
        }
        let (data, len) = (self.code.use_var(data), self.code.use_var(len));
        self.set_octets(op, place, (data, len), bound, frame);
    }

    fn find_octets(&mut self, field: &'e Field, found: Found) {
        let initial = field.initial_bytes().unwrap_or_default();
        match field.operator {
            Operator::Constant => self.find_known(initial, found),
            Operator::None => self.find_here(field, found),
            _ => {
                let bit = self.take_bit();
                self.branch(
                    bit,
                    |emit| emit.find_here(field, found),
                    |emit| match field.operator {
                        Operator::Copy => emit.find_previous(field, found),
                        _ => emit.find_known(initial, found),
                    },
                );
            }
        }
    }

    fn find_known(&mut self, known: &'e [u8], found: Found) {
        let (data, len) = (self.address(known), self.constant(known.len() as i64));
        self.found_at(found, data, len);
    }

    /// Bytes that are in the stream.
    fn find_here(&mut self, field: &Field, found: Found) {
        let (here, end, word) = (self.here(), self.code.use_var(self.end), self.word());
        let behind = self.call_or_leave(calls::find_counted as *const u8, &[here, end, word]);
        self.move_to(behind);
        let len = self.load_word(0);
        let data = self.code.ins().isub(behind, len);
        self.found_at(found, data, len);
        if field.operator == Operator::Copy {
            let (state, slots, unwind) = (self.state(), self.slots(field), self.unwind);
            let answer = self.call(calls::note_text as *const u8, &[state, slots, data, len], Some(types::I64));
            let failed = answer.expect("it returns a word");
            let failed = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, failed, 1);
            self.or_else(failed, unwind);
        }
    }

    fn find_previous(&mut self, field: &Field, found: Found) {
        let (values, state, unwind) = (self.stream().values, self.state(), self.unwind);
        let previous = self.load(types::I64, values, 8 * field.slot as i32);
        let none = self.code.ins().icmp_imm_s(IntCC::Equal, previous, NO_TEXT as i64);
        self.or_else(none, unwind);
        let texts = self.load(types::I64, state, offset_of!(State, texts_at) as i32);
        let text = field.text as i32 * size_of::<Text>() as i32;
        let data = self.load(types::I64, texts, text + offset_of!(Text, at) as i32);
        let len = self.load(types::I64, texts, text + offset_of!(Text, len) as i32);
        self.found_at(found, data, len);
    }

    fn found_at(&mut self, found: Found, data: Value, len: Value) {
        self.code.def_var(found.data, data);
        self.code.def_var(found.len, len);
    }

    /// Gives a sequence or array its octets: here if it has as many at least, else by a function.
    fn set_octets(&mut self, op: &'e Op, place: Place, (data, len): (Value, Value), bound: u32, frame: Value) {
        let Some((base, offset, _)) = self.place(place, frame) else { return };
        let words = self.sequence_node(place).and_then(|sequence| sequence.words);
        let (slow, done) = (self.cold(), self.code.create_block());
        if let Some(words) = words {
            let room = self.load(types::I64, base, offset + words.len as i32);
            let more = self.code.ins().icmp(IntCC::UnsignedGreaterThan, len, room);
            self.or_else(more, slow);
            if bound > 0 {
                let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, i64::from(bound));
                self.or_else(long, slow);
            }
            let to = self.load(types::I64, base, offset + words.pointer as i32);
            self.call(shims::copy as *const u8, &[data, to, len], None);
            self.store(len, base, offset + words.len as i32);
            self.code.ins().jump(done, &[]);
        } else {
            self.code.ins().jump(slow, &[]);
        }
        self.code.switch_to_block(slow);
        let (state, program, address) = (self.state(), self.address(self.program), self.address(op));
        let at = self.place_address(place, frame);
        self.call_or_leave(shims::set_octets_specialised as *const u8, &[state, program, address, at, data, len]);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
    }
}
