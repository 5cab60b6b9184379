//! What is measured: names, units, and which way is better.

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Less is.
    Lower,
    /// More is.
    Higher,
    /// Neither: it describes.
    Neither,
}

/// A figure that results have.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in scenarios and results; ends in its unit where it has one.
    pub name: &'static str,
    /// What tables call it.
    pub label: &'static str,
    /// What it is.
    pub help: &'static str,
    /// Which way is better.
    pub better: Better,
    /// The same on every machine for the same seed and version.
    pub exact: bool,
}

/// The metric with a name.
///
/// ```
/// use polywire_instrument::metrics::{self, Better, METRICS};
///
/// let bytes = metrics::find("bytes").unwrap();
/// assert!(bytes.exact && bytes.better == Better::Lower);
/// assert!(METRICS.iter().all(|metric| metrics::find(metric.name).is_some()));
/// ```
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

const fn metric(name: &'static str, label: &'static str, better: Better, exact: bool, help: &'static str) -> Metric {
    Metric { name, label, help, better, exact }
}

use Better::{Higher, Lower, Neither};

/// All of them, in the order of tables.
pub const METRICS: &[Metric] = &[
    metric("bytes", "bytes", Lower, true, "bytes of a message on the wire, on average"),
    metric("packets", "packets", Lower, true, "packets that the emulated network cuts a message into, on average"),
    metric(
        "content_bytes",
        "content",
        Neither,
        true,
        "bytes of the values themselves: numbers at their width, the bytes of strings",
    ),
    metric("efficiency", "eta", Higher, true, "bytes of content to bytes on the wire"),
    metric("ratio", "ratio", Lower, true, "compressed bytes to bytes before"),
    metric("serialise_ns", "serialise", Lower, false, "CPU time to write a message"),
    metric("compress_ns", "compress", Lower, false, "CPU time to compress it"),
    metric(
        "deliver_ns",
        "deliver",
        Lower,
        false,
        "time from the sender's network interface to the receiver's, on the emulated network",
    ),
    metric("decompress_ns", "decompress", Lower, false, "CPU time to decompress it"),
    metric("deserialise_ns", "deserialise", Lower, false, "CPU time to read it"),
    metric("cpu_ns", "cpu", Lower, false, "CPU time of a message: all four stages, or of both ends with a real engine"),
    metric(
        "send_cpu_ns",
        "cpu, sender",
        Lower,
        false,
        "the sender's part of it, where the other end is another process",
    ),
    metric("receive_cpu_ns", "cpu, receivers", Lower, false, "the part of all receivers"),
    metric("allocations", "allocs", Lower, true, "allocations a message, when everything is warm"),
    metric(
        "peak_memory_bytes",
        "peak memory",
        Lower,
        false,
        "most memory held: by the first message on its way through the stages, or by the other process",
    ),
    metric("latency_p50_ns", "p50", Lower, false, "latency: half of the messages took at most this"),
    metric("latency_p90_ns", "p90", Lower, false, "nine of ten"),
    metric("latency_p99_ns", "p99", Lower, false, "ninety-nine of a hundred"),
    metric("latency_p999_ns", "p99.9", Lower, false, "nine hundred and ninety-nine of a thousand"),
    metric("latency_max_ns", "max", Lower, false, "the slowest message"),
    metric(
        "rtt_mean_ns",
        "rtt mean",
        Lower,
        false,
        "there and back, on average: on the emulated network, or under load",
    ),
    metric("rtt_p90_ns", "rtt p90", Lower, false, "the same, nine of ten"),
    metric("rtt_p99_ns", "rtt p99", Lower, false, "the same, ninety-nine of a hundred"),
    metric("throughput_hz", "msg/s", Higher, false, "messages a second from publisher to every subscriber"),
    metric("throughput_bytes", "bytes/s", Higher, false, "bytes of payload a second to each subscriber"),
    metric(
        "bottleneck_hz",
        "bound msg/s",
        Higher,
        false,
        "messages a second that the slowest of sender, line and receiver lets through",
    ),
    metric("sent", "sent", Neither, false, "messages sent"),
    metric("lost", "lost", Lower, false, "messages that did not come to a subscriber"),
    metric("lost_percent", "lost %", Lower, false, "the same, of a hundred"),
    metric("undecodable", "undecodable", Lower, false, "messages that came and could not be read"),
    metric("duplicated", "dup", Lower, false, "messages that came again"),
    metric("reordered", "reord", Lower, false, "messages that came behind a later one"),
];
