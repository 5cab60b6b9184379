//! Leases between nodes and programs that know only DDS.

use std::{
    io::Read as _,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use polywire::{
    Node, Publisher, Subscriber,
    qos::{InstanceState, Qos},
};
use polywire_testing::waiting::{Process, process_of, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Pump,
    lives::change,
    program::{SOON, domain},
    pump, python, wire,
};

const TOPIC: &str = "plant/pumps";

fn qos(text: &str) -> Qos {
    text.parse().expect(text)
}

fn subscriber(node: &Node, domain: u32, policies: &str) -> Subscriber<Pump> {
    let subscribe = node.subscribe::<Pump>(TOPIC, Some(&wire("auto", domain))).expect("a place");
    subscribe.qos(qos(policies)).expect(policies).instances().open()
}

fn publisher(node: &Node, domain: u32, policies: &str) -> Publisher<Pump> {
    let publish = node.publish::<Pump>(TOPIC, Some(&wire("cdr", domain))).expect("a place");
    publish.qos(qos(policies)).expect(policies).open().expect("a publisher")
}

#[test]
fn a_dds_program_that_is_suspended_is_not_alive_until_it_goes_on() {
    let (domain, node) = (domain(), Node::new());
    let events = node.events();
    let pumps = subscriber(&node, domain, "lease=1min");
    let hasty = subscriber(&node, domain, "lease=999ms");
    let manual = subscriber(&node, domain, "liveliness=manual-by-topic,lease=1min");
    let Some(program) = python("lease", domain, TOPIC, "Pump") else { return };
    let sample = pumps.recv_timeout(SOON).expect("a sample");
    assert_eq!(sample.info.instance, Some(InstanceState::Alive));
    program.signal(Signal::STOP);
    // On a busy machine it may have been late before.
    until("it is not alive", || !change(&events) && pumps.status().not_alive == 1);
    assert_eq!(pumps.status().writers, 1, "it may come back");
    let late = subscriber(&node, domain, "lease=1s");
    until("who comes meanwhile finds it so", || late.status().not_alive == 1);
    program.signal(Signal::CONT);
    until("it is alive again", || change(&events));
    until("for both", || pumps.status().not_alive + late.status().not_alive == 0);
    let samples = std::iter::from_fn(|| pumps.recv_timeout(SOON));
    let states: Vec<_> = samples
        .map(|sample| sample.info.instance)
        .take_while(|state| *state != Some(InstanceState::NoWriters))
        .collect();
    assert!(states.iter().all(|state| *state == Some(InstanceState::Alive)), "{states:?}");
    for (refusing, reason) in [
        (&hasty, "offered automatic with a lease of 1s, requested automatic with a lease of 999ms"),
        (&manual, "offered automatic with a lease of 1s, requested manual-by-topic with a lease of 1min"),
    ] {
        assert!(refusing.status().writers == 0 && refusing.try_recv().is_none());
        let mismatches = refusing.status().mismatches;
        assert!(mismatches[0].reason.contains(reason), "{}", mismatches[0].reason);
    }
    drop(program);
    until("who has gone is not counted", || pumps.status().writers == 0 && pumps.status().not_alive == 0);
}

#[test]
fn a_dds_program_that_does_not_assert_is_not_alive_until_it_writes() {
    let (domain, node) = (domain(), Node::new());
    let events = node.events();
    let pumps = subscriber(&node, domain, "liveliness=manual-by-topic,lease=500ms");
    let Some(_program) = python("manual", domain, TOPIC, "Pump") else { return };
    let changes: Vec<bool> = (0..4).map(|_| change(&events)).collect();
    assert_eq!(changes, [false, true, false, true]);
    assert_eq!((pumps.lost(), pumps.undecodable()), (0, 0));
}

#[test]
fn a_dds_program_learns_whether_the_application_of_a_publisher_asserts() {
    let (domain, node) = (domain(), Node::new());
    let publisher = publisher(&node, domain, "liveliness=manual-by-topic,lease=4s");
    let Some(program) = python("lively", domain, TOPIC, "Pump") else { return };
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&pump(1)).expect("published");
    assert_eq!(program.line(), "alive 1 0");
    // It may have lapsed before anybody read.
    let lost = publisher.status().liveliness_lost;
    let until = Instant::now() + Duration::from_secs(6);
    while Instant::now() < until {
        publisher.assert_liveliness().expect("asserted");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(publisher.status().liveliness_lost, lost);
    assert_eq!(program.line_within(Duration::ZERO), None, "longer than its lease");
    assert_eq!(program.line(), "alive 0 1");
    publisher.publish(&pump(1)).expect("published");
    assert_eq!(program.line(), "alive 1 0");
}

/// Not a test by itself: a process that publishes. Ends with its standard input.
#[test]
#[ignore = "run by another test"]
fn leased_publisher() {
    let domain = std::env::var("POLYWIRE_TEST_DOMAIN").expect("a domain").parse().expect("a number");
    let node = Node::new();
    let publisher = publisher(&node, domain, "lease=1s");
    let _ = publisher.wait_for_subscribers(1, SOON);
    let publishing = thread::spawn(move || {
        while publisher.publish(&pump(1)).is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    });
    let _ = std::io::stdin().read(&mut [0]);
    node.close();
    let _ = publishing.join();
}

#[test]
fn a_dds_program_learns_that_a_node_is_suspended() {
    let domain = domain();
    let Some(program) = python("waits", domain, TOPIC, "Pump") else { return };
    let Some(hasty) = python("hasty", domain, TOPIC, "Pump") else { return };
    let mut command = process_of("lively::leased_publisher");
    command.env("POLYWIRE_TEST_DOMAIN", domain.to_string());
    let process = Process(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts"));
    assert_eq!(program.line(), "alive 1 0");
    assert_eq!(hasty.line(), "incompatible 8");
    let pid = Pid::from_child(&process.0);
    kill_process(pid, Signal::STOP).expect("suspended");
    until("it is not alive", || program.line() == "alive 0 1");
    kill_process(pid, Signal::CONT).expect("goes on");
    until("it is alive", || program.line() == "alive 1 0");
}
