//! The subscribers of ROS 2 applications, known by their liveliness tokens. Subscribers to a
//! channel's topic count as subscribers of that channel, and the node can list all of them
//! ([`Port::foreign_readers`]). rmw_zenoh connects the ends of a topic if their types have the same
//! hash, whatever their QoS is.
//!
//! [`Port::foreign_readers`]: super::super::Port::foreign_readers

use std::collections::BTreeMap;

use polywire_core::{
    directory::{EndpointData, NodeData, RefusalData, SubscriberData},
    envelope::Id128,
    frame::Answer,
};

use super::ros::{TheirEnd, Topic, gid};

/// The most subscribers that are known. Hostile applications could declare any number.
const MAX_READERS: usize = 10_000;

/// The subscribers whose tokens are present.
#[derive(Default)]
pub(super) struct Readers {
    /// The subscribers, by the names of their topics and then by their tokens.
    by_name: BTreeMap<String, BTreeMap<String, TheirEnd>>,
    count: usize,
}

impl Readers {
    /// Adds a subscriber whose token has appeared. Returns false if there are too many.
    pub(super) fn token_added(&mut self, token: &str, reader: TheirEnd) -> bool {
        let is_known = self.by_name.get(&reader.topic.name).is_some_and(|readers| readers.contains_key(token));
        if !is_known && self.count >= MAX_READERS {
            return false;
        }
        self.count += usize::from(!is_known);
        self.by_name.entry(reader.topic.name.clone()).or_default().insert(token.to_owned(), reader);
        true
    }

    /// Removes a subscriber to a topic of this name whose token has disappeared. Returns false if
    /// the subscriber was not known.
    pub(super) fn token_removed(&mut self, name: &str, token: &str) -> bool {
        let Some(readers) = self.by_name.get_mut(name) else { return false };
        let was_known = readers.remove(token).is_some();
        if readers.is_empty() {
            self.by_name.remove(name);
        }
        self.count -= usize::from(was_known);
        was_known
    }

    /// Whether there are subscribers to topics of this name.
    pub(super) fn know(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Returns the answer of all subscribers together to a channel of this topic.
    pub(super) fn answer(&self, topic: &Topic) -> Answer {
        let count = self.of_name(&topic.name).filter(|reader| reader.topic == *topic).count() as u32;
        match (count, self.of_name(&topic.name).find_map(|reader| refusal(topic, &reader.topic))) {
            (0, None) => Answer::Decline,
            (0, Some(reason)) => Answer::Refuse(reason),
            (_, None) => Answer::Accept(count),
            (_, Some(reason)) => Answer::Partial(count, reason),
        }
    }

    /// Returns the nodes of the subscribers, as seen at this endpoint, and which of these writers
    /// each subscriber reads or refuses.
    pub(super) fn nodes<'a>(&self, endpoint: &str, writers: impl Iterator<Item = (&'a Topic, Id128)>) -> Vec<NodeData> {
        let mut by_name: BTreeMap<&str, Vec<(&Topic, Id128)>> = BTreeMap::new();
        writers.for_each(|(topic, writer)| by_name.entry(&topic.name).or_default().push((topic, writer)));
        let mut nodes: BTreeMap<&str, NodeData> = BTreeMap::new();
        for (token, reader) in self.by_name.values().flatten() {
            let node = nodes.entry(&reader.node_token).or_insert_with(|| NodeData {
                id: gid(&reader.node_token),
                name: format!("{endpoint} {}", reader.node),
                endpoints: vec![EndpointData { endpoint: endpoint.to_owned(), links: 0 }],
                ..NodeData::default()
            });
            let mut data = SubscriberData {
                id: gid(token),
                topic: reader.topic.name.clone(),
                type_name: reader.topic.sample_encoding().type_name,
                endpoint: endpoint.to_owned(),
                qos: reader.qos.clone(),
                ..SubscriberData::default()
            };
            for (topic, writer) in by_name.get(&*reader.topic.name).into_iter().flatten() {
                match refusal(topic, &reader.topic) {
                    None => data.reads.push(*writer),
                    Some(reason) => data.refuses.push(RefusalData { writer: *writer, reason }),
                }
            }
            node.subscribers.push(data);
        }
        nodes.into_values().collect()
    }

    fn of_name(&self, name: &str) -> impl Iterator<Item = &TheirEnd> {
        self.by_name.get(name).into_iter().flat_map(BTreeMap::values)
    }
}

/// Returns why a subscriber does not read a writer of a topic of the same name. `None` if it does.
fn refusal(writer: &Topic, reader: &Topic) -> Option<String> {
    let differs = (&writer.type_name, &writer.hash) != (&reader.type_name, &reader.hash);
    differs.then(|| {
        format!(
            "the types differ: in ROS 2, the writer's is {} ({}), and the reader's is {} ({})",
            writer.type_name, writer.hash, reader.type_name, reader.hash
        )
    })
}

#[cfg(test)]
mod tests {
    use polywire_core::qos::Qos;

    use super::*;

    const HASH: &str = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";

    fn topic(name: &str, type_name: &str) -> Topic {
        Topic { name: name.into(), type_name: type_name.into(), hash: HASH.into() }
    }

    fn reader(topic: Topic) -> TheirEnd {
        TheirEnd { topic, qos: Qos::default(), node: "/n".into(), node_token: "t".into() }
    }

    #[test]
    fn subscribers_answer_by_name_and_type() {
        let mut readers = Readers::default();
        let written = topic("a", "m::msg::dds_::A_");
        assert_eq!(readers.answer(&written), Answer::Decline);
        readers.token_added("1", reader(topic("b", "m::msg::dds_::A_")));
        assert_eq!(readers.answer(&written), Answer::Decline);
        readers.token_added("2", reader(topic("a", "m::msg::dds_::B_")));
        let Answer::Refuse(reason) = readers.answer(&written) else { panic!("it has another type") };
        assert!(reason.contains("the writer's is m::msg::dds_::A_"), "{reason}");
        readers.token_added("3", reader(written.clone()));
        assert_eq!(readers.answer(&written), Answer::Partial(1, reason));
        assert!(readers.token_removed("a", "2"));
        assert_eq!(readers.answer(&written), Answer::Accept(1));
    }

    #[test]
    fn their_number_is_bounded() {
        let mut readers = Readers::default();
        assert!(
            (0..MAX_READERS)
                .all(|number| readers.token_added(&number.to_string(), reader(topic("a", "m::msg::dds_::A_"))))
        );
        assert!(!readers.token_added("one more", reader(topic("a", "m::msg::dds_::A_"))));
        assert!(readers.token_added("5", reader(topic("a", "m::msg::dds_::B_"))), "it is known");
        assert!(
            readers.token_removed("a", "5") && !readers.token_removed("a", "5") && !readers.token_removed("b", "6")
        );
        assert!(readers.token_added("one more", reader(topic("b", "m::msg::dds_::A_"))) && readers.know("b"));
        assert!(readers.token_removed("b", "one more") && !readers.know("b") && readers.know("a"));
    }
}
