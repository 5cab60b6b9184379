//! Reads the messages of MCAP files as rows of tables, including files of other programs.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
};

use mcap::{Channel, io::MessageReader, sans_io::LinearReaderOptions};
use polywire::{
    Record, Shape,
    codec::{
        Decoder, Options,
        cdr::{CDR, XCDR2},
    },
};
use polywire_idl::Compiler;
use serde_json::Value;

use super::rows::Wanted;
use crate::{
    CellValue, Column, Columns, Entry, JsonText, MAX_COLUMNS,
    files::numbered,
    table::{EachRow, Layout},
};

/// The maximum size of a record, equal to that of the files which the handler repairs.
const MAX_RECORD: usize = 1 << 28;

/// The maximum number of channels of a file that are cached.
const MAX_CHANNELS: usize = 65_536;

/// The maximum depth of objects in a JSON Schema whose members are columns of their own.
const DEEPEST: usize = 16;

/// Returns a file and the full files that precede it, the oldest first.
pub(super) fn parts(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut parts: Vec<PathBuf> = numbered(path)?.into_iter().map(|(_, path)| path).collect();
    if path.is_file() {
        parts.push(path.to_owned());
    }
    Ok(parts)
}

/// Calls `each` with the rows of a file, until it returns false. The error describes the damage.
pub(super) fn read(path: &Path, wanted: &Wanted<'_>, each: EachRow<'_>) -> Result<(), String> {
    let text = |error: mcap::McapError| error.to_string();
    let options = LinearReaderOptions::default().with_record_length_limit(MAX_RECORD).with_prevalidate_chunk_crcs(true);
    let file = File::open(path).map_err(|error| error.to_string())?;
    let (mut channels, mut number) = (HashMap::<u16, Rows>::new(), 0);
    for message in MessageReader::new_with_options(BufReader::new(file), options) {
        let mcap::Message { channel, sequence, publish_time, data, .. } = message.map_err(text)?;
        number += 1;
        if !channels.get(&channel.id).is_some_and(|known| Arc::ptr_eq(&known.channel, &channel)) {
            if channels.len() >= MAX_CHANNELS {
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
        // Sequence numbers of other programs may not identify messages, so these are counted.
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
    content: Content,
}

/// The format of a channel's messages.
enum Content {
    /// The path of each column in the JSON of a message.
    Json(Vec<Vec<String>>),
    Cdr(Box<Cdr>),
    /// Why the messages cannot be read.
    Other(String),
}

/// Messages in CDR: one decoder for each version of CDR. The header of a message selects the
/// version.
struct Cdr {
    columns: Columns,
    decoders: [Decoder<Record>; 2],
    entry: Entry,
    json: JsonText,
}

impl Cdr {
    /// Makes the decoders for a type. The error says why the type cannot be used.
    fn of(name: &str, idl: &str) -> Result<Cdr, String> {
        let text = |error: &dyn std::fmt::Display| format!("the type '{name}' cannot be used: {error}");
        let document = Compiler::new().loader(NoFiles).parse_str("schema.idl", idl).map_err(|error| text(&error))?;
        let schema = document.schema(name).map_err(|error| text(&error))?;
        let shape = Shape::of(&schema).map_err(|error| text(&error))?;
        let options = Options::default().with("header", "");
        let older = Decoder::for_shape(&CDR, &options, &schema, &shape).map_err(|error| text(&error))?;
        let newer = Decoder::for_shape(&XCDR2, &options, &schema, &shape).map_err(|error| text(&error))?;
        Ok(Cdr {
            columns: Columns::of(&schema),
            decoders: [older, newer],
            entry: Entry::new(Default::default(), 0, 0, Record::new(&shape)),
            json: JsonText::default(),
        })
    }

    /// Decodes the cells of a message.
    fn cells(&mut self, data: &[u8]) -> Result<Vec<CellValue<'_>>, String> {
        // The lowest representation identifier of XCDR2, that of plain, big-endian CDR.
        const PLAIN_CDR2_BE: u8 = 6;
        let is_newer = data.get(1).is_some_and(|identifier| *identifier >= PLAIN_CDR2_BE);
        let decoder = &self.decoders[usize::from(is_newer)];
        decoder.decode(data, &mut self.entry.value).map_err(|error| error.to_string())?;
        self.columns.row(&self.entry, &mut self.json).map_err(|error| error.to_string())
    }
}

/// A loader without files: a schema is a single text.
struct NoFiles;

impl polywire_idl::Loader for NoFiles {
    fn load(&self, _: &str, _: usize) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

impl Rows {
    fn of(channel: Arc<Channel<'static>>) -> Rows {
        let own = |key: &str| channel.metadata.get(key).cloned().unwrap_or_default();
        let kind = Some(own("kind")).filter(|kind| !kind.is_empty()).unwrap_or_else(|| "data".to_owned());
        let topic = channel.topic.strip_suffix(&format!("#{kind}")).unwrap_or(&channel.topic).to_owned();
        let (type_name, columns, content) = content(&channel, &topic);
        let layout = Layout::new(&type_name, columns);
        let (writer, incarnation) = (own("writer"), own("incarnation").parse().unwrap_or(0));
        Rows { channel, layout, topic, writer, incarnation, kind, content }
    }

    /// Decodes a message and passes it to `each`. Returns whether to continue.
    fn give(&mut self, sequence: u64, time: i64, data: &[u8], each: EachRow<'_>) -> Result<bool, String> {
        let mut cells = vec![
            CellValue::Text(&self.topic),
            CellValue::Text(&self.writer),
            CellValue::Uint(self.incarnation),
            CellValue::Uint(sequence),
            CellValue::Int(time),
            CellValue::Text(&self.kind),
        ];
        let value: Value;
        match &mut self.content {
            Content::Json(paths) => {
                value = serde_json::from_slice(data).map_err(|error| format!("no JSON: {error}"))?;
                for (path, (_, column)) in paths.iter().zip(self.layout.members()) {
                    let found = path.iter().try_fold(&value, |value, name| value.get(name.as_str()));
                    cells.push(found.map_or(CellValue::Absent, |found| cell(column, found)));
                }
            }
            Content::Cdr(cdr) => cells.extend(cdr.cells(data)?),
            Content::Other(reason) => return Err(format!("'{}': {reason}", self.topic)),
        }
        Ok(each(&self.layout, &cells))
    }
}

/// Returns the type of a channel's messages, its columns, and the way to read them.
fn content(channel: &Channel<'_>, topic: &str) -> (String, Vec<(String, Column)>, Content) {
    let schema = channel.schema.as_ref();
    let name = schema.map_or_else(|| topic.to_owned(), |schema| schema.name.clone());
    let idl = match schema {
        Some(schema) if schema.encoding == "omgidl" => std::str::from_utf8(&schema.data).ok(),
        _ => channel.metadata.get("idl").map(String::as_str),
    };
    match (channel.message_encoding.as_str(), idl) {
        ("json", _) => {
            let (paths, columns) = json_columns(channel);
            (name, columns, Content::Json(paths))
        }
        ("cdr", Some(idl)) => {
            // Some programs separate the parts of type names by slashes.
            let name = channel.metadata.get("type").cloned().unwrap_or_else(|| name.replace('/', "::"));
            match Cdr::of(&name, idl) {
                Ok(cdr) => {
                    let columns = cdr.columns.iter().map(|(name, column)| (name.to_owned(), column)).collect();
                    (name, columns, Content::Cdr(Box::new(cdr)))
                }
                Err(reason) => (name, Vec::new(), Content::Other(reason)),
            }
        }
        (encoding, _) => {
            let schema = schema.map_or("no schema", |schema| schema.encoding.as_str());
            (name, Vec::new(), Content::Other(format!("messages in '{encoding}' with '{schema}' are not read")))
        }
    }
}

/// Returns the columns of JSON messages, and their paths in the JSON.
fn json_columns(channel: &Channel<'_>) -> (Vec<Vec<String>>, Vec<(String, Column)>) {
    let (mut paths, mut columns) = (Vec::new(), Vec::new());
    if let Some(schema) = channel.schema.as_ref().filter(|schema| schema.encoding == "jsonschema")
        && let Ok(schema) = serde_json::from_slice(&schema.data)
    {
        add_columns(&schema, &mut Vec::new(), &mut paths, &mut columns);
    }
    if paths.is_empty() || paths.len() > MAX_COLUMNS {
        return (vec![Vec::new()], vec![("value".to_owned(), Column::Json)]);
    }
    (paths, columns)
}

/// Adds the columns of an object, and their paths.
fn add_columns(
    schema: &Value,
    path: &mut Vec<String>,
    paths: &mut Vec<Vec<String>>,
    columns: &mut Vec<(String, Column)>,
) {
    if paths.len() > MAX_COLUMNS {
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

/// Returns the column type of a member. Octets remain the text that they are in JSON.
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
