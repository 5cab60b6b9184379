//! Whether a message leaves at once (Zenoh calls it express) or in a batch with others, of the same
//! channel or of others: batches are those of the session. The time that a put takes is no pause of
//! the publishers: it may be long if many listen.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::super::inline;

/// Messages that begin at most so long after the last one was put follow it without a pause.
const PAUSE: Duration = Duration::from_micros(20);
/// A burst in which messages are batched ends with a pause of this length, or with so many shorter
/// pauses in a row. A publisher may lose its processor, or wait for a peer, and go on.
const LULL: Duration = Duration::from_millis(1);
const PAUSES: u32 = 4;
/// In a burst without pauses, the clock is read for one message of so many, and after a clock has
/// moved on that is read faster and exact to some milliseconds. If it has moved so far, there was a
/// pause.
const LOOK: u32 = 8;
const IDLE: Duration = Duration::from_millis(10);

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
    /// So many messages are batched without another look at the clock, until that changes.
    unseen: AtomicU32,
    /// Nanoseconds of the clock that is read faster, at the last look.
    coarse: AtomicU64,
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
        Pace { express, row: Mutex::default(), unseen: AtomicU32::new(0), coarse: AtomicU64::new(0) }
    }

    /// Whether a message leaves at once. One thread at a time asks, and puts it.
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

    /// The message was put.
    pub(super) fn ended(&self) {
        self.ended_at(inline::now, Instant::now);
    }

    fn ended_at(&self, coarse: impl Fn() -> Duration, now: impl Fn() -> Instant) {
        // The clock matters if it is read for the next message.
        if self.unseen.load(Ordering::Relaxed) == 0 || !self.moved(coarse()).is_zero() {
            self.waited_until(now());
        }
    }

    /// A message has had to wait until now.
    pub(super) fn waited(&self) {
        self.waited_until(Instant::now());
    }

    fn waited_until(&self, now: Instant) {
        if matches!(self.express, Express::Until(_)) {
            self.row.lock().ended = Some(now);
            self.unseen.store(0, Ordering::Relaxed);
        }
    }

    /// How far the clock has moved that is read faster.
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
            // The clock that is read faster moves rarely.
            let coarse = |now: Duration| Duration::from_millis(now.as_millis() as u64 / 20 * 20);
            let is_express = pace.is_express_at(|| coarse(now), || start + now);
            // It takes long to put.
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
