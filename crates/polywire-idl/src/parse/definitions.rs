//! Parses structures, unions, enums, bitmasks, bitsets, typedefs and constants.

use std::rc::Rc;

use super::Parser;
use crate::ast::{
    Annotation, BitField, Case, Declarator, EnumLiteral, Item, ItemKind, Member, Name, ScopedName, TypeSpec,
};
use crate::diag::closest;
use crate::lex::Tok;
use crate::source::Span;

impl Parser<'_> {
    pub(super) fn constant(&mut self) -> Option<ItemKind> {
        self.pos += 1;
        let ty = self.type_spec()?;
        let name = self.declared_name("the name of the constant")?;
        self.expect('=')?;
        let value = self.expression()?;
        self.expect_semicolon()?;
        Some(ItemKind::Const { name, ty, value })
    }

    pub(super) fn typedef(&mut self) -> Option<ItemKind> {
        self.pos += 1;
        let annotations = self.annotations()?;
        let word = self.peek().ident().cloned();
        let constructed = word.is_some_and(|w| matches!(&*w, "struct" | "union" | "enum" | "bitmask" | "bitset"));
        if constructed && self.peek_at(2).tok != Tok::Sym(';') {
            return self.typedef_of(annotations);
        }
        let target = self.type_spec()?;
        let declarators = self.declarators("the new name of the type")?;
        self.expect_semicolon()?;
        Some(ItemKind::Typedef { target, declarators })
    }

    fn typedef_of(&mut self, annotations: Vec<crate::ast::Annotation>) -> Option<ItemKind> {
        let span = self.span();
        let doc = self.peek().doc.clone();
        // A definition on its own would need a `;` after the brace, but here the new name follows.
        let kind = match self.peek().ident().map(|w| w.to_string()).as_deref() {
            Some("struct") => self.structure_body(),
            Some("union") => self.union_body(),
            Some("enum") => self.enumeration_body(),
            Some("bitmask") => self.bitmask_body(),
            _ => self.bitset_body(),
        }?;
        let item = Item { annotations, doc, span: span.to(self.last_span()), kind };
        let declarators = self.declarators("the new name of the type")?;
        self.expect_semicolon()?;
        Some(ItemKind::TypedefOf { item: Box::new(item), declarators })
    }

    pub(super) fn structure(&mut self) -> Option<ItemKind> {
        if let Some(forward) = self.forward("the name of the structure") {
            return Some(forward);
        }
        let kind = self.structure_body()?;
        self.expect_semicolon();
        Some(kind)
    }

    pub(super) fn union(&mut self) -> Option<ItemKind> {
        if let Some(forward) = self.forward("the name of the union") {
            return Some(forward);
        }
        let kind = self.union_body()?;
        self.expect_semicolon();
        Some(kind)
    }

    pub(super) fn enumeration(&mut self) -> Option<ItemKind> {
        let kind = self.enumeration_body()?;
        self.expect_semicolon();
        Some(kind)
    }

    pub(super) fn bitmask(&mut self) -> Option<ItemKind> {
        let kind = self.bitmask_body()?;
        self.expect_semicolon();
        Some(kind)
    }

    pub(super) fn bitset(&mut self) -> Option<ItemKind> {
        let kind = self.bitset_body()?;
        self.expect_semicolon();
        Some(kind)
    }

    /// `struct Name;`
    fn forward(&mut self, what: &str) -> Option<ItemKind> {
        if self.peek_at(2).tok != Tok::Sym(';') {
            return None;
        }
        self.pos += 1;
        let name = self.declared_name(what)?;
        self.pos += 1;
        Some(ItemKind::Forward { name })
    }

    fn structure_body(&mut self) -> Option<ItemKind> {
        self.pos += 1;
        let name = self.declared_name("the name of the structure")?;
        let base = self.base()?;
        let members = self.body(Self::member)?;
        Some(ItemKind::Struct { name, base, members })
    }

    pub(super) fn base(&mut self) -> Option<Option<ScopedName>> {
        if !self.take(':') {
            return Some(None);
        }
        let base = self.scoped_name("the name of the base")?;
        if self.at(',') {
            return self.expected("'{', because there is only one base");
        }
        Some(Some(base))
    }

    /// Parses `{ part part .. }`. Each malformed part is reported and skipped.
    pub(super) fn body<T>(&mut self, part: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let open = self.expect('{')?;
        let mut parts = Vec::new();
        loop {
            let start = self.pos;
            match self.peek().tok {
                Tok::Sym('}') => {
                    self.pos += 1;
                    return Some(parts);
                }
                Tok::Eof => return self.unclosed(open),
                _ if self.reporter.is_full() => return None,
                _ if self.begins_module() => return self.unclosed(open),
                Tok::Sym(';') => {
                    let span = self.next().span;
                    self.reporter.warning(span, "superfluous ';'");
                }
                _ => match part(self) {
                    Some(part) => parts.push(part),
                    None => self.recover(),
                },
            }
            if self.pos == start {
                self.pos += 1;
            }
        }
    }

    /// `module x {` cannot be inside a body, so a closing brace is missing before it.
    fn begins_module(&self) -> bool {
        let word = |w: &str| self.peek().ident().is_some_and(|i| &**i == w);
        self.peek().first && word("module") && self.peek_at(2).tok == Tok::Sym('{')
    }

    pub(super) fn unclosed<T>(&mut self, open: Span) -> Option<T> {
        let found = self.found();
        let span = self.span();
        self.reporter.error_beside(span, format!("expected '}}', found {found}"), "to close this", open);
        None
    }

    pub(super) fn member(&mut self) -> Option<Member> {
        let doc = self.peek().doc.clone();
        let annotations = self.annotations()?;
        self.no_inner_definition()?;
        let ty = self.type_spec()?;
        self.member_of(annotations, doc, ty)
    }

    /// Parses what follows the type of a member.
    pub(super) fn member_of(
        &mut self,
        annotations: Vec<Annotation>,
        doc: Option<Rc<str>>,
        ty: TypeSpec,
    ) -> Option<Member> {
        let declarators = self.declarators(super::MEMBER_NAME)?;
        self.expect_semicolon()?;
        Some(Member { annotations, doc, ty, declarators })
    }

    pub(super) fn no_inner_definition(&mut self) -> Option<()> {
        let Some(word) = self.peek().ident().cloned() else { return Some(()) };
        if !matches!(&*word, "struct" | "union" | "enum" | "bitmask" | "bitset" | "typedef" | "const") {
            return Some(());
        }
        let span = self.span();
        self.reporter
            .error(span, format!("a '{word}' cannot be defined inside another type"))
            .help("define it before this type");
        None
    }

    pub(super) fn declarators(&mut self, what: &str) -> Option<Vec<Declarator>> {
        let mut list = vec![self.declarator(what)?];
        while self.take(',') {
            list.push(self.declarator(what)?);
        }
        Some(list)
    }

    fn declarator(&mut self, what: &str) -> Option<Declarator> {
        let name = self.declared_name(what)?;
        if self.at('@') {
            self.element_annotations()?;
            if !self.at('[') {
                return self.expected("'[', because annotations of a member come before its type");
            }
        }
        let mut dims = Vec::new();
        while self.take('[') {
            self.element_annotations()?;
            if self.at(']') {
                let span = self.span();
                self.reporter
                    .error(span, "expected the length of the array, found ']'")
                    .help("for a variable length use sequence<..>");
                return None;
            }
            dims.push(self.expression()?);
            self.expect(']')?;
            if dims.len() > self.limits.nesting {
                return self.too_deep();
            }
        }
        Some(Declarator { name, dims })
    }

    fn union_body(&mut self) -> Option<ItemKind> {
        self.pos += 1;
        let name = self.declared_name("the name of the union")?;
        if !self.take_word("switch") {
            return self.expected("'switch'");
        }
        self.expect('(')?;
        let switch_annotations = self.annotations()?;
        self.no_inner_definition()?;
        let switch = self.type_spec()?;
        self.expect(')')?;
        let cases = self.body(Self::case)?;
        Some(ItemKind::Union { name, switch, switch_annotations, cases })
    }

    fn case(&mut self) -> Option<Case> {
        let doc = self.peek().doc.clone();
        let mut labels = Vec::new();
        loop {
            let span = self.span();
            if self.take_word("default") {
                self.expect(':')?;
                labels.push((None, span));
            } else if self.take_word("case") {
                let label = self.expression()?;
                self.expect(':')?;
                labels.push((Some(label), span.to(self.last_span())));
            } else {
                break;
            }
        }
        if labels.is_empty() {
            return self.expected("'case' or 'default'");
        }
        let mut member = self.member()?;
        member.doc = member.doc.or(doc);
        if let Some(second) = member.declarators.get(1) {
            let span = second.name.span;
            self.reporter.error(span, "a case of a union must have exactly one member");
        }
        Some(Case { labels, member })
    }

    fn enumeration_body(&mut self) -> Option<ItemKind> {
        self.pos += 1;
        let name = self.declared_name("the name of the enum")?;
        let literals = self.comma_list("the name of a literal", Self::literal_value)?;
        Some(ItemKind::Enum { name, literals })
    }

    fn bitmask_body(&mut self) -> Option<ItemKind> {
        self.pos += 1;
        let name = self.declared_name("the name of the bitmask")?;
        let flags = self.comma_list("the name of a flag", Self::no_flag_value)?;
        Some(ItemKind::Bitmask { name, flags })
    }

    /// Parses `{ a, @x b, }`. A comma after the last part is common.
    fn comma_list(
        &mut self,
        what: &str,
        value: fn(&mut Self, &Name) -> Option<Annotation>,
    ) -> Option<Vec<EnumLiteral>> {
        let open = self.expect('{')?;
        let mut list = Vec::new();
        while !self.take('}') {
            let mut annotations = self.annotations()?;
            let name = match self.declared_name(what) {
                Some(name) => name,
                None => return self.skip_list(open),
            };
            annotations.extend(value(self, &name));
            list.push(EnumLiteral { annotations, name });
            if !self.take(',') && !self.at('}') {
                return match self.peek().tok {
                    Tok::Eof => self.unclosed(open),
                    _ => {
                        let _: Option<()> = self.expected("',' or '}'");
                        self.skip_list(open)
                    }
                };
            }
        }
        Some(list)
    }

    /// Parses `NAME = 3`, the syntax of C, as `@value(3) NAME`.
    fn literal_value(&mut self, name: &Name) -> Option<Annotation> {
        if !self.at('=') {
            return None;
        }
        let span = self.next().span;
        let start = self.pos;
        let value = self.expression()?;
        let text = match self.last_token_int() {
            Some(number) if self.pos == start + 1 => number.to_string(),
            _ => "..".into(),
        };
        self.reporter
            .warning(span, "in IDL, '@value' before a literal sets its value")
            .help(format!("for other compilers write '@value({text}) {}'", name.text));
        Some(Annotation { name: "value".into(), span: value.span, args: vec![(None, value)] })
    }

    /// Refuses `FLAG = 4`: it could mean the position of the flag or its value.
    fn no_flag_value(&mut self, name: &Name) -> Option<Annotation> {
        if self.at('=') {
            let span = self.next().span;
            self.expression()?;
            self.reporter
                .error(span, "'@position' before a flag sets its position")
                .help(format!("write '@position(..) {}', counted from 0", name.text));
        }
        None
    }

    fn last_token_int(&self) -> Option<i128> {
        match self.tokens.get(self.pos.wrapping_sub(1))?.tok {
            Tok::Int(value) => Some(value),
            _ => None,
        }
    }

    fn skip_list<T>(&mut self, open: Span) -> Option<T> {
        while !matches!(self.peek().tok, Tok::Sym('}' | ';') | Tok::Eof) {
            self.pos += 1;
        }
        match self.peek().tok {
            Tok::Sym('}') => self.pos += 1,
            Tok::Eof => return self.unclosed(open),
            _ => {}
        }
        None
    }

    fn bitset_body(&mut self) -> Option<ItemKind> {
        self.pos += 1;
        let name = self.declared_name("the name of the bitset")?;
        let base = self.base()?;
        let fields = self.body(Self::bit_field)?;
        Some(ItemKind::Bitset { name, base, fields })
    }

    fn bit_field(&mut self) -> Option<BitField> {
        let annotations = self.annotations()?;
        let start = self.span();
        if !self.take_word("bitfield") {
            let meant = self.peek().ident().and_then(|w| closest(w, ["bitfield"]));
            let found = self.found();
            self.reporter.error(start, format!("expected 'bitfield', found {found}")).suggest(meant);
            return None;
        }
        self.expect('<')?;
        let width = self.bound()?;
        let ty = if self.take(',') { Some(self.type_spec()?) } else { None };
        self.expect('>')?;
        let mut names = Vec::new();
        // The grammar has no separator between the names, but people write commas.
        while !self.at(';') {
            names.push(self.declared_name("the name of the bit field")?);
            if names.len() > self.limits.nesting {
                return self.too_deep();
            }
            self.take(',');
        }
        self.expect_semicolon()?;
        Some(BitField { annotations, width, ty, names })
    }
}
