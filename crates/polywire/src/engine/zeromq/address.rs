//! Addresses of the engine: `bind/ENDPOINT[?OPTIONS]` or `connect/ENDPOINT[?OPTIONS]`.

use std::{fmt, net::IpAddr, str::FromStr};

/// The default high-water mark, which is also the default of libzmq: the number of messages that
/// may wait for a subscriber, or that may have arrived from a publisher.
const HWM: u32 = 1000;
/// The maximum number of endpoints in an address.
const MAX_ENDPOINTS: usize = 64;
/// The suffix that a ZeroMQ socket's path gets for the socket at which nodes connect to each other.
const NODES: &str = ".nodes";

/// An endpoint of ZeroMQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SocketEndpoint {
    /// The port is 0 if the system is to choose it.
    Tcp {
        host: String,
        port: u16,
    },
    Ipc(String),
    Inproc(String),
}

/// Whether and where nodes connect to each other directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nodes {
    /// Other nodes are treated as foreign applications, which do not use Polywire.
    Off,
    /// The TCP port at which this node listens for other nodes. 0 lets the system choose it.
    On(u16),
}

#[derive(Clone, Debug)]
pub(super) struct Address {
    /// The endpoints that the publishing socket binds, and those that it connects to.
    pub(super) bind: Vec<SocketEndpoint>,
    pub(super) connect_pub: Vec<SocketEndpoint>,
    /// The endpoints that subscribing sockets connect to, and those that one of them binds.
    pub(super) connect: Vec<SocketEndpoint>,
    pub(super) bind_sub: Vec<SocketEndpoint>,
    pub(super) nodes: Nodes,
    pub(super) high_water_mark: u32,
    /// Whether messages have a third frame, which names their encoding.
    pub(super) has_encoding: bool,
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Address, String> {
        let (first, settings) = text.split_once('?').map_or((text, None), |(first, rest)| (first, Some(rest)));
        let mut address = Address {
            bind: Vec::new(),
            connect_pub: Vec::new(),
            connect: Vec::new(),
            bind_sub: Vec::new(),
            nodes: Nodes::On(0),
            high_water_mark: HWM,
            has_encoding: false,
        };
        match first.split_once('/') {
            Some(("bind", endpoint)) => address.bind.push(bound(endpoint)?),
            Some(("connect", endpoint)) => address.connect.push(connected(endpoint)?),
            _ => return Err("it begins with 'bind/' or 'connect/', and an endpoint of ZeroMQ follows".into()),
        }
        settings.into_iter().flat_map(|all| all.split(',')).try_for_each(|setting| address.set(setting))?;
        let lists = [&address.bind, &address.connect_pub, &address.connect, &address.bind_sub];
        match lists.iter().map(|list| list.len()).sum::<usize>() > MAX_ENDPOINTS {
            true => Err(format!("there are more than {MAX_ENDPOINTS} endpoints")),
            false => Ok(address),
        }
    }

    fn set(&mut self, setting: &str) -> Result<(), String> {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        match key {
            "bind" => self.bind.push(bound(value)?),
            "bind-sub" => self.bind_sub.push(bound(value)?),
            "connect" => self.connect.push(connected(value)?),
            "connect-pub" => self.connect_pub.push(connected(value)?),
            "encoding" if value == "on" => self.has_encoding = true,
            "encoding" if value == "off" => self.has_encoding = false,
            "encoding" => return Err(format!("'{value}' is neither 'on' nor 'off'")),
            "hwm" => {
                let most = value.parse().ok().filter(|most| *most > 0);
                self.high_water_mark = most.ok_or_else(|| format!("'{value}' is no number of messages"))?;
            }
            "nodes" if value == "off" => self.nodes = Nodes::Off,
            "nodes" => {
                let port = value.parse().map_err(|_| format!("'{value}' is neither 'off' nor a TCP port"))?;
                self.nodes = Nodes::On(port);
            }
            _ => {
                let all = "bind, bind-sub, connect, connect-pub, encoding, hwm, nodes";
                return Err(format!("'{key}' is no option; there are {all}"));
            }
        }
        Ok(())
    }

    /// Returns whether this node publishes for foreign applications.
    pub(super) fn publishes(&self) -> bool {
        !self.bind.is_empty() || !self.connect_pub.is_empty()
    }

    /// Returns whether an endpoint is `inproc`, so that the sockets must use the process's context.
    pub(super) fn is_inproc(&self) -> bool {
        let mut all = self.bind.iter().chain(&self.connect_pub).chain(&self.connect).chain(&self.bind_sub);
        all.any(|endpoint| matches!(endpoint, SocketEndpoint::Inproc(_)))
    }
}

impl SocketEndpoint {
    /// Returns the endpoint to bind, in ZeroMQ's notation.
    pub(super) fn to_bind(&self) -> String {
        match self {
            SocketEndpoint::Tcp { host, port: 0 } => format!("tcp://{host}:*"),
            other => other.to_string(),
        }
    }

    /// Returns whether other machines can reach the endpoint when it is bound.
    pub(super) fn is_exposed(&self) -> bool {
        match self {
            SocketEndpoint::Tcp { host, .. } => {
                !bare(host).parse::<IpAddr>().is_ok_and(|host| host.to_canonical().is_loopback())
            }
            SocketEndpoint::Ipc(_) | SocketEndpoint::Inproc(_) => false,
        }
    }

    /// Returns the path at which nodes connect to each other, for the path of a ZeroMQ socket.
    pub(super) fn path_of_nodes(path: &str) -> String {
        format!("{path}{NODES}")
    }
}

impl FromStr for SocketEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<SocketEndpoint, String> {
        let wrong = || format!("'{text}' is no endpoint, as tcp://127.0.0.1:5556, ipc:///tmp/a and inproc://a are");
        let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let (transport, rest) = text.split_once("://").filter(|(_, rest)| is_plain(rest)).ok_or_else(wrong)?;
        match transport {
            "tcp" => {
                let (host, port) = rest.rsplit_once(':').filter(|(host, _)| !host.is_empty()).ok_or_else(wrong)?;
                let port = if port == "*" { 0 } else { port.parse().map_err(|_| wrong())? };
                Ok(SocketEndpoint::Tcp { host: host.into(), port })
            }
            "ipc" if rest.starts_with(['*', '@']) => Err(format!("'{text}' needs a path")),
            "ipc" => Ok(SocketEndpoint::Ipc(rest.into())),
            "inproc" => Ok(SocketEndpoint::Inproc(rest.into())),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for SocketEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketEndpoint::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            SocketEndpoint::Ipc(path) => write!(f, "ipc://{path}"),
            SocketEndpoint::Inproc(name) => write!(f, "inproc://{name}"),
        }
    }
}

fn bound(text: &str) -> Result<SocketEndpoint, String> {
    let endpoint: SocketEndpoint = text.parse()?;
    match &endpoint {
        SocketEndpoint::Tcp { host, .. } if host != "*" && bare(host).parse::<IpAddr>().is_err() => {
            Err(format!("'{text}' is to be bound: it needs an IP address of this machine, or *"))
        }
        _ => Ok(endpoint),
    }
}

fn connected(text: &str) -> Result<SocketEndpoint, String> {
    let endpoint: SocketEndpoint = text.parse()?;
    match &endpoint {
        SocketEndpoint::Tcp { host, port } if *port == 0 || host == "*" => {
            Err(format!("'{text}' is to be connected to: it needs a host and a port"))
        }
        _ => Ok(endpoint),
    }
}

/// A host without the brackets of IPv6.
pub(super) fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_what_is_bound_and_what_is_connected() {
        let plain = Address::parse("bind/tcp://127.0.0.1:0").expect("valid");
        assert_eq!(plain.bind, [SocketEndpoint::Tcp { host: "127.0.0.1".into(), port: 0 }]);
        assert_eq!((plain.bind[0].to_bind(), plain.nodes), ("tcp://127.0.0.1:*".into(), Nodes::On(0)));
        assert!(plain.publishes() && !plain.is_inproc() && !plain.bind[0].is_exposed());
        let text = "connect/ipc:///tmp/a?connect=tcp://[::1]:7,bind-sub=tcp://*:8,connect-pub=inproc://x,nodes=off,\
                    hwm=9,encoding=on";
        let all = Address::parse(text).expect("valid");
        assert_eq!(
            all.connect,
            [SocketEndpoint::Ipc("/tmp/a".into()), SocketEndpoint::Tcp { host: "[::1]".into(), port: 7 }]
        );
        assert_eq!((all.bind_sub[0].to_string(), all.nodes, all.high_water_mark), ("tcp://*:8".into(), Nodes::Off, 9));
        assert!(all.has_encoding && all.publishes() && all.is_inproc() && all.bind_sub[0].is_exposed());
        assert_eq!(Address::parse("bind/inproc://a?nodes=7").expect("valid").nodes, Nodes::On(7));
    }

    #[test]
    fn mistakes_are_named() {
        let many = format!("connect/tcp://a:1?{}", vec!["connect=tcp://a:1"; MAX_ENDPOINTS].join(","));
        for (text, part) in [
            ("", "'bind/' or 'connect/'"),
            ("tcp://127.0.0.1:5556", "'bind/' or 'connect/'"),
            ("bind/127.0.0.1:5556", "is no endpoint"),
            ("bind/tcp://127.0.0.1", "is no endpoint"),
            ("bind/tcp://:7", "is no endpoint"),
            ("bind/carrier://pigeon", "is no endpoint"),
            ("bind/ipc://", "is no endpoint"),
            ("bind/ipc://@a", "needs a path"),
            ("bind/tcp://localhost:7", "an IP address of this machine"),
            ("connect/tcp://a:0", "needs a host and a port"),
            ("connect/tcp://*:7", "needs a host and a port"),
            ("bind/tcp://*:7?speed=9", "'speed' is no option"),
            ("bind/tcp://*:7?nodes=on", "neither 'off' nor a TCP port"),
            ("bind/tcp://*:7?hwm=0", "no number of messages"),
            ("bind/tcp://*:7?encoding=yes", "neither 'on' nor 'off'"),
            (&many, "more than 64"),
        ] {
            let error = Address::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
