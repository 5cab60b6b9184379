//! Removes the oldest messages of an archive, a limited number at a time.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _};

use super::quoted;
use crate::retention::Retention;

/// The maximum number of messages of a type that one step removes. Fewer arrive between two steps.
const MAX_ROWS: usize = 8192;

/// The number of messages that are removed between two checks of the size.
const FEW_ROWS: usize = 256;

/// The maximum number of pages that one step returns to the file system, and the number of free
/// pages that are kept for new messages.
const PAGES: (u64, u64) = (1024, 256);

/// Creates the indexes by time. Without limits there are no such indexes, because they cost time
/// for each message.
pub(super) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    for table in tables(connection)? {
        prepare_table(connection, &table)?;
    }
    Ok(())
}

pub(super) fn prepare_table(connection: &Connection, table: &str) -> rusqlite::Result<()> {
    let (index, table) = (quoted(&format!("polywire_age {table}")), quoted(table));
    connection.execute_batch(&format!("CREATE INDEX IF NOT EXISTS {index} ON {table} (_timestamp_ns)"))
}

/// Removes messages beyond the limits, and shrinks the file. Returns whether there is more to do.
pub(super) fn step(connection: &Connection, retention: Retention) -> rusqlite::Result<bool> {
    let mut is_more = remove_surplus(connection, retention)?;
    if let Some(most) = retention.time {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let oldest = i64::try_from(now.saturating_sub(most).as_nanos()).unwrap_or(i64::MAX);
        for table in tables(connection)? {
            is_more |= remove(connection, &table, oldest, MAX_ROWS)? == MAX_ROWS;
        }
    }
    let (most, spare) = PAGES;
    let free = number(connection, "freelist_count")?.saturating_sub(spare).min(most);
    if free > 0 {
        // The pragma returns a row for each page, if pages can be returned to the file system.
        let mut statement = connection.prepare_cached(&format!("PRAGMA incremental_vacuum({free})"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
    }
    Ok(is_more)
}

/// Removes the oldest messages while the size exceeds the limit. Returns whether it still does.
pub(super) fn remove_surplus(connection: &Connection, retention: Retention) -> rusqlite::Result<bool> {
    let Some(most) = retention.bytes else { return Ok(false) };
    for _ in 0..MAX_ROWS / FEW_ROWS {
        if used_bytes(connection)? <= most {
            return Ok(false);
        }
        let Some(table) = oldest_table(connection)? else { return Ok(false) };
        remove(connection, &table, i64::MAX, FEW_ROWS)?;
    }
    Ok(true)
}

/// Removes at most `most` of the oldest messages of a table that are older than `before`. Returns
/// their number.
fn remove(connection: &Connection, table: &str, before: i64, most: usize) -> rusqlite::Result<usize> {
    let table = quoted(table);
    let old = format!("SELECT rowid FROM {table} WHERE _timestamp_ns < ?1 ORDER BY _timestamp_ns LIMIT {most}");
    connection.prepare_cached(&format!("DELETE FROM {table} WHERE rowid IN ({old})"))?.execute([before])
}

/// Returns the table with the oldest message.
fn oldest_table(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let mut oldest: Option<(i64, String)> = None;
    for table in tables(connection)? {
        let sql = format!("SELECT min(_timestamp_ns) FROM {}", quoted(&table));
        let time: Option<i64> = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0)).optional()?.flatten();
        if let Some(time) = time
            && oldest.as_ref().is_none_or(|(first, _)| time < *first)
        {
            oldest = Some((time, table));
        }
    }
    Ok(oldest.map(|(_, table)| table))
}

/// Returns the size of the pages in use in bytes.
fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let used = number(connection, "page_count")?.saturating_sub(number(connection, "freelist_count")?);
    Ok(used.saturating_mul(number(connection, "page_size")?))
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<u64> {
    connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map(|number| number.try_into().unwrap_or(0))
}

fn tables(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    connection.prepare_cached("SELECT name FROM polywire_types")?.query_map([], |row| row.get(0))?.collect()
}
