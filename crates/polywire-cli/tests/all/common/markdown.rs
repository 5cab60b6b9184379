//! Reads the examples in Markdown files, and compares output with patterns.

/// A fenced block: its line number, the words after the fence, and its text.
pub struct Fenced {
    pub line: usize,
    pub info: String,
    pub text: String,
}

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

fn line_fits(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once("[..]") else { return pattern == text };
    let Some(rest) = text.strip_prefix(before) else { return false };
    rest.char_indices().map(|(i, _)| i).chain([rest.len()]).any(|i| line_fits(after, &rest[i..]))
}
