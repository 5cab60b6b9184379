//! The listeners of nodes that discover each other over ZeroMQ: a TCP port for a `tcp` endpoint, a
//! Unix-domain socket for an `ipc` endpoint, and a table of this process for `inproc`.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _},
    sync::Arc,
};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{
    super::{
        EngineOptions, Principal,
        sockets::{self, Family, SocketStream},
        stream::Connection,
        tcp, unix,
    },
    address::{SocketEndpoint, bare},
};
use crate::system::{self, Wake};

/// The callers that wait for the listeners of this process, by the name of the `inproc` endpoint.
static CALLERS: Mutex<Option<HashMap<String, InprocListener>>> = Mutex::new(None);

struct InprocListener {
    callers: Vec<Socket>,
    wake: Arc<Wake>,
}

/// The listeners of a node.
pub(super) struct NodeListeners {
    sockets: Vec<Bound>,
    inproc: Vec<String>,
    /// The TCP port; 0 if there is none.
    pub(super) port: u16,
    wake: Arc<Wake>,
    options: EngineOptions,
}

struct Bound {
    family: &'static dyn Family,
    socket: Socket,
    address: SockAddr,
}

impl NodeListeners {
    /// Opens a listener for each of these endpoints. For TCP, it uses this port, or any port if it
    /// is 0.
    pub(super) fn open(endpoints: &[SocketEndpoint], port: u16, options: &EngineOptions) -> io::Result<NodeListeners> {
        let wake = Arc::new(Wake::new()?);
        let mut listeners =
            NodeListeners { sockets: Vec::new(), inproc: Vec::new(), port, wake, options: options.clone() };
        for endpoint in endpoints {
            match endpoint {
                SocketEndpoint::Tcp { host, .. } => {
                    let host =
                        if host == "*" { Ok(Ipv4Addr::UNSPECIFIED.into()) } else { bare(host).parse::<IpAddr>() };
                    let host = host.map_err(|_| io::ErrorKind::InvalidInput)?;
                    listeners.bind(&tcp::FAMILY, SocketAddr::from((host, listeners.port)).into())?;
                    let bound = listeners.sockets.last().and_then(|bound| bound.address.as_socket());
                    listeners.port = bound.map_or(0, |bound| bound.port());
                }
                SocketEndpoint::Ipc(path) => {
                    listeners.bind(&unix::FAMILY, SockAddr::unix(SocketEndpoint::path_of_nodes(path))?)?
                }
                SocketEndpoint::Inproc(name) => {
                    let listener = InprocListener { callers: Vec::new(), wake: listeners.wake.clone() };
                    CALLERS.lock().get_or_insert_default().insert(name.clone(), listener);
                    listeners.inproc.push(name.clone());
                }
            }
        }
        if !listeners.sockets.iter().any(|bound| bound.address.as_socket().is_some()) {
            listeners.port = 0;
        }
        Ok(listeners)
    }

    fn bind(&mut self, family: &'static dyn Family, address: SockAddr) -> io::Result<()> {
        let socket = family.listen(&address, &self.options)?;
        let address = socket.local_addr()?;
        self.sockets.push(Bound { family, socket, address });
        Ok(())
    }

    /// Waits up to a second for a caller.
    pub(super) fn accept(&self) -> io::Result<Option<Connection>> {
        let mut waited = vec![PollFd::new(&*self.wake, PollFlags::IN)];
        waited.extend(self.sockets.iter().map(|bound| PollFd::new(&bound.socket, PollFlags::IN)));
        let _ = poll(&mut waited, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
        let is_ready: Vec<bool> = waited.iter().map(|waited| !waited.revents().is_empty()).collect();
        if is_ready.first() == Some(&true) {
            self.wake.clear();
        }
        for name in &self.inproc {
            let caller = CALLERS.lock().as_mut().and_then(|all| all.get_mut(name)?.callers.pop());
            if let Some(caller) = caller {
                // Others may have called before the wake-up was cleared.
                self.wake.wake();
                return Ok(Some(connection(caller)));
            }
        }
        for (Bound { family, socket, .. }, _) in self.sockets.iter().zip(&is_ready[1..]).filter(|(_, ready)| **ready) {
            match socket.accept() {
                Ok((caller, from)) => return sockets::connection(*family, caller, &from, &self.options).map(Some),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    pub(super) fn wake(&self) {
        self.wake.wake();
    }

    pub(super) fn close(&self) {
        for Bound { family, socket, address } in &self.sockets {
            // After this, nobody who finds the socket's file can take it for the file of a
            // listener.
            let _ = socket.shutdown(std::net::Shutdown::Both);
            family.unbound(address);
        }
        if let Some(all) = &mut *CALLERS.lock() {
            all.retain(|name, listener| !(self.inproc.contains(name) && Arc::ptr_eq(&listener.wake, &self.wake)));
        }
    }
}

/// Connects to the node that listens for an endpoint. For TCP, it uses this port of the same host.
pub(super) fn call(endpoint: &SocketEndpoint, port: u16, options: &EngineOptions) -> io::Result<Connection> {
    match endpoint {
        SocketEndpoint::Tcp { host, .. } => {
            let mut refused = io::Error::from(io::ErrorKind::NotFound);
            for to in (bare(host), port).to_socket_addrs()? {
                match tcp::FAMILY.connect(&to.into(), options) {
                    Ok(socket) => return sockets::connection(&tcp::FAMILY, socket, &to.into(), options),
                    Err(error) => refused = error,
                }
            }
            Err(refused)
        }
        SocketEndpoint::Ipc(path) => {
            let to = SockAddr::unix(SocketEndpoint::path_of_nodes(path))?;
            let socket = unix::FAMILY.connect(&to, options)?;
            sockets::connection(&unix::FAMILY, socket, &to, options)
        }
        SocketEndpoint::Inproc(name) => {
            let (here, there) = Socket::pair(Domain::UNIX, Type::STREAM, None)?;
            let mut callers = CALLERS.lock();
            let listener = callers.as_mut().and_then(|all| all.get_mut(name)).ok_or(io::ErrorKind::NotFound)?;
            listener.callers.push(there);
            listener.wake.wake();
            Ok(connection(here))
        }
    }
}

/// Returns a connection over one end of a socket pair within the process.
fn connection(socket: Socket) -> Connection {
    let principal = Principal::of_user(system::peer_of(&socket));
    Connection { stream: Arc::new(SocketStream::new(socket, principal)), address: "this process".into(), host: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_of_one_moment_are_accepted_without_a_pause() {
        let endpoint = SocketEndpoint::Inproc(format!("node-listeners-{}", std::process::id()));
        let options = EngineOptions::default();
        let listeners = NodeListeners::open(std::slice::from_ref(&endpoint), 0, &options).expect("it listens");
        let _callers = [(); 3].map(|()| call(&endpoint, 0, &options).expect("it is called"));
        for number in 1..=3 {
            let mut woken = [PollFd::new(&*listeners.wake, PollFlags::IN)];
            let is_woken = matches!(poll(&mut woken, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1));
            assert!(is_woken, "caller {number} would wait");
            assert!(listeners.accept().expect("it listens").is_some(), "caller {number}");
        }
        assert!(listeners.accept().expect("it listens").is_none(), "nobody else has called");
        listeners.close();
    }
}
