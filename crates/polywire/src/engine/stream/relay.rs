//! The channels of a port, its own and those that it relays between its links.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::{Answer, Frame, FrameError, Start},
};

use super::{
    Role, Shared,
    fetches::{Answered, Fetches},
    link::Link,
    lock,
};
use crate::engine::{EngineError, Event, LinkId, LinkInfo};

/// What a writer hears whose channel is not relayed.
const NOT_RELAYED: &str = "the node that relays has no room for this channel: other nodes need theirs, or there are more than one link can have";

/// What a port announces to its links.
#[derive(Default)]
pub(super) struct Channels {
    last: u32,
    open: BTreeMap<ChannelId, Open>,
    fetches: Fetches,
    /// Channels that were not passed on.
    withheld: u64,
}

struct Open {
    announcement: Announcement,
    start: Start,
    /// The link that announced it, and under which id; none for our own.
    origin: Option<(LinkId, ChannelId)>,
    /// What our own sink said to a relayed one.
    here: Option<Answer>,
    answers: BTreeMap<LinkId, Answer>,
    told: Option<Answer>,
}

/// The port's channels for those that a link announced.
#[derive(Default)]
pub(super) struct Relayed(BTreeMap<ChannelId, ChannelId>);

impl Relayed {
    pub(super) fn insert(&mut self, theirs: ChannelId, ours: ChannelId) {
        self.0.insert(theirs, ours);
    }

    pub(super) fn remove(&mut self, theirs: ChannelId) -> Option<ChannelId> {
        self.0.remove(&theirs)
    }

    #[inline]
    pub(super) fn get(&self, theirs: ChannelId) -> Option<ChannelId> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&theirs).copied()
    }
}

impl Shared {
    /// Of ports that decide by themselves, the one that listens.
    pub(super) fn relays(&self) -> bool {
        self.role == Role::Either && self.listens.load(Ordering::Acquire)
    }

    /// Opens a channel and announces it to every link but its origin. If there are as many as a
    /// link may have, one of the link that announced the most makes room, unless the newcomer's
    /// has announced as many.
    pub(super) fn open_channel(
        &self,
        origin: Option<(LinkId, ChannelId)>,
        announcement: &Announcement,
        start: Start,
    ) -> Result<ChannelId, EngineError> {
        let limits = &self.local.options.limits;
        check_fits(announcement, start, limits)?;
        let mut channels = lock(&self.channels);
        if self.stop.is_set() {
            return Err(EngineError::Closed);
        }
        let displaced = match channels.open.len() >= limits.channels {
            true => Some(channels.make_room(origin, limits.channels)?),
            false => None,
        };
        channels.last += 1;
        let channel = ChannelId(channels.last);
        if let Some((gone, _)) = &displaced {
            self.links().iter().for_each(|link| link.outbox.retire(*gone));
        }
        let links = self.links();
        let others = links.iter().filter(|link| origin.is_none_or(|(from, _)| from != link.info.id));
        let without = others.filter_map(|link| Some((link, link.outbox.announce(channel, start, announcement).err()?)));
        let without: Vec<_> = without.map(|(link, error)| (link.info.clone(), error.to_string())).collect();
        let open = Open {
            announcement: announcement.clone(),
            start,
            origin,
            here: None,
            answers: BTreeMap::new(),
            told: None,
        };
        channels.open.insert(channel, open);
        drop(channels);
        if let Some((_, open)) = displaced {
            self.tell_displaced(&open);
        }
        without.iter().for_each(|(link, error)| self.withhold(link, &announcement.topic, error));
        Ok(channel)
    }

    /// Counts a channel that is not passed on, and tells of it, ever more rarely.
    pub(super) fn withhold(&self, link: &LinkInfo, topic: &str, reason: &str) {
        let total = {
            let mut channels = lock(&self.channels);
            channels.withheld += 1;
            channels.withheld
        };
        if total.is_power_of_two() {
            let (link, topic, reason) = (link.clone(), topic.to_owned(), reason.to_owned());
            self.sink.event(Event::Withheld { link, topic, reason, total });
        }
    }

    /// A relayed channel had to make room: its writer hears that only this node has it now.
    fn tell_displaced(&self, open: &Open) {
        let Some((link, channel)) = open.origin else { return };
        if let Some(answer) = &open.here {
            self.control(link, &Frame::Answer { channel, answer: unrelayed(answer) });
        }
        if let Some(origin) = self.links().iter().find(|other| other.info.id == link) {
            self.withhold(&origin.info, &open.announcement.topic, NOT_RELAYED);
        }
    }

    pub(super) fn retire_channel(&self, channel: ChannelId) {
        let mut channels = lock(&self.channels);
        channels.open.remove(&channel);
        for link in self.links().iter() {
            link.outbox.retire(channel);
        }
    }

    /// A link is ready: it hears of every channel, and gets messages from here on.
    pub(super) fn join_links(&self, link: &Arc<Link>) {
        let channels = lock(&self.channels);
        let mut without = Vec::new();
        for (channel, open) in &channels.open {
            if let Err(error) = link.outbox.announce(*channel, open.start, &open.announcement) {
                without.push((open.announcement.topic.clone(), error.to_string()));
            }
        }
        self.replace_links(|links| links.push(link.clone()));
        drop(channels);
        without.iter().for_each(|(topic, error)| self.withhold(&link.info, topic, error));
    }

    /// A link is gone, and with it what it announced and answered.
    pub(super) fn leave_links(&self, link: &Arc<Link>) {
        let id = link.info.id;
        let mut channels = lock(&self.channels);
        self.replace_links(|links| links.retain(|other| other.info.id != id));
        let ended = |open: &Open| open.origin.is_some_and(|(from, _)| from == id);
        let gone: Vec<_> = channels.open.extract_if(.., |_, open| ended(open)).map(|(channel, _)| channel).collect();
        for (channel, other) in gone.iter().flat_map(|channel| self.links().to_vec().into_iter().map(|l| (*channel, l)))
        {
            other.outbox.retire(channel);
        }
        for open in channels.open.values_mut() {
            if open.answers.remove(&id).is_some() {
                self.answer_origin(open, false);
            }
        }
        let Channels { open, fetches, .. } = &mut *channels;
        for (document, answered) in fetches.leave(id, |document| sources(open, document)) {
            self.pass_on(document, None, answered);
        }
    }

    fn replace_links(&self, change: impl FnOnce(&mut Vec<Arc<Link>>)) {
        let mut links = self.links.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut changed = (**links).clone();
        change(&mut changed);
        *links = Arc::new(changed);
    }

    /// Our own sink's word on a channel of a link.
    pub(super) fn answer_here(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        if !self.relays() {
            return self.control(link, &Frame::Answer { channel, answer });
        }
        let mut channels = lock(&self.channels);
        match channels.open.values_mut().find(|open| open.origin == Some((link, channel))) {
            Some(open) => {
                open.here = Some(answer.lasting(open.here.as_ref()));
                self.answer_origin(open, matches!(answer, Answer::Renew(_)));
            }
            None => self.control(link, &Frame::Answer { channel, answer: unrelayed(&answer) }),
        }
    }

    /// A link's word on one of the port's channels. False if the channel is our own.
    pub(super) fn answered_there(&self, link: LinkId, channel: ChannelId, answer: &Answer) -> bool {
        let mut channels = lock(&self.channels);
        let Some(open) = channels.open.get_mut(&channel) else { return false };
        open.answers.insert(link, answer.lasting(open.answers.get(&link)));
        if open.origin.is_none() {
            return false;
        }
        self.answer_origin(open, matches!(answer, Answer::Renew(_)));
        true
    }

    /// Tells the origin what all behind this port say together, and that one of them asks for a key
    /// frame.
    fn answer_origin(&self, open: &mut Open, renew: bool) {
        let Some((link, channel)) = open.origin else { return };
        let others = self.links().iter().filter(|other| other.info.id != link).count();
        let Some(all) = together(open, others) else { return };
        let answer = |answer: &Answer| self.control(link, &Frame::Answer { channel, answer: answer.clone() });
        if open.told.as_ref() != Some(&all) && !(renew && matches!(all, Answer::Accept(_))) {
            answer(&all);
        }
        if renew {
            answer(&Answer::Renew(all.subscribers()));
        }
        open.told = Some(all);
    }

    /// Tells the other links what one lost.
    pub(super) fn relay_loss(&self, channel: ChannelId, start: Start, lost: u64, from: LinkId) {
        for link in self.links().iter().filter(|link| link.info.id != from && lost > 0) {
            link.outbox.lose(channel, start, lost);
        }
    }

    /// Asks links that relayed channels came from for a document that `link` wants. False if there
    /// is none to ask.
    pub(super) fn want_elsewhere(&self, link: LinkId, document: Id128) -> bool {
        if !self.relays() {
            return false;
        }
        let mut channels = lock(&self.channels);
        let Channels { open, fetches, .. } = &mut *channels;
        let most = self.local.options.limits.pending_documents;
        let Some(wanted) = fetches.want(document, link, most, || sources(open, document)) else { return false };
        if let Some(forgotten) = wanted.forgotten {
            self.control(link, &Frame::Document { document: forgotten, bytes: None });
        }
        wanted.ask.iter().for_each(|source| self.control(*source, &Frame::Want { document }));
        true
    }

    /// Passes a document on to the links that wait for it, if `from` was asked for it and it is the
    /// one.
    pub(super) fn supply_elsewhere(&self, from: LinkId, document: Id128, bytes: Option<&[u8]>) {
        if !self.relays() {
            return;
        }
        let mut channels = lock(&self.channels);
        let Channels { open, fetches, .. } = &mut *channels;
        if !fetches.is_asked(document, from) {
            return;
        }
        let bytes = bytes.filter(|bytes| Id128::of_document(bytes) == document);
        let answered = fetches.answered(document, from, bytes.is_some(), || sources(open, document));
        self.pass_on(document, bytes, answered);
    }

    fn pass_on(&self, document: Id128, bytes: Option<&[u8]>, answered: Answered) {
        match answered {
            Answered::Ask(source) => self.control(source, &Frame::Want { document }),
            Answered::Give(waiting) => {
                waiting.iter().for_each(|link| self.control(*link, &Frame::Document { document, bytes }));
            }
            Answered::Wait => {}
        }
    }
}

impl Channels {
    /// Takes out the newest channel of the link that announced the most. An error if the newcomer's
    /// link has announced as many, but for this one.
    fn make_room(
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
        let newest = newest.map(|(channel, _)| *channel).and_then(|channel| self.open.remove_entry(&channel));
        newest.ok_or(EngineError::Frame(FrameError::TooManyChannels { limit }))
    }
}

/// The links that announced a channel with this document, the oldest channel first.
fn sources(open: &BTreeMap<ChannelId, Open>, document: Id128) -> Vec<LinkId> {
    let named = document.to_string();
    // A dictionary's hash stands in the compressor's text.
    let has =
        |a: &Announcement| a.schema == document || a.configuration == Some(document) || a.compressor.contains(&named);
    open.values().filter(|open| has(&open.announcement)).filter_map(|open| Some(open.origin?.0)).collect()
}

/// What the writer of a channel that is not relayed hears of what the node here says.
fn unrelayed(here: &Answer) -> Answer {
    match here {
        Answer::Accept(count) | Answer::Renew(count) => Answer::Partial(*count, NOT_RELAYED.into()),
        Answer::Decline => Answer::Refuse(NOT_RELAYED.into()),
        other => other.clone(),
    }
}

fn check_fits(
    announcement: &Announcement,
    start: Start,
    limits: &polywire_core::frame::Limits,
) -> Result<(), EngineError> {
    let mut probe = polywire_core::frame::StreamEncoder::new(*limits);
    probe.announce(announcement, start, &mut Vec::new())?;
    Ok(())
}

/// What the sink here and `others` links say; none while it depends on one that has not answered.
fn together(open: &Open, others: usize) -> Option<Answer> {
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
