//! Processes whose names match a pattern.

use std::{collections::BTreeMap, time::Duration};

use polywire::Message;

use super::{Interval, Rated};
use crate::{
    Measure, MeasureError, Moment, Parameter, Pdl, ProbeType, Uuid, fits,
    host::{Host, take},
    probe::boxed,
};

const PATTERN: Parameter =
    Parameter { name: "pattern", summary: "Names of the processes; * stands for any text", default: "*" };
const MAX_PROCESSES: Parameter = Parameter {
    name: "most",
    summary: "How many processes a sample lists: those with the most processor time",
    default: "20",
};

/// The maximum value of the parameter `most`.
const LIMIT: usize = 10_000;

pub(super) const PROBE: ProbeType = ProbeType {
    name: "processes",
    summary: "Processes by pattern: processor, memory, descriptors, threads",
    uuid: Uuid::of(0x277496d2_56d6_4a74_8a7e_0ad557f2bda4),
    version: "1.0",
    pdl: Pdl::File(include_str!("../../pdl/processes.pdl")),
    every: Duration::from_secs(5),
    parameters: &[PATTERN, MAX_PROCESSES],
    shape: Processes::shape,
    open: |host, settings| {
        let (pattern, most) = (settings.get(&PATTERN).to_owned(), settings.number(&MAX_PROCESSES, LIMIT)?);
        host.file("proc/self/stat")?;
        Ok(boxed(Sampler { host: host.clone(), pattern, most, interval: Interval::default(), before: BTreeMap::new() }))
    },
};

/// A sample of the processes.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Processes")]
pub struct Processes {
    /// The time that the rates cover.
    #[polywire(base)]
    pub rated: Rated,
    /// The number of processes that match the pattern.
    pub matching: u32,
    /// The processes with the most processor time since the previous sample, the busiest first.
    pub processes: Vec<Process>,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Process", nested)]
pub struct Process {
    /// The process ID.
    pub id: u32,
    /// The name, cut to 15 bytes by the system.
    pub name: String,
    /// Processor time; 100 % is one core.
    #[polywire(unit = "%")]
    pub processor_percent: f32,
    /// The resident memory, including shared memory.
    #[polywire(unit = "B")]
    pub memory_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// Open descriptors; absent if this user may not see them.
    pub descriptors: Option<u32>,
}

struct Sampler {
    host: Host,
    pattern: String,
    most: usize,
    interval: Interval,
    /// Ticks of processor time at the previous sample, by ID and start time, because IDs are
    /// reused.
    before: BTreeMap<(u32, u64), u64>,
}

/// The contents of `/proc/PID/stat`.
struct Stat {
    process: Process,
    start: u64,
    ticks: u64,
}

impl Measure<Processes> for Sampler {
    fn measure(&mut self, now: Moment, sample: &mut Processes) -> Result<(), MeasureError> {
        let rated = self.interval.next(now);
        let numbers = self.host.names("proc").into_iter().filter_map(|name| name.parse().ok());
        // A process that has ended meanwhile is left out.
        let found: Vec<Stat> = numbers.filter_map(|id| self.stat(id)).collect();
        let after = found.iter().map(|stat| ((stat.process.id, stat.start), stat.ticks)).collect();
        let before = std::mem::replace(&mut self.before, after);
        let full = self.host.ticks_per_second as f64;
        let mut processes: Vec<Process> = found
            .into_iter()
            .map(|Stat { mut process, start, ticks }| {
                let before = before.get(&(process.id, start)).unwrap_or(&ticks);
                process.processor_percent = rated.percent(*before, ticks, full);
                process
            })
            .collect();
        let matching = processes.len() as u32;
        processes.sort_by(|a, b| b.processor_percent.total_cmp(&a.processor_percent).then(a.id.cmp(&b.id)));
        processes.truncate(self.most);
        // The folder of descriptors is read for listed processes only, because it is the most
        // expensive part.
        processes.iter_mut().for_each(|p| p.descriptors = self.host.count(&format!("proc/{}/fd", p.id)));
        *sample = Processes { rated, matching, processes };
        Ok(())
    }
}

impl Sampler {
    fn stat(&self, id: u32) -> Option<Stat> {
        let line = self.host.line(&format!("proc/{id}/stat"))?;
        let (name, fields) = name_and_fields(&line)?;
        if !fits(&self.pattern, name) {
            return None;
        }
        // Fields 14 to 24 of proc(5), which counts from 1; `fields` starts with field 4.
        let rest = fields.split_ascii_whitespace().skip(10).collect::<Vec<_>>().join(" ");
        let [user, system, _, _, _, _, threads, _, start, _, pages] = take(&rest)?;
        let process = Process {
            id,
            name: name.to_owned(),
            memory_bytes: pages.saturating_mul(self.host.page_bytes),
            threads: u32::try_from(threads).ok()?,
            ..Process::default()
        };
        Some(Stat { process, start, ticks: user.saturating_add(system) })
    }
}

/// Splits `7 (name) S 1 ..` into the name and the fields after the state. The name may contain
/// parentheses and spaces.
fn name_and_fields(line: &str) -> Option<(&str, &str)> {
    let (before, after) = line.rsplit_once(") ")?;
    let (_, name) = before.split_once('(')?;
    Some((name, after.split_once(' ')?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_look_like_fields() {
        assert_eq!(name_and_fields("7 (a) S (b) R 1 2"), Some(("a) S (b", "1 2")));
        assert_eq!(name_and_fields("7 (a"), None);
    }
}
