//! SIGHUP: a running command reads its configuration file again, and says what has changed.

use crate::common::{Folder, Running, report};

fn publish(folder: &Folder, number: u32, wire: &str) {
    let value = report(number);
    let arguments = ["pub", "weather", &value, "--idl", "weather.idl", "--type", "Report", "--wait", "1"];
    folder.run(&[&arguments[..], &["--wire", wire]].concat()).with(0);
}

/// Gives a process another configuration, and returns what it says about it after `word`.
fn reload(folder: &Folder, running: &mut Running, config: &str, word: &str) -> String {
    folder.write("c.toml", config);
    running.signal("HUP");
    running.error_after(word)
}

#[test]
fn a_subscriber_goes_where_the_file_says() {
    let folder = Folder::new();
    let (here, there) = ("[node]\nwire = 'unix/a.sock'\n", "[node]\nwire = 'unix/b.sock'\n");
    folder.write("c.toml", here);
    let mut echo = folder.start(&["echo", "weather", "--config", "c.toml"]);
    publish(&folder, 1, "json@unix/a.sock");
    assert!(echo.line().contains("S1"));
    assert_eq!(reload(&folder, &mut echo, there, "note: "), "c.toml: node.wire changed");
    publish(&folder, 2, "json@unix/b.sock");
    assert!(echo.line().contains("S2"));
    assert_eq!(reload(&folder, &mut echo, there, "note: "), "c.toml: nothing has changed");
    let wrong = reload(&folder, &mut echo, "[node]\nwrie = 'json'", "error: cannot apply the configuration: ");
    assert!(wrong.contains("TOML parse error"), "{wrong}");
    let fixed = format!("{here}[engine]\nburst = 2");
    let refused = reload(&folder, &mut echo, &fixed, "error: cannot apply the configuration: ");
    assert_eq!(refused, "c.toml: engine cannot change while the node runs: restart it");
    publish(&folder, 3, "json@unix/b.sock");
    assert!(echo.line().contains("S3"), "nothing has changed");
    assert_eq!(echo.end_by("TERM").signal(), Some(15));
}

#[test]
fn the_rules_of_a_relay_change_for_those_who_are_there() {
    let folder = Folder::new();
    let user = rustix::process::getuid().as_raw();
    let rules = |subscribe: &str| format!("[[access.allow]]\nusers = [{user}]\npublish = ['**']\n{subscribe}");
    folder.write("c.toml", &rules("subscribe = ['**']"));
    let mut relay = folder.start(&["relay", "unix/r.sock", "--config", "c.toml"]);
    relay.line_with("relays at unix/r.sock");
    let mut echo = folder.start(&["echo", "weather", "--wire", "unix/r.sock"]);
    let value = report(1);
    let arguments = ["pub", "weather", &value, "--idl", "weather.idl", "--type", "Report", "--wire", "unix/r.sock"];
    let _publisher = folder.start(&[&arguments[..], &["--wait", "0", "--count", "1000000", "--rate", "50"]].concat());
    echo.line();
    assert_eq!(reload(&folder, &mut relay, &rules(""), "note: "), "c.toml: access changed");
    let denied = echo.error_after("access denied: ");
    assert_eq!(denied, format!("no rule allows 'user {user}' to subscribe to it"));
    relay.end_by("TERM").with(0);
}

#[test]
fn a_relay_without_a_file_goes_on() {
    let folder = Folder::new();
    let mut relay = folder.start(&["relay", "unix/r.sock"]);
    relay.line_with("relays at");
    relay.signal("HUP");
    assert_eq!(
        relay.error_after("warning: "),
        "SIGHUP: there is no configuration to read again: name a file with --config"
    );
    relay.end_by("TERM").with(0);
}

/// A process with a configuration ends all the same when its terminal is closed.
#[test]
#[cfg(target_os = "linux")]
fn who_loses_the_terminal_ends() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::{
        fs::File,
        os::unix::process::ExitStatusExt as _,
        process::{Command, Stdio},
    };
    let folder = Folder::new();
    folder.write("c.toml", "");
    // No other process has this end, so dropping it closes the terminal.
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&screen).and_then(|()| unlockpt(&screen)).expect("a terminal");
    let name = ptsname(&screen, Vec::new()).expect("a name").into_string().expect("a path");
    let terminal = File::options().read(true).write(true).open(name).expect("the other end");
    let echo = folder.command(&["echo", "weather", "--config", "c.toml"]);
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait"]).arg(echo.get_program()).args(echo.get_args()).current_dir(folder.path());
    command.envs(echo.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("POLYWIRE_CONFIG");
    let mut child = command.stdin(terminal).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("setsid runs");
    // It has a node, so it waits for signals.
    let is_there = || !folder.run(&["list", "--timeout", "0.5", "--json"]).out.is_empty();
    while !is_there() {}
    drop((screen, command));
    let status = child.wait().expect("it ends");
    assert_eq!(status.signal().or(status.code().map(|code| code - 128)), Some(1), "{status}");
}
