//! Processes of this machine that have ports of Polywire. They are recognized by the names of their
//! threads. A port without TLS that other machines can reach is a warning.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    net::{IpAddr, SocketAddr, TcpStream},
    time::Duration,
};

use polywire::extend::frame::MAGIC;

use super::{Finding, network};

/// The time limit for a node without TLS to send its greeting to a client.
const SOON: Duration = Duration::from_millis(500);
/// The first bytes that ZeroMQ sends on each connection: ZMTP 3.1, section 3.3.
const ZEROMQ: [u8; 2 + MAGIC.len()] = [0xff, 0, 0, 0, 0, 0];
/// From this number on, a port may have been assigned by the system to a socket that only sends.
const CHOSEN: u16 = 32_768;
/// The states of sockets in `/proc/net`.
const LISTENS: u8 = 0x0a;
const UNCONNECTED: u8 = 0x07;

pub fn check() -> Vec<Finding> {
    let sockets = Sockets::read();
    let processes = processes();
    if processes.is_empty() {
        return vec![Finding::ok("processes", "none here has a port of Polywire")];
    }
    processes.iter().map(|process| of(process, &sockets.of(&process.sockets), speaks_openly)).collect()
}

/// A process with threads of Polywire.
struct Process {
    id: u32,
    name: String,
    /// The inodes of its sockets; empty for a process of another user.
    sockets: Vec<u64>,
}

fn of(process: &Process, ports: &[Port], speaks_openly: impl Fn(SocketAddr) -> bool) -> Finding {
    let who = format!("{} ({})", process.name, process.id);
    let is_open = |port: &&Port| !port.address.ip().to_canonical().is_loopback();
    let open: Vec<&Port> = ports.iter().filter(is_open).collect();
    let plain: Vec<String> =
        open.iter().filter(|port| port.is_udp || speaks_openly(port.address)).map(|port| port.to_string()).collect();
    if !plain.is_empty() {
        return Finding::warning(
            "processes",
            format!("{who} is open to other machines without TLS at {}", plain.join(", ")),
            "use tls/, an identity with lan/, or an address of this machine",
        );
    }
    match ports {
        [] => Finding::ok("processes", format!("{who} listens nowhere that could be seen")),
        ports => {
            let all: Vec<String> = ports.iter().map(ToString::to_string).collect();
            Finding::ok("processes", format!("{who} listens at {}", all.join(", ")))
        }
    }
}

/// Returns whether a node of Polywire, or its ZeroMQ socket, answers at this address without TLS:
/// it sends a greeting at once. It may accept connections only at some interfaces.
fn speaks_openly(address: SocketAddr) -> bool {
    let ips = if address.ip().is_unspecified() { reachable() } else { vec![address.ip()] };
    ips.into_iter().any(|ip| introduces_itself((ip, address.port()).into()))
}

fn introduces_itself(address: SocketAddr) -> bool {
    let connected = TcpStream::connect_timeout(&address, SOON);
    let said = connected.and_then(|mut stream| {
        // The length and the kind of the frame precede the magic bytes.
        let mut first = [0; 2 + MAGIC.len()];
        stream.set_read_timeout(Some(SOON))?;
        stream.read_exact(&mut first).map(|()| first)
    });
    said.is_ok_and(|first| first.ends_with(&MAGIC) || first == ZEROMQ)
}

/// Returns the addresses by which other machines reach this one. Link-local addresses are left out,
/// because they also require the name of the link.
fn reachable() -> Vec<IpAddr> {
    let others = network::interfaces(&[]).into_iter().filter(|interface| !interface.is_loopback);
    let ips = others.flat_map(|interface| {
        let v6 = interface.v6.into_iter().filter(|v6| !v6.is_unicast_link_local()).map(IpAddr::from);
        interface.v4.into_iter().map(IpAddr::from).chain(v6)
    });
    ips.collect()
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| *id != std::process::id() && has_ports(*id)).map(process).collect()
}

/// Returns whether a process has a thread whose name is one of Polywire's ports.
fn has_ports(id: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let mut names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|name| name.starts_with("pw-"))
}

fn process(id: u32) -> Process {
    let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default().trim().to_owned();
    let files = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    let sockets = links.filter_map(|link| {
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        inode.parse().ok()
    });
    Process { id, name, sockets: sockets.collect() }
}

/// A port at which a process listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Port {
    address: SocketAddr,
    is_udp: bool,
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", if self.is_udp { "UDP" } else { "TCP" }, self.address)
    }
}

/// The listening sockets of this machine, by inode.
struct Sockets(BTreeMap<u64, Port>);

impl Sockets {
    fn read() -> Sockets {
        let table = |name: &str| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
        let tables = [("tcp", LISTENS), ("tcp6", LISTENS), ("udp", UNCONNECTED), ("udp6", UNCONNECTED)];
        Sockets(tables.into_iter().flat_map(|(name, state)| parse(&table(name), state)).collect())
    }

    fn of(&self, inodes: &[u64]) -> Vec<Port> {
        inodes.iter().filter_map(|inode| self.0.get(inode).copied()).collect()
    }
}

/// Parses the sockets of a table of `/proc/net` that are in a state, by inode. Leaves out UDP
/// sockets that only send, and the one of multicast DNS.
fn parse(table: &str, wanted: u8) -> Vec<(u64, Port)> {
    let is_udp = wanted == UNCONNECTED;
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
        let address = address(local)?;
        let is_wanted = u8::from_str_radix(state, 16) == Ok(wanted);
        let only_sends = is_udp && !address.ip().is_multicast() && address.port() >= CHOSEN;
        let is_dns = is_udp && address.port() == 5353;
        (is_wanted && !only_sends && !is_dns).then_some((inode.parse().ok()?, Port { address, is_udp }))
    };
    table.lines().skip(1).filter_map(line).collect()
}

/// Parses `0100007F:1D25`: 32-bit words in the byte order of the machine, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            IpAddr::from(<[u8; 16]>::try_from(words.concat()).ok()?)
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    #[test]
    #[cfg(target_endian = "little")]
    fn tables_of_the_system_are_read() {
        let line = |local: &str, state: &str, inode: u32| {
            format!("   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0  0 {inode} 1 0\n")
        };
        let table = [HEAD.into(), line("0100007F:1D25", "0A", 7), line("00000000:0050", "01", 8)].concat();
        let lo = Port { address: "127.0.0.1:7461".parse().expect("an address"), is_udp: false };
        assert_eq!(parse(&table, LISTENS), [(7, lo)]);
        let v6 = [HEAD.into(), line("00000000000000000000000001000000:1D25", "0A", 9)].concat();
        assert_eq!(parse(&v6, LISTENS)[0].1.address.to_string(), "[::1]:7461");
        let udp = ["030201EF:1CE8", "00000000:C000", "00000000:14E9", "00000000:1CE8"].map(|at| line(at, "07", 1));
        let found = parse(&[HEAD.into(), udp.concat()].concat(), UNCONNECTED);
        let found: Vec<String> = found.iter().map(|(_, port)| port.to_string()).collect();
        assert_eq!(found, ["UDP 239.1.2.3:7400", "UDP 0.0.0.0:7400"]);
        assert!(parse("garbage\nmore garbage of : : 0A 0 0 0 0 0 0\n", LISTENS).is_empty());
    }

    #[test]
    fn a_process_that_other_machines_can_reach_is_told_unless_it_uses_tls() {
        let process = Process { id: 7, name: "pump".into(), sockets: Vec::new() };
        let port = |text: &str, is_udp| Port { address: text.parse().expect("an address"), is_udp };
        let tcp = port("0.0.0.0:7461", false);
        let open = of(&process, &[tcp], |_| true);
        assert!(open.state == State::Warning && open.found.contains("pump (7)"), "{open:?}");
        assert_eq!(of(&process, &[tcp], |_| false).state, State::Ok);
        assert_eq!(of(&process, &[port("239.1.2.3:7400", true)], |_| false).state, State::Warning);
        assert_eq!(of(&process, &[port("[::1]:7461", false)], |_| true).state, State::Ok);
        assert_eq!(of(&process, &[], |_| true).state, State::Ok);
    }

    #[test]
    fn nodes_and_zeromq_introduce_themselves_and_others_do_not() {
        let node = polywire::Node::new();
        let at = |endpoint: &str| {
            let endpoint = node.open(endpoint).expect("it opens");
            endpoint.rsplit('/').next().and_then(|address| address.parse().ok()).expect("an address")
        };
        assert!(introduces_itself(at("tcp-listen/127.0.0.1:0")));
        #[cfg(feature = "zeromq")]
        assert!(introduces_itself(at("zeromq/bind/tcp://127.0.0.1:0?nodes=off")));
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        assert!(!introduces_itself(silent.local_addr().expect("bound")));
    }
}
