//! A format as the command line names it: a codec with options, the document that configures it,
//! and a compressor.

use std::{fs, sync::Arc};

use anyhow::Context as _;
use polywire::{
    Record, Schema, Shape, Wire,
    codec::{self, BuildError, Codec, Decoder, Encoder, Options, json::JSON},
    compress::{self, Compressor, NONE, Settings},
};
use serde::de::{Error as _, IgnoredAny};

use crate::outcome::Misuse;

/// How messages are written, or were.
pub struct Format {
    codec: &'static dyn Codec,
    /// By a document that the format names, instead of it.
    configured: Option<Arc<dyn Codec>>,
    pub options: Options,
    pub compressor: Option<(&'static dyn Compressor, Settings, Vec<u8>)>,
}

impl Format {
    /// The wire's names were checked when the command line was read.
    pub fn of(wire: &Wire) -> anyhow::Result<Format> {
        let auto = || Misuse("a codec is expected, not 'auto': `polywire codecs` lists them".into());
        let codec = codec::find(&wire.codec.name).ok_or_else(auto)?;
        let compressor = match &wire.compressor {
            Some(choice) if choice.name != NONE.name() => {
                let compressor = compress::find(&choice.name).context("there is no such compressor")?;
                let settings = Settings::parse(&choice.options, compressor)?;
                let dictionary = match &settings.dictionary {
                    Some(path) => fs::read(path).with_context(|| format!("cannot read {path}"))?,
                    None => Vec::new(),
                };
                Some((compressor, settings, dictionary))
            }
            _ => None,
        };
        let options: Options = wire.codec.options.parse()?;
        options.check(codec)?;
        let configured = match options.value("template") {
            None => None,
            Some(path) => {
                let document = fs::read(path).with_context(|| format!("cannot read {path}"))?;
                Some(codec.configured(&document).with_context(|| path.to_owned())?)
            }
        };
        Ok(Format { codec, configured, options: options.without("template"), compressor })
    }

    /// As [`Format::of`], of payloads that others read or wrote: they know nothing of our
    /// compressors' envelope.
    pub fn of_foreign(wire: &Wire) -> anyhow::Result<Format> {
        let format = Format::of(wire)?;
        match &format.compressor {
            None => Ok(format),
            Some((compressor, ..)) => {
                let text =
                    format!("a payload without frames says nothing of a compressor: leave out +{}", compressor.name());
                Err(Misuse(text).into())
            }
        }
    }

    /// JSON, as lines are.
    pub fn json() -> Format {
        Format { codec: &JSON, configured: None, options: Options::default(), compressor: None }
    }

    pub fn codec(&self) -> &dyn Codec {
        self.configured.as_deref().unwrap_or(self.codec)
    }

    pub fn is_json(&self) -> bool {
        self.codec().name() == JSON.name()
    }

    pub fn encoder(&self, shape: &Arc<Shape>) -> Result<Encoder<Record>, BuildError> {
        Encoder::for_shape(self.codec(), &self.options, shape)
    }

    pub fn decoder(&self, schema: &Schema, shape: &Arc<Shape>) -> Result<Decoder<Record>, BuildError> {
        Decoder::for_shape(self.codec(), &self.options, schema, shape)
    }

    /// True if a message says itself where it ends, so that several can stand one behind the other.
    /// It is tried: of two, the first one alone is read. The codec of JSON wants its message
    /// alone, but [`end_of_json`] finds the end.
    pub fn delimits_itself(&self, shape: &Arc<Shape>) -> bool {
        if self.is_json() {
            return true;
        }
        let mut record = Record::new(shape);
        let (Ok(encoder), Ok(decoder)) = (self.encoder(shape), self.decoder(shape.schema(), shape)) else {
            return false;
        };
        let mut bytes = Vec::new();
        let Ok(()) = encoder.encode(&record, &mut bytes) else { return false };
        let one = bytes.len();
        bytes.extend_from_within(..);
        one > 0 && decoder.decode(&bytes, &mut record) == Ok(one)
    }
}

/// Bytes of the JSON text that these begin with.
pub fn end_of_json(bytes: &[u8]) -> Result<usize, serde_json::Error> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    values.next().unwrap_or_else(|| Err(serde_json::Error::custom("there is no value")))?;
    Ok(values.byte_offset())
}
