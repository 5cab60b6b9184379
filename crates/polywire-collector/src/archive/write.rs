//! Writes entries into an archive, in transactions.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params, params_from_iter, types::Value};

use super::{APPLICATION, ArchiveError, CHECKSUM, VERSION, checksum, is_archive, quoted, retain};
use crate::{
    CellValue, Column, Columns, Entry, HandlerError, JsonText,
    columns::{METADATA, float_text, metadata},
    json::PerType,
    retention::Retention,
};

/// The maximum number of columns of a table, over all versions of its type. SQLite has at most
/// 2000.
const MAX_COLUMNS: usize = 1900;

/// The maximum number of characters of a name in the database.
const MAX_NAME: usize = 200;

/// The number of prepared statements that are cached.
const STATEMENTS: usize = 256;

/// How often old messages are searched for, after there was nothing more to remove.
const LOOK: Duration = Duration::from_secs(1);

const SETUP: &str = "
    CREATE TABLE polywire_types (type TEXT PRIMARY KEY, name TEXT NOT NULL);
    CREATE TABLE polywire_columns (
        type TEXT NOT NULL, path TEXT NOT NULL, content TEXT NOT NULL, name TEXT NOT NULL,
        PRIMARY KEY (type, path, content)
    );
";

/// An archive that is open for writing.
pub(crate) struct ArchiveWriter {
    path: PathBuf,
    connection: Connection,
    tables: PerType<Table>,
    json: JsonText,
    retention: Retention,
    /// The time of the last search for old messages, and whether there is more to remove.
    retained: Option<(Instant, bool)>,
    /// Whether a transaction is open.
    is_open: bool,
}

/// The table of one version of a type.
struct Table {
    columns: Columns,
    target: Target,
}

/// The table in the database for the rows of one version of a type.
pub(super) struct Target {
    name: String,
    /// The columns in the database with their types; the metadata columns come first.
    columns: Vec<(String, Column)>,
    insert: String,
}

impl ArchiveWriter {
    /// Opens an archive, and creates it and its folder if they do not exist.
    pub fn open(path: &Path, retention: Retention) -> Result<ArchiveWriter, ArchiveError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let failed = |cause: std::io::Error| ArchiveError::Database { path: path.into(), cause: cause.to_string() };
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let open = || -> Result<Connection, rusqlite::Error> {
            let connection = Connection::open(path)?;
            connection.set_prepared_statement_cache_capacity(STATEMENTS);
            Ok(connection)
        };
        let wrong = |cause: rusqlite::Error| ArchiveError::of(path, &cause);
        let connection = open().map_err(wrong)?;
        if !is_archive(&connection, path)? {
            // Allows the file to shrink. This setting must be made before the first table is
            // created.
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(wrong)?;
            setup(&connection).map_err(wrong)?;
        }
        // Committed data is on the disk, and readers do not wait for the writer.
        connection.pragma_update(None, "journal_mode", "WAL").map_err(wrong)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(wrong)?;
        if !retention.is_for_ever() {
            retain::prepare(&connection).map_err(wrong)?;
        }
        Ok(ArchiveWriter {
            path: path.to_owned(),
            connection,
            tables: PerType::default(),
            json: JsonText::default(),
            retention,
            retained: None,
            is_open: false,
        })
    }

    /// Adds an entry, unless it exists already.
    pub fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        if !self.is_open {
            self.connection.execute_batch("BEGIN IMMEDIATE").map_err(|cause| failed(&self.path, &cause))?;
            self.is_open = true;
        }
        let (connection, shape) = (&self.connection, entry.value.shape());
        let make = || {
            let columns = Columns::of(shape.schema());
            let target = Target::find(connection, entry.type_name(), columns.iter())?;
            if !self.retention.is_for_ever() {
                retain::prepare_table(connection, &target.name)?;
            }
            Ok::<_, NoTable>(Table { columns, target })
        };
        let table = self.tables.get(shape, || make().map_err(|error| error.of(&self.path)))?;
        let row = table.columns.row(entry, &mut self.json)?;
        let writer = entry.origin.writer.to_string();
        let cells = metadata(entry, &writer).into_iter().chain(row);
        table.target.insert(connection, cells).map_err(|cause| failed(&self.path, &cause))
    }

    /// Commits what was written, and removes old messages.
    pub fn commit(&mut self) -> Result<(), HandlerError> {
        if self.is_open {
            retain::remove_surplus(&self.connection, self.retention).map_err(|cause| failed(&self.path, &cause))?;
            self.connection.execute_batch("COMMIT").map_err(|cause| failed(&self.path, &cause))?;
            self.is_open = false;
        }
        let is_due = self.retained.is_none_or(|(when, is_more)| is_more || when.elapsed() >= LOOK);
        if is_due && !self.retention.is_for_ever() {
            let is_more = retain::step(&self.connection, self.retention).map_err(|cause| failed(&self.path, &cause))?;
            self.retained = Some((Instant::now(), is_more));
        }
        Ok(())
    }
}

/// Returns the error of a single entry as `Refused`, and any other one as an error of the archive.
fn failed(path: &Path, cause: &rusqlite::Error) -> HandlerError {
    match cause.sqlite_error_code() {
        Some(ErrorCode::TooBig) => HandlerError::Refused(format!("SQLite: {cause}")),
        _ => HandlerError::Failed(format!("{}: {cause}", path.display())),
    }
}

pub(super) fn setup(connection: &Connection) -> rusqlite::Result<()> {
    let marks = format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};");
    connection.execute_batch(&format!("BEGIN IMMEDIATE; {SETUP} {marks} COMMIT;"))
}

/// Why there is no table for a type.
pub(super) enum NoTable {
    Database(rusqlite::Error),
    TooManyColumns,
}

impl From<rusqlite::Error> for NoTable {
    fn from(cause: rusqlite::Error) -> NoTable {
        NoTable::Database(cause)
    }
}

impl NoTable {
    pub fn of(self, path: &Path) -> HandlerError {
        match self {
            NoTable::Database(cause) => failed(path, &cause),
            NoTable::TooManyColumns => {
                HandlerError::Refused(format!("the versions of its type have more than {MAX_COLUMNS} columns"))
            }
        }
    }
}

impl Target {
    /// Finds the table of a type, or creates it, and adds missing columns.
    pub fn find<'a>(
        connection: &Connection,
        type_name: &str,
        columns: impl Iterator<Item = (&'a str, Column)>,
    ) -> Result<Target, NoTable> {
        let find = "SELECT name FROM polywire_types WHERE type = ?1";
        let found: Option<String> = connection.query_row(find, [type_name], |row| row.get(0)).optional()?;
        let name = match found {
            Some(name) => name,
            None => make_table(connection, type_name)?,
        };
        let mut all: Vec<_> = METADATA.iter().map(|(name, column)| ((*name).to_owned(), *column)).collect();
        for (path, column) in columns {
            all.push((column_name(connection, type_name, &name, path, column)?, column));
        }
        let names: Vec<String> = all.iter().map(|(name, _)| name.as_str()).chain([CHECKSUM]).map(quoted).collect();
        let places = vec!["?"; names.len()].join(", ");
        let insert = format!("INSERT OR IGNORE INTO {} ({}) VALUES ({places})", quoted(&name), names.join(", "));
        Ok(Target { name, columns: all, insert })
    }

    /// Adds a row, unless it exists already.
    pub fn insert<'a>(
        &self,
        connection: &Connection,
        cells: impl Iterator<Item = CellValue<'a>>,
    ) -> rusqlite::Result<()> {
        let mut values: Vec<Value> = self.columns.iter().zip(cells).map(|((_, of), cell)| value(*of, cell)).collect();
        let names = self.columns.iter().map(|(name, _)| name.as_str());
        values.push(Value::Integer(checksum(&self.name, names.zip(&values))));
        connection.prepare_cached(&self.insert)?.execute(params_from_iter(&values)).map(drop)
    }
}

fn make_table(connection: &Connection, type_name: &str) -> rusqlite::Result<String> {
    let taken = names(connection, "SELECT name FROM polywire_types", [])?;
    let lower = type_name.to_ascii_lowercase();
    // SQLite reserves the prefix `sqlite_`, and the archive reserves the other one.
    let is_reserved = lower.starts_with("sqlite_") || lower.starts_with("polywire_");
    let wanted = if is_reserved { format!("type {type_name}") } else { type_name.to_owned() };
    let name = free_name(&wanted, |name| is_in(&taken, name));
    connection.execute("INSERT INTO polywire_types VALUES (?1, ?2)", [type_name, &name])?;
    let (table, once, time) =
        (quoted(&name), quoted(&format!("polywire_once {name}")), quoted(&format!("polywire_time {name}")));
    connection.execute_batch(&format!(
        "CREATE TABLE {table} (
            _topic TEXT NOT NULL, _writer TEXT NOT NULL, _incarnation NOT NULL, _sequence NOT NULL,
            _timestamp_ns INTEGER NOT NULL, _kind TEXT NOT NULL, _checksum INTEGER NOT NULL
         );
         CREATE UNIQUE INDEX {once} ON {table} (_writer, _incarnation, _sequence);
         CREATE INDEX {time} ON {table} (_topic, _timestamp_ns);"
    ))?;
    Ok(name)
}

/// Finds the column of a member, or adds it. A member whose type has changed has a column of its
/// own for each type.
fn column_name(
    connection: &Connection,
    type_name: &str,
    table: &str,
    path: &str,
    column: Column,
) -> Result<String, NoTable> {
    let content = format!("{column:?}").to_ascii_lowercase();
    let find = "SELECT name FROM polywire_columns WHERE type = ?1 AND path = ?2 AND content = ?3";
    let mut statement = connection.prepare_cached(find)?;
    if let Some(name) = statement.query_row(params![type_name, path, content], |row| row.get(0)).optional()? {
        return Ok(name);
    }
    let taken = names(connection, "SELECT name FROM polywire_columns WHERE type = ?1", [type_name])?;
    if taken.len() >= MAX_COLUMNS {
        return Err(NoTable::TooManyColumns);
    }
    let own = METADATA.iter().map(|(name, _)| *name).chain([CHECKSUM]);
    let is_taken = |name: &str| is_in(&taken, name) || own.clone().any(|own| own.eq_ignore_ascii_case(name));
    // SQLite has three own names for the row number.
    let is_own = |name: &str| ["rowid", "oid", "_rowid_"].iter().any(|own| own.eq_ignore_ascii_case(name));
    let name = free_name(path, |name| is_taken(name) || is_own(name));
    connection.execute("INSERT INTO polywire_columns VALUES (?1, ?2, ?3, ?4)", [type_name, path, &content, &name])?;
    connection.execute_batch(&format!(
        "ALTER TABLE {} ADD COLUMN {} {}",
        quoted(table),
        quoted(&name),
        declared(column)
    ))?;
    Ok(name)
}

/// Returns the declared type of a column: none, if SQLite would convert some values of the type.
fn declared(column: Column) -> &'static str {
    match column {
        Column::Bool => "BOOLEAN",
        Column::Int => "INTEGER",
        Column::Uint => "",
        Column::Float32 | Column::Float64 => "REAL",
        Column::Text | Column::Json => "TEXT",
        Column::Bytes => "BLOB",
    }
}

fn names(connection: &Connection, sql: &str, of: impl rusqlite::Params) -> rusqlite::Result<Vec<String>> {
    connection.prepare_cached(sql)?.query_map(of, |row| row.get(0))?.collect()
}

/// Returns whether a name is taken. SQLite ignores the case of ASCII letters.
fn is_in(taken: &[String], name: &str) -> bool {
    taken.iter().any(|taken| taken.eq_ignore_ascii_case(name))
}

/// Returns the wanted name, or one with the same beginning that is not taken. One of the names with
/// a number must be free.
fn free_name(wanted: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let wanted: String = wanted.chars().take(MAX_NAME).collect();
    let numbered = (2..).map(|number| format!("{wanted}~{number}"));
    [wanted.clone()].into_iter().chain(numbered).find(|name| !is_taken(name)).unwrap_or(wanted)
}

/// Stores an unsigned number. SQLite's integers end at 2^63 - 1. Larger ones are texts of 20
/// digits, which SQLite sorts after all integers, in numerical order.
fn unsigned(number: u64) -> Value {
    i64::try_from(number).map_or_else(|_| Value::Text(format!("{number:020}")), Value::Integer)
}

/// Stores a floating-point number. NaN is stored as text, because SQLite would turn it into NULL.
fn float(number: f64) -> Value {
    if number.is_nan() { Value::Text(float_text(number, String::new())) } else { Value::Real(number) }
}

pub(super) fn value(column: Column, cell: CellValue<'_>) -> Value {
    match cell {
        CellValue::Absent => Value::Null,
        CellValue::Bool(truth) => Value::Integer(truth.into()),
        // The value of an enum literal without a name, or an unpaired surrogate.
        CellValue::Int(number) if column == Column::Text => Value::Text(number.to_string()),
        CellValue::Int(number) => Value::Integer(number),
        CellValue::Uint(number) => unsigned(number),
        CellValue::Float32(number) => float(number.into()),
        CellValue::Float64(number) => float(number),
        CellValue::Text(text) => Value::Text(text.to_owned()),
        CellValue::Char(character) => Value::Text(character.to_string()),
        CellValue::Bytes(bytes) => Value::Blob(bytes.to_vec()),
        CellValue::Json(text) => Value::Text(text),
    }
}
