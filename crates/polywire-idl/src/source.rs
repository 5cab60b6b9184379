//! Source files: where their text comes from, and what a byte of it is called in a message.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::diag::Location;

/// Which of the two languages a file is written in.
///
/// ```
/// use polywire_idl::Dialect;
/// assert_eq!(Dialect::of("switch.pdl"), Dialect::Pdl);
/// assert_eq!(Dialect::of("market.idl"), Dialect::Idl);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OMG IDL 4.2.
    Idl,
    /// The OASIS probe definition language.
    Pdl,
}

impl Dialect {
    /// PDL for names that end in `.pdl`, IDL for all others.
    pub fn of(path: &str) -> Dialect {
        match Path::new(path).extension() {
            Some(extension) if extension.eq_ignore_ascii_case("pdl") => Dialect::Pdl,
            _ => Dialect::Idl,
        }
    }
}

/// Where files come from: the disk, a test's table, a browser.
///
/// A loader gets paths with `/` between their parts and without `.` or inner `..`, as made from the first file's path, the
/// include directories and the text after `#include`.
///
/// ```
/// use polywire_idl::{Compiler, Disk, Loader};
///
/// /// Files of the disk, with a copyright notice of ours.
/// struct Ours;
/// impl Loader for Ours {
///     fn load(&self, path: &str) -> std::io::Result<Option<Vec<u8>>> {
///         match path {
///             "ours.idl" => Ok(Some(b"// (c) us\nstruct A { long a; };".to_vec())),
///             path => Disk.load(path),
///         }
///     }
/// }
///
/// let compiler = Compiler::new().loader(Ours);
/// assert!(compiler.parse_file("ours.idl").is_ok());
/// let errors = compiler.parse_file("nowhere.idl").unwrap_err();
/// assert!(errors.to_string().contains("there is no such file"));
/// ```
pub trait Loader {
    /// The bytes of the file at `path`, or none where there is no such file.
    fn load(&self, path: &str) -> io::Result<Option<Vec<u8>>>;
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Loader for Disk {
    fn load(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Files in memory, by path.
impl Loader for BTreeMap<String, String> {
    fn load(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.get(path).map(|text| text.clone().into_bytes()))
    }
}

impl<F: Fn(&str) -> io::Result<Option<Vec<u8>>>> Loader for F {
    fn load(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        self(path)
    }
}

/// Bytes `start..end` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Span {
    pub file: u32,
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// From the start of `self` to the end of `last`, if both are of one file.
    pub fn to(self, last: Span) -> Span {
        match self.file == last.file && last.end >= self.start {
            true => Span { end: last.end, ..self },
            false => self,
        }
    }

    /// The place right behind.
    pub fn after(self) -> Span {
        Span { start: self.end, ..self }
    }
}

/// One file as read.
pub(crate) struct Source {
    pub name: String,
    pub text: std::rc::Rc<str>,
    pub dialect: Dialect,
    line_starts: Vec<u32>,
}

/// All files of a run, in the order in which they were first needed.
#[derive(Default)]
pub(crate) struct Sources {
    files: Vec<Source>,
}

impl Sources {
    pub fn add(&mut self, name: String, text: &str, dialect: Dialect) -> u32 {
        let starts = text.bytes().zip(1..).filter(|(byte, _)| *byte == b'\n').map(|(_, next)| next);
        let line_starts = std::iter::once(0).chain(starts).collect();
        self.files.push(Source { name, text: text.into(), dialect, line_starts });
        self.files.len() as u32 - 1
    }

    pub fn get(&self, file: u32) -> &Source {
        &self.files[file as usize]
    }

    pub fn dialect(&self, span: Span) -> Dialect {
        self.get(span.file).dialect
    }

    /// What a person calls the place; a span over several lines is cut at the end of its first.
    pub fn locate(&self, span: Span) -> Location {
        let source = self.get(span.file);
        let line = source.line_starts.partition_point(|start| *start <= span.start) - 1;
        let start = source.line_starts[line] as usize;
        let text = source.text[start..].lines().next().unwrap_or("");
        let at = (span.start as usize - start).min(text.len());
        let end = (span.end as usize - start).clamp(at, text.len());
        let before = text.get(..at).unwrap_or(text);
        let length = text.get(at..end).map_or(1, |marked| marked.chars().count()).max(1);
        Location::new(&source.name, line + 1, before.chars().count() + 1, length, text)
    }
}

/// `path` without `.` and, where possible, without `..`.
pub(crate) fn normalise(path: &str) -> String {
    let path = path.replace('\\', "/");
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            "" if !parts.is_empty() => {}
            ".." if parts.last().is_some_and(|last| !matches!(*last, ".." | "")) => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// `name` as seen from the folder of `from`.
pub(crate) fn beside(from: &str, name: &str) -> String {
    match from.rsplit_once('/') {
        Some((folder, _)) => within(folder, name),
        None => normalise(name),
    }
}

/// `name` inside `folder`, unless it is absolute.
pub(crate) fn within(folder: &str, name: &str) -> String {
    match name.starts_with('/') || folder.is_empty() {
        true => normalise(name),
        false => normalise(&format!("{folder}/{name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_plain() {
        assert_eq!(normalise("a/./b/../c.idl"), "a/c.idl");
        assert_eq!(normalise("/x//y.idl"), "/x/y.idl");
        assert_eq!(normalise("../../x.idl"), "../../x.idl");
        assert_eq!(beside("dir/sub/a.idl", "../b.idl"), "dir/b.idl");
        assert_eq!(beside("a.idl", "b.idl"), "b.idl");
        assert_eq!(within("inc", "/abs.idl"), "/abs.idl");
    }

    #[test]
    fn a_place_has_a_line_and_a_column() {
        let mut sources = Sources::default();
        let file = sources.add("x.idl".into(), "ab\ncd\u{e9}f\r\n", Dialect::Idl);
        let place = sources.locate(Span { file, start: 7, end: 8 });
        assert_eq!((place.line, place.column, place.length), (2, 4, 1));
        assert_eq!(place.text, "cd\u{e9}f");
        let end = sources.locate(Span { file, start: 10, end: 10 });
        assert_eq!((end.line, end.column), (3, 1));
    }
}
