//! Samples that nodes keep until the handlers of a collector have stored them.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use polywire::{
    Message, Node,
    codec::{self, Encoder, Options},
};
use polywire_collector::{Collector, CollectorConfig, CollectorError};
use polywire_telemetry::{
    Clocks, Uuid,
    packet::StreamDescription,
    uplink::{Carrier, Memory, Rule, Uplink, UplinkHandle, UplinkOptions},
};

/// Longer than anything takes that a test waits for.
const SOON: Duration = Duration::from_secs(60);

#[derive(Default, Message)]
struct Count {
    count: u64,
}

/// A node with a probe.
struct Sender {
    uplink: UplinkHandle,
    carrier: Carrier,
    stream: u32,
    encoder: Encoder<Count>,
    sent: u64,
}

impl Sender {
    fn new(start: u64, endpoint: &str) -> Sender {
        let clocks = Clocks::new();
        let options = UplinkOptions { packet_bytes: 500, ..UplinkOptions::default() };
        let uplink = Uplink::new(Uuid::of(7), start, Box::new(Memory::default()), options, clocks.now());
        let carrier = Carrier::start(&Node::new(), endpoint, uplink.expect("an uplink"), clocks).expect("a carrier");
        let handle = carrier.handle();
        let schema = Count::shape().schema().to_bytes();
        let description =
            StreamDescription { instance: "count".into(), codec: "cdr".into(), schema, ..StreamDescription::default() };
        let stream = handle.open(description, Rule::default()).expect("a stream");
        let encoder = Encoder::new(&codec::cdr::CDR, &Options::default()).expect("an encoder");
        Sender { uplink: handle, carrier, stream, encoder, sent: 0 }
    }

    fn send(&mut self, samples: u64) {
        for _ in 0..samples {
            self.sent += 1;
            let mut payload = Vec::new();
            self.encoder.encode(&Count { count: self.sent }, &mut payload).expect("encoded");
            self.uplink.offer(self.stream, &payload, self.sent as i64);
        }
    }
}

/// Where a collector and nodes meet, and where its files are.
struct Place {
    folder: PathBuf,
    endpoint: String,
}

impl Place {
    fn new(test: &str) -> Place {
        let folder = std::env::temp_dir().join(format!("pw-nodes-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let endpoint = format!("unix/{}", folder.join("socket").display());
        Place { folder, endpoint }
    }

    /// With a handler that writes to this file.
    fn config(&self, file: &str) -> CollectorConfig {
        let (folder, endpoint) = (self.folder.display(), &self.endpoint);
        let text = format!(
            "[collector]\nendpoints = ['{endpoint}']\nnodes = '{folder}/positions'\n\
             [handlers.all]\nkind = 'jsonl'\npath = '{folder}/{file}'\noverflow = 'block'\nsync = 0.05\n"
        );
        CollectorConfig::parse(&text).expect("a configuration")
    }

    fn collector(&self) -> Collector {
        let mut collector = Collector::new(Node::new());
        collector.reload(&self.config("all.jsonl")).expect("it opens");
        collector
    }

    /// The counts in the file, in order.
    fn counts(&self) -> Vec<u64> {
        let text = fs::read_to_string(self.folder.join("all.jsonl")).expect("a file");
        let count = |line: &str| line.split_once("{\"count\":")?.1.split_once('}')?.0.parse().ok();
        text.lines().map(|line| count(line).expect(line)).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn samples_are_there_once_whenever_the_collector_runs() {
    let place = Place::new("once");
    let mut sender = Sender::new(7, &place.endpoint);
    // Before there is a collector, while one runs, and between two of them.
    sender.send(100);
    for _ in 0..3 {
        let mut collector = place.collector();
        sender.send(100);
        assert!(sender.carrier.flush(SOON), "acknowledged");
        assert_eq!(place.counts(), (1..=sender.sent).collect::<Vec<_>>());
        assert!(collector.stop(SOON).0);
        sender.send(100);
    }
}

#[test]
fn nothing_is_acknowledged_before_it_is_stored() {
    let place = Place::new("stored");
    let mut collector = place.collector();
    let mut sender = Sender::new(8, &place.endpoint);
    sender.send(50);
    assert!(sender.carrier.flush(SOON));
    // The folder of the file is a file, so that nothing can be stored.
    let blocked = place.folder.join("none");
    fs::write(&blocked, "").expect("a file");
    collector.reload(&place.config("none/all.jsonl")).expect("it goes on");
    sender.send(50);
    let until = Instant::now() + SOON;
    while collector.status()[0].received == 0 || collector.status()[0].failures < 2 {
        assert!(Instant::now() < until, "{:?}", collector.status());
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!sender.carrier.flush(Duration::ZERO), "nothing is acknowledged");
    fs::remove_file(blocked).expect("removed");
    assert!(sender.carrier.flush(SOON), "stored at last");
    assert_eq!(collector.status()[0].stored, 50);
}

/// A collector sends what it gets on to another one, which is stopped and started meanwhile.
#[test]
fn what_is_forwarded_is_stored_at_the_other_end() {
    let (near, far) = (Place::new("near"), Place::new("far"));
    let text = format!(
        "[collector]\nendpoints = ['{}']\nnodes = '{}/positions'\n\
         [handlers.on]\nkind = 'forward'\nto = 'json@{}'\noverflow = 'block'\nsync = 0.05\n",
        near.endpoint,
        near.folder.display(),
        far.endpoint,
    );
    let mut forwarding = Collector::new(Node::new());
    forwarding.reload(&CollectorConfig::parse(&text).expect("valid")).expect("it opens");
    let mut sender = Sender::new(9, &near.endpoint);
    let mut collector = far.collector();
    sender.send(200);
    assert!(sender.carrier.flush(SOON), "acknowledged");
    // What is acknowledged to the sender is stored at the far end.
    assert_eq!(far.counts(), (1..=200).collect::<Vec<_>>());
    let line = fs::read_to_string(far.folder.join("all.jsonl")).expect("a file");
    let topic = format!("{{\"topic\":\"probes/{}/count\",", Uuid::of(7));
    assert!(line.starts_with(&topic), "{line}");
    assert!(collector.stop(SOON).0);
    drop(collector);
    sender.send(50);
    assert!(!sender.carrier.flush(Duration::from_millis(300)), "nobody has stored it");
    let _collector = far.collector();
    assert!(sender.carrier.flush(SOON), "acknowledged");
    let counts: std::collections::BTreeSet<u64> = far.counts().into_iter().collect();
    assert_eq!(counts, (1..=250).collect(), "each at least once");
    assert!(forwarding.stop(SOON).0);
}

/// Topics that are not those of probes get names of probes at the other collector.
#[test]
fn any_topic_is_forwarded() {
    let far = Place::new("any");
    let mut collector = far.collector();
    let text = format!(
        "[collector]\nendpoints = ['inproc/nodes-any']\ntopics = ['plant/**']\n\
         [handlers.on]\nkind = 'forward'\nto = 'cdr@{}'\noverflow = 'block'\nsync = 0.05\n",
        far.endpoint,
    );
    let mut forwarding = Collector::new(Node::builder().name("near").build());
    forwarding.reload(&CollectorConfig::parse(&text).expect("valid")).expect("it opens");
    let counts = Node::new().publish::<Count>("plant/north/count", Some("cdr@inproc/nodes-any")).expect("a wire");
    let counts = counts.open().expect("a publisher");
    let until = Instant::now() + SOON;
    while forwarding.status()[0].stored == 0 {
        assert!(Instant::now() < until, "{:?}", forwarding.status());
        counts.publish(&Count { count: 7 }).expect("published");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(far.counts()[0], 7);
    let line = fs::read_to_string(far.folder.join("all.jsonl")).expect("a file");
    assert!(line.starts_with("{\"topic\":\"probes/near/plant/north/count\","), "{line}");
    assert!(forwarding.stop(SOON).0 && collector.stop(SOON).0);
}

/// A new configuration repairs a handler that could not store anything.
#[test]
fn a_changed_handler_gets_what_the_former_one_has_not_stored() {
    let place = Place::new("changed");
    fs::write(place.folder.join("none"), "").expect("a file");
    let mut collector = Collector::new(Node::new());
    collector.reload(&place.config("none/all.jsonl")).expect("it goes on");
    let mut sender = Sender::new(10, &place.endpoint);
    sender.send(50);
    // The first packet may have any number of samples, and no other one comes until it is stored.
    let until = Instant::now() + SOON;
    while collector.status()[0].received == 0 {
        assert!(Instant::now() < until, "{:?}", collector.status());
        thread::sleep(Duration::from_millis(10));
    }
    collector.reload(&place.config("all.jsonl")).expect("it opens");
    sender.send(1);
    assert!(sender.carrier.flush(SOON), "acknowledged");
    assert_eq!(place.counts(), (1..=51).collect::<Vec<_>>());
}

#[test]
fn two_collectors_do_not_share_a_file() {
    let place = Place::new("share");
    let _first = place.collector();
    let mut second = Collector::new(Node::new());
    // Also if it is asked again.
    for _ in 0..2 {
        let refused = second.reload(&place.config("other.jsonl"));
        assert!(matches!(refused, Err(CollectorError::Positions { .. })), "{refused:?}");
    }
}
