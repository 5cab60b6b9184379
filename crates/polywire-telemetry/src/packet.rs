//! Node packets: the messages from a node's uplink to a collector. The types are those of
//! `spec/telemetry.md`.
//!
//! ```
//! use polywire_telemetry::packet::{DataPacket, NodePacket, PacketReply, Reduction, StreamDescription};
//!
//! let stream = StreamDescription { instance: "pump-1".into(), codec: "cdr".into(), ..Default::default() };
//! let data = DataPacket { stream: stream.number, sequence: 0, time_ns: 1, payload: vec![1, 2] };
//! let packet = NodePacket { start: 7, streams: vec![stream], packets: vec![data], ..Default::default() };
//! assert_eq!((packet.bytes() > 2, packet.reduction), (true, Reduction::None));
//! assert!(PacketReply::default().is_stored());
//! ```

use polywire::Message;

/// The service that receives node packets.
pub const PACKETS: &str = "telemetry/packets";

/// The maximum size of a payload in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// The maximum size of a stream's schema, and of its configuration document, in bytes.
pub const MAX_DOCUMENT_BYTES: usize = 1 << 18;

/// The maximum number of data packets of a node packet.
pub const MAX_DATA_PACKETS: usize = 1 << 14;

/// The size of a node packet without its streams and data packets, in CDR, in bytes.
const HEAD_BYTES: usize = 60;

/// The size of a data packet without its payload, in CDR, without alignment, in bytes.
const DATA_HEAD_BYTES: usize = 24;

/// Samples of a node, in order.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::NodePacket")]
pub struct NodePacket {
    /// The UUID of the node.
    pub node: [u8; 16],
    /// A random number that identifies the start of the node. All data packets were numbered in
    /// this start.
    pub start: u64,
    /// Identifies the packet among the packets of the node. Not 0.
    pub number: u64,
    /// The number of the previous packet if that one is also under way, otherwise 0. The collector
    /// accepts this packet only after the previous one.
    pub follows: u64,
    /// When the packet was made: nanoseconds since 1970.
    #[polywire(unit = "ns")]
    pub time_ns: i64,
    /// What the node omits to keep its byte budget.
    pub reduction: Reduction,
    /// The streams that the collector may not know.
    pub streams: Vec<StreamDescription>,
    /// The samples.
    pub packets: Vec<DataPacket>,
}

/// The measures by which a node keeps its byte budget. Each step includes the steps before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Message)]
#[polywire(name = "telemetry::Reduction", nested)]
pub enum Reduction {
    /// Every sample is sent.
    #[default]
    None,
    /// Only the latest sample of each instance in an interval is sent.
    Thinning,
    /// Samples are delayed, so that more of them share a packet.
    Batching,
    /// Samples of instances of low priority are not sent.
    Dropping,
}

/// A sequence of samples of one instance, type and format.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::StreamDescription", nested)]
pub struct StreamDescription {
    /// The number by which data packets of this start refer to the stream. Its meaning never
    /// changes.
    pub number: u32,
    /// The name of the node; may be empty.
    pub node: String,
    /// The name of the probe on its node.
    pub instance: String,
    /// The UUID of the probe's type.
    pub probe: [u8; 16],
    /// The version of the probe's type.
    pub version: String,
    /// The type of the samples: [`polywire::Schema::to_bytes`].
    pub schema: Vec<u8>,
    /// The format of the payloads.
    pub codec: String,
    /// The options of the format, as in a wire.
    pub options: String,
    /// The document that configures the format, such as FAST templates; empty if there is none.
    pub configuration: Vec<u8>,
}

/// A sample.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::DataPacket", nested)]
pub struct DataPacket {
    /// The number of the stream.
    pub stream: u32,
    /// The sequence number in the stream, from 0. The node has dropped the samples of missing
    /// numbers.
    pub sequence: u64,
    /// When the sample was measured: nanoseconds since 1970.
    #[polywire(unit = "ns")]
    pub time_ns: i64,
    /// The encoded sample, in the stream's format.
    pub payload: Vec<u8>,
}

/// The reply to a node packet.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::PacketReply")]
pub struct PacketReply {
    /// The collector does not know a stream of the packet, or has not accepted the packet that this
    /// one follows. It has stored nothing of the packet; the node sends the packet again, with its
    /// streams.
    pub unknown: bool,
    /// Why the packet can never be stored; empty if it was stored.
    pub problem: String,
}

impl NodePacket {
    /// Returns the approximate size in bytes.
    pub fn bytes(&self) -> usize {
        let streams: usize = self.streams.iter().map(StreamDescription::bytes).sum();
        let packets: usize = self.packets.iter().map(DataPacket::bytes).sum();
        HEAD_BYTES + streams + packets
    }
}

impl StreamDescription {
    fn bytes(&self) -> usize {
        let texts = [&self.node, &self.instance, &self.version, &self.codec, &self.options];
        let texts: usize = texts.into_iter().map(String::len).sum();
        56 + texts + self.schema.len() + self.configuration.len()
    }
}

impl DataPacket {
    /// Returns the approximate size in bytes.
    pub fn bytes(&self) -> usize {
        DATA_HEAD_BYTES + self.payload.len()
    }
}

impl PacketReply {
    /// Returns whether the whole packet is stored.
    pub fn is_stored(&self) -> bool {
        !self.unknown && self.problem.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use polywire::codec::{self, Encoder, Options};

    use super::*;

    /// The figures of the specification.
    #[test]
    fn the_overhead_in_bytes() {
        let size = |packet: &NodePacket, codec: &str| {
            let codec = codec::find(codec).expect("a codec");
            let mut out = Vec::new();
            let encoder = Encoder::<NodePacket>::new(codec, &Options::default()).expect("an encoder");
            encoder.encode(packet, &mut out).expect("encoded");
            out.len()
        };
        let data =
            |sequence| DataPacket { stream: 3, sequence, time_ns: 1_790_000_000_000_000_000, payload: vec![7; 100] };
        let of = |count| NodePacket {
            node: [7; 16],
            start: u64::MAX / 3,
            packets: (0..count).map(data).collect(),
            ..Default::default()
        };
        let each = |codec| (size(&of(101), codec) - size(&of(1), codec)) as f64 / 100.0 - 100.0;
        assert_eq!((size(&of(0), "cdr"), each("cdr")), (HEAD_BYTES, 28.0));
        assert_eq!((size(&of(0), "xcdr2"), each("xcdr2")), (72, 28.0));
        assert!((18.0..=23.0).contains(&each("protobuf")), "{}", each("protobuf"));
        let mut reply = Vec::new();
        let encoder = Encoder::<PacketReply>::new(&codec::cdr::CDR, &Options::default()).expect("an encoder");
        encoder.encode(&PacketReply::default(), &mut reply).expect("encoded");
        assert_eq!(reply.len(), 9);
    }
}
