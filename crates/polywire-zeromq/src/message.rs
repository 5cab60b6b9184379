//! Received frames.

use std::{ops::Deref, slice};

use crate::{error::check, raw};

/// One frame of a message, received by [`Socket::receive`](crate::Socket::receive). Its bytes stay
/// valid until the next frame is received into it.
pub struct Message(raw::MessageBytes);

// SAFETY: a frame is memory without ties to a thread; its count of references is atomic.
unsafe impl Send for Message {}

impl Message {
    /// Creates an empty frame.
    ///
    /// ```
    /// assert!(polywire_zeromq::Message::new().is_empty());
    /// ```
    pub fn new() -> Message {
        let mut message = Message(raw::MessageBytes([0; 64]));
        // SAFETY: the call writes the 64 bytes, and cannot fail.
        unsafe { raw::zmq_msg_init(&mut message.0) };
        message
    }

    /// Returns whether another frame of the same message follows.
    ///
    /// ```
    /// assert!(!polywire_zeromq::Message::new().has_more());
    /// ```
    pub fn has_more(&self) -> bool {
        // SAFETY: the frame was made by `zmq_msg_init`.
        unsafe { raw::zmq_msg_more(&self.0) == 1 }
    }

    pub(crate) fn raw(&mut self) -> *mut raw::MessageBytes {
        &mut self.0
    }
}

impl Default for Message {
    fn default() -> Message {
        Message::new()
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let message: *const raw::MessageBytes = &self.0;
        // SAFETY: the frame was made by `zmq_msg_init`. Neither call writes to it, whatever their
        // types say. The bytes stay for as long as the frame is borrowed.
        unsafe {
            let (data, size) = (raw::zmq_msg_data(message.cast_mut()), raw::zmq_msg_size(message));
            if data.is_null() { &[] } else { slice::from_raw_parts(data.cast(), size) }
        }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: the frame was made by `zmq_msg_init`, and is not used again.
        let closed = check(unsafe { raw::zmq_msg_close(&mut self.0) });
        debug_assert!(closed.is_ok(), "it is a frame: {closed:?}");
    }
}
