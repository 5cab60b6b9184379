//! Checks that examples in doc comments name each public type, trait, function and method of a
//! crate. An example may be on the item itself or elsewhere in the crate. `cargo test` runs the
//! examples; this test only reads the source files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The crates that must keep this rule.
const CRATES: &[&str] = &["polywire", "polywire-idl", "polywire-core", "polywire-telemetry", "polywire-collector"];

/// Files of `polywire-core`, by the start of their paths, that need no examples: codecs, back ends
/// and derived code use them, and the codecs show how. If examples name everything in such files,
/// the entry must be removed.
const INSIDE: &[&str] = &[
    "codec/lower/",
    "program/kernel",
    "program/slice",
    "program/state/",
    "program/adapter",
    "layout/shared",
    "layout/describe",
];

struct File {
    /// The path in the crate's `src`, without the extension, such as `engine/mod`.
    path: String,
    text: String,
}

fn files(krate: &str) -> Vec<File> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }
    let (root, mut found) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").join(krate).join("src"), Vec::new());
    walk(&root, &mut found);
    let file = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("the file can be read");
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
        let path = path
            .strip_prefix(&root)
            .expect("the path is below the root")
            .with_extension("")
            .to_string_lossy()
            .replace('\\', "/");
        File { path, text }
    };
    found.into_iter().map(file).collect()
}

/// All words in the examples that `cargo test` runs.
fn shown(files: &[File]) -> BTreeSet<&str> {
    let mut words = BTreeSet::new();
    for file in files {
        let mut runs: Option<bool> = None;
        for line in file.text.lines().map(str::trim_start) {
            let Some(comment) = line.strip_prefix("///").or(line.strip_prefix("//!")) else {
                runs = None;
                continue;
            };
            match (comment.trim_start().strip_prefix("```"), runs) {
                (Some(info), None) => runs = Some(matches!(info.trim(), "" | "rust")),
                (Some(_), Some(_)) => runs = None,
                (None, Some(true)) => words.extend(words_of(comment)),
                _ => {}
            }
        }
    }
    words
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Whether other crates can name the module of a file.
fn is_public(path: &str, all: &BTreeMap<&str, &str>) -> bool {
    let module = path.strip_suffix("/mod").unwrap_or(path);
    if module == "lib" {
        return true;
    }
    let (parent, name) = module.rsplit_once('/').unwrap_or(("", module));
    let inside = if parent.is_empty() { "lib".to_owned() } else { format!("{parent}/mod") };
    let text = all.get(inside.as_str()).or(all.get(parent)).copied().unwrap_or_default();
    let declared = text
        .lines()
        .zip(text.lines().skip(1))
        .any(|(before, line)| line.trim() == format!("pub mod {name};") && !before.contains("doc(hidden)"));
    declared && is_public(if all.contains_key(inside.as_str()) { &inside } else { parent }, all)
}

/// The public names of a crate, each with the path of its file.
fn public_names(files: &[File]) -> Vec<(&str, &str)> {
    let all: BTreeMap<&str, &str> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let exports = files.iter().flat_map(|file| file.text.split("pub use ").skip(1));
    let exported: BTreeSet<&str> =
        exports.flat_map(|rest| words_of(rest.split(';').next().unwrap_or_default())).collect();
    // The type of a static, such as a codec, needs no example: only its traits have functions.
    let lines = files.iter().flat_map(|file| file.text.lines());
    let statics: BTreeSet<&str> =
        lines.filter_map(|line| words_of(line.strip_prefix("pub static ")?.split_once(": ")?.1).next()).collect();
    let mut types = BTreeSet::new();
    let mut names = Vec::new();
    for file in files {
        let public = is_public(&file.path, &all);
        let mut hidden = false;
        for line in file.text.lines() {
            if let Some((kind, name)) = declared(line)
                && !hidden
                && !statics.contains(name)
                && (public || exported.contains(name))
            {
                names.push((file.path.as_str(), name));
                if kind != "fn" {
                    types.insert(name);
                }
            }
            hidden = line.contains("#[doc(hidden)]") || (hidden && line.starts_with("#["));
        }
    }
    for file in files {
        // A private type may have the name of a public one of another file.
        let private: BTreeSet<&str> = file.text.lines().filter_map(declared_private).collect();
        let (mut of_public, mut hidden) = (false, false);
        for line in file.text.lines() {
            if line.starts_with("impl") {
                let name = implemented(line);
                of_public = types.contains(name) && !private.contains(name);
            }
            if let Some(("fn", name)) = line.strip_prefix("    ").and_then(declared)
                && of_public
                && !hidden
            {
                names.push((file.path.as_str(), name));
            }
            hidden = line.contains("#[doc(hidden)]");
        }
    }
    names
}

/// The kind and the name of the public item that a line without indentation declares.
fn declared(line: &str) -> Option<(&str, &str)> {
    let mut words =
        words_of(line.strip_prefix("pub ")?).skip_while(|word| matches!(*word, "const" | "unsafe" | "async"));
    let kind = words.next().filter(|kind| matches!(*kind, "fn" | "struct" | "enum" | "trait" | "union"))?;
    Some((kind, words.next()?))
}

/// The name of the type that a line without indentation declares for its crate or module alone.
fn declared_private(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line,
    };
    let (kind, rest) = line.split_once(' ')?;
    matches!(kind, "struct" | "enum" | "union").then(|| words_of(rest).next())?
}

/// The type of an inherent `impl`: `Loan` for `impl<'a> Loan<'a> {`. Empty for an `impl` of a
/// trait.
fn implemented(line: &str) -> &str {
    let mut depth = 0;
    let plain = |c: &char| {
        depth += i32::from(*c == '<');
        let outside = depth == 0;
        depth -= i32::from(*c == '>');
        outside
    };
    let outside: String = line.trim_start_matches("impl").chars().filter(plain).collect();
    let name = outside.split_whitespace().next().unwrap_or_default().to_owned();
    if outside.contains(" for ") { "" } else { line.find(&name).map_or("", |at| &line[at..at + name.len()]) }
}

#[test]
fn every_public_name_is_in_an_example() {
    let mut missing = Vec::new();
    let mut needed = BTreeSet::new();
    for krate in CRATES {
        let files = files(krate);
        let (names, shown) = (public_names(&files), shown(&files));
        assert!(names.len() > 30, "{krate}: only {} public names found", names.len());
        for (path, name) in names.into_iter().filter(|(_, name)| !shown.contains(name)) {
            match INSIDE.iter().find(|start| *krate == "polywire-core" && path.starts_with(**start)) {
                Some(start) => _ = needed.insert(*start),
                None => missing.push(format!("{krate}/src/{path}.rs: no example names {name}")),
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let unneeded: Vec<_> = INSIDE.iter().filter(|start| !needed.contains(**start)).collect();
    assert!(unneeded.is_empty(), "an example names every public name of {unneeded:?}: remove them from the list");
}

#[test]
fn the_rule_finds_what_is_missing() {
    let text = "//! ```\n//! shown();\n//! ```\n//! ```text\n//! told\n//! ```\npub mod open;\nmod shut;\npub use shut::{Given, Static};\n";
    let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
    let shut = "pub struct Given {}\npub struct Kept {}\npub struct Static;\npub static STATIC: Static = Static;\nimpl Given {\n    pub fn told(&self) {}\n}\n#[doc(hidden)]\npub fn open() {}\n";
    let files = [file("lib", text), file("open", "pub fn shown() {}\npub(crate) fn inner() {}\n"), file("shut", shut)];
    assert_eq!(public_names(&files), [("open", "shown"), ("shut", "Given"), ("shut", "told")]);
    assert_eq!(shown(&files), BTreeSet::from(["shown"]));
    assert_eq!(implemented("impl<'a, T: Into<U>> Loan<'a, T> {"), "Loan");
    assert_eq!(implemented("impl<T> Clone for Loan<T> {"), "");
}
