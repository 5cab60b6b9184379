//! TLS over a byte stream: [`TlsStream`]. The transport in `mod.rs` makes it; the port's threads
//! use it. It uses no files, sockets or addresses itself.
//!
//! One lock guards the TLS connection. No thread waits while it holds the lock: the reading thread
//! waits for bytes of the stream below without it, and writes below never block.
//!
//! If the stream below is full, only a part of a record may leave. The bytes of the record can
//! neither be taken back nor encrypted again. [`ByteStream::write`] then reports one byte less than
//! it has encrypted. So the caller calls again with that byte, and this call sends the rest of the
//! record first.

use std::{
    io::{self, ErrorKind, Read as _, Write},
    net::Shutdown,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use rustls::Connection;

use super::explain;
use crate::engine::{Principal, stream::ByteStream};

/// Bytes that are encrypted at a time.
const CHUNK: usize = 64 << 10;
/// Bytes that are received at a time during the handshake, while the peer is not authenticated.
const HANDSHAKE_BYTES: usize = 4 << 10;
/// Bytes that are received at a time after the handshake.
const READ_BYTES: usize = 64 << 10;
/// Longest wait for room in the stream below before the handshake checks its deadline again.
const SEND_AGAIN: Duration = Duration::from_millis(20);

/// A byte stream within TLS. The first reads carry out the handshake; bytes written before its end
/// leave after it.
pub(super) struct TlsStream {
    below: Arc<dyn ByteStream>,
    state: Mutex<State>,
    /// State of the reading thread.
    reading: Mutex<Reading>,
    peer: OnceLock<Principal>,
}

struct State {
    tls: Connection,
    /// The handshake is over, and its bytes have left.
    is_settled: bool,
    /// The next byte that the caller writes is encrypted already, though `write` did not report it.
    is_owed: bool,
    /// The sending direction is closed.
    is_closed: bool,
}

struct Reading {
    timeout: Option<Duration>,
    /// Bytes received from the stream below; `from..to` is not yet decrypted.
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    /// A byte has arrived.
    has_heard: bool,
}

impl TlsStream {
    pub(super) fn new(below: Arc<dyn ByteStream>, tls: Connection) -> TlsStream {
        let reading = Reading { timeout: None, bytes: vec![0; HANDSHAKE_BYTES], from: 0, to: 0, has_heard: false };
        let state = State { tls, is_settled: false, is_owed: false, is_closed: false };
        TlsStream { below, state: Mutex::new(state), reading: Mutex::new(reading), peer: OnceLock::new() }
    }

    /// Carries out the handshake.
    pub(super) fn handshake(&self, timeout: Duration) -> io::Result<()> {
        let (mut reading, deadline) = (self.reading.lock(), Instant::now() + timeout);
        while let Some(sent) = self.settle() {
            self.advance(&mut reading, Some(sent), Some(deadline)).map_err(|e| match e.kind() {
                ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "the peer does not answer in TLS"),
                _ => e,
            })?;
        }
        self.below.set_read_timeout(reading.timeout)
    }

    /// Sends the bytes of the handshake, and returns the result. Returns `None` once the handshake
    /// is over and its bytes have left; writers send the bytes that the protocol adds later.
    fn settle(&self) -> Option<io::Result<()>> {
        let mut state = self.lock();
        if state.is_settled {
            return None;
        }
        let sent = self.send(&mut state);
        state.is_settled = sent.is_ok() && !state.tls.is_handshaking();
        (!state.is_settled).then_some(sent)
    }

    /// Sends the encrypted bytes.
    fn send(&self, state: &mut State) -> io::Result<()> {
        while state.tls.wants_write() {
            if state.tls.write_tls(&mut Below(&*self.below))? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Takes a step towards decrypted bytes: decrypts received bytes, or receives some first.
    /// During the handshake, `settling` is the result of [`TlsStream::settle`].
    fn advance(
        &self,
        reading: &mut Reading,
        settling: Option<io::Result<()>>,
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        if reading.from < reading.to {
            return self.decrypt(reading);
        }
        let (mut most, is_settling) = (READ_BYTES, settling.is_some());
        if let Some(sent) = settling {
            match sent {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    let left = left(deadline)?;
                    self.below.wait_writable(left.map_or(SEND_AGAIN, |left| left.min(SEND_AGAIN)));
                    return Ok(());
                }
                sent => sent?,
            }
            // Set before each read: a peer that sends byte by byte must not exceed the deadline.
            self.below.set_read_timeout(left(deadline)?)?;
            most = HANDSHAKE_BYTES;
        }
        reading.bytes.resize(most, 0);
        // If the read fails, no range of earlier bytes must remain: they were decrypted before.
        (reading.from, reading.to) = (0, 0);
        reading.to = match self.below.read(&mut reading.bytes) {
            // The peer closed before it had read the handshake bytes of this side.
            Err(e) if e.kind() == ErrorKind::ConnectionReset && is_settling => 0,
            read => read?,
        };
        reading.has_heard |= reading.to > 0;
        match reading.to {
            0 => self.ended(reading.has_heard),
            _ => self.decrypt(reading),
        }
    }

    /// Decrypts some of the received bytes, and sends the answers that the protocol requires.
    fn decrypt(&self, reading: &mut Reading) -> io::Result<()> {
        let mut state = self.lock();
        let mut bytes = reading.bytes.get(reading.from..reading.to).unwrap_or_default();
        match state.tls.read_tls(&mut bytes)? {
            // The peer has ended the TLS session. Bytes after that are not part of it.
            0 => reading.from = reading.to,
            taken => reading.from += taken,
        }
        let processed = state.tls.process_new_packets();
        // This also sends the alert that reports an error to the peer. The next write sends what
        // does not leave now. A failure here does not prevent reading what has arrived.
        let _ = self.send(&mut state);
        processed.map_err(|error| untrusted(explain::failure(&error)))?;
        if !state.tls.is_handshaking() && self.peer.get().is_none() {
            let _ = self.peer.set(principal(&state.tls)?);
        }
        Ok(())
    }

    /// Handles the end of the stream below.
    fn ended(&self, has_heard: bool) -> io::Result<()> {
        let mut state = self.lock();
        if state.tls.is_handshaking() {
            let reason = "the peer closed the connection before TLS was established: its log says why";
            // A peer that has not sent a byte has only checked whether somebody listens.
            let kind = if has_heard { ErrorKind::PermissionDenied } else { ErrorKind::UnexpectedEof };
            return Err(io::Error::new(kind, reason));
        }
        state.tls.read_tls(&mut io::empty())?;
        state.tls.process_new_packets().map_err(|error| untrusted(explain::failure(&error)))?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl ByteStream for TlsStream {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut reading = self.reading.lock();
        let mut deadline = None;
        loop {
            let mut state = self.lock();
            match state.tls.reader().read(buffer) {
                Ok(count) => return Ok(count),
                // The peer closed without notice in TLS. The frames show whether more bytes were to
                // follow.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            drop(state);
            let settling = self.settle();
            let was_settling = settling.is_some();
            if deadline.is_none() {
                deadline = reading.timeout.map(|timeout| Instant::now() + timeout);
            } else if reading.from == reading.to {
                left(deadline)?;
            }
            self.advance(&mut reading, settling, deadline)?;
            if was_settling {
                self.below.set_read_timeout(reading.timeout)?;
            }
        }
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.reading.lock().timeout = timeout;
        self.below.set_read_timeout(timeout)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.send(&mut state)?;
        state.is_settled |= !state.tls.is_handshaking();
        let mut done = match bytes.is_empty() {
            true => 0,
            false => usize::from(std::mem::take(&mut state.is_owed)),
        };
        while done < bytes.len() {
            let chunk = &bytes[done..bytes.len().min(done + CHUNK)];
            let taken = state.tls.writer().write(chunk)?;
            done += taken;
            match self.send(&mut state) {
                Ok(()) if taken > 0 => {}
                // Before the end of the handshake, the library buffers only a limited number of
                // bytes.
                Ok(()) if done == 0 => return Err(ErrorKind::WouldBlock.into()),
                Ok(()) => break,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(state.owe(done)),
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn wait_writable(&self, timeout: Duration) {
        self.below.wait_writable(timeout);
    }

    fn shutdown(&self, how: Shutdown) {
        if how != Shutdown::Read {
            let mut state = self.lock();
            if !std::mem::replace(&mut state.is_closed, true) {
                state.tls.send_close_notify();
                // If the stream is full, the bytes that remain are lost: this call does not wait.
                let _ = self.send(&mut state);
            }
        }
        self.below.shutdown(how);
    }

    fn is_own_end(&self) -> bool {
        self.below.is_own_end()
    }

    fn has_moved(&self) -> bool {
        self.below.has_moved()
    }

    fn principal(&self) -> Principal {
        self.peer.get().cloned().unwrap_or_default()
    }
}

impl State {
    /// Returns how many bytes to report as written if the record with the last of `done` bytes has
    /// not left. A single byte is reported at once: there is none with which the caller would call
    /// again. The next call of any kind sends the rest of its record.
    fn owe(&mut self, done: usize) -> usize {
        self.is_owed = done > 1;
        done - usize::from(self.is_owed)
    }
}

/// The stream below, to which TLS records are written.
struct Below<'a>(&'a dyn ByteStream);

impl Write for Below<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the time until `deadline`, as a time-out. Fails with `WouldBlock` when it has passed.
fn left(deadline: Option<Instant>) -> io::Result<Option<Duration>> {
    let Some(deadline) = deadline else { return Ok(None) };
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::WouldBlock.into()) } else { Ok(Some(left)) }
}

/// Returns who the peer has proven to be.
fn principal(tls: &Connection) -> io::Result<Principal> {
    let certificate = tls.peer_certificates().and_then(|chain| chain.first());
    let parsed = certificate.and_then(|der| webpki::EndEntityCert::try_from(der).ok());
    let name = parsed.as_ref().and_then(|certificate| certificate.valid_dns_names().next());
    let named = name.map(|name| Principal::Certificate(name.to_ascii_lowercase()));
    named.ok_or_else(|| untrusted("the peer's certificate has no DNS name, by which it would be known".into()))
}

/// Returns an error that the port reports as [`Disconnect::Untrusted`](crate::engine::Disconnect).
fn untrusted(reason: String) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, reason)
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, thread};

    use parking_lot::Condvar;
    use rustls::{ClientConnection, ServerConnection, pki_types::ServerName};

    use super::{
        super::{credentials::Credentials, fleet::Fleet},
        *,
    };
    use crate::engine::Identity;

    /// One direction of a byte stream that accepts as many bytes as a seeded die says, often none.
    #[derive(Default)]
    struct Pipe {
        state: Mutex<(VecDeque<u8>, bool, u64)>,
        changed: Condvar,
    }

    /// A narrow byte stream within the process.
    struct Narrow {
        from: Arc<Pipe>,
        to: Arc<Pipe>,
        timeout: Mutex<Option<Duration>>,
    }

    fn pair(seed: u64) -> (Arc<dyn ByteStream>, Arc<dyn ByteStream>) {
        let (a, b) = (Arc::new(Pipe::default()), Arc::new(Pipe::default()));
        a.state.lock().2 = seed;
        b.state.lock().2 = seed ^ 0xFFFF;
        let end = |from: &Arc<Pipe>, to: &Arc<Pipe>| -> Arc<dyn ByteStream> {
            Arc::new(Narrow { from: from.clone(), to: to.clone(), timeout: Mutex::default() })
        };
        (end(&a, &b), end(&b, &a))
    }

    fn die(seed: &mut u64, sides: u64) -> usize {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((*seed >> 33) % sides) as usize
    }

    impl ByteStream for Narrow {
        fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
            let timeout = self.timeout.lock().unwrap_or(Duration::from_secs(20));
            let empty = |state: &mut (VecDeque<u8>, bool, u64)| state.0.is_empty() && !state.1;
            let mut state = self.from.state.lock();
            self.from.changed.wait_while_for(&mut state, empty, timeout);
            if state.0.is_empty() {
                return if state.1 { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
            }
            let most = 1 + die(&mut state.2, 20_000);
            let count = most.min(buffer.len()).min(state.0.len());
            buffer[..count].iter_mut().zip(state.0.drain(..count)).for_each(|(to, from)| *to = from);
            self.from.changed.notify_all();
            Ok(count)
        }

        fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
            *self.timeout.lock() = timeout;
            Ok(())
        }

        fn write(&self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.to.state.lock();
            if state.1 {
                return Err(ErrorKind::BrokenPipe.into());
            }
            let room = 30_000_usize.saturating_sub(state.0.len());
            let wish = [0, 1, 7, 700, 20_000][die(&mut state.2, 5)];
            let count = wish.min(room).min(bytes.len());
            state.0.extend(&bytes[..count]);
            self.to.changed.notify_all();
            if count == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
        }

        fn wait_writable(&self, timeout: Duration) {
            let full = |state: &mut (VecDeque<u8>, bool, u64)| state.0.len() >= 30_000 && !state.1;
            self.to.changed.wait_while_for(&mut self.to.state.lock(), full, timeout);
        }

        fn shutdown(&self, how: Shutdown) {
            let ends = [(&self.to, Shutdown::Read), (&self.from, Shutdown::Write)];
            for (pipe, _) in ends.into_iter().filter(|(_, other)| how != *other) {
                pipe.state.lock().1 = true;
                pipe.changed.notify_all();
            }
        }
    }

    fn ends(fleet: &Fleet, seed: u64) -> (Arc<TlsStream>, Arc<TlsStream>) {
        let (here, there) = pair(seed);
        let credentials = |name: &str| {
            let files = fleet.member(&[name]);
            Credentials::read(&Identity::new(files.certificate, files.key, files.authority)).expect("an identity")
        };
        let host = ServerName::try_from("server").expect("a name");
        let client = ClientConnection::new(credentials("client").current().client, host).expect("a client");
        let server = ServerConnection::new(credentials("server").current().server).expect("a server");
        (Arc::new(TlsStream::new(here, client.into())), Arc::new(TlsStream::new(there, server.into())))
    }

    /// Writes as the port does: bytes that were not accepted are at the front of the next write.
    fn write_all(stream: &TlsStream, mut bytes: &[u8], seed: &mut u64) {
        while !bytes.is_empty() {
            let most = bytes.len().min([1, 2, 3, 1000, 70_000, 200_000][die(seed, 6)]);
            match stream.write(&bytes[..most]) {
                Ok(count) => {
                    assert!((1..=most).contains(&count));
                    bytes = &bytes[count..];
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => stream.wait_writable(Duration::from_millis(1)),
                Err(e) => panic!("{e}"),
            }
        }
    }

    fn read_all(stream: &TlsStream) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; 50_000]);
        loop {
            match stream.read(&mut buffer).expect("bytes or the end") {
                0 => return all,
                count => all.extend(&buffer[..count]),
            }
        }
    }

    #[test]
    fn every_byte_arrives_once_and_in_order_however_little_fits() {
        let fleet = Fleet::new();
        for seed in 0..20 {
            let (client, server) = ends(&fleet, seed);
            let text = |salt: u8| (0..300_000_u32).map(|i| (i % 251) as u8 ^ salt).collect::<Vec<u8>>();
            thread::scope(|scope| {
                let sides = [(&client, 1), (&server, 2)].map(|(stream, salt)| {
                    let reader = scope.spawn(|| read_all(stream));
                    scope.spawn(move || {
                        if salt == 1 {
                            // As in the port: the side that connects completes the handshake before
                            // it writes.
                            until_connected(stream);
                        }
                        write_all(stream, &text(salt), &mut (seed + u64::from(salt)));
                        // The last record may wait for room; the stream must not be closed before
                        // it has left.
                        while stream.lock().tls.wants_write() {
                            let _ = stream.write(&[]);
                            stream.wait_writable(Duration::from_millis(1));
                        }
                        stream.shutdown(Shutdown::Write);
                    });
                    reader
                });
                let [at_client, at_server] = sides.map(|reader| reader.join().expect("no panic"));
                assert!(at_client == text(2) && at_server == text(1), "seed {seed}");
            });
            assert_eq!(client.principal(), Principal::Certificate("server".into()));
            assert_eq!(server.principal(), Principal::Certificate("client".into()));
        }
    }

    #[test]
    fn reading_goes_on_after_a_time_out() {
        let fleet = Fleet::new();
        let (client, server) = ends(&fleet, 7);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut came, mut timeouts, mut buffer) = (Vec::new(), 0, [0; 1000]);
                while came.len() < 6 {
                    server.set_read_timeout(Some(Duration::from_millis(5))).expect("set");
                    match server.read(&mut buffer) {
                        Ok(0) => panic!("the end"),
                        Ok(count) => came.extend(&buffer[..count]),
                        Err(e) if e.kind() == ErrorKind::WouldBlock => timeouts += 1,
                        Err(e) => panic!("after {timeouts} time-outs: {e}"),
                    }
                }
                assert_eq!((came.as_slice(), timeouts > 0), (b"onetwo".as_slice(), true));
            });
            let from_server = scope.spawn(|| client.read(&mut [0; 1000]));
            until_connected(&client);
            write_all(&client, b"one", &mut 1);
            // Longer than the time-out.
            thread::sleep(Duration::from_millis(100));
            write_all(&client, b"two", &mut 1);
            reader.join().expect("no panic");
            client.shutdown(Shutdown::Both);
            let _ = from_server.join();
        });
    }

    fn until_connected(stream: &TlsStream) {
        while stream.lock().tls.is_handshaking() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_partly_sent_record_keeps_its_last_byte_for_the_caller() {
        let (client, server) = ends(&Fleet::new(), 5);
        let accepted = server.clone();
        let reader = thread::spawn(move || read_all(&accepted));
        client.handshake(Duration::from_secs(20)).expect("a handshake");
        // The narrow stream takes at most 30,000 bytes while nobody reads.
        let bytes = vec![7; 200_000];
        let (mut written, mut short) = (0, 0);
        while written < bytes.len() {
            match client.write(&bytes[written..]) {
                Ok(count) => {
                    written += count;
                    let state = client.lock();
                    short += usize::from(state.is_owed);
                    assert_eq!(state.is_owed, state.tls.wants_write());
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(short > 0, "some record was sent in part");
        while client.lock().tls.wants_write() {
            let _ = client.write(&[]);
        }
        client.shutdown(Shutdown::Write);
        assert!(client.write(b"late").is_err());
        assert_eq!(reader.join().expect("no panic"), bytes);
    }
}
