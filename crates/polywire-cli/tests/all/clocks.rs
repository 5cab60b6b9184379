//! Wall clocks that are wrong, and that jump while nodes run. libfaketime shows processes of
//! `polywire` another wall clock. Their monotonic clock stays as it is, as on a host whose clock is
//! set.

use std::{
    cell::Cell,
    fs,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::common::{Folder, Running, report, tools};

const HOUR_NS: i64 = 3_600_000_000_000;

/// Engines at which a subscriber listens. The endpoint that it then tells is the publisher's.
const PLACES: [&str; 2] = ["local", "udp-reliable/127.0.0.1:0"];

/// The wall clock of the processes that it starts.
struct Clock<'a> {
    folder: &'a Folder,
    library: PathBuf,
    file: PathBuf,
}

impl<'a> Clock<'a> {
    /// A clock with a name, so far from the right time: `+1d`, `-1h`. `None` if the test has to be
    /// skipped.
    fn new(folder: &'a Folder, name: &str, shift: &str) -> Option<Clock<'a>> {
        let clock = Clock { folder, library: tools::faketime()?, file: folder.path().join(name) };
        clock.set(shift);
        Some(clock)
    }

    /// Sets the clock, also of the processes that run.
    fn set(&self, shift: &str) {
        // Every look at the clock reads the file, so it must be complete at any time.
        let aside = self.file.with_extension("new");
        fs::write(&aside, shift).and_then(|()| fs::rename(aside, &self.file)).expect("written");
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.folder.command(arguments);
        command.env("LD_PRELOAD", &self.library).env("FAKETIME_TIMESTAMP_FILE", &self.file);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Running::of(command)
    }

    /// Publishes these reports to one subscriber, and waits until it has them.
    fn publish(&self, wire: &str, more: &[&str], reports: std::ops::Range<u32>) {
        let publish = ["pub", "weather", "--idl", "weather.idl", "--type", "Report", "--wait-timeout", "100"];
        let mut publisher = self.start(&[&publish[..], &["--config", "patient.toml", "--wire", wire], more].concat());
        publisher.input(&lines(reports));
        publisher.end().with(0);
    }
}

fn lines(reports: std::ops::Range<u32>) -> String {
    reports.map(|number| report(number) + "\n").collect()
}

/// What `echo --info` has printed: the number of each report, and its time.
fn printed(text: &str) -> Vec<(u32, i64)> {
    let of = |line: &str| {
        let info: Value = serde_json::from_str(line).expect("JSON");
        let station = info["value"]["station"].as_str().expect("a station").to_owned();
        (station[1..].parse().expect("a number"), info["timestamp_ns"].as_i64().expect("a time"))
    };
    text.lines().map(of).collect()
}

#[test]
fn publishers_whose_clocks_are_a_day_off_are_read() {
    const REPORTS: u32 = 300;
    let folder = Folder::new();
    for place in PLACES {
        let count = (2 * REPORTS).to_string();
        let echo = ["echo", "weather", "-v", "--info", "-n", &count, "--timeout", "100", "--wire", place];
        let mut echo = folder.start(&echo);
        let wire = echo.error_after(": listening on ");
        for shift in ["+1d", "-1d"] {
            let Some(clock) = Clock::new(&folder, "clock", shift) else { return };
            clock.publish(&wire, &[], 0..REPORTS);
        }
        let came = printed(&echo.end().with(0).out);
        assert!(came.iter().map(|(number, _)| *number).eq((0..REPORTS).chain(0..REPORTS)), "{place}: {came:?}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as i64;
        let (ahead, behind) = came.split_at(REPORTS as usize);
        assert!(ahead.iter().all(|(_, at)| (at - now - 24 * HOUR_NS).abs() < HOUR_NS), "{place}: {ahead:?}");
        assert!(behind.iter().all(|(_, at)| (at - now + 24 * HOUR_NS).abs() < HOUR_NS), "{place}: {behind:?}");
    }
}

#[test]
fn a_lifespan_begins_by_the_writers_clock_and_ends_by_the_readers() {
    // The writer's clock, the reader's, and whether an hour is enough.
    let cases =
        [("+0", "+0", true), ("+1d", "+0", true), ("-1d", "+0", false), ("+0", "+1d", false), ("-1d", "-1d", true)];
    for (number, (writer, reader, is_enough)) in cases.into_iter().enumerate() {
        let folder = Folder::new();
        let Some(reader) = Clock::new(&folder, "reader", reader) else { return };
        let Some(writer) = Clock::new(&folder, "writer", writer) else { return };
        let echo = reader.start(&["echo", "weather", "--info", "-n", "1", "--timeout", "100"]);
        writer.publish("cdr", &["--qos", "lifespan=1h"], 0..1);
        if !is_enough {
            // What never expires comes after it.
            writer.publish("cdr", &[], 1..2);
        }
        let came = printed(&echo.end().with(0).out);
        assert_eq!(came[0].0, u32::from(!is_enough), "case {number}");
    }
}

/// Longer than a busy machine holds up a process, and shorter than the jumps.
const QOS: &str = "deadline=60s,lease=60s";

/// What nodes would say if they took a jump for silence or a loss.
const WRONG: [&str; 6] = ["deadline", "alive", "lease", "silent", "lost", "panicked"];

fn jump_while_messages_flow(place: &str) {
    // Reports after each jump, and before the first one.
    const REPORTS: u32 = 200;
    // Clocks of the writer and of the reader, one after the other.
    const JUMPS: [(&str, &str); 6] =
        [("-1h", "+0"), ("-1h", "-1d"), ("+1d", "+1d"), ("+400d", "-1h"), ("-1d", "+400d"), ("+0", "+0")];
    let folder = Folder::new();
    let Some(reader) = Clock::new(&folder, "reader", "+0") else { return };
    let Some(writer) = Clock::new(&folder, "writer", "+0") else { return };
    let total = REPORTS * (JUMPS.len() as u32 + 1);
    let count = total.to_string();
    let common = ["weather", "-v", "--config", "patient.toml", "--qos", QOS];
    let echo = ["--info", "-n", &count, "--timeout", "100", "--wire", place];
    let mut echo = reader.start(&[&["echo"], &common[..], &echo].concat());
    let wire = echo.error_after(": listening on ");
    let publish = ["--idl", "weather.idl", "--type", "Report", "--rate", "400", "--wire", &wire];
    let mut publisher = writer.start(&[&["pub"], &common[..], &publish, &["--wait-timeout", "100"]].concat());
    for (phase, (at_writer, at_reader)) in (0..).zip(JUMPS) {
        publisher.write(&lines(phase * REPORTS..(phase + 1) * REPORTS));
        // While the others are under way. If they are not any more, the next ones show the jump.
        (0..REPORTS / 2).for_each(|_| drop(echo.line()));
        writer.set(at_writer);
        reader.set(at_reader);
        (REPORTS / 2..REPORTS).for_each(|_| drop(echo.line()));
    }
    publisher.input(&lines(total - REPORTS..total));
    let (echo, publisher) = (echo.end().with(0), publisher.end().with(0));
    let came = printed(&echo.out);
    assert!(came.iter().map(|(number, _)| *number).eq(0..total), "{came:?}");
    let steps: Vec<i64> =
        came.windows(2).map(|pair| (pair[1].1 - pair[0].1) / (HOUR_NS / 2)).filter(|s| *s != 0).collect();
    assert_eq!(steps.len(), 5, "the clock of the publisher jumped as often: {steps:?}");
    for wrong in WRONG {
        assert!(
            !echo.errors.contains(wrong) && !publisher.errors.contains(wrong),
            "{}{}",
            echo.errors,
            publisher.errors
        );
    }
}

#[test]
fn clocks_jump_while_messages_flow_between_processes_of_a_host() {
    jump_while_messages_flow(PLACES[0]);
}

#[test]
fn clocks_jump_while_messages_flow_over_datagrams() {
    jump_while_messages_flow(PLACES[1]);
}

#[test]
fn silence_is_noticed_while_the_clock_goes_back() {
    let folder = Folder::new();
    let Some(reader) = Clock::new(&folder, "reader", "+0") else { return };
    let qos = ["weather", "-v", "--qos", "deadline=1s,lease=1s"];
    let mut echo = reader.start(&[&["echo"], &qos[..], &["-n", "2"]].concat());
    let publish = ["--idl", "weather.idl", "--type", "Report", "--wait-timeout", "100"];
    let mut publisher = folder.start(&[&["pub"], &qos[..], &publish].concat());
    publisher.write(&lines(0..1));
    echo.line();
    echo.error_after("within the deadline requested, 1 times so far");
    reader.set("-1d");
    echo.error_after("within the deadline requested, 2 times so far");
    publisher.signal("STOP");
    reader.set("-2d");
    echo.error_after(" is not alive ");
    reader.set("-3d");
    publisher.signal("CONT");
    echo.error_after(" is alive again ");
    publisher.input(&lines(1..2));
    // A process that ends in another way leaves files of libfaketime behind.
    publisher.end().with(0);
    echo.end().with(0);
}

/// A node takes its incarnation from the clock, and so seems to be older than before.
#[test]
fn a_node_that_restarts_with_its_clock_set_back_is_heard() {
    // On either side of the decision over links: ids below and above that of the subscriber.
    for uuid in ["00000000-0000-4000-8000-000000000001", "ffffffff-ffff-4fff-bfff-fffffffffffe"] {
        PLACES.into_iter().for_each(|place| restart_with_the_clock_set_back(uuid, place));
    }
}

fn restart_with_the_clock_set_back(uuid: &str, place: &str) {
    let folder = Folder::new();
    folder.write("a.state", &format!("name = \"house\"\nuuid = \"{uuid}\"\n"));
    folder.write("hasty.toml", "[engine]\nlease_ms = 500\n");
    let Some(clock) = Clock::new(&folder, "clock", "+0") else { return };
    let hasty = ["--config", "hasty.toml", "--wire"];
    let mut echo = folder.start(&[&["echo", "probes/house/clock", "-v", "--info"], &hasty[..], &[place]].concat());
    let wire = echo.error_after(": listening on ");
    let last = Cell::new(String::new());
    // Waits for the first sample of another writer.
    let mut next = || loop {
        let info: Value = serde_json::from_str(&echo.line()).expect("JSON");
        let writer = info["writer"].as_str().expect("a writer").to_owned();
        if last.replace(writer.clone()) != writer {
            return;
        }
    };
    let agent = ["agent", "--state", "a.state", "--probe", "clock", "--every", "0.02"];
    let agent = [&agent[..], &hasty, &[&wire]].concat();
    let first = clock.start(&agent);
    next();
    first.end_by("TERM").with(0);
    clock.set("-1h");
    let second = clock.start(&agent);
    next();
    // Its host is gone without a word: nothing closes its links.
    second.signal("STOP");
    clock.set("-2h");
    let third = clock.start(&agent);
    next();
    second.signal("CONT");
    for agent in [second, third] {
        agent.end_by("TERM").with(0);
    }
}
