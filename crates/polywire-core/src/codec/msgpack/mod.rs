//! MessagePack: a compact, self-describing binary format.
//!
//! `spec/msgpack.md` defines the mapping. A structure is a map of its members by name or, with the
//! option `struct=array`, an array of their values. Decoding accepts all kinds, including those of
//! older versions, and skips extensions such as timestamps.
//!
//! ```
//! use polywire_core::codec::{Decoder, Encoder, Options, msgpack::MSGPACK};
//!
//! #[derive(Debug, Default, PartialEq, polywire_derive::Message)]
//! struct Pump { id: u32, name: String }
//!
//! let (pump, options, mut bytes) = (Pump { id: 7, name: "P".into() }, Options::default(), Vec::new());
//! let encoder = Encoder::<Pump>::new(&MSGPACK, &options)?;
//! encoder.encode(&pump, &mut bytes)?;
//! assert_eq!(bytes, b"\x82\xA2id\x07\xA4name\xA1P");
//! let mut read = Pump::default();
//! Decoder::new(&MSGPACK, &options, encoder.schema())?.decode(&bytes, &mut read)?;
//! assert_eq!(read, pump);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::sync::Arc;

use super::{
    Codec, LowerResult, OptionSpec, Options, Properties,
    lower::{
        self,
        kinds::{Decode, Encode, Style},
    },
};
use crate::{layout::Layout, schema::Schema};

mod format;

pub use format::validate;

/// The codec `msgpack`.
pub static MSGPACK: MessagePack = MessagePack;

/// See [`MSGPACK`].
pub struct MessagePack;

static PROPERTIES: Properties = Properties {
    summary: "MessagePack: compact binary values with names",
    text: false,
    self_describing: true,
    stateful: false,
    typical_use: "peers in many languages, without a schema, that want small messages",
    specification: "github.com/msgpack/msgpack, spec.md of 2017",
};

static OPTIONS: &[OptionSpec] = &[
    Style::STRUCT,
    Style::ENUM,
    OptionSpec::new(
        "null",
        &["omit", "write"],
        "absent members are omitted from maps, or written as nil; both are accepted",
    ),
];

impl Codec for MessagePack {
    fn name(&self) -> &'static str {
        "msgpack"
    }

    fn properties(&self) -> &'static Properties {
        &PROPERTIES
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn lower_encode(&self, options: &Options, schema: &Schema, layout: &Arc<Layout>) -> LowerResult {
        lower::encode::lower(&Encode::<format::Format>::new(Style::of(options)), schema, layout)
    }

    fn lower_decode(&self, options: &Options, writer: &Schema, reader: &Schema, layout: &Arc<Layout>) -> LowerResult {
        lower::decode::lower(&Decode::<format::Format>::new(Style::of(options)), writer, reader, layout)
    }
}
