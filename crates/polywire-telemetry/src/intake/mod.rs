//! The intake of a collector: accepts node packets, and returns each sample once and in order.
//!
//! An [`Intake`] does no I/O and reads no clock. Its owner stores the samples, reports that to the
//! intake, and only then acknowledges their packets. It stores the [`Position`] of each sample with
//! it, so that no sample is repeated after a restart.
//!
//! ```
//! use polywire_telemetry::{
//!     Uuid,
//!     intake::{
//!         AcceptedPacket, DecodeError, Intake, IntakeLimits, IntakeStatus, Kind, Position, Rejection, Sample, Stream,
//!         Ticket,
//!     },
//!     packet::{DataPacket, NodePacket, PacketReply, Reduction, StreamDescription},
//! };
//! # use polywire::{Message, codec::{self, Encoder, Options}};
//! # #[derive(polywire::Message)]
//! # struct Pump { pressure: f64 }
//! # let mut payload = Vec::new();
//! # Encoder::<Pump>::new(&codec::json::JSON, &Options::default())?.encode(&Pump { pressure: 2.5 }, &mut payload)?;
//!
//! let pump = StreamDescription {
//!     instance: "pump-1".into(),
//!     codec: "json".into(),
//!     schema: Pump::shape().schema().to_bytes(),
//!     ..Default::default()
//! };
//! let data = DataPacket { stream: 0, sequence: 0, time_ns: 1, payload };
//! let packet = NodePacket { node: [7; 16], start: 1, streams: vec![pump], packets: vec![data], ..Default::default() };
//!
//! let mut intake = Intake::new(IntakeLimits::default());
//! let AcceptedPacket { samples, ticket } = intake.take(&packet, Some(Uuid([7; 16])))?;
//! assert_eq!(samples[0].decode()?.f64("pressure")?, 2.5);
//! let positions: Vec<Position> = samples.iter().map(|sample| sample.position()).collect();
//! // When the samples and their positions are on the disk, the packet is acknowledged.
//! intake.stored(ticket);
//! assert!(PacketReply::default().is_stored());
//! assert_eq!((intake.pending(), intake.positions().eq(positions.clone())), (0, true));
//!
//! // The members of a sample that a handler needs.
//! let sample: &Sample = &samples[0];
//! let stream: &Stream = sample.stream();
//! assert_eq!((stream.node(), stream.description().instance.as_str()), (Uuid([7; 16]), "pump-1"));
//! let kind: &Kind = stream.kind();
//! assert_eq!((kind.schema(), kind.schema_bytes()), (stream.schema(), &Pump::shape().schema().to_bytes()[..]));
//! assert!(kind.configuration().is_empty() && sample.payload() == b"{\"pressure\":2.5}");
//! assert_eq!((sample.time_ns(), sample.missing(), sample.reduction()), (1, 0, Reduction::None));
//!
//! // After a restart, a packet that is repeated has no new sample, and is acknowledged.
//! let mut intake = Intake::new(IntakeLimits::default());
//! positions.into_iter().for_each(|position| intake.recall(position));
//! assert!(intake.take(&packet, None)?.samples.is_empty());
//! let status: IntakeStatus = intake.status();
//! assert_eq!(status.repeated, 1);
//!
//! // A packet with an unknown stream, and a damaged payload.
//! let mut other = NodePacket { start: 2, streams: Vec::new(), ..packet.clone() };
//! let rejection: Rejection = intake.take(&other, None).unwrap_err();
//! assert!(rejection.reply().unwrap().unknown);
//! other.streams = packet.streams.clone();
//! other.packets[0].payload.truncate(3);
//! let accepted = intake.take(&other, None)?;
//! let latest: Ticket = accepted.ticket;
//! assert!(matches!(accepted.samples[0].decode(), Err(DecodeError::Payload(_))));
//! // The disk is full: the nodes get no acknowledgement, and send the packets again.
//! intake.failed();
//! assert_eq!(intake.take(&other, None)?.samples.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod kind;
mod sample;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use polywire::Pattern;

use self::kind::Kinds;
pub use self::{
    kind::Kind,
    sample::{DecodeError, Position, Sample, Stream},
};
use crate::{
    Uuid,
    packet::{
        DataPacket, MAX_DATA_PACKETS, MAX_DOCUMENT_BYTES, MAX_PAYLOAD_BYTES, NodePacket, PacketReply, StreamDescription,
    },
};

/// The number of starts of each node that are remembered. All samples in a packet belong to one
/// start, and a node has few packets under way, so a repeated packet belongs to one of the latest
/// starts.
const STARTS: usize = 16;

/// The tolerance in nanoseconds by which a sample's time may exceed its packet's time. Beyond it,
/// the sample counts as a clock error.
const AHEAD_NS: i64 = 1_000_000_000;

/// The limits of what an intake accepts from all nodes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntakeLimits {
    /// The maximum number of nodes: 65,536 by default.
    pub nodes: usize,
    /// The maximum number of streams of all nodes: 1,048,576 by default.
    pub streams: usize,
    /// The maximum number of streams of one start of a node: 16,384 by default, as many as a node
    /// can have.
    pub streams_of_a_start: usize,
    /// The maximum number of pairs of type and format: 4096 by default.
    pub kinds: usize,
    /// The maximum number of bytes of their schemas and configuration documents: 64 MiB by default.
    /// They take a few times as much in memory.
    pub document_bytes: usize,
}

impl Default for IntakeLimits {
    fn default() -> IntakeLimits {
        let (streams_of_a_start, document_bytes) = (1 << 14, 64 << 20);
        IntakeLimits { nodes: 1 << 16, streams: 1 << 20, streams_of_a_start, kinds: 4096, document_bytes }
    }
}

/// The counters of an intake, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntakeStatus {
    /// Samples that were returned to the owner.
    pub samples: u64,
    /// Samples that arrived again and were left out.
    pub repeated: u64,
    /// Samples that never arrived: gaps in the sequence numbers, left by the nodes.
    pub missing: u64,
    /// Samples whose time is later than that of their packet.
    pub ahead: u64,
}

/// Why a packet is not accepted. [`Rejection::reply`] returns the reply to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The packet uses an undescribed stream. The node sends the packet again, with the
    /// description.
    #[error("stream {0} is not known")]
    Unknown(u32),
    /// The packet follows a packet that was not accepted. The node sends both again.
    #[error("the packet before it is missing")]
    OutOfOrder,
    /// The packet is invalid. It will be rejected whenever it is sent.
    #[error("{0}")]
    Wrong(String),
    /// The intake has reached a limit. The node tries again later, after no reply or an error.
    #[error("the collector has {0} already")]
    Full(String),
}

impl Rejection {
    /// Returns the reply to the node; `None` if the request is to fail, so that the node sends the
    /// packet again after a while.
    pub fn reply(&self) -> Option<PacketReply> {
        match self {
            Rejection::Unknown(_) | Rejection::OutOfOrder => {
                Some(PacketReply { unknown: true, problem: String::new() })
            }
            Rejection::Wrong(problem) => Some(PacketReply { unknown: false, problem: problem.clone() }),
            Rejection::Full(_) => None,
        }
    }
}

/// Accepts node packets. There is an example at [the module](crate::intake).
pub struct Intake {
    limits: IntakeLimits,
    nodes: BTreeMap<Uuid, Starts>,
    streams: usize,
    kinds: Kinds,
    /// Accepted packets that are not known to be stored, in order.
    pending: VecDeque<Pending>,
    accepted: u64,
    status: IntakeStatus,
}

/// The result of accepting a packet.
#[derive(Debug)]
pub struct AcceptedPacket {
    /// The new samples, in order.
    pub samples: Vec<Sample>,
    /// The packet is acknowledged when all packets up to this ticket are stored. That also applies
    /// to a packet without new samples: the samples that it repeats may not be stored yet.
    pub ticket: Ticket,
}

/// The place of a packet in the order of all accepted packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The state of a node.
#[derive(Default)]
struct Starts {
    /// The latest starts; the most recently used one is last.
    latest: VecDeque<(u64, BTreeMap<u32, Progress>)>,
    /// The number of the packet that was accepted last; 0 if it is not known.
    accepted: u64,
}

/// The progress of a stream.
#[derive(Clone, Default)]
struct Progress {
    /// The sequence number that is expected next.
    next: u64,
    /// The first sequence number that is not stored yet.
    stored: u64,
    /// The description of the stream; after a restart of the collector `None` until the node sends
    /// it.
    stream: Option<Arc<Stream>>,
}

struct Pending {
    ticket: Ticket,
    positions: Vec<Position>,
}

impl Intake {
    /// Makes an intake without any state.
    pub fn new(limits: IntakeLimits) -> Intake {
        let (nodes, pending) = (BTreeMap::new(), VecDeque::new());
        let kinds = Kinds::new(limits.kinds, limits.document_bytes);
        Intake { limits, nodes, streams: 0, kinds, pending, accepted: 0, status: IntakeStatus::default() }
    }

    /// Restores the position of a sample that was stored before a restart. The positions of a node
    /// must be given in the order in which its samples were stored; the last position of each
    /// stream is enough.
    pub fn recall(&mut self, position: Position) {
        let Position { node, start, stream, sequence } = position;
        let before = self.streams_of(node);
        let progress = self.start(node, start).entry(stream).or_default();
        progress.next = progress.next.max(sequence.saturating_add(1));
        progress.stored = progress.next;
        self.streams = self.streams - before + self.streams_of(node);
    }

    /// Accepts a packet, and returns its new samples in order. After an error, the packet has no
    /// effect.
    ///
    /// `from` is the UUID of the node that sent the packet, if it is known
    /// ([`LinkInfo::peer`](polywire::engine::LinkInfo)): a node may send only its own packets. Pass
    /// `None` if a relay or another collector forwards the packets.
    pub fn take(&mut self, packet: &NodePacket, from: Option<Uuid>) -> Result<AcceptedPacket, Rejection> {
        let node = Uuid(packet.node);
        if from.is_some_and(|from| from != node) {
            return Err(Rejection::Wrong(format!("the packet names node {node}, which did not send it")));
        }
        if packet.packets.len() > MAX_DATA_PACKETS || packet.streams.len() > MAX_DATA_PACKETS {
            return Err(Rejection::Wrong(format!("a packet has at most {MAX_DATA_PACKETS} data packets and streams")));
        }
        if !self.nodes.contains_key(&node) && self.nodes.len() >= self.limits.nodes {
            return Err(Rejection::Full(format!("{} nodes", self.limits.nodes)));
        }
        if packet.follows != 0 && self.nodes.get(&node).is_none_or(|starts| starts.accepted != packet.follows) {
            return Err(Rejection::OutOfOrder);
        }
        let described = self.described(node, packet)?;
        self.check(node, packet.start, &described, &packet.packets)?;
        let before = self.streams_of(node);
        let streams = self.start(node, packet.start);
        for (number, stream) in described {
            streams.entry(number).or_default().stream = Some(stream);
        }
        self.streams = self.streams - before + self.streams_of(node);
        let samples = self.sift(node, packet);
        self.nodes.entry(node).or_default().accepted = packet.number;
        let ticket = Ticket(self.accepted);
        self.accepted += 1;
        self.pending.push_back(Pending { ticket, positions: samples.iter().map(Sample::position).collect() });
        Ok(AcceptedPacket { samples, ticket })
    }

    /// Returns the streams that the packet describes and that this intake does not know yet.
    fn described(&mut self, node: Uuid, packet: &NodePacket) -> Result<BTreeMap<u32, Arc<Stream>>, Rejection> {
        let mut fresh: BTreeMap<u32, Arc<Stream>> = BTreeMap::new();
        for description in &packet.streams {
            check_description(node, description)?;
            let number = description.number;
            let known = self.known(node, packet.start, number).or_else(|| fresh.get(&number));
            match known {
                Some(known) if known.is(description) => {}
                Some(_) => return Err(Rejection::Wrong(format!("stream {number} cannot become another one"))),
                None => {
                    let kind = self.kinds.of(description)?;
                    fresh.insert(number, Arc::new(Stream::new(node, packet.start, description, kind)));
                }
            }
        }
        let of_start = self.nodes.get(&node).and_then(|starts| starts.get(packet.start));
        // Recalled streams are counted already.
        let more = fresh.keys().filter(|number| of_start.is_none_or(|streams| !streams.contains_key(number))).count();
        if of_start.map_or(0, BTreeMap::len) + more > self.limits.streams_of_a_start {
            let most = self.limits.streams_of_a_start;
            return Err(Rejection::Wrong(format!("a node has at most {most} streams in one start")));
        }
        if self.streams + more > self.limits.streams {
            return Err(Rejection::Full(format!("{} streams", self.limits.streams)));
        }
        Ok(fresh)
    }

    fn known(&self, node: Uuid, start: u64, stream: u32) -> Option<&Arc<Stream>> {
        self.nodes.get(&node)?.get(start)?.get(&stream)?.stream.as_ref()
    }

    /// Checks the samples before any of them is accepted.
    fn check(
        &self,
        node: Uuid,
        start: u64,
        fresh: &BTreeMap<u32, Arc<Stream>>,
        packets: &[DataPacket],
    ) -> Result<(), Rejection> {
        for DataPacket { stream, sequence, payload, .. } in packets {
            if !fresh.contains_key(stream) && self.known(node, start, *stream).is_none() {
                return Err(Rejection::Unknown(*stream));
            }
            if *sequence == u64::MAX {
                return Err(Rejection::Wrong(format!("stream {stream}: no sample has the number {sequence}")));
            }
            if payload.len() > MAX_PAYLOAD_BYTES {
                return Err(Rejection::Wrong(format!(
                    "stream {stream}: a payload has at most {MAX_PAYLOAD_BYTES} bytes"
                )));
            }
        }
        Ok(())
    }

    /// Removes the samples that were accepted before, and counts the missing ones.
    fn sift(&mut self, node: Uuid, packet: &NodePacket) -> Vec<Sample> {
        let mut status = self.status;
        let streams = self.start(node, packet.start);
        let mut samples = Vec::with_capacity(packet.packets.len());
        for data in &packet.packets {
            let Some(progress) = streams.get_mut(&data.stream) else { continue };
            let Some(stream) = progress.stream.clone() else { continue };
            if data.sequence < progress.next {
                status.repeated += 1;
                continue;
            }
            let missing = data.sequence - progress.next;
            progress.next = data.sequence + 1;
            status.samples += 1;
            status.missing = status.missing.saturating_add(missing);
            status.ahead += u64::from(data.time_ns > packet.time_ns.saturating_add(AHEAD_NS));
            samples.push(Sample { stream, missing, reduction: packet.reduction, data: data.clone() });
        }
        self.status = status;
        samples
    }

    /// Reports that all samples up to this packet are stored, in the order in which they were
    /// accepted. Their packets can then be acknowledged.
    pub fn stored(&mut self, ticket: Ticket) {
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.ticket <= ticket) {
            for position in pending.positions {
                self.progress(position).into_iter().for_each(|progress| progress.stored = position.sequence + 1);
            }
        }
    }

    /// Reports that samples which were accepted and are not known to be stored may be lost. Their
    /// packets must not be acknowledged: the nodes send them again, and their samples are accepted
    /// again.
    pub fn failed(&mut self) {
        self.nodes.values_mut().for_each(|starts| starts.accepted = 0);
        for pending in std::mem::take(&mut self.pending) {
            for position in pending.positions {
                self.progress(position).into_iter().for_each(|progress| progress.next = progress.stored);
            }
        }
    }

    /// Returns the number of packets that were accepted and are not known to be stored.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the counters since this intake was made.
    pub fn status(&self) -> IntakeStatus {
        self.status
    }

    /// Returns the position of the last stored sample of each stream: the input of
    /// [`Intake::recall`] after a restart, for owners that do not store positions with samples.
    pub fn positions(&self) -> impl Iterator<Item = Position> + '_ {
        self.nodes.iter().flat_map(|(node, starts)| {
            starts.latest.iter().flat_map(move |(start, streams)| {
                streams.iter().filter_map(move |(stream, progress)| {
                    let sequence = progress.stored.checked_sub(1)?;
                    Some(Position { node: *node, start: *start, stream: *stream, sequence })
                })
            })
        })
    }

    fn streams_of(&self, node: Uuid) -> usize {
        self.nodes.get(&node).map_or(0, Starts::streams)
    }

    /// Returns the progress of the stream of a position; `None` if its start has been forgotten.
    fn progress(&mut self, Position { node, start, stream, .. }: Position) -> Option<&mut Progress> {
        let starts = &mut self.nodes.get_mut(&node)?.latest;
        let (_, streams) = starts.iter_mut().rev().find(|(known, _)| *known == start)?;
        streams.get_mut(&stream)
    }

    /// Returns the streams of a start of a node, and marks the start as the most recently used one.
    fn start(&mut self, node: Uuid, start: u64) -> &mut BTreeMap<u32, Progress> {
        self.nodes.entry(node).or_default().used(start)
    }
}

impl Starts {
    fn get(&self, start: u64) -> Option<&BTreeMap<u32, Progress>> {
        self.latest.iter().rev().find(|(known, _)| *known == start).map(|(_, streams)| streams)
    }

    fn streams(&self) -> usize {
        self.latest.iter().map(|(_, streams)| streams.len()).sum()
    }

    fn used(&mut self, start: u64) -> &mut BTreeMap<u32, Progress> {
        let found = self.latest.iter().position(|(known, _)| *known == start);
        let used = found.and_then(|at| self.latest.remove(at)).unwrap_or_else(|| (start, BTreeMap::new()));
        if self.latest.len() >= STARTS {
            self.latest.pop_front();
        }
        self.latest.push_back(used);
        let last = self.latest.len() - 1;
        &mut self.latest[last].1
    }
}

fn check_description(node: Uuid, stream: &StreamDescription) -> Result<(), Rejection> {
    let number = stream.number;
    if !stream.node.is_empty() && !crate::identity::is_name(&stream.node) {
        return Err(Rejection::Wrong(format!("stream {number}: {:?} cannot be the name of a node", stream.node)));
    }
    // A collector that forwards topics has instances with several levels.
    let name = if stream.node.is_empty() { node.to_string() } else { stream.node.clone() };
    let topic = crate::topic_of(&name, &stream.instance).parse::<Pattern>();
    if !topic.is_ok_and(|topic| topic.is_name()) {
        return Err(Rejection::Wrong(format!("stream {number}: {:?} cannot be the name of a probe", stream.instance)));
    }
    let texts = [&stream.version, &stream.codec, &stream.options];
    if texts.iter().any(|text| text.len() > 1024)
        || stream.schema.len().max(stream.configuration.len()) > MAX_DOCUMENT_BYTES
    {
        return Err(Rejection::Wrong(format!("stream {number}: the description is too long")));
    }
    Ok(())
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, streams, pending) = (self.nodes.len(), self.streams, self.pending.len());
        write!(f, "intake of {nodes} nodes and {streams} streams, {pending} packets not stored: {:?}", self.status)
    }
}
