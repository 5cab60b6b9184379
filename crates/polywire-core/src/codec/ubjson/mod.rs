//! UBJSON, draft 12: the data model of JSON in binary.
//!
//! `spec/ubjson.md` defines the mapping. Sequences of plain numbers are written as typed containers
//! and read from any container.

use super::{
    BuiltIn, Evolution, OptionSpec, Properties,
    lower::{
        self,
        kinds::{self, Decode, Encode, Style},
    },
};
use crate::program::{Limits, io::CodecError};

mod format;

/// The codec `ubjson`.
pub static UBJSON: BuiltIn = BuiltIn {
    name: "ubjson",
    properties: &Properties {
        summary: "UBJSON: JSON's values in binary, with typed arrays",
        text: false,
        self_describing: true,
        stateful: false,
        typical_use: "peers without a schema that exchange arrays of numbers",
        specification: "ubjson.org, draft 12",
    },
    options: &[
        Style::ENUM,
        OptionSpec::new(
            "null",
            &["omit", "write"],
            "absent members are omitted, or written as null; both are accepted",
        ),
    ],
    evolution: Evolution::Names,
    encode: |options, schema, layout| {
        lower::encode::lower(&Encode::<format::Format>::new(Style::of(options)), schema, layout)
    },
    decode: |options, writer, reader, layout| {
        lower::decode::lower(&Decode::<format::Format>::new(Style::of(options)), writer, reader, layout)
    },
};

/// Checks that `bytes` are exactly one well-formed value. Does not check that text is UTF-8;
/// neither does decoding in values that it skips.
///
/// ```
/// use polywire_core::{codec::ubjson, program::Limits};
///
/// assert!(ubjson::validate(b"{i\x01a[$U#i\x02\x01\x02}", &Limits::default()).is_ok());
/// assert!(ubjson::validate(b"{i\x01a[$U#i\x02\x01}", &Limits::default()).is_err());
/// ```
pub fn validate(bytes: &[u8], limits: &Limits) -> Result<(), CodecError> {
    kinds::validate::<format::Format>(bytes, limits)
}
