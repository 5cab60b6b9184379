//! The name of the host that a port calls. The port looks the name up again while the host is
//! silent, because the host may have another address.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    sync::mpsc::{self, Receiver, TryRecvError},
    thread,
    time::Duration,
};

/// The name and the port of a host.
pub(super) type Name = (String, u16);

/// The look-up of a host's addresses.
pub(super) struct HostName {
    name: Name,
    /// When the last look-up began.
    began: Duration,
    /// Gets the result of the look-up that is under way.
    told: Option<Receiver<Vec<SocketAddr>>>,
}

impl HostName {
    /// Creates the name of a host that was looked up just `now`.
    pub(super) fn new(name: Name, now: Duration) -> HostName {
        HostName { name, began: now, told: None }
    }

    /// Returns the addresses of the name when a look-up has found them. Begins a look-up if none is
    /// under way and the last one began at least `pause` ago.
    pub(super) fn poll(&mut self, pause: Duration, now: Duration) -> Option<Vec<SocketAddr>> {
        if let Some(told) = &self.told {
            let found = told.try_recv();
            if found != Err(TryRecvError::Empty) {
                self.told = None;
            }
            return found.ok();
        }
        if self.began.saturating_add(pause) <= now {
            self.began = now;
            self.told = look_up(self.name.clone());
        }
        None
    }

    /// Forgets the look-up that is under way.
    pub(super) fn forget(&mut self) {
        self.told = None;
    }
}

/// Asks the system for the addresses of a name, on a thread of its own: the system may take long.
/// The result is disconnected if the name is not found.
fn look_up(name: Name) -> Option<Receiver<Vec<SocketAddr>>> {
    let (tell, told) = mpsc::channel();
    let ask = move || {
        if let Ok(found) = name.to_socket_addrs() {
            // An error means that the port does not need the addresses any more.
            let _ = tell.send(found.collect());
        }
    };
    thread::Builder::new().name("pw-udp-name".into()).spawn(ask).ok().map(|_| told)
}
