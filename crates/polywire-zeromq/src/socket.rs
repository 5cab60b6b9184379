//! Sockets.

use std::{
    cell::Cell,
    ffi::{CString, c_int, c_void},
    io,
    os::fd::{BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    context::Owned,
    error::{Error, check},
    message::Message,
    monitor::Monitor,
    raw,
    wait::Wait,
};

/// The type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// One end of a pair, which receives the events of a monitored socket.
    Pair = 0,
    /// Publishes.
    Pub = 1,
    /// Subscribes.
    Sub = 2,
    /// Receives what [`Kind::Push`] sockets send.
    Pull = 7,
    /// Sends each message to one of the connected [`Kind::Pull`] sockets.
    Push = 8,
    /// Publishes, and receives the subscriptions of its peers: a byte 1 for the first subscription
    /// to a prefix, or 0 when the last one has ended, and then the prefix.
    XPub = 9,
}

/// A socket. It belongs to one thread at a time.
pub struct Socket {
    socket: NonNull<c_void>,
    context: Arc<Owned>,
    /// The timeouts that are set on the socket, in milliseconds: -1 for none, which is the default.
    sends_for: Cell<c_int>,
    receives_for: Cell<c_int>,
}

// SAFETY: libzmq permits a socket to move from one thread to another, if the first thread's calls
// happen before those of the other thread. A move in Rust ensures this. A socket is not `Sync`,
// since it has a pointer.
unsafe impl Send for Socket {}

impl Socket {
    pub(crate) fn open(context: Arc<Owned>, kind: Kind) -> Result<Socket, Error> {
        // SAFETY: the context lives.
        let socket = unsafe { raw::zmq_socket(context.pointer(), kind as c_int) };
        let socket = NonNull::new(socket).ok_or_else(Error::last)?;
        Ok(Socket { socket, context, sends_for: Cell::new(-1), receives_for: Cell::new(-1) })
    }

    /// Binds an endpoint, as `tcp://127.0.0.1:5556`, `ipc:///tmp/a` or `inproc://a`. For the TCP
    /// port `*`, the system chooses one.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// let socket = Context::new()?.socket(Kind::XPub)?;
    /// socket.bind("tcp://127.0.0.1:*")?;
    /// assert!(!socket.last_endpoint()?.ends_with('*'));
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn bind(&self, endpoint: &str) -> Result<(), Error> {
        let endpoint = text(endpoint)?;
        // SAFETY: the socket is open, and the text ends with a zero.
        check(unsafe { raw::zmq_bind(self.pointer(), endpoint.as_ptr()) }).map(drop)
    }

    /// Connects to an endpoint, and reconnects whenever the connection has ended. Does not wait.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// Context::new()?.socket(Kind::Sub)?.connect("tcp://127.0.0.1:5556")?;
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn connect(&self, endpoint: &str) -> Result<(), Error> {
        let endpoint = text(endpoint)?;
        // SAFETY: the socket is open, and the text ends with a zero.
        check(unsafe { raw::zmq_connect(self.pointer(), endpoint.as_ptr()) }).map(drop)
    }

    /// Returns the endpoint that was bound or connected last, with the port that the system has
    /// chosen.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// let socket = Context::new()?.socket(Kind::Pull)?;
    /// socket.bind("inproc://b")?;
    /// assert_eq!(socket.last_endpoint()?, "inproc://b");
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn last_endpoint(&self) -> Result<String, Error> {
        let (mut bytes, mut size) = ([0_u8; 1024], 1024);
        // SAFETY: the socket is open; libzmq writes `size` bytes at most, and says how many.
        check(unsafe {
            raw::zmq_getsockopt(self.pointer(), raw::LAST_ENDPOINT, bytes.as_mut_ptr().cast(), &mut size)
        })?;
        let text = bytes.get(..size.saturating_sub(1)).unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Sends a message of these frames to all that want it. Returns false if it would have to wait
    /// for longer than `wait`; then nothing was sent. Signals do not end the wait.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind, Wait};
    /// let socket = Context::new()?.socket(Kind::Push)?;
    /// assert!(!socket.send(&[b"nobody pulls"], Wait::No)?);
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn send(&self, frames: &[&[u8]], wait: Wait) -> Result<bool, Error> {
        let began = Instant::now();
        let mut flags = self.prepare(wait, raw::SNDTIMEO, &self.sends_for)?;
        for (at, frame) in frames.iter().enumerate() {
            let more = if at + 1 < frames.len() { raw::SNDMORE } else { 0 };
            loop {
                // SAFETY: the socket is open, and libzmq copies the bytes before it returns.
                let sent = unsafe { raw::zmq_send(self.pointer(), frame.as_ptr().cast(), frame.len(), flags | more) };
                match check(sent) {
                    Ok(_) => break,
                    Err(error) if error.is_interrupted() => {
                        flags = self.prepare(wait.after(began.elapsed()), raw::SNDTIMEO, &self.sends_for)?;
                    }
                    Err(error) if error.is_again() && at == 0 => return Ok(false),
                    // libzmq has accepted the frames before this one.
                    Err(error) if error.is_again() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(true)
    }

    /// Receives the next frame. Returns false if none arrived in time. Signals do not end the wait.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind, Message, Wait};
    /// let socket = Context::new()?.socket(Kind::Pull)?;
    /// assert!(!socket.receive(&mut Message::new(), Wait::Most(std::time::Duration::from_millis(1)))?);
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn receive(&self, message: &mut Message, wait: Wait) -> Result<bool, Error> {
        let began = Instant::now();
        let mut flags = self.prepare(wait, raw::RCVTIMEO, &self.receives_for)?;
        loop {
            // SAFETY: the socket is open, and the frame was made by `zmq_msg_init`.
            match check(unsafe { raw::zmq_msg_recv(message.raw(), self.pointer(), flags) }) {
                Ok(_) => return Ok(true),
                Err(error) if error.is_interrupted() => {
                    flags = self.prepare(wait.after(began.elapsed()), raw::RCVTIMEO, &self.receives_for)?;
                }
                Err(error) if error.is_again() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether something can be received at once.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// assert!(!Context::new()?.socket(Kind::Pull)?.is_readable()?);
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn is_readable(&self) -> Result<bool, Error> {
        let (mut events, mut size): (c_int, usize) = (0, size_of::<c_int>());
        let value: *mut c_int = &mut events;
        // SAFETY: the socket is open; libzmq writes an `int`.
        check(unsafe { raw::zmq_getsockopt(self.pointer(), raw::EVENTS, value.cast(), &mut size) })?;
        Ok(events & c_int::from(raw::POLLIN) != 0)
    }

    /// Returns a descriptor that becomes readable when the socket may have become readable: then
    /// check [`Socket::is_readable`]. The descriptor must not be read. Fails if the process has too
    /// many.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind, wait};
    /// use std::{os::fd::AsFd as _, time::Duration};
    /// let socket = Context::new()?.socket(Kind::XPub)?;
    /// let changed = socket.changes()?;
    /// wait(&[], &[changed.as_fd()], Duration::ZERO)?;
    /// assert!(!socket.is_readable()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn changes(&self) -> io::Result<OwnedFd> {
        let (mut fd, mut size): (c_int, usize) = (-1, size_of::<c_int>());
        let value: *mut c_int = &mut fd;
        // SAFETY: the socket is open; libzmq writes an `int`.
        let got = check(unsafe { raw::zmq_getsockopt(self.pointer(), raw::FD, value.cast(), &mut size) });
        if got.is_err() || fd < 0 {
            return Err(io::ErrorKind::NotConnected.into());
        }
        // SAFETY: the descriptor is open for as long as the socket is, and the result is a
        // duplicate.
        unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
    }

    /// Receives messages whose first frame begins with these bytes. For [`Kind::Sub`].
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// let socket = Context::new()?.socket(Kind::Sub)?;
    /// socket.subscribe(b"pumps")?;
    /// socket.unsubscribe(b"pumps")?;
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn subscribe(&self, prefix: &[u8]) -> Result<(), Error> {
        self.set_bytes(raw::SUBSCRIBE, prefix)
    }

    /// Ends one subscription by [`Socket::subscribe`].
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// assert!(Context::new()?.socket(Kind::Push)?.unsubscribe(b"a").is_err(), "it has none");
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn unsubscribe(&self, prefix: &[u8]) -> Result<(), Error> {
        self.set_bytes(raw::UNSUBSCRIBE, prefix)
    }

    /// Sets how long the socket continues to send after it was closed.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// Context::new()?.socket(Kind::Push)?.set_linger(std::time::Duration::from_secs(1))?;
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn set_linger(&self, linger: Duration) -> Result<(), Error> {
        self.set(raw::LINGER, milliseconds(linger))
    }

    /// Sets the first and the longest pause between attempts to connect.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// let [first, longest] = [10, 1000].map(std::time::Duration::from_millis);
    /// Context::new()?.socket(Kind::Sub)?.set_reconnect(first, longest)?;
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn set_reconnect(&self, first: Duration, longest: Duration) -> Result<(), Error> {
        self.set(raw::RECONNECT_IVL, milliseconds(first).max(1))?;
        self.set(raw::RECONNECT_IVL_MAX, milliseconds(longest))
    }

    /// Sets the high-water marks: how many messages may wait for a peer, and how many may have
    /// arrived and not been received. 0 means no limit.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// Context::new()?.socket(Kind::XPub)?.set_high_water_mark(1000)?;
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn set_high_water_mark(&self, messages: u32) -> Result<(), Error> {
        let messages = c_int::try_from(messages).unwrap_or(c_int::MAX);
        self.set(raw::SNDHWM, messages)?;
        self.set(raw::RCVHWM, messages)
    }

    /// Sets the maximum length of a peer's frames in bytes. The connection ends if a frame is
    /// longer.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// Context::new()?.socket(Kind::Sub)?.set_longest_frame(1 << 20)?;
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn set_longest_frame(&self, bytes: usize) -> Result<(), Error> {
        self.set_bytes(raw::MAXMSGSIZE, &i64::try_from(bytes).unwrap_or(i64::MAX).to_ne_bytes())
    }

    /// Sets whether host names and addresses may be those of IPv6. The default is false.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// Context::new()?.socket(Kind::Sub)?.set_ipv6(true)?;
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn set_ipv6(&self, is_on: bool) -> Result<(), Error> {
        self.set(raw::IPV6, c_int::from(is_on))
    }

    /// Sends heartbeats to silent peers at this interval, and ends the connection of a peer that
    /// does not answer for as long.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// Context::new()?.socket(Kind::Sub)?.set_heartbeat(std::time::Duration::from_secs(5))?;
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn set_heartbeat(&self, pause: Duration) -> Result<(), Error> {
        self.set(raw::HEARTBEAT_IVL, milliseconds(pause))
    }

    /// Sets what happens to a message when the queue of one of its subscribers is full. With true,
    /// sending waits, and no subscriber receives the message. With false, which is the default, the
    /// subscribers with room receive it. For [`Kind::XPub`].
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// Context::new()?.socket(Kind::XPub)?.set_no_drop(true)?;
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn set_no_drop(&self, is_on: bool) -> Result<(), Error> {
        self.set(raw::XPUB_NODROP, c_int::from(is_on))
    }

    /// Creates a monitor, which receives the events of this socket's connections from now on.
    ///
    /// ```
    /// use polywire_zeromq::{Context, Kind};
    /// let socket = Context::new()?.socket(Kind::Sub)?;
    /// assert!(socket.monitor()?.next()?.is_none());
    /// # Ok::<(), polywire_zeromq::Error>(())
    /// ```
    pub fn monitor(&self) -> Result<Monitor, Error> {
        let (endpoint, name) = Monitor::endpoint();
        let events = raw::HANDSHAKE_SUCCEEDED | raw::DISCONNECTED;
        // SAFETY: the socket is open, and the text ends with a zero.
        check(unsafe { raw::zmq_socket_monitor(self.pointer(), name.as_ptr(), events) })?;
        Monitor::new(Socket::open(self.context.clone(), Kind::Pair)?, &endpoint)
    }

    pub(crate) fn pointer(&self) -> *mut c_void {
        self.socket.as_ptr()
    }

    /// Sets the socket's timeout for a call that waits like this, and returns the call's flags.
    fn prepare(&self, wait: Wait, option: c_int, set: &Cell<c_int>) -> Result<c_int, Error> {
        let time = match wait {
            Wait::No => return Ok(raw::DONTWAIT),
            Wait::Most(time) => milliseconds(time).max(1),
            Wait::Forever => -1,
        };
        if set.get() != time {
            self.set(option, time)?;
            set.set(time);
        }
        Ok(0)
    }

    fn set(&self, option: c_int, value: c_int) -> Result<(), Error> {
        self.set_bytes(option, &value.to_ne_bytes())
    }

    fn set_bytes(&self, option: c_int, value: &[u8]) -> Result<(), Error> {
        // SAFETY: the socket is open, and libzmq reads as many bytes as it is told.
        check(unsafe { raw::zmq_setsockopt(self.pointer(), option, value.as_ptr().cast(), value.len()) }).map(drop)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: the socket is open, and is not used again.
        let closed = check(unsafe { raw::zmq_close(self.pointer()) });
        debug_assert!(closed.is_ok(), "it is a socket: {closed:?}");
    }
}

fn text(endpoint: &str) -> Result<CString, Error> {
    CString::new(endpoint).map_err(|_| Error::invalid())
}

fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}
