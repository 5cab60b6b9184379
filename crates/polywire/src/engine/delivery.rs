//! The sender's state of the channels of one link: for each channel, whether the peer wants it, the
//! messages held until the peer has answered, and the messages lost. Every engine built in except
//! `dds` keeps one [`Delivery`] per link. A `Delivery` has no socket, thread, lock or clock.
//!
//! Order is kept per writer: while one channel of a writer waits for its answer, the writer's other
//! channels wait too.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Start},
};

use super::{Sent, waiting::Waiting};

/// Least time between two [`super::Event::Dropped`] of one link while messages are being dropped.
const REPORT_AGAIN: Duration = Duration::from_secs(1);

/// The channels that one link sends, and the messages held for them.
#[derive(Debug)]
pub(super) struct Delivery<M> {
    channels: OutgoingChannels,
    held: Waiting<HeldItem<M>>,
    held_bytes: usize,
    /// Channels that are retiring.
    retiring: BTreeSet<ChannelId>,
    /// The number of channels that the peer has not declined.
    wanted: usize,
    /// Channels that may have a loss that the peer has not been informed of.
    lossy: BTreeSet<ChannelId>,
    tally: Tally,
}

/// A message that can be held.
pub(super) trait Holdable {
    /// Returns the message's channel, and the channel's position after the message.
    fn at(&self) -> (ChannelId, Start);
    /// Returns the bytes that the message counts in the queue.
    fn size(&self) -> usize;
}

/// Channels by their ids on the port.
#[derive(Debug, Default)]
struct OutgoingChannels {
    all: BTreeMap<ChannelId, OutgoingChannel>,
    /// The last result of [`OutgoingChannels::ready_channel`], and its channel. `None` after a
    /// channel may have changed.
    near: Option<(ChannelId, (ChannelId, u32))>,
}

/// One channel.
#[derive(Debug)]
pub(super) struct OutgoingChannel {
    /// The peer's id for the channel.
    pub(super) id: ChannelId,
    writer: Id128,
    topic: Arc<str>,
    interest: Interest,
    /// The gap before the next message that leaves.
    missing: Option<Missing>,
    /// The gap after the last message held.
    missing_behind: Option<Missing>,
    /// The number of messages held.
    held: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interest {
    /// The peer has not answered.
    Asked,
    /// The peer accepted, for this many subscribers.
    Wanted(u32),
    /// The peer declined or refused.
    Unwanted,
}

/// A gap in a channel: the position after it, and how many of its messages the peer wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) start: Start,
    pub(super) lost: u64,
}

#[derive(Debug)]
enum HeldItem<M> {
    Message(M),
    /// A gap between two messages that are held.
    Missing(ChannelId, Missing),
}

/// Counts for [`super::LinkStats`] and the events.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    dropped: u64,
    /// Dropped messages that no event has reported yet.
    unreported: u64,
    /// Time of the last event, while messages are being dropped.
    last_report: Option<Instant>,
    last_topic: Option<Arc<str>>,
}

/// What happened to a message for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Written, queued or held, for this many subscribers; 0 while the peer has not answered.
    Sent(u32),
    /// Skipped: the peer does not want the channel.
    Unwanted,
    /// Dropped: the queue is full.
    Dropped,
}

/// An [`super::Event::Dropped`] that is due: the topic of the last message dropped, and the number
/// of messages dropped.
pub(super) type Notice = (Arc<str>, u64);

/// A message that leaves, the peer's id for its channel, and the gap to report before it.
pub(super) type Leaving<M> = (M, ChannelId, Option<Missing>);

/// A channel that has ended: the peer's id for it, and the gap at its end.
pub(super) type Ended = (ChannelId, Option<Missing>);

impl<M> Default for Delivery<M> {
    fn default() -> Self {
        let (channels, held) = (OutgoingChannels::default(), Waiting::default());
        let (retiring, lossy) = (BTreeSet::new(), BTreeSet::new());
        Delivery { channels, held, held_bytes: 0, retiring, wanted: 0, lossy, tally: Tally::default() }
    }
}

impl<M: Holdable> Delivery<M> {
    /// Adds a channel, which the peer knows as `id` and has not answered.
    pub(super) fn announce(&mut self, channel: ChannelId, id: ChannelId, a: &Announcement) {
        let outgoing = OutgoingChannel {
            id,
            writer: a.writer,
            topic: a.topic.as_str().into(),
            interest: Interest::Asked,
            missing: None,
            missing_behind: None,
            held: 0,
        };
        self.wanted += 1;
        let replaced = self.channels.insert(channel, outgoing);
        self.wanted -= usize::from(replaced.is_some_and(|outgoing| outgoing.interest != Interest::Unwanted));
    }

    /// Notes the peer's answer to a channel. If the peer declines, the messages held for the
    /// channel are skipped. Returns the messages that may leave now, in order.
    pub(super) fn answered(&mut self, channel: ChannelId, answer: &Answer) -> Vec<Leaving<M>> {
        let Some(outgoing) = self.channels.get_mut(&channel) else { return Vec::new() };
        let writer = outgoing.writer;
        self.wanted -= usize::from(outgoing.interest != Interest::Unwanted);
        self.wanted += usize::from(answer.accepts());
        outgoing.interest = match answer.accepts() {
            true => Interest::Wanted(answer.subscribers().max(1)),
            false => Interest::Unwanted,
        };
        if outgoing.interest == Interest::Unwanted {
            self.skip_held(channel);
        }
        self.release(writer)
    }

    /// Removes and returns the messages of a writer that no unanswered channel holds back any more.
    fn release(&mut self, writer: Id128) -> Vec<Leaving<M>> {
        let mut leaving = Vec::new();
        loop {
            let channels = &self.channels;
            let is_asked =
                |channel| channels.get(&channel).is_some_and(|outgoing| outgoing.interest == Interest::Asked);
            let Some(held) = self.held.pop_of(writer, |held| !is_asked(held.channel())) else { return leaving };
            let channel = held.channel();
            let Some(outgoing) = self.channels.get_mut(&channel) else { continue };
            match held {
                HeldItem::Missing(_, missing) => outgoing.miss(missing),
                HeldItem::Message(message) => {
                    outgoing.held -= 1;
                    self.held_bytes -= message.size();
                    leaving.push((message, outgoing.id, outgoing.missing.take()));
                }
            }
            self.behind(channel);
        }
    }

    /// Returns the number of subscribers for which the peer wants a message; 0 while the peer has
    /// not answered. If the peer does not want the message, notes it as skipped and returns `None`.
    #[inline]
    pub(super) fn wanted(&mut self, envelope: &Envelope<'_>) -> Option<u32> {
        let outgoing = self.channels.get_mut(&envelope.channel)?;
        match outgoing.interest {
            Interest::Wanted(subscribers) => Some(subscribers),
            Interest::Asked => Some(0),
            Interest::Unwanted => {
                outgoing.missing = Some(Missing { start: start_of(envelope), lost: 0 });
                None
            }
        }
    }

    /// Returns the peer's id for a channel that it wants, and the number of its subscribers, if no
    /// message of the link is held and there is no gap before the channel's next message.
    #[inline]
    pub(super) fn ready_channel(&mut self, channel: ChannelId) -> Option<(ChannelId, u32)> {
        if self.held.is_empty() { self.channels.ready_channel(channel) } else { None }
    }

    /// Whether the peer has accepted the channel.
    pub(super) fn is_accepted(&self, channel: ChannelId) -> bool {
        self.channels.get(&channel).is_some_and(|outgoing| matches!(outgoing.interest, Interest::Wanted(_)))
    }

    /// Returns the number of subscribers for which the peer has accepted the channel.
    pub(super) fn accepting(&self, channel: ChannelId) -> u32 {
        match self.channels.get(&channel).map(|outgoing| outgoing.interest) {
            Some(Interest::Wanted(subscribers)) => subscribers,
            _ => 0,
        }
    }

    /// Whether the peer may want messages of the channel.
    pub(super) fn wants(&self, channel: ChannelId) -> bool {
        self.channels.get(&channel).is_some_and(|outgoing| outgoing.interest != Interest::Unwanted)
    }

    /// Whether the peer may want messages of any channel.
    pub(super) fn wants_any(&self) -> bool {
        self.wanted > 0
    }

    /// Returns whether a message has to be held: its channel has no answer, or other messages of
    /// the same writer are held. `subscribers` is the result of [`Delivery::wanted`].
    #[inline]
    pub(super) fn must_hold(&self, channel: ChannelId, subscribers: u32) -> bool {
        subscribers == 0 || (!self.held.is_empty() && self.holds_writer_of(channel))
    }

    fn holds_writer_of(&self, channel: ChannelId) -> bool {
        self.channels.get(&channel).is_some_and(|outgoing| self.held.has_of(outgoing.writer))
    }

    pub(super) fn hold(&mut self, message: M) {
        let (channel, _) = message.at();
        let Some(outgoing) = self.channels.get_mut(&channel) else { return };
        if let Some(missing) = outgoing.missing_behind.take() {
            self.held.push(outgoing.writer, HeldItem::Missing(channel, missing));
        }
        outgoing.held += 1;
        self.held_bytes += message.size();
        self.held.push(outgoing.writer, HeldItem::Message(message));
    }

    /// Drops the oldest message held. Returns false if none is held.
    pub(super) fn drop_oldest_held(&mut self) -> bool {
        while let Some(held) = self.held.pop() {
            let channel = held.channel();
            let Some(outgoing) = self.channels.get_mut(&channel) else { continue };
            self.lossy.insert(channel);
            match held {
                HeldItem::Missing(_, missing) => outgoing.miss(missing),
                HeldItem::Message(message) => {
                    outgoing.held -= 1;
                    outgoing.miss(Missing { start: message.at().1, lost: 1 });
                    self.held_bytes -= message.size();
                    self.behind(channel);
                    self.count_drop(channel);
                    return true;
                }
            }
        }
        false
    }

    /// Counts a new message as dropped.
    pub(super) fn drop_newest(&mut self, envelope: &Envelope<'_>) {
        self.lose(envelope.channel, Missing { start: start_of(envelope), lost: 1 });
        self.count_drop(envelope.channel);
    }

    /// Adds a gap after everything held for the channel.
    pub(super) fn lose(&mut self, channel: ChannelId, missing: Missing) {
        let Some(outgoing) = self.channels.get_mut(&channel) else { return };
        if missing.lost > 0 {
            self.lossy.insert(channel);
        }
        match outgoing.held {
            0 => outgoing.miss(missing),
            _ => add(&mut outgoing.missing_behind, missing),
        }
    }

    /// Ends the channel as soon as no message is held for it. [`Delivery::ended`] then returns the
    /// channel.
    pub(super) fn retire(&mut self, channel: ChannelId) {
        if self.channels.get(&channel).is_some() {
            self.retiring.insert(channel);
        }
    }

    /// Removes and returns the channels that have ended.
    pub(super) fn ended(&mut self) -> Vec<Ended> {
        let Delivery { channels, retiring, lossy, wanted, .. } = self;
        let mut ended = Vec::new();
        retiring.retain(|channel| {
            let Some(outgoing) = channels.get(channel) else { return false };
            if outgoing.held > 0 {
                return true;
            }
            *wanted -= usize::from(outgoing.interest != Interest::Unwanted);
            ended.push((outgoing.id, outgoing.unreported()));
            channels.remove(channel);
            lossy.remove(channel);
            false
        });
        ended
    }

    /// Returns the peer's id for the channel of the next message, and takes the gap to report
    /// before it.
    #[inline]
    pub(super) fn next(&mut self, channel: ChannelId) -> Option<(ChannelId, Option<Missing>)> {
        let outgoing = self.channels.get_mut(&channel)?;
        Some((outgoing.id, outgoing.missing.take()))
    }

    /// Takes the losses after the last message sent of each channel, which no later message has
    /// reported.
    pub(super) fn take_unreported(&mut self) -> Vec<(ChannelId, Missing)> {
        let Delivery { channels, lossy, .. } = self;
        let mut unreported = Vec::new();
        lossy.retain(|channel| {
            let Some(outgoing) = channels.get_mut(channel) else { return false };
            if let Some(missing) = outgoing.unreported() {
                outgoing.missing = None;
                unreported.push((outgoing.id, missing));
            }
            outgoing.held > 0 || outgoing.is_lossy()
        });
        unreported
    }

    #[inline]
    pub(super) fn has_unreported(&self) -> bool {
        let unreported = |channel| self.channels.get(channel).and_then(OutgoingChannel::unreported);
        self.lossy.iter().any(|channel| unreported(channel).is_some())
    }

    pub(super) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Returns the number of messages that are held although the peer wants their channel.
    pub(super) fn held_and_wanted(&self) -> u64 {
        let wanted = |outgoing: &&OutgoingChannel| matches!(outgoing.interest, Interest::Wanted(_));
        self.channels.values().filter(wanted).map(|outgoing| outgoing.held as u64).sum()
    }

    #[inline]
    pub(super) fn count_sent(&mut self, messages: u64) {
        self.tally.sent += messages;
    }

    pub(super) fn count_drop(&mut self, channel: ChannelId) {
        self.tally.dropped += 1;
        self.tally.unreported += 1;
        if let Some(outgoing) = self.channels.get(&channel) {
            self.tally.last_topic = Some(outgoing.topic.clone());
        }
    }

    /// Returns the numbers of messages sent and of messages dropped.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.tally.sent, self.tally.dropped)
    }

    /// Returns the event that is due while messages are being dropped: at the first drop, then at
    /// most once per [`REPORT_AGAIN`].
    pub(super) fn notice(&mut self, now: Instant) -> Option<Notice> {
        let recently = |last: Instant| now.saturating_duration_since(last) < REPORT_AGAIN;
        if self.tally.unreported == 0 || self.tally.last_report.is_some_and(recently) {
            return None;
        }
        self.tally.last_report = Some(now);
        self.tally.take()
    }

    /// Returns the event that is due once the peer has caught up.
    pub(super) fn end_of_episode(&mut self) -> Option<Notice> {
        if self.tally.unreported == 0 {
            return None;
        }
        self.tally.last_report = None;
        self.tally.take()
    }

    /// Makes the gap after the held messages the gap before the next message, if no message of the
    /// channel is held any more.
    fn behind(&mut self, channel: ChannelId) {
        if let Some(outgoing) = self.channels.get_mut(&channel).filter(|outgoing| outgoing.held == 0)
            && let Some(missing) = outgoing.missing_behind.take()
        {
            outgoing.miss(missing);
        }
    }

    fn skip_held(&mut self, channel: ChannelId) {
        let Some(outgoing) = self.channels.get_mut(&channel) else { return };
        let skipped = self.held.take_of(outgoing.writer, |held| held.channel() == channel);
        self.held_bytes -= skipped.iter().map(HeldItem::size).sum::<usize>();
        let last = skipped.last().map(|held| held.at().1);
        outgoing.held = 0;
        let behind = outgoing.missing_behind.take().map(|missing| missing.start);
        let start = behind.or(last).or(outgoing.missing.map(|missing| missing.start));
        outgoing.missing = start.map(|start| Missing { start, lost: 0 });
    }
}

impl OutgoingChannels {
    fn get(&self, channel: &ChannelId) -> Option<&OutgoingChannel> {
        self.all.get(channel)
    }

    fn values(&self) -> impl Iterator<Item = &OutgoingChannel> {
        self.all.values()
    }

    fn get_mut(&mut self, channel: &ChannelId) -> Option<&mut OutgoingChannel> {
        self.near = None;
        self.all.get_mut(channel)
    }

    fn insert(&mut self, channel: ChannelId, outgoing: OutgoingChannel) -> Option<OutgoingChannel> {
        self.near = None;
        self.all.insert(channel, outgoing)
    }

    fn remove(&mut self, channel: &ChannelId) {
        self.near = None;
        self.all.remove(channel);
    }

    /// Looks a channel up for [`Delivery::ready_channel`]. Most messages have the channel of the
    /// previous one.
    #[inline]
    fn ready_channel(&mut self, channel: ChannelId) -> Option<(ChannelId, u32)> {
        match self.near {
            Some((near, ready)) if near == channel => Some(ready),
            _ => self.look_up(channel),
        }
    }

    fn look_up(&mut self, channel: ChannelId) -> Option<(ChannelId, u32)> {
        let outgoing = self.all.get(&channel).filter(|outgoing| outgoing.missing.is_none())?;
        let Interest::Wanted(subscribers) = outgoing.interest else { return None };
        let ready = (outgoing.id, subscribers);
        self.near = Some((channel, ready));
        Some(ready)
    }
}

impl Outcome {
    #[inline]
    pub(crate) fn count(self, sent: &mut Sent) {
        match self {
            Outcome::Sent(subscribers) => {
                sent.peers += 1;
                sent.held += usize::from(subscribers == 0);
                sent.subscribers += subscribers as usize;
            }
            Outcome::Dropped => sent.dropped += 1,
            Outcome::Unwanted => {}
        }
    }
}

impl OutgoingChannel {
    fn miss(&mut self, missing: Missing) {
        add(&mut self.missing, missing);
    }

    fn is_lossy(&self) -> bool {
        self.missing.is_some_and(|missing| missing.lost > 0)
    }

    fn unreported(&self) -> Option<Missing> {
        let wanted = matches!(self.interest, Interest::Wanted(_)) && self.held == 0;
        self.missing.filter(|missing| wanted && missing.lost > 0)
    }
}

impl<M: Holdable> HeldItem<M> {
    fn at(&self) -> (ChannelId, Start) {
        match self {
            HeldItem::Message(message) => message.at(),
            HeldItem::Missing(channel, missing) => (*channel, missing.start),
        }
    }

    fn channel(&self) -> ChannelId {
        self.at().0
    }

    fn size(&self) -> usize {
        match self {
            HeldItem::Message(message) => message.size(),
            HeldItem::Missing(..) => 0,
        }
    }
}

impl Tally {
    fn take(&mut self) -> Option<Notice> {
        let topic = self.last_topic.clone().unwrap_or_else(|| "".into());
        Some((topic, std::mem::take(&mut self.unreported)))
    }
}

fn add(to: &mut Option<Missing>, more: Missing) {
    let lost = to.map_or(0, |before| before.lost).saturating_add(more.lost);
    *to = Some(Missing { start: more.start, lost });
}

/// Returns the position of a channel after a message.
pub(super) fn start_of(envelope: &Envelope<'_>) -> Start {
    Start { sequence: envelope.sequence, timestamp_ns: envelope.timestamp_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ChannelId = ChannelId(1);
    const B: ChannelId = ChannelId(2);

    /// Channel and sequence number.
    type Note = (ChannelId, u64);

    impl Holdable for Note {
        fn at(&self) -> (ChannelId, Start) {
            (self.0, at(self.1))
        }

        fn size(&self) -> usize {
            10
        }
    }

    fn at(sequence: u64) -> Start {
        Start { sequence, timestamp_ns: 0 }
    }

    fn missing(sequence: u64, lost: u64) -> Option<Missing> {
        Some(Missing { start: at(sequence), lost })
    }

    /// Returns a delivery with one channel for each of these writers, none answered yet.
    fn asked(writers: &[u8]) -> Delivery<Note> {
        let mut delivery = Delivery::default();
        for (channel, writer) in (1..).map(ChannelId).zip(writers) {
            let topic = format!("topic {channel}");
            let announcement = Announcement { topic, writer: Id128([*writer; 16]), ..Announcement::default() };
            delivery.announce(channel, ChannelId(channel.0 + 10), &announcement);
        }
        delivery
    }

    /// Returns the messages that leave after an answer, each with the gap before it.
    fn answered(delivery: &mut Delivery<Note>, channel: ChannelId, answer: Answer) -> Vec<(Note, Option<Missing>)> {
        let left = delivery.answered(channel, &answer);
        assert!(left.iter().all(|(note, id, _)| id.0 == note.0.0 + 10));
        left.into_iter().map(|(note, _, missing)| (note, missing)).collect()
    }

    #[test]
    fn an_unanswered_channel_holds_back_its_writer_and_nobody_else() {
        let mut delivery = asked(&[1, 1, 2]);
        delivery.hold((A, 1));
        for channel in [B, ChannelId(3)] {
            assert!(answered(&mut delivery, channel, Answer::Accept(1)).is_empty());
        }
        assert!(delivery.must_hold(A, 0) && delivery.must_hold(B, 1));
        assert!(!delivery.must_hold(ChannelId(3), 1), "another writer's");
        delivery.hold((B, 2));
        assert!(answered(&mut delivery, B, Answer::Accept(2)).is_empty());
        assert_eq!(answered(&mut delivery, A, Answer::Accept(1)), [((A, 1), None), ((B, 2), None)]);
        assert_eq!((delivery.held_bytes(), delivery.must_hold(B, 1)), (0, false));
    }

    #[test]
    fn held_messages_that_make_room_are_counted_and_reported() {
        let mut delivery = asked(&[1]);
        (1..=4).for_each(|sequence| delivery.hold((A, sequence)));
        assert!(delivery.drop_oldest_held() && delivery.drop_oldest_held());
        assert_eq!(delivery.counts(), (0, 2));
        assert_eq!(delivery.notice(Instant::now()), Some(("topic 1".into(), 2)));
        assert_eq!(answered(&mut delivery, A, Answer::Accept(1)), [((A, 3), missing(2, 2)), ((A, 4), None)]);
    }

    #[test]
    fn what_is_dropped_behind_held_messages_is_reported_behind_them() {
        let mut delivery = asked(&[1]);
        delivery.hold((A, 1));
        delivery.drop_newest(&Envelope::data(A, 2, 0));
        delivery.drop_newest(&Envelope::data(A, 3, 0));
        delivery.hold((A, 4));
        delivery.drop_newest(&Envelope::data(A, 5, 0));
        assert_eq!(answered(&mut delivery, A, Answer::Accept(1)), [((A, 1), None), ((A, 4), missing(3, 2))]);
        assert!(delivery.has_unreported());
        assert_eq!(delivery.take_unreported(), [(ChannelId(11), missing(5, 1).expect("some"))]);
        assert!(!delivery.has_unreported());
    }

    #[test]
    fn what_nobody_wants_is_skipped_and_not_lost() {
        let mut delivery = asked(&[1]);
        (1..=3).for_each(|sequence| delivery.hold((A, sequence)));
        delivery.drop_newest(&Envelope::data(A, 4, 0));
        assert!(answered(&mut delivery, A, Answer::Decline).is_empty() && !delivery.has_unreported());
        assert_eq!(delivery.wanted(&Envelope::data(A, 5, 0)), None);
        delivery.answered(A, &Answer::Accept(3));
        assert_eq!(delivery.wanted(&Envelope::data(A, 6, 0)), Some(3));
        assert_eq!(delivery.next(A), Some((ChannelId(11), missing(5, 0))));
        assert_eq!(delivery.next(A), Some((ChannelId(11), None)));
    }

    #[test]
    fn a_channel_ends_after_what_is_held_and_reports_its_losses() {
        let mut delivery = asked(&[1]);
        delivery.hold((A, 1));
        delivery.drop_newest(&Envelope::data(A, 2, 0));
        delivery.retire(A);
        assert!(delivery.wants_any());
        assert_eq!(delivery.ended(), []);
        assert_eq!(answered(&mut delivery, A, Answer::Accept(1)), [((A, 1), None)]);
        assert_eq!(delivery.ended(), [(ChannelId(11), missing(2, 1))]);
        assert_eq!(delivery.next(A), None);
        assert!(!delivery.wants_any());
    }

    #[test]
    fn a_peer_that_declines_everything_wants_nothing() {
        let mut delivery = asked(&[1, 2]);
        delivery.answered(A, &Answer::Decline);
        assert!(delivery.wants_any() && delivery.wants(B));
        delivery.answered(B, &Answer::Decline);
        assert!(!delivery.wants_any());
        delivery.answered(A, &Answer::Accept(1));
        delivery.answered(A, &Answer::Accept(2));
        assert!(delivery.wants_any());
        delivery.retire(A);
        assert!(delivery.ended().len() == 1 && !delivery.wants_any());
    }

    #[test]
    fn drops_are_reported_at_first_then_rarely_and_when_they_end() {
        let (mut delivery, now) = (asked(&[1]), Instant::now());
        let drop_one = |delivery: &mut Delivery<Note>| delivery.drop_newest(&Envelope::data(A, 1, 0));
        drop_one(&mut delivery);
        assert_eq!(delivery.notice(now), Some(("topic 1".into(), 1)));
        (0..3).for_each(|_| drop_one(&mut delivery));
        assert_eq!(delivery.notice(now + REPORT_AGAIN / 2), None);
        assert_eq!(delivery.notice(now + REPORT_AGAIN), Some(("topic 1".into(), 3)));
        drop_one(&mut delivery);
        assert_eq!(delivery.end_of_episode(), Some(("topic 1".into(), 1)));
        assert_eq!(delivery.end_of_episode(), None);
    }
}
