//! The source of samples that nodes keep until a collector has stored them. Receives node packets.

mod positions;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    path::Path,
    sync::Arc,
    time::Duration,
};

use polywire::{
    Node, Wire,
    extend::envelope::Id128,
    service::{Request, Service},
};
use polywire_telemetry::{
    Uuid,
    intake::{AcceptedPacket, Intake, IntakeLimits, Position, Sample, Ticket},
    packet::{NodePacket, PACKETS, PacketReply},
};

use self::positions::Positions;
use crate::{CollectorError, Entry, Numbered, Origin, Source};

/// The maximum number of packets that are not stored yet. A node has few under way, and tries again
/// later if there are too many.
const MAX_PENDING: usize = 1024;

/// The maximum number of cached origins. Entries of one stream share an origin.
const MAX_ORIGINS: usize = 65_536;

/// A stream: its node, the start of the node, and its number.
type Stream = (Uuid, u64, u32);

/// Serves nodes that keep their samples, at some endpoints. A packet is acknowledged when all
/// handlers have stored its samples and then their positions have been written to the disk.
pub(crate) struct Nodes {
    services: Vec<Service<NodePacket, PacketReply>>,
    /// The index of the service that was polled last.
    turn: usize,
    intake: Intake,
    positions: Positions,
    /// Entries that were accepted and not passed on yet.
    ready: VecDeque<Entry>,
    /// Packets that are not stored yet, in order.
    pending: VecDeque<Pending>,
    /// The position of the last entry that was accepted.
    taken: u64,
    /// The position up to which all handlers have stored the entries.
    handled: u64,
    origins: BTreeMap<Stream, Arc<Origin>>,
    /// Streams with samples that could not be decoded, which was reported once.
    undecodable: BTreeSet<Stream>,
}

/// A packet that is not stored yet.
struct Pending {
    request: Request<NodePacket, PacketReply>,
    ticket: Ticket,
    /// The position of the last entry that was accepted with this packet or before it.
    last: u64,
    /// The last position of each of the packet's streams.
    positions: Vec<Position>,
}

impl Nodes {
    /// Opens the services. `file` keeps the positions of stored samples over restarts.
    pub fn open(node: &Node, endpoints: &[Wire], file: &Path) -> Result<Nodes, CollectorError> {
        let failed = |cause: io::Error| CollectorError::Positions { path: file.to_owned(), cause };
        let (positions, known) = Positions::open(file).map_err(failed)?;
        let mut intake = Intake::new(IntakeLimits::default());
        known.into_iter().for_each(|position| intake.recall(position));
        let serve = |wire: &Wire| node.service(PACKETS, Some(&wire.to_string()))?.concurrent(MAX_PENDING).open();
        let services = endpoints.iter().map(serve).collect::<Result<_, _>>()?;
        Ok(Nodes {
            services,
            turn: 0,
            intake,
            positions,
            ready: VecDeque::new(),
            pending: VecDeque::new(),
            taken: 0,
            handled: 0,
            origins: BTreeMap::new(),
            undecodable: BTreeSet::new(),
        })
    }

    /// Receives a packet, if there is one.
    fn receive(&mut self, patience: Duration) {
        let each = patience / u32::try_from(self.services.len()).unwrap_or(u32::MAX).max(1);
        for _ in 0..self.services.len() {
            self.turn = (self.turn + 1) % self.services.len();
            if let Some(request) = self.services[self.turn].recv_timeout(each) {
                return self.take(request);
            }
        }
    }

    fn take(&mut self, request: Request<NodePacket, PacketReply>) {
        // A node may be behind a relay, so the sender of the packet is not known.
        match self.intake.take(request.value(), None) {
            Ok(AcceptedPacket { samples, ticket }) => {
                let entries: Vec<Entry> = samples.iter().filter_map(|sample| self.entry(sample)).collect();
                self.taken += entries.len() as u64;
                self.ready.extend(entries);
                let positions = last_of(&samples);
                self.pending.push_back(Pending { request, ticket, last: self.taken, positions });
            }
            Err(rejection) => match rejection.reply() {
                // If the reply is lost, the node sends the packet again.
                Some(reply) => drop(request.reply(&reply)),
                None => request.fail(&rejection.to_string()),
            },
        }
    }

    /// Acknowledges packets whose samples are stored. If the positions cannot be written, the next
    /// call tries again.
    fn acknowledge_stored(&mut self) {
        let packets = self.pending.iter().take_while(|packet| packet.last <= self.handled).count();
        if packets == 0 {
            return;
        }
        let stored: Vec<Position> =
            self.pending.iter().take(packets).flat_map(|packet| packet.positions.iter().copied()).collect();
        let Nodes { positions, intake, .. } = self;
        if let Err(error) = positions.add(&stored, || intake.positions()) {
            log::error!("the positions of stored samples cannot be written: {error}");
            return;
        }
        for packet in self.pending.drain(..packets) {
            intake.stored(packet.ticket);
            // A node that has disconnected sends the packet again later.
            let _ = packet.request.reply(&PacketReply::default());
        }
    }

    /// Makes an entry of a sample; `None` if the sample cannot be decoded.
    fn entry(&mut self, sample: &Sample) -> Option<Entry> {
        let Position { node, start, stream, sequence } = sample.position();
        match sample.decode() {
            Ok(value) => Some(Entry::new(self.origin(sample), sequence + 1, sample.time_ns(), value)),
            Err(error) => {
                if self.undecodable.len() < MAX_ORIGINS && self.undecodable.insert((node, start, stream)) {
                    let instance = &sample.stream().description().instance;
                    log::warn!("node {node}: samples of '{instance}' cannot be decoded: {error}");
                }
                None
            }
        }
    }

    fn origin(&mut self, sample: &Sample) -> Arc<Origin> {
        let Position { node, start, stream, .. } = sample.position();
        if self.origins.len() >= MAX_ORIGINS {
            self.origins.clear();
        }
        let fresh = || {
            let described = sample.stream().description();
            let name = if described.node.is_empty() { node.to_string() } else { described.node.clone() };
            let topic = polywire_telemetry::topic_of(&name, &described.instance);
            Arc::new(Origin { topic, writer: writer(node, stream), incarnation: start })
        };
        self.origins.entry((node, start, stream)).or_insert_with(fresh).clone()
    }
}

impl Source for Nodes {
    fn next(&mut self, patience: Duration) -> Option<Numbered> {
        if self.ready.is_empty() {
            self.receive(patience);
            // A packet without new samples can be acknowledged at once.
            self.acknowledge_stored();
        }
        let entry = self.ready.pop_front()?;
        Some(Numbered { position: self.taken - self.ready.len() as u64, entry })
    }

    fn acknowledge(&mut self, position: u64) {
        self.handled = position;
        self.acknowledge_stored();
    }
}

/// Returns the writer id of a stream: the node's UUID for stream 0, and a different id for each
/// other stream.
fn writer(node: Uuid, stream: u32) -> Id128 {
    let mut id = node.0;
    id.iter_mut().rev().zip(stream.to_le_bytes()).for_each(|(byte, other)| *byte ^= other);
    Id128(id)
}

/// Returns the last position of each stream.
fn last_of(samples: &[Sample]) -> Vec<Position> {
    let positions = samples.iter().map(Sample::position);
    let last: BTreeMap<Stream, Position> =
        positions.map(|position| ((position.node, position.start, position.stream), position)).collect();
    last.into_values().collect()
}
