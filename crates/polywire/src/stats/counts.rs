//! The counters of publishers and links, and the sums of publishers and subscribers that have
//! closed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};

use super::TopicStats;

/// The most topics whose counts are kept after their last publisher and subscriber have closed. The
/// counts of further topics are summed under the name [`OTHERS`].
const TOPICS: usize = 4096;

/// The name that stands for all topics beyond [`TOPICS`]. No topic has an empty name.
const OTHERS: &str = "";

/// The counters of one publisher. Only the holder of the publisher's lock writes them, so a plain
/// store is enough. Any thread may read them.
#[derive(Debug, Default)]
pub(crate) struct SenderCounts {
    topic: String,
    sent: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
}

impl SenderCounts {
    /// Adds messages, the bytes of all their payloads, and drops. The caller holds the publisher's
    /// lock.
    #[inline]
    pub(crate) fn count(&self, messages: usize, bytes: usize, dropped: usize) {
        add(&self.sent, messages as u64);
        add(&self.bytes, bytes as u64);
        if dropped > 0 {
            add(&self.dropped, dropped as u64);
        }
    }

    /// How often a message was dropped for a peer when it was published.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn read(&self) -> TopicStats {
        TopicStats {
            topic: self.topic.clone(),
            publishers: 1,
            sent: self.sent.load(Ordering::Relaxed),
            sent_bytes: self.bytes.load(Ordering::Relaxed),
            dropped: self.dropped(),
            ..TopicStats::default()
        }
    }
}

#[inline]
fn add(to: &AtomicU64, more: u64) {
    to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// The counters that a link keeps for one channel, under the link's lock.
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

/// The counters of open publishers, and the sums of publishers, subscribers and channels that have
/// closed.
#[derive(Debug, Default)]
pub(crate) struct Totals(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    /// The counters of open publishers, shared with them, by the address of the counters.
    senders: BTreeMap<usize, Arc<SenderCounts>>,
    /// The sums of all that has closed, by topic.
    ended: BTreeMap<String, TopicStats>,
}

impl Totals {
    /// Makes the counters of a new publisher.
    pub(crate) fn sender(&self, topic: &str) -> Arc<SenderCounts> {
        let counts = Arc::new(SenderCounts { topic: topic.into(), ..SenderCounts::default() });
        self.lock().senders.insert(Arc::as_ptr(&counts).addr(), counts.clone());
        counts
    }

    /// Adds the counts of a publisher that closes to the sums of its topic, once.
    pub(crate) fn end_sender(&self, counts: &Arc<SenderCounts>) {
        let mut counted = self.lock();
        if counted.senders.remove(&Arc::as_ptr(counts).addr()).is_some() {
            counted.add(&counts.read());
        }
    }

    /// Adds the counts of a subscriber or channel that closes to the sums of its topic.
    pub(crate) fn end(&self, stats: &TopicStats) {
        self.lock().add(stats);
    }

    /// Returns all counts, by topic.
    pub(crate) fn read(&self) -> BTreeMap<String, TopicStats> {
        let counted = self.lock();
        let mut all = counted.ended.clone();
        counted.senders.values().for_each(|sender| add_to(&mut all, &sender.read()));
        all
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock()
    }
}

/// Adds counts to the sums of their topic.
pub(crate) fn add_to(all: &mut BTreeMap<String, TopicStats>, stats: &TopicStats) {
    let fresh = || TopicStats { topic: stats.topic.clone(), ..TopicStats::default() };
    all.entry(stats.topic.clone()).or_insert_with(fresh).add(stats);
}

impl Counted {
    fn add(&mut self, stats: &TopicStats) {
        let all = &mut self.ended;
        let has_room = all.len() < TOPICS || all.contains_key(&stats.topic);
        let topic = if has_room { stats.topic.clone() } else { OTHERS.into() };
        // A closed publisher or subscriber is not present any more, and has nothing in its queue.
        add_to(all, &TopicStats { topic, publishers: 0, subscribers: 0, queued: 0, ..stats.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gone_stays_in_the_sums_of_its_topic() {
        let totals = Totals::default();
        let counts = [totals.sender("t"), totals.sender("t")];
        counts[0].count(1, 10, 0);
        counts[1].count(1, 5, 2);
        let of = |stats: &TopicStats| (stats.sent, stats.sent_bytes, stats.dropped, stats.publishers);
        assert_eq!(of(&totals.read()["t"]), (2, 15, 2, 2));
        totals.end_sender(&counts[0]);
        totals.end_sender(&counts[0]);
        assert_eq!(of(&totals.read()["t"]), (2, 15, 2, 1));
        totals.end(&TopicStats { topic: "t".into(), subscribers: 1, queued: 3, lost: 4, ..TopicStats::default() });
        let all = totals.read();
        assert_eq!((all["t"].lost, all["t"].subscribers, all["t"].queued), (4, 0, 0));
    }

    #[test]
    fn any_number_of_topics_takes_bounded_memory() {
        let totals = Totals::default();
        for number in 0..TOPICS + 10 {
            totals.end(&TopicStats { topic: number.to_string(), sent: 1, ..TopicStats::default() });
        }
        let all = totals.read();
        assert_eq!((all.len(), all[OTHERS].sent), (TOPICS + 1, 10));
    }
}
