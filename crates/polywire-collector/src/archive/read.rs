//! Reads archives: SQL queries, the values of a member over time, and integrity checks.

use std::{
    collections::BTreeMap,
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension as _,
    hooks::{AuthAction, AuthContext, Authorization},
    params,
    types::Value,
};

use super::{
    ArchiveError, CHECKSUM, checksum, downsample::Downsampler, is_archive, no_member, no_message, quoted, rows::Rows,
};

/// A read-only archive of the handlers `sqlite`, `parquet` or `mcap`.
///
/// ```
/// # use polywire::Node;
/// use polywire_collector::{Archive, ArchiveCheck, ArchiveError, ArchiveValue, Collector, CollectorConfig, Series};
/// # use std::{fs, time::Duration};
/// # #[derive(Default, polywire::Message)]
/// # #[polywire(name = "plant::Pump")]
/// # struct Pump { pressure: f64 }
/// # let folder = std::env::temp_dir().join(format!("polywire-archive-doc-{}", std::process::id()));
/// # let file = folder.join("plant.db");
/// let config = format!("
///     [collector]
///     topics = ['plant/*']
///     endpoints = ['inproc/archive-doc']
///     [handlers.archive]
///     kind = 'sqlite'
///     path = '{}'", file.display());
/// let mut collector = Collector::new(Node::new());
/// collector.reload(&CollectorConfig::parse(&config)?)?;
/// # let pumps = Node::new().publisher_on::<Pump>("plant/pump", "cdr@inproc/archive-doc")?;
/// # pumps.wait_for_subscribers(1, Duration::from_secs(60));
/// # for pressure in [1.0, 2.5] { pumps.publish(&Pump { pressure })?; }
/// # while collector.status()[0].stored < 2 { std::thread::yield_now(); }
///
/// let archive = Archive::open(&file)?;
/// let mut rows = Vec::new();
/// archive.query("SELECT max(pressure) FROM \"plant::Pump\"", |_, row| {
///     rows.push(row.to_vec());
///     true
/// })?;
/// assert_eq!(rows, [[ArchiveValue::Real(2.5)]]);
/// let always = i64::MIN..=i64::MAX;
/// let mut pressures = Vec::new();
/// archive.points("plant/pump", "pressure", always.clone(), |_, pressure| {
///     pressures.push(pressure);
///     true
/// })?;
/// assert_eq!(pressures, [1.0, 2.5]);
/// // The resolution of a plot with a width of 500 pixels.
/// let series: Series = archive.series("plant/pump", "pressure", always, 2000)?;
/// assert_eq!((series.points.len(), series.numbers), (2, 2));
/// let check: ArchiveCheck = archive.check()?;
/// assert_eq!((check.rows, check.damage.len()), (2, 0));
/// let refused = archive.query("DROP TABLE \"plant::Pump\"", |_, _| true);
/// assert!(matches!(refused, Err(ArchiveError::Query(_))));
/// let newest = archive.newest("plant/pump", "pressure")?.unwrap();
/// assert!(newest > archive.time("2026-01-01T00:00:00Z")?);
/// # fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Archive(pub(super) Source);

/// The storage of the messages.
pub(super) enum Source {
    Database(Box<Database>),
    Rows(Rows),
}

pub(super) struct Database {
    path: PathBuf,
    pub(super) connection: Connection,
    /// The connection for queries of callers. SQLite asks [`reads`] for each operation of a query.
    guarded: Connection,
}

/// The values of a member over time.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Series {
    /// Times in nanoseconds since 1970, and values; the oldest first. If there are more points than
    /// requested, these are the first, last, lowest and highest point of each of many short
    /// intervals.
    pub points: Vec<(i64, f64)>,
    /// The number of messages in which the member is a number.
    pub numbers: u64,
    /// The number of messages in which the member is not a number, for example absent or NaN.
    pub without: u64,
}

/// The result of an integrity check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveCheck {
    /// The number of rows of all types.
    pub rows: u64,
    /// The damage: places that SQLite reports, and rows that differ from what was written.
    pub damage: Vec<String>,
}

/// Receives the time and the number of each message (`None` if it is not a number). Returns whether
/// to continue.
pub(super) type EachPoint<'a> = &'a mut dyn FnMut(i64, Option<f64>) -> bool;

/// The SQL condition for the messages of a topic in a time range.
pub(super) const OF_TOPIC: &str = "_topic = ?1 AND _timestamp_ns BETWEEN ?2 AND ?3";

/// The maximum number of damages that are listed.
const MAX_DAMAGE: usize = 100;

impl Archive {
    /// Opens an archive, also while a collector writes to it: a database, a folder of Parquet files
    /// or one such file, or an MCAP file together with its full files.
    pub fn open(path: &Path) -> Result<Archive, ArchiveError> {
        Ok(Archive(match Rows::at(path)? {
            Some(rows) => Source::Rows(rows),
            None => Source::Database(Box::new(Database::open(path)?)),
        }))
    }

    /// Runs one `SELECT`, and calls `each` with the names of the columns and the values of each
    /// row, until it returns false. Statements that do anything other than read this archive are
    /// rejected. Rows of Parquet and MCAP are first copied into a temporary database, which takes
    /// disk space.
    pub fn query(&self, sql: &str, mut each: impl FnMut(&[String], &[Value]) -> bool) -> Result<(), ArchiveError> {
        let wrong = |cause: &rusqlite::Error, path: &Path| match cause.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::SystemIoFailure) => ArchiveError::of(path, cause),
            _ => ArchiveError::Query(cause.to_string()),
        };
        match &self.0 {
            Source::Database(database) => {
                let read = rows(&database.guarded, sql, [], &mut each);
                read.map_err(|cause| wrong(&cause, &database.path))
            }
            Source::Rows(of) => {
                let mut loaded = of.load()?;
                let read = loaded.authorizer(Some(reads)).and_then(|()| rows(&loaded, sql, [], &mut each));
                read.map_err(|cause| wrong(&cause, Path::new("the temporary database")))
            }
        }
    }

    /// Returns a member of a topic's messages over time, in at most `most` points, but at least 8.
    /// `member` is its path: `total.busy_percent`. Takes the time to read all of these messages,
    /// and memory for the returned points only.
    pub fn series(
        &self,
        topic: &str,
        member: &str,
        times: RangeInclusive<i64>,
        most: usize,
    ) -> Result<Series, ArchiveError> {
        self.series_while(topic, member, times, most, || true)
    }

    /// Like [`Archive::series`], but stops when `goes_on` returns false.
    pub(crate) fn series_while(
        &self,
        topic: &str,
        member: &str,
        times: RangeInclusive<i64>,
        most: usize,
        goes_on: impl Fn() -> bool,
    ) -> Result<Series, ArchiveError> {
        let (mut downsampler, mut without) = (Downsampler::new(most), 0);
        let each = &mut |time, number: Option<f64>| {
            match number {
                Some(number) => downsampler.add((time, number)),
                None => without += 1,
            }
            goes_on()
        };
        match &self.0 {
            Source::Database(database) => database.scan(topic, member, times, each)?,
            Source::Rows(rows) => rows.member(topic, member, times, each)?,
        }
        Ok(Series { numbers: downsampler.count(), points: downsampler.finish(), without })
    }

    /// Calls `each` with the time and the value of a member in all messages of a topic, the oldest
    /// first, until it returns false. Returns the number of messages in which the member is not a
    /// number. Memory does not grow with the messages; those of Parquet and MCAP are sorted in a
    /// temporary file.
    pub fn points(
        &self,
        topic: &str,
        member: &str,
        times: RangeInclusive<i64>,
        mut each: impl FnMut(i64, f64) -> bool,
    ) -> Result<u64, ArchiveError> {
        let mut without = 0;
        let each = &mut |time, number: Option<f64>| match number {
            Some(number) => each(time, number),
            None => {
                without += 1;
                true
            }
        };
        match &self.0 {
            Source::Database(database) => database.scan(topic, member, times, each)?,
            Source::Rows(rows) => rows.member_sorted(topic, member, times, each)?,
        }
        Ok(without)
    }

    /// Returns the latest time of a topic's messages with this member; `None` if there are none.
    pub fn newest(&self, topic: &str, member: &str) -> Result<Option<i64>, ArchiveError> {
        match &self.0 {
            Source::Database(database) => database.newest(topic, member),
            Source::Rows(rows) => rows.newest(topic, member),
        }
    }

    /// Parses a time in a form that SQLite accepts, such as `2026-11-22 23:38:33`. Returns
    /// nanoseconds since 1970.
    pub fn time(&self, text: &str) -> Result<i64, ArchiveError> {
        let sql = "SELECT CAST(round(unixepoch(?1, 'subsec') * 1000) AS INTEGER)";
        let read = |connection: &Connection| connection.query_row(sql, [text], |row| row.get(0));
        let found: rusqlite::Result<Option<i64>> = match &self.0 {
            Source::Database(database) => read(&database.connection),
            Source::Rows(_) => Connection::open_in_memory().and_then(|connection| read(&connection)),
        };
        let milliseconds = found.ok().flatten().and_then(|time| time.checked_mul(1_000_000));
        let expected = "a time such as 2026-11-22T23:38:33Z is expected";
        milliseconds.ok_or_else(|| ArchiveError::Query(format!("'{text}': {expected}")))
    }

    /// Checks the structure and the checksums of the whole archive. Takes the time to read all of
    /// it. Does not detect the removal of whole files.
    pub fn check(&self) -> Result<ArchiveCheck, ArchiveError> {
        match &self.0 {
            Source::Database(database) => Ok(database.check()),
            Source::Rows(rows) => rows.check(),
        }
    }
}

impl Database {
    fn open(path: &Path) -> Result<Database, ArchiveError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || -> rusqlite::Result<(Connection, Connection)> {
            let mut guarded = Connection::open_with_flags(path, flags)?;
            guarded.authorizer(Some(reads))?;
            Ok((Connection::open_with_flags(path, flags)?, guarded))
        };
        let (connection, guarded) = open().map_err(|cause| ArchiveError::of(path, &cause))?;
        if !is_archive(&connection, path)? {
            return Err(ArchiveError::Format { path: path.to_owned(), reason: "an empty database".to_owned() });
        }
        Ok(Database { path: path.to_owned(), connection, guarded })
    }

    /// Calls `each` with a member of a topic's messages, the oldest first.
    fn scan(
        &self,
        topic: &str,
        member: &str,
        times: RangeInclusive<i64>,
        each: EachPoint<'_>,
    ) -> Result<(), ArchiveError> {
        let wrong = |cause| self.wrong(&cause);
        let columns = self.columns_of(member).map_err(wrong)?;
        if columns.is_empty() {
            return Err(no_member(member));
        }
        let mut parts = Vec::new();
        for (table, columns) in &columns {
            if self.has_topic(table, topic).map_err(wrong)? {
                parts.push(format!(
                    "SELECT _timestamp_ns, {} FROM {} WHERE {OF_TOPIC} AND _kind = 'data'",
                    member_in(columns),
                    quoted(table),
                ));
            }
        }
        let mut has_messages = false;
        if !parts.is_empty() {
            // Each part is read in this order from its index, so nothing is sorted.
            let sql = format!("{} ORDER BY 1", parts.join(" UNION ALL "));
            let mut give = |_: &[String], row: &[Value]| {
                has_messages = true;
                point(row, each)
            };
            let of = params![topic, times.start(), times.end()];
            rows(&self.connection, &sql, of, &mut give).map_err(wrong)?;
        }
        if has_messages { Ok(()) } else { Err(no_message(topic, member)) }
    }

    pub(super) fn has_topic(&self, table: &str, topic: &str) -> rusqlite::Result<bool> {
        let sql = format!("SELECT EXISTS (SELECT 1 FROM {} WHERE _topic = ?1)", quoted(table));
        self.connection.query_row(&sql, [topic], |row| row.get(0))
    }

    /// Returns the tables of all types that have a member of this path, with its columns.
    fn columns_of(&self, member: &str) -> rusqlite::Result<BTreeMap<String, Vec<String>>> {
        let sql = "SELECT t.name, c.name FROM polywire_types t JOIN polywire_columns c USING (type) WHERE c.path = ?1";
        let mut statement = self.connection.prepare(sql)?;
        let (mut rows, mut found) = (statement.query([member])?, BTreeMap::<_, Vec<_>>::new());
        while let Some(row) = rows.next()? {
            found.entry(row.get(0)?).or_default().push(row.get(1)?);
        }
        Ok(found)
    }

    fn newest(&self, topic: &str, member: &str) -> Result<Option<i64>, ArchiveError> {
        let newest = |(table, columns): (&String, &Vec<String>)| -> rusqlite::Result<Option<i64>> {
            // The index gives the newest messages first, so the older ones are not read.
            let sql = format!(
                "SELECT _timestamp_ns FROM {} WHERE _topic = ?1 AND _kind = 'data' AND {} IS NOT NULL
                 ORDER BY _timestamp_ns DESC LIMIT 1",
                quoted(table),
                member_in(columns),
            );
            self.connection.query_row(&sql, [topic], |row| row.get(0)).optional()
        };
        let all = || self.columns_of(member)?.iter().map(newest).collect::<rusqlite::Result<Vec<_>>>();
        Ok(all().map_err(|cause| self.wrong(&cause))?.into_iter().flatten().max())
    }

    fn check(&self) -> ArchiveCheck {
        let mut check = ArchiveCheck::default();
        if let Err(cause) = self.check_structure(&mut check) {
            check.add(cause.to_string());
        }
        let tables = || -> rusqlite::Result<Vec<String>> {
            let mut statement = self.connection.prepare("SELECT name FROM polywire_types")?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        match tables() {
            Ok(tables) => tables.iter().for_each(|table| self.check_table(table, &mut check)),
            Err(cause) => check.add(cause.to_string()),
        }
        check
    }

    fn check_structure(&self, check: &mut ArchiveCheck) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare("PRAGMA integrity_check")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            match row.get::<_, String>(0)? {
                ok if ok == "ok" => {}
                damage => check.add(damage),
            }
        }
        Ok(())
    }

    fn check_table(&self, table: &str, check: &mut ArchiveCheck) {
        let mut number = 0u64;
        // In a damaged file, pages can refer to each other in a cycle.
        let most = fs::metadata(&self.path).map_or(0, |data| data.len());
        let sql = format!("SELECT * FROM {}", quoted(table));
        let read = rows(&self.connection, &sql, [], &mut |names, row| {
            (number, check.rows) = (number + 1, check.rows + 1);
            let all = || names.iter().map(String::as_str).zip(row);
            let stored = all().find(|(name, _)| *name == CHECKSUM).map(|(_, value)| value);
            if stored != Some(&Value::Integer(checksum(table, all().filter(|(name, _)| *name != CHECKSUM)))) {
                check.add(format!("{table}: row {number} is not as it was written"));
            }
            number <= most
        });
        match read {
            Err(cause) => check.add(format!("{table}: {cause}, after {number} rows")),
            Ok(()) if number > most => check.add(format!("{table}: it has no end")),
            Ok(()) => {}
        }
    }

    pub(super) fn wrong(&self, cause: &rusqlite::Error) -> ArchiveError {
        ArchiveError::of(&self.path, cause)
    }
}

impl ArchiveCheck {
    pub(super) fn add(&mut self, damage: String) {
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(damage);
        }
    }
}

/// Returns the SQL expression for a member in these columns. A member whose type has changed has
/// several columns, one of which is set in each row.
fn member_in(columns: &[String]) -> String {
    let columns: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
    format!("coalesce({}, NULL)", columns.join(", "))
}

/// Calls `each` with the time and the number in a row.
pub(super) fn point(row: &[Value], each: EachPoint<'_>) -> bool {
    match row {
        [Value::Integer(time), value] => each(*time, number(value)),
        _ => true,
    }
}

/// Returns a value as a number; `None` for texts, blobs and NULL.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Real(number) => Some(*number),
        _ => None,
    }
}

/// Calls `each` with the rows of a query, until it returns false.
pub(super) fn rows(
    connection: &Connection,
    sql: &str,
    of: impl rusqlite::Params,
    each: &mut impl FnMut(&[String], &[Value]) -> bool,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(sql)?;
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.query(of)?;
    while let Some(row) = rows.next()? {
        let values: Vec<Value> = (0..names.len()).map(|at| row.get(at)).collect::<rusqlite::Result<_>>()?;
        if !each(&names, &values) {
            break;
        }
    }
    Ok(())
}

/// Permits only reading: no other file, no setting, no change.
fn reads(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Function { .. } | AuthAction::Recursive => {
            Authorization::Allow
        }
        _ => Authorization::Deny,
    }
}
