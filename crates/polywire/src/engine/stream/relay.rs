//! The channels of a port, its own and those that it relays between its links.

use std::{collections::BTreeMap, sync::Arc};

use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::{Answer, Frame, Start},
};

use super::{Role, Shared, link::Link, lock};
use crate::engine::{EngineError, LinkId};

/// What a port announces to its links.
#[derive(Default)]
pub(super) struct Channels {
    last: u32,
    open: BTreeMap<ChannelId, Open>,
    /// Links that wait for a document which another link was asked for.
    waiting: Vec<(Id128, LinkId)>,
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
    pub(super) fn relays(&self) -> bool {
        self.role == Role::Either
    }

    /// Opens a channel and announces it to every link but its origin.
    pub(super) fn open_channel(
        &self,
        origin: Option<(LinkId, ChannelId)>,
        announcement: &Announcement,
        start: Start,
    ) -> Result<ChannelId, EngineError> {
        let mut channels = lock(&self.channels);
        if self.stop.is_set() {
            return Err(EngineError::Closed);
        }
        check_fits(announcement, start, &self.local.options.limits)?;
        channels.last += 1;
        let channel = ChannelId(channels.last);
        for link in self.links().iter().filter(|link| origin.is_none_or(|(from, _)| from != link.info.id)) {
            // A link that holds as many channels as it may goes without this one.
            let _ = link.outbox.announce(channel, start, announcement);
        }
        let open = Open {
            announcement: announcement.clone(),
            start,
            origin,
            here: None,
            answers: BTreeMap::new(),
            told: None,
        };
        channels.open.insert(channel, open);
        Ok(channel)
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
        for (channel, open) in &channels.open {
            let _ = link.outbox.announce(*channel, open.start, &open.announcement);
        }
        self.replace_links(|links| links.push(link.clone()));
    }

    /// A link is gone, and with it what it announced and answered.
    pub(super) fn leave_links(&self, link: &Arc<Link>) {
        let id = link.info.id;
        let mut channels = lock(&self.channels);
        self.replace_links(|links| links.retain(|other| other.info.id != id));
        channels.waiting.retain(|(_, waiting)| *waiting != id);
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
        if let Some(open) = channels.open.values_mut().find(|open| open.origin == Some((link, channel))) {
            open.here = Some(answer.lasting(open.here.as_ref()));
            self.answer_origin(open, answer == Answer::Renew);
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
        self.answer_origin(open, *answer == Answer::Renew);
        true
    }

    /// Tells the origin what all behind this port say together, and that one of them asks for a key frame.
    fn answer_origin(&self, open: &mut Open, renew: bool) {
        let Some((link, channel)) = open.origin else { return };
        let others = self.links().iter().filter(|other| other.info.id != link).count();
        let Some(all) = together(open, others) else { return };
        let answer = |answer: &Answer| self.control(link, &Frame::Answer { channel, answer: answer.clone() });
        if open.told.as_ref() != Some(&all) && !(renew && all == Answer::Accept) {
            answer(&all);
        }
        if renew {
            answer(&Answer::Renew);
        }
        open.told = Some(all);
    }

    /// Tells the other links what one lost.
    pub(super) fn relay_loss(&self, channel: ChannelId, start: Start, lost: u64, from: LinkId) {
        for link in self.links().iter().filter(|link| link.info.id != from && lost > 0) {
            link.outbox.lose(channel, start, lost);
        }
    }

    /// Asks the link that a relayed channel came from for a document that `link` wants. False if there is none to ask.
    pub(super) fn want_elsewhere(&self, link: LinkId, document: Id128) -> bool {
        let mut channels = lock(&self.channels);
        if !self.relays() || channels.waiting.len() >= self.local.options.limits.pending_documents {
            return false;
        }
        let named = document.to_string();
        // A dictionary's hash stands in the compressor's text.
        let has = |a: &Announcement| {
            a.schema == document || a.configuration == Some(document) || a.compressor.contains(&named)
        };
        let source = channels.open.values().filter(|open| has(&open.announcement)).filter_map(|open| open.origin);
        let Some((source, _)) = source.into_iter().find(|(source, _)| *source != link) else { return false };
        channels.waiting.push((document, link));
        self.control(source, &Frame::Want { document });
        true
    }

    /// Passes a document on to the links that wait for it.
    pub(super) fn supply_elsewhere(&self, document: Id128, bytes: Option<&[u8]>) {
        let mut channels = lock(&self.channels);
        let (served, waiting) = channels.waiting.drain(..).partition::<Vec<_>, _>(|(id, _)| *id == document);
        channels.waiting = waiting;
        for (_, link) in served {
            self.control(link, &Frame::Document { document, bytes });
        }
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
        return Some(reason.map_or(Answer::Accept, Answer::Partial));
    }
    if open.here.is_none() || open.answers.len() < others {
        return None;
    }
    Some(reason.map_or(Answer::Decline, Answer::Refuse))
}
