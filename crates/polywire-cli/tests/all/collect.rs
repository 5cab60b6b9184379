//! `polywire collect`: messages reach files, a new configuration takes effect on SIGHUP, and
//! mistakes are told with their line.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

#[cfg(feature = "mcap")]
use polywire_testing::tools;

use crate::common::{Ended, Folder, Running, SOON};

const IDL: &str = "module plant { struct Pump { uint32 id; double pressure; @optional string name; }; };";

fn signal(running: &Running, name: &str) {
    let id = running.child.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().expect("kill runs").success());
}

fn terminated(running: Running) -> Ended {
    signal(&running, "-TERM");
    running.end()
}

/// Waits until a file has a text.
fn until_file(folder: &Folder, name: &str, text: &str) -> String {
    let end = Instant::now() + SOON;
    loop {
        let found = std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        if found.contains(text) {
            return found;
        }
        assert!(Instant::now() < end, "{name} has no {text}: {found}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn publish(folder: &Folder, topic: &str, value: &str) {
    folder.write("plant.idl", IDL);
    folder.run(&["pub", topic, value, "--idl", "plant.idl", "--quiet"]).with(0);
}

#[test]
fn messages_reach_files_whatever_their_type() {
    let folder = Folder::new();
    let mut collect = folder.start(&["collect", "--to", "jsonl=a.jsonl", "--to", "csv=tables", "plant/**", "--json"]);
    let said = collect.line();
    assert!(said.contains(r#""topics":["plant/**"]"#) && said.contains("\"csv=tables\",\"jsonl=a.jsonl\""), "{said}");
    publish(&folder, "plant/a", r#"{"id":7,"pressure":2.5}"#);
    publish(&folder, "plant/b", r#"{"id":8,"name":"x"}"#);
    publish(&folder, "plant/b", r#"{"id":9,"name":""}"#);
    let lines = until_file(&folder, "a.jsonl", r#""value":{"id":9,"pressure":0.0,"name":""}}"#);
    assert!(lines.starts_with(r#"{"topic":"plant/a","type":"plant::Pump","writer":""#), "{lines}");
    until_file(&folder, "tables/plant.Pump.csv", ",data,9,0,\"\"\n");
    // What it counts is the sample of a probe.
    let probe = folder.run(&["echo", "probes/collector/collector", "--count", "1", "--timeout", "60"]).with(0).out;
    assert!(probe.contains(r#"{"name":"jsonl=a.jsonl","kind":"jsonl","received":3,"stored":3"#), "{probe}");
    let ended = terminated(collect).with(0);
    let last = ended.out.lines().last().expect("a line");
    assert!(last.contains(r#""name":"csv=tables","problem":"","received":3,"refused":0,"stored":3"#), "{last}");
}

#[test]
fn a_new_configuration_takes_effect_on_a_hangup() {
    let folder = Folder::new();
    let handler = |name: &str| format!("[handlers.{name}]\nkind = 'jsonl'\npath = '{name}.jsonl'\nsync = 0.01\n");
    folder.write("c.toml", &format!("[collector]\ntopics = ['plant/*']\n{}{}", handler("a"), handler("b")));
    let mut collect = folder.start(&["collect", "--file", "c.toml"]);
    assert_eq!(collect.line(), "collects plant/* at auto@local: a, b");
    publish(&folder, "plant/a", r#"{"id":1}"#);
    until_file(&folder, "b.jsonl", r#""id":1"#);
    folder.write("c.toml", "[collector]\ntopics = ['plant/*']\n[handlers.a]\nkind = 'jsonl'\npaht = 'x'\n");
    signal(&collect, "-HUP");
    collect.error_after("line 5: [handlers.a]: unknown setting 'paht', did you mean 'path'?");
    folder.write("c.toml", &format!("[collector]\ntopics = ['plant/*']\n{}{}", handler("a"), handler("c")));
    signal(&collect, "-HUP");
    assert_eq!(collect.line(), "opened c; closed b");
    publish(&folder, "plant/a", r#"{"id":2}"#);
    until_file(&folder, "c.jsonl", r#""id":2"#);
    terminated(collect).with(0);
    assert_eq!((folder.read("a.jsonl").lines().count(), folder.read("b.jsonl").lines().count()), (2, 1));
}

#[test]
fn alerts_are_raised_and_cleared() {
    let folder = Folder::new();
    let handler = "[handlers.a]\nkind = 'jsonl'\npath = 'a.jsonl'\nsync = 0.01\ntopics = ['telemetry/alerts']\n";
    let alert = "[alerts.high]\nprefix = 'plant'\nsummary = 'open the valve'\n\
        when = 'a/pressure > 3 clear below 2 or a/id == 9'\n";
    let config = |more: &str| format!("[collector]\ntopics = ['plant/*', 'telemetry/**']\n{handler}{alert}{more}");
    folder.write("c.toml", &config(""));
    let mut collect = folder.start(&["collect", "--file", "c.toml"]);
    assert_eq!(collect.line(), "collects plant/* telemetry/** at auto@local: a, alert high");
    publish(&folder, "plant/a", r#"{"id":1,"pressure":3}"#);
    publish(&folder, "plant/a", r#"{"id":2,"pressure":3.5}"#);
    let values = |pressure, id| format!("(warning): a/pressure = {pressure}, a/id = {id}; open the valve");
    assert_eq!(collect.line(), format!("raised high at plant {}", values("3.5", 2)));
    // A new configuration keeps the state of the alert, and what subscribes late gets it.
    folder.write("c.toml", &config("[alerts.other]\nwhen = 'a/b > 1'\n"));
    signal(&collect, "-HUP");
    assert_eq!(collect.line(), "opened none; closed none");
    let echo = folder
        .run(&[
            "echo",
            "telemetry/alerts",
            "--count",
            "1",
            "--timeout",
            "60",
            "--qos",
            "durability=transient-local,reliability=reliable",
        ])
        .with(0)
        .out;
    assert!(
        echo.starts_with(r#"{"name":"high","prefix":"plant","instance":"","state":"Raised","severity":"Warning","#),
        "{echo}"
    );
    publish(&folder, "plant/a", r#"{"id":3,"pressure":1.5}"#);
    assert_eq!(collect.line(), format!("cleared high at plant {}", values("1.5", 3)));
    until_file(&folder, "a.jsonl", r#""state":"Cleared""#);
    terminated(collect).with(0);
    assert_eq!(folder.read("a.jsonl").lines().count(), 2, "a subscription to them brings none twice");
    let mut collect = folder.start(&["collect", "--file", "c.toml", "--json"]);
    assert!(collect.line().contains(r#""alerts":["high","other"]"#));
    publish(&folder, "plant/a", r#"{"id":9}"#);
    let line = collect.line();
    assert!(
        line.starts_with(r#"{"alert":"high","condition":"a/pressure > 3 clear below 2 or a/id == 9","instance":"","#),
        "{line}"
    );
    assert!(
        line.contains(r#""state":"raised","summary":"open the valve","values":{"a/id":"9","a/pressure":"0.0"}}"#),
        "{line}"
    );
    terminated(collect).with(0);
}

#[test]
fn an_alert_that_no_message_can_raise_is_told_without_being_asked() {
    let folder = Folder::new();
    folder.write("c.toml", "[collector]\ntopics = ['plant/*']\n[alerts.slip]\nprefix = 'plant'\nwhen = 'a/presure > 1 or a/ missing for 1h'\n[alerts.high]\nprefix = 'plant'\nwhen = 'a/pressure > 3'\n");
    let mut collect = folder.start(&["collect", "--file", "c.toml"]);
    assert_eq!(collect.line(), "collects plant/* at auto@local: alert high, alert slip");
    publish(&folder, "plant/a", r#"{"id":1,"pressure":3.5}"#);
    assert_eq!(collect.line(), "raised high at plant (warning): a/pressure = 3.5");
    let ended = terminated(collect).with(0);
    assert!(ended.errors.contains("warning: alert 'slip': type plant::Pump: 'a/presure': "), "{ended:?}");
}

#[test]
fn slips_are_told() {
    let folder = Folder::new();
    let says = |arguments: &[&str], code: i32, text: &str| {
        let ended = folder.run(arguments).with(code);
        assert!(ended.errors.contains(text), "{ended:?}");
    };
    says(&["collect"], 3, "where to? give --to jsonl=FILE, or a --file with handlers or alerts");
    says(
        &["collect", "--to", "jsnl=a"],
        3,
        "--to jsnl=a: [handlers.jsnl=a]: unknown kind 'jsnl', did you mean 'jsonl'?",
    );
    says(&["collect", "--to", "jsonl"], 3, "'path' is missing");
    folder.write("c.toml", "[handlers.a]\nkind = 'null'\nqueue = 'x'\n");
    says(
        &["collect", "--file", "c.toml"],
        2,
        "c.toml: line 3: [handlers.a]: 'queue': a whole number from 1 is expected",
    );
    says(&["collect", "--file", "none.toml"], 2, "cannot read none.toml");
    // A handler that cannot work now is opened again later.
    folder.write("file", "");
    let collect = folder.start(&["collect", "--to", "jsonl=file/a.jsonl", "--every", "0.2", "--for", "1", "--verbose"]);
    let ended = collect.end().with(1);
    assert!(ended.out.lines().last().expect("a line").contains("; file/a.jsonl: "), "{ended:?}");
}

#[cfg(feature = "sqlite")]
#[test]
fn an_archive_can_be_queried() {
    let folder = Folder::new();
    let collect = folder.start(&["collect", "--to", "sqlite=a.db", "plant/**"]);
    publish(&folder, "plant/a", r#"{"id":7,"pressure":-2.5,"name":"a, \"b\""}"#);
    publish(&folder, "plant/a", r#"{"id":8,"pressure":1.5}"#);
    let query = |arguments: &[&str]| folder.run(&[&["query", "a.db"], arguments].concat());
    let end = Instant::now() + SOON;
    let series = ["--topic", "plant/a", "--member", "pressure"];
    while query(&series).out.lines().count() < 2 {
        assert!(Instant::now() < end, "{:?}", query(&series));
    }
    let rows = r#"SELECT id, name FROM "plant::Pump" ORDER BY id"#;
    assert_eq!(query(&[rows]).with(0).out, "id  name\n7   a, \"b\"\n8   -\n");
    assert_eq!(query(&[rows, "--format", "csv"]).with(0).out, "id,name\n7,\"a, \"\"b\"\"\"\n8,\n");
    assert_eq!(
        query(&[rows, "--json"]).with(0).out,
        "{\"id\":7,\"name\":\"a, \\\"b\\\"\"}\n{\"id\":8,\"name\":null}\n"
    );
    let plot = query(&[&series[..], &["--last", "60", "--format", "svg"]].concat()).with(0).out;
    assert!(plot.starts_with("<svg ") && plot.contains("plant/a pressure, from ") && plot.contains(">-2<"), "{plot}");
    let none = query(&[&series[..], &["--until", "2000-01-01T00:00:00Z"]].concat()).with(2).errors;
    assert!(none.contains("no message of 'plant/a' with 'pressure' in this time"), "{none}");
    assert!(query(&[&series[..], &["--from", "soon"]].concat()).with(3).errors.contains("a time such as"));
    assert!(query(&["SELEC"]).with(2).errors.contains("syntax error"));
    query(&[]).with(3);
    terminated(collect).with(0);
    assert_eq!(query(&["--check", "--json"]).with(0).out, "{\"damage\":[],\"rows\":2}\n");
    let path = folder.path().join("a.db");
    let mut bytes = std::fs::read(&path).expect("an archive");
    let at = bytes.windows(6).position(|part| part == b"a, \"b\"").expect("the name is there");
    bytes[at] = b'c';
    std::fs::write(&path, bytes).expect("written");
    let damaged = query(&["--check"]).with(2);
    assert!(damaged.errors.contains("plant::Pump: row 1 is not as it was written"), "{damaged:?}");
    assert!(folder.run(&["query", "plant.idl", rows]).with(2).errors.contains("it is no SQLite database"));
}

/// Parquet and MCAP give the same rows and the same plot as SQLite.
#[cfg(all(feature = "mcap", feature = "parquet", feature = "sqlite"))]
#[test]
fn every_archive_can_be_queried() {
    let folder = Folder::new();
    let to = ["--to", "sqlite=a.db", "--to", "parquet=b", "--to", "mcap=c.mcap"];
    let collect = folder.start(&[&["collect"], &to[..], &["plant/**"]].concat());
    publish(&folder, "plant/a", r#"{"id":7,"pressure":-2.5,"name":"a, \"b\""}"#);
    publish(&folder, "plant/a", r#"{"id":8,"pressure":1.5}"#);
    publish(&folder, "plant/b", r#"{"id":9,"pressure":3.5}"#);
    let query = |archive: &str, arguments: &[&str]| folder.run(&[&["query", archive], arguments].concat());
    let series = ["--topic", "plant/a", "--member", "pressure"];
    let rows = r#"SELECT _topic, id, pressure, name, _sequence, _kind FROM "plant::Pump" ORDER BY id"#;
    // A journal that is still written can be read.
    let end = Instant::now() + SOON;
    while query("b", &["SELECT id FROM \"plant::Pump\""]).out.lines().count() < 4 {
        assert!(Instant::now() < end, "{:?}", query("b", &["--check"]));
    }
    terminated(collect).with(0);
    for arguments in [
        vec![rows, "--json"],
        vec!["SELECT DISTINCT _writer FROM \"plant::Pump\"", "--format", "csv"],
        [&series[..], &["--json"]].concat(),
        [&series[..], &["--format", "csv", "--last", "1000"]].concat(),
        [&series[..], &["--format", "svg"]].concat(),
    ] {
        let expected = query("a.db", &arguments).with(0).out;
        assert!(expected.lines().count() > 1 || expected.starts_with("<svg"), "{arguments:?}: {expected}");
        assert_eq!(query("b", &arguments).with(0).out, expected, "Parquet: {arguments:?}");
        assert_eq!(query("c.mcap", &arguments).with(0).out, expected, "MCAP: {arguments:?}");
    }
    for archive in ["b", "c.mcap"] {
        assert!(query(archive, &["DELETE FROM \"plant::Pump\""]).with(2).errors.contains("not authorized"));
        assert_eq!(query(archive, &["--check", "--json"]).with(0).out, "{\"damage\":[],\"rows\":3}\n");
    }
    let path = folder.path().join("c.mcap");
    let mut bytes = std::fs::read(&path).expect("a recording");
    bytes[200] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    query("c.mcap", &["--check"]).with(2);
    query("none.mcap", &["--check"]).with(2);
}

/// Foxglove's library for Python reads the file by its index.
#[cfg(feature = "mcap")]
#[test]
fn recordings_can_be_read_with_the_tools_of_mcap() {
    if !tools::python_has("mcap.reader") {
        return;
    }
    let folder = Folder::new();
    let collect = folder.start(&["collect", "--to", "mcap=a.mcap", "--to", "jsonl=b.jsonl", "plant/**"]);
    publish(&folder, "plant/a", r#"{"id":7,"pressure":-2.5,"name":"a, \"b\""}"#);
    publish(&folder, "plant/b", r#"{"id":8,"pressure":1.5}"#);
    until_file(&folder, "b.jsonl", r#""id":8"#);
    terminated(collect).with(0);
    let script = "import json, sys\n\
        from mcap.reader import make_reader\n\
        reader = make_reader(open(sys.argv[1], 'rb'))\n\
        assert reader.get_summary().statistics.message_count == 2\n\
        for schema, channel, message in reader.iter_messages(topics=['plant/a']):\n\
        \x20   described = json.loads(schema.data)['properties']\n\
        \x20   print(schema.name, schema.encoding, described['pressure'], channel.message_encoding, message.data.decode())\n";
    let mut python = Command::new(tools::python());
    let read = tools::output_of(python.args(["-c", script]).arg(folder.path().join("a.mcap")), b"");
    let expected =
        "plant::Pump jsonschema {'type': 'number'} json {\"id\":7,\"pressure\":-2.5,\"name\":\"a, \\\"b\\\"\"}\n";
    assert_eq!(read.map(|text| String::from_utf8_lossy(&text).into_owned()), Ok(expected.to_owned()));
}
