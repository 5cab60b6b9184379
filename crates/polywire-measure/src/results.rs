//! Results of a run, and the verdicts on the scenario's criteria. Converts results to and from
//! JSON; the caller reads and writes the files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Case, Error, Host, Scenario, engines,
    metrics::{self, Better},
    scenario::{Criterion, Mode},
    statistics::Interval,
    table::figure,
};

/// Version of the JSON format.
const FORMAT: u32 = 1;

/// Everything that one run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Version of the JSON format.
    pub format: u32,
    /// Program that made the measurement.
    pub version: String,
    /// Command that repeats the measurement, if there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// The machine.
    pub host: Host,
    /// Start, in seconds since 1970.
    pub began_unix_s: u64,
    /// Duration.
    pub took_s: f64,
    /// The scenario, including the seed.
    pub scenario: Scenario,
    /// The settings of each engine that was measured, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub engines: BTreeMap<String, String>,
    /// Results of the cases.
    pub cases: Vec<CaseResult>,
    /// Verdicts on the criteria.
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
}

/// Result of one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseResult {
    /// The case.
    pub case: Case,
    /// Figures by metric name.
    pub metrics: BTreeMap<String, Measure>,
    /// Latency percentiles in nanoseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<(f64, u64)>,
    /// Why there are no figures, if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The value of a metric for one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Median of the repeats.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Confidence of the interval.
    pub confidence: f64,
    /// The value of each repeat.
    pub samples: Vec<f64>,
}

impl Measure {
    /// Summarises repeats.
    pub fn of(name: &str, samples: Vec<f64>) -> Measure {
        let exact = metrics::find(name).is_some_and(|metric| metric.exact) && samples.windows(2).all(|w| w[0] == w[1]);
        let interval = match samples.first() {
            Some(first) if exact => Interval::exact(*first),
            _ => Interval::of(&samples),
        };
        let Interval { value, low, high, confidence } = interval;
        Measure { value, low, high, confidence, samples }
    }

    /// The interval.
    pub fn interval(&self) -> Interval {
        Interval { value: self.value, low: self.low, high: self.high, confidence: self.confidence }
    }
}

/// Verdict on a criterion for one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The metric.
    pub metric: String,
    /// The case, as text.
    pub case: String,
    /// The requirement.
    pub limit: String,
    /// The figure, or its multiple of another figure.
    pub value: Option<f64>,
    /// The value is such a multiple.
    #[serde(default)]
    pub is_multiple: bool,
    /// The status.
    pub state: Judgement,
}

/// Status of a criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The criterion is met.
    Met,
    /// The figure is beyond the limit, but the limit lies within the figure's interval: more
    /// repeats would decide.
    Undecided,
    /// The criterion is missed.
    Missed,
    /// There is no such figure, or no figure to compare it with.
    Missing,
}

impl Verdict {
    /// False if the criterion is missed, or cannot be judged because a figure is missing.
    pub fn holds(&self) -> bool {
        matches!(self.state, Judgement::Met | Judgement::Undecided)
    }

    /// The value in short form: a figure with its unit, or a multiple.
    pub(crate) fn text(&self) -> String {
        match self.value {
            None => "-".into(),
            Some(value) if self.is_multiple => figure("ratio", value),
            Some(value) => figure(&self.metric, value),
        }
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

    /// Reads results from JSON.
    ///
    /// # Errors
    /// [`Error::Results`] if the text is not a result, or has another format version.
    pub fn from_json(text: &str) -> Result<Results, Error> {
        let results: Results = serde_json::from_str(text).map_err(|error| Error::Results(error.to_string()))?;
        match results.format {
            FORMAT => Ok(results),
            other => Err(Error::Results(format!("the format version is {other}; this program reads {FORMAT}"))),
        }
    }

    /// Writes results as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("maps with names for keys and finite numbers")
    }

    /// The first case for which the predicate is true.
    pub fn find(&self, wanted: impl Fn(&Case) -> bool) -> Option<&CaseResult> {
        self.cases.iter().find(|result| wanted(&result.case))
    }

    /// A figure of the first case for which the predicate is true.
    pub fn figure(&self, metric: &str, wanted: impl Fn(&Case) -> bool) -> Option<f64> {
        self.find(wanted)?.metrics.get(metric).map(|measure| measure.value)
    }

    /// True if no criterion is missed and no criterion lacks its figure.
    pub fn holds(&self) -> bool {
        self.verdicts.iter().all(Verdict::holds)
    }
}

/// Returns the settings of the scenario's engines. Stages are timed without an engine.
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
    let (metric, is_multiple) = (criterion.metric.clone(), !criterion.relative_to.is_empty());
    Verdict { metric, case, limit, value, is_multiple, state }
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

/// Returns the figure of the case that differs from this one only in the axes of `relative_to`.
fn base<'a>(criterion: &Criterion, result: &CaseResult, cases: &'a [CaseResult]) -> Option<&'a Measure> {
    let mut wanted: BTreeMap<String, String> =
        crate::scenario::AXES.iter().filter_map(|axis| Some(((*axis).to_owned(), result.case.at(axis)?))).collect();
    wanted.extend(criterion.relative_to.clone());
    cases.iter().find(|other| other.case.matches(&wanted))?.metrics.get(&criterion.metric)
}

/// Divides the figures turn by turn, because other load on the machine affected both cases alike.
fn multiple(own: &Measure, base: &Measure) -> Measure {
    let turns = own.samples.iter().zip(&base.samples).filter(|(_, base)| **base != 0.0);
    Measure::of("", turns.map(|(own, base)| own / base).collect())
}

/// Direction of a change: true if the metric became worse; `None` if neither direction is better or
/// nothing changed.
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
    fn multiples_have_no_unit() {
        let of = |is_multiple| Verdict {
            metric: "latency_p50_ns".into(),
            case: String::new(),
            limit: String::new(),
            value: Some(1.25),
            is_multiple,
            state: Judgement::Met,
        };
        assert_eq!([of(true).text(), of(false).text()], ["1.25", "1 ns"]);
    }

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
