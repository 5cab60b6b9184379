//! Checks of multicast: sends a packet to the group of DNS-SD on each interface, and waits for it.

use std::{
    io,
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, Socket, Type};

use super::{Finding, network::Interface};

const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// The time limit for the packet.
const SOON: Duration = Duration::from_secs(1);

pub fn check(interfaces: &[Interface]) -> Vec<Finding> {
    let with_address = interfaces.iter().filter(|interface| !interface.v4.is_empty() || !interface.v6.is_empty());
    with_address.map(|interface| of(interface, probe(interface))).collect()
}

fn of(interface: &Interface, probed: io::Result<Duration>) -> Finding {
    let name = &interface.name;
    match probed {
        Ok(took) => Finding::ok("multicast", format!("{name}: sent and received within {} us", took.as_micros())),
        Err(error) => {
            let found = format!("{name}: {error}");
            let advice = format!(
                "lan finds nobody there: allow UDP to 224.0.0.251 in the firewall, ip link set {name} multicast on, \
                 or name peers (lan/0?peer=HOST)"
            );
            match interface.is_loopback {
                true => Finding::warning("multicast", found, "nodes of this machine find each other by 'local'"),
                false => Finding::problem("multicast", found, advice),
            }
        }
    }
}

/// Sends a packet to the group on an interface, to a port that no other process uses, and returns
/// the time until it arrives.
fn probe(interface: &Interface) -> io::Result<Duration> {
    let (socket, group) = match interface.v4.first() {
        Some(address) => v4(*address)?,
        None => v6(if_nametoindex(interface.name.as_str()).map_err(io::Error::from)?)?,
    };
    let port = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?.port();
    let sent = format!("polywire doctor {:?}", SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let began = Instant::now();
    socket.send_to(sent.as_bytes(), &SocketAddr::from((group, port)).into())?;
    let mut buffer = [MaybeUninit::uninit(); 256];
    loop {
        let left = SOON.checked_sub(began.elapsed()).filter(|left| !left.is_zero());
        let missed = || io::Error::new(io::ErrorKind::TimedOut, "a packet that was sent did not come back");
        socket.set_read_timeout(Some(left.ok_or_else(missed)?))?;
        match socket.recv(&mut buffer) {
            Ok(count) if count == sent.len() => return Ok(began.elapsed()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

fn v4(interface: Ipv4Addr) -> io::Result<(Socket, IpAddr)> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    socket.join_multicast_v4(&GROUP_V4, &interface)?;
    socket.set_multicast_if_v4(&interface)?;
    socket.set_multicast_loop_v4(true)?;
    socket.set_multicast_ttl_v4(1)?;
    Ok((socket, GROUP_V4.into()))
}

fn v6(index: u32) -> io::Result<(Socket, IpAddr)> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)).into())?;
    socket.join_multicast_v6(&GROUP_V6, index)?;
    socket.set_multicast_if_v6(index)?;
    socket.set_multicast_loop_v6(true)?;
    socket.set_multicast_hops_v6(1)?;
    Ok((socket, GROUP_V6.into()))
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    #[test]
    fn a_failure_says_what_to_do() {
        let mut interface = Interface {
            name: "eth0".into(),
            is_loopback: false,
            is_running: true,
            v4: vec![Ipv4Addr::LOCALHOST],
            v6: Vec::new(),
            mtu: None,
        };
        let failed = || Err(io::Error::other("a packet that was sent did not come back"));
        let found = of(&interface, failed());
        assert!(found.state == State::Problem && found.advice.contains("peer=HOST"), "{found:?}");
        interface.is_loopback = true;
        assert_eq!(of(&interface, failed()).state, State::Warning);
        assert_eq!(of(&interface, Ok(Duration::from_micros(40))).found, "eth0: sent and received within 40 us");
        // An address that no interface has.
        interface.v4 = vec![Ipv4Addr::new(192, 0, 2, 99)];
        assert!(probe(&interface).is_err());
    }
}
