//! The network interfaces of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags};

use super::{Finding, system::read_number};

/// The smallest MTU at which a packet of the UDP engines, with 1400 bytes, fits over IPv6.
const MTU: u64 = 1448;

/// An interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub is_loopback: bool,
    /// Whether a cable is plugged in, or a wireless network is joined.
    pub is_running: bool,
    pub v4: Vec<Ipv4Addr>,
    pub v6: Vec<Ipv6Addr>,
    pub mtu: Option<u64>,
}

/// Returns the interfaces that are up: those with the given names, or all.
pub fn interfaces(named: &[String]) -> Vec<Interface> {
    let mut found: Vec<Interface> = Vec::new();
    for entry in getifaddrs().into_iter().flatten() {
        let name = entry.interface_name;
        let is_wanted = named.is_empty() || named.contains(&name);
        if !is_wanted || !entry.flags.contains(InterfaceFlags::IFF_UP) {
            continue;
        }
        if !found.iter().any(|interface| interface.name == name) {
            found.push(Interface {
                is_loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
                is_running: entry.flags.contains(InterfaceFlags::IFF_RUNNING),
                v4: Vec::new(),
                v6: Vec::new(),
                mtu: read_number(&format!("/sys/class/net/{name}/mtu")),
                name: name.clone(),
            });
        }
        let interface = found.iter_mut().find(|interface| interface.name == name);
        if let (Some(interface), Some(address)) = (interface, entry.address) {
            interface.v4.extend(address.as_sockaddr_in().map(|v4| v4.ip()));
            interface.v6.extend(address.as_sockaddr_in6().map(|v6| v6.ip()));
        }
    }
    found
}

pub fn check(interfaces: &[Interface], named: &[String]) -> Vec<Finding> {
    let missing = named.iter().filter(|name| !interfaces.iter().any(|interface| interface.name == **name));
    let mut findings: Vec<Finding> = missing
        .map(|name| {
            Finding::problem(name, "no such interface is up", format!("ip link set {name} up, or name another"))
        })
        .collect();
    findings.extend(interfaces.iter().map(of));
    if named.is_empty() && interfaces.iter().all(|interface| interface.is_loopback) {
        let advice = "connect it, or use 'local', which needs no network";
        findings.push(Finding::warning("network", "no interface reaches another machine", advice));
    }
    findings
}

fn of(interface: &Interface) -> Finding {
    let Interface { name, is_loopback, is_running, v4, v6, mtu } = interface;
    let addresses = v4.iter().copied().map(IpAddr::from).chain(v6.iter().copied().map(IpAddr::from));
    let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    let mtu_shown = mtu.map_or(String::new(), |mtu| format!(", MTU {mtu}"));
    let found = format!("up, {}{mtu_shown}", addresses.join(" "));
    if !is_running && !is_loopback {
        return Finding::warning(name, format!("up without a link{mtu_shown}"), "check its cable or wireless network");
    }
    if addresses.is_empty() {
        let advice = format!("give it one, as by DHCP or ip address add .. dev {name}");
        return Finding::warning(name, format!("up without an address{mtu_shown}"), advice);
    }
    match mtu {
        Some(mtu) if *mtu < MTU => Finding::warning(
            name,
            found,
            format!("give udp addresses packet={}, so that packets need no fragments", mtu.saturating_sub(48)),
        ),
        _ => Finding::ok(name, found),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    fn interface() -> Interface {
        Interface {
            name: "eth0".into(),
            is_loopback: false,
            is_running: true,
            v4: vec![Ipv4Addr::new(192, 0, 2, 1)],
            v6: vec![Ipv6Addr::LOCALHOST],
            mtu: Some(1500),
        }
    }

    #[test]
    fn interfaces_are_judged_by_link_address_and_mtu() {
        assert_eq!(of(&interface()), Finding::ok("eth0", "up, 192.0.2.1 ::1, MTU 1500"));
        let narrow = of(&Interface { mtu: Some(1280), ..interface() });
        assert!(narrow.state == State::Warning && narrow.advice.contains("packet=1232"), "{narrow:?}");
        assert!(of(&Interface { is_running: false, ..interface() }).found.contains("without a link"));
        let bare = Interface { v4: Vec::new(), v6: Vec::new(), ..interface() };
        assert!(of(&bare).found.contains("without an address"));
    }

    #[test]
    fn a_machine_without_a_network_is_told() {
        let lo = Interface { name: "lo".into(), is_loopback: true, ..interface() };
        let alone = check(std::slice::from_ref(&lo), &[]);
        assert!(alone.iter().any(|finding| finding.check == "network" && finding.state == State::Warning));
        let missing = check(&[lo], &["eth7".into()]);
        assert_eq!((missing[0].check.as_str(), missing[0].state), ("eth7", State::Problem));
        assert!(interfaces(&["lo".into()]).iter().all(|interface| interface.is_loopback));
    }
}
