//! The workload ProcessorProbe of `processor_probe.pdl`: three counters, the smallest message.

use polywire_derive::Message;

use crate::cdr::{Cdr, FIELD, Malformed, Reader, Writer};
use crate::{Rng, Workload};

/// Times that a processor has spent in each state since it started.
#[derive(Clone, Debug, PartialEq, Default, Message)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "rkyv",
    derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize),
    rkyv(attr(allow(missing_docs)))
)]
#[polywire(name = "OASIS::System::Processor::ProcessorProbe")]
#[repr(C)]
#[expect(missing_docs, reason = "the names in the PDL are self-explanatory")]
pub struct ProcessorProbe {
    pub idle_time: u64,
    pub system_time: u64,
    pub user_time: u64,
}

impl Cdr for ProcessorProbe {
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        let mut local = *writer;
        let w = &mut local;
        w.scalar(self.idle_time);
        w.scalar(self.system_time);
        w.scalar(self.user_time);
        *writer = local;
    }

    #[inline]
    fn decode(&mut self, reader: &mut Reader) -> Result<(), Malformed> {
        let mut local = *reader;
        let r = &mut local;
        self.idle_time = r.scalar::<u64>()?;
        self.system_time = r.scalar::<u64>()?;
        self.user_time = r.scalar::<u64>()?;
        *reader = local;
        Ok(())
    }

    fn bound(&self) -> usize {
        3 * FIELD
    }
}

impl Workload for ProcessorProbe {
    const NAME: &'static str = "ProcessorProbe";
    const MESSAGES: usize = 1024;

    fn generate(n: usize) -> Vec<Self> {
        let mut rng = Rng(77);
        let mut message = ProcessorProbe { idle_time: 123456789, system_time: 2345678, user_time: 9876543 };
        (0..n)
            .map(|_| {
                message.idle_time += rng.range(80, 101) as u64;
                message.system_time += rng.range(0, 8) as u64;
                message.user_time += rng.range(0, 20) as u64;
                message.clone()
            })
            .collect()
    }
}
