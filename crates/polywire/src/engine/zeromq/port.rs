//! The port. Nodes have links over byte streams, as in other engines. They discover each other over
//! ZeroMQ, which also carries the messages of foreign applications, which do not use Polywire.

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use parking_lot::{Mutex, RwLock};
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128, Kind as MessageKind},
    frame::{Answer, Start},
};
use polywire_zeromq::Context;

use super::{
    super::{
        EngineError, LinkId, LinkStats, Loan, Local, Overflow, Port, Sent, Sink,
        foreign::{
            Writers, encoding,
            visibility::{is_best_effort, is_private},
        },
        stream,
        unix::connect_now,
    },
    address::{Address, SocketEndpoint},
    asking::Asking,
    card,
    drops::Drops,
    finder::Finder,
    interest::Interest,
    publish_socket::{PublishSocket, Published, system},
    shared::Shared,
};
use crate::system::Wake;

pub(super) struct ZeromqPort {
    /// The links to nodes.
    links: Arc<dyn Port>,
    shared: Arc<Shared>,
    has_encoding: bool,
    /// The channels that foreign applications may read.
    open: RwLock<HashMap<ChannelId, Arc<Open>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A channel that foreign applications may read.
struct Open {
    topic: String,
    /// `None` if messages do not name their encoding.
    encoding: Option<String>,
    overflow: Overflow,
}

impl ZeromqPort {
    pub(super) fn open(
        text: &str,
        mut address: Address,
        local: &Local,
        sink: Arc<dyn Sink>,
    ) -> Result<ZeromqPort, EngineError> {
        let opened = format!("{}/{text}", super::NAME);
        let failed =
            |cause: io::Error| EngineError::System { endpoint: opened.clone(), action: "open a ZeroMQ socket", cause };
        let context = if address.is_inproc() { Context::process() } else { Context::new() };
        let context = context.map_err(|error| failed(system(error)))?;
        let publish_socket = publish_socket(&context, &mut address, local).map_err(failed)?;
        let endpoint = match address.bind.first() {
            Some(first) => format!("{}/connect/{first}", super::NAME),
            None => opened.clone(),
        };
        let endpoints = (address.bind, address.connect);
        let options = &local.options;
        let finder = Finder::new(local.hello, endpoint, endpoints, address.nodes, options, publish_socket.clone());
        let finder = Arc::new(finder);
        let wakes = Wake::new().and_then(|asking| Ok((asking, Wake::new()?)));
        let (asking, intake) = wakes.map_err(failed)?;
        let shared = Arc::new(Shared {
            endpoint: opened.clone(),
            local: local.clone(),
            sink: sink.clone(),
            high_water_mark: address.high_water_mark,
            publish_socket,
            finder: finder.clone(),
            foreign: Mutex::new(Writers::new(options.limits.channels, usize::MAX)),
            interest: Mutex::default(),
            drops: Mutex::new(Drops::new()),
            asking,
            intake,
            is_closing: AtomicBool::new(false),
        });
        let sockets = sockets(&shared, &context, &address.bind_sub).map_err(failed)?;
        let port = ZeromqPort {
            links: stream::open_mesh(finder, local, sink)?,
            shared,
            has_encoding: address.has_encoding,
            open: RwLock::default(),
            threads: Mutex::default(),
        };
        port.start(&context, sockets).map_err(failed)?;
        Ok(port)
    }

    fn start(&self, context: &Context, (asking, bound): Sockets) -> io::Result<()> {
        let (shared, intake, context) = (self.shared.clone(), self.shared.clone(), context.clone());
        let start = |name: &str, work: Box<dyn FnOnce() + Send>| thread::Builder::new().name(name.into()).spawn(work);
        let asks = start("pw-zeromq-ask", Box::new(move || shared.ask(asking)))?;
        self.threads.lock().push(asks);
        let takes = start("pw-zeromq-in", Box::new(move || intake.take_in(&context, bound)))?;
        self.threads.lock().push(takes);
        Ok(())
    }

    /// Publishes a message for foreign applications. Counts it as dropped if at least one
    /// subscriber misses it.
    fn publish(&self, envelope: &Envelope<'_>, payload: &[u8]) -> Sent {
        let heard = self.shared.publish_socket.as_ref().filter(|socket| socket.is_heard());
        // A foreign application knows no message kinds: it would take the end of an instance for a
        // value.
        let is_end = matches!(envelope.kind, MessageKind::Dispose | MessageKind::Unregister);
        let Some(publish_socket) = heard.filter(|_| !is_end) else { return Sent::default() };
        let open = self.open.read().get(&envelope.channel).cloned();
        let Some(open) = open.filter(|_| payload.len() <= self.shared.local.options.limits.frame_bytes) else {
            return Sent::default();
        };
        let frames = [open.topic.as_bytes(), payload, open.encoding.as_deref().unwrap_or_default().as_bytes()];
        let count = if open.encoding.is_some() { 3 } else { 2 };
        match publish_socket.publish(&frames[..count], open.overflow) {
            Ok(Published::All) => Sent { others: 1, ..Sent::default() },
            Ok(Published::Dropped) => {
                self.shared.drops.lock().count(&open.topic);
                self.shared.report_drops();
                Sent { others: 1, dropped: 1, ..Sent::default() }
            }
            Err(error) => {
                log::warn!("{}: {error}", self.shared.endpoint);
                Sent { dropped: 1, ..Sent::default() }
            }
        }
    }
}

impl Port for ZeromqPort {
    fn endpoint(&self) -> String {
        self.links.endpoint()
    }

    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        let channel = self.links.announce(announcement, start)?;
        if self.shared.publish_socket.is_some() && !is_private(announcement) {
            let overflow = match is_best_effort(announcement) {
                true => Overflow::DropNewest,
                false => self.shared.local.options.overflow,
            };
            let encoding = self.has_encoding.then(|| encoding::of(announcement));
            let open = Arc::new(Open { topic: announcement.topic.clone(), encoding, overflow });
            self.open.write().insert(channel, open);
        }
        Ok(channel)
    }

    fn reserve(&self, size: usize) -> Loan {
        self.links.reserve(size)
    }

    fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        if self.shared.is_closing.load(Ordering::Acquire) {
            return Err(EngineError::Closed);
        }
        let mut sent = self.publish(envelope, loan.payload());
        sent += self.links.commit(envelope, loan)?;
        Ok(sent)
    }

    fn settle(&self) {
        self.links.settle();
    }

    fn settles(&self) -> bool {
        self.links.settles()
    }

    fn retire(&self, channel: ChannelId) {
        self.open.write().remove(&channel);
        self.links.retire(channel);
    }

    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        if !self.shared.foreign.lock().answered(link, channel, &answer) {
            self.links.answer(link, channel, answer);
        }
    }

    fn want(&self, link: LinkId, document: Id128) {
        self.links.want(link, document);
    }

    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>) {
        self.links.supply(link, document, bytes);
    }

    fn subscribe(&self, topic: &str) {
        self.shared.want(topic, Interest::add);
    }

    fn unsubscribe(&self, topic: &str) {
        self.shared.want(topic, Interest::remove);
    }

    fn relays(&self) -> bool {
        self.links.relays()
    }

    fn flush(&self, deadline: Instant) -> bool {
        self.links.flush(deadline)
    }

    fn links(&self) -> Vec<LinkStats> {
        self.links.links()
    }

    fn disconnect(&self, links: &[LinkId]) {
        self.links.disconnect(links);
    }

    fn close(&self) {
        self.shared.is_closing.store(true, Ordering::Release);
        self.shared.asking.wake();
        self.shared.intake.wake();
        self.links.close();
        let me = thread::current().id();
        for thread in std::mem::take(&mut *self.threads.lock()).into_iter().filter(|one| one.thread().id() != me) {
            // An error means that a callback panicked, which was printed.
            let _ = thread.join();
        }
        let rest = self.shared.drops.lock().rest();
        rest.into_iter().for_each(|event| self.shared.sink.event(event));
    }
}

impl Drop for ZeromqPort {
    fn drop(&mut self) {
        self.close();
    }
}

/// The sockets with which the threads start: those that ask, and the bound subscribing socket.
type Sockets = (Vec<Asking>, Option<polywire_zeromq::Socket>);

/// Opens the sockets with which the threads start.
fn sockets(shared: &Shared, context: &Context, bind_sub: &[SocketEndpoint]) -> io::Result<Sockets> {
    let (options, question) = (&shared.local.options, card::question(&shared.local.hello));
    let asked = shared.finder.endpoints.iter().enumerate().filter(|_| shared.finder.is_on());
    let asking = asked.map(|(number, endpoint)| Asking::new(context, number, endpoint, &question, options));
    let asking = asking.collect::<Result<_, _>>().map_err(system)?;
    if bind_sub.is_empty() {
        return Ok((asking, None));
    }
    let socket = shared.subscriber(context).map_err(system)?;
    for endpoint in bind_sub {
        is_free(endpoint)?;
        socket.bind(&endpoint.to_bind()).map_err(system)?;
        permit(endpoint, options.unix_mode)?;
    }
    Ok((asking, Some(socket)))
}

/// Opens the publishing socket, binds and connects it. Writes the ports that the system has chosen
/// to `address`.
fn publish_socket(context: &Context, address: &mut Address, local: &Local) -> io::Result<Option<Arc<PublishSocket>>> {
    if !address.publishes() {
        return Ok(None);
    }
    let publish_socket = PublishSocket::new(context, address.high_water_mark, local.options.linger)?;
    for endpoint in &mut address.bind {
        is_free(endpoint)?;
        let bound = publish_socket.bind(&endpoint.to_bind()).map_err(system)?;
        permit(endpoint, local.options.unix_mode)?;
        if let (SocketEndpoint::Tcp { port, .. }, Ok(SocketEndpoint::Tcp { port: chosen, .. })) =
            (endpoint, bound.parse())
        {
            *port = chosen;
        }
    }
    address
        .connect_pub
        .iter()
        .try_for_each(|endpoint| publish_socket.connect(&endpoint.to_string()))
        .map_err(system)?;
    Ok(Some(Arc::new(publish_socket)))
}

/// Fails if somebody listens at the path of this endpoint. libzmq would take the path over.
fn is_free(endpoint: &SocketEndpoint) -> io::Result<()> {
    let SocketEndpoint::Ipc(path) = endpoint else { return Ok(()) };
    match connect_now(Path::new(path)) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        // The listener's backlog is full.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::AddrInUse.into()),
        Err(_) => Ok(()),
    }
}

/// Sets the permissions of a socket's file to the mode in the options.
fn permit(endpoint: &SocketEndpoint, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    match endpoint {
        SocketEndpoint::Ipc(path) => std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)),
        _ => Ok(()),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use socket2::{Domain, SockAddr, Socket, Type};

    use super::*;

    /// On other systems, a full backlog refuses callers.
    #[test]
    fn a_path_whose_listener_has_a_full_backlog_is_not_free() {
        let path = std::env::temp_dir().join(format!("polywire-zeromq-full-{}", std::process::id()));
        let address = SockAddr::unix(&path).expect("a short path");
        let busy = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        busy.bind(&address).expect("it is bound");
        busy.listen(0).expect("it listens");
        let waiting: Vec<_> = std::iter::from_fn(|| connect_now(&path).ok()).take(100).collect();
        assert!((1..100).contains(&waiting.len()), "{} wait", waiting.len());
        let endpoint = SocketEndpoint::Ipc(path.display().to_string());
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(is_free(&endpoint).map_err(|error| error.kind())));
        let told = told.recv_timeout(Duration::from_secs(60));
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(told, Ok(Err(io::ErrorKind::AddrInUse)));
    }
}
