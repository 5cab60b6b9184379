//! Which samples a subscriber takes: lifespan, ownership, destination order, the time-based filter,
//! limits and the state of instances.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::time::Duration;

use super::{Deadlines, DestinationOrder, Ownership, Qos};
use crate::envelope::{Id128, Kind};

/// Instances that a subscriber knows at a time, if [`ResourceLimits`](super::ResourceLimits) does
/// not say.
const MAX_INSTANCES: usize = 1 << 16;

/// A sample that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Hash of the key; [`Id128::ZERO`] if the type has none.
    pub instance: Id128,
    /// The writer.
    pub writer: Id128,
    /// The strength that the writer offers.
    pub strength: i32,
    /// The lifespan that the writer offers.
    pub lifespan: Option<Duration>,
    /// Data, or the end of the instance.
    pub kind: Kind,
    /// When it was published, by the writer's clock, in nanoseconds since 1970.
    pub published_ns: i64,
    /// The present time by this node's clock, in nanoseconds since 1970. Lifespans compare it with
    /// `published_ns`, as DDS does, so the clocks of both nodes must agree.
    pub now_ns: i64,
    /// The present time since any one moment, by a clock that never jumps.
    pub now: Duration,
}

/// What happens to a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The subscriber gets it.
    Take,
    /// Its lifespan is over.
    Expired,
    /// A stronger writer owns the instance.
    NotOwner,
    /// A sample that was published later has come before it.
    Superseded,
    /// It follows the last one too closely for the time-based filter.
    Filtered,
    /// It begins an instance, and the subscriber has as many as it may have.
    Rejected,
}

/// The state of an instance, as a subscriber sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InstanceState {
    /// It has a value and a writer.
    #[default]
    Alive,
    /// A writer has disposed of it.
    Disposed,
    /// All its writers have unregistered it or are gone.
    NoWriters,
}

/// A subscriber's rules and the instances that it knows.
///
/// ```
/// use core::time::Duration;
/// use polywire_core::{envelope::{Id128, Kind}, qos::{Admission, Arrival, InstanceState, Qos, Verdict}};
///
/// let writer = |id: u8| Arrival {
///     instance: Id128([7; 16]), writer: Id128([id; 16]), strength: id.into(), lifespan: None, kind: Kind::Data,
///     published_ns: 0, now_ns: 0, now: Duration::ZERO,
/// };
/// let mut admission = Admission::new(&Qos::default().exclusive(0));
/// assert_eq!(admission.admit(&writer(1)), Verdict::Take);
/// assert_eq!((admission.admit(&writer(2)), admission.admit(&writer(1))), (Verdict::Take, Verdict::NotOwner));
/// assert!(admission.writer_gone(writer(2).writer).is_empty());
/// assert_eq!(admission.admit(&writer(1)), Verdict::Take);
/// assert_eq!(admission.state(Id128([7; 16])), InstanceState::Alive);
/// assert_eq!(admission.writer_gone(writer(1).writer), [Id128([7; 16])]);
/// assert_eq!(admission.state(Id128([7; 16])), InstanceState::NoWriters);
/// ```
#[derive(Clone, Debug)]
pub struct Admission {
    exclusive: bool,
    by_source: bool,
    separation_ns: i64,
    max_instances: usize,
    deadlines: Option<Deadlines>,
    instances: BTreeMap<Id128, Instance>,
    /// The instances that are not alive.
    ended: BTreeSet<Id128>,
}

#[derive(Clone, Debug, Default)]
struct Instance {
    state: InstanceState,
    writers: Vec<Id128>,
    owner: Option<(i32, Id128)>,
    /// Publication of the last data taken, for the time-based filter.
    last: Option<i64>,
    /// Publication of the latest data or disposal, and its writer, for the order by source.
    latest: Option<(i64, Id128)>,
}

impl Admission {
    /// The rules of a subscriber that requests these policies.
    pub fn new(qos: &Qos) -> Admission {
        Admission {
            exclusive: matches!(qos.ownership, Ownership::Exclusive { .. }),
            by_source: qos.destination_order == DestinationOrder::BySource,
            separation_ns: i64::try_from(qos.time_based_filter.as_nanos()).unwrap_or(i64::MAX),
            max_instances: qos.resource_limits.max_instances.map_or(MAX_INSTANCES, |limit| limit as usize),
            deadlines: qos.deadline.map(Deadlines::new),
            instances: BTreeMap::new(),
            ended: BTreeSet::new(),
        }
    }

    /// Decides on a sample, and remembers it if it is taken.
    pub fn admit(&mut self, arrival: &Arrival) -> Verdict {
        let Arrival { instance, writer, strength, kind, published_ns, .. } = *arrival;
        let is_end = matches!(kind, Kind::Dispose | Kind::Unregister);
        let expires = expires_ns(published_ns, arrival.lifespan).filter(|_| !is_end);
        if expires.is_some_and(|expires| expires <= arrival.now_ns) {
            return Verdict::Expired;
        }
        if !self.instances.contains_key(&instance) && !self.has_room() {
            return Verdict::Rejected;
        }
        let known = self.instances.entry(instance).or_default();
        if !known.writers.contains(&writer) {
            known.writers.push(writer);
        }
        if self.exclusive && !known.owned_by(strength, writer) {
            if kind == Kind::Unregister {
                known.writers.retain(|other| *other != writer);
            }
            return Verdict::NotOwner;
        }
        let is_superseded = self.by_source && known.latest.is_some_and(|latest| (published_ns, writer) < latest);
        if is_superseded && kind != Kind::Unregister {
            return Verdict::Superseded;
        }
        let elapsed = |last: i64| published_ns.saturating_sub(last).saturating_abs();
        if !is_end && known.last.is_some_and(|last| elapsed(last) < self.separation_ns) {
            return Verdict::Filtered;
        }
        let before = known.state;
        match kind {
            Kind::Dispose => (known.state, known.latest) = (InstanceState::Disposed, Some((published_ns, writer))),
            Kind::Unregister => known.leave(writer),
            _ => {
                known.state = InstanceState::Alive;
                (known.last, known.latest) = (Some(published_ns), Some((published_ns, writer)));
            }
        }
        let after = known.state;
        // A writer leaves at any time, but only the end of the instance is news then.
        if is_superseded && after == before {
            return Verdict::Superseded;
        }
        if after != before {
            match after {
                InstanceState::Alive => self.ended.remove(&instance),
                _ => self.ended.insert(instance),
            };
        }
        if let Some(deadlines) = &mut self.deadlines {
            match after {
                InstanceState::Alive => deadlines.came(instance, arrival.now),
                _ => deadlines.ended(instance),
            }
        }
        Verdict::Take
    }

    /// A writer has left or is no longer alive. Gives the instances that now have no writer.
    pub fn writer_gone(&mut self, writer: Id128) -> Vec<Id128> {
        let mut orphans = Vec::new();
        for (id, known) in self.instances.iter_mut().filter(|(_, known)| known.writers.contains(&writer)) {
            let before = known.state;
            known.leave(writer);
            if known.state != before {
                orphans.push(*id);
                self.ended.insert(*id);
                self.deadlines.iter_mut().for_each(|deadlines| deadlines.ended(*id));
            }
        }
        orphans
    }

    /// The instances that have missed the deadline since the last call. Their owners lose them, so
    /// that a weaker writer can take over.
    ///
    /// ```
    /// # use core::time::Duration;
    /// use polywire_core::qos::{Admission, Qos};
    /// let mut admission = Admission::new(&Qos::default().deadline(Duration::from_secs(1)));
    /// assert_eq!((admission.next_deadline(), admission.missed(Duration::from_secs(9))), (None, vec![]));
    /// ```
    pub fn missed(&mut self, now: Duration) -> Vec<Id128> {
        let missed = self.deadlines.as_mut().map_or_else(Vec::new, |deadlines| deadlines.missed(now));
        for instance in &missed {
            if let Some(known) = self.instances.get_mut(instance) {
                known.owner = None;
            }
        }
        missed
    }

    /// When the next instance misses its deadline, if no sample comes.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.as_ref().and_then(Deadlines::next)
    }

    /// The state of an instance. Unknown ones have no writers.
    pub fn state(&self, instance: Id128) -> InstanceState {
        self.instances.get(&instance).map_or(InstanceState::NoWriters, |known| known.state)
    }

    /// Whether one more instance fits. Makes room by forgetting one that has ended.
    fn has_room(&mut self) -> bool {
        if self.instances.len() < self.max_instances {
            return true;
        }
        self.ended.pop_first().is_some_and(|id| self.instances.remove(&id).is_some())
    }
}

impl Instance {
    /// Whether the writer owns the instance, which it takes from a weaker one. Of two equally
    /// strong ones, the one with the larger id is the stronger one, at all subscribers.
    fn owned_by(&mut self, strength: i32, writer: Id128) -> bool {
        match self.owner {
            Some((_, owner)) if owner == writer => self.owner = Some((strength, writer)),
            Some(owner) if owner > (strength, writer) => return false,
            _ => self.owner = Some((strength, writer)),
        }
        true
    }

    fn leave(&mut self, writer: Id128) {
        self.writers.retain(|other| *other != writer);
        self.owner.take_if(|owner| owner.1 == writer);
        if self.writers.is_empty() && self.state == InstanceState::Alive {
            self.state = InstanceState::NoWriters;
        }
    }
}

/// When a sample expires, in nanoseconds since 1970; `None` for never.
///
/// ```
/// use core::time::Duration;
/// use polywire_core::qos::expires_ns;
/// assert_eq!((expires_ns(5, Some(Duration::from_nanos(10))), expires_ns(5, None)), (Some(15), None));
/// ```
pub fn expires_ns(published_ns: i64, lifespan: Option<Duration>) -> Option<i64> {
    lifespan.map(|lifespan| published_ns.saturating_add(i64::try_from(lifespan.as_nanos()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Id128 = Id128([1; 16]);
    const B: Id128 = Id128([2; 16]);

    fn at(instance: Id128, writer: Id128, ms: i64) -> Arrival {
        Arrival {
            instance,
            writer,
            strength: 0,
            lifespan: None,
            kind: Kind::Data,
            published_ns: ms * 1_000_000,
            now_ns: ms * 1_000_000,
            now: Duration::from_millis(ms.unsigned_abs()),
        }
    }

    fn admission(text: &str) -> Admission {
        Admission::new(&text.parse().expect(text))
    }

    #[test]
    fn a_filter_separates_the_samples_of_each_instance() {
        let mut all = admission("time-based-filter=10ms");
        let taken = |all: &mut Admission, instance, times: &[i64]| -> Vec<i64> {
            times.iter().copied().filter(|ms| all.admit(&at(instance, A, *ms)) == Verdict::Take).collect()
        };
        assert_eq!(taken(&mut all, A, &[0, 4, 9, 10, 15, 25, 26]), [0, 10, 25]);
        assert_eq!(taken(&mut all, B, &[26]), [26]);
        assert_eq!(taken(&mut all, A, &[-100, -95]), [-100], "the writer's clock was set back");
        assert_eq!(all.admit(&Arrival { kind: Kind::Dispose, ..at(A, A, -99) }), Verdict::Take, "ends pass");
    }

    #[test]
    fn what_is_too_old_has_expired() {
        let mut all = admission("default");
        let sample =
            |age: i64| Arrival { lifespan: Some(Duration::from_millis(10)), now_ns: age * 1_000_000, ..at(A, A, 0) };
        assert_eq!((all.admit(&sample(9)), all.admit(&sample(10))), (Verdict::Take, Verdict::Expired));
        let forever = Arrival { lifespan: Some(Duration::MAX), now_ns: i64::MAX - 1, ..at(A, A, 1) };
        assert_eq!(all.admit(&forever), Verdict::Take);
    }

    #[test]
    fn by_source_the_latest_value_stays() {
        let mut all = admission("destination-order=by-source");
        assert_eq!((all.admit(&at(A, A, 5)), all.admit(&at(A, B, 4))), (Verdict::Take, Verdict::Superseded));
        assert_eq!((all.admit(&at(B, B, 4)), all.admit(&at(A, B, 5))), (Verdict::Take, Verdict::Take));
        assert_eq!(all.admit(&at(A, A, 5)), Verdict::Superseded, "equal times: the larger id is the later one");
        assert_eq!(admission("default").admit(&at(A, A, 5)), Verdict::Take);
    }

    #[test]
    fn by_source_a_clock_that_was_set_back_is_waited_for() {
        let mut all = admission("destination-order=by-source");
        let taken: Vec<i64> = [100, 101, 90, 100, 101, 9000, 9001]
            .into_iter()
            .filter(|ms| all.admit(&at(A, A, *ms)) == Verdict::Take)
            .collect();
        assert_eq!(taken, [100, 101, 101, 9000, 9001]);
        let mut by_reception = admission("default");
        assert!([100, 101, 90].iter().all(|ms| by_reception.admit(&at(A, A, *ms)) == Verdict::Take));
    }

    #[test]
    fn by_source_a_disposal_counts_as_a_value() {
        let dispose = |ms| Arrival { kind: Kind::Dispose, ..at(A, A, ms) };
        for order in [[dispose(10), at(A, B, 8)], [at(A, B, 8), dispose(10)]] {
            let mut all = admission("destination-order=by-source");
            order.iter().for_each(|arrival| {
                all.admit(arrival);
            });
            assert_eq!(all.state(A), InstanceState::Disposed);
            assert_eq!((all.admit(&at(A, B, 11)), all.admit(&dispose(10))), (Verdict::Take, Verdict::Superseded));
            assert_eq!(all.state(A), InstanceState::Alive);
        }
        let mut filtered = admission("time-based-filter=10ms");
        assert_eq!((filtered.admit(&dispose(0)), filtered.admit(&at(A, A, 1))), (Verdict::Take, Verdict::Take));
    }

    #[test]
    fn by_source_a_writer_leaves_however_late_its_end_comes() {
        let mut all = admission("destination-order=by-source,deadline=100ms");
        let unregister = |writer, ms| Arrival { kind: Kind::Unregister, ..at(A, writer, ms) };
        assert_eq!((all.admit(&at(A, A, 5)), all.admit(&at(A, B, 10))), (Verdict::Take, Verdict::Take));
        assert_eq!((all.admit(&unregister(A, 6)), all.state(A)), (Verdict::Superseded, InstanceState::Alive));
        assert_eq!((all.admit(&unregister(B, 7)), all.state(A)), (Verdict::Take, InstanceState::NoWriters));
        assert_eq!(all.next_deadline(), None);
        assert_eq!((all.admit(&at(A, A, 12)), all.state(A)), (Verdict::Take, InstanceState::Alive));
    }

    #[test]
    fn ends_do_not_expire() {
        let mut all = admission("default");
        let late =
            |kind, ms| Arrival { kind, lifespan: Some(Duration::from_millis(1)), now_ns: i64::MAX, ..at(A, A, ms) };
        assert_eq!(all.admit(&at(A, A, 0)), Verdict::Take);
        assert_eq!((all.admit(&late(Kind::Data, 1)), all.state(A)), (Verdict::Expired, InstanceState::Alive));
        assert_eq!((all.admit(&late(Kind::Unregister, 2)), all.state(A)), (Verdict::Take, InstanceState::NoWriters));
        assert_eq!((all.admit(&late(Kind::Dispose, 3)), all.state(A)), (Verdict::Take, InstanceState::Disposed));
    }

    #[test]
    fn the_instances_that_have_ended_are_known() {
        let mut all = admission("max-instances=3");
        let c = Id128([3; 16]);
        for instance in [A, B, c] {
            assert_eq!(all.admit(&at(instance, instance, 0)), Verdict::Take);
        }
        assert_eq!(all.writer_gone(B), [B]);
        all.admit(&Arrival { kind: Kind::Dispose, ..at(A, A, 1) });
        all.admit(&Arrival { kind: Kind::Unregister, ..at(c, c, 1) });
        all.admit(&at(A, A, 2));
        assert!(all.ended.iter().eq(&[B, c]));
        assert_eq!(all.admit(&at(Id128([4; 16]), A, 3)), Verdict::Take);
        assert!(all.ended.iter().eq(&[c]) && all.state(B) == InstanceState::NoWriters);
    }

    #[test]
    fn deadlines_are_missed_by_the_clock_that_never_jumps() {
        let mut all = admission("deadline=100ms");
        let wall = |published: i64, steady| Arrival { now: Duration::from_millis(steady), ..at(A, A, published) };
        // A day ahead, and two days back.
        for (published, steady) in [(0, 0), (86_400_000, 90), (-86_400_000, 180)] {
            assert_eq!(all.missed(Duration::from_millis(steady)), []);
            assert_eq!(all.admit(&wall(published, steady)), Verdict::Take);
        }
        assert_eq!((all.missed(Duration::from_millis(279)), all.missed(Duration::from_millis(280))), (vec![], vec![A]));
    }

    #[test]
    fn a_missed_deadline_ends_ownership() {
        let mut all = admission("ownership=exclusive,deadline=100ms");
        let strong = |ms| Arrival { strength: 9, ..at(A, A, ms) };
        assert_eq!((all.admit(&strong(0)), all.admit(&at(A, B, 1))), (Verdict::Take, Verdict::NotOwner));
        assert_eq!(all.next_deadline(), Some(Duration::from_millis(100)));
        assert_eq!(all.missed(Duration::from_millis(100)), [A]);
        assert_eq!((all.admit(&at(A, B, 101)), all.admit(&strong(102))), (Verdict::Take, Verdict::Take));
    }

    #[test]
    fn equally_strong_writers_are_told_apart_alike_everywhere() {
        for order in [[A, B], [B, A]] {
            let mut all = admission("ownership=exclusive");
            order.iter().for_each(|writer| {
                all.admit(&at(A, *writer, 0));
            });
            assert_eq!((all.admit(&at(A, A, 1)), all.admit(&at(A, B, 1))), (Verdict::NotOwner, Verdict::Take));
        }
    }

    #[test]
    fn instances_end_and_begin_again() {
        let mut all = admission("deadline=100ms");
        let kind = |kind, writer| Arrival { kind, ..at(A, writer, 0) };
        assert_eq!(all.state(A), InstanceState::NoWriters);
        for (arrival, expected) in [
            (kind(Kind::Data, A), InstanceState::Alive),
            (kind(Kind::Data, B), InstanceState::Alive),
            (kind(Kind::Unregister, A), InstanceState::Alive),
            (kind(Kind::Unregister, B), InstanceState::NoWriters),
            (kind(Kind::Data, B), InstanceState::Alive),
            (kind(Kind::Dispose, B), InstanceState::Disposed),
        ] {
            assert_eq!((all.admit(&arrival), all.state(A)), (Verdict::Take, expected));
            assert_eq!(all.next_deadline().is_some(), expected == InstanceState::Alive);
        }
        assert!(all.writer_gone(B).is_empty(), "it stays disposed of");
    }

    #[test]
    fn as_many_instances_as_allowed() {
        let mut all = admission("max-instances=2");
        let c = Id128([3; 16]);
        assert_eq!((all.admit(&at(A, A, 0)), all.admit(&at(B, A, 0))), (Verdict::Take, Verdict::Take));
        assert_eq!((all.admit(&at(c, A, 0)), all.admit(&at(B, A, 1))), (Verdict::Rejected, Verdict::Take));
        assert_eq!(all.admit(&Arrival { kind: Kind::Dispose, ..at(A, A, 2) }), Verdict::Take);
        assert_eq!(all.admit(&at(c, A, 3)), Verdict::Take, "the one that has ended makes room");
    }
}
