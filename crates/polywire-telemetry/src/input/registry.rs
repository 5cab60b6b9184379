//! Figures by name: counters, gauges and distributions that any thread may update.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};

use super::{Label, Metric, MetricDistribution, MetricKind, Metrics};
use crate::{Cell as _, Distribution, Histogram};

/// The maximum number of figures (names with their labels) of an input. Further ones are refused
/// and counted.
pub const MAX_METRICS: usize = 10_000;

/// The maximum number of bytes of a name with its labels, or with its text.
pub const MAX_NAME_BYTES: usize = 4096;

/// The unit in which distributions store numbers, because a histogram stores whole numbers only.
const GRAIN: f64 = 1e-6;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub name: String,
    /// The labels, sorted.
    pub labels: Vec<Label>,
}

impl Key {
    pub fn new(name: impl Into<String>, mut labels: Vec<Label>) -> Key {
        labels.sort();
        Key { name: name.into(), labels }
    }

    fn bytes(&self) -> usize {
        self.name.len() + self.labels.iter().map(|label| label.name.len() + label.value.len()).sum::<usize>()
    }
}

/// A number that threads add to and set; stored as the bits of a double.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

/// The bits of a number that was never set: one of the many NaNs.
const UNSET: u64 = u64::MAX;

impl Number {
    /// Makes a number that samples leave out until it is set or added to.
    fn unset() -> Number {
        Number(UNSET.into())
    }

    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    pub fn add(&self, more: f64) {
        let add = |bits| Some((number(bits).unwrap_or(0.0) + more).to_bits());
        // Cannot fail: the closure never returns `None`.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Raises the number to `value`, unless it is higher.
    #[cfg(feature = "metrics")]
    pub fn raise(&self, value: f64) {
        let raise = |bits| Some(number(bits).unwrap_or(0.0).max(value).to_bits());
        // Cannot fail: the closure never returns `None`.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise);
    }

    fn get(&self) -> Option<f64> {
        number(self.0.load(Ordering::Relaxed))
    }
}

fn number(bits: u64) -> Option<f64> {
    (bits != UNSET).then(|| f64::from_bits(bits))
}

/// The distribution of numbers from 0 up.
#[derive(Default)]
pub struct Spread(Histogram);

impl Spread {
    /// Counts a number `times` times. A negative number and NaN count as 0.
    pub fn observe(&self, number: f64, times: u64) {
        // The conversion saturates at the ends of the range.
        self.0.observe_times((number / GRAIN).round() as u64, times);
    }

    fn read(&self, key: &Key) -> MetricDistribution {
        let mut of = Distribution::default();
        self.0.read(&mut of);
        let scaled = |grains: u64| grains as f64 * GRAIN;
        let Key { name, labels } = key.clone();
        let (least, p50, p90) = (scaled(of.least), scaled(of.p50), scaled(of.p90));
        MetricDistribution {
            name,
            labels,
            count: of.count,
            least,
            p50,
            p90,
            p99: scaled(of.p99),
            most: scaled(of.most),
        }
    }
}

#[derive(Clone)]
enum Figure {
    Counter(Arc<Number>),
    Gauge(Arc<Number>),
    Spread(Arc<Spread>),
}

/// Figures by name. A name keeps its kind; requests for another kind are refused.
#[derive(Default)]
pub struct Registry {
    figures: Mutex<BTreeMap<Key, Figure>>,
    refused: AtomicU64,
}

impl Registry {
    /// Returns the counter of this name, and makes it if it does not exist. Returns `None` and
    /// counts a refusal if the name is not possible.
    pub fn counter(&self, key: Key) -> Option<Arc<Number>> {
        match self.figure(key, || Figure::Counter(Arc::default()))? {
            Figure::Counter(number) => Some(number),
            _ => self.none(),
        }
    }

    pub fn gauge(&self, key: Key) -> Option<Arc<Number>> {
        match self.figure(key, || Figure::Gauge(Arc::new(Number::unset())))? {
            Figure::Gauge(number) => Some(number),
            _ => self.none(),
        }
    }

    pub fn spread(&self, key: Key) -> Option<Arc<Spread>> {
        match self.figure(key, || Figure::Spread(Arc::default()))? {
            Figure::Spread(spread) => Some(spread),
            _ => self.none(),
        }
    }

    /// Counts an invalid value. The first one is logged.
    pub fn refuse(&self) {
        if self.refused.fetch_add(1, Ordering::Relaxed) == 0 {
            log::warn!("an input has a value that is refused; the samples count them");
        }
    }

    /// Counts a figure that is refused.
    fn none<T>(&self) -> Option<T> {
        self.refuse();
        None
    }

    /// Replaces a sample by the current figures.
    pub fn read(&self, sample: &mut Metrics) {
        *sample = Metrics { refused: self.refused.load(Ordering::Relaxed), ..Metrics::default() };
        for (key, figure) in &*self.lock() {
            let metric = |kind, number: &Number| {
                let Key { name, labels } = key.clone();
                number.get().map(|value| Metric { name, labels, kind, value })
            };
            match figure {
                Figure::Counter(number) => sample.metrics.extend(metric(MetricKind::Counter, number)),
                Figure::Gauge(number) => sample.metrics.extend(metric(MetricKind::Gauge, number)),
                Figure::Spread(spread) => sample.distributions.push(spread.read(key)),
            }
        }
    }

    fn figure(&self, key: Key, fresh: impl FnOnce() -> Figure) -> Option<Figure> {
        let mut figures = self.lock();
        if let Some(figure) = figures.get(&key) {
            return Some(figure.clone());
        }
        if figures.len() >= MAX_METRICS || key.bytes() > MAX_NAME_BYTES {
            // The lock is released first: the log may itself write to this registry.
            drop(figures);
            return self.none();
        }
        Some(figures.entry(key).or_insert_with(fresh).clone())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Figure>> {
        self.figures.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name, Vec::new())
    }

    #[test]
    fn a_name_keeps_its_kind_and_names_are_bounded() {
        let registry = Registry::default();
        registry.counter(key("a")).expect("new").add(2.0);
        registry.counter(key("a")).expect("known").add(0.5);
        assert!(registry.gauge(key("a")).is_none() && registry.spread(key("a")).is_none());
        assert!(registry.gauge(key(&"x".repeat(MAX_NAME_BYTES + 1))).is_none());
        let gauges = (0..MAX_METRICS).filter_map(|number| registry.gauge(key(&format!("g{number}"))));
        gauges.for_each(|gauge| gauge.set(1.0));
        assert!(registry.spread(key("late")).is_none());
        let mut sample = Metrics::default();
        registry.read(&mut sample);
        assert_eq!((sample.metrics.len(), sample.metrics[0].value, sample.refused), (MAX_METRICS, 2.5, 5));
    }

    #[test]
    fn a_gauge_is_left_out_until_it_is_set() {
        let registry = Registry::default();
        let gauge = registry.gauge(key("g")).expect("new");
        let read = || {
            let mut sample = Metrics::default();
            registry.read(&mut sample);
            sample.metrics.iter().map(|metric| metric.value).collect::<Vec<_>>()
        };
        assert_eq!(read(), [0.0; 0]);
        gauge.add(-2.5);
        assert_eq!(read(), [-2.5]);
        gauge.set(0.0);
        assert_eq!(read(), [0.0]);
    }

    #[test]
    fn distributions_know_small_and_strange_numbers() {
        let registry = Registry::default();
        let spread = registry.spread(key("s")).expect("new");
        [0.000_003, 0.25, 1.0].into_iter().for_each(|number| spread.observe(number, 1));
        let mut sample = Metrics::default();
        registry.read(&mut sample);
        let found = &sample.distributions[0];
        assert_eq!((found.count, found.least), (3, 0.000_003));
        assert!((found.p50 - 0.25).abs() < 0.25 / 16.0 && (found.most - 1.0).abs() < 1.0 / 16.0, "{found:?}");
        [f64::NAN, -1.0, f64::INFINITY].into_iter().for_each(|number| spread.observe(number, 1));
        registry.read(&mut sample);
        assert_eq!((sample.distributions[0].count, sample.distributions[0].p50), (6, 0.0));
    }
}
