//! The port, which the node calls.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use polywire_core::{
    directory::NodeData,
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, DatagramEncoder, Frame, FrameError, Start},
    schema::{Schema, SchemaLimits},
};
use polywire_dds::{Change, Qos, Reader, Watch};

use super::{
    super::{
        Disconnect, EngineError, Event, LinkId, LinkStats, Loan, Local, Port, Sent, Sink, foreign::Need, late,
        renewing::Renewable,
    },
    address::Address,
    deferred::{self, Deferred, Late, Task},
    dispatch::{self, Inlet},
    foreign_readers,
    form::{Form, system},
    inbox::{Inbox, Item},
    name::{Names, Naming},
    peer::{ControlEncoder, Interest, Peer, control_reader, introduction, label},
    policies,
    presence::Presence,
    rpc, security,
    service::RequestIdCodec,
    state::{Channel, Sending, Shared, State},
    types,
    worker::Worker,
};

pub(super) struct DdsPort {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

/// The threads and the entities that end with the port.
struct Running {
    thread: JoinHandle<()>,
    deferred: JoinHandle<()>,
    _watch: Watch,
    _control_reader: Reader,
}

impl DdsPort {
    pub(super) fn open(
        endpoint: String,
        address: &Address,
        local: &Local,
        sink: Arc<dyn Sink>,
    ) -> Result<DdsPort, EngineError> {
        let failed = |action: &'static str| {
            let endpoint = endpoint.clone();
            move |error| EngineError::System { endpoint, action, cause: io::Error::other(error) }
        };
        let naming = address.naming;
        let qos = Qos { user_data: introduction(&local.hello, naming), ..Qos::default() };
        let us = security::join(address, &qos, &local.options, &endpoint)?;
        let inbox = Inbox::new(local.options.queue_bytes);
        let encoder = || DatagramEncoder::new(local.hello.node, local.hello.incarnation, local.options.limits);
        let control_reader = control_reader(&us, &inbox).map_err(failed("receive letters"))?;
        let discovered = inbox.clone();
        let watch = us.watch(move |discovery| discovered.tell(Item::Discovered(Box::new(discovery))));
        let watch = watch.map_err(failed("discover others"))?;
        let (deferred, tasks) = Deferred::new();
        let shared = Arc::new(Shared {
            endpoint: endpoint.clone(),
            hello: local.hello,
            options: local.options.clone(),
            sink,
            us,
            types: address.types,
            naming,
            is_secure: address.security,
            control_encoder: ControlEncoder(encoder()),
            encoder: encoder(),
            inlet: Inlet::new(inbox.clone(), local.options.limits),
            inbox,
            deferred,
            pending: Mutex::default(),
            state: Mutex::default(),
        });
        let presence = match naming {
            Naming::Plain | Naming::Rpc => None,
            Naming::Ros => Some(Presence::new(&shared, &local.name).map_err(failed("tell ROS 2 of itself"))?),
        };
        let mut worker = Worker::new(shared.clone(), presence);
        let not_started = |cause| EngineError::System { endpoint: endpoint.clone(), action: "start a thread", cause };
        let deferred = deferred::start(&shared, tasks).map_err(not_started)?;
        let thread = thread::Builder::new().name("dds".into()).spawn(move || worker.run());
        let thread = thread.map_err(not_started)?;
        let running = Mutex::new(Some(Running { thread, deferred, _watch: watch, _control_reader: control_reader }));
        Ok(DdsPort { shared, running })
    }

    /// Makes the writer of a channel.
    fn channel(&self, id: ChannelId, announcement: &Announcement, start: Start) -> Result<Channel, EngineError> {
        let Shared { us, options, inbox, sink, naming, .. } = &*self.shared;
        let schema = sink.document(announcement.schema);
        let document = schema.as_deref().filter(|_| naming.has_room_for(announcement));
        let known = document.and_then(|bytes| Schema::from_bytes(bytes, &SchemaLimits::default()).ok());
        let form = Form::of(announcement, known.as_ref(), naming.has_services());
        let named = naming.of_channel(form, announcement, known.as_ref());
        let Names { topic, type_name, hash } = named.map_err(|error| EngineError::System {
            endpoint: self.shared.endpoint.clone(),
            action: "publish to ROS 2",
            cause: io::Error::new(io::ErrorKind::InvalidInput, error),
        })?;
        let id_codec = RequestIdCodec::new(*naming == Naming::Rpc, form, announcement, known.as_ref());
        let id_codec = id_codec.transpose().map_err(|reason| EngineError::System {
            endpoint: self.shared.endpoint.clone(),
            action: "publish to a service",
            cause: io::Error::new(io::ErrorKind::InvalidInput, reason),
        })?;
        let form = match &id_codec {
            Some(RequestIdCodec::Wrapped(wrapper)) => wrapper.form(),
            _ => form,
        };
        let kept = match form {
            Form::Native { .. } => late::history_depth(announcement, known.as_ref()),
            Form::Octets => late::DEFAULT_DEPTH,
        };
        let mut qos = policies::of_writer(&announcement.offer, kept, options);
        qos.representations = vec![form.representation()];
        qos.user_data = label(id, announcement, *naming, hash);
        let readers = Arc::new(AtomicUsize::new(0));
        let (count, changed) = (readers.clone(), inbox.clone());
        let on_change = move |change| match change {
            Change::Matched { count: now } => {
                count.store(now, Ordering::Release);
                changed.tell(Item::Matched(id));
            }
            Change::Incompatible { policy } => changed.tell(Item::Incompatible(id, policy)),
            Change::Lives { .. } => {}
        };
        let types = match (form, naming) {
            // In ROS 2, the hash in the user data identifies the type.
            (Form::Native { .. }, Naming::Plain | Naming::Rpc) if self.shared.types => match &id_codec {
                Some(id_codec) => known.and_then(|schema| rpc::dds_schema(&schema, id_codec.role()).ok()),
                None => known,
            }
            .and_then(|schema| types::told(&self.shared.endpoint, &schema)),
            _ => None,
        };
        let opened = match types.map(|types| us.described_topic(&topic, &type_name, form.is_keyed(), &types)) {
            Some(Ok(opened)) => Ok(opened),
            refused => {
                if let Some(Err(error)) = refused {
                    log::warn!("{}: other programs are not told the type {type_name}: {error}", self.shared.endpoint);
                }
                us.topic(&topic, &type_name, form.is_keyed())
            }
        };
        let writer = opened.and_then(|topic| topic.writer(&qos, on_change)).map_err(system)?;
        let sending = Mutex::new(Sending { last: start, interest: Default::default(), dropped: 0, told: None });
        let keeps = matches!(form, Form::Native { .. }) && policies::keeps(&announcement.offer);
        let asserts = policies::asserts(&announcement.offer);
        let (announcement, late) = (announcement.clone(), Late::default());
        Ok(Channel {
            id,
            announcement,
            form,
            id_codec,
            topic,
            type_name,
            writer,
            readers,
            keeps,
            asserts,
            sending,
            late,
        })
    }

    /// Returns a channel, or `None` if it has retired.
    fn find(&self, channel: ChannelId) -> Result<Option<Arc<Channel>>, EngineError> {
        if self.shared.us.has_expired() {
            return Err(system(polywire_dds::Error::Expired));
        }
        let state = self.shared.state.lock();
        match state.channels.get(&channel) {
            _ if state.closed => Err(EngineError::Closed),
            None if channel.0 > state.last_channel => Err(EngineError::Channel(channel)),
            found => Ok(found.cloned()),
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut State, &Shared) -> T) -> T {
        let done = change(&mut self.shared.state.lock(), &self.shared);
        self.shared.inbox.tell(Item::Wake);
        done
    }

    /// Sends a control message to a node.
    fn tell(&self, link: LinkId, frame: &Frame<'_>) {
        self.with(|state, shared| {
            if let Some((guid, _)) = state.peer_of(link) {
                state.post(guid, shared.control_encoder.encode(std::slice::from_ref(frame)));
            }
        });
    }

    fn channels(&self) -> Vec<Arc<Channel>> {
        self.shared.state.lock().channels.values().cloned().collect()
    }
}

impl Port for DdsPort {
    fn endpoint(&self) -> String {
        self.shared.endpoint.clone()
    }

    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        let id = {
            let mut state = self.shared.state.lock();
            state.last_channel += 1;
            ChannelId(state.last_channel)
        };
        self.announce_as(id, announcement, start)?;
        Ok(id)
    }

    fn reserve(&self, size: usize) -> Loan {
        Loan::new(Vec::with_capacity(size), 0)
    }

    fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        let Some(channel) = self.find(envelope.channel)? else { return Ok(Sent::default()) };
        if let Some(publisher) = channel.asserts {
            let asserted = self.shared.state.lock().channels_of(publisher);
            asserted.iter().try_for_each(|channel| channel.writer.assert_liveliness()).map_err(system)?;
        }
        let mut sent = Sent::default();
        let mut to = Vec::new();
        {
            let mut sending = channel.sending.lock();
            sending.last = Start { sequence: envelope.sequence, timestamp_ns: envelope.timestamp_ns };
            for (link, interest) in sending.interest.values() {
                match interest {
                    Interest::Unwanted => continue,
                    Interest::Wanted(subscribers) => sent.subscribers += *subscribers as usize,
                    Interest::Asked(_) | Interest::Coming(..) => sent.held += 1,
                }
                sent.peers += 1;
                to.push(link.clone());
            }
        }
        if to.is_empty() && !channel.has_readers() && !channel.keeps {
            return Ok(sent);
        }
        let wrapped = match &channel.id_codec {
            None => None,
            Some(id_codec) => match id_codec.wrap(&self.shared.pending, &channel, envelope, loan.payload()) {
                Some(wrapped) => Some(wrapped),
                None => return Ok(Sent::default()),
            },
        };
        let payload = wrapped.as_deref().unwrap_or(loan.payload());
        let sample = channel.form.sample(envelope, payload, &self.shared.encoder)?;
        match self.shared.write(&channel, sample).map_err(system)? {
            true => to.iter().for_each(|link| link.count_sent()),
            false => {
                sent = Sent { dropped: to.len(), ..Sent::default() };
                self.shared.dropped(&channel, &to);
            }
        }
        Ok(sent)
    }

    fn retire(&self, channel: ChannelId) {
        let retired = self.with(|state, shared| {
            let retired = state.channels.remove(&channel)?;
            let start = retired.sending.lock().last;
            let message = shared
                .control_encoder
                .encode(&[Frame::Position { channel, start, lost: 0 }, Frame::Retire { channel }]);
            let nodes: Vec<_> = state
                .peers
                .iter()
                .filter(|(_, peer)| peer.node.is_some() && peer.link.is_some())
                .map(|(guid, _)| *guid)
                .collect();
            nodes.into_iter().for_each(|guid| state.post(guid, message.clone()));
            Some(retired)
        });
        retired.into_iter().for_each(|channel| self.shared.deferred.add(Task::Retire(channel)));
    }

    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        self.shared.inbox.tell(Item::Answered(link, channel, answer));
    }

    fn want(&self, link: LinkId, document: Id128) {
        self.with(|state, shared| match state.peer_of(link) {
            Some((guid, Peer { node: Some(_), .. })) => {
                state.post(guid, shared.control_encoder.encode(&[Frame::Want { document }]));
            }
            _ => shared.inbox.tell(Item::Wanted(link, document)),
        });
    }

    fn learn(&self, link: LinkId, channel: ChannelId) -> bool {
        let Shared { state, options, inbox, .. } = &*self.shared;
        let need = state.lock().need_type(link, channel, options.limits.pending_documents, Instant::now());
        let Some((guid, hash, need)) = need else { return false };
        if need != Need::Asked {
            inbox.tell(Item::TypeNeeded(guid, channel, hash));
        }
        true
    }

    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>) {
        self.tell(link, &Frame::Document { document, bytes });
    }

    fn flush(&self, deadline: Instant) -> bool {
        // If a thread of Cyclone waited here, it would process no acknowledgement meanwhile.
        let deadline = if dispatch::is_delivering() { Instant::now() } else { deadline };
        let left = || deadline.saturating_duration_since(Instant::now());
        let is_there = |channel: &Arc<Channel>| channel.writer.wait_for_acknowledgments(left());
        self.channels().iter().all(|channel| channel.late.wait(left()) && is_there(channel))
    }

    fn links(&self) -> Vec<LinkStats> {
        self.shared.state.lock().peers.values().filter_map(|peer| peer.link.as_ref()).map(|link| link.stats()).collect()
    }

    fn foreign_readers(&self) -> Vec<NodeData> {
        foreign_readers::readers(&self.shared)
    }

    fn close(&self) {
        let Some(running) = self.running.lock().take() else { return };
        let port = DdsPort { shared: self.shared.clone(), running: Mutex::default() };
        match dispatch::is_delivering() {
            // Deleting the entities would wait for this thread.
            true => drop(thread::spawn(move || port.end(running))),
            false => port.end(running),
        }
    }
}

impl Renewable for DdsPort {
    fn announce_as(&self, id: ChannelId, announcement: &Announcement, start: Start) -> Result<(), EngineError> {
        self.with(|state, shared| {
            if state.closed {
                return Err(EngineError::Closed);
            }
            if state.channels.len() >= shared.options.limits.channels {
                let (got, expected) = (ChannelId(0), ChannelId(state.last_channel));
                return Err(EngineError::Frame(FrameError::ChannelOrder { got, expected }));
            }
            state.last_channel = state.last_channel.max(id.0);
            Ok(())
        })?;
        let channel = Arc::new(self.channel(id, announcement, start)?);
        self.with(|state, shared| {
            state.channels.insert(id, channel.clone());
            // Done under the lock, so that a peer that connects now gets one announcement.
            let links: Vec<_> = state
                .peers
                .iter()
                .filter_map(|(guid, peer)| Some((*guid, peer.node.as_ref().and(peer.link.clone())?)))
                .collect();
            for (guid, link) in links {
                let start = channel.ask(&link);
                state.post(guid, shared.control_encoder.encode(&[channel.announce(start)]));
            }
        });
        self.shared.inbox.tell(Item::Matched(id));
        Ok(())
    }
}

impl DdsPort {
    fn end(&self, running: Running) {
        let deadline = Instant::now() + self.shared.options.linger;
        self.flush(deadline);
        let (channels, mut peers) = {
            let mut state = self.shared.state.lock();
            state.closed = true;
            (std::mem::take(&mut state.channels), std::mem::take(&mut state.peers))
        };
        for node in peers.values_mut().filter_map(|peer| peer.node.as_mut()).filter(|node| node.is_confirmed) {
            node.post(self.shared.control_encoder.encode(&[Frame::Bye]));
            while !node.flush() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        }
        for node in peers.values().filter_map(|peer| peer.node.as_ref()).filter(|node| node.is_confirmed) {
            node.control_writer().wait(deadline.saturating_duration_since(Instant::now()));
        }
        self.shared.inbox.close();
        self.shared.deferred.end();
        let is_here = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        self.shared.inlet.close(is_here(&running.thread));
        for thread in [running.thread, running.deferred].into_iter().filter(|thread| !is_here(thread)) {
            // An error means that a callback panicked, which was printed.
            let _ = thread.join();
        }
        drop(channels);
        for link in peers.values().filter_map(|peer| peer.link.as_ref()) {
            link.sink.down();
            let reason = Disconnect::Closed;
            self.shared.sink.event(Event::Disconnected { link: link.info.clone(), reason });
        }
    }
}

impl Drop for DdsPort {
    fn drop(&mut self) {
        self.close();
    }
}
