//! The status of publishers and subscribers: who is matched with whom, and who is incompatible and
//! why.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use polywire_core::envelope::Id128;

/// The number of refusals and mismatches that a status lists. Older ones are only counted.
const LISTED: usize = 8;

/// Which peers read what a publisher writes, and which cannot. DDS has the statuses
/// `PUBLICATION_MATCHED`, `OFFERED_INCOMPATIBLE_QOS` and `INCONSISTENT_TOPIC` for this.
///
/// ```
/// use polywire::{Node, PublisherStatus, Refusal, SubscriberStatus};
/// # #[derive(Default, polywire::Message)]
/// # #[polywire(name = "Pump")]
/// # struct Pump { id: u32 }
/// # #[derive(Default, polywire::Message)]
/// # #[polywire(name = "Pump")]
/// # struct Other { id: String }
/// let node = Node::new();
/// let subscriber = node.subscriber_on::<Other>("pumps", "cdr@inproc/status-doc")?;
/// let publisher = node.publisher_on::<Pump>("pumps", "cdr@inproc/status-doc")?;
///
/// let sent = publisher.publish(&Pump { id: 7 })?;
/// assert_eq!((sent.peers, sent.refused), (0, 1));
/// let status: PublisherStatus = publisher.status();
/// assert_eq!((status.accepting, status.refusing, status.dropped), (0, 1, 0));
/// let Refusal { peer, reason, .. } = &status.refusals[0];
/// assert!(peer == "this node" && reason.contains("the writer has uint32, the reader string"));
///
/// let status: SubscriberStatus = subscriber.status();
/// assert_eq!((status.writers, status.unreadable, status.lost), (0, 1, 0));
/// assert_eq!(status.mismatches[0].type_name, "Pump");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublisherStatus {
    /// Peers that accept the messages now. Several subscribers on one node, or behind a relay, may
    /// be one peer.
    pub accepting: usize,
    /// Peers that now have a subscriber that cannot read the messages. A peer with both kinds of
    /// subscribers counts in `accepting` and `refusing`.
    pub refusing: usize,
    /// Refusals since the publisher began to use its present format.
    pub refused_total: u64,
    /// The latest refusals, newest last.
    pub refusals: Vec<Refusal>,
    /// How often a message was dropped for a peer when it was published, because the peer's queue
    /// was full. Messages that are dropped later, to make room for newer ones, count for the link,
    /// which all topics share: [`LinkCounts::dropped`](crate::stats::LinkCounts::dropped).
    pub dropped: u64,
    /// How often an instance was not published within the offered deadline.
    pub deadlines_missed: u64,
    /// How often the publisher's lease lapsed: its node did not run, or the application did not
    /// assert its liveliness in time. DDS calls it `LIVELINESS_LOST`.
    pub liveliness_lost: u64,
}

/// A subscriber elsewhere cannot read a publisher's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The peer's address.
    pub peer: String,
    /// Why the subscriber cannot read the messages.
    pub reason: String,
}

/// Which writers a subscriber reads, which it cannot read, and what it missed. DDS has the statuses
/// `SUBSCRIPTION_MATCHED`, `REQUESTED_INCOMPATIBLE_QOS`, `INCONSISTENT_TOPIC` and `SAMPLE_LOST` for
/// this. There is an example at [`PublisherStatus`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberStatus {
    /// Writers that the subscriber reads now.
    pub writers: usize,
    /// Those of `writers` that have shown no sign of life for the lease that they offer. DDS calls
    /// it `LIVELINESS_CHANGED`.
    pub not_alive: usize,
    /// Present writers that the subscriber cannot read.
    pub unreadable: usize,
    /// Writers that the subscriber could not read, since it was opened.
    pub mismatches_total: u64,
    /// The latest mismatches, newest last.
    pub mismatches: Vec<Mismatch>,
    /// Messages that were lost on the way to the subscriber, or dropped by its queue.
    pub lost: u64,
    /// Messages that could not be decoded.
    pub undecodable: u64,
    /// How often no sample of an instance arrived within the requested deadline.
    pub deadlines_missed: u64,
    /// Samples in the queue that newer samples of their instance replaced: history.
    pub replaced: u64,
    /// Samples whose lifespan ended before the application took them.
    pub expired: u64,
    /// Samples published too soon after the previous one of their instance: time-based filter.
    pub filtered: u64,
    /// Samples of writers that do not own the instance: ownership.
    pub not_owner: u64,
    /// Samples that arrived after a sample that was published later: destination order.
    pub superseded: u64,
    /// Samples for which the resource limits leave no room.
    pub rejected: u64,
}

/// A subscriber cannot read a writer's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// The writer.
    pub writer: Id128,
    /// The writer's type.
    pub type_name: String,
    /// Why. If the types are incompatible: the path of the member, and the smallest change that
    /// helps.
    pub reason: String,
}

/// The latest events of a kind, and the number of all of them.
#[derive(Debug)]
pub(crate) struct Recent<T> {
    last: VecDeque<T>,
    total: u64,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent { last: VecDeque::new(), total: 0 }
    }
}

impl<T: Clone> Recent<T> {
    pub(crate) fn push(&mut self, event: T) {
        if self.last.len() == LISTED {
            self.last.pop_front();
        }
        self.last.push_back(event);
        self.total = self.total.saturating_add(1);
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn list(&self) -> Vec<T> {
        self.last.iter().cloned().collect()
    }
}

/// The number of peers that refuse a channel. Publishers read it with each message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusing(Arc<AtomicUsize>);

impl Refusing {
    pub(crate) fn set(&self, peers: usize) {
        self.0.store(peers, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn peers(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_listed_and_all_are_counted() {
        let mut recent = Recent::default();
        (0..20).for_each(|i| recent.push(i));
        assert_eq!((recent.total(), recent.list()), (20, (12..20).collect()));
    }
}
