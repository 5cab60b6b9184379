//! One topic on several buses: a publisher at endpoints of four engines, and bridges between DDS,
//! Zenoh and a stream of Polywire's own.
#![cfg(all(feature = "dds", feature = "zenoh"))]

#[path = "dds/program.rs"]
mod program;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use polywire::{Bridge, Message, Node};
use polywire_dds::{Durability, Guid, LOOPBACK, Participant, Qos, Reader, Receive, Sample};
use polywire_testing::{endpoints::PLAIN_ZENOH, waiting::until};
use program::{Program, SOON, domain, peer};
use zenoh::{Config, Session, Wait};

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Pump", final)]
struct Pump {
    #[polywire(key)]
    id: u32,
    level: f64,
    name: String,
}

const TOPIC: &str = "plant/pumps";

fn dds(domain: u32) -> String {
    format!("dds/{domain}?interface=127.0.0.1")
}

/// A node at an endpoint of Zenoh, what others connect to, and a session that is not Polywire's.
fn zenoh_at(node: &Node) -> (String, String, Session) {
    let endpoint = node.open("zenoh/peer?scouting=off,listen=tcp/127.0.0.1:0").expect("it opens");
    let locator = endpoint.split_once("listen=").expect("where it listens").1.to_owned();
    let mut config = Config::default();
    let connect = format!("[\"{locator}\"]");
    for (key, value) in PLAIN_ZENOH.into_iter().chain([("connect/endpoints", &*connect)]) {
        config.insert_json5(key, value).expect("valid");
    }
    (endpoint, locator, zenoh::open(config).wait().expect("a session"))
}

/// The samples of a topic by the pumps' ids, byte by byte, as a program of DDS gets them.
#[derive(Clone, Default)]
struct Samples(Arc<Mutex<BTreeMap<u32, Vec<u8>>>>);

impl Samples {
    fn read(domain: u32) -> (Samples, Reader) {
        Samples::read_with(domain, Durability::Volatile)
    }

    fn read_with(domain: u32, durability: Durability) -> (Samples, Reader) {
        let samples = Samples::default();
        let qos = Qos { reliable: Some(SOON), durability, ..Qos::default() };
        let participant = Participant::new(domain, Some(LOOPBACK), &Qos::default()).expect("a participant");
        let topic = participant.topic(TOPIC, "plant::Pump", true).expect("a topic");
        let reader = topic.reader(&qos, Arc::new(samples.clone()), |_| {}).expect("a reader");
        (samples, reader)
    }

    fn all(&self) -> BTreeMap<u32, Vec<u8>> {
        self.0.lock().expect("no panic").clone()
    }
}

impl Receive for Samples {
    fn receive(&self, _: Guid, sample: Sample) -> bool {
        // The options in the header are the writer's: a node counts its messages there.
        let mut bytes = sample.bytes.sample().to_vec();
        bytes[2..4].fill(0);
        let id = bytes[4..8].try_into().map(u32::from_le_bytes).expect("four bytes");
        self.0.lock().expect("no panic").insert(id, bytes);
        true
    }
}

fn bridge(node: &Node, from: &str, to: &str) -> Bridge {
    node.bridge(from, to).and_then(|bridge| Ok(bridge.topics([TOPIC])?)).expect("it opens").open()
}

/// A program that knows only DDS and writes a pump every 10 ms. `None` if Python has no Cyclone
/// DDS.
fn writing(domain: u32) -> Option<Program> {
    peer("go", domain, TOPIC, "Pump").map(|mut command| program::start(&mut command))
}

#[test]
fn a_topic_of_dds_passes_over_a_stream_in_fast_and_is_the_same_in_another_domain() {
    let [here, there] = [domain(), domain()];
    let stream = format!("unix/{}/pw-buses-{}", std::env::temp_dir().display(), std::process::id());
    let _bridges = [
        bridge(&Node::new(), &dds(here), &format!("fast@{stream}")),
        bridge(&Node::new(), &stream, &format!("cdr@{}", dds(there))),
    ];
    let ((written, _reader), (passed, _other)) = (Samples::read(here), Samples::read(there));
    let Some(_program) = writing(here) else { return };
    until("samples pass", || passed.all().len() >= 100);
    let (passed, written) = (passed.all(), written.all());
    assert!(passed.iter().all(|(id, bytes)| written.get(id) == Some(bytes)), "{passed:?}\n{written:?}");
    let ids: Vec<u32> = passed.keys().copied().collect();
    assert!(ids.is_sorted_by(|one, next| one + 1 == *next), "none is missing: {ids:?}");
}

#[test]
fn a_topic_of_dds_is_json_for_an_application_of_zenoh() {
    let (domain, node) = (domain(), Node::new());
    let (endpoint, _, session) = zenoh_at(&node);
    let (sender, texts) = mpsc::channel();
    let subscriber = session.declare_subscriber(TOPIC).callback(move |sample| {
        let text = String::from_utf8(sample.payload().to_bytes().into_owned()).expect("text");
        drop(sender.send((sample.encoding().to_string(), text)));
    });
    let _subscriber = subscriber.wait().expect("a subscriber");
    let _bridge = bridge(&node, &dds(domain), &format!("json@{endpoint}"));
    let Some(_program) = writing(domain) else { return };
    let (encoding, first) = texts.recv_timeout(SOON).expect("a sample");
    assert!(encoding.starts_with("application/json;plant::Pump@"), "{encoding}");
    let id = |text: &str| -> u32 {
        let rest = text.strip_prefix("{\"id\":").and_then(|rest| rest.strip_suffix(",\"level\":0.0,\"name\":\"\"}"));
        rest.unwrap_or_else(|| panic!("{text}")).parse().expect("a number")
    };
    for (number, next) in (id(&first) + 1..).zip(0..20) {
        let (_, text) = texts.recv_timeout(SOON).expect("a sample");
        assert_eq!(id(&text), number, "{next}");
    }
}

/// Both give its messages the numbers that it gave them.
#[test]
fn a_dds_program_passes_bridges_beside_each_other_once() {
    for to in ["", "json@"] {
        let domain = domain();
        let stream =
            format!("unix/{}/pw-buses-twice{}-{}", std::env::temp_dir().display(), to.len(), std::process::id());
        let node = Node::new();
        let pumps = node.subscriber_on::<Pump>(TOPIC, &stream).expect("a subscriber");
        let open = || bridge(&Node::new(), &dds(domain), &format!("{to}{stream}"));
        let first = open();
        let Some(_program) = writing(domain) else { return };
        until("one passes", || first.status().there.messages > 50);
        let second = open();
        until("both pass", || second.status().there.messages > 50);
        drop(first);
        until("the other one goes on", || second.status().there.messages > 200);
        let ids: Vec<u32> = std::iter::from_fn(|| pumps.try_recv()).map(|sample| sample.value.id).collect();
        assert!(ids.len() > 200 && ids.is_sorted_by(|one, next| one + 1 == *next), "each once: {ids:?}");
        assert_eq!((pumps.status().writers, pumps.lost()), (1, 0));
    }
}

/// Over a bridge, the stream gets what a DDS program keeps, and so does a late program in another
/// domain, also if the bridges convert it.
#[test]
fn what_a_dds_program_keeps_passes_bridges() {
    for (to, back) in [("", ""), ("json@", "cdr@")] {
        let [here, there] = [domain(), domain()];
        let folder = std::env::temp_dir();
        let stream = format!("unix/{}/pw-buses-kept{}-{}", folder.display(), to.len(), std::process::id());
        let _bridges = [
            bridge(&Node::new(), &dds(here), &format!("{to}{stream}")),
            bridge(&Node::new(), &stream, &format!("{back}{}", dds(there))),
        ];
        let Some(mut keeping) = peer("keep", here, TOPIC, "Pump") else { return };
        let _program = program::start(&mut keeping);
        let node = Node::new();
        for _ in 0..2 {
            let subscribe = node.subscribe::<Pump>(TOPIC, Some(&stream)).expect("a wire");
            let late = subscribe.qos(polywire::qos::Qos::default().transient_local()).expect("valid policies").open();
            for id in 1..=3 {
                assert_eq!(late.recv_timeout(SOON).map(|sample| sample.value.id), Some(id));
            }
            assert_eq!(late.lost(), 0);
        }
        let (late, _reader) = Samples::read_with(there, Durability::TransientLocal);
        until("a late program has them", || late.all().len() == 3);
    }
}

#[test]
fn a_topic_is_on_four_buses_at_once() {
    let domain = domain();
    let (here, there) = (Node::new(), Node::new());
    let (zenoh, locator, session) = zenoh_at(&here);
    let (sender, texts) = mpsc::channel();
    let subscriber = session.declare_subscriber(TOPIC).callback(move |sample| {
        drop(sender.send(String::from_utf8(sample.payload().to_bytes().into_owned()).expect("text")));
    });
    let _subscriber = subscriber.wait().expect("a subscriber");
    let (plain, reader) = Samples::read(domain);
    let (udp, tcp) = (there.open("udp-reliable/127.0.0.1:0"), there.open("tcp/127.0.0.1:0"));
    let (udp, tcp) = (udp.expect("it opens"), tcp.expect("it opens"));
    let first = here.publish::<Pump>(TOPIC, Some(&format!("cdr@{}", dds(domain)))).expect("a publisher");
    let wires = [format!("json@{zenoh}"), format!("fast@{udp}"), format!("cbor@{tcp}")];
    let publish = wires.iter().try_fold(first, |publish, wire| publish.also(wire));
    let publisher = publish.and_then(polywire::Publish::open).expect("a publisher");
    let calling = format!("zenoh/peer?scouting=off,listen=tcp/127.0.0.1:0,connect={locator}");
    let places = [dds(domain), calling, udp, tcp];
    let first = there.subscribe::<Pump>(TOPIC, Some(&format!("cdr@{}", places[0]))).expect("a subscriber");
    let subscribe = places[1..].iter().try_fold(first, |subscribe, at| subscribe.also(&format!("cdr@{at}")));
    let over_all = subscribe.expect("a subscriber").open();
    let over_one = places.map(|place| there.subscriber_on::<Pump>(TOPIC, &place).expect("a subscriber"));
    let all: Vec<_> = over_one.iter().chain([&over_all]).collect();
    until("all match", || all.iter().all(|pumps| pumps.status().writers == 1) && !reader.writers().is_empty());
    // Subscribers know the publisher before it knows them.
    let pump = |id: u32| Pump { id, level: f64::from(id), name: format!("pump {id}") };
    let (mut deaf, mut is_shown) = (all.clone(), false);
    until("all hear it", || {
        publisher.publish(&pump(0)).expect("published");
        is_shown |= texts.recv_timeout(Duration::from_millis(20)).is_ok();
        deaf.retain(|pumps| pumps.try_recv().is_none());
        is_shown && deaf.is_empty() && !plain.all().is_empty()
    });
    for id in 1..=500 {
        publisher.publish(&pump(id)).expect("published");
    }
    for (at, pumps) in all.iter().enumerate() {
        let ids = std::iter::repeat_with(|| pumps.recv_timeout(SOON).expect("a sample").value.id);
        let ids: Vec<u32> = ids.skip_while(|id| *id == 0).take(500).collect();
        assert!(ids.iter().copied().eq(1..=500), "{at}: {ids:?}");
        assert_eq!((pumps.lost(), pumps.undecodable(), pumps.try_recv().is_some()), (0, 0, false), "{at}");
    }
    until("the program of DDS has all", || plain.all().len() == 501);
    let texts = std::iter::repeat_with(|| texts.recv_timeout(SOON).expect("a sample"));
    let texts = texts.skip_while(|text| text.starts_with("{\"id\":0,"));
    for (id, text) in (1..=500).zip(texts) {
        assert!(text.starts_with(&format!("{{\"id\":{id},")), "{id}: {text}");
    }
}
