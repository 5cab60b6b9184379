//! The byte stream of a link: over the socket until the nodes have met, then through shared memory.

use std::{
    io,
    net::Shutdown,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvFlags, recv},
};
use socket2::Socket;

use super::{
    memory::{Inlet, Memory, Outlet},
    wait::{Next, Reader, Wait},
};
use crate::engine::{Principal, sockets::SocketStream, stream::ByteStream};

/// Says on the socket that this end has opened the memory of the other one.
const READY: &[u8] = b"ready";
/// Says on the socket that the reader is to wake up.
const WAKE: &[u8] = &[1];
/// Longest name of the peer's memory.
const NAME_BYTES: usize = 255;
/// First and longest pause between two looks whether a slow peer has made room.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(2)];

/// A connection between two nodes.
pub(super) struct ShmStream {
    /// Keeps the boundaries of what is written to it.
    socket: SocketStream,
    memory: Arc<Memory>,
    wait: Wait,
    shared: OnceLock<Shared>,
    /// This end writes no more.
    closed: AtomicBool,
}

/// Both directions, once the nodes have met.
struct Shared {
    outlet: Mutex<Outlet>,
    incoming: Mutex<Incoming>,
}

/// What the reading thread has.
struct Incoming {
    inlet: Inlet,
    timeout: Option<Duration>,
    reader: Reader,
    /// The other end has closed, or its process has ended. What it wrote before is still read.
    ended: bool,
    /// It has ended, and not because this end closed.
    has_gone: bool,
}

impl ShmStream {
    /// Over a connected, blocking socket that keeps boundaries.
    pub(super) fn over(socket: Socket, peer: Principal, memory: Arc<Memory>, wait: Wait) -> Arc<dyn ByteStream> {
        let (shared, closed) = (OnceLock::new(), AtomicBool::new(false));
        Arc::new(ShmStream { socket: SocketStream(socket, peer), memory, wait, shared, closed })
    }

    fn say(&self, words: &[u8]) -> io::Result<()> {
        match self.socket.write(words)? {
            written if written == words.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn listen<'a>(&self, words: &'a mut [u8]) -> io::Result<&'a [u8]> {
        match self.socket.read(words) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer could not share memory")),
            Ok(read) => Ok(words.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the peer did not share memory in time"))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes what there is room for.
    fn put(&self, shared: &Shared, bytes: &[u8]) -> io::Result<usize> {
        if self.closed.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut outlet = lock(&shared.outlet);
        match outlet.put(bytes)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            written => {
                if outlet.must_wake() {
                    // If the socket is full, the reader has been woken. If it is broken, the
                    // reading thread notices.
                    let _ = self.say(WAKE);
                }
                Ok(written)
            }
        }
    }

    /// Waits for bytes and reads them.
    fn take(&self, incoming: &mut Incoming, buffer: &mut [u8]) -> io::Result<usize> {
        let (mut looks, mut until) = (0, None);
        loop {
            let ended = incoming.ended;
            let taken = incoming.inlet.take(buffer)?;
            // What was written before the end has come, once the end has.
            if taken > 0 || ended {
                return Ok(taken);
            }
            looks += 1;
            let next = incoming.reader.next(self.wait, looks);
            if next == Next::Look {
                continue;
            }
            let timeout = incoming.timeout;
            let until = *until.get_or_insert_with(|| timeout.map(|timeout| Instant::now() + timeout));
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if next == Next::Sleep {
                incoming.inlet.fall_asleep();
                let taken = incoming.inlet.take(buffer);
                if matches!(taken, Ok(0)) {
                    self.sleep(left);
                }
                incoming.inlet.awake();
                if !matches!(taken, Ok(0)) {
                    return taken;
                }
                looks = 0;
            }
            incoming.ended = self.has_ended();
            incoming.has_gone = incoming.ended && !self.closed.load(Ordering::Acquire);
        }
    }

    /// Sleeps until the socket has something to say, or for this time.
    fn sleep(&self, time: Option<Duration>) {
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let _ = poll(&mut [PollFd::new(&self.socket.0, PollFlags::IN)], time.as_ref());
    }

    /// Whether the socket has ended. Takes from it what it says.
    fn has_ended(&self) -> bool {
        let mut words = [0; NAME_BYTES];
        loop {
            match recv(&self.socket.0, &mut words, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return true,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return false,
                Err(_) => return true,
            }
        }
    }
}

impl ByteStream for ShmStream {
    #[inline]
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.shared.get() {
            Some(shared) => self.take(&mut lock(&shared.incoming), buffer),
            None => self.socket.read(buffer),
        }
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self.shared.get() {
            Some(shared) => {
                lock(&shared.incoming).timeout = timeout;
                Ok(())
            }
            None => self.socket.set_read_timeout(timeout),
        }
    }

    /// Tells the peer the name of this end's memory, and opens that of the peer.
    fn upgrade(&self, patience: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(patience))?;
        let half = self.memory.half()?;
        self.say(half.name.as_bytes())?;
        let mut words = [0; NAME_BYTES];
        let name = str::from_utf8(self.listen(&mut words)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        let (outlet, inlet) = self.memory.join(half, name)?;
        // A sample that is sent before its reader is there would be lost.
        self.say(READY)?;
        if self.listen(&mut words)? != READY {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer does not share memory as this node does"));
        }
        let incoming = Incoming { inlet, timeout: None, reader: Reader::new(), ended: false, has_gone: false };
        let shared = Shared { outlet: Mutex::new(outlet), incoming: Mutex::new(incoming) };
        // Called once.
        let _ = self.shared.set(shared);
        Ok(())
    }

    #[inline]
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.shared.get() {
            Some(shared) => self.put(shared, bytes),
            None => self.socket.write(bytes),
        }
    }

    /// Looks from time to time: a writer that waits here is slowed down by its peer anyway.
    fn wait_writable(&self, timeout: Duration) {
        let Some(shared) = self.shared.get() else { return self.socket.wait_writable(timeout) };
        let (until, [mut pause, longest]) = (Instant::now() + timeout, PAUSES);
        while !self.closed.load(Ordering::Acquire) && !lock(&shared.outlet).has_room() && Instant::now() < until {
            thread::sleep(pause);
            pause = (2 * pause).min(longest);
        }
    }

    fn shutdown(&self, how: Shutdown) {
        self.closed.fetch_or(how != Shutdown::Read, Ordering::AcqRel);
        self.socket.shutdown(how);
    }

    fn principal(&self) -> Principal {
        self.socket.principal()
    }
}

impl Drop for ShmStream {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        let incoming = shared.incoming.into_inner().unwrap_or_else(PoisonError::into_inner);
        let has_gone = incoming.has_gone;
        drop((incoming, shared.outlet));
        if has_gone {
            self.memory.sweep();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
