//! One node: its writers and subscriptions, and a session with each other node.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use polywire_core::{
    codec::stateful::{Mode, StatefulReader, StatefulWriter},
    envelope::{Announcement, ChannelId, Envelope, ExtensionsBuf, Id128, Kind},
    frame::{self, Answer, DatagramDecoder, DatagramEncoder, Frame, Hello, Start, Step, StreamDecoder, StreamEncoder},
    session::{self, Budget, Carrier, Decision, Event, Fetch, KeyRequests, Limits, Output, Repeat, Session},
};

use super::{
    Shared, TOPICS, Wire, expected,
    values::{Format, Sent, Track},
};

/// The reason given by a subscriber that cannot read a channel.
pub const INCOMPATIBLE: &str = "the reader has another type";
/// A datagram with this many bytes takes no further frame.
const DATAGRAM: usize = 1200;
/// The even extension that says which request a reply is for.
const REPLY_TO: u32 = 4;
/// Channels, documents and stray outputs that a session may hold.
const HELD: usize = 64;

/// A node's use of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    None,
    /// This many subscribers read it.
    Reads(u32),
    /// A subscriber cannot read it.
    Refuses,
    /// Some can and one cannot.
    Both(u32),
}

pub struct Node {
    number: usize,
    /// `None` before the node starts.
    incarnation: Option<u64>,
    datagrams: (DatagramEncoder, DatagramDecoder),
    documents: BTreeMap<Id128, Vec<u8>>,
    writers: BTreeMap<ChannelId, Writer>,
    interests: [Interest; TOPICS],
    peers: BTreeMap<usize, Peer>,
    packets: BTreeMap<usize, VecDeque<Vec<u8>>>,
    budget: Budget,
}

struct Writer {
    topic: usize,
    announcement: Arc<Announcement>,
    stream: Option<StatefulWriter>,
    requests: KeyRequests,
    sequence: u64,
    value: Track,
}

struct Peer {
    session: Session,
    incarnation: u64,
    readers: BTreeMap<ChannelId, Reader>,
    streams: (StreamEncoder, StreamDecoder),
    /// On streams, each direction of a link numbers its own channels.
    on_wire: BTreeMap<ChannelId, ChannelId>,
    input: Vec<u8>,
    /// The content of the next packet.
    out: Vec<u8>,
    wire: Wire,
}

struct Reader {
    stream: Option<StatefulReader>,
    value: Track,
    read: u64,
    waits_for_key: bool,
}

impl Node {
    pub fn new(number: usize) -> Node {
        let frames = DatagramEncoder::new(Id128([number as u8 + 1; 16]), 0, frame::Limits::default());
        Node {
            number,
            incarnation: None,
            datagrams: (frames, DatagramDecoder::default()),
            documents: BTreeMap::new(),
            writers: BTreeMap::new(),
            interests: [Interest::None; TOPICS],
            peers: BTreeMap::new(),
            packets: BTreeMap::new(),
            budget: Budget::new(1 << 20),
        }
    }

    // Changes that the simulation makes.

    /// Starts, or restarts with its identity only.
    pub fn start(&mut self, incarnation: u64, others: &[usize], shared: &mut Shared<'_>) {
        *self = Node::new(self.number);
        self.incarnation = Some(incarnation);
        let hello = self.hello();
        self.datagrams.0 = DatagramEncoder::new(hello.node, incarnation, frame::Limits::default());
        others.iter().for_each(|other| self.connect(*other, shared));
        self.interests = std::array::from_fn(|_| random_interest(shared));
        for _ in 0..1 + shared.random.below(2) {
            self.add_writer(shared);
        }
    }

    /// Begins a session. On a stream, both ends do so when the later one starts.
    pub fn connect(&mut self, other: usize, shared: &mut Shared<'_>) {
        let carrier = match shared.wire {
            Wire::Datagrams => Carrier::Lossy(Repeat::default()),
            Wire::Streams => Carrier::Reliable,
        };
        let limits = Limits { channels: HELD, asked_documents: HELD, stray_outputs: HELD, ..Limits::default() };
        let mut session = Session::new(limits, carrier, self.budget.clone());
        for (channel, writer) in &self.writers {
            let start = Start { sequence: writer.sequence, timestamp_ns: 0 };
            session.announce(*channel, start, &writer.announcement, shared.time());
        }
        let mut out = Vec::new();
        let streams = (StreamEncoder::default(), StreamDecoder::default());
        if shared.wire == Wire::Streams {
            let hello = self.hello();
            StreamEncoder::default().hello(&hello, &mut out);
        }
        let peer = Peer {
            session,
            incarnation: 0,
            readers: BTreeMap::new(),
            streams,
            on_wire: BTreeMap::new(),
            input: Vec::new(),
            out,
            wire: shared.wire,
        };
        self.peers.insert(other, peer);
        self.drive(other, shared);
    }

    pub fn add_writer(&mut self, shared: &mut Shared<'_>) {
        let Some(incarnation) = self.incarnation else { return };
        let channel = self.datagrams.0.open().expect("few channels");
        let random = &mut shared.random;
        let topic = random.below(TOPICS);
        let mut documents = (0..3).map(|part| {
            let bytes = format!("{part} of topic {topic}").repeat(1 + random.below(20)).into_bytes();
            let id = Id128::of_document(&bytes);
            shared.documents.insert(id, bytes.clone());
            self.documents.insert(id, bytes);
            id
        });
        let mut next = || documents.next().expect("three of them");
        let (schema, dictionary, configuration) = (next(), next(), next());
        let format = match shared.random.below(3) {
            0 => Format::Plain,
            1 => Format::Stateful(Mode::Anchored),
            _ => Format::Stateful(Mode::Chained),
        };
        let announcement = Announcement {
            topic: topic.to_string(),
            writer: Id128([self.number as u8 + 1; 16]),
            incarnation,
            schema,
            codec: if format == Format::Plain { "cdr" } else { "fast" }.into(),
            compressor: if shared.random.one_in(2) { format!("zstd:3,dict={dictionary}") } else { String::new() },
            configuration: shared.random.one_in(2).then_some(configuration),
            ..Announcement::default()
        };
        shared.announced.insert((self.number, incarnation, channel), announcement.clone());
        let writer = Writer {
            topic,
            announcement: Arc::new(announcement),
            stream: shared.codecs.writer(format),
            requests: KeyRequests::new(&Limits::default()),
            sequence: 0,
            value: Track::default(),
        };
        for peer in self.peers.values_mut() {
            peer.session.announce(channel, Start::default(), &writer.announcement, shared.time());
        }
        self.writers.insert(channel, writer);
        self.drive_all(shared);
    }

    pub fn retire_writer(&mut self, shared: &mut Shared<'_>) {
        let channels: Vec<ChannelId> = self.writers.keys().copied().collect();
        if channels.is_empty() {
            return;
        }
        let channel = *shared.random.choose(&channels);
        shared.seen.retired += 1;
        self.writers.remove(&channel);
        self.peers.values_mut().for_each(|peer| peer.session.retire(channel, shared.time()));
        self.drive_all(shared);
    }

    pub fn change_interest(&mut self, shared: &mut Shared<'_>) {
        if !self.is_up() {
            return;
        }
        let topic = shared.random.below(TOPICS);
        self.interests[topic] = random_interest(shared);
        let name = topic.to_string();
        self.peers.values_mut().for_each(|peer| peer.session.reconsider_topic(&name, |_| true));
        self.drive_all(shared);
    }

    /// Each writer publishes a message.
    pub fn publish(&mut self, shared: &mut Shared<'_>) {
        let Some(incarnation) = self.incarnation else { return };
        let channels: Vec<ChannelId> = self.writers.keys().copied().collect();
        for channel in channels {
            let Some(writer) = self.writers.get_mut(&channel) else { continue };
            writer.sequence += 1;
            writer.value.walk(&mut shared.random);
            if writer.requests.take(shared.time())
                && let Some(stream) = &mut writer.stream
            {
                stream.request_key_frame();
            }
            let kind = match shared.random.below(3) {
                0 => *shared.random.choose(&Kind::ALL),
                _ => Kind::Data,
            };
            let keyed = matches!(kind, Kind::Dispose | Kind::Unregister);
            let sent = Sent {
                kind,
                key_hash: keyed.then(|| writer.value.key_hash()),
                reply_to: (kind == Kind::Reply).then(|| shared.random.bits()),
                value: writer.value.clone(),
            };
            let mut payload = Vec::new();
            let anchor = shared.codecs.encode(writer.stream.as_mut(), writer.sequence, &sent.value, &mut payload);
            if anchor == Some(writer.sequence) {
                writer.requests.served();
            }
            let mut extensions = ExtensionsBuf::default();
            if let Some(request) = sent.reply_to {
                extensions.push(REPLY_TO, &request.to_le_bytes());
            }
            let plain = Envelope::data(channel, writer.sequence, shared.now as i64);
            let extensions = extensions.as_extensions();
            let envelope = Envelope { kind, key_hash: sent.key_hash, anchor, extensions, ..plain };
            shared.sent.insert((self.number, incarnation, channel, writer.sequence), sent);
            for (to, peer) in &mut self.peers {
                if peer.session.answer(channel).is_some_and(Answer::accepts) {
                    let frames = &self.datagrams.0;
                    peer.message(frames, &envelope, &payload, self.packets.entry(*to).or_default());
                }
            }
        }
    }

    pub fn handle_timeout(&mut self, shared: &mut Shared<'_>) {
        let now = shared.time();
        let due = |peer: &Peer| peer.session.next_timeout().is_some_and(|at| at <= now);
        let late: Vec<usize> = self.peers.iter().filter(|(_, peer)| due(peer)).map(|(other, _)| *other).collect();
        for other in late {
            if let Some(peer) = self.peers.get_mut(&other) {
                peer.session.handle_timeout(now);
            }
            self.drive(other, shared);
        }
    }

    /// The next packet for another node.
    pub fn packet(&mut self, to: usize) -> Option<Vec<u8>> {
        let packets = self.packets.entry(to).or_default();
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.flush(&self.datagrams.0, packets);
        }
        packets.pop_front()
    }

    pub fn receive(&mut self, from: usize, packet: &[u8], shared: &mut Shared<'_>) {
        match shared.wire {
            _ if !self.is_up() => {}
            Wire::Datagrams => self.receive_datagram(from, packet, shared),
            Wire::Streams => self.receive_bytes(from, packet, shared),
        }
    }

    pub fn forget_values(&mut self) {
        let readers = self.peers.values_mut().flat_map(|peer| peer.readers.values_mut());
        readers.for_each(|reader| reader.read = 0);
    }

    // Questions of the simulation.

    pub fn is_up(&self) -> bool {
        self.incarnation.is_some()
    }

    pub fn incarnation(&self) -> u64 {
        self.incarnation.unwrap_or(0)
    }

    pub fn interest(&self, topic: usize) -> Interest {
        self.interests[topic]
    }

    /// Its channels with their topics.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelId, usize)> {
        self.writers.iter().map(|(channel, writer)| (*channel, writer.topic))
    }

    pub fn next_timeout(&self) -> Option<u64> {
        self.peers.values().filter_map(|peer| peer.session.next_timeout()).map(|at| at.as_nanos() as u64).min()
    }

    /// Whether it knows that another node has this interest in a channel of its own.
    pub fn is_answered(&self, other: usize, channel: ChannelId, interest: Interest) -> bool {
        self.peers.get(&other).is_some_and(|peer| peer.session.answer(channel) == Some(&expected(interest)))
    }

    /// Whether it knows a channel of another node, as that one announced it.
    pub fn knows(&self, other: usize, writer: &Node, channel: ChannelId) -> bool {
        let Some(peer) = self.peers.get(&other) else { return false };
        let id = match peer.wire {
            Wire::Datagrams => Some(channel),
            Wire::Streams => writer.peers.get(&self.number).and_then(|peer| peer.on_wire.get(&channel)).copied(),
        };
        let known = id.and_then(|id| peer.session.announcement(id));
        known.is_some_and(|known| writer.writers.get(&channel).is_some_and(|writer| writer.announcement == *known))
    }

    pub fn known_channels(&self, other: usize) -> usize {
        self.peers.get(&other).map_or(0, |peer| peer.session.channels().count())
    }

    /// Whether every reader has got a value since [`Node::forget_values`].
    pub fn has_values(&self) -> bool {
        self.peers.values().flat_map(|peer| peer.readers.values()).all(|reader| reader.read > 0)
    }

    // The driver of its sessions.

    fn hello(&self) -> Hello {
        Hello { node: Id128([self.number as u8 + 1; 16]), incarnation: self.incarnation() }
    }

    fn drive_all(&mut self, shared: &mut Shared<'_>) {
        let others: Vec<usize> = self.peers.keys().copied().collect();
        others.into_iter().for_each(|other| self.drive(other, shared));
    }

    /// Polls all outputs and events of the session.
    fn drive(&mut self, other: usize, shared: &mut Shared<'_>) {
        while let Some(peer) = self.peers.get_mut(&other) {
            let load = peer.session.load();
            let bound = 3 * (load.remote + load.local) + load.asked + 2 * HELD;
            let is_bounded = load.remote <= HELD && load.asked <= HELD && load.outputs <= bound && load.events <= bound;
            assert!(is_bounded, "{load:?} exceeds the limits");
            if let Some(output) = peer.session.poll_output() {
                self.send(other, &output, shared);
            } else if let Some(event) = peer.session.poll_event() {
                self.handle(other, event, shared);
            } else {
                break;
            }
        }
    }

    fn send(&mut self, other: usize, output: &Output, shared: &mut Shared<'_>) {
        let Some(peer) = self.peers.get_mut(&other) else { return };
        let mut bytes = None;
        if let Output::Supply { document } = output {
            bytes = self.documents.get(document).cloned();
            if shared.wire == Wire::Datagrams && shared.random.one_in(8) {
                // Sometimes other bytes are sent, and sometimes none.
                shared.seen.forged += 1;
                bytes = shared.random.one_in(2).then(|| b"forged".to_vec());
            }
        }
        let packets = self.packets.entry(other).or_default();
        peer.output(&self.datagrams.0, output, bytes.as_deref(), packets);
    }

    fn handle(&mut self, other: usize, event: Event, shared: &mut Shared<'_>) {
        match event {
            Event::Decide { channel, .. } => self.decide(other, channel, shared),
            Event::Closed { channel } => {
                let peer = self.peers.get_mut(&other).expect("it has the event");
                peer.readers.remove(&channel);
            }
            Event::Matched { channel, key_requested, incompatible, .. } => {
                shared.seen.refused += u64::from(incompatible.is_some());
                if let Some(writer) = self.writers.get_mut(&channel).filter(|_| key_requested) {
                    writer.requests.ask();
                }
            }
        }
    }

    fn decide(&mut self, other: usize, channel: ChannelId, shared: &mut Shared<'_>) {
        let peer = self.peers.get_mut(&other).expect("it has the event");
        let announced = peer.session.announcement(channel).expect("it is open").clone();
        let topic: usize = announced.topic.parse().expect("a number");
        let (readers, incompatible) = match self.interests[topic] {
            Interest::None => (0, None),
            Interest::Reads(count) => (count, None),
            Interest::Refuses => (0, Some(INCOMPATIBLE)),
            Interest::Both(count) => (count, Some(INCOMPATIBLE)),
        };
        let needed = session::documents(&announced).into_iter().flatten().filter(|_| readers > 0);
        if let Some(missing) = needed.into_iter().find(|id| !self.documents.contains_key(id)) {
            match peer.session.fetch(channel, missing, shared.time()) {
                Fetch::Pending => {}
                Fetch::Failed(reason) => {
                    let decision = Decision { incompatible: Some(&reason), ..Decision::default() };
                    peer.session.settle(channel, decision, shared.time());
                }
            }
            return;
        }
        let mut needs_key_frame = false;
        match readers {
            0 => drop(peer.readers.remove(&channel)),
            _ => {
                let stream = || shared.codecs.reader(announced.codec == "fast");
                let new = || Reader { stream: stream(), value: Track::default(), read: 0, waits_for_key: true };
                let reader = peer.readers.entry(channel).or_insert_with(new);
                reader.waits_for_key &= reader.stream.is_some();
                needs_key_frame = reader.waits_for_key;
            }
        }
        peer.session.settle(channel, Decision { readers, incompatible, needs_key_frame }, shared.time());
    }

    // Incoming packets and frames.

    fn receive_datagram(&mut self, from: usize, packet: &[u8], shared: &mut Shared<'_>) {
        let Ok(datagram) = self.datagrams.1.open(packet) else { return };
        let hello = Hello { node: datagram.node, incarnation: datagram.incarnation };
        let frames: Vec<_> = datagram.map(|frame| frame.expect("the checksum was right")).collect();
        let peer = self.peers.get_mut(&from).expect("every node has a session with every other");
        assert!(peer.session.handle_peer(hello, shared.time()), "the decoder drops old incarnations");
        peer.incarnation = hello.incarnation;
        self.drive(from, shared);
        for frame in frames {
            self.frame(from, frame, shared);
        }
    }

    fn receive_bytes(&mut self, from: usize, bytes: &[u8], shared: &mut Shared<'_>) {
        let peer = self.peers.get_mut(&from).expect("a link");
        peer.input.extend_from_slice(bytes);
        let (input, mut decoder) = (std::mem::take(&mut peer.input), std::mem::take(&mut peer.streams.1));
        let mut rest = &input[..];
        while let Step::Frame { frame, used } = decoder.step(rest).expect("nothing is damaged") {
            rest = &rest[used..];
            self.frame(from, frame, shared);
        }
        let peer = self.peers.get_mut(&from).expect("a link");
        (peer.input, peer.streams.1) = (rest.to_vec(), decoder);
    }

    fn frame(&mut self, from: usize, frame: Frame<'_>, shared: &mut Shared<'_>) {
        let now = shared.time();
        let Some(peer) = self.peers.get_mut(&from) else { return };
        match frame {
            Frame::Hello(hello) => {
                peer.session.handle_peer(hello, now);
                peer.incarnation = hello.incarnation;
            }
            Frame::Announce { channel, start, announcement } => {
                if shared.wire == Wire::Datagrams {
                    assert_eq!(shared.announced[&(from, peer.incarnation, channel)], *announcement);
                }
                shared.seen.repeated += u64::from(peer.session.announcement(channel).is_some());
                if let Err(exceeded) = peer.session.handle_announce(channel, start, &announcement, now) {
                    peer.session.refuse(channel, &exceeded.to_string());
                }
            }
            Frame::Answer { channel, answer } => {
                if let Some(channel) = peer.ours(channel) {
                    peer.session.handle_answer(channel, &answer);
                }
            }
            Frame::Retire { channel } => peer.session.handle_retire(channel),
            Frame::Want { document } => peer.session.handle_want(document),
            Frame::Document { document, bytes } => {
                if let Some(verified) = peer.session.handle_document(document, bytes, now) {
                    assert_eq!(shared.documents[&document], verified.bytes(), "a wrong document");
                    shared.seen.documents += 1;
                    self.documents.insert(document, verified.bytes().to_vec());
                    self.peers.values_mut().for_each(|peer| peer.session.document_arrived(document));
                    return self.drive_all(shared);
                }
            }
            Frame::Data(envelope, payload) => self.data(from, &envelope, payload, shared),
            other => panic!("nobody sends {other:?}"),
        }
        self.drive(from, shared);
    }

    fn data(&mut self, from: usize, envelope: &Envelope<'_>, payload: &[u8], shared: &mut Shared<'_>) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let Some(reader) = peer.readers.get_mut(&envelope.channel) else { return };
        let Envelope { sequence, anchor, .. } = *envelope;
        let read = shared.codecs.decode(reader.stream.as_mut(), sequence, anchor, payload, &mut reader.value);
        if reader.stream.is_some() {
            let needs_key = reader.stream.as_ref().is_some_and(StatefulReader::needs_key_frame);
            let waits = needs_key || (reader.waits_for_key && !read);
            match waits {
                true => {
                    peer.session.request_key(envelope.channel, shared.time());
                }
                false if reader.waits_for_key => peer.session.key_arrived(envelope.channel),
                false => {}
            }
            reader.waits_for_key = waits;
        }
        let seen = &mut *shared.seen;
        if !read {
            seen.unreadable += 1;
            return;
        }
        reader.read += 1;
        let reply_to = envelope
            .extensions
            .iter()
            .find(|(id, _)| *id == REPLY_TO)
            .map(|(_, bytes)| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        let got = Sent { kind: envelope.kind, key_hash: envelope.key_hash, reply_to, value: reader.value.clone() };
        if shared.wire == Wire::Datagrams {
            let sent = &shared.sent[&(from, peer.incarnation, envelope.channel, sequence)];
            assert_eq!(got, *sent, "a wrong message");
        } else {
            let announced = peer.session.announcement(envelope.channel).expect("it is open");
            let of_writer = |(node, _, channel, number): &(usize, u64, ChannelId, u64)| {
                (*node, *number) == (from, sequence) && shared.announced[&(*node, 1, *channel)] == **announced
            };
            assert!(shared.sent.iter().any(|(key, sent)| of_writer(key) && *sent == got), "a wrong message");
        }
        match envelope.kind {
            Kind::Dispose => seen.disposed += 1,
            Kind::Unregister => seen.unregistered += 1,
            Kind::Request => seen.requests += 1,
            Kind::Reply => seen.replies += 1,
            _ => seen.values += 1,
        }
        match anchor {
            Some(anchor) if anchor == sequence => seen.keys += 1,
            Some(_) => seen.anchored += 1,
            None => seen.chained += u64::from(reader.stream.is_some()),
        }
    }
}

impl Peer {
    /// Adds an output to the next packet.
    fn output(
        &mut self,
        datagrams: &DatagramEncoder,
        output: &Output,
        document: Option<&[u8]>,
        packets: &mut VecDeque<Vec<u8>>,
    ) {
        if self.wire == Wire::Datagrams {
            self.room(datagrams, packets);
            datagrams.control(&output.frame(document), &mut self.out);
            return;
        }
        let Peer { streams: (encoder, _), on_wire, out, .. } = self;
        match output {
            Output::Announce { channel, start, announcement } => {
                assert!(!on_wire.contains_key(channel), "{channel} was announced before");
                let id = encoder.announce(announcement, *start, out).expect("within the limits");
                on_wire.insert(*channel, id);
            }
            Output::Retire { channel } => {
                let id = on_wire.remove(channel).expect("it was announced");
                encoder.retire(id, out).expect("it is open");
            }
            output => encoder.control(&output.frame(document), out),
        }
    }

    fn message(
        &mut self,
        datagrams: &DatagramEncoder,
        envelope: &Envelope<'_>,
        payload: &[u8],
        packets: &mut VecDeque<Vec<u8>>,
    ) {
        if self.wire == Wire::Datagrams {
            self.room(datagrams, packets);
            datagrams.data(envelope, payload, &mut self.out).expect("within the limits");
            return;
        }
        let envelope = Envelope { channel: self.on_wire[&envelope.channel], ..*envelope };
        self.streams.0.data(&envelope, payload.len(), &mut self.out).expect("within the limits");
        self.out.extend_from_slice(payload);
    }

    /// Begins a datagram if there is none, or no room in it.
    fn room(&mut self, datagrams: &DatagramEncoder, packets: &mut VecDeque<Vec<u8>>) {
        if self.out.len() > DATAGRAM {
            self.flush(datagrams, packets);
        }
        if self.out.is_empty() {
            datagrams.begin(&mut self.out);
        }
    }

    fn flush(&mut self, datagrams: &DatagramEncoder, packets: &mut VecDeque<Vec<u8>>) {
        let mut packet = std::mem::take(&mut self.out);
        if packet.is_empty() {
            return;
        }
        if self.wire == Wire::Datagrams {
            datagrams.finish(&mut packet);
        }
        packets.push_back(packet);
    }

    /// The channel of this node that the peer means.
    fn ours(&self, channel: ChannelId) -> Option<ChannelId> {
        match self.wire {
            Wire::Datagrams => Some(channel),
            Wire::Streams => self.on_wire.iter().find(|(_, id)| **id == channel).map(|(channel, _)| *channel),
        }
    }
}

fn random_interest(shared: &mut Shared<'_>) -> Interest {
    let count = 1 + shared.random.below(3) as u32;
    match shared.random.below(6) {
        0 => Interest::None,
        1 => Interest::Refuses,
        2 => Interest::Both(count),
        _ => Interest::Reads(count),
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = |(other, peer): (&usize, &Peer)| {
            let answers: Vec<_> = self.writers.keys().map(|id| (*id, peer.session.answer(*id).cloned())).collect();
            let channels: Vec<_> = peer.session.channels().map(|(id, a)| (id, a.topic.clone())).collect();
            let read: Vec<_> = peer.readers.iter().map(|(id, reader)| (*id, reader.read)).collect();
            format!("to {other}: answers {answers:?}, channels {channels:?}, read {read:?}, {:?}", peer.session.load())
        };
        f.debug_struct("Node")
            .field("number", &self.number)
            .field("incarnation", &self.incarnation)
            .field("interests", &self.interests)
            .field("peers", &self.peers.iter().map(peer).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
