//! Streams of deltas on topics: a stateful codec's two ends, and the requests for key frames
//! between them.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use polywire_core::{
    codec::stream::{Mode, StreamError, StreamReader, StreamWriter},
    envelope::Envelope,
    program::State,
};

/// Key frames that requests may bring about in a row.
const BURST: u32 = 8;
/// From one key frame on request to the next, in the long run.
const KEY_PERIOD: Duration = Duration::from_millis(50);
/// How long a reader waits before it asks again: at first, and at most.
const ASK_AGAIN: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// Receivers of a channel have asked for a key frame. Any number of requests are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(Arc<AtomicBool>);

impl Requests {
    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    #[inline]
    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Acquire)
    }
}

/// A publisher's end.
pub(crate) struct Outgoing {
    writer: StreamWriter,
    requests: Requests,
    /// Asked for, and not sent yet.
    pending: bool,
    allowance: Allowance,
}

impl Outgoing {
    pub(crate) fn new(state: State, mode: Mode, key_interval: u64, requests: Requests) -> Outgoing {
        let writer = StreamWriter::new(state, mode, key_interval);
        Outgoing { writer, requests, pending: false, allowance: Allowance::default() }
    }

    /// Encodes a message and gives its anchor.
    pub(crate) fn write<E>(
        &mut self,
        sequence: u64,
        encode: impl FnOnce(&mut State, bool) -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        self.pending |= self.requests.take();
        if self.pending && self.allowance.take(Instant::now()) {
            self.writer.ask_for_key();
            self.pending = false;
        }
        let anchor = self.writer.write(sequence, encode)?;
        // Whoever asked before gets this one.
        self.pending &= anchor != Some(sequence);
        Ok(anchor)
    }

    /// What was written last did not leave: nothing may refer to it, least of all under its number.
    pub(crate) fn failed(&mut self) {
        self.writer.ask_for_key();
    }
}

/// How many key frames may be sent on request: so many in a row, and then one a period.
#[derive(Default)]
struct Allowance {
    /// When all of it is there again.
    whole_at: Option<Instant>,
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        let used_until = self.whole_at.map_or(now, |at| at.max(now));
        if used_until - now > KEY_PERIOD * (BURST - 1) {
            return false;
        }
        self.whole_at = Some(used_until + KEY_PERIOD);
        true
    }
}

/// A subscriber's end.
pub(crate) struct Arriving(Mutex<Arrived>);

struct Arrived {
    reader: StreamReader,
    /// A key frame has been read.
    begun: bool,
}

impl Arriving {
    pub(crate) fn new(state: State) -> Arriving {
        Arriving(Mutex::new(Arrived { reader: StreamReader::new(state), begun: false }))
    }

    /// Decodes a message, if what it refers to is here.
    pub(crate) fn read<E>(
        &self,
        envelope: &Envelope<'_>,
        decode: impl FnOnce(&mut State, bool) -> Result<(), E>,
    ) -> Result<(), StreamError<E>> {
        let mut arrived = self.lock();
        arrived.reader.read(envelope.sequence, envelope.anchor, decode)?;
        arrived.begun = true;
        Ok(())
    }

    /// It is time to ask for a key frame.
    pub(crate) fn wants_key(&self) -> bool {
        let arrived = self.lock();
        !arrived.begun || arrived.reader.wants_key()
    }

    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a receiver may ask for a key frame again: its request, or what answers it, may be under
/// way, or lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asking {
    /// Asked, and not before then again; and how long the pause was.
    until: Option<(Instant, Duration)>,
}

impl Asking {
    /// True if it is time. Takes it that the caller asks then.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let [first, longest] = ASK_AGAIN;
        let pause = match self.until {
            None => first,
            Some((until, _)) if now < until => return false,
            Some((_, pause)) => (pause * 2).min(longest),
        };
        self.until = Some((now + pause, pause));
        true
    }

    pub(crate) fn is_open(&self) -> bool {
        self.until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use polywire_core::program::Bank;

    use super::*;

    #[test]
    fn key_frames_on_request_are_limited() {
        let (mut allowance, start) = (Allowance::default(), Instant::now());
        let at_once = (0..100).filter(|_| allowance.take(start)).count();
        assert_eq!(at_once, BURST as usize);
        let later = (0..1000).filter(|i| allowance.take(start + Duration::from_millis(*i))).count();
        assert_eq!(later, 19);
        assert_eq!((0..100).filter(|_| allowance.take(start + Duration::from_secs(60))).count(), BURST as usize);
    }

    #[test]
    fn requests_are_repeated_ever_more_rarely() {
        let (mut asking, start) = (Asking::default(), Instant::now());
        let asked: Vec<u64> = (0..10_000).filter(|i| asking.take(start + Duration::from_millis(*i))).collect();
        assert_eq!(asked, [0, 20, 60, 140, 300, 620, 1260, 2260, 3260, 4260, 5260, 6260, 7260, 8260, 9260]);
    }

    #[test]
    fn many_requests_are_one_key_frame() {
        let requests = Requests::default();
        let state = State::new(&Arc::new(Bank::default()));
        let mut outgoing = Outgoing::new(state, Mode::Anchored, 0, requests.clone());
        let mut write = |sequence| outgoing.write(sequence, |_, _| Ok::<(), Infallible>(())).unwrap_or_default();
        assert_eq!((write(1), write(2)), (Some(1), Some(1)));
        for _ in 0..100 {
            requests.ask();
        }
        assert_eq!((write(3), write(4)), (Some(3), Some(3)));
        let keys = (5..1000).filter(|sequence| {
            requests.ask();
            write(*sequence) == Some(*sequence)
        });
        assert!(keys.count() < 100, "a flood of requests does not make every message a key frame");
    }

    #[test]
    fn nothing_refers_to_what_did_not_leave() {
        let state = State::new(&Arc::new(Bank::default()));
        let mut outgoing = Outgoing::new(state, Mode::Anchored, 0, Requests::default());
        let mut keep = false;
        for _ in 0..2 {
            // Both attempts have the number 1; the second is a key frame, too.
            let anchor = outgoing.write(1, |_, kept| {
                keep = kept;
                Ok::<(), Infallible>(())
            });
            assert_eq!((anchor, keep), (Ok(Some(1)), true));
            outgoing.failed();
        }
    }
}
