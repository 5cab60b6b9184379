//! Writes the page on the paper of 2010: parsers and compressors over networks, with their
//! efficiency, CPU times, compression ratio, round trips and losses.

use crate::experiments::page::{Page, cell, mean, texts};
use crate::{CaseResult, Results};

/// Codec, the paper's name for it, and the efficiency that the paper prints.
const PARSERS: [(&str, &str, &str); 6] = [
    ("cdr", "CDR", "highest"),
    ("xml-dom", "XML, DOM", "0.068"),
    ("xml", "XML, SAX", "0.068"),
    ("json", "JSON", "0.114"),
    ("yaml", "YAML", "-"),
    ("yaml-flow", "compact YAML", "0.105"),
];

const LAN: &str = "lan,queue=8MB";
const WAN_LOW: &str = "wan-low,queue=8MB";
const WAN_HIGH: &str = "wan-high,queue=8MB";

pub fn page(page: &mut Page, results: &[Results]) {
    let [large, small, evolved] = results else { return };
    page.say(
        "Flight data with almost 100 KB of content (`FlightData` of `workloads/avenue.idl`), encoded and then \
         compressed, over the emulated networks `lan`, `wan-low` and `wan-high` (Gilbert losses with the paper's PLR \
         and ABL; an ABL of 0.59 counts as 1, since no burst is shorter than a packet). A message is cut into packets \
         of 1500 bytes and is lost with any one of them. Nothing is retransmitted.",
    );
    parsers(page, large, evolved);
    efficiency(page, large);
    compressors(page, large);
    page.heading("Round trips and losses, almost 100 KB");
    networks(page, large);
    page.heading("Round trips and losses, a twentieth of the size");
    page.say(
        "At almost 100 KB, hardly any message in a tree format passes a lossy network completely, and a lost message \
         has no round trip. The same type with shorter sequences shows more.",
    );
    networks(page, small);
    page.plot(small, "Messages lost against loss of packets", |case| {
        matches!(&*case.codec, "cdr" | "json" | "xml") && matches!(&*case.compressor, "none" | "zlib")
    });
    findings(page, large, small);
}

fn at<'a>(results: &'a Results, codec: &str, compressor: &str, network: &str) -> Option<&'a CaseResult> {
    results.find(|case| case.codec == codec && case.compressor == compressor && case.network == network)
}

fn value(results: &Results, codec: &str, compressor: &str, network: &str, metric: &str) -> Option<f64> {
    Some(at(results, codec, compressor, network)?.metrics.get(metric)?.value)
}

fn parsers(page: &mut Page, large: &Results, evolved: &Results) {
    page.heading("Parsers");
    page.say(
        "Efficiency (eta) is the number of bytes of content divided by the number of bytes on the wire. The last two \
         rows are not in the paper: CDR with a reader of the same version, and with a reader that has a later version \
         of the type (members moved, added, removed and widened, also in structures that occur thousands of times in \
         a message). The two were measured in alternating turns.",
    );
    let mut rows = Vec::new();
    for (codec, name, printed) in PARSERS {
        let result = at(large, codec, "none", LAN);
        let figures = ["bytes", "efficiency", "serialise_ns", "deserialise_ns"].map(|metric| cell(result, metric));
        let [bytes, eta, write, read] = figures;
        rows.push(vec![name.to_owned(), bytes, printed.to_owned(), eta, write, read]);
    }
    for (label, name) in
        [("same version", "CDR, same version"), ("newer reader", "**CDR, a reader of another version**")]
    {
        let result = evolved.find(|case| case.ty == label && case.codec == "cdr");
        let figures = ["bytes", "efficiency", "serialise_ns", "deserialise_ns"].map(|metric| cell(result, metric));
        let [bytes, eta, write, read] = figures;
        rows.push(vec![name.to_owned(), bytes, "-".into(), eta, write, read]);
    }
    page.table(&texts(["parser", "bytes", "eta, paper", "eta", "serialise", "deserialise"]), &rows);
    let time = |label: &str| evolved.figure("deserialise_ns", |case| case.ty == label && case.codec == "cdr");
    if let Some((newer, same)) = time("newer reader").zip(time("same version")) {
        page.say(&format!(
            "Reading another version takes {:.2} times as long as plain CDR, and no additional bytes.",
            newer / same
        ));
    }
}

fn efficiency(page: &mut Page, large: &Results) {
    page.heading("Efficiency after compression");
    let compressors = &large.scenario.axes.compressor;
    let mut head = texts(["parser"]);
    head.extend(compressors.iter().cloned());
    let row = |(codec, name, _): &(&str, &str, &str)| {
        let cells = compressors.iter().map(|compressor| cell(at(large, codec, compressor, LAN), "efficiency"));
        std::iter::once((*name).to_owned()).chain(cells).collect()
    };
    page.table(&head, &PARSERS.iter().map(row).collect::<Vec<_>>());
}

fn compressors(page: &mut Page, large: &Results) {
    page.heading("Compressors");
    page.say(
        "Averages over the tree formats: compression ratio (chi: compressed size divided by uncompressed size), and \
         CPU time of a message.",
    );
    let row = |compressor: &String| {
        let metric = |metric: &'static str| mean_of_trees(large, compressor, metric);
        let text = |name: &'static str| metric(name).map_or("-".into(), |value| crate::table::figure(name, value));
        vec![compressor.clone(), text("ratio"), text("compress_ns"), text("decompress_ns"), text("cpu_ns")]
    };
    let rows: Vec<Vec<String>> = large.scenario.axes.compressor.iter().map(row).collect();
    page.table(&texts(["compressor", "chi", "compress", "decompress", "all four stages"]), &rows);
}

fn mean_of_trees(results: &Results, compressor: &str, metric: &str) -> Option<f64> {
    mean(PARSERS.iter().skip(1).filter_map(|(codec, _, _)| value(results, codec, compressor, LAN, metric)))
}

fn networks(page: &mut Page, results: &Results) {
    let head = texts(["parser", "compressor", "rtt lan", "rtt wan-low", "lost %", "rtt wan-high", "lost %"]);
    let mut rows = Vec::new();
    for (codec, name, _) in PARSERS {
        for compressor in &results.scenario.axes.compressor {
            let mut row =
                vec![name.to_owned(), compressor.clone(), cell(at(results, codec, compressor, LAN), "rtt_mean_ns")];
            for network in [WAN_LOW, WAN_HIGH] {
                let result = at(results, codec, compressor, network);
                row.extend([cell(result, "rtt_mean_ns"), cell(result, "lost_percent")]);
            }
            rows.push(row);
        }
    }
    page.table(&head, &rows);
}

/// Checks the paper's findings against these figures.
fn findings(page: &mut Page, large: &Results, small: &Results) {
    page.heading("The paper's findings, checked");
    let mut items = Vec::new();
    let mut ask = |finding: &str, holds: Option<bool>, figures: String| {
        let word = match holds {
            Some(true) => "confirmed",
            Some(false) => "not confirmed",
            None => "cannot be decided",
        };
        items.push(format!("\"{finding}\": {word}. {figures}"));
    };
    let eta = |codec: &str, compressor: &str| value(large, codec, compressor, LAN, "efficiency").unwrap_or(0.0);
    let trees = || PARSERS.iter().skip(1).map(|parser| parser.0);
    let best = trees().map(|codec| eta(codec, "none")).fold(0.0, f64::max);
    ask(
        "CDR's efficiency is highest",
        Some(eta("cdr", "none") > best),
        format!(
            "CDR {:.3}, best of the others {best:.3}; average of the tree formats {:.3} (paper: 0.085).",
            eta("cdr", "none"),
            mean(trees().map(|codec| eta(codec, "none"))).unwrap_or(0.0)
        ),
    );
    let hybrids = ["zlib", "bzip2", "lzo"];
    let below: Vec<String> = trees()
        .flat_map(|codec| hybrids.iter().map(move |compressor| (codec, *compressor)))
        .filter(|(codec, compressor)| eta(codec, compressor) <= eta("cdr", "none"))
        .map(|(codec, compressor)| format!("{codec}+{compressor} {:.3}", eta(codec, compressor)))
        .collect();
    let told = if below.is_empty() {
        "None stays below CDR.".into()
    } else {
        format!("These stay below CDR: {}.", below.join(", "))
    };
    ask("every hybrid compressor lifts the tree formats above plain CDR", Some(below.is_empty()), told);
    let extreme = |metric: &str, least: bool| -> Option<&str> {
        let figure = |name: &&str| mean_of_trees(large, name, metric).unwrap_or(if least { f64::MAX } else { 0.0 });
        let order = |a: &&str, b: &&str| figure(a).total_cmp(&figure(b));
        hybrids.into_iter().min_by(|a, b| if least { order(a, b) } else { order(b, a) })
    };
    let said = |name: Option<&str>| name.unwrap_or("nothing").to_owned();
    let (quick, slow, tight) = (extreme("compress_ns", true), extreme("compress_ns", false), extreme("ratio", true));
    ask(
        "LZO is the fastest of the hybrid compressors",
        quick.map(|name| name == "lzo"),
        format!("The fastest is {}.", said(quick)),
    );
    let both = tight.zip(slow).map(|(tight, slow)| tight == "bzip2" && slow == "bzip2");
    ask(
        "bzip2 is the smallest and the slowest",
        both,
        format!("The smallest is {}, the slowest {}.", said(tight), said(slow)),
    );
    let rtt = |compressor: &str| value(large, "json", compressor, LAN, "rtt_mean_ns");
    let pays = rtt("none").zip(rtt("zlib"));
    let lzo =
        rtt("lzo").map_or(String::new(), |lzo| format!(", with LZO {}", crate::table::figure("rtt_mean_ns", lzo)));
    let told = |(plain, packed)| {
        format!(
            "JSON's round trip is {} without compression and {} with zlib{lzo}.",
            crate::table::figure("rtt_mean_ns", plain),
            crate::table::figure("rtt_mean_ns", packed)
        )
    };
    ask(
        "compression does not pay on a local network",
        pays.map(|(plain, packed)| plain < packed),
        pays.map_or(String::new(), told),
    );
    let lost = |compressor: &str| value(small, "json", compressor, WAN_HIGH, "lost_percent");
    let cut = lost("none").zip(lost("zlib"));
    let told = |(plain, packed)| {
        format!(
            "Of small flight data in JSON, {plain:.1} % are lost without compression and {packed:.1} % with zlib on \
             `wan-high`: fewer packets are at risk."
        )
    };
    ask(
        "compression cuts losses on a wide-area network",
        cut.map(|(plain, packed)| packed < plain),
        cut.map_or(String::new(), told),
    );
    page.list(&items);
    factors(page, large);
}

/// States how efficiencies differ from the paper's, and why, as far as the figures show it.
fn factors(page: &mut Page, large: &Results) {
    let factor = |(codec, name, printed): &(&str, &str, &str)| {
        let printed: f64 = printed.parse().ok()?;
        Some(format!("{name} {:.1}", value(large, codec, "none", LAN, "efficiency")? / printed))
    };
    let factors: Vec<String> = PARSERS.iter().filter_map(factor).collect();
    page.say(&format!(
        "Without a compressor, efficiencies are higher than the paper's by almost the same factor in all formats ({}). \
         The difference is therefore in the type and its values, which the paper does not print, and not in a format.",
        factors.join(", ")
    ));
}
