//! A histogram of latencies: four buckets for each power of two, from a microsecond to a minute.

use std::sync::atomic::{AtomicU64, Ordering};

use polywire_derive::Message;

/// The number of buckets for each power of two is two to this power.
const PART_BITS: u32 = 2;
/// The first bucket ends at 2^10 ns.
const FIRST_BIT: u32 = 10;
/// The last bucket begins at 2^36 ns.
const LAST_BIT: u32 = 36;
/// The number of buckets.
const BUCKETS: usize = ((LAST_BIT - FIRST_BIT) << PART_BITS) as usize + 2;

/// A distribution of latencies.
///
/// A latency is the time of arrival by the clock of the receiving host minus the time of
/// publication by the clock of the sending host. It is right if both are one host, or if their
/// clocks are synchronised. If the sender's clock is ahead by more than the message took, the
/// difference is negative: such a message counts in `negative`, and in nothing else.
///
/// A subscriber measures the first 64 messages of each channel, and then every eighth. Of messages
/// that a callback gets together, it measures only the first.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::Latencies")]
#[non_exhaustive]
pub struct Latencies {
    /// Measured messages whose latency is not negative.
    pub count: u64,
    /// Sum of their latencies, in nanoseconds.
    pub sum_ns: u64,
    /// Messages that seem to have arrived before they were published.
    pub negative: u64,
    /// Messages by latency. The bucket with index `i` ends at [`Latencies::bound_ns`] of `i`. Empty
    /// if nothing was measured.
    pub buckets: Vec<u64>,
}

impl Latencies {
    /// Returns the upper bound of a bucket in nanoseconds; `None` for the last bucket, which has
    /// none.
    ///
    /// ```
    /// use polywire::stats::Latencies;
    /// assert_eq!([0, 1, 4, 104].map(|i| Latencies::bound_ns(i).unwrap()), [1 << 10, 1280, 1 << 11, 1 << 36]);
    /// assert_eq!(Latencies::bound_ns(105), None);
    /// ```
    pub fn bound_ns(bucket: usize) -> Option<u64> {
        let parts = 1 << PART_BITS;
        let octave = u32::try_from(bucket).ok()? >> PART_BITS;
        let part = bucket as u64 % parts;
        (bucket + 1 < BUCKETS).then(|| (parts + part) << (FIRST_BIT + octave - PART_BITS))
    }

    /// Returns the latency in nanoseconds that a part of the messages, from 0 to 1, did not exceed.
    /// The result is the upper bound of a bucket, at most a quarter above the true value, or 1024
    /// if that is larger. `None` if nothing was measured; `u64::MAX` above 69 s.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let total: u64 = self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count));
        if total == 0 {
            return None;
        }
        let wanted = (part.clamp(0.0, 1.0) * total as f64).ceil().max(1.0) as u64;
        let mut sum = 0u64;
        let within = self.buckets.iter().position(|count| {
            sum = sum.saturating_add(*count);
            sum >= wanted
        });
        Some(within.and_then(Latencies::bound_ns).unwrap_or(u64::MAX))
    }

    /// Returns the distribution of the messages that were added after the state `earlier`.
    ///
    /// ```
    /// use polywire::stats::Latencies;
    /// let mut sum = Latencies::default();
    /// sum.add(&Latencies::default());
    /// assert_eq!(sum.since(&Latencies::default()), sum);
    /// assert_eq!(sum.quantile(0.99), None);
    /// ```
    pub fn since(&self, earlier: &Latencies) -> Latencies {
        let before = |i: usize| earlier.buckets.get(i).copied().unwrap_or(0);
        Latencies {
            count: self.count.saturating_sub(earlier.count),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            negative: self.negative.saturating_sub(earlier.negative),
            buckets: self.buckets.iter().enumerate().map(|(i, count)| count.saturating_sub(before(i))).collect(),
        }
    }

    /// Adds another distribution.
    pub fn add(&mut self, other: &Latencies) {
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.negative = self.negative.saturating_add(other.negative);
        let len = self.buckets.len().max(other.buckets.len()).min(BUCKETS);
        self.buckets.resize(len, 0);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.saturating_add(*more);
        }
    }
}

/// The latencies that one subscriber measures. Several links may add to it.
#[derive(Debug)]
pub(crate) struct Histogram {
    sum_ns: AtomicU64,
    negative: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Histogram { sum_ns: zero(), negative: zero(), buckets: std::array::from_fn(|_| zero()) }
    }
}

impl Histogram {
    /// Adds a message.
    pub(crate) fn add(&self, published_ns: i64, arrived_ns: i64) {
        let Ok(latency) = u64::try_from(arrived_ns.saturating_sub(published_ns)) else {
            self.negative.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.sum_ns.fetch_add(latency, Ordering::Relaxed);
        if let Some(bucket) = self.buckets.get(bucket_of(latency)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The distribution so far.
    pub(crate) fn read(&self) -> Latencies {
        let buckets: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let count = buckets.iter().sum();
        let (sum_ns, negative) = (self.sum_ns.load(Ordering::Relaxed), self.negative.load(Ordering::Relaxed));
        Latencies { count, sum_ns, negative, buckets: if count == 0 { Vec::new() } else { buckets } }
    }
}

/// Returns the index of a latency's bucket. A bucket includes its upper bound, not its lower one.
fn bucket_of(latency_ns: u64) -> usize {
    let below = latency_ns.saturating_sub(1);
    match below.checked_ilog2() {
        Some(bit) if bit >= LAST_BIT => BUCKETS - 1,
        Some(bit) if bit >= FIRST_BIT => {
            let part = (below >> (bit - PART_BITS)) as usize & ((1 << PART_BITS) - 1);
            ((bit - FIRST_BIT) << PART_BITS) as usize + part + 1
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_latency_lies_below_the_bound_of_its_bucket_and_above_the_one_before() {
        let bounds: Vec<u64> = (0..BUCKETS).map_while(Latencies::bound_ns).collect();
        assert_eq!(bounds.len(), BUCKETS - 1);
        assert!(bounds.is_sorted_by(|a, b| a < b));
        for (bucket, bound) in bounds.iter().enumerate() {
            assert_eq!((bucket_of(*bound), bucket_of(bound + 1)), (bucket, bucket + 1), "{bound}");
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn quantiles_are_at_most_a_quarter_too_large() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|us| histogram.add(0, us * 1000));
        histogram.add(5, 4);
        let latencies = histogram.read();
        assert_eq!((latencies.count, latencies.negative, latencies.sum_ns), (1000, 1, 500_500_000));
        for (part, exact) in [(0.5, 500_000u64), (0.99, 990_000), (1.0, 1_000_000)] {
            let found = latencies.quantile(part).expect("something was measured");
            assert!((exact..=exact * 5 / 4).contains(&found), "{part}: {found}");
        }
        assert_eq!(Latencies::default().quantile(0.5), None);
        let mut twice = latencies.clone();
        twice.add(&latencies);
        assert_eq!(twice.since(&latencies), latencies);
    }
}
