//! The command `polywire top`: topics and nodes with their rates, live in the terminal.

mod keys;

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::Serialize;

use self::keys::{Key, Keys};
use crate::{
    outcome::{self, Missed, Outcome},
    seconds::Seconds,
    terminal::{Terminal, columns},
    verb::{Action, Verb},
    view::{View, ViewArgs, shown, shown_rate, shown_time},
};

pub const VERB: Verb = Verb::new::<Top>("top", "Shows topics and nodes with their rates, live in the terminal")
    .details(
        "Keys: t, r, b, l, x and u sort by topic, rate, bytes, latency, losses and queue; / filters by a part of a \
         topic's name (Enter ends the text, Esc removes the filter); q quits. Without a terminal, with --once and with \
         --json it prints plain text.",
    )
    .example("polywire top --once --timeout 60");

/// How long each wait for a key lasts before arrived data is processed.
const TICK: Duration = Duration::from_millis(50);

#[derive(Args)]
pub struct Top {
    #[command(flatten)]
    view: ViewArgs,
    /// Prints once and ends
    #[arg(long)]
    once: bool,
    /// Time between two pictures
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    every: Seconds,
    /// What to sort by; names ascend, numbers descend
    #[arg(long, value_enum, default_value_t = Sort::Rate)]
    sort: Sort,
    /// Shows only topics whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
}

/// What to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    Topic,
    Rate,
    Bytes,
    Latency,
    Lost,
    Queue,
}

/// The data that is shown.
#[derive(Debug, Serialize)]
struct Picture {
    nodes: Vec<NodeRow>,
    topics: Vec<TopicRow>,
}

#[derive(Debug, Serialize)]
struct NodeRow {
    name: String,
    host: String,
    process: u32,
    cpu: Option<f64>,
    memory_bytes: Option<u64>,
    publishers: usize,
    subscribers: usize,
}

/// A topic, with the sums over all nodes.
#[derive(Clone, Debug, Default, Serialize)]
struct TopicRow {
    topic: String,
    publishers: u32,
    subscribers: u32,
    /// Messages published a second.
    rate_hz: Option<f64>,
    bytes_per_second: Option<f64>,
    latency_p50_ns: Option<u64>,
    latency_p99_ns: Option<u64>,
    /// The number of messages lost, dropped and not decoded.
    lost: u64,
    queued: u64,
}

impl Action for Top {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let mut view = self.view.open()?;
        let live = terminal.live && !terminal.json && !self.once;
        match view.complete(!live) {
            Err(error) if !live || !error.is::<Missed>() => return Err(error),
            _ => {}
        }
        match live {
            true => self.live(&mut view, terminal),
            false => self.plain(&mut view, terminal),
        }
    }
}

impl Top {
    /// Prints the data repeatedly, or once with `--once`.
    fn plain(&self, view: &mut View, terminal: &Terminal) -> outcome::Result {
        loop {
            view.poll();
            let picture = Picture::of(view, self.sort, &self.filter);
            match terminal.json {
                true => terminal.value(&picture)?,
                false => terminal.text(&picture.text())?,
            }
            if self.once {
                return Ok(Outcome::Fine);
            }
            std::thread::sleep(self.every.0);
        }
    }

    /// Draws on the screen until the user quits.
    fn live(&self, view: &mut View, terminal: &Terminal) -> outcome::Result {
        let keys = Keys::open()?;
        let (mut sort, mut filter, mut is_typing) = (self.sort, self.filter.clone(), false);
        let mut drawn: Option<Instant> = None;
        loop {
            view.poll();
            if drawn.is_none_or(|drawn| drawn.elapsed() >= self.every.0) {
                let picture = Picture::of(view, sort, &filter);
                let (rows, width) = keys.size();
                terminal.plain(&screen(&picture, sort, &filter, is_typing, rows, width))?;
                drawn = Some(Instant::now());
            }
            let Some(key) = keys.next(TICK) else { continue };
            drawn = None;
            match (is_typing, key) {
                (true, Key::Enter) => is_typing = false,
                (true, Key::Backspace) => drop(filter.pop()),
                (true, Key::Char(c)) => filter.push(c),
                (_, Key::Escape) => {
                    filter.clear();
                    is_typing = false;
                }
                (false, Key::Char('/')) => is_typing = true,
                (false, Key::Char('q')) => return Ok(Outcome::Fine),
                (false, Key::Char(c)) => sort = Sort::by_key(c).unwrap_or(sort),
                _ => {}
            }
        }
    }
}

impl Sort {
    fn by_key(key: char) -> Option<Sort> {
        let keys = [
            ('t', Sort::Topic),
            ('r', Sort::Rate),
            ('b', Sort::Bytes),
            ('l', Sort::Latency),
            ('x', Sort::Lost),
            ('u', Sort::Queue),
        ];
        keys.iter().find(|(other, _)| *other == key).map(|(_, sort)| *sort)
    }

    fn apply(self, rows: &mut [TopicRow]) {
        rows.sort_by(|a, b| a.topic.cmp(&b.topic));
        match self {
            Sort::Topic => {}
            Sort::Rate => rows.sort_by(|a, b| b.rate_hz.unwrap_or(0.0).total_cmp(&a.rate_hz.unwrap_or(0.0))),
            Sort::Bytes => {
                let bytes = |row: &TopicRow| row.bytes_per_second.unwrap_or(0.0);
                rows.sort_by(|a, b| bytes(b).total_cmp(&bytes(a)));
            }
            Sort::Latency => rows.sort_by_key(|row| std::cmp::Reverse(row.latency_p99_ns)),
            Sort::Lost => rows.sort_by_key(|row| std::cmp::Reverse(row.lost)),
            Sort::Queue => rows.sort_by_key(|row| std::cmp::Reverse(row.queued)),
        }
    }
}

impl Picture {
    fn of(view: &View, sort: Sort, filter: &str) -> Picture {
        let nodes = view.nodes();
        let node = |node: &std::sync::Arc<polywire::directory::NodeData>| NodeRow {
            name: node.name.clone(),
            host: node.host.clone(),
            process: node.process,
            cpu: view.stats(node).and_then(|history| history.cpu()),
            memory_bytes: view.stats(node).map(|history| history.last.memory_bytes),
            publishers: node.publishers.len(),
            subscribers: node.subscribers.len(),
        };
        let mut topics = std::collections::BTreeMap::<&str, TopicSum>::new();
        for history in nodes.iter().filter_map(|node| view.stats(node)) {
            for counted in history.topics().filter(|topic| !topic.topic.is_empty() && topic.topic.contains(filter)) {
                topics.entry(&counted.topic).or_default().add(history, &counted.topic);
            }
        }
        let mut topics: Vec<TopicRow> = topics.into_values().map(TopicSum::row).collect();
        sort.apply(&mut topics);
        Picture { nodes: nodes.iter().map(node).collect(), topics }
    }

    fn text(&self) -> String {
        format!("{}\n{}", columns(&self.node_cells()), columns(&self.topic_cells()))
    }

    fn node_cells(&self) -> Vec<Vec<String>> {
        let head = ["NODE", "HOST", "PID", "CPU", "MEMORY", "PUBLISHERS", "SUBSCRIBERS"];
        let row = |row: &NodeRow| {
            vec![
                row.name.clone(),
                row.host.clone(),
                row.process.to_string(),
                row.cpu.map_or("-".into(), |cpu| format!("{:.1} %", cpu * 100.0)),
                row.memory_bytes.map_or("-".into(), |bytes| format!("{}B", shown(bytes as f64))),
                row.publishers.to_string(),
                row.subscribers.to_string(),
            ]
        };
        std::iter::once(head.map(String::from).to_vec()).chain(self.nodes.iter().map(row)).collect()
    }

    fn topic_cells(&self) -> Vec<Vec<String>> {
        let head = ["TOPIC", "PUBLISHERS", "SUBSCRIBERS", "RATE", "BYTES", "P50", "P99", "LOST", "QUEUED"];
        let row = |row: &TopicRow| {
            vec![
                row.topic.clone(),
                row.publishers.to_string(),
                row.subscribers.to_string(),
                shown_rate(row.rate_hz),
                row.bytes_per_second.map_or("-".into(), |bytes| format!("{}B/s", shown(bytes))),
                shown_time(row.latency_p50_ns),
                shown_time(row.latency_p99_ns),
                row.lost.to_string(),
                row.queued.to_string(),
            ]
        };
        std::iter::once(head.map(String::from).to_vec()).chain(self.topics.iter().map(row)).collect()
    }
}

/// The sums of a topic while nodes are added.
#[derive(Default)]
struct TopicSum {
    row: TopicRow,
    latency: polywire::stats::Latencies,
}

impl TopicSum {
    fn add(&mut self, history: &crate::view::StatsHistory, topic: &str) {
        let Some((now, before)) = history.topic(topic) else { return };
        let row = &mut self.row;
        row.topic = topic.into();
        row.publishers = row.publishers.saturating_add(now.publishers);
        row.subscribers = row.subscribers.saturating_add(now.subscribers);
        let lost = now.lost.saturating_add(now.dropped).saturating_add(now.undecodable);
        row.lost = row.lost.saturating_add(lost);
        row.queued = row.queued.saturating_add(now.queued);
        if let Some(rate) = history.sent(topic, true) {
            row.rate_hz = Some(row.rate_hz.unwrap_or(0.0) + rate.messages);
            row.bytes_per_second = Some(row.bytes_per_second.unwrap_or(0.0) + rate.bytes);
        }
        // Uses the latencies of the last second, or all latencies if none was measured in it.
        let recent = before.map(|before| now.latency.since(&before.latency)).filter(|recent| recent.count > 0);
        self.latency.add(recent.as_ref().unwrap_or(&now.latency));
    }

    fn row(self) -> TopicRow {
        let quantile = |part| self.latency.quantile(part);
        TopicRow { latency_p50_ns: quantile(0.5), latency_p99_ns: quantile(0.99), ..self.row }
    }
}

/// Returns the data as drawn on a screen of this size: from the top left, each line to its end.
fn screen(picture: &Picture, sort: Sort, filter: &str, is_typing: bool, rows: usize, width: usize) -> String {
    let cursor = if is_typing { "_" } else { "" };
    let filter = if is_typing || !filter.is_empty() { format!("  filter: {filter}{cursor}") } else { String::new() };
    let head = format!("polywire top  sorted by {sort:?}{filter}  (t r b l x u sort, / filter, q quit)\n\n");
    // `columns` has escaped text from peers; the filter was typed by the user.
    let text = head + &picture.text();
    let line = |line: &str| {
        format!("{}\u{1b}[K\r\n", line.chars().filter(|c| !c.is_control()).take(width).collect::<String>())
    };
    let lines: String = text.lines().take(rows.saturating_sub(1)).map(line).collect();
    format!("\u{1b}[H{lines}\u{1b}[J")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(topic: &str, rate: f64, p99: Option<u64>) -> TopicRow {
        TopicRow { topic: topic.into(), rate_hz: Some(rate), latency_p99_ns: p99, ..TopicRow::default() }
    }

    #[test]
    fn names_ascend_and_numbers_descend() {
        let sorted = |sort: Sort| {
            let mut rows = [row("b", 1.0, Some(5)), row("a", 1.0, None), row("c", 9.0, Some(7))];
            sort.apply(&mut rows);
            rows.map(|row| row.topic).concat()
        };
        assert_eq!([Sort::Topic, Sort::Rate, Sort::Latency, Sort::Lost].map(sorted), ["abc", "cab", "cba", "abc"]);
        assert_eq!((Sort::by_key('l'), Sort::by_key('z')), (Some(Sort::Latency), None));
    }

    #[test]
    fn a_screen_is_not_left() {
        let topics = vec![row("evil\u{1b}[2J", 1.0, None), row(&"x".repeat(500), 1.0, None)];
        let drawn = screen(&Picture { nodes: Vec::new(), topics }, Sort::Rate, "", false, 6, 40);
        assert!(drawn.starts_with("\u{1b}[H") && drawn.ends_with("\u{1b}[J") && !drawn.contains("[2J\u{1b}"));
        assert_eq!(drawn.matches("\r\n").count(), 5);
        assert!(!drawn.contains("\u{1b}[2J"), "{drawn:?}");
        assert!(drawn.lines().all(|line| line.chars().count() <= 40 + 10), "{drawn:?}");
    }
}
