//! One end of a link to another node: what this node sends to the peer, and which of the peer's
//! messages this node takes.
//!
//! While the peer keeps up, it reads messages from the keys of their topics, where each message is
//! put once for all peers. At most a *window* of bytes is under way that the peer has not
//! acknowledged. If the peer falls behind, this node sends it *leave*: messages for that peer then
//! wait here by the overflow policy, and go to it by mail. When the peer has caught up, this node
//! sends it *join*. So one slow peer does not hold up the others for longer than the policy says.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Frame, FrameError, Limits, Start},
    rpc::{self, Role},
};
use zenoh::key_expr::OwnedKeyExpr;

use super::{
    super::{
        LinkInfo, LinkStats, Overflow,
        delivery::{Delivery, Notice, Outcome, start_of},
        outbox::{HeldFrame, Item, Outbox, encoded, position},
    },
    key::Keys,
    mail::Content,
    outgoing::{Line, Outgoing},
    ros::{self, HEADER},
};

/// Bytes that a message or frame counts in addition to its own.
const OVERHEAD: usize = 64;
/// A mark asks the peer to acknowledge what was sent before. It is sent at the latest after this
/// share of a window.
const MARKS: u64 = 4;
/// A link is calm while no more than this share of a window is under way: more than between marks.
const CALM: u64 = 2;
/// A mark is also sent when nothing was sent for this long and the peer has not acknowledged
/// everything. This pause and [`ASK_AGAIN`] are longer among many nodes.
const ASK: Duration = Duration::from_millis(500);
/// A mark is repeated after this long without an answer, which also reveals missing mails.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The overflow policy and the limits that a port sets for its links.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) overflow: Overflow,
    /// Bytes that may wait for a peer.
    pub(super) queue: usize,
    /// Bytes that may be under way to a peer.
    pub(super) window: u64,
    pub(super) limits: Limits,
}

/// A message to send.
pub(super) struct Message<'a> {
    pub(super) envelope: &'a Envelope<'a>,
    pub(super) payload: &'a [u8],
    /// Whether the message may be put under the key of its topic.
    pub(super) uses_topic_key: bool,
    /// Whether a peer reads the message from the key of its topic.
    pub(super) is_read_by_peer: bool,
    /// Whether the publisher cannot wait, although the policy blocks. The message then has room.
    pub(super) cannot_wait: bool,
    frame: Option<Vec<u8>>,
}

impl<'a> Message<'a> {
    pub(super) fn new(envelope: &'a Envelope<'a>, payload: &'a [u8], uses_topic_key: bool) -> Message<'a> {
        Message { envelope, payload, uses_topic_key, is_read_by_peer: false, cannot_wait: false, frame: None }
    }

    fn frame(&mut self) -> &[u8] {
        self.frame.get_or_insert_with(|| encoded(&Frame::Data(*self.envelope, self.payload)))
    }

    fn size(&self) -> usize {
        self.payload.len() + OVERHEAD
    }
}

/// A channel of the peer.
pub(super) struct Remote {
    pub(super) writer: Id128,
    /// The key under which the channel's messages are put. `None` if they arrive by mail.
    pub(super) key: Option<OwnedKeyExpr>,
    /// The header that precedes the payloads under that key.
    pub(super) header: Option<[u8; HEADER]>,
    /// The channel's topic, if it is the topic of a service's replies.
    pub(super) replies: Option<String>,
    /// Whether this node has accepted the channel.
    pub(super) is_accepted: bool,
    /// Whether the peer has sent the Position from which on messages are for this node.
    pub(super) is_positioned: bool,
}

pub(super) struct Link {
    pub(super) info: LinkInfo,
    pub(super) delivery: Delivery<HeldFrame>,
    pub(super) remote: BTreeMap<ChannelId, Remote>,
    /// An offer of the peer, until the announcement of its channel arrives.
    pub(super) offered: Option<(ChannelId, Vec<u8>)>,
    /// Whether this node reads the peer's messages from the keys of their topics.
    pub(super) reads_topic_keys: bool,
    terms: Terms,
    /// The frames and messages that wait while the peer takes messages by mail.
    queue: Outbox,
    /// Whether the peer reads messages from the keys of their topics.
    has_joined: bool,
    /// Whether the peer has acknowledged nothing for longer than the policy's patience.
    is_stalled: bool,
    /// Whether the peer has not answered a channel for longer than the policy's patience.
    is_silent: bool,
    /// Bytes that were sent, bytes that the last mark covers, and bytes that the peer has
    /// acknowledged.
    sent: u64,
    marked: u64,
    acknowledged: u64,
    marked_at: Instant,
    /// The value of `sent` at the last check, and the time since which it has not changed.
    seen: u64,
    quiet_since: Instant,
    notices: Vec<Notice>,
}

/// The way to the peer of a link: the line, and the queue of what leaves through the session.
pub(super) struct Way<'a> {
    pub(super) line: &'a mut Line,
    pub(super) out: &'a mut Outgoing,
}

impl Link {
    /// Begins a link: sends *join*, and announces the channels of this node.
    pub(super) fn begin<'a>(
        info: LinkInfo,
        terms: Terms,
        way: &mut Way<'_>,
        channels: impl Iterator<Item = (ChannelId, Start, &'a Announcement)>,
    ) -> Link {
        let mut link = Link {
            info,
            delivery: Delivery::default(),
            remote: BTreeMap::new(),
            offered: None,
            reads_topic_keys: false,
            terms,
            queue: Outbox::default(),
            has_joined: true,
            is_stalled: false,
            is_silent: false,
            sent: 0,
            marked: 0,
            acknowledged: 0,
            marked_at: Instant::now(),
            seen: 0,
            quiet_since: Instant::now(),
            notices: Vec::new(),
        };
        way.line.send(Content::Join, way.out);
        channels.for_each(|(channel, start, announcement)| link.announce(way, channel, start, announcement));
        link
    }

    pub(super) fn announce(
        &mut self,
        way: &mut Way<'_>,
        channel: ChannelId,
        start: Start,
        announcement: &Announcement,
    ) {
        self.delivery.announce(channel, channel, announcement);
        if !announcement.offer.is_empty() {
            self.send_frame(way, &encoded(&Frame::Offer { channel, offer: &announcement.offer }));
        }
        let announcement = Box::new(announcement.clone());
        self.send_frame(way, &encoded(&Frame::Announce { channel, start, announcement }));
    }

    pub(super) fn retire(&mut self, way: &mut Way<'_>, channel: ChannelId) {
        self.delivery.retire(channel);
        self.end_channels(way);
    }

    /// Sends a frame after everything that waits in the queue.
    pub(super) fn tell(&mut self, way: &mut Way<'_>, frame: &Frame<'_>) {
        match self.queue.is_empty() {
            true => self.send_frame(way, &encoded(frame)),
            false => self.queue.control(None, frame),
        }
    }

    /// Sends a frame at once, ahead of what waits in the queue, such as an announcement.
    pub(super) fn send_frame(&mut self, way: &mut Way<'_>, frame: &[u8]) {
        way.line.send(Content::Frame(frame), way.out);
        self.count(way, frame.len() + OVERHEAD);
    }

    /// Whether a message must wait for the peer, by a policy that blocks the publisher.
    pub(super) fn must_wait(&self, message: &Message<'_>, out: &Outgoing) -> bool {
        let channel = message.envelope.channel;
        if self.is_free(out) && !self.delivery.is_holding() || !self.delivery.wants(channel) {
            return false;
        }
        match self.must_hold(channel) {
            true => !self.is_silent && !self.has_room_to_hold(message.size()),
            false if self.is_stalled => false,
            false if self.has_joined => !self.has_window(out),
            false => self.queue.is_full(message.size(), self.terms.queue),
        }
    }

    /// Notes that the peer did not answer, or acknowledged nothing, while a message waited for it.
    pub(super) fn stall(&mut self, message: &Message<'_>) {
        match self.must_hold(message.envelope.channel) {
            true => self.is_silent = true,
            false => self.is_stalled = true,
        }
    }

    fn must_hold(&self, channel: ChannelId) -> bool {
        self.delivery.must_hold(channel, u32::from(self.delivery.is_accepted(channel)))
    }

    /// Returns a value that changes whenever the peer acknowledges something.
    pub(super) fn progress(&self) -> (u64, usize) {
        (self.acknowledged, self.delivery.held_bytes())
    }

    /// Sends a message to the peer by mail, keeps it here, or drops it. If the peer reads the
    /// message from its topic's key, sets `is_read_by_peer`: the caller must put it there and call
    /// [`Link::mark_if_due`].
    pub(super) fn send(&mut self, way: &mut Way<'_>, message: &mut Message<'_>) -> Outcome {
        let (envelope, channel) = (message.envelope, message.envelope.channel);
        // The usual case: nothing is in the message's way, and there is no search for its channel.
        if message.uses_topic_key
            && self.is_free(way.out)
            && let Some((_, subscribers)) = self.delivery.ready_channel(channel)
        {
            self.delivery.count_sent(1);
            message.is_read_by_peer = true;
            self.sent += message.size() as u64;
            return Outcome::Sent(subscribers);
        }
        let Some(subscribers) = self.delivery.wanted(envelope) else { return Outcome::Unwanted };
        if self.delivery.must_hold(channel, subscribers) {
            return self.hold(way, message, subscribers);
        }
        if self.is_free(way.out) {
            if let Some((_, Some(missing))) = self.delivery.next(channel) {
                self.send_frame(way, &encoded(&position(channel, missing)));
            }
            self.delivery.count_sent(1);
            match message.uses_topic_key {
                true => {
                    message.is_read_by_peer = true;
                    self.sent += message.size() as u64;
                }
                false => self.send_frame(way, message.frame()),
            }
            return Outcome::Sent(subscribers);
        }
        self.leave(way);
        if !message.cannot_wait && !self.make_room_in_queue(message.size()) {
            self.queue.drop_newest(channel, start_of(envelope));
            self.delivery.count_drop(channel);
            self.note_drops();
            return Outcome::Dropped;
        }
        if let Some((_, Some(missing))) = self.delivery.next(channel) {
            self.queue.control(None, &position(channel, missing));
        }
        self.delivery.count_sent(1);
        let frame = message.frame().to_vec();
        self.queue.push(Item::Message { to: None, channel, start: start_of(envelope), frame });
        self.feed(way);
        Outcome::Sent(subscribers)
    }

    fn hold(&mut self, way: &mut Way<'_>, message: &mut Message<'_>, subscribers: u32) -> Outcome {
        // The message waits behind others of its writer: the peer must not read it from its topic's
        // key.
        if self.delivery.is_accepted(message.envelope.channel) {
            self.leave(way);
        }
        let (size, overflow) = (message.size(), self.terms.overflow);
        if overflow == Overflow::DropOldest {
            while !self.has_room_to_hold(size) && self.delivery.drop_oldest_held() {}
        }
        let is_held = message.cannot_wait || (!self.is_silent && self.has_room_to_hold(size));
        if is_held {
            self.delivery.count_sent(1);
            let held = HeldFrame::new(message.envelope, message.frame());
            self.delivery.hold(held);
        } else {
            self.delivery.drop_newest(message.envelope);
        }
        self.note_drops();
        if is_held { Outcome::Sent(subscribers) } else { Outcome::Dropped }
    }

    fn has_room_to_hold(&self, more: usize) -> bool {
        let held = self.delivery.held_bytes();
        held == 0 || held + more <= self.terms.queue
    }

    fn make_room_in_queue(&mut self, more: usize) -> bool {
        let limit = self.terms.queue;
        if self.terms.overflow == Overflow::DropOldest {
            while self.queue.is_full(more, limit)
                && let Some(channel) = self.queue.drop_oldest()
            {
                self.delivery.count_drop(channel);
            }
            self.note_drops();
        }
        !self.is_stalled && !self.queue.is_full(more, limit)
    }

    fn note_drops(&mut self) {
        self.notices.extend(self.delivery.notice(Instant::now()));
    }

    /// Takes the notices of dropped messages that are to be reported to the node.
    pub(super) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Whether little is under way and nothing waits.
    pub(super) fn is_calm(&self) -> bool {
        self.queue.is_empty()
            && !self.delivery.is_holding()
            && self.sent - self.acknowledged <= self.terms.window / CALM
    }

    /// Whether the peer takes a message now, from the key of its topic or by mail.
    fn is_free(&self, out: &Outgoing) -> bool {
        self.has_joined && !self.is_stalled && self.has_window(out)
    }

    /// Whether the window has room. If it has, a message of any size fits.
    fn has_window(&self, out: &Outgoing) -> bool {
        self.sent - self.acknowledged < self.terms.window && !out.is_jammed()
    }

    fn leave(&mut self, way: &mut Way<'_>) {
        if std::mem::replace(&mut self.has_joined, false) {
            way.line.send(Content::Leave, way.out);
        }
    }

    /// Sends what waits, as far as the window has room. If nothing waits any more, sends *join*:
    /// the peer reads messages from the keys of their topics again.
    pub(super) fn feed(&mut self, way: &mut Way<'_>) {
        let is_half_free = 2 * (self.sent - self.acknowledged) <= self.terms.window && !way.out.is_jammed();
        self.is_stalled &= !is_half_free;
        while !self.is_stalled
            && self.has_window(way.out)
            && let Some(item) = self.queue.pop()
        {
            match item {
                Item::Control(_, frame) | Item::Message { frame, .. } => self.send_frame(way, &frame),
                Item::Lost(channel, missing) => self.send_frame(way, &encoded(&position(channel, missing))),
            }
        }
        let nothing_waits = self.queue.is_empty() && !self.delivery.is_holding();
        let has_caught_up = nothing_waits && 2 * (self.sent - self.acknowledged) <= self.terms.window;
        if has_caught_up && !self.has_joined && !way.out.is_jammed() {
            self.has_joined = true;
            self.notices.extend(self.delivery.end_of_episode());
            way.line.send(Content::Join, way.out);
        }
    }

    fn count(&mut self, way: &mut Way<'_>, bytes: usize) {
        self.sent += bytes as u64;
        self.mark_if_due(way);
    }

    /// Sends a mark, if much was sent since the last one.
    pub(super) fn mark_if_due(&mut self, way: &mut Way<'_>) {
        if self.is_mark_due() {
            self.mark(way);
        }
    }

    /// Whether much was sent since the last mark.
    pub(super) fn is_mark_due(&self) -> bool {
        self.sent - self.marked >= (self.terms.window / MARKS).max(1)
    }

    /// Sends a mark, which asks the peer to acknowledge what was sent before.
    pub(super) fn mark(&mut self, way: &mut Way<'_>) {
        (self.marked, self.marked_at) = (self.sent, Instant::now());
        way.line.send(Content::Mark(self.sent), way.out);
    }

    /// Does what is due at `now`. Returns whether something will become due as time passes.
    pub(super) fn keep_time(&mut self, way: &mut Way<'_>, now: Instant, crowd: u32, is_closing: bool) -> bool {
        self.feed(way);
        if self.is_acknowledged() {
            return false;
        }
        if std::mem::replace(&mut self.seen, self.sent) != self.sent {
            self.quiet_since = now;
        }
        let since = |then: Instant| now.saturating_duration_since(then);
        let is_quiet = is_closing || since(self.quiet_since) >= ASK * crowd;
        if self.marked < self.sent && is_quiet || since(self.marked_at) >= ASK_AGAIN * crowd {
            self.mark(way);
        }
        true
    }

    pub(super) fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Notes that the peer has acknowledged this many bytes, and sends what has room now.
    pub(super) fn acknowledged(&mut self, way: &mut Way<'_>, bytes: u64) {
        if (self.acknowledged..=self.sent).contains(&bytes) {
            self.acknowledged = bytes;
            self.feed(way);
        }
    }

    /// Handles the peer's answer to a channel of this node. Messages that were held for the answer
    /// move to the queue.
    pub(super) fn answered(&mut self, way: &mut Way<'_>, channel: ChannelId, answer: &Answer, start: Start) {
        let was_accepted = self.delivery.is_accepted(channel);
        let leaving = self.delivery.answered(channel, answer);
        if answer.accepts() && !was_accepted {
            self.tell(way, &Frame::Position { channel, start, lost: 0 });
        }
        if !leaving.is_empty() {
            self.leave(way);
        }
        for (HeldFrame { channel, start, frame }, _, missing) in leaving {
            if let Some(missing) = missing {
                self.queue.control(None, &position(channel, missing));
            }
            self.queue.push(Item::Message { to: None, channel, start, frame: frame.to_vec() });
        }
        for (channel, missing) in self.delivery.take_unreported() {
            self.tell(way, &position(channel, missing));
        }
        self.is_silent = false;
        self.end_channels(way);
        self.feed(way);
    }

    fn end_channels(&mut self, way: &mut Way<'_>) {
        for (channel, missing) in self.delivery.ended() {
            if let Some(missing) = missing {
                self.tell(way, &position(channel, missing));
            }
            self.tell(way, &Frame::Retire { channel });
        }
    }

    /// Notes a channel of the peer, and adds the offer that preceded the announcement. Fails if the
    /// peer has too many channels.
    pub(super) fn remember(
        &mut self,
        channel: ChannelId,
        announcement: &mut Announcement,
        keys: &Keys,
    ) -> Result<(), FrameError> {
        if let Some((_, offer)) = self.offered.take().filter(|(offered, _)| *offered == channel) {
            announcement.offer = offer;
        }
        let limit = self.terms.limits.channels;
        if self.remote.len() >= limit && !self.remote.contains_key(&channel) {
            return Err(FrameError::TooManyChannels { limit });
        }
        let key = keys.of(&announcement.topic).filter(|_| keys.uses_topic_key(announcement));
        let header = if keys.is_ros() { ros::header(announcement) } else { None };
        let (writer, topic) = (announcement.writer, &announcement.topic);
        let replies = rpc::service_of(topic).filter(|(_, role)| *role == Role::Reply).map(|_| topic.clone());
        self.remote.insert(channel, Remote { writer, key, header, replies, is_accepted: false, is_positioned: false });
        Ok(())
    }

    /// Whether the peer has a server whose replies have this topic.
    pub(super) fn serves(&self, replies: &str) -> bool {
        self.remote.values().any(|remote| remote.replies.as_deref() == Some(replies))
    }

    /// Whether everything has left this node.
    pub(super) fn is_sent(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the peer has acknowledged everything.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.queue.is_empty() && self.acknowledged == self.sent
    }

    pub(super) fn stats(&self) -> LinkStats {
        let (sent, dropped) = self.delivery.counts();
        let queued_bytes = self.queue.bytes() + self.delivery.held_bytes();
        LinkStats { link: self.info.clone(), sent, dropped, queued_bytes, silences: 0 }
    }
}
