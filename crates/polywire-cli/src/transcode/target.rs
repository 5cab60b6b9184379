//! Where messages go: JSON lines or frames.

use std::{collections::BTreeMap, fs, io::Write as _, sync::Arc};

use anyhow::Context as _;
use polywire::{
    Record, Shape, Wire,
    codec::{self, Codec, DynEncoder, Options, json::JSON},
    compress::{self, Compressor, Packer, Settings, none::NONE},
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Frame, Hello, Start, StreamEncoder},
    schema::DocumentHash,
};

use super::{Counting, source::Message};

/// A file of messages in the making.
pub struct Target {
    out: Counting,
    /// Frames in this format; JSON lines without.
    format: Option<Format>,
    frames: StreamEncoder,
    streams: BTreeMap<usize, Stream>,
    /// What the codec wrote, what is written to the file.
    encoded: Vec<u8>,
    bytes: Vec<u8>,
}

struct Format {
    codec: &'static dyn Codec,
    /// By a document that the format names, instead of it.
    configured: Option<Arc<dyn Codec>>,
    options: Options,
    compressor: Option<(&'static dyn Compressor, Settings, Vec<u8>)>,
}

/// All messages of a stream have one shape.
struct Stream {
    shape: Arc<Shape>,
    encoder: DynEncoder,
    packer: Option<Packer>,
    channel: ChannelId,
}

impl Target {
    pub fn new(to: Option<&Wire>, out: Counting) -> anyhow::Result<Target> {
        let format = to.map(Format::of).transpose()?;
        let (frames, mut bytes) = (StreamEncoder::default(), Vec::new());
        let mut target =
            Target { out, format, frames, streams: BTreeMap::new(), encoded: Vec::new(), bytes: Vec::new() };
        if target.format.is_some() {
            target.frames.hello(&Hello { node: Id128::ZERO, incarnation: 1 }, &mut bytes);
            target.out.write_all(&bytes).context("cannot write")?;
        }
        Ok(target)
    }

    /// Writes a message. Ends of instances without a value have no place among lines.
    pub fn put(&mut self, message: &Message<'_>) -> anyhow::Result<()> {
        self.bytes.clear();
        self.encoded.clear();
        if let Some(value) = message.value {
            self.open(message, value)?;
        }
        let Some(stream) = self.streams.get_mut(&message.stream) else { return Ok(()) };
        if let Some(value) = message.value {
            stream.encoder.encode(value, &mut self.encoded)?;
        }
        if self.format.is_none() {
            if message.value.is_some() {
                self.encoded.push(b'\n');
                self.out.write_all(&self.encoded).context("cannot write")?;
            }
            return Ok(());
        }
        let payload = match &mut stream.packer {
            None => &self.encoded,
            Some(packer) => {
                packer.pack(&self.encoded, &mut self.bytes);
                &self.bytes
            }
        };
        let mut head = Vec::with_capacity(64);
        // Each message stands alone, which a stateful codec has to be told.
        let stateful = self.format.as_ref().is_some_and(|format| format.codec.properties().stateful);
        let anchor = stateful.then_some(message.envelope.sequence);
        let envelope = Envelope { channel: stream.channel, anchor, ..message.envelope };
        self.frames.data(&envelope, payload.len(), &mut head)?;
        self.out.write_all(&head).and_then(|()| self.out.write_all(payload)).context("cannot write")
    }

    /// Announces the stream, unless that was done, with the documents that it needs in front.
    fn open(&mut self, message: &Message<'_>, value: &Record) -> anyhow::Result<()> {
        let known = self.streams.get(&message.stream);
        if known.is_some_and(|stream| Arc::ptr_eq(&stream.shape, value.shape())) {
            return Ok(());
        }
        let shape = value.shape().clone();
        let Some(format) = &self.format else {
            let encoder = DynEncoder::new(&JSON, &Options::default(), &shape)?;
            self.streams.insert(message.stream, Stream { shape, encoder, packer: None, channel: ChannelId::default() });
            return Ok(());
        };
        let codec = format.configured.as_deref().unwrap_or(format.codec);
        let encoder = DynEncoder::new(codec, &format.options, &shape)?;
        let mut head = Vec::new();
        let document = shape.schema().to_bytes();
        let schema = put_document(&self.frames, &document, &mut head);
        let configuration = codec.configuration().map(|document| put_document(&self.frames, &document, &mut head));
        let (mut packer, mut compressor) = (None, String::new());
        if let Some((which, settings, dictionary)) = &format.compressor {
            packer = Some(Packer::new(*which, settings, dictionary)?);
            let hash = (!dictionary.is_empty()).then(|| put_document(&self.frames, dictionary, &mut head));
            compressor = settings.announced(*which, hash.as_ref().map(|hash| hash as &dyn std::fmt::Display));
        }
        let announcement = Announcement {
            topic: message.announced.topic.clone(),
            writer: message.announced.writer,
            incarnation: message.announced.incarnation,
            type_name: shape.schema().name().into(),
            type_hash: Id128(shape.schema().type_hash().to_bytes()),
            schema,
            codec: format.codec.name().into(),
            options: format.options.to_string(),
            compressor,
            configuration,
        };
        let start = Start {
            sequence: message.envelope.sequence.saturating_sub(1),
            timestamp_ns: message.envelope.timestamp_ns,
        };
        let channel = self.frames.announce(&announcement, start, &mut head)?;
        self.out.write_all(&head).context("cannot write")?;
        self.streams.insert(message.stream, Stream { shape, encoder, packer, channel });
        Ok(())
    }

    /// Everything is written.
    pub fn finish(mut self) -> anyhow::Result<Counting> {
        if self.format.is_some() {
            self.bytes.clear();
            self.frames.control(&Frame::Bye, &mut self.bytes);
            self.out.write_all(&self.bytes).context("cannot write")?;
        }
        self.out.flush().context("cannot write")?;
        Ok(self.out)
    }
}

fn put_document(frames: &StreamEncoder, bytes: &[u8], out: &mut Vec<u8>) -> Id128 {
    let document = Id128(DocumentHash::of(bytes).to_bytes());
    frames.control(&Frame::Document { document, bytes: Some(bytes) }, out);
    document
}

impl Format {
    /// The wire's names were checked when the command line was read.
    fn of(wire: &Wire) -> anyhow::Result<Format> {
        let codec = codec::find(&wire.codec.name).context("a codec is expected, not 'auto'")?;
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
}
