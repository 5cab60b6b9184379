//! Checks rules of ARCHITECTURE.md and CONTRIBUTING.md that the compiler does not check, by reading
//! the source files.
//!
//! Most rules are functions from a source file to a list of violations, and each test shows that
//! its rule finds a violation. An exception that no file needs any more is an error, too.

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
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the root").to_path_buf()
}

/// All files below the root whose paths end with one of `endings`. Hidden folders and folders named
/// `target` are left out.
fn sources(endings: &[&str]) -> Vec<Source> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(folder).expect("the folder can be read");
        for path in entries.map(|entry| entry.expect("the entry can be read").path()) {
            let name = path.file_name().expect("an entry of a folder has a name").to_string_lossy().into_owned();
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
        let path = path.strip_prefix(&root).expect("the path is below the root").to_string_lossy().replace('\\', "/");
        Source { path, text }
    };
    found.into_iter().filter(wanted).map(read).collect()
}

/// The code of a file, without comments and without the unit tests at its end.
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

/// Finds uses of sockets, threads, files and clocks in `polywire-core`. Its results must depend on
/// its inputs alone.
fn core_touches_nothing(source: &Source) -> Vec<String> {
    let words = ["std::net", "std::thread", "std::time", "std::fs", "std::io::", "Instant::now", "SystemTime"];
    match source.path.starts_with("crates/polywire-core/src/") {
        true => lines_with(source, &words).collect(),
        false => Vec::new(),
    }
}

/// The places where unsafe code is allowed.
const UNSAFE_HOMES: &[Exception] = &[
    Exception { path: "crates/polywire-core/src/layout/", word: "" },
    Exception { path: "crates/polywire-core/src/program/", word: "" },
    // Calls of `Executable`. `Codable` guarantees their safety conditions.
    Exception { path: "crates/polywire-core/src/codec/coder.rs", word: "self.executable." },
    Exception { path: "crates/polywire-core/tests/", word: "" },
    // The interfaces to libraries in C.
    Exception { path: "crates/polywire-dds/src/", word: "" },
    Exception { path: "crates/polywire-zeromq/src/", word: "" },
    Exception { path: "crates/polywire-derive/src/", word: "" },
    // Ports of iceoryx2 without locks: each is behind a lock of the engine.
    Exception { path: "crates/polywire/src/engine/shm/memory.rs", word: "impl Send for" },
    Exception { path: "fuzz/src/messages.rs", word: "" },
    Exception { path: "testing/src/", word: "" },
    Exception { path: "workloads/", word: "" },
];

/// Finds unsafe code in any file.
fn unsafe_code(source: &Source) -> Vec<String> {
    // Split, so that this file has no such line.
    let words = ["{", "fn", "impl", "extern", "trait"].map(|word| ["unsafe", word].join(" "));
    lines_with(source, &words.each_ref().map(String::as_str)).collect()
}

/// Finds codecs that use another codec, by whichever path, or a back end.
fn codecs_keep_to_themselves(source: &Source) -> Vec<String> {
    let Some(rest) = source.path.strip_prefix("crates/polywire-core/src/codec/") else { return Vec::new() };
    let Some((name, _)) = rest.split_once('/') else { return Vec::new() };
    let codecs = root().join("crates/polywire-core/src/codec");
    let folders = fs::read_dir(codecs).expect("the folder of codecs").map(|entry| entry.expect("an entry").path());
    let folders = folders.filter(|path| path.is_dir()).filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let siblings: Vec<String> = folders.filter(|sibling| *sibling != name && sibling != "lower").collect();
    let mut words: Vec<String> = siblings.iter().map(|sibling| format!("codec::{sibling}")).collect();
    words.extend(["interp::", "jit::"].map(String::from));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // The path from this file up to the folder of codecs.
    let up = "super::".repeat(rest.split('/').count() - usize::from(rest.ends_with("/mod.rs")));
    let text = code(&source.text);
    let imports = ["crate::codec::", &up].map(|prefix| imported(&text, prefix).map(str::to_owned).collect::<Vec<_>>());
    let used = imports.into_iter().flatten().filter(|module| siblings.contains(module));
    lines_with(source, &words).chain(used.map(|module| format!("{} uses {module}", source.path))).collect()
}

/// Finds kernels that use a codec: codecs build on them.
fn kernels_know_no_codec(source: &Source) -> Vec<String> {
    match source.path.starts_with("crates/polywire-core/src/program/kernels/") {
        true => lines_with(source, &["codec::"]).collect(),
        false => Vec::new(),
    }
}

/// The users of modules that are public but hidden. Tests, fuzzing and measuring use random values,
/// and derived code calls `layout::support`.
const USERS_OF_HIDDEN_MODULES: &[Exception] = &[
    Exception { path: "crates/polywire-core/", word: "arbitrary::" },
    Exception { path: "crates/polywire-idl/tests/", word: "arbitrary::" },
    Exception { path: "crates/polywire-measure/", word: "arbitrary::" },
    Exception { path: "crates/polywire-link/tests/", word: "arbitrary::" },
    Exception { path: "crates/polywire/tests/", word: "arbitrary::" },
    Exception { path: "fuzz/", word: "arbitrary::" },
    Exception { path: "testing/", word: "arbitrary::" },
    Exception { path: "crates/polywire-derive/", word: "layout::support" },
    Exception { path: "xtask/tests/tidy.rs", word: "" },
];

/// Finds uses of hidden modules in any file.
fn hidden_modules(source: &Source) -> Vec<String> {
    lines_with(source, &["arbitrary::", "layout::support"]).collect()
}

/// Finds engines that use schemas, codecs, layouts, programs or quality of service. Engines may use
/// envelopes only.
fn engines_know_no_types(source: &Source) -> Vec<String> {
    match source.path.starts_with("crates/polywire/src/engine/") {
        true => lines_with(
            source,
            &[
                "polywire_core::schema",
                "polywire_core::codec",
                "polywire_core::layout",
                "polywire_core::program",
                "polywire_core::qos",
            ],
        )
        .collect(),
        false => Vec::new(),
    }
}

/// Finds crates that use a crate above them.
fn crates_point_one_way(source: &Source) -> Vec<String> {
    let forbidden: &[&str] = match source.path.split("/src/").next() {
        Some("crates/polywire-core") => &["polywire_idl", "polywire::", "polywire_cli"],
        Some("crates/polywire-idl") => &["polywire::", "polywire_cli"],
        Some("crates/polywire") => &[
            "polywire_cli",
            "polywire_collector",
            "polywire_idl",
            "polywire_link",
            "polywire_measure",
            "polywire_telemetry",
        ],
        Some("crates/polywire-link") => &["polywire_cli", "polywire_idl", "polywire_measure"],
        Some("crates/polywire-measure") => &["polywire_cli"],
        Some("crates/polywire-telemetry") => {
            &["polywire_cli", "polywire_collector", "polywire_link", "polywire_measure"]
        }
        Some("crates/polywire-collector") => &["polywire_cli", "polywire_link", "polywire_measure"],
        _ => &[],
    };
    // Text that a generator writes, or the name of an attribute, is not a dependency.
    let names = |hit: &String| hit.contains("use polywire") && !hit.contains('"');
    lines_with(source, forbidden).filter(names).collect()
}

/// Finds other parts of the measuring crate that use its experiments.
fn experiments_are_on_top(source: &Source) -> Vec<String> {
    let inside = source.path.strip_prefix("crates/polywire-measure/src/").unwrap_or("experiments/");
    match inside.starts_with("experiments/") {
        true => Vec::new(),
        false => lines_with(source, &["experiments::", "papers::", "scaling::"]).collect(),
    }
}

/// Folders whose modules must not import each other in a circle. A folder's own `mod.rs` or
/// `lib.rs` does not count as a module: it declares the others and has items that all of them use.
const LAYERED: &[&str] = &[
    "crates/polywire-collector/src/",
    "crates/polywire-core/src/multicast/",
    "crates/polywire-core/src/session/",
    "crates/polywire/src/",
    "crates/polywire/src/engine/",
    "crates/polywire/src/engine/stream/",
    "crates/polywire/src/engine/udp/",
    "crates/polywire/src/engine/zenoh/",
    "crates/polywire/src/engine/zeromq/",
    "crates/polywire/src/node/",
    "crates/polywire-cli/src/transcode/",
    "crates/polywire-link/src/",
    "crates/polywire-measure/src/live/",
    "crates/polywire-measure/src/experiments/papers/",
    "crates/polywire-measure/src/experiments/scaling/",
    "crates/polywire-telemetry/src/",
];

/// The modules that follow `prefix` in a text, also in braces: `a` and `b` in `crate::{a::X, b}`.
fn imported<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    fn word(text: &str) -> &str {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
    }
    fn entries(group: &str) -> Vec<&str> {
        let (mut depth, mut start, mut found) = (0, 1, Vec::new());
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if (c == ',' && depth == 1) || depth == 0 {
                found.push(word(group.get(start..at).unwrap_or_default().trim_start()));
                start = at + 1;
            }
            if depth == 0 {
                break;
            }
        }
        found
    }
    let inside = |at: usize| text[..at].ends_with("::") || text[..at].ends_with(|c: char| c.is_alphanumeric());
    let hits = text.match_indices(prefix).filter(move |(at, _)| !inside(*at));
    hits.flat_map(move |(at, _)| {
        let rest = &text[at + prefix.len()..];
        if rest.starts_with('{') { entries(rest) } else { vec![word(rest)] }
    })
}

/// The modules of a folder that import each other in a circle, or import modules that do.
fn circles(sources: &[Source], folder: &str) -> Vec<String> {
    let module = |path: &str| -> Option<String> {
        let rest = path.strip_prefix(folder)?;
        let name = rest.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        (!["mod", "lib"].contains(&name)).then(|| name.to_owned())
    };
    let crate_path = folder.split_once("/src/").map_or("", |(_, path)| path).replace('/', "::");
    let absolute = format!("crate::{crate_path}");
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let Some(name) = module(&source.path) else { continue };
        let text = code(&source.text);
        let is_direct = source.path.strip_prefix(folder).is_some_and(|rest| !rest.contains('/'));
        let siblings = imported(&text, "super::").filter(|_| is_direct);
        let found = imported(&text, &absolute).chain(siblings).filter(|other| *other != name).map(str::to_owned);
        imports.entry(name.clone()).or_default().extend(found);
    }
    // Remove modules that import none of the remaining modules, until none is left that can be
    // removed. The rest is in circles, or imports modules that are.
    while let Some(free) = imports
        .iter()
        .find(|(_, others)| others.iter().all(|other| !imports.contains_key(other)))
        .map(|(name, _)| name.clone())
    {
        imports.remove(&free);
    }
    let left: Vec<String> = imports.keys().cloned().collect();
    let of = |name: &String| {
        let others: Vec<&str> = imports[name].iter().filter(|o| left.contains(o)).map(String::as_str).collect();
        format!("{folder}{name} imports {}", others.join(", "))
    };
    left.iter().map(of).collect()
}

/// Finds errors whose message contains their source. A program that prints the chain of sources
/// would print it twice.
fn causes_are_said_once(source: &Source) -> Vec<String> {
    lines_with(source, &["{source}"]).filter(|line| line.starts_with("crates/") && line.contains("#[error(")).collect()
}

/// The maximum number of lines of a file.
const MAX_LINES: usize = 900;

/// Finds files that are too long.
fn files_are_short(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    (lines > MAX_LINES).then(|| format!("{}: {lines} lines", source.path)).into_iter().collect()
}

/// Finds comments that go beyond column 100. Examples in doc comments may be as wide as other code.
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

/// Finds comments that only refer to another comment or to a promise elsewhere. They tell the
/// reader nothing.
fn comments_stand_alone(source: &Source) -> Vec<String> {
    let empty = [
        "as above",
        "as before",
        "as the caller promises",
        "ditto",
        "likewise",
        "see above",
        "the same",
        "the same as above",
    ];
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let is_comment = |number: usize| lines.get(number).is_some_and(|line| line.starts_with("//"));
    let refers = |number: &usize| {
        let text = lines[*number].trim_start_matches(['/', '!']).trim().to_lowercase();
        let text = text.trim_start_matches("safety:").trim().trim_end_matches('.');
        // A line of a longer comment may consist of such words.
        let has_neighbour = (*number > 0 && is_comment(number - 1)) || is_comment(number + 1);
        is_comment(*number) && !has_neighbour && empty.contains(&text)
    };
    (0..lines.len()).filter(refers).map(|number| format!("{}:{}: {}", source.path, number + 1, lines[number])).collect()
}

/// The names of an enum's variants, in a file where each begins a line.
fn variants(text: &str, of: &str) -> Vec<String> {
    let (_, rest) = text.split_once(&format!("pub enum {of} {{\n")).expect("the enum");
    let (body, _) = rest.split_once("\n}").expect("its end");
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let named = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    named.map(|line| line.chars().take_while(char::is_ascii_alphanumeric).collect()).collect()
}

/// True if a text contains a name, and not only as the beginning of a longer one.
fn has_name(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| !text[at + name.len()..].starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Folders where lints are suppressed with `expect` and never with `allow`.
const WITHOUT_ALLOW: &[&str] = &[
    "crates/polywire-core/tests/",
    "crates/polywire-derive/",
    "crates/polywire-idl/",
    "fuzz/",
    "testing/",
    "workloads/",
    "xtask/",
];

const ALLOWED: &[Exception] = &[
    // In code that the derive generates. Whether the lint fires depends on the number of members.
    Exception { path: "crates/polywire-derive/src/structure.rs", word: "too_many_lines" },
];

/// Finds `allow`. When a lint no longer fires, `expect` causes a warning, but `allow` stays
/// unnoticed.
fn lints_are_expected(source: &Source) -> Vec<String> {
    // Split, so that this file has no such line.
    let words = ["#[", "#![", ", "].map(|before| format!("{before}allow("));
    match WITHOUT_ALLOW.iter().any(|area| source.path.starts_with(area)) {
        true => lines_with(source, &words.each_ref().map(String::as_str)).collect(),
        false => Vec::new(),
    }
}

/// Allows the violations that contain `word` in files whose paths start with `path`.
struct Exception {
    path: &'static str,
    word: &'static str,
}

impl Exception {
    /// Whether the exception covers a violation. The text of a violation starts with the path of
    /// its file.
    fn covers(&self, violation: &str) -> bool {
        violation.starts_with(self.path) && violation.contains(self.word)
    }
}

/// Panics unless an exception covers every violation, and every exception covers at least one.
fn hold_except(exceptions: &[Exception], endings: &[&str], rule: fn(&Source) -> Vec<String>) {
    let violations: Vec<String> = sources(endings).iter().flat_map(rule).collect();
    let uncovered: Vec<&String> = violations.iter().filter(|v| !exceptions.iter().any(|e| e.covers(v))).collect();
    assert!(uncovered.is_empty(), "{uncovered:#?}");
    let unneeded = exceptions.iter().filter(|e| !violations.iter().any(|v| e.covers(v)));
    let unneeded: Vec<&str> = unneeded.map(|e| e.path).collect();
    assert!(unneeded.is_empty(), "no violation is left in {unneeded:?}: remove the exception");
}

fn hold(endings: &[&str], rule: fn(&Source) -> Vec<String>) {
    hold_except(&[], endings, rule);
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
    finds(unsafe_code, "crates/polywire/src/node.rs", concat!("unsa", "fe { *pointer }"));
    hold_except(UNSAFE_HOMES, &[".rs"], unsafe_code);
}

#[test]
fn a_codec_knows_no_sibling_and_no_back_end() {
    finds(codecs_keep_to_themselves, "crates/polywire-core/src/codec/cdr/mod.rs", "use crate::codec::json::text;");
    finds(codecs_keep_to_themselves, "crates/polywire-core/src/codec/cdr/mod.rs", "crate::program::interp::HOST");
    finds(
        codecs_keep_to_themselves,
        "crates/polywire-core/src/codec/cbor/mod.rs",
        "use super::{lower::kinds, msgpack};",
    );
    finds(
        codecs_keep_to_themselves,
        "crates/polywire-core/src/codec/fast/plan.rs",
        "use super::super::protobuf::varint;",
    );
    finds(
        codecs_keep_to_themselves,
        "crates/polywire-core/src/codec/fast/template/read.rs",
        "super::super::super::xml::X",
    );
    hold(&[".rs"], codecs_keep_to_themselves);
}

#[test]
fn kernels_are_below_codecs() {
    let path = "crates/polywire-core/src/program/kernels/scan.rs";
    finds(kernels_know_no_codec, path, "use crate::codec::lower::json::tokens;");
    hold(&[".rs"], kernels_know_no_codec);
}

#[test]
fn hidden_modules_are_used_by_whom_they_are_for() {
    let path = "crates/polywire/src/node/mod.rs";
    finds(hidden_modules, path, "use polywire_core::schema::arbitrary::Random;");
    finds(hidden_modules, path, "polywire_core::layout::support::default_value_or(0)");
    hold_except(USERS_OF_HIDDEN_MODULES, &[".rs"], hidden_modules);
}

#[test]
fn engines_know_envelopes_never_schemas_or_codecs() {
    finds(engines_know_no_types, "crates/polywire/src/engine/tcp.rs", "use polywire_core::schema::Schema;");
    // A topic of DDS has a type and policies.
    let dds = |word| Exception { path: "crates/polywire/src/engine/dds/", word };
    // Answers queries for schemas, and has the types of ROS 2 in keys.
    let zenoh = Exception { path: "crates/polywire/src/engine/zenoh/", word: "polywire_core::schema" };
    hold_except(&[dds("polywire_core::qos"), dds("polywire_core::schema"), zenoh], &[".rs"], engines_know_no_types);
}

#[test]
fn crates_depend_in_one_direction() {
    finds(crates_point_one_way, "crates/polywire-core/src/lib.rs", "use polywire_idl::Compiler;");
    // Answers queries for schemas, with text.
    let zenoh = Exception { path: "crates/polywire/src/engine/zenoh/queries.rs", word: "polywire_idl::emit" };
    hold_except(&[zenoh], &[".rs"], crates_point_one_way);
}

#[test]
fn measuring_does_not_know_its_experiments() {
    finds(experiments_are_on_top, "crates/polywire-measure/src/report/mod.rs", "use crate::experiments::Page;");
    hold(&[".rs"], experiments_are_on_top);
}

#[test]
fn modules_import_in_one_direction() {
    let source = |path: &str, text: &str| Source { path: format!("k/src/{path}"), text: text.into() };
    let circle = [
        source("a.rs", "use crate::{\n    b::{X, Y},\n    c,\n};"),
        source("b/mod.rs", "use crate::c::Z;"),
        source("b/inner.rs", "fn f() -> crate::a::W {}"),
        source("c.rs", "use std::fmt;"),
    ];
    assert_eq!(circles(&circle, "k/src/").len(), 2);
    let inner = [source("e/x.rs", "use super::{Z, y::W};"), source("e/y.rs", "use crate::e::x::V;")];
    assert_eq!(circles(&inner, "k/src/e/").len(), 2);
    let apart = [source("a.rs", "use crate::b::X;"), source("b.rs", "/// [`crate::a::W`]\nuse super::lib;")];
    assert!(circles(&apart, "k/src/").is_empty());
    let sources = sources(&[".rs"]);
    let all: Vec<String> = LAYERED.iter().flat_map(|folder| circles(&sources, folder)).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn errors_say_their_cause_once() {
    hold(&[".rs"], causes_are_said_once);
    finds(causes_are_said_once, "crates/polywire/src/a.rs", "#[error(\"{path}: {source}\")]");
}

#[test]
fn files_stay_short() {
    finds(files_are_short, "crates/polywire/src/node.rs", &"\n".repeat(MAX_LINES + 1));
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
    // Other people's software that tests compare with has workspaces of its own.
    let is_member = |source: &&Source| !source.text.lines().any(|line| line == "[workspace]");
    for source in sources(&["Cargo.toml"]).iter().filter(is_member) {
        assert!(source.text.contains("version.workspace = true"), "{}: no version.workspace", source.path);
        assert!(source.text.contains("[lints]\nworkspace = true"), "{}: no [lints] workspace", source.path);
    }
}

#[test]
fn comments_end_at_column_100() {
    let wide = format!("fn f() {{}}\n    // {}\n", "word ".repeat(20));
    finds(comments_are_narrow, "crates/polywire/src/node.rs", &wide);
    finds(comments_are_narrow, "crates/polywire/src/node.rs", &format!("/// ```\n/// ```\n{wide}"));
    hold(&[".rs"], comments_are_narrow);
}

#[test]
fn comments_say_something_themselves() {
    finds(comments_stand_alone, "crates/polywire/src/node.rs", "fn f() {}\n    // SAFETY: as above.\n");
    finds(comments_stand_alone, "crates/polywire/src/node.rs", "/// Likewise\nfn f() {}");
    hold(&[".rs"], comments_stand_alone);
}

#[test]
fn operations_are_in_the_specification_and_in_random_programs() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("a file of the project");
    let spec = read("spec/program.md");
    let rows = spec.lines().filter(|line| line.starts_with("| `"));
    let operations: String = rows.filter_map(|row| row.split('|').nth(1)).collect();
    // Random programs are changed lowerings of the core's codecs.
    let is_source =
        |path: &str| path.starts_with("crates/polywire-core/src/codec/") || path == "testing/src/programs.rs";
    let lowerings = sources(&[".rs"]).into_iter().filter(|source| is_source(&source.path));
    let used: String = lowerings.map(|source| code(&source.text)).collect();
    for (file, of, row) in [("mod.rs", "OpKind", "`"), ("slots.rs", "SlotOp", "`"), ("bytes.rs", "Bytes", "`Bytes ")] {
        let names = variants(&read(&format!("crates/polywire-core/src/program/{file}")), of);
        assert!(names.len() > 8, "{names:?}");
        // Those of `Slot` have rows by their own names.
        for name in names.into_iter().filter(|name| name != "Slot") {
            assert!(has_name(&operations, &format!("{row}{name}")), "spec/program.md has no row for {of}::{name}");
            let is_used = has_name(&used, &format!("{of}::{name}"));
            assert!(is_used, "no codec emits {of}::{name}: put it into testing/src/programs.rs");
        }
    }
}

#[test]
fn lints_are_expected_not_allowed() {
    finds(lints_are_expected, "fuzz/src/lib.rs", concat!("#[al", "low(dead_code)]"));
    hold_except(ALLOWED, &[".rs"], lints_are_expected);
}

#[test]
#[should_panic(expected = "remove the exception")]
fn an_exception_that_nothing_needs_is_an_error() {
    hold_except(&[Exception { path: "xtask/", word: "" }], &["tidy.rs"], |_| Vec::new());
}
