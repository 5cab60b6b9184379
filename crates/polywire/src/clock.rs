//! The clocks of this crate. Sessions read no clock: their drivers pass the monotonic time to them.

use std::{
    sync::OnceLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

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
