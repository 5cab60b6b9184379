//! FAST templates: the fields of messages in order, and how each field refers to earlier values.
//!
//! [`TemplateSet::parse`] reads the XML format of the FAST specification 1.1 (section 5 and its
//! schema) and reports the position of errors. [`TemplateSet::to_xml`] writes the format. The codec
//! in the parent module uses these types, and so do users who make or load templates.
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

/// The XML namespace of template definitions.
pub const NAMESPACE: &str = "http://www.fixprotocol.org/ns/fast/td/1.1";

/// The XML namespace before specification 1.1. Such documents use the same elements; other elements
/// of that version are refused by name.
pub const NAMESPACE_BEFORE: &str = "http://www.fixprotocol.org/ns/template-definition";

/// Limits on a template document, which may come from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateLimits {
    /// Largest size of the XML in bytes.
    pub bytes: usize,
    /// Largest number of templates.
    pub templates: usize,
    /// Largest number of instructions of all templates together.
    pub instructions: usize,
    /// Largest nesting depth of groups and sequences.
    pub depth: usize,
    /// Largest size of all initial values together, in bytes.
    pub initial_bytes: usize,
}

impl Default for TemplateLimits {
    fn default() -> Self {
        TemplateLimits { bytes: 8 << 20, templates: 4096, instructions: 1 << 16, depth: 32, initial_bytes: 1 << 20 }
    }
}

/// The templates of one document.
///
/// A set can also be made in code:
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
    /// The templates, in order.
    pub templates: Vec<Template>,
}

/// A name in a namespace. The namespace is empty if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The namespace.
    pub namespace: String,
    /// The name within the namespace.
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
    /// The name that static references use.
    pub name: Name,
    /// The id on the wire. A template without an id can only be referenced by others.
    pub id: Option<u32>,
    /// True if all dictionaries are reset before a message with this template.
    pub reset: bool,
    /// The application type, which selects a dictionary.
    pub type_ref: Option<Name>,
    /// The instructions in order.
    pub instructions: Vec<Instruction>,
}

/// An instruction of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// A field.
    Field(Field),
    /// Instructions with a presence map of their own.
    Group(Group),
    /// Repeated instructions.
    Sequence(Sequence),
    /// A reference that inserts the instructions of another template here, in this presence map.
    Static(Name),
    /// A complete message with any template that has an id, including its presence map.
    Dynamic,
}

/// A field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: Name,
    /// True if the field may be absent.
    pub optional: bool,
    /// Its type.
    pub ty: FieldType,
    /// How the field refers to earlier values. For a decimal with separate operators, the
    /// exponent's.
    pub operator: Operator,
    /// The mantissa's operator, for a decimal whose parts have separate operators.
    pub mantissa: Option<Operator>,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldType {
    /// An integer of 8, 16, 32 or 64 bits. 8 and 16 bits are a common extension of FAST.
    Int {
        /// True for a signed integer.
        signed: bool,
        /// Width in bits.
        bits: u8,
    },
    /// A scaled number: a decimal exponent from -63 to 63 and a mantissa of 64 bits.
    Decimal,
    /// Characters of 7 bits, with a stop bit.
    Ascii,
    /// UTF-8 with a length in front.
    Unicode,
    /// Bytes with a length in front.
    Bytes,
}

impl FieldType {
    /// `uInt32`, the type of lengths and template ids.
    pub const U32: FieldType = FieldType::Int { signed: false, bits: 32 };

    /// The name of the XML element.
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

/// How a field refers to earlier values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operator {
    /// The kind of operator.
    pub kind: OperatorKind,
    /// The dictionary of the previous value.
    pub dictionary: Dictionary,
    /// The key of the previous value in the dictionary. `None` stands for the field's own name.
    pub key: Option<Name>,
    /// The initial value, used as long as there is no previous value.
    pub initial: Option<Initial>,
}

/// The operators of FAST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperatorKind {
    /// The value is always written.
    #[default]
    None,
    /// The value is always the initial value.
    Constant,
    /// The value is omitted if it equals the initial value.
    Default,
    /// The value is omitted if it equals the previous value.
    Copy,
    /// The value is omitted if it is one more than the previous value.
    Increment,
    /// The difference from the previous value is written.
    Delta,
    /// The end of a string is written; its beginning is that of the previous value.
    Tail,
}

impl OperatorKind {
    /// The name of the XML element. `None` for [`OperatorKind::None`].
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

    /// True if the operator uses previous values.
    pub fn has_dictionary(self) -> bool {
        matches!(self, OperatorKind::Copy | OperatorKind::Increment | OperatorKind::Delta | OperatorKind::Tail)
    }
}

/// The dictionary in which a previous value is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dictionary {
    /// One dictionary for each template.
    Template,
    /// One dictionary for each application type.
    Type,
    /// One dictionary for all templates.
    #[default]
    Global,
    /// A user-defined dictionary.
    Named(String),
}

/// An initial value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initial {
    /// The initial value of an integer.
    Int(i128),
    /// The initial value of a decimal. The mantissa has no trailing zeros.
    Decimal {
        /// Power of ten.
        exponent: i32,
        /// The factor of the power of ten.
        mantissa: i64,
    },
    /// The initial value of a string or byte vector.
    Bytes(Box<[u8]>),
}

/// Instructions with a presence map of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: Name,
    /// True if the group may be absent.
    pub optional: bool,
    /// The application type.
    pub type_ref: Option<Name>,
    /// The instructions inside.
    pub instructions: Vec<Instruction>,
}

/// Repeated instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Its name.
    pub name: Name,
    /// True if the sequence may be absent.
    pub optional: bool,
    /// The application type.
    pub type_ref: Option<Name>,
    /// The number of elements: a `uInt32`, optional if the sequence is.
    pub length: Field,
    /// The instructions of an element.
    pub instructions: Vec<Instruction>,
}

/// Error codes of the specification for errors in template documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StaticCode {
    /// The document is not well-formed XML, or not a template document.
    S1,
    /// The operator is not allowed for the field's type.
    S2,
    /// The initial value is not a value of the field's type.
    S3,
    /// A constant has no value.
    S4,
    /// A mandatory field with the default operator has no value.
    S5,
    /// A static reference names a template that does not exist.
    D8,
    /// Static references lead back to themselves. Not a code of the specification.
    Endless,
    /// The document exceeds [`TemplateLimits`]. Not a code of the specification.
    Limit,
}

/// Why a document is not a valid set of templates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("[{code:?}] line {line}, column {column}: {what}")]
#[non_exhaustive]
pub struct TemplateError {
    /// The error code.
    pub code: StaticCode,
    /// Line in the document, from 1. 0 if the error has no position.
    pub line: u32,
    /// Column, from 1. 0 if the error has no position.
    pub column: u32,
    /// A description for people.
    pub what: String,
}

impl TemplateSet {
    /// Parses a document: `<templates>`, or a single `<template>`. Applies the default limits.
    pub fn parse(xml: &str) -> Result<TemplateSet, TemplateError> {
        TemplateSet::parse_within(xml, &TemplateLimits::default())
    }

    /// Parses a document with custom limits.
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

    /// Writes a document that [`TemplateSet::parse`] turns into the same set.
    pub fn to_xml(&self) -> String {
        write::write(self)
    }

    /// The template with this name.
    pub fn named(&self, name: &Name) -> Option<&Template> {
        self.templates.iter().find(|template| template.name == *name)
    }

    /// The template with this id.
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

    /// The same field with another operator, without changing the initial value.
    pub fn with(mut self, kind: OperatorKind) -> Field {
        self.operator.kind = kind;
        self
    }

    /// The same field with an initial value.
    pub fn starting(mut self, initial: Initial) -> Field {
        self.operator.initial = Some(initial);
        self
    }
}
