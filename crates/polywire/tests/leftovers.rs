//! Nodes that come and go leave no thread and no descriptor of the process behind, over any engine.
//! A program of its own with one test, because what other tests open would be counted as well.
#![cfg(target_os = "linux")]

use std::{
    thread,
    time::{Duration, Instant},
};

use polywire::{Message, Node};
use polywire_testing::{
    endpoints, free_path,
    waiting::{SOON, held},
};

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Pump {
    id: u32,
}

/// Rounds after which an engine has what it keeps for the whole process, such as the threads of a
/// library, and the rounds that are measured.
const FIRST: usize = 3;
const MEASURED: usize = 12;
/// So many threads or descriptors may be more: each round opens several of them.
const SLACK: usize = 4;

/// The engines, and the endpoint that the first node opens, with a domain or a path of its own.
fn endpoints() -> Vec<(&'static str, String)> {
    let path = |kind: &str| format!("{kind}/{}", free_path(kind).display());
    let mut all = vec![
        ("local", path("local")),
        ("unix", path("unix")),
        ("tcp", "tcp/127.0.0.1:0".into()),
        ("udp-reliable", "udp-reliable/127.0.0.1:0".into()),
    ];
    if cfg!(feature = "shm") {
        all.push(("shm", path("shm")));
    }
    if cfg!(feature = "zeromq") {
        all.push(("zeromq", "zeromq/bind/tcp://127.0.0.1:0".into()));
    }
    if cfg!(feature = "zenoh") {
        all.push(("zenoh", "zenoh/peer?scouting=off,listen=tcp/127.0.0.1:0".into()));
    }
    if cfg!(feature = "dds") {
        all.push(("dds", format!("dds/{}?interface=127.0.0.1", polywire_testing::domains::lease())));
    }
    all
}

/// Two nodes meet, one hears the other, and both go.
fn round(endpoint: &str) {
    let (here, there) = (Node::new(), Node::new());
    let endpoint = here.open(endpoint).expect("it opens");
    let next = endpoints::second(&endpoint);
    let pumps = here.subscriber_on::<Pump>("plant/pump", &endpoint).expect("a subscriber");
    let publisher = there.publisher_on::<Pump>("plant/pump", &format!("cdr@{next}")).expect("a publisher");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{endpoint}");
    publisher.publish(&Pump { id: 7 }).expect("published");
    assert_eq!(pumps.recv_timeout(SOON).expect("a sample").value, Pump { id: 7 }, "{endpoint}");
}

#[test]
fn nodes_leave_no_thread_and_no_descriptor_behind() {
    for (engine, endpoint) in endpoints() {
        (0..FIRST).for_each(|_| round(&endpoint));
        // What ends just now is over soon.
        thread::sleep(Duration::from_millis(500));
        let before = held();
        (0..MEASURED).for_each(|_| round(&endpoint));
        let until = Instant::now() + SOON;
        while held().iter().zip(before).any(|(now, before)| *now > before + SLACK) {
            assert!(Instant::now() < until, "{engine}: threads and descriptors were {before:?} and are {:?}", held());
            thread::sleep(Duration::from_millis(10));
        }
    }
}
