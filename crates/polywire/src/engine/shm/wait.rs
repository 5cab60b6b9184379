//! The waiting strategies of a reader: it polls for some time, and then sleeps or continues to
//! poll.

use std::{
    hint,
    str::FromStr,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// What a reader does after it has polled for a while without success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wait {
    /// The reader sleeps until the writer wakes it.
    #[default]
    Event,
    /// The reader continues to poll.
    Spin,
}

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Wait, String> {
        match text {
            "event" => Ok(Wait::Event),
            "spin" => Ok(Wait::Spin),
            _ => Err(format!("wait is 'event' or 'spin', not '{text}'")),
        }
    }
}

/// The number of unsuccessful polls before a reader with [`Wait::Event`] sleeps. They take about as
/// long as a writer that answers at once.
const LOOKS: u32 = 100;
/// After this many sleeps in a row, a reader with [`Wait::Event`] sleeps at once, without polling.
/// Polling takes the processor from a writer that could run there.
const IN_VAIN: u32 = 4;
/// One of this many sleeps is preceded by polls nevertheless: the writer may have become faster.
const TRY_EVERY: u32 = 16;
/// The number of unsuccessful polls before a reader with [`Wait::Spin`] yields to other threads.
const SPINS: u32 = 2000;
/// One of this many polls with [`Wait::Spin`] also checks whether the connection has ended, and
/// reads the clock.
const GLANCE_EVERY: u32 = 256;
/// The requested length of the sleep between two polls of spinning readers, if there are at least
/// as many readers as processors. The system's timer makes the sleep longer.
const MOMENT: Duration = Duration::from_micros(1);

/// The number of readers in this process.
static READERS: AtomicUsize = AtomicUsize::new(0);

/// A reader of this process. `READERS` counts it until it is dropped.
pub(super) struct Reader {
    processors: usize,
    /// The number of sleeps since a poll last found something.
    sleeps: u32,
}

/// The next action of a reader after an unsuccessful poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Poll again.
    Look,
    /// Check whether the connection has ended and whether the timeout is over, then poll again.
    Glance,
    /// Sleep until the writer wakes the reader.
    Sleep,
}

impl Reader {
    pub(super) fn new() -> Reader {
        READERS.fetch_add(1, Ordering::Relaxed);
        Reader { processors: thread::available_parallelism().map_or(1, usize::from), sleeps: 0 }
    }

    /// Decides the next action after this many unsuccessful polls. Pauses for a moment, except
    /// before [`Next::Sleep`].
    #[inline]
    pub(super) fn next(&self, wait: Wait, looks: u32) -> Next {
        let crowded = READERS.load(Ordering::Relaxed) >= self.processors;
        let in_vain = self.sleeps >= IN_VAIN && !self.sleeps.is_multiple_of(TRY_EVERY);
        next(wait, looks, crowded || (wait == Wait::Event && in_vain))
    }

    /// Records that a poll found something.
    #[inline]
    pub(super) fn found(&mut self) {
        self.sleeps = 0;
    }

    /// Records that the reader had to sleep.
    pub(super) fn slept(&mut self) {
        self.sleeps = self.sleeps.wrapping_add(1);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `crowded`: polling keeps the awaited writer from running, for example because there are at least
/// as many readers as processors.
fn next(wait: Wait, looks: u32, crowded: bool) -> Next {
    match wait {
        Wait::Event if crowded || looks >= LOOKS => return Next::Sleep,
        Wait::Event => hint::spin_loop(),
        Wait::Spin if crowded && looks >= LOOKS => {
            thread::sleep(MOMENT);
            return Next::Glance;
        }
        Wait::Spin if looks >= SPINS => thread::yield_now(),
        Wait::Spin => hint::spin_loop(),
    }
    match wait {
        Wait::Spin if looks.is_multiple_of(GLANCE_EVERY) => Next::Glance,
        _ => Next::Look,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_look_and_then_do_as_they_were_told() {
        assert_eq!(next(Wait::Event, 1, false), Next::Look);
        assert_eq!(next(Wait::Event, LOOKS, false), Next::Sleep);
        assert_eq!(next(Wait::Event, 1, true), Next::Sleep, "others need the processor");
        assert_eq!(next(Wait::Spin, 1, false), Next::Look);
        assert_eq!(next(Wait::Spin, GLANCE_EVERY, false), Next::Glance);
        assert_eq!(next(Wait::Spin, SPINS + 1, false), Next::Look);
        assert_eq!(next(Wait::Spin, LOOKS, true), Next::Glance);
    }

    #[test]
    fn a_reader_that_looks_in_vain_sleeps_at_once_and_tries_again() {
        let mut reader = Reader::new();
        reader.processors = usize::MAX;
        for sleeps in 0..3 * TRY_EVERY {
            let looks = sleeps < IN_VAIN || sleeps.is_multiple_of(TRY_EVERY);
            assert_eq!(reader.next(Wait::Event, 1) == Next::Look, looks, "after {sleeps} sleeps");
            assert_eq!(reader.next(Wait::Spin, 1), Next::Look);
            reader.slept();
        }
        reader.slept();
        reader.found();
        assert_eq!(reader.next(Wait::Event, 1), Next::Look, "the writer is fast");
    }

    #[test]
    fn the_readers_of_a_process_are_counted() {
        let readers: Vec<Reader> = (0..1000).map(|_| Reader::new()).collect();
        assert_eq!(readers[0].next(Wait::Event, 1), Next::Sleep);
    }
}
