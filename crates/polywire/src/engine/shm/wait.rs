//! How a reader waits for messages: it looks for some time, and then sleeps.

use std::{
    hint,
    str::FromStr,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// What a reader does when it has looked in vain for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wait {
    /// It sleeps until the writer wakes it.
    #[default]
    Event,
    /// It goes on looking.
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

/// Looks in vain before a reader with [`Wait::Event`] sleeps. They take about as long as a writer
/// takes that answers at once.
const LOOKS: u32 = 100;
/// A reader with [`Wait::Event`] that looked in vain so many times in a row sleeps at once. Looking
/// takes the processor from a writer that could run there.
const IN_VAIN: u32 = 4;
/// Of so many of its sleeps, one begins with looks: the writer may have become faster.
const TRY_EVERY: u32 = 16;
/// Looks in vain before a reader with [`Wait::Spin`] lets other threads run.
const SPINS: u32 = 2000;
/// Of so many looks with [`Wait::Spin`], one also looks for the end of the connection and at the
/// clock.
const GLANCE_EVERY: u32 = 256;
/// Requested length of the sleep between two looks of spinning readers, if there are more of them
/// than processors. The system's timer makes it longer.
const MOMENT: Duration = Duration::from_micros(1);

/// The readers of this process.
static READERS: AtomicUsize = AtomicUsize::new(0);

/// A reader of this process, counted as long as this lives.
pub(super) struct Reader {
    processors: usize,
    /// How many times in a row it slept.
    sleeps: u32,
}

/// What a reader does after a look in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It looks again.
    Look,
    /// It looks whether the connection has ended, and at the clock.
    Glance,
    /// It sleeps until it is woken.
    Sleep,
}

impl Reader {
    pub(super) fn new() -> Reader {
        READERS.fetch_add(1, Ordering::Relaxed);
        Reader { processors: thread::available_parallelism().map_or(1, usize::from), sleeps: 0 }
    }

    /// Waits a moment, or says what is to be done, after so many looks in vain.
    #[inline]
    pub(super) fn next(&self, wait: Wait, looks: u32) -> Next {
        let crowded = READERS.load(Ordering::Relaxed) >= self.processors;
        let in_vain = self.sleeps >= IN_VAIN && !self.sleeps.is_multiple_of(TRY_EVERY);
        next(wait, looks, crowded || (wait == Wait::Event && in_vain))
    }

    /// Notes that something came while the reader looked.
    #[inline]
    pub(super) fn found(&mut self) {
        self.sleeps = 0;
    }

    /// Notes that it had to sleep.
    pub(super) fn slept(&mut self) {
        self.sleeps = self.sleeps.wrapping_add(1);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `crowded`: a reader that looks keeps from running what it waits for, as with as many readers as
/// processors.
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
