//! The engine `zenoh` with `ros=true`: what rmw_zenoh's applications see and write, by plain
//! sessions of Zenoh with the bytes of its design, and by a Python library that does the same as
//! rmw_zenoh.
#![cfg(feature = "zenoh")]

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use polywire::{
    Message, Node, NodeEvent, Publisher, Record, Subscriber,
    coding::{Bytes, Discovered},
    qos::{Qos, Reliability},
};
use polywire_core::envelope::Id128;
use polywire_testing::{
    Folder,
    endpoints::PLAIN_ZENOH,
    ros::{Text, text},
    tools,
    waiting::{SOON, until},
};
use twox_hash::XxHash3_128;
use zenoh::{
    Config, Session, Wait,
    liveliness::LivelinessToken,
    qos::CongestionControl,
    query::{Query, Queryable},
    sample::Sample,
};

/// The hash of `std_msgs/msg/String`.
const HASH: &str = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";
const LISTEN: &str = "zenoh/peer?scouting=off,ros=true,domain=7,listen=tcp/127.0.0.1:0";

/// A payload as rmw_zenoh has it.
fn cdr(data: &str) -> Vec<u8> {
    let length = u32::try_from(data.len() + 1).expect("short").to_le_bytes();
    [&[0, 1, 0, 0][..], &length, data.as_bytes(), &[0]].concat()
}

fn attachment(sequence: i64, time: i64, gid: Id128) -> Vec<u8> {
    [&sequence.to_le_bytes()[..], &time.to_le_bytes(), &[16], &gid.0].concat()
}

/// A GID that no token has.
const NOBODY: Id128 = Id128([9; 16]);

/// A publisher's token as rmw_zenoh has it, and the GID that it makes of it.
fn token_of(session: &str, number: u32, qos: &str) -> (String, Id128) {
    let topic = format!("%robot%chatter/std_msgs::msg::dds_::String_/{HASH}");
    let token = format!("@ros2_lv/7/{session}/0/{number}/MP/%/%/talker/{topic}/{qos}");
    let gid = Id128(XxHash3_128::oneshot(token.as_bytes()).to_le_bytes());
    (token, gid)
}

/// The token of a publisher, until it is dropped, and its GID.
fn talking(session: &Session, number: u32, qos: &str) -> (LivelinessToken, Id128) {
    let (token, gid) = token_of(&session.zid().to_string(), number, qos);
    (session.liveliness().declare_token(token).wait().expect("a token"), gid)
}

fn key() -> String {
    format!("7/robot/chatter/std_msgs::msg::dds_::String_/{HASH}")
}

/// A node that is met by its locator alone, and its locator.
fn alone(node: &Node) -> (String, String) {
    let endpoint = node.open(LISTEN).expect("it opens");
    let locator = endpoint.split_once("listen=").expect("where it listens").1.to_owned();
    (endpoint, locator)
}

fn calling(locator: &str) -> String {
    format!("zenoh/peer?scouting=off,ros=true,domain=7,listen=tcp/127.0.0.1:0,connect={locator}")
}

/// A session that is not Polywire's.
fn plain(locator: &str) -> Session {
    let mut config = Config::default();
    let connect = format!("[\"{locator}\"]");
    for (key, value) in PLAIN_ZENOH.into_iter().chain([("connect/endpoints", &*connect)]) {
        config.insert_json5(key, value).expect("valid");
    }
    zenoh::open(config).wait().expect("a session")
}

/// The keys of tokens as they come.
fn tokens(session: &Session) -> mpsc::Receiver<String> {
    let (sender, tokens) = mpsc::channel();
    let watch = session.liveliness().declare_subscriber("@ros2_lv/7/**").history(true);
    let watch = watch.callback(move |sample: Sample| drop(sender.send(sample.key_expr().to_string())));
    watch.background().wait().expect("a subscriber");
    tokens
}

/// The first token that ends like this.
fn token(tokens: &mpsc::Receiver<String>, end: &str) -> String {
    let until = Instant::now() + SOON;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let token = tokens.recv_timeout(left).unwrap_or_else(|_| panic!("no token ends with {end}"));
        if token.ends_with(end) {
            return token;
        }
    }
}

#[test]
fn what_is_published_in_cdr_is_a_topic_of_ros() {
    let node = Node::builder().name("hall-7").build();
    let (endpoint, locator) = alone(&node);
    let session = plain(&locator);
    let (sender, samples) = mpsc::channel();
    let subscriber = session.declare_subscriber("7/**").callback(move |sample| drop(sender.send(sample)));
    let _subscriber = subscriber.wait().expect("a subscriber");
    let publisher: Publisher<Text> =
        node.publisher_on("robot/chatter", &format!("cdr@{endpoint}")).expect("a publisher");
    // Other formats are for nodes alone.
    let json: Publisher<Text> = node.publisher_on("robot/chatter", &format!("json@{endpoint}")).expect("a publisher");
    let until = Instant::now() + SOON;
    let sample: Sample = loop {
        json.publish(&text("unheard")).expect("published");
        publisher.publish(&text("hello")).expect("published");
        match samples.recv_timeout(Duration::from_millis(20)) {
            Ok(sample) => break sample,
            Err(_) => assert!(Instant::now() < until, "nothing is heard"),
        }
    };
    assert_eq!(sample.key_expr().as_str(), key());
    assert_eq!(&*sample.payload().to_bytes(), cdr("hello"));
    let attached = sample.attachment().expect("one").to_bytes().into_owned();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later").as_nanos() as i64;
    let (sequence, time) = (&attached[..8], &attached[8..16]);
    assert!(i64::from_le_bytes(sequence.try_into().expect("eight bytes")) > 0);
    assert!((now - i64::from_le_bytes(time.try_into().expect("eight bytes"))).abs() < 60_000_000_000);
    assert_eq!((attached[16], attached.len()), (16, 33));
    let tokens = tokens(&session);
    let end = format!("/MP/%/%/hall_7/%robot%chatter/std_msgs::msg::dds_::String_/{HASH}/1:2:1,10:,:,:,,");
    let publishing = token(&tokens, &end);
    let session_name = publishing.split('/').nth(2).expect("a session").to_owned();
    assert!(!session_name.is_empty());
    drop(publisher);
    token(&tokens, &end);
}

#[test]
fn types_and_topics_that_ros_cannot_have_are_refused() {
    #[derive(Clone, Debug, Default, Message)]
    #[polywire(name = "Plant::Pump")]
    struct Pump {
        id: u32,
    }
    let node = Node::new();
    let (endpoint, _) = alone(&node);
    let error = node.publisher_on::<Pump>("pumps", &format!("cdr@{endpoint}")).err().expect("no name of ROS 2");
    assert!(error.to_string().contains("Plant::Pump"), "{error}");
    let error = node.publisher_on::<Text>("7 pumps", &format!("cdr@{endpoint}")).err().expect("no name of ROS 2");
    assert!(error.to_string().contains("7 pumps"), "{error}");
    assert!(node.publisher_on::<Pump>("pumps", &format!("json@{endpoint}")).is_ok(), "it is for nodes alone");
}

#[test]
fn what_ros_publishes_is_read_and_the_subscriber_is_shown() {
    let node = Node::builder().name("reader").build();
    let (endpoint, locator) = alone(&node);
    let texts: Subscriber<Text> = node.subscriber_on("robot/chatter", &endpoint).expect("a subscriber");
    let all: Subscriber<Text> = node.subscriber_on("robot/**", &endpoint).expect("a subscriber");
    let session = plain(&locator);
    let publisher = session.declare_publisher(key()).wait().expect("a publisher");
    until("the subscriber is known", || publisher.matching_status().wait().expect("a status").matching());
    let tokens = tokens(&session);
    let topic = format!("%robot%chatter/std_msgs::msg::dds_::String_/{HASH}");
    let _talking = talking(&session, 10, "::,7:,:,:,,");
    token(&tokens, &format!("/MS/%/%/reader/{topic}/1:2:2,:,:,:,,"));
    for (number, data) in (1..).zip(["one", "two", "three"]) {
        publisher.put(cdr(data)).attachment(attachment(number, 1_700_000_000_000_000_000, NOBODY)).wait().expect("put");
    }
    // Big-endian, of no known type's hash, without an attachment, and garbage.
    let big = [&[0, 0, 0, 0][..], &4_u32.to_be_bytes(), b"big\0"].concat();
    publisher.put(big).wait().expect("put");
    session.put("7/robot/chatter/none", cdr("no type")).wait().expect("put");
    publisher.put(b"\0\x01").attachment(attachment(4, 0, NOBODY)).wait().expect("put");
    publisher.put(cdr("last")).attachment(b"short").wait().expect("put");
    for texts in [&texts, &all] {
        for (number, data) in ["one", "two", "three", "big", "last"].into_iter().enumerate() {
            let sample = texts.recv_timeout(SOON).expect("a sample");
            assert_eq!(sample.value, text(data));
            assert!(number > 2 || sample.info.timestamp_ns == 1_700_000_000_000_000_000);
        }
        assert_eq!((texts.lost(), texts.undecodable()), (0, 1));
    }
}

#[test]
fn each_publisher_of_ros_is_a_writer_with_its_own_numbers() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let texts: Subscriber<Text> = node.subscriber_on("robot/chatter", &endpoint).expect("a subscriber");
    let session = plain(&locator);
    let [(token, one), (_token, two)] = [10, 11].map(|number| talking(&session, number, "::,7:,:,:,,"));
    let reads = || texts.status().writers;
    until("both are known before their first messages", || reads() == 2);
    // The first one's second message comes twice, and its third and fourth do not come.
    let publisher = session.declare_publisher(key()).congestion_control(CongestionControl::Block);
    let publisher = publisher.wait().expect("a publisher");
    let put = |gid, sequence, data: &str| {
        publisher.put(cdr(data)).attachment(attachment(sequence, 0, gid)).wait().expect("put");
    };
    let sent = [(one, 1), (two, 7), (one, 2), (one, 2), (two, 8), (one, 5), (NOBODY, 1), (NOBODY, 2), (two, 9)];
    sent.into_iter().for_each(|(gid, sequence)| put(gid, sequence, &sequence.to_string()));
    for (gid, sequence) in [(one, 1), (two, 7), (one, 2), (two, 8), (one, 5), (NOBODY, 1), (NOBODY, 2), (two, 9)] {
        let sample = texts.recv_timeout(SOON).expect("a sample");
        let came = (sample.info.source.announcement.writer, sample.info.sequence, sample.value.data);
        // ROS 2 may begin at 0, and nodes begin at 1.
        assert_eq!(came, (gid, sequence + 1, sequence.to_string()));
    }
    assert_eq!((texts.lost(), reads()), (2, 3));
    drop(token);
    until("the first one is gone", || reads() == 2);
    // A GID of another topic, one that is none, and a number that is none, are those of a writer
    // without an id; and so are too many that no token has.
    let elsewhere = session.declare_publisher(key().replace("chatter", "elsewhere")).wait().expect("a publisher");
    let all: Subscriber<Text> = node.subscriber_on("robot/elsewhere", &endpoint).expect("a subscriber");
    until("the subscriber is known", || elsewhere.matching_status().wait().expect("a status").matching());
    for (gid, sequence) in [(two, 3), (Id128::ZERO, 3), (Id128([8; 16]), -1), (Id128([8; 16]), 3)] {
        elsewhere.put(cdr("odd")).attachment(attachment(sequence, 0, gid)).wait().expect("put");
    }
    let writers: Vec<Id128> =
        (0..4).map(|_| all.recv_timeout(SOON).expect("a sample").info.source.announcement.writer).collect();
    assert_eq!(writers, [Id128::ZERO, Id128::ZERO, Id128::ZERO, Id128([8; 16])]);
    (1..=1000_u128).for_each(|number| put(Id128((number << 64).to_le_bytes()), 1, "one of many"));
    put(two, 10, "ten");
    for _ in 0..1000 {
        assert_eq!(texts.recv_timeout(SOON).expect("a sample").value, text("one of many"));
    }
    let last = texts.recv_timeout(SOON).expect("a sample");
    assert_eq!((last.info.source.announcement.writer, texts.lost()), (two, 2));
    assert!(reads() < 300, "{} are told apart", reads());
}

#[test]
fn what_a_publisher_of_ros_offers_is_compared_with_what_is_requested() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let session = plain(&locator);
    let subscribe = |qos: Qos| {
        let subscribe = node.subscribe::<Text>("robot/chatter", Some(&endpoint)).expect("a wire");
        subscribe.qos(qos).expect("valid").open()
    };
    let ms = Duration::from_millis;
    let mut leased = Qos::default();
    leased.lease = Some(ms(500));
    let (any, reliable) = (subscribe(Qos::default()), subscribe(Qos::default().reliability(Reliability::Reliable)));
    let (timely, leased) = (subscribe(Qos::default().deadline(ms(100))), subscribe(leased));
    // One as by default, and one that offers less of one policy and more of others.
    let [_usual, _other] = [(10, "::,7:,:,:,,"), (11, "2::,7:0,50000000:,:,0,100000000")]
        .map(|(number, qos)| talking(&session, number, qos));
    let [usual, other] = [_usual.1, _other.1];
    let decided = |texts: &Subscriber<Text>| texts.status().writers + texts.status().mismatches.len() == 2;
    until("all is decided", || [&any, &reliable, &timely, &leased].into_iter().all(decided));
    let refused = |texts: &Subscriber<Text>| -> Vec<(Id128, String)> {
        texts.status().mismatches.into_iter().map(|mismatch| (mismatch.writer, mismatch.reason)).collect()
    };
    let why = |policy: &str| format!("incompatible quality of service: {policy}");
    let reason = why("reliability (policy 11): offered best-effort, requested reliable");
    assert_eq!(refused(&reliable), [(other, reason)]);
    assert_eq!(refused(&timely), [(usual, why("deadline (policy 4): offered infinite, requested 100ms"))]);
    assert!(refused(&leased)[1].1.contains("lease"), "a lease is not offered: {:?}", refused(&leased));
    // What the strongest of the subscribers requests is shown.
    let qos = "1:2:2,:0,100000000:,:,0,500000000";
    let topic = format!("%robot%chatter/std_msgs::msg::dds_::String_/{HASH}");
    token(&tokens(&session), &format!("{topic}/{qos}"));
    // A library whose GIDs are not those of its tokens: with one token, that is it.
    let library = session.declare_publisher(key()).wait().expect("a publisher");
    library.put(cdr("from a library")).attachment(attachment(1, 0, usual)).wait().expect("put");
    library.put(cdr("from a library")).attachment(attachment(1, 0, NOBODY)).wait().expect("put");
    assert_eq!(
        any.recv_timeout(SOON).expect("a sample").info.source.qos().expect("valid").reliability,
        Reliability::Reliable
    );
    let source = any.recv_timeout(SOON).expect("a sample").info.source;
    let (qos, writer) = (source.qos().expect("valid"), source.announcement.writer);
    assert_eq!((writer, qos.reliability, qos.deadline), (NOBODY, Reliability::BestEffort, Some(ms(50))));
}

#[test]
fn tokens_say_what_publishers_of_the_node_offer() {
    let node = Node::builder().name("writer").build();
    let (endpoint, locator) = alone(&node);
    let session = plain(&locator);
    let tokens = tokens(&session);
    let mut qos = Qos::default().reliability(Reliability::BestEffort).deadline(Duration::from_millis(1500));
    (qos.lifespan, qos.lease) = (Some(Duration::from_secs(3)), Some(Duration::from_millis(20)));
    let publish = node.publish::<Text>("robot/chatter", Some(&format!("cdr@{endpoint}"))).expect("a wire");
    let _publisher = publish.qos(qos).expect("valid").open().expect("opens");
    token(&tokens, "/2:2:1,10:1,500000000:3,0:,0,20000000");
}

#[test]
fn a_publisher_whose_type_has_another_hash_is_not_read() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let texts: Subscriber<Text> = node.subscriber_on("robot/chatter", &endpoint).expect("a subscriber");
    let session = plain(&locator);
    let (other, same) = (format!("RIHS01_{}", "7".repeat(64)), key());
    until("it is refused", || {
        session.put(same.replace(HASH, &other), cdr("unread")).wait().expect("put");
        std::thread::sleep(Duration::from_millis(10));
        !texts.status().mismatches.is_empty()
    });
    let reason = &texts.status().mismatches[0].reason;
    assert!(reason.contains(&other) && reason.contains(HASH), "{reason}");
    session.put(same, cdr("read")).wait().expect("put");
    assert_eq!(texts.recv_timeout(SOON).expect("a sample").value, text("read"));
    assert_eq!((texts.lost(), texts.undecodable()), (0, 0));
}

#[test]
fn nodes_meet_on_topics_of_ros_and_lose_nothing() {
    let (here, there) = (Node::new(), Node::new());
    let (endpoint, locator) = alone(&here);
    for format in ["cdr", "cdr:header", "cdr:be", "json"] {
        let topic = format!("texts/{}", format.replace(':', "_"));
        let texts: Subscriber<Text> = here.subscriber_on(&topic, &endpoint).expect("a subscriber");
        let wire = format!("{format}@{}", calling(&locator));
        let publisher: Publisher<Text> = there.publisher_on(&topic, &wire).expect("a publisher");
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{format}");
        for number in 0..2000 {
            publisher.publish(&text(&number.to_string())).expect("published");
        }
        for number in 0..2000 {
            let sample = texts.recv_timeout(SOON).expect("a sample");
            assert_eq!(sample.value, text(&number.to_string()), "{format}");
        }
        assert_eq!((texts.lost(), texts.undecodable()), (0, 0), "{format}");
        drop(publisher);
    }
    // A domain of its own, and nodes that do without ROS 2, are not met.
    let others =
        [calling(&locator).replace("domain=7", "domain=8"), calling(&locator).replace("ros=true,domain=7,", "")];
    let texts: Subscriber<Text> = here.subscriber_on("apart", &endpoint).expect("a subscriber");
    for other in others {
        let node = Node::new();
        let publisher: Publisher<Text> = node.publisher_on("apart", &format!("cdr@{other}")).expect("a publisher");
        assert_eq!(publisher.wait_for_subscribers(1, Duration::from_millis(500)), 0, "{other}");
        publisher.publish(&text("elsewhere")).expect("published");
    }
    assert!(texts.recv_timeout(Duration::from_millis(200)).is_none());
}

#[test]
fn the_first_message_of_a_publisher_that_counts_from_0_passes_a_bridge() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let folder = Folder::new("zenoh-ros-zero");
    let stream = format!("unix/{}", folder.file("s"));
    let bridge = node.bridge(&endpoint, &stream).expect("endpoints");
    let _bridge = bridge.topics(["robot/chatter"]).expect("a pattern").open();
    let session = plain(&locator);
    let (_token, gid) = talking(&session, 10, "::,7:,:,:,,");
    let there = Node::new();
    let texts: Subscriber<Text> = there.subscriber_on("robot/chatter", &stream).expect("a subscriber");
    let publisher = session.declare_publisher(key()).congestion_control(CongestionControl::Block);
    let publisher = publisher.wait().expect("a publisher");
    until("the bridge has a subscriber", || texts.status().writers == 1);
    until("the bridge is known", || publisher.matching_status().wait().expect("a status").matching());
    for number in 0..3 {
        publisher.put(cdr(&number.to_string())).attachment(attachment(number, 0, gid)).wait().expect("put");
    }
    for number in 0..3 {
        assert_eq!(texts.recv_timeout(SOON).expect("a sample").value, text(&number.to_string()));
    }
    assert_eq!(texts.lost(), 0);
}

/// The service by which the node of `talking` tells its types.
const SERVICE: &str = "type_description_interfaces::srv::dds_::GetTypeDescription_/\
                       RIHS01_69b9c19c1021405984cc60dbbb1edceb147a6538b411d812ba6afabeed962cd5";

/// Numbers of CDR as they are written where they are aligned.
fn aligned(bytes: &mut Vec<u8>, number: &[u8]) {
    // Behind the header of four bytes.
    bytes.resize((bytes.len() - 4).next_multiple_of(number.len()) + 4, 0);
    bytes.extend(number);
}

fn string(bytes: &mut Vec<u8>, text: &str) {
    aligned(bytes, &(text.len() as u32 + 1).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.push(0);
}

/// A successful answer that describes `std_msgs/msg/String` with a field of this name.
fn described(field: &str) -> Vec<u8> {
    let mut bytes = vec![0, 1, 0, 0, 1];
    string(&mut bytes, "");
    string(&mut bytes, "std_msgs/msg/String");
    aligned(&mut bytes, &1_u32.to_le_bytes());
    string(&mut bytes, field);
    bytes.push(17);
    aligned(&mut bytes, &0_u64.to_le_bytes());
    aligned(&mut bytes, &0_u64.to_le_bytes());
    string(&mut bytes, "");
    string(&mut bytes, "");
    // No referenced types, sources and extra information.
    (0..3).for_each(|_| aligned(&mut bytes, &0_u32.to_le_bytes()));
    bytes
}

/// Answers each question like this, and counts them.
fn describing(session: &Session, answer: Vec<u8>) -> (Queryable<()>, mpsc::Receiver<Vec<u8>>) {
    let (sender, asked) = mpsc::channel();
    let queryable = session.declare_queryable(format!("7/talker/get_type_description/{SERVICE}")).complete(true);
    let queryable = queryable.callback(move |query: Query| {
        let request = query.payload().expect("a request").to_bytes().into_owned();
        assert_eq!(query.attachment().expect("one").to_bytes()[16], 16);
        let _ = sender.send(request);
        query.reply(query.key_expr().clone(), answer.clone()).wait().expect("a reply");
    });
    (queryable.wait().expect("a queryable"), asked)
}

fn discovered(node: &Node, endpoint: &str) -> Subscriber<Record> {
    let coding = Discovered::new().expect("records");
    node.subscribe_of("robot/chatter", Some(endpoint), coding).expect("a wire").open()
}

#[test]
fn a_type_is_asked_for_once() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let session = plain(&locator);
    let (_queryable, asked) = describing(&session, described("data"));
    // Nobody asks for a subscriber that has the type.
    let texts: Subscriber<Text> = node.subscriber_on("robot/chatter", &endpoint).expect("a subscriber");
    let tokens = [10, 11].map(|number| talking(&session, number, "::,7:,:,:,,"));
    until("the publishers are read", || texts.status().writers == 2);
    assert!(asked.try_recv().is_err());
    drop(texts);
    let readers = [discovered(&node, &endpoint), discovered(&node, &endpoint)];
    until("the publishers are read", || readers.iter().all(|reader| reader.status().writers == 2));
    let mut expected = vec![0, 1, 0, 0];
    string(&mut expected, "std_msgs/msg/String");
    string(&mut expected, HASH);
    expected.push(0);
    assert_eq!(asked.recv_timeout(SOON).expect("a question"), expected);
    let publisher = session.declare_publisher(key()).wait().expect("a publisher");
    until("the subscribers are known", || publisher.matching_status().wait().expect("a status").matching());
    publisher.put(cdr("one")).attachment(attachment(1, 0, tokens[0].1)).wait().expect("put");
    for reader in &readers {
        assert_eq!(reader.recv_timeout(SOON).expect("a sample").value.str("data"), Ok("one"));
        assert_eq!(reader.status().mismatches.len(), 0);
    }
    assert!(asked.try_recv().is_err(), "it is known");
}

/// The questions for types to the node of `talking`.
fn questions(session: &Session) -> (Queryable<()>, mpsc::Receiver<Query>) {
    let (sender, questions) = mpsc::channel();
    let queryable = session.declare_queryable(format!("7/talker/get_type_description/{SERVICE}")).complete(true);
    let queryable = queryable.callback(move |query| drop(sender.send(query)));
    (queryable.wait().expect("a queryable"), questions)
}

/// Waits for a question, publishes these numbers with their GIDs under these keys, and answers.
fn publish_and_answer(session: &Session, questions: &mpsc::Receiver<Query>, samples: &[(String, Id128, i64)]) {
    let question = questions.recv_timeout(SOON).expect("a question");
    for (key, gid, number) in samples {
        let publisher = session.declare_publisher(key.clone()).congestion_control(CongestionControl::Block);
        let publisher = publisher.wait().expect("a publisher");
        until("somebody listens", || publisher.matching_status().wait().expect("a status").matching());
        publisher.put(cdr(&number.to_string())).attachment(attachment(*number, 0, *gid)).wait().expect("put");
    }
    question.reply(question.key_expr().clone(), described("data")).wait().expect("a reply");
}

#[test]
fn messages_wait_while_their_type_is_asked_for() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let session = plain(&locator);
    let (_queryable, questions) = questions(&session);
    let reader = discovered(&node, &endpoint);
    let (_token, gid) = talking(&session, 10, "::,7:,:,:,,");
    publish_and_answer(&session, &questions, &[1, 2, 3].map(|number| (key(), gid, number)));
    // The type is known by now, and this publisher is not: its first message announces it.
    for number in [4, 5] {
        let put = session.put(key(), cdr(&number.to_string())).attachment(attachment(number, 0, NOBODY));
        put.congestion_control(CongestionControl::Block).wait().expect("put");
    }
    for number in 1..=5 {
        let sample = reader.recv_timeout(SOON).unwrap_or_else(|| panic!("{number} is lost"));
        assert_eq!(sample.value.str("data"), Ok(&*number.to_string()));
    }
    assert_eq!((reader.lost(), reader.undecodable()), (0, 0));
}

/// A subscriber without a type, and a publisher that ends after two messages, while its type is
/// asked for. Then the answer has this field. Gives the publisher's GID as well.
fn ended(node: &Node, field: &str) -> (Subscriber<Record>, Id128, Session) {
    let (endpoint, locator) = alone(node);
    let session = plain(&locator);
    let (queryable, questions) = questions(&session);
    let reader = discovered(node, &endpoint);
    let witness = node.subscribe_of("robot/witness", Some(&endpoint), Bytes::default()).expect("a wire").open();
    let (token, gid) = talking(&session, 10, "::,7:,:,:,,");
    let question = questions.recv_timeout(SOON).expect("a question");
    let there = |name: &str| key().replace("chatter", name);
    for (name, gid, number) in [("chatter", gid, 1), ("chatter", gid, 2), ("witness", NOBODY, 1)] {
        let publisher = session.declare_publisher(there(name)).congestion_control(CongestionControl::Block);
        let publisher = publisher.wait().expect("a publisher");
        until("somebody listens", || publisher.matching_status().wait().expect("a status").matching());
        publisher.put(cdr("held")).attachment(attachment(number, 0, gid)).wait().expect("put");
    }
    witness.recv_timeout(SOON).expect("what was put before has come, too");
    drop(token);
    let token = token_of(&session.zid().to_string(), 11, "::,7:,:,:,,").0.replace("chatter", "witness");
    let gone = session.liveliness().declare_token(token).wait().expect("a token");
    until("the token is gone", || witness.status().writers == 2);
    question.reply(question.key_expr().clone(), described(field)).wait().expect("a reply");
    drop((question, gone, queryable));
    (reader, gid, session)
}

#[test]
fn messages_of_a_publisher_that_ends_are_read_when_their_type_comes() {
    let node = Node::new();
    let (reader, gid, _session) = ended(&node, "data");
    for number in [2, 3] {
        let sample = reader.recv_timeout(SOON).expect("it was held");
        assert_eq!((sample.info.sequence, sample.info.source.announcement.writer), (number, gid));
        assert_eq!(sample.value.str("data"), Ok("held"));
    }
    until("the publisher is gone", || reader.status().writers == 0);
    assert_eq!((reader.lost(), reader.status().mismatches.len()), (0, 0));
}

#[test]
fn a_publisher_that_ends_is_refused_when_nobody_tells_its_type() {
    let node = Node::new();
    let (reader, gid, _session) = ended(&node, "date");
    until("it is refused", || !reader.status().mismatches.is_empty());
    let mismatches = reader.status().mismatches;
    assert_eq!((mismatches.len(), mismatches[0].writer), (1, gid));
    assert!(mismatches[0].reason.contains(HASH), "{}", mismatches[0].reason);
}

#[test]
fn messages_wait_for_a_subscriber_that_comes_later() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let session = plain(&locator);
    let (_queryable, questions) = questions(&session);
    let talkers: Vec<(String, Id128, LivelinessToken)> = (0..50)
        .map(|number| {
            let topic = format!("chatter{number}");
            let token = token_of(&session.zid().to_string(), 10, "::,7:,:,:,,").0.replace("chatter", &topic);
            let gid = Id128(XxHash3_128::oneshot(token.as_bytes()).to_le_bytes());
            (key().replace("chatter", &topic), gid, session.liveliness().declare_token(token).wait().expect("a token"))
        })
        .collect();
    // Nobody reads the topics any more.
    let texts: Subscriber<Text> = node.subscriber_on("robot/**", &endpoint).expect("a subscriber");
    until("all are known", || texts.status().writers == talkers.len());
    drop(texts);
    let coding = Discovered::new().expect("records");
    let reader = node.subscribe_of("robot/**", Some(&endpoint), coding).expect("a wire").open();
    let samples: Vec<_> = talkers.iter().map(|(key, gid, _)| (key.clone(), *gid, 1)).collect();
    publish_and_answer(&session, &questions, &samples);
    for number in 0..talkers.len() {
        assert!(reader.recv_timeout(SOON).is_some(), "only {number} came");
    }
    assert_eq!((reader.lost(), reader.status().mismatches.len()), (0, 0));
}

#[test]
fn a_description_of_another_type_is_refused_and_told_once() {
    let node = Node::new();
    let events = node.events();
    let told = || -> Vec<String> {
        let all = std::iter::from_fn(|| events.try_recv()).map(|event: NodeEvent| event.to_string());
        all.filter(|text| text.contains("a description of")).collect()
    };
    let (endpoint, locator) = alone(&node);
    let session = plain(&locator);
    let (_queryable, asked) = describing(&session, described("date"));
    let (_token, gid) = talking(&session, 10, "::,7:,:,:,,");
    let reader = discovered(&node, &endpoint);
    until("it is refused", || !reader.status().mismatches.is_empty());
    let mismatches = reader.status().mismatches;
    assert_eq!(mismatches[0].writer, gid);
    assert!(mismatches[0].reason.contains(HASH), "{}", mismatches[0].reason);
    let events = told();
    assert!(events.len() == 1 && events[0].contains("std_msgs::msg::String"), "{events:?}");
    assert!(events[0].contains("has the hash RIHS01_"), "{events:?}");
    // Others do not ask again at once.
    let another = discovered(&node, &endpoint);
    until("it is refused", || !another.status().mismatches.is_empty());
    assert!(asked.recv_timeout(SOON).is_ok() && asked.try_recv().is_err() && told().is_empty());
}

#[test]
fn a_node_tells_ros_the_types_that_it_publishes() {
    let node = Node::builder().name("hall-7").build();
    let (endpoint, locator) = alone(&node);
    let _publisher: Publisher<Text> =
        node.publisher_on("robot/chatter", &format!("cdr@{endpoint}")).expect("a publisher");
    let session = plain(&locator);
    token(&tokens(&session), &format!("/SS/%/%/hall_7/%hall_7%get_type_description/{SERVICE}/1:2:1,10:,:,:,,"));
    let ask = |hash: &str| {
        let mut request = vec![0, 1, 0, 0];
        string(&mut request, "std_msgs/msg/String");
        string(&mut request, hash);
        request.push(1);
        let query = session.get(format!("7/hall_7/get_type_description/{SERVICE}")).payload(request);
        let replies = query.attachment(attachment(5, 0, NOBODY)).wait().expect("a query");
        let reply = replies.recv_timeout(SOON).expect("in time").expect("a reply");
        let sample = reply.into_result().expect("no error");
        let attached = sample.attachment().expect("one").to_bytes().into_owned();
        assert_eq!((&attached[..8], &attached[16..]), (&5_i64.to_le_bytes()[..], &[&[16][..], &NOBODY.0].concat()[..]));
        sample.payload().to_bytes().into_owned()
    };
    assert_eq!(ask(HASH), described("data"));
    let refused = ask(&HASH.replace("df66", "df67"));
    assert_eq!(refused[..5], [0, 1, 0, 0, 0]);
    assert!(String::from_utf8_lossy(&refused).contains("does not use the type"));
    assert_eq!(ask("nothing")[4], 0);
}

/// A subscriber of rmw_zenoh that is transient local and keeps four samples. Prints what comes: the
/// text, its number and its publisher.
const LATE: &str = r#"
import json, signal, struct, sys, zenoh, zenoh.ext
signal.alarm(120)
config = zenoh.Config()
config.insert_json5("connect/endpoints", json.dumps([sys.argv[1]]))
config.insert_json5("scouting/multicast/enabled", "false")
with zenoh.open(config) as session:
    subscriber = zenoh.ext.declare_advanced_subscriber(
        session, sys.argv[2], history=zenoh.ext.HistoryConfig(detect_late_publishers=True, max_samples=4),
        recovery=zenoh.ext.RecoveryConfig(periodic_queries=None, heartbeat=True), subscriber_detection=True)
    for _ in range(5):
        sample = subscriber.recv()
        number, time, length, gid = struct.unpack("<qqB16s", bytes(sample.attachment))
        print(bytes(sample.payload)[8:-1].decode(), number, gid.hex(), flush=True)
"#;

/// A publisher of rmw_zenoh that is reliable and transient local, in the session of this id.
/// Publishes three messages, and one more after each line that it reads.
const LATCHED: &str = r#"
import json, struct, sys, zenoh, zenoh.ext
locator, id, key, token, gid = sys.argv[1:]
config = zenoh.Config()
config.insert_json5("id", json.dumps(id))
config.insert_json5("connect/endpoints", json.dumps([locator]))
config.insert_json5("scouting/multicast/enabled", "false")
config.insert_json5("timestamping/enabled", "true")
with zenoh.open(config) as session:
    publisher = zenoh.ext.declare_advanced_publisher(
        session, key, cache=zenoh.ext.CacheConfig(max_samples=10), publisher_detection=True,
        congestion_control=zenoh.CongestionControl.BLOCK,
        sample_miss_detection=zenoh.ext.MissDetectionConfig(heartbeat=None, sporadic_heartbeat=0.5))
    token = session.liveliness().declare_token(token)
    def publish(number):
        text = b"%d\0" % number
        payload = b"\0\1\0\0" + struct.pack("<I", len(text)) + text
        attachment = struct.pack("<qqB", number, 1_700_000_000_000_000_000 + number, 16) + bytes.fromhex(gid)
        publisher.put(payload, attachment=attachment)
    for number in range(1, 4):
        publish(number)
    print("published", flush=True)
    for number, _ in enumerate(sys.stdin, 4):
        publish(number)
"#;

fn transient_local() -> Qos {
    Qos::default().keep_last(40).transient_local()
}

#[test]
fn a_late_subscriber_of_ros_gets_what_a_publisher_of_the_node_keeps() {
    if !tools::python_has("zenoh") {
        return;
    }
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let publish = node.publish::<Text>("robot/chatter", Some(&format!("cdr@{endpoint}"))).expect("a wire");
    let publisher = publish.qos(transient_local()).expect("valid").open().expect("opens");
    for number in 1..=6 {
        publisher.publish(&text(&format!("text-{number}"))).expect("published");
    }
    let session = plain(&locator);
    token(&tokens(&session), "/1:1:1,40:,:,:,,");
    let python = Command::new(tools::python()).args(["-c", LATE, &locator, &key()]).stdout(Stdio::piped()).spawn();
    let mut python = python.expect("it starts");
    let mut says = BufReader::new(python.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    let mut next = || {
        let line = says.next().expect("a line");
        let (said, gid) = line.rsplit_once(' ').expect("a GID at the end");
        (said.to_owned(), gid.to_owned())
    };
    // The last four, with the attachments that they had, and then what is live.
    let (first, gid) = next();
    assert!(first == "text-3 3" && gid != Id128::ZERO.to_string(), "{first} {gid}");
    (4..=6).for_each(|number| assert_eq!(next(), (format!("text-{number} {number}"), gid.clone())));
    publisher.publish(&text("text-7")).expect("published");
    assert_eq!(next(), ("text-7 7".into(), gid));
    assert!(python.wait().expect("it ends").success());
}

#[test]
fn a_late_subscriber_of_the_node_gets_what_publishers_of_ros_keep() {
    if !tools::python_has("zenoh") {
        return;
    }
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let session = plain(&locator);
    let subscribe = |qos: Qos| {
        let subscribe = node.subscribe::<Text>("robot/chatter", Some(&endpoint)).expect("a wire");
        subscribe.qos(qos).expect("valid").open()
    };
    let numbers = |texts: &Subscriber<Text>, count: u64, gid: Id128| -> Vec<u64> {
        let next = |_| {
            let sample = texts.recv_timeout(SOON).expect("a sample");
            let number = sample.info.sequence - 1;
            assert_eq!((sample.info.source.announcement.writer, sample.value), (gid, text(&number.to_string())));
            assert_eq!(sample.info.timestamp_ns, 1_700_000_000_000_000_000 + number as i64);
            number
        };
        (0..count).map(next).collect()
    };
    // With the GID that rmw_zenoh makes of the token, and with another one.
    for (id, gid) in [("a1", None), ("a2", Some(NOBODY))] {
        let early = subscribe(transient_local());
        let (token, made) = token_of(id, 10, ":1:,10:,:,:,,");
        let gid = gid.unwrap_or(made);
        let mut python = Command::new(tools::python());
        let python = python.args(["-c", LATCHED, &locator, id, &key(), &token, &gid.to_string()]);
        let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut says = BufReader::new(python.stdout.take().expect("piped")).lines();
        let mut publishes = python.stdin.take().expect("piped");
        assert_eq!(says.next().expect("a line").expect("text"), "published");
        assert_eq!(numbers(&early, 3, gid), [1, 2, 3], "{gid}");
        let late = subscribe(transient_local());
        assert_eq!(numbers(&late, 3, gid), [1, 2, 3], "{gid}");
        publishes.write_all(b"\n").expect("written");
        assert_eq!((numbers(&early, 1, gid), numbers(&late, 1, gid)), (vec![4], vec![4]), "{gid}");
        // Nobody reads for a while, and then somebody who wants no history, too.
        drop((early, late));
        let (late, volatile) = (subscribe(transient_local()), subscribe(Qos::default()));
        assert_eq!(numbers(&late, 4, gid), [1, 2, 3, 4], "{gid}");
        publishes.write_all(b"\n").expect("written");
        assert_eq!((numbers(&late, 1, gid), numbers(&volatile, 1, gid)), (vec![5], vec![5]), "{gid}");
        assert_eq!((late.lost(), late.undecodable(), volatile.lost()), (0, 0, 0), "{gid}");
        drop(publishes);
        assert!(python.wait().expect("it ends").success());
    }
    // A volatile publisher has no history to offer.
    let (_token, gid) = talking(&session, 11, "::,10:,:,:,,");
    let texts = subscribe(transient_local());
    until("it is refused", || texts.status().mismatches.iter().any(|mismatch| mismatch.writer == gid));
    let mismatches = texts.status().mismatches;
    let reason = &mismatches.iter().find(|mismatch| mismatch.writer == gid).expect("one").reason;
    assert!(reason.contains("durability (policy 2): offered volatile, requested transient-local"), "{reason}");
}

/// Answers each text with another one, by a library that knows ROS 2 and not Polywire.
const ROS: &str = r#"
import os, sys
from zenoh_ros2_sdk import ROS2Publisher, ROS2Subscriber
of = dict(msg_type="std_msgs/msg/String", msg_definition="string data\n", domain_id=7,
          router_ip="127.0.0.1", router_port=int(sys.argv[1]))
publisher = ROS2Publisher("/back", node_name="answerer", **of)
subscriber = ROS2Subscriber("/there", callback=lambda text: publisher.publish(data=text.data + " and back"), **of)
sys.stdin.read()
os._exit(0) # The library's session would keep the interpreter.
"#;

#[test]
fn a_python_library_for_ros_reads_and_writes_the_same_topics() {
    if !tools::python_has("zenoh_ros2_sdk") {
        return;
    }
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let publisher: Publisher<Text> = node.publisher_on("there", &format!("cdr@{endpoint}")).expect("a publisher");
    let back: Subscriber<Text> = node.subscriber_on("back", &endpoint).expect("a subscriber");
    let port = locator.rsplit(':').next().expect("a port");
    let mut python = Command::new(tools::python());
    let mut python = python.args(["-c", ROS, port]).stdin(Stdio::piped()).spawn().expect("it starts");
    let until = Instant::now() + SOON;
    let sample = loop {
        publisher.publish(&text("there")).expect("published");
        if let Some(sample) = back.recv_timeout(Duration::from_millis(20)) {
            break sample;
        }
        assert!(Instant::now() < until, "Python does not answer");
    };
    assert_eq!(sample.value, text("there and back"));
    drop(python.stdin.take());
    assert!(python.wait().expect("it ends").success());
}
