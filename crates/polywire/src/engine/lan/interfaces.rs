//! The network interfaces of this machine, and which of them an address selects.

use std::net::IpAddr;

use mdns_sd::{IfKind, InterfaceId};
use nix::{
    ifaddrs::{InterfaceAddress, getifaddrs},
    sys::socket::SockaddrStorage,
};

use super::address::Interface;
use crate::engine::sockets::is_loopback;

/// The interfaces that an address names; all if it names none.
#[derive(Clone, Debug)]
pub(super) struct Selection(Vec<Interface>);

impl Selection {
    pub(super) fn new(interfaces: Vec<Interface>) -> Selection {
        Selection(interfaces)
    }

    /// Whether a connection to this address of the machine came by an interface that is selected.
    pub(super) fn takes(&self, local: IpAddr) -> bool {
        let is_here = |address: &InterfaceAddress| ip(address) == Some(local) && self.selects(address);
        self.0.is_empty() || addresses().any(|address| is_here(&address))
    }

    /// Whether another machine can reach an interface that is selected.
    pub(super) fn is_exposed(&self) -> bool {
        let is_inside = |interface: &Interface| match interface {
            Interface::Address(ip) => ip.to_canonical().is_loopback(),
            Interface::Name(name) => is_loopback(name),
        };
        self.0.is_empty() || !self.0.iter().all(is_inside)
    }

    /// What DNS-SD is to use; `None` for all interfaces.
    pub(super) fn kinds(&self) -> Option<Vec<IfKind>> {
        let kind = |interface: &Interface| match interface {
            Interface::Address(ip) => IfKind::Addr(*ip),
            Interface::Name(name) => IfKind::Name(name.clone()),
        };
        (!self.0.is_empty()).then(|| self.0.iter().map(kind).collect())
    }

    /// Fails if an interface that is named is not there.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_there = |interface: &&Interface| addresses().any(|address| is(&address, interface));
        match self.0.iter().find(|interface| !is_there(interface)) {
            None => Ok(()),
            Some(Interface::Name(name)) => Err(format!("there is no interface '{name}' here")),
            Some(Interface::Address(ip)) => Err(format!("no interface here has the address {ip}")),
        }
    }

    fn selects(&self, address: &InterfaceAddress) -> bool {
        self.0.iter().any(|interface| is(address, interface))
    }
}

/// Whether a record came by an interface that reaches nobody but this machine.
pub(super) fn came_from_here(seen: &[InterfaceId]) -> bool {
    !seen.is_empty() && seen.iter().all(|interface| is_loopback(&interface.name))
}

fn is(address: &InterfaceAddress, interface: &Interface) -> bool {
    match interface {
        Interface::Name(name) => address.interface_name == *name,
        Interface::Address(wanted) => ip(address) == Some(*wanted),
    }
}

/// The addresses of this machine. None if the system does not say.
fn addresses() -> impl Iterator<Item = InterfaceAddress> {
    getifaddrs().into_iter().flatten()
}

fn ip(address: &InterfaceAddress) -> Option<IpAddr> {
    let storage: &SockaddrStorage = address.address.as_ref()?;
    let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_selection_takes_what_it_names() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let all = Selection::new(Vec::new());
        assert!(all.takes([192, 0, 2, 1].into()) && all.is_exposed() && all.kinds().is_none());
        for interface in [Interface::Name("lo".into()), Interface::Address(loopback)] {
            let inside = Selection::new(vec![interface]);
            assert_eq!(inside.check(), Ok(()));
            assert!(inside.takes(loopback) && !inside.takes([192, 0, 2, 1].into()));
            assert!(!inside.is_exposed() && inside.kinds().is_some_and(|kinds| kinds.len() == 1));
        }
        let missing = Selection::new(vec![Interface::Name("lo".into()), Interface::Name("no-such".into())]);
        assert!(missing.check().is_err_and(|reason| reason.contains("'no-such'")));
        assert!(missing.is_exposed(), "who knows what it will be");
        let elsewhere = Selection::new(vec![Interface::Address([192, 0, 2, 1].into())]);
        assert!(elsewhere.check().is_err_and(|reason| reason.contains("192.0.2.1")));
    }
}
