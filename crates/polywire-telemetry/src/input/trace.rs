//! The events and spans that programs report with the crate `tracing`.

use std::{collections::HashMap, fmt, sync::Arc, time::Instant};

use parking_lot::RwLock;
use tracing::{
    Event, Id, Metadata, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
    span::Attributes,
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use super::{
    Label, add_program,
    registry::{Key, Number, Registry, Spread},
};
use crate::{Agent, AgentError, ProbeType};

static PROBE: ProbeType = super::of_program("trace", "What the program reports by the crate tracing");

/// Counts the events and spans that a program reports with the crate `tracing`, as samples of a
/// probe.
///
/// | figure | is |
/// |---|---|
/// | `events`, with labels `level` and `target` | how many events there were |
/// | `span_seconds`, with labels `span` and `target` | how long spans were open |
/// | `NAME` | of the fields `counter.NAME` and `monotonic_counter.NAME` of events the sum, of `gauge.NAME` the latest number, of `histogram.NAME` the distribution |
///
/// An event takes an atomic addition behind a shared lock, and one lock for each field that is a
/// figure.
///
/// ```
/// use polywire::Node;
/// use polywire_telemetry::{
///     Agent, Identity, Moment, Runner,
///     input::{Metrics, TraceLayer},
///     system::Host,
/// };
/// use std::time::Duration;
/// use tracing_subscriber::prelude::*;
///
/// let wire = "cdr@inproc/trace-doc";
/// let mut agent = Agent::new(Node::new(), Identity::new("shop")?, Host::this(), wire, Moment::default())?;
/// tracing_subscriber::registry().with(TraceLayer::install(&mut agent, "trace")?).init();
///
/// // Anywhere in the program.
/// tracing::info_span!("order").in_scope(|| tracing::info!(counter.parts = 2, "taken"));
///
/// let samples = Node::new().subscriber_on::<Metrics>("probes/shop/trace", wire)?;
/// let runner = Runner::start(agent)?;
/// let sample = samples.recv_timeout(Duration::from_secs(60)).unwrap().value;
/// assert!(sample.metrics.iter().any(|metric| metric.name == "parts" && metric.value == 2.0));
/// let mut spans = sample.distributions.iter().filter(|found| found.name == "span_seconds");
/// assert!(spans.any(|span| span.labels[0].value == "order" && span.count == 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TraceLayer {
    registry: Arc<Registry>,
    /// The figures of each callsite in the program.
    events: Places<Number>,
    spans: Places<Spread>,
}

/// The figure of each callsite; `None` if the registry refused it.
type Places<T> = RwLock<HashMap<Identifier, Option<Arc<T>>>>;

impl TraceLayer {
    /// Adds a probe to a node, and returns the layer for a `tracing_subscriber` that fills the
    /// probe.
    pub fn install(agent: &mut Agent, instance: &str) -> Result<TraceLayer, AgentError> {
        let layer = TraceLayer { registry: Arc::default(), events: RwLock::default(), spans: RwLock::default() };
        add_program(agent, &PROBE, instance, layer.registry.clone())?;
        Ok(layer)
    }
}

/// When a span was opened.
struct Opened(Instant);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TraceLayer {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Opened(Instant::now()));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let fresh = || self.registry.counter(key("events", ("level", metadata.level().as_str()), metadata));
        of_place(&self.events, metadata, fresh).iter().for_each(|count| count.add(1.0));
        if metadata.fields().iter().any(|field| Figure::of(field.name()).is_some()) {
            event.record(&mut Fields(&self.registry));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let opened = span.extensions().get::<Opened>().map(|opened| opened.0);
        let metadata = span.metadata();
        let fresh = || self.registry.spread(key("span_seconds", ("span", metadata.name()), metadata));
        let times = of_place(&self.spans, metadata, fresh);
        if let (Some(times), Some(opened)) = (times, opened) {
            times.observe(opened.elapsed().as_secs_f64(), 1);
        }
    }
}

impl fmt::Debug for TraceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("layer of a probe")
    }
}

/// Returns the figure of a callsite. The number of callsites is fixed in the program, so the map
/// needs no limit; the registry has one.
fn of_place<T>(
    places: &Places<T>,
    metadata: &'static Metadata<'static>,
    fresh: impl FnOnce() -> Option<Arc<T>>,
) -> Option<Arc<T>> {
    let place = metadata.callsite();
    let known = places.read().get(&place).cloned();
    known.unwrap_or_else(|| {
        // No lock may be held here: the registry may write to the log, which may call this layer
        // again.
        let fresh = fresh();
        places.write().insert(place, fresh.clone());
        fresh
    })
}

fn key(name: &str, own: (&str, &str), metadata: &Metadata<'_>) -> Key {
    let label = |(name, value): (&str, &str)| Label { name: name.to_owned(), value: value.to_owned() };
    Key::new(name, vec![label(own), label(("target", metadata.target()))])
}

/// The kind of figure that a field of an event updates.
#[derive(Clone, Copy)]
enum Figure {
    Counter,
    Gauge,
    Histogram,
}

impl Figure {
    /// Parses the name of a field. The second value is the name of the figure.
    fn of(field: &str) -> Option<(Figure, &str)> {
        let (word, name) = field.split_once('.').filter(|(_, name)| !name.is_empty())?;
        let figure = match word {
            "counter" | "monotonic_counter" => Figure::Counter,
            "gauge" => Figure::Gauge,
            "histogram" => Figure::Histogram,
            _ => return None,
        };
        Some((figure, name))
    }
}

/// Visits the fields of an event and updates the figures of those that are numbers.
struct Fields<'a>(&'a Registry);

impl Fields<'_> {
    /// Updates the figure of a field. The registry counts the figures that it refuses.
    fn take(&self, field: &Field, number: f64) {
        let Some((figure, name)) = Figure::of(field.name()) else { return };
        if !number.is_finite() {
            return self.0.refuse();
        }
        let key = Key::new(name, Vec::new());
        match figure {
            Figure::Counter => self.0.counter(key).iter().for_each(|counter| counter.add(number)),
            Figure::Gauge => self.0.gauge(key).iter().for_each(|gauge| gauge.set(number)),
            Figure::Histogram => self.0.spread(key).iter().for_each(|spread| spread.observe(number, 1)),
        }
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value as f64);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value as f64);
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}
