//! Checks of the ports that Polywire uses by default: whether they are available.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

use polywire::engine;
use socket2::{Domain, Protocol, Socket, Type};

use super::Finding;

/// The port of multicast DNS.
const DNS_SD: u16 = 5353;
/// The port of the first node of domain 0 of `lan`.
const FIRST: u16 = 7461;

pub fn check() -> Vec<Finding> {
    let mut findings = vec![dns_sd(shared(DNS_SD))];
    let domain = engine::find("local").map(|local| local.complete("")).and_then(|domain| domain.parse::<u8>().ok());
    findings.extend(domain.map(|domain| {
        let port = FIRST + u16::from(domain);
        first(domain, port, TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).map(drop))
    }));
    findings
}

/// Binds the port with the options that all of its users need to share it.
fn shared(port: u16) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    #[cfg(unix)]
    socket.set_reuse_port(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())
}

fn dns_sd(bound: io::Result<()>) -> Finding {
    match bound {
        Ok(()) => Finding::ok("ports", format!("UDP {DNS_SD} for DNS-SD can be shared")),
        Err(error) => Finding::problem(
            "ports",
            format!("UDP {DNS_SD} for DNS-SD cannot be shared: {error}"),
            format!(
                "ss -ulpn sport = {DNS_SD} shows who holds it alone; or name peers (lan/0?multicast=off,peer=HOST)"
            ),
        ),
    }
}

fn first(domain: u8, port: u16, bound: io::Result<()>) -> Finding {
    let of = format!("TCP {port}, where the first node of domain {domain} of lan listens,");
    match bound {
        Ok(()) => Finding::ok("ports", format!("{of} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Finding::ok("ports", format!("{of} is in use; the next node gets another"))
        }
        Err(error) => {
            Finding::warning("ports", format!("{of} cannot be had: {error}"), "name a port (lan/0?port=NUMBER)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    #[test]
    fn a_port_that_somebody_holds_alone_is_a_problem_only_if_it_must_be_shared() {
        let used = || Err(io::ErrorKind::AddrInUse.into());
        assert!(dns_sd(used()).state == State::Problem && dns_sd(used()).advice.contains("ss -ulpn sport = 5353"));
        assert_eq!((dns_sd(Ok(())).state, first(0, 7461, Ok(())).state), (State::Ok, State::Ok));
        assert!(first(3, 7464, used()).found.contains("TCP 7464") && first(3, 7464, used()).state == State::Ok);
        assert_eq!(first(0, 7461, Err(io::ErrorKind::PermissionDenied.into())).state, State::Warning);
        // Tests a real socket that does not share its port.
        let alone = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
        assert!(shared(alone.local_addr().expect("bound").port()).is_err());
    }
}
