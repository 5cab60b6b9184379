//! The time after which a participant with DDS Security must not be used.

#[cfg(feature = "security")]
use std::time::Duration;
use std::time::{Instant, SystemTime};

/// How long before its certificate or its permissions expire a participant is no longer used. When
/// they expire, Cyclone deletes the objects behind the participant's entities, and calls with these
/// entities would crash.
#[cfg(feature = "security")]
const BEFORE: Duration = Duration::from_secs(3);

/// A time after which a participant is not used. Cyclone may check either clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    by_clock: SystemTime,
    by_stopwatch: Instant,
}

impl Expiry {
    /// Makes the expiry of files that are valid for `left`. `None` if a clock cannot represent the
    /// time.
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
