//! The kind `parquet`: columnar files, for analysis.
//!
//! Rows are stored in a journal for each table, which is converted into a Parquet file when it is
//! large or old enough. Both have the same name apart from the extension, so that a start after a
//! kill continues with the journals.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use super::{Handler, Kind, file::file_name};
use crate::{
    Columns, Entry, Expects, HandlerError, JsonText, Setting, Settings,
    columnar::{Journal, StoredSequences, ending, file, files, journal, number},
    columns::metadata,
    json::PerType,
    retention::{RETENTION, Retention},
    table::Layout,
};

/// The maximum number of types and versions of types, and so of open files.
const MAX_TABLES: usize = 256;

/// The default size and age at which a journal is converted into a Parquet file.
const ROTATE: (u64, Duration) = (64 << 20, Duration::from_secs(3600));

/// The maximum size of a journal in bytes, regardless of the settings.
const MAX_BYTES: u64 = 4 << 30;

/// How often old files are searched for.
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
    /// The columns of each type, and the index of its table.
    known: PerType<(Columns, usize)>,
    tables: Vec<Table>,
    json: JsonText,
    row: Vec<u8>,
    looked: Option<Instant>,
}

/// The table of one version of a type.
struct Table {
    layout: Layout,
    sequences: StoredSequences,
    /// The journal, created for the first row.
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
        if !table.sequences.insert(&writer, entry.sequence) {
            return Ok(());
        }
        let journal = match &mut table.journal {
            Some(journal) => journal,
            none => none.insert(Journal::create(&free_path(folder, &table.layout)?, &table.layout, &table.sequences)?),
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
            rotate: (bytes.min(MAX_BYTES), settings.seconds("rotate_seconds").unwrap_or(ROTATE.1)),
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

    /// Continues with the journals that were left behind.
    fn recover(&mut self) -> Result<(), HandlerError> {
        let failed = |cause| HandlerError::file(&self.folder, &cause);
        fs::create_dir_all(&self.folder).map_err(failed)?;
        let mut paths: Vec<PathBuf> = files(&self.folder).map_err(failed)?.into_iter().collect();
        paths.sort_by_key(|path| number(path));
        // The newest journal of a table continues, and its `sequences` includes the older ones.
        for path in paths.into_iter().rev() {
            let remove = || fs::remove_file(&path).map_err(|cause| HandlerError::file(&path, &cause));
            match ending(&path) {
                "part" => remove()?,
                // The journal has been converted, and was about to be removed.
                journal::ENDING if path.with_extension(file::ENDING).exists() => remove()?,
                journal::ENDING => self.take_up(&path)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn take_up(&mut self, path: &Path) -> Result<(), HandlerError> {
        let mut sequences = StoredSequences::default();
        let Some(journal) = Journal::recover(path, &mut sequences)? else { return Ok(()) };
        let has_room = self.tables.len() < MAX_TABLES && self.tables.iter().all(|of| of.layout != journal.layout);
        match has_room {
            true => self.tables.push(Table { layout: journal.layout.clone(), sequences, journal: Some(journal) }),
            false if journal.rows > 0 => file::convert(path, self.is_compressed)?,
            false => fs::remove_file(path).map_err(|cause| HandlerError::file(path, &cause))?,
        }
        Ok(())
    }

    /// Converts a table's journal into a Parquet file. The next journal is created first, because
    /// it records the sequence numbers that the table has.
    fn rotate(&mut self, at: usize) -> Result<(), HandlerError> {
        let Some(table) = self.tables.get_mut(at) else { return Ok(()) };
        let Some(journal) = table.journal.as_mut().filter(|journal| journal.rows > 0) else { return Ok(()) };
        journal.sync()?;
        let path = journal.path.clone();
        table.journal =
            Some(Journal::create(&free_path(&self.folder, &table.layout)?, &table.layout, &table.sequences)?);
        file::convert(&path, self.is_compressed)
    }

    /// Removes the oldest files while the limits are exceeded.
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
    /// Converts all journals into files, unless an error occurred: then they are continued later.
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

/// Returns the index of a table, which is added if it is new.
fn place(tables: &mut Vec<Table>, layout: Layout) -> Result<usize, HandlerError> {
    if let Some(at) = tables.iter().position(|table| table.layout == layout) {
        return Ok(at);
    }
    if tables.len() >= MAX_TABLES {
        return Err(HandlerError::Refused(format!("there are {MAX_TABLES} types or versions of one already")));
    }
    tables.push(Table { layout, sequences: StoredSequences::default(), journal: None });
    Ok(tables.len() - 1)
}

/// Returns a free path for the next journal of a type: `TYPE.7.journal`.
fn free_path(folder: &Path, layout: &Layout) -> Result<PathBuf, HandlerError> {
    let name = file_name(&layout.type_name);
    let failed = |cause| HandlerError::file(folder, &cause);
    let taken = files(folder).map_err(failed)?;
    let is_own = |path: &&PathBuf| path.with_extension("").with_extension("").file_name() == Some(name.as_ref());
    let last = taken.iter().filter(is_own).map(|path| number(path)).max().unwrap_or(0);
    Ok(folder.join(format!("{name}.{}.{}", last.saturating_add(1), journal::ENDING)))
}
