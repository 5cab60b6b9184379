//! The content of the log at level `info`: the node's events, and almost nothing from dependencies.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use log::{LevelFilter, Log, Metadata, Record};
use polywire::{Message, Node};

static SEEN: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

struct Keep;

impl Log for Keep {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = (record.target().to_owned(), record.args().to_string());
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn flush(&self) {}
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Pump {
    id: u32,
    name: String,
    levels: Vec<f64>,
}

#[test]
fn the_compiler_of_machine_code_prints_no_code_into_the_log() {
    log::set_logger(&Keep).expect("the first logger");
    log::set_max_level(LevelFilter::Info);
    let node = Node::new();
    let pumps = node.subscriber_on::<Pump>("pumps", "cdr@inproc/log").expect("a subscriber");
    let publisher = node.publisher_on::<Pump>("pumps", "cdr@inproc/log").expect("a publisher");
    let pump = Pump { id: 7, name: "north".into(), levels: vec![1.0, 2.0] };
    // Enough for machine code to be made, on the thread that makes it.
    for _ in 0..100 {
        publisher.publish(&pump).expect("published");
        assert_eq!(pumps.recv_timeout(Duration::from_secs(60)).expect("it comes").value, pump);
    }
    let is_made = cfg!(feature = "jit") && std::env::var_os("POLYWIRE_JIT").is_none();
    for _ in 0..6000 {
        if !is_made || others().len() >= 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let others = others();
    assert!(!is_made || others.len() >= 2, "machine code was made while the test looked");
    for (target, text) in &others {
        assert!(target.starts_with("cranelift_jit") && text.lines().count() == 1, "{target}: {text}");
    }
    // A function or two for each direction.
    assert!(others.len() <= 8, "{others:?}");
}

/// The log lines of other libraries, with their targets.
fn others() -> Vec<(String, String)> {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.iter().filter(|(target, _)| !target.starts_with("polywire")).cloned().collect()
}
