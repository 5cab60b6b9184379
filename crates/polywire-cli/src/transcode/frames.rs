//! Reads files of frames. Such a file is one direction of a stream as defined in `spec/frame.md`.
//! The documents that an announcement names come before its first message.

use std::{
    collections::BTreeMap,
    io::{BufRead, Read as _},
    sync::Arc,
};

use anyhow::{Context as _, anyhow, bail};
use polywire::{
    Record, Schema, Shape,
    codec::{self, Decoder, Options, stateful::StatefulReader},
    compress::{self, Limits, Unpacker, announced_dictionary},
    extend::{
        envelope::{Announcement, ChannelId, Envelope, Extensions, Id128},
        frame::{Frame, Step, StreamDecoder},
    },
    schema::{DocumentHash, SchemaLimits},
};

use super::message::{Message, Next, Place};

/// Reads the messages of all channels, each in the format of its channel's announcement.
pub struct Frames {
    name: String,
    from: Box<dyn BufRead>,
    /// Bytes that have been read. The next frame begins at `at`.
    buffer: Vec<u8>,
    at: usize,
    /// Extensions of the last message.
    extensions: Vec<u8>,
    decoder: StreamDecoder,
    documents: BTreeMap<Id128, Vec<u8>>,
    channels: BTreeMap<ChannelId, Channel>,
    streams: usize,
    /// The version of the type to read as; `None` for the writer's own.
    schema: Option<Schema>,
    topic: Option<String>,
}

struct Channel {
    announced: Box<Announcement>,
    stream: usize,
    /// The reader, made at the first message, because documents may arrive until then.
    reader: Option<Reader>,
}

struct Reader {
    unpacker: Option<Unpacker>,
    decoder: Decoder<Record>,
    record: Record,
    /// For a codec whose messages refer to earlier ones.
    stream: Option<StatefulReader>,
}

/// The result of reading a message.
enum Came {
    /// The message could be read; false if it ends an instance and has no value.
    Message(bool),
    Bad(String),
}

impl Frames {
    pub fn new(name: String, from: Box<dyn BufRead>, schema: Option<Schema>, topic: Option<String>) -> Frames {
        Frames {
            name,
            from,
            buffer: Vec::new(),
            at: 0,
            extensions: Vec::new(),
            decoder: StreamDecoder::default(),
            documents: BTreeMap::new(),
            channels: BTreeMap::new(),
            streams: 0,
            schema,
            topic,
        }
    }

    pub fn next(&mut self) -> anyhow::Result<Option<Next<'_>>> {
        loop {
            let step = self.decoder.step(self.buffer.get(self.at..).unwrap_or_default());
            let step = step.with_context(|| format!("{} is damaged", self.name))?;
            let (frame, used) = match step {
                Step::Frame { frame, used } => (frame, used),
                Step::Need(size) => match self.read(size)? {
                    true => continue,
                    false => return Ok(None),
                },
            };
            self.at += used;
            let Frame::Data(envelope, payload) = frame else {
                take(frame, &mut self.documents, &mut self.channels, &mut self.streams)?;
                continue;
            };
            let (stream, came) = match self.channels.get_mut(&envelope.channel) {
                Some(channel) if self.topic.as_ref().is_none_or(|topic| *topic == channel.announced.topic) => {
                    (channel.stream, channel.read(&envelope, payload, self.schema.as_ref(), &self.documents)?)
                }
                _ => continue,
            };
            self.extensions.clear();
            self.extensions.extend_from_slice(envelope.extensions.bytes());
            let envelope = Envelope { extensions: Extensions::default(), ..envelope };
            match came {
                Came::Bad(why) => {
                    let place = Place::Frame { file: &self.name, sequence: envelope.sequence, stream };
                    return Ok(Some(Next::Bad(format!("{place}: {why}"))));
                }
                Came::Message(has_value) => {
                    let channel = self.channels.get(&envelope.channel).context("it was there")?;
                    let value = channel.reader.as_ref().map(|reader| &reader.record).filter(|_| has_value);
                    let announced = &channel.announced;
                    let envelope = Envelope { extensions: Extensions::parse(&self.extensions)?, ..envelope };
                    let place = Place::Frame { file: &self.name, sequence: envelope.sequence, stream };
                    return Ok(Some(Next::Message(Message { stream, announced, envelope, value, place })));
                }
            }
        }
    }

    /// Reads until the buffer has `size` bytes; false at the end of the file.
    fn read(&mut self, size: usize) -> anyhow::Result<bool> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let cannot = || format!("cannot read {}", self.name);
        while self.buffer.len() < size {
            let more = self.from.fill_buf().with_context(cannot)?.len();
            if more == 0 {
                return match self.buffer.len() {
                    0 => Ok(false),
                    _ => bail!("{} ends in the middle of a frame", self.name),
                };
            }
            self.from.by_ref().take(more as u64).read_to_end(&mut self.buffer).with_context(cannot)?;
        }
        Ok(true)
    }
}

/// Handles a frame that is not a message.
fn take(
    frame: Frame<'_>,
    documents: &mut BTreeMap<Id128, Vec<u8>>,
    channels: &mut BTreeMap<ChannelId, Channel>,
    streams: &mut usize,
) -> anyhow::Result<()> {
    match frame {
        Frame::Announce { channel, announcement, .. } => {
            channels.insert(channel, Channel { announced: announcement, stream: *streams, reader: None });
            *streams += 1;
        }
        Frame::Retire { channel } => {
            channels.remove(&channel);
        }
        Frame::Document { document, bytes: Some(bytes) } => {
            let hash = DocumentHash::of(bytes);
            if Id128(hash.to_bytes()) != document {
                bail!("the document {document} has the hash {hash}");
            }
            documents.insert(document, bytes.to_vec());
        }
        _ => {}
    }
    Ok(())
}

impl Channel {
    fn read(
        &mut self,
        envelope: &Envelope<'_>,
        payload: &[u8],
        schema: Option<&Schema>,
        documents: &BTreeMap<Id128, Vec<u8>>,
    ) -> anyhow::Result<Came> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => {
                let made = Reader::new(&self.announced, schema, documents);
                self.reader.insert(made.with_context(|| format!("topic '{}'", self.announced.topic))?)
            }
        };
        if let Some(id) = envelope.extensions.not_understood(&[]) {
            return Ok(Came::Bad(format!("extension {id} is required but not supported")));
        }
        let unpacked = match &mut reader.unpacker {
            None => payload,
            Some(unpacker) => match unpacker.unpack(payload) {
                Ok(unpacked) => unpacked,
                Err(error) => return Ok(Came::Bad(error.to_string())),
            },
        };
        if unpacked.is_empty() && envelope.kind != polywire::extend::envelope::Kind::Data {
            return Ok(Came::Message(false));
        }
        let Reader { decoder, record, stream, .. } = reader;
        let read = match stream {
            None => decoder.decode(unpacked, record).map_err(|error| error.to_string()),
            Some(stream) => {
                let decode = |state: &mut _, keep| decoder.decode_with(state, keep, unpacked, record);
                stream.read(envelope.sequence, envelope.anchor, decode).map_err(|error| error.to_string())
            }
        };
        Ok(match read {
            Ok(_) => Came::Message(true),
            Err(error) => Came::Bad(error),
        })
    }
}

impl Reader {
    fn new(
        announced: &Announcement,
        schema: Option<&Schema>,
        documents: &BTreeMap<Id128, Vec<u8>>,
    ) -> anyhow::Result<Reader> {
        let writer = match documents.get(&announced.schema) {
            Some(bytes) => {
                Schema::from_bytes(bytes, &SchemaLimits::default()).context("the schema of the topic cannot be read")?
            }
            None => schema.cloned().context("the file does not have its schema: add --idl FILE, and --type NAME")?,
        };
        let codec = codec::find(&announced.codec).ok_or_else(|| anyhow!("there is no codec '{}'", announced.codec))?;
        let options: Options = announced.options.parse()?;
        let shape: Arc<Shape> = Shape::of(schema.unwrap_or(&writer))?;
        let configured = match announced.configuration {
            None => None,
            Some(id) => {
                let document =
                    documents.get(&id).with_context(|| format!("the file does not have the document {id}"))?;
                Some(codec.configured(document)?)
            }
        };
        let decoder = Decoder::for_shape(configured.as_deref().unwrap_or(codec), &options, &writer, &shape)?;
        let (unpacker, stream) =
            (unpacker(&announced.compressor, documents)?, decoder.state().map(StatefulReader::new));
        Ok(Reader { unpacker, decoder, record: Record::new(&shape), stream })
    }
}

fn unpacker(announced: &str, documents: &BTreeMap<Id128, Vec<u8>>) -> anyhow::Result<Option<Unpacker>> {
    let name = announced.split(':').next().unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    let compressor = compress::find(name).ok_or_else(|| anyhow!("there is no compressor '{name}'"))?;
    let dictionary = match announced_dictionary(announced) {
        None => &[][..],
        Some(text) => {
            let hash: DocumentHash = text.parse().with_context(|| format!("dictionary '{text}'"))?;
            let bytes = documents.get(&Id128(hash.to_bytes()));
            bytes.ok_or_else(|| anyhow!("the file does not have the dictionary {hash}"))?
        }
    };
    Ok(Some(Unpacker::new(compressor, dictionary, Limits::default())?))
}
