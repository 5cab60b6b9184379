//! A control group: a container's or a service's share of the machine.

use std::time::Duration;

use polywire::Message;

use super::{Interval, Rated};
use crate::{
    Measure, MeasureError, Moment, Parameter, Pdl, ProbeType, Settings, Uuid,
    host::{Host, SystemFile, value_of},
    probe::boxed,
};

const PATH: Parameter = Parameter {
    name: "path",
    summary: "The group below /sys/fs/cgroup; without one, the group that this process is in",
    default: "",
};

pub(super) const PROBE: ProbeType = ProbeType {
    name: "cgroup",
    summary: "Processor, memory and tasks of a control group (version 2)",
    uuid: Uuid::of(0xa086b93b_cca4_454a_8b98_cd1b23c49de6),
    version: "1.0",
    pdl: Pdl::File(include_str!("../../pdl/cgroup.pdl")),
    every: Duration::from_secs(1),
    parameters: &[PATH],
    shape: Cgroup::shape,
    open: |host, settings| Ok(boxed(Sampler::open(host, settings)?)),
};

/// A sample of a control group. Values that its controllers do not count are absent.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Cgroup")]
pub struct Cgroup {
    /// The time that the rates cover.
    #[polywire(base)]
    pub rated: Rated,
    /// The group, below `/sys/fs/cgroup`.
    pub path: String,
    /// Processor time; 100 % is one core.
    #[polywire(unit = "%")]
    pub processor_percent: f32,
    /// Time in which the group was throttled by its limit.
    #[polywire(unit = "%")]
    pub throttled_percent: f32,
    /// Memory in use.
    #[polywire(unit = "B")]
    pub memory_bytes: Option<u64>,
    /// The limit of memory; absent if there is none.
    #[polywire(unit = "B")]
    pub memory_limit_bytes: Option<u64>,
    /// Tasks, that is threads.
    pub tasks: Option<u32>,
}

struct Sampler {
    host: Host,
    path: String,
    processor: SystemFile,
    interval: Interval,
    /// Microseconds in use, and throttled.
    before: Option<(u64, u64)>,
}

impl Sampler {
    fn open(host: &Host, settings: &Settings) -> Result<Sampler, MeasureError> {
        let path = match settings.get(&PATH) {
            "" => own(host)?,
            given if given.split('/').any(|part| part == "..") => {
                let expected = "a path without '..'".to_owned();
                return Err(MeasureError::Value { parameter: PATH.name.into(), value: given.into(), expected });
            }
            given => given.trim_matches('/').to_owned(),
        };
        let processor = host.file(&format!("sys/fs/cgroup/{path}/cpu.stat"))?;
        Ok(Sampler { host: host.clone(), path, processor, interval: Interval::default(), before: None })
    }

    fn number(&self, file: &str) -> Option<u64> {
        u64::try_from(self.host.number(&format!("sys/fs/cgroup/{}/{file}", self.path))?).ok()
    }
}

impl Measure<Cgroup> for Sampler {
    fn measure(&mut self, now: Moment, sample: &mut Cgroup) -> Result<(), MeasureError> {
        let text = self.processor.read()?;
        let after = (value_of(text, "usage_usec"), value_of(text, "throttled_usec").unwrap_or_default());
        let (Some(used), throttled) = after else { return Err(self.processor.form("a line 'usage_usec'")) };
        let rated = self.interval.next(now);
        let before = self.before.replace((used, throttled)).unwrap_or((used, throttled));
        *sample = Cgroup {
            path: self.path.clone(),
            processor_percent: rated.percent(before.0, used, 1e6),
            throttled_percent: rated.percent(before.1, throttled, 1e6),
            memory_bytes: self.number("memory.current"),
            memory_limit_bytes: self.number("memory.max"),
            tasks: self.number("pids.current").and_then(|tasks| u32::try_from(tasks).ok()),
            rated,
        };
        Ok(())
    }
}

/// Returns the control group of this process, from the line `0::/PATH`.
fn own(host: &Host) -> Result<String, MeasureError> {
    let mut file = host.file("proc/self/cgroup")?;
    let path = file.read()?.lines().find_map(|line| line.strip_prefix("0::/")).map(str::to_owned);
    path.ok_or_else(|| file.form("a line '0::/PATH' of version 2"))
}
