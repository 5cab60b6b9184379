//! Tables in files: journals of rows (`journal`), which are converted into Parquet files (`file`).
//! `sequences` tracks the messages that a table has.

#![cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "queries alone read files"))]

pub(crate) mod file;
pub(crate) mod journal;
mod rows;
mod sequences;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use self::journal::{End, Reader};
pub(crate) use self::{journal::Journal, sequences::StoredSequences};
use crate::table::EachRow;

/// Returns the number in the name of a file.
pub(crate) fn number(path: &Path) -> u64 {
    ending(&path.with_extension("")).parse().unwrap_or(0)
}

pub(crate) fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

/// Returns the files in a folder that a handler has created, by name.
pub(crate) fn files(folder: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_numbered = path.file_stem().and_then(|stem| stem.to_str()?.rsplit_once('.')?.1.parse::<u64>().ok());
        if is_numbered.is_some() && matches!(ending(&path), file::ENDING | journal::ENDING | "damaged" | "part") {
            found.insert(path);
        }
    }
    Ok(found)
}

/// Returns the Parquet files and journals of a folder in the order of their numbers, without
/// journals that have been converted; or `path` itself if it is a file.
pub(crate) fn parts(path: &Path) -> io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut parts = BTreeMap::new();
    for path in files(path)? {
        let stem = path.with_extension("");
        if matches!(ending(&path), file::ENDING | journal::ENDING) {
            // If both exist, the Parquet file sorts after the journal and replaces it.
            parts.insert((stem.with_extension(""), number(&path)), path);
        }
    }
    Ok(parts.into_values().collect())
}

/// Calls `each` with the rows of a part, until it returns false. May leave out rows of other times.
/// The error describes the damage.
pub(crate) fn read(path: &Path, times: &RangeInclusive<i64>, each: EachRow<'_>) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    if ending(path) == file::ENDING {
        return file::read(path, times, each);
    }
    let opened = match File::open(path) {
        // The journal has been converted meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return file::read(&path.with_extension(file::ENDING), times, each);
        }
        opened => opened.map_err(text)?,
    };
    let is_written = opened.try_lock_shared().is_err();
    opened.unlock().map_err(text)?;
    let mut reader = Reader::of(opened);
    let Some(head) = reader.head().map_err(text)? else { return Err("it is no journal of a collector".to_owned()) };
    while let Some(row) = reader.next().map_err(text)? {
        let cells = head.layout.decode(row).ok_or("a row has other columns than it says")?;
        if !each(&head.layout, &cells) {
            return Ok(());
        }
    }
    match reader.end {
        End::Within if !is_written => Err(format!("it ends within a row, at byte {}", reader.at)),
        End::Damage => Err(format!("from byte {} on it is damaged", reader.at)),
        _ => Ok(()),
    }
}
