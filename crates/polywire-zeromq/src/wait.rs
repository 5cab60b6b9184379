//! Waiting for sockets and descriptors.

use std::{
    ffi::{c_int, c_long},
    os::fd::{AsRawFd as _, BorrowedFd},
    ptr,
    time::Duration,
};

use crate::{
    error::{Error, check},
    raw,
    socket::Socket,
};

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// For at most this time, or a millisecond if this is less.
    Most(Duration),
    /// Until the call has succeeded.
    Forever,
}

impl Wait {
    /// Returns how long a call may still wait after this time.
    pub(crate) fn after(self, time: Duration) -> Wait {
        match self {
            Wait::Most(most) if most <= time => Wait::No,
            Wait::Most(most) => Wait::Most(most - time),
            other => other,
        }
    }
}

/// The sockets and descriptors that [`wait`] has found readable.
pub struct Waited(Vec<bool>);

impl Waited {
    /// Returns whether the socket with this number is readable. The numbers of the descriptors
    /// follow those of the sockets.
    ///
    /// ```
    /// let waited = polywire_zeromq::wait(&[], &[], std::time::Duration::ZERO)?;
    /// assert!(!waited.is_readable(0));
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn is_readable(&self, number: usize) -> bool {
        self.0.get(number).copied().unwrap_or_default()
    }
}

/// Waits until something can be received from one of the sockets or read from one of the
/// descriptors, or for `most`, or until a signal arrives.
///
/// ```
/// use std::{io::Write as _, os::fd::AsFd as _, time::Duration};
/// use polywire_zeromq::{Context, Kind, wait};
/// let pull = Context::new()?.socket(Kind::Pull)?;
/// let (reader, mut writer) = std::io::pipe()?;
/// writer.write_all(b"!")?;
/// let waited = wait(&[&pull], &[reader.as_fd()], Duration::from_secs(10))?;
/// assert!(!waited.is_readable(0) && waited.is_readable(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn wait(sockets: &[&Socket], descriptors: &[BorrowedFd<'_>], most: Duration) -> Result<Waited, Error> {
    let item = |socket, fd| raw::PollItem { socket, fd, events: raw::POLLIN, revents: 0 };
    let of_sockets = sockets.iter().map(|socket| item(socket.pointer(), -1));
    let of_descriptors = descriptors.iter().map(|descriptor| item(ptr::null_mut(), descriptor.as_raw_fd()));
    let mut items: Vec<raw::PollItem> = of_sockets.chain(of_descriptors).collect();
    let count = c_int::try_from(items.len()).map_err(|_| Error::invalid())?;
    let time = c_long::try_from(most.as_millis()).unwrap_or(c_long::MAX);
    // SAFETY: the sockets and descriptors are open, and belong to this thread for the time of the
    // call; libzmq writes to `count` items.
    match check(unsafe { raw::zmq_poll(items.as_mut_ptr(), count, time) }) {
        Err(error) if !error.is_again() => Err(error),
        _ => Ok(Waited(items.iter().map(|item| item.revents & raw::POLLIN != 0).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bounded_wait_becomes_shorter() {
        let [short, long] = [1, 3].map(Duration::from_secs);
        assert_eq!(Wait::Most(long).after(short), Wait::Most(long - short));
        assert_eq!([Wait::Most(short).after(short), Wait::Most(short).after(long)], [Wait::No; 2]);
        assert_eq!([Wait::No, Wait::Forever].map(|wait| wait.after(long)), [Wait::No, Wait::Forever]);
    }
}
