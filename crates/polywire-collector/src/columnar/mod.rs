//! Tables in files: journals of rows (`journal`), of which Parquet files are made (`file`). `seen`
//! knows which messages a table has.

#![cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "queries alone read files"))]

pub(crate) mod file;
pub(crate) mod journal;
mod rows;
mod seen;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use self::journal::{End, Reader};
pub(crate) use self::{journal::Journal, seen::Seen};
use crate::table::EachRow;

/// The number in the name of a file.
pub(crate) fn number(path: &Path) -> u64 {
    ending(&path.with_extension("")).parse().unwrap_or(0)
}

pub(crate) fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

/// The files of a folder that a handler has made, by name.
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

/// The Parquet files and journals of a folder in the order of their numbers, a journal only if it
/// is no file yet; or the one file that `path` is.
pub(crate) fn parts(path: &Path) -> io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut parts = BTreeMap::new();
    for path in files(path)? {
        let stem = path.with_extension("");
        if matches!(ending(&path), file::ENDING | journal::ENDING) {
            // Of both, the file has the later name.
            parts.insert((stem.with_extension(""), number(&path)), path);
        }
    }
    Ok(parts.into_values().collect())
}

/// Calls `each` with the rows of a part, until it returns false; rows of other times may be left
/// out. The error says what is damaged.
pub(crate) fn read(path: &Path, times: &RangeInclusive<i64>, each: EachRow<'_>) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    if ending(path) == file::ENDING {
        return file::read(path, times, each);
    }
    let opened = match File::open(path) {
        // It has become a file meanwhile.
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
