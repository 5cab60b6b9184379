//! The traits that an engine over byte streams implements: [`Transport`] or [`Rendezvous`],
//! [`Listener`] and [`ByteStream`].

use std::{
    fmt, io,
    net::{IpAddr, Shutdown},
    sync::Arc,
    time::Duration,
};

use polywire_core::frame::Hello;

use crate::engine::Principal;

/// One address of an engine: how its port finds the peer that listens there, or the peers that
/// connect to it. [`open`](super::open) takes it and makes the port.
pub trait Transport: Send + Sync + 'static {
    /// Returns the name of the engine, as in a wire. Threads have it in their names.
    fn name(&self) -> &'static str;

    /// Returns the address as `engine/address`. A listening port reports [`Listener::endpoint`]
    /// instead.
    fn endpoint(&self) -> String;

    /// Starts to listen. Called by [`open`](super::open), and with [`Role::Either`] by the port's
    /// thread whenever it has lost its peer. Must not block. Fails if another process listens at
    /// the address; if the medium does not detect that, use a lock on a file, as `examples/fifo`
    /// does.
    fn listen(&self) -> io::Result<Arc<dyn Listener>>;

    /// Connects to the peer that listens at the address. Called by the port's thread, which calls
    /// again after a pause if this fails. May block for
    /// [`EngineOptions::connect_timeout`](crate::engine::EngineOptions::connect_timeout).
    fn connect(&self) -> io::Result<Connection>;
}

/// A place where many nodes meet: how the port of a mesh finds its peers.
/// [`open_mesh`](super::open_mesh) takes it and makes the port, which listens and keeps a link to
/// every peer that [`Rendezvous::peers`] names.
///
/// Which of two nodes connects does not matter, and both may: their ports keep one connection. It
/// is enough if one of the two finds the other.
pub trait Rendezvous: Send + Sync + 'static {
    /// Returns the name of the engine, as in a wire. Threads have it in their names.
    fn name(&self) -> &'static str;

    /// Returns the place as `engine/address`.
    fn endpoint(&self) -> String;

    /// Starts to listen and lets others find this node. Called once, by
    /// [`open_mesh`](super::open_mesh). [`Listener::close`] ends both.
    fn listen(&self) -> io::Result<Arc<dyn Listener>>;

    /// Returns the peers that are present now. This node may be among them. Must not block for
    /// long. The port reports an error, and keeps the links that it has.
    fn peers(&self) -> io::Result<Vec<Peer>>;

    /// Connects to a peer. The port calls again after a pause if this fails. `NotFound` and
    /// `ConnectionRefused` mean that the peer has just gone, and are not reported. May block for
    /// [`EngineOptions::connect_timeout`](crate::engine::EngineOptions::connect_timeout).
    fn connect(&self, address: &str) -> io::Result<Connection>;

    /// Waits until [`Rendezvous::peers`] may have changed, [`Rendezvous::wake`] is called, or
    /// `timeout` has passed. May return early.
    fn wait(&self, timeout: Duration);

    /// Makes a running `wait` return, or the next one if none is running.
    fn wake(&self);
}

/// A node that a [`Rendezvous`] names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address for [`Rendezvous::connect`]; unique among the peers.
    pub address: String,
    /// The hello that the node will send, if it is known. The port then does not call a node to
    /// which it has a link.
    pub hello: Option<Hello>,
}

/// A listening endpoint. The port's thread calls [`Listener::accept`] until the port closes, then
/// [`Listener::close`].
pub trait Listener: Send + Sync {
    /// Returns `engine/address` for peers, including what the system chose, such as a port number.
    fn endpoint(&self) -> String;

    /// Waits for a connection; `None` if none arrived within about a second, or after
    /// [`Listener::wake`].
    fn accept(&self) -> io::Result<Option<Connection>>;

    /// Makes a running or later `accept` return. Called once, by the thread that closes the port.
    fn wake(&self);

    /// Stops listening and removes what others could take for a listener, such as a file.
    fn close(&self);

    /// Returns whether other machines can reach the listener, and connect without proving who they
    /// are.
    fn is_exposed(&self) -> bool {
        false
    }
}

/// A new connection, and the address of its other end.
pub struct Connection {
    /// The byte stream.
    pub stream: Arc<dyn ByteStream>,
    /// Address of the other end, for display.
    pub address: String,
    /// The host of the other end. A full port that has no idle connection to close closes one of
    /// the host with the most connections
    /// ([`EngineOptions::peers`](crate::engine::EngineOptions::peers)). Connections without a host
    /// count as one host.
    pub host: Option<IpAddr>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Both directions of a connection. One thread calls `read`. Several threads call `write`, one at a
/// time, also while a `read` blocks. Therefore a stream must not hold a lock during `read` that
/// `write` takes.
///
/// Dropping it closes both directions.
pub trait ByteStream: Send + Sync {
    /// Returns the number of bytes read, at least 1, or 0 at the end of the stream. Blocks for at
    /// most the time of [`ByteStream::set_read_timeout`], and fails with `WouldBlock` after that.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Limits how long reads block; `None`, the initial value, for no limit. Only the reading
    /// thread calls it.
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// Called once when the connection has become a link: both ends have introduced themselves, and
    /// neither has sent anything after that. Each end calls it on its reading thread, before it
    /// sends anything else. A stream can thus agree with its other end on another way to transfer
    /// the bytes. May block for `patience`. If it fails, the connection is closed. By default,
    /// nothing changes.
    fn upgrade(&self, _patience: Duration) -> io::Result<()> {
        Ok(())
    }

    /// Writes what fits. Never blocks: fails with `WouldBlock` if nothing fits.
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Waits until [`ByteStream::write`] may succeed, or `timeout`.
    fn wait_writable(&self, timeout: Duration);

    /// Closes one direction or both for good. The peer still reads what was written, and then the
    /// end of the stream. Blocked reads return. May be called more than once and from any thread.
    fn shutdown(&self, how: Shutdown);

    /// Returns whether both ends are the same, as a TCP connection to the local port that the
    /// system chose for the caller. Such a connection is closed.
    fn is_own_end(&self) -> bool {
        false
    }

    /// Returns whether this machine no longer has the local address of the stream, and would
    /// connect to the peer from another one. Then nothing can arrive over the stream any more, and
    /// the link ends. Called periodically while the peer is silent.
    fn has_moved(&self) -> bool {
        false
    }

    /// Returns who the peer has proven to be. Called after the peer's first bytes were read.
    fn principal(&self) -> Principal {
        Principal::Anonymous
    }
}

/// Which side of a connection a port takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Listens if nobody else does, and connects otherwise. The port that listens relays messages
    /// between those that connect.
    Either,
    /// Listens. Opening fails if it cannot. The port does not relay.
    Listen,
    /// Connects, and keeps trying.
    Connect,
}
