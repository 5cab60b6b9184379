//! Many nodes meet at one router of Zenoh, each with a session of its own. A program of its own,
//! because it counts the threads and descriptors of the process.
#![cfg(all(feature = "zenoh", target_os = "linux"))]

use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use polywire::{Message, Node, Publisher, Subscriber};
use polywire_testing::waiting::{SOON, held, until};
use zenoh::{Config, Session, Wait};

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Pump {
    id: u32,
}

/// Each node reads the topics of so many others.
const READS: usize = 3;
/// So many messages are published on each topic.
const MESSAGES: u32 = 5;
/// One node writes another one so many mails at most, from the hello to goodbye. Some are repeated
/// if other programs have the processor.
const MAILS: usize = 24;
/// So many threads or descriptors may be more in the end: each session has several of them.
const SLACK: usize = 4;

/// A router, and where it listens.
fn router() -> (Session, String) {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let locator = format!("tcp/{}", listener.expect("a free port"));
    let mut config = Config::default();
    let listen = format!("[\"{locator}\"]");
    for (key, value) in [("mode", "\"router\""), ("scouting/multicast/enabled", "false"), ("listen/endpoints", &listen)]
    {
        config.insert_json5(key, value).expect("valid");
    }
    (zenoh::open(config).wait().expect("a router"), locator)
}

struct Member {
    node: Node,
    publisher: Publisher<Pump>,
    /// The topics of the next nodes, in their order.
    subscribers: Vec<Subscriber<Pump>>,
}

impl Member {
    fn join(number: usize, of: usize, locator: &str) -> Member {
        let node = Node::new();
        let at = format!("zenoh/client/{locator}?scouting=off");
        let topic = |number: usize| format!("plant/{number}");
        let publisher = node.publisher_on(&topic(number), &format!("cdr@{at}")).expect("a publisher");
        let subscriber = |step| node.subscriber_on(&topic((number + step) % of), &at).expect("a subscriber");
        let subscribers = (1..=READS).map(subscriber).collect();
        Member { node, publisher, subscribers }
    }
}

/// What takes long is told.
fn meet(nodes: usize) {
    let began = Instant::now();
    let (router, locator) = router();
    let mails = Arc::new(AtomicUsize::new(0));
    let counted = mails.clone();
    let count = router.declare_subscriber("@polywire/1/mail/*").callback(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    count.background().wait().expect("a subscriber");
    let mails = || mails.load(Ordering::Relaxed);
    let tell = |what: &str| {
        let [threads, descriptors] = held();
        let each = mails() as f64 / (nodes * (nodes - 1)) as f64;
        println!(
            "{nodes} nodes: {what} after {:.1?}, {threads} threads, {descriptors} descriptors, {each:.1} mails for each",
            began.elapsed()
        );
    };
    let members: Vec<Member> = (0..nodes).map(|number| Member::join(number, nodes, &locator)).collect();
    tell("all have joined");
    for member in &members {
        assert_eq!(member.publisher.wait_for_subscribers(READS, SOON), READS);
    }
    tell("all publishers have their subscribers");
    for id in 1..=MESSAGES {
        for (number, member) in members.iter().enumerate() {
            member.publisher.publish(&Pump { id: id + MESSAGES * number as u32 }).expect("published");
        }
    }
    for (number, member) in members.iter().enumerate() {
        for (step, subscriber) in member.subscribers.iter().enumerate() {
            let of = ((number + step + 1) % nodes) as u32;
            for id in 1..=MESSAGES {
                let sample = subscriber.recv_timeout(SOON).expect("a message");
                assert_eq!(sample.value, Pump { id: id + MESSAGES * of }, "{number} reads {of}");
            }
            assert_eq!((subscriber.lost(), subscriber.undecodable()), (0, 0), "{number} reads {of}");
        }
    }
    tell("all messages have come");
    let directory = members[0].node.directory();
    until("every node is listed, with its publisher and its subscribers", || {
        let snapshot = directory.snapshot();
        let pairs = snapshot.pairs().filter(|pair| pair.publisher.topic.starts_with("plant/")).count();
        (snapshot.nodes().count(), pairs) == (nodes, nodes * READS)
    });
    tell("all are listed");
    drop(directory);
    let closing = Instant::now();
    members.iter().for_each(|member| member.node.close());
    drop(members);
    tell("all are closed");
    assert!(mails() <= MAILS * nodes * (nodes - 1), "{} mails", mails());
    assert!(closing.elapsed() < Duration::from_secs(60), "closing takes {:?}", closing.elapsed());
}

fn leaves_nothing_behind(nodes: usize) {
    // What a library keeps for the whole process.
    meet(4);
    let before = held();
    meet(nodes);
    let is_less = || held().iter().zip(before).all(|(now, before)| *now <= before + SLACK);
    until(&format!("threads and descriptors were {before:?}"), is_less);
}

/// Zenoh without optimisation takes most of the time, which grows with the square of the number.
#[test]
fn fifty_sessions_meet_at_a_router_and_leave_nothing_behind() {
    leaves_nothing_behind(50);
}

/// For measuring, with `--release` and `--ignored --nocapture`.
#[test]
#[ignore = "takes minutes without optimisation"]
fn two_hundred_sessions_meet_at_a_router_and_leave_nothing_behind() {
    leaves_nothing_behind(200);
}
