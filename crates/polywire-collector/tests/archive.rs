//! Archives in SQLite: types that evolve, hostile names, what becomes of each type, and damage.

mod common;

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use common::{Folder, Numbers, SOON, entry, until};
use polywire::{
    Kind, Node, Record, Shape,
    schema::{Def, Member, Schema, SchemaBuilder, Type},
};
use polywire_collector::{
    Archive, ArchiveError, ArchiveValue as Value, Collector, CollectorConfig, Entry, Handler, HandlerContext,
    HandlerError, Origin,
};

fn handler(folder: &Folder) -> Result<Box<dyn Handler>, HandlerError> {
    handler_with(folder, "")
}

fn handler_with(folder: &Folder, settings: &str) -> Result<Box<dyn Handler>, HandlerError> {
    let text = format!("[handlers.a]\nkind = 'sqlite'\npath = '{}'\n{settings}", folder.file("a.db").display());
    let plan = CollectorConfig::parse(&text).expect("valid").handlers.remove(0);
    (plan.kind.open)(&plan.settings, &HandlerContext::new(Node::new()))
}

fn archive(folder: &Folder) -> Archive {
    Archive::open(&folder.file("a.db")).expect("an archive")
}

fn rows(archive: &Archive, sql: &str) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    let add = |_: &[String], row: &[Value]| {
        rows.push(row.to_vec());
        true
    };
    archive.query(sql, add).unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows
}

fn structure(name: &str, members: Vec<Member>) -> Schema {
    let mut types = SchemaBuilder::new();
    let root = types.add(Def::structure(name, members));
    types.finish(Type::Def(root)).expect("a schema")
}

/// An entry of a type, changed by `set`.
fn of(schema: &Schema, topic: &str, number: u64, set: impl FnOnce(&mut Record)) -> Entry {
    let mut record = Record::new(&Shape::of(schema).expect("a shape"));
    set(&mut record);
    let origin = Origin { topic: topic.to_owned(), incarnation: u64::MAX, ..Origin::default() };
    Entry::new(Arc::new(origin), number, 1_000_000_000 * number as i64, record)
}

fn write(folder: &Folder, entries: &[Entry]) {
    let mut handler = handler(folder).expect("opened");
    entries.iter().for_each(|entry| handler.write(entry).expect("written"));
    handler.sync().expect("stored");
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn values_are_what_they_were() {
    let folder = Folder::new("values");
    let members = vec![
        Member::new("flag", Type::Bool),
        Member::new("small", Type::Int64),
        Member::new("big", Type::Uint64),
        Member::new("float", Type::Float64),
        Member::new("text", Type::string()).as_optional(),
        Member::new("blob", Type::sequence(Type::Octet)),
        Member::new("list", Type::sequence(Type::Float64)),
    ];
    let schema = structure("a::B", members);
    let full = of(&schema, "t", 1, |record| {
        record.set("flag", true).expect("set");
        record.set("small", i64::MIN).expect("set");
        record.set("big", u64::MAX).expect("set");
        record.set("float", f64::NAN).expect("set");
        record.set("text", "").expect("set");
        record.set("blob", &[0u8, 255][..]).expect("set");
        record.resize("list", 1).expect("set");
        record.set("list[0]", f64::INFINITY).expect("set");
    });
    let empty = of(&schema, "t", 2, |record| record.set("float", -0.0).expect("set"));
    write(&folder, &[full, empty]);
    let archive = archive(&folder);
    let found = rows(&archive, "SELECT flag, small, big, float, text, blob, list FROM \"a::B\" ORDER BY _sequence");
    let full = [Value::Integer(1), Value::Integer(i64::MIN), text("18446744073709551615"), text("NaN"), text("")];
    assert_eq!(found[0][..5], full);
    assert_eq!(found[0][5..], [Value::Blob(vec![0, 255]), text("[\"Infinity\"]")]);
    assert_eq!(found[1][2..5], [Value::Integer(0), Value::Real(0.0), Value::Null]);
    let metadata = rows(&archive, "SELECT _topic, _incarnation, _sequence, _timestamp_ns, _kind FROM \"a::B\" LIMIT 1");
    let expected =
        [text("t"), text("18446744073709551615"), Value::Integer(1), Value::Integer(1_000_000_000), text("data")];
    assert_eq!(metadata[0], expected);
    assert_eq!(archive.check().expect("checked").damage, Vec::<String>::new());
}

#[test]
fn a_type_that_evolves_gets_columns() {
    let folder = Folder::new("evolves");
    let first = structure("T", vec![Member::new("a", Type::Int32)]);
    let second = structure("T", vec![Member::new("a", Type::Int32), Member::new("b", Type::Float64)]);
    let third = structure("T", vec![Member::new("a", Type::string())]);
    let old = |number| of(&first, "t", number, |record| record.set("a", 1).expect("set"));
    let new = of(&second, "t", 2, |record| record.set("b", 2.5).expect("set"));
    let other = of(&third, "t", 4, |record| record.set("a", "007").expect("set"));
    write(&folder, &[old(1), new, old(3)]);
    // What is there already is not added again.
    write(&folder, &[other, old(3)]);
    let archive = archive(&folder);
    let found = rows(&archive, "SELECT a, b, \"a~2\" FROM T ORDER BY _sequence");
    let row = |a: Option<i64>, b: Option<f64>, text: Option<&str>| {
        let text = text.map_or(Value::Null, |text| Value::Text(text.to_owned()));
        vec![a.map_or(Value::Null, Value::Integer), b.map_or(Value::Null, Value::Real), text]
    };
    let old = row(Some(1), None, None);
    assert_eq!(found, [old.clone(), row(Some(0), Some(2.5), None), old, row(None, None, Some("007"))]);
    assert_eq!(archive.check().expect("checked").damage, Vec::<String>::new());
    let series = archive.series("t", "a", i64::MIN..=i64::MAX, 100).expect("a series");
    assert_eq!((series.points.len(), series.without), (3, 1), "a text is no number");
}

/// The kinds of archives that this build has.
fn kinds() -> impl Iterator<Item = &'static str> {
    let is_here = |kind: &&str| match *kind {
        "parquet" => cfg!(feature = "parquet"),
        "mcap" => cfg!(feature = "mcap"),
        _ => true,
    };
    ["sqlite", "parquet", "mcap"].into_iter().filter(is_here)
}

/// Opens a handler of this kind, and returns it with the path of its archive.
fn handler_of(kind: &str, folder: &Folder) -> (Box<dyn Handler>, PathBuf) {
    let path = folder.file(if kind == "mcap" { "a.mcap" } else { "a" });
    let text = format!("[handlers.a]\nkind = '{kind}'\npath = '{}'\n", path.display());
    let plan = CollectorConfig::parse(&text).expect("valid").handlers.remove(0);
    let handler = (plan.kind.open)(&plan.settings, &HandlerContext::new(Node::new())).expect("opened");
    (handler, path)
}

#[test]
fn the_newest_message_is_data_that_has_the_member() {
    let members = vec![Member::new("id", Type::Int32).as_key(), Member::new("a", Type::Int32).as_optional()];
    let schema = structure("T", members);
    for kind in kinds() {
        let folder = Folder::new(&format!("newest-{kind}"));
        let (mut handler, path) = handler_of(kind, &folder);
        let with = |number| of(&schema, "t", number, |record| record.set("a", 1).expect("set"));
        let without = of(&schema, "t", 3, |_| {});
        let mut end = with(4);
        end.kind = Kind::Dispose;
        for entry in [with(1), with(2), without, end] {
            handler.write(&entry).expect("written");
        }
        handler.sync().expect("stored");
        drop(handler);
        let archive = Archive::open(&path).expect("an archive");
        let newest = |topic, member| archive.newest(topic, member).expect("read");
        assert_eq!([newest("t", "a"), newest("t", "id")], [Some(2_000_000_000), Some(3_000_000_000)], "{kind}");
        assert_eq!([newest("u", "a"), newest("t", "b")], [None; 2], "{kind}");
    }
}

/// Messages that came in another order than their times, in each kind of archive.
#[test]
fn a_series_is_downsampled_and_points_come_in_the_order_of_their_times() {
    const MESSAGES: u64 = 6000;
    for kind in kinds() {
        let folder = Folder::new(&format!("series-{kind}"));
        let (mut handler, path) = handler_of(kind, &folder);
        // The time of each is its number.
        (1..=MESSAGES / 2).for_each(|number| handler.write(&entry("t", 2 * number)).expect("written"));
        (0..MESSAGES / 2).for_each(|number| handler.write(&entry("t", 2 * number + 1)).expect("written"));
        (1..=9).for_each(|number| handler.write(&entry("u", 100_000 + number)).expect("written"));
        handler.sync().expect("stored");
        drop(handler);
        let archive = Archive::open(&path).expect("an archive");
        let always = i64::MIN..=i64::MAX;

        let mut expected = 1..=MESSAGES;
        let each = |time, value: f64| {
            assert_eq!(expected.next().map(|number| (number as i64, number as f64)), Some((time, value)), "{kind}");
            true
        };
        assert_eq!(archive.points("t", "number", always.clone(), each).expect("points"), 0);
        assert_eq!(expected.next(), None, "{kind}: all of them");
        let mut few = 0;
        let stop = |_, _| {
            few += 1;
            few < 3
        };
        archive.points("t", "number", 100..=200, stop).expect("points");
        assert_eq!(few, 3, "{kind}");
        assert_eq!(archive.points("t", "text", always.clone(), |_, _| true).expect("no numbers"), MESSAGES, "{kind}");

        let series = archive.series("t", "number", always.clone(), 200).expect("a series");
        assert_eq!((series.numbers, series.without), (MESSAGES, 0), "{kind}");
        assert!((50..=200).contains(&series.points.len()), "{kind}: {}", series.points.len());
        assert_eq!(
            (series.points[0], series.points.last()),
            ((1, 1.0), Some(&(MESSAGES as i64, MESSAGES as f64))),
            "{kind}"
        );
        assert!(series.points.is_sorted_by_key(|(time, _)| *time), "{kind}");
        let part = archive.series("t", "number", 11..=20, 200).expect("a series");
        assert_eq!(part.points, (11..=20).map(|time| (time, time as f64)).collect::<Vec<_>>(), "{kind}");
        let none = archive.series("t", "number", 1_000_000..=2_000_000, 200).expect_err("nothing").to_string();
        assert_eq!(none, "no message of 't' with 'number' in this time", "{kind}");
    }
}

#[test]
fn names_are_data() {
    let folder = Folder::new("names");
    let hostile = [
        "x\"; DROP TABLE polywire_types; --",
        "'; SELECT 1",
        "_topic",
        "_TOPIC",
        "rowid",
        "a",
        "A",
        "]",
        "ä",
        "%s",
        "?1",
    ];
    let types = ["sqlite_master", "polywire_types", "T\"; DROP TABLE t; --", "t", "T", "a b.c", "x'y"];
    let entry = |(number, name)| {
        let schema = structure(name, hostile.iter().map(|name| Member::new(*name, Type::Int32)).collect());
        of(&schema, "t'; DROP TABLE t; --", number, |_| {})
    };
    let entries: Vec<Entry> = (1..).zip(types).map(entry).collect();
    write(&folder, &entries);
    let archive = archive(&folder);
    let check = archive.check().expect("checked");
    assert_eq!((check.rows, check.damage), (types.len() as u64, Vec::new()));
    let topics = rows(&archive, "SELECT _topic FROM t");
    assert_eq!(topics, [[text("t'; DROP TABLE t; --")]]);
    let series = archive.series("t'; DROP TABLE t; --", hostile[0], i64::MIN..=i64::MAX, 100).expect("a series");
    assert_eq!(series.points.len(), types.len());
}

#[test]
fn queries_only_read() {
    let folder = Folder::new("queries");
    write(&folder, &[entry("t", 1)]);
    let archive = archive(&folder);
    let other = folder.file("other.db").display().to_string();
    for sql in [
        "DELETE FROM \"test::Number\"",
        "INSERT INTO polywire_types VALUES ('a', 'b')",
        "SELECT 1; DELETE FROM \"test::Number\"",
        "PRAGMA user_version = 7",
        "PRAGMA journal_mode",
        "VACUUM",
        "CREATE TEMP TABLE a (b)",
        "BEGIN",
        &format!("ATTACH '{other}' AS other"),
        &format!("VACUUM INTO '{other}'"),
        "",
        "SELEC",
    ] {
        assert!(matches!(archive.query(sql, |_, _| true), Err(ArchiveError::Query(_))), "{sql}");
    }
    assert!(!folder.file("other.db").exists());
    assert_eq!(
        rows(&archive, "WITH n AS (SELECT number FROM \"test::Number\") SELECT count(*) FROM n"),
        [[Value::Integer(1)]]
    );
    let error = |topic, member| archive.series(topic, member, 0..=i64::MAX, 100).expect_err("nothing").to_string();
    assert_eq!(error("t", "nmber"), "no type in the archive has a member 'nmber'");
    assert_eq!(error("u", "number"), "no message of 'u' with 'number' in this time");
    assert_eq!(archive.time("1970-01-01T00:00:01.5Z").expect("a time"), 1_500_000_000);
    assert!(archive.time("tomorrow").is_err());
}

#[test]
fn other_files_are_refused_by_name() {
    let folder = Folder::new("other");
    let refused = |expected: &str| {
        let told = [
            handler(&folder).err().expect("refused").to_string(),
            Archive::open(&folder.file("a.db")).err().expect("refused").to_string(),
        ];
        assert!(told.iter().all(|told| told.ends_with(expected)), "{told:?}");
    };
    fs::write(folder.file("a.db"), "this is no database, but long enough to be one, is it not? ".repeat(20))
        .expect("written");
    refused("a.db: it is no SQLite database");
    fs::remove_file(folder.file("a.db")).expect("removed");
    let other = rusqlite::Connection::open(folder.file("a.db")).expect("a database");
    other.execute_batch("CREATE TABLE a (b)").expect("made");
    refused("a.db: a database of another program");
    drop(other);
    fs::remove_file(folder.file("a.db")).expect("removed");
    write(&folder, &[entry("t", 1)]);
    let newer = rusqlite::Connection::open(folder.file("a.db")).expect("a database");
    newer.pragma_update(None, "user_version", 2).expect("set");
    drop(newer);
    refused("a.db: an archive of version 2, and this program knows version 1");
}

/// Many times more is written than there is room for.
#[test]
fn an_archive_with_a_limit_stays_small() {
    let folder = Folder::new("limit");
    let most = 400_000;
    let mut all = handler_with(&folder, &format!("keep_bytes = {most}")).expect("opened");
    let other = structure("Other", vec![Member::new("a", Type::Int32)]);
    all.write(&of(&other, "t", 1, |_| {})).expect("written");
    let size = || fs::metadata(folder.file("a.db")).expect("a file").len();
    let mut largest = 0;
    for batch in 0..40u64 {
        for number in 1..=1000 {
            all.write(&entry("t", 10_000_000_000 + batch * 1000 + number)).expect("written");
        }
        all.sync().expect("stored");
        largest = largest.max(size());
    }
    (0..20).for_each(|_| all.sync().expect("stored"));
    assert!(largest < 8 * most && size() < 4 * most, "{largest}, then {} bytes", size());
    let found = archive(&folder);
    let check = found.check().expect("checked");
    assert!(check.rows > 500 && check.damage.is_empty(), "{check:?}");
    assert_eq!(rows(&found, "SELECT max(number) FROM \"test::Number\""), [[Value::Integer(10_000_040_000)]]);
    assert_eq!(rows(&found, "SELECT count(*) FROM Other"), [[Value::Integer(0)]], "it had the oldest message");
}

#[test]
fn what_is_too_old_goes() {
    let folder = Folder::new("age");
    write(&folder, &(1..=20_000).map(|number| entry("t", number)).collect::<Vec<_>>());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later").as_nanos() as u64;
    let before = fs::metadata(folder.file("a.db")).expect("a file").len();
    // An archive that had no limit gets one.
    let mut all = handler_with(&folder, "keep_seconds = 3600").expect("opened");
    all.write(&entry("t", now - 10_000_000_000)).expect("written");
    all.write(&entry("t", now - 7_200_000_000_000)).expect("written");
    (0..8).for_each(|_| all.sync().expect("stored"));
    let found = archive(&folder);
    assert_eq!(rows(&found, "SELECT number FROM \"test::Number\""), [[Value::Integer((now - 10_000_000_000) as i64)]]);
    drop(all);
    let after = fs::metadata(folder.file("a.db")).expect("a file").len();
    assert!(after < before - 1_000_000, "{before}, then {after} bytes");
}

/// An archive with many rows, which nobody writes any more.
fn large(folder: &Folder) -> Vec<u8> {
    let path = folder.file("a.db").display().to_string();
    let text = format!(
        "[collector]\nendpoints = ['inproc/large']\n[handlers.a]\nkind = 'sqlite'\npath = '{path}'\noverflow = 'block'"
    );
    let mut collector = Collector::new(Node::new());
    collector.reload(&CollectorConfig::parse(&text).expect("valid")).expect("opened");
    let (numbers, counts) = Numbers::new(2000);
    collector.add_source(Box::new(numbers)).expect("a thread");
    until("all is stored", || counts.acknowledged.load(Ordering::Acquire) == 2000);
    let (ended, _) = collector.stop(SOON);
    assert!(ended);
    fs::read(&path).expect("read")
}

/// Every row is as it was written, or something is reported.
#[test]
fn damage_is_reported() {
    let folder = Folder::new("damage");
    let whole = large(&folder);
    let path = folder.file("a.db");
    let expected = rows(&archive(&folder), "SELECT number, text FROM \"test::Number\" ORDER BY number");
    assert_eq!(expected.len(), 2000);
    let is_told = |damaged: &[u8]| {
        fs::write(&path, damaged).expect("written");
        let Ok(archive) = Archive::open(&path) else { return true };
        // Where there is damage, a query may be without an end.
        if !archive.check().expect("it returns").damage.is_empty() {
            return true;
        }
        let mut found = Vec::new();
        let read = archive.query("SELECT number, text FROM \"test::Number\" ORDER BY number", |_, row| {
            found.push(row.to_vec());
            found.len() <= expected.len()
        });
        read.is_ok() && found == expected
    };
    assert!(is_told(&whole));
    let mut state = 1u64;
    for round in 0..60 {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mut damaged = whole.clone();
        let at = usize::try_from(state % whole.len() as u64).expect("small");
        damaged[at] ^= 1 << (state >> 60 & 7);
        assert!(is_told(&damaged), "round {round}: bit flipped in byte {at}");
        assert!(is_told(&whole[..at]), "round {round}: cut at byte {at}");
    }
}
