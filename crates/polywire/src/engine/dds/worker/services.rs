//! The worker's part for services of ROS 2 and DDS-RPC: the types of requests and replies, and
//! whether servers have matched this node.

use std::{sync::Arc, time::Instant};

use polywire_core::{
    envelope::{Announcement, ChannelId},
    rpc::{Role, request_topic, service_of},
    schema::{Schema, SchemaLimits},
};
use polywire_dds::Guid;

use super::{
    super::{form::Form, name::Naming, peer::ReadEnd, rpc, service::RequestIdCodec, state::Channel, types::Known},
    Worker,
};

impl Worker {
    /// Returns the name of the value type in a DDS type, and the value type itself if it is known.
    /// `None` if the topic belongs to a service, but the DDS type is not one of DDS-RPC.
    pub(super) fn values(
        &self,
        topic: &str,
        type_name: String,
        known: Option<&Known>,
    ) -> Option<(String, Option<Known>)> {
        match known {
            _ if self.shared.naming != Naming::Rpc || service_of(topic).is_none() => Some((type_name, known.cloned())),
            Some(known) => known.of_values().map(|values| (values.name().into(), Some(values))),
            None => Some((rpc::value_name(&type_name, self.subscribed(topic).as_ref()), None)),
        }
    }

    /// Returns the type with which this node subscribes to a topic.
    fn subscribed(&self, topic: &str) -> Option<Schema> {
        Schema::from_bytes(&self.shared.sink.subscribed(topic)?, &SchemaLimits::default()).ok()
    }

    /// Checks whether a channel carries replies of a program that is not a node.
    pub(super) fn has_foreign_replies(&self, guid: Guid, channel: ChannelId) -> Option<bool> {
        let state = self.shared.state.lock();
        let peer = state.peers.get(&guid)?;
        let (_, role) = service_of(&peer.incoming.get(&channel)?.announcement.topic)?;
        Some(peer.node.is_none() && role == Role::Reply)
    }

    /// Reports to the node the servers that have had time to match this node's writer and reader.
    pub(super) fn settle(&mut self) {
        let mut settling = std::mem::take(&mut self.settling);
        let settled = settling.take(Instant::now(), |guid, channel| self.finds_server(guid, channel));
        self.settling = settling;
        for (guid, channel) in settled {
            let link = self.shared.state.lock().peers.get(&guid).and_then(|peer| peer.link.clone());
            link.into_iter().for_each(|link| link.sink.matched(channel));
        }
    }

    /// Checks whether both ends of the server that replies on a channel are matched: its writer by
    /// a reader of this node, and its reader by a writer of this node. `None` if the channel is not
    /// read.
    fn finds_server(&self, guid: Guid, channel: ChannelId) -> Option<bool> {
        let (replies, end, requests): (Guid, Arc<ReadEnd>, Vec<Arc<Channel>>) = {
            let mut state = self.shared.state.lock();
            let incoming = state.incoming(guid, channel)?;
            let end = incoming.reading.as_ref()?.reader.clone()?;
            let (writer, topic) = (incoming.writer?, request_topic(service_of(&incoming.announcement.topic)?.0));
            let requests = state.channels.values().filter(|channel| channel.announcement.topic == topic);
            (writer, end, requests.cloned().collect())
        };
        let has_reader = |channel: &Arc<Channel>| channel.writer.readers().iter().any(|it| it.participant() == guid);
        Some(end.reader.writers().contains(&replies) && requests.iter().any(has_reader))
    }

    /// Returns the type of a writer, or of this node's subscriber if the writer does not publish
    /// its type.
    pub(super) fn schema(&self, document: Option<&[u8]>, announcement: &Announcement) -> Option<Schema> {
        let told = document.map(Arc::from).or_else(|| self.shared.sink.document(announcement.schema));
        let told = told.and_then(|told: Arc<[u8]>| Schema::from_bytes(&told, &SchemaLimits::default()).ok());
        told.or_else(|| self.subscribed(&announcement.topic))
    }

    /// Returns how samples of a writer with this DDS type identify requests. The error is for
    /// people.
    pub(super) fn id_codec(
        &self,
        form: Form,
        announcement: &Announcement,
        document: Option<Arc<[u8]>>,
        type_name: &str,
    ) -> Option<Result<RequestIdCodec, String>> {
        let is_wrapped = rpc::role_of(type_name).is_some();
        let schema = is_wrapped.then(|| self.schema(document.as_deref(), announcement)).flatten();
        RequestIdCodec::new(is_wrapped, form, announcement, schema.as_ref())
    }
}
