//! Parses constant expressions.

use super::Parser;
use crate::ast::{Expr, ExprKind};
use crate::lex::Tok;
use crate::source::Span;

/// Operators by precedence, from the lowest to the highest.
const LEVELS: [&[char]; 6] = [&['|'], &['^'], &['&'], &['<', '>'], &['+', '-'], &['*', '/', '%']];
const SHIFTS: usize = 3;

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Option<Expr> {
        self.expression_with(true)
    }

    /// Parses a bound. A `>` ends the type, so a shift to the right needs parentheses.
    pub(super) fn bound(&mut self) -> Option<Expr> {
        self.expression_with(false)
    }

    fn expression_with(&mut self, shift_right: bool) -> Option<Expr> {
        self.enter()?;
        let mut operators = 0;
        let expr = self.binary(0, shift_right, &mut operators);
        self.depth -= 1;
        expr
    }

    fn binary(&mut self, level: usize, shift_right: bool, operators: &mut usize) -> Option<Expr> {
        let Some(symbols) = LEVELS.get(level) else { return self.unary(operators) };
        let mut left = self.binary(level + 1, shift_right, operators)?;
        while let Some(symbol) = self.operator(symbols, level == SHIFTS, shift_right) {
            self.count(operators)?;
            let right = self.binary(level + 1, shift_right, operators)?;
            let span = left.span.to(right.span);
            left = Expr { kind: ExprKind::Binary(symbol, Box::new(left), Box::new(right)), span };
        }
        Some(left)
    }

    /// A chain of operators becomes a tree whose depth is the number of operators. Those inside
    /// parentheses count as well, so that nested chains do not make the tree deeper.
    fn count(&mut self, operators: &mut usize) -> Option<()> {
        *operators += 1;
        if *operators > self.limits.operators {
            let span = self.span();
            let message = format!("more than the limit of {} operators in an expression", self.limits.operators);
            self.reporter.error(span, message);
            return None;
        }
        Some(())
    }

    fn operator(&mut self, symbols: &[char], shift: bool, shift_right: bool) -> Option<char> {
        let symbol = *symbols.iter().find(|c| self.at(**c))?;
        if !shift {
            self.pos += 1;
            return Some(symbol);
        }
        let second = self.peek_at(1);
        let doubled = second.tok == Tok::Sym(symbol) && second.span.start == self.span().end;
        if !doubled || (symbol == '>' && !shift_right) {
            return None;
        }
        self.pos += 2;
        Some(symbol)
    }

    fn unary(&mut self, operators: &mut usize) -> Option<Expr> {
        let start = self.span();
        let kind = match self.peek().tok.clone() {
            Tok::Sym(sign @ ('+' | '-' | '~')) => {
                self.pos += 1;
                self.count(operators)?;
                self.enter()?;
                let operand = self.unary(operators);
                self.depth -= 1;
                ExprKind::Unary(sign, Box::new(operand?))
            }
            Tok::Sym('(') => {
                self.pos += 1;
                self.enter()?;
                let inner = self.binary(0, true, operators);
                self.depth -= 1;
                let inner = inner?;
                self.expect(')')?;
                return Some(Expr { span: start.to(self.last_span()), ..inner });
            }
            Tok::Ident(word) if &*word == "TRUE" || &*word == "FALSE" => self.literal(ExprKind::Bool(&*word == "TRUE")),
            Tok::Ident(word) if word.eq_ignore_ascii_case("true") || word.eq_ignore_ascii_case("false") => {
                let upper = word.to_ascii_uppercase();
                self.reporter.warning(start, format!("'{word}' is written '{upper}' in IDL"));
                self.literal(ExprKind::Bool(upper == "TRUE"))
            }
            Tok::Ident(_) | Tok::Escaped(_) | Tok::Path => ExprKind::Name(self.scoped_name("a constant")?),
            Tok::Int(value) => self.literal(ExprKind::Int(value)),
            Tok::Float(value) => self.literal(ExprKind::Float(value)),
            Tok::Char(code) | Tok::WChar(code) => self.literal(ExprKind::Char(code)),
            Tok::Str(_) | Tok::WStr(_) => self.strings(),
            Tok::Fixed => self.fixed(start),
            Tok::Raw(text) => self.literal(ExprKind::String(text)),
            _ => return self.expected("a constant"),
        };
        Some(Expr { kind, span: start.to(self.last_span()) })
    }

    fn literal(&mut self, kind: ExprKind) -> ExprKind {
        self.pos += 1;
        kind
    }

    /// Adjacent strings are joined (IDL 4.2, 7.2.6.3).
    fn strings(&mut self) -> ExprKind {
        let mut text = String::new();
        while let Tok::Str(part) | Tok::WStr(part) = &self.peek().tok {
            text.push_str(part);
            self.pos += 1;
        }
        ExprKind::String(text.into())
    }

    fn fixed(&mut self, span: Span) -> ExprKind {
        self.reporter.error(span, "fixed-point numbers are not supported").help("remove the 'd'");
        self.literal(ExprKind::Wrong)
    }
}
