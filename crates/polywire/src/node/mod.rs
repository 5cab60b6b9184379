//! A process's membership.

mod decoders;
mod documents;
mod incoming;
mod limits;
mod port;
mod timer;

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicUsize},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use polywire_core::{
    codec::{self, Codec, LowerError, Options},
    compress::{self, Compressor},
    envelope::Id128,
    frame::Hello,
};

pub(crate) use self::{
    decoders::{DecoderKey, Decoders, Order, ReaderKey},
    documents::Documents,
    incoming::{Route, Slot},
    limits::members,
    port::PortEntry,
    timer::Timer,
};
pub use self::{
    incoming::Source,
    limits::{Exceeded, NodeLimits},
};
pub use crate::error::NodeError;
use crate::{
    chosen::Chosen,
    config::Config,
    engine::{ENGINES, Engine, Local},
    events::{Events, Hub, NodeEvent},
    packing::{self, Unpacking},
    suggest::hint,
    topic,
    wire::{Endpoint, Wire, WireError},
};

/// How long a subscriber waits for a writer's schema.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A process's membership: its ports, publishers and subscribers. A clone is the same node.
///
/// Ports stay open until the last publisher, subscriber and clone of the node is gone, or
/// [`Node::close`]. Either way what was published is delivered first, within
/// [`EngineOptions::linger`](crate::engine::EngineOptions::linger), with the schemas that
/// subscribers still ask for.
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
pub struct Node(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) hello: Hello,
    pub(crate) config: Config,
    codecs: Vec<&'static dyn Codec>,
    compressors: Vec<&'static dyn Compressor>,
    engines: Vec<&'static dyn Engine>,
    pub(crate) fetch_timeout: Duration,
    pub(crate) limits: NodeLimits,
    pub(crate) documents: Arc<Documents>,
    pub(crate) decoders: Decoders,
    /// Of [`NodeLimits::announced_bytes`].
    pub(crate) announced_bytes: Arc<AtomicUsize>,
    pub(crate) events: Hub,
    pub(crate) timer: Timer,
    ports: Mutex<BTreeMap<String, Arc<PortEntry>>>,
}

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
}

impl NodeBuilder {
    /// Wires and policies.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// An id that stays the same when the node restarts; chosen at random where none is given.
    pub fn id(mut self, id: Id128) -> Self {
        self.id = Some(id);
        self
    }

    /// A codec beside those built in, which it may replace.
    pub fn codec(mut self, codec: &'static dyn Codec) -> Self {
        self.codecs.push(codec);
        self
    }

    /// A compressor beside those built in, which it may replace.
    pub fn compressor(mut self, compressor: &'static dyn Compressor) -> Self {
        self.compressors.push(compressor);
        self
    }

    /// An engine beside those built in, which it may replace.
    pub fn engine(mut self, engine: &'static dyn Engine) -> Self {
        self.engines.push(engine);
        self
    }

    /// How long subscribers wait for a writer's schema or dictionary before they refuse it.
    pub fn fetch_timeout(mut self, timeout: Duration) -> Self {
        self.fetch_timeout = Some(timeout);
        self
    }

    /// What peers may make the node hold.
    pub fn limits(mut self, limits: NodeLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The node. Nothing is opened yet.
    pub fn build(self) -> Node {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let hello = Hello { node: self.id.unwrap_or_else(random_id), incarnation: now.as_nanos() as u64 };
        Node(Arc::new(Inner {
            hello,
            config: self.config,
            codecs: self.codecs.into_iter().chain(codec::CODECS.iter().copied()).collect(),
            compressors: self.compressors.into_iter().chain(compress::COMPRESSORS.iter().copied()).collect(),
            engines: self.engines.into_iter().chain(ENGINES.iter().copied()).collect(),
            fetch_timeout: self.fetch_timeout.unwrap_or(FETCH_TIMEOUT),
            limits: self.limits,
            documents: Arc::default(),
            decoders: Decoders::new(self.limits),
            announced_bytes: Arc::default(),
            events: Hub::default(),
            timer: Timer::default(),
            ports: Mutex::default(),
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

    /// A node with choices.
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }

    /// Opens an endpoint before anything uses it, and says where it is: with the port that the
    /// system chose.
    pub fn open(&self, endpoint: &str) -> Result<String, NodeError> {
        Ok(self.port(&endpoint.parse()?)?.port().endpoint())
    }

    /// What happens on the node from now on.
    pub fn events(&self) -> Events {
        self.0.events.listen()
    }

    /// Waits until everything published has left for the peers present; false if it has not by
    /// then.
    pub fn flush(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        // All of them, also when one is late.
        self.ports().iter().filter(|port| !port.flush(deadline)).count() == 0
    }

    /// Links to other nodes, over all ports.
    pub fn links(&self) -> usize {
        self.ports().iter().map(|port| port.port().links().len()).sum()
    }

    /// What publishers on other nodes have announced on the ports opened here, by topic.
    /// Announcements come soon after a link is up.
    pub fn discovered(&self) -> Vec<Source> {
        let mut sources: Vec<Source> = self.ports().iter().flat_map(|port| port.sources()).collect();
        sources.sort_by(|a, b| {
            let key = |source: &Source| (source.announcement.topic.clone(), source.announcement.writer);
            key(a).cmp(&key(b))
        });
        sources
    }

    /// Says goodbye on all ports. Publishing is an error after that, and subscribers end after what
    /// they have received.
    pub fn close(&self) {
        self.0.close();
    }

    /// The node as it introduces itself.
    pub fn hello(&self) -> Hello {
        self.0.hello
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    fn ports(&self) -> Vec<Arc<PortEntry>> {
        each_once(&self.0.ports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The wire of a topic, and the port of its endpoint, which is opened if need be.
    pub(crate) fn route(&self, topic: &str, wire: Option<&str>) -> Result<(Wire, Arc<PortEntry>), NodeError> {
        topic::check(topic)?;
        let given = wire.map(str::parse).transpose()?;
        let wire = self.0.config.wire_for(topic, given).ok_or_else(|| NodeError::NoWire(topic.into()))?;
        let endpoint = wire.endpoint.clone().or(Wire::default().endpoint);
        let endpoint = endpoint.ok_or_else(|| NodeError::NoWire(topic.into()))?;
        let entry = self.port(&endpoint)?;
        Ok((wire, entry))
    }

    fn port(&self, endpoint: &Endpoint) -> Result<Arc<PortEntry>, NodeError> {
        let mut ports = self.0.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let name = endpoint.to_string();
        if let Some(entry) = ports.get(&name) {
            return Ok(entry.clone());
        }
        let engines = || self.0.engines.iter().map(|engine| engine.name());
        let engine = self.0.engines.iter().find(|engine| engine.name() == endpoint.engine).ok_or_else(|| {
            let hint = hint(&endpoint.engine, engines());
            NodeError::Wire(WireError::Unknown { what: "engine", name: endpoint.engine.clone(), hint })
        })?;
        let local = Local { hello: self.0.hello, options: self.0.config.engine.clone() };
        let entry = PortEntry::open(&self.0, *engine, &endpoint.address, &local)?;
        ports.insert(name, entry.clone());
        // Under its real name too, so that a port that the system chose can be named by others.
        ports.entry(entry.port().endpoint()).or_insert_with(|| entry.clone());
        Ok(entry)
    }
}

impl Inner {
    fn close(&self) {
        let ports = std::mem::take(&mut *self.ports.lock().unwrap_or_else(PoisonError::into_inner));
        each_once(&ports).iter().for_each(|port| port.close());
    }

    /// The codec that a wire asks for.
    pub(crate) fn codec(&self, name: &str, options: &str) -> Result<Chosen, NodeError> {
        let (codec, options) = self.listed_codec(name, options)?;
        Chosen::of_wire(codec, options)
    }

    /// The codec that a writer has announced, whose document was fetched.
    pub(crate) fn announced_codec(
        &self,
        name: &str,
        options: &str,
        document: Option<Id128>,
    ) -> Result<Chosen, NodeError> {
        let (codec, options) = self.listed_codec(name, options)?;
        let unknown = |id| LowerError::Option(format!("the document {id} that configures it is unknown"));
        let configured = |id| self.documents.configured(codec, id).unwrap_or_else(|| Err(unknown(id)));
        let configured = document.map(configured).transpose();
        let configured = configured.map_err(|e| NodeError::Codec { codec: name.into(), cause: e.into() })?;
        Ok(Chosen::announced(codec, options, configured))
    }

    fn listed_codec(&self, name: &str, options: &str) -> Result<(&'static dyn Codec, Options), NodeError> {
        let found = match name {
            crate::wire::AUTO => self.codecs.first(),
            name => self.codecs.iter().find(|codec| codec.name() == name),
        };
        let codec = *found.ok_or_else(|| {
            let hint = hint(name, self.codecs.iter().map(|codec| codec.name()));
            NodeError::Wire(WireError::Unknown { what: "codec", name: name.into(), hint })
        })?;
        let failed = |cause: LowerError| NodeError::Codec { codec: name.into(), cause: cause.into() };
        let parsed: Options = options.parse().map_err(failed)?;
        parsed.check(codec).map_err(failed)?;
        Ok((codec, parsed))
    }

    /// The compressor of this name.
    pub(crate) fn compressor(&self, name: &str) -> Result<&'static dyn Compressor, NodeError> {
        let found = self.compressors.iter().find(|compressor| compressor.name() == name).copied();
        found.ok_or_else(|| {
            let hint = hint(name, self.compressors.iter().map(|compressor| compressor.name()));
            NodeError::Wire(WireError::Unknown { what: "compressor", name: name.into(), hint })
        })
    }

    /// Decompresses the payloads of a writer that announced this compressor. `None` if it announced
    /// none. Fails if the compressor or its dictionary is unknown here.
    pub(crate) fn unpacking(&self, announced: &str) -> Result<Option<Unpacking>, String> {
        let Some(name) = packing::compressor_name(announced) else { return Ok(None) };
        let compressor = self.compressor(name).map_err(|error| error.to_string())?;
        let document = |id| self.documents.bytes(id);
        Unpacking::of(compressor, announced, document, self.config.engine.limits.frame_bytes).map(Some)
    }

    pub(crate) fn tell(&self, event: &NodeEvent) {
        self.events.tell(event);
    }
}

/// The last clone has gone: the ports close while they can still say what peers ask.
impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// One port may be known by two names.
fn each_once(ports: &BTreeMap<String, Arc<PortEntry>>) -> Vec<Arc<PortEntry>> {
    let mut once: Vec<Arc<PortEntry>> = Vec::new();
    for port in ports.values() {
        if !once.iter().any(|other| Arc::ptr_eq(other, port)) {
            once.push(port.clone());
        }
    }
    once
}

/// Sixteen bytes from the keys that the standard library draws for hashing.
pub(crate) fn random_id() -> Id128 {
    let half = || RandomState::new().hash_one(Instant::now().elapsed().as_nanos()).to_le_bytes();
    let mut id = [0; 16];
    for (to, from) in id.iter_mut().zip(half().into_iter().chain(half())) {
        *to = from;
    }
    Id128(id)
}
