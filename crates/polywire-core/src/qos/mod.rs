//! Quality of service: the policies of DDS (OMG DDS 1.4, section 2.2.3) under DDS's names, as data.
//!
//! A [`Qos`] says what a publisher offers or what a subscriber requests. [`compatible`] compares
//! the two, [`Qos::set`] and `Display` read and write them as text, and [`Offer`] is what travels
//! with an announcement. [`Admission`] has the rules by which a subscriber takes or drops samples.
//! Nothing here reads a clock; the node in the crate `polywire` enforces the policies.
//!
//! ```
//! use core::time::Duration;
//! use polywire_core::qos::{Durability, History, Qos, Reliability, compatible};
//!
//! let offered = Qos::default().reliability(Reliability::Reliable).deadline(Duration::from_millis(100));
//! let requested: Qos = "durability=transient-local,history=keep-last:5,deadline=50ms".parse()?;
//! assert_eq!((requested.durability, requested.history), (Durability::TransientLocal, History::KeepLast(5)));
//!
//! let problems = compatible(&offered, &requested).unwrap_err();
//! let problems: Vec<String> = problems.iter().map(|problem| problem.to_string()).collect();
//! assert_eq!(problems, [
//!     "durability (policy 2): offered volatile, requested transient-local",
//!     "deadline (policy 4): offered 100ms, requested 50ms",
//! ]);
//! # Ok::<(), polywire_core::qos::QosError>(())
//! ```

mod admission;
mod deadline;
mod leases;
mod matching;
mod offer;
mod text;

use alloc::{string::String, vec::Vec};
use core::time::Duration;

pub use admission::{Admission, Arrival, InstanceState, Verdict, expires_ns};
pub use deadline::Deadlines;
pub use leases::Leases;
pub use matching::{Incompatible, Policy, compatible, partitions_match};
pub use offer::{MAX_BRIDGES, Offer, OfferError};
pub use text::QosError;

/// The largest number of partitions of a publisher or subscriber.
pub const MAX_PARTITIONS: usize = 32;

/// The largest number of bytes of their names together.
pub const MAX_PARTITION_BYTES: usize = 512;

/// The policies of a publisher or a subscriber.
///
/// The defaults are what a topic has without any policy: messages are delivered reliably where the
/// engine is reliable, nothing is kept for late joiners, a subscriber's queue keeps all it has room
/// for, and nothing expires or is watched. They offer and request nothing beyond that, so a default
/// publisher matches every subscriber that requests no more than the engine gives.
///
/// Methods of the same names set the fields; the fields are there to be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Qos {
    /// Whether lost messages are sent again. Policy 11.
    pub reliability: Reliability,
    /// How many samples are kept: by a publisher for late joiners, by a subscriber until the
    /// application takes them. Policy 13.
    pub history: History,
    /// Whether late joiners get samples that were published before. Policy 2.
    pub durability: Durability,
    /// The longest time between two samples of an instance; `None` for no limit. Policy 4.
    pub deadline: Option<Duration>,
    /// The time after which a sample is worthless and no longer delivered; `None` for never.
    /// Policy 21.
    pub lifespan: Option<Duration>,
    /// How a publisher shows that it is alive. Policy 8.
    pub liveliness: Liveliness,
    /// The time without a sign of life after which a publisher counts as gone; `None` for as long
    /// as the link lasts. Part of policy 8.
    pub lease: Option<Duration>,
    /// The delay that is acceptable between publishing and receiving; a hint. Policy 5.
    pub latency_budget: Duration,
    /// The importance of the messages to the transport; a hint. Policy 20.
    pub transport_priority: i32,
    /// The least time between two samples of an instance that a subscriber gets. Policy 9.
    pub time_based_filter: Duration,
    /// Whether several publishers may update one instance. Policies 6 and 7.
    pub ownership: Ownership,
    /// Names of the partitions; none is the default partition, whose name is empty. Names may have
    /// the wildcards `*`, `?` and `[...]`. Policy 10.
    pub partition: Vec<String>,
    /// Which of two samples of an instance is the later one. Policy 12.
    pub destination_order: DestinationOrder,
    /// Bounds of what is kept. Policy 14.
    pub resource_limits: ResourceLimits,
}

/// Whether lost messages are sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reliability {
    /// What the engine gives: a publisher offers [`Reliability::Reliable`] on a reliable engine and
    /// [`Reliability::BestEffort`] on others; a subscriber takes either. ROS 2 calls it so.
    #[default]
    BestAvailable,
    /// Messages may be lost.
    BestEffort,
    /// Messages arrive, unless the writer's history or a queue drops them.
    Reliable,
}

/// How many samples are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum History {
    /// The last so many samples of each instance. Types without a key have one instance.
    KeepLast(u32),
    /// All samples, within [`ResourceLimits`] and the bounds of the queue. DDS's default is to keep
    /// the last one; Polywire's queues hold writers up instead of dropping.
    #[default]
    KeepAll,
}

/// Whether late joiners get samples that were published before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// They do not.
    #[default]
    Volatile,
    /// They get the publisher's history, as long as the publisher is there.
    TransientLocal,
}

/// How a publisher shows that it is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Liveliness {
    /// Its node does it by itself.
    #[default]
    Automatic,
    /// The application does it, by publishing or by an explicit assertion.
    ManualByTopic,
}

/// Whether several publishers may update one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ownership {
    /// All may.
    #[default]
    Shared,
    /// The strongest living publisher of an instance owns it; samples of others are dropped.
    /// Subscribers have no strength.
    Exclusive {
        /// The publisher with the larger number is the stronger one.
        strength: i32,
    },
}

/// Which of two samples of an instance is the later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DestinationOrder {
    /// The one that arrives later.
    #[default]
    ByReception,
    /// The one that was published later, by the writers' clocks. A sample that arrives after a
    /// later one is dropped, so that all subscribers end with the same value.
    BySource,
}

/// Bounds of what is kept; `None` for no bound beside those of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceLimits {
    /// Samples of all instances.
    pub max_samples: Option<u32>,
    /// Instances.
    pub max_instances: Option<u32>,
    /// Samples of one instance.
    pub max_samples_per_instance: Option<u32>,
}

impl Default for Qos {
    fn default() -> Self {
        Qos::DEFAULT
    }
}

impl Qos {
    /// The defaults; see [`Qos`].
    pub const DEFAULT: Qos = Qos {
        reliability: Reliability::BestAvailable,
        history: History::KeepAll,
        durability: Durability::Volatile,
        deadline: None,
        lifespan: None,
        liveliness: Liveliness::Automatic,
        lease: None,
        latency_budget: Duration::ZERO,
        transport_priority: 0,
        time_based_filter: Duration::ZERO,
        ownership: Ownership::Shared,
        partition: Vec::new(),
        destination_order: DestinationOrder::ByReception,
        resource_limits: ResourceLimits { max_samples: None, max_instances: None, max_samples_per_instance: None },
    };

    /// ROS 2's profile `system_default`: leaves every policy to the middleware. The same as
    /// [`Qos::default`].
    ///
    /// ```
    /// use polywire_core::qos::{History, Qos, Reliability::*};
    /// assert_eq!(Qos::system_default(), Qos::default());
    /// let profiles = [Qos::ros_default(), Qos::sensor_data(), Qos::services(), Qos::parameters()];
    /// let of = |qos: &Qos| (qos.reliability, qos.history);
    /// assert_eq!(profiles.each_ref().map(of), [
    ///     (Reliable, History::KeepLast(10)), (BestEffort, History::KeepLast(5)),
    ///     (Reliable, History::KeepLast(10)), (Reliable, History::KeepLast(1000)),
    /// ]);
    /// ```
    pub fn system_default() -> Qos {
        Qos::DEFAULT
    }

    /// ROS 2's profile `default`, for topics: reliable, the last 10 samples.
    pub fn ros_default() -> Qos {
        Qos::DEFAULT.reliability(Reliability::Reliable).keep_last(10)
    }

    /// ROS 2's profile `sensor_data`: best effort, the last 5 samples. A slow subscriber gets new
    /// samples rather than all.
    pub fn sensor_data() -> Qos {
        Qos::DEFAULT.reliability(Reliability::BestEffort).keep_last(5)
    }

    /// ROS 2's profile `services_default`: reliable, the last 10 samples, nothing for late joiners.
    pub fn services() -> Qos {
        Qos::ros_default()
    }

    /// ROS 2's profile `parameters`: reliable, the last 1000 samples.
    pub fn parameters() -> Qos {
        Qos::DEFAULT.reliability(Reliability::Reliable).keep_last(1000)
    }

    /// Sets [`Qos::reliability`].
    pub fn reliability(self, reliability: Reliability) -> Qos {
        Qos { reliability, ..self }
    }

    /// Sets [`Qos::history`].
    ///
    /// ```
    /// use polywire_core::qos::{History, Qos};
    /// assert_eq!(Qos::default().keep_last(5), Qos::default().history(History::KeepLast(5)));
    /// ```
    pub fn history(self, history: History) -> Qos {
        Qos { history, ..self }
    }

    /// Keeps the last `depth` samples of each instance.
    pub fn keep_last(self, depth: u32) -> Qos {
        self.history(History::KeepLast(depth))
    }

    /// Sets [`Qos::durability`].
    pub fn durability(self, durability: Durability) -> Qos {
        Qos { durability, ..self }
    }

    /// Late joiners get the publisher's history: [`Durability::TransientLocal`].
    ///
    /// ```
    /// use polywire_core::qos::{Durability, Qos};
    /// let kept = Qos::default().keep_last(1).transient_local();
    /// assert_eq!(kept, Qos::default().keep_last(1).durability(Durability::TransientLocal));
    /// ```
    pub fn transient_local(self) -> Qos {
        self.durability(Durability::TransientLocal)
    }

    /// Sets [`Qos::deadline`].
    pub fn deadline(self, period: Duration) -> Qos {
        Qos { deadline: Some(period), ..self }
    }

    /// Sets [`Qos::lifespan`].
    ///
    /// ```
    /// # use core::time::Duration;
    /// use polywire_core::qos::*;
    /// let second = Duration::from_secs(1);
    /// let qos = Qos::default().lifespan(second).liveliness(Liveliness::ManualByTopic, second).latency_budget(second)
    ///     .transport_priority(3).time_based_filter(second).exclusive(5).partition(["line/1", "line/2"])
    ///     .destination_order(DestinationOrder::BySource)
    ///     .resource_limits(ResourceLimits { max_samples: Some(100), ..ResourceLimits::default() });
    /// assert_eq!(qos.to_string(), "lifespan=1s,liveliness=manual-by-topic,lease=1s,latency-budget=1s,\
    ///     transport-priority=3,time-based-filter=1s,ownership=exclusive:5,partition=line/1,partition=line/2,\
    ///     destination-order=by-source,max-samples=100");
    /// assert_eq!(qos.ownership, Ownership::Exclusive { strength: 5 });
    /// assert_eq!(qos.to_string().parse(), Ok(qos));
    /// ```
    pub fn lifespan(self, lifespan: Duration) -> Qos {
        Qos { lifespan: Some(lifespan), ..self }
    }

    /// Sets [`Qos::liveliness`] and [`Qos::lease`].
    pub fn liveliness(self, liveliness: Liveliness, lease: Duration) -> Qos {
        Qos { liveliness, lease: Some(lease), ..self }
    }

    /// Sets [`Qos::latency_budget`].
    pub fn latency_budget(self, latency_budget: Duration) -> Qos {
        Qos { latency_budget, ..self }
    }

    /// Sets [`Qos::transport_priority`].
    pub fn transport_priority(self, transport_priority: i32) -> Qos {
        Qos { transport_priority, ..self }
    }

    /// Sets [`Qos::time_based_filter`].
    pub fn time_based_filter(self, minimum_separation: Duration) -> Qos {
        Qos { time_based_filter: minimum_separation, ..self }
    }

    /// Sets [`Ownership::Exclusive`] with this strength.
    pub fn exclusive(self, strength: i32) -> Qos {
        Qos { ownership: Ownership::Exclusive { strength }, ..self }
    }

    /// Sets [`Qos::partition`].
    pub fn partition<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Qos {
        Qos { partition: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets [`Qos::destination_order`].
    pub fn destination_order(self, destination_order: DestinationOrder) -> Qos {
        Qos { destination_order, ..self }
    }

    /// Sets [`Qos::resource_limits`].
    pub fn resource_limits(self, resource_limits: ResourceLimits) -> Qos {
        Qos { resource_limits, ..self }
    }

    /// Checks that the policies agree with each other, as DDS requires, and that values are in
    /// range.
    ///
    /// ```
    /// # use core::time::Duration;
    /// use polywire_core::qos::Qos;
    /// let qos = Qos::default().deadline(Duration::from_millis(10)).time_based_filter(Duration::from_millis(20));
    /// let error = qos.check().unwrap_err().to_string();
    /// assert_eq!(error, "deadline=10ms and time-based-filter=20ms contradict each other: \
    ///     the filter drops samples that the deadline demands");
    /// ```
    pub fn check(&self) -> Result<(), QosError> {
        text::check_values(self)?;
        let contradiction = |a, b, reason| Err(QosError::Contradiction { a, b, reason });
        let of = |policy| text::of(self, policy);
        if self.deadline.is_some_and(|deadline| deadline < self.time_based_filter) {
            let reason = "the filter drops samples that the deadline demands";
            return contradiction(of("deadline"), of("time-based-filter"), reason);
        }
        let ResourceLimits { max_samples, max_samples_per_instance, .. } = self.resource_limits;
        let exceeds = |value: u32, limit: Option<u32>| limit.is_some_and(|limit| value > limit);
        if let History::KeepLast(depth) = self.history {
            if exceeds(depth, max_samples_per_instance) {
                let reason = "an instance would keep more samples than it may have";
                return contradiction(of("history"), of("max-samples-per-instance"), reason);
            }
            if exceeds(depth, max_samples) {
                let reason = "an instance would keep more samples than all may have";
                return contradiction(of("history"), of("max-samples"), reason);
            }
        }
        if max_samples_per_instance.is_some_and(|one| exceeds(one, max_samples)) {
            let reason = "one instance may have more samples than all";
            return contradiction(of("max-samples-per-instance"), of("max-samples"), reason);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_named() {
        let cases = [
            ("history=keep-last:5,max-samples-per-instance=4", "max-samples-per-instance=4"),
            ("history=keep-last:5,max-samples=4", "max-samples=4"),
            ("max-samples-per-instance=9,max-samples=8", "one instance may have more"),
            ("deadline=1s,time-based-filter=2s", "the filter drops"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Qos>().expect_err(text);
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
        let fine = "history=keep-last:5,max-samples-per-instance=5,max-samples=5,deadline=2s,time-based-filter=2s";
        assert!(fine.parse::<Qos>().is_ok());
    }
}
