//! What nodes count: that it is right, that it stays, and that Prometheus can read it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use polywire::{Config, Info, Message, Node, NodeError, engine::Overflow, qos::Qos};
use polywire_testing::waiting::{SOON, until};

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Pump")]
struct Pump {
    #[polywire(key)]
    id: u32,
}

#[test]
fn both_ends_of_a_link_count_the_same() {
    let (here, there) = (Node::new(), Node::new());
    let endpoint = here.open("tcp-listen/127.0.0.1:0").expect("opens");
    let pumps = here.subscriber_on::<Pump>("pumps", &format!("cdr@{endpoint}")).expect("opens");
    let wire = format!("cdr@{}", endpoint.replace("tcp/", "tcp-connect/"));
    let publisher = there.publisher_on::<Pump>("pumps", &wire).expect("opens");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    for id in 0..500 {
        publisher.publish(&Pump { id }).expect("published");
    }
    (0..500).for_each(|_| drop(pumps.recv_timeout(SOON).expect("it was published")));
    let (sent, received) = (there.stats(), here.stats());
    let topic = sent.topic("pumps").expect("it was published");
    assert_eq!((topic.sent, topic.sent_bytes, topic.received), (500, 2000, 0));
    let topic = received.topic("pumps").expect("it was received");
    assert_eq!((topic.received, topic.received_bytes, topic.sent, topic.queued), (500, 2000, 0, 0));
    // The first 64, and each eighth of the others.
    assert_eq!(topic.latency.count + topic.latency.negative, 64 + (500 - 64_u64).div_ceil(8));
    assert!(topic.latency.negative > 0 || topic.latency.sum_ns > 0);
    let ([out], [into]) = (&sent.links[..], &received.links[..]) else { panic!("{sent:?} {received:?}") };
    assert_eq!((out.sent, out.dropped, into.received, into.received_bytes), (500, 0, 500, 2000));
    assert_eq!((out.peer, into.peer), (here.hello().node.0, there.hello().node.0));
    assert_eq!((received.discovered, sent.announced), (1, 1));
    assert!(sent.compiled > 0 && sent.compile_ns > 0);
}

#[test]
fn what_a_full_queue_drops_is_counted_at_the_publisher() {
    let config = Config::parse("[engine]\nqueue_bytes = 4096\noverflow = 'drop-newest'").expect("a configuration");
    let (node, wire) = (Node::builder().config(config).build(), "cdr@inproc/stats-full");
    let publisher = Arc::new(node.publisher_on::<Pump>("pumps", wire).expect("opens"));
    let (again, dropped) = (publisher.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = dropped.clone();
    // While the callback runs, nothing leaves the queue.
    let publish = move |pump: &Pump, _: &Info| {
        for id in (1..=1000).filter(|_| pump.id == 0) {
            counted.fetch_add(again.publish(&Pump { id }).expect("published").dropped, Ordering::Relaxed);
        }
    };
    let pumps = node.subscribe::<Pump>("pumps", Some(wire)).expect("opens").on_message_inline(publish);
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&Pump { id: 0 }).expect("published");
    let dropped = dropped.load(Ordering::Relaxed) as u64;
    assert!((1..1000).contains(&dropped), "{dropped}");
    let stats = node.stats();
    let topic = stats.topic("pumps").expect("it was published");
    assert_eq!(
        (publisher.status().dropped, topic.dropped, topic.sent, pumps.lost()),
        (dropped, dropped, 1001, dropped)
    );
}

#[test]
fn counts_never_go_down() {
    let node = Node::new();
    let wire = "cdr@inproc/stats-monotonic";
    for round in 1..=3 {
        let pumps = node.subscriber_on::<Pump>("pumps", wire).expect("opens");
        let publisher = node.publisher_on::<Pump>("pumps", wire).expect("opens");
        publisher.publish(&Pump { id: 1 }).expect("published");
        publisher.set_wire("json").expect("a format");
        publisher.publish(&Pump { id: 2 }).expect("published");
        (0..2).for_each(|_| drop(pumps.recv_timeout(SOON).expect("it was published")));
        let now = node.stats();
        let topic = now.topic("pumps").expect("it was published");
        assert_eq!((topic.sent, topic.received, topic.publishers, topic.subscribers), (2 * round, 2 * round, 1, 1));
    }
    let stats = node.stats();
    let topic = stats.topic("pumps").expect("it was published");
    assert_eq!((topic.sent, topic.received, topic.publishers, topic.subscribers), (6, 6, 0, 0));
    assert_eq!(topic.sent_bytes, topic.received_bytes);
}

#[test]
fn drops_are_counted_by_reason() {
    let node = Node::new();
    let wire = "cdr@inproc/stats-drops";
    let subscribe = |topic: &str| node.subscribe::<Pump>(topic, Some(wire)).expect("a wire");
    let lossy = subscribe("lossy").queue(2).overflow(Overflow::DropOldest).open();
    let last = subscribe("last").qos(Qos::default().keep_last(1)).expect("valid").open();
    for topic in ["lossy", "last"] {
        let publisher = node.publisher_on::<Pump>(topic, wire).expect("opens");
        for _ in 0..10 {
            publisher.publish(&Pump { id: 1 }).expect("published");
        }
    }
    let stats = node.stats();
    let of = |topic: &str| stats.topic(topic).expect("it was published").clone();
    assert_eq!((of("lossy").lost, of("lossy").queued, of("lossy").replaced), (8, 2, 0));
    assert_eq!((of("last").lost, of("last").queued, of("last").replaced), (0, 1, 9));
    drop((lossy, last));
    let stats = node.stats();
    assert_eq!(stats.topic("last").map(|topic| (topic.replaced, topic.queued)), Some((9, 0)));
}

/// The samples of a text in exposition format 0.0.4, by name and labels. Panics where the text
/// breaks the format's rules.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut types, mut done) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    let mut family = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(!help.is_empty() && done.insert(name.to_owned()), "{name}: once");
            family = name.into();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(name == family && ["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            types.insert(name.to_owned(), kind.to_owned());
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let name = series.split('{').next().expect("a name");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|part| name.strip_suffix(part));
            let base = parts.into_iter().find(|base| types.get(*base).is_some_and(|kind| kind == "histogram"));
            assert_eq!(base.unwrap_or(name), family, "in one group");
            check_labels(series.strip_prefix(name).expect("its name"));
            let value: f64 = value.parse().expect("a number");
            assert!(samples.insert(series.to_owned(), value).is_none(), "{series}: twice");
        }
    }
    samples
}

/// Checks `{name="value",..}`, in which quotes, backslashes and line breaks are escaped.
fn check_labels(labels: &str) {
    let inside = labels.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).expect("labels");
    let mut rest = inside;
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").expect("a label");
        assert!(name.chars().all(|c| c.is_ascii_lowercase()), "{labels}");
        let mut is_escaped = false;
        let end = value.find(|c| {
            let ends = c == '"' && !is_escaped;
            assert!(!is_escaped || ['\\', '"', 'n'].contains(&c), "{labels}");
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        rest = &value[end.expect("the value ends") + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

fn get(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    body.to_owned()
}

#[test]
fn prometheus_can_read_the_counts() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("an address");
    let config = Config::parse(&format!("[node]\nname = 'hall \"3\"'\nmetrics = '{free}'")).expect("valid");
    let node = Node::builder().config(config).build();
    let pumps = node.subscriber_on::<Pump>("pumps/1", "cdr@inproc/stats-prometheus").expect("opens");
    let publisher = node.publisher_on::<Pump>("pumps/1", "cdr@inproc/stats-prometheus").expect("opens");
    for id in 0..3 {
        publisher.publish(&Pump { id }).expect("published");
    }
    let other = Node::new();
    other.open("inproc/stats-prometheus").expect("opens");
    until("a link", || node.links() == 1);
    let text = get(free);
    let samples = parse(&text);
    let of = |name: &str| samples.get(&format!("{name}{{node=\"hall \\\"3\\\"\",topic=\"pumps/1\"}}")).copied();
    assert_eq!(of("polywire_messages_sent_total"), Some(3.0), "{text}");
    assert_eq!(of("polywire_messages_received_total"), Some(3.0));
    assert_eq!(of("polywire_messages_queued"), Some(3.0));
    assert_eq!(of("polywire_latency_seconds_count"), Some(3.0));
    assert!(samples.keys().any(|name| name.starts_with("polywire_link_queued_bytes{") && name.contains("peer=\"")));
    check_with_promtool(&text);

    // A second node cannot have the same address: that is an error, not silence.
    let config = Config::parse(&format!("[node]\nmetrics = '{free}'")).expect("valid");
    let second = Node::builder().config(config).build();
    let error = second.open("inproc/stats-prometheus").expect_err("taken");
    assert!(matches!(error, NodeError::Metrics { .. }), "{error}");
    assert!(error.to_string().starts_with(&format!("cannot serve metrics at {free}: ")), "{error}");
    drop((pumps, publisher, node));
    assert!(TcpStream::connect(free).is_err(), "it ends with the node");
}

/// Asks Prometheus's own checker, where it is installed.
fn check_with_promtool(text: &str) {
    let tool = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut tool) = tool else { return };
    tool.stdin.take().expect("piped").write_all(text.as_bytes()).expect("sent");
    let ended = tool.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}
