//! UBJSON, draft 12: the data model of JSON in binary.
//!
//! `spec/ubjson.md` defines the mapping. Sequences of plain numbers are written as typed containers
//! and read from any container.
//!
//! ```
//! use polywire_core::codec::{Decoder, Encoder, Options, ubjson::UBJSON};
//!
//! #[derive(Debug, Default, PartialEq, polywire_derive::Message)]
//! struct Pump { id: u32, name: String }
//!
//! let (pump, options, mut bytes) = (Pump { id: 7, name: "P".into() }, Options::default(), Vec::new());
//! let encoder = Encoder::<Pump>::new(&UBJSON, &options)?;
//! encoder.encode(&pump, &mut bytes)?;
//! assert_eq!(bytes, b"{i\x02idi\x07i\x04nameSi\x01P}");
//! let mut read = Pump::default();
//! Decoder::new(&UBJSON, &options, encoder.schema())?.decode(&bytes, &mut read)?;
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

/// The codec `ubjson`.
pub static UBJSON: Ubjson = Ubjson;

/// See [`UBJSON`].
pub struct Ubjson;

static PROPERTIES: Properties = Properties {
    summary: "UBJSON: JSON's values in binary, with typed arrays",
    text: false,
    self_describing: true,
    stateful: false,
    typical_use: "peers without a schema that exchange arrays of numbers",
    specification: "ubjson.org, draft 12",
};

static OPTIONS: &[OptionSpec] = &[
    Style::ENUM,
    OptionSpec::new("null", &["omit", "write"], "absent members are omitted, or written as null; both are accepted"),
];

impl Codec for Ubjson {
    fn name(&self) -> &'static str {
        "ubjson"
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
