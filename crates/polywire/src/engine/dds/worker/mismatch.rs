//! The worker's part for readers of programs that are not nodes and do not match a channel, and the
//! reasons that both sides are told.

use std::collections::{BTreeMap, BTreeSet};

use polywire_core::{
    envelope::ChannelId,
    frame::Answer,
    schema::{Schema, SchemaLimits},
};
use polywire_dds::{Endpoint, Guid};

use super::{
    super::{
        peer::Interest,
        policies::{TYPE_CONSISTENCY, policy_name},
        state::Channel,
        types::{Known, Lookups},
    },
    Worker,
};

/// Readers whose types are looked up, to say why they do not match these channels.
#[derive(Default)]
pub(super) struct Mismatched {
    lookups: Lookups,
    channels: BTreeMap<Guid, BTreeSet<ChannelId>>,
    /// Those of which DDS has told, with DDS Security.
    told: BTreeSet<(Guid, ChannelId)>,
}

impl Mismatched {
    pub(super) fn is_empty(&self) -> bool {
        self.lookups.is_empty()
    }

    pub(super) fn forget(&mut self, reader: Guid) {
        self.lookups.forget(reader);
        self.channels.remove(&reader);
        self.told.retain(|(of, _)| *of != reader);
    }

    /// Whether DDS has told that a reader does not match a channel.
    pub(super) fn has_told(&self, channel: ChannelId, reader: Guid) -> bool {
        self.told.contains(&(reader, channel))
    }
}

impl Worker {
    /// A reader of a channel's topic does not match because of a policy. DDS does not say which
    /// reader.
    pub(super) fn incompatible(&mut self, id: ChannelId, policy: u32) {
        let Some(channel) = self.channel(id) else { return };
        for reader in self.unmatched(&channel) {
            if self.shared.is_secure {
                self.mismatched.told.insert((reader.guid, id));
            }
            if policy == TYPE_CONSISTENCY && self.shared.types && reader.types.is_some() {
                self.mismatched.lookups.begin(&reader);
                self.mismatched.channels.entry(reader.guid).or_default().insert(id);
            } else {
                self.refuse(&channel, reader.participant, policy, "");
            }
        }
    }

    /// Says why readers whose types have come do not match.
    pub(super) fn tell_mismatches(&mut self) {
        let participants = self.mismatched.lookups.participants().collect();
        for (reader, found) in self.mismatched.lookups.take(&self.shared.us, true, &participants) {
            let known = found.ok().flatten();
            for id in self.mismatched.channels.remove(&reader.guid).unwrap_or_default() {
                let Some(channel) = self.channel(id) else { continue };
                let why = known.as_ref().and_then(|known| self.why_not(&channel, known));
                self.refuse(&channel, reader.participant, TYPE_CONSISTENCY, &why.unwrap_or_default());
            }
        }
    }

    /// Why a reader's type cannot be read from a channel's, if that can be told.
    fn why_not(&self, channel: &Channel, reader: &Known) -> Option<String> {
        let document = self.shared.sink.document(channel.announcement.schema)?;
        let writer = Schema::from_bytes(&document, &SchemaLimits::default()).ok()?;
        // What is around the values of a service has the same differences.
        let values = reader.of_values().filter(|_| channel.call.is_some());
        values.as_ref().unwrap_or(reader).why_not(&writer)
    }

    /// Readers of a channel's topic and type that it does not have.
    pub(super) fn unmatched(&self, channel: &Channel) -> Vec<Endpoint> {
        let matched: BTreeSet<Guid> = channel.writer.readers().into_iter().collect();
        let state = self.shared.state.lock();
        let is_foreign = |guid: &Guid| state.peers.get(guid).is_some_and(|peer| peer.node.is_none());
        let is_unmatched = |reader: &&Endpoint| {
            (&reader.topic, &reader.type_name) == (&channel.topic, &channel.type_name)
                && !matched.contains(&reader.guid)
                && is_foreign(&reader.participant)
        };
        state.readers.values().filter(is_unmatched).cloned().collect()
    }

    /// Tells the node that a participant's reader requests something else than a channel offers.
    fn refuse(&self, channel: &Channel, participant: Guid, policy: u32, why: &str) {
        let colon = if why.is_empty() { "" } else { ": " };
        let hint = match policy {
            TYPE_CONSISTENCY => "; with types=off in the address, types are compared by their names",
            _ => "",
        };
        self.refuse_for(channel, participant, format!("it requests another {}{colon}{why}{hint}", policy_name(policy)));
    }

    /// Tells the node why a participant's reader does not have a channel.
    pub(super) fn refuse_for(&self, channel: &Channel, participant: Guid, reason: String) {
        let Some(link) = self.foreign_link(participant) else { return };
        channel.sending.lock().interest.entry(link.info.id).or_insert((link.clone(), Interest::Unwanted));
        link.sink.answered(channel.id, &Answer::Refuse(reason));
    }
}
