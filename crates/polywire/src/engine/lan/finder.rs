//! Advertises this node and finds others, by DNS-SD over multicast DNS. The library `mdns-sd`
//! speaks the protocol; this module bounds what the library holds.

use std::{
    io,
    net::{SocketAddr, SocketAddrV6},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use mdns_sd::{
    DaemonEvent, IfKind, Receiver, RecvTimeoutError, ResolvedService, ScopedIp, ServiceDaemon, ServiceEvent,
    ServiceInfo, UnregisterStatus,
};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{
    interfaces::{Selection, came_from_here},
    record::{Record, SERVICE},
    table::{Known, Table},
};
use crate::engine::{Event, stream::Peer};

/// The most records and timers that the library may hold. If it holds more, somebody floods the
/// network, and the finder restarts it. 1024 nodes need about a quarter.
const MAX_RECORDS: i64 = 1 << 16;
/// Time between two checks of how many records the library holds.
const LOOK: Duration = Duration::from_secs(1);
/// Pause after DNS-SD could not be started.
const AFTER_ERROR: Duration = Duration::from_secs(5);
/// Seconds between two checks of the machine's interfaces by the library.
const INTERFACES_S: u32 = 2;
/// How long a node that did not answer a call may take to answer by DNS-SD.
const VERIFY: Duration = Duration::from_secs(3);
/// How long closing waits for the goodbye to be sent.
const GOODBYE: Duration = Duration::from_millis(500);

/// Reports events. It does not block.
pub(super) type Tell = Box<dyn Fn(Event) + Send + Sync>;

/// What this node advertises.
pub(super) struct Own {
    /// The instance name.
    pub(super) name: String,
    /// The host name of the node's addresses.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) record: Record,
}

/// Finds nodes. [`Finder::close`] says goodbye and ends its thread.
pub(super) struct Finder {
    endpoint: String,
    selection: Selection,
    tell: Tell,
    state: Mutex<State>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct State {
    table: Table,
    /// Something has changed since the last wait.
    is_changed: bool,
    is_closed: bool,
    own: Option<Own>,
    daemon: Option<ServiceDaemon>,
    /// How often the library was restarted because of a flood.
    floods: u64,
    /// The last error that was reported.
    told: String,
    goodbye: Option<Receiver<UnregisterStatus>>,
}

impl Finder {
    /// Creates a finder, which finds no nodes before [`Finder::start`]. It keeps at most `most`
    /// nodes.
    pub(super) fn new(endpoint: &str, selection: Selection, most: usize, tell: Tell) -> Finder {
        let state = State {
            table: Table::new(most),
            is_changed: false,
            is_closed: false,
            own: None,
            daemon: None,
            floods: 0,
            told: String::new(),
            goodbye: None,
        };
        let (state, changed, thread) = (Mutex::new(state), Condvar::new(), Mutex::default());
        Finder { endpoint: endpoint.into(), selection, tell, state, changed, thread }
    }

    /// Starts to look for other nodes, and to advertise this node as `own`, if that is given.
    pub(super) fn start(self: &Arc<Self>, own: Option<Own>) -> io::Result<()> {
        self.lock().own = own;
        let finder = self.clone();
        let thread = thread::Builder::new().name("pw-lan-find".into()).spawn(move || finder.run())?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Returns the nodes of a domain.
    pub(super) fn peers(&self, domain: u8) -> Vec<Peer> {
        self.lock().table.peers(domain)
    }

    pub(super) fn get(&self, name: &str) -> Option<Known> {
        self.lock().table.get(name).cloned()
    }

    /// Returns all nodes, by instance name.
    pub(super) fn all(&self) -> Vec<(String, Known)> {
        self.lock().table.all().map(|(name, known)| (name.clone(), known.clone())).collect()
    }

    /// Notes whether a node has answered a call. If it has not, the library asks by DNS-SD whether
    /// the node is still there, and reports it as removed if no answer arrives.
    pub(super) fn called(&self, name: &str, answered: bool) {
        let mut state = self.lock();
        let was_alive = state.table.called(name, answered);
        if let Some(daemon) = state.daemon.as_ref().filter(|_| was_alive && !answered) {
            // If the library's queue is full, the record expires by its time to live.
            let _ = daemon.verify(format!("{name}.{SERVICE}"), VERIFY);
        }
    }

    /// Waits until the peers may have changed, [`Finder::wake`] is called, or `timeout` has passed.
    pub(super) fn wait(&self, timeout: Duration) {
        let mut state = self.lock();
        self.changed.wait_while_for(&mut state, |state| !state.is_changed, timeout);
        state.is_changed = false;
    }

    pub(super) fn wake(&self) {
        self.lock().is_changed = true;
        self.changed.notify_all();
    }

    /// Starts to send the goodbye of this node. Does not block.
    pub(super) fn say_goodbye(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        if let (Some(daemon), Some(own)) = (&state.daemon, &state.own) {
            state.goodbye = daemon.unregister(&format!("{}.{SERVICE}", own.name)).ok();
        }
        self.changed.notify_all();
    }

    /// Sends the goodbye of this node, and ends the finder's thread.
    pub(super) fn close(&self) {
        if !self.lock().is_closed {
            self.say_goodbye();
        }
        let (goodbye, daemon) = {
            let mut state = self.lock();
            (state.goodbye.take(), state.daemon.take())
        };
        // The result does not matter: peers that miss the goodbye notice that the link has ended.
        let _ = goodbye.map(|done| done.recv_timeout(GOODBYE));
        end(daemon);
        let thread = self.thread.lock().take();
        let _ = thread.map(JoinHandle::join);
    }

    fn run(&self) {
        while !self.lock().is_closed {
            let looked = self.look();
            let daemon = {
                let mut state = self.lock();
                state.table.clear();
                state.daemon.take()
            };
            end(daemon);
            let pause = match looked {
                Ok(()) => LOOK,
                Err(error) => {
                    self.tell_error(&error.to_string());
                    AFTER_ERROR
                }
            };
            self.changed.wait_while_for(&mut self.lock(), |state| !state.is_closed, pause);
        }
    }

    /// Handles what the library finds, until it has to be restarted or the port closes.
    fn look(&self) -> mdns_sd::Result<()> {
        let daemon = ServiceDaemon::new()?;
        daemon.set_ip_check_interval(INTERFACES_S)?;
        if let Some(kinds) = self.selection.kinds() {
            daemon.disable_interface(IfKind::All)?;
            daemon.enable_interface(kinds)?;
        }
        let problems = daemon.monitor()?;
        if !self.enter(&daemon)? {
            end(Some(daemon));
            return Ok(());
        }
        let found = daemon.browse(SERVICE)?;
        let mut looked = Instant::now();
        loop {
            match found.recv_timeout(LOOK) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break self.tell_flood("more records come than can be read"),
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.tell_problems(&problems);
                if is_flooded(&daemon) {
                    break self.tell_flood("more records are held than 1024 nodes need");
                }
            }
        }
        Ok(())
    }

    /// Advertises this node. Returns false if the port has closed meanwhile.
    fn enter(&self, daemon: &ServiceDaemon) -> mdns_sd::Result<bool> {
        let mut state = self.lock();
        if state.is_closed {
            return Ok(false);
        }
        state.daemon = Some(daemon.clone());
        if let Some(own) = &state.own {
            daemon.register(own.service(&self.selection)?)?;
        }
        Ok(true)
    }

    fn handle(&self, event: ServiceEvent) {
        match event {
            ServiceEvent::ServiceResolved(service) => self.found(&service),
            ServiceEvent::ServiceRemoved(_, full) => self.lock().table.gone(instance_of(&full)),
            _ => return,
        }
        self.wake();
    }

    fn found(&self, service: &ResolvedService) {
        let name = instance_of(&service.fullname);
        let read = Record::read(|key| service.txt_properties.get_property_val(key).flatten());
        let mut state = self.lock();
        let taken = read.and_then(|record| state.table.found(name, record, addresses(service)));
        if let Err(reason) = taken {
            let total = state.table.ignore();
            drop(state);
            self.tell_ignored(name, reason, total);
        }
    }

    /// Reports that the library is restarted, unless the port has closed.
    fn tell_flood(&self, why: &str) {
        let mut state = self.lock();
        if !state.is_closed {
            state.floods += 1;
            let total = Some(state.floods).filter(|total| total.is_power_of_two());
            drop(state);
            self.tell_ignored(SERVICE, format!("{why}: all are forgotten"), total);
        }
    }

    fn tell_ignored(&self, name: &str, reason: String, total: Option<u64>) {
        if let Some(total) = total {
            (self.tell)(Event::Ignored { name: name.into(), reason, total });
        }
    }

    fn tell_problems(&self, problems: &Receiver<DaemonEvent>) {
        for event in problems.try_iter() {
            if let DaemonEvent::Error(error) = event {
                self.tell_error(&error.to_string());
            }
        }
    }

    fn tell_error(&self, error: &str) {
        let reason = format!("DNS-SD: {error}");
        let mut state = self.lock();
        if !state.is_closed && state.told != reason {
            state.told.clone_from(&reason);
            drop(state);
            (self.tell)(Event::Unreachable { endpoint: self.endpoint.clone(), reason });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Own {
    fn service(&self, selection: &Selection) -> mdns_sd::Result<ServiceInfo> {
        let pairs = self.record.pairs();
        let service = ServiceInfo::new(SERVICE, &self.name, &self.host, (), self.port, &pairs[..])?;
        let mut service = service.enable_addr_auto();
        // The names contain the node's id, so no other node has them. Probing would take 0.75 s.
        service.set_requires_probe(false);
        if let Some(kinds) = selection.kinds() {
            service.set_interfaces(kinds);
        }
        Ok(service)
    }
}

/// Ends the library's thread and waits for its end.
fn end(daemon: Option<ServiceDaemon>) {
    let ended = daemon.and_then(|daemon| daemon.shutdown().ok());
    let _ = ended.map(|ended| ended.recv_timeout(GOODBYE));
}

/// Returns whether the library holds more records than it should.
fn is_flooded(daemon: &ServiceDaemon) -> bool {
    let counts = daemon.get_metrics().ok().and_then(|counts| counts.recv_timeout(LOOK).ok()).unwrap_or_default();
    let is_held = |name: &str| name.starts_with("cached-") || name == "timer";
    let held: i64 = counts.iter().filter(|(name, _)| is_held(name)).map(|(_, count)| count).sum();
    held > MAX_RECORDS
}

fn instance_of(full: &str) -> &str {
    full.strip_suffix(SERVICE).and_then(|name| name.strip_suffix('.')).unwrap_or(full)
}

/// Returns the addresses of a service. Loopback addresses are included only if they arrived over
/// the loopback interface, because every machine has them.
fn addresses(service: &ResolvedService) -> Vec<SocketAddr> {
    let address = |scoped: &ScopedIp| match scoped {
        ScopedIp::V4(v4) => {
            let is_fine = !v4.addr().is_loopback() || came_from_here(v4.interface_ids());
            is_fine.then(|| SocketAddr::from((*v4.addr(), service.port)))
        }
        ScopedIp::V6(v6) => {
            let is_fine = !v6.addr().is_loopback() || came_from_here(std::slice::from_ref(v6.scope_id()));
            let scope = if v6.addr().is_unicast_link_local() { v6.scope_id().index } else { 0 };
            is_fine.then(|| SocketAddrV6::new(*v6.addr(), service.port, 0, scope).into())
        }
        _ => None,
    };
    service.addresses.iter().filter_map(address).collect()
}
