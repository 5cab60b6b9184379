//! FAST templates: what a message's fields are, in order, and how each refers to what was sent
//! before.
//!
//! [`TemplateSet::parse`] reads the XML of the FAST specification 1.1 (section 5 and its schema),
//! and says where it is wrong; [`TemplateSet::to_xml`] writes it.
//!
//! ```
//! use polywire_core::codec::fast::template::TemplateSet;
//!
//! let set = TemplateSet::parse(
//!     r#"<templates xmlns="http://www.fixprotocol.org/ns/fast/td/1.1">
//!          <template name="Quote" id="7"><uInt32 name="seq"><increment value="1"/></uInt32></template>
//!        </templates>"#,
//! )?;
//! assert_eq!(set.templates[0].id, Some(7));
//! let wrong = TemplateSet::parse("<template name='T'><decimal name='px'><increment/></decimal></template>").unwrap_err();
//! assert_eq!(wrong.to_string(), "[S2] line 1, column 39: the operator 'increment' does not go with the type of 'px'");
//! # Ok::<(), polywire_core::codec::fast::template::TemplateError>(())
//! ```

use alloc::{boxed::Box, string::String, vec::Vec};
use core::fmt;

mod endless;
mod read;
mod scan;
mod value;
mod write;

pub(crate) use value::range;

/// The namespace of template definitions.
pub const NAMESPACE: &str = "http://www.fixprotocol.org/ns/fast/td/1.1";

/// What it was before the specification 1.1. What such documents say they say with the same
/// elements, and what they have beside those is refused by name.
pub const NAMESPACE_BEFORE: &str = "http://www.fixprotocol.org/ns/template-definition";

/// What a template document may ask for. Documents from strangers are held to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateLimits {
    /// Bytes of XML.
    pub bytes: usize,
    /// Templates.
    pub templates: usize,
    /// Instructions, all templates together.
    pub instructions: usize,
    /// Groups and sequences inside each other.
    pub depth: usize,
    /// Bytes of initial values, all together.
    pub initial_bytes: usize,
}

impl Default for TemplateLimits {
    fn default() -> Self {
        TemplateLimits { bytes: 8 << 20, templates: 4096, instructions: 1 << 16, depth: 32, initial_bytes: 1 << 20 }
    }
}

/// The templates of one document.
///
/// Made in code:
///
/// ```
/// use polywire_core::codec::fast::template::{
///     Dictionary, Field, FieldType, Group, Initial, Instruction, Name, Operator, OperatorKind, Template, TemplateSet,
/// };
///
/// let sequence = Field::new("seq", FieldType::U32).with(OperatorKind::Increment).starting(Initial::Int(1));
/// let price = Field { operator: Operator { kind: OperatorKind::Delta, dictionary: Dictionary::Template, ..Operator::default() },
///     ..Field::new("px", FieldType::Decimal) };
/// let venue = Group { name: Name::local("venue"), optional: true,
///     instructions: vec![Instruction::Field(Field::new("mic", FieldType::Ascii).with(OperatorKind::Copy))], ..Group::default() };
/// let template = Template {
///     name: Name::local("Trade"),
///     id: Some(9),
///     instructions: vec![Instruction::Field(sequence), Instruction::Field(price), Instruction::Group(venue)],
///     ..Template::default()
/// };
/// let set = TemplateSet { templates: vec![template] };
/// assert_eq!(TemplateSet::parse(&set.to_xml())?, set);
/// assert_eq!(set.named(&Name::local("Trade")), set.with_id(9));
/// assert!(OperatorKind::Delta.has_dictionary() && !OperatorKind::Default.has_dictionary());
/// # Ok::<(), polywire_core::codec::fast::template::TemplateError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateSet {
    /// In order.
    pub templates: Vec<Template>,
}

/// A name in a namespace; without one the namespace is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The namespace.
    pub namespace: String,
    /// The name in it.
    pub local: String,
}

impl Name {
    /// A name without a namespace.
    pub fn local(name: impl Into<String>) -> Name {
        Name { namespace: String::new(), local: name.into() }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.is_empty() {
            true => f.write_str(&self.local),
            false => write!(f, "{{{}}}{}", self.namespace, self.local),
        }
    }
}

/// A template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// How static references name it.
    pub name: Name,
    /// What stands for it on the wire. A template without one can only be referred to.
    pub id: Option<u32>,
    /// All dictionaries are reset before a message of it.
    pub reset: bool,
    /// The application's type, which names a dictionary.
    pub type_ref: Option<Name>,
    /// What it consists of.
    pub instructions: Vec<Instruction>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// A field.
    Field(Field),
    /// Instructions with a presence map of their own.
    Group(Group),
    /// Instructions that are repeated.
    Sequence(Sequence),
    /// The instructions of another template, in this one's place and presence map.
    Static(Name),
    /// A message of any template that has an id, with its own presence map.
    Dynamic,
}

/// A field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: Name,
    /// It may be absent.
    pub optional: bool,
    /// Its type.
    pub ty: FieldType,
    /// How it refers to what was sent before.
    pub operator: Operator,
    /// For a decimal whose parts have operators of their own: the mantissa's, the exponent's being
    /// [`Field::operator`].
    pub mantissa: Option<Operator>,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldType {
    /// An integer of some bits: 8, 16, 32 or 64. Those of 8 and 16 bits are a common extension.
    Int {
        /// It has a sign.
        signed: bool,
        /// Its width.
        bits: u8,
    },
    /// A scaled number: an exponent of ten from -63 to 63 and a mantissa of 64 bits.
    Decimal,
    /// Characters of 7 bits.
    Ascii,
    /// UTF-8 behind its length.
    Unicode,
    /// Bytes behind their length.
    Bytes,
}

impl FieldType {
    /// `uInt32`, which counts and identifies.
    pub const U32: FieldType = FieldType::Int { signed: false, bits: 32 };

    /// The element's name.
    pub fn element(self) -> &'static str {
        match self {
            FieldType::Int { signed: true, bits: 8 } => "int8",
            FieldType::Int { signed: true, bits: 16 } => "int16",
            FieldType::Int { signed: true, bits: 32 } => "int32",
            FieldType::Int { signed: true, .. } => "int64",
            FieldType::Int { signed: false, bits: 8 } => "uInt8",
            FieldType::Int { signed: false, bits: 16 } => "uInt16",
            FieldType::Int { signed: false, bits: 32 } => "uInt32",
            FieldType::Int { signed: false, .. } => "uInt64",
            FieldType::Decimal => "decimal",
            FieldType::Ascii | FieldType::Unicode => "string",
            FieldType::Bytes => "byteVector",
        }
    }
}

/// How a field refers to what was sent before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operator {
    /// Which.
    pub kind: OperatorKind,
    /// Where the previous value is kept.
    pub dictionary: Dictionary,
    /// Under which key; the field's own name if none.
    pub key: Option<Name>,
    /// The value before there is one.
    pub initial: Option<Initial>,
}

/// The operators of FAST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperatorKind {
    /// The value as it is.
    #[default]
    None,
    /// Always the initial value.
    Constant,
    /// Left out if it is the initial value.
    Default,
    /// Left out if it is the previous value.
    Copy,
    /// Left out if it is one more than the previous value.
    Increment,
    /// The difference to the previous value.
    Delta,
    /// The end of a string whose beginning is the previous value's.
    Tail,
}

impl OperatorKind {
    /// The element's name; none for the absence of one.
    pub fn element(self) -> Option<&'static str> {
        Some(match self {
            OperatorKind::None => return None,
            OperatorKind::Constant => "constant",
            OperatorKind::Default => "default",
            OperatorKind::Copy => "copy",
            OperatorKind::Increment => "increment",
            OperatorKind::Delta => "delta",
            OperatorKind::Tail => "tail",
        })
    }

    /// True where previous values are kept.
    pub fn has_dictionary(self) -> bool {
        matches!(self, OperatorKind::Copy | OperatorKind::Increment | OperatorKind::Delta | OperatorKind::Tail)
    }
}

/// Where a previous value is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dictionary {
    /// One for each template.
    Template,
    /// One for each type of the application.
    Type,
    /// One for all.
    #[default]
    Global,
    /// One of this name.
    Named(String),
}

/// An initial value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initial {
    /// Of an integer.
    Int(i128),
    /// Of a decimal, without trailing zeros in the mantissa.
    Decimal {
        /// Power of ten.
        exponent: i32,
        /// Its factor.
        mantissa: i64,
    },
    /// Of a string, or of bytes.
    Bytes(Box<[u8]>),
}

/// Instructions with a presence map of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: Name,
    /// It may be absent.
    pub optional: bool,
    /// The application's type.
    pub type_ref: Option<Name>,
    /// What is inside.
    pub instructions: Vec<Instruction>,
}

/// Instructions that are repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Its name.
    pub name: Name,
    /// It may be absent.
    pub optional: bool,
    /// The application's type.
    pub type_ref: Option<Name>,
    /// How many: a `uInt32`, optional if the sequence is.
    pub length: Field,
    /// An element.
    pub instructions: Vec<Instruction>,
}

/// The specification's number of an error that can be seen without a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StaticCode {
    /// It is not well-formed, or not a template document.
    S1,
    /// The operator does not go with the field's type.
    S2,
    /// The initial value is none of the field's type.
    S3,
    /// A constant without a value.
    S4,
    /// A mandatory field with a default, without a value.
    S5,
    /// A static reference to a template that is not there.
    D8,
    /// Static references that lead back to where they stand.
    Endless,
    /// It asks for more than [`TemplateLimits`].
    Limit,
}

/// Why a document is no set of templates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("[{code:?}] line {line}, column {column}: {what}")]
#[non_exhaustive]
pub struct TemplateError {
    /// The specification's number.
    pub code: StaticCode,
    /// Line in the document, from 1; 0 if it is about no place in it.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What is wrong, for people.
    pub what: String,
}

impl TemplateSet {
    /// Reads a document: `<templates>`, or a single `<template>`.
    pub fn parse(xml: &str) -> Result<TemplateSet, TemplateError> {
        TemplateSet::parse_within(xml, &TemplateLimits::default())
    }

    /// The same with limits of your own.
    ///
    /// ```
    /// use polywire_core::codec::fast::template::{StaticCode, TemplateLimits, TemplateSet};
    /// let one = TemplateLimits { templates: 1, ..TemplateLimits::default() };
    /// let two = "<templates><template name='A'/><template name='B'/></templates>";
    /// assert_eq!(TemplateSet::parse_within(two, &one).unwrap_err().code, StaticCode::Limit);
    /// ```
    pub fn parse_within(xml: &str, limits: &TemplateLimits) -> Result<TemplateSet, TemplateError> {
        read::read(xml, limits)
    }

    /// Writes the document that [`TemplateSet::parse`] makes the same set of.
    pub fn to_xml(&self) -> String {
        write::write(self)
    }

    /// The template with a name.
    pub fn named(&self, name: &Name) -> Option<&Template> {
        self.templates.iter().find(|template| template.name == *name)
    }

    /// The template with an id.
    pub fn with_id(&self, id: u32) -> Option<&Template> {
        self.templates.iter().find(|template| template.id == Some(id))
    }
}

impl Field {
    /// A mandatory field without an operator.
    pub fn new(name: impl Into<String>, ty: FieldType) -> Field {
        let operator = Operator::default();
        Field { name: Name::local(name), optional: false, ty, operator, mantissa: None }
    }

    /// The same with an operator that has no initial value.
    pub fn with(mut self, kind: OperatorKind) -> Field {
        self.operator.kind = kind;
        self
    }

    /// The same with an initial value.
    pub fn starting(mut self, initial: Initial) -> Field {
        self.operator.initial = Some(initial);
        self
    }
}
