//! Received bytes, placed so that payloads are aligned.

use std::sync::Arc;

use polywire_core::frame::payload_offset;

use crate::engine::Held;

/// What the bytes handed to receivers are aligned to.
const ALIGN: usize = 8;

/// A buffer between a socket and the decoder.
///
/// The first payload after each pause lies aligned because what is read starts where, going by the
/// frame before, that happens; of a frame that came in pieces the start is moved. Only payloads
/// behind others in one read have to be copied ([`Aligned`]).
///
/// Receivers may hold the buffer. Then it is left to them before more is read, and another takes
/// its place.
pub(super) struct Inbox {
    words: Arc<Vec<u64>>,
    start: usize,
    end: usize,
    /// Distance from the start of a frame to its payload, last time.
    header: usize,
}

impl Inbox {
    pub(super) fn new(bytes: usize) -> Self {
        Inbox { words: Arc::new(vec![0; bytes.div_ceil(ALIGN)]), start: 0, end: 0, header: 0 }
    }

    /// Room for a read. There is always some.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = pad(self.header);
            self.end = self.start;
        }
        let end = self.end;
        bytemuck::cast_slice_mut(self.own()).get_mut(end..).unwrap_or_default()
    }

    /// The payload of the frame at the start, which begins `header` bytes into it.
    pub(super) fn held(&self, header: usize, len: usize) -> Option<Held<'_>> {
        Held::new(&self.words, self.start + header, len)
    }

    /// The buffer to write to: another one, with what was received and not consumed, if somebody
    /// holds the present one.
    fn own(&mut self) -> &mut Vec<u64> {
        if Arc::get_mut(&mut self.words).is_none() {
            let mut words = vec![0; self.words.len()];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
            if let Some(place) = bytes.get_mut(self.start..self.end) {
                place.copy_from_slice(self.bytes());
            }
            self.words = Arc::new(words);
        }
        Arc::make_mut(&mut self.words)
    }

    /// `count` bytes were read into the room.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// What was received and not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.words.as_slice()).get(self.start..self.end).unwrap_or_default()
    }

    /// A frame of `used` bytes is done with.
    pub(super) fn consume(&mut self, used: usize) {
        self.start += used;
    }

    /// The payload of the frame at the start begins `header` bytes into it.
    pub(super) fn learn(&mut self, header: usize) {
        self.header = header;
    }

    /// Makes room so that a frame of `need` bytes can become whole. Grows by doubling as bytes
    /// come, whatever a peer declares.
    pub(super) fn prepare(&mut self, need: usize, smallest: usize) {
        let have = self.end - self.start;
        let capacity = self.words.len() * ALIGN;
        let to = pad(payload_offset(self.bytes()).unwrap_or(self.header));
        let in_place = self.start == to || (self.start % ALIGN == to && capacity - self.end >= capacity / 2);
        if have == 0 || (in_place && self.start + need <= capacity) {
            return;
        }
        // What is there moves back by a few bytes at most, for which a full buffer has no room
        // either.
        let wanted = (to + need).min((capacity * 2).max(smallest)).max(to + have);
        if wanted > capacity {
            self.own().resize(wanted.div_ceil(ALIGN), 0);
        }
        let (start, end) = (self.start, self.end);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(self.own());
        bytes.copy_within(start..end, to);
        (self.start, self.end) = (to, to + have);
    }

    /// Gives memory back after a large frame.
    pub(super) fn shrink(&mut self, to: usize) {
        if self.start == self.end && self.words.len() * ALIGN > to {
            *self = Inbox { header: self.header, ..Inbox::new(to) };
        }
    }
}

fn pad(header: usize) -> usize {
    (ALIGN - header % ALIGN) % ALIGN
}

/// A place for payloads that do not lie aligned where they were received:
/// [`LinkSink::message`](super::super::LinkSink::message) wants them so.
///
/// ```
/// use polywire::engine::Aligned;
/// let (mut aligned, received) = (Aligned::default(), b"head payload");
/// let payload = aligned.place(&received[5..]);
/// assert!(payload == b"payload" && payload.as_ptr().addr() % 8 == 0);
/// ```
#[derive(Debug, Default)]
pub struct Aligned(Vec<u64>);

impl Aligned {
    /// The payload, at an address divisible by 8.
    #[inline]
    pub fn place<'a>(&'a mut self, payload: &'a [u8]) -> &'a [u8] {
        if payload.as_ptr().addr().is_multiple_of(ALIGN) {
            return payload;
        }
        let words = payload.len().div_ceil(ALIGN);
        if self.0.len() < words {
            self.0.resize(words, 0);
        }
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.0);
        let (place, _) = bytes.split_at_mut(payload.len());
        place.copy_from_slice(payload);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_in_pieces_becomes_whole() {
        let mut inbox = Inbox::new(16);
        inbox.room()[..3].copy_from_slice(b"abc");
        inbox.filled(3);
        inbox.consume(1);
        inbox.prepare(40, 16);
        assert_eq!(inbox.bytes(), b"bc");
        while inbox.bytes().len() < 40 {
            inbox.prepare(40, 16);
            let room = inbox.room();
            assert!(!room.is_empty());
            room[0] = b'x';
            inbox.filled(1);
        }
        assert_eq!(&inbox.bytes()[..3], b"bcx");
    }

    #[test]
    fn a_full_buffer_is_moved_and_grows() {
        let mut inbox = Inbox::new(64);
        let room = inbox.room();
        let len = room.len();
        room.fill(b'x');
        inbox.filled(len);
        // The payload behind this header wants the frame to start at 3.
        inbox.learn(5);
        inbox.start = 0;
        inbox.prepare(1000, 64);
        assert_eq!(inbox.bytes().len(), len);
        assert!(!inbox.room().is_empty());
    }

    #[test]
    fn a_declared_length_alone_costs_little() {
        let mut inbox = Inbox::new(1024);
        inbox.room()[0] = 1;
        inbox.filled(1);
        inbox.prepare(1 << 26, 1024);
        assert!(inbox.words.len() * 8 <= 2048 + 8);
    }

    #[test]
    fn a_buffer_that_is_held_is_left_alone() {
        let mut inbox = Inbox::new(64);
        inbox.room()[..9].copy_from_slice(b"abcdefghi");
        inbox.filled(9);
        let kept = inbox.held(1, 3).map(|held| held.keep()).unwrap();
        assert_eq!(kept.as_ptr(), inbox.bytes()[1..].as_ptr());
        inbox.consume(4);
        inbox.room()[0] = b'j';
        inbox.filled(1);
        assert_eq!((inbox.bytes(), &*kept), (&b"efghij"[..], &b"bcd"[..]));
        assert!(inbox.held(0, 1000).is_none());
        // Nobody holds this one.
        let before = inbox.bytes().as_ptr();
        inbox.consume(6);
        inbox.room()[0] = b'k';
        assert!(before.addr().abs_diff(inbox.bytes().as_ptr().addr()) < 64);
    }

    #[test]
    fn placed_payloads_are_aligned() {
        let bytes: Vec<u8> = (0..64).collect();
        let mut aligned = Aligned::default();
        for start in 0..16 {
            let placed = aligned.place(&bytes[start..]);
            assert_eq!(placed, &bytes[start..]);
            assert_eq!(placed.as_ptr().addr() % 8, 0);
        }
    }
}
