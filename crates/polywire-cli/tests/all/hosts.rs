//! `polywire link hosts`: real processes on two hosts. Where network namespaces are not permitted,
//! the tests report that and test nothing; with `POLYWIRE_TEST_REQUIRE=all` in the environment they
//! fail.
use std::{fs, path::Path};

use polywire_testing::waiting::until;

use crate::common::{Folder, hosts_are_permitted};

/// Number of processes, in any namespace, with this argument.
fn running(argument: &str) -> usize {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let lines = processes.filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.filter(|line| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())).count()
}

#[test]
fn a_topic_crosses_a_lossy_link_between_two_hosts() {
    if !hosts_are_permitted() {
        return;
    }
    let folder = Folder::new();
    let program = Path::new(env!("CARGO_BIN_EXE_polywire")).display();
    let waits = format!(
        "{program} echo weather --wire tcp-listen/$A:7000 --idl weather.idl --type Report --count 1 --timeout 50; echo heard > heard.txt"
    );
    let calls = format!(
        "{program} pub weather '{}' --idl weather.idl --type Report --wire json@tcp-connect/$A:7000 && while ! test -e heard.txt; do sleep 0.05; done",
        crate::common::report(7)
    );
    let model = "loss=10%,delay=10ms,jitter=uniform:2ms";
    let arguments =
        ["--json", "link", "hosts", "--model", model, "--seed", "4", "--capture", "c.pcapng", "--for", "100"];
    let ended = folder.run(&[&arguments[..], &["-a", &waits, "-b", &calls]].concat()).with(0);
    let lines: Vec<serde_json::Value> =
        ended.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["a"], &lines[0]["seed"]), (&"192.0.2.1".into(), &4.into()));
    let heard = |line: &&serde_json::Value| {
        line["host"] == "a" && line["line"].as_str().is_some_and(|text| text.contains("S7"))
    };
    assert!(lines.iter().any(|line| heard(&line)), "{}", ended.out);
    let last = &lines[lines.len() - 1];
    let (there, back) = (&last["there"], &last["back"]);
    assert!(there["delivered"].as_u64() > Some(3) && back["delivered"].as_u64() > Some(3), "{last}");
    assert!(there["delay_ns_mean"].as_f64() > Some(7e6), "{last}");
    assert!(fs::metadata(folder.path().join("c.pcapng")).expect("a file").len() > 500);
}

#[test]
fn nothing_is_left_when_it_ends_however_it_ends() {
    if !hosts_are_permitted() {
        return;
    }
    let folder = Folder::new();
    let marks: Vec<String> = (0..3).map(|i| format!("9{}.{i}", std::process::id())).collect();
    let sleeps = |mark: &str| format!("sleep {mark} & sleep {mark}");
    folder.run(&["link", "hosts", "-a", &sleeps(&marks[0]), "-b", "sleep 0.3; exit 0"]).with(0);
    let late =
        folder.run(&["link", "hosts", "-a", &sleeps(&marks[1]), "-b", &sleeps(&marks[1]), "--for", "0.5"]).with(1);
    assert!(late.errors.contains("still runs after 0.5 s"), "{late:?}");
    let mut killed = folder.start(&["link", "hosts", "-b", &sleeps(&marks[2])]);
    until("it starts", || running(&marks[2]) > 0);
    killed.child.kill().expect("killed");
    for mark in &marks {
        until("all that it started ends", || running(mark) == 0);
    }
}

#[test]
fn what_cannot_be_done_is_told() {
    let folder = Folder::new();
    assert!(folder.run(&["link", "hosts"]).with(3).errors.contains("-b"));
    let misused = folder.run(&["link", "hosts", "--by", "netem", "--seed", "1", "-b", "true"]).with(3);
    assert!(misused.errors.contains("--seed"), "{misused:?}");
    folder.run(&["link", "hosts", "--by", "veth", "--model", "lan", "-b", "true"]).with(3);
    if !hosts_are_permitted() {
        return;
    }
    let failed = folder.run(&["link", "hosts", "-b", "exit 7"]).with(1);
    assert!(failed.errors.contains("exit code 7"), "{failed:?}");
    assert!(folder.run(&["link", "hosts", "-b", "ip link show link1", "--by", "veth"]).with(0).out.contains("UP"));
    // On a kernel without netem, the command says so; otherwise it runs.
    let netem = folder.run(&["link", "hosts", "--by", "netem", "--model", "wan-low", "-b", "true"]);
    assert!(netem.code == Some(0) || netem.errors.contains("without netem"), "{netem:?}");
    if netem.code != Some(0) {
        crate::common::tools::skipped("the kernel has no netem, which was tested instead");
    }
    let never = folder.run(&["link", "hosts", "--by", "netem", "--model", "loss=pattern:01", "-b", "true"]).with(2);
    assert!(never.errors.contains("no patterns"), "{never:?}");
}
