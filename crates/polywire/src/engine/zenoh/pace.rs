//! Whether a message leaves at once (Zenoh calls it express) or in a batch with others, of the same
//! channel or of others: batches are those of the session. The time that a put takes is no pause of
//! the publishers: it may be long if many listen.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use super::super::pipe::lock;

/// Messages that begin at most so long after the last one was put follow it without a pause.
const PAUSE: Duration = Duration::from_micros(20);
/// A burst in which messages are batched ends with a pause of this length, or with so many shorter
/// pauses in a row. A publisher may lose its processor, or wait for a peer, and go on.
const LULL: Duration = Duration::from_millis(1);
const PAUSES: u32 = 4;

/// When messages leave at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Express {
    /// Until so many have followed each other without a pause.
    Until(u32),
    Always,
    Never,
}

/// How the messages of a port follow each other.
pub(super) struct Pace {
    express: Express,
    row: Mutex<Row>,
}

/// Messages that followed each other without a pause, and the pauses of their burst in a row.
#[derive(Default)]
struct Row {
    messages: u32,
    pauses: u32,
    /// When the last one was put.
    ended: Option<Instant>,
}

impl Pace {
    pub(super) fn new(express: Express) -> Pace {
        Pace { express, row: Mutex::default() }
    }

    /// Whether a message leaves at once that begins now.
    pub(super) fn is_express(&self, now: Instant) -> bool {
        let Express::Until(burst) = self.express else { return self.express == Express::Always };
        let mut row = lock(&self.row);
        let pause = row.ended.map_or(Duration::MAX, |ended| now.saturating_duration_since(ended));
        let (messages, pauses) = match (row.messages, row.pauses + 1) {
            (messages, _) if pause <= PAUSE => (messages.saturating_add(1), 0),
            (messages, pauses @ ..PAUSES) if messages >= burst && pause <= LULL => (messages, pauses),
            _ => (0, 0),
        };
        (row.messages, row.pauses) = (messages, pauses);
        messages < burst
    }

    /// The message was put, or had to wait until now.
    pub(super) fn ended(&self, now: Instant) {
        if matches!(self.express, Express::Until(_)) {
            lock(&self.row).ended = Some(now);
        }
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
            let is_express = pace.is_express(now);
            // It takes long to put.
            now += 10 * PAUSE;
            pace.ended(now);
            is_express
        };
        assert_eq!([0, 5, 5, 100, 5].map(&mut after), [true; 5], "a pause");
        assert_eq!([5, 5, 5, 999, 1001, 5].map(&mut after), [true, false, false, false, true, true]);
        assert_eq!([5, 5, 100, 100, 100, 5].map(&mut after), [true, false, false, false, false, false]);
        assert_eq!([100, 100, 100, 100, 5].map(&mut after), [false, false, false, true, true], "slow by now");
        let now = Instant::now();
        assert!(Pace::new(Express::Always).is_express(now) && !Pace::new(Express::Never).is_express(now));
    }
}
