//! Parses the definitions that only PDL has: probes with their attributes and operations.

use std::rc::Rc;

use super::Parser;
use crate::ast::{
    Annotation, Declarator, Direction, Expr, ExprKind, ItemKind, Member, Name, Operation, Parameter, TypeSpec,
};
use crate::diag::closest;
use crate::keywords;
use crate::lex::Tok;

/// A part of a probe's body.
enum Part {
    Member(Member),
    Operation(Operation),
}

impl Parser<'_> {
    /// `[uuid(..); version(..)]`
    pub(super) fn pdl_attributes(&mut self) -> Option<Vec<Annotation>> {
        let open = self.expect('[')?;
        let mut list = Vec::new();
        while !self.take(']') {
            if self.peek().tok == Tok::Eof {
                let span = self.span();
                let message = "expected ']', found the end of the file";
                self.reporter.error_beside(span, message, "to close this", open);
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
        let (mut members, mut operations) = (Vec::new(), Vec::new());
        for part in self.body(Self::part)? {
            match part {
                Part::Member(member) => members.push(member),
                Part::Operation(operation) => operations.push(operation),
            }
        }
        self.expect_semicolon();
        Some(ItemKind::Probe { name, base, members, operations, is_abstract })
    }

    fn part(&mut self) -> Option<Part> {
        let doc = self.peek().doc.clone();
        let annotations = self.annotations()?;
        self.no_inner_definition()?;
        if self.take_word("void") {
            return self.operation(annotations, doc, None);
        }
        let ty = self.type_spec()?;
        match self.peek_at(1).tok == Tok::Sym('(') {
            true => self.operation(annotations, doc, Some(ty)),
            false => self.member_of(annotations, doc, ty).map(Part::Member),
        }
    }

    /// Parses what follows the type that an operation returns.
    fn operation(
        &mut self,
        annotations: Vec<Annotation>,
        doc: Option<Rc<str>>,
        result: Option<TypeSpec>,
    ) -> Option<Part> {
        let name = self.declared_name("the name of the operation")?;
        self.expect('(')?;
        let mut parameters = Vec::new();
        while !self.take(')') {
            if !parameters.is_empty() && !self.take(',') {
                return self.expected("',' or ')'");
            }
            parameters.push(self.parameter()?);
        }
        self.expect_semicolon()?;
        let result = result.map(|ty| {
            let name = Name { text: "return_".into(), span: ty.span };
            Member { annotations: Vec::new(), doc: None, ty, declarators: vec![Declarator { name, dims: Vec::new() }] }
        });
        Some(Part::Operation(Operation { annotations, doc, name, parameters, result }))
    }

    /// Parses `in real64 level`. Annotations may be in front, as in IDL, or at the type, as those
    /// of a member.
    fn parameter(&mut self) -> Option<Parameter> {
        let doc = self.peek().doc.clone();
        let mut annotations = self.annotations()?;
        let direction = self.direction()?;
        annotations.extend(self.annotations()?);
        let ty = self.type_spec()?;
        let name = self.declared_name("the name of the parameter after its type")?;
        let declarators = vec![Declarator { name, dims: Vec::new() }];
        Some(Parameter { direction, member: Member { annotations, doc, ty, declarators } })
    }

    fn direction(&mut self) -> Option<Direction> {
        let known = [("in", Direction::In), ("out", Direction::Out), ("inout", Direction::InOut)];
        if let Some((_, direction)) = known.into_iter().find(|(word, _)| self.take_word(word)) {
            return Some(direction);
        }
        let (span, found) = (self.span(), self.found());
        let word = self.peek().ident().cloned().filter(|word| !keywords::PDL.contains(&&**word));
        let meant = word.and_then(|word| closest(&word, known.map(|(word, _)| word)));
        let error = self.reporter.error(span, format!("expected 'in', 'out' or 'inout', found {found}"));
        match meant {
            Some(meant) => error.suggest(Some(meant)),
            None => error.help("a parameter begins with its direction, such as 'in real64 level'"),
        };
        None
    }
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let hex = |group: &&str| group.bytes().all(|b| b.is_ascii_hexdigit());
    groups.iter().map(|g| g.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(hex)
}
