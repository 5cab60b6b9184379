//! Measures a scenario, for `polywire bench` and other programs: [`run()`] prepares all cases,
//! measures them in turns and collects the results. `stages` and `live` measure a case.

use std::{
    collections::BTreeMap,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use polywire::schema::arbitrary::Random;

use crate::{
    Case, CaseResult, Error, Measure, Results, Scenario, check,
    emulated::histogram,
    live::{Ddsperf, Live, engines},
    scenario::Mode,
    stages::{Stages, Turn},
};

/// Percentiles of a distribution that results contain.
const PERCENTILES: &[f64] =
    &[0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.99, 100.0];

/// Metrics of a distribution.
const QUANTILES: &[(&str, f64)] = &[
    ("latency_p50_ns", 0.5),
    ("latency_p90_ns", 0.9),
    ("latency_p99_ns", 0.99),
    ("latency_p999_ns", 0.999),
    ("latency_max_ns", 1.0),
];

/// Measures all cases of a scenario. The cases take turns, so that other load on the machine
/// affects all of them equally. Calls `progress` with the completed fraction, from 0 to 1.
///
/// The result of a case that cannot be measured contains the reason.
///
/// # Errors
/// [`Error::Scenario`] if the scenario is invalid.
pub fn run(scenario: &Scenario, progress: &mut dyn FnMut(f64)) -> Result<Results, Error> {
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let start = Instant::now();
    check::files(scenario)?;
    let cases = scenario.cases()?;
    let steps = (cases.len() * (scenario.effort.repeats + 1)) as f64;
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress(f64::from(done) / steps);
    };
    let prepare = |case: Case| {
        let ready = match Ready::new(scenario, &case) {
            Err(Error::Scenario(problem)) => return Err(Error::Scenario(problem)),
            ready => ready,
        };
        step();
        Ok(Entry::new(case, ready))
    };
    let mut entries: Vec<Entry> = cases.into_iter().map(prepare).collect::<Result<_, Error>>()?;
    let mut random = Random::new(scenario.seed);
    for _ in 0..scenario.effort.repeats {
        for at in shuffled(entries.len(), &mut random) {
            entries[at].turn();
            step();
        }
    }
    let cases = entries.into_iter().map(Entry::finish).collect();
    Ok(Results::new(scenario, cases, began, start.elapsed().as_secs_f64()))
}

/// A random order of the cases, so that no case always follows the same one.
fn shuffled(count: usize, random: &mut Random) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for i in (1..count).rev() {
        order.swap(i, random.below(i + 1));
    }
    order
}

/// A case that is ready to be measured.
enum Ready {
    Stages(Box<Stages>),
    Live(Box<Live>),
    Program(Ddsperf),
}

impl Ready {
    fn new(scenario: &Scenario, case: &Case) -> Result<Ready, Error> {
        match scenario.mode {
            Mode::Stages => Stages::new(scenario, case).map(|stages| Ready::Stages(Box::new(stages))),
            _ if engines::is_program(&case.engine) => Ddsperf::new(scenario, case).map(Ready::Program),
            _ => Live::new(scenario, case).map(|live| Ready::Live(Box::new(live))),
        }
    }

    fn turn(&mut self) -> Result<Turn, Error> {
        match self {
            Ready::Stages(stages) => stages.turn(),
            Ready::Live(live) => live.turn(),
            Ready::Program(program) => program.turn(),
        }
    }
}

/// A case and its figures so far.
struct Entry {
    case: Case,
    ready: Result<Ready, String>,
    samples: BTreeMap<&'static str, Vec<f64>>,
    latency: Vec<u64>,
}

impl Entry {
    fn new(case: Case, ready: Result<Ready, Error>) -> Entry {
        let ready = ready.map_err(|error| error.to_string());
        Entry { case, ready, samples: BTreeMap::new(), latency: Vec::new() }
    }

    fn turn(&mut self) {
        let Ok(ready) = &mut self.ready else { return };
        match ready.turn() {
            Ok(turn) => self.keep(turn),
            Err(error) => self.ready = Err(error.to_string()),
        }
    }

    fn keep(&mut self, turn: Turn) {
        for (name, figure) in turn.figures {
            self.samples.entry(name).or_default().push(figure);
        }
        if let Some(histogram) = histogram(&turn.latency) {
            for (metric, quantile) in QUANTILES {
                self.samples.entry(metric).or_default().push(histogram.value_at_quantile(*quantile) as f64);
            }
        }
        self.latency.extend(turn.latency);
    }

    fn finish(self) -> CaseResult {
        let metrics = self.samples.into_iter().map(|(name, samples)| (name.to_owned(), Measure::of(name, samples)));
        let latency = histogram(&self.latency).map_or(Vec::new(), |histogram| {
            PERCENTILES.iter().map(|p| (*p, histogram.value_at_quantile(p / 100.0))).collect()
        });
        CaseResult { case: self.case, metrics: metrics.collect(), latency, problem: self.ready.err() }
    }
}
