//! Tells threads that wait for subscribers that a peer has answered a channel, on any port.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Answered {
    lock: Mutex<()>,
    changed: Condvar,
}

impl Answered {
    /// An answer has come or gone. The caller holds no lock that a waiting thread takes.
    pub(super) fn tell(&self) {
        drop(self.lock.lock());
        self.changed.notify_all();
    }

    /// Waits as long as `is_missing`, or until `timeout` is over.
    pub(crate) fn wait_while(&self, timeout: Duration, mut is_missing: impl FnMut() -> bool) {
        self.changed.wait_while_for(&mut self.lock.lock(), |()| is_missing(), timeout);
    }
}
