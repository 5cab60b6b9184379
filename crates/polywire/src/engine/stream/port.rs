//! The port: opening, listening, connecting again, accepting, closing.

use std::{
    io,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Frame, Start},
};

use super::{
    channels::Channels,
    guests::Guests,
    outbox::Payload,
    shared::{Shared, lock},
    threads::{Stop, Threads},
    transport::{Connection, Listener, Role, Transport},
};
use crate::engine::{Disconnect, EngineError, Event, LinkId, LinkStats, Loan, Local, Port, Sent, Sink};

/// Room before a lent payload, enough for any header without extensions.
const HEADROOM: usize = 64;
/// Threads of displaced connections that may still be ending. If more are, callers are turned away.
const LEAVING: usize = 64;
/// Buffers kept for the next loans.
const POOLED: usize = 16;
/// A larger buffer is freed instead of pooled.
const POOLED_BYTES: usize = 1 << 20;

/// Opens a port over byte streams: what [`Engine::open`](crate::engine::Engine::open) returns.
///
/// Fails if the port cannot listen where `role` requires it, or cannot start its thread. Listens
/// before it returns, and connects afterwards.
pub fn open(
    transport: impl Transport,
    role: Role,
    local: &Local,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Port>, EngineError> {
    let endpoint = transport.endpoint();
    let shared = Arc::new(Shared {
        transport: Box::new(transport),
        role,
        listens: AtomicBool::new(false),
        endpoint: Mutex::new(endpoint.clone()),
        local: local.clone(),
        sink,
        links: RwLock::default(),
        channels: Mutex::<Channels>::default(),
        guests: Guests::default(),
        stop: Stop::default(),
        threads: Threads::default(),
        pool: Mutex::default(),
        distributed: Mutex::new(Instant::now()),
    });
    let system = |action| move |cause| EngineError::System { endpoint, action, cause };
    let listener = match role {
        Role::Connect => None,
        Role::Listen => Some(shared.listen().map_err(system.clone()("listen"))?),
        Role::Either => shared.listen().ok(),
    };
    let (thread, name) = (shared.clone(), shared.thread_name("port"));
    shared.threads.start(name, move || thread.run(listener)).map_err(system("start a thread"))?;
    Ok(Arc::new(StreamPort(shared)))
}

struct StreamPort(Arc<Shared>);

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
        // Not `all`, which would stop at the first late link and leave the others unflushed.
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
    fn listen(&self) -> io::Result<Arc<dyn Listener>> {
        let listener = self.transport.listen()?;
        let endpoint = listener.endpoint();
        *lock(&self.endpoint) = endpoint.clone();
        self.sink.event(Event::Listening { endpoint });
        Ok(listener)
    }

    /// The port's own thread: accepts, or keeps one connection up.
    fn run(self: &Arc<Self>, listener: Option<Arc<dyn Listener>>) {
        if let Some(listener) = listener {
            return self.accept(&listener);
        }
        let options = &self.local.options;
        let mut pause = options.reconnect_min;
        let mut told = String::new();
        while !self.stop.is_set() {
            match self.transport.connect() {
                Ok(connection) => {
                    let served = self.serve(connection, None);
                    pause = if served { options.reconnect_min } else { pause };
                    told.clear();
                }
                Err(e) => self.tell_unreachable(&e, &mut told),
            }
            if self.role == Role::Either
                && !self.stop.is_set()
                && let Ok(listener) = self.listen()
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

    fn accept(self: &Arc<Self>, listener: &Arc<dyn Listener>) {
        self.listens.store(true, Ordering::Release);
        let woken = listener.clone();
        let number = self.stop.watch(move || woken.wake());
        while !self.stop.is_set() {
            match listener.accept() {
                Ok(Some(connection)) if !self.stop.is_set() => self.accepted(connection),
                Ok(_) => {}
                // The process may be out of descriptors, or the caller gone already.
                Err(_) => self.stop.wait(Duration::from_millis(20)),
            }
        }
        listener.close();
        self.stop.forget(number);
    }

    fn accepted(self: &Arc<Self>, connection: Connection) {
        let limit = self.local.options.peers;
        let room = self.threads.count() <= limit + LEAVING;
        let admitted = room.then(|| self.guests.admit(&connection.stream, connection.host, limit)).flatten();
        let Some(guest) = admitted else {
            let reason = Disconnect::TooMany(limit);
            return self.sink.event(Event::Rejected { address: connection.address, reason });
        };
        let (thread, name) = (self.clone(), self.thread_name("read"));
        let started = self.threads.start(name, move || {
            thread.serve(connection, Some(guest));
        });
        if started.is_err() {
            // The stream is dropped, so the peer sees it closed.
            self.guests.leave(guest);
        }
    }

    fn close(&self) {
        // Peers that are no links yet are cut off; links get a goodbye and may linger.
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
}

/// Up to a quarter of the pause. Keeps nodes that lost the same peer from connecting all at once.
fn jitter(pause: Duration) -> Duration {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    pause.mul_f64(f64::from(nanos % 1000) / 4000.0)
}
