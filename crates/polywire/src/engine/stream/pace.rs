//! Decides when messages follow each other so closely that gathering them pays off.

use std::time::{Duration, Instant};

/// A message of a burst comes at most this long after the last write.
const CALM: Duration = Duration::from_micros(2);
/// Bound of a write's time in the average: in a longer write, the system did something else.
const LONG_WRITE: Duration = Duration::from_millis(1);

/// Recognises bursts of messages on one link. While messages are gathered, publishers do not look
/// at the clock: the flusher looks after the link from time to time.
pub(super) struct Pace {
    streak: u32,
    pub(super) gathering: bool,
    pub(super) last_written: Instant,
    /// Average time of a write.
    pub(super) write: Duration,
    /// Messages gathered since the flusher's last look.
    gathered: u32,
    /// Publishers wrote since the flusher's last look.
    written: bool,
}

impl Pace {
    pub(super) fn new() -> Self {
        let last_written = Instant::now();
        Pace { streak: 0, gathering: false, last_written, write: Duration::ZERO, gathered: 0, written: false }
    }

    /// A message comes, which is one of a round over all `links` of the port. The time, if it is to
    /// be written at once; `None` if it is gathered. Messages are gathered after `burst` in a row.
    #[inline]
    pub(super) fn at_once(&mut self, links: u32, burst: u32) -> Option<Instant> {
        if self.gathering {
            self.gathered += 1;
            return None;
        }
        self.at_once_at(Instant::now(), links, burst)
    }

    fn at_once_at(&mut self, now: Instant, links: u32, burst: u32) -> Option<Instant> {
        // The time in which the port writes to its other links is no pause of the publisher.
        let round = self.write.saturating_mul(links.saturating_sub(1).saturating_mul(2));
        let follows = now.saturating_duration_since(self.last_written) <= CALM + round;
        self.streak = if follows { self.streak + 1 } else { 0 };
        self.gathering = self.streak > burst;
        (self.gathered, self.written) = (1, false);
        (!self.gathering).then_some(now)
    }

    pub(super) fn wrote(&mut self, began: Instant, ended: Instant) {
        self.last_written = ended;
        self.written = true;
        self.write = (self.write * 7 + ended.saturating_duration_since(began).min(LONG_WRITE)) / 8;
    }

    /// The flusher looks. True if it has to write what is gathered, as publishers have not written
    /// since its last look. If fewer than `burst` messages came since then, the burst is over.
    pub(super) fn look(&mut self, burst: u32) -> bool {
        let is_over = self.gathered < burst;
        let is_due = is_over || !self.written;
        (self.gathered, self.written) = (0, false);
        if is_over {
            (self.gathering, self.streak) = (false, 0);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: u32 = 16;

    /// The pace after messages that come this long after the last write.
    fn after(messages: u32, links: u32, pause: Duration) -> Pace {
        let (mut pace, write) = (Pace::new(), Duration::from_micros(10));
        for _ in 0..messages {
            let began = pace.last_written + pause;
            if pace.at_once_at(began, links, BURST).is_none() {
                break;
            }
            pace.wrote(began, began + write);
        }
        pace
    }

    #[test]
    fn messages_in_a_row_are_gathered() {
        let (near, far) = (Duration::from_nanos(200), Duration::from_micros(20));
        assert!(!after(BURST, 1, near).gathering && after(100, 1, near).gathering);
        assert!(!after(100, 1, far).gathering);
    }

    #[test]
    fn what_other_links_take_is_no_pause() {
        let (round, long) = (Duration::from_micros(31 * 10), Duration::from_micros(31 * 30));
        assert!(after(100, 32, round).gathering);
        assert!(!after(100, 32, long).gathering);
    }

    #[test]
    fn a_burst_ends_when_few_messages_come() {
        let mut pace = after(100, 1, Duration::ZERO);
        (0..BURST).for_each(|_| assert!(pace.at_once(1, BURST).is_none()));
        assert!(pace.look(BURST) && pace.gathering, "nobody has written");
        (0..BURST).for_each(|_| assert!(pace.at_once(1, BURST).is_none()));
        pace.wrote(pace.last_written, pace.last_written);
        assert!(!pace.look(BURST) && pace.gathering);
        (1..BURST).for_each(|_| assert!(pace.at_once(1, BURST).is_none()));
        pace.wrote(pace.last_written, pace.last_written);
        assert!(pace.look(BURST) && !pace.gathering);
    }
}
