//! Commands at `shm`, between processes.

use polywire_testing::waiting::until;
use serde_json::{Value, json};

use crate::common::{Folder, report};

#[test]
fn every_command_that_opens_a_node_works_through_shared_memory() {
    let folder = Folder::new();
    let wire = format!("json@shm/{}/nodes", folder.path().display());
    let spinning = format!("{wire}?wait=spin");
    let value = report(1);
    let publishing = ["pub", "weather", &value, "--idl", "weather.idl", "--type", "Report", "--wait", "0"];
    let _publisher =
        folder.start(&[&publishing[..], &["--count", "1000000", "--rate", "100", "--wire", &wire]].concat());
    let ask = |arguments: &[&str], wire: &str| {
        let out = folder.run(&[arguments, &["--timeout", "100", "--wire", wire]].concat()).with(0).out;
        serde_json::from_str::<Value>(out.lines().last().expect("a line")).expect("JSON")
    };
    for wire in [&wire, &spinning] {
        let expected: Value = serde_json::from_str(&value).expect("JSON");
        assert_eq!(ask(&["echo", "weather", "-n", "2"], wire), expected);
        assert_eq!(ask(&["hz", "weather", "-n", "10", "--json"], wire)["messages"], json!(10));
        assert!(ask(&["bw", "weather", "-n", "10", "--json"], wire)["message_bytes_max"].is_number());
    }
    let rows = ask(&["list", "--json"], &wire);
    assert_eq!((&rows[0]["topic"], &rows[0]["codec"]), (&json!("weather"), &json!("json")));
    assert_eq!(ask(&["typeof", "weather", "--json"], &wire)["type"], json!("weather::Report"));
    // Nodes find each other there; nobody relays.
    let refused = folder.run(&["relay", wire.trim_start_matches("json@"), "--for", "1"]).with(3);
    assert!(refused.errors.contains("shm"), "{}", refused.errors);
}

#[test]
fn probes_reach_a_collector_through_shared_memory() {
    let folder = Folder::new();
    let shared = format!("shm/{}/nodes", folder.path().display());
    folder.write(
        "collect.toml",
        &format!(
            "[collector]\nendpoints = ['local', '{shared}']\n[handlers.lines]\nkind = 'jsonl'\npath = 'all.jsonl'\nsync = 0.1\n"
        ),
    );
    let agent = |name: &str, wire: &str| {
        let state = format!("{name}.state");
        let mut agent = folder.start(&[
            "agent", "--name", name, "--state", &state, "--probe", "clock", "--every", "0.05", "--wire", wire,
        ]);
        agent.line();
        agent
    };
    let agents = [agent("fast", &format!("cdr@{shared}")), agent("house", "cdr@local")];
    let collector = folder.start(&["collect", "--file", "collect.toml", "--every", "60"]);
    until("samples of both are stored", || {
        let lines = std::fs::read_to_string(folder.path().join("all.jsonl")).unwrap_or_default();
        ["fast", "house"].iter().all(|name| lines.matches(&format!("\"probes/{name}/clock\"")).count() > 5)
    });
    agents.into_iter().for_each(|agent| drop(agent.end_by("TERM").with(0)));
    collector.end_by("TERM").with(0);
}
