//! Frames in datagrams. Datagrams may be lost, repeated or reordered, so each names its sender, has
//! a checksum, and contains absolute numbers.

use alloc::{collections::BTreeMap, vec::Vec};

use super::{Frame, FrameError, Limits, Start, VERSION, body, crc32c, varint};
use crate::envelope::{Announcement, ChannelId, Envelope, Id128};

/// First byte of all datagrams. The version follows.
const FAMILY: u8 = 0x50;
const NODE_AT: usize = 2;
const INCARNATION_AT: usize = NODE_AT + 16;
const FRAMES_AT: usize = INCARNATION_AT + 8;
const CHECKSUM: usize = 4;

/// Writes the datagrams of one incarnation of a node.
///
/// ```
/// use polywire_core::envelope::{Announcement, Envelope, Id128};
/// use polywire_core::frame::{Datagram, DatagramDecoder, DatagramEncoder, Frame, FrameError, Limits, Start};
///
/// let mut encoder = DatagramEncoder::new(Id128([1; 16]), 7, Limits::default());
/// let (channel, mut bytes) = (encoder.open()?, Vec::new());
/// encoder.begin(&mut bytes);
/// encoder.announce(channel, Start::default(), &Announcement::default(), &mut bytes);
/// encoder.data(&Envelope::data(channel, 1, 17), b"hello", &mut bytes)?;
/// encoder.control(&Frame::Heartbeat, &mut bytes);
/// encoder.finish(&mut bytes);
///
/// let mut decoder = DatagramDecoder::new(Limits::default());
/// let datagram: Datagram = decoder.open(&bytes)?;
/// assert!(datagram.restarted && datagram.incarnation == 7);
/// let frames: Vec<Frame> = datagram.collect::<Result<_, _>>()?;
/// assert_eq!(frames[1], Frame::Data(Envelope::data(channel, 1, 17), b"hello"));
///
/// bytes[40] ^= 1;
/// assert!(matches!(decoder.open(&bytes), Err(FrameError::Checksum { .. })));
/// # Ok::<(), FrameError>(())
/// ```
#[derive(Debug)]
pub struct DatagramEncoder {
    node: Id128,
    incarnation: u64,
    last_id: u32,
    limits: Limits,
}

impl DatagramEncoder {
    /// Makes an encoder for this node and incarnation.
    pub fn new(node: Id128, incarnation: u64, limits: Limits) -> Self {
        DatagramEncoder { node, incarnation, last_id: 0, limits }
    }

    /// Returns the next channel id. The caller announces the channel before its first message, and
    /// again at intervals, for receivers that missed the announcement.
    pub fn open(&mut self) -> Result<ChannelId, FrameError> {
        let expected = ChannelId(self.last_id);
        self.last_id = self.last_id.checked_add(1).ok_or(FrameError::ChannelOrder { got: ChannelId(0), expected })?;
        Ok(ChannelId(self.last_id))
    }

    /// Starts a datagram. Replaces the contents of `out`.
    pub fn begin(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[FAMILY, VERSION]);
        out.extend_from_slice(&self.node.0);
        out.extend_from_slice(&self.incarnation.to_le_bytes());
    }

    /// Adds an announcement, the first or a repeated one.
    pub fn announce(&self, channel: ChannelId, start: Start, announcement: &Announcement, out: &mut Vec<u8>) {
        if !announcement.offer.is_empty() {
            counted(out, |out| body::put_offer(channel, &announcement.offer, out));
        }
        counted(out, |out| body::put_announcement(channel, start, announcement, out));
    }

    /// Adds a message with its payload. Fails if the extensions exceed the limit.
    pub fn data(&self, envelope: &Envelope<'_>, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let extensions = envelope.extensions.bytes().len();
        if extensions > self.limits.extension_bytes {
            let limit = self.limits.extension_bytes;
            return Err(FrameError::TooLong { what: "extensions", got: extensions as u64, limit });
        }
        let position = body::Position { sequence: envelope.sequence, time: None };
        counted(out, |out| {
            body::put_data(envelope, &position, out);
            out.extend_from_slice(payload);
        });
        Ok(())
    }

    /// Adds another frame. A hello is not allowed in datagrams.
    pub fn control(&self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        if let Frame::Announce { channel, start, announcement } = frame {
            return self.announce(*channel, *start, announcement, out);
        }
        counted(out, |out| body::put(frame, out));
    }

    /// Ends the datagram with its checksum.
    pub fn finish(&self, out: &mut Vec<u8>) {
        let sum = crc32c(out);
        out.extend_from_slice(&sum.to_le_bytes());
    }
}

fn counted(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put(out);
    let len = out.len() - start;
    varint::put(out, len as u64);
    out[start..].rotate_right(varint::len(len as u64));
}

/// A complete datagram from the newest known incarnation of its node. Iterate over it to read the
/// frames.
#[derive(Clone, Debug, PartialEq)]
pub struct Datagram<'a> {
    /// The node that sent it.
    pub node: Id128,
    /// The incarnation of the node.
    pub incarnation: u64,
    /// True for the first datagram of this incarnation. Then all knowledge of the node's channels
    /// is obsolete.
    pub restarted: bool,
    rest: &'a [u8],
    limits: Limits,
    offered: body::Offered,
}

impl<'a> Iterator for Datagram<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let frame = self.frame();
        if frame.is_err() {
            self.rest = &[];
        }
        Some(frame)
    }
}

/// Appends a frame as it stands in a datagram, without its length. For carriers that have lengths,
/// senders and checksums of their own. A hello is not allowed.
///
/// ```
/// use polywire_core::{envelope::{ChannelId, Envelope}, frame::{self, Frame, FrameError, Limits}};
/// let (mut bytes, sent) = (Vec::new(), Frame::Data(Envelope::data(ChannelId(1), 7, 17), b"hello"));
/// frame::put_datagram_frame(&sent, &mut bytes);
/// assert_eq!(frame::parse_datagram_frame(&bytes, &Limits::default()), Ok(sent));
/// assert_eq!(frame::parse_datagram_frame(&[], &Limits::default()), Err(FrameError::Empty));
/// ```
pub fn put_datagram_frame(frame: &Frame<'_>, out: &mut Vec<u8>) {
    match frame {
        Frame::Data(envelope, payload) => {
            body::put_data(envelope, &body::Position { sequence: envelope.sequence, time: None }, out);
            out.extend_from_slice(payload);
        }
        other => body::put(other, out),
    }
}

/// Parses a frame as it stands in a datagram, without its length.
pub fn parse_datagram_frame<'a>(frame: &'a [u8], limits: &Limits) -> Result<Frame<'a>, FrameError> {
    match frame.first() {
        None => Err(FrameError::Empty),
        Some(head) if head & body::DATA != 0 => {
            let in_full = |_, at: body::Position| Ok(Start { sequence: at.sequence, timestamp_ns: 0 });
            body::parse_data(frame, limits, true, in_full).map(|(e, payload)| Frame::Data(e, payload))
        }
        Some(&body::HELLO) => Err(FrameError::NotInDatagram("hello")),
        Some(_) => body::parse(frame, limits),
    }
}

impl<'a> Datagram<'a> {
    fn frame(&mut self) -> Result<Frame<'a>, FrameError> {
        let offset = 0;
        let (len, rest) = varint::split(self.rest).ok_or(FrameError::Number { field: "length", offset })?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (frame, rest) =
            rest.split_at_checked(len).ok_or(FrameError::Truncated { field: "frame", offset: rest.len() })?;
        self.rest = rest;
        let mut frame = parse_datagram_frame(frame, &self.limits)?;
        if !matches!(frame, Frame::Data(..)) {
            self.offered.join(&mut frame)?;
        }
        Ok(frame)
    }
}

/// Checks datagrams, and remembers the newest incarnation of each node.
#[derive(Debug, Default)]
pub struct DatagramDecoder {
    nodes: BTreeMap<Id128, u64>,
    limits: Limits,
}

impl DatagramDecoder {
    /// Makes a decoder with limits. `limits.channels` also bounds the number of nodes that it
    /// remembers.
    pub fn new(limits: Limits) -> Self {
        DatagramDecoder { nodes: BTreeMap::new(), limits }
    }

    /// Checks family, version, checksum and incarnation of a datagram.
    pub fn open<'a>(&mut self, datagram: &'a [u8]) -> Result<Datagram<'a>, FrameError> {
        let (body, frames) = checked(datagram)?;
        let too_short = FrameError::Truncated { field: "datagram header", offset: datagram.len() };
        let node = body.get(NODE_AT..).and_then(|b| b.first_chunk()).map(|b| Id128(*b)).ok_or(too_short.clone())?;
        let got = body.get(INCARNATION_AT..).and_then(|b| b.first_chunk()).ok_or(too_short)?;
        let incarnation = u64::from_le_bytes(*got);
        let restarted = self.admit(node, incarnation)?;
        Ok(Datagram {
            node,
            incarnation,
            restarted,
            rest: frames,
            limits: self.limits,
            offered: body::Offered::default(),
        })
    }

    fn admit(&mut self, node: Id128, got: u64) -> Result<bool, FrameError> {
        match self.nodes.get(&node).copied() {
            Some(expected) if got < expected => Err(FrameError::Incarnation { expected, got }),
            Some(expected) if got == expected => Ok(false),
            None if self.nodes.len() >= self.limits.channels => {
                Err(FrameError::TooManyChannels { limit: self.limits.channels })
            }
            _ => {
                self.nodes.insert(node, got);
                Ok(true)
            }
        }
    }
}

/// The bytes that the checksum covers, and the frames in them.
fn checked(datagram: &[u8]) -> Result<(&[u8], &[u8]), FrameError> {
    let mut first = [0; 6];
    for (to, from) in first.iter_mut().zip(datagram) {
        *to = *from;
    }
    if first[0] != FAMILY {
        return Err(FrameError::NotPolywire { got: first });
    }
    if first[1] != VERSION {
        return Err(FrameError::UnsupportedVersion { got: first[1], supported: VERSION });
    }
    let too_short = FrameError::Truncated { field: "datagram header", offset: datagram.len() };
    let at = datagram.len().checked_sub(CHECKSUM).filter(|at| *at >= FRAMES_AT).ok_or(too_short.clone())?;
    let (body, sum) = datagram.split_at_checked(at).ok_or(too_short)?;
    let got = u32::from_le_bytes(sum.first_chunk().copied().unwrap_or_default());
    let expected = crc32c(body);
    if got != expected {
        return Err(FrameError::Checksum { expected, got });
    }
    Ok((body, body.get(FRAMES_AT..).unwrap_or_default()))
}
