//! Contexts, which sockets share.

use std::{
    ffi::c_void,
    ptr::NonNull,
    sync::{Arc, OnceLock},
};

use crate::{
    error::{Error, check},
    raw,
    socket::{Kind, Socket},
};

/// The maximum number of sockets of a context.
const MAX_SOCKETS: i32 = 16_384;

/// A context of libzmq, with its I/O thread. Clones refer to the same context. It ends when its
/// last clone and its last socket are dropped. `inproc://` endpoints connect sockets of the same
/// context.
#[derive(Clone)]
pub struct Context(Arc<Owned>);

pub(crate) struct Owned(NonNull<c_void>);

// SAFETY: libzmq's contexts may be used from any thread, by several at a time.
unsafe impl Send for Owned {}
// SAFETY: libzmq permits calls of several threads at a time for the same context.
unsafe impl Sync for Owned {}

impl Context {
    /// Creates a context. Fails if the process has too many open files or no memory.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// let socket = Context::new()?.socket(Kind::Push)?;
    /// socket.bind("inproc://a")?;
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn new() -> Result<Context, Error> {
        // SAFETY: the call has no preconditions.
        let context = NonNull::new(unsafe { raw::zmq_ctx_new() }).ok_or_else(Error::last)?;
        let context = Context(Arc::new(Owned(context)));
        // SAFETY: the context lives.
        check(unsafe { raw::zmq_ctx_set(context.pointer(), raw::MAX_SOCKETS, MAX_SOCKETS) })?;
        Ok(context)
    }

    /// Returns the context that the whole process shares. All callers get the same context, so that
    /// their sockets reach each other by `inproc://`. It lives as long as the process.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// let (a, b) = (Context::process()?.socket(Kind::Push)?, Context::process()?.socket(Kind::Pull)?);
    /// a.bind("inproc://shared")?;
    /// b.connect("inproc://shared")?;
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn process() -> Result<Context, Error> {
        static SHARED: OnceLock<Context> = OnceLock::new();
        match SHARED.get() {
            Some(context) => Ok(context.clone()),
            None => {
                let made = Context::new()?;
                Ok(SHARED.get_or_init(|| made).clone())
            }
        }
    }

    /// Creates a socket of this context. Fails if the context has too many sockets, or the process
    /// too many open files.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// assert!(Context::new()?.socket(Kind::Pull).is_ok());
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn socket(&self, kind: Kind) -> Result<Socket, Error> {
        Socket::open(self.0.clone(), kind)
    }

    fn pointer(&self) -> *mut c_void {
        self.0.pointer()
    }
}

impl Owned {
    pub(crate) fn pointer(&self) -> *mut c_void {
        self.0.as_ptr()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the context: each socket holds a reference to it while it is
        // open. An interrupted call has ended nothing and is repeated.
        while check(unsafe { raw::zmq_ctx_term(self.pointer()) }).is_err_and(Error::is_again) {}
    }
}
