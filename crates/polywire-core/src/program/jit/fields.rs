//! Fields with operators. Where there is a context, functions do them that the interpreter calls,
//! too. Where there is none, `stream` makes them.

use core::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::emit::{Emit, Stream};
use crate::{
    layout::Scalar,
    program::{Field, Input, Op, Output, State, Status, state},
};

impl<'e> Emit<'e, '_> {
    /// What all fields need of the state, once in a function.
    pub(super) fn load_stream(&mut self, state: Value) {
        let values = self.load(types::I64, state, offset_of!(State, values_at) as i32);
        self.stream = Some(Stream { state, values });
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream.expect("the verifier has seen a bank")
    }

    /// Accumulator from a mandatory field.
    pub(super) fn decode_field(&mut self, op: &Op, field: &Field) {
        if self.direct {
            return self.decode_number(field);
        }
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
            return self.decode_presence(field);
        }
        let (address, word) = (self.address(field), self.word());
        self.call_status(op, test_field as *const u8, &[self.context, address, word]);
        let value = self.load_word(0);
        self.set(value, Scalar::Bool);
    }

    /// The accumulator as a field.
    pub(super) fn encode_field(&mut self, op: &Op, field: &Field, value: Value) {
        if self.direct {
            return self.encode_number(field, value);
        }
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

    pub(super) fn state(&self) -> Value {
        self.stream().state
    }
}

fn word_offset(index: u8) -> i32 {
    offset_of!(State, words) as i32 + 8 * i32::from(index & 1)
}

// Machine code with a context calls the functions below. None unwinds.

unsafe extern "C" fn get_int(input: *mut Input<'_>, field: *const Field, word: *mut u64) -> Status {
    // SAFETY: machine code gives its context, a field that lives as long as the code, and a word of
    // the stack.
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
    // SAFETY: machine code gives its context, a field that lives as long as the code, and a word of
    // the stack.
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

unsafe extern "C" fn put_int(output: *mut Output<'_>, field: *const Field, value: u64) -> Status {
    // SAFETY: machine code gives its context, and a field that lives as long as the code.
    unsafe { state::put_int(&mut *output, &*field, value) }
}
