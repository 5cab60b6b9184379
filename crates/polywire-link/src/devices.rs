//! Forwards whole packets between two devices for `Emulator::devices`. One thread waits for a
//! packet of either device or for the next arrival on the link.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixDatagram},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use tun_rs::SyncDevice;

use crate::{capture::Side, shared::Shared};

/// Packets that are read from one device before the other has its turn.
const TURN: usize = 64;

/// Interval at which the thread checks whether the link has ended.
const LOOKS: u64 = 50_000_000;

/// Bytes of the largest packet.
const LARGEST: usize = 1 << 16;

/// A source and sink of whole packets that never blocks.
pub trait Device: AsFd + Send + 'static {
    /// Reads the next packet and returns its length.
    ///
    /// # Errors
    /// `WouldBlock` if there is no packet now.
    fn take(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes a packet.
    ///
    /// # Errors
    /// Any error loses the packet.
    fn give(&self, packet: &[u8]) -> io::Result<usize>;
}

/// A TUN interface.
impl Device for SyncDevice {
    fn take(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv(buffer)
    }

    fn give(&self, packet: &[u8]) -> io::Result<usize> {
        self.send(packet)
    }
}

/// One end of a socket pair, for tests and for programs that make their own packets.
impl Device for UnixDatagram {
    fn take(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv(buffer)
    }

    fn give(&self, packet: &[u8]) -> io::Result<usize> {
        self.send(packet)
    }
}

/// Runs until the link ends.
pub fn run(here: &impl Device, there: &impl Device, shared: &Arc<Shared>) {
    let mut buffer = vec![0; LARGEST];
    while !shared.has_ended() {
        let now = shared.now();
        let next = deliver(here, there, shared, now).map_or(LOOKS, |next| next.saturating_sub(now)).min(LOOKS);
        let mut watched = [PollFd::new(here, PollFlags::IN), PollFd::new(there, PollFlags::IN)];
        let timeout = Timespec::try_from(Duration::from_nanos(next)).ok();
        if !matches!(poll(&mut watched, timeout.as_ref()), Ok(0) | Err(Errno::INTR)) {
            take(here, Side::Sender, shared, &mut buffer);
            take(there, Side::Target, shared, &mut buffer);
        }
    }
}

/// Writes the packets that have arrived; returns when the next one arrives.
fn deliver(here: &impl Device, there: &impl Device, shared: &Arc<Shared>, now: u64) -> Option<u64> {
    let mut state = shared.at(now);
    while let Some(arrival) = state.links.there.pop(now) {
        // A device that is down loses packets, as an unplugged interface does.
        let _ = there.give(&arrival.packet);
        if let Some(capture) = &mut state.capture {
            capture.write_ip(Side::Target, arrival.at, &arrival.packet);
        }
    }
    while let Some(arrival) = state.links.back.pop(now) {
        let _ = here.give(&arrival.packet);
        if let Some(capture) = &mut state.capture {
            capture.write_ip(Side::Sender, arrival.at, &arrival.packet);
        }
    }
    state.links.next()
}

fn take(device: &impl Device, side: Side, shared: &Arc<Shared>, buffer: &mut [u8]) {
    for _ in 0..TURN {
        let Ok(len) = device.take(buffer) else { return };
        let packet = buffer.get(..len).unwrap_or_default();
        let now = shared.now();
        let mut state = shared.at(now);
        if let Some(capture) = &mut state.capture {
            capture.write_ip(side, now, packet);
        }
        let link = if side == Side::Sender { &mut state.links.there } else { &mut state.links.back };
        link.push(now, packet.to_vec());
    }
}
