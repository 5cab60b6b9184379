//! Thinning: a sample is sent only if subscribers cannot derive it from the samples sent before.

use std::{fmt, str::FromStr, time::Duration};

use polywire::extend::layout::ValueRef;

use crate::{MeasureError, Moment};

/// The maximum number of rules of a thinning.
const MAX_RULES: usize = 256;

/// The member with the time that rates cover. It differs in every sample and is not a measurement.
const INTERVAL: &str = "interval_s";

/// Which samples are sent.
///
/// As text: `off` sends all samples, and is the default; `change` sends those that differ from the
/// last sample sent; a list such as `pressure=0.5,cores.busy_percent=5,*=1` also holds samples back
/// whose numbers differ from the last ones sent by at most these bounds. A rule names a member by
/// its path without indexes, or `*` for all numbers that no rule names. `heartbeat=60` sends a
/// sample at the latest 60 seconds after the last one. Any difference counts in values that are not
/// numbers, and `interval_s`, the time that rates cover, is ignored.
///
/// With the word `line`, a number is compared with the extrapolation of the last two samples sent
/// ([`extrapolate`]), instead of the last one: a level that rises steadily then takes two samples.
/// Numbers that fluctuate take more samples than without it.
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
    /// Whether numbers are extrapolated along a line.
    line: bool,
}

impl FromStr for Thinning {
    type Err = MeasureError;

    fn from_str(text: &str) -> Result<Thinning, MeasureError> {
        let wrong = || MeasureError::Value {
            parameter: "thin".to_owned(),
            value: text.to_owned(),
            expected: "'off', 'change', or MEMBER=BOUND,.. with bounds from 0 up and perhaps 'line'".to_owned(),
        };
        if text == "off" {
            return Ok(Thinning::default());
        }
        let (mut rules, mut heartbeat) = (Vec::new(), None);
        let line = text.split(',').any(|rule| rule == "line");
        for rule in text.split(',').filter(|rule| !["change", "line"].contains(rule)) {
            let (member, bound) = rule.split_once('=').ok_or_else(wrong)?;
            let bound: f64 = bound.parse().map_err(|_| wrong())?;
            if member.is_empty() || !bound.is_finite() || bound < 0.0 || rules.len() == MAX_RULES {
                return Err(wrong());
            }
            match member {
                "heartbeat" => heartbeat = Some(Duration::try_from_secs_f64(bound).map_err(|_| wrong())?),
                member => rules.push((member.to_owned(), bound)),
            }
        }
        Ok(Thinning { rules: Some(rules), heartbeat, line })
    }
}

impl fmt::Display for Thinning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(rules) = &self.rules else { return f.write_str("off") };
        let mut words: Vec<String> = self.line.then(|| "line".to_owned()).into_iter().collect();
        words.extend(rules.iter().map(|(member, bound)| format!("{member}={bound}")));
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

/// Decides for each sample of one probe whether to send it.
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
/// // A new subscriber needs the next sample in any case.
/// thinner.reset();
/// assert!(thinner.sends(ValueRef::of(&Tank { level: 1.0 }), now));
/// # Ok::<(), polywire_telemetry::MeasureError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Thinner {
    thinning: Thinning,
    last: Sent,
    /// The sample sent before `last`, if numbers are extrapolated from both.
    before: Option<Sent>,
    /// The number of samples that are to be sent in any case.
    must: usize,
}

/// A sample that was sent.
#[derive(Clone, Debug, Default)]
struct Sent {
    leaves: Vec<Leaf>,
    at: Moment,
}

/// A value without members, with its bound.
#[derive(Clone, Debug)]
struct Leaf {
    value: Value,
    bound: f64,
}

/// A value that is compared. Text and other types are kept in their debug format.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Int(i128),
    Float(f64),
    Other(String),
    /// The length of a list.
    Length(usize),
}

impl Thinner {
    /// Makes a thinner. It sends the first sample, and also the second one if numbers are
    /// extrapolated.
    pub fn new(thinning: Thinning) -> Thinner {
        let mut thinner = Thinner { thinning, ..Thinner::default() };
        thinner.reset();
        thinner
    }

    /// Returns the rules.
    pub fn thinning(&self) -> &Thinning {
        &self.thinning
    }

    /// Sends the next sample in any case, and also the one after it if numbers are extrapolated.
    pub fn reset(&mut self) {
        self.must = 1 + usize::from(self.thinning.line);
    }

    /// Returns whether this sample is to be sent. If so, later samples are compared with it.
    pub fn sends(&mut self, sample: ValueRef<'_>, now: Moment) -> bool {
        if self.thinning.rules.is_none() {
            return true;
        }
        let mut leaves = Vec::with_capacity(self.last.leaves.len());
        collect(&self.thinning, &mut String::new(), sample, &mut leaves);
        let new = Sent { leaves, at: now };
        let since = now.steady.saturating_sub(self.last.at.steady);
        let is_late = self.thinning.heartbeat.is_some_and(|most| since >= most);
        if self.must == 0 && !is_late && new.is_expected(&self.last, self.before.as_ref()) {
            return false;
        }
        self.must = self.must.saturating_sub(1);
        let last = std::mem::replace(&mut self.last, new);
        self.before = Some(last).filter(|last| self.thinning.line && last.leaves.len() == self.last.leaves.len());
        true
    }
}

impl Sent {
    /// Returns whether a receiver of `last`, and of `before` for an extrapolation, knows this
    /// sample within the bounds.
    fn is_expected(&self, last: &Sent, before: Option<&Sent>) -> bool {
        // The time after `last`, in units of the time between `before` and `last`.
        let along = before.map_or(0.0, |before| along(before.at.wall_ns, last.at.wall_ns, self.at.wall_ns));
        let before = before.unwrap_or(last);
        self.leaves.len() == last.leaves.len()
            && self
                .leaves
                .iter()
                .zip(&last.leaves)
                .zip(&before.leaves)
                .all(|((new, last), before)| new.value.is_near(&last.value, &before.value, along, new.bound))
    }
}

impl Value {
    fn is_near(&self, last: &Value, before: &Value, along: f64, bound: f64) -> bool {
        match (self, last) {
            // Any number is within an infinite bound, also NaN.
            (Value::Int(_), Value::Int(_)) | (Value::Float(_), Value::Float(_)) if bound == f64::INFINITY => true,
            (Value::Int(new), Value::Int(last)) => {
                let step = if let Value::Int(before) = before { (last - before) as f64 * along } else { 0.0 };
                ((new - last) as f64 - step).abs() <= bound
            }
            (Value::Float(new), Value::Float(last)) => {
                let expected = if let Value::Float(before) = before { on_line(*before, *last, along) } else { *last };
                new.to_bits() == expected.to_bits() || (new - expected).abs() <= bound
            }
            (new, last) => new == last,
        }
    }
}

/// Extrapolates a number linearly from two samples to a time; times are in nanoseconds. Returns the
/// second sample's value if it is not later than the first one, if the time is not later than the
/// second one, or if the extrapolated change is not finite.
///
/// A receiver of samples that [`Thinning`] by `line` has thinned uses this function: the result
/// differs from the measured value at that time by at most the bound.
///
/// ```
/// use polywire_telemetry::extrapolate;
///
/// assert_eq!(extrapolate((1_000, 5.0), (2_000, 6.0), 4_000), 8.0);
/// assert_eq!(extrapolate((2_000, 5.0), (2_000, 6.0), 4_000), 6.0);
/// ```
pub fn extrapolate(before: (i64, f64), last: (i64, f64), at_ns: i64) -> f64 {
    on_line(before.1, last.1, along(before.0, last.0, at_ns))
}

fn on_line(before: f64, last: f64, along: f64) -> f64 {
    let step = (last - before) * along;
    if step.is_finite() { last + step } else { last }
}

/// Returns the time after `last_ns`, in units of the time between `before_ns` and `last_ns`.
/// Returns 0 if the times are not in order.
fn along(before_ns: i64, last_ns: i64, at_ns: i64) -> f64 {
    let distance = i128::from(last_ns) - i128::from(before_ns);
    let behind = i128::from(at_ns) - i128::from(last_ns);
    if distance > 0 && behind > 0 { behind as f64 / distance as f64 } else { 0.0 }
}

/// Collects the leaves of a value, in order. A path has the names of members, without indexes.
fn collect(thinning: &Thinning, path: &mut String, value: ValueRef<'_>, leaves: &mut Vec<Leaf>) {
    let value = match value {
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
            Value::Length(list.len())
        }
        ValueRef::Float32(_) | ValueRef::Float64(_) => Value::Float(value.as_f64().unwrap_or_default()),
        ValueRef::Int(number) => Value::Int(number.into()),
        ValueRef::Uint(number) => Value::Int(number.into()),
        other => Value::Other(format!("{other:?}")),
    };
    leaves.push(Leaf { value, bound: thinning.bound(path) });
}

#[cfg(test)]
mod tests {
    use polywire::Message;
    use proptest::prelude::*;

    use super::*;

    #[derive(Default, Message)]
    struct Tank {
        level: f64,
        count: i64,
        state: String,
    }

    fn at(ms: i64) -> Moment {
        Moment { steady: Duration::from_millis(ms as u64), wall_ns: ms * 1_000_000 }
    }

    /// Returns the indexes of the samples that are sent, given samples with times in milliseconds.
    fn sent(thinning: &str, samples: &[(i64, Tank)]) -> Vec<usize> {
        let mut thinner = Thinner::new(thinning.parse().expect("a thinning"));
        (0..samples.len()).filter(|&n| thinner.sends(ValueRef::of(&samples[n].1), at(samples[n].0))).collect()
    }

    fn tank(level: f64, count: i64) -> Tank {
        Tank { level, count, ..Tank::default() }
    }

    #[test]
    fn what_rises_steadily_costs_two_samples() {
        let ramp: Vec<_> = (0..1000).map(|n| (n * 100, tank(n as f64 / 3.0, n * 7))).collect();
        assert_eq!(sent("line,*=0.01", &ramp), [0, 1]);
        assert_eq!(sent("*=0.01", &ramp).len(), 1000);
        // A bend also takes two samples: the one after it, and the one that shows its direction.
        let bent: Vec<_> = (0..1000).map(|n| (n * 100, tank(n.min(500) as f64, 0))).collect();
        assert_eq!(sent("line,*=0.01", &bent), [0, 1, 501, 502]);
        assert_eq!(sent("line,*=0.01,heartbeat=30", &ramp), [0, 1, 301, 601, 901]);
    }

    #[test]
    fn clocks_that_step_and_values_without_a_line_are_held() {
        let back = [(1000, tank(1.0, 0)), (500, tank(2.0, 0)), (600, tank(2.0, 0)), (700, tank(3.0, 0))];
        assert_eq!(sent("line,*=0", &back), [0, 1, 3]);
        let odd = [f64::NAN, 1.0, 1.0, f64::INFINITY, f64::INFINITY, 2.0, 2.0];
        let odd: Vec<_> = (0..7).map(|n| (n * 100, tank(odd[n as usize], 0))).collect();
        assert_eq!(sent("line,*=0", &odd), [0, 1, 3, 5]);
        let extremes: Vec<_> =
            [i64::MIN, i64::MAX, i64::MIN].into_iter().enumerate().map(|(n, c)| (n as i64, tank(0.0, c))).collect();
        assert_eq!(sent("line,*=1", &extremes), [0, 1, 2]);
        let named = |state: &str| Tank { state: state.to_owned(), ..Tank::default() };
        let texts = [(0, named("up")), (100, named("up")), (200, named("up")), (300, named("down"))];
        assert_eq!(sent("line,*=1", &texts), [0, 1, 3]);
    }

    #[test]
    fn somebody_new_gets_the_two_samples_of_a_line() {
        let mut thinner = Thinner::new("line,*=0.5".parse().expect("a thinning"));
        let sends = |n: i64, thinner: &mut Thinner| thinner.sends(ValueRef::of(&tank(n as f64, 0)), at(n * 100));
        assert_eq!([0, 1, 2, 3].map(|n| sends(n, &mut thinner)), [true, true, false, false]);
        thinner.reset();
        assert_eq!([4, 5, 6].map(|n| sends(n, &mut thinner)), [true, true, false]);
    }

    proptest! {
        /// At any sample, what a receiver extrapolates differs from the sample by at most the
        /// bound.
        #[test]
        fn the_bound_is_kept(
            steps in prop::collection::vec((1_i64..2000, -3.0_f64..3.0, -40_i64..40), 1..200),
            bound in 0.0_f64..5.0,
            line: bool,
        ) {
            let (mut time, mut level, mut slope, mut count) = (0, 0.0, 0.0, 0);
            let samples: Vec<_> = steps.into_iter().map(|(after, bend, more)| {
                // Mostly straight, with bends.
                if bend.abs() > 2.0 { slope = bend }
                (time, level, count) = (time + after, level + slope * after as f64 / 1000.0, count + more / 10);
                (time, tank(level, count))
            }).collect();
            let thinning = format!("{}*={bound}", if line { "line," } else { "" });
            let sent = sent(&thinning, &samples);
            let reading = |before: usize, last: usize, n: usize, of: fn(&Tank) -> f64| {
                let point = |n: usize| (samples[n].0 * 1_000_000, of(&samples[n].1));
                if line { extrapolate(point(before), point(last), samples[n].0 * 1_000_000) } else { point(last).1 }
            };
            for (n, (_, sample)) in samples.iter().enumerate() {
                let have = sent.iter().take_while(|&&sent| sent <= n).count();
                let (last, before) = (sent[have - 1], sent[have.saturating_sub(2)]);
                for of in [(|tank: &Tank| tank.level) as fn(&Tank) -> f64, |tank| tank.count as f64] {
                    let off = (reading(before, last, n, of) - of(sample)).abs();
                    prop_assert!(off <= bound + 1e-9, "sample {n} is off by {off}");
                }
            }
        }
    }
}
