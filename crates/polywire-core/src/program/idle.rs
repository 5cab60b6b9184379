//! One spare [`State`] for messages that stand alone, so that not each of them allocates one.
//! `exec.rs` takes it before such a message and puts it back. It is shared between threads without
//! a lock.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::State;

/// A state that one thread at a time may take.
#[derive(Default)]
pub(super) struct Idle(AtomicPtr<State>);

impl Idle {
    pub(super) fn take(&self) -> Option<Box<State>> {
        let state = self.0.swap(core::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: a pointer that is not null came from `Box::into_raw` in `put`, and the swap
        // removed it, so nobody else has it.
        (!state.is_null()).then(|| unsafe { Box::from_raw(state) })
    }

    /// Puts a state back. A state that another thread has put back meanwhile is dropped.
    pub(super) fn put(&self, state: Option<Box<State>>) {
        let state = state.map_or(core::ptr::null_mut(), Box::into_raw);
        let other = self.0.swap(state, Ordering::AcqRel);
        if !other.is_null() {
            // SAFETY: the pointer came from `Box::into_raw`, and the swap removed it, so nobody
            // else has it.
            drop(unsafe { Box::from_raw(other) });
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        drop(self.take());
    }
}
