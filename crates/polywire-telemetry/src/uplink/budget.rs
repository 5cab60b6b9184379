//! The byte budget of a node: thins, then batches, then drops by priority.

use std::{collections::BTreeMap, time::Duration};

use super::rule::MAX_PRIORITY;
use crate::packet::Reduction;

/// How often the demand is compared with the budget.
const WINDOW: Duration = Duration::from_secs(1);

/// The intervals of thinning, one for each of the first steps.
const INTERVALS_S: [f64; 6] = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0];

/// How long samples are delayed when batching is active.
const BATCH: Duration = Duration::from_secs(5);

/// The overhead of a node packet apart from its data packets: its own header, request and reply.
const PACKET_BYTES: f64 = 160.0;

/// The fraction of the budget for samples. The rest is for descriptions of streams.
const PLANNED: f64 = 0.9;

/// The minimum fraction of the budget for new samples while there is a backlog; the rest is for the
/// backlog.
const PLANNED_BEHIND: f64 = 0.45;

/// The time in which the backlog is to be sent, if that leaves [`PLANNED_BEHIND`] for new samples.
const CATCH_UP_S: f64 = 10.0;

/// The number of consecutive windows in which a lower step must suffice before it is chosen.
const PATIENCE: u32 = 5;

/// The number of the step that adds batching. The steps below it are thinning.
const BATCHING: usize = INTERVALS_S.len() + 1;

/// The number of the last step, which drops all priorities except the highest.
const LAST: usize = BATCHING + MAX_PRIORITY as usize;

#[derive(Debug)]
pub struct Budget {
    bytes_per_s: f64,
    /// The number of bytes that may be sent now. Negative after a packet that exceeded the credit.
    credit: f64,
    credited: Duration,
    window: Duration,
    /// The demand of each stream in the current window.
    offered: BTreeMap<u32, Demand>,
    sent_packets: u32,
    step: usize,
    calm: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    priority: u8,
    samples: f64,
    bytes: f64,
}

impl Budget {
    /// Makes a budget of this number of bytes a second.
    pub fn new(bytes_per_s: u64, now: Duration) -> Budget {
        let bytes_per_s = bytes_per_s.max(1) as f64;
        let (offered, sent_packets) = (BTreeMap::new(), 0);
        Budget { bytes_per_s, credit: bytes_per_s, credited: now, window: now, offered, sent_packets, step: 0, calm: 0 }
    }

    /// Counts a sample as demand, whether it is sent or left out.
    pub fn offer(&mut self, stream: u32, priority: u8, bytes: usize) {
        let demand = self.offered.entry(stream).or_default();
        demand.priority = priority;
        demand.samples += 1.0;
        demand.bytes += bytes as f64;
    }

    /// Counts a packet that was sent, also if it was a retransmission.
    pub fn spend(&mut self, bytes: usize) {
        self.credit -= bytes as f64;
        self.sent_packets += 1;
    }

    /// Chooses the step when a window ends. `waiting_bytes` is the size of the backlog.
    pub fn turn(&mut self, now: Duration, waiting_bytes: u64) {
        let earned = now.saturating_sub(self.credited).as_secs_f64() * self.bytes_per_s;
        self.credit = (self.credit + earned).min(self.bytes_per_s);
        self.credited = self.credited.max(now);
        let elapsed = now.saturating_sub(self.window);
        if elapsed < WINDOW {
            return;
        }
        let behind = (waiting_bytes as f64 - self.bytes_per_s).max(0.0) / CATCH_UP_S;
        let planned = (PLANNED * self.bytes_per_s - behind).max(PLANNED_BEHIND * self.bytes_per_s);
        let enough = (0..=LAST).find(|step| self.cost(*step, elapsed.as_secs_f64()) <= planned);
        let wanted = enough.unwrap_or(LAST);
        self.calm = if wanted < self.step { self.calm + 1 } else { 0 };
        if wanted > self.step || self.calm >= PATIENCE {
            (self.step, self.calm) = (wanted, 0);
        }
        (self.window, self.sent_packets) = (now, 0);
        self.offered.clear();
    }

    /// Returns the bytes a second at a step, if the demand remains that of this window.
    fn cost(&self, step: usize, elapsed_s: f64) -> f64 {
        let (interval, lowest) = (interval(step), lowest(step));
        let kept = self.offered.values().filter(|demand| demand.priority >= lowest);
        let (mut bytes, mut samples) = (0.0, 0.0);
        for demand in kept {
            let rate = demand.samples / elapsed_s;
            let sent = interval.map_or(rate, |interval| rate.min(interval.recip()));
            samples += sent;
            bytes += sent * demand.bytes / demand.samples;
        }
        // A packet has at least one sample.
        let packets = if step >= BATCHING { BATCH.as_secs_f64().recip() } else { samples };
        bytes + packets.min(f64::from(self.sent_packets) / elapsed_s).min(samples) * PACKET_BYTES
    }

    /// Returns the minimum time between two samples of an instance.
    pub fn interval(&self) -> Option<Duration> {
        interval(self.step).map(Duration::from_secs_f64)
    }

    /// Returns whether samples of this priority are left out.
    pub fn drops(&self, priority: u8) -> bool {
        priority < lowest(self.step)
    }

    /// Returns the maximum size of a packet in bytes, so that a packet takes at most a second.
    pub fn packet_bytes(&self) -> usize {
        self.bytes_per_s as usize
    }

    /// Returns how long samples are delayed, if batching is active.
    pub fn batch(&self) -> Option<Duration> {
        (self.step >= BATCHING).then_some(BATCH)
    }

    /// Returns the time until a packet may be sent.
    pub fn wait(&self) -> Duration {
        Duration::from_secs_f64((-self.credit / self.bytes_per_s).max(0.0))
    }

    pub fn reduction(&self) -> Reduction {
        match self.step {
            0 => Reduction::None,
            step if step < BATCHING => Reduction::Thinning,
            BATCHING => Reduction::Batching,
            _ => Reduction::Dropping,
        }
    }
}

fn interval(step: usize) -> Option<f64> {
    step.checked_sub(1).map(|step| INTERVALS_S[step.min(INTERVALS_S.len() - 1)])
}

/// Returns the lowest priority that is sent.
fn lowest(step: usize) -> u8 {
    u8::try_from(step.saturating_sub(BATCHING)).unwrap_or(MAX_PRIORITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers samples of 100 bytes of two streams for some seconds, and returns the last step.
    fn run(budget: &mut Budget, from_s: u64, seconds: u64, hz: u32) -> (Reduction, Option<Duration>) {
        for second in from_s..from_s + seconds {
            for _ in 0..hz {
                budget.offer(1, 2, 100);
                budget.offer(2, 7, 100);
            }
            budget.sent_packets = hz.min(20);
            budget.turn(Duration::from_secs(second + 1), 0);
        }
        (budget.reduction(), budget.interval())
    }

    #[test]
    fn it_thins_then_batches_then_drops_by_priority_and_returns() {
        let seconds = |s| Some(Duration::from_secs_f64(s));
        let mut budget = Budget::new(10_000, Duration::ZERO);
        assert_eq!(run(&mut budget, 0, 3, 10), (Reduction::None, None));
        assert_eq!(run(&mut budget, 3, 1, 100), (Reduction::Thinning, seconds(0.5)));
        // The step remains for a few windows.
        assert_eq!(run(&mut budget, 4, 4, 10), (Reduction::Thinning, seconds(0.5)));
        assert_eq!(run(&mut budget, 8, 1, 10), (Reduction::None, None));
        let mut thin = Budget::new(40, Duration::ZERO);
        assert_eq!(run(&mut thin, 0, 1, 100), (Reduction::Thinning, seconds(16.0)));
        let mut thinner = Budget::new(12, Duration::ZERO);
        assert_eq!(run(&mut thinner, 0, 1, 100), (Reduction::Dropping, seconds(16.0)));
        assert!(thinner.drops(2) && thinner.batch().is_some());
        // Batching helps nodes with many instances.
        let mut many = Budget::new(200, Duration::ZERO);
        (0..1000).for_each(|stream| many.offer(stream % 100, 5, 10));
        many.sent_packets = 20;
        many.turn(Duration::from_secs(1), 0);
        assert_eq!((many.reduction(), many.drops(0), many.batch().is_some()), (Reduction::Batching, false, true));
    }

    #[test]
    fn credit_is_at_most_a_second() {
        let mut budget = Budget::new(1000, Duration::ZERO);
        budget.turn(Duration::from_secs(100), 0);
        budget.spend(3000);
        assert_eq!(budget.wait(), Duration::from_secs(2));
        budget.turn(Duration::from_secs(101), 0);
        assert_eq!(budget.wait(), Duration::from_secs(1));
        // A clock that goes backwards adds no credit.
        budget.turn(Duration::from_secs(50), 0);
        budget.turn(Duration::from_secs(101), 0);
        assert_eq!(budget.wait(), Duration::from_secs(1));
    }
}
