//! Throughput: time per message of a flood of messages between two processes, without loss, and the
//! CPU time of both processes.

use std::{cell::Cell, process, rc::Rc, time::Duration};

use super::{
    EITHER, Family,
    child::{OtherEnd, stay},
    pubsub, raw,
};
use crate::{
    measure::{Bar, Candidate, Effort, Figure, compare_turns, unpin},
    process::cpu_time,
    report::{Group, Row},
};

/// Messages in a turn of a full measurement. A quick one has 1000.
const MESSAGES: u64 = 100_000;

pub fn group(effort: Effort) -> Group {
    let note = "Time per message of a flood between two processes, complete and in order, and CPU time per message of both \
                processes together. `typed` is `publish` to the inline callback in the default configuration, in the rows \
                *batches* `publish_all` of 100 values a call. `raw` copies the same bytes to batches of 64 KiB, and each \
                batch is one write. libzmq is PUSH/PULL over TCP with its defaults."
        .into();
    let cases = [(Family::Tcp, 100), (Family::Unix, 100), (Family::Tcp, 1000), (Family::Unix, 1000)];
    let rows = cases.into_iter().flat_map(|(family, size)| rows(family, size, effort)).collect();
    Group { title: "Throughput", note, rows, left_out: without_libzmq(), ..Group::default() }
}

pub(super) fn without_libzmq() -> Vec<String> {
    let left_out = if cfg!(feature = "peers") { None } else { Some("libzmq (needs the feature `peers`)".into()) };
    left_out.into_iter().collect()
}

fn rows(family: Family, size: usize, effort: Effort) -> Vec<Row> {
    // All may use all cores: Polywire and libzmq have threads of their own for the sockets.
    unpin();
    let messages = if effort.turns > Effort::QUICK.turns { MESSAGES } else { 1000 };
    let other = OtherEnd::start(&["throughput", family.name(), &messages.to_string(), &size.to_string()]);
    let mut ours = pubsub::Flood::open(family, EITHER, &other.addresses[0], &other.identity, size);
    ours.meet(1);
    let mut bare = raw::Flood::connect(family, &other.addresses[1], &other.identity, size, 1);
    #[cfg(feature = "peers")]
    let mut theirs = super::zeromq::Flood::connect(&other.addresses[2], &other.addresses[3], size);
    let workload = format!("{size} bytes over {}", family.name());
    let single = vec![
        Turns::new("typed", None, || ours.turn(messages)),
        Turns::new("raw", None, || bare.turn(messages)),
        #[cfg(feature = "peers")]
        Turns::new("libzmq", Some(Bar::AtLeast(1.0)), || theirs.turn(messages)),
    ];
    let mut rows = measure(&workload, "flood", single, messages, &other, effort);
    let batches = vec![
        Turns::new("typed", None, || ours.turn_together(messages)),
        Turns::new("raw", Some(Bar::AtLeast(0.5)), || bare.turn(messages)),
    ];
    rows.extend(measure(&workload, "batches", batches, messages, &other, effort));
    rows
}

/// What sends one turn's messages, and returns the time until the last one has arrived.
pub(super) struct Turns<'a> {
    name: &'static str,
    bar: Option<Bar>,
    work: Box<dyn FnMut() -> Duration + 'a>,
}

impl<'a> Turns<'a> {
    pub(super) fn new(name: &'static str, bar: Option<Bar>, work: impl FnMut() -> Duration + 'a) -> Turns<'a> {
        Turns { name, bar, work: Box::new(work) }
    }
}

/// Times per message, and CPU times of both processes.
pub(super) fn measure<'a>(
    workload: &str,
    operation: &str,
    turns: Vec<Turns<'a>>,
    messages: u64,
    other: &'a OtherEnd,
    effort: Effort,
) -> Vec<Row> {
    let effort = effort.at_most(15);
    let used: Vec<_> = turns.iter().map(|turns| (turns.name, Rc::new(Cell::new(Duration::ZERO)))).collect();
    let both = move || cpu_time(process::id()) + other.costs().0;
    let candidate = |turns: Turns<'a>, used: Rc<Cell<Duration>>| {
        let Turns { name, bar, mut work } = turns;
        let timed = move |_| {
            let before = both();
            let took = work();
            used.set(used.get() + both().saturating_sub(before));
            took.as_nanos() as f64 / messages as f64
        };
        let candidate = Candidate::elsewhere(name, timed);
        match bar {
            Some(bar) => candidate.with_bar(bar),
            None => candidate,
        }
    };
    let candidates = turns.into_iter().zip(&used).map(|(turns, (_, used))| candidate(turns, used.clone())).collect();
    let times = compare_turns(candidates, effort);
    let each = |time: Duration| time.as_nanos() as f64 / (messages * effort.turns as u64) as f64;
    let first = used.first().map_or(f64::NAN, |(_, used)| each(used.get()));
    let cpu = |(name, used): &(&'static str, Rc<Cell<Duration>>)| {
        let ns = each(used.get());
        Figure { name, ns, ratio: ns / first, more_ns: ns - first, bar: None }
    };
    let cpu = used.iter().map(cpu).collect();
    vec![Row::new(workload, operation, None, times), Row::new(workload, format!("{operation}, CPU"), None, cpu)]
}

/// Runs in the child: counts messages, by publish/subscribe, on a bare socket, and by libzmq.
pub(super) fn count(family: Family, turn: u64, size: usize) {
    let address = pubsub::free_address(family);
    let _ours = pubsub::Counter::open(family, EITHER, &address, turn);
    #[cfg(feature = "peers")]
    let theirs = super::zeromq::count(turn);
    #[cfg(not(feature = "peers"))]
    let theirs = [];
    let own = [address, raw::count(family, turn as usize * size, 1)];
    stay(&own.into_iter().chain(theirs).collect::<Vec<_>>());
}
