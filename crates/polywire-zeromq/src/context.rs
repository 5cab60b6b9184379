//! Contexts: what sockets share.

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

/// Most sockets of a context.
const MOST_SOCKETS: i32 = 16_384;

/// A context of libzmq, with its thread for input and output. Clones are the same context; it ends
/// with the last of them and of their sockets. Addresses `inproc://` reach sockets of the same
/// context.
#[derive(Clone)]
pub struct Context(Arc<Owned>);

pub(crate) struct Owned(NonNull<c_void>);

// SAFETY: libzmq's contexts may be used from any thread, by several at a time.
unsafe impl Send for Owned {}
// SAFETY: calls of several threads at a time are part of libzmq's promise for contexts.
unsafe impl Sync for Owned {}

impl Context {
    /// A new context. Fails if the process has too many open files or no memory.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// let socket = Context::new()?.socket(Kind::Push)?;
    /// socket.bind("inproc://a")?;
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn new() -> Result<Context, Error> {
        // SAFETY: it has no conditions.
        let context = NonNull::new(unsafe { raw::zmq_ctx_new() }).ok_or_else(Error::last)?;
        let context = Context(Arc::new(Owned(context)));
        // SAFETY: the context lives.
        check(unsafe { raw::zmq_ctx_set(context.pointer(), raw::MAX_SOCKETS, MOST_SOCKETS) })?;
        Ok(context)
    }

    /// The context that all parts of the process share that ask for it here, so that they reach
    /// each other by `inproc://`. It lives as long as the process.
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

    /// A socket of this context. Fails if the context has too many, or the process too many files.
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
        // SAFETY: nobody else has it: sockets hold it while they are open. An interrupted call has
        // ended nothing and is made again.
        while check(unsafe { raw::zmq_ctx_term(self.pointer()) }).is_err_and(Error::is_again) {}
    }
}
