//! The engine `zeromq` together with other ZeroMQ applications: what they read and write, what they
//! cannot break, and who comes and goes.
#![cfg(feature = "zeromq")]

#[path = "common/pump.rs"]
mod pump;

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use polywire::{
    Config, Events, Message as _, Node, NodeEvent, Publisher, Subscriber,
    engine::{EngineOptions, Event, Overflow},
};
use polywire_testing::{free_path, tools, waiting::SOON};
use polywire_zeromq::{Context, Kind, Message as Frame, Socket, Wait};
use pump::{OtherPump, Pump, encoded, pump};

/// The endpoint of ZeroMQ behind one of Polywire's.
fn plain(endpoint: &str) -> &str {
    endpoint.strip_prefix("zeromq/connect/").expect("an endpoint to connect to")
}

/// A subscriber that is not Polywire's.
fn subscriber(endpoint: &str, prefix: &str) -> Socket {
    let socket = Context::new().and_then(|context| context.socket(Kind::Sub)).expect("a socket");
    socket.subscribe(prefix.as_bytes()).expect("it subscribes");
    socket.connect(endpoint).expect("it connects");
    socket
}

/// A publisher that is not Polywire's, and its endpoint.
fn publisher(bind: &str) -> (Socket, String) {
    let socket = Context::new().and_then(|context| context.socket(Kind::XPub)).expect("a socket");
    socket.bind(bind).expect("it is bound");
    let endpoint = socket.last_endpoint().expect("it has an endpoint");
    (socket, endpoint)
}

/// Waits until something is there.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until somebody subscribes to this.
fn until_subscribed(publisher: &Socket, prefix: &str) {
    let mut frame = Frame::new();
    until("a subscription", || {
        let came = publisher.receive(&mut frame, Wait::Most(Duration::from_millis(50))).expect("it works");
        (came && frame.first() == Some(&1) && &frame[1..] == prefix.as_bytes()).then_some(())
    });
}

/// All frames of the next message.
fn frames(socket: &Socket, wait: Duration) -> Option<Vec<Vec<u8>>> {
    let (mut frame, mut all) = (Frame::new(), Vec::new());
    loop {
        if !socket.receive(&mut frame, Wait::Most(wait)).expect("it works") {
            return None;
        }
        all.push(frame.to_vec());
        if !frame.has_more() {
            return Some(all);
        }
    }
}

fn next(subscriber: &Subscriber<Pump>) -> Pump {
    subscriber.recv_timeout(SOON).expect("a sample").value
}

/// A path of its own for a test.
fn path(name: &str) -> String {
    free_path(name).display().to_string()
}

/// Publishes until the subscriber hears something.
fn until_heard(socket: &Socket, publish: impl Fn()) -> Vec<Vec<u8>> {
    let until = Instant::now() + SOON;
    loop {
        publish();
        match frames(socket, Duration::from_millis(20)) {
            Some(message) => return message,
            None => assert!(Instant::now() < until, "nothing is heard"),
        }
    }
}

#[test]
fn a_plain_subscriber_reads_exactly_the_bytes_of_the_format() {
    for format in ["json", "cbor", "protobuf", "cdr", "bson"] {
        let node = Node::new();
        let endpoint = node.open("zeromq/bind/tcp://127.0.0.1:0").expect("it opens");
        let everything = subscriber(plain(&endpoint), "");
        let publisher: Publisher<Pump> =
            node.publisher_on("plant/pumps", &format!("{format}@{endpoint}")).expect("a publisher");
        let first = until_heard(&everything, || {
            publisher.publish(&pump(1)).expect("published");
        });
        assert_eq!(first, [b"plant/pumps".to_vec(), encoded(format, &pump(1))], "{format}");
        publisher.dispose(&pump(1)).expect("disposed of");
        publisher.publish(&pump(2)).expect("published");
        let mut heard = Vec::new();
        while heard.last() != Some(&encoded(format, &pump(2))) {
            let message = frames(&everything, SOON).expect("a message");
            assert_eq!((message.len(), &*message[0]), (2, &b"plant/pumps"[..]), "nothing else is heard");
            heard.push(message[1].clone());
        }
        heard.pop();
        assert!(heard.iter().all(|bytes| *bytes == encoded(format, &pump(1))), "{format}: no end of an instance");
    }
}

#[test]
fn messages_say_their_encoding_if_the_address_says_so() {
    let node = Node::new();
    let endpoint = node.open("zeromq/bind/tcp://127.0.0.1:0?encoding=on").expect("it opens");
    let pumps = subscriber(plain(&endpoint), "plant");
    let publisher: Publisher<Pump> =
        node.publisher_on("plant/pumps", &format!("json@{endpoint}")).expect("a publisher");
    let message = until_heard(&pumps, || {
        publisher.publish(&pump(1)).expect("published");
    });
    let encoding = String::from_utf8(message[2].clone()).expect("text");
    assert!(message.len() == 3 && encoding.starts_with("application/json;Plant::Pump@"), "{encoding}");
}

#[test]
fn subscribers_with_a_type_read_what_plain_publishers_write() {
    for (format, scheme) in [("json", "tcp"), ("cbor", "ipc"), ("protobuf", "tcp"), ("cdr", "ipc")] {
        let bind = if scheme == "tcp" { "tcp://127.0.0.1:*".into() } else { format!("ipc://{}", path("plain")) };
        let (plain, endpoint) = publisher(&bind);
        let node = Node::new();
        let wire = format!("{format}@zeromq/connect/{endpoint}");
        let pumps: Subscriber<Pump> = node.subscriber_on("plant/pumps", &wire).expect("a subscriber");
        until_subscribed(&plain, "plant/pumps");
        for id in 1..=100 {
            plain.send(&[b"plant/pumps", &encoded(format, &pump(id))], Wait::Forever).expect("sent");
            // Begins as the topic does.
            plain.send(&[b"plant/pumps2", b"garbage"], Wait::Forever).expect("sent");
        }
        (1..=100).for_each(|id| assert_eq!(next(&pumps), pump(id), "{format}"));
        assert_eq!((pumps.lost(), pumps.undecodable()), (0, 0), "{format}");
    }
}

#[test]
fn publishers_may_connect_to_a_bound_subscriber_and_say_their_encoding() {
    let node = Node::new();
    let at = format!("ipc://{}", path("sub"));
    let wire = format!("auto@zeromq/bind/{}?bind-sub={at}", format_args!("ipc://{}", path("pub")));
    let pumps: Subscriber<Pump> = node.subscriber_on("plant/*", &wire).expect("a subscriber");
    let plain = Context::new().and_then(|context| context.socket(Kind::XPub)).expect("a socket");
    plain.connect(&at).expect("it connects");
    until_subscribed(&plain, "plant");
    plain.send(&[b"plant/pumps", &encoded("json", &pump(3)), b"application/json"], Wait::Forever).expect("sent");
    assert_eq!(next(&pumps), pump(3));
}

#[test]
fn garbage_of_strangers_is_counted_and_told_and_breaks_nothing() {
    let (plain, endpoint) = publisher("tcp://127.0.0.1:*");
    let node = Node::new();
    let events = node.events();
    let wire = format!("json@zeromq/connect/{endpoint}");
    let pumps: Subscriber<Pump> = node.subscriber_on("**", &wire).expect("a subscriber");
    until_subscribed(&plain, "");
    let garbage: [&[&[u8]]; 6] = [
        &[b"alone"],
        &[b"", b""],
        &[b"\xff\xff", b""],
        &[b"a", b"", b"", b""],
        &[b"polywire/nodes", b"x"],
        &[b"a", b"x", b"\xff"],
    ];
    for _ in 0..3 {
        garbage.iter().for_each(|frames| assert!(plain.send(frames, Wait::Forever).expect("sent")));
    }
    plain.send(&[b"plant/pumps", b"no JSON"], Wait::Forever).expect("sent");
    plain.send(&[b"plant/pumps", &encoded("json", &pump(1))], Wait::Forever).expect("sent");
    assert_eq!(next(&pumps), pump(1));
    assert_eq!(pumps.undecodable(), 1);
    let ignored = |event| match event {
        NodeEvent::Engine { event: Event::Ignored { total, .. }, .. } => Some(total),
        _ => None,
    };
    let told: Vec<u64> = waiting(&events).filter_map(ignored).collect();
    assert_eq!(told, [1, 2, 4, 8, 16], "of 18");
}

#[test]
fn garbage_at_a_bound_publisher_breaks_nothing() {
    let node = Node::new();
    let endpoint = node.open("zeromq/bind/tcp://127.0.0.1:0").expect("it opens");
    let publisher: Publisher<Pump> = node.publisher_on("pumps", &format!("json@{endpoint}")).expect("a publisher");
    let address = plain(&endpoint).strip_prefix("tcp://").expect("TCP");
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 300], b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL\0\0"] {
        use std::io::Write as _;
        std::net::TcpStream::connect(address).and_then(|mut stream| stream.write_all(bytes)).expect("written");
    }
    // A question with too many bytes, and one that is none.
    let asking = subscriber(plain(&endpoint), &format!("@polywire/1/{}", "x".repeat(5000)));
    asking.subscribe(b"@polywire/1/zz-1").expect("it subscribes");
    let pumps = subscriber(plain(&endpoint), "pumps");
    let message = until_heard(&pumps, || {
        publisher.publish(&pump(1)).expect("published");
    });
    assert_eq!(message[1], encoded("json", &pump(1)));
}

/// A node with this policy.
fn hasty(overflow: Overflow) -> Node {
    with(|options| options.overflow = overflow)
}

fn with(change: impl FnOnce(&mut EngineOptions)) -> Node {
    let mut config = Config::default();
    change(&mut config.engine);
    Node::builder().config(config).build()
}

/// The events that have come.
fn waiting(events: &Events) -> impl Iterator<Item = NodeEvent> + '_ {
    std::iter::from_fn(|| events.try_recv())
}

#[test]
fn a_subscriber_that_reads_nothing_is_bounded_and_what_it_misses_is_told() {
    for overflow in [Overflow::DropNewest, Overflow::Block { patience: Duration::from_millis(100) }] {
        let node = hasty(overflow);
        let events = node.events();
        let endpoint = node.open("zeromq/bind/tcp://127.0.0.1:0?hwm=10").expect("it opens");
        let publisher: Publisher<Pump> = node.publisher_on("pumps", &format!("json@{endpoint}")).expect("a publisher");
        let (stuck, reading) = (subscriber(plain(&endpoint), "pumps"), subscriber(plain(&endpoint), "pumps"));
        for socket in [&stuck, &reading] {
            until_heard(socket, || {
                publisher.publish(&pump(1)).expect("published");
            });
        }
        let big = Pump { label: "x".repeat(100_000), ..pump(2) };
        let began = Instant::now();
        let reader = thread::spawn(move || {
            let mut count = 0;
            while let Some(message) = frames(&reading, Duration::from_secs(2)) {
                count += usize::from(message[1].len() > 100_000);
            }
            count
        });
        let mut dropped = 0;
        for _ in 0..2000 {
            dropped += publisher.publish(&big).expect("published").dropped;
        }
        assert!(dropped > 0, "{overflow:?}: 200 MB do not wait for one that reads nothing");
        assert!(began.elapsed() < SOON, "{overflow:?}: the stuck one holds up others for the patience alone");
        let of = |event: NodeEvent| match event {
            NodeEvent::Engine { event: Event::Dropped { count, .. }, .. } => count,
            _ => 0,
        };
        let mut told = 0;
        until("all that is missed is told, although nothing else is published", || {
            told += waiting(&events).map(of).sum::<u64>();
            (told >= dropped as u64).then_some(())
        });
        let got = reader.join().expect("it reads");
        assert!(got > 0, "{overflow:?}: the other one goes on");
        drop(stuck);
    }
}

#[test]
fn a_reader_that_is_only_slow_misses_nothing_if_publishers_wait() {
    let node = hasty(Overflow::Block { patience: SOON });
    let endpoint = node.open("zeromq/bind/tcp://127.0.0.1:0?hwm=5").expect("it opens");
    let publisher: Publisher<Pump> = node.publisher_on("pumps", &format!("json@{endpoint}")).expect("a publisher");
    let slow = subscriber(plain(&endpoint), "pumps");
    until_heard(&slow, || {
        publisher.publish(&pump(0)).expect("published");
    });
    let publishing = thread::spawn(move || {
        for id in 1..=300 {
            let big = Pump { label: "x".repeat(100_000), ..pump(id) };
            assert_eq!(publisher.publish(&big).expect("published").dropped, 0);
        }
        publisher
    });
    let mut expected = 1;
    while expected <= 300 {
        let message = frames(&slow, SOON).expect("a message");
        if message[1].len() > 100_000 {
            assert_eq!(message[1], encoded("json", &Pump { label: "x".repeat(100_000), ..pump(expected) }));
            expected += 1;
            thread::sleep(Duration::from_millis(1));
        }
    }
    publishing.join().expect("it publishes");
}

/// Endpoints of each transport.
fn transports(name: &str) -> [String; 3] {
    ["tcp://127.0.0.1:0".into(), format!("ipc://{}", path(name)), format!("inproc://{name}")]
}

#[test]
fn nodes_meet_over_every_transport_and_hear_each_message_once() {
    for place in transports("meet") {
        let (here, there) = (Node::new(), Node::new());
        let endpoint = here.open(&format!("zeromq/bind/{place}")).expect("it opens");
        let pumps: Subscriber<Pump> =
            there.subscriber_on("plant/pumps", &format!("auto@{endpoint}")).expect("it opens");
        let back: Subscriber<Pump> = here.subscriber_on("plant/back", &format!("auto@{endpoint}")).expect("it opens");
        let publisher: Publisher<Pump> =
            here.publisher_on("plant/pumps", &format!("cdr@{endpoint}")).expect("it opens");
        let answering: Publisher<Pump> =
            there.publisher_on("plant/back", &format!("cbor@{endpoint}")).expect("it opens");
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{place}");
        for id in 0..500 {
            publisher.publish(&pump(id)).expect("published");
        }
        (0..500).for_each(|id| assert_eq!(next(&pumps), pump(id), "{place}"));
        assert_eq!(answering.wait_for_subscribers(1, SOON), 1, "{place}");
        answering.publish(&pump(7)).expect("published");
        assert_eq!(next(&back), pump(7), "{place}");
        assert!(pumps.recv_timeout(Duration::from_millis(700)).is_none(), "{place}: nothing comes twice");
        assert_eq!((pumps.lost(), here.links(), there.links()), (0, 1, 1), "{place}");
    }
}

#[test]
fn a_publisher_that_comes_back_is_found_again_whoever_it_is() {
    let (first, endpoint) = publisher("tcp://127.0.0.1:*");
    let node = Node::new();
    let wire = format!("json@zeromq/connect/{endpoint}");
    let pumps: Subscriber<Pump> = node.subscriber_on("pumps", &wire).expect("a subscriber");
    until_subscribed(&first, "pumps");
    first.send(&[b"pumps", &encoded("json", &pump(1))], Wait::Forever).expect("sent");
    assert_eq!(next(&pumps), pump(1));
    drop(first);

    // Then a node publishes there.
    let other = Node::new();
    let publisher: Publisher<Pump> =
        until("the port is free", || other.publisher_on("pumps", &format!("json@zeromq/bind/{endpoint}")).ok());
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&pump(2)).expect("published");
    assert_eq!(next(&pumps), pump(2));
    assert!(pumps.recv_timeout(Duration::from_millis(100)).is_none(), "it comes once");
    other.close();
    drop(publisher);

    // And then an application again.
    let third = Context::new().and_then(|context| context.socket(Kind::XPub)).expect("a socket");
    until("the port is free", || third.bind(&endpoint).ok());
    until_subscribed(&third, "pumps");
    third.send(&[b"pumps", &encoded("json", &pump(3))], Wait::Forever).expect("sent");
    assert_eq!(next(&pumps), pump(3));
}

#[test]
fn types_that_differ_under_one_name_are_told_at_both_ends() {
    let (writer, reader) = (Node::new(), Node::new());
    let bound = writer.open("zeromq/bind/tcp://127.0.0.1:0").expect("it is bound");
    let publisher: Publisher<Pump> = writer.publisher_on("pumps", &format!("cdr@{bound}")).expect("a publisher");
    let others: Subscriber<OtherPump> =
        reader.subscriber_on("pumps", &bound.replacen("bind", "connect", 1)).expect("a subscriber");
    until("the mismatch", || (publisher.status().refusing == 1 && others.status().unreadable == 1).then_some(()));
    let (here, there) = (others.status(), publisher.status());
    let reason = &here.mismatches[0].reason;
    assert!(reason.contains("label") && here.mismatches[0].writer == publisher.writer(), "{reason}");
    assert_eq!(there.refusals[0].reason, *reason);
    assert_eq!(publisher.publish(&pump(1)).expect("published").refused, 1);
    assert!(others.try_recv().is_none());
}

#[test]
fn without_nodes_others_are_read_as_any_application() {
    let (here, there) = (Node::new(), Node::new());
    let endpoint = here.open("zeromq/bind/tcp://127.0.0.1:0?nodes=off").expect("it opens");
    let publisher: Publisher<Pump> = here.publisher_on("pumps", &format!("json@{endpoint}")).expect("a publisher");
    let pumps: Subscriber<Pump> =
        there.subscriber_on("pumps", &format!("json@{endpoint}?nodes=off")).expect("it opens");
    let first = until("a message", || {
        publisher.publish(&pump(1)).expect("published");
        pumps.recv_timeout(Duration::from_millis(20))
    });
    assert_eq!((first.value, here.links()), (pump(1), 0));
}

#[test]
fn mistakes_are_told_when_an_endpoint_is_opened() {
    let node = Node::new();
    let wrong = node.open("zeromq/tcp://127.0.0.1:5556").expect_err("the role is missing").to_string();
    assert!(wrong.contains("'bind/' or 'connect/'"), "{wrong}");
    let endpoint = node.open("zeromq/bind/tcp://127.0.0.1:0").expect("it opens");
    let taken = Node::new().open(&format!("zeromq/bind/{}", plain(&endpoint))).expect_err("it is taken").to_string();
    assert!(taken.contains("in use"), "{taken}");
    let file = format!("zeromq/bind/ipc://{}", path("taken"));
    node.open(&file).expect("it opens");
    let taken = Node::new().open(&file).expect_err("it is taken").to_string();
    assert!(taken.contains("in use"), "{taken}");

    // Nobody is there: that is told once, and looked for again.
    let lonely = with(|options| options.connect_timeout = Duration::from_millis(100));
    let events = lonely.events();
    lonely.open("zeromq/connect/tcp://127.0.0.1:1").expect("it opens");
    let told = until("an event", || {
        waiting(&events).find_map(|event| match event {
            NodeEvent::Engine { event: Event::Unreachable { reason, .. }, .. } => Some(reason),
            _ => None,
        })
    });
    assert_eq!(told, "nobody publishes at tcp://127.0.0.1:1");
}

/// Reads one message in JSON, and publishes the next one.
const ECHO: &str = r#"
import json, sys, zmq
context = zmq.Context()
sub, pub = context.socket(zmq.SUB), context.socket(zmq.XPUB)
sub.subscribe(b"pumps/there")
sub.connect(sys.argv[1])
pub.bind(sys.argv[2])
topic, payload = sub.recv_multipart()
assert topic == b"pumps/there", topic
value = json.loads(payload)
value["id"] += 1
while pub.recv() != b"\x01pumps/back":
    pass
pub.send_multipart([b"pumps/back", json.dumps(value).encode()])
sub.recv_multipart()
"#;

#[test]
fn python_reads_and_writes_the_same_topics() {
    if !tools::python_has("zmq") {
        return;
    }
    let (node, back) = (Node::new(), format!("ipc://{}", path("python")));
    let endpoint = node.open(&format!("zeromq/bind/tcp://127.0.0.1:0?connect={back}")).expect("it opens");
    let publisher: Publisher<Pump> = node.publisher_on("pumps/there", &format!("json@{endpoint}")).expect("one");
    let pumps: Subscriber<Pump> = node.subscriber_on("pumps/back", &format!("json@{endpoint}")).expect("a subscriber");
    let mut python =
        Command::new(tools::python()).args(["-c", ECHO, plain(&endpoint), &back]).spawn().expect("it starts");
    let came = until("Python answers", || {
        publisher.publish(&pump(7)).expect("published");
        pumps.recv_timeout(Duration::from_millis(20))
    });
    assert_eq!(came.value, Pump { id: 8, ..pump(7) });
    publisher.publish(&pump(9)).expect("published");
    assert!(python.wait().expect("it ends").success());
}

/// Neither has an id, so only their endpoints tell them apart.
#[test]
fn a_bridge_passes_on_other_applications_of_both_ends() {
    let [(one, at_one), (other, at_other)] = ["one", "other"].map(|name| publisher(&format!("ipc://{}", path(name))));
    let node = Node::new();
    let ends = [&at_one, &at_other].map(|at| format!("zeromq/connect/{at}"));
    let builder = node.bridge(&ends[0], &ends[1]).and_then(|bridge| Ok(bridge.topics(["plant/**"])?));
    let bridge = builder.expect("it opens").open();
    // Where a port only connects, nobody subscribes.
    until("both come", || {
        for socket in [&one, &other] {
            socket.send(&[b"plant/pumps", b"{}"], Wait::Forever).expect("sent");
        }
        thread::sleep(Duration::from_millis(10));
        let status = bridge.status();
        (status.there.unread > 0 && status.back.unread > 0).then_some(())
    });
    assert_eq!((bridge.status().there.channels, bridge.status().back.channels), (1, 1));
}

/// It announces neither its type nor its format.
#[test]
fn a_bridge_converts_what_another_application_publishes() {
    let (socket, at) = publisher(&format!("ipc://{}", path("converted")));
    let node = Node::new();
    let bridge = node.bridge(&format!("json@zeromq/connect/{at}"), "cbor@inproc/zeromq-converted").expect("it opens");
    let bridge = bridge.topics(["plant/**"]).expect("a pattern").assume(Pump::shape().schema().clone()).open();
    let pumps: Subscriber<Pump> = node.subscriber_on("plant/pumps", "inproc/zeromq-converted").expect("a subscriber");
    until("it passes", || {
        socket.send(&[b"plant/pumps", &encoded("json", &pump(7))], Wait::Forever).expect("sent");
        thread::sleep(Duration::from_millis(10));
        pumps.try_recv().map(|sample| {
            assert_eq!((sample.value, sample.info.source.announcement.codec.as_str()), (pump(7), "cbor"));
        })
    });
    assert_eq!(bridge.status().there.refused, 0);
}
