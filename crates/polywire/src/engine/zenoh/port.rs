//! The port: the functions that the node calls, and the port's two threads.
//!
//! Zenoh's threads call [`receive`](super::receive), which adds arrivals to the inbox and wakes the
//! port's threads. The *delivering thread* hands the arrivals to the node. The *sending thread*
//! sends what becomes due meanwhile. Zenoh's threads never wait for another peer or for a
//! subscriber's queue, so a slow subscriber does not hold up Zenoh. To save a switch of threads,
//! Zenoh's threads call callbacks themselves while these are fast and little is under way.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Weak},
    thread::{self, JoinHandle, ThreadId},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire_core::{
    directory::NodeData,
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Frame, FrameError, Start},
    qos::Qos,
    schema::{Schema, SchemaLimits},
};
use zenoh::{
    Config, Session, Wait, bytes::Encoding, key_expr::OwnedKeyExpr, liveliness::LivelinessToken, pubsub::Subscriber,
    query::Queryable, sample::Sample,
};

use super::{
    super::{
        Disconnect, EngineError, Event, LinkId, LinkSink, LinkStats, Loan, Local, Overflow, Port, Sent, Sink,
        foreign::encoding, late, outbox::encoded, renewing::Renewable,
    },
    address::Address,
    caches::{Caches, Listener},
    errors,
    history::Times,
    interest::{Interest, is_for},
    key::{Keys, Name},
    link::{Message, Terms},
    outgoing::Put,
    outlet::{Outlet, Place, Ros},
    pace::Pace,
    policies,
    ros::{self, End, Graph},
    state::{Channel, State},
};

/// Bytes that may be under way to a peer, at most.
const WINDOW: usize = 1 << 20;
/// The interval at which the sending thread checks what is due.
const TICK: Duration = Duration::from_millis(50);

pub(super) struct ZenohPort(Arc<Shared>);

pub(super) struct Shared {
    pub(super) this: Weak<Shared>,
    pub(super) endpoint: String,
    pub(super) local: Local,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) keys: Keys,
    pub(super) session: Session,
    /// The source of timestamps for samples in histories.
    times: Arc<Times>,
    pace: Arc<Pace>,
    state: Mutex<State>,
    /// Notified when something has left, or when the port closes.
    room: Condvar,
    /// Notified when there is work for the sending thread.
    due: Condvar,
    /// Notified when something has arrived for the delivering thread.
    pub(super) arrived: Condvar,
    interest: Mutex<Interest<Listener>>,
    /// The keys of `interest` that may overlap, as a copy for Zenoh's threads.
    wild: Mutex<Arc<[OwnedKeyExpr]>>,
    /// The queries of other applications' caches of samples. Locked before the state.
    pub(super) caches: Arc<Mutex<Caches>>,
    /// The sink of each link. Never locked while another lock is held.
    pub(super) sinks: Mutex<HashMap<LinkId, Arc<dyn LinkSink>>>,
    declared: Mutex<Option<Declared>>,
    /// The keys of liveliness tokens in ROS 2, if topics are those of ROS 2.
    pub(super) graph: Option<Graph>,
    /// The tokens of this node's subscribers in ROS 2 and the QoS that they request, by the topics
    /// of foreign publishers that they read. Locked before the state.
    ros_subscribers: Mutex<HashMap<ros::Topic, (Qos, LivelinessToken)>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The declarations that make this node known to others, until it closes.
struct Declared {
    _token: LivelinessToken,
    _subscribers: Vec<Subscriber<()>>,
    _ros_node: Option<LivelinessToken>,
    _types: Option<(Queryable<()>, LivelinessToken)>,
    _schemas: Queryable<()>,
}

impl ZenohPort {
    pub(super) fn open(
        endpoint: String,
        address: &Address,
        config: Config,
        local: &Local,
        sink: Arc<dyn Sink>,
    ) -> Result<ZenohPort, String> {
        let session = zenoh::open(config).wait().map_err(errors::text)?;
        let (options, keys) = (&local.options, address.keys()?);
        let graph = keys.ros_domain().map(|domain| Graph::new(domain, session.zid().to_string(), &local.name));
        let terms = Terms {
            overflow: options.overflow,
            queue: options.queue_bytes,
            window: options.queue_bytes.clamp(1, WINDOW) as u64,
            limits: options.limits,
        };
        let me = Name(local.hello);
        let shared = Arc::new_cyclic(|this| Shared {
            this: this.clone(),
            endpoint: endpoint.clone(),
            local: local.clone(),
            sink,
            keys: keys.clone(),
            session,
            times: Arc::default(),
            pace: Arc::new(Pace::new(address.express)),
            state: Mutex::new(State::new(me, keys, terms, options.peers)),
            room: Condvar::new(),
            due: Condvar::new(),
            arrived: Condvar::new(),
            interest: Mutex::default(),
            wild: Mutex::default(),
            caches: Arc::new(Mutex::new(Caches::new(options.queue_bytes, options.limits.channels))),
            sinks: Mutex::default(),
            declared: Mutex::default(),
            graph,
            ros_subscribers: Mutex::default(),
            threads: Mutex::default(),
        });
        // Nothing may leave before the token is declared: other nodes ignore the mails of nodes
        // whose token they have not seen.
        shared.lock().is_pumping = true;
        let port = ZenohPort(shared.clone());
        shared.start("pw-zenoh-in", Shared::deliver)?;
        shared.start("pw-zenoh-out", Shared::keep_time)?;
        let declared = shared.declare(me).map_err(errors::text);
        let mut state = shared.lock();
        state.is_pumping = false;
        shared.pump(state);
        let declared = declared?;
        *shared.declared.lock() = Some(declared);
        if address.listens() {
            shared.sink.event(Event::Listening { endpoint: endpoint.clone() });
        }
        if address.is_exposed() {
            shared.sink.event(Event::Exposed { endpoint });
        }
        Ok(port)
    }
}

impl Port for ZenohPort {
    fn endpoint(&self) -> String {
        self.0.endpoint.clone()
    }

    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        let channel = {
            let mut state = self.0.lock();
            state.last_channel += 1;
            ChannelId(state.last_channel)
        };
        self.announce_as(channel, announcement, start)?;
        Ok(channel)
    }

    fn reserve(&self, size: usize) -> Loan {
        let headroom = if self.0.keys.is_ros() { ros::HEADER } else { 0 };
        Loan::new(Vec::with_capacity(size + headroom), headroom)
    }

    fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        self.0.send(envelope, loan)
    }

    fn retire(&self, channel: ChannelId) {
        let mut state = self.0.lock();
        // Dropped after the lock is released, because the session calls back.
        let gone = state.channels.remove(&channel);
        state.each_link(|link, way| link.retire(way, channel));
        state.service_ended(channel, gone.as_ref());
        self.0.pump(state);
        drop(gone);
    }

    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        let changed = self.0.lock().accept(link, channel, answer.accepts());
        match (changed, answer.accepts()) {
            // Listens before the answer leaves: the peer may send as soon as it has the answer.
            (Some(key), true) => self.0.listen(key),
            (Some(key), false) => self.0.unlisten(&key),
            (None, _) => {}
        }
        let mut state = self.0.lock();
        let is_foreign = state.foreign.is_link(link);
        let topic = state.publishers.topic(channel).filter(|_| is_foreign).cloned();
        state.answer(link, channel, answer);
        self.0.pump(state);
        // A history that has been accepted begins at once.
        self.0.wake(self.0.lock());
        if let Some(topic) = topic {
            self.0.show_ros_subscriber(topic);
        }
    }

    fn want(&self, link: LinkId, document: Id128) {
        let mut state = self.0.lock();
        match state.want(link, document) {
            true => self.0.wake(state),
            false => {
                drop(state);
                self.0.tell(link, &Frame::Want { document });
            }
        }
    }

    fn learn(&self, link: LinkId, channel: ChannelId) -> bool {
        let mut state = self.0.lock();
        let is_looked_for = state.need_type(link, channel, Instant::now());
        self.0.pump(state);
        self.0.wake(self.0.lock());
        is_looked_for
    }

    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>) {
        self.0.tell(link, &Frame::Document { document, bytes });
    }

    fn subscribe(&self, topic: &str) {
        if let Some(key) = self.0.keys.of(topic) {
            self.0.listen(key);
        }
        // The node accepts histories before it subscribes. Their queries have waited for this call.
        let mut state = self.0.lock();
        state.of_ros(|publishers, context| publishers.listened(context));
        self.0.pump(state);
        self.0.open_clients(topic);
    }

    fn unsubscribe(&self, topic: &str) {
        if let Some(key) = self.0.keys.of(topic) {
            self.0.unlisten(&key);
        }
    }

    fn flush(&self, deadline: Instant) -> bool {
        self.0.wait_until(deadline, State::is_sent)
    }

    fn links(&self) -> Vec<LinkStats> {
        self.0.lock().links().map(|link| link.stats()).collect()
    }

    fn foreign_readers(&self) -> Vec<NodeData> {
        self.0.lock().foreign_readers(&self.0.endpoint)
    }

    fn close(&self) {
        self.0.close();
    }
}

impl Renewable for ZenohPort {
    fn announce_as(&self, channel: ChannelId, announcement: &Announcement, start: Start) -> Result<(), EngineError> {
        let shared = &self.0;
        {
            let state = shared.lock();
            if state.is_closing {
                return Err(EngineError::Closed);
            }
            shared.check_announcement(&state, announcement, start)?;
        }
        let failed = |cause: String| EngineError::System {
            endpoint: shared.endpoint.clone(),
            action: "declare a publisher",
            cause: io::Error::other(cause),
        };
        let place = shared.place(channel, announcement).map_err(failed)?;
        let history = (&shared.times, shared.local.options.queue_bytes);
        let outlet =
            place.map(|place| Outlet::open(&shared.session, place, announcement, shared.pace.clone(), history));
        let outlet = outlet.transpose().map_err(|error| failed(errors::text(error)))?;
        let service = shared.serve(channel, announcement).map_err(failed)?;
        let mut state = shared.lock();
        let announcement = Arc::new(announcement.clone());
        state.each_link(|link, way| link.announce(way, channel, start, &announcement));
        let channel_here = Channel { start, announcement, outlet, service };
        let name = channel_here.ros_topic().map(|topic| topic.name.clone());
        state.channels.insert(channel, channel_here);
        name.iter().for_each(|name| state.readers_changed(name));
        shared.pump(state);
        Ok(())
    }
}

impl Drop for ZenohPort {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn start(self: &Arc<Self>, name: &str, run: fn(&Arc<Shared>)) -> Result<(), String> {
        let shared = self.clone();
        let thread = thread::Builder::new().name(name.into()).spawn(move || run(&shared));
        self.threads.lock().push(thread.map_err(|cause| format!("no thread: {cause}"))?);
        Ok(())
    }

    /// Makes this node known. The mailbox is declared before the token, because other nodes write
    /// mails as soon as they see the token.
    fn declare(self: &Arc<Self>, me: Name) -> zenoh::Result<Declared> {
        let (mail, node) = (Arc::downgrade(self), Arc::downgrade(self));
        let mailbox = self.session.declare_subscriber(self.keys.mailbox(me).ok_or("the mailbox is no key")?);
        let mailbox = mailbox.callback(move |sample| {
            if let Some(shared) = mail.upgrade() {
                shared.mail_came(&sample);
            }
        });
        let mailbox = mailbox.wait()?;
        let tokens = self.session.liveliness().declare_subscriber(self.keys.tokens()).history(true);
        let tokens = tokens.callback(move |sample| {
            if let Some(shared) = node.upgrade() {
                shared.token_changed(&sample);
            }
        });
        let mut subscribers = vec![mailbox, tokens.wait()?];
        if let Some(caches) = self.keys.caches() {
            let late = Arc::downgrade(self);
            let caches = self.session.liveliness().declare_subscriber(caches).callback(move |token| {
                if let Some(shared) = late.upgrade() {
                    shared.cache_came(&token);
                }
            });
            subscribers.push(caches.wait()?);
        }
        let schemas = self.serve_schemas()?;
        let token = self.session.liveliness().declare_token(self.keys.token(me)).wait()?;
        let (mut ros_node, mut types) = (None, None);
        if let Some(graph) = &self.graph {
            for (end, changed) in [
                (End::Publisher, Shared::ros_publisher_changed as fn(&Shared, &Sample)),
                (End::Subscriber, Shared::ros_subscriber_changed),
            ] {
                let port = Arc::downgrade(self);
                let watch = self.session.liveliness().declare_subscriber(graph.all(end)).history(true);
                let watch = watch.callback(move |sample| {
                    if let Some(shared) = port.upgrade() {
                        changed(&shared, &sample);
                    }
                });
                subscribers.push(watch.wait()?);
            }
            types = Some(self.serve_types(graph)?);
            ros_node = Some(self.session.liveliness().declare_token(graph.token()).wait()?);
        }
        Ok(Declared { _token: token, _subscribers: subscribers, _ros_node: ros_node, _types: types, _schemas: schemas })
    }

    /// Returns where the messages of a channel are put, or `None` if they go by mail. Fails if the
    /// channel must be a topic of ROS 2 and cannot be one.
    fn place(&self, channel: ChannelId, announced: &Announcement) -> Result<Option<Place>, String> {
        let schema = self.sink.document(announced.schema);
        let known = schema.as_deref().and_then(|bytes| Schema::from_bytes(bytes, &SchemaLimits::default()).ok());
        let kept = late::history_depth(announced, known.as_ref());
        let Some(graph) = &self.graph else {
            let key = self.keys.of(&announced.topic).filter(|_| self.keys.uses_topic_key(announced));
            let encoding = Encoding::from(encoding::of(announced));
            return Ok(key.map(|key| Place { key, encoding, kept: kept as usize, ros: None }));
        };
        if !self.keys.uses_topic_key(announced) {
            return Ok(None);
        }
        let topic = ros::Topic::of(announced, known.as_ref()).map_err(|unfit| unfit.to_string())?;
        let key = self.keys.of_ros_topic(&topic).ok_or("the topic is no key")?;
        let token = graph.token_of_channel(channel.0, &topic, announced, kept);
        let token = self.session.liveliness().declare_token(token).wait().map_err(errors::text)?;
        let ros = Ros { topic, header: ros::header(announced), _token: token };
        Ok(Some(Place { key, encoding: Encoding::default(), kept: kept as usize, ros: Some(ros) }))
    }

    /// Declares or drops this node's token as a subscriber to a topic of ROS 2, depending on
    /// whether it reads publishers of that topic.
    fn show_ros_subscriber(&self, topic: ros::Topic) {
        let Some(graph) = &self.graph else { return };
        let mut shown = self.ros_subscribers.lock();
        // Reads the state under the lock of `shown`: another thread may update the same token.
        let Some(channel) = self.lock().publishers.read(&topic) else { return drop(shown.remove(&topic)) };
        let requested = self.sink.requested(&topic.name).into_iter().reduce(|a, b| policies::stronger(&a, &b));
        let qos = requested.unwrap_or_default();
        if shown.get(&topic).is_some_and(|(shown, _)| *shown == qos) {
            return;
        }
        let token = graph.token_of(End::Subscriber, channel.0, &topic, &qos);
        match self.session.liveliness().declare_token(token).wait() {
            Ok(token) => drop(shown.insert(topic, (qos, token))),
            Err(error) => log::warn!("{}: {}", self.endpoint, errors::text(error)),
        }
    }

    /// Returns the names of those topics of ROS 2 that this node reads and that satisfy `which`.
    pub(super) fn topics_read(&self, which: impl Fn(&ros::Topic) -> bool) -> Vec<String> {
        self.ros_subscribers.lock().keys().filter(|topic| which(topic)).map(|topic| topic.name.clone()).collect()
    }

    /// Drops the subscriber tokens of topics that this node no longer reads, after publishers of
    /// ROS 2 have disappeared.
    pub(super) fn end_ros_subscribers(&self) {
        let shown: Vec<ros::Topic> = self.ros_subscribers.lock().keys().cloned().collect();
        shown.into_iter().for_each(|topic| self.show_ros_subscriber(topic));
    }

    fn check_announcement(&self, state: &State, a: &Announcement, start: Start) -> Result<(), EngineError> {
        let limits = &self.local.options.limits;
        if state.channels.len() >= limits.channels {
            return Err(FrameError::TooManyChannels { limit: limits.channels }.into());
        }
        let frame = Frame::Announce { channel: ChannelId(u32::MAX), start, announcement: Box::new(a.clone()) };
        let sizes = [
            ("announcement", encoded(&frame).len(), limits.announcement_bytes),
            ("offer", a.offer.len(), limits.extension_bytes),
        ];
        match sizes.into_iter().find(|(_, got, limit)| got > limit) {
            Some((what, got, limit)) => Err(FrameError::TooLong { what, got: got as u64, limit }.into()),
            None => Ok(()),
        }
    }

    fn send(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        self.local.options.limits.check_message(envelope, loan.payload().len())?;
        let state = self.lock();
        if state.is_closing {
            return Err(EngineError::Closed);
        }
        let Some(channel) = state.channels.get(&envelope.channel) else { return Ok(Sent::default()) };
        let (service, writer) = (channel.service.clone(), channel.announcement.writer);
        let outlet = channel.outlet.as_ref().filter(|outlet| outlet.takes(envelope)).cloned();
        let ended = channel.outlet.as_ref().filter(|outlet| outlet.ends(envelope)).cloned();
        let mut message = Message::new(envelope, loan.payload(), outlet.is_some());
        message.cannot_wait = state.is_handing() && matches!(self.local.options.overflow, Overflow::Block { .. });
        let (mut state, has_waited) = self.wait_for_room(state, &message);
        if has_waited {
            outlet.iter().for_each(|outlet| outlet.waited());
        }
        let (mut sent, mut notices) = (Sent::default(), Vec::new());
        let mut is_mark_due = false;
        state.each_link(|link, way| {
            link.send(way, &mut message).count(&mut sent);
            is_mark_due |= link.is_mark_due();
            if link.has_notices() {
                notices.extend(link.take_notices().into_iter().map(|notice| (link.info.clone(), notice)));
            }
        });
        if service.is_some_and(|end| state.speak(&end, writer, envelope, loan.payload())) {
            sent += Sent { peers: 1, subscribers: 1, ..Sent::default() };
        }
        if let Some(outlet) =
            outlet.filter(|outlet| message.is_read_by_peer || (outlet.is_heard() && !state.out.is_jammed()))
        {
            sent.others = usize::from(!message.is_read_by_peer && outlet.is_heard_now());
            let (attachment, payload) = outlet.sample(writer, envelope, loan);
            state.out.push(Put::Sample { outlet, instance: envelope.key_hash, attachment, payload });
            if is_mark_due {
                state.each_link(|link, way| link.mark_if_due(way));
            }
        }
        if let Some(outlet) = ended {
            state.out.push(Put::End { outlet, instance: envelope.key_hash });
        }
        self.pump(state);
        for (link, (topic, count)) in notices {
            self.sink.event(Event::Dropped { link, topic: topic.to_string(), count });
        }
        Ok(sent)
    }

    /// Waits until all peers have room for a message, if the policy says so. Returns
    /// whether it has waited.
    fn wait_for_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        message: &Message<'_>,
    ) -> (MutexGuard<'a, State>, bool) {
        let Overflow::Block { patience } = self.local.options.overflow else { return (state, false) };
        if message.cannot_wait {
            return (state, false);
        }
        let mut has_waited = false;
        loop {
            let out = &state.out;
            let full = state.links().find(|link| link.must_wait(message, out));
            let Some((id, before)) = full.map(|link| (link.info.id, link.progress())) else {
                return (state, has_waited);
            };
            if state.is_closed {
                return (state, has_waited);
            }
            has_waited = true;
            state.waiting += 1;
            let stuck = |state: &mut State| {
                !state.is_closed
                    && state
                        .link(id)
                        .is_some_and(|link| link.progress() == before && link.must_wait(message, &state.out))
            };
            let waited = self.room.wait_while_for(&mut state, stuck, patience);
            state.waiting -= 1;
            if waited.timed_out()
                && let Some((link, _)) = state.way(id)
            {
                link.stall(message);
            }
        }
    }

    fn tell(&self, link: LinkId, frame: &Frame<'_>) {
        let mut state = self.lock();
        if let Some((link, mut way)) = state.way(link) {
            link.send_frame(&mut way, &encoded(frame));
        }
        self.pump(state);
    }

    /// Puts everything in `State::out` into the session, unless another thread is doing so.
    pub(super) fn pump<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        let is_held_back = state.holds_back.is_some_and(|thread| thread == thread::current().id());
        if !is_held_back && !std::mem::replace(&mut state.is_pumping, true) {
            while let Some(put) = state.out.pop() {
                // A mail that another put follows at once may leave in one packet with it.
                let is_last = state.out.is_empty();
                drop(state);
                self.put(put, is_last);
                state = self.lock();
            }
            state.is_pumping = false;
        }
        if state.waiting > 0 {
            self.room.notify_all();
        }
    }

    /// Puts one item. Called without a lock, because the session may wait for the network.
    fn put(&self, put: Put, is_last: bool) {
        let result = match put {
            Put::Sample { outlet, instance, attachment, payload } => outlet.put(instance, attachment, payload),
            Put::End { outlet, instance } => return outlet.forget(instance),
            Put::Mail { to, bytes, .. } => to.put(&self.session, bytes, is_last),
            Put::Forget { .. } => return,
            Put::Ask { schema } => return self.ask(schema),
            Put::AskType { topic, nodes } => return self.ask_type(*topic, &nodes),
            Put::AskKept { topic } => return self.ask_kept(*topic),
            Put::Call { end, channel, sequence, attachment, payload } => {
                self.call(&end, channel, sequence, attachment, payload)
            }
            Put::Reply(reply) => reply.send(),
        };
        // The receiving end notices what does not arrive, so the error is only logged.
        if let Err(error) = result {
            log::debug!("{}: {error}", self.endpoint);
        }
    }

    pub(super) fn listen(self: &Arc<Self>, key: OwnedKeyExpr) {
        let mut interest = self.interest.lock();
        interest.add(key, |key| self.listener(key));
        *self.wild.lock() = interest.wild().into();
    }

    pub(super) fn unlisten(self: &Arc<Self>, key: &OwnedKeyExpr) {
        let mut interest = self.interest.lock();
        interest.remove(key, |key| self.listener(key));
        *self.wild.lock() = interest.wild().into();
    }

    /// Whether this node listens to a key.
    pub(super) fn listens(&self, key: &OwnedKeyExpr) -> bool {
        self.interest.lock().covers(key)
    }

    /// Whether a sample counts for this pattern, and not for another one that overlaps it.
    pub(super) fn is_for(&self, pattern: &OwnedKeyExpr, sample: &Sample) -> bool {
        let wild = self.wild.lock().clone();
        is_for(&wild, pattern, sample.key_expr())
    }

    /// Runs the sending thread: sends what becomes due by time, or because something has arrived.
    fn keep_time(self: &Arc<Self>) {
        let mut state = self.lock();
        while !state.is_closed {
            let is_busy = state.keep_time(Instant::now());
            if !state.inbox.is_empty() && state.handing.is_none() && std::mem::take(&mut state.delivery_idle) {
                self.arrived.notify_one();
            }
            if !state.out.is_empty() || state.waiting > 0 {
                self.pump(state);
                state = self.lock();
            }
            if let Some(query) = state.schemas.next_query() {
                drop(state);
                self.answer_query(query);
                state = self.lock();
            }
            let wait = if is_busy { TICK * state.crowd().min(20) } else { 20 * TICK };
            if !state.is_due() && !state.is_closed {
                state.sender_idle = true;
                self.due.wait_for(&mut state, wait);
                state.sender_idle = false;
            }
        }
    }

    /// Releases the lock, and wakes those threads for which there is work.
    pub(super) fn wake(&self, mut state: MutexGuard<'_, State>) {
        let wakes_sender = state.is_due() && std::mem::take(&mut state.sender_idle);
        let has_come = !state.inbox.is_empty() && state.handing.is_none();
        let wakes_delivery = has_come && std::mem::take(&mut state.delivery_idle);
        let wakes_waiting = state.waiting > 0;
        drop(state);
        if wakes_sender {
            self.due.notify_one();
        }
        if wakes_waiting {
            self.room.notify_all();
        }
        if wakes_delivery {
            self.arrived.notify_one();
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
            state.waiting += 1;
            self.room.wait_for(&mut state, left.min(TICK));
            state.waiting -= 1;
        }
    }

    fn close(self: &Arc<Self>) {
        if self.lock().is_closed {
            return;
        }
        let deadline = Instant::now() + self.local.options.linger;
        self.lock().is_closing = true;
        self.due.notify_all();
        self.wait_until(deadline, State::is_acknowledged);
        self.say_goodbye(deadline.max(Instant::now() + TICK));
        let declared = {
            let mut state = self.lock();
            if std::mem::replace(&mut state.is_closed, true) {
                return;
            }
            let names: Vec<Name> = state.peers.keys().copied().collect();
            names.into_iter().for_each(|name| state.take_down(name, Disconnect::Closed));
            let unsent: Vec<Put> = std::iter::from_fn(|| state.out.pop()).collect();
            let (channels, peers) = (std::mem::take(&mut state.channels), std::mem::take(&mut state.peers));
            (channels, peers, unsent, state.all_queries())
        };
        // Dropped without the lock, because the session calls back.
        drop(declared);
        [&self.due, &self.room, &self.arrived].iter().for_each(|all| {
            all.notify_all();
        });
        let threads = std::mem::take(&mut *self.threads.lock());
        let me: ThreadId = thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
            // `join` fails if a callback has panicked, which was printed.
            let _ = thread.join();
        }
        let mut state = self.lock();
        while state.handing.is_some() && !state.is_handing() && Instant::now() < deadline + TICK {
            drop(state);
            thread::sleep(Duration::from_millis(1));
            state = self.lock();
        }
        drop(state);
        self.hand_over_rest();
        drop(self.declared.lock().take());
        self.ros_subscribers.lock().clear();
        self.interest.lock().clear();
        if let Err(error) = self.session.close().wait() {
            log::debug!("{}: {error}", self.endpoint);
        }
    }

    /// Sends goodbye to the peers, and waits until all links have ended, or until `deadline`.
    fn say_goodbye(&self, deadline: Instant) {
        let mut state = self.lock();
        state.each_link(|link, way| link.tell(way, &Frame::Bye));
        self.pump(state);
        self.wait_until(deadline, |state| state.links().next().is_none());
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
