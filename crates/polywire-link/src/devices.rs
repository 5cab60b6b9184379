//! Whole packets between two devices: one thread, which waits for either or for the next arrival.

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

use crate::{Shared, capture::Side};

/// Packets that are taken from one device before the other has its turn.
const TURN: usize = 64;

/// It looks so often whether it is to end.
const LOOKS: u64 = 50_000_000;

/// Bytes of the largest packet.
const LARGEST: usize = 1 << 16;

/// What gives and takes whole packets and never blocks.
pub trait Device: AsFd + Send + 'static {
    /// The next packet that it has.
    ///
    /// # Errors
    /// If there is none for now.
    fn take(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Hands it a packet.
    ///
    /// # Errors
    /// If it does not take it, which loses it.
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

/// One end of a pair, for tests and for programs that make their own packets.
impl Device for UnixDatagram {
    fn take(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv(buffer)
    }

    fn give(&self, packet: &[u8]) -> io::Result<usize> {
        self.send(packet)
    }
}

/// Until the link is to end.
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

/// Hands over what has arrived; gives when the next one does.
fn deliver(here: &impl Device, there: &impl Device, shared: &Arc<Shared>, now: u64) -> Option<u64> {
    let mut state = shared.at(now);
    while let Some(arrival) = state.links.there.pop(now) {
        // A device that is down takes nothing, as an interface that is unplugged.
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
