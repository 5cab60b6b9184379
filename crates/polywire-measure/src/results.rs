//! What came out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Case, Error, Host, Scenario, engines,
    metrics::{self, Better},
    scenario::{Criterion, Mode},
    statistics::Interval,
};

/// The version of the JSON.
const FORMAT: u32 = 1;

/// Everything that one run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Version of this form.
    pub format: u32,
    /// What measured it.
    pub version: String,
    /// The command that measures it again, where there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// Where.
    pub host: Host,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// How long it took.
    pub took_s: f64,
    /// What was asked for; the seed is in it.
    pub scenario: Scenario,
    /// What was made of each engine that was measured, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub engines: BTreeMap<String, String>,
    /// What came out.
    pub cases: Vec<CaseResult>,
    /// What became of the criteria.
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
}

/// What came out for one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseResult {
    /// Which.
    pub case: Case,
    /// Figures by the names of their metrics.
    pub metrics: BTreeMap<String, Measure>,
    /// Latency in nanoseconds at percentiles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<(f64, u64)>,
    /// Why there is nothing, if there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Median of the repeats.
    pub value: f64,
    /// Lower end of what it may be.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How sure that is.
    pub confidence: f64,
    /// What each repeat gave.
    pub samples: Vec<f64>,
}

impl Measure {
    /// Of repeats.
    pub fn of(name: &str, samples: Vec<f64>) -> Measure {
        let exact = metrics::find(name).is_some_and(|metric| metric.exact) && samples.windows(2).all(|w| w[0] == w[1]);
        let interval = match samples.first() {
            Some(first) if exact => Interval::exact(*first),
            _ => Interval::of(&samples),
        };
        let Interval { value, low, high, confidence } = interval;
        Measure { value, low, high, confidence, samples }
    }

    /// Where it lies.
    pub fn interval(&self) -> Interval {
        Interval { value: self.value, low: self.low, high: self.high, confidence: self.confidence }
    }
}

/// What became of a criterion in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The metric.
    pub metric: String,
    /// The case, as text.
    pub case: String,
    /// What was asked for.
    pub limit: String,
    /// The figure, or the multiple.
    pub value: Option<f64>,
    /// How it stands.
    pub state: Judgement,
}

/// How a criterion stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// It is met.
    Met,
    /// The figure is beyond the limit, but the limit lies within what the figure may be: more
    /// repeats would tell.
    Undecided,
    /// It is missed.
    Missed,
    /// There is no such figure, or nothing to compare it with.
    Missing,
}

impl Verdict {
    /// False if it is missed, or cannot be judged for want of a figure.
    pub fn holds(&self) -> bool {
        matches!(self.state, Judgement::Met | Judgement::Undecided)
    }
}

impl Results {
    pub(crate) fn new(scenario: &Scenario, cases: Vec<CaseResult>, began_unix_s: u64, took_s: f64) -> Results {
        let verdicts = verdicts(&scenario.criteria, &cases);
        Results {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            command: String::new(),
            host: Host::here(),
            began_unix_s,
            took_s,
            scenario: scenario.clone(),
            engines: engines(scenario),
            cases,
            verdicts,
        }
    }

    /// Reads them again.
    ///
    /// # Errors
    /// [`Error::Results`] if the text is none, or of another version of the form.
    pub fn from_json(text: &str) -> Result<Results, Error> {
        let results: Results = serde_json::from_str(text).map_err(|error| Error::Results(error.to_string()))?;
        match results.format {
            FORMAT => Ok(results),
            other => Err(Error::Results(format!("they are of form {other}; this program reads {FORMAT}"))),
        }
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("maps with names for keys and finite numbers")
    }

    /// The first case like this.
    pub fn find(&self, wanted: impl Fn(&Case) -> bool) -> Option<&CaseResult> {
        self.cases.iter().find(|result| wanted(&result.case))
    }

    /// A figure of the first case like this.
    pub fn figure(&self, metric: &str, wanted: impl Fn(&Case) -> bool) -> Option<f64> {
        self.find(wanted)?.metrics.get(metric).map(|measure| measure.value)
    }

    /// True if no criterion is missed, and none lacks its figure.
    pub fn holds(&self) -> bool {
        self.verdicts.iter().all(Verdict::holds)
    }
}

/// Stages are timed without an engine.
fn engines(scenario: &Scenario) -> BTreeMap<String, String> {
    let told = |name: &String| Some((name.clone(), engines::settings(name)?.to_owned()));
    match scenario.mode {
        Mode::Stages => BTreeMap::new(),
        _ => scenario.axes.engine.iter().filter_map(told).collect(),
    }
}

fn verdicts(criteria: &[Criterion], cases: &[CaseResult]) -> Vec<Verdict> {
    let of = |criterion: &Criterion| -> Vec<Verdict> {
        let concerned = cases.iter().filter(|result| result.case.matches(&criterion.only));
        let found: Vec<Verdict> = concerned.map(|result| judge(criterion, result, cases)).collect();
        match found.is_empty() {
            true => vec![verdict(criterion, "no case matches".into(), None, Judgement::Missing)],
            false => found,
        }
    };
    criteria.iter().flat_map(of).collect()
}

fn verdict(criterion: &Criterion, case: String, value: Option<f64>, state: Judgement) -> Verdict {
    let times = if criterion.relative_to.is_empty() { "" } else { " times" };
    let bound = |word: &str, limit: Option<f64>| limit.map(|limit| format!("{word} {limit}{times}"));
    let limits = [bound("at least", criterion.at_least), bound("at most", criterion.at_most)];
    let limit = limits.into_iter().flatten().collect::<Vec<_>>().join(", ");
    Verdict { metric: criterion.metric.clone(), case, limit, value, state }
}

fn judge(criterion: &Criterion, result: &CaseResult, cases: &[CaseResult]) -> Verdict {
    let name = result.case.to_string();
    let Some(own) = result.metrics.get(&criterion.metric) else {
        return verdict(criterion, name, None, Judgement::Missing);
    };
    let samples = match criterion.relative_to.is_empty() {
        true => Some(own.clone()),
        false => base(criterion, result, cases).map(|base| multiple(own, base)),
    };
    let Some(measure) = samples else { return verdict(criterion, name, None, Judgement::Missing) };
    let over = criterion.at_most.filter(|most| measure.value > *most).map(|most| measure.low > most);
    let under = criterion.at_least.filter(|least| measure.value < *least).map(|least| measure.high < least);
    let state = match (over, under) {
        (None, None) => Judgement::Met,
        (Some(true), _) | (_, Some(true)) if measure.confidence > 0.0 => Judgement::Missed,
        _ => Judgement::Undecided,
    };
    verdict(criterion, name, Some(measure.value), state)
}

/// The figure of the case that differs in what the criterion says alone.
fn base<'a>(criterion: &Criterion, result: &CaseResult, cases: &'a [CaseResult]) -> Option<&'a Measure> {
    let mut wanted: BTreeMap<String, String> =
        crate::scenario::AXES.iter().filter_map(|axis| Some(((*axis).to_owned(), result.case.at(axis)?))).collect();
    wanted.extend(criterion.relative_to.clone());
    cases.iter().find(|other| other.case.matches(&wanted))?.metrics.get(&criterion.metric)
}

/// Turn by turn: what else the machine did hit both.
fn multiple(own: &Measure, base: &Measure) -> Measure {
    let turns = own.samples.iter().zip(&base.samples).filter(|(_, base)| **base != 0.0);
    Measure::of("", turns.map(|(own, base)| own / base).collect())
}

/// Which way a change of a metric is: true for the worse, none where neither way is, or nothing
/// changed.
pub(crate) fn is_worse(metric: &metrics::Metric, before: f64, after: f64) -> Option<bool> {
    match metric.better {
        _ if before == after => None,
        Better::Lower => Some(after > before),
        Better::Higher => Some(after < before),
        Better::Neither => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_equal_is_neither_better_nor_worse() {
        for name in ["bytes", "throughput_hz", "content_bytes"] {
            let metric = metrics::find(name).expect("a metric");
            assert_eq!(is_worse(metric, 107.0, 107.0), None, "{name}");
        }
        let bytes = metrics::find("bytes").expect("a metric");
        assert_eq!((is_worse(bytes, 1.0, 2.0), is_worse(bytes, 2.0, 1.0)), (Some(true), Some(false)));
    }
}
