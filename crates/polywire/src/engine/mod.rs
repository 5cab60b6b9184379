//! Engines move messages between nodes. A message is an envelope and a payload of bytes; engines
//! never see types, schemas or codecs.
//!
//! [`Engine::open`] opens an address and returns a [`Port`]. The port finds the *peers*, which are
//! other nodes, and has one *link* to each. A node publishes through [`Port::commit`], which sends
//! to every peer that wants the channel. The engine passes the messages of a peer to the
//! [`LinkSink`] that the node's [`Sink`] returned for that link. An engine implements [`Engine`]
//! and [`Port`], and calls the methods of [`Sink`] and [`LinkSink`].
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
//! them are ordered, and all except [`udp::Udp`] are reliable.
//!
//! This example uses a port without a node, like the tests of the engines:
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

mod batch;
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
#[cfg(test)]
mod recorder;
mod rejections;
#[cfg(any(feature = "dds", feature = "zenoh"))]
mod renewing;
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

pub use batch::{Batch, PayloadEnd};
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

/// Returns the built-in engine with this name, or `None` if there is none.
///
/// ```
/// assert!(polywire::engine::find("tcp").is_some_and(|engine| engine.properties().reliable));
/// ```
pub fn find(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.iter().copied().find(|engine| engine.name() == name)
}

/// A transport for messages, such as TCP. An engine is a stateless value in a table: all state
/// belongs to the [`Port`]s that it opens.
pub trait Engine: Send + Sync {
    /// Returns the engine's name in a wire, such as `tcp` in `cdr@tcp/127.0.0.1:7460`: lower-case
    /// letters, digits and hyphens.
    fn name(&self) -> &'static str;

    /// Returns one line for help texts.
    fn summary(&self) -> &'static str;

    /// Returns a valid address, for help texts and error messages.
    fn example(&self) -> &'static str;

    /// Returns what the ports guarantee. From these properties and from
    /// [`EngineOptions::overflow`], the node decides how stateful formats recover from losses,
    /// unless the wire says it. Each message refers to the previous one if the engine is reliable
    /// and ordered and the policy is [`Overflow::Block`]; otherwise each message refers to a key
    /// frame. Gaps in sequence numbers count as losses if the engine is ordered.
    fn properties(&self) -> Properties;

    /// Returns whether access rules can be applied to each peer: one transmission reaches one peer,
    /// or all peers are nodes of this process. By default, true if the engine does not multicast.
    fn tells_peers_apart(&self) -> bool {
        !self.properties().multicast
    }

    /// Returns whether the first process at an address relays messages between the other processes
    /// there, so that `polywire relay` can hold the address. By default, false.
    fn relays(&self) -> bool {
        false
    }

    /// Returns the address with its omitted parts filled in. Two addresses that become equal name
    /// the same place, which a node opens once.
    fn complete(&self, address: &str) -> String {
        address.into()
    }

    /// Opens an address, which [`Engine::complete`] has completed. The node calls this on a thread
    /// of the application, once per node and address.
    ///
    /// Returns as soon as the port can be used: a listening port is bound; a connecting port may
    /// still be connecting, and keeps trying until it is closed. Fails only if a retry cannot help,
    /// for example if the address is malformed or in use. The engine may call `sink` from any
    /// thread from now on, even before this function returns.
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
    /// The node's name in tools, for media that show names.
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
/// the engine is ordered. Messages on several channels of one writer should arrive in this order,
/// too. If the medium may reorder them, as DDS does, the receiving node waits for the earlier
/// messages. Calls for one writer do not overlap; calls for different writers may. On every engine,
/// a channel's announcement reaches a peer before its messages, and its retirement after them.
///
/// **Interest.** Every channel is announced to every peer: to present peers at once, and to later
/// peers when they connect. A peer answers each announcement. Only peers that answered
/// [`Answer::Accept`] receive messages. A reliable engine holds messages for a peer that has not
/// answered yet, within the bounds of the peer's queue.
///
/// **Blocking.** `commit`, `send` and `send_all` may block while a peer's queue is full, for as
/// long as [`Overflow::Block`] allows. `flush`, `disconnect` and `close` may block until their time
/// is up. No other method waits for a peer.
///
/// **Locks.** While the engine calls the sink, the sink may call any method of the port: the node
/// answers, publishes and closes within such calls. Therefore the engine must not hold a lock that
/// any method of the port takes while it calls the sink.
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
/// link whose peer has the zero id: on such a link, the node decides which subscribers read a
/// channel before [`LinkSink::announced`] returns. If another thread is deciding, the call waits at
/// most a second for that thread.
pub trait Port: Send + Sync {
    /// Returns `engine/address` for other nodes, including what the system chose, such as a port
    /// number.
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

    /// Sends messages in order, each as [`Port::send`] does, and adds the results to `sent`. Fails
    /// with the index of the first message that was not sent; the messages before it were sent. An
    /// engine can take its locks once for all messages, and write them together.
    fn send_all(&self, batch: &Batch<'_>, sent: &mut Sent) -> Result<(), (usize, EngineError)> {
        for (index, (envelope, payload)) in batch.iter().enumerate() {
            *sent += self.send(&envelope, payload).map_err(|error| (index, error))?;
        }
        Ok(())
    }

    /// Begins (`true`) or ends (`false`) a period in which the messages for a peer wait for each
    /// other, so that they leave together. Periods may overlap: messages wait until the last one
    /// ends. An engine may send earlier, and should do so if much data waits. The default does
    /// nothing.
    fn gather(&self, _begins: bool) {}

    /// Returns a number that is 0 unless messages wait for others, in a burst or because of
    /// [`Port::gather`]. While messages wait, the number changes with each call of `gather`, and
    /// whenever the engine checks whether the burst is over. As long as a publisher sees the same
    /// number, it need not read the clock for each message. Publishers pass small messages to
    /// [`Port::send_all`] of such a port, and not to [`Port::commit`]. The default, for engines
    /// that gather no messages by themselves, is `None`.
    fn gathering(&self) -> Option<Arc<AtomicU64>> {
        None
    }

    /// Delivers committed messages, in an engine without threads: the engine calls the receivers'
    /// sinks here, not in `commit`. The node calls this after commits, while it holds no lock. The
    /// default, for engines with threads, does nothing.
    fn settle(&self) {}

    /// Returns whether [`Port::settle`] has something to do after the latest commit. If not,
    /// callers skip that call. The default is false, which fits the default [`Port::settle`].
    fn settles(&self) -> bool {
        false
    }

    /// Ends a channel. Messages that were committed before still arrive; [`LinkSink::retired`]
    /// follows them.
    fn retire(&self, channel: ChannelId);

    /// Answers a channel that a peer announced. Replaces an earlier answer. Ignored if the link is
    /// gone.
    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer);

    /// Asks a peer for a document, which arrives by [`LinkSink::supplied`].
    fn want(&self, link: LinkId, document: Id128);

    /// Asks the engine to find the schema of a peer's channel for a subscriber that needs it. The
    /// channel announces the ROS 2 hash of its type, but no schema. Returns true if the engine
    /// looks for the schema. It then announces the channel again, with the schema or without it.
    /// Messages that arrive earlier wait for that, unless the node has accepted the channel. The
    /// default is false.
    fn learn(&self, _link: LinkId, _channel: ChannelId) -> bool {
        false
    }

    /// Sends a peer the document that it asked for by [`LinkSink::wanted`]; `None` if this node
    /// does not have it.
    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>);

    /// Notes that a subscriber of this node wants a topic, or the topics that match a pattern
    /// (`spec/wire-names.md`). Called once for each subscriber. An engine that receives only what
    /// it asks for needs this call to receive from writers that announce nothing. The default does
    /// nothing.
    fn subscribe(&self, _topic: &str) {}

    /// Notes that a subscriber for which [`Port::subscribe`] was called has ended.
    fn unsubscribe(&self, _topic: &str) {}

    /// Returns whether the port may announce the channels of one peer to other peers. The node then
    /// keeps the documents of those channels, so that it can supply them after their writer has
    /// left.
    fn relays(&self) -> bool {
        false
    }

    /// Protects the messages of a channel that was just announced: they must not be lost if the
    /// peer that relays them ends and another relay takes its place. An engine without relays has
    /// nothing to do.
    fn assure(&self, _channel: ChannelId) {}

    /// Waits until every committed message has left this node for the peers present, or until
    /// `deadline`. Returns true if all have left. A message of a channel of [`Port::assure`] has
    /// left when every receiver behind a relay has it.
    fn flush(&self, deadline: Instant) -> bool;

    /// Returns the links to the peers present, with their counts.
    fn links(&self) -> Vec<LinkStats>;

    /// Returns the programs on the medium that are not nodes and have readers, with what is known
    /// of these readers. See [`Node::foreign_readers`](crate::Node::foreign_readers).
    fn foreign_readers(&self) -> Vec<NodeData> {
        Vec::new()
    }

    /// Ends these links, because the access rights of their peers have changed. Sends the queued
    /// messages and says goodbye, within [`EngineOptions::linger`], and then cuts off the peers
    /// that are still connected. The peers may connect again. An engine that does not tell peers
    /// apart has nothing to do.
    fn disconnect(&self, _links: &[LinkId]) {}

    /// Returns the number of packets that this port has sent again because a peer lacked them. 0 if
    /// the engine leaves retransmissions to the system, as with TCP.
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
    /// Reports a new peer. The engine passes everything that arrives from the peer to the returned
    /// object.
    fn link(&self, link: &LinkInfo) -> Arc<dyn LinkSink>;

    /// Reports an event. This call does not block and does not call the port.
    fn event(&self, event: Event);

    /// Returns a document that this node has announced, such as the schema of a channel, or `None`
    /// if the node does not have it. For engines whose medium has types.
    fn document(&self, _id: Id128) -> Option<Arc<[u8]>> {
        None
    }

    /// Returns the schema document of the type with which this node subscribes to a topic. `None`
    /// if no subscriber of this node has a type for the topic. For engines whose medium has service
    /// types.
    fn subscribed(&self, _topic: &str) -> Option<Arc<[u8]>> {
        None
    }

    /// Returns the QoS terms that this node's subscribers to a topic request. For engines whose
    /// medium informs others of them.
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
    /// Reports that the peer opened a channel. The node calls [`Port::answer`], during this call or
    /// later.
    fn announced(&self, channel: ChannelId, start: Start, announcement: &Announcement);

    /// Passes on a message. The payload starts at an address divisible by 8 ([`Aligned`] can ensure
    /// that) and is valid during the call.
    fn message(&self, envelope: &Envelope<'_>, payload: &[u8]);

    /// Passes on a message as [`LinkSink::message`] does, for engines that receive into shared
    /// buffers. A receiver may keep the payload by [`SharedPayload::keep`] instead of copying it.
    /// The engine must not write to the buffer while a receiver holds it.
    fn message_held(&self, envelope: &Envelope<'_>, payload: &[u8], _shared: SharedPayload<'_>) {
        self.message(envelope, payload);
    }

    /// Passes on messages that the engine received together. The rules of [`LinkSink::message`]
    /// hold for each of them, but their payloads may start at any address. The node takes its locks
    /// once for all of them, so this is faster for small messages.
    fn messages(&self, messages: &[(Envelope<'_>, &[u8])]) {
        let mut aligned = Aligned::default();
        messages.iter().for_each(|(envelope, payload)| self.message(envelope, aligned.place(payload)));
    }

    /// Reports a message whose fields the engine cannot read, so that there is no payload to pass
    /// on.
    fn undecodable(&self, _channel: ChannelId, _sequence: u64, _reason: &str) {}

    /// Reports that the peer dropped `lost` messages of the channel, the last of them at `start`.
    /// If `lost` is 0, nothing was lost, and the next message is the first one after `start`.
    /// Called in the order of the channel, between the messages before and after the gap.
    fn position(&self, channel: ChannelId, start: Start, lost: u64);

    /// Reports that the peer's writer and this node's reader know each other. Called if
    /// [`Properties::matches`] is set, after the node has accepted the channel. Called again if the
    /// node has declined the channel meanwhile.
    fn matched(&self, _channel: ChannelId) {}

    /// Reports whether the writer of a channel is alive. It is not if it has shown no sign of life
    /// for its lease. Called for channels with `Offer::lease_told`, whose writers count as alive at
    /// first.
    fn liveliness_changed(&self, _channel: ChannelId, _is_alive: bool) {}

    /// Reports that the peer's channel has ended.
    fn retired(&self, channel: ChannelId);

    /// Reports that the peer asks for a document. The node calls [`Port::supply`].
    fn wanted(&self, document: Id128);

    /// Passes on a document that the peer sent, or `None` if the peer does not have it. The engine
    /// has not checked the hash.
    fn supplied(&self, document: Id128, bytes: Option<&[u8]>);

    /// Passes on the peer's answer to a channel of this node, which has the id that
    /// [`Port::announce`] returned.
    fn answered(&self, channel: ChannelId, answer: &Answer);

    /// Checks whether the peer may do something with a topic. Fails with the reason, for the peer.
    /// The engine calls this before it announces a channel to the peer ([`Action::Subscribe`]). On
    /// failure, it sends [`Announcement::denied`] instead, and no messages. An engine that relays
    /// also calls this before it relays a channel that the peer announced ([`Action::Publish`]).
    fn permits(&self, _: Action, _topic: &str) -> Result<(), String> {
        Ok(())
    }

    /// Reports that the peer tried something that it may not do, such as accepting a denied
    /// channel.
    fn denied(&self, _: Action, _topic: &str) {}

    /// Returns whether the peer may send a message of this many bytes now, or false if the message
    /// is to be dropped. An engine that relays calls this before it relays the message. The call
    /// may block while the peer exceeds its rate. [`LinkSink::message`] does not count such a
    /// message again.
    fn admits(&self, _bytes: usize) -> bool {
        true
    }

    /// Takes a message as [`LinkSink::message`] does, but only if all its subscribers receive it by
    /// a callback during the call: a receiving thread of the medium may deliver such a message
    /// itself. Otherwise returns false and does nothing. The default takes no message.
    fn message_inline(&self, _envelope: &Envelope<'_>, _payload: &[u8]) -> bool {
        false
    }

    /// Reports that the engine has passed on everything that has arrived. The engine must call
    /// this. The node wakes receivers here instead of at each message.
    fn drained(&self);

    /// Reports that the link has ended. No further call follows.
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
    /// The peer publishes the topic to this node.
    Publish,
    /// The peer receives the messages that this node publishes on the topic, or relays.
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
/// use polywire::engine::SharedPayload;
/// use std::sync::Arc;
/// let buffer = Arc::new(vec![u64::from_ne_bytes(*b"head abc"), 0]);
/// let payload = SharedPayload::new(&buffer, 5, 3).unwrap();
/// assert_eq!((&*payload.keep(), payload.buffer_bytes()), (&b"abc"[..], 16));
/// assert!(SharedPayload::new(&buffer, 15, 3).is_none());
/// ```
#[derive(Clone, Copy)]
pub struct SharedPayload<'a> {
    words: &'a Arc<Vec<u64>>,
    start: usize,
    len: usize,
}

impl<'a> SharedPayload<'a> {
    /// Returns the `len` bytes from `start` on, or `None` if the buffer is shorter.
    pub fn new(words: &'a Arc<Vec<u64>>, start: usize, len: usize) -> Option<Self> {
        let fits = start.checked_add(len).is_some_and(|end| end <= 8 * words.len());
        fits.then_some(SharedPayload { words, start, len })
    }

    /// Returns a reference-counted handle to the payload. The handle keeps the whole buffer alive.
    pub fn keep(&self) -> SharedBytes {
        SharedBytes::of_words(self.words.clone(), self.start..self.start + self.len)
    }

    /// Returns the size of the whole buffer in bytes.
    pub fn buffer_bytes(&self) -> usize {
        8 * self.words.len()
    }
}

impl fmt::Debug for SharedPayload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPayload").field("start", &self.start).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Identifies a link within this process. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

impl LinkId {
    /// Returns a new id. Engines call this once for each link.
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
    /// are not nodes and send without waiting for an answer.
    pub peer: Hello,
    /// Address of the peer, for people.
    pub address: String,
    /// The identity that the peer has proven.
    pub principal: Principal,
}

/// Counts of a link since it was established, for nodes and tools. Applications see dropped
/// messages in [`Sent::dropped`], in [`Event::Dropped`], and at the receiver in
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
    /// The number of times that the peer has been silent past its lease: see
    /// [`EngineOptions::lease`].
    pub silences: u64,
}

/// What [`Port::commit`] did with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Peers for which the message was written, queued or held.
    pub peers: usize,
    /// The number of these peers that have not answered the announcement yet; the message is held
    /// for them.
    pub held: usize,
    /// Subscribers at the rest of `peers`, according to their answers. A relay answers for all
    /// nodes behind it.
    pub subscribers: usize,
    /// Peers for which this message was dropped at once.
    pub dropped: usize,
    /// 1 if the message was also published to programs that are not peers and cannot be counted, as
    /// with ZeroMQ; 0 if no such program is known to listen.
    pub others: usize,
    /// Peers with a subscriber that refused the publisher's type. The node fills it in; engines
    /// leave it 0. [`PublisherOf::status`](crate::PublisherOf::status) has the reasons.
    pub refused: usize,
}

/// Adds the counts of another message.
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

/// Returns advice on an error of the system, to be appended to the error's text.
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
    /// The node has access rules, which a multicast medium cannot enforce: every member of the
    /// group receives every message, and no member has proof of the sender.
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
