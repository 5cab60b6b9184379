//! A way to end a wait for descriptors.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// A descriptor that becomes readable when [`Wake::wake`] was called.
pub(super) struct Wake {
    woken: io::PipeReader,
    waker: io::PipeWriter,
}

impl Wake {
    pub(super) fn new() -> io::Result<Wake> {
        let (woken, waker) = io::pipe()?;
        for end in [woken.as_fd(), waker.as_fd()] {
            fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
        }
        Ok(Wake { woken, waker })
    }

    /// Ends a running or else the next wait.
    pub(super) fn wake(&self) {
        // If the pipe is full, the next wait returns anyway.
        let _ = rustix::io::write(&self.waker, &[1]);
    }

    /// Makes the descriptor unreadable until it is woken again.
    pub(super) fn clear(&self) {
        let mut read = [0; 256];
        while rustix::io::read(&self.woken, &mut read).is_ok_and(|count| count == read.len()) {}
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}
