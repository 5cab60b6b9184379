//! What is printed, and how: colour on terminals alone, JSON for programs, errors on standard error.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// Where verbs print to.
pub struct Terminal {
    /// JSON is wanted.
    pub json: bool,
    /// Standard error takes colour.
    pub colour: bool,
    /// Standard output is a terminal.
    pub live: bool,
}

impl Terminal {
    pub fn new(json: bool) -> Terminal {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Terminal { json, colour: wanted && io::stderr().is_terminal(), live: wanted && io::stdout().is_terminal() }
    }

    /// A line on standard output.
    pub fn line(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()
    }

    /// Text as it is on standard output.
    pub fn text(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// One line of JSON on standard output.
    pub fn value(&self, value: &impl Serialize) -> anyhow::Result<()> {
        Ok(self.line(&serde_json::to_string(value)?)?)
    }

    pub fn error(&self, text: &str) {
        self.say("error", "1;31", text);
    }

    pub fn warning(&self, text: &str) {
        self.say("warning", "1;33", text);
    }

    fn say(&self, word: &str, tint: &str, text: &str) {
        // Nobody is left to tell if standard error is closed.
        let _ = match self.colour {
            true => writeln!(io::stderr(), "\u{1b}[{tint}m{word}:\u{1b}[0m {text}"),
            false => writeln!(io::stderr(), "{word}: {text}"),
        };
    }
}

/// Columns side by side, each as wide as its widest cell.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Shows the library's log on standard error, from this level of `--verbose` on.
pub fn log_from(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => log::LevelFilter::Info,
        _ => log::LevelFilter::Trace,
    };
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(level);
    }
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let _ = writeln!(io::stderr(), "[{}] {}", record.level().as_str().to_lowercase(), record.args());
    }

    fn flush(&self) {}
}
