//! How the samples of one probe are kept and sent.

use std::{fmt, str::FromStr, time::Duration};

/// The highest priority.
pub const MAX_PRIORITY: u8 = 9;

/// The longest time for which a sample may wait for others.
const LONGEST: Duration = Duration::from_secs(3600);

/// The longest time for which a sample waits for others if a batch specifies no time.
const DEFAULT_WAIT: Duration = Duration::from_secs(60);

/// The maximum number of samples of [`Keep::Last`].
const MAX_KEPT: u32 = 100_000;

/// How the samples of a probe are kept for the collector, and when they are sent.
///
/// ```
/// use polywire_telemetry::uplink::{Batch, Keep, Rule};
/// use std::time::Duration;
///
/// let rule = Rule { keep: "1".parse()?, batch: "5s,100,64kB".parse()?, priority: 7 };
/// assert_eq!((rule.keep, rule.batch.time), (Keep::Last(1), Some(Duration::from_secs(5))));
/// assert_eq!((rule.batch.samples, rule.batch.bytes), (Some(100), Some(64_000)));
/// assert_eq!(Rule::default(), Rule { keep: Keep::All, batch: Batch::default(), priority: 5 });
/// # Ok::<(), polywire_telemetry::uplink::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which samples are kept.
    pub keep: Keep,
    /// When they are sent.
    pub batch: Batch,
    /// From 0 to 9. Samples of high priority are sent first and dropped last.
    pub priority: u8,
}

impl Default for Rule {
    /// Keeps all samples and sends them at once, with the priority 5.
    fn default() -> Rule {
        Rule { keep: Keep::All, batch: Batch::default(), priority: 5 }
    }
}

/// Which samples are kept until the collector has stored them. As text: `all`, a number, or `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// All, in the spool.
    #[default]
    All,
    /// The last ones, in memory; from 1 to 100,000. Older ones are dropped.
    Last(u32),
    /// None: the samples of the probe are not sent to the collector.
    None,
}

/// When samples are sent: at once, or when enough samples or bytes wait or enough time has passed.
/// As text: `off`, or one or several of a time (`5s`, `200ms`), a number of samples (`100`) and
/// bytes (`64kB`, 1 kB is 1000 bytes), separated by commas. Without a time, a sample waits for at
/// most a minute. When the samples of one probe are due, waiting samples of other probes are sent,
/// too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The longest time for which a sample waits; at most an hour.
    pub time: Option<Duration>,
    /// The number of samples of the probe at which they are sent.
    pub samples: Option<u64>,
    /// The size of the probe's payloads in bytes at which they are sent.
    pub bytes: Option<u64>,
}

/// The error for a text that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is expected")]
pub struct RuleError(pub(crate) &'static str);

impl Batch {
    /// Returns the longest time for which a sample waits for others.
    pub(super) fn wait(self) -> Duration {
        let is_off = self == Batch::default();
        self.time.unwrap_or(if is_off { Duration::ZERO } else { DEFAULT_WAIT })
    }

    /// Returns whether this number of samples or bytes is due at once.
    pub(super) fn is_full(self, samples: u64, bytes: u64) -> bool {
        self.samples.is_some_and(|most| samples >= most) || self.bytes.is_some_and(|most| bytes >= most)
    }
}

impl FromStr for Keep {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Keep, RuleError> {
        let wrong = RuleError("'all', 'none' or a number from 1 to 100000");
        match text {
            "all" => Ok(Keep::All),
            "none" => Ok(Keep::None),
            number => number.parse().ok().filter(|n| (1..=MAX_KEPT).contains(n)).map(Keep::Last).ok_or(wrong),
        }
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keep::All => f.write_str("all"),
            Keep::Last(most) => write!(f, "{most}"),
            Keep::None => f.write_str("none"),
        }
    }
}

impl FromStr for Batch {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Batch, RuleError> {
        let wrong = RuleError("'off', or a time such as 5s, a number of samples, bytes such as 64kB, with commas");
        let mut batch = Batch::default();
        if text == "off" {
            return Ok(batch);
        }
        for part in text.split(',') {
            let digits = part.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(part.len());
            let (number, unit) = part.split_at(digits);
            let number: f64 = number.parse().ok().filter(|number| *number > 0.0).ok_or_else(|| wrong.clone())?;
            let is_new = match unit {
                "s" | "ms" => {
                    let seconds = if unit == "s" { number } else { number / 1000.0 };
                    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= LONGEST);
                    batch.time.replace(time.ok_or_else(|| wrong.clone())?).is_none()
                }
                "" => batch.samples.replace(number.ceil() as u64).is_none(),
                "B" => batch.bytes.replace(number.ceil() as u64).is_none(),
                "kB" => batch.bytes.replace((number * 1e3).ceil() as u64).is_none(),
                "MB" => batch.bytes.replace((number * 1e6).ceil() as u64).is_none(),
                _ => false,
            };
            if !is_new {
                return Err(wrong);
            }
        }
        Ok(batch)
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.time.map(|time| format!("{}s", time.as_secs_f64())),
            self.samples.map(|samples| samples.to_string()),
            self.bytes.map(|bytes| format!("{bytes}B")),
        ];
        let text = parts.into_iter().flatten().collect::<Vec<_>>().join(",");
        f.write_str(if text.is_empty() { "off" } else { &text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_rules_and_back() {
        for text in ["off", "5s", "0.2s,100", "7,1B", "60s,1000,64000B"] {
            assert_eq!(text.parse::<Batch>().expect("a batch").to_string(), text);
        }
        assert_eq!("200ms,1.5MB".parse::<Batch>().expect("a batch").to_string(), "0.2s,1500000B");
        for text in ["", "5", "x", "-1s", "0s", "5s,6s", "9999s", "5h", "1,2", "1e9", "NaNs", "."] {
            assert_eq!(text.parse::<Batch>().is_ok(), text == "5", "{text}");
        }
        for text in ["all", "none", "1", "100000"] {
            assert_eq!(text.parse::<Keep>().expect("a number").to_string(), text);
        }
        assert!(["0", "100001", "some", ""].iter().all(|text| text.parse::<Keep>().is_err()));
    }

    #[test]
    fn a_batch_without_a_time_waits_a_minute() {
        let wait = |text: &str| text.parse::<Batch>().expect("a batch").wait().as_secs();
        assert_eq!((wait("off"), wait("100"), wait("5s,100")), (0, 60, 5));
    }
}
