//! Tells threads that wait for subscribers that a peer has answered a channel, on any port.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

#[derive(Debug, Default)]
pub(crate) struct Answered {
    lock: Mutex<()>,
    changed: Condvar,
}

impl Answered {
    /// An answer has come or gone. The caller holds no lock that a waiting thread takes.
    pub(super) fn tell(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits as long as `is_missing`, or until `timeout` is over.
    pub(crate) fn wait_while(&self, timeout: Duration, mut is_missing: impl FnMut() -> bool) {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_timeout_while(guard, timeout, |()| is_missing()));
    }
}
