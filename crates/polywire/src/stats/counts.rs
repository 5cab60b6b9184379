//! The counters that publishers and links keep, and those of publishers and subscribers that have
//! gone.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::TopicStats;

/// Topics whose counts are kept after their last publisher and subscriber have gone. The counts of
/// more topics are summed up under the name [`OTHERS`].
const TOPICS: usize = 4096;

/// Stands for all topics beyond [`TOPICS`]. No topic has an empty name.
const OTHERS: &str = "";

/// What a publisher counts. Only its own thread writes, under the publisher's lock, so that a plain
/// store does; anybody reads.
#[derive(Debug, Default)]
pub(crate) struct SenderCounts {
    sent: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
}

impl SenderCounts {
    /// Counts a message. The caller holds the publisher's lock.
    #[inline]
    pub(crate) fn count(&self, bytes: usize, dropped: usize) {
        add(&self.sent, 1);
        add(&self.bytes, bytes as u64);
        if dropped > 0 {
            add(&self.dropped, dropped as u64);
        }
    }

    /// The counts so far.
    pub(crate) fn read(&self, topic: &str) -> TopicStats {
        TopicStats {
            topic: topic.into(),
            sent: self.sent.load(Ordering::Relaxed),
            sent_bytes: self.bytes.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            ..TopicStats::default()
        }
    }
}

#[inline]
fn add(to: &AtomicU64, more: u64) {
    to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// What a link counts for a channel, under the link's lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceiverCounts {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl ReceiverCounts {
    #[inline]
    pub(crate) fn count(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }

    pub(crate) fn add(&mut self, other: ReceiverCounts) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }

    pub(crate) fn read(&self, topic: &str) -> TopicStats {
        let (received, received_bytes) = (self.messages, self.bytes);
        TopicStats { topic: topic.into(), received, received_bytes, ..TopicStats::default() }
    }
}

/// The counts of publishers, subscribers and channels that have gone, by topic.
#[derive(Debug, Default)]
pub(crate) struct Ended(Mutex<BTreeMap<String, TopicStats>>);

impl Ended {
    /// Keeps the counts of something that has gone.
    pub(crate) fn add(&self, stats: &TopicStats) {
        let mut all = self.lock();
        let has_room = all.len() < TOPICS || all.contains_key(&stats.topic);
        let name = if has_room { &stats.topic } else { OTHERS };
        let sum =
            all.entry(name.to_owned()).or_insert_with(|| TopicStats { topic: name.into(), ..TopicStats::default() });
        // What has gone is no longer there, and has nothing in its queue.
        sum.add(&TopicStats { publishers: 0, subscribers: 0, queued: 0, ..stats.clone() });
    }

    /// All counts.
    pub(crate) fn read(&self) -> BTreeMap<String, TopicStats> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, TopicStats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gone_stays_in_the_sums_of_its_topic() {
        let (ended, counts) = (Ended::default(), SenderCounts::default());
        counts.count(10, 0);
        counts.count(5, 2);
        let stats = TopicStats { publishers: 1, queued: 3, ..counts.read("t") };
        ended.add(&stats);
        ended.add(&stats);
        let sum = &ended.read()["t"];
        assert_eq!((sum.sent, sum.sent_bytes, sum.dropped, sum.publishers, sum.queued), (4, 30, 4, 0, 0));
    }

    #[test]
    fn any_number_of_topics_takes_bounded_memory() {
        let ended = Ended::default();
        for number in 0..TOPICS + 10 {
            ended.add(&TopicStats { topic: number.to_string(), sent: 1, ..TopicStats::default() });
        }
        let all = ended.read();
        assert_eq!((all.len(), all[OTHERS].sent), (TOPICS + 1, 10));
    }
}
