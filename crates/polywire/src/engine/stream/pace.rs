//! Decides when publications follow each other so closely that gathering them pays off.

use std::time::{Duration, Instant};

/// Publications in a burst begin at most this long after the last write.
const CALM: Duration = Duration::from_micros(2);
/// A longer time between publications is a pause.
const LULL: Duration = Duration::from_micros(20);
/// This many pauses in a row end a burst.
const LULLS: u32 = 4;
/// Bound of a write's time in the average: in a longer write, the system did something else.
const LONG_WRITE: Duration = Duration::from_millis(1);

/// Recognises bursts of publications on one link.
pub(super) struct Pace {
    streak: u32,
    /// Pauses in a row while gathering.
    lulls: u32,
    pub(super) gathering: bool,
    pub(super) last_publish: Instant,
    pub(super) last_written: Instant,
    /// Average time of a write.
    pub(super) write: Duration,
    /// Time of the oldest gathered message.
    pub(super) since: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Pace {
            streak: 0,
            lulls: 0,
            gathering: false,
            last_publish: now,
            last_written: now,
            write: Duration::ZERO,
            since: now,
        }
    }

    /// Whether a message that is published `now` should be written at once.
    #[inline]
    pub(super) fn at_once(&mut self, now: Instant, pause: Option<Duration>, burst: u32) -> bool {
        // The time spent writing is not a pause, even if other links were written to; `pause`
        // excludes it.
        let since = |at: Instant| pause.unwrap_or_else(|| now.saturating_duration_since(at));
        let pause = since(self.last_publish.max(self.last_written));
        self.last_publish = now;
        if !self.gathering {
            self.streak = if since(self.last_written) > CALM { 0 } else { self.streak + 1 };
            self.gathering = self.streak > burst;
            return !self.gathering;
        }
        if pause <= LULL {
            self.lulls = 0;
            return false;
        }
        // A single pause may be the scheduler's: this message is written at once, but the burst
        // continues.
        self.lulls += 1;
        if self.lulls == LULLS {
            self.calm_down();
        }
        true
    }

    pub(super) fn wrote(&mut self, began: Instant, ended: Instant) {
        self.last_written = ended;
        self.write = (self.write * 7 + ended.saturating_duration_since(began).min(LONG_WRITE)) / 8;
    }

    pub(super) fn calm_down(&mut self) {
        self.gathering = false;
        self.streak = 0;
        self.lulls = 0;
    }

    /// Whether the caller has to wake the flusher, which sleeps outside bursts: once at the start
    /// of each burst.
    pub(super) fn flusher_needed(&mut self) -> bool {
        let starting = self.gathering && self.streak != u32::MAX;
        if starting {
            self.streak = u32::MAX;
        }
        starting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_links_take_is_no_pause() {
        let start = Instant::now();
        // Each publication comes long after this link's last one, since the port writes to many
        // other links; the publisher itself hardly paused.
        let gathers = |pause: Option<Duration>| {
            let mut pace = Pace::new();
            (1..100).any(|i| !pace.at_once(start + i * Duration::from_micros(500), pause, 16))
        };
        assert!(gathers(Some(Duration::from_nanos(200))));
        assert!(!gathers(Some(Duration::from_micros(500))) && !gathers(None));
    }
}
