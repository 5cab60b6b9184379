//! Formats results as text: tables for a terminal and in Markdown, and single figures with their
//! units.

use crate::{
    Case, CaseResult, Judgement, Measure, Results, Verdict,
    metrics::{Better, METRICS, Metric},
    scenario::AXES,
    statistics::{Interval, ranks},
};

/// The table for a terminal: one line per case, with the axes that differ and the available
/// figures.
///
/// Each figure is followed by its rank among all cases, `#1` for the best. Cases whose intervals
/// overlap share a rank, because it is unknown which is better.
pub fn terminal(results: &Results) -> String {
    let rows = rows(results);
    let count = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut text = format!("{}\n{}\n\n", results.scenario.name, measured_on(results));
    text.extend(rows.iter().map(line));
    text.extend(problems(results).map(|problem| format!("left out: {problem}\n")));
    text.push_str(&verdicts(results));
    text.extend(engines(results).map(|engine| format!("engine {engine}\n")));
    text
}

/// The settings of each engine, one line per engine.
pub fn engines(results: &Results) -> impl Iterator<Item = String> {
    results.engines.iter().map(|(name, settings)| format!("{name}: {settings}"))
}

/// The table as a Markdown page, with title, summary and the command that measured it.
pub fn page(results: &Results) -> String {
    let scenario = &results.scenario;
    let (measured, command, table) = (measured_on(results), &results.command, markdown(results));
    format!("# {}\n\n{}\n\n```\n{command}\n```\n\n{measured}.\n\n{table}", scenario.name, scenario.summary)
}

/// The table as Markdown.
pub fn markdown(results: &Results) -> String {
    let rows = rows(results);
    let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
    let mut text = String::new();
    for (i, row) in rows.iter().enumerate() {
        text.push_str(&line(row));
        if i == 0 {
            text.push_str(&format!("|{}\n", " --- |".repeat(row.len())));
        }
    }
    text.extend(problems(results).map(|problem| format!("\nLeft out: {problem}.\n")));
    text.extend(engines(results).map(|engine| format!("\nEngine {engine}.\n")));
    text
}

/// Where, when and how often the results were measured.
pub fn measured_on(results: &Results) -> String {
    let (host, effort) = (&results.host, &results.scenario.effort);
    let optimised = if host.optimised { "" } else { "; NOT OPTIMISED: times mean nothing" };
    format!(
        "polywire {}, seed {}, {} repeats; {}, {} cores, {}, load {:.1}{optimised}",
        results.version, results.scenario.seed, effort.repeats, host.processor, host.cores, host.system, host.load
    )
}

/// The axes on which cases differ; the type if there are none.
pub fn varying(results: &Results) -> Vec<&'static str> {
    let differs = |axis: &&&str| {
        let mut places = results.cases.iter().map(|result| result.case.at(axis));
        let first = places.next();
        places.any(|place| Some(place) != first)
    };
    let axes: Vec<&str> = AXES.iter().filter(differs).copied().collect();
    if axes.is_empty() { vec!["type"] } else { axes }
}

/// Labels a case by its values on these axes.
pub fn label(case: &Case, axes: &[&str]) -> String {
    axes.iter().filter_map(|axis| case.at(axis)).collect::<Vec<_>>().join(" ")
}

fn rows(results: &Results) -> Vec<Vec<String>> {
    let axes = varying(results);
    let there = |metric: &&Metric| results.cases.iter().any(|result| result.metrics.contains_key(metric.name));
    let metrics: Vec<&Metric> = METRICS.iter().filter(there).collect();
    let head = axes.iter().map(|axis| (*axis).to_owned()).chain(metrics.iter().map(|metric| metric.label.to_owned()));
    let columns: Vec<Vec<String>> = metrics.iter().map(|metric| column(results, metric)).collect();
    let row = |(i, result): (usize, &CaseResult)| {
        let places = axes.iter().map(|axis| result.case.at(axis).unwrap_or_default());
        places.chain(columns.iter().map(|column| column[i].clone())).collect()
    };
    std::iter::once(head.collect()).chain(results.cases.iter().enumerate().map(row)).collect()
}

/// The figures of a metric, with ranks if one direction is better and some figures differ.
fn column(results: &Results, metric: &Metric) -> Vec<String> {
    let measure = |result: &CaseResult| result.metrics.get(metric.name).cloned();
    let measures: Vec<Option<Measure>> = results.cases.iter().map(measure).collect();
    let toward = |interval: Interval| match metric.better {
        Better::Higher => Interval { low: -interval.high, high: -interval.low, value: -interval.value, ..interval },
        _ => interval,
    };
    let intervals: Vec<Interval> = measures.iter().flatten().map(|measure| toward(measure.interval())).collect();
    let mut places = ranks(&intervals).into_iter();
    let ranked =
        metric.better != Better::Neither && intervals.len() > 1 && intervals.iter().any(|i| !i.overlaps(&intervals[0]));
    let cell = |measure: &Option<Measure>| match measure {
        None => "-".to_owned(),
        Some(measure) => {
            let place = places.next().filter(|_| ranked).map_or(String::new(), |place| format!(" #{place}"));
            format!("{}{}{place}", figure(metric.name, measure.value), spread(measure))
        }
    };
    measures.iter().map(cell).collect()
}

/// The largest deviation of the figure in percent, if it is at least 0.5 %.
fn spread(measure: &Measure) -> String {
    let off = (measure.high - measure.value).max(measure.value - measure.low) * 100.0 / measure.value.abs();
    if off.is_finite() && off >= 0.5 { format!(" ±{off:.0}%") } else { String::new() }
}

/// A figure with its unit, in short form.
///
/// ```
/// use polywire_measure::table::figure;
///
/// assert_eq!(figure("latency_p50_ns", 12_345.0), "12.3 us");
/// assert_eq!(figure("throughput_hz", 1_234_567.0), "1.23 M");
/// assert_eq!(figure("ratio", 0.1234), "0.123");
/// ```
pub fn figure(metric: &str, value: f64) -> String {
    if metric.ends_with("_ns") {
        return match value {
            v if v < 1e3 => format!("{v:.0} ns"),
            v if v < 1e6 => format!("{} us", digits(v / 1e3)),
            v if v < 1e9 => format!("{} ms", digits(v / 1e6)),
            v => format!("{} s", digits(v / 1e9)),
        };
    }
    match value {
        v if v.abs() >= 1e9 => format!("{} G", digits(v / 1e9)),
        v if v.abs() >= 1e6 => format!("{} M", digits(v / 1e6)),
        v if v.abs() >= 1e5 => format!("{} k", digits(v / 1e3)),
        v => digits(v),
    }
}

/// Three significant digits, but all digits before the point.
fn digits(value: f64) -> String {
    let after = match value.abs() {
        v if v >= 100.0 || v == v.trunc() => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.after$}")
}

fn problems(results: &Results) -> impl Iterator<Item = String> {
    let axes = varying(results);
    results.cases.iter().filter_map(move |result| {
        result.problem.as_ref().map(|problem| format!("{}: {problem}", label(&result.case, &axes)))
    })
}

/// One line for all cases that meet a criterion, and one line for each case that does not.
fn verdicts(results: &Results) -> String {
    let mut text = if results.verdicts.is_empty() { String::new() } else { "\n".to_owned() };
    for group in results.verdicts.chunk_by(|a, b| (&a.metric, &a.limit) == (&b.metric, &b.limit)) {
        let mut met: Vec<&Verdict> = group.iter().filter(|verdict| verdict.state == Judgement::Met).collect();
        met.sort_by(|a, b| a.value.unwrap_or_default().total_cmp(&b.value.unwrap_or_default()));
        let cases = match &*met {
            [] => String::new(),
            [one] => format!("1 case: {}", one.text()),
            [least, .., most] if least.value == most.value => format!("{} cases: {}", met.len(), most.text()),
            [least, .., most] => format!("{} cases: {} to {}", met.len(), least.text(), most.text()),
        };
        if !met.is_empty() {
            text += &format!("met: {} {}, in {cases}\n", group[0].metric, group[0].limit);
        }
        text.extend(group.iter().filter(|verdict| verdict.state != Judgement::Met).map(verdict_line));
    }
    text
}

fn verdict_line(verdict: &Verdict) -> String {
    let (word, more) = match verdict.state {
        Judgement::Met => ("met", ""),
        Judgement::Undecided => ("undecided", " (more repeats may decide it)"),
        Judgement::Missed => ("MISSED", ""),
        Judgement::Missing => ("MISSING", " (it was not measured)"),
    };
    format!("{word}: {} {}: {}{more}; {}\n", verdict.metric, verdict.limit, verdict.text(), verdict.case)
}
