//! Two hosts and a link between them, on one Linux machine.
//!
//! The hosts are two network namespaces, separate from each other and from the machine's network.
//! They are joined by TUN interfaces whose packets go through a
//! [`Model`](polywire_core::netsim::Model), or by a pair of virtual Ethernet interfaces, with the
//! kernel's netem or without. The link carries whole IP packets, so TCP meets loss, delay and
//! reordering as on a real network.
//!
//! All processes of a host are in a process namespace of its own, whose first process ends when its
//! standard input ends. All of them therefore end when the program that owns [`Hosts`] ends.
//!
//! Needs `unshare` (util-linux) and `ip` (iproute2), `/dev/net/tun` for the model, and user
//! namespaces unless run by root.

mod holder;
mod netem;

use std::{
    env, fmt,
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use polywire_core::netsim::Stats;
use tun_rs::DeviceBuilder;

use crate::{Emulator, plan::Plan};
use holder::{Request, done};

pub use holder::{Event, serve};
pub use netem::netem;

/// Arguments with which a program starts itself again as a host. A program that is started with
/// them must call [`serve`].
pub const WORDS: &[&str] = &["link-host"];

/// Addresses of the two hosts, of a range for documentation (RFC 5737).
pub const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

/// Environment variable that marks a process in a namespace of its own.
const ISOLATED: &str = "POLYWIRE_ISOLATED";

/// The longest wait for an answer of a host.
const PATIENCE: Duration = Duration::from_secs(20);

/// The kind of link between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Between {
    /// TUN interfaces with the emulated model between them.
    Tun,
    /// A pair of virtual Ethernet interfaces at the kernel's speed.
    Veth,
    /// A pair of virtual Ethernet interfaces with the kernel's netem at both ends. Needs a kernel
    /// with netem; supports no seed, no script and no capture.
    Netem,
}

/// The reason why hosts cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostsError {
    /// The machine does not permit it, or lacks a program.
    #[error("cannot create hosts on this machine: {0}")]
    NotHere(String),
    /// Setting up failed.
    #[error("{0}")]
    Setup(String),
    /// The kernel has no netem, or netem does not support the model.
    #[error("{0}; without netem, the link uses Polywire's own model")]
    Netem(String),
    /// A process or a pipe failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The command that starts this program again in network and user namespaces of its own; `None` if
/// this process is in them.
///
/// # Errors
/// [`HostsError::NotHere`] if a trial shows that this is not permitted.
pub fn isolated() -> Result<Option<Command>, HostsError> {
    if env::var_os(ISOLATED).is_some() {
        return Ok(None);
    }
    let words: &[&str] =
        if rustix::process::geteuid().is_root() { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
    let tried = Command::new("unshare").args(words).args(["--pid", "--fork", "true"]).stdin(Stdio::null()).output();
    let tried = tried.map_err(|error| HostsError::NotHere(format!("unshare: {error}")))?;
    if !tried.status.success() {
        return Err(HostsError::NotHere(String::from_utf8_lossy(&tried.stderr).trim().to_owned()));
    }
    let mut again = Command::new("unshare");
    again.args(words).arg("--").arg(env::current_exe()?).args(env::args_os().skip(1)).env(ISOLATED, "1");
    Ok(Some(again))
}

/// Two hosts and their link. Dropping it ends all their processes.
pub struct Hosts {
    hosts: [Host; 2],
    emulator: Option<Emulator>,
    events: Receiver<(usize, Event)>,
}

struct Host {
    child: Child,
    requests: Option<ChildStdin>,
}

impl Hosts {
    /// Makes two hosts, in a process that [`isolated`] has started. [`Between::Veth`] ignores
    /// `plan`.
    ///
    /// # Errors
    /// Fails if the machine does not permit it, or lacks a program or device.
    pub fn open(between: Between, plan: Plan) -> Result<Hosts, HostsError> {
        let (send, events) = mpsc::channel();
        let hosts = [Host::start(0, send.clone())?, Host::start(1, send)?];
        let mut own = Hosts { hosts, emulator: None, events };
        for _ in 0..2 {
            own.expect(&Event::Ready)?;
        }
        own.join(between, plan)?;
        Ok(own)
    }

    /// Starts a shell command on host 0 or 1. The command finds the addresses of both hosts in the
    /// variables `A` and `B`. Its output and its end are events.
    ///
    /// # Errors
    /// Fails if the host has ended.
    pub fn run(&mut self, host: usize, command: &str) -> io::Result<()> {
        let variables = ["A", "B"].iter().zip(ADDRESSES).map(|(name, address)| ((*name).into(), address.into()));
        let request = Request::Run { command: command.into(), variables: variables.collect() };
        self.hosts.get_mut(host).map_or(Ok(()), |host| host.ask(&request))
    }

    /// The next event, with the number of its host; `None` if there is none within `patience`.
    ///
    /// # Errors
    /// Fails if both hosts have ended.
    pub fn event(&self, patience: Duration) -> io::Result<Option<(usize, Event)>> {
        match self.events.recv_timeout(patience) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("both hosts have ended")),
        }
    }

    /// Counts of packets from the first host to the second and back; `None` if they do not go
    /// through the emulated model.
    pub fn stats(&self) -> Option<(Stats, Stats)> {
        self.emulator.as_ref().map(Emulator::stats)
    }

    fn join(&mut self, between: Between, plan: Plan) -> Result<(), HostsError> {
        let names = ["link0", "link1"];
        let devices = match between {
            Between::Tun => names.iter().map(|name| tun(name)).collect::<Result<Vec<_>, _>>()?,
            _ => {
                own(&["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]])?;
                Vec::new()
            }
        };
        for (host, name) in self.hosts.iter().zip(names) {
            own(&["ip", "link", "set", name, "netns", &host.child.id().to_string()])?;
        }
        for (at, name) in names.into_iter().enumerate() {
            let address = format!("{}/24", ADDRESSES[at]);
            self.set_up(
                at,
                &[
                    &["ip", "link", "set", "lo", "up"],
                    &["ip", "address", "add", &address, "dev", name],
                    &["ip", "link", "set", name, "up"],
                ],
            )?;
        }
        if between == Between::Netem {
            return self.netem(&plan, names);
        }
        let mut devices = devices.into_iter();
        if let (Some(here), Some(there)) = (devices.next(), devices.next()) {
            self.emulator = Some(Emulator::devices(here, there, plan)?);
        }
        Ok(())
    }

    fn netem(&mut self, plan: &Plan, names: [&str; 2]) -> Result<(), HostsError> {
        for (at, model) in [&plan.there, &plan.back].into_iter().enumerate() {
            let words = netem(model).map_err(HostsError::Netem)?;
            let start = ["tc", "qdisc", "add", "dev", names[at], "root", "netem"];
            let step: Vec<&str> = start.into_iter().chain(words.iter().map(String::as_str)).collect();
            self.set_up(at, &[&step]).map_err(|error| HostsError::Netem(error.to_string()))?;
        }
        Ok(())
    }

    fn set_up(&mut self, host: usize, steps: &[&[&str]]) -> Result<(), HostsError> {
        let steps = steps.iter().map(|step| step.iter().map(|word| (*word).to_owned()).collect()).collect();
        self.hosts[host].ask(&Request::Setup(steps))?;
        self.expect(&Event::Done(Ok(())))
    }

    fn expect(&self, wanted: &Event) -> Result<(), HostsError> {
        match self.event(PATIENCE)? {
            Some((_, event)) if event == *wanted => Ok(()),
            Some((_, Event::Done(Err(problem)))) => Err(HostsError::Setup(problem)),
            Some((_, Event::Ended(_))) => Err(HostsError::NotHere("a host has ended".into())),
            other => Err(HostsError::NotHere(format!("unexpected answer of a host: {other:?}"))),
        }
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Host {
    fn start(number: usize, events: mpsc::Sender<(usize, Event)>) -> Result<Host, HostsError> {
        let mut command = Command::new("unshare");
        command.args(["--net", "--pid", "--fork", "--kill-child=KILL", "--"]).arg(env::current_exe()?).args(WORDS);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take());
        let host = Host { child, requests };
        let answers = BufReader::new(answers.ok_or_else(|| io::Error::other("the host has no output pipe"))?);
        thread::spawn(move || {
            for line in answers.lines().map_while(Result::ok) {
                let Ok(event) = serde_json::from_str(&line) else { continue };
                if events.send((number, event)).is_err() {
                    return;
                }
            }
            // An error means that `Hosts` was dropped, which is normal.
            let _ = events.send((number, Event::Ended(None)));
        });
        Ok(host)
    }

    fn ask(&mut self, request: &Request) -> io::Result<()> {
        let Some(requests) = &mut self.requests else { return Err(io::Error::other("the host has ended")) };
        writeln!(requests, "{}", serde_json::to_string(request)?)?;
        requests.flush()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.requests.take());
        let until = Instant::now() + Duration::from_secs(2);
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                // The kernel then kills all processes of the host.
                let _ = self.child.kill();
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn tun(name: &str) -> Result<tun_rs::SyncDevice, HostsError> {
    let device = DeviceBuilder::new().name(name).enable(false).build_sync();
    let device = device.map_err(|error| HostsError::NotHere(format!("/dev/net/tun: {error}")))?;
    device.set_nonblocking(true)?;
    Ok(device)
}

/// Runs a program in the namespace of this process.
fn own(step: &[&str]) -> Result<(), HostsError> {
    let step: Vec<String> = step.iter().map(|word| (*word).to_owned()).collect();
    done(&step).map_err(HostsError::Setup)
}
