//! The messages that foreign subscribers have missed, and when they are reported.

use std::time::{Duration, Instant};

use super::super::{Event, LinkId, LinkInfo, Principal};

/// The minimum time between two reports of dropped messages.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Drops {
    link: LinkInfo,
    /// The topic of the last dropped message.
    topic: String,
    unreported: u64,
    reported_at: Option<Instant>,
}

impl Drops {
    pub(super) fn new() -> Drops {
        let link = LinkInfo {
            id: LinkId::next(),
            peer: Default::default(),
            address: "subscribers that are no nodes".into(),
            principal: Principal::Anonymous,
        };
        Drops { link, topic: String::new(), unreported: 0, reported_at: None }
    }

    /// Counts a dropped message of a topic.
    pub(super) fn count(&mut self, topic: &str) {
        self.unreported += 1;
        topic.clone_into(&mut self.topic);
    }

    /// Returns the event that is due: at the first drop, then at most once per [`REPORT_INTERVAL`].
    /// ZeroMQ does not say when a subscriber has caught up, so the last drops are due after that
    /// time, too.
    pub(super) fn notice(&mut self, now: Instant) -> Option<Event> {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < REPORT_INTERVAL;
        if self.unreported == 0 || self.reported_at.is_some_and(is_recent) {
            return None;
        }
        self.reported_at = Some(now);
        self.rest()
    }

    /// Returns the event for everything that was not reported yet.
    pub(super) fn rest(&mut self) -> Option<Event> {
        let count = std::mem::take(&mut self.unreported);
        (count > 0).then(|| Event::Dropped { link: self.link.clone(), topic: self.topic.clone(), count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_reported_at_once_and_then_once_a_second() {
        let reported = |event: Option<Event>| match event {
            Some(Event::Dropped { topic, count, .. }) => Some((topic, count)),
            _ => None,
        };
        let (mut drops, now) = (Drops::new(), Instant::now());
        assert_eq!(reported(drops.notice(now)), None);
        drops.count("a");
        assert_eq!(reported(drops.notice(now)), Some(("a".into(), 1)));
        drops.count("a");
        drops.count("b");
        assert_eq!(reported(drops.notice(now + REPORT_INTERVAL / 2)), None);
        assert_eq!(reported(drops.notice(now + REPORT_INTERVAL)), Some(("b".into(), 2)), "without another drop");
        assert_eq!(reported(drops.notice(now + 2 * REPORT_INTERVAL)), None);
        drops.count("c");
        assert_eq!(reported(drops.rest()), Some(("c".into(), 1)));
        assert_eq!(reported(drops.rest()), None);
    }
}
