//! Encoding of frames, without the length in front. The numbers in data frames depend on the
//! carrier: [`stream`](super::stream) or [`datagram`](super::datagram).

use alloc::{boxed::Box, string::String, vec::Vec};

use super::{Answer, Frame, FrameError, Hello, Limits, MAGIC, Start, VERSION, cursor::Cursor, varint};
use crate::envelope::{Announcement, ChannelId, Envelope, Extensions, ExtensionsBuf, Id128, Kind};

pub(super) const HELLO: u8 = 0x01;
const ANNOUNCE: u8 = 0x02;
const ANSWER: u8 = 0x03;
const RETIRE: u8 = 0x04;
const POSITION: u8 = 0x05;
const WANT: u8 = 0x06;
const DOCUMENT: u8 = 0x07;
const HEARTBEAT: u8 = 0x08;
const BYE: u8 = 0x09;
const TAKEN: u8 = 0x40;
const LEASE: u8 = 0x48;
const RELAY: u8 = 0x4A;
/// An offer that a receiver may skip.
const OFFER: u8 = 0x42;
/// An offer that a receiver must understand.
const STRICT_OFFER: u8 = 0x43;
/// From this value on, receivers skip unknown frames whose head is even.
const OPTIONAL: u8 = 0x40;

/// Set only in the head of data frames, whose byte also has the flags below and the message kind.
pub(super) const DATA: u8 = 0x80;
pub(super) const HAS_GAP: u8 = 0x08;
const HAS_KEY: u8 = 0x10;
const HAS_ANCHOR: u8 = 0x20;
const HAS_EXTENSIONS: u8 = 0x40;
pub(super) const KIND: u8 = 0x07;

const ACCEPT: u8 = 0;
const DECLINE: u8 = 1;
const REFUSE: u8 = 2;
const PARTIAL: u8 = 3;
const RENEW: u8 = 4;

/// Id of the extension of an answer with its number of subscribers.
const SUBSCRIBERS: u32 = 2;

/// Appends head and body of a frame that is not a data frame; see [`put_data`] for those.
pub(super) fn put(frame: &Frame<'_>, out: &mut Vec<u8>) {
    match frame {
        Frame::Data(..) => unreachable!("data frames are written by their carrier"),
        Frame::Hello(hello) => put_hello(hello, out),
        Frame::Announce { channel, start, announcement } => put_announcement(*channel, *start, announcement, out),
        Frame::Answer { channel, answer } => put_answer(*channel, answer, out),
        Frame::Offer { channel, offer } => put_offer(*channel, offer, out),
        Frame::Retire { channel } => put_channel(RETIRE, *channel, out),
        Frame::Position { channel, start, lost } => {
            put_channel(POSITION, *channel, out);
            put_start(*start, out);
            varint::put(out, *lost);
        }
        Frame::Want { document } => {
            out.push(WANT);
            out.extend_from_slice(&document.0);
        }
        Frame::Document { document, bytes } => {
            out.push(DOCUMENT);
            out.extend_from_slice(&document.0);
            out.push(u8::from(bytes.is_some()));
            out.extend_from_slice(bytes.unwrap_or_default());
        }
        Frame::Heartbeat => out.push(HEARTBEAT),
        Frame::Bye => out.push(BYE),
        Frame::Taken { messages } => {
            out.push(TAKEN);
            varint::put(out, *messages);
        }
        Frame::Lease { milliseconds } => {
            out.push(LEASE);
            varint::put(out, *milliseconds);
        }
        Frame::Relay => out.push(RELAY),
        Frame::Unknown { .. } => unreachable!("unknown frames are never written"),
    }
}

/// The offer in front of the next announcement.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Offered(Option<(ChannelId, Vec<u8>)>);

impl Offered {
    /// Keeps an offer, and puts it into the announcement behind it.
    pub(super) fn join(&mut self, frame: &mut Frame<'_>) -> Result<(), FrameError> {
        match (self.0.take(), frame) {
            (None, Frame::Offer { channel, offer }) => self.0 = Some((*channel, offer.to_vec())),
            (Some((offered, offer)), Frame::Announce { channel, announcement, .. }) if offered == *channel => {
                announcement.offer = offer;
            }
            (None, _) => {}
            (Some((channel, _)), _) => return Err(FrameError::StrayOffer(channel)),
        }
        Ok(())
    }
}

/// Fails if the offer of an announcement is larger than receivers accept, or malformed.
pub(super) fn check_offer(announcement: &Announcement, limits: &Limits) -> Result<(), FrameError> {
    let (got, limit) = (announcement.offer.len(), limits.extension_bytes);
    if got > limit {
        return Err(FrameError::TooLong { what: "offer", got: got as u64, limit });
    }
    Extensions::parse(&announcement.offer).map_err(|e| FrameError::Extension { offset: e.offset })?;
    Ok(())
}

/// Parses a complete frame that is not a data frame.
pub(super) fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Frame<'a>, FrameError> {
    let mut cursor = Cursor::new(bytes);
    let frame = match cursor.byte("head")? {
        HELLO => parse_hello(&mut cursor)?,
        ANNOUNCE => parse_announcement(&mut cursor, limits)?,
        ANSWER => Frame::Answer { channel: cursor.channel()?, answer: parse_answer(&mut cursor, limits)? },
        OFFER | STRICT_OFFER => {
            let channel = cursor.channel()?;
            let offer = cursor.remaining_extensions(limits.extension_bytes)?.bytes();
            Frame::Offer { channel, offer }
        }
        RETIRE => Frame::Retire { channel: cursor.channel()? },
        POSITION => Frame::Position {
            channel: cursor.channel()?,
            start: parse_start(&mut cursor)?,
            lost: cursor.number("count of lost messages")?,
        },
        WANT => Frame::Want { document: cursor.id("document hash")? },
        DOCUMENT => return parse_document(cursor, limits),
        HEARTBEAT => Frame::Heartbeat,
        BYE => Frame::Bye,
        TAKEN => Frame::Taken { messages: cursor.number("count of messages")? },
        LEASE => Frame::Lease { milliseconds: cursor.number("lease")? },
        RELAY => Frame::Relay,
        head if head >= OPTIONAL && head % 2 == 0 => return Ok(Frame::Unknown { head }),
        head => return Err(FrameError::UnknownFrame { head }),
    };
    cursor.finish()?;
    Ok(frame)
}

fn put_hello(hello: &Hello, out: &mut Vec<u8>) {
    out.push(HELLO);
    out.extend_from_slice(&MAGIC);
    out.push(VERSION);
    out.extend_from_slice(&hello.node.0);
    out.extend_from_slice(&hello.incarnation.to_le_bytes());
}

fn parse_hello<'a>(cursor: &mut Cursor<'_>) -> Result<Frame<'a>, FrameError> {
    let magic: [u8; 4] = cursor.array("magic")?;
    if magic != MAGIC {
        return Err(FrameError::NotPolywire { got: [HELLO, magic[0], magic[1], magic[2], magic[3], 0] });
    }
    let got = cursor.byte("version")?;
    if got != VERSION {
        return Err(FrameError::UnsupportedVersion { got, supported: VERSION });
    }
    let node = cursor.id("node")?;
    Ok(Frame::Hello(Hello { node, incarnation: u64::from_le_bytes(cursor.array("incarnation")?) }))
}

fn put_channel(head: u8, channel: ChannelId, out: &mut Vec<u8>) {
    out.push(head);
    varint::put(out, u64::from(channel.0));
}

fn put_start(start: Start, out: &mut Vec<u8>) {
    varint::put(out, start.sequence);
    out.extend_from_slice(&start.timestamp_ns.to_le_bytes());
}

fn parse_start(cursor: &mut Cursor<'_>) -> Result<Start, FrameError> {
    let sequence = cursor.number("sequence number")?;
    Ok(Start { sequence, timestamp_ns: i64::from_le_bytes(cursor.array("time stamp")?) })
}

/// Without the offer, which is a frame of its own in front.
pub(super) fn put_announcement(channel: ChannelId, start: Start, a: &Announcement, out: &mut Vec<u8>) {
    put_channel(ANNOUNCE, channel, out);
    put_start(start, out);
    out.extend_from_slice(&a.writer.0);
    out.extend_from_slice(&a.incarnation.to_le_bytes());
    out.extend_from_slice(&a.type_hash.0);
    out.extend_from_slice(&a.schema.0);
    out.push(u8::from(a.configuration.is_some()));
    out.extend_from_slice(a.configuration.as_ref().map_or(&[], |id| &id.0[..]));
    for text in [&a.topic, &a.type_name, &a.codec, &a.options, &a.compressor] {
        varint::put(out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
    }
}

/// Extensions with an odd id must be understood, and then so must the frame.
pub(super) fn put_offer(channel: ChannelId, offer: &[u8], out: &mut Vec<u8>) {
    let extensions = Extensions::parse(offer).unwrap_or_default();
    let strict = extensions.not_understood(&[]).is_some();
    put_channel(if strict { STRICT_OFFER } else { OFFER }, channel, out);
    out.extend_from_slice(extensions.bytes());
}

fn parse_announcement<'a>(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Frame<'a>, FrameError> {
    let limit = limits.announcement_bytes;
    let got = cursor.offset() + cursor.rest().len();
    if got > limit {
        return Err(FrameError::TooLong { what: "announcement", got: got as u64, limit });
    }
    let channel = cursor.channel()?;
    let start = parse_start(cursor)?;
    let writer = cursor.id("writer")?;
    let incarnation = u64::from_le_bytes(cursor.array("writer's incarnation")?);
    let type_hash = cursor.id("type hash")?;
    let schema = cursor.id("schema hash")?;
    let configuration = parse_configuration(cursor)?;
    let mut text = |field| cursor.text(limit, field).map(String::from);
    let announcement = Box::new(Announcement {
        topic: text("topic")?,
        type_name: text("type name")?,
        codec: text("codec")?,
        options: text("codec options")?,
        compressor: text("compressor")?,
        writer,
        incarnation,
        type_hash,
        schema,
        configuration,
        offer: Vec::new(),
    });
    Ok(Frame::Announce { channel, start, announcement })
}

fn parse_configuration(cursor: &mut Cursor<'_>) -> Result<Option<Id128>, FrameError> {
    let offset = cursor.offset();
    match cursor.byte("configuration")? {
        0 => Ok(None),
        1 => cursor.id("configuration hash").map(Some),
        _ => Err(FrameError::Number { field: "configuration", offset }),
    }
}

fn put_answer(channel: ChannelId, answer: &Answer, out: &mut Vec<u8>) {
    put_channel(ANSWER, channel, out);
    match answer {
        Answer::Accept(_) => out.push(ACCEPT),
        Answer::Decline => out.push(DECLINE),
        Answer::Renew(_) => out.push(RENEW),
        Answer::Partial(_, reason) | Answer::Refuse(reason) => {
            out.push(if answer.accepts() { PARTIAL } else { REFUSE });
            varint::put(out, reason.len() as u64);
            out.extend_from_slice(reason.as_bytes());
        }
    }
    let subscribers = answer.subscribers();
    if subscribers > 1 {
        let mut count = Vec::new();
        varint::put(&mut count, u64::from(subscribers));
        let mut extensions = ExtensionsBuf::default();
        extensions.push(SUBSCRIBERS, &count);
        out.extend_from_slice(extensions.as_extensions().bytes());
    }
}

fn parse_answer(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Answer, FrameError> {
    let number = cursor.byte("answer")?;
    let reason = match number {
        REFUSE | PARTIAL => String::from(cursor.text(limits.extension_bytes, "reason")?),
        _ => String::new(),
    };
    let count = parse_subscribers(cursor, limits)?;
    match number {
        ACCEPT => Ok(Answer::Accept(count)),
        DECLINE => Ok(Answer::Decline),
        REFUSE => Ok(Answer::Refuse(reason)),
        PARTIAL => Ok(Answer::Partial(count, reason)),
        RENEW => Ok(Answer::Renew(count)),
        number => Err(FrameError::UnknownAnswer { number }),
    }
}

/// Parses the extensions after an answer, of which one is known.
fn parse_subscribers(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<u32, FrameError> {
    let offset = cursor.offset();
    let extensions = cursor.remaining_extensions(limits.extension_bytes)?;
    if let Some(id) = extensions.not_understood(&[]) {
        return Err(FrameError::UnknownExtension { id });
    }
    let Some((_, bytes)) = extensions.iter().find(|(id, _)| *id == SUBSCRIBERS) else { return Ok(1) };
    let count = varint::split(bytes).filter(|(_, rest)| rest.is_empty());
    // An acceptance stands for at least one subscriber.
    let count = count.and_then(|(count, _)| u32::try_from(count).ok()).filter(|count| *count > 0);
    count.ok_or(FrameError::Number { field: "count of subscribers", offset })
}

fn parse_document<'a>(mut cursor: Cursor<'a>, limits: &Limits) -> Result<Frame<'a>, FrameError> {
    let document = cursor.id("document hash")?;
    let offset = cursor.offset();
    match cursor.byte("presence")? {
        0 => {
            cursor.finish()?;
            Ok(Frame::Document { document, bytes: None })
        }
        1 if cursor.rest().len() > limits.document_bytes => {
            let got = cursor.rest().len() as u64;
            Err(FrameError::TooLong { what: "document", got, limit: limits.document_bytes })
        }
        1 => Ok(Frame::Document { document, bytes: Some(cursor.rest()) }),
        _ => Err(FrameError::Number { field: "presence", offset }),
    }
}

/// The fields of a data frame that depend on the carrier: relative to the last message, or
/// absolute.
pub(super) struct Position {
    /// On a stream, the number of sequence numbers skipped since the last message. In a datagram,
    /// the sequence number.
    pub(super) sequence: u64,
    /// On a stream, the zigzag difference to the last message's time. `None` in a datagram.
    pub(super) time: Option<u64>,
}

/// Head and fields of a data frame, as far as the extensions, in memory of fixed size: the length
/// of the frame goes in front on a stream.
pub(super) struct DataHead {
    bytes: [u8; FRONT + DATA_HEAD],
    start: usize,
    end: usize,
}

/// Room for a length in front.
const FRONT: usize = 10;

/// The most bytes of a message's head: a head and a flag each, a channel, a gap, a time, a key
/// hash, an anchor, a length.
pub(super) const DATA_HEAD: usize = 1 + 5 + 10 + 10 + 16 + 10 + 10;

impl DataHead {
    #[inline]
    pub(super) fn new(envelope: &Envelope<'_>, position: &Position) -> DataHead {
        let mut head = DataHead { bytes: [0; FRONT + DATA_HEAD], start: FRONT, end: FRONT };
        let flag = |flag, set| if set { flag } else { 0 };
        let flags = flag(HAS_GAP, has_gap(position))
            | flag(HAS_KEY, envelope.key_hash.is_some())
            | flag(HAS_ANCHOR, envelope.anchor.is_some())
            | flag(HAS_EXTENSIONS, !envelope.extensions.is_empty());
        head.byte(DATA | flags | envelope.kind.number());
        head.number(u64::from(envelope.channel.0));
        if has_gap(position) {
            head.number(position.sequence);
        }
        match position.time {
            Some(delta) => head.number(delta),
            None => head.slice(&envelope.timestamp_ns.to_le_bytes()),
        }
        if let Some(key) = &envelope.key_hash {
            head.slice(&key.0);
        }
        if let Some(anchor) = envelope.anchor {
            head.number(envelope.sequence.wrapping_sub(anchor));
        }
        if !envelope.extensions.is_empty() {
            head.number(envelope.extensions.bytes().len() as u64);
        }
        head
    }

    /// Its length.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Puts a number in front.
    #[inline]
    pub(super) fn put_in_front(&mut self, number: u64) {
        let mut at = self.start - varint::len(number);
        self.start = at;
        varint::each_byte(number, |byte| {
            self.bytes[at] = byte;
            at += 1;
        });
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.bytes[self.end] = byte;
        self.end += 1;
    }

    #[inline]
    fn number(&mut self, value: u64) {
        varint::each_byte(value, |byte| self.byte(byte));
    }

    #[inline]
    fn slice(&mut self, bytes: &[u8]) {
        self.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }
}

/// Length, head and fields of a data frame on a stream that is short and has nothing but a time, in
/// a register.
#[derive(Debug)]
pub(super) struct PlainHead {
    bytes: u64,
    len: usize,
    kind: Kind,
    delta: u64,
}

impl PlainHead {
    /// Of a message whose number and time are so far from those of the last one of its channel.
    /// `None` if the frame has something else or is longer than `limit`, or if its numbers are too
    /// large for the register.
    #[inline(always)]
    pub(super) fn new(
        channel: ChannelId,
        envelope: &Envelope<'_>,
        (gap, delta): (Option<u64>, u64),
        payload_len: usize,
        limit: usize,
    ) -> Option<PlainHead> {
        /// The largest numbers of two and three bytes.
        const TWO: usize = (1 << 14) - 1;
        const THREE: u64 = (1 << 21) - 1;
        let Envelope { kind, key_hash: None, anchor: None, extensions, .. } = envelope else { return None };
        if gap != Some(1) || delta > THREE || channel.0 as usize > TWO || payload_len > TWO || !extensions.is_empty() {
            return None;
        }
        let (channel, channel_bits) = varint::word(channel.0);
        let (time, time_bits) = varint::word(delta as u32);
        let fields = (8 + channel_bits + time_bits) as usize / 8;
        let len = fields + payload_len;
        if len > limit.min(TWO) {
            return None;
        }
        let (length, length_bits) = varint::word(len as u32);
        let word = u64::from(DATA | kind.number()) | channel << 8 | time << (8 + channel_bits);
        let (bytes, len) = (length | word << length_bits, length_bits as usize / 8 + fields);
        Some(PlainHead { bytes, len, kind: *kind, delta })
    }

    /// Whether it is also the head of this message of the channel, which follows with a payload of
    /// the same size.
    #[inline(always)]
    pub(super) fn fits(&self, envelope: &Envelope<'_>, delta: u64) -> bool {
        let Envelope { kind, key_hash: None, anchor: None, extensions, .. } = envelope else { return false };
        delta == self.delta && *kind == self.kind && extensions.is_empty()
    }

    /// Appends it. One copy of a fixed size costs less than one of its length.
    #[inline]
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let behind = out.len();
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.truncate(behind + self.len);
    }
}

/// Appends head and fields of a data frame.
pub(super) fn put_data(envelope: &Envelope<'_>, position: &Position, out: &mut Vec<u8>) {
    out.extend_from_slice(DataHead::new(envelope, position).bytes());
    out.extend_from_slice(envelope.extensions.bytes());
}

#[inline]
fn has_gap(position: &Position) -> bool {
    position.time.is_none() || position.sequence > 0
}

/// Parses a complete data frame. `resolve` converts the encoded fields to sequence number and time.
#[inline]
pub(super) fn parse_data<'a>(
    bytes: &'a [u8],
    limits: &Limits,
    in_full: bool,
    resolve: impl FnOnce(ChannelId, Position) -> Result<Start, FrameError>,
) -> Result<(Envelope<'a>, &'a [u8]), FrameError> {
    let mut cursor = Cursor::new(bytes);
    let head = cursor.byte("head")?;
    let kind = Kind::from_number(head & KIND).ok_or(FrameError::UnknownKind { number: head & KIND })?;
    let channel = cursor.channel()?;
    let sequence = if head & HAS_GAP != 0 { cursor.number("sequence number")? } else { 0 };
    let full_time = if in_full { Some(i64::from_le_bytes(cursor.array("time stamp")?)) } else { None };
    let time = if in_full { None } else { Some(cursor.number("time stamp")?) };
    let start = resolve(channel, Position { sequence, time })?;
    let key_hash = if head & HAS_KEY != 0 { Some(cursor.id("key hash")?) } else { None };
    let anchor = match head & HAS_ANCHOR != 0 {
        true => Some(start.sequence.wrapping_sub(cursor.number("anchor")?)),
        false => None,
    };
    let extensions = match head & HAS_EXTENSIONS != 0 {
        true => cursor.extensions(limits.extension_bytes)?,
        false => Extensions::default(),
    };
    let timestamp_ns = full_time.unwrap_or(start.timestamp_ns);
    let envelope = Envelope { channel, sequence: start.sequence, timestamp_ns, kind, key_hash, anchor, extensions };
    Ok((envelope, cursor.rest()))
}

/// Number of bytes from the head of a data frame on a stream to its payload. `None` if the bytes
/// end before the payload or are malformed.
pub(super) fn data_header_len(bytes: &[u8]) -> Option<usize> {
    let mut cursor = Cursor::new(bytes);
    let head = cursor.byte("head").ok().filter(|head| head & DATA != 0)?;
    cursor.channel().ok()?;
    if head & HAS_GAP != 0 {
        cursor.number("sequence number").ok()?;
    }
    cursor.number("time stamp").ok()?;
    if head & HAS_KEY != 0 {
        cursor.id("key hash").ok()?;
    }
    if head & HAS_ANCHOR != 0 {
        cursor.number("anchor").ok()?;
    }
    if head & HAS_EXTENSIONS != 0 {
        let len = cursor.number("extensions").ok()?;
        cursor.slice(usize::try_from(len).ok()?, "extensions").ok()?;
    }
    Some(cursor.offset())
}
