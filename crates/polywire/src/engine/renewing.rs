//! Ports that are opened anew when the addresses of this machine change, for libraries that keep
//! the interfaces and addresses which they found when they were opened.
//!
//! [`RenewingPort`] holds the engine's port, and what the node has opened on it: channels, each
//! with the place of its last message, and subscriptions. A thread looks at the addresses of this
//! machine. When the library has lost an address and there is another one for it, in two looks in
//! succession, the thread closes the engine's port, opens another one, announces the channels
//! under their former ids, and subscribes again. To the node and its peers, this is a loss of all
//! links. What is published meanwhile reaches nobody; the gap in the sequence numbers shows it.

mod addresses;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, RwLock};
use polywire_core::{
    directory::NodeData,
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Start},
};

use self::addresses::{Looks, present_and_usable, usable};
use super::{EngineError, Event, LinkId, LinkStats, Loan, Port, Sent, Sink};

pub(super) use self::addresses::Place;

/// Time between two looks at the addresses.
const LOOK: Duration = Duration::from_secs(1);

/// A port that announces channels under given ids.
pub(super) trait Renewable: Port {
    /// Announces a channel as [`Port::announce`] does. Ids are never used again.
    fn announce_as(&self, channel: ChannelId, announcement: &Announcement, start: Start) -> Result<(), EngineError>;
}

/// Opens an engine's port, at first and then anew.
pub(super) trait Opener: Send + Sync + 'static {
    /// Opens the port. `addresses` are those that the library is to use. With `None`, it finds them
    /// itself, as it can do when the process opens it for the first time.
    fn open(&self, sink: &Arc<dyn Sink>, addresses: Option<&[Place]>) -> Result<Arc<dyn Renewable>, EngineError>;

    /// Returns which of these addresses, in the order of the system, the library uses if it is
    /// opened now. None if the port stays with its addresses.
    fn chosen(&self, usable: Vec<Place>) -> Vec<Place>;

    /// Returns whether nothing in this process keeps the library from finding other addresses.
    /// Asked while the port is closed.
    fn is_free(&self) -> bool {
        true
    }
}

/// Opens a port that is renewed if [`Opener::chosen`] says which addresses it uses. If not, returns
/// the engine's port.
pub(super) fn open(
    endpoint: &str,
    linger: Duration,
    sink: Arc<dyn Sink>,
    opener: impl Opener,
) -> Result<Arc<dyn Port>, EngineError> {
    let used = opener.chosen(usable());
    let port = opener.open(&sink, None)?;
    if used.is_empty() {
        return Ok(port);
    }
    let shared = Arc::new(Shared {
        endpoint: endpoint.into(),
        linger,
        sink,
        opener: Box::new(opener),
        renewal: RwLock::default(),
        current: RwLock::new(Some(port)),
        channels: RwLock::default(),
        last_channel: AtomicU32::new(0),
        topics: Mutex::default(),
        life: Mutex::default(),
        changed: Condvar::new(),
    });
    let watching = shared.clone();
    let thread = thread::Builder::new().name("renew".into()).spawn(move || watching.watch(used));
    let thread = thread.map_err(|cause| {
        shared.close_current();
        EngineError::System { endpoint: endpoint.into(), action: "start a thread", cause }
    })?;
    Ok(Arc::new(RenewingPort { shared, thread: Mutex::new(Some(thread)) }))
}

struct RenewingPort {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    endpoint: String,
    linger: Duration,
    sink: Arc<dyn Sink>,
    opener: Box<dyn Opener>,
    /// Locked for writing while a port is opened anew and gets the channels and subscriptions of
    /// the node, and for reading while these change. Locked first. Read recursively, as `current`
    /// is, because a port may be called while it is calling the node.
    renewal: RwLock<()>,
    /// The engine's port; `None` between two of them. Locked for writing while a port is being
    /// opened, so that the calls of its links wait for it.
    current: RwLock<Option<Arc<dyn Renewable>>>,
    /// The channels of the node.
    channels: RwLock<BTreeMap<ChannelId, Known>>,
    last_channel: AtomicU32,
    /// How many subscribers of the node want each topic or pattern.
    topics: Mutex<BTreeMap<String, usize>>,
    life: Mutex<Life>,
    /// Notified when `life` changes.
    changed: Condvar,
}

#[derive(Default)]
struct Life {
    is_closed: bool,
    /// Whether the thread has ended.
    has_ended: bool,
}

/// A channel of the node.
struct Known {
    announcement: Announcement,
    /// The place of the last message.
    last: Mutex<Start>,
}

impl Shared {
    /// The engine's port. Waits while one is being opened.
    fn port(&self) -> Option<Arc<dyn Renewable>> {
        self.current.read_recursive().clone()
    }

    /// The engine's port, for a message, which does not wait.
    fn port_now(&self) -> Option<Arc<dyn Renewable>> {
        self.current.try_read_recursive()?.clone()
    }

    fn is_closed(&self) -> bool {
        self.life.lock().is_closed
    }

    /// Waits. Returns false if the port was closed.
    fn wait(&self, pause: Duration) -> bool {
        let mut life = self.life.lock();
        self.changed.wait_while_for(&mut life, |life| !life.is_closed, pause);
        !life.is_closed
    }

    fn close_current(&self) {
        let last = self.current.write().take();
        last.iter().for_each(|port| port.close());
    }

    /// Runs the thread.
    fn watch(&self, used: Vec<Place>) {
        let mut looks = Looks::new(used);
        while self.wait(LOOK) {
            let (present, usable) = present_and_usable();
            if looks.look(&present, self.opener.chosen(usable)) {
                self.close_current();
                looks.renewed(self.reopen());
            }
        }
        self.life.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Opens the port anew, and tries that until it succeeds or the port is closed. Returns the
    /// addresses that the library uses now.
    fn reopen(&self) -> Vec<Place> {
        let until = Instant::now() + 5 * self.linger.max(LOOK);
        while !self.opener.is_free() && Instant::now() < until && self.wait(LOOK / 10) {}
        let mut told = None;
        loop {
            let used = self.opener.chosen(usable());
            if self.is_closed() {
                return used;
            }
            let failed = match used.is_empty() {
                true => "no interface has an address for it".to_owned(),
                false => match self.open_at(&used) {
                    Ok(()) => {
                        let addresses = used.iter().map(|place| place.address.into()).collect();
                        self.sink.event(Event::Renewed { endpoint: self.endpoint.clone(), addresses });
                        return used;
                    }
                    Err(error) => error.to_string(),
                },
            };
            if told.as_ref() != Some(&failed) {
                told = Some(failed.clone());
                self.sink.event(Event::Unreachable { endpoint: self.endpoint.clone(), reason: failed });
            }
            self.wait(LOOK);
        }
    }

    fn open_at(&self, addresses: &[Place]) -> Result<(), EngineError> {
        let opened = self.open_all_at(addresses);
        // Whoever has closed this port meanwhile may not have found the engine's port. No lock is
        // held: a port that closes waits for callbacks, which may need it.
        if opened.is_err() || self.is_closed() {
            self.close_current();
        }
        opened
    }

    /// Opens the engine's port with the channels and the subscriptions of the node.
    fn open_all_at(&self, addresses: &[Place]) -> Result<(), EngineError> {
        let _alone = self.renewal.write();
        let port = {
            let mut current = self.current.write();
            let port = self.opener.open(&self.sink, Some(addresses))?;
            *current = Some(port.clone());
            port
        };
        // The ids ascend, as the engine expects.
        for (channel, known) in self.channels.read().iter() {
            let start = *known.last.lock();
            port.announce_as(*channel, &known.announcement, start)?;
        }
        for (topic, count) in self.topics.lock().iter() {
            (0..*count).for_each(|_| port.subscribe(topic));
        }
        Ok(())
    }

    /// Calls `send` with the engine's port. A message that finds none, or none that has the channel
    /// again, reaches nobody.
    fn send(
        &self,
        envelope: &Envelope<'_>,
        send: impl FnOnce(&dyn Renewable) -> Result<Sent, EngineError>,
    ) -> Result<Sent, EngineError> {
        let sent = self.port_now().map_or(Err(EngineError::Closed), |port| send(&*port));
        let channels = self.channels.read_recursive();
        let Some(known) = channels.get(&envelope.channel) else { return sent };
        let sent = match sent {
            Err(EngineError::Closed | EngineError::Channel(_)) if !self.is_closed() => Sent::default(),
            sent => sent?,
        };
        *known.last.lock() = Start { sequence: envelope.sequence, timestamp_ns: envelope.timestamp_ns };
        Ok(sent)
    }
}

impl Port for RenewingPort {
    fn endpoint(&self) -> String {
        self.shared.endpoint.clone()
    }

    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        let shared = &self.shared;
        let _unchanged = shared.renewal.read_recursive();
        if shared.is_closed() {
            return Err(EngineError::Closed);
        }
        let channel = ChannelId(shared.last_channel.fetch_add(1, Ordering::Relaxed) + 1);
        match shared.port().map(|port| port.announce_as(channel, announcement, start)) {
            // Announced when there is a port again.
            None | Some(Err(EngineError::Closed)) => {}
            Some(announced) => announced?,
        }
        shared.channels.write().insert(channel, Known { announcement: announcement.clone(), last: Mutex::new(start) });
        Ok(channel)
    }

    fn reserve(&self, size: usize) -> Loan {
        let port = self.shared.port_now();
        port.map_or_else(|| Loan::new(Vec::with_capacity(size), 0), |port| port.reserve(size))
    }

    fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        self.shared.send(envelope, |port| port.commit(envelope, loan))
    }

    fn send(&self, envelope: &Envelope<'_>, payload: &[u8]) -> Result<Sent, EngineError> {
        self.shared.send(envelope, |port| port.send(envelope, payload))
    }

    fn retire(&self, channel: ChannelId) {
        let _unchanged = self.shared.renewal.read_recursive();
        self.shared.channels.write().remove(&channel);
        self.shared.port().iter().for_each(|port| port.retire(channel));
    }

    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        self.shared.port().into_iter().for_each(|port| port.answer(link, channel, answer.clone()));
    }

    fn want(&self, link: LinkId, document: Id128) {
        self.shared.port().iter().for_each(|port| port.want(link, document));
    }

    fn learn(&self, link: LinkId, channel: ChannelId) -> bool {
        self.shared.port().is_some_and(|port| port.learn(link, channel))
    }

    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>) {
        self.shared.port().iter().for_each(|port| port.supply(link, document, bytes));
    }

    fn subscribe(&self, topic: &str) {
        let _unchanged = self.shared.renewal.read_recursive();
        *self.shared.topics.lock().entry(topic.into()).or_default() += 1;
        self.shared.port().iter().for_each(|port| port.subscribe(topic));
    }

    fn unsubscribe(&self, topic: &str) {
        let _unchanged = self.shared.renewal.read_recursive();
        let mut topics = self.shared.topics.lock();
        if let Some(count) = topics.get_mut(topic) {
            *count -= 1;
            if *count == 0 {
                topics.remove(topic);
            }
        }
        drop(topics);
        self.shared.port().iter().for_each(|port| port.unsubscribe(topic));
    }

    fn flush(&self, deadline: Instant) -> bool {
        self.shared.port().is_none_or(|port| port.flush(deadline))
    }

    fn links(&self) -> Vec<LinkStats> {
        self.shared.port().map(|port| port.links()).unwrap_or_default()
    }

    fn foreign_readers(&self) -> Vec<NodeData> {
        self.shared.port().map(|port| port.foreign_readers()).unwrap_or_default()
    }

    fn close(&self) {
        let shared = &self.shared;
        shared.life.lock().is_closed = true;
        shared.changed.notify_all();
        shared.close_current();
        let Some(thread) = self.thread.lock().take().filter(|it| it.thread().id() != thread::current().id()) else {
            return;
        };
        // The thread may be closing a former port, and wait for the thread that is here because a
        // callback closes the node. So the wait is bounded.
        let mut life = shared.life.lock();
        shared.changed.wait_while_for(&mut life, |life| !life.has_ended, shared.linger + LOOK);
        if std::mem::take(&mut life.has_ended) {
            drop(life);
            // An error means that a callback panicked, which was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for RenewingPort {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
