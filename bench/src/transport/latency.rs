//! Latency: half the round trip of a MarketData message between two processes, by publish/subscribe
//! and by bare sockets.

use polywire_core::program::Backend;
use polywire_workloads::{MarketData, Workload};

use super::{
    Family,
    child::{OtherEnd, stay},
    pubsub, raw,
};
use crate::{
    codecs,
    measure::{Bar, Effort, Figure, median, pin},
    report::{Group, Row},
};

/// The first round trips of each turn, which do not count.
pub(super) const WARM_UP: usize = 20;

pub fn group(effort: Effort) -> Group {
    let note =
        "Half the time of a round trip between two processes, each pinned to a core of its own. `typed` is `publish` to \
                `on_message_inline` and back, with CDR in the default configuration. `raw` is a blocking socket and the \
                same bytes: TCP with TCP_NODELAY, a Unix-domain socket for `local` too, UDP for `udp-reliable` too, and \
                rustls over TCP with both sides authenticated for `tls`. Turns of both alternate on connections that \
                stay open."
            .into();
    let rows = Family::ALL.into_iter().flat_map(|family| rows(family, effort)).collect();
    Group { title: "Latency", note, rows, ..Group::default() }
}

fn rows(family: Family, effort: Effort) -> [Row; 2] {
    pin(0);
    let other = OtherEnd::start(&["latency", family.name()]);
    let [raw_address, typed_address] = other.addresses.as_slice() else { panic!("the child prints two addresses") };
    let mut raw = raw::Ping::connect(family, raw_address, &other.identity, bytes());
    let typed = pubsub::Ping::connect(&family.wire("connect", typed_address), &other.identity, message());
    // A round trip takes about 10 us, so a turn takes about `effort.turn`.
    let rounds = WARM_UP + (effort.turn.as_micros() as usize / 10).max(30);
    let mut turns: [Vec<Vec<f64>>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..effort.turns * 2 {
        for (turns, times) in turns.iter_mut().zip([raw.turn(rounds), typed.turn(rounds)]) {
            turns.push(times[WARM_UP..].iter().map(|time| time.as_nanos() as f64 / 2.0).collect());
        }
    }
    let workload = format!("MarketData over {}", family.name());
    let bar = match family {
        Family::Tcp | Family::Unix => Some(Bar::AtMost(1.15)),
        Family::Tls => Some(Bar::AtMost(1.2)),
        Family::Udp => Some(Bar::AtMost(1.1)),
        Family::Local | Family::UdpReliable => None,
    };
    [("p50", 0.5, bar), ("p99", 0.99, None)].map(|(operation, quantile, bar)| {
        let figures = vec![figure("raw", &turns, 0, quantile, None), figure("typed", &turns, 1, quantile, bar)];
        Row::new(workload.clone(), operation, None, figures)
    })
}

/// Runs in the child: returns every message, by publish/subscribe and by bare sockets.
pub(super) fn echo(family: Family) {
    pin(1);
    let raw = raw::echo(family, bytes().len());
    let address = pubsub::free_address(family);
    let _typed = pubsub::Echo::<MarketData>::open(&family.wire("listen", &address));
    stay(&[raw, address]);
}

pub(super) fn message() -> MarketData {
    MarketData::generate(1).remove(0)
}

fn bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    codecs::encoder::<MarketData>("cdr", Backend::Jit).encode(&message(), &mut bytes).expect("encoding succeeds");
    bytes
}

fn figure(name: &'static str, turns: &[Vec<Vec<f64>>; 2], at: usize, q: f64, bar: Option<Bar>) -> Figure {
    let pairs = || turns[at].iter().zip(&turns[0]).map(|(own, raw)| (quantile(own, q), quantile(raw, q)));
    let all: Vec<f64> = turns[at].iter().flatten().copied().collect();
    Figure {
        name,
        ns: quantile(&all, q),
        ratio: median(pairs().map(|(own, raw)| own / raw)),
        more_ns: median(pairs().map(|(own, raw)| own - raw)),
        bar,
    }
}

fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() as f64 * q) as usize).copied().unwrap_or(f64::NAN)
}
