//! Calls direct functions: checks room and limits before a call, and rolls the state back after a
//! bail-out. `exec.rs` calls this file first for each message; `tier` decides which messages are
//! tried. It touches the output vector, the value (through machine code) and the state.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;

use super::{Executable, tier::Kind};
use crate::{
    layout::Growth,
    program::{State, io::Limits, jit, payload::Decoded, state::specialised::Specialisation},
};

/// The most room that is reserved ahead for a message of a stream at first. Most messages are much
/// shorter than their maximum.
const MAX_STREAM_AHEAD: usize = 1 << 14;

/// The most room that is reserved ahead after bail-outs: each element of a sequence reserves room
/// for everything that may follow it.
const MAX_MORE_AHEAD: usize = 1 << 16;

impl Executable {
    /// Encodes with the direct function, if the program has one and it does not bail out. Returns
    /// false if [`Executable::encode`] must run the general function.
    ///
    /// # Safety
    /// As for [`Executable::encode`].
    #[inline]
    pub(super) unsafe fn encode_direct(&self, value: *const u8, out: &mut Vec<u8>, limits: &Limits) -> bool {
        let Some(direct) = self.0.tiers.direct(Kind::Encode) else { return false };
        let (start, size) = (out.len(), self.0.direct_size);
        let room = out.capacity() - start;
        if size > limits.message_bytes || room < size {
            return false;
        }
        // SAFETY: `room` bytes behind `start` are within the capacity. The code is that of an
        // encode program, and it has written as many bytes as it returns. `value` is live by this
        // function's contract.
        unsafe {
            let written = jit::encode_direct(direct, out.as_mut_ptr().add(start), room, value);
            // On a bail-out it returns more than any room.
            if written > room.min(limits.message_bytes) {
                self.0.tiers.bailed_out();
                return false;
            }
            out.set_len(start + written);
        }
        true
    }

    /// Decodes with the direct function. Returns none if there is none, or if it bails out; then
    /// [`Executable::decode_general`] must run.
    ///
    /// # Safety
    /// As for [`Executable::decode`].
    #[inline]
    pub(super) unsafe fn decode_direct(&self, bytes: &[u8], value: *mut u8, limits: &Limits) -> Option<usize> {
        let direct = self.0.tiers.direct(Kind::Decode)?;
        let longest = limits.message_bytes.min(limits.elements as usize);
        if bytes.len() < self.0.direct_size || bytes.len() > longest {
            return None;
        }
        // SAFETY: `bytes` has the `direct_size` bytes that the code reads unchecked, the code is
        // that of a decode program, and `value` is live and unaliased by this function's contract.
        let taken = unsafe { jit::decode_direct(direct, bytes, value) };
        if taken > bytes.len() {
            self.0.tiers.bailed_out();
            return None;
        }
        Some(taken)
    }

    /// Makes the state specialised for this program, if it is not. Returns false if it cannot be.
    ///
    /// # Panics
    /// If the state was made for another program.
    #[inline(always)]
    fn specialise(&self, state: &mut State, specialised: &Arc<Specialisation>) -> bool {
        state.is_specialised(specialised) || self.specialise_anew(state, specialised)
    }

    #[inline(never)]
    fn specialise_anew(&self, state: &mut State, specialised: &Arc<Specialisation>) -> bool {
        self.admit(state, self.0.program.direction);
        state.specialise(specialised)
    }

    /// Called after a bail-out in a stream.
    #[cold]
    fn bailed_out_of_stream(&self, state: &mut State) {
        state.roll_back_specialised();
        self.0.tiers.bailed_out();
    }

    /// The same as [`Executable::encode_direct`], for a message of a stream. Specialises the state.
    ///
    /// # Safety
    /// As for [`Executable::encode`].
    ///
    /// # Panics
    /// If the state was made for another program.
    #[inline]
    pub(super) unsafe fn encode_stream(
        &self,
        state: &mut State,
        keep: bool,
        value: *const u8,
        out: &mut Vec<u8>,
        limits: &Limits,
    ) -> bool {
        let (Some(entry), Some(specialised)) = (self.0.tiers.direct(Kind::EncodeStream), &self.0.specialised) else {
            return false;
        };
        let (start, size) = (out.len(), self.0.direct_size);
        if size > limits.message_bytes || !self.specialise(state, specialised) {
            return false;
        }
        let ahead = self.0.ahead.load(Ordering::Relaxed).max(size);
        if out.capacity() - start < ahead && (size > MAX_STREAM_AHEAD || !reserve(out, ahead)) {
            return false;
        }
        let room = out.capacity() - start;
        state.begin_specialised(limits);
        // SAFETY: `room` bytes behind `start` are within the capacity. The code is that of an
        // encode program with a bank, for which the state was just specialised, and it has written
        // as many bytes as it returns. `value` is live by this function's contract.
        unsafe {
            let written = jit::encode_stream(entry, out.as_mut_ptr().add(start), room, value, state);
            if written > room.min(limits.message_bytes) {
                self.0.ahead.store((2 * room).min(MAX_MORE_AHEAD), Ordering::Relaxed);
                self.bailed_out_of_stream(state);
                return false;
            }
            out.set_len(start + written);
        }
        self.0.tiers.went_well();
        if !keep {
            state.roll_back_specialised();
        }
        true
    }

    /// The same as [`Executable::decode_direct`], for a message of a stream. Specialises the state.
    ///
    /// # Safety
    /// As for [`Executable::decode`].
    ///
    /// # Panics
    /// If the state was made for another program.
    #[inline(never)]
    pub(super) unsafe fn decode_stream(
        &self,
        (state, keep): (&mut State, bool),
        bytes: &[u8],
        value: *mut u8,
        limits: &Limits,
        growth: &Growth,
    ) -> Option<Decoded> {
        (state.memory_left, state.copies_left) = (limits.memory(bytes.len()), limits.memory(bytes.len()));
        let entry = self.0.tiers.direct(Kind::DecodeStream)?;
        let specialised = self.0.specialised.as_ref()?;
        // Direct code never frees memory of the value; the general path does.
        let must_free = growth.bytes() > limits.memory_bytes;
        if bytes.len() > limits.message_bytes || must_free || state.is_broken() || !self.specialise(state, specialised)
        {
            return None;
        }
        state.begin_specialised(limits);
        let memory = state.memory_left;
        // SAFETY: the code reads within `bytes` only. It is that of a decode program with a bank,
        // for which the state was just specialised, and `value` is live and unaliased by this
        // function's contract.
        let taken = unsafe { jit::decode_stream(entry, bytes, value, state) };
        if taken > bytes.len() {
            self.bailed_out_of_stream(state);
            return None;
        }
        let grown = memory.saturating_sub(state.memory_left);
        if grown > 0 {
            growth.add(grown);
        }
        self.0.tiers.went_well();
        if !keep {
            state.roll_back_specialised();
        }
        Some(Decoded { bytes: taken, grown })
    }
}

/// Reserves room. It is separate so that encoding into a vector with room sets up nothing for it.
#[cold]
fn reserve(out: &mut Vec<u8>, bytes: usize) -> bool {
    out.try_reserve(bytes).is_ok()
}
