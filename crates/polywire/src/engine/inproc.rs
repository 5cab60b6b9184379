//! Within the process: a named bus that every port opened under the name is on.
//!
//! There is no thread. What is sent waits in a pipe until [`Port::settle`], and is then delivered
//! on the thread that called it, unless another one is delivering through the same pipe just then,
//! which takes it along. So a callback may publish, close or subscribe without ever being called
//! from within itself, order holds, and nothing is copied but the pointer.
//!
//! ```
//! use polywire::engine::{inproc::Inproc, Engine};
//! let properties = Inproc.properties();
//! assert!(Inproc.name() == "inproc" && properties.reliable && properties.ordered && properties.multicast);
//! ```

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Extensions, Id128},
    frame::{Answer, Start},
};

use super::{
    Disconnect, Engine, EngineError, Event, LinkId, LinkInfo, LinkSink, LinkStats, Loan, Local, Overflow, Port,
    Properties, Sent, Sink,
    delivery::{Delivery, Holdable, Leaving, Missing, Notice, Outcome, start_of},
    next_link_id,
    stream::Aligned,
};

/// `inproc/NAME`.
pub struct Inproc;

impl Engine for Inproc {
    fn name(&self) -> &'static str {
        "inproc"
    }

    fn summary(&self) -> &'static str {
        "Within the process, by name"
    }

    fn example(&self) -> &'static str {
        "main"
    }

    fn properties(&self) -> Properties {
        Properties { reliable: true, ordered: true, multicast: true, largest_payload: None }
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        let member = Arc::new(Member { name: address.into(), local: local.clone(), sink, state: Mutex::default() });
        let others = {
            let mut buses = lock(&BUSES);
            let bus = buses.get_or_insert_default().entry(address.into()).or_default();
            bus.retain(|other| other.strong_count() > 0);
            let others: Vec<_> = bus.iter().filter_map(Weak::upgrade).collect();
            bus.push(Arc::downgrade(&member));
            others
        };
        for other in others {
            join(&member, &other);
        }
        Ok(Arc::new(InprocPort(member)))
    }
}

type Buses = HashMap<String, Vec<Weak<Member>>>;
static BUSES: Mutex<Option<Buses>> = Mutex::new(None);

struct InprocPort(Arc<Member>);

/// A port on a bus.
struct Member {
    name: String,
    local: Local,
    sink: Arc<dyn Sink>,
    state: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    channels: BTreeMap<ChannelId, (Start, Announcement)>,
    last: u32,
    peers: Arc<Vec<Peer>>,
    closed: bool,
}

/// Another port on the bus, as one sees it.
#[derive(Clone)]
struct Peer {
    info: LinkInfo,
    out: Arc<Pipe>,
}

/// What one port sends another.
struct Pipe {
    state: Mutex<PipeState>,
    room: Condvar,
    /// The receiving end's, made when the two meet.
    receiver: OnceLock<Arc<dyn LinkSink>>,
    /// The pipe in the other direction.
    back: OnceLock<Weak<Pipe>>,
    /// Who is told of drops: the sender.
    sink: Arc<dyn Sink>,
    info: LinkInfo,
    overflow: Overflow,
    limit: usize,
}

#[derive(Default)]
struct PipeState {
    queue: VecDeque<Item>,
    /// What the messages in `queue` take.
    bytes: usize,
    delivery: Delivery<Arc<Message>>,
    delivering: Option<ThreadId>,
    /// Messages delivered so far: tells a slow peer from one that takes nothing.
    taken: u64,
    /// The peer was waited for in vain.
    stalled: bool,
    closed: bool,
}

enum Item {
    /// Boxed, as all items are as large as the largest, and most are messages.
    Announce(ChannelId, Start, Box<Announcement>),
    Message(Arc<Message>),
    Position(ChannelId, Start, u64),
    Retire(ChannelId),
    Answer(ChannelId, Answer),
    Want(Id128),
    Supply(Id128, Option<Vec<u8>>),
    Down,
}

struct Message {
    envelope: Envelope<'static>,
    extensions: Vec<u8>,
    loan: Loan,
}

impl Holdable for Arc<Message> {
    fn at(&self) -> (ChannelId, Start) {
        (self.envelope.channel, start_of(&self.envelope))
    }

    fn size(&self) -> usize {
        self.loan.payload().len() + self.extensions.len() + size_of::<Message>()
    }
}

impl Port for InprocPort {
    fn endpoint(&self) -> String {
        format!("inproc/{}", self.0.name)
    }

    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        let (channel, peers) = {
            let mut state = lock(&self.0.state);
            if state.closed {
                return Err(EngineError::Closed);
            }
            state.last += 1;
            let channel = ChannelId(state.last);
            state.channels.insert(channel, (start, announcement.clone()));
            // In the pipes while the state is locked: a port that joins just now hears of it once.
            for peer in state.peers.iter() {
                peer.out.announce(channel, start, announcement);
            }
            (channel, state.peers.clone())
        };
        peers.iter().for_each(|peer| peer.out.deliver());
        Ok(channel)
    }

    fn reserve(&self, size: usize) -> Loan {
        Loan::new(Vec::with_capacity(size), 0)
    }

    fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        let peers = self.0.peers();
        let extensions = envelope.extensions.bytes().to_vec();
        let envelope = Envelope { extensions: Extensions::default(), ..*envelope };
        let message = Arc::new(Message { envelope, extensions, loan });
        let mut sent = Sent::default();
        for peer in peers.iter() {
            peer.out.send(&message).count(&mut sent);
        }
        Ok(sent)
    }

    fn settle(&self) {
        self.0.peers().iter().for_each(|peer| peer.out.deliver());
    }

    fn retire(&self, channel: ChannelId) {
        lock(&self.0.state).channels.remove(&channel);
        for peer in self.0.peers().iter() {
            peer.out.retire(channel);
            peer.out.deliver();
        }
    }

    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        self.0.push(link, Item::Answer(channel, answer));
    }

    fn want(&self, link: LinkId, document: Id128) {
        self.0.push(link, Item::Want(document));
    }

    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>) {
        self.0.push(link, Item::Supply(document, bytes.map(<[u8]>::to_vec)));
    }

    fn flush(&self, deadline: Instant) -> bool {
        self.settle();
        let late = |peer: &&Peer| !peer.out.flush(deadline);
        self.0.peers().iter().filter(late).count() == 0
    }

    fn links(&self) -> Vec<LinkStats> {
        self.0.peers().iter().map(|peer| peer.out.stats()).collect()
    }

    fn close(&self) {
        self.flush(Instant::now() + self.0.local.options.linger);
        let peers = {
            let mut state = lock(&self.0.state);
            state.closed = true;
            std::mem::take(&mut state.peers)
        };
        let me = Arc::as_ptr(&self.0);
        if let Some(bus) = lock(&BUSES).as_mut().and_then(|buses| buses.get_mut(&self.0.name)) {
            bus.retain(|member| member.as_ptr() != me);
        }
        for peer in peers.iter() {
            peer.out.close();
            self.0.sink.event(Event::Disconnected { link: peer.info.clone(), reason: Disconnect::Closed });
            if let Some(back) = peer.out.back.get().and_then(Weak::upgrade) {
                back.close();
            }
        }
    }
}

impl Drop for InprocPort {
    fn drop(&mut self) {
        self.close();
    }
}

impl Member {
    fn peers(&self) -> Arc<Vec<Peer>> {
        lock(&self.state).peers.clone()
    }

    fn push(&self, link: LinkId, item: Item) {
        if let Some(peer) = self.peers().iter().find(|peer| peer.info.id == link) {
            lock(&peer.out.state).queue.push_back(item);
            peer.out.deliver();
        }
    }

    fn add(&self, peer: Peer) {
        let mut state = lock(&self.state);
        for (channel, (start, announcement)) in &state.channels {
            peer.out.announce(*channel, *start, announcement);
        }
        Arc::make_mut(&mut state.peers).push(peer);
    }

    fn remove(&self, link: LinkId) -> Option<Peer> {
        let mut state = lock(&self.state);
        let at = state.peers.iter().position(|peer| peer.info.id == link)?;
        Some(Arc::make_mut(&mut state.peers).remove(at))
    }

    fn seen_as(&self) -> LinkInfo {
        LinkInfo { id: next_link_id(), peer: self.local.hello, address: format!("inproc/{}", self.name) }
    }
}

fn join(a: &Arc<Member>, b: &Arc<Member>) {
    let (b_at_a, a_at_b) = (b.seen_as(), a.seen_as());
    let (to_b, to_a) = (Pipe::new(a, &b_at_a), Pipe::new(b, &a_at_b));
    connect(&to_b, &to_a, b, &a_at_b);
    connect(&to_a, &to_b, a, &b_at_a);
    a.add(Peer { info: b_at_a, out: to_b.clone() });
    b.add(Peer { info: a_at_b, out: to_a.clone() });
    to_b.deliver();
    to_a.deliver();
}

/// Gives `pipe` its far end at `to`, which knows the link as `info`.
fn connect(pipe: &Pipe, back: &Arc<Pipe>, to: &Arc<Member>, info: &LinkInfo) {
    let receiver = to.sink.link(info);
    to.sink.event(Event::Connected(info.clone()));
    let ends = Ends { receiver, member: Arc::downgrade(to), link: info.id };
    // Made just now, and set nowhere else.
    let _ = pipe.receiver.set(Arc::new(ends));
    let _ = pipe.back.set(Arc::downgrade(back));
}

/// A receiver that also takes the peer off its port's list when the link goes down.
struct Ends {
    receiver: Arc<dyn LinkSink>,
    member: Weak<Member>,
    link: LinkId,
}

impl LinkSink for Ends {
    fn announced(&self, channel: ChannelId, start: Start, announcement: &Announcement) {
        self.receiver.announced(channel, start, announcement);
    }

    fn message(&self, envelope: &Envelope<'_>, payload: &[u8]) {
        self.receiver.message(envelope, payload);
    }

    fn position(&self, channel: ChannelId, start: Start, lost: u64) {
        self.receiver.position(channel, start, lost);
    }

    fn retired(&self, channel: ChannelId) {
        self.receiver.retired(channel);
    }

    fn wanted(&self, document: Id128) {
        self.receiver.wanted(document);
    }

    fn supplied(&self, document: Id128, bytes: Option<&[u8]>) {
        self.receiver.supplied(document, bytes);
    }

    fn answered(&self, channel: ChannelId, answer: &Answer) {
        self.receiver.answered(channel, answer);
    }

    fn drained(&self) {
        self.receiver.drained();
    }

    fn down(&self) {
        self.receiver.down();
        let Some(member) = self.member.upgrade() else { return };
        if let Some(peer) = member.remove(self.link) {
            peer.out.close();
            member.sink.event(Event::Disconnected { link: peer.info, reason: Disconnect::Bye });
        }
    }
}

impl Pipe {
    fn new(from: &Member, to: &LinkInfo) -> Arc<Pipe> {
        Arc::new(Pipe {
            state: Mutex::default(),
            room: Condvar::new(),
            receiver: OnceLock::new(),
            back: OnceLock::new(),
            sink: from.sink.clone(),
            info: to.clone(),
            overflow: from.local.options.overflow,
            limit: from.local.options.queue_bytes,
        })
    }

    fn announce(&self, channel: ChannelId, start: Start, announcement: &Announcement) {
        let mut state = lock(&self.state);
        state.delivery.announce(channel, channel, announcement);
        state.queue.push_back(Item::Announce(channel, start, Box::new(announcement.clone())));
    }

    fn retire(&self, channel: ChannelId) {
        let mut state = lock(&self.state);
        state.delivery.retire(channel);
        state.finish_retiring();
    }

    fn send(&self, message: &Arc<Message>) -> Outcome {
        let (envelope, size) = (&message.envelope, message.size());
        let mut state = lock(&self.state);
        let Some(mut subscribers) = state.wanted(envelope) else { return Outcome::Unwanted };
        let mut notice = None;
        if !state.has_room(size, self.limit) {
            state = self.make_room(state, size);
            // Waiting gave the lock away: the channel may be gone or answered.
            let Some(now) = state.wanted(envelope) else { return Outcome::Unwanted };
            subscribers = now;
            if !state.has_room(size, self.limit) {
                state.delivery.drop_newest(envelope);
                let notice = state.delivery.notice(Instant::now());
                drop(state);
                notice.into_iter().for_each(|notice| self.tell_dropped(notice));
                return Outcome::Dropped;
            }
            notice = state.delivery.notice(Instant::now());
        }
        state.delivery.count_sent();
        if state.delivery.must_hold(envelope.channel, subscribers) {
            state.delivery.hold(message.clone());
        } else if let Some((channel, missing)) = state.delivery.next(envelope.channel) {
            state.push((message.clone(), channel, missing));
        }
        drop(state);
        notice.into_iter().for_each(|notice| self.tell_dropped(notice));
        Outcome::Sent(subscribers)
    }

    fn tell_dropped(&self, (topic, count): Notice) {
        self.sink.event(Event::Dropped { link: self.info.clone(), topic: (*topic).into(), count });
    }

    fn make_room<'a>(&'a self, mut state: MutexGuard<'a, PipeState>, size: usize) -> MutexGuard<'a, PipeState> {
        match self.overflow {
            Overflow::DropNewest => state,
            Overflow::DropOldest => {
                while !state.has_room(size, self.limit) && state.drop_oldest() {}
                state
            }
            // Whoever delivers is waiting for us, or will be: it is this thread.
            Overflow::Block { .. } if state.delivering == Some(thread::current().id()) => state,
            Overflow::Block { patience } => {
                drop(state);
                self.deliver();
                self.wait_for_room(size, patience)
            }
        }
    }

    fn wait_for_room(&self, size: usize, patience: Duration) -> MutexGuard<'_, PipeState> {
        let mut state = lock(&self.state);
        loop {
            let taken = state.taken;
            let full = |state: &mut PipeState| !state.closed && !state.stalled && !state.has_room(size, self.limit);
            let waited = self.room.wait_timeout_while(state, patience, full).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if !waited.1.timed_out() || state.taken == taken {
                state.stalled |= waited.1.timed_out();
                return state;
            }
        }
    }

    /// Hands over what waits, unless someone is at it already.
    fn deliver(&self) {
        let Some(receiver) = self.receiver.get() else { return };
        let mut state = lock(&self.state);
        if state.delivering.is_some() || (state.queue.is_empty() && !state.delivery.has_untold()) {
            return;
        }
        state.delivering = Some(thread::current().id());
        let mut aligned = Aligned::default();
        while let Some(item) = state.pop(self.limit) {
            if let Item::Message(_) = &item {
                self.room.notify_all();
            }
            drop(state);
            self.hand_over(item, &**receiver, &mut aligned);
            state = lock(&self.state);
            if state.queue.is_empty() {
                drop(state);
                receiver.drained();
                state = lock(&self.state);
            }
        }
        state.delivering = None;
        self.room.notify_all();
        let notice = state.delivery.end_of_episode();
        drop(state);
        notice.into_iter().for_each(|notice| self.tell_dropped(notice));
    }

    fn hand_over(&self, item: Item, receiver: &dyn LinkSink, aligned: &mut Aligned) {
        match item {
            Item::Announce(channel, start, announcement) => receiver.announced(channel, start, &announcement),
            Item::Message(message) => {
                let extensions = Extensions::parse(&message.extensions).unwrap_or_default();
                let envelope = Envelope { extensions, ..message.envelope };
                receiver.message(&envelope, aligned.place(message.loan.payload()));
            }
            Item::Position(channel, start, lost) => receiver.position(channel, start, lost),
            Item::Retire(channel) => receiver.retired(channel),
            Item::Answer(channel, answer) => {
                if let Some(back) = self.back.get().and_then(Weak::upgrade) {
                    back.answered(channel, &answer);
                    receiver.answered(channel, &answer);
                    back.deliver();
                }
            }
            Item::Want(document) => receiver.wanted(document),
            Item::Supply(document, bytes) => receiver.supplied(document, bytes.as_deref()),
            Item::Down => receiver.down(),
        }
    }

    fn answered(&self, channel: ChannelId, answer: &Answer) {
        let mut state = lock(&self.state);
        state.delivery.answered(channel, answer);
        for leaving in state.delivery.release() {
            state.push(leaving);
        }
        state.finish_retiring();
        self.room.notify_all();
    }

    fn flush(&self, deadline: Instant) -> bool {
        let me = thread::current().id();
        let busy = |state: &mut PipeState| {
            let here = state.delivering == Some(me);
            let waits = state.delivering.is_some() || !state.queue.is_empty() || state.delivery.is_holding();
            !state.closed && !here && waits
        };
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let waited = self.room.wait_timeout_while(lock(&self.state), left, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// The link goes down, after what was sent before.
    fn close(&self) {
        {
            let mut state = lock(&self.state);
            if std::mem::replace(&mut state.closed, true) {
                return;
            }
            state.queue.push_back(Item::Down);
        }
        self.room.notify_all();
        self.deliver();
    }

    fn stats(&self) -> LinkStats {
        let state = lock(&self.state);
        let (sent, dropped) = state.delivery.counts();
        LinkStats { link: self.info.clone(), sent, dropped, queued_bytes: state.waiting_bytes() }
    }
}

impl PipeState {
    fn wanted(&mut self, envelope: &Envelope<'_>) -> Option<u32> {
        if self.closed {
            return None;
        }
        self.delivery.wanted(envelope)
    }

    fn push(&mut self, (message, channel, missing): Leaving<Arc<Message>>) {
        if let Some(Missing { start, lost }) = missing {
            self.queue.push_back(Item::Position(channel, start, lost));
        }
        self.bytes += message.size();
        self.queue.push_back(Item::Message(message));
    }

    /// The next item; what no message tells when there is none.
    #[inline]
    fn pop(&mut self, limit: usize) -> Option<Item> {
        if self.queue.is_empty() && self.delivery.has_untold() {
            let untold = self.delivery.take_untold();
            self.queue.extend(untold.into_iter().map(|(id, missing)| Item::Position(id, missing.start, missing.lost)));
        }
        let item = self.queue.pop_front()?;
        if let Item::Message(message) = &item {
            self.bytes -= message.size();
            self.taken += 1;
            self.stalled &= self.waiting_bytes() > limit / 2;
        }
        Some(item)
    }

    fn finish_retiring(&mut self) {
        for (id, missing) in self.delivery.ended() {
            let position = missing.map(|Missing { start, lost }| Item::Position(id, start, lost));
            self.queue.extend(position.into_iter().chain([Item::Retire(id)]));
        }
    }

    fn waiting_bytes(&self) -> usize {
        self.bytes + self.delivery.held_bytes()
    }

    fn has_room(&self, size: usize, limit: usize) -> bool {
        let used = self.waiting_bytes();
        used == 0 || used.saturating_add(size) <= limit
    }

    fn drop_oldest(&mut self) -> bool {
        let at = self.queue.iter().position(|item| matches!(item, Item::Message(_)));
        let Some((at, Item::Message(message))) = at.and_then(|at| Some((at, self.queue.remove(at)?))) else {
            return self.delivery.drop_oldest_held();
        };
        let (channel, start) = message.at();
        // No message stands before it, so that one position a channel says it all.
        let told = self.queue.iter_mut().take(at).find_map(|item| match item {
            Item::Position(of, to, lost) if *of == channel => Some((to, lost)),
            _ => None,
        });
        match told {
            Some((to, lost)) => (*to, *lost) = (start, *lost + 1),
            None => self.queue.insert(at, Item::Position(channel, start, 1)),
        }
        self.bytes -= message.size();
        self.delivery.count_drop(channel);
        true
    }
}

/// A pipe from a port back to its own node, for subscribers that sit beside the publisher.
pub(crate) struct Loopback(Arc<Pipe>);

impl Loopback {
    /// Delivers to `receiver` what is published here; drops are told to `sink`.
    pub(crate) fn new(local: &Local, sink: Arc<dyn Sink>, info: LinkInfo, receiver: Arc<dyn LinkSink>) -> Self {
        let pipe = Pipe {
            state: Mutex::default(),
            room: Condvar::new(),
            receiver: OnceLock::from(receiver),
            back: OnceLock::new(),
            sink,
            info,
            overflow: local.options.overflow,
            limit: local.options.queue_bytes,
        };
        Loopback(Arc::new(pipe))
    }

    pub(crate) fn announce(&self, channel: ChannelId, start: Start, announcement: &Announcement) {
        self.0.announce(channel, start, announcement);
        self.0.deliver();
    }

    pub(crate) fn retire(&self, channel: ChannelId) {
        self.0.retire(channel);
        self.0.deliver();
    }

    pub(crate) fn answered(&self, channel: ChannelId, answer: &Answer) {
        self.0.answered(channel, answer);
        self.0.deliver();
    }

    /// Whether a message of the channel would go anywhere.
    pub(crate) fn wants(&self, channel: ChannelId) -> bool {
        lock(&self.0.state).delivery.wants(channel)
    }

    pub(crate) fn send(&self, envelope: &Envelope<'_>, payload: &[u8]) -> Outcome {
        let mut loan = Loan::new(Vec::with_capacity(payload.len()), 0);
        loan.buffer().extend_from_slice(payload);
        let extensions = envelope.extensions.bytes().to_vec();
        let envelope = Envelope { extensions: Extensions::default(), ..*envelope };
        self.0.send(&Arc::new(Message { envelope, extensions, loan }))
    }

    pub(crate) fn deliver(&self) {
        self.0.deliver();
    }

    pub(crate) fn flush(&self, deadline: Instant) -> bool {
        self.0.flush(deadline)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
