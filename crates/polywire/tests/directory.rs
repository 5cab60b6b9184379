//! Discovery between nodes: what each says of itself, who sees it, and what liars can do.

mod common;

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use common::{SOON, Tap, until};
use polywire::{
    Config, Message, Node,
    directory::{Directory, Event, Matching, NODE_TOPIC, NodeData, STATS_TOPIC},
    engine::EngineOptions,
    qos::Qos,
    stats::NodeStats,
};
use polywire_core::codec::{Encoder, Options, cdr::CDR};
use polywire_testing::free_path;

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Pump")]
struct Pump {
    id: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Pump")]
struct Other {
    id: String,
}

fn named(name: &str) -> Node {
    Node::builder().name(name).build()
}

/// A free endpoint of each of these engines.
fn endpoints(name: &str) -> Vec<String> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let path = free_path(name).display().to_string();
    let mut endpoints = vec![format!("inproc/{name}"), format!("unix/{path}"), format!("tcp/127.0.0.1:{port}")];
    endpoints.push(format!("local/{path}-local"));
    #[cfg(feature = "shm")]
    endpoints.push(format!("shm/{path}-shm"));
    endpoints
}

/// The next event that fits.
fn find<T>(directory: &Directory, fits: impl Fn(Event) -> Option<T>) -> T {
    let until = Instant::now() + SOON;
    loop {
        let event = directory.recv_timeout(until.saturating_duration_since(Instant::now())).expect("the event");
        if let Some(found) = fits(event) {
            return found;
        }
    }
}

fn wait_for(directory: &Directory, name: &str, fits: impl Fn(&NodeData) -> bool) -> Arc<NodeData> {
    until(name, || directory.snapshot().node(name).is_some_and(|node| fits(node)));
    directory.snapshot().node(name).expect("it was there").clone()
}

#[test]
fn nodes_publishers_subscribers_and_matches_are_seen_over_each_engine() {
    for endpoint in endpoints("all") {
        let wire = format!("json@{endpoint}");
        let (plant, hall, tool) = (named("plant"), named("hall"), named("tool"));
        let publish = plant.publish::<Pump>("pumps", Some(&wire)).expect("a wire");
        let pumps = publish.qos(Qos::default().keep_last(3).transient_local()).expect("valid").open().expect("opens");
        let good = hall.subscriber_on::<Pump>("pumps", &wire).expect("opens");
        let bad = hall.subscriber_on::<Other>("pumps", &wire).expect("opens");
        tool.open(&endpoint).expect("opens");
        let directory = tool.directory();

        let described = wait_for(&directory, "plant", |node| node.publishers.iter().any(|one| one.accepting == 1));
        assert_eq!((described.id, described.process), (plant.hello().node, std::process::id()));
        assert!(
            !described.host.is_empty() && !described.user.is_empty() && described.version == env!("CARGO_PKG_VERSION")
        );
        let [publisher] = &described.publishers[..] else { panic!("{described:?}") };
        assert_eq!((publisher.topic.as_str(), publisher.type_name.as_str()), ("pumps", "Pump"));
        assert_eq!(publisher.id, pumps.writer());
        assert!(publisher.wire.starts_with("json@"), "{}", publisher.wire);
        assert_eq!(publisher.qos.to_string(), "history=keep-last:3,durability=transient-local");

        let described = wait_for(&directory, "hall", |node| node.subscribers.iter().any(|one| !one.refuses.is_empty()));
        assert_eq!((described.publishers.len(), described.subscribers.len()), (0, 2));
        let snapshot = directory.snapshot();
        let mut matches: Vec<Matching> = snapshot.pairs().map(|pair| pair.matching).collect();
        matches.sort_by_key(|matching| *matching != Matching::Matched);
        assert_eq!((matches.len(), &matches[0]), (2, &Matching::Matched), "{endpoint}");
        let Matching::Incompatible(reason) = &matches[1] else { panic!("{matches:?}") };
        assert!(reason.contains("the writer has uint32, the reader string"), "{reason}");
        // The looking node is there, too.
        wait_for(&directory, "tool", |_| true);

        // Who looks later sees the same.
        let second = named("second");
        second.open(&endpoint).expect("opens");
        let later = second.directory();
        wait_for(&later, "plant", |node| node.publishers.len() == 1);
        wait_for(&later, "hall", |node| node.subscribers.len() == 2);

        drop(bad);
        find(&directory, |event| matches!(event, Event::SubscriberLost { .. }).then_some(()));
        drop(good);
        find(&directory, |event| {
            matches!(event, Event::Unmatched { writer, .. } if writer == pumps.writer()).then_some(())
        });
        hall.close();
        find(&directory, |event| matches!(event, Event::NodeLost(node) if node.name == "hall").then_some(()));
        drop((pumps, plant));
        find(&directory, |event| matches!(event, Event::NodeLost(node) if node.name == "plant").then_some(()));
        assert_eq!(directory.refused(), 0);
    }
}

#[test]
fn ports_that_open_later_are_looked_at_and_partitions_are_told() {
    let (plant, tool) = (named("plant"), named("tool"));
    let directory = tool.directory();
    assert_eq!((directory.snapshot().nodes().count(), directory.try_recv()), (0, None));
    let wire = "cdr@inproc/directory-later";
    let publish = plant.publish::<Pump>("pumps", Some(wire)).expect("a wire");
    let _publisher = publish.qos("partition=a".parse().expect("a policy")).expect("valid").open().expect("opens");
    let _subscriber = plant.subscriber_on::<Pump>("pumps", wire).expect("opens");
    tool.open("inproc/directory-later").expect("opens");
    wait_for(&directory, "plant", |node| node.publishers.len() + node.subscribers.len() == 2);
    let snapshot = directory.snapshot();
    assert_eq!(snapshot.pairs().map(|pair| pair.matching).collect::<Vec<_>>(), [Matching::Partition]);
    assert_eq!(tool.discovered().len(), 1, "built-in topics are no topics of an application");
}

#[test]
fn a_node_that_nobody_looks_at_announces_nothing_more() {
    let (tap, _events) = Tap::open("inproc", "directory-quiet", EngineOptions::default());
    let node = named("quiet");
    let _publisher = node.publisher_on::<Pump>("pumps", "cdr@inproc/directory-quiet").expect("opens");
    tap.until("the publisher", |heard| (!heard.announced.is_empty()).then_some(()));
    assert_eq!(tap.heard().announced.len(), 1);
    assert_eq!(node.stats().announced, 1);
    // Somebody asks.
    tap.announce("polywire/interest", 1);
    tap.until("both topics", |heard| (heard.announced.len() == 3).then_some(()));
    tap.until("a description and statistics", |heard| (heard.messages.len() >= 2).then_some(()));
}

#[test]
fn who_sees_a_node_is_up_to_its_rules() {
    let user = rustix::process::getuid().as_raw();
    let rules = |subscribe: &str| {
        format!("[[access.allow]]\nusers = [{user}]\npublish = ['pumps']\nsubscribe = ['{subscribe}']")
    };
    for (subscribe, is_seen) in [("pumps", false), ("polywire/**", true)] {
        let endpoint = format!("unix/{}", free_path(&format!("access-{is_seen}")).display());
        let config = Config::parse(&rules(subscribe)).expect("a configuration");
        let plant = Node::builder().name("plant").config(config).build();
        plant.open(&endpoint).expect("opens");
        let _publisher = plant.publisher_on::<Pump>("pumps", &format!("cdr@{endpoint}")).expect("opens");
        let tool = named("tool");
        let events = tool.events();
        tool.open(&endpoint).expect("opens");
        let directory = tool.directory();
        if is_seen {
            wait_for(&directory, "plant", |node| node.publishers.len() == 1);
        } else {
            // The tool is told why it sees nothing.
            let until = Instant::now() + SOON;
            loop {
                let event = events.recv_timeout(until - Instant::now()).expect("the denial is told").to_string();
                if event.contains(NODE_TOPIC) && event.contains("access denied") {
                    break;
                }
            }
            assert!(directory.snapshot().node("plant").is_none());
        }
        assert!(!is_seen || plant.denied() == 0, "to look is no offence where it is allowed");
    }
}

/// A description as a liar makes it.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::Node")]
struct Lie {
    #[polywire(key)]
    id: [u8; 16],
    incarnation: u64,
    revision: u64,
    name: String,
    host: String,
    process: u32,
    user: String,
    version: String,
    endpoints: Vec<u8>,
    publishers: Vec<u8>,
    subscribers: Vec<u8>,
    omitted: u32,
}

#[test]
fn a_liar_speaks_for_nobody_else_and_takes_bounded_memory() {
    let address = "directory-liar";
    let (plant, tool) = (named("plant"), named("tool"));
    plant.open(&format!("inproc/{address}")).expect("opens");
    tool.open(&format!("inproc/{address}")).expect("opens");
    let directory = tool.directory();
    let honest = wait_for(&directory, "plant", |_| true);

    let (tap, _events) = Tap::open("inproc", address, EngineOptions::default());
    let channel = tap.announce(NODE_TOPIC, 99);
    tap.until("an answer", |heard| (heard.answered >= 1).then_some(()));
    let encoder = Encoder::<Lie>::new(&CDR, &Options::default()).expect("an encoder");
    let publish = |sequence: u64, lie: &Lie| {
        let mut payload = Vec::new();
        encoder.encode(lie, &mut payload).expect("encodes");
        tap.publish(channel, sequence, &payload);
    };
    let incarnation = honest.incarnation;
    publish(1, &Lie { id: honest.id.0, incarnation, revision: u64::MAX, name: "lie".into(), ..Lie::default() });
    publish(2, &Lie { id: [9; 16], name: "x".repeat(5 << 20), ..Lie::default() });
    until("the refusal", || directory.refused() == 1);
    assert!(directory.snapshot().node("lie").is_none() && directory.snapshot().node("plant").is_some());
    // Garbage is counted, and nothing panics.
    tap.publish(channel, 3, &[0xff; 1000]);
    publish(4, &Lie { id: [9; 16], name: "\u{1b}[2J".into(), ..Lie::default() });
    wait_for(&directory, "\u{1b}[2J", |_| true);
    assert_eq!(tool.stats().topic(NODE_TOPIC), None, "built-in topics are not counted");
}

#[test]
fn statistics_come_each_second_while_somebody_subscribes() {
    let (plant, tool) = (named("plant"), named("tool"));
    let wire = "cdr@inproc/directory-stats";
    let publisher = plant.publisher_on::<Pump>("pumps", wire).expect("opens");
    publisher.publish(&Pump { id: 1 }).expect("published");
    let all = tool.subscriber_on::<NodeStats>(STATS_TOPIC, wire).expect("opens");
    let of_plant = || loop {
        let stats = all.recv_timeout(SOON).expect("statistics").value;
        if stats.name == "plant" {
            return stats;
        }
    };
    let first = of_plant();
    assert_eq!(first.topic("pumps").map(|topic| (topic.sent, topic.publishers)), Some((1, 1)));
    publisher.publish(&Pump { id: 2 }).expect("published");
    let second = loop {
        let second = of_plant();
        if second.topic("pumps").is_some_and(|topic| topic.sent == 2) {
            break second;
        }
    };
    assert!(second.time_ns > first.time_ns && second.uptime_ns > first.uptime_ns);
    assert_eq!((second.node, second.omitted), (plant.hello().node.0, 0));
}

#[test]
fn changes_are_a_stream_for_async_code() {
    use futures_core::Stream as _;
    struct Thread(std::thread::Thread);
    impl Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let tool = named("tool");
    let mut directory = pin!(tool.directory());
    let waker: Waker = Arc::new(Thread(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    assert_eq!(directory.as_mut().poll_next(&mut context), Poll::Pending);
    tool.open("inproc/directory-async").expect("opens");
    let until = Instant::now() + SOON;
    let event = loop {
        if let Poll::Ready(event) = directory.as_mut().poll_next(&mut context) {
            break event;
        }
        assert!(Instant::now() < until);
        std::thread::park_timeout(Duration::from_secs(1));
    };
    assert!(matches!(event, Some(Event::NodeFound(node)) if node.name == "tool"));
}
