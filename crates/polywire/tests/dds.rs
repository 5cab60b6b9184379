//! The engine `dds`: programs that know only DDS, and nodes in other processes.
//!
//! The programs are `dds/peer.py`, which needs Python's package `cyclonedds`, and `ddsperf` and
//! `dds/native.c`, which need Debian's `cyclonedds-tools` and `cyclonedds-dev` of an older version
//! of Cyclone DDS, and those of other implementations (`dds/vendors.rs`).

#![cfg(feature = "dds")]

#[path = "common/fleet.rs"]
#[cfg(feature = "dds-security")]
mod fleet;
#[path = "dds/hostile.rs"]
mod hostile;
#[path = "dds/kept.rs"]
mod kept;
#[path = "dds/lively.rs"]
#[cfg(unix)]
mod lively;
#[path = "common/lives.rs"]
mod lives;
#[path = "dds/native.rs"]
mod native;
#[path = "dds/offers.rs"]
mod offers;
#[path = "dds/permissions.rs"]
#[cfg(feature = "dds-security")]
mod permissions;
#[path = "dds/program.rs"]
mod program;
#[path = "dds/security.rs"]
#[cfg(feature = "dds-security")]
mod security;
#[path = "dds/services.rs"]
mod services;
#[path = "dds/types.rs"]
mod types;
#[path = "dds/vendors.rs"]
mod vendors;

use std::{
    env,
    process::Command,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use polywire::{
    Info, Kind, Node, Subscriber,
    coding::Discovered,
    directory::{NodeData, SubscriberData},
    qos::{Qos, Reliability},
};
use polywire_derive::Message;
use polywire_testing::tools;

use program::{Program, SOON, domain, peer};

fn wire(format: &str, domain: u32) -> String {
    format!("{format}@dds/{domain}?interface=127.0.0.1")
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Pump", final)]
struct Pump {
    #[polywire(key)]
    id: u32,
    level: f64,
    name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Note", final)]
struct Note {
    text: String,
    marks: Vec<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Grown", appendable)]
struct Grown {
    #[polywire(key)]
    id: u32,
    level: f64,
    #[polywire(default = "none")]
    unit: String,
}

fn pump(id: u32) -> Pump {
    Pump { id, level: f64::from(id) / 2.0, name: format!("pump {id}") }
}

fn note(number: i32) -> Note {
    Note { text: format!("note {number}"), marks: vec![number, -number] }
}

fn next<T>(samples: &Subscriber<T>) -> (T, Info) {
    let sample = samples.recv_timeout(SOON).expect("a sample");
    (sample.value, sample.info)
}

/// `None` if this machine has no such Python package.
fn python(mode: &str, domain: u32, topic: &str, of: &str) -> Option<Program> {
    peer(mode, domain, topic, of).map(|mut command| program::start(&mut command))
}

#[test]
fn topics_of_a_dds_program_are_read() {
    for format in ["cdr", "auto"] {
        let domain = domain();
        let node = Node::new();
        let pumps = node.subscriber_on::<Pump>("plant/pumps", &wire(format, domain)).expect("a subscriber");
        let Some(_program) = python("write", domain, "plant/pumps", "Pump") else { return };
        for id in 1..=3 {
            let sample = pumps.recv_timeout(SOON).expect("a sample");
            assert_eq!((&sample.value, sample.info.kind, sample.info.sequence), (&pump(id), Kind::Data, id.into()));
            assert!(sample.info.timestamp_ns > 0);
        }
        let end = pumps.recv_timeout(SOON).expect("the end of an instance");
        let mut key = [0; 16];
        key[3] = 1;
        assert_eq!((end.info.kind, end.info.key_hash.map(|hash| hash.0)), (Kind::Dispose, Some(key)));
        assert_eq!(end.value, Pump { id: 1, ..Pump::default() }, "a key is all that comes");
        assert_eq!((pumps.lost(), pumps.undecodable()), (0, 0));
    }
}

#[test]
fn topics_without_key_and_grown_types_are_read() {
    let domain = domain();
    let node = Node::new();
    let notes = node.subscriber_on::<Note>("notes", &wire("auto", domain)).expect("a subscriber");
    let grown = node.subscriber_on::<Grown>("grown", &wire("auto", domain)).expect("a subscriber");
    let Some(_program) = python("write", domain, "notes", "Note") else { return };
    let _other = python("write", domain, "grown", "Grown");
    for number in 1..=3 {
        assert_eq!(next(&notes).0, note(number));
        let value = grown.recv_timeout(SOON).expect("a sample").value;
        assert_eq!(value, Grown { id: number as u32, level: f64::from(number) / 2.0, unit: "none".into() });
    }
}

#[test]
fn a_dds_program_reads_what_is_published() {
    for format in ["cdr", "xcdr2", "cdr:be", "xcdr2:header"] {
        let domain = domain();
        let node = Node::new();
        let publisher = node.publisher_on::<Pump>("plant/pumps", &wire(format, domain)).expect("a publisher");
        let Some(program) = python("read", domain, "plant/pumps", "Pump") else { return };
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{format}");
        for id in 1..=2 {
            assert_eq!(publisher.publish(&pump(id)).expect("published").subscribers, 1, "{format}");
        }
        publisher.dispose(&pump(2)).expect("disposed");
        assert_eq!(program.line(), "ready", "{format}");
        let lines: Vec<String> = (0..2).map(|_| program.line()).collect();
        assert_eq!(lines[0], "alive Pump(id=1, level=0.5, name='pump 1')", "{format}");
        // The end may come together with the value.
        let ended = lines[1].strip_prefix("disposed ").unwrap_or(&lines[1]);
        assert!(ended.ends_with("Pump(id=2, level=1.0, name='pump 2')"), "{format}: {ended}");
        assert!(lines[1].starts_with("disposed") || program.line().starts_with("disposed"), "{format}");
    }
}

/// A program whose lease has lapsed is found anew, and its samples have the numbers that follow.
#[test]
#[cfg(unix)]
fn a_dds_program_that_was_suspended_is_heard_again() {
    use rustix::process::Signal;
    let domain = domain();
    let node = Node::new();
    let pumps = node.subscriber_on::<Pump>("plant/pumps", &wire("auto", domain)).expect("a subscriber");
    let Some(mut command) = peer("go", domain, "plant/pumps", "Pump") else { return };
    let lease = "<Discovery><LeaseDuration>1s</LeaseDuration></Discovery></Domain>";
    let program = Program::start(command.env("CYCLONEDDS_URI", program::LOOPBACK.replace("</Domain>", lease)));
    let next = || pumps.recv_timeout(SOON).expect("a sample");
    let before = std::iter::repeat_with(next).find(|sample| sample.info.sequence >= 300).expect("endless");
    program.signal(Signal::STOP);
    while pumps.status().writers > 0 {
        thread::sleep(Duration::from_millis(10));
    }
    while pumps.try_recv().is_some() {}
    program.signal(Signal::CONT);
    let after = next();
    assert!(after.value.id > before.value.id, "{after:?}");
    assert_eq!(after.info.sequence, u64::from(after.value.id), "{after:?}");
}

#[test]
fn incompatible_policies_are_told_with_their_names_on_both_sides() {
    let domain = domain();
    let node = Node::new();
    let publisher = node.publisher_on::<Pump>("plant/pumps", &wire("cdr", domain)).expect("a publisher");
    let Some(program) = python("strict", domain, "plant/pumps", "Pump") else { return };
    let until = Instant::now() + SOON;
    while publisher.status().refused_total == 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let status = publisher.status();
    assert_eq!((status.accepting, status.refusing), (0, 1));
    assert!(status.refusals[0].reason.contains("deadline (policy 4)"), "{}", status.refusals[0].reason);
    while program.line() != "incompatible 4" {}
}

fn refusals(programs: &[NodeData]) -> usize {
    programs.iter().flat_map(|program| &program.subscribers).map(|reader| reader.refuses.len()).sum()
}

#[test]
fn readers_of_dds_programs_are_listed_with_what_they_read() {
    let domain = domain();
    let (node, tool) = (Node::new(), Node::new());
    let publisher = node.publisher_on::<Pump>("plant/pumps", &wire("cdr", domain)).expect("a publisher");
    let other = node.publisher_on::<Note>("notes", &wire("xcdr2", domain)).expect("a publisher");
    let Some(_reader) = python("read", domain, "plant/pumps", "Pump") else { return };
    let _strict = python("strict", domain, "plant/pumps", "Pump");
    let _note = python("read", domain, "notes", "Pump");
    tool.open(&format!("dds/{domain}?interface=127.0.0.1")).expect("open");
    for node in [&node, &tool] {
        let until = Instant::now() + SOON;
        // Whether types that differ in details match, only the writer's node knows.
        let is_tool = std::ptr::eq(node, &tool);
        let reads = if is_tool { vec![] } else { vec![publisher.writer()] };
        let is_told = |one: &SubscriberData| is_tool || one.reads.len() + one.refuses.len() == 1;
        let all = |program: &NodeData| !program.subscribers.is_empty() && program.subscribers.iter().all(is_told);
        let programs = loop {
            let programs = node.foreign_readers();
            if programs.len() == 3 && programs.iter().all(all) && refusals(&programs) == 2 {
                break programs;
            }
            assert!(Instant::now() < until, "{programs:#?}");
            thread::sleep(Duration::from_millis(5));
        };
        let readers: Vec<&SubscriberData> = programs.iter().flat_map(|program| &program.subscribers).collect();
        assert_eq!(readers.len(), 3);
        let reads = readers.iter().find(|one| one.refuses.is_empty() && one.reads == reads).expect("one that reads");
        assert_eq!((reads.topic.as_str(), reads.type_name.as_str()), ("plant/pumps", "plant::Pump"));
        assert_eq!(reads.qos, Qos::default().reliability(Reliability::Reliable).transient_local());
        let refuses = |topic: &str| {
            let mut refusing = readers.iter().filter(|one| one.topic == topic).flat_map(|one| &one.refuses);
            refusing.next().expect("the one that does not read")
        };
        let (strict, note) = (refuses("plant/pumps"), refuses("notes"));
        assert_eq!(strict.writer, publisher.writer());
        assert_eq!(strict.reason, "deadline (policy 4): offered infinite, requested 10ms");
        assert_eq!(note.writer, other.writer());
        assert_eq!(note.reason, "the writer has the type plant::Note, the reader plant::Pump");
        let name = &programs[0].name;
        assert!(name.starts_with(&format!("dds/{domain}?interface=127.0.0.1 ")), "{name}");
    }
}

#[test]
fn topics_of_a_dds_program_are_read_without_knowing_their_types() {
    let domain = domain();
    let node = Node::new();
    let wire = wire("auto", domain);
    let open = |topic: &str| {
        let coding = Discovered::new().expect("records");
        node.subscribe_of(topic, Some(&*wire), coding).expect("a subscription").open()
    };
    let (pumps, notes) = (open("plant/pumps"), open("notes"));
    let Some(_program) = python("write", domain, "plant/pumps", "Pump") else { return };
    let _other = python("write", domain, "notes", "Note");
    for id in 1u32..=3 {
        let sample = pumps.recv_timeout(SOON).expect("a sample");
        let value = &sample.value;
        let read = (value.u64("id"), value.f64("level"), value.str("name"));
        assert_eq!(read, (Ok(id.into()), Ok(f64::from(id) / 2.0), Ok(&*format!("pump {id}"))));
        let announced = &sample.info.source.announcement;
        assert_eq!((announced.type_name.as_str(), announced.schema.is_zero()), ("plant::Pump", false));
        let note = notes.recv_timeout(SOON).expect("a sample").value;
        assert_eq!((note.str("text"), note.i64("marks[1]")), (Ok(&*format!("note {id}")), Ok(-i64::from(id))));
    }
    assert_eq!((pumps.undecodable(), notes.undecodable()), (0, 0));
}

#[test]
fn a_dds_program_reads_what_is_published_without_knowing_its_type() {
    for format in ["cdr", "xcdr2"] {
        let domain = domain();
        let node = Node::new();
        let publisher = node.publisher_on::<Pump>("plant/pumps", &wire(format, domain)).expect("a publisher");
        let Some(program) = python("any", domain, "plant/pumps", "-") else { return };
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{format}");
        publisher.publish(&pump(1)).expect("published");
        assert_eq!(program.line(), "ready", "{format}");
        assert_eq!(program.line(), "alive Pump(id=1, level=0.5, name='pump 1')", "{format}");
    }
}

#[test]
fn a_dds_program_reads_a_grown_type_as_its_own() {
    let domain = domain();
    let node = Node::new();
    let publisher = node.publisher_on::<Grown>("grown", &wire("xcdr2", domain)).expect("a publisher");
    let Some(program) = python("read", domain, "grown", "Grown") else { return };
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&Grown { id: 7, level: 0.5, unit: "m".into() }).expect("published");
    assert_eq!([program.line(), program.line()], ["ready", "alive Grown(id=7, level=0.5)"]);
}

/// A pump whose level is a text.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Pump", final)]
struct Other {
    #[polywire(key)]
    id: u32,
    level: String,
    name: String,
}

#[test]
fn types_that_differ_under_one_name_do_not_match() {
    let domain = domain();
    let node = Node::new();
    let publisher = node.publisher_on::<Other>("plant/pumps", &wire("cdr", domain)).expect("a publisher");
    let Some(_reader) = python("read", domain, "plant/pumps", "Pump") else { return };
    let until = Instant::now() + SOON;
    while publisher.status().refused_total == 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let status = publisher.status();
    assert_eq!((status.accepting, status.refusing), (0, 1));
    let reason = &status.refusals[0].reason;
    assert!(reason.contains("type (policy 24)"), "{reason}");
    assert!(reason.contains("level: the writer has string, the reader double"), "{reason}");

    let subscriber = node.subscriber_on::<Other>("more/pumps", &wire("auto", domain)).expect("a subscriber");
    let _writer = python("keep", domain, "more/pumps", "Pump");
    let until = Instant::now() + SOON;
    while subscriber.status().mismatches.is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let reason = &subscriber.status().mismatches[0].reason;
    assert!(reason.contains("level"), "{reason}");
}

#[test]
fn without_types_only_their_names_are_compared() {
    let domain = domain();
    let node = Node::new();
    let wire = wire("cdr", domain) + "&types=off";
    let publisher = node.publisher_on::<Other>("plant/pumps", &wire).expect("a publisher");
    let Some(_reader) = python("read", domain, "plant/pumps", "Pump") else { return };
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
}

/// The type of `ddsperf`'s topic.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "KeyedSeq", final)]
struct KeyedSeq {
    seq: u32,
    #[polywire(key)]
    keyval: u32,
    baggage: Vec<u8>,
}

#[test]
fn ddsperf_is_read() {
    if !tools::has_program("idlc", "-v") {
        return;
    }
    let domain = domain();
    let node = Node::new();
    let samples = node.subscriber_on::<KeyedSeq>("DDSPerfRDataKS", &wire("auto", domain)).expect("a subscriber");
    let arguments = ["-i", &domain.to_string(), "-D", "60", "pub", "100Hz", "size", "40"].map(String::from);
    let _program = program::start(Command::new("ddsperf").args(arguments));
    let first = samples.recv_timeout(SOON).expect("a sample").value;
    let second = samples.recv_timeout(SOON).expect("a sample").value;
    assert_eq!((second.seq, second.keyval), (first.seq + 1, first.keyval));
    assert_eq!(samples.undecodable(), 0);
}

/// In the environment of the process that this test starts.
const CHILD: &str = "POLYWIRE_TEST_DDS_DOMAIN";

/// The other process: publishes in all forms until its standard input ends.
#[test]
fn child() {
    let Ok(domain) = env::var(CHILD) else { return };
    let domain = domain.parse().expect("a number");
    let node = Node::new();
    let publishers = ["cdr", "xcdr2", "json", "cdr+zlib"].map(|format| {
        node.publisher_on::<Pump>(&format!("pumps/{format}"), &wire(format, domain)).expect("a publisher")
    });
    for publisher in &publishers {
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
        for id in 1..=300 {
            publisher.publish(&pump(id)).expect("published");
        }
        publisher.dispose(&pump(1)).expect("disposed");
        publisher.publish(&Pump { id: 301, level: 0.0, name: "x".repeat(200_000) }).expect("published");
    }
    assert!(node.flush(SOON));
    let _ended = std::io::stdin().lines().count();
}

#[test]
fn a_node_in_another_process_is_read_in_every_form() {
    let domain = domain();
    let node = Node::new();
    let subscribers = ["cdr", "xcdr2", "json", "cdr+zlib"].map(|format| {
        node.subscriber_on::<Pump>(&format!("pumps/{format}"), &wire("auto", domain)).expect("a subscriber")
    });
    let program = env::current_exe().expect("a path");
    let _child = program::start(Command::new(program).args(["--exact", "child"]).env(CHILD, domain.to_string()));
    for subscriber in &subscribers {
        for id in 1..=300 {
            let sample = subscriber.recv_timeout(SOON).expect("a sample");
            assert_eq!((sample.value, sample.info.sequence), (pump(id), id.into()));
        }
        let end = subscriber.recv_timeout(SOON).expect("the end of an instance");
        assert_eq!((end.info.kind, end.value.id), (Kind::Dispose, 1));
        assert_eq!(subscriber.recv_timeout(SOON).expect("a long sample").value.name.len(), 200_000);
        assert_eq!((subscriber.lost(), subscriber.undecodable()), (0, 0));
    }
}

/// In the environment of the process that echoes.
const ECHO: &str = "POLYWIRE_TEST_DDS_ECHO";

/// The other process: its callback publishes all that comes, while another thread publishes under
/// the lock that the callback needs. In the end the callback makes a publisher, publishes with it,
/// and closes its own node.
#[test]
fn echo() {
    let Ok(domain) = env::var(ECHO) else { return };
    let domain = domain.parse().expect("a number");
    let node = Node::new();
    let back = node.publisher_on::<Note>("back", &wire("cdr", domain)).expect("a publisher");
    let own = node.publisher_on::<Note>("own", &wire("cdr", domain)).expect("a publisher");
    assert_eq!((back.wait_for_subscribers(1, SOON), own.wait_for_subscribers(1, SOON)), (1, 1));
    let both = Arc::new(Mutex::new(()));
    let (last, ended) = mpsc::channel();
    let (callbacks, inner) = (both.clone(), Mutex::new(Some(node.clone())));
    let there = node.subscribe::<Note>("there", Some(&wire("auto", domain))).expect("a subscription");
    let _subscription = there.on_message_inline(move |note, _| {
        let _alone = callbacks.lock().expect("nobody panicked");
        if note.marks == [LAST] {
            let node = inner.lock().expect("nobody panicked").take().expect("the last note comes once");
            let made = node.publisher_on::<Note>("made", &wire("cdr", domain)).expect("a publisher");
            assert_eq!(made.wait_for_subscribers(1, Duration::ZERO), 0);
            drop(made);
            let is_thread_of_cyclone = thread::current().name() != Some("dds");
            node.close();
            last.send(is_thread_of_cyclone).expect("somebody waits");
        } else {
            assert!(back.publish(note).is_ok_and(|sent| sent.dropped == 0));
        }
    });
    for number in 0..ECHOES {
        let _alone = both.lock().expect("nobody panicked");
        assert!(own.publish(&long(number)).is_ok_and(|sent| sent.dropped == 0));
    }
    println!("last by a thread of Cyclone: {}", ended.recv_timeout(SOON).expect("the last note"));
    drop(node);
    println!("closed");
}

/// They fit into the queue between the two threads that receive, but not into a writer's history.
const ECHOES: i32 = 1500;
const LAST: i32 = -1;

fn long(number: i32) -> Note {
    Note { text: "x".repeat(2000), marks: vec![number] }
}

#[test]
fn callbacks_publish_and_close_in_the_thread_that_receives() {
    let domain = domain();
    let node = Node::new();
    let back = node.subscriber_on::<Note>("back", &wire("auto", domain)).expect("a subscriber");
    let own = node.subscriber_on::<Note>("own", &wire("auto", domain)).expect("a subscriber");
    let there = node.publisher_on::<Note>("there", &wire("cdr", domain)).expect("a publisher");
    let program = env::current_exe().expect("a path");
    let arguments = ["--exact", "echo", "--nocapture"];
    let child = program::start(Command::new(program).args(arguments).env(ECHO, domain.to_string()));
    assert_eq!(there.wait_for_subscribers(1, SOON), 1);
    thread::scope(|scope| {
        for echoes in [&back, &own] {
            scope.spawn(move || {
                for number in 0..ECHOES {
                    let sample = echoes.recv_timeout(SOON).expect("an echo");
                    assert_eq!((sample.value.marks, sample.info.sequence), (vec![number], number as u64 + 1));
                }
            });
        }
        for number in 0..ECHOES {
            assert!(there.publish(&long(number)).is_ok_and(|sent| sent.dropped == 0));
        }
    });
    // Slow callbacks are left to another thread for a while.
    thread::sleep(Duration::from_secs(5));
    there.publish(&Note { marks: vec![LAST], ..Note::default() }).expect("published");
    let lines: Vec<String> = std::iter::repeat_with(|| child.line()).take_while(|line| line != "closed").collect();
    assert!(lines.iter().any(|line| line.ends_with("last by a thread of Cyclone: true")), "{lines:?}");
}
