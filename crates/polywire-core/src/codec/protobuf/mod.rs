//! The wire format of Protobuf, with messages as in proto3.
//!
//! `spec/protobuf.md` defines the mapping, and `polywire idl proto` writes message definitions for
//! peers that use `protoc`. A structure is a message; [`field_numbers`] returns the numbers of its
//! fields.

use super::{BuiltIn, Evolution, Properties, lower};

mod decode;
mod delimiters;
mod encode;
mod get;
mod kinds;
mod merge;
mod put;
mod repeated;
mod varint;

pub use kinds::{DISCRIMINATOR_NUMBER, field_numbers};

/// The codec `protobuf`.
pub static PROTOBUF: BuiltIn = BuiltIn {
    name: "protobuf",
    properties: &Properties {
        summary: "Protobuf: numbered fields, as in proto3 messages",
        text: false,
        self_describing: false,
        stateful: false,
        typical_use: "peers with proto files, and types that grow",
        specification: "protobuf.dev, encoding and proto3",
    },
    options: &[],
    evolution: Evolution::Numbers,
    encode: |_, schema, layout| lower::encode::lower(&encode::Encode::new(schema), schema, layout),
    decode: |_, writer, reader, layout| {
        let dialect = decode::Decode::new(writer);
        let mut program = lower::decode::lower(&dialect, writer, reader, layout)?;
        program.root = match kinds::is_message(writer, writer.root()) {
            true => decode::message_root(program.root),
            false => dialect.wrapped_root(program.root),
        };
        program.adapter = dialect.merges().then_some(&merge::MERGE);
        Ok(program)
    },
};
