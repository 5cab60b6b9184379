//! The channels of a publisher, one at each endpoint, and the encoders of their payloads.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use polywire_core::{
    codec::stateful::Mode,
    envelope::{Announcement, ChannelId, Id128},
    frame::Start,
    qos::{Durability, Offer, Reliability},
};

use super::writing::{Deltas, Writing};
use crate::{
    coding::Coding,
    compile,
    delta::Outgoing,
    engine::{Loan, PayloadEnd},
    error::NodeError,
    history::{HistoryCache, HistoryChannel},
    node::{Inner, Place, PortEntry, random_id},
    packing::Packing,
    status::Refusing,
    wire::Wire,
};

/// The most bytes that are reserved behind a payload.
const MAX_ROOM: usize = 4096;

/// The size of the last payload, as an estimate for the next one.
#[derive(Default)]
pub(super) struct LastPayload {
    /// The bytes of the payload.
    pub(super) size: usize,
    /// The free bytes behind the payload. If encoding needs more, it allocates once more.
    room: usize,
}

impl LastPayload {
    #[inline]
    pub(super) fn note(&mut self, loan: &mut Loan) {
        self.size = loan.payload().len();
        let bytes = loan.buffer();
        self.room = (bytes.capacity() - bytes.len()).min(MAX_ROOM);
    }

    /// The bytes to reserve for the next payload.
    #[inline]
    pub(super) fn wanted(&self) -> usize {
        self.size + self.room
    }
}

/// The endpoints that get the same payloads.
pub(super) struct Group<E> {
    pub(super) writing: Writing<E>,
    /// Encodes the samples that the histories keep, if messages may refer to earlier ones.
    pub(super) key_frames: Option<Writing<E>>,
    /// The announcement of the channels.
    announcement: Announcement,
    pub(super) last: LastPayload,
    /// The payloads of messages that are sent together, one behind the other.
    pub(super) payloads: Vec<u8>,
    /// Where each payload in `payloads` ends.
    pub(super) ends: Vec<PayloadEnd>,
    /// Never empty.
    pub(super) channels: Vec<WriterChannel>,
}

/// A publisher's channel at one endpoint.
pub(super) struct WriterChannel {
    pub(super) entry: Arc<PortEntry>,
    pub(super) wire: Wire,
    pub(super) id: ChannelId,
    pub(super) refusing: Refusing,
    /// [`Port::gathering`](crate::engine::Port::gathering).
    gathering: Option<Arc<AtomicU64>>,
    pub(super) history: Option<Arc<HistoryCache>>,
    /// The history channel of the format, until the history uses it.
    opening: Option<HistoryChannel>,
    /// The channel of liveliness assertions, if the publisher offers a lease.
    pub(super) assertions: Option<ChannelId>,
    /// Whether the publisher is about to leave the endpoint.
    pub(super) leaving: bool,
}

/// What all channels of a publisher have in common.
pub(crate) struct Announce<'a, C> {
    pub(super) node: &'a Arc<Inner>,
    pub(super) topic: &'a str,
    pub(super) writer: Id128,
    pub(super) incarnation: u64,
    pub(super) coding: &'a C,
    pub(super) offer: &'a Offer,
    pub(super) role: Role,
}

/// Whose messages the channels carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The publisher's own messages, which may refer to earlier ones.
    Publisher,
    /// The publisher's own messages, none of which refers to another one: requests and replies.
    Calls,
    /// The messages of another writer, which keeps its history itself.
    Bridge,
}

impl<C: Coding> Announce<'_, C> {
    /// Opens a channel at a place, in the group that already has its format or in a new group. The
    /// channel's messages begin after `start`. Its history takes over the samples of the history of
    /// `like`. That history does not change until [`WriterChannel::begin_history`].
    pub(super) fn open(
        &self,
        groups: &mut Vec<Group<C::Encoder>>,
        place: Place,
        start: Start,
        like: Option<&WriterChannel>,
    ) -> Result<(), NodeError> {
        let shares = |group: &&mut Group<C::Encoder>| {
            !group.writing.is_stream() && group.channels[0].wire.has_format_of(&place.wire)
        };
        if let Some(group) = groups.iter_mut().find(shares) {
            let channel = self.open_channel(place, &group.announcement, start, like)?;
            group.channels.push(channel);
            return Ok(());
        }
        let (announcement, mut writing, chosen) = self.format(&place.wire)?;
        let channel = self.open_channel(place, &announcement, start, like)?;
        let mut key_frames = None;
        if let Some(state) = C::writer_state(&writing.encoder) {
            let keeps_all = if channel.entry.keeps_all() { Mode::Chained } else { Mode::Anchored };
            let requests = channel.entry.key_requests(channel.id);
            let mode = chosen.mode.unwrap_or(keeps_all);
            let outgoing = Box::new(Outgoing::new(state, mode, chosen.key_interval, requests));
            writing.deltas = match self.role {
                Role::Calls => Deltas::Alone(outgoing),
                Role::Publisher | Role::Bridge => Deltas::Stream(outgoing),
            };
        }
        if self.keeps_history() && !matches!(writing.deltas, Deltas::None) {
            let alone = self.key_frames(&channel.wire);
            key_frames = Some(alone.inspect_err(|_| channel.close_without(like.into_iter()))?.1);
        }
        let (payloads, ends, channels) = (Vec::new(), Vec::new(), vec![channel]);
        groups.push(Group {
            writing,
            key_frames,
            announcement,
            last: LastPayload::default(),
            payloads,
            ends,
            channels,
        });
        Ok(())
    }

    fn keeps_history(&self) -> bool {
        self.offer.qos.durability == Durability::TransientLocal && self.role != Role::Bridge
    }

    /// Returns the announcement of a wire's format, and an encoder for payloads that refer to no
    /// other message.
    pub(crate) fn key_frames(&self, wire: &Wire) -> Result<(Announcement, Writing<C::Encoder>), NodeError> {
        let (announcement, mut alone, chosen) = self.format(wire)?;
        if let Some(state) = C::writer_state(&alone.encoder) {
            let mode = chosen.mode.unwrap_or(Mode::Anchored);
            let stream = Outgoing::new(state, mode, chosen.key_interval, Default::default());
            alone.deltas = Deltas::Stream(Box::new(stream));
        }
        Ok((announcement, alone))
    }

    fn open_channel(
        &self,
        place: Place,
        announcement: &Announcement,
        start: Start,
        like: Option<&WriterChannel>,
    ) -> Result<WriterChannel, NodeError> {
        let Place { wire, entry } = place;
        let id = entry.announce(announcement, start)?;
        // The senders of requests and replies detect losses themselves.
        if self.offer.qos.reliability == Reliability::Reliable && self.role != Role::Calls {
            entry.port().assure(id);
        }
        let history = self.keeps_history().then(|| self.history(&entry, announcement, like));
        let history = match history.transpose() {
            Ok(history) => history,
            Err(error) => {
                entry.retire(id);
                return Err(error);
            }
        };
        let (history, opening) = history.unzip();
        let (refusing, gathering) = (entry.refusing(id), entry.port().gathering());
        let mut channel =
            WriterChannel { entry, wire, id, refusing, gathering, history, opening, assertions: None, leaving: false };
        let assertions = self.open_assertions(&channel.entry);
        channel.assertions = assertions.inspect_err(|_| channel.close_without(like.into_iter()))?;
        Ok(channel)
    }

    /// Opens the channel of liveliness assertions at a port, if the policies have a lease.
    fn open_assertions(&self, entry: &PortEntry) -> Result<Option<ChannelId>, NodeError> {
        if self.offer.qos.lease.is_none() {
            return Ok(None);
        }
        let offer = Offer { liveliness_of: Some(self.writer), ..self.offer.clone() };
        let announcement = Announcement {
            topic: self.topic.into(),
            writer: random_id(),
            incarnation: self.incarnation,
            offer: offer.to_bytes(),
            ..Announcement::default()
        };
        Ok(Some(entry.announce(&announcement, Start::default())?))
    }

    /// Returns the history at a port, and a history channel for the format, which the history does
    /// not yet use. The history continues that of `like`: the same history at the same port, or a
    /// new one with the same samples.
    fn history(
        &self,
        entry: &Arc<PortEntry>,
        announcement: &Announcement,
        like: Option<&WriterChannel>,
    ) -> Result<(Arc<HistoryCache>, HistoryChannel), NodeError> {
        let before = like.and_then(|channel| Some((channel, channel.history.as_ref()?)));
        let history = match before {
            Some((channel, history)) if Arc::ptr_eq(&channel.entry, entry) => history.clone(),
            _ => HistoryCache::new(entry, &self.offer.qos),
        };
        if let Some((channel, old)) = before.filter(|(_, old)| !Arc::ptr_eq(old, &history)) {
            history.take_over(old, |id| {
                let announced = channel.entry.announced(id)?;
                // The history channel has its own writer id at each port.
                let announced = Announcement { writer: random_id(), ..Announcement::clone(&announced) };
                Some((entry.announce(&announced, Start::default()).ok()?, announced.writer))
            });
        }
        let offer = Offer { history_of: Some(self.writer), ..self.offer.clone() };
        // The history channel has its own writer id, so that its messages wait only for the answer
        // to this channel.
        let announced = Announcement { writer: random_id(), offer: offer.to_bytes(), ..announcement.clone() };
        let is_new = before.is_none_or(|(_, old)| !Arc::ptr_eq(old, &history));
        match entry.announce(&announced, Start::default()) {
            Ok(channel) => Ok((history, (channel, announced.writer))),
            Err(error) => {
                if is_new {
                    history.close();
                }
                Err(error.into())
            }
        }
    }

    /// Announces at an endpoint where the publisher has moved to.
    pub(super) fn forward(&self, entry: &PortEntry, moved_to: Vec<String>) -> Result<ChannelId, NodeError> {
        let schema = self.coding.schema();
        let announcement = Announcement {
            topic: self.topic.into(),
            writer: self.writer,
            incarnation: self.incarnation,
            type_name: schema.map_or_else(String::new, |schema| schema.name().into()),
            offer: Offer { moved_to, ..self.offer.clone() }.to_bytes(),
            ..Announcement::default()
        };
        Ok(entry.announce(&announcement, Start::default())?)
    }

    /// Returns the announcement and the encoder of a wire's format, without the state of a stateful
    /// format.
    fn format(&self, wire: &Wire) -> Result<(Announcement, Writing<C::Encoder>, crate::chosen::Chosen), NodeError> {
        let packing = self.packing(wire)?;
        let chosen = self.node.codec(&wire.codec.name, &wire.codec.options)?;
        let codec = &*chosen.codec;
        let failed = |cause| NodeError::Codec { codec: codec.name().into(), cause };
        let encoder = compile::timed(|| self.coding.encoder(codec, &chosen.options)).map_err(failed)?;
        let schema = self.coding.schema();
        let announcement = Announcement {
            topic: self.topic.into(),
            writer: self.writer,
            incarnation: self.incarnation,
            type_name: schema.map_or_else(String::new, |schema| schema.name().into()),
            type_hash: schema.map_or(Id128::ZERO, |schema| Id128(schema.type_hash().to_bytes())),
            schema: schema.map_or(Id128::ZERO, |schema| self.node.documents.publish(schema)),
            codec: codec.name().into(),
            options: chosen.options.to_string(),
            compressor: packing.as_ref().map_or_else(String::new, |packing| packing.announced.clone()),
            configuration: codec.configuration().map(|document| self.node.documents.publish_bytes(document)),
            offer: self.offer.to_bytes(),
        };
        let deltas = if codec.properties().stateful { Deltas::Keys } else { Deltas::None };
        Ok((announcement, Writing { encoder, packing, deltas }, chosen))
    }

    /// Returns the compressor of payloads, or `None` if the wire asks for no compression. Publishes
    /// the dictionary, so that peers can fetch it from the node.
    fn packing(&self, wire: &Wire) -> Result<Option<Packing>, NodeError> {
        let Some(choice) = &wire.compressor else { return Ok(None) };
        let Some((packing, dictionary)) = Packing::of(self.node.compressor(&choice.name)?, choice)? else {
            return Ok(None);
        };
        if let Some(dictionary) = dictionary {
            self.node.documents.publish_bytes(dictionary);
        }
        Ok(Some(packing))
    }
}

impl WriterChannel {
    /// The number of [`Port::gathering`](crate::engine::Port::gathering), which changes between
    /// messages that do not wait for each other. 0 if no messages wait.
    #[inline]
    pub(super) fn gathering(&self) -> u64 {
        self.gathering.as_ref().map_or(0, |gathering| gathering.load(Ordering::Relaxed))
    }

    /// Whether the port gathers messages at times.
    #[inline]
    pub(super) fn gathers(&self) -> bool {
        self.gathering.is_some()
    }

    /// The number of peers at this endpoint that are not at the other endpoints. A relay answers
    /// for nodes that have other ids there, so the numbers of their subscribers are compared
    /// instead.
    pub(super) fn behind(&self, there: &BTreeMap<Id128, usize>) -> usize {
        let here = self.entry.accepting(self.id);
        let missing = || here.iter().filter(|(node, _)| !there.contains_key(node));
        let wanted: usize = missing().map(|(_, subscribers)| subscribers).sum();
        let others: usize = there.iter().filter(|(node, _)| !here.contains_key(node)).map(|(_, count)| count).sum();
        if self.entry.port().relays() && others >= wanted { 0 } else { missing().count() }
    }

    /// Lets the history keep samples in the channel's format from now on. Returns the history
    /// channels of former formats that have no samples; the caller retires them.
    pub(super) fn begin_history(&mut self) -> Vec<ChannelId> {
        match (&self.history, self.opening.take()) {
            (Some(history), Some(channel)) => history.opened(channel),
            _ => Vec::new(),
        }
    }

    /// Ends the channel, but not its history, which another channel of the port may use.
    pub(super) fn retire(&self) {
        self.entry.retire(self.id);
        self.assertions.iter().for_each(|channel| self.entry.retire(*channel));
    }

    /// Ends a channel whose history has not begun, and its history unless one of `others` uses it.
    pub(super) fn close_without<'a>(&self, mut others: impl Iterator<Item = &'a WriterChannel>) {
        self.opening.iter().for_each(|(channel, _)| self.entry.retire(*channel));
        let goes_on = |history: &Arc<HistoryCache>| {
            others.any(|other| other.history.as_ref().is_some_and(|h| Arc::ptr_eq(h, history)))
        };
        match self.history.as_ref().is_some_and(goes_on) {
            true => self.retire(),
            false => self.close(),
        }
    }

    /// Ends the channel and its history.
    pub(super) fn close(&self) {
        self.retire();
        self.history.iter().for_each(|history| history.close());
    }
}
