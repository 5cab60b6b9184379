//! Engines: what moves (envelope, payload) between nodes. They never see types.
//!
//! An [`Engine`] opens an address and gives a [`Port`]. A port sends what the node publishes to
//! every peer that wants it, and hands what peers publish to the [`LinkSink`] that the node's
//! [`Sink`] made for that peer. [`ENGINES`] lists those built in.
//!
//! A port without a node, as engines are tested:
//!
//! ```
//! use std::{sync::{Arc, Mutex, mpsc}, time::{Duration, Instant}};
//! use polywire::engine::{
//!     self, EngineOptions, Event, LinkId, LinkInfo, LinkSink, LinkStats, Local, Port, Properties, Sent, Sink,
//! };
//! use polywire_core::{
//!     envelope::{Announcement, ChannelId, Envelope, Id128},
//!     frame::{Answer, Hello, Start},
//! };
//!
//! /// A node that accepts every channel and hands payloads over.
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
//!     let local = Local { hello, options: EngineOptions::default() };
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

mod delivery;
pub mod inproc;
pub(crate) mod loopback;
mod options;
mod pipe;
mod sockets;
pub mod stream;
pub mod tcp;
pub mod unix;

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, FrameError, Hello, Start},
    layout::SharedBytes,
};

pub use options::{EngineOptions, Overflow};
pub use stream::Aligned;

/// The engines built in, in the order in which tools list them.
pub static ENGINES: &[&dyn Engine] = &[
    &inproc::Inproc,
    &tcp::Tcp,
    &tcp::TcpListen,
    &tcp::TcpConnect,
    &unix::Unix,
    &unix::UnixListen,
    &unix::UnixConnect,
];

/// The engine of this name among those built in.
///
/// ```
/// assert!(polywire::engine::find("tcp").is_some_and(|engine| engine.properties().reliable));
/// ```
pub fn find(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.iter().copied().find(|engine| engine.name() == name)
}

/// A way to move messages. Stateless: everything that lives belongs to the [`Port`]s it opens.
pub trait Engine: Send + Sync {
    /// The name in a wire, in front of the slash: lower case letters, digits and hyphens.
    fn name(&self) -> &'static str;

    /// One line for people.
    fn summary(&self) -> &'static str;

    /// An address as people would write it, for help texts.
    fn example(&self) -> &'static str;

    /// What its ports promise.
    fn properties(&self) -> Properties;

    /// Opens an address.
    ///
    /// Returns as soon as the port can be used: a listening one is bound, a connecting one may
    /// still be trying, and goes on trying until it is closed. Fails where trying again cannot
    /// help: a malformed address, an address in use. `sink` may be called from then on, also before
    /// this returns.
    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError>;
}

/// What ports of an engine promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// What is sent arrives, unless the link breaks or the overflow policy drops it, which is told.
    pub reliable: bool,
    /// Messages of a writer arrive in the order in which it published them.
    pub ordered: bool,
    /// One message sent reaches many receivers.
    pub multicast: bool,
    /// Bytes of the largest payload, where the medium has a limit of its own.
    pub largest_payload: Option<usize>,
}

/// Who opens a port, and how it should behave.
#[derive(Clone, Debug)]
pub struct Local {
    /// The node as it introduces itself.
    pub hello: Hello,
    /// Queues, buffers, time-outs and limits.
    pub options: EngineOptions,
}

/// An opened address.
///
/// # For implementers
///
/// *Order.* Messages of one channel, and of channels of one writer, reach a peer in the order of
/// their [`Port::commit`]; callers see to it that commits of one writer do not overlap. A channel's
/// announcement comes before its messages.
///
/// *Interest.* Every channel is announced to every peer, at once or when it comes. Messages go to
/// peers that answered [`Answer::Accept`]. A reliable engine holds messages for a peer that has not
/// answered yet, within the bounds of its queue.
///
/// *Counting.* An answer says for how many subscribers it speaks; [`Sent::subscribers`] adds up
/// those of the peers that a message goes to. What is dropped is counted, told to the peer by a
/// position, and told here by [`Event::Dropped`]; what was on a link that broke, by
/// [`Event::Unconfirmed`] where the engine knows it.
///
/// *Blocking.* `commit` may block as long as [`Overflow::Block`] allows, and `flush` and `close`
/// until their time is up. Nothing else blocks. No method calls the sink of the same port on the
/// same thread while it holds a lock that another method needs: sinks publish, answer and close
/// from inside their calls.
///
/// *Ownership.* The engine owns its threads, names them, and has joined them when `close` returns,
/// unless `close` was called on one of them; dropping the last handle closes.
///
/// *Errors.* What concerns one peer is an [`Event`], never an error of `commit`; errors are for
/// what the caller did wrong.
///
/// An engine whose messages carry the envelope's fields natively maps them instead of writing
/// frames, and gives a foreign writer, who announces nothing, a channel of its own with an empty
/// type hash, schema and codec: the node then takes what the topic's configuration assumes.
pub trait Port: Send + Sync {
    /// Engine and address such that another node can use them, with the port that the system chose
    /// where the address left it open.
    fn endpoint(&self) -> String;

    /// Opens a channel and announces it to all peers, present and future. The id is this port's;
    /// peers may know it under another.
    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError>;

    /// Lends a buffer to encode a payload into. `size` is a guess.
    fn reserve(&self, size: usize) -> Loan;

    /// Sends the payload in `loan`. `envelope.channel` is one that [`Port::announce`] gave.
    fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError>;

    /// Sends a payload that lies elsewhere.
    fn send(&self, envelope: &Envelope<'_>, payload: &[u8]) -> Result<Sent, EngineError> {
        let mut loan = self.reserve(payload.len());
        loan.buffer().extend_from_slice(payload);
        self.commit(envelope, loan)
    }

    /// Called after commits, once the caller holds no lock. Engines that deliver on the publishing
    /// thread do it here, not in `commit`.
    fn settle(&self) {}

    /// Ends a channel. What was sent on it before still arrives.
    fn retire(&self, channel: ChannelId);

    /// Tells a peer whether its channel is wanted. Replaces an earlier answer.
    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer);

    /// Asks a peer for a document; [`LinkSink::supplied`] brings it.
    fn want(&self, link: LinkId, document: Id128);

    /// Gives a peer the document that it asked for in [`LinkSink::wanted`], or says that it is not
    /// to be had.
    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>);

    /// Whether it may pass on between its peers what they announce. The node then keeps the
    /// documents of their channels, so that one peer can have those of another that has left.
    fn relays(&self) -> bool {
        false
    }

    /// Waits until everything sent has left for the peers present, or `deadline`. True when it has.
    fn flush(&self, deadline: Instant) -> bool;

    /// The peers present and what went to them.
    fn links(&self) -> Vec<LinkStats>;

    /// Says goodbye to the peers and ends all threads. What was sent before is still delivered
    /// within [`EngineOptions::linger`].
    fn close(&self);
}

/// The node's side of a port.
pub trait Sink: Send + Sync {
    /// A peer is there. The engine calls the object returned for everything that comes from it.
    fn link(&self, link: &LinkInfo) -> Arc<dyn LinkSink>;

    /// Something happened. Must not block or call back into the port.
    fn event(&self, event: Event);
}

/// The node's side of one peer. Calls come from one thread at a time, in the peer's order.
///
/// A call may block, and so push back on the peer: the engine reads nothing more from it meanwhile.
pub trait LinkSink: Send + Sync {
    /// The peer opened a channel. An answer is due, now or later: [`Port::answer`].
    fn announced(&self, channel: ChannelId, start: Start, announcement: &Announcement);

    /// A message. The payload starts at an address divisible by 8 and is lent for the time of the
    /// call.
    fn message(&self, envelope: &Envelope<'_>, payload: &[u8]);

    /// As [`LinkSink::message`], from a buffer that the engine does not write to while anybody
    /// holds it: so receivers can keep parts of the payload without a copy. Engines that have
    /// such buffers call this instead.
    fn message_held(&self, envelope: &Envelope<'_>, payload: &[u8], _held: Held<'_>) {
        self.message(envelope, payload);
    }

    /// The peer dropped `lost` messages of the channel before `start`; or, with 0, begins after
    /// `start`.
    fn position(&self, channel: ChannelId, start: Start, lost: u64);

    /// The peer's channel has ended.
    fn retired(&self, channel: ChannelId);

    /// The peer wants a document; answer with [`Port::supply`].
    fn wanted(&self, document: Id128);

    /// The peer sent a document, or has none. The hash is not checked yet.
    fn supplied(&self, document: Id128, bytes: Option<&[u8]>);

    /// The peer's word on a channel of ours; the id is the one [`Port::announce`] gave.
    fn answered(&self, channel: ChannelId, answer: &Answer);

    /// Everything that had come so far was handed over. A sink that gathers wake-ups gives them
    /// now.
    fn drained(&self);

    /// The peer is gone; nothing follows.
    fn down(&self);
}

/// Where a payload lies, in a buffer that may be held.
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
    /// The `len` bytes from `start` on of a buffer; none if it has not so many.
    pub fn new(words: &'a Arc<Vec<u64>>, start: usize, len: usize) -> Option<Self> {
        let fits = start.checked_add(len).is_some_and(|end| end <= 8 * words.len());
        fits.then_some(Held { words, start, len })
    }

    /// The payload, which keeps the buffer from now on.
    pub fn keep(&self) -> SharedBytes {
        SharedBytes::of_words(self.words.clone(), self.start..self.start + self.len)
    }

    /// Bytes that are kept with the payload.
    pub fn buffer_bytes(&self) -> usize {
        8 * self.words.len()
    }
}

impl fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("start", &self.start).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Names a link of this process; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

impl LinkId {
    /// A new one: engines call it once a link.
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

/// A link and who is at its other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// The link.
    pub id: LinkId,
    /// The peer as it introduced itself.
    pub peer: Hello,
    /// Where it is, for people.
    pub address: String,
}

/// What went over a link so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStats {
    /// The link.
    pub link: LinkInfo,
    /// Messages handed to the link, queued ones included.
    pub sent: u64,
    /// Messages that the overflow policy dropped.
    pub dropped: u64,
    /// Bytes in its queue.
    pub queued_bytes: usize,
}

/// What [`Port::commit`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Peers it was sent to, queued for or is held for.
    pub peers: usize,
    /// Those of them for which it is held, as they have not answered yet whether they want it.
    pub held: usize,
    /// Subscribers that it reaches through the others, by their answers. A relay counts all that is
    /// behind it.
    pub subscribers: usize,
    /// Peers for which it was dropped.
    pub dropped: usize,
    /// Peers with a subscriber that has refused the publisher's messages; the node fills it in.
    /// [`PublisherOf::status`](crate::PublisherOf::status) has the reasons.
    pub refused: usize,
}

/// What a port tells.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Peers can connect here.
    Listening {
        /// As [`Port::endpoint`].
        endpoint: String,
    },
    /// A peer came.
    Connected(LinkInfo),
    /// A peer went.
    Disconnected {
        /// The link that was.
        link: LinkInfo,
        /// Why.
        reason: Disconnect,
    },
    /// Nobody answered; another try follows.
    Unreachable {
        /// Where.
        endpoint: String,
        /// What the system said.
        reason: String,
    },
    /// Someone who is no peer, or none for us, was turned away.
    Rejected {
        /// Where it called from.
        address: String,
        /// Why.
        reason: Disconnect,
    },
    /// Messages to a peer were dropped: once when it begins, with 1, and once when the peer has
    /// caught up, with the rest.
    Dropped {
        /// The slow peer.
        link: LinkInfo,
        /// Topic of the last one dropped.
        topic: String,
        /// How many since the last such event.
        count: u64,
    },
    /// A link broke, and the peer had not confirmed so many messages that were sent to it: it may
    /// not have got them.
    Unconfirmed {
        /// The link that was.
        link: LinkInfo,
        /// How many.
        count: u64,
    },
    /// A channel is not passed on. Given at the first and then ever more rarely.
    Withheld {
        /// The link that it comes from, or the one that it should go to.
        link: LinkInfo,
        /// The channel's topic.
        topic: String,
        /// Why.
        reason: String,
        /// Channels of this port that were not passed on so far.
        total: u64,
    },
}

/// Why a link ended.
///
/// ```
/// use polywire::{engine::{Disconnect, EngineError, Event}, Node, NodeError, events::NodeEvent};
/// # use std::{io::Write, net::TcpStream, time::Duration};
///
/// let node = Node::new();
/// let events = node.events();
/// let endpoint = node.open("tcp-listen/127.0.0.1:0")?;
/// let address = endpoint.split_once('/').unwrap().1;
/// TcpStream::connect(address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
/// loop {
///     match events.recv_timeout(Duration::from_secs(10)).expect("the caller is turned away") {
///         NodeEvent::Engine { event: Event::Rejected { reason, .. }, .. } => {
///             assert!(matches!(reason, Disconnect::Protocol(_)));
///             break;
///         }
///         _ => {}
///     }
/// }
///
/// let error = node.open("tcp/nowhere").unwrap_err();
/// assert!(matches!(error, NodeError::Engine(EngineError::Address { engine: "tcp", .. })), "{error}");
/// # Ok::<(), NodeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Disconnect {
    /// The peer said goodbye.
    #[error("closed by the peer")]
    Bye,
    /// We closed.
    #[error("closed here")]
    Closed,
    /// The connection broke.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The peer did not introduce itself in time.
    #[error("no hello within the time allowed")]
    Silent,
    /// The peer sent what is no frame, or more than it may.
    #[error("protocol error: {0}")]
    Protocol(FrameError),
    /// The connection leads back to where it came from.
    #[error("connected to itself")]
    Itself,
    /// As many peers as the port takes are there.
    #[error("more than {0} peers")]
    TooMany(usize),
    /// The port takes no more peers, and this one made room for another: it had neither announced
    /// nor accepted a channel, or too many came from its address.
    #[error("made room for another peer")]
    Displaced,
    /// The peer asks for more than it reads.
    #[error("the peer does not read the answers to what it asks")]
    Unread,
}

// Not `#[from]`: the message has the cause inside, so it is no source as well.
impl From<FrameError> for Disconnect {
    fn from(cause: FrameError) -> Disconnect {
        Disconnect::Protocol(cause)
    }
}

/// Why a port cannot be opened or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The address is not one of the engine's: the message gives an example.
    #[error("'{engine}/{address}': {reason}, write for example '{engine}/{example}'")]
    Address {
        /// The engine.
        engine: &'static str,
        /// The address, as given.
        address: String,
        /// What is wrong.
        reason: String,
        /// An address that works.
        example: &'static str,
    },
    /// The operating system refused a socket, a file or a thread.
    #[error("{endpoint}: cannot {action}: {cause}")]
    System {
        /// Engine and address.
        endpoint: String,
        /// `listen`, `start a thread`, ...
        action: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// This port never opened the channel, or has retired it.
    #[error("channel {0} is not open on this port")]
    Channel(ChannelId),
    /// The message or announcement does not fit the format.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The port is closed.
    #[error("the port is closed")]
    Closed,
}

/// A buffer lent by a port. Append the payload to [`Loan::buffer`]; what stands before it belongs
/// to the engine.
///
/// ```
/// use polywire::engine::Loan;
/// let mut loan = Loan::new(Vec::new(), 8);
/// loan.buffer().extend_from_slice(b"payload");
/// assert_eq!(loan.with_header(b"head "), Some(&b"head payload"[..]));
/// assert_eq!(loan.payload(), b"payload");
/// assert_eq!(loan.with_header(b"longer than the room"), None);
/// assert_eq!(loan.into_inner().len(), 8 + 7);
/// ```
pub struct Loan {
    bytes: Vec<u8>,
    start: usize,
}

impl Loan {
    /// Takes a buffer in which the engine has `headroom` bytes in front of the payload. The
    /// buffer's old content is cleared.
    pub fn new(mut bytes: Vec<u8>, headroom: usize) -> Self {
        bytes.clear();
        bytes.resize(headroom, 0);
        Loan { bytes, start: headroom }
    }

    /// Append here; take nothing away.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The payload so far.
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// The payload with as much as possible of `header` right in front of it; none where the
    /// headroom is too small.
    pub fn with_header(&mut self, header: &[u8]) -> Option<&[u8]> {
        let at = self.start.checked_sub(header.len())?;
        self.bytes.get_mut(at..self.start)?.copy_from_slice(header);
        self.bytes.get(at..)
    }

    /// Gives the memory back.
    pub fn into_inner(self) -> Vec<u8> {
        self.bytes
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("payload", &self.payload().len()).finish()
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}", self.0)
    }
}
