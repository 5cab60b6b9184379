//! The load averages.

use std::time::Duration;

use polywire::Message;

use crate::{
    Measure, MeasureError, Moment, Pdl, ProbeType, Uuid,
    host::{Host, SystemFile},
    probe::boxed,
};

pub(super) const PROBE: ProbeType = ProbeType {
    name: "load",
    summary: "Load averages, and how many threads there are",
    uuid: Uuid::of(0x91c93be4_14b3_4004_81ff_017d370a509d),
    version: "1.0",
    pdl: Pdl::File(include_str!("../../pdl/load.pdl")),
    every: Duration::from_secs(5),
    parameters: &[],
    shape: Load::shape,
    open: |host, _| Ok(boxed(Sampler::open(host)?)),
};

/// A sample of the load.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Load")]
pub struct Load {
    /// Threads that ran or waited for processor or disk, averaged over one minute.
    pub average_1min: f32,
    /// This average over five minutes.
    pub average_5min: f32,
    /// This average over fifteen minutes.
    pub average_15min: f32,
    /// Threads that run or wait for a processor now.
    pub running: u32,
    /// All threads.
    pub threads: u32,
}

struct Sampler(SystemFile);

impl Sampler {
    fn open(host: &Host) -> Result<Sampler, MeasureError> {
        host.file("proc/loadavg").map(Sampler)
    }
}

impl Measure<Load> for Sampler {
    fn measure(&mut self, _: Moment, sample: &mut Load) -> Result<(), MeasureError> {
        *sample = load(self.0.read()?).ok_or_else(|| self.0.form("'0.20 0.18 0.12 1/80 11206'"))?;
        Ok(())
    }
}

fn load(text: &str) -> Option<Load> {
    let mut words = text.split_ascii_whitespace();
    let mut average = || words.next()?.parse().ok();
    let (average_1min, average_5min, average_15min) = (average()?, average()?, average()?);
    let (running, threads) = words.next()?.split_once('/')?;
    Some(Load {
        average_1min,
        average_5min,
        average_15min,
        running: running.parse().ok()?,
        threads: threads.parse().ok()?,
    })
}
