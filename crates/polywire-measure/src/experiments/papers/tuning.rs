//! Writes the page on the tuning table of 2015: round trips under load and messages per second for
//! many sizes of buffers on both sides, and a check of the paper's rule.

use crate::experiments::page::{Page, cell, texts};
use crate::{
    CaseResult, Results,
    buffers::Buffers,
    report::svg::{Lines, Scale, Series},
    table::figure,
};

/// A run as the paper prints it.
struct Run {
    buffers: &'static str,
    /// Average, 90 % and 99 % of the round trips, in milliseconds.
    rtt_ms: [f64; 3],
    /// Thousands of messages per second.
    khz: f64,
}

const fn run(buffers: &'static str, rtt_ms: [f64; 3], khz: f64) -> Run {
    Run { buffers, rtt_ms, khz }
}

const PRINTED: [Run; 6] = [
    run("64K/8K/64K 64K/64K/1M", [1.424, 2.024, 2.986], 77.06),
    run("8K/4K/4K 64K/64K/1M", [0.5352, 0.68, 1.222], 42.14),
    run("512/4K/4K 64K/64K/1M", [0.2958, 0.336, 0.73], 37.39),
    run("512/8K/8K 64K/64K/1M", [0.3704, 0.392, 1.943], 52.39),
    run("512/4K/8K 512/8K/16K", [0.2974, 0.339, 1.523], 39.25),
    run("512/16K/32K 512/64K/128K", [5.823, 0.646, 173.5], 65.44),
];

/// Buffers that differ in the receiver's RSB only; the sender's SSB is 16K.
const RULE: [&str; 5] = [
    "64K/16K/64K 64K/64K/4K",
    "64K/16K/64K 64K/64K/8K",
    "64K/16K/64K 64K/64K/16K",
    "64K/16K/64K 64K/64K/32K",
    "64K/16K/64K 64K/64K/128K",
];

/// Index in [`RULE`] of the first buffers whose RSB is not below SSB.
const EQUAL: usize = 2;

/// Transmit buffers of several sizes with the system's SSB and RSB, fixed buffers, and the
/// defaults.
const TRANSMIT: [&str; 6] = ["512/-/-", "8K/-/-", "64K/-/-", "512K/-/-", "64K/64K/256K", "default"];

/// The paper's run whose round trips are short under load on the measured machine.
const SHORT: &str = PRINTED[0].buffers;

/// Bytes of a packet.
const PACKET: f64 = 512.0;

const HEAD: [&str; 5] = ["buffers", "RTT average", "90 %", "99 %", "messages/s"];

pub fn page(page: &mut Page, results: &[Results]) {
    let [loaded, calm] = results else { return };
    let effort = &loaded.scenario.effort;
    page.say(&format!(
        "Packets of 512 bytes over TCP between two processes, sent as fast as the receiver takes them, and each sent \
         back: in {} interleaved turns of {} packets, or of as many as are taken in 2 s. Buffers are written as \
         transmit buffer/SSB/RSB, first the sender's, then the receiver's. The transmit buffer is the number of bytes \
         that may wait in the process, and the most that is gathered for one write (`queue_bytes` and `write_bytes` of \
         `EngineOptions`). SSB and RSB are the socket's send and receive buffers (`send_buffer`, `receive_buffer`). `-` \
         is Polywire's default. The engine is Polywire's `tcp`.",
        effort.repeats, effort.messages
    ));
    runs(page, loaded);
    rule(page, loaded);
    defaults(page, loaded, calm);
    plot(page, loaded);
    differences(page, loaded);
}

fn at<'a>(results: &'a Results, buffers: &str) -> Option<&'a CaseResult> {
    results.find(|case| case.buffers == buffers)
}

fn value(results: &Results, buffers: &str, metric: &str) -> Option<f64> {
    Some(at(results, buffers)?.metrics.get(metric)?.value)
}

/// The cells of a table row: round trips, and messages per second.
fn cells(results: &Results, buffers: &str) -> Vec<String> {
    let result = at(results, buffers);
    ["rtt_mean_ns", "rtt_p90_ns", "rtt_p99_ns", "throughput_hz"].map(|metric| cell(result, metric)).to_vec()
}

fn runs(page: &mut Page, results: &Results) {
    page.heading("The paper's six runs");
    let mut rows = Vec::new();
    for (number, Run { buffers, rtt_ms, khz }) in PRINTED.iter().enumerate() {
        let mut printed = texts([&format!("*paper, run {}*", number + 1)]);
        printed.extend(rtt_ms.map(|ms| figure("rtt_mean_ns", ms * 1e6)));
        printed.push(figure("throughput_hz", khz * 1e3));
        rows.push(printed);
        rows.push([vec![format!("`{buffers}`")], cells(results, buffers)].concat());
    }
    page.table(&texts(HEAD), &rows);
    for result in &results.cases {
        if let Some(problem) = &result.problem {
            page.say(&format!(
                "`{}` could not be measured to the end ({problem}, half a minute after the last packet).",
                result.case.buffers
            ));
        }
    }
    page.heading("Bytes in flight");
    page.say(
        "The rate of messages times the average round trip is the number of messages in flight (Little's law). The \
         table has this number in bytes, compared with the sender's transmit buffer and SSB together, and with all six \
         buffers of both directions.",
    );
    let mut rows = Vec::new();
    for (number, Run { buffers, rtt_ms, khz }) in PRINTED.iter().enumerate() {
        let Ok(set) = buffers.parse::<Buffers>() else { continue };
        let ours = under_way(results, buffers).map_or("-".into(), kilo);
        rows.push(vec![
            (number + 1).to_string(),
            set.sender.outgoing().map_or("-".into(), |bytes| kilo(bytes as f64)),
            all(&set).map_or("-".into(), kilo),
            kilo(khz * rtt_ms[0] * PACKET),
            ours,
        ]);
    }
    page.table(&texts(["run", "sender's transmit buffer and SSB", "all six", "in flight, paper", "here"]), &rows);
}

fn under_way(results: &Results, buffers: &str) -> Option<f64> {
    Some(value(results, buffers, "throughput_hz")? * value(results, buffers, "rtt_mean_ns")? / 1e9 * PACKET)
}

/// Bytes of all buffers on the way there and back.
fn all(set: &Buffers) -> Option<f64> {
    let [there, back] = [&set.sender, &set.receiver].map(|side| Some(side.outgoing()? + side.receive?));
    Some((there? + back?) as f64)
}

fn kilo(bytes: f64) -> String {
    format!("{:.1} KB", bytes / 1024.0)
}

fn rule(page: &mut Page, results: &Results) {
    page.heading("The rule: the receiver's RSB at least the sender's SSB");
    page.say("The sender's SSB is 16K. The receiver's RSB grows from below to above that.");
    let row = |buffers: &&str| [vec![format!("`{buffers}`")], cells(results, buffers)].concat();
    page.table(&texts(HEAD), &RULE.iter().map(row).collect::<Vec<_>>());
    let equal = RULE[EQUAL];
    let items: Vec<String> = RULE
        .iter()
        .filter(|buffers| **buffers != equal)
        .filter_map(|buffers| {
            let (own, base) = (at(results, buffers)?, at(results, equal)?);
            let compare = |metric: &str| {
                let (own, base) = (own.metrics.get(metric)?, base.metrics.get(metric)?);
                let times = own.value / base.value;
                let sure = if own.interval().overlaps(&base.interval()) { " (no significant difference)" } else { "" };
                Some(format!("{times:.2} times{sure}"))
            };
            let rsb = buffers.rsplit('/').next()?;
            Some(format!(
                "RSB {rsb} against 16K: messages/s {}; average round trip {}.",
                compare("throughput_hz")?,
                compare("rtt_mean_ns")?
            ))
        })
        .collect();
    page.list(&items);
    page.say(&verdict(results));
}

/// Compares the figures with the rule.
fn verdict(results: &Results) -> String {
    let interval = |buffers: &str| Some(at(results, buffers)?.metrics.get("throughput_hz")?.interval());
    let slower =
        |buffers: &&&str| interval(buffers).zip(interval(RULE[EQUAL])).is_some_and(|(own, equal)| own.is_below(&equal));
    let (below, above) = (&RULE[..EQUAL], &RULE[EQUAL + 1..]);
    let (worse, worse_above) = (below.iter().filter(slower).count(), above.iter().filter(slower).count());
    match (worse == below.len(), worse_above) {
        (true, 0) => "**The rule holds here**: every receive buffer below the sender's send buffer reduces throughput \
             significantly, and none above it does."
            .into(),
        (false, 0) => format!(
            "**The rule does no harm here, but is not sharp**: of {} receive buffers below the sender's send buffer, \
             {worse} reduce throughput significantly, and none above it does.",
            below.len()
        ),
        (_, more) => format!(
            "**The rule does not hold here**: {worse} of {} receive buffers below the sender's send buffer reduce \
             throughput significantly, but so do {more} above it.",
            below.len()
        ),
    }
}

fn defaults(page: &mut Page, loaded: &Results, calm: &Results) {
    page.heading("Polywire's defaults");
    page.say(
        "SSB and RSB as the system chooses them, with transmit buffers from one packet to 4 MB, Polywire's default. The \
         last columns have half of the round-trip time (p50, p99) with one packet in flight.",
    );
    let mut rows = Vec::new();
    for buffers in TRANSMIT.iter().copied().chain(PRINTED.iter().map(|run| run.buffers)) {
        let mut row = [vec![format!("`{buffers}`")], cells(loaded, buffers)].concat();
        row.push(under_way(loaded, buffers).map_or("-".into(), kilo));
        row.extend(["latency_p50_ns", "latency_p99_ns"].map(|metric| cell(at(calm, buffers), metric)));
        rows.push(row);
    }
    let mut head = texts(HEAD);
    head.extend(texts(["in flight", "one in flight, p50", "p99"]));
    page.table(&head, &rows);
    let mut items = vec![calm_item(calm)];
    let times = |metric: &str, buffers: &str| Some(value(loaded, buffers, metric)? / value(loaded, "default", metric)?);
    if let (Some(rate), Some(rtt)) = (times("throughput_hz", SHORT), times("rtt_mean_ns", SHORT)) {
        items.push(format!(
            "Under load, `{SHORT}` sends {rate:.2} times as many messages as the default, with {rtt:.2} times the \
             round-trip time. A publisher that never waits fills every buffer, and then the bytes in flight (see above) \
             are the size of the buffers. For short round trips under load, set `send_buffer` and `queue_bytes`, or a \
             policy that drops messages."
        ));
    }
    if let (Some(rate), Some(rtt)) = (times("throughput_hz", "512/-/-"), times("rtt_mean_ns", "512/-/-")) {
        items.push(format!(
            "A small transmit buffer alone is not enough: one of 512 bytes with the system's SSB and RSB sends \
             {rate:.2} times as many messages as the default, with {rtt:.2} times the round-trip time, because the \
             system's buffers fill instead."
        ));
    }
    items.push(
        "There are two reasons for the defaults. First, a fixed SSB limits the rate of a line with a long delay: over a \
         round trip of 20 ms (`polywire link hosts --model delay=10ms`, a bare socket that sends as fast as possible \
         for 3 s), an SSB of 8K carried 1.7 MB/s, one of 64K 4.9 MB/s, and the system's own, which grows, 66 MB/s. \
         Second, a queue of 4 MB takes bursts without making the publisher wait. SSB and RSB are left to the system, \
         which follows the rule by itself."
            .into(),
    );
    page.list(&items);
}

/// Checks whether large buffers cost anything when they are not filled.
fn calm_item(calm: &Results) -> String {
    let p50 = |result: &CaseResult| Some(result.metrics.get("latency_p50_ns")?.interval());
    let usual = at(calm, "default").and_then(p50);
    let others: Vec<_> = calm.cases.iter().filter(|result| result.case.buffers != "default").filter_map(p50).collect();
    let same = others.iter().filter(|other| usual.is_some_and(|usual| !other.is_below(&usual))).count();
    format!(
        "With one packet in flight, {same} of {} other settings are not significantly faster than the default. A sender \
         below the possible rate pays almost nothing for large buffers, because they are empty.",
        others.len()
    )
}

fn plot(page: &mut Page, results: &Results) {
    let measured = |label: &str, cases: &[&str]| {
        let mut points: Vec<(f64, f64)> = cases
            .iter()
            .filter_map(|buffers| {
                Some((value(results, buffers, "rtt_mean_ns")? / 1e3, value(results, buffers, "throughput_hz")? / 1e3))
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { label: label.into(), points }
    };
    let mut printed: Vec<(f64, f64)> = PRINTED.iter().map(|run| (run.rtt_ms[0] * 1e3, run.khz)).collect();
    printed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let six: Vec<&str> = PRINTED.iter().map(|run| run.buffers).collect();
    let lines = Lines {
        series: vec![
            Series { label: "the paper's runs, as printed".into(), points: printed },
            measured("the same here", &six),
            measured("RSB below and above SSB", &RULE),
            measured("transmit buffers, Polywire's", &TRANSMIT),
        ],
        x: Scale::Logarithmic,
        y: Scale::Linear,
        x_text: Box::new(|us| format!("{us} us")),
        y_text: Box::new(|khz| format!("{khz} k/s")),
    };
    page.draw("Messages per second against the average round trip", lines.draw());
}

fn differences(page: &mut Page, results: &Results) {
    page.heading("Where this differs from the paper, and why");
    let mut items = vec![
        "Linux reserves twice the requested SSB and RSB, for its own records (as `getsockopt` shows): 8K are 16 KB \
         here. The paper does not say what its system does.".to_owned(),
        "Between bare sockets with the buffers of run 4, Linux sometimes stalls: in 5 of 24 runs of 2 to 4 s, data came \
         back in steps of 200 ms or more. Its segments to a receiver are as large as the largest window that it has \
         seen there (7266 bytes, as `ss` shows it). An empty buffer of 8K later offers less (7206). Of a segment that \
         does not fit completely, nothing leaves until the timer that asks for room fires (`timer:(persist`). With \
         segments of at most a quarter of the buffer (`TCP_MAXSEG`), none of 24 runs stalled. `tcp` asks its peers for \
         such segments if `receive_buffer` is set."
            .to_owned(),
    ];
    let ratios = |of: &dyn Fn(&Run) -> Option<f64>| -> Option<(f64, f64)> {
        let values: Vec<f64> = PRINTED[..5].iter().filter_map(of).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        (!values.is_empty()).then(|| (least, values.iter().copied().fold(0.0, f64::max)))
    };
    let outgoing = |run: &Run| run.buffers.parse::<Buffers>().ok()?.sender.outgoing().map(|bytes| bytes as f64);
    let there = ratios(&|run| Some(run.khz * run.rtt_ms[0] * PACKET / outgoing(run)?));
    let here = ratios(&|run| Some(under_way(results, run.buffers)? / outgoing(run)?));
    if let (Some((least, most)), Some((least_here, most_here))) = (there, here) {
        items.push(format!(
            "In the paper's runs 1 to 5, the bytes in flight are {least:.1} to {most:.1} times the sender's transmit \
             buffer and SSB: its receiver empties the buffers as fast as they fill, and its round trip is the time in \
             the sender's buffers. Here the factor is {least_here:.1} to {most_here:.1}: more than the sender holds, so \
             the buffers of the receiver and of the way back fill, too."
        ));
    }
    items.push(format!(
        "The paper prints an average for run 6 (5.823 ms) above its 90 % value (0.646 ms): a few packets took very \
         long, as its 99 % value (173.5 ms) shows. Here the average is {} and the 99 % value is {}.",
        cell(at(results, PRINTED[5].buffers), "rtt_mean_ns"),
        cell(at(results, PRINTED[5].buffers), "rtt_p99_ns")
    ));
    page.list(&items);
}
