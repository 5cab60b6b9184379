//! Describes a port for tools: its publishers, its subscribers and its counts.

use std::{collections::BTreeMap, sync::Arc};

use polywire_core::{
    directory::{EndpointData, PublisherData, SubscriberData},
    envelope::{Announcement, ChannelId, Id128},
    qos::Offer,
};

use super::{
    port::{Answers, PortEntry},
    route::Route,
};
use crate::{
    builtin::is_builtin,
    stats::{LinkCounts, TopicStats},
};

impl PortEntry {
    pub(super) fn describe(&self) -> EndpointData {
        let links = u32::try_from(self.port().links().len()).unwrap_or(u32::MAX);
        EndpointData { endpoint: self.port().endpoint(), links }
    }

    /// The number of subscribers that accept a channel of this node, according to the peers'
    /// answers.
    pub(super) fn subscribers(&self, channel: ChannelId) -> usize {
        let answers = self.answers.lock();
        let by_link = answers.by_channel.get(&channel).map(|known| known.by_link.values());
        by_link.map_or(0, |all| all.map(|(_, answer)| answer.subscribers() as usize).sum())
    }

    /// The number of channels that the node announces on this port.
    pub(super) fn channels(&self) -> usize {
        self.answers.lock().by_channel.len()
    }

    /// Describes the publishers on this port. A publisher that is changing its format has two
    /// channels; only the newer one is described.
    pub(super) fn publishers(&self) -> Vec<PublisherData> {
        let (endpoint, answers) = (self.port().endpoint(), self.answers.lock());
        let mut by_writer: BTreeMap<Id128, PublisherData> = BTreeMap::new();
        for known in answers.by_channel.values() {
            let Some(announcement) = known.announcement().filter(|other| !is_builtin(&other.topic)) else {
                continue;
            };
            let Ok(offer) = Offer::parse(&announcement.offer) else { continue };
            if offer.is_auxiliary() || !offer.moved_to.is_empty() {
                continue;
            }
            let data = PublisherData {
                id: announcement.writer,
                topic: announcement.topic.clone(),
                type_name: announcement.type_name.clone(),
                type_hash: announcement.type_hash,
                wire: format!("{}@{endpoint}", format_of(announcement)),
                qos: offer.qos,
                accepting: known.by_link.values().filter(|(_, answer)| answer.accepts()).count() as u32,
                refusing: known.refusing.peers() as u32,
            };
            by_writer.insert(announcement.writer, data);
        }
        by_writer.into_values().collect()
    }

    /// Describes the subscribers on this port, and the writers that each of them reads or refuses.
    pub(super) fn subscribers_described(&self) -> Vec<SubscriberData> {
        let links: Vec<_> = self.links.lock().values().cloned().collect();
        let routes = self.routes.lock().all();
        let describe = |route: &Arc<dyn Route>| {
            let mut data = SubscriberData { endpoint: self.port().endpoint(), ..route.describe()? };
            links.iter().for_each(|link| link.describe_matches(route, &mut data));
            data.reads.sort_unstable();
            data.reads.dedup();
            Some(data)
        };
        routes.iter().filter(|route| !is_builtin(route.topic())).filter_map(describe).collect()
    }

    /// The counts of messages received on the open channels of peers.
    pub(super) fn received(&self) -> Vec<TopicStats> {
        let links: Vec<_> = self.links.lock().values().cloned().collect();
        links.iter().flat_map(|link| link.topic_stats()).collect()
    }

    /// The subscribers on this port. A subscriber may be on several ports.
    pub(super) fn routes_here(&self) -> Vec<Arc<dyn Route>> {
        self.routes.lock().all()
    }

    pub(super) fn link_counts(&self) -> Vec<LinkCounts> {
        let endpoint = self.port().endpoint();
        let links = self.links.lock().clone();
        let counts = |stats: crate::engine::LinkStats| {
            let received = links.get(&stats.link.id).map(|link| link.received()).unwrap_or_default();
            LinkCounts {
                endpoint: endpoint.clone(),
                address: stats.link.address,
                peer: stats.link.peer.node.0,
                sent: stats.sent,
                dropped: stats.dropped,
                queued_bytes: stats.queued_bytes as u64,
                received: received.messages,
                received_bytes: received.bytes,
                silences: stats.silences,
            }
        };
        self.port().links().into_iter().map(counts).collect()
    }
}

impl Answers {
    fn announcement(&self) -> Option<&Announcement> {
        self.offered.as_ref().map(|(_, announcement)| &**announcement)
    }
}

/// The format and compression of a channel, in the notation of a wire.
fn format_of(announcement: &Announcement) -> String {
    let Announcement { codec, options, compressor, .. } = announcement;
    let colon = if options.is_empty() { "" } else { ":" };
    let plus = if compressor.is_empty() { "" } else { "+" };
    format!("{codec}{colon}{options}{plus}{compressor}")
}
