//! A [`ByteStream`] over two file descriptors.

use std::{
    io::{self, PipeReader, PipeWriter},
    net::Shutdown,
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
};

use super::transport::ByteStream;

/// A byte stream that reads one file descriptor and writes another: the ends of two FIFOs or pipes,
/// the standard streams of a child process, a serial line.
///
/// Writing to a pipe that nobody reads raises `SIGPIPE`, which Rust programs ignore from the start;
/// a program that restores it has to ignore it while it uses such a stream.
///
/// ```
/// use polywire::engine::stream::{ByteStream, Descriptors};
/// let ((read_a, write_b), (read_b, write_a)) = (std::io::pipe()?, std::io::pipe()?);
/// let (a, b) = (Descriptors::new(read_a, write_a)?, Descriptors::new(read_b, write_b)?);
/// let mut buffer = [0; 8];
/// assert_eq!((a.write(b"abc")?, b.read(&mut buffer)?), (3, 3));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Descriptors {
    reader: OwnedFd,
    /// `None` once the direction is closed.
    writer: Mutex<Option<Arc<OwnedFd>>>,
    timeout: Mutex<Option<Duration>>,
    /// Becomes readable when `waker` is dropped, and so ends a blocked read.
    woken: PipeReader,
    waker: Mutex<Option<PipeWriter>>,
}

impl Descriptors {
    /// Takes the two descriptors and makes them non-blocking.
    pub fn new(reader: impl Into<OwnedFd>, writer: impl Into<OwnedFd>) -> io::Result<Self> {
        let (reader, writer) = (reader.into(), writer.into());
        for descriptor in [&reader, &writer] {
            fcntl_setfl(descriptor, fcntl_getfl(descriptor)? | OFlags::NONBLOCK)?;
        }
        let (woken, waker) = io::pipe()?;
        Ok(Descriptors {
            reader,
            writer: Mutex::new(Some(Arc::new(writer))),
            timeout: Mutex::new(None),
            woken,
            waker: Mutex::new(Some(waker)),
        })
    }

    fn writer(&self) -> io::Result<Arc<OwnedFd>> {
        self.writer.lock().clone().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl ByteStream for Descriptors {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let timeout = self.timeout.lock().and_then(|timeout| Timespec::try_from(timeout).ok());
        // A FIFO without a writer reads as ended, even before the first writer has opened it. So
        // wait for bytes or for the writer's end.
        let mut waited = [PollFd::new(&self.reader, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
        if poll(&mut waited, timeout.as_ref())? == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if !waited[1].revents().is_empty() {
            return Ok(0);
        }
        Ok(rustix::io::read(&self.reader, buffer)?)
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        *self.timeout.lock() = timeout;
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let writer = self.writer()?;
        loop {
            match rustix::io::write(&*writer, bytes) {
                Err(rustix::io::Errno::INTR) => {}
                written => return Ok(written?),
            }
        }
    }

    fn wait_writable(&self, timeout: Duration) {
        let (Ok(writer), Ok(timeout)) = (self.writer(), Timespec::try_from(timeout)) else { return };
        // An error shows at the next write.
        let _ = poll(&mut [PollFd::new(&*writer, PollFlags::OUT)], Some(&timeout));
    }

    fn shutdown(&self, how: Shutdown) {
        if how != Shutdown::Read {
            self.writer.lock().take();
        }
        if how != Shutdown::Write {
            self.waker.lock().take();
        }
    }
}
