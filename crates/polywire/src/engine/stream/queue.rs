//! Encoded frames that wait for a stream, and how the oldest messages make room.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
};

use polywire_core::{
    envelope::{ChannelId, Envelope},
    frame::{ChannelEncoder, Frame, Start, StreamEncoder},
};

use crate::engine::{EngineOptions, delivery::start_of};

/// Frames in the order in which they leave.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Frames that were queued among dropped messages and must not be lost, and positions that
    /// report the drops. They leave before `bytes`.
    urgent: Bytes,
    bytes: Bytes,
    /// One entry per frame in `bytes`; `None` unless the oldest may be dropped.
    marks: Option<VecDeque<Mark>>,
    /// Bytes of the first frame that have left.
    front_sent: usize,
    /// The last write took only a part of `bytes`. A TLS stream may have encrypted one more byte
    /// than it reported, so the first frame counts as begun.
    is_short: bool,
    /// Drops not reported yet, by channel.
    lost: BTreeMap<ChannelId, (Start, u64)>,
    /// Bytes removed from `bytes` so far.
    taken: u64,
    /// The frames in `bytes` that are not messages.
    control: VecDeque<Control>,
    control_bytes: usize,
    reply_bytes: usize,
}

/// Adds messages to a [`Queue`].
pub(super) struct Adding<'q> {
    /// The buffer to which the caller appends each message. It calls [`Adding::end_message`] then.
    pub(super) bytes: &'q mut Vec<u8>,
    /// Where the next message begins.
    begin: usize,
    /// Bytes of the buffer that have left.
    gone: usize,
    /// Waiting bytes that are not in the buffer.
    elsewhere: usize,
    marks: &'q mut Option<VecDeque<Mark>>,
    front_sent: &'q mut usize,
}

/// Consecutive frames that are not messages.
#[derive(Debug)]
struct Control {
    /// The value of [`Queue::taken`] when they have left.
    end: u64,
    len: usize,
    /// The peer asked for them.
    reply: bool,
}

/// Consecutive frames that are not messages share an entry up to this many bytes.
const TOGETHER: usize = 4 << 10;

/// A frame in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Length of the whole frame, in bytes.
    pub(super) len: usize,
    /// The link's id for the channel, and the channel's position after the message; `None` for
    /// frames that must not be dropped.
    pub(super) message: Option<(ChannelId, Start)>,
}

impl Adding<'_> {
    /// Returns the number of bytes that wait.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.elsewhere + self.bytes.len() - self.gone
    }

    /// Adds a message of a channel, whose id on the link and encoder are given, unless the queue
    /// has no room or is due to be written. A queue for a `full` stream is not. Returns whether it
    /// did.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        encoder: &mut ChannelEncoder<'_>,
        (id, envelope, payload): (ChannelId, &Envelope<'_>, &[u8]),
        options: &EngineOptions,
        full: bool,
    ) -> bool {
        let waiting = self.waiting();
        let has_room = waiting == 0 || waiting.saturating_add(payload.len()) <= options.queue_bytes;
        if !has_room || (waiting >= options.write_bytes && !full) {
            return false;
        }
        if encoder.data(envelope, payload.len(), self.bytes).is_err() {
            return false;
        }
        self.bytes.extend_from_slice(payload);
        self.end_message((id, start_of(envelope)));
        true
    }

    /// Notes that a message is complete, of this channel and with this position after it.
    #[inline]
    pub(super) fn end_message(&mut self, message: (ChannelId, Start)) {
        let len = self.bytes.len() - std::mem::replace(&mut self.begin, self.bytes.len());
        mark(self.marks, self.front_sent, Mark { len, message: Some(message) }, 0);
    }
}

impl Queue {
    /// Creates an empty queue. `droppable`: it records what [`Queue::drop_oldest`] needs.
    pub(super) fn new(droppable: bool) -> Self {
        Queue { marks: droppable.then(VecDeque::new), ..Queue::default() }
    }

    /// Adds a frame. Its first `sent` bytes have been written already.
    pub(super) fn push(&mut self, frame: &[u8], sent: usize, message: Option<(ChannelId, Start)>) {
        self.bytes.end().extend_from_slice(frame.get(sent..).unwrap_or_default());
        mark(&mut self.marks, &mut self.front_sent, Mark { len: frame.len(), message }, sent);
    }

    /// Adds messages.
    #[inline]
    pub(super) fn adding(&mut self) -> Adding<'_> {
        let elsewhere = self.urgent.len();
        let Queue { bytes, marks, front_sent, .. } = self;
        bytes.end();
        let Bytes { all, gone } = bytes;
        Adding { begin: all.len(), gone: *gone, elsewhere, bytes: all, marks, front_sent }
    }

    /// Adds a frame that is not a message. `reply`: the peer has requested it.
    pub(super) fn push_control(&mut self, frame: &[u8], reply: bool) {
        let before = self.taken + self.bytes.len() as u64;
        self.push(frame, 0, None);
        let (end, len) = (before + frame.len() as u64, frame.len());
        match self.control.back_mut() {
            Some(last) if last.end == before && last.reply == reply && last.len < TOGETHER => {
                last.end = end;
                last.len += len;
            }
            _ => self.control.push_back(Control { end, len, reply }),
        }
        self.control_bytes += len;
        self.reply_bytes += if reply { len } else { 0 };
    }

    /// Returns the number of bytes of waiting frames that are not messages.
    pub(super) fn control_bytes(&self) -> usize {
        self.urgent.len() + self.control_bytes
    }

    /// Returns the number of bytes of waiting frames that the peer has requested, approximately.
    pub(super) fn reply_bytes(&self) -> usize {
        self.urgent.len() + self.reply_bytes
    }

    /// Writes until the queue is empty, about `most` bytes have left, or `write` fails.
    pub(super) fn pump(&mut self, most: usize, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        let mut left = most;
        while left > 0 && !self.is_empty() {
            self.tell_lost();
            let urgent = !self.urgent.is_empty();
            let source = if urgent { &self.urgent } else { &self.bytes };
            let waiting = source.len();
            let sent = write(source.as_slice())?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            left = left.saturating_sub(sent);
            if urgent {
                self.urgent.remove(sent);
            } else {
                self.is_short = sent < waiting;
                self.advance(sent);
            }
        }
        Ok(())
    }

    fn advance(&mut self, sent: usize) {
        self.bytes.remove(sent);
        self.count_taken(sent);
        let Some(marks) = &mut self.marks else { return };
        self.front_sent += sent;
        while let Some(mark) = marks.front().filter(|mark| mark.len <= self.front_sent) {
            self.front_sent -= mark.len;
            marks.pop_front();
        }
    }

    fn count_taken(&mut self, bytes: usize) {
        self.taken += bytes as u64;
        while let Some(gone) = self.control.pop_front_if(|control| control.end <= self.taken) {
            self.control_bytes -= gone.len;
            self.reply_bytes -= if gone.reply { gone.len } else { 0 };
        }
    }

    /// Drops the oldest message and returns its channel. Frames before it that must not be lost
    /// become urgent. `None` if no message waits.
    pub(super) fn drop_oldest(&mut self) -> Option<ChannelId> {
        while let Some(mark) = self.marks.as_mut().and_then(VecDeque::pop_front) {
            let started = std::mem::take(&mut self.front_sent);
            let is_begun = std::mem::take(&mut self.is_short) || started > 0;
            let left = mark.len - started;
            match mark.message {
                Some((channel, start)) if !is_begun => {
                    self.bytes.remove(left);
                    self.count_taken(left);
                    let lost = self.lost.entry(channel).or_default();
                    *lost = (start, lost.1 + 1);
                    return Some(channel);
                }
                _ => {
                    // A frame that is begun must leave next. Nothing is urgent then: urgent
                    // frames would have left before it was begun.
                    self.tell_lost();
                    let frame = self.bytes.as_slice().get(..left).unwrap_or_default();
                    self.urgent.end().extend_from_slice(frame);
                    self.bytes.remove(left);
                    self.count_taken(left);
                }
            }
        }
        None
    }

    /// Queues the positions that report the drops. The next message of each channel is encoded
    /// relative to its position.
    fn tell_lost(&mut self) {
        if self.lost.is_empty() || self.front_sent > 0 || self.is_short {
            return;
        }
        let (encoder, mut out) = (StreamEncoder::default(), Vec::new());
        for (channel, (start, lost)) in std::mem::take(&mut self.lost) {
            encoder.control(&Frame::Position { channel, start, lost }, &mut out);
        }
        self.urgent.end().extend_from_slice(&out);
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.urgent.len() + self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0 && self.lost.is_empty()
    }

    /// Frees memory that a large message took.
    pub(super) fn shrink(&mut self, to: usize) {
        if self.is_empty() {
            self.bytes.shrink(to);
            self.urgent.shrink(to);
        }
    }
}

/// A contiguous queue of bytes, which are appended at the end and removed at the front.
#[derive(Debug, Default)]
struct Bytes {
    all: Vec<u8>,
    /// The number of removed bytes that are still in `all`.
    gone: usize,
}

impl Bytes {
    #[inline]
    fn len(&self) -> usize {
        self.all.len() - self.gone
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn as_slice(&self) -> &[u8] {
        self.all.get(self.gone..).unwrap_or_default()
    }

    /// Returns the buffer to append to. Discards the removed bytes once they outnumber the others.
    #[inline]
    fn end(&mut self) -> &mut Vec<u8> {
        if self.gone > self.len() {
            self.close_up();
        }
        &mut self.all
    }

    #[cold]
    fn close_up(&mut self) {
        drop(self.all.drain(..self.gone));
        self.gone = 0;
    }

    /// Removes up to `bytes` bytes at the front.
    fn remove(&mut self, bytes: usize) {
        self.gone = (self.gone + bytes).min(self.all.len());
        if self.is_empty() {
            self.all.clear();
            self.gone = 0;
        }
    }

    fn shrink(&mut self, to: usize) {
        if self.all.capacity() > to {
            self.all.shrink_to(to);
        }
    }
}

/// Notes a frame that was queued, of which `sent` bytes have been written already, if the oldest
/// may be dropped.
#[inline]
fn mark(marks: &mut Option<VecDeque<Mark>>, front_sent: &mut usize, mark: Mark, sent: usize) {
    let Some(marks) = marks else { return };
    if marks.is_empty() {
        *front_sent = sent;
    }
    marks.push_back(mark);
}

#[cfg(test)]
mod tests {
    use polywire_core::{
        envelope::{Announcement, Id128},
        frame::{Hello, Step, StreamDecoder},
    };

    use super::*;

    /// Pseudo-random numbers, from a seed that a failing test prints.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % sides
        }
    }

    #[test]
    fn whatever_is_dropped_the_stream_stays_whole_and_tells() {
        for seed in 0..200 {
            check(seed);
        }
    }

    fn check(seed: u64) {
        let (mut dice, mut queue, mut wire) = (Dice(seed), Queue::new(true), Vec::new());
        let (mut encoder, mut out) = (StreamEncoder::default(), Vec::new());
        encoder.hello(&Hello { node: Id128::ZERO, incarnation: 1 }, &mut out);
        queue.push(&out, 0, None);
        let (mut sequence, mut dropped) = (0, 0);
        let mut channels = Vec::new();
        for _ in 0..300 {
            out.clear();
            match dice.roll(8) {
                0 if channels.len() < 5 => {
                    let start = Start { sequence, timestamp_ns: 0 };
                    channels.push(encoder.announce(&Announcement::default(), start, &mut out).expect("fits"));
                    queue.push_control(&out, dice.roll(2) == 0);
                }
                1 if channels.len() > 3 => {
                    encoder.retire(channels.remove(0), &mut out).expect("open");
                    queue.push_control(&out, false);
                }
                2 | 3 => dropped += u64::from(queue.drop_oldest().is_some()),
                4 | 5 => {
                    let mut budget = dice.roll(60) as usize;
                    let pumped = queue.pump(usize::MAX, |bytes| match bytes.len().min(budget) {
                        0 => Err(io::ErrorKind::WouldBlock.into()),
                        sent => {
                            budget -= sent;
                            wire.extend_from_slice(&bytes[..sent]);
                            Ok(sent)
                        }
                    });
                    assert!(pumped.is_ok() || budget == 0, "seed {seed}");
                }
                _ if !channels.is_empty() => {
                    let channel = channels[dice.roll(channels.len() as u64) as usize];
                    sequence += 1;
                    let start = Start { sequence, timestamp_ns: sequence as i64 };
                    let (before, mut adding) = (queue.len(), queue.adding());
                    let envelope = Envelope::data(channel, sequence, sequence as i64);
                    encoder.data(&envelope, 8, adding.bytes).expect("fits");
                    adding.bytes.extend_from_slice(&sequence.to_le_bytes());
                    assert!(adding.waiting() > before + 8);
                    adding.end_message((channel, start));
                }
                _ => {}
            }
        }
        let rest = queue.pump(usize::MAX, |bytes| {
            wire.extend_from_slice(bytes);
            Ok(bytes.len())
        });
        assert!(rest.is_ok() && queue.is_empty(), "seed {seed}");
        assert_eq!((queue.control_bytes(), queue.reply_bytes(), queue.control.len()), (0, 0, 0), "seed {seed}");
        assert_eq!(read(&wire, seed), (sequence - dropped, dropped), "seed {seed}");
    }

    #[test]
    fn what_is_no_message_is_counted_while_it_waits() {
        for droppable in [false, true] {
            let mut queue = Queue::new(droppable);
            queue.push(&[1; 100], 0, None);
            (0..100).for_each(|_| queue.push_control(&[3; 50], true));
            queue.push_control(&[4; 7], false);
            assert_eq!((queue.control_bytes(), queue.reply_bytes()), (5007, 5000));
            assert!(queue.control.len() < 4, "many small ones cost little");
            let mut written = 0;
            let mut pump = |most: usize| {
                let _ = queue.pump(usize::MAX, |bytes| match most - written {
                    0 => Err(io::ErrorKind::WouldBlock.into()),
                    left => {
                        written += left.min(bytes.len());
                        Ok(left.min(bytes.len()))
                    }
                });
                (queue.control_bytes(), queue.reply_bytes())
            };
            assert_eq!(pump(100), (5007, 5000));
            assert_eq!(pump(5100), (7, 0));
            assert_eq!(pump(5107), (0, 0));
        }
    }

    #[test]
    fn a_frame_behind_a_short_write_is_not_dropped() {
        let mut queue = Queue::new(true);
        for number in 1_u8..=3 {
            let start = Start { sequence: number.into(), timestamp_ns: 0 };
            queue.push(&[number; 10], 0, Some((ChannelId(1), start)));
        }
        // A TLS stream writes the first frame and encrypts the first byte of the second.
        let mut writes = [Some(10), None].into_iter();
        let pumped = queue.pump(usize::MAX, |_| writes.next().flatten().ok_or(io::ErrorKind::WouldBlock.into()));
        assert!(pumped.is_err());
        assert_eq!((queue.drop_oldest(), queue.drop_oldest()), (Some(ChannelId(1)), None));
        let mut wire = Vec::new();
        let rest = queue.pump(usize::MAX, |bytes| {
            wire.extend_from_slice(bytes);
            Ok(bytes.len())
        });
        assert!(rest.is_ok() && wire.starts_with(&[2; 10]) && !wire.ends_with(&[3; 10]));
    }

    /// Returns the number of messages received, and of messages reported as lost.
    fn read(wire: &[u8], seed: u64) -> (u64, u64) {
        let (mut decoder, mut input, mut came, mut told) = (StreamDecoder::default(), wire, 0, 0);
        loop {
            match decoder.step(input).unwrap_or_else(|e| panic!("seed {seed}: {e}")) {
                Step::Need(_) => break,
                Step::Frame { frame, used } => {
                    match frame {
                        Frame::Data(envelope, payload) => {
                            assert_eq!(envelope.sequence.to_le_bytes(), payload, "seed {seed}");
                            assert_eq!(envelope.timestamp_ns, envelope.sequence as i64, "seed {seed}");
                            came += 1;
                        }
                        Frame::Position { lost, .. } => told += lost,
                        _ => {}
                    }
                    input = &input[used..];
                }
            }
        }
        assert!(input.is_empty(), "seed {seed}");
        (came, told)
    }
}
