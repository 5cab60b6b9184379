//! The liveliness of publishers: leases that lapse, assertions, and what subscribers and publishers
//! are told.

#[path = "common/lives.rs"]
mod lives;

use std::{io::Read as _, process::Stdio, thread, time::Duration};

use lives::change;
use polywire::{
    Kind, Message, Node, NodeEvent, Publisher, Subscriber,
    qos::{InstanceState, Qos},
};
use polywire_testing::{
    free_path,
    waiting::{Process, SOON, process_of, until},
};
use rustix::process::{Pid, Signal, kill_process};

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Pump {
    #[polywire(key)]
    id: u32,
    value: u64,
}

fn pump(id: u32) -> Pump {
    Pump { id, value: 7 }
}

fn qos(text: &str) -> Qos {
    text.parse().expect(text)
}

/// The writer's node, the reader's node, and where they meet, on each engine.
fn places(test: &str) -> Vec<(Node, Node, String, String)> {
    let between = |endpoint: String| {
        let (writer, reader) = (Node::new(), Node::new());
        let read_at = writer.open(&endpoint).expect("it opens");
        (writer, reader, endpoint, read_at)
    };
    vec![
        between(format!("inproc/alive-{test}")),
        between("tcp/127.0.0.1:0".into()),
        between(format!("unix/{}", free_path(test).display())),
        between(format!("local/{}", free_path(&format!("{test}-local")).display())),
        between("udp-reliable/127.0.0.1:0".into()),
        between("udp/127.0.0.1:0".into()),
    ]
}

fn publisher(node: &Node, endpoint: &str, policies: &str) -> Publisher<Pump> {
    let publish = node.publish::<Pump>("pumps", Some(endpoint)).expect("a place");
    publish.qos(qos(policies)).expect(policies).open().expect("a publisher")
}

fn subscriber(node: &Node, endpoint: &str, policies: &str) -> Subscriber<Pump> {
    let subscribe = node.subscribe::<Pump>("pumps", Some(endpoint)).expect("a place");
    subscribe.qos(qos(policies)).expect(policies).instances().open()
}

#[test]
fn a_publisher_that_does_not_assert_is_not_alive() {
    for (writer, reader, write_at, read_at) in places("manual") {
        let (events, told) = (reader.events(), writer.events());
        let pumps = subscriber(&reader, &read_at, "liveliness=manual-by-topic,lease=1s");
        let publisher = publisher(&writer, &write_at, "liveliness=manual-by-topic,lease=100ms");
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{write_at}");
        publisher.publish(&pump(1)).expect("published");
        let sample = pumps.recv_timeout(SOON).expect("a message");
        assert_eq!(sample.info.instance, Some(InstanceState::Alive), "{write_at}");
        assert!(!change(&events), "{write_at}");
        let end = pumps.recv_timeout(SOON).expect("the instance has no writers");
        assert_eq!((end.info.kind, end.info.instance), (Kind::Unregister, Some(InstanceState::NoWriters)));
        assert_eq!(end.info.key_hash, sample.info.key_hash, "{write_at}");
        until("the publisher knows", || publisher.status().liveliness_lost >= 1);
        let lost =
            std::iter::from_fn(|| told.recv_timeout(SOON)).find(|e| matches!(e, NodeEvent::LivelinessLost { .. }));
        assert!(lost.is_some(), "{write_at}");
        until("it is counted", || (pumps.status().writers, pumps.status().not_alive) == (1, 1));
        publisher.assert_liveliness().expect("asserted");
        assert!(change(&events), "{write_at}: an assertion");
        assert!(!change(&events), "{write_at}");
        // Over `udp` a single message may be lost.
        until("a message makes it alive", || {
            publisher.publish(&pump(1)).expect("published");
            pumps.recv_timeout(Duration::from_millis(20)).is_some_and(|s| s.info.instance == Some(InstanceState::Alive))
        });
        assert!(change(&events), "{write_at}");
    }
}

#[test]
fn a_node_asserts_for_its_publishers() {
    for (writer, reader, write_at, read_at) in places("automatic") {
        let events = reader.events();
        let pumps = subscriber(&reader, &read_at, "lease=1min");
        let publisher = publisher(&writer, &write_at, "lease=20s");
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{write_at}");
        let short = publisher_of_short_lease(&writer, &write_at);
        until("assertions arrive", || short.wait_for_subscribers(1, Duration::ZERO) == 1);
        thread::sleep(Duration::from_millis(100));
        let lapsed = std::iter::from_fn(|| events.try_recv());
        let lapsed = lapsed.filter(|event| matches!(event, NodeEvent::LivelinessChanged { .. })).count();
        assert_eq!(lapsed, 0, "{write_at}");
        assert_eq!((pumps.status().writers, pumps.status().not_alive), (2, 0), "{write_at}");
        assert_eq!(reader.discovered().len(), 2, "{write_at}: assertions are no topics of their own");
        drop((publisher, short));
        until("a publisher that ends is not counted", || (pumps.status().writers, pumps.status().not_alive) == (0, 0));
    }
}

/// A lease of which many assertions go by while a test runs, and which a busy machine keeps.
fn publisher_of_short_lease(node: &Node, endpoint: &str) -> Publisher<Pump> {
    publisher(node, endpoint, "lease=10s")
}

#[test]
fn kinds_and_leases_are_offered_and_requested() {
    let node = Node::new();
    let pumps = subscriber(&node, "inproc/alive-match", "liveliness=manual-by-topic,lease=1s");
    let mismatches = ["lease=500ms", "liveliness=manual-by-topic,lease=2s", "default"];
    let refused = mismatches.map(|policies| {
        let publisher = publisher(&node, "inproc/alive-match", policies);
        publisher.publish(&pump(1)).expect("published").refused
    });
    assert_eq!(refused, [1; 3]);
    let mismatches = pumps.status().mismatches;
    assert_eq!(mismatches.len(), 3, "assertions are not refused as well");
    let reason =
        "liveliness (policy 8): offered automatic with a lease of 500ms, requested manual-by-topic with a lease of 1s";
    assert!(mismatches[0].reason.contains(reason), "{}", mismatches[0].reason);
}

#[test]
fn an_owner_that_is_not_alive_loses_its_instances() {
    let (node, at) = (Node::new(), "inproc/alive-owner");
    let pumps = subscriber(&node, at, "ownership=exclusive");
    let weak = publisher(&node, at, "ownership=exclusive:1");
    let strong = publisher(&node, at, "ownership=exclusive:2,liveliness=manual-by-topic,lease=100ms");
    strong.publish(&Pump { id: 1, value: 2 }).expect("published");
    until("the weaker one takes over", || {
        weak.publish(&Pump { id: 1, value: 1 }).expect("published");
        pumps.recv_timeout(Duration::from_millis(5)).is_some_and(|sample| sample.value.value == 1)
    });
}

/// Not a test by itself: a process that publishes. Ends with its standard input.
#[test]
#[ignore = "run by another test"]
fn publisher_process() {
    let wire = std::env::var("POLYWIRE_TEST_WIRE").expect("a wire");
    let node = Node::new();
    let publisher = publisher(&node, &wire, "lease=1s");
    let _ = publisher.wait_for_subscribers(1, SOON);
    publisher.publish(&pump(1)).expect("published");
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_publisher_that_is_suspended_is_not_alive_until_it_goes_on() {
    let endpoint = format!("local/{}", free_path("suspended").display());
    let node = Node::new();
    let events = node.events();
    let pumps = subscriber(&node, &endpoint, "lease=1min");
    let mut command = process_of("publisher_process");
    command.env("POLYWIRE_TEST_WIRE", &endpoint);
    let process = Process(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts"));
    assert_eq!(pumps.recv_timeout(SOON).expect("a message").value, pump(1));
    let pid = Pid::from_child(&process.0);
    kill_process(pid, Signal::STOP).expect("suspended");
    // On a busy machine it may have been late before.
    until("it is not alive", || !change(&events) && pumps.status().not_alive == 1);
    assert_eq!(pumps.recv_timeout(SOON).expect("its instance").info.instance, Some(InstanceState::NoWriters));
    kill_process(pid, Signal::CONT).expect("goes on");
    assert!(change(&events), "it is alive again");
    assert_eq!(pumps.status().writers, 1);
}
