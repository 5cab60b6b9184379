//! The readers of programs that are not nodes, for queries about what is in the domain.
//!
//! Such a reader does not announce which writers it reads. But its policies and those of the
//! writers are known, and DDS matches them by these.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use polywire_core::{
    directory::{EndpointData, NodeData, RefusalData, SubscriberData},
    envelope::Id128,
    qos::{self, Qos},
    rpc,
};
use polywire_dds::{Endpoint, Guid, Representation, TypeInformation};

use super::{
    super::late,
    form::OCTETS,
    name::Naming,
    peer::address,
    policies, rpc as dds_rpc,
    state::{Channel, Shared, State},
    worker::NOT_ALLOWED,
};

/// The maximum number of pairs of readers and writers that are compared. Hostile programs could
/// make any number.
const PAIRS: usize = 100_000;

/// A writer of a topic.
struct Writer {
    id: Id128,
    type_name: String,
    offered: Qos,
    representation: Representation,
    types: Option<TypeInformation>,
    /// The readers that match the writer, if it is one of this node.
    has: Option<BTreeSet<Guid>>,
    /// Readers that DDS Security keeps away from it.
    denied: BTreeSet<Guid>,
}

/// Returns the participants that are not nodes and have readers, with these readers.
pub(super) fn readers(shared: &Shared) -> Vec<NodeData> {
    let (mut participants, readers, mut writers, channels) = {
        let state = shared.state.lock();
        let participants: BTreeMap<Guid, NodeData> = state
            .peers
            .iter()
            .filter(|(_, peer)| peer.node.is_none())
            .map(|(guid, peer)| (*guid, foreign_participant(shared, *guid, &peer.names)))
            .collect();
        let readers = state.readers.values().filter(|reader| participants.contains_key(&reader.participant));
        let readers: Vec<Endpoint> = readers.filter(|reader| reader.type_name != OCTETS).cloned().collect();
        (participants, readers, others(&state), state.channels.values().cloned().collect::<Vec<_>>())
    };
    for channel in channels {
        writers.entry(channel.topic.clone()).or_default().push(Writer::own(shared, &channel));
    }
    let is_call = |topic: &str| shared.naming == Naming::Rpc && rpc::service_of(topic).is_some();
    let mut pairs = 0;
    for reader in readers {
        let Some((topic, type_name)) = shared.naming.of_endpoint(&reader) else { continue };
        let mut data = SubscriberData {
            id: Id128(reader.guid.0),
            type_name: if is_call(&topic) { dds_rpc::value_name(&type_name, None) } else { type_name },
            topic,
            endpoint: shared.endpoint.clone(),
            qos: policies::requested(&reader.qos),
            ..SubscriberData::default()
        };
        for writer in writers.get(&reader.topic).into_iter().flatten() {
            pairs += 1;
            match writer.is_read_by(&reader, &data.qos) {
                _ if pairs > PAIRS => break,
                Some(Ok(())) => data.reads.push(writer.id),
                Some(Err(reason)) => data.refuses.push(RefusalData { writer: writer.id, reason }),
                None => {}
            }
        }
        participants.entry(reader.participant).and_modify(|participant| participant.subscribers.push(data));
    }
    participants.into_values().filter(|participant| !participant.subscribers.is_empty()).collect()
}

fn foreign_participant(shared: &Shared, guid: Guid, names: &str) -> NodeData {
    NodeData {
        id: Id128(guid.0),
        name: address(&shared.endpoint, names, guid),
        endpoints: vec![EndpointData { endpoint: shared.endpoint.clone(), links: 0 }],
        ..NodeData::default()
    }
}

/// Returns the writers of other participants, by their topics in DDS. Writers of nodes have the ids
/// of their publishers.
fn others(state: &State) -> BTreeMap<String, Vec<Writer>> {
    let mut writers: BTreeMap<String, Vec<Writer>> = BTreeMap::new();
    for Endpoint { guid, participant, topic, type_name, qos, types } in state.writers.values() {
        let peer = state.peers.get(participant);
        let channel = peer.and_then(|peer| peer.incoming.get(peer.by_writer.get(guid)?));
        let id = channel.map_or(Id128(guid.0), |channel| channel.announcement.writer);
        let (type_name, types, offered) = (type_name.clone(), types.clone(), policies::qos_of(qos));
        let representation = qos.representations.first().copied().unwrap_or(Representation::Xcdr1);
        let writer = Writer { id, type_name, offered, representation, types, has: None, denied: BTreeSet::new() };
        writers.entry(topic.clone()).or_default().push(writer);
    }
    writers
}

impl Writer {
    fn own(shared: &Shared, channel: &Arc<Channel>) -> Writer {
        let (id, type_name) = (channel.announcement.writer, channel.type_name.clone());
        let offered =
            policies::qos_of(&policies::of_writer(&channel.announcement.offer, late::DEFAULT_DEPTH, &shared.options));
        let representation = channel.form.representation();
        let has = Some(channel.writer.readers().into_iter().collect());
        let denied = &shared.state.lock().denied;
        let denied = denied.iter().filter(|(of, _)| *of == channel.id).map(|(_, reader)| *reader).collect();
        Writer { id, type_name, offered, representation, types: None, has, denied }
    }

    /// Checks whether a reader of the topic, which requests this QoS, matches the writer; if not,
    /// the error is the reason. `None` if that is not known, or if they have no partition in
    /// common.
    fn is_read_by(&self, reader: &Endpoint, requested: &Qos) -> Option<Result<(), String>> {
        if !qos::partitions_match(&self.offered, requested) {
            return None;
        }
        if self.type_name != reader.type_name {
            let Endpoint { type_name, .. } = reader;
            return Some(Err(format!("the writer has the type {}, the reader {type_name}", self.type_name)));
        }
        if let Err(problems) = qos::compatible(&self.offered, requested) {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Some(Err(problems.join("; ")));
        }
        let takes = &reader.qos.representations;
        // A reader that lists no representation takes XCDR version 1.
        let takes = if takes.is_empty() { &[Representation::Xcdr1][..] } else { takes };
        if !takes.contains(&self.representation) {
            return Some(Err(format!("it requests another {}", policies::policy_name(policies::DATA_REPRESENTATION))));
        }
        if self.denied.contains(&reader.guid) {
            return Some(Err(NOT_ALLOWED.into()));
        }
        let is_known = match (&self.has, &self.types, &reader.types) {
            (Some(has), ..) => has.contains(&reader.guid),
            // Types that differ may still match by the rules of XTypes, so nothing is known of
            // them.
            (None, Some(writer), Some(reader)) => writer == reader,
            _ => true,
        };
        is_known.then_some(Ok(()))
    }
}
