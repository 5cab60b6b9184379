//! A state that is kept for messages that stand alone, so that none is made for each of them.
//! `exec.rs` takes it before such a message and puts it back.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::State;

/// A state that one user at a time may take.
#[derive(Default)]
pub(super) struct Idle(AtomicPtr<State>);

impl Idle {
    pub(super) fn take(&self) -> Option<Box<State>> {
        let state = self.0.swap(core::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: what is not null came from a box, and the swap has made it ours alone.
        (!state.is_null()).then(|| unsafe { Box::from_raw(state) })
    }

    /// Gives a state back; one that somebody else gave back meanwhile goes.
    pub(super) fn put(&self, state: Option<Box<State>>) {
        let state = state.map_or(core::ptr::null_mut(), Box::into_raw);
        let other = self.0.swap(state, Ordering::AcqRel);
        if !other.is_null() {
            // SAFETY: the pointer came from `Box::into_raw`, and `swap` gave it to nobody else.
            drop(unsafe { Box::from_raw(other) });
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        drop(self.take());
    }
}
