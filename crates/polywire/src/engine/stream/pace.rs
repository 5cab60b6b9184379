//! When publications follow each other so closely that they are worth gathering.

use std::time::{Duration, Instant};

/// Publications that follow each other faster than this are a burst.
const CALM: Duration = Duration::from_micros(2);
/// A pause between publications.
const LULL: Duration = Duration::from_micros(20);
/// So many pauses in a row end a burst.
const LULLS: u32 = 4;
/// Writes that take longer say nothing of writes: the system had something else to do.
const LONG_WRITE: Duration = Duration::from_millis(1);

/// Recognises bursts.
pub(super) struct Pace {
    streak: u32,
    /// Pauses in a row while gathering.
    lulls: u32,
    pub(super) gathering: bool,
    pub(super) last_publish: Instant,
    pub(super) last_written: Instant,
    /// What a write takes, on average.
    pub(super) write: Duration,
    /// When the oldest gathered message came.
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
        // What writing took is no pause, to other links either, which the port knows.
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
        // One pause may just be the scheduler's: the message is written at once, but the burst goes
        // on.
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

    /// The flusher sleeps without a limit outside bursts; whoever starts one wakes it.
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
        // Each publication comes long after this link's last one, as with many links beside it; the
        // publisher was hardly away.
        let gathers = |pause: Option<Duration>| {
            let mut pace = Pace::new();
            (1..100).any(|i| !pace.at_once(start + i * Duration::from_micros(500), pause, 16))
        };
        assert!(gathers(Some(Duration::from_nanos(200))));
        assert!(!gathers(Some(Duration::from_micros(500))) && !gathers(None));
    }
}
