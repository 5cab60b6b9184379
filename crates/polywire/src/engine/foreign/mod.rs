//! What engines share whose medium has applications that are not Polywire's: which channels those
//! may read (`openness`), the names of formats (`encoding`), and the channels of those that publish
//! (`writers`).

pub(super) mod encoding;
pub(super) mod openness;
mod writers;

use std::time::{SystemTime, UNIX_EPOCH};

pub(super) use writers::{News, Writers};

/// Nanoseconds since 1970.
pub(super) fn since_1970(at: SystemTime) -> i64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
