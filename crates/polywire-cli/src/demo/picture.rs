//! Draws the summary of the demonstration as SVG, alone or in an HTML page.

use std::fmt::Write as _;

use super::{
    report::{Report, WireRow},
    types::READERS,
};
use crate::types::count;

const WIDTH: f64 = 760.0;
const ROW: f64 = 64.0;
const TOP: f64 = 64.0;
/// Start and greatest length of the bars: sizes on the left, latencies on the right.
const BYTES: (f64, f64) = (110.0, 210.0);
const LATENCY: (f64, f64) = (430.0, 200.0);

/// Returns the picture as an SVG file.
pub fn svg(report: &Report) -> String {
    let height = TOP + ROW * report.wires.len() as f64 + 24.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <title>One topic in {}, read by an older and a newer version of its type</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        count(report.wires.len(), "format")
    );
    text(&mut out, 16.0, 24.0, "font-weight=\"bold\" font-size=\"14\"", &headline(report));
    text(&mut out, BYTES.0, 48.0, "fill=\"#666\"", "bytes per message");
    text(&mut out, LATENCY.0, 48.0, "fill=\"#666\"", "latency: p50 dark, p99 light");
    let most = |value: fn(&WireRow) -> f64| report.wires.iter().map(value).fold(1e-9, f64::max);
    let scale = (most(|row| row.bytes_per_message), most(|row| row.older.latency_us_p99.max(row.newer.latency_us_p99)));
    for (i, row) in report.wires.iter().enumerate() {
        wire(&mut out, row, TOP + ROW * i as f64, scale);
    }
    out.push_str("</svg>\n");
    out
}

/// Returns the picture and its figures as an HTML page.
pub fn html(report: &Report) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Polywire demonstration</title>\n\
         <style>body{{font-family:system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}}\
         pre{{overflow-x:auto;background:#f4f4f4;padding:1rem}}svg{{max-width:100%;height:auto}}</style>\n\
         <h1>Polywire: one topic, {}, three versions of a type</h1>\n{}<pre>{}\n{}</pre>\n</html>\n",
        count(report.wires.len(), "format"),
        svg(report),
        escape(&super::report::table(&report.wires)),
        escape(&report.words())
    )
}

fn headline(report: &Report) -> String {
    let messages: u64 = report.wires.iter().map(|row| row.messages).sum();
    let end = if report.ok { "all read by both versions" } else { "not all of them read" };
    format!("{messages} messages of this machine's figures at {} Hz, {end}", report.rate_hz)
}

fn wire(out: &mut String, row: &WireRow, y: f64, (most_bytes, most_us): (f64, f64)) {
    text(out, 16.0, y + 26.0, "font-weight=\"bold\"", &row.wire);
    let length = BYTES.1 * row.bytes_per_message / most_bytes;
    bar(out, (BYTES.0, y + 8.0), (length, 28.0), "#3b6ea5");
    text(out, BYTES.0 + length + 6.0, y + 26.0, "", &format!("{:.1}", row.bytes_per_message));
    for (i, version) in READERS.into_iter().enumerate() {
        let (figures, y) = (row.reader(version), y + 4.0 + 20.0 * i as f64);
        let length = |us: f64| LATENCY.1 * us / most_us;
        bar(out, (LATENCY.0, y), (length(figures.latency_us_p99), 16.0), "#cfd8dc");
        bar(out, (LATENCY.0, y), (length(figures.latency_us_p50), 16.0), "#607d8b");
        text(out, LATENCY.0 - 46.0, y + 12.0, "fill=\"#666\"", version.name());
        let label = format!("{:.0} / {:.0} us", figures.latency_us_p50, figures.latency_us_p99);
        text(out, LATENCY.0 + length(figures.latency_us_p99) + 6.0, y + 12.0, "", &label);
    }
}

// Writing into a string cannot fail.

fn bar(out: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str) {
    let _ = writeln!(out, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{fill}\"/>");
}

fn text(out: &mut String, x: f64, y: f64, style: &str, text: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>", escape(text));
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
