//! The preprocessor: includes, conditions, object-like macros and `#pragma keylist`, which is what
//! IDL files use in practice.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::Limits;
use crate::diag::{Diagnostic, Reporter, closest};
use crate::lex::{Lexer, Tok, Token};
use crate::source::{Dialect, Loader, Span, beside, folder_of, is_below, normalise, text_of, within};

mod condition;

/// The tokens of a file and of all files that it includes.
#[derive(Default)]
pub(crate) struct Tokens {
    /// Ends with [`Tok::Eof`].
    pub list: Vec<Token>,
    /// Each with the index of the token that follows it.
    pub keylists: Vec<(usize, Keylist)>,
}

/// `#pragma keylist Type field ...`
pub(crate) struct Keylist {
    pub span: Span,
    pub type_name: String,
    pub fields: Vec<String>,
}

enum Macro {
    Object(Rc<[Token]>),
    /// A macro with parameters. It is reported as unsupported where it is used, not where a header
    /// defines it.
    Function,
}

/// An `#if` without its `#endif` so far.
struct Condition {
    span: Span,
    /// Whether the current branch is read.
    active: bool,
    /// Whether a branch has been read already, or none may be read.
    done: bool,
    has_else: bool,
}

pub(crate) struct Preprocessor<'a> {
    reporter: &'a mut Reporter,
    loader: &'a dyn Loader,
    include_dirs: &'a [String],
    limits: &'a Limits,
    macros: HashMap<Rc<str>, Macro>,
    read: HashSet<String>,
    /// The folders that included files must lie in: that of the first file, and the include
    /// directories.
    roots: Vec<String>,
    out: Tokens,
    conditions: Vec<Condition>,
    /// The number of open conditions that belong to including files.
    base: usize,
    include_depth: usize,
    includes: usize,
    source_bytes: usize,
    braces: usize,
    expansions: usize,
    /// The number of tokens that macros became in conditions.
    condition_tokens: usize,
    stopped: bool,
}

impl<'a> Preprocessor<'a> {
    pub fn new(
        reporter: &'a mut Reporter,
        loader: &'a dyn Loader,
        include_dirs: &'a [String],
        limits: &'a Limits,
    ) -> Self {
        Preprocessor {
            reporter,
            loader,
            include_dirs,
            limits,
            macros: HashMap::new(),
            read: HashSet::new(),
            roots: include_dirs.iter().map(|dir| normalise(dir)).collect(),
            out: Tokens::default(),
            conditions: Vec::new(),
            base: 0,
            include_depth: 0,
            includes: 0,
            source_bytes: 0,
            braces: 0,
            expansions: 0,
            condition_tokens: 0,
            stopped: false,
        }
    }

    /// Defines a macro, like a `#define` before the file.
    pub fn define(&mut self, name: &str, value: &str) {
        let file = self.reporter.sources.add(format!("<definition of {name}>"), value, Dialect::Idl);
        let mut lexer = Lexer::new(file, self.reporter);
        let mut body = Vec::new();
        loop {
            let token = lexer.next(self.reporter);
            if token.tok == Tok::Eof || body.len() >= self.limits.tokens {
                break;
            }
            body.push(token);
        }
        self.macros.insert(name.into(), Macro::Object(body.into()));
    }

    /// Preprocesses the first file.
    pub fn run(mut self, name: &str, text: &str, dialect: Dialect) -> Tokens {
        let name = normalise(name);
        self.read.insert(name.clone());
        self.roots.push(folder_of(&name).into());
        let shown = if text.len() > self.limits.source_bytes { "" } else { text };
        let file = self.reporter.sources.add(name, shown, dialect);
        if self.has_room(file, text.len()) {
            self.file(file);
            let end = self.reporter.sources.get(file).text.len() as u32;
            let span = Span { file, start: end, end };
            self.out.list.push(Token { tok: Tok::Eof, span, doc: None, first: true });
        }
        self.out
    }

    /// Counts the bytes of a file.
    fn has_room(&mut self, file: u32, bytes: usize) -> bool {
        self.source_bytes = self.source_bytes.saturating_add(bytes);
        let fits = self.source_bytes <= self.limits.source_bytes;
        if !fits {
            let message = format!("the files together are larger than the limit of {} bytes", self.limits.source_bytes);
            self.reporter.error(Span { file, start: 0, end: 0 }, message);
            self.stopped = true;
        }
        fits
    }

    fn file(&mut self, file: u32) {
        let mut lexer = Lexer::new(file, self.reporter);
        let pdl = self.reporter.sources.get(file).dialect == Dialect::Pdl;
        let outer = self.conditions.len();
        let outer_base = std::mem::replace(&mut self.base, outer);
        while !self.stopped {
            lexer.muted = !self.active();
            let token = lexer.next(self.reporter);
            match &token.tok {
                Tok::Eof => break,
                Tok::Sym('#') if token.first => self.directive(&mut lexer, token.span),
                _ if !self.active() => {}
                Tok::Ident(name) if pdl && &**name == "import" => self.import(&mut lexer, token),
                Tok::Sym('(') if pdl && self.opens_raw_text() => self.raw_text(&mut lexer, token),
                Tok::Ident(name) => match self.macros.get(name) {
                    Some(Macro::Object(_)) => self.expand(&name.clone(), &token, &mut Vec::new()),
                    Some(Macro::Function) if lexer.follows('(') => {
                        self.skip_call(&name.clone(), token.span, &mut lexer)
                    }
                    _ => self.push(token),
                },
                _ => self.push(token),
            }
        }
        for open in self.conditions.drain(outer..).collect::<Vec<_>>() {
            self.reporter.error(open.span, "unterminated condition: the #endif is missing");
        }
        self.base = outer_base;
    }

    fn active(&self) -> bool {
        self.conditions.last().is_none_or(|c| c.active)
    }

    fn push(&mut self, token: Token) {
        match token.tok {
            Tok::Sym('{') => self.braces += 1,
            Tok::Sym('}') => self.braces = self.braces.saturating_sub(1),
            _ => {}
        }
        if self.out.list.len() >= self.limits.tokens {
            self.stop(token.span, format!("more than the limit of {} tokens", self.limits.tokens));
        } else {
            self.out.list.push(token);
        }
    }

    fn stop(&mut self, span: Span, message: String) {
        if !std::mem::replace(&mut self.stopped, true) {
            self.reporter.error(span, message);
        }
    }

    // Macros.

    fn expand(&mut self, name: &Rc<str>, used: &Token, open: &mut Vec<Rc<str>>) {
        self.expansions += 1;
        if self.expansions > self.limits.macro_expansions || open.len() > self.limits.nesting {
            self.stop(used.span, "the expansion of macros exceeds the limit".into());
            return;
        }
        let Some(Macro::Object(body)) = self.macros.get(name) else { return };
        open.push(name.clone());
        for part in body.clone().iter() {
            if self.stopped {
                break;
            }
            match part.ident() {
                Some(inner) if matches!(self.macros.get(inner), Some(Macro::Object(_))) && !open.contains(inner) => {
                    self.expand(&inner.clone(), used, open);
                }
                _ => self.push(Token { tok: part.tok.clone(), ..used.clone() }),
            }
        }
        open.pop();
    }

    fn skip_call(&mut self, name: &str, span: Span, lexer: &mut Lexer) {
        let message = format!("'{name}' is a macro with parameters, which is not supported");
        self.reporter.error(span, message).help("replace it by its expansion");
        // A number takes its place, so that the parser reports no further errors around it.
        self.push(Token { tok: Tok::Int(0), span, doc: None, first: false });
        let mut depth = 0usize;
        loop {
            match lexer.next(self.reporter).tok {
                Tok::Sym('(') => depth += 1,
                Tok::Sym(')') => depth -= 1,
                Tok::Eof => return,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    // PDL.

    /// Whether the parenthesis follows `[uuid` or `; version`: the text inside it does not consist
    /// of tokens.
    fn opens_raw_text(&self) -> bool {
        let [.., before, word] = self.out.list.as_slice() else { return false };
        matches!(before.tok, Tok::Sym('[' | ';' | ','))
            && word.ident().is_some_and(|word| matches!(&**word, "uuid" | "version"))
    }

    fn raw_text(&mut self, lexer: &mut Lexer, open: Token) {
        let (doc, first) = (None, false);
        let span = open.span.after();
        self.push(open);
        match lexer.until(')') {
            Some(text) => {
                let span = Span { end: span.start + text.len() as u32, ..span };
                let text = text.trim().trim_matches('"').trim();
                self.push(Token { tok: Tok::Raw(text.into()), span, doc: doc.clone(), first });
                let span = Span { end: span.end + 1, ..span.after() };
                self.push(Token { tok: Tok::Sym(')'), span, doc, first });
            }
            None => {
                self.reporter.error(span, "expected ')' on the same line");
            }
        }
    }

    fn import(&mut self, lexer: &mut Lexer, word: Token) {
        let name = lexer.next(self.reporter);
        let Tok::Str(path) = &name.tok else {
            self.reporter.error(name.span, "expected the name of a file in double quotes after 'import'");
            return;
        };
        let end = lexer.next(self.reporter);
        if end.tok != Tok::Sym(';') {
            self.reporter.error(name.span.after(), "expected ';' after the imported file");
        }
        self.include(path, true, word.span.to(name.span));
    }

    // Directives.

    fn directive(&mut self, lexer: &mut Lexer, hash: Span) {
        lexer.in_directive = true;
        let word = lexer.next(self.reporter);
        match &word.tok {
            Tok::Ident(name) => self.named_directive(&name.clone(), hash.to(word.span), lexer),
            // A single `#`, or `# 1 "file"`, which another preprocessor has written.
            Tok::Eol | Tok::Eof | Tok::Int(_) => {}
            _ if !self.active() => {}
            _ => {
                self.reporter.error(word.span, "expected a directive after '#'");
            }
        }
        self.end_line(lexer);
    }

    /// Skips the rest of the line.
    fn end_line(&mut self, lexer: &mut Lexer) {
        lexer.muted = true;
        while !matches!(lexer.next(self.reporter).tok, Tok::Eol | Tok::Eof) {}
        lexer.in_directive = false;
        lexer.muted = false;
    }

    fn named_directive(&mut self, name: &str, span: Span, lexer: &mut Lexer) {
        match name {
            "if" | "ifdef" | "ifndef" => return self.open_condition(name, span, lexer),
            "elif" | "else" | "endif" => return self.next_condition(name, span, lexer),
            _ if !self.active() => return,
            _ => {}
        }
        match name {
            "include" => self.include_directive(span, lexer),
            "define" => self.define_directive(lexer),
            "undef" => {
                if let Some(name) = self.macro_name(lexer) {
                    self.macros.remove(&name);
                }
            }
            "pragma" => self.pragma(span, lexer),
            "error" => {
                let (text, at) = lexer.rest_of_line();
                self.reporter.error(span.to(at), format!("#error{}", text.trim_end()));
            }
            "warning" => {
                let (text, at) = lexer.rest_of_line();
                self.reporter.warning(span.to(at), format!("#warning{}", text.trim_end()));
            }
            "line" | "ident" => {}
            _ => self.unknown_directive(name, span),
        }
    }

    fn unknown_directive(&mut self, name: &str, span: Span) {
        let known = ["include", "define", "undef", "pragma", "if", "ifdef", "ifndef", "elif", "else", "endif", "error"];
        let meant = closest(name, known).map(|meant| format!("#{meant}"));
        self.reporter.error(span, format!("there is no directive '#{name}'")).suggest(meant);
    }

    fn macro_name(&mut self, lexer: &mut Lexer) -> Option<Rc<str>> {
        let token = lexer.next(self.reporter);
        if let Some(name) = token.ident() {
            return Some(name.clone());
        }
        // The name of a macro is not an IDL identifier, so a leading underscore belongs to it.
        if let Tok::Escaped(name) = &token.tok {
            return Some(format!("_{name}").into());
        }
        self.reporter.error(token.span, "expected the name of a macro");
        None
    }

    fn define_directive(&mut self, lexer: &mut Lexer) {
        let Some(name) = self.macro_name(lexer) else { return };
        let mut body: Vec<Token> = Vec::new();
        loop {
            let token = lexer.next(self.reporter);
            if matches!(token.tok, Tok::Eol | Tok::Eof) {
                break;
            }
            body.push(token);
        }
        // A parenthesis starts parameters only if it directly follows the name.
        let touches = body.first().is_some_and(|t| t.tok == Tok::Sym('(') && lexer.touches_word(t.span));
        let value = if touches { Macro::Function } else { Macro::Object(body.into()) };
        self.macros.insert(name, value);
    }

    fn pragma(&mut self, span: Span, lexer: &mut Lexer) {
        let (text, at) = lexer.rest_of_line();
        let mut words = text.split("//").next().unwrap_or("").split_whitespace();
        // `#pragma once` has no effect: at the top level every file is read once.
        if words.next() != Some("keylist") {
            return;
        }
        match words.next() {
            Some(type_name) => {
                let fields = words.map(|w| w.trim_matches(',').to_string()).filter(|w| !w.is_empty()).collect();
                let keylist = Keylist { span: span.to(at), type_name: type_name.into(), fields };
                self.out.keylists.push((self.out.list.len(), keylist));
            }
            None => {
                self.reporter.error(span, "expected the name of a type after '#pragma keylist'");
            }
        }
    }

    // Includes.

    fn include_directive(&mut self, span: Span, lexer: &mut Lexer) {
        let token = lexer.next(self.reporter);
        let (name, quoted) = match &token.tok {
            Tok::Str(name) => (Some(name.to_string()), true),
            Tok::Sym('<') => (lexer.until('>'), false),
            Tok::Ident(name) => match self.macros.get(name) {
                Some(Macro::Object(body)) => (body.first().and_then(|t| string(&t.tok)), true),
                _ => (None, true),
            },
            _ => (None, true),
        };
        let Some(name) = name else {
            self.reporter.error(token.span, "expected \"file\" or <file> after '#include'");
            return;
        };
        self.include(&name, quoted, span.to(token.span));
    }

    fn include(&mut self, name: &str, quoted: bool, span: Span) {
        self.includes += 1;
        if self.include_depth >= self.limits.include_depth || self.includes > self.limits.includes {
            self.stop(span, format!("includes are nested deeper than the limit of {}", self.limits.include_depth));
            return;
        }
        let Some((path, text)) = self.find(name, quoted, span) else { return };
        // A file that is included at the top level is read once, so that it needs no include guard.
        // Inside braces it is read each time.
        let new = self.read.insert(path.clone());
        if !new && self.braces == 0 {
            return;
        }
        let dialect = Dialect::of(&path);
        if dialect == Dialect::Ros {
            let help = "convert it to IDL with 'polywire idl emit idl' and include the result";
            self.reporter.error(span, "a definition of ROS 2 cannot be included").help(help);
            return;
        }
        let (bytes, rest) = (text.len(), self.limits.source_bytes.saturating_sub(self.source_bytes));
        let file = self.reporter.sources.add_included(path, if bytes > rest { "" } else { &text }, dialect);
        if self.has_room(file, bytes) {
            self.include_depth += 1;
            self.file(file);
            self.include_depth -= 1;
        }
    }

    fn find(&mut self, name: &str, quoted: bool, span: Span) -> Option<(String, String)> {
        let own = beside(&self.reporter.sources.get(span.file).name, name);
        let (mut tried, mut outside) = (Vec::new(), false);
        let dirs = self.include_dirs.iter().map(|dir| within(dir, name));
        let mut candidates: Vec<String> = dirs.collect();
        candidates.insert(if quoted { 0 } else { candidates.len() }, own);
        let rest = self.limits.source_bytes.saturating_sub(self.source_bytes);
        for path in candidates {
            if !self.roots.iter().any(|root| is_below(root, &path)) {
                outside = true;
                continue;
            }
            match self.loader.load(&path, rest) {
                Ok(Some(bytes)) => return Some((path, self.text(bytes, span))),
                Ok(None) => tried.push(path),
                Err(error) => {
                    self.reporter.error(span, format!("cannot read '{path}': {error}"));
                    return None;
                }
            }
        }
        if outside && tried.is_empty() {
            let message = format!("'{name}' lies outside the folder of the first file and the folders given with -I");
            self.reporter.error(span, message).help("add the folder that contains it with -I");
            return None;
        }
        let diagnostic: &mut Diagnostic = self.reporter.error(span, format!("there is no file '{name}'"));
        diagnostic.note(format!("looked for {}", tried.join(", ")));
        if outside {
            diagnostic.note("files outside the folder of the first file and the folders given with -I are not read");
        }
        None
    }

    /// Old files have comments in Latin-1, so this is a warning and not an error.
    fn text(&mut self, bytes: Vec<u8>, span: Span) -> String {
        let (text, wrong) = text_of(bytes);
        if let Some(at) = wrong {
            self.reporter.warning(span, format!("the file is not UTF-8 at byte {at}; it is read as Latin-1"));
        }
        text
    }
}

fn string(tok: &Tok) -> Option<String> {
    match tok {
        Tok::Str(text) => Some(text.to_string()),
        _ => None,
    }
}
