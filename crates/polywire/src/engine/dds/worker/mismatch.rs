//! The worker's part for readers of programs that are not nodes and do not match a channel, and the
//! reasons that are reported to the node.

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

/// Readers that do not match these channels, and whose types are looked up to find the reason.
#[derive(Default)]
pub(super) struct Mismatched {
    lookups: Lookups,
    channels: BTreeMap<Guid, BTreeSet<ChannelId>>,
    /// Pairs that DDS has reported as incompatible. Filled only with DDS Security.
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

    /// Checks whether DDS has reported that a reader does not match a channel.
    pub(super) fn has_told(&self, channel: ChannelId, reader: Guid) -> bool {
        self.told.contains(&(reader, channel))
    }
}

impl Worker {
    /// Handles a report that a reader of a channel's topic does not match because of a policy. DDS
    /// does not report which reader, so the policy counts for all readers that do not match.
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

    /// Reports why readers do not match, for readers whose type lookups have ended.
    pub(super) fn report_mismatches(&mut self) {
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

    /// Returns why a reader of this type cannot read a channel's type, if the reason can be found.
    fn why_not(&self, channel: &Channel, reader: &Known) -> Option<String> {
        let document = self.shared.sink.document(channel.announcement.schema)?;
        let writer = Schema::from_bytes(&document, &SchemaLimits::default()).ok()?;
        // For a service, only the types of the values are compared: the types around them differ
        // equally.
        let values = reader.of_values().filter(|_| channel.id_codec.is_some());
        values.as_ref().unwrap_or(reader).why_not(&writer)
    }

    /// Returns other programs' readers that have a channel's topic and type but do not match it.
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

    /// Reports to the node that a participant's reader requests something else than a channel
    /// offers.
    fn refuse(&self, channel: &Channel, participant: Guid, policy: u32, why: &str) {
        let colon = if why.is_empty() { "" } else { ": " };
        let hint = match policy {
            TYPE_CONSISTENCY => "; with types=off in the address, types are compared by their names",
            _ => "",
        };
        self.refuse_for(channel, participant, format!("it requests another {}{colon}{why}{hint}", policy_name(policy)));
    }

    /// Reports to the node why a participant's reader does not match a channel.
    pub(super) fn refuse_for(&self, channel: &Channel, participant: Guid, reason: String) {
        let Some(link) = self.foreign_link(participant) else { return };
        channel.sending.lock().interest.entry(link.info.id).or_insert((link.clone(), Interest::Unwanted));
        link.sink.answered(channel.id, &Answer::Refuse(reason));
    }
}
