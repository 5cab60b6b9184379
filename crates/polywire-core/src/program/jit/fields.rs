//! Fields with operators as machine code.

use core::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::{
    emit::{Emit, Stream},
    stream::optional,
};
use crate::{
    layout::Scalar,
    program::{
        Field, FieldKind, Input, Op, Output, Place, State, Status,
        interp::fields::{get_pending, put_field, set_pending},
        state,
    },
};

impl<'e> Emit<'e, '_> {
    /// What all fields need of the state, once in a function.
    pub(super) fn load_stream(&mut self, state: Value) {
        let values = self.load(types::I64, state, offset_of!(State, values_at) as i32);
        let tags = self.load(types::I64, state, offset_of!(State, tags_at) as i32);
        let map = (!self.direct).then(|| self.code.declare_var(types::I64));
        self.stream = Some(Stream { state, values, tags, map });
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream.expect("the verifier has seen a bank")
    }

    /// Accumulator from a mandatory field.
    pub(super) fn decode_field(&mut self, op: &Op, field: &Field) {
        match &field.kind {
            FieldKind::Float { .. } if self.direct => self.decode_float(op, field),
            FieldKind::Bits { bits, .. } if self.direct => {
                self.decode_field(op, bits);
                let bits = self.accumulator().value;
                self.set(bits, field.scalar());
            }
            _ => {
                if let Some(int) = optional(field).filter(|_| self.direct) {
                    self.demand(field, &int);
                } else if !self.decode_int(op, field) {
                    self.decode_field_slowly(op, field);
                }
            }
        }
    }

    /// The same by a function.
    pub(super) fn decode_field_slowly(&mut self, op: &Op, field: &Field) {
        let (address, word) = (self.address(field), self.word());
        self.call_status(op, get_int as *const u8, &[self.context, address, word]);
        let value = self.load_word(0);
        self.set(value, field.scalar());
    }

    /// Accumulator from one of the words that a field's value is in.
    pub(super) fn decode_word(&mut self, index: u8, scalar: Scalar) {
        if self.direct {
            let mut value = self.code.use_var(self.words[usize::from(index & 1)]);
            if scalar == Scalar::F32 {
                value = self.code.ins().band_imm_s(value, i64::from(u32::MAX));
            }
            return self.set(value, scalar);
        }
        let state = self.state();
        let value = match scalar {
            Scalar::F32 => self.load_scalar(Scalar::U32, state, word_offset(index)),
            _ => self.load(types::I64, state, word_offset(index)),
        };
        self.set(value, scalar);
    }

    /// Accumulator from whether a field is there.
    pub(super) fn decode_test(&mut self, op: &Op, field: &'e Field) {
        if self.direct {
            return match (&field.kind, optional(field)) {
                (FieldKind::Split(parts), _) => self.decode_decimal(op, parts),
                (FieldKind::Decimal, _) => self.decode_whole(field),
                (FieldKind::Float { .. }, _) => self.test_float(op, field),
                (FieldKind::Bits { bits, .. }, _) => self.decode_test(op, bits),
                (FieldKind::Int { .. }, Some(int)) => self.test_optional(&int),
                (FieldKind::Int { .. }, None) => self.test_present(op, field),
                _ => self.test_text(field),
            };
        }
        let (address, word) = (self.address(field), self.word());
        self.call_status(op, test_field as *const u8, &[self.context, address, word]);
        let value = self.load_word(0);
        self.set(value, Scalar::Bool);
    }

    /// A string without a bound, from a field or from what is pending.
    pub(super) fn decode_field_text(&mut self, op: &Op, place: Place, field: Option<&Field>, frame: Value) {
        let string = match place {
            Place::Sink => self.constant(0),
            place => self.place_address(place, frame),
        };
        let field = match field {
            Some(field) => self.address(field),
            None => self.constant(0),
        };
        self.call_status(op, get_text as *const u8, &[self.context, field, string]);
    }

    /// The accumulator as a field.
    pub(super) fn encode_field(&mut self, op: &Op, field: &Field, value: Value) {
        match &field.kind {
            FieldKind::Float { .. } if self.direct => self.encode_float(op, field, value),
            FieldKind::Bits { bits, .. } if self.direct => self.encode_field(op, bits, value),
            _ => {
                if let Some(int) = optional(field).filter(|_| self.direct) {
                    self.encode_present(&int, value);
                } else if !self.encode_int(op, field, value) {
                    self.encode_field_slowly(op, field, value);
                }
            }
        }
    }

    /// The same by a function.
    pub(super) fn encode_field_slowly(&mut self, op: &Op, field: &Field, value: Value) {
        let address = self.address(field);
        self.call_status(op, put_int as *const u8, &[self.context, address, value]);
    }

    /// The accumulator as one of the words that a field's value is in.
    pub(super) fn encode_word(&mut self, index: u8, value: Value) {
        if self.direct {
            return self.code.def_var(self.words[usize::from(index & 1)], value);
        }
        let state = self.state();
        self.store(value, state, word_offset(index));
    }

    /// A field that is absent, or whose value is in the words.
    pub(super) fn encode_put_field(&mut self, op: &Op, field: &Field, present: bool) {
        if self.direct {
            return match (&field.kind, present) {
                (FieldKind::Split(parts), true) => self.encode_decimal(op, parts),
                (FieldKind::Decimal, true) => self.encode_whole(field),
                (FieldKind::Float { .. }, false) => self.encode_no_float(field),
                (FieldKind::Bits { bits, .. }, false) => self.encode_absent(bits),
                (FieldKind::Split(parts), false) => {
                    self.encode_absent(&parts[0]);
                    self.leave_bits_out(&parts[1]);
                }
                _ => self.encode_absent(field),
            };
        }
        let (address, present) = (self.address(field), self.constant(present.into()));
        self.call_status(op, put_words as *const u8, &[self.context, address, present]);
    }

    /// A string without a bound as a field.
    pub(super) fn encode_field_text(&mut self, op: &Op, place: Place, field: &Field, frame: Value) {
        let (address, string) = (self.address(field), self.place_address(place, frame));
        self.call_status(op, put_text as *const u8, &[self.context, address, string]);
    }

    pub(super) fn state(&self) -> Value {
        self.stream().state
    }
}

/// Where the presence map's word is in the state.
pub(super) const MAP_WORD: i32 = (offset_of!(State, map) + offset_of!(state::Map, word)) as i32;

fn word_offset(index: u8) -> i32 {
    offset_of!(State, words) as i32 + 8 * i32::from(index & 1)
}

// The functions below are reached from verified programs only, with pointers that machine code was
// made with: contexts and fields that live as long as the code, and strings in live values. None
// unwinds.

unsafe extern "C" fn get_int(input: *mut Input<'_>, field: *const Field, word: *mut u64) -> Status {
    // SAFETY: as above.
    unsafe {
        match state::get_int(&mut *input, &*field) {
            Ok(value) => {
                *word = value;
                Status::Ok
            }
            Err(status) => status,
        }
    }
}

unsafe extern "C" fn test_field(input: *mut Input<'_>, field: *const Field, word: *mut u64) -> Status {
    // SAFETY: as above.
    unsafe {
        match state::get(&mut *input, &*field) {
            Ok(there) => {
                *word = u64::from(there);
                Status::Ok
            }
            Err(status) => status,
        }
    }
}

unsafe extern "C" fn get_text(
    input: *mut Input<'_>,
    field: *const Field,
    string: *mut alloc::string::String,
) -> Status {
    // SAFETY: as above; null stands for no field and for no string.
    unsafe {
        if let Some(field) = field.as_ref()
            && get_pending(&mut *input, field) == Status::Failed
        {
            return Status::Failed;
        }
        string.as_mut().map_or(Status::Ok, |string| set_pending(&mut *input, string))
    }
}

unsafe extern "C" fn put_int(output: *mut Output<'_>, field: *const Field, value: u64) -> Status {
    // SAFETY: as above.
    unsafe { state::put_int(&mut *output, &*field, value) }
}

unsafe extern "C" fn put_words(output: *mut Output<'_>, field: *const Field, present: u64) -> Status {
    // SAFETY: as above.
    unsafe { put_field(&mut *output, &*field, present != 0) }
}

unsafe extern "C" fn put_text(
    output: *mut Output<'_>,
    field: *const Field,
    string: *const alloc::string::String,
) -> Status {
    // SAFETY: as above.
    unsafe { state::put(&mut *output, &*field, state::Out::Bytes((*string).as_bytes())) }
}
