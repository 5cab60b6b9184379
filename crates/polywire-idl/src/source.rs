//! Source files: how they are loaded, and how a byte offset becomes a location for a diagnostic.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;

use crate::diag::Location;

/// The language of a file.
///
/// ```
/// use polywire_idl::Dialect;
/// assert_eq!(Dialect::of("switch.pdl"), Dialect::Pdl);
/// assert_eq!(Dialect::of("market.idl"), Dialect::Idl);
/// assert_eq!(Dialect::of("geometry_msgs/msg/Point.msg"), Dialect::Ros);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OMG IDL 4.2.
    Idl,
    /// The OASIS probe definition language.
    Pdl,
    /// The message, service and action definitions of ROS 2.
    Ros,
}

impl Dialect {
    /// The language by the ending of a file's name: PDL for `.pdl`, ROS 2 for `.msg`, `.srv` and
    /// `.action`, IDL for all others.
    pub fn of(path: &str) -> Dialect {
        match extension(path).as_str() {
            "pdl" => Dialect::Pdl,
            "msg" | "srv" | "action" => Dialect::Ros,
            _ => Dialect::Idl,
        }
    }
}

/// The ending of a file name, in lower case.
fn extension(path: &str) -> String {
    Path::new(path).extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// Loads source files, for example from the disk, from a table in a test, or in a browser.
///
/// A loader gets paths with `/` as separator and without `.` or inner `..`. The compiler makes them
/// from the path of the first file, the include directories and the text after `#include`.
///
/// ```
/// use polywire_idl::{Compiler, Disk, Loader};
///
/// /// Files of the disk, with a copyright notice of ours.
/// struct Ours;
/// impl Loader for Ours {
///     fn load(&self, path: &str, most: usize) -> std::io::Result<Option<Vec<u8>>> {
///         match path {
///             "ours.idl" => Ok(Some(b"// (c) us\nstruct A { long a; };".to_vec())),
///             path => Disk.load(path, most),
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
    /// The bytes of the file at `path`, or `None` if there is no such file. The compiler refuses a
    /// file of more than `most` bytes, so a loader may stop reading after `most + 1` bytes.
    fn load(&self, path: &str, most: usize) -> io::Result<Option<Vec<u8>>>;
}

/// The file system. Only regular files are read: devices and pipes may have no end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Loader for Disk {
    fn load(&self, path: &str, most: usize) -> io::Result<Option<Vec<u8>>> {
        // The type is checked before the file is opened, because opening a pipe waits for its other
        // end.
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Err(io::Error::other("it is not a regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }
}

/// Files in memory, by path.
impl Loader for BTreeMap<String, String> {
    fn load(&self, path: &str, _: usize) -> io::Result<Option<Vec<u8>>> {
        Ok(self.get(path).map(|text| text.clone().into_bytes()))
    }
}

impl<F: Fn(&str) -> io::Result<Option<Vec<u8>>>> Loader for F {
    fn load(&self, path: &str, _: usize) -> io::Result<Option<Vec<u8>>> {
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
    /// The span from the start of `self` to the end of `last`, if both are in one file.
    pub fn to(self, last: Span) -> Span {
        match self.file == last.file && last.end >= self.start {
            true => Span { end: last.end, ..self },
            false => self,
        }
    }

    /// The empty span directly after this one.
    pub fn after(self) -> Span {
        Span { start: self.end, ..self }
    }
}

/// A file that was read.
pub(crate) struct Source {
    pub name: String,
    pub text: std::rc::Rc<str>,
    pub dialect: Dialect,
    /// Whether diagnostics may show its text.
    pub quoted: bool,
    line_starts: Vec<u32>,
}

/// The endings of the included files that diagnostics may quote.
const SOURCE_ENDINGS: [&str; 10] = ["idl", "idli", "pdl", "msg", "srv", "action", "h", "hh", "hpp", "inc"];

/// All files of a compilation, in the order in which they were first needed.
#[derive(Default)]
pub(crate) struct Sources {
    files: Vec<Source>,
}

impl Sources {
    /// Adds the file that the user named.
    pub fn add(&mut self, name: String, text: &str, dialect: Dialect) -> u32 {
        self.push(name, text, dialect, true)
    }

    /// Adds a file that another one includes. The text of an untrusted file may choose the name, so
    /// only files that look like sources are quoted.
    pub fn add_included(&mut self, name: String, text: &str, dialect: Dialect) -> u32 {
        let quoted = SOURCE_ENDINGS.contains(&extension(&name).as_str());
        self.push(name, text, dialect, quoted)
    }

    fn push(&mut self, name: String, text: &str, dialect: Dialect, quoted: bool) -> u32 {
        let starts = text.bytes().zip(1..).filter(|(byte, _)| *byte == b'\n').map(|(_, next)| next);
        let line_starts = std::iter::once(0).chain(starts).collect();
        self.files.push(Source { name, text: text.into(), dialect, quoted, line_starts });
        self.files.len() as u32 - 1
    }

    pub fn get(&self, file: u32) -> &Source {
        &self.files[file as usize]
    }

    pub fn dialect(&self, span: Span) -> Dialect {
        self.get(span.file).dialect
    }

    /// The location of a span for diagnostics. A span over several lines is cut at the end of the
    /// first.
    pub fn locate(&self, span: Span) -> Location {
        let source = self.get(span.file);
        let line = source.line_starts.partition_point(|start| *start <= span.start) - 1;
        let start = source.line_starts[line] as usize;
        let text = source.text[start..].lines().next().unwrap_or("");
        if !source.quoted {
            return Location::new(&source.name, line + 1, 1, 1, "");
        }
        let at = (span.start as usize - start).min(text.len());
        let end = (span.end as usize - start).clamp(at, text.len());
        let before = text.get(..at).unwrap_or(text);
        let length = text.get(at..end).map_or(1, |marked| marked.chars().count()).max(1);
        Location::new(&source.name, line + 1, before.chars().count() + 1, length, text)
    }
}

/// The path without `.` and, where possible, without `..`.
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

/// The path of `name` relative to the folder of `from`.
pub(crate) fn beside(from: &str, name: &str) -> String {
    match from.rsplit_once('/') {
        Some((folder, _)) => within(folder, name),
        None => normalise(name),
    }
}

/// The path of `name` in `folder`, or `name` itself if it is absolute.
pub(crate) fn within(folder: &str, name: &str) -> String {
    match is_absolute(name) || folder.is_empty() {
        true => normalise(name),
        false => normalise(&format!("{folder}/{name}")),
    }
}

/// Whether a path is absolute: `/a`, or `C:/a` as on Windows.
fn is_absolute(path: &str) -> bool {
    path.starts_with(['/', '\\']) || path.as_bytes().get(1) == Some(&b':')
}

/// Whether `path` lies in `folder` or below it. Both must have passed [`normalise`].
pub(crate) fn is_below(folder: &str, path: &str) -> bool {
    let rest = match folder {
        "" => (!is_absolute(path)).then_some(path),
        "/" => path.strip_prefix('/'),
        folder => path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')),
    };
    rest.is_some_and(|rest| rest.split('/').next() != Some(".."))
}

/// The folder of a file.
pub(crate) fn folder_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => "",
    }
}

/// The text of a file. If it is not UTF-8 it is read as Latin-1, like many old files, and the
/// offset of the first byte that is not UTF-8 is returned.
pub(crate) fn text_of(bytes: Vec<u8>) -> (String, Option<usize>) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            (error.as_bytes().iter().copied().map(char::from).collect(), Some(at))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_hold_what_is_below_them() {
        for (folder, path) in [("", "a.idl"), ("a", "a/b/c.idl"), ("..", "../x.idl"), ("/", "/x"), ("/a", "/a/b")] {
            assert!(is_below(folder, path), "{folder} {path}");
        }
        for (folder, path) in
            [("", "../a.idl"), ("", "/a"), ("a", "ab/c"), ("..", "../../x"), ("", "C:/a"), ("/a", "/ab"), ("a", "b/a")]
        {
            assert!(!is_below(folder, path), "{folder} {path}");
        }
        assert_eq!((folder_of("a/b.idl"), folder_of("b.idl"), folder_of("/b")), ("a", "", "/"));
    }

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
