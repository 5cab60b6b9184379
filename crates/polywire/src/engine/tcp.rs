//! TCP over IPv4 and IPv6.
//!
//! ```
//! use polywire::{engine::{tcp::{Tcp, TcpConnect, TcpListen}, Engine}, Node};
//! assert_eq!([Tcp.name(), TcpListen.name(), TcpConnect.name()], ["tcp", "tcp-listen", "tcp-connect"]);
//!
//! // The system chooses a port; other nodes connect to the endpoint that `open` returns.
//! let listening = Node::new();
//! let endpoint = listening.open("tcp-listen/127.0.0.1:0")?;
//! assert!(endpoint.starts_with("tcp/127.0.0.1:") && !endpoint.ends_with(":0"));
//! // A second listener at this address is an error.
//! assert!(Node::new().open(&endpoint.replace("tcp/", "tcp-listen/")).is_err());
//!
//! // For few messages at a time over a network that loses packets (`EngineOptions::thin`).
//! let thin = listening.open("tcp-listen/127.0.0.1:0?thin")?;
//! assert!(thin.ends_with("?thin"));
//! # Ok::<(), polywire::NodeError>(())
//! ```

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use super::{
    Engine, EngineError, EngineOptions, Local, Port, Properties, Sink,
    sockets::{self, Family, engine, set_buffers},
    stream::{PROPERTIES, Role},
};

/// `tcp/ADDR[?thin]`: listens if the address is local and free, and connects otherwise. The port
/// that listens relays messages between the ports that connect. A host name is resolved again at
/// each attempt, so its address may change, or become known later.
pub struct Tcp;
/// `tcp-listen/ADDR[?thin]`: listens; opening fails if it cannot. Does not relay.
pub struct TcpListen;
/// `tcp-connect/ADDR[?thin]`: connects, and keeps trying.
pub struct TcpConnect;

pub(super) static FAMILY: Inet = Inet;

engine!(Tcp, "tcp", Role::Either, "127.0.0.1:7460", "TCP: listens if the address is free here, else connects");
engine!(TcpListen, "tcp-listen", Role::Listen, "0.0.0.0:7460", "TCP, listening");
engine!(TcpConnect, "tcp-connect", Role::Connect, "192.0.2.1:7460", "TCP, connecting");

pub(super) struct Inet;

impl Family for Inet {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn configure<'a>(&self, address: &'a str, options: &mut EngineOptions) -> Result<&'a str, String> {
        let Some((place, settings)) = address.split_once('?') else { return Ok(address) };
        for setting in settings.split(',') {
            match setting {
                "thin" => options.thin = true,
                other => return Err(format!("'{other}' is no option; there is thin")),
            }
        }
        Ok(place)
    }

    fn check(&self, address: &str) -> Result<(), String> {
        parts(address).map(drop)
    }

    fn resolve(&self, address: &str, patience: Duration) -> io::Result<Vec<SockAddr>> {
        let (host, port) = parts(address).map_err(|reason| io::Error::new(io::ErrorKind::InvalidInput, reason))?;
        if host.is_empty() || host == "*" {
            let any = [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()];
            return Ok(any.map(|any| SocketAddr::from((any, port)).into()).into());
        }
        let unknown = |e| io::Error::new(io::ErrorKind::HostUnreachable, format!("'{host}' cannot be resolved: {e}"));
        let found = match host.parse() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_) => look_up(host, port, patience).map_err(unknown)?,
        };
        Ok(found.into_iter().map(SockAddr::from).collect())
    }

    fn listen(&self, address: &SockAddr, options: &EngineOptions) -> io::Result<Socket> {
        let socket = Socket::new(address.domain(), Type::STREAM, None)?;
        // A restarted listener must not wait until old connections leave TIME_WAIT.
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        if address.domain() == Domain::IPV6 {
            socket.set_only_v6(!address.as_socket_ipv6().is_some_and(|a| a.ip().is_unspecified()))?;
        }
        set_buffers(&socket, options)?;
        limit_segments(&socket, options);
        socket.bind(address)?;
        socket.listen(1024)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    fn connect(&self, address: &SockAddr, options: &EngineOptions) -> io::Result<Socket> {
        let socket = Socket::new(address.domain(), Type::STREAM, None)?;
        set_buffers(&socket, options)?;
        limit_segments(&socket, options);
        socket.connect_timeout(address, options.connect_timeout)?;
        Ok(socket)
    }

    fn tune(&self, socket: &Socket, options: &EngineOptions) -> io::Result<()> {
        socket.set_nonblocking(false)?;
        let socket = SockRef::from(socket);
        socket.set_tcp_nodelay(options.no_delay || options.thin)?;
        if options.thin {
            serve_thin_streams(&socket, options)?;
        }
        let probes = TcpKeepalive::new().with_time(options.keepalive).with_interval(options.keepalive / 3);
        socket.set_tcp_keepalive(&probes)
    }

    fn describe(&self, address: &SockAddr) -> String {
        match address.as_socket() {
            // A socket for both families reports IPv4 peers by IPv4-mapped IPv6 addresses.
            Some(SocketAddr::V6(address)) if address.ip().to_ipv4_mapped().is_some() => {
                SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
            }
            Some(address) => address.to_string(),
            None => "?".into(),
        }
    }

    fn unbound(&self, _: &SockAddr) {}

    fn is_exposed(&self, address: &SockAddr) -> bool {
        address.as_socket().is_none_or(|address| !address.ip().to_canonical().is_loopback())
    }
}

/// Returns the host, without brackets, and the port of an address.
fn parts(address: &str) -> Result<(&str, u16), String> {
    let (host, port) = address.rsplit_once(':').ok_or("the port is missing")?;
    let port = port.parse().map_err(|_| format!("'{port}' is not a port number"))?;
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(bare) => Ok((bare, port)),
        None if host.contains(':') => Err("an IPv6 address must be in brackets".into()),
        None => Ok((host, port)),
    }
}

/// Asks the system for the addresses of a name, on a thread of its own: the system may take much
/// longer than a closing port may wait.
fn look_up(host: &str, port: u16, patience: Duration) -> io::Result<Vec<SocketAddr>> {
    let (tell, told) = mpsc::channel();
    let host = host.to_owned();
    let ask = move || tell.send((host, port).to_socket_addrs().map(Vec::from_iter));
    thread::Builder::new().name("pw-tcp-name".into()).spawn(ask)?;
    told.recv_timeout(patience).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Sets the options of Linux for streams with few segments in flight. With few segments, the system
/// cannot detect early that one of them was lost.
#[cfg(target_os = "linux")]
fn serve_thin_streams(socket: &Socket, options: &EngineOptions) -> io::Result<()> {
    /// About the most unsent bytes that wait in the system. A new message waits for these bytes.
    const UNSENT: u32 = 16 << 10;
    socket.set_tcp_thin_linear_timeouts(true)?;
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.set_tcp_user_timeout(Some(options.keepalive))
}

/// Does nothing: other systems have no such options.
#[cfg(not(target_os = "linux"))]
fn serve_thin_streams(_: &Socket, _: &EngineOptions) -> io::Result<()> {
    Ok(())
}

/// Asks the peer for segments of which several fit into a small receive buffer.
///
/// Linux sizes segments by the largest window that it has seen, sends no part of a segment into a
/// smaller window, and probes such a window only every 200 ms. So if a small buffer never offers
/// that window again, data crawls although the buffer is empty.
#[cfg(target_os = "linux")]
fn limit_segments(socket: &Socket, options: &EngineOptions) {
    /// A receive buffer should hold at least this many segments.
    const SEGMENTS: usize = 4;
    /// The largest segment that `TCP_MAXSEG` can ask for.
    const LARGEST: usize = 32_767;
    /// The segment size that every IPv4 path carries.
    const SMALLEST: usize = 536;
    let wanted = options.receive_buffer.map(|bytes| (bytes / SEGMENTS).max(SMALLEST));
    if let Some(bytes) = wanted.filter(|bytes| *bytes <= LARGEST) {
        // If the system refuses the size, a small buffer is slow.
        let _ = socket.set_tcp_mss(bytes as u32);
    }
}

/// Does nothing: other systems are not known to need it.
#[cfg(not(target_os = "linux"))]
fn limit_segments(_: &Socket, _: &EngineOptions) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn thin_streams_are_an_option_of_addresses() {
        let mut options = EngineOptions { no_delay: false, ..EngineOptions::default() };
        assert_eq!((Inet.configure("a:1", &mut options), options.thin), (Ok("a:1"), false));
        for (wrong, named) in
            [("a:1?", "''"), ("a:1?thick", "'thick'"), ("a:1?thin,", "''"), ("a:1?thin=on", "'thin=on'")]
        {
            let refused = Inet.configure(wrong, &mut EngineOptions::default()).expect_err(wrong);
            assert_eq!(refused, format!("{named} is no option; there is thin"));
        }
        for thin in [false, true] {
            let address = if thin { "[::1]:1?thin" } else { "[::1]:1" };
            assert_eq!(Inet.configure(address, &mut options), Ok("[::1]:1"));
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            Inet.tune(&socket, &options).expect("it is tuned");
            assert_eq!(socket.tcp_thin_linear_timeouts().expect("an option"), thin);
            assert_eq!(socket.tcp_nodelay().expect("an option"), thin);
            assert_eq!(socket.tcp_notsent_lowat().expect("an option") == 16 << 10, thin);
            assert_eq!(socket.tcp_user_timeout().expect("an option"), thin.then_some(options.keepalive));
        }
    }

    #[test]
    fn peers_send_segments_of_which_several_go_into_a_small_receive_buffer() {
        let small = EngineOptions { receive_buffer: Some(8 << 10), ..EngineOptions::default() };
        for (listens, calls) in [(&small, &EngineOptions::default()), (&EngineOptions::default(), &small)] {
            let any = SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0)));
            let listener = Inet.listen(&any, listens).expect("a listener");
            listener.set_nonblocking(false).expect("it waits");
            let caller = Inet.connect(&listener.local_addr().expect("an address"), calls).expect("a connection");
            let (accepted, _) = listener.accept().expect("it is accepted");
            let peer = if listens == &small { &caller } else { &accepted };
            assert!(peer.tcp_mss().expect("it is TCP") <= 2 << 10);
        }
    }
}
