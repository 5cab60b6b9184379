//! The port's thread: takes what DDS reports and receives, calls the node, and sends control
//! messages.

mod denied;
mod history;
mod lives;
mod mismatch;
mod offers;
mod services;
mod types;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::{Answer, Frame, Hello, Start},
    ros::TypeHash,
    rpc::service_of,
};
use polywire_dds::{Change, Discovery, Endpoint, Guid, Receive, Representation, Sample};

pub(super) use self::denied::NOT_ALLOWED;
use self::{denied::Denied, mismatch::Mismatched};
use super::{
    super::{Disconnect, Event, LinkId, LinkInfo, Principal, rejections::Rejections},
    deferred::Task,
    dispatch::{Dispatch, ReaderCallback, SampleRoute},
    early::Early,
    form::{OCTETS, Place, datagram},
    inbox::Item,
    kept::{self, Replay},
    keys::Keys,
    name::Naming,
    peer::{
        CONTROL_TOPIC, ControlWriter, EndId, Gate, Incoming, Interest, Link, Peer, ReadEnd, Reading, RemoteNode,
        Silent, address, introduced, labelled,
    },
    policies::{self, offer_of},
    presence::Presence,
    questions::{self, Questions},
    security::{EXPIRED, Unreached},
    settling::{self, Settling},
    state::{Answered, Channel, Shared, State},
    types::{Known, LOOK, Lookups},
};

/// The interval for greeting nodes that have not confirmed that control messages reach them, and
/// for sending control messages again that found no room.
const AGAIN: Duration = Duration::from_millis(50);

/// The longest sleep while there is nothing to do.
const IDLE: Duration = Duration::from_secs(1);

/// The number of items that are handled before links with new messages are notified (`drained`).
const TURN: usize = 64;

pub(super) struct Worker {
    shared: Arc<Shared>,
    /// Links with new messages that were not notified yet (`drained`).
    touched: Vec<Arc<Link>>,
    greeted: Option<Instant>,
    lookups: Lookups,
    questions: Questions,
    /// Writers that have gone, while their samples wait for the node's answer.
    leaving: BTreeSet<Guid>,
    mismatched: Mismatched,
    /// `Some` with `ros=true`.
    presence: Option<Presence>,
    settling: Settling,
    early: Early,
    /// Replays of samples that writers keep, for late subscribers.
    replays: Vec<Replay>,
    unreached: Unreached,
    /// Participants for which there was no room.
    rejections: Rejections,
    denied: Denied,
    has_expired: bool,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, presence: Option<Presence>) -> Worker {
        let (touched, greeted, lookups, questions, leaving) = Default::default();
        let (mismatched, settling, replays, unreached, denied, has_expired) = Default::default();
        let (early, rejections) = (Early::new(shared.options.queue_bytes), Rejections::new(1));
        Worker {
            shared,
            touched,
            greeted,
            lookups,
            questions,
            leaving,
            mismatched,
            presence,
            settling,
            early,
            replays,
            unreached,
            rejections,
            denied,
            has_expired,
        }
    }

    pub(super) fn run(&mut self) {
        let shared = self.shared.clone();
        let mut pause = AGAIN;
        while shared.inbox.wait(pause) {
            let mut dispatch = shared.inlet.dispatch();
            let mut has_changed = false;
            for _ in 0..TURN {
                let Some(item) = shared.inbox.pop() else { break };
                has_changed |= !matches!(item, Item::Arrived(..));
                self.handle(&mut dispatch, item);
            }
            self.replay(&mut dispatch);
            // Samples that arrive from now on need not wait for the work below.
            drop(dispatch);
            self.touched.drain(..).for_each(|link| link.sink.drained());
            if let Some(presence) = self.presence.as_mut().filter(|presence| has_changed || presence.is_due()) {
                presence.tell(&shared);
            }
            self.expire();
            self.look_for_denied();
            pause = if self.send_control_messages() { IDLE } else { AGAIN };
            if !self.lookups.is_empty() || !self.mismatched.is_empty() {
                // The functions below call the node, which needs the turn.
                let mut turn = shared.inlet.dispatch();
                self.look_types_up(&mut turn);
                self.report_mismatches();
                pause = LOOK;
            }
            let due = self.due_types();
            if !self.questions.is_empty() || !due.is_empty() {
                let _turn = shared.inlet.dispatch();
                self.ask_on(due);
                pause = pause.min(questions::LOOK);
            }
            if !self.settling.is_empty() {
                let _turn = shared.inlet.dispatch();
                self.settle();
                pause = pause.min(settling::LOOK);
            }
            if !self.replays.is_empty() {
                pause = pause.min(kept::LOOK);
            }
        }
        shared.inlet.close(false);
    }

    fn handle(&mut self, dispatch: &mut Dispatch, item: Item) {
        match item {
            Item::Discovered(discovery) => self.discovered(dispatch, *discovery),
            Item::ControlMessage(writer, sample) => self.control_message(dispatch, writer.participant(), &sample),
            Item::Arrived(end, writer, sample) => self.arrived(dispatch, end, writer, sample),
            Item::Present(writer, sample) => self.present(writer.participant(), &sample),
            Item::TypeNeeded(guid, channel, hash) => self.type_needed(guid, channel, hash),
            Item::TypeReceived(sample) => {
                let result = self.questions.answered(&self.shared, &sample);
                result.into_iter().for_each(|result| self.type_received(result));
            }
            Item::TypeRequested(sample) => {
                self.presence.iter().for_each(|presence| presence.asked(&self.shared, &sample))
            }
            Item::Matched(channel) => self.matched(channel),
            Item::Incompatible(channel, policy) => self.incompatible(channel, policy),
            Item::Reads => self.reads(),
            Item::Lives(end, writer, is_alive) => self.lives(end, writer, is_alive),
            Item::Wanted(link, document) => self.wanted(link, document),
            Item::Answered(link, channel, answer) => self.answer(dispatch, link, channel, answer),
            Item::Wake => {}
        }
    }

    fn discovered(&mut self, dispatch: &mut Dispatch, discovery: Discovery) {
        match discovery {
            Discovery::Participant { guid, user_data } => self.participant(dispatch, guid, &user_data),
            Discovery::Writer(writer) => self.writer(dispatch, writer),
            Discovery::Reader(reader) => self.reader(&reader),
            Discovery::Gone(guid) => self.gone(dispatch, guid),
        }
    }

    fn is_ours(&self, guid: Guid) -> bool {
        guid.participant() == self.shared.us.guid()
    }

    // Discovery.

    fn participant(&mut self, dispatch: &mut Dispatch, guid: Guid, user_data: &[u8]) {
        if self.is_ours(guid) || self.shared.state.lock().peers.contains_key(&guid) {
            return;
        }
        let node = introduced(user_data);
        // The participant belongs to another port of this node, with the same publishers.
        if node.is_some_and(|hello| hello.node == self.shared.hello.node) {
            return;
        }
        let shared = self.shared.clone();
        let node = match node.map(|hello| RemoteNode::new(&shared.us, guid, hello, &shared.inbox)).transpose() {
            Ok(node) => node,
            Err(error) => return log::warn!("{}: cannot reach {guid}: {error}", shared.endpoint),
        };
        let known = {
            let mut state = shared.state.lock();
            let Some(has_room) = state.has_room(shared.options.peers) else { return };
            if !has_room {
                drop(state);
                // Participants do not say on which hosts they are, so all are counted together.
                let reason = Disconnect::TooMany(shared.options.peers);
                let counted = self.rejections.count("", guid.to_string(), reason);
                return counted.into_iter().for_each(|event| shared.sink.event(event));
            }
            state.peers.insert(guid, Peer::new(node));
            self.note_names(&mut state, guid);
            let of = |endpoint: &&Endpoint| endpoint.participant == guid;
            state.writers.values().filter(of).cloned().collect::<Vec<_>>()
        };
        known.into_iter().for_each(|writer| self.writer(dispatch, writer));
        let channels: Vec<ChannelId> = shared.state.lock().channels.keys().copied().collect();
        channels.into_iter().for_each(|channel| self.matched(channel));
        self.greeted = None;
    }

    fn writer(&mut self, dispatch: &mut Dispatch, writer: Endpoint) {
        if self.is_ours(writer.guid) || writer.topic == CONTROL_TOPIC {
            return;
        }
        let participant = writer.participant;
        let is_node = {
            let mut state = self.shared.state.lock();
            if !state.note_writer(&writer, self.shared.options.limits.channels) {
                return;
            }
            let Some(peer) = state.peers.get(&participant) else { return };
            peer.node.is_some()
        };
        match (is_node, labelled(&writer.qos.user_data)) {
            (true, Some(channel)) => {
                self.shared.state.lock().found(&self.shared, participant, channel, &writer);
                self.begin_to_read(participant, channel);
            }
            (true, None) => {}
            (false, _) if self.shared.types && writer.types.is_some() || self.is_unnamed(participant) => {
                self.lookups.begin(&writer);
            }
            (false, _) => self.foreign_writer(dispatch, &writer, None),
        }
    }

    fn present(&mut self, participant: Guid, sample: &Sample) {
        if let Some(presence) = self.presence.as_mut().filter(|_| participant != self.shared.us.guid()) {
            presence.heard(participant, sample, self.shared.options.peers);
        }
        self.note_names(&mut self.shared.state.lock(), participant);
    }

    fn note_names(&self, state: &mut State, participant: Guid) {
        let names = self.presence.as_ref().and_then(|presence| presence.names(participant));
        if let (Some(names), Some(peer)) = (names, state.peers.get_mut(&participant)) {
            peer.names = names;
        }
    }

    /// Announces a writer of a program that is not a node to this node, as a channel. If the writer
    /// has a channel, announces its new offer if that has changed.
    fn foreign_writer(&mut self, dispatch: &mut Dispatch, writer: &Endpoint, known: Option<&Known>) {
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
            return log::debug!("{}: '{}' is no topic of ROS 2 or DDS-RPC", self.shared.endpoint, writer.topic);
        };
        let Some((type_name, known)) = self.values(&topic, type_name, known) else {
            return log::debug!("{}: the type of '{topic}' is not one of DDS-RPC", self.shared.endpoint);
        };
        let Some(link) = self.foreign_link(writer.participant) else { return };
        // Not on services: there the hash is the service's, which cannot be derived from the type
        // alone.
        let tells_hash = self.shared.naming == Naming::Ros && self.shared.types && service_of(&topic).is_none();
        let ros_type = TypeHash::of_user_data(&writer.qos.user_data).filter(|_| tells_hash);
        let mut announcement = Announcement {
            topic,
            writer: Id128(writer.guid.0),
            // All nodes use the same numbers for the writer's samples: the writer's own.
            incarnation: 1,
            type_name,
            codec: codec.into(),
            options: "header".into(),
            offer: offer_of(&writer.qos, ros_type),
            ..Announcement::default()
        };
        known.iter().for_each(|known| known.describe(&mut announcement));
        let history = kept::history_of(writer.guid, &announcement);
        let (channel, of_history) = {
            let mut state = self.shared.state.lock();
            let Some(peer) = state.peers.get_mut(&writer.participant) else { return };
            if let Some(channel) = peer.by_writer.get(&writer.guid).copied() {
                drop(state);
                return self.renew_offer(dispatch, writer.guid, channel, announcement.offer);
            }
            let mut incoming = Incoming::new(&announcement);
            incoming.found(writer);
            incoming.document = known.map(|known| known.document);
            peer.add_writer(writer.guid, incoming, history.as_ref())
        };
        link.sink.announced(channel, Start::default(), &announcement);
        if let Some((channel, announcement)) = of_history.zip(history) {
            link.sink.announced(channel, Start::default(), &announcement);
        }
    }

    fn reader(&self, reader: &Endpoint) {
        if !self.is_ours(reader.guid) && reader.topic != CONTROL_TOPIC {
            self.shared.state.lock().note_reader(reader, self.shared.options.limits.channels);
        }
    }

    fn gone(&mut self, dispatch: &mut Dispatch, guid: Guid) {
        if self.stays(guid) {
            return;
        }
        self.lookups.forget(guid);
        self.mismatched.forget(guid);
        self.early.take(guid);
        let (link, channel, ended) = {
            let mut state = self.shared.state.lock();
            state.writers.remove(&guid);
            state.readers.remove(&guid);
            if state.peers.contains_key(&guid) {
                drop(state);
                return self.lose(dispatch, guid, Disconnect::Lost("it has not been heard for its lease".into()));
            }
            let Some(peer) = state.peers.get_mut(&guid.participant()) else { return };
            let Some(channel) = peer.by_writer.remove(&guid) else { return };
            dispatch.shut(guid);
            let is_node = peer.node.is_some();
            let Some(incoming) = peer.incoming.get_mut(&channel) else { return };
            incoming.writer = None;
            if is_node && incoming.ends_at.is_none() {
                return;
            }
            (peer.link.clone(), channel, peer.incoming.remove(&channel))
        };
        let Some(ended) = ended else { return };
        self.leave(dispatch, ended.writer, ended.reading);
        if let Some(link) = link {
            ended.history.into_iter().for_each(|history| self.forget_history(&link, guid, history));
            link.sink.retired(channel);
            self.shared.state.lock().types.ended((guid.participant(), channel));
        }
    }

    /// Stops reading a channel.
    fn leave(&self, dispatch: &mut Dispatch, writer: Option<Guid>, reading: Option<Reading>) {
        writer.into_iter().for_each(|writer| dispatch.shut(writer));
        if let Some(end) = reading.and_then(|reading| reading.reader) {
            self.shared.deferred.add(Task::Leave(end));
        }
    }

    /// Ends the link to a participant.
    fn lose(&mut self, dispatch: &mut Dispatch, guid: Guid, reason: Disconnect) {
        let mut lost = {
            let mut state = self.shared.state.lock();
            let lost = state.peers.remove(&guid);
            let channels = lost.iter().flat_map(|peer| peer.incoming.keys());
            channels.for_each(|channel| state.types.ended((guid, *channel)));
            if let Some(link) = lost.as_ref().and_then(|peer| peer.link.as_ref()) {
                for channel in state.channels.values() {
                    channel.sending.lock().interest.remove(&link.info.id);
                }
            }
            lost
        };
        dispatch.forget(guid);
        self.early.forget(guid);
        self.leaving.retain(|writer| writer.participant() != guid);
        self.end_replays(|replay| replay.writer.participant() == guid);
        let left = lost.iter_mut().flat_map(|peer| std::mem::take(&mut peer.incoming).into_values());
        left.for_each(|incoming| self.leave(dispatch, incoming.writer, incoming.reading));
        self.presence.as_mut().into_iter().for_each(|presence| presence.forget(guid));
        if let Some(link) = lost.as_ref().and_then(|peer| peer.link.clone()) {
            self.touched.retain(|touched| touched.info.id != link.info.id);
            link.sink.down();
            self.shared.sink.event(Event::Disconnected { link: link.info.clone(), reason });
        }
        lost.into_iter().for_each(|peer| self.shared.deferred.add(Task::Lose(Box::new(peer))));
        let unanswered = self.questions.forget(&self.shared, guid);
        unanswered.into_iter().for_each(|result| self.type_received(result));
    }

    /// Ends all links when the files of DDS Security expire.
    fn expire(&mut self) {
        let shared = self.shared.clone();
        if self.has_expired || !shared.us.has_expired() {
            return;
        }
        self.has_expired = true;
        log::warn!("{}: {EXPIRED}", shared.endpoint);
        let known: Vec<Guid> = shared.state.lock().peers.keys().copied().collect();
        for guid in known {
            self.lose(&mut shared.inlet.dispatch(), guid, Disconnect::Untrusted(EXPIRED.into()));
        }
    }

    // Links.

    fn open_link(&self, guid: Guid, peer: Hello) -> Arc<Link> {
        let names = self.presence.as_ref().and_then(|presence| presence.names(guid)).unwrap_or_default();
        let address = address(&self.shared.endpoint, &names, guid);
        let info = LinkInfo { id: LinkId::next(), peer, address, principal: Principal::Anonymous };
        let link = Link::new(info.clone(), self.shared.sink.link(&info));
        self.shared.sink.event(Event::Connected(info));
        link
    }

    fn foreign_link(&self, guid: Guid) -> Option<Arc<Link>> {
        if let Some(link) = &self.shared.state.lock().peers.get(&guid)?.link {
            return Some(link.clone());
        }
        let link = self.open_link(guid, Hello { node: Id128(guid.0), incarnation: 1 });
        self.shared.state.lock().peers.get_mut(&guid)?.link = Some(link.clone());
        Some(link)
    }

    /// Returns the link to a node that has sent a control message. If the link is new, announces
    /// all channels.
    fn node_link(&self, guid: Guid) -> Option<Arc<Link>> {
        let hello = {
            let state = self.shared.state.lock();
            let peer = state.peers.get(&guid)?;
            if let Some(link) = &peer.link {
                return Some(link.clone());
            }
            peer.node.as_ref()?.hello
        };
        let link = self.open_link(guid, hello);
        let mut state = self.shared.state.lock();
        state.peers.get_mut(&guid)?.link = Some(link.clone());
        let channels: Vec<Arc<Channel>> = state.channels.values().cloned().collect();
        for channel in channels {
            let start = channel.ask(&link);
            state.post(guid, self.shared.control_encoder.encode(&[channel.announce(start)]));
        }
        Some(link)
    }

    /// Sends control messages and greetings. False if something is still to be sent.
    fn send_control_messages(&mut self) -> bool {
        let is_due = self.greeted.is_none_or(|greeted| greeted.elapsed() >= AGAIN);
        let (greeted, posted): (Vec<_>, Vec<_>) = {
            let state = self.shared.state.lock();
            let nodes = state.peers.iter().filter_map(|(guid, peer)| Some((*guid, peer.node.as_ref()?)));
            let nodes = nodes.filter(|(_, node)| !node.is_done());
            let nodes = nodes.map(|(guid, node)| (guid, node.is_confirmed, node.control_writer()));
            nodes.partition(|(_, is_confirmed, _)| !is_confirmed)
        };
        if is_due {
            let greeting = self.shared.control_encoder.encode(&[Frame::Heartbeat]);
            for (_, _, control_writer) in &greeted {
                control_writer.send(&greeting);
            }
            self.greeted = Some(Instant::now());
            self.unreached.tell(&self.shared);
        }
        let mut is_done = greeted.is_empty();
        for (guid, _, control_writer) in posted {
            is_done &= self.send_posted(guid, &control_writer);
        }
        let cut_off = std::mem::take(&mut self.shared.state.lock().cut_off);
        let shared = self.shared.clone();
        for guid in cut_off {
            self.lose(&mut shared.inlet.dispatch(), guid, Disconnect::Unread);
        }
        is_done
    }

    /// Sends the control messages to a node, as far as there is room. False if something is left.
    fn send_posted(&self, guid: Guid, control_writer: &ControlWriter) -> bool {
        loop {
            let message = self.with_node(guid, RemoteNode::next);
            let Some(message) = message.flatten() else { return true };
            if !control_writer.send(&message) {
                self.with_node(guid, |node| node.put_back(message));
                return false;
            }
        }
    }

    fn with_node<T>(&self, guid: Guid, with: impl FnOnce(&mut RemoteNode) -> T) -> Option<T> {
        let mut state = self.shared.state.lock();
        state.peers.get_mut(&guid).and_then(|peer| peer.node.as_mut()).map(with)
    }

    fn control_message(&mut self, dispatch: &mut Dispatch, guid: Guid, sample: &Sample) {
        let Some(message) = datagram(&sample.bytes) else { return };
        let Some(link) = self.node_link(guid) else { return };
        let frames = match dispatch.decoder(guid).open(message) {
            Ok(datagram) => datagram.collect::<Result<Vec<Frame<'_>>, _>>(),
            Err(error) => Err(error),
        };
        match frames {
            Ok(frames) => frames.into_iter().for_each(|frame| self.read(dispatch, guid, &link, frame)),
            Err(error) => self.lose(dispatch, guid, Disconnect::Protocol(error)),
        }
    }

    fn read(&mut self, dispatch: &mut Dispatch, guid: Guid, link: &Arc<Link>, frame: Frame<'_>) {
        match frame {
            Frame::Heartbeat => {
                let control_writer = self.with_node(guid, |node| node.control_writer());
                // If there is no room, the node greets again.
                let encoder = &self.shared.control_encoder;
                control_writer.map(|writer| writer.send(&encoder.encode(&[Frame::Taken { messages: 1 }])));
            }
            Frame::Taken { .. } => {
                self.with_node(guid, |node| node.is_confirmed = true);
            }
            Frame::Announce { channel, start, announcement } => {
                self.announced(guid, link, channel, start, &announcement)
            }
            Frame::Answer { channel, answer } => self.answered(guid, link, channel, answer),
            Frame::Position { channel, start, .. } => self.position(dispatch, guid, link, channel, start),
            Frame::Retire { channel } => self.retired(dispatch, guid, link, channel),
            Frame::Want { document } => link.sink.wanted(document),
            Frame::Document { document, bytes } => link.sink.supplied(document, bytes),
            Frame::Bye => self.lose(dispatch, guid, Disconnect::Bye),
            // Nodes send nothing else; later versions may.
            _ => {}
        }
    }

    fn announced(&self, guid: Guid, link: &Link, channel: ChannelId, start: Start, announcement: &Announcement) {
        {
            let mut state = self.shared.state.lock();
            let by =
                |writer: &&Endpoint| writer.participant == guid && labelled(&writer.qos.user_data) == Some(channel);
            let writer = state.writers.values().find(by).cloned();
            let Some(peer) = state.peers.get_mut(&guid) else { return };
            if peer.incoming.contains_key(&channel) || peer.incoming.len() >= self.shared.options.limits.channels {
                return;
            }
            peer.incoming.insert(channel, Incoming::new(announcement));
            writer.into_iter().for_each(|writer| state.found(&self.shared, guid, channel, &writer));
        }
        link.sink.announced(channel, start, announcement);
    }

    // What this node reads.

    /// Sends the answers that wait for a reader to match its writer. Called when matches have
    /// changed.
    fn reads(&self) {
        let state = self.shared.state.lock();
        let waits = |incoming: &Incoming| incoming.reading.as_ref().is_some_and(|reading| reading.answer.is_some());
        let waiting: Vec<(Guid, ChannelId)> = state
            .peers
            .iter()
            .filter(|(_, peer)| peer.node.is_some())
            .flat_map(|(guid, peer)| peer.incoming.iter().map(move |(channel, incoming)| (*guid, *channel, incoming)))
            .filter(|(_, _, incoming)| waits(incoming))
            .map(|(guid, channel, _)| (guid, channel))
            .collect();
        drop(state);
        waiting.into_iter().for_each(|(guid, channel)| self.begin_to_read(guid, channel));
    }

    /// Handles the node's answer to a channel of a peer.
    fn answer(&mut self, dispatch: &mut Dispatch, link: LinkId, channel: ChannelId, answer: Answer) {
        if let Some(writer) = self.history_of(link, channel) {
            return self.history_answered(dispatch, writer, channel, answer.accepts());
        }
        let answered = self.shared.state.lock().answer(&self.shared.control_encoder, link, channel, answer);
        match answered {
            Some((guid, Answered::Begins)) => {
                self.begin_to_read(guid, channel);
                self.take_early(dispatch, guid, channel);
                if self.has_foreign_replies(guid, channel).unwrap_or_default() {
                    self.settling.begin(guid, channel, Instant::now());
                }
            }
            Some((guid, Answered::Ended { writer, reading })) => {
                self.drop_early(guid, channel);
                self.leave(dispatch, writer, reading);
            }
            Some((_, Answered::Noted)) | None => {}
        }
        let answered = self.shared.state.lock().peer_of(link).and_then(|(_, peer)| peer.incoming.get(&channel)?.writer);
        answered.into_iter().for_each(|writer| self.let_go(writer));
    }

    /// Opens the reader of a channel that the node wants, if its writer is known, and sends the
    /// node's answer once the reader matches the writer.
    fn begin_to_read(&self, guid: Guid, channel: ChannelId) {
        let shared = &*self.shared;
        let found = {
            let mut state = shared.state.lock();
            let incoming = state.incoming(guid, channel);
            let writer = incoming.and_then(|incoming| incoming.reading.as_ref().and(incoming.writer));
            writer.and_then(|writer| state.writers.get(&writer)).cloned()
        };
        let Some(writer) = found else { return };
        let end = match self.read_end(&writer) {
            Ok(end) => end,
            Err(error) => return self.deny(guid, channel, &error.to_string()),
        };
        let is_there = end.reader.writers().contains(&writer.guid);
        let before = {
            let mut state = shared.state.lock();
            let Some(reading) = state.incoming(guid, channel).and_then(|incoming| incoming.reading.as_mut()) else {
                return;
            };
            let before = reading.reader.replace(end);
            if is_there && let Some(answer) = reading.answer.take() {
                state.post(guid, shared.control_encoder.encode(&[Frame::Answer { channel, answer }]));
            }
            before
        };
        drop(before);
        self.report_liveliness(guid, channel);
    }

    /// Returns a reader for a writer: an existing one that fits, or a new one.
    fn read_end(&self, writer: &Endpoint) -> Result<Arc<ReadEnd>, polywire_dds::Error> {
        let shared = &*self.shared;
        let qos = policies::of_reader(&writer.qos);
        let is_keyed = writer.guid.is_keyed().unwrap_or_default();
        let fits = |end: &Arc<ReadEnd>| {
            (&end.topic, &end.type_name, end.is_keyed, &end.qos) == (&writer.topic, &writer.type_name, is_keyed, &qos)
        };
        let there: Vec<Arc<ReadEnd>> = shared.state.lock().read_ends().collect();
        if let Some(end) = there.into_iter().find(fits) {
            return Ok(end);
        }
        let (inlet, id) = (shared.inlet.clone(), EndId::next());
        let end = self.open_reader(writer, id, Arc::new(ReaderCallback { inlet, end: id }))?;
        let mut state = shared.state.lock();
        state.read_ends.retain(|end| end.strong_count() > 0);
        state.read_ends.push(Arc::downgrade(&end));
        Ok(end)
    }

    /// Opens a new reader for a writer, which also receives from other writers that it matches.
    fn open_reader(
        &self,
        writer: &Endpoint,
        id: EndId,
        receiver: Arc<dyn Receive>,
    ) -> Result<Arc<ReadEnd>, polywire_dds::Error> {
        let qos = policies::of_reader(&writer.qos);
        let is_keyed = writer.guid.is_keyed().unwrap_or_default();
        let topic = self.shared.us.topic(&writer.topic, &writer.type_name, is_keyed)?;
        let changed = self.shared.inbox.clone();
        let on_change = move |change| match change {
            Change::Lives { writer, is_alive } => changed.tell(Item::Lives(id, writer, is_alive)),
            Change::Matched { .. } | Change::Incompatible { .. } => changed.tell(Item::Reads),
        };
        let reader = topic.reader(&qos, receiver, on_change)?;
        let (topic, type_name, silent) = (writer.topic.clone(), writer.type_name.clone(), Silent::default());
        Ok(Arc::new(ReadEnd { id, topic, type_name, is_keyed, qos, reader, silent }))
    }

    /// Handles the position of a peer's channel: the messages begin after this place, or end with
    /// it if the channel retires.
    fn position(&mut self, dispatch: &mut Dispatch, guid: Guid, link: &Arc<Link>, channel: ChannelId, start: Start) {
        let waiting = {
            let mut state = self.shared.state.lock();
            let peer = state.peers.get_mut(&guid);
            let Some(incoming) = peer.and_then(|peer| peer.incoming.get_mut(&channel)) else { return };
            incoming.position = start.sequence;
            let Some(Reading { gate: gate @ Gate::Shut(_), reader, .. }) = &mut incoming.reading else { return };
            let end = reader.as_ref().map(|reader| reader.id);
            let place = Place { last: start.sequence, begins_after_ns: Some(start.timestamp_ns) };
            let Gate::Shut(waiting) = std::mem::replace(gate, Gate::Open(place)) else { return };
            (incoming.writer.zip(end), waiting)
        };
        link.sink.position(channel, start, 0);
        link.sink.matched(channel);
        if let (Some((writer, end)), waiting) = waiting {
            waiting.into_iter().for_each(|sample| self.arrived(dispatch, end, writer, sample));
        }
    }

    fn retired(&mut self, dispatch: &mut Dispatch, guid: Guid, link: &Link, channel: ChannelId) {
        {
            let mut state = self.shared.state.lock();
            let Some(incoming) = state.incoming(guid, channel) else { return };
            incoming.ends_at = Some(incoming.position);
        }
        self.end_if_over(dispatch, guid, channel, link, true);
    }

    /// Ends a channel if all its messages have arrived, or if its writer has gone and `retires`.
    fn end_if_over(&self, dispatch: &mut Dispatch, guid: Guid, channel: ChannelId, link: &Link, retires: bool) {
        let over = {
            let mut state = self.shared.state.lock();
            let Some(peer) = state.peers.get_mut(&guid) else { return };
            let Some(incoming) = peer.incoming.get(&channel) else { return };
            let last = incoming.writer.and_then(|writer| dispatch.end(writer));
            let is_over = incoming.is_over(last) || retires && incoming.writer.is_none();
            if is_over { peer.incoming.remove(&channel) } else { None }
        };
        if let Some(over) = over {
            self.leave(dispatch, over.writer, over.reading);
            link.sink.retired(channel);
        }
    }

    fn arrived(&mut self, dispatch: &mut Dispatch, end: EndId, writer: Guid, sample: Sample) {
        if dispatch.route(writer).is_none() {
            if self.is_early(writer) {
                return self.early.push(writer, end, sample);
            }
            match self.route(writer, &sample) {
                Some(route) => dispatch.open(writer, route),
                None => return,
            }
        }
        if dispatch.route(writer).is_some_and(|route| !route.is_from(end)) {
            return;
        }
        let shared = self.shared.clone();
        dispatch.pass(writer, &sample, &mut |route, envelope, payload| match &route.id_codec {
            None => route.link.sink.message(envelope, payload),
            Some(id_codec) => id_codec.deliver(&shared, route, envelope, payload),
        });
        let Some(route) = dispatch.route(writer) else { return };
        let (link, channel, ends) = (route.link.clone(), route.channel, route.ends);
        self.touch(&link);
        if ends {
            self.end_if_over(dispatch, writer.participant(), channel, &link, false);
        }
    }

    /// Notes that a link has new messages, so that it is notified (`drained`) later.
    fn touch(&mut self, link: &Arc<Link>) {
        if !self.touched.iter().any(|touched| touched.info.id == link.info.id) {
            self.touched.push(link.clone());
        }
    }

    /// Makes the route of a writer's samples, for the first sample that is passed on. `None` if the
    /// node does not want them. `None`, too, if it is not known yet where the messages begin: the
    /// sample waits.
    fn route(&self, writer: Guid, sample: &Sample) -> Option<SampleRoute> {
        let mut state = self.shared.state.lock();
        let peer = state.peers.get_mut(&writer.participant())?;
        let channel = *peer.by_writer.get(&writer)?;
        let (is_node, link) = (peer.node.is_some(), peer.link.clone()?);
        let incoming = peer.incoming.get_mut(&channel)?;
        let form = incoming.form?;
        let reading = incoming.reading.as_mut()?;
        let end = match is_node {
            true => None,
            false => Some(reading.reader.as_ref()?.id),
        };
        let place = match &mut reading.gate {
            Gate::Open(place) => *place,
            Gate::Shut(waiting) => {
                let bytes: usize = waiting.iter().map(|sample| sample.bytes.sample().len()).sum();
                // Without room, the sample is dropped. The sequence numbers show the gap.
                if bytes < self.shared.options.queue_bytes {
                    waiting.push(sample.clone());
                }
                return None;
            }
        };
        let (announcement, ends) = (incoming.announcement.clone(), incoming.ends_at.is_some());
        let document = incoming.document.clone();
        let type_name = state.writers.get(&writer).map(|writer| writer.type_name.clone()).unwrap_or_default();
        drop(state);
        let keys = match !is_node && form.is_keyed() {
            true => self.schema(document.as_deref(), &announcement),
            false => None,
        };
        let keys = keys.map(|schema| Keys::new(&announcement.codec, schema));
        let id_codec = match is_node || self.shared.naming.has_services() {
            true => self.id_codec(form, &announcement, document, &type_name).transpose(),
            false => Ok(None),
        };
        match id_codec {
            Ok(id_codec) => {
                Some(SampleRoute { link, channel, announcement, form, id_codec, is_node, place, end, keys, ends })
            }
            Err(reason) => {
                log::debug!("{}: cannot read '{}': {reason}", self.shared.endpoint, announcement.topic);
                None
            }
        }
    }

    // What this node writes.

    fn channel(&self, channel: ChannelId) -> Option<Arc<Channel>> {
        self.shared.state.lock().channels.get(&channel).cloned()
    }

    /// Handles a peer's answer to a channel of this node.
    fn answered(&self, guid: Guid, link: &Arc<Link>, id: ChannelId, answer: Answer) {
        let Some(channel) = self.channel(id) else { return };
        let is_new = {
            let mut sending = channel.sending.lock();
            let last = sending.last;
            let Some((_, interest)) = sending.interest.get_mut(&link.info.id) else { return };
            *interest = interest.after(&answer, last);
            matches!(interest, Interest::Coming(..))
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

    /// Begins to send a channel to nodes that have accepted it and are `there`: their readers
    /// match.
    fn come(&self, channel: &Channel, there: &BTreeSet<Guid>, only: Option<Guid>) {
        let nodes: Vec<(Guid, Arc<Link>)> = {
            let state = self.shared.state.lock();
            let is_meant = |guid: &Guid| there.contains(guid) && only.is_none_or(|only| only == *guid);
            let nodes = state.peers.iter().filter(|(guid, peer)| peer.node.is_some() && is_meant(guid));
            nodes.filter_map(|(guid, peer)| Some((*guid, peer.link.clone()?))).collect()
        };
        for (guid, link) in nodes {
            let (start, answer) = {
                let mut sending = channel.sending.lock();
                let Some((_, interest)) = sending.interest.get_mut(&link.info.id) else { continue };
                let Interest::Coming(start, answer) = interest.clone() else { continue };
                *interest = Interest::Wanted(answer.subscribers().max(1));
                (start, answer)
            };
            let position = Frame::Position { channel: channel.id, start, lost: 0 };
            self.shared.state.lock().post(guid, self.shared.control_encoder.encode(&[position]));
            link.sink.answered(channel.id, &answer);
        }
    }

    /// Handles a change of the readers that match a channel.
    fn matched(&mut self, id: ChannelId) {
        let Some(channel) = self.channel(id) else { return };
        let readers = channel.writer.readers();
        let there: BTreeSet<Guid> = readers.iter().map(Guid::participant).collect();
        self.come(&channel, &there, None);
        let foreign: Vec<Guid> = {
            let state = self.shared.state.lock();
            state.peers.iter().filter(|(_, peer)| peer.node.is_none()).map(|(guid, _)| *guid).collect()
        };
        for guid in foreign {
            let count = readers.iter().filter(|reader| reader.participant() == guid).count() as u32;
            self.foreign_readers(&channel, guid, count);
        }
    }

    /// Notes how many readers of a channel a program has that is not a node.
    fn foreign_readers(&mut self, channel: &Channel, guid: Guid, count: u32) {
        let is_linked = self.shared.state.lock().peers.get(&guid).is_some_and(|peer| peer.link.is_some());
        if count == 0 && !is_linked {
            return;
        }
        let Some(link) = self.foreign_link(guid) else { return };
        let before = {
            let interest = if count > 0 { Interest::Wanted(count) } else { Interest::Unwanted };
            let before = channel.sending.lock().interest.insert(link.info.id, (link.clone(), interest));
            match before {
                Some((_, Interest::Wanted(before))) => before,
                _ => 0,
            }
        };
        if before == count {
            return;
        }
        let answer = if count > 0 { Answer::Accept(count) } else { Answer::Decline };
        link.sink.answered(channel.id, &answer);
    }
}
