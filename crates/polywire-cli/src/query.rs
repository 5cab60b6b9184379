//! The command `polywire query`: reads archives that `polywire collect` has written.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::{
    outcome,
    seconds::Seconds,
    terminal::Terminal,
    verb::{Action, Verb},
};

pub const VERB: Verb = Verb::new::<Query>("query", "Reads an archive that the collector has made")
    .details(
        "Runs a SELECT over an archive of the handlers sqlite, parquet or mcap: each type has a table, named after it, \
         with a column for each member and _topic, _writer, _incarnation, _sequence, _timestamp_ns and _kind. With --topic and \
         --member it prints a member over time, which can also be plotted. --check reads everything, and ends with \
         exit code 2 if anything is damaged. An archive is never changed, and can be read while it is written.",
    )
    .example("polywire query plant.db 'SELECT _topic, id, pressure FROM \"plant::Pump\"'");

#[derive(Args)]
pub struct Query {
    /// The archive: a database, a folder of Parquet files, or an MCAP file
    file: PathBuf,
    /// One SELECT statement
    #[arg(conflicts_with_all = ["topic", "check"])]
    sql: Option<String>,
    /// Topic whose messages to read instead
    #[arg(short, long, requires = "member")]
    topic: Option<String>,
    /// Path of the member to print over time, such as total.busy_percent
    #[arg(short, long, value_name = "PATH", requires = "topic")]
    member: Option<String>,
    /// Only messages from this time on, such as 2026-11-22T23:38:33Z
    #[arg(long, value_name = "TIME", requires = "topic")]
    from: Option<String>,
    /// Only messages up to this time
    #[arg(long, value_name = "TIME", requires = "topic")]
    until: Option<String>,
    /// Only messages of so many seconds before the newest one
    #[arg(long, value_name = "SECONDS", requires = "topic", conflicts_with = "from")]
    last: Option<Seconds>,
    /// Output format: a table, one JSON object a line, CSV, or a plot of --member
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Checks that the whole archive is as it was written
    #[arg(long, conflicts_with = "topic")]
    check: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
    Svg,
}

#[cfg(not(feature = "sqlite"))]
impl Action for Query {
    fn run(self, _: &Terminal) -> outcome::Result {
        anyhow::bail!("this build reads no archives: it needs the feature 'sqlite'")
    }
}

#[cfg(feature = "sqlite")]
mod with_sqlite {
    use std::io::{self, Write as _};

    use polywire_collector::{Archive, ArchiveError, ArchiveValue as Value, Series};
    use polywire_measure::report::svg::{Lines, Scale, Series as Curve};
    use serde_json::json;

    use super::{Action, Format, Query, Terminal, outcome};
    use crate::{
        outcome::{Misuse, Outcome},
        text::utc,
    };

    /// The number of points of a plot: four for each pixel of its width.
    const PLOTTED: usize = 4000;

    /// The number of rows that decide the column widths of a table.
    const AHEAD: usize = 1000;

    impl Action for Query {
        fn run(mut self, terminal: &Terminal) -> outcome::Result {
            if self.sql.is_none() && self.topic.is_none() && !self.check {
                let text = "what to read? give a SELECT statement, or --topic and --member, or --check";
                return Err(Misuse(text.into()).into());
            }
            if terminal.json {
                self.format = Format::Json;
            }
            let archive = Archive::open(&self.file)?;
            match (&self.sql, &self.topic) {
                _ if self.check => check(&archive, terminal),
                (Some(sql), _) => self.rows(&archive, sql, terminal),
                (None, Some(topic)) => self.series(&archive, topic, terminal),
                (None, None) => Err(Misuse("a SELECT statement, --topic or --check is expected".into()).into()),
            }
        }
    }

    impl Query {
        fn rows(&self, archive: &Archive, sql: &str, terminal: &Terminal) -> outcome::Result {
            if self.format == Format::Svg {
                return Err(Misuse("only a --member can be plotted".into()).into());
            }
            let mut printer =
                Printer { format: self.format, terminal, names: Vec::new(), held: Vec::new(), widths: Vec::new() };
            let mut printed = Ok(());
            archive.query(sql, |names, row| {
                printed = printer.row(names, row);
                printed.is_ok()
            })?;
            printed?;
            printer.end()?;
            Ok(Outcome::Fine)
        }

        fn series(&self, archive: &Archive, topic: &str, terminal: &Terminal) -> outcome::Result {
            let member = self.member.as_deref().unwrap_or_default();
            let time = |text: &Option<String>| text.as_deref().map(|text| archive.time(text)).transpose();
            let misuse = |error: ArchiveError| Misuse(error.to_string());
            let mut from = time(&self.from).map_err(misuse)?.unwrap_or(i64::MIN);
            let until = time(&self.until).map_err(misuse)?.unwrap_or(i64::MAX);
            if let Some(last) = self.last {
                let newest = archive.newest(topic, member)?.unwrap_or(i64::MAX).min(until);
                from = newest.saturating_sub(i64::try_from(last.0.as_nanos()).unwrap_or(i64::MAX));
            }
            let without = match self.format {
                Format::Svg => {
                    let series = archive.series(topic, member, from..=until, PLOTTED)?;
                    terminal.plain(&plot(&format!("{topic} {member}"), &series))?;
                    series.without
                }
                format => {
                    let (mut printed, mut is_first) = (Ok(()), true);
                    let without = archive.points(topic, member, from..=until, |time, value| {
                        printed = print(terminal, format, std::mem::take(&mut is_first), time, value);
                        printed.is_ok()
                    })?;
                    printed?;
                    without
                }
            };
            if without > 0 {
                terminal.warning(&format!("in {without} messages '{member}' is no number"));
            }
            Ok(Outcome::Fine)
        }
    }

    /// Prints a point of a member over time.
    fn print(terminal: &Terminal, format: Format, is_first: bool, time: i64, value: f64) -> anyhow::Result<()> {
        match format {
            Format::Json => terminal.value(&point(time, value)),
            Format::Csv => {
                if is_first {
                    terminal.line("timestamp_ns,value")?;
                }
                Ok(terminal.line(&format!("{time},{value}"))?)
            }
            _ => Ok(terminal.line(&format!("{}  {value}", utc(time)))?),
        }
    }

    fn point(time: i64, value: f64) -> serde_json::Value {
        json!({ "timestamp_ns": time, "value": json_of(&Value::Real(value)) })
    }

    fn check(archive: &Archive, terminal: &Terminal) -> outcome::Result {
        let check = archive.check()?;
        match terminal.json {
            true => terminal.value(&json!({ "rows": check.rows, "damage": check.damage }))?,
            false => {
                check.damage.iter().for_each(|damage| terminal.error(damage));
                terminal.line(&format!("{} rows, {} places of damage", check.rows, check.damage.len()))?;
            }
        }
        Ok(if check.damage.is_empty() { Outcome::Fine } else { Outcome::Failed })
    }

    /// Draws a member over time; the horizontal axis shows the seconds since the first message.
    fn plot(label: &str, series: &Series) -> String {
        let first = series.points.first().map_or(0, |(time, _)| *time);
        let seconds = |time: i64| time.saturating_sub(first) as f64 / 1e9;
        let points =
            series.points.iter().map(|(time, value)| (seconds(*time), *value)).filter(|(_, value)| value.is_finite());
        let curve = Curve { label: format!("{label}, from {}", utc(first)), points: points.collect() };
        let lines = Lines {
            series: vec![curve],
            x: Scale::Linear,
            y: Scale::Linear,
            x_text: Box::new(|seconds| format!("{seconds} s")),
            y_text: Box::new(|value| format!("{value}")),
        };
        lines.draw()
    }

    /// Prints rows as they arrive. A table buffers the first rows.
    struct Printer<'a> {
        format: Format,
        terminal: &'a Terminal,
        names: Vec<String>,
        held: Vec<Vec<String>>,
        widths: Vec<usize>,
    }

    impl Printer<'_> {
        fn row(&mut self, names: &[String], row: &[Value]) -> anyhow::Result<()> {
            if self.names.is_empty() {
                self.names = names.to_vec();
                if self.format == Format::Csv {
                    self.line(&names.iter().map(|name| csv_text(name)).collect::<Vec<_>>().join(","))?;
                }
            }
            match self.format {
                Format::Json => {
                    let members = names.iter().zip(row).map(|(name, value)| (name.clone(), json_of(value)));
                    self.terminal.value(&members.collect::<serde_json::Map<_, _>>())
                }
                Format::Csv => self.line(&row.iter().map(csv_of).collect::<Vec<_>>().join(",")),
                _ => {
                    self.held.push(row.iter().map(table_of).collect());
                    if self.held.len() >= AHEAD { self.flush() } else { Ok(()) }
                }
            }
        }

        fn end(&mut self) -> anyhow::Result<()> {
            // If there is no row, the names of the columns are not known.
            if self.format == Format::Table && !self.names.is_empty() { self.flush() } else { Ok(()) }
        }

        /// Prints the buffered rows. The first rows decide the column widths.
        fn flush(&mut self) -> anyhow::Result<()> {
            let mut lines = std::mem::take(&mut self.held);
            if self.widths.is_empty() {
                lines.insert(0, self.names.clone());
                let width =
                    |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max();
                self.widths = (0..self.names.len()).map(|at| width(at).unwrap_or_default()).collect();
            }
            for line in lines {
                let cells = line.iter().zip(&self.widths).map(|(cell, width)| format!("{cell:width$}"));
                self.line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
            }
            Ok(())
        }

        fn line(&self, text: &str) -> anyhow::Result<()> {
            match self.format {
                // Escaping would change the data.
                Format::Csv => Ok(writeln!(io::stdout(), "{text}")?),
                _ => Ok(self.terminal.line(text)?),
            }
        }
    }

    fn hexadecimal(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn table_of(value: &Value) -> String {
        match value {
            Value::Null => "-".to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::Blob(bytes) => hexadecimal(bytes),
        }
    }

    /// Returns a value as CSV: an absent value is an empty field, and an empty text is `""`.
    fn csv_of(value: &Value) -> String {
        match value {
            Value::Null => String::new(),
            Value::Text(text) => csv_text(text),
            other => table_of(other),
        }
    }

    fn csv_text(text: &str) -> String {
        match text.is_empty() || text.contains(['"', ',', '\r', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        }
    }

    /// Returns a value as JSON. Infinities and NaN are texts, as in `spec/json.md`.
    fn json_of(value: &Value) -> serde_json::Value {
        match value {
            Value::Null => serde_json::Value::Null,
            Value::Integer(number) => json!(number),
            Value::Real(number) if number.is_finite() => json!(number),
            Value::Real(number) if number.is_nan() => json!("NaN"),
            Value::Real(number) => json!(if *number > 0.0 { "Infinity" } else { "-Infinity" }),
            Value::Text(text) => json!(text),
            Value::Blob(bytes) => json!(hexadecimal(bytes)),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_point_may_be_infinite() {
            assert_eq!(point(7, 0.5), json!({ "timestamp_ns": 7, "value": 0.5 }));
            assert_eq!(point(7, f64::INFINITY), json!({ "timestamp_ns": 7, "value": "Infinity" }));
            assert_eq!(point(7, f64::NAN), json!({ "timestamp_ns": 7, "value": "NaN" }));
        }
    }
}
