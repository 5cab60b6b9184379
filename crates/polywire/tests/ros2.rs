//! The engine `dds` with `ros=true`: nodes of ROS 2 that are built on other libraries.
//!
//! They are the program in `ros2/`, on `ros2-client` and RustDDS, which a test finds in
//! `target/foreign/ros2` (`.ci/run` builds it there).

#![cfg(feature = "dds")]

#[allow(dead_code, reason = "no peer in Python is needed")]
#[path = "dds/program.rs"]
mod program;

use std::{
    process::Command,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use polywire::{Message as _, Node, Record, Subscriber, coding::Discovered};
use polywire_core::{
    ros::{
        TypeHash,
        entities::{self, NodeEntities, ParticipantEntities},
        type_query,
    },
    schema::Schema,
};
use polywire_dds::{
    Bytes, Durability, Guid, Kind, LOOPBACK, Participant, Qos as DdsQos, Reader, Receive, Sample, Writer,
};
use polywire_derive::Message;
use polywire_testing::tools;

use program::{Program, SOON, domain};

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "std_msgs::msg::String", final)]
struct Text {
    data: String,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "builtin_interfaces::msg::Time", final)]
struct Time {
    sec: i32,
    nanosec: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "demo_msgs::msg::Reading", final)]
struct Reading {
    stamp: Time,
    sensor: String,
    values: Vec<f64>,
    flags: [u8; 3],
}

fn wire(format: &str, domain: u32) -> String {
    format!("{format}@dds/{domain}?interface=127.0.0.1&ros=true")
}

/// A node of ROS 2.
fn peer(mode: &str, domain: u32, name: &str) -> Option<Program> {
    Some(program::start(program()?.args([mode, &domain.to_string(), name])))
}

/// The program of a node of ROS 2. `None` if it is not built.
fn program() -> Option<Command> {
    tools::peer("ros2", "polywire-ros2-peer")
}

/// A node of ROS 2 with services as those on Cyclone DDS have them.
fn service_peer(mode: &str, domain: u32) -> Option<Program> {
    let mut command = program()?;
    command.args([mode, &domain.to_string(), mode]).env("ROS2_PEER_MAPPING", "cyclone");
    Some(program::start(&mut command))
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "example_interfaces::srv::AddTwoInts_Request", final)]
struct Add {
    a: i64,
    b: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "example_interfaces::srv::AddTwoInts_Response", final)]
struct Sum {
    sum: i64,
}

fn add(request: &Add) -> Result<Sum, String> {
    request.a.checked_add(request.b).map(|sum| Sum { sum }).ok_or_else(|| "too large".into())
}

fn text(data: &str) -> Text {
    Text { data: data.into() }
}

#[test]
fn topics_of_a_ros_node_are_read() {
    let domain = domain();
    let node = Node::new();
    let chatter = node.subscriber_on::<Text>("chatter", &wire("auto", domain)).expect("a subscriber");
    let readings = node.subscriber_on::<Reading>("readings", &wire("auto", domain)).expect("a subscriber");
    let Some(_talker) = peer("talk", domain, "talker") else { return };
    let first = chatter.recv_timeout(SOON).expect("a text");
    let number: i32 = first.value.data.strip_prefix("hello ").expect("a greeting").parse().expect("a number");
    assert_eq!(chatter.recv_timeout(SOON).expect("a text").value, text(&format!("hello {}", number + 1)));
    let Reading { stamp, sensor, values, flags } = readings.recv_timeout(SOON).expect("a reading").value;
    assert_eq!((stamp.nanosec, sensor.as_str(), values.as_slice()), (5, "front", &[f64::from(stamp.sec), 0.5][..]));
    assert_eq!(flags, [1, 2, 3]);
    assert_eq!((chatter.lost(), chatter.undecodable(), readings.undecodable()), (0, 0, 0));
    let source = &first.info.source;
    assert_eq!(
        (source.announcement.type_name.as_str(), &*source.announcement.topic),
        ("std_msgs::msg::String", "chatter")
    );
    assert!(source.link.address.contains(" /peers/talker "), "{}", source.link.address);
}

/// A writer of `/chatter` in a participant that is not a node, with this user data.
fn chatter_writer(domain: u32, user_data: &str) -> Writer {
    let participant = Participant::new(domain, Some(LOOPBACK), &DdsQos::default()).expect("a participant");
    let topic = participant.topic("rt/chatter", "std_msgs::msg::dds_::String_", false).expect("a topic");
    let qos = DdsQos {
        reliable: Some(Duration::from_secs(1)),
        // So that a reader gets what is written while it joins.
        durability: Durability::TransientLocal,
        user_data: user_data.into(),
        ..DdsQos::default()
    };
    topic.writer(&qos, |_| {}).expect("a writer")
}

/// Writes a text of one letter.
fn write(writer: &Writer, letter: u8) {
    write_bytes(writer, Bytes::new([0, 1, 0, 0], &[2, 0, 0, 0, letter, 0]).expect("bytes"));
}

fn write_bytes(writer: &Writer, bytes: Bytes) {
    let sample = Sample { kind: Kind::Data, is_key: false, bytes, key_hash: None, timestamp_ns: 0, sequence: None };
    writer.write(&sample).expect("written");
}

#[test]
fn a_writer_whose_type_has_another_hash_is_not_read() {
    let domain = domain();
    let own = TypeHash::of(Text::shape().schema()).expect("a type of ROS 2");
    let other = TypeHash::of(Time::shape().schema()).expect("a type of ROS 2");
    let (node, plain) = (Node::new(), Node::new());
    let chatter = node.subscriber_on::<Text>("chatter", &wire("auto", domain)).expect("a subscriber");
    let different = chatter_writer(domain, &format!("typehash={other};"));
    let until = Instant::now() + SOON;
    while chatter.status().mismatches.is_empty() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    let reason = &chatter.status().mismatches[0].reason;
    assert_eq!(
        *reason,
        format!("the types differ: in ROS 2, the writer's is {other}, and std_msgs::msg::String here {own}")
    );
    // No hash, and what is none, say nothing of the type.
    for user_data in [format!("typehash={own};"), String::new(), "typehash=RIHS01_12;".into(), "\u{1}".into()] {
        let same = chatter_writer(domain, &user_data);
        while same.readers().is_empty() {
            assert!(Instant::now() < until, "{user_data}");
            std::thread::sleep(Duration::from_millis(5));
        }
        // It comes to the same reader of DDS.
        write(&different, b'b');
        write(&same, b'a');
        assert_eq!(chatter.recv_timeout(SOON).expect("a text").value, text("a"), "{user_data}");
    }
    assert_eq!((chatter.status().mismatches_total, chatter.try_recv().is_some()), (1, false));
    let names = format!("{}&types=off", wire("auto", domain));
    let by_name = plain.subscriber_on::<Text>("chatter", &names).expect("a subscriber");
    assert_eq!(by_name.recv_timeout(SOON).expect("a text").value, text("b"));
}

#[test]
fn a_ros_node_reads_what_is_published() {
    let domain = domain();
    let node = Node::builder().name("plant-7").build();
    let chatter = node.publisher_on::<Text>("chatter", &wire("cdr", domain)).expect("a publisher");
    let readings = node.publisher_on::<Reading>("readings", &wire("cdr", domain)).expect("a publisher");
    let Some(listener) = peer("listen", domain, "listener") else { return };
    assert_eq!((chatter.wait_for_subscribers(1, SOON), readings.wait_for_subscribers(1, SOON)), (1, 1));
    chatter.publish(&text("from Polywire")).expect("published");
    let stamp = Time { sec: 7, nanosec: 8 };
    let reading = Reading { stamp, sensor: "back".into(), values: vec![0.25; 3], flags: [9, 8, 7] };
    readings.publish(&reading).expect("published");
    let hash = TypeHash::of(Text::shape().schema()).expect("a type of ROS 2");
    assert_eq!(hash.to_string(), "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18");
    let mut expected = vec![
        "heard \"from Polywire\"".to_string(),
        "heard Reading { stamp: Time { sec: 7, nanosec: 8 }, sensor: \"back\", values: [0.25, 0.25, 0.25], flags: [9, 8, 7] }"
            .to_string(),
        "node /plant_7".to_string(),
        format!("writer rt/chatter std_msgs::msg::dds_::String_ typehash={hash};polywire=channel="),
    ];
    while !expected.is_empty() {
        let line = listener.line();
        expected.retain(|expected| !line.starts_with(expected));
    }
    let until = Instant::now() + SOON;
    let listener = loop {
        let mut readers = node.foreign_readers();
        match readers.pop().filter(|listener| listener.name.contains(" /peers/listener ")) {
            Some(listener) if readers.is_empty() => break listener,
            other => assert!(Instant::now() < until, "{other:?} {readers:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let reads = |id| listener.subscribers.iter().any(|reader| reader.reads == [id]);
    assert!(reads(chatter.writer()) && reads(readings.writer()), "{:?}", listener.subscribers);
}

#[test]
fn nodes_meet_whether_their_names_are_those_of_ros_or_not() {
    let domain = domain();
    let (ros, plain) = (Node::new(), Node::new());
    let chatter = ros.publisher_on::<Text>("chatter", &wire("cdr", domain)).expect("a publisher");
    let json = ros.publisher_on::<Text>("notes", &wire("json", domain)).expect("a publisher");
    let plainly = |format: &str| format!("{format}@dds/{domain}?interface=127.0.0.1");
    let heard = plain.subscriber_on::<Text>("chatter", &plainly("auto")).expect("a subscriber");
    let notes = plain.subscriber_on::<Text>("notes", &plainly("auto")).expect("a subscriber");
    assert_eq!((chatter.wait_for_subscribers(1, SOON), json.wait_for_subscribers(1, SOON)), (1, 1));
    chatter.publish(&text("a")).expect("published");
    json.publish(&text("b")).expect("published");
    assert_eq!(heard.recv_timeout(SOON).expect("a text").value, text("a"));
    assert_eq!(notes.recv_timeout(SOON).expect("a text").value, text("b"));
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Pump", final)]
struct Pump {
    id: u32,
}

#[test]
fn what_ros_cannot_have_is_refused() {
    let domain = domain();
    let node = Node::new();
    let error = |error: polywire::NodeError| format!("{error:#}");
    let refused = node.publisher_on::<Pump>("pumps", &wire("cdr", domain)).map(drop).map_err(error);
    let reason = refused.expect_err("a type that ROS 2 cannot have");
    assert!(reason.contains("'plant::Pump' cannot be the name of a ROS 2 type"), "{reason}");
    let refused = node.publisher_on::<Text>("50% full", &wire("cdr", domain)).map(drop).map_err(error);
    let reason = refused.expect_err("a name that ROS 2 cannot have");
    assert!(reason.contains("'50% full' cannot be the name of a ROS 2 topic"), "{reason}");
    assert!(node.publisher_on::<Pump>("pumps", &wire("json", domain)).is_ok(), "nodes alone read it");
}

#[test]
fn a_ros_node_calls_a_service() {
    let domain = domain();
    let node = Node::new();
    let service = node.service::<Add, Sum>("add", Some(&wire("cdr", domain))).expect("a service");
    let _server = service.on_request(1, |request, _| add(request)).expect("a server");
    let Some(client) = service_peer("call", domain) else { return };
    let mut lines = std::iter::repeat_with(|| client.line());
    // A reply before the two have found each other is lost.
    let first = lines.find_map(|line| line.strip_prefix("sum ")?.parse::<i64>().ok()).expect("a sum");
    assert_eq!(lines.next(), Some(format!("sum {}", first + 1)));
}

#[test]
fn a_ros_node_asks_for_the_type_of_what_is_published() {
    let domain = domain();
    let node = Node::builder().name("hall-7").build();
    let _chatter = node.publisher_on::<Text>("chatter", &wire("cdr", domain)).expect("a publisher");
    let Some(mut command) = program() else { return };
    command.args(["describe", &domain.to_string(), "hall_7"]).env("ROS2_PEER_MAPPING", "cyclone");
    let asking = program::start(&mut command);
    let told = std::iter::repeat_with(|| asking.line()).find(|line| line.starts_with("type "));
    assert_eq!(told.as_deref(), Some("type std_msgs/msg/String data:17"));
}

/// The type of a later version of `std_msgs/msg/String`.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "std_msgs::msg::String", final)]
struct Longer {
    data: String,
    more: i32,
}

/// A participant with the node `/robot/talker` of ROS 2, which tells no types in discovery, and
/// describes them to who asks.
struct Talker {
    participant: Participant,
    questions: mpsc::Receiver<Sample>,
    answers: Writer,
    _ends: (Writer, Reader),
}

struct Mail(mpsc::Sender<Sample>);

impl Receive for Mail {
    fn receive(&self, _: Guid, sample: Sample) -> bool {
        self.0.send(sample).is_ok()
    }
}

impl Talker {
    fn new(domain: u32) -> Talker {
        let user_data = "enclave=/;".into();
        let participant = Participant::new(domain, Some(LOOPBACK), &DdsQos { user_data, ..DdsQos::default() });
        let participant = participant.expect("a participant");
        let qos = DdsQos { reliable: Some(Duration::from_secs(1)), ..DdsQos::default() };
        let topic = |name: &str, of: &str| participant.topic(name, of, false).expect("a topic");
        let latched = DdsQos { durability: Durability::TransientLocal, keep_last: Some(1), ..qos.clone() };
        let presence = topic(entities::TOPIC, entities::TYPE_NAME).writer(&latched, |_| {}).expect("a writer");
        let node = NodeEntities { namespace: "/robot".into(), name: "talker".into(), ..NodeEntities::default() };
        let told = ParticipantEntities { participant: participant.guid().0, nodes: vec![node] };
        write_bytes(&presence, Bytes::of_sample(&told.to_cdr()).expect("bytes"));
        let service = |part: &str| format!("{}{part}_", type_query::TYPE_NAME);
        let (sender, questions) = mpsc::channel();
        let asked = topic("rq/robot/talker/get_type_descriptionRequest", &service("Request"));
        let reader = asked.reader(&qos, Arc::new(Mail(sender)), |_| {}).expect("a reader");
        let answers = topic("rr/robot/talker/get_type_descriptionReply", &service("Response"));
        let answers = answers.writer(&qos, |_| {}).expect("a writer");
        Talker { participant, questions, answers, _ends: (presence, reader) }
    }

    /// A writer of `/chatter` with a type, and with a reader.
    fn publisher(&self, of: &Schema) -> Writer {
        let topic = self.participant.topic("rt/chatter", "std_msgs::msg::dds_::String_", false).expect("a topic");
        let user_data = TypeHash::of(of).expect("a type of ROS 2").to_user_data().into();
        let qos = DdsQos { reliable: Some(Duration::from_secs(1)), user_data, ..DdsQos::default() };
        topic.writer(&qos, |_| {}).expect("a writer")
    }

    /// Answers the question for a type.
    fn describe(&self, of: &Schema, told: Result<(), &'static str>) {
        let mut is_it = false;
        while !is_it {
            // A question that is not answered at once comes again.
            let asked = self.questions.recv_timeout(SOON).expect("a question");
            let (header, rest) = asked.bytes.sample().split_at(4);
            let (tag, value) = rest.split_at(16);
            let answer = type_query::answer(&[header, value].concat(), |query| {
                assert_eq!(query.type_name, "std_msgs/msg/String");
                is_it = Ok(query.type_hash) == TypeHash::of(of);
                told.map(|()| of.clone())
            });
            let (header, value) = answer.split_at(4);
            write_bytes(&self.answers, Bytes::of_sample(&[header, tag, value].concat()).expect("bytes"));
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn discovered(node: &Node, domain: u32) -> Subscriber<Record> {
    let coding = Discovered::new().expect("records");
    node.subscribe_of("chatter", Some(&wire("auto", domain)), coding).expect("a wire").open()
}

#[test]
fn a_ros_node_is_asked_for_the_type_that_a_subscriber_lacks() {
    let domain = domain();
    let node = Node::new();
    let talker = Talker::new(domain);
    let first = talker.publisher(Text::shape().schema());
    // Nobody asks for a subscriber that has the type.
    let texts = node.subscriber_on::<Text>("chatter", &wire("auto", domain)).expect("a subscriber");
    until("it is read", || !first.readers().is_empty() && texts.status().writers == 1);
    drop(texts);
    let records = discovered(&node, domain);
    talker.describe(Text::shape().schema(), Ok(()));
    until("it is read", || !first.readers().is_empty() && records.status().writers == 1);
    write(&first, b'a');
    assert_eq!(records.recv_timeout(SOON).expect("a record").value.str("data"), Ok("a"));
    // The type of another publisher is known, and that of a third one is not: what it writes waits,
    // also if it ends.
    let second = talker.publisher(Text::shape().schema());
    until("it is read", || !second.readers().is_empty() && records.status().writers == 2);
    let third = talker.publisher(Longer::shape().schema());
    until("the topic's reader has it", || !third.readers().is_empty());
    write_bytes(&third, Bytes::new([0, 1, 0, 0], &[2, 0, 0, 0, b'c', 0, 0, 0, 7, 0, 0, 0]).expect("bytes"));
    assert!(third.wait_for_acknowledgments(SOON));
    drop(third);
    // Discovery tells the end before this writer.
    let fourth = talker.publisher(Text::shape().schema());
    until("it is read", || !fourth.readers().is_empty() && records.status().writers == 3);
    talker.describe(Longer::shape().schema(), Ok(()));
    let last = records.recv_timeout(SOON).expect("a record").value;
    assert_eq!((last.str("data"), last.i64("more")), (Ok("c"), Ok(7)));
    until("it has ended", || records.status().writers == 3);
    assert_eq!((records.lost(), records.undecodable(), records.status().mismatches.len()), (0, 0, 0));
}

#[test]
fn a_publisher_whose_type_its_ros_node_does_not_tell_is_not_read() {
    let domain = domain();
    let node = Node::new();
    let talker = Talker::new(domain);
    let _publisher = talker.publisher(Text::shape().schema());
    let records = discovered(&node, domain);
    talker.describe(Text::shape().schema(), Err("not here"));
    until("it is refused", || records.status().mismatches.len() == 1);
    let hash = TypeHash::of(Text::shape().schema()).expect("a type of ROS 2").to_string();
    let reason = records.status().mismatches[0].reason.clone();
    assert!(reason.contains(&hash), "{reason}");
    let texts = node.subscriber_on::<Text>("chatter", &wire("auto", domain)).expect("a subscriber");
    until("it is read", || texts.status().writers == 1);
}

#[test]
fn the_service_of_a_ros_node_is_called() {
    let domain = domain();
    let node = Node::new();
    let Some(server) = service_peer("serve", domain) else { return };
    assert_eq!(server.line(), "ready");
    let client = node.client::<Add, Sum>("add", Some(&wire("cdr", domain))).expect("a service");
    let client = client.open().expect("a client");
    for a in 1..=3 {
        assert_eq!(client.call(&Add { a, b: 40 }, SOON).expect("a reply"), Sum { sum: a + 40 });
        while server.line() != format!("served {a} + 40: sent") {}
    }
}

#[test]
fn nodes_call_each_other_as_nodes_of_ros() {
    let domain = domain();
    let (here, there) = (Node::new(), Node::new());
    let service = here.service::<Add, Sum>("add", Some(&wire("cdr", domain))).expect("a service");
    let _server = service.on_request(1, |request, _| add(request)).expect("a server");
    let client = there.client::<Add, Sum>("add", Some(&wire("cdr", domain))).expect("a service");
    let client = client.open().expect("a client");
    for a in 1..=3 {
        assert_eq!(client.call(&Add { a, b: 4 }, SOON).expect("a reply"), Sum { sum: a + 4 });
    }
}
