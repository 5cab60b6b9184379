//! Decides when a receiving thread of a library (DDS, Zenoh) runs the subscribers' callbacks
//! itself, which saves a switch to a thread of the port. During a callback the library's thread
//! receives nothing else, so the port's thread runs slow callbacks.

use std::{
    task::Poll,
    thread,
    time::{Duration, Instant},
};

/// A callback that takes longer than this is slow if the previous callback took longer, too. On a
/// busy machine, a single long callback was usually just interrupted.
const LONG: Duration = Duration::from_millis(1);
/// A callback that takes longer than this is slow.
const LONGEST: Duration = Duration::from_millis(20);
/// After a slow callback, the port's thread runs the callbacks for this many times the duration of
/// the slow one, but for at most `MAX_SLOW_TIME`. So callbacks delay the receiving thread for about
/// a tenth of the time.
const TIMES: u32 = 10;
const MAX_SLOW_TIME: Duration = Duration::from_secs(5);

/// How long a receiving thread waits until the thread that is delivering has finished.
const WAIT: Duration = Duration::from_micros(50);

/// Notes how long callbacks take. Times are those of [`now`].
#[derive(Default)]
pub(super) struct Inline {
    was_long: bool,
    slow_until: Option<Duration>,
}

/// Returns the time with a resolution of some milliseconds, which is enough to recognise slow
/// callbacks. The time is read around each message, so reading it takes only a few nanoseconds.
pub(super) fn now() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    crate::clock::now()
}

impl Inline {
    pub(super) fn is_fast(&self, now: Duration) -> bool {
        self.slow_until.is_none_or(|until| until <= now)
    }

    /// Notes that a callback ran from `began` to `now`.
    pub(super) fn called(&mut self, began: Duration, now: Duration) {
        let took = now.saturating_sub(began);
        let is_long = took > LONG;
        let is_slow = took > LONGEST || is_long && self.was_long;
        self.was_long = is_long;
        self.slow_until = is_slow.then(|| now + took.saturating_mul(TIMES).min(MAX_SLOW_TIME));
    }
}

/// Calls `attempt` until it is ready, for at most [`WAIT`]. Returns `None` if the other thread did
/// not finish delivering in this time. The wait is worthwhile because the reply to a message that a
/// callback sends often arrives just before the callback's thread has finished.
pub(super) fn shortly<T>(mut attempt: impl FnMut() -> Poll<T>) -> Option<T> {
    let mut until = None;
    loop {
        if let Poll::Ready(done) = attempt() {
            return Some(done);
        }
        let now = Instant::now();
        if now >= *until.get_or_insert(now + WAIT) {
            return None;
        }
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_callback_is_left_to_the_port_in_proportion() {
        let (mut inline, start) = (Inline::default(), now());
        assert!(inline.is_fast(start));
        // A single long callback may have been interrupted.
        inline.called(start, start + 2 * LONG);
        assert!(inline.is_fast(start + 2 * LONG));
        inline.called(start, start + 2 * LONG);
        assert!(!inline.is_fast(start + 21 * LONG) && inline.is_fast(start + 22 * LONG));
        inline.called(start, start + LONG);
        inline.called(start, start + 2 * LONG);
        assert!(inline.is_fast(start + 2 * LONG));
        inline.called(start, start + MAX_SLOW_TIME);
        assert!(!inline.is_fast(start + MAX_SLOW_TIME) && inline.is_fast(start + 2 * MAX_SLOW_TIME));
    }

    #[test]
    fn the_wait_is_short() {
        let mut attempts = 0;
        let done = shortly(|| {
            attempts += 1;
            if attempts == 2 { Poll::Ready(7) } else { Poll::Pending }
        });
        assert!(done.is_none_or(|done| done == 7) && attempts <= 2);
        assert_eq!(shortly(|| Poll::<()>::Pending), None);
    }
}
