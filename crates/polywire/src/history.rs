//! History for late joiners. The publisher keeps samples and sends them again. The subscriber
//! brings these samples and the messages that are published meanwhile into order.
//!
//! A publisher that keeps a history announces a history channel for each of its formats, whose
//! offer names the publisher. Only subscribers that have just joined accept it; their answers are
//! the request. `spec/qos.md` specifies the protocol. Replays run on threads of their own, which
//! end by themselves.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Weak},
    thread::{self, ThreadId},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    envelope::{ChannelId, Envelope, Id128},
    qos::{History, Qos, expires_ns},
};

use crate::{
    clock,
    node::{PortEntry, Replay, Source},
    replayed::{LISTED, Part},
    writers::Missing,
};

/// The least time between two replays of one publisher.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a subscriber holds back new messages while it waits for the history.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The most sequence numbers of replayed samples that a subscriber remembers, to drop duplicates.
const REMEMBERED: usize = 1 << 16;

/// The most gaps in a writer's messages that wait to be filled by its history. Messages of further
/// gaps count as lost at once.
const GAPS: usize = 1024;

/// The samples that a publisher keeps for late joiners.
pub(crate) struct Kept {
    this: Weak<Kept>,
    entry: Weak<PortEntry>,
    depth: usize,
    lifespan: Option<Duration>,
    max_samples: usize,
    max_instances: usize,
    cache: Mutex<Cache>,
    /// Held while a sample is sent and kept. So a sample that a replay does not have is sent after
    /// the replay has begun.
    publishing: Mutex<()>,
    work: Mutex<Work>,
}

#[derive(Default)]
struct Cache {
    /// The samples, by sequence number.
    samples: BTreeMap<u64, KeptSample>,
    instances: BTreeMap<Id128, VecDeque<u64>>,
    /// The history channels. The last is that of the present format. Any other ends with its last
    /// sample.
    channels: Vec<HistoryChannel>,
    /// Sequence number of the last message on the history channels.
    replayed: u64,
}

/// A history channel, and the id of its writer.
type HistoryChannel = (ChannelId, Id128);

#[derive(Default)]
struct Work {
    requested: bool,
    running: bool,
}

/// A sample as a replay sends it.
#[derive(Clone)]
pub(crate) struct KeptSample {
    pub(crate) timestamp_ns: i64,
    /// The key hash that is sent with the message.
    pub(crate) key_hash: Option<Id128>,
    pub(crate) instance: Id128,
    /// Whether the payload is a key frame of a stateful format.
    pub(crate) is_key_frame: bool,
    /// The payload, which refers to no other message.
    pub(crate) payload: Arc<[u8]>,
    pub(crate) channel: ChannelId,
}

impl Kept {
    /// Makes the history that the policies require, for the subscribers on this port.
    pub(crate) fn new(entry: &Arc<PortEntry>, qos: &Qos) -> Arc<Kept> {
        let limit = |limit: Option<u32>| limit.map_or(usize::MAX, |limit| limit as usize);
        Arc::new_cyclic(|this| Kept {
            this: this.clone(),
            entry: Arc::downgrade(entry),
            depth: match qos.history {
                History::KeepLast(depth) => depth as usize,
                History::KeepAll => usize::MAX,
            },
            lifespan: qos.lifespan,
            max_samples: limit(qos.resource_limits.max_samples),
            max_instances: limit(qos.resource_limits.max_instances),
            cache: Mutex::default(),
            publishing: Mutex::default(),
            work: Mutex::default(),
        })
    }

    /// Takes over the samples of another history, at another port. `open` opens the channel that
    /// replaces a channel of the other history.
    pub(crate) fn take_over(&self, other: &Kept, mut open: impl FnMut(ChannelId) -> Option<HistoryChannel>) {
        let (channels, samples) = {
            let cache = other.cache();
            (cache.channels.clone(), cache.samples.clone())
        };
        let opened: BTreeMap<ChannelId, HistoryChannel> =
            channels.into_iter().filter_map(|(channel, _)| Some((channel, open(channel)?))).collect();
        self.cache().channels.extend(opened.values());
        for (sequence, sample) in samples {
            if let Some((channel, _)) = opened.get(&sample.channel) {
                self.keep(sequence, KeptSample { channel: *channel, ..sample });
            }
        }
    }

    /// Adds the channel for samples of the present format.
    pub(crate) fn opened(&self, channel: HistoryChannel) {
        self.cache().channels.push(channel);
        self.retire_unused();
    }

    /// Returns the channel for samples of the present format.
    pub(crate) fn channel(&self) -> ChannelId {
        self.cache().channels.last().map(|(channel, _)| *channel).unwrap_or_default()
    }

    /// Checks whether there is room for one more sample of the instance. The error names the limit.
    pub(crate) fn has_room(&self, instance: Id128) -> Result<(), &'static str> {
        let cache = self.cache();
        let of_instance = cache.instances.get(&instance).map(VecDeque::len);
        if of_instance.is_none() && cache.instances.len() >= self.max_instances {
            return Err("max-instances");
        }
        let replaces = of_instance.is_some_and(|kept| kept >= self.depth);
        if !replaces && cache.samples.len() >= self.max_samples {
            return Err("max-samples");
        }
        Ok(())
    }

    /// Returns the lock that the publisher holds from before a sample is sent until it is kept.
    pub(crate) fn publishing(&self) -> MutexGuard<'_, ()> {
        self.publishing.lock()
    }

    /// Keeps a sample, and drops the oldest of its instance if there are too many.
    pub(crate) fn keep(&self, sequence: u64, sample: KeptSample) {
        let mut cache = self.cache();
        let of_instance = cache.instances.entry(sample.instance).or_default();
        of_instance.push_back(sequence);
        let oldest = if of_instance.len() > self.depth { of_instance.pop_front() } else { None };
        cache.samples.insert(sequence, sample);
        if let Some(oldest) = oldest {
            cache.samples.remove(&oldest);
        }
        let several = cache.channels.len() > 1;
        drop(cache);
        if several {
            self.retire_unused();
        }
    }

    /// Drops the samples of an instance that has ended: late joiners do not need them.
    pub(crate) fn ended(&self, instance: Id128) {
        let mut cache = self.cache();
        for sequence in cache.instances.remove(&instance).unwrap_or_default() {
            cache.samples.remove(&sequence);
        }
    }

    /// Ends the history channels.
    pub(crate) fn close(&self) {
        let channels = std::mem::take(&mut self.cache().channels);
        if let Some(entry) = self.entry.upgrade() {
            channels.into_iter().for_each(|(channel, _)| entry.retire(channel));
        }
    }

    fn retire_unused(&self) {
        let unused: Vec<HistoryChannel> = {
            let mut cache = self.cache();
            let used: BTreeSet<ChannelId> = cache.samples.values().map(|sample| sample.channel).collect();
            let last = cache.channels.last().copied();
            let is_unused = |known: &mut HistoryChannel| Some(*known) != last && !used.contains(&known.0);
            cache.channels.extract_if(.., is_unused).collect()
        };
        if let Some(entry) = self.entry.upgrade() {
            unused.into_iter().for_each(|(channel, _)| entry.retire(channel));
        }
    }

    /// Sends the kept samples to all peers that accept the history channels now.
    fn replay(&self) {
        let Some(entry) = self.entry.upgrade() else { return };
        let Some((channels, replay)) = self.begin() else { return };
        // A channel that has ended meanwhile has no reader, and a closed port has none at all, so
        // errors do not matter.
        let mark = |part: Part<'_>, channel, sequence| {
            let extensions = part.extension();
            let envelope = Envelope {
                extensions: extensions.as_extensions(),
                ..Envelope::data(channel, sequence, clock::wall_ns())
            };
            let _ = entry.send(&envelope, &[]);
        };
        let ids: Vec<[u8; 16]> = channels.iter().rev().take(LISTED).map(|(_, id)| id.0).collect();
        for ((channel, _), sequence) in channels.iter().zip(replay..) {
            mark(Part::Begin(replay, &ids), *channel, sequence);
        }
        let (samples, mut sequence) = self.snapshot();
        for (published, sample) in &samples {
            sequence += 1;
            let extensions = Part::Sample(*published).extension();
            let envelope = Envelope {
                key_hash: sample.key_hash,
                anchor: sample.is_key_frame.then_some(sequence),
                extensions: extensions.as_extensions(),
                ..Envelope::data(sample.channel, sequence, sample.timestamp_ns)
            };
            let _ = entry.send(&envelope, &sample.payload);
        }
        if let Some((channel, _)) = channels.last() {
            mark(Part::End, *channel, sequence + 1);
        }
        entry.settle();
    }

    /// Begins a replay. Returns its channels, and the sequence number of its first message. `None`
    /// after [`Kept::close`].
    fn begin(&self) -> Option<(Vec<HistoryChannel>, u64)> {
        let mut cache = self.cache();
        let first = cache.replayed + 1;
        cache.replayed += cache.channels.len() as u64;
        (!cache.channels.is_empty()).then(|| (cache.channels.clone(), first))
    }

    /// Returns the samples whose lifespan has not ended, with their sequence numbers, and the
    /// number before the first message that replays one. Reserves one more number for the message
    /// that ends the history.
    fn snapshot(&self) -> (Vec<(u64, KeptSample)>, u64) {
        let _publishing = self.publishing();
        let mut cache = self.cache();
        let now = clock::wall_ns();
        let lives =
            |sample: &KeptSample| expires_ns(sample.timestamp_ns, self.lifespan).is_none_or(|expires| expires > now);
        let samples = cache.samples.iter().filter(|(_, sample)| lives(sample));
        let samples: Vec<(u64, KeptSample)> = samples.map(|(number, sample)| (*number, sample.clone())).collect();
        let before = cache.replayed;
        cache.replayed += samples.len() as u64 + 1;
        (samples, before)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock()
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock()
    }
}

impl Replay for Kept {
    /// Replays on a separate thread, because sending may block. Requests that arrive meanwhile are
    /// served together, after a pause.
    fn request(&self) {
        {
            let mut work = self.work();
            work.requested = true;
            if std::mem::replace(&mut work.running, true) {
                return;
            }
        }
        let this = self.this.clone();
        let serve = move || {
            while let Some(kept) = this.upgrade() {
                {
                    let mut work = kept.work();
                    if !std::mem::take(&mut work.requested) {
                        work.running = false;
                        return;
                    }
                }
                kept.replay();
                drop(kept);
                thread::sleep(PAUSE);
            }
        };
        if thread::Builder::new().name("pw-history".into()).spawn(serve).is_err() {
            // The next request tries again. Subscribers go on without history after a while.
            self.work().running = false;
        }
    }
}

/// A writer in one incarnation.
pub(crate) type Writer = (Id128, u64);

/// The identity of a history channel at a subscriber: the number of the link, and the writer's id.
pub(crate) type Bringer = (u64, Id128);

/// Returns the identity of the history channel with this announcement.
pub(crate) fn bringer(source: &Source) -> Bringer {
    (source.link.id.0, source.announcement.writer)
}

/// A subscriber's state for the histories of its writers. While a history is missing, the
/// subscriber holds back what the writer publishes, so that all messages are delivered in order.
pub(crate) struct Gates<T>(BTreeMap<Writer, Gate<T>>);

/// The most writers without an open channel that are remembered.
const GONE: usize = 1024;

/// The most history channels of a writer that are remembered because they cannot be read.
const REFUSED: usize = 256;

/// Messages that no longer wait for a history. The thread that gets the items delivers them and
/// then calls [`Gates::handed`]. Messages that another thread receives meanwhile are delivered
/// after them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Passed<T> {
    /// The messages to deliver now.
    pub(crate) items: Vec<T>,
    /// Messages that arrived neither as they were published nor with the history.
    pub(crate) lost: u64,
}

struct Gate<T> {
    /// The number of open channels of the writer, apart from history channels.
    open: usize,
    /// Since when the subscriber waits for the history; `None` if it does not wait.
    waiting: Option<Duration>,
    /// The number of the replay that each open history channel carries now.
    replays: BTreeMap<Bringer, u64>,
    /// History channels that cannot be read.
    refused: BTreeSet<Bringer>,
    /// The replay that the subscriber takes, by link and number. It was received from its
    /// beginning, on all its channels.
    taken: Option<(u64, u64)>,
    /// Whether a message that was published after the beginning cannot be read, so that the history
    /// is needed once more.
    again: bool,
    /// The thread that delivers messages that waited. Other threads leave their messages to it.
    busy: Option<ThreadId>,
    /// Messages that are held back: sequence number, message, and its size in bytes.
    held: VecDeque<(u64, T, usize)>,
    bytes: usize,
    /// The newest delivered message. Numbers of other systems' writers begin at 0 or 1.
    last: Option<u64>,
    /// Delivered samples of the history, which may arrive once more as they were published.
    replayed: BTreeSet<u64>,
    /// Gaps in the messages as they were published, by the last number of each gap. The value is
    /// the first number, and how many messages the history has not delivered either.
    gaps: BTreeMap<u64, (u64, u64)>,
}

impl<T> Default for Gates<T> {
    fn default() -> Self {
        Gates(BTreeMap::new())
    }
}

impl<T> Default for Gate<T> {
    fn default() -> Self {
        Gate {
            open: 0,
            waiting: None,
            replays: BTreeMap::new(),
            refused: BTreeSet::new(),
            taken: None,
            again: false,
            busy: None,
            held: VecDeque::new(),
            bytes: 0,
            last: None,
            replayed: BTreeSet::new(),
            gaps: BTreeMap::new(),
        }
    }
}

impl<T> Default for Passed<T> {
    fn default() -> Self {
        Passed { items: Vec::new(), lost: 0 }
    }
}

impl<T> From<Vec<T>> for Passed<T> {
    fn from(items: Vec<T>) -> Passed<T> {
        Passed { items, lost: 0 }
    }
}

impl<T> Gates<T> {
    /// Opens a channel of the writer. The history is needed if this is the writer's only channel. A
    /// writer that numbers `anew` may have other messages with numbers that it had before.
    pub(crate) fn open(&mut self, writer: Writer, now: Duration, anew: bool) {
        if self.0.len() > GONE {
            let is_gone = |gate: &Gate<T>| gate.open == 0 && gate.waiting.is_none();
            let gone = self.0.iter().find(|(_, gate)| is_gone(gate)).map(|(writer, _)| *writer);
            gone.map(|writer| self.0.remove(&writer));
        }
        let gate = self.0.entry(writer).or_default();
        gate.open += 1;
        if gate.open == 1 {
            gate.waiting = Some(now);
            if anew {
                (gate.last, gate.replayed) = Default::default();
            }
        }
    }

    /// Ends a channel of the writer. Returns the held messages if it was the last one. If its link
    /// broke, the history may arrive over another link, so a wait for it continues.
    pub(crate) fn close(&mut self, writer: Writer, broke: bool) -> Passed<T> {
        let waits_on = broke && self.0.len() <= GONE;
        let Some(gate) = self.0.get_mut(&writer) else { return Passed::default() };
        gate.open = gate.open.saturating_sub(1);
        match gate.open {
            0 if waits_on && gate.waiting.is_some() => (gate.taken, gate.again) = (None, false),
            0 => return gate.end(),
            _ => {}
        }
        Passed::default()
    }

    /// Records that messages did not arrive as they were published. Returns how many of them count
    /// as lost now: the history has not delivered them, and will not.
    pub(crate) fn missing(&mut self, writer: Writer, missing: Missing) -> u64 {
        self.0.get_mut(&writer).map_or(missing.count, |gate| gate.missing(missing))
    }

    /// Checks whether the history of the writer is missing.
    pub(crate) fn is_waiting(&self, writer: Writer) -> bool {
        self.0.get(&writer).is_some_and(|gate| gate.waiting.is_some())
    }

    /// Checks whether any history is missing.
    pub(crate) fn is_any_waiting(&self) -> bool {
        self.0.values().any(|gate| gate.waiting.is_some())
    }

    /// Takes a message as it was published. Returns the messages to deliver now. The second value
    /// is true if the wait was given up, because more than `room` messages or bytes are held.
    pub(crate) fn published(
        &mut self,
        writer: Writer,
        number: u64,
        item: T,
        bytes: usize,
        room: (usize, usize),
    ) -> (Passed<T>, bool) {
        let Some(gate) = self.0.get_mut(&writer) else { return (vec![item].into(), false) };
        if gate.waiting.is_none() && gate.busy.is_none() {
            let is_new = !gate.replayed.remove(&number);
            gate.last = gate.last.max(Some(number));
            return (gate.hand(Vec::from_iter(is_new.then_some(item)).into()), false);
        }
        gate.held.push_back((number, item, bytes));
        gate.bytes = gate.bytes.saturating_add(bytes);
        match gate.waiting.is_some() && gate.is_full(room) {
            true => (gate.end(), true),
            false => (Passed::default(), false),
        }
    }

    /// Checks whether another thread delivers, and so much is held behind it that the next message
    /// must wait.
    pub(crate) fn is_crowded(&self, writer: Writer, room: (usize, usize)) -> bool {
        self.is_busy(writer) && self.0.get(&writer).is_some_and(|gate| gate.is_full(room))
    }

    /// Checks whether another thread delivers messages that were held.
    pub(crate) fn is_busy(&self, writer: Writer) -> bool {
        let busy = self.0.get(&writer).and_then(|gate| gate.busy);
        busy.is_some_and(|thread| thread != thread::current().id())
    }

    /// Records that the last given messages were delivered. Returns those that arrived meanwhile.
    pub(crate) fn handed(&mut self, writer: Writer) -> Vec<T> {
        let Some(gate) = self.0.get_mut(&writer) else { return Vec::new() };
        gate.busy = None;
        match gate.waiting {
            None => gate.release().items,
            Some(_) => Vec::new(),
        }
    }

    /// Records that a replay begins on a history channel. `ids` are the ids of all its channels.
    /// The subscriber takes the replay if it has begun on all of them that can be read. Otherwise
    /// it was sent for another subscriber, and only a part of it arrives.
    pub(crate) fn begin(&mut self, writer: Writer, from: Bringer, replay: u64, ids: &[[u8; 16]]) {
        let Some(gate) = self.0.get_mut(&writer) else { return };
        gate.replays.insert(from, replay);
        let is_ready = |id: &[u8; 16]| {
            let bringer = (from.0, Id128(*id));
            gate.replays.get(&bringer) == Some(&replay) || gate.refused.contains(&bringer)
        };
        if ids.iter().all(is_ready) && gate.waiting.is_some() && gate.taken.is_none_or(|(link, _)| link == from.0) {
            (gate.taken, gate.again) = (Some((from.0, replay)), false);
        }
    }

    /// Records that a history channel of the writer cannot be read.
    pub(crate) fn refuse(&mut self, writer: Writer, from: Bringer) {
        if let Some(gate) = self.0.get_mut(&writer) {
            if gate.refused.len() == REFUSED {
                gate.refused.pop_first();
            }
            gate.refused.insert(from);
        }
    }

    /// Records that a history channel of the writer has ended, or is read no more.
    pub(crate) fn leave(&mut self, writer: Writer, from: Bringer) {
        if let Some(gate) = self.0.get_mut(&writer) {
            let replay = gate.replays.remove(&from).map(|replay| (from.0, replay));
            gate.taken = gate.taken.filter(|taken| Some(*taken) != replay);
        }
    }

    /// Takes a sample of the history. Returns the messages to deliver now: first those published
    /// before it.
    pub(crate) fn replayed(&mut self, writer: Writer, from: Bringer, number: u64, item: T) -> Passed<T> {
        let Some(gate) = self.0.get_mut(&writer).filter(|gate| gate.takes(from)) else { return Passed::default() };
        let mut out = Vec::new();
        while let Some((before, held, bytes)) = gate.held.pop_front_if(|(held, ..)| *held <= number) {
            gate.bytes = gate.bytes.saturating_sub(bytes);
            if before < number && Some(before) > gate.last {
                gate.last = Some(before);
                out.push(held);
            }
        }
        if Some(number) > gate.last {
            gate.last = Some(number);
            if gate.replayed.len() == REMEMBERED {
                gate.replayed.pop_first();
            }
            gate.replayed.insert(number);
            gate.fill(number);
            out.push(item);
        }
        gate.hand(out.into())
    }

    /// Ends the replay. Returns the held messages, unless the history is needed once more.
    pub(crate) fn complete(&mut self, writer: Writer, from: Bringer) -> Passed<T> {
        let Some(gate) = self.0.get_mut(&writer).filter(|gate| gate.takes(from)) else { return Passed::default() };
        if std::mem::take(&mut gate.again) {
            gate.taken = None;
            return Passed::default();
        }
        gate.end()
    }

    /// Records that a message cannot be read because it refers to earlier ones. The history has it.
    /// Returns true if the history was complete before.
    pub(crate) fn missed(&mut self, writer: Writer, now: Duration) -> bool {
        let Some(gate) = self.0.get_mut(&writer) else { return false };
        gate.again |= gate.taken.is_some();
        let was_complete = gate.waiting.is_none();
        if was_complete {
            gate.waiting = Some(now);
        }
        was_complete
    }

    /// Gives up the histories that have been missing for [`PATIENCE`] or longer, and returns the
    /// messages that were held for them.
    pub(crate) fn give_up(&mut self, now: Duration) -> Vec<(Writer, Passed<T>)> {
        let late = |gate: &Gate<T>| gate.waiting.is_some_and(|since| now.saturating_sub(since) >= PATIENCE);
        let late = self.0.iter_mut().filter(|(_, gate)| late(gate));
        late.map(|(writer, gate)| (*writer, gate.end())).collect()
    }
}

impl<T> Gate<T> {
    /// Checks whether the history channel carries the replay that is taken.
    fn takes(&self, from: Bringer) -> bool {
        self.taken.is_some_and(|(link, replay)| link == from.0 && self.replays.get(&from) == Some(&replay))
    }

    fn missing(&mut self, missing: Missing) -> u64 {
        let numbers = missing.numbers();
        let (first, last) = (*numbers.start(), missing.last);
        let lost = missing.count.saturating_sub(self.replayed.range(numbers).count() as u64);
        if self.waiting.is_none() || lost == 0 || self.gaps.len() == GAPS {
            return lost;
        }
        self.gaps.insert(last, (first, lost));
        0
    }

    /// Records that the history has delivered a message.
    fn fill(&mut self, number: u64) {
        if let Some((_, (_, lost))) = self.gaps.range_mut(number..).next().filter(|(_, (first, _))| *first <= number) {
            *lost = lost.saturating_sub(1);
        }
    }

    /// Ends the wait. If another thread delivers, the held messages are left to it.
    fn end(&mut self) -> Passed<T> {
        (self.waiting, self.taken, self.again) = (None, None, false);
        let lost = std::mem::take(&mut self.gaps).into_values().map(|(_, lost)| lost).sum();
        let items = if self.busy.is_none() { self.release().items } else { Vec::new() };
        Passed { items, lost }
    }

    /// Returns all held messages that were not delivered before.
    fn release(&mut self) -> Passed<T> {
        self.bytes = 0;
        let held = std::mem::take(&mut self.held);
        let last = self.last;
        self.last = last.max(held.back().map(|(number, ..)| *number));
        let items = held.into_iter().filter(|(number, ..)| Some(*number) > last).map(|(_, item, _)| item);
        self.hand(Vec::from_iter(items).into())
    }

    /// Records that this thread delivers these messages.
    fn hand(&mut self, passed: Passed<T>) -> Passed<T> {
        self.busy = (!passed.items.is_empty()).then(|| thread::current().id());
        passed
    }

    fn is_full(&self, room: (usize, usize)) -> bool {
        self.held.len() > room.0 || self.bytes > room.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: Writer = (Id128([1; 16]), 1);
    /// The history channel of the present format, and one of an earlier format.
    const H: Bringer = (1, Id128([2; 16]));
    const EARLIER: Bringer = (1, Id128([3; 16]));
    const BOTH: [[u8; 16]; 2] = [EARLIER.1.0, H.1.0];
    const ROOM: (usize, usize) = (4, 100);

    fn waiting() -> Gates<u64> {
        let mut gates = Gates::default();
        gates.open(W, Duration::ZERO, false);
        gates
    }

    /// Begins a replay on this channel alone.
    fn begin(gates: &mut Gates<u64>, replay: u64) {
        gates.begin(W, H, replay, &[H.1.0]);
    }

    fn published(gates: &mut Gates<u64>, number: u64) -> Vec<u64> {
        let (passed, _) = gates.published(W, number, number, 1, ROOM);
        handed(gates, passed)
    }

    fn replayed(gates: &mut Gates<u64>, from: Bringer, number: u64) -> Vec<u64> {
        let passed = gates.replayed(W, from, number, number);
        handed(gates, passed)
    }

    fn complete(gates: &mut Gates<u64>, from: Bringer) -> Vec<u64> {
        let passed = gates.complete(W, from);
        handed(gates, passed)
    }

    fn handed(gates: &mut Gates<u64>, passed: Passed<u64>) -> Vec<u64> {
        assert!(passed.items.is_empty() || gates.handed(W).is_empty());
        passed.items
    }

    #[test]
    fn history_comes_first_and_nothing_twice() {
        let mut gates = waiting();
        assert_eq!((published(&mut gates, 5), published(&mut gates, 6)), (vec![], vec![]));
        assert_eq!(
            (replayed(&mut gates, H, 4), complete(&mut gates, H)),
            (vec![], vec![]),
            "the end of one for somebody else"
        );
        begin(&mut gates, 1);
        assert_eq!(replayed(&mut gates, H, 2), [2]);
        assert_eq!(
            replayed(&mut gates, H, 6),
            [5, 6],
            "5 was replaced in the history, and published after this reader came"
        );
        assert!(gates.is_waiting(W));
        assert_eq!((published(&mut gates, 7), complete(&mut gates, H)), (vec![], vec![7]));
        assert_eq!((published(&mut gates, 6), published(&mut gates, 8)), (vec![], vec![8]));
        assert_eq!(replayed(&mut gates, H, 9), [0_u64; 0], "somebody else's");
    }

    #[test]
    fn a_writer_may_begin_to_count_at_zero() {
        let mut gates = waiting();
        begin(&mut gates, 1);
        assert_eq!((replayed(&mut gates, H, 0), replayed(&mut gates, H, 1)), (vec![0], vec![1]));
        assert_eq!((complete(&mut gates, H), published(&mut gates, 0)), (vec![], vec![]));
        let mut gates = waiting();
        assert_eq!(published(&mut gates, 0), [0_u64; 0]);
        assert_eq!(gates.give_up(PATIENCE), [(W, vec![0].into())]);
    }

    #[test]
    fn a_replay_is_taken_if_it_has_begun_on_all_its_channels() {
        let mut gates = waiting();
        gates.begin(W, H, 1, &BOTH);
        assert_eq!((replayed(&mut gates, H, 3), complete(&mut gates, H)), (vec![], vec![]), "a part of it");
        gates.begin(W, EARLIER, 2, &BOTH);
        gates.begin(W, H, 2, &BOTH);
        assert_eq!((replayed(&mut gates, EARLIER, 1), replayed(&mut gates, H, 3)), (vec![1], vec![3]));
        assert!(gates.is_waiting(W));
        assert_eq!((complete(&mut gates, H), gates.is_waiting(W)), (vec![], false));
    }

    #[test]
    fn replays_are_told_apart_by_number_and_link() {
        let mut gates = waiting();
        gates.begin(W, EARLIER, 1, &BOTH);
        gates.begin(W, H, 2, &BOTH);
        assert_eq!(replayed(&mut gates, H, 3), [0_u64; 0], "another replay");
        gates.begin(W, (9, EARLIER.1), 2, &BOTH);
        assert_eq!(replayed(&mut gates, H, 3), [0_u64; 0], "another link");
        gates.begin(W, EARLIER, 2, &BOTH);
        assert_eq!((replayed(&mut gates, EARLIER, 1), replayed(&mut gates, H, 3)), (vec![1], vec![3]));
        gates.begin(W, (9, H.1), 2, &BOTH);
        assert_eq!(replayed(&mut gates, (9, H.1), 4), [0_u64; 0], "one replay is taken at a time");
        assert_eq!(complete(&mut gates, (9, H.1)), [0_u64; 0]);
        assert!(gates.is_waiting(W));
        gates.complete(W, H);
        assert!(!gates.is_waiting(W));
    }

    #[test]
    fn a_channel_that_cannot_be_read_is_not_waited_for() {
        let mut gates = waiting();
        gates.refuse(W, EARLIER);
        gates.begin(W, H, 1, &BOTH);
        assert_eq!((replayed(&mut gates, H, 3), complete(&mut gates, H)), (vec![3], vec![]));
        assert!(!gates.is_waiting(W));
        (0..=REFUSED as u64).for_each(|link| gates.refuse(W, (link, H.1)));
        assert_eq!(gates.0[&W].refused.len(), REFUSED);
    }

    #[test]
    fn a_replay_whose_channel_ends_is_not_taken_further() {
        let mut gates = waiting();
        begin(&mut gates, 1);
        assert_eq!(replayed(&mut gates, H, 1), [1]);
        gates.leave(W, H);
        assert_eq!((replayed(&mut gates, H, 2), complete(&mut gates, H)), (vec![], vec![]));
        begin(&mut gates, 2);
        assert_eq!((replayed(&mut gates, H, 1), replayed(&mut gates, H, 2)), (vec![], vec![2]));
    }

    #[test]
    fn a_writer_that_comes_back_is_asked_again() {
        let mut gates = waiting();
        begin(&mut gates, 2);
        assert_eq!((replayed(&mut gates, H, 3), complete(&mut gates, H)), (vec![3], vec![]));
        gates.open(W, Duration::ZERO, false);
        assert!(!gates.is_waiting(W), "a second channel, in another format");
        assert_eq!((gates.close(W, false).items, gates.close(W, false).items), (vec![], vec![]));
        gates.open(W, Duration::ZERO, false);
        assert!(gates.is_waiting(W) && gates.is_any_waiting());
        begin(&mut gates, 3);
        assert_eq!((replayed(&mut gates, H, 3), replayed(&mut gates, H, 4)), (vec![], vec![4]));
    }

    #[test]
    fn a_history_that_a_broken_link_cuts_short_comes_over_the_next_one() {
        let mut gates = waiting();
        begin(&mut gates, 1);
        assert_eq!((replayed(&mut gates, H, 1), published(&mut gates, 5)), (vec![1], vec![]));
        assert_eq!(gates.close(W, true), Passed::default());
        assert!(replayed(&mut gates, H, 2).is_empty(), "its link has ended");
        gates.leave(W, H);
        gates.open(W, PATIENCE, false);
        assert_eq!((published(&mut gates, 7), gates.give_up(PATIENCE)), (vec![], vec![]));
        let next = (2, H.1);
        gates.begin(W, next, 2, &[H.1.0]);
        let mut replayed = |number| replayed(&mut gates, next, number);
        assert_eq!([1, 2, 6].map(&mut replayed), [vec![], vec![2], vec![5, 6]]);
        assert_eq!(complete(&mut gates, next), [7]);
        // Nothing waits once the history is complete, or if the writer does not come back.
        assert_eq!((gates.close(W, true), gates.is_any_waiting()), (Passed::default(), false));
        gates.open(W, PATIENCE, false);
        assert_eq!((published(&mut gates, 8), gates.close(W, true)), (vec![], Passed::default()));
        assert_eq!(gates.give_up(PATIENCE * 2), [(W, vec![8].into())]);
    }

    #[test]
    fn what_comes_while_others_hand_on_comes_behind_it() {
        let mut gates = waiting();
        assert!((1..=3).all(|number| published(&mut gates, number).is_empty()));
        let mut late = gates.give_up(PATIENCE);
        let passed = late.pop().expect("one writer").1;
        assert_eq!((passed.items, published(&mut gates, 4), published(&mut gates, 5)), (vec![1, 2, 3], vec![], vec![]));
        assert!(!gates.is_crowded(W, (1, 100)), "this thread must not wait for itself");
        thread::scope(|scope| assert!(scope.spawn(|| gates.is_crowded(W, (1, 100))).join().expect("no panic")));
        assert_eq!((gates.handed(W), published(&mut gates, 6)), (vec![4, 5], vec![]));
        assert_eq!((gates.handed(W), gates.handed(W), published(&mut gates, 7)), (vec![6], vec![], vec![7]));
    }

    #[test]
    fn a_writer_that_counts_anew_has_other_messages_with_the_same_numbers() {
        for anew in [false, true] {
            let mut gates = waiting();
            begin(&mut gates, 1);
            assert_eq!((replayed(&mut gates, H, 9), complete(&mut gates, H)), (vec![9], vec![]));
            gates.close(W, false);
            gates.open(W, Duration::ZERO, anew);
            begin(&mut gates, 2);
            assert_eq!((replayed(&mut gates, H, 1).len(), complete(&mut gates, H).len()), (usize::from(anew), 0));
        }
    }

    #[test]
    fn what_cannot_be_read_as_it_is_published_comes_with_the_history() {
        let mut gates = waiting();
        begin(&mut gates, 4);
        assert_eq!((replayed(&mut gates, H, 1), gates.missed(W, Duration::ZERO)), (vec![1], false));
        assert_eq!((published(&mut gates, 3), complete(&mut gates, H)), (vec![], vec![]), "2 is missing");
        begin(&mut gates, 5);
        assert_eq!((replayed(&mut gates, H, 1), replayed(&mut gates, H, 2)), (vec![], vec![2]));
        assert_eq!((complete(&mut gates, H), gates.is_waiting(W)), (vec![3], false));
        assert!(gates.missed(W, Duration::ZERO) && gates.is_waiting(W));
    }

    #[test]
    fn what_the_history_brings_is_not_lost() {
        let mut gates = waiting();
        let missing = |last, count| Missing { last, count };
        assert_eq!((gates.missing(W, missing(9, 5)), published(&mut gates, 10)), (0, vec![]));
        begin(&mut gates, 6);
        assert_eq!(
            (replayed(&mut gates, H, 4), replayed(&mut gates, H, 6), replayed(&mut gates, H, 9)),
            (vec![4], vec![6], vec![9])
        );
        assert_eq!(gates.missing(W, missing(12, 2)), 0, "a second gap");
        assert_eq!(
            (replayed(&mut gates, H, 11), gates.complete(W, H)),
            (vec![10, 11], Passed { items: vec![], lost: 4 })
        );
        // 5, 7, 8 and 12 arrived neither way. After the history, all that it has not delivered is
        // lost.
        assert_eq!((gates.missing(W, missing(14, 2)), gates.missing(W, missing(11, 2))), (2, 1));
        assert_eq!(gates.missing((Id128([2; 16]), 1), missing(3, 3)), 3, "a writer without history");
    }

    #[test]
    fn gaps_that_no_history_fills_are_lost() {
        let mut gates = waiting();
        let gap = |number: usize| Missing { last: 2 * number as u64 + 1, count: 1 };
        assert!((0..GAPS).all(|number| gates.missing(W, gap(number)) == 0));
        assert_eq!(gates.missing(W, gap(GAPS)), 1, "too many to remember");
        assert_eq!(gates.give_up(PATIENCE), [(W, Passed { items: vec![], lost: GAPS as u64 })]);
        assert_eq!(gates.close(W, false), Passed::default());
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut gates = waiting();
        (1..=4).for_each(|number| assert_eq!(published(&mut gates, number), [0_u64; 0]));
        assert_eq!(gates.published(W, 5, 5, 1, ROOM), (vec![1, 2, 3, 4, 5].into(), true));
        let mut gates = waiting();
        assert_eq!(published(&mut gates, 1), [0_u64; 0]);
        assert_eq!(gates.give_up(PATIENCE / 2), []);
        assert_eq!(gates.give_up(PATIENCE), [(W, vec![1].into())]);
        let mut gates = waiting();
        assert_eq!((published(&mut gates, 1), gates.close(W, false).items), (vec![], vec![1]));
    }
}
