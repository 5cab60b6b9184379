//! Writes a capture of a link as pcapng (draft-ietf-opsawg-pcapng). A capture has two interfaces,
//! one at each end of the link. Payloads get made-up Ethernet, IP and UDP or TCP headers.

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    time::{SystemTime, UNIX_EPOCH},
};

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
/// Ethernet, because some readers refuse a file with two interfaces of raw IP.
const ETHERNET: u16 = 1;

/// Bytes of a packet that are kept at most.
const SNAP: usize = 65_535;

/// An end of the link. The value is the number of the end's interface in the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Sender = 0,
    Target = 1,
}

/// A packet at one end of the link.
pub struct Packet<'a> {
    pub side: Side,
    /// Nanoseconds since the link began.
    pub at: u64,
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// Bytes of the connection before these; `None` for a datagram.
    pub stream: Option<u32>,
    pub bytes: &'a [u8],
}

/// Writes a capture, until a write fails.
pub struct Capture {
    /// `None` after a write error.
    out: Option<Box<dyn Write + Send>>,
    /// When the link began, in nanoseconds since 1970.
    began: u64,
}

impl Capture {
    pub fn new(out: Box<dyn Write + Send>) -> io::Result<Capture> {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let mut capture = Capture { out: Some(out), began };
        let mut section = BYTE_ORDER.to_le_bytes().to_vec();
        // Version 1.0, unknown length.
        section.extend([1, 0, 0, 0]);
        section.extend(u64::MAX.to_le_bytes());
        capture.block(SECTION_HEADER, &section)?;
        for name in ["sender", "target"] {
            let mut interface = ETHERNET.to_le_bytes().to_vec();
            interface.extend([0, 0]);
            interface.extend((SNAP as u32).to_le_bytes());
            option(&mut interface, 2, name.as_bytes());
            // Timestamps are in nanoseconds.
            option(&mut interface, 9, &[9]);
            option(&mut interface, 0, &[]);
            capture.block(INTERFACE, &interface)?;
        }
        Ok(capture)
    }

    /// Writes a packet. A write error, as on a full disk, ends the capture but not the link.
    pub fn write(&mut self, packet: &Packet<'_>) {
        let mut bytes = headers(packet);
        bytes.extend_from_slice(packet.bytes);
        self.frame(packet.side, packet.at, &bytes);
    }

    /// Writes a packet that has its own IP header.
    #[cfg(all(feature = "hosts", target_os = "linux"))]
    pub fn write_ip(&mut self, side: Side, at: u64, packet: &[u8]) {
        let kind: [u8; 2] =
            if packet.first().is_some_and(|first| first >> 4 == 6) { [0x86, 0xDD] } else { [0x08, 0x00] };
        let station = |own: bool| [0x02, 0, 0, 0, 0, if own { 1 } else { 2 }];
        let stations = [station(side == Side::Target), station(side == Side::Sender)].concat();
        self.frame(side, at, &[&stations, &kind[..], packet].concat());
    }

    fn frame(&mut self, side: Side, at: u64, bytes: &[u8]) {
        let time = self.began + at;
        let mut body = (side as u32).to_le_bytes().to_vec();
        body.extend(((time >> 32) as u32).to_le_bytes());
        body.extend((time as u32).to_le_bytes());
        let kept = bytes.len().min(SNAP);
        body.extend((kept as u32).to_le_bytes());
        body.extend((bytes.len() as u32).to_le_bytes());
        body.extend_from_slice(&bytes[..kept]);
        pad(&mut body);
        let _ = self.block(ENHANCED_PACKET, &body);
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        let length = (body.len() as u32 + 12).to_le_bytes();
        let mut block = kind.to_le_bytes().to_vec();
        block.extend(length);
        block.extend_from_slice(body);
        block.extend(length);
        let written = out.write_all(&block).and_then(|()| out.flush());
        if written.is_err() {
            // Part of the block may be written. Readers accept a capture that ends there, but not
            // one that goes on.
            self.out = None;
        }
        written
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend_from_slice(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Returns an Ethernet header, and the IP and UDP or TCP headers that the packet would have without
/// the proxy.
fn headers(packet: &Packet<'_>) -> Vec<u8> {
    let (protocol, transport) = match packet.stream {
        None => (17, udp(packet)),
        Some(sequence) => (6, tcp(packet, sequence)),
    };
    let payload = transport.len() + packet.bytes.len();
    let mut out = ethernet(packet);
    let ip = match (packet.from.ip(), packet.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = u16::try_from(payload + 20).unwrap_or(u16::MAX).to_be_bytes();
            let mut ip = vec![0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
            ip.extend(from.octets());
            ip.extend(to.octets());
            let sum = checksum(&ip).to_be_bytes();
            (ip[10], ip[11]) = (sum[0], sum[1]);
            ip
        }
        (from, to) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            let length = u16::try_from(payload).unwrap_or(u16::MAX).to_be_bytes();
            let mut ip = vec![0x60, 0, 0, 0, length[0], length[1], protocol, 64];
            ip.extend(octets(from));
            ip.extend(octets(to));
            ip
        }
    };
    out.extend(ip);
    out.extend(transport);
    out
}

/// Returns an Ethernet header. Its made-up addresses contain the port numbers.
fn ethernet(packet: &Packet<'_>) -> Vec<u8> {
    let station = |port: u16| [&[0x02, 0, 0, 0][..], &port.to_be_bytes()].concat();
    let kind: [u8; 2] = if packet.from.is_ipv4() && packet.to.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xDD] };
    [station(packet.to.port()), station(packet.from.port()), kind.to_vec()].concat()
}

/// Returns a UDP header without a checksum, as IPv4 allows.
fn udp(packet: &Packet<'_>) -> Vec<u8> {
    let mut header = ports(packet);
    header.extend(u16::try_from(packet.bytes.len() + 8).unwrap_or(u16::MAX).to_be_bytes());
    header.extend([0, 0]);
    header
}

/// Returns the header of a TCP segment with the flags PSH and ACK. The acknowledgement number is
/// always 1.
fn tcp(packet: &Packet<'_>, sequence: u32) -> Vec<u8> {
    let mut header = ports(packet);
    header.extend(sequence.wrapping_add(1).to_be_bytes());
    header.extend(1u32.to_be_bytes());
    header.extend([0x50, 0x18, 0xFF, 0xFF, 0, 0, 0, 0]);
    header
}

fn ports(packet: &Packet<'_>) -> Vec<u8> {
    [packet.from.port().to_be_bytes(), packet.to.port().to_be_bytes()].concat()
}

/// The internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !(((folded & 0xFFFF) + (folded >> 16)) as u16)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// A disk that is full after this many bytes. The first error frees it.
    struct Disk {
        room: usize,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                self.room = usize::MAX;
                return Err(io::ErrorKind::StorageFull.into());
            }
            let fits = bytes.len().min(self.room);
            self.room -= fits;
            self.written.lock().extend_from_slice(&bytes[..fits]);
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_follows_a_block_that_was_not_written_whole() {
        const ROOM: usize = 500;
        let written = Arc::new(Mutex::new(Vec::new()));
        let disk = Disk { room: ROOM, written: written.clone() };
        let mut capture = Capture::new(Box::new(disk)).expect("the head fits");
        let address = SocketAddr::from(([127, 0, 0, 1], 7));
        let packet = Packet { side: Side::Sender, at: 0, from: address, to: address, stream: None, bytes: &[1; 100] };
        (0..10).for_each(|_| capture.write(&packet));
        assert_eq!(written.lock().len(), ROOM);
    }

    #[test]
    fn the_checksum_is_that_of_the_textbook() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8,
            0x00, 0xc7,
        ];
        assert_eq!(checksum(&header), 0xb861);
    }
}
