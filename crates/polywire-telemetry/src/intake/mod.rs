//! The kept way, at the collector: takes node packets, and gives each sample once and in order.
//!
//! An [`Intake`] does no I/O and reads no clock. Its owner stores the samples, says so, and only
//! then acknowledges their packets. With each sample it stores the [`Position`], so that a restart
//! repeats nothing.
//!
//! ```
//! use polywire_telemetry::{
//!     Uuid,
//!     intake::{
//!         DecodeError, Intake, IntakeLimits, IntakeStatus, Kind, Position, Rejection, Sample, Stream, Taken, Ticket,
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
//! let Taken { samples, ticket } = intake.take(&packet, Some(Uuid([7; 16])))?;
//! assert_eq!(samples[0].decode()?.f64("pressure")?, 2.5);
//! let positions: Vec<Position> = samples.iter().map(|sample| sample.position()).collect();
//! // When the samples and their positions are on the disk, the packet is acknowledged.
//! intake.stored(ticket);
//! assert!(PacketReply::default().is_stored());
//! assert_eq!((intake.pending(), intake.positions().eq(positions.clone())), (0, true));
//!
//! // What a handler needs to know of a sample.
//! let sample: &Sample = &samples[0];
//! let stream: &Stream = sample.stream();
//! assert_eq!((stream.node(), stream.description().instance.as_str()), (Uuid([7; 16]), "pump-1"));
//! let kind: &Kind = stream.kind();
//! assert_eq!((kind.schema(), kind.schema_bytes()), (stream.schema(), &Pump::shape().schema().to_bytes()[..]));
//! assert!(kind.configuration().is_empty() && sample.payload() == b"{\"pressure\":2.5}");
//! assert_eq!((sample.time_ns(), sample.missing(), sample.reduction()), (1, 0, Reduction::None));
//!
//! // After a restart, a packet that is repeated has nothing new, and is acknowledged.
//! let mut intake = Intake::new(IntakeLimits::default());
//! positions.into_iter().for_each(|position| intake.recall(position));
//! assert!(intake.take(&packet, None)?.samples.is_empty());
//! let status: IntakeStatus = intake.status();
//! assert_eq!(status.repeated, 1);
//!
//! // A stream that is not known, and a payload that is damaged.
//! let mut other = NodePacket { start: 2, streams: Vec::new(), ..packet.clone() };
//! let rejection: Rejection = intake.take(&other, None).unwrap_err();
//! assert!(rejection.reply().unwrap().unknown);
//! other.streams = packet.streams.clone();
//! other.packets[0].payload.truncate(3);
//! let taken = intake.take(&other, None)?;
//! let latest: Ticket = taken.ticket;
//! assert!(matches!(taken.samples[0].decode(), Err(DecodeError::Payload(_))));
//! // The disk is full: the nodes are told nothing, and send the packets again.
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

use self::kind::Kinds;
pub use self::{
    kind::Kind,
    sample::{DecodeError, Position, Sample, Stream},
};
use crate::{
    Uuid,
    packet::{
        DataPacket, MOST_DATA_PACKETS, MOST_DOCUMENT_BYTES, MOST_PAYLOAD_BYTES, NodePacket, PacketReply,
        StreamDescription,
    },
};

/// The starts of a node that are remembered. A node has data of one start in each packet, and few
/// packets under way, so a packet that is repeated belongs to one of the latest starts.
const STARTS: usize = 16;

/// A sample may be stamped so much later than its packet before it counts as a fault of the clock.
const AHEAD_NS: i64 = 1_000_000_000;

/// What an intake accepts from all nodes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntakeLimits {
    /// Nodes: 65,536 by default.
    pub nodes: usize,
    /// Streams of all nodes: 1,048,576 by default.
    pub streams: usize,
    /// Streams of one start of a node: 16,384 by default, as many as a node has.
    pub streams_of_a_start: usize,
    /// Pairs of type and format: 4096 by default.
    pub kinds: usize,
    /// Bytes of their schemas and configuration documents: 64 MiB by default. In memory they take a
    /// few times as much.
    pub document_bytes: usize,
}

impl Default for IntakeLimits {
    fn default() -> IntakeLimits {
        let (streams_of_a_start, document_bytes) = (1 << 14, 64 << 20);
        IntakeLimits { nodes: 1 << 16, streams: 1 << 20, streams_of_a_start, kinds: 4096, document_bytes }
    }
}

/// What an intake has counted, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntakeStatus {
    /// Given to the owner.
    pub samples: u64,
    /// Come again, and left out.
    pub repeated: u64,
    /// Left out by the nodes: numbers that are missing.
    pub missing: u64,
    /// Stamped later than the packet that they came in.
    pub ahead: u64,
}

/// Why a packet is not taken. The reply to it is [`Rejection::reply`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The node has to send the packet again, with this stream.
    #[error("stream {0} is not known")]
    Unknown(u32),
    /// The packet follows one that has not been taken. The node has to send both again.
    #[error("the packet before it is missing")]
    OutOfOrder,
    /// The packet cannot be right, whenever it comes.
    #[error("{0}")]
    Wrong(String),
    /// This intake has as many as it can have. The node must try again later: no reply, or an
    /// error.
    #[error("the collector has {0} already")]
    Full(String),
}

impl Rejection {
    /// What the node is told; `None` if the request is to fail, so that the node sends the packet
    /// again after a while.
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

/// Takes node packets. There is an example at [the module](crate::intake).
pub struct Intake {
    limits: IntakeLimits,
    nodes: BTreeMap<Uuid, Starts>,
    streams: usize,
    kinds: Kinds,
    /// Packets that were taken and are not known to be stored, in order.
    pending: VecDeque<Pending>,
    taken: u64,
    status: IntakeStatus,
}

/// What is new in a packet.
#[derive(Debug)]
pub struct Taken {
    /// The samples, in order.
    pub samples: Vec<Sample>,
    /// The packet is to be acknowledged when this is stored, also if it has nothing new: what it
    /// repeats may not be stored yet.
    pub ticket: Ticket,
}

/// The place of a packet among all that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What is known of a node.
#[derive(Default)]
struct Starts {
    /// The latest starts, the one used last at the end.
    latest: VecDeque<(u64, BTreeMap<u32, Progress>)>,
    /// The number of the packet that was taken last; 0 if it is not known.
    taken: u64,
}

/// How far a stream has come.
#[derive(Clone, Default)]
struct Progress {
    /// The number that comes next.
    next: u64,
    /// The same, of what is stored.
    stored: u64,
    /// Unknown after a restart of the collector, until the node describes it.
    stream: Option<Arc<Stream>>,
}

struct Pending {
    ticket: Ticket,
    positions: Vec<Position>,
}

impl Intake {
    /// An intake that has seen nothing.
    pub fn new(limits: IntakeLimits) -> Intake {
        let (nodes, pending) = (BTreeMap::new(), VecDeque::new());
        let kinds = Kinds::new(limits.kinds, limits.document_bytes);
        Intake { limits, nodes, streams: 0, kinds, pending, taken: 0, status: IntakeStatus::default() }
    }

    /// Remembers a sample that was stored before a restart. The positions of a node must come in
    /// the order in which its samples were stored; the last one of each stream is enough.
    pub fn recall(&mut self, position: Position) {
        let Position { node, start, stream, sequence } = position;
        let before = self.streams_of(node);
        let progress = self.start(node, start).entry(stream).or_default();
        progress.next = progress.next.max(sequence.saturating_add(1));
        progress.stored = progress.next;
        self.streams = self.streams - before + self.streams_of(node);
    }

    /// Takes a packet, and gives the samples in it that are new, in order. After an error, nothing
    /// of the packet was taken.
    ///
    /// `from` is the UUID of the node that the packet came from, where that is known
    /// ([`LinkInfo::peer`](polywire::engine::LinkInfo)): a node sends packets of its own only. Give
    /// `None` if a relay or another collector passes them on.
    pub fn take(&mut self, packet: &NodePacket, from: Option<Uuid>) -> Result<Taken, Rejection> {
        let node = Uuid(packet.node);
        if from.is_some_and(|from| from != node) {
            return Err(Rejection::Wrong(format!("the packet names node {node}, which did not send it")));
        }
        if packet.packets.len() > MOST_DATA_PACKETS || packet.streams.len() > MOST_DATA_PACKETS {
            return Err(Rejection::Wrong(format!("a packet has at most {MOST_DATA_PACKETS} data packets and streams")));
        }
        if !self.nodes.contains_key(&node) && self.nodes.len() >= self.limits.nodes {
            return Err(Rejection::Full(format!("{} nodes", self.limits.nodes)));
        }
        if packet.follows != 0 && self.nodes.get(&node).is_none_or(|starts| starts.taken != packet.follows) {
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
        self.nodes.entry(node).or_default().taken = packet.number;
        let ticket = Ticket(self.taken);
        self.taken += 1;
        self.pending.push_back(Pending { ticket, positions: samples.iter().map(Sample::position).collect() });
        Ok(Taken { samples, ticket })
    }

    /// The streams that the packet describes and that are new here.
    fn described(&mut self, node: Uuid, packet: &NodePacket) -> Result<BTreeMap<u32, Arc<Stream>>, Rejection> {
        let mut fresh: BTreeMap<u32, Arc<Stream>> = BTreeMap::new();
        for description in &packet.streams {
            check_description(description)?;
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
        // Those that were recalled count already.
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

    /// Checks the samples before any of them is taken.
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
            if payload.len() > MOST_PAYLOAD_BYTES {
                return Err(Rejection::Wrong(format!(
                    "stream {stream}: a payload has at most {MOST_PAYLOAD_BYTES} bytes"
                )));
            }
        }
        Ok(())
    }

    /// Leaves out the samples that were taken before, and counts those that are missing.
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

    /// All samples up to this packet are stored, in the order in which they were taken. Their
    /// packets can be acknowledged.
    pub fn stored(&mut self, ticket: Ticket) {
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.ticket <= ticket) {
            for position in pending.positions {
                self.progress(position).into_iter().for_each(|progress| progress.stored = position.sequence + 1);
            }
        }
    }

    /// Whatever was taken and not stored is lost, or may be. Its packets must not be acknowledged:
    /// the nodes send them again, and their samples are taken again.
    pub fn failed(&mut self) {
        self.nodes.values_mut().for_each(|starts| starts.taken = 0);
        for pending in std::mem::take(&mut self.pending) {
            for position in pending.positions {
                self.progress(position).into_iter().for_each(|progress| progress.next = progress.stored);
            }
        }
    }

    /// How many packets have been taken and are not known to be stored.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// What has been counted since this intake was made.
    pub fn status(&self) -> IntakeStatus {
        self.status
    }

    /// The position of the last sample that is stored, for each stream: what [`Intake::recall`]
    /// needs after a restart, for owners that do not keep positions with samples.
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

    /// How far the stream of a position has come; `None` if its start has been forgotten.
    fn progress(&mut self, Position { node, start, stream, .. }: Position) -> Option<&mut Progress> {
        let starts = &mut self.nodes.get_mut(&node)?.latest;
        let (_, streams) = starts.iter_mut().rev().find(|(known, _)| *known == start)?;
        streams.get_mut(&stream)
    }

    /// The streams of a start of a node, which counts as used.
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

fn check_description(stream: &StreamDescription) -> Result<(), Rejection> {
    let number = stream.number;
    if !crate::identity::is_name(&stream.instance) {
        return Err(Rejection::Wrong(format!("stream {number}: {:?} cannot be the name of a probe", stream.instance)));
    }
    if !stream.node.is_empty() && !crate::identity::is_name(&stream.node) {
        return Err(Rejection::Wrong(format!("stream {number}: {:?} cannot be the name of a node", stream.node)));
    }
    let texts = [&stream.version, &stream.codec, &stream.options];
    if texts.iter().any(|text| text.len() > 1024)
        || stream.schema.len().max(stream.configuration.len()) > MOST_DOCUMENT_BYTES
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
