//! Byte streams over sockets: the parts that TCP and Unix-domain sockets share. Private to this
//! crate. Adapts a [`Family`] to the [`Transport`] of `engine/stream`.

use std::{
    io::{self, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{SockAddr, Socket};

use super::{
    EngineError, EngineOptions, Local, Port, Principal, Sink,
    stream::{self, ByteStream, Connection, Listener, Role, Transport},
};
use crate::system;

/// A family of sockets.
pub(super) trait Family: Send + Sync {
    /// Returns the name of the family's engine that has [`Role::Either`].
    fn name(&self) -> &'static str;
    /// Adds the options in an address to the port's options. Returns the address without them.
    fn configure<'a>(&self, address: &'a str, _: &mut EngineOptions) -> Result<&'a str, String> {
        Ok(address)
    }
    /// Checks whether an address is valid. Fails with the reason if it is not.
    fn check(&self, address: &str) -> Result<(), String>;
    /// Returns the socket addresses that a textual address stands for now, in order of preference.
    /// Blocks for at most `patience`. Fails with `HostUnreachable` if a name is not found.
    fn resolve(&self, address: &str, patience: Duration) -> io::Result<Vec<SockAddr>>;
    /// Returns a listening, non-blocking socket.
    fn listen(&self, address: &SockAddr, options: &EngineOptions) -> io::Result<Socket>;
    /// Returns a connected socket.
    fn connect(&self, address: &SockAddr, options: &EngineOptions) -> io::Result<Socket>;
    /// Makes an accepted or connected socket blocking, and sets its options.
    fn tune(&self, socket: &Socket, options: &EngineOptions) -> io::Result<()>;
    /// Returns an address in the notation of [`Family::resolve`].
    fn describe(&self, address: &SockAddr) -> String;
    /// Cleans up after a listener that has been shut down.
    fn unbound(&self, address: &SockAddr);
    /// Returns who is at the other end of a connected socket, as the system reports it.
    fn principal(&self, _: &Socket) -> Principal {
        Principal::Anonymous
    }
    /// Returns whether other machines can reach a listener.
    fn is_exposed(&self, _: &SockAddr) -> bool {
        false
    }
}

/// Opens a port of the socket engine with this name and example address.
pub(super) fn open(
    family: &'static dyn Family,
    role: Role,
    (name, example): (&'static str, &'static str),
    address: &str,
    local: &Local,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Port>, EngineError> {
    let bad = |reason| EngineError::Address { engine: name, address: address.into(), reason, example };
    stream::open(transport(family, name, address, local).map_err(bad)?, role, local, sink)
}

/// Returns the transport of an address, for the engine with this name.
pub(super) fn transport(
    family: &'static dyn Family,
    name: &str,
    address: &str,
    local: &Local,
) -> Result<impl Transport + use<>, String> {
    let mut options = local.options.clone();
    let place = family.configure(address, &mut options)?;
    let settings = address.get(place.len()..).unwrap_or_default().into();
    family.check(place)?;
    Ok(Sockets { family, endpoint: format!("{name}/{address}"), settings, place: place.into(), options })
}

/// Implements [`Engine`](super::Engine) for a unit type. `open` opens a port; by default it is
/// [`open`] with the module's `FAMILY`.
macro_rules! engine {
    ($type:ty, $name:literal, $role:expr, $example:literal, $summary:literal) => {
        engine!($type, $name, $role, $example, $summary, |role, named, address, local, sink| {
            sockets::open(&FAMILY, role, named, address, local, sink)
        });
    };
    ($type:ty, $name:literal, $role:expr, $example:literal, $summary:literal, $open:expr) => {
        impl Engine for $type {
            fn name(&self) -> &'static str {
                $name
            }

            fn summary(&self) -> &'static str {
                $summary
            }

            fn example(&self) -> &'static str {
                $example
            }

            fn properties(&self) -> Properties {
                PROPERTIES
            }

            fn relays(&self) -> bool {
                matches!($role, Role::Either)
            }

            fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
                ($open)($role, ($name, $example), address, local, sink)
            }
        }
    };
}
pub(super) use engine;

/// Sets the buffer sizes that the options ask for. Call it before the socket listens or connects.
pub(super) fn set_buffers(socket: &Socket, options: &EngineOptions) -> io::Result<()> {
    options.send_buffer.map_or(Ok(()), |bytes| socket.set_send_buffer_size(bytes))?;
    options.receive_buffer.map_or(Ok(()), |bytes| socket.set_recv_buffer_size(bytes))
}

/// One address of a socket engine.
struct Sockets {
    family: &'static dyn Family,
    endpoint: String,
    /// The options in the address, including the `?` in front of them.
    settings: String,
    /// The address without its options. A name in it is resolved at each attempt to listen or to
    /// connect.
    place: String,
    options: EngineOptions,
}

impl Sockets {
    /// Returns the result for the first address for which `attempt` succeeds, or else the last
    /// error.
    fn first<T>(&self, attempt: impl Fn(&SockAddr) -> io::Result<T>) -> io::Result<T> {
        let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in self.family.resolve(&self.place, self.options.connect_timeout)? {
            match attempt(&address) {
                Ok(found) => return Ok(found),
                Err(e) => refused = e,
            }
        }
        Err(refused)
    }
}

impl Transport for Sockets {
    fn name(&self) -> &'static str {
        self.family.name()
    }

    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    fn listen(&self) -> io::Result<Arc<dyn Listener>> {
        let socket = self.first(|address| self.family.listen(address, &self.options))?;
        let bound = socket.local_addr()?;
        let (settings, options) = (self.settings.clone(), self.options.clone());
        Ok(Arc::new(SocketListener { family: self.family, socket, bound, settings, options }))
    }

    fn connect(&self) -> io::Result<Connection> {
        let (socket, to) = self.first(|to| Ok((self.family.connect(to, &self.options)?, to.clone())))?;
        connection(self.family, socket, &to, &self.options)
    }
}

struct SocketListener {
    family: &'static dyn Family,
    socket: Socket,
    bound: SockAddr,
    settings: String,
    options: EngineOptions,
}

impl Listener for SocketListener {
    fn endpoint(&self) -> String {
        format!("{}/{}{}", self.family.name(), self.family.describe(&self.bound), self.settings)
    }

    fn accept(&self) -> io::Result<Option<Connection>> {
        let Some((socket, from)) = accept(&self.socket)? else { return Ok(None) };
        connection(self.family, socket, &from, &self.options).map(Some)
    }

    fn wake(&self) {
        // Ends the poll on Linux. Elsewhere the time-out of the poll does.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn close(&self) {
        self.family.unbound(&self.bound);
    }

    fn is_exposed(&self) -> bool {
        self.family.is_exposed(&self.bound)
    }
}

/// Returns whether an interface reaches only this machine.
pub(super) fn is_loopback(interface: &str) -> bool {
    system::interfaces().any(|found| found.name == interface && found.is_loopback)
}

/// Waits up to a second for a connection to a listening, non-blocking socket. Returns `None` if
/// none arrives.
pub(super) fn accept(listening: &Socket) -> io::Result<Option<(Socket, SockAddr)>> {
    let mut fds = [PollFd::new(listening, PollFlags::IN)];
    let _ = poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
    match listening.accept() {
        Ok(accepted) => Ok(Some(accepted)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

/// Makes a connection of a socket that is connected to a peer.
pub(super) fn connection(
    family: &dyn Family,
    socket: Socket,
    peer: &SockAddr,
    options: &EngineOptions,
) -> io::Result<Connection> {
    family.tune(&socket, options)?;
    let principal = family.principal(&socket);
    let host = peer.as_socket().map(|address| address.ip());
    Ok(Connection { stream: Arc::new(SocketStream::new(socket, principal)), address: family.describe(peer), host })
}

/// Returns whether this machine has lost the address `local`, but has a route to the peer from
/// another address. Sends nothing.
pub(super) fn has_moved(mut local: SocketAddr, peer: SocketAddr) -> bool {
    local.set_port(0);
    let is_gone = UdpSocket::bind(local).is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable);
    let any = if peer.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    is_gone && UdpSocket::bind((any, 0)).is_ok_and(|socket| socket.connect(peer).is_ok())
}

/// The stream of a connected, blocking socket.
pub(super) struct SocketStream(pub(super) Socket, Principal);

impl SocketStream {
    pub(super) fn new(socket: Socket, principal: Principal) -> SocketStream {
        system::prepare_sending(&socket);
        SocketStream(socket, principal)
    }
}

impl ByteStream for SocketStream {
    #[inline]
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(timeout)
    }

    #[inline]
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        system::send_now(&self.0, bytes)
    }

    fn wait_writable(&self, timeout: Duration) {
        let Ok(timeout) = Timespec::try_from(timeout) else { return };
        // The next write returns the error.
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], Some(&timeout));
    }

    fn shutdown(&self, how: Shutdown) {
        // Fails if the connection is gone already.
        let _ = self.0.shutdown(how);
    }

    fn is_own_end(&self) -> bool {
        let ends = (self.0.local_addr().ok(), self.0.peer_addr().ok());
        let (Some(local), Some(peer)) = ends else { return false };
        local.as_socket().is_some() && local.as_socket() == peer.as_socket()
    }

    fn has_moved(&self) -> bool {
        let (Ok(local), Ok(peer)) = (self.0.local_addr(), self.0.peer_addr()) else { return false };
        local.as_socket().zip(peer.as_socket()).is_some_and(|(local, peer)| has_moved(local, peer))
    }

    fn principal(&self) -> Principal {
        self.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_no_interface_has_is_lost_if_there_is_a_way_to_the_peer() {
        for loopback in ["127.0.0.1:7", "[::ffff:127.0.0.1]:7"] {
            let here: SocketAddr = loopback.parse().expect("an address");
            assert!(!has_moved(here, here));
        }
        // An address of a block for documentation.
        let (lost, peer) = (SocketAddr::from(([192, 0, 2, 1], 7)), SocketAddr::from(([127, 0, 0, 1], 7)));
        assert!(has_moved(lost, peer));
    }
}
