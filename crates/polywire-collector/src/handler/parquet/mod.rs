//! The kind `parquet`: files of columns, for analysis.
//!
//! Rows are stored in a journal for each table (`journal`), which becomes a Parquet file (`file`)
//! when it is large or old enough. Both have the same name but for the ending, so that a start
//! after a kill goes on where the journals end. `seen` leaves out what a source sends again.

#![cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "queries alone read files"))]

mod file;
mod journal;
mod rows;
mod seen;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use self::{
    journal::{End, Journal, Reader},
    seen::Seen,
};
use super::{Handler, Kind, file::file_name};
use crate::{
    Columns, Entry, Expects, HandlerError, JsonText, Setting, Settings,
    columns::metadata,
    json::PerType,
    retention::{RETENTION, Retention},
    table::{EachRow, Layout},
};

/// The most types and versions of types, and with that open files.
const MOST_TABLES: usize = 256;

/// When a journal becomes a Parquet file, if nothing else is set.
const ROTATE: (u64, Duration) = (64 << 20, Duration::from_secs(3600));

/// The largest journal, whatever is set.
const MOST_BYTES: u64 = 4 << 30;

/// How often old files are looked for.
const LOOK: Duration = Duration::from_secs(10);

pub(super) static KIND: Kind = Kind {
    name: "parquet",
    summary: "Parquet files with a column for each member, a file for each type and version",
    settings: &{
        let [bytes, time] = RETENTION;
        [
            Setting { name: "path", expects: Expects::Required, summary: "the folder of the files" },
            Setting {
                name: "rotate_bytes",
                expects: Expects::Count,
                summary: "makes a file after so many bytes of rows; 64 MiB is the default, 4 GiB the most",
            },
            Setting {
                name: "rotate_seconds",
                expects: Expects::Seconds,
                summary: "makes a file after this time; 3600 is the default, 0 never",
            },
            bytes,
            time,
            Setting { name: "zstd", expects: Expects::Truth, summary: "compresses files; true is the default" },
        ]
    },
    open: |settings, _| Ok(Box::new(Tables::open(settings)?)),
};

struct Tables {
    folder: PathBuf,
    rotate: (u64, Duration),
    retention: Retention,
    is_compressed: bool,
    /// The columns of each type, and the place of its table.
    known: PerType<(Columns, usize)>,
    tables: Vec<Table>,
    json: JsonText,
    row: Vec<u8>,
    looked: Option<Instant>,
}

/// A version of a type.
struct Table {
    layout: Layout,
    seen: Seen,
    /// Made for the first row.
    journal: Option<Journal>,
}

impl Handler for Tables {
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        let Tables { folder, known, tables, json, row, .. } = self;
        let shape = entry.value.shape();
        let make = || {
            let columns = Columns::of(shape.schema());
            let at = place(tables, Layout::of(entry.type_name(), &columns))?;
            Ok::<_, HandlerError>((columns, at))
        };
        let (columns, at) = known.get(shape, make)?;
        let (at, writer) = (*at, (entry.origin.writer.to_string(), entry.origin.incarnation));
        let Some(table) = tables.get_mut(at) else { return Ok(()) };
        let cells = columns.row(entry, json)?;
        row.clear();
        table.layout.encode(metadata(entry, &writer.0).iter().chain(&cells), row)?;
        if !table.seen.insert(&writer, entry.sequence) {
            return Ok(());
        }
        let journal = match &mut table.journal {
            Some(journal) => journal,
            none => none.insert(Journal::create(&free_path(folder, &table.layout)?, &table.layout, &table.seen)?),
        };
        journal.append(row)?;
        match journal.len() >= self.rotate.0 {
            true => self.rotate(at),
            false => Ok(()),
        }
    }

    fn sync(&mut self) -> Result<(), HandlerError> {
        self.tables.iter_mut().filter_map(|table| table.journal.as_mut()).try_for_each(Journal::sync)?;
        let most = self.rotate.1;
        let is_old = |table: &Table| table.journal.as_ref().is_some_and(|journal| journal.age() >= most);
        for at in 0..self.tables.len() {
            if !most.is_zero() && is_old(&self.tables[at]) {
                self.rotate(at)?;
            }
        }
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.remove_old()?;
        }
        Ok(())
    }
}

impl Tables {
    fn open(settings: &Settings) -> Result<Tables, HandlerError> {
        let zstd = settings.truth("zstd");
        if zstd == Some(true) && !cfg!(feature = "zstd") {
            return Err(HandlerError::Setting("'zstd' is not in this build: it needs the feature 'zstd'".into()));
        }
        let bytes = settings.count("rotate_bytes").filter(|bytes| *bytes > 0).unwrap_or(ROTATE.0);
        let mut tables = Tables {
            folder: settings.text("path").unwrap_or_default().into(),
            rotate: (bytes.min(MOST_BYTES), settings.seconds("rotate_seconds").unwrap_or(ROTATE.1)),
            retention: Retention::of(settings),
            is_compressed: zstd.unwrap_or(cfg!(feature = "zstd")),
            known: PerType::default(),
            tables: Vec::new(),
            json: JsonText::default(),
            row: Vec::new(),
            looked: None,
        };
        tables.recover()?;
        Ok(tables)
    }

    /// Goes on with the journals that were left behind.
    fn recover(&mut self) -> Result<(), HandlerError> {
        let failed = |cause| HandlerError::file(&self.folder, &cause);
        fs::create_dir_all(&self.folder).map_err(failed)?;
        let mut paths: Vec<PathBuf> = files(&self.folder).map_err(failed)?.into_iter().collect();
        paths.sort_by_key(|path| number(path));
        // The newest of a table goes on, and has what came before in its `seen`.
        for path in paths.into_iter().rev() {
            let remove = || fs::remove_file(&path).map_err(|cause| HandlerError::file(&path, &cause));
            match ending(&path) {
                "part" => remove()?,
                // It has become a file, and was about to be removed.
                journal::ENDING if path.with_extension(file::ENDING).exists() => remove()?,
                journal::ENDING => self.take_up(&path)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn take_up(&mut self, path: &Path) -> Result<(), HandlerError> {
        let mut seen = Seen::default();
        let Some(journal) = Journal::recover(path, &mut seen)? else { return Ok(()) };
        let has_room = self.tables.len() < MOST_TABLES && self.tables.iter().all(|of| of.layout != journal.layout);
        match has_room {
            true => self.tables.push(Table { layout: journal.layout.clone(), seen, journal: Some(journal) }),
            false if journal.rows > 0 => file::convert(path, self.is_compressed)?,
            false => fs::remove_file(path).map_err(|cause| HandlerError::file(path, &cause))?,
        }
        Ok(())
    }

    /// Makes a Parquet file of a table's journal. The next journal is there before, because it has
    /// what the table has seen.
    fn rotate(&mut self, at: usize) -> Result<(), HandlerError> {
        let Some(table) = self.tables.get_mut(at) else { return Ok(()) };
        let Some(journal) = table.journal.as_mut().filter(|journal| journal.rows > 0) else { return Ok(()) };
        journal.sync()?;
        let path = journal.path.clone();
        table.journal = Some(Journal::create(&free_path(&self.folder, &table.layout)?, &table.layout, &table.seen)?);
        file::convert(&path, self.is_compressed)
    }

    /// Removes the oldest files while there are too many or too old ones.
    fn remove_old(&self) -> Result<(), HandlerError> {
        if self.retention.is_for_ever() {
            return Ok(());
        }
        let failed = |cause| HandlerError::file(&self.folder, &cause);
        let mut found = Vec::new();
        for path in files(&self.folder).map_err(failed)? {
            let data = fs::metadata(&path).map_err(failed)?;
            found.push((data.modified().unwrap_or(SystemTime::UNIX_EPOCH), data.len(), path));
        }
        found.sort();
        let mut bytes = found.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
        for (time, size, path) in found {
            let is_old = time.elapsed().is_ok_and(|age| self.retention.time.is_some_and(|most| age > most));
            let is_too_much = self.retention.bytes.is_some_and(|most| bytes > most);
            if matches!(ending(&path), file::ENDING | "damaged") && (is_old || is_too_much) {
                fs::remove_file(&path).map_err(|cause| HandlerError::file(&path, &cause))?;
                bytes -= size;
            }
        }
        Ok(())
    }
}

impl Drop for Tables {
    /// Makes files of all journals, unless something went wrong: then they are taken up later.
    fn drop(&mut self) {
        let is_stored = |table: &Table| table.journal.as_ref().is_none_or(Journal::is_stored);
        if std::thread::panicking() || !self.tables.iter().all(is_stored) {
            return;
        }
        for at in 0..self.tables.len() {
            if let Err(error) = self.rotate(at) {
                log::warn!("the journal is taken up at the next start: {error}");
            }
        }
    }
}

/// The place of a table, which is added if it is new.
fn place(tables: &mut Vec<Table>, layout: Layout) -> Result<usize, HandlerError> {
    if let Some(at) = tables.iter().position(|table| table.layout == layout) {
        return Ok(at);
    }
    if tables.len() >= MOST_TABLES {
        return Err(HandlerError::Refused(format!("there are {MOST_TABLES} types or versions of one already")));
    }
    tables.push(Table { layout, seen: Seen::default(), journal: None });
    Ok(tables.len() - 1)
}

/// The name for the next journal of a type: `TYPE.7.journal`.
fn free_path(folder: &Path, layout: &Layout) -> Result<PathBuf, HandlerError> {
    let name = file_name(&layout.type_name);
    let failed = |cause| HandlerError::file(folder, &cause);
    let taken = files(folder).map_err(failed)?;
    let is_own = |path: &&PathBuf| path.with_extension("").with_extension("").file_name() == Some(name.as_ref());
    let last = taken.iter().filter(is_own).map(|path| number(path)).max().unwrap_or(0);
    Ok(folder.join(format!("{name}.{}.{}", last.saturating_add(1), journal::ENDING)))
}

/// The number in the name of a file.
fn number(path: &Path) -> u64 {
    ending(&path.with_extension("")).parse().unwrap_or(0)
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

/// The files of a folder that a handler has made, by name.
fn files(folder: &Path) -> io::Result<BTreeSet<PathBuf>> {
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
