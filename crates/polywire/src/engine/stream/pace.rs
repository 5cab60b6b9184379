//! Decides when messages follow each other so closely that gathering them pays off. A port decides
//! for all its links together: the time of writing to one link is no pause of the publisher.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::engine::EngineOptions;

/// A message continues a burst if it follows at most this long after the port has handed the
/// previous one to its links. Messages published together have this time each, since they were
/// encoded in it.
const CALM: Duration = Duration::from_micros(2);
/// A later message also continues the burst if the pause is at most 1/`SHARE` of the time that
/// handing over the previous message took. The publisher then spends most of its time writing.
const SHARE: u32 = 4;
/// A burst is over after this many consecutive checks at which a flusher finds few new messages.
/// After fewer checks, the publisher may only have waited for a processor.
const LOOKS: u32 = 4;
/// Longest time that messages are gathered, however many links a port has.
const LONGEST_GATHER: Duration = Duration::from_millis(5);

/// Recognises bursts of messages at one port. While messages are gathered, publishers do not read
/// the clock: the links' flushers check periodically whether the burst is over.
pub(super) struct Pace {
    burst: u32,
    gather: Duration,
    /// 0 unless messages wait to be written together. Otherwise a number that changes with each
    /// check of a flusher and each call of [`Pace::hold`]: odd in a burst, and even if messages
    /// only wait for callers that publish several.
    gathering: Arc<AtomicU64>,
    /// The number of messages of all bursts so far.
    gathered: AtomicU64,
    links: AtomicU64,
    row: Mutex<Row>,
    waits: Mutex<Waits>,
}

/// Why messages wait to be written together.
#[derive(Default)]
struct Waits {
    in_burst: bool,
    /// The number of callers that are publishing several messages, which are to leave together.
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

/// When a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// At once. The call to publish it began at this time.
    AtOnce(Instant),
    /// Later, by the flusher, with other messages of a burst.
    Gather,
    /// Together with others that a caller publishes.
    Together,
}

/// The state of one link in a burst of its port.
#[derive(Default)]
pub(super) struct Burst {
    /// Messages are gathered, and the flusher checks periodically whether to write them.
    pub(super) gathering: bool,
    /// What [`Pace::look`] needs: the count of `gathered` messages at the last check, and the
    /// number of consecutive checks at which few messages were new.
    pub(super) seen: u64,
    pub(super) quiet: u32,
    /// The queue was written since the flusher's last check.
    pub(super) written: bool,
    /// The flusher has asked the publisher of the next message to write the queue.
    pub(super) asked: bool,
    /// How many messages the link had at the flusher's last check.
    pub(super) handed: u64,
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

    /// Decides when to write messages that are published together and go to `links` links. The
    /// caller calls [`end`](Pace::end) after it has handed them over.
    #[inline(always)]
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

    /// Returns whether messages wait only until callers have published all of theirs, and not for a
    /// burst.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        let number = self.gathering.load(Ordering::Relaxed);
        number > 0 && !is_burst(number)
    }

    /// Notes that a caller begins or ends to publish messages that are to leave together. Returns
    /// whether the last such caller has ended.
    pub(super) fn hold(&self, begins: bool) -> bool {
        self.change(|waits| waits.held = if begins { waits.held + 1 } else { waits.held - 1 }) == 0 && !begins
    }

    /// Changes why messages wait. Returns the number of callers for which they wait.
    fn change(&self, change: impl FnOnce(&mut Waits)) -> usize {
        let mut waits = self.waits.lock();
        change(&mut waits);
        waits.number += 2;
        let number = if waits.in_burst || waits.held > 0 { waits.number + u64::from(waits.in_burst) } else { 0 };
        self.gathering.store(number, Ordering::Relaxed);
        waits.held
    }

    #[inline(never)]
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

    /// Counts gathered messages. If several threads publish at the same moment, some messages may
    /// not be counted: adding atomically costs as much as a lock.
    #[inline]
    fn count(&self, messages: usize) {
        self.gathered.store(self.gathered.load(Ordering::Relaxed) + messages as u64, Ordering::Relaxed);
    }

    /// Notes that the messages of a turn were handed to all links.
    #[inline]
    pub(super) fn end(&self, turn: Turn) {
        if let Turn::AtOnce(began) = turn {
            self.end_row(began);
        }
    }

    #[inline(never)]
    fn end_row(&self, began: Instant) {
        let mut row = self.row.lock();
        row.ended = Instant::now();
        row.took = row.ended.saturating_duration_since(began);
    }

    /// Returns the state of a link that begins to gather messages now.
    pub(super) fn burst_of_link(&self) -> Burst {
        Burst { gathering: true, seen: self.gathered(), ..Burst::default() }
    }

    fn gathered(&self) -> u64 {
        self.gathered.load(Ordering::Relaxed)
    }

    /// Returns how long a flusher waits between two checks of its link.
    pub(super) fn rest(&self) -> Duration {
        let links = u32::try_from(self.links.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let most = LONGEST_GATHER.max(self.gather);
        self.gather.saturating_mul(links).min(most) / 2
    }

    /// Called by a flusher after each [`rest`](Pace::rest). Returns false if the burst is over,
    /// because fewer messages than begin a burst were new at each of the last checks.
    pub(super) fn look(&self, burst: &mut Burst) -> bool {
        let gathered = self.gathered();
        // The count decreases if a thread was suspended while it added. Messages were published
        // then, too.
        let is_quiet = gathered.wrapping_sub(burst.seen) < u64::from(self.burst);
        burst.quiet = if is_quiet { burst.quiet + 1 } else { 0 };
        burst.seen = gathered;
        let is_over = burst.quiet >= LOOKS || !is_burst(self.gathering.load(Ordering::Relaxed));
        self.change(|waits| waits.in_burst = !is_over);
        !is_over
    }
}

/// Returns whether a number of [`Pace::gathering`] says that there is a burst.
#[inline]
fn is_burst(number: u64) -> bool {
    number % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pace of a port with `links` links, after `messages` messages, each of which was
    /// published `pause` after the previous one was written to all links.
    fn after(messages: u32, links: usize, pause: Duration) -> Pace {
        after_calls(messages, 1, links, pause)
    }

    /// Returns the pace of a port after calls with `messages` messages each.
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
