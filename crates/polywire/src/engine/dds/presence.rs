//! ROS 2's view of participants: this node publishes which ROS 2 node it is and what it writes and
//! reads, and receives the same from others. `polywire_core::ros::entities` has the messages.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use polywire_core::ros::{
    self, check_topic,
    entities::{NodeEntities, ParticipantEntities, TOPIC, TYPE_NAME},
};
use polywire_dds::{Bytes, Durability, Error, Guid, Kind, Qos, Reader, Sample, Writer};

use super::{
    describe::Descriptions,
    form::{Form, OCTETS},
    inbox::{Item, Receiver},
    peer::ReadEnd,
    state::Shared,
};

/// The maximum number of nodes of a participant that are kept.
const MOST_NAMES: usize = 16;

/// What this port has published about itself, and what it knows of others.
pub(super) struct Presence {
    writer: Writer,
    _reader: Reader,
    descriptions: Option<Descriptions>,
    told: ParticipantEntities,
    /// The nodes of each participant, without their readers.
    nodes: BTreeMap<Guid, Vec<NodeEntities>>,
}

impl Presence {
    /// Joins the graph of ROS 2 as a node with this node's name.
    pub(super) fn new(shared: &Shared, name: &str) -> Result<Presence, Error> {
        let qos = Qos {
            reliable: Some(Duration::from_millis(100)),
            durability: Durability::TransientLocal,
            keep_last: Some(1),
            service_depth: Some(1),
            ..Qos::default()
        };
        let topic = || shared.us.topic(TOPIC, TYPE_NAME, false);
        let receiver = Receiver { inbox: shared.inbox.clone(), item: Item::Present };
        let _reader = topic()?.reader(&qos, Arc::new(receiver), |_| {})?;
        let writer = topic()?.writer(&qos, |_| {})?;
        let node = NodeEntities { namespace: "/".into(), name: ros::node_name(name), ..NodeEntities::default() };
        let told = ParticipantEntities { participant: shared.us.guid().0, nodes: vec![node] };
        let descriptions = Descriptions::new(shared, &ros::node_name(name));
        let descriptions = descriptions
            .inspect_err(|error| log::warn!("{}: ROS 2 cannot ask this node for its types: {error}", shared.endpoint))
            .ok();
        let presence = Presence { writer, _reader, descriptions, told, nodes: BTreeMap::new() };
        presence.write()?;
        Ok(presence)
    }

    /// Publishes what this node writes and reads, if that has changed.
    pub(super) fn tell(&mut self, shared: &Shared) {
        let (mut writers, ends) = {
            let state = shared.state.lock();
            let native = state.channels.values().filter(|channel| matches!(channel.form, Form::Native { .. }));
            let writers: Vec<[u8; 16]> = native.map(|channel| channel.writer.guid().0).collect();
            (writers, state.read_ends().collect::<Vec<Arc<ReadEnd>>>())
        };
        let native = ends.iter().filter(|end| end.type_name != OCTETS);
        let mut readers: Vec<[u8; 16]> = native.map(|end| end.reader.guid().0).collect();
        writers.extend(self.descriptions.iter().map(|descriptions| descriptions.writer().0));
        readers.extend(self.descriptions.iter().map(|descriptions| descriptions.reader().0));
        writers.sort_unstable();
        readers.sort_unstable();
        let [node] = &mut *self.told.nodes else { return };
        if (&node.writers, &node.readers) == (&writers, &readers) {
            return;
        }
        (node.writers, node.readers) = (writers, readers);
        if let Err(error) = self.write() {
            log::warn!("{}: ROS 2 is not told what this node has: {error}", shared.endpoint);
        }
    }

    fn write(&self) -> Result<(), Error> {
        let bytes = Bytes::of_sample(&self.told.to_cdr())?;
        self.writer.write(&Sample {
            kind: Kind::Data,
            is_key: false,
            bytes,
            key_hash: None,
            timestamp_ns: 0,
            sequence: None,
        })
    }

    /// Answers a ROS 2 node that asks for a type.
    pub(super) fn asked(&self, shared: &Shared, sample: &Sample) {
        self.descriptions.iter().for_each(|descriptions| descriptions.asked(shared, sample));
    }

    /// Notes a participant's message about its nodes. Keeps those of at most `most` participants.
    pub(super) fn heard(&mut self, participant: Guid, sample: &Sample, most: usize) {
        let Some(ParticipantEntities { nodes, .. }) = ParticipantEntities::parse(sample.bytes.sample()) else {
            return log::debug!("{participant} has sent a malformed message of '{TOPIC}'");
        };
        let is_known = self.nodes.contains_key(&participant);
        if is_known || self.nodes.len() < most {
            let nodes = nodes.into_iter().take(MOST_NAMES);
            let nodes = nodes.map(|node| NodeEntities { readers: Vec::new(), ..node }).collect();
            self.nodes.insert(participant, nodes);
        }
    }

    pub(super) fn forget(&mut self, participant: Guid) {
        self.nodes.remove(&participant);
    }

    /// Returns the names of a participant's nodes, separated by blanks. `None` if it has not
    /// published any.
    pub(super) fn names(&self, participant: Guid) -> Option<String> {
        let names = |nodes: &Vec<NodeEntities>| nodes.iter().map(NodeEntities::full_name).collect::<Vec<_>>().join(" ");
        self.nodes.get(&participant).map(names).filter(|names| !names.is_empty())
    }

    /// Returns the name of the node that has a writer of a participant. `None` if the node is not
    /// known, or its name is not valid in ROS 2.
    pub(super) fn node_of(&self, participant: Guid, writer: Guid) -> Option<String> {
        let nodes = self.nodes.get(&participant)?;
        let named = nodes.iter().find(|node| node.writers.contains(&writer.0));
        let name = named.or_else(|| nodes.first().filter(|_| nodes.len() == 1))?.full_name();
        check_topic(name.trim_start_matches('/')).is_ok().then_some(name)
    }
}
