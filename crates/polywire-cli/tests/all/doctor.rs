//! `polywire doctor`: what it finds on this machine, and on hosts that are network namespaces.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _};

use serde_json::Value;

use crate::common::{Ended, Folder};

/// The findings, by check; a check may have several.
fn findings(ended: &Ended) -> BTreeMap<String, Vec<Value>> {
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in ended.out.lines() {
        let finding: Value = serde_json::from_str(line).expect("JSON");
        all.entry(finding["check"].as_str().expect("a check").into()).or_default().push(finding);
    }
    all
}

#[test]
fn each_check_is_a_line_and_a_problem_is_an_exit_code() {
    let folder = Folder::new();
    let ended = folder.run(&["doctor", "--json", "--time", "0.3", "--interface", "lo"]);
    let all = findings(&ended);
    for check in
        ["build", "processor", "files", "user", "folder", "space", "clock", "clock steps", "clock source", "lo"]
    {
        assert!(all.contains_key(check), "{check}: {ended:?}");
    }
    let states: Vec<&str> = all.values().flatten().map(|finding| finding["state"].as_str().expect("a state")).collect();
    assert!(states.iter().all(|state| ["ok", "warning", "problem"].contains(state)), "{states:?}");
    // What is not ok says what to do.
    let advised = |finding: &Value| (finding["state"] == "ok") == (finding["do"] == "");
    assert!(all.values().flatten().all(advised), "{ended:?}");
    assert_eq!(ended.code, Some(i32::from(states.contains(&"problem"))), "{ended:?}");
    let told = &all["build"][0]["found"];
    assert!(told.as_str().is_some_and(|text| text.contains(env!("CARGO_PKG_VERSION"))), "{told}");
    assert_eq!(all["local"][0]["found"], "no other node there");
}

#[test]
fn nodes_that_are_there_and_a_folder_that_is_not_private_are_found() {
    let folder = Folder::new();
    let mut echo = folder.start(&["echo", "weather", "-v"]);
    echo.error_after("listening on local/0");
    let ended = folder.run(&["doctor", "--json", "--time", "5", "--interface", "lo"]);
    let all = findings(&ended);
    assert_eq!(all["local"][0]["found"], "1 other node there", "{ended:?}");
    drop(echo);
    let shared = folder.path().join("polywire");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).expect("changed");
    let ended = folder.run(&["doctor", "--json", "--time", "0", "--interface", "lo"]).with(1);
    let found = &findings(&ended)["folder"][0];
    assert!(found["state"] == "problem" && found["found"].to_string().contains("chmod 700"), "{found}");
    // As text, too.
    let text = folder.run(&["doctor", "--time", "0", "--interface", "no-such"]).with(1).out;
    assert!(text.lines().any(|line| line.starts_with("problem  no-such")), "{text}");
}

#[test]
fn a_key_that_others_can_read_is_a_problem() {
    let folder = Folder::new();
    folder.run(&["identity", "new", "fleet"]).with(0);
    folder.run(&["identity", "sign", "pump", "--authority", "fleet"]).with(0);
    let doctor = || {
        let mut command = folder.command(&["doctor", "--json", "--time", "0", "--interface", "lo"]);
        command.env("POLYWIRE_CERTIFICATE", "pump/certificate.pem").env("POLYWIRE_KEY", "pump/key.pem");
        let output = command.env("POLYWIRE_AUTHORITY", "pump/authority.pem").output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains(r#""check":"identity""#)).map(str::to_owned);
        line.unwrap_or_else(|| panic!("no identity: {text}"))
    };
    assert!(doctor().contains(r#""state":"ok""#), "{}", doctor());
    fs::set_permissions(folder.path().join("pump/key.pem"), fs::Permissions::from_mode(0o644)).expect("changed");
    assert!(doctor().contains("chmod 600"), "{}", doctor());
}

#[cfg(all(feature = "lan", target_os = "linux"))]
mod network {
    use std::{
        process::{Child, Command, Stdio},
        thread,
        time::{Duration, Instant},
    };

    use polywire_testing::network::Network;

    use crate::common::{Folder, SOON};

    /// A process that is killed at the end of the test.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn polywire(network: &Network, host: usize, folder: &Folder, arguments: &[&str]) -> Command {
        let mut command = network.command(host, env!("CARGO_BIN_EXE_polywire"));
        command.args(arguments).current_dir(folder.path()).env("XDG_RUNTIME_DIR", folder.path()).env("NO_COLOR", "1");
        command.env_remove("POLYWIRE_WIRE").env_remove("POLYWIRE_CONFIG").env_remove("POLYWIRE_DOMAIN");
        command.stdin(Stdio::null());
        command
    }

    #[test]
    fn nodes_on_other_hosts_and_open_ports_are_found() {
        let name = "doctor::network::nodes_on_other_hosts_and_open_ports_are_found";
        let Some(network) = Network::of(name, 2) else { return };
        let folder = Folder::new();
        let echo = |host, wire| {
            let mut command = polywire(&network, host, &folder, &["echo", "weather", "--wire", wire]);
            Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started"))
        };
        let _nodes = [echo(1, "lan"), echo(2, "lan"), echo(2, "lan/7")];
        let doctor = || {
            let output = polywire(&network, 1, &folder, &["doctor", "--time", "2"]).output().expect("it runs");
            (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
        };
        let until = Instant::now() + SOON;
        let expected = [
            "2 other nodes there in domain 0: ",
            "1 other node there in domain 7: ",
            "is open to other machines without TLS at TCP ",
            "multicast    eth0: sent and received within",
        ];
        loop {
            let (text, code) = doctor();
            if expected.iter().all(|part| text.contains(part)) {
                assert_eq!(code, Some(0), "{text}");
                break;
            }
            assert!(Instant::now() < until, "{text}");
            thread::sleep(Duration::from_millis(100));
        }
        // The interface goes away.
        network.ip(1, "link set eth0 down");
        let (text, _) = doctor();
        assert!(text.contains("no interface reaches another machine"), "{text}");
    }
}
