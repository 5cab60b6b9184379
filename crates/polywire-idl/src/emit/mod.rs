//! Emitters: they write schemas as source text of other languages. Each target is one file.
//!
//! ```
//! use polywire_idl::{Compiler, emit};
//!
//! let document = Compiler::new().parse_str("a.idl", "@final struct A { @key long id; };").unwrap();
//! let schema = document.schema("A").unwrap();
//! assert_eq!(emit::idl(&schema).unwrap(), "@final\nstruct A {\n    @key int32 id;\n};\n");
//! ```

use polywire_core::schema::{Schema, Type};

use crate::document::Constant;

mod idl;
mod order;
mod proto;
mod rust;
mod xsd;

/// A target language.
///
/// ```
/// use polywire_idl::{emit::{self, EmitError, Emitter}, Compiler};
/// let document = Compiler::new().parse_str("a.idl", "struct A { @key long id; };").unwrap();
/// let schema = document.schema("A").unwrap();
/// let emitter: &Emitter = emit::emitter("rust").unwrap();
/// let text = (emitter.emit)(&schema, document.constants()).unwrap();
/// assert_eq!(Ok(text), emit::rust(&schema));
/// assert!(emit::proto(&schema).unwrap().contains("message A {"));
/// assert!(emit::xsd(&schema).unwrap().contains("<xs:schema"));
/// assert!(emit::EMITTERS.iter().any(|emitter| emitter.name == "idl"));
///
/// // A schema from a peer may have names that a language cannot have.
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
/// let mut types = SchemaBuilder::new();
/// let root = types.add(Def::structure("A", vec![Member::new("no name", Type::Bool)]));
/// let schema = types.finish(Type::Def(root)).unwrap();
/// assert!(matches!(emit::idl(&schema), Err(EmitError::Name { .. })));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Emitter {
    /// The name by which users select it.
    pub name: &'static str,
    /// The output, as a noun phrase of one line for `--help`.
    pub description: &'static str,
    /// Writes all definitions of a schema, and constants whose references are to that schema.
    pub emit: fn(&Schema, &[Constant]) -> Result<String, EmitError>,
}

/// All targets.
pub static EMITTERS: &[Emitter] = &[idl::EMITTER, proto::EMITTER, rust::EMITTER, xsd::EMITTER];

/// The target with this name.
pub fn emitter(name: &str) -> Option<&'static Emitter> {
    EMITTERS.iter().find(|e| e.name == name)
}

/// Writes IDL that compiles to an equal type. Every schema can be written.
pub fn idl(schema: &Schema) -> Result<String, EmitError> {
    (idl::EMITTER.emit)(schema, &[])
}

/// Writes proto3 messages. Maps with keys that Protobuf does not have are refused.
pub fn proto(schema: &Schema) -> Result<String, EmitError> {
    (proto::EMITTER.emit)(schema, &[])
}

/// Writes Rust types that derive `polywire::Message`.
pub fn rust(schema: &Schema) -> Result<String, EmitError> {
    (rust::EMITTER.emit)(schema, &[])
}

/// Writes an XML Schema for the documents of the codec `xml`.
pub fn xsd(schema: &Schema) -> Result<String, EmitError> {
    (xsd::EMITTER.emit)(schema, &[])
}

/// Why a schema cannot be written in a language. Schemas that were compiled from IDL can be written
/// as IDL; schemas from peers may contain what a language cannot express.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// A name is not an identifier of the target language.
    #[error("{def}: '{name}' is not an identifier")]
    Name {
        /// The definition that contains it.
        def: String,
        /// The name.
        name: String,
    },
    /// Two names become the same name in the target language.
    #[error("{def}: the name '{name}' would occur twice")]
    Collision {
        /// The definition that contains it.
        def: String,
        /// The name in the target language.
        name: String,
    },
    /// A constant cannot be written in the target language.
    #[error("{def}: {what}")]
    Value {
        /// The definition that contains it.
        def: String,
        /// Why it cannot be written.
        what: String,
    },
    /// Typedefs refer to each other, so that none can come first.
    #[error("{def}: this typedef and others contain each other")]
    Order {
        /// One of these typedefs.
        def: String,
    },
}

/// Whether the text is an identifier: letters, digits and underscores, not starting with a digit,
/// and no longer than the parser's limit.
fn is_identifier(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.len() <= 255 && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(good)
}

/// The shortest spelling that parses to the same value of type `ty`.
fn float_text(value: f64, ty: Option<&Type>) -> String {
    let single = value as f32;
    match matches!(ty, Some(Type::Float32)) && f64::from(single).to_bits() == value.to_bits() {
        true => format!("{single:?}"),
        false => format!("{value:?}"),
    }
}

/// The type of an annotation's arguments, if it is that of the member: `@min`, `@max` and `@range`.
fn argument_type<'a>(annotation: &str, member: &'a Type) -> Option<&'a Type> {
    matches!(annotation, "min" | "max" | "range").then_some(member)
}
