//! The ends of instances: `pub --dispose` and `--unregister`, and how `echo` shows them.

use crate::common::Folder;
use serde_json::{Value, json};

const IDL: &str = "struct Track { @key long number; double speed; };";

/// The output of `echo` when `pub` ends an instance with the flag `end`.
fn echoed(end: &str, reader: &[&str]) -> String {
    let folder = Folder::new();
    folder.write("track.idl", IDL);
    let wire = ["--wire", "cdr@unix/t.sock"];
    let mut echo = folder.start(&[&["echo", "t", "-v", "-n", "1", "--timeout", "100"], &wire[..], reader].concat());
    echo.error_after(": listening on ");
    let published = ["pub", "t", r#"{"number":7}"#, "--idl", "track.idl", "--wait-timeout", "100", end];
    folder.run(&[&published[..], &wire].concat()).with(0);
    echo.end().with(0).out
}

#[test]
fn echo_shows_the_ends_of_instances() {
    let shown: Value = serde_json::from_str(&echoed("--dispose", &[])).expect("JSON");
    assert_eq!(shown, json!({"kind": "dispose", "value": {"number": 7, "speed": 0.0}}));

    let shown: Value = serde_json::from_str(&echoed("--unregister", &["--info"])).expect("JSON");
    assert_eq!((&shown["kind"], &shown["value"]["number"]), (&json!("unregister"), &json!(7)));
    assert_eq!(shown["key_hash"], json!("00000007000000000000000000000000"));

    let shown = echoed("--dispose", &["--format", "pretty"]);
    assert_eq!(shown.lines().next(), Some("# dispose"), "{shown}");
}

#[test]
fn what_has_no_key_has_no_end() {
    let folder = Folder::new();
    folder.write("keyless.idl", "struct Track { long number; };");
    let published = ["pub", "t", r#"{"number":7}"#, "--idl", "keyless.idl", "--wire", "cdr@unix/t.sock", "--wait", "0"];
    let refused = folder.run(&[&published[..], &["--dispose"]].concat()).with(2);
    assert!(refused.errors.contains("the type of topic 't' has no key"), "{}", refused.errors);
}
