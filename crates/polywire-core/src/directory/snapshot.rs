//! The state of a system at one moment.

use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    sync::Arc,
};

use super::{NodeData, NodeKey, PublisherData, RefusalData, SubscriberData};
use crate::{envelope::Id128, qos::partitions_match};

/// All nodes at one moment. A clone is cheap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub(super) nodes: Arc<BTreeMap<NodeKey, Arc<NodeData>>>,
}

/// A publisher and a subscriber of the same topic.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair<'a> {
    /// The publisher's node.
    pub from: &'a NodeData,
    /// The publisher.
    pub publisher: &'a PublisherData,
    /// The subscriber's node.
    pub to: &'a NodeData,
    /// The subscriber.
    pub subscriber: &'a SubscriberData,
    /// Whether the subscriber reads the publisher.
    pub matching: Matching,
}

/// Whether a subscriber reads a publisher of its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Matching {
    /// It does.
    Matched,
    /// It cannot, for the reason that its node gives: types, quality of service, or access.
    Incompatible(String),
    /// They have no partition in common, so neither is told of the other.
    Partition,
    /// The subscriber's node has said nothing of the publisher, although nothing is against it: no
    /// path leads from one to the other, or the decision is still to come.
    Unconnected,
}

impl Snapshot {
    /// The nodes, by id.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<NodeData>> {
        self.nodes.values()
    }

    /// The first node with this name, or with an id that begins with this text.
    pub fn node(&self, name: &str) -> Option<&Arc<NodeData>> {
        let by_id = || self.nodes().find(|node| !name.is_empty() && node.id.to_string().starts_with(name));
        self.nodes().find(|node| node.name == name).or_else(by_id)
    }

    /// The publisher with this id, and its node.
    ///
    /// ```
    /// use polywire_core::{directory::Snapshot, envelope::Id128};
    /// assert_eq!(Snapshot::default().publisher(Id128([7; 16])), None);
    /// ```
    pub fn publisher(&self, id: Id128) -> Option<(&NodeData, &PublisherData)> {
        let mut all = self.nodes().flat_map(|node| node.publishers.iter().map(move |one| (&**node, one)));
        all.find(|(_, publisher)| publisher.id == id)
    }

    /// Every publisher with every subscriber of its topic. There may be as many as the product of
    /// both numbers.
    pub fn pairs(&self) -> impl Iterator<Item = Pair<'_>> {
        let mut subscribers: BTreeMap<&str, alloc::vec::Vec<(&NodeData, &SubscriberData)>> = BTreeMap::new();
        for (node, subscriber) in self.nodes().flat_map(|node| node.subscribers.iter().map(move |one| (&**node, one))) {
            subscribers.entry(&subscriber.topic).or_default().push((node, subscriber));
        }
        let publishers = self.nodes().flat_map(|node| node.publishers.iter().map(move |one| (&**node, one)));
        publishers.flat_map(move |(from, publisher)| {
            let readers = subscribers.get(publisher.topic.as_str()).cloned().unwrap_or_default();
            readers.into_iter().map(move |(to, subscriber)| {
                let matching = Matching::of(publisher, subscriber);
                Pair { from, publisher, to, subscriber, matching }
            })
        })
    }
}

impl Matching {
    /// What is known about a publisher and a subscriber of the same topic.
    ///
    /// ```
    /// use polywire_core::{directory::{Matching, PublisherData, RefusalData, SubscriberData}, envelope::Id128};
    /// let publisher = PublisherData { id: Id128([7; 16]), ..PublisherData::default() };
    /// let refuses = vec![RefusalData { writer: publisher.id, reason: "access denied".into() }];
    /// let subscriber = SubscriberData { refuses, ..SubscriberData::default() };
    /// assert_eq!(Matching::of(&publisher, &subscriber), Matching::Incompatible("access denied".into()));
    /// ```
    pub fn of(publisher: &PublisherData, subscriber: &SubscriberData) -> Matching {
        if subscriber.reads.contains(&publisher.id) {
            return Matching::Matched;
        }
        let is_it = |refusal: &&RefusalData| refusal.writer == publisher.id;
        if let Some(refusal) = subscriber.refuses.iter().find(is_it) {
            return Matching::Incompatible(refusal.reason.clone());
        }
        match partitions_match(&publisher.qos, &subscriber.qos) {
            false => Matching::Partition,
            true => Matching::Unconnected,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn what_the_subscriber_says_counts_and_partitions_explain_silence() {
        let writer = Id128([1; 16]);
        let publisher =
            PublisherData { id: writer, qos: "partition=a".parse().expect("a policy"), ..PublisherData::default() };
        let silent = SubscriberData::default();
        assert_eq!(Matching::of(&publisher, &silent), Matching::Partition);
        let inside = SubscriberData { qos: "partition=a".parse().expect("a policy"), ..silent.clone() };
        assert_eq!(Matching::of(&publisher, &inside), Matching::Unconnected);
        let reason = "types differ";
        let refuses = vec![RefusalData { writer, reason: reason.into() }];
        let refusing = SubscriberData { refuses, ..silent.clone() };
        assert_eq!(Matching::of(&publisher, &refusing), Matching::Incompatible(reason.into()));
        let reads = SubscriberData { reads: vec![writer], ..refusing };
        assert_eq!(Matching::of(&publisher, &reads), Matching::Matched);
    }
}
