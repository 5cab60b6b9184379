//! The messages that foreign subscribers have missed, and when they are reported.

use std::time::{Duration, Instant};

use super::super::{Event, LinkId, LinkInfo, Principal};

/// The minimum time between two reports of dropped messages.
const TELL_AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Drops {
    link: LinkInfo,
    /// The topic of the last dropped message.
    topic: String,
    untold: u64,
    told: Option<Instant>,
}

impl Drops {
    pub(super) fn new() -> Drops {
        let link = LinkInfo {
            id: LinkId::next(),
            peer: Default::default(),
            address: "subscribers that are no nodes".into(),
            principal: Principal::Anonymous,
        };
        Drops { link, topic: String::new(), untold: 0, told: None }
    }

    /// Counts a dropped message of a topic.
    pub(super) fn count(&mut self, topic: &str) {
        self.untold += 1;
        topic.clone_into(&mut self.topic);
    }

    /// Returns the event that is due: at the first drop, then at most once per [`TELL_AGAIN`].
    /// ZeroMQ does not say when a subscriber has caught up, so the last drops are due after that
    /// time, too.
    pub(super) fn notice(&mut self, now: Instant) -> Option<Event> {
        let is_recent = |told: Instant| now.saturating_duration_since(told) < TELL_AGAIN;
        if self.untold == 0 || self.told.is_some_and(is_recent) {
            return None;
        }
        self.told = Some(now);
        self.rest()
    }

    /// Returns the event for everything that was not reported yet.
    pub(super) fn rest(&mut self) -> Option<Event> {
        let count = std::mem::take(&mut self.untold);
        (count > 0).then(|| Event::Dropped { link: self.link.clone(), topic: self.topic.clone(), count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_reported_at_once_and_then_once_a_second() {
        let told = |event: Option<Event>| match event {
            Some(Event::Dropped { topic, count, .. }) => Some((topic, count)),
            _ => None,
        };
        let (mut drops, now) = (Drops::new(), Instant::now());
        assert_eq!(told(drops.notice(now)), None);
        drops.count("a");
        assert_eq!(told(drops.notice(now)), Some(("a".into(), 1)));
        drops.count("a");
        drops.count("b");
        assert_eq!(told(drops.notice(now + TELL_AGAIN / 2)), None);
        assert_eq!(told(drops.notice(now + TELL_AGAIN)), Some(("b".into(), 2)), "without another drop");
        assert_eq!(told(drops.notice(now + 2 * TELL_AGAIN)), None);
        drops.count("c");
        assert_eq!(told(drops.rest()), Some(("c".into(), 1)));
        assert_eq!(told(drops.rest()), None);
    }
}
