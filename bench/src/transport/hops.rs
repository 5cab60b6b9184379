//! What each hop on the way of a message costs: half the round trip of a MarketData message between
//! two processes, directly and over a third one that passes messages on.

use polywire::{Bridge, Node};
use polywire_workloads::MarketData;

use super::{
    Family,
    child::{OtherEnd, stay},
    latency::{WARM_UP, message},
    pubsub,
};
use crate::{
    measure::{Candidate, Effort, compare_turns, median, pin},
    report::{Group, Row},
};

pub fn group(effort: Effort) -> Group {
    let note = "Half the time of a round trip of MarketData between two processes, each pinned to a core of its own; a \
                third process shares the core of the first. In `relay`, both connect to a third process that relays: \
                `polywire relay` for `unix`, a router for `zenoh`. In `bridge`, a third process connects two endpoints of the engine; in `other format`, it also \
                converts CDR to JSON on the way there and JSON to CDR on the way back."
        .into();
    let unix = [
        path("direct", ["cdr@unix-connect/{a}", "", "cdr@unix-listen/{a}"]),
        path("relay", ["cdr@unix-connect/{a}", "unix/{a}", "cdr@unix-connect/{a}"]),
        path("bridge", ["cdr@unix-connect/{a}", "unix-listen/{a} unix-listen/{b}", "cdr@unix-connect/{b}"]),
        path(
            "other format",
            ["cdr@unix-connect/{a}", "cdr@unix-listen/{a} json@unix-listen/{b}", "json@unix-connect/{b}"],
        ),
    ];
    let mut rows = vec![row("MarketData over unix", Family::Unix, &unix, effort)];
    if cfg!(feature = "zenoh") {
        let listening = "zenoh/peer?scouting=off,listen=tcp/{a}";
        let zenoh = [
            path("direct", ["cdr@zenoh/peer/tcp/{a}?scouting=off", "", &format!("cdr@{listening}")]),
            path(
                "relay",
                ["cdr@zenoh/client/tcp/{a}", "zenoh/router?scouting=off,listen=tcp/{a}", "cdr@zenoh/client/tcp/{a}"],
            ),
            path(
                "bridge",
                [
                    "cdr@zenoh/peer/tcp/{a}?scouting=off",
                    &format!("{listening} {}", listening.replace("{a}", "{b}")),
                    "cdr@zenoh/peer/tcp/{b}?scouting=off",
                ],
            ),
        ];
        rows.push(row("MarketData over zenoh", Family::Tcp, &zenoh, effort));
    }
    let left_out = if cfg!(feature = "zenoh") { Vec::new() } else { vec!["zenoh (needs the feature `zenoh`)".into()] };
    Group { title: "Hops", note, rows, left_out, ..Group::default() }
}

/// The wires of this end and the other one, and what a third process opens between them: nothing,
/// an endpoint that it relays at, or two that it bridges. `{a}` and `{b}` stand for addresses.
struct Path {
    name: &'static str,
    wires: [String; 3],
}

fn path(name: &'static str, wires: [&str; 3]) -> Path {
    Path { name, wires: wires.map(String::from) }
}

fn row(workload: &str, family: Family, paths: &[Path], effort: Effort) -> Row {
    pin(0);
    let rounds = WARM_UP + (effort.turn.as_micros() as usize / 20).max(30);
    let mut others = Vec::new();
    let candidates = paths.iter().map(|Path { name, wires }| {
        let addresses = [(); 2].map(|()| pubsub::free_address(family));
        let [here, between, there] =
            wires.each_ref().map(|wire| wire.replace("{a}", &addresses[0]).replace("{b}", &addresses[1]));
        if !between.is_empty() {
            others.push(OtherEnd::start(&["hop", &between]));
        }
        others.push(OtherEnd::start(&["echo", &there]));
        let ping = pubsub::Ping::connect(&here, &others[others.len() - 1].identity, message());
        let turn = move |_| median(ping.turn(rounds)[WARM_UP..].iter().map(|time| time.as_nanos() as f64 / 2.0));
        Candidate::elsewhere(name, turn)
    });
    Row::new(workload, "p50", None, compare_turns(candidates.collect(), effort))
}

/// Runs in a child: returns every message.
pub(super) fn echo(wire: &str) {
    pin(1);
    let _echo = pubsub::Echo::<MarketData>::open(wire);
    stay(&[]);
}

/// Runs in a child: opens an endpoint, or a bridge between two.
pub(super) fn pass_on(between: &str) {
    pin(0);
    let node = Node::new();
    let _bridge: Option<Bridge> = match between.split_once(' ') {
        Some((from, to)) => Some(node.bridge(from, to).expect("both open").open()),
        None => node.open(between).map(|_| None).expect("it opens"),
    };
    stay(&[]);
}
