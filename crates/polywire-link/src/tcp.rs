//! Forwards connections for [`Emulator::tcp`](crate::Emulator::tcp). Two threads serve each
//! direction of a connection. One reads bytes and asks the link when they arrive; the other writes
//! them at that time. The number of bytes between them is bounded, so a slow link slows the sender
//! down.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use polywire_core::netsim::{Fate, Loss, Model};

use crate::{
    capture::{Packet, Side},
    shared::{Emulation, Shared},
};

/// Maximum number of bytes of one read.
const PIECE: usize = 16 << 10;

/// Maximum number of pieces under way in one direction of a connection.
const UNDER_WAY: usize = 64;

/// Interval at which threads check whether the link has ended, or is up again.
const LOOKS: Duration = Duration::from_millis(5);

/// The part of a model that affects a stream.
pub fn of_stream(model: &Model) -> Model {
    let mut model = model.clone();
    (model.loss, model.fragments, model.keep_order) = (Loss::None, None, true);
    (model.duplicate, model.corrupt, model.reorder) = (0.0, 0.0, 0.0);
    // The connections themselves bound the queue.
    model.queue_bytes = usize::MAX / 2;
    model
}

pub struct Proxy {
    listener: TcpListener,
    to: SocketAddr,
}

impl Proxy {
    pub fn bind(listen: SocketAddr, to: SocketAddr) -> io::Result<Proxy> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        Ok(Proxy { listener, to })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Runs until the link ends.
    pub fn run(self, shared: &Arc<Shared>) {
        while !shared.has_ended() {
            match self.listener.accept() {
                // A connection that fails is closed; the others continue.
                Ok((stream, from)) => drop(join(stream, from, self.to, shared)),
                Err(_) => thread::sleep(LOOKS),
            }
        }
    }
}

/// Connects to the target, and starts both directions of a connection.
fn join(stream: TcpStream, from: SocketAddr, to: SocketAddr, shared: &Arc<Shared>) -> io::Result<()> {
    let target = TcpStream::connect_timeout(&to, Duration::from_secs(10))?;
    for end in [&stream, &target] {
        end.set_nonblocking(false)?;
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(Duration::from_millis(50)))?;
    }
    let there = Direction { shared: shared.clone(), back: false, from, to, sent: 0 };
    let back = Direction { shared: shared.clone(), back: true, from: to, to: from, sent: 0 };
    there.start(stream.try_clone()?, target.try_clone()?);
    back.start(target, stream);
    Ok(())
}

struct Direction {
    shared: Arc<Shared>,
    back: bool,
    from: SocketAddr,
    to: SocketAddr,
    /// Number of bytes so far, from which the capture's sequence numbers are computed.
    sent: u32,
}

/// Bytes, the time at which they arrive, and the number of bytes before them.
type Piece = (u64, u32, Vec<u8>);

impl Direction {
    fn start(self, from: TcpStream, to: TcpStream) {
        let (pieces, arriving) = sync_channel::<Piece>(UNDER_WAY);
        let writer = Direction { shared: self.shared.clone(), ..self };
        thread::spawn(move || self.read(from, &pieces));
        thread::spawn(move || writer.write(to, &arriving));
    }

    /// Reads until the input or the writing thread ends.
    fn read(mut self, mut from: TcpStream, pieces: &SyncSender<Piece>) {
        let mut buffer = vec![0; PIECE];
        while !self.shared.has_ended() {
            let len = match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(len) => len,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
                Err(_) => return,
            };
            let at = self.arrival(&buffer[..len]);
            if pieces.send((at, self.sent, buffer[..len].to_vec())).is_err() {
                return;
            }
            self.sent = self.sent.wrapping_add(len as u32);
        }
    }

    /// The time at which bytes that are sent now arrive. Waits while the link is down, because TCP
    /// would send them again.
    fn arrival(&self, bytes: &[u8]) -> u64 {
        let side = if self.back { Side::Target } else { Side::Sender };
        loop {
            let now = self.shared.now();
            {
                let mut state = self.shared.at(now);
                let link = if self.back { &mut state.links.back } else { &mut state.links.there };
                // The link only counts the packet; the writing thread delivers the bytes.
                while link.pop(now).is_some() {}
                if let Fate::Arrives(at) = link.push(now, vec![0; bytes.len()]) {
                    self.capture(&mut state, side, now, self.sent, bytes);
                    return at;
                }
            }
            if self.shared.has_ended() {
                return now;
            }
            thread::sleep(LOOKS);
        }
    }

    fn write(self, mut to: TcpStream, pieces: &Receiver<Piece>) {
        let side = if self.back { Side::Sender } else { Side::Target };
        for (at, sent, bytes) in pieces {
            while let Some(left) = at.checked_sub(self.shared.now()).filter(|left| *left > 0) {
                if self.shared.has_ended() {
                    return;
                }
                thread::sleep(Duration::from_nanos(left).min(Duration::from_millis(50)));
            }
            let now = self.shared.now();
            let mut state = self.shared.at(now);
            self.capture(&mut state, side, now, sent, &bytes);
            drop(state);
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        // All bytes have arrived; the end of the stream follows.
        let _ = to.shutdown(Shutdown::Write);
    }

    fn capture(&self, state: &mut Emulation, side: Side, at: u64, sent: u32, bytes: &[u8]) {
        if let Some(capture) = &mut state.capture {
            capture.write(&Packet { side, at, from: self.from, to: self.to, stream: Some(sent), bytes });
        }
    }
}
