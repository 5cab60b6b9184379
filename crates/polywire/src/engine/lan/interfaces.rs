//! The network interfaces of this machine, and which of them an address selects.

use std::net::IpAddr;

use mdns_sd::{IfKind, InterfaceId};

use super::address::Interface;
use crate::{engine::sockets::is_loopback, system};

/// The interfaces that an address names; all if it names none.
#[derive(Clone, Debug)]
pub(super) struct Selection(Vec<Interface>);

impl Selection {
    pub(super) fn new(interfaces: Vec<Interface>) -> Selection {
        Selection(interfaces)
    }

    /// Returns whether a connection to this address of the machine arrived over a selected
    /// interface.
    pub(super) fn takes(&self, local: IpAddr) -> bool {
        let is_here = |found: system::Interface| found.address == Some(local) && self.selects(&found);
        self.0.is_empty() || system::interfaces().any(is_here)
    }

    /// Returns whether another machine can reach an interface that is selected.
    pub(super) fn is_exposed(&self) -> bool {
        let is_inside = |interface: &Interface| match interface {
            Interface::Address(ip) => ip.to_canonical().is_loopback(),
            Interface::Name(name) => is_loopback(name),
        };
        self.0.is_empty() || !self.0.iter().all(is_inside)
    }

    /// Returns the interfaces that DNS-SD is to use; `None` for all.
    pub(super) fn kinds(&self) -> Option<Vec<IfKind>> {
        let kind = |interface: &Interface| match interface {
            Interface::Address(ip) => IfKind::Addr(*ip),
            Interface::Name(name) => IfKind::Name(name.clone()),
        };
        (!self.0.is_empty()).then(|| self.0.iter().map(kind).collect())
    }

    /// Fails if a named interface does not exist.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_there = |interface: &&Interface| system::interfaces().any(|found| is(&found, interface));
        match self.0.iter().find(|interface| !is_there(interface)) {
            None => Ok(()),
            Some(Interface::Name(name)) => Err(format!("there is no interface '{name}' here")),
            Some(Interface::Address(ip)) => Err(format!("no interface here has the address {ip}")),
        }
    }

    fn selects(&self, found: &system::Interface) -> bool {
        self.0.iter().any(|interface| is(found, interface))
    }
}

/// Returns whether a record arrived only over interfaces that reach nobody but this machine.
pub(super) fn came_from_here(seen: &[InterfaceId]) -> bool {
    !seen.is_empty() && seen.iter().all(|interface| is_loopback(&interface.name))
}

fn is(found: &system::Interface, interface: &Interface) -> bool {
    match interface {
        Interface::Name(name) => found.name == *name,
        Interface::Address(wanted) => found.address == Some(*wanted),
    }
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
