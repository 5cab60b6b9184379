//! `polywire relay`: a process of its own relays, a second one takes over, and both end well when a
//! service manager tells them to.

use std::{os::unix::net::UnixDatagram, process::Command};

use crate::common::{Ended, Folder, Running, report};

const WIRE: [&str; 2] = ["--wire", "json@unix/t.sock"];

fn terminated(running: Running) -> Ended {
    let id = running.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
    running.end()
}

/// Waits for a line of the relay's output that has this text.
fn wait_for(relay: &mut Running, text: &str) {
    while !relay.line().contains(text) {}
}

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
    wait_for(&mut first, "relays at unix/t.sock");
    let mut second = folder.start(&["relay", "unix/t.sock"]);
    wait_for(&mut second, " is up");
    deliver(&folder);
    let ended = terminated(first).with(0);
    assert!(ended.out.contains(" is up"), "{ended:?}");
    wait_for(&mut second, "relays at unix/t.sock");
    deliver(&folder);
    terminated(second).with(0);
}

#[test]
fn it_tells_a_service_manager_when_it_is_ready() {
    let folder = Folder::new();
    let path = folder.path().join("notify.sock");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    let mut command = folder.command(&["relay", "unix/r.sock", "--for", "0.2"]);
    let status = command.env("NOTIFY_SOCKET", &path).status().expect("it runs");
    assert!(status.success());
    let mut told = [0; 64];
    let mut next = || {
        let len = manager.recv(&mut told).expect("a message");
        String::from_utf8_lossy(&told[..len]).trim().to_owned()
    };
    assert_eq!([next(), next()], ["READY=1", "STOPPING=1"]);
}

#[test]
fn an_engine_without_relays_is_refused() {
    let ended = Folder::new().run(&["relay", "tcp-listen/127.0.0.1:0"]).with(3);
    assert!(
        ended.errors.contains("a relay is for endpoints such as tcp/127.0.0.1:7460, unix//tmp/polywire.sock"),
        "{ended:?}"
    );
}
