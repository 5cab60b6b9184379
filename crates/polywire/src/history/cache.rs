//! The publisher's side of the history: the samples that it keeps, and their replays.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    envelope::{ChannelId, Envelope, Id128},
    qos::{History, Qos, expires_ns},
};

use crate::{
    clock,
    node::{PortEntry, Replay},
    replayed::{LISTED, Part},
    unwind::restoring,
};

/// The least time between two replays of one publisher.
const PAUSE: Duration = Duration::from_millis(20);

/// The samples that a publisher keeps for late joiners.
pub(crate) struct HistoryCache {
    this: Weak<HistoryCache>,
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
    /// The number of samples of each history channel that has any.
    counts: BTreeMap<ChannelId, usize>,
    /// The history channels. The last is that of the present format. Any other ends with its last
    /// sample.
    channels: Vec<HistoryChannel>,
    /// Sequence number of the last message on the history channels.
    replayed: u64,
}

/// A history channel, and the id of its writer.
pub(crate) type HistoryChannel = (ChannelId, Id128);

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

impl HistoryCache {
    /// Makes the history that the policies require, for the subscribers on this port.
    pub(crate) fn new(entry: &Arc<PortEntry>, qos: &Qos) -> Arc<HistoryCache> {
        let limit = |limit: Option<u32>| limit.map_or(usize::MAX, |limit| limit as usize);
        Arc::new_cyclic(|this| HistoryCache {
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

    /// Takes over the samples of another history, at another port. `open` announces the channel
    /// that replaces a channel of the other history.
    pub(crate) fn take_over(&self, other: &HistoryCache, mut open: impl FnMut(ChannelId) -> Option<HistoryChannel>) {
        let (channels, samples) = {
            let cache = other.cache();
            (cache.channels.clone(), cache.samples.clone())
        };
        let opened: BTreeMap<ChannelId, HistoryChannel> =
            channels.into_iter().filter_map(|(channel, _)| Some((channel, open(channel)?))).collect();
        let mut cache = self.cache();
        cache.channels.extend(opened.values());
        for (sequence, sample) in samples {
            if let Some((channel, _)) = opened.get(&sample.channel) {
                cache.insert(sequence, KeptSample { channel: *channel, ..sample }, self.depth);
            }
        }
        drop(cache);
        opened.values().for_each(|(channel, _)| self.serve(*channel));
    }

    /// Adds the channel for samples of the present format. Returns the channels of former formats
    /// that have no samples; the caller retires them.
    pub(crate) fn opened(&self, channel: HistoryChannel) -> Vec<ChannelId> {
        let unused = {
            let mut cache = self.cache();
            cache.channels.push(channel);
            cache.take_unused()
        };
        self.serve(channel.0);
        unused
    }

    /// Serves the requests on a channel, also those that arrived before.
    fn serve(&self, channel: ChannelId) {
        if let Some(entry) = self.entry.upgrade() {
            let replay: Weak<dyn Replay> = self.this.clone();
            entry.serve_history(channel, replay);
        }
    }

    /// Returns the channel for samples of the present format.
    pub(crate) fn channel(&self) -> ChannelId {
        self.cache().channels.last().map(|(channel, _)| *channel).unwrap_or_default()
    }

    /// Checks whether there is room for one more sample of the instance. The error names the limit.
    pub(crate) fn has_room(&self, instance: Id128) -> Result<(), &'static str> {
        let mut cache = self.cache();
        cache.expire(self.lifespan);
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

    /// Keeps a sample. Drops the oldest of its instance if there are too many, and expired samples.
    pub(crate) fn keep(&self, sequence: u64, sample: KeptSample) {
        let unused = {
            let mut cache = self.cache();
            cache.expire(self.lifespan);
            cache.insert(sequence, sample, self.depth);
            cache.take_unused()
        };
        self.retire(unused);
    }

    /// Drops the samples of an instance that has ended: late joiners do not need them.
    pub(crate) fn ended(&self, instance: Id128) {
        let mut cache = self.cache();
        for sequence in cache.instances.remove(&instance).unwrap_or_default() {
            cache.remove_sample(sequence);
        }
    }

    /// Ends the history channels.
    pub(crate) fn close(&self) {
        let channels = std::mem::take(&mut self.cache().channels);
        self.retire(channels.into_iter().map(|(channel, _)| channel).collect());
    }

    fn retire(&self, channels: Vec<ChannelId>) {
        if channels.is_empty() {
            return;
        }
        if let Some(entry) = self.entry.upgrade() {
            channels.into_iter().for_each(|channel| entry.retire(channel));
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
        let (samples, mut sequence) = self.snapshot(channels.len() as u64);
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
        for ((channel, _), sequence) in channels.iter().zip(sequence + 1..) {
            mark(Part::End, *channel, sequence);
        }
        entry.settle();
    }

    /// Begins a replay. Returns its channels, and the sequence number of its first message. `None`
    /// after [`HistoryCache::close`].
    fn begin(&self) -> Option<(Vec<HistoryChannel>, u64)> {
        let mut cache = self.cache();
        let first = cache.replayed + 1;
        cache.replayed += cache.channels.len() as u64;
        (!cache.channels.is_empty()).then(|| (cache.channels.clone(), first))
    }

    /// Returns the samples whose lifespan has not ended, with their sequence numbers, and the
    /// number before the first message that replays one. Reserves more numbers for the messages
    /// that end the history, one on each channel.
    fn snapshot(&self, ends: u64) -> (Vec<(u64, KeptSample)>, u64) {
        let _publishing = self.publishing();
        let mut cache = self.cache();
        let now = clock::wall_ns();
        let lives =
            |sample: &KeptSample| expires_ns(sample.timestamp_ns, self.lifespan).is_none_or(|expires| expires > now);
        let samples = cache.samples.iter().filter(|(_, sample)| lives(sample));
        let samples: Vec<(u64, KeptSample)> = samples.map(|(number, sample)| (*number, sample.clone())).collect();
        let before = cache.replayed;
        cache.replayed += samples.len() as u64 + ends;
        (samples, before)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock()
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock()
    }
}

impl Cache {
    /// Adds a sample. Drops the oldest of its instance if there are more than `depth`.
    fn insert(&mut self, sequence: u64, sample: KeptSample, depth: usize) {
        let of_instance = self.instances.entry(sample.instance).or_default();
        of_instance.push_back(sequence);
        let oldest = if of_instance.len() > depth { of_instance.pop_front() } else { None };
        *self.counts.entry(sample.channel).or_default() += 1;
        self.samples.insert(sequence, sample);
        if let Some(oldest) = oldest {
            self.remove_sample(oldest);
        }
    }

    /// Removes a sample that its instance does not list any more.
    fn remove_sample(&mut self, sequence: u64) {
        let Some(sample) = self.samples.remove(&sequence) else { return };
        if let Entry::Occupied(mut count) = self.counts.entry(sample.channel) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Drops the oldest samples whose lifespan has ended. Times of publication ascend, unless the
    /// clock is set back.
    fn expire(&mut self, lifespan: Option<Duration>) {
        if lifespan.is_none() {
            return;
        }
        let now = clock::wall_ns();
        while let Some((&sequence, sample)) = self.samples.first_key_value() {
            if expires_ns(sample.timestamp_ns, lifespan).is_none_or(|expires| expires > now) {
                return;
            }
            if let Entry::Occupied(mut of_instance) = self.instances.entry(sample.instance) {
                // Each instance lists its samples in ascending order.
                let kept = of_instance.get_mut();
                if kept.front() == Some(&sequence) {
                    kept.pop_front();
                }
                if kept.is_empty() {
                    of_instance.remove();
                }
            }
            self.remove_sample(sequence);
        }
    }

    /// Removes and returns the channels of former formats that have no samples.
    fn take_unused(&mut self) -> Vec<ChannelId> {
        let Cache { channels, counts, .. } = self;
        let Some(last) = channels.last().copied() else { return Vec::new() };
        let unused = channels.extract_if(.., |known| *known != last && !counts.contains_key(&known.0));
        unused.map(|(channel, _)| channel).collect()
    }
}

impl Replay for HistoryCache {
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
            while let Some(history) = this.upgrade() {
                {
                    let mut work = history.work();
                    if !std::mem::take(&mut work.requested) {
                        work.running = false;
                        return;
                    }
                }
                // Within a process, the replay calls callbacks.
                restoring(|| history.work().running = false, || history.replay());
                drop(history);
                thread::sleep(PAUSE);
            }
        };
        if thread::Builder::new().name("pw-history".into()).spawn(serve).is_err() {
            // The next request tries again. Subscribers go on without history after a while.
            self.work().running = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(instance: u8, channel: u32, timestamp_ns: i64) -> KeptSample {
        KeptSample {
            timestamp_ns,
            key_hash: None,
            instance: Id128([instance; 16]),
            is_key_frame: false,
            payload: Arc::from([]),
            channel: ChannelId(channel),
        }
    }

    #[test]
    fn a_former_channel_ends_with_its_last_sample() {
        let channel = |number| (ChannelId(number), Id128::ZERO);
        let mut cache = Cache { channels: vec![channel(1), channel(2), channel(3)], ..Cache::default() };
        cache.insert(1, sample(1, 1, 0), 1);
        cache.insert(2, sample(2, 1, 0), 1);
        assert_eq!(cache.take_unused(), [ChannelId(2)]);
        cache.insert(3, sample(1, 3, 0), 1);
        assert!(cache.take_unused().is_empty());
        cache.insert(4, sample(2, 3, 0), 1);
        assert_eq!(cache.take_unused(), [ChannelId(1)]);
        assert_eq!((cache.counts.len(), cache.counts.get(&ChannelId(3))), (1, Some(&2)));
        assert_eq!(cache.channels, [channel(3)]);
    }

    #[test]
    fn expired_samples_and_their_instances_are_dropped() {
        let (mut cache, hour, now) = (Cache::default(), Duration::from_secs(3600), clock::wall_ns());
        cache.insert(1, sample(1, 1, 0), usize::MAX);
        cache.insert(2, sample(2, 1, 0), usize::MAX);
        cache.insert(3, sample(2, 1, now), usize::MAX);
        cache.expire(None);
        assert_eq!(cache.samples.len(), 3);
        cache.expire(Some(hour));
        assert!(cache.samples.keys().eq(&[3]) && cache.instances.keys().eq(&[Id128([2; 16])]));
        assert_eq!((cache.instances[&Id128([2; 16])].len(), cache.counts[&ChannelId(1)]), (1, 1));
    }
}
