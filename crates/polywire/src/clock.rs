//! The clocks of this crate. Sessions read no clock: their drivers pass the monotonic time to them.

use std::{
    sync::OnceLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// The longest time-out that this crate uses, as good as for ever. A sum of an [`Instant`] and a
/// longer one may overflow.
pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Returns the end of a time-out that begins now, for at most [`LONGEST`].
pub(crate) fn deadline(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(LONGEST)
}

/// The time since the first call in this process. It never goes back.
pub(crate) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// The time by this node's clock, in nanoseconds since 1970.
pub(crate) fn wall_ns() -> i64 {
    // A clock before 1970 or after 2262 is wrong either way.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_of_any_length_has_an_end() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        assert!(deadline(Duration::ZERO) < now + hour && deadline(hour) >= now + hour);
        assert!(deadline(Duration::MAX) > now + LONGEST / 2);
    }
}
