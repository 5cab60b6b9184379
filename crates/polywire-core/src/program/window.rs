//! An output that counts: it has room for what is written next and for the few bytes before, and
//! forgets the rest.
//!
//! Positions go on as ever, so the base is where the first byte would lie, before the window:
//! programs and kernels, which write at the base plus the position, need not know. They must not
//! look at what they wrote but by [`Output::last`].

use alloc::vec::Vec;
use core::{marker::PhantomData, ptr::NonNull};

use super::{FaultKind, Limits, Output, Status};

/// Bytes before the position that a window keeps.
const TAIL: usize = 16;

/// Bytes of a window to begin with.
pub(super) const WINDOW: usize = 512;

pub(super) struct Window<'a> {
    at: NonNull<u8>,
    len: usize,
    /// What stands in for the bytes that are asked for; empty until then.
    stand_in: Vec<u8>,
    looked_back: bool,
    bytes: PhantomData<&'a mut [u8]>,
}

impl Window<'_> {
    /// Zeros for all bytes up to the position.
    #[cold]
    pub(super) fn stand_in(&mut self, position: usize) -> &mut [u8] {
        self.looked_back = true;
        if self.stand_in.len() < position {
            self.stand_in.resize(position, 0);
        }
        &mut self.stand_in[..position]
    }
}

impl<'a> Output<'a> {
    /// An output that counts. `window` is the room to begin with, and `spare` has to be empty: it
    /// takes the place where that is too small.
    pub(super) fn counting(window: &'a mut [u8; WINDOW], spare: &'a mut Vec<u8>, limits: &'a Limits) -> Output<'a> {
        let mut output = Output::new(spare, limits);
        let (at, len, bytes) = (NonNull::from(window).cast(), WINDOW, PhantomData);
        output.window = Some(Window { at, len, stand_in: Vec::new(), looked_back: false, bytes });
        output.place([0; TAIL]);
        output
    }

    /// Bytes counted; none if something looked at bytes that were forgotten, and may have counted
    /// wrong.
    pub(super) fn counted(&self) -> Option<usize> {
        let looked_back = self.window.as_ref().is_some_and(|window| window.looked_back);
        (!looked_back).then_some(self.pos)
    }

    /// Counts bytes that need not be written, if bytes are but counted and these would not fit the
    /// window.
    #[cold]
    pub(crate) fn pass(&mut self, n: usize) -> bool {
        let most = self.limits.message_bytes.saturating_add(1 << 16);
        let passes = self.window.is_some() && n > WINDOW && self.pos.saturating_add(n) <= most;
        if passes {
            self.pos += n;
            // No value ends with what a codec looks for before its last byte: a comma, a bracket.
            self.place([0; TAIL]);
        }
        passes
    }

    /// Makes room for `n` bytes by forgetting those before the last.
    pub(super) fn move_window(&mut self, n: usize) -> Status {
        let Some(window) = &mut self.window else { return Status::Ok };
        let mut tail = [0; TAIL];
        let kept = self.pos.min(TAIL);
        // SAFETY: the window has `TAIL` bytes before the position, or as many as were written.
        unsafe {
            let from = self.base.wrapping_add(self.pos - kept);
            core::ptr::copy_nonoverlapping(from, tail[TAIL - kept..].as_mut_ptr(), kept);
        }
        if n > window.len - TAIL {
            let wanted = n.saturating_add(TAIL);
            if self.vector.try_reserve(wanted).is_err() {
                return self.fail(FaultKind::OutOfMemory, n as u64, 0);
            }
            window.at = NonNull::from(self.vector.spare_capacity_mut()).cast();
            window.len = self.vector.capacity();
        }
        self.place(tail);
        Status::Ok
    }

    /// Nothing is known of the bytes before the position any more.
    pub(super) fn forget(&mut self) {
        if let Some(window) = &mut self.window {
            window.looked_back = true;
            self.place([0; TAIL]);
        }
    }

    /// Lays the window such that the position is behind its first bytes, which these are.
    fn place(&mut self, tail: [u8; TAIL]) {
        let Some(window) = &self.window else { return };
        // SAFETY: a window is larger than its tail, and nobody else refers to it.
        unsafe { window.at.cast::<[u8; TAIL]>().write(tail) };
        self.base = window.at.as_ptr().wrapping_add(TAIL).wrapping_sub(self.pos);
        self.capacity = self.pos + (window.len - TAIL);
    }
}
