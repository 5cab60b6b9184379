//! The report of the demonstration: its figures, and whether the subscribers read everything as
//! published.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    protocol::Figures,
    types::{READERS, Reading, Version},
};
use crate::{terminal::columns, types::count};

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    pub topic: &'static str,
    pub endpoint: String,
    pub rate_hz: f64,
    pub wires: Vec<WireRow>,
    /// The cost of the samples of this machine's probes.
    pub probes: Vec<ProbeRow>,
    /// The last message as published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<Box<RawValue>>,
    pub readers: Vec<ReaderReport>,
    /// What was missed or misread; empty if all is well.
    pub problems: Vec<String>,
    pub ok: bool,
}

/// Figures of one format.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WireRow {
    pub wire: String,
    pub messages: u64,
    pub bytes_per_message: f64,
    pub older: ReaderFigures,
    pub newer: ReaderFigures,
}

/// The cost of the samples of this machine's probes in one format.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProbeRow {
    pub wire: String,
    pub samples: u64,
    pub bytes_per_sample: f64,
    /// Processor time of the process, which contains the probes, the node and the collector.
    pub cpu_us_per_sample: f64,
}

/// Figures of one format at one reader.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReaderFigures {
    pub messages: u64,
    pub latency_us_p50: f64,
    pub latency_us_p99: f64,
}

/// A reader with its version of the type.
#[derive(Debug, Serialize)]
pub struct ReaderReport {
    pub version: &'static str,
    #[serde(flatten)]
    pub reading: Reading,
    /// The last message as it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Box<RawValue>>,
}

impl WireRow {
    /// Rows from what the publisher and the readers have reported.
    pub fn all(published: &[Figures], older: &[Figures], newer: &[Figures]) -> Vec<WireRow> {
        let reader = |read: &[Figures], wire: &str| {
            let of = |figures: &Figures| ReaderFigures {
                messages: figures.messages,
                latency_us_p50: figures.latency_us_p50,
                latency_us_p99: figures.latency_us_p99,
            };
            read.iter().find(|figures| figures.wire == wire).map(of).unwrap_or_default()
        };
        let row = |figures: &Figures| WireRow {
            wire: figures.wire.clone(),
            messages: figures.messages,
            bytes_per_message: figures.bytes_per_message(),
            older: reader(older, &figures.wire),
            newer: reader(newer, &figures.wire),
        };
        published.iter().map(row).collect()
    }

    pub fn reader(&self, version: Version) -> &ReaderFigures {
        if version == Version::Older { &self.older } else { &self.newer }
    }
}

impl ProbeRow {
    pub fn of(figures: &Figures) -> ProbeRow {
        ProbeRow {
            wire: figures.wire.clone(),
            samples: figures.messages,
            bytes_per_sample: figures.bytes_per_message(),
            cpu_us_per_sample: figures.cpu_ns as f64 / 1000.0 / figures.messages.max(1) as f64,
        }
    }
}

/// Returns the table of the probes, with a line for each format.
pub fn probe_table(rows: &[ProbeRow]) -> String {
    let head = ["wire", "samples", "bytes each", "CPU each"].map(String::from).to_vec();
    let cells = |row: &ProbeRow| {
        let (bytes, cpu) = (format!("{:.1}", row.bytes_per_sample), format!("{:.0} us", row.cpu_us_per_sample));
        vec![row.wire.clone(), row.samples.to_string(), bytes, cpu]
    };
    columns(&std::iter::once(head).chain(rows.iter().map(cells)).collect::<Vec<_>>())
}

/// Returns the table, with a line for each format.
pub fn table(rows: &[WireRow]) -> String {
    let head = ["wire", "messages", "bytes each", "older read", "p50", "p99", "newer read", "p50", "p99"];
    let cells = |row: &WireRow| {
        let mut cells = vec![row.wire.clone(), row.messages.to_string(), format!("{:.1}", row.bytes_per_message)];
        for version in READERS {
            let figures = row.reader(version);
            cells.push(figures.messages.to_string());
            cells.push(format!("{:.0} us", figures.latency_us_p50));
            cells.push(format!("{:.0} us", figures.latency_us_p99));
        }
        cells
    };
    let head = head.map(String::from).to_vec();
    columns(&std::iter::once(head).chain(rows.iter().map(cells)).collect::<Vec<_>>())
}

impl Report {
    /// Returns the summary for people, without the table.
    pub fn words(&self) -> String {
        let mut out = String::new();
        let messages: u64 = self.wires.iter().map(|row| row.messages).sum();
        for reader in &self.readers {
            let Reading { verdict, reads, widens, defaults, skips } = &reader.reading;
            // Writing into a string cannot fail.
            let _ = writeln!(out, "The {} version reads it: {verdict}.", reader.version);
            for (what, members) in [("reads", reads), ("widens", widens), ("defaults", defaults), ("skips", skips)] {
                if !members.is_empty() {
                    let _ = writeln!(out, "  {what:<9}{}", members.join(", "));
                }
            }
        }
        let probes = probe_table(&self.probes);
        let _ = writeln!(
            out,
            "\nThis machine's probes, by a node and a collector. The format was changed while they ran:\n{probes}"
        );
        for problem in &self.problems {
            let _ = writeln!(out, "PROBLEM: {problem}");
        }
        if self.ok {
            let formats = count(self.wires.len(), "format");
            let _ = writeln!(
                out,
                "Both read all {messages} messages in {formats}, and every shared member had the published value."
            );
        }
        out
    }
}

/// Returns what a reader missed or misread.
pub fn judge(version: Version, reading: &Reading, published: &[Figures], read: &[Figures]) -> Vec<String> {
    let mut problems = Vec::new();
    for sent in published {
        let none = Figures::default();
        let got = read.iter().find(|figures| figures.wire == sent.wire).unwrap_or(&none);
        let lead = format!("{} by {}", version.name(), sent.wire);
        if (got.messages, got.bytes) != (sent.messages, sent.bytes) {
            let (sent, got) = ((sent.messages, sent.bytes), (got.messages, got.bytes));
            problems.push(format!("{lead}: got {} messages, {} bytes, of {}, {}", got.0, got.1, sent.0, sent.1));
        }
        problems.extend(misread(reading, sent, got).into_iter().map(|path| format!("{lead}: misread {path}")));
    }
    problems
}

/// Members whose values differ, or that are missing.
fn misread(reading: &Reading, sent: &Figures, got: &Figures) -> Vec<String> {
    let same = |path: &String| match (sent.digest.get(path), got.digest.get(path)) {
        (Some(sent), Some(got)) => sent == got,
        // Without elements there is nothing to compare.
        (None, None) => path.contains("[]"),
        _ => false,
    };
    let lengths = sent.digest.keys().filter(|path| path.ends_with("[#]") && got.digest.contains_key(*path));
    reading.reads.iter().chain(lengths).filter(|path| !same(path)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(messages: u64, digest: &[(&str, u64)]) -> Figures {
        let digest = digest.iter().map(|(path, hash)| ((*path).to_owned(), *hash)).collect();
        Figures { wire: "cdr".into(), messages, bytes: messages * 10, digest, ..Figures::default() }
    }

    fn problems(got: Figures) -> Vec<String> {
        let reading = Reading { reads: vec!["a".into(), "b[].c".into()], ..Reading::default() };
        let sent = figures(3, &[("a", 1), ("b[#]", 2), ("b[].c", 3), ("d", 4)]);
        judge(Version::Older, &reading, &[sent], &[got])
    }

    #[test]
    fn what_is_missed_or_misread_is_named() {
        assert!(problems(figures(3, &[("a", 1), ("b[#]", 2), ("b[].c", 3), ("e", 9)])).is_empty());
        let one = problems(figures(2, &[("a", 1), ("b[#]", 2), ("b[].c", 3)]));
        assert_eq!(one, ["older by cdr: got 2 messages, 20 bytes, of 3, 30"]);
        let wrong = problems(figures(3, &[("a", 7), ("b[#]", 8)]));
        assert_eq!(wrong, ["a", "b[].c", "b[#]"].map(|path| format!("older by cdr: misread {path}")));
        let none = judge(Version::Older, &Reading::default(), &[figures(3, &[])], &[]);
        assert_eq!(none, ["older by cdr: got 0 messages, 0 bytes, of 3, 30"]);
    }
}
