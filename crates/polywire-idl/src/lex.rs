//! The lexer: it turns the text of one file into tokens. The preprocessor calls it.

use std::rc::Rc;

use crate::diag::Reporter;
use crate::source::Span;

/// The kind and value of a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tok {
    /// An identifier or keyword.
    Ident(Rc<str>),
    /// `_name`: an identifier that is never a keyword. The text is without the underscore.
    Escaped(Rc<str>),
    Int(i128),
    Float(f64),
    /// `1.5d`
    Fixed,
    Char(u32),
    WChar(u32),
    Str(Rc<str>),
    WStr(Rc<str>),
    /// The text between the parentheses of PDL's `uuid` and `version`.
    Raw(Rc<str>),
    /// `::`
    Path,
    Sym(char),
    /// The end of the line of a directive.
    Eol,
    Eof,
}

/// A token and its location.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub tok: Tok,
    pub span: Span,
    /// The comment directly before it.
    pub doc: Option<Rc<str>>,
    /// Whether it is the first on its line.
    pub first: bool,
}

impl Token {
    pub fn ident(&self) -> Option<&Rc<str>> {
        match &self.tok {
            Tok::Ident(name) => Some(name),
            _ => None,
        }
    }
}

/// The lexer of one file.
pub(crate) struct Lexer {
    text: Rc<str>,
    pos: usize,
    file: u32,
    /// Inside a directive, where a line feed is a token.
    pub in_directive: bool,
    /// Inside a part that a condition excludes, where errors are not reported.
    pub muted: bool,
    doc: String,
}

impl Lexer {
    pub fn new(file: u32, reporter: &Reporter) -> Lexer {
        let text = reporter.sources.get(file).text.clone();
        Lexer { text, pos: 0, file, in_directive: false, muted: false, doc: String::new() }
    }

    pub fn next(&mut self, reporter: &mut Reporter) -> Token {
        loop {
            let first = self.skip_blanks(reporter);
            let start = self.pos;
            let doc = (!self.doc.is_empty()).then(|| Rc::from(self.doc.trim_end()));
            let Some(tok) = self.token(reporter) else { continue };
            self.doc.clear();
            return Token { tok, span: self.span(start), doc, first };
        }
    }

    /// The rest of the line as plain text, including comments.
    pub fn rest_of_line(&mut self) -> (String, Span) {
        let start = self.pos;
        let rest = &self.text[start..];
        let line = rest.find('\n').map_or(rest, |end| &rest[..end]);
        let line = line.strip_suffix('\r').unwrap_or(line);
        self.pos += line.len();
        (line.to_string(), self.span(start))
    }

    /// The text before `end` on this line. `end` is consumed, too.
    pub fn until(&mut self, end: char) -> Option<String> {
        let rest = &self.text[self.pos..];
        let line = rest.find('\n').map_or(rest, |at| &rest[..at]);
        let found = line.find(end)?;
        let inside = line[..found].to_string();
        self.pos += found + end.len_utf8();
        Some(inside)
    }

    /// Whether `c` is the next character that is not blank.
    pub fn follows(&self, c: char) -> bool {
        self.text[self.pos..].trim_start().starts_with(c)
    }

    /// Whether `span` directly follows a word, without a blank.
    pub fn touches_word(&self, span: Span) -> bool {
        let before = self.text[..span.start as usize].chars().next_back();
        span.file == self.file && before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    fn span(&self, start: usize) -> Span {
        Span { file: self.file, start: start as u32, end: self.pos as u32 }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.pos..].chars().next()
    }

    fn bytes(&self) -> &[u8] {
        &self.text.as_bytes()[self.pos..]
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &str {
        let start = self.pos;
        let rest = &self.text[start..];
        self.pos += rest.find(|c| !accept(c)).unwrap_or(rest.len());
        &self.text[start..self.pos]
    }

    /// Skips blanks and comments, and keeps the comment directly before the next token. Returns
    /// whether that token is the first of its line.
    fn skip_blanks(&mut self, reporter: &mut Reporter) -> bool {
        let mut first = self.pos == 0;
        let mut line_feeds = 0;
        loop {
            match self.bytes() {
                [b'\n', ..] if self.in_directive => return first,
                [b'\n', ..] => {
                    first = true;
                    line_feeds += 1;
                    if line_feeds > 1 {
                        self.doc.clear();
                    }
                    self.pos += 1;
                }
                [b'\\', b'\n', ..] => self.pos += 2,
                [b'\\', b'\r', b'\n', ..] => self.pos += 3,
                [b' ' | b'\t' | b'\r' | 0x0B | 0x0C, ..] => self.pos += 1,
                [0xEF, 0xBB, 0xBF, ..] if self.pos == 0 => self.pos += 3,
                [b'/', b'/', ..] => {
                    let (line, _) = self.rest_of_line();
                    line_feeds = 0;
                    self.comment(first, line.trim_start_matches('/'));
                }
                [b'/', b'*', ..] => {
                    let text = self.block_comment(reporter);
                    line_feeds = 0;
                    text.lines().for_each(|line| self.comment(first, line.trim_start().trim_start_matches('*')));
                }
                _ => return first,
            }
        }
    }

    fn block_comment(&mut self, reporter: &mut Reporter) -> String {
        let start = self.pos;
        let body = &self.text[start + 2..];
        match body.find("*/") {
            Some(end) => {
                self.pos += end + 4;
                self.text[start + 2..self.pos - 2].to_string()
            }
            None => {
                self.pos = self.text.len();
                self.complain(reporter, Span { end: start as u32 + 2, ..self.span(start) }, "unterminated comment", "");
                String::new()
            }
        }
    }

    /// Keeps a comment line. A comment after code on the same line does not document what follows,
    /// and a ruler documents nothing.
    fn comment(&mut self, own_line: bool, line: &str) {
        let line = line.strip_prefix(' ').unwrap_or(line).trim_end();
        let ruler = line.len() > 2 && line.chars().all(|c| matches!(c, '-' | '=' | '*' | '/' | '#' | '+' | '~'));
        let leading = line.is_empty() && self.doc.is_empty();
        if !own_line || ruler || leading || self.in_directive {
            return;
        }
        self.doc.push_str(line);
        self.doc.push('\n');
    }

    /// Reads one token. `None` if it is malformed; then it is reported and skipped.
    fn token(&mut self, reporter: &mut Reporter) -> Option<Tok> {
        let Some(c) = self.peek() else { return Some(Tok::Eof) };
        match c {
            // The line feed is not consumed, so that the next token outside the directive is the
            // first of its line.
            '\n' => Some(Tok::Eol),
            'L' if matches!(self.bytes().get(1), Some(b'"' | b'\'')) => {
                self.pos += 1;
                let quote = self.peek()?;
                self.quoted(quote, true, reporter)
            }
            'A'..='Z' | 'a'..='z' | '_' => Some(self.word()),
            '0'..='9' => self.number(reporter),
            '.' if self.bytes().get(1).is_some_and(u8::is_ascii_digit) => self.number(reporter),
            '"' | '\'' => self.quoted(c, false, reporter),
            ':' if self.bytes().get(1) == Some(&b':') => {
                self.pos += 2;
                Some(Tok::Path)
            }
            '!'..='~' => {
                self.pos += 1;
                Some(Tok::Sym(c))
            }
            _ => {
                self.stray(c, reporter);
                None
            }
        }
    }

    fn word(&mut self) -> Tok {
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        match word.strip_prefix('_') {
            Some(name) if !name.is_empty() => Tok::Escaped(name.into()),
            _ => Tok::Ident(word.into()),
        }
    }

    fn number(&mut self, reporter: &mut Reporter) -> Option<Tok> {
        let start = self.pos;
        if matches!(self.bytes(), [b'0', b'x' | b'X', ..]) {
            self.pos += 2;
            let digits = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_').to_string();
            return self.integer(start, &digits, 16, reporter);
        }
        self.take_while(|c| c.is_ascii_digit());
        let mut float = false;
        if self.bytes().first() == Some(&b'.') {
            float = true;
            self.pos += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        if let [b'e' | b'E', b'0'..=b'9', ..] | [b'e' | b'E', b'+' | b'-', b'0'..=b'9', ..] = self.bytes() {
            float = true;
            self.pos += 2;
            self.take_while(|c| c.is_ascii_digit());
        }
        let digits = self.text[start..self.pos].to_string();
        let suffix_at = self.pos;
        let suffix = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_').to_string();
        match suffix.as_str() {
            "" if float => self.float(start, &digits, reporter),
            "" => {
                let radix = if digits.len() > 1 && digits.starts_with('0') { 8 } else { 10 };
                self.integer(start, &digits, radix, reporter)
            }
            "d" | "D" => Some(Tok::Fixed),
            _ => {
                let help = "numbers in IDL have no suffix; remove it";
                self.complain(reporter, self.span(suffix_at), &format!("invalid suffix '{suffix}' of a number"), help);
                Some(if float { Tok::Float(0.0) } else { Tok::Int(0) })
            }
        }
    }

    fn integer(&mut self, start: usize, digits: &str, radix: u32, reporter: &mut Reporter) -> Option<Tok> {
        if let Some(wrong) = digits.chars().find(|c| !c.is_digit(radix)) {
            let kind = if radix == 16 { "a hexadecimal" } else { "an octal" };
            self.complain(reporter, self.span(start), &format!("invalid digit '{wrong}' in {kind} number"), "");
            return Some(Tok::Int(0));
        }
        // `from_str_radix` accepts a sign, but there is none here.
        let value = u64::from_str_radix(digits, radix).ok();
        if value.is_none() {
            let message =
                if digits.is_empty() { "a number without digits" } else { "the number does not fit into 64 bits" };
            self.complain(reporter, self.span(start), message, "");
        }
        Some(Tok::Int(i128::from(value.unwrap_or(0))))
    }

    fn float(&mut self, start: usize, digits: &str, reporter: &mut Reporter) -> Option<Tok> {
        let value: f64 = digits.parse().unwrap_or(f64::INFINITY);
        if value.is_infinite() {
            self.complain(reporter, self.span(start), "the number is too large for a double", "");
            return Some(Tok::Float(0.0));
        }
        Some(Tok::Float(value))
    }

    /// Reads a string or character. It returns a token even if the literal is malformed.
    fn quoted(&mut self, quote: char, wide: bool, reporter: &mut Reporter) -> Option<Tok> {
        let start = self.pos;
        self.pos += 1;
        let mut bytes = Vec::new();
        let mut units = Vec::new();
        loop {
            match self.peek() {
                None | Some('\n') => {
                    let what = if quote == '"' { "string" } else { "character" };
                    self.complain(
                        reporter,
                        self.span(start),
                        &format!("unterminated {what}: the closing {quote} is missing"),
                        "",
                    );
                    break;
                }
                Some(c) if c == quote => {
                    self.pos += 1;
                    break;
                }
                Some('\\') => match self.escape(reporter) {
                    Escape::Byte(byte) if !wide => {
                        bytes.push(byte);
                        units.push(u32::from(byte));
                    }
                    Escape::Byte(code) => push(&mut bytes, &mut units, char::from(code)),
                    Escape::Char(c) => push(&mut bytes, &mut units, c),
                    // An unpaired surrogate is a valid wchar, but a string cannot contain one.
                    Escape::Unit(unit) if wide && quote == '\'' => units.push(unit),
                    Escape::Unit(_) => {
                        self.wrong_escape(start, reporter);
                    }
                    Escape::Nothing => {}
                },
                Some(c) => {
                    self.pos += c.len_utf8();
                    push(&mut bytes, &mut units, c);
                }
            }
        }
        if quote == '\'' {
            self.character(start, &units, wide, reporter)
        } else {
            self.string(start, bytes, &units, wide, reporter)
        }
    }

    fn character(&mut self, start: usize, units: &[u32], wide: bool, reporter: &mut Reporter) -> Option<Tok> {
        let (largest, kind) = if wide { (0xFFFF, "wchar") } else { (0xFF, "char") };
        match units {
            [code] if *code <= largest => return Some(if wide { Tok::WChar(*code) } else { Tok::Char(*code) }),
            [_] => self.complain(reporter, self.span(start), &format!("the character does not fit into a {kind}"), ""),
            _ => {
                let help = if units.len() > 1 { "write strings in double quotes" } else { "" };
                self.complain(
                    reporter,
                    self.span(start),
                    "a character literal must contain exactly one character",
                    help,
                );
            }
        }
        Some(if wide { Tok::WChar(0) } else { Tok::Char(0) })
    }

    fn string(
        &mut self,
        start: usize,
        bytes: Vec<u8>,
        units: &[u32],
        wide: bool,
        reporter: &mut Reporter,
    ) -> Option<Tok> {
        if bytes.contains(&0) {
            self.wonder(reporter, start, "a string cannot contain a NUL character");
        }
        let text: Rc<str> = match String::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => {
                self.wonder(reporter, start, "the string is not UTF-8; it is read as Latin-1");
                units.iter().filter_map(|unit| char::from_u32(*unit)).collect::<String>().into()
            }
        };
        Some(if wide { Tok::WStr(text) } else { Tok::Str(text) })
    }

    fn escape(&mut self, reporter: &mut Reporter) -> Escape {
        let start = self.pos;
        self.pos += 1;
        let Some(c) = self.peek() else { return Escape::Nothing };
        if c == '\n' {
            self.pos += 1;
            return Escape::Nothing;
        }
        if let '0'..='7' = c {
            let code = self.digits(8, 3);
            return self.byte_escape(start, code, reporter);
        }
        self.pos += c.len_utf8();
        let simple = match c {
            'n' => b'\n',
            't' => b'\t',
            'v' => 0x0B,
            'b' => 0x08,
            'r' => b'\r',
            'f' => 0x0C,
            'a' => 0x07,
            '\\' | '?' | '\'' | '"' => c as u8,
            'x' => {
                let code = self.digits(16, 2);
                return self.byte_escape(start, code, reporter);
            }
            'u' => {
                return match self.digits(16, 4) {
                    Some(code) => char::from_u32(code).map_or(Escape::Unit(code), Escape::Char),
                    None => self.wrong_escape(start, reporter),
                };
            }
            _ => return self.wrong_escape(start, reporter),
        };
        Escape::Byte(simple)
    }

    fn digits(&mut self, radix: u32, most: usize) -> Option<u32> {
        let digits: String = self.text[self.pos..].chars().take(most).take_while(|c| c.is_digit(radix)).collect();
        self.pos += digits.len();
        u32::from_str_radix(&digits, radix).ok()
    }

    fn byte_escape(&mut self, start: usize, code: Option<u32>, reporter: &mut Reporter) -> Escape {
        match code.and_then(|code| u8::try_from(code).ok()) {
            Some(code) => Escape::Byte(code),
            None => self.wrong_escape(start, reporter),
        }
    }

    fn wrong_escape(&mut self, start: usize, reporter: &mut Reporter) -> Escape {
        let help = r#"valid escape sequences are \n \t \v \b \r \f \a \\ \? \' \" \ooo \xhh \uhhhh"#;
        self.complain(reporter, self.span(start), "unknown escape sequence", help);
        Escape::Nothing
    }

    fn stray(&mut self, c: char, reporter: &mut Reporter) {
        let start = self.pos;
        self.pos += c.len_utf8();
        let help = if c.is_alphanumeric() { "identifiers consist of ASCII letters, digits and '_'" } else { "" };
        self.complain(reporter, self.span(start), &format!("unexpected character '{c}'"), help);
    }

    fn wonder(&self, reporter: &mut Reporter, start: usize, message: &str) {
        if !self.muted {
            reporter.warning(self.span(start), message);
        }
    }

    fn complain(&self, reporter: &mut Reporter, span: Span, message: &str, help: &str) {
        if self.muted {
            return;
        }
        let diagnostic = reporter.error(span, message);
        if !help.is_empty() {
            diagnostic.help(help);
        }
    }
}

enum Escape {
    Byte(u8),
    Char(char),
    Unit(u32),
    Nothing,
}

fn push(bytes: &mut Vec<u8>, units: &mut Vec<u32>, c: char) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    units.push(u32::from(c));
}
