//! What commands say when something is in the way: the reason, and what to do about it.

use crate::common::{Folder, report};

const NOBODY: [&str; 2] = ["--wire", "unix-connect/nobody.sock"];

#[test]
fn commands_that_find_nobody_say_why() {
    let folder = Folder::new();
    folder.write("add.idl", "struct Add_Request { long a; };");
    for (command, code) in [
        (&["list", "--timeout", "0.5"][..], 1),
        (&["node", "list", "--timeout", "0.5"], 1),
        (&["probe", "list", "--timeout", "0.5"], 1),
        (&["call", "add", "{}", "--idl", "add.idl", "--timeout", "0.5"], 1),
    ] {
        let ended = folder.run(&[command, &NOBODY].concat()).with(code);
        assert!(ended.errors.contains("nobody.sock: cannot connect: "), "{ended:?}");
    }
}

#[test]
fn commands_that_run_on_say_what_is_in_their_way() {
    let folder = Folder::new();
    folder.write("add.idl", "struct Add_Response { long sum; };");
    for command in [
        &["agent", "--state", "a.state", "--probe", "clock"][..],
        &["collect", "--to", "null=", "weather"],
        &["serve", "add", "{}", "--idl", "add.idl"],
        &["probe", "run", "house/jobs", "echo jobs=3"],
        &["directory", "serve", "unix-listen/directory.sock"],
    ] {
        let mut running = folder.start(&[command, &NOBODY].concat());
        running.error_after("nobody.sock: cannot connect: ");
        running.end_by("TERM").with(0);
    }
}

#[test]
fn a_subscriber_that_takes_nothing_more_is_told_as_a_possible_loss() {
    let folder = Folder::new();
    let mut echo = folder.start(&["echo", "weather", "--wire", "unix-listen/t.sock"]);
    let value = report(1);
    let arguments = ["pub", "weather", &value, "--idl", "weather.idl", "--type", "Report", "--count", "6"];
    let publisher = folder.start(&[&arguments[..], &["--rate", "3", "--wire", "unix-connect/t.sock"]].concat());
    echo.line();
    echo.signal("STOP");
    let ended = publisher.end().with(1);
    assert!(ended.errors.contains("messages may be lost") && ended.out.contains("lost, because"), "{ended:?}");
    echo.signal("CONT");
}

#[test]
fn mistakes_name_what_is_to_be_corrected() {
    let folder = Folder::new();
    folder.write("agent.toml", "[agent]\nname = 'house'\n[node]\nfollow = ['local']\n");
    folder.write("add.idl", "struct Add_Response { long sum; };");
    let value = report(1);
    let publish = ["pub", "weather", &value, "--idl", "weather.idl", "--type", "Report"];
    for (arguments, code, expected) in [
        (&["serve", "add", "--idl", "add.idl"][..], 3, "give the reply as VALUE, or a command by --exec"),
        (&["bridge", "local", "local"], 3, "have the same endpoint"),
        (&["agent", "agent.toml"], 2, "[node] is not for this file: it belongs in the configuration that --config"),
    ] {
        let ended = folder.run(arguments).with(code);
        assert!(ended.errors.contains(expected), "{ended:?}");
    }
    if cfg!(feature = "sqlite") {
        let ended = folder.run(&["query", "a.db"]).with(3);
        assert!(ended.errors.contains("give a SELECT statement, or --topic and --member, or --check"), "{ended:?}");
    }
    let mut command = folder.command(&publish);
    command.env("POLYWIRE_CONFIG", "nowhere.toml");
    let ended = crate::common::Running::of(command).end().with(2);
    assert!(ended.errors.contains("the environment variable POLYWIRE_CONFIG names this file"), "{ended:?}");
    if cfg!(feature = "lan") {
        let ended = folder.run(&["list", "--wire", "lan/0?interface=no-such"]).with(2);
        assert!(ended.errors.trim_end().ends_with("there is no interface 'no-such' here"), "{ended:?}");
    }
}

#[test]
fn figures_come_at_the_end_alone_if_no_time_is_between_them() {
    let folder = Folder::new();
    let ended = folder.run(&["bridge", "unix-listen/a.sock", "unix-listen/b.sock", "--every", "0", "--for", "0.5"]);
    assert_eq!(ended.with(0).out.matches("there: ").count(), 1);
}
