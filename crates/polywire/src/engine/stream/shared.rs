//! State that the threads of a port share, and how a message reaches all links.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, atomic::AtomicBool},
    time::Instant,
};

use polywire_core::{
    envelope::Envelope,
    frame::{Frame, Hello},
};

use super::{
    calls::Calls,
    channels::Channels,
    guests::Guests,
    link::Link,
    payload::{Payload, Round},
    seats::Seats,
    threads::{Stop, Threads},
    transport::{Listener, Rendezvous, Role, Transport},
};
use crate::engine::{EngineError, Event, LinkId, LinkInfo, Local, Principal, Sent, Sink};

/// Where a port finds its peers.
pub(super) enum Place {
    /// At one address.
    One(Box<dyn Transport>, Role),
    /// In a mesh.
    Mesh(Box<dyn Rendezvous>),
}

/// A port's state. Each of its threads holds it.
pub(super) struct Shared {
    pub(super) place: Place,
    /// This port listens.
    pub(super) listens: AtomicBool,
    pub(super) endpoint: Mutex<String>,
    pub(super) local: Local,
    pub(super) sink: Arc<dyn Sink>,
    /// Publishers clone the list and write without the lock. A change replaces it, and is made only
    /// while `channels` is locked.
    pub(super) links: RwLock<Arc<Vec<Arc<Link>>>>,
    pub(super) channels: Mutex<Channels>,
    pub(super) guests: Guests,
    /// Of a mesh.
    pub(super) seats: Seats,
    /// Of a mesh.
    pub(super) calls: Mutex<Calls>,
    pub(super) stop: Stop,
    pub(super) threads: Threads,
    pub(super) pool: Mutex<Vec<Vec<u8>>>,
    /// When the last message had been sent to all links, if there were several.
    pub(super) distributed: Mutex<Instant>,
}

impl Place {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Place::One(transport, _) => transport.name(),
            Place::Mesh(rendezvous) => rendezvous.name(),
        }
    }

    pub(super) fn endpoint(&self) -> String {
        match self {
            Place::One(transport, _) => transport.endpoint(),
            Place::Mesh(rendezvous) => rendezvous.endpoint(),
        }
    }

    pub(super) fn listen(&self) -> io::Result<Arc<dyn Listener>> {
        match self {
            Place::One(transport, _) => transport.listen(),
            Place::Mesh(rendezvous) => rendezvous.listen(),
        }
    }
}

impl Shared {
    pub(super) fn links(&self) -> Arc<Vec<Arc<Link>>> {
        self.links.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a message to every link that wants it, except the one that it came from. Called by
    /// publishers, and by the reading thread of a link that is relayed.
    #[inline]
    pub(super) fn distribute(
        &self,
        envelope: &Envelope<'_>,
        payload: &mut Payload<'_>,
        from: Option<LinkId>,
    ) -> Result<Sent, EngineError> {
        let mut sent = Sent::default();
        let links = self.links();
        // A link cannot tell the time that writing to the others took from a pause of the
        // publisher, and would never see a burst. So measure the pause here.
        let began = (links.len() > 1).then(Instant::now);
        let pause = began.map(|began| began.saturating_duration_since(*lock(&self.distributed)));
        let round = Round { pause, links: u32::try_from(links.len()).unwrap_or(u32::MAX) };
        for link in links.iter().filter(|link| Some(link.info.id) != from) {
            let (outcome, notice) = link.outbox.send(envelope, payload, round)?;
            outcome.count(&mut sent);
            if let Some((topic, count)) = notice {
                self.sink.event(Event::Dropped { link: link.info.clone(), topic: (*topic).into(), count });
            }
        }
        if began.is_some() {
            *lock(&self.distributed) = Instant::now();
        }
        Ok(sent)
    }

    pub(super) fn control(&self, to: LinkId, frame: &Frame<'_>) {
        if let Some(link) = self.links().iter().find(|link| link.info.id == to) {
            link.outbox.control(frame);
        }
    }

    pub(super) fn thread_name(&self, what: &str) -> String {
        format!("pw-{}-{what}", self.place.name())
    }

    pub(super) fn link_info(&self, peer: Hello, address: String, principal: Principal) -> LinkInfo {
        LinkInfo { id: LinkId::next(), peer, address, principal }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
