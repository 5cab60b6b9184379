//! Bridges between endpoints: what passes, what is converted, and that neither chains nor loops of
//! bridges repeat or lose a message.

use std::time::Duration;

use polywire::{Bridge, Kind, Message, Node, Publisher, Sample, Subscriber, bridge::WayStatus, qos::Qos};

/// Longer than anything takes that a test waits for.
const SOON: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
struct Pump {
    #[polywire(key)]
    id: u32,
    count: u64,
}

fn bridge(from: &str, to: &str) -> Bridge {
    Node::new().bridge(from, to).expect("it opens").open()
}

fn publish(publisher: &Publisher<Pump>, numbers: std::ops::RangeInclusive<u64>) {
    for count in numbers {
        publisher.publish(&Pump { id: 7, count }).expect("published");
    }
}

fn numbers(subscriber: &Subscriber<Pump>, many: usize) -> Vec<u64> {
    let next = || subscriber.recv_timeout(SOON).map(|sample| sample.value.count);
    (0..many).map(|at| next().unwrap_or_else(|| panic!("message {at}; {:?}", subscriber.status()))).collect()
}

/// Waits until a writer's messages reach a subscriber.
fn until_matched(subscriber: &Subscriber<Pump>, writers: usize) {
    while subscriber.status().writers < writers {
        std::thread::yield_now();
    }
}

#[test]
fn formats_kinds_and_quality_of_service_pass() {
    for (format, to) in [("cdr", ""), ("json+lz4", ""), ("fast", ""), ("cdr", "xcdr2@"), ("fast", "json@")] {
        let name = format!("{}-{}", format.replace('+', "-"), to.len());
        let (from, at) = (format!("inproc/bridge-from-{name}"), format!("inproc/bridge-to-{name}"));
        let (here, there) = (Node::new(), Node::new());
        let bridge = bridge(&from, &format!("{to}{at}"));
        let pumps = there.subscriber_on::<Pump>("plant/pump", &at).expect("it opens");
        let publish_at = here.publish::<Pump>("plant/pump", Some(&format!("{format}@{from}"))).expect("it opens");
        let offered = Qos::default().lifespan(Duration::from_secs(3600));
        let publisher = publish_at.qos(offered.clone()).and_then(polywire::Publish::open).expect("it opens");
        until_matched(&pumps, 1);
        publish(&publisher, 1..=100);
        publisher.dispose(&Pump { id: 7, count: 0 }).expect("disposed");
        for expected in 1..=100 {
            let sample = pumps.recv_timeout(SOON).unwrap_or_else(|| panic!("{name}: {:?}", pumps.status()));
            assert_eq!((sample.value.count, sample.info.sequence), (expected, expected), "{name}");
            let announced = &sample.info.source.announcement;
            let codec =
                if to.is_empty() { format.split('+').next().unwrap_or_default() } else { to.trim_end_matches('@') };
            assert_eq!((announced.writer, announced.codec.as_str()), (publisher.writer(), codec));
            assert_eq!(sample.info.source.qos().expect("an offer"), offered);
        }
        let end = pumps.recv_timeout(SOON).expect("the end");
        assert_eq!((end.info.kind, end.value.id), (Kind::Dispose, 7));
        assert_eq!((bridge.status().there.messages, bridge.status().there.lost, pumps.lost()), (101, 0, 0));
    }
}

#[test]
fn what_nobody_reads_is_not_counted_as_passed_on() {
    for to in ["", "json@"] {
        let (from, at) = (format!("inproc/bridge-unread-a{}", to.len()), format!("inproc/bridge-unread-b{}", to.len()));
        let (here, there) = (Node::new(), Node::new());
        let bridge = bridge(&from, &format!("{to}{at}"));
        let publisher = here.publisher_on::<Pump>("pumps", &format!("cdr@{from}")).expect("it opens");
        publish(&publisher, 1..=10);
        let counts = || {
            let WayStatus { messages, bytes, unread, lost, .. } = bridge.status().there;
            (messages, bytes > 0, unread, lost)
        };
        assert_eq!(counts(), (0, false, 10, 0), "{to}");
        let pumps = there.subscriber_on::<Pump>("pumps", &at).expect("it opens");
        until_matched(&pumps, 1);
        publish(&publisher, 11..=15);
        assert_eq!(numbers(&pumps, 5), [11, 12, 13, 14, 15]);
        assert_eq!(counts(), (5, true, 10, 0), "{to}");
        drop(pumps);
        publish(&publisher, 16..=18);
        assert_eq!(counts(), (5, true, 13, 0), "{to}");
    }
}

#[test]
fn a_chain_of_bridges_passes_both_ways() {
    let (a, d) = (Node::new(), Node::new());
    let at = |name: &str| format!("inproc/bridge-chain-{name}");
    let _bridges = [bridge(&at("a"), &at("b")), bridge(&at("b"), &at("c")), bridge(&at("d"), &at("c"))];
    let [here, there] = [(&a, "a"), (&d, "d")].map(|(node, name)| {
        (
            node.subscriber_on::<Pump>("pumps", &at(name)).expect("it opens"),
            node.publisher_on::<Pump>("pumps", &format!("cdr@{}", at(name))).expect("it opens"),
        )
    });
    until_matched(&here.0, 2);
    until_matched(&there.0, 2);
    publish(&here.1, 1..=500);
    assert_eq!(numbers(&there.0, 500), (1..=500).collect::<Vec<_>>());
    assert_eq!(numbers(&here.0, 500), (1..=500).collect::<Vec<_>>(), "its own");
    publish(&there.1, 501..=900);
    assert_eq!(numbers(&here.0, 400), (501..=900).collect::<Vec<_>>());
    assert_eq!((here.0.lost(), there.0.lost()), (0, 0));
}

#[test]
fn parallel_bridges_make_no_loop() {
    let (a, b) = (Node::new(), Node::new());
    let (from, to) = ("inproc/bridge-loop-a", "inproc/bridge-loop-b");
    let publisher = a.publisher_on::<Pump>("pumps", "cdr@inproc/bridge-loop-a").expect("it opens");
    let own = a.subscriber_on::<Pump>("pumps", from).expect("it opens");
    let pumps = b.subscriber_on::<Pump>("pumps", to).expect("it opens");
    let bridges = [bridge(from, to), bridge(from, to)];
    while bridges.iter().any(|bridge| bridge.status().there.channels != 1 || bridge.status().back.channels != 0) {
        std::thread::yield_now();
    }
    publish(&publisher, 1..=1000);
    assert_eq!(numbers(&pumps, 1000), (1..=1000).collect::<Vec<_>>());
    assert_eq!(numbers(&own, 1000), (1..=1000).collect::<Vec<_>>());
    assert!(pumps.try_recv().is_none() && own.try_recv().is_none(), "nothing comes twice");
    let [first, second] = &bridges;
    assert_eq!((first.status().back.messages, second.status().back.messages), (0, 0));
    // Either bridge is enough.
    let [first, _second] = bridges;
    drop(first);
    publish(&publisher, 1001..=1100);
    assert_eq!(numbers(&pumps, 100), (1001..=1100).collect::<Vec<_>>());
}

#[test]
fn only_the_topics_asked_for_pass() {
    let (here, there) = (Node::new(), Node::new());
    let builder = Node::new().bridge("inproc/bridge-some-a", "inproc/bridge-some-b").expect("it opens");
    let bridge = builder.topics(["plant/*/pump"]).expect("patterns").open();
    let all = there.subscriber_on::<Pump>("**", "inproc/bridge-some-b").expect("it opens");
    for topic in ["plant/1/valve", "plant/1/pump", "pump"] {
        let publisher = here.publisher_on::<Pump>(topic, "cdr@inproc/bridge-some-a").expect("it opens");
        publish(&publisher, 1..=1);
    }
    let sample = all.recv_timeout(SOON).expect("a message");
    assert_eq!(sample.info.topic(), "plant/1/pump");
    assert_eq!((bridge.status().there.messages, bridge.node().links() > 0), (1, true));
    assert!(Node::new().bridge("inproc/bridge-some-a", "json@inproc/bridge-some-a").is_err());
}

/// A subscriber that requests what was published before it came.
fn late(node: &Node, at: &str) -> Subscriber<Pump> {
    let subscribe = node.subscribe::<Pump>("pumps", Some(at)).expect("a wire");
    subscribe.qos(Qos::default().transient_local()).expect("valid policies").open()
}

#[test]
fn histories_pass_over_chains_of_bridges() {
    for format in ["cdr", "fast", "json+lz4"] {
        let at = |name: &str| format!("inproc/bridge-history-{}-{name}", &format[..3]);
        let codec = format.split('+').next().unwrap_or_default();
        histories_pass(format, ["", ""], [at("a"), at("b"), at("c")], codec);
    }
}

/// The chain converts payloads once or twice, from and to formats whose messages refer to earlier
/// ones, too.
#[test]
fn histories_are_converted_by_chains_of_bridges() {
    for (number, (format, to, last)) in [
        ("cdr", ["json@", "cdr@"], "cdr"),
        ("cdr", ["json@", ""], "json"),
        ("json+lz4", ["", "xcdr2+zstd@"], "xcdr2"),
        ("fast", ["cbor@", "fast@"], "fast"),
        ("fast:mode=chained", ["fast@", "json@"], "json"),
    ]
    .into_iter()
    .enumerate()
    {
        let at = |name: &str| format!("inproc/bridge-converted-{number}-{name}");
        histories_pass(format, to, [at("a"), at("b"), at("c")], last);
    }
}

#[test]
fn histories_are_converted_between_engines() {
    let path = |name: &str| format!("unix/{}/pw-bridge-{}-{name}", std::env::temp_dir().display(), std::process::id());
    let keep = Node::new();
    let tcp = keep.open("tcp/127.0.0.1:0").expect("it opens");
    histories_pass("cdr", ["fast@", "json@"], [path("a"), tcp, path("c")], "json");
}

/// A publisher at the first place, and bridges from it to the last one: late subscribers there get
/// what it keeps, once and as it was published.
fn histories_pass(format: &str, to: [&str; 2], at: [String; 3], last: &str) {
    let ((here, there), [a, b, c], [first, second]) = ((Node::new(), Node::new()), &at, to);
    let case = format!("{format} {to:?} {a}");
    let kept = Qos::default().keep_last(3).transient_local();
    let publish_at = here.publish::<Pump>("pumps", Some(&format!("{format}@{a}"))).expect("it opens");
    let publisher = publish_at.qos(kept.clone()).and_then(polywire::Publish::open).expect("it opens");
    publisher.hash_keys(true);
    publish(&publisher, 1..=10);
    let _bridges = [bridge(a, &format!("{first}{b}")), bridge(&format!("{second}{c}"), b)];
    let pumps = late(&there, c);
    let mut newest = 0;
    for count in [8, 9, 10] {
        let Sample { value, info } = pumps.recv_timeout(SOON).unwrap_or_else(|| panic!("{case}: {:?}", pumps.status()));
        assert_eq!((value, info.sequence), (Pump { id: 7, count }, count), "{case}");
        let announced = &info.source.announcement;
        assert_eq!((announced.writer, &*announced.codec), (publisher.writer(), last), "{case}");
        assert_eq!(info.source.qos().expect("an offer"), kept, "{case}");
        assert!(info.timestamp_ns >= newest && info.key_hash.is_some(), "{case}: {info:?}");
        newest = info.timestamp_ns;
    }
    publish(&publisher, 11..=12);
    assert_eq!(numbers(&pumps, 2), [11, 12], "{case}");
    // Several that come at the same time, and one after them.
    let others: Vec<_> = (0..3).map(|_| Node::new()).collect();
    let others: Vec<_> = others.iter().map(|node| late(node, c)).collect();
    for other in others.iter().chain([&late(&there, c)]) {
        assert_eq!(numbers(other, 3), [10, 11, 12], "{case}");
    }
    publish(&publisher, 13..=13);
    for pumps in others.iter().chain([&pumps]) {
        assert_eq!(numbers(pumps, 1), [13], "{case}");
        assert_eq!((pumps.lost(), pumps.undecodable(), pumps.try_recv().is_none()), (0, 0, true), "{case}");
    }
}
