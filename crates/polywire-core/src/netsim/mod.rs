//! A network link in virtual time. Which packets arrive, and when, is a function of a [`Model`], a
//! seed and the packets sent. Tests, the emulated links of `polywire-link` and the models of
//! `polywire-measure` use it.
//!
//! Nothing here reads a clock or waits. [`Link::push`] takes the time and decides at once whether
//! and when a packet arrives; [`Link::pop`] returns the packets that have arrived. A test runs
//! hours of traffic in milliseconds, and the run is the same on every machine for the same seed,
//! model and packets. Times are nanoseconds since an origin that the caller chooses.
//!
//! ```
//! use polywire_core::netsim::{Fate, Link, Model};
//!
//! let model: Model = "delay=20ms,rate=8mbit,loss=50%".parse()?;
//! let mut link = Link::new(&model, 7);
//! // With this seed the first packet is lost. The second waits for the line: a thousand bytes take a millisecond at 8 Mbit/s, and then they travel.
//! assert_eq!(link.push(0, vec![0; 1000]), Fate::Lost);
//! assert_eq!(link.push(0, vec![0; 1000]), Fate::Arrives(22_000_000));
//! for _ in 2..100 {
//!     link.push(2_000_000, vec![0; 1000]);
//! }
//! let mut arrived = 0;
//! while let Some(time) = link.next() {
//!     arrived += usize::from(link.pop(time).is_some());
//! }
//! assert_eq!(arrived as u64, link.stats().delivered);
//! assert!((30..70).contains(&arrived));
//! # Ok::<(), polywire_core::netsim::BadModel>(())
//! ```
//!
//! A packet passes, in this order: blackouts, the queue's limit, the line's rate, loss of each
//! fragment, duplication, corruption, and delay with jitter, unless the packet is chosen to
//! overtake others. Loss comes after the queue, so that a lost packet has taken its time on the
//! line, as on a real link. Each kind of chance has its own sequence of random numbers: adding
//! jitter to a model does not change which packets are lost.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

mod model;
mod random;

pub use model::{BadModel, Delay, Fragments, Jitter, Loss, Model, PROFILES, Profile};
use random::Stream;

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Link {
    model: Model,
    loss: LossState,
    jitter: Stream,
    copies: Stream,
    damage: Stream,
    overtaking: Stream,
    /// The time at which the line is free again.
    free_at: u64,
    /// Bytes in the token bucket, and the time of that count.
    tokens: (f64, u64),
    /// Packets that wait for the line: the time at which each leaves the queue, and its bytes.
    queue: VecDeque<(u64, usize)>,
    queued: usize,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    under_way_bytes: usize,
    /// The latest arrival so far. Used where order is kept.
    latest: u64,
    /// The highest number of a packet that has come out.
    newest: u64,
    pushed: u64,
    stats: Stats,
}

/// Counts of packets by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Packets that went in.
    pub sent: u64,
    /// Bytes of the packets that went in.
    pub sent_bytes: u64,
    /// Packets that came out, copies included.
    pub delivered: u64,
    /// Bytes of the packets that came out.
    pub delivered_bytes: u64,
    /// Packets that the loss model took.
    pub lost: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that went in during a blackout.
    pub blacked_out: u64,
    /// Packets that were too long for a link that does not fragment.
    pub too_long: u64,
    /// Packets that came out twice.
    pub duplicated: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets that came out after one that went in later.
    pub reordered: u64,
    /// Sum of the travel times of all packets that came out, in nanoseconds.
    pub delay_ns: u128,
}

/// What [`Link::push`] did with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// It arrives at this time. A copy of it may arrive too.
    Arrives(u64),
    /// The loss model took it, or one of its fragments.
    Lost,
    /// The queue was full.
    Dropped,
    /// The link was down.
    BlackedOut,
    /// It is longer than the longest packet that the link carries.
    TooLong,
}

/// A packet that has arrived.
///
/// ```
/// use polywire_core::netsim::{Arrival, Link, Stats};
/// let mut link = Link::new(&"delay=1ms".parse().unwrap(), 1);
/// link.push(500, b"hello".to_vec());
/// let arrival: Arrival = link.pop(1_000_500).unwrap();
/// assert_eq!(arrival, Arrival { at: 1_000_500, sent_at: 500, number: 0, packet: b"hello".to_vec() });
/// let Stats { sent, delivered, delay_ns, .. } = link.stats();
/// assert_eq!((sent, delivered, delay_ns), (1, 1, 1_000_000));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrived.
    pub at: u64,
    /// When it went in.
    pub sent_at: u64,
    /// Its number: packets are counted from 0 as they go in.
    pub number: u64,
    /// Its bytes, as they arrived.
    pub packet: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct UnderWay {
    arrival: Arrival,
    /// Distinguishes copies, and orders packets that arrive at the same time.
    rank: u64,
}

impl Link {
    /// Makes a link.
    pub fn new(model: &Model, seed: u64) -> Link {
        let stream = |purpose| Stream::new(seed, purpose);
        Link {
            model: model.clone(),
            loss: LossState { stream: stream(1), bad: false, count: 0 },
            jitter: stream(2),
            copies: stream(3),
            damage: stream(4),
            overtaking: stream(5),
            free_at: 0,
            tokens: (model.burst_bytes as f64, 0),
            queue: VecDeque::new(),
            queued: 0,
            under_way: BinaryHeap::new(),
            under_way_bytes: 0,
            latest: 0,
            newest: 0,
            pushed: 0,
            stats: Stats::default(),
        }
    }

    /// Uses another model from now on. Packets under way arrive as they would have.
    ///
    /// ```
    /// use polywire_core::netsim::{Link, Model};
    /// let mut link = Link::new(&"delay=1s".parse().unwrap(), 1);
    /// link.push(0, b"slow".to_vec());
    /// link.set_model(&Model::default());
    /// link.push(1, b"fast".to_vec());
    /// assert_eq!(link.under_way(), 2);
    /// assert_eq!(link.pop(1).unwrap().packet, b"fast");
    /// assert_eq!(link.next(), Some(1_000_000_000), "nanoseconds");
    /// ```
    pub fn set_model(&mut self, model: &Model) {
        self.model = model.clone();
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Sends a packet at `now`, which must not be earlier than in any call before.
    pub fn push(&mut self, now: u64, packet: Vec<u8>) -> Fate {
        let number = self.pushed;
        let fate = self.admit(now, packet.len());
        if let Fate::Arrives(at) = fate {
            self.carry(Arrival { at, sent_at: now, number, packet });
        }
        fate
    }

    /// Like [`Link::push`] for a packet of `len` bytes, but delivers nothing: the packet takes its
    /// time on the line and is counted as sent. For models that need only the times.
    ///
    /// ```
    /// use polywire_core::netsim::{Fate, Link};
    /// let mut link = Link::new(&"rate=8mbit,delay=1ms".parse().unwrap(), 1);
    /// assert_eq!(link.admit(0, 1000), Fate::Arrives(2_000_000));
    /// assert_eq!(link.push(0, vec![0; 1000]), Fate::Arrives(3_000_000));
    /// assert_eq!((link.under_way(), link.stats().sent), (1, 2));
    /// ```
    pub fn admit(&mut self, now: u64, len: usize) -> Fate {
        self.pushed += 1;
        self.stats.sent += 1;
        self.stats.sent_bytes += len as u64;
        let fate = self.fate(now, len);
        match fate {
            Fate::Arrives(_) => {}
            Fate::Lost => self.stats.lost += 1,
            Fate::Dropped => self.stats.dropped += 1,
            Fate::BlackedOut => self.stats.blacked_out += 1,
            Fate::TooLong => self.stats.too_long += 1,
        }
        fate
    }

    /// The time at which the next packet arrives. `None` if none is under way.
    pub fn next(&self) -> Option<u64> {
        self.under_way.peek().map(|Reverse(next)| next.arrival.at)
    }

    /// Takes the earliest packet that has arrived by `now`.
    pub fn pop(&mut self, now: u64) -> Option<Arrival> {
        if self.next()? > now {
            return None;
        }
        let Reverse(UnderWay { arrival, .. }) = self.under_way.pop()?;
        self.under_way_bytes -= arrival.packet.len();
        self.stats.delivered += 1;
        self.stats.delivered_bytes += arrival.packet.len() as u64;
        self.stats.delay_ns += u128::from(arrival.at - arrival.sent_at);
        self.stats.reordered += u64::from(arrival.number < self.newest);
        self.newest = self.newest.max(arrival.number);
        Some(arrival)
    }

    /// The number of packets under way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Bytes of the packets under way, all of which are in memory.
    ///
    /// ```
    /// use polywire_core::netsim::Link;
    /// let mut link = Link::new(&"delay=1ms,duplicate=100%".parse().unwrap(), 1);
    /// link.push(0, vec![0; 100]);
    /// assert_eq!((link.under_way(), link.under_way_bytes()), (2, 200));
    /// while link.pop(2_000_000).is_some() {}
    /// assert_eq!(link.under_way_bytes(), 0);
    /// ```
    pub fn under_way_bytes(&self) -> usize {
        self.under_way_bytes
    }

    /// Counts of all packets so far, by outcome.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    fn fate(&mut self, now: u64, len: usize) -> Fate {
        if self.model.is_down(now) {
            return Fate::BlackedOut;
        }
        let fragments = match self.model.fragments {
            Some(Fragments::Split(size)) => len.div_ceil(size.get()).max(1),
            Some(Fragments::Refuse(size)) if len > size.get() => return Fate::TooLong,
            _ => 1,
        };
        let Some(sent) = self.queue_up(now, len) else { return Fate::Dropped };
        // Draws for every fragment: the loss model counts all of them.
        let lost = (0..fragments).filter(|_| self.loss.takes(&self.model.loss)).count();
        if lost > 0 {
            return Fate::Lost;
        }
        let overtakes = self.overtaking.chance(self.model.reorder);
        let travel = if overtakes { 0 } else { self.model.delay.draw(&mut self.jitter) };
        let mut at = sent + travel;
        if !overtakes && self.model.keep_order {
            at = at.max(self.latest);
            self.latest = at;
        }
        Fate::Arrives(at)
    }

    /// Puts a packet on the line, and returns the time at which its last bit leaves. `None` if the
    /// queue is full.
    fn queue_up(&mut self, now: u64, len: usize) -> Option<u64> {
        let Some(rate) = self.model.rate else { return Some(now) };
        while let Some((_, bytes)) = self.queue.front().copied().filter(|(left, _)| *left <= now) {
            self.queue.pop_front();
            self.queued -= bytes;
        }
        if self.queued + len > self.model.queue_bytes {
            return None;
        }
        let start = now.max(self.free_at);
        // The bucket holds the bytes that may go without waiting. It fills at the rate of the line.
        let (tokens, since) = self.tokens;
        let refilled = (start - since.min(start)) as f64 * rate.get() as f64 / 8e9;
        let tokens = (tokens + refilled).min(self.model.burst_bytes as f64);
        let waits = (len as f64 - tokens).max(0.0) * 8e9 / rate.get() as f64;
        let left = start + waits.round() as u64;
        self.tokens = ((tokens - len as f64).max(0.0), left);
        self.free_at = left;
        self.queue.push_back((left, len));
        self.queued += len;
        Some(left)
    }

    fn carry(&mut self, mut arrival: Arrival) {
        if self.copies.chance(self.model.duplicate) {
            self.stats.duplicated += 1;
            let delay = if self.model.keep_order { 0 } else { self.model.delay.draw(&mut self.jitter) / 8 };
            let copy = Arrival { at: arrival.at + delay, ..arrival.clone() };
            self.enqueue(copy, 1);
        }
        if self.damage.chance(self.model.corrupt) && !arrival.packet.is_empty() {
            self.stats.corrupted += 1;
            let bit = self.damage.below(arrival.packet.len() as u64 * 8);
            arrival.packet[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        self.enqueue(arrival, 0);
    }

    fn enqueue(&mut self, arrival: Arrival, copy: u64) {
        let rank = arrival.number * 2 + copy;
        self.under_way_bytes += arrival.packet.len();
        self.under_way.push(Reverse(UnderWay { arrival, rank }));
    }
}

impl Ord for UnderWay {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.arrival.at, self.rank).cmp(&(other.arrival.at, other.rank))
    }
}

impl PartialOrd for UnderWay {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Two links, one for each direction, with different seeds.
#[derive(Clone, Debug)]
pub struct Duplex {
    /// From the first end to the second.
    pub there: Link,
    /// From the second end to the first.
    pub back: Link,
}

impl Duplex {
    /// Uses the same model for both directions.
    pub fn new(model: &Model, seed: u64) -> Duplex {
        Duplex::asymmetric(model, model, seed)
    }

    /// Uses a model for each direction.
    ///
    /// ```
    /// use polywire_core::netsim::{Duplex, Model};
    /// let mut both = Duplex::asymmetric(&"delay=5ms".parse().unwrap(), &Model::default(), 1);
    /// both.there.push(0, vec![0; 100]);
    /// both.back.push(0, vec![0; 100]);
    /// assert_eq!((both.there.next(), both.back.next()), (Some(5_000_000), Some(0)));
    /// ```
    pub fn asymmetric(there: &Model, back: &Model, seed: u64) -> Duplex {
        Duplex { there: Link::new(there, seed), back: Link::new(back, !seed) }
    }

    /// The time at which the next packet arrives at either end.
    pub fn next(&self) -> Option<u64> {
        match (self.there.next(), self.back.next()) {
            (Some(there), Some(back)) => Some(there.min(back)),
            (there, back) => there.or(back),
        }
    }
}

/// The state of a loss model.
#[derive(Clone, Debug)]
struct LossState {
    stream: Stream,
    /// Whether the chain is in its bad state.
    bad: bool,
    count: u64,
}

impl LossState {
    /// Whether the next packet is lost.
    fn takes(&mut self, loss: &Loss) -> bool {
        let number = self.count;
        self.count += 1;
        match loss {
            Loss::None => false,
            Loss::Bernoulli(rate) => self.stream.chance(*rate),
            Loss::Gilbert { .. } | Loss::GilbertElliott { .. } => {
                let (enter, leave, good, bad) = loss.chain();
                let moves = self.stream.chance(if self.bad { leave } else { enter });
                self.bad ^= moves;
                let rate = if self.bad { bad } else { good };
                rate >= 1.0 || (rate > 0.0 && self.stream.chance(rate))
            }
            Loss::Pattern(pattern) => !pattern.is_empty() && pattern[(number % pattern.len() as u64) as usize],
            Loss::Burst { every, length } => *every > 0 && number % every >= every.saturating_sub(*length),
        }
    }
}
