//! The parser: it turns the tokens of the preprocessor into the items of `ast.rs`.
//!
//! A function that finds a syntax error reports it and returns `None`. The loops over items and
//! members then continue after the next `;` or before the next `}`.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::Limits;
use crate::ast::{Annotation, Item, ItemKind, Name, ScopedName};
use crate::diag::{Reporter, closest};
use crate::keywords;
use crate::lex::{Tok, Token};
use crate::pp::{Keylist, Tokens};
use crate::source::{Dialect, Span};

mod definitions;
mod expr;
mod pdl;
mod types;

/// The tokens that may follow the type of a member.
const MEMBER_NAME: &str = "the name of the member";

/// The most characters of an identifier.
pub(crate) const LONGEST_NAME: usize = 255;

/// Parses all tokens of a compilation.
pub(crate) fn parse(tokens: Tokens, reporter: &mut Reporter, limits: &Limits) -> Vec<Item> {
    if tokens.list.is_empty() {
        return Vec::new();
    }
    let mut parser =
        Parser { tokens: &tokens.list, pos: 0, depth: 0, limits, reporter, keylists: tokens.keylists.into() };
    let items = parser.items(Scope::Global);
    parser.keylists_are_used_up();
    items
}

struct Parser<'a> {
    tokens: &'a [Token],
    pos: usize,
    depth: usize,
    limits: &'a Limits,
    reporter: &'a mut Reporter,
    keylists: VecDeque<(usize, Keylist)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Scope {
    Global,
    Module,
}

impl Parser<'_> {
    fn items(&mut self, scope: Scope) -> Vec<Item> {
        let mut items = Vec::new();
        loop {
            while let Some((_, keylist)) = self.keylists.pop_front_if(|(at, _)| *at <= self.pos) {
                let (annotations, doc, span) = (Vec::new(), None, keylist.span);
                items.push(Item { annotations, doc, span, kind: ItemKind::Keylist(keylist) });
            }
            let start = self.pos;
            match &self.peek().tok {
                Tok::Eof => break,
                Tok::Sym('}') if scope == Scope::Module => break,
                Tok::Sym('}') => self.stray_brace(),
                // A superfluous `;` is common and harmless.
                Tok::Sym(';') => self.pos += 1,
                // It needs no definition to follow.
                Tok::Sym('@') if self.declares_annotation() => {
                    if self.annotation_declaration().is_none() {
                        self.recover();
                    }
                }
                _ => match self.item() {
                    Some(item) => items.push(item),
                    None => self.recover(),
                },
            }
            if self.reporter.is_full() {
                self.pos = self.tokens.len() - 1;
            } else if self.pos == start && !matches!(self.peek().tok, Tok::Sym('}') | Tok::Eof) {
                self.pos += 1;
            }
        }
        items
    }

    fn stray_brace(&mut self) {
        let span = self.next().span;
        self.reporter.error(span, "unmatched '}'");
        self.take(';');
    }

    /// A `#pragma keylist` inside the last definition is also applied.
    fn keylists_are_used_up(&mut self) {
        for (_, keylist) in std::mem::take(&mut self.keylists) {
            self.reporter.error(keylist.span, "'#pragma keylist' must follow the definition of its type");
        }
    }

    fn item(&mut self) -> Option<Item> {
        let doc = self.peek().doc.clone();
        let start = self.span();
        let mut annotations = self.annotations()?;
        if self.pdl() && self.at('[') {
            annotations.extend(self.pdl_attributes()?);
        }
        self.enter()?;
        let kind = self.item_kind();
        self.depth -= 1;
        Some(Item { annotations, doc, span: start.to(self.last_span()), kind: kind? })
    }

    fn item_kind(&mut self) -> Option<ItemKind> {
        let token = self.peek().clone();
        let Some(word) = token.ident().cloned() else {
            return self.expected(if self.pdl() { "a probe, struct or module" } else { "a definition" });
        };
        if self.pdl()
            && let Some(kind) = self.pdl_item(&word)
        {
            return kind;
        }
        match &*word {
            "module" => self.module(),
            "const" => self.constant(),
            "typedef" => self.typedef(),
            "struct" => self.structure(),
            "union" => self.union(),
            "enum" => self.enumeration(),
            "bitmask" => self.bitmask(),
            "bitset" => self.bitset(),
            "interface" | "valuetype" | "eventtype" | "exception" | "component" | "home" | "porttype" | "connector"
            | "native" | "typeid" | "typeprefix" | "import" | "abstract" | "local" | "custom" => self.unsupported(),
            _ => self.unknown_item(&word, token.span),
        }
    }

    fn unknown_item(&mut self, word: &str, span: Span) -> Option<ItemKind> {
        let idl = ["module", "const", "typedef", "struct", "union", "enum", "bitmask", "bitset"];
        let pdl = ["module", "probe", "abstract", "struct", "import", "const", "enum", "typedef"];
        let known: &[&str] = if self.pdl() { &pdl } else { &idl };
        let expected = known.join("', '");
        let meant = closest(word, known.iter().copied());
        let diagnostic = self.reporter.error(span, format!("expected a definition, found '{word}'"));
        diagnostic.suggest(meant);
        if meant.is_none() {
            diagnostic.help(format!("expected one of '{expected}'"));
        }
        if word == "probe" {
            diagnostic.help("define probes in a file with the extension .pdl");
        }
        None
    }

    fn module(&mut self) -> Option<ItemKind> {
        self.pos += 1;
        let name = self.declared_name("the name of the module")?;
        let open = self.expect('{')?;
        let items = self.items(Scope::Module);
        self.close(open, true)?;
        Some(ItemKind::Module { name, items })
    }

    /// Parses the `}` that matches `open`, and the `;` after it, which is optional after modules
    /// in PDL.
    fn close(&mut self, open: Span, module: bool) -> Option<()> {
        if !self.take('}') {
            let found = self.found();
            let span = self.span();
            self.reporter.error_beside(span, format!("expected '}}', found {found}"), "to close this", open);
            return None;
        }
        if self.take(';') || (module && self.pdl_at(self.last_span())) {
            return Some(());
        }
        self.expect_semicolon();
        Some(())
    }

    fn unsupported(&mut self) -> Option<ItemKind> {
        let start = self.span();
        let first = self.next();
        let mut word = first.ident().cloned()?;
        if matches!(&*word, "abstract" | "local" | "custom") {
            word = self.peek().ident().cloned().unwrap_or(word);
            self.pos += 1;
        }
        let what = keywords::OTHER_IDL.iter().find(|k| ***k == *word).copied().unwrap_or("this");
        let name = match &self.peek().tok {
            Tok::Ident(text) | Tok::Escaped(text) => Some(Name { text: text.clone(), span: self.span() }),
            _ => None,
        };
        let span = start.to(name.as_ref().map_or(self.last_span(), |n| n.span));
        let article = if what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        let message = format!("{article} {what} is not supported; it is skipped");
        self.reporter.warning(span, message).note("only the data types of IDL 4.2 are supported");
        self.skip_definition();
        Some(ItemKind::Unsupported { what, name })
    }

    /// Skips a definition, including its braces and the `;` at its end.
    fn skip_definition(&mut self) {
        let mut depth = 0usize;
        loop {
            match self.peek().tok {
                Tok::Eof => return,
                Tok::Sym('{') => depth += 1,
                Tok::Sym('}') if depth == 0 => return,
                Tok::Sym('}') => depth -= 1,
                Tok::Sym(';') if depth == 0 => {
                    self.pos += 1;
                    return;
                }
                _ => {}
            }
            self.pos += 1;
        }
    }

    // Annotations.

    fn annotations(&mut self) -> Option<Vec<Annotation>> {
        let mut list = Vec::new();
        while self.at('@') {
            if self.declares_annotation() {
                self.annotation_declaration()?;
                continue;
            }
            list.push(self.annotation()?);
        }
        Some(list)
    }

    fn declares_annotation(&self) -> bool {
        self.peek_at(1).ident().is_some_and(|w| &**w == "annotation")
    }

    fn annotation(&mut self) -> Option<Annotation> {
        let start = self.next().span;
        // The names of some annotations, such as `@default`, are keywords elsewhere.
        let name = match &self.peek().tok {
            Tok::Ident(_) | Tok::Escaped(_) | Tok::Path => self.annotation_name()?,
            _ => return self.expected("the name of an annotation"),
        };
        let mut annotation = Annotation { name: name.text(), span: start.to(name.span), args: Vec::new() };
        if self.take('(') {
            self.annotation_arguments(&mut annotation)?;
        }
        Some(annotation)
    }

    /// Parses a scoped name without blanks: in `@key ::A::B name` the type begins after the blank.
    fn annotation_name(&mut self) -> Option<ScopedName> {
        let start = self.pos;
        let name = self.scoped_name("the name of an annotation")?;
        let apart = |i: &usize| {
            let (before, here) = (&self.tokens[i - 1], &self.tokens[*i]);
            here.tok == Tok::Path && before.span.end != here.span.start
        };
        let Some(end) = (start + 1..self.pos).find(apart) else { return Some(name) };
        self.pos = end;
        let count = self.tokens[start..end].iter().filter(|t| t.tok != Tok::Path).count();
        let parts = name.parts[..count].to_vec();
        Some(ScopedName { span: self.tokens[start].span.to(self.last_span()), parts, ..name })
    }

    fn annotation_arguments(&mut self, annotation: &mut Annotation) -> Option<()> {
        while !self.at(')') {
            let named = self.peek_at(1).tok == Tok::Sym('=');
            let name = match (&self.peek().tok, named) {
                (Tok::Ident(text) | Tok::Escaped(text), true) => {
                    let name = Name { text: text.clone(), span: self.span() };
                    self.pos += 2;
                    Some(name)
                }
                _ => None,
            };
            let value = self.expression()?;
            annotation.args.push((name, value));
            if !self.take(',') {
                break;
            }
        }
        self.expect(')')?;
        annotation.span = annotation.span.to(self.last_span());
        Some(())
    }

    /// Skips `@annotation name { .. };`, which declares the arguments of an annotation. Arguments
    /// are not checked against it.
    fn annotation_declaration(&mut self) -> Option<()> {
        self.pos += 2;
        self.scoped_name("the name of the annotation")?;
        self.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.next().tok {
                Tok::Sym('{') => depth += 1,
                Tok::Sym('}') => depth -= 1,
                Tok::Eof => return self.expected("'}'"),
                _ => {}
            }
        }
        self.take(';');
        Some(())
    }

    // Names.

    fn scoped_name(&mut self, what: &str) -> Option<ScopedName> {
        let start = self.span();
        let absolute = self.peek().tok == Tok::Path;
        self.pos += usize::from(absolute);
        let mut parts = Vec::new();
        loop {
            match &self.peek().tok {
                Tok::Ident(text) | Tok::Escaped(text) => {
                    parts.push(Name { text: text.clone(), span: self.span() });
                    self.pos += 1;
                }
                _ => return self.expected(what),
            }
            if parts.len() > self.limits.nesting {
                return self.too_deep();
            }
            if self.peek().tok != Tok::Path {
                break;
            }
            self.pos += 1;
        }
        Some(ScopedName { absolute, parts, span: start.to(self.last_span()) })
    }

    /// Parses a name that is being declared.
    fn declared_name(&mut self, what: &str) -> Option<Name> {
        let token = self.peek().clone();
        self.check_length(&token)?;
        match &token.tok {
            Tok::Escaped(text) => {
                self.pos += 1;
                Some(Name { text: text.clone(), span: token.span })
            }
            Tok::Ident(text) if !text.starts_with('_') => {
                self.check_keyword(text, token.span, what)?;
                self.pos += 1;
                Some(Name { text: text.clone(), span: token.span })
            }
            _ => self.expected(what),
        }
    }

    /// The full name of a definition contains those of all its modules, so its length is limited as
    /// well.
    fn check_length(&mut self, token: &Token) -> Option<()> {
        let (Tok::Ident(text) | Tok::Escaped(text)) = &token.tok else { return Some(()) };
        if text.len() <= LONGEST_NAME {
            return Some(());
        }
        let message = format!("this name is longer than the limit of {LONGEST_NAME} characters");
        self.reporter.error(token.span, message);
        None
    }

    fn check_keyword(&mut self, text: &Rc<str>, span: Span, what: &str) -> Option<()> {
        if self.pdl_at(span) {
            if !keywords::PDL.contains(&&**text) {
                return Some(());
            }
            self.reporter.error(span, format!("expected {what}, found the keyword '{text}'"));
            return None;
        }
        match keywords::collision(text) {
            None => {}
            Some((keyword, false)) if keyword == &**text => {
                self.reporter
                    .warning(span, format!("'{text}' is a keyword of OMG IDL"))
                    .help(format!("for other compilers write '_{text}'"));
            }
            Some((_, false)) => {}
            Some((keyword, true)) if keyword != &**text => {
                let message = format!("'{text}' differs only in case from the keyword '{keyword}'");
                self.reporter.warning(span, message).help(format!("for other compilers write '_{text}'"));
            }
            Some((keyword, true)) if self.can_only_be_a_member(what) => {
                let message = format!("'{keyword}' is a keyword of OMG IDL");
                self.reporter.warning(span, message).help(format!("for other compilers write '_{text}'"));
            }
            Some((keyword, true)) => {
                let message = format!("expected {what}, found the keyword '{keyword}'");
                self.reporter.error(span, message).help(format!("write '_{text}' to use it as a name"));
            }
        }
        Some(())
    }

    /// Whether a keyword is the name of a member: it follows the type, and the end of a member
    /// follows it. ROS 2 has members called `map`.
    fn can_only_be_a_member(&self, what: &str) -> bool {
        what == MEMBER_NAME && matches!(self.peek_at(1).tok, Tok::Sym(';' | ',' | '['))
    }

    // Tokens.

    fn peek(&self) -> &Token {
        self.peek_at(0)
    }

    /// The token that is `ahead` tokens after the next. The last token is [`Tok::Eof`].
    fn peek_at(&self, ahead: usize) -> &Token {
        &self.tokens[(self.pos + ahead).min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.pos = (self.pos + 1).min(self.tokens.len() - 1);
        token
    }

    fn span(&self) -> Span {
        self.peek().span
    }

    fn last_span(&self) -> Span {
        self.tokens[self.pos.saturating_sub(1).min(self.tokens.len() - 1)].span
    }

    fn at(&self, c: char) -> bool {
        self.peek().tok == Tok::Sym(c)
    }

    fn take(&mut self, c: char) -> bool {
        let there = self.at(c);
        self.pos += usize::from(there);
        there
    }

    fn take_word(&mut self, word: &str) -> bool {
        let there = self.peek().ident().is_some_and(|w| &**w == word);
        self.pos += usize::from(there);
        there
    }

    fn pdl(&self) -> bool {
        self.pdl_at(self.span())
    }

    fn pdl_at(&self, span: Span) -> bool {
        self.reporter.sources.dialect(span) == Dialect::Pdl
    }

    fn expect(&mut self, c: char) -> Option<Span> {
        match self.take(c) {
            true => Some(self.last_span()),
            false => self.expected(&format!("'{c}'")),
        }
    }

    /// Parses a `;`. If it is missing at the end of a line, that is reported and parsing continues
    /// as if it were there.
    fn expect_semicolon(&mut self) -> Option<()> {
        if self.take(';') {
            return Some(());
        }
        let found = self.found();
        let goes_on = self.peek().first || self.at('}');
        let span = if goes_on || self.peek().tok == Tok::Eof { self.last_span().after() } else { self.span() };
        self.reporter.error(span, format!("expected ';', found {found}"));
        goes_on.then_some(())
    }

    fn expected<T>(&mut self, what: &str) -> Option<T> {
        let found = self.found();
        let span = self.span();
        self.reporter.error(span, format!("expected {what}, found {found}"));
        None
    }

    fn found(&self) -> String {
        match &self.peek().tok {
            Tok::Ident(name) => format!("'{name}'"),
            Tok::Escaped(name) => format!("'_{name}'"),
            Tok::Int(_) | Tok::Float(_) | Tok::Fixed => "a number".into(),
            Tok::Char(_) | Tok::WChar(_) => "a character".into(),
            Tok::Str(_) | Tok::WStr(_) | Tok::Raw(_) => "a string".into(),
            Tok::Path => "'::'".into(),
            Tok::Sym(c) => format!("'{c}'"),
            Tok::Eol | Tok::Eof => "the end of the file".into(),
        }
    }

    fn enter(&mut self) -> Option<()> {
        if self.depth >= self.limits.nesting {
            return self.too_deep();
        }
        self.depth += 1;
        Some(())
    }

    fn too_deep<T>(&mut self) -> Option<T> {
        let message = format!("this is nested deeper than the limit of {}", self.limits.nesting);
        let span = self.span();
        self.reporter.error(span, message);
        None
    }

    /// Skips to the position after the next `;` or before the next `}` of this level.
    fn recover(&mut self) {
        let mut depth = 0usize;
        loop {
            match self.peek().tok {
                Tok::Eof => return,
                Tok::Sym(';') if depth == 0 => {
                    self.pos += 1;
                    return;
                }
                Tok::Sym('{') => depth += 1,
                Tok::Sym('}') if depth == 0 => return,
                Tok::Sym('}') => depth -= 1,
                _ => {}
            }
            self.pos += 1;
        }
    }
}
