//! Commands that a program in Python declares with its probe: called, refused by rules of access,
//! and what becomes of calls when the program is killed.

use std::process::{Child, Command, Stdio};

use polywire_testing::waiting::{Process, until};

use crate::common::{Folder, tools};

/// Declares a tank; drains it at once, and is stuck when it is to be filled. `reset` confuses the
/// node first.
const TANK: &str = r#"
import json, socket, sys, time
node = socket.socket(socket.AF_UNIX)
node.connect("plant.sock")
lines = node.makefile()
def write(**line):
    node.sendall(json.dumps(line).encode() + b"\n")
write(probe="tank", pdl="""
    abstract probe Device { void reset(); };
    probe Tank : Device {
        real64 level;
        enum_ drain(in real64 level, inout string who, out vector<enum_> seen);
        void fill();
    };
    enum enum_ { EMPTY, FULL };""")
for line in map(json.loads, lines):
    print(json.dumps(line), flush=True)
    call, command = line.get("call"), line.get("command")
    if command == "drain":
        write(reply=call, value={"who": line["request"]["who"].upper(), "seen": ["FULL", "EMPTY"], "return_": "EMPTY"})
    elif command == "reset":
        node.sendall(b'{"reply":99,"value":{}}\n{"reply":"x"}\n\xff\n' + b'{"reply":1,' * 100000 + b"\n")
        write(reply=call, value={"return_": 1})
        write(reply=call, value={})
        write(reply=call, error="twice")
"#;

fn start(folder: &Folder) -> Process {
    folder.write("tank.py", TANK);
    let log = std::fs::File::create(folder.path().join("tank.log")).expect("a file");
    let mut command = Command::new(tools::python());
    command.arg("tank.py").current_dir(folder.path()).stdin(Stdio::null()).stdout(log);
    let child: Child = command.spawn().expect("Python starts");
    until("the tank is declared", || folder.read("tank.log").contains("\"type\": \"Tank\""));
    Process(child)
}

#[test]
fn a_program_in_python_serves_commands() {
    let folder = Folder::new();
    let arguments = ["agent", "--name", "plant", "--state", "a.state", "--probe", "clock", "--socket", "plant.sock"];
    let mut agent = folder.start(&arguments);
    agent.line();
    let program = start(&folder);
    let run = |arguments: &[&str]| folder.run(&[&["probe"], arguments, &["--timeout", "60"]].concat());
    let call = |command: &str, request: &str| run(&["call", "plant", command, request]);
    let listed = run(&["list", "--json"]).with(0).json();
    let commands = listed[0]["commands"].as_array().expect("commands");
    let names: Vec<&str> = commands.iter().map(|command| command["command"].as_str().expect("a name")).collect();
    assert_eq!(names, ["tank.reset", "tank.drain", "tank.fill"]);
    let described = run(&["describe", "plant/tank.drain"]).with(0).out;
    assert!(described.contains("sequence<enum_> seen;") && described.contains("enum_ return_;"), "{described}");
    let drained = call("tank.drain", r#"{"level":0.5,"who":"ann"}"#).with(0).out;
    assert_eq!(drained, "{\"who\":\"ANN\",\"seen\":[\"FULL\",\"EMPTY\"],\"return_\":\"EMPTY\"}\n");
    let wrong = call("tank.drain", r#"{"level":"much"}"#).with(3);
    assert!(wrong.errors.contains("the request"), "{wrong:?}");
    assert!(call("tank.drian", "{}").with(1).errors.contains("did you mean 'tank.drain'?"));

    // What else the program writes is told to it, and does no harm.
    assert_eq!(call("tank.reset", "{}").with(0).out, "{}\n");
    until("all mistakes are told", || folder.read("tank.log").matches("\"error\"").count() == 6);
    let log = folder.read("tank.log");
    let kinds: Vec<String> = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?["error"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(kinds, ["reply", "syntax", "syntax", "too-long", "value", "reply"]);

    // It is killed while it fills the tank; the node and its commands stay.
    let filling = folder.start(&["probe", "call", "plant", "tank.fill", "--timeout", "60"]);
    until("it is filling", || folder.read("tank.log").contains("\"fill\""));
    drop(program);
    let failed = filling.end().with(2);
    assert!(failed.errors.contains("tank.fill: the program has gone before it replied"), "{failed:?}");
    let failed = call("tank.fill", "{}").with(2);
    assert!(failed.errors.contains("the program that declared the probe 'tank' has gone"), "{failed:?}");
    let again = start(&folder);
    call("tank.drain", r#"{"who":"bob"}"#).with(0);
    drop(again);
    let audit: Vec<serde_json::Value> =
        folder.read("a.audit").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let problems: Vec<&str> = audit.iter().map(|record| record["problem"].as_str().expect("a text")).collect();
    assert_eq!(problems.iter().map(|problem| problem.is_empty()).collect::<Vec<_>>(), [true, true, false, false, true]);
    assert_eq!(audit[0]["request"], r#"{"level":0.5,"who":"ann"}"#);
    assert!(audit[0]["who"].as_str().is_some_and(|who| who.starts_with("user ")), "{}", audit[0]);
    agent.end_by("TERM").with(0);
}

#[test]
fn rules_of_access_allow_single_commands_of_a_program() {
    let folder = Folder::new();
    let rules = "[[access.allow]]\nanyone = true\nserve = ['**']\npublish = ['**']\nsubscribe = ['**']\n\
                 request = ['telemetry/plant/command/tank.drain']\n";
    folder.write("rules.toml", rules);
    let wire = |role: &str| format!("cdr@unix-{role}/{}", folder.path().join("plant").display());
    let (listen, connect) = (wire("listen"), wire("connect"));
    let named = ["agent", "--name", "plant", "--state", "a.state", "--probe", "clock", "--socket", "plant.sock"];
    let mut agent = folder.start(&[&named[..], &["--config", "rules.toml", "--wire", &listen]].concat());
    agent.line();
    let program = start(&folder);
    let call = |command: &str| folder.run(&["probe", "call", "plant", command, "--wire", &connect, "--timeout", "60"]);
    call("tank.drain").with(0);
    let denied = call("tank.fill").with(2);
    assert!(denied.errors.contains("access denied"), "{denied:?}");
    assert!(!folder.read("tank.log").contains("\"fill\""), "the program does not learn of it");
    assert_eq!(folder.read("a.audit").lines().count(), 1, "nor does the audit trail");
    drop(program);
    agent.end_by("TERM").with(0);
}
