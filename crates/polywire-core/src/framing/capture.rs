//! Packet captures: pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng), and the
//! UDP datagrams in them.
//!
//! Supported are Ethernet with VLAN tags, Linux "cooked" captures, loopback and raw IP, with IPv4
//! and IPv6. A datagram in several fragments, or only partly captured, does not count as a
//! datagram, because nothing here reassembles fragments.

use alloc::vec::Vec;
use core::ops::Range;

use super::{FramingError, Piece, Step, fixed};

/// Link types: <https://www.tcpdump.org/linktypes.html>.
const NULL: u32 = 0;
const ETHERNET: u32 = 1;
const RAW: [u32; 5] = [12, 14, 101, 228, 229];
const LOOP: u32 = 108;
const LINUX_SLL: u32 = 113;
const LINUX_SLL2: u32 = 276;

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;
/// Largest number of interfaces in a section.
const INTERFACES: usize = 4096;

/// The state of reading a capture.
#[derive(Clone, Debug, Default)]
pub(super) struct Capture {
    /// If set, only datagrams to this UDP port are frames.
    pub(super) port: Option<u16>,
    kind: Kind,
}

#[derive(Clone, Debug, Default)]
enum Kind {
    #[default]
    Unknown,
    Pcap {
        big: bool,
        link: u32,
    },
    Pcapng {
        big: bool,
        /// For each interface of the section, its link type and the largest number of bytes
        /// captured of a packet (0 means all).
        interfaces: Vec<(u32, u32)>,
    },
}

impl Capture {
    /// The next record.
    pub(super) fn step<'a>(&mut self, bytes: &'a [u8], offset: u64, limit: usize) -> Result<Step<'a>, FramingError> {
        match &mut self.kind {
            Kind::Unknown => self.begin(bytes, offset, limit),
            Kind::Pcap { big, link } => record(bytes, offset, limit, *big, *link, self.port),
            Kind::Pcapng { big, interfaces } => block(bytes, offset, limit, big, interfaces, self.port),
        }
    }

    fn begin<'a>(&mut self, bytes: &'a [u8], offset: u64, limit: usize) -> Result<Step<'a>, FramingError> {
        let Some(magic) = fixed(bytes) else { return Ok(Step::Need(4)) };
        let big = match u32::from_be_bytes(magic) {
            SECTION => {
                self.kind = Kind::Pcapng { big: false, interfaces: Vec::new() };
                return self.step(bytes, offset, limit);
            }
            0xa1b2_c3d4 | 0xa1b2_3c4d => true,
            0xd4c3_b2a1 | 0x4d3c_b2a1 => false,
            _ => return Err(wrong(offset, "not a capture: a file of pcap or pcapng is expected")),
        };
        let Some((header, _)) = bytes.split_at_checked(24) else { return Ok(Step::Need(24)) };
        // The upper four bits describe the frame check sequence.
        let link = number(header, 20, big).unwrap_or(0) & 0x0fff_ffff;
        self.kind = Kind::Pcap { big, link };
        Ok(Step::Piece { piece: Piece::Other(header), used: 24 })
    }
}

fn wrong(offset: u64, what: &'static str) -> FramingError {
    FramingError::Capture { offset, what }
}

fn number(bytes: &[u8], at: usize, big: bool) -> Option<u32> {
    let bytes = fixed(bytes.get(at..)?)?;
    Some(if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    fixed(bytes.get(at..)?).map(u16::from_be_bytes)
}

/// A record of pcap: time, captured length, original length, and the packet.
fn record(
    bytes: &[u8],
    offset: u64,
    limit: usize,
    big: bool,
    link: u32,
    port: Option<u16>,
) -> Result<Step<'_>, FramingError> {
    let (Some(kept), Some(_)) = (number(bytes, 8, big), number(bytes, 12, big)) else { return Ok(Step::Need(16)) };
    let used = whole(kept, 16, offset, limit)?;
    let Some(record) = bytes.get(..used) else { return Ok(Step::Need(used)) };
    Ok(Step::Piece { piece: piece(record, 16..used, link, port), used })
}

/// A block of pcapng: type, length, body, and the length again.
fn block<'a>(
    bytes: &'a [u8],
    offset: u64,
    limit: usize,
    big: &mut bool,
    interfaces: &mut Vec<(u32, u32)>,
    port: Option<u16>,
) -> Result<Step<'a>, FramingError> {
    if number(bytes, 0, true) == Some(SECTION) {
        *big = match number(bytes, 8, true) {
            None => return Ok(Step::Need(12)),
            Some(BYTE_ORDER) => true,
            Some(order) if order.swap_bytes() == BYTE_ORDER => false,
            Some(_) => return Err(wrong(offset, "a section of pcapng whose byte order is unknown")),
        };
        interfaces.clear();
    }
    let (Some(kind), Some(length)) = (number(bytes, 0, *big), number(bytes, 4, *big)) else {
        return Ok(Step::Need(8));
    };
    if length < 12 || length % 4 != 0 {
        return Err(wrong(offset, "a block of pcapng whose length is not a multiple of 4, or less than 12"));
    }
    let used = whole(length, 0, offset, limit)?;
    let Some(block) = bytes.get(..used) else { return Ok(Step::Need(used)) };
    if number(block, used - 4, *big) != Some(length) {
        return Err(wrong(offset, "a block of pcapng whose two lengths differ"));
    }
    let at = |at| number(block, at, *big);
    let (interface, start, kept): (_, usize, _) = match kind {
        INTERFACE if interfaces.len() < INTERFACES => {
            let types = block
                .get(8..10)
                .and_then(fixed)
                .map(|t: [u8; 2]| if *big { u16::from_be_bytes(t) } else { u16::from_le_bytes(t) });
            interfaces.push((types.map_or(u32::MAX, u32::from), at(12).unwrap_or(0)));
            (None, 0, None)
        }
        PACKET => (at(8), 28, at(20)),
        OLD_PACKET => (at(8).map(|both| if *big { both >> 16 } else { both & 0xffff }), 28, at(20)),
        SIMPLE_PACKET => {
            let most = interfaces.first().map_or(0, |(_, most)| if *most == 0 { u32::MAX } else { *most });
            (Some(0), 12, at(8).map(|length| length.min(most)))
        }
        _ => (None, 0, None),
    };
    let packet = kept.and_then(|kept| start.checked_add(usize::try_from(kept).ok()?)).map(|end| start..end);
    let link = interface.and_then(|interface| interfaces.get(interface as usize)).map(|(link, _)| *link);
    let piece = match (packet, link) {
        (Some(packet), Some(link)) if packet.end <= used - 4 => piece(block, packet, link, port),
        (Some(packet), _) if packet.end > used - 4 => {
            return Err(wrong(offset, "a packet that is longer than its block"));
        }
        _ => Piece::Other(block),
    };
    Ok(Step::Piece { piece, used })
}

/// Length of a record with its header, if it is within the limit.
fn whole(bytes: u32, header: usize, offset: u64, limit: usize) -> Result<usize, FramingError> {
    match usize::try_from(bytes).ok().filter(|bytes| *bytes <= limit).and_then(|bytes| bytes.checked_add(header)) {
        Some(whole) => Ok(whole),
        None => Err(FramingError::TooLong { bytes: bytes.into(), most: limit as u64, offset }),
    }
}

fn piece(record: &[u8], packet: Range<usize>, link: u32, port: Option<u16>) -> Piece<'_> {
    let frame = || {
        let payload = datagram(record.get(packet.clone())?, link, port)?;
        let payload = packet.start + payload.start..packet.start + payload.end;
        let (head, tail) = (record.get(..payload.start)?, record.get(payload.end..)?);
        Some(Piece::Frame { head, payload: record.get(payload)?, tail })
    };
    frame().unwrap_or(Piece::Other(record))
}

/// The range of the UDP payload in a packet. `None` if the packet is not a complete UDP datagram.
fn datagram(packet: &[u8], link: u32, port: Option<u16>) -> Option<Range<usize>> {
    let at = network_layer(packet, link)?;
    let ip = packet.get(at..)?;
    let udp = match ip.first()? >> 4 {
        4 => in_ipv4(ip)?,
        6 => in_ipv6(ip)?,
        _ => return None,
    };
    let header = ip.get(udp.clone())?;
    let length = usize::from(short(header, 4)?);
    if port.is_some_and(|port| short(header, 2) != Some(port)) || !(8..=udp.len()).contains(&length) {
        return None;
    }
    Some(at + udp.start + 8..at + udp.start + length)
}

/// Offset of the IP header.
fn network_layer(packet: &[u8], link: u32) -> Option<usize> {
    match link {
        ETHERNET => behind_tags(packet, 12),
        NULL | LOOP => Some(4),
        LINUX_SLL => behind_tags(packet, 14),
        LINUX_SLL2 => is_ip(short(packet, 0)?).then_some(20),
        link if RAW.contains(&link) => Some(0),
        _ => None,
    }
}

/// Offset after an EtherType and the VLAN tags in front of it.
fn behind_tags(packet: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..4 {
        match short(packet, at)? {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            kind => return is_ip(kind).then_some(at + 2),
        }
    }
    None
}

fn is_ip(kind: u16) -> bool {
    kind == 0x0800 || kind == 0x86dd
}

const UDP: u8 = 17;

fn in_ipv4(ip: &[u8]) -> Option<Range<usize>> {
    let (header, total) = (usize::from(ip.first()? & 15) * 4, usize::from(short(ip, 2)?));
    // More fragments follow, or this is not the first one.
    let fragment = short(ip, 6)? & 0x3fff != 0;
    let fits = header >= 20 && total >= header && total <= ip.len();
    (fits && !fragment && *ip.get(9)? == UDP).then_some(header..total)
}

fn in_ipv6(ip: &[u8]) -> Option<Range<usize>> {
    let end = 40 + usize::from(short(ip, 4)?);
    let (mut next, mut at) = (*ip.get(6)?, 40);
    for _ in 0..8 {
        match next {
            UDP => return (end <= ip.len() && at <= end).then_some(at..end),
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => {
                next = *ip.get(at)?;
                at += 8 * (1 + usize::from(*ip.get(at + 1)?));
            }
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::framing::{Framing, Splitter};

    /// A UDP datagram to port 9000 over IPv4, or over IPv6 with an extension header.
    fn ip(payload: &[u8], six: bool) -> Vec<u8> {
        let length = 8 + payload.len() as u16;
        let mut packet = Vec::new();
        if six {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend((length + 8).to_be_bytes());
            packet.extend([60, 64]);
            packet.extend([0; 32]);
            packet.extend([UDP, 0, 0, 0, 0, 0, 0, 0]);
        } else {
            packet.extend([0x45, 0]);
            packet.extend((length + 20).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
            packet.extend([127, 0, 0, 1, 127, 0, 0, 1]);
        }
        packet.extend(5000_u16.to_be_bytes());
        packet.extend(9000_u16.to_be_bytes());
        packet.extend(length.to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(payload);
        packet
    }

    fn on_link(link: u32, ip: &[u8]) -> Vec<u8> {
        let kind: [u8; 2] = if ip[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        let mut packet = match link {
            ETHERNET => [vec![2; 12], vec![0x81, 0, 0, 5], kind.to_vec()].concat(),
            NULL => vec![2, 0, 0, 0],
            LINUX_SLL => [vec![0; 14], kind.to_vec()].concat(),
            LINUX_SLL2 => [kind.to_vec(), vec![0; 18]].concat(),
            _ => Vec::new(),
        };
        packet.extend(ip);
        packet
    }

    fn word(number: u32, big: bool) -> [u8; 4] {
        if big { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    fn pcap(packets: &[Vec<u8>], link: u32, big: bool) -> Vec<u8> {
        let mut file = Vec::new();
        for number in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, link] {
            file.extend(word(number, big));
        }
        for packet in packets {
            for number in [1, 2, packet.len() as u32, packet.len() as u32] {
                file.extend(word(number, big));
            }
            file.extend(packet);
        }
        file
    }

    fn pcapng(packets: &[Vec<u8>], link: u32, big: bool) -> Vec<u8> {
        let block = |kind: u32, words: &[u32], data: &[u8]| {
            let padded = data.len().next_multiple_of(4);
            let length = (12 + 4 * words.len() + padded) as u32;
            let mut block = Vec::new();
            for number in [&[kind, length], words].concat() {
                block.extend(word(number, big));
            }
            block.extend(data);
            block.resize(length as usize - 4, 0);
            block.extend(word(length, big));
            block
        };
        let types = if big { link << 16 } else { link };
        let mut file = block(SECTION, &[BYTE_ORDER, 1, u32::MAX, u32::MAX], &[]);
        file.extend(block(INTERFACE, &[types, 0], &[]));
        file.extend(block(5, &[0, 0, 0], &[]));
        for packet in packets {
            let length = packet.len() as u32;
            file.extend(block(PACKET, &[0, 1, 2, length, length], packet));
            file.extend(block(SIMPLE_PACKET, &[length], packet));
        }
        file
    }

    /// The payloads, after a check that the pieces together are the file.
    fn payloads(file: &[u8], splitter: Splitter) -> Vec<Vec<u8>> {
        let (mut splitter, mut at, mut copy, mut payloads) = (splitter, 0, Vec::new(), Vec::new());
        while let Step::Piece { piece, used } = splitter.step(&file[at..]).unwrap() {
            match piece {
                Piece::Other(bytes) => copy.extend_from_slice(bytes),
                Piece::Frame { head, payload, tail } => {
                    [head, payload, tail].iter().for_each(|part| copy.extend_from_slice(part));
                    payloads.push(payload.to_vec());
                }
            }
            at += used;
        }
        assert_eq!(copy, file);
        payloads
    }

    #[test]
    fn datagrams_are_found_on_every_link() {
        let packet = |link, payload: &[u8], six| on_link(link, &ip(payload, six));
        for link in [ETHERNET, NULL, LINUX_SLL, LINUX_SLL2, 101] {
            let mut tcp = packet(link, b"tcp", false);
            let at = tcp.len() - 22;
            tcp[at] = 6;
            let mut fragment = packet(link, b"part", false);
            let at = fragment.len() - 4 - 8 - 14;
            fragment[at] = 0x20;
            let packets =
                [packet(link, b"one", false), tcp, packet(link, b"", true), fragment, packet(link, b"three", true)];
            for big in [false, true] {
                let expected = [&b"one"[..], b"", b"three"];
                assert_eq!(payloads(&pcap(&packets, link, big), Splitter::new(Framing::Pcap)), expected, "{link}");
                let twice = [&b"one"[..], b"one", b"", b"", b"three", b"three"];
                assert_eq!(payloads(&pcapng(&packets, link, big), Splitter::new(Framing::Pcap)), twice, "{link}");
                let none = payloads(&pcap(&packets, link, big), Splitter::new(Framing::Pcap).port(9001));
                assert!(none.is_empty());
            }
        }
    }

    #[test]
    fn whatever_is_cut_or_flipped_nothing_breaks() {
        let packets: Vec<_> = (0..4).map(|i| on_link(ETHERNET, &ip(b"payload", i % 2 == 0))).collect();
        for file in [pcap(&packets, ETHERNET, false), pcapng(&packets, ETHERNET, true)] {
            for at in 0..file.len() {
                for bit in 0..8 {
                    let mut damaged = file.clone();
                    damaged[at] ^= 1 << bit;
                    let (mut splitter, mut read) = (Splitter::new(Framing::Pcap), 0);
                    while let Ok(Step::Piece { used, .. }) = splitter.step(&damaged[read..]) {
                        assert!(used > 0);
                        read += used;
                    }
                }
                let mut splitter = Splitter::new(Framing::Pcap);
                let mut read = 0;
                while let Step::Piece { used, .. } = splitter.step(&file[read..at.max(read)]).unwrap() {
                    read += used;
                }
            }
        }
    }
}
