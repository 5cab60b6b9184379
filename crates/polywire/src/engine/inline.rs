//! When a thread of a library calls back, instead of a thread of the port, which saves a change of
//! threads. Meanwhile that thread receives nothing else, so it is spared slow callbacks.

use std::{
    task::Poll,
    thread,
    time::{Duration, Instant},
};

/// A callback that takes longer is slow if the one before it did, too: most that take longer are
/// interrupted, on a busy machine.
const LONG: Duration = Duration::from_millis(1);
/// A callback that takes longer is slow.
const LONGEST: Duration = Duration::from_millis(20);
/// After a slow callback, the port's thread calls for so many times as long as it took, so that the
/// thread that receives is held up for a tenth of the time; but not longer than `AT_MOST`.
const TIMES: u32 = 10;
const AT_MOST: Duration = Duration::from_secs(5);

/// How long a thread that receives waits for the end of the other thread's turn.
const WAIT: Duration = Duration::from_micros(50);

/// Whether callbacks are fast. Times are those of [`now`].
#[derive(Default)]
pub(super) struct Inline {
    was_long: bool,
    slow_until: Option<Duration>,
}

/// The time, exact to some milliseconds, and read in a few nanoseconds: enough to tell slow
/// callbacks, which is done around each message.
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

    /// A callback ran from `began` to `now`.
    pub(super) fn called(&mut self, began: Duration, now: Duration) {
        let took = now.saturating_sub(began);
        let is_long = took > LONG;
        let is_slow = took > LONGEST || is_long && self.was_long;
        self.was_long = is_long;
        self.slow_until = is_slow.then(|| now + took.saturating_mul(TIMES).min(AT_MOST));
    }
}

/// Tries for a short while. `None` if the turn of the other thread did not end: what a callback
/// sends is often answered before.
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
        // One may have been interrupted.
        inline.called(start, start + 2 * LONG);
        assert!(inline.is_fast(start + 2 * LONG));
        inline.called(start, start + 2 * LONG);
        assert!(!inline.is_fast(start + 21 * LONG) && inline.is_fast(start + 22 * LONG));
        inline.called(start, start + LONG);
        inline.called(start, start + 2 * LONG);
        assert!(inline.is_fast(start + 2 * LONG));
        inline.called(start, start + AT_MOST);
        assert!(!inline.is_fast(start + AT_MOST) && inline.is_fast(start + 2 * AT_MOST));
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
