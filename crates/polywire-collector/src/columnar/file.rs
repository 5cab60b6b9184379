//! Parquet files: written from journals, and read back as rows.
//!
//! Each column is named by its path in the type. The file's key-value metadata contains the type,
//! the types of the columns, and the CRC-32 of all rows in the encoding of `rows`, because the
//! Parquet writer used here cannot write checksums.

use std::{
    fs::{self, File},
    ops::RangeInclusive,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

use parquet::{
    basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical},
    column::{reader::ColumnReader, writer::ColumnWriter},
    data_type::ByteArray,
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        reader::{FileReader as _, SerializedFileReader},
        statistics::Statistics,
        writer::SerializedFileWriter,
    },
    schema::types::Type,
};

use super::{
    journal::Reader,
    rows::{content_name, content_of},
};
use crate::{
    CellValue, Column, HandlerError,
    columns::METADATA,
    files::sync_folder,
    table::{EachRow, Layout},
};

/// The extension of these files.
pub(crate) const ENDING: &str = "parquet";

/// The maximum number of rows of a row group.
const GROUP_ROWS: usize = 65_536;

/// The number of bytes of rows after which a row group ends.
const GROUP_BYTES: usize = 32 << 20;

/// The index of the column with the time of publication.
const TIME: usize = 4;

const TYPE_KEY: &str = "polywire.type";
const COLUMNS_KEY: &str = "polywire.columns";
const CHECKSUM_KEY: &str = "polywire.crc32";

/// Converts a complete journal into a Parquet file, and removes the journal. If this is interrupted
/// at any point, the journal or the file or both with the same rows exist.
pub(crate) fn convert(journal: &Path, is_compressed: bool) -> Result<(), HandlerError> {
    let failed = |cause| HandlerError::file(journal, &cause);
    let (target, partial) = (journal.with_extension(ENDING), journal.with_extension("part"));
    let wrong = |error: ParquetError| HandlerError::Failed(format!("{}: {error}", target.display()));
    let mut reader = Reader::of(File::open(journal).map_err(failed)?);
    let damaged = || HandlerError::Failed(format!("{}: it is damaged", journal.display()));
    let layout = reader.head().map_err(failed)?.ok_or_else(damaged)?.layout;
    let file = File::create(&partial).map_err(failed)?;
    let mut writer = FileWriter::new(file.try_clone().map_err(failed)?, &layout, is_compressed).map_err(wrong)?;
    while let Some(row) = reader.next().map_err(failed)? {
        let cells = layout.decode(row).ok_or_else(damaged)?;
        writer.add(row, &cells).map_err(wrong)?;
    }
    writer.finish().map_err(wrong)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&partial, &target).and_then(|()| sync_folder(&target)).map_err(failed)?;
    fs::remove_file(journal).map_err(failed)
}

/// Writes rows in groups, column by column.
struct FileWriter {
    writer: SerializedFileWriter<File>,
    group: Vec<Values>,
    rows: usize,
    bytes: usize,
    checksum: crc32fast::Hasher,
}

/// The values of a column in a row group, with a level for each row that says whether it has a
/// value.
struct Values {
    levels: Vec<i16>,
    data: Data,
}

enum Data {
    Bool(Vec<bool>),
    Int(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
}

impl Data {
    fn of(column: Column) -> Data {
        match column {
            Column::Bool => Data::Bool(Vec::new()),
            Column::Int | Column::Uint => Data::Int(Vec::new()),
            Column::Float32 => Data::Float(Vec::new()),
            Column::Float64 => Data::Double(Vec::new()),
            Column::Text | Column::Bytes | Column::Json => Data::Bytes(Vec::new()),
        }
    }

    fn add(&mut self, cell: &CellValue<'_>) {
        match (self, cell) {
            (Data::Bool(all), CellValue::Bool(truth)) => all.push(*truth),
            (Data::Int(all), CellValue::Int(number)) => all.push(*number),
            // Parquet stores the bits of an unsigned number in a signed one.
            (Data::Int(all), CellValue::Uint(number)) => all.push(number.cast_signed()),
            (Data::Float(all), CellValue::Float32(number)) => all.push(*number),
            (Data::Double(all), CellValue::Float64(number)) => all.push(*number),
            (Data::Bytes(all), CellValue::Text(text)) => all.push(text.as_bytes().to_vec().into()),
            (Data::Bytes(all), CellValue::Bytes(bytes)) => all.push(bytes.to_vec().into()),
            (Data::Bytes(all), CellValue::Json(text)) => all.push(text.as_bytes().to_vec().into()),
            _ => unreachable!("a row is decoded by its columns"),
        }
    }

    /// Returns the value of a column at this index.
    fn cell(&self, column: Column, at: usize) -> Option<CellValue<'_>> {
        Some(match (self, column) {
            (Data::Bool(all), Column::Bool) => CellValue::Bool(*all.get(at)?),
            (Data::Int(all), Column::Int) => CellValue::Int(*all.get(at)?),
            (Data::Int(all), Column::Uint) => CellValue::Uint(all.get(at)?.cast_unsigned()),
            (Data::Float(all), Column::Float32) => CellValue::Float32(*all.get(at)?),
            (Data::Double(all), Column::Float64) => CellValue::Float64(*all.get(at)?),
            (Data::Bytes(all), Column::Text) => CellValue::Text(std::str::from_utf8(all.get(at)?.data()).ok()?),
            (Data::Bytes(all), Column::Bytes) => CellValue::Bytes(all.get(at)?.data()),
            (Data::Bytes(all), Column::Json) => {
                CellValue::Json(std::str::from_utf8(all.get(at)?.data()).ok()?.to_owned())
            }
            _ => return None,
        })
    }
}

impl FileWriter {
    fn new(file: File, layout: &Layout, is_compressed: bool) -> Result<FileWriter, ParquetError> {
        let fields = layout.columns.iter().map(|(name, column)| field(name, *column)).collect::<Result<_, _>>()?;
        let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
        let contents: Vec<[&str; 2]> =
            layout.columns.iter().map(|(name, column)| [name.as_str(), content_name(*column)]).collect();
        let columns = serde_json::to_string(&contents).unwrap_or_default();
        let properties = WriterProperties::builder()
            .set_created_by(concat!("polywire ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(compression(is_compressed))
            .set_key_value_metadata(Some(vec![
                KeyValue::new(TYPE_KEY.to_owned(), layout.type_name.clone()),
                KeyValue::new(COLUMNS_KEY.to_owned(), columns),
            ]));
        Ok(FileWriter {
            writer: SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build()))?,
            group: layout.columns.iter().map(|(_, of)| Values { levels: Vec::new(), data: Data::of(*of) }).collect(),
            rows: 0,
            bytes: 0,
            checksum: crc32fast::Hasher::new(),
        })
    }

    fn add(&mut self, row: &[u8], cells: &[CellValue<'_>]) -> Result<(), ParquetError> {
        self.checksum.update(row);
        for (values, cell) in self.group.iter_mut().zip(cells) {
            let is_there = *cell != CellValue::Absent;
            values.levels.push(is_there.into());
            if is_there {
                values.data.add(cell);
            }
        }
        (self.rows, self.bytes) = (self.rows + 1, self.bytes + row.len());
        if self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the row group.
    fn flush(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for (at, values) in self.group.iter_mut().enumerate() {
            let Some(mut column) = group.next_column()? else { break };
            // Metadata columns are present in each row, so they have no levels.
            let levels = (at >= METADATA.len()).then_some(values.levels.as_slice());
            match (column.untyped(), &mut values.data) {
                (ColumnWriter::BoolColumnWriter(to), Data::Bool(all)) => write(to.write_batch(all, levels, None), all)?,
                (ColumnWriter::Int64ColumnWriter(to), Data::Int(all)) => write(to.write_batch(all, levels, None), all)?,
                (ColumnWriter::FloatColumnWriter(to), Data::Float(all)) => {
                    write(to.write_batch(all, levels, None), all)?;
                }
                (ColumnWriter::DoubleColumnWriter(to), Data::Double(all)) => {
                    write(to.write_batch(all, levels, None), all)?;
                }
                (ColumnWriter::ByteArrayColumnWriter(to), Data::Bytes(all)) => {
                    write(to.write_batch(all, levels, None), all)?;
                }
                _ => unreachable!("the schema has these columns"),
            }
            values.levels.clear();
            column.close()?;
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    fn finish(mut self) -> Result<(), ParquetError> {
        self.flush()?;
        let checksum = format!("{:08x}", self.checksum.finalize());
        self.writer.append_key_value_metadata(KeyValue::new(CHECKSUM_KEY.to_owned(), checksum));
        self.writer.close().map(drop)
    }
}

/// Clears the values after they were written.
fn write<T>(written: Result<usize, ParquetError>, all: &mut Vec<T>) -> Result<(), ParquetError> {
    written?;
    all.clear();
    Ok(())
}

#[cfg(feature = "zstd")]
fn compression(is_compressed: bool) -> Compression {
    if is_compressed { Compression::ZSTD(Default::default()) } else { Compression::UNCOMPRESSED }
}

/// Without the feature, the handler rejects the setting.
#[cfg(not(feature = "zstd"))]
fn compression(_: bool) -> Compression {
    Compression::UNCOMPRESSED
}

fn field(name: &str, column: Column) -> Result<Arc<Type>, ParquetError> {
    let is_metadata = METADATA.iter().any(|(own, _)| *own == name);
    let (physical, logical) = match column {
        Column::Int if name == METADATA[TIME].0 => {
            (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS)))
        }
        Column::Bool => (Physical::BOOLEAN, None),
        Column::Int => (Physical::INT64, None),
        Column::Uint => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Column::Float32 => (Physical::FLOAT, None),
        Column::Float64 => (Physical::DOUBLE, None),
        Column::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Column::Bytes => (Physical::BYTE_ARRAY, None),
        Column::Json => (Physical::BYTE_ARRAY, Some(LogicalType::Json)),
    };
    let repetition = if is_metadata { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    let field = Type::primitive_type_builder(name, physical).with_logical_type(logical).with_repetition(repetition);
    Ok(Arc::new(field.build()?))
}

/// Calls `each` with the rows of a file, until it returns false. Skips row groups without a message
/// of these times. The error describes the damage.
pub(crate) fn read(path: &Path, times: &RangeInclusive<i64>, each: EachRow<'_>) -> Result<(), String> {
    // The library may panic on a damaged file.
    let read = catch_unwind(AssertUnwindSafe(|| read_rows(path, times, each)));
    read.unwrap_or_else(|_| Err("it is damaged".to_owned()))
}

fn read_rows(path: &Path, times: &RangeInclusive<i64>, each: EachRow<'_>) -> Result<(), String> {
    let text = |error: ParquetError| error.to_string();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let reader = SerializedFileReader::new(file).map_err(text)?;
    let metadata = reader.metadata();
    let (layout, expected) = layout_of(metadata.file_metadata().key_value_metadata())
        .ok_or("it was not written by a collector, or is damaged")?;
    let (mut checksum, mut bytes, mut is_whole) = (crc32fast::Hasher::new(), Vec::new(), true);
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let rows = usize::try_from(group.num_rows()).ok().filter(|rows| *rows <= GROUP_ROWS);
        let rows = rows.ok_or("a row group is too large")?;
        if group.num_columns() != layout.columns.len() {
            return Err("it has other columns than it says".to_owned());
        }
        if let Some(Statistics::Int64(of)) = group.column(TIME).statistics()
            && (of.max_opt().is_some_and(|last| last < times.start())
                || of.min_opt().is_some_and(|first| first > times.end()))
        {
            is_whole = false;
            continue;
        }
        let group = reader.get_row_group(number).map_err(text)?;
        let mut columns = Vec::with_capacity(layout.columns.len());
        for (at, (_, column)) in layout.columns.iter().enumerate() {
            let mut values = Values { levels: Vec::new(), data: Data::of(*column) };
            let read = group.get_column_reader(at).map_err(text)?;
            let counted = values.fill(read, rows).map_err(text)?;
            if counted != rows {
                return Err(format!("{counted} of {rows} rows have '{}'", layout.columns[at].0));
            }
            columns.push((values, 0));
        }
        for row in 0..rows {
            let mut cells = Vec::with_capacity(columns.len());
            for ((values, next), (name, column)) in columns.iter_mut().zip(&layout.columns) {
                let is_there = values.levels.get(row).is_none_or(|level| *level > 0);
                let cell = if is_there { values.data.cell(*column, *next) } else { Some(CellValue::Absent) };
                *next += usize::from(is_there);
                cells.push(cell.ok_or_else(|| format!("'{name}' is damaged"))?);
            }
            bytes.clear();
            layout.encode(cells.iter(), &mut bytes).map_err(|error| error.to_string())?;
            checksum.update(&bytes);
            if !each(&layout, &cells) {
                return Ok(());
            }
        }
    }
    match is_whole && checksum.finalize() != expected {
        true => Err("its rows are not as they were written".to_owned()),
        false => Ok(()),
    }
}

impl Values {
    /// Reads `rows` rows of a column. Returns the number of rows read. A column with a value in
    /// each row has no levels.
    fn fill(&mut self, reader: ColumnReader, rows: usize) -> Result<usize, ParquetError> {
        let levels = Some(&mut self.levels);
        let read = match (reader, &mut self.data) {
            (ColumnReader::BoolColumnReader(mut of), Data::Bool(all)) => of.read_records(rows, levels, None, all)?,
            (ColumnReader::Int64ColumnReader(mut of), Data::Int(all)) => of.read_records(rows, levels, None, all)?,
            (ColumnReader::FloatColumnReader(mut of), Data::Float(all)) => of.read_records(rows, levels, None, all)?,
            (ColumnReader::DoubleColumnReader(mut of), Data::Double(all)) => {
                of.read_records(rows, levels, None, all)?
            }
            (ColumnReader::ByteArrayColumnReader(mut of), Data::Bytes(all)) => {
                of.read_records(rows, levels, None, all)?
            }
            _ => return Err(ParquetError::General("a column has another type than it says".to_owned())),
        };
        Ok(read.0)
    }
}

fn layout_of(metadata: Option<&Vec<KeyValue>>) -> Option<(Layout, u32)> {
    let metadata = metadata?;
    let value = |key: &str| metadata.iter().find(|of| of.key == key)?.value.clone();
    let columns: Vec<(String, String)> = serde_json::from_str(&value(COLUMNS_KEY)?).ok()?;
    let columns = columns.into_iter().map(|(name, content)| Some((name, content_of(&content)?)));
    let layout = Layout { type_name: value(TYPE_KEY)?, columns: columns.collect::<Option<_>>()? };
    let checksum = u32::from_str_radix(&value(CHECKSUM_KEY)?, 16).ok()?;
    layout.has_metadata().then_some((layout, checksum))
}
