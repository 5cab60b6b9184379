//! The metrics: names, units, which direction is better, and the mode that measures each.

use crate::scenario::Mode;

/// Which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Lower values are better.
    Lower,
    /// Higher values are better.
    Higher,
    /// Neither; the metric is descriptive.
    Neither,
}

/// A metric in results.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name in scenarios and results; it ends in the unit, if the metric has one.
    pub name: &'static str,
    /// Name in tables.
    pub label: &'static str,
    /// Description.
    pub help: &'static str,
    /// Which direction is better.
    pub better: Better,
    /// True if the value is the same on every machine for the same seed and version.
    pub exact: bool,
}

/// Finds a metric by name.
///
/// ```
/// use polywire_measure::metrics::{self, Better, METRICS};
///
/// let bytes = metrics::find("bytes").unwrap();
/// assert!(bytes.exact && bytes.better == Better::Lower);
/// assert!(METRICS.iter().all(|metric| metrics::find(metric.name).is_some()));
/// ```
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// What a case needs for a metric to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: every case of the mode has the metric.
    Nothing,
    /// A compressor.
    Compressor,
    /// An emulated network.
    Network,
    /// A peer in a process of its own.
    Process,
}

const LATENCIES: &[&str] = &["latency_p50_ns", "latency_p90_ns", "latency_p99_ns", "latency_p999_ns", "latency_max_ns"];
const ROUND_TRIPS: &[&str] = &["rtt_mean_ns", "rtt_p90_ns", "rtt_p99_ns"];
const OF_PROCESSES: (Needs, &[&str]) = (Needs::Process, &["send_cpu_ns", "receive_cpu_ns", "peak_memory_bytes"]);

/// The metrics of a mode, grouped by what cases need for them.
type Measured = &'static [(Needs, &'static [&'static str])];

const STAGES: Measured = &[
    (
        Needs::Nothing,
        &[
            "bytes",
            "content_bytes",
            "efficiency",
            "serialise_ns",
            "deserialise_ns",
            "cpu_ns",
            "allocations",
            "peak_memory_bytes",
            "bottleneck_hz",
        ],
    ),
    (Needs::Compressor, &["ratio", "compress_ns", "decompress_ns"]),
    (
        Needs::Network,
        &["packets", "deliver_ns", "sent", "lost", "lost_percent", "undecodable", "duplicated", "reordered"],
    ),
    (Needs::Network, LATENCIES),
    (Needs::Network, ROUND_TRIPS),
];
const CLOSED: Measured =
    &[(Needs::Nothing, &["bytes", "cpu_ns", "sent", "lost"]), OF_PROCESSES, (Needs::Nothing, LATENCIES)];
const OPEN: Measured = &[
    (Needs::Nothing, &["bytes", "cpu_ns", "sent", "lost", "lost_percent", "duplicated", "reordered"]),
    OF_PROCESSES,
    (Needs::Nothing, LATENCIES),
];
const LOADED: Measured = &[
    (Needs::Nothing, &["bytes", "cpu_ns", "sent", "lost", "throughput_hz"]),
    OF_PROCESSES,
    (Needs::Nothing, ROUND_TRIPS),
];
const THROUGHPUT: Measured =
    &[(Needs::Nothing, &["bytes", "cpu_ns", "throughput_hz", "throughput_bytes", "lost_percent"]), OF_PROCESSES];

impl Mode {
    /// The metrics that this mode measures, and what a case needs for each.
    ///
    /// ```
    /// use polywire_measure::{metrics::Needs, scenario::Mode};
    /// assert!(Mode::Stages.metrics().any(|(name, needs)| name == "lost" && needs == Needs::Network));
    /// assert_eq!(Mode::Open.needs_for("lost"), Some(Needs::Nothing));
    /// assert_eq!(Mode::Open.needs_for("serialise_ns"), None, "it is not measured");
    /// ```
    pub fn metrics(self) -> impl Iterator<Item = (&'static str, Needs)> {
        let measured = match self {
            Mode::Stages => STAGES,
            Mode::Closed => CLOSED,
            Mode::Open => OPEN,
            Mode::Loaded => LOADED,
            Mode::Throughput => THROUGHPUT,
        };
        measured.iter().flat_map(|(needs, names)| names.iter().map(|name| (*name, *needs)))
    }

    /// What a case of this mode needs for a metric; `None` if the mode does not measure it.
    pub fn needs_for(self, metric: &str) -> Option<Needs> {
        self.metrics().find(|(name, _)| *name == metric).map(|(_, needs)| needs)
    }
}

const fn metric(name: &'static str, label: &'static str, better: Better, exact: bool, help: &'static str) -> Metric {
    Metric { name, label, help, better, exact }
}

use Better::{Higher, Lower, Neither};

/// All metrics, in the order of tables.
pub const METRICS: &[Metric] = &[
    metric("bytes", "bytes", Lower, true, "bytes of a message on the wire, on average"),
    metric("packets", "packets", Lower, true, "packets that the emulated network cuts a message into, on average"),
    metric(
        "content_bytes",
        "content_bytes",
        Neither,
        true,
        "bytes of the values themselves: numbers at their width, the bytes of strings",
    ),
    metric(
        "efficiency",
        "efficiency",
        Higher,
        true,
        "content bytes divided by bytes on the wire; 1 means no overhead (eta in the papers)",
    ),
    metric("ratio", "ratio", Lower, true, "compressed size divided by uncompressed size"),
    metric("serialise_ns", "serialise", Lower, false, "CPU time to encode a message"),
    metric("compress_ns", "compress", Lower, false, "CPU time to compress a message"),
    metric(
        "deliver_ns",
        "deliver",
        Lower,
        false,
        "time from the sender's network interface to the receiver's, on the emulated network",
    ),
    metric("decompress_ns", "decompress", Lower, false, "CPU time to decompress a message"),
    metric("deserialise_ns", "deserialise", Lower, false, "CPU time to decode a message"),
    metric("cpu_ns", "cpu", Lower, false, "CPU time of a message: all four stages, or both ends of a real engine"),
    metric(
        "send_cpu_ns",
        "cpu, sender",
        Lower,
        false,
        "CPU time of a message in the sender, if the other end is another process",
    ),
    metric("receive_cpu_ns", "cpu, receivers", Lower, false, "CPU time of a message in all receivers together"),
    metric("allocations", "allocs", Lower, true, "allocations per message after the first ones"),
    metric(
        "peak_memory_bytes",
        "peak memory",
        Lower,
        false,
        "peak memory: of the first message in all stages, or of the other process",
    ),
    metric("latency_p50_ns", "p50", Lower, false, "latency: half of the messages take at most this"),
    metric("latency_p90_ns", "p90", Lower, false, "latency: nine of ten take at most this"),
    metric("latency_p99_ns", "p99", Lower, false, "latency: 99 of 100 take at most this"),
    metric("latency_p999_ns", "p99.9", Lower, false, "latency: 999 of 1000 take at most this"),
    metric("latency_max_ns", "max", Lower, false, "latency: the slowest message"),
    metric("rtt_mean_ns", "rtt mean", Lower, false, "round trip on the emulated network or under load: average"),
    metric("rtt_p90_ns", "rtt p90", Lower, false, "round trip: nine of ten take at most this"),
    metric("rtt_p99_ns", "rtt p99", Lower, false, "round trip: 99 of 100 take at most this"),
    metric("throughput_hz", "msg/s", Higher, false, "messages per second from the publisher to every subscriber"),
    metric("throughput_bytes", "bytes/s", Higher, false, "bytes of payload per second to each subscriber"),
    metric(
        "bottleneck_hz",
        "bottleneck_hz",
        Higher,
        false,
        "messages per second that the slowest of sender, network line and receiver can handle, computed from their times for one message",
    ),
    metric("sent", "sent", Neither, false, "messages sent"),
    metric("lost", "lost", Lower, false, "messages that did not arrive at a subscriber"),
    metric("lost_percent", "lost %", Lower, false, "messages that did not arrive at a subscriber, in percent"),
    metric("undecodable", "undecodable", Lower, false, "messages that arrived but could not be decoded"),
    metric("duplicated", "dup", Lower, false, "messages that arrived more than once"),
    metric("reordered", "reord", Lower, false, "messages that arrived after a later one"),
];
