//! The bytes of packets. `spec/udp.md` defines them.

use alloc::{borrow::Cow, vec::Vec};

use super::MemberId;
use crate::{
    envelope::Id128,
    frame::{Hello, crc32c, varint},
};

const FAMILY: u8 = 0x55;
/// The version of packets.
pub const VERSION: u8 = 1;
const CHECKSUM: usize = 4;
/// Family, version, kind and sender.
const HEADER: usize = 3 + 8;
/// Bytes that a packet with records has besides them: header, number, part and checksum.
pub(super) const OVERHEAD: usize = HEADER + 8 + 1 + CHECKSUM;
/// Bytes that a part of a record has in addition: its index and the count of parts.
pub(super) const PART_OVERHEAD: usize = 2 * 5;

/// Entries that fit into one status, ranges that fit into one NAK.
pub(super) const MAX_ENTRIES: usize = 32;
pub(super) const MAX_RANGES: usize = 48;

/// The largest number of a packet.
const LARGEST: u64 = 1 << 63;

const STATUS: u8 = 1;
const WELCOME: u8 = 2;
const RELIABLE: u8 = 3;
const LOOSE: u8 = 4;
const NAK: u8 = 5;
const CHALLENGE: u8 = 6;
const BYE: u8 = 7;

/// A packet, and who sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) sender: MemberId,
    pub(super) body: Body<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body<'a> {
    /// Introduces the sender, shows that it is alive, says how far its packets go, and confirms.
    Status { hello: Hello, token: u64, oldest: u64, next: u64, entries: Vec<Entry> },
    /// Tells `to` at which number it begins to follow the sender.
    Welcome { hello: Hello, to: MemberId, start: u64 },
    /// A numbered packet that is sent again if somebody lacks it.
    Reliable(u64, Content<'a>),
    /// A numbered packet that is sent once.
    Loose(u64, Content<'a>),
    /// The sender lacks these packets of `of`: first number and count, ascending and disjoint.
    Nak { of: MemberId, ranges: Vec<(u64, u64)> },
    /// Proves that `to` receives what is sent to its address, if it sends the token back.
    Challenge { to: MemberId, token: u64 },
    /// The sender leaves everybody, if `to` is 0: its packets end before `number`. Else it does not
    /// follow `to`, whose welcome had this start: that peering has ended.
    Bye { to: MemberId, number: u64 },
}

/// What the sender of a status says of a member that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) member: MemberId,
    /// Where it began to follow: the number in the member's welcome.
    pub(super) start: u64,
    /// The first number that it has not taken.
    pub(super) taken: u64,
    /// Where the member begins to follow it, by its own welcome.
    pub(super) gives: u64,
}

/// What a numbered packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// Whole records, one after another. Possibly none.
    Records(Cow<'a, [u8]>),
    /// A part of one record. The packets of all parts have consecutive numbers.
    Part { index: u64, count: u64, bytes: Cow<'a, [u8]> },
}

/// Why a datagram is not a packet.
///
/// ```
/// use polywire_core::multicast::{Config, Member, PacketError};
/// let mut member = Member::new(Config::default(), Default::default(), 1);
/// let refused = member.handle_datagram(b"GET / HTTP/1.1", Default::default());
/// assert_eq!(refused, Err(PacketError::NotPolywire));
/// assert_eq!(refused.unwrap_err().to_string(), "not a Polywire packet");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The first byte is another.
    #[error("not a Polywire packet")]
    NotPolywire,
    /// The sender uses another version.
    #[error("the packet has version {got}, this node speaks {VERSION}")]
    Version {
        /// The sender's version.
        got: u8,
    },
    /// The checksum is wrong.
    #[error("the packet's checksum is wrong")]
    Checksum,
    /// The kind is unknown, or a field is missing, too long or contradicts another.
    #[error("malformed packet, at its {0}")]
    Malformed(&'static str),
    /// A record exceeds [`super::Config::record_bytes`], or records exceed
    /// [`super::Config::reassembly_bytes`].
    #[error("a record of more than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
}

/// Who sent a packet, by its own word: for finding the member that a datagram is meant for. The
/// packet is not checked.
///
/// ```
/// use polywire_core::multicast::{Config, Member, sender_of};
/// let (mut member, mut packet) = (Member::new(Config::default(), Default::default(), 7), Vec::new());
/// member.poll_transmit(Default::default(), &mut packet);
/// assert_eq!((sender_of(&packet), sender_of(b"short")), (Some(member.id()), None));
/// ```
pub fn sender_of(datagram: &[u8]) -> Option<MemberId> {
    let sender = datagram.get(3..).and_then(|rest| rest.first_chunk())?;
    Some(MemberId(u64::from_le_bytes(*sender))).filter(|sender| *sender != MemberId::ALL)
}

/// The version of a packet that this one cannot read. `None` for what is no packet of any version,
/// by its family and its checksum, and for packets of this version.
///
/// ```
/// use polywire_core::{frame::crc32c, multicast::{Config, Member, other_version}};
/// let (mut member, mut packet) = (Member::new(Config::default(), Default::default(), 7), Vec::new());
/// member.poll_transmit(Default::default(), &mut packet);
/// assert_eq!(other_version(&packet), None);
/// packet[1] = 9;
/// assert_eq!(other_version(&packet), None, "it is damaged");
/// let end = packet.len() - 4;
/// let checksum = crc32c(&packet[..end]);
/// packet[end..].copy_from_slice(&checksum.to_le_bytes());
/// assert_eq!(other_version(&packet), Some(9));
/// ```
pub fn other_version(datagram: &[u8]) -> Option<u8> {
    let (body, sum) = datagram.split_last_chunk()?;
    let [FAMILY, version, ..] = *body else { return None };
    (version != VERSION && crc32c(body).to_le_bytes() == *sum).then_some(version)
}

impl<'a> Packet<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, PacketError> {
        match bytes.first() {
            Some(&FAMILY) => {}
            _ => return Err(PacketError::NotPolywire),
        }
        match bytes.get(1) {
            Some(&VERSION) => {}
            got => return Err(PacketError::Version { got: got.copied().unwrap_or_default() }),
        }
        let end = bytes.len().checked_sub(CHECKSUM).filter(|end| *end >= HEADER);
        let (body, sum) = end.and_then(|end| bytes.split_at_checked(end)).ok_or(PacketError::Malformed("header"))?;
        if crc32c(body).to_le_bytes() != *sum {
            return Err(PacketError::Checksum);
        }
        let mut fields = Fields(body.get(2..).unwrap_or_default());
        let kind = fields.byte("kind")?;
        let sender = fields.member("sender")?;
        if sender == MemberId::ALL && kind != CHALLENGE {
            return Err(PacketError::Malformed("sender"));
        }
        let body = match kind {
            STATUS => fields.status()?,
            WELCOME => fields.welcome()?,
            RELIABLE => Body::Reliable(fields.packet_number("number")?, fields.content()?),
            LOOSE => Body::Loose(fields.packet_number("number")?, fields.content()?),
            NAK => Body::Nak { of: fields.member("of")?, ranges: fields.ranges()? },
            CHALLENGE => Body::Challenge { to: fields.member("to")?, token: fields.number("token")? },
            BYE => Body::Bye { to: fields.member("to")?, number: fields.packet_number("number")? },
            _ => return Err(PacketError::Malformed("kind")),
        };
        fields.finish()?;
        Ok(Packet { sender, body })
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match &self.body {
            Body::Status { hello, token, oldest, next, entries } => {
                begin(STATUS, self.sender, &mut out);
                put_hello(hello, &mut out);
                [*token, *oldest, *next].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
                out.push(entries.len() as u8);
                for Entry { member, start, taken, gives } in entries {
                    [member.0, *start, *taken, *gives].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
                }
            }
            Body::Welcome { hello, to, start } => {
                begin(WELCOME, self.sender, &mut out);
                put_hello(hello, &mut out);
                [to.0, *start].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
            }
            Body::Reliable(number, content) => put_numbered(true, self.sender, *number, content, &mut out),
            Body::Loose(number, content) => put_numbered(false, self.sender, *number, content, &mut out),
            Body::Nak { of, ranges } => {
                begin(NAK, self.sender, &mut out);
                out.extend_from_slice(&of.0.to_le_bytes());
                out.push(ranges.len() as u8);
                for (first, count) in ranges {
                    [*first, *count].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
                }
            }
            Body::Challenge { to, token } => {
                begin(CHALLENGE, self.sender, &mut out);
                [to.0, *token].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
            }
            Body::Bye { to, number } => {
                begin(BYE, self.sender, &mut out);
                [to.0, *number].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
            }
        }
        finish(&mut out);
        out
    }
}

impl Content<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Content::Records(bytes) | Content::Part { bytes, .. } => bytes.len(),
        }
    }

    pub(super) fn into_owned(self) -> Content<'static> {
        match self {
            Content::Records(bytes) => Content::Records(bytes.into_owned().into()),
            Content::Part { index, count, bytes } => Content::Part { index, count, bytes: bytes.into_owned().into() },
        }
    }
}

fn begin(kind: u8, sender: MemberId, out: &mut Vec<u8>) {
    out.extend_from_slice(&[FAMILY, VERSION, kind]);
    out.extend_from_slice(&sender.0.to_le_bytes());
}

/// Begins a numbered packet that carries whole records. Records are appended, then [`finish`].
pub(super) fn begin_records(reliable: bool, sender: MemberId, number: u64, out: &mut Vec<u8>) {
    begin(if reliable { RELIABLE } else { LOOSE }, sender, out);
    out.extend_from_slice(&number.to_le_bytes());
    out.push(0);
}

/// Begins a numbered packet that carries a part of a record. Its bytes are appended, then
/// [`finish`].
pub(super) fn begin_part(reliable: bool, sender: MemberId, number: u64, (index, count): (u64, u64), out: &mut Vec<u8>) {
    begin(if reliable { RELIABLE } else { LOOSE }, sender, out);
    out.extend_from_slice(&number.to_le_bytes());
    out.push(1);
    varint::put(out, index);
    varint::put(out, count);
}

fn put_numbered(reliable: bool, sender: MemberId, number: u64, content: &Content<'_>, out: &mut Vec<u8>) {
    let bytes = match content {
        Content::Records(bytes) => {
            begin_records(reliable, sender, number, out);
            bytes
        }
        Content::Part { index, count, bytes } => {
            begin_part(reliable, sender, number, (*index, *count), out);
            bytes
        }
    };
    out.extend_from_slice(bytes);
}

/// Ends a packet with its checksum.
pub(super) fn finish(out: &mut Vec<u8>) {
    let sum = crc32c(out);
    out.extend_from_slice(&sum.to_le_bytes());
}

fn put_hello(hello: &Hello, out: &mut Vec<u8>) {
    out.extend_from_slice(&hello.node.0);
    out.extend_from_slice(&hello.incarnation.to_le_bytes());
}

/// The fields that are not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], PacketError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(PacketError::Malformed(field))?;
        self.0 = rest;
        Ok(*array)
    }

    fn byte(&mut self, field: &'static str) -> Result<u8, PacketError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    fn number(&mut self, field: &'static str) -> Result<u64, PacketError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// The number of a packet. Numbers that no sender reaches are refused.
    fn packet_number(&mut self, field: &'static str) -> Result<u64, PacketError> {
        self.number(field).and_then(|n| if n <= LARGEST { Ok(n) } else { Err(PacketError::Malformed(field)) })
    }

    fn varint(&mut self, field: &'static str) -> Result<u64, PacketError> {
        let (value, rest) = varint::split(self.0).ok_or(PacketError::Malformed(field))?;
        self.0 = rest;
        Ok(value)
    }

    fn member(&mut self, field: &'static str) -> Result<MemberId, PacketError> {
        self.number(field).map(MemberId)
    }

    fn hello(&mut self) -> Result<Hello, PacketError> {
        Ok(Hello { node: Id128(self.array("node")?), incarnation: self.number("incarnation")? })
    }

    fn rest(&mut self) -> Cow<'a, [u8]> {
        core::mem::take(&mut self.0).into()
    }

    fn welcome(&mut self) -> Result<Body<'a>, PacketError> {
        Ok(Body::Welcome { hello: self.hello()?, to: self.member("to")?, start: self.packet_number("start")? })
    }

    fn status(&mut self) -> Result<Body<'a>, PacketError> {
        let hello = self.hello()?;
        let token = self.number("token")?;
        let (oldest, next) = (self.packet_number("oldest")?, self.packet_number("next")?);
        if oldest > next {
            return Err(PacketError::Malformed("oldest"));
        }
        let count = self.byte("count")?;
        if usize::from(count) > MAX_ENTRIES {
            return Err(PacketError::Malformed("count"));
        }
        let entries = (0..count).map(|_| self.entry()).collect::<Result<_, _>>()?;
        Ok(Body::Status { hello, token, oldest, next, entries })
    }

    fn entry(&mut self) -> Result<Entry, PacketError> {
        let member = self.member("entry")?;
        let mut number = || self.packet_number("entry");
        Ok(Entry { member, start: number()?, taken: number()?, gives: number()? })
    }

    fn ranges(&mut self) -> Result<Vec<(u64, u64)>, PacketError> {
        let count = self.byte("count")?;
        if usize::from(count) > MAX_RANGES {
            return Err(PacketError::Malformed("count"));
        }
        let (mut ranges, mut end) = (Vec::with_capacity(usize::from(count)), 0);
        for _ in 0..count {
            let (first, count) = (self.number("range")?, self.number("range")?);
            let next = first.checked_add(count).filter(|_| first >= end && count > 0);
            end = next.ok_or(PacketError::Malformed("range"))?;
            ranges.push((first, count));
        }
        Ok(ranges)
    }

    fn content(&mut self) -> Result<Content<'a>, PacketError> {
        match self.byte("part")? {
            0 => Ok(Content::Records(self.rest())),
            1 => {
                let (index, count) = (self.varint("index")?, self.varint("count")?);
                if index >= count || self.0.is_empty() {
                    return Err(PacketError::Malformed("index"));
                }
                Ok(Content::Part { index, count, bytes: self.rest() })
            }
            _ => Err(PacketError::Malformed("part")),
        }
    }

    fn finish(&self) -> Result<(), PacketError> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(PacketError::Malformed("end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Packet<'static>> {
        let hello = Hello { node: Id128([7; 16]), incarnation: 3 };
        let entry = Entry { member: MemberId(9), start: 1, taken: 5, gives: 2 };
        let part = Content::Part { index: 1, count: 300, bytes: vec![1, 2, 3].into() };
        [
            Body::Status { hello, token: 1, oldest: 2, next: 3, entries: vec![entry; 2] },
            Body::Welcome { hello, to: MemberId(2), start: 4 },
            Body::Reliable(5, Content::Records(vec![1, 2, 3].into())),
            Body::Reliable(6, Content::Records(Vec::new().into())),
            Body::Loose(7, part),
            Body::Nak { of: MemberId(2), ranges: vec![(1, 2), (3, 1)] },
            Body::Challenge { to: MemberId(2), token: 8 },
            Body::Bye { to: MemberId::ALL, number: 9 },
        ]
        .map(|body| Packet { sender: MemberId(1), body })
        .into()
    }

    #[test]
    fn every_packet_comes_back_and_none_that_is_cut_or_flipped() {
        for packet in samples() {
            let bytes = packet.write();
            assert_eq!(Packet::parse(&bytes), Ok(packet));
            for end in 0..bytes.len() {
                assert!(Packet::parse(&bytes[..end]).is_err());
            }
            for bit in 0..8 * bytes.len() {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(Packet::parse(&flipped).is_err());
            }
        }
    }

    /// The examples of `spec/udp.md`, in its order.
    #[test]
    fn the_examples_of_the_specification_are_exact() {
        let hello = Hello { node: Id128(core::array::from_fn(|i| i as u8 * 0x11)), incarnation: 7 };
        let entry = Entry { member: MemberId(1), start: 5, taken: 7, gives: 3 };
        let record = super::super::record::with_header(None, b"hi");
        let packets = [
            ("reliable", 1, Body::Reliable(5, Content::Records(record.into()))),
            ("nak", 2, Body::Nak { of: MemberId(1), ranges: vec![(5, 2), (9, 1)] }),
            ("welcome", 1, Body::Welcome { hello, to: MemberId(2), start: 5 }),
            ("status", 2, Body::Status { hello, token: 0, oldest: 4, next: 4, entries: vec![entry] }),
        ];
        let mut examples = polywire_testing::spec_examples("udp.md");
        for (name, sender, body) in packets {
            let bytes = examples.remove(name).unwrap_or_else(|| panic!("no example '{name}'"));
            let packet = Packet { sender: MemberId(sender), body };
            assert_eq!(polywire_testing::hex(&packet.write()), polywire_testing::hex(&bytes), "{name}");
            assert_eq!(Packet::parse(&bytes), Ok(packet), "{name}");
        }
        assert!(examples.is_empty(), "{examples:?}");
    }

    #[test]
    fn contradictions_are_malformed() {
        let refused = |body: Body<'static>| Packet::parse(&Packet { sender: MemberId(1), body }.write()).unwrap_err();
        let overlapping = Body::Nak { of: MemberId(2), ranges: vec![(1, 2), (2, 1)] };
        assert_eq!(refused(overlapping), PacketError::Malformed("range"));
        let endless = Body::Nak { of: MemberId(2), ranges: vec![(2, u64::MAX)] };
        assert_eq!(refused(endless), PacketError::Malformed("range"));
        let part = Content::Part { index: 3, count: 3, bytes: vec![1].into() };
        assert_eq!(refused(Body::Loose(1, part)), PacketError::Malformed("index"));
        let backwards = Body::Status {
            hello: Hello { node: Id128::ZERO, incarnation: 0 },
            token: 0,
            oldest: 2,
            next: 1,
            entries: Vec::new(),
        };
        assert_eq!(refused(backwards), PacketError::Malformed("oldest"));
    }

    #[test]
    fn numbers_above_2_to_the_63_are_malformed() {
        let hello = Hello { node: Id128::ZERO, incarnation: 0 };
        let entry = |taken| vec![Entry { member: MemberId(2), start: 1, taken, gives: 1 }];
        let bodies = |number: u64| {
            [
                Body::Welcome { hello, to: MemberId(2), start: number },
                Body::Reliable(number, Content::Records(Vec::new().into())),
                Body::Loose(number, Content::Records(Vec::new().into())),
                Body::Status { hello, token: u64::MAX, oldest: 1, next: number, entries: Vec::new() },
                Body::Status { hello, token: u64::MAX, oldest: 1, next: 1, entries: entry(number) },
                Body::Bye { to: MemberId::ALL, number },
            ]
        };
        let parsed = |body| Packet::parse(&Packet { sender: MemberId(1), body }.write()).map(|_| ());
        assert!(bodies(1 << 63).into_iter().all(|body| parsed(body) == Ok(())));
        for number in [(1 << 63) + 1, u64::MAX] {
            assert!(bodies(number).into_iter().all(|body| matches!(parsed(body), Err(PacketError::Malformed(_)))));
        }
    }
}
