//! Contents of an archive for web pages: its topics, and the newest messages of one topic.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use rusqlite::{params, types::Value};

use super::{
    Archive, ArchiveError, quoted,
    read::{Database, OF_TOPIC, Source, rows},
    rows::{Rows, Wanted, tell, time_of},
    write::value,
};
use crate::columns::METADATA;

/// The maximum number of characters of a text.
const MAX_TEXT: usize = 200;

/// A message of an archive.
pub(crate) struct Message {
    /// The time of publication.
    pub time_ns: i64,
    /// The paths and values of its members, without absent ones; long texts are cut.
    pub members: Vec<(String, Value)>,
}

/// The newest messages, by time and order of arrival.
struct Newest {
    most: usize,
    messages: BTreeMap<(i64, usize), Message>,
    came: usize,
}

impl Newest {
    fn new(most: usize) -> Newest {
        Newest { most, messages: BTreeMap::new(), came: 0 }
    }

    /// Returns whether a message of this time currently belongs to the newest.
    fn wants(&self, time: i64) -> bool {
        let oldest = self.messages.first_key_value().map(|((time, _), _)| *time);
        self.messages.len() < self.most || oldest.is_some_and(|oldest| oldest <= time)
    }

    fn add(&mut self, message: Message) {
        self.came += 1;
        self.messages.insert((message.time_ns, self.came), message);
        if self.messages.len() > self.most {
            self.messages.pop_first();
        }
    }

    fn finish(self) -> Vec<Message> {
        self.messages.into_values().rev().collect()
    }
}

impl Archive {
    /// Returns the topics of all messages, up to a limit. Reads all rows of Parquet and MCAP, until
    /// `goes_on` returns false.
    pub(crate) fn topics(&self, most: usize, goes_on: impl Fn() -> bool) -> Result<BTreeSet<String>, ArchiveError> {
        match &self.0 {
            Source::Database(database) => database.topics(most).map_err(|cause| database.wrong(&cause)),
            Source::Rows(rows) => rows.topics(most, goes_on),
        }
    }

    /// Returns at most `most` messages of a topic in this time range, the newest first. Reads all
    /// rows of Parquet and MCAP, until `goes_on` returns false.
    pub(crate) fn newest_messages(
        &self,
        topic: &str,
        times: RangeInclusive<i64>,
        most: usize,
        goes_on: impl Fn() -> bool,
    ) -> Result<Vec<Message>, ArchiveError> {
        match &self.0 {
            Source::Database(database) => {
                database.newest_messages(topic, &times, most).map_err(|cause| database.wrong(&cause))
            }
            Source::Rows(rows) => rows.newest_messages(topic, times, most, goes_on),
        }
    }
}

impl Database {
    fn topics(&self, most: usize) -> rusqlite::Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        for (_, table) in self.tables()? {
            if found.len() >= most {
                break;
            }
            // The index leads from each topic to the next one, so not all messages are read.
            let table = quoted(&table);
            let sql = format!(
                "WITH RECURSIVE topics(topic) AS (
                    SELECT min(_topic) FROM {table}
                    UNION ALL SELECT (SELECT min(_topic) FROM {table} WHERE _topic > topic) FROM topics WHERE topic IS NOT NULL
                 ) SELECT topic FROM topics WHERE topic IS NOT NULL"
            );
            rows(&self.connection, &sql, [], &mut |_, row| {
                if let [Value::Text(topic)] = row {
                    found.insert(topic.clone());
                }
                found.len() < most
            })?;
        }
        Ok(found)
    }

    fn newest_messages(&self, topic: &str, times: &RangeInclusive<i64>, most: usize) -> rusqlite::Result<Vec<Message>> {
        let mut newest = Newest::new(most);
        for (type_name, table) in self.tables()? {
            if !self.has_topic(&table, topic)? {
                continue;
            }
            let paths = self.paths(&type_name)?;
            let sql = format!(
                "SELECT * FROM {} WHERE {OF_TOPIC} AND _kind = 'data' ORDER BY _timestamp_ns DESC LIMIT ?4",
                quoted(&table)
            );
            let of = params![topic, times.start(), times.end(), i64::try_from(most).unwrap_or(i64::MAX)];
            let mut found = Vec::new();
            rows(&self.connection, &sql, of, &mut |names, row| {
                let time = names.iter().position(|name| name == METADATA[4].0).and_then(|at| row.get(at));
                let Some(Value::Integer(time_ns)) = time else { return true };
                let cells = names.iter().zip(row).filter_map(|(name, cell)| Some((paths.get(name)?, cell)));
                let members = cells.filter(|(_, cell)| **cell != Value::Null);
                let members = members.map(|(path, cell)| (path.clone(), cut(cell.clone()))).collect();
                found.push(Message { time_ns: *time_ns, members });
                true
            })?;
            found.into_iter().rev().for_each(|message| newest.add(message));
        }
        Ok(newest.finish())
    }

    /// Types and their tables.
    fn tables(&self) -> rusqlite::Result<Vec<(String, String)>> {
        let mut statement = self.connection.prepare("SELECT type, name FROM polywire_types")?;
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    /// Returns the paths of a type's members, by the names of their columns.
    fn paths(&self, type_name: &str) -> rusqlite::Result<BTreeMap<String, String>> {
        let mut statement = self.connection.prepare("SELECT name, path FROM polywire_columns WHERE type = ?1")?;
        statement.query_map([type_name], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }
}

impl Rows {
    fn topics(&self, most: usize, goes_on: impl Fn() -> bool) -> Result<BTreeSet<String>, ArchiveError> {
        let mut found = BTreeSet::new();
        let damage = self.scan(&Wanted::ALL, &mut |_, cells| {
            if let Some(crate::CellValue::Text(topic)) = cells.first()
                && !found.contains(*topic)
            {
                found.insert((*topic).to_owned());
            }
            found.len() < most && goes_on()
        })?;
        tell(&damage);
        Ok(found)
    }

    fn newest_messages(
        &self,
        topic: &str,
        times: RangeInclusive<i64>,
        most: usize,
        goes_on: impl Fn() -> bool,
    ) -> Result<Vec<Message>, ArchiveError> {
        let mut newest = Newest::new(most);
        let wanted = Wanted { topic: Some(topic), times };
        let damage = self.scan(&wanted, &mut |layout, cells| {
            if let Some(time_ns) = time_of(topic, &wanted.times, cells).filter(|time| newest.wants(*time)) {
                let columns = layout.columns.iter().zip(cells).skip(METADATA.len());
                let members = columns.map(|((name, column), cell)| (name.clone(), cut(value(*column, cell.clone()))));
                let members = members.filter(|(_, value)| *value != Value::Null).collect();
                newest.add(Message { time_ns, members });
            }
            goes_on()
        })?;
        tell(&damage);
        Ok(newest.finish())
    }
}

fn cut(value: Value) -> Value {
    match value {
        Value::Text(text) if text.chars().nth(MAX_TEXT).is_some() => {
            Value::Text(text.chars().take(MAX_TEXT).chain(['…']).collect())
        }
        Value::Blob(mut bytes) => {
            bytes.truncate(MAX_TEXT / 2);
            Value::Blob(bytes)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use polywire::{
        Record, Shape,
        schema::{Def, Member, SchemaBuilder, Type},
    };

    use super::*;
    use crate::{Entry, Origin, archive::ArchiveWriter, retention::Retention};

    #[test]
    fn there_are_no_more_topics_than_requested_however_many_types_there_are() {
        let folder = std::env::temp_dir().join(format!("polywire-collector-topics-{}", std::process::id()));
        let path = folder.join("a.db");
        let mut writer = ArchiveWriter::open(&path, Retention::default()).expect("opened");
        for name in ["A", "B", "C"] {
            let mut types = SchemaBuilder::new();
            let root = types.add(Def::structure(name, vec![Member::new("a", Type::Int32)]));
            let shape = Shape::of(&types.finish(Type::Def(root)).expect("a schema")).expect("a shape");
            for sequence in [1, 2] {
                let topic = format!("{name}/{sequence}");
                let origin = Arc::new(Origin { topic, ..Origin::default() });
                writer.write(&Entry::new(origin, sequence, 0, Record::new(&shape))).expect("written");
            }
        }
        writer.commit().expect("stored");
        let archive = Archive::open(&path).expect("an archive");
        let topics = |most| archive.topics(most, || true).expect("topics").len();
        assert_eq!([1, 2, 3, 6, 9].map(topics), [1, 2, 3, 6, 6]);
        drop((archive, writer));
        fs::remove_dir_all(folder).expect("removed");
    }
}
