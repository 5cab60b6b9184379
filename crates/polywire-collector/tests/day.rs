//! A day of operation in accelerated time: a node with probes of the system and of an application,
//! the way to the collector, and a collector with handlers and alerts. The node's clock runs a
//! thousand times as fast and more; neither memory nor files may grow beyond their limits.

use std::{
    fs,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use polywire::Node;
use polywire_collector::{Collector, CollectorConfig};
use polywire_telemetry::{
    Agent, Clocks, Counter, Gauge, Histogram, Identity, Moment, Plan, Probe, Setting,
    system::{self, Host},
    uplink::{Carrier, Memory, Uplink, UplinkHandle, UplinkOptions},
};

/// Longer than anything takes that a test waits for.
const SOON: Duration = Duration::from_secs(120);

/// A turn of the node.
const STEP: Duration = Duration::from_secs(10);

/// Samples that may be ahead of the collector, which acknowledges once a second.
const AHEAD: u64 = 4000;

/// By so many bytes a day's memory may differ from that of its first hours: what an allocator
/// keeps.
const ROOM: u64 = 6 << 20;

/// What an application counts.
#[derive(Default, Probe)]
#[probe(name = "test::Pump", uuid = "b0a4cf12-7c04-49a4-8d37-0b2b5f0e4c55", version = "1.0", every = 10)]
struct Pump {
    pressure: Gauge<f64>,
    strokes: Counter,
    latency: Histogram,
}

/// The resident memory of this process.
fn memory() -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("the status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the resident memory");
    line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).expect("kB") << 10
}

fn collector(folder: &Path, place: &str) -> Collector {
    let text = format!(
        "[collector]\nendpoints = ['{place}']\nnodes = '{0}/positions'\ntopics = ['probes/**']\n\
         [handlers.null]\nkind = 'null'\noverflow = 'block'\n\
         [handlers.lines]\nkind = 'jsonl'\npath = '{0}/all.jsonl'\noverflow = 'block'\nsync = 0.05\n\
         rotate_bytes = 2_000_000\nkeep = 2\n\
         [handlers.tables]\nkind = 'csv'\npath = '{0}/tables'\nrotate_bytes = 1_000_000\nkeep = 1\n\
         [alerts.high]\nwhen = 'pump/pressure > 8 for 1ms'\n",
        folder.display()
    );
    let mut collector = Collector::new(Node::new());
    collector.reload(&CollectorConfig::parse(&text).expect("a configuration")).expect("it opens");
    collector
}

/// Waits until the collector has stored all but a few samples.
fn keep_up(uplink: &UplinkHandle, offered: u64) {
    let until = Instant::now() + SOON;
    while uplink.status().acknowledged + AHEAD < offered {
        assert!(Instant::now() < until, "{:?} of {offered}", uplink.status());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_day_of_operation_takes_no_more_memory_than_its_first_hours() {
    let folder = std::env::temp_dir().join(format!("pw-day-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let place = format!("unix/{}", folder.join("socket").display());
    let clocks = Clocks::new();
    let identity = Identity::new("house").expect("a name");
    let options = UplinkOptions { spool_bytes: 4 << 20, ..UplinkOptions::default() };
    let uplink = Uplink::new(identity.uuid, 0x5eed_0f5e, Box::new(Memory::default()), options, clocks.now());
    let node = Node::builder().id(identity.uuid.into()).build();
    let carrier = Carrier::start(&node, &place, uplink.expect("an uplink"), clocks).expect("a carrier");
    let wire = format!("cdr@{place}");
    let mut agent = Agent::new(node, identity, Host::this(), &wire, Moment::default()).expect("a node");
    agent.send_to(carrier.handle()).expect("sent");
    for name in ["clock", "memory", "uptime", "load"] {
        let mut plan = Plan::of(system::find(name).expect("a probe"));
        plan.set("every", "10").expect("a time");
        agent.add(plan).expect("added");
    }
    let pump = Arc::new(Pump::default());
    agent.add_application("pump", &pump).expect("added");

    let mut collecting = Some(collector(&folder, &place));
    let (mut now, mut offered, mut first) = (Moment { wall_ns: 1_700_000_000_000_000_000, ..Moment::default() }, 0, 0);
    for hour in 0..24 {
        // Every hour another format, which is another stream to the collector.
        let value = ["json", "fast", "msgpack", "cdr"][hour % 4].to_owned();
        agent.set("pump", &[Setting { name: "wire".to_owned(), value }]).expect("another format");
        // Every six hours the collector is away for half an hour.
        let is_away = hour % 6 == 4;
        if is_away {
            assert!(collecting.take().expect("it runs").stop(SOON).0, "all is stored");
        }
        for step in 0..360 {
            now.steady += STEP;
            now.wall_ns += STEP.as_nanos() as i64;
            pump.pressure.set(f64::from(step % 10));
            pump.strokes.add(17);
            (0..5).for_each(|number| pump.latency.observe(100 + number * step as u64));
            agent.turn(now);
            // Five probes, and one of the way to the collector.
            offered += 5;
            if is_away && step == 180 {
                collecting = Some(collector(&folder, &place));
            }
            if collecting.is_some() {
                keep_up(&carrier.handle(), offered);
            }
        }
        collecting.iter().for_each(|collecting| drop(collecting.take_alerts()));
        // By then every format was used, and the collector was away once.
        if hour == 7 {
            first = memory();
        }
    }
    assert!(carrier.flush(SOON), "{:?}", carrier.handle().status());
    let last = memory();
    let status = carrier.handle().status();
    assert!(status.acknowledged >= offered && status.spool.dropped == 0, "{status:?} of {offered}");
    assert!(last < first + ROOM, "{first} bytes after eight hours, {last} at the end");
    let mut collecting = collecting.expect("it runs");
    assert!(collecting.stop(SOON).0);
    // The files are within their limits: three of lines, two tables a type, and the positions.
    let size = |path: &Path| fs::metadata(path).map_or(0, |data| data.len());
    let lines: u64 = ["all.jsonl", "all.1.jsonl", "all.2.jsonl"].map(|name| size(&folder.join(name))).iter().sum();
    let all: u64 = fs::read_dir(&folder).expect("a folder").flatten().map(|entry| size(&entry.path())).sum();
    assert!(lines < 7_000_000 && size(&folder.join("positions")) < 1 << 20, "{lines} of {all} bytes");
    let _ = fs::remove_dir_all(&folder);
}
