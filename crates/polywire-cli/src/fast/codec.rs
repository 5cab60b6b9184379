//! Converts the messages of a FAST feed between bytes, records and JSON. The feed's templates
//! define the type.

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use polywire::{
    Record, Shape,
    codec::{Decoder, Encoder, Options, fast::Fast, json::JSON},
    extend::program::{CodecError, State},
    schema::{DefKind, Type},
};

use super::{Feed, Reset};

/// A decoder and an encoder of the same stream. Each decoded message is encoded again, to see
/// whether that gives the same bytes.
pub struct Codec {
    decoder: Decoder<Record>,
    encoder: Encoder<Record>,
    /// The states of decoder and encoder; `None` if each message stands alone.
    states: Option<Box<[State; 2]>>,
    to_json: Encoder<Record>,
    from_json: Decoder<Record>,
    record: Record,
    /// Names of the templates.
    templates: Vec<String>,
    /// The type is a union of several templates, not the structure of a single one.
    several: bool,
    encoded: Vec<u8>,
    json: Vec<u8>,
}

impl Codec {
    pub fn new(feed: &Feed) -> anyhow::Result<Codec> {
        let (fast, schema) = Fast::feed(feed.templates()?).with_context(|| feed.template.display().to_string())?;
        let shape: Arc<Shape> = Shape::of(&schema)?;
        let options = Options::default();
        let with = feed.options();
        let root = match schema.root() {
            Type::Def(id) => Some(schema.def(*id)),
            _ => None,
        };
        let (templates, several) = match root.map(|root| &root.kind) {
            Some(DefKind::Union { cases, .. }) => {
                (cases.iter().map(|case| case.member.name.to_string()).collect(), true)
            }
            _ => (vec![schema.name().to_owned()], false),
        };
        let (decoder, encoder) =
            (Decoder::for_shape(&fast, &with, &schema, &shape)?, Encoder::for_shape(&fast, &with, &shape)?);
        let states = decoder.state().zip(encoder.state()).map(|(decoding, encoding)| Box::new([decoding, encoding]));
        Ok(Codec {
            states: states.filter(|_| feed.reset != Reset::Message),
            to_json: Encoder::for_shape(&JSON, &options, &shape)?,
            from_json: Decoder::for_shape(&JSON, &options, &schema, &shape)?,
            record: Record::new(&shape),
            decoder,
            encoder,
            templates,
            several,
            encoded: Vec::new(),
            json: Vec::new(),
        })
    }

    /// Resets the dictionaries.
    pub fn reset(&mut self) {
        self.states.iter_mut().flat_map(|states| states.iter_mut()).for_each(State::reset);
    }

    /// Returns the feed's encoder and decoder.
    pub fn ends(&self) -> (Encoder<Record>, Decoder<Record>) {
        (self.encoder.clone(), self.decoder.clone())
    }

    /// Decodes the message at the start of `bytes`, and returns its length.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<usize, CodecError> {
        self.read(bytes, true)
    }

    fn read(&mut self, bytes: &[u8], keep: bool) -> Result<usize, CodecError> {
        let Codec { decoder, record, states, .. } = self;
        match states {
            None => decoder.decode(bytes, record),
            Some(states) => {
                let [decoding, _] = &mut **states;
                let decoded = decoder.decode_with(decoding, keep, bytes, record);
                if decoded.is_err() {
                    // The state is unchanged. The caller decides where decoding continues.
                    decoding.mend();
                }
                decoded
            }
        }
    }

    /// Encodes the record; the bytes are as short as the templates allow.
    pub fn encode(&mut self) -> Result<&[u8], CodecError> {
        let Codec { encoder, record, states, encoded, .. } = self;
        encoded.clear();
        match states {
            None => encoder.encode(record, encoded)?,
            Some(states) => {
                let [_, encoding] = &mut **states;
                encoder.encode_with(encoding, true, record, encoded)?;
            }
        }
        Ok(&self.encoded)
    }

    /// Returns the template's name, and the record as JSON.
    pub fn json(&mut self) -> anyhow::Result<(String, String)> {
        self.json.clear();
        self.to_json.encode(&self.record, &mut self.json)?;
        let text = std::str::from_utf8(&self.json)?;
        if let (false, [only]) = (self.several, &self.templates[..]) {
            return Ok((only.clone(), text.to_owned()));
        }
        // In JSON, a union is an object with the member of its case: {"NAME":{...}}.
        let inside = text.strip_prefix("{\"").and_then(|text| text.strip_suffix('}'));
        let (name, value) = inside.and_then(|text| text.split_once("\":")).context("a union is an object in JSON")?;
        Ok((name.to_owned(), value.to_owned()))
    }

    /// Reads a message in the form of [`Codec::json`].
    pub fn take_json(&mut self, template: &str, message: &str) -> anyhow::Result<()> {
        if !self.templates.iter().any(|known| known == template) {
            return Err(anyhow!("there is no template '{template}'; there are {}", self.templates.join(", ")));
        }
        let wrapped;
        let text = match self.several {
            false => message,
            true => {
                wrapped = format!("{{\"{template}\":{message}}}");
                &wrapped
            }
        };
        self.from_json.decode(text.as_bytes(), &mut self.record)?;
        Ok(())
    }

    /// Returns the current message.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Returns true if `bytes` decode to exactly this record. The stream then continues after them;
    /// otherwise it is unchanged.
    pub fn means(&mut self, bytes: &[u8], record: &Record) -> bool {
        // The first pass keeps no state, so that wrong bytes have no effect.
        [false, true]
            .iter()
            .all(|keep| matches!(self.read(bytes, *keep), Ok(used) if used == bytes.len() && self.record == *record))
    }
}
