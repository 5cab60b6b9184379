//! Archives in SQLite: a table for each type, with a column for each member.
//!
//! `polywire_types` contains the table of each type, `polywire_columns` the column of each member.
//! Names of types and members are data; as identifiers they are always quoted. Each row has a
//! checksum of its values, which reveals damage that SQLite cannot detect.

mod downsample;
#[cfg(feature = "mcap")]
mod mcap;
mod read;
#[cfg(feature = "foxglove")]
mod recent;
mod retain;
mod rows;
mod write;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, types::Value};

pub use read::{Archive, ArchiveCheck, Series};
#[cfg(feature = "foxglove")]
pub(crate) use recent::Message;
pub use rusqlite::types::Value as ArchiveValue;
pub(crate) use write::ArchiveWriter;

use crate::HandlerError;

/// The kinds of handlers whose archives [`Archive`] reads.
#[cfg(feature = "foxglove")]
pub(crate) const HANDLERS: [&str; 3] = ["sqlite", "parquet", "mcap"];

/// `application_id` of an archive: the letters `PWAR`.
const APPLICATION: i32 = 0x5057_4152;

/// `user_version`: the version of the format.
const VERSION: i32 = 1;

/// The column after those of [`METADATA`](crate::columns::METADATA).
const CHECKSUM: &str = "_checksum";

/// Why an archive cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The file is not an archive, or is one of a newer version.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Why the file is not a readable archive.
        reason: String,
    },
    /// SQLite reports an error, or the file is damaged.
    #[error("{}: {cause}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        cause: String,
    },
    /// A query refers to something that does not exist, or attempts more than reading.
    #[error("{0}")]
    Query(String),
}

impl ArchiveError {
    fn of(path: &Path, cause: &rusqlite::Error) -> ArchiveError {
        let (path, cause) = (path.to_owned(), cause.to_string());
        match cause.contains("file is not a database") {
            true => ArchiveError::Format { path, reason: "it is no SQLite database".to_owned() },
            false => ArchiveError::Database { path, cause },
        }
    }
}

impl From<ArchiveError> for HandlerError {
    fn from(error: ArchiveError) -> HandlerError {
        match error {
            ArchiveError::Format { .. } => HandlerError::Setting(error.to_string()),
            _ => HandlerError::Failed(error.to_string()),
        }
    }
}

/// Returns whether a database is an archive that this version can read. False for an empty
/// database.
fn is_archive(connection: &Connection, path: &Path) -> Result<bool, ArchiveError> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let read = || Ok((pragma("application_id")?, pragma("user_version")?, pragma("schema_version")?));
    let (application, version, schema) = read().map_err(|cause| ArchiveError::of(path, &cause))?;
    let format = |reason: String| Err(ArchiveError::Format { path: path.to_owned(), reason });
    match (application, version) {
        (APPLICATION, VERSION) => Ok(true),
        (APPLICATION, version) => {
            format(format!("an archive of version {version}, and this program knows version {VERSION}"))
        }
        _ if schema == 0 => Ok(false),
        _ => format("a database of another program".to_owned()),
    }
}

fn no_member(member: &str) -> ArchiveError {
    ArchiveError::Query(format!("no type in the archive has a member '{member}'"))
}

fn no_message(topic: &str, member: &str) -> ArchiveError {
    ArchiveError::Query(format!("no message of '{topic}' with '{member}' in this time"))
}

/// Quotes a name as an SQL identifier.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the checksum of a row: of the names and values of all columns that have a value. A row
/// keeps its checksum when its table gets another column.
fn checksum<'a>(table: &str, row: impl Iterator<Item = (&'a str, &'a Value)>) -> i64 {
    let mut hasher = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    add(table.as_bytes());
    for (name, value) in row {
        let (tag, bytes): (u8, &[u8]) = match value {
            Value::Null => continue,
            Value::Integer(number) => (1, &number.to_le_bytes()),
            // SQLite does not store the sign of zero.
            Value::Real(number) => (2, &(number + 0.0).to_le_bytes()),
            Value::Text(text) => (3, text.as_bytes()),
            Value::Blob(bytes) => (4, bytes),
        };
        add(name.as_bytes());
        add(&[tag]);
        add(bytes);
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    i64::from_le_bytes(first)
}
