//! The quality of service of one subscriber: which samples it takes, in which order, and which
//! deadlines its writers miss.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire_core::{
    codec::cdr::CDR,
    envelope::{Envelope, Id128},
    qos::{Admission, Arrival, DestinationOrder, History, InstanceState, Offer, Ownership, Qos, Verdict},
};

use crate::{
    clock,
    coding::{Coding, KeyHash},
    history::{self, HistoryBarriers},
    writers,
};

use super::Info;

/// The parts of a writer's offer that apply to each of its samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleTerms {
    pub(super) writer: Id128,
    strength: i32,
    lifespan: Option<Duration>,
}

impl SampleTerms {
    pub(super) fn of(writer: Id128, offer: &Offer) -> SampleTerms {
        let strength = match offer.qos.ownership {
            Ownership::Exclusive { strength } => strength,
            Ownership::Shared => 0,
        };
        SampleTerms { writer, strength, lifespan: offer.qos.lifespan }
    }

    pub(super) fn lifespan(&self) -> Option<Duration> {
        self.lifespan
    }
}

/// A decoded message on its way to the application.
pub(super) struct Pending<V> {
    pub(super) value: V,
    pub(super) info: Info,
    /// The bytes of memory that the message takes.
    pub(super) bytes: usize,
    pub(super) terms: SampleTerms,
}

/// A message that may be held back, and its instance.
pub(super) type Held<V> = (Pending<V>, Id128);

/// The policies of a subscriber, and their state.
pub(super) struct Rules<V> {
    /// Whether instances are distinguished.
    pub(super) by_instance: bool,
    state: Mutex<State<V>>,
    barriers: Mutex<HistoryBarriers<Held<V>>>,
    /// Notified when messages that were held have been passed on.
    pub(super) handed: Condvar,
}

struct State<V> {
    admission: Admission,
    hasher: Hasher<V>,
    /// The number of open channels of each writer.
    writers: BTreeMap<Id128, usize>,
    /// The time for which the timer is set. `None` if it is not set.
    wakes: Option<Duration>,
}

/// Hashes keys; compiled at first use.
enum Hasher<V> {
    Unknown,
    /// The type has no key, or CDR cannot carry it.
    None,
    Known(KeyHash<V>),
}

impl<V> Rules<V> {
    pub(super) fn new(qos: &Qos, instances: bool) -> Rules<V> {
        let state =
            State { admission: Admission::new(qos), hasher: Hasher::Unknown, writers: BTreeMap::new(), wakes: None };
        Rules {
            by_instance: instances || rule_samples(qos),
            state: Mutex::new(state),
            barriers: Mutex::default(),
            handed: Condvar::new(),
        }
    }

    /// The instance that a sample belongs to. [`Id128::ZERO`] if the type has no key, the key is
    /// unknown, or instances are not distinguished.
    pub(super) fn instance<C: Coding<Value = V>>(
        &self,
        coding: &C,
        envelope: &Envelope<'_>,
        empty: bool,
        value: &V,
    ) -> Id128 {
        if !self.by_instance {
            return Id128::ZERO;
        }
        let mut state = self.lock();
        if let Hasher::Unknown = state.hasher {
            state.hasher = coding.key_hasher(&CDR).ok().flatten().map_or(Hasher::None, Hasher::Known);
        }
        let hashed = match &mut state.hasher {
            Hasher::Known(hash) if !empty => hash(value).ok(),
            _ => None,
        };
        hashed.or(envelope.key_hash).unwrap_or_default()
    }

    /// Decides whether to take a sample, and returns the state of its instance after it.
    pub(super) fn admit(&self, pending: &Pending<V>, instance: Id128) -> (Verdict, InstanceState) {
        let Pending { info, terms, .. } = pending;
        let mut state = self.lock();
        let verdict = state.admission.admit(&Arrival {
            instance,
            writer: terms.writer,
            strength: terms.strength,
            lifespan: terms.lifespan,
            kind: info.kind,
            published_ns: info.timestamp_ns,
            now_ns: clock::wall_ns(),
            now: clock::now(),
        });
        (verdict, state.admission.state(instance))
    }

    /// Records that a channel of the writer has opened.
    pub(super) fn opened(&self, writer: Id128) {
        *self.lock().writers.entry(writer).or_default() += 1;
    }

    /// Records that a channel of the writer has ended. Returns the instances that no longer have a
    /// writer.
    pub(super) fn closed(&self, writer: Id128) -> Vec<Id128> {
        let mut state = self.lock();
        let open = state.writers.entry(writer).or_default();
        *open = open.saturating_sub(1);
        if *open > 0 {
            return Vec::new();
        }
        state.writers.remove(&writer);
        state.admission.writer_gone(writer)
    }

    /// Records that the writer's lease has lapsed. Returns the instances that no longer have a
    /// writer.
    pub(super) fn not_alive(&self, writer: Id128) -> Vec<Id128> {
        self.lock().admission.writer_gone(writer)
    }

    /// Returns the instances that have missed the deadline. Called when the timer has woken the
    /// subscriber.
    pub(super) fn missed(&self) -> Vec<Id128> {
        let (now, mut state) = (clock::now(), self.lock());
        state.wakes = None;
        state.admission.missed(now)
    }

    /// Returns when the timer has to wake the subscriber, or `None` if the timer is already set or
    /// not needed. Messages that wait for other channels are checked at short intervals. `lease` is
    /// the time at which the next lease lapses.
    pub(super) fn wake_at(&self, is_holding: bool, lease: Option<Duration>) -> Option<Duration> {
        let holding = is_holding.then(|| clock::now().saturating_add(writers::LOOK_EVERY));
        let waiting = self.barriers().is_any_waiting().then(|| clock::now().saturating_add(history::PATIENCE));
        let mut state = self.lock();
        let next = state.admission.next_deadline().into_iter().chain(waiting).chain(holding).chain(lease).min()?;
        if state.wakes.is_some_and(|wakes| wakes <= next) {
            return None;
        }
        state.wakes = Some(next);
        Some(next)
    }

    /// Locks the barriers, and waits while `is_busy` returns true: other threads are passing
    /// messages on.
    pub(super) fn barriers_unless(
        &self,
        is_busy: impl Fn(&HistoryBarriers<Held<V>>) -> bool,
    ) -> MutexGuard<'_, HistoryBarriers<Held<V>>> {
        let mut barriers = self.barriers();
        self.handed.wait_while(&mut barriers, |barriers| is_busy(barriers));
        barriers
    }

    pub(super) fn barriers(&self) -> MutexGuard<'_, HistoryBarriers<Held<V>>> {
        self.barriers.lock()
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock()
    }
}

/// Whether a policy has to be applied to each sample.
fn rule_samples(qos: &Qos) -> bool {
    let limits = qos.resource_limits;
    qos.deadline.is_some()
        || !qos.time_based_filter.is_zero()
        || qos.ownership != Ownership::Shared
        || qos.destination_order == DestinationOrder::BySource
        || matches!(qos.history, History::KeepLast(_))
        || limits.max_instances.is_some()
        || limits.max_samples_per_instance.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_is_set_for_an_earlier_time_or_after_it_has_woken_the_subscriber() {
        let rules: Rules<()> = Rules::new(&Qos::default(), false);
        let later = clock::now() + Duration::from_secs(3600);
        assert_eq!(rules.wake_at(false, Some(later)), Some(later));
        let due = clock::now();
        assert_eq!(rules.wake_at(false, Some(due)), Some(due));
        assert_eq!(rules.wake_at(false, Some(later)), None, "it is set already");
        rules.missed();
        assert_eq!(rules.wake_at(false, Some(later)), Some(later), "the time has come");
    }
}
