//! Whether a message leaves at once (Zenoh calls it express) or in a batch with others.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use super::super::pipe::lock;

/// Messages that begin at most so long after the last one follow it without a pause.
const PAUSE: Duration = Duration::from_micros(20);

/// When messages leave at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Express {
    /// Until so many have followed each other without a pause.
    Until(u32),
    Always,
    Never,
}

/// How messages of one channel follow each other.
pub(super) struct Pace {
    express: Express,
    last: Mutex<Option<(Instant, u32)>>,
}

impl Pace {
    pub(super) fn new(express: Express) -> Pace {
        Pace { express, last: Mutex::new(None) }
    }

    /// Whether a message leaves at once that begins now.
    pub(super) fn is_express(&self, now: Instant) -> bool {
        let Express::Until(burst) = self.express else { return self.express == Express::Always };
        let mut last = lock(&self.last);
        let follows = |(before, count): (Instant, u32)| match now.saturating_duration_since(before) <= PAUSE {
            true => count.saturating_add(1),
            false => 0,
        };
        let count = last.map_or(0, follows);
        *last = Some((now, count));
        count < burst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_batched_and_a_pause_ends_it() {
        let (pace, mut now) = (Pace::new(Express::Until(3)), Instant::now());
        let mut after = |micros| {
            now += Duration::from_micros(micros);
            pace.is_express(now)
        };
        assert_eq!([0, 5, 5, 5, 5, 100, 5].map(&mut after), [true, true, true, false, false, true, true]);
        let now = Instant::now();
        assert!(Pace::new(Express::Always).is_express(now) && !Pace::new(Express::Never).is_express(now));
    }
}
