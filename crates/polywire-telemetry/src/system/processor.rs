//! How busy the processor is, in total and per core.

use std::time::Duration;

use polywire::Message;

use super::{Interval, Rated, hundredths};
use crate::{
    Measure, MeasureError, Moment, Pdl, ProbeType, Uuid,
    host::{Host, SystemFile, take},
    probe::boxed,
};

pub(super) const PROBE: ProbeType = ProbeType {
    name: "processor",
    summary: "How busy the processor is, in total and per core",
    uuid: Uuid::of(0x82b30f84_feed_4636_8721_a11bfb529e84),
    version: "1.0",
    pdl: Pdl::File(include_str!("../../pdl/processor.pdl")),
    every: Duration::from_secs(1),
    parameters: &[],
    shape: Processor::shape,
    open: |host, _| Ok(boxed(Sampler::open(host)?)),
};

/// A sample of the processor: shares of the time since the previous sample, all cores together. The
/// remainder to 100 % is idle.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Processor")]
pub struct Processor {
    /// The time that the shares cover.
    #[polywire(base)]
    pub rated: Rated,
    /// Time in which the processor worked: neither idle nor waiting for disks.
    #[polywire(unit = "%")]
    pub busy_percent: f32,
    /// Time in programs, also those with lowered priority.
    #[polywire(unit = "%")]
    pub user_percent: f32,
    /// Time in the kernel, without interrupts.
    #[polywire(unit = "%")]
    pub system_percent: f32,
    /// Time in which the processor was idle and waited for disks.
    #[polywire(unit = "%")]
    pub wait_percent: f32,
    /// Time in interrupts.
    #[polywire(unit = "%")]
    pub interrupt_percent: f32,
    /// Time that the hypervisor gave to other machines.
    #[polywire(unit = "%")]
    pub steal_percent: f32,
    /// The cores that are online.
    pub cores: Vec<Core>,
}

/// One core.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Core", nested)]
pub struct Core {
    /// The number of the core in the system.
    pub number: u16,
    /// Time in which the core worked.
    #[polywire(unit = "%")]
    pub busy_percent: f32,
}

/// A line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, in ticks.
type Ticks = [u64; 8];

struct Sampler {
    file: SystemFile,
    interval: Interval,
    before: Vec<Ticks>,
}

impl Sampler {
    fn open(host: &Host) -> Result<Sampler, MeasureError> {
        Ok(Sampler { file: host.file("proc/stat")?, interval: Interval::default(), before: Vec::new() })
    }
}

impl Measure<Processor> for Sampler {
    fn measure(&mut self, now: Moment, sample: &mut Processor) -> Result<(), MeasureError> {
        sample.cores.clear();
        let (before, mut lines) = (&mut self.before, 0);
        for line in self.file.read()?.lines().map_while(|line| line.strip_prefix("cpu")) {
            let (number, ticks) = line.split_once(' ').unwrap_or_default();
            let Some(ticks) = take(ticks) else { break };
            // A core that has just come online has no shares yet.
            before.resize(before.len().max(lines + 1), ticks);
            let rise = rise(&before[lines], &ticks);
            match number.parse() {
                Ok(number) => sample.cores.push(Core { number, busy_percent: busy(&rise) }),
                Err(_) => total(&rise, sample),
            }
            before[lines] = ticks;
            lines += 1;
        }
        if lines == 0 {
            return Err(self.file.form("a line 'cpu' with 8 numbers"));
        }
        before.truncate(lines);
        sample.rated = self.interval.next(now);
        Ok(())
    }
}

fn total(rise: &Ticks, sample: &mut Processor) {
    let [user, nice, system, _, wait, irq, soft_irq, steal] = *rise;
    sample.busy_percent = busy(rise);
    sample.user_percent = share(user + nice, rise);
    sample.system_percent = share(system, rise);
    sample.wait_percent = share(wait, rise);
    sample.interrupt_percent = share(irq + soft_irq, rise);
    sample.steal_percent = share(steal, rise);
}

/// Returns the increase of each counter. The counters of idle and waiting time may decrease by a
/// tick; that counts as no increase.
fn rise(before: &Ticks, after: &Ticks) -> Ticks {
    std::array::from_fn(|i| after[i].saturating_sub(before[i]))
}

fn busy(rise: &Ticks) -> f32 {
    let [user, nice, system, _, _, irq, soft_irq, _] = *rise;
    share(user + nice + system + irq + soft_irq, rise)
}

fn share(part: u64, rise: &Ticks) -> f32 {
    let whole: u64 = rise.iter().sum();
    if whole == 0 { 0.0 } else { hundredths(part as f64 / whole as f64 * 100.0) as f32 }
}
