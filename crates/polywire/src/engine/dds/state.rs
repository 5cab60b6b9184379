//! The state of a port, which its callers and its threads share.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::{Answer, DatagramEncoder, Frame, Hello, Start},
    qos::Offer,
    ros::TypeHash,
};
use polywire_dds::{Endpoint, Guid, Participant, Writer};

use super::{
    super::{
        EngineOptions, LinkId, Sink,
        foreign::{Need, Types},
    },
    deferred::{Deferred, Late},
    dispatch::Inlet,
    form::{Form, OCTETS, Place},
    inbox::Inbox,
    name::Naming,
    peer::{ControlEncoder, Gate, Incoming, Interest, Link, Peer, ReadEnd, Reading},
    service::{Pending, RequestIdCodec},
};

/// Everything that the threads of a port share.
pub(super) struct Shared {
    pub(super) endpoint: String,
    pub(super) hello: Hello,
    pub(super) options: EngineOptions,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) us: Participant,
    /// Whether types are sent to other programs, and read from them.
    pub(super) types: bool,
    pub(super) naming: Naming,
    /// Whether the participant has DDS Security.
    pub(super) is_secure: bool,
    pub(super) control_encoder: ControlEncoder,
    pub(super) encoder: DatagramEncoder,
    pub(super) inbox: Arc<Inbox>,
    pub(super) inlet: Arc<Inlet>,
    pub(super) deferred: Deferred,
    /// Requests to services of ROS 2 or DDS-RPC that this node has not answered.
    pub(super) pending: Mutex<Pending>,
    /// Must not be locked while Cyclone is called: Cyclone's threads may wait for this lock while
    /// they dispatch a message.
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) closed: bool,
    pub(super) last_channel: u32,
    pub(super) channels: BTreeMap<ChannelId, Arc<Channel>>,
    /// The peers, by participant.
    pub(super) peers: BTreeMap<Guid, Peer>,
    /// The writers of other participants in the domain.
    pub(super) writers: BTreeMap<Guid, Endpoint>,
    /// The readers of other participants in the domain.
    pub(super) readers: BTreeMap<Guid, Endpoint>,
    /// Channels of this node, with the readers of other programs that DDS Security keeps from them.
    pub(super) denied: BTreeSet<(ChannelId, Guid)>,
    pub(super) read_ends: Vec<Weak<ReadEnd>>,
    /// The types of writers of ROS 2.
    pub(super) types: Types<(Guid, ChannelId)>,
    /// Participants for which too many control messages wait. The port's thread ends their links.
    pub(super) cut_off: BTreeSet<Guid>,
}

/// A channel of this node.
pub(super) struct Channel {
    pub(super) id: ChannelId,
    pub(super) announcement: Announcement,
    pub(super) form: Form,
    /// `Some` if the channel belongs to a service of ROS 2 or DDS-RPC.
    pub(super) id_codec: Option<RequestIdCodec>,
    /// The names of its topic and type in DDS.
    pub(super) topic: String,
    pub(super) type_name: String,
    pub(super) writer: Writer,
    /// The number of readers that match the writer, as DDS counts them.
    pub(super) readers: Arc<AtomicUsize>,
    /// Messages are written even without readers, so that DDS programs that join later get them.
    pub(super) keeps: bool,
    /// The publisher whose application asserts its liveliness by this channel's messages.
    pub(super) asserts: Option<Id128>,
    pub(super) sending: Mutex<Sending>,
    pub(super) late: Late,
}

/// The part of a channel that changes while the channel is used.
pub(super) struct Sending {
    /// The sequence number and the time of the last message.
    pub(super) last: Start,
    pub(super) interest: BTreeMap<LinkId, (Arc<Link>, Interest)>,
    /// Messages dropped since the last `Event::Dropped`, and the time of that event.
    pub(super) dropped: u64,
    pub(super) told: Option<Instant>,
}

impl Channel {
    /// Notes that a peer is asked whether it wants the channel. Returns the place of the last
    /// message: the peer may get the messages after it.
    pub(super) fn ask(&self, link: &Arc<Link>) -> Start {
        let mut sending = self.sending.lock();
        let last = sending.last;
        sending.interest.insert(link.info.id, (link.clone(), Interest::Asked(last)));
        last
    }

    /// Returns the links of the peers that want the channel, or may still want it.
    pub(super) fn takers(&self) -> Vec<Arc<Link>> {
        let sending = self.sending.lock();
        let wants = |interest: &Interest| !matches!(interest, Interest::Unwanted);
        sending.interest.values().filter(|(_, interest)| wants(interest)).map(|(link, _)| link.clone()).collect()
    }

    pub(super) fn has_readers(&self) -> bool {
        self.readers.load(Ordering::Acquire) > 0
    }

    pub(super) fn announce(&self, start: Start) -> Frame<'static> {
        Frame::Announce { channel: self.id, start, announcement: Box::new(self.announcement.clone()) }
    }
}

impl State {
    pub(super) fn peer_of(&mut self, link: LinkId) -> Option<(Guid, &mut Peer)> {
        let is_it = |peer: &Peer| peer.link.as_ref().is_some_and(|known| known.info.id == link);
        self.peers.iter_mut().find(|(_, peer)| is_it(peer)).map(|(guid, peer)| (*guid, peer))
    }

    /// Returns whether there is room for another participant. `None` while the port closes: then
    /// nobody is taken in.
    pub(super) fn has_room(&self, most: usize) -> Option<bool> {
        (!self.closed).then_some(self.peers.len() < most)
    }

    pub(super) fn post(&mut self, guid: Guid, message: Vec<u8>) {
        let node = self.peers.get_mut(&guid).and_then(|peer| peer.node.as_mut());
        if node.is_some_and(|node| !node.post(message)) {
            self.cut_off.insert(guid);
        }
    }

    /// Notes a writer of another participant, or its new policies. Returns false if the writer is
    /// new, and `most` are known.
    pub(super) fn note_writer(&mut self, writer: &Endpoint, most: usize) -> bool {
        note(&mut self.writers, writer, most)
    }

    /// Notes a reader of another participant, or its new policies, unless the reader is new and
    /// `most` are known.
    pub(super) fn note_reader(&mut self, reader: &Endpoint, most: usize) {
        let _is_noted = note(&mut self.readers, reader, most);
    }

    /// Returns the channels of a publisher, without its auxiliary channels.
    pub(super) fn channels_of(&self, publisher: Id128) -> Vec<Arc<Channel>> {
        self.channels.values().filter(|channel| channel.announcement.writer == publisher).cloned().collect()
    }

    /// Returns the readers that are still in use.
    pub(super) fn read_ends(&self) -> impl Iterator<Item = Arc<ReadEnd>> {
        self.read_ends.iter().filter_map(Weak::upgrade)
    }

    pub(super) fn incoming(&mut self, guid: Guid, channel: ChannelId) -> Option<&mut Incoming> {
        self.peers.get_mut(&guid)?.incoming.get_mut(&channel)
    }

    /// Notes that the node needs the type of a ROS 2 writer's channel. `None` if the writer is not
    /// of ROS 2, or if the type is known to be unavailable. Unless the channel is already read, its
    /// samples wait until the node answers again.
    pub(super) fn need_type(
        &mut self,
        link: LinkId,
        channel: ChannelId,
        most: usize,
        now: Instant,
    ) -> Option<(Guid, TypeHash, Need)> {
        let (guid, peer) = self.peer_of(link)?;
        let incoming = peer.incoming.get(&channel).filter(|_| peer.node.is_none())?;
        let hash = Offer::parse(&incoming.announcement.offer).ok()?.ros_type?;
        let need = self.types.need(&hash.to_string(), (guid, channel), most, now);
        if need == Need::Unknown {
            return None;
        }
        let incoming = self.incoming(guid, channel)?;
        incoming.is_answered &= incoming.reading.is_some();
        Some((guid, hash, need))
    }

    /// Notes the node's answer to a channel of a peer. Returns the participant, and what follows
    /// from the answer. A channel may be read before it is answered: see `Worker::renew_offer`.
    pub(super) fn answer(
        &mut self,
        encoder: &ControlEncoder,
        link: LinkId,
        channel: ChannelId,
        answer: Answer,
    ) -> Option<(Guid, Answered)> {
        let (guid, peer) = self.peer_of(link)?;
        let is_node = peer.node.is_some();
        let incoming = peer.incoming.get_mut(&channel)?;
        let (writer, mut answered) = (incoming.writer, Answered::Noted);
        let was_answered = std::mem::replace(&mut incoming.is_answered, true);
        match &mut incoming.reading {
            _ if !answer.accepts() => {
                answered = Answered::Ended { writer, reading: incoming.reading.take() };
                self.post(guid, encoder.encode(&[Frame::Answer { channel, answer }]));
            }
            Some(_) if !was_answered => answered = Answered::Begins,
            Some(Reading { answer: waiting @ Some(_), .. }) => *waiting = Some(answer.lasting(waiting.as_ref())),
            Some(_) => self.post(guid, encoder.encode(&[Frame::Answer { channel, answer }])),
            none @ None => {
                let gate = match is_node {
                    true => Gate::Shut(Vec::new()),
                    false => Gate::Open(Place { last: 0, begins_after_ns: None }),
                };
                *none = Some(Reading { reader: None, answer: Some(answer), gate });
                answered = Answered::Begins;
            }
        }
        Some((guid, answered))
    }

    /// Notes the writer of another node's channel. With DDS Security, the writer must have the
    /// topic that the node announces, because permissions apply only to the names in DDS.
    pub(super) fn found(&mut self, shared: &Shared, guid: Guid, channel: ChannelId, writer: &Endpoint) {
        let Some(peer) = self.peers.get_mut(&guid) else { return };
        peer.by_writer.insert(writer.guid, channel);
        if let Some(incoming) = peer.incoming.get_mut(&channel) {
            let topic = &incoming.announcement.topic;
            if shared.is_secure && !shared.naming.fits(topic, writer) {
                let Shared { endpoint, .. } = shared;
                return log::warn!("{endpoint}: {guid} announces '{topic}' and writes to {}", writer.topic);
            }
            incoming.found(writer);
        }
    }
}

fn note(known: &mut BTreeMap<Guid, Endpoint>, end: &Endpoint, most: usize) -> bool {
    let has_room = known.len() < most || known.contains_key(&end.guid);
    if has_room {
        known.insert(end.guid, end.clone());
    }
    has_room
}

/// What follows from an answer.
pub(super) enum Answered {
    Noted,
    /// The channel is read from now on.
    Begins,
    /// The channel is no longer read.
    Ended {
        writer: Option<Guid>,
        reading: Option<Reading>,
    },
}

impl Incoming {
    pub(super) fn new(announcement: &Announcement) -> Incoming {
        let announcement = Arc::new(announcement.clone());
        let (form, writer, reading, document, history, history_of) = Default::default();
        let (position, ends_at, is_answered, has_missed) = Default::default();
        Incoming {
            announcement,
            document,
            form,
            writer,
            reading,
            position,
            ends_at,
            history,
            history_of,
            is_answered,
            has_missed,
        }
    }

    pub(super) fn found(&mut self, writer: &Endpoint) {
        let has_header = self.announcement.has_option("header");
        let is_keyed = writer.guid.is_keyed().unwrap_or_default();
        self.writer = Some(writer.guid);
        self.form = Some(match writer.type_name.as_str() {
            OCTETS => Form::Octets,
            _ => Form::Native { identifier: [0, 1], is_keyed, has_header },
        });
    }

    /// Checks whether a retired channel is complete, so that it can end. `last` is the number of
    /// the last message that was passed to the node.
    pub(super) fn is_over(&self, last: Option<u64>) -> bool {
        let Some(end) = self.ends_at else { return false };
        match &self.reading {
            Some(Reading { gate: Gate::Open(place), .. }) => last.unwrap_or(place.last) >= end,
            Some(Reading { gate: Gate::Shut(_), .. }) => self.writer.is_none(),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::frame::Limits;
    use polywire_dds::Qos;

    use super::{
        super::super::{LinkInfo, Principal, recorder::Recorder},
        *,
    };

    #[test]
    fn a_request_for_a_key_frame_keeps_the_reason_of_the_answer_that_waits() {
        let encoder = ControlEncoder(DatagramEncoder::new(Id128([9; 16]), 1, Limits::default()));
        let (link, guid, mut state) = (LinkId::next(), Guid([1; 16]), State::default());
        let (address, principal) = (String::new(), Principal::Anonymous);
        let info = LinkInfo { id: link, peer: Hello::default(), address, principal };
        let mut peer = Peer::new(None);
        peer.link = Some(Link::new(info, Arc::new(Recorder::default())));
        let channel = peer.add(Incoming::new(&Announcement::default()));
        state.peers.insert(guid, peer);
        let partial = |count| Answer::Partial(count, "no member 'id'".into());
        let begins = state.answer(&encoder, link, channel, partial(1));
        assert!(matches!(begins, Some((_, Answered::Begins))));
        let noted = state.answer(&encoder, link, channel, Answer::Renew(2));
        assert!(matches!(noted, Some((_, Answered::Noted))));
        let waiting = state.incoming(guid, channel).and_then(|incoming| incoming.reading.as_ref()?.answer.clone());
        assert_eq!(waiting, Some(partial(2)));
    }

    #[test]
    fn a_port_that_closes_has_neither_room_nor_too_many_participants() {
        let mut state = State::default();
        assert_eq!((state.has_room(1), state.has_room(0)), (Some(true), Some(false)));
        state.closed = true;
        assert_eq!((state.has_room(1), state.has_room(0)), (None, None));
    }

    #[test]
    fn policies_of_known_writers_and_readers_change_although_there_is_no_room() {
        let end = |guid: u8, strength| Endpoint {
            guid: Guid([guid; 16]),
            participant: Guid([guid; 16]).participant(),
            topic: "pumps".into(),
            type_name: "plant::Pump".into(),
            qos: Qos { exclusive: Some(strength), ..Qos::default() },
            types: None,
        };
        let mut state = State::default();
        assert!(state.note_writer(&end(1, 1), 1) && state.note_writer(&end(1, 2), 1));
        assert!(!state.note_writer(&end(2, 1), 1));
        [end(1, 1), end(1, 2), end(2, 1)].iter().for_each(|reader| state.note_reader(reader, 1));
        let known = BTreeMap::from([(Guid([1; 16]), end(1, 2))]);
        assert_eq!((&state.writers, &state.readers), (&known, &known));
    }
}
