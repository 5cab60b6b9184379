//! Counts as text in Prometheus's exposition format 0.0.4.

use std::fmt::{self, Write as _};

use super::{Latencies, LinkCounts, NodeStats, TopicStats};

/// A metric of a node: name, kind, help text and value.
type OfNode = (&'static str, &'static str, &'static str, fn(&NodeStats) -> f64);
/// A metric with a value for each topic or link: name, kind, help text and value.
type Of<T> = (&'static str, &'static str, &'static str, fn(&T) -> u64);

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

const NODE: &[OfNode] = &[
    ("polywire_uptime_seconds", GAUGE, "Time since the node was made.", |of| seconds(of.uptime_ns)),
    ("polywire_process_cpu_seconds_total", COUNTER, "Processor time of the process.", |of| seconds(of.cpu_ns)),
    ("polywire_process_resident_memory_bytes", GAUGE, "Memory of the process in RAM.", |of| of.memory_bytes as f64),
    ("polywire_programs_compiled_total", COUNTER, "Encoders and decoders made.", |of| of.compiled as f64),
    ("polywire_compile_seconds_total", COUNTER, "Time spent on making them.", |of| seconds(of.compile_ns)),
    ("polywire_channels_announced", GAUGE, "Channels that the node announces.", |of| f64::from(of.announced)),
    ("polywire_channels_discovered", GAUGE, "Channels that peers announce.", |of| f64::from(of.discovered)),
    ("polywire_packets_retransmitted_total", COUNTER, "Packets sent again.", |of| of.retransmitted as f64),
    ("polywire_access_denied_total", COUNTER, "What the rules of access denied.", |of| of.denied as f64),
];

/// A policy, and the number of samples that it dropped.
type Filtered = (&'static str, fn(&TopicStats) -> u64);

const TOPIC: &[Of<TopicStats>] = &[
    ("polywire_publishers", GAUGE, "Publishers of the topic.", |of| of.publishers.into()),
    ("polywire_messages_sent_total", COUNTER, "Messages published.", |of| of.sent),
    ("polywire_sent_bytes_total", COUNTER, "Bytes of payloads published.", |of| of.sent_bytes),
    ("polywire_messages_dropped_total", COUNTER, "Messages dropped at publication.", |of| of.dropped),
    ("polywire_subscribers", GAUGE, "Subscribers of the topic.", |of| of.subscribers.into()),
    ("polywire_messages_received_total", COUNTER, "Messages received.", |of| of.received),
    ("polywire_received_bytes_total", COUNTER, "Bytes of payloads received.", |of| of.received_bytes),
    ("polywire_messages_queued", GAUGE, "Messages that wait for subscribers.", |of| of.queued),
    ("polywire_messages_lost_total", COUNTER, "Messages lost on the way or in full queues.", |of| of.lost),
    ("polywire_messages_undecodable_total", COUNTER, "Messages that could not be decoded.", |of| of.undecodable),
];

/// Samples that quality of service dropped, by policy.
const FILTERED: &[Filtered] = &[
    ("history", |of| of.replaced),
    ("lifespan", |of| of.expired),
    ("time-based-filter", |of| of.filtered),
    ("ownership", |of| of.not_owner),
    ("destination-order", |of| of.superseded),
    ("resource-limits", |of| of.rejected),
];

const LINK: &[Of<LinkCounts>] = &[
    ("polywire_link_messages_sent_total", COUNTER, "Messages for the peer.", |of| of.sent),
    ("polywire_link_messages_dropped_total", COUNTER, "Messages that its queue dropped.", |of| of.dropped),
    ("polywire_link_queued_bytes", GAUGE, "Bytes that wait for the peer.", |of| of.queued_bytes),
    ("polywire_link_messages_received_total", COUNTER, "Messages from the peer.", |of| of.received),
    ("polywire_link_received_bytes_total", COUNTER, "Bytes of payloads from the peer.", |of| of.received_bytes),
    ("polywire_link_silences_total", COUNTER, "Times that the peer was silent past its lease.", |of| of.silences),
];

/// Formats all metrics of a node.
pub(super) fn text(stats: &NodeStats) -> String {
    let mut out = String::new();
    // Writing into a string cannot fail.
    let _ = write(stats, &mut out);
    out
}

fn write(stats: &NodeStats, out: &mut String) -> fmt::Result {
    let node = Label(&stats.name);
    for (name, kind, help, value) in NODE {
        head(out, name, kind, help)?;
        writeln!(out, "{name}{{node=\"{node}\"}} {}", value(stats))?;
    }
    for (name, kind, help, value) in TOPIC {
        head(out, name, kind, help)?;
        for of in &stats.topics {
            writeln!(out, "{name}{{node=\"{node}\",topic=\"{}\"}} {}", Label(&of.topic), value(of))?;
        }
    }
    let name = "polywire_samples_filtered_total";
    head(out, name, COUNTER, "Samples that quality of service dropped.")?;
    for of in &stats.topics {
        for (policy, value) in FILTERED {
            let topic = Label(&of.topic);
            writeln!(out, "{name}{{node=\"{node}\",topic=\"{topic}\",policy=\"{policy}\"}} {}", value(of))?;
        }
    }
    latencies(stats, out)?;
    for (name, kind, help, value) in LINK {
        head(out, name, kind, help)?;
        for of in &stats.links {
            let (endpoint, address) = (Label(&of.endpoint), Label(&of.address));
            let peer = polywire_core::envelope::Id128(of.peer);
            let labels = format!("node=\"{node}\",endpoint=\"{endpoint}\",peer=\"{peer}\",address=\"{address}\"");
            writeln!(out, "{name}{{{labels}}} {}", value(of))?;
        }
    }
    Ok(())
}

/// Writes a histogram for each topic with measurements. Every second bucket, in steps of about 1.4,
/// is enough.
fn latencies(stats: &NodeStats, out: &mut String) -> fmt::Result {
    let measured = || stats.topics.iter().filter(|topic| topic.latency.count > 0 || topic.latency.negative > 0);
    let (name, node) = ("polywire_latency_seconds", Label(&stats.name));
    head(out, name, "histogram", "Time from publication to arrival at a subscriber.")?;
    for of in measured() {
        let labels = format!("node=\"{node}\",topic=\"{}\"", Label(&of.topic));
        let (mut sum, latency) = (0, &of.latency);
        for (i, count) in latency.buckets.iter().enumerate() {
            sum += count;
            if let Some(bound) = Latencies::bound_ns(i).filter(|_| i % 2 == 0) {
                writeln!(out, "{name}_bucket{{{labels},le=\"{}\"}} {sum}", seconds(bound))?;
            }
        }
        writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", latency.count)?;
        writeln!(out, "{name}_sum{{{labels}}} {}", seconds(latency.sum_ns))?;
        writeln!(out, "{name}_count{{{labels}}} {}", latency.count)?;
    }
    let name = "polywire_latency_negative_total";
    head(out, name, COUNTER, "Messages that arrived before they were published, by the clocks.")?;
    for of in measured() {
        writeln!(out, "{name}{{node=\"{node}\",topic=\"{}\"}} {}", Label(&of.topic), of.latency.negative)?;
    }
    Ok(())
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The value of a label, escaped.
struct Label<'a>(&'a str);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_strangers_stay_labels() {
        let topic = TopicStats { topic: "a\"} 7\nb\\".into(), sent: 3, ..TopicStats::default() };
        let stats = NodeStats { name: "n".into(), topics: vec![topic], ..NodeStats::default() };
        let line = "polywire_messages_sent_total{node=\"n\",topic=\"a\\\"} 7\\nb\\\\\"} 3\n";
        assert!(text(&stats).contains(line), "{}", text(&stats));
    }

    #[test]
    fn the_buckets_of_a_histogram_add_up() {
        let histogram = super::super::Histogram::default();
        [5_000, 6_000, 7_000_000, i64::MAX].iter().for_each(|ns| histogram.add(0, *ns));
        let topic = TopicStats { topic: "t".into(), latency: histogram.read(), ..TopicStats::default() };
        let shown = text(&NodeStats { topics: vec![topic], ..NodeStats::default() });
        let counts: Vec<u64> = shown
            .lines()
            .filter(|line| line.starts_with("polywire_latency_seconds_bucket"))
            .map(|line| line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a count"))
            .collect();
        assert!(counts.is_sorted() && counts.first() == Some(&0) && counts.last() == Some(&4), "{counts:?}");
        assert!(shown.contains("le=\"+Inf\"} 4\n") && shown.contains("_count{node=\"\",topic=\"t\"} 4\n"));
    }
}
