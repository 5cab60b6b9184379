//! A line of a ROS 2 definition: a member, a constant or a comment.

use std::rc::Rc;

use polywire_core::schema::Type;

use super::value;
use crate::ast::{
    Annotation, Declarator, Expr, ExprKind, Item, ItemKind, Member, Name, ScopedName, TypeKind, TypeSpec,
};
use crate::diag::{Reporter, closest};
use crate::source::Span;

/// The most characters of a name, as in IDL.
const LONGEST_NAME: usize = 255;

const PRIMITIVES: [(&str, Type); 13] = [
    ("bool", Type::Bool),
    ("byte", Type::Octet),
    ("char", Type::Uint8),
    ("float32", Type::Float32),
    ("float64", Type::Float64),
    ("int8", Type::Int8),
    ("uint8", Type::Uint8),
    ("int16", Type::Int16),
    ("uint16", Type::Uint16),
    ("int32", Type::Int32),
    ("uint32", Type::Uint32),
    ("int64", Type::Int64),
    ("uint64", Type::Uint64),
];

/// A line of the file, split into code and comment.
pub(super) struct Line<'a> {
    file: u32,
    start: usize,
    code: &'a str,
    comment: Option<&'a str>,
}

/// What a line contributes to a definition.
pub(super) enum Part {
    Constant(Item),
    Member(Member),
}

/// A type that is defined in another file.
pub(super) struct Reference {
    pub package: Option<String>,
    pub name: String,
}

impl<'a> Line<'a> {
    pub fn all(file: u32, text: &'a str) -> Vec<Line<'a>> {
        let mut start = 0;
        let line = |whole: &'a str| {
            let (code, comment) = apart(whole.trim_end_matches(['\n', '\r']));
            let blank = code.len() - code.trim_start().len();
            let line = Line { file, start: start + blank, code: code.trim(), comment };
            start += whole.len();
            line
        };
        text.split_inclusive('\n').map(line).collect()
    }

    pub fn code(&self) -> &'a str {
        self.code
    }

    pub fn comment(&self) -> Option<&'a str> {
        self.comment
    }

    pub fn span(&self) -> Span {
        self.span_of(self.code)
    }

    /// The span of a part of the code.
    fn span_of(&self, part: &str) -> Span {
        let start = self.start + (part.as_ptr() as usize - self.code.as_ptr() as usize);
        Span { file: self.file, start: start as u32, end: (start + part.len()) as u32 }
    }

    /// `TYPE NAME`, `TYPE NAME DEFAULT` or `TYPE NAME=VALUE`.
    pub fn parse(&self, reporter: &mut Reporter) -> Option<Parsed<'_>> {
        let (ty, rest) = self.code.split_once(|c: char| c.is_whitespace()).unwrap_or((self.code, ""));
        let rest = rest.trim_start();
        let end = rest.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        if !is_name(name) {
            let span = if name.is_empty() { self.span_of(ty).after() } else { self.span_of(name) };
            reporter.error(span, "expected a name of letters, digits and '_' after the type");
            return None;
        }
        let rest = rest.trim_start();
        let (value, constant) = match rest.strip_prefix('=') {
            Some(value) => (value.trim_start(), true),
            None => (rest, false),
        };
        let shape = self.shape(ty, reporter)?;
        Some(Parsed { line: self, ty, shape, name, value, constant })
    }

    fn shape(&self, ty: &'a str, reporter: &mut Reporter) -> Option<Shape> {
        let (base, many) = match ty.strip_suffix(']').and_then(|inner| inner.rsplit_once('[')) {
            Some((base, "")) => (base, Many::Sequence(None)),
            Some((base, inner)) => match inner.strip_prefix("<=") {
                Some(bound) => (base, Many::Sequence(Some(self.number(bound, reporter)?))),
                None => (base, Many::Array(self.number(inner, reporter)?)),
            },
            None => (ty, Many::One),
        };
        Some(Shape { base: self.base(base, reporter)?, many })
    }

    fn base(&self, text: &'a str, reporter: &mut Reporter) -> Option<Base> {
        for (word, wide) in [("string", false), ("wstring", true)] {
            match text.strip_prefix(word) {
                Some("") => return Some(Base::String { wide, bound: None }),
                Some(bound) if bound.starts_with("<=") => {
                    return Some(Base::String { wide, bound: Some(self.number(&bound[2..], reporter)?) });
                }
                _ => {}
            }
        }
        if let Some((_, ty)) = PRIMITIVES.iter().find(|(word, _)| *word == text) {
            return Some(Base::Primitive(ty.clone()));
        }
        let parts: Vec<&str> = text.split('/').collect();
        let reference = match parts.as_slice() {
            // These are types of ROS 1, which people still write.
            ["Header"] => Some((Some("std_msgs"), "Header")),
            [name] if name.starts_with(|c: char| c.is_ascii_uppercase()) => Some((None, *name)),
            [package, name] | [package, "msg", name] => Some((Some(*package), *name)),
            _ => None,
        };
        if let Some((package, name)) = reference.filter(|(package, name)| package.is_none_or(is_name) && is_name(name))
        {
            return Some(Base::Reference(Reference { package: package.map(str::to_string), name: name.to_string() }));
        }
        let known = PRIMITIVES.iter().map(|(word, _)| *word).chain(["string", "wstring"]);
        let meant = closest(text, known).map(str::to_string);
        reporter.error(self.span_of(text), format!("there is no type '{text}'")).suggest(meant);
        None
    }

    fn number(&self, text: &'a str, reporter: &mut Reporter) -> Option<Expr> {
        let span = self.span_of(text);
        match text.trim().parse::<u32>() {
            Ok(number) => Some(Expr { kind: ExprKind::Int(number.into()), span }),
            Err(_) => {
                reporter.error(span, "expected a number of elements or characters");
                None
            }
        }
    }
}

/// A member or a constant, split into its parts.
pub(super) struct Parsed<'a> {
    line: &'a Line<'a>,
    ty: &'a str,
    shape: Shape,
    name: &'a str,
    value: &'a str,
    constant: bool,
}

struct Shape {
    base: Base,
    many: Many,
}

enum Base {
    Primitive(Type),
    String { wide: bool, bound: Option<Expr> },
    Reference(Reference),
}

enum Many {
    One,
    Array(Expr),
    Sequence(Option<Expr>),
}

impl Parsed<'_> {
    pub fn reference(&self) -> Option<&Reference> {
        match &self.shape.base {
            Base::Reference(reference) => Some(reference),
            _ => None,
        }
    }

    /// Makes the member or constant. `scope` has the modules of its type, if another file defines
    /// the type.
    pub fn part(self, scope: Option<Vec<Rc<str>>>, doc: Option<Rc<str>>, reporter: &mut Reporter) -> Option<Part> {
        let name = Name { text: self.name.into(), span: self.line.span_of(self.name) };
        let value = self.parsed_value(reporter)?;
        let span = self.line.span_of(self.ty);
        let element = TypeSpec { kind: kind_of(self.shape.base, scope, span), span };
        if self.constant {
            let Some(value) = value else {
                reporter.error(span, "a constant must be a boolean, a number or a string");
                return None;
            };
            let kind = ItemKind::Const { name, ty: element, value };
            return Some(Part::Constant(Item { annotations: Vec::new(), doc, span: self.line.span(), kind }));
        }
        let (ty, dims) = match self.shape.many {
            Many::One => (element, Vec::new()),
            Many::Array(length) => (element, vec![length]),
            Many::Sequence(bound) => {
                (TypeSpec { kind: TypeKind::Sequence { element: Box::new(element), bound }, span }, Vec::new())
            }
        };
        let default = |value: Expr| Annotation { name: "default".into(), span: value.span, args: vec![(None, value)] };
        let annotations = value.map(default).into_iter().collect();
        Some(Part::Member(Member { annotations, doc, ty, declarators: vec![Declarator { name, dims }] }))
    }

    /// The value of a constant or the default of a member. `None` after an error, `Some(None)` if
    /// the line has no value.
    fn parsed_value(&self, reporter: &mut Reporter) -> Option<Option<Expr>> {
        let span = self.line.span_of(if self.value.is_empty() { self.name } else { self.value });
        if self.value.is_empty() && !self.constant {
            return Some(None);
        }
        let ty = match (&self.shape.base, &self.shape.many) {
            (Base::Primitive(ty), Many::One) => ty.clone(),
            (Base::String { .. }, Many::One) => Type::string(),
            _ if self.constant => return Some(None),
            (Base::Reference(_), Many::One) => {
                reporter.error(span, "a member whose type is a message cannot have a default");
                return None;
            }
            _ => {
                reporter
                    .warning(span, "the default of an array or sequence is ignored")
                    .note("ROS 2 initialises new messages with it; it is not sent");
                return Some(None);
            }
        };
        match value::parse(self.value, &ty) {
            Ok(kind) => Some(Some(Expr { kind, span })),
            Err(expected) => {
                reporter.error(span, format!("expected {expected}"));
                None
            }
        }
    }
}

fn kind_of(base: Base, scope: Option<Vec<Rc<str>>>, span: Span) -> TypeKind {
    match base {
        Base::Primitive(ty) => TypeKind::Primitive(ty),
        Base::String { wide, bound } => TypeKind::String { wide, bound },
        Base::Reference(reference) => {
            let parts = scope.unwrap_or_default().into_iter().chain([Rc::from(reference.name.as_str())]);
            let parts = parts.map(|text| Name { text, span }).collect();
            TypeKind::Named(ScopedName { absolute: true, parts, span })
        }
    }
}

/// The member that rosidl adds to a structure without members.
pub(super) fn placeholder(span: Span) -> Member {
    let name = Name { text: "structure_needs_at_least_one_member".into(), span };
    let ty = TypeSpec { kind: TypeKind::Primitive(Type::Uint8), span };
    Member { annotations: Vec::new(), doc: None, ty, declarators: vec![Declarator { name, dims: Vec::new() }] }
}

/// Whether the text is a name: letters, digits and underscores, starting with a letter.
pub(super) fn is_name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.len() <= LONGEST_NAME && text.chars().all(good)
}

/// Splits off the comment, which begins with the first `#` outside quotes.
fn apart(line: &str) -> (&str, Option<&str>) {
    let (mut quote, mut before, mut escaped) = (None, ' ', false);
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') => return (&line[..at], Some(&line[at + 1..])),
            // A quote elsewhere is an apostrophe.
            (None, '"' | '\'') if before.is_whitespace() || matches!(before, '=' | '[' | ',') => quote = Some(c),
            (Some(open), c) if open == c && !escaped => quote = None,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        before = c;
    }
    match quote {
        // The quote has no end, so it is an apostrophe as well.
        Some(_) => match line.split_once('#') {
            Some((code, comment)) => (code, Some(comment)),
            None => (line, None),
        },
        None => (line, None),
    }
}

/// The comment at the start of a file documents the whole definition.
pub(super) fn leading_comment<'l, 'a>(lines: &'l [Line<'a>]) -> (Option<Rc<str>>, &'l [Line<'a>]) {
    let end = lines.iter().position(|line| !line.code.is_empty() || line.comment.is_none()).unwrap_or(lines.len());
    let comments: Vec<&str> = lines[..end].iter().filter_map(Line::comment).collect();
    (doc(&comments), &lines[end..])
}

pub(super) fn doc(comments: &[&str]) -> Option<Rc<str>> {
    let line =
        |comment: &&str| comment.trim_start_matches('#').strip_prefix(' ').unwrap_or(comment).trim_end().to_string();
    let lines: Vec<String> = comments.iter().map(line).collect();
    let text = lines.join("\n");
    let text = text.trim_matches('\n');
    (!text.is_empty()).then(|| text.into())
}
