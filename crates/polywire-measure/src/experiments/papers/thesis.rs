//! Writes the page on the thesis of 2016: bytes, throughput, latency, and the times of packaging
//! (encoding) and un-packaging (decoding), against the number of fields.

use crate::experiments::page::{Page, cell, texts};
use crate::{CaseResult, Results};

const FIELDS: [usize; 5] = [10, 50, 100, 250, 500];

/// Figures that the thesis prints: metric, codec, figure at 10 fields and at 500.
const PRINTED: &[(&str, &str, &str, &str)] = &[
    ("bytes", "CDR", "96", "about 4800"),
    ("bytes", "BSON", "215", "10915"),
    ("bytes", "FAST", "10", "279"),
    ("bottleneck_hz", "CDR", "4959", "190"),
    ("bottleneck_hz", "BSON", "2911", "80"),
    ("bottleneck_hz", "FAST", "7740", "1206"),
];

/// FAST with the operators that the thesis prints for ten fields, repeated for every ten fields.
const GIVEN: &str = "fast:template=../../workloads/codecs_test.fast.xml@chained";

/// FAST with operators that were learned from other values of the same kind.
const LEARNED: &str = "fast:template=learned@chained";

/// The variants of FAST, and their names in tables.
const FASTS: [(&str, &str); 3] = [
    (GIVEN, "fast@chained, the thesis's operators"),
    (LEARNED, "fast@chained, learned operators"),
    ("fast@chained", "fast@chained, derived operators"),
];

/// How much longer 500 fields take than 10, in the thesis: codec, name in tables, percent for
/// packaging, percent for un-packaging.
const GREW: [(&str, &str, f64, f64); 5] = [
    ("cdr", "CDR", 3159.0, 2312.0),
    ("bson", "BSON", 5078.0, 3686.0),
    (GIVEN, "FAST, the thesis's operators", 1985.0, 1642.0),
    (LEARNED, "FAST, learned operators", 1985.0, 1642.0),
    ("fast@chained", "FAST, derived operators", 1985.0, 1642.0),
];

/// The codecs in the plots.
const PLOTTED: [&str; 7] = ["cdr", "bson", GIVEN, LEARNED, "protobuf", "json", "xml"];

pub fn page(page: &mut Page, results: &[Results]) {
    let Some(results) = results.first() else { return };
    page.say(
        "The probe `CodecsTest` with 10 to 500 fields of ten kinds, over an emulated line of 8 Mbit/s. `fast@chained` \
         is FAST as in the thesis: each message refers to the one before. Its operators are those of the thesis's own \
         template (`workloads/codecs_test.fast.xml`, with its ten fields repeated for every ten), learned from 500 \
         other messages, or derived from the type alone. `fast` is FAST with messages that refer to no other. Strings are \
         `Hello_World!`, which is a constant in the thesis's template. Other values are *walking* (each field changes a \
         little) or *random* (each is drawn from the whole range of its type).",
    );
    for (metric, title, note) in [
        ("bytes", "Size of a message", "Bytes on the wire."),
        (
            "bottleneck_hz",
            "Throughput over 8 Mbit/s",
            "Messages per second that the slowest of sender, line and receiver can handle. The thesis counts those of \
             its TCP client.",
        ),
        (
            "latency_p50_ns",
            "Latency over 8 Mbit/s",
            "Twenty messages per second. The time runs from when a message was due until it was decoded; 0.5 ms of it \
             is the delay of the line.",
        ),
        ("serialise_ns", "Packaging", "CPU time to encode a message."),
        ("deserialise_ns", "Un-packaging", "CPU time to decode a message."),
    ] {
        page.heading(title);
        page.say(note);
        by_fields(page, results, metric);
    }
    page.plot(results, "Bytes against field count", |case| case.values == "walking" && PLOTTED.contains(&&*case.codec));
    page.plot(results, "Throughput against field count", |case| {
        case.values == "walking" && PLOTTED.contains(&&*case.codec)
    });
    growth(page, results);
    throughput(page, results);
    extrapolation(page, results);
    differences(page, results);
}

/// A codec's name in tables.
fn called(codec: &str) -> &str {
    FASTS.iter().find(|fast| fast.0 == codec).map_or(codec, |fast| fast.1)
}

fn at<'a>(results: &'a Results, values: &str, codec: &str, fields: usize) -> Option<&'a CaseResult> {
    results.find(|case| case.values == values && case.codec == codec && case.fields == fields)
}

fn value(results: &Results, values: &str, codec: &str, fields: usize, metric: &str) -> Option<f64> {
    Some(at(results, values, codec, fields)?.metrics.get(metric)?.value)
}

fn by_fields(page: &mut Page, results: &Results, metric: &str) {
    let mut head = texts(["codec", "values"]);
    head.extend(FIELDS.iter().map(|fields| format!("{fields} fields")));
    let mut rows = Vec::new();
    for (_, codec, ten, most) in PRINTED.iter().filter(|printed| printed.0 == metric) {
        rows.push(texts([&format!("*thesis: {codec}*"), "", ten, "", "", "", most]));
    }
    for values in &results.scenario.axes.values {
        for codec in &results.scenario.axes.codec {
            let mut row = vec![called(codec).to_owned(), values.clone()];
            row.extend(FIELDS.iter().map(|fields| cell(at(results, values, codec, *fields), metric)));
            rows.push(row);
        }
    }
    page.table(&head, &rows);
}

fn growth(page: &mut Page, results: &Results) {
    page.heading("From 10 to 500 fields");
    page.say("How much more time 500 fields take than 10: the percentages of the thesis's abstract.");
    let grown = |values: &str, codec: &str, metric: &str| -> String {
        let (few, many) = (value(results, values, codec, 10, metric), value(results, values, codec, 500, metric));
        few.zip(many).map_or("-".into(), |(few, many)| format!("+{:.0} %", (many / few - 1.0) * 100.0))
    };
    let row = |(codec, name, packaging, unpackaging): &(&str, &str, f64, f64)| {
        vec![
            (*name).to_owned(),
            format!("+{packaging:.0} %"),
            grown("walking", codec, "serialise_ns"),
            grown("random", codec, "serialise_ns"),
            format!("+{unpackaging:.0} %"),
            grown("walking", codec, "deserialise_ns"),
            grown("random", codec, "deserialise_ns"),
        ]
    };
    let head = ["codec", "packaging, thesis", "walking", "random", "un-packaging, thesis", "walking", "random"];
    page.table(&texts(head), &GREW.iter().map(row).collect::<Vec<_>>());
}

/// The change from 10 to 500 fields in the thesis: codec, name in tables, percent by which
/// throughput falls, percent by which latency grows.
const THROUGHPUT: [(&str, &str, f64, f64); 4] = [
    ("cdr", "CDR", 96.16, 2510.73),
    ("bson", "BSON", 97.23, 3522.69),
    (GIVEN, "FAST, the thesis's operators", 84.41, 541.3),
    (LEARNED, "FAST, learned operators", 84.41, 541.3),
];

/// Compares throughput and latency with the percentages in the thesis's abstract.
fn throughput(page: &mut Page, results: &Results) {
    page.say(
        "How much lower the throughput is with 500 fields than with 10, and how much longer a message with 500 fields \
         takes. The thesis measured the first, and took the second as its inverse.",
    );
    let part = |values: &str, codec: &str, metric: &str| {
        let (few, many) = (value(results, values, codec, 10, metric), value(results, values, codec, 500, metric));
        few.zip(many).map(|(few, many)| (many / few - 1.0) * 100.0)
    };
    let text = |percent: Option<f64>| percent.map_or("-".into(), |percent| format!("{percent:+.1} %"));
    let row = |(codec, name, falls, grows): &(&str, &str, f64, f64)| {
        vec![
            (*name).to_owned(),
            format!("-{falls} %"),
            text(part("walking", codec, "bottleneck_hz")),
            text(part("random", codec, "bottleneck_hz")),
            format!("+{grows} %"),
            text(part("walking", codec, "latency_p50_ns")),
            text(part("random", codec, "latency_p50_ns")),
        ]
    };
    let head = ["codec", "throughput, thesis", "walking", "random", "latency, thesis", "walking", "random"];
    page.table(&texts(head), &THROUGHPUT.iter().map(row).collect::<Vec<_>>());
}

/// Checks whether FAST is cheaper than CDR for large messages, as the thesis extrapolates.
fn extrapolation(page: &mut Page, results: &Results) {
    page.heading("Does FAST become cheaper than CDR?");
    page.say(
        "In the thesis, packaging with FAST took 3.1 times as long as with CDR at 10 fields and 2.1 times at 500. The \
         thesis extrapolates that FAST becomes cheaper. The time of FAST as a multiple of CDR's here:",
    );
    let mut rows = Vec::new();
    let mut verdicts = Vec::new();
    for (fast, name) in FASTS {
        for values in &results.scenario.axes.values {
            for (metric, work) in [("serialise_ns", "packaging"), ("deserialise_ns", "un-packaging")] {
                let ratio = |fields: &usize| {
                    let own = value(results, values, fast, *fields, metric)?;
                    Some(own / value(results, values, "cdr", *fields, metric)?)
                };
                let ratios: Vec<Option<f64>> = FIELDS.iter().map(ratio).collect();
                let mut row = vec![name.to_owned(), values.clone(), work.to_owned()];
                row.extend(ratios.iter().map(|ratio| ratio.map_or("-".into(), |ratio| format!("{ratio:.1}"))));
                rows.push(row);
                if let Some((Some(few), Some(many))) = ratios.first().zip(ratios.last()) {
                    let way = if many < few { "falls" } else { "does not fall" };
                    let verdict = if *many < 1.0 { "FAST is faster" } else { "FAST remains slower" };
                    verdicts.push(format!(
                        "{name}, {values} values, {work}: the multiple {way} ({few:.1} to {many:.1}), and at 500 fields {verdict}."
                    ));
                }
            }
        }
    }
    let mut head = texts(["", "values", ""]);
    head.extend(FIELDS.iter().map(|fields| format!("{fields} fields")));
    page.table(&head, &rows);
    page.list(&verdicts);
}

fn differences(page: &mut Page, results: &Results) {
    page.heading("Where this differs from the thesis, and why");
    let bytes = |codec: &str, fields: usize| value(results, "walking", codec, fields, "bytes");
    let mut items = Vec::new();
    let slope = |codec: &str| Some((bytes(codec, 500)? - bytes(codec, 10)?) / 490.0);
    if let (Some(cdr), Some(fast), Some(bson)) = (slope("cdr"), slope(GIVEN), slope("bson")) {
        let (cdr_there, bson_there, fast_there) =
            ((4800.0 - 96.0) / 490.0, (10_915.0 - 215.0) / 490.0, (279.0 - 10.0) / 490.0);
        items.push(format!(
            "Bytes of an additional field: CDR {cdr:.1} here and {cdr_there:.1} in the thesis, BSON {bson:.1} and \
             {bson_there:.1}, FAST {fast:.2} and {fast_there:.2}. BSON contains the values and the PDL's names, and \
             takes almost the same in both, so the values have the same size. The additional {:.1} bytes of CDR per \
             field in the thesis are therefore not part of the values. FAST uses the thesis's operators.",
            cdr_there - cdr
        ));
    }
    items.push(least_of_the_template());
    items.extend(learned(results));
    let line = |codec: &str, fields: usize| {
        let (bytes, rate) = (bytes(codec, fields)?, value(results, "walking", codec, fields, "bottleneck_hz")?);
        Some(rate * bytes * 8.0 / 8e6 * 100.0)
    };
    let least = |codec: &str| FIELDS.iter().filter_map(|fields| line(codec, *fields)).fold(f64::INFINITY, f64::min);
    items.push(format!(
        "Throughput: here CDR uses at least {:.0} % of the line and FAST {:.0} %, with every number of fields. The \
         thesis's messages use {:.0} % of it (CDR, 10 fields), {:.0} % (CDR, 500) and {:.0} % (FAST, 500). Except for \
         large messages in CDR, the line was not its limit.",
        least("cdr"),
        least(GIVEN),
        4959.0 * 96.0 * 8.0 / 8e4,
        190.0 * 4800.0 * 8.0 / 8e4,
        1206.0 * 279.0 * 8.0 / 8e4
    ));
    items.push(
        "\"Latency is the inverse of throughput\" holds only with one message in flight. Here both are measured. The \
         latency of a message contains the delay of the line (0.5 ms); the throughput does not."
            .into(),
    );
    page.list(&items);
}

/// Number of fields, of ten in the thesis's template, that take at least a byte for any value:
/// char, uchar and int32, which have no operator, and int16, uint16 and uint64, which are deltas.
const ALWAYS: usize = 6;

/// Number of fields, of ten, that take a bit of the presence map: bool and uint32, which have the
/// operator copy, and int64, which has increment.
const BITS: usize = 3;

/// States the smallest message of the printed template.
fn least_of_the_template() -> String {
    // A byte has seven bits of the presence map; one bit is that of the template's id.
    let least = |fields: usize| fields / 10 * ALWAYS + (fields / 10 * BITS + 1).div_ceil(7);
    format!(
        "The template that the thesis prints for 10 fields takes at least {} bytes a message, whatever the values are: \
         {ALWAYS} of its ten fields have no operator or are deltas and take a byte each, and {BITS} take a bit. The \
         thesis's 10 bytes are consistent with that. Its 279 bytes for 500 fields are not: fifty times the same ten \
         fields take at least {} bytes. Its templates for more fields must therefore have other operators, which it \
         does not print.",
        least(10),
        least(500)
    )
}

/// Compares learned operators with the thesis's.
fn learned(results: &Results) -> Option<String> {
    let times = |values: &str, fields: usize| {
        let bytes = |codec: &str| value(results, values, codec, fields, "bytes");
        Some(bytes(LEARNED)? / bytes(GIVEN)?)
    };
    Some(format!(
        "Learned operators take {:.2} times the bytes of the thesis's operators at 10 fields and {:.2} at 500 with \
         walking values, and {:.2} and {:.2} with random values. They allow any string, which a constant forbids. For \
         each field, they are the shortest choice for 500 other messages.",
        times("walking", 10)?,
        times("walking", 500)?,
        times("random", 10)?,
        times("random", 500)?
    ))
}
