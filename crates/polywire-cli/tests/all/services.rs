//! `call` and `serve`: processes that find each other at `local`.

use crate::common::Folder;
use serde_json::{Value, json};

const IDL: &str = "struct Add_Request { long long a; long long b; };\nstruct Add_Response { long long sum; };\n";
const REPLY: [&str; 4] = ["--idl", "add.idl", "--type", "Add_Response"];

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("add.idl", IDL);
    folder
}

fn call<'a>(value: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["call", "add", value, "--idl", "add.idl", "--type", "Add_Request", "--timeout", "100"];
    [&fixed[..], more].concat()
}

fn serve<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["serve", "add"], &REPLY[..], more].concat()
}

#[test]
fn a_fixed_value_answers_every_request() {
    let folder = folder();
    let serving = folder.start(&serve(&[r#"{"sum":5}"#, "--count", "2", "--wire", "json@unix/value.sock"]));
    for _ in 0..2 {
        let called = folder.run(&call(r#"{"a":2,"b":3}"#, &["--wire", "cdr@unix/value.sock"])).with(0);
        assert_eq!(called.out, "{\"sum\":5}\n");
    }
    assert_eq!(serving.end().with(0).out, "{\"a\":2,\"b\":3}\n".repeat(2));
}

#[test]
fn a_command_answers_or_fails() {
    let folder = folder();
    let command = r#"read request; case "$request" in *7*) echo 'not seven' >&2; exit 4;; esac; echo '{"sum":9}'"#;
    let serving = folder.start(&serve(&["--exec", command, "--count", "3", "--wire", "unix/exec.sock"]));
    let at = ["--wire", "unix/exec.sock"];
    assert_eq!(folder.run(&call(r#"{"a":4}"#, &at)).with(0).out, "{\"sum\":9}\n");
    let failed = folder.run(&call(r#"{"a":7}"#, &at)).with(2);
    assert!(failed.errors.contains("service 'add': not seven"), "{}", failed.errors);
    let all = folder.run(&call(r#"{"a":4}"#, &[&at[..], &["--all"]].concat())).with(0).json();
    assert_eq!(all["reply"], json!({"sum": 9}));
    assert!(all["server"].as_str().is_some_and(|id| id.len() == 32), "{all}");
    let served = serving.end().with(0);
    let requests: Vec<Value> = served.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(requests[1], json!({"a": 7, "b": 0}));
    assert!(served.errors.contains("not seven"), "{}", served.errors);
}

#[test]
fn a_call_without_a_server_or_a_fitting_value_says_so() {
    let folder = folder();
    let arguments = ["call", "add", "--idl", "add.idl", "--type", "Add_Request", "--timeout", "0.1"];
    let alone = folder.run(&[&arguments[..], &["--wire", "unix/alone.sock"]].concat()).with(1);
    assert!(alone.errors.contains("nobody serves 'add' at unix/alone.sock after 0.1 s"), "{}", alone.errors);
    let wrong = folder.run(&call(r#"{"c":1}"#, &[])).with(3);
    assert!(wrong.errors.contains("the request: "), "{}", wrong.errors);
    let idle = folder.run(&serve(&["{}", "--timeout", "0.1", "--wire", "unix/idle.sock"])).with(1);
    assert!(idle.errors.contains("no request to 'add'"), "{}", idle.errors);
}
