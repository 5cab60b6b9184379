//! Receiving: Zenoh's threads note what arrives, and the delivering thread hands it to the node.

use std::{borrow::Cow, cell::RefCell, sync::Arc, task::Poll, thread, time::Duration};

use parking_lot::MutexGuard;
use polywire_core::{
    envelope::{Envelope, Id128},
    frame::{Frame, Limits, parse_datagram_frame},
};
use zenoh::{
    bytes::ZBytes,
    sample::{Sample, SampleKind},
};

use super::{
    super::{
        Aligned, Event, LinkId, LinkInfo, LinkSink,
        foreign::{encoding, since_1970},
        inline,
    },
    attachment::{self, Attached},
    inbox::{Arrival, Arrived, Message, Origin},
    key::last,
    mail::{Content, signed},
    port::Shared,
    ros::{self, End},
    state::{Near, State, TOGETHER},
};
use crate::clock;

thread_local! {
    /// The aligned buffer for payloads that this thread of Zenoh hands over.
    static HERE: RefCell<Aligned> = RefCell::default();
}

/// Messages with a larger payload are handed over one by one.
const SMALL: usize = 1 << 10;

/// Zenoh's threads call these. They do not wait for another peer or for a queue of the node.
impl Shared {
    /// Handles a node's token that has appeared or disappeared.
    pub(super) fn token_changed(&self, sample: &Sample) {
        let Some(name) = last(sample.key_expr().as_str()) else { return };
        let mut state = self.lock();
        match sample.kind() {
            SampleKind::Put => state.appeared(name, clock::wall_ns().unsigned_abs()),
            SampleKind::Delete => state.vanished(name),
        }
        self.wake(state);
    }

    /// Handles a mail of another node to this one.
    pub(super) fn mail_came(&self, sample: &Sample) {
        let bytes = sample.payload().to_bytes();
        let Some((from, mail)) = signed(&bytes) else { return log::debug!("{}: what came is no mail", self.endpoint) };
        let mut state = self.lock();
        state.mail(from, mail, clock::wall_ns().unsigned_abs());
        self.wake(state);
    }

    /// Handles a sample that was published under the key of a topic.
    pub(super) fn sample_came(&self, sample: Sample) {
        if self.keys.is_ros() {
            return self.ros_sample_came(&sample);
        }
        let attachment = sample.attachment().map(|bytes| bytes.to_bytes()).unwrap_or_default();
        match attachment::parse(&attachment, &self.local.options.limits) {
            Ok(Attached::Ours(writer, envelope)) => self.ours_came(writer, &envelope, sample.payload()),
            Ok(Attached::Foreign) => self.foreign_sample_came(sample),
            Err(error) => log::debug!("{}: a malformed attachment: {error}", sample.key_expr()),
        }
    }

    /// Handles a message of a Polywire node.
    fn ours_came(&self, writer: Id128, envelope: &Envelope<'_>, payload: &ZBytes) {
        let now = inline::now();
        let keep = |mut state: MutexGuard<'_, State>, link| {
            state.sample(link, envelope, payload);
            self.wake(state);
        };
        let here = inline::shortly(|| {
            let mut state = self.lock();
            let Some(link) = state.link_of(writer, envelope.channel) else { return Poll::Ready(None) };
            match state.begin_handing(now) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(true) => Poll::Ready(Some((link, state.near(link)))),
                Poll::Ready(false) => {
                    keep(state, link);
                    Poll::Ready(None)
                }
            }
        });
        match here {
            Some(Some(found)) => self.hand_over_here(now, writer, found, envelope, payload),
            Some(None) => {}
            None => {
                let state = self.lock();
                if let Some(link) = state.link_of(writer, envelope.channel) {
                    keep(state, link);
                }
            }
        }
    }

    /// Hands a message over on this thread if it goes to callbacks alone, or else adds it to the
    /// inbox.
    fn hand_over_here(
        &self,
        began: Duration,
        writer: Id128,
        (link, near): (LinkId, Result<Arc<dyn LinkSink>, u64>),
        envelope: &Envelope<'_>,
        payload: &ZBytes,
    ) {
        let changes = near.as_ref().err().copied();
        let sink = near.ok().or_else(|| self.sinks.lock().get(&link).cloned());
        let sink = sink.filter(|sink| {
            HERE.with(|here| {
                let mut place = here.take();
                let is_taken = sink.message_inline(envelope, place.place(&payload.to_bytes()));
                here.replace(place);
                is_taken
            })
        });
        let mut state = self.lock();
        state.handed(began);
        match sink {
            None => {
                // No other message of the link has arrived meanwhile, because one thread of Zenoh
                // serves a link.
                state.sample(link, envelope, payload);
            }
            Some(sink) => {
                let near = |changes| state.note_near(Near { writer, channel: envelope.channel, link, sink }, changes);
                changes.map(near).unwrap_or_default();
            }
        }
        self.wake(state);
    }

    fn ros_sample_came(&self, sample: &Sample) {
        let topic = self.keys.ros_topic(sample.key_expr().as_str());
        let Some(topic) = topic.filter(|_| sample.kind() == SampleKind::Put) else { return };
        let attached = sample.attachment().and_then(|bytes| ros::parse_attachment(&bytes.to_bytes()));
        let mut state = self.lock();
        let is_ours = attached.is_some_and(|(writer, at)| state.ros_sample(writer, at, sample.payload()));
        if !is_ours {
            state.of_ros(|publishers, context| publishers.message(&topic, attached, sample.payload(), context));
        }
        self.wake(state);
    }

    /// Handles the token of a publisher in ROS 2 that has appeared or disappeared.
    pub(super) fn ros_publisher_changed(&self, sample: &Sample) {
        let token = sample.key_expr().as_str();
        let publisher = self.graph.as_ref().and_then(|graph| graph.theirs(End::Publisher, token));
        let Some(publisher) = publisher else { return };
        let (gid, mut state) = (ros::gid(token), self.lock());
        state.of_ros(|publishers, context| match sample.kind() {
            SampleKind::Put => publishers.token_added(gid, &publisher, context),
            SampleKind::Delete => publishers.remove(gid, context),
        });
        self.wake(state);
    }

    /// Handles the token of a subscriber in ROS 2 that has appeared or disappeared.
    pub(super) fn ros_subscriber_changed(&self, sample: &Sample) {
        let token = sample.key_expr().as_str();
        let reader = self.graph.as_ref().and_then(|graph| graph.theirs(End::Subscriber, token));
        let Some(reader) = reader else { return };
        let (name, mut state) = (reader.topic.name.clone(), self.lock());
        let is_new = match sample.kind() {
            SampleKind::Put => state.readers.token_added(token, reader),
            SampleKind::Delete => state.readers.token_removed(&name, token),
        };
        if is_new {
            state.readers_changed(&name);
        }
        self.wake(state);
    }

    /// Handles a sample of a foreign application. A *delete* is ignored: it names no instance.
    pub(super) fn foreign_came(&self, sample: &Sample) {
        let Some(topic) = self.keys.topic(sample.key_expr().as_str()) else { return };
        if sample.kind() == SampleKind::Delete {
            return;
        }
        let encoding = encoding::read(&sample.encoding().to_string());
        let published = sample.timestamp().map(|at| at.get_time().to_system_time());
        let timestamp_ns = published.map_or_else(clock::wall_ns, since_1970);
        let mut state = self.lock();
        state.foreign(topic, encoding, timestamp_ns, sample.payload());
        self.wake(state);
    }
}

/// Functions that the delivering thread calls.
impl Shared {
    /// Runs the delivering thread: hands over what arrives until the port closes.
    pub(super) fn deliver(self: &Arc<Self>) {
        let mut buffers = DeliveryBuffers::default();
        while !self.lock().is_closed {
            if self.hand_over_next(&mut buffers) {
                continue;
            }
            buffers.drained();
            let mut state = self.lock();
            if state.inbox.is_empty() && !state.is_closed {
                state.delivery_idle = true;
                self.arrived.wait(&mut state);
                state.delivery_idle = false;
            }
        }
    }

    /// Hands over what is left when the port closes.
    pub(super) fn hand_over_rest(self: &Arc<Self>) {
        let mut buffers = DeliveryBuffers::default();
        while self.hand_over_next(&mut buffers) {}
        buffers.drained();
    }

    /// Hands over what is next: consecutive messages of one link, or something else. Returns false
    /// if there is nothing.
    fn hand_over_next(self: &Arc<Self>, buffers: &mut DeliveryBuffers) -> bool {
        let mut row = std::mem::take(&mut buffers.row);
        let mut state = self.lock();
        let link = state.next_row(&mut row);
        // The answers to consecutive announcements leave together.
        let is_announcement = link.is_none() && state.handing.is_none() && state.inbox.is_announcement_next();
        let other = if link.is_none() && state.handing.is_none() { state.inbox.pop() } else { None };
        state.holds_back = is_announcement.then(|| thread::current().id());
        drop(state);
        let is_something = link.is_some() || other.is_some();
        if let Some(sink) = link.and_then(|link| self.sink_of(buffers, link)) {
            self.hand_over_row(buffers, &*sink, &row);
        }
        if let Some(other) = other {
            self.hand_over(buffers, other);
        }
        if is_announcement {
            let mut state = self.lock();
            if !state.inbox.is_announcement_next() {
                state.holds_back = None;
                self.pump(state);
            }
        }
        row.clear();
        buffers.row = row;
        is_something
    }

    fn hand_over_row(&self, buffers: &mut DeliveryBuffers, sink: &dyn LinkSink, row: &[Message]) {
        let bodies: Vec<(Envelope<'_>, Cow<'_, [u8]>)> = row.iter().filter_map(|message| self.body(message)).collect();
        let are_small =
            |(_, one): &(_, Cow<'_, [u8]>), (_, next): &(_, Cow<'_, [u8]>)| one.len().max(next.len()) <= SMALL;
        for together in bodies.chunk_by(are_small) {
            if let [(envelope, body)] = together {
                sink.message(envelope, buffers.place.place(body));
                continue;
            }
            let places = together.iter().zip(&mut buffers.places);
            let placed: Vec<_> = places.map(|((envelope, body), place)| (*envelope, place.place(body))).collect();
            sink.messages(&placed);
        }
    }

    /// Returns a message's envelope and payload. `None` if its header is not that of its channel.
    fn body<'a>(&self, message: &'a Message) -> Option<(Envelope<'a>, Cow<'a, [u8]>)> {
        let (envelope, bytes) = (message.envelope(), message.payload.to_bytes());
        // The kind of encapsulation must be that of the channel. The header's options do not
        // matter.
        let body = match message.origin {
            Origin::Node(Some(header)) if !bytes.starts_with(&header[..2]) => None,
            Origin::Node(Some(_)) => behind(bytes, ros::HEADER),
            Origin::Node(None) | Origin::Foreign => Some(bytes),
        };
        if body.is_none() {
            log::debug!("{}: a message of {} has another header", self.endpoint, envelope.channel);
        }
        Some((envelope, body?))
    }

    fn hand_over(self: &Arc<Self>, buffers: &mut DeliveryBuffers, Arrived { link, what }: Arrived) {
        match what {
            Arrival::Up(info) => return self.up(&info),
            Arrival::Tell(event) => return self.sink.event(*event),
            Arrival::Mark(sent) => {
                // Lets receivers take what they have received before the sender continues.
                buffers.drained();
                return self.confirm(link, sent);
            }
            _ => {}
        }
        let Some(sink) = self.sink_of(buffers, link) else { return };
        match what {
            Arrival::Announced(channel, start, announcement) => sink.announced(channel, start, &announcement),
            Arrival::Answered(channel, answer) => sink.answered(channel, &answer),
            Arrival::Frame(bytes) => pass(&*sink, &bytes, &self.local.options.limits, &mut buffers.place),
            Arrival::Document(id, bytes) => sink.supplied(id, bytes.as_deref()),
            Arrival::Lost(channel, start, lost) => sink.position(channel, start, lost),
            Arrival::Retired(channel, key) => {
                sink.retired(channel);
                if self.keys.is_ros() {
                    self.lock().types.ended(channel);
                }
                key.iter().for_each(|key| self.unlisten(key));
                self.end_ros_subscribers();
            }
            Arrival::Down(info, reason, keys) => {
                buffers.forget(link);
                self.sinks.lock().remove(&link);
                sink.down();
                self.sink.event(Event::Disconnected { link: *info, reason });
                keys.iter().for_each(|key| self.unlisten(key));
            }
            Arrival::Up(_) | Arrival::Tell(_) | Arrival::Mark(_) | Arrival::Message(_) | Arrival::Settled(_) => {}
        }
    }

    fn up(&self, info: &LinkInfo) {
        let sink = self.sink.link(info);
        self.sinks.lock().insert(info.id, sink);
        self.sink.event(Event::Connected(info.clone()));
    }

    fn confirm(&self, link: LinkId, sent: u64) {
        let mut state = self.lock();
        if let Some((_, way)) = state.way(link) {
            way.line.send(Content::Ack(sent), way.out);
        }
        self.pump(state);
    }

    fn sink_of(&self, buffers: &mut DeliveryBuffers, link: LinkId) -> Option<Arc<dyn LinkSink>> {
        if buffers.last.as_ref().is_none_or(|(last, _)| *last != link) {
            buffers.drained();
            buffers.last = Some((link, self.sinks.lock().get(&link)?.clone()));
        }
        buffers.last.as_ref().map(|(_, sink)| sink.clone())
    }
}

/// The delivering thread's buffers, and the link that it served last.
#[derive(Default)]
struct DeliveryBuffers {
    place: Aligned,
    /// Buffers for the payloads of small messages that are handed over together.
    places: [Aligned; TOGETHER],
    row: Vec<Message>,
    /// The link that received something last, and was not informed yet that nothing follows.
    last: Option<(LinkId, Arc<dyn LinkSink>)>,
}

impl DeliveryBuffers {
    fn drained(&mut self) {
        if let Some((_, sink)) = self.last.take() {
            sink.drained();
        }
    }

    fn forget(&mut self, link: LinkId) {
        self.last.take_if(|(last, _)| *last == link);
    }
}

/// Returns the bytes behind the first `count` ones. `None` if there are fewer.
fn behind(bytes: Cow<'_, [u8]>, count: usize) -> Option<Cow<'_, [u8]>> {
    match bytes {
        Cow::Borrowed(bytes) => bytes.get(count..).map(Cow::Borrowed),
        Cow::Owned(bytes) => bytes.get(count..).map(|rest| Cow::Owned(rest.to_vec())),
    }
}

/// Passes on a frame, which was checked when it arrived.
fn pass(sink: &dyn LinkSink, bytes: &[u8], limits: &Limits, place: &mut Aligned) {
    match parse_datagram_frame(bytes, limits) {
        Ok(Frame::Data(envelope, payload)) => sink.message(&envelope, place.place(payload)),
        Ok(Frame::Position { channel, start, lost }) => sink.position(channel, start, lost),
        Ok(Frame::Want { document }) => sink.wanted(document),
        Ok(Frame::Document { document, bytes }) => sink.supplied(document, bytes),
        _ => {}
    }
}
