//! The rules of ARCHITECTURE.md that a compiler does not hold.
//!
//! Each rule is a function from the tree to a list of violations, and has a test of its own that it
//! finds one.

use std::{
    collections::{BTreeMap, BTreeSet},
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
            // The two coders' calls into `Executable`, whose contract their types keep.
            .filter(|hit| {
                !matches!(source.path.as_str(), p if p.starts_with("crates/polywire-core/src/codec/"))
                    || !hit.contains("executable")
            })
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
        Some("crates/polywire") => &["polywire_cli", "polywire_idl", "polywire_link", "polywire_measure"],
        Some("crates/polywire-link") => &["polywire_cli", "polywire_idl", "polywire_measure"],
        Some("crates/polywire-measure") => &["polywire_cli"],
        _ => &[],
    };
    // Text that a generator writes, or the name of an attribute, is no dependency.
    let names = |hit: &String| hit.contains("use polywire") && !hit.contains('"');
    lines_with(source, forbidden).filter(names).collect()
}

/// The experiments use the measuring crate; nothing else of it uses them.
fn experiments_are_on_top(source: &Source) -> Vec<String> {
    let inside = source.path.strip_prefix("crates/polywire-measure/src/").unwrap_or("experiments/");
    match inside.starts_with("experiments/") {
        true => Vec::new(),
        false => lines_with(source, &["experiments::", "papers::", "scaling::"]).collect(),
    }
}

/// Folders whose files import in one direction.
const LAYERED: &[&str] = &[
    "crates/polywire-cli/src/transcode",
    "crates/polywire-link/src",
    "crates/polywire-measure/src/live",
    "crates/polywire-measure/src/experiments/papers",
    "crates/polywire-measure/src/experiments/scaling",
];

/// What each file of a folder imports from its siblings: `super::NAME` in a file, `NAME::` in
/// `mod.rs`. A name that is no file of the folder is one that `mod.rs` defines. In the folder of a
/// crate the root is `lib.rs`, and names begin with `crate::`.
fn imports(folder: &str, sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let is_crate = folder.ends_with("/src");
    let root = if is_crate { "lib" } else { "mod" };
    let stem = |path: &str| {
        let name = path.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".rs")?;
        Some(name.strip_suffix("/mod").unwrap_or(name).to_owned())
    };
    let files: BTreeMap<String, String> = sources
        .iter()
        .filter_map(|source| Some((stem(&source.path)?, code(&source.text))))
        .filter(|(name, _)| !name.contains('/'))
        .collect();
    let names = |text: &str, name: &str| {
        let word = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
        text.match_indices(&format!("{name}::")).any(|(at, _)| word(&text[..at]))
    };
    let of_root = |text: &str| files.keys().filter(|name| names(text, name)).cloned().collect();
    let of_file = |text: &str| {
        let prefix = if is_crate { "crate::" } else { "super::" };
        let behind = text.match_indices(prefix).flat_map(|(at, word)| first_segments(&text[at + word.len()..]));
        behind.map(|segment| if files.contains_key(&segment) { segment } else { root.to_owned() }).collect()
    };
    let of = |(name, text): (&String, &String)| {
        let imported: BTreeSet<String> = if name == root { of_root(text) } else { of_file(text) };
        (name.clone(), imported)
    };
    files.iter().map(of).collect()
}

/// The first segments of a path, or of each path of a group in braces.
fn first_segments(text: &str) -> Vec<String> {
    let word =
        |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = text.strip_prefix('{') else { return vec![word(text)] };
    let (mut depth, mut segments, mut rest) = (0usize, vec![word(group)], group);
    while let Some(at) = rest.find(['{', '}', ',']) {
        let behind = &rest[at + 1..];
        match &rest[at..=at] {
            "{" => depth += 1,
            "}" if depth == 0 => break,
            "}" => depth -= 1,
            _ if depth == 0 => segments.push(word(behind)),
            _ => {}
        }
        rest = behind;
    }
    segments.into_iter().filter(|segment| !segment.is_empty()).collect()
}

/// The files of a folder that import each other, directly or by way of others.
fn circle(folder: &str, sources: &[Source]) -> Vec<String> {
    let mut left = imports(folder, sources);
    // A file is out once all that it imports are out.
    while let Some(name) = left.iter().find(|(_, imported)| imported.is_empty()).map(|(name, _)| name.clone()) {
        left.remove(&name);
        for imported in left.values_mut() {
            imported.remove(&name);
        }
    }
    left.iter().map(|(name, imported)| format!("{folder}/{name}.rs imports {imported:?}")).collect()
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
fn measuring_does_not_know_its_experiments() {
    finds(experiments_are_on_top, "crates/polywire-measure/src/report/mod.rs", "use crate::experiments::Page;");
    hold(&[".rs"], experiments_are_on_top);
}

#[test]
fn files_of_a_folder_import_in_one_direction() {
    let folder = |files: &[(&str, &str)]| -> Vec<Source> {
        files.iter().map(|(name, text)| Source { path: format!("x/{name}.rs"), text: (*text).into() }).collect()
    };
    let fine =
        [("mod", "pub use b::{B, C};"), ("a", "use super::c::C;"), ("b", "use super::{a::{A, b}, c};"), ("c", "")];
    assert_eq!(circle("x", &folder(&fine)), Vec::<String>::new());
    assert_eq!(circle("x", &folder(&[("a", "use super::{c, b::B};"), ("b", "super::a::f();"), ("c", "")])).len(), 2);
    assert_eq!(circle("x", &folder(&[("mod", "use a::A;"), ("a/mod", "use super::SHARED;")])).len(), 2);
    let sources = sources(&[".rs"]);
    for folder in LAYERED {
        assert!(imports(folder, &sources).values().any(|imported| !imported.is_empty()), "{folder} has gone");
        let circle = circle(folder, &sources);
        assert!(circle.is_empty(), "{}", circle.join("\n"));
    }
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
