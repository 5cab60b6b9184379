//! ROS 2's view of participants: this node publishes which ROS 2 node it is and what it writes and
//! reads, and receives the same from others. `polywire_core::ros::entities` has the messages.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

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
const MAX_NAMES: usize = 16;

/// The interval between attempts to publish what could not be published.
const AGAIN: Duration = Duration::from_secs(1);

/// What this port has published about itself, and what it knows of others.
pub(super) struct Presence {
    writer: Writer,
    _reader: Reader,
    descriptions: Option<Descriptions>,
    told: Told,
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
        let told = Told::new(ParticipantEntities { participant: shared.us.guid().0, nodes: vec![node] });
        let descriptions = Descriptions::new(shared, &ros::node_name(name));
        let descriptions = descriptions
            .inspect_err(|error| log::warn!("{}: ROS 2 cannot ask this node for its types: {error}", shared.endpoint))
            .ok();
        publish(&writer, &told.entities)?;
        Ok(Presence { writer, _reader, descriptions, told, nodes: BTreeMap::new() })
    }

    /// Checks whether it is time to publish again what could not be published.
    pub(super) fn is_due(&self) -> bool {
        self.told.is_due(Instant::now())
    }

    /// Publishes what this node writes and reads, if that has changed or is due.
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
        let Presence { writer, told, .. } = self;
        let failed = told.tell(writers, readers, Instant::now(), |entities| publish(writer, entities));
        if let Some(error) = failed {
            log::warn!("{}: ROS 2 is not told what this node has: {error}", shared.endpoint);
        }
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
            let nodes = nodes.into_iter().take(MAX_NAMES);
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

fn publish(writer: &Writer, entities: &ParticipantEntities) -> Result<(), Error> {
    let bytes = Bytes::of_sample(&entities.to_cdr())?;
    writer.write(&Sample { kind: Kind::Data, is_key: false, bytes, key_hash: None, timestamp_ns: 0, sequence: None })
}

/// What this port publishes about itself.
struct Told {
    entities: ParticipantEntities,
    /// When it could not be published. `None` if it was published.
    failed: Option<Instant>,
}

impl Told {
    fn new(entities: ParticipantEntities) -> Told {
        Told { entities, failed: None }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.failed.is_some_and(|failed| now.saturating_duration_since(failed) >= AGAIN)
    }

    /// Publishes the writers and readers of the node, if they have changed or are due. Returns the
    /// error if that fails and has not failed before.
    fn tell(
        &mut self,
        writers: Vec<[u8; 16]>,
        readers: Vec<[u8; 16]>,
        now: Instant,
        publish: impl FnOnce(&ParticipantEntities) -> Result<(), Error>,
    ) -> Option<Error> {
        let is_due = self.is_due(now);
        let [node] = &mut *self.entities.nodes else { return None };
        if !is_due && (&node.writers, &node.readers) == (&writers, &readers) {
            return None;
        }
        (node.writers, node.readers) = (writers, readers);
        let (had_failed, error) = (self.failed.is_some(), publish(&self.entities).err());
        self.failed = error.as_ref().map(|_| now);
        error.filter(|_| !had_failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_published_is_published_later() {
        let mut told = Told::new(ParticipantEntities { participant: [1; 16], nodes: vec![NodeEntities::default()] });
        let (start, mut published) = (Instant::now(), Vec::new());
        let mut tell = |writer: u8, after: Duration, error: Option<Error>| {
            let publish = |entities: &ParticipantEntities| {
                published.extend(entities.nodes.iter().flat_map(|node| &node.writers).map(|writer| writer[0]));
                error.map_or(Ok(()), Err)
            };
            told.tell(vec![[writer; 16]], Vec::new(), start + after, publish)
        };
        assert_eq!(tell(1, Duration::ZERO, None), None);
        assert_eq!(tell(1, AGAIN, None), None, "nothing has changed");
        assert_eq!(tell(2, AGAIN, Some(Error::Expired)), Some(Error::Expired));
        assert_eq!(tell(2, 3 * AGAIN / 2, None), None, "it is not due yet");
        assert_eq!(tell(2, 2 * AGAIN, Some(Error::Expired)), None, "it was reported");
        assert_eq!(tell(2, 3 * AGAIN, None), None);
        assert_eq!(tell(2, 9 * AGAIN, None), None, "it is published");
        assert_eq!(tell(3, 9 * AGAIN, Some(Error::Expired)), Some(Error::Expired));
        assert_eq!(published, [1, 2, 2, 2, 3]);
    }
}
