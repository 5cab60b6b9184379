//! State that the threads of a port share, and how a message reaches all links.

use std::{
    io,
    net::IpAddr,
    sync::{Arc, atomic::AtomicBool},
};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use polywire_core::{
    envelope::Envelope,
    frame::{Frame, Hello},
};

use super::{
    accepted::AcceptedConnections,
    assured::Assured,
    calls::Calls,
    channels::Channels,
    link::Link,
    link_slots::LinkSlots,
    pace::{Pace, Turn},
    payload::{Messages, Payload},
    threads::{Stop, Threads},
    transport::{Listener, Rendezvous, Role, Transport},
};
use crate::engine::{
    Batch, Disconnect, EngineError, Event, LinkId, LinkInfo, Local, Principal, Sent, Sink, delivery::Notice,
    rejections::Rejections,
};

/// Where a port finds its peers.
pub(super) enum PeerSource {
    /// At one address.
    One(Box<dyn Transport>, Role),
    /// In a mesh.
    Mesh(Box<dyn Rendezvous>),
}

/// A port's state. Each of its threads holds it.
pub(super) struct Shared {
    pub(super) peer_source: PeerSource,
    /// This port listens.
    pub(super) listens: AtomicBool,
    pub(super) endpoint: Mutex<String>,
    pub(super) local: Local,
    pub(super) sink: Arc<dyn Sink>,
    /// A change replaces the list, while `channels` is locked.
    pub(super) links: ArcSwap<Vec<Arc<Link>>>,
    pub(super) pace: Arc<Pace>,
    pub(super) channels: Mutex<Channels>,
    pub(super) assured: Assured,
    pub(super) accepted_connections: AcceptedConnections,
    pub(super) rejections: Mutex<Rejections>,
    /// For a mesh.
    pub(super) link_slots: LinkSlots,
    /// For a mesh.
    pub(super) calls: Mutex<Calls>,
    pub(super) stop: Stop,
    pub(super) threads: Threads,
}

impl PeerSource {
    pub(super) fn name(&self) -> &'static str {
        match self {
            PeerSource::One(transport, _) => transport.name(),
            PeerSource::Mesh(rendezvous) => rendezvous.name(),
        }
    }

    pub(super) fn endpoint(&self) -> String {
        match self {
            PeerSource::One(transport, _) => transport.endpoint(),
            PeerSource::Mesh(rendezvous) => rendezvous.endpoint(),
        }
    }

    pub(super) fn listen(&self) -> io::Result<Arc<dyn Listener>> {
        match self {
            PeerSource::One(transport, _) => transport.listen(),
            PeerSource::Mesh(rendezvous) => rendezvous.listen(),
        }
    }
}

impl Shared {
    /// Returns the links as they are now. Takes no lock, so publishers do not disturb each other.
    #[inline]
    pub(super) fn links(&self) -> Guard<Arc<Vec<Arc<Link>>>> {
        self.links.load()
    }

    /// Sends a message of this node to every link that wants it.
    #[inline]
    pub(super) fn distribute(&self, envelope: &Envelope<'_>, payload: &mut Payload<'_>) -> Result<Sent, EngineError> {
        // Before any link gets the message: a link may hold it until its peer has answered.
        self.local.options.limits.check_message(envelope, payload.bytes().len())?;
        if self.assured.is_active()
            && let Some(channel) = self.assured.channel(envelope.channel)
        {
            return self.distribute_assured(&channel, envelope, payload);
        }
        self.distribute_now(envelope, payload)
    }

    #[inline]
    pub(super) fn distribute_now(
        &self,
        envelope: &Envelope<'_>,
        payload: &mut Payload<'_>,
    ) -> Result<Sent, EngineError> {
        let mut sent = Sent::default();
        let links = self.links();
        let turn = self.pace.begin(1, links.len());
        for link in links.iter() {
            let notice = link.outbox.send(envelope, payload, turn, &mut sent)?;
            notice.into_iter().for_each(|notice| self.tell_dropped(link, notice));
        }
        self.end(turn, &links);
        Ok(sent)
    }

    /// Sends messages of this node to every link that wants them. They count as one message for the
    /// pace, which measures the pauses between calls.
    #[inline]
    pub(super) fn distribute_all(&self, batch: &Batch<'_>, sent: &mut Sent) -> Result<(), (usize, EngineError)> {
        // Normally, even one message with all payloads would fit.
        match self.local.options.limits.check_message(batch.first(), batch.bytes(batch.len())) {
            Ok(()) => self.distribute_fit(batch, sent),
            Err(_) => self.distribute_fitting(batch, sent),
        }
    }

    /// Sends the messages that come before one that is too large, and fails with the reason.
    #[cold]
    fn distribute_fitting(&self, batch: &Batch<'_>, sent: &mut Sent) -> Result<(), (usize, EngineError)> {
        let check = |(envelope, payload): (Envelope<'_>, &[u8])| {
            self.local.options.limits.check_message(&envelope, payload.len()).err()
        };
        let too_large = batch.iter().enumerate().find_map(|(index, message)| Some((index, check(message)?)));
        let fitting = too_large.as_ref().map_or(batch.len(), |(index, _)| *index);
        self.distribute_fit(&batch.shortened(fitting), sent)?;
        too_large.map_or(Ok(()), |(index, error)| Err((index, error.into())))
    }

    #[inline(always)]
    fn distribute_fit(&self, batch: &Batch<'_>, sent: &mut Sent) -> Result<(), (usize, EngineError)> {
        if self.assured.is_active()
            && let Some(channel) = self.assured.channel(batch.first().channel)
        {
            return self.distribute_all_assured(&channel, batch, sent);
        }
        self.distribute_all_now(batch, None, sent)
    }

    /// Sends messages to every link that wants them, except `from`, the link on which they arrived.
    /// Called by publishers, and by the reading thread of a link whose messages are relayed.
    #[inline]
    pub(super) fn distribute_all_now(
        &self,
        messages: &(impl Messages + ?Sized),
        from: Option<LinkId>,
        sent: &mut Sent,
    ) -> Result<(), (usize, EngineError)> {
        let (links, mut count, mut failed) = (self.links(), messages.len(), None);
        let turn = self.pace.begin(count, links.len());
        for link in links.iter().filter(|link| Some(link.info.id) != from) {
            let tell = |notice| self.tell_dropped(link, notice);
            if let Err((index, error)) = link.outbox.send_all(messages, count, turn, sent, tell) {
                // The other links have the same limits.
                count = index;
                failed = Some((index, error));
            }
        }
        self.end(turn, &links);
        failed.map_or(Ok(()), |(index, error)| Err((index, error.into())))
    }

    /// Notes that the messages of a turn were handed to these links.
    #[inline(always)]
    fn end(&self, turn: Turn, links: &[Arc<Link>]) {
        self.pace.end(turn);
        // The last caller of `gather` may have ended before the messages were queued.
        if turn == Turn::Together && !self.pace.is_held() {
            links.iter().for_each(|link| link.outbox.leave());
        }
    }

    /// Begins or ends a time in which messages wait to be written together.
    pub(super) fn gather(&self, begins: bool) {
        if self.pace.hold(begins) {
            self.links().iter().for_each(|link| link.outbox.leave());
        }
    }

    #[cold]
    fn tell_dropped(&self, link: &Link, notice: Notice) {
        self.sink.event(dropped(link, notice));
    }

    pub(super) fn control(&self, to: LinkId, frame: &Frame<'_>) {
        if let Some(link) = self.links().iter().find(|link| link.info.id == to) {
            link.outbox.control(frame);
        }
    }

    /// Counts a connection that has not become a link. `host` is the peer's host if the peer has
    /// connected to this node.
    pub(super) fn reject(&self, host: Option<IpAddr>, address: String, reason: Disconnect) {
        let event = self.rejections.lock().count(&called(host, &address), address, reason);
        event.into_iter().for_each(|event| self.sink.event(event));
    }

    /// Forgets the rejections of a peer whose connection has become a link.
    pub(super) fn linked(&self, host: Option<IpAddr>, address: &str) {
        self.rejections.lock().forget(&called(host, address));
    }

    pub(super) fn thread_name(&self, what: &str) -> String {
        format!("pw-{}-{what}", self.peer_source.name())
    }

    pub(super) fn link_info(&self, peer: Hello, address: String, principal: Principal) -> LinkInfo {
        LinkInfo { id: LinkId::next(), peer, address, principal }
    }
}

/// Returns the event that reports messages dropped for a link.
pub(super) fn dropped(link: &Link, (topic, count): Notice) -> Event {
    Event::Dropped { link: link.info.clone(), topic: (*topic).into(), count }
}

/// Returns the name under which a peer's rejections are counted. A peer that connected to this node
/// has its host's name, because each of its connections has another port. A peer that this node
/// called has its address.
fn called(caller: Option<IpAddr>, address: &str) -> String {
    caller.map_or_else(|| address.into(), |host| host.to_canonical().to_string())
}
