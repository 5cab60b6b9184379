//! Programs on other implementations of DDS than Cyclone: `fast.cpp` on eProsima Fast DDS 2, which
//! needs Debian's `libfastrtps-dev`, and `../dust` on Dust DDS, which `.ci/run` builds.

use std::{path::PathBuf, process::Command, sync::LazyLock};

use polywire::{Kind, Message, Node, Publish, coding::Discovered, qos::Qos};
use polywire_testing::{tools, waiting::until};

#[cfg(feature = "dds-security")]
use crate::security;
use crate::{
    Grown, Note, Pump, next, note,
    program::{Program, SOON, domain},
    pump,
    types::{Looser, Young},
    wire,
};

struct Vendor {
    name: &'static str,
    /// The codecs that its readers take.
    reads: &'static [&'static str],
    program: fn() -> Option<Command>,
}

const FAST: Vendor = Vendor { name: "Fast DDS", reads: &["cdr"], program: || FAST_PROGRAM.as_ref().map(Command::new) };
const DUST: Vendor =
    Vendor { name: "Dust DDS", reads: &["cdr", "xcdr2"], program: || tools::peer("dust", "polywire-dust-peer") };
const VENDORS: [Vendor; 2] = [FAST, DUST];

static FAST_PROGRAM: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    tools::cpp_has("fastdds/dds/domain/DomainParticipant.hpp").then(|| {
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dds-fast");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dds/fast.cpp");
        let mut compiler = Command::new("c++");
        // The headers of Fast DDS 2 use what the standard deprecates.
        compiler.args(["-std=c++17", "-Wall", "-Werror", "-Wno-deprecated-declarations", "-o"]).arg(&program);
        compiler.args([source, "-lfastrtps", "-lfastcdr"]);
        tools::output_of(&mut compiler, &[]).unwrap_or_else(|error| panic!("{compiler:?}: {error}"));
        program
    })
});

impl Vendor {
    /// Starts its program in a mode. `None` if it is not there.
    fn start(&self, mode: &str, domain: u32, topic: &str, of: &str) -> Option<Program> {
        let mut command = (self.program)()?;
        Some(Program::start(command.args([mode, &domain.to_string(), topic, of])))
    }
}

#[test]
fn what_they_write_is_read() {
    for vendor in &VENDORS {
        let (domain, node, name) = (domain(), Node::new(), vendor.name);
        let pumps = node.subscriber_on::<Pump>("plant/pumps", &wire("auto", domain)).expect("a subscriber");
        let notes = node.subscriber_on::<Note>("notes", &wire("auto", domain)).expect("a subscriber");
        let Some(_pumps) = vendor.start("write", domain, "plant/pumps", "Pump") else { continue };
        let _notes = vendor.start("write", domain, "notes", "Note");
        for id in 1..=3 {
            let (value, info) = next(&pumps);
            assert_eq!((value, info.kind, info.sequence), (pump(id), Kind::Data, id.into()), "{name}");
            assert!(info.timestamp_ns > 0, "{name}");
            assert_eq!(next(&notes).0, note(id as i32), "{name}");
        }
        // Fast DDS sends the hash of the key alone.
        let (end, info) = next(&pumps);
        assert_eq!((end, info.kind), (Pump { id: 1, ..Pump::default() }, Kind::Dispose), "{name}");
        for (lost, undecodable) in [(pumps.lost(), pumps.undecodable()), (notes.lost(), notes.undecodable())] {
            assert_eq!((lost, undecodable), (0, 0), "{name}");
        }
    }
}

#[test]
fn what_is_published_is_read_by_them() {
    for vendor in &VENDORS {
        for format in vendor.reads {
            let (domain, node, of) = (domain(), Node::new(), format!("{} in {format}", vendor.name));
            let pumps = node.publisher_on::<Pump>("plant/pumps", &wire(format, domain)).expect("a publisher");
            let notes = node.publisher_on::<Note>("notes", &wire(format, domain)).expect("a publisher");
            let Some(pump_reader) = vendor.start("read", domain, "plant/pumps", "Pump") else { continue };
            let note_reader = vendor.start("read", domain, "notes", "Note").expect("it was there");
            assert_eq!([pumps.wait_for_subscribers(1, SOON), notes.wait_for_subscribers(1, SOON)], [1, 1], "{of}");
            assert_eq!([pump_reader.line(), note_reader.line()], ["ready", "ready"], "{of}");
            pumps.publish(&pump(1)).expect("published");
            assert_eq!(pump_reader.line(), "alive Pump(id=1, level=0.5, name='pump 1')", "{of}");
            pumps.dispose(&pump(1)).expect("disposed");
            assert_eq!(pump_reader.line(), "disposed", "{of}");
            notes.publish(&note(2)).expect("published");
            assert_eq!(note_reader.line(), "alive Note(text='note 2', marks=[2, -2])", "{of}");
            let long = Note { text: "x".repeat(100_000), marks: Vec::new() };
            notes.publish(&long).expect("published");
            assert_eq!(note_reader.line(), format!("alive Note(text='{}', marks=[])", long.text), "{of}");
        }
    }
}

#[test]
fn late_ones_get_what_is_kept_on_both_sides() {
    for vendor in &VENDORS {
        let (domain, node, name) = (domain(), Node::new(), vendor.name);
        let publish = node.publish::<Pump>("plant/pumps", Some(&wire("cdr", domain))).expect("a wire");
        let kept = publish.qos(Qos::default().keep_last(1).transient_local());
        let publisher = kept.and_then(Publish::open).expect("a publisher");
        publisher.publish_all(&[1, 2, 3].map(pump)).expect("published");
        let Some(reader) = vendor.start("read", domain, "plant/pumps", "Pump") else { continue };
        assert_eq!(reader.line(), "ready", "{name}");
        for id in 1..=3 {
            let told = format!("alive Pump(id={id}, level={:?}, name='pump {id}')", f64::from(id) / 2.0);
            assert_eq!(reader.line(), told, "{name}");
        }
        let writer = vendor.start("keep", domain, "notes", "Note").expect("it was there");
        assert_eq!(writer.line(), "ready", "{name}");
        let subscribe = node.subscribe::<Note>("notes", Some(&wire("auto", domain))).expect("a wire");
        let notes = subscribe.qos(Qos::default().transient_local()).expect("valid policies").open();
        for number in 1..=3 {
            assert_eq!(next(&notes).0, note(number), "{name}");
        }
    }
}

#[test]
fn incompatible_policies_are_told_on_both_sides() {
    for vendor in &VENDORS {
        let (domain, node, name) = (domain(), Node::new(), vendor.name);
        let publisher = node.publisher_on::<Pump>("plant/pumps", &wire("cdr", domain)).expect("a publisher");
        let Some(reader) = vendor.start("strict", domain, "plant/pumps", "Pump") else { continue };
        until("it is refused", || publisher.status().refused_total > 0);
        let refusals = publisher.status().refusals;
        assert!(refusals[0].reason.contains("deadline (policy 4)"), "{name}: {refusals:?}");
        while reader.line() != "incompatible 4" {}
    }
}

/// Dust DDS announces types, and Fast DDS 2 does so in a form that Cyclone does not take.
#[test]
fn types_are_learned_where_they_are_told() {
    for (vendor, learns) in [(FAST, false), (DUST, true)] {
        let (domain, node) = (domain(), Node::new());
        let coding = Discovered::new().expect("records");
        let pumps =
            node.subscribe_of("plant/pumps", Some(&wire("auto", domain)), coding).expect("a subscription").open();
        let Some(_writer) = vendor.start("write", domain, "plant/pumps", "Pump") else { continue };
        if learns {
            let record = next(&pumps).0;
            assert_eq!((record.u64("id"), record.str("name")), (Ok(1), Ok("pump 1")));
        } else {
            until("it is told", || !pumps.status().mismatches.is_empty());
            let reason = &pumps.status().mismatches[0].reason;
            assert!(reason.contains("the writer's schema is unknown"), "{reason}");
        }
    }
}

#[test]
fn types_evolve_on_both_sides() {
    let (domain, node) = (domain(), Node::new());
    let young = node.subscriber_on::<Young>("grown", &wire("auto", domain)).expect("a subscriber");
    let grown = node.subscriber_on::<Grown>("grown", &wire("auto", domain)).expect("a subscriber");
    let looser = node.subscriber_on::<Looser>("loose", &wire("auto", domain)).expect("a subscriber");
    let Some(_grown) = DUST.start("write", domain, "grown", "Grown") else { return };
    let _loose = DUST.start("write", domain, "loose", "Loose");
    for id in 1..=3 {
        assert_eq!(next(&young).0, Young { id });
        assert_eq!(next(&grown).0, Grown { id, level: f64::from(id) / 2.0, unit: "none".into() });
        assert_eq!(next(&looser).0, Looser { id, name: format!("loose {id}"), unit: String::new() });
    }
    for format in DUST.reads {
        let grown = node.publisher_on::<Grown>(&format!("{format}/grown"), &wire(format, domain)).expect("a publisher");
        let reader = DUST.start("read", domain, &format!("{format}/grown"), "Grown").expect("it was there");
        assert_eq!(grown.wait_for_subscribers(1, SOON), 1, "{format}");
        grown.publish(&Grown { id: 7, level: 0.5, unit: "m".into() }).expect("published");
        assert_eq!([reader.line(), reader.line()], ["ready", "alive Grown(id=7, level=0.5)"], "{format}");
    }
}

/// The handshake is begun by one side, which the names of both certificates decide. If Fast DDS 2.9
/// begins, it proposes an exchange of keys in a form that Cyclone does not understand: with these
/// names, Cyclone begins.
#[test]
#[cfg(feature = "dds-security")]
fn members_of_a_fleet_reach_each_other() {
    let Some(fleet) = security::authority() else { return };
    let (domain, hall, three) = (domain(), security::member(&fleet, "hall"), security::member(&fleet, "three"));
    let folder = three.certificate.parent().expect("a folder");
    std::fs::copy(&three.authority, folder.join("authority.pem")).expect("copied");
    let start = |mode: &str, topic: &str| {
        let mut command = (FAST.program)()?;
        Some(Program::start(command.args([mode, &domain.to_string(), topic, "Pump"]).arg(folder)))
    };
    let node = security::node(Some(&hall));
    let pumps = node.subscriber_on::<Pump>("pumps", &security::secure("auto", domain)).expect("a subscriber");
    let Some(_writer) = start("write", "pumps") else { return };
    for id in 1..=3 {
        assert_eq!(next(&pumps).0, pump(id));
    }
    let (end, info) = next(&pumps);
    assert_eq!((end, info.kind), (Pump { id: 1, ..Pump::default() }, Kind::Dispose));
    let publisher = node.publisher_on::<Pump>("more", &security::secure("cdr", domain)).expect("a publisher");
    let reader = start("read", "more").expect("it was there");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&pump(1)).expect("published");
    assert_eq!([reader.line(), reader.line()], ["ready", "alive Pump(id=1, level=0.5, name='pump 1')"]);
}

/// As rmw_fastrtps, the middleware of ROS 2 that most use, names a topic and its type.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "std_msgs::msg::String", final)]
struct Text {
    data: String,
}

#[test]
fn a_topic_of_ros_passes_both_ways() {
    let (domain, node) = (domain(), Node::new());
    let ros = |format: &str| wire(format, domain) + "&ros=true";
    let texts = node.subscriber_on::<Text>("chatter", &ros("auto")).expect("a subscriber");
    let Some(_writer) = FAST.start("write", domain, "rt/chatter", "Text") else { return };
    for number in 1..=3 {
        assert_eq!(next(&texts).0, Text { data: format!("text {number}") });
    }
    let publisher = node.publisher_on::<Text>("echoes", &ros("cdr")).expect("a publisher");
    let reader = FAST.start("read", domain, "rt/echoes", "Text").expect("it was there");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&Text { data: "hello".into() }).expect("published");
    assert_eq!([reader.line(), reader.line()], ["ready", "alive Text(data='hello')"]);
}
