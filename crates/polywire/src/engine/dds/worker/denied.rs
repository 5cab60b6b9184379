//! The worker's part for writers and readers that DDS Security keeps apart. DDS does not report
//! them: they discover each other, but do not match. So a pair that should match, and has not
//! matched for [`PATIENCE`], counts as denied until it matches.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId},
    frame::Start,
    qos::{Offer, compatible, partitions_match},
};
use polywire_dds::{Endpoint, Guid};

use super::{
    super::{
        super::late,
        deferred::Task,
        peer::{Link, ReadEnd},
        policies,
        state::Channel,
    },
    Worker,
};

/// How long a writer and a reader that have discovered each other may take to match.
const PATIENCE: Duration = Duration::from_secs(5);

/// The interval between checks whether writers and readers match.
const LOOK: Duration = Duration::from_secs(1);

/// The reason why a reader of another program gets no messages.
pub(in super::super) const NOT_ALLOWED: &str =
    "DDS Security does not let it read the topic: its permissions do not allow it, or its governance is another one";

/// The reason why a subscriber of this node gets no messages.
const KEPT_APART: &str = "DDS Security does not let reader and writer meet: the permissions of one of them do not \
                          allow it, or their governance differs";

/// The pairs that are denied, and those that may be.
#[derive(Default)]
pub(super) struct Denied {
    looked: Option<Instant>,
    /// Readers of programs that do not match a channel of this node, and since when.
    readers: BTreeMap<(ChannelId, Guid), Instant>,
    /// Channels of peers whose writers do not match the readers here, and since when.
    writers: BTreeMap<(Guid, ChannelId), Instant>,
    /// Channels of peers that this node may not read, which was reported to it, each with its
    /// writer and the reader here. The reader stays, in case they match later.
    apart: BTreeMap<(Guid, ChannelId), (Guid, Arc<ReadEnd>)>,
}

impl Worker {
    /// Reports pairs that do not match, and withdraws the report for pairs that match after all.
    pub(super) fn look_for_denied(&mut self) {
        let now = Instant::now();
        if !self.shared.is_secure || self.denied.looked.is_some_and(|looked| now - looked < LOOK) {
            return;
        }
        self.denied.looked = Some(now);
        // The functions below call the node, which needs the turn.
        let shared = self.shared.clone();
        let _turn = shared.inlet.dispatch();
        self.look_for_readers(now);
        self.look_for_writers(now);
        self.reconcile();
    }

    fn look_for_readers(&mut self, now: Instant) {
        let channels: Vec<Arc<Channel>> = self.shared.state.lock().channels.values().cloned().collect();
        let pairs = channels.iter().flat_map(|channel| {
            let unmatched = self.unmatched(channel).into_iter().filter(|reader| self.should_match(channel, reader));
            unmatched.map(move |reader| ((channel.id, reader.guid), (channel, reader.participant)))
        });
        let pairs: BTreeMap<(ChannelId, Guid), (&Arc<Channel>, Guid)> = pairs.collect();
        let late = late_ones(&mut self.denied.readers, pairs.keys().copied(), now);
        let told = std::mem::replace(&mut self.shared.state.lock().denied, late.clone());
        for (channel, participant) in late.difference(&told).filter_map(|pair| pairs.get(pair)) {
            self.refuse_for(channel, *participant, NOT_ALLOWED.into());
        }
    }

    /// Checks whether the policies and the representation of a reader fit a channel. DDS itself
    /// reports types that do not match.
    fn should_match(&self, channel: &Channel, reader: &Endpoint) -> bool {
        let (offer, options) = (&channel.announcement.offer, &self.shared.options);
        let offered = policies::qos_of(&policies::of_writer(offer, late::DEFAULT_DEPTH, options));
        let (requested, takes) = (policies::requested(&reader.qos), &reader.qos.representations);
        let is_refused = self.mismatched.has_told(channel.id, reader.guid);
        partitions_match(&offered, &requested)
            && compatible(&offered, &requested).is_ok()
            && (takes.is_empty() || takes.contains(&channel.form.representation()))
            && !is_refused
    }

    fn look_for_writers(&mut self, now: Instant) {
        let waiting: Vec<((Guid, ChannelId), Guid, Arc<ReadEnd>)> = {
            let state = self.shared.state.lock();
            let all = state.peers.iter().flat_map(|(guid, peer)| peer.incoming.iter().map(move |it| (*guid, it)));
            all.filter_map(|(guid, (channel, incoming))| {
                let end = incoming.reading.as_ref()?.reader.clone()?;
                let is_own = Offer::parse(&incoming.announcement.offer).is_ok_and(|offer| !offer.is_auxiliary());
                is_own.then_some(((guid, *channel), incoming.writer?, end))
            })
            .collect()
        };
        let waiting: BTreeMap<(Guid, ChannelId), (Guid, Arc<ReadEnd>)> = waiting
            .into_iter()
            .filter(|(_, writer, end)| !end.reader.writers().contains(writer))
            .map(|(channel, writer, end)| (channel, (writer, end)))
            .collect();
        for late in late_ones(&mut self.denied.writers, waiting.keys().copied(), now) {
            if let Some((writer, end)) = waiting.get(&late) {
                self.denied.apart.insert(late, (*writer, end.clone()));
                self.deny(late.0, late.1, KEPT_APART);
            }
        }
    }

    /// Replaces the announcement of a peer's channel that this node may not read by a denial. The
    /// node then answers with the reason.
    pub(super) fn deny(&self, guid: Guid, channel: ChannelId, reason: &str) {
        if let Some((link, start, announcement)) = self.announcement(guid, channel) {
            link.sink.retired(channel);
            link.sink.announced(channel, start, &announcement.denied(reason));
        }
    }

    /// Announces denied channels again if they match after all, and forgets those that have gone.
    fn reconcile(&mut self) {
        for ((guid, channel), (writer, end)) in std::mem::take(&mut self.denied.apart) {
            match self.announcement(guid, channel) {
                Some(_) if !end.reader.writers().contains(&writer) => {
                    self.denied.apart.insert((guid, channel), (writer, end));
                    continue;
                }
                Some((link, start, announcement)) => {
                    link.sink.retired(channel);
                    link.sink.announced(channel, start, &announcement);
                }
                None => {}
            }
            self.shared.deferred.add(Task::Leave(end));
        }
    }

    fn announcement(&self, guid: Guid, channel: ChannelId) -> Option<(Arc<Link>, Start, Arc<Announcement>)> {
        let state = self.shared.state.lock();
        let peer = state.peers.get(&guid)?;
        let incoming = peer.incoming.get(&channel)?;
        let start = Start { sequence: incoming.position, timestamp_ns: 0 };
        Some((peer.link.clone()?, start, incoming.announcement.clone()))
    }
}

/// Returns the present keys that have been there for [`PATIENCE`]. `since` has the time since when
/// each key is present; the times of absent keys are removed.
fn late_ones<K: Ord + Copy>(
    since: &mut BTreeMap<K, Instant>,
    present: impl Iterator<Item = K>,
    now: Instant,
) -> BTreeSet<K> {
    let before = std::mem::take(since);
    since.extend(present.map(|key| (key, before.get(&key).copied().unwrap_or(now))));
    since.iter().filter(|(_, since)| now.saturating_duration_since(**since) >= PATIENCE).map(|(key, _)| *key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_too_long_are_late_until_they_go() {
        let (mut since, start) = (BTreeMap::new(), Instant::now());
        let mut late = |present: &[u32], after: Duration| -> Vec<u32> {
            late_ones(&mut since, present.iter().copied(), start + after).into_iter().collect()
        };
        assert_eq!((late(&[1], Duration::ZERO), late(&[1, 2], PATIENCE / 2)), (vec![], vec![]));
        assert_eq!((late(&[1, 2], PATIENCE), late(&[2], PATIENCE)), (vec![1], vec![]));
        assert_eq!(late(&[1, 2], 2 * PATIENCE), [2], "the other one has come again");
    }
}
