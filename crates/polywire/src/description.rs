//! The messages of the built-in topic `polywire/node`: [`NodeData`] with members that every format
//! can carry. `spec/directory.md` defines them.

use polywire_core::{
    directory::{EndpointData, NodeData, PublisherData, RefusalData, SubscriberData},
    envelope::Id128,
    qos::Qos,
};
use polywire_derive::Message;

/// The most publishers, and the most subscribers, in one description.
const MAX_ENDPOINTS: usize = 8192;
/// The most publishers that the description of a subscriber names.
const MATCHES: usize = 1024;
/// The most characters of a reason.
const REASON: usize = 2000;

/// The description of a node.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::Node")]
pub(crate) struct Description {
    #[polywire(key)]
    pub(crate) id: [u8; 16],
    pub(crate) incarnation: u64,
    pub(crate) revision: u64,
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) process: u32,
    pub(crate) user: String,
    pub(crate) version: String,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) publishers: Vec<Publisher>,
    pub(crate) subscribers: Vec<Subscriber>,
    pub(crate) omitted: u32,
}

/// A port of a node.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::Endpoint")]
pub(crate) struct Endpoint {
    endpoint: String,
    links: u32,
}

/// A publisher.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::Publisher")]
pub(crate) struct Publisher {
    id: [u8; 16],
    topic: String,
    type_name: String,
    type_hash: [u8; 16],
    wire: String,
    qos: String,
    accepting: u32,
    refusing: u32,
}

/// A subscriber.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::Subscriber")]
pub(crate) struct Subscriber {
    id: [u8; 16],
    topic: String,
    type_name: String,
    type_hash: [u8; 16],
    endpoint: String,
    qos: String,
    reads: Vec<[u8; 16]>,
    refuses: Vec<Refusal>,
}

/// Why a subscriber does not read a publisher.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::Refusal")]
pub(crate) struct Refusal {
    writer: [u8; 16],
    reason: String,
}

/// Leaves out publishers, subscribers and matches that exceed the limits of a description.
impl From<&NodeData> for Description {
    fn from(node: &NodeData) -> Description {
        let left_out = |all: usize| all.saturating_sub(MAX_ENDPOINTS);
        let omitted = left_out(node.publishers.len()) + left_out(node.subscribers.len());
        Description {
            id: node.id.0,
            incarnation: node.incarnation,
            revision: node.revision,
            name: node.name.clone(),
            host: node.host.clone(),
            process: node.process,
            user: node.user.clone(),
            version: node.version.clone(),
            endpoints: node.endpoints.iter().map(Endpoint::from).collect(),
            publishers: node.publishers.iter().take(MAX_ENDPOINTS).map(Publisher::from).collect(),
            subscribers: node.subscribers.iter().take(MAX_ENDPOINTS).map(Subscriber::from).collect(),
            omitted: u32::try_from(omitted).unwrap_or(u32::MAX),
        }
    }
}

impl From<&EndpointData> for Endpoint {
    fn from(data: &EndpointData) -> Endpoint {
        Endpoint { endpoint: data.endpoint.clone(), links: data.links }
    }
}

impl From<&PublisherData> for Publisher {
    fn from(data: &PublisherData) -> Publisher {
        Publisher {
            id: data.id.0,
            topic: data.topic.clone(),
            type_name: data.type_name.clone(),
            type_hash: data.type_hash.0,
            wire: data.wire.clone(),
            qos: data.qos.to_string(),
            accepting: data.accepting,
            refusing: data.refusing,
        }
    }
}

impl From<&SubscriberData> for Subscriber {
    fn from(data: &SubscriberData) -> Subscriber {
        let refusal =
            |one: &RefusalData| Refusal { writer: one.writer.0, reason: one.reason.chars().take(REASON).collect() };
        Subscriber {
            id: data.id.0,
            topic: data.topic.clone(),
            type_name: data.type_name.clone(),
            type_hash: data.type_hash.0,
            endpoint: data.endpoint.clone(),
            qos: data.qos.to_string(),
            reads: data.reads.iter().take(MATCHES).map(|id| id.0).collect(),
            refuses: data.refuses.iter().take(MATCHES).map(refusal).collect(),
        }
    }
}

impl From<&Description> for NodeData {
    fn from(node: &Description) -> NodeData {
        NodeData {
            id: Id128(node.id),
            incarnation: node.incarnation,
            revision: node.revision,
            name: node.name.clone(),
            host: node.host.clone(),
            process: node.process,
            user: node.user.clone(),
            version: node.version.clone(),
            endpoints: node.endpoints.iter().map(EndpointData::from).collect(),
            publishers: node.publishers.iter().map(PublisherData::from).collect(),
            subscribers: node.subscribers.iter().map(SubscriberData::from).collect(),
            omitted: node.omitted,
        }
    }
}

impl From<&Endpoint> for EndpointData {
    fn from(wire: &Endpoint) -> EndpointData {
        EndpointData { endpoint: wire.endpoint.clone(), links: wire.links }
    }
}

/// Returns the policies of a text that this version knows. Leaves out the other ones, and does not
/// check the result: it is only displayed.
fn known(text: &str) -> Qos {
    let mut qos = Qos::default();
    for (name, value) in text.split(',').filter_map(|part| part.split_once('=')) {
        // A value that is not valid changes nothing.
        let _ = qos.set(name.trim(), value.trim());
    }
    qos
}

impl From<&Publisher> for PublisherData {
    fn from(wire: &Publisher) -> PublisherData {
        PublisherData {
            id: Id128(wire.id),
            topic: wire.topic.clone(),
            type_name: wire.type_name.clone(),
            type_hash: Id128(wire.type_hash),
            wire: wire.wire.clone(),
            qos: known(&wire.qos),
            accepting: wire.accepting,
            refusing: wire.refusing,
        }
    }
}

impl From<&Subscriber> for SubscriberData {
    fn from(wire: &Subscriber) -> SubscriberData {
        let refusal = |one: &Refusal| RefusalData { writer: Id128(one.writer), reason: one.reason.clone() };
        SubscriberData {
            id: Id128(wire.id),
            topic: wire.topic.clone(),
            type_name: wire.type_name.clone(),
            type_hash: Id128(wire.type_hash),
            endpoint: wire.endpoint.clone(),
            qos: known(&wire.qos),
            reads: wire.reads.iter().map(|id| Id128(*id)).collect(),
            refuses: wire.refuses.iter().map(refusal).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_described_comes_back() {
        let publisher = PublisherData {
            id: Id128([1; 16]),
            topic: "t".into(),
            wire: "cdr@local/0".into(),
            qos: "reliability=reliable,partition=a".parse().expect("policies"),
            ..PublisherData::default()
        };
        let refuses = vec![RefusalData { writer: Id128([2; 16]), reason: "no".into() }];
        let subscriber = SubscriberData { reads: vec![publisher.id], refuses, ..SubscriberData::default() };
        let endpoints = vec![EndpointData { endpoint: "local/0".into(), links: 3 }];
        let node = NodeData {
            name: "n".into(),
            revision: 7,
            endpoints,
            publishers: vec![publisher],
            subscribers: vec![subscriber],
            ..NodeData::default()
        };
        assert_eq!(NodeData::from(&Description::from(&node)), node);
    }

    #[test]
    fn policies_that_are_not_known_here_are_left_out() {
        let newer = "reliability=reliable,colour=red,durability=carved-in-stone,more,partition=a,partition=b";
        let expected: Qos = "reliability=reliable,partition=a,partition=b".parse().expect("policies");
        let publisher = Publisher { qos: newer.into(), ..Publisher::default() };
        let subscriber = Subscriber { qos: newer.into(), ..Subscriber::default() };
        assert_eq!(PublisherData::from(&publisher).qos, expected);
        assert_eq!(SubscriberData::from(&subscriber).qos, expected);
        assert_eq!((known("default"), known("")), (Qos::default(), Qos::default()));
    }

    #[test]
    fn a_description_is_bounded() {
        let publishers = vec![PublisherData::default(); MAX_ENDPOINTS + 3];
        let reason = "x".repeat(REASON + 1);
        let refuses = vec![RefusalData { writer: Id128::ZERO, reason }; MATCHES + 1];
        let subscribers = vec![SubscriberData { refuses, ..SubscriberData::default() }];
        let node = Description::from(&NodeData { publishers, subscribers, ..NodeData::default() });
        assert_eq!((node.publishers.len(), node.omitted), (MAX_ENDPOINTS, 3));
        let refuses = &node.subscribers[0].refuses;
        assert_eq!((refuses.len(), refuses[0].reason.len()), (MATCHES, REASON));
    }
}
