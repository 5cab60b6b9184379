//! JSON (RFC 8259), read and written directly from and to values, without a tree. `spec/json.md`
//! defines the mapping. The dialects are in `lower/json`, which `yaml` uses
//! too.

use alloc::{string::String, sync::Arc, vec::Vec};

use super::{
    BuildError, BuiltIn, Decoder, Encoder, Evolution, OptionSpec, Options, Properties,
    lower::json::{self as notation, Style, tokens},
};
use crate::{
    layout::{Record, RecordError, Shape},
    program::{Backend, Input, Limits, io::CodecError},
};

/// The codec `json`.
pub static JSON: BuiltIn = BuiltIn {
    name: "json",
    properties: &Properties {
        summary: "JSON text with the names of members",
        text: true,
        self_describing: true,
        stateful: false,
        typical_use: "browsers, scripts, logs, and peers without a schema",
        specification: "RFC 8259; spec/json.md",
    },
    options: &[
        OptionSpec::new("int64", &["number", "string"], "64-bit integers as numbers (default) or strings"),
        OptionSpec::new("enum", &["name", "number"], "enums by name (default) or as numbers"),
        OptionSpec::new("bytes", &["base64", "array"], "octets in base64 (default) or as an array of numbers"),
        OptionSpec::new("bitmask", &["number", "names"], "bitmasks as a number (default) or an array of names"),
        OptionSpec::new("null", &["omit", "write"], "absent members omitted (default) or written as null"),
        OptionSpec::new("pretty", &[], "several indented lines instead of one"),
    ],
    evolution: Evolution::Names,
    encode: |options, schema, layout| {
        let rewritten = options.has("pretty").then_some(&notation::PRETTY);
        notation::encode(Style::of(options), schema, layout, rewritten)
    },
    decode: |options, writer, reader, layout| notation::decode(Style::of(options), writer, reader, layout),
};

/// Why a record cannot be written as JSON or read from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// JSON cannot represent the type.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The text does not represent a value of the type, or a limit is exceeded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The record to read into cannot be created.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Conversion of single values. For many values, an [`Encoder`] or [`Decoder`] is faster.
///
/// ```
/// use polywire_core::layout::{Record, Shape};
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
///
/// let mut types = SchemaBuilder::new();
/// let members = vec![Member::new("level", Type::Int32).as_optional(), Member::new("name", Type::string())];
/// let waypoint = types.add(Def::structure("Waypoint", members));
/// let shape = Shape::of(&types.finish(Type::Def(waypoint))?)?;
///
/// let record = Record::from_json(&shape, r#"{"name": "RIVER", "level": 350}"#)?;
/// assert_eq!(record.i64("level")?, 350);
/// assert_eq!(record.to_json()?, r#"{"level":350,"name":"RIVER"}"#);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
impl Record {
    /// The value as JSON in one line.
    pub fn to_json(&self) -> Result<String, JsonError> {
        self.to_json_with(&Options::default())
    }

    /// The value as JSON, with options of the codec `json`.
    ///
    /// ```
    /// use polywire_core::codec::json::JsonError;
    /// use polywire_core::layout::{Record, Shape};
    /// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
    /// # let mut types = SchemaBuilder::new();
    /// # let counter = types.add(Def::structure("Counter", vec![Member::new("ticks", Type::Uint64)]));
    /// # let shape = Shape::of(&types.finish(Type::Def(counter))?)?;
    /// // `shape` is of struct Counter { uint64 ticks; };
    /// let record = Record::from_json(&shape, r#"{"ticks": 9007199254740993}"#)?;
    /// assert_eq!(record.to_json_with(&"int64=string".parse()?)?, r#"{"ticks":"9007199254740993"}"#);
    /// assert!(matches!(Record::from_json(&shape, r#"{"ticks": -1}"#), Err(JsonError::Codec(_))));
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    pub fn to_json_with(&self, options: &Options) -> Result<String, JsonError> {
        let encoder = Encoder::for_shape_with_backend(&JSON, options, self.shape(), Backend::Interpreter)?;
        let mut bytes = Vec::new();
        encoder.encode(self, &mut bytes)?;
        // The codec writes only UTF-8, so nothing is ever replaced.
        Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Makes a record from a JSON text.
    pub fn from_json(shape: &Arc<Shape>, text: &str) -> Result<Record, JsonError> {
        let decoder =
            Decoder::for_shape_with_backend(&JSON, &Options::default(), shape.schema(), shape, Backend::Interpreter)?;
        let mut record = Record::try_new(shape)?;
        decoder.decode(text.as_bytes(), &mut record)?;
        Ok(record)
    }
}

/// Checks that `bytes` are one JSON value of any kind: the grammar of RFC 8259, UTF-8, paired
/// surrogates, and no deeper nesting than the default [`Limits`] allow.
///
/// ```
/// use polywire_core::codec::json;
///
/// assert!(json::validate(br#" {"a": [1, 2.5e3, null]} "#).is_ok());
/// let error = json::validate(br#"{"a": [1, 2,]}"#).unwrap_err();
/// assert_eq!(error.offset, 12);
/// ```
pub fn validate(bytes: &[u8]) -> Result<(), CodecError> {
    validate_within(bytes, &Limits::default())
}

/// Like [`validate`], with other limits.
///
/// ```
/// use polywire_core::{codec::json::validate_within, program::Limits};
/// let flat = Limits { depth: 2, ..Limits::default() };
/// assert!(validate_within(b"[[1]]", &flat).is_ok());
/// assert!(validate_within(b"[[[1]]]", &flat).is_err());
/// ```
pub fn validate_within(bytes: &[u8], limits: &Limits) -> Result<(), CodecError> {
    Input::inspect(bytes, limits, |input| tokens::skip(input).then(|| tokens::end(input)))
}
