//! Who is matched with whom, and who is not and why: what publishers and subscribers say when they
//! are asked.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use polywire_core::envelope::Id128;

/// Refusals and mismatches that a status lists; older ones are counted only.
const LISTED: usize = 8;

/// Who reads what a publisher writes, and who cannot. In DDS, `PUBLICATION_MATCHED`,
/// `OFFERED_INCOMPATIBLE_QOS` and `INCONSISTENT_TOPIC` say it.
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
/// assert_eq!((status.accepting, status.refusing), (0, 1));
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
    /// Peers that take the messages now. Several subscribers on one node, or behind a relay, may be
    /// one peer.
    pub accepting: usize,
    /// Peers with a subscriber now that cannot read the messages. One with another subscriber that
    /// can is counted in both.
    pub refusing: usize,
    /// Refusals since the publisher has its present format.
    pub refused_total: u64,
    /// The last of them, newest last.
    pub refusals: Vec<Refusal>,
}

/// A subscriber elsewhere cannot read a publisher's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// Where it is.
    pub peer: String,
    /// What it says.
    pub reason: String,
}

/// Whom a subscriber reads, whom it cannot read, and what it missed. In DDS,
/// `SUBSCRIPTION_MATCHED`, `REQUESTED_INCOMPATIBLE_QOS`, `INCONSISTENT_TOPIC` and `SAMPLE_LOST` say
/// it. There is an example at [`PublisherStatus`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberStatus {
    /// Writers that it reads now. One that has just changed its format may count twice.
    pub writers: usize,
    /// Writers now that it cannot read.
    pub unreadable: usize,
    /// Writers that it could not read so far.
    pub mismatches_total: u64,
    /// The last of them, newest last.
    pub mismatches: Vec<Mismatch>,
    /// Messages that were lost on the way here or dropped by the queue.
    pub lost: u64,
    /// Messages that could not be decoded.
    pub undecodable: u64,
}

/// A subscriber cannot read a writer's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// Who writes.
    pub writer: Id128,
    /// The writer's type.
    pub type_name: String,
    /// Path and smallest fix, if it is the types that do not agree.
    pub reason: String,
}

/// The last of some events, and how many there were.
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

/// How many peers refuse a channel: publishers look at it with each message.
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
