//! The figures of programs that use the crate `metrics`.

use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key as MetricKey, KeyName, Metadata, SharedString, Unit,
};

use super::{
    Label, add_program,
    registry::{Key, Number, Registry, Spread},
};
use crate::{Agent, AgentError, ProbeType};

static PROBE: ProbeType = super::of_program("metrics", "What the program measures by the crate metrics");

/// Why [`Recorder::install`] has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecorderError {
    /// The node cannot add the probe.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The process already has a recorder.
    #[error("the process has a recorder for the crate metrics already")]
    Taken,
}

/// Records the figures that a program measures with the crate `metrics`, as samples of a probe.
///
/// An update of a counter or gauge that the program holds takes an atomic exchange; an update of a
/// histogram takes an atomic addition. A histogram stores whole millionths, with an error of at
/// most 1/32.
///
/// ```
/// use polywire::Node;
/// use polywire_telemetry::{
///     Agent, Identity, Moment, Runner,
///     input::{Metrics, Recorder, RecorderError},
///     system::Host,
/// };
/// use std::time::Duration;
///
/// let wire = "cdr@inproc/recorder-doc";
/// let mut agent = Agent::new(Node::new(), Identity::new("shop")?, Host::this(), wire, Moment::default())?;
/// Recorder::install(&mut agent, "metrics")?;
/// assert!(matches!(Recorder::install(&mut agent, "again"), Err(RecorderError::Taken)));
///
/// // Anywhere in the program.
/// metrics::counter!("orders", "kind" => "large").increment(2);
/// metrics::histogram!("seconds").record(0.25);
///
/// let samples = Node::new().subscriber_on::<Metrics>("probes/shop/metrics", wire)?;
/// let runner = Runner::start(agent)?;
/// let sample = samples.recv_timeout(Duration::from_secs(60)).unwrap().value;
/// assert_eq!((sample.metrics[0].name.as_str(), sample.metrics[0].value), ("orders", 2.0));
/// assert_eq!(sample.distributions[0].count, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recorder(Arc<Registry>);

impl Recorder {
    /// Installs the recorder of the process, and adds a probe with all its figures to a node. Fails
    /// if the process already has a recorder. If the node cannot add the probe, the recorder stays
    /// installed.
    pub fn install(agent: &mut Agent, instance: &str) -> Result<(), RecorderError> {
        let registry = Arc::new(Registry::default());
        metrics::set_global_recorder(Recorder(registry.clone())).map_err(|_| RecorderError::Taken)?;
        Ok(add_program(agent, &PROBE, instance, registry)?)
    }
}

fn key(key: &MetricKey) -> Key {
    let label = |label: &metrics::Label| Label { name: label.key().to_owned(), value: label.value().to_owned() };
    Key::new(key.name(), key.labels().map(label).collect())
}

/// The registry counts the figures that it refuses; their updates then have no effect.
impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, name: &MetricKey, _: &Metadata<'_>) -> Counter {
        self.0.counter(key(name)).map_or_else(Counter::noop, Counter::from_arc)
    }

    fn register_gauge(&self, name: &MetricKey, _: &Metadata<'_>) -> Gauge {
        self.0.gauge(key(name)).map_or_else(Gauge::noop, Gauge::from_arc)
    }

    fn register_histogram(&self, name: &MetricKey, _: &Metadata<'_>) -> Histogram {
        self.0.spread(key(name)).map_or_else(Histogram::noop, Histogram::from_arc)
    }
}

impl CounterFn for Number {
    fn increment(&self, more: u64) {
        self.add(more as f64);
    }

    fn absolute(&self, value: u64) {
        self.raise(value as f64);
    }
}

impl GaugeFn for Number {
    fn increment(&self, more: f64) {
        self.add(more);
    }

    fn decrement(&self, less: f64) {
        self.add(-less);
    }

    fn set(&self, value: f64) {
        Number::set(self, value);
    }
}

impl HistogramFn for Spread {
    fn record(&self, value: f64) {
        self.observe(value, 1);
    }
}
