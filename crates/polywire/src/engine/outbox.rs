//! A queue of frames that wait to be sent to one group or one peer, in order. Messages count
//! against a bound, and other frames for one member against another. A message that is dropped to
//! make room leaves a note of the loss in its place.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use polywire_core::{
    envelope::{ChannelId, Envelope},
    frame::{Frame, Start, put_datagram_frame},
    multicast::MemberId,
};

use super::delivery::{Holdable, Missing, start_of};

/// The most bytes that a frame has besides its payload and its extensions.
const FRAME_HEADER: usize = 64;
/// Bytes of frames other than messages that may wait for one member before documents are left out,
/// of which a peer may request any number. Other frames may take twice as many.
const CONTROL_BYTES: usize = 16 << 20;

/// A message for a peer that has not answered yet.
#[derive(Debug)]
pub(super) struct HeldFrame {
    pub(super) channel: ChannelId,
    pub(super) start: Start,
    pub(super) frame: Arc<[u8]>,
}

impl HeldFrame {
    pub(super) fn new(envelope: &Envelope<'_>, frame: &[u8]) -> HeldFrame {
        HeldFrame { channel: envelope.channel, start: start_of(envelope), frame: frame.into() }
    }
}

impl Holdable for HeldFrame {
    fn at(&self) -> (ChannelId, Start) {
        (self.channel, self.start)
    }

    fn size(&self) -> usize {
        self.frame.len()
    }
}

/// An item to send to one member, or to all members.
#[derive(Debug)]
pub(super) enum Item {
    /// A frame that is not a message. It is never dropped.
    Control(Option<MemberId>, Vec<u8>),
    /// A message, which may be dropped.
    Message { to: Option<MemberId>, channel: ChannelId, start: Start, frame: Vec<u8> },
    /// A gap: messages of a channel were dropped at this place.
    Lost(ChannelId, Missing),
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Item>,
    /// The bytes of the queued messages.
    bytes: usize,
    /// The memory of the queued control frames for each member, in bytes. No entry is 0.
    control_bytes: BTreeMap<MemberId, usize>,
    /// No message has left the queue for a while: new messages are dropped at once until half of
    /// the queue is free.
    pub(super) is_stalled: bool,
}

impl Outbox {
    pub(super) fn push(&mut self, item: Item) {
        match &item {
            Item::Message { frame, .. } => self.bytes += frame.len(),
            Item::Control(Some(to), frame) => *self.control_bytes.entry(*to).or_default() += control_size(frame),
            Item::Control(None, _) | Item::Lost(..) => {}
        }
        self.queue.push_back(item);
    }

    /// Adds a control frame. The offer of an announcement is put in front of it, in a frame of its
    /// own.
    pub(super) fn control(&mut self, to: Option<MemberId>, frame: &Frame<'_>) {
        if let Frame::Announce { channel, announcement, .. } = frame
            && !announcement.offer.is_empty()
        {
            let offer = Frame::Offer { channel: *channel, offer: &announcement.offer };
            self.push(Item::Control(to, encoded(&offer)));
        }
        self.push(Item::Control(to, encoded(frame)));
    }

    pub(super) fn pop(&mut self) -> Option<Item> {
        let item = self.queue.pop_front()?;
        match &item {
            Item::Message { frame, .. } => self.bytes -= frame.len(),
            Item::Control(Some(to), frame) => {
                let left = self.control_bytes.get(to).map_or(0, |bytes| bytes.saturating_sub(control_size(frame)));
                match left {
                    0 => self.control_bytes.remove(to),
                    _ => self.control_bytes.insert(*to, left),
                };
            }
            Item::Control(None, _) | Item::Lost(..) => {}
        }
        Some(item)
    }

    /// Returns whether another document may wait for the member.
    pub(super) fn has_room_for_document(&self, to: MemberId) -> bool {
        self.control_bytes.get(&to).is_none_or(|bytes| *bytes < CONTROL_BYTES)
    }

    /// Returns whether another control frame, other than a document, may wait for the member.
    pub(super) fn has_room_for_control(&self, to: MemberId) -> bool {
        self.control_bytes.get(&to).is_none_or(|bytes| *bytes < 2 * CONTROL_BYTES)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of queued messages for one member, which has accepted some channels.
    pub(super) fn messages_for(&self, member: MemberId, is_accepted: impl Fn(ChannelId) -> bool) -> u64 {
        let is_for_it = |item: &&Item| match item {
            Item::Message { to: Some(to), .. } => *to == member,
            Item::Message { to: None, channel, .. } => is_accepted(*channel),
            Item::Control(..) | Item::Lost(..) => false,
        };
        self.queue.iter().filter(is_for_it).count() as u64
    }

    /// Returns whether another message of `more` bytes would exceed `limit`. A single message
    /// always has room.
    pub(super) fn is_full(&self, more: usize, limit: usize) -> bool {
        self.bytes > 0 && self.bytes + more > limit
    }

    /// Notes that a new message is dropped.
    pub(super) fn drop_newest(&mut self, channel: ChannelId, start: Start) {
        self.note_lost(self.queue.len(), channel, start);
    }

    /// Drops the oldest message that is for all members. Returns its channel.
    pub(super) fn drop_oldest(&mut self) -> Option<ChannelId> {
        let for_all = |item: &Item| matches!(item, Item::Message { to: None, .. });
        let at = self.queue.iter().position(for_all)?;
        let Some(Item::Message { channel, start, frame, .. }) = self.queue.remove(at) else { return None };
        self.bytes -= frame.len();
        self.note_lost(at, channel, start);
        Some(channel)
    }

    /// Notes a loss in front of the item at index `at`. Successive notes of the same channel become
    /// one note.
    fn note_lost(&mut self, at: usize, channel: ChannelId, start: Start) {
        for item in self.queue.range_mut(..at).rev() {
            match item {
                Item::Lost(other, missing) if *other == channel => {
                    *missing = Missing { start, lost: missing.lost + 1 };
                    return;
                }
                Item::Lost(..) => {}
                _ => break,
            }
        }
        self.queue.insert(at, Item::Lost(channel, Missing { start, lost: 1 }));
    }
}

/// Returns the memory that a queued control frame takes, in bytes.
fn control_size(frame: &[u8]) -> usize {
    frame.len() + size_of::<Item>()
}

/// Returns the bytes of a frame.
pub(super) fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let payload = if let Frame::Data(_, payload) = frame { payload.len() + FRAME_HEADER } else { 0 };
    let mut bytes = Vec::with_capacity(payload);
    put_datagram_frame(frame, &mut bytes);
    bytes
}

/// Returns the frame that reports a gap.
pub(super) fn position(channel: ChannelId, missing: Missing) -> Frame<'static> {
    Frame::Position { channel, start: missing.start, lost: missing.lost }
}

#[cfg(test)]
mod tests {
    use polywire_core::envelope::Id128;

    use super::*;

    fn message(channel: u32, sequence: u64) -> Item {
        let start = Start { sequence, timestamp_ns: 0 };
        Item::Message { to: None, channel: ChannelId(channel), start, frame: vec![0; 100] }
    }

    #[test]
    fn control_frames_have_a_bound_for_each_member() {
        let (mut outbox, slow, other) = (Outbox::default(), MemberId(1), MemberId(2));
        let bytes = vec![0; 1 << 20];
        let document = Frame::Document { document: Id128::ZERO, bytes: Some(bytes.as_slice()) };
        let mut count = 0;
        while outbox.has_room_for_document(slow) {
            outbox.control(Some(slow), &document);
            count += 1;
        }
        assert_eq!((count, outbox.has_room_for_document(other), outbox.bytes()), (16, true, 0));
        assert!(outbox.has_room_for_control(slow));
        outbox.control(Some(other), &document);
        outbox.control(None, &document);
        assert!(outbox.pop().is_some() && outbox.has_room_for_document(slow));
        while outbox.pop().is_some() {}
        assert!(outbox.control_bytes.is_empty());
    }

    #[test]
    fn messages_are_counted_for_the_member_that_gets_them() {
        let mut outbox = Outbox::default();
        [message(1, 1), message(2, 1), message(1, 2)].into_iter().for_each(|item| outbox.push(item));
        let (channel, start) = (ChannelId(3), Start::default());
        outbox.push(Item::Message { to: Some(MemberId(7)), channel, start, frame: vec![0; 100] });
        outbox.push(Item::Control(Some(MemberId(7)), vec![9]));
        outbox.drop_newest(ChannelId(1), start);
        let counts = [7, 8].map(|member| outbox.messages_for(MemberId(member), |channel| channel == ChannelId(1)));
        assert_eq!(counts, [3, 2]);
    }

    #[test]
    fn losses_are_noted_where_they_happened() {
        let mut outbox = Outbox::default();
        outbox.push(message(1, 1));
        outbox.push(message(2, 1));
        outbox.push(message(1, 2));
        outbox.push(Item::Control(None, vec![9]));
        outbox.push(message(1, 3));
        assert!(outbox.is_full(1, 400) && !outbox.is_full(0, 400));
        let dropped: Vec<_> = std::iter::from_fn(|| outbox.drop_oldest()).map(|channel| channel.0).collect();
        assert_eq!((dropped, outbox.bytes()), (vec![1, 2, 1, 1], 0));
        outbox.drop_newest(ChannelId(1), Start { sequence: 4, timestamp_ns: 0 });
        let left: Vec<_> = std::iter::from_fn(|| outbox.pop())
            .map(|item| match item {
                Item::Lost(channel, missing) => (channel.0, missing.start.sequence, missing.lost),
                Item::Control(..) => (0, 0, 0),
                Item::Message { .. } => panic!("all are dropped"),
            })
            .collect();
        assert_eq!(left, [(1, 2, 2), (2, 1, 1), (0, 0, 0), (1, 4, 2)]);
    }
}
