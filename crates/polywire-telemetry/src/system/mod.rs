//! Probes of the system. The table [`PROBES`] lists them. Each has a file of its own and a PDL
//! file.
//!
//! The probes read `/proc` and `/sys` directly, below a root folder that tests replace. A file
//! stays open and is read again from its start, so a sample costs one system call for each file.
//!
//! The samples have ordinary message types, so a program can subscribe with these types:
//!
//! ```
//! use polywire::{Message, Node};
//! use polywire_telemetry::{Agent, Identity, Moment, Plan, Runner, system::{self, Host, Memory, PROBES}};
//! use polywire_telemetry::system::{Cgroup, Clock, Disks, Load, Network, Pressure, Processes, Processor};
//! use polywire_telemetry::system::{Core, Disk, Filesystem, Interface, Process, Rated, Sensor, Stall};
//! use polywire_telemetry::system::{Temperatures, Uptime};
//! use std::time::Duration;
//!
//! let types = [
//!     Processor::shape(), Memory::shape(), Disks::shape(), Network::shape(), Load::shape(), Temperatures::shape(),
//!     Processes::shape(), Cgroup::shape(), Pressure::shape(), Uptime::shape(), Clock::shape(),
//! ];
//! assert!(PROBES.iter().map(|probe| (probe.shape)().schema().name()).eq(types.map(|shape| shape.schema().name())));
//!
//! // The members of such a sample that a handler can read.
//! let sample = Processor {
//!     rated: Rated { interval_s: 1.0 },
//!     busy_percent: 12.5,
//!     cores: vec![Core { number: 0, busy_percent: 25.0 }, Core::default()],
//!     ..Processor::default()
//! };
//! assert!(sample.cores.iter().all(|core| core.busy_percent < 90.0));
//! let (disks, network) = (vec![Disk::default()], vec![Interface::default()]);
//! assert!(disks[0].read_rate == 0.0 && network[0].receive_rate == 0.0);
//! let fresh = (Filesystem::default().available_bytes, Process::default().threads, Stall::default().total_us);
//! assert_eq!((fresh, Sensor::default().celsius), ((0, 0, 0), 0.0));
//!
//! // A subscriber of this machine's memory.
//! # #[cfg(target_os = "linux")] {
//! let wire = "cdr@inproc/system-doc";
//! let mut agent = Agent::new(Node::new(), Identity::new("house")?, Host::this(), wire, Moment::default())?;
//! agent.add(Plan::of(system::find("memory")?))?;
//! let runner = Runner::start(agent)?;
//! let samples = Node::new().subscriber_on::<Memory>("probes/house/memory", wire)?;
//! let memory = samples.recv_timeout(Duration::from_secs(60)).unwrap().value;
//! assert!(memory.free_bytes <= memory.total_bytes);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cgroup;
mod clock;
mod disks;
mod load;
mod memory;
mod network;
mod pressure;
mod processes;
mod processor;
mod temperatures;
mod uptime;

use polywire::Message;

pub use cgroup::Cgroup;
pub use clock::Clock;
pub use disks::{Disk, Disks, Filesystem};
pub use load::Load;
pub use memory::Memory;
pub use network::{Interface, Network};
pub use pressure::{Pressure, Stall};
pub use processes::{Process, Processes};
pub use processor::{Core, Processor};
pub use temperatures::{Sensor, Temperatures};
pub use uptime::Uptime;

pub use crate::host::Host;
use crate::{MeasureError, Moment, ProbeType, input::INPUTS};

/// The probes, in the order in which lists show them.
pub static PROBES: &[ProbeType] = &[
    processor::PROBE,
    memory::PROBE,
    disks::PROBE,
    network::PROBE,
    load::PROBE,
    temperatures::PROBE,
    processes::PROBE,
    cgroup::PROBE,
    pressure::PROBE,
    uptime::PROBE,
    clock::PROBE,
];

/// The PDL file that the files of some probes include as `rated.pdl`.
pub const RATED_PDL: &str = include_str!("../../pdl/rated.pdl");

/// Returns the probe or the input of this name.
pub fn find(name: &str) -> Result<&'static ProbeType, MeasureError> {
    let all = || PROBES.iter().chain(INPUTS);
    let probe = all().find(|probe| probe.name == name);
    probe.ok_or_else(|| MeasureError::unknown("probe", name, all().map(|probe| probe.name)))
}

/// The members that all samples with rates have.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Rated", nested)]
pub struct Rated {
    /// The time that the rates of the sample cover. In the first sample, it and the rates are 0.
    #[polywire(unit = "s")]
    pub interval_s: f64,
}

/// The time since the previous sample.
#[derive(Default)]
struct Interval(Option<Moment>);

impl Interval {
    /// Ends an interval and begins the next one.
    fn next(&mut self, now: Moment) -> Rated {
        let before = self.0.replace(now);
        // Nanoseconds are noise, and would enlarge every sample.
        let micros = before.map_or(0.0, |before| (now.seconds_since(before) * 1e6).round());
        Rated { interval_s: micros / 1e6 }
    }
}

impl Rated {
    /// Returns the increase of a counter per second, rounded to hundredths. A counter that
    /// decreased was reset: its rate is 0.
    fn rate(&self, before: u64, after: u64) -> f64 {
        hundredths(self.quotient(before, after))
    }

    /// Returns the rate of a counter in percent. `full` is its increase in a second of full use.
    fn percent(&self, before: u64, after: u64, full: f64) -> f32 {
        hundredths(self.quotient(before, after) / full * 100.0) as f32
    }

    fn quotient(&self, before: u64, after: u64) -> f64 {
        if self.interval_s > 0.0 { after.saturating_sub(before) as f64 / self.interval_s } else { 0.0 }
    }
}

/// Rounds a figure to hundredths. Insignificant digits would enlarge every sample: a number with
/// two decimal places is short in each compact format and in each text format.
fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
