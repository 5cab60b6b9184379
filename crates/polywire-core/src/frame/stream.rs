//! Frames on a byte stream. Each has its length in front. Sequence numbers and times are relative
//! to the channel's last message.

use alloc::{collections::BTreeMap, vec::Vec};

use super::{Frame, FrameError, Hello, Limits, Start, body, varint};
use crate::envelope::{Announcement, ChannelId, Envelope, Kind};

/// Length of the longest length prefix: enough for any limit on a 32-bit target, and for all
/// reasonable ones elsewhere.
const MAX_PREFIX: usize = 5;

/// The sending half of a stream. The caller sends frames in the order in which they are written.
///
/// ```
/// use polywire_core::envelope::{Announcement, Envelope};
/// use polywire_core::frame::{Frame, Hello, Start, Step, StreamDecoder, StreamEncoder};
///
/// let (mut encoder, mut bytes) = (StreamEncoder::default(), Vec::new());
/// encoder.hello(&Hello { node: Default::default(), incarnation: 1 }, &mut bytes);
/// let channel = encoder.announce(&Announcement::default(), Start::default(), &mut bytes)?;
/// encoder.data(&Envelope::data(channel, 1, 17), 5, &mut bytes)?;
/// bytes.extend_from_slice(b"hello");
///
/// let (mut decoder, mut input) = (StreamDecoder::default(), &bytes[..]);
/// let mut frames = Vec::new();
/// while let Step::Frame { frame, used } = decoder.step(input)? {
///     frames.push(frame);
///     input = &input[used..];
/// }
/// assert_eq!(frames[2], Frame::Data(Envelope::data(channel, 1, 17), b"hello"));
///
/// // The next messages have nothing unusual. One of them is not whole yet.
/// bytes.clear();
/// for (sequence, payload) in [(2, b"again"), (3, b"still")] {
///     encoder.data(&Envelope::data(channel, sequence, 18), payload.len(), &mut bytes)?;
///     bytes.extend_from_slice(payload);
/// }
/// let mut messages = Vec::new();
/// let used = decoder.messages(&bytes[..bytes.len() - 1], 10, 100, &mut messages);
/// assert_eq!(messages, [(Envelope::data(channel, 2, 18), &b"again"[..])]);
/// assert_eq!(decoder.step(&bytes[used..])?, Step::Frame {
///     frame: Frame::Data(Envelope::data(channel, 3, 18), b"still"),
///     used: bytes.len() - used,
/// });
/// # Ok::<(), polywire_core::frame::FrameError>(())
/// ```
#[derive(Debug, Default)]
pub struct StreamEncoder {
    channels: Channels,
    limits: Limits,
}

impl StreamEncoder {
    /// Makes an encoder that keeps `limits`, so that a peer with the same limits refuses nothing.
    pub fn new(limits: Limits) -> Self {
        StreamEncoder { channels: Channels::default(), limits }
    }

    /// Writes the first frame of a stream.
    pub fn hello(&mut self, hello: &Hello, out: &mut Vec<u8>) {
        self.control(&Frame::Hello(*hello), out);
    }

    /// Opens a channel and announces it. Fails if the announcement or the number of channels
    /// exceeds a limit.
    pub fn announce(&mut self, a: &Announcement, start: Start, out: &mut Vec<u8>) -> Result<ChannelId, FrameError> {
        let channel = ChannelId(self.channels.last_id + 1);
        body::check_offer(a, &self.limits)?;
        let mark = out.len();
        if !a.offer.is_empty() {
            framed(out, |out| body::put_offer(channel, &a.offer, out));
        }
        let offer = out.len() - mark;
        framed(out, |out| body::put_announcement(channel, start, a, out));
        let len = out.len() - mark - offer;
        let checked = if len > self.limits.announcement_bytes {
            Err(FrameError::TooLong { what: "announcement", got: len as u64, limit: self.limits.announcement_bytes })
        } else {
            self.channels.open(channel, start, &self.limits)
        };
        if checked.is_err() {
            out.truncate(mark);
        }
        checked.map(|()| channel)
    }

    /// Ends a channel.
    pub fn retire(&mut self, channel: ChannelId, out: &mut Vec<u8>) -> Result<(), FrameError> {
        self.channels.close(channel)?;
        framed(out, |out| body::put(&Frame::Retire { channel }, out));
        Ok(())
    }

    /// Sets the position that the channel's next message refers to, and reports the number of
    /// messages lost before it.
    pub fn position(
        &mut self,
        channel: ChannelId,
        start: Start,
        lost: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), FrameError> {
        *self.channels.get(channel)? = start;
        self.control(&Frame::Position { channel, start, lost }, out);
        Ok(())
    }

    /// Writes a message without its payload. The caller appends `payload_len` bytes.
    #[inline]
    pub fn data(&mut self, envelope: &Envelope<'_>, payload_len: usize, out: &mut Vec<u8>) -> Result<(), FrameError> {
        self.channel(envelope.channel)?.data(envelope, payload_len, out)
    }

    /// Writes several messages of one channel, which is looked up once.
    #[inline]
    pub fn channel(&mut self, channel: ChannelId) -> Result<ChannelEncoder<'_>, FrameError> {
        Ok(ChannelEncoder { channel, last: self.channels.get(channel)?, limits: &self.limits, repeated: None })
    }

    /// Writes a frame that does not change the channels of this direction, or a position that
    /// refers to messages already written.
    ///
    /// # Panics
    /// If the frame changes the channels: use the methods for such frames, which also update the
    /// state.
    pub fn control(&self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let stateful =
            matches!(frame, Frame::Data(..) | Frame::Offer { .. } | Frame::Announce { .. } | Frame::Retire { .. });
        assert!(!stateful, "the encoder's own methods write these");
        framed(out, |out| body::put(frame, out));
    }
}

/// The messages of one channel of a [`StreamEncoder`].
///
/// ```
/// use polywire_core::envelope::{Announcement, Envelope};
/// use polywire_core::frame::{ChannelEncoder, Hello, Start, StreamEncoder};
///
/// let (mut encoder, mut bytes) = (StreamEncoder::default(), Vec::new());
/// encoder.hello(&Hello { node: Default::default(), incarnation: 1 }, &mut bytes);
/// let channel = encoder.announce(&Announcement::default(), Start::default(), &mut bytes)?;
/// let mut messages: ChannelEncoder<'_> = encoder.channel(channel)?;
/// for (sequence, payload) in (1..).zip([b"one", b"two"]) {
///     messages.data(&Envelope::data(channel, sequence, 0), payload.len(), &mut bytes)?;
///     bytes.extend_from_slice(payload);
/// }
/// # Ok::<(), polywire_core::frame::FrameError>(())
/// ```
#[derive(Debug)]
pub struct ChannelEncoder<'a> {
    channel: ChannelId,
    last: &'a mut Start,
    limits: &'a Limits,
    /// The head of the last plain message, and the size of its payload. Messages that are published
    /// together mostly have equal ones.
    repeated: Option<(usize, body::PlainHead)>,
}

impl ChannelEncoder<'_> {
    /// Writes a message of the channel without its payload. The caller appends `payload_len` bytes.
    /// The channel that the envelope names does not matter.
    #[inline(always)]
    pub fn data(&mut self, envelope: &Envelope<'_>, payload_len: usize, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let delta = varint::zigzag(envelope.timestamp_ns.wrapping_sub(self.last.timestamp_ns));
        let (gap, limit) = (envelope.sequence.checked_sub(self.last.sequence), self.limits.frame_bytes);
        match &self.repeated {
            Some((len, head)) if *len == payload_len && gap == Some(1) && head.fits(envelope, delta) => {
                head.append(out)
            }
            _ => match body::PlainHead::new(self.channel, envelope, (gap, delta), payload_len, limit) {
                Some(head) => {
                    head.append(out);
                    self.repeated = Some((payload_len, head));
                }
                None => self.put_head(envelope, delta, payload_len, out)?,
            },
        }
        *self.last = Start { sequence: envelope.sequence, timestamp_ns: envelope.timestamp_ns };
        Ok(())
    }

    /// Writes the front of any message.
    #[inline(never)]
    fn put_head(
        &self,
        envelope: &Envelope<'_>,
        delta: u64,
        payload_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), FrameError> {
        let (last, extensions) = (self.last.sequence, envelope.extensions.bytes());
        if extensions.len() > self.limits.extension_bytes {
            let got = extensions.len() as u64;
            return Err(FrameError::TooLong { what: "extensions", got, limit: self.limits.extension_bytes });
        }
        let gap = envelope.sequence.checked_sub(1).and_then(|before| before.checked_sub(last));
        let gap = gap.ok_or(FrameError::Sequence { channel: self.channel, last, got: envelope.sequence })?;
        let position = body::Position { sequence: gap, time: Some(delta) };
        let mut head = body::DataHead::new(&Envelope { channel: self.channel, ..*envelope }, &position);
        let (len, limit) = ((head.len() + extensions.len()).saturating_add(payload_len), self.limits.frame_bytes);
        if len > limit {
            return Err(FrameError::TooLong { what: "frame", got: len as u64, limit });
        }
        head.put_in_front(len as u64);
        out.extend_from_slice(head.bytes());
        out.extend_from_slice(extensions);
        Ok(())
    }
}

fn framed(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put(out);
    let len = out.len() - start;
    varint::put(out, len as u64);
    out[start..].rotate_right(varint::len(len as u64));
}

/// The result of [`StreamDecoder::step`].
#[derive(Debug, PartialEq)]
pub enum Step<'a> {
    /// The input is too short for a frame. Call again with at least this many bytes, counted from
    /// the start of the input.
    Need(usize),
    /// A frame.
    Frame {
        /// The frame.
        frame: Frame<'a>,
        /// Number of bytes that the frame takes at the start of the input, including its length
        /// prefix.
        used: usize,
    },
}

/// The receiving half of a stream.
///
/// After an error the stream cannot be continued, because the start of the next frame is unknown.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    channels: Channels,
    limits: Limits,
    greeted: bool,
    offered: body::Offered,
}

impl StreamDecoder {
    /// Makes a decoder that enforces `limits`.
    pub fn new(limits: Limits) -> Self {
        StreamDecoder { limits, ..Self::default() }
    }

    /// Reads one frame from the start of `input`. Call it again with the bytes after the frame or,
    /// after [`Step::Need`], with the same bytes and more.
    #[inline]
    pub fn step<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a>, FrameError> {
        if !self.greeted {
            check_greeting(input)?;
        }
        let (len, prefix) = match varint::take(input) {
            varint::Taken::Value(len, prefix) => (len, prefix),
            varint::Taken::Short if input.len() < MAX_PREFIX => return Ok(Step::Need(input.len() + 1)),
            _ => return Err(FrameError::Number { field: "length", offset: 0 }),
        };
        let len = self.check_len(len)?;
        let Some(body) = input.get(prefix..prefix + len) else { return Ok(Step::Need(prefix + len)) };
        let frame = self.frame(body)?;
        Ok(Step::Frame { frame, used: prefix + len })
    }

    /// Appends messages from the start of `input` to `messages`, at most `most`, and returns the
    /// number of bytes that their frames take. Ends at a frame that is not whole or not a message,
    /// at a message that does not follow the last one of its channel, that has anything but a time
    /// in its envelope, or whose payload is larger than `largest` bytes: [`step`](Self::step)
    /// returns what is there. Most messages of a flood are read here, and this is faster.
    pub fn messages<'a>(
        &mut self,
        input: &'a [u8],
        most: usize,
        largest: usize,
        messages: &mut Vec<(Envelope<'a>, &'a [u8])>,
    ) -> usize {
        let mut rest = input;
        for _ in 0..most {
            let Some((envelope, payload, behind)) = self.message(rest, largest) else { break };
            messages.push((envelope, payload));
            rest = behind;
        }
        input.len() - rest.len()
    }

    /// Reads one of [`messages`](Self::messages), and returns it with the input behind its frame.
    /// Returns `None`, and changes nothing, if the input does not begin with one.
    #[inline(always)]
    fn message<'a>(&mut self, input: &'a [u8], largest: usize) -> Option<(Envelope<'static>, &'a [u8], &'a [u8])> {
        let varint::Taken::Value(len, prefix) = varint::take(input) else { return None };
        let len = usize::try_from(len).ok().filter(|len| *len <= self.limits.frame_bytes)?;
        let (body, behind) = input.get(prefix..)?.split_at_checked(len)?;
        let (head, body) = body.split_first().filter(|(head, _)| *head & !body::KIND == body::DATA)?;
        let varint::Taken::Value(channel, prefix) = varint::take(body) else { return None };
        let body = body.get(prefix..)?;
        let varint::Taken::Value(delta, prefix) = varint::take(body) else { return None };
        let payload = body.get(prefix..).filter(|payload| payload.len() <= largest)?;
        let (kind, channel) = (Kind::from_number(head & body::KIND)?, ChannelId(u32::try_from(channel).ok()?));
        let position = body::Position { sequence: 0, time: Some(delta) };
        let start = self.channels.advance(channel, &position).ok()?;
        let envelope = Envelope { kind, ..Envelope::data(channel, start.sequence, start.timestamp_ns) };
        Some((envelope, payload, behind))
    }

    fn check_len(&self, got: u64) -> Result<usize, FrameError> {
        let limit = self.limits.frame_bytes;
        match usize::try_from(got) {
            Ok(0) => Err(FrameError::Empty),
            Ok(len) if len <= limit => Ok(len),
            _ => Err(FrameError::TooLong { what: "frame", got, limit }),
        }
    }

    #[inline]
    fn frame<'a>(&mut self, body: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        if body.first().is_some_and(|head| head & body::DATA != 0) {
            let channels = &mut self.channels;
            let (envelope, payload) =
                body::parse_data(body, &self.limits, false, |channel, position| channels.advance(channel, &position))?;
            return Ok(Frame::Data(envelope, payload));
        }
        let mut frame = body::parse(body, &self.limits)?;
        self.offered.join(&mut frame)?;
        match &frame {
            Frame::Hello(_) if self.greeted => return Err(FrameError::SecondHello),
            Frame::Hello(_) => self.greeted = true,
            Frame::Announce { channel, start, .. } => self.channels.open(*channel, *start, &self.limits)?,
            Frame::Retire { channel } => self.channels.close(*channel)?,
            Frame::Position { channel, start, .. } => *self.channels.get(*channel)? = *start,
            _ => {}
        }
        Ok(frame)
    }
}

/// Checks that a stream begins with a hello: its length below 128, its head, and the magic bytes.
fn check_greeting(input: &[u8]) -> Result<(), FrameError> {
    let mut got = [0; 6];
    for (to, from) in got.iter_mut().zip(input) {
        *to = *from;
    }
    let [m0, m1, m2, m3] = super::MAGIC;
    let expected = [body::HELLO, m0, m1, m2, m3];
    let plain_length = input.first().is_none_or(|len| (1..0x80).contains(len));
    match plain_length && input.iter().skip(1).zip(expected).all(|(got, expected)| *got == expected) {
        true => Ok(()),
        false => Err(FrameError::NotPolywire { got }),
    }
}

/// Number of bytes from the start of a frame to its payload, if `input` is long enough to tell. A
/// receiver that wants the payload aligned places the frame accordingly.
///
/// ```
/// use polywire_core::envelope::{ChannelId, Envelope};
/// use polywire_core::frame::{payload_offset, Answer, Frame, Start, Step, StreamDecoder, StreamEncoder};
/// let (mut encoder, mut bytes) = (StreamEncoder::default(), Vec::new());
/// encoder.hello(&polywire_core::frame::Hello { node: Default::default(), incarnation: 1 }, &mut bytes);
/// let channel = encoder.announce(&Default::default(), Start::default(), &mut bytes)?;
/// let answer = Answer::Refuse("no such type".into());
/// assert_eq!((answer.accepts(), answer.reason()), (false, Some("no such type")));
/// encoder.control(&Frame::Answer { channel: ChannelId(1), answer }, &mut bytes);
/// encoder.position(channel, Start { sequence: 4, timestamp_ns: 0 }, 4, &mut bytes)?;
/// let at = bytes.len();
/// encoder.data(&Envelope::data(channel, 5, 0), 3, &mut bytes)?;
/// assert_eq!(payload_offset(&bytes[at..]), Some(bytes.len() - at));
/// bytes.extend_from_slice(b"abc");
/// encoder.retire(channel, &mut bytes)?;
///
/// let (mut decoder, mut input, mut count) = (StreamDecoder::default(), &bytes[..], 0);
/// while let Step::Frame { used, .. } = decoder.step(input)? {
///     (input, count) = (&input[used..], count + 1);
/// }
/// assert_eq!((input.len(), count), (0, 6));
/// # Ok::<(), polywire_core::frame::FrameError>(())
/// ```
pub fn payload_offset(input: &[u8]) -> Option<usize> {
    let varint::Taken::Value(_, prefix) = varint::take(input) else { return None };
    body::data_header_len(input.get(prefix..)?).map(|len| prefix + len)
}

/// The open channels of one direction, with the position of each.
#[derive(Debug, Default)]
struct Channels {
    open: BTreeMap<u32, Start>,
    /// The channel of the last message, which the next one mostly has too. Its position in `open`
    /// is out of date.
    near: Option<(u32, Start)>,
    last_id: u32,
}

impl Channels {
    fn open(&mut self, channel: ChannelId, start: Start, limits: &Limits) -> Result<(), FrameError> {
        let expected = ChannelId(self.last_id.wrapping_add(1));
        if channel != expected || channel.0 == 0 {
            return Err(FrameError::ChannelOrder { got: channel, expected });
        }
        if self.open.len() >= limits.channels {
            return Err(FrameError::TooManyChannels { limit: limits.channels });
        }
        self.last_id = channel.0;
        self.open.insert(channel.0, start);
        Ok(())
    }

    fn close(&mut self, channel: ChannelId) -> Result<(), FrameError> {
        self.near.take_if(|(near, _)| *near == channel.0);
        self.open.remove(&channel.0).map(|_| ()).ok_or(FrameError::UnknownChannel(channel))
    }

    #[inline]
    fn get(&mut self, channel: ChannelId) -> Result<&mut Start, FrameError> {
        if self.near.is_none_or(|(near, _)| near != channel.0) {
            self.approach(channel)?;
        }
        self.near.as_mut().map(|(_, start)| start).ok_or(FrameError::UnknownChannel(channel))
    }

    /// Makes a channel the near one.
    fn approach(&mut self, channel: ChannelId) -> Result<(), FrameError> {
        let start = *self.open.get(&channel.0).ok_or(FrameError::UnknownChannel(channel))?;
        if let Some((other, last)) = self.near.replace((channel.0, start))
            && let Some(known) = self.open.get_mut(&other)
        {
            *known = last;
        }
        Ok(())
    }

    #[inline]
    fn advance(&mut self, channel: ChannelId, position: &body::Position) -> Result<Start, FrameError> {
        let last = self.get(channel)?;
        let step = position.sequence.checked_add(1).and_then(|step| last.sequence.checked_add(step));
        let sequence = step.ok_or(FrameError::Sequence { channel, last: last.sequence, got: position.sequence })?;
        let delta = varint::unzigzag(position.time.unwrap_or_default());
        *last = Start { sequence, timestamp_ns: last.timestamp_ns.wrapping_add(delta) };
        Ok(*last)
    }
}
