//! Benchmark of probes, nodes and a collector from end to end. The program `telemetry` runs it.
//!
//! | word | measures |
//! |---|---|
//! | `thesis` | messages a second of the probe `CodecsTest` over a line of 8 Mbit/s |
//! | `peers` | bytes and processor time of the system's figures, beside other agents |
//! | `nodes` | a thousand nodes with ten probes at 10 Hz into SQLite and MCAP |
//!
//! It starts processes, and connects to them over TCP and UDP of this machine alone. For `peers` it
//! starts itself again in a network namespace of its own, whose loopback interface counts the
//! bytes.

mod child;
mod nodes;
mod peers;
mod thesis;

use std::{fmt::Write as _, fs, process::ExitCode, time::Duration};

use crate::report::Report;

/// A measurement: it adds its table to the report.
type Measure = fn(&Options, &mut String);

/// All measurements, in the order of their tables.
const MEASUREMENTS: &[(&str, Measure)] =
    &[("thesis", thesis::measure), ("peers", peers::measure), ("nodes", nodes::measure)];

/// What the command line says.
struct Options {
    /// How long each candidate is measured.
    span: Duration,
    words: Vec<String>,
}

/// Runs the measurements that the words name, or one of the processes at the other end. Prints the
/// tables as Markdown.
pub fn run(mut words: Vec<String>) -> ExitCode {
    if words.first().is_some_and(|word| word == child::WORD) {
        child::serve(&words[1..]);
        return ExitCode::SUCCESS;
    }
    let mut take = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        let value = words.get(at + 1).cloned()?;
        words.drain(at..=at + 1);
        Some(value)
    };
    let seconds = take("--seconds").and_then(|text| text.parse().ok()).unwrap_or(10.0);
    let file = take("--markdown");
    if let Some(wrong) = words.iter().find(|word| !MEASUREMENTS.iter().any(|(name, _)| name == *word)) {
        eprintln!("unknown word '{wrong}': [--seconds N] [--markdown FILE] [thesis] [peers] [nodes] is expected");
        return ExitCode::from(2);
    }
    let options = Options { span: Duration::from_secs_f64(seconds), words };
    let mut command = "cargo run --release -p polywire-bench --features telemetry --bin telemetry --".to_owned();
    let _ = write!(command, " --seconds {seconds}");
    options.words.iter().for_each(|word| _ = write!(command, " {word}"));
    let head = Report::new("Telemetry from end to end", command);
    let mut text = format!("# {}\n\nMeasured on {} by\n\n    {}\n", head.title, head.machine, head.command);
    for (name, measure) in MEASUREMENTS {
        if options.words.is_empty() || options.words.iter().any(|word| word == name) {
            measure(&options, &mut text);
        }
    }
    println!("{text}");
    match file.map(|file| fs::write(file, text)) {
        Some(Err(error)) => {
            eprintln!("the report cannot be written: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Adds a table of Markdown.
fn table(out: &mut String, rows: &[Vec<String>]) {
    for (number, row) in rows.iter().enumerate() {
        let _ = writeln!(out, "| {} |", row.join(" | "));
        if number == 0 {
            let _ = writeln!(out, "|{}", "---|".repeat(row.len()));
        }
    }
}
