//! Delivers what the members have received to the node. The receiving thread delivers, without the
//! port's lock: the node may call the port from its callbacks, or block the thread.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId},
    frame::{Answer, Frame, FrameError, Hello, Start, parse_datagram_frame},
    multicast::{Batch, Event as Happened, MemberId, Reason},
};

use super::{
    super::{Aligned, Disconnect, Event, LinkId, LinkInfo, LinkSink, Principal, delivery::Delivery},
    port::Shared,
    state::{Link, Remote, State},
};
use crate::clock;

impl Shared {
    /// Delivers everything that was received. Called by the receiving thread alone.
    pub(super) fn deliver(&self, place: &mut Aligned) {
        let mut state = self.lock();
        state.delivering = Some(Instant::now());
        loop {
            if let Some((link, unconfirmed)) = state.displaced.pop() {
                drop(state);
                self.displaced(link, unconfirmed);
                state = self.lock();
                continue;
            }
            let now = clock::now();
            let Some((group, happened)) = next_event(&mut state, now) else { break };
            // Counted before the group's member takes further messages, which only others get.
            let waiting = match &happened {
                Happened::Down { peer, reason, .. } if *reason != Reason::Bye => {
                    let link = state.groups.get(&group).and_then(|group| group.links.get(peer));
                    link.and_then(|link| state.links.get(link)).map_or(0, |link| self.waiting(&state, link))
                }
                _ => 0,
            };
            self.pump(&mut state, group, now);
            match happened {
                Happened::Up { peer, hello } => {
                    drop(state);
                    self.up(group, peer, hello);
                }
                Happened::Records { from, batch } => {
                    let link = state.groups.get(&group).and_then(|group| group.links.get(&from)).copied();
                    drop(state);
                    if let Some(link) = link {
                        self.records(link, &batch, place);
                    }
                }
                Happened::Down { peer, reason, unconfirmed } => {
                    let link = state.remove(group, peer);
                    drop(state);
                    if let Some(link) = link {
                        self.down(link, reason, unconfirmed + waiting);
                    }
                }
            }
            state = self.lock();
            state.delivering = Some(Instant::now());
        }
        state.delivering = None;
    }

    fn up(&self, group: MemberId, member: MemberId, peer: Hello) {
        let Some(to) = self.lock().groups.get(&group).map(|group| group.to) else { return };
        let info = LinkInfo { id: LinkId::next(), peer, address: to.to_string(), principal: Principal::Anonymous };
        let sink = self.sink.link(&info);
        let link = Link {
            info: info.clone(),
            sink: sink.clone(),
            group,
            member,
            delivery: Delivery::default(),
            remote: Default::default(),
            offered: None,
            is_stalled: false,
            is_reported: false,
        };
        let mut state = self.lock();
        // The group may have made room for another caller.
        if state.is_closed || !state.groups.contains_key(&group) {
            drop(state);
            return sink.down();
        }
        state.add(link);
        self.pump(&mut state, group, clock::now());
        drop(state);
        self.sink.event(Event::Connected(info));
    }

    fn down(&self, link: Link, reason: Reason, unconfirmed: u64) {
        link.sink.down();
        if unconfirmed > 0 {
            self.sink.event(Event::Unconfirmed { link: link.info.clone(), count: unconfirmed });
        }
        let reason = match reason {
            Reason::Bye => Disconnect::Bye,
            other => Disconnect::Lost(other.to_string()),
        };
        self.sink.event(Event::Disconnected { link: link.info, reason });
    }

    /// Reports the end of a link that made room for another caller.
    fn displaced(&self, link: Link, unconfirmed: u64) {
        link.sink.down();
        if unconfirmed > 0 {
            self.sink.event(Event::Unconfirmed { link: link.info.clone(), count: unconfirmed });
        }
        self.sink.event(Event::Disconnected { link: link.info, reason: Disconnect::Displaced });
    }

    fn records(&self, id: LinkId, batch: &Batch, place: &mut Aligned) {
        let Some(sink) = self.lock().links.get(&id).map(|link| link.sink.clone()) else { return };
        for record in batch.records() {
            match parse_datagram_frame(record, &self.local.options.limits) {
                Ok(frame) => self.frame(id, &*sink, frame, place),
                Err(error) => self.reject(id, error),
            }
        }
        sink.drained();
    }

    fn frame(&self, id: LinkId, sink: &dyn LinkSink, frame: Frame<'_>, place: &mut Aligned) {
        match frame {
            Frame::Data(envelope, payload) if self.is_open(id, envelope.channel) => {
                sink.message(&envelope, place.place(payload));
            }
            Frame::Offer { channel, offer } => {
                if let Some(link) = self.lock().links.get_mut(&id) {
                    link.offered = Some((channel, offer.to_vec()));
                }
            }
            Frame::Announce { channel, start, mut announcement } => {
                let offered = self.lock().links.get_mut(&id).and_then(|link| link.offered.take());
                if let Some((_, offer)) = offered.filter(|(offered, _)| *offered == channel) {
                    announcement.offer = offer;
                }
                self.announced(id, sink, channel, start, *announcement);
            }
            Frame::Answer { channel, answer } => {
                let mut state = self.lock();
                state.answered(id, channel, &answer);
                self.pump_link(&mut state, id);
                drop(state);
                sink.answered(channel, &answer);
            }
            Frame::Retire { channel } => {
                let known = self.lock().links.get_mut(&id).and_then(|link| link.remote.remove(&channel));
                if known.is_some() {
                    sink.retired(channel);
                }
            }
            Frame::Position { channel, start, lost } => self.positioned(id, sink, (channel, start), lost),
            Frame::Want { document } => sink.wanted(document),
            Frame::Document { document, bytes } => sink.supplied(document, bytes),
            _ => {}
        }
    }

    /// Records a channel that the peer has announced. Refuses channels beyond the limit.
    fn announced(&self, id: LinkId, sink: &dyn LinkSink, channel: ChannelId, start: Start, announcement: Announcement) {
        let limit = self.local.options.limits.channels;
        {
            let mut state = self.lock();
            let Some(link) = state.links.get_mut(&id) else { return };
            match link.remote.get(&channel) {
                Some(known) if *known.announcement == announcement => return,
                // Another announcement replaces the channel. The node closes the one that it knows.
                Some(_) => {}
                None if link.remote.len() >= limit => {
                    let answer = Answer::Refuse(FrameError::TooManyChannels { limit }.to_string());
                    state.control(id, &Frame::Answer { channel, answer });
                    return self.pump_link(&mut state, id);
                }
                None => {}
            }
            let known = Remote { announcement: Arc::new(announcement.clone()), is_open: false };
            link.remote.insert(channel, known);
        }
        sink.announced(channel, start, &announcement);
    }

    /// Handles a position of the peer's channel. A position without losses also opens the channel:
    /// its messages are for this node from then on.
    fn positioned(&self, id: LinkId, sink: &dyn LinkSink, (channel, start): (ChannelId, Start), lost: u64) {
        let is_open = {
            let mut state = self.lock();
            let known = state.links.get_mut(&id).and_then(|link| link.remote.get_mut(&channel));
            known.is_some_and(|known| {
                known.is_open |= lost == 0;
                known.is_open
            })
        };
        if is_open && (lost > 0 || start.sequence > 0) {
            sink.position(channel, start, lost);
        }
    }

    fn is_open(&self, id: LinkId, channel: ChannelId) -> bool {
        let state = self.lock();
        state.links.get(&id).and_then(|link| link.remote.get(&channel)).is_some_and(|known| known.is_open)
    }

    /// Reports that a peer has sent a malformed frame, once for each link.
    fn reject(&self, id: LinkId, error: FrameError) {
        let mut state = self.lock();
        let Some(link) = state.links.get_mut(&id) else { return };
        if !std::mem::replace(&mut link.is_reported, true) {
            let address = link.info.address.clone();
            self.sink.event(Event::Rejected { address, reason: Disconnect::Protocol(error), total: 1 });
        }
    }

    fn pump_link(&self, state: &mut State, id: LinkId) {
        if let Some(group) = state.links.get(&id).map(|link| link.group) {
            self.pump(state, group, clock::now());
        }
    }
}

fn next_event(state: &mut State, now: Duration) -> Option<(MemberId, Happened)> {
    state.groups.iter_mut().find_map(|(key, group)| Some((*key, group.member.poll_event(now)?)))
}
