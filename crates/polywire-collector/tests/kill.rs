//! A collector that is killed again and again: what it acknowledged is in its files.
//!
//! The test starts itself as the process that is killed. `POLYWIRE_ROUNDS` says how often.

mod common;

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::Ordering,
    time::Duration,
};

use common::{Folder, Numbers};
use polywire::Node;
use polywire_collector::{Collector, CollectorConfig};

/// The folder and the first number, for the process that is killed.
const FOLDER: &str = "POLYWIRE_KILL_FOLDER";
const FIRST: &str = "POLYWIRE_KILL_FIRST";

fn config(folder: &Path) -> CollectorConfig {
    let path = |name: &str| folder.join(name).display().to_string();
    let text = format!(
        "[collector]\nendpoints = ['inproc/kill']\n\
         [handlers.lines]\nkind = 'jsonl'\npath = '{}'\nsync = 0.002\noverflow = 'block'\nrotate_bytes = 100000\n\
         [handlers.tables]\nkind = 'csv'\npath = '{}'\nsync = 0.002\noverflow = 'block'\n{}{}{}",
        path("lines.jsonl"),
        path("tables"),
        archive(folder),
        recording(folder),
        columns(folder),
    );
    CollectorConfig::parse(&text).expect("valid")
}

#[cfg(feature = "sqlite")]
fn archive(folder: &Path) -> String {
    let path = folder.join("archive.db");
    format!("[handlers.archive]\nkind = 'sqlite'\npath = '{}'\nsync = 0.002\noverflow = 'block'\n", path.display())
}

#[cfg(not(feature = "sqlite"))]
fn archive(_: &Path) -> &'static str {
    ""
}

#[cfg(feature = "mcap")]
fn recording(folder: &Path) -> String {
    let path = folder.join("all.mcap");
    format!("[handlers.recording]\nkind = 'mcap'\npath = '{}'\nsync = 0.002\noverflow = 'block'\n", path.display())
}

#[cfg(not(feature = "mcap"))]
fn recording(_: &Path) -> &'static str {
    ""
}

#[cfg(feature = "parquet")]
fn columns(folder: &Path) -> String {
    let path = folder.join("columns");
    let settings = "sync = 0.002\noverflow = 'block'\nrotate_bytes = 20000";
    format!("[handlers.columns]\nkind = 'parquet'\npath = '{}'\n{settings}\n", path.display())
}

#[cfg(not(feature = "parquet"))]
fn columns(_: &Path) -> &'static str {
    ""
}

/// The process that is killed. Prints what is acknowledged. Without a folder it does nothing.
#[test]
fn process_that_is_killed() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let first: u64 = env::var(FIRST).expect("a first number").parse().expect("a number");
    let mut collector = Collector::new(Node::new());
    collector.reload(&config(folder.as_ref())).expect("valid");
    let (mut numbers, counts) = Numbers::new(u64::MAX);
    counts.acknowledged.store(first - 1, Ordering::Release);
    (numbers.next, numbers.window) = (first, 100);
    numbers.tell = |position| {
        println!("acknowledged {position}");
        let _ = std::io::stdout().flush();
    };
    collector.add_source(Box::new(numbers)).expect("a thread");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Runs the process until it has acknowledged so many times, and kills it. Returns the latest
/// number acknowledged.
fn round(folder: &Folder, first: u64, times: usize) -> u64 {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(["--exact", "process_that_is_killed", "--nocapture"]);
    command.env(FOLDER, folder.path()).env(FIRST, first.to_string());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut latest = first - 1;
    let mut note = |line: std::io::Result<String>| {
        let number = line.ok()?.split_once("acknowledged ")?.1.parse().ok()?;
        latest = number;
        Some(())
    };
    for _ in 0..times {
        while note(lines.next().expect("it runs")).is_none() {}
    }
    child.kill().expect("killed");
    // What it said before it was killed counts, too.
    lines.for_each(|line| {
        note(line);
    });
    child.wait().expect("it has ended");
    latest
}

#[test]
fn what_was_acknowledged_is_there() {
    let rounds: u64 = env::var("POLYWIRE_ROUNDS").map_or(50, |rounds| rounds.parse().expect("a number"));
    let folder = Folder::new("kill");
    let mut latest = 0;
    for number in 0..rounds {
        // From 1 to 7 times, in an order without a pattern.
        let times = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61) as usize;
        let next = round(&folder, latest + 1, times.max(1));
        assert!(next > latest);
        latest = next;
    }
    let expected: BTreeSet<u64> = (1..=latest).collect();
    assert!(lines(&folder).is_superset(&expected), "JSON lines");
    assert!(table(&folder).is_superset(&expected), "CSV");
    #[cfg(feature = "mcap")]
    assert!(recorded(&folder).is_superset(&expected), "MCAP");
    #[cfg(feature = "sqlite")]
    {
        assert!(database(&folder, "archive.db").is_superset(&expected), "SQLite");
        #[cfg(feature = "parquet")]
        assert!(database(&folder, "columns").is_superset(&expected), "Parquet");
    }
}

/// The numbers in all JSON lines that are whole.
fn lines(folder: &Folder) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder.path()).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            let text = fs::read_to_string(&path).expect("a text");
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            for line in whole.lines() {
                let line: serde_json::Value = serde_json::from_str(line).expect("each line but the last is whole");
                found.insert(line["value"]["number"].as_u64().expect("a number"));
            }
        }
    }
    found
}

fn table(folder: &Folder) -> BTreeSet<u64> {
    let text = fs::read_to_string(folder.file("tables").join("test.Number.csv")).expect("a table");
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().skip(1).map(|line| line.split(',').nth(6).expect("a field").parse().expect("a number")).collect()
}

/// The numbers in all MCAP files. The last one was interrupted.
#[cfg(feature = "mcap")]
fn recorded(folder: &Folder) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder.path()).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "mcap") {
            let bytes = fs::read(&path).expect("a file");
            let messages = mcap::io::MessageReader::new(bytes.as_slice());
            for message in messages.take_while(Result::is_ok).flatten() {
                let value: serde_json::Value = serde_json::from_slice(&message.data).expect("JSON");
                found.insert(value["number"].as_u64().expect("a number"));
            }
            let is_numbered = path.file_stem() != Some("all".as_ref());
            assert!(!is_numbered || mcap::Summary::read(&bytes).expect("whole").is_some(), "{}", path.display());
        }
    }
    found
}

/// The numbers in a database or in Parquet files, none of which is there twice.
#[cfg(feature = "sqlite")]
fn database(folder: &Folder, name: &str) -> BTreeSet<u64> {
    let archive = polywire_collector::Archive::open(&folder.file(name)).expect("an archive");
    let (mut found, mut rows) = (BTreeSet::new(), 0);
    let read = archive.query("SELECT number FROM \"test::Number\"", |_, row| {
        let [polywire_collector::ArchiveValue::Integer(number)] = row else { return false };
        rows += 1;
        found.insert(u64::try_from(*number).expect("a number"))
    });
    read.expect("it can be read");
    let check = archive.check().expect("checked");
    assert_eq!((check.damage, check.rows), (Vec::new(), rows));
    assert_eq!(rows, found.len() as u64, "each once");
    found
}
