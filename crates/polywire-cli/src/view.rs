//! The view of `list`, `node` and `top`: the nodes at some endpoints, and their statistics.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use polywire::{
    Message, Node, Subscriber, Wire,
    directory::{Directory, NodeData, STATS_TOPIC, Snapshot},
    node::Source,
    qos::Qos,
    stats::{NodeStats, TopicStats},
};

use crate::{
    outcome::{Missed, Misuse},
    seconds::Seconds,
    topic::WireArgs,
    watch::Watch,
};

/// Descriptions arrive together. If none arrives for this time, the view is complete.
const QUIET: Duration = Duration::from_millis(500);

/// How long to wait for the second statistics of a node, from which its rates are computed. Nodes
/// publish statistics each second.
const RATES: Duration = Duration::from_secs(4);

/// The view is also complete this long after the first node, or after the time to wait for it if
/// that is longer, because nodes may come and go all the time.
pub const MOST: Duration = Duration::from_secs(2);

const TICK: Duration = Duration::from_millis(20);

/// The maximum number of nodes whose statistics are kept.
const NODES: usize = 4096;

/// Where to look, and for how long.
#[derive(Args)]
pub struct ViewArgs {
    #[command(flatten)]
    wire: WireArgs,
    /// ENGINE/ADDRESS to look at, in place of the wire's; may be given several times
    #[arg(short, long = "endpoint", value_name = "ENDPOINT")]
    endpoints: Vec<String>,
    /// How long to wait for the first node; others have as long after it, but at least 2 s, and 4 s
    /// more if rates are shown
    #[arg(short, long, value_name = "SECONDS", default_value = "2")]
    pub timeout: Seconds,
}

/// The nodes at some endpoints, without the command's own node.
pub struct View {
    node: Node,
    watch: Watch,
    directory: Directory,
    subscribers: Vec<Subscriber<NodeStats>>,
    stats: BTreeMap<[u8; 16], StatsHistory>,
    places: Vec<String>,
    timeout: Seconds,
}

/// The first, the previous and the latest statistics of a node.
pub struct StatsHistory {
    first: NodeStats,
    previous: NodeStats,
    pub last: NodeStats,
}

/// Messages and bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    pub messages: f64,
    pub bytes: f64,
}

impl ViewArgs {
    /// Opens the endpoints and starts to observe.
    pub fn open(&self) -> anyhow::Result<View> {
        let (node, wires) = self.wire.open("")?;
        let watch = Watch::new(&node);
        let places = match self.endpoints.is_empty() {
            true => wires.endpoints().collect(),
            false => self.endpoints.clone(),
        };
        let directory = node.directory();
        let mut subscribers = Vec::new();
        for place in &places {
            let parsed: Wire = place.parse().map_err(|error| Misuse(format!("--endpoint: {error}")))?;
            if parsed.endpoint.is_none() {
                return Err(Misuse(format!("--endpoint: '{place}': ENGINE/ADDRESS is expected")).into());
            }
            node.open(place)?;
            subscribers.push(node.subscriber_on::<NodeStats>(STATS_TOPIC, place)?);
        }
        Ok(View { node, watch, directory, subscribers, stats: BTreeMap::new(), places, timeout: self.timeout })
    }
}

impl View {
    /// Waits until the view is complete, with rates if `rates`. Fails if nothing is discovered.
    pub fn complete(&mut self, rates: bool) -> anyhow::Result<()> {
        let start = Instant::now();
        let most = self.timeout.0.max(MOST) + if rates { RATES } else { Duration::ZERO };
        let (mut before, mut changed, mut first) = ((Snapshot::default(), 0), Instant::now(), None);
        loop {
            thread::sleep(TICK);
            self.poll();
            let now = (self.snapshot(), self.node.discovered().len() + self.node.foreign_readers().len());
            if now != before {
                (before, changed) = (now, Instant::now());
            }
            let is_empty = self.nodes().is_empty() && before.1 == 0;
            if is_empty && start.elapsed() >= self.timeout.0 {
                return Err(Missed(self.nobody()).into());
            }
            if is_empty {
                continue;
            }
            let is_over = first.get_or_insert_with(Instant::now).elapsed() >= most;
            let settled = changed.elapsed() >= QUIET;
            if is_over || (settled && (!rates || self.has_rates() || changed.elapsed() >= RATES)) {
                return Ok(());
            }
        }
    }

    /// Subscribes to a topic at each of the endpoints.
    pub fn subscribe<T: Message>(&self, topic: &str, qos: &Qos) -> anyhow::Result<Vec<Subscriber<T>>> {
        let subscribe = |place: &String| Ok(self.node.subscribe::<T>(topic, Some(place))?.qos(qos.clone())?.open());
        self.places.iter().map(subscribe).collect()
    }

    /// Processes the messages that have arrived.
    pub fn poll(&mut self) {
        while self.directory.try_recv().is_some() {}
        for sample in self.subscribers.iter().flat_map(|all| std::iter::from_fn(|| all.try_recv())) {
            let (stats, has_room) = (sample.value, self.stats.len() < NODES);
            match self.stats.get_mut(&stats.node) {
                Some(history) if stats.time_ns > history.last.time_ns => {
                    history.previous = std::mem::replace(&mut history.last, stats);
                }
                Some(_) => {}
                None if has_room => {
                    let history = StatsHistory { first: stats.clone(), previous: stats.clone(), last: stats };
                    self.stats.insert(history.last.node, history);
                }
                None => {}
            }
        }
    }

    /// Returns the current state of discovery.
    pub fn snapshot(&self) -> Snapshot {
        self.directory.snapshot()
    }

    /// Returns the nodes, by name, without this command's own.
    pub fn nodes(&self) -> Vec<std::sync::Arc<NodeData>> {
        let own = self.node.hello().node;
        let mut nodes: Vec<_> = self.snapshot().nodes().filter(|node| node.id != own).cloned().collect();
        nodes.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        nodes
    }

    /// Returns the publishers of peers that do not describe themselves, such as those of an older
    /// version.
    pub fn undescribed(&self) -> Vec<Source> {
        let snapshot = self.snapshot();
        let mut sources = self.node.discovered();
        sources.retain(|source| snapshot.publisher(source.announcement.writer).is_none());
        sources
    }

    /// Returns the subscribers of programs that are not nodes.
    pub fn foreign_readers(&self) -> Vec<NodeData> {
        self.node.foreign_readers()
    }

    /// Returns the statistics of a node; `None` until the first ones have arrived.
    pub fn stats(&self, node: &NodeData) -> Option<&StatsHistory> {
        self.stats.get(&node.id.0)
    }

    /// Returns the reason why nothing is shown.
    fn nobody(&mut self) -> String {
        let places = self.places.join(" and ");
        let why = if self.node.links() == 0 { "nobody is there" } else { "no node there describes itself" };
        format!("no topics or nodes at {places} within {} s: {why}{}", self.timeout, self.watch.trouble())
    }

    /// Returns whether two statistics of all nodes with publishers or subscribers have arrived.
    fn has_rates(&self) -> bool {
        let counts = |node: &NodeData| !node.publishers.is_empty() || !node.subscribers.is_empty();
        let has_two = |history: &StatsHistory| history.last.time_ns > history.first.time_ns;
        self.nodes().iter().filter(|node| counts(node)).all(|node| self.stats(node).is_some_and(has_two))
    }
}

impl StatsHistory {
    /// Returns the rate at which a topic's publishers sent, since the first statistics, or since
    /// the previous ones if `recent`. `None` until there are two statistics.
    pub fn sent(&self, topic: &str, recent: bool) -> Option<Rate> {
        self.rate(topic, recent, |of| (of.sent, of.sent_bytes))
    }

    /// Returns the rate at which a topic's subscribers received.
    pub fn received(&self, topic: &str, recent: bool) -> Option<Rate> {
        self.rate(topic, recent, |of| (of.received, of.received_bytes))
    }

    fn rate(&self, topic: &str, recent: bool, of: fn(&TopicStats) -> (u64, u64)) -> Option<Rate> {
        let from = if recent { &self.previous } else { &self.first };
        let ns = self.last.time_ns.saturating_sub(from.time_ns);
        let count = |stats: &NodeStats| stats.topic(topic).map(of).unwrap_or_default();
        let (before, now) = (count(from), count(&self.last));
        let per_second = |a: u64, b: u64| b.saturating_sub(a) as f64 * 1e9 / ns as f64;
        (ns > 0).then(|| Rate { messages: per_second(before.0, now.0), bytes: per_second(before.1, now.1) })
    }

    /// Returns the processor time per time, since the previous statistics.
    pub fn cpu(&self) -> Option<f64> {
        let ns = self.last.time_ns.saturating_sub(self.previous.time_ns);
        (ns > 0).then(|| self.last.cpu_ns.saturating_sub(self.previous.cpu_ns) as f64 / ns as f64)
    }

    /// Returns the latest and the previous statistics of a topic.
    pub fn topic(&self, topic: &str) -> Option<(&TopicStats, Option<&TopicStats>)> {
        Some((self.last.topic(topic)?, self.previous.topic(topic)))
    }

    /// Returns the topics in the node's statistics.
    pub fn topics(&self) -> impl Iterator<Item = &TopicStats> {
        self.last.topics.iter()
    }
}

/// Returns a rate in human-readable form, with about three digits.
pub fn shown_rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".into(),
        Some(rate) => format!("{} Hz", shown(rate)),
    }
}

/// Returns a number without decimals if it has three digits or more, else with one decimal, and the
/// letter of its unit.
pub fn shown(value: f64) -> String {
    let (value, unit) = match value {
        large if large >= 1e10 => (large / 1e9, "G"),
        large if large >= 1e7 => (large / 1e6, "M"),
        large if large >= 1e4 => (large / 1e3, "k"),
        small => (small, ""),
    };
    let digits = if value >= 100.0 || value == 0.0 { 0 } else { 1 };
    format!("{value:.digits$}{unit}")
}

/// Returns a time in human-readable form.
pub fn shown_time(ns: Option<u64>) -> String {
    match ns {
        None => "-".into(),
        Some(ns) if ns < 10_000_000 => format!("{} us", ns.div_ceil(1000)),
        Some(ns) if ns < 10_000_000_000 => format!("{} ms", ns / 1_000_000),
        Some(u64::MAX) => "> 69 s".into(),
        Some(ns) => format!("{} s", ns / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [(0.0, "0"), (1.25, "1.2"), (123.4, "123"), (9999.0, "9999"), (12_345.0, "12.3k"), (2e7, "20.0M")];
        for (value, text) in cases {
            assert_eq!(shown(value), text);
        }
        let times = [None, Some(1500), Some(25_000_000), Some(12_000_000_000), Some(u64::MAX)];
        assert_eq!(times.map(shown_time), ["-", "2 us", "25 ms", "12 s", "> 69 s"]);
        assert_eq!((shown_rate(None), shown_rate(Some(10.0))), ("-".into(), "10.0 Hz".into()));
    }
}
