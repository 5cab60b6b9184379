//! Engines move messages between nodes. A message is an envelope and a payload of bytes; engines
//! never see types, schemas or codecs.
//!
//! [`Engine::open`] opens an address and returns a [`Port`]. The port finds the *peers*, which are
//! other nodes, and has one *link* to each. A node publishes through [`Port::commit`], which sends
//! to every peer that wants the channel. What a peer publishes goes to the [`LinkSink`] that the
//! node's [`Sink`] returned for that link. An engine implements [`Engine`] and [`Port`], and calls
//! [`Sink`] and [`LinkSink`].
//!
//! [`ENGINES`] lists the engines built in. An application adds its own with
//! [`NodeBuilder::engine`](crate::node::NodeBuilder::engine). There are two ways to write one:
//!
//! - Over byte streams: [`stream`] makes the port. The engine only finds peers and connects to
//!   them; `examples/fifo` does so in 200 lines.
//! - Over anything else: implement [`Port`], whose documentation is the contract. The engine in the
//!   crate `polywire-link` is an example. The queues of the engines built in are private to this
//!   crate.
//!
//! `tests/engines.rs` checks the contract on the engines built in and on `examples/fifo`. All of
//! them are reliable and ordered.
//!
//! A port without a node, as the tests of engines use it:
//!
//! ```
//! use std::{sync::{Arc, Mutex, mpsc}, time::{Duration, Instant}};
//! use polywire::engine::{
//!     self, EngineOptions, Event, LinkId, LinkInfo, LinkSink, LinkStats, Local, Port, Properties, Sent, Sink,
//! };
//! use polywire_core::{
//!     envelope::{Announcement, ChannelId, Envelope, Id128},
//!     frame::{Answer, FrameError, Hello, Start},
//! };
//!
//! /// Accepts every channel and passes payloads on.
//! struct Taker(Mutex<Option<Arc<dyn Port>>>, mpsc::Sender<Vec<u8>>);
//! struct Peer(Arc<Taker>, LinkId);
//! struct TakerSink(Arc<Taker>);
//!
//! impl Sink for TakerSink {
//!     fn link(&self, link: &LinkInfo) -> Arc<dyn LinkSink> {
//!         Arc::new(Peer(self.0.clone(), link.id))
//!     }
//!     fn event(&self, _: Event) {}
//! }
//!
//! impl LinkSink for Peer {
//!     fn announced(&self, channel: ChannelId, _: Start, _: &Announcement) {
//!         if let Some(port) = &*self.0.0.lock().unwrap() {
//!             port.answer(self.1, channel, Answer::Accept(1));
//!         }
//!     }
//!     fn message(&self, _: &Envelope<'_>, payload: &[u8]) {
//!         self.0.1.send(payload.to_vec()).unwrap();
//!     }
//!     fn position(&self, _: ChannelId, _: Start, _lost: u64) {}
//!     fn retired(&self, _: ChannelId) {}
//!     fn wanted(&self, _: Id128) {}
//!     fn supplied(&self, _: Id128, _: Option<&[u8]>) {}
//!     fn answered(&self, _: ChannelId, _: &Answer) {}
//!     fn drained(&self) {}
//!     fn down(&self) {}
//! }
//!
//! let inproc = engine::find("inproc").unwrap();
//! let Properties { reliable, ordered, .. } = inproc.properties();
//! assert!(reliable && ordered);
//! let (payloads, received) = mpsc::channel();
//! let open = |incarnation| {
//!     let hello = Hello { node: Id128([incarnation as u8; 16]), incarnation };
//!     let taker = Arc::new(Taker(Mutex::new(None), payloads.clone()));
//!     let local = Local { hello, name: "plant".into(), options: EngineOptions::default() };
//!     let port = inproc.open("engine-doc", &local, Arc::new(TakerSink(taker.clone())))?;
//!     *taker.0.lock().unwrap() = Some(port.clone());
//!     Ok::<_, engine::EngineError>(port)
//! };
//! let (a, _b) = (open(1)?, open(2)?);
//!
//! let channel = a.announce(&Announcement { topic: "t".into(), ..Announcement::default() }, Start::default())?;
//! a.settle();
//! let mut loan = a.reserve(3);
//! loan.buffer().extend_from_slice(b"abc");
//! assert_eq!(loan.payload(), b"abc");
//! let sent: Sent = a.commit(&Envelope::data(channel, 1, 0), loan)?;
//! a.settle();
//! assert_eq!((sent.peers, sent.subscribers, sent.dropped), (1, 1, 0));
//! assert_eq!(received.recv_timeout(Duration::from_secs(10)).unwrap(), b"abc");
//! assert!(a.flush(Instant::now() + Duration::from_secs(10)));
//! let links: Vec<LinkStats> = a.links();
//! assert_eq!((links.len(), links[0].sent), (1, 1));
//! a.close();
//! # Ok::<(), engine::EngineError>(())
//! ```

#[cfg(feature = "dds")]
pub mod dds;
mod delivery;
mod domain;
mod event;
#[cfg(any(feature = "dds", feature = "zenoh", feature = "zeromq"))]
mod foreign;
mod identity;
#[cfg(any(feature = "dds", feature = "zenoh"))]
mod inline;
pub mod inproc;
#[cfg(feature = "lan")]
pub mod lan;
#[cfg(any(feature = "dds", feature = "zenoh"))]
mod late;
mod loan;
pub mod local;
pub(crate) mod loopback;
mod options;
mod outbox;
mod pipe;
mod principal;
mod rejections;
#[cfg(all(feature = "shm", target_os = "linux"))]
pub mod shm;
mod sockets;
pub mod stream;
pub mod tcp;
#[cfg(feature = "tls")]
pub mod tls;
pub mod udp;
#[cfg(unix)]
pub mod unix;
mod waiting;
#[cfg(feature = "zenoh")]
pub mod zenoh;
#[cfg(feature = "zeromq")]
pub mod zeromq;

use std::{
    fmt, io,
    ops::AddAssign,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use polywire_core::{
    directory::NodeData,
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, FrameError, Hello, Start},
    layout::SharedBytes,
    qos::Qos,
};

pub use event::{Disconnect, Event};
pub use identity::{Identity, IdentityError};
pub use loan::Loan;
pub use options::{EngineOptions, Overflow};
pub use principal::Principal;
pub use stream::Aligned;

/// The engines built in, in the order in which command-line tools list them.
pub static ENGINES: &[&dyn Engine] = &[
    &inproc::Inproc,
    &local::Domain,
    #[cfg(feature = "lan")]
    &lan::Lan,
    #[cfg(all(feature = "shm", target_os = "linux"))]
    &shm::Shm,
    &tcp::Tcp,
    &tcp::TcpListen,
    &tcp::TcpConnect,
    #[cfg(unix)]
    &unix::Unix,
    #[cfg(unix)]
    &unix::UnixListen,
    #[cfg(unix)]
    &unix::UnixConnect,
    #[cfg(feature = "tls")]
    &tls::Tls,
    #[cfg(feature = "tls")]
    &tls::TlsListen,
    #[cfg(feature = "tls")]
    &tls::TlsConnect,
    &udp::UdpReliable,
    &udp::Udp,
    #[cfg(feature = "dds")]
    &dds::Dds,
    #[cfg(feature = "zenoh")]
    &zenoh::Zenoh,
    #[cfg(feature = "zeromq")]
    &zeromq::Zeromq,
];

/// Finds an engine built in by its name.
///
/// ```
/// assert!(polywire::engine::find("tcp").is_some_and(|engine| engine.properties().reliable));
/// ```
pub fn find(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.iter().copied().find(|engine| engine.name() == name)
}

/// A way to move messages, such as TCP. It is a stateless value in a table: all state belongs to
/// the [`Port`]s that it opens.
pub trait Engine: Send + Sync {
    /// The part of a wire in front of the slash, as `tcp` in `cdr@tcp/127.0.0.1:7460`: lower-case
    /// letters, digits and hyphens.
    fn name(&self) -> &'static str;

    /// One line for help texts.
    fn summary(&self) -> &'static str;

    /// A valid address, for help texts and error messages.
    fn example(&self) -> &'static str;

    /// What the ports guarantee. From it and from [`EngineOptions::overflow`], the node decides how
    /// stateful formats recover from losses: unless a wire chooses, each message refers to the
    /// previous one if the engine is reliable and ordered and the policy is [`Overflow::Block`],
    /// and to a key frame otherwise. Gaps in sequence numbers count as losses if the engine is
    /// ordered.
    fn properties(&self) -> Properties;

    /// Whether one transmission reaches one peer, or all peers are nodes of this process, so that
    /// rules of access can be applied. By default, if the engine does not multicast.
    fn tells_peers_apart(&self) -> bool {
        !self.properties().multicast
    }

    /// Whether the first process at an address relays between the others, so that `polywire relay`
    /// can hold the address. By default not.
    fn relays(&self) -> bool {
        false
    }

    /// The address with what it leaves out filled in. Two addresses that this makes equal are the
    /// same place, which a node opens once.
    fn complete(&self, address: &str) -> String {
        address.into()
    }

    /// Opens an address, which [`Engine::complete`] has completed. Called on a thread of the
    /// application, once per node and address.
    ///
    /// Returns as soon as the port can be used: a listening port is bound; a connecting port may
    /// still be connecting, and keeps trying until it is closed. Fails only if trying again cannot
    /// help, as with a malformed address or one that is in use. The engine may call `sink` from
    /// any thread from now on, even before this returns.
    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError>;
}

/// What the ports of an engine guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// A message that was sent arrives, unless the link breaks or the overflow policy drops it.
    /// Both are reported.
    pub reliable: bool,
    /// Messages of one writer arrive in the order in which it published them.
    pub ordered: bool,
    /// One transmission reaches several receivers.
    pub multicast: bool,
    /// Size of the largest payload in bytes; `None` if the medium sets no limit.
    pub largest_payload: Option<usize>,
    /// The medium itself matches writers and readers. Messages of a channel that this node has
    /// accepted may be lost until the engine calls [`LinkSink::matched`].
    pub matches: bool,
}

/// The node that opens a port, and its options.
#[derive(Clone, Debug)]
pub struct Local {
    /// How the node introduces itself to peers.
    pub hello: Hello,
    /// What tools call the node, for media that show names.
    pub name: String,
    /// Queue sizes, buffers, time-outs and limits.
    pub options: EngineOptions,
}

/// An opened address: all links to the peers found there. The engine implements it; the node calls
/// it, from any thread.
///
/// # For implementers
///
/// **Properties.** An engine without [`Properties::reliable`] may lose or repeat messages, and one
/// without [`Properties::ordered`] may deliver them out of order. Everything else must reach the
/// peer exactly once and in order on every engine: announcements, retirements, answers, requests
/// for documents, and documents. The node does not repeat any of it: a lost announcement loses the
/// channel for good. There is one exception: [`Answer::Renew`] for a channel that was already
/// accepted may be lost. It requests a key frame, and the node requests it again.
///
/// **Order.** Messages of one channel reach a peer in the order of their [`Port::commit`] calls, if
/// the engine is ordered. Those of several channels of one writer should, too: where the medium may
/// mix them, as DDS does, the receiving node waits for the earlier ones. Calls for one writer do
/// not overlap; calls for different writers may. On every engine, a channel's announcement reaches
/// a peer before its messages, and its retirement after them.
///
/// **Interest.** Every channel is announced to every peer: to present ones at once, to later ones
/// when they come. A peer answers each announcement. Only peers that answered [`Answer::Accept`]
/// get messages. A reliable engine holds messages for a peer that has not answered yet, within the
/// bounds of the peer's queue.
///
/// **Blocking.** `commit` and `send` may block while a peer's queue is full, for as long as
/// [`Overflow::Block`] allows. `flush` and `close` may block until their time is up. No other
/// method blocks.
///
/// **Locks.** The sink may call any method of the port from inside a call that the port made to it:
/// it answers, publishes and closes there. Therefore, while the engine calls the sink, it must not
/// hold a lock that any method of the port takes.
///
/// **Ownership.** The engine owns and names its threads. `close` joins them before it returns,
/// except a thread of the port that called `close` itself. Dropping the last handle closes the
/// port.
///
/// **Counting.** [`Sent`] counts peers and their subscribers at the time of the call. A message
/// that is dropped at once counts in [`Sent::dropped`]. A message that is dropped later, to make
/// room for a newer one, has already been counted as sent. Both count in [`LinkStats::dropped`]. A
/// reliable engine also reports both, to the peer by [`LinkSink::position`] and to this node by
/// [`Event::Dropped`]; an unreliable engine may leave that out. [`Event::Unconfirmed`] reports the
/// messages that a peer had not confirmed when its link broke; an engine without confirmations
/// reports none.
///
/// **Errors.** `commit` fails only for mistakes of the caller: a closed port, or a message that is
/// too large. A message on a channel that has retired may be skipped or fail with
/// [`EngineError::Channel`]; callers must expect both. A failure of one peer is reported as an
/// [`Event`].
///
/// **Other messaging systems.** If the messages of a medium have their own fields for sequence
/// number, time or key, the engine maps the envelope to these fields instead of writing frames. For
/// a writer that is not a Polywire node and announces nothing, the engine reports a channel whose
/// type hash, schema and codec are empty. The node then assumes the codec and the schema that the
/// subscriber is configured with. Writers that send without waiting for an answer are reported on a
/// link whose peer has the zero id: there the node decides who reads a channel before
/// [`LinkSink::announced`] returns, or waits for another thread that decides, for at most a second.
pub trait Port: Send + Sync {
    /// `engine/address` for other nodes, including what the system chose, such as a port number.
    fn endpoint(&self) -> String;

    /// Opens a channel and announces it to all peers, present and future. The id is unique on this
    /// port; a peer may know the channel by another id. Fails if the port is closed or has too many
    /// channels, or if the announcement is too large.
    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError>;

    /// Lends a buffer for a payload of about `size` bytes. Pass it to `commit`, or drop it.
    fn reserve(&self, size: usize) -> Loan;

    /// Sends the payload in `loan` to all peers that want the channel. `envelope.channel` is an id
    /// that [`Port::announce`] returned.
    fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError>;

    /// Sends a payload that is not in a loan.
    fn send(&self, envelope: &Envelope<'_>, payload: &[u8]) -> Result<Sent, EngineError> {
        let mut loan = self.reserve(payload.len());
        loan.buffer().extend_from_slice(payload);
        self.commit(envelope, loan)
    }

    /// Sends payloads one after the other, as [`Port::send`] sends each of them, and adds to `sent`
    /// what it would return. Fails with the index of the first message that is not sent; those
    /// before it are. An engine can take its locks once for all, and write them together.
    fn send_all(&self, messages: &[(Envelope<'_>, &[u8])], sent: &mut Sent) -> Result<(), (usize, EngineError)> {
        for (index, (envelope, payload)) in messages.iter().enumerate() {
            *sent += self.send(envelope, payload).map_err(|error| (index, error))?;
        }
        Ok(())
    }

    /// Begins a time (`true`) in which the messages for a peer wait for each other, so that they
    /// leave together, or ends it. Times may overlap: the last end counts. An engine may send
    /// earlier, and should when much waits. The default does nothing.
    fn gather(&self, _begins: bool) {}

    /// While messages wait for others, in a flood or because of [`Port::gather`], a number that
    /// changes whenever the engine looks whether the flood is over, and with each call of
    /// `gather`; 0 otherwise. Publishers that see the same number need not look at
    /// the clock for each message. The default, for engines that gather none by themselves, is
    /// none.
    fn gathering(&self) -> Option<Arc<AtomicU64>> {
        None
    }

    /// Called after commits, when the caller holds no lock. An engine without threads calls the
    /// receivers' sinks here, not in `commit`. The default, for engines with threads, does nothing.
    fn settle(&self) {}

    /// Whether [`Port::settle`] has something to do after a commit just before. If not, callers
    /// leave it out. The default is that of the default [`Port::settle`]: no.
    fn settles(&self) -> bool {
        false
    }

    /// Ends a channel. Messages committed before still arrive, and then [`LinkSink::retired`].
    fn retire(&self, channel: ChannelId);

    /// Answers a channel that a peer announced. Replaces an earlier answer. Ignored if the link is
    /// gone.
    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer);

    /// Asks a peer for a document, which comes by [`LinkSink::supplied`].
    fn want(&self, link: LinkId, document: Id128);

    /// A channel of a peer announces the hash that ROS 2 has of its type, and no schema, and a
    /// subscriber needs the schema. True if the engine looks for it: it then announces the channel
    /// again, with the schema or without, and messages that come before wait for that, unless the
    /// node has accepted the channel. The default is false.
    fn learn(&self, _link: LinkId, _channel: ChannelId) -> bool {
        false
    }

    /// Sends a peer the document that it asked for by [`LinkSink::wanted`]; `None` if this node
    /// does not have it.
    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>);

    /// A subscriber of this node wants a topic, or the topics that fit a pattern
    /// (`spec/wire-names.md`). Called once for each subscriber. Engines that hear only what they
    /// ask for need it to receive from writers that announce nothing; the default does nothing.
    fn subscribe(&self, _topic: &str) {}

    /// A subscriber for which [`Port::subscribe`] was called has gone.
    fn unsubscribe(&self, _topic: &str) {}

    /// Whether the port may announce the channels of one peer to the others. The node then keeps
    /// the documents of those channels, so that it can supply them after their writer has left.
    fn relays(&self) -> bool {
        false
    }

    /// Messages of this channel, which was just announced, are not to be lost if a peer that relays
    /// them ends and another one takes its place. An engine without relays has nothing to do.
    fn assure(&self, _channel: ChannelId) {}

    /// Waits until every committed message has left this node for the peers present, or `deadline`.
    /// True if they have left. Those of [`Port::assure`] have left when everybody behind a relay
    /// has them.
    fn flush(&self, deadline: Instant) -> bool;

    /// The links to the peers present, with their counts.
    fn links(&self) -> Vec<LinkStats>;

    /// Programs on the medium that are not nodes and read something, with what is known of their
    /// readers: [`Node::foreign_readers`](crate::Node::foreign_readers).
    fn foreign_readers(&self) -> Vec<NodeData> {
        Vec::new()
    }

    /// Ends these links, because what their peers may do has changed. Sends what is queued and says
    /// goodbye, within [`EngineOptions::linger`], and cuts off who stays after that. The peers may
    /// come back. An engine that does not tell peers apart has nothing to do.
    fn disconnect(&self, _links: &[LinkId]) {}

    /// Packets that this port has sent again because a peer lacked them. 0 if the engine leaves
    /// that to the system below, as TCP does.
    fn retransmitted(&self) -> u64 {
        0
    }

    /// Sends the queued messages, within [`EngineOptions::linger`], says goodbye to the peers, and
    /// ends all threads. Later calls do nothing.
    fn close(&self);
}

/// The node as a port sees it. The engine calls it, from its threads or from threads that call the
/// port.
pub trait Sink: Send + Sync {
    /// Reports a new peer. The engine passes everything that comes from the peer to the returned
    /// object.
    fn link(&self, link: &LinkInfo) -> Arc<dyn LinkSink>;

    /// Reports an event. It does not block and does not call the port.
    fn event(&self, event: Event);

    /// A document that this node has announced, such as the schema of a channel: for engines whose
    /// medium has types. `None` if the node does not have it.
    fn document(&self, _id: Id128) -> Option<Arc<[u8]>> {
        None
    }

    /// The schema document of the type with which this node subscribes to a topic, for engines
    /// whose medium has types of services. `None` if nobody here does, or takes every type.
    fn subscribed(&self, _topic: &str) -> Option<Arc<[u8]>> {
        None
    }

    /// What this node's subscribers to a topic request, for engines whose medium tells others of
    /// it.
    fn requested(&self, _topic: &str) -> Vec<Qos> {
        Vec::new()
    }
}

/// The node's receiving side of one link. The engine calls it from one thread at a time, in the
/// order in which the peer sent.
///
/// A call may block, for example while a subscriber's queue is full. The engine reads nothing more
/// from that peer meanwhile, which pushes back on it.
pub trait LinkSink: Send + Sync {
    /// The peer opened a channel. The node calls [`Port::answer`], during this call or later.
    fn announced(&self, channel: ChannelId, start: Start, announcement: &Announcement);

    /// A message came. The payload starts at an address divisible by 8 ([`Aligned`] can ensure
    /// that) and is valid during the call.
    fn message(&self, envelope: &Envelope<'_>, payload: &[u8]);

    /// Like [`LinkSink::message`], for engines that receive into shared buffers: a receiver may
    /// keep the payload by [`Held::keep`] instead of copying it. The engine must not write to the
    /// buffer while anybody holds it.
    fn message_held(&self, envelope: &Envelope<'_>, payload: &[u8], _held: Held<'_>) {
        self.message(envelope, payload);
    }

    /// Messages came that the engine has received together: what [`LinkSink::message`] says holds
    /// for each of them, but their payloads may start at any address. The node takes its locks once
    /// for all, so this is faster for small messages.
    fn messages(&self, messages: &[(Envelope<'_>, &[u8])]) {
        let mut aligned = Aligned::default();
        messages.iter().for_each(|(envelope, payload)| self.message(envelope, aligned.place(payload)));
    }

    /// A message came whose fields the engine cannot read, so that there is no payload to pass on.
    fn undecodable(&self, _channel: ChannelId, _sequence: u64, _reason: &str) {}

    /// The peer dropped `lost` messages of the channel, the last of them at `start`. With 0, the
    /// next message is the first after `start`, and nothing was lost. Called in the order of the
    /// channel, between the messages before and after the gap.
    fn position(&self, channel: ChannelId, start: Start, lost: u64);

    /// The peer's writer and the reader here know each other. Called where [`Properties::matches`],
    /// once the node has accepted the channel; again if the node has declined it meanwhile.
    fn matched(&self, _channel: ChannelId) {}

    /// The writer of a channel is alive, or has shown no sign of life for its lease. Called for
    /// channels whose offer says so (`Offer::lease_told`); they count as alive in the beginning.
    fn lives(&self, _channel: ChannelId, _is_alive: bool) {}

    /// The peer's channel has ended.
    fn retired(&self, channel: ChannelId);

    /// The peer asks for a document. The node calls [`Port::supply`].
    fn wanted(&self, document: Id128);

    /// The peer sent a document, or does not have it. The engine has not checked the hash.
    fn supplied(&self, document: Id128, bytes: Option<&[u8]>);

    /// The peer answered a channel of this node, by the id that [`Port::announce`] returned.
    fn answered(&self, channel: ChannelId, answer: &Answer);

    /// Whether the peer may do something with a topic; else why not, for the peer. The engine asks
    /// before it announces a channel to the peer ([`Action::Subscribe`]): if the answer is no, it
    /// sends [`Announcement::denied`] instead, and no messages. An engine that relays also asks
    /// before it passes on what the peer announced ([`Action::Publish`]).
    fn permits(&self, _: Action, _topic: &str) -> Result<(), String> {
        Ok(())
    }

    /// The peer asked for what it may not do, as by accepting a channel that it was denied.
    fn denied(&self, _: Action, _topic: &str) {}

    /// Whether the peer may send a message of so many bytes now. An engine that relays asks before
    /// it passes the message on. False if the message is to be dropped. May block while the peer is
    /// over its rate; [`LinkSink::message`] does not count such a message again.
    fn admits(&self, _bytes: usize) -> bool {
        true
    }

    /// Takes a message as [`LinkSink::message`] does, but only if everybody who gets it does so
    /// during the call, by a callback: an engine whose thread must not wait may hand such a message
    /// over itself. False, and nothing has happened, otherwise. The default takes none.
    fn message_inline(&self, _envelope: &Envelope<'_>, _payload: &[u8]) -> bool {
        false
    }

    /// The engine must call this when it has passed on everything that has arrived. The node wakes
    /// receivers here instead of at each message.
    fn drained(&self);

    /// The link has ended. No further call follows.
    fn down(&self);
}

/// What a peer does with a topic.
///
/// ```
/// use polywire::engine::Action;
/// assert_eq!([Action::Publish, Action::Subscribe].map(|action| action.to_string()), ["publish", "subscribe to"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Action {
    /// It publishes the topic here.
    Publish,
    /// It gets what is published here, or relayed.
    Subscribe,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Publish => "publish",
            Action::Subscribe => "subscribe to",
        })
    }
}

/// A payload within a shared receive buffer, which receivers may keep.
///
/// ```
/// use polywire::engine::Held;
/// use std::sync::Arc;
/// let buffer = Arc::new(vec![u64::from_ne_bytes(*b"head abc"), 0]);
/// let held = Held::new(&buffer, 5, 3).unwrap();
/// assert_eq!((&*held.keep(), held.buffer_bytes()), (&b"abc"[..], 16));
/// assert!(Held::new(&buffer, 15, 3).is_none());
/// ```
#[derive(Clone, Copy)]
pub struct Held<'a> {
    words: &'a Arc<Vec<u64>>,
    start: usize,
    len: usize,
}

impl<'a> Held<'a> {
    /// The `len` bytes from `start` on; `None` if the buffer is shorter.
    pub fn new(words: &'a Arc<Vec<u64>>, start: usize, len: usize) -> Option<Self> {
        let fits = start.checked_add(len).is_some_and(|end| end <= 8 * words.len());
        fits.then_some(Held { words, start, len })
    }

    /// A reference-counted handle to the payload. It keeps the whole buffer alive.
    pub fn keep(&self) -> SharedBytes {
        SharedBytes::of_words(self.words.clone(), self.start..self.start + self.len)
    }

    /// Size of the whole buffer in bytes.
    pub fn buffer_bytes(&self) -> usize {
        8 * self.words.len()
    }
}

impl fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("start", &self.start).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Identifies a link within this process. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

impl LinkId {
    /// A new id. Engines call it once for each link.
    ///
    /// ```
    /// use polywire::engine::LinkId;
    /// assert_ne!(LinkId::next(), LinkId::next());
    /// ```
    pub fn next() -> LinkId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        LinkId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}", self.0)
    }
}

/// A link and the peer at its other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// The link.
    pub id: LinkId,
    /// How the peer introduced itself. The node's id is zero if the link stands for writers that
    /// are no nodes and send before they are answered.
    pub peer: Hello,
    /// Address of the peer, for people.
    pub address: String,
    /// Who the peer has proven to be.
    pub principal: Principal,
}

/// Counts of a link since it came up, for nodes and tools. Applications see dropped messages in
/// [`Sent::dropped`], in [`Event::Dropped`], and at the receiver in
/// [`Subscriber::lost`](crate::Subscriber::lost).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStats {
    /// The link.
    pub link: LinkInfo,
    /// Messages written, queued or held for the peer, including those dropped later to make room.
    pub sent: u64,
    /// Messages that the overflow policy dropped.
    pub dropped: u64,
    /// Bytes that wait for the peer: queued and held.
    pub queued_bytes: usize,
    /// How often the peer has been silent past its lease: see [`EngineOptions::lease`].
    pub silences: u64,
}

/// What [`Port::commit`] did with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Peers for which it was written, queued or held.
    pub peers: usize,
    /// Those of `peers` for which it is held, because they have not answered the announcement yet.
    pub held: usize,
    /// Subscribers at the other `peers`, by their answers. A relay answers for all nodes behind it.
    pub subscribers: usize,
    /// Peers for which this message was dropped at once.
    pub dropped: usize,
    /// 1 if the message was also put where programs hear it that are no peers and cannot be
    /// counted, as those of ZeroMQ; 0 if nobody is known to listen there.
    pub others: usize,
    /// Peers with a subscriber that refused the publisher's type. The node fills it in; engines
    /// leave it 0. [`PublisherOf::status`](crate::PublisherOf::status) has the reasons.
    pub refused: usize,
}

/// Adds what became of another message.
impl AddAssign for Sent {
    #[inline]
    fn add_assign(&mut self, other: Sent) {
        self.peers += other.peers;
        self.held += other.held;
        self.subscribers += other.subscribers;
        self.dropped += other.dropped;
        self.others += other.others;
        self.refused += other.refused;
    }
}

/// What to do about an error of the system, to follow its text.
fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "; choose another address, or end the program that has this one",
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has this address",
        io::ErrorKind::NotFound => "; its folder must exist",
        _ => "",
    }
}

/// Why a port cannot be opened, or refuses a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The address is malformed.
    #[error("'{engine}/{address}': {reason}, write for example '{engine}/{example}'")]
    Address {
        /// Name of the engine.
        engine: &'static str,
        /// The address as given.
        address: String,
        /// What is wrong.
        reason: String,
        /// A valid address.
        example: &'static str,
    },
    /// A system call failed.
    #[error("{endpoint}: cannot {action}: {cause}{}", remedy(.cause))]
    System {
        /// The endpoint that was to be opened.
        endpoint: String,
        /// What failed: `listen`, `start a thread`, ...
        action: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// The node cannot prove who it is.
    #[error("{endpoint}: {cause}")]
    Identity {
        /// The endpoint that was to be opened.
        endpoint: String,
        /// What is wrong with the files.
        cause: IdentityError,
    },
    /// The node has rules of access, which a medium with many receivers cannot keep: whoever is in
    /// the group gets every message, and nobody has proof of who sent it.
    #[error("{endpoint}: the rules of [access] cannot be kept in a group: use tls, unix or local")]
    Access {
        /// The endpoint that was to be opened.
        endpoint: String,
    },
    /// The channel was not announced on this port, or has retired.
    #[error("channel {0} is not open on this port")]
    Channel(ChannelId),
    /// The message or announcement exceeds a limit of the frame format.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The port is closed.
    #[error("the port is closed")]
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_say_what_to_do() {
        let text = |kind: io::ErrorKind| {
            let endpoint = "tcp/127.0.0.1:7400".into();
            EngineError::System { endpoint, action: "listen", cause: kind.into() }.to_string()
        };
        assert!(
            text(io::ErrorKind::AddrInUse).ends_with("; choose another address, or end the program that has this one")
        );
        assert!(text(io::ErrorKind::PermissionDenied).ends_with("cannot listen: permission denied"));
    }
}
