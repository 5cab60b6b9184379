//! Archives that are not databases: folders of Parquet files, and MCAP files. Their rows are read
//! sequentially; for SQL queries they are copied into a temporary database.

use std::{
    collections::HashMap,
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, params};

#[cfg(feature = "mcap")]
use super::mcap;
use super::{
    ArchiveCheck, ArchiveError,
    read::{EachPoint, number, point, rows},
    write::{Target, setup, value},
};
#[cfg(feature = "parquet")]
use crate::columnar;
use crate::{
    CellValue, Column,
    table::{EachRow, Layout},
};

/// The maximum size of the temporary database in bytes, which is on the disk.
const MAX_BYTES: u64 = 64 << 30;

/// The memory for the cache of the temporary database, in bytes.
const MEMORY_BYTES: u64 = 64 << 20;

const PAGE: u64 = 4096;

/// The files that the rows are read from.
pub(super) struct Rows {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Parquet,
    Mcap,
}

/// Which rows are requested. A reader may return other rows, too.
#[cfg_attr(not(feature = "mcap"), allow(dead_code, reason = "the other readers look at times alone"))]
pub(crate) struct Wanted<'a> {
    /// The topic; `None` for all topics.
    pub topic: Option<&'a str>,
    pub times: RangeInclusive<i64>,
}

impl Wanted<'_> {
    pub const ALL: Wanted<'static> = Wanted { topic: None, times: i64::MIN..=i64::MAX };
}

impl Rows {
    /// Finds the files at this path; `None` if it must be a database.
    pub fn at(path: &Path) -> Result<Option<Rows>, ArchiveError> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let (kind, feature) = match ending {
            _ if path.is_dir() => (Kind::Parquet, cfg!(feature = "parquet")),
            Some("parquet" | "journal") => (Kind::Parquet, cfg!(feature = "parquet")),
            Some("mcap") => (Kind::Mcap, cfg!(feature = "mcap")),
            _ => return Ok(None),
        };
        let rows = Rows { path: path.to_owned(), kind };
        if !feature {
            let name = format!("{kind:?}").to_lowercase();
            return Err(rows.is_none(format!("this build does not read it: it needs the feature '{name}'")));
        }
        match rows.parts() {
            Ok(parts) if parts.is_empty() => Err(rows.is_none("there are no files of a collector".to_owned())),
            Ok(_) => Ok(Some(rows)),
            Err(cause) => Err(rows.is_none(cause.to_string())),
        }
    }

    fn is_none(&self, reason: String) -> ArchiveError {
        ArchiveError::Format { path: self.path.clone(), reason }
    }

    /// Returns the files, those with older messages first.
    fn parts(&self) -> io::Result<Vec<PathBuf>> {
        match self.kind {
            #[cfg(feature = "parquet")]
            Kind::Parquet => columnar::parts(&self.path),
            #[cfg(feature = "mcap")]
            Kind::Mcap => mcap::parts(&self.path),
            #[allow(unreachable_patterns, reason = "a build without one of the features")]
            _ => Ok(Vec::new()),
        }
    }

    #[allow(unused_variables, reason = "a build without one of the features")]
    fn read(&self, part: &Path, wanted: &Wanted<'_>, each: EachRow<'_>) -> Result<(), String> {
        match self.kind {
            #[cfg(feature = "parquet")]
            Kind::Parquet => columnar::read(part, &wanted.times, each),
            #[cfg(feature = "mcap")]
            Kind::Mcap => mcap::read(part, wanted, each),
            #[allow(unreachable_patterns, reason = "a build without one of the features")]
            _ => Ok(()),
        }
    }

    /// Calls `each` with all requested rows that can be read, until it returns false. Returns
    /// descriptions of the damage.
    pub fn scan(&self, wanted: &Wanted<'_>, each: EachRow<'_>) -> Result<Vec<String>, ArchiveError> {
        let parts = self.parts().map_err(|cause| self.is_none(cause.to_string()))?;
        let (mut damage, mut goes_on) = (Vec::new(), true);
        for part in parts {
            let read = self.read(&part, wanted, &mut |layout, cells| {
                goes_on = each(layout, cells);
                goes_on
            });
            if let Err(cause) = read {
                damage.push(format!("{}: {cause}", part.display()));
            }
            if !goes_on {
                break;
            }
        }
        Ok(damage)
    }

    /// Calls `each` with a member of a topic's messages, in the order of the files.
    pub fn member(
        &self,
        topic: &str,
        member: &str,
        times: RangeInclusive<i64>,
        each: EachPoint<'_>,
    ) -> Result<(), ArchiveError> {
        let (mut has_member, mut has_topic, mut place) = (false, false, Place::default());
        let wanted = Wanted { topic: Some(topic), times };
        let damage = self.scan(&wanted, &mut |layout, cells| {
            let Some(at) = place.of(layout, member) else { return true };
            has_member = true;
            let Some(time) = time_of(topic, &wanted.times, cells) else { return true };
            has_topic = true;
            let cell = cells.get(at).cloned().unwrap_or(CellValue::Absent);
            each(time, number(&value(layout.columns[at].1, cell)))
        })?;
        tell(&damage);
        match (has_member, has_topic) {
            // A row group outside the time range may have been skipped.
            (_, true) => Ok(()),
            (true, false) => Err(super::no_message(topic, member)),
            (false, false) if self.has_member(member)? => Err(super::no_message(topic, member)),
            (false, false) => Err(super::no_member(member)),
        }
    }

    /// Calls `each` with a member of a topic's messages, the oldest first.
    pub fn member_sorted(
        &self,
        topic: &str,
        member: &str,
        times: RangeInclusive<i64>,
        each: EachPoint<'_>,
    ) -> Result<(), ArchiveError> {
        let wrong = |cause: rusqlite::Error| ArchiveError::of(&self.path, &cause);
        let sorter = temporary().map_err(wrong)?;
        sorter.execute_batch("CREATE TABLE points (time INTEGER NOT NULL, number REAL); BEGIN").map_err(wrong)?;
        let mut failed = None;
        {
            let mut insert = sorter.prepare("INSERT INTO points VALUES (?1, ?2)").map_err(wrong)?;
            self.member(topic, member, times, &mut |time, number| {
                failed = insert.execute(params![time, number]).err();
                failed.is_none()
            })?;
        }
        if let Some(cause) = failed {
            return Err(wrong(cause));
        }
        let sql = "SELECT time, number FROM points ORDER BY time, rowid";
        rows(&sorter, sql, [], &mut |_, row| point(row, each)).map_err(wrong)
    }

    fn has_member(&self, member: &str) -> Result<bool, ArchiveError> {
        let (mut found, mut place) = (false, Place::default());
        self.scan(&Wanted::ALL, &mut |layout, _| {
            found = place.of(layout, member).is_some();
            !found
        })?;
        Ok(found)
    }

    /// Returns the latest time of a topic's messages with this member.
    pub fn newest(&self, topic: &str, member: &str) -> Result<Option<i64>, ArchiveError> {
        let (mut newest, mut place) = (None, Place::default());
        let wanted = Wanted { topic: Some(topic), ..Wanted::ALL };
        self.scan(&wanted, &mut |layout, cells| {
            let cell = place.of(layout, member).and_then(|at| cells.get(at));
            if cell.is_some_and(|cell| *cell != CellValue::Absent) {
                newest = newest.max(time_of(topic, &wanted.times, cells));
            }
            true
        })?;
        Ok(newest)
    }

    /// Checks the archive by reading all of it.
    pub fn check(&self) -> Result<ArchiveCheck, ArchiveError> {
        let mut check = ArchiveCheck::default();
        let damage = self.scan(&Wanted::ALL, &mut |_, _| {
            check.rows += 1;
            true
        })?;
        damage.into_iter().for_each(|damage| check.add(damage));
        Ok(check)
    }

    /// Makes a temporary database with all rows.
    pub fn load(&self) -> Result<Connection, ArchiveError> {
        let wrong = |cause: rusqlite::Error| ArchiveError::of(&self.path, &cause);
        let connection = temporary().and_then(|new| setup(&new).map(|()| new)).map_err(wrong)?;
        connection.execute_batch("BEGIN").map_err(wrong)?;
        let (mut targets, mut failed) = (Targets::default(), None);
        let damage =
            self.scan(&Wanted::ALL, &mut |layout, cells| match targets.insert(&connection, layout, cells) {
                Ok(()) => true,
                Err(error) => {
                    failed = Some(error);
                    false
                }
            })?;
        if let Some(reason) = failed {
            return Err(ArchiveError::Query(reason));
        }
        tell(&damage);
        connection.execute_batch("COMMIT").map_err(wrong)?;
        Ok(connection)
    }
}

/// Makes an empty database, which is deleted when it is closed.
fn temporary() -> rusqlite::Result<Connection> {
    // Without a path, SQLite uses an unnamed temporary file.
    let connection = Connection::open("")?;
    connection.execute_batch(&format!(
        "PRAGMA page_size = {PAGE}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         PRAGMA max_page_count = {}; PRAGMA cache_size = -{};",
        MAX_BYTES / PAGE,
        MEMORY_BYTES / 1024,
    ))?;
    Ok(connection)
}

pub(super) fn tell(damage: &[String]) {
    damage.iter().for_each(|damage| log::warn!("{damage}; what can be read is used"));
}

/// Returns the time of a row, if it is data of this topic and time range.
pub(super) fn time_of(topic: &str, times: &RangeInclusive<i64>, cells: &[CellValue<'_>]) -> Option<i64> {
    match cells {
        [CellValue::Text(of), _, _, _, CellValue::Int(time), CellValue::Text("data"), ..] => {
            (*of == topic && times.contains(time)).then_some(*time)
        }
        _ => None,
    }
}

/// The column of a member in the most recent table, as a cache.
#[derive(Default)]
struct Place(Option<(Layout, Option<usize>)>);

impl Place {
    fn of(&mut self, layout: &Layout, member: &str) -> Option<usize> {
        match &self.0 {
            Some((of, at)) if of == layout => *at,
            _ => {
                let is_member = |(at, (name, _)): &(usize, &(String, Column))| {
                    *at >= crate::columns::METADATA.len() && name == member
                };
                let at = layout.columns.iter().enumerate().find(is_member).map(|(at, _)| at);
                self.0 = Some((layout.clone(), at));
                at
            }
        }
    }
}

/// The tables of the temporary database.
#[derive(Default)]
struct Targets {
    known: HashMap<String, Vec<(Layout, Target)>>,
}

impl Targets {
    fn insert(&mut self, connection: &Connection, layout: &Layout, cells: &[CellValue<'_>]) -> Result<(), String> {
        if !self.known.contains_key(&layout.type_name) {
            self.known.insert(layout.type_name.clone(), Vec::new());
        }
        let Some(of_type) = self.known.get_mut(&layout.type_name) else { return Ok(()) };
        let at = match of_type.iter().position(|(of, _)| of == layout) {
            Some(at) => at,
            None => {
                let target = Target::find(connection, &layout.type_name, layout.members());
                of_type.push((layout.clone(), target.map_err(|error| error.of(Path::new("SQL")).to_string())?));
                of_type.len() - 1
            }
        };
        of_type[at].1.insert(connection, cells.iter().cloned()).map_err(|error| error.to_string())
    }
}
