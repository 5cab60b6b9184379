//! Disks: bytes read and written, and free space on file systems.

use std::{collections::BTreeMap, fs, time::Duration};

use polywire::Message;

use super::{Interval, Rated};
use crate::{
    Measure, MeasureError, Moment, Pdl, ProbeType, Uuid,
    host::{Host, SystemFile, take},
    probe::boxed,
};

/// The bytes of a sector in `/proc/diskstats`; the sector size of the disk does not matter.
const SECTOR: u64 = 512;

/// The maximum number of disks, and of file systems, in a sample.
const MAX_DISKS: usize = 256;

pub(super) const PROBE: ProbeType = ProbeType {
    name: "disks",
    summary: "What disks read and write, and the room on file systems",
    uuid: Uuid::of(0xec835449_fdaf_4bf5_a160_a0dffb3a51da),
    version: "1.0",
    pdl: Pdl::File(include_str!("../../pdl/disks.pdl")),
    every: Duration::from_secs(5),
    parameters: &[],
    shape: Disks::shape,
    open: |host, _| Ok(boxed(Sampler::open(host)?)),
};

/// A sample of the disks.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Disks")]
pub struct Disks {
    /// The time that the rates cover.
    #[polywire(base)]
    pub rated: Rated,
    /// Whole disks that have been used since the start of the system, by name; at most 256.
    pub disks: Vec<Disk>,
    /// File systems on devices, by mount point; at most 256.
    pub filesystems: Vec<Filesystem>,
}

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Disk", nested)]
pub struct Disk {
    /// The device, without `/dev/`.
    pub name: String,
    /// Bytes read since the start of the system.
    #[polywire(unit = "B")]
    pub read_bytes: u64,
    /// Bytes written since the start of the system.
    #[polywire(unit = "B")]
    pub written_bytes: u64,
    /// Bytes read per second.
    #[polywire(unit = "B/s")]
    pub read_rate: f64,
    /// Bytes written per second.
    #[polywire(unit = "B/s")]
    pub write_rate: f64,
    /// Reads and writes per second.
    #[polywire(unit = "Hz")]
    pub operation_rate: f64,
    /// Time in which at least one operation was under way.
    #[polywire(unit = "%")]
    pub busy_percent: f32,
}

/// One file system.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Filesystem", nested)]
pub struct Filesystem {
    /// The folder at which it is mounted.
    pub place: String,
    /// The device.
    pub device: String,
    /// Its size.
    #[polywire(unit = "B")]
    pub total_bytes: u64,
    /// The space that unprivileged users can still write.
    #[polywire(unit = "B")]
    pub available_bytes: u64,
}

/// Counters of `/proc/diskstats`.
#[derive(Clone, Copy)]
struct Counters {
    operations: u64,
    read: u64,
    written: u64,
    busy_ms: u64,
}

struct Sampler {
    host: Host,
    counters: SystemFile,
    mounts: SystemFile,
    interval: Interval,
    before: BTreeMap<String, Counters>,
}

impl Sampler {
    fn open(host: &Host) -> Result<Sampler, MeasureError> {
        let (counters, mounts) = (host.file("proc/diskstats")?, host.file("proc/self/mounts")?);
        Ok(Sampler { host: host.clone(), counters, mounts, interval: Interval::default(), before: BTreeMap::new() })
    }

    fn filesystems(&mut self) -> Result<Vec<Filesystem>, MeasureError> {
        let mut found: BTreeMap<String, Filesystem> = BTreeMap::new();
        for line in self.mounts.read()?.lines() {
            let mut words = line.split(' ');
            let (Some(device), Some(place)) = (words.next(), words.next()) else { continue };
            // Other file systems have no space of their own, or are on servers that may not answer.
            if !device.starts_with('/') || found.contains_key(device) || found.len() == MAX_DISKS {
                continue;
            }
            let place = unescaped(place);
            let Ok(room) = rustix::fs::statvfs(self.host.path(&place)) else { continue };
            let bytes = |blocks: u64| blocks.saturating_mul(room.f_frsize);
            let (total_bytes, available_bytes) = (bytes(room.f_blocks), bytes(room.f_bavail));
            let device = device.to_owned();
            found.insert(device.clone(), Filesystem { place, device, total_bytes, available_bytes });
        }
        let mut all: Vec<Filesystem> = found.into_values().collect();
        all.sort_by(|a, b| a.place.cmp(&b.place));
        Ok(all)
    }
}

impl Measure<Disks> for Sampler {
    fn measure(&mut self, now: Moment, sample: &mut Disks) -> Result<(), MeasureError> {
        let rated = self.interval.next(now);
        let whole = |name: &str| fs::exists(self.host.path("sys/block").join(name)).unwrap_or(false);
        let text = self.counters.read()?;
        let found =
            text.lines().filter_map(counters).filter(|(name, c)| c.operations > 0 && whole(name)).take(MAX_DISKS);
        let after: BTreeMap<String, Counters> = found.map(|(name, c)| (name.to_owned(), c)).collect();
        let disk = |(name, after): (&String, &Counters)| {
            let before = self.before.get(name).unwrap_or(after);
            Disk {
                name: name.clone(),
                read_bytes: after.read,
                written_bytes: after.written,
                read_rate: rated.rate(before.read, after.read),
                write_rate: rated.rate(before.written, after.written),
                operation_rate: rated.rate(before.operations, after.operations),
                busy_percent: rated.percent(before.busy_ms, after.busy_ms, 1e3).min(100.0),
            }
        };
        let disks = after.iter().map(disk).collect();
        self.before = after;
        *sample = Disks { rated, disks, filesystems: self.filesystems()? };
        Ok(())
    }
}

/// Parses the device and its counters from a line of `/proc/diskstats`.
fn counters(line: &str) -> Option<(&str, Counters)> {
    let name = line.split_ascii_whitespace().nth(2)?;
    let (_, rest) = line.split_once(name)?;
    let [reads, _, read, _, writes, _, written, _, _, busy_ms] = take(rest)?;
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR);
    let operations = reads.saturating_add(writes);
    Some((name, Counters { operations, read: bytes(read), written: bytes(written), busy_ms }))
}

/// Decodes a mount point, in which the kernel writes spaces, tabs, line breaks and backslashes as
/// `\040` and so on.
fn unescaped(place: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.iter().fold(place.to_owned(), |place, (code, text)| place.replace(code, text))
}
