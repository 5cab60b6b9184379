//! Memory and swap.

use std::time::Duration;

use polywire::Message;

use crate::{
    Measure, MeasureError, Moment, Pdl, ProbeType, Uuid,
    host::{Host, SystemFile, value_of},
    probe::boxed,
};

pub(super) const PROBE: ProbeType = ProbeType {
    name: "memory",
    summary: "Memory and swap in use",
    uuid: Uuid::of(0x1246fd66_2e22_4ecd_b1c2_16edb518f029),
    version: "1.0",
    pdl: Pdl::File(include_str!("../../pdl/memory.pdl")),
    every: Duration::from_secs(1),
    parameters: &[],
    shape: Memory::shape,
    open: |host, _| Ok(boxed(Sampler::open(host)?)),
};

/// A sample of memory and swap.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Memory")]
pub struct Memory {
    /// Memory that the system manages.
    #[polywire(unit = "B")]
    pub total_bytes: u64,
    /// Memory that programs can get without swapping.
    #[polywire(unit = "B")]
    pub available_bytes: u64,
    /// Memory that is not used at all, not even as a cache.
    #[polywire(unit = "B")]
    pub free_bytes: u64,
    /// Memory that caches contents of files.
    #[polywire(unit = "B")]
    pub cached_bytes: u64,
    /// Memory that waits to be written to disks.
    #[polywire(unit = "B")]
    pub dirty_bytes: u64,
    /// Size of all swap.
    #[polywire(unit = "B")]
    pub swap_total_bytes: u64,
    /// Swap that is not used.
    #[polywire(unit = "B")]
    pub swap_free_bytes: u64,
}

struct Sampler(SystemFile);

impl Sampler {
    fn open(host: &Host) -> Result<Sampler, MeasureError> {
        host.file("proc/meminfo").map(Sampler)
    }
}

impl Measure<Memory> for Sampler {
    fn measure(&mut self, _: Moment, sample: &mut Memory) -> Result<(), MeasureError> {
        let text = self.0.read()?;
        let bytes = |key: &str| value_of(text, key).map(|kilobytes| kilobytes.saturating_mul(1024));
        let (Some(total), Some(free)) = (bytes("MemTotal:"), bytes("MemFree:")) else {
            return Err(self.0.form("a line 'MemTotal:' and a line 'MemFree:'"));
        };
        *sample = Memory {
            total_bytes: total,
            // Linux before 3.14 has no such line.
            available_bytes: bytes("MemAvailable:").unwrap_or(free),
            free_bytes: free,
            cached_bytes: bytes("Cached:").unwrap_or_default(),
            dirty_bytes: bytes("Dirty:").unwrap_or_default(),
            swap_total_bytes: bytes("SwapTotal:").unwrap_or_default(),
            swap_free_bytes: bytes("SwapFree:").unwrap_or_default(),
        };
        Ok(())
    }
}
