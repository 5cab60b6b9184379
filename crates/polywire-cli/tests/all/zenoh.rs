//! Commands over Zenoh, between processes: two clients of a router, and a bridge to it.

use std::net::{SocketAddr, TcpListener, TcpStream};

use polywire_testing::waiting::until;
use serde_json::{Value, json};

use crate::common::{Folder, report};

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

#[test]
fn every_command_that_opens_a_node_works_over_a_router() {
    let folder = Folder::new();
    let at = free();
    let locator = format!("tcp/{at}");
    // A router is a node like others; this one has subscribers, too.
    let router = format!("zenoh/router?scouting=off,listen={locator}");
    let _router = folder.start(&["echo", "nothing", "--type", "Report", "--idl", "weather.idl", "--wire", &router]);
    let client = format!("zenoh/client/{locator}?scouting=off");
    let wire = format!("json@{client}");
    let value = report(1);
    let publishing = ["pub", "weather", &value, "--idl", "weather.idl", "--type", "Report", "--wait", "0"];
    until("the router listens", || TcpStream::connect(at).is_ok());
    let _publisher =
        folder.start(&[&publishing[..], &["--count", "1000000", "--rate", "100", "--wire", &wire]].concat());
    let ask = |arguments: &[&str]| {
        let out = folder.run(&[arguments, &["--timeout", "100", "--wire", &wire]].concat()).with(0).out;
        serde_json::from_str::<Value>(out.lines().last().expect("a line")).expect("JSON")
    };
    assert_eq!(ask(&["echo", "weather", "-n", "2"]), serde_json::from_str::<Value>(&value).expect("JSON"));
    assert_eq!(ask(&["hz", "weather", "-n", "10", "--json"])["messages"], json!(10));
    let rows = ask(&["list", "--json"]);
    assert_eq!((&rows[0]["topic"], &rows[0]["codec"]), (&json!("weather"), &json!("json")));
    assert_eq!(ask(&["typeof", "weather", "--json"])["type"], json!("weather::Report"));
    let _bridge = folder.start(&["bridge", &client, "cdr@local", "weather"]);
    let here = folder.run(&["echo", "weather", "-n", "2", "--timeout", "100", "--wire", "local"]).with(0);
    assert_eq!(
        here.out.lines().last().map(|line| serde_json::from_str::<Value>(line).expect("JSON")),
        serde_json::from_str(&value).ok()
    );
}
