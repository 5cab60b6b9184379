//! What a port knows: the nodes that are there, its links, its channels, and what came and was not
//! handed to the node yet. Everything here is done under the port's lock. Nothing calls the node or
//! the session.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    task::Poll,
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Frame, FrameError, Start, parse_datagram_frame},
};
use zenoh::{bytes::ZBytes, key_expr::OwnedKeyExpr};

use super::{
    super::{
        Disconnect, Event, LinkId, LinkInfo, LinkSink, Principal,
        foreign::{Said, Writers},
        inline::{self, Inline},
        outbox::encoded,
        rejections::Rejections,
    },
    end::ServiceEnd,
    inbox::{Arrival, Inbox, Message, Origin, arrival_of},
    key::{Keys, Name},
    link::{Link, Terms, Way},
    mail::{Content, Mail},
    outgoing::{Came, Line, Outgoing},
    outlet::Outlet,
    publishers::{Hearing, Publishers},
    schemas::{Answered, Schemas},
    services::Services,
};

/// First and longest pause between two hellos to a node that has not answered, among few nodes.
const HELLO_FIRST: Duration = Duration::from_millis(500);
const HELLO_LONGEST: Duration = Duration::from_secs(4);
/// With each so many nodes, everything takes longer, and pauses are longer by those among few.
const CROWD: usize = 8;
/// So many peers can be looked at for each message.
const FEW: usize = 64;
/// Messages that are handed to the node together, at most.
pub(super) const TOGETHER: usize = 32;

/// A channel of this node.
pub(super) struct Channel {
    pub(super) start: Start,
    pub(super) announcement: Arc<Announcement>,
    /// `None` if its messages go by mail.
    pub(super) outlet: Option<Arc<Outlet>>,
    /// If it is of a service that others than nodes can call, or serve.
    pub(super) service: Option<Arc<ServiceEnd>>,
}

/// Where the last message came that a thread of Zenoh handed over.
pub(super) struct Near {
    pub(super) writer: Id128,
    pub(super) channel: ChannelId,
    pub(super) link: LinkId,
    pub(super) sink: Arc<dyn LinkSink>,
}

/// Another node whose token is there.
pub(super) struct Peer {
    pub(super) line: Line,
    pub(super) link: Option<Link>,
    /// It said goodbye.
    pub(super) has_left: bool,
    /// When it gets the next hello, and the pause before the one after that.
    hello_at: Instant,
    pause: Duration,
}

impl Peer {
    /// Says hello, and again after a pause unless something comes.
    fn say_hello(&mut self, now: Instant, out: &mut Outgoing) {
        self.line.send(Content::Hello { asks: true }, out);
        self.hello_at = now + self.pause;
    }
}

pub(super) struct State {
    pub(super) me: Name,
    pub(super) keys: Keys,
    pub(super) terms: Terms,
    most_peers: usize,
    /// Bytes that may wait for the node, of peers that keep to their windows.
    pub(super) most_waiting: usize,
    pub(super) channels: BTreeMap<ChannelId, Channel>,
    pub(super) last_channel: u32,
    pub(super) peers: HashMap<Name, Peer>,
    /// Nodes that have written before their tokens were seen, at most as many as peers.
    early: HashSet<Name>,
    links: HashMap<LinkId, Name>,
    /// Counts what has changed of links, and may change what follows.
    changes: u64,
    /// Most messages come where the last one came. `None` if links have changed since.
    near: Option<Near>,
    /// Whether little is under way to all peers, if links have not changed since.
    is_calm: Option<bool>,
    /// The links that announced writers' channels.
    writers: BTreeMap<(Id128, ChannelId), LinkId>,
    pub(super) foreign: Writers,
    /// The publishers of ROS 2.
    pub(super) publishers: Publishers,
    pub(super) schemas: Schemas,
    pub(super) services: Services,
    pub(super) out: Outgoing,
    pub(super) inbox: Inbox,
    pub(super) rejections: Rejections,
    /// A thread puts what is in `out`.
    pub(super) is_pumping: bool,
    /// The thread that hands over goes on to add to `out`.
    pub(super) holds_back: Option<ThreadId>,
    /// The thread that hands over waits until something comes, and the one that sends until
    /// something is due. Waking them costs a system call.
    pub(super) hands_rest: bool,
    pub(super) sender_rests: bool,
    /// A thread of Zenoh hands over meanwhile.
    pub(super) handing: Option<ThreadId>,
    inline: Inline,
    /// Threads that wait for room. Waking nobody would cost a system call.
    pub(super) waiting: usize,
    pub(super) is_closing: bool,
    pub(super) is_closed: bool,
    last_epoch: u64,
}

impl State {
    pub(super) fn new(me: Name, keys: Keys, terms: Terms, most_peers: usize) -> State {
        State {
            me,
            keys,
            terms,
            most_peers,
            most_waiting: terms.limits.frame_bytes + (most_peers * terms.window as usize).min(256 << 20),
            channels: BTreeMap::new(),
            last_channel: 0,
            peers: HashMap::new(),
            early: HashSet::new(),
            links: HashMap::new(),
            changes: 0,
            near: None,
            is_calm: None,
            writers: BTreeMap::new(),
            foreign: Writers::new(terms.limits.channels, terms.queue),
            publishers: Publishers::default(),
            schemas: Schemas::new(terms.limits.pending_documents),
            services: Services::default(),
            out: Outgoing::new(terms.queue + terms.window as usize),
            inbox: Inbox::default(),
            rejections: Rejections::new(most_peers),
            is_pumping: false,
            holds_back: None,
            hands_rest: false,
            sender_rests: false,
            handing: None,
            inline: Inline::default(),
            waiting: 0,
            is_closing: false,
            is_closed: false,
            last_epoch: 0,
        }
    }

    /// A number larger than all that this port has drawn before.
    fn draw(&mut self, now_ns: u64) -> u64 {
        self.last_epoch = now_ns.max(self.last_epoch + 1);
        self.last_epoch
    }

    /// A node's token is there. One of both nodes says hello, and the other one does if it waits in
    /// vain.
    pub(super) fn appeared(&mut self, name: Name, now_ns: u64) {
        if name == self.me || self.is_closing || self.peers.contains_key(&name) {
            return;
        }
        if self.peers.len() >= self.most_peers {
            let reason = Disconnect::TooMany(self.most_peers);
            return self.reject(name, reason);
        }
        let Some(key) = self.keys.mailbox(name) else { return };
        let line = Line::new(key, self.me, self.draw(now_ns));
        let begins = self.early.remove(&name) || self.me.is_before(&name);
        let pause = HELLO_FIRST * self.crowd();
        let mut peer = Peer { line, link: None, has_left: false, hello_at: Instant::now() + 2 * pause, pause };
        if begins {
            peer.say_hello(Instant::now(), &mut self.out);
        }
        self.peers.insert(name, peer);
    }

    /// How many times longer pauses are than among few nodes.
    pub(super) fn crowd(&self) -> u32 {
        1 + (self.peers.len() / CROWD) as u32
    }

    /// A link is about to change.
    fn changing(&mut self) {
        self.changes += 1;
        (self.near, self.is_calm) = (None, None);
    }

    /// A node's token is gone.
    pub(super) fn vanished(&mut self, name: Name) {
        self.take_down(name, Disconnect::Lost("its liveliness token is gone".into()));
        if let Some(peer) = self.peers.remove(&name) {
            peer.line.end(&mut self.out);
        }
    }

    /// Ends the link to a node, if there is one.
    pub(super) fn take_down(&mut self, name: Name, reason: Disconnect) {
        self.changing();
        let Some(link) = self.peers.get_mut(&name).and_then(|peer| peer.link.take()) else { return };
        let id = link.info.id;
        self.services.is_due = true;
        self.links.remove(&id);
        self.writers.retain(|_, of| *of != id);
        let accepted = link.remote.into_values().filter(|remote| remote.is_accepted);
        let keys = accepted.filter_map(|remote| remote.key).collect();
        self.inbox.push(id, Arrival::Down(Box::new(link.info), reason, keys));
    }

    /// Ends the link to a node and begins another one.
    fn begin_anew(&mut self, name: Name, reason: Disconnect, now_ns: u64) {
        self.take_down(name, reason);
        let (epoch, pause) = (self.draw(now_ns), HELLO_FIRST * self.crowd());
        let Some(peer) = self.peers.get_mut(&name) else { return };
        peer.line.renew(epoch);
        peer.pause = pause;
        peer.say_hello(Instant::now(), &mut self.out);
    }

    /// A mail of a node, behind its name.
    pub(super) fn mail(&mut self, name: Name, bytes: &[u8], now_ns: u64) {
        self.changing();
        let Some(mail) = Mail::parse(bytes) else {
            return self.reject(name, Disconnect::Protocol(FrameError::Empty));
        };
        if !self.peers.contains_key(&name) && self.early.len() < self.most_peers {
            self.early.insert(name);
        }
        let Some(peer) = self.peers.get_mut(&name).filter(|peer| !peer.has_left) else { return };
        if mail.epoch < peer.line.peer_epoch {
            return;
        }
        if mail.epoch > peer.line.peer_epoch {
            if peer.link.is_some() {
                self.begin_anew(name, Disconnect::Lost("the peer began the link anew".into()), now_ns);
            }
            if let Some(peer) = self.peers.get_mut(&name) {
                peer.line.peer_epoch = mail.epoch;
            }
        }
        let Some(peer) = self.peers.get_mut(&name) else { return };
        let is_meant = mail.peer_epoch == peer.line.epoch;
        let is_hello = mail.number == 0;
        let comes_up = is_meant && peer.link.is_none() && !self.is_closing;
        if comes_up {
            self.up(name);
        }
        let Some(peer) = self.peers.get_mut(&name) else { return };
        if is_hello {
            let asks = mail.contents().any(|content| content == Content::Hello { asks: true });
            match asks && !comes_up {
                _ if !is_meant => peer.say_hello(Instant::now(), &mut self.out),
                true => peer.line.send(Content::Hello { asks: false }, &mut self.out),
                // The first mails of the link say the same.
                false => {}
            }
        } else if is_meant && peer.link.is_some() {
            match peer.line.count(mail.number) {
                Came::Again => {}
                Came::Gap => {
                    let reason = "messages between the nodes were lost on the way";
                    self.begin_anew(name, Disconnect::Lost(reason.into()), now_ns);
                }
                Came::Next => {
                    for content in mail.contents() {
                        self.content(name, content, now_ns);
                    }
                }
            }
        }
    }

    fn up(&mut self, name: Name) {
        let State { peers, out, channels, links, inbox, rejections, terms, .. } = self;
        let Some(peer) = peers.get_mut(&name) else { return };
        let address = name.to_string();
        rejections.forget(&address);
        let info = LinkInfo { id: LinkId::next(), peer: name.0, address, principal: Principal::Anonymous };
        links.insert(info.id, name);
        inbox.push(info.id, Arrival::Up(Box::new(info.clone())));
        let mut way = Way { line: &mut peer.line, out };
        let channels = channels.iter().map(|(id, channel)| (*id, channel.start, &*channel.announcement));
        peer.link = Some(Link::begin(info, *terms, &mut way, channels));
    }

    fn content(&mut self, name: Name, content: Content<'_>, now_ns: u64) {
        let is_handed_over = self.is_handed_over();
        let Some((link, mut way, inbox)) = parts(&mut self.peers, &mut self.out, &mut self.inbox, name) else { return };
        match content {
            Content::Hello { .. } => {}
            Content::Join => link.takes_open = true,
            Content::Leave => link.takes_open = false,
            Content::Mark(sent) if is_handed_over => way.line.send(Content::Taken(sent), way.out),
            Content::Mark(sent) => inbox.push(link.info.id, Arrival::Mark(sent)),
            Content::Taken(sent) => {
                link.taken(&mut way, sent);
                self.collect_notices(name);
            }
            Content::Frame(bytes) => {
                let frame = parse_datagram_frame(bytes, &self.terms.limits);
                let result = match frame {
                    Ok(_) if self.inbox.bytes() > self.most_waiting => {
                        let (got, limit) = (self.inbox.bytes() as u64, self.most_waiting);
                        Err(FrameError::TooLong { what: "queue of what came", got, limit })
                    }
                    Ok(frame) => {
                        self.frame(name, frame, bytes);
                        Ok(())
                    }
                    Err(error) => Err(error),
                };
                if let Err(error) = result {
                    self.begin_anew(name, Disconnect::Protocol(error), now_ns);
                }
            }
        }
    }

    fn frame(&mut self, name: Name, frame: Frame<'_>, bytes: &[u8]) {
        let Some((link, mut way, inbox)) = parts(&mut self.peers, &mut self.out, &mut self.inbox, name) else { return };
        let id = link.info.id;
        match frame {
            Frame::Offer { channel, offer } => link.offered = Some((channel, offer.to_vec())),
            Frame::Announce { channel, start, announcement } => self.announced(name, channel, start, *announcement),
            Frame::Answer { channel, answer } => {
                link.answered(&mut way, channel, &answer);
                inbox.push(id, Arrival::Answered(channel, answer));
                self.collect_notices(name);
            }
            Frame::Retire { channel } => {
                if let Some(remote) = link.remote.remove(&channel) {
                    let key = remote.key.filter(|_| remote.is_accepted);
                    inbox.push(id, Arrival::Retired(channel, key));
                    self.writers.remove(&(remote.writer, channel));
                    self.services.is_due |= remote.replies.is_some();
                }
            }
            Frame::Position { channel, start, lost } => {
                let Some(remote) = link.remote.get_mut(&channel) else { return };
                remote.is_open |= lost == 0 && remote.is_accepted;
                if remote.is_open && (lost > 0 || start.sequence > 0) {
                    inbox.push(id, Arrival::Frame(bytes.to_vec()));
                }
            }
            Frame::Data(envelope, _) if link.remote.get(&envelope.channel).is_some_and(|remote| remote.is_open) => {
                inbox.push(id, Arrival::Frame(bytes.to_vec()));
            }
            Frame::Want { .. } | Frame::Document { .. } => inbox.push(id, Arrival::Frame(bytes.to_vec())),
            Frame::Bye => {
                let reason = if self.is_closing {
                    Disconnect::Closed
                } else {
                    way.line.send(Content::Frame(&encoded(&Frame::Bye)), way.out);
                    Disconnect::Bye
                };
                self.take_down(name, reason);
                if let Some(peer) = self.peers.get_mut(&name) {
                    peer.has_left = true;
                }
            }
            _ => {}
        }
    }

    fn announced(&mut self, name: Name, channel: ChannelId, start: Start, mut announcement: Announcement) {
        let Some((link, mut way, _)) = parts(&mut self.peers, &mut self.out, &mut self.inbox, name) else { return };
        if link.remote.contains_key(&channel) {
            return;
        }
        let id = link.info.id;
        if let Err(error) = link.remember(channel, &mut announcement, &self.keys) {
            let answer = Answer::Refuse(error.to_string());
            return link.tell(&mut way, &Frame::Answer { channel, answer });
        }
        // Its messages came before it was known to be a node's.
        self.of_ros(|publishers, hearing| publishers.gone(announcement.writer, hearing));
        let Some((_, _, inbox)) = parts(&mut self.peers, &mut self.out, &mut self.inbox, name) else { return };
        self.writers.entry((announcement.writer, channel)).or_insert(id);
        self.services.is_due = true;
        inbox.push(id, Arrival::Announced(channel, start, Box::new(announcement)));
    }

    /// The link of a message of a Polywire node under the key of its topic. `None` if the node does
    /// not take it.
    pub(super) fn link_of(&self, writer: Id128, channel: ChannelId) -> Option<LinkId> {
        if let Some(near) = self.near.as_ref().filter(|near| (near.writer, near.channel) == (writer, channel)) {
            return Some(near.link);
        }
        let id = self.writers.get(&(writer, channel)).copied()?;
        let link = self.link(id).filter(|link| link.takes_open)?;
        link.remote.get(&channel).is_some_and(|remote| remote.is_open).then_some(id)
    }

    /// The node's end of a link, if it is near, or else the number of changes so far.
    pub(super) fn near(&self, link: LinkId) -> Result<Arc<dyn LinkSink>, u64> {
        let near = self.near.as_ref().filter(|near| near.link == link);
        near.map(|near| near.sink.clone()).ok_or(self.changes)
    }

    /// The next message may come where this one came, unless links have changed since.
    pub(super) fn note_near(&mut self, near: Near, changes: u64) {
        if self.changes == changes {
            self.near = Some(near);
        }
    }

    /// A message of a link, for the node.
    pub(super) fn sample(&mut self, id: LinkId, envelope: &Envelope<'_>, payload: &ZBytes) {
        // What a peer sends beyond its window is lost, which its numbers show.
        if self.inbox.bytes() <= self.most_waiting {
            self.inbox.push(id, Arrival::Message(Message::new(envelope, payload, Origin::Node(None))));
        }
    }

    /// Whether this thread of Zenoh may hand a message over itself: nothing else waits for the
    /// node, and what a callback publishes has room. If so, it does, until [`State::handed`].
    /// Pending if the other thread is about to rest.
    pub(super) fn begin_handing(&mut self, now: Duration) -> Poll<bool> {
        let may = self.handing.is_none()
            && self.inbox.is_empty()
            && self.inline.is_fast(now)
            && !self.is_closing
            && self.out.is_little()
            && self.peers.len() <= FEW
            && self.is_calm();
        if may && !self.hands_rest {
            return Poll::Pending;
        }
        if may {
            self.handing = Some(thread::current().id());
        }
        Poll::Ready(may)
    }

    /// Whether the node has got everything that came.
    fn is_handed_over(&self) -> bool {
        self.hands_rest && self.handing.is_none() && self.inbox.is_empty()
    }

    fn is_calm(&mut self) -> bool {
        let State { is_calm, peers, .. } = self;
        let are_calm = || peers.values().filter_map(|peer| peer.link.as_ref()).all(Link::is_calm);
        *is_calm.get_or_insert_with(are_calm)
    }

    /// This thread has handed a message over, since `began`.
    pub(super) fn handed(&mut self, began: Duration) {
        self.handing = None;
        self.inline.called(began, inline::now());
    }

    /// Whether this thread hands over for Zenoh, so that nothing comes while it waits.
    pub(super) fn is_handing(&self) -> bool {
        self.handing.is_some_and(|handing| handing == thread::current().id())
    }

    /// A message of an application that is not Polywire's.
    pub(super) fn foreign(&mut self, topic: String, said: Said, timestamp_ns: i64, payload: &ZBytes) {
        let State { foreign, inbox, out, schemas, .. } = self;
        foreign.take(topic, said, timestamp_ns, payload.len(), |link, news| {
            schemas.pass(link, arrival_of(news, payload), out, inbox);
        });
    }

    /// Calls `with` for the publishers of ROS 2, and where the node hears of them.
    pub(super) fn of_ros<T>(&mut self, with: impl FnOnce(&mut Publishers, Hearing<'_>) -> T) -> T {
        let State { publishers, foreign, inbox, out, .. } = self;
        with(publishers, Hearing { foreign, inbox, out })
    }

    /// A message on a topic of ROS 2. False if its writer is no Polywire node's.
    pub(super) fn ros_sample(&mut self, writer: Id128, at: Start, payload: &ZBytes) -> bool {
        let channels = (writer, ChannelId(0))..=(writer, ChannelId(u32::MAX));
        let known: Vec<(ChannelId, LinkId)> = self.writers.range(channels).map(|((_, c), link)| (*c, *link)).collect();
        let open = known.iter().rev().find_map(|(channel, id)| {
            let link = self.link(*id).filter(|link| link.takes_open)?;
            let remote = link.remote.get(channel).filter(|remote| remote.is_open && remote.key.is_some())?;
            Some((*id, *channel, remote.header))
        });
        if let Some((id, channel, header)) = open.filter(|_| self.inbox.bytes() <= self.most_waiting) {
            let envelope = Envelope::data(channel, at.sequence, at.timestamp_ns);
            self.inbox.push(id, Arrival::Message(Message::new(&envelope, payload, Origin::Node(header))));
        }
        !known.is_empty()
    }

    /// The node wants a document of a peer. True if it is one of the foreign applications.
    pub(super) fn want(&mut self, link: LinkId, document: Id128) -> bool {
        let is_foreign = self.foreign.is_link(link);
        if is_foreign {
            self.schemas.want(link, document, &mut self.out, &mut self.inbox);
        }
        is_foreign
    }

    /// The answers to a query for a schema: it, or that nobody has it.
    pub(super) fn learn(&mut self, schema: Id128, answer: Answered) {
        self.schemas.learn(schema, answer, &mut self.inbox);
    }

    /// Moves messages of one link that came together to a row, for the node.
    pub(super) fn next_row(&mut self, row: &mut Vec<Message>) -> Option<LinkId> {
        if self.handing.is_some() {
            return None;
        }
        let link = self.inbox.pop_row(TOGETHER, row)?;
        let foreign = row.iter().filter(|message| message.origin == Origin::Foreign);
        foreign.for_each(|message| self.foreign.taken(message.payload.len()));
        Some(link)
    }

    /// This node answers a channel of a peer.
    pub(super) fn answer(&mut self, id: LinkId, channel: ChannelId, answer: Answer) {
        if self.foreign.answered(id, channel, &answer) {
            self.of_ros(|publishers, hearing| publishers.answered(channel, answer.accepts(), hearing));
            return self.requests_answered(channel, &answer);
        }
        let Some((link, mut way)) = self.way(id) else { return };
        link.tell(&mut way, &Frame::Answer { channel, answer });
    }

    /// Notes whether this node accepts a channel of a peer. Returns the key that it listens to from
    /// now on, or no longer.
    pub(super) fn accept(&mut self, id: LinkId, channel: ChannelId, accepts: bool) -> Option<OwnedKeyExpr> {
        self.changing();
        let name = self.links.get(&id)?;
        let remote = self.peers.get_mut(name)?.link.as_mut()?.remote.get_mut(&channel)?;
        // An acceptance is followed by the peer's word from where on messages are for us.
        remote.is_open &= accepts;
        let has_changed = std::mem::replace(&mut remote.is_accepted, accepts) != accepts;
        remote.key.clone().filter(|_| has_changed)
    }

    pub(super) fn link(&self, id: LinkId) -> Option<&Link> {
        self.peers.get(self.links.get(&id)?)?.link.as_ref()
    }

    /// A link, and the way to its peer.
    pub(super) fn way(&mut self, id: LinkId) -> Option<(&mut Link, Way<'_>)> {
        self.changing();
        let peer = self.peers.get_mut(self.links.get(&id)?)?;
        Some((peer.link.as_mut()?, Way { line: &mut peer.line, out: &mut self.out }))
    }

    /// Calls `with` for each link.
    pub(super) fn each_link(&mut self, mut with: impl FnMut(&mut Link, &mut Way<'_>)) {
        self.changing();
        for peer in self.peers.values_mut() {
            if let Some(link) = &mut peer.link {
                with(link, &mut Way { line: &mut peer.line, out: &mut self.out });
            }
        }
    }

    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        self.peers.values().filter_map(|peer| peer.link.as_ref())
    }

    fn collect_notices(&mut self, name: Name) {
        let Some(link) = self.peers.get_mut(&name).and_then(|peer| peer.link.as_mut()) else { return };
        let info = link.info.clone();
        for (topic, count) in link.take_notices() {
            let event = Event::Dropped { link: info.clone(), topic: topic.to_string(), count };
            self.inbox.push(info.id, Arrival::Tell(Box::new(event)));
        }
    }

    fn reject(&mut self, name: Name, reason: Disconnect) {
        let who = name.to_string();
        if let Some(event) = self.rejections.count(&who, who.clone(), reason) {
            self.inbox.push(LinkId(0), Arrival::Tell(Box::new(event)));
        }
    }

    /// Whether there is something for the thread that sends. What leaves while another thread puts
    /// something is that one's, however long the session lets it wait.
    pub(super) fn is_due(&self) -> bool {
        let is_to_leave = !self.out.is_empty() && !self.is_pumping && self.holds_back.is_none();
        is_to_leave || self.schemas.has_queries() || self.services.is_due
    }

    /// Does what is due. Returns whether something will be.
    pub(super) fn keep_time(&mut self, now: Instant) -> bool {
        self.changing();
        let (mut is_busy, is_closing, crowd) = (self.review_services(now), self.is_closing, self.crowd());
        for peer in self.peers.values_mut() {
            let mut way = Way { line: &mut peer.line, out: &mut self.out };
            match &mut peer.link {
                Some(link) => is_busy |= link.keep_time(&mut way, now, crowd, is_closing),
                None if peer.has_left || is_closing => {}
                None => {
                    is_busy = true;
                    if now >= peer.hello_at {
                        peer.say_hello(now, &mut self.out);
                        peer.pause = (2 * peer.pause).min(HELLO_LONGEST * crowd);
                    }
                }
            }
        }
        let has_notices = |peer: &Peer| peer.link.as_ref().is_some_and(Link::has_notices);
        let names: Vec<Name> = self.peers.iter().filter(|(_, p)| has_notices(p)).map(|(name, _)| *name).collect();
        names.into_iter().for_each(|name| self.collect_notices(name));
        is_busy
    }

    /// Whether everything has left this node.
    pub(super) fn is_sent(&self) -> bool {
        self.out.is_empty() && !self.is_pumping && self.links().all(Link::is_sent)
    }

    /// Whether everything has left and the peers have taken it.
    pub(super) fn is_taken(&self) -> bool {
        self.is_sent() && self.links().all(Link::is_taken)
    }
}

type Parts<'a> = (&'a mut Link, Way<'a>, &'a mut Inbox);

/// A link, the way to its peer, and what waits for the node.
fn parts<'a>(
    peers: &'a mut HashMap<Name, Peer>,
    out: &'a mut Outgoing,
    inbox: &'a mut Inbox,
    name: Name,
) -> Option<Parts<'a>> {
    let peer = peers.get_mut(&name)?;
    Some((peer.link.as_mut()?, Way { line: &mut peer.line, out }, inbox))
}

#[cfg(test)]
mod tests {
    use polywire_core::frame::{Hello, Limits};
    use proptest::prelude::*;

    use super::{
        super::{super::Overflow, mail::signed, outgoing::Put},
        *,
    };

    fn node(number: u8) -> State {
        let me = Name(Hello { node: Id128([number; 16]), incarnation: 1 });
        let limits = Limits::default();
        let terms = Terms { overflow: Overflow::DropNewest, queue: 4000, window: 4000, limits };
        State::new(me, Keys::new("").expect("no prefix"), terms, 3)
    }

    /// Hands over the mails of one to the other, except those that are `lost`.
    fn post(from: &mut State, to: &mut State, lost: impl Fn(usize) -> bool) -> usize {
        let mails: Vec<_> = std::iter::from_fn(|| from.out.pop()).collect();
        for (number, put) in mails.iter().enumerate().filter(|(number, _)| !lost(*number)) {
            match put {
                Put::Mail { bytes, .. } => {
                    let (sender, mail) = signed(bytes).expect("a mail");
                    assert_eq!(sender, from.me);
                    to.mail(sender, mail, number as u64);
                }
                Put::Forget { .. } => {}
                _ => panic!("there is no session"),
            }
        }
        mails.len()
    }

    fn settle(a: &mut State, b: &mut State) {
        while post(a, b, |_| false) + post(b, a, |_| false) > 0 {}
    }

    fn linked() -> (State, State) {
        let (mut a, mut b) = (node(1), node(2));
        let announcement = Arc::new(Announcement { topic: "t".into(), writer: Id128([7; 16]), ..Default::default() });
        let channel = Channel { start: Start::default(), announcement, outlet: None, service: None };
        a.channels.insert(ChannelId(1), channel);
        a.appeared(b.me, 5);
        b.appeared(a.me, 5);
        settle(&mut a, &mut b);
        (a, b)
    }

    /// What is in the inbox, in words.
    fn told(state: &mut State) -> Vec<&'static str> {
        let word = |what| match what {
            Arrival::Up(_) => "up",
            Arrival::Announced(..) => "announced",
            Arrival::Answered(..) => "answered",
            Arrival::Frame(_) => "frame",
            Arrival::Retired(..) => "retired",
            Arrival::Mark(_) => "mark",
            Arrival::Down(_, Disconnect::Lost(_), _) => "lost",
            Arrival::Down(_, Disconnect::Bye, _) => "bye",
            Arrival::Down(_, Disconnect::Closed, _) => "closed",
            Arrival::Down(_, Disconnect::Protocol(_), _) => "protocol",
            Arrival::Tell(_) => "event",
            Arrival::Message(_) => "message",
            _ => "?",
        };
        std::iter::from_fn(|| state.inbox.pop()).map(|arrived| word(arrived.what)).collect()
    }

    fn only_link(state: &State) -> LinkId {
        state.links().next().expect("a link").info.id
    }

    #[test]
    fn what_another_thread_is_putting_is_not_due() {
        let mut a = node(1);
        assert!(!a.is_due());
        a.appeared(node(2).me, 5);
        assert!(a.is_due(), "a hello is to leave");
        a.is_pumping = true;
        assert!(!a.is_due(), "the thread that sends would not rest");
    }

    #[test]
    fn two_nodes_have_one_link_and_know_each_others_channels() {
        let (mut a, mut b) = linked();
        assert_eq!((told(&mut a), told(&mut b)), (vec!["up"], vec!["up", "announced"]));
        let link = only_link(&b);
        assert_eq!(b.accept(link, ChannelId(1), true).expect("a key").as_str(), "t");
        assert_eq!(b.accept(link, ChannelId(1), true), None, "nothing has changed");
        b.answer(link, ChannelId(1), Answer::Accept(1));
        settle(&mut a, &mut b);
        assert_eq!(told(&mut a), ["answered"]);
        // From the topic's key, once the peer has said that they are for this node.
        assert_eq!(b.link_of(Id128([7; 16]), ChannelId(1)), Some(link));
        assert_eq!(b.link_of(Id128([8; 16]), ChannelId(1)), None, "nobody's");
        b.sample(link, &Envelope::data(ChannelId(1), 1, 0), &ZBytes::from("hi"));
        assert_eq!(told(&mut b), ["message"]);
        a.channels.remove(&ChannelId(1));
        a.each_link(|link, way| link.retire(way, ChannelId(1)));
        settle(&mut a, &mut b);
        assert_eq!(told(&mut b), ["retired"]);
    }

    #[test]
    fn threads_of_zenoh_hand_over_while_nothing_waits_and_callbacks_are_fast() {
        let (mut a, _) = linked();
        let now = inline::now();
        assert_eq!(a.begin_handing(now), Poll::Ready(false), "something waits");
        told(&mut a);
        assert_eq!(a.begin_handing(now), Poll::Pending, "the thread for it does not rest yet");
        a.hands_rest = true;
        assert_eq!((a.begin_handing(now), a.is_handing()), (Poll::Ready(true), true));
        assert_eq!(a.begin_handing(now), Poll::Ready(false), "a thread does");
        a.inbox.push(LinkId(0), Arrival::Mark(1));
        assert!(a.next_row(&mut Vec::new()).is_none());
        a.handed(now);
        assert_eq!(a.begin_handing(now), Poll::Ready(false), "something waits");
        told(&mut a);
        assert_eq!(a.begin_handing(now), Poll::Ready(true));
        a.handed(now.saturating_sub(Duration::from_secs(1)));
        assert_eq!(a.begin_handing(now), Poll::Ready(false), "a callback was slow");
        let later = now + Duration::from_secs(60);
        let link = only_link(&a);
        let (_, way) = a.way(link).expect("a link");
        (0..60).for_each(|_| way.line.send(Content::Join, way.out));
        assert_eq!(a.begin_handing(later), Poll::Ready(false), "much is to leave");
        while a.out.pop().is_some() {}
        assert_eq!(a.begin_handing(later), Poll::Ready(true));
    }

    #[test]
    fn what_was_handed_over_is_taken_at_once() {
        let (mut a, mut b) = linked();
        told(&mut b);
        b.hands_rest = true;
        let (link, mut way) = a.way(only_link(&a)).expect("a link");
        link.mark(&mut way);
        settle(&mut a, &mut b);
        assert!(told(&mut b).is_empty() && a.is_taken());
    }

    #[test]
    fn a_lost_mail_begins_the_link_anew_with_all_channels() {
        let (mut a, mut b) = linked();
        told(&mut b);
        let link = only_link(&a);
        for document in 1..=3 {
            let (link, mut way) = a.way(link).expect("a link");
            link.tell(&mut way, &Frame::Want { document: Id128([document; 16]) });
            post(&mut a, &mut b, |_| document == 2);
        }
        settle(&mut a, &mut b);
        assert_eq!(told(&mut b), ["frame", "lost", "up", "announced"]);
        assert_eq!(told(&mut a), ["up", "lost", "up"]);
        assert_ne!(only_link(&a), link);
    }

    #[test]
    fn one_of_both_says_hello_and_a_link_takes_three_mails() {
        let (mut a, mut b) = (node(1), node(2));
        b.appeared(a.me, 5);
        assert_eq!(post(&mut b, &mut a, |_| false), 0, "the other one does");
        a.appeared(b.me, 5);
        let counts = [post(&mut a, &mut b, |_| false), post(&mut b, &mut a, |_| false)];
        assert_eq!((counts, post(&mut a, &mut b, |_| false)), ([1, 1], 1));
        assert_eq!((told(&mut a), told(&mut b)), (vec!["up"], vec!["up"]));
    }

    #[test]
    fn who_was_written_to_too_early_says_hello_itself() {
        let (mut a, mut b) = (node(1), node(2));
        a.appeared(b.me, 5);
        post(&mut a, &mut b, |_| false);
        b.appeared(a.me, 5);
        settle(&mut a, &mut b);
        assert_eq!((told(&mut a), told(&mut b)), (vec!["up"], vec!["up"]));
    }

    #[test]
    fn a_lost_hello_is_said_again() {
        let (mut a, mut b) = (node(1), node(2));
        a.appeared(b.me, 5);
        b.appeared(a.me, 5);
        post(&mut a, &mut b, |_| true);
        post(&mut b, &mut a, |_| true);
        assert!(a.keep_time(Instant::now() + 2 * HELLO_FIRST), "something will be due");
        settle(&mut a, &mut b);
        assert_eq!((told(&mut a), told(&mut b)), (vec!["up"], vec!["up"]));
        assert!(!a.keep_time(Instant::now()) && a.is_taken());
    }

    #[test]
    fn what_was_sent_is_asked_for_until_it_is_taken() {
        let (mut a, mut b) = linked();
        told(&mut b);
        assert!(a.is_sent() && !a.is_taken(), "the announcement");
        let later = Instant::now() + Duration::from_secs(5);
        assert!(a.keep_time(later));
        settle(&mut a, &mut b);
        assert_eq!(told(&mut b), ["mark"]);
        let sent = u64::MAX;
        let mail = |state: &mut State, content| {
            let link = only_link(state);
            let (_, way) = state.way(link).expect("a link");
            way.line.send(content, way.out);
        };
        mail(&mut b, Content::Taken(sent));
        settle(&mut a, &mut b);
        assert!(!a.is_taken(), "nobody can take more than was sent");
    }

    #[test]
    fn goodbye_is_answered_and_ends_the_link_at_both_ends() {
        let (mut a, mut b) = linked();
        told(&mut a);
        told(&mut b);
        a.is_closing = true;
        a.each_link(|link, way| link.tell(way, &Frame::Bye));
        settle(&mut a, &mut b);
        assert_eq!((told(&mut a), told(&mut b)), (vec!["closed"], vec!["bye"]));
        b.vanished(a.me);
        assert!(b.peers.is_empty() && told(&mut b).is_empty());
    }

    #[test]
    fn nodes_beyond_the_limit_are_turned_away_and_told() {
        let mut a = node(1);
        (1..=5).for_each(|number| a.appeared(node(number).me, 5));
        assert_eq!((a.peers.len(), told(&mut a)), (3, vec!["event"]));
        a.vanished(node(2).me);
        a.appeared(node(5).me, 5);
        assert_eq!(a.peers.len(), 3);
    }

    proptest! {
        #[test]
        fn hostile_mails_break_no_more_than_their_link(
            mails in proptest::collection::vec((0_u8..7, 0_u64..4, proptest::collection::vec(any::<u8>(), 0..40)), 0..30)
        ) {
            let (mut a, mut b) = linked();
            for (kind, more, body) in mails {
                let (epoch, peer_epoch) = a.peers.get(&b.me).map(|peer| (peer.line.peer_epoch, peer.line.epoch)).expect("b");
                let numbers = [epoch, peer_epoch + more / 2, more].map(u64::to_le_bytes).concat();
                let mail = [&numbers[..], &[kind], &(body.len() as u64).to_le_bytes(), &body].concat();
                a.mail(b.me, &mail, 9);
            }
            settle(&mut a, &mut b);
            prop_assert!(a.peers.len() == 1 && b.peers.len() == 1);
        }
    }
}
