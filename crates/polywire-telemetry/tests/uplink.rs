//! The kept way in virtual time: an uplink and an intake, with packets and replies that are lost,
//! restarts of both sides, disks that fill up and bits that flip.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use polywire::{
    Message, Node,
    codec::{self, Decoder, Encoder, Options},
    extend::{layout::ValueRef, program::Backend},
    service::Service,
};
use polywire_idl::{Compiler, Dialect};
use polywire_telemetry::{
    Agent, Clocks, Identity, Moment, NodeDescription, Plan, Setting, Thinner, Uuid,
    command::{AuditRecord, Command, CommandReply},
    intake::{AcceptedPacket, Intake, IntakeLimits, Position, Rejection, Sample},
    packet::{DataPacket, NodePacket, PACKETS, PacketReply, Reduction, StreamDescription},
    system::{self, Host},
    uplink::{Batch, Carrier, Memory, Rule, SegmentId, Storage, Uplink, UplinkOptions, UplinkSample},
};
use proptest::prelude::*;

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Level")]
struct Level {
    level: f64,
    number: u64,
}

/// The first start of the node.
const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;

const NODE: Uuid = Uuid::of(0x5a8c_5b0f_1d65_4f3e_9b1a_0c6f_4f3b_2a11);

/// A disk that outlives the process, fills up, and loses bits.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<(Memory, bool)>>);

impl Disk {
    fn fill(&self, is_full: bool) {
        self.0.lock().expect("not poisoned").1 = is_full;
    }

    fn flip(&self, bit: usize) {
        let memory = &mut self.0.lock().expect("not poisoned").0;
        let segments = memory.list().expect("listed");
        let Some((id, bytes)) = segments.get(bit % segments.len().max(1)) else { return };
        let mut content = memory.read(*id, 0, usize::MAX).expect("read");
        let at = bit % (8 * *bytes as usize).max(1);
        content[at / 8] ^= 1 << (at % 8);
        memory.write(*id, 0, &content).expect("written");
    }
}

impl Storage for Disk {
    fn list(&mut self) -> io::Result<Vec<(SegmentId, u64)>> {
        self.0.lock().expect("not poisoned").0.list()
    }

    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.0.lock().expect("not poisoned");
        let is_full = inner.1;
        // A part of it still fits.
        inner.0.write(segment, offset, if is_full { &bytes[..bytes.len() / 2] } else { bytes })?;
        if is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn read(&mut self, segment: SegmentId, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        self.0.lock().expect("not poisoned").0.read(segment, offset, most)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, segment: SegmentId) -> io::Result<()> {
        self.0.lock().expect("not poisoned").0.remove(segment)
    }
}

fn encode(level: &Level, codec: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    // Interpreted, as it is made for each value.
    let (codec, backend) = (codec::find(codec).expect("a codec"), Backend::Interpreter);
    let encoder = Encoder::<Level>::with_backend(codec, &Options::default(), backend).expect("an encoder");
    encoder.encode(level, &mut payload).expect("encoded");
    payload
}

fn description(instance: &str, codec: &str) -> StreamDescription {
    let schema = Level::shape().schema().to_bytes();
    StreamDescription { instance: instance.into(), codec: codec.into(), schema, ..Default::default() }
}

/// A node and a collector, with what the collector has stored.
struct World {
    disk: Disk,
    options: UplinkOptions,
    rules: Vec<Rule>,
    now: Moment,
    start: u64,
    uplink: Uplink,
    streams: Vec<u32>,
    intake: Intake,
    stored: Vec<Sample>,
    /// The packets on the way, each with the connection that carries it.
    way: Vec<(u32, Arc<NodePacket>)>,
    /// The connection. A failure ends it: packets on it still arrive, replies do not.
    connection: u32,
    /// How many samples were offered, by start and stream.
    offered: BTreeMap<(u64, u32), u64>,
}

impl World {
    fn new(options: UplinkOptions, rules: &[Rule]) -> World {
        let (disk, now) = (Disk::default(), Moment::default());
        let start = FIRST;
        let uplink = Uplink::new(NODE, start, Box::new(disk.clone()), options, now).expect("an uplink");
        let intake = Intake::new(IntakeLimits::default());
        let (rules, streams, stored, offered) = (rules.to_vec(), Vec::new(), Vec::new(), BTreeMap::new());
        let (way, connection) = (Vec::new(), 0);
        let mut world =
            World { disk, options, rules, now, start, uplink, streams, intake, stored, way, connection, offered };
        world.open();
        world
    }

    fn open(&mut self) {
        let open = |(i, rule): (usize, &Rule)| self.uplink.open(description(&format!("probe-{i}"), "cdr"), *rule);
        self.streams = self.rules.iter().enumerate().map(open).collect::<Result<_, _>>().expect("opened");
    }

    fn offer(&mut self, probe: usize) {
        let stream = self.streams[probe];
        let number = self.offered.entry((self.start, stream)).or_default();
        let level = Level { level: probe as f64, number: *number };
        *number += 1;
        self.uplink.offer(stream, &encode(&level, "cdr"), self.now);
    }

    fn pass(&mut self, time: Duration) {
        self.now.steady += time;
        self.now.wall_ns += time.as_nanos() as i64;
    }

    /// The node dies and starts again.
    fn restart_node(&mut self) {
        self.connection += 1;
        // Any numbers will do as long as they are far from each other.
        self.start = self.start.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.uplink =
            Uplink::new(NODE, self.start, Box::new(self.disk.clone()), self.options, self.now).expect("an uplink");
        self.open();
    }

    /// The collector dies and starts again, with what it has stored.
    fn restart_collector(&mut self) {
        self.intake = Intake::new(IntakeLimits::default());
        self.stored.iter().for_each(|sample| self.intake.recall(sample.position()));
    }

    /// Puts the next packet on the way. Returns whether there was one.
    fn post(&mut self) -> bool {
        let Some(packet) = self.uplink.poll(self.now) else { return false };
        self.way.push((self.connection, packet));
        true
    }

    /// Sends a packet, which arrives before anything else happens. Returns whether there was one.
    fn send(&mut self, fate: u8) -> bool {
        let is_there = self.post();
        if is_there {
            self.arrive(self.way.len() - 1, fate);
        }
        is_there
    }

    /// Nothing that is under way is answered any more.
    fn fail(&mut self) {
        self.connection += 1;
        self.uplink.handle_failure();
    }

    /// What happens to a packet on the way is up to `fate`: it is lost, the collector dies before
    /// or after it has stored it, the reply is lost, or all goes well.
    fn arrive(&mut self, at: usize, fate: u8) {
        let (connection, packet) = self.way.remove(at);
        if fate == 1 {
            return self.fail();
        }
        let reply = match self.intake.take(&packet, Some(NODE)) {
            Ok(accepted) if fate == 2 => {
                self.intake.failed();
                // It may try again without a restart, unless the packet before is lost as well.
                match self.intake.take(&packet, Some(NODE)) {
                    Ok(again) => assert_eq!(again.samples.len(), accepted.samples.len()),
                    Err(rejection) => assert!(rejection == Rejection::OutOfOrder && packet.follows != 0),
                }
                self.restart_collector();
                None
            }
            Ok(AcceptedPacket { samples, ticket }) => {
                self.stored.extend(samples);
                self.intake.stored(ticket);
                Some(PacketReply::default())
            }
            Err(rejection @ (Rejection::Unknown(_) | Rejection::OutOfOrder)) => rejection.reply(),
            Err(rejection) => panic!("{rejection}"),
        };
        if fate == 3 {
            self.restart_collector();
        }
        match reply.filter(|_| fate == 0) {
            _ if connection != self.connection => {}
            Some(reply) => {
                self.uplink.handle_reply(packet.number, &reply);
                self.connection += u32::from(reply.unknown);
            }
            None => self.fail(),
        }
    }

    fn finish(&mut self) {
        self.uplink.flush();
        for _ in 0..100_000 {
            if self.uplink.is_empty() {
                return;
            }
            self.pass(self.uplink.wait(self.now).min(Duration::from_secs(60)));
            self.post();
            if !self.way.is_empty() {
                self.arrive(0, 0);
            }
        }
        panic!("{:?}", self.uplink);
    }

    fn positions(&self) -> Vec<Position> {
        self.stored.iter().map(Sample::position).collect()
    }

    /// Checks that nothing came twice, and each stream in order, with the values that were offered.
    fn check(&self) {
        let mut latest: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        for sample in &self.stored {
            let Position { start, stream, sequence, .. } = sample.position();
            let before = latest.insert((start, stream), sequence);
            assert!(before.is_none_or(|before| before < sequence), "{before:?} {sequence}");
            assert_eq!(sample.missing(), sequence - before.map_or(0, |before| before + 1));
            let value = sample.decode().expect("decoded");
            assert_eq!(value.u64("number"), Ok(sequence));
            assert_eq!(sample.stream().description().instance, format!("probe-{}", value.f64("level").expect("f64")));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is lost and whoever dies, every sample comes once and in order.
    #[test]
    fn nothing_is_lost_and_nothing_comes_twice(actions in prop::collection::vec((0u8..12, 0usize..3), 1..300)) {
        let batch = "1s,7".parse::<Batch>().expect("a batch");
        let rules = [Rule::default(), Rule { batch, ..Rule::default() }, Rule { priority: 9, ..Rule::default() }];
        // Small packets, so that many are needed.
        let options = UplinkOptions { packet_bytes: 300, ..UplinkOptions::default() };
        let mut world = World::new(options, &rules);
        for (action, probe) in actions {
            match action {
                0..5 => world.offer(probe),
                5 => world.restart_node(),
                6 => world.restart_collector(),
                7 => world.pass(Duration::from_millis(400)),
                fate => { world.send(fate - 8); }
            }
        }
        world.finish();
        world.check();
        let mut positions = world.positions();
        positions.sort();
        let all = world.offered.iter().flat_map(|((start, stream), count)| {
            (0..*count).map(move |sequence| Position { node: NODE, start: *start, stream: *stream, sequence })
        });
        prop_assert_eq!(positions, all.collect::<Vec<_>>());
    }

    /// The same with several packets under way, which arrive in any order and late, also after they
    /// were sent again.
    #[test]
    fn packets_under_way_at_once_come_once_and_in_order(
        actions in prop::collection::vec((0u8..16, 0usize..8), 1..400),
        window in 1usize..6,
    ) {
        let rules = [Rule::default(), Rule { priority: 9, ..Rule::default() }];
        let options = UplinkOptions { packet_bytes: 100, window, ..UplinkOptions::default() };
        let mut world = World::new(options, &rules);
        for (action, number) in actions {
            let waits = world.way.len();
            match action {
                0..5 => (0..4).for_each(|_| world.offer(number % 2)),
                5..10 => {
                    world.post();
                    let current = world.way.iter().filter(|(connection, _)| *connection == world.connection).count();
                    prop_assert!(current <= window, "{current} packets under way");
                }
                10 => world.restart_node(),
                11 => world.restart_collector(),
                12 => world.fail(),
                _ if waits == 0 => {}
                // Mostly the oldest one, and all goes well.
                13 => world.arrive(number % waits, (number % 4) as u8),
                _ => world.arrive(0, 0),
            }
        }
        world.finish();
        while !world.way.is_empty() {
            world.arrive(0, 0);
        }
        world.check();
        let mut positions = world.positions();
        positions.sort();
        let all = world.offered.iter().flat_map(|((start, stream), count)| {
            (0..*count).map(move |sequence| Position { node: NODE, start: *start, stream: *stream, sequence })
        });
        prop_assert_eq!(positions, all.collect::<Vec<_>>());
    }

    /// Damage costs the samples that it hits, and is told; the others come.
    #[test]
    fn damage_is_skipped_and_told(bits in prop::collection::vec(any::<usize>(), 1..6)) {
        let mut world = World::new(UplinkOptions::default(), &[Rule::default(); 2]);
        for round in 0..100 {
            world.offer(round % 2);
        }
        bits.iter().for_each(|bit| world.disk.flip(*bit));
        world.restart_node();
        world.finish();
        world.check();
        let damaged = world.uplink.status().spool.damaged;
        let is_whole = bits.len() > 1 && world.stored.len() == 100;
        prop_assert!(is_whole || damaged >= 1, "{:?}", world.uplink.status());
        // A flipped bit in a description costs a stream, and elsewhere a sample.
        for stream in 0..2 {
            let came = world.stored.iter().filter(|sample| sample.position().stream == stream).count();
            prop_assert!(came == 0 || came >= 50 - bits.len(), "{came}");
        }
    }

    /// With a deadband, what the collector has is never further off than the bound, whatever
    /// happens on the way.
    #[test]
    fn the_bound_is_kept_from_end_to_end(
        steps in prop::collection::vec((-3.0f64..3.0, 0u8..4), 1..100),
        bound in 0.1f64..5.0,
    ) {
        let mut world = World::new(UplinkOptions::default(), &[Rule::default()]);
        let mut thinner = Thinner::new(format!("level={bound}").parse().expect("rules"));
        let (mut level, mut measured) = (0.0, Vec::new());
        for (step, fate) in steps {
            level += step;
            world.pass(Duration::from_millis(100));
            measured.push((world.now.wall_ns, level));
            let value = Level { level, number: 0 };
            if thinner.sends(ValueRef::of(&value), world.now) {
                world.uplink.offer(0, &encode(&value, "cdr"), world.now);
            }
            world.send(fate);
        }
        world.finish();
        for (time_ns, level) in measured {
            let had = world.stored.iter().rfind(|sample| sample.time_ns() <= time_ns).expect("one at least");
            let had = had.decode().expect("decoded").f64("level").expect("a number");
            prop_assert!((had - level).abs() <= bound, "{had} {level} {bound}");
        }
    }
}

#[test]
fn a_long_way_has_several_full_packets_under_way() {
    // The reply to a packet comes a second later; 160 kB of samples wait.
    let sent_in = |window| {
        let options = UplinkOptions { packet_bytes: 10_000, window, ..UplinkOptions::default() };
        let mut world = World::new(options, &[Rule::default()]);
        (0..4000).for_each(|_| world.offer(0));
        let mut seconds = 0;
        while !world.uplink.is_empty() {
            while world.post() {}
            world.pass(Duration::from_secs(1));
            seconds += 1;
            while !world.way.is_empty() {
                world.arrive(0, 0);
            }
        }
        world.check();
        (seconds, world.stored.len())
    };
    let ((one, all), (many, same)) = (sent_in(1), sent_in(8));
    assert_eq!((all, same), (4000, 4000));
    assert!(many * 6 < one, "{many} and {one} seconds");
    // A packet that is not full waits for the reply.
    let mut world = World::new(UplinkOptions::default(), &[Rule::default()]);
    world.offer(0);
    assert!(world.post());
    world.offer(0);
    assert!(!world.post());
    world.arrive(0, 0);
    assert!(world.post());
}

#[test]
fn a_full_spool_drops_the_oldest_of_the_lowest_priority_and_tells() {
    let rules = [1, 8].map(|priority| Rule { priority, ..Rule::default() });
    let mut world = World::new(UplinkOptions { spool_bytes: 1 << 16, ..UplinkOptions::default() }, &rules);
    for _ in 0..500 {
        world.offer(0);
        world.offer(1);
        assert!(world.uplink.status().spool_bytes <= 1 << 16);
    }
    for _ in 0..600 {
        world.offer(0);
    }
    let status = world.uplink.status();
    assert!(status.spool.dropped > 0 && status.spool.unwritten == 0, "{status:?}");
    world.finish();
    world.check();
    let of = |stream| world.stored.iter().filter(|sample| sample.position().stream == stream).count();
    assert_eq!((of(1), of(0) as u64), (500, 1100 - status.spool.dropped));
    assert_eq!(world.intake.status().missing, status.spool.dropped);
    // The latest ones are there.
    assert!(world.positions().iter().any(|position| position.stream == 0 && position.sequence == 1099));
}

#[test]
fn the_unimportant_makes_no_room_for_itself_at_the_cost_of_the_important() {
    let rules = [1, 8].map(|priority| Rule { priority, ..Rule::default() });
    let mut world = World::new(UplinkOptions { spool_bytes: 1 << 16, ..UplinkOptions::default() }, &rules);
    let fits = |world: &World| world.uplink.status().spool.dropped == 0;
    while fits(&world) {
        world.offer(1);
    }
    let dropped = world.uplink.status().spool.dropped;
    for _ in 0..2000 {
        world.offer(0);
    }
    world.finish();
    world.check();
    let of = |stream| world.stored.iter().filter(|sample| sample.position().stream == stream).count() as u64;
    let offered = |stream| world.offered.get(&(world.start, stream)).copied().unwrap_or_default();
    assert_eq!(of(1), offered(1) - dropped);
    assert_eq!(of(0), offered(0) - (world.uplink.status().spool.dropped - dropped));
}

#[test]
fn a_full_disk_costs_what_cannot_be_written() {
    let mut world = World::new(UplinkOptions::default(), &[Rule::default()]);
    for full in [false, true, false, true, false] {
        world.disk.fill(full);
        (0..10).for_each(|_| world.offer(0));
    }
    world.finish();
    world.check();
    assert_eq!((world.uplink.status().spool.unwritten, world.intake.status().missing), (20, 20));
    assert_eq!(world.stored.len(), 30);
    // What the failed attempts have left behind is no damage.
    assert_eq!(world.uplink.status().spool.damaged, 0);
}

#[test]
fn a_batch_waits_for_its_time_its_number_or_its_bytes() {
    let sizes = |batch: &str, offers: usize, time: Duration| {
        let rule = Rule { batch: batch.parse().expect("a batch"), ..Rule::default() };
        let options = UplinkOptions { sync: Duration::from_secs(3600), ..UplinkOptions::default() };
        let mut world = World::new(options, &[rule]);
        (0..offers).for_each(|_| world.offer(0));
        let early = world.uplink.poll(world.now).map(|packet| packet.packets.len());
        let wait = world.uplink.wait(world.now);
        world.pass(time);
        (early, wait, world.uplink.poll(world.now).map(|packet| packet.packets.len()))
    };
    let second = Duration::from_secs(1);
    assert_eq!(sizes("off", 2, second).0, Some(2));
    assert_eq!(sizes("5s", 2, second), (None, 5 * second, None));
    assert_eq!(sizes("5s", 2, 5 * second), (None, 5 * second, Some(2)));
    assert_eq!(sizes("3", 2, 59 * second), (None, 60 * second, None));
    assert_eq!(sizes("3", 3, second).0, Some(3));
    assert_eq!(sizes("5s,48B", 2, second).0, None);
    assert_eq!(sizes("5s,48B", 3, second).0, Some(3));
}

#[test]
fn of_the_last_ones_only_the_latest_are_kept() {
    let rules = ["1", "3"].map(|keep| Rule { keep: keep.parse().expect("a number"), ..Rule::default() });
    let mut world = World::new(UplinkOptions::default(), &rules);
    for _ in 0..10 {
        world.offer(0);
        world.offer(1);
    }
    world.finish();
    world.check();
    let numbers = |stream| -> Vec<u64> {
        let positions = world.positions().into_iter().filter(|position| position.stream == stream);
        positions.map(|position| position.sequence).collect()
    };
    assert_eq!((numbers(0), numbers(1)), (vec![9], vec![7, 8, 9]));
    assert_eq!((world.uplink.status().replaced, world.uplink.status().spool_bytes), (16, 0));
    assert_eq!(world.intake.status().missing, 16);
}

#[test]
fn a_budget_is_kept_and_the_important_comes() {
    let rules = [1, 8].map(|priority| Rule { priority, ..Rule::default() });
    let options = UplinkOptions { budget_bytes_per_s: Some(4000), ..UplinkOptions::default() };
    let mut world = World::new(options, &rules);
    let (mut sent, mut most) = (0, Reduction::None);
    let seconds = 180;
    for _ in 0..seconds * 1000 {
        world.pass(Duration::from_millis(1));
        world.offer(0);
        world.offer(1);
        let Some(packet) = world.uplink.poll(world.now) else { continue };
        sent += packet.bytes();
        most = most.max(packet.reduction);
        let AcceptedPacket { samples, ticket } = world.intake.take(&packet, None).expect("accepted");
        assert!(samples.iter().all(|sample| sample.reduction() == packet.reduction));
        world.stored.extend(samples);
        world.intake.stored(ticket);
        world.uplink.handle_reply(packet.number, &PacketReply::default());
    }
    let status = world.uplink.status();
    // The credit of a second, and a packet, which takes a second, come on top.
    assert!(sent <= (seconds + 2) * 4000, "{sent}");
    assert!(status.reduced > 300_000 && most == Reduction::Thinning, "{status:?}");
    assert_eq!(status.spool, Default::default());
    world.check();
    // It has caught up with what came before it knew how much comes.
    let last = world.stored.last().expect("a sample").time_ns();
    assert!(world.now.wall_ns - last < 3_000_000_000, "{} {last}", world.now.wall_ns);
}

#[test]
fn nodes_that_lie_are_refused() {
    let mut intake =
        Intake::new(IntakeLimits { nodes: 2, streams: 3, streams_of_a_start: 2, kinds: 2, document_bytes: 1000 });
    let data = |stream, sequence| DataPacket { stream, sequence, time_ns: 0, payload: vec![0; 16] };
    let stream = |number, instance: &str| StreamDescription { number, ..description(instance, "cdr") };
    let packet =
        |node: u8, streams, packets| NodePacket { node: [node; 16], start: 1, streams, packets, ..Default::default() };
    let mut take = |packet: NodePacket, from: Option<u8>| {
        let accepted = intake.take(&packet, from.map(|from| Uuid([from; 16])))?;
        intake.stored(accepted.ticket);
        Ok(accepted.samples.len())
    };
    let wrong = |accepted: Result<usize, Rejection>, text: &str| match accepted {
        Err(Rejection::Wrong(problem)) => assert!(problem.contains(text), "{problem}"),
        other => panic!("{other:?}"),
    };
    // The UUID of somebody else.
    wrong(take(packet(1, vec![stream(0, "a")], vec![]), Some(2)), "did not send it");
    assert_eq!(take(packet(1, vec![], vec![data(0, 0)]), Some(1)), Err(Rejection::Unknown(0)));
    assert_eq!(
        take(packet(1, vec![stream(0, "a")], vec![data(0, 5), data(0, 5), data(0, 4), data(0, 6)]), Some(1)),
        Ok(2)
    );
    // Other meanings, other starts.
    wrong(take(packet(1, vec![stream(0, "b")], vec![]), None), "cannot become another one");
    wrong(take(packet(1, vec![stream(1, "b"), stream(1, "c")], vec![]), None), "cannot become another one");
    for name in ["", "a//b", "/a", "a/*", "a\n", &"x".repeat(1024)] {
        wrong(take(packet(1, vec![stream(1, name)], vec![]), None), "cannot be the name");
    }
    wrong(take(packet(1, vec![StreamDescription { schema: vec![9; 9], ..stream(1, "b") }], vec![]), None), "type");
    wrong(
        take(packet(1, vec![StreamDescription { options: "x".repeat(2000), ..stream(1, "b") }], vec![]), None),
        "long",
    );
    wrong(take(packet(1, vec![], vec![data(0, u64::MAX)]), None), "no sample has the number");
    wrong(take(packet(1, (1..3).map(|n| stream(n, "b")).collect(), vec![]), None), "at most 2 streams");
    wrong(take(packet(1, vec![], vec![data(0, 0); (1 << 14) + 1]), None), "at most 16384");
    // Nothing of a packet that is refused was accepted.
    let big = DataPacket { payload: vec![0; (1 << 20) + 1], ..data(0, 8) };
    wrong(take(packet(1, vec![], vec![data(0, 7), big]), None), "at most 1048576 bytes");
    assert_eq!(take(packet(1, vec![], vec![data(0, 7), data(0, u64::MAX - 1)]), None), Ok(2));
    // More than fits. It is no lie, so nothing is refused for ever.
    assert_eq!(take(packet(2, vec![stream(0, "a"), stream(1, "b")], vec![]), None), Ok(0));
    let full = take(packet(3, vec![], vec![]), None).expect_err("full");
    assert!(matches!(&full, Rejection::Full(what) if what == "2 nodes") && full.reply().is_none());
    let full = take(packet(1, vec![stream(1, "b")], vec![]), None).expect_err("full");
    assert!(matches!(full, Rejection::Full(what) if what == "3 streams"));
    let long = StreamDescription { configuration: vec![1; 1000], ..stream(1, "b") };
    let full = intake.take(&packet(2, vec![StreamDescription { number: 7, ..long }], vec![]), None).expect_err("full");
    assert!(matches!(full, Rejection::Full(what) if what == "1 types"));
    let status = intake.status();
    assert_eq!((status.samples, status.repeated), (4, 2));
    assert_eq!(status.missing, 5 + (u64::MAX - 1 - 8));
}

#[test]
fn a_node_that_starts_again_and_again_costs_no_more() {
    let mut intake = Intake::new(IntakeLimits { streams_of_a_start: 1, streams: 17, ..IntakeLimits::default() });
    let packet = |start| NodePacket {
        start,
        streams: vec![description("a", "cdr")],
        packets: vec![DataPacket::default()],
        ..NodePacket::default()
    };
    let accepted: Vec<AcceptedPacket> =
        (0..100).map(|start| intake.take(&packet(start), None).expect("accepted")).collect();
    assert!(accepted.iter().all(|accepted| accepted.samples.len() == 1));
    intake.stored(accepted[99].ticket);
    assert_eq!((intake.positions().count(), intake.pending()), (16, 0));
    (100..200).for_each(|start| drop(intake.take(&packet(start), None).expect("accepted")));
    intake.failed();
    assert_eq!(intake.take(&packet(199), None).expect("accepted").samples.len(), 1);
    // Streams that a restart recalls are described again, and count once.
    let positions: Vec<Position> = accepted.iter().map(|accepted| accepted.samples[0].position()).collect();
    positions.into_iter().for_each(|position| intake.recall(position));
    assert_eq!(intake.take(&packet(99), None).expect("known").samples.len(), 0);
}

#[test]
fn a_hundred_thousand_probes_are_accepted_and_more_are_refused() {
    const NODES: u32 = 25;
    const PROBES: u32 = 4000;
    let mut intake = Intake::new(IntakeLimits { streams: (NODES * PROBES) as usize, ..IntakeLimits::default() });
    let payload = encode(&Level { level: 1.5, number: 0 }, "cdr");
    let packet = |node: u32, first: u32, sequence: u64, is_new: bool| {
        let numbers = first..first + 1000;
        let streams = numbers.clone().filter(|_| is_new);
        let streams =
            streams.map(|number| StreamDescription { number, ..description(&format!("probe-{number}"), "cdr") });
        let data = numbers.map(|stream| DataPacket { stream, sequence, time_ns: 0, payload: payload.clone() });
        let node = Uuid::of(u128::from(node) + 1).0;
        NodePacket { node, start: 1, streams: streams.collect(), packets: data.collect(), ..NodePacket::default() }
    };
    for sequence in 0..3 {
        for (node, first) in (0..NODES).flat_map(|node| (0..PROBES).step_by(1000).map(move |first| (node, first))) {
            let accepted = intake.take(&packet(node, first, sequence, sequence == 0), None).expect("accepted");
            assert!(accepted.samples.len() == 1000 && accepted.samples.iter().all(|sample| sample.missing() == 0));
            // They share one type, and its programs.
            assert_eq!(accepted.samples[999].decode().expect("decoded").f64("level"), Ok(1.5));
            intake.stored(accepted.ticket);
        }
    }
    assert_eq!(intake.positions().count(), (NODES * PROBES) as usize);
    let more = intake.take(&packet(NODES, 0, 0, true), None).expect_err("full");
    assert!(matches!(more, Rejection::Full(what) if what.contains("100000 streams")));
}

#[test]
fn what_cannot_be_decoded_is_accepted_all_the_same() {
    let mut intake = Intake::new(IntakeLimits::default());
    let streams = vec![
        StreamDescription { number: 0, ..description("a", "cdr") },
        StreamDescription { number: 1, ..description("b", "nothing") },
        StreamDescription { number: 2, configuration: vec![1], ..description("c", "fast") },
    ];
    let data = |stream| DataPacket { stream, sequence: 0, time_ns: 2_000_000_000, payload: vec![0; 3] };
    let packet = NodePacket { streams, packets: (0..3).map(data).collect(), ..Default::default() };
    let samples = intake.take(&packet, None).expect("accepted").samples;
    let errors: Vec<String> = samples.iter().map(|sample| sample.decode().expect_err("wrong").to_string()).collect();
    assert_eq!((errors.len(), errors[1].as_str()), (3, "unknown codec 'nothing'"));
    assert_eq!(intake.status().ahead, 3);
}

#[test]
fn every_format_passes_through() {
    let level = Level { level: 2.5, number: 7 };
    for codec in codec::CODECS {
        let mut intake = Intake::new(IntakeLimits::default());
        let payload = encode(&level, codec.name());
        let packet = NodePacket {
            streams: vec![description("a", codec.name())],
            packets: vec![DataPacket { payload: payload.clone(), ..Default::default() }],
            ..Default::default()
        };
        let samples = intake.take(&packet, None).expect("accepted").samples;
        assert_eq!(samples[0].payload(), payload);
        let value = samples[0].decode().expect("decoded");
        assert_eq!((value.f64("level"), value.u64("number")), (Ok(2.5), Ok(7)), "{}", codec.name());
        assert_eq!(samples[0].stream().schema().name(), "plant::Level");
        assert_eq!(samples[0].stream().kind().schema_bytes(), Level::shape().schema().to_bytes());
    }
}

/// The types of the specification are those of the code.
#[test]
fn the_specification_has_these_types() {
    let specification = include_str!("../../../spec/telemetry.md");
    let types = [
        ("NodePacket", NodePacket::shape()),
        ("PacketReply", PacketReply::shape()),
        ("NodeDescription", NodeDescription::shape()),
        ("Command", Command::shape()),
        ("CommandReply", CommandReply::shape()),
        ("AuditRecord", AuditRecord::shape()),
    ];
    let mut hashes = std::collections::BTreeMap::new();
    for block in specification.split("```idl\n").skip(1) {
        let idl = block.split("```").next().expect("a block");
        let document = Compiler::new().parse_as("telemetry.idl", idl, Dialect::Idl);
        let document = document.unwrap_or_else(|errors| panic!("{}", errors.render(false)));
        for (name, _) in types {
            if let Ok(schema) = document.schema(&format!("telemetry::{name}")) {
                hashes.insert(name, schema.type_hash());
            }
        }
    }
    assert_eq!(hashes, types.map(|(name, shape)| (name, shape.schema().type_hash())).into());
}

#[test]
fn an_agent_keeps_samples_and_says_how_that_goes() {
    let (node, clocks, wire) = (Node::new(), Clocks::new(), "cdr@inproc/uplink-agent");
    let service: Service<NodePacket, PacketReply> =
        node.service(PACKETS, Some(wire)).expect("a service").open().expect("opened");
    let identity = Identity::new("house").expect("a name");
    let uplink = Uplink::new(identity.uuid, 7, Box::new(Memory::default()), UplinkOptions::default(), clocks.now());
    let carrier = Carrier::start(&Node::new(), wire, uplink.expect("an uplink"), clocks).expect("a carrier");
    let host = Host::this();
    let mut agent = Agent::new(Node::new(), identity, host, wire, Moment::default()).expect("an agent");
    agent.send_to(carrier.handle()).expect("sent");
    let mut plan = Plan::of(system::find("clock").expect("a probe"));
    plan.set("wire", "fast").expect("a wire");
    agent.add(plan).expect("added");
    let described = agent.description().probes;
    let pdl = Compiler::new().parse_as("uplink.pdl", &described[0].pdl, Dialect::Pdl).expect("valid");
    let written = pdl.schema("telemetry::Uplink").expect("a type").type_hash();
    assert_eq!((written, described[0].keep.as_str()), (UplinkSample::shape().schema().type_hash(), "1"));

    // A change of the format begins another stream; settings that change nothing of it do not.
    let set = |agent: &mut Agent, name: &str, value: &str| {
        agent.set("clock", &[Setting { name: name.into(), value: value.into() }]).expect("set");
    };
    let mut now = Moment::default();
    let mut turn = |agent: &mut Agent| {
        now.steady += Duration::from_secs(10);
        agent.turn(now);
    };
    turn(&mut agent);
    set(&mut agent, "every", "10");
    turn(&mut agent);
    set(&mut agent, "wire", "json");
    turn(&mut agent);
    set(&mut agent, "keep", "none");
    turn(&mut agent);
    let (mut intake, mut formats, mut acknowledged) = (Intake::new(IntakeLimits::default()), Vec::new(), 0);
    while formats.len() < 3 || acknowledged < 4 {
        let request = service.recv_timeout(Duration::from_secs(120)).expect("a packet");
        let AcceptedPacket { samples, ticket } = intake.take(request.value(), None).expect("accepted");
        for sample in samples {
            let (stream, value) = (sample.stream().clone(), sample.decode().expect("decoded"));
            match stream.description().instance.as_str() {
                "clock" => formats.push((stream.description().codec.clone(), sample.position().sequence)),
                _ => acknowledged = value.u64("acknowledged").expect("a count"),
            }
        }
        intake.stored(ticket);
        request.reply(&PacketReply::default()).expect("replied");
        turn(&mut agent);
    }
    let expected = [("fast", 0), ("fast", 1), ("json", 0)].map(|(codec, number)| (codec.to_owned(), number));
    assert_eq!(formats, expected);
}

/// Packets of a few nodes, starts, streams and numbers, so that they contradict each other often.
fn any_packet() -> impl Strategy<Value = NodePacket> {
    let stream =
        (0u32..4, 0usize..3, prop::collection::vec(any::<u8>(), 0..4)).prop_map(|(number, instance, damage)| {
            let mut stream = StreamDescription { number, ..description(["a", "b", "c//d"][instance], "cdr") };
            let last = stream.schema.len() - 1;
            damage.iter().take(1).for_each(|byte| stream.schema[last] ^= byte & 1);
            stream
        });
    let number = prop_oneof![0u64..6, Just(u64::MAX), Just(u64::MAX - 1)];
    let data = (0u32..5, number, any::<i64>(), prop::collection::vec(any::<u8>(), 0..20));
    let data = data.prop_map(|(stream, sequence, time_ns, payload)| DataPacket { stream, sequence, time_ns, payload });
    let (streams, packets) = (prop::collection::vec(stream, 0..4), prop::collection::vec(data, 0..6));
    (0u8..3, 0u64..16, any::<i64>(), streams, packets).prop_map(|(node, start, time_ns, streams, packets)| NodePacket {
        node: [node; 16],
        start,
        time_ns,
        streams,
        packets,
        ..NodePacket::default()
    })
}

proptest! {
    /// Whatever nodes send: a sample is given again only if the owner has lost it, and the intake
    /// stays within its limits.
    #[test]
    fn any_packets_are_accepted_or_refused(steps in prop::collection::vec((any_packet(), 0u8..4), 1..60)) {
        let limits = IntakeLimits { nodes: 2, streams: 12, streams_of_a_start: 3, kinds: 2, document_bytes: 1000 };
        let mut intake = Intake::new(limits);
        let (mut latest, mut pending) = (BTreeMap::new(), Vec::new());
        for (packet, fate) in steps {
            let Ok(AcceptedPacket { samples, ticket }) = intake.take(&packet, None) else { continue };
            pending.extend(samples.iter().map(Sample::position));
            samples.iter().for_each(|sample| drop(sample.decode()));
            match fate {
                0 => {}
                1 => {
                    intake.failed();
                    pending.clear();
                }
                _ => {
                    intake.stored(ticket);
                    for Position { node, start, stream, sequence } in pending.drain(..) {
                        let before = latest.insert((node, start, stream), sequence);
                        prop_assert!(before.is_none_or(|before| before < sequence));
                    }
                    prop_assert_eq!(intake.pending(), 0);
                }
            }
            let streams = intake.positions().count();
            prop_assert!(streams <= limits.streams, "{streams}");
        }
        // What was stored is what a restart needs.
        let mut again = Intake::new(limits);
        intake.positions().for_each(|position| again.recall(position));
        prop_assert!(intake.positions().eq(again.positions()));
    }

    /// Files with anything in them cost no more than themselves.
    #[test]
    fn any_bytes_can_be_a_segment(bytes in prop::collection::vec(any::<u8>(), 0..2000), number in any::<u64>()) {
        let mut disk = Disk::default();
        let id = SegmentId { priority: 255, number: number.saturating_sub(1), start: number };
        disk.write(id, 0, &bytes).expect("written");
        let mut uplink = Uplink::new(NODE, 1, Box::new(disk), UplinkOptions::default(), Moment::default()).expect("an uplink");
        let stream = uplink.open(description("a", "cdr"), Rule::default()).expect("a stream");
        uplink.offer(stream, b"x", Moment::default());
        while let Some(packet) = uplink.poll(Moment::default()) {
            prop_assert_eq!(packet.packets.len(), 1);
            uplink.handle_reply(packet.number, &PacketReply::default());
        }
        prop_assert_eq!((uplink.is_empty(), uplink.status().spool.damaged), (true, u64::from(!bytes.is_empty())));
    }
}

#[test]
fn any_wire_carries_node_packets() {
    let data = DataPacket { stream: 0, sequence: u64::MAX - 1, time_ns: i64::MIN, payload: (0..=255).collect() };
    let packet = NodePacket {
        node: NODE.0,
        start: u64::MAX,
        number: u64::MAX,
        follows: u64::MAX - 1,
        time_ns: i64::MAX,
        reduction: Reduction::Dropping,
        streams: vec![StreamDescription { probe: [255; 16], ..description("a", "cdr") }],
        packets: vec![data, DataPacket::default()],
    };
    for codec in codec::CODECS {
        let (options, mut bytes, mut read) = (Options::default(), Vec::new(), NodePacket::default());
        let encoder = Encoder::<NodePacket>::new(*codec, &options).expect("an encoder");
        encoder.encode(&packet, &mut bytes).unwrap_or_else(|error| panic!("{}: {error}", codec.name()));
        let decoder = Decoder::<NodePacket>::new(*codec, &options, encoder.schema()).expect("a decoder");
        decoder.decode(&bytes, &mut read).unwrap_or_else(|error| panic!("{}: {error}", codec.name()));
        assert_eq!(read, packet, "{}", codec.name());
    }
}
