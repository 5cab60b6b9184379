//! Types and formats of streams. Streams of many nodes with the same type and format share a
//! decoder.

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

/// The type and the format of streams.
pub struct Kind {
    schema: Schema,
    key: Key,
    decoder: OnceLock<Result<Decoder<Record>, String>>,
}

/// The input from which a decoder is made.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    schema: Vec<u8>,
    codec: String,
    options: String,
    configuration: Vec<u8>,
}

impl Kind {
    /// Returns the type of the samples.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the encoded type, as it was received.
    pub fn schema_bytes(&self) -> &[u8] {
        &self.key.schema
    }

    /// Returns the document that configures the format; empty if there is none.
    pub fn configuration(&self) -> &[u8] {
        &self.key.configuration
    }

    /// Returns whether the stream has this type and format.
    pub(super) fn is_of(&self, stream: &StreamDescription) -> bool {
        let Key { schema, codec, options, configuration } = &self.key;
        (schema, codec, options, configuration)
            == (&stream.schema, &stream.codec, &stream.options, &stream.configuration)
    }

    /// Returns the decoder. The first call makes it.
    pub(super) fn decoder(&self) -> Result<&Decoder<Record>, &str> {
        let made = self.decoder.get_or_init(|| self.key.decoder(&self.schema));
        made.as_ref().map_err(String::as_str)
    }
}

impl Key {
    fn of(stream: &StreamDescription) -> Key {
        Key {
            schema: stream.schema.clone(),
            codec: stream.codec.clone(),
            options: stream.options.clone(),
            configuration: stream.configuration.clone(),
        }
    }

    fn bytes(&self) -> usize {
        self.schema.len() + self.configuration.len()
    }

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

/// The kinds of all streams.
pub(super) struct Kinds {
    most: usize,
    most_bytes: usize,
    known: BTreeMap<Key, Weak<Kind>>,
}

impl Kinds {
    pub fn new(most: usize, most_bytes: usize) -> Kinds {
        Kinds { most, most_bytes, known: BTreeMap::new() }
    }

    pub fn of(&mut self, stream: &StreamDescription) -> Result<Arc<Kind>, Rejection> {
        let key = Key::of(stream);
        if let Some(known) = self.known.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let wrong = |error| Rejection::Wrong(format!("stream {}: the type cannot be read: {error}", stream.number));
        let schema = Schema::from_bytes(&stream.schema, &SchemaLimits::default()).map_err(wrong)?;
        self.known.retain(|_, kind| kind.strong_count() > 0);
        let bytes: usize = self.known.keys().map(Key::bytes).sum();
        if self.known.len() >= self.most || bytes + key.bytes() > self.most_bytes {
            return Err(Rejection::Full(format!("{} types", self.known.len())));
        }
        let kind = Arc::new(Kind { schema, key: key.clone(), decoder: OnceLock::new() });
        self.known.insert(key, Arc::downgrade(&kind));
        Ok(kind)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.schema.name(), self.key.codec)
    }
}
