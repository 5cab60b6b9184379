//! The syntax tree of a file, before names are resolved. `parse/` builds it and `check/` reads it.

use std::rc::Rc;

use polywire_core::schema::Type;

use crate::pp::Keylist;
use crate::source::Span;

#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub text: Rc<str>,
    pub span: Span,
}

/// `a::b::c`
#[derive(Clone, Debug)]
pub(crate) struct ScopedName {
    /// Whether the name starts with `::`.
    pub absolute: bool,
    pub parts: Vec<Name>,
    pub span: Span,
}

impl ScopedName {
    pub fn text(&self) -> String {
        let parts: Vec<&str> = self.parts.iter().map(|p| &*p.text).collect();
        parts.join("::")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Annotation {
    pub name: String,
    pub span: Span,
    /// The name of an argument, or `None` for a single argument without a name.
    pub args: Vec<(Option<Name>, Expr)>,
}

/// A definition with its annotations and its documentation comment.
pub(crate) struct Item {
    pub annotations: Vec<Annotation>,
    pub doc: Option<Rc<str>>,
    pub span: Span,
    pub kind: ItemKind,
}

pub(crate) enum ItemKind {
    Module {
        name: Name,
        items: Vec<Item>,
    },
    Const {
        name: Name,
        ty: TypeSpec,
        value: Expr,
    },
    Typedef {
        target: TypeSpec,
        declarators: Vec<Declarator>,
    },
    /// `typedef struct A {..} B;`
    TypedefOf {
        item: Box<Item>,
        declarators: Vec<Declarator>,
    },
    Struct {
        name: Name,
        base: Option<ScopedName>,
        members: Vec<Member>,
    },
    Probe {
        name: Name,
        base: Option<ScopedName>,
        members: Vec<Member>,
        operations: Vec<Operation>,
        is_abstract: bool,
    },
    Union {
        name: Name,
        switch: TypeSpec,
        switch_annotations: Vec<Annotation>,
        cases: Vec<Case>,
    },
    Forward {
        name: Name,
    },
    Enum {
        name: Name,
        literals: Vec<EnumLiteral>,
    },
    Bitmask {
        name: Name,
        flags: Vec<EnumLiteral>,
    },
    Bitset {
        name: Name,
        base: Option<ScopedName>,
        fields: Vec<BitField>,
    },
    /// A definition that carries no data or that a schema cannot represent, such as an interface.
    Unsupported {
        what: &'static str,
        name: Option<Name>,
    },
    Keylist(Keylist),
}

impl ItemKind {
    /// The name that the item declares, if it declares one.
    pub fn name(&self) -> Option<&Name> {
        match self {
            ItemKind::Module { name, .. }
            | ItemKind::Const { name, .. }
            | ItemKind::Struct { name, .. }
            | ItemKind::Probe { name, .. }
            | ItemKind::Union { name, .. }
            | ItemKind::Forward { name }
            | ItemKind::Enum { name, .. }
            | ItemKind::Bitmask { name, .. }
            | ItemKind::Bitset { name, .. } => Some(name),
            ItemKind::Unsupported { name, .. } => name.as_ref(),
            ItemKind::Typedef { .. } | ItemKind::TypedefOf { .. } | ItemKind::Keylist(_) => None,
        }
    }
}

pub(crate) struct Member {
    pub annotations: Vec<Annotation>,
    pub doc: Option<Rc<str>>,
    pub ty: TypeSpec,
    pub declarators: Vec<Declarator>,
}

/// An operation of a probe.
pub(crate) struct Operation {
    pub annotations: Vec<Annotation>,
    pub doc: Option<Rc<str>>,
    pub name: Name,
    pub parameters: Vec<Parameter>,
    /// What it returns, as a member; `None` for `void`.
    pub result: Option<Member>,
}

/// A parameter: a member with one declarator, and the structures that it is a member of.
pub(crate) struct Parameter {
    pub direction: Direction,
    pub member: Member,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
    InOut,
}

/// A declared name with its array dimensions.
pub(crate) struct Declarator {
    pub name: Name,
    pub dims: Vec<Expr>,
}

pub(crate) struct Case {
    /// The label's expression, or `None` for `default:`.
    pub labels: Vec<(Option<Expr>, Span)>,
    pub member: Member,
}

/// A literal of an enum or a flag of a bitmask.
pub(crate) struct EnumLiteral {
    pub annotations: Vec<Annotation>,
    pub name: Name,
}

pub(crate) struct BitField {
    pub annotations: Vec<Annotation>,
    pub width: Expr,
    pub ty: Option<TypeSpec>,
    pub names: Vec<Name>,
}

pub(crate) struct TypeSpec {
    pub kind: TypeKind,
    pub span: Span,
}

pub(crate) enum TypeKind {
    Primitive(Type),
    String {
        wide: bool,
        bound: Option<Expr>,
    },
    Sequence {
        element: Box<TypeSpec>,
        bound: Option<Expr>,
    },
    Map {
        key: Box<TypeSpec>,
        value: Box<TypeSpec>,
        bound: Option<Expr>,
    },
    Named(ScopedName),
    /// A type that a schema cannot represent, such as `any` or `fixed`. The parser has reported it.
    Unsupported,
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    Int(i128),
    Float(f64),
    Bool(bool),
    Char(u32),
    String(Rc<str>),
    Name(ScopedName),
    Unary(char, Box<Expr>),
    /// `<` and `>` stand for the shifts.
    Binary(char, Box<Expr>, Box<Expr>),
    /// A syntax error that the parser has reported.
    Wrong,
}
