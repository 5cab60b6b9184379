//! What an announcement carries of a publisher's quality of service, and its bytes. `spec/frame.md`
//! defines them.
//!
//! Each policy that differs from its default is an extension. Its id is twice the number that DDS
//! gives the policy, plus one if a receiver that does not know the policy must not read the
//! channel. Resource limits and the time-based filter concern one side alone and do not travel, nor
//! does the history of a volatile writer. Ids from [`OWN`] on are Polywire's.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use super::{DestinationOrder, Durability, History, Liveliness, Ownership, Policy, Qos, Reliability};
use crate::{
    envelope::{ExtensionError, Extensions, ExtensionsBuf, Id128},
    frame::varint,
    ros::TypeHash,
};

/// The first id that is no policy's.
const OWN: u32 = 256;
/// The channel brings the history of the writer with this id. Must be understood.
const HISTORY_OF: u32 = OWN + 1;
/// The channel brings signs of life of the writer with this id. Must be understood.
const LIVELINESS_OF: u32 = OWN + 3;
/// The channel carries nothing: its writer has moved to these endpoints. A receiver that does not
/// know this waits on the channel in vain.
const MOVED_TO: u32 = OWN + 2;
/// The bridges that the channel has passed, the last one at the end.
const VIA: u32 = OWN + 4;
/// The hash of the writer's type, as it told ROS 2.
const ROS_TYPE: u32 = OWN + 6;
/// The engine tells whether the writer is alive.
const LEASE_TOLD: u32 = OWN + 8;
/// Sequence numbers that are missing are no losses.
const HAS_GAPS: u32 = OWN + 10;
/// Most endpoints that are read of one offer.
const MAX_ENDPOINTS: usize = 16;
/// Most bridges that a channel passes.
///
/// ```
/// assert_eq!(polywire_core::qos::MAX_BRIDGES, 16);
/// ```
pub const MAX_BRIDGES: usize = 16;

/// What a publisher offers on a channel.
///
/// ```
/// use polywire_core::{envelope::Id128, qos::{Offer, Qos, Reliability}};
/// # use core::time::Duration;
/// let qos = Qos::default().reliability(Reliability::Reliable).lifespan(Duration::from_secs(1)).keep_last(9);
/// let offer = Offer { qos: qos.clone(), ..Offer::default() };
/// assert_eq!(offer.to_bytes(), [22, 1, 2, 42, 5, 0x80, 0x94, 0xeb, 0xdc, 3]);
/// assert_eq!(Offer::parse(&offer.to_bytes())?.qos, qos.history(Default::default()));
/// assert!(Offer::default().to_bytes().is_empty());
/// let kept = Offer { qos: Qos::default().keep_last(9).transient_local(), ..Offer::default() };
/// assert_eq!(Offer::parse(&kept.to_bytes())?, kept);
/// let history = Offer { history_of: Some(Id128([7; 16])), ..offer };
/// assert_eq!(Offer::parse(&history.to_bytes())?.history_of, Some(Id128([7; 16])));
/// let moved = Offer { moved_to: vec!["udp/239.1.2.3:7400".into()], via: vec![Id128([7; 16])], ..Offer::default() };
/// assert_eq!(Offer::parse(&moved.to_bytes())?, moved);
/// let ros_type = Some(polywire_core::ros::TypeHash::from_bytes([7; 32]));
/// let ros = Offer { ros_type, ..Offer::default() };
/// assert_eq!(Offer::parse(&ros.to_bytes())?, ros);
/// let told = Offer { lease_told: true, has_gaps: true, ..Offer::default() };
/// assert_eq!(Offer::parse(&told.to_bytes())?, told);
/// # Ok::<(), polywire_core::qos::OfferError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The policies.
    pub qos: Qos,
    /// The channel does not carry messages as they are published, but those that the writer with
    /// this id has kept for late joiners.
    pub history_of: Option<Id128>,
    /// The channel's messages are empty: each says that the writer with this id is alive.
    pub liveliness_of: Option<Id128>,
    /// The channel carries no messages. Its writer has moved to these endpoints, in the notation of
    /// wires; at most 16. Empty on all other channels.
    pub moved_to: Vec<String>,
    /// The nodes that have passed the channel on as bridges, the last one at the end; at most
    /// [`MAX_BRIDGES`]. Empty if it comes from its writer.
    pub via: Vec<Id128>,
    /// The hash that ROS 2 has of the writer's type, if the writer is a node of ROS 2 and says it.
    /// Subscribers that have no schema of the writer compare it with that of their own type.
    pub ros_type: Option<TypeHash>,
    /// The engine of the receiver tells whether the writer is alive: the writer sends no
    /// assertions, and its messages are not counted as signs of life. Set by engines for writers
    /// of programs that are not nodes.
    pub lease_told: bool,
    /// Sequence numbers that do not come are no losses: the writer may have had other messages with
    /// them. Set by engines for writers of programs that are not nodes.
    pub has_gaps: bool,
}

/// Why bytes are no offer, or none that this node understands.
///
/// ```
/// use polywire_core::qos::{Offer, OfferError};
/// assert_eq!(Offer::parse(&[51, 0]), Err(OfferError::Unknown { id: 51 }));
/// assert_eq!(Offer::parse(&[50, 0]), Ok(Offer::default()), "an even id need not be known");
/// assert_eq!(Offer::parse(&[22, 1, 9]), Err(OfferError::Value { policy: "reliability" }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The bytes are no extensions.
    #[error("the offered quality of service is malformed at byte {}", .0.offset)]
    Extension(ExtensionError),
    /// A policy has a value that does not exist.
    #[error("the offered {policy} has no valid value")]
    Value {
        /// The policy.
        policy: &'static str,
    },
    /// A policy that must be understood is unknown.
    #[error("extension {id} of the offered quality of service must be understood and is not")]
    Unknown {
        /// The extension's id.
        id: u32,
    },
    /// The policies contradict each other or are out of range.
    #[error("the offered policies contradict each other")]
    Invalid,
}

impl Offer {
    /// Whether the channel is no writer of its own, but goes with another one.
    ///
    /// ```
    /// use polywire_core::{envelope::Id128, qos::Offer};
    /// let pulse = Offer { liveliness_of: Some(Id128([7; 16])), ..Offer::default() };
    /// assert_eq!(Offer::parse(&pulse.to_bytes()).map(|offer| offer.is_auxiliary()), Ok(true));
    /// assert!(!Offer::default().is_auxiliary());
    /// ```
    pub fn is_auxiliary(&self) -> bool {
        self.history_of.is_some() || self.liveliness_of.is_some()
    }

    /// The bytes that travel. Empty if everything that travels is default.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (qos, default, mut all) = (&self.qos, &Qos::DEFAULT, ExtensionsBuf::default());
        let mut put = |policy: Policy, differs: bool, put: &dyn Fn(&mut Vec<u8>)| {
            if differs {
                let mut value = Vec::new();
                put(&mut value);
                all.push(policy.id() * 2 + u32::from(must_be_understood(policy)), &value);
            }
        };
        let budget = Some(qos.latency_budget);
        let priority = varint::zigzag(qos.transport_priority.into());
        put(Policy::Durability, qos.durability != default.durability, &|out| out.push(qos.durability as u8));
        put(Policy::Deadline, qos.deadline.is_some(), &|out| put_time(qos.deadline, out));
        put(Policy::LatencyBudget, !qos.latency_budget.is_zero(), &|out| put_time(budget, out));
        if let Ownership::Exclusive { strength } = qos.ownership {
            put(Policy::Ownership, true, &|out| varint::put(out, varint::zigzag(strength.into())));
        }
        put(Policy::Liveliness, qos.liveliness != default.liveliness || qos.lease.is_some(), &|out| {
            out.push(qos.liveliness as u8);
            put_time(qos.lease, out);
        });
        put(Policy::Partition, !qos.partition.is_empty(), &|out| {
            put_texts(&qos.partition, out);
        });
        put(Policy::Reliability, qos.reliability != default.reliability, &|out| out.push(qos.reliability as u8));
        let order = qos.destination_order;
        put(Policy::DestinationOrder, order != default.destination_order, &|out| out.push(order as u8));
        if let (Durability::TransientLocal, History::KeepLast(depth)) = (qos.durability, qos.history) {
            put(Policy::History, true, &|out| varint::put(out, depth.into()));
        }
        put(Policy::TransportPriority, priority != 0, &|out| varint::put(out, priority));
        put(Policy::Lifespan, qos.lifespan.is_some(), &|out| put_time(qos.lifespan, out));
        if let Some(writer) = &self.history_of {
            all.push(HISTORY_OF, &writer.0);
        }
        if let Some(writer) = &self.liveliness_of {
            all.push(LIVELINESS_OF, &writer.0);
        }
        if !self.moved_to.is_empty() {
            let mut value = Vec::new();
            put_texts(&self.moved_to, &mut value);
            all.push(MOVED_TO, &value);
        }
        if !self.via.is_empty() {
            all.push(VIA, &self.via.iter().flat_map(|bridge| bridge.0).collect::<Vec<u8>>());
        }
        if let Some(hash) = self.ros_type {
            all.push(ROS_TYPE, &hash.to_bytes());
        }
        if self.lease_told {
            all.push(LEASE_TOLD, &[]);
        }
        if self.has_gaps {
            all.push(HAS_GAPS, &[]);
        }
        all.as_extensions().bytes().to_vec()
    }

    /// Reads an offer. What does not travel is default.
    pub fn parse(bytes: &[u8]) -> Result<Offer, OfferError> {
        let mut offer = Offer::default();
        for (id, value) in Extensions::parse(bytes).map_err(OfferError::Extension)?.iter() {
            if id == HISTORY_OF {
                let writer = value.try_into().map_err(|_| OfferError::Value { policy: "history" })?;
                offer.history_of = Some(Id128(writer));
                continue;
            }
            if id == LIVELINESS_OF {
                let writer = value.try_into().map_err(|_| OfferError::Value { policy: "liveliness" })?;
                offer.liveliness_of = Some(Id128(writer));
                continue;
            }
            if id == MOVED_TO {
                let endpoints = texts(value).filter(|all| !all.is_empty() && all.len() <= MAX_ENDPOINTS);
                offer.moved_to = endpoints.ok_or(OfferError::Value { policy: "endpoint" })?;
                continue;
            }
            if id == VIA {
                offer.via = ids(value).ok_or(OfferError::Value { policy: "bridge" })?;
                continue;
            }
            if id == ROS_TYPE {
                let hash = value.try_into().map_err(|_| OfferError::Value { policy: "hash of a ROS 2 type" })?;
                offer.ros_type = Some(TypeHash::from_bytes(hash));
                continue;
            }
            if id == LEASE_TOLD {
                offer.lease_told = true;
                continue;
            }
            if id == HAS_GAPS {
                offer.has_gaps = true;
                continue;
            }
            let policy = Policy::ALL.iter().find(|policy| travels(**policy) && policy.id() == id / 2);
            match policy {
                Some(policy) => {
                    let wrong = OfferError::Value { policy: policy.name() };
                    take(&mut offer.qos, *policy, value).ok_or(wrong)?;
                }
                None if id % 2 == 1 => return Err(OfferError::Unknown { id }),
                None => {}
            }
        }
        offer.qos.check().map_err(|_| OfferError::Invalid)?;
        Ok(offer)
    }
}

fn ids(value: &[u8]) -> Option<Vec<Id128>> {
    let (ids, rest) = value.as_chunks::<16>();
    let fits = rest.is_empty() && (1..=MAX_BRIDGES).contains(&ids.len());
    fits.then(|| ids.iter().map(|id| Id128(*id)).collect())
}

fn put_texts(texts: &[String], out: &mut Vec<u8>) {
    for text in texts {
        varint::put(out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
    }
}

/// Whether a reader that ignores the policy would deliver what nobody asked for.
fn must_be_understood(policy: Policy) -> bool {
    matches!(policy, Policy::Ownership | Policy::Partition)
}

fn travels(policy: Policy) -> bool {
    use Policy::*;
    !matches!(policy, ResourceLimits | TimeBasedFilter | OwnershipStrength)
}

fn take(qos: &mut Qos, policy: Policy, value: &[u8]) -> Option<()> {
    match policy {
        Policy::Durability => qos.durability = kind(value, [Durability::Volatile, Durability::TransientLocal])?,
        Policy::Deadline => qos.deadline = time(value)?,
        Policy::LatencyBudget => qos.latency_budget = time(value)??,
        Policy::Ownership => qos.ownership = Ownership::Exclusive { strength: number(value)? },
        Policy::Liveliness => {
            let (first, lease) = value.split_at_checked(1)?;
            qos.liveliness = kind(first, [Liveliness::Automatic, Liveliness::ManualByTopic])?;
            qos.lease = time(lease)?;
        }
        Policy::Partition => qos.partition = texts(value)?,
        Policy::Reliability => {
            let kinds = [Reliability::BestAvailable, Reliability::BestEffort, Reliability::Reliable];
            qos.reliability = kind(value, kinds)?;
        }
        Policy::DestinationOrder => {
            qos.destination_order = kind(value, [DestinationOrder::ByReception, DestinationOrder::BySource])?;
        }
        Policy::History => {
            let (depth, rest) = varint::split(value)?;
            let depth = u32::try_from(depth).ok().filter(|depth| *depth > 0 && rest.is_empty())?;
            qos.history = History::KeepLast(depth);
        }
        Policy::TransportPriority => qos.transport_priority = number(value)?,
        Policy::Lifespan => qos.lifespan = time(value)?,
        _ => return None,
    }
    Some(())
}

fn kind<T: Copy, const N: usize>(value: &[u8], kinds: [T; N]) -> Option<T> {
    let [number] = value else { return None };
    kinds.get(usize::from(*number)).copied()
}

/// Nanoseconds; nothing for infinite.
fn put_time(time: Option<Duration>, out: &mut Vec<u8>) {
    if let Some(nanos) = time.and_then(|time| u64::try_from(time.as_nanos()).ok()) {
        varint::put(out, nanos);
    }
}

fn time(value: &[u8]) -> Option<Option<Duration>> {
    if value.is_empty() {
        return Some(None);
    }
    let (nanos, rest) = varint::split(value)?;
    rest.is_empty().then_some(Some(Duration::from_nanos(nanos)))
}

fn number(value: &[u8]) -> Option<i32> {
    let (number, rest) = varint::split(value)?;
    i32::try_from(varint::unzigzag(number)).ok().filter(|_| rest.is_empty())
}

fn texts(mut value: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    while !value.is_empty() {
        let (len, rest) = varint::split(value)?;
        let (name, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        names.push(core::str::from_utf8(name).ok()?.into());
        value = rest;
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::text::tests::policies, *};

    proptest! {
        #[test]
        fn what_travels_arrives(qos in policies()) {
            prop_assume!(qos.check().is_ok());
            let offer = Offer { qos: qos.clone(), ..Offer::default() };
            let is_durable = qos.durability == Durability::TransientLocal;
            let travels = Qos {
                history: if is_durable { qos.history } else { History::KeepAll },
                resource_limits: Default::default(),
                time_based_filter: Default::default(),
                ..qos
            };
            let bytes = offer.to_bytes();
            prop_assert_eq!(Offer::parse(&bytes), Ok(Offer { qos: travels, ..Offer::default() }));
            // An offer that is cut is refused or has fewer policies, and nothing panics.
            for end in 0..bytes.len() {
                let _ = Offer::parse(&bytes[..end]);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(offer) = Offer::parse(&bytes) {
                prop_assert!(offer.qos.check().is_ok());
            }
        }
    }
}
