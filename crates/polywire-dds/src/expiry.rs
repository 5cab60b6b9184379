//! When a participant with DDS Security may not be used any more.

#[cfg(feature = "security")]
use std::time::Duration;
use std::time::{Instant, SystemTime};

/// How long before its certificate or its permissions expire a participant is given up. Then
/// Cyclone deletes what its entities stand for, and calls with them would crash.
#[cfg(feature = "security")]
const BEFORE: Duration = Duration::from_secs(3);

/// A time after which a participant is not used. Cyclone may look at either clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    by_clock: SystemTime,
    by_stopwatch: Instant,
}

impl Expiry {
    /// `None` if it is so far away that no clock shows it.
    #[cfg(feature = "security")]
    pub(crate) fn after(left: Duration) -> Option<Expiry> {
        let left = left.saturating_sub(BEFORE);
        let (by_clock, by_stopwatch) = (SystemTime::now().checked_add(left)?, Instant::now().checked_add(left)?);
        Some(Expiry { by_clock, by_stopwatch })
    }

    pub(crate) fn has_come(self) -> bool {
        SystemTime::now() >= self.by_clock || Instant::now() >= self.by_stopwatch
    }
}
