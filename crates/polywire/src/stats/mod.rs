//! Statistics of a node: messages, bytes, losses by reason, latencies, queues and links.
//!
//! A node counts all the time, because counting costs next to nothing; it computes the sums only on
//! request. There are three ways to get them: [`Node::stats`](crate::Node::stats) returns a
//! [`NodeStats`], the topic [`STATS_TOPIC`](crate::directory::STATS_TOPIC) carries one each second
//! while somebody subscribes to it, and [`NodeStats::prometheus`] formats them as text for
//! Prometheus, which a node serves over HTTP if `[node] metrics` names an address.
//!
//! Counters begin at 0 when the node is made, and never decrease. The counts of a publisher or
//! subscriber that has closed stay in the sums of its topic.
//!
//! ```
//! use polywire::{Node, stats::{Latencies, LinkCounts, NodeStats, TopicStats}};
//! # use std::time::Duration;
//! # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
//! # struct Pump { id: u32 }
//! let node = Node::builder().name("plant").build();
//! let pumps = node.subscriber_on::<Pump>("pumps", "cdr@inproc/stats-doc")?;
//! let publisher = node.publisher_on::<Pump>("pumps", "cdr@inproc/stats-doc")?;
//! for id in 0..5 {
//!     publisher.publish(&Pump { id })?;
//! }
//! let stats: NodeStats = node.stats();
//! assert_eq!(stats.name, "plant");
//! let topic: &TopicStats = stats.topic("pumps").unwrap();
//! assert_eq!((topic.publishers, topic.sent, topic.sent_bytes), (1, 5, 20));
//! assert_eq!((topic.subscribers, topic.received, topic.queued), (1, 5, 5));
//! let latency: &Latencies = &topic.latency;
//! assert_eq!(latency.count, 5);
//! assert!(latency.quantile(0.5).unwrap() <= latency.quantile(0.99).unwrap());
//! let links: &[LinkCounts] = &stats.links;
//! assert!(links.is_empty(), "nobody else is there");
//! assert!(stats.prometheus().contains("polywire_messages_sent_total{node=\"plant\",topic=\"pumps\"} 5\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod counts;
mod latency;
mod prometheus;

use polywire_derive::Message;

pub use self::latency::Latencies;
pub(crate) use self::{
    counts::{ReceiverCounts, SenderCounts, Totals, add_to},
    latency::Histogram,
};

/// The counts of a node at one moment.
///
/// The topic [`STATS_TOPIC`](crate::directory::STATS_TOPIC) has messages of this type.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::NodeStats")]
#[non_exhaustive]
pub struct NodeStats {
    /// The node's id.
    #[polywire(key)]
    pub node: [u8; 16],
    /// The node's name.
    pub name: String,
    /// When the counts were taken, by the node's clock, in nanoseconds since 1970.
    pub time_ns: i64,
    /// Time since the node was made, in nanoseconds.
    pub uptime_ns: u64,
    /// Processor time that the process has used, in nanoseconds.
    pub cpu_ns: u64,
    /// Memory of the process that is in RAM, in bytes. 0 if the system does not report it.
    pub memory_bytes: u64,
    /// Programs of encoders and decoders that the process has compiled. A program that it could not
    /// compile and interprets instead counts too.
    pub compiled: u64,
    /// Time that the process spent on compiling programs, in nanoseconds.
    pub compile_ns: u64,
    /// Channels that the node announces now.
    pub announced: u32,
    /// Channels that peers announce to the node now.
    pub discovered: u32,
    /// Packets that the node has sent again because a peer lacked them (`udp-reliable`).
    pub retransmitted: u64,
    /// How often the rules of access have denied something to a peer.
    pub denied: u64,
    /// Topics that are left out of `topics`, and links that are left out of `links`, because there
    /// are more than 4096. Always 0 in [`Node::stats`](crate::Node::stats).
    pub omitted: u32,
    /// Counts by topic, sorted by name.
    pub topics: Vec<TopicStats>,
    /// Counts by link.
    pub links: Vec<LinkCounts>,
}

/// What a node has sent and received on one topic.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::TopicStats")]
#[non_exhaustive]
pub struct TopicStats {
    /// The topic.
    pub topic: String,
    /// Publishers that the node has now.
    pub publishers: u32,
    /// Messages published.
    pub sent: u64,
    /// Bytes of their payloads on the wire.
    pub sent_bytes: u64,
    /// How often a message was dropped for a peer when it was published, because the peer's queue
    /// was full. Messages that are dropped later, to make room, count in [`LinkCounts::dropped`].
    pub dropped: u64,
    /// Subscribers that the node has now.
    pub subscribers: u32,
    /// Messages received for subscribers. A message for several of them counts once.
    pub received: u64,
    /// Bytes of their payloads on the wire.
    pub received_bytes: u64,
    /// Messages that wait in subscribers' queues now.
    pub queued: u64,
    /// Messages lost on the way to subscribers, or dropped by their full queues.
    pub lost: u64,
    /// Messages that could not be decoded.
    pub undecodable: u64,
    /// Samples in queues that newer samples of their instance replaced: history.
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
    /// Time from the publication of a message to its arrival at a subscriber.
    pub latency: Latencies,
}

/// Counts of one link.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::LinkCounts")]
#[non_exhaustive]
pub struct LinkCounts {
    /// The endpoint of this node that the link belongs to.
    pub endpoint: String,
    /// Address of the peer.
    pub address: String,
    /// Id of the node at the other end.
    pub peer: [u8; 16],
    /// Messages written, queued or held for the peer.
    pub sent: u64,
    /// Messages for the peer that its full queue dropped.
    pub dropped: u64,
    /// Bytes that wait for the peer.
    pub queued_bytes: u64,
    /// Messages received from the peer for subscribers of this node.
    pub received: u64,
    /// Bytes of their payloads.
    pub received_bytes: u64,
    /// How often the peer was silent for longer than its lease.
    pub silences: u64,
}

/// The most topics, and the most links, in one message of statistics.
const MAX_ENTRIES: usize = 4096;

impl NodeStats {
    /// Returns the counts of a topic.
    pub fn topic(&self, name: &str) -> Option<&TopicStats> {
        self.topics.iter().find(|topic| topic.topic == name)
    }

    /// Leaves out the topics and links for which a message has no room, and counts them in
    /// `omitted`.
    pub(crate) fn bounded(mut self) -> NodeStats {
        let (topics, links) = (self.topics.len(), self.links.len());
        self.topics.truncate(MAX_ENTRIES);
        self.links.truncate(MAX_ENTRIES);
        let omitted = topics - self.topics.len() + links - self.links.len();
        self.omitted = u32::try_from(omitted).unwrap_or(u32::MAX);
        self
    }

    /// The counts as text for Prometheus, in exposition format 0.0.4.
    /// [The module](crate::stats) has an example.
    pub fn prometheus(&self) -> String {
        prometheus::text(self)
    }
}

impl TopicStats {
    /// Adds the counts of another publisher or subscriber of the topic.
    pub(crate) fn add(&mut self, other: &TopicStats) {
        self.publishers += other.publishers;
        self.subscribers += other.subscribers;
        let pairs = [
            (&mut self.sent, other.sent),
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.dropped, other.dropped),
            (&mut self.received, other.received),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.queued, other.queued),
            (&mut self.lost, other.lost),
            (&mut self.undecodable, other.undecodable),
            (&mut self.replaced, other.replaced),
            (&mut self.expired, other.expired),
            (&mut self.filtered, other.filtered),
            (&mut self.not_owner, other.not_owner),
            (&mut self.superseded, other.superseded),
            (&mut self.rejected, other.rejected),
        ];
        for (sum, more) in pairs {
            *sum = sum.saturating_add(more);
        }
        self.latency.add(&other.latency);
    }
}
