//! The workload LinuxProcessorProbe of `processor_probe.pdl`: seven counters, three of them
//! inherited.

use polywire_derive::Message;

use crate::cdr::{Cdr, FIELD, Malformed, Reader, Writer};
use crate::{ProcessorProbe, Rng, Workload};

/// Times that a processor has spent in each state of Linux since it started.
#[derive(Clone, Debug, PartialEq, Default, Message)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(from = "Flat", into = "Flat"))]
#[polywire(name = "OASIS::System::Processor::LinuxProcessorProbe")]
#[repr(C)]
#[expect(missing_docs, reason = "the names in the PDL are self-explanatory")]
pub struct LinuxProcessorProbe {
    #[polywire(base)]
    pub base: ProcessorProbe,
    pub nice_time: u64,
    pub iowait_time: u64,
    pub irq_time: u64,
    pub soft_irq_time: u64,
}

/// The type for serde, with the members of the base as its own. `serde(flatten)` would be slower,
/// because it collects every value in a map.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Flat {
    idle_time: u64,
    system_time: u64,
    user_time: u64,
    nice_time: u64,
    iowait_time: u64,
    irq_time: u64,
    soft_irq_time: u64,
}

#[cfg(feature = "serde")]
impl From<LinuxProcessorProbe> for Flat {
    fn from(probe: LinuxProcessorProbe) -> Flat {
        let LinuxProcessorProbe { base, nice_time, iowait_time, irq_time, soft_irq_time } = probe;
        let ProcessorProbe { idle_time, system_time, user_time } = base;
        Flat { idle_time, system_time, user_time, nice_time, iowait_time, irq_time, soft_irq_time }
    }
}

#[cfg(feature = "serde")]
impl From<Flat> for LinuxProcessorProbe {
    fn from(flat: Flat) -> LinuxProcessorProbe {
        let Flat { idle_time, system_time, user_time, nice_time, iowait_time, irq_time, soft_irq_time } = flat;
        let base = ProcessorProbe { idle_time, system_time, user_time };
        LinuxProcessorProbe { base, nice_time, iowait_time, irq_time, soft_irq_time }
    }
}

impl Cdr for LinuxProcessorProbe {
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        let mut local = *writer;
        let w = &mut local;
        self.base.encode(w);
        w.scalar(self.nice_time);
        w.scalar(self.iowait_time);
        w.scalar(self.irq_time);
        w.scalar(self.soft_irq_time);
        *writer = local;
    }

    #[inline]
    fn decode(&mut self, reader: &mut Reader) -> Result<(), Malformed> {
        let mut local = *reader;
        let r = &mut local;
        self.base.decode(r)?;
        self.nice_time = r.scalar::<u64>()?;
        self.iowait_time = r.scalar::<u64>()?;
        self.irq_time = r.scalar::<u64>()?;
        self.soft_irq_time = r.scalar::<u64>()?;
        *reader = local;
        Ok(())
    }

    fn bound(&self) -> usize {
        7 * FIELD
    }
}

impl Workload for LinuxProcessorProbe {
    const NAME: &'static str = "LinuxProcessorProbe";
    const MESSAGES: usize = 1024;

    fn generate(n: usize) -> Vec<Self> {
        let mut rng = Rng(78);
        let mut message = LinuxProcessorProbe {
            base: ProcessorProbe { idle_time: 123456789, system_time: 2345678, user_time: 9876543 },
            nice_time: 4567,
            iowait_time: 345678,
            irq_time: 89012,
            soft_irq_time: 56789,
        };
        (0..n)
            .map(|_| {
                message.base.idle_time += rng.range(80, 101) as u64;
                message.base.system_time += rng.range(0, 8) as u64;
                message.base.user_time += rng.range(0, 20) as u64;
                message.nice_time += u64::from(rng.chance(5));
                message.iowait_time += rng.range(0, 4) as u64;
                message.irq_time += rng.range(0, 2) as u64;
                message.soft_irq_time += rng.range(0, 3) as u64;
                message.clone()
            })
            .collect()
    }
}
