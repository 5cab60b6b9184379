//! A sample that an intake returns to its owner, and its position.

use std::{fmt, sync::Arc};

use polywire::{
    Record, Schema,
    extend::program::{CodecError, Payload},
};

use super::Kind;
use crate::{
    Uuid,
    packet::{DataPacket, Reduction, StreamDescription},
};

/// The unique position of a sample: no two samples of any nodes have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The node.
    pub node: Uuid,
    /// The start of the node during which the sample was numbered.
    pub start: u64,
    /// The stream of that start.
    pub stream: u32,
    /// The sequence number in the stream.
    pub sequence: u64,
}

/// A sequence of samples of one instance, type and format.
#[derive(Debug)]
pub struct Stream {
    node: Uuid,
    start: u64,
    description: StreamDescription,
    kind: Arc<Kind>,
}

/// A sample, as it was received.
#[derive(Clone, Debug)]
pub struct Sample {
    pub(super) stream: Arc<Stream>,
    pub(super) missing: u64,
    pub(super) reduction: Reduction,
    pub(super) data: DataPacket,
}

/// Why a sample cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The stream has no decoder: its format is unknown here, or does not fit its type.
    #[error("{0}")]
    Format(String),
    /// The payload is invalid.
    #[error(transparent)]
    Payload(#[from] CodecError),
}

impl Stream {
    pub(super) fn new(node: Uuid, start: u64, described: &StreamDescription, kind: Arc<Kind>) -> Stream {
        let (name, instance, version) = (&described.node, &described.instance, &described.version);
        let (name, instance, version) = (name.clone(), instance.clone(), version.clone());
        let (codec, options) = (described.codec.clone(), described.options.clone());
        let StreamDescription { number, probe, .. } = *described;
        let (schema, configuration) = (Vec::new(), Vec::new());
        let description =
            StreamDescription { number, node: name, instance, probe, version, schema, codec, options, configuration };
        Stream { node, start, description, kind }
    }

    /// Returns whether the description is that of this stream.
    pub(super) fn is(&self, other: &StreamDescription) -> bool {
        let own = &self.description;
        (own.number, own.probe, &own.node, &own.instance, &own.version)
            == (other.number, other.probe, &other.node, &other.instance, &other.version)
            && self.kind.is_of(other)
    }

    /// Returns the node.
    pub fn node(&self) -> Uuid {
        self.node
    }

    /// Returns instance, probe and format, without the documents: these are in the [`Kind`], which
    /// streams of many nodes share.
    pub fn description(&self) -> &StreamDescription {
        &self.description
    }

    /// Returns the type of the samples.
    pub fn schema(&self) -> &Schema {
        self.kind.schema()
    }

    /// Returns type and format, with the documents.
    pub fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }
}

impl Sample {
    /// Returns the stream of the sample. Samples of one stream share it.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Returns the position of the sample, to be stored with it.
    pub fn position(&self) -> Position {
        let DataPacket { stream, sequence, .. } = self.data;
        Position { node: self.stream.node, start: self.stream.start, stream, sequence }
    }

    /// Returns the number of samples of the stream that are missing directly before this one.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns what the node omitted, when it sent the sample, to keep its byte budget.
    pub fn reduction(&self) -> Reduction {
        self.reduction
    }

    /// Returns when the sample was measured, by the clock of the node: nanoseconds since 1970.
    pub fn time_ns(&self) -> i64 {
        self.data.time_ns
    }

    /// Returns the encoded sample, in the stream's format.
    pub fn payload(&self) -> &[u8] {
        &self.data.payload
    }

    /// Decodes the sample. A sample that cannot be decoded is accepted nevertheless: refusing it
    /// would block all later samples.
    pub fn decode(&self) -> Result<Record, DecodeError> {
        let decoder = self.stream.kind.decoder().map_err(|problem| DecodeError::Format(problem.to_owned()))?;
        let mut record = Record::new(decoder.shape());
        decoder.decode_measured(Payload::Bytes(&self.data.payload), &mut record)?;
        Ok(record)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:016x} {} {}", self.node, self.start, self.stream, self.sequence)
    }
}
