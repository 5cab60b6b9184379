//! CBOR (RFC 8949): a compact, self-describing binary format.
//!
//! `spec/cbor.md` defines the mapping. A structure is a map of its members by name or, with the
//! option `struct=array`, an array of their values. Decoding accepts half floats, indefinite
//! lengths and bignums, and skips tags that have no meaning for the type.
//!
//! ```
//! use polywire_core::codec::{Decoder, Encoder, Options, cbor::CBOR};
//!
//! #[derive(Debug, Default, PartialEq, polywire_derive::Message)]
//! struct Pump { id: u32, name: String }
//!
//! let (pump, options, mut bytes) = (Pump { id: 7, name: "P".into() }, Options::default(), Vec::new());
//! let encoder = Encoder::<Pump>::new(&CBOR, &options)?;
//! encoder.encode(&pump, &mut bytes)?;
//! assert_eq!(bytes, b"\xA2\x62id\x07\x64name\x61P");
//! let mut read = Pump::default();
//! Decoder::new(&CBOR, &options, encoder.schema())?.decode(&bytes, &mut read)?;
//! assert_eq!(read, pump);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::sync::Arc;

use super::{
    Codec, LowerResult, OptionSpec, Options, Properties,
    lower::{
        self,
        kinds::{self, Decode, Encode, Style},
    },
};
use crate::{
    layout::Layout,
    program::{Limits, io::CodecError},
    schema::Schema,
};

mod format;
mod half;
mod sort;

/// The codec `cbor`.
pub static CBOR: Cbor = Cbor;

/// See [`CBOR`].
pub struct Cbor;

static PROPERTIES: Properties = Properties {
    summary: "CBOR: compact binary values with names",
    text: false,
    self_describing: true,
    stateful: false,
    typical_use: "peers without a schema, small devices, and signed data (deterministic)",
    specification: "RFC 8949",
};

static OPTIONS: &[OptionSpec] = &[
    Style::STRUCT,
    Style::ENUM,
    OptionSpec::new(
        "null",
        &["omit", "write"],
        "absent members are omitted from maps, or written as null; both are accepted",
    ),
    OptionSpec::new(
        "deterministic",
        &[],
        "members and map entries sorted by the bytes of their keys, floats as short as possible (section 4.2.1)",
    ),
];

impl Codec for Cbor {
    fn name(&self) -> &'static str {
        "cbor"
    }

    fn properties(&self) -> &'static Properties {
        &PROPERTIES
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn lower_encode(&self, options: &Options, schema: &Schema, layout: &Arc<Layout>) -> LowerResult {
        lower::encode::lower(&Encode::<format::Format>::new(style(options)), schema, layout)
    }

    fn lower_decode(&self, options: &Options, writer: &Schema, reader: &Schema, layout: &Arc<Layout>) -> LowerResult {
        lower::decode::lower(&Decode::<format::Format>::new(style(options)), writer, reader, layout)
    }
}

fn style(options: &Options) -> Style {
    Style { sorted: options.has("deterministic"), ..Style::of(options) }
}

/// Checks that `bytes` are exactly one well-formed value. Does not check that text is UTF-8;
/// neither does decoding in values that it skips.
///
/// ```
/// use polywire_core::{codec::cbor, program::Limits};
///
/// assert!(cbor::validate(b"\x9F\xC1\x01\xF9\x3C\x00\xFF", &Limits::default()).is_ok());
/// assert!(cbor::validate(b"\x9F\xC1\x01\xF9\x3C\x00", &Limits::default()).is_err());
/// ```
pub fn validate(bytes: &[u8], limits: &Limits) -> Result<(), CodecError> {
    kinds::validate::<format::Format>(bytes, limits)
}
