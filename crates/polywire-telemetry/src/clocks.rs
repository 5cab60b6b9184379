//! The clocks of this machine.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::Moment;

/// The clocks of this machine.
///
/// ```
/// use polywire_telemetry::Clocks;
///
/// let clocks = Clocks::new();
/// let (a, b) = (clocks.now(), clocks.now());
/// assert!(b.steady >= a.steady && a.wall_ns > 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clocks(Instant);

impl Clocks {
    /// Starts the steady clock from 0.
    #[expect(clippy::new_without_default, reason = "the time of the call matters")]
    pub fn new() -> Clocks {
        Clocks(Instant::now())
    }

    /// Returns the current time on both clocks.
    pub fn now(&self) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { steady: self.0.elapsed(), wall_ns: i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX) }
    }
}
