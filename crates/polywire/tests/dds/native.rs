//! Programs in C with the code that `idlc` makes of IDL: `native.c`, which is compiled here.

use std::{
    process::Command,
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use polywire::{
    Kind, Node, PublisherOf, Record, Subscriber,
    coding::{Discovered, Dynamic},
};
use polywire_core::codec::cdr::{XCDR2, key::KeyHasher};
use polywire_idl::Compiler;
use polywire_testing::{Folder, tools};

use crate::{
    next,
    program::{self, Program, SOON, domain},
    wire,
};

const IDL: &str = include_str!("native.idl");
const TOPIC: &str = "plant/units";
/// The values that `native write` writes. Their keys are longer than sixteen bytes, because Cyclone
/// DDS up to 0.10 does not hash shorter ones, whatever the type.
const FULL: &str = r#"{"id":7,"hall":"Nordhalle","mode":"AUTO","last":{"code":-3,"note":"leak"},"alarms":[{"code":1,"note":"hot"},{"code":-2}],"levels":[0.5,-1.25],"tags":["","zwölf"],"limit":99.5}"#;
const EMPTY: &str = r#"{"id":8,"hall":"Südhalle 8"}"#;

/// The program in a folder of its own.
struct Native(Folder);

impl Native {
    /// With these arguments for `idlc`. `None` if this machine lacks a tool.
    fn build(arguments: &[&str]) -> Option<Native> {
        let there = tools::has_program("idlc", "-v") && tools::c_has("dds/dds.h");
        there.then(|| {
            let folder = Folder::new("native");
            folder.write("native.idl", IDL);
            folder.write("program.c", include_str!("native.c"));
            run(Command::new("idlc").args(arguments).arg("native.idl").current_dir(folder.path()));
            let sources = ["-Wall", "-Werror", "-o", "native", "program.c", "native.c", "-lddsc"];
            run(Command::new("cc").args(sources).current_dir(folder.path()));
            Native(folder)
        })
    }

    fn start(&self, mode: &str, domain: u32) -> Program {
        program::start(Command::new(self.0.file("native")).args([mode, &domain.to_string(), TOPIC]))
    }
}

fn run(command: &mut Command) {
    tools::output_of(command, &[]).unwrap_or_else(|error| panic!("{command:?}: {error}"));
}

/// The type as Polywire reads it from the same IDL.
static UNIT: LazyLock<Dynamic> = LazyLock::new(|| {
    let document = Compiler::new().parse_str("native.idl", IDL).expect("valid IDL");
    Dynamic::of(&document.schema("plant::Unit").expect("a type")).expect("a shape")
});

fn value(json: &str) -> Record {
    Record::from_json(UNIT.shape(), json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// What `native write` writes, in its order.
fn is_what_it_writes(units: &Subscriber<Record>) {
    let mut hasher = KeyHasher::for_shape(&XCDR2, UNIT.shape()).expect("a hasher").expect("a key");
    for (kind, of) in [(Kind::Data, FULL), (Kind::Data, EMPTY), (Kind::Dispose, FULL), (Kind::Unregister, EMPTY)] {
        let (came, info) = next(units);
        assert_eq!(info.kind, kind, "{of}");
        if kind == Kind::Data {
            assert_eq!(came.to_json().expect("JSON"), value(of).to_json().expect("JSON"));
        } else {
            assert_eq!(info.key_hash.map(|hash| hash.0), Some(hasher.hash(&value(of)).expect("a hash")), "{of}");
        }
    }
    assert_eq!((units.lost(), units.undecodable()), (0, 0));
}

#[test]
fn a_c_program_is_read_with_and_without_its_idl() {
    let Some(native) = Native::build(&[]) else { return };
    let (domain, node) = (domain(), Node::new());
    let wire = wire("auto", domain);
    let units = node.subscribe_of(TOPIC, Some(&*wire), UNIT.clone()).expect("a subscription").open();
    let any = Discovered::new().expect("records");
    let unknown = node.subscribe_of(TOPIC, Some(&*wire), any).expect("a subscription").open();
    let _program = native.start("write", domain);
    is_what_it_writes(&units);
    is_what_it_writes(&unknown);
}

#[test]
fn a_c_program_that_announces_no_type_is_read_with_its_idl() {
    let Some(native) = Native::build(&["-t"]) else { return };
    let (domain, node) = (domain(), Node::new());
    let units = node.subscribe_of(TOPIC, Some(&wire("auto", domain)), UNIT.clone()).expect("a subscription").open();
    let _program = native.start("write", domain);
    is_what_it_writes(&units);
}

fn publisher(node: &Node, format: &str, domain: u32) -> PublisherOf<Dynamic> {
    node.publisher_of(TOPIC, Some(&wire(format, domain)), UNIT.clone()).expect("a publisher")
}

#[test]
fn a_c_program_reads_what_is_published_and_learns_of_ends() {
    for arguments in [&[][..], &["-t"]] {
        let Some(native) = Native::build(arguments) else { return };
        let (domain, node) = (domain(), Node::new());
        let units = publisher(&node, "xcdr2", domain);
        let program = native.start("read", domain);
        assert_eq!(units.wait_for_subscribers(1, SOON), 1);
        // The state is that of the time when the program takes the sample.
        let reads = |state: &str, of: &Record| {
            let line = program.line();
            let json = line.strip_prefix(state).unwrap_or_else(|| panic!("{state}: {line}"));
            assert_eq!(value(json), *of);
        };
        for (id, json) in [FULL, EMPTY].into_iter().enumerate() {
            let mut of = value(json);
            of.set("id", id as u64).expect("a member");
            units.publish(&of).expect("published");
            reads("alive ", &of);
            units.dispose(&of).expect("disposed");
            reads("disposed ", &of);
            units.publish(&of).expect("published");
            reads("alive ", &of);
            units.unregister(&of).expect("unregistered");
            reads("no writers ", &of);
        }
    }
}

/// Cyclone's C library up to 0.10 reads appendable types in XCDR2 alone.
#[test]
fn a_c_program_tells_why_it_does_not_read_an_appendable_type_in_xcdr1() {
    let Some(native) = Native::build(&[]) else { return };
    let (domain, node) = (domain(), Node::new());
    let units = publisher(&node, "cdr", domain);
    let program = native.start("strict", domain);
    assert_eq!(program.line(), "incompatible 25");
    let until = Instant::now() + SOON;
    while units.status().refused_total == 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let reason = &units.status().refusals[0].reason;
    assert!(reason.contains("data representation"), "{reason}");
}
