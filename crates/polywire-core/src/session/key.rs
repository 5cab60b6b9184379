//! Rate limits of requests for key frames, at the reader and at the writer.

use core::time::Duration;

use super::Limits;

/// When a reader may request a key frame again: the request, or the key frame, may be under way or
/// lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyWait {
    /// The end of the current pause, and its length. `None` while no key frame is missing.
    until: Option<(Duration, Duration)>,
}

impl KeyWait {
    /// Begins a pause unless one runs. True if the caller should send a request now.
    pub(super) fn take(&mut self, now: Duration, limits: &Limits) -> bool {
        let pause = match self.until {
            None => limits.key_pause,
            Some((until, _)) if now < until => return false,
            Some((_, pause)) => pause.saturating_mul(2).min(limits.longest_key_pause),
        };
        self.until = Some((now.saturating_add(pause), pause));
        true
    }

    /// Whether a key frame was requested and is still missing.
    pub(super) fn is_open(&self) -> bool {
        self.until.is_some()
    }
}

/// The requests that readers send to one writer. Any number of requests become one key frame, and
/// key frames on request are limited: [`Limits::key_burst`] in a row, then one a
/// [`Limits::key_period`].
///
/// ```
/// use core::time::Duration;
/// use polywire_core::session::{KeyRequests, Limits};
/// let mut requests = KeyRequests::new(&Limits { key_burst: 1, ..Limits::default() });
/// let now = Duration::from_secs(1);
/// assert!(!requests.take(now), "nobody has asked");
/// requests.ask();
/// requests.ask();
/// assert!(requests.take(now), "the writer makes its next message a key frame");
/// requests.ask();
/// assert!(!requests.take(now) && requests.is_open() && requests.take(now + Duration::from_millis(50)));
/// requests.ask();
/// requests.served(); // The writer sent a key frame for another reason.
/// assert!(!requests.take(now + Duration::from_secs(1)));
/// ```
#[derive(Clone, Debug)]
pub struct KeyRequests {
    asked: bool,
    /// When the whole burst is available again.
    full_at: Option<Duration>,
    period: Duration,
    burst: u32,
}

impl KeyRequests {
    /// The requests for one writer's channel.
    pub fn new(limits: &Limits) -> KeyRequests {
        KeyRequests { asked: false, full_at: None, period: limits.key_period, burst: limits.key_burst }
    }

    /// A reader requests a key frame.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// Whether a request waits for a key frame.
    pub fn is_open(&self) -> bool {
        self.asked
    }

    /// Takes the open request if the rate allows it. True if the next message should be a key
    /// frame.
    pub fn take(&mut self, now: Duration) -> bool {
        if !self.asked {
            return false;
        }
        let used_until = self.full_at.map_or(now, |at| at.max(now));
        if used_until - now > self.period.saturating_mul(self.burst.saturating_sub(1)) {
            return false;
        }
        self.full_at = Some(used_until.saturating_add(self.period));
        self.asked = false;
        true
    }

    /// A key frame was written, for whatever reason: it serves everybody who asked before.
    pub fn served(&mut self) {
        self.asked = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn key_frames_on_request_are_limited() {
        let mut requests = KeyRequests::new(&Limits::default());
        let mut at = |ms| {
            requests.ask();
            requests.take(MS(ms))
        };
        assert_eq!((0..100).filter(|_| at(0)).count(), 8);
        assert_eq!((0..1000).filter(|i| at(*i)).count(), 19);
        assert_eq!((0..100).filter(|_| at(60_000)).count(), 8);
    }

    #[test]
    fn requests_are_repeated_ever_more_rarely() {
        let (mut wait, limits) = (KeyWait::default(), Limits::default());
        assert!(!wait.is_open());
        let asked: Vec<u64> = (0..10_000).filter(|i| wait.take(MS(*i), &limits)).collect();
        assert_eq!(asked, [0, 20, 60, 140, 300, 620, 1260, 2260, 3260, 4260, 5260, 6260, 7260, 8260, 9260]);
        assert!(wait.is_open());
    }
}
