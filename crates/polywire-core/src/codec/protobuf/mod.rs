//! The wire format of Protobuf, with messages as in proto3.
//!
//! `spec/protobuf.md` defines the mapping, and `polywire idl proto` writes message definitions for
//! peers that use `protoc`. A structure is a message; [`field_numbers`] returns the numbers of its
//! fields.
//!
//! ```
//! use polywire_core::codec::{Decoder, Encoder, Options, protobuf::PROTOBUF};
//!
//! #[derive(Debug, Default, PartialEq, polywire_derive::Message)]
//! struct Pump { id: u32, name: String }
//!
//! let (pump, options, mut bytes) = (Pump { id: 7, name: "P".into() }, Options::default(), Vec::new());
//! let encoder = Encoder::<Pump>::new(&PROTOBUF, &options)?;
//! encoder.encode(&pump, &mut bytes)?;
//! assert_eq!(bytes, b"\x08\x07\x12\x01P");
//! let mut read = Pump::default();
//! Decoder::new(&PROTOBUF, &options, encoder.schema())?.decode(&bytes, &mut read)?;
//! assert_eq!(read, pump);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::sync::Arc;

use super::{Codec, Evolution, LowerResult, OptionSpec, Options, Properties, lower};
use crate::{layout::Layout, schema::Schema};

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
pub static PROTOBUF: Protobuf = Protobuf;

/// See [`PROTOBUF`].
pub struct Protobuf;

static PROPERTIES: Properties = Properties {
    summary: "Protobuf: numbered fields, as in proto3 messages",
    text: false,
    self_describing: false,
    stateful: false,
    typical_use: "peers with proto files, and types that grow",
    specification: "protobuf.dev, encoding and proto3",
};

impl Codec for Protobuf {
    fn name(&self) -> &'static str {
        "protobuf"
    }

    fn properties(&self) -> &'static Properties {
        &PROPERTIES
    }

    fn evolution(&self) -> Evolution {
        Evolution::Numbers
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn lower_encode(&self, _: &Options, schema: &Schema, layout: &Arc<Layout>) -> LowerResult {
        lower::encode::lower(&encode::Encode::new(schema), schema, layout)
    }

    fn lower_decode(&self, _: &Options, writer: &Schema, reader: &Schema, layout: &Arc<Layout>) -> LowerResult {
        let dialect = decode::Decode::new(writer);
        let mut program = lower::decode::lower(&dialect, writer, reader, layout)?;
        program.root = match kinds::is_message(writer, writer.root()) {
            true => decode::message_root(program.root),
            false => dialect.wrapped_root(program.root),
        };
        program.adapter = dialect.merges().then_some(&merge::MERGE);
        Ok(program)
    }
}
