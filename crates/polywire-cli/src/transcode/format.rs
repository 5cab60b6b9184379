//! A format as specified on the command line: a codec with options, its configuration document, and
//! a compressor. Reads the files that the format names.

use std::{fs, sync::Arc};

use anyhow::Context as _;
use polywire::{
    Record, Schema, Shape, Wire,
    codec::{self, BuildError, Codec, Decoder, Encoder, Options, json::JSON},
    compress::{self, Compressor, Settings},
};
use serde::de::{Error as _, IgnoredAny};

use crate::outcome::Misuse;

/// How messages are encoded.
pub struct Format {
    codec: &'static dyn Codec,
    /// Replaces `codec` if the format names a document that configures it.
    configured: Option<Arc<dyn Codec>>,
    pub options: Options,
    pub compressor: Option<(&'static dyn Compressor, Settings, Vec<u8>)>,
}

impl Format {
    /// Makes the format of a wire. The names in the wire were checked when the command line was
    /// parsed.
    pub fn of(wire: &Wire) -> anyhow::Result<Format> {
        let auto = || Misuse("a codec is expected, not 'auto': `polywire codecs` lists them".into());
        let codec = codec::find(&wire.codec.name).ok_or_else(auto)?;
        let compressor = match &wire.compressor {
            Some(choice) if choice.name != "none" => {
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

    /// Like [`Format::of`], for bare payloads. Rejects a compressor, because other programs do not
    /// know the compressors' envelope.
    pub fn of_foreign(wire: &Wire) -> anyhow::Result<Format> {
        let format = Format::of(wire)?;
        match &format.compressor {
            None => Ok(format),
            Some((compressor, ..)) => {
                let text = format!("bare payloads cannot name a compressor: leave out +{}", compressor.name());
                Err(Misuse(text).into())
            }
        }
    }

    /// Returns the format of JSON lines.
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

    /// Returns true if a message shows where it ends, so that messages can follow each other
    /// without framing. A trial decides: of two messages in a row, the decoder must read only the
    /// first. JSON is an exception: its codec rejects further bytes, but [`end_of_json`] finds the
    /// end.
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

/// Returns the length of the JSON text at the start of `bytes`.
pub fn end_of_json(bytes: &[u8]) -> Result<usize, serde_json::Error> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    values.next().unwrap_or_else(|| Err(serde_json::Error::custom("there is no value")))?;
    Ok(values.byte_offset())
}
