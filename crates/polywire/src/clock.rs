//! The clocks of this crate. Sessions read no clock: their drivers pass the monotonic time to them.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

/// The time since the first call in this process. It never goes back.
pub(crate) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// The time by this node's clock, in nanoseconds since 1970. Publishers read it for each message, so
/// it comes straight from the system: [`SystemTime`](std::time::SystemTime) takes twice as long to
/// convert.
#[inline]
pub(crate) fn wall_ns() -> i64 {
    // A clock before 1970 or after 2262 is wrong either way.
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec)
}
