//! Addresses of the engine: `DOMAIN[?OPTIONS]`.

use std::net::IpAddr;

use crate::engine::domain;

/// The port at which the first node of domain 0 on a machine listens. The port of domain `n` is
/// higher by `n`.
const FIRST_PORT: u16 = 7461;
/// The most interfaces, and the most peers, that an address may name.
const MAX_ENTRIES: usize = 64;

/// A parsed address: where nodes meet, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) domain: u8,
    /// The interfaces over which peers are found and accepted; all if the list is empty.
    pub(super) interfaces: Vec<Interface>,
    /// Peers to call even if DNS-SD does not name them, as `HOST:PORT`.
    pub(super) peers: Vec<String>,
    /// Whether DNS-SD is used.
    pub(super) is_multicast: bool,
    /// The port to listen at. `None`: [`Address::usual_port`] if it is free, else the system
    /// chooses.
    pub(super) port: Option<u16>,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Interface {
    Address(IpAddr),
    Name(String),
}

impl Interface {
    /// Returns an interface by its address or its name.
    pub(super) fn of(text: &str) -> Interface {
        text.parse().map_or_else(|_| Interface::Name(text.into()), Interface::Address)
    }
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Address, String> {
        let (number, settings) = text.split_once('?').map_or((text, None), |(number, rest)| (number, Some(rest)));
        let domain = domain::parse(number)?;
        let mut address = Address { domain, interfaces: Vec::new(), peers: Vec::new(), is_multicast: true, port: None };
        settings.into_iter().flat_map(|all| all.split(',')).try_for_each(|setting| address.set(setting))?;
        match address.interfaces.len().max(address.peers.len()) > MAX_ENTRIES {
            true => Err(format!("there are more than {MAX_ENTRIES} interfaces or peers")),
            false => Ok(address),
        }
    }

    fn set(&mut self, setting: &str) -> Result<(), String> {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        match key {
            "interface" if value.is_empty() => return Err("an interface is a name or an address".into()),
            "interface" => self.interfaces.push(Interface::of(value)),
            "peer" => self.peers.push(peer(value, self.usual_port())?),
            "port" => self.port = Some(port(value)?),
            "multicast" => {
                self.is_multicast = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(format!("'{value}' is neither 'on' nor 'off'")),
                }
            }
            _ => return Err(format!("'{key}' is no option; there are interface, peer, port, multicast")),
        }
        Ok(())
    }

    /// Returns the port of the first node of the domain on a machine.
    pub(super) fn usual_port(&self) -> u16 {
        FIRST_PORT + u16::from(self.domain)
    }
}

/// Returns `HOST[:PORT]` with its port, or with the usual port if it has none.
fn peer(text: &str, usual: u16) -> Result<String, String> {
    let (host, port) = match text.rsplit_once(':') {
        // The colon may be one of an IPv6 address in brackets.
        Some((host, number)) if !number.ends_with(']') => (host, port(number)?),
        _ => (text, usual),
    };
    if host.is_empty() || host == "*" || port == 0 {
        return Err(format!("'{text}' names no peer, as 10.0.0.7 or robot.example:{usual} does"));
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(format!("'{text}': an IPv6 address stands in brackets"));
    }
    Ok(format!("{host}:{port}"))
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("'{text}' is no port number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_where_to_look() {
        let plain = Address::parse("7").expect("valid");
        assert_eq!((plain.domain, plain.usual_port(), plain.port, plain.is_multicast), (7, 7468, None, true));
        let text = "0?interface=eth0,interface=10.0.0.1,peer=10.0.0.7,peer=[fe80::1],peer=[::1]:9,peer=b:8,port=0";
        let address = Address::parse(text).expect("valid");
        let name = Interface::Name("eth0".into());
        assert_eq!(address.interfaces, [name, Interface::Address(IpAddr::from([10, 0, 0, 1]))]);
        assert_eq!(address.peers, ["10.0.0.7:7461", "[fe80::1]:7461", "[::1]:9", "b:8"]);
        assert_eq!((address.port, address.is_multicast), (Some(0), true));
        assert!(!Address::parse("0?multicast=off").expect("valid").is_multicast);
        // The largest domain has a port, too.
        assert_eq!(Address::parse("232").expect("valid").usual_port(), 7693);
    }

    #[test]
    fn mistakes_are_named() {
        let many = format!("0?{}", vec!["peer=a"; MAX_ENTRIES + 1].join(","));
        for (text, part) in [
            ("233", "0 to 232"),
            ("eth0", "0 to 232"),
            ("0?speed=9", "'speed' is no option"),
            ("0?", "'' is no option"),
            ("0?interface=", "a name or an address"),
            ("0?peer=", "names no peer"),
            ("0?peer=:7461", "names no peer"),
            ("0?peer=*:1", "names no peer"),
            ("0?peer=a:0", "names no peer"),
            ("0?peer=a:x", "no port number"),
            ("0?peer=::1:7461", "brackets"),
            ("0?port=70000", "no port number"),
            ("0?multicast=no", "neither 'on' nor 'off'"),
            (&many, "more than 64"),
        ] {
            let error = Address::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
