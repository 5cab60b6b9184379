//! Compares two results, for `polywire bench compare`: which figures became worse, which became
//! better, and which cannot be distinguished.

use serde::Serialize;

use crate::{
    Results,
    metrics::{self, METRICS},
    results::is_worse,
};

/// Smaller changes of times are ignored, even if their intervals do not overlap: every build lays
/// out memory differently.
const THRESHOLD: f64 = 0.03;

/// The differences between two runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Figures that certainly differ, the worst first.
    pub changes: Vec<Change>,
    /// Figures in both results that are equal, overlap, or differ by a negligible amount.
    pub alike: usize,
    /// Cases that only the first has.
    pub gone: Vec<String>,
    /// Cases that the first run measured and the second could not, with the reason.
    pub failed: Vec<String>,
    /// Cases that only the second has.
    pub new: Vec<String>,
    /// Why times were not compared, if they were not.
    pub left_out: Option<String>,
}

/// A figure that changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The case.
    pub case: String,
    /// The metric.
    pub metric: String,
    /// The earlier value.
    pub before: f64,
    /// The later value.
    pub after: f64,
    /// True if the figure became worse; `None` if neither direction is better.
    pub worse: Option<bool>,
}

impl Comparison {
    /// True if no figure became worse and every case can still be measured.
    pub fn holds(&self) -> bool {
        self.failed.is_empty() && !self.changes.iter().any(|change| change.worse == Some(true))
    }
}

/// Compares two results. Times from machines that are not alike are left out unless `force` is set.
/// Figures that are the same on every machine are always compared.
///
/// ```
/// use polywire_measure::{Results, Scenario, compare::compare, run};
///
/// let text = "name = 'x'\neffort = { repeats = 6, messages = 5, turn_ms = 0.01 }\n[[type]]\ntext = 'struct A { long x; };'";
/// let before = run(&Scenario::from_toml(text)?, &mut |_| ())?;
/// let wider = text.replace("long x", "long x; double y");
/// let after = run(&Scenario::from_toml(&wider)?, &mut |_| ())?;
/// let comparison = compare(&before, &after, false);
/// let bytes = comparison.changes.iter().find(|change| change.metric == "bytes").unwrap();
/// assert_eq!((bytes.before, bytes.after, bytes.worse), (4.0, 16.0, Some(true)));
/// assert!(!comparison.holds() && compare(&before, &before, false).holds());
/// # Ok::<(), polywire_measure::Error>(())
/// ```
pub fn compare(before: &Results, after: &Results, force: bool) -> Comparison {
    let alike = before.host.is_like(&after.host) || force;
    let mut comparison = Comparison::default();
    if !alike {
        let (a, b) = (&before.host, &after.host);
        comparison.left_out = Some(format!(
            "times are not compared: {} with {} cores{} against {} with {} cores{}",
            a.processor,
            a.cores,
            if a.optimised { "" } else { ", not optimised" },
            b.processor,
            b.cores,
            if b.optimised { "" } else { ", not optimised" }
        ));
    }
    for old in &before.cases {
        let name = old.case.to_string();
        let Some(new) = after.cases.iter().find(|new| new.case.to_string() == name) else {
            comparison.gone.push(name);
            continue;
        };
        if let (None, Some(problem)) = (&old.problem, &new.problem) {
            comparison.failed.push(format!("{name}: {problem}"));
            continue;
        }
        for metric in METRICS.iter().filter(|metric| metric.exact || alike) {
            let (Some(a), Some(b)) = (old.metrics.get(metric.name), new.metrics.get(metric.name)) else { continue };
            let small = !metric.exact && (b.value - a.value).abs() <= THRESHOLD * a.value.abs();
            if a.value == b.value || a.interval().overlaps(&b.interval()) || small {
                comparison.alike += 1;
                continue;
            }
            let (metric, before, after) = (metric.name.to_owned(), a.value, b.value);
            let worse = metrics::find(&metric).and_then(|metric| is_worse(metric, before, after));
            comparison.changes.push(Change { case: name.clone(), metric, before, after, worse });
        }
    }
    let known = |name: &String| before.cases.iter().any(|old| old.case.to_string() == *name);
    comparison.new = after.cases.iter().map(|new| new.case.to_string()).filter(|name| !known(name)).collect();
    let weight = |change: &Change| {
        let factor = (change.after / change.before.max(f64::MIN_POSITIVE)).ln().abs();
        match change.worse {
            Some(true) => factor + 1e6,
            _ => factor,
        }
    };
    comparison.changes.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    comparison
}
