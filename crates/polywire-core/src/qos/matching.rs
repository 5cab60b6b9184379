//! Requested against offered: the policies' names and numbers, which offers satisfy which requests,
//! and which partitions match.

use alloc::{format, string::String, vec::Vec};
use core::{fmt, time::Duration};

use super::{Ownership, Qos, Reliability, text};

/// A policy of DDS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// [`Qos::durability`].
    Durability = 2,
    /// [`Qos::deadline`].
    Deadline = 4,
    /// [`Qos::latency_budget`].
    LatencyBudget = 5,
    /// [`Qos::ownership`].
    Ownership = 6,
    /// The strength of [`Qos::ownership`].
    OwnershipStrength = 7,
    /// [`Qos::liveliness`] and [`Qos::lease`].
    Liveliness = 8,
    /// [`Qos::time_based_filter`].
    TimeBasedFilter = 9,
    /// [`Qos::partition`].
    Partition = 10,
    /// [`Qos::reliability`].
    Reliability = 11,
    /// [`Qos::destination_order`].
    DestinationOrder = 12,
    /// [`Qos::history`].
    History = 13,
    /// [`Qos::resource_limits`].
    ResourceLimits = 14,
    /// [`Qos::transport_priority`].
    TransportPriority = 20,
    /// [`Qos::lifespan`].
    Lifespan = 21,
}

impl Policy {
    /// All policies, by ascending number.
    pub const ALL: [Policy; 14] = [
        Policy::Durability,
        Policy::Deadline,
        Policy::LatencyBudget,
        Policy::Ownership,
        Policy::OwnershipStrength,
        Policy::Liveliness,
        Policy::TimeBasedFilter,
        Policy::Partition,
        Policy::Reliability,
        Policy::DestinationOrder,
        Policy::History,
        Policy::ResourceLimits,
        Policy::TransportPriority,
        Policy::Lifespan,
    ];

    /// The policy's number in DDS (`QosPolicyId_t`).
    ///
    /// ```
    /// use polywire_core::qos::Policy;
    /// assert_eq!((Policy::Reliability.id(), Policy::Reliability.name()), (11, "reliability"));
    /// assert!(Policy::ALL.is_sorted());
    /// ```
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The policy's name, as in text.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Durability => "durability",
            Policy::Deadline => "deadline",
            Policy::LatencyBudget => "latency-budget",
            Policy::Ownership => "ownership",
            Policy::OwnershipStrength => "ownership-strength",
            Policy::Liveliness => "liveliness",
            Policy::TimeBasedFilter => "time-based-filter",
            Policy::Partition => "partition",
            Policy::Reliability => "reliability",
            Policy::DestinationOrder => "destination-order",
            Policy::History => "history",
            Policy::ResourceLimits => "resource-limits",
            Policy::TransportPriority => "transport-priority",
            Policy::Lifespan => "lifespan",
        }
    }
}

/// A policy of which less is offered than is requested.
///
/// ```
/// use polywire_core::qos::{Incompatible, Policy, Qos, Reliability, compatible};
/// let offered = Qos::default().reliability(Reliability::BestEffort);
/// let requested = Qos::default().reliability(Reliability::Reliable);
/// let Incompatible { policy, offered, requested } = &compatible(&offered, &requested).unwrap_err()[0];
/// assert_eq!((*policy, offered.as_str(), requested.as_str()), (Policy::Reliability, "best-effort", "reliable"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Incompatible {
    /// The policy.
    pub policy: Policy,
    /// What is offered, as text.
    pub offered: String,
    /// What is requested, as text.
    pub requested: String,
}

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Incompatible { policy, offered, requested } = self;
        write!(f, "{} (policy {}): offered {offered}, requested {requested}", policy.name(), policy.id())
    }
}

/// Whether a publisher that offers `offered` satisfies a subscriber that requests `requested`.
/// Fails with every policy that does not, by ascending number.
///
/// The rules are those of DDS 1.4, table in section 2.2.3: an offer must be at least as good as the
/// request, and ownership must be the same. [`Reliability::BestAvailable`] in an offer counts as
/// best effort: the node replaces it by what the engine gives before it compares.
/// Partitions are no part of it: see [`partitions_match`].
pub fn compatible(offered: &Qos, requested: &Qos) -> Result<(), Vec<Incompatible>> {
    let longer = |offered: Option<Duration>, requested: Option<Duration>| match (offered, requested) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(offered), Some(requested)) => offered > requested,
    };
    let is_exclusive = |qos: &Qos| matches!(qos.ownership, Ownership::Exclusive { .. });
    let rules = [
        (Policy::Durability, offered.durability < requested.durability),
        (Policy::Deadline, longer(offered.deadline, requested.deadline)),
        (Policy::LatencyBudget, requested.latency_budget < offered.latency_budget),
        (Policy::Ownership, is_exclusive(offered) != is_exclusive(requested)),
        (Policy::Liveliness, offered.liveliness < requested.liveliness || longer(offered.lease, requested.lease)),
        (
            Policy::Reliability,
            requested.reliability == Reliability::Reliable && offered.reliability != Reliability::Reliable,
        ),
        (Policy::DestinationOrder, offered.destination_order < requested.destination_order),
    ];
    let failed = rules.into_iter().filter(|(_, fails)| *fails);
    let problems: Vec<_> = failed.map(|(policy, _)| incompatible(policy, offered, requested)).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn incompatible(policy: Policy, offered: &Qos, requested: &Qos) -> Incompatible {
    let value = |qos: &Qos| match policy {
        Policy::Liveliness => {
            format!("{} with a lease of {}", text::value(qos, "liveliness"), text::value(qos, "lease"))
        }
        Policy::Ownership => match qos.ownership {
            Ownership::Shared => "shared".into(),
            Ownership::Exclusive { .. } => "exclusive".into(),
        },
        policy => text::value(qos, policy.name()),
    };
    Incompatible { policy, offered: value(offered), requested: value(requested) }
}

/// Whether a publisher and a subscriber have a partition in common. Those that have none do not
/// see each other, which is no error.
///
/// A name with wildcards matches names without. As in DDS, two names with wildcards do not match,
/// not even if they are equal.
///
/// ```
/// use polywire_core::qos::{Qos, partitions_match};
/// let of = |names: &[&str]| Qos::default().partition(names.iter().copied());
/// assert!(partitions_match(&of(&["line/1"]), &of(&["line/[12]", "x"])));
/// assert!(partitions_match(&of(&[]), &of(&["*"])) && partitions_match(&of(&[]), &of(&[])));
/// assert!(!partitions_match(&of(&["line/1"]), &of(&[])) && !partitions_match(&of(&["*"]), &of(&["*"])));
/// ```
pub fn partitions_match(offered: &Qos, requested: &Qos) -> bool {
    if offered.partition.is_empty() && requested.partition.is_empty() {
        return true;
    }
    let names = |qos: &Qos| -> Vec<String> {
        let none = qos.partition.is_empty().then(String::new);
        none.into_iter().chain(qos.partition.iter().cloned()).collect()
    };
    let requested = names(requested);
    names(offered).iter().any(|a| {
        requested.iter().any(|b| match (is_pattern(a), is_pattern(b)) {
            (false, false) => a == b,
            (true, false) => fits(a, b),
            (false, true) => fits(b, a),
            (true, true) => false,
        })
    })
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

/// Whether the name fits the pattern, by the rules of POSIX's `fnmatch` without flags. Takes at
/// most the product of both lengths.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where to go on when what follows the last star does not fit.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match (pattern.get(p), name.get(n)) {
            (None, None) => return true,
            (Some('*'), _) => {
                retry = Some((p + 1, n));
                p += 1;
                continue;
            }
            (Some(_), Some(c)) => one(&pattern[p..], *c),
            _ => None,
        };
        match (step, retry) {
            (Some(taken), _) => (p, n) = (p + taken, n + 1),
            (None, Some((after, from))) if from < name.len() => {
                (p, n) = (after, from + 1);
                retry = Some((after, from + 1));
            }
            _ => return false,
        }
    }
}

/// Length of the element at the start of the pattern, if the character fits it.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['[', rest @ ..] => match set(rest, c) {
            Some((fits, len)) => fits.then_some(len + 1),
            // Without an end it is a plain character.
            None => (c == '[').then_some(1),
        },
        ['\\', escaped, ..] => (c == *escaped).then_some(2),
        [plain, ..] => (c == *plain).then_some(1),
        [] => None,
    }
}

/// Whether the set behind a `[` has the character, and the set's length with its `]`.
fn set(rest: &[char], c: char) -> Option<(bool, usize)> {
    let negated = matches!(rest.first(), Some('!' | '^'));
    let (mut at, mut has) = (usize::from(negated), false);
    let first = at;
    loop {
        match rest.get(at..)? {
            [']', ..] if at > first => return Some((has != negated, at + 1)),
            [low, '-', high, ..] if *high != ']' => {
                has |= (*low..=*high).contains(&c);
                at += 3;
            }
            [plain, ..] => {
                has |= *plain == c;
                at += 1;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn qos(text: &str) -> Qos {
        text.parse().expect(text)
    }

    #[test]
    fn each_policy_that_is_requested_and_not_offered_is_named() {
        let cases = [
            ("durability=volatile", "durability=transient-local", Policy::Durability),
            ("deadline=infinite", "deadline=1s", Policy::Deadline),
            ("deadline=2s", "deadline=1s", Policy::Deadline),
            ("latency-budget=2ms", "latency-budget=1ms", Policy::LatencyBudget),
            ("ownership=shared", "ownership=exclusive", Policy::Ownership),
            ("ownership=exclusive:3", "ownership=shared", Policy::Ownership),
            ("liveliness=automatic,lease=1s", "liveliness=manual-by-topic,lease=1s", Policy::Liveliness),
            ("lease=2s", "lease=1s", Policy::Liveliness),
            ("reliability=best-effort", "reliability=reliable", Policy::Reliability),
            ("reliability=best-available", "reliability=reliable", Policy::Reliability),
            ("destination-order=by-reception", "destination-order=by-source", Policy::DestinationOrder),
        ];
        for (offered, requested, policy) in cases {
            let problems = compatible(&qos(offered), &qos(requested)).expect_err(requested);
            assert_eq!(problems.iter().map(|p| p.policy).collect::<Vec<_>>(), vec![policy], "{offered} {requested}");
            if policy != Policy::Ownership {
                assert_eq!(compatible(&qos(requested), &qos(requested)), Ok(()), "{requested}");
                assert_eq!(compatible(&qos(requested), &qos(offered)), Ok(()), "better than {offered}");
            }
        }
        let all = compatible(&Qos::default(), &qos("durability=transient-local,deadline=1s,reliability=reliable"));
        assert_eq!(all.expect_err("three").iter().map(|p| p.policy.id()).collect::<Vec<_>>(), vec![2, 4, 11]);
    }

    #[test]
    fn strength_lifespan_filter_and_history_are_nobodys_request() {
        let offered = qos("ownership=exclusive:1,lifespan=1s,history=keep-last:1,transport-priority=3");
        let requested = qos("ownership=exclusive,time-based-filter=1s,history=keep-last:9,max-samples=9");
        assert_eq!(compatible(&offered, &requested), Ok(()));
    }

    #[test]
    fn patterns_are_those_of_fnmatch() {
        let fitting = [
            ("*", ""),
            ("a*c", "abbc"),
            ("a*b*c", "aXbYbZc"),
            ("?", "x"),
            ("[a-c]x", "bx"),
            ("[!a]", "b"),
            ("[]]", "]"),
            ("a[", "a["),
            ("\\*", "*"),
            ("**", "anything"),
            ("[a-]", "-"),
            ("*.*", "a.b"),
        ];
        for (pattern, name) in fitting {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a*c", "abbd"), ("?", ""), ("[a-c]", "d"), ("[!a]", "a"), ("", "x"), ("a", "ab")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
        // Many stars do not take long.
        assert!(!fits(&"*a".repeat(200), &"b".repeat(400)));
    }
}
