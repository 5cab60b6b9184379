//! Subscriptions to patterns of topics: each topic that fits is a stream of its own.

use std::{collections::BTreeSet, time::Duration};

use polywire::{
    Config, Message, Node, NodeError, PublisherOf, Subscriber,
    coding::{Bytes, Discovered},
    qos::Qos,
};

/// Longer than anything takes that a test waits for.
const SOON: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
struct Pump {
    #[polywire(key)]
    id: u32,
    count: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Valve")]
struct Valve {
    open: bool,
    label: String,
}

fn next<V>(subscriber: &Subscriber<V>) -> (String, V) {
    let sample = subscriber.recv_timeout(SOON).expect("a message");
    (sample.info.topic().to_owned(), sample.value)
}

#[test]
fn a_typed_subscriber_gets_the_topics_that_fit() {
    let node = Node::new();
    let at = "cdr@inproc/wildcards-typed";
    let before = node.publisher_on::<Pump>("plant/1/pump", at).expect("it opens");
    let pumps = node.subscriber_on::<Pump>("plant/*/pump", at).expect("it opens");
    let later = node.publisher_on::<Pump>("plant/2/pump", "json@inproc/wildcards-typed").expect("it opens");
    let others = ["plant/pump", "plant/1/2/pump", "plant/1/valve"];
    for topic in others {
        let publisher = node.publisher_on::<Pump>(topic, at).expect("it opens");
        assert_eq!(publisher.publish(&Pump::default()).expect("published").peers, 0, "{topic}");
    }
    before.publish(&Pump { id: 1, count: 1 }).expect("published");
    later.publish(&Pump { id: 2, count: 2 }).expect("published");
    assert_eq!(next(&pumps), ("plant/1/pump".into(), Pump { id: 1, count: 1 }));
    assert_eq!(next(&pumps), ("plant/2/pump".into(), Pump { id: 2, count: 2 }));
    assert_eq!(pumps.status().writers, 2);
    // Another type is refused, and hinders nobody.
    let valve = node.publisher_on::<Valve>("plant/3/pump", at).expect("it opens");
    assert_eq!(valve.publish(&Valve::default()).expect("published").refused, 1);
    assert_eq!((pumps.status().writers, pumps.status().unreadable, pumps.status().mismatches_total), (2, 1, 1));
}

#[test]
fn records_of_all_types_come_over_tcp() {
    let (writer, reader) = (Node::new(), Node::new());
    let endpoint = reader.open("tcp-listen/127.0.0.1:0").expect("it opens");
    let all = reader.subscribe_of("plant/**", Some(&endpoint), Discovered::new().expect("a coding"));
    let all = all.expect("it opens").open();
    let at = endpoint.replace("tcp/", "cdr@tcp-connect/");
    let pump = writer.publisher_on::<Pump>("plant/1/pump", &at).expect("it opens");
    let valve = writer.publisher_on::<Valve>("plant", &at).expect("it opens");
    assert_eq!(pump.wait_for_subscribers(1, SOON) + valve.wait_for_subscribers(1, SOON), 2);
    pump.publish(&Pump { id: 7, count: 1 }).expect("published");
    let sample = all.recv_timeout(SOON).expect("a message");
    assert_eq!((sample.info.topic(), sample.value.shape().schema().name()), ("plant/1/pump", "Plant::Pump"));
    valve.publish(&Valve { open: true, label: "main".into() }).expect("published");
    let sample = all.recv_timeout(SOON).expect("a message");
    assert_eq!((sample.info.topic(), sample.value.shape().schema().name()), ("plant", "Plant::Valve"));
}

#[test]
fn quality_of_service_applies_to_each_topic_alone() {
    let node = Node::new();
    let at = "cdr@inproc/wildcards-qos";
    let subscribe = node.subscribe::<Pump>("plant/**", Some(at)).expect("it opens");
    let latest = subscribe.qos(Qos::default().keep_last(1)).expect("it can be had").open();
    for topic in ["plant/a", "plant/b"] {
        let publisher = node.publisher_on::<Pump>(topic, at).expect("it opens");
        for count in 1..=3 {
            publisher.publish(&Pump { id: 7, count }).expect("published");
        }
    }
    let last = Pump { id: 7, count: 3 };
    assert_eq!([next(&latest), next(&latest)], [("plant/a".into(), last.clone()), ("plant/b".into(), last)]);
    assert_eq!(latest.status().replaced, 4);
}

#[test]
fn patterns_have_settings_and_publishers_have_none() {
    let text = "[topics.'**']\nwire = 'cdr@inproc/wildcards-config'\n[topics.'plant/*'.qos]\nhistory = 'keep-last:1'";
    let node = Node::builder().config(Config::parse(text).expect("a configuration")).build();
    let pumps = node.subscriber::<Pump>("plant/*").expect("it opens");
    let publisher = node.publisher::<Pump>("plant/1").expect("it opens");
    for count in 1..=3 {
        publisher.publish(&Pump { id: 7, count }).expect("published");
    }
    assert_eq!(next(&pumps), ("plant/1".into(), Pump { id: 7, count: 3 }));
    for topic in ["plant/*", "**", "", "/plant", "plant//1", "plant#"] {
        let error = node.publisher::<Pump>(topic).err().expect(topic);
        assert!(matches!(error, NodeError::Topic(_)), "{topic}: {error}");
    }
    assert!(matches!(node.subscriber::<Pump>("plant/p*"), Err(NodeError::Topic(_))));
}

/// A publisher for each of ten thousand topics.
fn publishers(node: &Node, at: &str) -> Vec<PublisherOf<Bytes>> {
    let publisher = |topic: String| node.publisher_of(&topic, Some(at), Bytes::default()).expect("it opens");
    topics().map(publisher).collect()
}

fn topics() -> impl ExactSizeIterator<Item = String> {
    (0..10_000).map(|number| format!("plant/{number}/pump"))
}

#[test]
fn a_pattern_of_ten_thousand_topics() {
    let (writer, reader) = (Node::new(), Node::new());
    let at = "cdr@inproc/wildcards-many";
    let subscribe = reader.subscribe_of("plant/*/pump", Some(at), Bytes::default()).expect("it opens");
    let all = subscribe.queue(topics().len()).open();
    let publishers = publishers(&writer, at);
    for publisher in &publishers {
        assert_eq!(publisher.publish(&vec![7]).expect("published").subscribers, 1);
    }
    topics().for_each(|topic| assert_eq!(next(&all), (topic, vec![7])));
    assert_eq!(all.status().writers, topics().len());
    drop(publishers);
    assert_eq!(all.status().writers, 0);
}

#[test]
fn ten_thousand_topics_have_subscribers_of_their_own() {
    let (writer, reader) = (Node::new(), Node::new());
    let at = "cdr@inproc/wildcards-each";
    let publishers = publishers(&writer, at);
    let subscriber = |topic: String| reader.subscribe_of(&topic, Some(at), Bytes::default()).expect("it opens").open();
    let subscribers: Vec<_> = topics().map(subscriber).collect();
    for publisher in &publishers {
        assert_eq!(publisher.publish(&vec![7]).expect("published").subscribers, 1);
    }
    topics().zip(&subscribers).for_each(|(topic, subscriber)| assert_eq!(next(subscriber), (topic, vec![7])));
}

/// What is published before the peer has answered is held for it, on each topic alone.
#[test]
fn ten_thousand_topics_come_over_tcp_through_a_relay() {
    let (relay, writer, reader) = (Node::new(), Node::new(), Node::new());
    let endpoint = relay.open("tcp/127.0.0.1:0").expect("it opens");
    let at = endpoint.replace("tcp/", "cdr@tcp-connect/");
    let subscribe = reader.subscribe_of("plant/*/pump", Some(&at), Bytes::default()).expect("it opens");
    let all = subscribe.queue(topics().len()).open();
    writer.open(&at.replace("cdr@", "")).expect("it opens");
    while relay.links() < 2 || writer.links() + reader.links() < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let publishers = publishers(&writer, &at);
    for publisher in &publishers {
        assert_eq!(publisher.publish(&vec![7]).expect("published").peers, 1);
    }
    let came: BTreeSet<String> = topics().map(|_| next(&all).0).collect();
    assert_eq!(came.len(), topics().len(), "each topic comes once");
}
