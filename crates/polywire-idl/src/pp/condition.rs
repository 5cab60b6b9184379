//! Conditions of the preprocessor: `#if`, `#ifdef`, `#elif` and the like.

use std::rc::Rc;

use super::{Condition, Macro, Preprocessor};
use crate::lex::{Lexer, Tok, Token};
use crate::source::Span;

impl Preprocessor<'_> {
    pub(super) fn open_condition(&mut self, name: &str, span: Span, lexer: &mut Lexer) {
        let outer = self.active();
        let holds = outer
            && match name {
                "if" => self.condition(span, lexer),
                _ => {
                    let defined = self.macro_name(lexer).is_some_and(|name| self.macros.contains_key(&name));
                    defined == (name == "ifdef")
                }
            };
        self.conditions.push(Condition { span, active: holds, done: holds || !outer, has_else: false });
    }

    pub(super) fn next_condition(&mut self, name: &str, span: Span, lexer: &mut Lexer) {
        let Some(open) = self.conditions.get(self.base..).and_then(|own| own.last()) else {
            self.reporter.error(span, format!("#{name} without #if"));
            return;
        };
        if name == "endif" {
            self.conditions.pop();
            return;
        }
        if open.has_else {
            self.reporter.error(span, format!("#{name} after #else"));
        }
        let done = open.done;
        let holds = !done && (name == "else" || self.condition(span, lexer));
        if let Some(open) = self.conditions.last_mut() {
            open.active = holds;
            open.done |= holds;
            open.has_else |= name == "else";
        }
    }

    /// The value of the expression on the rest of the line. A malformed expression is reported and
    /// counts as false.
    fn condition(&mut self, span: Span, lexer: &mut Lexer) -> bool {
        lexer.muted = false;
        let mut tokens = Vec::new();
        loop {
            let token = lexer.next(self.reporter);
            match &token.tok {
                Tok::Eol | Tok::Eof => break,
                _ => tokens.push(token),
            }
        }
        let tokens = self.substitute(tokens);
        if self.stopped {
            return false;
        }
        let mut reader = Reader { tokens: &tokens, pos: 0, depth: 0, limit: self.limits.nesting };
        let value = reader.binary(0).filter(|_| reader.pos == tokens.len());
        if value.is_none() {
            let at = tokens.get(reader.pos).map_or(span, |t| t.span);
            self.reporter.error(at, "expected an integer expression, such as 'defined(NAME) && VALUE > 1'");
        }
        value.unwrap_or(0) != 0
    }

    /// Replaces `defined` and macros. A remaining name is 0, as in C.
    fn substitute(&mut self, tokens: Vec<Token>) -> Vec<Token> {
        let mut out = Vec::new();
        let mut list = tokens.into_iter().peekable();
        while let Some(token) = list.next().filter(|_| !self.stopped) {
            let name = match &token.tok {
                Tok::Ident(name) => name.clone(),
                Tok::Escaped(name) => format!("_{name}").into(),
                _ => {
                    out.push(token);
                    continue;
                }
            };
            if &*name == "defined" {
                let open = list.next_if(|t| t.tok == Tok::Sym('(')).is_some();
                let defined = list.next().is_some_and(|t| match &t.tok {
                    Tok::Ident(name) => self.macros.contains_key(name),
                    Tok::Escaped(name) => self.macros.contains_key(&*format!("_{name}")),
                    _ => false,
                });
                if open {
                    list.next_if(|t| t.tok == Tok::Sym(')'));
                }
                out.push(Token { tok: Tok::Int(i128::from(defined)), ..token });
                continue;
            }
            out.extend(self.value_of(&name, &token));
        }
        out
    }

    /// The tokens of a macro, with the macros in it replaced.
    fn value_of(&mut self, name: &Rc<str>, used: &Token) -> Vec<Token> {
        let number = |value| Token { tok: Tok::Int(value), ..used.clone() };
        if !matches!(self.macros.get(name), Some(Macro::Object(_))) {
            return vec![number(i128::from(&**name == "true"))];
        }
        // Expansion writes to the output, so an empty one takes its place meanwhile.
        let (before, braces) = (std::mem::take(&mut self.out.list), self.braces);
        self.expand(name, used, &mut Vec::new());
        let tokens = std::mem::replace(&mut self.out.list, before);
        self.braces = braces;
        self.condition_tokens += tokens.len();
        if self.condition_tokens > self.limits.tokens {
            self.stop(used.span, format!("more than the limit of {} tokens in conditions", self.limits.tokens));
        }
        let name_is_zero = |token: Token| match token.tok {
            Tok::Ident(_) | Tok::Escaped(_) => number(0),
            _ => token,
        };
        tokens.into_iter().map(name_is_zero).collect()
    }
}

struct Reader<'a> {
    tokens: &'a [Token],
    pos: usize,
    depth: usize,
    limit: usize,
}

/// Operators by precedence, from the lowest to the highest. Of two with a common start the longer
/// comes first.
const LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Reader<'_> {
    fn binary(&mut self, level: usize) -> Option<i128> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|o| self.at(o)) {
            self.pos += operator.len();
            let right = self.binary(level + 1)?;
            left = apply(operator, left, right)?;
        }
        Some(left)
    }

    fn at(&self, operator: &str) -> bool {
        let sym = |i: usize| match self.tokens.get(i).map(|t| &t.tok) {
            Some(Tok::Sym(c)) => Some(*c),
            _ => None,
        };
        let doubled = matches!(operator, "|" | "&" | "<" | ">") && sym(self.pos) == sym(self.pos + 1);
        !doubled && operator.chars().enumerate().all(|(i, c)| sym(self.pos + i) == Some(c))
    }

    fn unary(&mut self) -> Option<i128> {
        self.depth += 1;
        if self.depth > self.limit {
            return None;
        }
        let token = self.tokens.get(self.pos)?;
        self.pos += 1;
        let value = match token.tok {
            Tok::Int(value) => Some(value),
            Tok::Sym('!') => self.unary().map(|v| i128::from(v == 0)),
            Tok::Sym('-') => self.unary()?.checked_neg(),
            Tok::Sym('+') => self.unary(),
            Tok::Sym('~') => self.unary().map(|v| !v),
            Tok::Sym('(') => {
                let value = self.binary(0)?;
                let closed = self.tokens.get(self.pos).is_some_and(|t| t.tok == Tok::Sym(')'));
                self.pos += usize::from(closed);
                Some(value).filter(|_| closed)
            }
            _ => {
                self.pos -= 1;
                None
            }
        };
        self.depth -= 1;
        value
    }
}

fn apply(operator: &str, a: i128, b: i128) -> Option<i128> {
    let truth = |b: bool| Some(i128::from(b));
    match operator {
        "||" => truth(a != 0 || b != 0),
        "&&" => truth(a != 0 && b != 0),
        "|" => Some(a | b),
        "^" => Some(a ^ b),
        "&" => Some(a & b),
        "==" => truth(a == b),
        "!=" => truth(a != b),
        "<=" => truth(a <= b),
        ">=" => truth(a >= b),
        "<" => truth(a < b),
        ">" => truth(a > b),
        "<<" => a.checked_mul(1i128.checked_shl(u32::try_from(b).ok().filter(|b| *b < 64)?)?),
        ">>" => a.checked_shr(u32::try_from(b).ok()?),
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "/" => a.checked_div(b),
        _ => a.checked_rem(b),
    }
}
