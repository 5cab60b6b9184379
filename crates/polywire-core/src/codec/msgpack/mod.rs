//! MessagePack: a compact, self-describing binary format.
//!
//! `spec/msgpack.md` defines the mapping. A structure is a map of its members by name or, with the
//! option `struct=array`, an array of their values. Decoding accepts all kinds, including those of
//! older versions, and skips extensions such as timestamps.

use super::{
    BuiltIn, Evolution, OptionSpec, Properties,
    lower::{
        self,
        kinds::{Decode, Encode, Style},
    },
};

mod format;

pub use format::validate;

/// The codec `msgpack`.
pub static MSGPACK: BuiltIn = BuiltIn {
    name: "msgpack",
    properties: &Properties {
        summary: "MessagePack: compact binary values with names",
        text: false,
        self_describing: true,
        stateful: false,
        typical_use: "peers in many languages, without a schema, that want small messages",
        specification: "github.com/msgpack/msgpack, spec.md of 2017",
    },
    options: &[
        Style::STRUCT,
        Style::ENUM,
        OptionSpec::new(
            "null",
            &["omit", "write"],
            "absent members are omitted from maps, or written as nil; both are accepted",
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
