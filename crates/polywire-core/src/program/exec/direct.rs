//! Calls of direct functions: prepares them, and takes back what they did to the state if they bail
//! out. `exec.rs` calls it before anything else is tried; `tier` says for which messages.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::{Executable, tier::Kind};
use crate::{
    layout::Growth,
    program::{State, io::Limits, jit, payload::Decoded},
};

/// Room that is made ahead for a message of a stream, which is mostly much shorter than it may be.
const MAX_STREAM_AHEAD: usize = 1 << 14;

/// The same after messages for which it did not do: each element of a sequence wants room for
/// everything that may come behind it.
const MAX_MORE_AHEAD: usize = 1 << 16;

impl Executable {
    /// Encodes without a context, if the program can do without and nothing is unusual; false if
    /// [`Executable::encode`] must take the long way.
    ///
    /// # Safety
    /// As [`Executable::encode`].
    #[inline]
    pub(super) unsafe fn encode_direct(&self, value: *const u8, out: &mut Vec<u8>, limits: &Limits) -> bool {
        let Some(direct) = self.0.tiers.direct(Kind::Encode) else { return false };
        let (start, size) = (out.len(), self.0.direct_size);
        let room = out.capacity() - start;
        if size > limits.message_bytes || room < size {
            return false;
        }
        // SAFETY: there is room, the code is that of an encode program and writes each of the bytes
        // that it gives the number of, and the value is as the caller promises.
        unsafe {
            let written = jit::encode_direct(direct, out.as_mut_ptr().add(start), room, value);
            // What it says no to is more than any room.
            if written > room.min(limits.message_bytes) {
                self.0.tiers.bailed_out();
                return false;
            }
            out.set_len(start + written);
        }
        true
    }

    /// Decodes without a context; none if something is wrong or unusual, and
    /// [`Executable::decode_general`] must take over.
    ///
    /// # Safety
    /// As [`Executable::decode`].
    #[inline]
    pub(super) unsafe fn decode_direct(&self, bytes: &[u8], value: *mut u8, limits: &Limits) -> Option<usize> {
        let direct = self.0.tiers.direct(Kind::Decode)?;
        if bytes.len() < self.0.direct_size || bytes.len() > limits.message_bytes {
            return None;
        }
        // SAFETY: the bytes are there, the code is that of a decode program, and the value is as
        // the caller promises.
        let taken = unsafe { jit::decode_direct(direct, bytes, value) };
        if taken > bytes.len() {
            self.0.tiers.bailed_out();
            return None;
        }
        Some(taken)
    }

    /// The same as [`Executable::encode_direct`] for a message of a stream whose state is
    /// specialised.
    ///
    /// # Safety
    /// As [`Executable::encode`].
    #[inline]
    pub(super) unsafe fn encode_stream(
        &self,
        state: &mut State,
        keep: bool,
        value: *const u8,
        out: &mut Vec<u8>,
        limits: &Limits,
    ) -> bool {
        let (Some(entry), Some(specialised)) = (self.0.tiers.direct(Kind::Stream), &self.0.specialised) else {
            return false;
        };
        let (start, size) = (out.len(), self.0.direct_size);
        if size > limits.message_bytes || !state.begin_specialised(specialised, limits) {
            return false;
        }
        let ahead = self.0.ahead.load(Ordering::Relaxed).max(size);
        if out.capacity() - start < ahead && (size > MAX_STREAM_AHEAD || out.try_reserve(ahead).is_err()) {
            return false;
        }
        let room = out.capacity() - start;
        // SAFETY: there is room, the code is that of an encode program with a bank, for which the
        // state was just specialised, and the value is as the caller promises. The code writes each
        // of the bytes whose number it gives.
        unsafe {
            let written = jit::encode_stream(entry, out.as_mut_ptr().add(start), room, value, state);
            if written > room.min(limits.message_bytes) {
                state.roll_back_specialised();
                self.0.ahead.store((2 * room).min(MAX_MORE_AHEAD), Ordering::Relaxed);
                self.0.tiers.bailed_out();
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

    /// The same as [`Executable::decode_direct`] for a message of a stream whose state is
    /// specialised.
    ///
    /// # Safety
    /// As [`Executable::decode`].
    #[inline]
    pub(super) unsafe fn decode_stream(
        &self,
        (state, keep): (&mut State, bool),
        bytes: &[u8],
        value: *mut u8,
        limits: &Limits,
        growth: &Growth,
    ) -> Option<Decoded> {
        (state.memory_left, state.copies_left) = (limits.memory(bytes.len()), limits.memory(bytes.len()));
        let entry = self.0.tiers.direct(Kind::Stream)?;
        let specialised = self.0.specialised.as_ref()?;
        // Direct code never frees memory of the value: the general way does.
        let must_free = growth.bytes() > limits.memory_bytes;
        if bytes.len() > limits.message_bytes
            || must_free
            || state.is_broken()
            || !state.begin_specialised(specialised, limits)
        {
            return None;
        }
        let memory = state.memory_left;
        // SAFETY: the bytes are there, the code is that of a decode program with a bank, for which
        // the state was just specialised, and the value is as the caller promises.
        let taken = unsafe { jit::decode_stream(entry, bytes, value, state) };
        if taken > bytes.len() {
            state.roll_back_specialised();
            self.0.tiers.bailed_out();
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
