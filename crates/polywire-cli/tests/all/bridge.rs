//! `polywire bridge` as a process between two others, at two engines and in two formats: what
//! happens when it is killed, and that it drains when it is told to end.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{Folder, Running, report};

const THERE: &str = "unix/there.sock";

fn bridge(folder: &Folder) -> Running {
    folder.start(&["bridge", "local", &format!("json@{THERE}"), "weather"])
}

/// The arguments of a publisher on the one side.
fn publish(number: u32) -> Vec<String> {
    let value = report(number);
    let arguments = ["pub", "weather", &value, "--idl", "weather.idl", "--type", "Report", "--wire", "cdr@local"];
    arguments.map(String::from).to_vec()
}

fn started(folder: &Folder, arguments: &[String], more: &[&str]) -> Running {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
    folder.start(&arguments)
}

/// The formats of all publishers, with the engines at which they are.
fn formats(folder: &Folder) -> BTreeSet<(String, String)> {
    let shown = folder.run(&["list", "--timeout", "100", "--json"]).with(0).json();
    let rows = shown.as_array().expect("rows").iter();
    let of = |row: &Value| Some((row["endpoint"].as_str()?.split('/').next()?.into(), row["codec"].as_str()?.into()));
    rows.filter_map(of).collect()
}

#[test]
fn a_bridge_that_is_killed_and_started_again_goes_on() {
    let folder = Folder::new();
    let first = bridge(&folder);
    let endless = started(&folder, &publish(1), &["--wait", "0", "--count", "1000000", "--rate", "100"]);
    let mut echo = folder.start(&["echo", "weather", "--wire", THERE, "-v"]);
    echo.line_with("S1");
    let expected = [("local", "cdr"), ("unix", "json")].map(|(engine, codec)| (engine.into(), codec.into()));
    assert_eq!(formats(&folder), BTreeSet::from(expected));
    let killed = first.end_by("KILL");
    assert_eq!(killed.signal(), Some(9), "{killed:?}");
    echo.error_after(" is down: ");
    endless.end_by("TERM");

    let second = bridge(&folder);
    echo.error_after(" is up");
    started(&folder, &publish(2), &["--wait", "1", "--count", "3000"]).end().with(0);
    let ended = second.end_by("TERM").with(0);
    // What it has taken, it has sent before it ended.
    let figures = ended.out.lines().rfind(|line| line.starts_with("there: ")).expect("figures");
    let passed = figures["there: ".len()..].split(' ').next().and_then(|count| count.parse().ok());
    let passed: usize = passed.expect("a count");
    assert!(passed > 0 && figures.contains(", 0 lost;"), "{ended:?}");
    (0..passed).for_each(|_| drop(echo.line_with("S2")));
}
