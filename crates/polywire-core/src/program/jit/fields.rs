//! Presence maps and `Forget`: emits their operations. `jit/ops.rs` calls it.
//! The general function calls `state/bits.rs`, as the interpreter does; direct functions have code
//! of their own in `jit/stream/map.rs`. The code touches the message and the state.

use core::mem::offset_of;

use cranelift_codegen::ir::{Value, types};

use super::emit::{Emit, Stream};
use crate::{
    layout::Scalar,
    program::{Block, Input, Op, Output, Policy, State, Status, state},
};

impl<'e> Emit<'e, '_> {
    /// Loads the values about the state that all operations use, once per function.
    pub(super) fn load_stream(&mut self, state: Value) {
        let values = self.load(types::I64, state, offset_of!(State, values_at) as i32);
        self.stream = Some(Stream { state, values });
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream.expect("the verifier has seen a bank")
    }

    /// Emits a segment with its presence map.
    pub(super) fn presence_map(&mut self, op: &Op, (bits, policy): (u32, Policy), body: &'e Block, frame: Value) {
        let (functions, argument) = match self.encodes() {
            true if self.direct => return self.put_segment(bits, body, frame),
            false if self.direct => return self.get_segment(bits, body, frame),
            true => ([state::begin_writing as *const u8, state::end_writing as *const u8], bits.into()),
            false => ([state::begin_reading as *const u8, state::end_reading as *const u8], policy as u64),
        };
        self.bracketed(op, functions, argument, (body, frame));
    }

    /// Accumulator from the next bit of the presence map.
    pub(super) fn decode_bit(&mut self, op: &Op) {
        let bit = if self.direct {
            self.take_flag()
        } else {
            let word = self.word();
            self.call_in_place(op, take_bit as *const u8, &[self.context(), word]);
            self.load_word(0)
        };
        self.set(bit, Scalar::Bool);
    }

    /// Checks bits of the presence map that have known values.
    pub(super) fn expect_bits(&mut self, op: &Op, zeros: u32, one: bool) {
        if self.direct {
            return self.expect_known(zeros, one);
        }
        let (zeros, one) = (self.constant(zeros.into()), self.constant(one.into()));
        self.call_status(op, expect_bits as *const u8, &[self.context(), zeros, one]);
    }

    /// Writes bits of the presence map that have known values.
    pub(super) fn put_bits(&mut self, op: &Op, zeros: u32, one: bool) {
        if self.direct {
            return self.put_known(zeros, one);
        }
        let (zeros, one) = (self.constant(zeros.into()), self.constant(one.into()));
        self.call_status(op, put_bits as *const u8, &[self.context(), zeros, one]);
    }

    /// Makes all slots but one undefined.
    pub(super) fn forget(&mut self, except: u32) {
        let (state, except) = (self.state(), self.constant(except.into()));
        match self.direct {
            true => self.call_expecting_zero(forget_specialised as *const u8, &[state, except]),
            false => _ = self.call(forget as *const u8, &[state, except], None),
        }
    }

    /// The state of the stream. Without a bank there is none.
    pub(super) fn state(&self) -> Value {
        self.stream.map_or_else(|| self.context(), |stream| stream.state)
    }
}

// General functions call the functions below, except `forget_specialised`, which direct functions
// call. None unwinds.

unsafe extern "C" fn take_bit(input: *mut Input<'_>, bit: *mut u64) -> Status {
    // SAFETY: machine code passes its input, which nobody else refers to during the call, and a
    // word of its stack frame.
    unsafe { *bit = u64::from((*input).take_bit()) };
    Status::Ok
}

unsafe extern "C" fn expect_bits(input: *mut Input<'_>, zeros: u64, one: u64) -> Status {
    // SAFETY: machine code passes its input or output, which nobody else refers to during the call.
    unsafe { state::expect_bits(&mut *input, zeros as u32, one != 0) }
}

unsafe extern "C" fn put_bits(output: *mut Output<'_>, zeros: u64, one: u64) -> Status {
    // SAFETY: machine code passes its input or output, which nobody else refers to during the call.
    unsafe { state::put_bits(&mut *output, zeros as u32, one != 0) };
    Status::Ok
}

unsafe extern "C" fn forget(state: *mut State, except: u64) {
    // SAFETY: machine code passes the state of its context, which nobody else refers to during the
    // call.
    unsafe { (*state).forget_but(except as u32) }
}

/// In direct code: returns 0, or 1 if the initial texts exceed the limit.
unsafe extern "C" fn forget_specialised(state: *mut State, except: u64) -> u64 {
    // SAFETY: machine code passes the state that it was called with, which nobody else refers to
    // during the call.
    unsafe { u64::from(!(*state).forget_specialised(except as u32)) }
}
