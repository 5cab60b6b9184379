//! A token bucket without fractions: it keeps the time at which the bucket is full again.

use core::{num::NonZeroU64, time::Duration};

/// Limits packets to a rate. After a pause, the packets of one interval may leave at once.
#[derive(Clone, Debug)]
pub(super) struct TokenBucket {
    /// Bits a second. `None` for no limit.
    rate: Option<NonZeroU64>,
    interval: Duration,
    full_at: Duration,
}

impl TokenBucket {
    pub(super) fn new(rate: Option<NonZeroU64>, interval: Duration) -> TokenBucket {
        TokenBucket { rate, interval, full_at: Duration::ZERO }
    }

    /// Whether a packet may leave now.
    pub(super) fn is_open(&self, now: Duration) -> bool {
        self.rate.is_none() || self.full_at.saturating_sub(now) <= self.interval
    }

    /// When a packet may leave.
    pub(super) fn opens_at(&self) -> Duration {
        self.full_at.saturating_sub(self.interval)
    }

    /// Takes the tokens of a packet that leaves now.
    pub(super) fn take(&mut self, bytes: usize, now: Duration) {
        let Some(rate) = self.rate else { return };
        let nanos = (bytes as u128 * 8_000_000_000 / u128::from(rate.get())).min(u128::from(u64::MAX));
        self.full_at = self.full_at.max(now).saturating_add(Duration::from_nanos(nanos as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_earns_one_interval_and_no_more() {
        // A megabyte a second, and 10 ms at once: ten packets of 1000 bytes and the one that
        // overdraws.
        let mut bucket = TokenBucket::new(NonZeroU64::new(8_000_000), Duration::from_millis(10));
        let mut sent = |now| {
            let mut count = 0;
            while bucket.is_open(now) {
                bucket.take(1000, now);
                count += 1;
            }
            count
        };
        assert_eq!(sent(Duration::from_secs(1)), 11);
        assert_eq!(sent(Duration::from_millis(1005)), 5);
        assert_eq!(sent(Duration::from_secs(60)), 11);
        let unlimited = TokenBucket::new(None, Duration::ZERO);
        assert!(unlimited.is_open(Duration::ZERO));
    }
}
