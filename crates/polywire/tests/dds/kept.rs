//! What DDS programs keep for late subscribers.

use std::time::Duration;

use polywire::{Message, Node, Sample, Subscriber, qos::Qos};

use polywire_testing::waiting::until;

use crate::{
    Grown, Pump,
    program::{SOON, domain},
    pump, python, wire,
};

fn next(pumps: &Subscriber<Pump>) -> Sample<Pump> {
    pumps.recv_timeout(SOON).expect("a sample")
}

/// A subscriber that requests what was published before it came.
fn late<T: Message>(node: &Node, topic: &str, domain: u32) -> Subscriber<T> {
    let subscribe = node.subscribe::<T>(topic, Some(&wire("auto", domain))).expect("a wire");
    subscribe.qos(Qos::default().transient_local()).expect("valid policies").open()
}

#[test]
fn a_late_subscriber_gets_what_a_dds_program_has_kept() {
    let domain = domain();
    let Some(program) = python("keep", domain, "plant/pumps", "Pump") else { return };
    assert_eq!(program.line(), "ready");
    let node = Node::new();
    let pumps = node.subscriber_on::<Pump>("plant/pumps", &wire("auto", domain)).expect("a subscriber");
    for id in 1..=3 {
        assert_eq!(next(&pumps).value, pump(id));
    }
    assert_eq!((pumps.lost(), pumps.undecodable()), (0, 0));
}

/// The reader that the node has finds a second writer before the node knows its type.
#[test]
fn what_comes_before_the_type_of_its_writer_is_known_is_not_lost() {
    let (domain, node) = (domain(), Node::new());
    let grown = node.subscriber_on::<Grown>("grown", &wire("auto", domain)).expect("a subscriber");
    for (of, unit) in [("Grown", "none"), ("Taller", "m")] {
        let Some(_program) = python("keep", domain, "grown", of) else { return };
        for id in 1..=3 {
            let value = grown.recv_timeout(SOON).expect("a sample").value;
            assert_eq!(value, Grown { id, level: f64::from(id) / 2.0, unit: unit.into() });
        }
    }
}

#[test]
fn every_late_subscriber_of_a_node_that_requests_it_gets_what_a_dds_program_has_kept() {
    let (domain, node) = (domain(), Node::new());
    let Some(_program) = python("keep", domain, "plant/pumps", "Pump") else { return };
    let first = late::<Pump>(&node, "plant/pumps", domain);
    let one: Vec<Sample<Pump>> = (0..3).map(|_| next(&first)).collect();
    assert_eq!(one.iter().map(|sample| sample.value.id).collect::<Vec<_>>(), [1, 2, 3]);
    for _ in 0..2 {
        let later = late::<Pump>(&node, "plant/pumps", domain);
        for sample in &one {
            let again = next(&later);
            assert_eq!((&again.value, again.info.sequence), (&sample.value, sample.info.sequence));
        }
        let more = later.recv_timeout(Duration::from_millis(200));
        assert_eq!(more.map(|sample| sample.value), None, "nothing twice");
    }
    assert!(first.try_recv().is_none() && first.lost() == 0, "those who have it are not bothered");
}

#[test]
fn what_is_kept_and_what_is_written_meanwhile_come_in_order_and_once() {
    let (domain, node) = (domain(), Node::new());
    let Some(_program) = python("store", domain, "plant/pumps", "Pump") else { return };
    // The earlier ones go on reading, so that they share a reader with the later ones.
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(late::<Pump>(&node, "plant/pumps", domain));
        for id in 1..=100 {
            assert_eq!(next(&all[all.len() - 1]).value.id, id);
        }
    }
    assert!(all.iter().all(|pumps| pumps.lost() == 0));
}

/// The type `Grown` in another version, which fits that of the program `Grown` and not `Taller`.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Grown", appendable)]
struct Odd {
    #[polywire(key)]
    id: u32,
    level: f64,
    unit: u32,
}

#[test]
fn what_came_while_nobody_could_read_it_is_kept_by_its_writer() {
    let (domain, node) = (domain(), Node::new());
    let odd = node.subscriber_on::<Odd>("grown", &wire("auto", domain)).expect("a subscriber");
    let Some(_grown) = python("keep", domain, "grown", "Grown") else { return };
    (1..=3).for_each(|id| assert_eq!(odd.recv_timeout(SOON).expect("a sample").value.id, id));
    let _taller = python("keep", domain, "grown", "Taller");
    until("a mismatch", || !odd.status().mismatches.is_empty());
    let late = late::<Grown>(&node, "grown", domain);
    let mut values: Vec<Grown> = (0..6).map(|_| late.recv_timeout(SOON).expect("a kept sample").value).collect();
    values.sort_by_key(|value| (value.unit.clone(), value.id));
    let of = |unit: &str, id| Grown { id, level: f64::from(id) / 2.0, unit: unit.into() };
    assert_eq!(values, [of("m", 1), of("m", 2), of("m", 3), of("none", 1), of("none", 2), of("none", 3)]);
    assert_eq!((odd.try_recv().map(|sample| sample.value), late.lost()), (None, 0));
}

/// Writers of one topic with different policies have different readers here, and those of the
/// weaker ones have the stronger writers as well.
#[test]
fn readers_for_weaker_writers_bring_nothing_twice() {
    let (domain, node) = (domain(), Node::new());
    let Some(_volatile) = python("go", domain, "plant/pumps", "Pump") else { return };
    let pumps = node.subscriber_on::<Pump>("plant/pumps", &wire("auto", domain)).expect("a subscriber");
    let first = next(&pumps).info.source.announcement.writer;
    let _kept = python("store", domain, "plant/pumps", "Pump");
    let mut ids = std::collections::BTreeMap::<_, Vec<u32>>::new();
    while ids.len() < 2 || ids.values().any(|ids| ids.len() < 100) {
        let sample = next(&pumps);
        ids.entry(sample.info.source.announcement.writer).or_default().push(sample.value.id);
    }
    for (writer, ids) in ids {
        assert!(ids.is_sorted_by(|one, next| one + 1 == *next), "{ids:?}");
        assert!(writer == first || ids[0] == 1, "{ids:?}");
    }
    assert_eq!(pumps.lost(), 0);
}
