//! Writes messages to a file or to standard output: as bare payloads of one format, usually JSON
//! lines, or as frames.

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::{self, BufWriter, Write},
    sync::Arc,
};

use anyhow::Context as _;
use polywire::{
    Record, Shape,
    codec::Encoder,
    compress::Packer,
    extend::{
        envelope::{Announcement, ChannelId, Envelope, Id128},
        frame::{Frame, Hello, Start, StreamEncoder},
        framing::Framing,
    },
    schema::DocumentHash,
};

use super::{format::Format, message::Message};
use crate::outcome::Misuse;

/// A file of messages that is being written.
pub struct Target {
    out: Counting,
    format: Format,
    /// The framing of bare payloads; `None` for Polywire's frames.
    framing: Option<Framing>,
    frames: StreamEncoder,
    streams: BTreeMap<usize, Stream>,
    /// Bare payloads written so far.
    payloads: u64,
    /// The current message as the codec encoded it.
    encoded: Vec<u8>,
    /// The current message, compressed or framed for the file.
    bytes: Vec<u8>,
}

/// A stream of the input. All its messages have one shape.
struct Stream {
    shape: Arc<Shape>,
    encoder: Encoder<Record>,
    packer: Option<Packer>,
    channel: ChannelId,
    /// Whether messages show where they end.
    delimits_itself: bool,
}

/// Why the format cannot represent a message. It may represent others.
pub type Refused = String;

impl Target {
    /// Starts a file of bare payloads, or of frames if `framing` is `None`.
    pub fn new(format: Format, framing: Option<Framing>, out: Counting) -> anyhow::Result<Target> {
        let mut target = Target {
            out,
            format,
            framing,
            frames: StreamEncoder::default(),
            streams: BTreeMap::new(),
            payloads: 0,
            encoded: Vec::new(),
            bytes: Vec::new(),
        };
        if framing.is_none() {
            target.frames.hello(&Hello { node: Id128::ZERO, incarnation: 1 }, &mut target.bytes);
            target.out.write_all(&target.bytes).context("cannot write")?;
        }
        Ok(target)
    }

    /// Writes a message, or returns why the format cannot represent it. A file of bare payloads
    /// omits messages without a value.
    pub fn put(&mut self, message: &Message<'_>) -> anyhow::Result<Result<(), Refused>> {
        self.bytes.clear();
        self.encoded.clear();
        if let Some(value) = message.value {
            self.open(message, value)?;
        }
        let Some(stream) = self.streams.get_mut(&message.stream) else { return Ok(Ok(())) };
        if let Some(value) = message.value
            && let Err(error) = stream.encoder.encode(value, &mut self.encoded)
        {
            return Ok(Err(error.to_string()));
        }
        match self.framing {
            Some(_) if message.value.is_none() => Ok(Ok(())),
            Some(framing) => self.put_payload(framing, message.stream),
            None => self.put_frame(message),
        }
    }

    fn put_payload(&mut self, framing: Framing, stream: usize) -> anyhow::Result<Result<(), Refused>> {
        let runs_on = self.streams.get(&stream).is_some_and(|stream| !stream.delimits_itself);
        if framing == Framing::None && runs_on && self.payloads > 0 {
            let codec = self.format.codec().name();
            let text = format!(
                "a message of {codec} does not say where it ends, so a file with --to-framing none holds only one"
            );
            return Err(Misuse(text).into());
        }
        if let Err(error) = framing.put(&self.encoded, &mut self.bytes) {
            return Ok(Err(error.to_string()));
        }
        self.payloads += 1;
        self.out.write_all(&self.bytes).context("cannot write")?;
        Ok(Ok(()))
    }

    fn put_frame(&mut self, message: &Message<'_>) -> anyhow::Result<Result<(), Refused>> {
        let stream = self.streams.get_mut(&message.stream).context("it was opened")?;
        let payload = match &mut stream.packer {
            None => &self.encoded,
            Some(packer) => {
                packer.pack(&self.encoded, &mut self.bytes);
                &self.bytes
            }
        };
        let mut head = Vec::with_capacity(64);
        // Each message is decoded independently. The anchor says so to readers of a stateful codec.
        let anchor = self.format.codec().properties().stateful.then_some(message.envelope.sequence);
        let envelope = Envelope { channel: stream.channel, anchor, ..message.envelope };
        if let Err(error) = self.frames.data(&envelope, payload.len(), &mut head) {
            return Ok(Err(error.to_string()));
        }
        self.out.write_all(&head).and_then(|()| self.out.write_all(payload)).context("cannot write")?;
        Ok(Ok(()))
    }

    /// Makes an encoder for the message's stream, unless it has one. In a file of frames, also
    /// announces the stream, after the documents that the announcement names.
    fn open(&mut self, message: &Message<'_>, value: &Record) -> anyhow::Result<()> {
        let known = self.streams.get(&message.stream);
        if known.is_some_and(|stream| Arc::ptr_eq(&stream.shape, value.shape())) {
            return Ok(());
        }
        let shape = value.shape().clone();
        let encoder = self.format.encoder(&shape)?;
        let (packer, channel) = match self.framing {
            Some(_) => (None, ChannelId::default()),
            None => self.announce(message, &shape)?,
        };
        let delimits_itself = self.framing != Some(Framing::None) || self.format.delimits_itself(&shape);
        self.streams.insert(message.stream, Stream { shape, encoder, packer, channel, delimits_itself });
        Ok(())
    }

    fn announce(&mut self, message: &Message<'_>, shape: &Shape) -> anyhow::Result<(Option<Packer>, ChannelId)> {
        let (format, mut head) = (&self.format, Vec::new());
        let document = shape.schema().to_bytes();
        let schema = put_document(&self.frames, &document, &mut head);
        let configuration =
            format.codec().configuration().map(|document| put_document(&self.frames, &document, &mut head));
        let (mut packer, mut compressor) = (None, String::new());
        if let Some((which, settings, dictionary)) = &format.compressor {
            packer = Some(Packer::new(*which, settings, dictionary)?);
            let hash = (!dictionary.is_empty()).then(|| put_document(&self.frames, dictionary, &mut head));
            compressor = settings.announced(*which, hash.as_ref().map(|hash| hash as &dyn Display));
        }
        let announcement = Announcement {
            topic: message.announced.topic.clone(),
            writer: message.announced.writer,
            incarnation: message.announced.incarnation,
            type_name: shape.schema().name().into(),
            type_hash: Id128(shape.schema().type_hash().to_bytes()),
            schema,
            codec: format.codec().name().into(),
            options: format.options.to_string(),
            compressor,
            configuration,
            offer: message.announced.offer.clone(),
        };
        let start = Start {
            sequence: message.envelope.sequence.saturating_sub(1),
            timestamp_ns: message.envelope.timestamp_ns,
        };
        let channel = self.frames.announce(&announcement, start, &mut head)?;
        self.out.write_all(&head).context("cannot write")?;
        Ok((packer, channel))
    }

    /// Ends the file and flushes it.
    pub fn finish(mut self) -> anyhow::Result<Counting> {
        if self.framing.is_none() {
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

/// An output that counts its bytes.
pub struct Counting {
    pub out: BufWriter<Box<dyn Write>>,
    pub bytes: u64,
}

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
