//! One topic at several endpoints at once, and publishers that move from one to another while they
//! publish: nothing is lost on reliable engines, nothing comes twice, and the order stays.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use polywire::{Config, Message, Node, NodeError, NodeEvent, Publisher, Subscriber, qos::Qos};
use polywire_testing::free_path;

/// Longer than anything takes that a test waits for.
const SOON: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
struct Pump {
    #[polywire(key)]
    id: u32,
    count: u64,
}

fn numbers(subscriber: &Subscriber<Pump>, many: usize) -> Vec<u64> {
    let next = || subscriber.recv_timeout(SOON).map(|sample| sample.value.count);
    (0..many).map(|at| next().unwrap_or_else(|| panic!("message {at}; {:?}", subscriber.status()))).collect()
}

/// Where a node is reached, on each reliable engine.
fn endpoint(node: &Node, engine: &str, test: &str) -> String {
    let address = match engine {
        "tcp" | "udp-reliable" => "127.0.0.1:0".to_owned(),
        "local" => {
            let path = free_path(test);
            // Only its owner may use it.
            DirBuilder::new().mode(0o700).recursive(true).create(&path).expect("a folder");
            path.display().to_string()
        }
        _ => test.to_owned(),
    };
    node.open(&format!("{engine}/{address}")).expect("it opens")
}

/// Waits until the publisher has left its former endpoints. Gives the peers that did not follow.
fn moved(events: &polywire::Events) -> usize {
    loop {
        let event = events.recv_timeout(SOON).expect("the publisher leaves");
        if let NodeEvent::Moved { left_behind, .. } = event {
            return left_behind;
        }
    }
}

fn publish(publisher: &Publisher<Pump>, numbers: std::ops::RangeInclusive<u64>) {
    for count in numbers {
        publisher.publish(&Pump { id: count as u32 % 3, count }).expect("published");
    }
}

#[test]
fn what_comes_at_several_endpoints_comes_once_and_in_order() {
    let (writer, reader) = (Node::new(), Node::new());
    let tcp = endpoint(&reader, "tcp", "several");
    let udp = endpoint(&reader, "udp-reliable", "several");
    let subscribe = reader.subscribe::<Pump>("pumps", Some("inproc/endpoints-several")).expect("it opens");
    let both = subscribe.also(&tcp).and_then(|both| both.also(&udp)).expect("it opens").open();
    let one = reader.subscriber_on::<Pump>("pumps", &tcp).expect("it opens");
    let publish_at = writer.publish::<Pump>("pumps", Some("cdr@inproc/endpoints-several")).expect("it opens");
    // The same endpoint twice counts once.
    let publish_at =
        publish_at.also(&tcp).and_then(|all| all.also(&tcp)).and_then(|all| all.also(&format!("json@{udp}")));
    let publisher = publish_at.expect("it opens").open().expect("it opens");
    while publisher.status().accepting < 1 || reader.discovered().len() < 3 || both.status().writers < 1 {
        thread::yield_now();
    }
    assert_eq!(publisher.wait_for_subscribers(2, SOON), 2);
    publish(&publisher, 1..=2000);
    let expected: Vec<u64> = (1..=2000).collect();
    assert_eq!(numbers(&both, 2000), expected);
    assert_eq!(numbers(&one, 2000), expected);
    assert!(publisher.flush(SOON));
    assert!(both.recv_timeout(Duration::from_millis(100)).is_none(), "nothing comes twice");
    assert_eq!((both.lost(), both.status().writers, publisher.status().accepting), (0, 1, 1));
}

/// A type that does not match [`Pump`].
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
struct NamedPump {
    #[polywire(key)]
    id: String,
}

#[test]
fn a_peer_that_refuses_at_several_endpoints_counts_once() {
    let (writer, reader) = (Node::new(), Node::new());
    let [one, other] = ["cdr@inproc/endpoints-refuse-a", "cdr@inproc/endpoints-refuse-b"];
    let subscribe = reader.subscribe::<NamedPump>("pumps", Some(one)).and_then(|both| both.also(other));
    let _pumps = subscribe.expect("it opens").open();
    let publish_at = writer.publish::<Pump>("pumps", Some(one)).and_then(|both| both.also(other));
    let publisher = publish_at.expect("it opens").open().expect("it opens");
    let began = Instant::now();
    while publisher.status().refused_total < 2 && began.elapsed() < SOON {
        thread::sleep(Duration::from_millis(1));
    }
    let status = publisher.status();
    assert_eq!((status.accepting, status.refusing, status.refused_total), (0, 1, 2));
}

#[test]
fn two_formats_at_one_endpoint_are_refused() {
    let publish = Node::new().publish::<Pump>("pumps", Some("cdr@inproc/endpoints-formats")).expect("it opens");
    let error = publish.also("json@inproc/endpoints-formats").err().expect("refused");
    assert!(matches!(&error, NodeError::SameEndpoint { .. }), "{error}");
}

#[test]
fn endpoints_come_from_the_configuration() {
    let config = |text: &str| Config::parse(text).expect("a configuration");
    let text = "[topics.'plant/**']\nwire = ['cdr@inproc/endpoints-config-a', 'json@inproc/endpoints-config-b']";
    let (writer, reader) = (Node::builder().config(config(text)).build(), Node::new());
    let [a, b] = ["a", "b"]
        .map(|at| reader.subscriber_on::<Pump>("plant/1", &format!("inproc/endpoints-config-{at}")).expect("it opens"));
    let publisher = writer.publisher::<Pump>("plant/1").expect("it opens");
    publish(&publisher, 1..=3);
    assert_eq!([numbers(&a, 3), numbers(&b, 3)], [[1, 2, 3], [1, 2, 3]]);
}

#[test]
fn a_publisher_moves_under_load_and_nothing_is_lost() {
    let tour = ["inproc", "local", "tcp", "udp-reliable", "inproc"];
    let (writer, readers) = (Node::new(), [Node::new(), Node::new(), Node::new()]);
    let places: Vec<String> =
        tour.iter().enumerate().map(|(at, engine)| endpoint(&writer, engine, &format!("tour-{at}"))).collect();
    // What strangers say over TCP and UDP is followed only where the configuration allows it.
    let config = Config::parse("[node]\nfollow = ['*']").expect("a configuration");
    let readers = readers.map(|_| Node::builder().config(config.clone()).build());
    let events = writer.events();
    let publisher = writer.publisher_on::<Pump>("pumps", &format!("cdr@{}", places[0])).expect("it opens");
    let subscribers: Vec<_> =
        readers.iter().map(|node| node.subscriber_on::<Pump>("pumps", &places[0]).expect("it opens")).collect();
    assert_eq!(publisher.wait_for_subscribers(3, SOON), 3);
    let (publisher, stop) = (Arc::new(publisher), Arc::new(AtomicBool::new(false)));
    let (busy, ended) = (publisher.clone(), stop.clone());
    let load = thread::spawn(move || {
        let mut count = 0;
        while !ended.load(Ordering::Acquire) {
            count += 1;
            busy.publish(&Pump { id: 1, count }).expect("published");
            if count % 64 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        count
    });
    let takers: Vec<_> = subscribers
        .into_iter()
        .map(|subscriber| {
            thread::spawn(move || {
                let mut expected = 1;
                while let Some(sample) = subscriber.recv_timeout(SOON) {
                    assert_eq!((sample.value.count, sample.info.sequence), (expected, expected));
                    if sample.value.id == 0 {
                        return (expected, subscriber.lost());
                    }
                    expected += 1;
                }
                panic!("ended after {expected}: {:?}", subscriber.status());
            })
        })
        .collect();
    for place in &places[1..] {
        publisher.set_wire(place).expect("it moves");
        assert_eq!(moved(&events), 0, "to {place}");
    }
    stop.store(true, Ordering::Release);
    let count = load.join().expect("published") + 1;
    publisher.publish(&Pump { id: 0, count }).expect("published");
    for taker in takers {
        assert_eq!(taker.join().expect("all in order"), (count, 0));
    }
}

#[test]
fn a_late_reader_at_the_old_endpoint_follows_with_the_history() {
    let (writer, reader) = (Node::new(), Node::new());
    let publish_at = writer.publish::<Pump>("pumps", Some("cdr@inproc/endpoints-late-a")).expect("it opens");
    let kept = Qos::default().keep_last(1).transient_local();
    let publisher = publish_at.qos(kept).and_then(polywire::Publish::open).expect("it opens");
    publish(&publisher, 1..=5);
    let events = writer.events();
    publisher.set_wire("inproc/endpoints-late-b").expect("it moves");
    assert_eq!(moved(&events), 0, "nobody was there");
    let subscribe = reader.subscribe::<Pump>("pumps", Some("inproc/endpoints-late-a")).expect("it opens");
    let late = subscribe.qos(Qos::default().transient_local()).expect("it can be had").open();
    assert_eq!(numbers(&late, 3), [3, 4, 5], "the last of each instance");
    publish(&publisher, 6..=6);
    assert_eq!(numbers(&late, 1), [6]);
}

#[test]
fn the_old_endpoint_may_end_during_a_move() {
    let (writer, relay, reader) = (Node::new(), Node::new(), Node::new());
    let old = endpoint(&relay, "tcp", "killed");
    let new = endpoint(&reader, "tcp", "killed");
    let subscribe = reader.subscribe::<Pump>("pumps", Some(&old)).expect("it opens");
    let pumps = subscribe.also(&new).expect("it opens").open();
    let publisher = writer.publisher_on::<Pump>("pumps", &format!("cdr@{old}")).expect("it opens");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publish(&publisher, 1..=10);
    assert_eq!(numbers(&pumps, 10).last(), Some(&10));
    let events = writer.events();
    publisher.set_wire(&new).expect("it moves");
    relay.close();
    assert_eq!(moved(&events), 0);
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publish(&publisher, 11..=20);
    assert_eq!(numbers(&pumps, 10), (11..=20).collect::<Vec<_>>());
}

#[test]
fn what_a_stranger_says_is_not_followed() {
    let (writer, reader) = (Node::new(), Node::new());
    let old = endpoint(&reader, "tcp", "stranger");
    let events = reader.events();
    let _pumps = reader.subscriber_on::<Pump>("pumps", &old).expect("it opens");
    let publisher = writer.publisher_on::<Pump>("pumps", &format!("cdr@{old}")).expect("it opens");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let elsewhere = endpoint(&writer, "tcp", "stranger");
    publisher.set_wire(&elsewhere).expect("it moves");
    let told = loop {
        if let NodeEvent::Redirected { endpoint, refused: Some(reason), .. } =
            events.recv_timeout(SOON).expect("an event")
        {
            break (endpoint, reason);
        }
    };
    assert!(told.0 == elsewhere && told.1.contains("node.follow"), "{told:?}");
    // Back to where the subscriber has stayed: there is nothing to follow.
    let moves = writer.events();
    publisher.set_wire(&old).expect("it moves");
    moved(&moves);
    publish(&publisher, 1..=1);
    let again = |event| matches!(event, NodeEvent::Redirected { endpoint, .. } if endpoint == old);
    assert!(!std::iter::from_fn(|| events.try_recv()).any(again));
}

#[test]
fn a_reloaded_configuration_moves_publishers_and_subscribers() {
    let config = |at: &str| Config::parse(&format!("[topics.pumps]\nwire = 'cdr@inproc/endpoints-reload-{at}'"));
    let config = |at: &str| config(at).expect("a configuration");
    let (writer, reader) = (Node::builder().config(config("a")).build(), Node::builder().config(config("a")).build());
    let pumps = reader.subscriber::<Pump>("pumps").expect("it opens");
    let publisher = writer.publisher::<Pump>("pumps").expect("it opens");
    publish(&publisher, 1..=3);
    let events = writer.events();
    reader.reload(config("b")).expect("it is reloaded");
    writer.reload(config("b")).expect("it is reloaded");
    assert_eq!(moved(&events), 0);
    publish(&publisher, 4..=6);
    assert_eq!(numbers(&pumps, 6), [1, 2, 3, 4, 5, 6]);
    let sample_at_new = reader.subscriber_on::<Pump>("pumps", "inproc/endpoints-reload-b").expect("it opens");
    publish(&publisher, 7..=7);
    assert_eq!(numbers(&sample_at_new, 1), [7]);
}
