//! The state of a port: its groups with their members, its links and its channels. All of this code
//! runs under the port's lock, and none of it calls the node.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId},
    frame::{Answer, Frame, Start},
    multicast::{Config, Member, MemberId, Reliability},
};

use super::super::{
    LinkId, LinkInfo, LinkSink, LinkStats,
    delivery::{Delivery, Notice},
    outbox::{HeldFrame, Item, Outbox, encoded, position},
    rejections::Rejections,
};

/// The key of the only group of a port that does not host callers.
pub(super) const ONLY: MemberId = MemberId(0);

pub(super) struct State {
    /// The group at the port's address, or one for each caller, by the caller's id.
    pub(super) groups: BTreeMap<MemberId, Group>,
    pub(super) links: BTreeMap<LinkId, Link>,
    /// Links that were removed to make room, and whose end the node does not know yet, with the
    /// number of messages that their peers have not confirmed.
    pub(super) displaced: Vec<(Link, u64)>,
    pub(super) channels: BTreeMap<ChannelId, (Start, Arc<Announcement>)>,
    pub(super) last_channel: u32,
    pub(super) is_closed: bool,
    /// The number of threads that gather messages in order to send them together.
    pub(super) gathering: usize,
    /// When the receiving thread began its current delivery to the node. `None` if it delivers
    /// nothing.
    pub(super) delivering: Option<Instant>,
    /// The time at which the timer thread wakes.
    pub(super) planned: Duration,
    /// The system's error number for the last failure to send or receive. `None` once a packet
    /// arrives.
    pub(super) unreachable: Option<i32>,
    pub(super) rejections: Rejections,
    /// The number of packets that removed groups have retransmitted.
    pub(super) retransmitted: u64,
}

/// A member, and the frames that wait to be sent through it.
pub(super) struct Group {
    pub(super) member: Member,
    pub(super) to: SocketAddr,
    pub(super) outbox: Outbox,
    pub(super) links: BTreeMap<MemberId, LinkId>,
    pub(super) heard: Duration,
    began: Duration,
    /// The buffer for an outgoing packet.
    packet: Vec<u8>,
}

/// A link to one peer.
pub(super) struct Link {
    pub(super) info: LinkInfo,
    pub(super) sink: Arc<dyn LinkSink>,
    pub(super) group: MemberId,
    pub(super) member: MemberId,
    pub(super) delivery: Delivery<HeldFrame>,
    /// The peer's channels.
    pub(super) remote: BTreeMap<ChannelId, Remote>,
    /// An offer of the peer, until the announcement for the same channel arrives.
    pub(super) offered: Option<(ChannelId, Vec<u8>)>,
    /// The held messages fill the queue, and the peer has not answered: new messages are dropped
    /// until it answers.
    pub(super) is_stalled: bool,
    /// It was reported that the peer has sent a malformed frame, or does not take the replies to
    /// its requests.
    pub(super) is_reported: bool,
}

/// A channel of a peer.
pub(super) struct Remote {
    pub(super) announcement: Arc<Announcement>,
    /// The peer has sent the position from which on the channel's messages are for this node.
    pub(super) is_open: bool,
}

impl State {
    /// Creates the state of a port that accepts at most `most` callers.
    pub(super) fn new(most: usize) -> State {
        State {
            groups: BTreeMap::new(),
            links: BTreeMap::new(),
            displaced: Vec::new(),
            channels: BTreeMap::new(),
            last_channel: 0,
            is_closed: false,
            gathering: 0,
            retransmitted: 0,
            delivering: None,
            planned: Duration::MAX,
            unreachable: None,
            rejections: Rejections::new(most),
        }
    }

    /// Adds a link, and announces every channel to its peer.
    pub(super) fn add(&mut self, mut link: Link) {
        let Some(group) = self.groups.get_mut(&link.group) else { return };
        for (channel, (start, announcement)) in &self.channels {
            link.delivery.announce(*channel, *channel, announcement);
            group.outbox.control(Some(link.member), &announce(*channel, *start, announcement));
        }
        group.links.insert(link.member, link.info.id);
        self.links.insert(link.info.id, link);
    }

    pub(super) fn remove(&mut self, group: MemberId, member: MemberId) -> Option<Link> {
        let link = self.groups.get_mut(&group)?.links.remove(&member)?;
        self.links.remove(&link)
    }

    /// Removes a group to make room for a caller: the oldest one without a link, else the newest
    /// one of the host that has the most. Returns `None` if the caller's host would then have as
    /// many as that host.
    pub(super) fn make_room(&mut self, caller: IpAddr, messages: Reliability) -> Option<Group> {
        let strangers = self.groups.iter().filter(|(_, group)| group.links.is_empty());
        let oldest = strangers.min_by_key(|(_, group)| group.began).map(|(id, _)| *id);
        let gone = oldest.or_else(|| self.newest_of_the_most(caller))?;
        let group = self.groups.remove(&gone)?;
        self.retransmitted += group.member.retransmitted();
        let State { links, displaced, .. } = self;
        for link in group.links.values().filter_map(|link| links.remove(link)) {
            let waiting = if messages == Reliability::Reliable { group.waiting(&link) } else { 0 };
            let unconfirmed = waiting + group.member.unconfirmed(link.member);
            displaced.push((link, unconfirmed));
        }
        Some(group)
    }

    fn newest_of_the_most(&self, caller: IpAddr) -> Option<MemberId> {
        let host = |group: &Group| group.to.ip().to_canonical();
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        self.groups.values().for_each(|group| *counts.entry(host(group)).or_default() += 1);
        let (most, count) = counts.iter().max_by_key(|(_, count)| **count)?;
        let is_fair = *count > counts.get(&caller.to_canonical()).map_or(0, |own| *own) + 1;
        let of_most = self.groups.iter().filter(|(_, group)| is_fair && host(group) == *most);
        of_most.max_by_key(|(_, group)| group.began).map(|(id, _)| *id)
    }

    /// Announces a new channel to all links.
    pub(super) fn announce(&mut self, channel: ChannelId, start: Start, announcement: &Arc<Announcement>) {
        self.channels.insert(channel, (start, announcement.clone()));
        let frame = announce(channel, start, announcement);
        for group in self.groups.values_mut().filter(|group| !group.links.is_empty()) {
            group.outbox.control(None, &frame);
        }
        for link in self.links.values_mut() {
            link.delivery.announce(channel, channel, announcement);
        }
    }

    pub(super) fn retire(&mut self, channel: ChannelId) {
        self.channels.remove(&channel);
        let State { links, groups, .. } = self;
        for link in links.values_mut() {
            link.delivery.retire(channel);
            if let Some(group) = groups.get_mut(&link.group) {
                end_channels(link, group);
            }
        }
    }

    /// Handles the peer's answer to a channel. Queues the messages that were held for the peer.
    pub(super) fn answered(&mut self, link: LinkId, channel: ChannelId, answer: &Answer) {
        let Some(link) = self.links.get_mut(&link) else { return };
        let Some(group) = self.groups.get_mut(&link.group) else { return };
        let was_accepted = link.delivery.is_accepted(channel);
        if answer.accepts() && !was_accepted && !group.outbox.has_room_for_control(link.member) {
            // The peer accepts and declines again and again, but takes nothing.
            return;
        }
        link.is_stalled = false;
        let leaving = link.delivery.answered(channel, answer);
        let to = Some(link.member);
        if answer.accepts() && !was_accepted {
            group.outbox.control(to, &Frame::Position { channel, start: Start::default(), lost: 0 });
        }
        for (held, _, missing) in leaving {
            if let Some(missing) = missing {
                group.outbox.control(to, &position(held.channel, missing));
            }
            let HeldFrame { channel, start, frame } = held;
            group.outbox.push(Item::Message { to, channel, start, frame: frame.to_vec() });
        }
        for (channel, missing) in link.delivery.take_unreported() {
            group.outbox.control(to, &position(channel, missing));
        }
        end_channels(link, group);
    }

    /// Queues a control frame for a link. Returns the link's group. Drops the frame and returns
    /// `None` if the peer requests more than it takes.
    pub(super) fn control(&mut self, link: LinkId, frame: &Frame<'_>) -> Option<MemberId> {
        let link = self.links.get(&link)?;
        let outbox = &mut self.groups.get_mut(&link.group)?.outbox;
        let frame = match frame {
            // The peer may ask another node, or this one again.
            Frame::Document { document, .. } if !outbox.has_room_for_document(link.member) => {
                &Frame::Document { document: *document, bytes: None }
            }
            other => other,
        };
        if !outbox.has_room_for_control(link.member) {
            return None;
        }
        outbox.control(Some(link.member), frame);
        Some(link.group)
    }

    pub(super) fn stats(&self) -> Vec<LinkStats> {
        let stats = |link: &Link| {
            let (sent, dropped) = link.delivery.counts();
            let queued = self.groups.get(&link.group).map_or(0, |group| group.outbox.bytes());
            LinkStats {
                link: link.info.clone(),
                sent,
                dropped,
                queued_bytes: queued + link.delivery.held_bytes(),
                silences: 0,
            }
        };
        self.links.values().map(stats).collect()
    }

    /// Returns whether everything has been sent.
    pub(super) fn is_sent(&self) -> bool {
        self.groups.values().all(|group| group.outbox.is_empty() && group.member.is_sent())
    }

    /// Returns whether everything has been sent and the peers have acknowledged it.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.groups.values().all(|group| group.outbox.is_empty() && group.member.is_taken())
    }
}

impl Group {
    pub(super) fn new(member: Member, to: SocketAddr, now: Duration) -> Group {
        let (outbox, links, packet) = (Outbox::default(), BTreeMap::new(), Vec::new());
        Group { member, to, outbox, links, heard: now, began: now, packet }
    }

    /// Returns the number of messages that wait for a link.
    pub(super) fn waiting(&self, link: &Link) -> u64 {
        let queued = self.outbox.messages_for(link.member, |channel| link.delivery.is_accepted(channel));
        queued + link.delivery.held_and_wanted()
    }

    /// Passes the waiting frames to the member while it has room, and the member's packets to
    /// `send`.
    pub(super) fn pump(&mut self, messages: Reliability, now: Duration, mut send: impl FnMut(&[u8], SocketAddr)) {
        loop {
            while self.member.has_room()
                && let Some(item) = self.outbox.pop()
            {
                self.hand_over(&item, messages, now);
            }
            while self.member.poll_transmit(now, &mut self.packet) {
                send(&self.packet, self.to);
            }
            if self.outbox.is_empty() || !self.member.has_room() {
                return;
            }
        }
    }

    fn hand_over(&mut self, item: &Item, messages: Reliability, now: Duration) {
        let sent = match item {
            Item::Control(to, frame) => self.member.send(*to, Reliability::Reliable, frame, 0, now),
            Item::Message { to, frame, .. } => self.member.send(*to, messages, frame, 1, now),
            Item::Lost(channel, missing) => {
                let frame = encoded(&position(*channel, *missing));
                self.member.send(None, Reliability::Reliable, &frame, 0, now)
            }
        };
        debug_assert!(sent.is_ok(), "frames are checked before they are queued");
    }
}

impl Link {
    /// Returns the event that reports dropped messages, if one is due.
    pub(super) fn notice(&mut self) -> Option<Notice> {
        self.delivery.notice(Instant::now())
    }
}

/// Informs the peer about channels that have ended.
fn end_channels(link: &mut Link, group: &mut Group) {
    for (channel, missing) in link.delivery.ended() {
        if let Some(missing) = missing {
            group.outbox.control(Some(link.member), &position(channel, missing));
        }
        group.outbox.control(Some(link.member), &Frame::Retire { channel });
    }
}

fn announce(channel: ChannelId, start: Start, announcement: &Announcement) -> Frame<'static> {
    Frame::Announce { channel, start, announcement: Box::new(announcement.clone()) }
}

/// Creates a member for a port.
pub(super) fn member(config: &Config, hello: polywire_core::frame::Hello) -> Member {
    Member::new(config.clone(), hello, random())
}

/// Returns a random number, which comes from the random keys of the standard library's hashing.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(Instant::now().elapsed().as_nanos())
}

#[cfg(test)]
mod tests {
    use polywire_core::frame::Hello;

    use super::*;

    /// Returns a full state with groups of these hosts, the oldest first, and whether each has a
    /// link.
    fn full(groups: &[(u8, bool)]) -> State {
        let mut state = State::new(groups.len());
        for (number, (host, has_link)) in (1_u8..).zip(groups) {
            let to = SocketAddr::from(([10, 0, 0, *host], 1));
            let began = Duration::from_secs(number.into());
            let mut group = Group::new(member(&Config::default(), Hello::default()), to, began);
            if *has_link {
                group.links.insert(MemberId(1), LinkId::next());
            }
            // The order of the ids is not that of the ages.
            state.groups.insert(MemberId(100 - u64::from(number)), group);
        }
        state
    }

    /// Returns which group makes room for a caller of a host: 1 is the oldest.
    fn displaced(groups: &[(u8, bool)], host: u8) -> Option<u64> {
        let gone = full(groups).make_room([10, 0, 0, host].into(), Reliability::Reliable);
        gone.map(|group| group.began.as_secs())
    }

    #[test]
    fn callers_without_a_link_make_room_and_then_those_of_the_host_with_the_most() {
        assert_eq!(displaced(&[(1, true), (1, false), (2, false), (1, true)], 1), Some(2));
        let all_linked = [(1, true), (1, true), (2, true), (1, true)];
        assert_eq!(displaced(&all_linked, 3), Some(4));
        assert_eq!(displaced(&all_linked, 1), None);
        let fair = [(1, true), (1, true), (2, true), (3, true)];
        assert_eq!(displaced(&fair, 2), None, "it would only change places with the one that makes room");
    }
}
