//! CBOR (RFC 8949): a compact, self-describing binary format.
//!
//! `spec/cbor.md` defines the mapping. A structure is a map of its members by name or, with the
//! option `struct=array`, an array of their values. Decoding accepts half floats, indefinite
//! lengths and bignums, and skips tags that have no meaning for the type.

use super::{
    BuiltIn, Evolution, OptionSpec, Options, Properties,
    lower::{
        self,
        kinds::{self, Decode, Encode, Style},
    },
};
use crate::program::{Limits, io::CodecError};

mod format;
mod half;
mod sort;

/// The codec `cbor`.
pub static CBOR: BuiltIn = BuiltIn {
    name: "cbor",
    properties: &Properties {
        summary: "CBOR: compact binary values with names",
        text: false,
        self_describing: true,
        stateful: false,
        typical_use: "peers without a schema, small devices, and signed data (deterministic)",
        specification: "RFC 8949",
    },
    options: &[
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
    ],
    evolution: Evolution::Names,
    encode: |options, schema, layout| {
        lower::encode::lower(&Encode::<format::Format>::new(style(options)), schema, layout)
    },
    decode: |options, writer, reader, layout| {
        lower::decode::lower(&Decode::<format::Format>::new(style(options)), writer, reader, layout)
    },
};

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
