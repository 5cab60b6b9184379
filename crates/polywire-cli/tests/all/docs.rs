//! Runs every command in docs/cli.md, docs/security.md and others, and compares its output
//! with the page.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use polywire_testing::tools;

use crate::common::{
    Folder, SOON,
    markdown::{self, Fenced, blocks, fits},
};

/// Runs the commands of a block in one shell, and returns their output.
fn run(folder: &Folder, block: &Fenced) -> String {
    let commands: Vec<&str> = block.text.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(!commands.is_empty(), "line {}: no command", block.line);
    // The output goes to a file, because processes left in the background would keep a pipe open.
    let script = format!("exec > output.txt 2>&1\n{}\n", commands.join("\n"));
    let program = Path::new(env!("CARGO_BIN_EXE_polywire")).parent().expect("a folder");
    // The interpreter for tests goes by the name `python3`.
    let python = tools::python();
    let python = Path::new(&python).parent().unwrap_or(Path::new(""));
    let others = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{others}", program.display(), python.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder.path()).stdin(Stdio::null());
    shell.env("PATH", path).env("NO_COLOR", "1").env_remove("POLYWIRE_CONFIG");
    // Each block has a domain of its own, since processes of another one may still be ending.
    shell.env("XDG_RUNTIME_DIR", folder.path()).env("POLYWIRE_DOMAIN", (block.line % 233).to_string());
    shell.env_remove("POLYWIRE_WIRE");
    let mut child = shell.spawn().expect("a shell");
    let until = Instant::now() + SOON;
    while child.try_wait().expect("waited").is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            panic!("line {}: does not end: {}", block.line, folder.read("output.txt"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    folder.read("output.txt")
}

/// Whether a block has commands that this build can run here.
fn runs(info: &str) -> bool {
    match info {
        "console" => true,
        "console hosts" => crate::common::hosts_are_permitted(),
        "console dds-security" => cfg!(feature = "dds-security"),
        "console sqlite" => cfg!(feature = "sqlite"),
        "console archives" => cfg!(all(feature = "mcap", feature = "parquet", feature = "sqlite")),
        "console zenoh" => cfg!(feature = "zenoh") && tools::python_has("zenoh"),
        "console zmq" => cfg!(feature = "zeromq") && tools::python_has("zmq"),
        _ => false,
    }
}

/// Runs the blocks of a page, and returns the verbs in them.
fn run_page(folder: &Folder, page: &str) -> Vec<String> {
    let markdown = markdown::page(&format!("docs/{page}"));
    let mut verbs = Vec::new();
    for block in blocks(&markdown) {
        let file = ["idl ", "python ", "sh ", "toml ", "xml "].iter().find_map(|kind| block.info.strip_prefix(kind));
        if let Some(name) = file {
            folder.write(name, &block.text);
        } else if runs(&block.info) {
            let expected: Vec<&str> = block.text.lines().filter(|line| !line.starts_with("$ ")).collect();
            let output = run(folder, &block);
            let lines: Vec<&str> = output.lines().collect();
            assert!(fits(&expected, &lines), "docs/{page}, line {}: the output is\n{output}", block.line);
        }
        if block.info.starts_with("console") {
            verbs.extend(
                block.text.split("polywire ").skip(1).filter_map(|rest| rest.split(' ').next().map(str::to_owned)),
            );
        }
    }
    verbs
}

#[test]
fn the_page_on_security_shows_what_happens() {
    run_page(&Folder::new(), "security.md");
}

#[test]
fn the_page_on_dds_shows_what_happens() {
    run_page(&Folder::new(), "dds.md");
}

#[test]
fn the_page_on_telemetry_shows_what_happens() {
    run_page(&Folder::new(), "telemetry.md");
}

#[test]
fn the_page_on_commands_shows_what_happens() {
    run_page(&Folder::new(), "commands.md");
}

#[test]
fn the_page_on_collecting_shows_what_happens() {
    let folder = Folder::new();
    folder.write("weather.idl", "module weather { struct Report { string station; double temperature_c; }; };");
    run_page(&folder, "collect.md");
}

#[test]
fn the_page_on_zenoh_shows_what_happens() {
    let folder = Folder::new();
    folder.write("weather.idl", "struct Report { string station; double temperature_c; };");
    run_page(&folder, "zenoh.md");
}

#[test]
fn the_page_on_zeromq_shows_what_happens() {
    let folder = Folder::new();
    folder.write("weather.idl", "struct Report { string station; double temperature_c; };");
    run_page(&folder, "zeromq.md");
}

#[test]
fn every_example_runs_and_prints_what_stands_there() {
    let folder = Folder::new();
    let verbs = run_page(&folder, "cli.md");
    let help = folder.run(&["--help"]).with(0).out;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| line.starts_with("  "));
    for verb in listed.filter_map(|line| line.split_whitespace().next()).filter(|verb| *verb != "help") {
        assert!(verbs.iter().any(|known| known == verb), "docs/cli.md has no example of {verb}");
    }
}

#[test]
fn patterns_fit_what_they_should_and_nothing_else() {
    assert!(fits(&["a[..]c", "...", "z"], &["abc", "x", "y", "z"]));
    assert!(fits(&["a[..]c", "...", "z"], &["ac", "z"]));
    assert!(!fits(&["a[..]c"], &["ab"]) && !fits(&["a"], &["a", "b"]) && !fits(&["a", "...", "b"], &["a", "c"]));
}
