//! Engines over byte streams: what TCP and Unix-domain sockets share.
//!
//! A port has one thread that listens or connects, and two a link: one reads and hands messages
//! over, one writes what publishers could not write themselves. Publishing is a direct write on the
//! publisher's thread whenever the link keeps up.

mod fetches;
mod guests;
mod inbox;
mod link;
mod outbox;
mod pace;
mod queue;
mod relay;
mod threads;

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Frame, Start},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{SockAddr, Socket};

pub use inbox::Aligned;

use self::{
    guests::Guests,
    link::Link,
    outbox::{Payload, Round},
    relay::Channels,
    threads::{Stop, Threads},
};
use super::{Disconnect, EngineError, Event, LinkId, LinkInfo, LinkStats, Loan, Local, Port, Properties, Sent, Sink};

/// What every stream engine promises.
pub(super) const PROPERTIES: Properties =
    Properties { reliable: true, ordered: true, multicast: false, largest_payload: None };

/// Room in front of a lent payload, enough for any header without extensions.
const HEADROOM: usize = 64;
/// Threads of connections that have made room may need a moment to end; so many are waited for.
const LEAVING: usize = 64;
/// Buffers kept for the next loans.
const POOLED: usize = 16;
/// A larger buffer is given back to the system.
const POOLED_BYTES: usize = 1 << 20;

/// A family of sockets.
pub(super) trait Family: Send + Sync {
    /// Name of the engine whose ports decide by themselves whether to listen.
    fn name(&self) -> &'static str;
    /// What an address stands for.
    fn resolve(&self, address: &str) -> Result<Vec<SockAddr>, String>;
    /// A socket that listens.
    fn listen(&self, address: &SockAddr, options: &super::EngineOptions) -> io::Result<Socket>;
    /// A connected socket.
    fn connect(&self, address: &SockAddr, options: &super::EngineOptions) -> io::Result<Socket>;
    /// Sets what `options` ask of an accepted or connected socket.
    fn tune(&self, socket: &Socket, options: &super::EngineOptions) -> io::Result<()>;
    /// An address as people write it.
    fn describe(&self, address: &SockAddr) -> String;
    /// Nobody listens at the address any more.
    fn unbound(&self, address: &SockAddr);
}

/// Who binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Whoever comes first, and it relays between the others.
    Either,
    /// We do.
    Listen,
    /// The peer does.
    Connect,
}

/// Opens a port of a stream engine.
pub(super) fn open(
    family: &'static dyn Family,
    role: Role,
    engine: (&'static str, &'static str),
    address: &str,
    local: &Local,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Port>, EngineError> {
    let (name, example) = engine;
    let bad = |reason| EngineError::Address { engine: name, address: address.into(), reason, example };
    let addresses = family.resolve(address).map_err(bad)?;
    let endpoint = format!("{name}/{address}");
    let shared = Arc::new(Shared {
        family,
        role,
        listens: AtomicBool::new(false),
        endpoint: Mutex::new(endpoint.clone()),
        local: local.clone(),
        sink,
        links: RwLock::default(),
        channels: Mutex::default(),
        guests: Guests::default(),
        stop: Stop::default(),
        threads: Threads::default(),
        pool: Mutex::default(),
        distributed: Mutex::new(Instant::now()),
    });
    let system = |action| move |cause| EngineError::System { endpoint, action, cause };
    let listener = match role {
        Role::Connect => None,
        Role::Listen => Some(shared.listen(&addresses).map_err(system.clone()("listen"))?),
        Role::Either => shared.listen(&addresses).ok(),
    };
    let (thread, name) = (shared.clone(), shared.thread_name("port"));
    shared.threads.start(name, move || thread.run(&addresses, listener)).map_err(system("start a thread"))?;
    Ok(Arc::new(StreamPort(shared)))
}

struct StreamPort(Arc<Shared>);

/// What the threads of a port share.
struct Shared {
    family: &'static dyn Family,
    role: Role,
    /// Peers connect to us.
    listens: AtomicBool,
    endpoint: Mutex<String>,
    local: Local,
    sink: Arc<dyn Sink>,
    /// Replaced whole, so that publishers keep theirs while they write. Changes only while
    /// `channels` is locked.
    links: RwLock<Arc<Vec<Arc<Link>>>>,
    channels: Mutex<Channels>,
    guests: Guests,
    stop: Stop,
    threads: Threads,
    pool: Mutex<Vec<Vec<u8>>>,
    /// When the last publication had been sent to all of several links.
    distributed: Mutex<Instant>,
}

impl Port for StreamPort {
    fn endpoint(&self) -> String {
        lock(&self.0.endpoint).clone()
    }

    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        self.0.open_channel(None, announcement, start)
    }

    fn reserve(&self, size: usize) -> Loan {
        let mut bytes = lock(&self.0.pool).pop().unwrap_or_default();
        bytes.reserve(HEADROOM + size);
        Loan::new(bytes, HEADROOM)
    }

    fn commit(&self, envelope: &Envelope<'_>, mut loan: Loan) -> Result<Sent, EngineError> {
        let sent = self.0.distribute(envelope, &mut Payload::Loan(&mut loan), None);
        let bytes = loan.into_inner();
        let mut pool = lock(&self.0.pool);
        if pool.len() < POOLED && bytes.capacity() <= POOLED_BYTES {
            pool.push(bytes);
        }
        sent
    }

    fn send(&self, envelope: &Envelope<'_>, payload: &[u8]) -> Result<Sent, EngineError> {
        self.0.distribute(envelope, &mut Payload::Bytes(payload), None)
    }

    fn retire(&self, channel: ChannelId) {
        self.0.retire_channel(channel);
    }

    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        self.0.answer_here(link, channel, answer);
    }

    fn want(&self, link: LinkId, document: Id128) {
        self.0.control(link, &Frame::Want { document });
    }

    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>) {
        if bytes.is_some() || !self.0.want_elsewhere(link, document) {
            self.0.control(link, &Frame::Document { document, bytes });
        }
    }

    fn relays(&self) -> bool {
        self.0.relays()
    }

    fn flush(&self, deadline: Instant) -> bool {
        // All of them, also when one is late: the others' bytes leave meanwhile.
        self.0.links().iter().filter(|link| !link.outbox.flush(deadline)).count() == 0
    }

    fn links(&self) -> Vec<LinkStats> {
        self.0.links().iter().map(|link| link.stats()).collect()
    }

    fn close(&self) {
        self.0.close();
    }
}

impl Drop for StreamPort {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Shared {
    fn listen(&self, addresses: &[SockAddr]) -> io::Result<Listener> {
        let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match self.family.listen(address, &self.local.options) {
                Ok(socket) => {
                    let bound = socket.local_addr()?;
                    let endpoint = format!("{}/{}", self.family.name(), self.family.describe(&bound));
                    *lock(&self.endpoint) = endpoint.clone();
                    self.sink.event(Event::Listening { endpoint });
                    return Ok(Listener { socket: Arc::new(socket), bound });
                }
                Err(e) => refused = e,
            }
        }
        Err(refused)
    }

    /// The port's own thread.
    fn run(self: &Arc<Self>, addresses: &[SockAddr], listener: Option<Listener>) {
        if let Some(listener) = listener {
            return self.accept(&listener);
        }
        let options = &self.local.options;
        let mut pause = options.reconnect_min;
        let mut told = String::new();
        while !self.stop.is_set() {
            match self.connect(addresses) {
                Ok((socket, address)) => {
                    let served = self.serve(Arc::new(socket), address, None);
                    pause = if served { options.reconnect_min } else { pause };
                    told.clear();
                }
                Err(e) => self.tell_unreachable(&e, &mut told),
            }
            if self.role == Role::Either
                && !self.stop.is_set()
                && let Ok(listener) = self.listen(addresses)
            {
                return self.accept(&listener);
            }
            self.stop.wait(pause + jitter(pause));
            pause = (pause * 2).min(options.reconnect_max);
        }
    }

    fn tell_unreachable(&self, error: &io::Error, told: &mut String) {
        let reason = error.to_string();
        if *told != reason {
            self.sink.event(Event::Unreachable { endpoint: lock(&self.endpoint).clone(), reason: reason.clone() });
            *told = reason;
        }
    }

    fn connect(&self, addresses: &[SockAddr]) -> io::Result<(Socket, String)> {
        let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match self.family.connect(address, &self.local.options) {
                Ok(socket) => return Ok((socket, self.family.describe(address))),
                Err(e) => refused = e,
            }
        }
        Err(refused)
    }

    fn accept(self: &Arc<Self>, listener: &Listener) {
        self.listens.store(true, Ordering::Release);
        self.stop.watch(&listener.socket);
        while !self.stop.is_set() {
            let mut fds = [PollFd::new(&*listener.socket, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
            if self.stop.is_set() {
                break;
            }
            match listener.socket.accept() {
                Ok((socket, from)) => self.accepted(socket, &from),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // Out of descriptors, or the caller is gone already: the next one may have more
                // luck.
                Err(_) => self.stop.wait(Duration::from_millis(20)),
            }
        }
        self.family.unbound(&listener.bound);
    }

    fn accepted(self: &Arc<Self>, socket: Socket, from: &SockAddr) {
        let (socket, address) = (Arc::new(socket), self.family.describe(from));
        let limit = self.local.options.peers;
        let room = self.threads.count() <= limit + LEAVING;
        let Some(guest) = room.then(|| self.guests.admit(&socket, from, limit)).flatten() else {
            return self.sink.event(Event::Rejected { address, reason: Disconnect::TooMany(limit) });
        };
        let (thread, name) = (self.clone(), self.thread_name("read"));
        let started = self.threads.start(name, move || {
            thread.serve(socket, address, Some(guest));
        });
        if started.is_err() {
            // The socket is dropped and the peer sees it closed.
            self.guests.leave(guest);
        }
    }

    fn close(&self) {
        let first = self.stop.set();
        for link in self.links().iter().filter(|_| first) {
            link.say_goodbye(Instant::now() + self.local.options.linger);
        }
        let deadline = Instant::now() + self.local.options.linger;
        if !self.threads.wait(deadline) {
            self.stop.cut();
        }
        self.threads.join();
    }

    fn links(&self) -> Arc<Vec<Arc<Link>>> {
        self.links.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends to every link that wants it, but for the one that it came from.
    #[inline]
    fn distribute(
        &self,
        envelope: &Envelope<'_>,
        payload: &mut Payload<'_>,
        from: Option<LinkId>,
    ) -> Result<Sent, EngineError> {
        let mut sent = Sent::default();
        let links = self.links();
        // To each of several links, the time that the others took would look like a pause of the
        // publisher, and no burst would ever be seen.
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

    fn control(&self, to: LinkId, frame: &Frame<'_>) {
        if let Some(link) = self.links().iter().find(|link| link.info.id == to) {
            link.outbox.control(frame);
        }
    }

    fn thread_name(&self, what: &str) -> String {
        format!("pw-{}-{what}", self.family.name())
    }

    fn link_info(&self, peer: polywire_core::frame::Hello, address: String) -> LinkInfo {
        LinkInfo { id: super::next_link_id(), peer, address }
    }
}

struct Listener {
    socket: Arc<Socket>,
    bound: SockAddr,
}

/// Keeps nodes that lost the same peer from calling it all at once.
fn jitter(pause: Duration) -> Duration {
    let nanos =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    pause.mul_f64(f64::from(nanos % 1000) / 4000.0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
