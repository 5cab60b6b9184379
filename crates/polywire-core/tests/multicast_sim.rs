//! Groups and pairs of members in virtual time, over links that lose, repeat, reorder, damage and
//! black out. Packets are really encoded and parsed.
//!
//! For each seed: what is sent reliably to a peer arrives once, in order and unchanged, as long as
//! the peering lasts; best effort arrives in order, each record at most once; no member holds more
//! than its configuration says.
//!
//! `POLYWIRE_TEST_SEEDS=N` runs N times as many seeds, `POLYWIRE_TEST_FIRST=SEED` begins at one.
#![cfg(feature = "std")]

use std::{collections::BTreeMap, time::Duration};

use polywire_core::{
    envelope::Id128,
    frame::Hello,
    multicast::{Admission, Config, Event, Gate, Member, MemberId, Reason, Reliability},
    netsim::{Link, Model},
    schema::arbitrary::Random,
};
use polywire_testing::seeds;

/// Links from good to worse.
const LINKS: &[&str] = &[
    "delay=1ms",
    "loss=30%,delay=5ms",
    "loss=10%,delay=5ms,jitter=uniform:10ms,reorder=10%",
    "loss=20%,duplicate=20%,corrupt=3%,delay=1ms",
    "loss=gilbert:30%:5,delay=20ms",
    "delay=2ms,down=500ms..2500ms",
    "loss=5%,duplicate=50%,delay=3ms,jitter=normal:2ms,down=300ms..700ms",
];

/// Nothing takes longer than this, in virtual time.
const LONGEST: Duration = Duration::from_secs(300);

fn config() -> Config {
    // Bursts of losses are counted in packets here: when little is sent, they last long.
    let (patience, lease) = (Duration::from_secs(60), Duration::from_secs(60));
    Config { window: 64, retransmission_buffer: 64 << 10, patience, lease, ..Config::default() }
}

/// A member, what it is to send, and what it has received.
struct End {
    member: Member,
    starts: Duration,
    /// Records left to send, and when the next is due.
    left: u32,
    due: Duration,
    reliability: Reliability,
    sent: u32,
    /// For each peer that is up: the first record for it, and how many for it alone.
    up: BTreeMap<MemberId, u32>,
    received: BTreeMap<MemberId, Vec<u32>>,
    downs: Vec<Reason>,
    /// It takes nothing.
    is_stuck: bool,
    most_held: usize,
}

impl End {
    fn new(number: u64, seed: u64, config: Config, starts: Duration, left: u32) -> End {
        let hello = Hello { node: Id128([number as u8; 16]), incarnation: 1 };
        let member = Member::new(config, hello, (seed << 8 | number).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        End {
            member,
            starts,
            left,
            due: starts,
            reliability: Reliability::Reliable,
            sent: 0,
            up: BTreeMap::new(),
            received: BTreeMap::new(),
            downs: Vec::new(),
            is_stuck: false,
            most_held: 0,
        }
    }

    /// Sends a record if one is due, some to a single peer.
    fn publish(&mut self, random: &mut Random, now: Duration) {
        while self.left > 0 && now >= self.due && self.member.has_room() && !self.up.is_empty() {
            self.due = now + Duration::from_micros(random.below(8000) as u64);
            self.left -= 1;
            self.sent += 1;
            let len = if random.below(20) == 0 { random.below(9000) } else { random.below(200) };
            let record = record(self.sent, len);
            self.member.send(None, self.reliability, &record, 1, now).expect("it is short enough");
            if random.below(10) == 0 {
                let nth = random.below(self.up.len());
                let to = *self.up.keys().nth(nth).expect("one of them");
                self.member.send(Some(to), self.reliability, b"for you", 1, now).expect("it is short enough");
            }
        }
    }

    fn take(&mut self, now: Duration) {
        while !self.is_stuck
            && let Some(event) = self.member.poll_event(now)
        {
            match event {
                Event::Up { peer, .. } => {
                    assert!(self.up.insert(peer, self.sent + 1).is_none(), "it was up already");
                    self.received.insert(peer, Vec::new());
                }
                Event::Down { peer, reason, .. } => {
                    assert!(self.up.remove(&peer).is_some(), "it was not up");
                    self.downs.push(reason);
                }
                Event::Records { from, batch } => {
                    let received = self.received.get_mut(&from).expect("it is up");
                    received.extend(batch.records().filter(|r| *r != b"for you").map(number_of));
                }
            }
        }
        self.most_held = self.most_held.max(self.member.held_bytes());
    }

    fn wakes(&self) -> Option<Duration> {
        let publishes = (self.left > 0 && self.member.has_room() && !self.up.is_empty()).then_some(self.due);
        [self.member.next_timeout(), publishes].into_iter().flatten().min().map(|at| at.max(self.starts))
    }
}

/// A record of a number, whose bytes follow from it.
fn record(number: u32, len: usize) -> Vec<u8> {
    let fill = (0..len).map(|i| (number as usize * 31 + i) as u8);
    number.to_le_bytes().into_iter().chain(fill).collect()
}

fn number_of(bytes: &[u8]) -> u32 {
    let number = u32::from_le_bytes(*bytes.first_chunk().expect("four bytes"));
    assert_eq!(bytes, record(number, bytes.len() - 4), "record {number} has other bytes");
    number
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Members that all hear each other, each over a link of its own.
struct Group {
    ends: Vec<End>,
    links: Vec<Vec<Link>>,
    random: Random,
    now: Duration,
    packets: u64,
}

impl Group {
    fn new(seed: u64, model: &str, ends: Vec<End>) -> Group {
        let model: Model = model.parse().expect("a model");
        let link = |from: usize, to: usize| Link::new(&model, seed << 16 | (from << 8 | to) as u64);
        let links = (0..ends.len()).map(|from| (0..ends.len()).map(|to| link(from, to)).collect()).collect();
        Group { ends, links, random: Random::new(seed), now: Duration::ZERO, packets: 0 }
    }

    /// Runs until `done`. False if that takes too long.
    fn run(&mut self, done: impl Fn(&[End]) -> bool) -> bool {
        let mut packet = Vec::new();
        while !done(&self.ends) {
            for at in 0..self.ends.len() {
                for from in 0..self.ends.len() {
                    while let Some(arrival) = self.links[from][at].pop(nanos(self.now)) {
                        if self.now >= self.ends[at].starts {
                            // What is damaged is refused.
                            let _ = self.ends[at].member.handle_datagram(&arrival.packet, self.now);
                        }
                    }
                }
                let end = &mut self.ends[at];
                if self.now < end.starts {
                    continue;
                }
                end.take(self.now);
                end.publish(&mut self.random, self.now);
                while end.member.poll_transmit(self.now, &mut packet) {
                    self.packets += 1;
                    for (to, link) in self.links[at].iter_mut().enumerate() {
                        if to != at {
                            link.push(nanos(self.now), packet.clone());
                        }
                    }
                }
                end.take(self.now);
            }
            let arrivals = self.links.iter().flatten().filter_map(Link::next).map(Duration::from_nanos);
            let next = self.ends.iter().filter_map(End::wakes).chain(arrivals).min().expect("heartbeats");
            self.now = next.max(self.now + Duration::from_nanos(1));
            if self.now > LONGEST {
                return false;
            }
        }
        true
    }
}

/// Whether everybody has everything that was sent to it.
fn all_received(ends: &[End]) -> bool {
    ends.iter().all(|sender| {
        sender.left == 0
            && ends.iter().filter(|other| other.member.id() != sender.member.id()).all(|receiver| {
                let first = sender.up.get(&receiver.member.id());
                let last = receiver.received.get(&sender.member.id()).and_then(|all| all.last());
                first.is_some_and(|first| *first > sender.sent) || last == Some(&sender.sent)
            })
    })
}

/// What came from each peer that is up is what was sent since it was.
fn check_received(seed: u64, ends: &[End]) {
    for sender in ends {
        for receiver in ends.iter().filter(|other| other.member.id() != sender.member.id()) {
            let (from, to) = (sender.member.id(), receiver.member.id());
            let (Some(first), Some(received)) = (sender.up.get(&to), receiver.received.get(&from)) else { continue };
            let since: Vec<u32> = received.iter().copied().filter(|number| number >= first).collect();
            assert!(received.is_sorted_by(|a, b| a < b), "seed {seed}: {from} to {to}: {received:?}");
            assert!(since.iter().copied().eq(*first..=sender.sent), "seed {seed}: {from} to {to}: {since:?}");
        }
    }
}

#[test]
fn nothing_is_lost_and_nothing_is_wrong_in_a_group() {
    for seed in seeds(700) {
        let model = LINKS[seed as usize % LINKS.len()];
        let starts = [0, 0, 40, 1000];
        let ends = (0..4).map(|at| {
            End::new(at, seed, config(), Duration::from_millis(starts[at as usize]), if at < 2 { 150 } else { 20 })
        });
        let mut group = Group::new(seed, model, ends.collect());
        assert!(group.run(all_received), "seed {seed}, {model}: not everything arrives in {LONGEST:?}");
        check_received(seed, &group.ends);
        for end in &group.ends {
            assert_eq!(end.downs, [], "seed {seed}, {model}");
            // Its own packets, and those of three others that wait for earlier ones.
            assert!(end.most_held < 4 * (64 << 10) + (100 << 10), "seed {seed}: {} bytes", end.most_held);
        }
    }
}

#[test]
fn one_repair_serves_many_and_one_request_asks_for_many() {
    // The sender's packets are lost for all receivers together: they pass one lossy link.
    let burst: Model = "loss=burst:50:5".parse().expect("a model");
    let mut lossy = Link::new(&burst, 1);
    let mut ends: Vec<End> =
        (0..20).map(|at| End::new(at, 1, config(), Duration::ZERO, if at == 0 { 500 } else { 0 })).collect();
    let (mut now, mut packet, mut random) = (Duration::ZERO, Vec::new(), Random::new(1));
    let mut naks = 0;
    while !all_received(&ends) && now < LONGEST {
        for at in 0..ends.len() {
            ends[at].publish(&mut random, now);
            while ends[at].member.poll_transmit(now, &mut packet) {
                naks += u32::from(packet[2] == 5);
                let is_lost = at == 0
                    && packet[2] == 3
                    && lossy.push(nanos(now), Vec::new()) == polywire_core::netsim::Fate::Lost;
                for to in (0..ends.len()).filter(|to| *to != at && !is_lost) {
                    ends[to].member.handle_datagram(&packet, now).expect("whole");
                }
            }
            (0..ends.len()).for_each(|to| ends[to].take(now));
        }
        let next = ends.iter().filter_map(End::wakes).min().expect("heartbeats");
        now = next.max(now + Duration::from_nanos(1));
    }
    check_received(1, &ends);
    let stats = lossy.stats();
    // 19 receivers miss the same packets. Nearly each is repaired once, and few ask.
    assert!(stats.lost > 40, "{stats:?}");
    assert!(stats.sent < 600 + 2 * stats.lost, "{stats:?}");
    assert!(u64::from(naks) < 4 * stats.lost, "{naks} requests for {stats:?}");
}

/// Whether a record has left as a whole, as a part, or not at all does not matter.
#[test]
fn what_lost_peers_have_not_confirmed_is_counted_for_each() {
    let ends = (0..3).map(|at| End::new(at, 4, config(), Duration::ZERO, 0)).collect();
    let mut group = Group::new(4, "delay=1ms", ends);
    assert!(group.run(|ends| ends.iter().all(|end| end.up.len() == 2)));
    let [one, two] = [1, 2].map(|at: usize| group.ends[at].member.id());
    let (mut now, mut packet, sender) = (group.now, Vec::new(), &mut group.ends[0].member);
    let send = |sender: &mut Member, to, len, now| {
        sender.send(to, Reliability::Reliable, &vec![7; len], 1, now).expect("it is short enough");
    };
    // The window has 64 packets.
    (0..60).for_each(|_| send(sender, None, 1000, now));
    send(sender, Some(one), 1000, now);
    (0..10).for_each(|_| send(sender, None, 9000, now));
    while sender.poll_transmit(now, &mut packet) {}
    assert_eq!([one, two].map(|peer| sender.unconfirmed(peer)), [71, 70]);
    now += Duration::from_secs(61);
    while sender.poll_transmit(now, &mut packet) {}
    // The application has not heard of the end.
    send(sender, None, 10, now);
    let downs = std::iter::from_fn(|| sender.poll_event(now)).filter_map(|event| match event {
        Event::Down { peer, reason: Reason::Silent, unconfirmed } => Some((peer, unconfirmed)),
        _ => None,
    });
    assert_eq!(downs.collect::<BTreeMap<_, _>>(), BTreeMap::from([(one, 72), (two, 71)]));
}

/// The sender speaks of a record until it is confirmed, and then only with its heartbeats.
#[test]
fn a_lone_record_costs_few_packets() {
    let ends = (0..2).map(|at| End::new(at, 3, config(), Duration::ZERO, 0)).collect();
    let mut group = Group::new(3, "delay=1ms", ends);
    assert!(group.run(|ends| ends.iter().all(|end| end.up.len() == 1)));
    let mut packets = Vec::new();
    for due in [30, 31, 32] {
        (group.ends[0].left, group.ends[0].due) = (1, Duration::from_secs(due));
        assert!(group.run(|ends| ends[0].left == 0));
        packets.push(group.packets);
    }
    let costs: Vec<u64> = packets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // The record and perhaps one for a single peer, what asks for confirmation of each, the
    // confirmation, and a heartbeat of each end.
    assert!(costs.iter().all(|cost| *cost <= 7), "{costs:?}");
}

#[test]
fn a_stuck_follower_is_cut_off_and_comes_back_and_the_others_miss_nothing() {
    for seed in seeds(60) {
        let config = Config { patience: Duration::from_secs(2), ..config() };
        let mut ends: Vec<End> = (0..3)
            .map(|at| End::new(at, seed, config.clone(), Duration::ZERO, if at == 0 { 600 } else { 0 }))
            .collect();
        let ids: Vec<MemberId> = ends.iter().map(|end| end.member.id()).collect();
        ends[0].due = Duration::from_secs(1);
        let mut group = Group::new(seed, [LINKS[0], LINKS[2], LINKS[3]][seed as usize % 3], ends);
        assert!(group.run(|ends| ends.iter().all(|end| end.up.len() == 2)), "seed {seed}: they find each other");
        group.ends[2].is_stuck = true;
        let last = |end: &End| end.received.get(&ids[0]).and_then(|all| all.last().copied());
        assert!(group.run(|ends| last(&ends[1]) == Some(600)), "seed {seed}: the other one gets everything");
        assert_eq!(group.ends[0].downs, [Reason::TooSlow], "seed {seed}");
        group.ends[2].is_stuck = false;
        assert!(group.run(|ends| ends.iter().all(|end| end.up.len() == 2)), "seed {seed}: it comes back");
        group.ends[0].left = 50;
        assert!(group.run(|ends| ends[1..].iter().all(|end| last(end) == Some(650))), "seed {seed}: it follows again");
        check_received(seed, &group.ends);
    }
}

#[test]
fn best_effort_arrives_in_order_and_at_most_once() {
    let (mut arrived, mut sent) = (0, 0);
    for seed in seeds(200) {
        let model = LINKS[seed as usize % LINKS.len()];
        let mut ends: Vec<End> =
            (0..3).map(|at| End::new(at, seed, config(), Duration::ZERO, if at == 0 { 200 } else { 0 })).collect();
        ends[0].reliability = Reliability::BestEffort;
        ends[0].due = Duration::from_millis(400);
        let mut group = Group::new(seed, model, ends);
        assert!(group.run(|ends| ends[0].left == 0 && ends[0].member.is_sent()), "seed {seed}");
        let end = group.now + Duration::from_millis(200);
        group.ends[1].due = end;
        (group.ends[1].left, group.ends[1].reliability) = (1, Reliability::Reliable);
        assert!(group.run(|ends| ends[1].left == 0), "seed {seed}");
        let from = group.ends[0].member.id();
        for receiver in &group.ends[1..] {
            let received = receiver.received.get(&from).cloned().unwrap_or_default();
            assert!(received.is_sorted_by(|a, b| a < b), "seed {seed}: {received:?}");
            if model == "delay=1ms" {
                assert!(received.iter().copied().eq(1..=200), "seed {seed}: nothing is lost here");
            }
            (arrived, sent) = (arrived + received.len(), sent + 200);
        }
    }
    assert!(arrived > sent / 3, "{arrived} of {sent}");
}

/// A member behind a gate, and one that calls it from an address that changes.
#[test]
fn a_pair_survives_a_change_of_address_and_sends_little_to_one_that_is_not_proved() {
    for seed in seeds(300) {
        let model: Model = LINKS[seed as usize % LINKS.len()].parse().expect("a model");
        let config = Config { is_pair: true, ..config() };
        let (gate, mut random) = (Gate::new([seed as u8; 32]), Random::new(seed));
        let mut caller = End::new(1, seed, config.clone(), Duration::ZERO, 200);
        let mut host = End::new(2, seed, config, Duration::ZERO, 100);
        let (mut there, mut back) = (Link::new(&model, seed), Link::new(&model, !seed));
        let (mut now, mut packet) = (Duration::ZERO, Vec::new());
        // The caller's address, the one that the host has admitted, and what went to and fro at
        // addresses that were not admitted.
        let (mut address, mut admitted) = (1u8, None);
        let (mut asked, mut answered) = (0, 0);
        while !(caller.left == 0 && host.left == 0 && arrived(&caller, &host) && arrived(&host, &caller)) {
            assert!(now < LONGEST, "seed {seed}, {model:?}");
            if address == 1 && caller.sent > 100 {
                address = 2;
            }
            while let Some(arrival) = there.pop(nanos(now)) {
                let (from, packet) = arrival.packet.split_first().expect("an address");
                if admitted != Some(*from) {
                    asked += packet.len();
                    match gate.admit(&[*from], packet, now) {
                        Admission::Admitted(id) => {
                            host.member.admit(id);
                            admitted = Some(*from);
                        }
                        Admission::Challenge(challenge) => {
                            answered += challenge.len();
                            back.push(nanos(now), [&[*from][..], &challenge[..]].concat());
                        }
                        Admission::Ignored => {}
                    }
                }
                if admitted == Some(*from) {
                    let _ = host.member.handle_datagram(packet, now);
                }
            }
            while let Some(arrival) = back.pop(nanos(now)) {
                let (to, packet) = arrival.packet.split_first().expect("an address");
                if *to == address {
                    let _ = caller.member.handle_datagram(packet, now);
                }
            }
            for end in [&mut caller, &mut host] {
                end.take(now);
                end.publish(&mut random, now);
            }
            while caller.member.poll_transmit(now, &mut packet) {
                there.push(nanos(now), [&[address][..], &packet[..]].concat());
            }
            while let Some(admitted) = admitted
                && host.member.poll_transmit(now, &mut packet)
            {
                back.push(nanos(now), [&[admitted][..], &packet[..]].concat());
            }
            let host_wakes = admitted.and_then(|_| host.wakes());
            let links = [there.next(), back.next()].into_iter().flatten().map(Duration::from_nanos);
            let next = links.chain(caller.wakes()).chain(host_wakes).min().expect("heartbeats");
            now = next.max(now + Duration::from_nanos(1));
        }
        assert_eq!((&caller.downs[..], &host.downs[..]), (&[][..], &[][..]), "seed {seed}");
        check_received(seed, &[caller, host]);
        assert!(answered < 3 * asked, "seed {seed}: {answered} bytes to {asked}");
    }
}

fn arrived(sender: &End, receiver: &End) -> bool {
    receiver.received.get(&sender.member.id()).and_then(|all| all.last()) == Some(&sender.sent)
}

#[test]
fn strangers_cost_little_and_hold_up_nobody() {
    let mut ends: Vec<End> =
        (0..2).map(|at| End::new(at, 9, Config { peers: 16, ..config() }, Duration::ZERO, 0)).collect();
    ends[0].left = 300;
    let mut group = Group::new(9, "delay=1ms", ends);
    assert!(group.run(|ends| ends.iter().all(|end| end.up.len() == 1)));
    // A thousand members say that they are there, and never confirm anything.
    let mut packet = Vec::new();
    for number in 10..1010 {
        let mut stranger = End::new(number, 9, config(), Duration::ZERO, 0);
        assert!(stranger.member.poll_transmit(group.now, &mut packet));
        for end in &mut group.ends {
            end.member.handle_datagram(&packet, group.now).expect("whole");
        }
    }
    assert!(group.run(all_received), "strangers hold them up");
    check_received(9, &group.ends);
    for end in &group.ends {
        assert!(end.downs.is_empty() && end.most_held < 3 * (64 << 10), "{} bytes", end.most_held);
    }
}

#[test]
fn a_member_that_leaves_delivers_first_and_is_gone_at_once() {
    for seed in seeds(50) {
        let ends =
            (0..3).map(|at| End::new(at, seed, config(), Duration::ZERO, if at == 0 { 50 } else { 0 })).collect();
        let mut group = Group::new(seed, LINKS[seed as usize % 3], ends);
        let gone = group.run(|ends| ends[0].left == 0 && ends[0].member.is_taken() && ends[0].up.len() == 2);
        assert!(gone, "seed {seed}");
        let now = group.now;
        group.ends[0].member.close(now);
        assert!(group.run(|ends| ends[1..].iter().all(|end| !end.downs.is_empty())), "seed {seed}");
        for end in &group.ends[1..] {
            // A goodbye may be lost three times; silence tells then.
            assert!(matches!(end.downs[..], [Reason::Bye | Reason::Silent]), "seed {seed}: {:?}", end.downs);
        }
        assert!(group.run(|ends| ends[0].member.is_closed()), "seed {seed}");
    }
}
