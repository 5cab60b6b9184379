//! The worker's part for the types of other programs: types that DDS provides, and types of ROS 2,
//! which are requested from ROS 2 nodes when a subscriber needs them.

use std::{sync::Arc, time::Instant};

use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::Start,
    ros::{TypeHash, TypeName, type_query::TypeQuery},
    schema::Schema,
};
use polywire_dds::{Discovery, Endpoint, Guid};

use super::{
    super::{super::LinkId, dispatch::Dispatch, inbox::Item, questions::TypeResult, state::State, types::Known},
    Worker,
};

impl Worker {
    /// Checks whether the names of a participant's ROS 2 nodes are still unknown. Only with
    /// `ros=true`.
    pub(super) fn is_unnamed(&self, participant: Guid) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.names(participant).is_none())
    }

    pub(super) fn look_types_up(&mut self, dispatch: &mut Dispatch) {
        let is_named = |participant: &Guid| !self.is_unnamed(*participant);
        let named = self.lookups.participants().filter(is_named).collect();
        let done = self.lookups.take(&self.shared.us, self.shared.types, &named);
        for (writer, found) in done {
            if let Err(why) = &found {
                let (endpoint, Endpoint { topic, type_name, .. }) = (&self.shared.endpoint, &writer);
                log::warn!("{endpoint}: the type {type_name} of '{topic}' is compared by its name alone: {why}");
            }
            self.foreign_writer(dispatch, &writer, found.ok().flatten().as_ref());
            if self.is_answered(writer.guid).is_none() {
                self.let_go(writer.guid);
            }
        }
    }

    /// Supplies the node with the schema of a writer of a program that is not a node.
    pub(super) fn wanted(&self, link: LinkId, document: Id128) {
        let found = {
            let mut state = self.shared.state.lock();
            let Some((_, peer)) = state.peer_of(link) else { return };
            let mut known = peer.incoming.values().filter(|incoming| incoming.announcement.schema == document);
            (peer.link.clone(), known.find_map(|incoming| incoming.document.clone()))
        };
        if let (Some(link), bytes) = found {
            link.sink.supplied(document, bytes.as_deref());
        }
    }

    /// Requests the type of a ROS 2 channel, or announces the channel again if its type is known.
    pub(super) fn type_needed(&mut self, guid: Guid, channel: ChannelId, hash: TypeHash) {
        if self.shared.state.lock().types.document(&hash.to_string()).is_some() {
            return self.announce_again(guid, channel, hash);
        }
        if let Err(reason) = self.ask_for_type(guid, channel, hash) {
            self.type_received((hash, Err(reason)));
        }
    }

    fn ask_for_type(&mut self, guid: Guid, channel: ChannelId, type_hash: TypeHash) -> Result<(), String> {
        let writer = {
            let mut state = self.shared.state.lock();
            let incoming = state.incoming(guid, channel);
            let writer = incoming.and_then(|incoming| incoming.writer.or(incoming.history_of));
            writer.and_then(|writer| state.writers.get(&writer)).cloned()
        };
        let writer = writer.ok_or("its publisher has gone")?;
        let node = self.presence.as_ref().and_then(|presence| presence.node_of(guid, writer.guid));
        let node = node.ok_or("the node of its publisher is not known")?;
        let type_name = TypeName::of_dds(&writer.type_name).ok_or("its name is none of ROS 2")?.to_string();
        let asked = self.questions.ask(&self.shared, guid, &node, TypeQuery { type_name, type_hash });
        asked.map_err(|error| error.to_string())
    }

    /// Notes the type that a ROS 2 node has sent, or why there is none. Announces the channels that
    /// wait for the type again.
    pub(super) fn type_received(&mut self, (hash, result): TypeResult) {
        let reason = result.as_ref().err().cloned();
        let document = result.ok().as_ref().map(Schema::to_bytes);
        let (waiting, is_first) = self.shared.state.lock().types.learn(&hash.to_string(), document, Instant::now());
        if let Some(reason) = reason.filter(|_| is_first) {
            log::warn!("{}: the type of ROS 2 with the hash {hash} is not known: {reason}", self.shared.endpoint);
        }
        waiting.into_iter().for_each(|(guid, channel)| self.announce_again(guid, channel, hash));
    }

    /// Announces a channel again, with its type if it is known now.
    fn announce_again(&mut self, guid: Guid, channel: ChannelId, hash: TypeHash) {
        let (link, announcement) = {
            let mut state = self.shared.state.lock();
            let State { types, peers, .. } = &mut *state;
            let known = types.document(&hash.to_string()).and_then(|document| Known::of_document(document));
            let Some(peer) = peers.get_mut(&guid) else { return };
            let (link, incoming) = (peer.link.clone(), peer.incoming.get_mut(&channel));
            let (Some(link), Some(incoming)) = (link, incoming) else { return };
            if let Some(known) = known {
                let mut announcement = Announcement::clone(&incoming.announcement);
                known.describe(&mut announcement);
                (incoming.announcement, incoming.document) = (Arc::new(announcement), Some(known.document));
            }
            (link, incoming.announcement.clone())
        };
        link.sink.announced(channel, Start::default(), &announcement);
    }

    /// Returns types that could not be obtained before, and are due to be requested again.
    pub(super) fn due_types(&self) -> Vec<(String, (Guid, ChannelId))> {
        if self.presence.is_none() {
            return Vec::new();
        }
        let most = self.shared.options.limits.pending_documents;
        self.shared.state.lock().types.due(most, Instant::now())
    }

    /// Sends the questions that are due, including those for the types in `due`. Gives up questions
    /// that were not answered in time.
    pub(super) fn ask_on(&mut self, due: Vec<(String, (Guid, ChannelId))>) {
        for (hash, (guid, channel)) in due {
            if let Ok(hash) = hash.parse() {
                self.type_needed(guid, channel, hash);
            }
        }
        let failed = self.questions.keep_time(&self.shared, Instant::now());
        failed.into_iter().for_each(|result| self.type_received(result));
    }

    /// Checks whether a writer that has gone must stay until the node has answered its channel,
    /// because samples of it wait for the answer.
    pub(super) fn stays(&mut self, writer: Guid) -> bool {
        let is_answered = self.is_answered(writer).unwrap_or_else(|| !self.lookups.has(writer));
        let stays = !is_answered && self.early.has(writer);
        if stays {
            self.leaving.insert(writer);
        }
        stays
    }

    /// Ends a writer that has gone, now that none of its samples waits for an answer.
    pub(super) fn let_go(&mut self, writer: Guid) {
        if self.leaving.remove(&writer) {
            self.shared.inbox.tell(Item::Discovered(Box::new(Discovery::Gone(writer))));
        }
    }

    /// Checks whether the node has answered a writer's channel. `None` if the writer has no
    /// channel.
    fn is_answered(&self, writer: Guid) -> Option<bool> {
        let state = self.shared.state.lock();
        let peer = state.peers.get(&writer.participant())?;
        Some(peer.incoming.get(peer.by_writer.get(&writer)?)?.is_answered)
    }
}
