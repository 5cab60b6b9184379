//! The port's thread: takes what DDS reports and receives, calls the node, and sends letters.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128, Kind},
    frame::{Answer, DatagramDecoder, Frame, Hello, Start},
    rpc::{ReplyHeader, Role, SampleIdentity},
};
use polywire_dds::{Discovery, Endpoint, Guid, Representation, Sample};

use super::{
    super::{Aligned, Disconnect, Event, LinkId, LinkInfo, Principal, pipe::lock},
    form::{self, Form, OCTETS, Place, datagram, of_sample, without_number},
    inbox::{Inbox, Item, Next},
    name::Naming,
    peer::{Correspondent, Gate, Incoming, Interest, LETTERS, Link, Peer, Reading, introduced, labelled},
    policies::{offer_of, policy_name},
    presence::Presence,
    service,
    state::{Channel, Shared},
    types::{Known, LOOK, Lookups},
};

/// How often a node that has not confirmed that letters reach it is greeted, and how often letters
/// are tried again that found no room.
const AGAIN: Duration = Duration::from_millis(50);

/// Longest sleep without anything to do.
const IDLE: Duration = Duration::from_secs(1);

/// Items that are handled before the node is told that everything has come.
const TURN: usize = 64;

pub(super) struct Worker {
    shared: Arc<Shared>,
    /// For the letters and the octets of each participant.
    decoders: BTreeMap<Guid, DatagramDecoder>,
    /// Links with messages since the node was told.
    touched: Vec<Arc<Link>>,
    greeted: Option<Instant>,
    lookups: Lookups,
    /// Where names are those of ROS 2.
    presence: Option<Presence>,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, presence: Option<Presence>) -> Worker {
        let lookups = Lookups::default();
        Worker { shared, decoders: BTreeMap::new(), touched: Vec::new(), greeted: None, lookups, presence }
    }

    pub(super) fn run(&mut self) {
        let inbox: Arc<Inbox> = self.shared.inbox.clone();
        let mut pause = AGAIN;
        loop {
            let mut has_changed = false;
            for taken in 0..TURN {
                match inbox.pop(if taken == 0 { pause } else { Duration::ZERO }) {
                    Next::Item(item) => {
                        has_changed |= !matches!(item, Item::Arrived(..));
                        self.handle(item);
                    }
                    Next::Nothing => break,
                    Next::Closed => return,
                }
            }
            self.touched.drain(..).for_each(|link| link.sink.drained());
            if let Some(presence) = self.presence.as_mut().filter(|_| has_changed) {
                presence.tell(&self.shared);
            }
            pause = if self.send_letters() { IDLE } else { AGAIN };
            if !self.lookups.is_empty() {
                self.look_types_up();
                pause = LOOK;
            }
        }
    }

    fn handle(&mut self, item: Item) {
        match item {
            Item::Discovered(discovery) => self.discovered(*discovery),
            Item::Letter(writer, sample) => self.letter(writer.participant(), &sample),
            Item::Arrived(writer, sample) => self.arrived(writer, sample),
            Item::Present(writer, sample) => self.present(writer.participant(), &sample),
            Item::Matched(channel) => self.matched(channel),
            Item::Incompatible(channel, policy) => self.incompatible(channel, policy),
            Item::Reads => self.reads(),
            Item::Wanted(link, document) => self.wanted(link, document),
            Item::Ring => {}
        }
    }

    fn discovered(&mut self, discovery: Discovery) {
        match discovery {
            Discovery::Participant { guid, user_data } => self.participant(guid, &user_data),
            Discovery::Writer(writer) => self.writer(writer),
            Discovery::Reader(reader) => self.reader(reader),
            Discovery::Gone(guid) => self.gone(guid),
        }
    }

    fn is_ours(&self, guid: Guid) -> bool {
        guid.participant() == self.shared.us.guid()
    }

    // Discovery.

    fn participant(&mut self, guid: Guid, user_data: &[u8]) {
        if self.is_ours(guid) || lock(&self.shared.state).peers.contains_key(&guid) {
            return;
        }
        let node = introduced(user_data);
        // Another port of this node in the same domain. It has the same publishers.
        if node.is_some_and(|hello| hello.node == self.shared.hello.node) {
            return;
        }
        let shared = self.shared.clone();
        let node = match node.map(|hello| Correspondent::new(&shared.us, guid, hello, &shared.inbox)).transpose() {
            Ok(node) => node,
            Err(error) => return log::warn!("{}: cannot reach {guid}: {error}", shared.endpoint),
        };
        let known = {
            let mut state = lock(&shared.state);
            if state.closed || state.peers.len() >= shared.options.peers {
                let event = Event::Rejected {
                    address: guid.to_string(),
                    reason: Disconnect::TooMany(shared.options.peers),
                    total: 1,
                };
                drop(state);
                return shared.sink.event(event);
            }
            state.peers.insert(guid, Peer::new(node));
            let of = |endpoint: &&Endpoint| endpoint.participant == guid;
            state.writers.values().filter(of).cloned().collect::<Vec<_>>()
        };
        known.into_iter().for_each(|writer| self.writer(writer));
        let channels: Vec<ChannelId> = lock(&shared.state).channels.keys().copied().collect();
        channels.into_iter().for_each(|channel| self.matched(channel));
        self.greeted = None;
    }

    fn writer(&mut self, writer: Endpoint) {
        if self.is_ours(writer.guid) || writer.topic == LETTERS {
            return;
        }
        let (guid, participant) = (writer.guid, writer.participant);
        let is_node = {
            let mut state = lock(&self.shared.state);
            if state.writers.len() >= self.shared.options.limits.channels && !state.writers.contains_key(&guid) {
                return;
            }
            state.writers.insert(guid, writer.clone());
            let Some(peer) = state.peers.get(&participant) else { return };
            peer.node.is_some()
        };
        match (is_node, labelled(&writer.qos.user_data)) {
            (true, Some(channel)) => {
                let mut state = lock(&self.shared.state);
                state.found(participant, channel, &writer);
                state.read(&self.shared, participant, channel);
            }
            (true, None) => {}
            (false, _) if self.shared.types && writer.types.is_some() || self.is_unnamed(participant) => {
                self.lookups.begin(&writer);
            }
            (false, _) => self.foreign_writer(&writer, None),
        }
    }

    /// Whether a participant has nodes of ROS 2 whose names are not known yet.
    fn is_unnamed(&self, participant: Guid) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.names(participant).is_none())
    }

    fn present(&mut self, participant: Guid, sample: &Sample) {
        if let Some(presence) = self.presence.as_mut().filter(|_| participant != self.shared.us.guid()) {
            presence.heard(participant, sample, self.shared.options.peers);
        }
    }

    fn look_types_up(&mut self) {
        let is_named = |participant: &Guid| !self.is_unnamed(*participant);
        let named = self.lookups.participants().filter(is_named).collect();
        let done = self.lookups.take(&self.shared.us, &self.shared.endpoint, self.shared.types, &named);
        done.iter().for_each(|(writer, known)| self.foreign_writer(writer, known.as_ref()));
    }

    /// Sends the node the schema of a writer of a program that is not a node.
    fn wanted(&self, link: LinkId, document: Id128) {
        let found = {
            let mut state = lock(&self.shared.state);
            let Some((_, peer)) = state.peer_of(link) else { return };
            let mut known = peer.incoming.values().filter(|incoming| incoming.announcement.schema == document);
            (peer.link.clone(), known.find_map(|incoming| incoming.document.clone()))
        };
        if let (Some(link), bytes) = found {
            link.sink.supplied(document, bytes.as_deref());
        }
    }

    /// A writer of a program that is not a node: a channel that it announces by being there.
    fn foreign_writer(&mut self, writer: &Endpoint, known: Option<&Known>) {
        let codec = match writer.qos.representations.first() {
            None | Some(Representation::Xcdr1) => "cdr",
            Some(Representation::Xcdr2) => "xcdr2",
            Some(Representation::Other(number)) => {
                let topic = &writer.topic;
                return log::debug!("{}: '{topic}' has the unknown data representation {number}", self.shared.endpoint);
            }
        };
        if writer.type_name == OCTETS {
            return;
        }
        let Some((topic, type_name)) = self.shared.naming.of_endpoint(writer) else {
            return log::debug!("{}: '{}' is no topic of ROS 2", self.shared.endpoint, writer.topic);
        };
        let Some(link) = self.foreign_link(writer.participant) else { return };
        let mut announcement = Announcement {
            topic,
            writer: Id128(writer.guid.0),
            incarnation: 1,
            type_name,
            codec: codec.into(),
            options: "header".into(),
            offer: offer_of(&writer.qos),
            ..Announcement::default()
        };
        known.into_iter().for_each(|known| known.describe(&mut announcement));
        let channel = {
            let mut state = lock(&self.shared.state);
            let Some(peer) = state.peers.get_mut(&writer.participant) else { return };
            if peer.by_writer.contains_key(&writer.guid) {
                return;
            }
            peer.last += 1;
            let channel = ChannelId(peer.last);
            let mut incoming = Incoming::new(&announcement);
            incoming.found(writer);
            incoming.document = known.map(|known| known.document.clone());
            peer.incoming.insert(channel, incoming);
            peer.by_writer.insert(writer.guid, channel);
            channel
        };
        link.sink.announced(channel, Start::default(), &announcement);
    }

    fn reader(&self, reader: Endpoint) {
        let mut state = lock(&self.shared.state);
        if !self.is_ours(reader.guid)
            && reader.topic != LETTERS
            && state.readers.len() < self.shared.options.limits.channels
        {
            state.readers.insert(reader.guid, reader);
        }
    }

    fn gone(&mut self, guid: Guid) {
        self.lookups.forget(guid);
        let ended = {
            let mut state = lock(&self.shared.state);
            state.writers.remove(&guid);
            state.readers.remove(&guid);
            if state.peers.contains_key(&guid) {
                drop(state);
                return self.lose(guid, Disconnect::Lost("it has not been heard for its lease".into()));
            }
            let Some(peer) = state.peers.get_mut(&guid.participant()) else { return };
            let Some(channel) = peer.by_writer.remove(&guid) else { return };
            let is_node = peer.node.is_some();
            let Some(incoming) = peer.incoming.get_mut(&channel) else { return };
            incoming.writer = None;
            if is_node && incoming.ends_at.is_none() {
                return;
            }
            peer.incoming.remove(&channel);
            peer.link.clone().map(|link| (link, channel))
        };
        if let Some((link, channel)) = ended {
            link.sink.retired(channel);
        }
    }

    /// Ends the link to a participant.
    fn lose(&mut self, guid: Guid, reason: Disconnect) {
        let lost = {
            let mut state = lock(&self.shared.state);
            let lost = state.peers.remove(&guid);
            if let Some(link) = lost.as_ref().and_then(|peer| peer.link.as_ref()) {
                for channel in state.channels.values() {
                    lock(&channel.sending).interest.remove(&link.info.id);
                }
            }
            lost
        };
        self.decoders.remove(&guid);
        self.presence.as_mut().into_iter().for_each(|presence| presence.forget(guid));
        if let Some(link) = lost.as_ref().and_then(|peer| peer.link.clone()) {
            self.touched.retain(|touched| touched.info.id != link.info.id);
            link.sink.down();
            self.shared.sink.event(Event::Disconnected { link: link.info.clone(), reason });
        }
    }

    // Links.

    fn open_link(&self, guid: Guid, peer: Hello) -> Arc<Link> {
        let names = self.presence.as_ref().and_then(|presence| presence.names(guid));
        let names = names.map(|names| names + " ").unwrap_or_default();
        let address = format!("{} {names}{guid}", self.shared.endpoint);
        let info = LinkInfo { id: LinkId::next(), peer, address, principal: Principal::Anonymous };
        let link = Link::new(info.clone(), self.shared.sink.link(&info));
        self.shared.sink.event(Event::Connected(info));
        link
    }

    fn foreign_link(&self, guid: Guid) -> Option<Arc<Link>> {
        if let Some(link) = &lock(&self.shared.state).peers.get(&guid)?.link {
            return Some(link.clone());
        }
        let link = self.open_link(guid, Hello { node: Id128(guid.0), incarnation: 1 });
        lock(&self.shared.state).peers.get_mut(&guid)?.link = Some(link.clone());
        Some(link)
    }

    /// The link to a node from which a letter has come. Announces all channels to a new one.
    fn node_link(&self, guid: Guid) -> Option<Arc<Link>> {
        let hello = {
            let state = lock(&self.shared.state);
            let peer = state.peers.get(&guid)?;
            if let Some(link) = &peer.link {
                return Some(link.clone());
            }
            peer.node.as_ref()?.hello
        };
        let link = self.open_link(guid, hello);
        let mut state = lock(&self.shared.state);
        state.peers.get_mut(&guid)?.link = Some(link.clone());
        let channels: Vec<Arc<Channel>> = state.channels.values().cloned().collect();
        for channel in channels {
            let start = channel.ask(&link);
            state.post(guid, self.shared.pen.letter(&[channel.announce(start)]));
        }
        Some(link)
    }

    /// Sends letters and greetings. False if something is still to be sent.
    fn send_letters(&mut self) -> bool {
        let is_due = self.greeted.is_none_or(|greeted| greeted.elapsed() >= AGAIN);
        let mut is_done = true;
        let cut_off = {
            let mut state = lock(&self.shared.state);
            for node in state.peers.values_mut().filter_map(|peer| peer.node.as_mut()) {
                if !node.is_confirmed && is_due {
                    node.send(&self.shared.pen.letter(&[Frame::Heartbeat]));
                }
                is_done &= node.flush() && node.is_confirmed;
            }
            std::mem::take(&mut state.cut_off)
        };
        if is_due {
            self.greeted = Some(Instant::now());
        }
        cut_off.into_iter().for_each(|guid| self.lose(guid, Disconnect::Unread));
        is_done
    }

    fn letter(&mut self, guid: Guid, sample: &Sample) {
        let Some(letter) = datagram(&sample.bytes) else { return };
        let Some(link) = self.node_link(guid) else { return };
        let limits = self.shared.options.limits;
        let decoder = self.decoders.entry(guid).or_insert_with(|| DatagramDecoder::new(limits));
        let frames = match decoder.open(letter) {
            Ok(datagram) => datagram.collect::<Result<Vec<Frame<'_>>, _>>(),
            Err(error) => Err(error),
        };
        match frames {
            Ok(frames) => frames.into_iter().for_each(|frame| self.read(guid, &link, frame)),
            Err(error) => self.lose(guid, Disconnect::Protocol(error)),
        }
    }

    fn read(&mut self, guid: Guid, link: &Arc<Link>, frame: Frame<'_>) {
        match frame {
            Frame::Heartbeat => {
                let state = lock(&self.shared.state);
                let node = state.peers.get(&guid).and_then(|peer| peer.node.as_ref());
                // If there is no room, the node greets again.
                node.map(|node| node.send(&self.shared.pen.letter(&[Frame::Taken { messages: 1 }])));
            }
            Frame::Taken { .. } => {
                let mut state = lock(&self.shared.state);
                let node = state.peers.get_mut(&guid).and_then(|peer| peer.node.as_mut());
                if let Some(node) = node {
                    node.is_confirmed = true;
                }
            }
            Frame::Announce { channel, start, announcement } => {
                self.announced(guid, link, channel, start, &announcement)
            }
            Frame::Answer { channel, answer } => self.answered(guid, link, channel, answer),
            Frame::Position { channel, start, .. } => self.position(guid, link, channel, start),
            Frame::Retire { channel } => self.retired(guid, link, channel),
            Frame::Want { document } => link.sink.wanted(document),
            Frame::Document { document, bytes } => link.sink.supplied(document, bytes),
            Frame::Bye => self.lose(guid, Disconnect::Bye),
            // Nodes send nothing else; later versions may.
            _ => {}
        }
    }

    fn announced(&self, guid: Guid, link: &Link, channel: ChannelId, start: Start, announcement: &Announcement) {
        {
            let mut state = lock(&self.shared.state);
            let by =
                |writer: &&Endpoint| writer.participant == guid && labelled(&writer.qos.user_data) == Some(channel);
            let writer = state.writers.values().find(by).cloned();
            let Some(peer) = state.peers.get_mut(&guid) else { return };
            if peer.incoming.contains_key(&channel) || peer.incoming.len() >= self.shared.options.limits.channels {
                return;
            }
            peer.incoming.insert(channel, Incoming::new(announcement));
            writer.into_iter().for_each(|writer| state.found(guid, channel, &writer));
        }
        link.sink.announced(channel, start, announcement);
    }

    // What this node reads.

    /// The writers of some reader have changed: answers that wait for that may be sent.
    fn reads(&self) {
        let mut state = lock(&self.shared.state);
        let waits = |incoming: &Incoming| incoming.reading.as_ref().is_some_and(|reading| reading.answer.is_some());
        let waiting: Vec<(Guid, ChannelId)> = state
            .peers
            .iter()
            .filter(|(_, peer)| peer.node.is_some())
            .flat_map(|(guid, peer)| peer.incoming.iter().map(move |(channel, incoming)| (*guid, *channel, incoming)))
            .filter(|(_, _, incoming)| waits(incoming))
            .map(|(guid, channel, _)| (guid, channel))
            .collect();
        waiting.into_iter().for_each(|(guid, channel)| state.read(&self.shared, guid, channel));
    }

    /// The messages of a channel begin after this place, or end with it if the channel retires.
    fn position(&mut self, guid: Guid, link: &Arc<Link>, channel: ChannelId, start: Start) {
        let waiting = {
            let mut state = lock(&self.shared.state);
            let peer = state.peers.get_mut(&guid);
            let Some(incoming) = peer.and_then(|peer| peer.incoming.get_mut(&channel)) else { return };
            incoming.position = start.sequence;
            let Some(Reading { gate: gate @ Gate::Shut(_), .. }) = &mut incoming.reading else { return };
            let place = Place { last: start.sequence, begins_after_ns: Some(start.timestamp_ns) };
            let Gate::Shut(waiting) = std::mem::replace(gate, Gate::Open(place)) else { return };
            (incoming.writer, waiting)
        };
        link.sink.position(channel, start, 0);
        if let (Some(writer), waiting) = waiting {
            waiting.into_iter().for_each(|sample| self.arrived(writer, sample));
        }
    }

    fn retired(&mut self, guid: Guid, link: &Link, channel: ChannelId) {
        let is_over = {
            let mut state = lock(&self.shared.state);
            let Some(peer) = state.peers.get_mut(&guid) else { return };
            let Some(incoming) = peer.incoming.get_mut(&channel) else { return };
            incoming.ends_at = Some(incoming.position);
            let is_over = incoming.is_over() || incoming.writer.is_none();
            if is_over {
                peer.incoming.remove(&channel);
            }
            is_over
        };
        if is_over {
            link.sink.retired(channel);
        }
    }

    fn arrived(&mut self, writer: Guid, sample: Sample) {
        let guid = writer.participant();
        let found = {
            let mut state = lock(&self.shared.state);
            let Some(peer) = state.peers.get_mut(&guid) else { return };
            let Some(channel) = peer.by_writer.get(&writer).copied() else { return };
            let (is_node, link) = (peer.node.is_some(), peer.link.clone());
            let Some(incoming) = peer.incoming.get_mut(&channel) else { return };
            let (Some(link), Some(form), Some(reading)) = (link, incoming.form, &mut incoming.reading) else { return };
            match &mut reading.gate {
                Gate::Open(place) => (link, channel, form, *place, is_node, incoming.announcement.clone()),
                Gate::Shut(waiting) => {
                    let bytes: usize = waiting.iter().map(|sample| sample.bytes.sample().len()).sum();
                    // The gap is noticed by the sequence number.
                    if bytes < self.shared.options.queue_bytes {
                        waiting.push(sample);
                    }
                    return;
                }
            }
        };
        let (link, channel, form, mut place, is_node, announcement) = found;
        let envelope = Envelope::data(channel, 0, 0);
        let shared = self.shared.clone();
        let deliver = |envelope: &Envelope<'_>, payload: &[u8]| {
            let envelope = Envelope { channel, ..*envelope };
            match service::role_of(form, &announcement.topic).filter(|_| is_node || shared.naming == Naming::Ros) {
                None => link.sink.message(&envelope, payload),
                Some(role) => deliver_call(&shared, &link, role, &announcement, form, &envelope, payload),
            }
        };
        if is_node {
            let limits = self.shared.options.limits;
            let decoder = self.decoders.entry(guid).or_insert_with(|| DatagramDecoder::new(limits));
            let mut deliver = deliver;
            form::open(form, &mut place, &sample, envelope, decoder, &mut deliver);
        } else {
            place.last += 1;
            let envelope = Envelope { sequence: place.last, ..of_sample(&sample, envelope) };
            // The end of an instance has its key alone; its hash says which one it is.
            let payload = if sample.is_key { Vec::new() } else { without_number(&sample.bytes) };
            deliver(&envelope, Aligned::default().place(&payload));
        }
        self.passed(guid, channel, place, &link);
        if !self.touched.iter().any(|touched| touched.info.id == link.info.id) {
            self.touched.push(link);
        }
    }

    /// Notes up to where the messages of a channel have been passed on.
    fn passed(&self, guid: Guid, channel: ChannelId, to: Place, link: &Link) {
        let is_over = {
            let mut state = lock(&self.shared.state);
            let Some(peer) = state.peers.get_mut(&guid) else { return };
            let Some(incoming) = peer.incoming.get_mut(&channel) else { return };
            if let Some(Reading { gate: Gate::Open(place), .. }) = &mut incoming.reading {
                *place = to;
            }
            let is_over = incoming.is_over();
            if is_over {
                peer.incoming.remove(&channel);
            }
            is_over
        };
        if is_over {
            link.sink.retired(channel);
        }
    }

    // What this node writes.

    fn channel(&self, channel: ChannelId) -> Option<Arc<Channel>> {
        lock(&self.shared.state).channels.get(&channel).cloned()
    }

    /// A node has answered a channel.
    fn answered(&self, guid: Guid, link: &Arc<Link>, id: ChannelId, answer: Answer) {
        let Some(channel) = self.channel(id) else { return };
        let is_new = {
            let mut sending = lock(&channel.sending);
            let last = sending.last;
            let Some((_, interest)) = sending.interest.get_mut(&link.info.id) else { return };
            let (next, is_new) = match (&*interest, answer.accepts()) {
                (_, false) => (Interest::Unwanted, false),
                (Interest::Wanted(_), true) => (Interest::Wanted(answer.subscribers().max(1)), false),
                (Interest::Asked(start) | Interest::Coming(start, _), true) => {
                    (Interest::Coming(*start, answer.clone()), true)
                }
                (Interest::Unwanted, true) => (Interest::Coming(last, answer.clone()), true),
            };
            *interest = next;
            is_new
        };
        match is_new {
            true => self.come(
                &channel,
                &BTreeSet::from_iter(channel.writer.readers().iter().map(Guid::participant)),
                Some(guid),
            ),
            false => link.sink.answered(id, &answer),
        }
    }

    /// Nodes that have accepted a channel get its messages once their reader is there.
    fn come(&self, channel: &Channel, there: &BTreeSet<Guid>, only: Option<Guid>) {
        let nodes: Vec<(Guid, Arc<Link>)> = {
            let state = lock(&self.shared.state);
            let is_meant = |guid: &Guid| there.contains(guid) && only.is_none_or(|only| only == *guid);
            let nodes = state.peers.iter().filter(|(guid, peer)| peer.node.is_some() && is_meant(guid));
            nodes.filter_map(|(guid, peer)| Some((*guid, peer.link.clone()?))).collect()
        };
        for (guid, link) in nodes {
            let (start, answer) = {
                let mut sending = lock(&channel.sending);
                let Some((_, interest)) = sending.interest.get_mut(&link.info.id) else { continue };
                let Interest::Coming(start, answer) = interest.clone() else { continue };
                *interest = Interest::Wanted(answer.subscribers().max(1));
                (start, answer)
            };
            let position = Frame::Position { channel: channel.id, start, lost: 0 };
            lock(&self.shared.state).post(guid, self.shared.pen.letter(&[position]));
            link.sink.answered(channel.id, &answer);
        }
    }

    /// The readers of a channel have changed.
    fn matched(&self, id: ChannelId) {
        let Some(channel) = self.channel(id) else { return };
        let readers = channel.writer.readers();
        let there: BTreeSet<Guid> = readers.iter().map(Guid::participant).collect();
        self.come(&channel, &there, None);
        let foreign: Vec<Guid> = {
            let state = lock(&self.shared.state);
            state.peers.iter().filter(|(_, peer)| peer.node.is_none()).map(|(guid, _)| *guid).collect()
        };
        for guid in foreign {
            let count = readers.iter().filter(|reader| reader.participant() == guid).count() as u32;
            self.foreign_readers(&channel, guid, count);
        }
    }

    /// A program that is not a node has so many readers of a channel.
    fn foreign_readers(&self, channel: &Channel, guid: Guid, count: u32) {
        let is_linked = lock(&self.shared.state).peers.get(&guid).is_some_and(|peer| peer.link.is_some());
        if count == 0 && !is_linked {
            return;
        }
        let Some(link) = self.foreign_link(guid) else { return };
        let before = {
            let interest = if count > 0 { Interest::Wanted(count) } else { Interest::Unwanted };
            let before = lock(&channel.sending).interest.insert(link.info.id, (link.clone(), interest));
            match before {
                Some((_, Interest::Wanted(before))) => before,
                _ => 0,
            }
        };
        if before != count {
            let answer = if count > 0 { Answer::Accept(count) } else { Answer::Decline };
            link.sink.answered(channel.id, &answer);
        }
    }

    /// A reader of a channel's topic does not match because of a policy. DDS does not say which
    /// reader.
    fn incompatible(&self, id: ChannelId, policy: u32) {
        let Some(channel) = self.channel(id) else { return };
        let matched: BTreeSet<Guid> = channel.writer.readers().into_iter().collect();
        let unmatched: BTreeSet<Guid> = {
            let state = lock(&self.shared.state);
            let is_refused = |reader: &&Endpoint| {
                (&reader.topic, &reader.type_name) == (&channel.topic, &channel.type_name)
                    && !matched.contains(&reader.guid)
            };
            let is_foreign = |guid: &Guid| state.peers.get(guid).is_some_and(|peer| peer.node.is_none());
            state.readers.values().filter(is_refused).map(|reader| reader.participant).filter(is_foreign).collect()
        };
        for guid in unmatched {
            let Some(link) = self.foreign_link(guid) else { continue };
            let reason = format!("it requests another {}", policy_name(policy));
            lock(&channel.sending).interest.entry(link.info.id).or_insert((link.clone(), Interest::Unwanted));
            link.sink.answered(id, &Answer::Refuse(reason));
        }
    }
}

/// Hands a request or a reply on that has a tag in front of its value.
fn deliver_call(
    shared: &Shared,
    link: &Link,
    role: Role,
    announcement: &Announcement,
    form: Form,
    envelope: &Envelope<'_>,
    payload: &[u8],
) {
    let Some((tag, value)) = service::untagged(payload, form.has_header()) else {
        return log::debug!("{}: a sample of '{}' is too short", shared.endpoint, announcement.topic);
    };
    let mut aligned = Aligned::default();
    match role {
        Role::Request => {
            let request = SampleIdentity { writer: announcement.writer, sequence: envelope.sequence };
            lock(&shared.pending).note(request, tag);
            link.sink.message(&Envelope { kind: Kind::Request, ..*envelope }, aligned.place(&value));
        }
        Role::Reply => {
            let request_of = |channel: &Arc<Channel>| {
                let writer = channel.announcement.writer;
                let role = service::role_of(channel.form, &channel.announcement.topic)?;
                let sequence = service::sequence_of(&tag, writer).filter(|_| role == Role::Request)?;
                Some(SampleIdentity { writer, sequence })
            };
            // Others have clients, too.
            let Some(request) = lock(&shared.state).channels.values().find_map(request_of) else { return };
            let header = ReplyHeader { request, error: None }.to_extensions();
            let envelope = Envelope { kind: Kind::Reply, extensions: header.as_extensions(), ..*envelope };
            link.sink.message(&envelope, aligned.place(&value));
        }
    }
}
