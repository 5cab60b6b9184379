//! Events of a socket's connections.

use std::{
    ffi::CString,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{error::Error, message::Message, raw, socket::Socket, wait::Wait};

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// A peer has connected, and the handshake has succeeded.
    Connected,
    /// A peer has disconnected.
    Disconnected,
}

/// The events of a socket's connections, created by [`Socket::monitor`].
pub struct Monitor(Socket);

impl Monitor {
    /// Returns a unique endpoint for a monitor, as text for each side.
    pub(crate) fn endpoint() -> (String, CString) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("inproc://polywire-monitor-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let text = CString::new(name.clone()).unwrap_or_default();
        (name, text)
    }

    pub(crate) fn new(socket: Socket, endpoint: &str) -> Result<Monitor, Error> {
        socket.connect(endpoint)?;
        Ok(Monitor(socket))
    }

    /// Returns the socket to [`wait`](crate::wait) for.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind, wait};
    /// let socket = Context::new()?.socket(Kind::Sub)?;
    /// let monitor = socket.monitor()?;
    /// let waited = wait(&[monitor.socket()], &[], std::time::Duration::ZERO)?;
    /// assert!(!waited.is_readable(0));
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn socket(&self) -> &Socket {
        &self.0
    }

    /// Returns the next event, or `None` if there is none. Does not wait.
    ///
    /// ```
    /// use polywire_zeromq::{ConnectionEvent, Context, Kind, wait};
    /// let context = Context::new()?;
    /// let (publisher, subscriber) = (context.socket(Kind::XPub)?, context.socket(Kind::Sub)?);
    /// let monitor = subscriber.monitor()?;
    /// publisher.bind("tcp://127.0.0.1:*")?;
    /// subscriber.connect(&publisher.last_endpoint()?)?;
    /// wait(&[monitor.socket()], &[], std::time::Duration::from_secs(10))?;
    /// assert_eq!(monitor.next()?, Some(ConnectionEvent::Connected));
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn next(&self) -> Result<Option<ConnectionEvent>, Error> {
        let (mut event, mut rest) = (Message::new(), Message::new());
        while self.0.receive(&mut event, Wait::No)? {
            while event.has_more() && self.0.receive(&mut rest, Wait::No)? && rest.has_more() {}
            let number = event.first_chunk().map(|number| i32::from(u16::from_ne_bytes(*number)));
            match number {
                Some(raw::HANDSHAKE_SUCCEEDED) => return Ok(Some(ConnectionEvent::Connected)),
                Some(raw::DISCONNECTED) => return Ok(Some(ConnectionEvent::Disconnected)),
                _ => {}
            }
        }
        Ok(None)
    }
}
