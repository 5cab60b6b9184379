//! What a program reports by the crate `tracing` comes as samples of a probe.

#![cfg(feature = "tracing")]

use std::time::Duration;

use polywire::Node;
use polywire_telemetry::{
    Agent, Identity, Moment,
    input::{Metrics, TraceLayer},
    system::Host,
};
use tracing::{debug, info, info_span, subscriber::with_default, warn};
use tracing_subscriber::prelude::*;

/// What a program reports in a closure, as a sample.
fn reported(name: &str, program: impl FnOnce()) -> Metrics {
    let wire = format!("cdr@inproc/trace-{name}");
    let identity = Identity::new("shop").expect("a name");
    let mut agent = Agent::new(Node::new(), identity, Host::this(), &wire, Moment::default()).expect("a node");
    let layer = TraceLayer::install(&mut agent, "trace").expect("a probe");
    let samples = Node::new().subscriber_on::<Metrics>("probes/shop/trace", &wire).expect("a subscriber");
    with_default(tracing_subscriber::registry().with(layer), program);
    let mut now = Moment::default();
    loop {
        agent.turn(now);
        now.steady += Duration::from_secs(10);
        if let Some(sample) = samples.recv_timeout(Duration::from_millis(10)) {
            return sample.value;
        }
    }
}

#[test]
fn events_are_counted_and_spans_measured() {
    let sample = reported("events", || {
        for number in 0..3 {
            let span = info_span!(target: "shop", "order", number);
            span.in_scope(|| info!(target: "shop", "taken"));
        }
        warn!(target: "shop", "late");
        // One that is still open has no time yet.
        std::mem::forget(info_span!(target: "shop", "open"));
    });
    let counts: Vec<_> =
        sample.metrics.iter().map(|count| (&*count.name, &*count.labels[0].value, count.value)).collect();
    assert_eq!(counts, [("events", "INFO", 3.0), ("events", "WARN", 1.0)]);
    let times: Vec<_> =
        sample.distributions.iter().map(|times| (&*times.name, &*times.labels[0].value, times.count)).collect();
    assert_eq!(times, [("span_seconds", "order", 3)]);
    assert!(sample.metrics.iter().all(|count| count.labels[1].value == "shop") && sample.refused == 0);
}

#[test]
fn numbers_in_fields_are_figures() {
    let sample = reported("fields", || {
        debug!(counter.parts = 2, gauge.level = 1.5, histogram.wait_s = 0.25, level = 9, "taken");
        debug!(monotonic_counter.parts = 3u64, gauge.level = -1, "taken");
        // A name keeps its kind, and what is no number is none.
        debug!(gauge.parts = 1, counter.name = "x", counter.nan = f64::NAN, "strange");
    });
    let value = |name: &str| sample.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value);
    assert_eq!([value("parts"), value("level"), value("name"), value("nan")], [Some(5.0), Some(-1.0), None, None]);
    assert_eq!((sample.distributions[0].name.as_str(), sample.refused), ("wait_s", 2));
}
