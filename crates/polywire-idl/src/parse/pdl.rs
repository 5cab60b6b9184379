//! Parses the definitions that only PDL has: probes and their attributes.

use super::Parser;
use crate::ast::{Annotation, Expr, ExprKind, ItemKind};
use crate::lex::Tok;

impl Parser<'_> {
    /// `[uuid(..); version(..)]`
    pub(super) fn pdl_attributes(&mut self) -> Option<Vec<Annotation>> {
        let open = self.expect('[')?;
        let mut list = Vec::new();
        while !self.take(']') {
            if self.peek().tok == Tok::Eof {
                let place = self.reporter.locate(open);
                let span = self.span();
                self.reporter.error(span, "expected ']', found the end of the file").note_at("to close this", place);
                return None;
            }
            list.push(self.pdl_attribute()?);
            if !self.take(';') && !self.take(',') && !self.at(']') {
                return self.expected("';' or ']'");
            }
        }
        Some(list)
    }

    fn pdl_attribute(&mut self) -> Option<Annotation> {
        let token = self.peek().clone();
        let Some(name) = token.ident() else { return self.expected("an attribute, such as uuid or version") };
        self.pos += 1;
        let mut annotation = Annotation { name: name.to_string(), span: token.span, args: Vec::new() };
        if self.take('(') {
            let value = match self.peek().tok.clone() {
                Tok::Raw(text) => Expr { kind: ExprKind::String(text), span: self.next().span },
                _ => self.expression()?,
            };
            if let (ExprKind::String(text), "uuid") = (&value.kind, annotation.name.as_str())
                && !is_uuid(text)
            {
                self.reporter.warning(value.span, "invalid UUID").help("expected 8-4-4-4-12 hexadecimal digits");
            }
            annotation.args.push((None, value));
            self.expect(')')?;
            annotation.span = annotation.span.to(self.last_span());
        }
        Some(annotation)
    }

    /// Parses the definition that begins with `word`, if it is a keyword of PDL.
    pub(super) fn pdl_item(&mut self, word: &str) -> Option<Option<ItemKind>> {
        match word {
            "probe" => Some(self.probe(false)),
            "abstract" => {
                self.pos += 1;
                Some(match self.peek().ident().is_some_and(|w| &**w == "probe") {
                    true => self.probe(true),
                    false => self.expected("'probe' after 'abstract'"),
                })
            }
            _ => None,
        }
    }

    fn probe(&mut self, is_abstract: bool) -> Option<ItemKind> {
        self.pos += 1;
        let name = self.declared_name("the name of the probe")?;
        let base = self.base()?;
        let members = self.body(Self::member)?;
        self.expect_semicolon();
        Some(ItemKind::Probe { name, base, members, is_abstract })
    }
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let hex = |group: &&str| group.bytes().all(|b| b.is_ascii_hexdigit());
    groups.iter().map(|g| g.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(hex)
}
