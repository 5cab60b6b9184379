//! Archives in Parquet: values as another library reads them, types that evolve, rotation, kills,
//! retention and damage.

mod common;

use std::{fs, path::PathBuf, process::Command, sync::Arc, thread, time::Duration};

use common::{Folder, entry};
use polywire::{
    Node, Record, Shape,
    schema::{Def, Member, Schema, SchemaBuilder, Type},
};
use polywire_collector::{
    Archive, ArchiveValue as Value, CollectorConfig, Entry, Handler, HandlerContext, HandlerError, Origin, Series,
};
use polywire_testing::tools;

fn open(folder: &Folder, settings: &str) -> Result<Box<dyn Handler>, HandlerError> {
    let path = folder.file("a").display().to_string();
    let text = format!("[handlers.a]\nkind = 'parquet'\npath = '{path}'\n{settings}");
    let plan = CollectorConfig::parse(&text).expect("valid").handlers.remove(0);
    (plan.kind.open)(&plan.settings, &HandlerContext::new(Node::new()))
}

fn handler(folder: &Folder) -> Box<dyn Handler> {
    open(folder, "").expect("opened")
}

fn write(handler: &mut dyn Handler, entries: impl IntoIterator<Item = Entry>) {
    entries.into_iter().for_each(|entry| handler.write(&entry).expect("written"));
    handler.sync().expect("stored");
}

fn archive(folder: &Folder) -> Archive {
    Archive::open(&folder.file("a")).expect("an archive")
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

fn numbers(folder: &Folder) -> Vec<i64> {
    let number = |row: Vec<Value>| match row.as_slice() {
        [Value::Integer(number)] => *number,
        other => panic!("{other:?}"),
    };
    let found = rows(&archive(folder), "SELECT number FROM \"test::Number\" ORDER BY number");
    found.into_iter().map(number).collect()
}

fn names(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.file("a")).expect("a folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a text")).collect();
    names.sort();
    names
}

/// As if the process had been killed: nothing is closed but the lock.
fn kill(folder: &Folder, handler: Box<dyn Handler>) {
    let copies: Vec<(PathBuf, Vec<u8>)> = names(folder)
        .iter()
        .map(|name| folder.file("a").join(name))
        .map(|path| (path.clone(), fs::read(&path).expect("read")))
        .collect();
    drop(handler);
    fs::remove_dir_all(folder.file("a")).expect("removed");
    fs::create_dir_all(folder.file("a")).expect("a folder");
    copies.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("written"));
}

fn structure(members: Vec<Member>) -> Schema {
    let mut types = SchemaBuilder::new();
    let root = types.add(Def::structure("a::B", members));
    types.finish(Type::Def(root)).expect("a schema")
}

/// An entry of a type, changed by `set`.
fn of(schema: &Schema, number: u64, set: impl FnOnce(&mut Record)) -> Entry {
    let mut record = Record::new(&Shape::of(schema).expect("a shape"));
    set(&mut record);
    let origin = Origin { topic: "t".to_owned(), incarnation: u64::MAX, ..Origin::default() };
    Entry::new(Arc::new(origin), number, 1_700_000_000_000_000_000 + number as i64, record)
}

fn members() -> Vec<Member> {
    vec![
        Member::new("flag", Type::Bool),
        Member::new("small", Type::Int64),
        Member::new("big", Type::Uint64),
        Member::new("single", Type::Float32),
        Member::new("float", Type::Float64),
        Member::new("text", Type::string()).as_optional(),
        Member::new("blob", Type::sequence(Type::Octet)),
        Member::new("list", Type::sequence(Type::Float64)),
        Member::new("_topic", Type::Int32),
    ]
}

fn full(number: u64) -> Entry {
    of(&structure(members()), number, |record| {
        record.set("flag", true).expect("set");
        record.set("small", i64::MIN).expect("set");
        record.set("big", u64::MAX).expect("set");
        record.set("single", 0.5f32).expect("set");
        record.set("float", f64::NAN).expect("set");
        record.set("text", "").expect("set");
        record.set("blob", &[0u8, 255][..]).expect("set");
        record.resize("list", 1).expect("set");
        record.set("list[0]", f64::INFINITY).expect("set");
        record.set("_topic", 7).expect("set");
    })
}

/// What pyarrow reads.
const READER: &str = r#"
import pyarrow.parquet as parquet, sys
table = parquet.read_table(sys.argv[1])
print(",".join(f"{f.name}:{f.type}" for f in table.schema))
# Python's own times have microseconds.
table = table.set_column(4, "_timestamp_ns", table["_timestamp_ns"].cast("int64"))
for row in table.to_pylist():
    print({k: v for k, v in row.items() if k != "_writer"})
"#;

#[test]
fn another_library_reads_the_same() {
    let folder = Folder::new("parquet-values");
    let mut all = handler(&folder);
    write(&mut *all, [full(1), of(&structure(members()), 2, |_| {})]);
    drop(all);
    let archive = archive(&folder);
    let found = rows(
        &archive,
        "SELECT flag, small, big, single, float, text, blob, list, \"_topic~2\" FROM \"a::B\" ORDER BY _sequence",
    );
    let text = |text: &str| Value::Text(text.to_owned());
    let one = [Value::Integer(1), Value::Integer(i64::MIN), text("18446744073709551615"), Value::Real(0.5)];
    assert_eq!(found[0][..4], one);
    assert_eq!(found[0][4..8], [text("NaN"), text(""), Value::Blob(vec![0, 255]), text("[\"Infinity\"]")]);
    assert_eq!((&found[0][8], &found[1][5]), (&Value::Integer(7), &Value::Null));
    assert_eq!((archive.check().expect("checked").rows, names(&folder)[0].as_str()), (2, "a.B.1.parquet"));
    if !tools::python_has("pyarrow") {
        return;
    }
    let file = folder.file("a").join("a.B.1.parquet");
    let read = tools::output_of(Command::new(tools::python()).args(["-c", READER]).arg(file), b"").expect("it reads");
    let read = String::from_utf8(read).expect("a text");
    let lines: Vec<&str> = read.lines().collect();
    assert_eq!(
        lines[0],
        "_topic:string,_writer:string,_incarnation:uint64,_sequence:uint64,_timestamp_ns:timestamp[ns, tz=UTC],\
         _kind:string,flag:bool,small:int64,big:uint64,single:float,float:double,text:string,blob:binary,\
         list:extension<arrow.json>,_topic~2:int64"
            .replace(
                "list:extension<arrow.json>",
                if lines[0].contains("arrow.json") { "list:extension<arrow.json>" } else { "list:string" }
            )
    );
    let expected = "'_incarnation': 18446744073709551615, '_sequence': 1, '_timestamp_ns': 1700000000000000001, \
         '_kind': 'data', 'flag': True, 'small': -9223372036854775808, 'big': 18446744073709551615, 'single': 0.5, \
         'float': nan, 'text': '', 'blob': b'\\x00\\xff', 'list': '[\"Infinity\"]', '_topic~2': 7}";
    assert!(lines[1].ends_with(expected), "{}\n{expected}", lines[1]);
    assert!(lines[2].contains("'text': None"), "{}", lines[2]);
}

#[test]
fn a_version_with_other_columns_has_files_of_its_own() {
    let folder = Folder::new("parquet-evolves");
    let first = structure(vec![Member::new("a", Type::Int32)]);
    let second = structure(vec![Member::new("a", Type::Int32), Member::new("b", Type::Float64)]);
    let third = structure(vec![Member::new("a", Type::string())]);
    let old = |number| of(&first, number, |record| record.set("a", 1).expect("set"));
    let new = of(&second, 2, |record| record.set("b", 2.5).expect("set"));
    let other = of(&third, 4, |record| record.set("a", "x").expect("set"));
    let mut all = handler(&folder);
    write(&mut *all, [old(1), new, old(3), other]);
    drop(all);
    let files: Vec<_> = names(&folder).into_iter().filter(|name| name.ends_with(".parquet")).collect();
    assert_eq!(files, ["a.B.1.parquet", "a.B.2.parquet", "a.B.3.parquet"]);
    let found = rows(&archive(&folder), "SELECT _sequence, a, b, \"a~2\" FROM \"a::B\" ORDER BY _sequence");
    let row = |number: i64, a: Value, b: Value, text: Value| vec![Value::Integer(number), a, b, text];
    let (none, one) = (|| Value::Null, || Value::Integer(1));
    let expected = [
        row(1, one(), none(), none()),
        row(2, Value::Integer(0), Value::Real(2.5), none()),
        row(3, one(), none(), none()),
        row(4, none(), none(), Value::Text("x".to_owned())),
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_comes_again_is_stored_once() {
    let folder = Folder::new("parquet-again");
    let mut first = open(&folder, "rotate_bytes = 2000").expect("opened");
    write(&mut *first, (1..=50).map(|number| entry("t", number)));
    let at_kill = names(&folder);
    assert!(at_kill.iter().any(|name| name.ends_with(".parquet")), "{at_kill:?}");
    kill(&folder, first);
    // Journals are taken up under their names, and nothing is there twice.
    let mut second = open(&folder, "rotate_bytes = 2000").expect("opened");
    assert_eq!(names(&folder), at_kill);
    write(&mut *second, (20..=70).map(|number| entry("t", number)));
    assert_eq!(numbers(&folder), (1..=70).collect::<Vec<_>>());
    kill(&folder, second);
    drop(open(&folder, "").expect("opened"));
    let mut third = handler(&folder);
    write(&mut *third, (60..=71).map(|number| entry("t", number)));
    assert_eq!(numbers(&folder), (1..=71).collect::<Vec<_>>());
    let (a, b) = (archive(&folder).series("t", "number", 10..=12, 100), archive(&folder).newest("t", "number"));
    let Series { points, without, .. } = a.expect("a series");
    assert_eq!((points, without, b.expect("a time")), (vec![(10, 10.0), (11, 11.0), (12, 12.0)], 0, Some(71)));
    let wrong = |topic, member| archive(&folder).series(topic, member, 0..=99, 100).expect_err("nothing").to_string();
    assert_eq!(wrong("t", "nmber"), "no type in the archive has a member 'nmber'");
    assert_eq!(wrong("u", "number"), "no message of 'u' with 'number' in this time");
}

/// Between the steps of a rotation there are files that the next start has to understand.
#[test]
fn a_rotation_that_was_interrupted_is_completed() {
    let folder = Folder::new("parquet-between");
    let mut all = handler(&folder);
    write(&mut *all, (1..=5).map(|number| entry("t", number)));
    let journal = folder.file("a").join("test.Number.1.journal");
    let bytes = fs::read(&journal).expect("a journal");
    drop(all);
    assert_eq!(names(&folder), ["test.Number.1.parquet", "test.Number.2.journal"]);
    // The file is there, and its journal still is.
    fs::write(&journal, &bytes).expect("written");
    fs::write(folder.file("a").join("test.Number.3.part"), "half").expect("written");
    drop(handler(&folder));
    assert_eq!(names(&folder), ["test.Number.1.parquet", "test.Number.2.journal"]);
    // The next journal is there, and the file is not.
    fs::write(&journal, &bytes).expect("written");
    fs::remove_file(journal.with_extension("parquet")).expect("removed");
    drop(handler(&folder));
    assert_eq!(names(&folder), ["test.Number.1.parquet", "test.Number.2.journal"]);
    assert_eq!(numbers(&folder), [1, 2, 3, 4, 5]);
}

#[test]
fn old_journals_become_files_and_old_files_go() {
    let folder = Folder::new("parquet-age");
    let mut all = open(&folder, "rotate_seconds = 0.001\nkeep_seconds = 1000000").expect("opened");
    write(&mut *all, [entry("t", 1)]);
    thread::sleep(Duration::from_millis(5));
    all.sync().expect("stored");
    assert_eq!(names(&folder)[0], "test.Number.1.parquet");
    drop(all);
    let size = fs::metadata(folder.file("a").join("test.Number.1.parquet")).expect("a file").len();
    // Room for one file and the journal.
    let mut few = open(&folder, &format!("rotate_bytes = 1\nkeep_bytes = {}", size * 2)).expect("opened");
    write(&mut *few, (2..=9).map(|number| entry("t", number)));
    drop(few);
    open(&folder, &format!("keep_bytes = {}", size * 2)).expect("opened").sync().expect("looked");
    let left = numbers(&folder);
    assert!(left.len() <= 2 && left.last() == Some(&9), "{left:?}");
    thread::sleep(Duration::from_millis(20));
    open(&folder, "keep_seconds = 0.01").expect("opened").sync().expect("looked");
    assert!(names(&folder).iter().all(|name| name.ends_with(".journal")), "{:?}", names(&folder));
    // What is forgotten is not stored again.
    let mut last = handler(&folder);
    write(&mut *last, [entry("t", 9), entry("t", 10)]);
    assert_eq!(numbers(&folder), [10]);
}

#[test]
fn two_collectors_do_not_write_one_journal() {
    let folder = Folder::new("parquet-two");
    let mut all = handler(&folder);
    write(&mut *all, [entry("t", 1)]);
    let error = open(&folder, "").err().expect("it is in use").to_string();
    assert!(error.ends_with("another collector writes here"), "{error}");
}

/// Every row is as it was written, or something is reported; in Parquet files and in journals.
#[test]
fn damage_is_reported() {
    let folder = Folder::new("parquet-damage");
    let mut all = handler(&folder);
    write(&mut *all, (1..=2000).map(|number| entry("t", number)));
    let journal = folder.file("a").join("test.Number.1.journal");
    let rows_of_journal = fs::read(&journal).expect("a journal");
    drop(all);
    let file = journal.with_extension("parquet");
    let whole = fs::read(&file).expect("a file");
    let expected: Vec<i64> = (1..=2000).collect();
    for (path, whole) in [(&file, &whole), (&journal, &rows_of_journal)] {
        fs::remove_dir_all(folder.file("a")).expect("removed");
        fs::create_dir_all(folder.file("a")).expect("a folder");
        let is_told = |damaged: &[u8]| {
            fs::write(path, damaged).expect("written");
            let check = archive(&folder).check().expect("it returns");
            !check.damage.is_empty() || numbers(&folder) == expected
        };
        assert!(is_told(whole) && archive(&folder).check().expect("checked").damage.is_empty());
        let mut state = 1u64;
        for round in 0..60 {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let mut damaged = whole.clone();
            let at = usize::try_from(state % whole.len() as u64).expect("small");
            damaged[at] ^= 1 << (state >> 60 & 7);
            assert!(is_told(&damaged), "round {round}: bit flipped in byte {at} of {}", path.display());
            assert!(is_told(&whole[..at]), "round {round}: cut at byte {at} of {}", path.display());
        }
    }
    // What cannot be read of a journal is kept when it is taken up.
    let mut damaged = rows_of_journal.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&journal, damaged).expect("written");
    drop(handler(&folder));
    let left = numbers(&folder);
    assert!(left.len() > 800 && left.len() < 1200, "{}", left.len());
    let aside = fs::metadata(journal.with_extension("damaged")).expect("it is there").len();
    assert!(aside > rows_of_journal.len() as u64 / 3, "{aside}");
}

#[test]
fn other_files_are_refused_by_name() {
    let folder = Folder::new("parquet-other");
    fs::create_dir_all(folder.file("a")).expect("a folder");
    let error = Archive::open(&folder.file("a")).err().expect("nothing is there").to_string();
    assert!(error.ends_with("there are no files of a collector"), "{error}");
    fs::write(folder.file("b.parquet"), "PAR1 something else PAR1").expect("written");
    let other = Archive::open(&folder.file("b.parquet")).expect("it has the name");
    assert_eq!(other.check().expect("checked").damage.len(), 1);
}
