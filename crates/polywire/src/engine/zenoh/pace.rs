//! Decides whether a message leaves at once (Zenoh calls it express) or in a batch with others.
//! Batches belong to the session, so a batch may have messages of several channels. The time that a
//! put takes does not count as a pause of the publisher, because it may be long if there are many
//! subscribers.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::super::inline;

/// A message that begins at most this long after the end of the last put follows without a pause.
const PAUSE: Duration = Duration::from_micros(20);
/// A burst of batched messages ends with a pause longer than [`LULL`], or with [`PAUSES`] shorter
/// ones in a row. Fewer do not end it, because a publisher may lose its processor, or wait for a
/// peer, and then continue.
const LULL: Duration = Duration::from_millis(1);
const PAUSES: u32 = 4;
/// In a burst without pauses, the exact clock is read for one of [`LOOK`] messages, and after the
/// coarse clock has moved. The coarse clock is read faster and is exact to some milliseconds. If it
/// has moved by [`IDLE`], there was a pause.
const LOOK: u32 = 8;
const IDLE: Duration = Duration::from_millis(10);

/// When messages leave at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Express {
    /// Until this many messages have followed each other without a pause.
    Until(u32),
    Always,
    Never,
}

/// The pace at which the messages of a port follow each other.
pub(super) struct Pace {
    express: Express,
    row: Mutex<Row>,
    /// The number of next messages that are batched without a look at the exact clock, unless the
    /// coarse clock moves.
    unseen: AtomicU32,
    /// The coarse clock in nanoseconds, when `is_express` last read the exact clock.
    coarse: AtomicU64,
}

/// The number of messages that have followed each other without a pause, and the number of pauses
/// in a row in their burst.
#[derive(Default)]
struct Row {
    messages: u32,
    pauses: u32,
    /// The end of the last put.
    ended: Option<Instant>,
}

impl Pace {
    pub(super) fn new(express: Express) -> Pace {
        Pace { express, row: Mutex::default(), unseen: AtomicU32::new(0), coarse: AtomicU64::new(0) }
    }

    /// Decides whether a message leaves at once. One thread at a time calls this and puts the
    /// message.
    pub(super) fn is_express(&self) -> bool {
        self.is_express_at(inline::now, Instant::now)
    }

    fn is_express_at(&self, coarse: impl Fn() -> Duration, now: impl Fn() -> Instant) -> bool {
        let Express::Until(burst) = self.express else { return self.express == Express::Always };
        let unseen = self.unseen.load(Ordering::Relaxed);
        if unseen > 0 {
            let moved = self.moved(coarse());
            if moved < IDLE {
                self.unseen.store(if moved.is_zero() { unseen - 1 } else { 0 }, Ordering::Relaxed);
                return false;
            }
        }
        let (now, mut row) = (now(), self.row.lock());
        let pause = row.ended.map_or(Duration::MAX, |ended| now.saturating_duration_since(ended));
        let (messages, pauses) = match (row.messages, row.pauses + 1) {
            (messages, _) if pause <= PAUSE => (messages.saturating_add(1), 0),
            (messages, pauses @ ..PAUSES) if messages >= burst && pause <= LULL => (messages, pauses),
            _ => (0, 0),
        };
        (row.messages, row.pauses) = (messages, pauses);
        let is_steady = messages >= burst && pauses == 0;
        self.coarse.store(coarse().as_nanos() as u64, Ordering::Relaxed);
        self.unseen.store(if is_steady { LOOK - 1 } else { 0 }, Ordering::Relaxed);
        messages < burst
    }

    /// Notes that the message was put.
    pub(super) fn ended(&self) {
        self.ended_at(inline::now, Instant::now);
    }

    fn ended_at(&self, coarse: impl Fn() -> Duration, now: impl Fn() -> Instant) {
        // The exact time is needed only if the next message reads the exact clock.
        if self.unseen.load(Ordering::Relaxed) == 0 || !self.moved(coarse()).is_zero() {
            self.waited_until(now());
        }
    }

    /// Notes that a message has had to wait until now.
    pub(super) fn waited(&self) {
        self.waited_until(Instant::now());
    }

    fn waited_until(&self, now: Instant) {
        if matches!(self.express, Express::Until(_)) {
            self.row.lock().ended = Some(now);
            self.unseen.store(0, Ordering::Relaxed);
        }
    }

    /// Returns how far the coarse clock has moved since `is_express` last read the exact clock.
    fn moved(&self, coarse: Duration) -> Duration {
        coarse.saturating_sub(Duration::from_nanos(self.coarse.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_batched_and_a_pause_ends_it() {
        let (pace, start, mut now) = (Pace::new(Express::Until(3)), Instant::now(), Duration::ZERO);
        let mut after = |micros| {
            now += Duration::from_micros(micros);
            // The coarse clock moves rarely.
            let coarse = |now: Duration| Duration::from_millis(now.as_millis() as u64 / 20 * 20);
            let is_express = pace.is_express_at(|| coarse(now), || start + now);
            // The put takes long.
            now += 10 * PAUSE;
            pace.ended_at(|| coarse(now), || start + now);
            is_express
        };
        assert_eq!([0, 5, 5, 100, 5].map(&mut after), [true; 5], "a pause");
        assert_eq!([5, 5].map(&mut after), [true, false]);
        assert_eq!([5, 999, 5, 5, 5, 5, 5].map(&mut after), [false; LOOK as usize - 1], "the clock is not read");
        assert_eq!([1001, 5, 5, 5].map(&mut after), [true, true, true, false]);
        assert_eq!([5, 20_000, 5].map(&mut after), [false, true, true], "a long pause is seen at once");
        assert_eq!([5, 5, 5, 5, 5, 5, 5, 5, 5].map(&mut after)[1..], [false; 8]);
        assert_eq!([100, 100, 100, 100, 5].map(&mut after), [false, false, false, true, true], "slow by now");
        assert!(Pace::new(Express::Always).is_express() && !Pace::new(Express::Never).is_express());
    }
}
