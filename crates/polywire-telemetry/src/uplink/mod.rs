//! The uplink of a node: every sample reaches the collector once and in order, also across restarts
//! of either side.
//!
//! An [`Uplink`] numbers samples, keeps them in a spool until the collector has stored them, and
//! puts them into node packets. It starts no thread and reads no clock; a [`Carrier`] has the
//! thread that sends. `spec/telemetry.md` specifies the protocol.
//!
//! Samples that are offered while a packet is under way share the next packet, so packets grow with
//! the response time of the collector. When packets have their maximum size, several are under way
//! at the same time.
//!
//! ```
//! use polywire_telemetry::{
//!     Moment, Uuid,
//!     packet::{PacketReply, StreamDescription},
//!     uplink::{Memory, Rule, SpoolLosses, Uplink, UplinkOptions, UplinkStatus},
//! };
//!
//! let (node, now) = (Uuid::random(), Moment::default());
//! let mut uplink = Uplink::new(node, 7, Box::new(Memory::default()), UplinkOptions::default(), now)?;
//! let stream = uplink.open(StreamDescription { instance: "pump-1".into(), ..Default::default() }, Rule::default())?;
//! uplink.offer(stream, b"a sample", now);
//! let packet = uplink.poll(now).unwrap();
//! assert_eq!((packet.packets[0].sequence, &packet.packets[0].payload[..]), (0, &b"a sample"[..]));
//! // There is no reply: the same packet is sent again.
//! uplink.handle_failure();
//! assert_eq!(uplink.poll(now).unwrap().packets, packet.packets);
//! uplink.handle_reply(packet.number, &PacketReply::default());
//! assert!(uplink.poll(now).is_none() && uplink.is_empty());
//! let status: UplinkStatus = uplink.status();
//! assert_eq!((status.acknowledged, status.spool), (1, SpoolLosses::default()));
//! // Waiting samples can be sent early, and can be written to the disk.
//! uplink.flush();
//! uplink.sync()?;
//! assert!(uplink.wait(now).is_zero());
//! uplink.close(stream);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
mod carrier;
mod entry;
mod format;
pub(crate) mod probe;
mod rule;
mod spool;
mod storage;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, io,
    sync::Arc,
    time::Duration,
};

use polywire::extend::program::CodecError;

use self::{
    budget::Budget,
    spool::{Described, Spool},
};
pub use self::{
    carrier::{Carrier, CarrierError, UplinkHandle},
    format::Format,
    probe::UplinkSample,
    rule::{Batch, Keep, MAX_PRIORITY, Rule, RuleError},
    spool::SpoolLosses,
    storage::{Files, Memory, SegmentId, Storage},
};
use crate::{
    Moment, Uuid,
    packet::{DataPacket, MAX_DATA_PACKETS, MAX_PAYLOAD_BYTES, NodePacket, PacketReply, Reduction, StreamDescription},
};

/// The maximum number of streams of a start. A probe whose format or rule changes begins a new
/// stream.
pub const MAX_STREAMS: u32 = 1 << 14;

/// The time after which the spool is read again if its storage cannot be read now.
const AGAIN: Duration = Duration::from_secs(1);

/// The limits and settings of an [`Uplink`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UplinkOptions {
    /// The maximum size of the spool in bytes: 256 MiB by default, at least 64 KiB.
    pub spool_bytes: u64,
    /// The time after which written samples are synchronized to the disk: a second by default.
    /// Killing the process loses no written samples; a power failure loses at most those of this
    /// time, if the disk reports honestly.
    pub sync: Duration,
    /// The approximate maximum size of a node packet in bytes: 256 KiB by default. One sample
    /// always fits.
    pub packet_bytes: usize,
    /// The maximum number of packets under way at a time, from 1: 16 by default. Several packets
    /// are under way only if all but the last one have their maximum size, and while none fails.
    pub window: usize,
    /// The approximate maximum number of bytes sent a second; `None`, the default, for no limit.
    /// Counts node packets before compression.
    pub budget_bytes_per_s: Option<u64>,
}

impl Default for UplinkOptions {
    fn default() -> UplinkOptions {
        let sync = Duration::from_secs(1);
        UplinkOptions { spool_bytes: 256 << 20, sync, packet_bytes: 256 << 10, window: 16, budget_bytes_per_s: None }
    }
}

/// The counters of an uplink since its start, in samples unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UplinkStatus {
    /// Samples that the collector has stored.
    pub acknowledged: u64,
    /// Samples that were lost in the spool.
    pub spool: SpoolLosses,
    /// Samples that were replaced by newer ones ([`Keep::Last`]).
    pub replaced: u64,
    /// Samples that were left out to keep the byte budget.
    pub reduced: u64,
    /// Samples that the collector has refused, or that are too large to send.
    pub refused: u64,
    /// The size of the spool's segments in bytes.
    pub spool_bytes: u64,
    /// The current measure to keep the byte budget.
    pub reduction: Reduction,
}

/// Why a stream cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The node has as many streams as it can have.
    #[error("a node has at most {MAX_STREAMS} streams in one start")]
    TooMany,
    /// The description cannot be encoded.
    #[error("the stream cannot be described")]
    Description(#[from] CodecError),
}

/// Keeps samples until the collector has stored them. There is an example at [the
/// module](crate::uplink).
pub struct Uplink {
    node: Uuid,
    start: u64,
    options: UplinkOptions,
    streams: BTreeMap<u32, Stream>,
    opened: u32,
    spool: Spool,
    budget: Option<Budget>,
    /// The packets that are not acknowledged or follow one that is not, in order.
    flights: VecDeque<Flight>,
    /// The number of packets that may be under way: one after a failure, and one more with each
    /// reply.
    open: usize,
    /// The number of the latest packet.
    number: u64,
    /// The start that was last sent to the collector, and the streams of it that were described.
    told: (u64, BTreeSet<u32>),
    /// When the waiting samples are to be sent.
    due: Option<Duration>,
    /// Whether all waiting samples are being sent.
    is_flushing: bool,
    /// The spool could not be read, and is not read again before this time.
    unreadable_until: Duration,
    synced: Duration,
    status: UplinkStatus,
}

struct Stream {
    described: Described,
    rule: Rule,
    /// The sequence number of the next sample.
    next: u64,
    /// The waiting samples of [`Keep::Last`].
    last: VecDeque<DataPacket>,
    /// The latest sample of an interval, while the budget requires thinning.
    held: Option<DataPacket>,
    /// When the interval ends.
    free_at: Duration,
    /// The number of samples and bytes that wait for a batch.
    waiting: (u64, u64),
    is_closed: bool,
}

/// A packet, kept until it and all packets before it are acknowledged.
struct Flight {
    packet: Arc<NodePacket>,
    /// All streams of its samples.
    streams: Vec<Arc<StreamDescription>>,
    ends: Vec<(SegmentId, u64)>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The packet is to be sent, for the first time or again.
    Waits,
    /// The packet was sent, and has neither a reply nor a failure.
    Out,
    /// The packet is acknowledged, but an earlier one is not.
    Done,
}

impl Uplink {
    /// Makes the uplink of a new start of a node. `start` must be random. Samples that earlier
    /// starts have left in the storage are sent first. Fails if the storage cannot be read.
    pub fn new(
        node: Uuid,
        start: u64,
        storage: Box<dyn Storage>,
        options: UplinkOptions,
        now: Moment,
    ) -> io::Result<Uplink> {
        let spool = Spool::new(storage, start, options.spool_bytes.max(1 << 16))?;
        let is_flushing = spool.waiting_bytes() > 0;
        Ok(Uplink {
            node,
            start,
            options,
            streams: BTreeMap::new(),
            opened: 0,
            spool,
            budget: options.budget_bytes_per_s.map(|bytes| Budget::new(bytes, now.steady)),
            flights: VecDeque::new(),
            open: options.window.max(1),
            // Scatters the first numbers of different starts, also if the starts are close to each
            // other.
            number: start.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            told: (start, BTreeSet::new()),
            due: None,
            is_flushing,
            unreadable_until: Duration::ZERO,
            synced: now.steady,
            status: UplinkStatus::default(),
        })
    }

    /// Opens a stream and returns its number, which is also written into the description.
    pub fn open(&mut self, description: StreamDescription, rule: Rule) -> Result<u32, StreamError> {
        let number = self.opened;
        if number >= MAX_STREAMS {
            return Err(StreamError::TooMany);
        }
        let described = self.spool.describe(StreamDescription { number, ..description })?;
        self.opened += 1;
        let (last, free_at) = (VecDeque::new(), Duration::ZERO);
        let stream = Stream { described, rule, next: 0, last, held: None, free_at, waiting: (0, 0), is_closed: false };
        self.streams.insert(number, stream);
        Ok(number)
    }

    /// Closes a stream to new samples. Its waiting samples are still sent.
    pub fn close(&mut self, number: u32) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        stream.is_closed = true;
        if stream.last.is_empty() && stream.held.is_none() {
            self.streams.remove(&number);
        }
    }

    /// Adds a sample. When this returns, the sample outlives the process if its rule keeps all
    /// samples and the spool is on a disk. Has no effect if there is no such stream. Blocks while
    /// the sample is written.
    pub fn offer(&mut self, number: u32, payload: &[u8], now: Moment) {
        let Some(stream) = self.streams.get_mut(&number).filter(|stream| !stream.is_closed) else { return };
        let sample =
            DataPacket { stream: number, sequence: stream.next, time_ns: now.wall_ns, payload: payload.to_vec() };
        stream.next += 1;
        if payload.len() > MAX_PAYLOAD_BYTES {
            self.status.refused += 1;
            return;
        }
        let left = match &mut self.budget {
            Some(budget) => stream.reduce(budget, sample, now.steady, &mut self.status.reduced),
            None => Some(sample),
        };
        left.into_iter().for_each(|sample| self.keep(sample, now.steady));
    }

    /// Keeps a sample until it is sent.
    fn keep(&mut self, sample: DataPacket, now: Duration) {
        let Some(stream) = self.streams.get_mut(&sample.stream) else { return };
        let Rule { keep, batch, priority } = stream.rule;
        stream.waiting.0 += 1;
        stream.waiting.1 += sample.payload.len() as u64;
        let is_full = batch.is_full(stream.waiting.0, stream.waiting.1);
        match keep {
            Keep::All => self.spool.push(&stream.described, priority, &sample),
            Keep::Last(most) => {
                stream.last.push_back(sample);
                if stream.last.len() > most as usize {
                    stream.last.pop_front();
                    self.status.replaced += 1;
                }
            }
            Keep::None => return,
        }
        let due = match self.budget.as_ref().and_then(Budget::batch) {
            Some(shared) => now.saturating_add(batch.wait().max(shared)),
            None if is_full => now,
            None => now.saturating_add(batch.wait()),
        };
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// Limits the bytes sent a second from now on; `None` for no limit. Samples that the former
    /// budget held back are sent.
    pub fn set_budget(&mut self, bytes_per_s: Option<u64>, now: Moment) {
        self.options.budget_bytes_per_s = bytes_per_s;
        self.budget = bytes_per_s.map(|bytes| Budget::new(bytes, now.steady));
        let free = |stream: &mut Stream| {
            stream.free_at = now.steady;
            stream.held.take()
        };
        let held: Vec<DataPacket> = self.streams.values_mut().filter_map(free).collect();
        held.into_iter().for_each(|sample| self.keep(sample, now.steady));
    }

    /// Returns the bytes a second from [`Uplink::set_budget`], or from the options.
    pub fn budget(&self) -> Option<u64> {
        self.options.budget_bytes_per_s
    }

    /// Sends all waiting samples, regardless of batches.
    pub fn flush(&mut self) {
        self.is_flushing = true;
    }

    /// Returns the next packet if it is time to send one. Packets must be sent in this order. The
    /// caller reports the result of each by [`Uplink::handle_reply`], or a failure of all packets
    /// under way by [`Uplink::handle_failure`]. Blocks while samples are read, and while they are
    /// synchronized to the disk.
    pub fn poll(&mut self, now: Moment) -> Option<Arc<NodePacket>> {
        self.turn(now.steady);
        let may_send = self.budget.as_ref().is_none_or(|budget| budget.wait().is_zero());
        if !may_send || self.flights.iter().filter(|flight| flight.state == State::Out).count() >= self.open {
            return None;
        }
        let is_due = self.is_flushing || self.due.is_some_and(|due| due <= now.steady);
        if is_due && now.steady >= self.unreadable_until && self.may_load() {
            self.load(now);
        }
        let at = self.flights.iter().position(|flight| flight.state == State::Waits)?;
        let before = self.flights.iter().take(at).rfind(|flight| flight.state == State::Out);
        let follows = before.map_or(0, |flight| flight.packet.number);
        let flight = self.flights.get_mut(at)?;
        if self.told.0 != flight.packet.start {
            self.told = (flight.packet.start, BTreeSet::new());
        }
        let told = &mut self.told.1;
        let unknown = flight.streams.iter().filter(|stream| told.insert(stream.number));
        let streams: Vec<StreamDescription> = unknown.map(|stream| StreamDescription::clone(stream)).collect();
        if flight.packet.streams != streams || flight.packet.follows != follows {
            let packet = Arc::make_mut(&mut flight.packet);
            (packet.streams, packet.follows) = (streams, follows);
        }
        flight.state = State::Out;
        self.budget.iter_mut().for_each(|budget| budget.spend(flight.packet.bytes()));
        Some(flight.packet.clone())
    }

    /// Returns whether another packet can be made: none is under way, or the new one would be full.
    fn may_load(&self) -> bool {
        let is_full = || self.spool.unread_bytes() >= self.packet_bytes() as u64;
        match self.flights.len() {
            0 => true,
            count => count < self.open && self.flights.iter().all(|flight| flight.state != State::Waits) && is_full(),
        }
    }

    /// Returns the approximate maximum size of a packet in bytes.
    fn packet_bytes(&self) -> usize {
        self.budget.as_ref().map_or(usize::MAX, Budget::packet_bytes).min(self.options.packet_bytes)
    }

    /// Advances the budget, releases samples that it held back, and synchronizes the spool when
    /// due.
    fn turn(&mut self, now: Duration) {
        if let Some(budget) = &mut self.budget {
            budget.turn(now, self.spool.waiting_bytes());
            let interval = budget.interval();
            let held = |stream: &mut Stream| {
                let is_free = interval.is_none() || stream.free_at <= now;
                let sample = stream.held.take_if(|_| is_free)?;
                stream.free_at = now + interval.unwrap_or_default();
                Some(sample)
            };
            let released: Vec<DataPacket> = self.streams.values_mut().filter_map(held).collect();
            released.into_iter().for_each(|sample| self.keep(sample, now));
        }
        if self.spool.is_dirty() && now.saturating_sub(self.synced) >= self.options.sync {
            self.synced = now;
            if let Err(error) = self.spool.sync() {
                log::warn!("the spool cannot be written to the disk: {error}");
            }
        }
    }

    /// Makes the next packet of waiting samples.
    fn load(&mut self, now: Moment) {
        if !self.is_flushing {
            self.is_flushing = true;
            self.streams.values_mut().for_each(|stream| stream.waiting = (0, 0));
        }
        let most_bytes = self.packet_bytes();
        let spool::Read { start, mut samples, ends, has_failed } = self.spool.read(most_bytes);
        // If samples of an earlier start cannot be read now, those of this start must wait.
        let start = if samples.is_empty() && !has_failed { self.start } else { start };
        if start == self.start {
            self.load_last(&mut samples, most_bytes);
        }
        if samples.is_empty() {
            if has_failed {
                self.unreadable_until = now.steady.saturating_add(AGAIN);
            }
            (self.is_flushing, self.due) = (false, has_failed.then(|| now.steady.saturating_add(AGAIN)));
            // Bytes that were read without a sample come after samples that are under way.
            match self.flights.back_mut() {
                Some(flight) => flight.ends.extend(ends),
                None => self.spool.taken(&ends),
            }
            return;
        }
        let numbers: BTreeSet<u32> = samples.iter().map(|sample| sample.stream).collect();
        let streams = numbers.into_iter().filter_map(|number| self.description(start, number)).collect();
        let reduction = self.budget.as_ref().map_or(Reduction::None, Budget::reduction);
        self.number = self.number.wrapping_add(1).max(1);
        let (node, number, time_ns) = (self.node.0, self.number, now.wall_ns);
        let packet =
            NodePacket { node, start, number, follows: 0, time_ns, reduction, streams: Vec::new(), packets: samples };
        self.flights.push_back(Flight { packet: Arc::new(packet), streams, ends, state: State::Waits });
    }

    /// Adds the samples of [`Keep::Last`] that fit.
    fn load_last(&mut self, samples: &mut Vec<DataPacket>, most_bytes: usize) {
        let mut bytes: usize = samples.iter().map(DataPacket::bytes).sum();
        for stream in self.streams.values_mut() {
            while let Some(first) = stream.last.front() {
                let fits = bytes + first.bytes() <= most_bytes && samples.len() < MAX_DATA_PACKETS;
                if !fits && !samples.is_empty() {
                    return;
                }
                bytes += first.bytes();
                samples.extend(stream.last.pop_front());
            }
        }
    }

    fn description(&self, start: u64, number: u32) -> Option<Arc<StreamDescription>> {
        let own = self.streams.get(&number).filter(|_| start == self.start).map(|stream| &stream.described.description);
        own.or_else(|| self.spool.stream(start, number)).cloned()
    }

    /// Handles the collector's reply to the packet with this number.
    pub fn handle_reply(&mut self, number: u64, reply: &PacketReply) {
        let mut out = self.flights.iter_mut().filter(|flight| flight.state == State::Out);
        let Some(flight) = out.find(|flight| flight.packet.number == number) else { return };
        if reply.unknown {
            return self.handle_failure();
        }
        flight.state = State::Done;
        let samples = flight.packet.packets.len() as u64;
        match reply.is_stored() {
            true => self.status.acknowledged += samples,
            // Sending the packet again would block all later ones.
            false => {
                log::warn!("the collector refuses {samples} samples: {}", reply.problem);
                self.status.refused += samples;
                // The collector has not accepted the descriptions in the packet.
                self.told.1.clear();
            }
        }
        self.open = (self.open + 1).min(self.options.window.max(1));
        while let Some(flight) = self.flights.pop_front_if(|flight| flight.state == State::Done) {
            self.spool.taken(&flight.ends);
        }
        let is_over = |stream: &Stream| stream.is_closed && stream.last.is_empty() && stream.held.is_none();
        self.streams.retain(|_, stream| !is_over(stream));
    }

    /// Handles a failure: a packet may not have arrived, or the collector may have forgotten its
    /// streams. All packets under way are sent again, in order, with their streams. Replies to
    /// earlier transmissions are ignored until then.
    pub fn handle_failure(&mut self) {
        self.told.1.clear();
        self.open = 1;
        let out = self.flights.iter_mut().filter(|flight| flight.state == State::Out);
        out.for_each(|flight| flight.state = State::Waits);
    }

    /// Returns the time until [`Uplink::poll`] has something to do, unless samples or replies
    /// arrive earlier.
    pub fn wait(&self, now: Moment) -> Duration {
        let until = |at: Duration| at.saturating_sub(now.steady);
        let credit = self.budget.as_ref().map_or(Duration::ZERO, Budget::wait);
        let out = self.flights.iter().filter(|flight| flight.state == State::Out).count();
        let again = self.flights.iter().any(|flight| flight.state == State::Waits);
        let packet = match (again, self.is_flushing) {
            _ if out >= self.open => None,
            (true, _) => Some(credit),
            (false, _) if !self.may_load() => None,
            (false, true) => Some(credit.max(until(self.unreadable_until))),
            (false, false) => self.due.map(|due| until(due.max(self.unreadable_until)).max(credit)),
        };
        let held =
            self.streams.values().filter(|stream| stream.held.is_some()).map(|stream| until(stream.free_at)).min();
        let sync = self.spool.is_dirty().then(|| until(self.synced.saturating_add(self.options.sync)));
        [packet, held, sync].into_iter().flatten().min().unwrap_or(Duration::MAX)
    }

    /// Blocks until all samples of the spool are on the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.spool.sync()
    }

    /// Returns whether the collector has acknowledged everything.
    pub fn is_empty(&self) -> bool {
        let waits = |stream: &Stream| !stream.last.is_empty() || stream.held.is_some();
        self.flights.is_empty() && self.spool.waiting_bytes() == 0 && !self.streams.values().any(waits)
    }

    /// Returns the counters since the start.
    pub fn status(&self) -> UplinkStatus {
        let reduction = self.budget.as_ref().map_or(Reduction::None, Budget::reduction);
        UplinkStatus { spool: self.spool.losses(), spool_bytes: self.spool.bytes(), reduction, ..self.status }
    }
}

impl Stream {
    /// Returns the sample if the budget lets it pass now. Counts the samples that are left out.
    fn reduce(
        &mut self,
        budget: &mut Budget,
        sample: DataPacket,
        now: Duration,
        reduced: &mut u64,
    ) -> Option<DataPacket> {
        budget.offer(sample.stream, self.rule.priority, sample.bytes());
        if budget.drops(self.rule.priority) {
            *reduced += 1;
            return None;
        }
        let interval = budget.interval().unwrap_or_default();
        let (left, before) = match now < self.free_at && !interval.is_zero() {
            true => (None, self.held.replace(sample)),
            false => {
                self.free_at = now + interval;
                (Some(sample), self.held.take())
            }
        };
        *reduced += u64::from(before.is_some());
        left
    }
}

impl fmt::Debug for Uplink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uplink of node {} with {} streams: {:?}", self.node, self.streams.len(), self.status())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A storage that cannot be read at the first attempt.
    struct Late(Memory, bool);

    impl Storage for Late {
        fn list(&mut self) -> io::Result<Vec<(SegmentId, u64)>> {
            self.0.list()
        }

        fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.0.write(segment, offset, bytes)
        }

        fn read(&mut self, segment: SegmentId, offset: u64, most: usize) -> io::Result<Vec<u8>> {
            match std::mem::replace(&mut self.1, true) {
                true => self.0.read(segment, offset, most),
                false => Err(io::ErrorKind::OutOfMemory.into()),
            }
        }

        fn sync(&mut self) -> io::Result<()> {
            self.0.sync()
        }

        fn remove(&mut self, segment: SegmentId) -> io::Result<()> {
            self.0.remove(segment)
        }
    }

    #[test]
    fn samples_that_cannot_be_read_now_are_sent_later() {
        let mut now = Moment::default();
        let storage = Box::new(Late(Memory::default(), false));
        let options = UplinkOptions { sync: Duration::from_secs(60), ..UplinkOptions::default() };
        let mut uplink = Uplink::new(Uuid::of(7), 7, storage, options, now).expect("an uplink");
        let stream = uplink.open(StreamDescription::default(), Rule::default()).expect("a stream");
        uplink.offer(stream, b"a", now);
        assert!(uplink.poll(now).is_none() && !uplink.is_empty());
        assert_eq!(uplink.wait(now), AGAIN);
        now.steady += AGAIN;
        assert_eq!(uplink.poll(now).expect("a packet").packets.len(), 1);
        assert_eq!(uplink.status().spool, SpoolLosses::default());
    }

    #[test]
    fn times_of_any_length_are_no_panic() {
        let now = Moment { steady: Duration::from_secs(1), ..Moment::default() };
        let options = UplinkOptions { sync: Duration::MAX, ..UplinkOptions::default() };
        let mut uplink = Uplink::new(Uuid::of(7), 7, Box::new(Memory::default()), options, now).expect("an uplink");
        let batch = Batch { time: Some(Duration::MAX), ..Batch::default() };
        let stream = uplink.open(StreamDescription::default(), Rule { batch, ..Rule::default() }).expect("a stream");
        uplink.offer(stream, b"a", now);
        assert!(uplink.poll(now).is_none());
        assert_eq!(uplink.wait(now), Duration::MAX - now.steady);
    }
}
