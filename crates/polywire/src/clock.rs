//! The clock of the crate. Its time is passed to code that reads no clock itself.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// The time since the first call in this process. It never goes back.
pub(crate) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
