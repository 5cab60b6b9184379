//! A member of a group: who else is there, and what is exchanged with them.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::{mem, time::Duration};

use super::{
    Batch, Config, MemberId, PacketError,
    packet::{Body, Content, Entry, MAX_ENTRIES, Packet},
    peer::Peer,
    receiver::{Broken, Receiver},
    record,
    sender::Sender,
};
use crate::frame::Hello;

/// Former peerings that are remembered, so that a late welcome does not bring one back.
const FORMER: usize = 1024;
/// A member that was cut off for being slow may come back after so many times the patience.
const PENALTY: u32 = 10;
/// Bytes of records that may wait to become packets before [`Member::has_room`] says no.
const QUEUE: usize = 64 << 10;
/// The longest pause before a peer is welcomed again.
const WELCOME: Duration = Duration::from_secs(1);
/// Newcomers of a group are welcomed within this time, not by all members at once.
const SPREAD: Duration = Duration::from_millis(5);
/// How often a goodbye is sent, and the pause between.
const GOODBYES: u32 = 3;
const GOODBYE_PAUSE: Duration = Duration::from_millis(10);

/// A member of a group; [the module](super) says how to drive it.
#[derive(Debug)]
pub struct Member {
    config: Config,
    id: MemberId,
    hello: Hello,
    /// Proves our address to a gate.
    token: u64,
    sender: Sender,
    peers: BTreeMap<MemberId, Peer>,
    /// The member that a gate has admitted.
    admitted: Option<MemberId>,
    /// Members that we no longer follow, and where we began to.
    former: VecDeque<(MemberId, u64)>,
    /// Members that were too slow, and when they may come back.
    slow: VecDeque<(MemberId, Duration)>,
    events: VecDeque<Event>,
    /// Peers that may have records to take.
    ready: VecDeque<MemberId>,
    /// Packets without a number.
    outbox: VecDeque<Vec<u8>>,
    status_at: Duration,
    /// The pause to the status behind the next one. It grows from the start on.
    heartbeat: Duration,
    /// When a status shows followers whether they lack the last packets, and the pause to the next
    /// such status. `None` while they have confirmed everything.
    probe_at: Option<Duration>,
    probe_pause: Duration,
    /// No timer of a peer ends before this.
    due: Duration,
    /// Since when followers keep us from sending.
    blocked: Option<Duration>,
    /// Goodbyes left, and when the next is due.
    closing: Option<(u32, Duration)>,
    /// The member that the next status begins with.
    cursor: MemberId,
    random: u64,
}

/// Whether a record is repaired when it is lost.
///
/// ```
/// use polywire_core::multicast::Reliability;
/// assert_ne!(Reliability::Reliable, Reliability::BestEffort);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reliability {
    /// It arrives once, in order with the other reliable records, or the peering ends.
    Reliable,
    /// It arrives once, in order with the other best-effort records, or never.
    BestEffort,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer and this member follow each other: what is sent from now on reaches it.
    Up {
        /// The peer.
        peer: MemberId,
        /// How it introduced itself.
        hello: Hello,
    },
    /// Records came.
    Records {
        /// Who sent them.
        from: MemberId,
        /// The records.
        batch: Batch,
    },
    /// The peering has ended. If the peer is still there, [`Event::Up`] follows.
    Down {
        /// The peer.
        peer: MemberId,
        /// Why.
        reason: Reason,
        /// Sum of the weights of the reliable records for the peer that it has not confirmed, also
        /// of those that were sent before this event was taken. 0 if it said goodbye before.
        unconfirmed: u64,
    },
}

/// Why a peering ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The peer said goodbye.
    #[error("closed by the peer")]
    Bye,
    /// The peer was silent for [`Config::lease`].
    #[error("the peer was silent for too long")]
    Silent,
    /// The peer held up the others.
    #[error("the peer is too slow and held up the others")]
    TooSlow,
    /// The peer has ended the peering: this member was too slow for it, or does not exist for it.
    #[error("the peer has ended the link and may begin it anew")]
    CutOff,
    /// The peer has restarted, or begun anew.
    #[error("the peer has begun anew")]
    Restarted,
    /// Packets of the peer are lost and cannot be repaired.
    #[error("packets were lost and could not be repaired")]
    Lost,
    /// The peer broke the rules.
    #[error("protocol error: {0}")]
    Protocol(PacketError),
}

impl Member {
    /// A member of a group of which nothing is known. `seed` is random; the member's id and its
    /// delays are drawn from it.
    pub fn new(config: Config, hello: Hello, seed: u64) -> Member {
        let id = MemberId(seed.max(1));
        Member {
            sender: Sender::new(id, &config),
            status_at: Duration::ZERO,
            heartbeat: config.first_heartbeat,
            probe_at: None,
            probe_pause: config.first_heartbeat,
            config,
            id,
            hello,
            token: 0,
            peers: BTreeMap::new(),
            admitted: None,
            former: VecDeque::new(),
            slow: VecDeque::new(),
            events: VecDeque::new(),
            ready: VecDeque::new(),
            outbox: VecDeque::new(),
            due: Duration::MAX,
            blocked: None,
            closing: None,
            cursor: MemberId::ALL,
            random: seed | 1,
        }
    }

    /// The member's own id.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// In a pair: a [`Gate`](super::Gate) has admitted this peer. Without this, a member of a pair
    /// follows only who knows its id.
    ///
    /// ```
    /// use polywire_core::multicast::{Config, Member, MemberId};
    /// let mut pair = Member::new(Config { is_pair: true, ..Config::default() }, Default::default(), 1);
    /// pair.admit(MemberId(2));
    /// ```
    pub fn admit(&mut self, peer: MemberId) {
        self.admitted = Some(peer);
    }

    /// Queues a record for one peer, or for all. `weight` counts in [`Event::Down`]. Fails if the
    /// record is longer than [`Config::record_bytes`]. Does not look at [`Member::has_room`].
    pub fn send(
        &mut self,
        to: Option<MemberId>,
        reliability: Reliability,
        record: &[u8],
        weight: u32,
        now: Duration,
    ) -> Result<(), PacketError> {
        let limit = self.config.record_bytes;
        if record.len() > limit {
            return Err(PacketError::TooLong { limit });
        }
        let bytes = record::with_header(to, record);
        let is_reliable = reliability == Reliability::Reliable;
        // A peer whose end the application has not heard of gets nothing any more.
        for event in self.events.iter_mut().filter(|_| is_reliable) {
            if let Event::Down { peer, reason, unconfirmed } = event
                && *reason != Reason::Bye
                && to.is_none_or(|to| to == *peer)
            {
                *unconfirmed += u64::from(weight);
            }
        }
        self.sender.push(to, is_reliable, bytes, weight, now, &self.config);
        Ok(())
    }

    /// Whether records leave soon after they are queued: few are queued, and the followers keep up.
    pub fn has_room(&self) -> bool {
        self.sender.queued_bytes() < QUEUE && !self.sender.is_blocked(&self.config)
    }

    /// Whether everything queued has left.
    pub fn is_sent(&self) -> bool {
        self.sender.is_sent()
    }

    /// Whether everything queued has left, and followers have taken all reliable records.
    ///
    /// ```
    /// use polywire_core::multicast::{Config, Member};
    /// let member = Member::new(Config::default(), Default::default(), 1);
    /// assert!(member.is_taken() && !member.is_closed());
    /// ```
    pub fn is_taken(&self) -> bool {
        self.sender.is_taken()
    }

    /// Sum of the weights of the reliable records for a peer that it has not confirmed. 0 if it is
    /// no peer, or has said goodbye.
    ///
    /// ```
    /// use polywire_core::multicast::{Config, Member, MemberId};
    /// let member = Member::new(Config::default(), Default::default(), 1);
    /// assert_eq!(member.unconfirmed(MemberId(2)), 0);
    /// ```
    pub fn unconfirmed(&self, peer: MemberId) -> u64 {
        let known = self.peers.get(&peer).filter(|known| known.is_confirmed && known.leaves_at.is_none());
        known.map_or(0, |known| self.sender.weight_from(known.taken, peer))
    }

    /// Packets that the member has sent again because a follower lacked them.
    ///
    /// ```
    /// use polywire_core::multicast::{Config, Member};
    /// assert_eq!(Member::new(Config::default(), Default::default(), 1).retransmitted(), 0);
    /// ```
    pub fn retransmitted(&self) -> u64 {
        self.sender.retransmitted()
    }

    /// Bytes that the member holds: queued, kept for repairs, and received and not taken.
    ///
    /// ```
    /// use polywire_core::multicast::{Config, Member, Reliability};
    /// let mut member = Member::new(Config::default(), Default::default(), 1);
    /// member.send(None, Reliability::BestEffort, b"hello", 1, Default::default())?;
    /// assert!((5..20).contains(&member.held_bytes()));
    /// # Ok::<(), polywire_core::multicast::PacketError>(())
    /// ```
    pub fn held_bytes(&self) -> usize {
        self.sender.held_bytes() + self.peers.values().map(Peer::held_bytes).sum::<usize>()
    }

    /// Says goodbye to all, a few times, and sends nothing else any more.
    pub fn close(&mut self, now: Duration) {
        self.closing.get_or_insert((GOODBYES, now));
    }

    /// Whether all goodbyes have left.
    pub fn is_closed(&self) -> bool {
        matches!(self.closing, Some((0, _)))
    }

    /// A datagram came from the group. Fails if it is not a packet, or not one that can be used;
    /// nothing needs to be done about that.
    pub fn handle_datagram(&mut self, datagram: &[u8], now: Duration) -> Result<(), PacketError> {
        let Packet { sender, body } = Packet::parse(datagram)?;
        if sender == self.id || self.closing.is_some() {
            return Ok(());
        }
        if let Some(peer) = self.peers.get_mut(&sender) {
            peer.heard = now;
        }
        match body {
            Body::Status { hello, oldest, next, entries, .. } => {
                self.handle_status(sender, hello, (oldest, next), &entries, now);
            }
            Body::Welcome { hello, to, start } if to == self.id => self.handle_welcome(sender, hello, start, now),
            Body::Welcome { .. } => {}
            Body::Reliable(number, content) => self.handle_reliable(sender, number, content, now)?,
            Body::Loose(number, content) => self.handle_loose(sender, number, content)?,
            Body::Nak { of, ranges } => self.handle_nak(sender, of, &ranges, now),
            Body::Challenge { to, token } if to == self.id && self.config.is_pair => {
                self.token = token;
                self.status_at = now;
            }
            Body::Challenge { .. } => {}
            Body::Bye { to, number } if to == MemberId::ALL => self.handle_goodbye(sender, number, now),
            Body::Bye { to, number } => {
                if to == self.id && self.peers.get(&sender).is_some_and(|peer| peer.start == number) {
                    self.end(sender, Reason::CutOff, now);
                }
            }
        }
        Ok(())
    }

    fn handle_status(
        &mut self,
        from: MemberId,
        hello: Hello,
        (oldest, next): (u64, u64),
        entries: &[Entry],
        now: Duration,
    ) {
        if !self.peers.contains_key(&from) {
            if self.config.is_pair && self.admitted != Some(from) {
                return;
            }
            if !self.add(from, hello, now) {
                return;
            }
        }
        let (id, sent) = (self.id, self.sender.next());
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let mut confirmed = false;
        // Both speak of the same peering only if both numbers agree.
        let known = peer.follow.as_ref().map(|follow| follow.start);
        let speaks_of_this = |e: &&Entry| e.member == id && e.start == peer.start && Some(e.gives) == known;
        for entry in entries.iter().filter(speaks_of_this).filter(|e| e.taken <= sent) {
            confirmed = true;
            peer.is_confirmed = true;
            peer.taken = peer.taken.max(entry.taken);
        }
        if confirmed {
            self.note_taken();
            self.note_up(from, now);
        }
        self.with_receiver(from, now, |receiver, jitter, config| {
            receiver.advertised(oldest, next, now, jitter, config)
        });
    }

    fn handle_welcome(&mut self, from: MemberId, hello: Hello, start: u64, now: Duration) {
        // Whoever has not even noticed that a peering ended is not ready for another.
        if self.events.iter().any(|event| matches!(event, Event::Down { peer, .. } if *peer == from)) {
            return;
        }
        let known = self.peers.get(&from).and_then(|peer| peer.follow.as_ref()).map(|follow| follow.start);
        match known {
            Some(known) if start <= known => return self.status_soon(now),
            // It has begun anew after it had followed us: it does not any more.
            Some(_) if self.peers.get(&from).is_some_and(|peer| peer.is_confirmed) => {
                self.end(from, Reason::Restarted, now);
            }
            None if self.former.iter().any(|(member, last)| *member == from && start <= *last) => {
                return self.say_bye(from, start);
            }
            _ => {}
        }
        if !self.peers.contains_key(&from) && !self.add(from, hello, now) {
            return;
        }
        if self.config.is_pair {
            let others: Vec<MemberId> = self.peers.keys().copied().filter(|other| *other != from).collect();
            others.into_iter().for_each(|other| self.end(other, Reason::Restarted, now));
        }
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.follow = Some(Receiver::new(start));
        }
        self.note_up(from, now);
        self.status_soon(now);
    }

    fn handle_reliable(
        &mut self,
        from: MemberId,
        number: u64,
        content: Content<'_>,
        now: Duration,
    ) -> Result<(), PacketError> {
        if matches!(&content, Content::Records(bytes) if !record::are_valid(bytes)) {
            return Err(PacketError::Malformed("record"));
        }
        self.with_receiver(from, now, |receiver, jitter, config| receiver.insert(number, content, now, jitter, config));
        let ready = self.peers.get(&from).and_then(|peer| peer.follow.as_ref()).is_some_and(Receiver::is_ready);
        if ready {
            self.note_ready(from);
        }
        Ok(())
    }

    fn handle_loose(&mut self, from: MemberId, number: u64, content: Content<'_>) -> Result<(), PacketError> {
        let room = self.reassembly_room(from);
        let limit = self.config.retransmission_buffer.max(self.config.record_bytes);
        let Some(peer) = self.peers.get_mut(&from).filter(|peer| peer.is_up) else { return Ok(()) };
        let Some(bytes) = peer.loose.insert(number, content, room) else { return Ok(()) };
        if !record::are_valid(&bytes) {
            return Err(PacketError::Malformed("record"));
        }
        if peer.passed_bytes + bytes.len() <= limit {
            peer.passed_bytes += bytes.len();
            peer.passed.push_back(bytes);
            self.note_ready(from);
        }
        Ok(())
    }

    fn handle_nak(&mut self, from: MemberId, of: MemberId, ranges: &[(u64, u64)], now: Duration) {
        if of != self.id {
            if let Some(receiver) = self.peers.get_mut(&of).and_then(|peer| peer.follow.as_mut()) {
                receiver.requested(ranges, now, &self.config);
            }
        } else if self.peers.contains_key(&from) {
            self.sender.repair(ranges, now, &self.config);
        }
    }

    fn handle_goodbye(&mut self, from: MemberId, next: u64, now: Duration) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        // It takes nothing any more.
        peer.taken = u64::MAX;
        peer.leaves_at = Some(next);
        let is_up = peer.is_up;
        self.note_taken();
        match is_up {
            true => self.note_ready(from),
            false => self.end(from, Reason::Bye, now),
        }
    }

    /// Hands something to the receiver for a member. Ends the peering if its packets are lost.
    fn with_receiver(
        &mut self,
        from: MemberId,
        now: Duration,
        hand: impl FnOnce(&mut Receiver, &mut dyn FnMut(Duration) -> Duration, &Config) -> Result<(), Broken>,
    ) {
        let Member { peers, random, config, due, .. } = self;
        let Some(receiver) = peers.get_mut(&from).and_then(|peer| peer.follow.as_mut()) else { return };
        let spreads = !config.is_pair;
        let mut jitter = |delay: Duration| if spreads { delay / 2 + below(random, delay / 2) } else { delay };
        let result = hand(receiver, &mut jitter, config);
        if let Some(next) = receiver.next_timeout() {
            *due = (*due).min(next);
        }
        if let Err(broken) = result {
            self.break_off(from, broken, now);
        }
    }

    /// Takes the next event. Records count as taken, and are confirmed, when they are handed out.
    pub fn poll_event(&mut self, now: Duration) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let from = *self.ready.front()?;
            if let Some(bytes) = self.take(from, now) {
                return Some(Event::Records { from, batch: Batch::new(bytes, self.id) });
            }
        }
    }

    /// The next records of a peer. If there are none, it leaves the list of those that are ready.
    fn take(&mut self, from: MemberId, now: Duration) -> Option<Vec<u8>> {
        let room = self.reassembly_room(from);
        let window = self.config.window as u64;
        let Some(peer) = self.peers.get_mut(&from).filter(|peer| peer.is_up) else {
            self.ready.pop_front();
            return None;
        };
        if let Some(bytes) = peer.passed.pop_front() {
            peer.passed_bytes -= bytes.len();
            return Some(bytes);
        }
        let before = peer.told;
        let (taken, at) = match peer.follow.as_mut() {
            Some(receiver) => (receiver.take(room), receiver.taken()),
            None => (Ok(None), 0),
        };
        let leaves = peer.leaves_at.is_some_and(|end| at >= end);
        let records = match taken {
            Ok(Some(bytes)) if record::are_valid(&bytes) => Some(bytes),
            Ok(None) => None,
            Ok(Some(_)) => {
                self.break_off(from, Broken::Parts, now);
                None
            }
            Err(broken) => {
                self.break_off(from, broken, now);
                None
            }
        };
        if at.saturating_sub(before) >= (window / 8).max(1) {
            self.status_soon(now);
        } else if at != before {
            // Many members confirm less often.
            let crowd = self.peers.len() as u32 / 16 + 1;
            self.status_soon(now.saturating_add(self.config.status_interval.saturating_mul(crowd)));
        }
        if records.is_none() {
            self.ready.pop_front();
            match self.peers.get_mut(&from) {
                Some(_) if leaves => self.end(from, Reason::Bye, now),
                Some(peer) => peer.is_ready = false,
                None => {}
            }
        }
        records
    }

    /// Puts the next packet for the group into `out`, and replaces what is there. False if nothing
    /// is to be sent now.
    pub fn poll_transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> bool {
        if self.closing.is_some() {
            return self.poll_goodbye(now, out);
        }
        if now >= self.due {
            self.handle_timers(now);
        }
        self.watch_followers(now);
        if let Some(packet) = self.outbox.pop_front() {
            *out = packet;
            return true;
        }
        if now >= self.status_at || self.probe_at.is_some_and(|at| now >= at) {
            *out = self.status(now);
            return true;
        }
        let before = self.sender.next();
        let sent = self.sender.poll(now, &self.config, out);
        if self.sender.next() != before {
            self.probe_pause = self.config.first_heartbeat;
            self.plan_probe(now);
        }
        sent
    }

    /// When [`Member::poll_transmit`] is to be called next, if nothing else happens before. `None`
    /// after all goodbyes.
    pub fn next_timeout(&self) -> Option<Duration> {
        if let Some((left, at)) = self.closing {
            return (left > 0).then_some(at);
        }
        if !self.outbox.is_empty() {
            return Some(Duration::ZERO);
        }
        let blocked = self.blocked.filter(|_| self.sender.is_blocked(&self.config));
        let cut = blocked.map(|since| since.saturating_add(self.config.patience));
        let sender = self.sender.next_timeout(&self.config);
        [Some(self.status_at), self.probe_at, Some(self.due), cut, sender].into_iter().flatten().min()
    }

    fn poll_goodbye(&mut self, now: Duration, out: &mut Vec<u8>) -> bool {
        let due = self.closing.filter(|(left, at)| *left > 0 && now >= *at);
        let Some((left, _)) = due else { return false };
        self.closing = Some((left - 1, now.saturating_add(GOODBYE_PAUSE)));
        let body = Body::Bye { to: MemberId::ALL, number: self.sender.next() };
        *out = Packet { sender: self.id, body }.write();
        true
    }

    /// Welcomes and requests that are due, and peers that were silent for too long.
    fn handle_timers(&mut self, now: Duration) {
        let (mut silent, mut due) = (Vec::new(), Duration::MAX);
        let Member { peers, outbox, config, id, hello, .. } = self;
        for (member, peer) in peers.iter_mut() {
            let ends = peer.heard.saturating_add(config.lease);
            if ends <= now {
                silent.push(*member);
                continue;
            }
            due = due.min(ends);
            if !peer.is_confirmed {
                if peer.welcome_at <= now {
                    let body = Body::Welcome { hello: *hello, to: *member, start: peer.start };
                    outbox.push_back(Packet { sender: *id, body }.write());
                    peer.welcome_at = now.saturating_add(peer.welcome_pause);
                    peer.welcome_pause = peer.welcome_pause.saturating_mul(2).min(WELCOME);
                }
                due = due.min(peer.welcome_at);
            }
            let Some(receiver) = peer.follow.as_mut() else { continue };
            let ranges = receiver.requests(now, config);
            if !ranges.is_empty() {
                outbox.push_back(Packet { sender: *id, body: Body::Nak { of: *member, ranges } }.write());
            }
            due = receiver.next_timeout().map_or(due, |next| due.min(next));
        }
        self.due = due;
        silent.into_iter().for_each(|member| self.end(member, Reason::Silent, now));
    }

    /// Cuts off followers that hold up others for too long.
    fn watch_followers(&mut self, now: Duration) {
        if self.sender.is_relaxed(&self.config) {
            self.blocked = None;
            return;
        }
        if !self.sender.is_blocked(&self.config) {
            return;
        }
        // Whoever has only said that it is there holds up nobody.
        let oldest = self.sender.oldest();
        let is_stranger = |peer: &Peer| peer.follow.is_none() && peer.taken <= oldest;
        let strangers: Vec<MemberId> =
            self.peers.iter().filter(|(_, peer)| is_stranger(peer)).map(|(id, _)| *id).collect();
        strangers.into_iter().for_each(|stranger| self.end(stranger, Reason::Silent, now));
        let since = *self.blocked.get_or_insert(now);
        if now < since.saturating_add(self.config.patience) {
            return;
        }
        self.blocked = Some(now);
        let half = oldest + (self.sender.next() - oldest) / 2;
        let (slow, others): (Vec<_>, Vec<_>) =
            self.peers.iter().map(|(id, peer)| (*id, peer.taken)).partition(|(_, taken)| *taken < half);
        if !others.is_empty() {
            for (member, _) in slow {
                self.leave(member, Reason::TooSlow, now);
                if self.slow.len() == FORMER {
                    self.slow.pop_front();
                }
                self.slow.push_back((member, now.saturating_add(self.config.patience.saturating_mul(PENALTY))));
            }
        }
    }

    fn status(&mut self, now: Duration) -> Vec<u8> {
        let mut listed: Vec<MemberId> = Vec::new();
        let follows = |peer: &Peer| peer.follow.is_some();
        listed.extend(self.peers.iter().filter(|(_, peer)| peer.is_untold()).map(|(id, _)| *id).take(MAX_ENTRIES));
        // The rest of the room goes to the others in turn.
        let rotated = self.peers.range(self.cursor..).chain(self.peers.range(..self.cursor));
        for (id, _) in rotated.filter(|(_, peer)| follows(peer)) {
            if listed.len() == MAX_ENTRIES {
                self.cursor = *id;
                break;
            }
            if !listed.contains(id) {
                listed.push(*id);
            }
        }
        let mut entries = Vec::with_capacity(listed.len());
        for member in listed {
            let Some(peer) = self.peers.get_mut(&member) else { continue };
            let Some(receiver) = &peer.follow else { continue };
            peer.told = receiver.taken();
            entries.push(Entry { member, start: receiver.start, taken: peer.told, gives: peer.start });
        }
        self.status_at = now.saturating_add(self.heartbeat);
        self.heartbeat = self.heartbeat.saturating_mul(2).min(self.config.heartbeat);
        self.plan_probe(now);
        if self.peers.values().any(Peer::is_untold) {
            self.status_soon(now.saturating_add(self.config.status_interval));
        }
        let (oldest, next) = (self.sender.oldest(), self.sender.next());
        let body = Body::Status { hello: self.hello, token: self.token, oldest, next, entries };
        Packet { sender: self.id, body }.write()
    }

    /// Something has left that shows followers which packets there are.
    fn plan_probe(&mut self, now: Duration) {
        self.probe_at = (!self.sender.is_taken()).then(|| now.saturating_add(self.probe_pause));
        self.probe_pause = self.probe_pause.saturating_mul(2).min(self.config.heartbeat);
    }

    fn status_soon(&mut self, at: Duration) {
        self.status_at = self.status_at.min(at);
    }

    /// Begins to know a member. False if it was too slow just now, or if there are too many, all of
    /// which have confirmed.
    fn add(&mut self, member: MemberId, hello: Hello, now: Duration) -> bool {
        self.slow.retain(|(_, until)| now < *until);
        if self.slow.iter().any(|(slow, _)| *slow == member) {
            return false;
        }
        if self.peers.len() >= self.config.peers {
            let strangers = self.peers.iter().filter(|(_, peer)| !peer.is_confirmed);
            let Some(oldest) = strangers.min_by_key(|(_, peer)| peer.heard).map(|(id, _)| *id) else { return false };
            self.end(oldest, Reason::Silent, now);
        }
        let restarted = |peer: &Peer| peer.hello.node == hello.node && peer.hello.incarnation < hello.incarnation;
        let older: Vec<MemberId> = self.peers.iter().filter(|(_, peer)| restarted(peer)).map(|(id, _)| *id).collect();
        older.into_iter().for_each(|member| self.end(member, Reason::Restarted, now));
        let start = self.sender.start(now, &self.config);
        let spread = if self.config.is_pair { Duration::ZERO } else { below(&mut self.random, SPREAD) };
        let welcome_at = now.saturating_add(spread);
        self.peers.insert(member, Peer::new(hello, start, welcome_at, now));
        self.due = self.due.min(welcome_at);
        self.note_taken();
        self.status_soon(welcome_at);
        true
    }

    fn break_off(&mut self, member: MemberId, broken: Broken, now: Duration) {
        let reason = match broken {
            Broken::Lost => Reason::Lost,
            Broken::Parts => Reason::Protocol(PacketError::Malformed("part")),
            Broken::TooLong => Reason::Protocol(PacketError::TooLong { limit: self.config.record_bytes }),
        };
        self.leave(member, reason, now);
    }

    /// Tells a peer that we do not follow it any more, and forgets it.
    fn leave(&mut self, member: MemberId, reason: Reason, now: Duration) {
        if let Some(follow) = self.peers.get(&member).and_then(|peer| peer.follow.as_ref()) {
            let start = follow.start;
            self.say_bye(member, start);
        }
        self.end(member, reason, now);
    }

    fn say_bye(&mut self, to: MemberId, start: u64) {
        self.outbox.push_back(Packet { sender: self.id, body: Body::Bye { to, number: start } }.write());
    }

    /// Forgets a member.
    fn end(&mut self, member: MemberId, reason: Reason, now: Duration) {
        let unconfirmed = self.unconfirmed(member);
        let Some(peer) = self.peers.remove(&member) else { return };
        if let Some(follow) = &peer.follow {
            if self.former.len() == FORMER {
                self.former.pop_front();
            }
            self.former.push_back((member, follow.start));
        }
        if peer.is_up {
            self.events.push_back(Event::Down { peer: member, reason, unconfirmed });
        }
        self.note_taken();
        // A member that is still there sees that it is not listed.
        self.status_soon(now.saturating_add(self.config.status_interval));
    }

    fn note_taken(&mut self) {
        let taken = self.peers.values().map(|peer| peer.taken).min();
        self.sender.set_taken(taken.unwrap_or(u64::MAX));
        if self.sender.is_taken() {
            self.probe_at = None;
        }
    }

    fn note_up(&mut self, member: MemberId, now: Duration) {
        let Some(peer) = self.peers.get_mut(&member) else { return };
        if peer.is_confirmed && peer.follow.is_some() && !mem::replace(&mut peer.is_up, true) {
            let hello = peer.hello;
            self.events.push_back(Event::Up { peer: member, hello });
            self.note_ready(member);
            self.status_soon(now);
        }
    }

    fn note_ready(&mut self, member: MemberId) {
        if let Some(peer) = self.peers.get_mut(&member).filter(|peer| peer.is_up)
            && !mem::replace(&mut peer.is_ready, true)
        {
            self.ready.push_back(member);
        }
    }

    /// Bytes that an incomplete record of a member may have.
    fn reassembly_room(&self, member: MemberId) -> usize {
        let others = |(id, peer): (&MemberId, &Peer)| if *id == member { 0 } else { peer.partial_bytes() };
        let used: usize = match self.peers.len() {
            0 | 1 => 0,
            _ => self.peers.iter().map(others).sum(),
        };
        self.config.reassembly_bytes.saturating_sub(used).min(self.config.record_bytes.saturating_add(16))
    }
}

/// A duration below `end`, at random.
fn below(random: &mut u64, end: Duration) -> Duration {
    // Xorshift: delays need no better numbers.
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    Duration::from_nanos(((u128::from(*random) * end.as_nanos()) >> 64) as u64)
}
