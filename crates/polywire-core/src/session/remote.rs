//! The peer's channels: announced, decided by the application, answered, renewed, closed.

use alloc::{
    string::{String, ToString as _},
    sync::Arc,
};
use core::time::Duration;

use super::{Carrier, Due, Exceeded, News, Session, Timer, documents, key::KeyWait, limits::Share};
use crate::{
    envelope::{Announcement, ChannelId, Id128},
    frame::Answer,
    frame::Start,
};

/// The application's decision on a channel of the peer.
///
/// ```
/// use polywire_core::session::Decision;
/// let decision = Decision { readers: 2, incompatible: None, needs_key_frame: false };
/// assert_eq!(Decision { readers: 0, ..decision }, Decision::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision<'a> {
    /// Subscribers that read the channel.
    pub readers: u32,
    /// Why another subscriber cannot, if there is one.
    pub incompatible: Option<&'a str>,
    /// Whether a reader can read nothing before a key frame, and none was requested for it yet.
    pub needs_key_frame: bool,
}

/// A channel that the peer announced.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) announcement: Arc<Announcement>,
    start: Start,
    _share: Share,
    /// The last answer. `None` before the first decision.
    told: Option<Answer>,
    readers: u32,
    key: KeyWait,
    /// The document that the channel waits for.
    pub(super) fetching: Option<Id128>,
    /// Why no document will come.
    pub(super) unfetched: Option<String>,
    /// The reason in `unfetched` is that the document did not come in time.
    pub(super) is_late: bool,
    /// The late document is asked for again when a reader needs it.
    pub(super) asks_again: bool,
    /// Earlier refusals are void: a document came that they lacked.
    pub(super) anew: bool,
}

impl Session {
    /// The peer announced a channel, or announced it again. [`Event::Decide`](super::Event::Decide)
    /// follows for a new one. Fails if the channel exceeds a limit; the caller then says so with
    /// [`Session::refuse`].
    pub fn handle_announce(
        &mut self,
        channel: ChannelId,
        start: Start,
        announcement: &Announcement,
        now: Duration,
    ) -> Result<(), Exceeded> {
        if let Some(known) = self.remote.get(&channel) {
            if self.is_lossy() && *known.announcement == *announcement {
                self.announced_again(channel, now);
                return Ok(());
            }
            self.close_remote(channel);
        }
        if self.remote.len() + self.closed >= self.limits.channels {
            return Err(Exceeded::Channels { limit: self.limits.channels });
        }
        let remote = Remote {
            _share: self.budget.reserve(held_bytes(announcement))?,
            announcement: Arc::new(announcement.clone()),
            start,
            told: None,
            readers: 0,
            key: KeyWait::default(),
            fetching: None,
            unfetched: None,
            is_late: false,
            asks_again: false,
            anew: false,
        };
        self.remote.insert(channel, remote);
        self.topics.insert((announcement.topic.clone(), channel));
        self.name(channel, documents(announcement));
        self.events.push(News::Decide(channel));
        self.renew_lease(channel, now);
        Ok(())
    }

    /// The peer's channel has ended.
    pub fn handle_retire(&mut self, channel: ChannelId) {
        self.close_remote(channel);
    }

    /// Refuses a channel that is not held.
    ///
    /// ```
    /// use polywire_core::{envelope::ChannelId, frame::Answer};
    /// use polywire_core::session::{Budget, Carrier, Limits, Output, Session};
    /// let mut session = Session::new(Limits::default(), Carrier::default(), Budget::new(0));
    /// let announced = session.handle_announce(ChannelId(1), Default::default(), &Default::default(), Default::default());
    /// session.refuse(ChannelId(1), &announced.unwrap_err().to_string());
    /// assert!(matches!(session.poll_output(), Some(Output::Answer { answer: Answer::Refuse(_), .. })));
    /// ```
    pub fn refuse(&mut self, channel: ChannelId, reason: &str) {
        if self.rejected.len() < self.limits.stray_outputs {
            self.rejected.insert(channel, self.cut(reason));
            self.outputs.push(Due::Reject(channel));
        }
    }

    /// Subscribers came or went, or the application's documents changed: decide again on these
    /// channels. A document that did not come in time may be fetched again.
    pub fn reconsider(&mut self, which: impl Fn(&Announcement) -> bool) {
        for (id, channel) in self.remote.iter_mut().filter(|(_, channel)| which(&channel.announcement)) {
            channel.asks_again = channel.is_late;
            self.events.push(News::Decide(*id));
        }
    }

    /// As [`Session::reconsider`], for channels of one topic. Looks at no other channel.
    ///
    /// ```
    /// use std::time::Duration;
    /// use polywire_core::{envelope::{Announcement, ChannelId}, frame::Start};
    /// use polywire_core::session::{Budget, Carrier, Event, Limits, Session};
    /// let mut session = Session::new(Limits::default(), Carrier::default(), Budget::new(1 << 20));
    /// for (channel, topic) in [(ChannelId(1), "pumps"), (ChannelId(2), "valves")] {
    ///     let announcement = Announcement { topic: topic.into(), ..Announcement::default() };
    ///     session.handle_announce(channel, Start::default(), &announcement, Duration::ZERO).unwrap();
    ///     session.poll_event();
    /// }
    /// session.reconsider_topic("valves", |announcement| announcement.offer.is_empty());
    /// assert_eq!(session.poll_event(), Some(Event::Decide { channel: ChannelId(2), anew: false }));
    /// assert_eq!(session.poll_event(), None);
    /// ```
    pub fn reconsider_topic(&mut self, topic: &str, which: impl Fn(&Announcement) -> bool) {
        let Session { topics, remote, events, .. } = self;
        let all = (topic.into(), ChannelId(0))..=(topic.into(), ChannelId(u32::MAX));
        for (_, id) in topics.range::<(String, ChannelId), _>(all) {
            if let Some(channel) = remote.get_mut(id).filter(|channel| which(&channel.announcement)) {
                channel.asks_again = channel.is_late;
                events.push(News::Decide(*id));
            }
        }
    }

    /// The peer's announcement of a channel, if it is open.
    pub fn announcement(&self, channel: ChannelId) -> Option<&Arc<Announcement>> {
        self.remote.get(&channel).map(|known| &known.announcement)
    }

    /// The writer's position when the channel was announced.
    pub fn start(&self, channel: ChannelId) -> Option<Start> {
        self.remote.get(&channel).map(|known| known.start)
    }

    /// The peer's open channels, in ascending order.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelId, &Arc<Announcement>)> {
        self.remote.iter().map(|(id, channel)| (*id, &channel.announcement))
    }

    /// The application has decided on a channel. Sends the peer an answer if it has changed. False
    /// if the channel has closed meanwhile.
    pub fn settle(&mut self, channel: ChannelId, decision: Decision<'_>, now: Duration) -> bool {
        let reason = decision.incompatible.map(|reason| self.cut(reason));
        let Some(known) = self.remote.get_mut(&channel) else { return false };
        let answer = match (decision.readers, reason) {
            (0, None) => Answer::Decline,
            (0, Some(reason)) => Answer::Refuse(reason),
            (count, None) => Answer::Accept(count),
            (count, Some(reason)) => Answer::Partial(count, reason),
        };
        // A request for a key frame implies that all can read the channel, unless the peer knows
        // that some cannot.
        let knows_refusal = matches!(known.told, Some(Answer::Partial(..)));
        let told_by_request = decision.needs_key_frame && matches!(answer, Answer::Accept(_)) && !knows_refusal;
        if known.told.as_ref() != Some(&answer) && !told_by_request {
            self.outputs.push(Due::Answer(channel));
        }
        if decision.needs_key_frame {
            known.key = KeyWait::default();
            known.key.take(now, &self.limits);
            self.outputs.push(Due::Renew(channel));
        }
        (known.told, known.readers) = (Some(answer), decision.readers);
        true
    }

    /// A reader of the channel cannot continue without a key frame. Requests one, unless a request
    /// was sent just now. Called again with each message that cannot be read. True if there is an
    /// output now.
    pub fn request_key(&mut self, channel: ChannelId, now: Duration) -> bool {
        let due = self.remote.get_mut(&channel).is_some_and(|known| known.key.take(now, &self.limits));
        if due {
            self.outputs.push(Due::Renew(channel));
        }
        due
    }

    /// All readers of the channel have their key frame.
    pub fn key_arrived(&mut self, channel: ChannelId) {
        if let Some(known) = self.remote.get_mut(&channel) {
            known.key = KeyWait::default();
        }
    }

    pub(super) fn close_remote(&mut self, channel: ChannelId) {
        let Some(known) = self.remote.remove(&channel) else { return };
        self.topics.remove(&(known.announcement.topic.clone(), channel));
        self.unname(channel, documents(&known.announcement), known.fetching);
        self.timers.clear(Timer::Fetch(channel));
        self.timers.clear(Timer::Lease(channel));
        self.events.remove(News::Decide(channel));
        self.events.push(News::Closed(channel));
        self.closed += 1;
        drop(known);
    }

    pub(super) fn answer_of(&self, channel: ChannelId) -> Option<Answer> {
        self.remote.get(&channel)?.told.clone()
    }

    pub(super) fn renewal_of(&self, channel: ChannelId) -> Option<Answer> {
        let known = self.remote.get(&channel).filter(|known| known.readers > 0)?;
        Some(Answer::Renew(known.readers))
    }

    /// The peer does not know our answer, or repeats its heartbeat.
    fn announced_again(&mut self, channel: ChannelId, now: Duration) {
        self.renew_lease(channel, now);
        let Some(known) = self.remote.get_mut(&channel) else { return };
        // The peer lives: it may have the document now, or the way there and back may work.
        if known.unfetched.take().is_some() {
            known.anew = true;
            self.events.push(News::Decide(channel));
        }
        if known.told.is_some() {
            self.outputs.push(Due::Answer(channel));
            if known.key.is_open() {
                self.outputs.push(Due::Renew(channel));
            }
        }
    }

    fn renew_lease(&mut self, channel: ChannelId, now: Duration) {
        if let Carrier::Lossy(repeat) = &self.carrier {
            self.timers.set(Timer::Lease(channel), now.saturating_add(repeat.lease));
        }
    }

    fn cut(&self, reason: &str) -> String {
        let longest = reason.len().min(self.limits.refusal_bytes);
        let end = (0..=longest).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
        reason.get(..end).unwrap_or_default().to_string()
    }
}

/// The part of the budget that an announcement uses.
fn held_bytes(a: &Announcement) -> usize {
    let texts = [&a.topic, &a.type_name, &a.codec, &a.options, &a.compressor];
    // The table of topics has another copy of the name. The tables of documents have the three that
    // may be named, and the one that is awaited.
    let index = size_of::<(String, ChannelId)>() + a.topic.len() + 4 * size_of::<(Id128, ChannelId)>();
    let own = size_of::<Remote>() + size_of::<Announcement>() + a.offer.len() + index;
    own + texts.iter().map(|text| text.len()).sum::<usize>()
}
