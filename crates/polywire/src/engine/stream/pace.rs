//! Decides when messages follow each other so closely that gathering them pays off. A port decides
//! for all its links together: the time that it takes to write to one of them is no pause of the
//! publisher.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::engine::EngineOptions;

/// A message of a burst comes at most this long after the port has handed the last one to its
/// links. Messages that come together have this time each, because they were encoded meanwhile.
const CALM: Duration = Duration::from_micros(2);
/// It may come later, too: until one part in so many of the time which that handing over took has
/// passed. The publisher then spends most of its time with writing.
const SHARE: u32 = 4;
/// A burst is over after so many looks of a flusher at few messages. At fewer, the publisher may
/// only have waited for a processor.
const LOOKS: u32 = 4;
/// Longest time that messages are gathered, however many links a port has.
const LONGEST_GATHER: Duration = Duration::from_millis(5);

/// Recognises bursts of messages at one port. While messages are gathered, publishers do not look
/// at the clock: the links' flushers look after them from time to time.
pub(super) struct Pace {
    burst: u32,
    gather: Duration,
    /// 0 unless messages wait for others. Else a new number with each look of a flusher and each
    /// caller that comes or goes: odd in a burst, even if only callers have theirs wait.
    gathering: Arc<AtomicU64>,
    /// Messages of all bursts so far.
    gathered: AtomicU64,
    links: AtomicU64,
    row: Mutex<Row>,
    waits: Mutex<Waits>,
}

/// Why messages wait for others.
#[derive(Default)]
struct Waits {
    in_burst: bool,
    /// Callers that publish several messages, which are to leave together.
    held: usize,
    /// The last number of [`Pace::gathering`], without its lowest bit.
    number: u64,
}

/// Calls that followed each other without a pause, with one or several messages each.
struct Row {
    calls: u32,
    /// How long it took to hand the last call's messages to all links, and when that ended.
    took: Duration,
    ended: Instant,
}

/// What is done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is written at once. It came at this time.
    AtOnce(Instant),
    /// It is gathered with others.
    Gather,
    /// It is written with others that a caller publishes together.
    Together,
}

/// The link's part in a burst of its port.
#[derive(Default)]
pub(super) struct Burst {
    /// The flusher looks after gathered messages from time to time.
    pub(super) gathering: bool,
    /// What [`Pace::look`] needs: the messages of bursts at the last look, and the looks since then
    /// at which few had come.
    pub(super) seen: u64,
    pub(super) quiet: u32,
    /// Publishers wrote since the flusher's last look.
    pub(super) written: bool,
}

impl Pace {
    pub(super) fn new(options: &EngineOptions) -> Self {
        Pace {
            burst: options.burst,
            gather: options.gather,
            gathering: Arc::default(),
            gathered: AtomicU64::new(0),
            links: AtomicU64::new(1),
            row: Mutex::new(Row { calls: 0, took: Duration::ZERO, ended: Instant::now() }),
            waits: Mutex::default(),
        }
    }

    /// Says what is done with messages that come together and go to `links` links. Follow it by
    /// [`end`](Pace::end).
    #[inline]
    pub(super) fn begin(&self, messages: usize, links: usize) -> Turn {
        match self.gathering.load(Ordering::Relaxed) {
            0 => self.begin_at(Instant::now(), messages, links),
            number if is_burst(number) => {
                self.count(messages);
                Turn::Gather
            }
            _ => Turn::Together,
        }
    }

    /// Whether messages wait until a caller has published all of its own, and for nothing else.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        let number = self.gathering.load(Ordering::Relaxed);
        number > 0 && !is_burst(number)
    }

    /// A caller begins to publish messages that are to leave together, or ends. Returns whether the
    /// last one has ended.
    pub(super) fn hold(&self, begins: bool) -> bool {
        self.change(|waits| waits.held = if begins { waits.held + 1 } else { waits.held - 1 }) == 0 && !begins
    }

    /// Changes why messages wait. Gives the number of callers for which they do.
    fn change(&self, change: impl FnOnce(&mut Waits)) -> usize {
        let mut waits = self.waits.lock();
        change(&mut waits);
        waits.number += 2;
        let number = if waits.in_burst || waits.held > 0 { waits.number + u64::from(waits.in_burst) } else { 0 };
        self.gathering.store(number, Ordering::Relaxed);
        waits.held
    }

    fn begin_at(&self, now: Instant, messages: usize, links: usize) -> Turn {
        let mut row = self.row.lock();
        let calm = CALM.saturating_mul(u32::try_from(messages).unwrap_or(u32::MAX));
        let follows = now.saturating_duration_since(row.ended) <= calm.max(row.took / SHARE);
        row.calls = if follows { row.calls + 1 } else { 0 };
        if row.calls <= self.burst {
            return Turn::AtOnce(now);
        }
        row.calls = 0;
        self.links.store(links as u64, Ordering::Relaxed);
        self.count(messages);
        self.change(|waits| waits.in_burst = true);
        Turn::Gather
    }

    /// See [`Port::gathering`](crate::engine::Port::gathering).
    pub(super) fn gathering(&self) -> &Arc<AtomicU64> {
        &self.gathering
    }

    /// Counts gathered messages. Of those that several threads publish at the same moment, some may
    /// not be counted: adding atomically costs as much as a lock.
    #[inline]
    fn count(&self, messages: usize) {
        self.gathered.store(self.gathered.load(Ordering::Relaxed) + messages as u64, Ordering::Relaxed);
    }

    /// The message was handed to all links.
    #[inline]
    pub(super) fn end(&self, turn: Turn) {
        if let Turn::AtOnce(began) = turn {
            let mut row = self.row.lock();
            row.ended = Instant::now();
            row.took = row.ended.saturating_duration_since(began);
        }
    }

    /// The part of a link in a burst, from now on.
    pub(super) fn burst_of_link(&self) -> Burst {
        Burst { gathering: true, seen: self.gathered(), ..Burst::default() }
    }

    fn gathered(&self) -> u64 {
        self.gathered.load(Ordering::Relaxed)
    }

    /// How long a flusher waits before it looks after its link.
    pub(super) fn rest(&self) -> Duration {
        let links = u32::try_from(self.links.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let most = LONGEST_GATHER.max(self.gather);
        self.gather.saturating_mul(links).min(most) / 2
    }

    /// A flusher looks after a rest at the burst of its link. False if the burst is over, because
    /// fewer messages than begin one came in each of some rests.
    pub(super) fn look(&self, burst: &mut Burst) -> bool {
        let gathered = self.gathered();
        // The count goes back if a thread was held up while it added: then messages have come, too.
        let is_quiet = gathered.wrapping_sub(burst.seen) < u64::from(self.burst);
        burst.quiet = if is_quiet { burst.quiet + 1 } else { 0 };
        burst.seen = gathered;
        let is_over = burst.quiet >= LOOKS || !is_burst(self.gathering.load(Ordering::Relaxed));
        self.change(|waits| waits.in_burst = !is_over);
        !is_over
    }
}

/// Whether a number of [`Pace::gathering`] is one of a burst.
#[inline]
fn is_burst(number: u64) -> bool {
    number % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pace of a port with this many links, after messages that come this long after the last
    /// one was written to all links.
    fn after(messages: u32, links: usize, pause: Duration) -> Pace {
        after_calls(messages, 1, links, pause)
    }

    /// The same after calls with so many messages each.
    fn after_calls(calls: u32, messages: usize, links: usize, pause: Duration) -> Pace {
        let pace = Pace::new(&EngineOptions::default());
        for _ in 0..calls {
            let ended = pace.row.lock().ended;
            match pace.begin_at(ended + pause, messages, links) {
                Turn::AtOnce(began) => {
                    let took = Duration::from_micros(10) * links as u32;
                    let mut row = pace.row.lock();
                    (row.took, row.ended) = (took, began + took);
                }
                Turn::Gather | Turn::Together => break,
            }
        }
        pace
    }

    fn is_gathering(pace: &Pace) -> bool {
        pace.gathering.load(Ordering::Relaxed) > 0
    }

    #[test]
    fn messages_in_a_row_are_gathered() {
        let (near, far) = (Duration::from_nanos(200), Duration::from_micros(20));
        let burst = EngineOptions::default().burst;
        assert!(!is_gathering(&after(burst, 1, near)) && is_gathering(&after(100, 1, near)));
        assert!(is_gathering(&after(100, 32, near)), "writing to other links is no pause");
        assert!(!is_gathering(&after(100, 1, far)));
    }

    #[test]
    fn the_time_in_which_several_messages_are_encoded_is_no_pause() {
        let (encoding, pause) = (Duration::from_micros(50), Duration::from_millis(1));
        assert!(is_gathering(&after_calls(100, 100, 1, encoding)) && !is_gathering(&after_calls(100, 1, 1, encoding)));
        assert!(!is_gathering(&after_calls(100, 100, 1, pause)));
        let burst = EngineOptions::default().burst;
        assert!(!is_gathering(&after_calls(burst, 100, 1, encoding)), "as many calls as of single messages");
    }

    #[test]
    fn a_publisher_that_mostly_writes_is_in_a_burst() {
        let links = 32;
        let writing = Duration::from_micros(10) * links as u32;
        assert!(is_gathering(&after(100, links, writing / SHARE)));
        assert!(!is_gathering(&after(100, links, writing / SHARE * 2)));
    }

    #[test]
    fn a_burst_ends_when_few_messages_come_several_times() {
        let pace = after(100, 1, Duration::ZERO);
        let mut seen = pace.burst_of_link();
        let burst = EngineOptions::default().burst;
        (0..burst).for_each(|_| assert_eq!(pace.begin(1, 1), Turn::Gather));
        for _ in 0..2 {
            (1..LOOKS).for_each(|_| assert!(pace.look(&mut seen)));
            (0..burst).for_each(|_| assert_eq!(pace.begin(1, 1), Turn::Gather));
            assert!(pace.look(&mut seen), "enough came");
        }
        (1..LOOKS).for_each(|_| assert!(pace.look(&mut seen)));
        (1..burst).for_each(|_| assert_eq!(pace.begin(1, 1), Turn::Gather));
        assert!(!pace.look(&mut seen) && !is_gathering(&pace));
    }

    #[test]
    fn each_look_at_a_burst_has_a_number_of_its_own() {
        let pace = after(100, 1, Duration::ZERO);
        let (mut seen, mut numbers) = (pace.burst_of_link(), vec![pace.gathering.load(Ordering::Relaxed)]);
        for _ in 0..3 {
            (0..EngineOptions::default().burst).for_each(|_| assert_eq!(pace.begin(1, 1), Turn::Gather));
            assert!(pace.look(&mut seen));
            numbers.push(pace.gathering.load(Ordering::Relaxed));
        }
        (1..LOOKS).for_each(|_| assert!(pace.look(&mut seen)));
        assert!(!pace.look(&mut seen));
        assert_eq!(pace.gathering.load(Ordering::Relaxed), 0);
        while !is_gathering(&pace) {
            let ended = pace.row.lock().ended;
            pace.begin_at(ended, 1, 1);
        }
        numbers.push(pace.gathering.load(Ordering::Relaxed));
        assert!(numbers.is_sorted_by(|one, next| one < next) && numbers[0] > 0);
    }

    #[test]
    fn messages_wait_until_the_last_caller_has_ended() {
        let pace = Pace::new(&EngineOptions::default());
        assert!(!pace.hold(true) && !pace.hold(true));
        assert_eq!(pace.begin(1, 1), Turn::Together);
        assert!(!pace.hold(false) && pace.is_held());
        assert!(pace.hold(false) && !pace.is_held());
        assert!(matches!(pace.begin(1, 1), Turn::AtOnce(_)));
    }

    #[test]
    fn each_time_in_which_a_caller_has_messages_wait_has_a_number_of_its_own() {
        let pace = after(100, 1, Duration::ZERO);
        let (mut seen, number) = (pace.burst_of_link(), || pace.gathering.load(Ordering::Relaxed));
        let mut numbers = vec![number()];
        pace.hold(true);
        numbers.push(number());
        assert_eq!(pace.begin(1, 1), Turn::Gather, "a burst goes on");
        for _ in 0..LOOKS {
            pace.look(&mut seen);
        }
        numbers.push(number());
        assert_eq!(pace.begin(1, 1), Turn::Together);
        pace.hold(false);
        assert!(number() == 0 && matches!(pace.begin(1, 1), Turn::AtOnce(_)));
        pace.hold(true);
        numbers.push(number());
        assert!(numbers.is_sorted_by(|one, next| one < next) && numbers[0] > 0, "{numbers:?}");
    }

    #[test]
    fn many_links_are_given_more_time() {
        let rests = [1, 32, 1000].map(|links| after(100, links, Duration::ZERO).rest());
        assert_eq!(rests.map(|rest| rest.as_micros()), [25, 800, 2500]);
    }
}
