//! A codec followed by a compressor, for `stages`, `emulated` and the frames of `live`. Each stage
//! can be called separately, so that it can be timed. Reads the files of dictionaries.

use std::{fs, path::Path, sync::Arc};

use polywire::{
    Record, Shape,
    codec::{
        self, Decoder, Encoder, Options,
        stateful::{Mode, StatefulReader, StatefulWriter},
    },
    compress::{self, Limits, Packer, Settings, Unpacker},
};

use crate::{Case, Error, Scenario, templates};

/// Number of messages from one key frame to the next, for chained messages.
const KEYS: u64 = 100;

/// A codec followed by a compressor.
pub struct Coding {
    wire: String,
    encoder: Encoder<Record>,
    decoder: Decoder<Record>,
    compression: Option<(Packer, Unpacker)>,
    streams: Option<Streams>,
}

/// State of both ends before the first message, for codecs whose messages refer to others.
struct Streams {
    writer: StatefulWriter,
    reader: StatefulReader,
}

/// A sender's position in a message sequence; empty if every message stands alone.
#[derive(Clone, Default)]
pub struct Writing {
    stream: Option<StatefulWriter>,
    sequence: u64,
}

impl Writing {
    /// Number of the last message, counted from 1.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// A receiver's position in a message sequence.
#[derive(Clone, Default)]
pub struct Reading(Option<StatefulReader>);

/// The parts from which a coding is built.
#[derive(Clone, Copy)]
pub struct Wire<'a> {
    /// `CODEC[:OPTIONS][@MODE]`.
    pub codec: &'a str,
    /// `none`, or `NAME[:SETTINGS]`.
    pub compressor: &'a str,
    /// The template named by the codec's `template=`, in XML.
    pub templates: Option<&'a str>,
    /// Folder of the dictionaries.
    pub folder: &'a Path,
}

impl<'a> Wire<'a> {
    pub fn of(scenario: &'a Scenario, case: &'a Case, templates: Option<&'a str>) -> Wire<'a> {
        Wire { codec: &case.codec, compressor: &case.compressor, templates, folder: &scenario.folder }
    }
}

impl Coding {
    /// Compiles for a writer's and a reader's version of a type.
    pub fn new(wire: &Wire<'_>, writer: &Arc<Shape>, reader: &Arc<Shape>) -> Result<Coding, Error> {
        let Wire { codec: text, compressor, templates, folder } = *wire;
        let wrong = |problem: String| Error::Wire { wire: format!("{text}+{compressor}"), problem };
        let plain = templates::split(text).map(|(_, plain)| plain);
        let plain = plain.as_deref().unwrap_or(text);
        let (codec, mode) = plain.split_once('@').unwrap_or((plain, "alone"));
        let (name, options) = codec.split_once(':').unwrap_or((codec, ""));
        let codec = codec::find(name).ok_or_else(|| wrong(format!("there is no codec '{name}'")))?;
        let configured = templates.map(|xml| codec.configured(xml.as_bytes())).transpose();
        let configured = configured.map_err(|error| wrong(error.to_string()))?;
        let codec = configured.as_deref().unwrap_or(codec);
        let options: Options = options.parse().map_err(|error| wrong(format!("{error}")))?;
        let encoder = Encoder::for_shape(codec, &options, writer).map_err(|error| wrong(error.to_string()))?;
        let decoder =
            Decoder::for_shape(codec, &options, writer.schema(), reader).map_err(|error| wrong(error.to_string()))?;
        let streams = streams(mode, &encoder, &decoder).map_err(&wrong)?;
        let compression = compression(compressor, folder).map_err(wrong)?;
        Ok(Coding { wire: format!("{text}+{compressor}"), encoder, decoder, compression, streams })
    }

    /// True if messages refer to other messages.
    pub fn is_stream(&self) -> bool {
        self.streams.is_some()
    }

    /// True if there is a compressor.
    pub fn compresses(&self) -> bool {
        self.compression.is_some()
    }

    /// The state of a sender before its first message.
    pub fn writing(&self) -> Writing {
        Writing { stream: self.streams.as_ref().map(|streams| streams.writer.clone()), sequence: 0 }
    }

    /// The state of a receiver before its first message.
    pub fn reading(&self) -> Reading {
        Reading(self.streams.as_ref().map(|streams| streams.reader.clone()))
    }

    /// Appends the encoded message and returns the number of the message it refers to, if any.
    pub fn encode(&self, writing: &mut Writing, record: &Record, out: &mut Vec<u8>) -> Result<Option<u64>, Error> {
        writing.sequence += 1;
        match &mut writing.stream {
            None => self.encoder.encode(record, out).map(|()| None),
            Some(stream) => {
                stream.write(writing.sequence, |state, keep| self.encoder.encode_with(state, keep, record, out))
            }
        }
        .map_err(|error| self.wrong(error.to_string()))
    }

    /// Reads the message with this sequence number, counted from 1. `anchor` is the number of
    /// the message it refers to, if any.
    pub fn decode(
        &self,
        reading: &mut Reading,
        sequence: u64,
        anchor: Option<u64>,
        bytes: &[u8],
        record: &mut Record,
    ) -> Result<(), Error> {
        let read = match &mut reading.0 {
            None => self.decoder.decode(bytes, record).map(drop).map_err(|error| error.to_string()),
            Some(stream) => stream
                .read(sequence, anchor, |state, keep| self.decoder.decode_with(state, keep, bytes, record))
                .map(drop)
                .map_err(|error| error.to_string()),
        };
        read.map_err(|problem| self.wrong(problem))
    }

    /// Appends the bytes that are transmitted for a message.
    pub fn pack(&mut self, message: &[u8], out: &mut Vec<u8>) {
        match &mut self.compression {
            Some((packer, _)) => packer.pack(message, out),
            None => out.extend_from_slice(message),
        }
    }

    /// Unpacks a transmitted message.
    pub fn unpack<'a>(&'a mut self, packed: &'a [u8]) -> Result<&'a [u8], Error> {
        let Some((_, unpacker)) = &mut self.compression else { return Ok(packed) };
        let wire = &self.wire;
        unpacker.unpack(packed).map_err(|error| Error::Wire { wire: wire.clone(), problem: error.to_string() })
    }

    fn wrong(&self, problem: String) -> Error {
        Error::Wire { wire: self.wire.clone(), problem }
    }
}

fn streams(mode: &str, encoder: &Encoder<Record>, decoder: &Decoder<Record>) -> Result<Option<Streams>, String> {
    let mode = match mode {
        "alone" => return Ok(None),
        "chained" => Mode::Chained,
        "anchored" => Mode::Anchored,
        _ => return Err(format!("'@{mode}' is none of @alone, @chained and @anchored")),
    };
    match (encoder.state(), decoder.state()) {
        (Some(writer), Some(reader)) => {
            Ok(Some(Streams { writer: StatefulWriter::new(writer, mode, KEYS), reader: StatefulReader::new(reader) }))
        }
        _ => Err("its messages refer to no others".into()),
    }
}

fn compression(text: &str, folder: &Path) -> Result<Option<(Packer, Unpacker)>, String> {
    if text == "none" {
        return Ok(None);
    }
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    let compressor = compress::find(name).ok_or_else(|| format!("there is no compressor '{name}'"))?;
    let settings = Settings::parse(settings, compressor).map_err(|error| error.to_string())?;
    let dictionary = match &settings.dictionary {
        Some(file) => fs::read(folder.join(file)).map_err(|error| format!("{file}: {error}"))?,
        None => Vec::new(),
    };
    let packer = Packer::new(compressor, &settings, &dictionary).map_err(|error| error.to_string())?;
    let unpacker = Unpacker::new(compressor, &dictionary, Limits::default()).map_err(|error| error.to_string())?;
    Ok(Some((packer, unpacker)))
}
