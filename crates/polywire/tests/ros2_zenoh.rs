//! The engine `zenoh` with `ros=true`: nodes of ROS 2 that are built on the library `hiroz`.
//!
//! They are the program in `ros2_zenoh/`, which a test finds in `target/foreign/ros2_zenoh`
//! (`.ci/run` builds it there). `zenoh_ros.rs` has the bytes.

#![cfg(feature = "zenoh")]

use std::time::Duration;

use polywire::{Bridge, Message, Node, Publisher, Record, Subscriber, coding::Discovered, qos::Qos};
use polywire_core::envelope::Id128;
use polywire_testing::{
    Folder,
    program::Program,
    ros::{Add, Sum, Text, text},
    tools,
    waiting::{SOON, until},
};

/// An endpoint of a node, and the locator at which others meet it.
fn alone(node: &Node) -> (String, String) {
    let endpoint = node.open("zenoh/peer?scouting=off,ros=true,domain=7,listen=tcp/127.0.0.1:0").expect("it opens");
    let locator = endpoint.split_once("listen=").expect("where it listens").1.to_owned();
    (endpoint, locator)
}

/// A node of ROS 2 that does this. `None` if it is not built.
fn peer(mode: &str, locator: &str) -> Option<Program> {
    Some(Program::start(tools::peer("ros2_zenoh", "polywire-ros2-zenoh-peer")?.args([mode, locator])))
}

/// The next line that begins like this, without its beginning.
fn next(program: &Program, beginning: &str) -> String {
    loop {
        if let Some(rest) = program.line().strip_prefix(beginning) {
            return rest.to_owned();
        }
    }
}

fn transient_local() -> Qos {
    Qos::default().keep_last(3).transient_local()
}

#[test]
fn topics_of_a_ros_node_are_read() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let chatter: Subscriber<Text> = node.subscriber_on("chatter", &endpoint).expect("a subscriber");
    let Some(_talker) = peer("talk", &locator) else { return };
    let first = chatter.recv_timeout(SOON).expect("a text");
    let number: u64 = first.value.data.strip_prefix("hello ").expect("a greeting").parse().expect("a number");
    let second = chatter.recv_timeout(SOON).expect("a text");
    assert_eq!(second.value, text(&format!("hello {}", number + 1)));
    assert_eq!(second.info.sequence, first.info.sequence + 1, "numbers of the publisher");
    assert_eq!(second.info.source.announcement.writer, first.info.source.announcement.writer);
    assert_eq!((chatter.lost(), chatter.undecodable()), (0, 0));
    let source = &first.info.source;
    assert_eq!(
        (source.announcement.type_name.as_str(), &*source.announcement.topic),
        ("std_msgs::msg::String", "chatter")
    );
}

#[test]
fn a_ros_node_reads_what_is_published() {
    let node = Node::builder().name("plant-7").build();
    let (endpoint, locator) = alone(&node);
    let wire = format!("cdr@{endpoint}");
    let there: Publisher<Text> = node.publisher_on("there", &wire).expect("a publisher");
    let kept = node.publish::<Text>("kept", Some(&wire)).expect("a wire").qos(transient_local()).expect("valid");
    let kept = kept.open().expect("a publisher");
    for number in 1..=4 {
        kept.publish(&text(&format!("kept {number}"))).expect("published");
    }
    let Some(listener) = peer("listen", &locator) else { return };
    let mut expected = vec![
        "publisher /there plant_7 std_msgs::msg::dds_::String_ \
         RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18 Volatile"
            .to_owned(),
        "publisher /kept plant_7 std_msgs::msg::dds_::String_ \
         RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18 TransientLocal"
            .to_owned(),
        // A late subscriber gets as many as the publisher keeps.
        "heard /kept kept 2".to_owned(),
        "heard /kept kept 3".to_owned(),
        "heard /kept kept 4".to_owned(),
    ];
    while !expected.is_empty() {
        let line = listener.line();
        assert!(!line.ends_with("kept 1"), "three are kept");
        expected.retain(|expected| *expected != line);
    }
    assert_eq!(there.wait_for_subscribers(1, SOON), 1);
    there.publish(&text("from Polywire")).expect("published");
    kept.publish(&text("kept 5")).expect("published");
    let mut heard = [next(&listener, "heard "), next(&listener, "heard ")];
    heard.sort();
    assert_eq!(heard, ["/kept kept 5", "/there from Polywire"]);
    let programs = node.foreign_readers();
    let [program] = programs.as_slice() else { panic!("{programs:?}") };
    assert!(program.name.ends_with(" /peers/peer"), "{}", program.name);
    let reads = |topic: &str, writer: Id128| {
        let mut ends = program.subscribers.iter().filter(|end| end.topic == topic);
        ends.next().is_some_and(|end| end.type_name == "std_msgs::msg::String" && end.reads == [writer])
    };
    assert!(reads("there", there.writer()) && reads("kept", kept.writer()), "{:?}", program.subscribers);
    drop(listener);
    until("the program is gone", || there.status().accepting == 0 && node.foreign_readers().is_empty());
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "std_msgs::msg::Int32")]
struct Number {
    data: i32,
}

#[test]
fn a_ros_node_with_another_type_is_told() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let there: Publisher<Number> = node.publisher_on("there", &format!("cdr@{endpoint}")).expect("a publisher");
    let Some(_listener) = peer("listen", &locator) else { return };
    until("it is refused", || !there.status().refusals.is_empty());
    let status = there.status();
    let reason = &status.refusals[0].reason;
    assert!(
        reason.contains("the types differ: in ROS 2, the writer's is std_msgs::msg::dds_::Int32_ (RIHS01_")
            && reason.contains("and the reader's is std_msgs::msg::dds_::String_ (RIHS01_df668c74"),
        "{reason}"
    );
    assert_eq!((status.accepting, there.wait_for_subscribers(1, Duration::ZERO)), (0, 0));
    let programs = node.foreign_readers();
    let there = programs[0].subscribers.iter().find(|end| end.topic == "there").expect("a subscriber");
    assert_eq!((there.reads.len(), &there.refuses[0].reason), (0, reason));
}

#[test]
fn late_subscribers_get_what_a_ros_node_keeps() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let Some(latched) = peer("latch", &locator) else { return };
    assert_eq!(latched.line(), "published");
    for _ in 0..2 {
        let latched = node.subscribe::<Text>("latched", Some(&endpoint)).expect("a wire");
        let texts = latched.qos(transient_local()).expect("valid").open();
        for number in 1..=3 {
            let sample = texts.recv_timeout(SOON).expect("a text");
            assert_eq!(sample.value, text(&format!("kept {number}")));
        }
        assert_eq!((texts.lost(), texts.undecodable()), (0, 0));
    }
}

/// A bridge of a topic to a stream in a folder, in the format in front of the stream's endpoint,
/// which it gives, too.
fn bridged(node: &Node, endpoint: &str, topic: &str, format: &str, folder: &Folder) -> (Bridge, String) {
    let stream = format!("unix/{}", folder.file("s"));
    let bridge = node.bridge(endpoint, &format!("{format}{stream}")).expect("endpoints");
    (bridge.topics([topic]).expect("a pattern").open(), stream)
}

#[test]
fn what_a_ros_node_keeps_passes_a_bridge() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let folder = Folder::new("ros2-zenoh-bridge");
    let (_bridge, stream) = bridged(&node, &endpoint, "latched", "", &folder);
    let Some(latched) = peer("latch", &locator) else { return };
    assert_eq!(latched.line(), "published");
    for _ in 0..2 {
        let there = Node::new();
        let texts = there.subscribe::<Text>("latched", Some(&stream)).expect("a wire").qos(transient_local());
        let texts = texts.expect("valid").open();
        for number in 1..=3 {
            let sample = texts.recv_timeout(SOON).expect("a text");
            assert_eq!(sample.value, text(&format!("kept {number}")));
        }
        assert_eq!((texts.lost(), texts.undecodable()), (0, 0));
    }
}

#[test]
fn a_ros_node_calls_a_service() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let service = node.service::<Add, Sum>("add", Some(&format!("cdr@{endpoint}"))).expect("a service");
    let _server = service
        .on_request(1, |request: &Add, _| Ok::<_, String>(Sum { sum: request.a + request.b }))
        .expect("a server");
    let Some(client) = peer("call", &locator) else { return };
    let first: i64 = next(&client, "sum ").parse().expect("a number");
    assert!(first > 40);
    assert_eq!(next(&client, "sum "), (first + 1).to_string());
}

#[test]
fn the_service_of_a_ros_node_is_called() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let Some(server) = peer("serve", &locator) else { return };
    assert_eq!(server.line(), "ready");
    let client = node.client::<Add, Sum>("add", Some(&format!("cdr@{endpoint}"))).expect("a service");
    let client = client.open().expect("a client");
    for a in 1..=3 {
        assert_eq!(client.call(&Add { a, b: 40 }, SOON).expect("a reply"), Sum { sum: a + 40 });
        assert_eq!(next(&server, "served "), format!("{a} + 40"));
    }
}

#[test]
fn the_type_of_a_ros_node_is_asked_for() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let discover = || {
        let coding = Discovered::new().expect("records");
        node.subscribe_of("chatter", Some(&endpoint), coding).expect("a wire").open()
    };
    let early = discover();
    let Some(_talker) = peer("talk", &locator) else { return };
    let heard = |texts: &Subscriber<Record>| -> u64 {
        let sample = texts.recv_timeout(SOON).expect("a text");
        assert_eq!(sample.value.shape().schema().name(), "std_msgs::msg::String");
        let data = sample.value.str("data").expect("a text");
        data.strip_prefix("hello ").expect("a greeting").parse().expect("a number")
    };
    let first = heard(&early);
    assert_eq!(heard(&early), first + 1);
    // Subscribers that come later, beside one that has the type.
    let typed: Subscriber<Text> = node.subscriber_on("chatter", &endpoint).expect("a subscriber");
    let late = discover();
    assert!(heard(&late) > first && typed.recv_timeout(SOON).is_some());
    for (lost, told) in [(early.lost(), early.status()), (late.lost(), late.status())] {
        assert_eq!((lost, told.mismatches.len()), (0, 0), "{:?}", told.mismatches);
    }
}

#[test]
fn a_bridge_converts_the_topic_of_a_ros_node() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let folder = Folder::new("ros2-zenoh-convert");
    let (_bridge, stream) = bridged(&node, &endpoint, "chatter", "json@", &folder);
    let Some(_talker) = peer("talk", &locator) else { return };
    let there = Node::new();
    let texts: Subscriber<Text> = there.subscriber_on("chatter", &stream).expect("a subscriber");
    let sample = texts.recv_timeout(SOON).expect("a text");
    assert_eq!(sample.info.source.announcement.codec, "json");
    assert!(sample.value.data.starts_with("hello "), "{:?}", sample.value);
}

#[test]
fn a_ros_node_asks_for_the_type_of_what_is_published() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let _there: Publisher<Text> = node.publisher_on("there", &format!("cdr@{endpoint}")).expect("a publisher");
    let Some(asking) = peer("describe", &locator) else { return };
    let hash = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";
    assert_eq!(next(&asking, "type "), format!("std_msgs/msg/String {hash} data"));
}
