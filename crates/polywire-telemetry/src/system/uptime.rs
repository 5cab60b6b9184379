//! How long the system has been running.

use std::time::Duration;

use polywire::Message;

use crate::{
    Measure, MeasureError, Moment, Pdl, ProbeType, Uuid,
    host::{Host, SystemFile},
    probe::boxed,
};

pub(super) const PROBE: ProbeType = ProbeType {
    name: "uptime",
    summary: "How long the system has been running",
    uuid: Uuid::of(0x2b28b0a7_4b2c_4e26_9e9c_e364ee395f89),
    version: "1.0",
    pdl: Pdl::File(include_str!("../../pdl/uptime.pdl")),
    every: Duration::from_secs(10),
    parameters: &[],
    shape: Uptime::shape,
    open: |host, _| Ok(boxed(Sampler::open(host)?)),
};

/// A sample of the uptime.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Uptime")]
pub struct Uptime {
    /// Time since the system started.
    #[polywire(unit = "s")]
    pub uptime_s: f64,
    /// Idle time since the start of the system, summed over all cores.
    #[polywire(unit = "s")]
    pub idle_s: f64,
}

struct Sampler(SystemFile);

impl Sampler {
    fn open(host: &Host) -> Result<Sampler, MeasureError> {
        host.file("proc/uptime").map(Sampler)
    }
}

impl Measure<Uptime> for Sampler {
    fn measure(&mut self, _: Moment, sample: &mut Uptime) -> Result<(), MeasureError> {
        let mut seconds = self.0.read()?.split_ascii_whitespace().map_while(|word| word.parse().ok());
        match (seconds.next(), seconds.next()) {
            (Some(uptime_s), Some(idle_s)) => *sample = Uptime { uptime_s, idle_s },
            _ => return Err(self.0.form("two numbers of seconds")),
        }
        Ok(())
    }
}
