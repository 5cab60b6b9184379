//! The samples that the collector has not acknowledged, in segments. The spool has a limit in
//! bytes, drops the oldest samples of the lowest priority first, and skips and counts damage.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

use polywire::{codec::BuildError, extend::program::CodecError};
use rustix::io::Errno;

use super::{
    entry::{Entries, Entry, Found, put_sample},
    storage::{SegmentId, Storage},
};
use crate::packet::{DataPacket, MAX_DATA_PACKETS, StreamDescription};

/// A segment is at most this fraction of the spool, so that dropping one keeps most samples.
const SEGMENTS: u64 = 16;

/// The size in bytes at which a segment ends and the next one begins.
const SEGMENT_BYTES: u64 = 1 << 20;

/// The number of consecutive input/output errors after which a segment counts as damaged.
const ATTEMPTS: u32 = 5;

/// The losses in the spool, in samples unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolLosses {
    /// Samples that were dropped for lack of room.
    pub dropped: u64,
    /// Samples that were not written, because the disk is full or fails.
    pub unwritten: u64,
    /// Damaged ranges of bytes, and samples of streams whose description was damaged.
    pub damaged: u64,
}

/// Samples read from the spool.
#[derive(Debug, Default)]
pub struct Read {
    /// The start in which the samples were numbered.
    pub start: u64,
    pub samples: Vec<DataPacket>,
    /// The segments that were read, and the offset up to which each was read.
    pub ends: Vec<(SegmentId, u64)>,
    /// Whether a segment could not be read now. It is to be read again later.
    pub has_failed: bool,
}

/// A stream, and the entry that describes it.
pub struct Described {
    pub description: Arc<StreamDescription>,
    entry: Vec<u8>,
}

pub struct Spool {
    storage: Box<dyn Storage>,
    entries: Entries,
    start: u64,
    most_bytes: u64,
    segments: BTreeMap<SegmentId, Segment>,
    /// The segments that samples are currently written to, by priority.
    open: BTreeMap<u8, Open>,
    next_number: u64,
    /// The streams, of all starts, whose samples were read from the spool or are written to it.
    streams: BTreeMap<(u64, u32), Arc<StreamDescription>>,
    losses: SpoolLosses,
    is_dirty: bool,
}

#[derive(Clone, Copy, Default)]
struct Segment {
    bytes: u64,
    /// The offset up to which the samples are acknowledged.
    taken: u64,
    /// The offset up to which the samples were read, and are being sent or are acknowledged.
    read: u64,
    /// The number of consecutive input/output errors.
    failures: u32,
}

impl Segment {
    /// Returns whether samples of the segment are being sent: such a segment is dropped last.
    fn is_flying(&self) -> bool {
        self.read > self.taken
    }
}

struct Open {
    id: SegmentId,
    /// The streams that the segment describes.
    described: BTreeSet<u32>,
}

impl Spool {
    /// Makes the spool of a node's new start. Segments of earlier starts in the storage are read
    /// first.
    pub fn new(mut storage: Box<dyn Storage>, start: u64, most_bytes: u64) -> io::Result<Spool> {
        let entries = Entries::new().map_err(|error: BuildError| io::Error::other(error.to_string()))?;
        let known = storage.list()?;
        let next_number = known.iter().map(|(id, _)| id.number.saturating_add(1)).max().unwrap_or(0);
        let segment = |(id, bytes)| (id, Segment { bytes, ..Segment::default() });
        Ok(Spool {
            storage,
            entries,
            start,
            most_bytes,
            segments: known.into_iter().map(segment).collect(),
            open: BTreeMap::new(),
            next_number,
            streams: BTreeMap::new(),
            losses: SpoolLosses::default(),
            is_dirty: false,
        })
    }

    /// Encodes the description of a stream of this start.
    pub fn describe(&self, description: StreamDescription) -> Result<Described, CodecError> {
        let mut entry = Vec::new();
        self.entries.put_stream(&description, &mut entry)?;
        Ok(Described { description: Arc::new(description), entry })
    }

    /// Adds a sample. A sample that cannot be written is counted; its sequence number stays
    /// missing.
    pub fn push(&mut self, stream: &Described, priority: u8, sample: &DataPacket) {
        if self.try_push(stream, priority, sample).is_err() {
            self.losses.unwritten += 1;
        }
    }

    fn try_push(&mut self, stream: &Described, priority: u8, sample: &DataPacket) -> io::Result<()> {
        let number = stream.description.number;
        let mut bytes = Vec::new();
        put_sample(sample, &mut bytes);
        if !self.make_room((stream.entry.len() + bytes.len()) as u64, priority) {
            self.losses.dropped += 1;
            return Ok(());
        }
        let id = self.segment_for(priority);
        let is_described = self.open.get(&priority).is_some_and(|open| open.described.contains(&number));
        if !is_described {
            bytes.splice(0..0, stream.entry.iter().copied());
        }
        let end = self.segments.get(&id).map_or(0, |segment| segment.bytes);
        self.storage.write(id, end, &bytes)?;
        self.is_dirty = true;
        self.segments.entry(id).or_default().bytes = end + bytes.len() as u64;
        if let Some(open) = self.open.get_mut(&priority).filter(|_| !is_described) {
            open.described.insert(number);
            self.streams.insert((self.start, number), stream.description.clone());
        }
        Ok(())
    }

    /// Returns the segment for the next sample of a priority.
    fn segment_for(&mut self, priority: u8) -> SegmentId {
        let most = SEGMENT_BYTES.min(self.most_bytes / SEGMENTS);
        let size = |id: &SegmentId| self.segments.get(id).map_or(0, |segment| segment.bytes);
        if let Some(open) = self.open.get(&priority).filter(|open| size(&open.id) < most) {
            return open.id;
        }
        let id = SegmentId { priority, number: self.next_number, start: self.start };
        self.next_number += 1;
        let before = self.open.insert(priority, Open { id, described: BTreeSet::new() });
        before.into_iter().for_each(|before| self.remove_if_taken(before.id));
        id
    }

    /// Drops segments until this number of bytes of a priority fit. Returns false if they do not
    /// fit and only segments of higher priority are left.
    fn make_room(&mut self, bytes: u64, priority: u8) -> bool {
        while self.bytes() + bytes > self.most_bytes {
            let victims = self.segments.iter().filter(|(id, _)| id.priority <= priority);
            let victim = victims.min_by_key(|(id, segment)| (segment.is_flying(), **id)).map(|(id, _)| *id);
            let Some(victim) = victim else { return false };
            self.losses.dropped += self.samples_in(victim);
            self.forget(victim);
        }
        true
    }

    fn samples_in(&mut self, id: SegmentId) -> u64 {
        let Some(Segment { bytes, taken, .. }) = self.segments.get(&id).copied() else { return 0 };
        let rest = self.load(id, taken, bytes).unwrap_or_default();
        let (mut samples, mut offset) = (0, 0);
        while let Some((found, end)) = self.entries.at(&rest, offset) {
            samples += u64::from(matches!(found, Found::Entry(Entry::Sample(_))));
            offset = end;
        }
        samples
    }

    /// Reads the next samples, all of one start.
    pub fn read(&mut self, most_bytes: usize) -> Read {
        let (mut read, mut room) = (Read::default(), most_bytes);
        for id in self.in_order() {
            if !read.samples.is_empty() && id.start != read.start {
                break;
            }
            read.start = id.start;
            if !self.read_segment(id, &mut room, &mut read) {
                break;
            }
        }
        for (id, end) in &read.ends {
            self.segments.entry(*id).and_modify(|segment| segment.read = *end);
        }
        read
    }

    /// Returns the segments in the order in which they are sent: those of earlier starts first,
    /// because the collector remembers only the latest starts; then those of high priority.
    fn in_order(&self) -> Vec<SegmentId> {
        let mut begun: BTreeMap<u64, u64> = BTreeMap::new();
        for id in self.segments.keys() {
            begun.entry(id.start).and_modify(|first| *first = id.number.min(*first)).or_insert(id.number);
        }
        let mut ids: Vec<SegmentId> = self.segments.keys().copied().collect();
        ids.sort_by_key(|id| (begun.get(&id.start).copied(), u8::MAX - id.priority, id.number));
        ids
    }

    /// Reads the next samples of a segment. Returns whether there is room left for another segment.
    fn read_segment(&mut self, id: SegmentId, room: &mut usize, read: &mut Read) -> bool {
        let Some(Segment { bytes, read: from, .. }) = self.segments.get(&id).copied() else { return true };
        let rest = match self.load(id, from, bytes) {
            Ok(rest) => {
                self.segments.entry(id).and_modify(|segment| segment.failures = 0);
                rest
            }
            Err(error) => {
                log::warn!("a part of the spool cannot be read: {error}");
                read.has_failed = !self.is_lost(id, &error);
                if !read.has_failed {
                    self.losses.damaged += 1;
                    self.forget(id);
                }
                return !read.has_failed;
            }
        };
        let (mut offset, mut fits) = (0, true);
        while let Some((found, end)) = self.entries.at(&rest, offset) {
            match found {
                Found::Damage => self.losses.damaged += 1,
                Found::Entry(Entry::Stream(stream)) => {
                    self.streams.entry((id.start, stream.number)).or_insert_with(|| Arc::new(stream));
                }
                Found::Entry(Entry::Sample(sample)) if !self.streams.contains_key(&(id.start, sample.stream)) => {
                    self.losses.damaged += 1;
                }
                Found::Entry(Entry::Sample(sample)) => {
                    // The first sample always fits.
                    let is_first = read.samples.is_empty();
                    fits = (is_first || sample.bytes() <= *room) && read.samples.len() < MAX_DATA_PACKETS;
                    if !fits {
                        break;
                    }
                    *room = room.saturating_sub(sample.bytes());
                    read.samples.push(sample);
                }
            }
            offset = end;
        }
        if offset > 0 {
            read.ends.push((id, from + offset as u64));
        } else {
            self.remove_if_taken(id);
        }
        fits
    }

    /// Returns whether a segment can never be read: it is missing or cut off, or reading it has
    /// failed repeatedly. Errors of the process pass, such as too many open files.
    fn is_lost(&mut self, id: SegmentId, error: &io::Error) -> bool {
        let Some(segment) = self.segments.get_mut(&id) else { return true };
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => true,
            io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => false,
            _ if [Errno::MFILE, Errno::NFILE].iter().any(|full| error.raw_os_error() == Some(full.raw_os_error())) => {
                false
            }
            _ => {
                segment.failures += 1;
                segment.failures >= ATTEMPTS
            }
        }
    }

    fn load(&mut self, id: SegmentId, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let most = usize::try_from(to.saturating_sub(from)).map_err(io::Error::other)?;
        if most == 0 { Ok(Vec::new()) } else { self.storage.read(id, from, most) }
    }

    /// Marks samples up to these offsets as acknowledged.
    pub fn taken(&mut self, ends: &[(SegmentId, u64)]) {
        for (id, end) in ends {
            if let Some(segment) = self.segments.get_mut(id) {
                segment.taken = *end;
                self.remove_if_taken(*id);
            }
        }
    }

    /// Removes a segment whose samples are all acknowledged, unless it is still written to.
    fn remove_if_taken(&mut self, id: SegmentId) {
        let is_open = self.open.values().any(|open| open.id == id);
        if !is_open && self.segments.get(&id).is_some_and(|segment| segment.taken >= segment.bytes) {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: SegmentId) {
        if let Err(error) = self.storage.remove(id) {
            log::warn!("a part of the spool cannot be removed: {error}");
        }
        self.segments.remove(&id);
        self.open.retain(|_, open| open.id != id);
        // If a segment of that start remains, its streams are still needed.
        if id.start != self.start && !self.segments.keys().any(|other| other.start == id.start) {
            self.streams.retain(|(start, _), _| *start != id.start);
        }
    }

    /// Blocks until all samples are on the disk. Has no effect if they are already.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.is_dirty {
            self.storage.sync()?;
            self.is_dirty = false;
        }
        Ok(())
    }

    pub fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    pub fn stream(&self, start: u64, number: u32) -> Option<&Arc<StreamDescription>> {
        self.streams.get(&(start, number))
    }

    /// Returns the number of bytes that are not acknowledged.
    pub fn waiting_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes.saturating_sub(segment.taken)).sum()
    }

    /// Returns the number of bytes that are not being sent yet.
    pub fn unread_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes.saturating_sub(segment.read)).sum()
    }

    /// Returns the total size of the segments in bytes.
    pub fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    pub fn losses(&self) -> SpoolLosses {
        self.losses
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Mutex};

    use super::{super::storage::Memory, *};

    /// The errors of the next attempts to read.
    type Errors = Arc<Mutex<VecDeque<io::Error>>>;

    /// A storage that cannot be read while there are errors.
    struct Flaky(Memory, Errors);

    impl Storage for Flaky {
        fn list(&mut self) -> io::Result<Vec<(SegmentId, u64)>> {
            self.0.list()
        }

        fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.0.write(segment, offset, bytes)
        }

        fn read(&mut self, segment: SegmentId, offset: u64, most: usize) -> io::Result<Vec<u8>> {
            match self.1.lock().expect("not poisoned").pop_front() {
                Some(error) => Err(error),
                None => self.0.read(segment, offset, most),
            }
        }

        fn sync(&mut self) -> io::Result<()> {
            self.0.sync()
        }

        fn remove(&mut self, segment: SegmentId) -> io::Result<()> {
            self.0.remove(segment)
        }
    }

    /// Makes a spool with a sample.
    fn spool(errors: &Errors) -> Spool {
        let mut spool = Spool::new(Box::new(Flaky(Memory::default(), errors.clone())), 7, 1 << 20).expect("a spool");
        let stream = spool.describe(StreamDescription::default()).expect("described");
        spool.push(&stream, 5, &DataPacket::default());
        spool
    }

    #[test]
    fn a_segment_that_cannot_be_read_now_is_read_later() {
        let errors = Errors::default();
        let mut spool = spool(&errors);
        let io_error = || io::Error::from_raw_os_error(Errno::IO.raw_os_error());
        let too_many_files = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        errors.lock().expect("not poisoned").extend([too_many_files, io_error(), io_error()]);
        for _ in 0..3 {
            let read = spool.read(1000);
            assert_eq!((read.has_failed, read.samples.len()), (true, 0));
        }
        let read = spool.read(1000);
        assert_eq!((read.has_failed, read.samples.len(), spool.losses()), (false, 1, SpoolLosses::default()));
    }

    #[test]
    fn a_segment_that_stays_unreadable_is_damaged() {
        let lasting = (0..ATTEMPTS).map(|_| io::Error::from_raw_os_error(Errno::IO.raw_os_error()));
        let at_once = [io::ErrorKind::NotFound, io::ErrorKind::UnexpectedEof].map(|kind| vec![io::Error::from(kind)]);
        for all in at_once.into_iter().chain([lasting.collect()]) {
            let attempts = all.len();
            let errors: Errors = Arc::new(Mutex::new(all.into()));
            let mut spool = spool(&errors);
            assert!((1..attempts).all(|_| spool.read(1000).has_failed));
            assert!(!spool.read(1000).has_failed);
            assert_eq!((spool.losses().damaged, spool.bytes()), (1, 0));
        }
    }
}
