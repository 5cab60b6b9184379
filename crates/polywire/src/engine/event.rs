//! What a port reports to its node, and why links end.

use std::{net::IpAddr, time::Duration};

use polywire_core::frame::FrameError;

use super::LinkInfo;

/// What a port reports to its node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The port listens.
    Listening {
        /// The value of [`Port::endpoint`](super::Port::endpoint).
        endpoint: String,
    },
    /// The port listens, other machines can reach it, and callers do not prove who they are.
    Exposed {
        /// The value of [`Port::endpoint`](super::Port::endpoint).
        endpoint: String,
    },
    /// The port was closed and opened anew, because this machine has lost an address that the
    /// engine's library used, and has another one. All links have ended and come up again; what was
    /// published meanwhile is lost.
    Renewed {
        /// The value of [`Port::endpoint`](super::Port::endpoint).
        endpoint: String,
        /// The addresses of this machine that the library uses now.
        addresses: Vec<IpAddr>,
    },
    /// A link is up.
    Connected(LinkInfo),
    /// A link has ended.
    Disconnected {
        /// The link.
        link: LinkInfo,
        /// Why.
        reason: Disconnect,
    },
    /// Connecting failed. The port tries again. Successive failures for the same reason are
    /// reported once.
    Unreachable {
        /// The endpoint that was opened.
        endpoint: String,
        /// The system's error message.
        reason: String,
    },
    /// A connection was closed before it became a link. Incoming connections are counted by the
    /// peer's host, outgoing ones by the peer's address. The 1st, 2nd, 4th, 8th, ... rejection for
    /// the same reason is reported; the count starts again when the host or address has a link. If
    /// more hosts and reasons must be counted than the port may have peers, the rest is counted
    /// together.
    Rejected {
        /// Address of the other end.
        address: String,
        /// Why.
        reason: Disconnect,
        /// How often so far.
        total: u64,
    },
    /// Messages to a peer were dropped. Reported at the first drop, then at most once a second, and
    /// when the peer has caught up.
    Dropped {
        /// The link to the slow peer.
        link: LinkInfo,
        /// Topic of the last message dropped.
        topic: String,
        /// Messages dropped since the last such event of the link.
        count: u64,
    },
    /// A link broke before the peer had confirmed all messages sent to it, or the port closed and
    /// the peer had not read them within [`EngineOptions::linger`](super::EngineOptions::linger),
    /// or messages that waited for another relay were given up. The peer may not have received
    /// them.
    Unconfirmed {
        /// The link.
        link: LinkInfo,
        /// Messages that were not confirmed.
        count: u64,
    },
    /// Nothing has arrived from a peer for the lease that it promised: see
    /// [`EngineOptions::lease`](super::EngineOptions::lease). The peer may be suspended, or cut
    /// off. Its link stays up. Until something arrives from the peer again, publishers do not wait
    /// for room in its queue.
    Silent {
        /// The link.
        link: LinkInfo,
        /// The peer's lease.
        lease: Duration,
    },
    /// Something has arrived from a silent peer again.
    Heard(LinkInfo),
    /// Information from a discovery service or from a foreign application was ignored, because it
    /// is malformed or there is too much of it. Reported for the 1st, 2nd, 4th, 8th, ... time.
    Ignored {
        /// The name of the peer in the discovery service, or the topic of the foreign application.
        name: String,
        /// Why.
        reason: String,
        /// The number of times on this port so far.
        total: u64,
    },
    /// A channel could not be announced to a link, or is not relayed. Its messages do not reach
    /// that peer or, if it is not relayed, the other peers. Reported for the 1st, 2nd, 4th, 8th,
    /// ... such channel of the port.
    Withheld {
        /// The link on which the channel was announced, or the link to which it should have been
        /// announced.
        link: LinkInfo,
        /// The channel's topic.
        topic: String,
        /// Why.
        reason: String,
        /// Such channels of this port so far.
        total: u64,
    },
}

/// Why a link ended.
///
/// ```
/// use polywire::{engine::{Disconnect, EngineError, Event}, Node, NodeError, NodeEvent};
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
    /// The peer closed with a goodbye.
    #[error("closed by the peer")]
    Bye,
    /// This port closed.
    #[error("closed here")]
    Closed,
    /// The connection broke. Contains the system's error message.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The peer could not prove its identity, or refused this node's proof. The text says what to
    /// do.
    #[error("{0}")]
    Untrusted(String),
    /// The peer did not introduce itself within
    /// [`EngineOptions::hello_timeout`](super::EngineOptions::hello_timeout).
    #[error("no hello within the time allowed")]
    Silent,
    /// The peer sent bytes that are not a valid frame, or exceed a limit.
    #[error("protocol error: {0}")]
    Protocol(FrameError),
    /// Both ends of the connection are the same socket.
    #[error("connected to itself")]
    Itself,
    /// Another connection between the same two nodes is their link.
    #[error("replaced by another connection between the same nodes")]
    Replaced,
    /// The port has [`EngineOptions::peers`](super::EngineOptions::peers) peers, and none of them
    /// could be displaced.
    #[error("more than {0} peers")]
    TooMany(usize),
    /// The port was full, and this peer made room for another: it had neither announced nor
    /// accepted a channel, or its host had the most connections.
    #[error("made room for another peer")]
    Displaced,
    /// The peer requested documents and answers, but did not read them.
    #[error("the peer does not read the replies to its requests")]
    Unread,
}

// Not `#[from]`, which would also make the cause a source: the message already includes the cause.
impl From<FrameError> for Disconnect {
    fn from(cause: FrameError) -> Disconnect {
        Disconnect::Protocol(cause)
    }
}
