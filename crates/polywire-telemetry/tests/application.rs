//! Probes of applications: what the derive makes, thinning, and flushing by hand.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use polywire::{Config, Message, Node, Subscriber};
use polywire_idl::{Compiler, Dialect};
use polywire_telemetry::{
    Agent, Application, Counter, Gauge, Histogram, Identity, Moment, Probe, Runner, Setting, Thinner, Thinning,
    system::Host,
};
use proptest::prelude::*;

/// Longer than any step takes on a slow and busy machine.
const SOON: Duration = Duration::from_secs(120);

/// A pump of the plant.
#[derive(Default, Probe)]
#[probe(name = "plant::water::Pump", uuid = "152a9bd8-6a03-4d4c-85ef-e720829573c4", version = "1.2", every = 0.01)]
pub struct Pump {
    /// At the outlet.
    #[probe(unit = "bar", deadband = 0.5)]
    pressure: Gauge<f64>,
    running: Gauge<bool>,
    level: Gauge<f32>,
    errors: Gauge<u32>,
    offset: Gauge<i32>,
    balance: Gauge<i64>,
    limit: Gauge<u64>,
    strokes: Counter,
    #[probe(unit = "us")]
    latency: Histogram,
    #[probe(unit = "\"")]
    r#type: Histogram,
}

#[derive(Default, Probe)]
#[probe(uuid = "b4a28ede-7305-4b3c-adfb-ab54ae332235", version = "1.0", change, heartbeat = 60)]
struct Bare {
    strokes: Counter,
}

#[test]
fn the_pdl_file_defines_the_type_of_the_samples() {
    for (kind, name) in [(Pump::TYPE, "plant::water::Pump"), (Bare::TYPE, "Bare")] {
        let document = Compiler::new().parse_as("probe.pdl", kind.pdl.text(), Dialect::Pdl);
        let document = document.unwrap_or_else(|errors| panic!("{}\n{}", errors.render(false), kind.pdl.text()));
        assert!(document.warnings().is_empty(), "{}", document.warnings().render(false));
        let (written, derived) = (document.schema(name).expect("there"), (kind.shape)().schema());
        assert_eq!(written.type_hash(), derived.type_hash(), "{}", kind.pdl.text());
        let units = |schema: &polywire::Schema| -> Vec<String> {
            let id = schema.find(name).expect("there");
            let polywire::schema::DefKind::Struct { members, .. } = &schema.def(id).kind else {
                panic!("no structure")
            };
            members.iter().map(|member| format!("{} {:?}", member.name, member.annotations)).collect()
        };
        assert_eq!(units(&written), units(derived));
    }
    assert_eq!((Pump::TYPE.name, Pump::TYPE.summary, Pump::TYPE.version), ("Pump", "A pump of the plant", "1.2"));
    assert_eq!((Pump::THIN, Bare::THIN), ("pressure=0.5", "heartbeat=60"));
    assert_eq!((Pump::TYPE.every, Bare::TYPE.every), (Duration::from_millis(10), Duration::from_secs(1)));
}

#[test]
fn cells_are_read_into_a_sample() {
    let pump = Pump::default();
    pump.pressure.set(2.5);
    pump.running.set(true);
    pump.offset.set(-3);
    pump.strokes.add(4);
    pump.latency.observe(9);
    let mut sample = PumpSample::shape_default();
    pump.read(&mut sample);
    assert_eq!((sample.pressure, sample.running, sample.offset, sample.strokes), (2.5, true, -3, 4));
    assert_eq!((sample.latency.count, sample.latency.p50, sample.r#type.count), (1, 9, 0));
}

/// A sample to read into.
trait Fresh: Message {
    fn shape_default() -> Self {
        polywire::extend::layout::MessageField::default_value()
    }
}

impl Fresh for PumpSample {}

/// An agent in virtual time, and a subscriber of its probe.
fn plant(wire: &str) -> (Agent, Arc<Pump>, Subscriber<PumpSample>) {
    let mut config = Config::default();
    config.follow = vec!["inproc/telemetry-elsewhere".into()];
    let node = Node::builder().config(config).build();
    let identity = Identity::new("plant").expect("a name");
    let mut agent = Agent::new(node, identity, Host::this(), wire, Moment::default()).expect("a node");
    let pump = Arc::new(Pump::default());
    agent.add_application("pump-1", &pump).expect("a probe");
    let samples = Node::new().subscribe::<PumpSample>("probes/plant/pump-1", Some(wire)).expect("a topic").open();
    (agent, pump, samples)
}

fn at(ms: u64) -> Moment {
    Moment { steady: Duration::from_millis(ms), wall_ns: 0 }
}

#[test]
fn only_samples_that_differ_enough_are_sent() {
    let (mut agent, pump, samples) = plant("cdr@inproc/telemetry-thin");
    let mut ms = 0;
    // The first sample for a new subscriber is always sent.
    while samples.status().writers == 0 || samples.try_recv().is_none() {
        ms += 10;
        agent.turn(at(ms));
        std::thread::yield_now();
    }
    for (pressure, strokes) in [(0.4, 0), (0.5, 0), (0.6, 0), (0.2, 0), (0.2, 1), (0.2, 0)] {
        pump.pressure.set(pressure);
        pump.strokes.add(strokes);
        ms += 10;
        agent.turn(at(ms));
    }
    assert!(agent.flush("pump-1", at(ms)) && !agent.flush("pump-2", at(ms)));
    let received = || samples.recv_timeout(SOON).map(|sample| (sample.value.pressure, sample.value.strokes));
    assert_eq!([received(), received(), received()], [Some((0.6, 0)), Some((0.2, 1)), Some((0.2, 1))]);
    assert!(samples.try_recv().is_none());
    // Everything is sent again.
    agent.set("pump-1", &[Setting { name: "thin".into(), value: "off".into() }]).expect("set");
    ms += 10;
    agent.turn(at(ms));
    assert!(samples.recv_timeout(SOON).is_some());
    assert_eq!(agent.description().probes[0].thin, "off");
    // The format can change, and the endpoint where the configuration allows it.
    let mut set = |wire: &str| agent.set("pump-1", &[Setting { name: "wire".into(), value: wire.into() }]);
    set("json").expect("set");
    let error = set("json@tcp-connect/192.0.2.1:7").expect_err("another endpoint").to_string();
    assert!(error.starts_with("no pattern of node.follow fits"), "{error}");
    set("cbor@inproc/telemetry-elsewhere").expect("set");
    assert_eq!(agent.description().probes[0].wire, "cbor@inproc/telemetry-elsewhere");
    let there = Node::new().subscribe::<PumpSample>("probes/plant/pump-1", Some("inproc/telemetry-elsewhere"));
    let there = there.expect("a topic").open();
    let mut strokes = 10;
    let mut moved = [false; 2];
    // Those at the former endpoint follow.
    while moved != [true; 2] {
        ms += 10;
        strokes += 1;
        pump.strokes.add(1);
        agent.turn(at(ms));
        for (moved, samples) in moved.iter_mut().zip([&samples, &there]) {
            *moved |= samples.try_recv().is_some_and(|sample| sample.info.source.announcement.codec == "cbor");
        }
        assert!(strokes < 100_000, "{moved:?}");
        std::thread::yield_now();
    }
}

#[test]
fn nothing_is_sampled_when_nobody_listens() {
    let (mut agent, pump, samples) = plant("cdr@inproc/telemetry-nobody");
    while !agent.flush("pump-1", at(0)) {
        std::thread::yield_now();
    }
    drop(samples);
    while agent.flush("pump-1", at(0)) {
        std::thread::yield_now();
    }
    pump.latency.observe(5);
    (0..100).for_each(|turn| agent.turn(at(10 * turn)));
    let mut sample = PumpSample::shape_default();
    pump.read(&mut sample);
    // A sample would have taken the observation.
    assert_eq!(sample.latency.p50, 5);
}

#[test]
fn a_thread_runs_the_node_until_it_is_dropped() {
    let (agent, pump, samples) = plant("cdr@inproc/telemetry-thread");
    let runner = Runner::start(agent).expect("a thread");
    assert!(samples.recv_timeout(SOON).is_some());
    pump.strokes.add(7);
    while samples.recv_timeout(SOON).expect("a sample").value.strokes != 7 {}
    assert!(runner.flush("pump-1") && samples.recv_timeout(SOON).is_some());
    assert!(!runner.flush("pump-2"));
    drop(runner);
    assert_eq!(Arc::strong_count(&pump), 1, "the thread has ended");
}

#[test]
fn rules_are_checked() {
    for text in ["off", "change", "a=1", "a.b=0.5,*=2", "*=0,heartbeat=0.5"] {
        assert_eq!(text.parse::<Thinning>().expect(text).to_string(), text);
    }
    let many = vec!["a=1"; 300].join(",");
    for text in ["", "a", "=1", "a=", "a=-1", "a=nan", "a=inf", "heartbeat=1e300", "on", &many] {
        assert!(text.parse::<Thinning>().is_err(), "{text}");
    }
}

#[derive(Clone, Debug, Message)]
struct Tank {
    level: f64,
    valves: Vec<i32>,
    name: String,
    interval_s: f64,
}

fn tank() -> impl Strategy<Value = Tank> {
    let values = (-3.0..3.0_f64, prop::collection::vec(-3..3_i32, 0..3), "[ab]", 0.0..9.0_f64);
    values.prop_map(|(level, valves, name, interval_s)| Tank { level, valves, name, interval_s })
}

proptest! {
    /// Whoever keeps the last sample that was sent is never further off than the bounds allow, and
    /// never older than the heartbeat.
    #[test]
    fn bounds_are_kept(tanks in prop::collection::vec((tank(), 0..2000_u64), 1..60), bound in 0.0..2.0_f64) {
        let mut thinner = Thinner::new(format!("level={bound},valves=1,heartbeat=5").parse().expect("rules"));
        let mut kept: Option<(Tank, u64)> = None;
        let mut ms = 0;
        for (tank, step) in tanks {
            ms += step;
            let sent = thinner.sends(polywire::extend::layout::ValueRef::of(&tank), at(ms));
            let fits = kept.as_ref().is_some_and(|(known, since)| {
                let valves = || known.valves.iter().zip(&tank.valves).all(|(a, b)| a.abs_diff(*b) <= 1);
                (known.level - tank.level).abs() <= bound && known.name == tank.name
                    && known.valves.len() == tank.valves.len() && valves() && ms - since < 5000
            });
            // It sends exactly what is needed.
            prop_assert_eq!(sent, !fits);
            if sent {
                kept = Some((tank, ms));
            }
        }
    }
}

#[test]
fn members_are_named_by_their_paths() {
    let mut thinner = Thinner::new("*=9,level=0".parse().expect("rules"));
    let mut sends = |level: f64, valve: i32| {
        let tank = Tank { level, valves: vec![valve], name: String::new(), interval_s: level };
        thinner.sends(polywire::extend::layout::ValueRef::of(&tank), at(0))
    };
    let sent = BTreeMap::from([(0, sends(0.0, 0)), (1, sends(0.0, 9)), (2, sends(0.1, 9)), (3, sends(0.1, 19))]);
    assert_eq!(sent.into_values().collect::<Vec<_>>(), [true, false, true, true]);
}
