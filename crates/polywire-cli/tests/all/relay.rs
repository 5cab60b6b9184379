//! `polywire relay`: a process of its own relays, a second one takes over, and both end well when a
//! service manager tells them to.

use serde_json::{Value, json};

use crate::common::{Folder, report, told_to_manager};

const WIRE: [&str; 2] = ["--wire", "json@unix/t.sock"];

/// Publishes one message to one subscriber through whatever relays there.
fn deliver(folder: &Folder) {
    let mut echo = folder.start(&[&["echo", "weather", "--count", "1", "-v"], &WIRE[..]].concat());
    echo.error_after(" is up");
    let value = report(1);
    let arguments = ["pub", "weather", &value, "--idl", "weather.idl", "--type", "Report", "--wait", "1"];
    folder.run(&[&arguments[..], &WIRE].concat()).with(0);
    echo.end().with(0);
}

#[test]
fn a_second_relay_takes_over() {
    let folder = Folder::new();
    let mut first = folder.start(&["relay", "unix/t.sock"]);
    first.line_with("relays at unix/t.sock");
    let mut second = folder.start(&["relay", "unix/t.sock"]);
    second.line_with(" is up");
    deliver(&folder);
    let ended = first.end_by("TERM").with(0);
    assert!(ended.out.contains(" is up"), "{ended:?}");
    second.line_with("relays at unix/t.sock");
    deliver(&folder);
    second.end_by("TERM").with(0);
}

#[test]
fn a_relay_that_is_killed_loses_nothing_of_a_reliable_topic() {
    const MESSAGES: usize = 3000;
    for format in ["cdr", "fast"] {
        let folder = Folder::new();
        let mut first = folder.start(&["relay", "unix/t.sock"]);
        first.line_with("relays at unix/t.sock");
        let mut second = folder.start(&["relay", "unix/t.sock"]);
        second.line_with(" is up");
        let (wire, count, value) = (format!("{format}@unix/t.sock"), MESSAGES.to_string(), report(1));
        let echo = ["echo", "weather", "--info", "--count", &count, "--timeout", "60", "--wire", &wire];
        let mut readers = [(); 2].map(|()| folder.start(&echo));
        let publish = ["pub", "weather", "--idl", "weather.idl", "--type", "Report", "--wire", &wire, "--json"];
        let how = ["--qos", "reliability=reliable", "--count", &count, "--rate", "2000", "--wait", "2", &value];
        let writer = folder.start(&[&publish[..], &how].concat());
        readers.iter_mut().for_each(|reader| (0..500).for_each(|_| drop(reader.line())));
        first.child.kill().expect("killed");
        let published = writer.end().with(0).json();
        assert_eq!((&published["messages"], &published["lost"]), (&json!(MESSAGES), &json!(0)), "{format}");
        for reader in readers {
            let received = reader.end().with(0).out;
            let sequence = |line| serde_json::from_str::<Value>(line).expect("JSON")["sequence"].as_u64();
            assert!(received.lines().map(sequence).eq((1..=MESSAGES as u64).map(Some)), "{format}");
        }
    }
}

#[test]
fn it_tells_a_service_manager_when_it_is_ready() {
    let told = told_to_manager(&Folder::new(), &["relay", "unix/r.sock", "--for", "0.2"]);
    assert_eq!(told, ["READY=1", "STOPPING=1"]);
}

#[test]
fn an_engine_without_relays_is_refused() {
    let ended = Folder::new().run(&["relay", "tcp-listen/127.0.0.1:0"]).with(3);
    assert!(
        ended.errors.contains("a relay is for endpoints such as tcp/127.0.0.1:7460, unix//tmp/polywire.sock"),
        "{ended:?}"
    );
}
