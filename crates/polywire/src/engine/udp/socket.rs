//! The sockets of a port: one that receives, and one that sends.
//!
//! Several members on one host share the port number of a group, so their sockets for receiving are
//! bound to the same address. In a pair, one socket does both.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, UdpSocket},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvFlags, connect_unspec, recvfrom},
};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};

use super::{
    super::{
        EngineOptions,
        sockets::{has_moved, is_loopback},
    },
    address::{Address, Cast, Interface},
    name::Name,
};

/// The read timeout, after which the receiving thread checks whether there is other work.
const WAIT: Duration = Duration::from_millis(250);
/// The default size of the receive buffer in bytes: packets arrive in bursts.
const RECEIVE_BUFFER: usize = 4 << 20;

/// The sockets of an opened address.
#[derive(Debug)]
pub(super) struct Sockets {
    receiving: UdpSocket,
    sending: UdpSocket,
    pub(super) role: Role,
    /// The name and the port of the host that this node calls.
    pub(super) name: Option<Name>,
    /// Whether other machines can reach the receiving socket.
    pub(super) is_exposed: bool,
}

/// The role of this node at the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A member of the group at this address.
    Member(SocketAddr),
    /// The host at this address, which others call.
    Host(SocketAddr),
    /// A caller of the host at this address.
    Caller(SocketAddr),
}

impl Sockets {
    pub(super) fn open(address: &Address, options: &EngineOptions) -> io::Result<Sockets> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for to in &address.to {
            let opened = match address.cast {
                Cast::Unicast => unicast(*to, address, options),
                Cast::Broadcast | Cast::Multicast => group(*to, address, options),
            };
            match opened {
                Ok(sockets) => return Ok(sockets),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(super) fn send(&self, packet: &[u8], to: SocketAddr) -> io::Result<()> {
        let send = || self.sending.send_to(packet, to).map(drop);
        match send() {
            Err(_) if matches!(self.role, Role::Caller(_)) && has_moved(self.sending.local_addr()?, to) => {
                self.connect_anew(to)?;
                send()
            }
            sent => sent,
        }
    }

    /// Connects again, so that the system chooses another local address. A connected socket keeps
    /// its local address even if the machine has lost it.
    pub(super) fn connect_anew(&self, to: SocketAddr) -> io::Result<()> {
        // Some systems report an error although the call has succeeded.
        let _ = connect_unspec(&self.sending);
        self.sending.connect(to)
    }

    /// Waits for a datagram, at most for `WAIT`. In a pair, an error may also be the result of an
    /// earlier packet.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        // Not the standard library's `recv_from`: it panics if the socket was shut down.
        let (len, _, from) = recvfrom(&self.receiving, buffer, RecvFlags::empty())?;
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        Ok((len, from.ok_or(io::ErrorKind::NotConnected)?))
    }

    /// Ends a wait for a datagram. On systems where this call does not end it, the read timeout
    /// does.
    pub(super) fn wake(&self) {
        let _ = SockRef::from(&self.receiving).shutdown(Shutdown::Read);
    }

    /// Returns whether a datagram can be received at once.
    pub(super) fn has_datagram(&self) -> bool {
        let mut sockets = [PollFd::new(&self.receiving, PollFlags::IN)];
        matches!(poll(&mut sockets, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }
}

/// Becomes the host if the address belongs to this machine and is free, and a caller otherwise.
fn unicast(to: SocketAddr, address: &Address, options: &EngineOptions) -> io::Result<Sockets> {
    let socket = new(to, options)?;
    let role = match socket.bind(&to.into()) {
        Ok(()) => Role::Host(local(&socket)?),
        Err(_) if to.port() == 0 => return Err(io::ErrorKind::AddrNotAvailable.into()),
        Err(_) => {
            // A connected socket receives the packets of its peer only.
            socket.connect(&to.into())?;
            Role::Caller(to)
        }
    };
    if let Some(ttl) = address.ttl {
        match to {
            SocketAddr::V4(_) => socket.set_ttl_v4(ttl)?,
            SocketAddr::V6(_) => socket.set_unicast_hops_v6(ttl)?,
        }
    }
    let name = address.name.clone().filter(|_| matches!(role, Role::Caller(_)));
    let receiving = UdpSocket::from(socket);
    receiving.set_read_timeout(Some(WAIT))?;
    // A connected socket receives the packets of its peer only.
    let is_exposed = matches!(role, Role::Host(bound) if !bound.ip().to_canonical().is_loopback());
    Ok(Sockets { sending: receiving.try_clone()?, receiving, role, name, is_exposed })
}

fn group(to: SocketAddr, address: &Address, options: &EngineOptions) -> io::Result<Sockets> {
    let (receiving, sending) = (new(to, options)?, new(to, options)?);
    receiving.set_reuse_address(true)?;
    // On other systems than Linux, members share a port by this option.
    #[cfg(all(unix, not(target_os = "linux")))]
    receiving.set_reuse_port(true)?;
    if let Some(name) = device(address)? {
        bind_device(&receiving, &name)?;
        bind_device(&sending, &name)?;
    }
    match (address.cast, to) {
        (Cast::Multicast, SocketAddr::V4(group)) => {
            receiving.bind(&to.into())?;
            receiving.join_multicast_v4_n(group.ip(), &interface_v4(address)?)?;
            if let Some(Interface::Address(interface)) = &address.interface {
                sending.set_multicast_if_v4(interface)?;
            }
            sending.set_multicast_loop_v4(address.is_looped)?;
            sending.set_multicast_ttl_v4(address.ttl.unwrap_or(1))?;
        }
        (Cast::Multicast, SocketAddr::V6(mut group)) => {
            let interface = interface_v6(address, group.scope_id())?;
            // Groups of link scope exist on each interface.
            group.set_scope_id(interface);
            receiving.bind(&SocketAddr::from(group).into())?;
            receiving.join_multicast_v6(group.ip(), interface)?;
            sending.set_multicast_if_v6(interface)?;
            sending.set_multicast_loop_v6(address.is_looped)?;
            sending.set_multicast_hops_v6(address.ttl.unwrap_or(1))?;
        }
        _ => {
            receiving.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, to.port())).into())?;
            sending.set_broadcast(true)?;
        }
    }
    let any = match to {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    sending.bind(&any.into())?;
    let receiving = UdpSocket::from(receiving);
    receiving.set_read_timeout(Some(WAIT))?;
    let (role, is_exposed) = (Role::Member(to), is_exposed(&to, address));
    Ok(Sockets { receiving, sending: sending.into(), role, name: None, is_exposed })
}

/// Whether other machines can reach the members of a group here.
fn is_exposed(to: &SocketAddr, address: &Address) -> bool {
    let is_of_this_machine = matches!(to.ip(), IpAddr::V6(ip) if ip.is_multicast() && ip.octets()[1] & 15 == 1);
    !is_of_this_machine
        && match &address.interface {
            None => true,
            Some(Interface::Address(interface)) => !interface.is_loopback(),
            Some(Interface::Name(name)) => !is_loopback(name),
        }
}

fn new(to: SocketAddr, options: &EngineOptions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    if to.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // The system may grant a smaller buffer, which leads to more retransmissions.
    let _ = socket.set_recv_buffer_size(options.receive_buffer.unwrap_or(RECEIVE_BUFFER));
    options.send_buffer.map_or(Ok(()), |bytes| socket.set_send_buffer_size(bytes))?;
    Ok(socket)
}

fn local(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// Returns the name of the interface to which the sockets of a group are bound. For multicast, the
/// address of an interface is enough without its name.
fn device(address: &Address) -> io::Result<Option<String>> {
    match &address.interface {
        Some(Interface::Name(name)) => Ok(Some(name.clone())),
        Some(Interface::Address(interface)) if address.cast == Cast::Broadcast => name_of(*interface).map(Some),
        _ => Ok(None),
    }
}

fn interface_v4(address: &Address) -> io::Result<InterfaceIndexOrAddress> {
    Ok(match &address.interface {
        None => InterfaceIndexOrAddress::Address(Ipv4Addr::UNSPECIFIED),
        Some(Interface::Address(interface)) => InterfaceIndexOrAddress::Address(*interface),
        Some(Interface::Name(name)) => InterfaceIndexOrAddress::Index(index(name)?),
    })
}

/// Returns the interface's index. 0 leaves the choice to the system.
fn interface_v6(address: &Address, scope: u32) -> io::Result<u32> {
    match &address.interface {
        None if scope == 0 && address.to.iter().any(is_of_the_link) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "this group needs an interface, as in '?interface=eth0'"))
        }
        None => Ok(scope),
        Some(Interface::Name(name)) => index(name),
        Some(Interface::Address(_)) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "an interface of IPv6 is given by its name"))
        }
    }
}

/// Whether a group of IPv6 has the scope of one link or less, so that it needs an interface.
fn is_of_the_link(to: &SocketAddr) -> bool {
    matches!(to.ip(), IpAddr::V6(ip) if ip.is_multicast() && ip.octets()[1] & 15 <= 2)
}

#[cfg(target_os = "linux")]
fn index(name: &str) -> io::Result<u32> {
    let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let unknown = |_| io::Error::new(io::ErrorKind::InvalidInput, format!("there is no interface '{name}'"));
    rustix::net::netdevice::name_to_index(&any, name).map_err(unknown)
}

/// Returns the name of the interface with this address.
#[cfg(target_os = "linux")]
fn name_of(interface: Ipv4Addr) -> io::Result<String> {
    let found = crate::system::interfaces().find(|found| found.address == Some(IpAddr::V4(interface)));
    // An alias, as `eth0:1`, has its interface's name in front.
    let name = found.and_then(|found| Some(found.name.split(':').next()?.to_owned()));
    name.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("no interface has the address {interface}")))
}

#[cfg(target_os = "linux")]
fn bind_device(socket: &Socket, name: &str) -> io::Result<()> {
    index(name)?;
    socket.bind_device(Some(name.as_bytes()))
}

#[cfg(not(target_os = "linux"))]
fn index(_: &str) -> io::Result<u32> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "interfaces are known by name on Linux only; give an address"))
}

#[cfg(not(target_os = "linux"))]
fn name_of(_: Ipv4Addr) -> io::Result<String> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "an interface can be chosen for broadcast on Linux only"))
}

#[cfg(not(target_os = "linux"))]
fn bind_device(_: &Socket, name: &str) -> io::Result<()> {
    index(name).map(|_| ())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn broadcast(interface: &str) -> io::Result<Sockets> {
        let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
        let (text, options) =
            (format!("127.255.255.255:{port}?broadcast,interface={interface}"), EngineOptions::default());
        Sockets::open(&Address::parse(&text, &options).expect("an address"), &options)
    }

    #[test]
    fn broadcast_keeps_to_an_interface_that_is_given_by_name_or_address() {
        for interface in ["lo", "127.0.0.1"] {
            let Sockets { receiving, sending, is_exposed, .. } = broadcast(interface).expect("sockets");
            for socket in [&receiving, &sending] {
                let device = SockRef::from(socket).device().expect("the system tells it");
                assert_eq!(device.as_deref(), Some(&b"lo"[..]), "{interface}");
            }
            assert!(!is_exposed, "{interface}");
        }
        // An address of a block for documentation.
        let error = broadcast("198.51.100.7").expect_err("no interface has it");
        assert!(error.to_string().contains("198.51.100.7"), "{error}");
    }
}
