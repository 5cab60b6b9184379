//! A feed of one template with values as JSON, for the FAST tests.

use polywire_core::{
    codec::{
        BuildError, Decoder, Encoder, Options,
        fast::{Fast, template::TemplateSet},
        json::JSON,
    },
    layout::{Record, Shape},
    program::{Backend, CodecError, FaultKind, State},
};
pub use polywire_testing::{backends, unhex};
use std::sync::Arc;

/// Writer and reader of a feed.
pub struct Feed {
    pub shape: Arc<Shape>,
    pub encoder: Encoder<Record>,
    pub decoder: Decoder<Record>,
    pub writer: State,
    pub reader: State,
    from_json: Decoder<Record>,
    to_json: Encoder<Record>,
}

/// A document with one template, whose id is 1.
pub fn template(inside: &str) -> String {
    format!("<templates><template name='T' id='1'>{inside}</template></templates>")
}

impl Feed {
    pub fn try_new(xml: &str, options: &str, backend: Backend) -> Result<Feed, BuildError> {
        let set = TemplateSet::parse(xml).unwrap_or_else(|error| panic!("{error}\n{xml}"));
        let (codec, schema) = Fast::feed(set)?;
        let shape = Shape::of(&schema).unwrap();
        let options: Options = options.parse().unwrap();
        let encoder = Encoder::for_shape_with_backend(&codec, &Options::default(), &shape, backend)?;
        let decoder = Decoder::for_shape_with_backend(&codec, &options, &schema, &shape, backend)?;
        let (writer, reader) = (encoder.state().unwrap(), decoder.state().unwrap());
        let json = Options::default();
        let from_json = Decoder::for_shape_with_backend(&JSON, &json, &schema, &shape, Backend::Interpreter)?;
        let to_json = Encoder::for_shape_with_backend(&JSON, &json, &shape, Backend::Interpreter)?;
        Ok(Feed { shape, encoder, decoder, writer, reader, from_json, to_json })
    }

    pub fn new(xml: &str, backend: Backend) -> Feed {
        Feed::try_new(xml, "", backend).unwrap_or_else(|error| panic!("{error}\n{xml}"))
    }

    pub fn record(&self, json: &str) -> Record {
        let mut record = Record::new(&self.shape);
        self.from_json.decode(json.as_bytes(), &mut record).unwrap_or_else(|error| panic!("{json}: {error}"));
        record
    }

    pub fn json(&self, record: &Record) -> String {
        let mut text = Vec::new();
        self.to_json.encode(record, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    pub fn encode(&mut self, json: &str) -> Result<Vec<u8>, CodecError> {
        let (record, mut bytes) = (self.record(json), Vec::new());
        self.encoder.encode_with(&mut self.writer, true, &record, &mut bytes).map(|()| bytes)
    }

    pub fn decode(&mut self, bytes: &[u8]) -> Result<String, CodecError> {
        let mut record = Record::new(&self.shape);
        let taken = self.decoder.decode_with(&mut self.reader, true, bytes, &mut record)?;
        assert_eq!(taken, bytes.len(), "all of it is the message");
        Ok(self.json(&record))
    }

    /// What a message is refused for; the stream goes on as if it had not been.
    pub fn refused(&mut self, message: &str) -> Option<FaultKind> {
        let outcome = self.decode(&unhex(message));
        self.reader.mend();
        outcome.err().map(|error| error.kind)
    }
}

/// Upper-case hexadecimal digits, with a blank between bytes, as the specification prints them.
pub fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(" ")
}
