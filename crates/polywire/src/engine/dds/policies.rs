//! Quality of service: converts the offer of a channel to the policies of a DDS writer and back,
//! and makes the policies of a reader that matches a writer.

use std::time::Duration;

use polywire_core::{
    envelope::Id128,
    qos::{DestinationOrder, Durability, Liveliness, Offer, Ownership, Policy, Qos, Reliability},
    ros::TypeHash,
};
use polywire_dds as dds;

use super::super::{EngineOptions, Overflow, late::DEFAULT_DEPTH};

/// How long a writer of Cyclone blocks while its history has no room. After that, the caller
/// decides whether to try again: a thread of Cyclone that runs a callback processes no
/// acknowledgements while it waits.
const WAIT: Duration = Duration::from_micros(500);

/// Returns the policies of a channel's writer. The writer keeps `kept` samples of each instance for
/// readers that are just joining: a peer that has not answered an announcement yet gets at most so
/// many of the samples that are published meanwhile.
pub(super) fn of_writer(offer: &[u8], kept: u32, options: &EngineOptions) -> dds::Qos {
    // The bytes are from this node. Policies of a later version do not concern DDS.
    let Qos {
        reliability,
        deadline,
        lifespan,
        liveliness,
        lease,
        latency_budget,
        transport_priority,
        ownership,
        partition,
        destination_order,
        ..
    } = Offer::parse(offer).unwrap_or_default().qos;
    let (patience, keep_last) = match options.overflow {
        Overflow::Block { patience } => (patience, None),
        Overflow::DropOldest => (Duration::ZERO, Some(DEFAULT_DEPTH)),
        Overflow::DropNewest => (Duration::ZERO, None),
    };
    dds::Qos {
        reliable: (reliability != Reliability::BestEffort).then_some(patience.min(WAIT)),
        durability: dds::Durability::TransientLocal,
        keep_last,
        service_depth: Some(kept),
        deadline,
        latency_budget,
        lifespan,
        liveliness: match liveliness {
            Liveliness::Automatic => dds::Liveliness::Automatic,
            Liveliness::ManualByTopic => dds::Liveliness::ManualByTopic,
        },
        lease,
        exclusive: match ownership {
            Ownership::Shared => None,
            Ownership::Exclusive { strength } => Some(strength),
        },
        partitions: partition,
        by_source: destination_order == DestinationOrder::BySource,
        transport_priority,
        ..dds::Qos::default()
    }
}

/// Checks whether late readers get earlier messages, including those written without any reader.
pub(super) fn keeps(offer: &[u8]) -> bool {
    let offer = Offer::parse(offer).unwrap_or_default();
    offer.qos.durability == Durability::TransientLocal && !offer.is_auxiliary()
}

/// Returns the publisher whose application asserts its liveliness by the messages of a channel.
pub(super) fn asserts(offer: &[u8]) -> Option<Id128> {
    let offer = Offer::parse(offer).ok().filter(|offer| offer.qos.liveliness == Liveliness::ManualByTopic)?;
    offer.liveliness_of
}

/// Returns what another program's reader requests, as Polywire's QoS.
pub(super) fn requested(reader: &dds::Qos) -> Qos {
    let mut qos = qos_of(reader);
    // No publisher of Polywire offers this kind. The next stronger kind satisfies the request.
    if reader.liveliness == dds::Liveliness::ManualByParticipant {
        qos.liveliness = Liveliness::ManualByTopic;
    }
    qos
}

/// Returns the policies of another program's writer or reader, as Polywire's QoS.
pub(super) fn qos_of(end: &dds::Qos) -> Qos {
    let mut qos = Qos::default();
    qos.reliability = if end.reliable.is_some() { Reliability::Reliable } else { Reliability::BestEffort };
    qos.durability = match end.durability {
        dds::Durability::Volatile => Durability::Volatile,
        _ => Durability::TransientLocal,
    };
    (qos.deadline, qos.lifespan, qos.latency_budget) = (end.deadline, end.lifespan, end.latency_budget);
    qos.liveliness = match end.liveliness {
        dds::Liveliness::ManualByTopic => Liveliness::ManualByTopic,
        _ => Liveliness::Automatic,
    };
    qos.lease = end.lease;
    qos.ownership = end.exclusive.map_or(Ownership::Shared, |strength| Ownership::Exclusive { strength });
    qos.destination_order = if end.by_source { DestinationOrder::BySource } else { DestinationOrder::ByReception };
    qos.transport_priority = end.transport_priority;
    qos.partition = end.partitions.iter().filter(|name| !name.is_empty()).cloned().collect();
    qos
}

/// Returns what another program's writer offers, as the offer of an announcement. The writer sends
/// none of Polywire's assertions: DDS reports whether it is alive. Its sequence numbers have gaps
/// where it has replaced samples in its history.
pub(super) fn offer_of(writer: &dds::Qos, ros_type: Option<TypeHash>) -> Vec<u8> {
    let qos = qos_of(writer);
    let lease_told = qos.lease.is_some();
    let offer = Offer { qos, ros_type, lease_told, has_gaps: true, ..Offer::default() }.to_bytes();
    // Another program may offer values that are out of Polywire's range, such as too many
    // partitions.
    if Offer::parse(&offer).is_ok() { offer } else { Vec::new() }
}

/// Returns the policies of a reader that matches a writer with these policies.
pub(super) fn of_reader(writer: &dds::Qos) -> dds::Qos {
    dds::Qos {
        reliable: writer.reliable.map(|_| Duration::from_millis(100)),
        durability: writer.durability.min(dds::Durability::TransientLocal),
        deadline: writer.deadline,
        latency_budget: writer.latency_budget,
        liveliness: writer.liveliness,
        lease: writer.lease,
        exclusive: writer.exclusive.map(|_| 0),
        partitions: writer.partitions.clone(),
        by_source: writer.by_source,
        representations: writer.representations.first().copied().into_iter().collect(),
        // Readers of ROS 2 publish the hash of their type as writers do.
        user_data: TypeHash::of_user_data(&writer.user_data).map(TypeHash::to_user_data).unwrap_or_default().into(),
        ..dds::Qos::default()
    }
}

/// The number of the policy that DDS reports if one type cannot be read as the other.
pub(super) const TYPE_CONSISTENCY: u32 = 24;

/// The number of the policy that Cyclone reports if a reader does not take the writer's
/// representation.
pub(super) const DATA_REPRESENTATION: u32 = 25;

/// Returns a policy's name, for people, by its number in DDS.
pub(super) fn policy_name(number: u32) -> String {
    if number == TYPE_CONSISTENCY {
        return format!("type (policy {number})");
    }
    if number == DATA_REPRESENTATION {
        return format!("data representation (policy {number}), which is that of another codec");
    }
    let name = Policy::ALL.iter().find(|policy| policy.id() == number).map_or("policy", |policy| policy.name());
    format!("{name} (policy {number})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_comes_back_from_the_policies_of_its_writer() {
        let mut qos = Qos::default().reliability(Reliability::Reliable).deadline(Duration::from_millis(20));
        qos.ownership = Ownership::Exclusive { strength: 7 };
        qos.partition = vec!["hall".into()];
        qos.destination_order = DestinationOrder::BySource;
        (qos.lifespan, qos.transport_priority) = (Some(Duration::from_secs(3)), -4);
        qos = qos.liveliness(Liveliness::ManualByTopic, Duration::from_millis(70));
        let of = |qos: Qos| Offer { qos, lease_told: true, has_gaps: true, ..Offer::default() }.to_bytes();
        let writer = of_writer(&of(qos.clone()), DEFAULT_DEPTH, &EngineOptions::default());
        assert_eq!(offer_of(&writer, None), of(qos.transient_local()), "writers keep samples for those who just join");
        let reader = of_reader(&writer);
        assert_eq!((reader.deadline, reader.exclusive), (Some(Duration::from_millis(20)), Some(0)));
    }

    #[test]
    fn kinds_of_liveliness_are_never_stronger_than_they_are() {
        let manual = dds::Qos { liveliness: dds::Liveliness::ManualByParticipant, ..dds::Qos::default() };
        assert_eq!(requested(&manual).liveliness, Liveliness::ManualByTopic);
        assert_eq!(qos_of(&manual).liveliness, Liveliness::Automatic, "which is less than what it offers");
        let offer = |liveliness| {
            let qos = Qos::default().liveliness(liveliness, Duration::from_secs(1));
            Offer { qos, liveliness_of: Some(Id128([7; 16])), ..Offer::default() }.to_bytes()
        };
        assert_eq!(asserts(&offer(Liveliness::ManualByTopic)), Some(Id128([7; 16])));
        assert_eq!(asserts(&offer(Liveliness::Automatic)), None, "DDS asserts it");
    }

    #[test]
    fn policies_have_their_names_in_dds() {
        assert_eq!(policy_name(11), "reliability (policy 11)");
        assert_eq!(policy_name(99), "policy (policy 99)");
    }
}
