//! `cargo run --release -p polywire-bench --bin json`: JSON beside `serde_json` and `sonic-rs`, which go through serde's derives.
//!
//! The peers' code for five hundred members takes the compiler many minutes, so that it is behind the feature `codecs-test-500`.

use std::hint::black_box;

use polywire_bench::{Candidate, Effort, medians};
use polywire_core::{
    codec::{self, Decoder, DynDecoder, DynEncoder, Encoder, Options},
    layout::{Message, Record, Shape},
    program::Backend,
};
#[cfg(feature = "codecs-test-500")]
use polywire_workloads::CodecsTest500;
use polywire_workloads::{CodecsTest10, Floats, MarketData, ProcessorProbe, Workload};
use serde::{Serialize, de::DeserializeOwned};

fn main() {
    measure::<MarketData>();
    measure::<CodecsTest10>();
    #[cfg(feature = "codecs-test-500")]
    measure::<CodecsTest500>();
    measure::<ProcessorProbe>();
    measure::<Floats>();
}

fn measure<T: Workload + Message + Serialize + DeserializeOwned>() {
    let values = T::generate(T::MESSAGES.min(64));
    let json = codec::find("json").expect("it is in the table");
    let texts: Vec<Vec<u8>> = values.iter().map(|value| written(json, value)).collect();
    let bytes = texts.iter().map(Vec::len).sum::<usize>() / texts.len();
    println!("{} ({bytes} bytes)", T::NAME);
    report("encode", values.len(), &mut encoders(json, &values));
    report("decode", values.len(), &mut decoders::<T>(json, &texts));
}

/// A value's text, which a peer reads as the value.
fn written<T: Workload + Message + DeserializeOwned>(json: &dyn codec::Codec, value: &T) -> Vec<u8> {
    let encoder = Encoder::<T>::new(json, &Options::default()).expect("it lowers");
    let mut out = Vec::new();
    encoder.encode(value, &mut out).expect("it encodes");
    assert_eq!(serde_json::from_slice::<T>(&out).expect("a peer reads it"), *value);
    out
}

fn encoders<'a, T: Workload + Message + Serialize>(json: &dyn codec::Codec, values: &'a [T]) -> Vec<Candidate<'a>> {
    let mut all = Vec::new();
    let mut out = Vec::new();
    all.push(Candidate::new("serde_json", move || {
        for value in values {
            out.clear();
            serde_json::to_writer(&mut out, value).expect("it encodes");
            black_box(&out);
        }
    }));
    let mut out = Vec::new();
    all.push(Candidate::new("sonic-rs", move || {
        for value in values {
            out.clear();
            sonic_rs::to_writer(&mut out, value).expect("it encodes");
            black_box(&out);
        }
    }));
    for (name, backend) in [("interpreter", Backend::Interpreter), ("jit", Backend::Jit)] {
        let encoder = Encoder::<T>::with_backend(json, &Options::default(), backend).expect("it lowers");
        let mut out = Vec::new();
        all.push(Candidate::new(name, move || {
            for value in values {
                out.clear();
                encoder.encode(value, &mut out).expect("it encodes");
                black_box(&out);
            }
        }));
    }
    let shape = Shape::of(T::shape().schema()).expect("it has a shape");
    let encoder = DynEncoder::new(json, &Options::default(), &shape).expect("it lowers");
    let decoder = DynDecoder::new(json, &Options::default(), shape.schema(), &shape).expect("it lowers");
    let record = |value: &T| {
        let mut record = Record::new(&shape);
        decoder.decode(&written_again(json, value), &mut record).expect("it decodes");
        record
    };
    let records: Vec<Record> = values.iter().map(record).collect();
    let mut out = Vec::new();
    all.push(Candidate::new("jit, record", move || {
        for record in &records {
            out.clear();
            encoder.encode(record, &mut out).expect("it encodes");
            black_box(&out);
        }
    }));
    all
}

fn written_again<T: Message>(json: &dyn codec::Codec, value: &T) -> Vec<u8> {
    let encoder = Encoder::<T>::with_backend(json, &Options::default(), Backend::Interpreter).expect("it lowers");
    let mut out = Vec::new();
    encoder.encode(value, &mut out).expect("it encodes");
    out
}

fn decoders<'a, T: Workload + Message + DeserializeOwned>(
    json: &dyn codec::Codec,
    texts: &'a [Vec<u8>],
) -> Vec<Candidate<'a>> {
    let mut all = Vec::new();
    all.push(Candidate::new("serde_json", move || {
        for text in texts {
            black_box(serde_json::from_slice::<T>(text).expect("it decodes"));
        }
    }));
    all.push(Candidate::new("sonic-rs", move || {
        for text in texts {
            black_box(sonic_rs::from_slice::<T>(text).expect("it decodes"));
        }
    }));
    for (name, backend) in [("interpreter", Backend::Interpreter), ("jit", Backend::Jit)] {
        let decoder = Decoder::<T>::with_backend(json, &Options::default(), T::shape().schema(), backend);
        let decoder = decoder.expect("it lowers");
        let mut value = T::default();
        all.push(Candidate::new(name, move || {
            for text in texts {
                decoder.decode(text, &mut value).expect("it decodes");
                black_box(&value);
            }
        }));
    }
    let shape = Shape::of(T::shape().schema()).expect("it has a shape");
    let decoder = DynDecoder::new(json, &Options::default(), shape.schema(), &shape).expect("it lowers");
    let mut record = Record::new(&shape);
    all.push(Candidate::new("jit, record", move || {
        for text in texts {
            decoder.decode(text, &mut record).expect("it decodes");
            black_box(&record);
        }
    }));
    all
}

/// Nanoseconds a message, and how many times the faster peer's.
fn report(what: &str, messages: usize, candidates: &mut [Candidate<'_>]) {
    let medians = medians(messages, candidates, Effort::default());
    let best = medians[0].min(medians[1]);
    for (candidate, ns) in candidates.iter().zip(&medians) {
        println!("  {what:<8}{:<14}{ns:>12.1} ns{:>8.2}x", candidate.name, ns / best);
    }
}
