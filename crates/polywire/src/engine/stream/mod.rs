//! Engines over byte streams: the parts that TCP, Unix-domain sockets and engines of third parties
//! share.
//!
//! An engine calls [`open`] with a [`Transport`] that finds peers at one address and yields
//! [`ByteStream`]s, or [`open_mesh`] with a [`Rendezvous`] at which many nodes find each other. The
//! resulting port does the rest: it writes and reads frames, exchanges hello frames, announces
//! channels, holds messages until the peer has answered, queues or drops messages by the
//! [`Overflow`](super::Overflow) policy, confirms messages, reconnects, relays, and closes.
//!
//! Threads. Their names begin with `pw-` and the engine's name, as in `pw-tcp-port`. A port has one
//! thread that accepts or connects, `port`. The port of a mesh has one for each: `port` accepts and
//! `mesh` connects. Each link has two threads: `read` reads and calls the
//! [`LinkSink`](super::LinkSink), and `write` writes what publishers left in the queue, sends
//! heartbeats and checks whether the peer is alive. While the link keeps up, publishers write to
//! the stream directly. Once a peer has reported that it relays, the port starts the thread `again`
//! when a link was established or an assured channel retires, unless it runs already. This thread
//! resends messages that a relay may have lost, ends retired channels when their messages are
//! confirmed, and ends itself when nothing is left to do.
//!
//! Layers, each of which imports only those after it: `port` (open, accept, reconnect, close),
//! `mesh` (calling the peers), `connection` (hello, frames received), `confirmations` (confirming
//! the messages received on a link), `resend` (resending messages that a relay may have lost),
//! `relay` (announcements, answers, documents), `shared` (the port's state, sending to all links),
//! `assured` (the channels whose messages a relay must not lose), `retained` (the messages of such
//! a channel that are not confirmed), `link`, `outbox` (one link's sending side), `queue`, `pace`
//! (when messages are gathered), `payload`, `peer_liveliness` (whether the peer is alive), `inbox`
//! (one link's receive buffer), `threads` (the port's threads, and how they stop), `transport` (the
//! traits that an engine implements), and `engine/delivery`. Tables without threads are `calls`
//! (peers of a mesh to call), `link_slots` (the one link to each peer of a mesh), `accepted`
//! (connections accepted), `channels` and `fetches`.
//!
//! A transport over pipes within the process:
//!
//! ```
//! use std::{io, sync::{Arc, Condvar, Mutex}, time::Duration};
//! use polywire::{Node, engine::{Engine, EngineError, Local, Port, Properties, Sink}};
//! use polywire::engine::stream::{self, ByteStream, Connection, Descriptors, Listener, Role, Transport};
//!
//! /// `pipes/listen` and `pipes/connect`: all on one bus.
//! struct Pipes;
//!
//! /// Callers that wait to be accepted.
//! #[derive(Default)]
//! struct Bus { callers: Mutex<Vec<Descriptors>>, changed: Condvar }
//! static BUS: Bus = Bus { callers: Mutex::new(Vec::new()), changed: Condvar::new() };
//!
//! impl Engine for Pipes {
//!     fn name(&self) -> &'static str { "pipes" }
//!     fn summary(&self) -> &'static str { "Pipes within the process" }
//!     fn example(&self) -> &'static str { "listen" }
//!     fn properties(&self) -> Properties { stream::PROPERTIES }
//!
//!     fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
//!         let role = if address == "listen" { Role::Listen } else { Role::Connect };
//!         stream::open(Pipes, role, local, sink)
//!     }
//! }
//!
//! fn connection(stream: Descriptors) -> Connection {
//!     Connection { stream: Arc::new(stream), address: "this process".into(), host: None }
//! }
//!
//! impl Transport for Pipes {
//!     fn name(&self) -> &'static str { "pipes" }
//!     fn endpoint(&self) -> String { "pipes/connect".into() }
//!     fn listen(&self) -> io::Result<Arc<dyn Listener>> { Ok(Arc::new(Pipes)) }
//!
//!     fn connect(&self) -> io::Result<Connection> {
//!         let ((our_end, their_writer), (their_end, our_writer)) = (io::pipe()?, io::pipe()?);
//!         BUS.callers.lock().unwrap().push(Descriptors::new(their_end, their_writer)?);
//!         BUS.changed.notify_all();
//!         Ok(connection(Descriptors::new(our_end, our_writer)?))
//!     }
//! }
//!
//! impl Listener for Pipes {
//!     fn endpoint(&self) -> String { "pipes/connect".into() }
//!
//!     fn accept(&self) -> io::Result<Option<Connection>> {
//!         let callers = BUS.callers.lock().unwrap();
//!         let waited = BUS.changed.wait_timeout_while(callers, Duration::from_secs(1), |callers| callers.is_empty());
//!         Ok(waited.unwrap().0.pop().map(connection))
//!     }
//!
//!     fn wake(&self) { BUS.changed.notify_all(); }
//!     fn close(&self) {}
//! }
//!
//! # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
//! # struct Pump { id: u32 }
//! let node = || Node::builder().engine(&Pipes).build();
//! let (here, there) = (node(), node());
//! let pumps = here.subscriber_on::<Pump>("pumps", "auto@pipes/listen")?;
//! let publisher = there.publisher_on::<Pump>("pumps", "cdr@pipes/connect")?;
//! assert_eq!(publisher.wait_for_subscribers(1, Duration::from_secs(10)), 1);
//! publisher.publish(&Pump { id: 7 })?;
//! assert_eq!(pumps.recv().unwrap().value, Pump { id: 7 });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accepted;
mod assured;
mod calls;
mod channels;
mod confirmations;
mod connection;
#[cfg(unix)]
mod descriptors;
mod fetches;
mod inbox;
mod link;
mod link_slots;
mod mesh;
mod outbox;
mod pace;
mod payload;
mod peer_liveliness;
mod port;
mod queue;
mod relay;
mod resend;
mod retained;
mod shared;
mod threads;
mod transport;

use super::Properties;

#[cfg(unix)]
pub use self::descriptors::Descriptors;
pub use self::{
    inbox::Aligned,
    port::{open, open_mesh},
    transport::{ByteStream, Connection, Listener, Peer, Rendezvous, Role, Transport},
};

/// The properties of every engine over byte streams.
pub const PROPERTIES: Properties =
    Properties { reliable: true, ordered: true, multicast: false, largest_payload: None, matches: false };
