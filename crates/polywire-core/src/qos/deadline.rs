//! Which instances have had no sample for longer than a deadline allows.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::time::Duration;

use crate::envelope::Id128;

/// Watches the instances of a publisher or subscriber. An instance is watched from its first sample
/// on, as in DDS. Times are durations since any one moment.
///
/// ```
/// use core::time::Duration;
/// use polywire_core::{envelope::Id128, qos::Deadlines};
///
/// let ms = Duration::from_millis;
/// let (a, b) = (Id128([1; 16]), Id128([2; 16]));
/// let mut deadlines = Deadlines::new(ms(100));
/// deadlines.came(a, ms(0));
/// deadlines.came(b, ms(50));
/// assert_eq!((deadlines.next(), deadlines.missed(ms(99))), (Some(ms(100)), vec![]));
/// assert_eq!((deadlines.missed(ms(100)), deadlines.next()), (vec![a], Some(ms(150))));
/// deadlines.ended(b);
/// assert_eq!(deadlines.missed(ms(200)), [a], "once each period");
/// ```
#[derive(Clone, Debug)]
pub struct Deadlines {
    period: Duration,
    due: BTreeMap<Id128, Duration>,
    order: BTreeSet<(Duration, Id128)>,
}

impl Deadlines {
    /// Watches for samples that are further apart than `period`.
    pub fn new(period: Duration) -> Deadlines {
        Deadlines { period, due: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// A sample of the instance came.
    pub fn came(&mut self, instance: Id128, now: Duration) {
        let due = now.saturating_add(self.period);
        if let Some(before) = self.due.insert(instance, due) {
            self.order.remove(&(before, instance));
        }
        self.order.insert((due, instance));
    }

    /// The instance has ended: no more samples are due.
    pub fn ended(&mut self, instance: Id128) {
        if let Some(due) = self.due.remove(&instance) {
            self.order.remove(&(due, instance));
        }
    }

    /// The instances that have missed the deadline since the last call. Each is due again one
    /// period from now.
    pub fn missed(&mut self, now: Duration) -> Vec<Id128> {
        let mut missed = Vec::new();
        while let Some((_, instance)) = self.order.first().copied().filter(|(due, _)| *due <= now) {
            missed.push(instance);
            self.came(instance, now.max(Duration::from_nanos(1)));
            if self.period.is_zero() {
                break;
            }
        }
        missed
    }

    /// When the next instance misses its deadline, if no sample comes.
    pub fn next(&self) -> Option<Duration> {
        self.order.first().map(|(due, _)| *due)
    }
}
