//! The channels of a publisher: one at each endpoint, and what makes their payloads.

use std::{
    num::NonZeroU64,
    sync::{
        Arc, Weak,
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
    engine::Loan,
    error::NodeError,
    history::Kept,
    node::{Inner, Place, PortEntry, Replay, random_id},
    packing::Packing,
    status::Refusing,
    wire::Wire,
};

/// Most bytes behind a payload that are asked for.
const MOST_ROOM: usize = 4096;

/// The last payload, as a guess for the next one.
#[derive(Default)]
pub(super) struct LastPayload {
    /// Its bytes.
    pub(super) size: usize,
    /// The room behind it. If there is less than encoding wants, it allocates once more.
    room: usize,
}

impl LastPayload {
    #[inline]
    pub(super) fn note(&mut self, loan: &mut Loan) {
        self.size = loan.payload().len();
        let bytes = loan.buffer();
        self.room = (bytes.capacity() - bytes.len()).min(MOST_ROOM);
    }

    /// What to reserve for the next one.
    #[inline]
    pub(super) fn wanted(&self) -> usize {
        self.size + self.room
    }
}

/// The endpoints that get the same payloads.
pub(super) struct Group<E> {
    pub(super) writing: Writing<E>,
    /// Encodes what the histories keep, if messages refer to earlier ones.
    pub(super) key_frames: Option<Writing<E>>,
    /// What the channels announce.
    announcement: Announcement,
    pub(super) last: LastPayload,
    /// Payloads that are sent together, in one piece.
    pub(super) payloads: Vec<u8>,
    /// The end of each of them, and the anchor of its message.
    pub(super) ends: Vec<(usize, Option<NonZeroU64>)>,
    /// Never empty.
    pub(super) outs: Vec<Out>,
}

/// A publisher's end at one endpoint.
pub(super) struct Out {
    pub(super) entry: Arc<PortEntry>,
    pub(super) wire: Wire,
    pub(super) channel: ChannelId,
    pub(super) refusing: Refusing,
    /// [`Port::gathering`](crate::engine::Port::gathering).
    gathering: Option<Arc<AtomicU64>>,
    pub(super) history: Option<Arc<Kept>>,
    /// The channel of assertions, if the publisher offers a lease.
    pub(super) pulse: Option<ChannelId>,
    /// The publisher is about to leave the endpoint.
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
    /// The publisher's, which may refer to earlier ones.
    Publisher,
    /// The publisher's, of which none refers to another one.
    Calls,
    /// Those of another writer, which keeps its history itself.
    Bridge,
}

impl<C: Coding> Announce<'_, C> {
    /// Opens a channel at a place, in a group that has its format already or in a new one. Messages
    /// follow from `start` on. A history keeps what `like` has kept.
    pub(super) fn open(
        &self,
        groups: &mut Vec<Group<C::Encoder>>,
        place: Place,
        start: Start,
        like: Option<&Out>,
    ) -> Result<(), NodeError> {
        let shares = |group: &&mut Group<C::Encoder>| {
            !group.writing.is_stream() && group.outs[0].wire.has_format_of(&place.wire)
        };
        if let Some(group) = groups.iter_mut().find(shares) {
            let out = self.out(place, &group.announcement, start, like)?;
            group.outs.push(out);
            return Ok(());
        }
        let (announcement, mut writing, chosen) = self.format(&place.wire)?;
        let out = self.out(place, &announcement, start, like)?;
        let mut key_frames = None;
        if let Some(state) = C::writer_state(&writing.encoder) {
            let keeps_all = if out.entry.keeps_all() { Mode::Chained } else { Mode::Anchored };
            let requests = out.entry.key_requests(out.channel);
            let mode = chosen.mode.unwrap_or(keeps_all);
            let outgoing = Box::new(Outgoing::new(state, mode, chosen.key_interval, requests));
            writing.deltas = match self.role {
                Role::Calls => Deltas::Alone(outgoing),
                Role::Publisher | Role::Bridge => Deltas::Stream(outgoing),
            };
        }
        if self.keeps_history() && !matches!(writing.deltas, Deltas::None) {
            key_frames = Some(self.key_frames(&out.wire)?.1);
        }
        let (payloads, ends, outs) = (Vec::new(), Vec::new(), vec![out]);
        groups.push(Group { writing, key_frames, announcement, last: LastPayload::default(), payloads, ends, outs });
        Ok(())
    }

    fn keeps_history(&self) -> bool {
        self.offer.qos.durability == Durability::TransientLocal && self.role != Role::Bridge
    }

    /// What makes payloads that stand alone, and what their format announces.
    pub(crate) fn key_frames(&self, wire: &Wire) -> Result<(Announcement, Writing<C::Encoder>), NodeError> {
        let (announcement, mut alone, chosen) = self.format(wire)?;
        if let Some(state) = C::writer_state(&alone.encoder) {
            let mode = chosen.mode.unwrap_or(Mode::Anchored);
            let stream = Outgoing::new(state, mode, chosen.key_interval, Default::default());
            alone.deltas = Deltas::Stream(Box::new(stream));
        }
        Ok((announcement, alone))
    }

    fn out(
        &self,
        place: Place,
        announcement: &Announcement,
        start: Start,
        like: Option<&Out>,
    ) -> Result<Out, NodeError> {
        let Place { wire, entry } = place;
        let channel = entry.announce(announcement, start)?;
        // Whoever sends requests or replies notices by itself that they are lost.
        if self.offer.qos.reliability == Reliability::Reliable && self.role != Role::Calls {
            entry.port().assure(channel);
        }
        let history = self.keeps_history().then(|| self.history(&entry, announcement, like));
        let history = match history.transpose() {
            Ok(history) => history,
            Err(error) => {
                entry.retire(channel);
                return Err(error);
            }
        };
        let pulse = match self.pulse(&entry) {
            Ok(pulse) => pulse,
            Err(error) => {
                entry.retire(channel);
                history.iter().for_each(|history| history.close());
                return Err(error);
            }
        };
        let (refusing, gathering) = (entry.refusing(channel), entry.port().gathering());
        Ok(Out { entry, wire, channel, refusing, gathering, history, pulse, leaving: false })
    }

    /// The channel of assertions at a port, if the policies have a lease.
    fn pulse(&self, entry: &PortEntry) -> Result<Option<ChannelId>, NodeError> {
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

    /// The history at a port. It goes on with that of `like`: with the same one if the port is the
    /// same.
    fn history(
        &self,
        entry: &Arc<PortEntry>,
        announcement: &Announcement,
        like: Option<&Out>,
    ) -> Result<Arc<Kept>, NodeError> {
        let before = like.and_then(|out| Some((out, out.history.as_ref()?)));
        let history = match before {
            Some((out, history)) if Arc::ptr_eq(&out.entry, entry) => history.clone(),
            _ => Kept::new(entry, &self.offer.qos),
        };
        if let Some((out, old)) = before.filter(|(_, old)| !Arc::ptr_eq(old, &history)) {
            history.take_over(old, |channel| {
                let announced = out.entry.announced(channel)?;
                // A writer of its own, at each port.
                let announced = Announcement { writer: random_id(), ..Announcement::clone(&announced) };
                self.serve(entry, &history, &announced).ok()
            });
        }
        let offer = Offer { history_of: Some(self.writer), ..self.offer.clone() };
        // A writer of its own: its messages wait for the answer to this channel alone.
        let announced = Announcement { writer: random_id(), offer: offer.to_bytes(), ..announcement.clone() };
        let channel = self.serve(entry, &history, &announced)?;
        history.opened(channel);
        Ok(history)
    }

    /// Opens a channel on which the history is sent to those who ask for it.
    fn serve(
        &self,
        entry: &Arc<PortEntry>,
        history: &Arc<Kept>,
        announcement: &Announcement,
    ) -> Result<(ChannelId, Id128), NodeError> {
        let channel = entry.announce(announcement, Start::default())?;
        let replay: Weak<dyn Replay> = Arc::downgrade(&(history.clone() as Arc<dyn Replay>));
        entry.serve_history(channel, replay);
        Ok((channel, announcement.writer))
    }

    /// Says at an endpoint where the publisher has moved to.
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

    /// What a format announces, and what makes its payloads, apart from their state.
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

    /// The compressor of payloads; `None` if the wire asks for no compression. Peers can fetch the
    /// dictionary from the node.
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

impl Out {
    /// Another number than before, unless the messages since then wait for each other; 0 if none
    /// do.
    #[inline]
    pub(super) fn gathering(&self) -> u64 {
        self.gathering.as_ref().map_or(0, |gathering| gathering.load(Ordering::Relaxed))
    }

    /// Ends the channel. Its history goes on if another channel of the port has it.
    pub(super) fn retire(&self) {
        self.entry.retire(self.channel);
        self.pulse.iter().for_each(|channel| self.entry.retire(*channel));
    }

    /// Ends the channel, and its history if none of these goes on with it.
    pub(super) fn close_without<'a>(&self, mut others: impl Iterator<Item = &'a Out>) {
        let goes_on =
            |history: &Arc<Kept>| others.any(|other| other.history.as_ref().is_some_and(|h| Arc::ptr_eq(h, history)));
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
