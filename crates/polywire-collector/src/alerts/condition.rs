//! Conditions of alerts: comparisons of members, joined by `and` and `or`.
//!
//! ```text
//! condition = all { "or" all }
//! all       = term { "and" term }
//! term      = "(" condition ")" [ "for" TIME ]
//!           | FIELD ( "<" | "<=" | ">" | ">=" ) NUMBER { "clear" ( "below" | "above" ) NUMBER | "for" TIME }
//!           | FIELD ( "==" | "!=" ) ( NUMBER | TEXT | "true" | "false" ) [ "for" TIME ]
//!           | FIELD "changes"
//!           | FIELD "missing" "for" TIME
//! ```
//!
//! The lexical part is in `token`.

use std::{fmt, str::FromStr, time::Duration};

use polywire::{
    Pattern,
    extend::layout::{PathError, ValueRef},
};

use super::token::{Token, Tokens};

/// The maximum size of a condition in bytes.
const MAX_BYTES: usize = 4096;

/// The maximum number of comparisons of a condition.
const MAX_FIELDS: usize = 64;

/// The maximum depth of nested parentheses.
const DEEPEST: usize = 32;

/// The wildcard for all elements of a list in a path.
const EACH: &str = "[*]";

/// A condition on members of messages. `docs/collect.md` defines the syntax.
///
/// ```
/// use polywire_collector::{Condition, ConditionError};
///
/// let condition: Condition = "processor/busy_percent > 90 for 10s clear below 80".parse()?;
/// assert_eq!(condition.topics().collect::<Vec<_>>(), ["processor"]);
/// let error: ConditionError = "processor/busy_percent > many".parse::<Condition>().unwrap_err();
/// assert_eq!(error.to_string(), "column 26: a number, a text in quotes, 'true' or 'false' is expected, not 'many'");
/// # Ok::<(), ConditionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    text: String,
    pub(super) root: Term,
    pub(super) fields: Vec<Field>,
    /// The number of terms that have a `for`.
    pub(super) waits: usize,
}

/// Why a text is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {reason}")]
#[non_exhaustive]
pub struct ConditionError {
    /// The position of the mistake in characters, from 1.
    pub column: usize,
    /// What is expected at that position.
    pub reason: String,
}

/// A part of a condition.
#[derive(Clone, Debug)]
pub(super) enum Term {
    /// The field with this number passes its test.
    Field(usize),
    All(Vec<Term>),
    Any(Vec<Term>),
    /// The term has been true for at least this time. `wait` is its number among the terms with a
    /// `for`.
    For {
        term: Box<Term>,
        time: Duration,
        wait: usize,
    },
}

/// A member of the messages of a topic, and the test on it.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The text of the field in the condition.
    pub text: String,
    /// The topic below the prefix of the alert.
    pub topic: String,
    /// The path of the member, split at each `[*]`; empty for the message itself.
    pub path: Vec<String>,
    pub test: Test,
}

#[derive(Clone, Debug)]
pub(super) enum Test {
    /// A comparison with a literal. `clear` is the bound that ends a comparison which was true.
    Compare { how: How, with: Literal, clear: Option<f64> },
    /// Whether the value differs from that of the previous message.
    Changes,
    /// Whether no message has had the member for this time.
    Missing(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Number(f64),
    Text(String),
    Truth(bool),
}

impl Condition {
    /// Returns the topics of the condition's fields, below the prefix of the alert.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.topic.as_str())
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Condition) -> bool {
        self.text == other.text
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Condition, ConditionError> {
        if text.len() > MAX_BYTES {
            return Err(error(1, format!("a condition has at most {MAX_BYTES} bytes")));
        }
        let mut parser = Parser { tokens: Tokens::of(text)?, fields: Vec::new(), waits: 0, depth: 0 };
        let root = parser.any()?;
        match parser.tokens.peek() {
            Token::End => Ok(Condition { text: text.to_owned(), root, fields: parser.fields, waits: parser.waits }),
            _ => Err(parser.expected("'and', 'or' or the end")),
        }
    }
}

pub(super) fn error(column: usize, reason: impl Into<String>) -> ConditionError {
    ConditionError { column, reason: reason.into() }
}

struct Parser {
    tokens: Tokens,
    fields: Vec<Field>,
    waits: usize,
    depth: usize,
}

impl Parser {
    fn expected(&self, what: &str) -> ConditionError {
        error(self.tokens.column(), format!("{what} is expected, not {}", self.tokens.peek()))
    }

    /// Consumes a word if it is the next token.
    fn word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.tokens.peek(), Token::Word(next) if next == word);
        if is_next {
            self.tokens.advance();
        }
        is_next
    }

    fn any(&mut self) -> Result<Term, ConditionError> {
        let mut terms = vec![self.all()?];
        while self.word("or") {
            terms.push(self.all()?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Term::Any(terms) })
    }

    fn all(&mut self) -> Result<Term, ConditionError> {
        let mut terms = vec![self.term()?];
        while self.word("and") {
            terms.push(self.term()?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Term::All(terms) })
    }

    fn term(&mut self) -> Result<Term, ConditionError> {
        if *self.tokens.peek() != Token::Symbol("(") {
            return self.field();
        }
        if self.depth == DEEPEST {
            return Err(error(self.tokens.column(), format!("at most {DEEPEST} parentheses can be open")));
        }
        self.tokens.advance();
        self.depth += 1;
        let term = self.any()?;
        self.depth -= 1;
        if *self.tokens.peek() != Token::Symbol(")") {
            return Err(self.expected("'and', 'or' or ')'"));
        }
        self.tokens.advance();
        match self.word("for") {
            true => self.lasting(term),
            false => Ok(term),
        }
    }

    fn field(&mut self) -> Result<Term, ConditionError> {
        let column = self.tokens.column();
        let (Token::Word(text) | Token::Quoted(text)) = self.tokens.peek().clone() else {
            return Err(self.expected("a field such as processor/busy_percent, or '(',"));
        };
        let (topic, path) = divide(&text).map_err(|reason| error(column, format!("'{text}': {reason}")))?;
        if self.fields.len() == MAX_FIELDS {
            return Err(error(column, format!("a condition has at most {MAX_FIELDS} comparisons")));
        }
        self.tokens.advance();
        if self.word("missing") {
            let test = Test::Missing(self.missing()?);
            return Ok(self.add(Field { text, topic, path, test }));
        }
        if self.word("changes") {
            return Ok(self.add(Field { text, topic, path, test: Test::Changes }));
        }
        let how = self.how()?;
        if path.is_empty() {
            return Err(error(column, format!("'{text}': a member after the '/' is expected, to compare it")));
        }
        let with = self.literal(how)?;
        self.compared(Field { text, topic, path, test: Test::Compare { how, with, clear: None } })
    }

    fn add(&mut self, field: Field) -> Term {
        self.fields.push(field);
        Term::Field(self.fields.len() - 1)
    }

    fn missing(&mut self) -> Result<Duration, ConditionError> {
        match self.word("for") {
            true => self.time(),
            false => Err(self.expected("'for' and a time")),
        }
    }

    fn how(&mut self) -> Result<How, ConditionError> {
        let how = match self.tokens.peek() {
            Token::Symbol("<") => How::Less,
            Token::Symbol("<=") => How::LessOrEqual,
            Token::Symbol(">") => How::Greater,
            Token::Symbol(">=") => How::GreaterOrEqual,
            Token::Symbol("==") => How::Equal,
            Token::Symbol("!=") => How::NotEqual,
            _ => return Err(self.expected("'<', '<=', '>', '>=', '==', '!=', 'changes' or 'missing'")),
        };
        self.tokens.advance();
        Ok(how)
    }

    fn literal(&mut self, how: How) -> Result<Literal, ConditionError> {
        let is_equality = matches!(how, How::Equal | How::NotEqual);
        let literal = match self.tokens.peek() {
            Token::Quoted(text) => Some(Literal::Text(text.clone())),
            Token::Word(word) if word == "true" || word == "false" => Some(Literal::Truth(word == "true")),
            Token::Word(word) => number(word).map(Literal::Number),
            _ => None,
        };
        match literal {
            Some(Literal::Text(_) | Literal::Truth(_)) if !is_equality => {
                Err(self.expected("'==' or '!=' compare texts, booleans and names; here a number"))
            }
            Some(literal) => {
                self.tokens.advance();
                Ok(literal)
            }
            None => Err(self.expected("a number, a text in quotes, 'true' or 'false'")),
        }
    }

    /// Parses the optional parts after a comparison.
    fn compared(&mut self, mut field: Field) -> Result<Term, ConditionError> {
        let mut lasts = None;
        loop {
            let column = self.tokens.column();
            if self.word("for") {
                match lasts.replace(self.time()?) {
                    Some(_) => return Err(error(column, "a comparison has one 'for'")),
                    None => continue,
                }
            }
            if !self.word("clear") {
                break;
            }
            let bound = self.clear(&field, column)?;
            if let Test::Compare { clear, .. } = &mut field.test
                && clear.replace(bound).is_some()
            {
                return Err(error(column, "a comparison has one 'clear'"));
            }
        }
        let term = self.add(field);
        Ok(match lasts {
            Some(time) => self.wait(term, time),
            None => term,
        })
    }

    /// Parses the bound after `clear`, which must lie on the other side of the comparison's limit.
    fn clear(&mut self, field: &Field, column: usize) -> Result<f64, ConditionError> {
        let Test::Compare { how, with: Literal::Number(limit), .. } = &field.test else {
            return Err(error(column, "only numbers have a bound with 'clear'"));
        };
        let is_upper = match how {
            How::Greater | How::GreaterOrEqual => true,
            How::Less | How::LessOrEqual => false,
            _ => return Err(error(column, "'clear' needs '<', '<=', '>' or '>=' before it")),
        };
        let word = if is_upper { "below" } else { "above" };
        if !self.word(word) {
            return Err(self.expected(&format!("'{word}'")));
        }
        let bound = match self.tokens.peek() {
            Token::Word(word) => number(word),
            _ => None,
        };
        let fits = |bound: &f64| if is_upper { bound <= limit } else { bound >= limit };
        match bound {
            Some(bound) if fits(&bound) => {
                self.tokens.advance();
                Ok(bound)
            }
            Some(_) if is_upper => Err(self.expected(&format!("a number up to {limit}"))),
            Some(_) => Err(self.expected(&format!("a number from {limit}"))),
            None => Err(self.expected("a number")),
        }
    }

    fn lasting(&mut self, term: Term) -> Result<Term, ConditionError> {
        let time = self.time()?;
        Ok(self.wait(term, time))
    }

    fn wait(&mut self, term: Term, time: Duration) -> Term {
        self.waits += 1;
        Term::For { term: Box::new(term), time, wait: self.waits - 1 }
    }

    fn time(&mut self) -> Result<Duration, ConditionError> {
        let time = match self.tokens.peek() {
            Token::Word(word) => time(word),
            _ => None,
        };
        let time = time.ok_or_else(|| self.expected("a time such as 10s (ms, s, m, h or d)"))?;
        self.tokens.advance();
        Ok(time)
    }
}

fn number(word: &str) -> Option<f64> {
    let is_digit = |c: char| c.is_ascii_digit();
    // Rust would also parse `inf` and `nan`.
    word.contains(is_digit).then(|| word.parse().ok()).flatten().filter(|number: &f64| number.is_finite())
}

fn time(word: &str) -> Option<Duration> {
    let at = word.find(|c: char| c.is_ascii_alphabetic())?;
    let (amount, unit) = word.split_at(at);
    let seconds = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let time = number(amount)? * seconds;
    (0.0..=1e9).contains(&time).then(|| Duration::from_secs_f64(time))
}

/// Splits a field into the topic and the parts of the path.
fn divide(text: &str) -> Result<(String, Vec<String>), String> {
    let bracket = text.find('[').unwrap_or(text.len());
    let slash = text[..bracket].rfind('/').ok_or("a topic, '/' and a member is expected")?;
    let (topic, path) = (&text[..slash], &text[slash + 1..]);
    let pattern: Pattern = topic.parse().map_err(|error| format!("{error}"))?;
    if !pattern.is_name() {
        return Err("the name of a topic is expected, without wildcards; the prefix of the alert can have some".into());
    }
    if path.is_empty() {
        return Ok((topic.to_owned(), Vec::new()));
    }
    let parts = steps(path);
    parts.iter().try_for_each(|part| is_path(part))?;
    Ok((topic.to_owned(), parts))
}

/// Splits a path at each `[*]`. A part after `[*]` does not begin with a full stop.
fn steps(path: &str) -> Vec<String> {
    let (mut parts, mut rest, mut part, mut is_quoted) = (Vec::new(), path, String::new(), false);
    while let Some(c) = rest.chars().next() {
        match rest.strip_prefix(EACH).filter(|_| !is_quoted) {
            Some(after) => {
                parts.push(std::mem::take(&mut part));
                rest = after.strip_prefix('.').unwrap_or(after);
            }
            None => {
                is_quoted ^= c == '"' && !part.ends_with('\\');
                part.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    parts.push(part);
    parts
}

/// Checks whether a text is a syntactically valid path.
fn is_path(part: &str) -> Result<(), String> {
    match ValueRef::Absent.get(part) {
        Err(PathError::Syntax { at, expected, .. }) => Err(format!("{expected} is expected after '{}'", &part[..at])),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_say_where_and_what_is_expected() {
        let cases = [
            ("", "column 1: a field such as processor/busy_percent, or '(', is expected, not the end"),
            ("busy > 1", "column 1: 'busy': a topic, '/' and a member is expected"),
            ("a/*/b > 1", "column 1: 'a/*/b': the name of a topic is expected, without wildcards"),
            ("a//b > 1", "column 1: 'a//b': topic \"a/\", at byte 1: a level is empty"),
            ("a/b..c > 1", "column 1: 'a/b..c': a name is expected after 'b.'"),
            ("a/b[x] > 1", "column 1: 'a/b[x]': a number or a quoted key is expected after 'b['"),
            ("a/ > 1", "column 1: 'a/': a member after the '/' is expected, to compare it"),
            ("a/b", "column 4: '<', '<=', '>', '>=', '==', '!=', 'changes' or 'missing' is expected, not the end"),
            ("a/b = 1", "column 5: '==' is expected, not '='"),
            ("a/b ! 1", "column 5: '!=' is expected, not '!'"),
            ("a/b > x", "column 7: a number, a text in quotes, 'true' or 'false' is expected, not 'x'"),
            ("a/b > inf", "column 7: a number, a text in quotes, 'true' or 'false' is expected, not 'inf'"),
            ("a/b > \"x\"", "column 7: '==' or '!=' compare texts, booleans and names; here a number is expected"),
            ("a/b == \"x", "column 8: '\"' is expected at the end of the text"),
            ("a/b > 1 for", "column 12: a time such as 10s (ms, s, m, h or d) is expected, not the end"),
            ("a/b > 1 for 10", "column 13: a time such as 10s (ms, s, m, h or d) is expected, not '10'"),
            ("a/b > 1 for 1y", "column 13: a time such as"),
            ("a/b > 1 for 1s for 2s", "column 16: a comparison has one 'for'"),
            ("a/b > 5 clear above 1", "column 15: 'below' is expected, not 'above'"),
            ("a/b > 5 clear below 6", "column 21: a number up to 5 is expected, not '6'"),
            ("a/b < 5 clear above 4", "column 21: a number from 5 is expected, not '4'"),
            ("a/b == 5 clear below 4", "column 10: 'clear' needs '<', '<=', '>' or '>=' before it"),
            ("a/b missing", "column 12: 'for' and a time is expected, not the end"),
            ("a/b changes for 1s", "column 13: 'and', 'or' or the end is expected, not 'for'"),
            ("(a/b > 1", "column 9: 'and', 'or' or ')' is expected, not the end"),
            ("a/b > 1)", "column 8: 'and', 'or' or the end is expected, not ')'"),
            ("a/b > 1 and", "column 12: a field such as"),
            ("ä/b > 1 c/d", "column 9: 'and', 'or' or the end is expected, not 'c/d'"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Condition>().expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        assert!("(".repeat(1000).parse::<Condition>().is_err() && "x".repeat(5000).parse::<Condition>().is_err());
        let long = vec!["a/b > 1"; MAX_FIELDS + 1].join(" or ");
        assert!(long.parse::<Condition>().is_err());
    }

    #[test]
    fn and_binds_closer_than_or() {
        let condition: Condition =
            "a/b > 1 or a/c < 2 for 1m and (a/d != true or a/e changes) for 5ms".parse().unwrap();
        let Term::Any(terms) = &condition.root else { panic!("{condition:?}") };
        let [Term::Field(0), Term::All(both)] = &terms[..] else { panic!("{condition:?}") };
        let [Term::For { time: first, wait: 0, .. }, Term::For { time: second, wait: 1, .. }] = &both[..] else {
            panic!("{condition:?}")
        };
        assert_eq!((first.as_secs(), second.as_millis(), condition.waits), (60, 5, 2));
    }

    #[test]
    fn fields_are_divided() {
        let divided = |text| divide(text).expect("a field");
        assert_eq!(divided("a/b/c.d[2].e"), ("a/b".to_owned(), vec!["c.d[2].e".to_owned()]));
        assert_eq!(divided("a/disks[*].busy"), ("a".to_owned(), vec!["disks".to_owned(), "busy".to_owned()]));
        assert_eq!(divided("a/m[*][*]").1, ["m", "", ""]);
        assert_eq!(divided(r#"a/m["x/[*]"].y"#), ("a".to_owned(), vec![r#"m["x/[*]"].y"#.to_owned()]));
        assert_eq!(divided("a/"), ("a".to_owned(), Vec::new()));
        let condition: Condition = r#"a/m["x > (y) \"z"] > 1 and "b c/d" == "e""#.parse().expect("a condition");
        assert_eq!(condition.topics().collect::<Vec<_>>(), ["a", "b c"]);
    }
}
