//! Encoded frames that wait for a socket, and how the oldest make room.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
};

use polywire_core::{
    envelope::ChannelId,
    frame::{Frame, Start, StreamEncoder},
};

/// Frames in the order in which they leave.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// What dropping must not lose, and what it has to tell: leaves before `bytes`.
    urgent: VecDeque<u8>,
    bytes: VecDeque<u8>,
    /// One a frame in `bytes`, kept only where the oldest may be dropped.
    marks: Option<VecDeque<Mark>>,
    /// Bytes of the first mark's frame that have left.
    front_sent: usize,
    /// Dropped and not told yet, by channel.
    lost: BTreeMap<ChannelId, (Start, u64)>,
}

/// A frame in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Its bytes.
    pub(super) len: usize,
    /// The link's channel, and where the channel stands after the message; none for frames that must not be dropped.
    pub(super) message: Option<(ChannelId, Start)>,
}

impl Queue {
    /// `droppable`: keeps what [`Queue::drop_oldest`] needs.
    pub(super) fn new(droppable: bool) -> Self {
        Queue { marks: droppable.then(VecDeque::new), ..Queue::default() }
    }

    /// Adds a frame, given in parts, of which the first `sent` bytes have left already.
    pub(super) fn push(&mut self, parts: [&[u8]; 2], sent: usize, message: Option<(ChannelId, Start)>) {
        let [header, payload] = parts;
        self.bytes.extend(header.get(sent..).unwrap_or_default());
        self.bytes.extend(payload.get(sent.saturating_sub(header.len())..).unwrap_or_default());
        if let Some(marks) = &mut self.marks {
            if marks.is_empty() {
                self.front_sent = sent;
            }
            marks.push_back(Mark { len: header.len() + payload.len(), message });
        }
    }

    /// Writes until all has left or `write` takes no more; its errors end the attempt, at most about `most` bytes go.
    pub(super) fn pump(&mut self, most: usize, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        let mut left = most;
        while left > 0 && !self.is_empty() {
            self.tell_lost();
            let urgent = !self.urgent.is_empty();
            let source = if urgent { &self.urgent } else { &self.bytes };
            let sent = write(source.as_slices().0)?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            left = left.saturating_sub(sent);
            if urgent { drop(self.urgent.drain(..sent)) } else { self.advance(sent) }
        }
        Ok(())
    }

    fn advance(&mut self, sent: usize) {
        drop(self.bytes.drain(..sent));
        let Some(marks) = &mut self.marks else { return };
        self.front_sent += sent;
        while let Some(mark) = marks.front().filter(|mark| mark.len <= self.front_sent) {
            self.front_sent -= mark.len;
            marks.pop_front();
        }
    }

    /// Takes the oldest message out, and frames that must stay out of the way. False where there is none.
    pub(super) fn drop_oldest(&mut self) -> bool {
        while let Some(mark) = self.marks.as_mut().and_then(VecDeque::pop_front) {
            let started = std::mem::take(&mut self.front_sent);
            let left = mark.len - started;
            match mark.message {
                Some((channel, start)) if started == 0 => {
                    drop(self.bytes.drain(..left));
                    let lost = self.lost.entry(channel).or_default();
                    *lost = (start, lost.1 + 1);
                    return true;
                }
                _ => {
                    // A frame half sent has to be the next that leaves: nothing is urgent yet, or it would not be half sent.
                    self.tell_lost();
                    self.urgent.extend(self.bytes.drain(..left));
                }
            }
        }
        false
    }

    /// Tells the receiver what is missing, and what the next message of each channel is relative to.
    fn tell_lost(&mut self) {
        if self.lost.is_empty() || self.front_sent > 0 {
            return;
        }
        let (encoder, mut out) = (StreamEncoder::default(), Vec::new());
        for (channel, (start, lost)) in std::mem::take(&mut self.lost) {
            encoder.control(&Frame::Position { channel, start, lost }, &mut out);
        }
        self.urgent.extend(out);
    }

    pub(super) fn len(&self) -> usize {
        self.urgent.len() + self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0 && self.lost.is_empty()
    }

    /// Gives memory back after a large message.
    pub(super) fn shrink(&mut self, to: usize) {
        if self.is_empty() && self.bytes.capacity() > to {
            self.bytes.shrink_to(to);
        }
    }
}
