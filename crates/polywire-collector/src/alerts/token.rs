//! The words, texts and symbols of a condition.

use std::fmt;

use super::condition::{ConditionError, error};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A field, a number, a time or a keyword.
    Word(String),
    /// A text in quotes.
    Quoted(String),
    Symbol(&'static str),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(word) => write!(f, "'{word}'"),
            Token::Quoted(text) => write!(f, "{text:?}"),
            Token::Symbol(symbol) => write!(f, "'{symbol}'"),
            Token::End => f.write_str("the end"),
        }
    }
}

/// The tokens of a condition, with their columns from 1. The last one is [`Token::End`].
pub(super) struct Tokens {
    tokens: Vec<(usize, Token)>,
    at: usize,
}

impl Tokens {
    pub fn of(text: &str) -> Result<Tokens, ConditionError> {
        let mut reader = Reader { chars: text.chars().collect(), at: 0 };
        let mut tokens = Vec::new();
        loop {
            let (column, token) = reader.next()?;
            let is_end = token == Token::End;
            tokens.push((column, token));
            if is_end {
                return Ok(Tokens { tokens, at: 0 });
            }
        }
    }

    pub fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(_, token)| token)
    }

    pub fn column(&self) -> usize {
        self.tokens.get(self.at).map_or(1, |(column, _)| *column)
    }

    /// Advances to the next token. [`Token::End`] stays the current token.
    pub fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len().saturating_sub(1));
    }
}

struct Reader {
    chars: Vec<char>,
    at: usize,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Result<(usize, Token), ConditionError> {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
        let column = self.at + 1;
        let token = match self.peek() {
            None => Token::End,
            Some('"') => Token::Quoted(self.quoted()?),
            Some('(') => self.symbol("("),
            Some(')') => self.symbol(")"),
            Some('<') => self.one_or_two("<", "<="),
            Some('>') => self.one_or_two(">", ">="),
            Some('=') => self.two("==")?,
            Some('!') => self.two("!=")?,
            Some(_) => Token::Word(self.word()),
        };
        Ok((column, token))
    }

    fn symbol(&mut self, symbol: &'static str) -> Token {
        self.at += symbol.len();
        Token::Symbol(symbol)
    }

    fn one_or_two(&mut self, one: &'static str, two: &'static str) -> Token {
        let is_two = self.chars.get(self.at + 1) == Some(&'=');
        self.symbol(if is_two { two } else { one })
    }

    fn two(&mut self, symbol: &'static str) -> Result<Token, ConditionError> {
        match self.chars.get(self.at + 1) {
            Some('=') => Ok(self.symbol(symbol)),
            _ => Err(error(self.at + 1, format!("'{symbol}' is expected, not '{}'", &symbol[..1]))),
        }
    }

    fn quoted(&mut self) -> Result<String, ConditionError> {
        let (start, mut text) = (self.at + 1, String::new());
        self.at += 1;
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                '"' => return Ok(text),
                '\\' => {
                    text.extend(self.peek());
                    self.at += 1;
                }
                c => text.push(c),
            }
        }
        Err(error(start, "'\"' is expected at the end of the text"))
    }

    /// Reads a word up to white space or a symbol. A quoted key of a path may contain both.
    fn word(&mut self) -> String {
        let (start, mut is_quoted) = (self.at, false);
        while let Some(c) = self.peek() {
            match c {
                '"' => is_quoted = !is_quoted,
                '\\' if is_quoted => self.at += 1,
                c if !is_quoted && (c.is_whitespace() || "()<>=!".contains(c)) => break,
                _ => {}
            }
            self.at += 1;
        }
        self.at = self.at.min(self.chars.len());
        self.chars[start..self.at].iter().collect()
    }
}
