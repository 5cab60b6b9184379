//! Benchmark of the compressors on single messages, as a topic compresses them: bytes, and the
//! times to compress and to decompress.

use std::hint::black_box;

use polywire_core::compress::{COMPRESSORS, Compressor, Limits, Packer, Settings, Unpacker, dictionary, find};

use super::{Measured, Subject, for_each_workload};
use crate::{
    measure::{Candidate, Effort, Figure, compare},
    report::{Columns, Group, Row, mean_length},
};

/// Number of messages that are measured. Dictionaries are trained on the others.
const MESSAGES: usize = 32;

/// The same for a quick run.
const FEW_MESSAGES: usize = 2;

/// Size of a dictionary in bytes.
const DICTIONARY: usize = 4096;

/// All compressors, applied to messages of the codecs `cdr` and `json`.
pub fn group(effort: Effort) -> Group {
    let note = "One message at a time, with a compressor that is created once, at the usual level unless one is given. *(dictionary)* means with a dictionary of 4 KiB that was trained on other messages.";
    let rows = for_each_workload!(rows(effort.at_most(9))).into_iter().flatten().collect();
    Group { title: "Compressors", columns: Columns::Compressors, note: note.into(), rows, ..Group::default() }
}

/// A compressor with its label, settings and dictionary.
struct Way {
    label: String,
    compressor: &'static dyn Compressor,
    settings: Settings,
    dictionary: Vec<u8>,
}

fn rows<T: Measured>(effort: Effort) -> Vec<Row> {
    let subject = Subject::<T>::new();
    let of_codec = |codec: &&'static str| {
        let encoded = subject.encoded(codec);
        let count = if effort.turns > Effort::QUICK.turns { MESSAGES } else { FEW_MESSAGES };
        let (messages, samples) = encoded.split_at(count.min(encoded.len() / 2));
        let plain = mean_length(messages).unwrap_or_default();
        let what = format!("{} {codec}", T::NAME);
        let mut rows: Vec<Row> = ways(samples).iter().map(|way| row(&what, plain, messages, way, effort)).collect();
        rows.extend(lzokay(&what, plain, messages, effort));
        rows
    };
    ["cdr", "json"].iter().flat_map(of_codec).collect()
}

fn ways(samples: &[Vec<u8>]) -> Vec<Way> {
    let way = |compressor: &&'static dyn Compressor| Way {
        label: compressor.name().into(),
        compressor: *compressor,
        settings: Settings::default(),
        dictionary: Vec::new(),
    };
    let mut ways: Vec<Way> = COMPRESSORS.iter().map(way).collect();
    if let Some(zstd) = find("zstd") {
        ways.push(Way {
            label: "zstd:1".into(),
            compressor: zstd,
            settings: Settings { level: Some(1), ..Settings::default() },
            dictionary: Vec::new(),
        });
    }
    if let Ok(dictionary) = dictionary::train(samples, DICTIONARY) {
        let takers = COMPRESSORS.iter().filter(|compressor| compressor.properties().dictionary);
        ways.extend(takers.map(|taker| Way {
            label: format!("{} (dictionary)", taker.name()),
            dictionary: dictionary.clone(),
            ..way(taker)
        }));
    }
    ways
}

fn row(what: &str, plain: f64, messages: &[Vec<u8>], way: &Way, effort: Effort) -> Row {
    let mut packer = Packer::new(way.compressor, &way.settings, &way.dictionary).expect("a state");
    let mut unpacker = Unpacker::new(way.compressor, &way.dictionary, Limits::default()).expect("a state");
    let pack = |message: &Vec<u8>| {
        let mut out = Vec::new();
        packer.pack(message, &mut out);
        assert!(unpacker.unpack(&out) == Ok(message), "{what}, {}: another message is unpacked", way.label);
        out
    };
    let packed: Vec<Vec<u8>> = messages.iter().map(pack).collect();
    let mut out = Vec::new();
    let compress = Candidate::new("compress", || {
        for message in messages {
            out.clear();
            packer.pack(black_box(message), &mut out);
            black_box(&out);
        }
    });
    let decompress = Candidate::new("decompress", || {
        for packed in &packed {
            black_box(unpacker.unpack(black_box(packed)).expect("Polywire's own bytes"));
        }
    });
    let figures = compare(messages.len(), vec![compress, decompress], effort);
    line(what, plain, &way.label, &packed, figures)
}

/// The LZO compressor of the crate `lzokay`, for comparison. Polywire uses that crate to decompress
/// LZO, but compresses with code of its own.
fn lzokay(what: &str, plain: f64, messages: &[Vec<u8>], effort: Effort) -> Option<Row> {
    let packed: Vec<Vec<u8>> =
        messages.iter().map(|message| lzokay::compress::compress(message).ok()).collect::<Option<_>>()?;
    let compress = Candidate::new("compress", || {
        messages.iter().for_each(|message| drop(black_box(lzokay::compress::compress(black_box(message)))));
    });
    let figures = compare(messages.len(), vec![compress], effort.at_most(3));
    Some(line(what, plain, "lzo by lzokay", &packed, figures))
}

fn line(what: &str, plain: f64, label: &str, packed: &[Vec<u8>], mut figures: Vec<Figure>) -> Row {
    // The time to decompress is no multiple of the time to compress.
    for figure in figures.iter_mut().skip(1) {
        (figure.ratio, figure.more_ns) = (f64::NAN, f64::NAN);
    }
    Row {
        workload: what.into(),
        operation: label.into(),
        bytes: mean_length(packed),
        uncompressed_bytes: Some(plain),
        figures,
    }
}
