//! Writes results as an HTML page: one file that loads nothing from elsewhere and is readable in
//! print.

pub mod svg;

use std::fmt::Write as _;

use crate::{
    CaseResult, Judgement, Results,
    metrics::{self, METRICS},
    scenario::Mode,
    table::{engines, figure, label, measured_on, varying},
};
use svg::{Bars, Lines, Scale, Series};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:70rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.7rem;margin:0}h2{font-size:1.2rem;margin:2.2rem 0 .4rem}p.note{color:#555;margin:.2rem 0}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.85rem}\
th,td{padding:.25rem .6rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}th:first-child,td:first-child{text-align:left}\
.wide{overflow-x:auto}.bad{color:#a00}svg{max-width:100%;height:auto}details{margin:1rem 0}pre{white-space:pre-wrap;font-size:.8rem}\
@media print{body{max-width:none;margin:0}h2{break-after:avoid}figure,svg,tr{break-inside:avoid}.wide{overflow:visible}table{font-size:.7rem}}";

/// Maximum number of cases in a plot.
const MAX_PLOT_CASES: usize = 40;

/// Maximum number of cases whose distributions one plot can show.
const MAX_CURVES: usize = 8;

/// The results as an HTML page.
///
/// ```
/// use polywire_measure::{Scenario, report, run};
///
/// let text = "name = 'A & B'\neffort = { repeats = 2, messages = 3, turn_ms = 0.01 }\n[[type]]\ntext = 'struct A { long x; };'";
/// let page = report::html(&run(&Scenario::from_toml(text)?, &mut |_| ())?);
/// assert!(page.contains("<h1>A &amp; B</h1>") && page.contains("<svg "));
/// assert!(!page.contains("http://") || page.matches("http://").count() == page.matches("http://www.w3.org/2000/svg").count());
/// # Ok::<(), polywire_measure::Error>(())
/// ```
pub fn html(results: &Results) -> String {
    let name = escape(&results.scenario.name);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{name}</title><style>{STYLE}</style></head><body>\n<h1>{name}</h1>\n<p>{}</p>\n<p class=\"note\">{}</p>\n",
        escape(&results.scenario.summary),
        escape(&measured_on(results))
    );
    if !results.command.is_empty() {
        let _ = writeln!(page, "<p class=\"note\">Measured by <code>{}</code></p>", escape(&results.command));
    }
    verdicts(&mut page, results);
    for (title, note, plot) in plots(results) {
        let _ = writeln!(
            page,
            "<h2>{title}</h2>\n<p class=\"note\">{note}</p>\n<figure style=\"margin:0\">{plot}</figure>"
        );
    }
    table(&mut page, results);
    for engine in engines(results) {
        let _ = writeln!(page, "<p class=\"note\">Engine {}.</p>", escape(&engine));
    }
    let scenario = serde_json::to_string_pretty(&results.scenario).unwrap_or_default();
    let _ = writeln!(page, "<details><summary>The scenario</summary><pre>{}</pre></details>", escape(&scenario));
    page + "</body></html>\n"
}

/// All plots for which there are figures: title, note and picture.
pub fn plots(results: &Results) -> Vec<(&'static str, String, String)> {
    let mut plots = Vec::new();
    let mut add =
        |title, note: &str, plot: Option<String>| plots.extend(plot.map(|plot| (title, note.to_owned(), plot)));
    let part = if results.cases.len() > MAX_PLOT_CASES {
        format!(" The first {MAX_PLOT_CASES} cases.")
    } else {
        String::new()
    };
    add("Bytes of a message", &format!("On the wire, on average.{part}"), bars(results, &["bytes"]));
    let stages = ["serialise_ns", "compress_ns", "decompress_ns", "deserialise_ns"];
    if results.scenario.mode == Mode::Stages {
        add(
            "CPU time by stage",
            &format!("For one message, at both ends; medians of the repeats.{part}"),
            bars(results, &stages),
        );
    }
    add(
        "Latency",
        &format!(
            "Percentage of messages with at most this latency. The time axis is logarithmic. At most {MAX_CURVES} cases."
        ),
        distributions(results),
    );
    add(
        "Throughput",
        &format!("Messages per second that every subscriber received.{part}"),
        bars(results, &["throughput_hz"]),
    );
    let fields = "Each line has the cases that differ only in the type. Both axes are logarithmic.";
    let rate = if results.scenario.mode == Mode::Throughput { "throughput_hz" } else { "bottleneck_hz" };
    add("Throughput against field count", fields, against_fields(results, rate));
    add("Bytes against field count", fields, against_fields(results, "bytes"));
    let loss =
        "The horizontal axis is the loss of the network. Each line has the cases that differ only in the network.";
    add("Latency against loss", loss, against_loss(results, "latency_p90_ns"));
    add("Messages lost against loss of packets", loss, against_loss(results, "lost_percent"));
    plots
}

fn bars(results: &Results, names: &[&str]) -> Option<String> {
    let axes = varying(results);
    let there = |result: &&CaseResult| names.iter().any(|name| result.metrics.contains_key(*name));
    let cases: Vec<&CaseResult> = results.cases.iter().filter(there).take(MAX_PLOT_CASES).collect();
    if cases.is_empty() {
        return None;
    }
    let part = |name: &&str| {
        let value = |result: &&CaseResult| result.metrics.get(*name).map_or(0.0, |measure| measure.value);
        (metrics::find(name).map_or(*name, |metric| metric.label).to_owned(), cases.iter().map(value).collect())
    };
    let interval = |result: &&CaseResult| match names {
        [name] => result.metrics.get(*name).map(|measure| (measure.low, measure.high)),
        _ => None,
    };
    let unit = names.first().copied().unwrap_or_default().to_owned();
    let bars = Bars {
        labels: cases.iter().map(|result| label(&result.case, &axes)).collect(),
        parts: names.iter().map(part).collect(),
        intervals: cases.iter().map(interval).collect(),
        text: Box::new(move |value| figure(&unit, value)),
    };
    Some(bars.draw())
}

fn distributions(results: &Results) -> Option<String> {
    let axes = varying(results);
    let cases = results.cases.iter().filter(|result| !result.latency.is_empty()).take(MAX_CURVES);
    let series = cases.map(|result| Series {
        label: label(&result.case, &axes),
        points: result.latency.iter().map(|(percentile, ns)| ((*ns).max(1) as f64, *percentile)).collect(),
    });
    let text = |ns: f64| figure("latency_ns", ns);
    lines(series.collect(), (Scale::Logarithmic, Scale::Linear), text, |percent| format!("{percent:.0} %"))
}

/// One line for each group of cases that differ only in the number of fields.
fn against_fields(results: &Results, metric: &str) -> Option<String> {
    let x = |result: &CaseResult| (result.case.fields > 0).then_some(result.case.fields as f64);
    let series = grouped(results, metric, &["type"], x);
    let own = metric.to_owned();
    let scales = (Scale::Logarithmic, Scale::Logarithmic);
    lines(series, scales, |fields| format!("{fields:.0}"), move |value| figure(&own, value))
}

fn against_loss(results: &Results, metric: &str) -> Option<String> {
    let series = grouped(results, metric, &["network"], |result| loss(&result.case.network));
    let own = metric.to_owned();
    let scales = (Scale::Linear, Scale::Linear);
    lines(series, scales, |percent| format!("{percent:.1} %"), move |value| figure(&own, value))
}

/// Percentage of packets that a network model loses.
fn loss(network: &str) -> Option<f64> {
    use polywire_core::netsim::{Loss, Model};
    let model: Model = if network == "none" { Model::default() } else { network.parse().ok()? };
    Some(match model.loss {
        Loss::None => 0.0,
        Loss::Bernoulli(rate) => rate * 100.0,
        Loss::Gilbert { plr, .. } => plr * 100.0,
        Loss::GilbertElliott { enter, leave, good, bad } => {
            100.0 * (enter * bad + leave * good) / (enter + leave).max(f64::MIN_POSITIVE)
        }
        Loss::Burst { every, length } => 100.0 * length as f64 / every.max(1) as f64,
        _ => return None,
    })
}

/// One line for each group of cases that differ on the axes `along` only, if it has two different
/// points.
fn grouped(results: &Results, metric: &str, along: &[&str], x: impl Fn(&CaseResult) -> Option<f64>) -> Vec<Series> {
    let axes: Vec<&str> = varying(results).into_iter().filter(|axis| !along.contains(axis)).collect();
    let mut series: Vec<Series> = Vec::new();
    for result in &results.cases {
        let (Some(x), Some(measure)) = (x(result), result.metrics.get(metric)) else { continue };
        let label = if axes.is_empty() { metric.to_owned() } else { label(&result.case, &axes) };
        match series.iter_mut().find(|series| series.label == label) {
            Some(series) => series.points.push((x, measure.value)),
            None => series.push(Series { label, points: vec![(x, measure.value)] }),
        }
    }
    series.retain(|series| series.points.windows(2).any(|pair| pair[0].0 != pair[1].0));
    series.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    series
}

fn lines(
    series: Vec<Series>,
    scales: (Scale, Scale),
    x: impl Fn(f64) -> String + 'static,
    y: impl Fn(f64) -> String + 'static,
) -> Option<String> {
    let many = series.iter().any(|series| series.points.len() > 1);
    many.then(|| Lines { series, x: scales.0, y: scales.1, x_text: Box::new(x), y_text: Box::new(y) }.draw())
}

fn verdicts(page: &mut String, results: &Results) {
    if results.verdicts.is_empty() {
        return;
    }
    page.push_str("<h2>Criteria</h2>\n<ul>\n");
    for verdict in &results.verdicts {
        let (class, word) = match verdict.state {
            Judgement::Met => ("", "met"),
            Judgement::Undecided => ("", "undecided"),
            Judgement::Missed => (" class=\"bad\"", "missed"),
            Judgement::Missing => (" class=\"bad\"", "no such figure"),
        };
        let value = verdict.text();
        let (metric, case) = (escape(&verdict.metric), escape(&verdict.case));
        let _ = writeln!(page, "<li{class}>{word}: {metric} {}: {value} <small>{case}</small></li>", verdict.limit);
    }
    page.push_str("</ul>\n");
}

fn table(page: &mut String, results: &Results) {
    let axes = varying(results);
    let there = |metric: &&metrics::Metric| results.cases.iter().any(|result| result.metrics.contains_key(metric.name));
    let metrics: Vec<&metrics::Metric> = METRICS.iter().filter(there).collect();
    page.push_str("<h2>All figures</h2>\n<p class=\"note\">Medians of the repeats, with their confidence intervals in brackets.</p>\n<div class=\"wide\"><table><tr><th>case</th>");
    for metric in &metrics {
        let _ = write!(page, "<th title=\"{}\">{}</th>", escape(metric.help), metric.label);
    }
    page.push_str("</tr>\n");
    for result in &results.cases {
        let _ = write!(page, "<tr><td>{}</td>", escape(&label(&result.case, &axes)));
        if let Some(problem) = &result.problem {
            let _ = writeln!(
                page,
                "<td colspan=\"{}\" style=\"text-align:left\">{}</td></tr>",
                metrics.len(),
                escape(problem)
            );
            continue;
        }
        for metric in &metrics {
            let cell = result.metrics.get(metric.name).map_or("-".to_owned(), |measure| {
                let own = figure(metric.name, measure.value);
                match measure.low == measure.high {
                    true => own,
                    false => format!(
                        "{own} <small>[{}, {}]</small>",
                        figure(metric.name, measure.low),
                        figure(metric.name, measure.high)
                    ),
                }
            });
            let _ = write!(page, "<td>{cell}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
