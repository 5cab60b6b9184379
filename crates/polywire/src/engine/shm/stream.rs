//! The byte stream of a link: over the socket during the handshake, then through shared memory.

use std::{
    hint, io,
    net::Shutdown,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
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

/// The packet that informs the peer that this end has opened the peer's memory.
const READY: &[u8] = b"ready";
/// The packet that wakes the peer's reader.
const WAKE: &[u8] = &[1];
/// The maximum length of the name of the peer's memory, in bytes.
const NAME_BYTES: usize = 255;
/// The timeout for creating and opening the memories, as a multiple of the handshake's timeout.
/// Nodes that start at the same time share memory with each of the others, and a node that gives up
/// starts again. If the peer's process ends, the socket ends at once.
const MEMORIES: u32 = 6;
/// How long a writer polls for room before it sleeps between two polls. A reader that is busy with
/// a large message makes room sooner than a sleep ends.
const LOOKS: Duration = Duration::from_micros(100);
/// How long a writer in the middle of a frame waits for each part of it until the reader makes
/// room. Copying the rest of the frame takes longer.
const PATIENCE: Duration = Duration::from_micros(50);
/// The first and the longest pause between two polls for room at a slow peer.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(2)];

/// A connection between two nodes.
pub(super) struct ShmStream {
    /// A socket that preserves packet boundaries.
    socket: SocketStream,
    memory: Arc<Memory>,
    wait: Wait,
    shared: OnceLock<Shared>,
    /// This end has stopped writing.
    closed: AtomicBool,
}

/// Both directions, after the upgrade to shared memory.
struct Shared {
    outlet: Mutex<Outlet>,
    incoming: Mutex<Incoming>,
}

/// The state of the reading thread.
struct Incoming {
    inlet: Inlet,
    /// The name of the peer's memory.
    peer: String,
    timeout: Option<Duration>,
    reader: Reader,
    /// The socket has ended. Bytes that the peer wrote before are still read.
    ended: bool,
    /// The socket has ended, and not because this end closed it.
    has_gone: bool,
}

impl ShmStream {
    /// Creates a stream over a connected, blocking socket that preserves packet boundaries.
    pub(super) fn over(socket: Socket, peer: Principal, memory: Arc<Memory>, wait: Wait) -> Arc<dyn ByteStream> {
        let (shared, closed) = (OnceLock::new(), AtomicBool::new(false));
        Arc::new(ShmStream { socket: SocketStream::new(socket, peer), memory, wait, shared, closed })
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

    /// Writes as many bytes as there is room for, including room that the reader makes meanwhile.
    fn put(&self, shared: &Shared, bytes: &[u8]) -> io::Result<usize> {
        if self.closed.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut outlet = shared.outlet.lock();
        let (mut written, mut full) = (0, None);
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            let count = outlet.put(rest)?;
            written += count;
            if count > 0 {
                full = None;
            } else if written == 0 || full.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                break;
            } else {
                self.wake(&mut outlet);
                hint::spin_loop();
            }
        }
        if written == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // The reader is woken only now: if it wakes up earlier, it may take the processor from the
        // writer.
        self.wake(&mut outlet);
        Ok(written)
    }

    fn wake(&self, outlet: &mut Outlet) {
        if outlet.must_wake() {
            // If the socket is full, it contains wake-ups already. If the socket is broken, the
            // reading thread notices it.
            let _ = self.say(WAKE);
        }
    }

    /// Waits for bytes and reads them.
    fn take(&self, incoming: &mut Incoming, buffer: &mut [u8]) -> io::Result<usize> {
        let (mut looks, mut until) = (0, None);
        loop {
            let ended = incoming.ended;
            let taken = incoming.inlet.take(buffer)?;
            // `ended` was read before `take`: after the end, all bytes that were written before it
            // are there.
            if taken > 0 || ended {
                if looks > 0 {
                    incoming.reader.found();
                }
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
            incoming.inlet.unmap_released();
            if next == Next::Sleep {
                incoming.inlet.fall_asleep();
                let taken = incoming.inlet.take(buffer);
                if matches!(taken, Ok(0)) {
                    incoming.ended = self.sleep(left);
                    incoming.reader.slept();
                }
                incoming.inlet.awake();
                if !matches!(taken, Ok(0)) {
                    return taken;
                }
                looks = 0;
            } else {
                incoming.ended = self.has_ended(RecvFlags::DONTWAIT);
            }
            incoming.has_gone = incoming.ended && !self.closed.load(Ordering::Acquire);
        }
    }

    /// Sleeps until the socket is readable, or for this time. Returns whether the socket has ended.
    fn sleep(&self, time: Option<Duration>) -> bool {
        let Some(time) = time else { return self.has_ended(RecvFlags::empty()) };
        let time = Timespec::try_from(time).ok();
        let _ = poll(&mut [PollFd::new(&self.socket.0, PollFlags::IN)], time.as_ref());
        self.has_ended(RecvFlags::DONTWAIT)
    }

    /// Returns whether the socket has ended. Receives the wake-up packet, of which there is one for
    /// each sleep.
    fn has_ended(&self, flags: RecvFlags) -> bool {
        use rustix::io::Errno;
        match recv(&self.socket.0, &mut [0; 8], flags) {
            Ok((read, _)) => read == 0,
            Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }
}

impl ByteStream for ShmStream {
    #[inline]
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.shared.get() {
            Some(shared) => self.take(&mut shared.incoming.lock(), buffer),
            None => self.socket.read(buffer),
        }
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self.shared.get() {
            Some(shared) => {
                shared.incoming.lock().timeout = timeout;
                Ok(())
            }
            None => self.socket.set_read_timeout(timeout),
        }
    }

    /// Sends the name of this end's memory to the peer, and opens the peer's memory.
    fn upgrade(&self, patience: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(patience * MEMORIES))?;
        let half = self.memory.half()?;
        self.say(half.name.as_bytes())?;
        let mut words = [0; NAME_BYTES];
        let peer = String::from_utf8_lossy(self.listen(&mut words)?).into_owned();
        let (outlet, inlet) = self.memory.join(half, &peer)?;
        // A sample that is sent before its reader exists would be lost.
        self.say(READY)?;
        if self.listen(&mut words)? != READY {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer does not share memory as this node does"));
        }
        outlet.connect()?;
        self.socket.set_read_timeout(None)?;
        let incoming = Incoming { inlet, peer, timeout: None, reader: Reader::new(), ended: false, has_gone: false };
        let shared = Shared { outlet: Mutex::new(outlet), incoming: Mutex::new(incoming) };
        // `upgrade` is called once.
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

    /// Polls with pauses: a writer that waits here is slowed down by its peer anyway.
    fn wait_writable(&self, timeout: Duration) {
        let Some(shared) = self.shared.get() else { return self.socket.wait_writable(timeout) };
        let (began, [mut pause, longest]) = (Instant::now(), PAUSES);
        while !self.closed.load(Ordering::Acquire) && !shared.outlet.lock().has_room() {
            let waited = began.elapsed();
            if waited >= timeout {
                return;
            } else if waited < LOOKS {
                thread::yield_now();
            } else {
                thread::sleep(pause);
                pause = (2 * pause).min(longest);
            }
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
        let incoming = shared.incoming.into_inner();
        let gone = incoming.has_gone.then(|| incoming.peer.clone());
        drop((shared.outlet, incoming));
        if let Some(peer) = gone {
            self.memory.sweep(&peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, sync::atomic::AtomicU64};

    use polywire_core::{envelope::Id128, frame::Hello};
    use polywire_testing::Folder;
    use rustix::process::geteuid;
    use socket2::{Domain, Type};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn memory(folder: &Folder) -> Arc<Memory> {
        static NODES: AtomicU64 = AtomicU64::new(0);
        let hello = Hello { node: Id128::ZERO, incarnation: NODES.fetch_add(1, Ordering::Relaxed) };
        Arc::new(Memory::open(folder.path(), &hello).expect("memory"))
    }

    fn sockets() -> (Socket, Socket) {
        Socket::pair(Domain::UNIX, Type::SEQPACKET, None).expect("sockets")
    }

    fn over(socket: Socket, memory: Arc<Memory>, wait: Wait) -> Arc<dyn ByteStream> {
        ShmStream::over(socket, Principal::User(geteuid().as_raw()), memory, wait)
    }

    /// Two ends that share memory.
    fn pair(folder: &Folder, waits: [Wait; 2]) -> [Arc<dyn ByteStream>; 2] {
        let (here, there) = sockets();
        let (here, there) = (over(here, memory(folder), waits[0]), over(there, memory(folder), waits[1]));
        thread::scope(|scope| {
            let met = scope.spawn(|| here.upgrade(SOON));
            there.upgrade(SOON).expect("met");
            met.join().expect("no panic").expect("met");
        });
        [here, there]
    }

    /// Both ends send this many bytes at the same time. The value of each byte is its position.
    fn exchange(ends: &[Arc<dyn ByteStream>; 2], bytes: usize) {
        let send = |end: &dyn ByteStream| {
            let (all, mut sent) = ((0..bytes).map(|at| at as u8).collect::<Vec<u8>>(), 0);
            while sent < bytes {
                match end.write(&all[sent..]) {
                    Ok(count) => sent += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => end.wait_writable(SOON),
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let receive = |end: &dyn ByteStream| {
            let (mut came, mut buffer) = (0, vec![0; 10_000]);
            while came < bytes {
                let count = end.read(&mut buffer).expect("more comes");
                assert!(count > 0 && (came..).zip(&buffer[..count]).all(|(at, byte)| at as u8 == *byte));
                came += count;
            }
        };
        thread::scope(|scope| {
            for end in ends {
                scope.spawn(|| send(&**end));
                scope.spawn(|| receive(&**end));
            }
        });
    }

    #[test]
    fn both_ends_send_more_than_there_is_room_for() {
        let folder = Folder::new("exchange");
        for waits in [[Wait::Event; 2], [Wait::Spin, Wait::Event], [Wait::Spin; 2]] {
            let ends = pair(&folder, waits);
            [1, 5000, 3_000_000].iter().for_each(|bytes| exchange(&ends, *bytes));
        }
    }

    #[test]
    fn readers_that_sleep_are_woken() {
        let folder = Folder::new("sleep");
        for wait in [Wait::Event, Wait::Spin] {
            let ends = pair(&folder, [wait; 2]);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut buffer = [0; 16];
                    while matches!(ends[1].read(&mut buffer), Ok(1..)) {
                        ends[1].write(&buffer[..1]).expect("there is room");
                    }
                });
                for turn in 0..2000u32 {
                    // In some turns the reader polls, and in others it sleeps.
                    if turn.is_multiple_of(100) {
                        thread::sleep(Duration::from_millis(3));
                    }
                    ends[0].write(&[turn as u8]).expect("there is room");
                    let mut buffer = [0; 16];
                    assert_eq!((ends[0].read(&mut buffer).expect("an echo"), buffer[0]), (1, turn as u8));
                }
                ends[0].shutdown(Shutdown::Both);
            });
        }
    }

    #[test]
    fn a_read_ends_with_its_time_or_with_the_other_end() {
        let folder = Folder::new("end");
        for wait in [Wait::Event, Wait::Spin] {
            let [here, there] = pair(&folder, [wait; 2]);
            here.set_read_timeout(Some(Duration::from_millis(5))).expect("a time-out");
            let mut buffer = [0; 16];
            assert_eq!(here.read(&mut buffer).map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
            here.set_read_timeout(None).expect("none");
            there.write(b"last").expect("there is room");
            there.shutdown(Shutdown::Write);
            assert_eq!(there.write(b"more").map_err(|error| error.kind()), Err(io::ErrorKind::BrokenPipe));
            // Bytes that were written before the end arrive, even if the writer has been dropped.
            here.write(b"way back").expect("there is room");
            assert_eq!(there.read(&mut buffer).expect("the way back is open"), 8);
            drop(there);
            assert_eq!((here.read(&mut buffer).expect("the last"), &buffer[..4]), (4, &b"last"[..]));
            assert_eq!(here.read(&mut buffer).expect("the end"), 0);
            assert_eq!(here.read(&mut buffer).expect("it stays the end"), 0);
        }
    }

    #[test]
    fn a_read_ends_when_its_own_end_closes() {
        let folder = Folder::new("close");
        for wait in [Wait::Event, Wait::Spin] {
            let [here, _there] = pair(&folder, [wait; 2]);
            thread::scope(|scope| {
                let reading = scope.spawn(|| here.read(&mut [0; 16]));
                thread::sleep(Duration::from_millis(20));
                here.shutdown(Shutdown::Both);
                assert!(matches!(reading.join().expect("no panic"), Ok(0)));
            });
        }
    }

    #[test]
    fn strangers_that_do_not_keep_to_the_rules_are_refused() {
        let folder = Folder::new("stranger");
        let there = memory(&folder);
        let named = there.half().expect("a half");
        let cases: [&[&[u8]]; 7] = [
            &[],
            &[b"nobody/0"],
            &[&[0xff; 200]],
            &[&[b'x'; 4096]],
            &[b" "],
            &[named.name.as_bytes()],
            &[named.name.as_bytes(), b"not ready"],
        ];
        for packets in cases {
            let (ours, stranger) = sockets();
            let end = over(ours, memory(&folder), Wait::Event);
            for packet in packets {
                stranger.send(packet).expect("sent");
            }
            stranger.shutdown(Shutdown::Write).expect("shut");
            assert!(end.upgrade(SOON).is_err(), "{packets:?}");
            assert!((&stranger).read(&mut [0; 255]).is_ok(), "it was told the name");
        }
        // A peer that sends nothing.
        let (ours, _stranger) = sockets();
        let refused = over(ours, memory(&folder), Wait::Event).upgrade(Duration::from_millis(50));
        assert_eq!(refused.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
    }
}
