//! Thinning: a sample is sent only if those who have the previous one could not go on with it.

use std::{fmt, str::FromStr, time::Duration};

use polywire::extend::layout::ValueRef;

use crate::{MeasureError, Moment};

/// The most rules of a thinning.
const MOST_RULES: usize = 256;

/// The member that says what time rates cover. It differs in every sample and is no measurement.
const INTERVAL: &str = "interval_s";

/// Which samples are sent.
///
/// As text: `off` sends all of them, and is the default; `change` sends those that differ from the
/// last one that was sent; a list such as `pressure=0.5,cores.busy_percent=5,*=1` also holds back
/// numbers that are at most so far from the last one sent. A rule names a member by its path
/// without indexes, or `*` for all numbers that no rule names. `heartbeat=60` sends a sample at the
/// latest 60 seconds after the last one. Whatever is no number counts if it differs at all, and
/// `interval_s`, the time that rates cover, never counts.
///
/// ```
/// use polywire_telemetry::Thinning;
///
/// let thinning: Thinning = "pressure=0.5,*=1,heartbeat=60".parse()?;
/// assert_eq!(thinning.to_string(), "pressure=0.5,*=1,heartbeat=60");
/// assert_eq!(Thinning::default().to_string(), "off");
/// assert!("pressure=-1".parse::<Thinning>().is_err());
/// # Ok::<(), polywire_telemetry::MeasureError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thinning {
    /// `None` sends every sample.
    rules: Option<Vec<(String, f64)>>,
    heartbeat: Option<Duration>,
}

impl FromStr for Thinning {
    type Err = MeasureError;

    fn from_str(text: &str) -> Result<Thinning, MeasureError> {
        let wrong = || MeasureError::Value {
            parameter: "thin".to_owned(),
            value: text.to_owned(),
            expected: "'off', 'change', or MEMBER=BOUND,.. with bounds from 0 up".to_owned(),
        };
        if text == "off" {
            return Ok(Thinning::default());
        }
        let (mut rules, mut heartbeat) = (Vec::new(), None);
        for rule in text.split(',').filter(|rule| *rule != "change") {
            let (member, bound) = rule.split_once('=').ok_or_else(wrong)?;
            let bound: f64 = bound.parse().map_err(|_| wrong())?;
            if member.is_empty() || !bound.is_finite() || bound < 0.0 || rules.len() == MOST_RULES {
                return Err(wrong());
            }
            match member {
                "heartbeat" => heartbeat = Some(Duration::try_from_secs_f64(bound).map_err(|_| wrong())?),
                member => rules.push((member.to_owned(), bound)),
            }
        }
        Ok(Thinning { rules: Some(rules), heartbeat })
    }
}

impl fmt::Display for Thinning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(rules) = &self.rules else { return f.write_str("off") };
        let mut words: Vec<String> = rules.iter().map(|(member, bound)| format!("{member}={bound}")).collect();
        words.extend(self.heartbeat.map(|heartbeat| format!("heartbeat={}", heartbeat.as_secs_f64())));
        f.write_str(if words.is_empty() { "change" } else { "" })?;
        f.write_str(&words.join(","))
    }
}

impl Thinning {
    fn bound(&self, member: &str) -> f64 {
        let rules = self.rules.as_deref().unwrap_or_default();
        let of = |name: &str| rules.iter().find(|(member, _)| member == name).map(|(_, bound)| *bound);
        match of(member) {
            Some(bound) => bound,
            None if member == INTERVAL => f64::INFINITY,
            None => of("*").unwrap_or(0.0),
        }
    }
}

/// Decides for one probe, sample by sample.
///
/// ```
/// use polywire::extend::layout::ValueRef;
/// use polywire_telemetry::{Moment, Thinner};
/// # #[derive(polywire::Message)]
/// # struct Tank { level: f64 }
///
/// let (mut thinner, now) = (Thinner::new("level=0.5".parse()?), Moment::default());
/// let sent = [1.0, 1.4, 1.5, 1.6, 1.2, 1.0].map(|level| thinner.sends(ValueRef::of(&Tank { level }), now));
/// assert_eq!(sent, [true, false, false, true, false, true]);
/// // Somebody new needs the next sample whatever it is.
/// thinner.reset();
/// assert!(thinner.sends(ValueRef::of(&Tank { level: 1.0 }), now));
/// # Ok::<(), polywire_telemetry::MeasureError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Thinner {
    thinning: Thinning,
    /// The leaves of the last sample that was sent, with their bounds.
    sent: Vec<(Leaf, f64)>,
    at: Option<Duration>,
}

/// A value without members. Text and the like are kept as they print.
#[derive(Clone, Debug, PartialEq)]
enum Leaf {
    Int(i128),
    Float(f64),
    Other(String),
    /// The length of a list.
    Length(usize),
}

impl Thinner {
    /// Sends the first sample.
    pub fn new(thinning: Thinning) -> Thinner {
        Thinner { thinning, sent: Vec::new(), at: None }
    }

    /// The rules.
    pub fn thinning(&self) -> &Thinning {
        &self.thinning
    }

    /// Sends the next sample whatever it is.
    pub fn reset(&mut self) {
        self.at = None;
    }

    /// Whether this sample is to be sent. If so, later samples are compared with it.
    pub fn sends(&mut self, sample: ValueRef<'_>, now: Moment) -> bool {
        if self.thinning.rules.is_none() {
            return true;
        }
        let mut leaves = Vec::with_capacity(self.sent.len());
        collect(&self.thinning, &mut String::new(), sample, &mut leaves);
        let since = self.at.map(|at| now.steady.saturating_sub(at));
        let late = since.is_none_or(|since| self.thinning.heartbeat.is_some_and(|most| since >= most));
        let differs = leaves.len() != self.sent.len()
            || leaves.iter().zip(&self.sent).any(|((new, bound), (old, _))| !new.is_near(old, *bound));
        if late || differs {
            (self.sent, self.at) = (leaves, Some(now.steady));
        }
        late || differs
    }
}

impl Leaf {
    fn is_near(&self, other: &Leaf, bound: f64) -> bool {
        match (self, other) {
            // Every number is as near as that, also one that is none.
            (Leaf::Int(_), Leaf::Int(_)) | (Leaf::Float(_), Leaf::Float(_)) if bound == f64::INFINITY => true,
            (Leaf::Int(a), Leaf::Int(b)) => a.abs_diff(*b) as f64 <= bound,
            (Leaf::Float(a), Leaf::Float(b)) => a.to_bits() == b.to_bits() || (a - b).abs() <= bound,
            (a, b) => a == b,
        }
    }
}

/// The leaves of a value, in their order. A path has the names of members, without indexes.
fn collect(thinning: &Thinning, path: &mut String, value: ValueRef<'_>, leaves: &mut Vec<(Leaf, f64)>) {
    let leaf = match value {
        ValueRef::Struct(value) => {
            for (member, value) in value.fields() {
                let len = path.len();
                path.push_str(if len == 0 { "" } else { "." });
                path.push_str(&member.name);
                collect(thinning, path, value, leaves);
                path.truncate(len);
            }
            return;
        }
        ValueRef::List(list) => {
            list.iter().for_each(|element| collect(thinning, path, element, leaves));
            Leaf::Length(list.len())
        }
        ValueRef::Float32(_) | ValueRef::Float64(_) => Leaf::Float(value.as_f64().unwrap_or_default()),
        ValueRef::Int(number) => Leaf::Int(number.into()),
        ValueRef::Uint(number) => Leaf::Int(number.into()),
        other => Leaf::Other(format!("{other:?}")),
    };
    leaves.push((leaf, thinning.bound(path)));
}
