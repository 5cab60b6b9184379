//! Inputs: probes whose figures other programs measure. The table [`INPUTS`] lists them, and each
//! has a file here. A node runs an input only if its configuration names it.
//!
//! The samples of all inputs have one type, [`Metrics`], because the names of the figures are known
//! only at run time.
//!
//! ```
//! use polywire_telemetry::{
//!     Probe as _, Settings,
//!     input::{INPUTS, Label, Metric, MetricDistribution, MetricKind, Metrics},
//!     system::{self, Host},
//! };
//!
//! assert!(INPUTS.iter().any(|input| input.name == "statsd"));
//! let input = system::find("command")?;
//! let mut settings = Settings::default();
//! settings.set(input.parameters, "command", "echo level=2.5 name=tank")?;
//! let probe = (input.open)(&Host::this(), &settings)?;
//! assert_eq!(probe.schema().name(), "telemetry::Metrics");
//!
//! // A handler of such samples can read these members.
//! let label = Label { name: "pump".into(), value: "1".into() };
//! let level = Metric { name: "level".into(), labels: vec![label], kind: MetricKind::Gauge, value: 2.5 };
//! let sample = Metrics { metrics: vec![level], ..Metrics::default() };
//! assert!(sample.metrics.iter().all(|metric| metric.value < 3.0));
//! assert_eq!(MetricDistribution::default().count, 0);
//! # Ok::<(), polywire_telemetry::MeasureError>(())
//! ```

mod command;
mod fetch;
mod flat;
mod lines;
mod prometheus;
#[cfg(feature = "metrics")]
mod recorder;
mod registry;
mod statsd;
#[cfg(feature = "tracing")]
mod trace;

use polywire::Message;

#[cfg(feature = "metrics")]
pub use recorder::{Recorder, RecorderError};
pub use registry::MAX_METRICS;
#[cfg(feature = "tracing")]
pub use trace::TraceLayer;

use crate::{MeasureError, Pdl, ProbeType, Uuid};

/// The inputs, in the order in which lists show them.
pub static INPUTS: &[ProbeType] = &[command::PROBE, lines::PROBE, prometheus::PROBE, statsd::PROBE];

/// The UUID of the type that all inputs share.
const UUID: Uuid = Uuid::of(0xc3a6d3a4_9b0a_4f5b_8a0e_2c1d0f7d5e61);

const VERSION: &str = "1.0";

const PDL: Pdl = Pdl::File(include_str!("../../pdl/metrics.pdl"));

/// Figures that other programs have measured.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::Metrics")]
pub struct Metrics {
    /// Numbers, by name and labels.
    pub metrics: Vec<Metric>,
    /// Distributions, by name and labels.
    pub distributions: Vec<MetricDistribution>,
    /// Values that are not numbers.
    pub texts: Vec<Label>,
    /// The number of lines, values and names that were refused since the start: invalid, or beyond
    /// the limit.
    pub refused: u64,
}

/// A name and a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Message)]
#[polywire(name = "telemetry::Label", nested)]
pub struct Label {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// The meaning of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Message)]
#[polywire(name = "telemetry::MetricKind", nested)]
pub enum MetricKind {
    /// The source does not specify the meaning.
    #[default]
    Untyped,
    /// A count that rises from the start of the source.
    Counter,
    /// A current value.
    Gauge,
}

/// A number with its name.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::Metric", nested)]
pub struct Metric {
    /// The name.
    pub name: String,
    /// The labels that, with the name, identify the number; sorted by name.
    pub labels: Vec<Label>,
    /// The meaning of the number.
    pub kind: MetricKind,
    /// The number.
    pub value: f64,
}

/// A distribution of numbers. All members but `count` describe the numbers since the previous
/// sample, and are 0 if there were none.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::MetricDistribution", nested)]
pub struct MetricDistribution {
    /// The name.
    pub name: String,
    /// The labels that, with the name, identify the distribution; sorted by name.
    pub labels: Vec<Label>,
    /// The number of observations since the start.
    pub count: u64,
    /// The smallest number.
    pub least: f64,
    /// Half of the numbers are at most this.
    pub p50: f64,
    /// 90 % are at most this.
    pub p90: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// The largest number.
    pub most: f64,
}

pub(crate) fn problem(what: &str, problem: impl std::fmt::Display) -> MeasureError {
    MeasureError::Input { what: what.to_owned(), problem: problem.to_string() }
}

/// Makes the error for a parameter that must be set.
fn needed(parameter: &crate::Parameter, expected: &str) -> MeasureError {
    MeasureError::Value { parameter: parameter.name.to_owned(), value: String::new(), expected: expected.to_owned() }
}

/// Makes the type of a probe whose figures a program has in a [`Registry`](registry::Registry).
#[cfg(any(feature = "metrics", feature = "tracing"))]
const fn of_program(name: &'static str, summary: &'static str) -> ProbeType {
    ProbeType {
        name,
        summary,
        uuid: UUID,
        version: VERSION,
        pdl: PDL,
        every: std::time::Duration::from_secs(10),
        parameters: &[],
        shape: <Metrics as Message>::shape,
        open: |_, _| Err(MeasureError::Unknown("a program adds this probe to its own node".to_owned())),
    }
}

/// Adds the probe of a registry to a node.
#[cfg(any(feature = "metrics", feature = "tracing"))]
fn add_program(
    agent: &mut crate::Agent,
    probe: &'static ProbeType,
    instance: &str,
    registry: std::sync::Arc<registry::Registry>,
) -> Result<(), crate::AgentError> {
    let plan = crate::Plan { instance: instance.to_owned(), ..crate::Plan::of(probe) };
    let read = move |_: crate::Moment, sample: &mut Metrics| -> Result<(), MeasureError> {
        registry.read(sample);
        Ok(())
    };
    agent.run(plan, |_, _| Ok(crate::probe::boxed::<Metrics>(read)))
}
