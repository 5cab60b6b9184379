//! Bytes, throughput, latency, packaging and un-packaging against the number of fields.

use crate::experiments::page::{Page, cell, texts};
use crate::{CaseResult, Results};

const FIELDS: [usize; 5] = [10, 50, 100, 250, 500];

/// What the thesis prints: metric, codec, figure at 10 fields and at 500.
const PRINTED: &[(&str, &str, &str, &str)] = &[
    ("bytes", "CDR", "96", "about 4800"),
    ("bytes", "BSON", "215", "10915"),
    ("bytes", "FAST", "10", "279"),
    ("bottleneck_hz", "CDR", "4959", "190"),
    ("bottleneck_hz", "BSON", "2911", "80"),
    ("bottleneck_hz", "FAST", "7740", "1206"),
];

/// FAST by the operators that the thesis prints, for ten fields and again for every ten.
const GIVEN: &str = "fast:template=../../workloads/codecs_test.fast.xml@chained";

/// FAST by operators that were learned from other values of the same kind.
const LEARNED: &str = "fast:template=learned@chained";

/// How FAST can be had, and what tables call it.
const FASTS: [(&str, &str); 3] = [
    (GIVEN, "fast@chained, the thesis's operators"),
    (LEARNED, "fast@chained, learned operators"),
    ("fast@chained", "fast@chained, derived operators"),
];

/// How much longer 500 fields take than 10, in the thesis: codec, packaging, un-packaging, of a
/// hundred.
const GREW: [(&str, &str, f64, f64); 5] = [
    ("cdr", "CDR", 3159.0, 2312.0),
    ("bson", "BSON", 5078.0, 3686.0),
    (GIVEN, "FAST, the thesis's operators", 1985.0, 1642.0),
    (LEARNED, "FAST, learned operators", 1985.0, 1642.0),
    ("fast@chained", "FAST, derived operators", 1985.0, 1642.0),
];

/// Those that a plot has room for.
const PLOTTED: [&str; 7] = ["cdr", "bson", GIVEN, LEARNED, "protobuf", "json", "xml"];

pub fn page(page: &mut Page, results: &[Results]) {
    let Some(results) = results.first() else { return };
    page.say(
        "The probe `CodecsTest` with 10 to 500 fields of ten kinds, over an emulated line of 8 Mbit/s. `fast@chained` is FAST as the thesis uses it: each message refers \
         to the one before; by the operators of the thesis's own template (`workloads/codecs_test.fast.xml`, its ten fields again for every ten), by operators learned from 500 other messages, and by those that \
         the type alone gives; `fast` are messages that stand alone. Strings are `Hello_World!`, which is a constant of that template. Other values *walk* (each field moves a little) or are *random* (each anew from all that its type holds).",
    );
    for (metric, title, note) in [
        ("bytes", "Size of a message", "Bytes on the wire."),
        (
            "bottleneck_hz",
            "Throughput over 8 Mbit/s",
            "Messages a second that the slowest of sender, line and receiver lets through; the thesis counts its TCP client's.",
        ),
        (
            "latency_p50_ns",
            "Latency over 8 Mbit/s",
            "Twenty messages a second; from when a message was due until it had been read; 0.5 ms of it is the way.",
        ),
        ("serialise_ns", "Packaging", "CPU time to write a message."),
        ("deserialise_ns", "Un-packaging", "CPU time to read it."),
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

/// What tables call a codec.
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

/// What the thesis says of throughput and latency: how much of a hundred the one falls and the
/// other grows.
const THROUGHPUT: [(&str, &str, f64, f64); 4] = [
    ("cdr", "CDR", 96.16, 2510.73),
    ("bson", "BSON", 97.23, 3522.69),
    (GIVEN, "FAST, the thesis's operators", 84.41, 541.3),
    (LEARNED, "FAST, learned operators", 84.41, 541.3),
];

/// The other percentages of the abstract.
fn throughput(page: &mut Page, results: &Results) {
    page.say("How much the throughput of 500 fields is below that of 10, and how much longer a message of 500 takes: the thesis measures the first and has the second as its inverse.");
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

/// Whether FAST is cheaper than CDR for large messages, which the thesis extrapolates.
fn extrapolation(page: &mut Page, results: &Results) {
    page.heading("Does FAST become cheaper than CDR?");
    page.say(
        "The thesis finds packaging by FAST 3.1 times as dear as by CDR at 10 fields and 2.1 times at 500, and extrapolates that it becomes cheaper. FAST's time as a multiple \
         of CDR's here:",
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
                    let verdict = if *many < 1.0 { "FAST is cheaper" } else { "FAST stays dearer" };
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
            "Bytes that a further field takes: CDR {cdr:.1} here and {cdr_there:.1} in the thesis, BSON {bson:.1} and {bson_there:.1}, FAST {fast:.2} and {fast_there:.2}. BSON holds values and the PDL's names, and takes the same: \
             the values are as long. So what CDR takes more in the thesis, {:.1} bytes a field, is no part of the values. FAST is by the thesis's operators.",
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
        "Throughput: here CDR fills at least {:.0} % of the line and FAST {:.0} %, at every number of fields. The thesis's messages fill {:.0} % of it (CDR, 10 fields), {:.0} % (CDR, 500) and {:.0} % \
         (FAST, 500): but for large messages of CDR, its limit was not the line.",
        least("cdr"),
        least(GIVEN),
        4959.0 * 96.0 * 8.0 / 8e4,
        190.0 * 4800.0 * 8.0 / 8e4,
        1206.0 * 279.0 * 8.0 / 8e4
    ));
    items.push(
        "\"Latency is the inverse of throughput\" holds with one message in flight alone; here both are measured, and a message's latency has the way (0.5 ms) in it, which its \
         throughput has not."
            .into(),
    );
    page.list(&items);
}

/// Fields of ten that take a byte whatever their value is, in the thesis's template: char, uchar
/// and int32, which have no operator, and int16, uint16 and uint64, which are deltas.
const ALWAYS: usize = 6;

/// Those that take a bit of the presence map: bool and uint32, which are copied, and int64, which
/// is an increment.
const BITS: usize = 3;

/// What the printed template cannot do.
fn least_of_the_template() -> String {
    // Seven bits of the presence map go into a byte, and the template's id has one.
    let least = |fields: usize| fields / 10 * ALWAYS + (fields / 10 * BITS + 1).div_ceil(7);
    format!(
        "The template that the thesis prints for 10 fields takes at least {} bytes a message whatever the values: {ALWAYS} of its ten fields have no operator or are deltas, which take a byte each, and {BITS} take a bit. \
         The thesis's 10 bytes go with that. Its 279 bytes of 500 fields do not: fifty times the same ten take at least {} bytes. So its templates for more fields have other operators, which it does not print.",
        least(10),
        least(500)
    )
}

/// What learning makes of it.
fn learned(results: &Results) -> Option<String> {
    let times = |values: &str, fields: usize| {
        let bytes = |codec: &str| value(results, values, codec, fields, "bytes");
        Some(bytes(LEARNED)? / bytes(GIVEN)?)
    };
    Some(format!(
        "Learned operators take {:.2} times the bytes of the thesis's at 10 fields and {:.2} at 500 where values walk, {:.2} and {:.2} where they are random. They allow any string, which a constant forbids, and are for each field what was shortest in 500 other messages.",
        times("walking", 10)?,
        times("walking", 500)?,
        times("random", 10)?,
        times("random", 500)?
    ))
}
