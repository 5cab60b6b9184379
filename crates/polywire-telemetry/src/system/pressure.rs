//! Pressure stall information: the time that tasks lose because a resource is scarce.

use std::time::Duration;

use polywire::Message;

use crate::{
    Measure, MeasureError, Moment, Pdl, ProbeType, Uuid,
    host::{Host, SystemFile},
    probe::boxed,
};

pub(super) const PROBE: ProbeType = ProbeType {
    name: "pressure",
    summary: "Time that tasks lose waiting for processor, memory and disks (PSI)",
    uuid: Uuid::of(0x72aaa01d_d5dd_4e0b_add7_813acbe57a50),
    version: "1.0",
    pdl: Pdl::File(include_str!("../../pdl/pressure.pdl")),
    every: Duration::from_secs(5),
    parameters: &[],
    shape: Pressure::shape,
    open: |host, _| Ok(boxed(Sampler::open(host)?)),
};

/// A sample of the pressure.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Pressure")]
pub struct Pressure {
    /// Stalls in which some tasks waited for a processor.
    pub processor: Stall,
    /// Stalls in which some tasks waited for memory.
    pub memory_some: Stall,
    /// Stalls in which all tasks waited for memory.
    pub memory_full: Stall,
    /// Stalls in which some tasks waited for disks.
    pub disk_some: Stall,
    /// Stalls in which all tasks waited for disks.
    pub disk_full: Stall,
}

/// The shares of stalled time, and the total stalled time.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Stall", nested)]
pub struct Stall {
    /// The share over ten seconds.
    #[polywire(unit = "%")]
    pub average_10s: f32,
    /// The share over one minute.
    #[polywire(unit = "%")]
    pub average_60s: f32,
    /// The share over five minutes.
    #[polywire(unit = "%")]
    pub average_300s: f32,
    /// The total stalled time since the start of the system.
    #[polywire(unit = "us")]
    pub total_us: u64,
}

struct Sampler {
    processor: SystemFile,
    memory: SystemFile,
    disk: SystemFile,
}

impl Sampler {
    fn open(host: &Host) -> Result<Sampler, MeasureError> {
        let file = |name: &str| host.file(&format!("proc/pressure/{name}"));
        Ok(Sampler { processor: file("cpu")?, memory: file("memory")?, disk: file("io")? })
    }
}

impl Measure<Pressure> for Sampler {
    fn measure(&mut self, _: Moment, sample: &mut Pressure) -> Result<(), MeasureError> {
        *sample = Pressure {
            processor: stall(&mut self.processor, "some ")?,
            memory_some: stall(&mut self.memory, "some ")?,
            memory_full: stall(&mut self.memory, "full ")?,
            disk_some: stall(&mut self.disk, "some ")?,
            disk_full: stall(&mut self.disk, "full ")?,
        };
        Ok(())
    }
}

fn stall(file: &mut SystemFile, kind: &str) -> Result<Stall, MeasureError> {
    let line = file.read()?.lines().find_map(|line| line.strip_prefix(kind));
    line.and_then(parsed).ok_or_else(|| file.form("'some avg10=0.00 avg60=0.00 avg300=0.00 total=0', also 'full'"))
}

fn parsed(line: &str) -> Option<Stall> {
    let mut values = line.split(' ').filter_map(|word| word.split_once('=')).map(|(_, value)| value);
    Some(Stall {
        average_10s: values.next()?.parse().ok()?,
        average_60s: values.next()?.parse().ok()?,
        average_300s: values.next()?.parse().ok()?,
        total_us: values.next()?.parse().ok()?,
    })
}
