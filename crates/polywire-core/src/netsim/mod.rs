//! A link in virtual time: what leaves one end of a lossy, slow or jittery network, and when, as a
//! function of a seed and of what went in.
//!
//! Nothing here reads a clock or waits. [`Link::push`] is told what time it is and decides at once
//! what becomes of a packet; [`Link::pop`] gives the packets whose time has come. A test runs hours
//! of traffic in milliseconds, and the same seed, model and packets give the same run on every
//! machine. Times are nanoseconds since any one moment.
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
//! The order in which a packet meets what can happen to it: a blackout, the queue's limit, the line
//! (its rate), loss of each fragment, duplication, corruption, and then delay with jitter, unless
//! it is chosen to overtake. Loss comes behind the queue, so that what is lost has taken its time
//! on the line, as on a real link. Each kind of chance has a stream of random numbers of its own:
//! switching jitter on changes no loss.

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
    /// When the line is free again.
    free_at: u64,
    /// Bytes that may go at once, and when that was so.
    tokens: (f64, u64),
    /// What waits for the line: when each packet leaves the queue, and its bytes.
    queue: VecDeque<(u64, usize)>,
    queued: usize,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    under_way_bytes: usize,
    /// The latest arrival so far, where order is kept.
    latest: u64,
    /// The packet that went in last of those that came out.
    newest: u64,
    pushed: u64,
    stats: Stats,
}

/// What became of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Packets that went in.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that came out, copies included.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets that the loss model took.
    pub lost: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that went in during a blackout.
    pub blacked_out: u64,
    /// Packets longer than the largest that the link carries, where it does not fragment.
    pub too_long: u64,
    /// Packets that came out twice.
    pub duplicated: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets that came out behind one that went in later.
    pub reordered: u64,
    /// Sum of the times between in and out of what came out, in nanoseconds.
    pub delay_ns: u128,
}

/// What [`Link::push`] did with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// It arrives at this time; a copy of it perhaps as well.
    Arrives(u64),
    /// The loss model took it, or one of its fragments.
    Lost,
    /// The queue was full.
    Dropped,
    /// The link was down.
    BlackedOut,
    /// It is longer than the link carries.
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
    /// Which it was, counted from 0 in the order in which they went in.
    pub number: u64,
    /// Its bytes, as they arrived.
    pub packet: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct UnderWay {
    arrival: Arrival,
    /// Distinguishes copies, and keeps the order of what arrives at once.
    rank: u64,
}

impl Link {
    /// A link that nothing has gone through yet.
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

    /// Uses another model from now on; what is under way arrives as it would have.
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

    /// Sends a packet at `now`, which must not be earlier than in a call before.
    pub fn push(&mut self, now: u64, packet: Vec<u8>) -> Fate {
        let number = self.pushed;
        let fate = self.admit(now, packet.len());
        if let Fate::Arrives(at) = fate {
            self.carry(Arrival { at, sent_at: now, number, packet });
        }
        fate
    }

    /// What [`Link::push`] would do with a packet of so many bytes, which takes its time on the
    /// line and is counted as sent, but not carried: nothing comes out. For models of many
    /// packets that need to know nothing but when.
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

    /// When the next packet arrives; none is under way if there is no such time.
    pub fn next(&self) -> Option<u64> {
        self.under_way.peek().map(|Reverse(next)| next.arrival.at)
    }

    /// A packet that has arrived by `now`, the earliest first.
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

    /// Packets under way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Their bytes: what whoever drives the link keeps in memory for it.
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

    /// What became of all packets so far.
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
        // All fragments are asked about: whether one is lost does not hang on those before.
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

    /// Puts a packet on the line, and gives when its last bit has left; none if there is no room to
    /// wait in.
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
        // A bucket holds what may go without waiting; it fills at the rate of the line.
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

/// Two links, one a direction, with seeds of their own.
#[derive(Clone, Debug)]
pub struct Duplex {
    /// From the one end to the other.
    pub there: Link,
    /// From the other end to the one.
    pub back: Link,
}

impl Duplex {
    /// The same model both ways.
    pub fn new(model: &Model, seed: u64) -> Duplex {
        Duplex::asymmetric(model, model, seed)
    }

    /// A model each way.
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

    /// When the next packet arrives at either end.
    pub fn next(&self) -> Option<u64> {
        match (self.there.next(), self.back.next()) {
            (Some(there), Some(back)) => Some(there.min(back)),
            (there, back) => there.or(back),
        }
    }
}

/// A loss model at work.
#[derive(Clone, Debug)]
struct LossState {
    stream: Stream,
    /// In the state that loses.
    bad: bool,
    count: u64,
}

impl LossState {
    /// True if the next packet is lost.
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
