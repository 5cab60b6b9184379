//! [`Node`], a participant, and its builder. The files below hold its parts: `port` and `incoming`
//! drive the protocol of [`polywire_core::session`] with threads and engines, and `inner` has the
//! state that all of them share.

mod answered;
mod builtin;
mod census;
mod channels;
mod decoders;
mod documents;
mod incoming;
mod inner;
mod limits;
mod opening;
mod port;
mod reload;
mod route;
mod routes;
mod signal;
mod timer;

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    sync::{Arc, Weak},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::{Mutex, MutexGuard, RwLock};
use polywire_core::{
    codec::{self, Codec},
    compress::{self, Compressor},
    directory::NodeData,
    envelope::Id128,
    frame::Hello,
    session,
};

pub(crate) use self::{
    decoders::{DecoderKey, Decoders, Order, ReaderKey},
    inner::Inner,
    limits::members,
    port::PortEntry,
    reload::Reload,
    route::{Matches, Replay, Route, Slot, Watcher},
    timer::Wake,
};
use self::{inner::SessionSettings, timer::Timer};
pub use self::{
    limits::{Exceeded, NodeLimits},
    route::Source,
};
pub use crate::error::NodeError;
use crate::{
    access::Gate,
    builtin::is_builtin,
    clock,
    config::{Config, NODE_NAME},
    engine::{ENGINES, Engine, Local},
    events::{Events, Hub},
    metrics::MetricsServer,
    qos::Qos,
    stats::{NodeStats, Totals},
    suggest::hint,
    system::program,
    wire::{self, Endpoint, Wire, WireError},
};

/// A participant: it owns ports, publishers and subscribers. A process usually has one. A clone is
/// the same node.
///
/// Ports stay open until [`Node::close`], or until the last publisher, subscriber and clone of the
/// node is gone. Before a port closes, it sends the queued messages and the schemas that
/// subscribers still request, for at most
/// [`EngineOptions::linger`](crate::engine::EngineOptions::linger).
///
/// ```
/// use polywire::{node::Source, Node};
/// # use std::time::{Duration, Instant};
///
/// #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
/// #[polywire(name = "Pump")]
/// struct Pump { id: u32 }
///
/// let (here, there) = (Node::new(), Node::new());
/// let endpoint = here.open("tcp-listen/127.0.0.1:0")?;
/// let pumps = here.subscriber_on::<Pump>("pumps", &format!("cdr@{endpoint}"))?;
/// let publisher = there.publisher_on::<Pump>("pumps", &format!("cdr@{}", endpoint.replace("tcp/", "tcp-connect/")))?;
/// assert_eq!(publisher.wait_for_subscribers(1, Duration::from_secs(10)), 1);
/// publisher.publish(&Pump { id: 7 })?;
/// assert!(there.flush(Duration::from_secs(10)));
/// let sample = pumps.recv_timeout(Duration::from_secs(10)).expect("it was published");
/// assert_eq!(sample.value.id, 7);
///
/// assert_eq!(here.links(), 1);
/// let sources: Vec<Source> = here.discovered();
/// assert_eq!(sources[0].announcement.type_name, "Pump");
/// assert_ne!(here.hello().node, there.hello().node);
/// there.close();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Node(Arc<Opened>);

/// A node's ports, and the state that everything on it shares. The ports close when the last clone
/// of the node is dropped. Fields are dropped in this order.
struct Opened {
    inner: Arc<Inner>,
    ports: Arc<Ports>,
    metrics: Mutex<Option<MetricsServer>>,
    /// Notified when a port opens.
    watchers: Mutex<Vec<Weak<dyn PortWatcher>>>,
    /// Held while the configuration is replaced.
    reloading: Mutex<()>,
}

/// An object that is notified of the ports of a node.
pub(crate) trait PortWatcher: Send + Sync {
    /// Reports a port that is open.
    fn opened(&self, node: &Node, entry: &Arc<PortEntry>);
}

/// A wire, and the port of its endpoint.
#[derive(Clone)]
pub(crate) struct Place {
    /// The wire, completed by the configuration and the defaults.
    pub(crate) wire: Wire,
    pub(crate) entry: Arc<PortEntry>,
}

/// Open ports by endpoint.
#[derive(Default)]
struct Ports(Mutex<BTreeMap<String, Arc<PortEntry>>>);

/// Makes a [`Node`].
///
/// ```
/// use polywire::{node::NodeBuilder, engine::Overflow, Config, Node};
/// # use std::time::Duration;
/// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
/// # struct Pump { id: u32 }
///
/// let config = Config::parse("[node]\nwire = 'bson@inproc/builder-doc'")?;
/// let builder: NodeBuilder = Node::builder().config(config).fetch_timeout(Duration::from_secs(1));
/// let node = builder.build();
/// let pumps = node.subscribe::<Pump>("pumps", None)?.queue(16).overflow(Overflow::DropOldest).open();
/// let publisher = node.publisher::<Pump>("pumps")?;
/// publisher.publish(&Pump { id: 7 })?;
/// let sample = pumps.recv_timeout(Duration::from_secs(10)).expect("it was published");
/// assert_eq!(sample.info.source.announcement.codec, "bson");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct NodeBuilder {
    config: Config,
    id: Option<Id128>,
    codecs: Vec<&'static dyn Codec>,
    compressors: Vec<&'static dyn Compressor>,
    engines: Vec<&'static dyn Engine>,
    fetch_timeout: Option<Duration>,
    limits: NodeLimits,
    name: Option<String>,
}

impl NodeBuilder {
    /// Sets the configuration: wires and policies.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets an id that stays the same when the node restarts. Without it, the id is random.
    pub fn id(mut self, id: Id128) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the name that tools show for the node. The default is `[node] name` of the
    /// configuration or, without that, the program's name and the process id, as in `hall-4711`.
    /// Names need not be unique. Control characters are removed, and the name is cut to 255 bytes.
    ///
    /// ```
    /// use polywire::{Config, Node};
    /// assert_eq!(Node::builder().name("hall").build().name(), "hall");
    /// let config = Config::parse("[node]\nname = 'plant'").unwrap();
    /// assert_eq!(Node::builder().config(config).build().name(), "plant");
    /// assert!(Node::new().name().ends_with(&format!("-{}", std::process::id())));
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds a codec. It replaces a built-in codec of the same name. The first codec added also
    /// becomes the node's `auto` ([`AUTO`](crate::wire::AUTO)), whatever its name.
    pub fn codec(mut self, codec: &'static dyn Codec) -> Self {
        self.codecs.push(codec);
        self
    }

    /// Adds a compressor. It replaces a built-in compressor of the same name.
    pub fn compressor(mut self, compressor: &'static dyn Compressor) -> Self {
        self.compressors.push(compressor);
        self
    }

    /// Adds an engine. It replaces a built-in engine of the same name.
    pub fn engine(mut self, engine: &'static dyn Engine) -> Self {
        self.engines.push(engine);
        self
    }

    /// Sets how long subscribers wait for a writer's schema or dictionary before they refuse the
    /// writer: 5 s by default.
    pub fn fetch_timeout(mut self, timeout: Duration) -> Self {
        self.fetch_timeout = Some(timeout);
        self
    }

    /// Sets the limits on the memory that peers can make the node use.
    pub fn limits(mut self, limits: NodeLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Makes the node. No port is opened yet.
    pub fn build(self) -> Node {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let hello = Hello { node: self.id.unwrap_or_else(random_id), incarnation: now.as_nanos() as u64 };
        let mut limits = session::Limits::default();
        limits.fetch_timeout = self.fetch_timeout.unwrap_or(limits.fetch_timeout);
        let gate = Gate::new(self.config.access.clone(), self.config.follow.clone());
        let name = self.name.or_else(|| self.config.name.clone()).unwrap_or_else(default_name);
        let inner = Inner {
            hello,
            engine: self.config.engine.clone().with_short_times(),
            config: RwLock::new(Arc::new(self.config)),
            codecs: self.codecs.into_iter().chain(codec::CODECS.iter().copied()).collect(),
            compressors: self.compressors.into_iter().chain(compress::COMPRESSORS.iter().copied()).collect(),
            engines: self.engines.into_iter().chain(ENGINES.iter().copied()).collect(),
            documents: Arc::default(),
            decoders: Decoders::new(self.limits),
            events: Hub::default(),
            timer: Timer::default(),
            answered: Arc::default(),
            users: Mutex::default(),
            session: SessionSettings::new(limits, &self.limits),
            gate,
            name: shown(&name),
            started: Instant::now(),
            signal: Arc::default(),
            totals: Totals::default(),
        };
        let (inner, ports) = (Arc::new(inner), Arc::<Ports>::default());
        let (node, open, signal) = (Arc::downgrade(&inner), Arc::downgrade(&ports), inner.signal.clone());
        let start = move || builtin::start(signal.clone(), node.clone(), open.clone());
        inner.signal.on_ask(Box::new(start));
        Node(Arc::new(Opened {
            inner,
            ports,
            metrics: Mutex::default(),
            watchers: Mutex::default(),
            reloading: Mutex::default(),
        }))
    }
}

impl Default for Node {
    fn default() -> Self {
        Node::new()
    }
}

impl Node {
    /// A node with the default configuration.
    pub fn new() -> Node {
        Node::builder().build()
    }

    /// Makes a node with other than default settings.
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }

    /// Opens an endpoint before anything uses it. Returns its address, with the port number that
    /// the system chose.
    pub fn open(&self, endpoint: &str) -> Result<String, NodeError> {
        Ok(self.port(&endpoint.parse()?)?.port().endpoint())
    }

    /// Returns the node's events from now on.
    pub fn events(&self) -> Events {
        self.0.inner.events.listen(false)
    }

    /// Returns the node's events from now on, and its counts once a second.
    ///
    /// ```
    /// use polywire::{Node, NodeEvent};
    /// # use std::time::Duration;
    /// # #[derive(Default, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let node = Node::new();
    /// let pumps = node.publisher_on::<Pump>("pumps", "cdr@inproc/counted-doc")?;
    /// (0..3).try_for_each(|id| pumps.publish(&Pump { id }).map(drop))?;
    /// let events = node.events_with_counts();
    /// while let Some(event) = events.recv_timeout(Duration::from_secs(10)) {
    ///     if let NodeEvent::Counted(counts) = event {
    ///         assert_eq!((counts.topics[0].topic.as_str(), counts.topics[0].sent), ("pumps", 3));
    ///         break;
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn events_with_counts(&self) -> Events {
        let events = self.0.inner.events.listen(true);
        self.0.inner.signal.ask();
        events
    }

    /// Sends the messages that `publish` publishes, on any topics, together. Over byte streams such
    /// as TCP, the messages for a peer are written in one piece when `publish` returns, which takes
    /// fewer packets than writing each message. Messages that other threads publish meanwhile wait
    /// as well, so `publish` should only publish. Large amounts of data, and messages over other
    /// engines, are sent earlier.
    ///
    /// ```
    /// use polywire::Node;
    /// # #[derive(Default, Debug, PartialEq, polywire::Message)]
    /// # struct Level { metres: f64 }
    ///
    /// let node = Node::new();
    /// let levels = ["tank/a", "tank/b"].map(|topic| node.publisher_on::<Level>(topic, "cdr@inproc/together-doc").unwrap());
    /// let received = Node::new().subscribe::<Level>("tank/b", Some("inproc/together-doc"))?.open();
    /// node.together(|| levels.iter().try_for_each(|level| level.publish(&Level { metres: 1.5 }).map(|_| ())))?;
    /// assert_eq!(received.recv().unwrap().value, Level { metres: 1.5 });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn together<R>(&self, publish: impl FnOnce() -> R) -> R {
        /// Ends the gathering also after a panic.
        struct Gathering(Vec<Arc<PortEntry>>);

        impl Drop for Gathering {
            fn drop(&mut self) {
                self.0.iter().for_each(|entry| entry.port().gather(false));
            }
        }

        // Ports that are opened meanwhile do not gather.
        let ports = Gathering(self.ports().to_vec());
        ports.0.iter().for_each(|entry| entry.port().gather(true));
        publish()
    }

    /// Waits until all published messages have left this node for the peers present. Returns false
    /// if that takes longer than `timeout`.
    pub fn flush(&self, timeout: Duration) -> bool {
        let deadline = clock::deadline(timeout);
        // Flushes every port, even after one has timed out.
        self.ports().iter().filter(|port| !port.flush(deadline)).count() == 0
    }

    /// The quality of service that is configured for a topic, or the default.
    ///
    /// ```
    /// use polywire::{Config, Node, qos::Qos};
    /// let config = Config::parse("[topics.pumps.qos]\nprofile = 'sensor-data'").unwrap();
    /// let node = Node::builder().config(config).build();
    /// assert_eq!((node.qos_of("pumps"), node.qos_of("valves")), (Qos::sensor_data(), Qos::default()));
    /// ```
    pub fn qos_of(&self, topic: &str) -> Qos {
        self.config().topic(topic).qos.unwrap_or_default()
    }

    /// The present configuration.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.0.inner.config()
    }

    /// Whether any peer may redirect the node to an endpoint (`ENGINE/ADDRESS`): the endpoint
    /// matches a pattern of [`Config::follow`].
    ///
    /// ```
    /// use polywire::{Config, Node};
    /// let mut config = Config::default();
    /// config.follow = vec!["tls/plant-*:7448".into()];
    /// let node = Node::builder().config(config).build();
    /// assert!(node.may_follow("tls/plant-3:7448") && !node.may_follow("tcp/192.0.2.1:22"));
    /// ```
    pub fn may_follow(&self, endpoint: &str) -> bool {
        self.0.inner.gate.may_follow(endpoint)
    }

    /// The number of links to other nodes, over all ports.
    pub fn links(&self) -> usize {
        self.ports().iter().map(|port| port.port().links().len()).sum()
    }

    /// How often the rules of [`Access`](crate::access::Access) denied an action of a peer.
    ///
    /// ```
    /// use polywire::{Config, Node};
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// // What no rule allows is refused, and here no rule allows anything.
    /// let node = Node::builder().config(Config::parse("[access]")?).build();
    /// let endpoint = node.open("tcp-listen/127.0.0.1:0")?;
    /// let wire = format!("cdr@{}", endpoint.replace("tcp/", "tcp-connect/"));
    /// let publisher = Node::new().publisher_on::<Pump>("pumps", &wire)?;
    /// while publisher.status().refusing == 0 {
    ///     std::thread::yield_now();
    /// }
    /// assert_eq!(node.denied(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn denied(&self) -> u64 {
        self.0.inner.gate.denied()
    }

    /// The announcements of publishers on other nodes, on the ports opened here, sorted by topic.
    /// Announcements arrive soon after a link is up.
    pub fn discovered(&self) -> Vec<Source> {
        let mut sources: Vec<Source> = self.ports().iter().flat_map(|port| port.sources()).collect();
        sources.retain(|source| source.is_publisher() && !is_builtin(&source.announcement.topic));
        sources.sort_by(|a, b| {
            let key = |source: &Source| (source.announcement.topic.clone(), source.announcement.writer);
            key(a).cmp(&key(b))
        });
        sources
    }

    /// The subscribers of programs that are not Polywire nodes, by program, on the ports opened
    /// here. Only engines whose medium reports them have any: `dds`, and `zenoh` with ROS 2 topics.
    /// The id and the name are those of the program on the medium. The publishers that a subscriber
    /// reads and refuses are inferred from its type's name and its quality of service; publishers
    /// for which this is inconclusive are in neither list.
    ///
    /// ```
    /// let node = polywire::Node::new();
    /// node.open("inproc/foreign-readers-doc")?;
    /// assert!(node.foreign_readers().is_empty(), "nodes alone are there");
    /// # Ok::<(), polywire::NodeError>(())
    /// ```
    pub fn foreign_readers(&self) -> Vec<NodeData> {
        let mut programs: Vec<NodeData> = self.ports().iter().flat_map(|port| port.port().foreign_readers()).collect();
        programs.iter_mut().for_each(|program| program.subscribers.retain(|one| !is_builtin(&one.topic)));
        programs.retain(|program| !program.subscribers.is_empty());
        programs
    }

    /// Replaces the configuration while the node runs. Publishers and subscribers whose wire comes
    /// from the configuration use the new endpoints: publishers move as by
    /// [`PublisherOf::set_wires`](crate::PublisherOf::set_wires), and subscribers also keep their
    /// former endpoints until they are closed. The settings of queues and quality of service apply
    /// to publishers and subscribers that are opened from now on.
    ///
    /// If the access rules ([`Config::access`]) change for a peer, its links end in good order.
    /// When the peer reconnects, the new rules apply. That may take as long as
    /// [`EngineOptions::linger`](crate::engine::EngineOptions::linger). Messages that the peer
    /// sends meanwhile may be lost; its subscribers and publishers count them.
    ///
    /// Returns the keys and sections that have changed ([`Config::differences`]). Fails with
    /// [`NodeError::Restart`] if `[engine]`, `[identity]`, `node.name` or `node.metrics` differ.
    /// Also fails if the new configuration has access rules and an endpoint is open whose engine
    /// does not distinguish peers. In both cases, nothing has changed. A publisher or subscriber
    /// that cannot move keeps its endpoints; the first error is returned after all have tried.
    ///
    /// ```
    /// use polywire::{Config, Node};
    /// # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// let node = Node::builder().config(Config::parse("[node]\nwire = 'cdr@inproc/reload-doc-a'")?).build();
    /// let publisher = node.publisher::<Pump>("pumps")?;
    /// assert_eq!(node.reload(Config::parse("[node]\nwire = 'json@inproc/reload-doc-b'")?)?, ["node.wire"]);
    /// let pumps = Node::new().subscriber_on::<Pump>("pumps", "inproc/reload-doc-b")?;
    /// publisher.publish(&Pump { id: 7 })?;
    /// assert_eq!(pumps.recv().unwrap().info.source.announcement.codec, "json");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reload(&self, config: Config) -> Result<Vec<String>, NodeError> {
        let inner = &self.0.inner;
        let _reloading = self.0.reloading.lock();
        let changed = self.config().differences(&config);
        let fixed = Config::fixed(&changed);
        if !fixed.is_empty() {
            return Err(NodeError::Restart(fixed));
        }
        {
            // The lock prevents ports from being opened meanwhile.
            let ports = self.0.ports.lock();
            if config.access.is_some() {
                ports.values().try_for_each(|port| port.check_access())?;
            }
            inner.gate.replace(config.access.clone(), config.follow.clone());
        }
        *inner.config.write() = Arc::new(config);
        self.ports().iter().for_each(|port| port.apply_access(&inner.gate));
        let results = inner.users().into_iter().map(|user| user.reload(self));
        // Reloads all publishers and subscribers, even after one has failed.
        let results: Vec<Result<(), NodeError>> = results.collect();
        results.into_iter().collect::<Result<(), _>>().map(|()| changed)
    }

    /// Closes all ports. After that, publishing fails, and subscribers end after the messages that
    /// they have already received.
    pub fn close(&self) {
        self.0.ports.close();
        self.0.inner.events.end();
    }

    /// The id and incarnation with which the node introduces itself to peers.
    pub fn hello(&self) -> Hello {
        self.0.inner.hello
    }

    /// The name that tools show for the node: see [`NodeBuilder::name`].
    pub fn name(&self) -> &str {
        &self.0.inner.name
    }

    /// Returns the node's counts so far. Takes each of the locks that publishers and links take,
    /// for a moment. [`stats`](crate::stats) has an example.
    pub fn stats(&self) -> NodeStats {
        builtin::count(&self.0.inner, &self.ports())
    }

    /// Serves the node's counts to Prometheus over HTTP, at `/metrics`, until the node is dropped
    /// or this is called again. The address must be a loopback address. Returns the address with
    /// the port number that the system chose. `[node] metrics` of the configuration does the same
    /// when the node opens its first port.
    ///
    /// ```
    /// use std::{io::{Read, Write}, net::TcpStream};
    /// let node = polywire::Node::new();
    /// let address = node.serve_metrics("127.0.0.1:0".parse()?)?;
    /// let mut stream = TcpStream::connect(address)?;
    /// stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    /// let mut reply = String::new();
    /// stream.read_to_string(&mut reply)?;
    /// assert!(reply.contains("# TYPE polywire_uptime_seconds gauge"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve_metrics(&self, address: SocketAddr) -> Result<SocketAddr, NodeError> {
        let mut metrics = self.0.metrics.lock();
        *metrics = None;
        self.serve(address, &mut metrics)
    }

    fn serve(&self, address: SocketAddr, metrics: &mut Option<MetricsServer>) -> Result<SocketAddr, NodeError> {
        let (inner, ports) = (Arc::downgrade(&self.0.inner), Arc::downgrade(&self.0.ports));
        let text = move || {
            let (inner, ports) = (inner.upgrade()?, ports.upgrade()?);
            let entries = each_once(&ports.lock());
            Some(builtin::count(&inner, &entries).prometheus())
        };
        let served = MetricsServer::serve(address, text).map_err(|cause| NodeError::Metrics { address, cause })?;
        Ok(metrics.insert(served).address())
    }

    /// Notifies a watcher of all ports, present and future.
    pub(crate) fn watch(&self, watcher: &Arc<impl PortWatcher + 'static>) {
        let weak: Weak<dyn PortWatcher> = Arc::<_>::downgrade(&(watcher.clone() as Arc<dyn PortWatcher>));
        self.0.watchers.lock().push(weak);
        self.ports().iter().for_each(|entry| watcher.opened(self, entry));
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0.inner
    }

    /// How long a port may send what is queued before it closes.
    pub(crate) fn linger(&self) -> Duration {
        self.0.inner.engine.linger
    }

    fn ports(&self) -> Vec<Arc<PortEntry>> {
        each_once(&self.0.ports.lock())
    }

    /// Returns the wires of a topic, of which code has set `given`, with the ports of their
    /// endpoints. Opens ports if necessary. Returns at least one place.
    pub(crate) fn places_for(&self, topic: &str, given: &[Wire]) -> Result<Vec<Place>, NodeError> {
        let wires = self.config().wires_for(topic, given);
        if wires.is_empty() {
            return Err(NodeError::NoWire(topic.into()));
        }
        self.places_of(&wires)
    }

    /// Adds the place of one more wire. The first wire completes the new one.
    pub(crate) fn and_place(&self, places: Vec<Place>, wire: &str) -> Result<Vec<Place>, NodeError> {
        let present: Vec<Wire> = places.iter().map(|place| place.wire.clone()).collect();
        let mut more = wire::complete(&[wire.parse()?], present.get(..1).unwrap_or_default());
        more.splice(0..0, present);
        self.places_of(&more)
    }

    /// Returns the places of these wires. Two wires at the same endpoint must have the same format,
    /// and count once.
    pub(crate) fn places_of(&self, wires: &[Wire]) -> Result<Vec<Place>, NodeError> {
        let mut places: Vec<Place> = Vec::new();
        for wire in wires {
            let wire = wire.clone().or(&Wire::default());
            let Some(endpoint) = &wire.endpoint else { continue };
            let entry = self.port(endpoint)?;
            match places.iter().find(|place| Arc::ptr_eq(&place.entry, &entry)) {
                None => places.push(Place { wire, entry }),
                Some(place) if place.wire.has_format_of(&wire) => {}
                Some(place) => {
                    let (first, second) = (place.wire.to_string(), wire.to_string());
                    return Err(NodeError::SameEndpoint { first, second });
                }
            }
        }
        Ok(places)
    }

    /// Returns the port of an endpoint. Opens the port if necessary.
    pub(crate) fn port(&self, endpoint: &Endpoint) -> Result<Arc<PortEntry>, NodeError> {
        let (entry, is_new) = self.port_or_open(endpoint)?;
        if is_new {
            let mut watchers = self.0.watchers.lock();
            watchers.retain(|watcher| watcher.strong_count() > 0);
            let watchers: Vec<_> = watchers.iter().filter_map(Weak::upgrade).collect();
            watchers.iter().for_each(|watcher| watcher.opened(self, &entry));
        }
        Ok(entry)
    }

    fn port_or_open(&self, endpoint: &Endpoint) -> Result<(Arc<PortEntry>, bool), NodeError> {
        let (inner, mut ports) = (&self.0.inner, self.0.ports.lock());
        let engines = || inner.engines.iter().map(|engine| engine.name());
        let engine = inner.engines.iter().find(|engine| engine.name() == endpoint.engine).ok_or_else(|| {
            let hint = hint(&endpoint.engine, engines());
            NodeError::Wire(WireError::Unknown { what: "engine", name: endpoint.engine.clone(), hint })
        })?;
        let address = engine.complete(&endpoint.address);
        let name = Endpoint { engine: endpoint.engine.clone(), address: address.clone() }.to_string();
        if let Some(entry) = ports.get(&name) {
            return Ok((entry.clone(), false));
        }
        let mut metrics = self.0.metrics.lock();
        if let (Some(address), None) = (self.config().metrics, &*metrics) {
            self.serve(address, &mut metrics)?;
        }
        drop(metrics);
        let local = Local { hello: inner.hello, name: inner.name.clone(), options: inner.engine.clone() };
        let entry = PortEntry::open(inner, *engine, &address, &local)?;
        ports.insert(name, entry.clone());
        // Also stored under its actual address, so that a port number chosen by the system can be
        // used.
        ports.entry(entry.port().endpoint()).or_insert_with(|| entry.clone());
        Ok((entry, true))
    }
}

impl Drop for Opened {
    /// Ends the thread of the built-in topics before the fields are dropped: the thread holds them
    /// while it works.
    fn drop(&mut self) {
        self.inner.signal.stop();
        self.ports.close();
        self.inner.signal.join();
    }
}

impl Ports {
    fn close(&self) {
        let ports = std::mem::take(&mut *self.lock());
        each_once(&ports).iter().for_each(|port| port.close());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<PortEntry>>> {
        self.0.lock()
    }
}

/// The name that tools show for a node without a configured name.
fn default_name() -> String {
    format!("{}-{}", program(), std::process::id())
}

/// Removes control characters from a name, and cuts it to [`NODE_NAME`] bytes.
fn shown(name: &str) -> String {
    let mut shown: String = name.chars().filter(|c| !c.is_control()).collect();
    shown.truncate(shown.floor_char_boundary(NODE_NAME));
    shown
}

/// Returns each port once. A port may be in the map under two names.
fn each_once(ports: &BTreeMap<String, Arc<PortEntry>>) -> Vec<Arc<PortEntry>> {
    let mut once: Vec<Arc<PortEntry>> = Vec::new();
    for port in ports.values() {
        if !once.iter().any(|other| Arc::ptr_eq(other, port)) {
            once.push(port.clone());
        }
    }
    once
}

/// A random id, from the keys that the standard library draws for hashing.
pub(crate) fn random_id() -> Id128 {
    let half = || RandomState::new().hash_one(Instant::now().elapsed().as_nanos()).to_le_bytes();
    let mut id = [0; 16];
    for (to, from) in id.iter_mut().zip(half().into_iter().chain(half())) {
        *to = from;
    }
    Id128(id)
}
