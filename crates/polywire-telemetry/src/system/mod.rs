//! Probes of the system, in one table: [`PROBES`]. Each has a file of its own and a PDL file.
//!
//! They read `/proc` and `/sys` directly, below a root folder that tests replace. A file stays open
//! and is read again from its start, so a sample costs one call of the system for each file.

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
use crate::{MeasureError, Moment, ProbeType};

/// The probes, in the order of lists.
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

/// The probe of this name.
pub fn find(name: &str) -> Result<&'static ProbeType, MeasureError> {
    let probe = PROBES.iter().find(|probe| probe.name == name);
    probe.ok_or_else(|| MeasureError::unknown("probe", name, PROBES.iter().map(|probe| probe.name)))
}

/// What samples with rates have in common.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Rated", nested)]
pub struct Rated {
    /// The time that the rates of the sample cover. In the first sample it is 0, and so are the
    /// rates.
    #[polywire(unit = "s")]
    pub interval_s: f64,
}

/// The time since the previous sample.
#[derive(Default)]
struct Interval(Option<Moment>);

impl Interval {
    /// Ends an interval and begins the next.
    fn next(&mut self, now: Moment) -> Rated {
        let before = self.0.replace(now);
        Rated { interval_s: before.map_or(0.0, |before| now.seconds_since(before)) }
    }
}

impl Rated {
    /// By how much a counter rose per second. A counter that fell was reset: its rate is 0.
    fn rate(&self, before: u64, after: u64) -> f64 {
        if self.interval_s > 0.0 { after.saturating_sub(before) as f64 / self.interval_s } else { 0.0 }
    }
}
