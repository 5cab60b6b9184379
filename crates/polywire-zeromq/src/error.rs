//! Errors of libzmq.

use std::{ffi::CStr, fmt, io::ErrorKind};

use crate::raw;

/// An error number of libzmq: one of the system's, or one of libzmq's own.
///
/// ```
/// use polywire_zeromq::{Context, Kind};
/// let socket = Context::new()?.socket(Kind::Sub)?;
/// let error = socket.connect("carrier://pigeon").unwrap_err();
/// assert_eq!(error.to_string(), "Protocol not supported");
/// # Ok::<(), polywire_zeromq::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error(i32);

impl Error {
    /// Returns the number, as in the system's `errno.h`.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// let socket = Context::new()?.socket(Kind::Sub)?;
    /// assert_ne!(socket.connect("nowhere").unwrap_err().number(), 0);
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn number(self) -> i32 {
        self.0
    }

    /// Returns the error of the call that this thread has just made.
    pub(crate) fn last() -> Error {
        // SAFETY: the call only reads a number of this thread.
        Error(unsafe { raw::zmq_errno() })
    }

    pub(crate) fn invalid() -> Error {
        /// `EINVAL`, which has this number on all systems.
        const INVALID: i32 = 22;
        Error(INVALID)
    }

    /// Returns whether the call would have to wait, or was interrupted by a signal.
    pub(crate) fn is_again(self) -> bool {
        self.kind() == ErrorKind::WouldBlock || self.is_interrupted()
    }

    /// Returns whether a signal has interrupted the call.
    pub(crate) fn is_interrupted(self) -> bool {
        self.kind() == ErrorKind::Interrupted
    }

    fn kind(self) -> ErrorKind {
        std::io::Error::from_raw_os_error(self.0).kind()
    }
}

/// Converts the result of a call that returns -1 if it fails.
pub(crate) fn check(returned: i32) -> Result<i32, Error> {
    if returned < 0 { Err(Error::last()) } else { Ok(returned) }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: libzmq and the system have a text for every number, which ends with a zero and
        // stays until this thread asks for another.
        let text = unsafe { CStr::from_ptr(raw::zmq_strerror(self.0)) };
        f.write_str(&text.to_string_lossy())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({}, {self})", self.0)
    }
}

impl std::error::Error for Error {}
