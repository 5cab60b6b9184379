//! Test nodes with sessions, an emulated network between them, and the invariants that tests check.

mod node;
mod values;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use node::{Interest, Node};
use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    netsim::{Link, Model},
    schema::arbitrary::Random,
};
use values::{Codecs, Sent};

/// The carrier of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Each datagram alone; the sessions repeat lost ones.
    Datagrams,
    /// A byte stream that loses nothing.
    Streams,
}

/// Topics in all. A topic's name is its number.
pub const TOPICS: usize = 3;
/// The time in which nodes start and change.
const CHANGES: u64 = 3 * SECOND;
/// The time after the last change, and the last blackout, in which all sessions match.
const MATCHED_WITHIN: u64 = 60 * SECOND;
/// The time after that in which every matched reader gets a value.
const READ_WITHIN: u64 = 20 * SECOND;
/// Packets that one direction of a link may have under way.
const UNDER_WAY: usize = 2000;

pub const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// How often each situation has occurred that the simulation is meant to test.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub restarts: u64,
    pub late: u64,
    pub blackouts: u64,
    pub retired: u64,
    pub refused: u64,
    pub values: u64,
    pub disposed: u64,
    pub unregistered: u64,
    pub requests: u64,
    pub replies: u64,
    pub keys: u64,
    pub anchored: u64,
    pub chained: u64,
    pub unreadable: u64,
    pub documents: u64,
    pub forged: u64,
    pub repeated: u64,
}

/// Runs seeds.
pub struct Simulation {
    codecs: Codecs,
    pub seen: Seen,
    seeds: u64,
    /// The longest time from the last change to the matched state, and its seed.
    slowest: (u64, u64),
    began: Instant,
}

/// State that all nodes of a run share, and against which their results are checked.
pub struct Shared<'a> {
    pub codecs: &'a Codecs,
    pub seen: &'a mut Seen,
    pub random: Random,
    pub wire: Wire,
    pub now: u64,
    /// Every document there is.
    pub documents: BTreeMap<Id128, Vec<u8>>,
    /// Every announcement, by node, incarnation and channel.
    pub announced: BTreeMap<(usize, u64, ChannelId), Announcement>,
    /// Every message, by node, incarnation, channel and sequence number.
    pub sent: BTreeMap<(usize, u64, ChannelId, u64), Sent>,
}

impl Shared<'_> {
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.now)
    }
}

/// A change, and its time.
#[derive(Clone, Copy, Debug)]
enum Change {
    Start(usize),
    Restart(usize),
    AddWriter(usize),
    RetireWriter(usize),
    Interest(usize),
    Publish,
}

struct World<'a> {
    nodes: Vec<Node>,
    /// By sender and receiver.
    links: BTreeMap<(usize, usize), Link>,
    shared: Shared<'a>,
    /// Latest first.
    changes: Vec<(u64, Change)>,
    seed: u64,
}

impl Simulation {
    pub fn new() -> Simulation {
        let (codecs, seen) = (Codecs::new(), Seen::default());
        Simulation { codecs, seen, seeds: 0, slowest: (0, 0), began: Instant::now() }
    }

    pub fn run(&mut self, seed: u64, wire: Wire, model: &str) {
        let _guard = NamesSeed(seed);
        let mut world = World::new(seed, wire, model, &self.codecs, &mut self.seen);
        let took = world.run();
        self.slowest = self.slowest.max((took, seed));
        self.seeds += 1;
    }

    pub fn report(&self) {
        let (took, seed) = self.slowest;
        println!("{} seeds in {:.1?}: {:?}", self.seeds, self.began.elapsed(), self.seen);
        println!("the slowest matched {:.3} s after the last change: seed {seed}", took as f64 / SECOND as f64);
    }
}

/// Prints the seed of a failed run.
struct NamesSeed(u64);

impl Drop for NamesSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} failed: POLYWIRE_TEST_FIRST={} begins with it", self.0, self.0);
        }
    }
}

impl<'a> World<'a> {
    fn new(seed: u64, wire: Wire, model: &str, codecs: &'a Codecs, seen: &'a mut Seen) -> World<'a> {
        let mut random = Random::new(seed);
        let nodes = 2 + random.below(3);
        let mut links = BTreeMap::new();
        for from in 0..nodes {
            for to in (0..nodes).filter(|to| *to != from) {
                let mut model: Model = model.parse().expect("a model");
                if wire == Wire::Datagrams && random.one_in(4) {
                    seen.blackouts += 1;
                    let begin = random.below(CHANGES as usize) as u64;
                    let length = *random.choose(&[500 * MILLISECOND, 4 * SECOND, 20 * SECOND]);
                    model.down.push((begin, begin + length));
                }
                links.insert((from, to), Link::new(&model, seed ^ ((from * 16 + to) as u64) << 32));
            }
        }
        let mut changes: Vec<(u64, Change)> = Vec::new();
        for node in 0..nodes {
            let late = random.one_in(3);
            seen.late += u64::from(late);
            let at = if late { random.below(CHANGES as usize) as u64 } else { 0 };
            changes.push((at, Change::Start(node)));
        }
        for _ in 0..4 + random.below(8) {
            let node = random.below(nodes);
            let change = match random.below(6) {
                0 if wire == Wire::Datagrams => Change::Restart(node),
                1 | 2 => Change::AddWriter(node),
                3 => Change::RetireWriter(node),
                _ => Change::Interest(node),
            };
            changes.push((random.below(CHANGES as usize) as u64, change));
        }
        changes.extend((0..CHANGES / (60 * MILLISECOND)).map(|i| (i * 60 * MILLISECOND, Change::Publish)));
        changes.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let (documents, announced, sent) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let shared = Shared { codecs, seen, random, wire, now: 0, documents, announced, sent };
        let nodes = (0..nodes).map(Node::new).collect();
        World { nodes, links, shared, changes, seed }
    }

    /// Returns the time from the last change to the matched state.
    fn run(&mut self) -> u64 {
        while self.shared.now < CHANGES {
            self.step(CHANGES);
        }
        let last_down = self.links.values().flat_map(|link| &link.model().down).map(|(_, end)| *end).max();
        let works_from = CHANGES.max(last_down.unwrap_or(0));
        while self.shared.now < works_from {
            self.step(works_from);
        }
        self.until_matched(works_from + MATCHED_WITHIN);
        let took = self.shared.now - works_from;
        // Every reader gets a value now, and matched channels stay matched.
        self.nodes.iter_mut().for_each(Node::forget_values);
        let deadline = self.shared.now + READ_WITHIN;
        while !self.nodes.iter().all(|node| node.has_values()) {
            assert!(self.shared.now < deadline, "seed {}: a matched reader gets nothing: {:#?}", self.seed, self.nodes);
            self.changes.push((self.shared.now, Change::Publish));
            let next = self.shared.now + 20 * MILLISECOND;
            while self.shared.now < next {
                self.step(next);
            }
        }
        self.until_matched(self.shared.now + MATCHED_WITHIN);
        took
    }

    fn until_matched(&mut self, deadline: u64) {
        while !self.is_matched() {
            assert!(self.shared.now < deadline, "seed {}: sessions hang: {:#?}", self.seed, self.nodes);
            self.step(deadline);
        }
    }

    /// Advances to the next event, at `until` at the latest.
    fn step(&mut self, until: u64) {
        let arrival = self.links.values().filter_map(Link::next).min();
        let timeout = self.nodes.iter().filter_map(Node::next_timeout).min();
        let change = self.changes.last().map(|(at, _)| *at);
        let next = [arrival, timeout, change].into_iter().flatten().min().unwrap_or(until);
        self.shared.now = next.max(self.shared.now).min(until);
        let now = self.shared.now;
        while let Some((_, change)) = self.changes.pop_if(|(at, _)| *at <= now) {
            self.change(change);
        }
        for node in &mut self.nodes {
            node.handle_timeout(&mut self.shared);
        }
        for ((from, to), link) in &mut self.links {
            while let Some(arrival) = link.pop(now) {
                self.nodes[*to].receive(*from, &arrival.packet, &mut self.shared);
            }
        }
        for ((from, to), link) in &mut self.links {
            while let Some(packet) = self.nodes[*from].packet(*to) {
                link.push(now, packet);
            }
            assert!(link.under_way() <= UNDER_WAY, "seed {}: {} packets under way", self.seed, link.under_way());
        }
    }

    fn change(&mut self, change: Change) {
        let shared = &mut self.shared;
        match change {
            Change::Start(number) => {
                let others: Vec<usize> = match shared.wire {
                    Wire::Datagrams => (0..self.nodes.len()).filter(|other| *other != number).collect(),
                    Wire::Streams => (0..self.nodes.len()).filter(|other| self.nodes[*other].is_up()).collect(),
                };
                self.nodes[number].start(1, &others, shared);
                if shared.wire == Wire::Streams {
                    others.iter().for_each(|other| self.nodes[*other].connect(number, shared));
                }
            }
            Change::Restart(number) => {
                let others: Vec<usize> = (0..self.nodes.len()).filter(|other| *other != number).collect();
                let node = &mut self.nodes[number];
                if node.is_up() {
                    shared.seen.restarts += 1;
                    node.start(node.incarnation() + 1, &others, shared);
                }
            }
            Change::AddWriter(number) => self.nodes[number].add_writer(shared),
            Change::RetireWriter(number) => self.nodes[number].retire_writer(shared),
            Change::Interest(number) => self.nodes[number].change_interest(shared),
            Change::Publish => self.nodes.iter_mut().for_each(|node| node.publish(shared)),
        }
    }

    /// Whether every node knows exactly the channels of every other, and every writer knows who
    /// reads and who refuses.
    fn is_matched(&self) -> bool {
        let pairs = self.links.keys().filter(|(from, to)| self.nodes[*from].is_up() && self.nodes[*to].is_up());
        pairs.into_iter().all(|(from, to)| {
            let (writer, reader) = (&self.nodes[*from], &self.nodes[*to]);
            writer.channels().all(|(channel, topic)| {
                writer.is_answered(*to, channel, reader.interest(topic)) && reader.knows(*from, writer, channel)
            }) && reader.known_channels(*from) == writer.channels().count()
        })
    }
}

/// The answer of a node with this interest.
pub fn expected(interest: Interest) -> polywire_core::frame::Answer {
    use polywire_core::frame::Answer;
    match interest {
        Interest::None => Answer::Decline,
        Interest::Reads(count) => Answer::Accept(count),
        Interest::Refuses => Answer::Refuse(node::INCOMPATIBLE.into()),
        Interest::Both(count) => Answer::Partial(count, node::INCOMPATIBLE.into()),
    }
}
