//! Reads the examples in Markdown files, and compares output and sources with them.

use std::{fs, path::Path};

/// A fenced block.
pub struct Fenced {
    /// The number of its first line.
    pub line: usize,
    /// The words after the fence.
    pub info: String,
    /// What is between the fences.
    pub text: String,
}

/// A file of the project, by its path from the root.
pub fn page(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The fenced blocks of a page. Panics if one is not closed.
pub fn blocks(markdown: &str) -> Vec<Fenced> {
    let (mut blocks, mut open): (Vec<Fenced>, Option<Fenced>) = (Vec::new(), None);
    for (number, line) in (1..).zip(markdown.lines()) {
        open = match (line.strip_prefix("```"), open) {
            (Some(info), None) => Some(Fenced { line: number, info: info.into(), text: String::new() }),
            (Some(_), Some(block)) => {
                blocks.push(block);
                None
            }
            (None, Some(block)) => Some(Fenced { text: block.text + line + "\n", ..block }),
            (None, None) => None,
        };
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// True if the lines match the pattern, in which `[..]` stands for any text and a line `...` for
/// any number of lines.
pub fn fits(pattern: &[&str], lines: &[&str]) -> bool {
    match (pattern.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((&"...", rest)), _) => {
            fits(rest, lines) || lines.split_first().is_some_and(|(_, less)| fits(pattern, less))
        }
        (Some((expected, patterns)), Some((line, lines))) => line_fits(expected, line) && fits(patterns, lines),
        _ => false,
    }
}

/// Panics unless the source has the words of the example, in the same order. Visibility and line
/// breaks may differ.
pub fn assert_shown(example: &str, source: &str) {
    let mut ours = words(source);
    for word in words(example) {
        assert!(ours.any(|own| own == word), "'{word}' is not here, or not in this place");
    }
}

/// Words of Rust.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let tokens = text.split(|c: char| c.is_whitespace() || ",;{}".contains(c)).filter(|word| !word.is_empty());
    tokens.filter(|word| *word != "pub")
}

fn line_fits(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once("[..]") else { return pattern == text };
    let Some(rest) = text.strip_prefix(before) else { return false };
    rest.char_indices().map(|(i, _)| i).chain([rest.len()]).any(|i| line_fits(after, &rest[i..]))
}
