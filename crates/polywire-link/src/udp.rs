//! Forwards datagrams for [`Emulator::udp`](crate::Emulator::udp). One thread owns all sockets. It
//! waits for a datagram of any socket or for the next arrival on the link.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::{
    capture::{Packet, Side},
    shared::{Emulation, Shared},
};

/// Maximum number of senders. Datagrams of further senders are not forwarded.
const MAX_SENDERS: usize = 1024;

/// Datagrams that are read from one socket before others have their turn.
const TURN: usize = 64;

/// Interval at which the thread checks whether the link has ended.
const LOOKS: u64 = 50_000_000;

/// Number of the newest packets of a direction whose senders are remembered. An older packet that
/// is still under way may be dropped when it arrives.
const REMEMBERED: u64 = 1 << 16;

pub struct Forwarder {
    socket: UdpSocket,
    to: SocketAddr,
    senders: Vec<Sender>,
    /// The sender of each packet by the packet's number, there and back.
    there: HashMap<u64, usize>,
    back: HashMap<u64, usize>,
    buffer: Vec<u8>,
}

/// A sender, and the socket at which the target sees it.
struct Sender {
    address: SocketAddr,
    socket: UdpSocket,
}

impl Forwarder {
    pub fn bind(listen: SocketAddr, to: SocketAddr) -> io::Result<Forwarder> {
        let socket = UdpSocket::bind(listen)?;
        socket.set_nonblocking(true)?;
        let (there, back) = (HashMap::new(), HashMap::new());
        Ok(Forwarder { socket, to, senders: Vec::new(), there, back, buffer: vec![0; 1 << 16] })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Runs until the link ends.
    pub fn run(mut self, shared: &Arc<Shared>) {
        while !shared.has_ended() {
            let now = shared.now();
            let next = {
                let mut state = shared.at(now);
                self.deliver(now, &mut state);
                state.links.next().map_or(LOOKS, |next| next.saturating_sub(now)).min(LOOKS)
            };
            if self.wait(next) {
                self.take(shared);
            }
        }
    }

    /// Forwards the datagrams that have arrived.
    fn deliver(&mut self, now: u64, state: &mut Emulation) {
        while let Some(arrival) = state.links.there.pop(now) {
            let Some(sender) = self.there.get(&arrival.number).and_then(|at| self.senders.get(*at)) else { continue };
            // A network does not notice that a target is missing.
            let _ = sender.socket.send(&arrival.packet);
            capture(state, Side::Target, arrival.at, sender.address, self.to, &arrival.packet);
        }
        while let Some(arrival) = state.links.back.pop(now) {
            let Some(sender) = self.back.get(&arrival.number).and_then(|at| self.senders.get(*at)) else { continue };
            let _ = self.socket.send_to(&arrival.packet, sender.address);
            capture(state, Side::Sender, arrival.at, self.to, sender.address, &arrival.packet);
        }
    }

    /// Waits for this time. Returns true if a socket may have a datagram.
    fn wait(&self, nanoseconds: u64) -> bool {
        let sockets = std::iter::once(&self.socket).chain(self.senders.iter().map(|sender| &sender.socket));
        let mut watched: Vec<PollFd<'_>> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(Duration::from_nanos(nanoseconds)).ok();
        !matches!(poll(&mut watched, timeout.as_ref()), Ok(0) | Err(Errno::INTR))
    }

    fn take(&mut self, shared: &Arc<Shared>) {
        for _ in 0..TURN {
            let Ok((len, from)) = self.socket.recv_from(&mut self.buffer) else { break };
            let Some(sender) = self.sender(from) else { continue };
            let packet = self.buffer[..len].to_vec();
            let now = shared.now();
            let mut state = shared.at(now);
            capture(&mut state, Side::Sender, now, from, self.to, &packet);
            remember(&mut self.there, state.links.there.stats().sent, sender);
            state.links.there.push(now, packet);
        }
        for at in 0..self.senders.len() {
            for _ in 0..TURN {
                let Ok(len) = self.senders[at].socket.recv(&mut self.buffer) else { break };
                let packet = self.buffer[..len].to_vec();
                let now = shared.now();
                let mut state = shared.at(now);
                capture(&mut state, Side::Target, now, self.to, self.senders[at].address, &packet);
                remember(&mut self.back, state.links.back.stats().sent, at);
                state.links.back.push(now, packet);
            }
        }
    }

    /// Returns the index of a sender, or `None` if there are too many. Opens a socket for a new
    /// sender.
    fn sender(&mut self, address: SocketAddr) -> Option<usize> {
        if let Some(known) = self.senders.iter().position(|sender| sender.address == address) {
            return Some(known);
        }
        if self.senders.len() == MAX_SENDERS {
            return None;
        }
        let any: SocketAddr = if self.to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 8], 0).into() };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(self.to).and_then(|()| socket.set_nonblocking(true)).ok()?;
        self.senders.push(Sender { address, socket });
        Some(self.senders.len() - 1)
    }
}

/// Remembers the sender of the packet with this number, which is the count of packets before it.
fn remember(senders: &mut HashMap<u64, usize>, number: u64, sender: usize) {
    senders.insert(number, sender);
    if senders.len() as u64 > 2 * REMEMBERED {
        senders.retain(|known, _| known + REMEMBERED > number);
    }
}

fn capture(state: &mut Emulation, side: Side, at: u64, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
    if let Some(capture) = &mut state.capture {
        capture.write(&Packet { side, at, from, to, stream: None, bytes });
    }
}
