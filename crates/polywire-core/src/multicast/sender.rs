//! The sending half of a member: records become numbered packets, which are kept until every
//! follower has taken them, and repaired when one lacks them.

use alloc::{
    collections::{BTreeSet, VecDeque},
    vec::Vec,
};
use core::time::Duration;

use super::{
    Config, MemberId,
    packet::{self, OVERHEAD, PART_OVERHEAD},
    rate::TokenBucket,
};

#[derive(Debug)]
pub(super) struct Sender {
    id: MemberId,
    reliable: Lane,
    loose: Lane,
    /// The retransmission buffer: packets from `oldest` up to the next one.
    kept: VecDeque<Kept>,
    kept_bytes: usize,
    oldest: u64,
    /// The first packet that some follower has not taken. The largest number if nobody follows.
    taken: u64,
    repairs: BTreeSet<u64>,
    /// Packets sent again so far.
    retransmitted: u64,
    bucket: TokenBucket,
}

/// Records that wait to become packets, and the number of the next packet.
#[derive(Debug)]
struct Lane {
    queue: VecDeque<Queued>,
    bytes: usize,
    next: u64,
    /// The next part of the first record: its index, and the bytes before it.
    part: Option<(u64, usize)>,
    /// Records that came within the batching interval of the one before.
    run: u32,
    last: Option<Duration>,
}

#[derive(Debug)]
struct Queued {
    bytes: Vec<u8>,
    since: Duration,
    to: Option<MemberId>,
    weight: u32,
}

#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    weights: Weights,
    repaired: Option<Duration>,
}

/// The weights of records that leave together: of those for all members, and of those for one.
#[derive(Debug, Default)]
struct Weights {
    of_all: u64,
    of_one: Vec<(MemberId, u32)>,
}

impl Sender {
    pub(super) fn new(id: MemberId, config: &Config) -> Sender {
        Sender {
            id,
            reliable: Lane::new(),
            loose: Lane::new(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            oldest: 1,
            taken: u64::MAX,
            repairs: BTreeSet::new(),
            retransmitted: 0,
            bucket: TokenBucket::new(config.rate_limit, config.rate_interval),
        }
    }

    /// Queues a record for one member, or for all, with its header.
    pub(super) fn push(
        &mut self,
        to: Option<MemberId>,
        reliable: bool,
        bytes: Vec<u8>,
        weight: u32,
        now: Duration,
        config: &Config,
    ) {
        let lane = self.lane(reliable);
        let quickly = lane.last.is_some_and(|last| now.saturating_sub(last) <= config.batch_interval);
        lane.run = if quickly { lane.run.saturating_add(1) } else { 0 };
        lane.last = Some(now);
        lane.bytes += bytes.len();
        lane.queue.push_back(Queued { bytes, since: now, to, weight });
    }

    /// The number of the next reliable packet, which a newcomer begins to follow at. It is not
    /// given to another newcomer: an empty packet sees to that.
    pub(super) fn start(&mut self, now: Duration, config: &Config) -> u64 {
        let start = self.reliable.next;
        self.push(None, true, Vec::new(), 0, now, config);
        start
    }

    pub(super) fn next(&self) -> u64 {
        self.reliable.next
    }

    pub(super) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Bytes of records that are not in packets yet.
    pub(super) fn queued_bytes(&self) -> usize {
        self.reliable.bytes + self.loose.bytes
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.queued_bytes() + self.kept_bytes
    }

    /// Whether everything has been sent.
    pub(super) fn is_sent(&self) -> bool {
        self.reliable.queue.is_empty() && self.loose.queue.is_empty()
    }

    /// Whether everything has been sent, and every follower has taken it.
    pub(super) fn is_taken(&self) -> bool {
        self.is_sent() && self.kept.is_empty()
    }

    /// Whether followers keep the next reliable packet from being sent.
    pub(super) fn is_blocked(&self, config: &Config) -> bool {
        self.kept.len() >= config.window || self.kept_bytes >= config.retransmission_buffer
    }

    /// Whether the followers have taken half of what they may leave.
    pub(super) fn is_relaxed(&self, config: &Config) -> bool {
        self.kept.len() <= config.window / 2 && self.kept_bytes <= config.retransmission_buffer / 2
    }

    /// Sum of the weights of the reliable records for a member that end in packets from `taken` on,
    /// or have not left as a whole.
    pub(super) fn weight_from(&self, taken: u64, member: MemberId) -> u64 {
        let skip = usize::try_from(taken.saturating_sub(self.oldest)).unwrap_or(usize::MAX);
        let kept: u64 = self.kept.iter().skip(skip).map(|kept| kept.weights.of(member)).sum();
        let is_for_it = |record: &&Queued| record.to.is_none_or(|to| to == member);
        let queued: u64 = self.reliable.queue.iter().filter(is_for_it).map(|record| u64::from(record.weight)).sum();
        kept + queued
    }

    /// Every follower has taken what is before this number. Packets before it are forgotten.
    pub(super) fn set_taken(&mut self, taken: u64) {
        self.taken = taken;
        self.forget_taken();
    }

    fn forget_taken(&mut self) {
        while self.oldest < self.taken.min(self.reliable.next) {
            let Some(kept) = self.kept.pop_front() else { break };
            self.kept_bytes -= kept.bytes.len();
            self.repairs.remove(&self.oldest);
            self.oldest += 1;
        }
        if self.kept.is_empty() {
            self.oldest = self.reliable.next;
        }
    }

    /// A follower lacks these packets. Each is sent once for all who ask within the pause.
    pub(super) fn repair(&mut self, ranges: &[(u64, u64)], now: Duration, config: &Config) {
        for (first, count) in ranges {
            let end = first.saturating_add(*count).min(self.reliable.next);
            for number in (*first).max(self.oldest)..end {
                let Some(kept) = self.kept.get_mut((number - self.oldest) as usize) else { break };
                let recently = |at: Duration| now.saturating_sub(at) < config.next_nak_delay / 2;
                if !kept.repaired.is_some_and(recently) {
                    kept.repaired = Some(now);
                    self.repairs.insert(number);
                }
            }
        }
    }

    /// Puts the next packet into `out`. False if none may leave now.
    pub(super) fn poll(&mut self, now: Duration, config: &Config, out: &mut Vec<u8>) -> bool {
        if !self.bucket.is_open(now) {
            return false;
        }
        out.clear();
        let found = self.poll_repair(out) || self.poll_reliable(now, config, out) || self.poll_loose(now, config, out);
        if found {
            self.bucket.take(out.len(), now);
        }
        found
    }

    pub(super) fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    fn poll_repair(&mut self, out: &mut Vec<u8>) -> bool {
        while let Some(number) = self.repairs.pop_first() {
            let at = number.checked_sub(self.oldest).and_then(|at| usize::try_from(at).ok());
            if let Some(kept) = at.and_then(|at| self.kept.get(at)) {
                out.extend_from_slice(&kept.bytes);
                self.retransmitted += 1;
                return true;
            }
        }
        false
    }

    fn poll_reliable(&mut self, now: Duration, config: &Config, out: &mut Vec<u8>) -> bool {
        if self.is_blocked(config) || !self.reliable.is_due(now, config) {
            return false;
        }
        let weights = self.reliable.packet(true, self.id, config, out);
        if self.taken == u64::MAX {
            self.oldest = self.reliable.next;
        } else {
            self.kept_bytes += out.len();
            self.kept.push_back(Kept { bytes: out.clone(), weights, repaired: None });
        }
        true
    }

    fn poll_loose(&mut self, now: Duration, config: &Config, out: &mut Vec<u8>) -> bool {
        let due = self.loose.is_due(now, config);
        if due {
            self.loose.packet(false, self.id, config, out);
        }
        due
    }

    /// When [`Sender::poll`] may have a packet. `None` if that needs another call first.
    pub(super) fn next_timeout(&self, config: &Config) -> Option<Duration> {
        let repair = (!self.repairs.is_empty()).then_some(Duration::ZERO);
        let reliable = if self.is_blocked(config) { None } else { self.reliable.due_at(config) };
        let loose = self.loose.due_at(config);
        let due = [repair, reliable, loose].into_iter().flatten().min()?;
        Some(due.max(self.bucket.opens_at()))
    }

    fn lane(&mut self, reliable: bool) -> &mut Lane {
        if reliable { &mut self.reliable } else { &mut self.loose }
    }
}

impl Lane {
    fn new() -> Lane {
        Lane { queue: VecDeque::new(), bytes: 0, next: 1, part: None, run: 0, last: None }
    }

    /// When the first record is to leave: at once, or when records follow each other quickly, as
    /// soon as a batch is full or old.
    fn due_at(&self, config: &Config) -> Option<Duration> {
        let first = self.queue.front()?;
        let at_once = self.part.is_some() || self.run < config.batch_after || self.bytes >= config.batch_bytes;
        Some(if at_once { Duration::ZERO } else { first.since.saturating_add(config.batch_interval) })
    }

    fn is_due(&self, now: Duration, config: &Config) -> bool {
        self.due_at(config).is_some_and(|at| at <= now)
    }

    /// Makes a packet of the first records, or of the next part of the first. Gives the weights of
    /// the records that end in it.
    fn packet(&mut self, reliable: bool, id: MemberId, config: &Config, out: &mut Vec<u8>) -> Weights {
        let number = self.next;
        self.next += 1;
        let room = config.packet_bytes.saturating_sub(OVERHEAD).max(1);
        let mut weights = Weights::default();
        let first = self.queue.front().map_or(0, |first| first.bytes.len());
        if self.part.is_some() || first > room {
            let piece = room.saturating_sub(PART_OVERHEAD).max(1);
            let (index, from) = self.part.unwrap_or_default();
            let to = (from + piece).min(first);
            packet::begin_part(reliable, id, number, (index, first.div_ceil(piece) as u64), out);
            if let Some(front) = self.queue.front() {
                out.extend_from_slice(front.bytes.get(from..to).unwrap_or_default());
            }
            self.part = (to < first).then_some((index + 1, to));
            if self.part.is_none() {
                self.pop().iter().for_each(|record| weights.add(record));
            }
        } else {
            packet::begin_records(reliable, id, number, out);
            let mut left = room;
            while let Some(record) = self.queue.front().filter(|record| record.bytes.len() <= left) {
                left -= record.bytes.len();
                out.extend_from_slice(&record.bytes);
                weights.add(record);
                self.pop();
            }
        }
        packet::finish(out);
        weights
    }

    fn pop(&mut self) -> Option<Queued> {
        let record = self.queue.pop_front()?;
        self.bytes -= record.bytes.len();
        Some(record)
    }
}

impl Weights {
    fn add(&mut self, record: &Queued) {
        let Some(to) = record.to else {
            self.of_all += u64::from(record.weight);
            return;
        };
        match self.of_one.last_mut().filter(|(last, _)| *last == to) {
            Some((_, weight)) => *weight = weight.saturating_add(record.weight),
            None if record.weight > 0 => self.of_one.push((to, record.weight)),
            None => {}
        }
    }

    fn of(&self, member: MemberId) -> u64 {
        let of_one = self.of_one.iter().filter(|(to, _)| *to == member);
        self.of_all + of_one.map(|(_, weight)| u64::from(*weight)).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::packet::{Body, Content, Packet},
        *,
    };

    fn config() -> Config {
        Config { packet_bytes: 100, batch_bytes: 100, rate_limit: None, window: 4, ..Config::default() }
    }

    fn poll(sender: &mut Sender, now: Duration) -> Option<(u64, Content<'static>)> {
        let mut out = Vec::new();
        sender.poll(now, &config(), &mut out).then(|| match Packet::parse(&out).expect("a packet").body {
            Body::Reliable(number, content) | Body::Loose(number, content) => (number, content.into_owned()),
            body => panic!("{body:?}"),
        })
    }

    #[test]
    fn records_share_a_packet_and_long_ones_take_several() {
        let (config, now) = (config(), Duration::ZERO);
        let mut sender = Sender::new(MemberId(1), &config);
        for len in [30u8, 30, 190, 5] {
            sender.push(None, true, vec![len; len.into()], 1, now, &config);
        }
        let Some((1, Content::Records(two))) = poll(&mut sender, now) else { panic!() };
        assert_eq!(two.len(), 60);
        let mut whole = Vec::new();
        for part in 0..3 {
            let Some((number, Content::Part { index, count: 3, bytes })) = poll(&mut sender, now) else { panic!() };
            assert_eq!((number, index), (2 + part, part));
            whole.extend_from_slice(&bytes);
        }
        assert_eq!(whole, [190; 190]);
        assert!(matches!(poll(&mut sender, now), Some((5, Content::Records(_)))));
        assert!(sender.is_taken(), "nobody follows, so nothing is kept");
    }

    #[test]
    fn the_window_closes_and_repairs_are_shared() {
        let (config, now) = (config(), Duration::ZERO);
        let mut sender = Sender::new(MemberId(1), &config);
        sender.set_taken(1);
        for _ in 0..6 {
            sender.push(None, true, vec![1; 70], 1, now, &config);
        }
        let numbers: Vec<u64> = core::iter::from_fn(|| Some(poll(&mut sender, now)?.0)).collect();
        assert_eq!((numbers, sender.weight_from(3, MemberId(2))), (vec![1, 2, 3, 4], 4));
        assert_eq!(sender.next_timeout(&config), None);
        for _ in 0..5 {
            sender.repair(&[(2, 2), (9, u64::MAX - 9)], now, &config);
        }
        let repaired: Vec<u64> = core::iter::from_fn(|| Some(poll(&mut sender, now)?.0)).collect();
        assert_eq!(repaired, [2, 3], "one repair for all who ask");
        assert_eq!(sender.retransmitted(), 2);
        sender.set_taken(3);
        sender.repair(&[(1, 2)], now + config.next_nak_delay, &config);
        let further: Vec<u64> = core::iter::from_fn(|| Some(poll(&mut sender, now)?.0)).collect();
        assert_eq!((further, sender.oldest()), (vec![5, 6], 3));
    }

    #[test]
    fn weights_count_what_is_for_a_member_until_it_has_left_as_a_whole() {
        let (config, now) = (config(), Duration::ZERO);
        let mut sender = Sender::new(MemberId(1), &config);
        sender.set_taken(1);
        for (to, len) in [(None, 70), (Some(MemberId(3)), 30), (Some(MemberId(3)), 30), (None, 190), (None, 70)] {
            sender.push(to, true, vec![1; len], 1, now, &config);
        }
        let weights = |sender: &Sender, taken| [2, 3].map(|member| sender.weight_from(taken, MemberId(member)));
        assert_eq!(weights(&sender, 1), [3, 5]);
        // The window ends behind the second of three parts.
        while poll(&mut sender, now).is_some() {}
        assert_eq!((sender.next(), weights(&sender, 1), weights(&sender, 5)), (5, [3, 5], [2, 2]));
        sender.set_taken(3);
        while poll(&mut sender, now).is_some() {}
        assert_eq!((weights(&sender, 5), weights(&sender, 6)), ([2, 2], [1, 1]));
    }

    #[test]
    fn records_in_quick_succession_wait_for_each_other() {
        let (config, mut now) =
            (Config { batch_after: 2, batch_interval: Duration::from_micros(50), ..config() }, Duration::ZERO);
        let mut sender = Sender::new(MemberId(1), &config);
        let mut out = Vec::new();
        let mut sent = 0;
        for _ in 0..5 {
            now += Duration::from_micros(10);
            sender.push(None, false, vec![1; 20], 1, now, &config);
            sent += usize::from(sender.poll(now, &config, &mut out));
        }
        assert_eq!((sent, sender.queued_bytes()), (2, 60));
        let due = sender.next_timeout(&config).expect("a batch waits");
        assert_eq!(due, Duration::from_micros(80));
        assert!(!sender.poll(due - Duration::from_nanos(1), &config, &mut out) && sender.poll(due, &config, &mut out));
        assert!(sender.is_sent());
    }
}
