//! Notifies the threads that wait for subscribers when a peer answers a channel, on any port.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Answered {
    lock: Mutex<()>,
    changed: Condvar,
}

impl Answered {
    /// Notifies the waiting threads that an answer has arrived or was removed. The caller must hold
    /// no lock that a waiting thread takes.
    pub(super) fn tell(&self) {
        drop(self.lock.lock());
        self.changed.notify_all();
    }

    /// Waits while `is_missing` returns true, for at most `timeout`.
    pub(crate) fn wait_while(&self, timeout: Duration, mut is_missing: impl FnMut() -> bool) {
        self.changed.wait_while_for(&mut self.lock.lock(), |()| is_missing(), timeout);
    }
}
