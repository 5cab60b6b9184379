//! Messages that are published in one call.

use std::num::NonZeroU64;

use polywire_core::envelope::Envelope;

/// Messages of one channel that a port sends in one call. Their sequence numbers follow each other,
/// and their envelopes are equal apart from the number and the anchor. The payloads lie one behind
/// the other in one buffer.
///
/// ```
/// use polywire::engine::{Batch, PayloadEnd};
/// use polywire_core::envelope::{ChannelId, Envelope};
///
/// let first = Envelope::data(ChannelId(1), 7, 0);
/// let ends = [3, 6].map(|offset| PayloadEnd { offset, anchor: None });
/// let batch = Batch::new(first, b"onetwo", &ends);
/// assert_eq!((batch.len(), batch.first().sequence), (2, 7));
/// let messages: Vec<_> = batch.iter().map(|(envelope, payload)| (envelope.sequence, payload)).collect();
/// assert_eq!(messages, [(7, &b"one"[..]), (8, b"two")]);
/// assert_eq!(batch.get(1), batch.iter().last());
/// assert_eq!(batch.shortened(1).iter().count(), 1);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The envelope of the first message, without its anchor.
    first: Envelope<'a>,
    payloads: &'a [u8],
    ends: &'a [PayloadEnd],
}

/// Where the payload of a message in a [`Batch`] ends, and what else distinguishes the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadEnd {
    /// The end of the payload in the buffer, in bytes.
    pub offset: usize,
    /// The [anchor](Envelope::anchor) of the message. Sequence numbers begin at 1.
    pub anchor: Option<NonZeroU64>,
}

impl<'a> Batch<'a> {
    /// Returns the messages that begin with the envelope `first`. Its anchor does not matter.
    /// `ends` has the offsets in ascending order. A payload whose end is not in `payloads` is
    /// empty.
    #[inline]
    pub fn new(first: Envelope<'a>, payloads: &'a [u8], ends: &'a [PayloadEnd]) -> Self {
        Batch { first, payloads, ends }
    }

    /// Returns the envelope of the first message, whose anchor does not matter.
    #[inline]
    pub fn first(&self) -> &Envelope<'a> {
        &self.first
    }

    /// Returns the number of messages.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the size of the first `count` payloads together, in bytes.
    #[inline]
    pub fn bytes(&self, count: usize) -> usize {
        count.checked_sub(1).and_then(|last| self.ends.get(last)).map_or(0, |last| last.offset)
    }

    /// Returns the message at an index, or `None` if there are fewer.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<(Envelope<'a>, &'a [u8])> {
        let PayloadEnd { offset, anchor } = *self.ends.get(index)?;
        let payload = self.payloads.get(self.bytes(index)..offset).unwrap_or_default();
        let sequence = self.first.sequence.wrapping_add(index as u64);
        Some((Envelope { sequence, anchor: anchor.map(NonZeroU64::get), ..self.first }, payload))
    }

    /// Returns the messages in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Envelope<'a>, &'a [u8])> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Returns the first `count` messages, or all if there are fewer.
    pub fn shortened(&self, count: usize) -> Self {
        Batch { ends: self.ends.get(..count).unwrap_or(self.ends), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::envelope::ChannelId;

    use super::*;

    #[test]
    fn a_batch_has_an_envelope_for_each_payload() {
        let end = |offset| PayloadEnd { offset, anchor: NonZeroU64::new(offset as u64) };
        let (ends, first) = ([end(2), end(2), end(5)], Envelope::data(ChannelId(1), 4, 9));
        let batch = Batch::new(first, b"abcde", &ends);
        let all: Vec<_> = batch.iter().collect();
        assert_eq!(
            all,
            [(4, 2, &b"ab"[..]), (5, 2, b""), (6, 5, b"cde")]
                .map(|(sequence, anchor, payload)| { (Envelope { sequence, anchor: Some(anchor), ..first }, payload) })
        );
        assert_eq!((batch.len(), batch.is_empty(), batch.get(3)), (3, false, None));
        assert_eq!([0, 1, 2, 3, 4].map(|count| batch.bytes(count)), [0, 2, 2, 5, 0]);
        assert_eq!([0, 2, 9].map(|count| batch.shortened(count).len()), [0, 2, 3]);
        assert!(batch.shortened(0).is_empty());
    }

    #[test]
    fn ends_that_are_not_in_the_buffer_make_empty_payloads() {
        let ends = [9, 3, 4].map(|offset| PayloadEnd { offset, anchor: None });
        let batch = Batch::new(Envelope::data(ChannelId(1), 1, 0), b"abcd", &ends);
        assert_eq!(batch.iter().map(|(_, payload)| payload).collect::<Vec<_>>(), [&b""[..], b"", b"d"]);
    }
}
