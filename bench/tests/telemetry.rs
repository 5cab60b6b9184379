//! The program `telemetry` with a second of a thousand nodes: it checks itself that each archive
//! has every sample once. The test judges no figure.

use std::process::Command;

#[test]
fn a_thousand_nodes_lose_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_telemetry")).args(["--seconds", "0.1", "nodes"]).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("| sqlite and mcap | 100000 | 100000 and 100000 |"), "{text}");
}
