//! Reads the messages of MCAP files as rows of tables, also of files that other programs have
//! written.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
};

use mcap::{Channel, io::MessageReader, sans_io::LinearReaderOptions};
use serde_json::Value;

use super::MOST_RECORD;
use crate::{
    CellValue, Column, MOST_COLUMNS,
    archive::Wanted,
    handler::file::numbered,
    table::{EachRow, Layout},
};

/// The most channels of a file that are remembered at a time.
const MOST_CHANNELS: usize = 65_536;

/// The deepest object of a JSON Schema whose members are columns of their own.
const DEEPEST: usize = 16;

/// A file and the full ones that belong to it, the oldest first.
pub(crate) fn parts(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut parts: Vec<PathBuf> = numbered(path)?.into_iter().map(|(_, path)| path).collect();
    if path.is_file() {
        parts.push(path.to_owned());
    }
    Ok(parts)
}

/// Calls `each` with the rows of a file, until it returns false. The error says what is damaged.
pub(crate) fn read(path: &Path, wanted: &Wanted<'_>, each: EachRow<'_>) -> Result<(), String> {
    let text = |error: mcap::McapError| error.to_string();
    let options =
        LinearReaderOptions::default().with_record_length_limit(MOST_RECORD).with_prevalidate_chunk_crcs(true);
    let file = File::open(path).map_err(|error| error.to_string())?;
    let (mut channels, mut number) = (HashMap::<u16, Rows>::new(), 0);
    for message in MessageReader::new_with_options(BufReader::new(file), options) {
        let mcap::Message { channel, sequence, publish_time, data, .. } = message.map_err(text)?;
        number += 1;
        if !channels.get(&channel.id).is_some_and(|known| Arc::ptr_eq(&known.channel, &channel)) {
            if channels.len() >= MOST_CHANNELS {
                channels.clear();
            }
            channels.insert(channel.id, Rows::of(channel.clone()));
        }
        let Some(rows) = channels.get_mut(&channel.id) else { continue };
        let time = i64::try_from(publish_time).unwrap_or(i64::MAX);
        let is_wanted = wanted.topic.is_none_or(|topic| topic == rows.topic) && wanted.times.contains(&time);
        if !is_wanted {
            continue;
        }
        // Sequence numbers of other programs tell messages apart as little as they like.
        let sequence = if rows.writer.is_empty() { number } else { sequence.into() };
        if !rows.give(sequence, time, &data, each)? {
            return Ok(());
        }
    }
    Ok(())
}

/// The rows of a channel.
struct Rows {
    channel: Arc<Channel<'static>>,
    layout: Layout,
    topic: String,
    writer: String,
    incarnation: u64,
    kind: String,
    /// Where each column is in the JSON of a message.
    paths: Vec<Vec<String>>,
}

impl Rows {
    fn of(channel: Arc<Channel<'static>>) -> Rows {
        let own = |key: &str| channel.metadata.get(key).cloned().unwrap_or_default();
        let kind = Some(own("kind")).filter(|kind| !kind.is_empty()).unwrap_or_else(|| "data".to_owned());
        let topic = channel.topic.strip_suffix(&format!("#{kind}")).unwrap_or(&channel.topic).to_owned();
        let type_name = channel.schema.as_ref().map_or_else(|| topic.clone(), |schema| schema.name.clone());
        let (mut paths, mut columns) = (Vec::new(), Vec::new());
        if let Some(schema) = channel.schema.as_ref().filter(|schema| schema.encoding == "jsonschema")
            && let Ok(schema) = serde_json::from_slice(&schema.data)
        {
            add_columns(&schema, &mut Vec::new(), &mut paths, &mut columns);
        }
        if paths.is_empty() || paths.len() > MOST_COLUMNS {
            (paths, columns) = (vec![Vec::new()], vec![("value".to_owned(), Column::Json)]);
        }
        let layout = Layout::new(&type_name, columns);
        let (writer, incarnation) = (own("writer"), own("incarnation").parse().unwrap_or(0));
        Rows { channel, layout, topic, writer, incarnation, kind, paths }
    }

    /// Gives a message to `each`.
    fn give(&mut self, sequence: u64, time: i64, data: &[u8], each: EachRow<'_>) -> Result<bool, String> {
        let encoding = &self.channel.message_encoding;
        if encoding != "json" {
            return Err(format!("messages of '{}' are in '{encoding}', which is not read", self.topic));
        }
        let value: Value = serde_json::from_slice(data).map_err(|error| format!("no JSON: {error}"))?;
        let mut cells = vec![
            CellValue::Text(&self.topic),
            CellValue::Text(&self.writer),
            CellValue::Uint(self.incarnation),
            CellValue::Uint(sequence),
            CellValue::Int(time),
            CellValue::Text(&self.kind),
        ];
        for (path, (_, column)) in self.paths.iter().zip(self.layout.members()) {
            let found = path.iter().try_fold(&value, |value, name| value.get(name.as_str()));
            cells.push(found.map_or(CellValue::Absent, |found| cell(column, found)));
        }
        Ok(each(&self.layout, &cells))
    }
}

/// Adds the columns of an object, and where they are.
fn add_columns(
    schema: &Value,
    path: &mut Vec<String>,
    paths: &mut Vec<Vec<String>>,
    columns: &mut Vec<(String, Column)>,
) {
    if paths.len() > MOST_COLUMNS {
        return;
    }
    if let Some(members) = schema["properties"].as_object().filter(|_| path.len() < DEEPEST) {
        for (name, member) in members {
            path.push(name.clone());
            add_columns(member, path, paths, columns);
            path.pop();
        }
    } else if !path.is_empty() {
        paths.push(path.clone());
        columns.push((path.join("."), column(schema)));
    }
}

/// The column of a member. Octets stay the text that they are in JSON.
fn column(schema: &Value) -> Column {
    match schema["type"].as_str().unwrap_or_default() {
        "boolean" => Column::Bool,
        "integer" if schema["minimum"].as_i64().is_some_and(|least| least >= 0) => Column::Uint,
        "integer" => Column::Int,
        "number" => Column::Float64,
        "string" => Column::Text,
        _ => Column::Json,
    }
}

fn cell(column: Column, value: &Value) -> CellValue<'_> {
    match (column, value) {
        (_, Value::Null) => CellValue::Absent,
        (Column::Json, value) => CellValue::Json(value.to_string()),
        (_, Value::Bool(truth)) => CellValue::Bool(*truth),
        (Column::Float64, Value::String(text)) => match text.as_str() {
            "NaN" => CellValue::Float64(f64::NAN),
            "Infinity" => CellValue::Float64(f64::INFINITY),
            "-Infinity" => CellValue::Float64(f64::NEG_INFINITY),
            text => CellValue::Text(text),
        },
        (Column::Float64, Value::Number(number)) => CellValue::Float64(number.as_f64().unwrap_or(f64::NAN)),
        (_, Value::Number(number)) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => CellValue::Int(number),
            (None, Some(number)) => CellValue::Uint(number),
            _ => CellValue::Float64(number.as_f64().unwrap_or(f64::NAN)),
        },
        (_, Value::String(text)) => CellValue::Text(text),
        (_, value) => CellValue::Json(value.to_string()),
    }
}
