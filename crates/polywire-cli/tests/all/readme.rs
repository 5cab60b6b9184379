//! Runs the commands of README.md and compares their output with the page.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use polywire_testing::tools;

use crate::common::{
    Folder,
    markdown::{Fenced, blocks, fits},
};

const README: &str = include_str!("../../../../README.md");

/// The only block that contains these words, apart from those of the section on two hosts.
fn block(words: &str) -> Fenced {
    let is_it = |block: &Fenced| !block.info.starts_with("console host-") && block.text.contains(words);
    let mut found: Vec<Fenced> = blocks(README).into_iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "blocks with {words}");
    found.remove(0)
}

/// The commands of a block, each with the lines below it. A command continues after a line that
/// ends with `|`.
fn steps(block: &Fenced) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    for line in block.text.lines() {
        let line = format!("{line}\n");
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.into(), String::new())),
            (None, Some((command, below))) if below.is_empty() && command.ends_with("|\n") => *command += &line,
            (None, Some((_, below))) => *below += &line,
            (None, None) => panic!("line {}: no command", block.line),
        }
    }
    steps
}

/// Runs commands in one shell, and returns the lines that they print. The lines are sorted, because
/// two programs print in any order.
fn lines_of(folder: &Folder, commands: &str) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_polywire")).parent().expect("a folder");
    // The interpreter for tests goes by the name `python3`.
    let python = tools::python();
    let python = Path::new(&python).parent().unwrap_or(Path::new(""));
    let others = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{others}", program.display(), python.display());
    let script = format!("exec 2>&1\n{commands}\nwait\n");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder.path()).stdin(Stdio::null());
    shell.env("PATH", path).env("NO_COLOR", "1").env_remove("POLYWIRE_CONFIG").env_remove("POLYWIRE_WIRE");
    // Where nobody else is, also when several of these tests run at once.
    shell.env("XDG_RUNTIME_DIR", folder.path()).env_remove("POLYWIRE_DOMAIN");
    let output = shell.output().expect("a shell");
    let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(String::from).collect();
    lines.sort_unstable();
    lines
}

/// Writes the files of the tour; returns its other commands and their output.
fn tour(folder: &Folder) -> (String, Vec<String>) {
    let (mut commands, mut printed) = (String::new(), Vec::new());
    for (command, below) in steps(&block("cat pump.idl")) {
        match command.strip_prefix("cat ") {
            Some(file) => folder.write(file.trim(), &below),
            None => {
                commands += &command;
                printed.extend(below.lines().map(String::from));
            }
        }
    }
    printed.sort_unstable();
    (commands, printed)
}

#[test]
fn the_tour_runs_and_prints_what_stands_there() {
    let folder = Folder::new();
    let (commands, printed) = tour(&folder);
    assert_eq!(lines_of(&folder, &commands), printed);
}

#[test]
fn a_program_that_knows_only_zenoh_reads_and_writes_the_same_topics() {
    if !cfg!(feature = "zenoh") || !tools::python_has("zenoh") {
        return;
    }
    let folder = Folder::new();
    folder.write("warmer.py", &block("north.recv()").text);
    let steps = steps(&block("python3 warmer.py"));
    let commands: String = steps.iter().map(|(command, _)| command.as_str()).collect();
    let printed: Vec<&str> = steps.iter().flat_map(|(_, below)| below.lines()).collect();
    assert_eq!(lines_of(&folder, &commands), printed);
}

#[cfg(feature = "dds")]
#[test]
fn a_program_of_dds_is_read_without_its_idl() {
    use polywire_testing::{domains::lease, tools::CYCLONE_ON_LOOPBACK};

    if !tools::python_has("cyclonedds") {
        return;
    }
    let (folder, domain) = (Folder::new(), lease());
    let program = block("writer = DataWriter").text;
    let imports = "import time\nfrom dataclasses import dataclass\nfrom cyclonedds.domain import DomainParticipant\n\
                   from cyclonedds.idl import IdlStruct\nfrom cyclonedds.idl.annotations import key\n\
                   from cyclonedds.idl.types import float64, uint32\nfrom cyclonedds.pub import DataWriter\n\
                   from cyclonedds.topic import Topic";
    folder.write("pumps.py", &format!("{imports}\nparticipant = DomainParticipant({domain})\n{program}"));
    let steps = steps(&block("polywire list --wire auto@dds/0"));
    let place = format!("'auto@dds/{domain}?interface=127.0.0.1'");
    let [list, echo] = [0, 1].map(|at| steps[at].0.trim_end().replace("auto@dds/0", &place));
    // The writer is found a moment after the program has started.
    let script = format!(
        "export CYCLONEDDS_URI='{CYCLONE_ON_LOOPBACK}'\npython3 pumps.py &\nwriter=$!\n\
         for i in $(seq 100); do {list} > list.txt; grep -q plant list.txt && break; done\n{echo} > echo.txt\nkill $writer\n"
    );
    lines_of(&folder, &script);
    let words = |text: &str| -> Vec<String> {
        let is_id = |word: &str| word.starts_with("dds/") || word.len() == 35;
        text.split_whitespace().filter(|word| !is_id(word)).map(String::from).collect()
    };
    assert_eq!(words(&folder.read("list.txt")), words(&steps[0].1));
    let told: Vec<String> = folder.read("echo.txt").lines().map(String::from).collect();
    let first = told.first().and_then(|line| line.strip_prefix("{\"id\":")?.split(',').next()?.parse().ok());
    let first: u32 = first.unwrap_or_else(|| panic!("{told:?}"));
    let shown = |id: u32| format!("{{\"id\":{id},\"level\":{:?},\"name\":\"pump {id}\"}}", f64::from(id) / 2.0);
    assert_eq!(told, [0, 1, 2].map(|more| shown(first + more)));
    assert!(steps[1].1.starts_with(&shown(9)), "the page shows such lines: {}", steps[1].1);
}

#[test]
fn the_reader_prints_the_same_under_other_formats() {
    let folder = Folder::new();
    for codec in ["json", "bson"] {
        let (commands, printed) = tour(&folder);
        let values = |lines: Vec<String>| -> Vec<String> { lines.into_iter().filter(|l| l.starts_with('{')).collect() };
        assert_eq!(
            values(lines_of(&folder, &commands.replace("pub pumps", &format!("pub pumps --wire {codec}")))),
            values(printed),
            "{codec}"
        );
    }
}

#[test]
fn types_that_do_not_agree_are_told_on_both_sides_as_it_says() {
    let folder = Folder::new();
    let (commands, _) = tour(&folder);
    let fixed = folder.read("pump_v2.idl").replace("unsigned long id", "string id");
    folder.write("pump_v2.idl", &fixed);
    let expected: Vec<String> = block("cannot read Plant::Pump").text.lines().map(hide_writer).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let both = commands
        .replace("polywire echo pumps", "polywire echo pumps --strict")
        .replace(" &\n", " > echo.txt 2>&1 || echo echo $? &\n")
        .replace("--type Pump\n", "--type Pump > pub.txt 2>&1; echo pub $?\n");
    assert_eq!(lines_of(&folder, &both), ["echo 2", "pub 2"]);
    let told = folder.read("echo.txt");
    let told: Vec<&str> = told.lines().collect();
    assert!(fits(&[&expected[..], &["..."]].concat(), &told), "{told:#?}");
    assert!(folder.read("pub.txt").contains("make the reader's type uint32"), "{}", folder.read("pub.txt"));
}

#[test]
fn three_terminals_meet_without_an_address() {
    let (folder, mut expected) = (Folder::new(), Vec::new());
    let [echo, publish, list] = ["polywire echo tracks", "polywire pub tracks", "polywire list\n"].map(|words| {
        let (commands, below): (Vec<_>, Vec<_>) = steps(&block(words)).into_iter().unzip();
        expected.extend(below.concat().lines().map(String::from));
        commands.concat().trim_end().to_owned()
    });
    // The publisher waits for the subscriber, and is still there when its topic is listed.
    let script = format!("{{ {publish}; }} > pub.txt &\n{list} --timeout 60 > list.txt\n{echo} > echo.txt\n");
    assert_eq!(lines_of(&folder, &script), [""; 0]);
    let printed: String = ["echo.txt", "pub.txt", "list.txt"].iter().map(|name| folder.read(name)).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert!(fits(&expected, &printed.lines().collect::<Vec<_>>()), "{printed}");
}

/// The commands and the output of the blocks that run on a host of the section on two hosts.
#[cfg(all(feature = "lan", target_os = "linux"))]
fn on_host(info: &str) -> Vec<(String, Vec<String>)> {
    let there = blocks(README).into_iter().filter(|block| block.info == info);
    let parts = there.map(|block| {
        let (commands, below): (Vec<_>, Vec<_>) = steps(&block).into_iter().unzip();
        (commands.concat(), below.concat().lines().map(String::from).collect())
    });
    parts.collect()
}

#[test]
#[cfg(all(feature = "lan", target_os = "linux"))]
fn two_hosts_meet_with_one_line_more_and_let_no_stranger_in() {
    let name = "readme::two_hosts_meet_with_one_line_more_and_let_no_stranger_in";
    let Some(network) = polywire_testing::network::Network::of(name, 2) else { return };
    let folder = Folder::new();
    let (first, second) = (on_host("console host-1"), on_host("console host-2"));
    let program = Path::new(env!("CARGO_BIN_EXE_polywire")).parent().expect("a folder");
    // The interpreter for tests goes by the name `python3`.
    let python = tools::python();
    let python = Path::new(&python).parent().unwrap_or(Path::new(""));
    let others = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{others}", program.display(), python.display());
    let start = |host, commands: &str| {
        let mut shell = network.command(host, "sh");
        shell.args(["-c", &format!("exec 2>&1\nexport POLYWIRE_WIRE=lan\n{commands}")]).current_dir(folder.path());
        shell.env("PATH", &path).env("NO_COLOR", "1").env_remove("POLYWIRE_CONFIG").env_remove("POLYWIRE_DOMAIN");
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a shell")
    };
    let check = |shell: std::process::Child, expected: &[String]| {
        let output = shell.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // A warning may come before or after the first messages.
        let (mut expected, mut lines): (Vec<_>, Vec<_>) =
            (expected.iter().map(String::as_str).collect(), text.lines().collect());
        for lines in [&mut expected, &mut lines] {
            lines.sort_by_key(|line| !line.starts_with("warning: "));
        }
        assert!(fits(&expected, &lines), "{expected:#?}\n{text}");
    };
    let [echo, list, secured] = &first[..] else { panic!("three blocks") };
    let [publish, refused] = &second[..] else { panic!("two blocks") };
    // The publisher waits for the subscriber, and is still there when its topic is listed.
    let publisher = start(2, &publish.0);
    check(start(1, &list.0.replace("list", "list --timeout 60")), &list.1);
    check(start(1, &echo.0), &echo.1);
    check(publisher, &publish.1);
    // The certificates are there before the second host needs them.
    let (sign, listen) = secured.0.split_at(secured.0.find("polywire echo").expect("it listens"));
    check(start(1, sign), &[]);
    let subscriber = start(1, listen);
    check(start(2, &refused.0), &refused.1);
    check(subscriber, &secured.1);
}

/// Replaces the name of a writer, which is new in each run.
fn hide_writer(line: &str) -> String {
    match line.split_once("of writer ") {
        Some((before, after)) => {
            format!("{before}of writer [..]:{}", after.split_once(':').expect("a name and a colon").1)
        }
        None => line.into(),
    }
}

#[test]
fn the_list_of_commands_is_that_of_the_help() {
    let commands = block("cargo test --workspace").text;
    assert!(
        commands.lines().any(|line| line.starts_with("cargo run --release -p polywire-cli -- demo ")),
        "{commands}"
    );
    assert_eq!(env!("CARGO_PKG_NAME"), "polywire-cli");
    let help = Folder::new().run(&["--help"]).with(0).out;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| line.starts_with("  "));
    let mut verbs: Vec<&str> =
        listed.filter_map(|line| line.split_whitespace().next()).filter(|verb| *verb != "help").collect();
    let line = README.lines().find_map(|line| line.strip_prefix("All commands: `polywire ")).expect("the commands");
    let mut told: Vec<&str> = line.split('`').next().unwrap_or_default().split(" | ").collect();
    verbs.sort_unstable();
    told.sort_unstable();
    assert_eq!(told, verbs);
}
