//! Writes values as text: as JSON, or in an indented, human-readable form.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write as _, sync::Arc};

use anyhow::Context as _;
use polywire::{
    codec::{Encoder, Options, json::JSON},
    extend::layout::{PathError, Record, Shape, ValueRef},
};
use serde_json::value::RawValue;

use crate::outcome::Misuse;

/// Writes records as JSON with the codec `json`.
#[derive(Default)]
pub struct JsonText {
    encoder: Option<Encoder<Record>>,
    bytes: Vec<u8>,
}

impl JsonText {
    /// Returns the whole record, or the part that a path leads to; `null` if that part is absent.
    pub fn of(&mut self, record: &Record, path: Option<&str>) -> anyhow::Result<String> {
        let field = path.map(|path| field(record, path)).transpose()?;
        if let Some(None) = field {
            return Ok("null".into());
        }
        self.bytes.clear();
        let encoder = encoder_for(&mut self.encoder, record.shape())?;
        encoder.encode(record, &mut self.bytes)?;
        let whole = std::str::from_utf8(&self.bytes)?;
        match (path, field) {
            (Some(path), Some(Some(value))) => Ok(part(whole, path).map_or_else(|| scalar(value), str::to_owned)),
            _ => Ok(whole.to_owned()),
        }
    }
}

fn encoder_for<'a>(kept: &'a mut Option<Encoder<Record>>, shape: &Arc<Shape>) -> anyhow::Result<&'a Encoder<Record>> {
    let fits = kept.as_ref().is_some_and(|encoder| Arc::ptr_eq(encoder.shape(), shape));
    if !fits {
        *kept = Some(Encoder::for_shape(&JSON, &Options::default(), shape)?);
    }
    kept.as_ref().context("there is an encoder now")
}

/// Returns the part that a path leads to; `None` if it is absent in this record. A path that is
/// wrong for every record is a [`Misuse`].
pub fn field<'a>(record: &'a Record, path: &str) -> anyhow::Result<Option<ValueRef<'a>>> {
    match record.get(path) {
        Ok(ValueRef::Absent) => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(error @ (PathError::NoMember { .. } | PathError::Syntax { .. } | PathError::WrongKind { .. })) => {
            Err(Misuse(format!("--field {path}: {error}")).into())
        }
        Err(_) => Ok(None),
    }
}

/// Returns the part of a JSON text that a path leads to.
fn part<'a>(json: &'a str, path: &str) -> Option<&'a str> {
    let mut at = json;
    for step in steps(path) {
        let inner: &RawValue = match step {
            Segment::Index(index) if at.starts_with('[') => {
                serde_json::from_str::<Vec<&RawValue>>(at).ok()?.get(index)?
            }
            Segment::Index(index) => member(at, &index.to_string())?,
            Segment::Name(name) => member(at, &name)?,
        };
        at = inner.get();
    }
    Some(at)
}

fn member<'a>(object: &'a str, name: &str) -> Option<&'a RawValue> {
    serde_json::from_str::<BTreeMap<Cow<'a, str>, &'a RawValue>>(object).ok()?.get(name).copied()
}

enum Segment {
    Name(String),
    Index(usize),
}

/// Returns the steps of a valid path.
fn steps(path: &str) -> Vec<Segment> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let end = quoted.find("\"]").unwrap_or(quoted.len());
            steps.push(Segment::Name(quoted[..end].replace("\\\"", "\"")));
            rest = quoted.get(end + 2..).unwrap_or_default();
        } else if let Some(index) = rest.strip_prefix('[') {
            let end = index.find(']').unwrap_or(index.len());
            let name = || Segment::Name(index[..end].to_owned());
            steps.push(index[..end].parse().map_or_else(|_| name(), Segment::Index));
            rest = index.get(end + 1..).unwrap_or_default();
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            steps.push(Segment::Name(name[..end].to_owned()));
            rest = &name[end..];
        }
    }
    steps
}

/// Formats a time in nanoseconds since 1970, as `2026-11-22T23:38:33.000000001Z`.
pub fn utc(timestamp_ns: i64) -> String {
    const DAY: i64 = 86_400;
    let (seconds, ns) = (timestamp_ns.div_euclid(1_000_000_000), timestamp_ns.rem_euclid(1_000_000_000));
    let (day, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    // Years begin with March here, so that the leap day is their last. An era is 400 years, after
    // which the calendar repeats.
    let from_march = day + 719_468;
    let (era, of_era) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{ns:09}Z")
}

/// How many elements of a list of scalars the readable form shows.
const SHOWN: usize = 16;

/// Returns a value in a human-readable form: one member per line, nested members indented.
pub fn readable(value: ValueRef<'_>) -> String {
    let mut out = String::new();
    match is_scalar(&value) {
        true => {
            let _ = writeln!(out, "{}", bare(value));
        }
        false => block(&mut out, value, 0),
    }
    out
}

fn block(out: &mut String, value: ValueRef<'_>, indent: usize) {
    match value {
        ValueRef::Struct(v) => v.fields().into_iter().for_each(|(m, value)| entry(out, &m.name, value, indent)),
        ValueRef::Union(v) => match v.case() {
            Some((case, value)) => entry(out, &case.member.name, value, indent),
            None => line(out, indent, &format!("({})", v.discriminator())),
        },
        ValueRef::Map(v) => v.entries().into_iter().for_each(|(key, value)| entry(out, &bare(key), value, indent)),
        ValueRef::List(v) => v.iter().enumerate().for_each(|(i, value)| entry(out, &format!("[{i}]"), value, indent)),
        other => line(out, indent, &bare(other)),
    }
}

fn entry(out: &mut String, name: &str, value: ValueRef<'_>, indent: usize) {
    match (is_scalar(&value), &value) {
        (true, _) => line(out, indent, &format!("{name}: {}", bare(value))),
        (false, ValueRef::List(list)) if list.iter().all(|element| is_scalar(&element)) => {
            let shown: Vec<String> = list.iter().take(SHOWN).map(scalar).collect();
            let more = if list.len() > SHOWN { format!(", .. {} in all", list.len()) } else { String::new() };
            line(out, indent, &format!("{name}: [{}{more}]", shown.join(", ")));
        }
        _ => {
            line(out, indent, &format!("{name}:"));
            block(out, value, indent + 1);
        }
    }
}

fn line(out: &mut String, indent: usize, text: &str) {
    // Writing into a string cannot fail.
    let _ = writeln!(out, "{}{text}", "  ".repeat(indent));
}

fn is_scalar(value: &ValueRef<'_>) -> bool {
    !matches!(value, ValueRef::List(_) | ValueRef::Struct(_) | ValueRef::Union(_) | ValueRef::Map(_))
}

/// Returns a scalar in its debug form, with strings in quotes.
fn scalar(value: ValueRef<'_>) -> String {
    format!("{value:?}")
}

/// Returns a scalar without quotes. A string with control characters stays quoted and escaped, so
/// that a message cannot control the terminal.
fn bare(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Str(text) if !text.chars().any(char::is_control) => text.to_owned(),
        ValueRef::Absent => "-".into(),
        other => scalar(other),
    }
}

#[cfg(test)]
mod tests {
    use polywire_idl::Compiler;

    use super::*;

    fn record() -> Record {
        let text = "enum Side { BUY, SELL };
            struct Entry { double price; Side side; sequence<octet> blob; };
            struct Book { string name; sequence<Entry> entries; map<string, long> limits; @optional long level; long grid[2][2]; };";
        let document = Compiler::new().parse_str("book.idl", text).expect("valid");
        let schema = document.schema("Book").expect("there");
        let mut record = Record::new(&Shape::of(&schema).expect("a shape"));
        record.resize("entries", 2).expect("resized");
        record.set("name", "a\"b").expect("set");
        record.set("entries[1].price", 1.5).expect("set");
        record.set("entries[1].side", "SELL").expect("set");
        record.set("entries[1].blob", &[1u8, 2][..]).expect("set");
        record.set("limits[\"low\"]", 7).expect("set");
        record.set("grid[1][0]", 3).expect("set");
        record
    }

    /// The seconds are those of `date -u -d TIME +%s`.
    #[test]
    fn times_are_written_as_people_do() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_251_199, "2024-02-29T23:59:59"),
            (1_709_251_200, "2024-03-01T00:00:00"),
            (4_107_542_400, "2100-03-01T00:00:00"),
            (-1, "1969-12-31T23:59:59"),
            (-2_203_891_200, "1900-03-01T00:00:00"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000 + 7), format!("{expected}.000000007Z"));
        }
        assert_eq!(utc(i64::MAX), "2262-04-11T23:47:16.854775807Z");
    }

    #[test]
    fn a_path_picks_its_part_of_the_json() {
        let (record, mut json) = (record(), JsonText::default());
        let mut at = |path: &str| json.of(&record, Some(path)).expect(path);
        assert_eq!(at("name"), r#""a\"b""#);
        assert_eq!(at("entries[1].price"), "1.5");
        assert_eq!(at("entries[1].side"), "\"SELL\"");
        assert_eq!(at("entries[1].blob"), "\"AQI=\"");
        assert_eq!(at("entries[1].blob[1]"), "2");
        assert_eq!(at("limits[\"low\"]"), "7");
        assert_eq!(at("grid[1]"), "[3,0]");
        assert_eq!(at("level"), "null");
        assert_eq!(at("entries[9].price"), "null");
    }

    #[test]
    fn a_path_that_leads_nowhere_is_a_mistake() {
        let (record, mut json) = (record(), JsonText::default());
        for path in ["nmae", "name.x", "entries[", "entries[0].side.x"] {
            let error = json.of(&record, Some(path)).expect_err(path);
            assert!(error.is::<Misuse>(), "{path}: {error}");
        }
    }

    #[test]
    fn the_readable_form_shows_everything() {
        let expected = "name: a\"b
entries:
  [0]:
    price: 0.0
    side: BUY
    blob: []
  [1]:
    price: 1.5
    side: SELL
    blob: [1, 2]
limits:
  low: 7
level: -
grid:
  [0]: [0, 0]
  [1]: [3, 0]
";
        assert_eq!(readable(record().view()), expected);
    }
}
