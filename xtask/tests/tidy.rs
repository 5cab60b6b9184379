//! The rules of ARCHITECTURE.md that a compiler does not hold.
//!
//! Each rule is a function from the tree to a list of violations, and has a test of its own that it
//! finds one.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A source file: its path from the root, with forward slashes, and its text.
struct Source {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

/// All files below the root with one of these endings, but for what is built, fetched or hidden.
fn sources(endings: &[&str]) -> Vec<Source> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(folder).expect("the folder can be read");
        for path in entries.map(|entry| entry.expect("the entry can be read").path()) {
            let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
            if name.starts_with('.') || name == "target" {
                continue;
            }
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }
    let (root, mut found) = (root(), Vec::new());
    walk(&root, &mut found);
    found.sort();
    let wanted = |path: &PathBuf| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let path = path.strip_prefix(&root).expect("it lies below").to_string_lossy().replace('\\', "/");
        Source { path, text }
    };
    found.into_iter().filter(wanted).map(read).collect()
}

/// The code of a file: without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let before_tests = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let line = |line: &str| line.split("//").next().unwrap_or_default().to_string();
    before_tests.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn lines_with<'a>(source: &'a Source, words: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    let text = code(&source.text);
    let hits: Vec<String> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| words.iter().any(|word| line.contains(word)))
        .map(|(i, line)| format!("{}:{}: {}", source.path, i + 1, line.trim()))
        .collect();
    hits.into_iter()
}

/// Core is a function of its inputs.
fn core_touches_nothing(source: &Source) -> Vec<String> {
    let words = ["std::net", "std::thread", "std::time", "std::fs", "std::io::", "Instant::now", "SystemTime"];
    match source.path.starts_with("crates/polywire-core/src/") {
        true => lines_with(source, &words).collect(),
        false => Vec::new(),
    }
}

/// Unsafe code lies where ARCHITECTURE.md says.
fn unsafe_is_at_home(source: &Source) -> Vec<String> {
    let homes = [
        "crates/polywire-core/src/layout/",
        "crates/polywire-core/src/program/",
        "workloads/",
        "crates/polywire-derive/src/",
    ];
    let tests = source.path.contains("/tests/") || ["bench/", "fuzz/"].iter().any(|f| source.path.starts_with(f));
    match tests || homes.iter().any(|home| source.path.starts_with(home)) {
        true => Vec::new(),
        false => lines_with(source, &["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait"])
            // The coders' calls into `Executable`, whose contract `Codable` keeps.
            .filter(|hit| source.path != "crates/polywire-core/src/codec/coder.rs" || !hit.contains("self.executable."))
            .collect(),
    }
}

/// A codec knows no sibling and no back end.
fn codecs_keep_to_themselves(source: &Source) -> Vec<String> {
    let Some(rest) = source.path.strip_prefix("crates/polywire-core/src/codec/") else { return Vec::new() };
    let Some((name, _)) = rest.split_once('/') else { return Vec::new() };
    let siblings =
        ["bson", "cdr", "json", "xml", "yaml"].into_iter().filter(|sibling| *sibling != name && name != "lower");
    let mut words: Vec<String> = siblings.map(|sibling| format!("codec::{sibling}")).collect();
    words.extend(["interp::", "jit::"].map(String::from));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    lines_with(source, &words).collect()
}

/// What is public for the compiler's sake only has the users that it was made for: what derived
/// code calls, and random values for tests, fuzzing and measuring.
fn hidden_modules_have_their_users(source: &Source) -> Vec<String> {
    let random = ["/tests/", "/benches/"].iter().any(|part| source.path.contains(part))
        || [
            "bench/",
            "fuzz/",
            "workloads/",
            "crates/polywire-instrument/",
            "crates/polywire-testing/",
            "crates/polywire-core/",
        ]
        .iter()
        .any(|start| source.path.starts_with(start));
    let derived = ["crates/polywire-derive/", "crates/polywire-core/", "xtask/"]
        .iter()
        .any(|start| source.path.starts_with(start));
    let mut words = Vec::new();
    words.extend((!random).then_some("arbitrary::"));
    words.extend((!derived).then_some("layout::support"));
    lines_with(source, &words).collect()
}

/// Engines know envelopes, never schemas or codecs.
fn engines_know_no_types(source: &Source) -> Vec<String> {
    match source.path.starts_with("crates/polywire/src/engine/") {
        true => lines_with(
            source,
            &["polywire_core::schema", "polywire_core::codec", "polywire_core::layout", "polywire_core::program"],
        )
        .collect(),
        false => Vec::new(),
    }
}

/// Crates point one way.
fn crates_point_one_way(source: &Source) -> Vec<String> {
    let forbidden: &[&str] = match source.path.split("/src/").next() {
        Some("crates/polywire-core") => &["polywire_idl", "polywire::", "polywire_cli"],
        Some("crates/polywire-idl") => &["polywire::", "polywire_cli"],
        Some("crates/polywire") => &["polywire_cli", "polywire_idl", "polywire_instrument"],
        Some("crates/polywire-instrument") => &["polywire_cli"],
        _ => &[],
    };
    // Text that a generator writes, or the name of an attribute, is no dependency.
    let names = |hit: &String| hit.contains("use polywire") && !hit.contains('"');
    lines_with(source, forbidden).filter(names).collect()
}

/// An error whose message has its cause inside must not give it as source, too: whoever prints the
/// chain would print it twice.
fn causes_are_said_once(source: &Source) -> Vec<String> {
    lines_with(source, &["{source}"]).filter(|line| line.starts_with("crates/") && line.contains("#[error(")).collect()
}

/// A file past 800 lines is two.
fn files_are_short(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    (lines > 900).then(|| format!("{}: {lines} lines", source.path)).into_iter().collect()
}

/// Comments end at column 100. Code in the examples of doc comments may be as wide as other code.
fn comments_are_narrow(source: &Source) -> Vec<String> {
    let mut is_example = false;
    let mut wide = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let text = line.trim_start();
        if !text.starts_with("//") {
            is_example = false;
            continue;
        }
        let words = text.trim_start_matches(['/', '!']).trim_start();
        if words.starts_with("```") {
            is_example = !is_example;
        } else if !is_example && !words.starts_with('|') && line.chars().count() > 100 && words.contains(' ') {
            wide.push(format!("{}:{}: {} columns", source.path, number + 1, line.chars().count()));
        }
    }
    wide
}

fn hold(endings: &[&str], rule: fn(&Source) -> Vec<String>) {
    let violations: Vec<String> = sources(endings).iter().flat_map(rule).collect();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

fn finds(rule: fn(&Source) -> Vec<String>, path: &str, text: &str) {
    assert!(!rule(&Source { path: path.into(), text: text.into() }).is_empty(), "the rule misses {path}: {text}");
}

#[test]
fn core_opens_no_socket_starts_no_thread_reads_no_clock() {
    finds(core_touches_nothing, "crates/polywire-core/src/frame.rs", "use std::net::TcpStream;");
    hold(&[".rs"], core_touches_nothing);
}

#[test]
fn unsafe_code_lies_in_layout_and_program_only() {
    finds(unsafe_is_at_home, "crates/polywire/src/node.rs", "unsafe { *pointer }");
    hold(&[".rs"], unsafe_is_at_home);
}

#[test]
fn a_codec_knows_no_sibling_and_no_back_end() {
    finds(codecs_keep_to_themselves, "crates/polywire-core/src/codec/cdr/mod.rs", "use crate::codec::json::text;");
    finds(codecs_keep_to_themselves, "crates/polywire-core/src/codec/cdr/mod.rs", "crate::program::interp::HOST");
    hold(&[".rs"], codecs_keep_to_themselves);
}

#[test]
fn hidden_modules_are_used_by_whom_they_are_for() {
    let path = "crates/polywire/src/node/mod.rs";
    finds(hidden_modules_have_their_users, path, "use polywire_core::schema::arbitrary::Random;");
    finds(hidden_modules_have_their_users, path, "polywire_core::layout::support::fresh_or(0)");
    hold(&[".rs"], hidden_modules_have_their_users);
}

#[test]
fn engines_know_envelopes_never_schemas_or_codecs() {
    finds(engines_know_no_types, "crates/polywire/src/engine/tcp.rs", "use polywire_core::schema::Schema;");
    hold(&[".rs"], engines_know_no_types);
}

#[test]
fn crates_depend_in_one_direction() {
    finds(crates_point_one_way, "crates/polywire-core/src/lib.rs", "use polywire_idl::Compiler;");
    hold(&[".rs"], crates_point_one_way);
}

#[test]
fn errors_say_their_cause_once() {
    hold(&[".rs"], causes_are_said_once);
    finds(causes_are_said_once, "crates/polywire/src/a.rs", "#[error(\"{path}: {source}\")]");
}

#[test]
fn files_stay_short() {
    finds(files_are_short, "crates/polywire/src/node.rs", &"\n".repeat(1000));
    hold(&[".rs"], files_are_short);
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let homes = |source: &Source| -> Vec<String> {
        let words = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
        let lines = source.text.lines().enumerate();
        let hits = lines.filter(|(_, line)| words.iter().any(|word| line.contains(word)));
        hits.map(|(i, line)| format!("{}:{}: {}", source.path, i + 1, line.trim())).collect()
    };
    assert!(!homes(&Source { path: "x".into(), text: concat!("/wo", "rk/main").into() }).is_empty());
    let sources = sources(&[".rs", ".md", ".toml", ".sh", ".idl", ".c", ".cpp", ".py"]);
    let violations: Vec<String> = sources.iter().flat_map(homes).collect();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn every_crate_takes_its_lints_and_version_from_the_root() {
    for source in sources(&["Cargo.toml"]).iter().filter(|s| s.path != "Cargo.toml") {
        assert!(source.text.contains("version.workspace = true"), "{}: no version.workspace", source.path);
        let lints = source.text.contains("[lints]\nworkspace = true");
        assert!(lints || source.path.starts_with("xtask"), "{}: no [lints] workspace", source.path);
    }
}

#[test]
fn comments_end_at_column_100() {
    let wide = format!("fn f() {{}}\n    // {}\n", "word ".repeat(20));
    finds(comments_are_narrow, "crates/polywire/src/node.rs", &wide);
    finds(comments_are_narrow, "crates/polywire/src/node.rs", &format!("/// ```\n/// ```\n{wide}"));
    hold(&[".rs"], comments_are_narrow);
}
