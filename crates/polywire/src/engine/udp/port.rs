//! The port: the functions that the node calls, and the two threads that serve the sockets.
//!
//! The receiving thread receives packets and delivers messages to the node. The timer thread runs
//! the members' timers. If the node blocks the receiving thread, the timer thread receives, too, so
//! that acknowledgements and retransmission requests continue. The messages then wait within the
//! members' windows.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread::{self, JoinHandle, ThreadId},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Frame, FrameError, Start},
    multicast::{self, Admission, Config, Gate, MemberId, Reliability, other_version, sender_of},
};

use super::{
    super::{
        Aligned, Disconnect, EngineError, Event, LinkId, LinkStats, Loan, Local, Overflow, Port, Sent, Sink,
        delivery::{Outcome, start_of},
        outbox::{self, HeldFrame, Item, encoded},
    },
    name::HostName,
    socket::{Role, Sockets},
    state::{Group, Link, ONLY, State, member, random},
};
use crate::clock;

/// After this time, a delivery counts as blocked by the node.
const HELD_UP: Duration = Duration::from_millis(5);
/// How often the timer thread polls for datagrams while a delivery is blocked.
const LOOK: Duration = Duration::from_millis(2);

pub(super) struct UdpPort(Arc<Shared>);

pub(super) struct Shared {
    /// Name of the engine and the address with its options.
    pub(super) endpoint: String,
    pub(super) local: Local,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) config: Config,
    /// How messages are sent. Everything else is reliable.
    messages: Reliability,
    sockets: Sockets,
    gate: Gate,
    state: Mutex<State>,
    /// Notified when queued frames may have been sent.
    room: Condvar,
    /// Notified when the timer thread must check its deadlines again.
    timer: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl UdpPort {
    pub(super) fn open(
        endpoint: String,
        local: &Local,
        sink: Arc<dyn Sink>,
        (config, messages): (Config, Reliability),
        sockets: Sockets,
    ) -> Result<UdpPort, EngineError> {
        let mut state = State::new(config.peers);
        match sockets.role {
            Role::Member(to) | Role::Caller(to) => {
                let group = Group::new(member(&config, local.hello), to, clock::now());
                state.groups.insert(ONLY, group);
            }
            Role::Host(_) => {}
        }
        let mut secret = [0; 32];
        secret.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random().to_le_bytes()));
        let shared = Arc::new(Shared {
            endpoint,
            local: local.clone(),
            sink,
            config,
            messages,
            gate: Gate::new(secret),
            state: Mutex::new(state),
            room: Condvar::new(),
            timer: Condvar::new(),
            threads: Mutex::default(),
            sockets,
        });
        let port = UdpPort(shared.clone());
        if let Role::Host(_) = shared.sockets.role {
            shared.sink.event(Event::Listening { endpoint: shared.endpoint.clone() });
        }
        if shared.sockets.is_exposed {
            shared.sink.event(Event::Exposed { endpoint: shared.endpoint.clone() });
        }
        shared.start("pw-udp-in", Shared::receive)?;
        shared.start("pw-udp-timer", Shared::keep_time)?;
        Ok(port)
    }
}

impl Port for UdpPort {
    fn endpoint(&self) -> String {
        self.0.endpoint.clone()
    }

    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        let limits = &self.0.local.options.limits;
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(EngineError::Closed);
        }
        if state.channels.len() >= limits.channels {
            return Err(FrameError::TooManyChannels { limit: limits.channels }.into());
        }
        let channel = ChannelId(state.last_channel + 1);
        let frame = Frame::Announce { channel, start, announcement: Box::new(announcement.clone()) };
        let (got, limit) = (encoded(&frame).len(), limits.announcement_bytes);
        if got > limit {
            return Err(FrameError::TooLong { what: "announcement", got: got as u64, limit }.into());
        }
        let (got, limit) = (announcement.offer.len(), limits.extension_bytes);
        if got > limit {
            return Err(FrameError::TooLong { what: "offer", got: got as u64, limit }.into());
        }
        state.last_channel = channel.0;
        state.announce(channel, start, &Arc::new(announcement.clone()));
        self.0.pump_all(&mut state);
        Ok(channel)
    }

    fn reserve(&self, size: usize) -> Loan {
        Loan::new(Vec::with_capacity(size), 0)
    }

    fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        self.send(envelope, loan.payload())
    }

    fn send(&self, envelope: &Envelope<'_>, payload: &[u8]) -> Result<Sent, EngineError> {
        self.0.local.options.limits.check_message(envelope, payload.len())?;
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(EngineError::Closed);
        }
        let mut sent = Sent::default();
        if state.links.is_empty() || !state.channels.contains_key(&envelope.channel) {
            return Ok(sent);
        }
        let frame = encoded(&Frame::Data(*envelope, payload));
        let groups: Vec<MemberId> = state.groups.keys().copied().collect();
        for group in groups {
            state = self.0.send_to(state, group, envelope, &frame, &mut sent);
        }
        Ok(sent)
    }

    fn gather(&self, begins: bool) {
        let mut state = self.0.lock();
        if begins {
            state.gathering += 1;
            return;
        }
        state.gathering = state.gathering.saturating_sub(1);
        if state.gathering == 0 {
            self.0.pump_all(&mut state);
        }
    }

    fn retire(&self, channel: ChannelId) {
        let mut state = self.0.lock();
        state.retire(channel);
        self.0.pump_all(&mut state);
    }

    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        let mut state = self.0.lock();
        if let Some(remote) = state.links.get_mut(&link).and_then(|link| link.remote.get_mut(&channel)) {
            // After an acceptance, the peer sends the position from which on messages are for this
            // node.
            remote.is_open &= answer.accepts();
        }
        self.0.control(&mut state, link, &Frame::Answer { channel, answer });
    }

    fn want(&self, link: LinkId, document: Id128) {
        self.0.control(&mut self.0.lock(), link, &Frame::Want { document });
    }

    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>) {
        self.0.control(&mut self.0.lock(), link, &Frame::Document { document, bytes });
    }

    fn flush(&self, deadline: Instant) -> bool {
        self.0.wait_until(deadline, State::is_sent)
    }

    fn links(&self) -> Vec<LinkStats> {
        self.0.lock().stats()
    }

    fn retransmitted(&self) -> u64 {
        let state = self.0.lock();
        state.retransmitted + state.groups.values().map(|group| group.member.retransmitted()).sum::<u64>()
    }

    fn close(&self) {
        self.0.close();
    }
}

impl Drop for UdpPort {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Sends a message to the members of a group that want it.
    fn send_to<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        key: MemberId,
        envelope: &Envelope<'_>,
        frame: &[u8],
        sent: &mut Sent,
    ) -> MutexGuard<'a, State> {
        let channel = envelope.channel;
        let wants = |state: &State| {
            let links = state.groups.get(&key).map(|group| group.links.values());
            links.is_some_and(|mut links| {
                links.any(|link| state.links.get(link).is_some_and(|link| link.delivery.is_accepted(channel)))
            })
        };
        let mut has_room = true;
        if wants(&state) {
            (state, has_room) = self.make_room(state, key, frame.len());
        }
        state = self.make_room_to_hold(state, key, envelope, frame.len());
        let State { groups, links, .. } = &mut *state;
        let Some(group) = groups.get_mut(&key) else { return state };
        let mut for_all = false;
        for id in group.links.values() {
            let Some(link) = links.get_mut(id) else { continue };
            let outcome = match link.delivery.wanted(envelope) {
                None => Outcome::Unwanted,
                Some(subscribers) if link.delivery.must_hold(channel, subscribers) => {
                    self.hold(link, envelope, frame, subscribers)
                }
                Some(subscribers) => {
                    for_all = true;
                    match has_room {
                        true => {
                            if let Some((_, Some(missing))) = link.delivery.next(channel) {
                                group.outbox.control(Some(link.member), &outbox::position(channel, missing));
                            }
                            link.delivery.count_sent(1);
                            Outcome::Sent(subscribers)
                        }
                        false => {
                            link.delivery.count_drop(channel);
                            Outcome::Dropped
                        }
                    }
                }
            };
            outcome.count(sent);
            if let Some((topic, count)) = link.notice() {
                self.sink.event(Event::Dropped { link: link.info.clone(), topic: topic.to_string(), count });
            }
        }
        match (for_all, has_room) {
            (true, true) => {
                let start = start_of(envelope);
                group.outbox.push(Item::Message { to: None, channel, start, frame: frame.to_vec() });
            }
            (true, false) => group.outbox.drop_newest(channel, start_of(envelope)),
            (false, _) => {}
        }
        let waiting = group.outbox.bytes();
        if state.gathering == 0 || waiting >= self.config.batch_bytes {
            self.pump(&mut state, key, clock::now());
        }
        state
    }

    /// Holds a message until the member has answered.
    fn hold(&self, link: &mut Link, envelope: &Envelope<'_>, frame: &[u8], subscribers: u32) -> Outcome {
        match (self.messages, link.is_stalled) {
            // A best-effort message is not kept for peers that become ready later.
            (Reliability::BestEffort, _) => Outcome::Unwanted,
            (_, true) => {
                link.delivery.drop_newest(envelope);
                Outcome::Dropped
            }
            (_, false) => {
                link.delivery.hold(HeldFrame::new(envelope, frame));
                link.delivery.count_sent(1);
                Outcome::Sent(subscribers)
            }
        }
    }

    /// Makes room in the queue for a message of this many bytes. Returns false if the message must
    /// be dropped.
    fn make_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        key: MemberId,
        more: usize,
    ) -> (MutexGuard<'a, State>, bool) {
        let limit = self.local.options.queue_bytes;
        let is_full = |state: &State| state.groups.get(&key).is_some_and(|group| group.outbox.is_full(more, limit));
        if !is_full(&state) {
            return (state, true);
        }
        self.pump(&mut state, key, clock::now());
        match self.local.options.overflow {
            Overflow::DropNewest => {}
            Overflow::DropOldest => while is_full(&state) && self.drop_oldest(&mut state, key) {},
            Overflow::Block { patience } => {
                let is_stalled = |state: &State| state.groups.get(&key).is_none_or(|group| group.outbox.is_stalled);
                while is_full(&state) && !is_stalled(&state) && !state.is_closed {
                    let before = state.groups.get(&key).map_or(0, |group| group.outbox.bytes());
                    let moved = |state: &mut State| {
                        state.groups.get(&key).is_some_and(|group| group.outbox.bytes() >= before) && !state.is_closed
                    };
                    let waited = self.room.wait_while_for(&mut state, moved, patience);
                    if waited.timed_out()
                        && let Some(group) = state.groups.get_mut(&key)
                    {
                        group.outbox.is_stalled = true;
                    }
                }
            }
        }
        let has_room = !is_full(&state);
        (state, has_room)
    }

    fn drop_oldest(&self, state: &mut State, key: MemberId) -> bool {
        let State { groups, links, .. } = state;
        let Some(group) = groups.get_mut(&key) else { return false };
        let Some(channel) = group.outbox.drop_oldest() else { return false };
        for id in group.links.values() {
            let Some(link) = links.get_mut(id).filter(|link| link.delivery.is_accepted(channel)) else { continue };
            link.delivery.count_drop(channel);
            if let Some((topic, count)) = link.notice() {
                self.sink.event(Event::Dropped { link: link.info.clone(), topic: topic.to_string(), count });
            }
        }
        true
    }

    /// Makes room among the messages that are held for members that have not answered.
    fn make_room_to_hold<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        key: MemberId,
        envelope: &Envelope<'_>,
        more: usize,
    ) -> MutexGuard<'a, State> {
        let (limit, channel) = (self.local.options.queue_bytes, envelope.channel);
        let links: Vec<LinkId> =
            state.groups.get(&key).map(|g| g.links.values().copied().collect()).unwrap_or_default();
        for id in links {
            let is_full = |state: &State| {
                state.links.get(&id).is_some_and(|link| {
                    let held = link.delivery.held_bytes();
                    held > 0 && held + more > limit && !link.is_stalled && link.delivery.wants(channel)
                })
            };
            match self.local.options.overflow {
                Overflow::DropOldest => {
                    while is_full(&state) && state.links.get_mut(&id).is_some_and(|l| l.delivery.drop_oldest_held()) {}
                }
                Overflow::DropNewest if is_full(&state) => {
                    if let Some(link) = state.links.get_mut(&id) {
                        link.is_stalled = true;
                    }
                }
                Overflow::Block { patience } if is_full(&state) => {
                    let still = |state: &mut State| is_full(state) && !state.is_closed;
                    let waited = self.room.wait_while_for(&mut state, still, patience);
                    if let Some(link) = state.links.get_mut(&id).filter(|_| waited.timed_out()) {
                        link.is_stalled = true;
                    }
                }
                _ => {}
            }
        }
        state
    }

    fn control(&self, state: &mut State, link: LinkId, frame: &Frame<'_>) {
        if let Some(group) = state.control(link, frame) {
            self.pump(state, group, clock::now());
        } else if let Some(link) = state.links.get_mut(&link)
            && !std::mem::replace(&mut link.is_reported, true)
        {
            let address = link.info.address.clone();
            self.sink.event(Event::Rejected { address, reason: Disconnect::Unread, total: 1 });
        }
    }

    // Driving the members.

    /// Sends the packets that can be sent now, and ensures that the timer thread wakes in time.
    pub(super) fn pump(&self, state: &mut State, key: MemberId, now: Duration) {
        let limit = self.local.options.queue_bytes;
        let State { groups, links, planned, unreachable, .. } = state;
        let Some(group) = groups.get_mut(&key) else { return };
        // A packet that cannot be sent now is treated as lost on the network.
        group.pump(self.messages, now, |packet, to| self.send_packet(packet, to, unreachable));
        if group.outbox.bytes() <= limit / 2 {
            group.outbox.is_stalled = false;
        }
        if group.outbox.is_empty() {
            for id in group.links.values() {
                let Some(link) = links.get_mut(id).filter(|link| !link.delivery.is_holding()) else { continue };
                if let Some((topic, count)) = link.delivery.end_of_episode() {
                    self.sink.event(Event::Dropped { link: link.info.clone(), topic: topic.to_string(), count });
                }
            }
        }
        self.room.notify_all();
        if group.member.next_timeout().is_some_and(|next| next < *planned) {
            *planned = Duration::ZERO;
            self.timer.notify_one();
        }
    }

    fn send_packet(&self, packet: &[u8], to: SocketAddr, last: &mut Option<i32>) {
        if let Err(error) = self.sockets.send(packet, to) {
            self.report(&error, last);
        }
    }

    /// Reports that packets cannot be sent or do not arrive. Reports the same reason once in a row.
    fn report(&self, error: &io::Error, last: &mut Option<i32>) {
        let code = error.raw_os_error().or(Some(0));
        if std::mem::replace(last, code) != code {
            let endpoint = self.endpoint.clone();
            self.sink.event(Event::Unreachable { endpoint, reason: error.to_string() });
        }
    }

    fn pump_all(&self, state: &mut State) {
        let (now, groups) = (clock::now(), state.groups.keys().copied().collect::<Vec<MemberId>>());
        groups.into_iter().for_each(|group| self.pump(state, group, now));
    }

    fn start(self: &Arc<Self>, name: &str, run: fn(&Shared)) -> Result<(), EngineError> {
        let shared = self.clone();
        let started = thread::Builder::new().name(name.into()).spawn(move || run(&shared));
        let failed = |cause| EngineError::System { endpoint: self.endpoint.clone(), action: "start a thread", cause };
        self.threads.lock().push(started.map_err(failed)?);
        Ok(())
    }

    /// The receiving thread.
    fn receive(&self) {
        let (mut buffer, mut place) = (vec![0; 1 << 16], Aligned::default());
        while !self.lock().is_closed {
            let group = match self.sockets.receive(&mut buffer) {
                Ok((len, from)) => self.arrived(buffer.get(..len).unwrap_or_default(), from),
                Err(error) => {
                    if error.kind() == io::ErrorKind::ConnectionRefused {
                        self.report(&error, &mut self.lock().unreachable);
                    }
                    None
                }
            };
            self.deliver(&mut place);
            if let Some(group) = group {
                self.pump(&mut self.lock(), group, clock::now());
            }
        }
        // The links that were displaced last.
        self.deliver(&mut place);
    }

    /// Handles a datagram. Returns the group that it belongs to, which the caller must pump.
    fn arrived(&self, datagram: &[u8], from: SocketAddr) -> Option<MemberId> {
        let (now, mut state) = (clock::now(), self.lock());
        if state.is_closed {
            return None;
        }
        if let Some(got) = other_version(datagram) {
            let reason = Disconnect::Protocol(FrameError::UnsupportedVersion { got, supported: multicast::VERSION });
            let event = state.rejections.count(&from.ip().to_string(), from.to_string(), reason);
            event.into_iter().for_each(|event| self.sink.event(event));
            return None;
        }
        let key = match self.sockets.role {
            Role::Member(_) | Role::Caller(_) => ONLY,
            Role::Host(_) => self.caller(&mut state, datagram, from, now)?,
        };
        let group = state.groups.get_mut(&key)?;
        // Damaged and foreign datagrams are discarded. A peer retransmits what must arrive.
        if group.member.handle_datagram(datagram, now).is_ok() {
            group.heard = now;
            state.unreachable = None;
        }
        Some(key)
    }

    /// Returns the group of a caller. Challenges a caller with a new address to prove that address.
    fn caller(&self, state: &mut State, datagram: &[u8], from: SocketAddr, now: Duration) -> Option<MemberId> {
        let id = sender_of(datagram)?;
        if state.groups.get(&id).is_some_and(|group| group.to == from) {
            return Some(id);
        }
        match self.gate.admit(from.to_string().as_bytes(), datagram, now) {
            Admission::Admitted(id) => {
                if let Some(group) = state.groups.get_mut(&id) {
                    group.to = from;
                } else if state.groups.len() < self.config.peers || self.displace(state, from.ip(), now) {
                    let mut member = member(&self.config, self.local.hello);
                    member.admit(id);
                    state.rejections.forget(&from.ip().to_string());
                    state.groups.insert(id, Group::new(member, from, now));
                } else {
                    let reason = Disconnect::TooMany(self.config.peers);
                    let event = state.rejections.count(&from.ip().to_string(), from.to_string(), reason);
                    event.into_iter().for_each(|event| self.sink.event(event));
                    return None;
                }
                Some(id)
            }
            Admission::Challenge(challenge) => {
                let _ = self.sockets.send(&challenge, from);
                None
            }
            Admission::Ignored => None,
        }
    }

    /// Ends the links of another caller, if one makes room for a new one. Returns whether one did.
    fn displace(&self, state: &mut State, caller: IpAddr, now: Duration) -> bool {
        let Some(mut group) = state.make_room(caller, self.messages) else { return false };
        group.member.close(now);
        group.pump(self.messages, now, |packet, to| self.send_packet(packet, to, &mut state.unreachable));
        self.room.notify_all();
        true
    }

    /// The timer thread.
    fn keep_time(&self) {
        let mut buffer = vec![0; 1 << 16];
        let mut name = self.sockets.name.clone().map(|name| HostName::new(name, clock::now()));
        let mut state = self.lock();
        while !state.is_closed {
            self.pump_all(&mut state);
            self.forget_callers(&mut state);
            if let Some(name) = &mut name {
                self.follow_name(&mut state, name);
            }
            let next = state.groups.values().filter_map(|group| group.member.next_timeout()).min();
            let mut wake = next.unwrap_or_else(|| clock::now().saturating_add(Duration::from_secs(1)));
            if state.delivering.is_some_and(|since| since.elapsed() > HELD_UP) {
                drop(state);
                while self.sockets.has_datagram()
                    && let Ok((len, from)) = self.sockets.receive(&mut buffer)
                {
                    self.arrived(buffer.get(..len).unwrap_or_default(), from);
                }
                state = self.lock();
                self.pump_all(&mut state);
                wake = wake.min(clock::now().saturating_add(LOOK));
            }
            let wait = wake.saturating_sub(clock::now());
            if wait.is_zero() {
                continue;
            }
            // `planned` is exactly the time that a member wants. With a later time, `pump` would
            // find a member's timeout before it at each message, and would wake this thread.
            state.planned = wake;
            let rests = |state: &mut State| state.planned != Duration::ZERO && !state.is_closed;
            self.timer.wait_while_for(&mut state, rests, wait);
        }
    }

    /// Removes the groups of callers that are silent and have no link.
    fn forget_callers(&self, state: &mut State) {
        if let Role::Host(_) = self.sockets.role {
            let (now, lease) = (clock::now(), self.config.lease);
            let State { groups, retransmitted, .. } = state;
            groups.retain(|_, group| {
                let stays = !group.links.is_empty() || group.heard.saturating_add(lease) > now;
                *retransmitted += if stays { 0 } else { group.member.retransmitted() };
                stays
            });
        }
    }

    /// Looks the name of a silent host up, and calls the host at its new address if it has one.
    fn follow_name(&self, state: &mut State, name: &mut HostName) {
        let (now, lease) = (clock::now(), self.config.lease);
        let Some(group) = state.groups.get_mut(&ONLY) else { return };
        if !group.links.is_empty() || group.heard.saturating_add(lease) > now {
            return name.forget();
        }
        let Some(found) = name.poll(lease, now).filter(|found| !found.contains(&group.to)) else { return };
        // The socket has one family.
        let Some(to) = found.into_iter().find(|to| to.is_ipv4() == group.to.is_ipv4()) else { return };
        match self.sockets.connect_anew(to) {
            Ok(()) => group.to = to,
            // Otherwise the socket would take packets from everybody.
            Err(_) => drop(self.sockets.connect_anew(group.to)),
        }
    }

    fn wait_until(&self, deadline: Instant, done: impl Fn(&State) -> bool) -> bool {
        let mut state = self.lock();
        loop {
            if done(&state) || state.is_closed {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.room.wait_for(&mut state, left.min(LOOK));
        }
    }

    /// Returns the number of messages that wait for a link. Best-effort messages do not count.
    pub(super) fn waiting(&self, state: &State, link: &Link) -> u64 {
        match (self.messages, state.groups.get(&link.group)) {
            (Reliability::Reliable, Some(group)) => group.waiting(link),
            _ => 0,
        }
    }

    fn close(&self) {
        if self.lock().is_closed {
            return;
        }
        self.wait_until(Instant::now() + self.local.options.linger, State::is_acknowledged);
        self.say_goodbye();
        let links: Vec<_> = {
            let mut state = self.lock();
            if std::mem::replace(&mut state.is_closed, true) {
                return;
            }
            let unconfirmed = |link: &Link| {
                let group = state.groups.get(&link.group);
                self.waiting(&state, link) + group.map_or(0, |group| group.member.unconfirmed(link.member))
            };
            let counts: Vec<u64> = state.links.values().map(unconfirmed).collect();
            state.groups.clear();
            std::mem::take(&mut state.links).into_values().zip(counts).collect()
        };
        self.timer.notify_all();
        self.room.notify_all();
        self.sockets.wake();
        let threads = std::mem::take(&mut *self.threads.lock());
        let me: ThreadId = thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
            let _ = thread.join();
        }
        for (link, count) in links {
            link.sink.down();
            if count > 0 {
                self.sink.event(Event::Unconfirmed { link: link.info.clone(), count });
            }
            self.sink.event(Event::Disconnected { link: link.info, reason: Disconnect::Closed });
        }
    }

    fn say_goodbye(&self) {
        loop {
            let mut state = self.lock();
            let now = clock::now();
            state.groups.values_mut().for_each(|group| group.member.close(now));
            self.pump_all(&mut state);
            if state.is_closed || state.groups.values().all(|group| group.member.is_closed()) {
                return;
            }
            drop(state);
            thread::sleep(LOOK);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::UdpSocket;

    use polywire_core::frame::Hello;

    use super::{
        super::{
            super::{Engine as _, EngineOptions, recorder::Recorder},
            UdpReliable,
            address::Address,
        },
        *,
    };

    #[test]
    fn a_host_is_found_at_the_new_address_of_its_name() {
        // The name's old address: a socket there takes all packets and does not answer.
        let gone = UdpSocket::bind("127.0.0.2:0").expect("a socket");
        let before = gone.local_addr().expect("an address");
        let (port, options) = (before.port(), "heartbeat=50ms,lease=1s");
        let local = |node| {
            let hello = Hello { node: Id128([node; 16]), incarnation: 1 };
            Local { hello, name: String::new(), options: EngineOptions::default() }
        };
        let text = format!("127.0.0.1:{port}?{options}");
        let host = UdpReliable.open(&text, &local(1), Arc::new(Recorder::default())).expect("a host");
        let (text, local) = (format!("localhost:{port}?{options}"), local(2));
        let mut address = Address::parse(&text, &local.options).expect("an address");
        address.to = vec![before];
        let sockets = Sockets::open(&address, &local.options).expect("sockets");
        assert_eq!(sockets.role, Role::Caller(before));
        let how = (address.config, Reliability::Reliable);
        let caller = UdpPort::open(text, &local, Arc::new(Recorder::default()), how, sockets).expect("a port");
        let until = Instant::now() + Duration::from_secs(60);
        let link = loop {
            if let Some(stats) = caller.links().pop() {
                break stats.link;
            }
            assert!(Instant::now() < until, "the host is not found");
            thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(link.address, format!("127.0.0.1:{port}"));
        caller.close();
        host.close();
    }
}
