//! Channels, answers and documents of a port: it announces its own channels to its links, and
//! relays those of one link to the others if it is the listening port of [`Role::Either`].

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::{Answer, Frame, Limits, Start, StreamEncoder},
};

use super::{
    channels::{Channels, NOT_RELAYED, Open, sources, together, unrelayed},
    fetches::Answered,
    link::Link,
    shared::{PeerSource, Shared},
    transport::Role,
};
use crate::engine::{EngineError, Event, LinkId, LinkInfo};

impl Shared {
    /// Returns whether this port relays: it listens, and with [`Role::Either`].
    pub(super) fn relays(&self) -> bool {
        matches!(self.peer_source, PeerSource::One(_, Role::Either)) && self.listens.load(Ordering::Acquire)
    }

    /// Opens a channel and announces it to every link but its origin. A port has at most as many
    /// channels as a link may have. When it is full, a channel of the link that announced the most
    /// is removed. Fails if the link of the new channel would then have as many as that link.
    pub(super) fn open_channel(
        &self,
        origin: Option<(LinkId, ChannelId)>,
        announcement: &Announcement,
        start: Start,
    ) -> Result<ChannelId, EngineError> {
        let limits = &self.local.options.limits;
        check_fits(announcement, start, limits)?;
        let mut channels = self.channels.lock();
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
        let (mut without, mut answers) = (Vec::new(), BTreeMap::new());
        for link in self.links().iter().filter(|link| origin.is_none_or(|(from, _)| from != link.info.id)) {
            match link.announce(channel, start, announcement) {
                Ok(true) => {}
                // The answer of a link that may not subscribe is not waited for.
                Ok(false) => _ = answers.insert(link.info.id, Answer::Decline),
                Err(error) => without.push((link.info.clone(), error.to_string())),
            }
        }
        let open = Open { announcement: announcement.clone(), start, origin, here: None, answers, told: None };
        channels.insert(channel, open);
        drop(channels);
        if let Some((_, open)) = displaced {
            self.tell_displaced(&open);
        }
        without.iter().for_each(|(link, error)| self.withhold(link, &announcement.topic, error));
        Ok(channel)
    }

    /// Counts a channel that was not announced to a peer, or not relayed. Reports the event for the
    /// 1st, 2nd, 4th, 8th, ... such channel.
    pub(super) fn withhold(&self, link: &LinkInfo, topic: &str, reason: &str) {
        let total = {
            let mut channels = self.channels.lock();
            channels.withheld += 1;
            channels.withheld
        };
        if total.is_power_of_two() {
            let (link, topic, reason) = (link.clone(), topic.to_owned(), reason.to_owned());
            self.sink.event(Event::Withheld { link, topic, reason, total });
        }
    }

    /// Reports to the origin of a relayed channel, which was removed to make room, that only this
    /// node receives the channel now.
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
        let mut channels = self.channels.lock();
        channels.remove(channel);
        for link in self.links().iter() {
            link.outbox.retire(channel);
        }
    }

    /// Adds a link and announces every channel to it. The link gets the messages that are published
    /// after the announcement.
    pub(super) fn join_links(&self, link: &Arc<Link>) {
        let mut channels = self.channels.lock();
        self.replace_links(|links| links.push(link.clone()));
        let mut without = Vec::new();
        for (channel, open) in &mut channels.open {
            match link.announce(*channel, open.start, &open.announcement) {
                Ok(true) => {}
                Ok(false) => _ = open.answers.insert(link.info.id, Answer::Decline),
                Err(error) => without.push((open.announcement.topic.clone(), error.to_string())),
            }
        }
        drop(channels);
        without.iter().for_each(|(topic, error)| self.withhold(&link.info, topic, error));
    }

    /// Removes a link, with its channels and its answers.
    pub(super) fn leave_links(&self, link: &Arc<Link>) {
        let id = link.info.id;
        let mut channels = self.channels.lock();
        self.replace_links(|links| links.retain(|other| other.info.id != id));
        for channel in channels.of_link(id) {
            channels.remove(channel);
            self.links().iter().for_each(|other| other.outbox.retire(channel));
        }
        // While the port closes, its links end one after the other. Publishers must not believe
        // that their subscribers have left: they would retain nothing for them until the next
        // relay.
        let is_closing = self.stop.is_set();
        for open in channels.open.values_mut().filter(|_| !is_closing) {
            // If this link was the last that had not answered, the joint answer is complete now.
            open.answers.remove(&id);
            self.answer_origin(open, false);
        }
        let Channels { open, fetches, .. } = &mut *channels;
        for (document, answered) in fetches.leave(id, |document| sources(open, document)) {
            self.pass_on(document, None, answered);
        }
    }

    fn replace_links(&self, change: impl FnOnce(&mut Vec<Arc<Link>>)) {
        let mut changed = Vec::clone(&self.links());
        change(&mut changed);
        self.links.store(Arc::new(changed));
    }

    /// Sends this node's answer to a channel of a link; if the port relays, as part of the joint
    /// answer.
    pub(super) fn answer_here(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        if !self.relays() {
            return self.control(link, &Frame::Answer { channel, answer });
        }
        let mut channels = self.channels.lock();
        match channels.of_origin(link, channel) {
            Some(open) => {
                open.here = Some(answer.lasting(open.here.as_ref()));
                self.answer_origin(open, matches!(answer, Answer::Renew(_)));
            }
            None => self.control(link, &Frame::Answer { channel, answer: unrelayed(&answer) }),
        }
    }

    /// Notes a link's answer to one of the port's channels. Returns false if the channel is not
    /// relayed, but the port's own.
    pub(super) fn answered_there(&self, link: LinkId, channel: ChannelId, answer: &Answer) -> bool {
        let mut channels = self.channels.lock();
        let Some(open) = channels.open.get_mut(&channel) else { return false };
        open.answers.insert(link, answer.lasting(open.answers.get(&link)));
        if open.origin.is_none() {
            return false;
        }
        self.answer_origin(open, matches!(answer, Answer::Renew(_)));
        true
    }

    /// Sends the origin the joint answer of all nodes behind this port, if it has changed; with
    /// `renew`, also requests a key frame for one of them.
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

    /// Reports to the other links that `lost` messages up to `start` were dropped before they
    /// reached this node.
    pub(super) fn relay_loss(&self, channel: ChannelId, start: Start, lost: u64, from: LinkId) {
        for link in self.links().iter().filter(|link| link.info.id != from && lost > 0) {
            link.outbox.lose(channel, start, lost);
        }
    }

    /// Requests a document for `link` from the other links that announced it. Returns false if
    /// there are none, or if the port does not relay.
    pub(super) fn want_elsewhere(&self, link: LinkId, document: Id128) -> bool {
        if !self.relays() {
            return false;
        }
        let mut channels = self.channels.lock();
        let Channels { open, fetches, .. } = &mut *channels;
        let most = self.local.options.limits.pending_documents;
        let Some(wanted) = fetches.want(document, link, most, || sources(open, document)) else { return false };
        if let Some(forgotten) = wanted.forgotten {
            self.control(link, &Frame::Document { document: forgotten, bytes: None });
        }
        wanted.ask.iter().for_each(|source| self.control(*source, &Frame::Want { document }));
        true
    }

    /// Passes a document on to the links that wait for it. Ignores it unless `from` was asked for
    /// it; bytes with another hash count as no document.
    pub(super) fn supply_elsewhere(&self, from: LinkId, document: Id128, bytes: Option<&[u8]>) {
        if !self.relays() {
            return;
        }
        let mut channels = self.channels.lock();
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

/// Fails if the announcement is too large to be sent.
fn check_fits(announcement: &Announcement, start: Start, limits: &Limits) -> Result<(), EngineError> {
    let mut probe = StreamEncoder::new(*limits);
    probe.announce(announcement, start, &mut Vec::new())?;
    Ok(())
}
