//! `pub` and `echo`: two processes, over TCP and Unix-domain sockets, in every codec.

use std::{thread, time::Duration};

use crate::common::{Folder, Running, report, until};
use polywire::codec::CODECS;
use serde_json::{Value, json};

const PUB: [&str; 6] = ["pub", "weather", "--idl", "weather.idl", "--type", "Report"];

fn values(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Publishes three reports in a codec to an echo that listens, and gives what it printed.
fn echoed(folder: &Folder, codec: &str, listen: &str, connect: fn(&str) -> String, reader: &[&str]) -> Vec<Value> {
    let at = format!("{codec}@{listen}");
    let arguments: Vec<&str> = ["echo", "weather", "-v", "-n", "3", "--timeout", "100", "--wire", &at].into();
    let mut echo = folder.start(&[&arguments[..], reader].concat());
    let endpoint = echo.error_after(": listening on ");
    let wire = format!("{codec}@{}", connect(&endpoint));
    let lines: Vec<String> = (0..3).map(report).collect();
    let publishing =
        [&PUB[..], &["--wire", &wire, "--config", "patient.toml", "--wait-timeout", "100", "--json"]].concat();
    let summary = folder.run_with(&publishing, &lines.join("\n")).with(0).json();
    assert_eq!((&summary["messages"], &summary["dropped"], &summary["subscribers"]), (&json!(3), &json!(0), &json!(1)));
    assert!(summary["bytes"].as_u64().is_some_and(|bytes| bytes >= 3 * 15), "{summary}");
    values(&echo.end().with(0).out)
}

fn same(endpoint: &str) -> String {
    endpoint.into()
}

fn connect_tcp(endpoint: &str) -> String {
    endpoint.replacen("tcp/", "tcp-connect/", 1)
}

#[test]
fn every_codec_reaches_every_version_over_tcp_unix_sockets_and_udp() {
    for codec in CODECS.iter().map(|codec| codec.name()) {
        let folder = Folder::new();
        let engines = [
            ("tcp-listen/127.0.0.1:0", connect_tcp as fn(&str) -> String),
            ("unix/echo.sock", same),
            ("udp-reliable/127.0.0.1:0", same),
        ];
        for (listen, connect) in engines {
            let as_written = echoed(&folder, codec, listen, connect, &[]);
            let expected: Vec<Value> = (0..3).map(|i| serde_json::from_str(&report(i)).expect("JSON")).collect();
            assert_eq!(as_written, expected, "{codec} over {listen}");

            let older = echoed(&folder, codec, listen, connect, &["--idl", "older.idl", "--type", "Report"]);
            let expected =
                json!({"temperature_c": 2.5, "wind": {"direction_deg": 270}, "station": "S2", "pressure_hpa": 1013.25});
            assert_eq!(older[2], expected, "{codec} over {listen}");

            let newer = echoed(&folder, codec, listen, connect, &["--idl", "newer.idl", "--type", "Report"]);
            let wind = json!({"gusts_ms": 0.0, "speed_ms": f64::from(0.1f32), "direction_deg": 270});
            assert_eq!((&newer[1]["wind"], &newer[1]["sky"]), (&wind, &json!("CLOUDY")), "{codec} over {listen}");
            assert_eq!((&newer[1]["network"], &newer[1]["notes"]), (&json!("unknown"), &json!(["a", "b"])));
        }
    }
}

#[test]
fn types_that_do_not_agree_are_loud_on_both_sides() {
    let folder = Folder::new();
    let wire = ["--wire", "cdr@unix/t.sock"];
    let reader = ["echo", "weather", "-v", "--idl", "wrong.idl", "--timeout", "20"];
    let mut echo = folder.start(&[&reader[..], &wire[..]].concat());
    echo.error_after(": listening on ");
    let value = report(1);
    let published = folder.run(&[&PUB[..], &wire, &[value.as_str(), "--wait-timeout", "8"]].concat()).with(2);
    for text in ["temperature_c: the writer has double, the reader string", "to fix it: make the reader's type double"]
    {
        assert!(published.errors.contains(text), "{}", published.errors);
    }
    let echo = echo.end().with(2);
    assert!(echo.errors.contains("cannot read weather::Report"), "{}", echo.errors);
    assert_eq!(echo.out, "");
}

#[test]
fn a_writer_that_cannot_be_read_does_not_decide_over_the_others() {
    let folder = Folder::new();
    let wire = ["--wire", "cdr@unix/t.sock"];
    let mut echo = folder.start(
        &[
            &["echo", "weather", "-v", "--idl", "older.idl", "--type", "Report", "-n", "2", "--timeout", "100"],
            &wire[..],
        ]
        .concat(),
    );
    echo.error_after(": listening on ");
    // Another type on the same topic: the subscriber refuses it. The publisher succeeds, because it
    // waits for no subscriber.
    let stranger =
        ["pub", "weather", r#"{"temperature_c":"hot"}"#, "--idl", "wrong.idl", "--wait", "0", "-n", "50", "-r", "100"];
    let stranger = folder.run(&[&stranger[..], &wire].concat()).with(0);
    assert!(stranger.errors.contains("cannot read it"), "{}", stranger.errors);
    let value = report(1);
    folder.run(&[&PUB[..], &wire, &[value.as_str(), "-n", "2", "--wait-timeout", "100"]].concat()).with(0);
    let echo = echo.end().with(0);
    assert_eq!(echo.out.lines().count(), 2);
    assert!(echo.errors.contains("cannot read weather::Report"), "{}", echo.errors);
}

#[test]
fn a_strict_echo_ends_at_the_first_mismatch() {
    let folder = Folder::new();
    let wire = ["--wire", "cdr@unix/t.sock"];
    let echo = folder.start(&[&["echo", "weather", "--idl", "wrong.idl", "--strict"], &wire[..]].concat());
    let value = report(1);
    let _publisher =
        folder.start(&[&PUB[..], &wire, &[value.as_str(), "-n", "20000", "-r", "100", "--wait", "0"]].concat());
    assert_eq!(echo.end().with(2).out, "");
}

#[test]
fn a_message_that_cannot_be_shown_is_named_and_the_next_ones_are_shown() {
    let folder = Folder::new();
    let member = "a".repeat(80);
    folder.write(
        "table.idl",
        &format!("struct Row {{ octet {member}; }}; struct Table {{ long n; sequence<Row> rows; }};"),
    );
    let wire = ["--wire", "cdr@unix/t.sock"];
    let mut echo = folder.start(&[&["echo", "tables", "-v", "-n", "3", "--timeout", "100"], &wire[..]].concat());
    echo.error_after(": listening on ");
    // A row has one byte in CDR and 86 in JSON, which makes the JSON text too long.
    let rows = vec!["{}"; 800_000].join(",");
    folder.write("lines.json", &format!("{{\"n\":1}}\n{{\"n\":2,\"rows\":[{rows}]}}\n{{\"n\":3}}\n"));
    let publish =
        ["pub", "tables", "--idl", "table.idl", "--type", "Table", "--file", "lines.json", "--wait-timeout", "100"];
    folder.run(&[&publish[..], &wire].concat()).with(0);
    let echo = echo.end().with(1);
    assert_eq!(echo.out, "{\"n\":1,\"rows\":[]}\n{\"n\":3,\"rows\":[]}\n");
    assert!(echo.errors.contains("message 2 of writer "), "{}", echo.errors);
    assert!(echo.errors.contains("cannot be shown: "), "{}", echo.errors);
}

#[test]
fn pub_drains_before_it_ends() {
    const MESSAGES: u32 = 20_000;
    let folder = Folder::new();
    let wire = ["--wire", "json@unix/t.sock"];
    let count = MESSAGES.to_string();
    let echo = folder
        .start(&[&["echo", "weather", "--field", "station", "-n", &count, "--timeout", "100"], &wire[..]].concat());
    let lines: String = (0..MESSAGES).map(|i| report(i) + "\n").collect();
    folder.write("lines.json", &lines);
    let arguments = [&PUB[..], &wire, &["--file", "lines.json", "--wait-timeout", "100"]].concat();
    let published = folder.run(&arguments).with(0);
    assert!(published.out.starts_with(&format!("published {MESSAGES} messages, ")), "{}", published.out);
    let echo = echo.end().with(0);
    assert!(echo.out.lines().enumerate().all(|(i, line)| line == format!("\"S{i}\"")));
    assert_eq!(echo.out.lines().count() as u32, MESSAGES);
}

#[test]
fn bad_lines_are_named_counted_and_left_out() {
    let folder = Folder::new();
    let wire = ["--wire", "cdr@unix/t.sock", "--wait", "0"];
    let good = report(0);
    let input = format!("{good}\n\n{{\"station\": 7}}\nnonsense\n{{\"wind\": {{\"direction_deg\": 70000}}}}\n{good}\n");
    let ended = folder.run_with(&[&PUB[..], &wire, &["--json"]].concat(), &input).with(1);
    assert_eq!((&ended.json()["messages"], &ended.json()["bad_lines"]), (&json!(2), &json!(3)));
    for place in ["stdin:3: station: ", "stdin:4: ", "stdin:5: wind.direction_deg: "] {
        assert!(ended.errors.contains(place), "{}", ended.errors);
    }
    let ended = folder.run_with(&[&PUB[..], &wire, &["--json", "--strict"]].concat(), &input).with(2);
    assert_eq!((&ended.json()["messages"], &ended.json()["bad_lines"]), (&json!(1), &json!(1)));
}

#[test]
fn a_line_that_is_not_utf_8_is_a_bad_line() {
    let folder = Folder::new();
    let lines = b"{\"station\":\"\xff\"}\n{\"station\":\"x\"}\n";
    std::fs::write(folder.path().join("lines"), lines).expect("written");
    let more = ["--wire", "cdr@unix/t.sock", "--wait", "0", "--file", "lines", "--json"];
    let ended = folder.run(&[&PUB[..], &more].concat()).with(1);
    assert_eq!((&ended.json()["messages"], &ended.json()["bad_lines"]), (&json!(1), &json!(1)));
    assert!(ended.errors.contains("lines:1: the line is not UTF-8 after 12 bytes"), "{}", ended.errors);
}

#[test]
fn a_member_that_the_type_does_not_have_is_a_bad_line() {
    let folder = Folder::new();
    let wire = ["--wire", "cdr@unix/t.sock", "--wait", "0"];
    let input = "{\"statoin\":\"x\"}\n{\"wind\":{\"sped_ms\":1}}\n";
    let ended = folder.run_with(&[&PUB[..], &wire].concat(), input).with(1);
    let first = "stdin:1: there is no member 'statoin'; there are station, temperature_c, sky, wind, notes";
    for text in [first, "stdin:2: wind: there is no member 'sped_ms'"] {
        assert!(ended.errors.contains(text), "{}", ended.errors);
    }
    folder.run_with(&[&PUB[..], &wire, &["--lenient"]].concat(), input).with(0);
}

#[test]
fn echo_ends_by_count_and_by_timeout() {
    let folder = Folder::new();
    let wire = ["--wire", "cdr@unix/t.sock"];
    let nothing = folder.run(&[&["echo", "weather", "--timeout", "0.3"], &wire[..]].concat()).with(1);
    assert!(nothing.errors.contains("no message on 'weather' at unix/t.sock for 0.3 s: nobody else is there"));

    let few = folder.start(&[&["echo", "weather", "-n", "5", "--timeout", "10"], &wire[..]].concat());
    let value = report(0);
    folder.run(&[&PUB[..], &wire, &[value.as_str(), "--count", "2", "--wait-timeout", "100"]].concat()).with(0);
    let few = few.end().with(1);
    assert_eq!(few.out.lines().count(), 2);
    assert!(few.errors.contains("2 of 5 messages"), "{}", few.errors);

    let nobody = folder.run(&[&PUB[..], &wire, &[value.as_str(), "--wait-timeout", "0.2"]].concat()).with(1);
    assert!(nobody.errors.contains("0 of 1 subscribers to 'weather' at unix/t.sock"), "{}", nobody.errors);
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let folder = Folder::new();
    let wire = ["--wire", "cdr@unix/t.sock"];
    let value = report(0);
    let arguments = [&PUB[..], &wire, &[value.as_str(), "--count", "100000", "--rate", "200", "--wait", "0"]].concat();
    let _publisher = folder.start(&arguments);
    let program = env!("CARGO_BIN_EXE_polywire");
    let script = format!(
        "{{ '{program}' echo weather --wire cdr@unix/t.sock --timeout 100; echo \"code $?\" >&2; }} | head -n 1"
    );
    let ended =
        std::process::Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().expect("run");
    assert_eq!(String::from_utf8_lossy(&ended.stdout).lines().count(), 1);
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "code 0\n");
}

#[test]
fn echo_shows_parts_and_forms() {
    let folder = Folder::new();
    let wire = ["--wire", "bson@unix/t.sock"];
    let value = report(4);
    let arguments = [&PUB[..], &wire, &[value.as_str(), "--count", "100000", "--rate", "100", "--wait", "0"]].concat();
    let _publisher = folder.start(&arguments);
    let echo =
        |more: &[&str]| folder.run(&[&["echo", "weather", "-n", "1", "--timeout", "100"], &wire[..], more].concat());
    assert_eq!(echo(&["--field", "wind"]).with(0).out, "{\"speed_ms\":0.1,\"direction_deg\":270}\n");
    assert_eq!(echo(&["--field", "notes[1]", "--format", "pretty"]).with(0).out, "b\n");
    let pretty = "station: S4\ntemperature_c: 4.5\nsky: CLOUDY\nwind:\n  speed_ms: 0.1\n  direction_deg: 270\nnotes: [\"a\", \"b\"]\n---\n";
    assert_eq!(echo(&["--format", "pretty"]).with(0).out, pretty);
    let info = echo(&["--info", "--format", "pretty"]).with(0).out;
    let head = info.lines().next().expect("a line");
    let (time, rest) = head.split_once(" at ").and_then(|(_, rest)| rest.split_once(": ")).expect("a time");
    assert!(
        head.starts_with("# ") && rest.starts_with("weather::Report, ") && rest.ends_with(" bytes of bson"),
        "{head}"
    );
    let date = time.bytes().map(|byte| if byte.is_ascii_digit() { '0' } else { byte.into() }).collect::<String>();
    assert!(date == "0000-00-00T00:00:00.000000000Z" && time > "2026", "{head}");
    let info = echo(&["--info"]).with(0).json();
    assert_eq!(
        (&info["codec"], &info["type"], &info["kind"]),
        (&json!("bson"), &json!("weather::Report"), &json!("data"))
    );
    assert_eq!(info["value"]["station"], json!("S4"));
    let wrong = echo(&["--field", "wnd"]).with(3);
    assert!(wrong.errors.contains("there is no 'wnd' among station, "), "{}", wrong.errors);
}

#[test]
fn the_variable_gives_what_the_option_leaves_open() {
    let folder = Folder::new();
    let echo = folder.start(&["echo", "weather", "-n", "1", "--timeout", "100", "--info", "--wire", "unix/t.sock"]);
    let value = report(0);
    let mut command = folder.command(&[&PUB[..], &["--wire", "json", &value, "--wait-timeout", "100"]].concat());
    let published = command.env("POLYWIRE_WIRE", "cdr@unix/t.sock").output().expect("it runs");
    assert!(published.status.success(), "{}", String::from_utf8_lossy(&published.stderr));
    assert_eq!(echo.end().with(0).json()["codec"], json!("json"));
    let slip = folder.command(&["echo", "weather"]).env("POLYWIRE_WIRE", "jsn").output().expect("it runs");
    assert_eq!(slip.status.code(), Some(3), "{}", String::from_utf8_lossy(&slip.stderr));
}

#[test]
fn a_configuration_gives_the_wire() {
    let folder = Folder::new();
    folder.write("polywire.toml", "[node]\nwire = 'json@unix/t.sock'\n[topics.weather]\nwire = 'bson'\n");
    let config = ["--config", "polywire.toml"];
    let echo = folder.start(&[&["echo", "weather", "-n", "1", "--timeout", "100", "--info"], &config[..]].concat());
    let value = report(0);
    folder.run(&[&PUB[..], &config, &[value.as_str(), "--wait-timeout", "100"]].concat()).with(0);
    assert_eq!(echo.end().with(0).json()["codec"], json!("bson"));
    folder.write("bad.toml", "[node]\nwrie = 'json'\n");
    let bad = folder.run(&["echo", "weather", "--config", "bad.toml"]).with(2);
    assert!(bad.errors.contains("did you mean 'wire'?"), "{}", bad.errors);
    assert!(bad.errors.starts_with("error: bad.toml: "), "{}", bad.errors);
}

/// The first process on an address relays between the others.
#[test]
fn a_killed_relay_loses_nothing_unsaid() {
    const MESSAGES: usize = 12_000;
    let folder = Folder::new();
    let wire = ["--wire", "cdr@unix/t.sock"];
    let mut relay = folder.start(&[&["echo", "other", "-v"], &wire[..]].concat());
    relay.error_after(": listening on ");
    let mut reader = folder.start(&[&["echo", "weather", "--info", "--timeout", "10"], &wire[..]].concat());
    let (value, count) = (report(1), MESSAGES.to_string());
    let rate = ["--count", &count, "--rate", "2000", "--wait-timeout", "100", "--json"];
    let writer = folder.start(&[&PUB[..], &wire, &rate, &[value.as_str()]].concat());
    let first: Value = serde_json::from_str(&reader.line()).expect("JSON");
    (1..1000).for_each(|_| drop(reader.line()));
    relay.child.kill().expect("killed");
    let published = writer.end().with(1).json();
    let lost = &published["lost"];
    assert!(lost.as_u64().is_some_and(|lost| lost > 0), "{published}");
    assert_eq!((&published["messages"], &published["dropped"]), (&json!(MESSAGES), &json!(0)));
    let reader = reader.end().with(1);
    let received = reader.out.lines().count() as u64;
    let (_, told) = reader.errors.rsplit_once("topic 'weather': ").expect("the losses are told");
    let missed: u64 = told.split_once(" of its messages were lost").expect("how many").0.parse().expect("a number");
    assert_eq!(received + missed, MESSAGES as u64, "{}", reader.errors);
    assert!(missed > 0 && first["sequence"] == json!(1));
}

#[test]
fn the_last_line_counts_the_subscribers_that_there_are() {
    let folder = Folder::new();
    let wire = ["--wire", "cdr@unix/t.sock"];
    let line = report(1) + "\n";
    let echo = |count: &str, timeout: &str| {
        folder.start(&[&["echo", "weather", "--timeout", timeout, "--count", count], &wire[..]].concat())
    };
    let publish = |wait: &str| folder.start(&[&PUB[..], &wire, &["--wait-timeout", "100", "--wait", wait]].concat());
    let ended = |publisher: Running, expected: &str| {
        let published = publisher.end().with(0);
        assert!(published.out.ends_with(expected), "{}", published.out);
    };
    // Two subscribers, one behind the other.
    let both = [0; 2].map(|_| echo("1000", "100"));
    let mut publisher = publish("2");
    publisher.input(&line.repeat(20));
    ended(publisher, ", to 2 subscribers\n");
    for mut subscriber in both {
        (0..20).for_each(|_| drop(subscriber.line()));
    }
    // A subscriber that leaves before the end.
    let leaves = echo("2", "100");
    let mut publisher = publish("1");
    publisher.write(&line.repeat(2));
    leaves.end().with(0);
    thread::sleep(Duration::from_millis(500));
    publisher.input(&line);
    ended(publisher, ", to 0 subscribers at the end, 0 to 1 before\n");
    // A subscriber that comes after another has left.
    let mut publisher = publish("0");
    publisher.write(&line);
    let until_read = |publisher: &mut Running, subscriber: &mut Running| {
        until("a message", || {
            publisher.write(&line);
            thread::sleep(Duration::from_millis(10));
            subscriber.reads_line()
        });
    };
    let mut early = echo("1", "100");
    until_read(&mut publisher, &mut early);
    early.end().with(0);
    thread::sleep(Duration::from_millis(500));
    publisher.write(&line);
    // It has fewer messages than it wants when the time is up.
    let mut late = echo("100000", "10");
    until_read(&mut publisher, &mut late);
    ended(publisher, ", to 1 subscriber at the end, 0 to 1 before\n");
    late.end().with(1);
}
