//! `polywire relay`: a process of its own relays, a second one takes over, and both end well when a
//! service manager tells them to.

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
