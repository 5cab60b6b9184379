//! The two ends of a channel in a stateful format: a publisher that writes key frames and messages
//! that refer to them, and a subscriber that reads them. Requests for key frames are limited by
//! [`polywire_core::session`].

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    codec::stateful::{Mode, StatefulError, StatefulReader, StatefulWriter},
    envelope::Envelope,
    program::State,
    session::{KeyRequests, Limits},
};

use crate::clock;

/// Whether a reader of a channel has requested a key frame since the publisher last checked. The
/// publisher checks with each message, without a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(Arc<AtomicBool>);

impl Requests {
    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Acquire)
    }
}

/// A publisher's end of a channel.
pub(crate) struct Outgoing {
    writer: StatefulWriter,
    arrived: Requests,
    requests: KeyRequests,
}

impl Outgoing {
    pub(crate) fn new(state: State, mode: Mode, key_interval: u64, requests: Requests) -> Outgoing {
        let writer = StatefulWriter::new(state, mode, key_interval);
        Outgoing { writer, arrived: requests, requests: KeyRequests::new(&Limits::default()) }
    }

    /// Encodes a message, and returns its anchor.
    pub(crate) fn write<E>(
        &mut self,
        sequence: u64,
        encode: impl FnOnce(&mut State, bool) -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        if self.arrived.take() {
            self.requests.ask();
        }
        if self.requests.is_open() && self.requests.take(clock::now()) {
            self.writer.request_key_frame();
        }
        let anchor = self.writer.write(sequence, encode)?;
        if anchor == Some(sequence) {
            self.requests.served();
        }
        Ok(anchor)
    }

    /// Records that the last message was not sent. The next message has the same sequence number
    /// and is a key frame, so that no message refers to the lost one.
    pub(crate) fn failed(&mut self) {
        self.writer.request_key_frame();
    }
}

/// A subscriber's end of a channel.
pub(crate) struct Arriving(Mutex<Arrived>);

struct Arrived {
    reader: StatefulReader,
    /// Whether a key frame has been read.
    begun: bool,
}

impl Arriving {
    pub(crate) fn new(state: State) -> Arriving {
        Arriving(Mutex::new(Arrived { reader: StatefulReader::new(state), begun: false }))
    }

    /// Decodes a message if everything that it refers to was read before.
    pub(crate) fn read<E>(
        &self,
        envelope: &Envelope<'_>,
        decode: impl FnOnce(&mut State, bool) -> Result<(), E>,
    ) -> Result<(), StatefulError<E>> {
        let mut arrived = self.lock();
        arrived.reader.read(envelope.sequence, envelope.anchor, decode)?;
        arrived.begun = true;
        Ok(())
    }

    /// Checks whether the next messages cannot be read without a key frame.
    pub(crate) fn needs_key_frame(&self) -> bool {
        let arrived = self.lock();
        !arrived.begun || arrived.reader.needs_key_frame()
    }

    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use polywire_core::program::Bank;

    use super::*;

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
            // Both attempts have the number 1, and both are key frames.
            let anchor = outgoing.write(1, |_, kept| {
                keep = kept;
                Ok::<(), Infallible>(())
            });
            assert_eq!((anchor, keep), (Ok(Some(1)), true));
            outgoing.failed();
        }
    }
}
