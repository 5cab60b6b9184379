//! Types of every extensibility, and versions of them, to and from a program that knows only DDS.

use polywire::{Kind, Message, Node, qos::Qos};

use crate::{
    Note, Pump,
    program::{SOON, domain},
    pump, python, wire,
};

/// The type `Grown` of `peer.py` before it had a level.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Grown", appendable)]
pub struct Young {
    #[polywire(key)]
    pub id: u32,
}

/// The type `Loose` of `peer.py`.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Loose", mutable)]
struct Loose {
    #[polywire(key)]
    id: u32,
    level: f64,
    name: String,
}

/// The same with its members in another order, without the level, and with one more.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Loose", mutable)]
pub struct Looser {
    #[polywire(id = 2)]
    pub name: String,
    #[polywire(id = 0, key)]
    pub id: u32,
    #[polywire(id = 3)]
    pub unit: String,
}

fn loose(id: u32) -> Loose {
    Loose { id, level: f64::from(id) / 2.0, name: format!("loose {id}") }
}

#[test]
fn a_dds_program_reads_a_type_without_key() {
    let (domain, node) = (domain(), Node::new());
    let publisher = node.publisher_on::<Note>("notes", &wire("cdr", domain)).expect("a publisher");
    let Some(program) = python("read", domain, "notes", "Note") else { return };
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&Note { text: "hot".into(), marks: vec![7, -7] }).expect("published");
    assert_eq!([program.line(), program.line()], ["ready", "alive Note(text='hot', marks=[7, -7])"]);
}

#[test]
fn a_late_dds_program_gets_what_a_publisher_keeps() {
    let (domain, node) = (domain(), Node::new());
    let publish = node.publish::<Pump>("plant/pumps", Some(&wire("cdr", domain))).expect("a wire");
    let kept = Qos::default().keep_last(2).transient_local();
    let publisher = publish.qos(kept).and_then(polywire::Publish::open).expect("a publisher");
    for level in 1..=4 {
        for id in [1, 2] {
            publisher.publish(&Pump { level: level.into(), ..pump(id) }).expect("published");
        }
    }
    let Some(program) = python("read", domain, "plant/pumps", "Pump") else { return };
    assert_eq!(program.line(), "ready");
    // The program takes instance after instance.
    let mut lines: Vec<String> = (0..8).map(|_| program.line()).collect();
    lines.sort_unstable();
    let told = |id, level| format!("alive Pump(id={id}, level={level}.0, name='pump {id}')");
    assert_eq!(
        lines,
        [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3), (2, 4)].map(|(id, level)| told(id, level))
    );
}

#[test]
fn a_late_dds_program_gets_as_much_as_a_publisher_keeps() {
    for (depth, published) in [(2, 40), (50, 60)] {
        let (domain, node) = (domain(), Node::new());
        let publish = node.publish::<Note>("notes", Some(&wire("cdr", domain))).expect("a wire");
        let kept = Qos::default().keep_last(depth).transient_local();
        let publisher = publish.qos(kept).and_then(polywire::Publish::open).expect("a publisher");
        let note = |at: u32| Note { text: format!("note {at}"), marks: Vec::new() };
        let notes: Vec<Note> = (0..published).map(note).collect();
        publisher.publish_all(&notes).expect("published");
        let Some(program) = python("read", domain, "notes", "Note") else { return };
        assert_eq!(program.line(), "ready");
        for at in published - depth..published {
            assert_eq!(program.line(), format!("alive Note(text='note {at}', marks=[])"));
        }
    }
}

#[test]
fn an_older_type_reads_a_grown_one_and_is_read_as_one() {
    let (domain, node) = (domain(), Node::new());
    let young = node.subscriber_on::<Young>("grown", &wire("auto", domain)).expect("a subscriber");
    let Some(_writer) = python("write", domain, "grown", "Grown") else { return };
    for id in 1..=3 {
        assert_eq!(young.recv_timeout(SOON).expect("a sample").value, Young { id });
    }
    let end = young.recv_timeout(SOON).expect("the end of an instance");
    assert_eq!((end.info.kind, end.value), (Kind::Dispose, Young { id: 1 }));
    let publisher = node.publisher_on::<Young>("young", &wire("xcdr2", domain)).expect("a publisher");
    let reader = python("read", domain, "young", "Grown").expect("it was there");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&Young { id: 7 }).expect("published");
    assert_eq!([reader.line(), reader.line()], ["ready", "alive Grown(id=7, level=0.0)"]);
}

#[test]
fn mutable_types_pass_both_ways_and_evolve() {
    let (domain, node) = (domain(), Node::new());
    let same = node.subscriber_on::<Loose>("loose", &wire("auto", domain)).expect("a subscriber");
    let other = node.subscriber_on::<Looser>("loose", &wire("auto", domain)).expect("a subscriber");
    let Some(_writer) = python("write", domain, "loose", "Loose") else { return };
    for id in 1..=3 {
        assert_eq!(same.recv_timeout(SOON).expect("a sample").value, loose(id));
        let Loose { name, .. } = loose(id);
        assert_eq!(other.recv_timeout(SOON).expect("a sample").value, Looser { id, name, unit: String::new() });
    }
    let end = other.recv_timeout(SOON).expect("the end of an instance");
    assert_eq!((end.info.kind, end.value), (Kind::Dispose, Looser { id: 1, ..Looser::default() }));
    let publisher = node.publisher_on::<Looser>("looser", &wire("xcdr2", domain)).expect("a publisher");
    let reader = python("read", domain, "looser", "Loose").expect("it was there");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&Looser { id: 7, name: "seven".into(), unit: "m".into() }).expect("published");
    assert_eq!([reader.line(), reader.line()], ["ready", "alive Loose(id=7, level=0.0, name='seven')"]);
}
