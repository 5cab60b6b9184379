//! Policies as text: `reliability=best-effort,history=keep-last:5` on the command line, one key a
//! policy in TOML. [`KEYS`] has a line for each.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::{fmt, str::FromStr, time::Duration};

use super::{
    DestinationOrder, Durability, History, Liveliness, MAX_PARTITION_BYTES, MAX_PARTITIONS, Ownership, Qos, Reliability,
};

/// A key of the text form.
struct Key {
    name: &'static str,
    /// What a value looks like.
    expected: &'static str,
    /// The value as text.
    print: fn(&Qos) -> String,
    /// Sets the value. `None` if the text is none, or the value is out of range.
    parse: fn(&mut Qos, &str) -> Option<()>,
}

/// A key whose values are a few names.
macro_rules! names {
    ($field:ident, $name:literal, $expected:literal, $($text:literal => $value:expr),+) => {
        Key {
            name: $name,
            expected: $expected,
            print: |qos| match qos.$field { $(value if value == $value => $text.into(),)+ _ => String::new() },
            parse: |qos, text| { qos.$field = match text { $($text => $value,)+ _ => return None }; Some(()) },
        }
    };
}

/// A key whose value is a duration or `infinite`.
macro_rules! period {
    ($field:ident, $name:literal) => {
        Key {
            name: $name,
            expected: "a duration such as '100ms', larger than 0, or 'infinite'",
            print: |qos| qos.$field.map_or("infinite".into(), print_duration),
            parse: |qos, text| {
                qos.$field = match text {
                    "infinite" => None,
                    text => Some(parse_duration(text).filter(|duration| !duration.is_zero())?),
                };
                Some(())
            },
        }
    };
}

/// A key whose value is a duration.
macro_rules! duration {
    ($field:ident, $name:literal) => {
        Key {
            name: $name,
            expected: "a duration such as '100ms'",
            print: |qos| print_duration(qos.$field),
            parse: |qos, text| {
                qos.$field = parse_duration(text)?;
                Some(())
            },
        }
    };
}

/// A key whose value is a limit.
macro_rules! limit {
    ($field:ident, $name:literal) => {
        Key {
            name: $name,
            expected: "a number from 1 on, or 'unlimited'",
            print: |qos| qos.resource_limits.$field.map_or("unlimited".into(), |limit| limit.to_string()),
            parse: |qos, text| {
                qos.resource_limits.$field = match text {
                    "unlimited" => None,
                    text => Some(text.parse().ok().filter(|limit| *limit > 0)?),
                };
                Some(())
            },
        }
    };
}

/// All keys, in the order in which they are printed.
static KEYS: &[Key] = &[
    names!(reliability, "reliability", "'best-available', 'best-effort' or 'reliable'",
        "best-available" => Reliability::BestAvailable,
        "best-effort" => Reliability::BestEffort,
        "reliable" => Reliability::Reliable),
    Key {
        name: "history",
        expected: "'keep-all', or 'keep-last:' and a number from 1 on",
        print: |qos| match qos.history {
            History::KeepAll => "keep-all".into(),
            History::KeepLast(depth) => format!("keep-last:{depth}"),
        },
        parse: |qos, text| {
            qos.history = match text.strip_prefix("keep-last:") {
                Some(depth) => History::KeepLast(depth.parse().ok().filter(|depth| *depth > 0)?),
                None => (text == "keep-all").then_some(History::KeepAll)?,
            };
            Some(())
        },
    },
    names!(durability, "durability", "'volatile' or 'transient-local'; 'transient' and 'persistent' do not exist here",
        "volatile" => Durability::Volatile,
        "transient-local" => Durability::TransientLocal),
    period!(deadline, "deadline"),
    period!(lifespan, "lifespan"),
    names!(liveliness, "liveliness", "'automatic' or 'manual-by-topic'; 'manual-by-participant' does not exist here",
        "automatic" => Liveliness::Automatic,
        "manual-by-topic" => Liveliness::ManualByTopic),
    period!(lease, "lease"),
    duration!(latency_budget, "latency-budget"),
    Key {
        name: "transport-priority",
        expected: "a whole number of 32 bits",
        print: |qos| qos.transport_priority.to_string(),
        parse: |qos, text| {
            qos.transport_priority = text.parse().ok()?;
            Some(())
        },
    },
    duration!(time_based_filter, "time-based-filter"),
    Key {
        name: "ownership",
        expected: "'shared', 'exclusive', or 'exclusive:' and a strength",
        print: |qos| match qos.ownership {
            Ownership::Shared => "shared".into(),
            Ownership::Exclusive { strength: 0 } => "exclusive".into(),
            Ownership::Exclusive { strength } => format!("exclusive:{strength}"),
        },
        parse: |qos, text| {
            qos.ownership = match (text, text.strip_prefix("exclusive:")) {
                ("shared", _) => Ownership::Shared,
                ("exclusive", _) => Ownership::Exclusive { strength: 0 },
                (_, strength) => Ownership::Exclusive { strength: strength?.parse().ok()? },
            };
            Some(())
        },
    },
    Key {
        name: "partition",
        expected: "at most 32 names, of 512 bytes together, without commas and control characters",
        print: |qos| qos.partition.join(","),
        parse: |qos, text| {
            qos.partition.push(text.into());
            if !partitions_are_valid(qos) {
                qos.partition.pop();
                return None;
            }
            Some(())
        },
    },
    names!(destination_order, "destination-order", "'by-reception' or 'by-source'",
        "by-reception" => DestinationOrder::ByReception,
        "by-source" => DestinationOrder::BySource),
    limit!(max_samples, "max-samples"),
    limit!(max_instances, "max-instances"),
    limit!(max_samples_per_instance, "max-samples-per-instance"),
];

/// A named profile, and what makes it.
type Profile = (&'static str, fn() -> Qos);

/// Words that stand for all policies.
static PROFILES: &[Profile] = &[
    ("default", Qos::default),
    ("system-default", Qos::system_default),
    ("ros-default", Qos::ros_default),
    ("sensor-data", Qos::sensor_data),
    ("services", Qos::services),
    ("parameters", Qos::parameters),
];

/// Why policies are not valid.
///
/// ```
/// use polywire_core::qos::{Qos, QosError};
/// let error = |text: &str| text.parse::<Qos>().unwrap_err().to_string();
/// assert_eq!(error("history=keep-last:0"), "history: 'keep-last:0' is not 'keep-all', or 'keep-last:' and a number from 1 on");
/// assert!(error("durabilty=volatile").starts_with("there is no policy 'durabilty': known are reliability, history,"));
/// assert!(error("sensors").starts_with("there is no profile 'sensors': known are default, system-default,"));
/// assert!(matches!("deadline=1s,time-based-filter=2s".parse::<Qos>(), Err(QosError::Contradiction { .. })));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QosError {
    /// There is no such policy.
    #[error("there is no policy '{name}': known are {}", names())]
    Policy {
        /// The name as given.
        name: String,
    },
    /// There is no such profile.
    #[error("there is no profile '{name}': known are {}", profiles())]
    Profile {
        /// The name as given.
        name: String,
    },
    /// The policy has no such value.
    #[error("{policy}: '{value}' is not {expected}")]
    Value {
        /// Name of the policy.
        policy: &'static str,
        /// The value as given.
        value: String,
        /// What a value is.
        expected: &'static str,
    },
    /// Two policies exclude each other.
    #[error("{a} and {b} contradict each other: {reason}")]
    Contradiction {
        /// One policy with its value.
        a: String,
        /// The other.
        b: String,
        /// Why.
        reason: &'static str,
    },
}

impl Qos {
    /// Sets one policy from text. Names may have underscores instead of hyphens. `partition` adds a
    /// name each time.
    ///
    /// Does not check the policies against each other: [`Qos::check`] does. After an error, the
    /// policies are as before.
    ///
    /// ```
    /// use polywire_core::qos::{Qos, Reliability};
    /// let mut qos = Qos::default();
    /// qos.set("reliability", "best-effort")?;
    /// qos.set("time_based_filter", "1.5ms")?;
    /// assert_eq!(qos.to_string(), "reliability=best-effort,time-based-filter=1500us");
    /// # Ok::<(), polywire_core::qos::QosError>(())
    /// ```
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), QosError> {
        let same = |key: &&Key| key.name.chars().eq(name.chars().map(|c| if c == '_' { '-' } else { c }));
        let key = KEYS.iter().find(same).ok_or_else(|| QosError::Policy { name: name.into() })?;
        let wrong = || QosError::Value { policy: key.name, value: value.into(), expected: key.expected };
        (key.parse)(self, value).ok_or_else(wrong)
    }

    /// Sets the policies that the text names, `NAME=VALUE,...`, and checks the result. A first word
    /// without a value is a profile, which sets all. Partitions replace those from before.
    ///
    /// ```
    /// use polywire_core::qos::Qos;
    /// let configured = Qos::default().keep_last(3).partition(["a"]);
    /// assert_eq!(configured.clone().with("deadline=1s,partition=b")?.to_string(), "history=keep-last:3,deadline=1s,partition=b");
    /// assert_eq!(configured.with("sensor-data,deadline=1s")?, Qos::sensor_data().with("deadline=1000ms")?);
    /// # Ok::<(), polywire_core::qos::QosError>(())
    /// ```
    pub fn with(mut self, text: &str) -> Result<Qos, QosError> {
        let mut has_partition = false;
        for (at, part) in text.split(',').map(str::trim).enumerate().filter(|(_, part)| !part.is_empty()) {
            match part.split_once('=') {
                None if at == 0 => self = profile(part)?,
                None => return Err(QosError::Policy { name: part.into() }),
                Some((name, value)) => {
                    if name.trim() == "partition" && !core::mem::replace(&mut has_partition, true) {
                        self.partition.clear();
                    }
                    self.set(name.trim(), value.trim())?;
                }
            }
        }
        self.check()?;
        Ok(self)
    }
}

impl FromStr for Qos {
    type Err = QosError;

    /// As [`Qos::with`], from the defaults.
    fn from_str(text: &str) -> Result<Qos, QosError> {
        Qos::default().with(text)
    }
}

/// The policies that differ from the defaults, `NAME=VALUE,...`; `default` if none does.
impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        for key in KEYS.iter().filter(|key| (key.print)(self) != (key.print)(&Qos::DEFAULT) || is_list(self, key)) {
            match key.name {
                "partition" => parts.extend(self.partition.iter().map(|name| format!("partition={name}"))),
                name => parts.push(format!("{name}={}", (key.print)(self))),
            }
        }
        f.write_str(if parts.is_empty() { "default" } else { "" })?;
        f.write_str(&parts.join(","))
    }
}

/// One partition without a name prints as nothing, and is not the default.
fn is_list(qos: &Qos, key: &Key) -> bool {
    key.name == "partition" && !qos.partition.is_empty()
}

/// The value of a policy as text; empty for an unknown policy.
pub(super) fn value(qos: &Qos, name: &str) -> String {
    KEYS.iter().find(|key| key.name == name).map_or_else(String::new, |key| (key.print)(qos))
}

/// A policy with its value.
pub(super) fn of(qos: &Qos, name: &str) -> String {
    format!("{name}={}", value(qos, name))
}

/// Checks values that code can set and text cannot.
pub(super) fn check_values(qos: &Qos) -> Result<(), QosError> {
    let too_long = |time: Duration| u64::try_from(time.as_nanos()).is_err();
    let wrong_period = |period: Option<Duration>| period.is_some_and(|period| period.is_zero() || too_long(period));
    let limits = qos.resource_limits;
    let wrong = [
        ("history", qos.history == History::KeepLast(0)),
        ("deadline", wrong_period(qos.deadline)),
        ("lifespan", wrong_period(qos.lifespan)),
        ("lease", wrong_period(qos.lease)),
        ("latency-budget", too_long(qos.latency_budget)),
        ("time-based-filter", too_long(qos.time_based_filter)),
        ("partition", !partitions_are_valid(qos)),
        ("max-samples", limits.max_samples == Some(0)),
        ("max-instances", limits.max_instances == Some(0)),
        ("max-samples-per-instance", limits.max_samples_per_instance == Some(0)),
    ];
    let key = |name| KEYS.iter().find(|key| key.name == name);
    match wrong.iter().find(|(_, wrong)| *wrong).and_then(|(name, _)| key(*name)) {
        None => Ok(()),
        Some(key) => Err(QosError::Value { policy: key.name, value: (key.print)(qos), expected: key.expected }),
    }
}

fn partitions_are_valid(qos: &Qos) -> bool {
    let valid = |name: &String| !name.contains(',') && name.trim() == name && !name.chars().any(char::is_control);
    let bytes: usize = qos.partition.iter().map(String::len).sum();
    qos.partition.len() <= MAX_PARTITIONS && bytes <= MAX_PARTITION_BYTES && qos.partition.iter().all(valid)
}

fn profile(name: &str) -> Result<Qos, QosError> {
    let same = |profile: &&Profile| profile.0.chars().eq(name.chars().map(|c| if c == '_' { '-' } else { c }));
    let (_, make) = PROFILES.iter().find(same).ok_or_else(|| QosError::Profile { name: name.into() })?;
    Ok(make())
}

fn names() -> String {
    KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

fn profiles() -> String {
    PROFILES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Units of durations in nanoseconds, from the largest.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A number, with a fraction or without, and a unit: `1.5ms`. Up to 2^64 nanoseconds, and exact.
fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.trim_end().split_once('.').unwrap_or((number.trim_end(), "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let mut total = whole.parse::<u64>().ok()?.checked_mul(*nanos)?;
    let (mut left, mut rest) = (*nanos, 0);
    for digit in fraction.bytes() {
        // Digits beyond a nanosecond are not representable.
        let scaled = rest * 10 + u64::from(digit - b'0') * left;
        (total, rest) = (total.checked_add(scaled / 10)?, scaled % 10);
        if left % 10 != 0 && rest != 0 {
            return None;
        }
        left /= 10;
    }
    (rest == 0).then(|| Duration::from_nanos(total))
}

/// The duration in the largest unit in which it is a whole number.
fn print_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".into();
    }
    let fitting = UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(u128::from(*unit)));
    fitting.map_or_else(String::new, |(name, unit)| format!("{}{name}", nanos / u128::from(*unit)))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_exact() {
        let cases = [
            ("1.5ms", 1_500_000),
            ("0.000001s", 1000),
            ("2h", 7_200_000_000_000),
            ("1.25us", 1250),
            ("0s", 0),
            ("1.5min", 90_000_000_000),
            ("10 ms", 10_000_000),
            ("0.25h", 900_000_000_000),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse_duration(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["", "5", "ms", "-1s", "1.s", ".5s", "1.5ns", "1e3s", "1d", "99999999999h", "1.0001us"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_value_that_is_refused_changes_nothing() {
        let mut qos = Qos::default().partition(["a"]).keep_last(3);
        let (before, long) = (qos.clone(), "x".repeat(MAX_PARTITION_BYTES));
        for (name, value) in [
            ("partition", "a\u{7}"),
            ("partition", long.as_str()),
            ("history", "keep-last:0"),
            ("deadline", "0s"),
            ("ownership", "exclusive:x"),
            ("max-samples", "0"),
            ("colour", "red"),
        ] {
            assert!(qos.set(name, value).is_err(), "{name}");
            assert_eq!(qos, before, "{name}");
        }
    }

    #[test]
    fn profiles_have_all_their_names() {
        for (name, make) in PROFILES {
            assert_eq!(name.replace('-', "_").parse::<Qos>(), Ok(make()));
        }
        assert_eq!((Qos::default().to_string(), "".parse()), ("default".into(), Ok(Qos::default())));
    }

    /// Random policies, also contradictory ones.
    pub(in crate::qos) fn policies() -> impl Strategy<Value = Qos> {
        let nanos = || any::<u64>().prop_map(|n| Duration::from_nanos(n >> (n % 64)));
        let period = move || prop::option::of(nanos().prop_filter("not zero", |period| !period.is_zero()));
        let limit = || prop::option::of(1..=u32::MAX);
        let kinds = (0..3usize, 0..2usize, 0..2usize, 0..2usize, prop::option::of(any::<i32>()));
        let times = (period(), period(), period(), nanos(), nanos());
        let rest = (any::<i32>(), prop::collection::vec("[a-z/*\\[\\]?]{0,9}", 0..4), limit(), limit(), limit());
        (kinds, times, rest, prop::option::of(1..=u32::MAX)).prop_map(|(kinds, times, rest, depth)| {
            use super::super::ResourceLimits;
            let mut qos = Qos {
                reliability: [Reliability::BestAvailable, Reliability::BestEffort, Reliability::Reliable][kinds.0],
                durability: [Durability::Volatile, Durability::TransientLocal][kinds.1],
                liveliness: [Liveliness::Automatic, Liveliness::ManualByTopic][kinds.2],
                destination_order: [DestinationOrder::ByReception, DestinationOrder::BySource][kinds.3],
                ..Qos::default()
            };
            qos.ownership = kinds.4.map_or(Ownership::Shared, |strength| Ownership::Exclusive { strength });
            (qos.deadline, qos.lifespan, qos.lease) = (times.0, times.1, times.2);
            (qos.latency_budget, qos.time_based_filter) = (times.3, times.4);
            (qos.transport_priority, qos.partition) = (rest.0, rest.1);
            let (max_samples, max_instances, max_samples_per_instance) = (rest.2, rest.3, rest.4);
            qos.resource_limits = ResourceLimits { max_samples, max_instances, max_samples_per_instance };
            qos.history = depth.map_or(History::KeepAll, History::KeepLast);
            qos
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(qos in policies()) {
            let text = qos.to_string();
            prop_assert_eq!(qos.check().is_ok(), text.parse::<Qos>().is_ok());
            if qos.check().is_ok() {
                prop_assert_eq!(text.parse(), Ok(qos));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,80}") {
            let _ = text.parse::<Qos>();
        }
    }
}
