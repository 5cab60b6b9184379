//! The inbox: what has arrived and was not handed to the node yet, in order. What arrives on a
//! channel is held while the channel's type is asked for.

use std::collections::{BTreeMap, VecDeque};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Extensions, Id128},
    frame::{Answer, Start},
};
use zenoh::{bytes::ZBytes, key_expr::OwnedKeyExpr};

use super::{
    super::{Disconnect, Event, LinkId, LinkInfo, foreign::News},
    ros::HEADER,
};

/// An arrival for the node, on one link.
pub(super) struct Arrived {
    pub(super) link: LinkId,
    pub(super) what: Arrival,
}

pub(super) enum Arrival {
    Up(Box<LinkInfo>),
    Announced(ChannelId, Start, Box<Announcement>),
    Answered(ChannelId, Answer),
    /// A frame that changes nothing in the port.
    Frame(Vec<u8>),
    /// A message that did not arrive by mail.
    Message(Message),
    /// Messages of the channel up to this position were dropped at this node.
    Lost(ChannelId, Start, u64),
    /// The channel has ended. The node stops listening to its key, if it has one.
    Retired(ChannelId, Option<OwnedKeyExpr>),
    /// The peer's mark. It is acknowledged when everything before it was handed over.
    Mark(u64),
    /// The link has ended. The node stops listening to these keys.
    Down(Box<LinkInfo>, Disconnect, Vec<OwnedKeyExpr>),
    Tell(Box<Event>),
    /// A document of a foreign application, or that there is none.
    Document(Id128, Option<Vec<u8>>),
    /// What is held of the channel follows here.
    Settled(ChannelId),
}

pub(super) struct Message {
    /// The envelope without its extensions, which are in the next field.
    envelope: Envelope<'static>,
    extensions: Vec<u8>,
    pub(super) payload: ZBytes,
    pub(super) origin: Origin,
}

/// The origin of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A Polywire node, or a foreign application by requests, replies and histories. The payload
    /// begins with the header if there is one.
    Node(Option<[u8; HEADER]>),
    /// A publisher of a foreign application. The payload counts against the bound of foreign
    /// writers.
    Foreign,
}

impl Message {
    pub(super) fn new(envelope: &Envelope<'_>, payload: &ZBytes, origin: Origin) -> Message {
        let Envelope { channel, sequence, timestamp_ns, kind, key_hash, anchor, extensions } = *envelope;
        let plain = Envelope::data(channel, sequence, timestamp_ns);
        let (envelope, extensions) = (Envelope { kind, key_hash, anchor, ..plain }, extensions.bytes().to_vec());
        Message { envelope, extensions, payload: payload.clone(), origin }
    }

    pub(super) fn channel(&self) -> ChannelId {
        self.envelope.channel
    }

    pub(super) fn envelope(&self) -> Envelope<'_> {
        // The extensions were taken from an envelope, so they are valid.
        Envelope { extensions: Extensions::parse(&self.extensions).unwrap_or_default(), ..self.envelope }
    }
}

impl Arrival {
    /// The channel on which the arrival follows the channel's announcement. `None` for others.
    fn channel(&self) -> Option<ChannelId> {
        match self {
            Arrival::Message(message) => Some(message.channel()),
            Arrival::Lost(channel, ..) | Arrival::Retired(channel, _) | Arrival::Settled(channel) => Some(*channel),
            _ => None,
        }
    }

    /// Returns the bytes that the arrival takes.
    fn size(&self) -> usize {
        let more = match self {
            Arrival::Frame(bytes) | Arrival::Document(_, Some(bytes)) => bytes.len(),
            Arrival::Message(message) => message.extensions.len() + message.payload.len(),
            _ => 0,
        };
        size_of::<Arrived>() + more
    }
}

#[derive(Default)]
pub(super) struct Inbox {
    queue: VecDeque<Arrived>,
    /// Bytes of all arrivals that were not handed to the node, held or not.
    bytes: usize,
    /// Arrivals on channels whose type is asked for.
    held: BTreeMap<(LinkId, ChannelId), Vec<Arrival>>,
}

impl Inbox {
    pub(super) fn push(&mut self, link: LinkId, what: Arrival) {
        self.bytes += what.size();
        self.queue.push_back(Arrived { link, what });
    }

    /// Adds an arrival in front of all others.
    pub(super) fn push_first(&mut self, link: LinkId, what: Arrival) {
        self.bytes += what.size();
        self.queue.push_front(Arrived { link, what });
    }

    /// Holds what has arrived and what will arrive on a channel, until the channel is settled.
    pub(super) fn hold(&mut self, link: LinkId, channel: ChannelId) {
        self.held.entry((link, channel)).or_default();
    }

    /// Whether arrivals on a channel are held.
    pub(super) fn holds(&self, link: LinkId, channel: ChannelId) -> bool {
        self.held.contains_key(&(link, channel))
    }

    /// Ends the hold of a channel, if there is one. What is held follows what has arrived before.
    pub(super) fn settle(&mut self, link: LinkId, channel: ChannelId) {
        if self.holds(link, channel) {
            self.push(link, Arrival::Settled(channel));
        }
    }

    pub(super) fn pop(&mut self) -> Option<Arrived> {
        self.set_aside();
        let arrived = self.queue.pop_front()?;
        self.bytes -= arrived.what.size();
        Some(arrived)
    }

    /// Moves the next arrivals to `held` as long as their channels are held.
    fn set_aside(&mut self) {
        while !self.held.is_empty()
            && let Some(Arrived { link, what }) = self.queue.front()
            && let Some(at) = what.channel().map(|channel| (*link, channel))
            && let Some(came) = self.held.get_mut(&at)
            && let Some(next) = self.queue.pop_front()
        {
            match next.what {
                Arrival::Settled(_) => {
                    self.bytes -= next.what.size();
                    let came = self.held.remove(&at).unwrap_or_default();
                    came.into_iter().rev().for_each(|what| self.queue.push_front(Arrived { link: next.link, what }));
                }
                what => came.push(what),
            }
        }
    }

    /// Moves consecutive messages of one link to an empty row, at most `most` of them. Returns the
    /// link, or `None` if something else is next.
    pub(super) fn pop_row(&mut self, most: usize, row: &mut Vec<Message>) -> Option<LinkId> {
        self.set_aside();
        let link = self.queue.front()?.link;
        let is_next = |arrived: &mut Arrived| arrived.link == link && matches!(arrived.what, Arrival::Message(_));
        while row.len() < most
            && let Some(arrived) = self.queue.pop_front_if(is_next)
        {
            self.bytes -= arrived.what.size();
            if let Arrival::Message(message) = arrived.what {
                row.push(message);
            }
            self.set_aside();
        }
        (!row.is_empty()).then_some(link)
    }

    /// Whether an announcement is next, which the node answers at once.
    pub(super) fn is_announcement_next(&self) -> bool {
        matches!(self.queue.front(), Some(Arrived { what: Arrival::Announced(..), .. }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns news of foreign applications as an arrival. If it is a message, it has this payload.
pub(super) fn arrival_of(news: News, payload: &ZBytes) -> Arrival {
    match news {
        News::Up(info) => Arrival::Up(info),
        News::Announced(channel, start, announcement) => Arrival::Announced(channel, start, announcement),
        News::Message(channel, at) => {
            let envelope = Envelope::data(channel, at.sequence, at.timestamp_ns);
            Arrival::Message(Message::new(&envelope, payload, Origin::Foreign))
        }
        News::Lost(channel, start, lost) => Arrival::Lost(channel, start, lost),
        News::Tell(event) => Arrival::Tell(event),
    }
}
