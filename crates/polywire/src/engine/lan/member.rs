//! This node at its port of the engine: it listens, and calls the nodes that DNS-SD or the address
//! names.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use polywire_core::frame::{Hello, VERSION};
use socket2::{SockAddr, Socket};

use super::{
    address::Address,
    finder::{Finder, Own, Tell},
    interfaces::Selection,
    record::{self, Record},
    table::Known,
};
use crate::{
    engine::{
        EngineOptions, Local,
        sockets::{self, Family as _},
        stream::{Connection, Listener, Peer, Rendezvous},
        tcp,
        tls::Fleet,
    },
    system,
};

/// This node at the engine. It is both the rendezvous of the mesh and the listener.
pub(super) struct Member {
    endpoint: String,
    address: Address,
    selection: Selection,
    hello: Hello,
    options: EngineOptions,
    /// With an identity, all links are within TLS.
    fleet: Option<Fleet>,
    finder: Arc<Finder>,
    listening: OnceLock<Listening>,
}

struct Listening {
    socket: Socket,
    port: u16,
}

impl Member {
    pub(super) fn new(
        endpoint: &str,
        address: Address,
        fleet: Option<Fleet>,
        local: &Local,
        tell: Tell,
    ) -> io::Result<Member> {
        let selection = Selection::new(address.interfaces.clone());
        selection.check().map_err(|reason| io::Error::new(io::ErrorKind::InvalidInput, reason))?;
        Ok(Member {
            endpoint: endpoint.into(),
            finder: Arc::new(Finder::new(endpoint, selection.clone(), local.options.peers, tell)),
            address,
            selection,
            hello: local.hello,
            options: local.options.clone(),
            fleet,
            listening: OnceLock::new(),
        })
    }

    /// Listens at the port that the address names. Without one, listens at the usual port, or at
    /// any port if that fails.
    fn bind(&self) -> io::Result<Listening> {
        let ports = match self.address.port {
            Some(port) => vec![port],
            None => vec![self.address.usual_port(), 0],
        };
        let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for port in ports {
            for any in [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)] {
                match tcp::FAMILY.listen(&SocketAddr::from((any, port)).into(), &self.options) {
                    Ok(socket) => {
                        let bound = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
                        return Ok(Listening { socket, port: bound.port() });
                    }
                    Err(error) => refused = error,
                }
            }
        }
        Err(refused)
    }

    fn own(&self, port: u16) -> Own {
        let node = self.hello.node;
        Own {
            name: record::instance(&machine(), port, node),
            host: record::host(port, node),
            port,
            record: Record::new(self.hello, self.address.domain, self.fleet.is_some()),
        }
    }

    fn listening(&self) -> io::Result<&Listening> {
        self.listening.get().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Calls a node that DNS-SD names.
    fn call_known(&self, name: &str, known: &Known) -> io::Result<Connection> {
        self.fits(known)?;
        let called = self.call(&known.addresses);
        self.finder.called(name, called.is_ok());
        called
    }

    /// Calls a peer that the address names. If the peer is not there, that is reported, unlike the
    /// absence of a node that DNS-SD names.
    fn call_named(&self, place: &str) -> io::Result<Connection> {
        let found = tcp::FAMILY.resolve(place, self.options.connect_timeout)?;
        let found: Vec<SocketAddr> = found.iter().filter_map(SockAddr::as_socket).collect();
        self.call(&found).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => io::Error::other(error),
            _ => error,
        })
    }

    /// Fails with the reason if a link to the node is impossible.
    fn fits(&self, known: &Known) -> io::Result<()> {
        let Record { frames, is_tls, software, .. } = &known.record;
        let reason = match (is_tls, self.fleet.is_some()) {
            _ if *frames != VERSION => format!(
                "it is Polywire {software}, which speaks version {frames} of the frames, and this node version \
                 {VERSION}: use the same release"
            ),
            (true, false) => "it uses TLS, and this node has no identity: give this one a certificate of the same \
                              fleet ('polywire identity sign')"
                .into(),
            (false, true) => "it does not use TLS, and this node does: give it a certificate of the same fleet \
                              ('polywire identity sign')"
                .into(),
            _ => return Ok(()),
        };
        Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
    }

    /// Connects to the first of these addresses that answers, within `connect_timeout` for all of
    /// them.
    fn call(&self, addresses: &[SocketAddr]) -> io::Result<Connection> {
        let each = self.options.connect_timeout / addresses.len().max(1) as u32;
        let options = EngineOptions { connect_timeout: each, ..self.options.clone() };
        let (socket, to) = first_of(addresses, |to| tcp::FAMILY.connect(&to.into(), &options))?;
        self.connected(socket, to)
    }

    fn connected(&self, socket: Socket, to: SocketAddr) -> io::Result<Connection> {
        let connection = sockets::connection(&tcp::FAMILY, socket, &to.into(), &self.options)?;
        match &self.fleet {
            Some(fleet) => fleet.called(connection, to.ip(), self.options.connect_timeout),
            None => Ok(connection),
        }
    }

    /// Makes a connection of an accepted socket. Returns `None` if it arrived over an interface
    /// that is not selected.
    fn accepted(&self, socket: Socket, from: &SockAddr) -> io::Result<Option<Connection>> {
        let local = socket.local_addr()?.as_socket().map(|local| local.ip().to_canonical());
        if !local.is_some_and(|local| self.selection.takes(local)) {
            return Ok(None);
        }
        let connection = sockets::connection(&tcp::FAMILY, socket, from, &self.options)?;
        match &self.fleet {
            Some(fleet) => fleet.accepted(connection).map(Some),
            None => Ok(Some(connection)),
        }
    }
}

impl Rendezvous for Arc<Member> {
    fn name(&self) -> &'static str {
        "lan"
    }

    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    fn listen(&self) -> io::Result<Arc<dyn Listener>> {
        let bound = self.bind()?;
        let own = self.own(bound.port);
        // Cannot fail: `listen` is called once.
        let _ = self.listening.set(bound);
        if self.address.is_multicast {
            self.finder.start(Some(own))?;
        }
        Ok(self.clone() as Arc<dyn Listener>)
    }

    fn peers(&self) -> io::Result<Vec<Peer>> {
        let named = self.address.peers.iter().map(|place| Peer { address: place.clone(), hello: None });
        Ok(named.chain(self.finder.peers(self.address.domain)).collect())
    }

    fn connect(&self, address: &str) -> io::Result<Connection> {
        if self.address.peers.iter().any(|place| place == address) {
            return self.call_named(address);
        }
        let known = self.finder.get(address).ok_or(io::ErrorKind::NotFound)?;
        self.call_known(address, &known)
    }

    fn wait(&self, timeout: Duration) {
        self.finder.wait(timeout);
    }

    fn wake(&self) {
        self.finder.wake();
    }
}

impl Listener for Member {
    /// Returns the endpoint that was opened. Without multicast, it has the port, because other
    /// nodes have to name this node.
    fn endpoint(&self) -> String {
        match self.listening.get() {
            Some(listening) if !self.address.is_multicast => with_port(&self.endpoint, listening.port),
            _ => self.endpoint.clone(),
        }
    }

    fn accept(&self) -> io::Result<Option<Connection>> {
        let Some((socket, from)) = sockets::accept(&self.listening()?.socket)? else { return Ok(None) };
        self.accepted(socket, &from)
    }

    fn wake(&self) {
        self.finder.say_goodbye();
        if let Ok(listening) = self.listening() {
            // Ends the wait on Linux. Elsewhere its time-out does.
            let _ = listening.socket.shutdown(Shutdown::Both);
        }
    }

    fn close(&self) {
        self.finder.close();
    }

    fn is_exposed(&self) -> bool {
        self.fleet.is_none() && self.selection.is_exposed()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.finder.close();
    }
}

/// Connects to the first of these addresses that answers. If none does, returns the error that says
/// most: that the connection was refused, since then the host is there and the node is not, or else
/// the error of the first address, which is the most likely to work.
fn first_of<T>(addresses: &[SocketAddr], connect: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<(T, SocketAddr)> {
    let mut failed = None;
    for to in addresses {
        match connect(*to) {
            Ok(connected) => return Ok((connected, *to)),
            Err(error) if failed.is_none() || error.kind() == io::ErrorKind::ConnectionRefused => failed = Some(error),
            Err(_) => {}
        }
    }
    Err(failed.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// Returns the endpoint with its options, of which `port` is the last one.
fn with_port(endpoint: &str, port: u16) -> String {
    let (place, settings) = endpoint.split_once('?').unwrap_or((endpoint, ""));
    let others = settings.split(',').filter(|setting| !setting.is_empty() && !setting.starts_with("port="));
    let settings: Vec<String> = others.map(String::from).chain([format!("port={port}")]).collect();
    format!("{place}?{}", settings.join(","))
}

/// Returns the name of this machine, without its domain.
fn machine() -> String {
    let name = system::host();
    name.split('.').next().filter(|name| !name.is_empty()).unwrap_or("host").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_more_than_other_errors() {
        use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, NotFound, TimedOut};
        let call = |kinds: &[io::ErrorKind]| {
            let addresses: Vec<SocketAddr> = (1..).zip(kinds).map(|(port, _)| ([127, 0, 0, 1], port).into()).collect();
            first_of(&addresses, |to| Err::<(), _>(kinds[usize::from(to.port()) - 1].into()))
                .expect_err("nobody answers")
                .kind()
        };
        assert_eq!(call(&[ConnectionRefused, AddrNotAvailable]), ConnectionRefused);
        assert_eq!(call(&[TimedOut, ConnectionRefused]), ConnectionRefused);
        assert_eq!(call(&[TimedOut, AddrNotAvailable]), TimedOut);
        assert_eq!(call(&[]), NotFound);
        let answers = |to: SocketAddr| if to.port() == 2 { Ok(()) } else { Err(ConnectionRefused.into()) };
        let addresses = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(first_of(&addresses, answers).expect("the second answers").1, addresses[1]);
    }

    #[test]
    fn the_port_that_was_chosen_replaces_the_one_that_was_given() {
        assert_eq!(with_port("lan/0?port=0,multicast=off", 7), "lan/0?multicast=off,port=7");
        assert_eq!(with_port("lan/0?multicast=off", 7), "lan/0?multicast=off,port=7");
        assert_eq!(with_port("lan/0", 7), "lan/0?port=7");
    }
}
