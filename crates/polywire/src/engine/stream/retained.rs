//! The messages of one channel that a relay has not confirmed, in order. The table has no lock or
//! clock.

use std::collections::VecDeque;

use polywire_core::envelope::{Envelope, Extensions};

use super::outbox::Progress;

#[derive(Default)]
pub(super) struct Retained {
    messages: VecDeque<Message>,
    bytes: usize,
    /// The number of messages at the front that are confirmed. Later messages refer to them.
    confirmed: usize,
    /// The bytes of these confirmed messages.
    confirmed_bytes: usize,
    /// The number of messages at the front that were confirmed on a link that has ended, or given
    /// up. They may be sent again, but are not lost if they are not.
    settled: usize,
    /// Messages forgotten so far.
    forgotten: u64,
    /// The positions of the key frames among the messages, counted from the channel's first
    /// message. Empty if no message refers to another one.
    keys: VecDeque<u64>,
    /// The number of messages at the end whose `until` is not known yet.
    unsent: usize,
}

struct Message {
    envelope: Envelope<'static>,
    extensions: Vec<u8>,
    payload: Vec<u8>,
    /// The message is confirmed once the peer has confirmed this many messages of the link. Not
    /// valid in the last `unsent` messages.
    until: u64,
}

impl Message {
    fn size(&self) -> usize {
        size_of::<Message>() + self.extensions.len() + self.payload.len()
    }
}

impl Retained {
    /// Returns the number of bytes of the messages that are not confirmed.
    pub(super) fn unconfirmed_bytes(&self) -> usize {
        self.bytes - self.confirmed_bytes
    }

    /// Returns the number of bytes of the messages that are retained only because later ones refer
    /// to them.
    pub(super) fn confirmed_bytes(&self) -> usize {
        self.confirmed_bytes
    }

    /// Returns the number of messages so far, including forgotten ones.
    pub(super) fn count(&self) -> u64 {
        self.forgotten + self.messages.len() as u64
    }

    /// Returns whether the first `count` of all messages are confirmed or were discarded.
    pub(super) fn is_confirmed(&self, count: u64) -> bool {
        self.forgotten + self.confirmed as u64 >= count
    }

    /// Returns the number of messages that were not confirmed or given up.
    fn unsettled(&self) -> u64 {
        (self.messages.len() - self.settled.max(self.confirmed)) as u64
    }

    /// Forgets all messages, and returns how many of them were not confirmed or given up.
    pub(super) fn clear(&mut self) -> u64 {
        let count = self.unsettled();
        *self = Retained { forgotten: self.count(), ..Retained::default() };
        count
    }

    /// Gives up all messages, but retains them, because later ones may refer to them. Returns how
    /// many were not confirmed or given up before.
    pub(super) fn give_up(&mut self) -> u64 {
        let count = self.unsettled();
        self.settled = self.messages.len();
        count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Retains a message. [`Retained::sent_all`] sets its position on the link later.
    #[inline]
    pub(super) fn push(&mut self, envelope: &Envelope<'_>, payload: &[u8]) {
        if envelope.anchor == Some(envelope.sequence) {
            self.keys.push_back(self.count());
        }
        let message = Message {
            envelope: Envelope { extensions: Extensions::default(), ..*envelope },
            extensions: envelope.extensions.bytes().to_vec(),
            payload: payload.to_vec(),
            until: 0,
        };
        self.bytes += message.size();
        self.messages.push_back(message);
        self.unsent += 1;
    }

    /// Notes that a link has sent or queued all messages that its peer wants.
    #[inline]
    pub(super) fn sent_all(&mut self, progress: Progress) {
        if !progress.holds {
            let sent = self.messages.len() - self.unsent;
            self.messages.range_mut(sent..).for_each(|message| message.until = progress.handed);
            self.unsent = 0;
        }
    }

    /// Forgets the messages that are confirmed and to which no retained message refers.
    #[inline]
    pub(super) fn confirmed(&mut self, progress: Progress) {
        if self.unsent > 0 && !progress.broken {
            self.sent_all(progress);
        }
        let sent = self.messages.len() - self.unsent;
        let is_confirmed = |message: &&Message| progress.has_confirmed(message.until);
        while self.confirmed < sent
            && let Some(message) = self.messages.get(self.confirmed).filter(is_confirmed)
        {
            self.confirmed_bytes += message.size();
            self.confirmed += 1;
        }
        let needed = self.forgotten + self.confirmed as u64;
        while self.keys.get(1).is_some_and(|key| *key <= needed) {
            self.keys.pop_front();
        }
        let keep = self.keys.front().map_or(needed, |key| (*key).min(needed));
        while self.forgotten < keep {
            self.pop();
        }
    }

    /// Drops the oldest message. Returns true if it was not confirmed or given up.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let was_unsettled = self.settled.max(self.confirmed) == 0;
        self.pop();
        was_unsettled
    }

    /// Marks all messages as unsent and unconfirmed, because the link has ended. Returns the number
    /// of messages that this link has not confirmed, also if a former one had confirmed them.
    pub(super) fn forget_progress(&mut self) -> u64 {
        let open = self.messages.len() - self.confirmed;
        self.settled = self.settled.max(self.confirmed);
        (self.unsent, self.confirmed, self.confirmed_bytes) = (self.messages.len(), 0, 0);
        open as u64
    }

    /// Yields the messages in parts of at most `most`.
    pub(super) fn in_parts(&self, most: usize) -> impl Iterator<Item = Vec<(Envelope<'_>, &[u8])>> {
        let parts = (0..self.messages.len()).step_by(most);
        parts.map(move |first| {
            let last = self.messages.len().min(first + most);
            let part = self.messages.range(first..last);
            part.map(|message| {
                let extensions = Extensions::parse(&message.extensions).unwrap_or_default();
                (Envelope { extensions, ..message.envelope }, message.payload.as_slice())
            })
            .collect()
        })
    }

    fn pop(&mut self) {
        let Some(message) = self.messages.pop_front() else { return };
        self.bytes -= message.size();
        self.keys.pop_front_if(|key| *key == self.forgotten);
        self.forgotten += 1;
        self.settled = self.settled.saturating_sub(1);
        if self.confirmed > 0 {
            self.confirmed -= 1;
            self.confirmed_bytes -= message.size();
        }
        self.unsent = self.unsent.min(self.messages.len());
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::envelope::ChannelId;

    use super::*;

    /// Returns the progress of a link that has sent or queued `handed` messages, of which
    /// `confirmed` are confirmed.
    fn link(handed: u64, confirmed: u64) -> Progress {
        Progress { handed, confirmed, holds: false, broken: false }
    }

    /// Retains messages with these sequence numbers and anchors, each of which is sent at once.
    fn sent(retained: &mut Retained, messages: &[(u64, Option<u64>)]) {
        for (sequence, anchor) in messages {
            retained.push(&Envelope { anchor: *anchor, ..Envelope::data(ChannelId(1), *sequence, 0) }, b"payload");
            retained.sent_all(link(*sequence, 0));
        }
    }

    fn numbers(retained: &Retained) -> Vec<u64> {
        retained.in_parts(2).flatten().map(|(envelope, _)| envelope.sequence).collect()
    }

    #[test]
    fn what_is_confirmed_is_forgotten_and_the_rest_is_sent_again() {
        let mut retained = Retained::default();
        sent(&mut retained, &[(1, None), (2, None), (3, None), (4, None), (5, None)]);
        retained.confirmed(link(5, 2));
        assert_eq!(
            (numbers(&retained), retained.is_confirmed(2), retained.is_confirmed(3)),
            (vec![3, 4, 5], true, false)
        );
        assert_eq!(retained.forget_progress(), 3);
        // None of them was sent on the next link yet, whatever else that link confirms.
        retained.confirmed(Progress { broken: true, ..link(100, 100) });
        assert_eq!(numbers(&retained), [3, 4, 5]);
        retained.sent_all(link(3, 0));
        retained.confirmed(link(3, 3));
        assert_eq!(
            (retained.is_empty(), retained.unconfirmed_bytes(), retained.confirmed_bytes(), retained.is_confirmed(5)),
            (true, 0, 0, true)
        );
    }

    #[test]
    fn what_waits_for_an_answer_is_confirmed_after_it() {
        let (mut retained, held) = (Retained::default(), Progress { holds: true, ..link(7, 7) });
        retained.push(&Envelope::data(ChannelId(1), 1, 0), b"payload");
        retained.sent_all(held);
        retained.confirmed(held);
        assert_eq!(numbers(&retained), [1]);
        retained.confirmed(link(8, 7));
        assert_eq!(numbers(&retained), [1]);
        retained.confirmed(link(8, 8));
        assert!(retained.is_empty());
    }

    #[test]
    fn a_key_frame_stays_as_long_as_messages_refer_to_it() {
        let mut retained = Retained::default();
        sent(&mut retained, &[(1, Some(1)), (2, None), (3, Some(3)), (4, None), (5, None)]);
        retained.confirmed(link(5, 2));
        assert_eq!((numbers(&retained), retained.confirmed_bytes()), (vec![3, 4, 5], 0));
        retained.confirmed(link(5, 5));
        let all = retained.confirmed_bytes();
        assert_eq!(
            (numbers(&retained), retained.unconfirmed_bytes(), retained.is_confirmed(5)),
            (vec![3, 4, 5], 0, true)
        );
        // Confirmed messages are sent again as well, but do not count.
        assert_eq!((retained.forget_progress(), retained.confirmed_bytes(), retained.unconfirmed_bytes()), (0, 0, all));
        retained.sent_all(link(3, 0));
        sent(&mut retained, &[(6, Some(6))]);
        retained.confirmed(link(6, 6));
        assert_eq!(numbers(&retained), [6]);
        assert!(!retained.drop_oldest() && retained.is_empty() && retained.bytes == 0);
    }

    #[test]
    fn what_was_confirmed_or_given_up_is_not_counted_again() {
        let mut retained = Retained::default();
        sent(&mut retained, &[(1, Some(1)), (2, None), (3, None)]);
        retained.confirmed(link(3, 2));
        assert_eq!((retained.forget_progress(), numbers(&retained)), (1, vec![1, 2, 3]));
        // The next link has confirmed none of them.
        assert_eq!((retained.forget_progress(), retained.give_up(), retained.give_up()), (3, 1, 0));
        sent(&mut retained, &[(4, None)]);
        assert!(!retained.drop_oldest());
        assert_eq!((numbers(&retained), retained.clear(), retained.clear()), (vec![2, 3, 4], 1, 0));
    }

    #[test]
    fn room_is_made_by_the_oldest() {
        let mut retained = Retained::default();
        sent(&mut retained, &[(1, None), (2, None)]);
        assert!(retained.drop_oldest());
        assert_eq!(
            (numbers(&retained), retained.clear(), retained.count(), retained.is_confirmed(2)),
            (vec![2], 1, 2, true)
        );
    }
}
