//! Types and formats of streams: those of many nodes share a decoder.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock, Weak},
};

use polywire::{
    Record, Schema, Shape,
    codec::{self, Codec, Decoder, Options},
    schema::SchemaLimits,
};

use super::Rejection;
use crate::packet::StreamDescription;

/// A type and a format.
pub struct Kind {
    schema: Schema,
    format: Format,
    decoder: OnceLock<Result<Decoder<Record>, String>>,
}

/// What is needed to make a decoder.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Format {
    codec: String,
    options: String,
    configuration: Vec<u8>,
}

impl Kind {
    /// The type of the samples.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The decoder, which the first call makes.
    pub(super) fn decoder(&self) -> Result<&Decoder<Record>, &str> {
        let made = self.decoder.get_or_init(|| self.format.decoder(&self.schema));
        made.as_ref().map_err(String::as_str)
    }
}

impl Format {
    fn decoder(&self, schema: &Schema) -> Result<Decoder<Record>, String> {
        let known = codec::find(&self.codec).ok_or_else(|| format!("unknown codec '{}'", self.codec))?;
        let configured;
        let codec: &dyn Codec = if self.configuration.is_empty() {
            known
        } else {
            configured = known.configured(&self.configuration).map_err(|error| error.to_string())?;
            &*configured
        };
        let options: Options = self.options.parse().map_err(|error: codec::LowerError| error.to_string())?;
        let shape = Shape::of(schema).map_err(|error| error.to_string())?;
        Decoder::for_shape(codec, &options, schema, &shape).map_err(|error| error.to_string())
    }
}

/// The kinds that streams have.
pub(super) struct Kinds {
    most: usize,
    known: BTreeMap<(Vec<u8>, Format), Weak<Kind>>,
}

impl Kinds {
    pub fn new(most: usize) -> Kinds {
        Kinds { most, known: BTreeMap::new() }
    }

    pub fn of(&mut self, stream: &StreamDescription) -> Result<Arc<Kind>, Rejection> {
        let format = Format {
            codec: stream.codec.clone(),
            options: stream.options.clone(),
            configuration: stream.configuration.clone(),
        };
        let key = (stream.schema.clone(), format);
        if let Some(known) = self.known.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let wrong = |error| Rejection::Wrong(format!("stream {}: the type cannot be read: {error}", stream.number));
        let schema = Schema::from_bytes(&stream.schema, &SchemaLimits::default()).map_err(wrong)?;
        self.known.retain(|_, kind| kind.strong_count() > 0);
        if self.known.len() >= self.most {
            return Err(Rejection::Full(format!("{} types", self.most)));
        }
        let kind = Arc::new(Kind { schema, format: key.1.clone(), decoder: OnceLock::new() });
        self.known.insert(key, Arc::downgrade(&kind));
        Ok(kind)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.schema.name(), self.format.codec)
    }
}
