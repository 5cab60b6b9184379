//! The receive buffer of a link. It places bytes so that payloads are aligned.

use std::{
    cell::Cell,
    sync::Arc,
    time::{Duration, Instant},
};

use polywire_core::frame::payload_offset;

use crate::engine::SharedPayload;

/// Alignment of payloads.
const ALIGN: usize = 8;
/// How long a buffer that became larger than usual is kept. The system clears newly allocated
/// pages, which takes longer than receiving the bytes that are put there.
const KEEP: Duration = Duration::from_secs(1);

/// The buffer between a stream and the decoder.
///
/// Each read after a pause starts at an offset where the payload is aligned if its header is as
/// long as the previous one. The start of a frame that arrives in pieces is moved to such an
/// offset. Only large payloads after others in one read have to be copied ([`Aligned`]).
///
/// Receivers may hold the buffer. The next read then uses another buffer.
pub(super) struct Inbox {
    words: Arc<Vec<u64>>,
    start: usize,
    end: usize,
    /// Length of the previous frame's header.
    header: Cell<usize>,
    /// Length of the buffer if no frame is larger.
    usual: usize,
    /// More than `usual` bytes were in the buffer since the last check whether to free it.
    is_large: bool,
    /// When a larger buffer may be freed.
    kept_until: Instant,
}

impl Inbox {
    /// Creates a buffer of `usual` bytes.
    pub(super) fn new(usual: usize) -> Self {
        Inbox {
            words: Arc::new(vec![0; usual.div_ceil(ALIGN)]),
            start: 0,
            end: 0,
            header: Cell::default(),
            usual,
            is_large: false,
            kept_until: Instant::now(),
        }
    }

    /// Returns the room for a read; never empty.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = pad(self.header.get());
            self.end = self.start;
        }
        let end = self.end;
        bytemuck::cast_slice_mut(self.own()).get_mut(end..).unwrap_or_default()
    }

    /// Returns the payload of the first frame, after `header` bytes, for receivers to hold.
    pub(super) fn held(&self, header: usize, len: usize) -> Option<SharedPayload<'_>> {
        SharedPayload::new(&self.words, self.start + header, len)
    }

    /// Returns the buffer to write to. If a receiver holds the present one, replaces it by a copy
    /// of the bytes received and not consumed.
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

    /// Notes that `count` bytes were read into the room.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
        self.is_large |= self.end > self.usual;
    }

    /// Returns the bytes received and not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.words.as_slice()).get(self.start..self.end).unwrap_or_default()
    }

    /// Removes a frame of `used` bytes.
    pub(super) fn consume(&mut self, used: usize) {
        self.start += used;
    }

    /// Notes the length of the first frame's header.
    pub(super) fn learn(&self, header: usize) {
        self.header.set(header);
    }

    /// Makes room for a frame of `need` bytes. The buffer grows by doubling as bytes arrive, so
    /// that a declared length alone allocates little.
    pub(super) fn prepare(&mut self, need: usize) {
        let have = self.end - self.start;
        let capacity = self.words.len() * ALIGN;
        let to = pad(payload_offset(self.bytes()).unwrap_or(self.header.get()));
        let in_place = self.start == to || (self.start % ALIGN == to && capacity - self.end >= capacity / 2);
        if have == 0 || (in_place && self.start + need <= capacity) {
            return;
        }
        // The received bytes may move back by a few bytes, for which a full buffer needs room too.
        let wanted = (to + need).min((capacity * 2).max(self.usual)).max(to + have);
        if wanted > capacity {
            self.own().resize(wanted.div_ceil(ALIGN), 0);
        }
        let (start, end) = (self.start, self.end);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(self.own());
        bytes.copy_within(start..end, to);
        (self.start, self.end) = (to, to + have);
    }

    /// Frees the memory that a large frame took if no other large frame has arrived for a while.
    #[inline]
    pub(super) fn shrink(&mut self) {
        if self.start == self.end && self.words.len() > self.usual.div_ceil(ALIGN) {
            self.shrink_at(Instant::now());
        }
    }

    #[cold]
    fn shrink_at(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_large) {
            self.kept_until = now + KEEP;
        } else if now >= self.kept_until {
            *self = Inbox { header: self.header.clone(), ..Inbox::new(self.usual) };
        }
    }
}

fn pad(header: usize) -> usize {
    (ALIGN - header % ALIGN) % ALIGN
}

/// A buffer for payloads that are not aligned where they were received, as
/// [`LinkSink::message`](super::super::LinkSink::message) requires.
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
    /// Returns the payload at an address divisible by 8, copied if need be.
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
        inbox.prepare(40);
        assert_eq!(inbox.bytes(), b"bc");
        while inbox.bytes().len() < 40 {
            inbox.prepare(40);
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
        // With this header, the frame has to start at 3 for its payload to be aligned.
        inbox.learn(5);
        inbox.start = 0;
        inbox.prepare(1000);
        assert_eq!(inbox.bytes().len(), len);
        assert!(!inbox.room().is_empty());
    }

    #[test]
    fn a_declared_length_alone_costs_little() {
        let mut inbox = Inbox::new(1024);
        inbox.room()[0] = 1;
        inbox.filled(1);
        inbox.prepare(1 << 26);
        assert!(inbox.words.len() * 8 <= 2048 + 8);
    }

    #[test]
    fn a_large_buffer_is_kept_for_a_while() {
        let mut inbox = Inbox::new(64);
        let receive = |inbox: &mut Inbox, count: usize| {
            while inbox.bytes().len() < count {
                inbox.prepare(count);
                let came = inbox.room().len().min(count - inbox.bytes().len());
                inbox.filled(came);
            }
            inbox.consume(count);
        };
        let now = Instant::now();
        receive(&mut inbox, 1000);
        inbox.shrink_at(now);
        let large = inbox.words.len();
        assert!(large * ALIGN >= 1000);
        receive(&mut inbox, 10);
        inbox.shrink_at(now + KEEP / 2);
        receive(&mut inbox, 1000);
        inbox.shrink_at(now + KEEP);
        receive(&mut inbox, 10);
        inbox.shrink_at(now + KEEP);
        assert_eq!(inbox.words.len(), large, "it is used");
        inbox.shrink_at(now + 2 * KEEP);
        assert_eq!(inbox.words.len() * ALIGN, 64);
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
