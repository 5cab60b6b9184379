//! Restores a state if the application's code panics.

use std::mem;

/// Calls `work`. If that panics, calls `restore` while the panic unwinds.
#[inline]
pub(crate) fn restoring<T>(restore: impl FnMut(), work: impl FnOnce() -> T) -> T {
    let restoring = Restoring(restore);
    let done = work();
    mem::forget(restoring);
    done
}

struct Restoring<F: FnMut()>(F);

impl<F: FnMut()> Drop for Restoring<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        panic::{AssertUnwindSafe, catch_unwind},
    };

    use super::*;

    #[test]
    fn only_a_panic_restores() {
        let restored = Cell::new(0);
        let restore = || restored.set(restored.get() + 1);
        assert_eq!((restoring(restore, || 7), restored.get()), (7, 0));
        let panics = || restoring(restore, || assert_eq!(restored.get(), 1, "as the test wants"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(restored.get(), 1);
    }
}
