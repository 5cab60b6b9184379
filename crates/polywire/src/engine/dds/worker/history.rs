//! The worker's part for early samples and histories: samples of writers whose channels the node
//! has not answered yet, and samples that writers keep for late subscribers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use polywire_core::envelope::{ChannelId, Envelope, Id128};
use polywire_dds::{Guid, Sample};

use super::{
    super::{
        super::{Aligned, LinkId},
        deferred::Task,
        dispatch::Dispatch,
        form,
        kept::Replay,
        keys::payload,
        peer::{EndId, Link},
    },
    Worker,
};
use crate::replayed::{Part, begin, bring};

impl Worker {
    /// Checks whether the node has yet to answer the channel of this writer. False for writers of
    /// nodes. Also notes that a declined channel has missed a sample.
    pub(super) fn is_early(&self, writer: Guid) -> bool {
        let mut state = self.shared.state.lock();
        let peer = state.peers.get_mut(&writer.participant()).filter(|peer| peer.node.is_none());
        let Some(peer) = peer else { return false };
        let Some(incoming) = peer.by_writer.get(&writer).and_then(|channel| peer.incoming.get_mut(channel)) else {
            return true;
        };
        incoming.has_missed |= incoming.is_answered && incoming.reading.is_none();
        !incoming.is_answered
    }

    /// Passes on the samples that arrived before the node accepted a channel.
    pub(super) fn take_early(&mut self, dispatch: &mut Dispatch, guid: Guid, channel: ChannelId) {
        let (writer, end, samples) = {
            let mut state = self.shared.state.lock();
            let Some(incoming) = state.incoming(guid, channel) else { return };
            let (Some(writer), Some(reading)) = (incoming.writer, &incoming.reading) else { return };
            let mut early = self.early.take(writer);
            let Some(end) = reading.reader.as_ref().map(|end| end.id) else { return };
            // If the writer keeps samples, a new reader gets them again. Otherwise, only other
            // readers of the topic may have received the early samples.
            let others = |early: BTreeMap<EndId, VecDeque<Sample>>| early.into_values().max_by_key(VecDeque::len);
            let is_volatile = incoming.history.is_none();
            let samples = early.remove(&end).or_else(|| others(early).filter(|_| is_volatile));
            (writer, end, samples.unwrap_or_default())
        };
        samples.into_iter().for_each(|sample| self.arrived(dispatch, end, writer, sample));
    }

    /// Discards the early samples of a channel that the node does not want.
    pub(super) fn drop_early(&mut self, guid: Guid, channel: ChannelId) {
        let mut state = self.shared.state.lock();
        if let Some(incoming) = state.incoming(guid, channel)
            && let Some(writer) = incoming.writer
        {
            incoming.has_missed |= !self.early.take(writer).is_empty();
        }
    }

    /// Returns the writer whose history a channel carries. `None` if it is not a history channel.
    pub(super) fn history_of(&self, link: LinkId, channel: ChannelId) -> Option<Guid> {
        self.shared.state.lock().peer_of(link)?.1.incoming.get(&channel)?.history_of
    }

    /// Handles the node's answer to a history channel: begins, repeats or ends the writer's replay.
    pub(super) fn history_answered(
        &mut self,
        dispatch: &mut Dispatch,
        writer: Guid,
        history: ChannelId,
        accepts: bool,
    ) {
        let runs = self.replays.iter_mut().find(|replay| replay.writer == writer);
        match (runs, accepts) {
            (Some(replay), true) => replay.again = true,
            (None, true) => self.begin_replay(dispatch, writer, history),
            (_, false) => self.end_replays(|replay| replay.writer == writer),
        }
    }

    fn begin_replay(&mut self, dispatch: &mut Dispatch, writer: Guid, history: ChannelId) {
        self.send_history(writer, history, |link, last, id| {
            begin(last, id, |sequence, part| send(link, &Envelope::data(history, sequence, 0), part, &[]));
        });
        let last = dispatch.route(writer).map_or(0, |route| route.place.last);
        let mut replay = Replay::new(writer, history, last, self.shared.options.queue_bytes);
        if last == 0 && !self.has_missed(writer) {
            // The channel itself will still deliver everything that the writer keeps.
            return self.deliver_history(dispatch, &replay);
        }
        let endpoint = self.shared.state.lock().writers.get(&writer).cloned();
        let Some(endpoint) = endpoint else { return };
        match self.open_reader(&endpoint, EndId::next(), replay.taker()) {
            Ok(end) => {
                replay.reader = Some(end);
                self.replays.push(replay);
            }
            Err(error) => log::warn!("{}: cannot read '{}': {error}", self.shared.endpoint, endpoint.topic),
        }
    }

    /// Checks whether messages of a writer arrived while the node did not want them, or the node
    /// does not want them now.
    fn has_missed(&self, writer: Guid) -> bool {
        let state = self.shared.state.lock();
        let incoming = state.peers.get(&writer.participant()).and_then(|peer| {
            let channel = peer.by_writer.get(&writer)?;
            peer.incoming.get(channel)
        });
        incoming.is_none_or(|incoming| incoming.has_missed || incoming.reading.is_none())
    }

    /// Passes on the samples of the replays that are complete.
    pub(super) fn replay(&mut self, dispatch: &mut Dispatch) {
        if self.replays.is_empty() {
            return;
        }
        let now = Instant::now();
        let complete: Vec<Replay> = self.replays.extract_if(.., |replay| replay.is_complete(now)).collect();
        for mut replay in complete {
            self.deliver_history(dispatch, &replay);
            replay.reader.take().into_iter().for_each(|end| self.shared.deferred.add(Task::Leave(end)));
            if replay.again {
                self.begin_replay(dispatch, replay.writer, replay.history);
            }
        }
    }

    /// Passes the samples of a replay to the node, on the history channel, and ends the replay.
    fn deliver_history(&mut self, dispatch: &Dispatch, replay: &Replay) {
        let Replay { writer, history, .. } = *replay;
        let route = dispatch.route(writer);
        let samples = replay.samples(route.map_or(u64::MAX, |route| route.place.last));
        let keys = route.and_then(|route| route.keys.as_ref());
        self.send_history(writer, history, |link, last, _| {
            bring(last, samples, |sequence, part, sample: Option<Sample>| {
                let blank = Envelope::data(history, sequence, 0);
                let envelope = sample.as_ref().map_or(blank, |sample| form::of_sample(sample, blank));
                let payload = sample.map(|sample| payload(keys, &sample)).unwrap_or_default();
                send(link, &envelope, part, &payload);
            });
        });
    }

    /// Calls `send` to pass messages of a history channel to the node. It gets the link, the number
    /// of the channel's last message, which it counts on, and the id of the channel's writer.
    fn send_history(&mut self, writer: Guid, history: ChannelId, send: impl FnOnce(&Link, &mut u64, Id128)) {
        let (link, id, mut last) = {
            let mut state = self.shared.state.lock();
            let Some(peer) = state.peers.get_mut(&writer.participant()) else { return };
            let (link, incoming) = (peer.link.clone(), peer.incoming.get(&history));
            let (Some(link), Some(incoming)) = (link, incoming) else { return };
            (link, incoming.announcement.writer, incoming.position)
        };
        send(&link, &mut last, id);
        if let Some(incoming) = self.shared.state.lock().incoming(writer.participant(), history) {
            incoming.position = last;
        }
        self.touch(&link);
    }

    /// Retires the history channel of a writer that has gone.
    pub(super) fn forget_history(&mut self, link: &Arc<Link>, writer: Guid, history: ChannelId) {
        self.end_replays(|replay| replay.writer == writer);
        if let Some(peer) = self.shared.state.lock().peers.get_mut(&writer.participant()) {
            peer.incoming.remove(&history);
        }
        link.sink.retired(history);
    }

    pub(super) fn end_replays(&mut self, ends: impl Fn(&Replay) -> bool) {
        let ended: Vec<Replay> = self.replays.extract_if(.., |replay| ends(replay)).collect();
        let readers = ended.into_iter().filter_map(|replay| replay.reader);
        readers.for_each(|end| self.shared.deferred.add(Task::Leave(end)));
    }
}

/// Passes a message of a history channel to the node.
fn send(link: &Link, envelope: &Envelope<'_>, part: Part<'_>, payload: &[u8]) {
    let extensions = part.extension();
    let envelope = Envelope { extensions: extensions.as_extensions(), ..*envelope };
    link.sink.message(&envelope, Aligned::default().place(payload));
}
