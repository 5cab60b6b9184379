//! The channels of a port: its own, and those of its links that it relays to the others. A table
//! under the port's lock; it does no I/O.

use std::collections::BTreeMap;

use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::{Answer, FrameError, Start},
};

use super::fetches::Fetches;
use crate::engine::{EngineError, LinkId};

/// Reason for the writer of a channel that is not relayed.
pub(super) const NOT_RELAYED: &str =
    "the relay has reached its limit of channels, and no other node has more of them than this one";

/// The channels that a port announces to its links.
#[derive(Default)]
pub(super) struct Channels {
    pub(super) last: u32,
    pub(super) open: BTreeMap<ChannelId, Open>,
    /// The relayed channels in `open`, by origin.
    by_origin: BTreeMap<(LinkId, ChannelId), ChannelId>,
    pub(super) fetches: Fetches,
    /// Channels that were not announced to a link, or not relayed.
    pub(super) withheld: u64,
}

/// An open channel.
pub(super) struct Open {
    pub(super) announcement: Announcement,
    pub(super) start: Start,
    /// The link that announced the channel, and the link's id for it; `None` for the port's own
    /// channel.
    pub(super) origin: Option<(LinkId, ChannelId)>,
    /// The answer of this node to a relayed channel.
    pub(super) here: Option<Answer>,
    /// The answers of the links.
    pub(super) answers: BTreeMap<LinkId, Answer>,
    /// The last answer that was sent to the origin.
    pub(super) told: Option<Answer>,
}

/// The port's channel for each relayed channel of one link.
#[derive(Default)]
pub(super) struct RelayedChannels(BTreeMap<ChannelId, ChannelId>);

impl RelayedChannels {
    pub(super) fn insert(&mut self, theirs: ChannelId, ours: ChannelId) {
        self.0.insert(theirs, ours);
    }

    pub(super) fn remove(&mut self, theirs: ChannelId) -> Option<ChannelId> {
        self.0.remove(&theirs)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn get(&self, theirs: ChannelId) -> Option<ChannelId> {
        self.0.get(&theirs).copied()
    }
}

impl Channels {
    pub(super) fn insert(&mut self, channel: ChannelId, open: Open) {
        self.by_origin.extend(open.origin.map(|origin| (origin, channel)));
        self.open.insert(channel, open);
    }

    pub(super) fn remove(&mut self, channel: ChannelId) -> Option<Open> {
        let open = self.open.remove(&channel)?;
        // The link may have announced another channel with this id meanwhile.
        let is_it = |origin: &_| self.by_origin.get(origin) == Some(&channel);
        if let Some(origin) = open.origin.filter(is_it) {
            self.by_origin.remove(&origin);
        }
        Some(open)
    }

    /// Returns the channel that a link announced with this id.
    pub(super) fn of_origin(&mut self, link: LinkId, theirs: ChannelId) -> Option<&mut Open> {
        self.open.get_mut(self.by_origin.get(&(link, theirs))?)
    }

    /// Returns the channels that a link announced.
    pub(super) fn of_link(&self, link: LinkId) -> Vec<ChannelId> {
        let all = (link, ChannelId(0))..=(link, ChannelId(u32::MAX));
        self.by_origin.range(all).map(|(_, channel)| *channel).collect()
    }

    /// Removes and returns the newest channel of the link that announced the most. Fails if the
    /// link of the new channel would then have as many.
    pub(super) fn make_room(
        &mut self,
        newcomer: Option<(LinkId, ChannelId)>,
        limit: usize,
    ) -> Result<(ChannelId, Open), EngineError> {
        let mut counts: BTreeMap<LinkId, usize> = BTreeMap::new();
        let origins = self.open.values().filter_map(|open| open.origin);
        origins.for_each(|(link, _)| *counts.entry(link).or_default() += 1);
        let own = newcomer.and_then(|(link, _)| counts.get(&link)).map_or(0, |own| *own + 1);
        let most = counts.iter().max_by_key(|(_, count)| **count).filter(|(_, count)| **count > own);
        let from = most.map(|(link, _)| *link);
        let newest = self.open.iter().rfind(|(_, open)| from.is_some() && open.origin.map(|(link, _)| link) == from);
        let newest = newest.map(|(channel, _)| *channel).and_then(|channel| Some((channel, self.remove(channel)?)));
        newest.ok_or(EngineError::Frame(FrameError::TooManyChannels { limit }))
    }
}

/// Returns the links that announced a channel with this document, in the order of their oldest
/// channels.
pub(super) fn sources(open: &BTreeMap<ChannelId, Open>, document: Id128) -> Vec<LinkId> {
    let named = document.to_string();
    // The announced compressor names its dictionary by hash.
    let has =
        |a: &Announcement| a.schema == document || a.configuration == Some(document) || a.compressor.contains(&named);
    open.values().filter(|open| has(&open.announcement)).filter_map(|open| Some(open.origin?.0)).collect()
}

/// Returns the answer to a channel that is not relayed: this node's own, marked as such.
pub(super) fn unrelayed(here: &Answer) -> Answer {
    match here {
        Answer::Accept(count) | Answer::Renew(count) => Answer::Partial(*count, NOT_RELAYED.into()),
        Answer::Decline => Answer::Refuse(NOT_RELAYED.into()),
        other => other.clone(),
    }
}

/// Returns the joint answer of this node and of `others` links; `None` while it depends on a link
/// that has not answered.
pub(super) fn together(open: &Open, others: usize) -> Option<Answer> {
    let all = || open.here.iter().chain(open.answers.values());
    let reason = all().find_map(Answer::reason).map(str::to_owned);
    if all().any(Answer::accepts) {
        let count = all().fold(0, |sum: u32, answer| sum.saturating_add(answer.subscribers()));
        return Some(match reason {
            Some(reason) => Answer::Partial(count, reason),
            None => Answer::Accept(count),
        });
    }
    if open.here.is_none() || open.answers.len() < others {
        return None;
    }
    Some(reason.map_or(Answer::Decline, Answer::Refuse))
}
