//! Prints results, errors and the log: JSON for programs, colour only on terminals, errors on
//! standard error. Escapes control characters, so that text from peers and files cannot control the
//! terminal.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, IsTerminal, Write},
};

use parking_lot::Mutex;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde::Serialize;

/// Standard output and standard error of a command.
pub struct Terminal {
    /// Whether `--json` was given.
    pub json: bool,
    /// Whether standard error may have colour.
    pub colour: bool,
    /// Whether standard output is a terminal on which lines can be redrawn.
    pub live: bool,
}

impl Terminal {
    pub fn new(json: bool) -> Terminal {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Terminal { json, colour: wanted && io::stderr().is_terminal(), live: wanted && io::stdout().is_terminal() }
    }

    /// Prints a line on standard output.
    pub fn line(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", visible(text))?;
        out.flush()
    }

    /// Prints lines on standard output.
    pub fn text(&self, text: &str) -> io::Result<()> {
        self.plain(&visible(text))
    }

    /// Prints trusted text on standard output, without escaping.
    pub fn plain(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Removes the last `lines` lines from the screen.
    pub fn erase(&self, lines: usize) -> io::Result<()> {
        self.plain(&format!("\u{1b}[{lines}A\u{1b}[J"))
    }

    /// Prints a line of JSON on standard output.
    pub fn value(&self, value: &impl Serialize) -> anyhow::Result<()> {
        Ok(self.line(&serde_json::to_string(value)?)?)
    }

    /// Standard output for text that is written in pieces of whole characters. On a terminal,
    /// control characters are escaped.
    pub fn out(&self) -> Box<dyn Write> {
        match io::stdout().is_terminal() {
            true => Box::new(Visible(io::stdout())),
            false => Box::new(io::stdout()),
        }
    }

    /// Prints diagnostics on standard error. `render` renders them, with colour if its argument is
    /// true. If they quote control characters, these are escaped and there is no colour.
    pub fn diagnostics(&self, render: impl Fn(bool) -> String) {
        let plain = render(false);
        let text = match visible(&plain) {
            Cow::Borrowed(_) if self.colour => render(true),
            shown => shown.into_owned(),
        };
        let _ = write!(io::stderr(), "{text}");
    }

    pub fn error(&self, text: &str) {
        self.say("error", "1;31", text);
    }

    pub fn warning(&self, text: &str) {
        self.say("warning", "1;33", text);
    }

    pub fn note(&self, text: &str) {
        self.say("note", "1;36", text);
    }

    fn say(&self, word: &str, tint: &str, text: &str) {
        let text = message(text);
        // If standard error is closed, there is no other way to report it.
        let _ = match self.colour {
            true => writeln!(io::stderr(), "\u{1b}[{tint}m{word}:\u{1b}[0m {text}"),
            false => writeln!(io::stderr(), "{word}: {text}"),
        };
    }
}

/// The terminal's settings before [`take_screen`].
static TAKEN: Mutex<Option<Termios>> = Mutex::new(None);

/// Switches to the alternate screen, and makes the terminal deliver keys at once and without echo.
/// [`give_screen_back`] reverts this.
pub fn take_screen() -> io::Result<()> {
    let before = tcgetattr(io::stdin())?;
    let mut modes = before.clone();
    modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    *TAKEN.lock() = Some(before);
    tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
    // The alternate screen, without the cursor.
    write!(io::stdout(), "\u{1b}[?1049h\u{1b}[?25l")
}

/// Shows the shell's screen again. Has no effect if the alternate screen is not shown.
pub fn give_screen_back() {
    if let Some(before) = TAKEN.lock().take() {
        // If the terminal is gone, there is nothing to give back.
        let _ = write!(io::stdout(), "\u{1b}[?25h\u{1b}[?1049l").and_then(|()| io::stdout().flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// Escapes control characters in text that is written to `W`.
struct Visible<W>(W);

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(visible(&String::from_utf8_lossy(bytes)).as_bytes()).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Escapes characters that control the terminal or change the direction of text. They appear in the
/// form `\u001b`, which has the same meaning in JSON.
fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        // Writing into a string cannot fail.
        let _ = if steers(c) { write!(shown, "\\u{:04x}", u32::from(c)) } else { write!(shown, "{c}") };
    }
    Cow::Owned(shown)
}

fn steers(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n' && c != '\t')
}

/// Escapes a message, and indents all its lines but the first, so that text from a peer cannot look
/// like a message of this program.
fn message(text: &str) -> String {
    let mut lines = text.lines();
    let first = visible(lines.next().unwrap_or_default()).into_owned();
    lines.fold(first, |text, line| {
        let indent = if line.starts_with("  ") { "" } else { "  " };
        format!("{text}\n{indent}{}", visible(line))
    })
}

/// Columns side by side, each as wide as its widest cell.
pub fn columns(rows: &[Vec<String>]) -> String {
    // A line break inside a cell would look like another row.
    let one_line = |cell: &String| visible(cell).replace('\n', "\\u000a").replace('\t', "\\u0009");
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(one_line).collect()).collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Prints the library's log on standard error, at the level that this count of `--verbose` selects.
/// Without `--verbose`, prints only the warnings and errors of collectors and telemetry nodes,
/// because these long-running commands can report them in no other way.
pub fn log_from(verbose: u8) {
    let (logger, level): (&'static Logger, _) = match verbose {
        0 => (&Logger { is_verbose: false }, log::LevelFilter::Warn),
        1 => (&Logger { is_verbose: true }, log::LevelFilter::Info),
        _ => (&Logger { is_verbose: true }, log::LevelFilter::Debug),
    };
    if log::set_logger(logger).is_ok() {
        log::set_max_level(level);
    }
}

/// Returns whether the log includes events of the links.
pub fn is_verbose() -> bool {
    log::max_level() > log::LevelFilter::Warn
}

struct Logger {
    is_verbose: bool,
}

impl log::Log for Logger {
    /// Accepts Polywire's own records, and warnings of the libraries that transport messages.
    /// Records of other dependencies, such as the machine code compiler, are for their developers.
    /// Spans, whose target is exactly `polywire`, are for `--trace`.
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        let is_of = |crates: &[&str]| crates.iter().any(|name| metadata.target().starts_with(name));
        if !self.is_verbose {
            return metadata.level() <= log::Level::Warn && is_of(&["polywire_collector", "polywire_telemetry"]);
        }
        let is_own = metadata.target().strip_prefix("polywire").is_some_and(|rest| !rest.is_empty());
        is_own || (metadata.level() <= log::Level::Warn && is_of(&["cyclonedds", "zenoh"]))
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = message(&record.args().to_string());
        let level = record.level().as_str().to_lowercase();
        let _ = match record.level() {
            log::Level::Error if !self.is_verbose => writeln!(io::stderr(), "error: {text}"),
            log::Level::Warn if !self.is_verbose => writeln!(io::stderr(), "warning: {text}"),
            _ => writeln!(io::stderr(), "[{level}] {text}"),
        };
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_cannot_steer_the_terminal() {
        let hostile = "T\u{1b}]0;owned\u{7}\u{9b}2J\u{7f}\r\u{202e}x\u{2066}";
        assert_eq!(visible(hostile), r"T\u001b]0;owned\u0007\u009b2J\u007f\u000d\u202ex\u2066");
        let plain = "Größe\t\u{200f}\u{1f600}\n";
        assert!(matches!(visible(plain), Cow::Borrowed(text) if text == plain));
        // In JSON, the escaped text has the same meaning.
        let json = format!("\"{}\"", hostile.replace(['\u{1b}', '\u{7}', '\r'], ""));
        let read = |text: &str| serde_json::from_str::<String>(text).expect("JSON");
        assert_eq!(read(&visible(&json)), read(&json));
    }

    #[test]
    fn neither_can_what_is_written_piece_by_piece() {
        let mut out = Visible(Vec::new());
        out.write_all("{\"s\":\"\u{9b}2J\"}\n".as_bytes()).expect("written");
        assert_eq!(out.0, b"{\"s\":\"\\u009b2J\"}\n");
    }

    #[test]
    fn libraries_that_carry_messages_are_heard() {
        let hears = |is_verbose, target, level| {
            log::Log::enabled(&Logger { is_verbose }, &log::Metadata::builder().target(target).level(level).build())
        };
        let is_heard = |target, level| hears(true, target, level);
        for own in ["polywire::node", "polywire_core::session"] {
            assert!(is_heard(own, log::Level::Trace));
        }
        for library in ["cyclonedds", "zenoh::net::runtime", "zenoh_transport::unicast"] {
            assert!(is_heard(library, log::Level::Warn) && !is_heard(library, log::Level::Info));
        }
        assert!(!is_heard("polywire", log::Level::Error) && !is_heard("cranelift_codegen", log::Level::Error));
        let is_heard = |target, level| hears(false, target, level);
        assert!(is_heard("polywire_collector::alerts", log::Level::Warn) && !is_heard("zenoh", log::Level::Error));
        assert!(!is_heard("polywire_collector::alerts", log::Level::Info) && !is_heard("polywire", log::Level::Error));
    }

    #[test]
    fn what_others_wrote_cannot_look_like_a_line_of_ours() {
        assert_eq!(
            message("refused: no\nerror: all is lost\n  a.b: here"),
            "refused: no\n  error: all is lost\n  a.b: here"
        );
        let rows = [vec!["a\nb".to_owned(), "c".to_owned()], vec!["d".to_owned(), "e".to_owned()]];
        assert_eq!(columns(&rows), "a\\u000ab  c\nd         e\n");
    }
}
