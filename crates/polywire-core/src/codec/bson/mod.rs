//! BSON 1.1: documents of typed, named elements, as used by MongoDB.
//!
//! `spec/bson.md` defines the mapping. A structure is a document with an element for each member.
//! Lengths that depend on the value are filled in at the end of a document; others are constants in
//! the program. Decoding accepts elements in any order and is fastest in the writer's order.

use super::{BuiltIn, Evolution, OptionSpec, Properties, lower};
use crate::schema::{Def, DefKind, Schema, Type};

mod decimal;
mod decode;
mod delimiters;
mod encode;
mod get;
mod kind;
mod put;
mod validate;

pub use validate::validate;

/// The codec `bson`.
pub static BSON: BuiltIn = BuiltIn {
    name: "bson",
    properties: &Properties {
        summary: "BSON: binary documents of typed, named elements",
        text: false,
        self_describing: true,
        stateful: false,
        typical_use: "document stores, and peers without a schema that want numbers as numbers",
        specification: "bsonspec.org, version 1.1",
    },
    options: &[
        OptionSpec::new("enum", &["number", "name"], "enum literals as int32, or as their names; both are accepted"),
        OptionSpec::new(
            "null",
            &["omit", "write"],
            "absent members are omitted, or written as null; both are accepted",
        ),
    ],
    evolution: Evolution::Names,
    encode: |options, schema, layout| {
        let dialect = encode::Encode {
            forms: kind::Forms::new(schema, options.value("enum") == Some("name")),
            write_null: options.value("null") == Some("write"),
        };
        let mut program = lower::encode::lower(&dialect, schema, layout)?;
        if !is_document(schema) {
            program.root = encode::wrapped(dialect.forms.kind(schema.root()), program.root);
        }
        Ok(program)
    },
    decode: |_, writer, reader, layout| {
        let mut program = lower::decode::lower(&decode::Decode, writer, reader, layout)?;
        if !is_document(writer) {
            program.root = decode::wrapped(program.root);
        }
        Ok(program)
    },
};

/// Name of the only element of a document that wraps a value of a type that is not a document.
const VALUE: &str = "value";

/// True if a value of the schema's root type is a document. Other roots are wrapped in one.
fn is_document(schema: &Schema) -> bool {
    match schema.resolve(schema.root()) {
        Type::Map { .. } => true,
        ty => matches!(schema.def_of(ty), Some(Def { kind: DefKind::Struct { .. } | DefKind::Union { .. }, .. })),
    }
}
