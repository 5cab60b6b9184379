//! Discovery as data: which nodes are there, what they publish and subscribe to, which subscribers
//! read which publishers, and why others do not.
//!
//! Each node describes itself in a [`NodeData`]: `spec/directory.md` has the topic on which the
//! descriptions travel, over every engine alike. A [`Directory`] puts the descriptions of many
//! nodes together. It does no I/O: pass each description to [`Directory::handle_report`] and each
//! end to [`Directory::handle_end`], and take the changes from [`Directory::poll_event`].
//!
//! A subscriber's node has decided what the subscriber reads, so it is the one that reports the
//! match or the reason against it. Nobody else repeats the decision.
//!
//! ```
//! use polywire_core::{
//!     directory::{Directory, Event, Limits, Matching, NodeData, PublisherData, SubscriberData},
//!     envelope::Id128,
//! };
//!
//! let pump = PublisherData { id: Id128([1; 16]), topic: "pumps".into(), ..PublisherData::default() };
//! let reads = vec![pump.id];
//! let hall = SubscriberData { id: Id128([2; 16]), topic: "pumps".into(), reads, ..SubscriberData::default() };
//! let node = NodeData {
//!     id: Id128([9; 16]),
//!     name: "plant".into(),
//!     publishers: vec![pump],
//!     subscribers: vec![hall],
//!     ..NodeData::default()
//! };
//!
//! let mut directory = Directory::new(Limits::default());
//! directory.handle_report(Id128([7; 16]), true, node.clone())?;
//! assert!(matches!(directory.poll_event(), Some(Event::NodeFound(found)) if found.name == "plant"));
//! let snapshot = directory.snapshot();
//! let pairs: Vec<_> = snapshot.pairs().collect();
//! assert_eq!(pairs[0].matching, Matching::Matched);
//! assert_eq!(directory.snapshot().node("plant").map(|node| node.id), Some(node.id));
//! directory.handle_end(Id128([7; 16]));
//! assert_eq!(directory.snapshot().nodes().count(), 0);
//! # Ok::<(), polywire_core::directory::Exceeded>(())
//! ```

mod snapshot;
mod table;

use alloc::{string::String, sync::Arc, vec::Vec};
use core::fmt;

use crate::{envelope::Id128, qos::Qos};

pub use self::{
    snapshot::{Matching, Pair, Snapshot},
    table::{Directory, Exceeded, Limits},
};

/// A node as it describes itself. Nothing in it is proven: a node may claim any name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeData {
    /// The node's id.
    pub id: Id128,
    /// Larger after each restart of the node.
    pub incarnation: u64,
    /// Larger with each description of the node.
    pub revision: u64,
    /// The node's name, for people. Several nodes may have the same.
    pub name: String,
    /// Name of the host.
    pub host: String,
    /// Number of the process.
    pub process: u32,
    /// Name of the user that the process runs as.
    pub user: String,
    /// Version of Polywire.
    pub version: String,
    /// The node's ports.
    pub endpoints: Vec<EndpointData>,
    /// The node's publishers.
    pub publishers: Vec<PublisherData>,
    /// The node's subscribers.
    pub subscribers: Vec<SubscriberData>,
    /// Publishers and subscribers that the description leaves out because there are too many.
    pub omitted: u32,
}

/// A port of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointData {
    /// `engine/address`, as other nodes name it.
    pub endpoint: String,
    /// Links to other nodes.
    pub links: u32,
}

/// A publisher of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublisherData {
    /// The publisher's id.
    pub id: Id128,
    /// The topic.
    pub topic: String,
    /// Scoped name of the type. Empty for payloads without a type.
    pub type_name: String,
    /// Hash of the type. Zero for payloads without a type.
    pub type_hash: Id128,
    /// The wire: format, compression and endpoint. Several have a space between them.
    pub wire: String,
    /// The quality of service that is offered.
    pub qos: Qos,
    /// Peers that accept the messages. A relay counts as one.
    pub accepting: u32,
    /// Peers that refuse them.
    pub refusing: u32,
}

/// A subscriber of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriberData {
    /// The subscriber's id.
    pub id: Id128,
    /// The topic.
    pub topic: String,
    /// Scoped name of the type. Empty if it takes every type.
    pub type_name: String,
    /// Hash of the type. Zero if it takes every type.
    pub type_hash: Id128,
    /// The endpoint that it receives from. Several have a space between them.
    pub endpoint: String,
    /// The quality of service that is requested.
    pub qos: Qos,
    /// The publishers that it reads.
    pub reads: Vec<Id128>,
    /// The publishers that it cannot read.
    pub refuses: Vec<RefusalData>,
}

/// Why a subscriber does not read a publisher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusalData {
    /// The publisher.
    pub writer: Id128,
    /// The reason, for people. If the types are incompatible: the path of the member, and the
    /// smallest change that helps.
    pub reason: String,
}

/// A node in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey {
    /// The node's id.
    pub id: Id128,
    /// Larger after each restart of the node.
    pub incarnation: u64,
}

impl NodeData {
    /// What tells the node from others.
    ///
    /// ```
    /// use polywire_core::{directory::{EndpointData, NodeData, NodeKey}, envelope::Id128};
    /// let endpoints = vec![EndpointData { endpoint: "local/0".into(), links: 2 }];
    /// let node = NodeData { id: Id128([7; 16]), incarnation: 3, endpoints, ..NodeData::default() };
    /// assert_eq!(node.key(), NodeKey { id: node.id, incarnation: 3 });
    /// assert_eq!(node.key().to_string(), node.id.to_string());
    /// assert!(node.size() > NodeData::default().size() + "local/0".len());
    /// ```
    pub fn key(&self) -> NodeKey {
        NodeKey { id: self.id, incarnation: self.incarnation }
    }

    /// Bytes of memory that the description takes, without what the allocator adds.
    pub fn size(&self) -> usize {
        let own = [&self.name, &self.host, &self.user, &self.version].map(String::len).iter().sum::<usize>();
        let endpoints = self.endpoints.iter().map(|data| size_of::<EndpointData>() + data.endpoint.len());
        let publishers = self.publishers.iter().map(PublisherData::size);
        let subscribers = self.subscribers.iter().map(SubscriberData::size);
        size_of::<NodeData>() + own + endpoints.chain(publishers).chain(subscribers).sum::<usize>()
    }
}

impl PublisherData {
    fn size(&self) -> usize {
        size_of::<PublisherData>() + self.topic.len() + self.type_name.len() + self.wire.len() + size_of_qos(&self.qos)
    }

    /// The formats and the endpoints of the wires.
    ///
    /// ```
    /// use polywire_core::directory::PublisherData;
    /// let publisher = PublisherData { wire: "json@local/0 cdr@tcp/[::1]:7460".into(), ..PublisherData::default() };
    /// let wires: Vec<_> = publisher.wires().collect();
    /// assert_eq!(wires, [("json", "local/0"), ("cdr", "tcp/[::1]:7460")]);
    /// ```
    pub fn wires(&self) -> impl Iterator<Item = (&str, &str)> {
        self.wire.split(' ').filter_map(|wire| wire.split_once('@'))
    }
}

impl SubscriberData {
    fn size(&self) -> usize {
        let texts = self.topic.len() + self.type_name.len() + self.endpoint.len() + size_of_qos(&self.qos);
        let refuses: usize = self.refuses.iter().map(|data| size_of::<RefusalData>() + data.reason.len()).sum();
        size_of::<SubscriberData>() + texts + self.reads.len() * size_of::<Id128>() + refuses
    }
}

impl Event {
    /// Bytes of the descriptions and texts in the event.
    fn size(&self) -> usize {
        match self {
            Event::NodeFound(node) | Event::NodeLost(node) => node.size(),
            Event::PublisherFound { publisher, .. } | Event::PublisherLost { publisher, .. } => publisher.size(),
            Event::SubscriberFound { subscriber, .. } | Event::SubscriberLost { subscriber, .. } => subscriber.size(),
            Event::Incompatible { reason, .. } => reason.len(),
            Event::Matched { .. } | Event::Unmatched { .. } | Event::Missed { .. } => 0,
        }
    }
}

fn size_of_qos(qos: &Qos) -> usize {
    qos.partition.iter().map(|name| size_of::<String>() + name.len()).sum()
}

/// A change of what is there.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A node is there. Its publishers and subscribers follow as events of their own.
    NodeFound(Arc<NodeData>),
    /// A node is gone, with its publishers and subscribers, which have had their own events.
    NodeLost(Arc<NodeData>),
    /// A publisher is there.
    PublisherFound {
        /// Its node.
        node: NodeKey,
        /// The publisher.
        publisher: PublisherData,
    },
    /// A publisher is gone.
    PublisherLost {
        /// Its node.
        node: NodeKey,
        /// The publisher.
        publisher: PublisherData,
    },
    /// A subscriber is there.
    SubscriberFound {
        /// Its node.
        node: NodeKey,
        /// The subscriber.
        subscriber: SubscriberData,
    },
    /// A subscriber is gone.
    SubscriberLost {
        /// Its node.
        node: NodeKey,
        /// The subscriber.
        subscriber: SubscriberData,
    },
    /// A subscriber reads a publisher.
    Matched {
        /// The publisher.
        writer: Id128,
        /// The subscriber.
        reader: Id128,
    },
    /// A subscriber no longer reads a publisher.
    Unmatched {
        /// The publisher.
        writer: Id128,
        /// The subscriber.
        reader: Id128,
    },
    /// A subscriber cannot read a publisher.
    Incompatible {
        /// The publisher.
        writer: Id128,
        /// The subscriber.
        reader: Id128,
        /// Why, for people.
        reason: String,
    },
    /// Events were dropped because nobody took them. A snapshot has the present state.
    Missed {
        /// How many.
        count: u64,
    },
}

impl fmt::Display for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}
