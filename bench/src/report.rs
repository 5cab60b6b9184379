//! The results of a run, and their output as text for a terminal and as Markdown; JSON comes from
//! `Serialize`. Reads `/proc/cpuinfo` to name the processor, and no other file.

use std::fmt::Write;

use serde::Serialize;

use crate::measure::{Bar, Figure};

/// Name of the candidate of Polywire that decodes each message into a new value, as most peers do.
/// The other candidates of Polywire decode into one value and reuse it.
pub const NEW_VALUE: &str = "derived, new value";

/// Peers that create no value for each message, and so are not compared with [`NEW_VALUE`].
const REUSING: [&str; 3] = ["Fast CDR", "fastlib", "prost clear and merge"];

/// Explains the figures below the heading of a Markdown report.
const HOW_TO_READ: &str = "Times are medians. Ratios and differences are medians over pairs of turns that followed each other, so they may differ \
     from the quotient or the difference of the median times.";

/// The results of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The heading.
    pub title: &'static str,
    /// The command that repeats the run.
    pub command: String,
    /// Processor, operating system and number of cores.
    pub machine: String,
    /// The tables.
    pub groups: Vec<Group>,
}

/// One table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Group {
    /// The heading.
    pub title: &'static str,
    /// The kind of columns.
    #[serde(skip)]
    pub columns: Columns,
    /// Sentences above the table that explain its figures.
    pub note: String,
    /// A table between these sentences and the measured rows, heading first; may be empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lengths: Vec<Vec<String>>,
    /// The measured rows.
    pub rows: Vec<Row>,
    /// Candidates that were left out, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// The kind of columns of a table.
#[derive(Clone, Copy, Debug, Default)]
pub enum Columns {
    /// One column per candidate.
    #[default]
    Candidates,
    /// One column per candidate; each line begins with the message, the compressor, the bytes that
    /// it leaves, and these bytes in percent of [`Row::uncompressed_bytes`].
    Compressors,
    /// One line per format, with the columns of encoding and of decoding side by side: the first
    /// candidate's time, that time as a multiple of the second candidate's (hand-written code), and
    /// the time of the fastest other candidate as a multiple of the first candidate's. If there is
    /// a candidate [`NEW_VALUE`], its time and that last multiple follow.
    Ratios,
}

/// The figures of one operation on one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// The operation, such as `encode`, or the compressor in [`Columns::Compressors`].
    pub operation: String,
    /// Mean length of an encoded message in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
    /// Mean length before compression, in [`Columns::Compressors`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncompressed_bytes: Option<f64>,
    /// One figure per candidate. The others are compared with the first.
    pub figures: Vec<Figure>,
}

impl Report {
    /// An empty report of the run that `command` repeats.
    pub fn new(title: &'static str, command: String) -> Report {
        Report { title, command, machine: machine(), groups: Vec::new() }
    }

    /// Number of figures that miss their bars.
    pub fn missed(&self) -> usize {
        let rows = self.groups.iter().flat_map(|group| &group.rows);
        rows.flat_map(|row| &row.figures).filter(|figure| !figure.holds()).count()
    }

    /// The report as text for a terminal. `!` marks figures that miss their bars.
    pub fn terminal(&self) -> String {
        let mut out = String::new();
        for group in &self.groups {
            let _ = writeln!(out, "\n{}: {}", group.title, group.note);
            let tables = group.tables(|figure| if figure.holds() { "" } else { " !" });
            let tables: Vec<String> = tables.iter().map(|cells| aligned(cells)).collect();
            out.push_str(&tables.join("\n"));
            group.left_out.iter().for_each(|text| _ = writeln!(out, "left out: {text}"));
        }
        out
    }

    /// The report as Markdown, for the documentation.
    pub fn markdown(&self) -> String {
        let Report { title, machine, command, .. } = self;
        let mut out = format!("# {title}\n\nMeasured on {machine} by\n\n    {command}\n\n{HOW_TO_READ}\n");
        let mut note = "";
        for group in &self.groups {
            let _ = writeln!(out, "\n## {}\n", group.title);
            if group.note != note {
                let _ = writeln!(out, "{}\n", group.note);
            }
            note = &group.note;
            let tables: Vec<String> = group.tables(mark_missed).iter().map(|cells| markdown(cells)).collect();
            out.push_str(&tables.join("\n"));
            group.left_out.iter().for_each(|text| _ = writeln!(out, "\nLeft out: {text}."));
        }
        out
    }

    /// `text` with the first table between its marks `<!-- table -->` and `<!-- end of table -->`,
    /// or `None` if it lacks the marks.
    pub fn put_between_marks(&self, text: &str) -> Option<String> {
        const MARKS: [&str; 2] = ["<!-- table -->\n", "<!-- end of table -->"];
        let (before, rest) = text.split_once(MARKS[0])?;
        let (_, behind) = rest.split_once(MARKS[1])?;
        let table = self.groups.first().map_or_else(String::new, |group| markdown(&group.cells(mark_missed)));
        Some([before, MARKS[0], &table, MARKS[1], behind].concat())
    }
}

/// The mean length of the messages in bytes; always `Some`. NaN if there are no messages.
pub fn mean_length(messages: &[Vec<u8>]) -> Option<f64> {
    Some(messages.iter().map(Vec::len).sum::<usize>() as f64 / messages.len() as f64)
}

impl Group {
    /// The table of `lengths` and that of the figures, as far as there are any.
    fn tables(&self, mark: impl Fn(&Figure) -> &'static str) -> Vec<Vec<Vec<String>>> {
        let figures = (!self.rows.is_empty()).then(|| self.cells(mark));
        [self.lengths.clone()].into_iter().filter(|table| !table.is_empty()).chain(figures).collect()
    }

    /// The heading and the lines of the table. `mark` gives the text that follows a figure.
    fn cells(&self, mark: impl Fn(&Figure) -> &'static str) -> Vec<Vec<String>> {
        match self.columns {
            Columns::Candidates | Columns::Compressors => self.candidates(mark),
            Columns::Ratios => self.ratios(),
        }
    }

    fn ratios(&self) -> Vec<Vec<String>> {
        let mut heading = vec!["format".to_string(), "bytes".into()];
        for row in self.rows.iter().take(2) {
            heading.extend([row.operation.as_str(), "times hand-written", "best peer takes"].map(String::from));
            if row.figure(NEW_VALUE).is_some() {
                heading.extend(["to a new value", "best peer takes"].map(String::from));
            }
        }
        let line = |rows: &[Row]| {
            let name = rows.iter().find_map(|row| row.figures.first()).map_or("", |figure| figure.name);
            let bytes = rows.iter().find_map(|row| row.bytes).map_or_else(String::new, |bytes| format!("{bytes:.0}"));
            let ratios = rows.iter().flat_map(Row::ratios);
            [name.to_string(), bytes].into_iter().chain(ratios).collect()
        };
        std::iter::once(heading).chain(self.rows.chunks(2).map(line)).collect()
    }

    fn candidates(&self, mark: impl Fn(&Figure) -> &'static str) -> Vec<Vec<String>> {
        let mut names: Vec<&'static str> = Vec::new();
        for figure in self.rows.iter().flat_map(|row| &row.figures) {
            if !names.contains(&figure.name) {
                names.push(figure.name);
            }
        }
        let compressors = matches!(self.columns, Columns::Compressors);
        let labels: &[&str] =
            if compressors { &["message", "compressor", "bytes", "%"] } else { &["message", "operation"] };
        let mut heading: Vec<String> = labels.iter().chain(&names).map(|label| label.to_string()).collect();
        heading.push("limit".into());
        let line = |row: &Row| {
            let mut line = if compressors { row.of_compressor() } else { row.of_operation() };
            line.extend(names.iter().map(|name| row.cell(name, &mark)));
            line.push(row.figures.iter().find_map(|figure| figure.bar).map_or_else(String::new, text_of_bar));
            line
        };
        let mut cells: Vec<Vec<String>> = std::iter::once(heading).chain(self.rows.iter().map(line)).collect();
        if cells.iter().skip(1).all(|line| line.last().is_some_and(String::is_empty)) {
            cells.iter_mut().for_each(|line| drop(line.pop()));
        }
        cells
    }
}

impl Row {
    /// A row whose bytes, if any, are those of an encoded message.
    pub fn new(
        workload: impl Into<String>,
        operation: impl Into<String>,
        bytes: Option<f64>,
        figures: Vec<Figure>,
    ) -> Row {
        Row { workload: workload.into(), operation: operation.into(), bytes, uncompressed_bytes: None, figures }
    }

    fn of_operation(&self) -> Vec<String> {
        vec![self.message(self.bytes), self.operation.clone()]
    }

    fn of_compressor(&self) -> Vec<String> {
        let (after, before) = (self.bytes.unwrap_or(f64::NAN), self.uncompressed_bytes.unwrap_or(f64::NAN));
        let percent = 100.0 * after / before;
        let message = self.message(self.uncompressed_bytes);
        vec![message, self.operation.clone(), format!("{after:.0}"), format!("{percent:.1}")]
    }

    /// The workload, with the mean length of its messages.
    fn message(&self, bytes: Option<f64>) -> String {
        let bytes = bytes.map_or_else(String::new, |bytes| format!(" ({bytes:.0} B)"));
        format!("{}{bytes}", self.workload)
    }

    /// The cells of [`Columns::Ratios`] for this operation. The first figure is Polywire's, the
    /// second that of hand-written code, the others those of peers, except [`NEW_VALUE`].
    fn ratios(&self) -> Vec<String> {
        let none = || String::from("-");
        let takes = |ours: f64, counts: &dyn Fn(&str) -> bool| {
            let peers = self.figures.iter().skip(2).filter(|figure| figure.name != NEW_VALUE && counts(figure.name));
            let best = peers.min_by(|a, b| a.ratio.total_cmp(&b.ratio));
            best.map_or_else(none, |peer| format!("{:.2}x ({})", peer.ratio / ours, peer.name))
        };
        let ours = self.figures.first().map_or_else(none, |figure| time(figure.ns));
        let hand = self.figures.get(1).map_or_else(none, |figure| format!("{:.2}x", 1.0 / figure.ratio));
        let makes_values = |peer: &str| !REUSING.contains(&peer);
        let new_value = self.figure(NEW_VALUE).map(|figure| [time(figure.ns), takes(figure.ratio, &makes_values)]);
        [ours, hand, takes(1.0, &|_| true)].into_iter().chain(new_value.into_iter().flatten()).collect()
    }

    fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    fn cell(&self, name: &str, mark: impl Fn(&Figure) -> &'static str) -> String {
        let Some(at) = self.figures.iter().position(|figure| figure.name == name) else { return "-".into() };
        let figure = &self.figures[at];
        match (at, figure.bar) {
            (0, _) => time(figure.ns),
            _ if figure.ratio.is_nan() => time(figure.ns),
            (_, Some(Bar::PlusNs(_))) => format!("{:+.1} ns, {}{}", figure.more_ns, time(figure.ns), mark(figure)),
            _ => format!("{:.2}x, {}{}", figure.ratio, time(figure.ns), mark(figure)),
        }
    }
}

fn text_of_bar(bar: Bar) -> String {
    match bar {
        Bar::AtMost(most) => format!("<= {most}x"),
        Bar::AtLeast(least) => format!(">= {least}x"),
        Bar::PlusNs(most) => format!("<= +{most} ns"),
    }
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 100.0 => format!("{ns:.1} ns"),
        ns if ns < 10_000.0 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}

/// A table as text in columns.
fn aligned(cells: &[Vec<String>]) -> String {
    let widths = widths(cells);
    let mut out = String::new();
    for line in cells {
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(out, "{cell:width$}  ");
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// The mark of figures that miss their bars, in documents.
fn mark_missed(figure: &Figure) -> &'static str {
    if figure.holds() { "" } else { " (missed)" }
}

fn widths(cells: &[Vec<String>]) -> Vec<usize> {
    let columns = cells.first().map_or(0, Vec::len);
    (0..columns).map(|at| cells.iter().map(|line| line[at].chars().count()).max().unwrap_or(0)).collect()
}

/// A table as Markdown. The first line is the heading.
fn markdown(cells: &[Vec<String>]) -> String {
    let mut out = String::new();
    for (at, line) in cells.iter().enumerate() {
        let _ = writeln!(out, "| {} |", line.join(" | "));
        if at == 0 {
            let _ = writeln!(out, "|{}", " --- |".repeat(line.len()));
        }
    }
    out
}

fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{} ({}, {cores} cores)", model.unwrap_or(std::env::consts::ARCH), std::env::consts::OS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(operation: &str, figures: &[(&'static str, f64)]) -> Row {
        let first = figures[0].1;
        let figure = |(name, ns): &(&'static str, f64)| Figure {
            name,
            ns: *ns,
            ratio: ns / first,
            more_ns: ns - first,
            bar: None,
        };
        Row::new("T", operation, Some(8.0), figures.iter().map(figure).collect())
    }

    #[test]
    fn a_peer_that_makes_new_values_is_compared_with_ours_that_does_too() {
        let peers = [("slow", 90.0), ("quick", 60.0), (REUSING[0], 50.0)];
        let decode = [&[("xml", 10.0), ("hand", 5.0), (NEW_VALUE, 20.0)][..], &peers].concat();
        let rows = vec![row("encode", &[("xml", 4.0), ("hand", 4.0)]), row("decode", &decode)];
        let cells = Group { columns: Columns::Ratios, rows, ..Group::default() }.ratios();
        let new_value = ["to a new value", "best peer takes"];
        assert_eq!(cells[0][5..], [&["decode", "times hand-written", "best peer takes"][..], &new_value].concat());
        let expected =
            ["xml", "8", "4.0 ns", "1.00x", "-", "10.0 ns", "2.00x", "5.00x (Fast CDR)", "20.0 ns", "3.00x (quick)"];
        assert_eq!(cells[1], expected);
    }
}
