//! The state of a port: the nodes that are present, its links, its channels, and the arrivals that
//! were not handed to the node yet. All functions here run under the port's lock. None of them
//! calls the node or the session.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    task::Poll,
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use polywire_core::{
    directory::NodeData,
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Frame, FrameError, Start, parse_datagram_frame},
};
use zenoh::{bytes::ZBytes, key_expr::OwnedKeyExpr};

use super::{
    super::{
        Disconnect, Event, LinkId, LinkInfo, LinkSink, Principal,
        foreign::{SampleEncoding, Types, Writers},
        inline::{self, Inline},
        outbox::encoded,
        rejections::Rejections,
    },
    end::ServiceEnd,
    inbox::{Arrival, Inbox, Message, Origin, arrival_of},
    key::{Keys, Name},
    link::{Link, Terms, Way},
    mail::{Content, Mail},
    outgoing::{Line, Outgoing, SequenceCheck},
    outlet::Outlet,
    publishers::{NotifyContext, Publishers},
    readers::Readers,
    ros,
    schemas::{Answered, Schemas},
    services::Services,
};

/// The first and the longest pause between two hellos to a node that has not answered, while fewer
/// than [`CROWD`] peers are known.
const HELLO_FIRST: Duration = Duration::from_millis(500);
const HELLO_LONGEST: Duration = Duration::from_secs(4);
/// Each further group of this many peers makes all pauses longer by their basic length, because
/// every exchange takes longer among many nodes.
const CROWD: usize = 8;
/// A thread of Zenoh hands messages over itself only up to this many peers, because it checks all
/// of them for each message.
const FEW: usize = 64;
/// The most messages that are handed to the node together.
pub(super) const TOGETHER: usize = 32;

/// A channel of this node.
pub(super) struct Channel {
    pub(super) start: Start,
    pub(super) announcement: Arc<Announcement>,
    /// `None` if the channel's messages go by mail.
    pub(super) outlet: Option<Arc<Outlet>>,
    /// The end of a service, if foreign applications can call or serve the channel's service.
    pub(super) service: Option<Arc<ServiceEnd>>,
}

impl Channel {
    /// Returns the channel's topic, if it is a topic of ROS 2.
    pub(super) fn ros_topic(&self) -> Option<&ros::Topic> {
        self.outlet.as_ref()?.ros_topic()
    }
}

/// The channel, link and sink of the last message that a thread of Zenoh handed over.
pub(super) struct Near {
    pub(super) writer: Id128,
    pub(super) channel: ChannelId,
    pub(super) link: LinkId,
    pub(super) sink: Arc<dyn LinkSink>,
}

/// Another node whose liveliness token is present.
pub(super) struct Peer {
    pub(super) line: Line,
    pub(super) link: Option<Link>,
    /// Whether the peer has said goodbye.
    pub(super) has_left: bool,
    /// The time of the next hello to the peer, and the pause before the hello after that.
    hello_at: Instant,
    pause: Duration,
}

impl Peer {
    /// Sends a hello, and schedules another one in case the peer does not answer within the pause.
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
    /// The most bytes of arrivals that may wait for the node: a frame, and the windows of all peers
    /// up to 256 MiB.
    pub(super) most_waiting: usize,
    pub(super) channels: BTreeMap<ChannelId, Channel>,
    pub(super) last_channel: u32,
    pub(super) peers: HashMap<Name, Peer>,
    /// Nodes whose mails arrived before their tokens were seen, at most `most_peers`.
    early: HashSet<Name>,
    links: HashMap<LinkId, Name>,
    /// The number of changes of links. Each change resets `near` and `is_calm`.
    changes: u64,
    /// The origin of the last message, because most messages arrive on the same channel as the last
    /// one. `None` if links have changed since.
    near: Option<Near>,
    /// Whether little is under way to every peer. `None` if links have changed since.
    is_calm: Option<bool>,
    /// The link over which each channel of a writer was announced.
    writers: BTreeMap<(Id128, ChannelId), LinkId>,
    pub(super) foreign: Writers,
    /// The publishers and the subscribers of ROS 2 applications.
    pub(super) publishers: Publishers,
    pub(super) readers: Readers,
    pub(super) schemas: Schemas,
    /// The types of the topics of ROS 2 publishers.
    pub(super) types: Types<ChannelId>,
    pub(super) services: Services,
    pub(super) out: Outgoing,
    pub(super) inbox: Inbox,
    pub(super) rejections: Rejections,
    /// Whether a thread is putting the contents of `out` into the session.
    pub(super) is_pumping: bool,
    /// The delivering thread, while it hands over several announcements in a row: it does not put
    /// the answers in `out` before it has handed over the last one.
    pub(super) holds_back: Option<ThreadId>,
    /// Whether the delivering thread waits for arrivals, and whether the sending thread waits until
    /// something is due. Only a thread that waits is woken, because that costs a system call.
    pub(super) delivery_idle: bool,
    pub(super) sender_idle: bool,
    /// The thread of Zenoh that is handing a message to the node, if there is one.
    pub(super) handing: Option<ThreadId>,
    inline: Inline,
    /// The number of threads that wait for room. Notifying nobody would cost a system call.
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
            readers: Readers::default(),
            schemas: Schemas::new(terms.limits.pending_documents),
            types: Types::default(),
            services: Services::default(),
            out: Outgoing::new(terms.queue + terms.window as usize),
            inbox: Inbox::default(),
            rejections: Rejections::new(most_peers),
            is_pumping: false,
            holds_back: None,
            delivery_idle: false,
            sender_idle: false,
            handing: None,
            inline: Inline::default(),
            waiting: 0,
            is_closing: false,
            is_closed: false,
            last_epoch: 0,
        }
    }

    /// Draws an epoch, which is larger than all that this port has drawn before.
    fn draw(&mut self, now_ns: u64) -> u64 {
        self.last_epoch = now_ns.max(self.last_epoch + 1);
        self.last_epoch
    }

    /// Adds a peer whose liveliness token has appeared. Of both nodes, the one with the lesser name
    /// says hello. The other one does so if it received a mail before the token, or if no hello
    /// arrives in time. If the peer is a later incarnation of a node, ends the links to earlier
    /// ones, whose tokens may take a while to disappear.
    pub(super) fn appeared(&mut self, name: Name, now_ns: u64) {
        if name.0.node == self.me.0.node || self.is_closing || self.peers.contains_key(&name) {
            return;
        }
        let is_earlier = |other: &&Name| other.0.node == name.0.node && other.is_before(&name);
        let earlier: Vec<Name> = self.peers.keys().filter(is_earlier).copied().collect();
        earlier.into_iter().for_each(|earlier| self.remove(earlier, Disconnect::Replaced));
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

    /// Returns the factor by which pauses are longer than among few nodes.
    pub(super) fn crowd(&self) -> u32 {
        1 + (self.peers.len() / CROWD) as u32
    }

    /// Notes that a link is about to change.
    fn changing(&mut self) {
        self.changes += 1;
        (self.near, self.is_calm) = (None, None);
    }

    /// Removes a peer whose liveliness token has disappeared.
    pub(super) fn vanished(&mut self, name: Name) {
        self.remove(name, Disconnect::Lost("its liveliness token is gone".into()));
    }

    fn remove(&mut self, name: Name, reason: Disconnect) {
        self.take_down(name, reason);
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

    /// Handles a mail of a node. `bytes` is the mail without its sender.
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
                // No hello is needed: the first mails of a new link contain this node's epoch, too.
                false => {}
            }
        } else if is_meant && peer.link.is_some() {
            match peer.line.count(mail.number) {
                SequenceCheck::Duplicate => {}
                SequenceCheck::Gap => {
                    let reason = "messages between the nodes were lost on the way";
                    self.begin_anew(name, Disconnect::Lost(reason.into()), now_ns);
                }
                SequenceCheck::Next => {
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
            Content::Join => link.reads_topic_keys = true,
            Content::Leave => link.reads_topic_keys = false,
            Content::Mark(sent) if is_handed_over => way.line.send(Content::Ack(sent), way.out),
            Content::Mark(sent) => inbox.push(link.info.id, Arrival::Mark(sent)),
            Content::Ack(sent) => {
                link.acknowledged(&mut way, sent);
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
                let start = self.channels.get(&channel).map(|channel| channel.start).unwrap_or_default();
                link.answered(&mut way, channel, &answer, start);
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
                remote.is_positioned |= lost == 0 && remote.is_accepted;
                if remote.is_positioned && (lost > 0 || start.sequence > 0) {
                    inbox.push(id, Arrival::Frame(bytes.to_vec()));
                }
            }
            Frame::Data(envelope, _)
                if link.remote.get(&envelope.channel).is_some_and(|remote| remote.is_positioned) =>
            {
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
        // Messages of the writer may have arrived before it was known to belong to a Polywire node.
        // Until then, the writer counted as a publisher of ROS 2.
        self.of_ros(|publishers, context| publishers.remove(announcement.writer, context));
        let Some((_, _, inbox)) = parts(&mut self.peers, &mut self.out, &mut self.inbox, name) else { return };
        self.writers.entry((announcement.writer, channel)).or_insert(id);
        self.services.is_due = true;
        inbox.push(id, Arrival::Announced(channel, start, Box::new(announcement)));
    }

    /// Returns the link of a message that a Polywire node has put under the key of its topic.
    /// `None` if this node does not read messages of the channel from there.
    pub(super) fn link_of(&self, writer: Id128, channel: ChannelId) -> Option<LinkId> {
        if let Some(near) = self.near.as_ref().filter(|near| (near.writer, near.channel) == (writer, channel)) {
            return Some(near.link);
        }
        let id = self.writers.get(&(writer, channel)).copied()?;
        let link = self.link(id).filter(|link| link.reads_topic_keys)?;
        link.remote.get(&channel).is_some_and(|remote| remote.is_positioned).then_some(id)
    }

    /// Returns the sink of a link, if the last message arrived on that link, or else the number of
    /// changes of links so far.
    pub(super) fn near(&self, link: LinkId) -> Result<Arc<dyn LinkSink>, u64> {
        let near = self.near.as_ref().filter(|near| near.link == link);
        near.map(|near| near.sink.clone()).ok_or(self.changes)
    }

    /// Notes where a message has arrived, for the next message, unless links have changed since the
    /// number of changes was `changes`.
    pub(super) fn note_near(&mut self, near: Near, changes: u64) {
        if self.changes == changes {
            self.near = Some(near);
        }
    }

    /// Adds a message of a link to the inbox.
    pub(super) fn sample(&mut self, id: LinkId, envelope: &Envelope<'_>, payload: &ZBytes) {
        // Messages that peers send beyond their windows are lost. The gap in their sequence numbers
        // shows the loss.
        if self.inbox.bytes() <= self.most_waiting {
            self.inbox.push(id, Arrival::Message(Message::new(envelope, payload, Origin::Node(None))));
        }
    }

    /// Decides whether this thread of Zenoh may hand a message to the node itself: nothing else
    /// waits for the node, and there is room for what a callback publishes. If so, the thread
    /// counts as handing over until [`State::handed`]. Pending if the delivering thread does not
    /// wait yet, but is about to.
    pub(super) fn begin_handing(&mut self, now: Duration) -> Poll<bool> {
        let may = self.handing.is_none()
            && self.inbox.is_empty()
            && self.inline.is_fast(now)
            && !self.is_closing
            && self.out.is_little()
            && self.peers.len() <= FEW
            && self.is_calm();
        if may && !self.delivery_idle {
            return Poll::Pending;
        }
        if may {
            self.handing = Some(thread::current().id());
        }
        Poll::Ready(may)
    }

    /// Whether the node has received everything that has arrived.
    fn is_handed_over(&self) -> bool {
        self.delivery_idle && self.handing.is_none() && self.inbox.is_empty()
    }

    fn is_calm(&mut self) -> bool {
        let State { is_calm, peers, .. } = self;
        let are_calm = || peers.values().filter_map(|peer| peer.link.as_ref()).all(Link::is_calm);
        *is_calm.get_or_insert_with(are_calm)
    }

    /// Notes that this thread has handed a message over, which took from `began` until now.
    pub(super) fn handed(&mut self, began: Duration) {
        self.handing = None;
        self.inline.called(began, inline::now());
    }

    /// Whether this thread is a thread of Zenoh that is handing a message over. Nothing arrives
    /// while such a thread waits.
    pub(super) fn is_handing(&self) -> bool {
        self.handing.is_some_and(|handing| handing == thread::current().id())
    }

    /// Handles a message of a foreign application, one that is not Polywire's.
    pub(super) fn foreign(&mut self, topic: String, encoding: SampleEncoding, timestamp_ns: i64, payload: &ZBytes) {
        let State { foreign, inbox, out, schemas, .. } = self;
        foreign.take(topic, encoding, timestamp_ns, payload.len(), |link, news| {
            schemas.pass(link, arrival_of(news, payload), out, inbox);
        });
    }

    /// Calls `with` for the publishers of ROS 2 and the parts of the state that they change.
    pub(super) fn of_ros<T>(&mut self, with: impl FnOnce(&mut Publishers, NotifyContext<'_>) -> T) -> T {
        let State { publishers, foreign, inbox, out, .. } = self;
        with(publishers, NotifyContext { foreign, inbox, out })
    }

    /// Updates the answers of ROS 2 subscribers to this node's channels on topics of this name,
    /// after such a subscriber has appeared or disappeared, or a channel was announced. The answers
    /// arrive over the link of all foreign applications.
    pub(super) fn readers_changed(&mut self, name: &str) {
        if !self.readers.know(name) && !self.foreign.has_link() {
            return;
        }
        let State { readers, foreign, inbox, channels, .. } = self;
        let link = foreign.link(|link, news| inbox.push(link, arrival_of(news, &ZBytes::new())));
        for (id, channel) in channels {
            if let Some(topic) = channel.ros_topic().filter(|topic| topic.name == name) {
                inbox.push(link, Arrival::Answered(*id, readers.answer(topic)));
            }
        }
    }

    /// Returns the nodes of ROS 2 applications that have subscribers, as seen at this endpoint.
    pub(super) fn foreign_readers(&self, endpoint: &str) -> Vec<NodeData> {
        let own =
            self.channels.values().filter_map(|channel| Some((channel.ros_topic()?, channel.announcement.writer)));
        self.readers.nodes(endpoint, own.chain(self.publishers.writers()))
    }

    /// Handles a message on a topic of ROS 2. False if no Polywire node has announced its writer.
    pub(super) fn ros_sample(&mut self, writer: Id128, at: Start, payload: &ZBytes) -> bool {
        let channels = (writer, ChannelId(0))..=(writer, ChannelId(u32::MAX));
        let known: Vec<(ChannelId, LinkId)> = self.writers.range(channels).map(|((_, c), link)| (*c, *link)).collect();
        let source = known.iter().rev().find_map(|(channel, id)| {
            let link = self.link(*id).filter(|link| link.reads_topic_keys)?;
            let remote = link.remote.get(channel).filter(|remote| remote.is_positioned && remote.key.is_some())?;
            Some((*id, *channel, remote.header))
        });
        if let Some((id, channel, header)) = source.filter(|_| self.inbox.bytes() <= self.most_waiting) {
            let envelope = Envelope::data(channel, at.sequence, at.timestamp_ns);
            self.inbox.push(id, Arrival::Message(Message::new(&envelope, payload, Origin::Node(header))));
        }
        !known.is_empty()
    }

    /// Handles the node's request for a document. Returns true if the link is that of the foreign
    /// applications. Otherwise the caller must ask the peer.
    pub(super) fn want(&mut self, link: LinkId, document: Id128) -> bool {
        let is_foreign = self.foreign.is_link(link);
        if let Some(bytes) = self.types.with_id(document).filter(|_| is_foreign).cloned() {
            self.inbox.push_first(link, Arrival::Document(document, Some(bytes)));
        } else if is_foreign {
            self.schemas.want(link, document, &mut self.out, &mut self.inbox);
        }
        is_foreign
    }

    /// Handles the result of a query for a schema: the schema, or that nobody has it.
    pub(super) fn learn(&mut self, schema: Id128, answer: Answered) {
        self.schemas.learn(schema, answer, &mut self.inbox);
    }

    /// Moves consecutive messages of one link from the inbox to `row`, for the node. Returns the
    /// link, or `None` if no message is next or a thread of Zenoh is handing over.
    pub(super) fn next_row(&mut self, row: &mut Vec<Message>) -> Option<LinkId> {
        if self.handing.is_some() {
            return None;
        }
        let link = self.inbox.pop_row(TOGETHER, row)?;
        let foreign = row.iter().filter(|message| message.origin == Origin::Foreign);
        foreign.for_each(|message| self.foreign.taken(message.payload.len()));
        Some(link)
    }

    /// Passes on this node's answer to a channel of a peer or of a foreign application.
    pub(super) fn answer(&mut self, id: LinkId, channel: ChannelId, answer: Answer) {
        if self.foreign.answered(id, channel, &answer) {
            self.of_ros(|publishers, context| publishers.answered(channel, answer.accepts(), context));
            return self.requests_answered(channel, &answer);
        }
        let Some((link, mut way)) = self.way(id) else { return };
        link.tell(&mut way, &Frame::Answer { channel, answer });
    }

    /// Notes whether this node accepts a channel of a peer. If that has changed, returns the key to
    /// which this node must begin or stop listening.
    pub(super) fn accept(&mut self, id: LinkId, channel: ChannelId, accepts: bool) -> Option<OwnedKeyExpr> {
        self.changing();
        let name = self.links.get(&id)?;
        let remote = self.peers.get_mut(name)?.link.as_mut()?.remote.get_mut(&channel)?;
        // After an acceptance, the peer sends a Position, from which on messages are for this node.
        remote.is_positioned &= accepts;
        let has_changed = std::mem::replace(&mut remote.is_accepted, accepts) != accepts;
        remote.key.clone().filter(|_| has_changed)
    }

    pub(super) fn link(&self, id: LinkId) -> Option<&Link> {
        self.peers.get(self.links.get(&id)?)?.link.as_ref()
    }

    /// Returns a link, and the way to its peer.
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

    /// Whether there is work for the sending thread. If another thread puts something, that thread
    /// puts everything added meanwhile, however long the session blocks it.
    pub(super) fn is_due(&self) -> bool {
        let is_to_leave = !self.out.is_empty() && !self.is_pumping && self.holds_back.is_none();
        is_to_leave || self.schemas.has_queries() || self.services.is_due
    }

    /// Does what is due at `now`. Returns whether something will become due as time passes.
    pub(super) fn keep_time(&mut self, now: Instant) -> bool {
        self.changing();
        self.review_types(now);
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

    /// Whether everything has left and the peers have acknowledged it.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.is_sent() && self.links().all(Link::is_acknowledged)
    }
}

type Parts<'a> = (&'a mut Link, Way<'a>, &'a mut Inbox);

/// Returns the link to a node, the way to that peer, and the inbox.
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
mod tests;
