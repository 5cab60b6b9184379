//! When each probe is due, as data without a clock: the owner of a schedule passes the time.

use std::{collections::BTreeMap, time::Duration};

/// The shortest time between two samples of a probe.
pub const SHORTEST: Duration = Duration::from_millis(1);

/// The longest time between two samples of a probe.
pub const LONGEST: Duration = Duration::from_secs(86_400);

/// Probes by number, and when each is due.
///
/// ```
/// use std::time::Duration;
/// use polywire_telemetry::Schedule;
///
/// let (ms, mut schedule) = (Duration::from_millis, Schedule::default());
/// schedule.set(7, ms(100), ms(0));
/// assert_eq!(schedule.due(ms(0)), [7]);
/// assert_eq!((schedule.next(), schedule.due(ms(99))), (Some(ms(100)), vec![]));
/// // After a pause, a probe is due once, and keeps its rhythm.
/// assert_eq!((schedule.due(ms(450)), schedule.next()), (vec![7], Some(ms(500))));
/// schedule.remove(7);
/// assert_eq!(schedule.next(), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    entries: BTreeMap<usize, Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    every: Duration,
    next: Duration,
}

impl Schedule {
    /// Adds a probe that is due at once, or changes how often it is due. Times are clamped to the
    /// range from 1 ms to one day.
    pub fn set(&mut self, probe: usize, every: Duration, now: Duration) {
        self.entries.insert(probe, Entry { every: every.clamp(SHORTEST, LONGEST), next: now });
    }

    /// Removes a probe.
    pub fn remove(&mut self, probe: usize) {
        self.entries.remove(&probe);
    }

    /// Returns the probes that are due, in the order of their numbers, and schedules their next
    /// turns.
    pub fn due(&mut self, now: Duration) -> Vec<usize> {
        let due = self.entries.iter_mut().filter(|(_, entry)| entry.next <= now);
        due.map(|(probe, entry)| {
            let missed = (now - entry.next).as_nanos() / entry.every.as_nanos();
            // After a pause of more turns than fit into 32 bits, a new rhythm begins.
            let turns = u32::try_from(missed + 1);
            entry.next = turns.map_or(now + entry.every, |turns| entry.next + entry.every * turns);
            *probe
        })
        .collect()
    }

    /// Returns the time at which the next probe is due; `None` if there is none.
    pub fn next(&self) -> Option<Duration> {
        self.entries.values().map(|entry| entry.next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_keep_their_rates() {
        let mut schedule = Schedule::default();
        let rates = [(1, Duration::from_millis(10)), (2, Duration::from_millis(25)), (3, Duration::from_secs(1))];
        rates.iter().for_each(|(probe, every)| schedule.set(*probe, *every, Duration::ZERO));
        let mut counts = BTreeMap::new();
        while let Some(next) = schedule.next().filter(|next| *next < Duration::from_secs(2)) {
            schedule.due(next).into_iter().for_each(|probe| *counts.entry(probe).or_insert(0) += 1);
        }
        assert_eq!(counts, BTreeMap::from([(1, 200), (2, 80), (3, 2)]));
        schedule.remove(1);
        assert_eq!(schedule.due(Duration::from_secs(9)), [2, 3]);
    }

    #[test]
    fn extreme_times_are_no_panic() {
        let mut schedule = Schedule::default();
        schedule.set(1, Duration::ZERO, Duration::ZERO);
        assert_eq!(schedule.due(Duration::from_secs(u64::from(u32::MAX) * 10)), [1]);
        schedule.set(1, Duration::MAX, Duration::ZERO);
        assert_eq!((schedule.due(Duration::ZERO), schedule.next()), (vec![1], Some(LONGEST)));
    }
}
