//! The port: opening, listening, connecting again, accepting, closing.

use std::{
    cell::Cell,
    io,
    net::Shutdown,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Frame, Start},
};

use super::{
    accepted::AcceptedConnections,
    assured::Assured,
    calls::Calls,
    channels::Channels,
    link::Link,
    link_slots::LinkSlots,
    pace::Pace,
    payload::Payload,
    shared::{PeerSource, Shared},
    threads::{Stop, Threads},
    transport::{Connection, Listener, Rendezvous, Role, Transport},
};
use crate::engine::{
    Batch, Disconnect, EngineError, Event, LinkId, LinkStats, Loan, Local, Port, Sent, Sink, rejections::Rejections,
    remedy,
};

/// Interval at which `disconnect` checks whether the links have ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Room before a lent payload, enough for any header without extensions.
const HEADROOM: usize = 64;
/// The number of threads of displaced connections that may still be ending. While there are more,
/// the port rejects new connections.
const LEAVING: usize = 64;
/// The largest buffer, in bytes, that is kept for the thread's next loan. Larger buffers are freed.
const SPARE_BYTES: usize = 8 << 20;

thread_local! {
    /// The buffer of the thread's next loan.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Opens a port over byte streams: what [`Engine::open`](crate::engine::Engine::open) returns.
///
/// Fails if the port cannot listen where `role` requires it, or cannot start its thread. With
/// [`Role::Either`], fails if listening fails with [`io::ErrorKind::AlreadyExists`]: something else
/// is at the address, and no node can connect to it. Starts to listen before it returns, and
/// connects afterwards.
pub fn open(
    transport: impl Transport,
    role: Role,
    local: &Local,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Port>, EngineError> {
    let shared = Arc::new(Shared::new(PeerSource::One(Box::new(transport), role), local, sink));
    let listener = match role {
        Role::Connect => None,
        Role::Listen => Some(shared.listen().map_err(|cause| shared.failed("listen", cause))?),
        Role::Either => match shared.listen() {
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => return Err(shared.failed("listen", cause)),
            listener => listener.ok(),
        },
    };
    let thread = shared.clone();
    let port = StreamPort(shared);
    port.start("port", move || match listener {
        Some(listener) => thread.accept(&listener),
        None => thread.stay_connected(),
    })?;
    Ok(Arc::new(port))
}

/// Opens a port that listens and keeps a link to every peer that `rendezvous` names.
///
/// Two nodes have one link, also if both connect at the same time. The port relays nothing. Fails
/// if the port cannot listen, or cannot start its threads.
///
/// Nodes of one process that meet at a table:
///
/// ```
/// use std::{collections::BTreeMap, io, sync::{Arc, Condvar, Mutex}, thread, time::Duration};
/// use polywire::{Node, engine::{Engine, EngineError, Local, Port, Properties, Sink}};
/// use polywire::engine::stream::{self, Connection, Descriptors, Listener, Peer, Rendezvous};
///
/// /// `table/ANY`: each node of the process, with the callers that it has not accepted yet.
/// struct Table;
/// static TABLE: Mutex<BTreeMap<String, Vec<Descriptors>>> = Mutex::new(BTreeMap::new());
/// static CHANGED: Condvar = Condvar::new();
///
/// /// One node at the table, by the id in its hello.
/// #[derive(Clone)]
/// struct Place(String);
///
/// fn connection(stream: Descriptors) -> Connection {
///     Connection { stream: Arc::new(stream), address: "this process".into(), host: None }
/// }
///
/// impl Rendezvous for Place {
///     fn name(&self) -> &'static str { "table" }
///     fn endpoint(&self) -> String { "table/all".into() }
///
///     fn listen(&self) -> io::Result<Arc<dyn Listener>> {
///         TABLE.lock().unwrap().insert(self.0.clone(), Vec::new());
///         CHANGED.notify_all();
///         Ok(Arc::new(self.clone()))
///     }
///
///     fn peers(&self) -> io::Result<Vec<Peer>> {
///         let others: Vec<String> = TABLE.lock().unwrap().keys().filter(|name| **name != self.0).cloned().collect();
///         Ok(others.into_iter().map(|address| Peer { address, hello: None }).collect())
///     }
///
///     fn connect(&self, address: &str) -> io::Result<Connection> {
///         let ((our_end, their_writer), (their_end, our_writer)) = (io::pipe()?, io::pipe()?);
///         let mut table = TABLE.lock().unwrap();
///         let callers = table.get_mut(address).ok_or(io::ErrorKind::NotFound)?;
///         callers.push(Descriptors::new(their_end, their_writer)?);
///         CHANGED.notify_all();
///         Ok(connection(Descriptors::new(our_end, our_writer)?))
///     }
///
///     fn wait(&self, timeout: Duration) {
///         drop(CHANGED.wait_timeout(TABLE.lock().unwrap(), timeout.min(Duration::from_millis(50))));
///     }
///
///     fn wake(&self) { CHANGED.notify_all(); }
/// }
///
/// impl Listener for Place {
///     fn endpoint(&self) -> String { "table/all".into() }
///
///     fn accept(&self) -> io::Result<Option<Connection>> {
///         let mine = |table: &mut BTreeMap<String, Vec<Descriptors>>| table.get_mut(&self.0).and_then(Vec::pop);
///         let mut table = TABLE.lock().unwrap();
///         let caller = mine(&mut table).or_else(|| {
///             mine(&mut CHANGED.wait_timeout(table, Duration::from_millis(50)).unwrap().0)
///         });
///         Ok(caller.map(connection))
///     }
///
///     fn wake(&self) { CHANGED.notify_all(); }
///     fn close(&self) { TABLE.lock().unwrap().remove(&self.0); }
/// }
///
/// impl Engine for Table {
///     fn name(&self) -> &'static str { "table" }
///     fn summary(&self) -> &'static str { "Nodes of one process" }
///     fn example(&self) -> &'static str { "all" }
///     fn properties(&self) -> Properties { stream::PROPERTIES }
///
///     fn open(&self, _: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
///         stream::open_mesh(Place(local.hello.node.to_string()), local, sink)
///     }
/// }
///
/// let nodes: Vec<Node> = (0..4).map(|_| Node::builder().engine(&Table).build()).collect();
/// nodes.iter().try_for_each(|node| node.open("table/all").map(drop))?;
/// while nodes.iter().any(|node| node.links() < 3) {
///     thread::sleep(Duration::from_millis(1));
/// }
/// # Ok::<(), polywire::NodeError>(())
/// ```
pub fn open_mesh(
    rendezvous: impl Rendezvous,
    local: &Local,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Port>, EngineError> {
    let shared = Arc::new(Shared::new(PeerSource::Mesh(Box::new(rendezvous)), local, sink));
    let listener = shared.listen().map_err(|cause| shared.failed("listen", cause))?;
    let (accepting, calling) = (shared.clone(), shared.clone());
    let port = StreamPort(shared);
    port.start("port", move || accepting.accept(&listener))?;
    port.start("mesh", move || calling.call_peers())?;
    Ok(Arc::new(port))
}

struct StreamPort(Arc<Shared>);

impl StreamPort {
    fn start(&self, what: &str, work: impl FnOnce() + Send + 'static) -> Result<(), EngineError> {
        let started = self.0.threads.start(self.0.thread_name(what), work);
        started.map_err(|cause| self.0.failed("start a thread", cause))
    }
}

impl Port for StreamPort {
    fn endpoint(&self) -> String {
        self.0.endpoint.lock().clone()
    }

    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        self.0.open_channel(None, announcement, start)
    }

    fn reserve(&self, size: usize) -> Loan {
        // In a thread that is ending, `SPARE` may be destroyed already.
        let mut bytes = SPARE.try_with(Cell::take).unwrap_or_default();
        bytes.reserve(HEADROOM + size);
        Loan::new(bytes, HEADROOM)
    }

    fn commit(&self, envelope: &Envelope<'_>, mut loan: Loan) -> Result<Sent, EngineError> {
        let sent = self.0.distribute(envelope, &mut Payload::Loan(&mut loan));
        let bytes = loan.into_inner();
        if bytes.capacity() <= SPARE_BYTES {
            let _ = SPARE.try_with(|spare| spare.set(bytes));
        }
        sent
    }

    fn send(&self, envelope: &Envelope<'_>, payload: &[u8]) -> Result<Sent, EngineError> {
        self.0.distribute(envelope, &mut Payload::Bytes(payload))
    }

    fn send_all(&self, batch: &Batch<'_>, sent: &mut Sent) -> Result<(), (usize, EngineError)> {
        self.0.distribute_all(batch, sent)
    }

    fn gather(&self, begins: bool) {
        self.0.gather(begins);
    }

    fn gathering(&self) -> Option<Arc<AtomicU64>> {
        Some(self.0.pace.gathering().clone())
    }

    fn assure(&self, channel: ChannelId) {
        if matches!(self.0.peer_source, PeerSource::One(_, Role::Connect | Role::Either)) {
            self.0.assured.add(channel);
        }
    }

    fn retire(&self, channel: ChannelId) {
        if !self.0.end_assured(channel) {
            self.0.retire_channel(channel);
        }
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
        let left = self.0.links().iter().filter(|link| !link.outbox.flush(deadline)).count() == 0;
        self.0.settle_assured(deadline) && left
    }

    fn links(&self) -> Vec<LinkStats> {
        self.0.links().iter().map(|link| link.stats()).collect()
    }

    fn disconnect(&self, links: &[LinkId]) {
        let deadline = Instant::now() + self.0.local.options.linger;
        let present = || {
            let all = self.0.links();
            all.iter().filter(|link| links.contains(&link.info.id)).cloned().collect::<Vec<_>>()
        };
        present().iter().for_each(|link| link.say_goodbye(deadline));
        while !present().is_empty() && Instant::now() < deadline && !self.0.stop.is_set() {
            self.0.stop.wait(LOOK_EVERY);
        }
        present().iter().for_each(|link| link.stream.shutdown(Shutdown::Both));
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
    fn new(peer_source: PeerSource, local: &Local, sink: Arc<dyn Sink>) -> Shared {
        Shared {
            listens: AtomicBool::new(false),
            endpoint: Mutex::new(peer_source.endpoint()),
            peer_source,
            local: local.clone(),
            sink,
            links: ArcSwap::default(),
            pace: Arc::new(Pace::new(&local.options)),
            channels: Mutex::<Channels>::default(),
            assured: Assured::default(),
            accepted_connections: AcceptedConnections::default(),
            rejections: Mutex::new(Rejections::new(local.options.peers)),
            link_slots: LinkSlots::default(),
            calls: Mutex::<Calls>::default(),
            stop: Stop::default(),
            threads: Threads::default(),
        }
    }

    fn failed(&self, action: &'static str, cause: io::Error) -> EngineError {
        EngineError::System { endpoint: self.peer_source.endpoint(), action, cause }
    }

    fn listen(&self) -> io::Result<Arc<dyn Listener>> {
        let listener = self.peer_source.listen()?;
        let endpoint = listener.endpoint();
        *self.endpoint.lock() = endpoint.clone();
        self.sink.event(Event::Listening { endpoint: endpoint.clone() });
        if listener.is_exposed() {
            self.sink.event(Event::Exposed { endpoint });
        }
        Ok(listener)
    }

    /// Keeps one connection up. With [`Role::Either`], listens as soon as nobody else does.
    fn stay_connected(self: &Arc<Self>) {
        let PeerSource::One(transport, role) = &self.peer_source else { return };
        let options = &self.local.options;
        let mut pause = options.reconnect_min;
        let mut told = String::new();
        while !self.stop.is_set() {
            let mut refused = match transport.connect() {
                Ok(connection) => {
                    let served = self.serve(connection, None);
                    pause = if served.was_link { options.reconnect_min } else { pause };
                    told.clear();
                    None
                }
                Err(error) => Some(error.to_string()),
            };
            if *role == Role::Either && !self.stop.is_set() {
                match (self.listen(), &mut refused) {
                    (Ok(listener), _) => return self.accept(&listener),
                    // Another node listens there, but does not accept connections yet.
                    (Err(cause), _) if cause.kind() == io::ErrorKind::AddrInUse => {}
                    // The name cannot be resolved. Connecting has failed for the same reason.
                    (Err(cause), _) if cause.kind() == io::ErrorKind::HostUnreachable => {}
                    (Err(cause), Some(reason)) => {
                        *reason += &format!(", nor listen there: {cause}{}", remedy(&cause));
                    }
                    (Err(_), None) => {}
                }
            }
            if let Some(reason) = refused {
                self.tell_unreachable(reason, &mut told);
            }
            self.stop.wait(pause + jitter(pause));
            pause = (pause * 2).min(options.reconnect_max);
        }
    }

    fn tell_unreachable(&self, reason: String, told: &mut String) {
        if *told != reason {
            self.sink.event(Event::Unreachable { endpoint: self.endpoint.lock().clone(), reason: reason.clone() });
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
        let admitted =
            room.then(|| self.accepted_connections.admit(&connection.stream, connection.host, limit)).flatten();
        let Some(accepted_id) = admitted else {
            let reason = Disconnect::TooMany(limit);
            return self.reject(connection.host, connection.address, reason);
        };
        let (thread, name) = (self.clone(), self.thread_name("read"));
        let started = self.threads.start(name, move || {
            thread.serve(connection, Some(accepted_id));
        });
        if started.is_err() {
            // The stream is dropped, so the peer sees it closed.
            self.accepted_connections.leave(accepted_id);
        }
    }

    fn close(&self) {
        self.settle_assured(Instant::now() + self.local.options.linger);
        // Connections that are not links yet are closed at once. Links get a goodbye and may
        // linger.
        let first = self.stop.set();
        let deadline = Instant::now() + self.local.options.linger;
        if first {
            // Slow peers come last: each of them may take all of the time.
            let links = self.links();
            let has_left = |link: &&Arc<Link>| link.outbox.flush(Instant::now());
            let (quick, slow): (Vec<_>, Vec<_>) = links.iter().partition(has_left);
            quick.into_iter().chain(slow).for_each(|link| link.say_goodbye(deadline));
        }
        if !self.threads.wait(deadline) {
            self.stop.cut();
        }
        self.threads.join();
        self.give_up_assured();
    }
}

/// Returns up to a quarter of the pause, so that nodes that lost the same peer do not connect all
/// at once.
fn jitter(pause: Duration) -> Duration {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    pause.mul_f64(f64::from(nanos % 1000) / 4000.0)
}
