//! Diagnostics: errors and warnings with their locations, and how they are printed.

use std::fmt::{self, Write as _};

use crate::source::{Sources, Span};

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The compilation fails.
    Error,
    /// The file is accepted, though it may not mean what its author intended.
    Warning,
}

/// A location in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// The path by which the loader found the file.
    pub file: String,
    /// The line number, from 1. 0 stands for the whole file.
    pub line: usize,
    /// The column in characters, from 1. 0 stands for the whole file.
    pub column: usize,
    /// The number of characters to underline, at least 1.
    pub length: usize,
    /// The text of the line, or the part around the column if the line is very long. Control
    /// characters are replaced.
    pub text: String,
    /// The column of the first character of `text`.
    pub text_column: usize,
}

impl Location {
    /// The location of a whole file, without a line: the file could not be read.
    fn is_file(&self) -> bool {
        self.line == 0
    }
}

/// The most characters of a source line that are shown.
const SHOWN_CHARS: usize = 160;

impl Location {
    pub(crate) fn new(file: &str, line: usize, column: usize, length: usize, text: &str) -> Location {
        let skip =
            if column > SHOWN_CHARS / 2 && text.chars().count() > SHOWN_CHARS { column - SHOWN_CHARS / 2 } else { 0 };
        let shown = text.chars().skip(skip).take(SHOWN_CHARS).map(|c| if c == '\t' { ' ' } else { printable(c) });
        let length = length.min(SHOWN_CHARS);
        Location { file: file.into(), line, column, length, text: shown.collect(), text_column: skip + 1 }
    }
}

fn printable(c: char) -> char {
    if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }
}

/// A note that explains a diagnostic. It may have its own location.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// The text of the note.
    pub message: String,
    /// The location that the note refers to.
    pub location: Option<Location>,
}

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Whether it is an error or a warning.
    pub severity: Severity,
    /// What is wrong, as one sentence.
    pub message: String,
    /// Where it is.
    pub location: Location,
    /// What to write instead: what was expected, or which name was probably meant. It is printed
    /// after the caret.
    pub help: Option<String>,
    /// Notes, in the order in which they are printed.
    pub notes: Vec<Note>,
}

impl Diagnostic {
    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(clean(help.into()));
        self
    }

    /// The help "did you mean ..?", if a candidate is close to `name`.
    pub(crate) fn suggest(&mut self, name: Option<impl fmt::Display>) -> &mut Self {
        match name {
            Some(name) => self.help(format!("did you mean '{name}'?")),
            None => self,
        }
    }

    pub(crate) fn note(&mut self, message: impl Into<String>) -> &mut Self {
        self.notes.push(Note { message: clean(message.into()), location: None });
        self
    }

    fn note_at(&mut self, message: impl Into<String>, location: Location) -> &mut Self {
        self.notes.push(Note { message: clean(message.into()), location: Some(location) });
        self
    }

    /// The diagnostic as text for people, ending in a line feed. `colour` adds ANSI escape
    /// sequences.
    pub fn render(&self, colour: bool) -> String {
        let mut out = String::new();
        let paint = Paint { colour };
        let (word, tint) = match self.severity {
            Severity::Error => ("error", RED),
            Severity::Warning => ("warning", YELLOW),
        };
        let head = paint.of(BOLD, &place(&self.location));
        let message = paint.of(BOLD, &self.message);
        // Writing into a string cannot fail.
        let _ = writeln!(out, "{head} {} {message}", paint.of(tint, &format!("{word}:")));
        snippet(&mut out, &paint, tint, &self.location, self.help.as_deref().unwrap_or(""));
        for note in &self.notes {
            let lead = paint.of(CYAN, "note:");
            match &note.location {
                Some(location) => {
                    let _ = writeln!(out, "{} {lead} {}", place(location), note.message);
                    snippet(&mut out, &paint, CYAN, location, "");
                }
                None => {
                    let _ = writeln!(out, "  = {lead} {}", note.message);
                }
            }
        }
        out
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

const BOLD: &str = "1";
const RED: &str = "1;31";
const YELLOW: &str = "1;33";
const CYAN: &str = "1;36";

struct Paint {
    colour: bool,
}

impl Paint {
    fn of(&self, code: &str, text: &str) -> String {
        match self.colour && !text.is_empty() {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.into(),
        }
    }
}

fn place(location: &Location) -> String {
    if location.is_file() {
        return format!("{}:", clean(location.file.clone()));
    }
    format!("{}:{}:{}:", clean(location.file.clone()), location.line, location.column)
}

fn snippet(out: &mut String, paint: &Paint, tint: &str, location: &Location, label: &str) {
    if location.is_file() {
        if !label.is_empty() {
            let _ = writeln!(out, "  = {}", paint.of(tint, label));
        }
        return;
    }
    let number = location.line.to_string();
    let margin = " ".repeat(number.len());
    let indent = " ".repeat(location.column.saturating_sub(location.text_column));
    let marks = paint.of(tint, format!("{} {label}", "^".repeat(location.length)).trim_end());
    let _ = writeln!(out, " {margin} |");
    let _ = writeln!(out, " {number} | {}", location.text.trim_end());
    let _ = writeln!(out, " {margin} | {indent}{marks}");
}

/// The most characters of a message.
const MESSAGE_CHARS: usize = 400;

/// Replaces control characters and shortens the text. A message may quote the source, which may
/// hold escape sequences of terminals or very long names.
fn clean(text: String) -> String {
    if text.len() <= MESSAGE_CHARS && !text.chars().any(char::is_control) {
        return text;
    }
    let mut cut: String = text.chars().take(MESSAGE_CHARS).map(printable).collect();
    if text.chars().nth(MESSAGE_CHARS).is_some() {
        cut.push_str("..");
    }
    cut
}

/// The diagnostics of one compilation: errors sorted by location, then warnings sorted by location.
///
/// ```
/// use polywire_idl::{Compiler, Diagnostic, Diagnostics, Location, Note, Severity};
/// let errors: Diagnostics = Compiler::new().parse_str("a.idl", "struct A { long a;\n doubel a; };").unwrap_err();
/// assert_eq!((errors.len(), errors.errors(), errors.omitted(), errors.is_empty()), (1, 1, 0, false));
/// let error: &Diagnostic = errors.iter().next().unwrap();
/// let Location { file, line, column, .. } = &error.location;
/// assert_eq!((error.severity, file.as_str(), *line, *column), (Severity::Error, "a.idl", 2, 2));
/// assert_eq!(error.help.as_deref(), Some("did you mean 'double'?"));
/// assert!(error.notes.iter().all(|note: &Note| note.location.is_none()));
/// // Without colours as `Display` prints it, with them for terminals.
/// assert_eq!(errors.render(false), errors.to_string());
/// assert!(error.render(true).contains("\x1b["));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

impl Diagnostics {
    /// The diagnostics that were kept: errors first, each kind sorted by location.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// The number of diagnostics that were kept.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether no diagnostic was kept.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The number of errors found, including those that were not kept.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// The number of warnings found, including those that were not kept.
    pub fn warnings(&self) -> usize {
        self.warnings
    }

    /// The number of errors and warnings that exceeded the limits and were not kept.
    pub fn omitted(&self) -> usize {
        self.errors + self.warnings - self.list.len()
    }

    /// The diagnostics as text for people: all errors, and the first ten warnings, or three if
    /// there are errors. `colour` adds ANSI escape sequences.
    pub fn render(&self, colour: bool) -> String {
        let (errors, warnings): (Vec<_>, Vec<_>) = self.list.iter().partition(|d| d.severity == Severity::Error);
        let shown =
            &warnings[..warnings.len().min(if errors.is_empty() { SHOWN_WARNINGS } else { SHOWN_BEHIND_ERRORS })];
        let mut out: String = errors.iter().map(|d| d.render(colour)).collect();
        more(&mut out, self.errors - errors.len(), "error");
        out.extend(shown.iter().map(|d| d.render(colour)));
        more(&mut out, self.warnings - shown.len(), "warning");
        out
    }
}

/// How many warnings are printed if there is no error, and if there is one.
const SHOWN_WARNINGS: usize = 10;
const SHOWN_BEHIND_ERRORS: usize = 3;

fn more(out: &mut String, number: usize, noun: &str) {
    let plural = if number == 1 { "" } else { "s" };
    if number > 0 {
        let _ = writeln!(out, "and {number} more {noun}{plural}");
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

/// The only message about a file that is not IDL: such a file is never quoted.
const UNQUOTED: &str =
    "this is not IDL; the file is not quoted, because its name does not end like that of a source file";

/// Collects diagnostics during a compilation, and turns spans into locations.
pub(crate) struct Reporter {
    pub sources: Sources,
    found: Vec<(Span, Diagnostic)>,
    /// Receives diagnostics that exceed the limit or repeat an earlier one.
    spare: Diagnostic,
    /// The most errors that are kept, and the most warnings.
    limit: usize,
    kept: [usize; 2],
    counted: [usize; 2],
}

impl Reporter {
    pub fn new(limit: usize) -> Reporter {
        let nowhere = Location::new("", 0, 0, 0, "");
        let spare = Diagnostic {
            severity: Severity::Error,
            message: String::new(),
            location: nowhere,
            help: None,
            notes: Vec::new(),
        };
        Reporter { sources: Sources::default(), found: Vec::new(), spare, limit, kept: [0; 2], counted: [0; 2] }
    }

    pub fn error(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Error, span, message.into())
    }

    pub fn warning(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Warning, span, message.into())
    }

    /// Reports an error with a note about `other`.
    pub fn error_beside(&mut self, span: Span, message: impl Into<String>, note: &str, other: Span) -> &mut Diagnostic {
        self.add_beside(Severity::Error, span, message.into(), note, other)
    }

    /// Reports a warning with a note about `other`.
    pub fn warning_beside(
        &mut self,
        span: Span,
        message: impl Into<String>,
        note: &str,
        other: Span,
    ) -> &mut Diagnostic {
        self.add_beside(Severity::Warning, span, message.into(), note, other)
    }

    /// Locates `other` only if the diagnostic is kept. A line may be as long as the file, and there
    /// may be as many diagnostics as names.
    fn add_beside(
        &mut self,
        severity: Severity,
        span: Span,
        message: String,
        note: &str,
        other: Span,
    ) -> &mut Diagnostic {
        let kept = self.keep(severity, span, message);
        let location = kept.then(|| self.sources.locate(other));
        let diagnostic = self.kept_or_spare(kept);
        match location {
            Some(location) => diagnostic.note_at(note, location),
            None => diagnostic,
        }
    }

    fn add(&mut self, severity: Severity, span: Span, message: String) -> &mut Diagnostic {
        let kept = self.keep(severity, span, message);
        self.kept_or_spare(kept)
    }

    /// Counts a diagnostic and keeps it, unless it exceeds the limit or repeats an earlier one.
    /// Returns whether it was kept and may be extended.
    fn keep(&mut self, severity: Severity, span: Span, message: String) -> bool {
        let kind = severity as usize;
        let quoted = self.sources.get(span.file).quoted;
        let message = if quoted { clean(message) } else { UNQUOTED.into() };
        let repeated = self.found.iter().any(|(at, d)| *at == span && d.message == message);
        let full = self.kept[kind] >= self.limit;
        self.counted[kind] += usize::from(!repeated);
        if !repeated && !full {
            self.kept[kind] += 1;
            let location = self.sources.locate(span);
            self.found.push((span, Diagnostic { severity, message, location, help: None, notes: Vec::new() }));
        }
        quoted && !repeated && !full
    }

    /// The diagnostic that was kept last, or a spare one.
    fn kept_or_spare(&mut self, kept: bool) -> &mut Diagnostic {
        match self.found.last_mut() {
            Some((_, last)) if kept => last,
            _ => {
                (self.spare.notes, self.spare.help) = (Vec::new(), None);
                &mut self.spare
            }
        }
    }

    pub fn failed(&self) -> bool {
        self.counted[Severity::Error as usize] > 0
    }

    /// Whether the limit on errors is reached, so that further errors would not be shown.
    pub fn is_full(&self) -> bool {
        self.counted[Severity::Error as usize] > self.limit
    }

    pub fn finish(mut self) -> (Diagnostics, bool) {
        let failed = self.failed();
        self.found.sort_by_key(|(span, diagnostic)| (diagnostic.severity, *span));
        let list = self.found.into_iter().map(|(_, diagnostic)| diagnostic).collect();
        let [errors, warnings] = self.counted;
        (Diagnostics { list, errors, warnings }, failed)
    }
}

/// The candidate that is closest to a misspelt `name`, if any is close enough.
pub(crate) fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (name.chars().count() / 3).max(1);
    let distances = candidates.into_iter().filter_map(|c| Some((distance(name, c, allowed)?, c)));
    distances.min_by_key(|(d, candidate)| (*d, *candidate)).map(|(_, candidate)| candidate)
}

/// The number of insertions, deletions, replacements and swaps of neighbours between two names,
/// ignoring case. `None` if it exceeds `allowed`.
fn distance(a: &str, b: &str, allowed: usize) -> Option<usize> {
    // Long names get no suggestion, so that a hostile file cannot make this slow.
    let lower = |s: &str| s.chars().take(65).map(|c| c.to_ascii_lowercase()).collect::<Vec<char>>();
    let (a, b) = (lower(a), lower(b));
    if a.len() > 64 || b.len() > 64 || a.len().abs_diff(b.len()) > allowed {
        return None;
    }
    let mut older = vec![0; b.len() + 1];
    let mut old: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = old[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(old[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(older[j - 2] + 1);
            }
        }
        (older, old) = (old, row);
    }
    Some(old[b.len()]).filter(|d| *d <= allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Dialect;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let names = ["Position", "Waypoint", "double"];
        assert_eq!(closest("Positon", names), Some("Position"));
        assert_eq!(closest("dobule", names), Some("double"));
        assert_eq!(closest("waypoint", names), Some("Waypoint"));
        assert_eq!(closest("Velocity", names), None);
    }

    #[test]
    fn a_hostile_line_cannot_reach_the_terminal_or_fill_it() {
        let mut reporter = Reporter::new(10);
        let text = format!("{}\u{1b}[2J{}", "x".repeat(500), "y".repeat(500));
        let file = reporter.sources.add("a.idl".into(), &text, Dialect::Idl);
        reporter.error(Span { file, start: 500, end: 504 }, "stray \u{1b}");
        let (found, failed) = reporter.finish();
        let shown = found.render(false);
        assert!(failed && !shown.contains('\u{1b}'));
        assert!(shown.len() < 600, "{shown}");
        assert!(shown.starts_with("a.idl:1:501: error: stray \u{fffd}\n"), "{shown}");
    }

    #[test]
    fn the_number_of_messages_is_limited() {
        let mut reporter = Reporter::new(2);
        let file = reporter.sources.add("a.idl".into(), "abcdef", Dialect::Idl);
        for start in (0..6).rev() {
            reporter.error(Span { file, start, end: start + 1 }, "no");
        }
        let (found, _) = reporter.finish();
        assert_eq!((found.len(), found.errors(), found.omitted()), (2, 6, 4));
        assert!(found.iter().is_sorted_by_key(|d| d.location.column));
        assert!(found.render(true).contains("\u{1b}[1;31merror:"));
    }

    #[test]
    fn warnings_do_not_hide_an_error() {
        let mut reporter = Reporter::new(20);
        let file = reporter.sources.add("a.idl".into(), &"x\n".repeat(100), Dialect::Idl);
        let at = |line: u32| Span { file, start: 2 * line, end: 2 * line + 1 };
        for line in 0..99 {
            reporter.warning(at(line), "perhaps");
        }
        reporter.error(at(99), "no");
        assert!(reporter.failed() && !reporter.is_full());
        let (found, _) = reporter.finish();
        assert_eq!((found.errors(), found.warnings(), found.len(), found.omitted()), (1, 99, 21, 79));
        let shown = found.render(false);
        assert!(shown.starts_with("a.idl:100:1: error: no\n"), "{shown}");
        assert_eq!(shown.matches("warning: perhaps").count(), 3, "{shown}");
        assert!(shown.ends_with("and 96 more warnings\n"), "{shown}");
    }
}
