//! The state of this node's channels with regard to one peer: announced, answered, retired.

use alloc::{string::String, sync::Arc};
use core::time::Duration;

use super::{Carrier, Due, News, Session, Timer};
use crate::{
    envelope::{Announcement, ChannelId},
    frame::{Answer, Start},
};

/// A channel of ours.
#[derive(Debug, Default)]
pub(super) struct Local {
    /// `None` if the peer's answer came before [`Session::announce`]: the carrier announces the
    /// channel by itself, and the answer may come first.
    pub(super) offered: Option<(Start, Arc<Announcement>)>,
    /// The peer's answer that is in force.
    pub(super) answer: Option<Answer>,
    /// The peer asked for a key frame since the last event.
    key_requested: bool,
    /// The peer's reason for refusing, since the last event.
    incompatible: Option<String>,
    /// The last pause before the announcement was repeated.
    pause: Option<Duration>,
}

/// A retirement that is repeated.
#[derive(Debug)]
pub(super) struct Retiring {
    left: u32,
    pause: Duration,
}

impl Session {
    /// Announces a channel to the peer. Ids ascend and are not used again.
    pub fn announce(&mut self, channel: ChannelId, start: Start, announcement: &Arc<Announcement>, now: Duration) {
        self.newest = self.newest.max(channel);
        self.unannounced.remove(&channel);
        let local = self.local.entry(channel).or_default();
        local.offered = Some((start, announcement.clone()));
        self.outputs.push(Due::Announce(channel));
        self.announce_later(channel, now);
    }

    /// Ends a channel of ours.
    pub fn retire(&mut self, channel: ChannelId, now: Duration) {
        if self.local.remove(&channel).is_none() {
            return;
        }
        self.unannounced.remove(&channel);
        self.timers.clear(Timer::Announce(channel));
        let unsent = self.outputs.remove(Due::Announce(channel));
        self.events.remove(News::Matched(channel));
        match &self.carrier {
            Carrier::Reliable if unsent => {}
            Carrier::Reliable => self.outputs.push(Due::Retire(channel)),
            Carrier::Lossy(repeat) => {
                self.outputs.push(Due::Retire(channel));
                if repeat.retirements > 1 && self.retiring.len() < self.limits.channels {
                    let pause = repeat.after(None);
                    self.retiring.insert(channel, Retiring { left: repeat.retirements - 1, pause });
                    self.timers.set(Timer::Retire(channel), now.saturating_add(pause));
                }
            }
        }
    }

    /// The peer's answer to a channel of this node. [`Event::Matched`](super::Event::Matched)
    /// follows.
    ///
    /// A reliable carrier may announce a channel by itself, and bring the answer before the
    /// application calls [`Session::announce`]. So an answer to an unknown channel is kept until
    /// then, or until [`Session::retire`] or [`Session::forget_unannounced`].
    pub fn handle_answer(&mut self, channel: ChannelId, answer: &Answer) {
        let lossy = self.is_lossy();
        if !self.local.contains_key(&channel) {
            match lossy {
                false if self.local.len() < self.limits.channels => {}
                true if channel <= self.newest => return self.retire_stray(channel),
                _ => return,
            }
            self.unannounced.insert(channel);
        }
        let local = self.local.entry(channel).or_default();
        let before = local.answer.as_ref();
        let lasting = answer.lasting(before);
        let requests_key =
            matches!(answer, Answer::Renew(_)) || (answer.accepts() && !before.is_some_and(Answer::accepts));
        if lossy && !requests_key && before == Some(&lasting) {
            return;
        }
        local.key_requested |= requests_key;
        if let Some(reason) = answer.reason() {
            local.incompatible = Some(reason.into());
        }
        local.answer = Some(lasting);
        self.events.push(News::Matched(channel));
    }

    /// Drops answers to channels that were never announced. Call it when no announcement is in
    /// progress.
    ///
    /// ```
    /// use polywire_core::{envelope::ChannelId, frame::Answer};
    /// use polywire_core::session::{Budget, Carrier, Limits, Session};
    /// let mut session = Session::new(Limits::default(), Carrier::Reliable, Budget::new(0));
    /// session.handle_answer(ChannelId(1), &Answer::Accept(1));
    /// assert!(session.answer(ChannelId(1)).is_some());
    /// session.forget_unannounced();
    /// assert_eq!(session.answer(ChannelId(1)), None);
    /// ```
    pub fn forget_unannounced(&mut self) {
        while let Some(channel) = self.unannounced.pop_first() {
            self.local.remove(&channel);
        }
    }

    /// The peer's last answer to a channel of this node. `None` before the first.
    pub fn answer(&self, channel: ChannelId) -> Option<&Answer> {
        self.local.get(&channel)?.answer.as_ref()
    }

    pub(super) fn announce_again(&mut self, channel: ChannelId, now: Duration) {
        self.outputs.push(Due::Announce(channel));
        self.announce_later(channel, now);
    }

    pub(super) fn retire_again(&mut self, channel: ChannelId, now: Duration) {
        let (Carrier::Lossy(repeat), Some(retiring)) = (&self.carrier, self.retiring.get_mut(&channel)) else { return };
        self.outputs.push(Due::Retire(channel));
        retiring.left -= 1;
        if retiring.left == 0 {
            self.retiring.remove(&channel);
            return;
        }
        retiring.pause = repeat.after(Some(retiring.pause));
        self.timers.set(Timer::Retire(channel), now.saturating_add(retiring.pause));
    }

    /// The peer has restarted: it knows no channel of this node and has answered none.
    pub(super) fn announce_all(&mut self, now: Duration) {
        let Session { local, outputs, events, .. } = self;
        for (id, channel) in local.iter_mut() {
            channel.pause = None;
            if channel.answer.take().is_some() {
                (channel.key_requested, channel.incompatible) = (false, None);
                events.push(News::Matched(*id));
            }
            outputs.push(Due::Announce(*id));
        }
        let ids: alloc::vec::Vec<ChannelId> = local.keys().copied().collect();
        ids.into_iter().for_each(|id| self.announce_later(id, now));
    }

    pub(super) fn take_match(&mut self, channel: ChannelId) -> Option<super::Event> {
        let local = self.local.get_mut(&channel)?;
        Some(super::Event::Matched {
            channel,
            answer: local.answer.clone(),
            key_requested: core::mem::take(&mut local.key_requested),
            incompatible: local.incompatible.take(),
        })
    }

    fn announce_later(&mut self, channel: ChannelId, now: Duration) {
        let (Carrier::Lossy(repeat), Some(local)) = (&self.carrier, self.local.get_mut(&channel)) else { return };
        let pause = repeat.after(local.pause);
        local.pause = Some(pause);
        self.timers.set(Timer::Announce(channel), now.saturating_add(pause));
    }

    /// The peer still holds a channel that has retired: it missed the retirement.
    fn retire_stray(&mut self, channel: ChannelId) {
        if self.outputs.len() < self.limits.stray_outputs.saturating_add(self.own_outputs()) {
            self.outputs.push(Due::Retire(channel));
        }
    }
}
