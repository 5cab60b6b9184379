//! A sample that an intake gives to its owner, and where it stands.

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

/// Which sample. No other sample of any node ever has the same position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The node.
    pub node: Uuid,
    /// The start of the node that numbered it.
    pub start: u64,
    /// The stream of that start.
    pub stream: u32,
    /// The number in the stream.
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

/// A sample, as it came.
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
    /// There is no decoder for the stream: its format is unknown here, or does not fit its type.
    #[error("{0}")]
    Format(String),
    /// The payload is wrong.
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

    /// Whether this is the stream that is described.
    pub(super) fn is(&self, other: &StreamDescription) -> bool {
        let own = &self.description;
        (own.number, own.probe, &own.node, &own.instance, &own.version)
            == (other.number, other.probe, &other.node, &other.instance, &other.version)
            && self.kind.is_of(other)
    }

    /// The node.
    pub fn node(&self) -> Uuid {
        self.node
    }

    /// Instance, probe and format, without the documents: those are in the [`Kind`], which streams
    /// of many nodes share.
    pub fn description(&self) -> &StreamDescription {
        &self.description
    }

    /// The type of the samples.
    pub fn schema(&self) -> &Schema {
        self.kind.schema()
    }

    /// Type and format, with the documents.
    pub fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }
}

impl Sample {
    /// Its stream. Samples of one stream share it.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Where it stands, to be stored with it.
    pub fn position(&self) -> Position {
        let DataPacket { stream, sequence, .. } = self.data;
        Position { node: self.stream.node, start: self.stream.start, stream, sequence }
    }

    /// How many samples of the stream the node has left out before this one.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// What the node left out when it sent the sample, to keep its byte budget.
    pub fn reduction(&self) -> Reduction {
        self.reduction
    }

    /// When it was measured, by the clock of the node: nanoseconds since 1970.
    pub fn time_ns(&self) -> i64 {
        self.data.time_ns
    }

    /// The value, in the stream's format.
    pub fn payload(&self) -> &[u8] {
        &self.data.payload
    }

    /// Decodes the value. A sample that cannot be decoded has been taken all the same: to refuse it
    /// would stop everything behind it.
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
