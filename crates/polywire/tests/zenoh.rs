//! The engine `zenoh` together with other Zenoh applications: what they read and write, what they
//! cannot break, and routers that fail.
#![cfg(feature = "zenoh")]

#[path = "common/fleet.rs"]
mod fleet;
#[path = "common/pump.rs"]
mod pump;

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use fleet::{Fleet, Member};
use polywire::{
    Message, Node, NodeEvent, Publisher, Subscriber,
    coding::Discovered,
    engine::{Event, Identity},
    qos::Qos,
};
use polywire_core::envelope::Id128;
use polywire_testing::{
    endpoints::PLAIN_ZENOH,
    tools,
    waiting::{SOON, until},
};
use pump::{OtherPump, Pump, encoded, pump};
use zenoh::{Config, Session, Wait, bytes::Encoding, query::ConsolidationMode, sample::Sample};

/// The type's schema document.
fn schema() -> Vec<u8> {
    Pump::shape().schema().to_bytes()
}

/// A node that is met by its locator alone, and its locator.
fn alone(node: &Node) -> (String, String) {
    let endpoint = node.open("zenoh/peer?scouting=off,listen=tcp/127.0.0.1:0").expect("it opens");
    let locator = endpoint.split_once("listen=").expect("where it listens").1.to_owned();
    (endpoint, locator)
}

/// The endpoint of a peer that calls another one.
fn calling(locator: &str) -> String {
    format!("zenoh/peer?scouting=off,listen=tcp/127.0.0.1:0,connect={locator}")
}

/// A session that is not Polywire's.
fn plain(mode: &str, connect: &[&str], listen: &[&str]) -> Session {
    plain_with(mode, connect, listen, &[]).expect("a session")
}

/// One with more settings, or why there is none.
fn plain_with(mode: &str, connect: &[&str], listen: &[&str], more: &[(&str, String)]) -> Result<Session, zenoh::Error> {
    let list = |all: &[&str]| format!("{all:?}");
    let mut config = Config::default();
    let settings = [
        ("mode", format!("\"{mode}\"")),
        ("connect/endpoints", list(connect)),
        ("listen/endpoints", list(listen)),
        ("connect/retry", "{period_init_ms: 20, period_max_ms: 200}".into()),
    ];
    PLAIN_ZENOH.into_iter().for_each(|(key, value)| config.insert_json5(key, value).expect("valid"));
    settings.iter().chain(more).for_each(|(key, value)| config.insert_json5(key, value).expect("valid"));
    zenoh::open(config).wait()
}

/// What a plain subscriber hears.
fn listen(session: &Session, key: &'static str) -> mpsc::Receiver<Sample> {
    let (sender, samples) = mpsc::channel();
    let subscriber = session.declare_subscriber(key).callback(move |sample| {
        let _ = sender.send(sample);
    });
    subscriber.background().wait().expect("a subscriber");
    samples
}

fn next(subscriber: &Subscriber<Pump>) -> Pump {
    subscriber.recv_timeout(SOON).expect("a sample").value
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

#[test]
fn a_plain_application_reads_exactly_the_bytes_of_the_format() {
    for (format, media) in [
        ("json", "application/json"),
        ("cbor", "application/cbor"),
        ("protobuf", "application/protobuf"),
        ("cdr", "application/cdr"),
        ("bson", "application/octet-stream;polywire-bson"),
    ] {
        let node = Node::new();
        let (endpoint, locator) = alone(&node);
        let session = plain("peer", &[&locator], &[]);
        let everything = listen(&session, "**");
        let publisher: Publisher<Pump> =
            node.publisher_on("plant/pumps", &format!("{format}@{endpoint}")).expect("a publisher");
        // It hears nothing before its subscription has come here.
        let first = until_heard(&everything, || {
            publisher.publish(&pump(1)).expect("published");
        });
        assert_eq!(first.key_expr().as_str(), "plant/pumps");
        assert_eq!(&*first.payload().to_bytes(), encoded(format, &pump(1)), "{format}");
        let encoding = first.encoding().to_string();
        assert!(encoding.starts_with(&format!("{media};Plant::Pump@")), "{encoding}");
        publisher.dispose(&pump(1)).expect("disposed of");
        publisher.publish(&pump(2)).expect("published");
        let mut heard = Vec::new();
        while heard.last() != Some(&encoded(format, &pump(2))) {
            let sample = everything.recv_timeout(SOON).expect("a sample");
            assert_eq!(sample.key_expr().as_str(), "plant/pumps", "nothing else is heard");
            heard.push(sample.payload().to_bytes().into_owned());
        }
        heard.pop();
        assert!(heard.iter().all(|bytes| *bytes == encoded(format, &pump(1))), "{format}: no end of an instance");
    }
}

/// Publishes until the first sample is heard.
fn until_heard(samples: &mpsc::Receiver<Sample>, publish: impl Fn()) -> Sample {
    let until = Instant::now() + SOON;
    loop {
        publish();
        match samples.recv_timeout(Duration::from_millis(20)) {
            Ok(sample) => return sample,
            Err(_) => assert!(Instant::now() < until, "nothing is heard"),
        }
    }
}

#[test]
fn a_plain_application_is_read_in_four_formats() {
    for (format, encoding) in [
        ("json", Encoding::APPLICATION_JSON),
        ("cbor", Encoding::APPLICATION_CBOR),
        ("protobuf", Encoding::APPLICATION_PROTOBUF),
        ("cdr", Encoding::APPLICATION_CDR),
    ] {
        let node = Node::new();
        let (endpoint, locator) = alone(&node);
        let pumps: Subscriber<Pump> = node.subscriber_on("plant/pumps", &endpoint).expect("a subscriber");
        let session = plain("peer", &[&locator], &[]);
        let publisher = session.declare_publisher("plant/pumps").encoding(encoding).wait().expect("a publisher");
        until("the subscriber is known", || publisher.matching_status().wait().expect("a status").matching());
        for id in 1..=100 {
            publisher.put(encoded(format, &pump(id))).wait().expect("put");
        }
        let ids: Vec<u32> = (0..100).map(|_| next(&pumps).id).collect();
        assert!(ids.iter().copied().eq(1..=100), "{format}: {ids:?}");
        assert_eq!((pumps.lost(), pumps.undecodable()), (0, 0), "{format}");
        // With an attachment of its own, and a type's name that Polywire does not know.
        let foreign = Encoding::from(format!("application/{format}")).with_schema("their.Type");
        publisher.put(encoded(format, &pump(7))).encoding(foreign).attachment(vec![0; 33]).wait().expect("put");
        assert_eq!(next(&pumps), pump(7), "{format}");
    }
}

#[test]
fn what_is_malformed_is_counted_and_the_rest_is_read() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let events = node.events();
    let pumps: Subscriber<Pump> = node.subscriber_on("pumps", &endpoint).expect("a subscriber");
    let session = plain("peer", &[&locator], &[]);
    let publisher =
        session.declare_publisher("pumps").encoding(Encoding::APPLICATION_JSON).wait().expect("a publisher");
    until("the subscriber is known", || publisher.matching_status().wait().expect("a status").matching());
    for bad in [&b""[..], b"{", b"\xff\xfe", b"[1,2,3]", b"{\"id\":\"x\"}"] {
        publisher.put(bad).wait().expect("put");
    }
    // An attachment that claims to be Polywire's, and a deletion, are no messages.
    publisher.put(encoded("json", &pump(1))).attachment(&b"PLYW\x01broken"[..]).wait().expect("put");
    publisher.delete().wait().expect("deleted");
    publisher.put(encoded("json", &pump(2))).wait().expect("put");
    assert_eq!(next(&pumps), pump(2));
    assert_eq!(pumps.undecodable(), 5);
    let told = std::iter::from_fn(|| events.recv_timeout(Duration::ZERO));
    let told: Vec<u64> = told
        .filter_map(|event| match event {
            NodeEvent::Undecodable { total, .. } => Some(total),
            _ => None,
        })
        .collect();
    assert_eq!(told, [1, 2, 4], "told less and less often");
}

#[test]
fn a_pattern_hears_plain_applications_and_nodes_once() {
    let (node, other) = (Node::new(), Node::new());
    let (endpoint, locator) = alone(&node);
    let pattern = |text: &str| node.subscriber_on::<Pump>(text, &endpoint).expect("a subscriber");
    let (all, some, one) = (pattern("plant/**"), pattern("plant/*/pump"), pattern("plant/3/pump"));
    let publisher: Publisher<Pump> =
        other.publisher_on("plant/3/pump", &format!("json@{}", calling(&locator))).expect("a publisher");
    assert_eq!(publisher.wait_for_subscribers(3, SOON), 3);
    publisher.publish(&pump(1)).expect("published");
    let session = plain("peer", &[&locator], &[]);
    let foreign = session.declare_publisher("plant/4/pump").encoding(Encoding::APPLICATION_JSON).wait().expect("one");
    until("the subscriber is known", || foreign.matching_status().wait().expect("a status").matching());
    foreign.put(encoded("json", &pump(2))).wait().expect("put");
    foreign.put(encoded("json", &pump(3))).wait().expect("put");
    assert_eq!([next(&all).id, next(&all).id, next(&all).id], [1, 2, 3]);
    assert_eq!([next(&some).id, next(&some).id, next(&some).id], [1, 2, 3]);
    assert_eq!(next(&one).id, 1);
    assert!(all.try_recv().is_none() && some.try_recv().is_none() && one.try_recv().is_none());
}

#[test]
fn strangers_in_the_mailbox_do_no_harm() {
    let (node, other) = (Node::new(), Node::new());
    let (endpoint, locator) = alone(&node);
    let pumps: Subscriber<Pump> = node.subscriber_on("pumps", &endpoint).expect("a subscriber");
    let publisher: Publisher<Pump> =
        other.publisher_on("pumps", &format!("cdr@{}", calling(&locator))).expect("a publisher");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let session = plain("peer", &[&locator], &[]);
    let (sender, tokens) = mpsc::channel();
    let found = session.liveliness().declare_subscriber("@polywire/1/node/*").history(true);
    let found = found.callback(move |sample| drop(sender.send(sample.key_expr().to_string())));
    found.background().wait().expect("a subscriber");
    let names: Vec<String> = (0..2)
        .map(|_| tokens.recv_timeout(SOON).expect("a token"))
        .map(|key| key.rsplit('/').next().expect("a name").to_owned())
        .collect();
    // Malformed, of a stranger, and in the name of the other node with an old epoch.
    let sender = |name: &str| {
        let (node, incarnation) = name.split_once('-').expect("a name");
        let number = |hex: &str| u128::from_str_radix(hex, 16).expect("a number");
        [&number(node).to_be_bytes()[..], &number(incarnation).to_le_bytes()[..8]].concat()
    };
    for (to, from) in [(0, 1), (1, 0)] {
        let signed = |from: &[u8], more: &[u8]| [b"PLYW\x01", from, more].concat();
        let old = [&1_u64.to_le_bytes()[..], &[0; 8], &1_u64.to_le_bytes(), b"\x04\0\0\0\0\0\0\0\0"].concat();
        let mails = [
            Vec::new(),
            signed(b"", b""),
            b"PLYW\x02later".to_vec(),
            signed(&sender(&names[from]), b"\x01\x01\0\0"),
            signed(&sender(&names[from]), &old),
            signed(&[0xff; 24], &old),
        ];
        for bytes in mails {
            session.put(format!("@polywire/1/mail/{}", names[to]), bytes).wait().expect("put");
        }
    }
    // A token that is none, and one of a node that never answers.
    let tokens = ["@polywire/1/node/x".to_owned(), format!("@polywire/1/node/{}-1", "9".repeat(32))];
    let _tokens = tokens.map(|key| session.liveliness().declare_token(key).wait().expect("a token"));
    for id in 1..=50 {
        publisher.publish(&pump(id)).expect("published");
    }
    assert!((1..=50).all(|id| next(&pumps).id == id));
    assert_eq!((pumps.lost(), pumps.undecodable()), (0, 0));
}

#[test]
fn prefixes_keep_systems_apart() {
    let (node, other) = (Node::new(), Node::new());
    let (_, locator) = alone(&node);
    let at = format!("{},prefix=plant/a", calling(&locator));
    let pumps: Subscriber<Pump> = other.subscriber_on("pumps", &at).expect("a subscriber");
    let session = plain("peer", &[&locator], &[]);
    let publish = |key: &'static str, id| {
        let publisher = session.declare_publisher(key).encoding(Encoding::APPLICATION_JSON).wait().expect("one");
        publisher.put(encoded("json", &pump(id))).wait().expect("put");
    };
    let publisher = session.declare_publisher("plant/a/pumps").wait().expect("a publisher");
    until("the subscriber is known", || publisher.matching_status().wait().expect("a status").matching());
    publish("pumps", 1);
    publish("plant/b/pumps", 2);
    publish("plant/a/pumps", 3);
    assert_eq!(next(&pumps).id, 3);
}

#[test]
fn when_a_router_fails_the_other_one_takes_over() {
    let [a, b] = [free_port(), free_port()].map(|port| format!("tcp/127.0.0.1:{port}"));
    let first = plain("router", &[], &[&a]);
    let _second = plain("router", &[&a], &[&b]);
    let (writer, reader) = (Node::new(), Node::new());
    let at = |from: &str, to: &str| format!("zenoh/client/{from}?scouting=off,connect={to}");
    let pumps: Subscriber<Pump> = reader.subscriber_on("pumps", &at(&b, &a)).expect("a subscriber");
    let publisher: Publisher<Pump> = writer.publisher_on("pumps", &format!("cdr@{}", at(&a, &b))).expect("a publisher");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&pump(1)).expect("published");
    assert_eq!(next(&pumps), pump(1));
    first.close().wait().expect("closed");
    // What is published while nothing connects them is lost, and told or skipped.
    let until = Instant::now() + SOON;
    let mut id = 1;
    let came = loop {
        id += 1;
        publisher.publish(&pump(id)).expect("published");
        if let Some(sample) = pumps.recv_timeout(Duration::from_millis(50)) {
            break sample.value;
        }
        assert!(Instant::now() < until, "nothing comes over the other router");
    };
    assert!(came.id > 1 && came == pump(came.id));
}

#[test]
fn a_router_that_comes_back_brings_the_nodes_together_again() {
    let at_router = format!("tcp/127.0.0.1:{}", free_port());
    let router = plain("router", &[], &[&at_router]);
    let (writer, reader) = (Node::new(), Node::new());
    let events = reader.events();
    let at = format!("zenoh/client/{at_router}?scouting=off");
    let late = Qos::default().transient_local().keep_last(100);
    let pumps = reader.subscribe::<Pump>("pumps", Some(&at)).expect("a subscriber").qos(late.clone());
    let pumps = pumps.expect("it asks for the history").open();
    let publish = writer.publish::<Pump>("pumps", Some(&format!("cdr@{at}"))).expect("a publisher").qos(late);
    let publisher = publish.expect("it has a history").open().expect("it opens");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    for id in 1..=10 {
        publisher.publish(&pump(id)).expect("published");
    }
    assert!((1..=10).all(|id| next(&pumps).id == id));
    router.close().wait().expect("closed");
    until("both nodes are alone", || publisher.status().accepting == 0 && reader.links() == 0);
    for id in 11..=20 {
        publisher.publish(&pump(id)).expect("published to nobody");
    }
    let _router = plain("router", &[], &[&at_router]);
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "they are there for each other again");
    for id in 21..=30 {
        publisher.publish(&pump(id)).expect("published");
    }
    let ids: Vec<u32> = (11..=30).map(|_| next(&pumps).id).collect();
    assert!(ids.iter().copied().eq(11..=30), "what was published meanwhile comes, once and in order: {ids:?}");
    assert_eq!((pumps.lost(), pumps.try_recv().is_none()), (0, true));
    let told = std::iter::from_fn(|| events.recv_timeout(Duration::ZERO));
    let told: Vec<bool> = told
        .filter_map(|event| match event {
            NodeEvent::Engine { event: Event::Connected(_), .. } => Some(true),
            NodeEvent::Engine { event: Event::Disconnected { .. }, .. } => Some(false),
            _ => None,
        })
        .collect();
    assert_eq!(told, [true, false, true], "the peer came, went and came back");
}

#[test]
fn types_that_differ_under_one_name_are_told_at_both_ends() {
    let (writer, reader) = (Node::new(), Node::new());
    let (endpoint, locator) = alone(&reader);
    let publisher: Publisher<Pump> =
        writer.publisher_on("pumps", &format!("cdr@{}", calling(&locator))).expect("a publisher");
    let others: Subscriber<OtherPump> = reader.subscriber_on("pumps", &endpoint).expect("a subscriber");
    until("the mismatch", || publisher.status().refusing == 1 && others.status().unreadable == 1);
    let (here, there) = (others.status(), publisher.status());
    let reason = &here.mismatches[0].reason;
    assert!(reason.contains("label") && here.mismatches[0].writer == publisher.writer(), "{reason}");
    assert_eq!(there.refusals[0].reason, *reason);
    assert_eq!(publisher.publish(&pump(1)).expect("published").refused, 1);
    // An application that is not Polywire's, with a schema that does not fit.
    let session = plain("peer", &[&locator], &[]);
    let hash = Id128::of_document(&schema());
    let asked = session.declare_queryable("@polywire/1/schema/*").callback(move |query| {
        query.reply(query.key_expr(), schema()).wait().expect("answered");
    });
    let _asked = asked.wait().expect("a queryable");
    let foreign = session.declare_publisher("pumps").wait().expect("a publisher");
    until("the subscriber is known", || foreign.matching_status().wait().expect("a status").matching());
    let encoding = Encoding::from(format!("application/json;Plant::Pump@{hash}"));
    foreign.put(encoded("json", &pump(1))).encoding(encoding).wait().expect("put");
    until("the second mismatch", || others.status().mismatches_total == 2);
    let told: Vec<String> = others.status().mismatches.into_iter().map(|mismatch| mismatch.reason).collect();
    assert!(told.iter().all(|reason| reason.contains("label")), "{told:?}");
    assert!(others.try_recv().is_none());
}

#[test]
fn a_thousand_topics_are_told_apart() {
    let (writer, reader) = (Node::new(), Node::new());
    let (endpoint, locator) = alone(&writer);
    let at = calling(&locator);
    let topics: Vec<String> = (0..1000).map(|number| format!("plant/{number}/pump")).collect();
    let publishers: Vec<Publisher<Pump>> =
        topics.iter().map(|topic| writer.publisher_on(topic, &format!("cdr@{endpoint}")).expect("it opens")).collect();
    let pumps: Vec<Subscriber<Pump>> =
        topics.iter().map(|topic| reader.subscriber_on(topic, &at).expect("it opens")).collect();
    for publisher in &publishers {
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    }
    for (id, publisher) in (0..).zip(&publishers) {
        publisher.publish(&pump(id)).expect("published");
    }
    assert!((0..).zip(&pumps).all(|(id, pumps)| next(pumps) == pump(id)));
}

/// A schema's name in a sample's encoding.
fn schema_of(sample: &Sample) -> String {
    let encoding = sample.encoding().to_string();
    encoding.rsplit_once('@').expect("a hash").1.to_owned()
}

/// What a query for a schema brings, with encodings; errors as text.
fn ask(session: &Session, selector: &str) -> Vec<(String, Vec<u8>)> {
    let query = session.get(selector).consolidation(ConsolidationMode::None);
    let replies = query.timeout(SOON).wait().expect("asked");
    let answer = |reply: zenoh::query::Reply| match reply.into_result() {
        Ok(sample) => (sample.encoding().to_string(), sample.payload().to_bytes().into_owned()),
        Err(error) => ("error".into(), error.payload().to_bytes().into_owned()),
    };
    std::iter::from_fn(|| replies.recv().ok()).map(answer).collect()
}

#[test]
fn a_plain_application_learns_the_type_of_a_topic() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let session = plain("peer", &[&locator], &[]);
    let everything = listen(&session, "**");
    let publisher: Publisher<Pump> = node.publisher_on("pumps", &format!("json@{endpoint}")).expect("a publisher");
    let heard = until_heard(&everything, || {
        publisher.publish(&pump(1)).expect("published");
    });
    let key = format!("@polywire/1/schema/{}", schema_of(&heard));
    let document = schema();
    assert_eq!(ask(&session, &key), [("application/octet-stream;polywire-schema".into(), document)]);
    let text = |format: &str| {
        let answers = ask(&session, &format!("{key}?format={format}"));
        let [(encoding, text)] = &answers[..] else { panic!("one answer: {answers:?}") };
        (encoding.clone(), String::from_utf8(text.clone()).expect("UTF-8"))
    };
    let (encoding, idl) = text("idl");
    assert!(encoding == "text/plain;idl" && idl.contains("@key uint32 id;"), "{encoding} {idl}");
    assert!(text("proto").1.contains("message Pump"));
    assert!(text("cobol").1.contains("idl, proto"), "{:?}", text("cobol"));
    assert!(text(&"x".repeat(9000)).1.contains("longer than 64 bytes"));
    // Nobody has another one, and none that is no hash.
    for nothing in [format!("@polywire/1/schema/{}", "0".repeat(32)), "@polywire/1/schema/x".into()] {
        assert_eq!(ask(&session, &nothing), []);
    }
    // Many at once do no harm.
    let queries: Vec<_> = (0..2000).map(|_| session.get(&key).timeout(SOON).wait().expect("asked")).collect();
    publisher.publish(&pump(2)).expect("published");
    drop(queries);
    until("queries are answered again", || ask(&session, &key).len() == 1);
}

#[test]
fn the_type_of_a_plain_application_is_learned_by_a_query() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let subscribe = || node.subscribe_of("pumps", Some(&endpoint), Discovered::new().expect("valid"));
    let any = subscribe().expect("a subscriber").open();
    let session = plain("peer", &[&locator], &[]);
    let hash = Id128::of_document(&schema());
    let asked = session.declare_queryable("@polywire/1/schema/*").callback(move |query| {
        // Neither the schema of somebody else, nor garbage, is taken.
        let key = format!("@polywire/1/schema/{hash}");
        let document = schema();
        for answer in [&b"garbage"[..], &document[..9], &document] {
            query.reply(&key, answer).wait().expect("answered");
        }
    });
    let _asked = asked.wait().expect("a queryable");
    let publisher = session.declare_publisher("pumps").wait().expect("a publisher");
    until("the subscriber is known", || publisher.matching_status().wait().expect("a status").matching());
    let encoding = Encoding::from(format!("application/json;Plant::Pump@{hash}"));
    for id in 1..=3 {
        publisher.put(encoded("json", &pump(id))).encoding(encoding.clone()).wait().expect("put");
    }
    for id in 1..=3 {
        let record = any.recv_timeout(SOON).expect("a sample").value;
        assert_eq!(record.u64("id"), Ok(id), "in order, and none is lost");
    }
    assert_eq!((any.lost(), any.undecodable()), (0, 0));
    // What nobody knows is read with the subscriber's own type.
    let pumps: Subscriber<Pump> = node.subscriber_on("others", &endpoint).expect("a subscriber");
    let publisher = session.declare_publisher("others").wait().expect("a publisher");
    until("the subscriber is known", || publisher.matching_status().wait().expect("a status").matching());
    let unknown = Encoding::from(format!("application/json;Plant::Pump@{}", "9".repeat(32)));
    publisher.put(encoded("json", &pump(7))).encoding(unknown).wait().expect("put");
    assert_eq!(next(&pumps), pump(7));
}

#[test]
fn a_schema_that_nobody_has_holds_up_nobody() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let subscribe = |topic: &str| node.subscriber_on::<Pump>(topic, &endpoint).expect("a subscriber");
    let (pumps, others) = (subscribe("pumps"), subscribe("others"));
    let session = plain("peer", &[&locator], &[]);
    let publisher = session.declare_publisher("others").encoding(Encoding::APPLICATION_JSON).wait().expect("one");
    until("the subscriber is known", || publisher.matching_status().wait().expect("a status").matching());
    // No queryable but the node's own is there to be asked.
    for number in 0..100 {
        let unknown = Encoding::from(format!("application/json;Plant::Pump@{number:032x}"));
        session.put("pumps", encoded("json", &pump(number))).encoding(unknown).wait().expect("put");
    }
    publisher.put(encoded("json", &pump(7))).wait().expect("put");
    assert_eq!(next(&others), pump(7));
    let mut ids: Vec<u32> = (0..100).map(|_| next(&pumps).id).collect();
    ids.sort_unstable();
    assert!(ids.iter().copied().eq(0..100), "they are read with the subscriber's own type: {ids:?}");
}

/// A node with an identity.
fn member(member: &Member) -> Node {
    let mut config = polywire::Config::default();
    config.engine.identity = Identity::new(&member.certificate, &member.key, &member.authority);
    config.engine.connect_timeout = Duration::from_millis(500);
    Node::builder().config(config).build()
}

/// The settings by which Zenoh uses an identity, without its own certificate if `is_anonymous`.
fn tls(member: &Member, is_anonymous: bool) -> Vec<(&'static str, String)> {
    let path = |path: &std::path::Path| format!("\"{}\"", path.display());
    let mut settings = vec![("transport/link/tls/root_ca_certificate", path(&member.authority))];
    if !is_anonymous {
        settings.push(("transport/link/tls/enable_mtls", "true".into()));
        settings.push(("transport/link/tls/connect_certificate", path(&member.certificate)));
        settings.push(("transport/link/tls/connect_private_key", path(&member.key)));
    }
    settings
}

#[test]
fn over_tls_both_ends_prove_who_they_are() {
    let (fleet, others) = (Fleet::new(), Fleet::new());
    let [here, there, third] = ["here", "there", "third"].map(|name| fleet.member(&[name, "127.0.0.1"]));
    let (reader, writer) = (member(&here), member(&there));
    let endpoint = reader.open("zenoh/peer?scouting=off,listen=tls/127.0.0.1:0").expect("it listens");
    let locator = endpoint.split_once("listen=").expect("where it listens").1.to_owned();
    let pumps: Subscriber<Pump> = reader.subscriber_on("pumps", &endpoint).expect("a subscriber");
    let at = format!("zenoh/peer/{locator}?scouting=off");
    let publisher: Publisher<Pump> = writer.publisher_on("pumps", &format!("json@{at}")).expect("a publisher");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&pump(1)).expect("published");
    assert_eq!(next(&pumps), pump(1));
    // A plain application with a certificate is let in.
    let session = plain_with("client", &[&locator], &[], &tls(&third, false)).expect("it is let in");
    let foreign = session.declare_publisher("pumps").encoding(Encoding::APPLICATION_JSON).wait().expect("one");
    until("the subscriber is known", || foreign.matching_status().wait().expect("a status").matching());
    foreign.put(encoded("json", &pump(2))).wait().expect("put");
    assert_eq!(next(&pumps), pump(2));
    // Nobody else is: neither with a certificate of another authority, nor with none, nor without
    // TLS.
    let stranger = others.member(&["stranger", "127.0.0.1"]);
    let mixed = Member { authority: here.authority.clone(), ..stranger.clone() };
    for settings in [tls(&stranger, false), tls(&mixed, false), tls(&here, true)] {
        assert!(plain_with("client", &[&locator], &[], &settings).is_err(), "{settings:?}");
    }
    assert!(plain_with("client", &[&locator.replace("tls/", "tcp/")], &[], &[]).is_err());
    for identity in [&stranger, &mixed] {
        assert!(member(identity).open(&format!("zenoh/client/{locator}?scouting=off")).is_err());
    }
    // And a server that no authority of the caller has signed for is not called.
    let impostor = member(&stranger).open("zenoh/peer?scouting=off,listen=tls/127.0.0.1:0").expect("it listens");
    let false_locator = impostor.split_once("listen=").expect("where it listens").1;
    assert!(member(&here).open(&format!("zenoh/client/{false_locator}?scouting=off")).is_err());
    // Without files there is no port.
    let error = Node::new().open(&at).expect_err("no identity").to_string();
    assert!(error.contains("POLYWIRE_CERTIFICATE"), "{error}");
}

/// Reads one message in JSON, and publishes the next one.
const ECHO: &str = r#"
import json, sys, zenoh
config = zenoh.Config()
config.insert_json5("connect/endpoints", json.dumps([sys.argv[1]]))
config.insert_json5("scouting/multicast/enabled", "false")
with zenoh.open(config) as session:
    publisher = session.declare_publisher(
        "pumps/back", encoding="application/json", congestion_control=zenoh.CongestionControl.BLOCK)
    sample = session.declare_subscriber("pumps/there").recv()
    assert str(sample.encoding).startswith("application/json;Plant::Pump@"), sample.encoding
    value = json.loads(sample.payload.to_string())
    value["id"] += 1
    while not publisher.matching_status.matching:
        pass
    publisher.put(json.dumps(value))
"#;

#[test]
fn python_reads_and_writes_the_same_topics() {
    if !tools::python_has("zenoh") {
        return;
    }
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let publisher: Publisher<Pump> = node.publisher_on("pumps/there", &format!("json@{endpoint}")).expect("one");
    let pumps: Subscriber<Pump> = node.subscriber_on("pumps/back", &endpoint).expect("a subscriber");
    let mut python = Command::new(tools::python()).args(["-c", ECHO, &locator]).spawn().expect("it starts");
    let until = Instant::now() + SOON;
    let back = loop {
        publisher.publish(&pump(7)).expect("published");
        if let Some(sample) = pumps.recv_timeout(Duration::from_millis(20)) {
            break sample.value;
        }
        assert!(Instant::now() < until, "Python does not answer");
    };
    assert_eq!(back, Pump { id: 8, ..pump(7) });
    assert!(python.wait().expect("it ends").success());
}

/// Publishes three messages, which it keeps, and one more after each line that it reads.
const EARLY: &str = r#"
import json, sys, zenoh, zenoh.ext
config = zenoh.Config()
config.insert_json5("connect/endpoints", json.dumps([sys.argv[1]]))
config.insert_json5("scouting/multicast/enabled", "false")
config.insert_json5("timestamping/enabled", "true")
with zenoh.open(config) as session:
    cache = zenoh.ext.CacheConfig(max_samples=10)
    publisher = zenoh.ext.declare_advanced_publisher(
        session, "pumps/early", encoding="application/json", cache=cache, publisher_detection=True,
        congestion_control=zenoh.CongestionControl.BLOCK)
    def publish(id):
        publisher.put(json.dumps({"id": id, "label": "", "pressures": []}))
    for id in range(1, 4):
        publish(id)
    print("published", flush=True)
    for id, _ in enumerate(sys.stdin, 4):
        publish(id)
"#;

#[test]
fn what_an_application_keeps_comes_to_a_late_subscriber_and_once() {
    if !tools::python_has("zenoh") {
        return;
    }
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let subscribe = || node.subscriber_on::<Pump>("pumps/early", &endpoint).expect("a subscriber");
    let ids = |pumps: &Subscriber<Pump>, count| -> Vec<u32> {
        let next = |_| pumps.recv_timeout(SOON).expect("a message").value.id;
        (0..count).map(next).collect()
    };
    // It is there before the application, which does not wait for anybody to take its messages.
    let early = subscribe();
    let mut python = Command::new(tools::python());
    let python = python.args(["-c", EARLY, &locator]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut python = python.expect("it starts");
    let mut says = BufReader::new(python.stdout.take().expect("piped")).lines();
    let mut publishes = python.stdin.take().expect("piped");
    assert_eq!(says.next().expect("a line").expect("text"), "published");
    assert_eq!(ids(&early, 3), [1, 2, 3]);
    publishes.write_all(b"\n").expect("written");
    assert_eq!(ids(&early, 1), [4]);
    drop(early);
    let late = subscribe();
    assert_eq!(ids(&late, 4), [1, 2, 3, 4]);
    // A pattern that includes the key brings nothing again.
    let all = node.subscriber_on::<Pump>("pumps/*", &endpoint).expect("a subscriber");
    publishes.write_all(b"\n").expect("written");
    assert_eq!((ids(&late, 1), ids(&all, 1)), (vec![5], vec![5]));
    drop(publishes);
    assert!(python.wait().expect("it ends").success());
    assert_eq!(late.recv_timeout(Duration::from_millis(100)).map(|again| again.value.id), None);
}

/// Prints the ids of three messages, of which it asks for those that were published before.
const LATE: &str = r#"
import json, sys, zenoh, zenoh.ext
config = zenoh.Config()
config.insert_json5("connect/endpoints", json.dumps([sys.argv[1]]))
config.insert_json5("scouting/multicast/enabled", "false")
with zenoh.open(config) as session:
    history = zenoh.ext.HistoryConfig(detect_late_publishers=True, max_samples=10)
    subscriber = zenoh.ext.declare_advanced_subscriber(session, "pumps/late", history=history)
    for _ in range(3):
        print(json.loads(subscriber.recv().payload.to_string())["id"], flush=True)
"#;

#[test]
fn an_application_that_comes_late_gets_the_history() {
    if !tools::python_has("zenoh") {
        return;
    }
    let node = Node::new();
    let (endpoint, locator) = alone(&node);
    let publish = node.publish::<Pump>("pumps/late", Some(&format!("json@{endpoint}"))).expect("a wire");
    let publisher = publish.qos(Qos::default().keep_last(5).transient_local()).expect("valid").open().expect("opens");
    publisher.hash_keys(true);
    for id in 1..=3 {
        publisher.publish(&pump(id)).expect("published");
    }
    publisher.dispose(&pump(1)).expect("disposed of");
    let python = Command::new(tools::python()).args(["-c", LATE, &locator]).stdout(Stdio::piped()).spawn();
    let mut python = python.expect("it starts");
    let mut ids = BufReader::new(python.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    assert_eq!((ids.next().as_deref(), ids.next().as_deref()), (Some("2"), Some("3")));
    publisher.publish(&pump(4)).expect("published");
    assert_eq!((ids.next().as_deref(), ids.next()), (Some("4"), None), "each once");
    assert!(python.wait().expect("it ends").success());
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Note {
    number: u32,
}

#[test]
fn an_application_that_comes_late_gets_as_much_as_a_publisher_keeps() {
    for depth in [2, 40] {
        let node = Node::new();
        let (endpoint, locator) = alone(&node);
        let publish = node.publish::<Note>("notes", Some(&format!("json@{endpoint}"))).expect("a wire");
        let kept = Qos::default().keep_last(depth).transient_local();
        let publisher = publish.qos(kept).and_then(polywire::Publish::open).expect("opens");
        let notes: Vec<Note> = (1..=60).map(|number| Note { number }).collect();
        publisher.publish_all(&notes).expect("published");
        let session = plain("client", &[&locator], &[]);
        let answers: Vec<String> = ask(&session, "notes/@adv/**?_anyke")
            .into_iter()
            .map(|(_, payload)| String::from_utf8(payload).expect("text"))
            .collect();
        let expected: Vec<String> = (61 - depth..=60).map(|number| format!("{{\"number\":{number}}}")).collect();
        assert_eq!(answers, expected);
    }
}
