//! The monotonic clock of this crate. Sessions read no clock: their drivers pass this time to them.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// The time since the first call in this process. It never goes back.
pub(crate) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
