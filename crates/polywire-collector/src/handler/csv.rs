//! The kind `csv`: a file with a header line for each type, in the format of RFC 4180.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
};

use super::{
    Handler, Kind,
    file::{LineFile, ROTATION, Rotation, file_name},
};
use crate::{
    CellValue, Columns, Entry, Expects, HandlerError, JsonText, Setting,
    columns::{METADATA, float_text, metadata},
    json::PerType,
};

/// The maximum number of types, and so of open files.
const MAX_FILES: usize = 256;

/// The maximum size of a header line in bytes.
const MAX_HEADER: u64 = 1 << 20;

pub(super) static KIND: Kind = Kind {
    name: "csv",
    summary: "CSV, a file for each type and version, with rotation",
    settings: &{
        let [bytes, time, keep, zstd] = ROTATION;
        let folder = Setting { name: "path", expects: Expects::Required, summary: "the folder of the files" };
        [folder, bytes, time, keep, zstd]
    },
    open: |settings, _| {
        Ok(Box::new(Tables {
            folder: settings.text("path").unwrap_or_default().into(),
            rotation: Rotation::of(settings)?,
            tables: PerType::default(),
            files: Vec::new(),
            json: JsonText::default(),
            line: Vec::new(),
        }))
    },
};

struct Tables {
    folder: PathBuf,
    rotation: Rotation,
    /// The columns of each type, and the index of its file in `files`.
    tables: PerType<(Columns, usize)>,
    files: Vec<(PathBuf, LineFile)>,
    json: JsonText,
    line: Vec<u8>,
}

impl Handler for Tables {
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        let Tables { folder, rotation, tables, files, json, line } = self;
        let shape = entry.value.shape();
        let (columns, at) = tables.get(shape, || {
            let columns = Columns::of(shape.schema());
            let at = open(folder, *rotation, entry.type_name(), &columns, files)?;
            Ok::<_, HandlerError>((columns, at))
        })?;
        let row = columns.row(entry, json)?;
        line.clear();
        let writer = entry.origin.writer.to_string();
        let [topic, rest @ ..] = metadata(entry, &writer);
        add(line, &topic);
        line.drain(..1);
        rest.iter().chain(&row).for_each(|cell| add(line, cell));
        match files.get_mut(*at) {
            Some((_, file)) => file.line(line),
            None => Ok(()),
        }
    }

    fn sync(&mut self) -> Result<(), HandlerError> {
        self.files.iter_mut().try_for_each(|(_, file)| file.sync())
    }
}

/// Opens the file of a type, unless it is open, and returns its index. A version with other columns
/// has a file of its own, `TYPE~2.csv`.
fn open(
    folder: &Path,
    rotation: Rotation,
    type_name: &str,
    columns: &Columns,
    files: &mut Vec<(PathBuf, LineFile)>,
) -> Result<usize, HandlerError> {
    let mut header = METADATA.map(|(name, _)| name).join(",").into_bytes();
    columns.iter().for_each(|(name, _)| field(&mut header, name.as_bytes(), true));
    header.push(b'\n');
    for number in 1..=MAX_FILES {
        let version = if number == 1 { String::new() } else { format!("~{number}") };
        let path = folder.join(format!("{}{version}.csv", file_name(type_name)));
        let found = first_line(&path).map_err(|cause| HandlerError::file(&path, &cause))?;
        if !found.is_empty() && found != header {
            continue;
        }
        if let Some(at) = files.iter().position(|(open, _)| *open == path) {
            return Ok(at);
        }
        if files.len() == MAX_FILES {
            break;
        }
        let file = LineFile::open(&path, rotation, &header)?;
        files.push((path, file));
        return Ok(files.len() - 1);
    }
    Err(HandlerError::Refused(format!("there are {MAX_FILES} types or versions of one already")))
}

/// Reads the first line of a file with its line break; empty if there is none.
fn first_line(path: &Path) -> io::Result<Vec<u8>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut line = Vec::new();
    BufReader::new(file.take(MAX_HEADER)).read_until(b'\n', &mut line)?;
    // An incomplete line is removed when the file is opened.
    Ok(if line.ends_with(b"\n") { line } else { Vec::new() })
}

/// Appends a field, after a comma unless it is the first one. An absent value is an empty field,
/// and an empty text is `""`.
fn field(line: &mut Vec<u8>, text: &[u8], follows: bool) {
    if follows {
        line.push(b',');
    }
    let is_plain = |byte: &u8| !matches!(byte, b'"' | b',' | b'\r' | b'\n');
    if !text.is_empty() && text.iter().all(is_plain) {
        return line.extend_from_slice(text);
    }
    line.push(b'"');
    for byte in text {
        if *byte == b'"' {
            line.push(b'"');
        }
        line.push(*byte);
    }
    line.push(b'"');
}

fn add(line: &mut Vec<u8>, cell: &CellValue<'_>) {
    let text = match cell {
        CellValue::Absent => return line.push(b','),
        CellValue::Bool(truth) => truth.to_string(),
        CellValue::Int(number) => number.to_string(),
        CellValue::Uint(number) => number.to_string(),
        CellValue::Float32(number) => float_text((*number).into(), number.to_string()),
        CellValue::Float64(number) => float_text(*number, number.to_string()),
        CellValue::Text(text) => return field(line, text.as_bytes(), true),
        CellValue::Char(character) => character.to_string(),
        CellValue::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        CellValue::Json(text) => return field(line, text.as_bytes(), true),
    };
    field(line, text.as_bytes(), true);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(cells: &[CellValue<'_>]) -> String {
        let mut line = b"t".to_vec();
        cells.iter().for_each(|cell| add(&mut line, cell));
        String::from_utf8(line).expect("a text")
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        use CellValue::{Absent, Bool, Bytes, Float32, Float64, Int, Json, Text, Uint};
        assert_eq!(
            line(&[Absent, Text(""), Text("a,b"), Text("a\"b"), Text("a\nb")]),
            "t,,\"\",\"a,b\",\"a\"\"b\",\"a\nb\""
        );
        assert_eq!(
            line(&[Int(i64::MIN), Uint(u64::MAX), Bool(true)]),
            "t,-9223372036854775808,18446744073709551615,true"
        );
        assert_eq!(
            line(&[Float64(f64::NAN), Float64(-0.0), Float64(f64::INFINITY), Float32(0.1)]),
            "t,NaN,-0,Infinity,0.1"
        );
        assert_eq!(line(&[Bytes(&[1, 0xab]), Json("[1,2]".into())]), "t,01ab,\"[1,2]\"");
    }
}
