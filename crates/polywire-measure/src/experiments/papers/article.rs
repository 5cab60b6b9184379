//! Writes the page on the article of 2011: round trips between two processes, for each engine.

use crate::experiments::page::{Page, mean, texts};
use crate::{Results, table::figure};

/// One-way latency that the article prints, in microseconds: OpenDDS, ZeroMQ, bare sockets.
const PRINTED: [(&str, [&str; 3]); 2] =
    [("raw buffer", ["185", "170", "75"]), ("typed data", ["205", "577 or 216", "396"])];

pub fn page(page: &mut Page, results: &[Results]) {
    let Some(results) = results.first() else { return };
    page.say(
        "A publisher sends a message. Every subscriber decodes it into a value, encodes the value again and sends it \
         back. The next message follows when all echoes have arrived. The tables have half of that time, p50. All \
         values are dynamic records, of types that are known only at run time, like the article's \"run-time objects\". \
         On the bare sockets (`raw-..`, one blocking thread per connection) the same codec encodes and decodes, and \
         nothing else is done. Each echo must be the next of its subscriber (Polywire's engines) or carry the number of \
         its message (all others except `cyclonedds`, whose program has messages of its own); otherwise the run fails. \
         `mix` is nine parts of market data and one of quote requests.",
    );
    let engines = &results.scenario.axes.engine;
    for subscribers in &results.scenario.axes.subscribers {
        page.heading(&format!("{subscribers} subscriber{}", if *subscribers == 1 { "" } else { "s" }));
        let p50 = |engine: &str, ty: &str| {
            results.figure("latency_p50_ns", |case| {
                case.engine == engine && case.ty == ty && case.subscribers == *subscribers
            })
        };
        let mixed = |engine: &str| Some(0.9 * p50(engine, "MarketData")? + 0.1 * p50(engine, "QuoteRequest")?);
        let row = |engine: &String| {
            let time = |value: Option<f64>| value.map_or("-".to_owned(), |value| figure("latency_p50_ns", value));
            let times =
                mixed(engine).zip(mixed("raw-tcp")).map_or("-".into(), |(own, raw)| format!("{:.2}", own / raw));
            let types = ["RawBuffer", "MarketData", "QuoteRequest"].map(|ty| time(p50(engine, ty)));
            let [raw, market, quote] = types;
            vec![engine.clone(), raw, market, quote, time(mixed(engine)), times]
        };
        let rows: Vec<Vec<String>> = engines.iter().map(row).collect();
        page.table(
            &texts(["engine", "raw buffer, 1000 B", "MarketData", "QuoteRequest", "mix", "mix, x raw-tcp"]),
            &rows,
        );
        let left_out = results.cases.iter().filter(|result| result.case.subscribers == *subscribers);
        let mut told: Vec<String> = left_out
            .filter_map(|result| Some(format!("{}: {}", result.case.engine, result.problem.as_ref()?)))
            .collect();
        told.sort();
        told.dedup();
        told.iter().for_each(|problem| page.say(&format!("Left out: {problem}.")));
    }
    page.heading("Settings of the engines");
    let settings: Vec<String> =
        results.engines.iter().map(|(name, settings)| format!("`{name}`: {settings}.")).collect();
    page.list(&settings);
    page.heading("Comparison with the article");
    let row = |(name, [dds, zeromq, sockets]): &(&str, [&str; 3])| texts([name, dds, zeromq, sockets]);
    page.say(
        "One-way latency in microseconds as printed in the article, measured on an old laptop. Only ratios can be \
         compared:",
    );
    let rows: Vec<Vec<String>> = PRINTED.iter().map(row).collect();
    page.table(&texts(["", "OpenDDS", "ZeroMQ", "bare sockets"]), &rows);
    page.say(
        "OpenDDS itself is not measured. Debian, PyPI, crates.io and npm do not have it: Debian has ACE, which it builds \
         on, but neither its IDL compiler's base, TAO, nor OpenDDS, and PyPI's `pyopendds` is a binding that needs an \
         installed OpenDDS. Cyclone DDS stands for DDS in the tables above; both speak the same protocol, RTPS.",
    );
    let ratio = |engine: &str, raw: &str| {
        let of = |engine: &str, ty: &str| {
            results.figure("latency_p50_ns", |case| case.engine == engine && case.ty == ty && case.subscribers == 1)
        };
        mean(["MarketData", "QuoteRequest"].iter().filter_map(|ty| Some(of(engine, ty)? / of(raw, ty)?)))
    };
    if let Some((tcp, unix)) = ratio("tcp", "raw-tcp").zip(ratio("unix", "raw-unix")) {
        page.say(&format!(
            "In the article, typed DDS took 2.7 times as long as bare sockets that carry no type (205 and 75 us). Here, \
             typed publish and subscribe takes {tcp:.2} times bare TCP and {unix:.2} times bare Unix sockets, which \
             carry the same type in the same codec."
        ));
        let interval = |engine: &str| {
            let result =
                results.find(|case| case.engine == engine && case.ty == "MarketData" && case.subscribers == 1)?;
            Some(result.metrics.get("latency_p50_ns")?.interval())
        };
        if interval("tcp").zip(interval("raw-tcp")).is_some_and(|(own, raw)| own.overlaps(&raw)) {
            page.say(
                "Their intervals overlap for TCP with market data, so this run does not show which of the two is \
                 faster.",
            );
        }
    }
}
