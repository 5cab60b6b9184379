//! Probes and collectors at `shm`, between processes.

use polywire_testing::waiting::until;

use crate::common::Folder;

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
